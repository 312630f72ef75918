/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the subtables of some shards in a pool's directory; see shard-walk.h. Any thread: it reads, and owns nothing
 * but its place. What it reads is checked before it is used. Next: shards.c and shard-copy.c, which use it.
 */
#include "blocks.h"
#include "pool.h"
#include "self.h"
#include "shard-walk.h"
#include "shard.h"

void shard_walk_begin(struct shard_walk *w, const struct pool *pool, const uint32_t *list,
		      unsigned count)
{
	uint64_t depth = self_load(pool, LAYOUT_GLOBAL_DEPTH_OFFSET);

	*w = (struct shard_walk){.pool = pool, .list = list, .count = count};
	w->global_depth = depth < pool->geometry.max_depth ? (uint32_t)depth
							    : pool->geometry.max_depth;
}

bool shard_walk_has(const uint32_t *list, unsigned count, uint32_t shards, uint32_t suffix,
		    uint32_t depth)
{
	for (unsigned i = 0; i < count; i++)
		if (shard_in_subtable(list[i], shards, suffix, depth))
			return true;
	return false;
}

/* All shards that the subtable can have keys of; the list has each shard once. */
static bool is_whole(const struct shard_walk *w)
{
	uint32_t shards = w->pool->geometry.shards, found = 0;

	for (unsigned i = 0; i < w->count; i++)
		found += shard_in_subtable(w->list[i], shards, w->suffix, w->depth);
	return found == shards / (shard_bits_of(w->depth, shards) + 1);
}

/*
 * The directory's indices that a shard can be at: any first bits, then the shard's, then any others. A small directory does
 * not have all of the shard's bits. False: there are no more.
 */
static bool nth_index(const struct shard_walk *w, uint64_t *ret_index)
{
	uint64_t low = w->nth & ((1u << SHARD_SHIFT) - 1), high = w->nth >> SHARD_SHIFT;
	uint64_t index = low | (uint64_t)w->list[w->at] << SHARD_SHIFT |
			 (high * w->pool->geometry.shards) << SHARD_SHIFT;

	if (high > 0) {
		*ret_index = index;
		return index < 1ull << w->global_depth;
	}
	*ret_index = layout_suffix((uint32_t)index, w->global_depth);
	return w->global_depth >= SHARD_SHIFT || low < 1ull << w->global_depth;
}

/* Has the walk come to a subtable, for the first time? */
static bool arrive(struct shard_walk *w, uint64_t index)
{
	const struct layout_geometry *g = &w->pool->geometry;
	uint64_t entry = self_load(w->pool, layout_directory_offset(g, index));
	uint32_t bits;

	w->page = layout_directory_page(entry);
	w->depth = layout_directory_depth(entry);
	w->suffix = layout_suffix((uint32_t)index, w->depth);
	if (layout_directory_state(entry) != LAYOUT_DIRECTORY_VALID || w->page >= g->npages ||
	    w->depth > w->global_depth ||
	    layout_page_state(pool_load_page_word(w->pool, w->page)) != LAYOUT_PAGE_INDEX)
		return false;
	/* the first index of the shard that leads to it, and no earlier shard of the list has led there */
	bits = ((1u << w->depth) - 1) | (g->shards - 1) << SHARD_SHIFT;
	if ((index & ~(uint64_t)bits) != 0 ||
	    shard_walk_has(w->list, w->at, g->shards, w->suffix, w->depth))
		return false;
	w->whole = is_whole(w);
	return true;
}

enum shard_walk_next shard_walk_next(struct shard_walk *w)
{
	uint64_t index;

	if (w->at == w->count)
		return SHARD_WALK_END;
	if (!nth_index(w, &index)) {
		w->at++;
		w->nth = 0;
		return SHARD_WALK_NONE;
	}
	w->nth++;
	return arrive(w, index) ? SHARD_WALK_SUBTABLE : SHARD_WALK_NONE;
}

/* Where a subtable is of one shard no block need be read. */
bool shard_walk_shard(const struct shard_walk *w, struct blocks *blocks, uint64_t word,
		      uint32_t *ret_shard)
{
	uint32_t shards = w->pool->geometry.shards;
	struct layout_hash hash;

	if (shard_bits_of(w->depth, shards) == shards - 1) {
		*ret_shard = w->suffix >> SHARD_SHIFT & (shards - 1);
		return true;
	}
	if (!blocks_hash(blocks, word, &hash))
		return false;
	*ret_shard = shard_of(hash, shards);
	return true;
}

void shard_walk_hint(const struct shard_walk *w, const struct blocks *blocks, uint64_t bucket)
{
	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t word = self_load(w->pool, bucket + 8ull * i);

		if (layout_slot_state(word) == LAYOUT_SLOT_COMMITTED ||
		    layout_slot_state(word) == LAYOUT_SLOT_FROZEN)
			blocks_hint(blocks, word);
	}
}
