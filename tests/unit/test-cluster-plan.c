/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/cluster-plan.h: what each change of a cluster's members makes of the map; that long random
 * sequences of changes keep what the protocol needs; how much moves.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/err.h"
#include "daemon/cluster-plan.h"
#include "rounds.h"

#define NAMES_MAX     24u
#define RANDOM_SHARDS 64u
#define SHARDS        4096u /* of 200 joins and leaves */

/* A cluster as its members see it: the map, and who has a lease. */
struct world {
	struct cluster_map *map;
	bool alive[NAMES_MAX * 2];
	unsigned int numbers[NAMES_MAX]; /* by name; 0: none yet */
	uint64_t random;
};

static uint32_t draw(struct world *world, uint32_t below)
{
	world->random = world->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)((world->random >> 33) % below);
}

static struct cluster_member member_of(unsigned int name, uint32_t weight,
				       struct cluster_address *address)
{
	struct cluster_member member = {.weight = weight, .address_count = 1, .addresses = address};

	snprintf(member.name, sizeof(member.name), "m%u", name);
	snprintf(address->text, sizeof(address->text), "10.0.0.%u:7471", name);
	address->shm = false;
	return member;
}

static unsigned int name_of(const struct cluster_map *map, uint16_t place)
{
	return (unsigned int)atoi(map->members[place].name + 1);
}

/* ---- what holds for each map ---- */

static json_t *members_of(const struct cluster_map *map)
{
	json_t *members = json_array();

	for (uint32_t i = 0; i < map->member_count; i++)
		json_array_append_new(members, json_pack("{s:s, s:i, s:s, s:i, s:[{s:s, s:s}]}",
							 "name", map->members[i].name, "number",
							 (int)map->members[i].number, "state",
							 cluster_state_name(map->members[i].state),
							 "weight", (int)map->members[i].weight,
							 "addresses", "fabric", "verbs", "address",
							 map->members[i].addresses[0].text));
	return members;
}

/* Everybody who reads the document will take it. */
static void check_document(const struct cluster_map *map)
{
	json_t *owners = json_array(), *since = json_array(), *taken = json_array(),
	       *moves = json_array();
	struct cluster_map *read = NULL;
	json_t *document;
	char *text;

	for (uint32_t i = 0; i < map->shards; i++) {
		json_t *owner = json_array();

		if (map->owners[i] != CLUSTER_NOBODY)
			json_array_append_new(owner,
					      json_integer(map->members[map->owners[i]].number));
		json_array_append_new(owners, owner);
		json_array_append_new(since, json_integer((json_int_t)map->since[i]));
		json_array_append_new(taken, json_integer((json_int_t)map->taken[i]));
	}
	for (uint32_t i = 0; i < map->move_count; i++)
		json_array_append_new(moves,
				      json_pack("{s:i, s:i}", "shard", (int)map->moves[i].shard,
						"to", (int)map->members[map->moves[i].to].number));
	document = json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:o}",
			     "format", 1, "cluster", map->cluster, "pool", map->pool, "mode",
			     map->cache ? "cache" : "store", "seed", "0000000000000001", "epoch",
			     (json_int_t)map->epoch, "shards", (int)map->shards, "members",
			     members_of(map), "owners", owners, "since", since, "taken", taken,
			     "moves", moves);
	text = json_dumps(document, JSON_COMPACT);
	if (cluster_map_parse(text, strlen(text), &read) < 0)
		fail_msg("%s", err_text());
	cluster_map_free(read);
	free(text);
	json_decref(document);
}

/* Where it moves to, or CLUSTER_NOBODY. */
static uint16_t moves_to(const struct cluster_map *map, uint32_t shard)
{
	for (uint32_t i = 0; i < map->move_count; i++)
		if (map->moves[i].shard == shard)
			return map->moves[i].to;
	return CLUSTER_NOBODY;
}

/*
 * From one map to the next: places and numbers stay. Nothing changes hands by a plan; a shard can lose its
 * owner, which is said. An attempt that ends can be told from the next one by `since`.
 */
