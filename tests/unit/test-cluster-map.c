/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * common/cluster-map.h: what is refused and how that is said; who gets which shard, and what a change
 * of members moves.
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

#include "common/cluster-map.h"
#include "common/err.h"

#define SHARDS 4096
#define KEYS   100000
#define SEEDS  40

/* A document with members m1, m2, ... of these weights, without owners. The caller frees it. */
static json_t *document(unsigned int seed, const unsigned int *weights, unsigned int count)
{
	json_t *members = json_array();

	for (unsigned int i = 0; i < count; i++)
		json_array_append_new(
			members, json_pack("{s:o, s:i, s:s, s:i, s:[{s:s, s:s}]}", "name",
					   json_sprintf("m%u", i + 1), "number", (int)i + 1,
					   "state", "up", "weight", (int)weights[i], "addresses",
					   "fabric", "verbs", "address", "10.0.0.1:7471"));
	return json_pack("{s:i, s:s, s:s, s:s, s:o, s:i, s:i, s:o}", "format", 1, "cluster", "c1",
			 "pool", "main", "mode", "store", "seed", json_sprintf("%016x", seed),
			 "epoch", 9, "shards", SHARDS, "members", members);
}

static int parse(json_t *doc, struct cluster_map **ret_map)
{
	char *text = json_dumps(doc, JSON_COMPACT);
	int status = cluster_map_parse(text, strlen(text), ret_map);

	free(text);
	return status;
}

static struct cluster_map *map_of(unsigned int seed, const unsigned int *weights,
				  unsigned int count)
{
	json_t *doc = document(seed, weights, count);
	struct cluster_map *map = NULL;

	assert_int_equal(parse(doc, &map), 0);
	json_decref(doc);
	return map;
}

static const unsigned int even[] = {100, 100, 100, 100};

/* ---- placement ---- */

static void test_even(void **state)
{
	(void)state;
	for (unsigned int seed = 0; seed < 3; seed++) {
		struct cluster_map *map = map_of(seed, even, 3);
		unsigned int keys[3] = {0};

		for (unsigned int i = 0; i < KEYS; i++) {
			char key[32];
			int n = snprintf(key, sizeof(key), "key/%u", i);

			keys[map->owners[cluster_map_shard(map, key, (size_t)n)]]++;
		}
		for (unsigned int i = 0; i < 3; i++)
			assert_in_range(keys[i], KEYS / 3 * 95 / 100, KEYS / 3 * 105 / 100);
		cluster_map_free(map);
	}
}

/* The shards themselves are within 5 %: above by the limit of each, below because the others have limits. */
static void test_even_shards(void **state)
{
	(void)state;
	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct cluster_map *map = map_of(seed, even, 3);
		unsigned int shards[3] = {0};

		for (unsigned int i = 0; i < SHARDS; i++)
			shards[map->owners[i]]++;
		for (unsigned int i = 0; i < 3; i++)
			assert_in_range(shards[i], SHARDS / 3 * 95 / 100, SHARDS / 3 * 105 / 100);
		cluster_map_free(map);
	}
}

static unsigned int differ(const struct cluster_map *a, const struct cluster_map *b,
			   unsigned int *ret_between_old, unsigned int newcomer)
{
	unsigned int n = 0;

	*ret_between_old = 0;
	for (unsigned int i = 0; i < SHARDS; i++) {
		n += a->owners[i] != b->owners[i];
		*ret_between_old += a->owners[i] != b->owners[i] && b->owners[i] != newcomer;
	}
	return n;
}

static void test_add(void **state)
{
	unsigned int most = 0, most_between = 0;

	(void)state;
	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct cluster_map *three = map_of(seed, even, 3), *four = map_of(seed, even, 4);
		unsigned int between, moved = differ(three, four, &between, 3);

		assert_true(moved <= SHARDS / 4 + SHARDS / 50);
		assert_true(moved >= SHARDS / 4 * 9 / 10);
		most = moved > most ? moved : most;
		most_between = between > most_between ? between : most_between;
		cluster_map_free(three);
		cluster_map_free(four);
	}
	print_message("# at most %u of %u shards move, %u of them between old members\n", most,
		      SHARDS, most_between);
}

