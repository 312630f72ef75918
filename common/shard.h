/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard.h - the words that say whose a shard is (docs/protocol.md, section 11)
 *
 * A pool of a cluster has one word per shard, at layout_shard_offset(). The daemon alone writes
 * them; clients READ them behind what they judge by them. Zero, as a new pool has it, is "gone".
 */
#ifndef TARN_SHARD_H
#define TARN_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

enum shard_state {
	SHARD_GONE = 0,     /* not the owner, or no longer: nothing may be believed */
	SHARD_OPEN = 1,     /* the owner */
	SHARD_CLOSING = 2,  /* hand-over: the slots are being frozen; may be read */
	SHARD_INCOMING = 3, /* the copy is being made here */
};

/* state:3 | epoch:61, from the lowest bit. The epoch: since when this member has the shard. */
static inline uint64_t shard_word_make(enum shard_state state, uint64_t epoch)
{
	return (uint64_t)state | epoch << 3;
}
static inline uint32_t shard_word_state(uint64_t word)
{
	return (uint32_t)(word & 7);
}
static inline uint64_t shard_word_epoch(uint64_t word)
{
	return word >> 3;
}

/* Of this epoch, and what is found may be believed: a miss, a frozen slot. */
static inline bool shard_word_readable(uint64_t word, uint64_t since)
{
	return word == shard_word_make(SHARD_OPEN, since) ||
	       word == shard_word_make(SHARD_CLOSING, since);
}
/* A new key may be inserted. */
static inline bool shard_word_writable(uint64_t word, uint64_t since)
{
	return word == shard_word_make(SHARD_OPEN, since);
}

/* Which shard of so many (a power of two) a key is in. */
static inline uint32_t shard_of(struct layout_hash hash, uint32_t shards)
{
	return (uint32_t)(hash.low >> 4) & (shards - 1);
}

#endif
