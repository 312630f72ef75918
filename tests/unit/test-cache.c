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

#define NOW 5000u

static struct layout_hash hash_of(uint64_t i)
{
	return layout_hash_key(&i, sizeof(i), 1);
}

/* A word that is dated in this epoch. */
static uint64_t word_of(uint64_t i)
{
	return layout_slot_make(LAYOUT_SLOT_COMMITTED, 1, 2, NOW, i * LAYOUT_UNIT);
}

static void test_find(void **state)
{
	struct cache *c;
	uint64_t slot, word, i, found = 0;

	(void)state;
	assert_int_equal(cache_create(1u << 16, &c), 0);
	for (i = 0; i < 500; i++)
		cache_add(c, hash_of(i), NOW, 8 * (i + 1), word_of(i + 100));
	for (i = 0; i < 500; i++) {
		if (!cache_find(c, hash_of(i), NOW, &slot, &word))
			continue;
		assert_int_equal(slot, 8 * (i + 1));
		assert_true(word == word_of(i + 100));
		found++;
	}
	/* 2048 entries: few are pushed out by others of their set */
	assert_true(found > 400);
	assert_false(cache_find(c, hash_of(1000), NOW, &slot, &word));
	cache_add(c, hash_of(7), NOW, 64, word_of(9));
	assert_true(cache_find(c, hash_of(7), NOW, &slot, &word));
	assert_true(word == word_of(9));
	cache_remove(c, hash_of(7));
	assert_false(cache_find(c, hash_of(7), NOW, &slot, &word));
	cache_free(c);
}

/* tests/model/FINDINGS.md, 1: a generation comes again 4096 epochs after its date. */
static void test_generations(void **state)
{
	uint64_t slot, word, dated, seen, now;
	struct cache *c;

	(void)state;
	assert_int_equal(cache_create(4096, &c), 0);
	for (dated = 3; dated < 20000; dated += 1777) {
		for (seen = dated; seen < dated + 9000; seen += 501) {
			for (now = seen; now < seen + 9000; now += 97) {
				uint64_t next = dated + ((seen - dated) / 4096 + 1) * 4096;
				bool safe = now < next - 3;

				cache_add(c, hash_of(1), seen, 8,
					  layout_slot_make(LAYOUT_SLOT_COMMITTED, 1, 2,
							   (uint32_t)dated, 6400));
				/* never when the word may have come again; else as long as possible */
				assert_int_equal(cache_find(c, hash_of(1), now, &slot, &word), safe);
			}
		}
	}
	cache_free(c);
}

/* The stored epoch wraps after 2^26: no age may ever look young again. */
static void test_wrap(void **state)
{
	uint64_t slot, word, t;
	struct cache *c;

	(void)state;
	for (t = 4096; t < 1ull << 28; t = t * 5 / 4) {
		assert_int_equal(cache_create(4096, &c), 0);
		cache_add(c, hash_of(1), NOW, 8, word_of(5));
		assert_false(cache_find(c, hash_of(1), NOW + t, &slot, &word));
		assert_false(cache_find(c, hash_of(1), NOW + (t << 26), &slot, &word));
		cache_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_generations),
					  cmocka_unit_test(test_wrap)};

	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
