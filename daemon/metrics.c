/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * metrics.def as arrays, and the functions that take its values out of a view. Both are made of the
 * same lines, so the n-th value is that of the n-th item. Main thread; changes nothing. Next to read:
 * metrics-views.c, where the views come from.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "events.h"
#include "http.h"
#include "metrics-views.h"
#include "metrics.h"
#include "peer-verbs.h"
#include "process-stats.h"

static const struct metrics_family families[METRICS_FAMILY_COUNT] = {
#define FAMILY(name, type, unit, help) {#name, METRICS_##type, METRICS_##unit, help},
#include "metrics.def"
};

const struct metrics_family *metrics_family(enum metrics_family_id id)
{
	return &families[id];
}

/* ---- items ---- */

#define SCALE_ONE      1.0
#define SCALE_NS       1e-9
#define SCALE_MS       1e-3
#define SCALE_PERMILLE 1e-3
#define SCALE_PERCENT  1e-2

#define ITEM(member, kind, family, labels, scale, note) \
	{member, METRICS_##kind, FAMILY_##family, labels, SCALE_##scale, METRICS_ONE, SUBJECT_HEAD, note},

#define BEGIN(subject, view, labels, path)  static const struct metrics_item items_##subject[] = {
#define NUMBER(member, family, labels, scale, value, note) ITEM(member, NUMBER, family, labels, scale, note)
#define SPARSE(member, family, labels, scale, value, note) ITEM(member, SPARSE, family, labels, scale, note)
#define MAYBE(member, family, labels, scale, known, value, note) \
	ITEM(member, MAYBE, family, labels, scale, note)
#define REAL(member, family, labels, known, value, note) ITEM(member, REAL, family, labels, ONE, note)
#define SIGNED(member, value, note)                      ITEM(member, SIGNED, NONE, "", ONE, note)
#define FLAG(member, family, labels, value, note)        ITEM(member, FLAG, family, labels, ONE, note)
#define TEXT(member, value, note)                        ITEM(member, TEXT, NONE, "", ONE, note)
#define BUCKETS(member, family, labels, value, note)     ITEM(member, BUCKETS, family, labels, ONE, note)
#define PART(member, shape, part, note) \
	{member, METRICS_PART, FAMILY_NONE, "", 1.0, METRICS_##shape, SUBJECT_##part, note},
#define END(subject) };
#include "metrics.def"

/* ---- values ---- */

#define VALUE(is_known, member, expression) \
	*out++ = (struct metrics_value){.known = (is_known), {.member = (expression)}};

/* clang-format off */
#define BEGIN(subject, view, labels, path)                                 \
	static void fill_##subject(const void *of, struct metrics_value *out) \
	{                                                                     \
		const view *v = of;
#define NUMBER(member, family, labels, scale, value, note) VALUE(true, number, (uint64_t)(value))
#define SPARSE(member, family, labels, scale, value, note) VALUE(true, number, (uint64_t)(value))
#define MAYBE(member, family, labels, scale, known, value, note) VALUE((known) != 0, number, (uint64_t)(value))
#define REAL(member, family, labels, known, value, note)   VALUE(known, real, value)
#define SIGNED(member, value, note)                        VALUE(true, integer, value)
#define FLAG(member, family, labels, value, note)          VALUE(true, number, (value) ? 1 : 0)
#define TEXT(member, value, note)                          VALUE(true, text, value)
#define BUCKETS(member, family, labels, value, note)       VALUE(true, buckets, value)
#define PART(member, shape, subject, note)                 *out++ = (struct metrics_value){.known = false};
#define END(subject)                                                          \
	}                                                                     \
	static_assert(sizeof(items_##subject) / sizeof(items_##subject[0]) <= \
		      METRICS_ITEMS_MAX, "METRICS_ITEMS_MAX is too small");
#include "metrics.def"
/* clang-format on */

/* ---- subjects ---- */

static const struct {
	const struct metrics_item *items;
	size_t count;
	void (*fill)(const void *view, struct metrics_value *out);
	const char *labels, *path;
} subjects[METRICS_SUBJECT_COUNT] = {
#define BEGIN(subject, view, labels, path)                                                        \
	[SUBJECT_##subject] = {items_##subject, sizeof(items_##subject) / sizeof(items_##subject[0]), \
			       fill_##subject, labels, path},
#include "metrics.def"
};

const struct metrics_item *metrics_items(enum metrics_subject subject, size_t *ret_count)
{
	*ret_count = subjects[subject].count;
	return subjects[subject].items;
}

const char *metrics_subject_labels(enum metrics_subject subject)
{
	return subjects[subject].labels;
}

const char *metrics_subject_path(enum metrics_subject subject)
{
	return subjects[subject].path;
}

/* ---- rows ---- */

void metrics_fill(struct metrics_row *row, enum metrics_subject subject, const void *view)
{
	row->subject = subject;
	row->labels[0] = '\0';
	subjects[subject].fill(view, row->values);
}

/* Backslash, quote and newline are escaped; all else that is no printable ASCII becomes a question mark. */
void metrics_label(struct metrics_row *row, const char *name, const char *value)
{
	size_t used = strlen(row->labels);
	char *at = row->labels + used, *end = row->labels + sizeof(row->labels);
	int n = snprintf(at, (size_t)(end - at), "%s%s=\"", used ? "," : "", name);

	if (n < 0 || n >= end - at - 3) {
		*at = '\0';
		return;
	}
	for (at += n; *value && end - at > 4; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			*at++ = '\\';
		*at++ = *value == '\n'                     ? 'n'
			: *value >= ' ' && *value < 0x7f ? *value
							   : '?';
	}
	*at++ = '"';
	*at = '\0';
}
