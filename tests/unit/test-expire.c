/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/expire.c, blocks.c: what has expired vanishes and its memory rests; nothing else does. */
#include "keeper-fixture.h"

static void test_counts(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k, "");
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(kept_put(k.session, i, 1000, 0), 0);
	kept_pass(&k, 4000);
	assert_int_equal(kept_stats(&k).keys, 100);
	assert_int_equal(kept_stats(&k).expire.bytes, 10 * 1004 + 90 * 1005);
	assert_int_equal(kept_stats(&k).expire.damaged, 0);
	assert_true(kept_stats(&k).key_counts > 1);
	kept_close(&k);
}

static void test_expires(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k, "");
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(kept_put(k.session, i, 1000, i < 60 ? 1000 : i < 80 ? 60000 : 0),
				 0);
	kept_hand_back(k.session);
	kept_pass(&k, 900);
	assert_int_equal(kept_stats(&k).expire.expired, 0); /* not a moment too early */
	kept_pass(&k, 4000);
	assert_int_equal(kept_stats(&k).expire.expired, 60);
	assert_int_equal(kept_stats(&k).expire.expired_bytes,
			 60 * layout_class_bytes(layout_class_for(1000 + 48 + 8)));
	assert_int_equal(kept_stats(&k).keys, 40);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(kept_exists(k.session, i), i < 60 ? -TARN_ENOTFOUND : 0);
	kept_pass(&k, 20000); /* memory is not scarce: recycle takes its time */
	assert_int_equal(kept_blocks(&k, LAYOUT_FREE_IN_USE), 40);
	assert_int_equal(kept_blocks(&k, LAYOUT_FREE_RETIRED), 0); /* they have rested */
	kept_close(&k);
}

/* A large value's pieces come back with it, and a counter's block. */
static void test_kinds(void **state)
{
	struct kept k;

	(void)state;
	kept_open(&k, "");
	assert_int_equal(kept_put(k.session, 1, 700000, 1000), 0);
	assert_int_equal(kept_put(k.session, 2, 10, 0), 0);
	assert_int_equal(tarn_add(k.session, "counter", 7, 5, NULL), 0);
	assert_int_equal(kept_blocks(&k, LAYOUT_FREE_IN_USE), 6); /* head, three pieces, two more */
	kept_pass(&k, 4000);
	assert_int_equal(kept_stats(&k).expire.expired, 1);
	assert_int_equal(kept_blocks(&k, LAYOUT_FREE_IN_USE), 2);
	assert_int_equal(kept_stats(&k).keys, 2);
	kept_close(&k);
}

/* The slot of a key, and the block that it names. */
static uint64_t slot_of(struct kept *k, unsigned number, uint64_t *ret_block)
{
	const struct layout_geometry *g = &k->pool->geometry;

	for (uint32_t page = 0; page < g->npages; page++) {
		if (layout_page_state(pool_load_page_word(k->pool, page)) != LAYOUT_PAGE_INDEX)
			continue;
		for (uint32_t i = 0; i < g->groups * 24; i++) {
			uint64_t slot = layout_page_offset(g, page) + 8ull * i,
				 word = self_load(k->pool, slot);
			char key[16] = "", found[16] = "";

			if (i % 8 == 0 || layout_slot_state(word) != LAYOUT_SLOT_COMMITTED)
				continue;
			snprintf(key, sizeof(key), "key%u", number);
			memcpy(found, k->pool->memory.base + layout_slot_offset(word) + 48,
			       strlen(key));
			*ret_block = layout_slot_offset(word);
			if (strcmp(key, found) == 0)
				return slot;
		}
	}
	fail();
	return 0;
}

/* What can't be believed stays where it is, and is counted. */
static void test_damage(void **state)
{
	uint64_t slots[4], block;
	struct kept k;

	(void)state;
	kept_open(&k, "");
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(kept_put(k.session, i, 100, 1000), 0);
		slots[i] = slot_of(&k, i, &block);
		if (i == 0) /* the value: only the checksum tells */
			k.pool->memory.base[block + 70] ^= 1;
		if (i == 1) /* the class */
			k.pool->memory.base[block + 15] ^= 1;
		if (i == 2) /* the slot names a place where no block can be */
			self_store(k.pool, slots[i], self_load(k.pool, slots[i]) ^ 1ull << 29);
	}
	kept_pass(&k, 4000);
	for (unsigned i = 0; i < 3; i++)
		assert_true(self_load(k.pool, slots[i]) != 0);
	assert_true(self_load(k.pool, slots[3]) == 0);
	assert_int_equal(kept_stats(&k).expire.expired, 1);
	assert_int_equal(kept_stats(&k).expire.damaged, 3);
	assert_int_equal(kept_stats(&k).keys, 3);
	kept_close(&k);
}

/* A frozen slot is somebody else's just now. */
static void test_frozen(void **state)
{
	uint64_t slot, block, word;
	struct kept k;

	(void)state;
	kept_open(&k, "");
	assert_int_equal(kept_put(k.session, 1, 100, 1000), 0);
	slot = slot_of(&k, 1, &block);
	word = layout_slot_with_state(self_load(k.pool, slot), LAYOUT_SLOT_FROZEN);
	self_store(k.pool, slot, word);
	kept_pass(&k, 4000);
	assert_true(self_load(k.pool, slot) == word);
	assert_int_equal(kept_stats(&k).keys, 1);
	self_store(k.pool, slot, layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED));
	kept_pass(&k, 4000);
	assert_true(self_load(k.pool, slot) == 0);
	kept_close(&k);
}

/*
 * With nobody there and nothing that expires the daemon does not walk over the index for nothing; what
 * it has counted stays true, and a key is taken out when its time has come.
 */
static void test_quiet(void **state)
{
	struct quota *quota;
	struct keeper_stats stats;
	struct kept k;
	uint64_t walks;

	(void)state;
	kept_open(&k, "");
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(kept_put(k.session, i, 100, i < 10 ? 20000 : 0), 0);
	kept_pass(&k, 3000);
	walks = kept_stats(&k).expire.walks;
	kept_pass(&k, 5000);
	assert_true(kept_stats(&k).expire.walks >= walks + 3); /* somebody is there */
	kept_hand_back(k.session);
	pool_client_end(k.pool, k.session->identity.client_slot);
	kept_pass(&k, 4000);
	walks = kept_stats(&k).expire.walks;
	kept_pass(&k, 5000);
	stats = kept_stats(&k);
	assert_int_equal(stats.expire.walks, walks);
	assert_int_equal(stats.keys, 100);
	assert_in_range(stats.keys_age_ns, 0, 1100 * MS);
	kept_pass(&k, 8000);
	assert_int_equal(kept_stats(&k).expire.expired, 10);
	assert_int_equal(kept_stats(&k).keys, 90);
	walks = kept_stats(&k).expire.walks;
	assert_int_equal(keeper_keys_prepare(k.pool->keeper, &k.pool->keys, &quota), 0);
	keeper_keys_commit(k.pool->keeper, quota); /* that asks for another one */
	kept_pass(&k, 3000);
	assert_in_range(kept_stats(&k).expire.walks, walks + 1, walks + 3);
	kept_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts), cmocka_unit_test(test_expires),
		cmocka_unit_test(test_kinds),  cmocka_unit_test(test_damage),
		cmocka_unit_test(test_frozen), cmocka_unit_test(test_quiet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
