/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/keeper.c, ring.c: epochs, ageing, pages that come back, ready rings. Time is ours. */
#include "pool-fixture.h"
#include "ring.h"

#define MS    1000000ull
#define CLASS 20u /* 12480 bytes: 21 blocks a page */

static bool far_away; /* CASes are an adapter's */
static unsigned posts;

void __real_self_cas_many(struct pool *pool, struct self_change *changes, unsigned count);
void __wrap_self_cas_many(struct pool *pool, struct self_change *changes, unsigned count);
bool __wrap_self_is_far(const struct pool *pool);

void __wrap_self_cas_many(struct pool *pool, struct self_change *changes, unsigned count)
{
	posts += count > 0;
	__real_self_cas_many(pool, changes, count);
}

bool __wrap_self_is_far(const struct pool *pool)
{
	(void)pool;
	return far_away;
}

struct kept {
	struct fixture f;
	struct pool *pool;
	uint64_t now;
};

static struct keeper_stats stats(struct kept *k)
{
	struct keeper_stats got;

	keeper_get_stats(k->pool->keeper, k->now, &got);
	return got;
}

/* Time goes on by a bit at a time, with a step at each. */
static void pass_time(struct kept *k, uint64_t ms)
{
	for (uint64_t i = 0; i < ms; i += 5) {
		k->now += 5 * MS;
		keeper_step(k->pool->keeper, k->now);
	}
}

static void kept_open(struct kept *k)
{
	fixture_open(&k->f, "");
	k->pool = k->f.pool;
	k->now = 1ull << 60;
	keeper_step(k->pool->keeper, k->now);
}

static uint32_t page_state(struct kept *k, uint32_t page)
{
	return layout_page_state(pool_load_page_word(k->pool, page));
}

/* A full page of which blocks from..to - 1 are retired. */
static void full_page(struct kept *k, uint32_t page, uint32_t from, uint32_t to)
{
	fixture_blocks(k->pool, page, CLASS, 0, layout_class_blocks(CLASS), LAYOUT_FREE_IN_USE);
	fixture_blocks(k->pool, page, CLASS, from, to, LAYOUT_FREE_RETIRED);
	fixture_page(k->pool, page, LAYOUT_PAGE_FULL, CLASS, 0);
}

static void no_page_free(struct kept *k)
{
	for (uint32_t page = 1; page < k->pool->geometry.npages; page++)
		if (page_state(k, page) == LAYOUT_PAGE_FREE)
			full_page(k, page, 0, 0);
}

static void test_epoch(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	assert_int_equal(stats(&k).epoch, 1);
	k.now += 249 * MS;
	keeper_step(k.pool->keeper, k.now);
	assert_int_equal(stats(&k).epoch, 1);
	k.now += MS;
	keeper_step(k.pool->keeper, k.now);
	keeper_step(k.pool->keeper, k.now);
	assert_int_equal(stats(&k).epoch, 2);
	assert_int_equal(self_load(k.pool, LAYOUT_EPOCH_OFFSET), 2);
	k.now += 10000 * MS; /* who was late goes up by one only, and waits a whole E again */
	keeper_step(k.pool->keeper, k.now);
	k.now += 249 * MS;
	keeper_step(k.pool->keeper, k.now);
	assert_int_equal(stats(&k).epoch, 3);
	self_store(k.pool, LAYOUT_EPOCH_OFFSET, 77777); /* somebody's scribble does not last */
	pass_time(&k, 250);
	assert_int_equal(self_load(k.pool, LAYOUT_EPOCH_OFFSET), 4);
	fixture_close(&k.f);
}

