/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Goes over all index pages; see sweep-walk.h. Main thread, called by sweep.c. A slot that changes
 * while we are here does no harm: what is put into it now comes from pages that were owned when the
 * candidates were noted, or have been since. Only a split moves what is there already from one slot
 * to another, and tells us of each (sweep_walk_moved). Blocks are not checked by their sums: a header
 * that lies can only keep blocks from being freed.
 */
#include <stdlib.h>

#include "candidates.h"
#include "clock.h"
#include "layout.h"
#include "pool.h"
#include "self.h"
#include "sweep-walk.h"

#define PENDINGS      4096u /* of the dead that are remembered; others have their turn in a later sweep */
#ifndef CLOCK_BUCKETS /* the simulation's pools have three */
#define CLOCK_BUCKETS 64u   /* buckets between two looks at the clock */
#endif
#define EXTENTS_READ  64u   /* entries of a list that are read at once */

struct pending {
	uint64_t offset; /* of the slot */
	uint64_t word;
};

struct sweep_walk {
	struct pool *pool;
	struct candidates *candidates;
	bool large;
	uint32_t page, bucket; /* goes on here */
	uint32_t pending_count;
	struct pending pendings[PENDINGS];
};

struct sweep_walk *sweep_walk_create(struct pool *pool)
{
	struct sweep_walk *walk = calloc(1, sizeof(*walk));

	if (walk)
		walk->pool = pool;
	return walk;
}

void sweep_walk_free(struct sweep_walk *walk)
{
	free(walk);
}

void sweep_walk_begin(struct sweep_walk *walk, struct candidates *candidates, bool large)
{
	walk->candidates = candidates;
	walk->large = large;
	walk->page = walk->bucket = 0;
	walk->pending_count = 0;
}

bool sweep_walk_pendings(const struct sweep_walk *walk)
{
	return walk->pending_count > 0;
}

/* ---- blocks ---- */

static bool is_client(const struct pool *pool, uint32_t client_id)
{
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		if (pool->clients[slot].state == LAYOUT_CLIENT_LIVE &&
		    (pool->clients[slot].client_id == client_id ||
		     pool->clients[slot].first_id == client_id))
			return true;
	return false;
}

static void read_header(const struct pool *pool, uint64_t offset, struct layout_block *ret_header)
{
	self_read(pool, offset, ret_header, sizeof(*ret_header));
}

static void strike(struct sweep_walk *walk, uint64_t where)
{
	uint64_t offset = layout_slot_offset(where);
	uint32_t class = layout_slot_class(where);

	if (layout_block_place_valid(&walk->pool->geometry, offset, class))
		candidates_strike(walk->candidates, offset, class);
}

/*
 * How many entries a list of extents has that may stand in this block; 0: it is none. The pool's
 * max_value may have been larger when it was written.
 */
static uint64_t extents_of(const struct layout_block *header, uint32_t class)
{
	if (header->kind != LAYOUT_KIND_EXTENTS || header->value_length > LAYOUT_MAX_VALUE_BYTES ||
	    layout_block_bytes(header->kind, header->key_length, header->value_length) >
		    layout_class_bytes(class))
		return 0;
	return layout_extents(header->value_length);
}

/* True if there was a list to be read. */
static bool strike_extents(struct sweep_walk *walk, uint64_t offset, uint32_t class)
{
	struct layout_extent list[EXTENTS_READ];
	struct layout_block header;
	uint64_t count, at;

	read_header(walk->pool, offset, &header);
	count = extents_of(&header, class);
	at = offset + layout_value_offset(header.key_length);
	for (uint64_t done = 0; done < count; done += EXTENTS_READ) {
		uint64_t some = count - done < EXTENTS_READ ? count - done : EXTENTS_READ;

		self_read(walk->pool, at + done * sizeof(*list), list, some * sizeof(*list));
		for (uint64_t i = 0; i < some; i++)
			strike(walk, list[i].where);
	}
	return count > 0;
}

/* ---- slots ---- */

/* Who has written the block is no live client: nobody will ever commit it. */
static bool of_the_dead(const struct pool *pool, uint64_t word)
{
	struct layout_block header;

	if (!layout_block_place_valid(&pool->geometry, layout_slot_offset(word),
				      layout_slot_class(word)))
		return true;
	read_header(pool, layout_slot_offset(word), &header);
	return !is_client(pool, (uint32_t)(header.stamp >> 32));
}

