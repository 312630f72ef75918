/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-read.c - reads a key's block, and its large value piece by piece; see shard-read.h
 *
 * The thread of a mover, beside everybody who writes to the pool. Next: shard-copy.c.
 */
#include "shard-read.h"

#include <errno.h>
#include <stdlib.h>

#include "blocks.h"
#include "err.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"
#include "shard.h"

static bool same_block(uint64_t a, uint64_t b)
{
	return layout_slot_with_state(a, LAYOUT_SLOT_COMMITTED) ==
	       layout_slot_with_state(b, LAYOUT_SLOT_COMMITTED);
}

/* Does the slot name its block still? Frozen or thawed meanwhile, it does. All that was read before is whole then. */
static bool unchanged(const struct pool *pool, uint64_t slot, uint64_t word)
{
	uint64_t now;

	/* acquire: what was read relaxed was read before */
	atomic_thread_fence(memory_order_acquire);
	now = self_load(pool, slot);
	return same_block(now, word) && (layout_slot_state(now) == LAYOUT_SLOT_COMMITTED ||
					 layout_slot_state(now) == LAYOUT_SLOT_FROZEN);
}

static enum shard_read value_reserve(struct shard_reader *r, struct shard_item *item, uint64_t bytes)
{
	if (r->held && r->held + bytes > r->room)
		return SHARD_READ_NO_ROOM;
	item->value = malloc(bytes);
	if (!item->value) {
		err_set(-ENOMEM, "no memory for a value of %llu bytes that is to be copied",
			(unsigned long long)bytes);
		return SHARD_READ_FAILED;
	}
	item->value_bytes = bytes;
	r->held += bytes;
	return SHARD_READ_KEY;
}

void shard_item_clear(struct shard_reader *r, struct shard_item *item)
{
	free(item->value);
	r->held -= item->value_bytes;
	item->value = NULL;
	item->value_bytes = 0;
}

/* A large value, piece by piece. False: one of them is not what the list says. */
static bool read_extents(const struct shard_reader *r, struct shard_item *item)
{
	const struct layout_block *block = (const struct layout_block *)item->image;
	const struct layout_extent *list = layout_block_value(block);
	uint64_t count = layout_extents(block->value_length);

	for (uint64_t i = 0; i < count; i++) {
		uint64_t begin = i * LAYOUT_PAGE_BYTES, rest = block->value_length - begin;
		uint64_t length = rest < LAYOUT_PAGE_BYTES ? rest : LAYOUT_PAGE_BYTES;
		uint64_t offset = layout_slot_offset(list[i].where);
		uint32_t class = layout_slot_class(list[i].where);

		if (!layout_block_place_valid(&r->pool->geometry, offset, class) ||
		    layout_pad8(length) > layout_class_bytes(class))
			return false;
		self_read(r->pool, offset, item->value + begin, layout_pad8(length));
		if (layout_extent_checksum(item->value + begin, length, offset) != list[i].checksum)
			return false;
	}
	return true;
}

static uint64_t remaining_ms(const struct shard_reader *r, uint64_t epoch, uint64_t expiry)
{
	uint64_t us = (expiry - epoch) * (r->pool->geometry.epoch_ns / 1000);

	return us / 1000 + 1;
}

/* The copy of the block is whole: what is to be put. */
static void put_fill(const struct shard_reader *r, struct shard_item *item)
{
	const struct layout_block *block = (const struct layout_block *)item->image;

	item->job.put = (struct shard_put){
		.key = layout_block_key(block),
		.key_bytes = block->key_length,
		.value = item->value ? item->value : layout_block_value(block),
		.value_bytes = block->value_length,
		.counter = block->kind == LAYOUT_KIND_COUNTER,
		.user_flags = block->user_flags,
		.owner = block->owner,
		.stamp = block->stamp,
		.expiry_ms = block->expiry && !MUTATED(MUTATION_NOTTL)
				     ? remaining_ms(r, item->epoch, block->expiry)
				     : 0,
	};
}

static enum shard_read read_large(struct shard_reader *r, struct shard_item *item)
{
	const struct layout_block *block = (const struct layout_block *)item->image;
	enum shard_read got = value_reserve(r, item, layout_pad8(block->value_length));

	if (got != SHARD_READ_KEY)
		return got;
	return read_extents(r, item) ? SHARD_READ_KEY : SHARD_READ_DAMAGED;
}

static enum shard_read read_block(struct shard_reader *r, uint64_t slot, struct shard_item *item)
{
	const struct layout_block *block = (const struct layout_block *)item->image;
	uint32_t class_bytes = layout_class_bytes(layout_slot_class(item->word));
	uint64_t offset = layout_slot_offset(item->word);
	enum shard_read got = SHARD_READ_KEY;
	struct layout_block header;
	struct layout_hash hash;

	switch (blocks_header(r->blocks, slot, item->word, &header)) {
	case BLOCKS_DONE:
		break;
	case BLOCKS_CHANGED:
		return SHARD_READ_CHANGED;
	case BLOCKS_DAMAGED:
		return SHARD_READ_DAMAGED;
	}
	self_read(r->pool, offset, item->image,
		  layout_pad8(layout_block_bytes(header.kind, header.key_length,
						 header.value_length)));
	/* the copy is checked, and nothing else used */
	if (!layout_block_valid(block, class_bytes, offset) || block->kind != header.kind ||
	    (block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(item->word))
		return SHARD_READ_DAMAGED;
	hash = layout_hash_key(layout_block_key(block), block->key_length,
			       r->pool->geometry.hash_seed);
	if (!r->wanted[shard_of(hash, r->pool->geometry.shards)] ||
	    (block->expiry && item->epoch >= block->expiry))
		return SHARD_READ_OTHER;
	item->job.hash = hash.high;
	if (block->kind == LAYOUT_KIND_EXTENTS)
		got = read_large(r, item);
	if (got == SHARD_READ_KEY)
		put_fill(r, item);
	return got;
}

enum shard_read shard_read(struct shard_reader *r, uint64_t slot, uint64_t word, uint64_t epoch,
			   struct shard_item *item)
{
	enum shard_read got;

	item->word = word;
	item->epoch = epoch;
	got = read_block(r, slot, item);
	if (got != SHARD_READ_FAILED && got != SHARD_READ_NO_ROOM &&
	    !unchanged(r->pool, slot, word))
		got = SHARD_READ_CHANGED;
	if (got != SHARD_READ_KEY)
		shard_item_clear(r, item);
	return got;
}