static void test_ageing(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 6); /* 6 of 21: more than a quarter */
	pass_time(&k, 450);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(fixture_block(k.pool, 5, CLASS, i), LAYOUT_FREE_RETIRED);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FULL);
	fixture_blocks(k.pool, 5, CLASS, 10, 11, LAYOUT_FREE_RETIRED); /* a late one */
	pass_time(&k, 500);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(fixture_block(k.pool, 5, CLASS, i), LAYOUT_FREE_AGED);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 10),
			 LAYOUT_FREE_RETIRED); /* has not rested for G yet */
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 20), LAYOUT_FREE_IN_USE);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_PARTIAL);
	assert_int_equal(layout_page_class(pool_load_page_word(k.pool, 5)), CLASS);
	assert_int_equal(stats(&k).recycle.blocks_aged, 6);
	fixture_close(&k.f);
}

/* The epoch has not gone up: nothing ages, however long it rests. */
static void test_ageing_needs_epochs(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 6);
	pass_time(&k, 255); /* seen, in epoch 2 at the latest */
	k.now += 100000 * MS;
	for (int i = 0; i < 20; i++)
		keeper_step(k.pool->keeper, k.now); /* a daemon that stood still: one epoch */
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_RETIRED);
	pass_time(&k, 600);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_AGED);
	fixture_close(&k.f);
}

/* Two epochs are not enough either. */
static void test_ageing_needs_time(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 6);
	pass_time(&k, 300); /* seen */
	keeper_skip(k.pool->keeper, 5);
	pass_time(&k, 300);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_RETIRED);
	pass_time(&k, 1000);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_AGED);
	fixture_close(&k.f);
}

static void test_becomes_free(void **state)
{
	uint64_t generation;
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 21);
	generation = layout_page_generation(pool_load_page_word(k.pool, 5));
	pass_time(&k, 1200);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FREE);
	assert_int_equal(layout_page_generation(pool_load_page_word(k.pool, 5)), generation + 1);
	assert_int_equal(stats(&k).recycle.pages_freed, 1);
	fixture_close(&k.f);
}

/* By an adapter all that one step of the walk finds is one post. */
static void test_become_free_together(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	for (uint32_t page = 5; page < 9; page++)
		full_page(&k, page, 0, 21);
	full_page(&k, 9, 0, 20);
	far_away = true;
	posts = 0;
	pass_time(&k, 1200);
	far_away = false;
	for (uint32_t page = 5; page < 9; page++)
		assert_int_equal(page_state(&k, page), LAYOUT_PAGE_FREE);
	assert_int_not_equal(page_state(&k, 9), LAYOUT_PAGE_FREE);
	assert_int_equal(stats(&k).recycle.pages_freed, 4);
	assert_int_equal(posts, 1);
	fixture_close(&k.f);
}

static void test_too_few(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 3);
	pass_time(&k, 1500);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_AGED);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FULL); /* not worth it yet */
	for (uint32_t page = 6; page < k.pool->geometry.npages; page++)
		full_page(&k, page, 0, 0);
	for (uint32_t page = 1; page < 5; page++)
		full_page(&k, page, 0, 0);
	pass_time(&k, 1000); /* no page is free: now it is */
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_PARTIAL);
	fixture_close(&k.f);
}

/* T2 is not enough for counters: a late FAA may be on its way until each connection has raised its
 * count twice. */
static void test_counters(void **state)
{
	struct pool_client client = {.pid = 1, .name = "ada"};
	uint64_t count;
	uint32_t slot;
	struct kept k;

	(void)state;
	kept_open(&k);
	assert_int_equal(pool_client_add(k.pool, &client, &slot), 0);
	count = layout_client_offset(&k.pool->geometry, slot) +
		offsetof(struct layout_client, quiescence);
	fixture_blocks(k.pool, 5, LAYOUT_CLASS_COUNTER, 0, 2048, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_FULL, LAYOUT_CLASS_COUNTER, 0);
	full_page(&k, 6, 0, 21);
	pass_time(&k, 3000);
	assert_int_equal(page_state(&k, 6), LAYOUT_PAGE_FREE); /* not of counters */
	assert_int_equal(fixture_block(k.pool, 5, LAYOUT_CLASS_COUNTER, 7), LAYOUT_FREE_RETIRED);
	self_store(k.pool, count, 1);
	pass_time(&k, 1000);
	assert_int_equal(fixture_block(k.pool, 5, LAYOUT_CLASS_COUNTER, 7), LAYOUT_FREE_RETIRED);
	self_store(k.pool, count, 2);
	pass_time(&k, 1000);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FREE);
	/* The next one waits for raises of its own. */
	fixture_blocks(k.pool, 5, LAYOUT_CLASS_COUNTER, 0, 2048, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_FULL, LAYOUT_CLASS_COUNTER, 0);
	pass_time(&k, 3000);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FULL);
	self_store(k.pool, count, 4);
	pass_time(&k, 1000);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FREE);
	fixture_close(&k.f);
}

