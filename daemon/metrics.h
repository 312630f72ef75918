/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * metrics.h - the table of all that is told (metrics.def), and what is made of it
 *
 * A row is one subject (a pool, a device) with the values it has now. metrics.c fills rows from views,
 * metrics-json.c makes objects of them, metrics-text.c Prometheus' text of all rows of the daemon,
 * which metrics-rows.c collects. metrics-doc.c writes the manual page and the schema from the table
 * alone.
 */
#ifndef TARN_DAEMON_METRICS_H
#define TARN_DAEMON_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/buffer.h>
#include <jansson.h>

#include "daemon.h"

/* ---- the table ---- */

enum metrics_type { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM };
enum metrics_unit { METRICS_NONE, METRICS_SECONDS, METRICS_BYTES, METRICS_RATIO };

struct metrics_family {
	const char *name;
	enum metrics_type type;
	enum metrics_unit unit;
	const char *help;
};

enum metrics_family_id {
	FAMILY_NONE = -1,
#define FAMILY(name, type, unit, help) FAMILY_##name,
#include "metrics.def"
	METRICS_FAMILY_COUNT
};

enum metrics_subject {
#define BEGIN(subject, view, labels, path) SUBJECT_##subject,
#include "metrics.def"
	METRICS_SUBJECT_COUNT
};

enum metrics_kind {
	METRICS_NUMBER,
	METRICS_SPARSE,
	METRICS_MAYBE,
	METRICS_REAL,
	METRICS_SIGNED,
	METRICS_FLAG,
	METRICS_TEXT,
	METRICS_BUCKETS,
	METRICS_PART,
};
enum metrics_shape { METRICS_ONE, METRICS_ONE_OR_NULL, METRICS_MANY, METRICS_NAMES };

struct metrics_item {
	const char *member; /* NULL: not in JSON */
	enum metrics_kind kind;
	enum metrics_family_id family;
	const char *labels;
	double scale;
	enum metrics_shape shape;  /* PART */
	enum metrics_subject part; /* PART */
	const char *note;
};

const struct metrics_family *metrics_family(enum metrics_family_id id);
/* The items of a subject, in the table's order. */
const struct metrics_item *metrics_items(enum metrics_subject subject, size_t *ret_count);
/* The labels' names that rows of a subject have, and where its members stand in JSON. */
const char *metrics_subject_labels(enum metrics_subject subject);
const char *metrics_subject_path(enum metrics_subject subject);

/* ---- rows ---- */

struct metrics_value {
	bool known;
	union {
		uint64_t number;
		int64_t integer;
		double real;
		const char *text;        /* NULL: null */
		const uint64_t *buckets; /* LAYOUT_LATENCY_BUCKETS */
	};
};

#define METRICS_ITEMS_MAX  96u
#define METRICS_LABELS_MAX 320u

struct metrics_row {
	enum metrics_subject subject;
	char labels[METRICS_LABELS_MAX]; /* `pool="main"`, for Prometheus */
	struct metrics_value values[METRICS_ITEMS_MAX];
};

/* Fills the values of a row from the subject's view; texts and buckets stay the view's. */
void metrics_fill(struct metrics_row *row, enum metrics_subject subject, const void *view);
/* Adds NAME="VALUE" to the row's labels; whatever stands in value, that is one label. */
void metrics_label(struct metrics_row *row, const char *name, const char *value);

/* ---- JSON ---- */

#define METRICS_JSON_FORM (JSON_COMPACT | JSON_REAL_PRECISION(15)) /* of json_dumps() */

struct metrics_percentiles {
	uint64_t p50, p99, p999;
};

/* The bucket's upper bounds below which that share of all counts lies; 0: no counts. */
struct metrics_percentiles metrics_percentiles(const uint64_t *buckets);
/* One value; NULL: it is left out. */
json_t *metrics_json_value(const struct metrics_item *item, const struct metrics_value *value);
/* Sets the row's members; PARTs are the caller's. */
void metrics_json(json_t *object, const struct metrics_row *row);
/* The same from a view. */
void metrics_json_view(json_t *object, enum metrics_subject subject, const void *view);
json_t *metrics_object(enum metrics_subject subject, const void *view);
/* A text that may be no UTF-8: question marks then. NULL: null. */
json_t *metrics_json_text(const char *text);
/* Beyond INT64_MAX a text, since JSON integers of jansson are signed. */
json_t *metrics_json_u64(uint64_t number);

/* ---- Prometheus ---- */

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS };

/* All families that have a sample. 0 or -ENOMEM. */
int metrics_text(struct evbuffer *to, enum metrics_format format, const struct metrics_row *rows,
		 size_t count);
/* Does an Accept header ask for OpenMetrics before text/plain? NULL: no. */
enum metrics_format metrics_format_of(const char *accept);
const char *metrics_content_type(enum metrics_format format);

/* All of the daemon as it is now, for Prometheus. 0 or -ENOMEM. */
int metrics_scrape(struct daemon *daemon, enum metrics_format format, struct evbuffer *to);

#endif
