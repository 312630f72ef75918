/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Membership by a file, daemon/membership-static.c; a member's record, daemon/membership-record.c; a map that is written and read,
 * common/cluster-map-write.c.
 */
#include <errno.h>
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

#include "cluster-map-write.h"
#include "err.h"
#include "membership-record.h"
#include "membership.h"

#define SHARDS 64

/* ---- a map ---- */

static char *document(const char *cluster, unsigned long long epoch, const char *name, const char *state)
{
	char *text = NULL;

	if (asprintf(&text,
		     "{\"format\":1,\"cluster\":\"%s\",\"pool\":\"main\",\"mode\":\"store\",\"seed\":\"00000000000000a5\","
		     "\"epoch\":%llu,\"shards\":%d,\"members\":[{\"name\":\"a\",\"number\":3,\"state\":\"up\",\"weight\":100,"
		     "\"addresses\":[{\"fabric\":\"shm\",\"address\":\"/run/a.sock\"}]},{\"name\":\"%s\",\"number\":9,"
		     "\"state\":\"%s\",\"weight\":50,\"addresses\":[{\"fabric\":\"verbs\",\"address\":\"10.0.0.1\"}]}]}",
		     cluster, epoch, SHARDS, name, state) < 0)
		abort();
	return text;
}

static struct cluster_map *map_of(unsigned long long epoch)
{
	char *text = document("c", epoch, "b", "up");
	struct cluster_map *map = NULL;

	assert_int_equal(cluster_map_parse(text, strlen(text), &map), 0);
	free(text);
	return map;
}

static void test_write(void **state)
{
	struct cluster_map *map = map_of(7), *again = NULL;
	char *text = NULL;
	size_t bytes = 0;

	(void)state;
	map->owners[0] = CLUSTER_NOBODY;
	map->owners[1] = 0;
	map->since[1] = 5;
	map->taken[1] = 4;
	map->moves = calloc(1, sizeof(*map->moves));
	map->moves[0] = (struct cluster_move){.shard = 1, .to = 1};
	map->move_count = 1;
	assert_int_equal(cluster_map_write(map, &text, &bytes), 0);
	assert_int_equal(cluster_map_parse(text, bytes, &again), 0);
	assert_false(again->placed);
	assert_string_equal(again->cluster, "c");
	assert_int_equal(again->epoch, 7);
	assert_int_equal(again->seed, 0xa5);
	assert_int_equal(again->member_count, 2);
	assert_string_equal(again->members[1].addresses[0].text, "10.0.0.1");
	assert_true(again->members[0].addresses[0].shm && !again->members[1].addresses[0].shm);
	assert_int_equal(again->members[1].weight, 50);
	assert_memory_equal(again->owners, map->owners, SHARDS * sizeof(*map->owners));
	assert_memory_equal(again->since, map->since, SHARDS * sizeof(*map->since));
	assert_memory_equal(again->taken, map->taken, SHARDS * sizeof(*map->taken));
	assert_int_equal(again->moves[0].to, 1);
	cluster_map_free(again);
	free(text);
	map->taken[1] = 6; /* later than since: a mistake of who has made it */
	assert_int_equal(cluster_map_write(map, &text, &bytes), -EINVAL);
	assert_non_null(strstr(err_text(), "taken[1] is 6"));
	cluster_map_free(map);
}

/* ---- records ---- */

static const struct membership_record record_of_b = {
	.name = "b",
	.number = 9,
	.boot_id = 0xfedcba9876543210,
	.weight = 50,
	.address_count = 2,
	.addresses = {{true, "/run/b.sock"}, {false, "10.0.0.1:7477"}},
	.version = "0.9",
};

static void test_record(void **state)
{
	struct membership_record again;
	char *text = NULL;

	(void)state;
	assert_int_equal(membership_record_write(&record_of_b, &text), 0);
	assert_int_equal(membership_record_parse(text, strlen(text), &again), 0);
	assert_memory_equal(&again, &record_of_b, sizeof(again));
	free(text);
	again.boot_id = 0;
	assert_int_equal(membership_record_write(&again, &text), -EINVAL);
	assert_non_null(strstr(err_text(), "boot_id"));
}

