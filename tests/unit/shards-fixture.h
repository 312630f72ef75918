/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member's pool whose time is the test's, with tiny subtables, so that a shard's keys lie in several, and one subtable's keys are
 * of several shards; the daemon's and the client's real code. Keys are "key" and a number.
 */
#ifndef TARN_TESTS_SHARDS_FIXTURE_H
#define TARN_TESTS_SHARDS_FIXTURE_H

#include "keeper-fixture.h"

#include <errno.h>

#include "kv.h"
#include "shard-put.h"
#include "shards.h"

#define SHARDS 64u
#define KEYS   600u
#define EPOCH  5u

struct world {
	struct kept k;
	struct shards *shards;
	unsigned done;
};

/* ---- a world --------------------------------------------------------------------------------- */

static inline struct layout_plan plan_of(const struct pool *pool, uint32_t groups, uint64_t keys)
{
	return (struct layout_plan){
		.pool_bytes = pool->memory.bytes,
		.keys = keys,
		.groups = groups,
		.max_clients = 8,
		.deadline_ns = 100 * MS,
		.epoch_ns = 250 * MS,
		.grace_ns = 500 * MS,
		.max_value_bytes = 1u << 20,
		.hash_seed = 7,
		.incarnation = 1,
		.boot_id = 1,
		.shards = SHARDS,
		.map_bytes = 4096,
	};
}

/* The pool of the fixture once more, as one of a cluster. */
static inline void open_sized(struct world *w, const char *size, uint32_t groups, uint64_t keys)
{
	struct layout_plan plan;
	struct pool *pool;

	memset(w, 0, sizeof(*w));
	fixture_open_sized(&w->k.f, size, "");
	pool = w->k.pool = w->k.f.pool;
	plan = plan_of(pool, groups, keys);
	keeper_free(pool->keeper);
	fixture_clear(pool);
	assert_int_equal(layout_format(pool->memory.base, &plan), 0);
	assert_int_equal(layout_superblock_check((const void *)pool->memory.base,
						 pool->memory.bytes, &pool->geometry),
			 0);
	assert_int_equal(keeper_create(pool, pool->log, &pool->keeper), 0);
	w->shards = keeper_shards(pool->keeper);
	assert_non_null(w->shards);
	w->k.now = clock_now_ns() + 3600000 * MS;
	keeper_step(pool->keeper, w->k.now);
	w->k.session = kept_session(&w->k, "");
}

static inline void open_world(struct world *w, uint32_t groups, uint64_t keys)
{
	open_sized(w, "8M", groups, keys);
}

static inline void set_all(struct world *w, enum shard_state state)
{
	for (uint32_t i = 0; i < SHARDS; i++)
		shards_set(w->shards, i, state, EPOCH);
}

static inline uint32_t shard_of_number(const struct world *w, unsigned number)
{
	char key[16];
	int n = snprintf(key, sizeof(key), "key%u", number);

	return shard_of(layout_hash_key(key, (size_t)n, w->k.pool->geometry.hash_seed), SHARDS);
}

/* Puts it, however long the index takes to grow. */
static inline void put(struct world *w, unsigned number)
{
	for (unsigned tries = 0; kept_put(w->k.session, number, 5, 0) < 0; tries++) {
		assert_true(tries < 200);
		kept_pass(&w->k, 50);
	}
}

static inline int put_frozen(struct world *w, unsigned number, char fill)
{
	char key[16], value[8];
	struct shard_put p = {.key = key, .value = value, .value_bytes = 8};

	p.key_bytes = (size_t)snprintf(key, sizeof(key), "key%u", number);
	memset(value, fill, sizeof(value));
	p.stamp = (77ull << 32) + number;
	p.user_flags = number;
	p.owner = 13;
	return session_run(w->k.session, shard_put(w->k.session->op, &p));
}

static inline int delete_placed(struct world *w, uint64_t word, unsigned number)
{
	char key[16];
	int n = snprintf(key, sizeof(key), "key%u", number);
	struct layout_hash hash = layout_hash_key(key, (size_t)n, w->k.pool->geometry.hash_seed);

	return session_run(w->k.session, shard_delete(w->k.session->op, word, hash.high));
}

static inline void done(void *arg)
{
	struct world *w = arg;

	w->done++;
}

static inline void run_job(struct world *w, enum shards_job job, const uint32_t *list, unsigned count)
{
	unsigned before = w->done;

	assert_int_equal(shards_begin(w->shards, job, list, count, done, w), 0);
	assert_int_equal(w->done, before);
	for (unsigned i = 0; w->done == before; i++) {
		assert_true(i < 1000);
		kept_pass(&w->k, 5);
	}
	assert_int_equal(w->done, before + 1);
}

static inline void run_all(struct world *w, enum shards_job job)
{
	uint32_t list[SHARDS];

	for (uint32_t i = 0; i < SHARDS; i++)
		list[i] = i;
	run_job(w, job, list, SHARDS);
}

/* Slots of a key, by state; and of all keys, `number` UINT_MAX. */
struct slots {
	unsigned states[8];
	uint64_t where; /* one of them */
};

static inline struct slots slots_of(struct world *w, unsigned number)
{
	const struct layout_geometry *g = &w->k.pool->geometry;
	struct slots found = {0};
	char key[16];
	int n = snprintf(key, sizeof(key), "key%u", number);

	for (uint32_t page = 0; page < g->npages; page++) {
		if (layout_page_state(pool_load_page_word(w->k.pool, page)) != LAYOUT_PAGE_INDEX)
			continue;
		for (uint32_t i = 0; i < 3 * g->groups * 8; i++) {
			uint64_t offset = layout_page_offset(g, page) + 8ull * i;
			uint64_t word = self_load(w->k.pool, offset);
			const struct layout_block *block;

			if (i % 8 == 0)
				continue;
			block = (const void *)(w->k.pool->memory.base + layout_slot_offset(word));
			if (number != UINT32_MAX && (word == 0 || layout_slot_offset(word) == 0 ||
						     block->key_length != n ||
						     memcmp(layout_block_key(block), key, (size_t)n)))
				continue;
			found.states[layout_slot_state(word)]++;
			found.where = offset;
		}
	}
	return found;
}

static inline void expect_state(struct world *w, unsigned number, enum layout_slot_state state)
{
	struct slots s = slots_of(w, number);

	for (unsigned i = LAYOUT_SLOT_PENDING; i <= LAYOUT_SLOT_FROZEN; i++)
		if (s.states[i] != (i == (unsigned)state))
			fail_msg("key%u has %u slots of state %u", number, s.states[i], i);
}

#endif
