/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-kv.c - operations on keys, one session or two, on a pool in this process's memory
 *
 * What clients do to each other at the same time is tests/sim; here: results, limits, round trips,
 * damaged memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "claim.h"
#include "clock.h"
#include "fixture.h"

#define MIB (1ull << 20)

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct layout_plan plan = fixture_plan(64 * MIB);

	plan.keys = 200000; /* several subtables */
	*state = f;
	return fixture_create(f, &plan);
}

static int teardown(void **state)
{
	fixture_destroy(*state);
	free(*state);
	return 0;
}

static void expect_stored(struct tarn_session *s, const char *key, const char *value)
{
	char buffer[256];
	struct tarn_item item = TARN_ITEM_INIT;

	assert_int_equal(tarn_get(s, key, strlen(key), buffer, sizeof(buffer), &item), 0);
	assert_int_equal(item.value_bytes, strlen(value));
	assert_memory_equal(buffer, value, strlen(value));
}

static void test_basic(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_item item = TARN_ITEM_INIT;

	assert_int_equal(tarn_get(s, "a", 1, NULL, 0, &item), -TARN_ENOTFOUND);
	assert_int_equal(tarn_put(s, "a", 1, "one", 3, NULL, NULL), 0);
	expect_stored(s, "a", "one");
	assert_int_equal(tarn_put(s, "a", 1, "two!", 4, NULL, NULL), 0);
	expect_stored(s, "a", "two!");
	assert_int_equal(tarn_get(s, "a", 1, NULL, 0, &item), -TARN_ETOOSMALL);
	assert_int_equal(item.value_bytes, 4);
	assert_int_equal(item.writer, 1);
	assert_int_equal(tarn_exists(s, "a", 1, NULL), 0);
	assert_int_equal(tarn_delete(s, "a", 1), 0);
	assert_int_equal(tarn_delete(s, "a", 1), -TARN_ENOTFOUND);
	assert_int_equal(tarn_exists(s, "a", 1, NULL), -TARN_ENOTFOUND);
	session_free(s);
}

static void test_key_and_value_sizes(void **state)
{
	static const size_t keys[] = {1, 7, 8, 9, 16, 255, 4096, 65534, 65535};
	static const size_t values[] = {0,     1,      7,      8,      64,     65,      1000,
					65536, 196000, 262144, 262145, 300000, 1048576, 3000001};
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	uint8_t *key = malloc(65536), *value = malloc(4 * MIB), *back = malloc(4 * MIB);
	unsigned i, j;
	size_t n;

	for (n = 0; n < 4 * MIB; n++)
		value[n] = (uint8_t)(n * 2654435761u >> 24);
	memset(key, 'k', 65536);
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		for (j = 0; j < sizeof(values) / sizeof(values[0]); j++) {
			struct tarn_item item = TARN_ITEM_INIT;

			assert_int_equal(
				tarn_put(s, key, keys[i], value + i, values[j], NULL, NULL), 0);
			memset(back, 0xee, values[j] + 8);
			assert_int_equal(tarn_get(s, key, keys[i], back, values[j] + 8, &item), 0);
			assert_int_equal(item.value_bytes, values[j]);
			assert_memory_equal(back, value + i, values[j]);
			/* bytes behind the value are untouched */
			assert_int_equal(back[values[j]], 0xee);
			if (values[j])
				assert_int_equal(
					tarn_get(s, key, keys[i], back, values[j] - 1, &item),
					-TARN_ETOOSMALL);
		}
		assert_int_equal(tarn_delete(s, key, keys[i]), 0);
	}
	free(key);
	free(value);
	free(back);
	session_free(s);
}

