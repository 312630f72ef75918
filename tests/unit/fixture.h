/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fixture.h - a pool in this process's memory and sessions on it, for tests of the client's parts
 *
 * No daemon: the test itself raises the epoch, and RPCs fail with -EOPNOTSUPP.
 */
#ifndef TARN_TEST_FIXTURE_H
#define TARN_TEST_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc.h"
#include "atomics.h"
#include "err.h"
#include "kv.h"
#include "session.h"

struct fixture {
	void *base;
	uint64_t bytes;
	struct layout_geometry geometry;
	uint32_t clients;
};

static inline struct layout_plan fixture_plan(uint64_t bytes)
{
	return (struct layout_plan){
		.pool_bytes = bytes,
		.max_clients = 16,
		.deadline_ns = 100000000,
		.epoch_ns = 250000000,
		.grace_ns = 500000000,
		.max_value_bytes = 1u << 30,
		.hash_seed = 42,
		.incarnation = 1,
		.boot_id = 2,
	};
}

/* Returns 0, or what made the pool impossible. */
static inline int fixture_create(struct fixture *f, const struct layout_plan *plan)
{
	int ret;

	f->bytes = plan->pool_bytes;
	f->clients = 0;
	f->base = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f->base == MAP_FAILED)
		return -1;
	ret = layout_format(f->base, plan);
	return ret < 0 ? ret : layout_superblock_check(f->base, f->bytes, &f->geometry);
}

static inline void fixture_destroy(struct fixture *f)
{
	munmap(f->base, f->bytes);
}

static inline struct tarn_session *fixture_session(struct fixture *f, uint32_t flags)
{
	struct session_identity identity = {.client_id = f->clients + 1,
					    .client_slot = f->clients,
					    .read_only = flags & TARN_READONLY};
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct fabric_endpoint *ep;
	struct tarn_session *s = NULL;

	f->clients++;
	options.flags = flags;
	options.cache_bytes = 1u << 16;
	options.timeout_ms = 1000;
	if (fabric_shm_attach(f->base, f->bytes, flags & TARN_READONLY, &ep) < 0 ||
	    session_create(ep, &f->geometry, &identity, &options, &s) < 0)
		abort();
	return s;
}

static inline uint64_t *fixture_word(struct fixture *f, uint64_t offset)
{
	return (uint64_t *)((uint8_t *)f->base + offset);
}

/* The daemon's clock. */
static inline void fixture_epoch(struct fixture *f, uint64_t more)
{
	word_faa(fixture_word(f, LAYOUT_EPOCH_OFFSET), more);
}

/* The slot that holds a key, found the slow way; 0: none. */
static inline uint64_t fixture_slot(struct fixture *f, const void *key, size_t bytes)
{
	const struct layout_geometry *g = &f->geometry;
	struct layout_hash h = layout_hash_key(key, bytes, g->hash_seed);
	uint64_t depth = *fixture_word(f, LAYOUT_GLOBAL_DEPTH_OFFSET);
	uint64_t entry = *fixture_word(
		f,
		layout_directory_offset(g, layout_suffix(layout_hash_suffix(h), (uint32_t)depth)));
	unsigned p, i;

	for (p = 0; p < 2; p++) {
		uint64_t pair = layout_page_offset(g, layout_directory_page(entry)) +
				layout_hash_pair(h, p, g->groups);

		for (i = 0; i < 16; i++) {
			uint64_t word = *fixture_word(f, pair + 8ull * i);
			const struct layout_block *block;

			if (i % 8 == 0 || layout_slot_state(word) != LAYOUT_SLOT_COMMITTED ||
			    layout_slot_fp(word) != layout_hash_fp(h))
				continue;
			block = (const struct layout_block *)((uint8_t *)f->base +
							      layout_slot_offset(word));
			if (block->key_length == bytes &&
			    !memcmp(layout_block_key(block), key, bytes))
				return pair + 8ull * i;
		}
	}
	return 0;
}

#endif
