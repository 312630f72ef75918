/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.c - many gets at a time, step by step together
 *
 * What is read and what is made of it are docs/protocol.md section 4's, as in kv.c and kv-read.c; here
 * nothing is ever tried a second time. A group reads only: it owes nothing. Each step is a post; on memory
 * that is near (fabric.h) the bytes are read in place instead, since requests would cost more than they do.
 * Runs on the session's owner, from engine.c and near.c. Next: group-internal.h, found.h.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "directory.h"
#include "err.h"
#include "fabric-near.h"
#include "found.h"
#include "group-internal.h"
#include "reference.h"

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

struct group_get *group_add(struct group *g, const void *key, size_t key_bytes)
{
	struct item *item = &g->items[g->count++];

	item->get.key = key;
	item->get.key_bytes = key_bytes;
	item->hash = session_hash(g->session, key, key_bytes);
	item->fp_bits = layout_slot_make(LAYOUT_SLOT_EMPTY, layout_hash_fp(item->hash), 0, 0, 0);
	item->read = item->count = item->at = 0;
	item->alone = false;
	if (g->session->cache && !g->session->ep->near)
		cache_hint(g->session->cache, item->hash);
	return &item->get;
}

/* ---- what is to be read ---------------------------------------------------------------------- */

/* This will be read in the next step. Only near it is begun at once. False: it is not in the pool. */
static inline bool want(struct group *g, uint64_t offset, uint32_t length)
{
	if (!g->near)
		return true;
	if (!near_has(g->session->ep, offset, length))
		return false;
	g->near_reads[g->reads++] = (struct near_read){.from = g->near + offset, .length = length};
	return true;
}

/*
 * Near: all that is wanted comes nearer, at the same time: only instructions that stand close together are under way
 * together, and here each may wait for a walk through the page tables.
 */
static void hint_all(struct group *g)
{
	struct tarn_session *s = g->session;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < g->reads; i++) {
		const uint8_t *from = g->near_reads[i].from;
		uint32_t length = g->near_reads[i].length;

		/* nearly all are two lines long */
		prefetch_line(from);
		if (length > 64)
			prefetch_line(from + 64);
		if (length > 128)
			near_hint(from + 128, length - 128);
		bytes += length;
	}
	s->stats.requests += g->reads;
	s->stats.bytes_read += bytes;
	g->reads = 0;
}

/* Near: it has been wanted, and is read now. Else the step's post has read it. */
static inline __attribute__((always_inline)) void get(struct group *g, uint64_t offset, void *local,
						      uint32_t length)
{
	if (g->near && length % 64 == 0)
		near_read_lines(local, g->near + offset, length);
	else if (g->near)
		near_read(local, g->near + offset, length);
}

static void want_pairs(struct group *g, struct item *item, unsigned wanted)
{
	item->state = ITEM_PAIRS;
	item->wanted = (uint8_t)wanted;
	for (unsigned i = item->read; i < wanted; i++)
		if (!want(g, item->offsets[i], LAYOUT_PAIR_BYTES))
			item->state = ITEM_ALONE;
}

/* The block of its candidate. */
static void want_block(struct group *g, struct item *item, int state)
{
	uint64_t word = item->candidates[item->at].word, offset = layout_slot_offset(word);
	uint32_t class = layout_slot_class(word), bytes = layout_class_bytes(class);

	item->state = ITEM_ALONE;
	if (bytes > BLOCK_MAX || g->scratch_used + bytes > SCRATCH_BYTES ||
	    !layout_block_place_valid(&g->session->geometry, offset, class) ||
	    !want(g, offset, bytes))
		return;
	item->scratch = g->scratch_used;
	/* near it is done with before the next one is read */
	if (!g->near)
		g->scratch_used += (bytes + 63) & ~63u;
	item->state = state;
}

/* May the value that is copied overwrite the key? */
static inline bool own_key_in_buffer(const struct group_get *get)
{
	uintptr_t key = (uintptr_t)get->key, buffer = (uintptr_t)get->buffer;

	return !get->exists_only && key < buffer + get->bytes && buffer < key + get->key_bytes;
}

/* A cluster's blocking call has come here since the key's shard is this member's. */
static inline bool elsewhere(const struct tarn_session *s, const struct item *item)
{
	uint32_t shard;

	if (!s->since || (s->hashed_key == item->get.key && s->geometry.shards == s->since_shards))
		return false;
	return !found_since(s, item->hash, &shard);
}