static void test_weights(void **state)
{
	static const unsigned int weights[] = {100, 200, 0, 100};

	(void)state;
	for (unsigned int seed = 0; seed < SEEDS; seed++) {
		struct cluster_map *map = map_of(seed, weights, 4);
		unsigned int shards[4] = {0};

		for (unsigned int i = 0; i < SHARDS; i++)
			shards[map->owners[i]]++;
		assert_int_equal(shards[2], 0);
		assert_in_range(shards[0], 1024 * 93 / 100, 1024 * 103 / 100);
		assert_in_range(shards[1], 2048 * 95 / 100, 2048 * 103 / 100);
		assert_in_range(shards[3], 1024 * 93 / 100, 1024 * 103 / 100);
		cluster_map_free(map);
	}
}

/* Owners do not depend on the order of the members, nor on the machine: this is what they are. */
static void test_same_everywhere(void **state)
{
	static const uint16_t expected[] = {3, 2, 2, 1, 3, 2, 3, 3, 3, 2, 1, 1, 1, 2, 1, 1,
					    1, 2, 1, 1, 3, 1, 3, 2, 2, 1, 1, 1, 3, 3, 2, 3};
	json_t *doc = document(7, even, 3), *members = json_object_get(doc, "members");
	struct cluster_map *map = map_of(7, even, 3), *turned = NULL;

	(void)state;
	for (unsigned int i = 0; i < sizeof(expected) / sizeof(*expected); i++)
		assert_int_equal(map->members[map->owners[i]].number, expected[i]);
	json_array_append(members, json_array_get(members, 0));
	json_array_remove(members, 0);
	assert_int_equal(parse(doc, &turned), 0);
	for (unsigned int i = 0; i < SHARDS; i++)
		assert_int_equal(map->members[map->owners[i]].number,
				 turned->members[turned->owners[i]].number);
	cluster_map_free(map);
	cluster_map_free(turned);
	json_decref(doc);
}

/* ---- what is refused ---- */

static void refuse(json_t *doc, const char *expected)
{
	struct cluster_map *untouched = (void *)&untouched, *map = untouched;

	assert_int_equal(parse(doc, &map), -EINVAL);
	assert_string_equal(err_text(), expected);
	assert_ptr_equal(map, untouched);
	json_decref(doc);
}

/* With this member of the document, or of its second member, set; NULL: taken away. */
static void refuse_set(const char *name, json_t *value, const char *expected)
{
	json_t *doc = document(1, even, 3);

	if (value != NULL)
		json_object_set_new(doc, name, value);
	else
		json_object_del(doc, name);
	refuse(doc, expected);
}

static void refuse_member(const char *name, json_t *value, const char *expected)
{
	json_t *doc = document(1, even, 3),
	       *member = json_array_get(json_object_get(doc, "members"), 1);

	if (value != NULL)
		json_object_set_new(member, name, value);
	else
		json_object_del(member, name);
	refuse(doc, expected);
}

static void test_head(void **state)
{
	(void)state;
	refuse_set("format", json_integer(2), "format is 2: allowed are 1 alone");
	refuse_set("cluster", NULL,
		   "cluster is missing: allowed are 1 to 63 of a-z, A-Z, 0-9, '.', '_', '-'");
	refuse_set("pool", json_string("a b"),
		   "pool is \"a b\": allowed are 1 to 63 of a-z, A-Z, 0-9, '.', '_', '-'");
	refuse_set("mode", json_string("disk"),
		   "mode is \"disk\": allowed are \"store\", \"cache\"");
	refuse_set("seed", json_integer(5),
		   "seed is 5: allowed are 16 digits of 0-9, a-f, as text");
	refuse_set("epoch", json_integer(0), "epoch is 0: allowed are 1 to 1152921504606846976");
	refuse_set("epoch", json_real(1.0), "epoch is 1.0: allowed are 1 to 1152921504606846976");
	refuse_set("shards", json_integer(100),
		   "shards is 100: allowed are powers of two, 64 to 16384");
	refuse_set("shards", json_integer(32768), "shards is 32768: allowed are 64 to 16384");
	refuse_set("color", json_true(),
		   "color is not known: allowed are format, cluster, pool, mode, seed, epoch, "
		   "shards, members, owners, since, taken, moves");
	refuse_set("format, cluster", json_true(),
		   "format, cluster is not known: allowed are format, cluster, pool, mode, seed, "
		   "epoch, shards, members, owners, since, taken, moves");
	refuse_set("members", json_array(), "members has 0 elements: allowed are 1 to 1023");
	refuse(json_array(),
	       "the document is []: allowed are an object with format, cluster, pool, mode, seed, "
	       "epoch, shards, members, owners, since, taken, moves");
}

