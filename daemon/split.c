/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Splits one subtable S into S and N while clients work on both; see split.h. Main thread, called by
 * grow.c. Every slot is moved in four CASes in a row, so that it is frozen for microseconds (in a
 * nic domain: some round trips of the device, and split-many.c goes ahead), readable at every
 * instant, and writable in at most one place. Next: docs/protocol.md section 8; client/kv-split.c.
 */
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "err.h"
#include "keeper.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"
#include "shard.h"
#include "split-internal.h"

/* What one call of a state's handler does at most. */
#define PAGES_AT_ONCE   4096u
#define ENTRIES_AT_ONCE 1024u
#define HEADERS_AT_ONCE 64u

#define HEAD_BYTES 128u /* of a block are read at once; longer keys are read again in full */

/* GO_ON: in split->state; PAUSE: not now. */
enum next { GO_ON, PAUSE };

int split_init(struct split *s, struct pool *pool)
{
	uint64_t depth = self_load(pool, LAYOUT_GLOBAL_DEPTH_OFFSET);

	if (depth > pool->geometry.max_depth)
		return err_set(-TARN_ECORRUPT, "the pool's global depth is %llu, its limit %u",
			       (unsigned long long)depth, pool->geometry.max_depth);
	memset(s, 0, sizeof(*s));
	s->pool = pool;
	s->state = SPLIT_NONE;
	s->global_depth = (uint32_t)depth;
	s->page_cursor = pool->geometry.npages;
	return 0;
}

static uint32_t buckets(const struct split *s)
{
	return 3 * s->pool->geometry.groups;
}

static uint64_t bucket_offset(const struct split *s, uint32_t page, uint64_t bucket)
{
	return layout_page_offset(&s->pool->geometry, page) + bucket * LAYOUT_BUCKET_BYTES;
}

static uint32_t new_suffix(const struct split *s)
{
	return s->suffix | 1u << s->depth;
}

static bool cas(struct split *s, uint64_t offset, uint64_t old, uint64_t new)
{
	return self_cas(s->pool, offset, old, new) == old;
}

static void enter(struct split *s, enum split_state state)
{
	s->state = state;
	s->cursor = s->ahead = 0;
}

/* ---- beginning ---- */

bool split_entry_valid(const struct split *s, uint64_t index, uint64_t entry)
{
	const struct pool *pool = s->pool;
	uint32_t page = layout_directory_page(entry), depth = layout_directory_depth(entry);
	uint64_t header;

	if (layout_directory_state(entry) != LAYOUT_DIRECTORY_VALID || depth > s->global_depth ||
	    page >= pool->geometry.npages ||
	    layout_page_state(pool_load_page_word(pool, page)) != LAYOUT_PAGE_INDEX)
		return false;
	header = self_load(pool, bucket_offset(s, page, 0));
	return layout_header_depth(header) == depth &&
	       layout_header_suffix(header) == layout_suffix((uint32_t)index, depth);
}

void split_begin(struct split *s, uint64_t index, uint64_t entry)
{
	s->depth = layout_directory_depth(entry);
	s->suffix = layout_suffix((uint32_t)index, s->depth);
	s->old_page = layout_directory_page(entry);
	enter(s, SPLIT_PAGE);
}

int split_resume(struct split *s, uint64_t index, uint64_t entry)
{
	uint32_t page = layout_directory_page(entry), depth = layout_directory_depth(entry);
	uint64_t old;

	if (depth == 0 || depth > s->global_depth || page >= s->pool->geometry.npages ||
	    !(index >> (depth - 1) & 1) ||
	    layout_page_state(pool_load_page_word(s->pool, page)) != LAYOUT_PAGE_INDEX)
		return err_set(-TARN_ECORRUPT,
			       "directory entry %llu of the pool is %016llx: of no split that can be",
			       (unsigned long long)index, (unsigned long long)entry);
	s->depth = depth - 1;
	s->suffix = layout_suffix((uint32_t)index, s->depth);
	s->new_page = page;
	old = self_load(s->pool, layout_directory_offset(&s->pool->geometry, s->suffix));
	s->old_page = layout_directory_page(old);
	if (s->old_page >= s->pool->geometry.npages || s->old_page == s->new_page ||
	    (layout_directory_depth(old) != s->depth && layout_directory_depth(old) != depth) ||
	    layout_page_state(pool_load_page_word(s->pool, s->old_page)) != LAYOUT_PAGE_INDEX)
		return err_set(
			-TARN_ECORRUPT,
			"directory entry %u of the pool is %016llx: not the old half of the "
			"split that entry %llu belongs to",
			s->suffix, (unsigned long long)old, (unsigned long long)index);
	enter(s, SPLIT_PUBLISH);
	return 0;
}

