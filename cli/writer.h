/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * writer.h - the result of a verb, as text for people or as one JSON object for programs
 *
 * A verb says what it has found once, as named values; how that looks is decided here. JSON is one
 * object on one line, {"schema":1,...}, in the order of the calls, complete also when the verb
 * fails halfway ("error" comes last then). Text is made from the same names: "value_bytes" is shown
 * as a size, "..._ns" and "..._ms" as times, "..._base64" not at all. Numbers above 2^63 - 1 are
 * strings in JSON (writer_u64()).
 *
 * json_t values are taken over, also on failure; NULL (no memory) makes writer_finish() fail. The
 * first failure, of memory or of the output, is kept; writer_failed() lets a long walk end early.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "output.h"

#define WRITER_SCHEMA 1

struct writer;

/* How a value or list looks as text. */
enum writer_look {
	/* value: a line of the table of values; list: a table with a heading */
	WRITER_TABLE,
	/* value: alone on a line; list: a line per row, its first value last */
	WRITER_BARE,
	/* in JSON only */
	WRITER_HIDDEN,
};

/* Writes to output, which the caller keeps. 0 or -ENOMEM. */
int writer_new(struct output *output, bool json, struct writer **ret_writer);
void writer_free(struct writer *writer);

void writer_field(struct writer *writer, enum writer_look look, const char *name, json_t *value);

/* Each member of an object as a field. */
void writer_members(struct writer *writer, enum writer_look look, json_t *object);

/* A value of bytes. JSON: name_base64, and name if they are UTF-8. Text: the bytes as they are. */
void writer_bytes(struct writer *writer, const char *name, const void *bytes, size_t n);

/* The key that a verb is about, in JSON only. */
void writer_key(struct writer *writer, const void *key, size_t key_bytes);

/* Bytes that stand in the output as they are; nothing in JSON. */
void writer_raw(struct writer *writer, const void *bytes, size_t n);

/*
 * A list of objects, written row by row: nothing is kept but a WRITER_TABLE's text. No field may
 * come in between.
 */
void writer_list_begin(struct writer *writer, enum writer_look look, const char *name);
void writer_row(struct writer *writer, json_t *row);
void writer_list_end(struct writer *writer);

/* All members of an object that somebody else has made; text: values, then what is in its lists. */
void writer_document(struct writer *writer, json_t *document);

/* Is this JSON? For a verb that shows people less than programs. */
bool writer_is_json(const struct writer *writer);

/* "error":{code,name,text}; nothing as text. At most one: the first. Ends an open list. */
void writer_error(struct writer *writer, int code, const char *name, const char *text);

/*
 * Ends the document and writes what there is; what comes then is in another document, on a line of its
 * own. For a verb that says something again and again. 0 or the -errno of the first failure.
 */
int writer_end_document(struct writer *writer);

/* Ends the document and writes everything. 0 or the -errno of the first failure. */
int writer_finish(struct writer *writer);

int writer_failed(const struct writer *writer);

/* Values. A key: "key" (escaped, as -x reads it) and "key_base64" are added to object. */
json_t *writer_u64(uint64_t value);
json_t *writer_text(const char *text); /* bytes that are no UTF-8 are escaped */
int writer_set_key(json_t *object, const void *key, size_t key_bytes);
