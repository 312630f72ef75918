/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of statistics and what is made of it: names and units as Prometheus wants them, escaping, large
 * numbers, nothing at all; the process; the counters of ports.
 */
#include <ctype.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "layout.h"
#include "metrics-views.h"
#include "metrics-write.h"
#include "metrics.h"
#include "port-stats.h"
#include "process-stats.h"

/* ---- the table ---- */

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), end_length = strlen(end);

	return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static void test_families(void **state)
{
	static const char *const units[] = {"", "_seconds", "_bytes", "_ratio"};

	(void)state;
	for (int i = 0; i < METRICS_FAMILY_COUNT; i++) {
		const struct metrics_family *f = metrics_family((enum metrics_family_id)i);
		char name[96];

		snprintf(name, sizeof(name), "%s", f->name);
		assert_true(strncmp(name, "tarn_", 5) == 0 || strncmp(name, "process_", 8) == 0);
		assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
		assert_int_equal(ends_with(name, "_total"), f->type == METRICS_COUNTER);
		if (f->type == METRICS_COUNTER)
			name[strlen(name) - strlen("_total")] = '\0';
		if (!ends_with(name, units[f->unit]))
			fail_msg("%s does not end with its unit", f->name);
		for (int unit = METRICS_SECONDS; unit <= METRICS_RATIO; unit++)
			if (unit != (int)f->unit && ends_with(name, units[unit]))
				fail_msg("%s has another unit than its name says", f->name);
		assert_null(strpbrk(f->help, "\\\n"));
		assert_true(ends_with(f->help, "."));
		for (int j = 0; j < i; j++)
			assert_string_not_equal(f->name, metrics_family((enum metrics_family_id)j)->name);
	}
}

/* Each family has an item; items of one family have labels that tell them apart; each member is explained. */
static void test_items(void **state)
{
	unsigned seen[METRICS_FAMILY_COUNT] = {0};

	(void)state;
	for (int subject = 0; subject < METRICS_SUBJECT_COUNT; subject++) {
		size_t count;
		const struct metrics_item *items = metrics_items((enum metrics_subject)subject, &count);

		assert_in_range(count, 1, METRICS_ITEMS_MAX);
		for (size_t i = 0; i < count; i++) {
			assert_true(items[i].member || items[i].family != FAMILY_NONE);
			assert_true(items[i].family != FAMILY_NONE || items[i].note[0]);
			if (items[i].family != FAMILY_NONE)
				seen[items[i].family]++;
			for (size_t j = 0; j < i; j++) {
				assert_true(!items[i].member || !items[j].member ||
					    strcmp(items[i].member, items[j].member) != 0);
				assert_true(items[i].family == FAMILY_NONE || items[i].family != items[j].family ||
					    strcmp(items[i].labels, items[j].labels) != 0);
			}
		}
	}
	for (int i = 0; i < METRICS_FAMILY_COUNT; i++)
		if (!seen[i])
			fail_msg("%s is nobody's", metrics_family((enum metrics_family_id)i)->name);
}

/* ---- text ---- */

static char *text_of(const struct metrics_row *rows, size_t count, enum metrics_format format)
{
	struct evbuffer *buffer = evbuffer_new();
	size_t length;
	char *text;

	assert_int_equal(metrics_text(buffer, format, rows, count), 0);
	length = evbuffer_get_length(buffer);
	text = calloc(1, length + 1);
	assert_int_equal(evbuffer_remove(buffer, text, length), length);
	evbuffer_free(buffer);
	return text;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("there is no %s in\n%s", part, text);
}

static void test_nothing(void **state)
{
	char *text = text_of(NULL, 0, METRICS_PROMETHEUS);

	(void)state;
	assert_string_equal(text, "");
	free(text);
	text = text_of(NULL, 0, METRICS_OPENMETRICS);
	assert_string_equal(text, "# EOF\n");
	free(text);
}

static void test_labels(void **state)
{
	struct layout_telemetry view = {.gets = 3, .hits = 1};
	struct metrics_row row;
	char *text;

	(void)state;
	metrics_fill(&row, SUBJECT_OPERATIONS, &view);
	metrics_label(&row, "pool", "a\"b\\c\nd\x01\xff}");
	text = text_of(&row, 1, METRICS_PROMETHEUS);
	assert_has(text, "tarn_op_errors_total{pool=\"a\\\"b\\\\c\\nd\?\?}\"} 0\n");
	assert_has(text, "tarn_ops_total{pool=\"a\\\"b\\\\c\\nd\?\?}\",op=\"get\",result=\"miss\"} 2\n");
	free(text);
}