/* ---- a page for the new subtable ---- */

/* From the pool's end, far from the cursor by which clients look for theirs. */
static enum next find_page(struct split *s)
{
	uint32_t npages = s->pool->geometry.npages;

	for (uint32_t i = 0; i < PAGES_AT_ONCE; i++) {
		uint32_t page;
		uint64_t word;

		if (s->cursor++ == npages) {
			s->state = SPLIT_NO_PAGE;
			return PAUSE;
		}
		page = s->page_cursor = (s->page_cursor ? s->page_cursor : npages) - 1;
		word = pool_load_page_word(s->pool, page);
		if (layout_page_state(word) != LAYOUT_PAGE_FREE ||
		    !pool_cas_page_word(s->pool, page, word,
					layout_page_next(word, LAYOUT_PAGE_INDEX, 0, 0)))
			continue;
		s->new_page = page;
		enter(s, SPLIT_FORMAT);
		return GO_ON;
	}
	return GO_ON;
}

/* Nobody knows the page yet: plain stores, which the directory entry publishes. */
static enum next format(struct split *s)
{
	struct layout_bucket bucket = {
		.header = layout_header_make(new_suffix(s), s->depth + 1, LAYOUT_SPLIT_NEW, 0)};

	for (uint32_t i = 0; i < buckets(s); i++)
		self_write(s->pool, bucket_offset(s, s->new_page, i), &bucket, sizeof(bucket));
	enter(s, s->depth == s->global_depth ? SPLIT_DOUBLE : SPLIT_PUBLISH);
	return GO_ON;
}

/* ---- the directory: the daemon alone writes it ---- */

static enum next double_directory(struct split *s)
{
	const struct layout_geometry *g = &s->pool->geometry;
	uint64_t half = 1ull << s->global_depth;

	for (uint32_t i = 0; i < ENTRIES_AT_ONCE && s->cursor < half; i++, s->cursor++)
		self_store(s->pool, layout_directory_offset(g, half + s->cursor),
			   self_load(s->pool, layout_directory_offset(g, s->cursor)));
	if (s->cursor < half)
		return GO_ON;
	s->global_depth++;
	self_store(s->pool, LAYOUT_GLOBAL_DEPTH_OFFSET, s->global_depth);
	s->doublings++;
	enter(s, SPLIT_PUBLISH);
	return GO_ON;
}

/* How many entries one half of the split has. */
static uint64_t aliases(const struct split *s)
{
	return 1ull << (s->global_depth - s->depth - 1);
}

static void store_entry(struct split *s, uint32_t suffix, uint64_t alias, uint64_t entry)
{
	self_store(s->pool,
		   layout_directory_offset(&s->pool->geometry, suffix + (alias << (s->depth + 1))),
		   entry);
}

static enum next publish(struct split *s)
{
	uint64_t entry =
		layout_directory_make(s->new_page, s->depth + 1, LAYOUT_DIRECTORY_MIGRATING);

	for (uint32_t i = 0; i < ENTRIES_AT_ONCE && s->cursor < aliases(s); i++)
		store_entry(s, new_suffix(s), s->cursor++, entry);
	if (s->cursor == aliases(s))
		enter(s, MUTATED(MUTATION_SPLIT_FLAG) ? SPLIT_MOVE : SPLIT_FLAG);
	return GO_ON;
}