static void check_step(struct world *world, const struct cluster_map *next)
{
	const struct cluster_map *map = world->map;

	assert_int_equal(next->epoch, map->epoch + 1);
	assert_true(next->member_count >= map->member_count);
	for (uint32_t i = 0; i < next->member_count; i++) {
		unsigned int *number = &world->numbers[name_of(next, (uint16_t)i)];

		for (unsigned int name = 0; name < NAMES_MAX && *number == 0; name++)
			assert_int_not_equal(world->numbers[name], next->members[i].number);
		if (*number != 0)
			assert_int_equal(*number, next->members[i].number);
		*number = next->members[i].number;
	}
	for (uint32_t i = 0; i < map->shards; i++) {
		uint16_t to = moves_to(map, i);
		bool lost = next->owners[i] != map->owners[i],
		     ended = to != CLUSTER_NOBODY && to != moves_to(next, i);

		assert_true(!lost || next->owners[i] == CLUSTER_NOBODY);
		assert_int_equal(next->since[i], lost || ended ? next->epoch : map->since[i]);
		assert_int_equal(next->taken[i], lost ? next->epoch : map->taken[i]);
	}
}

/* The world goes on with the next map. Returns 1 if there is one, 0 if not. */
static int go(struct world *world, int status, struct cluster_map **inout_next)
{
	struct cluster_map *next = *inout_next;

	if (status < 0)
		fail_msg("%s", err_text());
	if (status == 0)
		return 0;
	assert_int_equal(status, 1);
	check_step(world, next);
	check_document(next);
	cluster_map_free(world->map);
	world->map = next;
	return 1;
}

/* ---- changes ---- */

static void found(struct world *world, bool cache, uint32_t shards, uint32_t weight)
{
	struct cluster_plan_first first = {
		.cluster = "c1", .pool = "main", .cache = cache, .seed = 1, .shards = shards};
	struct cluster_address address;
	struct cluster_member self = member_of(0, weight, &address);

	assert_int_equal(cluster_plan_first(&first, &self, &world->map), 1);
	check_document(world->map);
	world->numbers[0] = world->map->members[0].number;
	world->alive[0] = true;
	assert_int_equal(cluster_plan_owned(world->map, 0), shards);
	assert_int_equal(world->map->since[3], world->map->epoch);
}

static void destroy(struct world *world)
{
	cluster_map_free(world->map);
}

static int join_with(struct world *world, unsigned int name, uint32_t weight)
{
	struct cluster_address address;
	struct cluster_member self = member_of(name, weight, &address);
	struct cluster_map *next = NULL;
	int changed = go(world, cluster_plan_join(world->map, &self, &next), &next);
	int place = cluster_map_find(world->map, self.name);

	assert_true(place >= 0);
	world->alive[place] = true;
	/* nobody has to come twice */
	assert_int_equal(cluster_plan_join(world->map, &self, &next), 0);
	return changed;
}

static int join(struct world *world, unsigned int name)
{
	return join_with(world, name, 100);
}

static int tend(struct world *world)
{
	struct cluster_map *next = NULL;

	return go(world, cluster_plan_tend(world->map, world->alive, &next), &next);
}

typedef int change_fn(const struct cluster_map *map, const char *name,
		      struct cluster_map **ret_next);

static int change(struct world *world, change_fn *fn, const char *name)
{
	struct cluster_map *next = NULL;

	return go(world, fn(world->map, name, &next), &next);
}

static int forget_dead(const struct cluster_map *map, const char *name,
		       struct cluster_map **ret_next)
{
	return cluster_plan_forget(map, name, false, ret_next);
}

static int rebalance(struct world *world)
{
	struct cluster_map *next = NULL;

	return go(world, cluster_plan_rebalance(world->map, &next), &next);
}

/* Everybody takes what is to take; then nobody has to. Here done at once, else by hand-overs. */
static void take_all(struct world *world)
{
	struct cluster_map *map = world->map;
	bool *takes = calloc(map->shards, sizeof(*takes));

	map->epoch++;
	for (uint16_t i = 0; i < map->member_count; i++) {
		int count = cluster_plan_takes(map, i, takes), n = 0;

		for (uint32_t j = 0; j < map->shards; j++) {
			if (!takes[j])
				continue;
			n++;
			assert_int_equal(map->members[i].state, CLUSTER_UP);
			assert_int_equal(map->owners[j], CLUSTER_NOBODY);
			map->owners[j] = i;
			map->since[j] = map->taken[j] = map->epoch;
		}
		assert_int_equal(count, n);
		assert_int_equal(cluster_plan_takes(map, i, takes), 0);
	}
	free(takes);
	check_document(map);
}

/* Of the moves from members that are not down each with this chance in four ends: at its goal, or given
 * up. Returns how many. */
