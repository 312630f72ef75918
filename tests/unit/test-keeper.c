/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/keeper.c, ring.c: epochs, ageing, pages that come back, ready rings. Time is ours. */
#include "pool-fixture.h"
#include "ring.h"

#define MS    1000000ull
#define CLASS 20u /* 12480 bytes: 21 blocks a page */

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
	k->now = 1000000 * MS;
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
	assert_int_equal(stats(&k).blocks_aged, 6);
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
	assert_int_equal(stats(&k).pages_freed, 1);
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

static void test_counters_stay(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	fixture_blocks(k.pool, 5, LAYOUT_CLASS_COUNTER, 0, 2048, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_FULL, LAYOUT_CLASS_COUNTER, 0);
	pass_time(&k, 1500);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_FULL);
	assert_int_equal(fixture_block(k.pool, 5, LAYOUT_CLASS_COUNTER, 7), LAYOUT_FREE_RETIRED);
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
	assert_true(stats(&k).damaged > 0);
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

/* Slabs and orphans are looked at, and left alone; garbage is counted. */
static void test_others_pages(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k);
	fixture_blocks(k.pool, 5, CLASS, 0, 21, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 5, LAYOUT_PAGE_SLAB, CLASS, 2);
	fixture_blocks(k.pool, 6, CLASS, 0, 21, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 6, LAYOUT_PAGE_ORPHAN, CLASS, 2);
	self_store(k.pool, layout_page_word_offset(&k.pool->geometry, 9), 7);
	pass_time(&k, 1500);
	assert_int_equal(page_state(&k, 5), LAYOUT_PAGE_SLAB);
	assert_int_equal(page_state(&k, 6), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(fixture_block(k.pool, 5, CLASS, 0), LAYOUT_FREE_RETIRED);
	assert_int_equal(fixture_block(k.pool, 6, CLASS, 0), LAYOUT_FREE_RETIRED);
	assert_int_equal(stats(&k).blocks[CLASS].retired, 42);
	assert_true(stats(&k).damaged > 0);
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
	assert_true(stats(&k).key_counts > 1);
	fixture_close(&k.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_epoch),
		cmocka_unit_test(test_ageing),
		cmocka_unit_test(test_ageing_needs_epochs),
		cmocka_unit_test(test_becomes_free),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_counters_stay),
		cmocka_unit_test(test_word_changes),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_partial_taken_back),
		cmocka_unit_test(test_others_pages),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
