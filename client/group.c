/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.c - many gets at a time, step by step together
 *
 * What is read and what is made of it are docs/protocol.md section 4's, as in kv.c and kv-read.c; here
 * nothing is ever tried a second time. A group reads only: it owes nothing. Runs on the session's owner,
 * from engine.c. Next: group.h, found.h.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "directory.h"
#include "engine.h"
#include "err.h"
#include "found.h"
#include "reference.h"

#define SCRATCH_BYTES (64u << 10)
#define BLOCK_MAX     4096u /* a larger one is left alone */

static_assert(2 * GROUP_OPS <= FABRIC_POST_MAX, "one post");

struct item {
	struct op *op;
	enum { ITEM_CACHED, ITEM_BUCKETS, ITEM_BLOCK, ITEM_ENDED, ITEM_ALONE } state;
	uint32_t scratch; /* where its block is read to */
	unsigned candidates;
	bool moved;
	struct layout_hash hash;
	uint64_t fp_bits;    /* as they stand in a slot's word */
	uint64_t slot, word; /* of the block; seen: what the slot says now */
	uint64_t seen;
	uint64_t offsets[2];
	struct layout_bucket pairs[2][2];
};

struct group {
	struct task task;
	struct tarn_session *session;
	unsigned count;
	bool posted, second; /* second: of the two posts */
	uint32_t scratch_used;
	uint64_t first_read_ns, now_ns, seen_epoch, epoch;
	struct item items[GROUP_OPS];
	uint8_t *scratch;
};

int group_create(struct tarn_session *session, struct group **ret_group)
{
	struct group *g = aligned_alloc(64, (sizeof(*g) + 63) & ~(size_t)63);

	if (g) {
		memset(g, 0, sizeof(*g));
		g->session = session;
		g->scratch = aligned_alloc(64, SCRATCH_BYTES);
	}
	if (!g || !g->scratch) {
		free(g);
		return err_set(-ENOMEM, "no memory for a group of operations");
	}
	*ret_group = g;
	return 0;
}

void group_free(struct group *group)
{
	if (!group)
		return;
	free(group->scratch);
	free(group);
}

void group_clear(struct group *group)
{
	group->count = 0;
	group->scratch_used = 0;
}

unsigned group_count(const struct group *group)
{
	return group->count;
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Room for the block of item->word. False: the item is left alone. */
static bool take_scratch(struct group *g, struct item *item)
{
	uint32_t class = layout_slot_class(item->word), bytes = layout_class_bytes(class);

	item->state = ITEM_ALONE;
	if (bytes > BLOCK_MAX || g->scratch_used + bytes > SCRATCH_BYTES ||
	    !layout_block_place_valid(&g->session->geometry, layout_slot_offset(item->word), class))
		return false;
	item->scratch = g->scratch_used;
	g->scratch_used += (bytes + 63) & ~63u;
	return true;
}

void group_add(struct group *g, struct op *op)
{
	struct item *item = &g->items[g->count++];

	item->op = op;
	item->hash = layout_hash_key(op->key, op->key_bytes, g->session->geometry.hash_seed);
	item->fp_bits = layout_slot_make(LAYOUT_SLOT_EMPTY, layout_hash_fp(item->hash), 0, 0, 0);
	if (g->session->cache)
		cache_hint(g->session->cache, item->hash);
}

/* Where to begin. */
static void locate(struct group *g, struct item *item, bool cached)
{
	struct tarn_session *s = g->session;
	uint64_t subtable;
	uint32_t shard;

	item->state = ITEM_ALONE;
	if (s->since && !found_since(s, item->hash, &shard))
		return;
	if (cached && cache_find(s->cache, item->hash, s->epoch, &item->slot, &item->word)) {
		if (!take_scratch(g, item))
			return;
		item->state = ITEM_CACHED;
		return;
	}
	subtable = directory_find(s->directory, item->hash);
	item->state = subtable ? ITEM_BUCKETS : ITEM_ALONE;
	if (!subtable)
		return;
	found_pair_offsets(s, item->hash, subtable, item->offsets);
}

static unsigned first_post(struct group *g, struct fabric_request *requests)
{
	struct tarn_session *s = g->session;
	unsigned n = 0;
	bool cached;

	g->first_read_ns = session_now(s);
	g->seen_epoch = s->epoch;
	g->epoch = 0;
	cached = s->cache && !session_epoch_stale(s, g->first_read_ns);
	for (unsigned i = 0; i < g->count; i++)
		locate(g, &g->items[i], cached);
	for (unsigned i = 0; i < g->count; i++) {
		struct item *item = &g->items[i];

		if (item->state == ITEM_CACHED) {
			requests[n++] = fabric_read(item->slot, &item->seen, 8);
			requests[n++] = fabric_read(
				layout_slot_offset(item->word), g->scratch + item->scratch,
				layout_class_bytes(layout_slot_class(item->word)));
		} else if (item->state == ITEM_BUCKETS) {
			requests[n++] =
				fabric_read(item->offsets[0], item->pairs[0], LAYOUT_PAIR_BYTES);
			requests[n++] =
				fabric_read(item->offsets[1], item->pairs[1], LAYOUT_PAIR_BYTES);
		}
	}
	/* with an epoch as stale as that none is cached, so there is a second post if one has a block */
	if (n && n < FABRIC_POST_MAX && session_epoch_stale(s, g->first_read_ns))
		requests[n++] = fabric_read(LAYOUT_EPOCH_OFFSET, &g->epoch, 8);
	return n;
}

static unsigned second_post(struct group *g, struct fabric_request *requests)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->count; i++) {
		struct item *item = &g->items[i];

		if (item->state == ITEM_BLOCK)
			requests[n++] = fabric_read(
				layout_slot_offset(item->word), g->scratch + item->scratch,
				layout_class_bytes(layout_slot_class(item->word)));
	}
	/* the first post had no room for it, or it is as old as that */
	if (n && session_epoch_stale(g->session, g->now_ns))
		requests[n++] = fabric_read(LAYOUT_EPOCH_OFFSET, &g->epoch, 8);
	return n;
}