static uint32_t end_some(struct world *world, uint32_t chance, bool arrives)
{
	struct cluster_map *map = world->map;
	uint32_t kept = 0, ended = 0;

	map->epoch++;
	for (uint32_t i = 0; i < map->move_count; i++) {
		struct cluster_move move = map->moves[i];

		if (map->members[map->owners[move.shard]].state == CLUSTER_DOWN ||
		    draw(world, 4) >= chance) {
			map->moves[kept++] = move;
			continue;
		}
		if (arrives)
			map->owners[move.shard] = move.to;
		map->since[move.shard] = map->epoch;
		ended++;
	}
	map->move_count = kept;
	return ended;
}

static uint32_t settle(struct world *world)
{
	return end_some(world, 4, true);
}

static enum cluster_state state_of(const struct world *world, const char *name)
{
	return world->map->members[cluster_map_find(world->map, name)].state;
}

static uint32_t owned_by(const struct world *world, const char *name)
{
	return cluster_plan_owned(world->map, (uint16_t)cluster_map_find(world->map, name));
}

/* ---- one after the other ---- */

static void test_join_and_leave(void **state)
{
	struct world world = {.random = 1};

	(void)state;
	found(&world, false, 4096, 100);
	assert_int_equal(join(&world, 1), 1);
	/* nothing has changed hands yet */
	assert_int_equal(owned_by(&world, "m0"), 4096);
	assert_in_range(world.map->move_count, 4096 / 2 * 95 / 100, 4096 / 2 * 102 / 100);
	settle(&world);
	join(&world, 2);
	settle(&world);
	for (uint16_t i = 0; i < 3; i++)
		assert_in_range(cluster_plan_owned(world.map, i), 4096 / 3 * 95 / 100,
				4096 / 3 * 105 / 100);
	assert_int_equal(change(&world, cluster_plan_drain, "m1"), 1);
	assert_int_equal(change(&world, cluster_plan_drain, "m1"), 0);
	assert_true(world.map->move_count >= owned_by(&world, "m1"));
	settle(&world);
	assert_int_equal(owned_by(&world, "m1"), 0);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_DRAINING);
	world.alive[1] = false;
	assert_int_equal(tend(&world), 1);
	assert_int_equal(tend(&world), 0);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_LEFT);
	/* it comes back as whom it was */
	assert_int_equal(join(&world, 1), 1);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_UP);
	assert_int_equal(world.map->member_count, 3);
	settle(&world);
	assert_int_equal(rebalance(&world), 0);
	destroy(&world);
}

static void test_undrain(void **state)
{
	struct world world = {.random = 2};
	uint32_t before;

	(void)state;
	found(&world, false, 1024, 100);
	join(&world, 1);
	settle(&world);
	before = owned_by(&world, "m1");
	change(&world, cluster_plan_drain, "m1");
	end_some(&world, 2, true);
	assert_in_range(owned_by(&world, "m1"), 1, before - 1);
	assert_int_equal(change(&world, cluster_plan_undrain, "m1"), 1);
	assert_int_equal(change(&world, cluster_plan_undrain, "m1"), 0);
	/* what has gone comes back, the rest has stayed */
	assert_int_equal(world.map->move_count, before - owned_by(&world, "m1"));
	settle(&world);
	assert_int_equal(owned_by(&world, "m1"), before);
	destroy(&world);
}

/* A store's member that is down keeps its shards and its place; a drain survives that. */
static void test_down_store(void **state)
{
	struct world world = {.random = 3};
	uint32_t before;

	(void)state;
	found(&world, false, 1024, 100);
	join(&world, 1);
	settle(&world);
	before = owned_by(&world, "m1");
	world.alive[1] = false;
	assert_int_equal(tend(&world), 1);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_DOWN);
	assert_int_equal(owned_by(&world, "m1"), before);
	assert_int_equal(world.map->move_count, 0);
	assert_int_equal(rebalance(&world), 0);
	join(&world, 2);
	for (uint32_t i = 0; i < world.map->move_count; i++)
		assert_string_equal(
			world.map->members[world.map->owners[world.map->moves[i].shard]].name,
			"m0");
	settle(&world);
	assert_int_equal(join(&world, 1), 1);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_UP);
	settle(&world);
	change(&world, cluster_plan_drain, "m1");
	end_some(&world, 1, true);
	world.alive[1] = false;
	tend(&world);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_DOWN);
	join(&world, 1);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_DRAINING);
	assert_true(world.map->move_count >= owned_by(&world, "m1"));
	destroy(&world);
}

