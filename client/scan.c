/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan.c - a walk over all keys by one-sided reads of the index
 *
 * Subtable by subtable, chunk by chunk: READ some groups, then the heads of the blocks that their
 * slots name. A key is believed when its own hash leads to the slot that named it. Runs on the
 * session's owner. Next: docs/protocol.md section 2 for the index.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "session.h"

#define CHUNK_GROUPS 40u
#define CHUNK_SLOTS  (CHUNK_GROUPS * 3u * LAYOUT_BUCKET_SLOTS)
#define BATCH        16u
#define HEAD_BYTES   256u /* of a block are read; keys that do not fit are read again in full */

struct found_slot {
	uint64_t slot, word;
};

struct tarn_scan {
	struct tarn_session *session;
	uint8_t *prefix;
	size_t prefix_bytes;

	uint64_t depth;    /* global, when the walk began or the directory doubled */
	uint64_t subtable; /* directory index of the subtable under way */
	uint64_t page_offset;
	uint32_t group; /* next group of it to be read; 0: the directory entry has not been read */
	uint64_t read_ns; /* T1: when the chunk was read */

	struct layout_bucket chunk[CHUNK_GROUPS * 3];
	uint64_t chunk_offset;
	struct found_slot slots[CHUNK_SLOTS];
	uint32_t slot_count, slot_next;  /* of the chunk */
	uint32_t batch_begin, batch_end; /* slots whose heads are in `heads` */
	uint32_t batch_next;
	uint64_t heads[BATCH][HEAD_BYTES / 8];
	uint64_t long_block[(LAYOUT_BLOCK_HEADER + LAYOUT_MAX_KEY_BYTES + 8) / 8];
};

TARN_API int tarn_scan_open(struct tarn_session *session, const void *prefix, size_t prefix_bytes,
			    struct tarn_scan **ret_scan)
{
	struct tarn_scan *scan;

	if (!session || !ret_scan || (!prefix && prefix_bytes))
		return err_set(-EINVAL,
			       "session and ret_scan must not be NULL, nor prefix with a length");
	if (prefix_bytes > LAYOUT_MAX_KEY_BYTES)
		return err_set(-TARN_EKEYSIZE, "the prefix has %zu bytes: a key has 1 to %u",
			       prefix_bytes, LAYOUT_MAX_KEY_BYTES);
	scan = calloc(1, sizeof(*scan));
	if (scan)
		scan->prefix = malloc(prefix_bytes + 1);
	if (!scan || !scan->prefix) {
		free(scan);
		return err_set(-ENOMEM, "no memory for a scan");
	}
	if (prefix_bytes)
		memcpy(scan->prefix, prefix, prefix_bytes);
	scan->prefix_bytes = prefix_bytes;
	scan->session = session;
	scan->depth = UINT64_MAX;
	*ret_scan = scan;
	return 0;
}

TARN_API void tarn_scan_close(struct tarn_scan *scan)
{
	if (!scan)
		return;
	free(scan->prefix);
	free(scan);
}

TARN_API uint32_t tarn_scan_progress(const struct tarn_scan *scan)
{
	uint64_t groups, per_subtable;

	if (!scan || scan->depth == UINT64_MAX)
		return 0;
	groups = scan->session->geometry.groups;
	per_subtable = (uint64_t)scan->group * 1000 / groups;
	return (uint32_t)((scan->subtable * 1000 + per_subtable) >> scan->depth);
}

/* ---- the index ------------------------------------------------------------------------------- */

/*
 * Reads depth and directory entry of the subtable. 1: go on with it, 0: an alias of one walked
 * already, negative: error.
 */
static int enter_subtable(struct tarn_scan *scan)
{
	const struct layout_geometry *g = &scan->session->geometry;
	uint64_t depth, entry;
	struct fabric_request requests[] = {
		fabric_read(LAYOUT_GLOBAL_DEPTH_OFFSET, &depth, 8),
		fabric_read(layout_directory_offset(g, scan->subtable), &entry, 8),
	};
	int ret = session_sync(scan->session, requests, 2);

	if (ret < 0)
		return ret;
	if (depth > g->max_depth) {
		/* nothing says where to go on: the walk ends here */
		scan->depth = 0;
		scan->subtable = 1;
		return err_set(-TARN_ECORRUPT, "the pool's global depth is %llu, its limit %u",
			       (unsigned long long)depth, g->max_depth);
	}
	scan->depth = depth;
	if (layout_directory_state(entry) == LAYOUT_DIRECTORY_NONE ||
	    layout_directory_page(entry) >= g->npages)
		return err_set(
			-TARN_ECORRUPT,
			"directory entry %llu of the pool names no subtable and was skipped; "
			"call again to go on",
			(unsigned long long)scan->subtable++);
	scan->page_offset = layout_page_offset(g, layout_directory_page(entry));
	return layout_suffix((uint32_t)scan->subtable, layout_directory_depth(entry)) ==
	       scan->subtable;
}