static void locate(struct group *g, struct item *item)
{
	struct tarn_session *s = g->session;
	struct candidate *c = &item->candidates[0];
	uint64_t subtable;

	item->state = ITEM_ALONE;
	if (elsewhere(s, item))
		return;
	/* near, T1 is judged behind the copy, and who is too late needs its key once more */
	if (g->near && own_key_in_buffer(&item->get))
		return;
	if (g->cached && cache_find(g->cache, item->hash, s->epoch, &c->slot, &c->word)) {
		want_block(g, item, ITEM_CACHED);
		if (item->state == ITEM_CACHED && !want(g, c->slot, 8))
			item->state = ITEM_ALONE;
		return;
	}
	subtable = directory_find(s->directory, item->hash);
	if (!subtable)
		return;
	found_pair_offsets(s, item->hash, subtable, item->offsets);
	want_pairs(g, item, g->lazy && !(g->near && g->few) ? 1 : 2);
}

static void begin(struct group *g, unsigned count)
{
	struct tarn_session *s = g->session;

	g->near = s->ep->near;
	g->lazy = s->ep->features & FABRIC_NEAR;
	g->few = count < FEW;
	g->first_read_ns = g->now_ns = session_now(s);
	g->seen_epoch = s->epoch;
	g->epoch = 0;
	/* near, with many at a time, the cache takes longer than what it saves */
	g->cache = g->near && !g->few ? NULL : s->cache;
	g->cached = g->cache && !session_epoch_stale(s, g->first_read_ns);
	g->reads = 0;
}

/* Where to begin with some of them. */
static void locate_some(struct group *g, unsigned from, unsigned to, struct active *ret_active)
{
	unsigned n = 0;

	for (unsigned i = from; i < to; i++) {
		locate(g, &g->items[i]);
		ret_active->items[n] = (uint8_t)i;
		n += is_active(&g->items[i]);
	}
	ret_active->count = n;
}

/* The requests for what is wanted. */
static unsigned gather(struct group *g, struct fabric_request *requests)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->active[0].count; i++) {
		struct item *item = &g->items[g->active[0].items[i]];
		const struct candidate *c = &item->candidates[item->at];

		if (item->state == ITEM_PAIRS) {
			for (unsigned p = item->read; p < item->wanted; p++)
				requests[n++] = fabric_read(item->offsets[p], item->pairs[p],
							    LAYOUT_PAIR_BYTES);
			continue;
		}
		if (item->state == ITEM_CACHED)
			requests[n++] = fabric_read(c->slot, &item->seen, 8);
		requests[n++] = fabric_read(layout_slot_offset(c->word), g->scratch + item->scratch,
					    layout_class_bytes(layout_slot_class(c->word)));
	}
	return n;
}

/* ---- the end of each ------------------------------------------------------------------------- */

static void end(struct item *item, int status)
{
	item->state = ITEM_ENDED;
	*item->get.ret_status = status;
	if (status == -TARN_ENOTFOUND)
		memset(item->get.ret_item, 0, sizeof(*item->get.ret_item));
}

/* Its block is there, and is the key's. */
static void end_found(struct group *g, struct item *item)
{
	struct tarn_session *s = g->session;
	const struct layout_block *block = (const void *)(g->scratch + item->scratch);
	const struct candidate *c = &item->candidates[item->at];
	const struct group_get *get = &item->get;

	if (s->since && layout_slot_state(c->word) == LAYOUT_SLOT_FROZEN) {
		item->state = ITEM_ALONE;
		return;
	}
	if (found_expired(s, block)) {
		end(item, -TARN_ENOTFOUND);
		return;
	}
	/* in pieces, elsewhere */
	if (block->kind == LAYOUT_KIND_EXTENTS && !get->exists_only) {
		item->state = ITEM_ALONE;
		return;
	}
	if (g->cache && item->state == ITEM_BLOCK && block->kind != LAYOUT_KIND_EXTENTS &&
	    layout_slot_state(c->word) == LAYOUT_SLOT_COMMITTED) {
		cache_see(g->cache, item->hash, c->slot, c->word);
		cache_add(g->cache, item->hash, g->seen_epoch, c->slot, c->word);
	}
	*get->ret_item = found_item(s, block);
	if (s->reference)
		reference_hit(s, layout_slot_offset(c->word));
	if (!get->exists_only && block->value_length > get->bytes) {
		end(item, -TARN_ETOOSMALL);
		return;
	}
	if (!get->exists_only)
		found_copy(s, get->buffer, block);
	end(item, 0);
}

