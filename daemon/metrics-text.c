/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of metrics.def as Prometheus' text (version 0.0.4) and as OpenMetrics' (1.0.0). All samples of a
 * family stand together, as both want it. Main thread. Next to read: metrics-rows.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "layout.h"
#include "metrics.h"

/* ---- which of the two ---- */

/* The q of an element "type;a=b;q=0.5", 1 when there is none. */
static double quality(const char *element, size_t length)
{
	for (size_t i = 0; i + 2 < length; i++)
		if (element[i] == ';') {
			size_t at = i + 1 + strspn(element + i + 1, " \t");

			if (at + 2 < length && (element[at] == 'q' || element[at] == 'Q') && element[at + 1] == '=')
				return strtod(element + at + 2, NULL);
		}
	return 1;
}

/* Does the element name this type, or one with a * that holds it? */
static bool element_is(const char *element, size_t length, const char *type)
{
	size_t name = strcspn(element, "; \t,");

	return name <= length && strlen(type) == name && strncasecmp(element, type, name) == 0;
}

enum metrics_format metrics_format_of(const char *accept)
{
	double text = -1, open = -1;

	while (accept && *accept) {
		size_t length;
		double q;

		accept += strspn(accept, " \t,");
		length = strcspn(accept, ",");
		q = quality(accept, length);
		if (element_is(accept, length, "application/openmetrics-text") && q > open)
			open = q;
		if ((element_is(accept, length, "text/plain") || element_is(accept, length, "text/*") ||
		     element_is(accept, length, "*/*")) &&
		    q > text)
			text = q;
		accept += length;
	}
	return open > 0 && open >= text ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;
}

const char *metrics_content_type(enum metrics_format format)
{
	return format == METRICS_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
					     : "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- one family ---- */

static const char *const type_names[] = {"counter", "gauge", "histogram"};
static const char *const unit_names[] = {NULL, "seconds", "bytes", "ratio"};

/* OpenMetrics: the family of a counter has no _total, its sample has. */
static int base_length(const struct metrics_family *family, enum metrics_format format)
{
	size_t length = strlen(family->name);

	if (format == METRICS_OPENMETRICS && family->type == METRICS_COUNTER)
		length -= strlen("_total");
	return (int)length;
}

/* A backslash or a newline in help would be escaped; the table has none (tests/unit/test-metrics.c). */
static void head(struct evbuffer *to, const struct metrics_family *family, enum metrics_format format)
{
	int length = base_length(family, format);

	evbuffer_add_printf(to, "# HELP %.*s ", length, family->name);
	for (const char *c = family->help; *c; c++) {
		if (*c == '"' && format == METRICS_OPENMETRICS)
			evbuffer_add(to, "\\", 1);
		evbuffer_add(to, c, 1);
	}
	evbuffer_add_printf(to, "\n# TYPE %.*s %s\n", length, family->name, type_names[family->type]);
	if (format == METRICS_OPENMETRICS && unit_names[family->unit])
		evbuffer_add_printf(to, "# UNIT %.*s %s\n", length, family->name, unit_names[family->unit]);
}

/* Name and labels, with the braces only where there are some. */
static void name_and_labels(struct evbuffer *to, const char *name, const char *suffix, const char *first,
			    const char *second, const char *third)
{
	const char *parts[] = {first, second, third};
	const char *between = "{";

	evbuffer_add_printf(to, "%s%s", name, suffix);
	for (int i = 0; i < 3; i++) {
		if (!parts[i] || !parts[i][0])
			continue;
		evbuffer_add_printf(to, "%s%s", between, parts[i]);
		between = ",";
	}
	evbuffer_add_printf(to, "%s ", between[0] == ',' ? "}" : "");
}

/* An integer as it is: a double would lose digits of large ones. */
static void number(struct evbuffer *to, const struct metrics_item *item, const struct metrics_value *value)
{
	if (item->kind == METRICS_REAL)
		evbuffer_add_printf(to, "%.17g\n", value->real);
	else if (item->scale == 1.0)
		evbuffer_add_printf(to, "%" PRIu64 "\n", value->number);
	else
		evbuffer_add_printf(to, "%.15g\n", (double)value->number * item->scale);
}

/*
 * Bucket i of layout.h is what was below 2^i ns. The sum of the times is nowhere, and none is told: a
 * _count without it is allowed in Prometheus' text alone.
 */
static void histogram(struct evbuffer *to, const struct metrics_family *family, enum metrics_format format,
		      const char *labels, const struct metrics_item *item, const uint64_t *buckets)
{
	uint64_t sum = 0;
	char bound[48];

	for (unsigned int i = 0; i < LAYOUT_LATENCY_BUCKETS - 1; i++) {
		if (__builtin_add_overflow(sum, buckets[i], &sum))
			sum = UINT64_MAX;
		snprintf(bound, sizeof(bound), "le=\"%.12g\"", (double)(1ull << i) * 1e-9);
		name_and_labels(to, family->name, "_bucket", labels, item->labels, bound);
		evbuffer_add_printf(to, "%" PRIu64 "\n", sum);
	}
	if (__builtin_add_overflow(sum, buckets[LAYOUT_LATENCY_BUCKETS - 1], &sum))
		sum = UINT64_MAX;
	name_and_labels(to, family->name, "_bucket", labels, item->labels, "le=\"+Inf\"");
	evbuffer_add_printf(to, "%" PRIu64 "\n", sum);
	if (format != METRICS_PROMETHEUS)
		return;
	name_and_labels(to, family->name, "_count", labels, item->labels, NULL);
	evbuffer_add_printf(to, "%" PRIu64 "\n", sum);
}

/* The samples of a family in a row. */
static void samples(struct evbuffer *to, enum metrics_family_id id, enum metrics_format format,
		    const struct metrics_row *row, bool *inout_head)
{
	const struct metrics_family *family = metrics_family(id);
	size_t count;
	const struct metrics_item *items = metrics_items(row->subject, &count);

	for (size_t i = 0; i < count; i++) {
		if (items[i].family != id || !row->values[i].known)
			continue;
		if (!*inout_head)
			head(to, family, format);
		*inout_head = true;
		if (items[i].kind == METRICS_BUCKETS) {
			histogram(to, family, format, row->labels, &items[i], row->values[i].buckets);
			continue;
		}
		name_and_labels(to, family->name, "", row->labels, items[i].labels, NULL);
		number(to, &items[i], &row->values[i]);
	}
}

int metrics_text(struct evbuffer *to, enum metrics_format format, const struct metrics_row *rows, size_t count)
{
	for (int family = 0; family < METRICS_FAMILY_COUNT; family++) {
		bool has_head = false;

		for (size_t i = 0; i < count; i++)
			samples(to, (enum metrics_family_id)family, format, &rows[i], &has_head);
	}
	if (format == METRICS_OPENMETRICS && evbuffer_add_printf(to, "# EOF\n") < 0)
		return -ENOMEM;
	return 0;
}