static void collect(struct tarn_scan *scan, uint32_t buckets)
{
	uint32_t b, i;

	scan->slot_count = scan->slot_next = scan->batch_next = scan->batch_end = 0;
	for (b = 0; b < buckets; b++) {
		for (i = 0; i < LAYOUT_BUCKET_SLOTS; i++) {
			uint64_t word = scan->chunk[b].slots[i];
			uint32_t state = layout_slot_state(word);

			if (state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN)
				scan->slots[scan->slot_count++] = (struct found_slot){
					scan->chunk_offset + b * LAYOUT_BUCKET_BYTES + 8 + 8ull * i,
					word};
		}
	}
}

static int read_chunk(struct tarn_scan *scan, uint32_t groups)
{
	struct tarn_session *s = scan->session;
	uint64_t epoch;
	struct fabric_request requests[] = {
		fabric_read(scan->chunk_offset, scan->chunk, groups * LAYOUT_GROUP_BYTES),
		fabric_read(LAYOUT_EPOCH_OFFSET, &epoch, 8),
	};
	bool stale;
	int ret;

	scan->read_ns = session_now(s);
	stale = session_epoch_stale(s, scan->read_ns);
	ret = session_sync(s, requests, stale ? 2 : 1);
	if (ret < 0)
		return ret;
	/* what has expired is not shown */
	if (stale)
		session_epoch_learn(s, epoch, scan->read_ns);
	collect(scan, groups * 3);
	return 0;
}

