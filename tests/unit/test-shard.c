/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-shard.c - what a client of a cluster's pool makes of the words that say whose a shard is
 *
 * docs/protocol.md section 11, "Shard words". The test is the daemon: it writes words and freezes slots. What
 * happens at the same time is tests/sim/test-handover.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clock.h"
#include "fixture.h"
#include "shard.h"

#define MIB    (1ull << 20)
#define SHARDS 64u
#define SINCE  7u

struct cluster {
	struct fixture f;
	struct tarn_session *s;
	uint64_t since[SHARDS];
};

static void set_word(struct cluster *c, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	*fixture_word(&c->f, layout_shard_offset(&c->f.geometry, shard)) =
		shard_word_make(state, epoch);
}

static void set_all(struct cluster *c, enum shard_state state, uint64_t epoch)
{
	for (uint32_t i = 0; i < SHARDS; i++)
		set_word(c, i, state, epoch);
}

static int setup(void **state)
{
	struct cluster *c = calloc(1, sizeof(*c));
	struct layout_plan plan = fixture_plan(64 * MIB);

	plan.keys = 200000; /* several subtables */
	plan.shards = SHARDS;
	*state = c;
	if (fixture_create(&c->f, &plan) < 0)
		return -1;
	c->s = fixture_session(&c->f, TARN_NO_THREAD);
	for (uint32_t i = 0; i < SHARDS; i++)
		c->since[i] = SINCE;
	c->s->since = c->since;
	c->s->since_shards = SHARDS;
	set_all(c, SHARD_OPEN, SINCE);
	return 0;
}

static int teardown(void **state)
{
	struct cluster *c = *state;

	session_free(c->s);
	fixture_destroy(&c->f);
	free(c);
	return 0;
}

static uint32_t shard(const struct cluster *c, const char *key)
{
	return shard_of(layout_hash_key(key, strlen(key), c->f.geometry.hash_seed), SHARDS);
}

static int put(struct cluster *c, const char *key, const char *value)
{
	return tarn_put(c->s, key, strlen(key), value, strlen(value), NULL, NULL);
}

static int get(struct cluster *c, const char *key)
{
	char buffer[64];

	return tarn_get(c->s, key, strlen(key), buffer, sizeof(buffer), NULL);
}

static int del(struct cluster *c, const char *key)
{
	return tarn_delete(c->s, key, strlen(key));
}

static uint64_t *slot_of(struct cluster *c, const char *key)
{
	uint64_t slot = fixture_slot(&c->f, key, strlen(key));

	assert_true(slot != 0);
	return fixture_word(&c->f, slot);
}

static void freeze(struct cluster *c, const char *key)
{
	uint64_t *slot = slot_of(c, key);

	*slot = layout_slot_with_state(*slot, LAYOUT_SLOT_FROZEN);
}

/* All slots of the index. */
static void each_slot(struct cluster *c, void (*fn)(uint64_t *slot))
{
	const struct layout_geometry *g = &c->f.geometry;

	for (uint32_t page = 0; page < g->npages; page++) {
		if (layout_page_state(*fixture_word(&c->f, layout_page_word_offset(g, page))) !=
		    LAYOUT_PAGE_INDEX)
			continue;
		for (uint32_t i = 0; i < g->groups * LAYOUT_GROUP_BYTES / 8; i++)
			if (i % 8 != 0)
				fn(fixture_word(&c->f, layout_page_offset(g, page) + 8ull * i));
	}
}

static void thaw(uint64_t *slot)
{
	if (layout_slot_state(*slot) == LAYOUT_SLOT_FROZEN)
		*slot = layout_slot_with_state(*slot, LAYOUT_SLOT_COMMITTED);
}

static void kill(uint64_t *slot)
{
	if (layout_slot_state(*slot) == LAYOUT_SLOT_PENDING)
		*slot = 0;
}

static void not_pending(uint64_t *slot)
{
	assert_true(layout_slot_state(*slot) != LAYOUT_SLOT_PENDING);
}

static void expect_no_pending(struct cluster *c)
{
	each_slot(c, not_pending);
}

