/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-cache.c - the location cache: finds, forgets, keeps its bound, and never offers what is too
 * old
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cache.h"

#define SECOND 1000000000ull

static struct layout_hash hash_of(uint64_t i)
{
	return layout_hash_key(&i, sizeof(i), 1);
}

static void test_find(void **state)
{
	struct layout_geometry g = {.epoch_ns = 250000000};
	struct cache *c;
	uint64_t slot, word, i, found = 0;

	(void)state;
	assert_int_equal(cache_create(&g, 1u << 16, &c), 0);
	for (i = 0; i < 500; i++)
		cache_add(c, hash_of(i), SECOND, 8 * (i + 1), i + 100);
	for (i = 0; i < 500; i++) {
		if (!cache_find(c, hash_of(i), SECOND, &slot, &word))
			continue;
		assert_int_equal(slot, 8 * (i + 1));
		assert_int_equal(word, i + 100);
		found++;
	}
	/* 2048 entries: few are pushed out by others of their set */
	assert_true(found > 400);
	assert_false(cache_find(c, hash_of(1000), SECOND, &slot, &word));
	cache_add(c, hash_of(7), SECOND, 64, 9);
	assert_true(cache_find(c, hash_of(7), SECOND, &slot, &word));
	assert_int_equal(word, 9);
	cache_remove(c, hash_of(7));
	assert_false(cache_find(c, hash_of(7), SECOND, &slot, &word));
	cache_free(c);
}

static void test_age(void **state)
{
	/* a quarter of 4096 epochs of 250 ms */
	const uint64_t limit = 256 * SECOND;
	struct layout_geometry g = {.epoch_ns = 250000000};
	struct cache *c;
	uint64_t slot, word, t;

	(void)state;
	assert_int_equal(cache_create(&g, 4096, &c), 0);
	cache_add(c, hash_of(1), SECOND, 8, 5);
	assert_true(cache_find(c, hash_of(1), limit, &slot, &word));
	assert_false(cache_find(c, hash_of(1), limit + 2 * SECOND, &slot, &word));
	/* the stored time wraps after 13 days: no age may ever look young again */
	for (t = 300; t < 40ull * 24 * 3600; t += 3001) {
		struct cache *d;

		assert_int_equal(cache_create(&g, 4096, &d), 0);
		cache_add(d, hash_of(1), SECOND, 8, 5);
		assert_false(cache_find(d, hash_of(1), SECOND + t * SECOND, &slot, &word));
		cache_free(d);
	}
	cache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_age)};

	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
