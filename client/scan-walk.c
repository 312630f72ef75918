/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan-walk.c - a walk over all keys by one-sided reads of the index, also while the index grows, as a task
 *
 * Range by range (scan-cursor.h), chunk by chunk (scan-index.c): READ the heads of the blocks that a
 * chunk's slots name. A key is believed when its own hash leads to the slot that named it. A step
 * that fails, or a chunk that has become too old (T1), leaves the walk where it was, so that it can
 * go on, also over another connection; but not in another pool. Runs on the session's owner. Next:
 * scan-internal.h for the states, scan-index.c.
 */
#include <errno.h>
#include <string.h>

#include "err.h"
#include "scan-internal.h"

/* ---- posting and ending ---------------------------------------------------------------------- */

int scan_end(struct tarn_scan *scan, int result)
{
	scan->posted = false;
	scan->task.result = result;
	return SCAN_ENDED;
}

int scan_post(struct tarn_scan *scan, const struct fabric_request *requests, unsigned count)
{
	int ret = session_post(scan->session, requests, count, &scan->task);

	if (ret < 0)
		return scan_end(scan, ret);
	scan->posted = scan->worked = true;
	return ret ? SCAN_GO_ON : SCAN_WAIT;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool usable(const struct tarn_scan *scan, uint64_t word)
{
	return layout_block_place_valid(&scan->session->geometry, layout_slot_offset(word),
					layout_slot_class(word));
}

static uint32_t head_bytes(uint64_t word)
{
	uint32_t bytes = layout_class_bytes(layout_slot_class(word));

	return bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
}

/* Reads the heads of the next blocks of the chunk. */
static int heads(struct tarn_scan *scan)
{
	struct fabric_request requests[BATCH];
	uint32_t i, n = 0, end = scan->slot_next + BATCH;

	if (end > scan->slot_count)
		end = scan->slot_count;
	for (i = scan->slot_next; i < end && !scan->posted; i++) {
		uint64_t word = scan->slots[i].word;

		if (usable(scan, word))
			requests[n++] =
				fabric_read(layout_slot_offset(word),
					    scan->heads[i - scan->slot_next], head_bytes(word));
	}
	if (n && !scan_is_late(scan, 2))
		return scan_post(scan, requests, n);
	/* before it was read, or when the blocks may be others' by now */
	if (scan_is_late(scan, scan->posted ? 1 : 2)) {
		scan_drop_chunk(scan);
	} else {
		scan->batch_begin = scan->batch_next = scan->slot_next;
		scan->batch_end = scan->slot_next = end;
	}
	scan->posted = false;
	return scan_go(scan, SCAN_LOOK);
}

/* Does the key's hash lead to the slot that named the block? */
static bool belongs(const struct tarn_scan *scan, const struct found_slot *s,
		    const struct layout_block *block, struct layout_hash hash)
{
	const struct layout_geometry *g = &scan->session->geometry;
	const struct scan_range *range = &scan->cursor.ranges[scan->cursor.count - 1];
	uint64_t inside = (s->slot - g->pages_offset) % LAYOUT_PAGE_BYTES;
	unsigned choice;

	if (layout_hash_fp(hash) != layout_slot_fp(s->word) ||
	    (block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(s->word) ||
	    layout_suffix(layout_hash_suffix(hash), range->depth) != range->suffix)
		return false;
	for (choice = 0; choice < 2; choice++)
		if (inside - layout_hash_pair(hash, choice, g->groups) < LAYOUT_PAIR_BYTES)
			return true;
	return false;
}

static const struct layout_block *head(const struct tarn_scan *scan)
{
	return (const struct layout_block *)scan->heads[scan->batch_next - scan->batch_begin];
}

/* Is the block's key longer than its head, as far as the head says? */
static bool is_long(const struct tarn_scan *scan, uint64_t word)
{
	uint32_t key_length = head(scan)->key_length;

	return usable(scan, word) && LAYOUT_BLOCK_HEADER + key_length > head_bytes(word) &&
	       LAYOUT_BLOCK_HEADER + key_length <= layout_class_bytes(layout_slot_class(word));
}

static int read_long(struct tarn_scan *scan)
{
	uint64_t word = scan->slots[scan->batch_next].word;
	struct fabric_request r =
		fabric_read(layout_slot_offset(word), scan->long_block,
			    (uint32_t)(LAYOUT_BLOCK_HEADER + layout_pad8(head(scan)->key_length)));

	if (!scan->posted && !scan_is_late(scan, 2))
		return scan_post(scan, &r, 1);
	scan->posted = false;
	scan->have_long = true;
	if (scan_is_late(scan, 2))
		scan_drop_chunk(scan);
	return scan_go(scan, SCAN_LOOK);
}

/* The block of the batch's next slot with its key, if it is good. It is not long, or has been read as such. */
static bool block_of(const struct tarn_scan *scan, const struct layout_block **ret_block,
		     struct layout_hash *ret_hash)
{
	const struct found_slot *s = &scan->slots[scan->batch_next];
	const struct layout_block *block = head(scan);
	uint32_t class_bytes, key_length = block->key_length;

	if (!usable(scan, s->word))
		return false;
	class_bytes = layout_class_bytes(layout_slot_class(s->word));
	if (key_length == 0 || LAYOUT_BLOCK_HEADER + key_length > class_bytes)
		return false;
	if (scan->have_long) {
		block = (const struct layout_block *)scan->long_block;
		if (block->key_length != key_length)
			return false;
	}
	if (class_bytes <= HEAD_BYTES &&
	    !layout_block_valid(block, class_bytes, layout_slot_offset(s->word)))
		return false;
	*ret_hash = layout_hash_key(layout_block_key(block), key_length,
				    scan->session->geometry.hash_seed);
	*ret_block = block;
	return belongs(scan, s, block, *ret_hash);
}

static void next_slot(struct tarn_scan *scan)
{
	scan->batch_next++;
	scan->have_long = false;
}

/*
 * The block of a slot was not good. If the slot has another word by now it is looked at again, with its
 * chunk. Else it is damaged.
 */
static int explain(struct tarn_scan *scan)
{
	const struct found_slot *s = &scan->slots[scan->batch_next];
	struct fabric_request r = fabric_read(s->slot, &scan->word, 8);

	if (!scan->posted)
		return scan_post(scan, &r, 1);
	scan->posted = false;
	if (scan->word != s->word) {
		scan_drop_chunk(scan);
		return scan_go(scan, SCAN_LOOK);
	}
	next_slot(scan);
	return scan_end(scan, err_set(-TARN_ECORRUPT,
				      "the block named by the slot at pool offset %llu is damaged "
				      "and was skipped; call again to go on",
				      (unsigned long long)s->slot));
}

/* ---- keys ------------------------------------------------------------------------------------ */

const void *scan_key(const struct tarn_scan *scan, size_t *ret_key_bytes)
{
	*ret_key_bytes = scan->found->key_length;
	return layout_block_key(scan->found);
}

void scan_item(const struct tarn_scan *scan, struct tarn_item *ret_item)
{
	const struct tarn_session *s = scan->session;
	const struct layout_block *block = scan->found;
	struct tarn_item item = TARN_ITEM_INIT;

	item.kind = block->kind == LAYOUT_KIND_COUNTER ? TARN_KIND_COUNTER : TARN_KIND_VALUE;
	item.value_bytes = block->value_length;
	item.stamp = block->stamp;
	item.user_flags = block->user_flags;
	item.writer = (uint32_t)(block->stamp >> 32);
	if (block->expiry > s->epoch)
		item.expiry_ms = (block->expiry - s->epoch) * (s->geometry.epoch_ns / 1000) / 1000;
	session_copy_item(ret_item, &item);
}

static bool wanted(const struct tarn_scan *scan, const struct layout_block *block)
{
	return block->key_length >= scan->prefix_bytes &&
	       !memcmp(layout_block_key(block), scan->prefix, scan->prefix_bytes) &&
	       !(block->expiry && scan->session->epoch >= block->expiry);
}

static bool is_same(struct layout_hash a, struct layout_hash b)
{
	return a.low == b.low && a.high == b.high;
}

/*
 * Goes on to the slot, which has a good block; behind it, if nothing else can come from its place.
 * True: its key has come already, from this place before it was copied to the new subtable.
 */
static bool pass(struct scan_range *range, const struct found_slot *s, struct layout_hash hash)
{
	bool again = range->has_come && range->place == s->place && is_same(range->came, hash);

	range->place = s->place + s->last;
	range->came = hash;
	range->has_come = !s->last;
	return again;
}

/* The next good block of the batch that is wanted: SCAN_ENDED. The batch is done: SCAN_WAIT. */
static int look_at_batch(struct tarn_scan *scan)
{
	while (scan->batch_next < scan->batch_end) {
		const struct found_slot *s = &scan->slots[scan->batch_next];
		struct layout_hash hash;
		int shown;

		if (!scan->have_long && is_long(scan, s->word))
			return scan_go(scan, SCAN_LONG);
		if (!block_of(scan, &scan->found, &hash))
			return scan_go(scan, SCAN_EXPLAIN);
		shown = scan_since(scan) ? scan_shard_shown(scan, hash) : 1;
		if (shown < 0) {
			scan_drop_chunk(scan);
			return SCAN_WAIT;
		}
		next_slot(scan);
		if (!pass(scan_cursor_range(&scan->cursor), s, hash) && shown &&
		    wanted(scan, scan->found))
			return scan_end(scan, 1);
	}
	return SCAN_WAIT;
}

static void finish_chunk(struct tarn_scan *scan)
{
	struct scan_range *range = scan_cursor_range(&scan->cursor);

	range->place = scan->chunk_end;
	range->has_come = false;
	scan_drop_chunk(scan);
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* Is the pool still the one that the walk began in? What was read of it leads nowhere in another. */
static int check_pool(struct tarn_scan *scan)
{
	const struct tarn_session *s = scan->session;
	uint32_t i;

	if (!scan->begun && !scan->resumed) {
		scan->groups = s->geometry.groups;
		scan->incarnation = s->geometry.incarnation;
		scan_cursor_begin(&scan->cursor);
	}
	if (!scan->begun && scan->groups == s->geometry.groups &&
	    scan->incarnation == s->geometry.incarnation) {
		for (i = 0; i < scan->cursor.count; i++)
			if (scan->cursor.ranges[i].depth > s->geometry.max_depth)
				return err_set(-EINVAL, "the walk's position is none in this pool");
		scan->begun = true;
		scan->pool_serial = s->pool_serial;
	}
	if (scan->begun && scan->pool_serial == s->pool_serial)
		return 0;
	return err_set(-TARN_ERESTARTED,
		       "tarnd was started again since the walk began: the pool is another one, and "
		       "keys that came may be gone; begin a new walk");
}

static int begin(struct tarn_scan *scan)
{
	int ret = check_pool(scan);

	return ret < 0 ? scan_end(scan, ret) : scan_go(scan, SCAN_LOOK);
}

static int look(struct tarn_scan *scan)
{
	int next = look_at_batch(scan);

	if (next != SCAN_WAIT)
		return next;
	if (scan->worked && session_now(scan->session) > scan->limit_ns)
		return scan_end(scan, err_set(-TARN_ETIMEOUT, "no further key within the time "
							      "limit; call again to go on"));
	if (scan->slot_next < scan->slot_count)
		return scan_go(scan, SCAN_HEADS);
	if (scan->slot_count)
		finish_chunk(scan);
	return scan->cursor.count ? scan_next_chunk(scan) : scan_end(scan, 0);
}

static int step(struct task *task)
{
	static int (*const handlers[SCAN_STATES])(struct tarn_scan *) = {
		[SCAN_BEGIN] = begin,
		[SCAN_LOOK] = look,
		[SCAN_SUBTABLE] = scan_subtable,
		[SCAN_OLD] = scan_old,
		[SCAN_OLD_AGAIN] = scan_old_again,
		[SCAN_HEADERS] = scan_headers,
		[SCAN_NEW_ENTRY] = scan_new_entry,
		[SCAN_NEW] = scan_new,
		[SCAN_SHARDS] = scan_shards,
		[SCAN_HEADS] = heads,
		[SCAN_LONG] = read_long,
		[SCAN_EXPLAIN] = explain,
	};
	struct tarn_scan *scan = (struct tarn_scan *)task;
	int next;

	task->wake_ns = 0;
	if (task->status < 0 && scan->posted)
		return scan_end(scan, session_lost(scan->session)) == SCAN_ENDED;
	do
		next = handlers[scan->state](scan);
	while (next == SCAN_GO_ON);
	return next == SCAN_ENDED;
}

struct task *scan_next(struct tarn_scan *scan)
{
	scan->limit_ns = session_limit(scan->session, session_now(scan->session));
	scan->task = (struct task){.step = step, .limit_ns = scan->limit_ns};
	scan->state = SCAN_BEGIN;
	scan->posted = scan->worked = false;
	return &scan->task;
}

void scan_cut(struct tarn_scan *scan)
{
	scan->limit_ns = 0;
}
