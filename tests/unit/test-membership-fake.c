/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tests/unit/membership-fake.c keeps the promises of membership.h, also when its keeper is unkind: a test that
 * rests on it would else prove nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "err.h"
#include "membership-fake.h"

#define MEMBERS 3u
#define WRITES  200u

struct member {
	struct membership *membership;
	struct world *world;
	uint64_t epoch, boot_id;
	unsigned int maps, none, lost, regained, records;
	bool writing;
};

struct world {
	struct event_base *base;
	struct fake_keeper *keeper;
	struct log log;
	struct member members[MEMBERS];
	unsigned int written, refused, unknown;
};

static void on_map(void *arg, const struct cluster_map *map)
{
	struct member *member = arg;

	if (!map) {
		member->none++;
		return;
	}
	assert_true(map->epoch > member->epoch);
	assert_int_equal(map->since[0], map->epoch);
	assert_true(map->since[1] < map->epoch || member->epoch == 0);
	member->epoch = map->epoch;
	member->maps++;
}

static void on_records(void *arg, const struct membership_record *records, unsigned int count)
{
	(void)records;
	((struct member *)arg)->records = count;
}

static void on_lost(void *arg, const char *why)
{
	assert_string_equal(why, "test");
	((struct member *)arg)->lost++;
}

static void on_regained(void *arg)
{
	((struct member *)arg)->regained++;
}

static const struct membership_events events = {on_map, on_records, on_lost, on_regained};

static void on_written(void *arg, enum membership_outcome outcome, const char *text)
{
	struct member *member = arg;
	struct world *world = member->world;

	member->writing = false;
	if (outcome == MEMBERSHIP_WRITTEN)
		world->written++;
	else if (outcome == MEMBERSHIP_REFUSED)
		world->refused++;
	else
		world->unknown++;
	assert_true((outcome == MEMBERSHIP_WRITTEN) == (text[0] == '\0'));
}

static struct cluster_map *first_map(void)
{
	static const char text[] =
		"{\"format\":1,\"cluster\":\"c\",\"pool\":\"main\",\"mode\":\"store\",\"seed\":\"00000000000000a5\","
		"\"epoch\":1,\"shards\":64,\"members\":[{\"name\":\"m0\",\"number\":1,\"state\":\"up\",\"weight\":100,"
		"\"addresses\":[{\"fabric\":\"shm\",\"address\":\"/run/t.sock\"}]}]}";
	struct cluster_map *map = NULL;

	assert_int_equal(cluster_map_parse(text, strlen(text), &map), 0);
	return map;
}

/* Shard 0 becomes somebody's. */
static void write_next(struct member *member, const char *if_member, uint64_t if_boot_id)
{
	uint64_t confirmed;
	const struct cluster_map *map = membership_map(member->membership, &confirmed);
	struct cluster_map *first = map ? NULL : first_map(), next = map ? *map : *first;
	uint64_t since[64];

	memcpy(since, next.since, sizeof(since));
	next.since = since;
	next.epoch = map ? map->epoch + 1 : 1;
	since[0] = next.epoch;
	member->writing = true;
	assert_int_equal(membership_write(member->membership, &next, map ? map->epoch : 0, if_member, if_boot_id,
					  on_written, member),
			 0);
	cluster_map_free(first);
}

static int set_up(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	world->base = event_base_new();
	world->keeper = fake_keeper_create(world->base, 42);
	log_init(&world->log, STDERR_FILENO, LOG_LEVEL_ERROR);
	for (unsigned int i = 0; i < MEMBERS; i++) {
		struct membership_record record = {.boot_id = 100 + i};

		snprintf(record.name, sizeof(record.name), "m%u", i);
		world->members[i].world = world;
		world->members[i].boot_id = record.boot_id;
		world->members[i].membership =
			fake_member_create(world->keeper, &record, &events, &world->members[i], &world->log);
	}
	*state = world;
	return 0;
}