static void test_arguments(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD),
			    *reader = fixture_session(f, TARN_NO_THREAD | TARN_READONLY);
	struct tarn_put_options options = TARN_PUT_INIT;
	char byte;

	assert_int_equal(tarn_get(NULL, "a", 1, &byte, 1, NULL), -EINVAL);
	assert_int_equal(tarn_get(s, NULL, 1, &byte, 1, NULL), -EINVAL);
	assert_int_equal(tarn_get(s, "a", 1, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tarn_get(s, "a", 0, &byte, 1, NULL), -TARN_EKEYSIZE);
	assert_int_equal(tarn_get(s, "a", 65536, &byte, 1, NULL), -TARN_EKEYSIZE);
	assert_int_equal(tarn_put(s, "a", 1, NULL, 1, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_put(s, "a", 1, "", f->geometry.max_value_bytes + 1, NULL, NULL),
			 -TARN_EVALUESIZE);
	assert_non_null(strstr(tarn_last_error_text(), "max_value"));
	options.flags = 0x80;
	assert_int_equal(tarn_put(s, "a", 1, "", 0, &options, NULL), -EINVAL);
	options.flags = TARN_PUT_IF_ABSENT | TARN_PUT_IF_STAMP;
	assert_int_equal(tarn_put(s, "a", 1, "", 0, &options, NULL), -EINVAL);
	options.flags = 0;
	options.size = 0;
	assert_int_equal(tarn_put(s, "a", 1, "", 0, &options, NULL), -EINVAL);
	assert_int_equal(tarn_put(reader, "a", 1, "", 0, NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_delete(reader, "a", 1), -TARN_EREADONLY);
	assert_int_equal(tarn_add(reader, "a", 1, 1, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_put(s, "a", 1, "v", 1, NULL, NULL), 0);
	expect_stored(reader, "a", "v");
	assert_int_equal(tarn_scan_progress(NULL), 0);
	assert_int_equal(tarn_session_set_timeout(s, 0), -EINVAL);
	assert_int_equal(tarn_session_set_timeout(s, 3600001), -EINVAL);
	/* another thread is in the session */
	atomic_store(&s->owner, SESSION_CALL);
	assert_int_equal(tarn_get(s, "a", 1, &byte, 1, NULL), -TARN_EINUSE);
	atomic_store(&s->owner, SESSION_IDLE);
	session_free(reader);
	session_free(s);
}

static void test_conditions(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_put_options options = TARN_PUT_INIT;
	uint64_t stamp = 0, other;

	options.flags = TARN_PUT_IF_STAMP;
	assert_int_equal(tarn_put(s, "c", 1, "x", 1, &options, NULL), -TARN_ENOTFOUND);
	options.flags = TARN_PUT_IF_ABSENT;
	assert_int_equal(tarn_put(s, "c", 1, "x", 1, &options, &stamp), 0);
	assert_int_equal(tarn_put(s, "c", 1, "y", 1, &options, NULL), -TARN_EEXISTS);
	expect_stored(s, "c", "x");
	options.flags = TARN_PUT_IF_STAMP;
	options.stamp = stamp + 1;
	assert_int_equal(tarn_put(s, "c", 1, "y", 1, &options, NULL), -TARN_ESTAMP);
	options.stamp = stamp;
	assert_int_equal(tarn_put(s, "c", 1, "z", 1, &options, &other), 0);
	assert_true(other != stamp);
	assert_int_equal(tarn_put(s, "c", 1, "w", 1, &options, NULL), -TARN_ESTAMP);
	expect_stored(s, "c", "z");
	session_free(s);
}

static void test_item(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_put_options options = TARN_PUT_INIT;
	struct tarn_item item = TARN_ITEM_INIT;
	uint64_t stamp;

	options.user_flags = 0xfeedbeef;
	options.expiry_ms = 10000;
	assert_int_equal(tarn_put(s, "i", 1, "value", 5, &options, &stamp), 0);
	assert_int_equal(tarn_exists(s, "i", 1, &item), 0);
	assert_int_equal(item.kind, TARN_KIND_VALUE);
	assert_true(item.user_flags == 0xfeedbeef);
	assert_true(item.stamp == stamp);
	assert_true(item.expiry_ms >= 10000 && item.expiry_ms <= 10500);
	/* a caller that knows only the first two fields */
	memset(&item, 0xaa, sizeof(item));
	item.size = 8;
	assert_int_equal(tarn_exists(s, "i", 1, &item), 0);
	assert_int_equal(item.kind, TARN_KIND_VALUE);
	assert_true(item.value_bytes == 0xaaaaaaaaaaaaaaaaull);
	session_free(s);
}

static void learn_epoch(struct tarn_session *s)
{
	assert_int_equal(tarn_session_process(s), 0);
}

static void test_expiry(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD), *other;
	struct tarn_put_options options = TARN_PUT_INIT;
	struct tarn_scan *scan;
	const void *key;
	size_t key_bytes;
	char byte;

	options.expiry_ms = 1000; /* 4 epochs, and the one under way */
	assert_int_equal(tarn_put(s, "e", 1, "x", 1, &options, NULL), 0);
	fixture_epoch(f, 4);
	learn_epoch(s);
	assert_int_equal(tarn_get(s, "e", 1, &byte, 1, NULL), 0);
	fixture_epoch(f, 1);
	learn_epoch(s);
	assert_int_equal(tarn_get(s, "e", 1, &byte, 1, NULL), -TARN_ENOTFOUND);
	assert_int_equal(tarn_delete(s, "e", 1), -TARN_ENOTFOUND);
	/* also for a session that begins with a walk */
	other = fixture_session(f, TARN_NO_THREAD);
	assert_int_equal(tarn_scan_open(other, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &key_bytes, NULL), 0);
	tarn_scan_close(scan);
	session_free(other);
	options.flags = TARN_PUT_IF_STAMP;
	assert_int_equal(tarn_put(s, "e", 1, "y", 1, &options, NULL), -TARN_ENOTFOUND);
	options.flags = TARN_PUT_IF_ABSENT;
	options.expiry_ms = 0;
	assert_int_equal(tarn_put(s, "e", 1, "z", 1, &options, NULL), 0);
	expect_stored(s, "e", "z");
	options.flags = 0;
	options.expiry_ms = UINT64_MAX;
	assert_int_equal(tarn_put(s, "e", 1, "z", 1, &options, NULL), -EINVAL);
	session_free(s);
}

static void test_counters(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_item item = TARN_ITEM_INIT;
	char long_key[300];
	int64_t value;

	/* as in a nic domain */
	s->ep->features |= FABRIC_COUNTER_FAA;
	assert_int_equal(tarn_add(s, "n", 1, 5, &value), 0);
	assert_int_equal(value, 5);
	assert_int_equal(tarn_add(s, "n", 1, -7, &value), 0);
	assert_int_equal(value, -2);
	assert_int_equal(tarn_get(s, "n", 1, &value, sizeof(value), &item), 0);
	assert_int_equal(value, -2);
	assert_int_equal(item.kind, TARN_KIND_COUNTER);
	assert_int_equal(tarn_add(s, "n", 1, INT64_MAX, &value), 0);
	assert_int_equal(tarn_add(s, "n", 1, INT64_MAX, &value), 0);
	memset(long_key, 'l', sizeof(long_key));
	assert_int_equal(tarn_add(s, long_key, sizeof(long_key), 3, NULL), 0);
	assert_int_equal(tarn_add(s, long_key, sizeof(long_key), 4, &value), 0);
	assert_int_equal(value, 7);
	assert_int_equal(tarn_put(s, "v", 1, "12345678", 8, NULL, NULL), 0);
	assert_int_equal(tarn_add(s, "v", 1, 1, NULL), -TARN_ETYPE);
	/* a counter can be overwritten by a value and the other way round by delete */
	assert_int_equal(tarn_put(s, "n", 1, "text", 4, NULL, NULL), 0);
	expect_stored(s, "n", "text");
	assert_int_equal(tarn_delete(s, "v", 1), 0);
	assert_int_equal(tarn_add(s, "v", 1, 1, &value), 0);
	assert_int_equal(value, 1);
	session_free(s);
}

/* Round trips as docs/protocol.md section 4 promises them. */
static uint64_t trips(struct tarn_session *s, uint64_t *before)
{
	uint64_t n = s->stats.round_trips - *before;

	*before = s->stats.round_trips;
	return n;
}

static void test_round_trips(void **state)
{
	struct layout_plan plan = fixture_plan(64 * MIB);
	uint64_t warm_trips, cold_trips;
	struct tarn_session *s, *cold;
	struct fixture f;
	char buffer[8];

	(void)state;
	plan.keys =
		1000; /* one subtable, so that its directory entry is known after the first call */
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	cold = fixture_session(&f, TARN_NO_THREAD | TARN_NO_CACHE);

	/* directory, epoch and a page are learned by the first calls */
	assert_int_equal(tarn_put(s, "first", 5, "x", 1, NULL, NULL), 0);
	assert_int_equal(tarn_put(cold, "first", 5, "x", 1, NULL, NULL), 0);
	warm_trips = s->stats.round_trips;
	cold_trips = cold->stats.round_trips;
	assert_int_equal(tarn_put(s, "r", 1, "x", 1, NULL, NULL), 0);
	assert_int_equal(trips(s, &warm_trips), 3);
	assert_int_equal(tarn_get(s, "r", 1, buffer, 8, NULL), 0);
	assert_int_equal(trips(s, &warm_trips), 1);
	assert_int_equal(tarn_put(s, "r", 1, "y", 1, NULL, NULL), 0);
	assert_int_equal(trips(s, &warm_trips), 1);
	assert_int_equal(tarn_get(cold, "r", 1, buffer, 8, NULL), 0);
	assert_int_equal(trips(cold, &cold_trips), 2);
	assert_int_equal(tarn_put(cold, "r", 1, "z", 1, NULL, NULL), 0);
	assert_int_equal(trips(cold, &cold_trips), 3);
	/* the other session's cached location is stale: one more for noticing */
	assert_int_equal(tarn_get(s, "r", 1, buffer, 8, NULL), 0);
	assert_int_equal(trips(s, &warm_trips), 3);
	assert_int_equal(buffer[0], 'z');
	assert_int_equal(tarn_delete(cold, "r", 1), 0);
	assert_int_equal(trips(cold, &cold_trips), 3);
	assert_int_equal(tarn_get(cold, "r", 1, buffer, 8, NULL), -TARN_ENOTFOUND);
	assert_int_equal(trips(cold, &cold_trips), 1);
	session_free(s);
	session_free(cold);
	fixture_destroy(&f);
}

/* A key that another session writes over all the time is looked up in the index at once. */
static void test_trips_beside_a_writer(void **state)
{
	struct tarn_session *s, *other;
	uint64_t s_trips = 0, other_trips = 0;
	unsigned most = 0;
	char buffer[8];

	s = fixture_session(*state, TARN_NO_THREAD);
	other = fixture_session(*state, TARN_NO_THREAD);
	fixture_epoch(*state, 1);
	learn_epoch(s);
	learn_epoch(other);
	assert_int_equal(tarn_put(other, "w", 1, "0", 1, NULL, NULL), 0);
	for (unsigned i = 0; i < 20; i++) {
		unsigned took;

		assert_int_equal(tarn_put(other, "w", 1, &i, 4, NULL, NULL), 0);
		trips(s, &s_trips);
		assert_int_equal(tarn_get(s, "w", 1, buffer, 8, NULL), 0);
		took = (unsigned)trips(s, &s_trips);
		/* the first one learns the directory */
		most += i > 0 && took > 2;
		if (i > 4)
			assert_int_equal(took, 2);
	}
	assert_int_equal(most, 2);
	/* it has stopped */
	assert_int_equal(tarn_get(s, "w", 1, buffer, 8, NULL), 0);
	assert_int_equal(tarn_get(s, "w", 1, buffer, 8, NULL), 0);
	trips(s, &s_trips);
	assert_int_equal(tarn_get(s, "w", 1, buffer, 8, NULL), 0);
	assert_int_equal(trips(s, &s_trips), 1);
	/* two writers in turn: nobody wastes a round trip on what he knows to be old */
	for (unsigned i = 0; i < 20; i++) {
		trips(s, &s_trips);
		trips(other, &other_trips);
		assert_int_equal(tarn_put(s, "w", 1, &i, 4, NULL, NULL), 0);
		assert_int_equal(tarn_put(other, "w", 1, &i, 4, NULL, NULL), 0);
		if (i > 4) {
			assert_int_equal(trips(s, &s_trips), 3);
			assert_int_equal(trips(other, &other_trips), 3);
		}
	}
	session_free(s);
	session_free(other);
}

/* ---- too slow for T1 ---- */

static struct fabric_ops slow_ops;
static const struct fabric_ops *fast_ops;
static uint64_t slow_now, slow_posts, slow_limit;

static uint64_t slow_clock(struct fabric_endpoint *ep)
{
	(void)ep;
	return slow_now;
}

/* The first `slow_limit` posts take longer than D. */
static int slow_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		     unsigned count, void *cookie)
{
	int ret = fast_ops->post(ep, requests, count, cookie);

	slow_now += slow_posts++ < slow_limit ? 150000000u : 1000u;
	return ret;
}

static void make_slow(struct tarn_session *s, uint64_t limit)
{
	if (s->ep->ops != &slow_ops) {
		fast_ops = s->ep->ops;
		slow_now = fast_ops->now(s->ep);
	}
	slow_ops = *fast_ops;
	slow_ops.now = slow_clock;
	slow_ops.post = slow_post;
	slow_posts = 0;
	slow_limit = limit;
	s->ep->ops = &slow_ops;
}

/* Runs it by the slow clock. */
static int run_slow(struct task *task, uint64_t *ret_longest, unsigned *ret_pauses)
{
	*ret_longest = *ret_pauses = 0;
	while (!task->step(task)) {
		uint64_t pause = task->wake_ns - slow_now;

		assert_true(task->wake_ns > slow_now);
		if (pause > *ret_longest)
			*ret_longest = pause;
		++*ret_pauses;
		slow_now = task->wake_ns;
		task->status = 0;
	}
	return task->result;
}

/*
 * What never gets done within D is tried less and less often, so that it may become faster; what was too
 * late once is tried again at once.
 */
static void test_congestion(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	uint64_t longest, began, hits, d = f->geometry.deadline_ns;
	unsigned pauses;

	/* the directory and the epoch are known from here on */
	assert_int_equal(tarn_put(s, "k", 1, "v", 1, NULL, NULL), 0);
	s->timeout_ns = 120000000000u;
	make_slow(s, UINT64_MAX);
	began = slow_now;
	assert_int_equal(run_slow(kv_get(s->op, "none", 4, NULL, 0, true), &longest, &pauses),
			 -TARN_ETIMEOUT);
	/* 150 ms and 800 ms on average; without the pauses it would be 800 posts */
	assert_in_range(slow_posts, 60, 300);
	assert_in_range(longest, 8 * d, 16 * d);
	/* the last pause ends with the time, and then it looks once more */
	assert_in_range(slow_now - began, s->timeout_ns, s->timeout_ns + 2 * 150000000u);
	/* a location that was read too late is none the worse for it */
	make_slow(s, 1);
	assert_int_equal(run_slow(kv_get(s->op, "k", 1, NULL, 0, true), &longest, &pauses), 0);
	hits = s->stats.cache_hits;
	make_slow(s, 0);
	assert_int_equal(run_slow(kv_get(s->op, "k", 1, NULL, 0, true), &longest, &pauses), 0);
	assert_int_equal(s->stats.cache_hits, hits + 1);
	make_slow(s, 1);
	assert_int_equal(run_slow(kv_get(s->op, "none", 4, NULL, 0, true), &longest, &pauses),
			 -TARN_ENOTFOUND);
	assert_int_equal(pauses, 0);
	make_slow(s, 3);
	assert_int_equal(run_slow(kv_get(s->op, "none", 4, NULL, 0, true), &longest, &pauses),
			 -TARN_ENOTFOUND);
	assert_int_equal(pauses, 2);
	assert_true(longest <= 2 * d);
	make_slow(s, 20);
	assert_int_equal(run_slow(kv_put(s->op, "new", 3, "v", 1, NULL), &longest, &pauses), 0);
	assert_true(pauses >= 1);
	s->ep->ops = fast_ops;
	expect_stored(s, "new", "v");
	session_free(s);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_blocks_come_back(void **state)
{
	struct layout_plan plan = fixture_plan(4 * MIB);
	struct alloc_counts counts;
	struct tarn_session *s;
	struct fixture f;
	unsigned i;

	(void)state;
	plan.deadline_ns = 1000000;
	plan.epoch_ns = 2500000;
	plan.grace_ns = 5000000;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	for (i = 0; i < 100; i++)
		assert_int_equal(tarn_put(s, "k", 1, &i, 4, NULL, NULL), 0);
	alloc_count(s->alloc, &counts);
	assert_int_equal(counts.waiting, 99);
	assert_int_equal(counts.held, 0);
	assert_int_equal(counts.pages, 1);
	/* G has passed, the epoch has not */
	clock_sleep_ns(20000000);
	learn_epoch(s);
	alloc_count(s->alloc, &counts);
	assert_int_equal(counts.waiting, 99);
	fixture_epoch(&f, 1);
	learn_epoch(s);
	fixture_epoch(&f, 1);
	learn_epoch(s);
	alloc_count(s->alloc, &counts);
	assert_int_equal(counts.waiting, 0);
	session_free(s);
	fixture_destroy(&f);
}

static uint32_t pages_in_state(struct fixture *f, uint32_t wanted)
{
	uint32_t page, n = 0;

	for (page = 0; page < f->geometry.npages; page++)
		n += layout_page_state(*fixture_word(
			     f, layout_page_word_offset(&f->geometry, page))) == wanted;
	return n;
}

static void test_hand_back(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	uint32_t free_pages = pages_in_state(f, LAYOUT_PAGE_FREE);
	unsigned i;
	char key[16];

	for (i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "h%u", i);
		assert_int_equal(tarn_put(s, key, strlen(key), &i, 4, NULL, NULL), 0);
	}
	/* pages without anything left were handed back on the way */
	assert_true(pages_in_state(f, LAYOUT_PAGE_FULL) >= 1);
	assert_int_equal(pages_in_state(f, LAYOUT_PAGE_SLAB), 1);
	tarn_session_close(s);
	assert_int_equal(pages_in_state(f, LAYOUT_PAGE_SLAB), 0);
	assert_int_equal(pages_in_state(f, LAYOUT_PAGE_PARTIAL), 1);
	/* the next client goes on in the partial page, once it is in the ring */
	s = fixture_session(f, TARN_NO_THREAD);
	for (i = 0; i < f->geometry.npages; i++) {
		uint64_t word = *fixture_word(f, layout_page_word_offset(&f->geometry, i));
		uint64_t ring = layout_ring_offset(&f->geometry, layout_page_class(word));

		if (layout_page_state(word) != LAYOUT_PAGE_PARTIAL)
			continue;
		*fixture_word(f, ring + LAYOUT_RING_ENTRIES) = layout_ring_make(0, i);
		*fixture_word(f, ring + LAYOUT_RING_TAIL) = 1;
	}
	assert_int_equal(tarn_put(s, "one more", 8, "1234", 4, NULL, NULL), 0);
	assert_int_equal(pages_in_state(f, LAYOUT_PAGE_PARTIAL), 0);
	assert_int_equal(pages_in_state(f, LAYOUT_PAGE_SLAB), 1);
	for (i = 0; i < 5000; i++) {
		unsigned back;

		snprintf(key, sizeof(key), "h%u", i);
		assert_int_equal(tarn_get(s, key, strlen(key), &back, 4, NULL), 0);
		assert_int_equal(back, i);
	}
	assert_true(free_pages > pages_in_state(f, LAYOUT_PAGE_FREE));
	session_free(s);
}

static void test_index_full(void **state)
{
	struct layout_plan plan = fixture_plan(4 * MIB);
	struct tarn_session *s;
	struct fixture f;
	uint32_t i, stored = 0;
	int ret = 0;

	(void)state;
	plan.groups = 1;
	plan.keys = 1;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	for (i = 0; i < 100; i++) {
		ret = tarn_put(s, &i, 4, &i, 4, NULL, NULL);
		stored += ret == 0;
	}
	/* a group of three buckets; each key may use two of them at least */
	assert_true(stored >= 14 && stored <= 21);
	/* the daemon would be asked for more, and there is none: tests/unit/test-grow.c */
	assert_int_equal(ret, -EOPNOTSUPP);
	assert_int_equal(s->stats.rpcs, 100 - stored);
	/* what is there can still be changed */
	i = 0;
	assert_int_equal(tarn_put(s, &i, 4, "new", 3, NULL, NULL), 0);
	session_free(s);
	fixture_destroy(&f);
}

/* Pending slots of clients that died fill the buckets: they are killed and used. */
static void test_dead_pending(void **state)
{
	struct layout_plan plan = fixture_plan(4 * MIB);
	struct tarn_session *s;
	struct fixture f;
	uint64_t subtable;
	unsigned i;

	(void)state;
	plan.groups = 1;
	plan.keys = 1;
	assert_int_equal(fixture_create(&f, &plan), 0);
	subtable = layout_page_offset(&f.geometry, 0);
	for (i = 0; i < 24; i++)
		if (i % 8)
			*fixture_word(&f, subtable + 8ull * i) = layout_slot_make(
				LAYOUT_SLOT_PENDING, i, 2, 9, layout_page_offset(&f.geometry, 3));
	s = fixture_session(&f, TARN_NO_THREAD);
	assert_int_equal(tarn_put(s, "k", 1, "v", 1, NULL, NULL), 0);
	expect_stored(s, "k", "v");
	session_free(s);
	fixture_destroy(&f);
}

/* A pending slot of the same key whose owner is gone holds nobody up. */
static void test_dead_rival(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	uint64_t slot, word;

	assert_int_equal(tarn_put(s, "rival", 5, "dead", 4, NULL, NULL), 0);
	slot = fixture_slot(f, "rival", 5);
	word = *fixture_word(f, slot);
	*fixture_word(f, slot) = layout_slot_with_state(word, LAYOUT_SLOT_PENDING);
	assert_int_equal(tarn_exists(s, "rival", 5, NULL), -TARN_ENOTFOUND);
	assert_int_equal(tarn_put(s, "rival", 5, "alive", 5, NULL, NULL), 0);
	expect_stored(s, "rival", "alive");
	session_free(s);
}

/* ---- damaged memory -------------------------------------------------------------------------- */

static void test_damage(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	uint64_t slot, word;
	uint8_t *block;
	char buffer[64];
	unsigned bit;

	assert_int_equal(tarn_put(s, "damage", 6, "0123456789", 10, NULL, NULL), 0);
	slot = fixture_slot(f, "damage", 6);
	word = *fixture_word(f, slot);
	block = (uint8_t *)f->base + layout_slot_offset(word);
	for (bit = 0; bit < (48 + 8 + 10) * 8; bit += 5) {
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(tarn_get(s, "damage", 6, buffer, sizeof(buffer), NULL),
				 -TARN_ECORRUPT);
		assert_int_equal(tarn_put(s, "damage", 6, "x", 1, NULL, NULL), -TARN_ECORRUPT);
		assert_int_equal(tarn_delete(s, "damage", 6), -TARN_ECORRUPT);
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(tarn_get(s, "damage", 6, buffer, sizeof(buffer), NULL), 0);
	/* a slot that names no block at all */
	*fixture_word(f, slot) = layout_slot_make(LAYOUT_SLOT_COMMITTED, layout_slot_fp(word),
						  layout_slot_class(word), 0, 4096);
	assert_int_equal(tarn_get(s, "damage", 6, buffer, sizeof(buffer), NULL), -TARN_ECORRUPT);
	/* and one that names a block of another generation */
	*fixture_word(f, slot) = word ^ 1ull << 17;
	assert_int_equal(tarn_get(s, "damage", 6, buffer, sizeof(buffer), NULL), -TARN_ECORRUPT);
	session_free(s);
}

static void test_damaged_extent(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	uint8_t *value = calloc(1, MIB), *block;
	const struct layout_extent *list;
	uint64_t word;

	assert_int_equal(tarn_put(s, "large", 5, value, MIB, NULL, NULL), 0);
	word = *fixture_word(f, fixture_slot(f, "large", 5));
	block = (uint8_t *)f->base + layout_slot_offset(word);
	list = layout_block_value((const struct layout_block *)block);
	*((uint8_t *)f->base + layout_slot_offset(list[2].where) + 1000) ^= 1;
	assert_int_equal(tarn_get(s, "large", 5, value, MIB, NULL), -TARN_ECORRUPT);
	*((uint8_t *)f->base + layout_slot_offset(list[2].where) + 1000) ^= 1;
	assert_int_equal(tarn_get(s, "large", 5, value, MIB, NULL), 0);
	free(value);
	session_free(s);
}

static void test_pool_full(void **state)
{
	struct layout_plan plan = fixture_plan(4 * MIB);
	struct tarn_session *s;
	struct fixture f;
	uint8_t *value = calloc(1, MIB);
	struct alloc_counts counts;
	int ret = 0;
	uint32_t i;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	for (i = 0; i < 8 && ret == 0; i++)
		ret = tarn_put(s, &i, 4, value, MIB, NULL, NULL);
	/* without a daemon the last resort fails; what had been taken is given back */
	assert_true(ret < 0);
	alloc_count(s->alloc, &counts);
	assert_int_equal(counts.held, 0);
	assert_true(counts.available > 0);
	i = 0;
	assert_int_equal(tarn_get(s, &i, 4, value, MIB, NULL), 0);
	free(value);
	session_free(s);
	fixture_destroy(&f);
}

/* ---- scan ------------------------------------------------------------------------------------ */

static void test_scan(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	char *long_key = malloc(60000), key[32] = "";
	uint8_t seen[3000] = {0};
	unsigned i, n = 0, longs = 0;
	struct tarn_scan *scan;
	struct tarn_item item = TARN_ITEM_INIT;
	const void *k;
	size_t bytes;
	int ret;

	memset(long_key, 'L', 60000);
	assert_int_equal(tarn_put(s, long_key, 60000, "x", 1, NULL, NULL), 0);
	for (i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "scan/%u", i);
		assert_int_equal(tarn_put(s, key, strlen(key), key, i % 20, NULL, NULL), 0);
	}
	assert_int_equal(tarn_scan_open(s, "", 0, &scan), 0);
	while ((ret = tarn_scan_next(scan, &k, &bytes, &item)) > 0) {
		longs += bytes == 60000 && !memcmp(k, long_key, bytes);
		n++;
	}
	assert_int_equal(ret, 0);
	assert_int_equal(tarn_scan_next(scan, &k, &bytes, NULL), 0);
	assert_int_equal(n, 3001);
	assert_int_equal(longs, 1);
	assert_int_equal(tarn_scan_progress(scan), 1000);
	tarn_scan_close(scan);
	assert_int_equal(tarn_scan_open(s, "scan/", 5, &scan), 0);
	while (tarn_scan_next(scan, &k, &bytes, &item) > 0) {
		memcpy(key, k, bytes);
		key[bytes] = 0;
		i = (unsigned)atoi(key + 5);
		assert_true(i < 3000 && !seen[i]);
		seen[i] = 1;
		assert_int_equal(item.value_bytes, i % 20);
	}
	for (i = 0; i < 3000; i++)
		assert_true(seen[i]);
	tarn_scan_close(scan);
	free(long_key);
	session_free(s);
}

/* A damaged directory entry costs its subtable's keys, not the walk. */
static void test_scan_damage(void **state)
{
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	unsigned i, n = 0, damaged = 0;
	struct tarn_scan *scan;
	const void *k;
	size_t bytes;
	int ret;

	for (i = 0; i < 1000; i++)
		assert_int_equal(tarn_put(s, &i, 4, "x", 1, NULL, NULL), 0);
	*fixture_word(f, layout_directory_offset(&f->geometry, 3)) = 0;
	assert_int_equal(tarn_scan_open(s, NULL, 0, &scan), 0);
	while ((ret = tarn_scan_next(scan, &k, &bytes, NULL)) != 0) {
		assert_true(ret == 1 || ret == -TARN_ECORRUPT);
		n += ret == 1;
		damaged += ret < 0;
	}
	assert_int_equal(damaged, 1);
	assert_true(n > 800 && n < 1000);
	tarn_scan_close(scan);
	*fixture_word(f, LAYOUT_GLOBAL_DEPTH_OFFSET) = 99;
	assert_int_equal(tarn_scan_open(s, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &k, &bytes, NULL), -TARN_ECORRUPT);
	assert_int_equal(tarn_scan_next(scan, &k, &bytes, NULL), 0);
	tarn_scan_close(scan);
	session_free(s);
}

/* Each operation counts once: its location was known and right, or the index was looked into. */
static void test_cache_counts(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_session *other = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_mget items[2] = {{.key = "a", .key_bytes = 1}, {.key = "none", .key_bytes = 4}};

	fixture_epoch(*state, 1);
	learn_epoch(s);
	learn_epoch(other);
	assert_int_equal(tarn_put(other, "a", 1, NULL, 0, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "a", 1, NULL, 0, NULL), 0);
	assert_int_equal(s->stats.cache_misses, 1);
	assert_int_equal(tarn_get(s, "a", 1, NULL, 0, NULL), 0);
	assert_int_equal(s->stats.cache_misses, 1);
	assert_int_equal(s->stats.cache_hits, 1);
	/* known, and wrong */
	assert_int_equal(tarn_put(other, "a", 1, NULL, 0, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "a", 1, NULL, 0, NULL), 0);
	assert_int_equal(s->stats.cache_misses, 2);
	assert_int_equal(s->stats.cache_hits, 1);
	/* in a group: the one known, the other not there */
	assert_int_equal(tarn_mget(s, items, 2), 0);
	assert_int_equal(s->stats.cache_hits, 2);
	assert_int_equal(s->stats.cache_misses, 3);
	assert_int_equal(tarn_put(other, "a", 1, NULL, 0, NULL, NULL), 0);
	assert_int_equal(tarn_mget(s, items, 1), 0);
	assert_int_equal(items[0].status, 0);
	assert_int_equal(s->stats.cache_hits, 2);
	assert_int_equal(s->stats.cache_misses, 4);
	session_free(s);
	session_free(other);
}

/* "Full" is believed after a pass that began when nothing rested any more. */
static void test_full_is_sure(void **state)
{
	struct wire_rpc_reply reply = {.value = 5, .length = 4};
	uint64_t pass = 0;

	(void)state;
	assert_false(claim_full_is_sure(&reply, &pass));
	reply.number = 1; /* something rests */
	reply.length = 7;
	assert_false(claim_full_is_sure(&reply, &pass));
	reply.number = 0;
	reply.value = 9;
	assert_false(claim_full_is_sure(&reply, &pass));
	reply.length = 9;
	reply.value = 11;
	assert_true(claim_full_is_sure(&reply, &pass));
}

/* Of pages with many blocks one at a time, of those with one block several. */
static void test_claims_at_once(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	uint32_t small = layout_class_for(64), large = layout_class_for(LAYOUT_BLOCK_MAX);

	assert_int_equal(layout_class_blocks(large), 1);
	assert_true(alloc_claim_begin(s->alloc, small));
	assert_false(alloc_claim_begin(s->alloc, small));
	for (unsigned i = 0; i < ALLOC_CLAIMS; i++)
		assert_true(alloc_claim_begin(s->alloc, large));
	assert_false(alloc_claim_begin(s->alloc, large));
	alloc_claim_end(s->alloc, large, -TARN_EPOOLFULL);
	assert_int_equal(alloc_claim_result(s->alloc, large), -TARN_EPOOLFULL);
	assert_true(alloc_claim_begin(s->alloc, large));
	assert_false(alloc_claim_begin(s->alloc, large));
	alloc_claim_end(s->alloc, small, 0);
	assert_true(alloc_claim_begin(s->alloc, small));
	session_free(s);
}

/* A subtable that is half full: few keys are in their second pair, which costs a near reader one more. */
static void test_first_pair(void **state)
{
	struct layout_plan plan = fixture_plan(64 * MIB);
	struct tarn_mget gets[32] = {{0}};
	uint32_t keys[32], count = 0;
	struct tarn_session *s;
	uint64_t before;
	struct fixture f;

	(void)state;
	plan.keys = 1000;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD | TARN_NO_CACHE);
	for (; count < 16000; count++)
		assert_int_equal(tarn_put(s, &count, sizeof(count), "", 0, NULL, NULL), 0);
	before = s->stats.requests;
	for (uint32_t key = 0; key < count; key += 32) {
		for (uint32_t i = 0; i < 32; i++) {
			keys[i] = key + i;
			gets[i].key = &keys[i];
			gets[i].key_bytes = sizeof(keys[i]);
		}
		assert_int_equal(tarn_mget(s, gets, 32), 0);
	}
	/* a pair and a block; in the emptier pair alone a third of them would need the other pair, too */
	assert_in_range(100 * (s->stats.requests - before) / count, 200, 220);
	session_free(s);
	fixture_destroy(&f);
}