/* T2 holds for counters, too. */
static void test_counters_rest(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	fixture_blocks(k.pool, 5, LAYOUT_CLASS_COUNTER, 0, 2048, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_FULL, LAYOUT_CLASS_COUNTER, 0);
	pass_time(&k, 450);
	assert_int_equal(fixture_block(k.pool, 5, LAYOUT_CLASS_COUNTER, 7), LAYOUT_FREE_RETIRED);
	pass_time(&k, 800);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FREE);
	fixture_close(&k.f);
}

/* Between two retirements that are noted together, a round must not have begun already. */
static void test_counters_two_notes(void **state)
{
	struct pool_client client = {.pid = 1, .name = "ada"};
	uint64_t count;
	uint32_t slot;
	struct kept k;

	(void)state;
	kept_open(&k);
	assert_int_equal(pool_client_add(k.pool, &client, &slot), 0);
	count = layout_client_offset(&k.pool->geometry, slot) +
		offsetof(struct layout_client, quiescence);
	for (uint32_t page = 5; page < 7; page++)
		fixture_blocks(k.pool, page, LAYOUT_CLASS_COUNTER, 0, 2048, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_FULL, LAYOUT_CLASS_COUNTER, 0);
	pass_time(&k, 1500); /* the round of page 5 is under way */
	fixture_page(k.pool, 6, LAYOUT_PAGE_FULL, LAYOUT_CLASS_COUNTER, 0);
	self_store(k.pool, count, 1);
	pass_time(&k, 1500);
	self_store(k.pool, count, 2); /* page 6 was noted after 1: it has been raised once since */
	pass_time(&k, 1500);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FREE);
	assert_int_equal(page_state(&k, 6), LAYOUT_PAGE_FULL);
	self_store(k.pool, count, 4);
	pass_time(&k, 1500);
	assert_int_equal(page_state(&k, 6), LAYOUT_PAGE_FREE);
	fixture_close(&k.f);
}

/* A page whose word changes in between begins anew: its old notes count for nothing. */
static void test_word_changes(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 6);
	pass_time(&k, 450);
	fixture_page(k.pool, 5, LAYOUT_PAGE_SLAB, CLASS, 1);
	full_page(&k, 5, 0, 6);
	pass_time(&k, 400);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_RETIRED);
	pass_time(&k, 500);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_AGED);
	fixture_close(&k.f);
}

static uint64_t ring_at(struct kept *k, uint32_t offset)
{
	return self_load(k->pool, layout_ring_offset(&k->pool->geometry, CLASS) + offset);
}

static void partial_page(struct kept *k, uint32_t page, uint32_t retired)
{
	fixture_blocks(k->pool, page, CLASS, 0, 10, LAYOUT_FREE_IN_USE);
	fixture_blocks(k->pool, page, CLASS, 10, 10 + retired, LAYOUT_FREE_RETIRED);
	fixture_page(k->pool, page, LAYOUT_PAGE_PARTIAL, CLASS, 0);
}