/* What was given up stays where it is; who has to leave tries again, by the next who looks. */
static void test_given_up(void **state)
{
	struct world world = {.random = 4};

	(void)state;
	found(&world, false, 256, 100);
	join(&world, 1);
	assert_in_range(end_some(&world, 4, false), 100, 156);
	assert_int_equal(owned_by(&world, "m0"), 256);
	assert_int_equal(tend(&world), 0);
	assert_int_equal(rebalance(&world), 1);
	settle(&world);
	change(&world, cluster_plan_drain, "m1");
	end_some(&world, 3, false);
	assert_int_equal(tend(&world), 1);
	assert_int_equal(world.map->move_count, owned_by(&world, "m1"));
	destroy(&world);
}

/* Whoever is on his way to one that is down goes elsewhere, or stays. */
static void test_goal_down(void **state)
{
	struct world world = {.random = 10};

	(void)state;
	found(&world, false, 256, 100);
	join(&world, 1);
	join(&world, 2);
	settle(&world);
	change(&world, cluster_plan_drain, "m1");
	world.alive[2] = false;
	assert_int_equal(tend(&world), 1);
	for (uint32_t i = 0; i < 256; i++)
		if (world.map->owners[i] == 1)
			assert_int_equal(moves_to(world.map, i), 0);
	join(&world, 2);
	settle(&world);
	join(&world, 3);
	world.alive[3] = false;
	tend(&world);
	for (uint32_t i = 0; i < 256; i++)
		assert_int_not_equal(moves_to(world.map, i), 3);
	destroy(&world);
}

static void test_cache(void **state)
{
	struct world world = {.random = 5};
	uint32_t nobody = 0, before;

	(void)state;
	found(&world, true, 1024, 100);
	join(&world, 1);
	join(&world, 2);
	settle(&world);
	before = owned_by(&world, "m1");
	assert_in_range(before, 1024 / 3 * 95 / 100, 1024 / 3 * 105 / 100);
	world.alive[1] = false;
	tend(&world);
	for (uint32_t i = 0; i < 1024; i++)
		nobody += world.map->owners[i] == CLUSTER_NOBODY;
	assert_int_equal(nobody, before);
	take_all(&world);
	assert_int_equal(owned_by(&world, "m0") + owned_by(&world, "m2"), 1024);
	join(&world, 1);
	settle(&world);
	assert_int_equal(owned_by(&world, "m1"), before);
	destroy(&world);
}

/* A cache pool's moves can be left to whoever takes what nobody owns. */
static void test_release(void **state)
{
	struct world world = {.random = 11};
	struct cluster_map *next = NULL;
	uint32_t moving;

	(void)state;
	found(&world, true, 1024, 100);
	join(&world, 1);
	settle(&world);
	assert_int_equal(cluster_plan_drain(world.map, "m1", &next), 1);
	moving = next->move_count;
	assert_int_equal(moving, owned_by(&world, "m1"));
	cluster_plan_release(next);
	go(&world, 1, &next);
	assert_int_equal(world.map->move_count, 0);
	assert_int_equal(owned_by(&world, "m1"), 0);
	assert_int_equal(owned_by(&world, "m0"), 1024 - moving);
	take_all(&world);
	assert_int_equal(owned_by(&world, "m0"), 1024);
	/* a store pool's keys go by hand-overs alone */
	destroy(&world);
	found(&world, false, 1024, 100);
	join(&world, 1);
	moving = world.map->move_count;
	cluster_plan_release(world.map);
	assert_int_equal(world.map->move_count, moving);
	destroy(&world);
}

static void test_forget(void **state)
{
	struct world world = {.random = 6};
	struct cluster_map *next = NULL;

	(void)state;
	found(&world, false, 1024, 100);
	join(&world, 1);
	settle(&world);
	assert_int_equal(cluster_plan_forget(world.map, "m1", true, &next), -EINVAL);
	assert_string_equal(
		err_text(),
		"member 'm1' of cluster 'c1' is up and can not be forgotten: `tarn drain` "
		"it, which loses nothing, or end its daemon and wait until it is down");
	world.alive[1] = false;
	tend(&world);
	assert_int_equal(cluster_plan_forget(world.map, "m1", true, &next), -EINVAL);
	assert_non_null(strstr(err_text(), "is alive and can not be forgotten"));
	assert_int_equal(change(&world, forget_dead, "m1"), 1);
	assert_int_equal(change(&world, forget_dead, "m1"), 0);
	assert_int_equal(state_of(&world, "m1"), CLUSTER_LEFT);
	assert_int_equal(owned_by(&world, "m1"), 0);
	take_all(&world);
	assert_int_equal(owned_by(&world, "m0"), 1024);
	destroy(&world);
}

