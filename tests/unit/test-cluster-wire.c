/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * common/cluster-wire.h: a map comes out as it went in; bytes that are not such a map, cut, changed, or with what a map
 * may not have, are refused with a text.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tarn/tarn.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/cluster-wire.h"
#include "common/err.h"

#define SHARDS 64u

/* Three members, of which one has left; a shard without an owner; two moves. */
struct sample {
	struct cluster_map map;
	struct cluster_member members[3];
	struct cluster_address addresses[4];
	uint16_t owners[SHARDS];
	uint64_t since[SHARDS], taken[SHARDS];
	struct cluster_move moves[2];
};

static void make(struct sample *s)
{
	static const char *const texts[] = {"10.0.0.1:7471", "/run/tarn/a.sock", "node-b", "c"};

	memset(s, 0, sizeof(*s));
	s->map = (struct cluster_map){.cluster = "c1",
				      .pool = "main",
				      .cache = true,
				      .seed = 0x0123456789abcdef,
				      .epoch = 77,
				      .shards = SHARDS,
				      .member_count = 3,
				      .move_count = 2,
				      .members = s->members,
				      .owners = s->owners,
				      .since = s->since,
				      .taken = s->taken,
				      .moves = s->moves};
	for (unsigned i = 0; i < 4; i++) {
		strcpy(s->addresses[i].text, texts[i]);
		s->addresses[i].shm = i == 1;
	}
	s->members[0] = (struct cluster_member){.name = "a",
						.number = 1,
						.state = CLUSTER_UP,
						.weight = 100,
						.address_count = 2,
						.addresses = &s->addresses[0]};
	s->members[1] = (struct cluster_member){.name = "b",
						.number = 1023,
						.state = CLUSTER_UP,
						.weight = 10000,
						.address_count = 1,
						.addresses = &s->addresses[2]};
	s->members[2] = (struct cluster_member){.name = "gone-c",
						.number = 3,
						.state = CLUSTER_LEFT,
						.address_count = 1,
						.addresses = &s->addresses[3]};
	for (unsigned i = 0; i < SHARDS; i++) {
		s->owners[i] = i == 5 ? CLUSTER_NOBODY : (uint16_t)(i % 2);
		s->since[i] = 1 + i;
		s->taken[i] = i % 3 ? 0 : 1 + i;
	}
	s->moves[0] = (struct cluster_move){.shard = 4, .to = 1};
	s->moves[1] = (struct cluster_move){.shard = 63, .to = 0};
}

static size_t encode(const struct sample *s, uint8_t *buffer, size_t capacity)
{
	size_t bytes = 0;

	assert_int_equal(cluster_wire_encode(&s->map, buffer, capacity, &bytes), 0);
	assert_int_equal(bytes, cluster_wire_bytes(&s->map));
	return bytes;
}

static void assert_same(const struct cluster_map *a, const struct cluster_map *b)
{
	assert_string_equal(a->cluster, b->cluster);
	assert_string_equal(a->pool, b->pool);
	assert_int_equal(a->cache, b->cache);
	assert_int_equal(a->placed, b->placed);
	assert_int_equal(a->seed, b->seed);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->shards, b->shards);
	assert_int_equal(a->member_count, b->member_count);
	assert_int_equal(a->move_count, b->move_count);
	for (uint32_t i = 0; i < a->member_count; i++) {
		const struct cluster_member *m = &a->members[i], *n = &b->members[i];

		assert_string_equal(m->name, n->name);
		assert_int_equal(m->number, n->number);
		assert_int_equal(m->state, n->state);
		assert_int_equal(m->weight, n->weight);
		assert_int_equal(m->address_count, n->address_count);
		for (uint32_t j = 0; j < m->address_count; j++) {
			assert_int_equal(m->addresses[j].shm, n->addresses[j].shm);
			assert_string_equal(m->addresses[j].text, n->addresses[j].text);
		}
	}
	assert_memory_equal(a->owners, b->owners, a->shards * sizeof(*a->owners));
	assert_memory_equal(a->since, b->since, a->shards * sizeof(*a->since));
	assert_memory_equal(a->taken, b->taken, a->shards * sizeof(*a->taken));
	for (uint32_t i = 0; i < a->move_count; i++) {
		assert_int_equal(a->moves[i].shard, b->moves[i].shard);
		assert_int_equal(a->moves[i].to, b->moves[i].to);
	}
}

static void test_round_trip(void **state)
{
	uint8_t buffer[4096], again[4096];
	struct cluster_map *map;
	struct sample s;
	size_t bytes, more;

	(void)state;
	make(&s);
	bytes = encode(&s, buffer, sizeof(buffer));
	assert_int_equal(cluster_wire_decode(buffer, bytes, &map), 0);
	assert_same(&s.map, map);
	assert_int_equal(cluster_wire_encode(map, again, sizeof(again), &more), 0);
	assert_int_equal(bytes, more);
	assert_memory_equal(buffer, again, bytes);
	cluster_map_free(map);
}

/* Little-endian, at the places that the header names: another machine has to understand it. */
static void test_bytes(void **state)
{
	uint8_t buffer[4096];
	struct sample s;
	size_t bytes;

	(void)state;
	make(&s);
	bytes = encode(&s, buffer, sizeof(buffer));
	assert_memory_equal(buffer, "TARM\1\1\1\0", 8);
	assert_int_equal(buffer[8] | buffer[9] << 8, bytes);
	assert_int_equal(buffer[12], SHARDS);
	assert_int_equal(buffer[16], 3);
	assert_int_equal(buffer[20], 2);
	assert_memory_equal(buffer + 24, "\xef\xcd\xab\x89\x67\x45\x23\x01", 8);
	assert_int_equal(buffer[32], 77);
	assert_string_equal((char *)buffer + 40, "c1");
	assert_string_equal((char *)buffer + 104, "main");
	assert_memory_equal(buffer + 168, "\1\0\0\2\144\0\0\0a\0", 10);
	assert_int_equal(cluster_wire_checksum(buffer, bytes), XXH3_64bits(buffer, bytes - 8));
}