static int tear_down(void **state)
{
	struct world *world = *state;

	for (unsigned int i = 0; i < MEMBERS; i++)
		membership_free(world->members[i].membership);
	fake_keeper_free(world->keeper);
	event_base_free(world->base);
	free(world);
	return 0;
}

static void until(struct world *world, bool (*condition)(const struct world *world))
{
	for (unsigned int i = 0; !condition(world); i++) {
		assert_true(i < 1000000);
		event_base_loop(world->base, EVLOOP_ONCE);
	}
}

static bool all_regained(const struct world *world)
{
	for (unsigned int i = 0; i < MEMBERS; i++)
		if (!world->members[i].regained || world->members[i].records != MEMBERS)
			return false;
	return true;
}

static bool nobody_writes(const struct world *world)
{
	for (unsigned int i = 0; i < MEMBERS; i++)
		if (world->members[i].writing)
			return false;
	return true;
}

static bool all_newest(const struct world *world)
{
	for (unsigned int i = 0; i < MEMBERS; i++)
		if (world->members[i].epoch != fake_keeper_epoch(world->keeper))
			return false;
	return nobody_writes(world);
}

static void test_kind(void **state)
{
	struct world *world = *state;

	until(world, all_regained);
	assert_int_equal(world->members[0].none, 1);
	for (unsigned int i = 0; i < MEMBERS; i++)
		write_next(&world->members[i], NULL, 0);
	until(world, nobody_writes);
	assert_int_equal(world->written, 1);
	assert_int_equal(world->refused, MEMBERS - 1);
	until(world, all_newest);
	write_next(&world->members[0], "m1", 101);
	until(world, all_newest);
	assert_int_equal(world->written, 2);
	write_next(&world->members[0], "m1", 102);
	until(world, all_newest);
	assert_int_equal(world->refused, MEMBERS);
}

static bool two_left(const struct world *world)
{
	return world->members[0].records == 2;
}

static bool again(const struct world *world)
{
	return world->members[1].regained == 2 && world->members[0].records == MEMBERS;
}

static void test_lease(void **state)
{
	struct world *world = *state;

	until(world, all_regained);
	assert_true(membership_held(world->members[1].membership));
	fake_member_lose(world->members[1].membership, "test");
	assert_int_equal(world->members[1].lost, 1);
	assert_false(membership_held(world->members[1].membership));
	until(world, two_left);
	fake_member_regain(world->members[1].membership);
	until(world, again);
}

static void test_cut(void **state)
{
	struct world *world = *state;
	uint64_t before, confirmed;

	until(world, all_regained);
	fake_member_cut(world->members[1].membership, true);
	membership_map(world->members[1].membership, &before);
	write_next(&world->members[1], NULL, 0);
	until(world, nobody_writes);
	assert_int_equal(world->unknown, 1);
	assert_int_equal(fake_keeper_epoch(world->keeper), 0);
	write_next(&world->members[0], NULL, 0);
	until(world, nobody_writes);
	assert_int_equal(world->members[1].maps, 0);
	membership_map(world->members[1].membership, &confirmed);
	assert_int_equal(confirmed, before);
	fake_member_cut(world->members[1].membership, false);
	until(world, all_newest);
}

/* Each write that was done follows one map, whatever was said of it, and no two the same. */
static void test_unkind(void **state)
{
	struct world *world = *state;
	const struct fake_faults faults = {.late_ms = 2, .lost = 20, .done_unknown = 20, .done_late = 20};
	unsigned int steps = 0;

	until(world, all_regained);
	fake_keeper_faults(world->keeper, &faults);
	while (world->written + world->refused + world->unknown < WRITES) {
		struct member *member = &world->members[steps++ % MEMBERS];

		if (!member->writing)
			write_next(member, NULL, 0);
		event_base_loop(world->base, EVLOOP_ONCE);
	}
	until(world, all_newest);
	assert_true(world->written > 0 && world->refused > 0 && world->unknown > 0);
	assert_true(fake_keeper_epoch(world->keeper) >= world->written);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kind, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lease, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unkind, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
