/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks over all slots of the index, a bounded piece per step; see expire.h. Main thread, called by
 * keeper.c. It takes at most one fiftieth of the time, a tenth where it finds much that has expired, and
 * none while nobody is there who could change anything and no key expires. A
 * split under way may show a key twice or not at all: the counts are of the order of truth, and a slot
 * is emptied only by a CAS of its committed word. blocks.c does that; quota.c has the counts per access
 * key.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "blocks.h"
#include "clock.h"
#include "err.h"
#include "expire.h"
#include "pool.h"
#include "quota.h"
#include "self.h"

#define STEP_NS    500000u
#define WALK_NS    1000000000u /* from the begin of a walk to that of the next, at least */
#define SHARE      49u         /* it rests so many times as long as it works */
#define SHARE_SOON 9u
#define SHARE_IDLE 99u
#define LONG_NS    100000000u /* a walk in a hurry that has worked for so long is in none any more */
#define MANY       16u        /* one of so many keys had expired: there will be more */
#define LOOK       16u        /* buckets between two looks at the clock */
#define AHEAD      2u         /* buckets whose blocks are fetched before they are looked at */

/* What one walk finds. */
struct found {
	uint64_t keys, bytes, expired, damaged;
	uint64_t expiry; /* the first one of those that are left; 0: none */
};

/* What can have changed the index: expire_step() compares two of these. */
struct state {
	uint64_t changes;
	bool clients;
};

struct expire {
	struct pool *pool;
	struct quota *quota;
	struct blocks *blocks;
	bool walking, soon; /* soon: expire_soon() was called since this walk began */
	bool hurried;
	uint32_t page, bucket; /* the walk goes on here */
	uint64_t began_ns, worked_ns, due_ns, walked_ns;
	struct found now, last;
	struct state seen; /* when the last walk, or the one under way, began */
	uint64_t walks, expired, expired_bytes;
};

int expire_create(struct pool *pool, struct quota *quota, struct expire **ret_expire)
{
	struct expire *expire = calloc(1, sizeof(*expire));

	if (expire)
		expire->blocks = blocks_create(pool);
	if (!expire || !expire->blocks) {
		expire_free(expire);
		return err_set(-ENOMEM, "out of memory");
	}
	expire->pool = pool;
	expire->quota = quota;
	*ret_expire = expire;
	return 0;
}

void expire_free(struct expire *expire)
{
	if (!expire)
		return;
	blocks_free(expire->blocks);
	free(expire);
}

/* ---- a key ---- */

/* One whole epoch more: clients whose epoch is one behind have stopped to show it by then, too. */
static bool is_over(const struct layout_block *header, uint64_t epoch)
{
	return header->expiry && epoch > header->expiry;
}

/* True if it is gone, or about to: not to be counted. */
static bool take_out(struct expire *expire, uint64_t slot, uint64_t word)
{
	uint64_t bytes;

	switch (blocks_remove(expire->blocks, slot, word, true, &bytes)) {
	case BLOCKS_DONE:
		expire->expired++;
		expire->expired_bytes += bytes;
		expire->now.expired++;
		return true;
	case BLOCKS_CHANGED: /* replaced just now, or deleted: the next walk sees */
		return true;
	case BLOCKS_DAMAGED:
		expire->now.damaged++;
		break;
	}
	return false;
}

static void look_at_slot(struct expire *expire, uint64_t slot, uint64_t epoch)
{
	uint64_t word = self_load(expire->pool, slot);
	uint32_t state = layout_slot_state(word);
	struct layout_block header;

	if (state != LAYOUT_SLOT_COMMITTED && state != LAYOUT_SLOT_FROZEN)
		return;
	switch (blocks_header(expire->blocks, slot, word, &header)) {
	case BLOCKS_DONE:
		if (state == LAYOUT_SLOT_COMMITTED && is_over(&header, epoch) &&
		    take_out(expire, slot, word))
			return;
		if (header.expiry && (!expire->now.expiry || header.expiry < expire->now.expiry))
			expire->now.expiry = header.expiry;
		expire->now.bytes += blocks_stored_bytes(&header);
		quota_count(expire->quota, header.owner, blocks_stored_bytes(&header));
		break;
	case BLOCKS_CHANGED:
		break;
	case BLOCKS_DAMAGED: /* whose it is and how long it lives, nobody can say */
		expire->now.damaged++;
		break;
	}
	expire->now.keys++;
}

/* ---- the walk ---- */

/* Most of what a walk takes is to wait for memory: for several blocks at a time it is less. */
static void hint_bucket(struct expire *expire, uint64_t bucket)
{
	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t word = self_load(expire->pool, bucket + 8ull * i);

		if (layout_slot_state(word) == LAYOUT_SLOT_COMMITTED)
			blocks_hint(expire->blocks, word);
	}
}

static void look_at_bucket(struct expire *expire, uint64_t bucket, uint64_t epoch)
{
	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) /* word 0 is the header */
		look_at_slot(expire, bucket + 8ull * i, epoch);
}