static void test_record_wrong(void **state)
{
	static const struct {
		const char *from, *to, *holds;
	} cases[] = {
		{"\"format\":1", "\"format\":2", "format"},
		{"\"name\":\"b\"", "\"name\":\"b/\"", "name"},
		{"\"number\":9", "\"number\":1024", "number"},
		{"\"number\":9", "\"number\":\"9\"", "number"},
		{"fedcba9876543210", "FEDCBA9876543210", "boot_id"},
		{"fedcba9876543210", "0000000000000000", "boot_id"},
		{"\"weight\":50", "\"weight\":-1", "weight"},
		{"\"version\":\"0.9\"", "\"version\":\"\\n\"", "version"},
		{"\"shm\"", "\"tcp\"", "fabric"},
		{"/run/b.sock", "", "address"},
		{"\"addresses\":[", "\"addresses\":[{},{},{},{},{},{},{},{},{},", "addresses"},
		{"}]}", "}]", "no JSON"},
	};
	struct membership_record record;
	char *text = NULL, changed[1024];

	(void)state;
	assert_int_equal(membership_record_write(&record_of_b, &text), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *at = strstr(text, cases[i].from);

		assert_non_null(at);
		snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, cases[i].to,
			 at + strlen(cases[i].from));
		assert_int_equal(membership_record_parse(changed, strlen(changed), &record), -EINVAL);
		if (!strstr(err_text(), cases[i].holds))
			fail_msg("case %zu: %s", i, err_text());
	}
	free(text);
}

/* ---- the file ---- */

struct seen {
	char file[64];
	struct config *config;
	struct event_base *base;
	struct log log;
	unsigned int maps, regained, writes;
	uint64_t epoch;
	enum membership_outcome outcome;
	char text[256];
};

static void on_map(void *arg, const struct cluster_map *map)
{
	struct seen *seen = arg;

	seen->maps++;
	seen->epoch = map->epoch;
}

static void on_records(void *arg, const struct membership_record *records, unsigned int count)
{
	(void)arg;
	(void)records;
	(void)count;
	fail_msg("static membership knows of nobody");
}

static void on_lost(void *arg, const char *why)
{
	(void)arg;
	fail_msg("%s", why);
}

static void on_regained(void *arg)
{
	struct seen *seen = arg;

	assert_int_equal(seen->maps, 1);
	seen->regained++;
}

static const struct membership_events events = {on_map, on_records, on_lost, on_regained};

static void on_written(void *arg, enum membership_outcome outcome, const char *text)
{
	struct seen *seen = arg;

	seen->writes++;
	seen->outcome = outcome;
	snprintf(seen->text, sizeof(seen->text), "%s", text);
}

static void file_write(const struct seen *seen, char *text)
{
	FILE *file = fopen(seen->file, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	free(text);
}

static int set_up(void **state)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	struct config_errors errors = {0};
	char text[512];

	strcpy(seen->file, "/tmp/tarn-test-map-XXXXXX");
	close(mkstemp(seen->file));
	snprintf(text, sizeof(text),
		 "[listen l]\npath = /run/t.sock\n[pool main]\nsize = 1G\n[cluster]\nname = c\nmember = b\nmap = %s\n",
		 seen->file);
	assert_int_equal(config_parse("t.conf", text, strlen(text), &errors, &seen->config), 0);
	assert_int_equal(errors.count, 0);
	seen->base = event_base_new();
	log_init(&seen->log, STDERR_FILENO, LOG_LEVEL_ERROR);
	*state = seen;
	return 0;
}

static int tear_down(void **state)
{
	struct seen *seen = *state;

	unlink(seen->file);
	config_free(seen->config);
	event_base_free(seen->base);
	free(seen);
	return 0;
}

static int create(struct seen *seen, struct membership **ret)
{
	return membership_create(&seen->config->cluster, seen->base, &record_of_b, &events, seen, &seen->log, ret);
}

static void turn(struct seen *seen)
{
	event_base_loop(seen->base, EVLOOP_NONBLOCK);
}

static void test_static(void **state)
{
	struct seen *seen = *state;
	struct membership *membership = NULL;
	struct membership_state now;
	uint64_t confirmed = 0, before;

	file_write(seen, document("c", 7, "b", "up"));
	assert_int_equal(create(seen, &membership), 0);
	/* the pool is made with it, in front of the loop */
	assert_int_equal(membership_map(membership, &confirmed)->epoch, 7);
	assert_true(membership_held(membership));
	assert_int_equal(seen->maps, 0);
	turn(seen);
	assert_int_equal(seen->maps, 1);
	assert_int_equal(seen->regained, 1);
	before = confirmed;
	assert_int_equal(membership_map(membership, &confirmed)->epoch, 7);
	assert_true(confirmed >= before && before > 0);
	turn(seen);
	assert_int_equal(seen->maps, 1);
	membership_state(membership, &now);
	assert_string_equal(now.backend, "static");
	assert_string_equal(now.endpoint, seen->file);
	assert_true(now.held && now.lease_ns == 0);
	membership_free(membership);
}