/* The key is not there. In a cluster that is nothing yet: kv-shard.c. */
static void end_absent(struct group *g, struct item *item)
{
	if (g->session->since)
		item->state = ITEM_ALONE;
	else
		end(item, -TARN_ENOTFOUND);
}

/* Its next candidate, or pair. */
static void go_on(struct group *g, struct item *item)
{
	if (item->at < item->count)
		want_block(g, item, ITEM_BLOCK);
	else if (item->read < 2)
		want_pairs(g, item, 2);
	else
		end_absent(g, item);
}

static int match(struct group *g, const struct item *item)
{
	uint64_t word = item->candidates[item->at].word;
	void *block = g->scratch + item->scratch;

	get(g, layout_slot_offset(word), block, layout_class_bytes(layout_slot_class(word)));
	return found_match(item->get.key, (uint32_t)item->get.key_bytes, block, word);
}

static void look_cached(struct group *g, struct item *item)
{
	struct tarn_session *s = g->session;
	const struct candidate *c = &item->candidates[0];

	get(g, c->slot, &item->seen, 8);
	if (item->seen == c->word && match(g, item) > 0) {
		end_found(g, item);
		return;
	}
	/* by itself it looks into the index, and counts that */
	cache_fail(s->cache, item->hash);
	item->state = ITEM_ALONE;
}

static void collect(const struct group *g, struct item *item, uint64_t slot, uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	if (state == LAYOUT_SLOT_MOVED) {
		item->alone |= found_tombstone_counts(item->hash, word);
		return;
	}
	if (state != LAYOUT_SLOT_COMMITTED && state != LAYOUT_SLOT_FROZEN)
		return;
	/* of pairs that overlap */
	for (unsigned i = 0; i < item->count; i++)
		if (item->candidates[i].slot == slot)
			return;
	/* a frozen one is no hit without the headers of both pairs, of which one may not be read */
	if (item->count == CANDIDATES || (g->lazy && state == LAYOUT_SLOT_FROZEN)) {
		item->alone = true;
		return;
	}
	item->candidates[item->count++] = (struct candidate){.slot = slot, .word = word};
}

static void look_pairs(struct group *g, struct item *item)
{
	/* near the second one comes along for a few, but is not looked at for who has a candidate */
	while (item->read < item->wanted && !(g->near && item->at < item->count)) {
		/* near all use the same memory: it is done with before the next one is read */
		struct layout_bucket *pair = g->near ? g->near_pair : item->pairs[item->read];
		uint64_t offset = item->offsets[item->read], splitting;
		uint32_t words;

		get(g, offset, pair, LAYOUT_PAIR_BYTES);
		item->alone |= found_headers(pair, 2, item->hash, &splitting) != HEADERS_FIT;
		for (words = found_words(pair, item->fp_bits); words; words &= words - 1) {
			unsigned i = (unsigned)__builtin_ctz(words);

			collect(g, item, offset + 8ull * i, pair[i / 8].slots[i % 8 - 1]);
		}
		item->read++;
	}
	if (item->alone)
		item->state = ITEM_ALONE;
	else
		go_on(g, item);
}