static void test_ring(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	partial_page(&k, 7, 0);
	pass_time(&k, 300);
	assert_int_equal(ring_at(&k, LAYOUT_RING_TAIL), 1);
	assert_true(ring_at(&k, LAYOUT_RING_ENTRIES) == layout_ring_make(0, 7));
	pass_time(&k, 600); /* a live entry names it: once is enough */
	assert_int_equal(ring_at(&k, LAYOUT_RING_TAIL), 1);
	self_store(k.pool, layout_ring_offset(&k.pool->geometry, CLASS),
		   3); /* three tickets drawn, and the page not claimed */
	pass_time(&k, 300);
	assert_int_equal(ring_at(&k, LAYOUT_RING_TAIL), 4);
	assert_true(ring_at(&k, LAYOUT_RING_ENTRIES + 8 * 3) == layout_ring_make(3, 7));
	self_store(k.pool, layout_ring_offset(&k.pool->geometry, CLASS),
		   UINT64_MAX / 2); /* impossible */
	pass_time(&k, 600);
	assert_true(ring_at(&k, LAYOUT_RING_HEAD) <= 5);
	assert_true(stats(&k).recycle.damaged > 0);
	fixture_close(&k.f);
}

static void test_ring_full(void **state)
{
	struct kept k;
	struct ring *ring;
	uint32_t entries;

	(void)state;
	kept_open(&k);
	entries = k.pool->geometry.ring_entries;
	ring = ring_create(k.pool);
	for (uint32_t i = 0; i < entries && i < k.pool->geometry.npages; i++)
		assert_int_equal(ring_push(ring, 3, i), RING_PUSHED);
	assert_int_equal(ring_push(ring, 3, 0), RING_NAMED);
	for (uint32_t i = k.pool->geometry.npages; i < entries;
	     i++) { /* npages is no power of two: fill up by another page's new entry */
		self_store(k.pool, layout_ring_offset(&k.pool->geometry, 3), 0);
		break;
	}
	self_store(k.pool, layout_ring_offset(&k.pool->geometry, 3), 1);
	assert_int_equal(ring_push(ring, 3, 0),
			 RING_PUSHED); /* the place of the ticket that was drawn */
	assert_int_equal(ring_push(ring, 4, 0), RING_PUSHED); /* another class */
	ring_free(ring);
	fixture_close(&k.f);
}

static void test_partial_taken_back(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	partial_page(&k, 7, 6);
	partial_page(&k, 8, 1);
	pass_time(&k, 300);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_FULL);
	assert_int_equal(page_state(&k, 8), LAYOUT_PAGE_PARTIAL);
	pass_time(&k, 1200);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_PARTIAL);
	assert_int_equal(fixture_block(k.pool, 7, CLASS, 10), LAYOUT_FREE_AGED);
	fixture_close(&k.f);
}

/*
 * Slabs of clients and orphans are looked at, and left alone; a slab of nobody is an orphan; garbage
 * is counted.
 */
static void test_others_pages(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	k.pool->clients[2].state = LAYOUT_CLIENT_LIVE;
	fixture_page(k.pool, 7, LAYOUT_PAGE_SLAB, CLASS, 3);
	fixture_page(k.pool, 8, LAYOUT_PAGE_SLAB, CLASS, 65535);
	fixture_blocks(k.pool, 5, CLASS, 0, 21, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_SLAB, CLASS, 2);
	fixture_blocks(k.pool, 6, CLASS, 0, 21, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 6, LAYOUT_PAGE_ORPHAN, CLASS, 2);
	self_store(k.pool, layout_page_word_offset(&k.pool->geometry, 9), 7);
	pass_time(&k, 1500);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_SLAB);
	for (uint32_t page = 6; page <= 8; page++)
		assert_int_equal(page_state(&k, page), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_RETIRED);
	assert_int_equal(fixture_block(k.pool, 6, CLASS, 0), LAYOUT_FREE_RETIRED);
	assert_int_equal(stats(&k).recycle.blocks[CLASS].retired, 42);
	assert_true(stats(&k).recycle.damaged > 0);
	fixture_close(&k.f);
}

