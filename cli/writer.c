/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * writer.c - the result of a verb, as text or as JSON
 *
 * JSON is streamed, so that a list of a hundred million keys takes no memory. Text tables are drawn
 * by libsmartcols and wait until they are complete. Next to read: output.c (where it goes), cli.c
 * (errors).
 */
#include "writer.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text.h"

#define WRITER_COLUMN "%10s  " /* of a bare list's line */

/* A multiple of 3: such pieces of base64 can follow each other. */
#define WRITER_BASE64_PIECE 12288

struct writer {
	struct output *output; /* not owned */
	bool json;
	bool separated; /* JSON: a comma is due before the next member or row */
	bool ended;     /* JSON: the next member begins another document */
	bool in_list;
	bool has_error;        /* "error" was written */
	bool drawn;            /* text: something was written */
	enum writer_look look; /* of the list */
	json_t *values;        /* text: the table of values, name to value */
	json_t *rows;          /* text: the rows of the table */
	int failed;            /* 0 or -ENOMEM */
};

/* ---- JSON ---- */

static int dump_cb(const char *buffer, size_t n, void *data)
{
	output_write(data, buffer, n);
	return 0;
}

static void put_json(struct writer *writer, const json_t *value)
{
	if (json_dump_callback(value, dump_cb, writer->output, JSON_COMPACT | JSON_ENCODE_ANY) < 0)
		writer->failed = -ENOMEM;
}

static void begin_document(struct writer *writer)
{
	char begin[32];

	snprintf(begin, sizeof(begin), "{\"schema\":%d", WRITER_SCHEMA);
	output_text(writer->output, begin);
	writer->separated = true;
	writer->ended = false;
	writer->has_error = false;
}

static void put_name(struct writer *writer, const char *name, const char *suffix)
{
	if (writer->ended)
		begin_document(writer);
	if (writer->separated)
		output_text(writer->output, ",");
	output_text(writer->output, "\"");
	output_text(writer->output, name);
	output_text(writer->output, suffix);
	output_text(writer->output, "\":");
	writer->separated = true;
}

/* UTF-8 as a JSON string; jansson would copy a value of 2 GiB several times. */
static void put_string(struct output *output, const unsigned char *s, size_t n)
{
	char escaped[8];

	output_text(output, "\"");
	for (size_t i = 0, run; i < n; i += run + 1) {
		for (run = 0;
		     i + run < n && s[i + run] >= 0x20 && s[i + run] != '"' && s[i + run] != '\\';
		     run++)
			;
		output_write(output, s + i, run);
		if (i + run == n)
			break;
		snprintf(escaped, sizeof(escaped), "\\u%04x", s[i + run]);
		output_text(output, escaped);
	}
	output_text(output, "\"");
}

static void put_base64(struct output *output, const unsigned char *s, size_t n)
{
	char text[sodium_base64_ENCODED_LEN(WRITER_BASE64_PIECE, sodium_base64_VARIANT_ORIGINAL)];

	output_text(output, "\"");
	while (n > 0) {
		size_t piece = n < WRITER_BASE64_PIECE ? n : WRITER_BASE64_PIECE;

		sodium_bin2base64(text, sizeof(text), s, piece, sodium_base64_VARIANT_ORIGINAL);
		output_text(output, text);
		s += piece;
		n -= piece;
	}
	output_text(output, "\"");
}

/* ---- text ---- */

