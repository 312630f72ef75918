/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/evict.c and the marks of client/reference.c: what is asked for stays, what is not makes room. */
#include "keeper-fixture.h"

#define CACHE "mode = cache\nreference_sample = 1\nkeys = 10000\n"

/* Puts until the session finds no page. Returns how many there are. */
static unsigned fill(struct kept *k, size_t bytes)
{
	unsigned count = 0;

	while (kept_put(k->session, count, bytes, 0) == 0)
		count++;
	kept_hand_back(k->session);
	return count;
}

static unsigned present(struct kept *k, unsigned from, unsigned to)
{
	unsigned count = 0;

	for (unsigned i = from; i < to; i++)
		count += kept_exists(k->session, i) == 0;
	return count;
}

static void test_store(void **state)
{
	struct kept k;
	unsigned count;

	(void)state;
	kept_open(&k, "keys = 10000\n");
	count = fill(&k, 1000);
	keeper_hurry(k.pool->keeper, layout_class_for(1056), k.now);
	kept_pass(&k, 3000);
	assert_int_equal(present(&k, 0, count), count);
	assert_int_equal(kept_stats(&k).evict.evicted, 0);
	assert_int_equal(keeper_resting(k.pool->keeper, 1), 0);
	kept_close(&k);
}

/* With room there is nothing to do. */
static void test_room(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k, CACHE);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(kept_put(k.session, i, 1000, 0), 0);
	kept_hand_back(k.session);
	kept_pass(&k, 3000);
	assert_int_equal(kept_stats(&k).evict.evicted, 0);
	kept_close(&k);
}

static void test_makes_room(void **state)
{
	struct kept k;
	unsigned count, left;

	(void)state;
	kept_open(&k, CACHE "low_water = 10\nhigh_water = 20\n");
	count = fill(&k, 1000);
	kept_pass(&k, 3000);
	left = present(&k, 0, count);
	/* 20 % of what there is, and a page or two whole */
	assert_in_range(left, count * 65 / 100, count * 85 / 100);
	assert_int_equal(kept_stats(&k).evict.evicted, count - left);
	assert_true(kept_stats(&k).evict.active);
	kept_pass(&k, 10000); /* that is enough */
	assert_in_range(present(&k, 0, count), count * 70 / 100, left);
	for (unsigned i = count; i < count + count / 8; i++) /* and it can be used */
		assert_int_equal(kept_put(k.session, i, 1000, 0), 0);
	kept_close(&k);
}

/* The half of the keys that is asked for outlives the other one. */
static void test_second_chance(void **state)
{
	struct kept k;
	unsigned count, cold, hot;

	(void)state;
	kept_open(&k, CACHE "low_water = 10\nhigh_water = 30\n");
	count = fill(&k, 1000);
	for (unsigned i = 0; i < count; i += 2)
		assert_int_equal(kept_exists(k.session, i), 0);
	kept_pass(&k, 3000);
	for (unsigned i = cold = hot = 0; i < count; i++)
		*(i % 2 ? &cold : &hot) += kept_exists(k.session, i) == 0;
	assert_true(kept_stats(&k).evict.evicted >= count / 5);
	assert_true(hot > count / 2 * 95 / 100);
	assert_true(cold < count / 2 * 60 / 100);
	kept_close(&k);
}

static void test_sample(void **state)
{
	const struct layout_geometry *g;
	unsigned marked = 0;
	struct kept k;

	(void)state;
	kept_open(&k, "mode = cache\nreference_sample = 10\n");
	g = &k.pool->geometry;
	for (unsigned i = 0; i < 4000; i++)
		assert_int_equal(kept_put(k.session, i, 400, 0), 0);
	assert_int_equal(present(&k, 0, 4000), 4000);
	for (uint64_t i = 0; i < g->npages * 1024ull; i++)
		marked += self_load_byte(k.pool, g->reference_map_offset + i) == LAYOUT_REFERENCED;
	assert_in_range(marked, 300, 500);
	kept_close(&k);
}

/* A class that had no page gets one, of another class. */
static void test_other_size(void **state)
{
	struct kept k;
	uint64_t now;

	(void)state;
	kept_open(&k, CACHE);
	fill(&k, 1000);
	assert_int_not_equal(kept_put(k.session, 100000, 20000, 0), 0);
	for (int i = 0; i < 3; i++) { /* as rpc.c does when it is asked */
		keeper_hurry(k.pool->keeper, layout_class_for(20056), k.now);
		assert_true(keeper_resting(k.pool->keeper, layout_class_for(20056)) > 0);
		kept_pass(&k, 500);
	}
	assert_true(kept_stats(&k).evict.pages_emptied >= 1);
	kept_pass(&k, 1000);
	now = pool_find_page(k.pool, layout_class_for(20056));
	assert_int_not_equal(now, POOL_NONE);
	assert_int_equal(layout_page_state(pool_load_page_word(k.pool, (uint32_t)now)),
			 LAYOUT_PAGE_FREE);
	kept_close(&k);
}

