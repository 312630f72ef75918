/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/shards.c, and what split.c, grow.c and recover.c do about shards; client/shard-put.h: docs/protocol.md section
 * 11, the steps that change a member's own memory.
 *
 * A pool with tiny subtables, so that a shard's keys lie in several, and one subtable's keys are of several shards. The daemon's
 * changes of slots go through __wrap_self_cas(): so something can happen before one of them.
 */
#include "shards-fixture.h"

#include "kv.h"
#include "recover.h"
#include "shard-put.h"
#include "shards.h"

/* ---- before each CAS of the daemon ----------------------------------------------------------- */

static struct {
	void (*act)(uint64_t offset, uint64_t compare, uint64_t value);
	struct pool *pool;
} point;

uint64_t __real_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
uint64_t __wrap_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);

uint64_t __wrap_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value)
{
	if (point.act)
		point.act(offset, compare, value);
	return __real_self_cas(pool, offset, compare, value);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void test_words(void **state)
{
	struct shards_stats stats;
	struct world w;

	(void)state;
	open_world(&w, 4, 100);
	for (uint32_t i = 0; i < SHARDS; i++)
		assert_int_equal(shards_word(w.shards, i), 0);
	shards_set(w.shards, 3, SHARD_OPEN, 17);
	shards_set(w.shards, 4, SHARD_CLOSING, 18);
	shards_set(w.shards, 5, SHARD_INCOMING, 19);
	assert_true(shards_word(w.shards, 3) == shard_word_make(SHARD_OPEN, 17));
	assert_true(self_load(w.k.pool, layout_shard_offset(&w.k.pool->geometry, 3)) ==
		    shard_word_make(SHARD_OPEN, 17));
	shards_get_stats(w.shards, &stats);
	assert_int_equal(stats.open, 1);
	assert_int_equal(stats.closing, 1);
	assert_int_equal(stats.incoming, 1);
	assert_int_equal(stats.gone, SHARDS - 3);
	shards_gone(w.shards);
	for (uint32_t i = 0; i < SHARDS; i++)
		assert_int_equal(shard_word_state(self_load(
					 w.k.pool, layout_shard_offset(&w.k.pool->geometry, i))),
				 SHARD_GONE);
	assert_int_equal(shard_word_epoch(shards_word(w.shards, 3)), 17);
	kept_close(&w.k);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Of the keys of some shards, exactly those: whatever else is in their subtables. In small and in large indices. */
static void freeze_and_thaw(uint32_t groups, uint64_t keys, unsigned count)
{
	static const uint32_t list[] = {1, 17, 33, 62};
	struct world w;
	bool ours[SHARDS] = {0};
	uint64_t counted = 0, expected = 0;

	open_world(&w, groups, keys);
	set_all(&w, SHARD_OPEN);
	for (unsigned i = 0; i < count; i++)
		put(&w, i);
	for (unsigned i = 0; i < 4; i++) {
		ours[list[i]] = true;
		shards_set(w.shards, list[i], SHARD_CLOSING, EPOCH);
	}
	run_job(&w, SHARDS_FREEZE, list, 4);
	for (unsigned i = 0; i < count; i++)
		expect_state(&w, i,
			     ours[shard_of_number(&w, i)] ? LAYOUT_SLOT_FROZEN
							  : LAYOUT_SLOT_COMMITTED);
	run_all(&w, SHARDS_COUNT);
	for (unsigned i = 0; i < count; i++)
		expected += ours[shard_of_number(&w, i)];
	for (unsigned i = 0; i < 4; i++)
		counted += shards_keys(w.shards, list[i]);
	assert_true(expected > 0);
	assert_int_equal(counted, expected);
	run_job(&w, SHARDS_THAW, list, 4);
	for (unsigned i = 0; i < count; i++)
		expect_state(&w, i, LAYOUT_SLOT_COMMITTED);
	run_job(&w, SHARDS_EMPTY, list, 4);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(kept_exists(w.k.session, i),
				 ours[shard_of_number(&w, i)] ? -TARN_ENOTFOUND : 0);
	kept_close(&w.k);
}

static void test_freeze_and_thaw(void **state)
{
	(void)state;
	freeze_and_thaw(30, 0, 500); /* one subtable, or two */
	freeze_and_thaw(2, 100, 200); /* several, also such as the job's shards share; of several depths */
	freeze_and_thaw(1, 100, 100);
}

/* In a large index a subtable is of one shard, and blocks need not be read to know that. */
static void test_large_index(void **state)
{
	unsigned numbers[70], count = 0;
	struct slots s;
	struct world w;
	uint32_t shard;

	(void)state;
	open_sized(&w, "256M", 4, 1);
	set_all(&w, SHARD_OPEN);
	for (unsigned i = 0; count < 70; i++) {
		char key[16];
		int n = snprintf(key, sizeof(key), "key%u", i);

		if (layout_suffix(layout_hash_suffix(layout_hash_key(key, (size_t)n, 7)), 10) ==
		    0x155)
			numbers[count++] = i;
	}
	shard = shard_of_number(&w, numbers[0]);
	assert_int_equal(shard, 0x155 >> 4);
	for (unsigned i = 0; i < count; i++)
		put(&w, numbers[i]);
	for (unsigned i = 0; i < 5; i++)
		put(&w, 10000000 + i);
	for (unsigned i = 0; kept_stats(&w.k).grow.depth_max < 10; i++) {
		assert_true(i < 100);
		kept_pass(&w.k, 100);
	}
	shards_set(w.shards, shard, SHARD_CLOSING, EPOCH);
	run_job(&w, SHARDS_FREEZE, &shard, 1);
	for (unsigned i = 0; i < count; i++)
		expect_state(&w, numbers[i], LAYOUT_SLOT_FROZEN);
	s = slots_of(&w, UINT32_MAX);
	assert_int_equal(s.states[LAYOUT_SLOT_FROZEN], count);
	assert_int_equal(s.states[LAYOUT_SLOT_COMMITTED], 5);
	run_job(&w, SHARDS_COUNT, &shard, 1);
	assert_int_equal(shards_keys(w.shards, shard), count);
	kept_close(&w.k);
}

/* What is pending does not survive a freeze, whosever it is; a walk that only looks changes nothing. */
static void test_pending(void **state)
{
	struct world w;
	struct slots s;
	uint64_t word;

	(void)state;
	open_world(&w, 4, 100);
	set_all(&w, SHARD_OPEN);
	put(&w, 1);
	s = slots_of(&w, 1);
	word = self_load(w.k.pool, s.where);
	__real_self_cas(w.k.pool, s.where, word, layout_slot_with_state(word, LAYOUT_SLOT_PENDING));
	run_all(&w, SHARDS_COUNT);
	run_all(&w, SHARDS_THAW);
	expect_state(&w, 1, LAYOUT_SLOT_PENDING);
	run_all(&w, SHARDS_FREEZE);
	assert_int_equal(self_load(w.k.pool, s.where), 0);
	kept_close(&w.k);
}

static bool raced;

/* A client deletes the key, just before our CAS; its slot is another one's by now: pending. */
static void race(uint64_t offset, uint64_t compare, uint64_t value)
{
	if (raced || layout_slot_state(value) != LAYOUT_SLOT_FROZEN)
		return;
	raced = true;
	__real_self_cas(point.pool, offset, compare,
			layout_slot_with_state(compare, LAYOUT_SLOT_PENDING));
}

/* A slot that changes under the walk is looked at again. */
static void test_freeze_races(void **state)
{
	struct world w;

	(void)state;
	open_world(&w, 4, 100);
	set_all(&w, SHARD_OPEN);
	put(&w, 1);
	set_all(&w, SHARD_CLOSING);
	raced = false;
	point.act = race;
	point.pool = w.k.pool;
	run_all(&w, SHARDS_FREEZE);
	assert_true(raced);
	point.act = NULL;
	expect_state(&w, 1, LAYOUT_SLOT_EMPTY);
	kept_close(&w.k);
}

/* Memory of what is emptied rests, and comes back. */
static void test_empty_retires(void **state)
{
	struct world w;
	uint32_t used;

	(void)state;
	open_world(&w, 4, 100);
	set_all(&w, SHARD_OPEN);
	assert_int_equal(kept_put(w.k.session, 0, 700000, 0), 0); /* in pieces */
	for (unsigned i = 1; i < 50; i++)
		put(&w, i);
	kept_hand_back(w.k.session);
	used = kept_blocks(&w.k, LAYOUT_FREE_IN_USE);
	assert_true(used >= 53);
	set_all(&w, SHARD_GONE);
	run_all(&w, SHARDS_EMPTY);
	assert_int_equal(kept_blocks(&w.k, LAYOUT_FREE_IN_USE), 0);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(kept_exists(w.k.session, i), -TARN_ENOTFOUND);
	kept_close(&w.k);
}

/* One after the other, each told of; a job may be begun from within another one's end. */
static void next_job(void *arg)
{
	struct world *w = arg;
	const uint32_t shard = 2;

	w->done++;
	assert_int_equal(shards_begin(w->shards, SHARDS_THAW, &shard, 1, done, w), 0);
}

static void test_queue(void **state)
{
	const uint32_t first = 1, second = 2;
	struct shards_stats stats;
	struct world w;

	(void)state;
	open_world(&w, 4, 100);
	assert_int_equal(shards_begin(w.shards, SHARDS_FREEZE, &first, 1, done, &w), 0);
	assert_int_equal(shards_begin(w.shards, SHARDS_FREEZE, &second, 1, next_job, &w), 0);
	shards_get_stats(w.shards, &stats);
	assert_int_equal(stats.waiting, 2);
	for (unsigned i = 0; w.done < 3; i++) {
		assert_true(i < 1000);
		kept_pass(&w.k, 5);
	}
	shards_get_stats(w.shards, &stats);
	assert_int_equal(stats.jobs, 3);
	assert_int_equal(stats.waiting, 0);
	/* what is under way at the end is dropped */
	assert_int_equal(shards_begin(w.shards, SHARDS_EMPTY, &first, 1, done, &w), 0);
	kept_close(&w.k);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static uint64_t splits(struct world *w)
{
	return kept_stats(&w->k).grow.splits;
}

/* Copies of a hand-over stay frozen while the index grows under them; when the shard is opened they are thawed. */
static void test_split_keeps_copies(void **state)
{
	struct world w;

	(void)state;
	open_world(&w, 2, 1);
	set_all(&w, SHARD_INCOMING);
	for (unsigned i = 0; i < KEYS; i++)
		for (unsigned tries = 0; put_frozen(&w, i, 'a') < 0; tries++) {
			assert_true(tries < 200);
			kept_pass(&w.k, 50);
		}
	kept_pass(&w.k, 1000);
	assert_true(splits(&w) > 4);
	for (unsigned i = 0; i < KEYS; i++)
		expect_state(&w, i, LAYOUT_SLOT_FROZEN);
	/* copied again; what was placed before can not be deleted any more, as what is gone can not */
	for (unsigned i = 0; i < KEYS; i++) {
		uint64_t word = self_load(w.k.pool, slots_of(&w, i).where), slot, now, replaced;

		if (i % 3 == 0) {
			assert_int_equal(put_frozen(&w, i, 'b'), 0);
			shard_placed(w.k.session->op, &slot, &now, &replaced);
			assert_true(replaced == word);
			assert_true(slot == slots_of(&w, i).where);
			assert_true(now == self_load(w.k.pool, slot));
			assert_int_equal(delete_placed(&w, word, i), -TARN_ESTAMP);
		} else if (i % 3 == 1) {
			assert_int_equal(delete_placed(&w, word, i + 1), -TARN_ESTAMP);
			assert_int_equal(delete_placed(&w, word, i), 0);
			assert_int_equal(delete_placed(&w, word, i), -TARN_ENOTFOUND);
		}
	}
	set_all(&w, SHARD_OPEN);
	run_all(&w, SHARDS_THAW);
	for (unsigned i = 0; i < KEYS; i++) {
		struct tarn_item item = TARN_ITEM_INIT;
		char key[16], value[8];
		size_t n = (size_t)snprintf(key, sizeof(key), "key%u", i);

		if (i % 3 == 1) {
			assert_int_equal(kept_exists(w.k.session, i), -TARN_ENOTFOUND);
			continue;
		}
		expect_state(&w, i, LAYOUT_SLOT_COMMITTED);
		assert_int_equal(tarn_get(w.k.session, key, n, value, 8, &item), 0);
		assert_int_equal(value[0], i % 3 ? 'a' : 'b');
		assert_true(item.stamp == (77ull << 32) + i);
		assert_int_equal(item.user_flags, i);
	}
	kept_close(&w.k);
}

/* Keys of a shard that this member does not own, frozen by the split itself, are not made writable by it. */
static void test_split_of_gone(void **state)
{
	struct world w;
	struct slots s;

	(void)state;
	open_world(&w, 2, 1);
	set_all(&w, SHARD_OPEN);
	for (unsigned i = 0; i < 30; i++)
		put(&w, i);
	set_all(&w, SHARD_GONE);
	for (unsigned i = 30; i < 200; i++)
		put(&w, i);
	kept_pass(&w.k, 1000);
	assert_true(splits(&w) > 2);
	s = slots_of(&w, UINT32_MAX);
	assert_int_equal(s.states[LAYOUT_SLOT_COMMITTED] + s.states[LAYOUT_SLOT_FROZEN], 200);
	assert_true(s.states[LAYOUT_SLOT_FROZEN] > 0);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(kept_exists(w.k.session, i), 0);
	kept_close(&w.k);
}

/* While a shard of it is closing a subtable does not split. */
static void test_closing_holds_splits(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	open_world(&w, 10, 1);
	set_all(&w, SHARD_OPEN);
	shards_set(w.shards, 9, SHARD_CLOSING, EPOCH);
	for (unsigned i = 0; i < 1000; i++)
		if (kept_put(w.k.session, i, 5, 0) < 0)
			break;
	kept_pass(&w.k, 2000);
	before = splits(&w);
	assert_int_equal(before, 0);
	assert_false(kept_stats(&w.k).grow.under_way);
	shards_set(w.shards, 9, SHARD_OPEN, EPOCH);
	kept_pass(&w.k, 2000);
	assert_true(splits(&w) > before);
	kept_close(&w.k);
}

static struct world *watched;
static unsigned freezes, early;

/* A slot is being frozen: by the job, or by the split. */
static void no_split(uint64_t offset, uint64_t compare, uint64_t value)
{
	uint32_t suffix, depth;

	(void)offset;
	if (layout_slot_state(compare) != LAYOUT_SLOT_COMMITTED ||
	    layout_slot_state(value) != LAYOUT_SLOT_FROZEN)
		return;
	freezes++;
	early += !keeper_splits(watched->k.pool->keeper, &suffix, &depth);
}

/* A freeze waits for the split that is under way in its subtable. */
static void test_job_waits_for_split(void **state)
{
	uint32_t list[SHARDS];
	struct world w;
	unsigned n = 0;

	(void)state;
	open_world(&w, LAYOUT_MAX_GROUPS, 1); /* its split takes several steps */
	set_all(&w, SHARD_OPEN);
	while (!kept_stats(&w.k).grow.under_way && n < 27000) {
		if (kept_put(w.k.session, n, 5, 0) == 0)
			n++;
		if (n % 50 == 0)
			kept_pass(&w.k, 5);
	}
	assert_true(kept_stats(&w.k).grow.under_way);
	for (uint32_t i = 0; i < SHARDS; i++)
		list[i] = i;
	assert_int_equal(shards_begin(w.shards, SHARDS_FREEZE, list, SHARDS, done, &w), 0);
	watched = &w;
	freezes = early = 0;
	point.act = no_split;
	while (kept_stats(&w.k).grow.under_way) {
		assert_int_equal(w.done, 0);
		assert_int_equal(early, 0);
		kept_pass(&w.k, 5);
	}
	for (unsigned i = 0; w.done == 0; i++) {
		assert_true(i < 1000);
		kept_pass(&w.k, 5);
	}
	assert_true(early > 0);
	point.act = NULL;
	assert_int_equal(slots_of(&w, UINT32_MAX).states[LAYOUT_SLOT_FROZEN], n);
	assert_int_equal(slots_of(&w, UINT32_MAX).states[LAYOUT_SLOT_COMMITTED], 0);
	kept_close(&w.k);
}

static bool deleted;

/* The mover's delete arrives between the copy and the tombstone. */
static void late_delete(uint64_t offset, uint64_t compare, uint64_t value)
{
	if (deleted || layout_slot_state(value) != LAYOUT_SLOT_MOVED)
		return;
	deleted = true;
	assert_true(__real_self_cas(point.pool, offset, compare, 0) == compare);
}

/* What the mover changes under a split's hands is not copied as it was before. */
static void test_split_and_late_change(void **state)
{
	unsigned n = 0, left = 0;
	struct world w;
	struct slots s;

	(void)state;
	open_world(&w, 2, 1);
	set_all(&w, SHARD_INCOMING);
	deleted = false;
	point.pool = w.k.pool;
	point.act = late_delete;
	for (; n < 200 && splits(&w) == 0; n++)
		if (put_frozen(&w, n, 'a') < 0)
			kept_pass(&w.k, 50), n--;
	kept_pass(&w.k, 500);
	point.act = NULL;
	assert_true(deleted);
	s = slots_of(&w, UINT32_MAX);
	assert_int_equal(s.states[LAYOUT_SLOT_FROZEN], n - 1);
	for (unsigned i = 0; i < n; i++)
		left += slots_of(&w, i).states[LAYOUT_SLOT_FROZEN];
	assert_int_equal(left, n - 1);
	kept_close(&w.k);
}

/* ---- restart --------------------------------------------------------------------------------- */

/* The words say nothing until the map is known; frozen slots stay so; what is pending goes. */
static void test_restart(void **state)
{
	struct recover_report report;
	struct world w;
	const uint32_t shard = 5;

	(void)state;
	open_world(&w, 4, 100);
	set_all(&w, SHARD_OPEN);
	for (unsigned i = 0; i < 100; i++)
		put(&w, i);
	shards_set(w.shards, shard, SHARD_CLOSING, EPOCH);
	run_job(&w, SHARDS_FREEZE, &shard, 1);
	keeper_free(w.k.pool->keeper);
	w.k.pool->keeper = NULL;
	assert_int_equal(recover_run(w.k.pool, NULL, &report), 0);
	assert_int_equal(report.thawed, 0);
	for (uint32_t i = 0; i < SHARDS; i++)
		assert_int_equal(
			self_load(w.k.pool, layout_shard_offset(&w.k.pool->geometry, i)), 0);
	for (unsigned i = 0; i < 100; i++)
		expect_state(&w, i,
			     shard_of_number(&w, i) == shard ? LAYOUT_SLOT_FROZEN
							     : LAYOUT_SLOT_COMMITTED);
	assert_int_equal(keeper_create(w.k.pool, w.k.pool->log, &w.k.pool->keeper), 0);
	kept_close(&w.k);
}

/* A pool belongs to its cluster for its life. */
static void test_made_with(void **state)
{
	struct recover_wish wish = {0};
	enum recover_change change;
	struct layout_geometry g;
	struct world w;

	(void)state;
	open_world(&w, 4, 100);
	wish.plan = plan_of(w.k.pool, 4, 100);
	assert_int_equal(recover_check((const void *)w.k.pool->memory.base, w.k.pool->memory.bytes,
				       &wish, &g, &change),
			 0);
	wish.plan.shards = 0;
	assert_int_equal(recover_check((const void *)w.k.pool->memory.base, w.k.pool->memory.bytes,
				       &wish, &g, &change),
			 -EINVAL);
	assert_non_null(strstr(err_text(), "was made with 64"));
	wish.plan.shards = SHARDS;
	wish.plan.hash_seed = 8;
	assert_int_equal(recover_check((const void *)w.k.pool->memory.base, w.k.pool->memory.bytes,
				       &wish, &g, &change),
			 -EINVAL);
	assert_non_null(strstr(err_text(), "another cluster"));
	kept_close(&w.k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_freeze_and_thaw),
		cmocka_unit_test(test_large_index),
		cmocka_unit_test(test_pending),
		cmocka_unit_test(test_freeze_races),
		cmocka_unit_test(test_empty_retires),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_split_keeps_copies),
		cmocka_unit_test(test_split_of_gone),
		cmocka_unit_test(test_closing_holds_splits),
		cmocka_unit_test(test_job_waits_for_split),
		cmocka_unit_test(test_split_and_late_change),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_made_with),
	};

	return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