/* The old half first: as long as an entry is "migrating", a restart goes on here. */
static enum next finish_directory(struct split *s)
{
	uint32_t depth = s->depth + 1;

	for (uint32_t i = 0; i < ENTRIES_AT_ONCE && s->cursor < 2 * aliases(s); i++, s->cursor++) {
		if (s->cursor < aliases(s))
			store_entry(s, s->suffix, s->cursor,
				    layout_directory_make(s->old_page, depth,
							  LAYOUT_DIRECTORY_VALID));
		else
			store_entry(s, new_suffix(s), s->cursor - aliases(s),
				    layout_directory_make(s->new_page, depth,
							  LAYOUT_DIRECTORY_VALID));
	}
	if (s->cursor == 2 * aliases(s))
		enter(s, SPLIT_DONE);
	return GO_ON;
}

/* ---- headers ---- */

static bool header_is(uint64_t header, uint32_t suffix, uint32_t depth, enum layout_split split)
{
	return layout_header_suffix(header) == suffix && layout_header_depth(header) == depth &&
	       layout_header_split(header) == (uint32_t)split;
}

static uint64_t header_next(uint64_t header, uint32_t suffix, uint32_t depth,
			    enum layout_split split)
{
	return layout_header_make(suffix, depth, split, layout_header_version(header) + 1);
}

/* Has all of this bucket moved? */
bool split_bucket_done(const struct split *s, uint64_t bucket)
{
	return header_is(self_load(s->pool, bucket_offset(s, s->old_page, bucket)), s->suffix,
			 s->depth + 1, LAYOUT_SPLIT_NONE);
}

bool split_flag_change(const struct split *s, uint32_t page, uint64_t bucket,
		       struct self_change *ret_change)
{
	bool new = page == s->new_page;
	uint64_t offset = bucket_offset(s, page, bucket), header = self_load(s->pool, offset);
	uint32_t suffix = new ? new_suffix(s) : s->suffix, depth = s->depth + new;
	enum layout_split split = new ? LAYOUT_SPLIT_NEW : LAYOUT_SPLIT_OLD;

	if (header_is(header, suffix, depth, split))
		return false;
	*ret_change = (struct self_change){.offset = offset,
					   .compare = header,
					   .value = header_next(header, suffix, depth, split)};
	return true;
}

static bool flag_bucket(struct split *s, uint32_t page, uint64_t bucket)
{
	struct self_change change;

	return !split_flag_change(s, page, bucket, &change) ||
	       cas(s, change.offset, change.compare, change.value);
}

/*
 * By CAS, though nobody else writes headers: in the atomic domain each of them comes before our look
 * at the bucket's slots, so that an inserter who reads no flag behind its pending slot has one that
 * we see.
 */
static enum next flag(struct split *s)
{
	unsigned many = self_is_far(s->pool) ? split_flag_many(s, buckets(s)) : 0;

	s->cursor += many;
	if (s->pool->self_lost)
		return PAUSE;
	for (uint32_t i = many; i < HEADERS_AT_ONCE && s->cursor < buckets(s); i++, s->cursor++)
		if (!split_bucket_done(s, s->cursor) && (!flag_bucket(s, s->new_page, s->cursor) ||
						   !flag_bucket(s, s->old_page, s->cursor)))
			return PAUSE;
	if (s->cursor == buckets(s))
		enter(s, SPLIT_MOVE);
	return GO_ON;
}

/*
 * All of the bucket has moved. The old one first: who finds "filled" in the new one need not look in
 * the old one. Without that flag a READ that sees the slots as they were before the move and the header
 * as it is behind it would miss a key: grow.c takes it away when no such READ can be under way.
 */
static void finish_bucket(struct split *s, uint64_t bucket)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t offset = bucket_offset(s, i ? s->new_page : s->old_page, bucket);
		uint32_t suffix = i ? new_suffix(s) : s->suffix;
		enum layout_split split = i ? LAYOUT_SPLIT_FILLED : LAYOUT_SPLIT_NONE;
		uint64_t header = self_load(s->pool, offset);

		if (!header_is(header, suffix, s->depth + 1, split))
			self_store(s->pool, offset,
				   header_next(header, suffix, s->depth + 1, split));
	}
}