/* When memory is scarce an orphan's unused blocks do not wait for the sweep; those in use stay so. */
static void test_orphan_when_scarce(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	k.pool->clients[2].state = LAYOUT_CLIENT_LIVE;
	for (uint32_t page = 1; page < k.pool->geometry.npages; page++)
		fixture_page(k.pool, page, LAYOUT_PAGE_SLAB, CLASS, 2);
	fixture_blocks(k.pool, 6, CLASS, 0, 10, LAYOUT_FREE_IN_USE);
	fixture_page(k.pool, 6, LAYOUT_PAGE_ORPHAN, CLASS, 0);
	fixture_blocks(k.pool, 7, CLASS, 0, 20, LAYOUT_FREE_IN_USE);
	fixture_page(k.pool, 7, LAYOUT_PAGE_ORPHAN, CLASS, 0);
	pass_time(&k, 1000);
	assert_int_equal(page_state(&k, 6), LAYOUT_PAGE_PARTIAL);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_ORPHAN); /* not worth it */
	for (uint32_t block = 0; block < 10; block++)
		assert_int_equal(fixture_block(k.pool, 6, CLASS, block), LAYOUT_FREE_IN_USE);
	fixture_close(&k.f);
}

static void test_keys(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	for (uint32_t i = 0; i < 10; i++) {
		enum layout_slot_state slot_state = i < 7    ? LAYOUT_SLOT_COMMITTED
						    : i == 7 ? LAYOUT_SLOT_FROZEN
							     : LAYOUT_SLOT_PENDING;

		self_store(k.pool, layout_page_offset(&k.pool->geometry, 0) + 64 * i + 8,
			   layout_slot_make(slot_state, 1, 1, 1, 64));
	}
	pass_time(&k, 4000);
	assert_int_equal(stats(&k).keys, 8);
	assert_true(stats(&k).key_counts > 0);
	fixture_close(&k.f);
}

/* A page in which nothing happens is looked at more and more seldom, and at once when memory is scarce. */
static void test_idle_pages(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 0);
	pass_time(&k, 8000);
	fixture_blocks(k.pool, 5, CLASS, 0, 6, LAYOUT_FREE_RETIRED);
	pass_time(&k, 4500 + 1500); /* 16 walks at most, then it rests */
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_AGED);
	no_page_free(&k);
	pass_time(&k, 6000); /* not so long that the sweep finds that no key reaches them */
	fixture_blocks(k.pool, 7, CLASS, 0, 6, LAYOUT_FREE_RETIRED);
	pass_time(&k, 900);
	assert_int_equal(fixture_block(k.pool, 7, CLASS, 0), LAYOUT_FREE_AGED);
	fixture_close(&k.f);
}

/* Few pages are free: one with a block to give keeps it until those that rest in it have rested, and
 * then gives all. */
static void test_no_flapping(void **state)
{
	uint64_t generation;
	struct kept k;

	(void)state;
	kept_open(&k);
	no_page_free(&k);
	pass_time(&k, 500);
	full_page(&k, 7, 0, 2);
	fixture_blocks(k.pool, 7, CLASS, 2, 3, LAYOUT_FREE_AGED);
	generation = layout_page_generation(pool_load_page_word(k.pool, 7));
	pass_time(&k, 400);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_FULL);
	pass_time(&k, 1000);
	assert_int_equal(fixture_block(k.pool, 7, CLASS, 0), LAYOUT_FREE_AGED);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_PARTIAL);
	fixture_blocks(k.pool, 7, CLASS, 5, 6, LAYOUT_FREE_RETIRED);
	pass_time(&k, 1000);
	assert_int_equal(layout_page_generation(pool_load_page_word(k.pool, 7)), generation + 1);
	fixture_close(&k.f);
}