/* The pages of a large value are claimed together: by tickets as far as the ring has some, then by the cursor. */
static void test_large_claim(void **state)
{
	struct fixture *f = *state;
	const struct layout_geometry *g = &f->geometry;
	uint64_t ring = layout_ring_offset(g, layout_class_for(LAYOUT_BLOCK_MAX));
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	uint64_t before, cursor;
	uint8_t *value = malloc(MIB), *got = malloc(MIB);

	memset(value, 'v', MIB);
	/* brings a page for the list of pieces, too */
	assert_int_equal(tarn_put(s, "first", 5, value, MIB, NULL, NULL), 0);
	/* and the directory's entry */
	assert_int_equal(tarn_exists(s, "a", 1, NULL), -TARN_ENOTFOUND);
	before = s->stats.round_trips;
	cursor = *fixture_word(f, LAYOUT_CURSOR_OFFSET);
	assert_int_equal(tarn_put(s, "a", 1, value, MIB, NULL, NULL), 0);
	assert_int_equal(*fixture_word(f, LAYOUT_CURSOR_OFFSET), cursor + 4);
	/* look, cursor, pages, CAS; the pieces; then as any insert */
	assert_int_equal(trips(s, &before), 4 + 1 + 3);

	/* three tickets, of which one is somebody else's */
	*fixture_word(f, ring + LAYOUT_RING_ENTRIES) = layout_ring_make(0, g->npages - 1);
	*fixture_word(f, ring + LAYOUT_RING_ENTRIES + 8) = layout_ring_make(7, g->npages - 2);
	*fixture_word(f, ring + LAYOUT_RING_ENTRIES + 16) = layout_ring_make(2, g->npages - 3);
	*fixture_word(f, ring + LAYOUT_RING_TAIL) = 3;
	cursor = *fixture_word(f, LAYOUT_CURSOR_OFFSET);
	assert_int_equal(tarn_put(s, "b", 1, value, MIB, NULL, NULL), 0);
	assert_int_equal(*fixture_word(f, ring + LAYOUT_RING_HEAD), 3);
	assert_int_equal(*fixture_word(f, LAYOUT_CURSOR_OFFSET), cursor + 2);
	for (uint32_t i = 1; i <= 3; i++)
		assert_true((layout_page_state(
				     *fixture_word(f, layout_page_word_offset(g, g->npages - i))) ==
			     LAYOUT_PAGE_FREE) == (i == 2));
	for (const char *key = "ab"; *key; key++) {
		memset(got, 0, MIB);
		assert_int_equal(tarn_get(s, key, 1, got, MIB, NULL), 0);
		assert_memory_equal(got, value, MIB);
	}
	session_free(s);
	free(value);
	free(got);
}