/* ---- whose is a slot ---- */

/* The hash of the key in a word's block; false when no key can be there. */
static bool read_hash(struct split *s, uint64_t word, struct layout_hash *ret_hash)
{
	const struct layout_geometry *g = &s->pool->geometry;
	uint64_t offset = layout_slot_offset(word);
	const struct layout_block *block = (const struct layout_block *)s->block;
	uint32_t class = layout_slot_class(word), bytes, length;

	if (!layout_block_place_valid(g, offset, class))
		return false;
	bytes = layout_class_bytes(class) < HEAD_BYTES ? layout_class_bytes(class) : HEAD_BYTES;
	self_read(s->pool, offset, s->block, bytes);
	length = block->key_length;
	if (length == 0 || LAYOUT_BLOCK_HEADER + length > layout_class_bytes(class))
		return false;
	if (LAYOUT_BLOCK_HEADER + length > bytes)
		self_read(s->pool, offset + LAYOUT_BLOCK_HEADER,
			  s->block + LAYOUT_BLOCK_HEADER / 8, layout_pad8(length));
	/* not block->key_length, which has just been read again or not */
	*ret_hash = layout_hash_key(layout_block_key(block), length, g->hash_seed);
	return true;
}

/*
 * Becomes a frozen slot of the key with s->hash writable when it has moved, or stays? In a cluster not if this member does
 * not own its shard: it may be a copy that somebody is still at work on. What we have frozen ourselves of such a
 * shard stays frozen, too: whoever opens the shard thaws it. (No split begins while a shard of its subtable is closing.)
 */
bool split_thaws(const struct split *s)
{
	const struct layout_geometry *g = &s->pool->geometry;
	uint32_t state;

	if (g->shards == 0)
		return true;
	state = shard_word_state(
		self_load(s->pool, layout_shard_offset(g, shard_of(s->hash, g->shards))));
	return state == SHARD_OPEN || state == SHARD_CLOSING;
}

/*
 * To which half does the key of this slot belong? What is damaged stays where it is: readers whose
 * fingerprint it has are told so there. Good only if the slot still holds the word afterwards.
 */
enum split_side split_side_of(struct split *s, uint64_t word, uint64_t bucket)
{
	struct layout_hash hash;
	uint32_t suffix;

	if (!read_hash(s, word, &hash))
		return SPLIT_SIDE_DAMAGED;
	s->hash = hash;
	suffix = layout_hash_suffix(hash);
	if (layout_hash_fp(hash) != layout_slot_fp(word) ||
	    layout_suffix(suffix, s->depth) != s->suffix)
		return SPLIT_SIDE_DAMAGED;
	for (unsigned choice = 0; choice < 2; choice++) {
		uint32_t pair = layout_hash_pair(hash, choice, s->pool->geometry.groups);

		if (bucket * LAYOUT_BUCKET_BYTES - pair < LAYOUT_PAIR_BYTES)
			return suffix >> s->depth & 1 ? SPLIT_SIDE_NEW : SPLIT_SIDE_OLD;
	}
	return SPLIT_SIDE_DAMAGED;
}

/* ---- moving a slot ---- */

uint64_t split_slot_offset(const struct split *s, uint32_t page, uint64_t bucket, uint32_t slot)
{
	return bucket_offset(s, page, bucket) + 8 + 8ull * slot;
}

static bool same_block(uint64_t a, uint64_t b)
{
	return layout_slot_with_state(a, LAYOUT_SLOT_FROZEN) ==
	       layout_slot_with_state(b, LAYOUT_SLOT_FROZEN);
}

/* Where the new subtable has the frozen slot's copy already; 0: nowhere. */
uint64_t split_find_copy(const struct split *s, uint64_t bucket, uint64_t frozen)
{
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t offset = split_slot_offset(s, s->new_page, bucket, i);
		uint64_t word = self_load(s->pool, offset);

		if (same_block(word, frozen) && (layout_slot_state(word) == LAYOUT_SLOT_FROZEN ||
						 layout_slot_state(word) == LAYOUT_SLOT_COMMITTED))
			return offset;
	}
	return 0;
}