static uint64_t trips(struct cluster *c)
{
	static uint64_t before;
	uint64_t now = c->s->stats.round_trips, n = now - before;

	before = now;
	return n;
}

/* ---- round trips ----------------------------------------------------------------------------- */

/* In an open shard: a hit, an update and an insert cost what they cost without a cluster; a miss one more. */
static void test_round_trips(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "warm", "up"), 0);
	fixture_epoch(&c->f, 0);
	trips(c);
	assert_int_equal(put(c, "a", "one"), 0);
	assert_true(trips(c) <= 4); /* 3, and one for a stale clock or directory */
	assert_int_equal(get(c, "a"), 0);
	assert_true(trips(c) <= 2);
	assert_int_equal(put(c, "a", "two"), 0);
	assert_true(trips(c) <= 3);
	assert_int_equal(get(c, "b"), -TARN_ENOTFOUND);
	assert_true(trips(c) <= 3);
	assert_int_equal(del(c, "a"), 0);
	assert_int_equal(del(c, "a"), -TARN_ENOTFOUND);
	assert_int_equal(get(c, "a"), -TARN_ENOTFOUND);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Where the word does not fit, a committed slot is proof enough; nothing else is. */
static void expect_moved(struct cluster *c, const char *present)
{
	struct tarn_put_options if_absent = TARN_PUT_INIT, if_stamp = TARN_PUT_INIT;

	if_absent.flags = TARN_PUT_IF_ABSENT;
	if_stamp.flags = TARN_PUT_IF_STAMP;
	if_stamp.stamp = 1;
	assert_int_equal(get(c, present), 0);
	assert_int_equal(put(c, present, "again"), 0);
	assert_int_equal(tarn_put(c->s, present, strlen(present), "x", 1, &if_absent, NULL),
			 -TARN_EEXISTS);
	assert_int_equal(get(c, "absent"), -TARN_EMOVED);
	assert_non_null(strstr(err_text(), "shard "));
	assert_non_null(strstr(err_text(), "7"));
	assert_int_equal(tarn_exists(c->s, "absent", 6, NULL), -TARN_EMOVED);
	assert_int_equal(del(c, "absent"), -TARN_EMOVED);
	assert_int_equal(put(c, "absent", "x"), -TARN_EMOVED);
	assert_int_equal(tarn_put(c->s, "absent", 6, "x", 1, &if_absent, NULL), -TARN_EMOVED);
	assert_int_equal(tarn_put(c->s, "absent", 6, "x", 1, &if_stamp, NULL), -TARN_EMOVED);
	assert_int_equal(tarn_add(c->s, "absent", 6, 1, NULL), -TARN_EMOVED);
	expect_no_pending(c);
	freeze(c, present);
	assert_int_equal(get(c, present), -TARN_EMOVED);
	assert_int_equal(tarn_exists(c->s, present, strlen(present), NULL), -TARN_EMOVED);
	assert_int_equal(put(c, present, "x"), -TARN_EMOVED);
	assert_int_equal(tarn_put(c->s, present, strlen(present), "x", 1, &if_absent, NULL),
			 -TARN_EMOVED);
	assert_int_equal(del(c, present), -TARN_EMOVED);
}

static void test_gone(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "key", "value"), 0);
	set_all(c, SHARD_GONE, SINCE);
	expect_moved(c, "key");
}

/* The shard was with another member meanwhile. */
static void test_other_epoch(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "key", "value"), 0);
	set_all(c, SHARD_OPEN, SINCE + 2);
	expect_moved(c, "key");
}

static void test_older_map(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "key", "value"), 0);
	/* the move to here began behind what the client knows */
	set_all(c, SHARD_INCOMING, SINCE + 1);
	expect_moved(c, "key");
}

static void test_damaged_word(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "key", "value"), 0);
	set_all(c, (enum shard_state)6, SINCE);
	expect_moved(c, "key");
}