static void test_stats(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct tarn_pool_info info = {.size = sizeof(info)};
	char byte;

	assert_int_equal(tarn_put(s, "s", 1, "x", 1, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "s", 1, &byte, 1, NULL), 0);
	assert_int_equal(tarn_get(s, "t", 1, &byte, 1, NULL), -TARN_ENOTFOUND);
	assert_int_equal(tarn_delete(s, "s", 1), 0);
	assert_int_equal(tarn_session_get_stats(s, &stats), 0);
	assert_int_equal(stats.size, sizeof(stats));
	assert_int_equal(stats.gets, 2);
	assert_int_equal(stats.hits, 1);
	assert_int_equal(stats.puts, 1);
	assert_int_equal(stats.deletes, 1);
	assert_int_equal(stats.errors, 0);
	assert_int_equal(tarn_session_get_pool_info(s, &info), 0);
	assert_int_equal(info.pool_bytes, 64 * MIB);
	assert_string_equal(info.atomics, "cpu");
	stats.size = 0;
	assert_int_equal(tarn_session_get_stats(s, &stats), -EINVAL);
	session_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_basic, setup, teardown),
		cmocka_unit_test_setup_teardown(test_key_and_value_sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_arguments, setup, teardown),
		cmocka_unit_test_setup_teardown(test_conditions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_item, setup, teardown),
		cmocka_unit_test_setup_teardown(test_expiry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counters, setup, teardown),
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test_setup_teardown(test_trips_beside_a_writer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_congestion, setup, teardown),
		cmocka_unit_test(test_blocks_come_back),
		cmocka_unit_test_setup_teardown(test_hand_back, setup, teardown),
		cmocka_unit_test(test_index_full),
		cmocka_unit_test(test_dead_pending),
		cmocka_unit_test_setup_teardown(test_dead_rival, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged_extent, setup, teardown),
		cmocka_unit_test(test_pool_full),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stats, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cache_counts, setup, teardown),
		cmocka_unit_test(test_full_is_sure),
		cmocka_unit_test_setup_teardown(test_claims_at_once, setup, teardown),
		cmocka_unit_test(test_first_pair),
		cmocka_unit_test_setup_teardown(test_large_claim, setup, teardown),
	};

	return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