/* Reads the next groups. Returns 1, 0 at the end of the index, or a negative code. */
static int next_chunk(struct tarn_scan *scan)
{
	uint32_t groups = scan->session->geometry.groups, n;
	int ret;

	if (scan->depth != UINT64_MAX && scan->group >= groups) {
		scan->subtable++;
		scan->group = 0;
	}
	while (scan->group == 0) {
		if (scan->depth != UINT64_MAX && scan->subtable >> scan->depth)
			return 0;
		ret = enter_subtable(scan);
		if (ret < 0)
			return ret;
		if (ret > 0)
			break;
		scan->subtable++;
	}
	n = groups - scan->group < CHUNK_GROUPS ? groups - scan->group : CHUNK_GROUPS;
	scan->chunk_offset = scan->page_offset + (uint64_t)scan->group * LAYOUT_GROUP_BYTES;
	scan->group += n;
	ret = read_chunk(scan, n);
	return ret < 0 ? ret : 1;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* T1: slot words that were read too long ago are read again before their blocks are. */
static int refresh_slots(struct tarn_scan *scan)
{
	struct fabric_request requests[BATCH];
	uint32_t i, n = scan->batch_end - scan->batch_begin;

	for (i = 0; i < n; i++)
		requests[i] = fabric_read(scan->slots[scan->batch_begin + i].slot,
					  &scan->slots[scan->batch_begin + i].word, 8);
	return session_sync(scan->session, requests, n);
}

static bool usable(const struct tarn_scan *scan, uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	return (state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN) &&
	       layout_block_place_valid(&scan->session->geometry, layout_slot_offset(word),
					layout_slot_class(word));
}

static uint32_t head_bytes(uint64_t word)
{
	uint32_t bytes = layout_class_bytes(layout_slot_class(word));

	return bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
}

/* Reads the heads of the next blocks of the chunk. */
static int next_batch(struct tarn_scan *scan)
{
	struct fabric_request requests[BATCH];
	uint32_t i, n = 0;
	int ret;

	scan->batch_begin = scan->batch_next = scan->slot_next;
	scan->batch_end = scan->slot_count - scan->batch_begin > BATCH ? scan->batch_begin + BATCH
								       : scan->slot_count;
	scan->slot_next = scan->batch_end;
	if (session_now(scan->session) - scan->read_ns > scan->session->geometry.deadline_ns / 2) {
		ret = refresh_slots(scan);
		if (ret < 0)
			return ret;
	}
	for (i = scan->batch_begin; i < scan->batch_end; i++) {
		uint64_t word = scan->slots[i].word;

		if (usable(scan, word))
			requests[n++] =
				fabric_read(layout_slot_offset(word),
					    scan->heads[i - scan->batch_begin], head_bytes(word));
	}
	return n ? session_sync(scan->session, requests, n) : 0;
}

/* Does the key's hash lead to the slot that named the block? */
static bool belongs(const struct tarn_scan *scan, const struct found_slot *s,
		    const struct layout_block *block)
{
	const struct layout_geometry *g = &scan->session->geometry;
	struct layout_hash hash =
		layout_hash_key(layout_block_key(block), block->key_length, g->hash_seed);
	uint64_t inside = (s->slot - g->pages_offset) % LAYOUT_PAGE_BYTES;
	unsigned choice;

	if (layout_hash_fp(hash) != layout_slot_fp(s->word) ||
	    (block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(s->word))
		return false;
	for (choice = 0; choice < 2; choice++)
		if (inside - layout_hash_pair(hash, choice, g->groups) < LAYOUT_PAIR_BYTES)
			return true;
	return false;
}

static int read_long(struct tarn_scan *scan, uint64_t word, uint32_t key_length)
{
	struct fabric_request r =
		fabric_read(layout_slot_offset(word), scan->long_block,
			    (uint32_t)(LAYOUT_BLOCK_HEADER + layout_pad8(key_length)));

	return session_sync(scan->session, &r, 1);
}

/*
 * The block of a slot with its key, when it is good: 1. 0: gone or changed meanwhile, or damaged;
 * negative: error.
 */
static int block_of(struct tarn_scan *scan, uint32_t i, const struct layout_block **ret_block)
{
	const struct found_slot *s = &scan->slots[i];
	const struct layout_block *block =
		(const struct layout_block *)scan->heads[i - scan->batch_begin];
	uint32_t class_bytes, key_length = block->key_length;

	if (!usable(scan, s->word))
		return 0;
	class_bytes = layout_class_bytes(layout_slot_class(s->word));
	if (key_length == 0 || LAYOUT_BLOCK_HEADER + key_length > class_bytes)
		return 0;
	if (LAYOUT_BLOCK_HEADER + key_length > head_bytes(s->word)) {
		int ret = read_long(scan, s->word, key_length);

		if (ret < 0)
			return ret;
		block = (const struct layout_block *)scan->long_block;
		if (block->key_length != key_length)
			return 0;
	}
	if (class_bytes <= HEAD_BYTES &&
	    !layout_block_valid(block, class_bytes, layout_slot_offset(s->word)))
		return 0;
	*ret_block = block;
	return belongs(scan, s, block);
}

/* The block of slot i was not good: gone meanwhile, which is fine, or damaged? 1: damaged. */
static int damaged(struct tarn_scan *scan, uint32_t i)
{
	uint64_t word;
	struct fabric_request r = fabric_read(scan->slots[i].slot, &word, 8);
	int ret = session_sync(scan->session, &r, 1);

	return ret < 0 ? ret : word == scan->slots[i].word;
}

static void fill(const struct tarn_scan *scan, const struct layout_block *block,
		 struct tarn_item *ret_item)
{
	const struct tarn_session *s = scan->session;
	struct tarn_item item = TARN_ITEM_INIT;

	if (!ret_item)
		return;
	item.kind = block->kind == LAYOUT_KIND_COUNTER ? TARN_KIND_COUNTER : TARN_KIND_VALUE;
	item.value_bytes = block->value_length;
	item.stamp = block->stamp;
	item.user_flags = block->user_flags;
	item.writer = block->writer;
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

/* The next good block of the batch: 1, 0 when the batch is done. */
static int next_in_batch(struct tarn_scan *scan, const struct layout_block **ret_block)
{
	while (scan->batch_next < scan->batch_end) {
		uint32_t i = scan->batch_next++;
		int ret = block_of(scan, i, ret_block);

		if (ret < 0)
			return ret;
		if (ret > 0 && wanted(scan, *ret_block))
			return 1;
		if (ret == 0 && usable(scan, scan->slots[i].word)) {
			ret = damaged(scan, i);
			if (ret < 0)
				return ret;
			if (ret > 0)
				return err_set(-TARN_ECORRUPT,
					       "the block named by the slot at pool offset %llu is "
					       "damaged and was skipped; "
					       "call again to go on",
					       (unsigned long long)scan->slots[i].slot);
		}
	}
	return 0;
}

static int scan_next(struct tarn_scan *scan, const struct layout_block **ret_block)
{
	uint64_t limit = session_now(scan->session) + scan->session->timeout_ns;
	int ret;

	for (;;) {
		ret = next_in_batch(scan, ret_block);
		if (ret != 0)
			return ret;
		ret = scan->slot_next < scan->slot_count ? next_batch(scan) : next_chunk(scan);
		if (ret < 0)
			return ret;
		if (ret == 0 && scan->slot_next >= scan->slot_count &&
		    scan->batch_next >= scan->batch_end)
			return 0;
		if (session_now(scan->session) > limit)
			return err_set(-TARN_ETIMEOUT,
				       "no further key within the time limit; call again to go on");
	}
}

TARN_API int tarn_scan_next(struct tarn_scan *scan, const void **ret_key, size_t *ret_key_bytes,
			    struct tarn_item *ret_item)
{
	const struct layout_block *block = NULL;
	int ret;

	if (!scan || !ret_key || !ret_key_bytes)
		return err_set(-EINVAL, "scan, ret_key and ret_key_bytes must not be NULL");
	ret = session_enter(scan->session);
	if (ret < 0)
		return ret;
	ret = scan_next(scan, &block);
	if (ret > 0) {
		*ret_key = layout_block_key(block);
		*ret_key_bytes = block->key_length;
		fill(scan, block, ret_item);
	}
	session_leave(scan->session);
	return ret;
}
