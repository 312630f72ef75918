/* SPDX-License-Identifier: BSD-2-Clause */
/* metrics-write.h - rows of metrics.def as JSON text, without an object between: for answers with a row for each of many clients */
#ifndef TARN_DAEMON_METRICS_WRITE_H
#define TARN_DAEMON_METRICS_WRITE_H

#include "metrics.h"

/* A text that grows. Begin with zeros. After `failed` (no memory) nothing more is added. */
struct metrics_writer {
	char *text; /* the caller frees it */
	size_t used, room;
	bool failed;
};

/* At the end: the text is a string. */
void metrics_write_end(struct metrics_writer *writer);
void metrics_write_text(struct metrics_writer *writer, const char *text);
/* A whole JSON value, with what jansson makes of it. Takes `json` over; NULL is no memory. */
void metrics_write_json(struct metrics_writer *writer, json_t *json);
/* Writes the value of the PART of this name. */
typedef void metrics_part_cb(struct metrics_writer *writer, const char *name, void *arg);
/* The object that metrics_json() makes of the row, in the same words; `part` may be NULL: parts are null. */
void metrics_write_row(struct metrics_writer *writer, const struct metrics_row *row, metrics_part_cb *part, void *arg);
/* The same from a view. */
void metrics_write_view(struct metrics_writer *writer, enum metrics_subject subject, const void *view,
			metrics_part_cb *part, void *arg);

#endif
