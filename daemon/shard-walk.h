/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-walk.h - the subtables in which some shards' keys lie, one after the other, each once
 *
 * Goes by the directory: docs/protocol.md section 11. What splits meanwhile may be left out or come twice; shards.h keeps
 * splits away where that matters. Reads the pool's memory alone: any thread.
 */
#ifndef TARN_DAEMON_SHARD_WALK_H
#define TARN_DAEMON_SHARD_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

struct blocks;
struct pool;

struct shard_walk {
	const struct pool *pool;
	const uint32_t *list; /* the shards; the caller's */
	unsigned count;
	uint32_t global_depth; /* of the directory when it began */
	/* the next index of the directory to be looked at: the nth that shard `at` of the list can be at */
	unsigned at;
	uint64_t nth;
	/* the subtable that it has come to; `whole`: it has keys of shards of the list alone */
	uint32_t page, suffix, depth;
	bool whole;
};

enum shard_walk_next {
	SHARD_WALK_SUBTABLE, /* it has come to one */
	SHARD_WALK_NONE,     /* not at this index: call it again */
	SHARD_WALK_END,
};

void shard_walk_begin(struct shard_walk *walk, const struct pool *pool, const uint32_t *list,
		      unsigned count);
/* Bounded: one index. */
enum shard_walk_next shard_walk_next(struct shard_walk *walk);

/* Can the subtable have keys of a shard of the list? */
bool shard_walk_has(const uint32_t *list, unsigned count, uint32_t shards, uint32_t suffix,
		    uint32_t depth);
/*
 * The shard of a slot's key in the subtable that the walk has come to. False: its block says nothing. Good only if the slot
 * still holds the word afterwards.
 */
bool shard_walk_shard(const struct shard_walk *walk, struct blocks *blocks, uint64_t word,
		      uint32_t *ret_shard);
/* The blocks of a bucket's keys will be looked at soon: they come nearer meanwhile. */
void shard_walk_hint(const struct shard_walk *walk, const struct blocks *blocks, uint64_t bucket);

#endif