/* However long a value is, the labels stay well-formed. */
static void test_long_labels(void **state)
{
	struct layout_telemetry view = {0};
	char value[1000];
	struct metrics_row row;

	(void)state;
	for (size_t length = 0; length < sizeof(value) - 1; length++) {
		size_t quotes = 0;

		memset(value, length % 3 == 0 ? '\\' : 'x', length);
		value[length] = '\0';
		metrics_fill(&row, SUBJECT_OPERATIONS, &view);
		metrics_label(&row, "pool", value);
		metrics_label(&row, "other", value);
		assert_true(strlen(row.labels) < sizeof(row.labels));
		for (const char *c = row.labels; *c; c++) {
			if (*c == '\\')
				c++;
			else
				quotes += *c == '"';
		}
		assert_true(quotes == 2 || quotes == 4);
	}
}

static void test_large_numbers(void **state)
{
	struct layout_telemetry view;
	struct metrics_row row;
	json_t *json;
	char *text;

	(void)state;
	memset(&view, 0xff, sizeof(view));
	metrics_fill(&row, SUBJECT_OPERATIONS, &view);
	text = text_of(&row, 1, METRICS_PROMETHEUS);
	assert_has(text, "tarn_op_errors_total 18446744073709551615\n");
	assert_has(text, "tarn_op_latency_seconds_bucket{op=\"get\",le=\"+Inf\"} 18446744073709551615\n");
	assert_null(strstr(text, "} -"));
	free(text);
	json = metrics_object(SUBJECT_OPERATIONS, &view);
	assert_string_equal(json_string_value(json_object_get(json, "gets")), "18446744073709551615");
	json_decref(json);
	view.gets = INT64_MAX;
	json = metrics_object(SUBJECT_OPERATIONS, &view);
	assert_int_equal(json_integer_value(json_object_get(json, "gets")), INT64_MAX);
	json_decref(json);
}

static void test_histogram(void **state)
{
	struct layout_telemetry view = {.get_latency = {[0] = 1, [10] = 2, [LAYOUT_LATENCY_BUCKETS - 1] = 4}};
	struct metrics_row row;
	char *text;

	(void)state;
	metrics_fill(&row, SUBJECT_OPERATIONS, &view);
	text = text_of(&row, 1, METRICS_PROMETHEUS);
	assert_has(text, "# TYPE tarn_op_latency_seconds histogram\n");
	assert_has(text, "_bucket{op=\"get\",le=\"1e-09\"} 1\n");
	assert_has(text, "_bucket{op=\"get\",le=\"5.12e-07\"} 1\n");
	assert_has(text, "_bucket{op=\"get\",le=\"1.024e-06\"} 3\n");
	assert_has(text, "_bucket{op=\"get\",le=\"+Inf\"} 7\n");
	assert_has(text, "_count{op=\"get\"} 7\n");
	free(text);
	text = text_of(&row, 1, METRICS_OPENMETRICS);
	assert_null(strstr(text, "_count"));
	assert_has(text, "# UNIT tarn_op_latency_seconds seconds\n");
	assert_has(text, "# TYPE tarn_ops counter\n");
	assert_has(text, "tarn_ops_total{");
	assert_true(ends_with(text, "\n# EOF\n"));
	free(text);
}

/* Seconds and ratios, whatever JSON's unit is. */
static void test_scales(void **state)
{
	struct evict_stats view = {.ahead_percent = 7};
	struct metrics_row row;
	json_t *json;
	char *text;

	(void)state;
	metrics_fill(&row, SUBJECT_EVICTION, &view);
	text = text_of(&row, 1, METRICS_PROMETHEUS);
	assert_has(text, "tarn_eviction_ahead_ratio 0.07\n");
	free(text);
	json = metrics_object(SUBJECT_EVICTION, &view);
	assert_int_equal(json_integer_value(json_object_get(json, "ahead_percent")), 7);
	json_decref(json);
}