/* A client waits: what there is is given at once. */
static void test_hurry(void **state)
{
	struct kept k;
	bool found = false;

	(void)state;
	kept_open(&k);
	full_page(&k, 7, 0, 2);
	fixture_blocks(k.pool, 7, CLASS, 2, 3, LAYOUT_FREE_AGED);
	/*
	 * It works for 2 ms at a time by the real clock, every 20 ms, and goes on where the last walk was: on
	 * a busy machine that may be far from the page.
	 */
	for (unsigned i = 0; i < 1000 && !found; i++, k.now += 20000000)
		found = keeper_hurry(k.pool->keeper, CLASS, k.now);
	assert_true(found);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_PARTIAL);
	for (unsigned i = 0; i < 10; i++, k.now += 20000000)
		assert_false(keeper_hurry(k.pool->keeper, CLASS, k.now));
	fixture_close(&k.f);
}

/* Blocks that are retired while a page rests, and were not seen to be, are counted right. */
static void test_late_ones(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 3);
	pass_time(&k, 300);
	fixture_blocks(k.pool, 5, CLASS, 3, 21, LAYOUT_FREE_RETIRED);
	pass_time(&k, 500);
	pass_time(&k, 2500);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FREE);
	assert_int_equal(stats(&k).recycle.blocks[CLASS].in_use, 0);
	assert_int_equal(stats(&k).recycle.blocks[CLASS].retired, 0);
	fixture_close(&k.f);
}

/*
 * A page that only rests is not looked at; but once somebody waits for memory it is: what has been
 * deleted in it meanwhile may be what keeps "full" from being true.
 */
static void test_rests_unseen(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 5, 0, 3);
	pass_time(&k, 300);
	fixture_blocks(k.pool, 5, CLASS, 3, 21, LAYOUT_FREE_RETIRED);
	assert_int_equal(keeper_resting(k.pool->keeper, CLASS + 1), 0);
	keeper_hurry(k.pool->keeper, CLASS + 1, k.now);
	pass_time(&k, 260);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FULL);
	assert_int_equal(keeper_resting(k.pool->keeper, CLASS + 1), 1);
	fixture_close(&k.f);
}

/* ---- the end of clients ---- */

static uint32_t add_client(struct kept *k)
{
	struct pool_client client = {.pid = 1, .name = "ada"};
	uint32_t slot;

	return pool_client_add(k->pool, &client, &slot) == 0 ? slot : POOL_NONE;
}

static void test_end_at_once(void **state)
{
	uint32_t slot;
	struct kept k;

	(void)state;
	kept_open(&k);
	slot = add_client(&k);
	fixture_page(k.pool, 7, LAYOUT_PAGE_SLAB, CLASS, slot);
	fixture_page(k.pool, 8, LAYOUT_PAGE_SLAB, CLASS, slot);
	assert_int_equal(pool_client_end(k.pool, slot), 2);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(k.pool->counters.clients_ended_dead, 1);
	assert_int_equal(k.pool->settling_count, 0);
	assert_int_equal(pool_client_end(k.pool, add_client(&k)), 0);
	assert_int_equal(k.pool->counters.clients_ended_clean, 1);
	fixture_close(&k.f);
}

/* In a huge pool the slot rests until all pages have been looked at. */
static void test_end_lazily(void **state)
{
	uint32_t slot;
	struct kept k;

	(void)state;
	kept_open(&k);
	k.pool->lazy_ends = true;
	pass_time(&k, 1000);
	slot = add_client(&k);
	fixture_page(k.pool, 7, LAYOUT_PAGE_SLAB, CLASS, slot);
	assert_int_equal(pool_client_end(k.pool, slot), 0);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_SLAB);
	k.pool->slot_cursor = slot;
	assert_true(add_client(&k) != slot);
	assert_int_equal(k.pool->counters.clients_ended_dead, 0);
	pass_time(&k, 1000);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(k.pool->counters.clients_ended_dead, 1);
	k.pool->slot_cursor = slot;
	assert_int_equal(add_client(&k), slot);
	fixture_close(&k.f);
}