/* Nothing is asked of a pool that does not have the shard by the client's own map. */
static void test_not_ours(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "key", "value"), 0);
	trips(c);
	c->since[shard(c, "key")] = 0;
	assert_int_equal(get(c, "key"), -TARN_EMOVED);
	assert_int_equal(put(c, "key", "x"), -TARN_EMOVED);
	assert_int_equal(del(c, "key"), -TARN_EMOVED);
	assert_int_equal(tarn_add(c->s, "key", 3, 1, NULL), -TARN_EMOVED);
	assert_int_equal(trips(c), 0);
	c->since[shard(c, "key")] = SINCE;
	c->s->since_shards = SHARDS / 2;
	assert_int_equal(get(c, "key"), -TARN_EMOVED);
	assert_int_equal(trips(c), 0);
}

/* ---- pauses ---------------------------------------------------------------------------------- */

/* Runs the task until it rests; false: it has ended. */
static bool rests(struct task *task)
{
	task->status = 0;
	if (task->step(task))
		return false;
	assert_true(task->wake_ns != 0);
	return true;
}

static int finish(struct task *task)
{
	while (rests(task))
		clock_sleep_ns(1000000);
	return task->result;
}

/* While the shard is being handed over it is read; writers wait until it is open again, or gone. */
static void test_closing(void **state)
{
	struct cluster *c = *state;
	struct task *task;

	assert_int_equal(put(c, "key", "value"), 0);
	assert_int_equal(put(c, "other", "value"), 0);
	set_all(c, SHARD_CLOSING, SINCE);
	freeze(c, "key");
	assert_int_equal(get(c, "key"), 0);
	assert_int_equal(get(c, "other"), 0);
	assert_int_equal(get(c, "absent"), -TARN_ENOTFOUND);
	assert_int_equal(del(c, "absent"), -TARN_ENOTFOUND);
	task = kv_put(c->s->op, "key", 3, "new", 3, NULL);
	assert_true(rests(task));
	assert_true(rests(task));
	set_all(c, SHARD_OPEN, SINCE);
	assert_true(rests(task)); /* given up: it is not thawed yet */
	each_slot(c, thaw);
	assert_int_equal(finish(task), 0);
	task = kv_put(c->s->op, "absent", 6, "new", 3, NULL);
	set_all(c, SHARD_CLOSING, SINCE);
	assert_true(rests(task));
	expect_no_pending(c);
	set_all(c, SHARD_GONE, SINCE);
	assert_int_equal(finish(task), -TARN_EMOVED);
	expect_no_pending(c);
	set_all(c, SHARD_OPEN, SINCE);
	assert_int_equal(get(c, "absent"), -TARN_ENOTFOUND);
}

/* It stays so: the call ends with its time, and has changed nothing. */
static void test_closing_for_long(void **state)
{
	struct cluster *c = *state;

	set_all(c, SHARD_CLOSING, SINCE);
	assert_int_equal(tarn_session_set_timeout(c->s, 20), 0);
	assert_int_equal(put(c, "key", "value"), -TARN_ETIMEOUT);
	assert_non_null(strstr(err_text(), "handed over"));
	expect_no_pending(c);
}

/* The client has heard before the member that this one has the shard now. */
static void test_incoming(void **state)
{
	struct cluster *c = *state;
	struct task *task;

	assert_int_equal(put(c, "key", "value"), 0);
	freeze(c, "key");
	set_all(c, SHARD_INCOMING, SINCE - 1);
	task = kv_get(c->s->op, "key", 3, NULL, 0, true);
	assert_true(rests(task));
	set_all(c, SHARD_OPEN, SINCE);
	assert_int_equal(finish(task), 0);
	set_all(c, SHARD_INCOMING, SINCE - 1);
	task = kv_get(c->s->op, "absent", 6, NULL, 0, true);
	assert_true(rests(task));
	set_all(c, SHARD_OPEN, SINCE);
	assert_int_equal(finish(task), -TARN_ENOTFOUND);
}

/* ---- at the same time ------------------------------------------------------------------------ */

/* Calls `hook` behind the first request of this kind, or behind the post that has it. */
static struct {
	struct fabric_ops ops;
	const struct fabric_ops *real;
	enum fabric_opcode opcode;
	bool behind_post;
	void (*hook)(struct cluster *c);
	struct cluster *cluster;
} spy;