/* ---- the end of each ------------------------------------------------------------------------- */

static void end(struct group *g, struct item *item, int status)
{
	g->session->stats.cache_misses += g->session->cache && item->state != ITEM_CACHED;
	item->state = ITEM_ENDED;
	item->op->completion.status = status;
	session_count_get(g->session, g->now_ns - g->first_read_ns, g->now_ns, status);
}

/* Its block is there, and is the key's. */
static void end_found(struct group *g, struct item *item)
{
	struct tarn_session *s = g->session;
	const struct layout_block *block = (const void *)(g->scratch + item->scratch);
	struct op *op = item->op;

	if (s->since && layout_slot_state(item->word) == LAYOUT_SLOT_FROZEN) {
		item->state = ITEM_ALONE;
		return;
	}
	if (found_expired(s, block)) {
		end(g, item, -TARN_ENOTFOUND);
		return;
	}
	/* in pieces, elsewhere */
	if (block->kind == LAYOUT_KIND_EXTENTS && op->kind == TARN_OP_GET) {
		item->state = ITEM_ALONE;
		return;
	}
	if (item->state == ITEM_BLOCK && s->cache && block->kind != LAYOUT_KIND_EXTENTS &&
	    layout_slot_state(item->word) == LAYOUT_SLOT_COMMITTED) {
		cache_see(s->cache, item->hash, item->slot, item->word);
		cache_add(s->cache, item->hash, g->seen_epoch, item->slot, item->word);
	}
	op->completion.item = found_item(s, block);
	if (s->reference)
		reference_hit(s, layout_slot_offset(item->word));
	if (op->kind == TARN_OP_GET && block->value_length > op->bytes) {
		end(g, item, -TARN_ETOOSMALL);
		return;
	}
	if (op->kind == TARN_OP_GET)
		found_copy(s, op->buffer, block);
	end(g, item, 0);
}

/* The key is not there. In a cluster that is nothing yet: kv-shard.c. */
static void end_absent(struct group *g, struct item *item)
{
	if (g->session->since)
		item->state = ITEM_ALONE;
	else
		end(g, item, -TARN_ENOTFOUND);
}

static int match(const struct group *g, const struct item *item)
{
	return found_match(item->op->key, (uint32_t)item->op->key_bytes,
			   (const void *)(g->scratch + item->scratch), item->word);
}

