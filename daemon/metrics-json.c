/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of metrics.def as JSON. Names and units are the table's: whole numbers in the unit that the name
 * ends with. Main thread. Next to read: control.c, which puts the objects together.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "metrics.h"

json_t *metrics_json_u64(uint64_t number)
{
	char text[24];

	if (number <= INT64_MAX)
		return json_integer((json_int_t)number);
	snprintf(text, sizeof(text), "%" PRIu64, number);
	return json_string(text);
}

/* A process chooses its own name: what is no UTF-8 is shown as question marks. */
json_t *metrics_json_text(const char *text)
{
	json_t *json = text ? json_string(text) : json_null();
	char clean[256];
	size_t i;

	if (json)
		return json;
	for (i = 0; text[i] && i < sizeof(clean) - 1; i++)
		clean[i] = (char)(text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?');
	clean[i] = '\0';
	return json_string(clean);
}

/* ---- latencies ---- */

struct metrics_percentiles metrics_percentiles(const uint64_t *buckets)
{
	static const double shares[] = {0.5, 0.99, 0.999};
	uint64_t got[3] = {0};
	double total = 0, sum = 0;
	size_t next = 0;

	for (unsigned int i = 0; i < LAYOUT_LATENCY_BUCKETS; i++)
		total += (double)buckets[i];
	for (unsigned int i = 0; total > 0 && i < LAYOUT_LATENCY_BUCKETS; i++) {
		sum += (double)buckets[i];
		while (next < 3 && sum >= shares[next] * total)
			got[next++] = 1ull << i;
	}
	return (struct metrics_percentiles){got[0], got[1], got[2]};
}

static json_t *percentiles(const uint64_t *buckets)
{
	struct metrics_percentiles got = metrics_percentiles(buckets);
	json_t *object = json_object();

	json_object_set_new(object, "p50", metrics_json_u64(got.p50));
	json_object_set_new(object, "p99", metrics_json_u64(got.p99));
	json_object_set_new(object, "p999", metrics_json_u64(got.p999));
	return object;
}

/* ---- members ---- */

json_t *metrics_json_value(const struct metrics_item *item, const struct metrics_value *value)
{
	switch (item->kind) {
	case METRICS_NUMBER:
		return metrics_json_u64(value->number);
	case METRICS_SPARSE:
		return value->number ? metrics_json_u64(value->number) : NULL;
	case METRICS_MAYBE:
		return value->known ? metrics_json_u64(value->number) : json_null();
	case METRICS_REAL:
		return value->known ? json_real(value->real) : json_null();
	case METRICS_SIGNED:
		return json_integer((json_int_t)value->integer);
	case METRICS_FLAG:
		return json_boolean(value->number);
	case METRICS_TEXT:
		return metrics_json_text(value->text);
	case METRICS_BUCKETS:
		return percentiles(value->buckets);
	case METRICS_PART:
		return json_null(); /* keeps its place for the caller */
	}
	return NULL;
}

/* "outer.inner": the object `outer` is made when it is not there. Returns what `inner` belongs to. */
static json_t *outer_object(json_t *object, const char **inout_member)
{
	const char *dot = strchr(*inout_member, '.');
	json_t *inner;
	char outer[40];

	if (!dot)
		return object;
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - *inout_member), *inout_member);
	*inout_member = dot + 1;
	inner = json_object_get(object, outer);
	if (inner)
		return inner;
	inner = json_object();
	json_object_set_new(object, outer, inner);
	return inner;
}

void metrics_json(json_t *object, const struct metrics_row *row)
{
	size_t count;
	const struct metrics_item *items = metrics_items(row->subject, &count);

	for (size_t i = 0; i < count; i++) {
		const char *member = items[i].member;
		json_t *outer, *value;

		if (!member)
			continue;
		outer = outer_object(object, &member);
		value = metrics_json_value(&items[i], &row->values[i]);
		if (value)
			json_object_set_new_nocheck(outer, member, value); /* the table is ASCII */
	}
}

void metrics_json_view(json_t *object, enum metrics_subject subject, const void *view)
{
	struct metrics_row row;

	metrics_fill(&row, subject, view);
	metrics_json(object, &row);
}

json_t *metrics_object(enum metrics_subject subject, const void *view)
{
	json_t *object = json_object();

	metrics_json_view(object, subject, view);
	return object;
}