static void test_members(void **state)
{
	(void)state;
	refuse_member("name", json_string("m1"),
		      "members[1].name is \"m1\", as that of members[0]: each member needs a name "
		      "of its own");
	refuse_member("number", json_integer(1),
		      "members[1].number is 1, as that of members[0]: each member needs a number "
		      "of its own");
	refuse_member("number", json_integer(1024),
		      "members[1].number is 1024: allowed are 1 to 1023");
	refuse_member("weight", json_integer(20000),
		      "members[1].weight is 20000: allowed are 0 to 10000");
	refuse_member("weight", json_integer(-1),
		      "members[1].weight is -1: allowed are 0 to 10000");
	refuse_member("weight", NULL, "members[1].weight is missing: allowed are 0 to 10000");
	refuse_member("state", json_string("dead"),
		      "members[1].state is \"dead\": allowed are \"up\", \"draining\", \"down\", "
		      "\"left\"");
	refuse_member("addresses", json_array(),
		      "members[1].addresses has 0 elements: allowed are 1 to 8");
	refuse_member("addresses", json_pack("[{s:s, s:s}]", "fabric", "tcp", "address", "x"),
		      "members[1].addresses[0].fabric is \"tcp\": allowed are \"verbs\", \"shm\"");
	refuse_member(
		"addresses", json_pack("[{s:s, s:s}]", "fabric", "shm", "address", ""),
		"members[1].addresses[0].address is \"\": allowed are 1 to 255 bytes of text");
	refuse_member("adresses", json_array(),
		      "members[1].adresses is not known: allowed are name, number, state, weight, "
		      "addresses");
}

static void test_zero_weights(void **state)
{
	static const unsigned int zero[] = {0, 0};

	(void)state;
	refuse(document(1, zero, 2), "members: none that is up has a weight above 0: one at least "
				     "needs a weight of 1 to 10000");
}

/* A document with owners: all of them m1's, since epoch 3. */
static json_t *owned(void)
{
	json_t *doc = document(1, even, 3), *owners = json_array(), *since = json_array();

	for (unsigned int i = 0; i < SHARDS; i++) {
		json_array_append_new(owners, json_pack("[i]", 1));
		json_array_append_new(since, json_integer(3));
	}
	json_object_set_new(doc, "owners", owners);
	json_object_set_new(doc, "since", since);
	return doc;
}

static void refuse_element(const char *array, size_t i, json_t *value, const char *expected)
{
	json_t *doc = owned();

	json_array_set_new(json_object_get(doc, array), i, value);
	refuse(doc, expected);
}

static void refuse_owned(const char *name, json_t *value, const char *expected)
{
	json_t *doc = owned();

	if (value != NULL)
		json_object_set_new(doc, name, value);
	else
		json_object_del(doc, name);
	refuse(doc, expected);
}

static void test_shards(void **state)
{
	(void)state;
	refuse_element("owners", 5, json_pack("[i]", 4),
		       "owners[5] is [4]: allowed are [] and the number of a member that has not "
		       "left");
	refuse_element("owners", 5, json_pack("[i, i]", 1, 2),
		       "owners[5] is [1,2]: allowed are an array of no or one member's number");
	refuse_element("since", 5, json_integer(10), "since[5] is 10: allowed are 1 to 9");
	refuse_owned("since", NULL, "since is missing: allowed are an array of 4096 elements");
	refuse_owned("owners", json_pack("[[i]]", 1),
		     "owners has 1 elements: allowed are 4096 alone");
	refuse_owned("owners", NULL,
		     "owners is missing: allowed are an array for each shard; or none of owners, "
		     "since, taken, moves");
	refuse_owned("moves", json_pack("[{s:i, s:i}]", "shard", 7, "to", 1),
		     "moves[0].to is 1: allowed are the number of a member that is up and not the "
		     "owner of shard 7, which has to have one");
	refuse_owned("moves", json_pack("[{s:i, s:i}]", "shard", 4096, "to", 2),
		     "moves[0].shard is 4096: allowed are 0 to 4095");
	refuse_owned(
		"moves",
		json_pack("[{s:i, s:i}, {s:i, s:i}]", "shard", 7, "to", 2, "shard", 7, "to", 3),
		"moves[1].shard is 7: allowed are 8 to 4095");
}