static void look_block(struct group *g, struct item *item)
{
	int found = match(g, item);

	if (found > 0) {
		end_found(g, item);
	} else if (found == 0) {
		item->at++;
		go_on(g, item);
	} else {
		item->state = ITEM_ALONE;
	}
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void leave_alone(struct group *g, struct active *active)
{
	for (unsigned i = 0; i < active->count; i++)
		g->items[active->items[i]].state = ITEM_ALONE;
	active->count = 0;
}

static void look_at(struct group *g, struct item *item)
{
	if (item->state == ITEM_BLOCK)
		look_block(g, item);
	else if (item->state == ITEM_PAIRS)
		look_pairs(g, item);
	else
		look_cached(g, item);
}

/* What was wanted has been read. */
static void look(struct group *g, struct active *active)
{
	unsigned n = 0;

	for (unsigned i = 0; i < active->count; i++)
		look_at(g, &g->items[active->items[i]]);
	for (unsigned i = 0; i < active->count; i++) {
		active->items[n] = active->items[i];
		n += is_active(&g->items[active->items[i]]);
	}
	active->count = n;
}

/* T1 */
static bool too_old(struct group *g)
{
	g->now_ns = session_now(g->session);
	return g->now_ns - g->first_read_ns > g->session->geometry.deadline_ns;
}

/* Returns how many are left alone. */
static unsigned finish(struct group *g)
{
	struct tarn_session *s = g->session;

	unsigned ended = 0, hits = 0, cached = 0;

	for (unsigned i = 0; i < g->count; i++) {
		const struct item *item = &g->items[i];

		if (item->state != ITEM_ENDED)
			continue;
		ended++;
		hits += *item->get.ret_status != -TARN_ENOTFOUND;
		cached += item->read == 0;
	}
	session_count_gets(s, g->now_ns - g->first_read_ns, g->now_ns, ended, hits);
	if (g->cache) {
		s->stats.cache_hits += cached;
		s->stats.cache_misses += ended - cached;
	}
	return g->count - ended;
}

void group_begin_near(struct group *g, unsigned count)
{
	struct tarn_session *s = g->session;

	begin(g, count);
	g->waves = g->located = 0;
	if (session_epoch_stale(s, g->first_read_ns) && want(g, LAYOUT_EPOCH_OFFSET, 8)) {
		get(g, LAYOUT_EPOCH_OFFSET, &g->epoch, 8);
		session_epoch_learn(s, g->epoch, g->first_read_ns);
	}
}

static void wave(struct group *g, unsigned to)
{
	locate_some(g, g->located, to, &g->active[g->waves++]);
	hint_all(g);
	g->located = to;
}

void group_added(struct group *g)
{
	if (g->count - g->located == WAVE)
		wave(g, g->count);
}

unsigned group_end_near(struct group *g)
{
	struct tarn_session *s = g->session;
	unsigned active = 0;

	if (g->located < g->count)
		wave(g, g->count);
	for (unsigned w = 0; w < g->waves; w++)
		active += g->active[w].count;
	while (active) {
		active = 0;
		s->stats.posts++;
		s->stats.round_trips++;
		near_done();
		for (unsigned w = 0; w < g->waves; w++) {
			look(g, &g->active[w]);
			hint_all(g);
			active += g->active[w].count;
		}
	}
	/* nobody has been told anything yet */
	if (too_old(g))
		for (unsigned i = 0; i < g->count; i++)
			g->items[i].state = ITEM_ALONE;
	return finish(g);
}

static unsigned run_near(struct group *g)
{
	group_begin_near(g, g->count);
	while (g->count - g->located > WAVE)
		wave(g, g->located + WAVE);
	return group_end_near(g);
}

/* A post is complete. */
static void look_posted(struct group *g)
{
	bool late = too_old(g);

	if (g->epoch)
		session_epoch_learn(g->session, g->epoch, g->first_read_ns);
	g->epoch = 0;
	if (late)
		leave_alone(g, &g->active[0]);
	else
		look(g, &g->active[0]);
}

/* 1: all have ended; 0: a post is under way; or its error. */
static int step_far(struct group *g)
{
	struct fabric_request requests[FABRIC_POST_MAX];
	int ret = 1;

	while (ret > 0 && g->active[0].count) {
		unsigned n;

		if (g->posted) {
			g->posted = false;
			if (g->task.status < 0)
				return g->task.status;
			look_posted(g);
			continue;
		}
		n = gather(g, requests);
		/*
		 * with an epoch as stale as that no location is cached, so another post follows if one has a
		 * block, and there is room for it in that
		 */
		if (n < FABRIC_POST_MAX && session_epoch_stale(g->session, g->now_ns))
			requests[n++] = fabric_read(LAYOUT_EPOCH_OFFSET, &g->epoch, 8);
		ret = session_post(g->session, requests, n, &g->task);
		g->posted = ret >= 0;
	}
	return ret;
}

static int group_step(struct task *task)
{
	struct group *g = (struct group *)task;
	int ret = 1;

	if (!g->begun) {
		g->begun = true;
		if (g->session->ep->near) {
			g->left = run_near(g);
			return 1;
		}
		begin(g, g->count);
		locate_some(g, 0, g->count, &g->active[0]);
	}
	ret = step_far(g);
	if (ret == 0)
		return 0;
	if (ret < 0)
		leave_alone(g, &g->active[0]);
	g->left = finish(g);
	return 1;
}

struct task *group_start(struct group *g)
{
	g->task.step = group_step;
	g->task.status = g->task.result = 0;
	g->task.wake_ns = 0;
	g->task.asking = false;
	g->posted = g->begun = false;
	return &g->task;
}

bool group_ended(const struct group *g, unsigned i, void **ret_owner)
{
	*ret_owner = g->items[i].get.owner;
	return g->items[i].state == ITEM_ENDED;
}
