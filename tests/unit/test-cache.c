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
				assert_int_equal(cache_find(c, hash_of(1), now, &slot, &word),
						 safe);
			}
		}
	}
	cache_free(c);
}

/* The stored epoch wraps after 2^23: no age may ever look young again. */
static void test_wrap(void **state)
{
	uint64_t slot, word, t;
	struct cache *c;

	(void)state;
	for (t = 4096; t < 1ull << 28; t = t * 5 / 4) {
		assert_int_equal(cache_create(4096, &c), 0);
		cache_add(c, hash_of(1), NOW, 8, word_of(5));
		assert_false(cache_find(c, hash_of(1), NOW + t, &slot, &word));
		assert_false(cache_find(c, hash_of(1), NOW + (t << 23), &slot, &word));
		cache_free(c);
	}
}

/* What others write over again and again is not worth a try, until they stop. */
static void test_doubt(void **state)
{
	uint64_t slot, word;
	struct cache *c;

	(void)state;
	assert_int_equal(cache_create(4096, &c), 0);
	cache_see(c, hash_of(1), 8, word_of(1));
	cache_add(c, hash_of(1), NOW, 8, word_of(1));
	/* once wrong is not yet often, but it is not tried again either */
	assert_true(cache_find(c, hash_of(1), NOW, &slot, &word));
	cache_fail(c, hash_of(1));
	assert_false(cache_find(c, hash_of(1), NOW, &slot, &word));
	cache_see(c, hash_of(1), 8, word_of(2));
	cache_add(c, hash_of(1), NOW, 8, word_of(2));
	assert_true(cache_find(c, hash_of(1), NOW, &slot, &word));
	assert_true(word == word_of(2));
	cache_fail(c, hash_of(1));
	cache_see(c, hash_of(1), 8, word_of(3));
	cache_add(c, hash_of(1), NOW, 8, word_of(3));
	assert_false(cache_find(c, hash_of(1), NOW, &slot, &word));
	for (unsigned i = 0; i < 10; i++) {
		cache_see(c, hash_of(1), 8, word_of(4 + i));
		cache_add(c, hash_of(1), NOW, 8, word_of(4 + i));
		assert_false(cache_find(c, hash_of(1), NOW, &slot, &word));
	}
	/* would have been right twice in a row; elsewhere is wrong, too */
	cache_see(c, hash_of(1), 16, word_of(13));
	cache_see(c, hash_of(1), 8, word_of(13));
	assert_false(cache_find(c, hash_of(1), NOW, &slot, &word));
	cache_see(c, hash_of(1), 8, word_of(13));
	assert_true(cache_find(c, hash_of(1), NOW, &slot, &word));
	cache_free(c);
}

/* In the largest pools, too. */
static void test_far(void **state)
{
	const uint64_t far = (1ull << 41) - 8;
	uint64_t slot, word;
	struct cache *c;

	(void)state;
	assert_int_equal(cache_create(4096, &c), 0);
	cache_see(c, hash_of(1), far, word_of(1));
	cache_add(c, hash_of(1), NOW, far, word_of(1));
	for (unsigned i = 0; i < 5; i++)
		cache_see(c, hash_of(1), far, word_of(1));
	assert_true(cache_find(c, hash_of(1), NOW, &slot, &word));
	assert_true(slot == far);
	cache_free(c);
}

/* What is known to be bad does not keep a place that another key could use. */
static void test_bad_place(void **state)
{
	uint64_t slot, word;
	struct cache *c;

	(void)state;
	assert_int_equal(cache_create(64, &c), 0); /* one set of two */
	cache_add(c, hash_of(1), NOW, 8, word_of(1));
	cache_fail(c, hash_of(1));
	cache_add(c, hash_of(2), NOW, 16, word_of(2));
	cache_add(c, hash_of(3), NOW, 24, word_of(3));
	assert_true(cache_find(c, hash_of(2), NOW, &slot, &word));
	assert_true(cache_find(c, hash_of(3), NOW, &slot, &word));
	cache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find), cmocka_unit_test(test_generations),
		cmocka_unit_test(test_wrap), cmocka_unit_test(test_doubt),
		cmocka_unit_test(test_far),  cmocka_unit_test(test_bad_place)};

	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
