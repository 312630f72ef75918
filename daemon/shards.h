/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shards.h - the shards of a cluster that a pool has: their words, and walks over their slots
 *
 * A part of the keeper (keeper.h) in pools of a cluster. docs/protocol.md section 11. Decides nothing: a
 * hand-over's steps (handover.h) say what a word becomes and which walk is made. Main thread.
 *
 * The subtables that a job walks over do not split meanwhile, nor do those with a shard that is closing; a split that
 * is under way in one of them is waited for.
 */
#ifndef TARN_DAEMON_SHARDS_H
#define TARN_DAEMON_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper.h"
#include "shard.h"

struct pool;
struct shards;

enum shards_job {
	SHARDS_EMPTY,  /* every slot of the shards -> empty, whatever its state; blocks are retired */
	SHARDS_FREEZE, /* pending -> killed, committed -> frozen; their words are "closing" */
	SHARDS_THAW,   /* frozen -> committed */
	SHARDS_COUNT,  /* nothing is changed: shards_keys() */
};

/* Sets all words to "gone". 0 or -ENOMEM. */
int shards_create(struct pool *pool, struct shards **ret_shards);
/* Jobs that are under way are dropped, without a call of `done`. */
void shards_free(struct shards *shards);

/*
 * Sets a shard's word. Who reads it behind this call finds it, and who has a slot pending by then was seen pending
 * by a job that begins afterwards. The epoch: since when this member has the shard; of "incoming": of the map
 * in which the move to here has begun.
 */
void shards_set(struct shards *shards, uint32_t shard, enum shard_state state, uint64_t epoch);
uint64_t shards_word(const struct shards *shards, uint32_t shard);
/* Fencing: all words "gone", at once, under the epochs that they had. Jobs go on. */
void shards_gone(struct shards *shards);

/*
 * A walk over all slots of these shards, behind the jobs that are under way; several shards in one walk. `done` is
 * called on the main thread, never from within this call. 0 or -ENOMEM with a text.
 */
int shards_begin(struct shards *shards, enum shards_job job, const uint32_t *shard, unsigned count,
		 void (*done)(void *arg), void *arg);
/* Keys (committed and frozen slots) of a shard that the last SHARDS_COUNT has found. */
uint64_t shards_keys(const struct shards *shards, uint32_t shard);

struct shards_stats {
	uint64_t open, closing, gone, incoming; /* shards by their words */
	uint64_t jobs;                          /* done */
	uint32_t waiting;                       /* under way, or behind that */
	uint64_t killed, frozen, thawed, emptied; /* slots */
	uint64_t damaged; /* slots that name no key, and stay as they were */
};
void shards_get_stats(const struct shards *shards, struct shards_stats *ret_stats);

/* ---- for the keeper and grow.c ---- */

/* One bounded step; returns when the next one is due, in the clock of time->now_ns. */
uint64_t shards_step(struct shards *shards, const struct keeper_time *time);
/* A walk is under way: who hands shards over waits for its end, and clients may, too. */
bool shards_busy(const struct shards *shards);
/* When a step is due, as of now: a job may have been begun. */
uint64_t shards_due(const struct shards *shards);
/* May no split begin in this subtable? */
bool shards_hold(const struct shards *shards, uint32_t suffix, uint32_t depth);

#endif