/* Large values: their pieces' pages have no keys, but they can be had. */
static void test_large(void **state)
{
	struct kept k;
	unsigned count;

	(void)state;
	kept_open(&k, CACHE);
	count = fill(&k, 1000000);
	assert_in_range(count, 4, 8);
	for (int i = 0; i < 4; i++) {
		keeper_hurry(k.pool->keeper, LAYOUT_CLASS_MAX, k.now);
		kept_pass(&k, 500);
	}
	kept_pass(&k, 1000);
	assert_in_range(present(&k, 0, count), 1, count - 1);
	assert_int_not_equal(pool_find_page(k.pool, LAYOUT_CLASS_MAX), POOL_NONE);
	kept_close(&k);
}

/* Where nothing can be evicted it is not worth to wait. */
static void test_hopeless(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k, CACHE);
	for (uint32_t page = 1; page < k.pool->geometry.npages; page++)
		fixture_page(k.pool, page, LAYOUT_PAGE_SLAB, 5, k.session->identity.client_slot);
	for (int i = 0; i < 50; i++) {
		keeper_hurry(k.pool->keeper, 5, k.now);
		kept_pass(&k, 20);
	}
	assert_int_equal(keeper_resting(k.pool->keeper, 5), 1);
	for (int i = 0; i < 150; i++) {
		keeper_hurry(k.pool->keeper, 5, k.now);
		kept_pass(&k, 20);
	}
	assert_int_equal(keeper_resting(k.pool->keeper, 5), 0);
	kept_close(&k);
}

/* All pages but the index are full: `resting` of them with counters that rest, the others of values. */
static void fill_and_stop(struct kept *k, uint32_t resting)
{
	const uint32_t class = LAYOUT_CLASS_COUNTER;
	uint32_t page;

	kept_open(k, CACHE);
	for (page = k->pool->geometry.npages - resting; page < k->pool->geometry.npages; page++) {
		fixture_page(k->pool, page, LAYOUT_PAGE_SLAB, class, 7);
		fixture_blocks(k->pool, page, class, 0, layout_class_blocks(class),
			       LAYOUT_FREE_RETIRED);
	}
	fill(k, 1000);
	kept_client(k, ""); /* which never raises its count: it has been stopped */
	for (page = k->pool->geometry.npages - resting; page < k->pool->geometry.npages; page++)
		fixture_page(k->pool, page, LAYOUT_PAGE_FULL, class, 0);
}

/*
 * Counters that a stopped client keeps from ageing are not memory that is coming: other keys make room
 * for who waits, and no more counters are thrown away.
 */
static void test_held_up(void **state)
{
	uint32_t class = LAYOUT_CLASS_COUNTER, found = POOL_NONE;
	struct kept k;

	(void)state;
	fill_and_stop(&k, 8);
	for (int i = 0; i < 200 && found == POOL_NONE; i++) {
		keeper_hurry(k.pool->keeper, class, k.now);
		kept_pass(&k, 20);
		kept_process(k.session);
		k.pool->full_until[class] = 0;
		found = pool_find_page(k.pool, class);
	}
	assert_int_not_equal(found, POOL_NONE);
	assert_int_equal(layout_page_state(pool_load_page_word(k.pool, found)), LAYOUT_PAGE_FREE);
	assert_true(kept_stats(&k).evict.evicted > 0);
	kept_close(&k);
}

/*
 * Who waits for one size gets pages of another whole, once all that is in them has rested: they are not
 * turned out before that for the few blocks that have aged, of which he has no use.
 */
static void test_rest_is_not_disturbed(void **state)
{
	const uint32_t small = layout_class_for(100), other = layout_class_for(5000);
	uint32_t blocks = layout_class_blocks(small), found = POOL_NONE;
	struct kept k;

	(void)state;
	kept_open(&k, "keys = 10000\n");
	for (uint32_t page = 1; page < k.pool->geometry.npages; page++)
		fixture_page(k.pool, page, LAYOUT_PAGE_SLAB, 5, k.session->identity.client_slot);
	fixture_blocks(k.pool, 9, small, blocks / 2, blocks, LAYOUT_FREE_RETIRED);
	fixture_page(k.pool, 9, LAYOUT_PAGE_FULL, small, 0);
	for (int i = 0; i < 100 && found == POOL_NONE; i++) { /* 2 s; grace is 500 ms */
		keeper_hurry(k.pool->keeper, other, k.now);
		kept_pass(&k, 20);
		k.pool->full_until[other] = 0;
		found = pool_find_page(k.pool, other);
	}
	assert_int_equal(found, 9);
	kept_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store),	   cmocka_unit_test(test_room),
		cmocka_unit_test(test_makes_room), cmocka_unit_test(test_second_chance),
		cmocka_unit_test(test_sample),	   cmocka_unit_test(test_other_size),
		cmocka_unit_test(test_large),	   cmocka_unit_test(test_hopeless),
		cmocka_unit_test(test_held_up),	   cmocka_unit_test(test_rest_is_not_disturbed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