/*
 * The same place of the new subtable is empty, as inserters keep out of it; or has a pending slot,
 * which may always be killed. If damage has filled it, any place of the bucket will do.
 */
static uint64_t make_copy(struct split *s, uint64_t bucket, uint32_t slot, uint64_t frozen)
{
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t offset =
			split_slot_offset(s, s->new_page, bucket, (slot + i) % LAYOUT_BUCKET_SLOTS);
		uint64_t word = self_load(s->pool, offset);

		if (layout_slot_state(word) == LAYOUT_SLOT_PENDING && cas(s, offset, word, 0))
			word = 0;
		if (word == 0 && cas(s, offset, 0, frozen))
			return offset;
	}
	return 0;
}

enum moved { MOVED, LOOK_AGAIN, NO_PLACE };

static enum moved move(struct split *s, uint64_t bucket, uint32_t slot, uint64_t word)
{
	uint64_t from = split_slot_offset(s, s->old_page, bucket, slot), to;
	uint64_t frozen = layout_slot_with_state(word, LAYOUT_SLOT_FROZEN);
	uint64_t committed = layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED);

	if (word == committed && !cas(s, from, committed, frozen))
		return LOOK_AGAIN;
	to = split_find_copy(s, bucket, frozen);
	if (!to)
		to = make_copy(s, bucket, slot, frozen);
	if (!to) {
		/* writable again, meanwhile */
		cas(s, from, frozen, committed);
		return NO_PLACE;
	}
	/* A restart finishes splits before there is a keeper. */
	if (s->pool->keeper)
		keeper_moved(s->pool->keeper, frozen);
	if (!cas(s, from, frozen,
		 MUTATED(MUTATION_TOMBSTONE)
			 ? 0
			 : layout_tombstone_make(layout_slot_fp(word), s->depth))) {
		/* a cluster's mover has put another copy in the place of this one */
		cas(s, to, frozen, 0);
		return LOOK_AGAIN;
	}
	if (split_thaws(s))
		cas(s, to, frozen, committed);
	s->moved++;
	return MOVED;
}

static bool frozen_in_old(const struct split *s, uint64_t bucket, uint64_t frozen)
{
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
		if (self_load(s->pool, split_slot_offset(s, s->old_page, bucket, i)) == frozen)
			return true;
	return false;
}

/* Likewise of a copy in the new subtable. */
static bool copy_thaws(struct split *s, uint64_t word)
{
	return s->pool->geometry.shards == 0 || (read_hash(s, word, &s->hash) && split_thaws(s));
}

/* A move that was cut off behind the tombstone: its copy is still frozen. */
static void commit_copies(struct split *s, uint64_t bucket)
{
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t offset = split_slot_offset(s, s->new_page, bucket, i);
		uint64_t word = self_load(s->pool, offset);

		if (layout_slot_state(word) == LAYOUT_SLOT_FROZEN &&
		    !frozen_in_old(s, bucket, word) && copy_thaws(s, word))
			cas(s, offset, word, layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED));
	}
}

/* A slot that is readable. */
static enum moved settle(struct split *s, uint64_t bucket, uint32_t slot, uint64_t word)
{
	uint64_t offset = split_slot_offset(s, s->old_page, bucket, slot);
	enum split_side side = split_side_of(s, word, bucket);

	/* replaced while we read its block: that may have been another one */
	if (self_load(s->pool, offset) != word)
		return LOOK_AGAIN;
	if (side == SPLIT_SIDE_NEW)
		return move(s, bucket, slot, word);
	s->damaged += side == SPLIT_SIDE_DAMAGED;
	/* nothing that stays has a reason to be frozen, that we know of */
	if (layout_slot_state(word) == LAYOUT_SLOT_FROZEN &&
	    (side == SPLIT_SIDE_OLD || s->pool->geometry.shards == 0) && split_thaws(s))
		cas(s, offset, word, layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED));
	return MOVED;
}