static void remember(struct sweep_walk *walk, uint64_t offset, uint64_t word)
{
	if (walk->pending_count < PENDINGS)
		walk->pendings[walk->pending_count++] = (struct pending){offset, word};
}

static bool reaches(uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	return state == LAYOUT_SLOT_PENDING || state == LAYOUT_SLOT_COMMITTED ||
	       state == LAYOUT_SLOT_FROZEN;
}

/*
 * Follows the word as it is now: the block that it names was written before it (acquire), and whatever
 * may have happened to the slot when the block is read, its extents are in that block as long as
 * anybody can find them. True if that took long.
 */
static bool follow(struct sweep_walk *walk, uint64_t offset)
{
	uint64_t word = self_load(walk->pool, offset);

	return reaches(word) &&
	       layout_block_place_valid(&walk->pool->geometry, layout_slot_offset(word),
					layout_slot_class(word)) &&
	       strike_extents(walk, layout_slot_offset(word), layout_slot_class(word));
}

/* True if that took long. */
static bool slot_step(struct sweep_walk *walk, uint64_t offset, uint64_t word)
{
	if (!reaches(word))
		return false;
	strike(walk, word);
	if (layout_slot_state(word) != LAYOUT_SLOT_PENDING)
		return walk->large && follow(walk, offset);
	if (of_the_dead(walk->pool, word))
		remember(walk, offset, word);
	if (walk->large)
		follow(walk, offset);
	return true;
}

void sweep_walk_moved(struct sweep_walk *walk, uint64_t word)
{
	strike(walk, word);
	/* Frozen where it comes from: nobody takes its block away meanwhile. */
	if (walk->large && layout_block_place_valid(&walk->pool->geometry, layout_slot_offset(word),
						    layout_slot_class(word)))
		strike_extents(walk, layout_slot_offset(word), layout_slot_class(word));
}

/* True if that took long. */
static bool bucket_step(struct sweep_walk *walk)
{
	uint64_t offset = layout_page_offset(&walk->pool->geometry, walk->page) +
			  (uint64_t)walk->bucket * LAYOUT_BUCKET_BYTES;
	struct layout_bucket bucket;
	bool long_one = false;

	self_read(walk->pool, offset, &bucket, sizeof(bucket));
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
		if (slot_step(walk, offset + 8 + 8ull * i, bucket.slots[i]))
			long_one = true;
	return long_one;
}

/* To the next bucket that belongs to the index; false: there is none. */
static bool on_index(struct sweep_walk *walk)
{
	const struct layout_geometry *g = &walk->pool->geometry;

	if (walk->bucket == 3 * g->groups) {
		walk->bucket = 0;
		walk->page++;
	}
	if (walk->bucket > 0)
		return true;
	while (walk->page < g->npages &&
	       layout_page_state(pool_load_page_word(walk->pool, walk->page)) != LAYOUT_PAGE_INDEX)
		walk->page++;
	return walk->page < g->npages;
}

bool sweep_walk_step(struct sweep_walk *walk, uint64_t budget_ns)
{
	uint64_t began = clock_now_ns();

	while (on_index(walk)) {
		bool long_one = bucket_step(walk);

		walk->bucket++;
		if ((long_one || walk->bucket % CLOCK_BUCKETS == 0) &&
		    clock_now_ns() - began >= budget_ns)
			return false;
	}
	return true;
}

static bool kill_pending(struct sweep_walk *walk, const struct pending *pending)
{
	return self_load(walk->pool, pending->offset) == pending->word &&
	       self_cas(walk->pool, pending->offset, pending->word, 0) == pending->word;
}

bool sweep_walk_kill(struct sweep_walk *walk, uint64_t budget_ns, uint64_t *killed)
{
	uint64_t began = clock_now_ns();

	while (walk->pending_count > 0) {
		if (kill_pending(walk, &walk->pendings[--walk->pending_count]))
			++*killed;
		if (clock_now_ns() - began >= budget_ns)
			break;
	}
	return walk->pending_count == 0;
}