static int spy_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		    unsigned count, void *cookie)
{
	void (*hook)(struct cluster *) = spy.hook;
	unsigned n = 0;
	int ret = 1;

	while (n < count && requests[n].opcode != spy.opcode)
		n++;
	if (!hook || n == count)
		return spy.real->post(ep, requests, count, cookie);
	n = spy.behind_post ? count : n + 1;
	spy.hook = NULL;
	assert_int_equal(spy.real->post(ep, requests, n, cookie), 1);
	hook(spy.cluster);
	if (n < count)
		ret = spy.real->post(ep, requests + n, count - n, cookie);
	return ret;
}

static void watch(struct cluster *c, enum fabric_opcode opcode, bool behind_post,
		  void (*hook)(struct cluster *c))
{
	if (c->s->ep->ops != &spy.ops) {
		spy.real = c->s->ep->ops;
		spy.ops = *spy.real;
		spy.ops.post = spy_post;
		c->s->ep->ops = &spy.ops;
	}
	spy.opcode = opcode;
	spy.behind_post = behind_post;
	spy.hook = hook;
	spy.cluster = c;
}

static void freeze_shards(struct cluster *c)
{
	set_all(c, SHARD_CLOSING, SINCE);
	each_slot(c, kill);
	set_all(c, SHARD_GONE, SINCE);
}

/* The inserter has read "open" behind its pending slot; then the shard is closed and frozen. */
static void test_insert_killed(void **state)
{
	struct cluster *c = *state;

	watch(c, FABRIC_CAS, true, freeze_shards);
	assert_int_equal(put(c, "key", "value"), -TARN_EMOVED);
	expect_no_pending(c);
	assert_true(fixture_slot(&c->f, "key", 3) == 0);
}

static void close_shards(struct cluster *c)
{
	set_all(c, SHARD_GONE, SINCE);
}

/* The shard goes just behind the pending slot, and nobody has seen that: the word is read behind it. */
static void test_insert_looks_behind(void **state)
{
	struct cluster *c = *state;

	assert_int_equal(put(c, "warm", "up"), 0);
	watch(c, FABRIC_CAS, false, close_shards);
	assert_int_equal(put(c, "key", "value"), -TARN_EMOVED);
	expect_no_pending(c);
	assert_true(fixture_slot(&c->f, "key", 3) == 0);
}

static void freeze_counter(struct cluster *c)
{
	freeze(c, "n");
}

static void hand_over_counter(struct cluster *c)
{
	freeze(c, "n");
	set_all(c, SHARD_GONE, SINCE);
}

static void close_counter(struct cluster *c)
{
	freeze(c, "n");
	set_all(c, SHARD_CLOSING, SINCE);
}

/* An add that finds the counter frozen behind itself counts only in an open shard. */
static void test_counter(void **state)
{
	struct cluster *c = *state;
	int64_t value;

	c->s->ep->features |= FABRIC_COUNTER_FAA;
	assert_int_equal(tarn_add(c->s, "n", 1, 5, &value), 0);
	watch(c, FABRIC_FAA, false, freeze_counter);
	assert_int_equal(tarn_add(c->s, "n", 1, 1, &value), 0);
	assert_int_equal(value, 6);
	each_slot(c, thaw);
	watch(c, FABRIC_FAA, false, close_counter);
	assert_int_equal(tarn_add(c->s, "n", 1, 1, &value), -TARN_EAMBIGUOUS);
	set_all(c, SHARD_OPEN, SINCE);
	each_slot(c, thaw);
	watch(c, FABRIC_FAA, false, hand_over_counter);
	assert_int_equal(tarn_add(c->s, "n", 1, 1, &value), -TARN_EAMBIGUOUS);
	/* nothing is added to one that is frozen already */
	set_all(c, SHARD_CLOSING, SINCE);
	assert_int_equal(tarn_session_set_timeout(c->s, 20), 0);
	assert_int_equal(tarn_add(c->s, "n", 1, 1, &value), -TARN_ETIMEOUT);
	each_slot(c, thaw);
	set_all(c, SHARD_OPEN, SINCE);
	assert_int_equal(tarn_get(c->s, "n", 1, &value, sizeof(value), NULL), 0);
	assert_int_equal(value, 8);
}

/* ---- batches and walks ----------------------------------------------------------------------- */