/* No other slot is free: then the pages are looked at at once. */
static void test_end_lazily_no_slot(void **state)
{
	uint32_t slot = POOL_NONE;
	struct kept k;

	(void)state;
	kept_open(&k);
	k.pool->lazy_ends = true;
	for (uint32_t i = 0; i < k.pool->geometry.max_clients; i++)
		slot = add_client(&k);
	assert_int_equal(add_client(&k), POOL_NONE);
	fixture_page(k.pool, 7, LAYOUT_PAGE_SLAB, CLASS, slot);
	pool_client_end(k.pool, slot);
	assert_int_equal(add_client(&k), slot);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(k.pool->counters.clients_ended_dead, 1);
	fixture_close(&k.f);
}

/* The daemon's own connection has failed: who gets the slot next must not get the page with it. */
static void test_end_without_connection(void **state)
{
	uint32_t slot;
	struct kept k;

	(void)state;
	kept_open(&k);
	slot = add_client(&k);
	fixture_page(k.pool, 7, LAYOUT_PAGE_SLAB, CLASS, slot);
	k.pool->geometry.atomics = LAYOUT_ATOMICS_NIC;
	k.pool->self_lost = true;
	pool_client_end(k.pool, slot);
	pass_time(&k, 1000); /* a walk is no help */
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_SLAB);
	assert_int_equal(k.pool->settling_count, 1);
	k.pool->slot_cursor = slot;
	assert_true(add_client(&k) != slot);
	k.pool->self_lost = false;
	pass_time(&k, 1000);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(k.pool->settling_count, 0);
	fixture_close(&k.f);
}

/* A death brings a sweep, which frees all that nothing reaches, and recycling goes on from there. */
static void test_death(void **state)
{
	uint32_t slot;
	struct kept k;

	(void)state;
	kept_open(&k);
	slot = add_client(&k);
	fixture_blocks(k.pool, 7, CLASS, 0, 21, LAYOUT_FREE_IN_USE);
	fixture_page(k.pool, 7, LAYOUT_PAGE_SLAB, CLASS, slot);
	assert_int_equal(pool_client_end(k.pool, slot), 1);
	assert_true(stats(&k).sweep.soon);
	pass_time(&k, 6000);
	assert_int_equal(stats(&k).sweep.orphans_freed, 1);
	assert_int_equal(stats(&k).sweep.leaked_blocks, 21);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_FREE);
	fixture_close(&k.f);
}

/* What the slow sweep finds in a page that stays full is recycled, too. */
static void test_leak_recycled(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	full_page(&k, 7, 0, 0);
	pass_time(&k, 40000);
	assert_int_equal(stats(&k).sweep.leaked_blocks, 21);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_FREE);
	fixture_close(&k.f);
}

/* So do orphans that nobody's end has made. */
static void test_orphans_found(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	fixture_page(k.pool, 7, LAYOUT_PAGE_ORPHAN, CLASS, 0);
	pass_time(&k, 6000);
	assert_int_equal(page_state(&k, 7), LAYOUT_PAGE_FREE);
	fixture_close(&k.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_epoch),
		cmocka_unit_test(test_ageing),
		cmocka_unit_test(test_ageing_needs_epochs),
		cmocka_unit_test(test_ageing_needs_time),
		cmocka_unit_test(test_becomes_free),
		cmocka_unit_test(test_become_free_together),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_counters_rest),
		cmocka_unit_test(test_counters_two_notes),
		cmocka_unit_test(test_word_changes),
		cmocka_unit_test(test_idle_pages),
		cmocka_unit_test(test_no_flapping),
		cmocka_unit_test(test_hurry),
		cmocka_unit_test(test_late_ones),
		cmocka_unit_test(test_rests_unseen),
		cmocka_unit_test(test_end_at_once),
		cmocka_unit_test(test_end_lazily),
		cmocka_unit_test(test_end_lazily_no_slot),
		cmocka_unit_test(test_end_without_connection),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_leak_recycled),
		cmocka_unit_test(test_orphans_found),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_partial_taken_back),
		cmocka_unit_test(test_others_pages),
		cmocka_unit_test(test_orphan_when_scarce),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
