/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-shard-copy.c - libFuzzer target: the copier of shards between two pools full of garbage
 *
 * The source's memory, which its clients can write to, or the target's, which its own can, is damaged as the input says, in front of the
 * first pass and of the second one. The copy may be given up or leave keys out; it must not crash, hang, or read outside of the pools, which
 * the address sanitizer sees to. Without damage the target has every key of the shards.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/fixture.h"

#include "pool.h"
#include "shard-copy.h"
#include "shard.h"

#define POOL_BYTES (4ull << 20)
#define KEYS       40u
#define SHARDS     64u
#define STEPS      20000u /* of a pass; one without damage takes some hundred */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A clock that runs by being looked at: retries up to the time limit take no time. */
static uint64_t fast_now(struct fabric_endpoint *ep)
{
	static uint64_t now = 1000000000;

	(void)ep;
	return now += 20000;
}

static struct tarn_session *fast_session(struct fixture *f)
{
	static struct fabric_ops ops;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD | TARN_NO_CACHE);

	ops = *s->ep->ops;
	ops.now = fast_now;
	s->ep->ops = &ops;
	s->timeout_ns = 100000000;
	return s;
}

static void fill(struct tarn_session *s)
{
	static uint8_t large[300000];

	for (uint32_t i = 0; i < KEYS; i++)
		if (tarn_put(s, &i, 4, "value of the key", 16, NULL, NULL) < 0)
			abort();
	if (tarn_put(s, "large", 5, large, sizeof(large), NULL, NULL) < 0 ||
	    tarn_add(s, "counter", 7, 1, NULL) < 0)
		abort();
}

/* 12 bytes of input: 4 say where, 8 what. Index, blocks, directory and page table come first, then anything. */
static void damage(struct fixture *f, const uint8_t *data, size_t bytes)
{
	const struct layout_geometry *g = &f->geometry;
	const uint64_t begins[] = {layout_page_offset(g, 0), g->directory_offset, layout_page_offset(g, 1),
				   g->page_table_offset,     LAYOUT_EPOCH_OFFSET, layout_page_offset(g, 0),
				   g->ready_rings_offset,    0};
	const uint64_t lengths[] = {g->groups * LAYOUT_GROUP_BYTES, 64,  LAYOUT_PAGE_BYTES, 8ull * g->npages, 8,
				    g->groups * LAYOUT_GROUP_BYTES, 4096, f->bytes};

	for (; bytes >= 12; data += 12, bytes -= 12) {
		uint64_t value, at;
		uint32_t where;

		memcpy(&where, data, 4);
		memcpy(&value, data + 4, 8);
		at = begins[where % 8] + (where / 8 * 8ull) % lengths[where % 8];
		if (at + 8 <= f->bytes)
			memcpy((uint8_t *)f->base + at / 8 * 8, &value, 8);
	}
}

static int run_pass(struct shard_copy *copy)
{
	for (unsigned i = 0; i < STEPS; i++) {
		uint64_t until;
		int ret = shard_copy_next(copy, SHARD_COPY_AT_ONCE, &until);

		if (ret <= 0)
			return ret;
	}
	return -TARN_ETIMEOUT;
}

/* Every other shard. Both pools have the same seed. */
static unsigned copy_shards(struct fixture *source, struct fixture *target, const uint8_t *data, size_t bytes)
{
	struct pool pool = {.memory = {.base = source->base, .bytes = source->bytes},
			    .geometry = source->geometry};
	struct fixture *victim = bytes && data[0] % 4 == 0 ? target : source;
	struct tarn_session *mover = fast_session(target);
	size_t first = bytes / 24 * 12;
	uint32_t shards[SHARDS / 2];
	struct shard_copy_stats stats;
	struct shard_copy *copy;
	int ret;

	for (unsigned i = 0; i < SHARDS / 2; i++)
		shards[i] = 2 * i;
	if (shard_copy_create(&pool, shards, SHARDS / 2, mover, &copy) < 0)
		abort();
	damage(victim, data, first);
	ret = run_pass(copy);
	if (ret == 0) {
		damage(victim, data + first, bytes - first);
		shard_copy_bring(copy);
		ret = run_pass(copy);
	}
	if (ret < 0 && bytes < 12)
		abort();
	shard_copy_get_stats(copy, &stats);
	shard_copy_free(copy);
	session_free(mover);
	return (unsigned)stats.keys;
}

static unsigned keys_of_shards(const struct fixture *f)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < KEYS; i++)
		count += shard_of(layout_hash_key(&i, 4, f->geometry.hash_seed), SHARDS) % 2 == 0;
	count += shard_of(layout_hash_key("large", 5, f->geometry.hash_seed), SHARDS) % 2 == 0;
	return count + (shard_of(layout_hash_key("counter", 7, f->geometry.hash_seed), SHARDS) % 2 == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct layout_plan plan = fixture_plan(POOL_BYTES);
	struct fixture source, target;
	struct tarn_session *s;
	unsigned copied;

	plan.groups = 4;
	plan.keys = 1;
	plan.shards = SHARDS;
	plan.map_bytes = 4096;
	if (fixture_create(&source, &plan) < 0 || fixture_create(&target, &plan) < 0)
		abort();
	s = fast_session(&source);
	fill(s);
	copied = copy_shards(&source, &target, data, bytes);
	if (bytes < 12 && copied != keys_of_shards(&source))
		abort();
	session_free(s);
	fixture_destroy(&source);
	fixture_destroy(&target);
	return 0;
}