static void test_static_reload(void **state)
{
	struct seen *seen = *state;
	struct membership *membership = NULL;
	uint64_t confirmed;

	file_write(seen, document("c", 7, "b", "up"));
	assert_int_equal(create(seen, &membership), 0);
	turn(seen);
	assert_int_equal(membership_reload(membership, &seen->config->cluster, &record_of_b), 0);
	turn(seen);
	assert_int_equal(seen->maps, 1); /* the same */
	file_write(seen, document("c", 7, "b", "draining"));
	assert_int_equal(membership_reload(membership, &seen->config->cluster, &record_of_b), -EINVAL);
	assert_non_null(strstr(err_text(), "its epoch, 7, is not higher than that of the one in use, 7"));
	assert_non_null(strstr(err_text(), seen->file));
	file_write(seen, document("d", 8, "b", "up"));
	assert_int_equal(membership_reload(membership, &seen->config->cluster, &record_of_b), -EINVAL);
	assert_non_null(strstr(err_text(), "the map of another cluster than 'c'"));
	turn(seen);
	assert_int_equal(seen->maps, 1);
	file_write(seen, document("c", 8, "b", "draining"));
	assert_int_equal(membership_reload(membership, &seen->config->cluster, &record_of_b), 0);
	assert_int_equal(membership_map(membership, &confirmed)->epoch, 7); /* until it was told */
	file_write(seen, document("c", 9, "b", "up"));
	assert_int_equal(membership_reload(membership, &seen->config->cluster, &record_of_b), 0);
	turn(seen);
	assert_int_equal(seen->maps, 2);
	assert_int_equal(seen->epoch, 9);
	assert_int_equal(membership_map(membership, &confirmed)->epoch, 9);
	membership_free(membership);
}

static void test_static_wrong(void **state)
{
	struct seen *seen = *state;
	struct membership *membership = NULL;
	struct config_errors errors = {0};

	file_write(seen, document("c", 7, "z", "up"));
	assert_int_equal(create(seen, &membership), -EINVAL);
	assert_non_null(strstr(err_text(), "there is no member 'b', which this one is"));
	membership_check(seen->config, &errors);
	assert_int_equal(errors.count, 1);
	assert_non_null(strstr(errors.texts[0], "t.conf:5: [cluster] map = /tmp/"));
	config_errors_free(&errors);
	file_write(seen, document("c", 7, "b", "left"));
	assert_int_equal(create(seen, &membership), -EINVAL);
	assert_non_null(strstr(err_text(), "has left the cluster"));
	file_write(seen, strdup("{"));
	assert_int_equal(create(seen, &membership), -EINVAL);
	unlink(seen->file);
	assert_int_equal(create(seen, &membership), -ENOENT);
	assert_non_null(strstr(err_text(), "can not be read: No such file"));
	assert_null(membership);
}

static void test_static_write(void **state)
{
	struct seen *seen = *state;
	struct cluster_map *next = map_of(8);
	struct membership *membership = NULL;

	file_write(seen, document("c", 7, "b", "up"));
	assert_int_equal(create(seen, &membership), 0);
	assert_int_equal(membership_write(membership, next, 6, NULL, 0, on_written, seen), -EINVAL);
	assert_non_null(strstr(err_text(), "is to have the epoch 7, not 8"));
	assert_int_equal(membership_write(membership, next, 7, NULL, 0, on_written, seen), 0);
	assert_int_equal(seen->writes, 0);
	turn(seen);
	assert_int_equal(seen->writes, 1);
	assert_int_equal(seen->outcome, MEMBERSHIP_REFUSED);
	assert_non_null(strstr(seen->text, "static"));
	/* nobody is told when all is over */
	assert_int_equal(membership_write(membership, next, 7, NULL, 0, on_written, seen), 0);
	membership_free(membership);
	turn(seen);
	assert_int_equal(seen->writes, 1);
	cluster_map_free(next);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_record_wrong),
		cmocka_unit_test_setup_teardown(test_static, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_static_reload, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_static_wrong, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_static_write, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