static void look_cached(struct group *g, struct item *item)
{
	struct tarn_session *s = g->session;

	if (item->seen == item->word && match(g, item) > 0) {
		s->stats.cache_hits++;
		end_found(g, item);
		return;
	}
	/* by itself it looks into the index, and counts that */
	cache_fail(s->cache, item->hash);
	item->state = ITEM_ALONE;
}

static void collect(struct item *item, uint64_t slot, uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	if (state == LAYOUT_SLOT_MOVED) {
		item->moved |= found_tombstone_counts(item->hash, word);
	} else if (state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN) {
		/* of pairs that overlap */
		if (item->candidates && item->slot == slot)
			return;
		item->candidates++;
		item->slot = slot;
		item->word = word;
	}
}

/* As found_each_slot(), but few of the slots are looked at closely: each costs a comparison. */
static inline void collect_pair(struct item *item, uint64_t offset, const struct layout_bucket *pair,
				uint64_t fp_bits)
{
	for (unsigned b = 0; b < 2; b++) {
#pragma GCC unroll 7
		for (unsigned i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
			if (__builtin_expect((pair[b].slots[i] & LAYOUT_SLOT_FP_BITS) == fp_bits, 0))
				collect(item, offset + b * LAYOUT_BUCKET_BYTES + 8 + 8ull * i,
					pair[b].slots[i]);
	}
}

static void look_buckets(struct group *g, struct item *item)
{
	uint64_t splitting;

	item->candidates = 0;
	item->moved = found_headers(item->pairs, item->hash, &splitting) != HEADERS_FIT;
	collect_pair(item, item->offsets[0], item->pairs[0], item->fp_bits);
	collect_pair(item, item->offsets[1], item->pairs[1], item->fp_bits);
	if (item->moved || item->candidates > 1)
		item->state = ITEM_ALONE;
	else if (item->candidates == 0)
		end_absent(g, item);
	else if (take_scratch(g, item))
		item->state = ITEM_BLOCK;
}

static void look_block(struct group *g, struct item *item)
{
	int found = match(g, item);

	if (found > 0)
		end_found(g, item);
	else if (found == 0)
		end_absent(g, item);
	else
		item->state = ITEM_ALONE;
}

/* ---- the task -------------------------------------------------------------------------------- */

static void leave_alone(struct group *g)
{
	for (unsigned i = 0; i < g->count; i++)
		if (g->items[i].state != ITEM_ENDED)
			g->items[i].state = ITEM_ALONE;
}

/* A post is complete. */
static void look(struct group *g)
{
	struct tarn_session *s = g->session;

	g->now_ns = session_now(s);
	if (g->epoch) {
		session_epoch_learn(s, g->epoch, g->first_read_ns);
		g->epoch = 0;
	}
	/* T1 */
	if (g->now_ns - g->first_read_ns > s->geometry.deadline_ns) {
		leave_alone(g);
		return;
	}
	for (unsigned i = 0; i < g->count; i++) {
		struct item *item = &g->items[i];

		if (item->state == ITEM_BLOCK && g->second)
			look_block(g, item);
		else if (item->state == ITEM_CACHED)
			look_cached(g, item);
		else if (item->state == ITEM_BUCKETS)
			look_buckets(g, item);
	}
}

static int group_step(struct task *task)
{
	struct group *g = (struct group *)task;
	struct fabric_request requests[FABRIC_POST_MAX];

	for (;;) {
		unsigned n;
		int ret;

		if (g->posted) {
			g->posted = false;
			if (task->status < 0)
				break;
			look(g);
			if (g->second)
				return 1;
			g->second = true;
		}
		n = g->second ? second_post(g, requests) : first_post(g, requests);
		ret = n ? session_post(g->session, requests, n, task) : -ENOENT;
		if (ret < 0)
			break;
		g->posted = true;
		if (ret == 0)
			return 0;
	}
	leave_alone(g);
	return 1;
}

struct task *group_start(struct group *g)
{
	g->task.step = group_step;
	g->task.status = g->task.result = 0;
	g->task.wake_ns = 0;
	g->task.asking = false;
	g->posted = g->second = false;
	return &g->task;
}

bool group_ended(const struct group *g, unsigned i, struct op **ret_op)
{
	*ret_op = g->items[i].op;
	return g->items[i].state == ITEM_ENDED;
}
