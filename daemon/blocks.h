/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * blocks.h - from a slot to its block and back, and taking a key out of the index
 *
 * For the parts of the keeper that empty slots themselves: expire.h and evict.h. Main thread.
 */
#ifndef TARN_DAEMON_BLOCKS_H
#define TARN_DAEMON_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

struct blocks;
struct pool;

enum blocks_result {
	BLOCKS_DONE,
	BLOCKS_CHANGED, /* the slot says something else by now */
	BLOCKS_DAMAGED, /* it does not, and what it names can not be */
};

/* NULL without memory. */
struct blocks *blocks_create(struct pool *pool);
void blocks_free(struct blocks *blocks);

/* The block that is named by a committed word will be looked at soon: its header comes nearer meanwhile. */
void blocks_hint(const struct blocks *blocks, uint64_t word);
/* The header of the block that is named by `word`, which was read from the slot at `slot`. */
enum blocks_result blocks_header(const struct blocks *blocks, uint64_t slot, uint64_t word,
				 struct layout_block *ret_header);
/*
 * The hash of the key in the block that is named by `word`. False: there can be none, or not with this word. Good only
 * if the slot still holds the word afterwards.
 */
bool blocks_hash(struct blocks *blocks, uint64_t word, struct layout_hash *ret_hash);
/*
 * The slot that names the block at this offset, by the key that stands in it. False: there is none,
 * or none that may be emptied now (pending, frozen), or what stands there is no block of the class.
 */
bool blocks_find(struct blocks *blocks, uint64_t offset, uint32_t class, uint64_t *ret_slot,
		 uint64_t *ret_word);
/*
 * Empties a slot that holds the committed or frozen `word`, and retires its block and that one's extents.
 * `check`: only if the checksum is right (else only a large value's, whose list is believed).
 * *ret_bytes: the memory that was retired.
 */
enum blocks_result blocks_remove(struct blocks *blocks, uint64_t slot, uint64_t word, bool check,
				 uint64_t *ret_bytes);

/* What a key takes of a quota: bytes of key and value. */
static inline uint64_t blocks_stored_bytes(const struct layout_block *header)
{
	return header->key_length + header->value_length;
}

#endif