static void test_weights(void **state)
{
	struct world world = {.random = 7};

	(void)state;
	found(&world, false, 4096, 100);
	join_with(&world, 1, 200);
	join_with(&world, 2, 0);
	settle(&world);
	assert_int_equal(owned_by(&world, "m2"), 0);
	assert_in_range(owned_by(&world, "m1"), 4096 * 2 / 3 * 97 / 100, 4096 * 2 / 3 * 103 / 100);
	/* another weight alone moves nothing */
	join_with(&world, 2, 300);
	assert_int_equal(world.map->move_count, 0);
	assert_int_equal(rebalance(&world), 1);
	settle(&world);
	assert_in_range(owned_by(&world, "m2"), 2048 * 97 / 100, 2048 * 103 / 100);
	destroy(&world);
}

static void refused(int status, int code, const char *text)
{
	assert_int_equal(status, code);
	assert_string_equal(err_text(), text);
}

static void test_refused(void **state)
{
	struct world world = {.random = 8};
	struct cluster_plan_first first = {
		.cluster = "c1", .pool = "main", .seed = 1, .shards = 64};
	struct cluster_address address;
	struct cluster_member self = member_of(9, 0, &address);
	struct cluster_map *next = NULL;

	(void)state;
	refused(cluster_plan_first(&first, &self, &next), -EINVAL,
		"the first member of cluster 'c1' has the weight 0: it needs one of 1 to 10000, "
		"since it "
		"owns all shards until others come");
	found(&world, false, 64, 100);
	join_with(&world, 1, 0);
	refused(cluster_plan_drain(world.map, "m0", &next), -EINVAL,
		"member 'm0' can not be drained: no other member of cluster 'c1' is up and has a "
		"weight "
		"above 0, so nobody could take its shards");
	refused(cluster_plan_drain(world.map, "m7", &next), -ENOENT,
		"no member 'm7' in the map of cluster 'c1'");
	world.alive[0] = false;
	tend(&world);
	refused(cluster_plan_drain(world.map, "m0", &next), -EINVAL,
		"member 'm0' of cluster 'c1' is down and can not be drained: start its daemon, or, "
		"if its "
		"keys are lost, `tarn forget` it");
	refused(cluster_plan_undrain(world.map, "m0", &next), -EINVAL,
		"member 'm0' of cluster 'c1' is down and can not be undrained: start its daemon, "
		"which "
		"lets it join again");
	refused(cluster_plan_forget(world.map, "m0", false, &next), -EINVAL,
		"member 'm0' can not be forgotten: no other member of cluster 'c1' is up and has a "
		"weight "
		"above 0, so nobody could take its shards");
	refused(cluster_plan_rebalance(world.map, &next), -EINVAL,
		"cluster 'c1' can not be rebalanced: no member is up and has a weight above 0");
	world.map->members[1].number = CLUSTER_MEMBERS_MAX;
	refused(cluster_plan_join(world.map, &self, &next), -EINVAL,
		"member 'm9' can not join cluster 'c1': all numbers to 1023 have been given, and "
		"none is "
		"given twice; let it join by the name of a member that has left");
	assert_null(next);
	destroy(&world);
}

/* ---- many ---- */

/* 200 joins and leaves in a row: each moves at most the member's share and a fiftieth of all, and all
 * are even behind it. */
