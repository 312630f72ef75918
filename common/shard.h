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
	SHARD_INCOMING = 3, /* the copy is being made here; its epoch is the one in which the move began */
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

/* This member has the shard since `since`, and has not heard of that: a moment later it has. */
static inline bool shard_word_comes(uint64_t word, uint64_t since)
{
	return shard_word_state(word) == SHARD_INCOMING && shard_word_epoch(word) < since;
}

/* The first bits of the hash pick nothing of the shard. */
#define SHARD_SHIFT 4u

/* Which shard of so many (a power of two) a key is in. */
static inline uint32_t shard_of(struct layout_hash hash, uint32_t shards)
{
	return (uint32_t)(hash.low >> SHARD_SHIFT) & (shards - 1);
}

/* The bits of a shard's number that are the same for all keys of a subtable of this depth. */
static inline uint32_t shard_bits_of(uint32_t depth, uint32_t shards)
{
	uint32_t bits = depth > SHARD_SHIFT ? depth - SHARD_SHIFT : 0;

	return (bits < 32 ? (1u << bits) - 1 : UINT32_MAX) & (shards - 1);
}
/* Can a subtable have keys of this shard? */
static inline bool shard_in_subtable(uint32_t shard, uint32_t shards, uint32_t suffix,
				     uint32_t depth)
{
	return ((shard ^ suffix >> SHARD_SHIFT) & shard_bits_of(depth, shards)) == 0;
}

#endif