static bool ends_with(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Names that end in their unit; ns: of a time. */
static const struct unit {
	const char *suffix;
	uint64_t ns;
} units[] = {{"_bytes", 0}, {"_ns", 1}, {"_us", 1000}, {"_ms", 1000000}, {"_seconds", 1000000000}};

#define UNITS (sizeof(units) / sizeof(units[0]))

static const struct unit *unit_of(const char *name)
{
	for (size_t i = 0; i < UNITS; i++)
		if (ends_with(name, units[i].suffix))
			return &units[i];
	return NULL;
}

/* Points in time, as milliseconds since 1970. */
static bool is_moment(const char *name)
{
	return ends_with(name, "started_ms") || ends_with(name, "connected_ms") ||
	       ends_with(name, "created_ms") || ends_with(name, "since_ms");
}

static void show_moment(uint64_t ms, char ret_text[TEXT_HUMAN_BYTES])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	if (localtime_r(&seconds, &tm) == NULL ||
	    strftime(ret_text, TEXT_HUMAN_BYTES, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		snprintf(ret_text, TEXT_HUMAN_BYTES, "%" PRIu64, ms);
}

/* A number of a name that says its unit, for people; false if it has none. */
static bool show_quantity(const char *name, uint64_t number, char ret_text[TEXT_HUMAN_BYTES])
{
	const struct unit *unit = unit_of(name);

	if (is_moment(name))
		show_moment(number, ret_text);
	else if (unit != NULL && unit->ns != 0 && number <= UINT64_MAX / unit->ns)
		text_human_ns(number * unit->ns, ret_text);
	else if (ends_with(name, "bytes") || ends_with(name, "bytes_read") ||
		 ends_with(name, "bytes_written"))
		text_human_size(number, ret_text);
	else if (ends_with(name, "bytes_per_second"))
		strcat(text_human_size(number, ret_text), "/s");
	else
		return false;
	return true;
}

static bool is_quantity(const char *name)
{
	char text[TEXT_HUMAN_BYTES];

	return show_quantity(name, 0, text);
}

/* A value as text, to be freed; NULL: no memory. */
static char *show(const char *name, const json_t *value)
{
	char text[TEXT_HUMAN_BYTES], *clean;
	const char *string;
	uint64_t number;

	switch (json_typeof(value)) {
	case JSON_STRING:
		string = json_string_value(value);
		if (is_quantity(name) && text_parse_u64(string, UINT64_MAX, &number) == 0) {
			show_quantity(name, number, text);
			return strdup(text);
		}
		clean = malloc(TEXT_ESCAPED_BYTES(strlen(string)));
		if (clean != NULL)
			text_clean(string, strlen(string), clean);
		return clean;
	case JSON_INTEGER:
		if (json_integer_value(value) < 0 ||
		    !show_quantity(name, (uint64_t)json_integer_value(value), text))
			snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT,
				 json_integer_value(value));
		return strdup(text);
	case JSON_REAL:
		snprintf(text, sizeof(text), "%.4g", json_real_value(value));
		return strdup(text);
	case JSON_TRUE:
		return strdup("yes");
	case JSON_FALSE:
		return strdup("no");
	case JSON_NULL:
		return strdup("-");
	case JSON_OBJECT:
	case JSON_ARRAY:
		break;
	}
	return json_dumps(value, JSON_COMPACT);
}

/* "value_bytes" to "value", "get_p50_ns" to "get p50"; to be freed. */
static char *title(const char *name)
{
	const struct unit *unit = unit_of(name);
	char *text = strndup(name, strlen(name) - (unit != NULL ? strlen(unit->suffix) : 0));

	for (char *c = text; c != NULL && *c != '\0'; c++)
		if (*c == '_')
			*c = ' ';
	return text;
}

static bool is_shown(const char *name, const json_t *value)
{
	return !ends_with(name, "_base64") && !json_is_object(value) && !json_is_array(value);
}

static bool is_number(const char *name, const json_t *value)
{
	return json_is_number(value) || json_is_null(value) ||
	       (json_is_string(value) && is_quantity(name));
}

static struct libscols_table *table_new(bool headings)
{
	struct libscols_table *table = scols_new_table();

	if (table == NULL)
		return NULL;
	scols_table_enable_noheadings(table, !headings);
	/* A line that is longer than the terminal is better than one with its end cut off. */
	scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
	return table;
}

static int table_cell(struct libscols_line *line, size_t column, const char *name,
		      const json_t *value)
{
	char *text = show(name, value);

	if (text == NULL)
		return -ENOMEM;
	return scols_line_refer_data(line, column, text);
}

/* Writes a table; lines have no trailing spaces. */
static int table_draw(struct writer *writer, struct libscols_table *table)
{
	char *text = NULL;
	int status = scols_print_table_to_string(table, &text);

	if (status < 0 || text == NULL)
		return -ENOMEM;
	for (char *line = text, *end; *line != '\0'; line = *end != '\0' ? end + 1 : end) {
		size_t n;

		end = strchrnul(line, '\n');
		for (n = (size_t)(end - line); n > 0 && line[n - 1] == ' '; n--)
			;
		output_write(writer->output, line, n);
		output_text(writer->output, "\n");
	}
	writer->drawn = true;
	free(text);
	return 0;
}

/* The table of values: names on the left. */
static int draw_values(struct writer *writer)
{
	struct libscols_table *table;
	const char *name;
	json_t *value;
	int status = -ENOMEM;

	if (json_object_size(writer->values) == 0)
		return 0;
	table = table_new(false);
	if (table == NULL || scols_table_new_column(table, "name", 0, 0) == NULL ||
	    scols_table_new_column(table, "value", 0, 0) == NULL)
		goto out_table;
	json_object_foreach(writer->values, name, value)
	{
		struct libscols_line *line = scols_table_new_line(table, NULL);
		char *text = title(name);

		if (text == NULL)
			goto out_table;
		if (line == NULL || scols_line_refer_data(line, 0, text) < 0) {
			free(text);
			goto out_table;
		}
		if (table_cell(line, 1, name, value) < 0)
			goto out_table;
	}
	status = table_draw(writer, table);
	json_object_clear(writer->values);
out_table:
	scols_unref_table(table);
	return status;
}

/* The columns are what the first row has. */
static int rows_columns(struct libscols_table *table, json_t *first)
{
	const char *name;
	json_t *value;

	json_object_foreach(first, name, value)
	{
		char *text;

		if (!is_shown(name, value))
			continue;
		text = title(name);
		if (text == NULL ||
		    scols_table_new_column(table, text, 0,
					   is_number(name, value) ? SCOLS_FL_RIGHT : 0) == NULL) {
			free(text);
			return -ENOMEM;
		}
		free(text);
	}
	return 0;
}

static int rows_line(struct libscols_table *table, json_t *first, json_t *row)
{
	struct libscols_line *line = scols_table_new_line(table, NULL);
	const char *name;
	json_t *pattern;
	size_t column = 0;

	if (line == NULL)
		return -ENOMEM;
	json_object_foreach(first, name, pattern)
	{
		json_t *value = json_object_get(row, name);

		if (!is_shown(name, pattern))
			continue;
		if (value != NULL && table_cell(line, column, name, value) < 0)
			return -ENOMEM;
		column++;
	}
	return 0;
}

static int draw_rows(struct writer *writer, json_t *rows)
{
	struct libscols_table *table;
	json_t *row;
	size_t i;
	int status = -ENOMEM;

	if (json_array_size(rows) == 0)
		return 0;
	table = table_new(true);
	if (table == NULL || rows_columns(table, json_array_get(rows, 0)) < 0)
		goto out_table;
	json_array_foreach(rows, i, row) if (rows_line(table, json_array_get(rows, 0), row) <
					     0) goto out_table;
	if (writer->drawn)
		output_text(writer->output, "\n");
	status = table_draw(writer, table);
out_table:
	scols_unref_table(table);
	return status;
}

/*
 * A line of a bare list. The first value comes last, since it is the one that may have any length.
 */
static int draw_line(struct writer *writer, json_t *row)
{
	char column[TEXT_HUMAN_BYTES + 16], *text, *first = NULL;
	const char *name;
	json_t *value;

	json_object_foreach(row, name, value)
	{
		if (!is_shown(name, value))
			continue;
		text = show(name, value);
		if (text == NULL) {
			free(first);
			return -ENOMEM;
		}
		if (first == NULL) {
			first = text;
			continue;
		}
		snprintf(column, sizeof(column), WRITER_COLUMN, text);
		output_text(writer->output, column);
		free(text);
	}
	output_text(writer->output, first != NULL ? first : "");
	output_text(writer->output, "\n");
	free(first);
	return 0;
}

static void keep_failure(struct writer *writer, int status)
{
	if (status < 0 && writer->failed == 0)
		writer->failed = status;
}

/* ---- what verbs call ---- */

int writer_new(struct output *output, bool json, struct writer **ret_writer)
{
	struct writer *writer = calloc(1, sizeof(*writer));

	if (writer == NULL)
		return -ENOMEM;
	writer->output = output;
	writer->json = json;
	writer->values = json_object();
	if (writer->values == NULL) {
		free(writer);
		return -ENOMEM;
	}
	if (json)
		begin_document(writer);
	*ret_writer = writer;
	return 0;
}

void writer_free(struct writer *writer)
{
	if (writer == NULL)
		return;
	json_decref(writer->rows);
	json_decref(writer->values);
	free(writer);
}

int writer_failed(const struct writer *writer)
{
	return writer->failed != 0 ? writer->failed : writer->output->error;
}

bool writer_is_json(const struct writer *writer)
{
	return writer->json;
}

void writer_field(struct writer *writer, enum writer_look look, const char *name, json_t *value)
{
	char *text;

	if (value == NULL) {
		keep_failure(writer, -ENOMEM);
		return;
	}
	if (writer->json) {
		put_name(writer, name, "");
		put_json(writer, value);
	} else if (look == WRITER_TABLE) {
		keep_failure(writer,
			     json_object_set(writer->values, name, value) < 0 ? -ENOMEM : 0);
	} else if (look == WRITER_BARE) {
		text = show(name, value);
		keep_failure(writer, text == NULL ? -ENOMEM : 0);
		output_text(writer->output, text != NULL ? text : "");
		output_text(writer->output, "\n");
		free(text);
	}
	json_decref(value);
}

void writer_bytes(struct writer *writer, const char *name, const void *bytes, size_t n)
{
	if (!writer->json) {
		output_write(writer->output, bytes, n);
		return;
	}
	if (text_is_utf8(bytes, n)) {
		put_name(writer, name, "");
		put_string(writer->output, bytes, n);
	}
	put_name(writer, name, "_base64");
	put_base64(writer->output, bytes, n);
}

void writer_key(struct writer *writer, const void *key, size_t key_bytes)
{
	json_t *object = json_object();

	if (object == NULL || writer_set_key(object, key, key_bytes) < 0) {
		keep_failure(writer, -ENOMEM);
	} else {
		writer_field(writer, WRITER_HIDDEN, "key",
			     json_incref(json_object_get(object, "key")));
		writer_field(writer, WRITER_HIDDEN, "key_base64",
			     json_incref(json_object_get(object, "key_base64")));
	}
	json_decref(object);
}

void writer_raw(struct writer *writer, const void *bytes, size_t n)
{
	if (!writer->json)
		output_write(writer->output, bytes, n);
}

void writer_list_begin(struct writer *writer, enum writer_look look, const char *name)
{
	writer->in_list = true;
	writer->look = look;
	if (writer->json) {
		put_name(writer, name, "");
		output_text(writer->output, "[");
		writer->separated = false;
	} else if (look == WRITER_TABLE) {
		writer->rows = json_array();
		keep_failure(writer, draw_values(writer));
	}
}

void writer_row(struct writer *writer, json_t *row)
{
	if (row == NULL) {
		keep_failure(writer, -ENOMEM);
		return;
	}
	if (writer->json) {
		if (writer->separated)
			output_text(writer->output, ",");
		put_json(writer, row);
		writer->separated = true;
	} else if (writer->look == WRITER_TABLE) {
		keep_failure(writer, json_array_append(writer->rows, row) < 0 ? -ENOMEM : 0);
	} else if (writer->look == WRITER_BARE) {
		keep_failure(writer, draw_line(writer, row));
	}
	json_decref(row);
}

void writer_list_end(struct writer *writer)
{
	if (!writer->in_list)
		return;
	writer->in_list = false;
	if (writer->json) {
		output_text(writer->output, "]");
		writer->separated = true;
	} else if (writer->look == WRITER_TABLE) {
		keep_failure(writer, draw_rows(writer, writer->rows));
		json_decref(writer->rows);
		writer->rows = NULL;
	}
}

/*
 * "outer_inner", and the unit of the outer name comes last: "latency_ns" and "p50" make
 * "latency_p50_ns".
 */
static char *join_names(const char *outer, const char *inner)
{
	const struct unit *unit = unit_of(outer);
	const char *suffix = unit != NULL ? unit->suffix : "";
	char *name;

	if (asprintf(&name, "%.*s%s%s%s", (int)(strlen(outer) - strlen(suffix)), outer,
		     *outer != '\0' ? "_" : "", inner, suffix) < 0)
		return NULL;
	return name;
}

/* The scalars of object into the table of values, those of objects in it as "outer inner". */
static int collect_values(struct writer *writer, const char *outer, json_t *object)
{
	const char *name;
	json_t *value;
	int status = 0;

	json_object_foreach(object, name, value)
	{
		char *full;

		if (json_is_array(value) || ends_with(name, "_base64"))
			continue;
		full = join_names(outer, name);
		if (full == NULL)
			return -ENOMEM;
		if (json_is_object(value))
			status = collect_values(writer, full, value);
		else if (json_object_set(writer->values, full, value) < 0)
			status = -ENOMEM;
		free(full);
		if (status < 0)
			return status;
	}
	return 0;
}

static bool is_flat(json_t *rows)
{
	const char *name;
	json_t *row, *value;
	size_t i;

	json_array_foreach(rows, i, row) json_object_foreach(
		row, name, value) if (json_is_object(value) || json_is_array(value)) return false;
	return true;
}

/* Values, then what is in lists: a table if its rows are simple, else a block for each. */
static void draw_object(struct writer *writer, json_t *object)
{
	const char *name;
	json_t *list, *row;
	size_t i;

	if (writer->drawn)
		output_text(writer->output, "\n");
	keep_failure(writer, collect_values(writer, "", object));
	json_object_del(writer->values, "schema");
	keep_failure(writer, draw_values(writer));
	json_object_foreach(object, name, list)
	{
		if (!json_is_array(list) || !json_is_object(json_array_get(list, 0)))
			continue;
		if (is_flat(list))
			keep_failure(writer, draw_rows(writer, list));
		else
			json_array_foreach(list, i, row) draw_object(writer, row);
	}
}

void writer_document(struct writer *writer, json_t *document)
{
	const char *name;
	json_t *value;

	if (!writer->json) {
		draw_object(writer, document);
		json_decref(document);
		return;
	}
	if (writer->ended)
		begin_document(writer);
	json_object_foreach(document, name, value)
	{
		if (strcmp(name, "schema") == 0)
			continue;
		json_t *key = json_string(name);

		output_text(writer->output, writer->separated ? "," : "");
		if (key != NULL)
			put_json(writer, key);
		output_text(writer->output, ":");
		put_json(writer, value);
		writer->separated = true;
		json_decref(key);
	}
	json_decref(document);
}

void writer_members(struct writer *writer, enum writer_look look, json_t *object)
{
	const char *name;
	json_t *value;

	if (object == NULL)
		keep_failure(writer, -ENOMEM);
	json_object_foreach(object, name, value)
		writer_field(writer, look, name, json_incref(value));
	json_decref(object);
}

void writer_error(struct writer *writer, int code, const char *name, const char *text)
{
	json_t *error;

	if (!writer->json || (writer->has_error && !writer->ended))
		return;
	writer_list_end(writer);
	error = json_pack("{s:i, s:s, s:o}", "code", code < 0 ? -code : code, "name", name, "text",
			  writer_text(text));
	writer_field(writer, WRITER_HIDDEN, "error", error);
	writer->has_error = true;
}

int writer_end_document(struct writer *writer)
{
	int status;

	writer_list_end(writer);
	if (writer->json && !writer->ended)
		output_text(writer->output, "}\n");
	writer->ended = true;
	status = output_flush(writer->output);
	return writer->failed != 0 ? writer->failed : status;
}

int writer_finish(struct writer *writer)
{
	int status;

	writer_list_end(writer);
	if (writer->json && !writer->ended)
		output_text(writer->output, "}\n");
	else if (!writer->json)
		keep_failure(writer, draw_values(writer));
	status = output_flush(writer->output);
	return writer->failed != 0 ? writer->failed : status;
}

/* ---- values ---- */

json_t *writer_u64(uint64_t value)
{
	char text[24];

	if (value <= INT64_MAX)
		return json_integer((json_int_t)value);
	snprintf(text, sizeof(text), "%" PRIu64, value);
	return json_string(text);
}

json_t *writer_text(const char *text)
{
	size_t n = strlen(text);
	json_t *value;
	char *escaped;

	if (text_is_utf8(text, n))
		return json_string(text);
	escaped = malloc(TEXT_ESCAPED_BYTES(n));
	if (escaped == NULL)
		return NULL;
	text_escape(text, n, escaped);
	value = json_string(escaped);
	free(escaped);
	return value;
}

int writer_set_key(json_t *object, const void *key, size_t key_bytes)
{
	size_t base64_bytes = sodium_base64_ENCODED_LEN(key_bytes, sodium_base64_VARIANT_ORIGINAL);
	char *text = malloc(TEXT_ESCAPED_BYTES(key_bytes) + base64_bytes), *base64;
	int status = -ENOMEM;

	if (text == NULL)
		return -ENOMEM;
	base64 = text + text_escape(key, key_bytes, text) + 1;
	sodium_bin2base64(base64, base64_bytes, key, key_bytes, sodium_base64_VARIANT_ORIGINAL);
	if (json_object_set_new(object, "key", json_string(text)) == 0 &&
	    json_object_set_new(object, "key_base64", json_string(base64)) == 0)
		status = 0;
	free(text);
	return status;
}