static void test_two_hundred(void **state)
{
	struct world world = {.random = 9};
	uint32_t most_of_share = 0, count = 1;
	bool in[NAMES_MAX] = {true};

	(void)state;
	found(&world, false, SHARDS, 100);
	for (unsigned int step = 0; step < rounds(200); step++) {
		unsigned int name = draw(&world, NAMES_MAX);
		char text[16];
		uint32_t moved;

		snprintf(text, sizeof(text), "m%u", name);
		if (in[name] && count == 1)
			continue;
		if (in[name])
			change(&world, cluster_plan_drain, text);
		else
			join(&world, name);
		/* of the cluster with it */
		count += in[name] ? 0 : 1;
		moved = settle(&world);
		assert_true(moved <= SHARDS / count + SHARDS / 50);
		most_of_share = moved * count > most_of_share ? moved * count : most_of_share;
		count -= in[name] ? 1 : 0;
		if (in[name]) {
			assert_int_equal(owned_by(&world, text), 0);
			world.alive[cluster_map_find(world.map, text)] = false;
			tend(&world);
			assert_int_equal(state_of(&world, text), CLUSTER_LEFT);
		}
		in[name] = !in[name];
		if (step % 10 == 0)
			assert_int_equal(rebalance(&world), 0);
		for (uint16_t i = 0; i < world.map->member_count; i++)
			if (world.map->members[i].state == CLUSTER_UP)
				assert_true(cluster_plan_owned(world.map, i) <=
					    SHARDS / count * 103 / 100 + 1);
	}
	print_message("# at most %.3f of a member's share moved\n", most_of_share / (double)SHARDS);
	destroy(&world);
}

static void random_step(struct world *world)
{
	const struct cluster_map *map = world->map;
	uint16_t place = (uint16_t)draw(world, map->member_count);
	const char *name = map->members[place].name;
	struct cluster_map *next = NULL;

	switch (draw(world, 9)) {
	case 0:
		join_with(world, draw(world, NAMES_MAX),
			  draw(world, 8) == 0 ? 0 : 50 + 50 * draw(world, 3));
		break;
	case 1:
		world->alive[place] = false;
		tend(world);
		break;
	case 2:
		if (cluster_plan_drain(map, name, &next) == 1)
			go(world, 1, &next);
		break;
	case 3:
		if (cluster_plan_undrain(map, name, &next) == 1)
			go(world, 1, &next);
		break;
	case 4:
		if (cluster_plan_forget(map, name, world->alive[place], &next) == 1)
			go(world, 1, &next);
		break;
	case 5:
		if (cluster_plan_rebalance(map, &next) == 1)
			go(world, 1, &next);
		break;
	case 6:
		take_all(world);
		break;
	case 7:
		end_some(world, 2, true);
		break;
	default:
		end_some(world, 1, false);
		break;
	}
}

static void check_owners(const struct world *world)
{
	const struct cluster_map *map = world->map;

	for (uint32_t i = 0; i < map->shards; i++)
		if (map->owners[i] != CLUSTER_NOBODY && map->cache)
			assert_int_not_equal(map->members[map->owners[i]].state, CLUSTER_DOWN);
	/* who is up has a lease, or had one until now */
	for (uint32_t i = 0; i < map->member_count; i++)
		if (map->members[i].state == CLUSTER_UP ||
		    map->members[i].state == CLUSTER_DRAINING)
			assert_true(world->alive[i]);
}

/* Whatever has happened: when all are back and everything has moved, each shard is where it should be. */
static void heal(struct world *world)
{
	uint32_t members = world->map->member_count;

	for (uint32_t i = 0; i < members; i++)
		join(world, name_of(world->map, (uint16_t)i));
	for (uint32_t i = 0; i < members; i++)
		change(world, cluster_plan_undrain, world->map->members[i].name);
	take_all(world);
	rebalance(world);
	settle(world);
	assert_int_equal(world->map->move_count, 0);
	assert_int_equal(rebalance(world), 0);
	for (uint16_t i = 0; i < members; i++)
		assert_true(cluster_plan_owned(world->map, i) <=
			    world->map->shards * 51 / (50 * members) + 1);
}

static void random_sequences(bool cache)
{
	for (unsigned int seed = 1; seed <= rounds(20); seed++) {
		struct world world = {.random = seed};

		found(&world, cache, RANDOM_SHARDS, 100);
		for (unsigned int step = 0; step < 100; step++) {
			random_step(&world);
			check_owners(&world);
		}
		heal(&world);
		destroy(&world);
	}
}

static void test_random_store(void **state)
{
	(void)state;
	random_sequences(false);
}

static void test_random_cache(void **state)
{
	(void)state;
	random_sequences(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join_and_leave), cmocka_unit_test(test_undrain),
		cmocka_unit_test(test_down_store),     cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_goal_down),      cmocka_unit_test(test_cache),
		cmocka_unit_test(test_forget),
		cmocka_unit_test(test_release),         cmocka_unit_test(test_weights),
		cmocka_unit_test(test_refused),        cmocka_unit_test(test_two_hundred),
		cmocka_unit_test(test_random_store),   cmocka_unit_test(test_random_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