static void test_accept(void **state)
{
	static const struct {
		const char *accept;
		enum metrics_format format;
	} cases[] = {
		{NULL, METRICS_PROMETHEUS},
		{"", METRICS_PROMETHEUS},
		{"*/*", METRICS_PROMETHEUS},
		{"text/html,*/*;q=0.8", METRICS_PROMETHEUS},
		{"text/plain;version=0.0.4", METRICS_PROMETHEUS},
		{"application/openmetrics-text", METRICS_OPENMETRICS},
		{"Application/OpenMetrics-Text;Version=1.0.0", METRICS_OPENMETRICS},
		/* Prometheus 2.42's own */
		{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
		 "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		 METRICS_OPENMETRICS},
		{"text/plain, application/openmetrics-text;q=0.9", METRICS_PROMETHEUS},
		{"application/openmetrics-text;q=0", METRICS_PROMETHEUS},
		{"application/openmetrics-text; q=0.0", METRICS_PROMETHEUS},
		{"application/openmetrics-textual", METRICS_PROMETHEUS},
		{"application/openmetrics", METRICS_PROMETHEUS},
		{";;;,,,;q=,q=1;", METRICS_PROMETHEUS},
		{"application/openmetrics-text;q", METRICS_OPENMETRICS},
		{"application/openmetrics-text;q=nan", METRICS_PROMETHEUS},
		{"application/openmetrics-text;q=-1", METRICS_PROMETHEUS},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (metrics_format_of(cases[i].accept) != cases[i].format)
			fail_msg("Accept: %s", cases[i].accept ? cases[i].accept : "(none)");
}

/* ---- JSON ---- */

static void test_json_text(void **state)
{
	struct quota_stats view = {.key_id = "\xff\"a"};
	json_t *json = metrics_object(SUBJECT_ACCESS_KEY, &view);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(json, "key_id")), "?\"a");
	assert_non_null(json_object_get(json_object_get(json, "used"), "keys"));
	json_decref(json);
}

static const struct metrics_value *value_for(const struct metrics_item *item, unsigned round, struct metrics_value *value)
{
	static const char *const texts[] = {"plain", "a\"\\\n\x7f", "\xff bad", "\xc3\xa4", "", NULL};
	static const uint64_t numbers[] = {0, 7, 4200000000, INT64_MAX, UINT64_MAX, 10};
	static uint64_t buckets[LAYOUT_LATENCY_BUCKETS];

	*value = (struct metrics_value){.known = round != 1, {.number = numbers[round]}};
	for (unsigned i = 0; i < LAYOUT_LATENCY_BUCKETS; i++)
		buckets[i] = (uint64_t)i * round * 1000000007 % 1000;
	if (item->kind == METRICS_TEXT)
		value->text = texts[round];
	else if (item->kind == METRICS_BUCKETS)
		value->buckets = buckets;
	else if (item->kind == METRICS_REAL)
		value->real = 0.1 * round;
	return value;
}

/* The text that is written at once is that of the object, for every subject and kind of value. */
static void test_write(void **state)
{
	struct metrics_row row;
	unsigned kinds = 0;

	(void)state;
	for (int subject = 0; subject < METRICS_SUBJECT_COUNT; subject++)
		for (unsigned round = 0; round < 6; round++) {
			struct metrics_writer writer = {0};
			json_t *object = json_object();
			size_t count;
			const struct metrics_item *items = metrics_items((enum metrics_subject)subject, &count);
			char *text;

			row.subject = (enum metrics_subject)subject;
			for (size_t i = 0; i < count; i++) {
				value_for(&items[i], round, &row.values[i]);
				kinds |= 1u << items[i].kind;
			}
			metrics_json(object, &row);
			text = json_dumps(object, METRICS_JSON_FORM);
			metrics_write_row(&writer, &row, NULL, NULL);
			metrics_write_end(&writer);
			assert_false(writer.failed);
			assert_string_equal(writer.text, text);
			free(writer.text);
			free(text);
			json_decref(object);
		}
	assert_int_equal(kinds, (1u << (METRICS_PART + 1)) - 1);
}

static void write_seven(struct metrics_writer *writer, const char *name, void *arg)
{
	metrics_write_text(writer, strcmp(name, arg) == 0 ? "7" : "null");
}

static void test_write_parts(void **state)
{
	struct metrics_row row = {.subject = SUBJECT_CLIENT};
	struct metrics_writer writer = {0};
	char name[] = "operations";

	(void)state;
	metrics_write_row(&writer, &row, write_seven, name);
	metrics_write_end(&writer);
	assert_non_null(strstr(writer.text, "\"connection\":null,"));
	assert_non_null(strstr(writer.text, ",\"operations\":7}"));
	free(writer.text);
}