static void test_owned(void **state)
{
	json_t *doc = owned(), *taken = json_array();
	struct cluster_map *map;

	(void)state;
	for (unsigned int i = 0; i < SHARDS; i++)
		json_array_append_new(taken, json_integer(i == 2 ? 3 : 0));
	json_object_set_new(doc, "taken", taken);
	json_object_set_new(doc, "moves", json_pack("[{s:i, s:i}]", "shard", 7, "to", 2));
	json_array_set_new(json_object_get(doc, "owners"), 9, json_array());
	assert_int_equal(parse(doc, &map), 0);
	assert_string_equal(map->cluster, "c1");
	assert_false(map->cache);
	assert_false(map->placed);
	assert_int_equal(map->seed, 1);
	assert_int_equal(map->epoch, 9);
	assert_int_equal(map->owners[8], 0);
	assert_int_equal(map->owners[9], CLUSTER_NOBODY);
	assert_int_equal(map->since[8], 3);
	assert_int_equal(map->taken[2], 3);
	assert_int_equal(map->move_count, 1);
	assert_int_equal(map->moves[0].shard, 7);
	assert_int_equal(map->moves[0].to, 1);
	assert_int_equal(cluster_map_find(map, "m3"), 2);
	assert_int_equal(cluster_map_find(map, "m4"), -ENOENT);
	assert_int_equal(cluster_map_expect(map, "c1"), 0);
	assert_int_equal(cluster_map_expect(map, "c2"), -EINVAL);
	assert_string_equal(err_text(),
			    "cluster is \"c1\": this is the map of another cluster than 'c2'");
	cluster_map_free(map);
	json_decref(doc);
}

static void test_text(void **state)
{
	char *large = malloc(CLUSTER_MAP_MAX_BYTES + 1);
	struct cluster_map *map;

	(void)state;
	memset(large, ' ', CLUSTER_MAP_MAX_BYTES + 1);
	assert_int_equal(cluster_map_parse(large, CLUSTER_MAP_MAX_BYTES + 1, &map), -E2BIG);
	assert_string_equal(err_text(), "the map has 1048577 bytes: allowed are up to 1048576");
	free(large);
	assert_int_equal(cluster_map_parse("{\n \"format\": }", 14, &map), -EINVAL);
	assert_non_null(strstr(err_text(), "line 2, column"));
	assert_int_equal(cluster_map_parse("{\"pool\":\"a\",\"pool\":\"b\"}", 23, &map), -EINVAL);
	assert_non_null(strstr(err_text(), "duplicate"));
	assert_int_equal(cluster_map_parse("", 0, &map), -EINVAL);
	cluster_map_free(NULL);
}

/* Shared memory first, as far as it is there; each once. */
static void test_addresses(void **state)
{
	const struct cluster_address addresses[] = {
		{.text = "10.0.0.1:7471"},
		{.shm = true, .text = "/nonexistent/tarn.sock"},
		{.shm = true, .text = "/"},
		{.text = "10.0.0.2:7471"},
	};
	uint32_t at = 0;

	(void)state;
	assert_ptr_equal(cluster_address_next(addresses, 4, &at), &addresses[2]);
	assert_ptr_equal(cluster_address_next(addresses, 4, &at), &addresses[0]);
	assert_ptr_equal(cluster_address_next(addresses, 4, &at), &addresses[3]);
	assert_null(cluster_address_next(addresses, 4, &at));
	assert_null(cluster_address_next(addresses, 4, &at));
	at = 0;
	assert_null(cluster_address_next(addresses + 1, 1, &at));
	at = 0;
	assert_null(cluster_address_next(addresses, 0, &at));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_even_shards),
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_same_everywhere),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_zero_weights),
		cmocka_unit_test(test_shards),
		cmocka_unit_test(test_owned),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