/* Goes on in the page; returns false when the time is up. */
static bool page_step(struct expire *expire, uint64_t epoch, uint64_t until)
{
	const struct layout_geometry *g = &expire->pool->geometry;
	uint64_t page = layout_page_offset(g, expire->page);

	if (layout_page_state(pool_load_page_word(expire->pool, expire->page)) ==
	    LAYOUT_PAGE_INDEX) {
		while (expire->bucket < 3 * g->groups) {
			if (expire->bucket + AHEAD < 3 * g->groups)
				hint_bucket(expire, page + (uint64_t)(expire->bucket + AHEAD) *
								    LAYOUT_BUCKET_BYTES);
			look_at_bucket(expire,
				       page + (uint64_t)expire->bucket++ * LAYOUT_BUCKET_BYTES,
				       epoch);
			if (expire->bucket % LOOK == 0 && clock_now_ns() >= until)
				return false;
		}
	}
	expire->bucket = 0;
	expire->page++;
	return expire->page % LOOK != 0 || clock_now_ns() < until;
}

static struct state state_now(const struct expire *expire, uint64_t changes)
{
	const struct pool *pool = expire->pool;

	return (struct state){.changes = pool->counters.handshakes_accepted +
					 pool->connections_ended + changes,
			      .clients = pool->client_count > 0};
}

/*
 * Is what the last walk has found as good as new? Nobody was there who could change it, the daemon has
 * changed nothing itself, and nothing expires yet.
 */
static bool is_quiet(const struct expire *expire, const struct state *state, uint64_t epoch)
{
	return expire->walks > 0 && !expire->soon && !state->clients && !expire->seen.clients &&
	       state->changes == expire->seen.changes && expire->last.expired == 0 &&
	       (expire->last.expiry == 0 || epoch <= expire->last.expiry);
}

static void walk_begin(struct expire *expire, uint64_t now, const struct state *state)
{
	expire->seen = *state;
	expire->walking = true;
	expire->hurried = expire->soon;
	expire->soon = false;
	expire->page = expire->bucket = 0;
	expire->began_ns = now;
	expire->worked_ns = 0;
	expire->now = (struct found){0};
	quota_walk_begin(expire->quota);
}

static void walk_end(struct expire *expire, uint64_t now)
{
	expire->walking = false;
	expire->last = expire->now;
	expire->walks++;
	expire->walked_ns = now;
	quota_walk_end(expire->quota);
}

/* Nothing expires, and nobody has a quota: then it is for the stats alone. */
static bool only_counts(const struct expire *expire)
{
	return !expire->last.expiry && !expire->now.expiry && expire->pool->keys.count == 0;
}

static uint64_t share(const struct expire *expire)
{
	bool many = expire->now.expired > expire->now.keys / MANY;

	if (many)
		return SHARE_SOON;
	if ((expire->hurried || expire->soon) && expire->worked_ns < LONG_NS)
		return SHARE_SOON;
	return only_counts(expire) ? SHARE_IDLE : SHARE;
}

uint64_t expire_step(struct expire *expire, const struct keeper_time *time, uint64_t changes)
{
	/* CPU time: on a busy machine the time of others must not count as ours */
	uint64_t until = clock_now_ns() + STEP_NS, began = clock_thread_ns(), now = time->now_ns;
	struct state state = state_now(expire, changes);
	uint64_t worked, pause;

	if (now < expire->due_ns)
		return expire->due_ns;
	if (!expire->walking && is_quiet(expire, &state, time->epoch)) {
		expire->walked_ns = now;
		expire->due_ns = now + WALK_NS;
		return expire->due_ns;
	}
	if (!expire->walking)
		walk_begin(expire, now, &state);
	while (expire->page < expire->pool->geometry.npages &&
	       page_step(expire, time->epoch, until))
		;
	worked = clock_thread_ns() - began;
	expire->worked_ns += worked;
	pause = share(expire) * worked;
	if (expire->page >= expire->pool->geometry.npages) {
		walk_end(expire, now);
		if (!expire->soon && expire->began_ns + WALK_NS > now + pause)
			pause = expire->began_ns + WALK_NS - now;
	}
	expire->due_ns = now + pause;
	return expire->due_ns;
}

uint64_t expire_soon(struct expire *expire)
{
	/* not all the time, whoever asks: as long as the last walk worked nine times over */
	uint64_t due = expire->walked_ns + SHARE_SOON * expire->worked_ns;

	expire->soon = true;
	if (!expire->walking && due < expire->due_ns)
		expire->due_ns = due;
	return expire->due_ns;
}

void expire_get_stats(const struct expire *expire, uint64_t now, struct expire_stats *ret_stats)
{
	*ret_stats = (struct expire_stats){
		.walks = expire->walks,
		.age_ns = expire->walks ? now - expire->walked_ns : 0,
		.keys = expire->last.keys,
		.bytes = expire->last.bytes,
		.damaged = expire->last.damaged,
		.expired = expire->expired,
		.expired_bytes = expire->expired_bytes,
	};
}