static void test_cut_and_changed(void **state)
{
	uint8_t buffer[4096];
	struct cluster_map *map = NULL;
	struct sample s;
	size_t bytes;

	(void)state;
	make(&s);
	bytes = encode(&s, buffer, sizeof(buffer));
	for (size_t n = 0; n < bytes; n++) {
		/* of its own size, so that reading behind it is seen */
		uint8_t *cut = malloc(n + 1);

		memcpy(cut, buffer, n);
		assert_int_equal(cluster_wire_decode(cut, n, &map), -TARN_EPROTO);
		free(cut);
	}
	for (size_t n = 0; n < bytes; n++) {
		buffer[n] ^= 0x10;
		assert_int_equal(cluster_wire_decode(buffer, bytes, &map), -TARN_EPROTO);
		buffer[n] ^= 0x10;
	}
	assert_null(map);
}

/* Each breaks one promise of cluster-map.h; the checksum is right. */
static void too_old(struct sample *s)
{
	s->since[3] = 0;
}
static void too_new(struct sample *s)
{
	s->since[3] = 78;
}
static void taken_late(struct sample *s)
{
	s->taken[3] = 5;
}
static void owner_unknown(struct sample *s)
{
	s->owners[9] = 3;
}
static void owner_left(struct sample *s)
{
	s->owners[9] = 2;
}
static void move_twice(struct sample *s)
{
	s->moves[1] = s->moves[0];
}
static void move_back(struct sample *s)
{
	s->moves[0].to = 0;
}
static void move_to_left(struct sample *s)
{
	s->moves[0].to = 2;
}
static void move_of_nobody(struct sample *s)
{
	s->moves[1].shard = 5;
	s->moves[0].shard = 4;
}
static void name_twice(struct sample *s)
{
	strcpy(s->members[1].name, "a");
}
static void name_bad(struct sample *s)
{
	strcpy(s->members[1].name, "a b");
}
static void name_none(struct sample *s)
{
	s->map.cluster[0] = 0;
}
static void number_twice(struct sample *s)
{
	s->members[1].number = 1;
}
static void number_none(struct sample *s)
{
	s->members[1].number = 0;
}
static void weight_large(struct sample *s)
{
	s->members[1].weight = 10001;
}
static void no_address(struct sample *s)
{
	s->members[1].address_count = 0;
}
static void address_empty(struct sample *s)
{
	s->addresses[2].text[0] = 0;
}
static void no_epoch(struct sample *s)
{
	s->map.epoch = 0;
}
static void no_member(struct sample *s)
{
	s->map.member_count = 0;
}
static void shards_odd(struct sample *s)
{
	s->map.shards = 63;
	s->map.move_count = 1;
}

static void test_promises(void **state)
{
	static void (*const breaks[])(struct sample *) = {
		too_old,    too_new,       taken_late,   owner_unknown,  owner_left,
		move_twice, move_back,     move_to_left, move_of_nobody, name_twice,
		name_bad,   name_none,     number_twice, number_none,    weight_large,
		no_address, address_empty, no_epoch,     no_member,      shards_odd,
	};
	struct cluster_map *map = NULL;
	uint8_t buffer[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(breaks) / sizeof(breaks[0]); i++) {
		struct sample s;
		size_t bytes;

		make(&s);
		breaks[i](&s);
		bytes = encode(&s, buffer, sizeof(buffer));
		err_clear();
		assert_int_equal(cluster_wire_decode(buffer, bytes, &map), -TARN_EPROTO);
		assert_null(strstr(err_text(), "checksum"));
		assert_non_null(strstr(err_text(), "cluster's map"));
	}
	assert_null(map);
}

static void test_another_format(void **state)
{
	struct cluster_map *map = NULL;
	uint8_t buffer[4096];
	struct sample s;
	uint64_t sum;
	size_t bytes;

	(void)state;
	make(&s);
	bytes = encode(&s, buffer, sizeof(buffer));
	buffer[4] = 2;
	sum = XXH3_64bits(buffer, bytes - 8);
	for (unsigned i = 0; i < 8; i++)
		buffer[bytes - 8 + i] = (uint8_t)(sum >> (8 * i));
	assert_int_equal(cluster_wire_decode(buffer, bytes, &map), -TARN_EPROTO);
	assert_non_null(strstr(err_text(), "upgrade"));
}

static void test_too_large(void **state)
{
	uint8_t buffer[4096];
	struct sample s;
	size_t bytes = 7;

	(void)state;
	make(&s);
	assert_int_equal(
		cluster_wire_encode(&s.map, buffer, cluster_wire_bytes(&s.map) - 1, &bytes),
		-E2BIG);
	assert_non_null(strstr(err_text(), "c1"));
	assert_int_equal(bytes, 7);
}

static void test_hash(void **state)
{
	(void)state;
	assert_int_not_equal(cluster_hash("a"), cluster_hash("b"));
	assert_int_not_equal(cluster_hash(""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_cut_and_changed),
		cmocka_unit_test(test_promises),
		cmocka_unit_test(test_another_format),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