static enum moved move_slot(struct split *s, uint64_t bucket, uint32_t slot)
{
	uint64_t offset = split_slot_offset(s, s->old_page, bucket, slot);
	uint64_t word = self_load(s->pool, offset);

	switch (layout_slot_state(word)) {
	case LAYOUT_SLOT_PENDING:
		/* whosever it is: to kill it is never wrong, and cheaper than to find out */
		return cas(s, offset, word, 0) ? MOVED : LOOK_AGAIN;
	case LAYOUT_SLOT_COMMITTED:
	case LAYOUT_SLOT_FROZEN:
		return settle(s, bucket, slot, word);
	case LAYOUT_SLOT_MOVED:
		commit_copies(s, bucket);
		return MOVED;
	default: /* empty, or a state that is none */
		return MOVED;
	}
}

/* What takes the time is to wait for the blocks' heads: so they are all asked for at once. */
void split_hint_blocks(struct split *s, uint64_t bucket)
{
	struct layout_bucket copy;

	self_read(s->pool, bucket_offset(s, s->old_page, bucket), &copy, sizeof(copy));
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
		if (layout_block_place_valid(&s->pool->geometry, layout_slot_offset(copy.slots[i]),
					     layout_slot_class(copy.slots[i])))
			__builtin_prefetch(s->pool->memory.base +
					   layout_slot_offset(copy.slots[i]));
}

static enum next move_bucket(struct split *s)
{
	bool stuck = false;

	split_hint_blocks(s, s->cursor);
	for (uint32_t slot = 0; slot < LAYOUT_BUCKET_SLOTS; slot++) {
		enum moved result = move_slot(s, s->cursor, slot);

		for (unsigned tries = 0; result == LOOK_AGAIN; tries++) {
			/* clients write this key all the time: let them, and come back */
			if (s->pool->self_lost || tries == 100)
				return PAUSE;
			s->retries++;
			result = move_slot(s, s->cursor, slot);
		}
		if (s->pool->self_lost)
			return PAUSE;
		stuck |= result == NO_PLACE;
	}
	if (!stuck)
		finish_bucket(s, s->cursor);
	s->stuck |= stuck;
	return GO_ON;
}

static enum next move_slots(struct split *s)
{
	/* what is left over is done one by one */
	if (s->cursor >= s->ahead && self_is_far(s->pool)) {
		s->ahead = s->cursor + split_move_many(s, buckets(s));
		if (s->pool->self_lost)
			return PAUSE;
	}
	/* done: the new one's header, too, if the daemon died between the two */
	if (split_bucket_done(s, s->cursor))
		finish_bucket(s, s->cursor);
	else if (move_bucket(s) == PAUSE)
		return PAUSE;
	if (++s->cursor < buckets(s))
		return GO_ON;
	if (!s->stuck) {
		enter(s, SPLIT_DIRECTORY);
		return GO_ON;
	}
	/* Only damage comes to this. Clients look in both subtables until there is room. */
	s->stuck = false;
	s->damaged++;
	enter(s, SPLIT_MOVE);
	return PAUSE;
}

/* ---- steps ---- */

static enum next work(struct split *s)
{
	switch (s->state) {
	case SPLIT_PAGE:
		return find_page(s);
	case SPLIT_FORMAT:
		return format(s);
	case SPLIT_DOUBLE:
		return double_directory(s);
	case SPLIT_PUBLISH:
		return publish(s);
	case SPLIT_FLAG:
		return flag(s);
	case SPLIT_MOVE:
		return move_slots(s);
	case SPLIT_DIRECTORY:
		return finish_directory(s);
	case SPLIT_NONE:
	case SPLIT_NO_PAGE:
	case SPLIT_DONE:
		break;
	}
	return PAUSE;
}

bool split_step(struct split *s, uint64_t budget_ns)
{
	uint64_t began = clock_now_ns();

	while (split_under_way(s)) {
		if (s->pool->self_lost || work(s) == PAUSE)
			return false;
		if (clock_now_ns() - began >= budget_ns)
			return split_under_way(s);
	}
	return false;
}