static void test_batch(void **state)
{
	struct cluster *c = *state;
	struct tarn_mget items[4] = {{.key = "a", .key_bytes = 1},
				     {.key = "b", .key_bytes = 1},
				     {.key = "absent", .key_bytes = 6},
				     {.key = "theirs", .key_bytes = 6}};
	char buffers[4][16];

	for (unsigned i = 0; i < 4; i++) {
		items[i].buffer = buffers[i];
		items[i].buffer_bytes = sizeof(buffers[i]);
	}
	assert_int_equal(put(c, "a", "one"), 0);
	assert_int_equal(put(c, "b", "two"), 0);
	assert_int_equal(put(c, "theirs", "three"), 0);
	freeze(c, "b");
	c->since[shard(c, "theirs")] = 0;
	assert_true(shard(c, "absent") != shard(c, "theirs") && shard(c, "a") != shard(c, "theirs"));
	assert_int_equal(tarn_mget(c->s, items, 4), 0);
	assert_int_equal(items[0].status, 0);
	assert_int_equal(items[1].status, 0);
	assert_memory_equal(buffers[1], "two", 3);
	assert_int_equal(items[2].status, -TARN_ENOTFOUND);
	assert_int_equal(items[3].status, -TARN_EMOVED);
	set_all(c, SHARD_GONE, SINCE);
	assert_int_equal(tarn_mget(c->s, items, 4), 0);
	assert_int_equal(items[0].status, 0); /* committed */
	assert_int_equal(items[1].status, -TARN_EMOVED);
	assert_int_equal(items[2].status, -TARN_EMOVED);
	assert_int_equal(items[3].status, -TARN_EMOVED);
}

#define WALKED 3000u

/* The keys of a whole walk; *ret_moved: how often it said that the map is old. */
static unsigned walk(struct cluster *c, uint8_t *seen, unsigned *ret_moved)
{
	struct tarn_scan *scan;
	unsigned n = 0, moved = 0;
	const void *key;
	size_t bytes;
	int ret;

	memset(seen, 0, WALKED);
	assert_int_equal(tarn_scan_open(c->s, "", 0, &scan), 0);
	while ((ret = tarn_scan_next(scan, &key, &bytes, NULL)) != 0) {
		char text[16] = "";

		if (ret == -TARN_EMOVED) {
			moved++;
			assert_non_null(strstr(err_text(), "shard 9 "));
			set_word(c, 9, SHARD_OPEN, SINCE);
			continue;
		}
		assert_int_equal(ret, 1);
		memcpy(text, key, bytes);
		assert_false(seen[atoi(text)]);
		seen[atoi(text)] = 1;
		n++;
	}
	tarn_scan_close(scan);
	*ret_moved = moved;
	return n;
}

/* A walk shows the keys of the member's own shards, each once, and none is missing unless it says so. */
static void test_scan(void **state)
{
	struct cluster *c = *state;
	uint8_t seen[WALKED];
	unsigned ours = 0, moved;
	char key[16];

	for (unsigned i = 0; i < WALKED; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(put(c, key, "x"), 0);
	}
	assert_int_equal(walk(c, seen, &moved), WALKED);
	assert_int_equal(moved, 0);
	for (uint32_t i = 0; i < SHARDS; i += 3)
		c->since[i] = 0;
	c->since[9] = SINCE;
	for (unsigned i = 0; i < WALKED; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ours += c->since[shard(c, key)] != 0;
		if (i % 5 == 0)
			freeze(c, key);
	}
	set_word(c, 3, SHARD_GONE, 0); /* not ours: its word says nothing */
	set_word(c, 4, SHARD_CLOSING, SINCE);
	set_word(c, 9, SHARD_GONE, SINCE);
	assert_int_equal(walk(c, seen, &moved), ours);
	assert_int_equal(moved, 1);
	for (unsigned i = 0; i < WALKED; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(seen[i], c->since[shard(c, key)] != 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trips, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_epoch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_older_map, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_closing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_closing_for_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_incoming, setup, teardown),
		cmocka_unit_test_setup_teardown(test_insert_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_insert_looks_behind, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counter, setup, teardown),
		cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
	};

	return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