/* ---- the process ---- */

static void test_process(void **state)
{
	const char *line = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 3 0 1000 8192 5 18446744073709551615";
	struct process_stats stats = {0};

	(void)state;
	assert_true(process_stats_parse(line, 100, 4096, 5000, &stats));
	assert_true(stats.cpu_seconds > 1.99 && stats.cpu_seconds < 2.01);
	assert_true(stats.start_seconds > 5009.9 && stats.start_seconds < 5010.1);
	assert_int_equal(stats.threads, 3);
	assert_int_equal(stats.virtual_bytes, 8192);
	assert_int_equal(stats.resident_bytes, 5 * 4096);
	assert_false(process_stats_parse("", 100, 4096, 0, &stats));
	assert_false(process_stats_parse("7 (a) S 1", 100, 4096, 0, &stats));
	process_stats_get(&stats);
	assert_true(stats.known && stats.threads >= 1 && stats.open_files >= 1 && stats.resident_bytes > 4096);
}

/* ---- counters of ports ---- */

static void counter_write(const char *root, const char *file, const char *text)
{
	char path[512];
	FILE *to;

	snprintf(path, sizeof(path), "%s/sys/class/infiniband/rxe0/ports/1/%s", root, file);
	to = fopen(path, "w");
	assert_non_null(to);
	fputs(text, to);
	fclose(to);
}

static void tree_make(char *root)
{
	char command[512];

	assert_non_null(mkdtemp(root));
	snprintf(command, sizeof(command),
		 "mkdir -p %s/sys/class/infiniband/rxe0/ports/1/hw_counters "
		 "%s/sys/class/infiniband/rxe0/ports/1/counters",
		 root, root);
	assert_int_equal(system(command), 0);
}

static void tree_remove(const char *root)
{
	char command[512];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	assert_int_equal(system(command), 0);
}

static void test_port_counters(void **state)
{
	char root[] = "/tmp/tarn-test-ports-XXXXXX";
	const uint64_t second = 1000000000;
	struct metrics_port_counter view;
	struct port_stats *stats;

	(void)state;
	tree_make(root);
	stats = port_stats_create(root);
	assert_int_equal(port_stats_read(stats, "none", 1, second), 0);
	counter_write(root, "hw_counters/rcvd_seq_err", "5\n");
	counter_write(root, "hw_counters/rcvd_pkts", "500\n");   /* not one of trouble */
	counter_write(root, "hw_counters/send_err", "nonsense"); /* no number */
	assert_int_equal(port_stats_read(stats, "rxe0", 1, second), 1);
	port_stats_view(stats, 0, &view);
	assert_string_equal(view.name, "rcvd_seq_err");
	assert_int_equal(view.count, 5);
	assert_false(view.has_rate);
	/* within a second nothing is read again */
	counter_write(root, "hw_counters/rcvd_seq_err", "25\n");
	port_stats_read(stats, "rxe0", 1, second + second / 2);
	port_stats_view(stats, 0, &view);
	assert_int_equal(view.count, 5);
	port_stats_read(stats, "rxe0", 1, 3 * second);
	port_stats_view(stats, 0, &view);
	assert_true(view.count == 25 && view.has_rate && view.per_second > 9.99 && view.per_second < 10.01);
	/* the driver was loaded again */
	counter_write(root, "hw_counters/rcvd_seq_err", "1\n");
	port_stats_read(stats, "rxe0", 1, 5 * second);
	port_stats_view(stats, 0, &view);
	assert_true(view.count == 1 && !view.has_rate);
	tree_remove(root);
	assert_int_equal(port_stats_read(stats, "rxe0", 1, 7 * second), 0);
	port_stats_free(stats);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),    cmocka_unit_test(test_items),
		cmocka_unit_test(test_nothing),     cmocka_unit_test(test_labels),
		cmocka_unit_test(test_long_labels), cmocka_unit_test(test_large_numbers),
		cmocka_unit_test(test_histogram),   cmocka_unit_test(test_scales),
		cmocka_unit_test(test_accept),      cmocka_unit_test(test_json_text),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_parts),
		cmocka_unit_test(test_process),     cmocka_unit_test(test_port_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
