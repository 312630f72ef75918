/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows of metrics.def as JSON text. What metrics-json.c makes of a row, byte for byte, at a fraction of the cost: an object of
 * jansson is an allocation and a hash for each of its members, and a thousand clients have thirty thousand of them. Main thread.
 * tests/unit/test-metrics.c compares the two for every subject. Next to read: control.c, which uses both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics-write.h"

/* ---- the text ---- */

/* Where `bytes` more can be written; NULL without memory. */
static char *room(struct metrics_writer *writer, size_t bytes)
{
	size_t wanted = writer->room ? writer->room : 4096;
	char *grown;

	if (writer->failed)
		return NULL;
	if (writer->room - writer->used >= bytes)
		return writer->text + writer->used;
	while (wanted - writer->used < bytes)
		wanted *= 2;
	grown = realloc(writer->text, wanted);
	if (!grown) {
		writer->failed = true;
		return NULL;
	}
	writer->text = grown;
	writer->room = wanted;
	return grown + writer->used;
}

static void add(struct metrics_writer *writer, const char *bytes, size_t count)
{
	char *at = room(writer, count);

	if (!at)
		return;
	memcpy(at, bytes, count);
	writer->used += count;
}

void metrics_write_text(struct metrics_writer *writer, const char *text)
{
	add(writer, text, strlen(text));
}

void metrics_write_end(struct metrics_writer *writer)
{
	add(writer, "", 1);
}

void metrics_write_json(struct metrics_writer *writer, json_t *json)
{
	char *text = json ? json_dumps(json, METRICS_JSON_FORM | JSON_ENCODE_ANY) : NULL;

	if (text)
		metrics_write_text(writer, text);
	else
		writer->failed = true;
	free(text);
	json_decref(json);
}

/* ---- values ---- */

/* As metrics_json_u64(). */
static void write_number(struct metrics_writer *writer, uint64_t number)
{
	char digits[24], *end = digits + sizeof(digits), *at = end;
	bool quoted = number > INT64_MAX;

	if (quoted)
		*--at = '"';
	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	if (quoted)
		*--at = '"';
	add(writer, at, (size_t)(end - at));
}

static bool is_plain(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f || *text == '"' || *text == '\\')
			return false;
	return true;
}

static void write_string(struct metrics_writer *writer, const char *text)
{
	if (!is_plain(text)) {
		metrics_write_json(writer, metrics_json_text(text));
		return;
	}
	add(writer, "\"", 1);
	metrics_write_text(writer, text);
	add(writer, "\"", 1);
}

static void write_percentiles(struct metrics_writer *writer, const uint64_t *buckets)
{
	struct metrics_percentiles got = metrics_percentiles(buckets);

	metrics_write_text(writer, "{\"p50\":");
	write_number(writer, got.p50);
	metrics_write_text(writer, ",\"p99\":");
	write_number(writer, got.p99);
	metrics_write_text(writer, ",\"p999\":");
	write_number(writer, got.p999);
	metrics_write_text(writer, "}");
}

/* Of all kinds but SIGNED and REAL, which are rare, and PART. */
static void write_value(struct metrics_writer *writer, const struct metrics_item *item, const struct metrics_value *value)
{
	bool is_null = (item->kind == METRICS_MAYBE && !value->known) || (item->kind == METRICS_TEXT && !value->text);

	if (is_null)
		metrics_write_text(writer, "null");
	else if (item->kind == METRICS_NUMBER || item->kind == METRICS_SPARSE || item->kind == METRICS_MAYBE)
		write_number(writer, value->number);
	else if (item->kind == METRICS_FLAG)
		metrics_write_text(writer, value->number ? "true" : "false");
	else if (item->kind == METRICS_TEXT)
		write_string(writer, value->text);
	else if (item->kind == METRICS_BUCKETS)
		write_percentiles(writer, value->buckets);
}

/* ---- members ---- */

struct object {
	struct metrics_writer *writer;
	const struct metrics_row *row;
	metrics_part_cb *part;
	void *arg;
};

static void write_name(struct metrics_writer *writer, const char *name)
{
	char last = writer->used ? writer->text[writer->used - 1] : '{';

	metrics_write_text(writer, last == '{' ? "\"" : ",\"");
	metrics_write_text(writer, name);
	metrics_write_text(writer, "\":");
}

/* `name` is what is left of the item's member inside the object that is open. */
static void write_member(const struct object *object, const struct metrics_item *item, const struct metrics_value *value,
			 const char *name)
{
	struct metrics_writer *writer = object->writer;
	json_t *rare = NULL;

	if (item->kind == METRICS_SPARSE && !value->number)
		return;
	if (item->kind == METRICS_REAL || item->kind == METRICS_SIGNED) {
		rare = metrics_json_value(item, value);
		if (!rare)
			return;
	}
	write_name(writer, name);
	if (rare)
		metrics_write_json(writer, rare);
	else if (item->kind != METRICS_PART)
		write_value(writer, item, value);
	else if (object->part)
		object->part(writer, name, object->arg);
	else
		metrics_write_text(writer, "null");
}

/* Length of "outer." in front of the name; 0: there is none. */
static size_t outer_length(const struct metrics_item *item)
{
	const char *dot = item->member ? strchr(item->member, '.') : NULL;

	return dot ? (size_t)(dot - item->member) + 1 : 0;
}

static bool same_outer(const struct metrics_item *a, const struct metrics_item *b)
{
	size_t length = outer_length(a);

	return length > 0 && length == outer_length(b) && memcmp(a->member, b->member, length) == 0;
}

/* All members of the object that this item is the first of. */
static void write_outer(const struct object *object, const struct metrics_item *items, size_t first, size_t count)
{
	size_t length = outer_length(&items[first]);
	char outer[40];

	snprintf(outer, sizeof(outer), "%.*s", (int)length - 1, items[first].member);
	write_name(object->writer, outer);
	metrics_write_text(object->writer, "{");
	for (size_t i = first; i < count; i++)
		if (same_outer(&items[first], &items[i]))
			write_member(object, &items[i], &object->row->values[i], items[i].member + length);
	metrics_write_text(object->writer, "}");
}

static bool written_before(const struct metrics_item *items, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (same_outer(&items[i], &items[k]))
			return true;
	return false;
}

void metrics_write_row(struct metrics_writer *writer, const struct metrics_row *row, metrics_part_cb *part, void *arg)
{
	const struct object object = {writer, row, part, arg};
	size_t count;
	const struct metrics_item *items = metrics_items(row->subject, &count);

	metrics_write_text(writer, "{");
	for (size_t i = 0; i < count; i++) {
		if (!items[i].member)
			continue;
		if (!outer_length(&items[i]))
			write_member(&object, &items[i], &row->values[i], items[i].member);
		else if (!written_before(items, i))
			write_outer(&object, items, i, count);
	}
	metrics_write_text(writer, "}");
}

void metrics_write_view(struct metrics_writer *writer, enum metrics_subject subject, const void *view,
			metrics_part_cb *part, void *arg)
{
	struct metrics_row row;

	metrics_fill(&row, subject, view);
	metrics_write_row(writer, &row, part, arg);
}
