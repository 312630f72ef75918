/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-async.c - asynchronous calls and batches, on a pool in this process's memory
 *
 * What several operations of a session do to each other and to other clients is tests/sim; here: every
 * call has one completion with the right result, limits, cancel, and what a caller may do meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>

#include "clock.h"
#include "engine.h"
#include "fixture.h"

#define MIB (1ull << 20)
#define MS  1000000ull

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct layout_plan plan = fixture_plan(256 * MIB);

	plan.keys = 500000;
	*state = f;
	return fixture_create(f, &plan);
}

static int teardown(void **state)
{
	fixture_destroy(*state);
	free(*state);
	return 0;
}

/* ---- completions ----------------------------------------------------------------------------- */

static struct tarn_completion taken[TARN_ASYNC_MAX];
static unsigned taken_count;

static void take(void *cookie, const struct tarn_completion *completion)
{
	assert_ptr_equal(cookie, completion->cookie);
	assert_true(taken_count < TARN_ASYNC_MAX);
	taken[taken_count++] = *completion;
}

static struct tarn_async with(void *cookie)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.done = take;
	async.cookie = cookie;
	return async;
}

/* Until nothing is under way and all was picked up. */
static void finish(struct tarn_session *s)
{
	while (tarn_session_wait(s, 10000) > 0)
		assert_true(tarn_session_poll(s, NULL, 0, NULL) > 0);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), 0);
	assert_int_equal(s->engine->in_flight, 0);
	assert_int_equal(s->engine->running, 0);
}

static const struct tarn_completion *completion_of(uint64_t op)
{
	const struct tarn_completion *found = NULL;

	for (unsigned i = 0; i < taken_count; i++) {
		if (taken[i].op != op)
			continue;
		assert_null(found);
		found = &taken[i];
	}
	assert_non_null(found);
	return found;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* One after the other: what the blocking twins would have said. */
static void test_twins(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_put_options absent = TARN_PUT_INIT;
	struct tarn_async async = with(s);
	char buffer[16];
	uint64_t op[10];

	taken_count = 0;
	absent.flags = TARN_PUT_IF_ABSENT;
	absent.user_flags = 7;
	assert_int_equal(tarn_put_async(s, "k", 1, "value", 5, &absent, &async, &op[0]), 0);
	finish(s);
	assert_int_equal(tarn_put_async(s, "k", 1, "other", 5, &absent, &async, &op[1]), 0);
	assert_int_equal(tarn_get_async(s, "k", 1, buffer, 8, &async, &op[2]), 0);
	assert_int_equal(tarn_get_async(s, "k", 1, buffer + 8, 2, &async, &op[3]), 0);
	assert_int_equal(tarn_exists_async(s, "k", 1, &async, &op[4]), 0);
	assert_int_equal(tarn_exists_async(s, "none", 4, &async, &op[5]), 0);
	assert_int_equal(tarn_add_async(s, "n", 1, 5, &async, &op[6]), 0);
	finish(s);
	assert_int_equal(tarn_delete_async(s, "k", 1, &async, &op[7]), 0);
	assert_int_equal(tarn_delete_async(s, "none", 4, &async, &op[8]), 0);
	assert_int_equal(tarn_session_ping_async(s, &async, &op[9]), 0);
	finish(s);
	assert_int_equal(taken_count, 10);
	assert_int_equal(completion_of(op[0])->status, 0);
	assert_int_equal(completion_of(op[0])->kind, TARN_OP_PUT);
	assert_int_equal(completion_of(op[1])->status, -TARN_EEXISTS);
	assert_int_equal(completion_of(op[2])->status, 0);
	assert_int_equal(completion_of(op[2])->item.value_bytes, 5);
	assert_int_equal(completion_of(op[2])->item.user_flags, 7);
	assert_true(completion_of(op[2])->item.stamp == completion_of(op[0])->stamp);
	assert_memory_equal(buffer, "value", 5);
	assert_int_equal(completion_of(op[3])->status, -TARN_ETOOSMALL);
	assert_int_equal(completion_of(op[3])->item.value_bytes, 5);
	assert_int_equal(completion_of(op[4])->status, 0);
	assert_int_equal(completion_of(op[5])->status, -TARN_ENOTFOUND);
	assert_int_equal(completion_of(op[6])->status, 0);
	assert_int_equal(completion_of(op[6])->value, 5);
	assert_int_equal(completion_of(op[7])->status, 0);
	assert_int_equal(completion_of(op[8])->status, -TARN_ENOTFOUND);
	/* nobody answers here */
	assert_int_equal(completion_of(op[9])->status, -EOPNOTSUPP);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_ENOTFOUND);
	session_free(s);
}

/* Completions without a callback, in a list that is shorter than they are many. */
static void test_list(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_completion list[7];
	static char keys[100][8];
	bool seen[100] = {false};
	unsigned count = 0;

	for (unsigned i = 0; i < 100; i++) {
		struct tarn_async async = TARN_ASYNC_INIT;

		snprintf(keys[i], sizeof(keys[i]), "%u", i);
		async.cookie = keys[i];
		assert_int_equal(
			tarn_put_async(s, keys[i], strlen(keys[i]), "", 0, NULL, &async, NULL), 0);
	}
	while (tarn_session_wait(s, 10000) > 0) {
		size_t n = 0;
		int ret = tarn_session_poll(s, list, 7, &n);

		assert_in_range(n, 1, 7);
		assert_int_equal(ret, n);
		for (size_t i = 0; i < n; i++) {
			unsigned which = (unsigned)atoi(list[i].cookie);

			assert_int_equal(list[i].status, 0);
			assert_false(seen[which]);
			seen[which] = true;
			count++;
		}
	}
	assert_int_equal(count, 100);
	session_free(s);
}

/* As many as there can be, and one more; then values that belong to their keys. */
static void test_many(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static uint32_t keys[TARN_ASYNC_MAX], values[TARN_ASYNC_MAX][20];

	taken_count = 0;
	for (uint32_t i = 0; i < TARN_ASYNC_MAX; i++) {
		struct tarn_async async = with(&keys[i]);

		keys[i] = i;
		for (unsigned n = 0; n < 20; n++)
			values[i][n] = i * 20 + n;
		assert_int_equal(
			tarn_put_async(s, &keys[i], 4, values[i], 4 + i % 77, NULL, &async, NULL),
			0);
	}
	assert_int_equal(tarn_exists_async(s, "k", 1, NULL, NULL), -TARN_EBUSY);
	assert_non_null(strstr(tarn_last_error_text(), "4096"));
	finish(s);
	assert_int_equal(taken_count, TARN_ASYNC_MAX);
	taken_count = 0;
	memset(values, 0, sizeof(values));
	for (uint32_t i = 0; i < TARN_ASYNC_MAX; i++) {
		struct tarn_async async = with(&keys[i]);

		assert_int_equal(
			tarn_get_async(s, &keys[i], 4, values[i], sizeof(values[i]), &async, NULL),
			0);
	}
	finish(s);
	assert_int_equal(taken_count, TARN_ASYNC_MAX);
	for (uint32_t i = 0; i < TARN_ASYNC_MAX; i++) {
		uint32_t key = *(uint32_t *)taken[i].cookie;

		assert_int_equal(taken[i].status, 0);
		assert_int_equal(taken[i].item.value_bytes, 4 + key % 77);
		assert_int_equal(values[key][0], key * 20);
	}
	session_free(s);
}

/* Of puts to one key the last one counts, and hardly any of the others was written. */
static void test_hot_key(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_async async = with(s);
	static uint32_t values[1000];
	uint64_t puts_before = s->stats.puts, posts_before = s->stats.posts;
	uint32_t value;

	taken_count = 0;
	for (uint32_t i = 0; i < 1000; i++) {
		values[i] = i;
		assert_int_equal(tarn_put_async(s, "hot", 3, &values[i], 4, NULL, &async, NULL), 0);
	}
	finish(s);
	assert_int_equal(taken_count, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(taken[i].status, 0);
		for (unsigned j = 0; j < i; j++)
			assert_true(taken[i].stamp != taken[j].stamp);
	}
	assert_int_equal(tarn_get(s, "hot", 3, &value, 4, NULL), 0);
	assert_int_equal(value, 999);
	assert_int_equal(s->stats.puts - puts_before, 1000);
	assert_true(s->stats.posts - posts_before < 30);
	/* conditions are not looked over */
	for (uint32_t i = 0; i < 10; i++) {
		struct tarn_put_options options = TARN_PUT_INIT;

		options.flags = TARN_PUT_IF_ABSENT;
		assert_int_equal(tarn_put_async(s, "hot", 3, &values[i], 4, &options, &async, NULL),
				 0);
	}
	taken_count = 0;
	finish(s);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(taken[i].status, -TARN_EEXISTS);
	session_free(s);
}

/* Wherever it is: each has its completion, and what was cancelled was not done. */
static void test_cancel(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static uint32_t keys[500];
	static uint64_t ops[500];
	unsigned cancelled = 0;

	for (unsigned round = 0; round < 8; round++) {
		taken_count = 0;
		for (uint32_t i = 0; i < 500; i++) {
			struct tarn_async async = with(&keys[i]);

			/* some of one key, behind each other */
			keys[i] = round << 16 | (i % 5 ? i : 0);
			assert_int_equal(
				tarn_put_async(s, &keys[i], 4, &keys[i], 4, NULL, &async, &ops[i]),
				0);
		}
		for (unsigned turn = 0; turn < round; turn++)
			engine_turn(s->engine);
		for (uint32_t i = round % 3; i < 500; i += 1 + round % 4)
			tarn_cancel(s, ops[i]);
		finish(s);
		assert_int_equal(taken_count, 500);
		for (uint32_t i = 0; i < 500; i++) {
			const struct tarn_completion *c = completion_of(ops[i]);
			bool shared = !(i % 5);

			assert_true(c->status == 0 || c->status == -TARN_ECANCELED);
			cancelled += c->status != 0;
			assert_int_equal(tarn_cancel(s, ops[i]), -TARN_EENDED);
			if (!shared)
				assert_int_equal(tarn_exists(s, &keys[i], 4, NULL),
						 c->status == 0 ? 0 : -TARN_ENOTFOUND);
		}
	}
	assert_true(cancelled > 100);
	assert_int_equal(tarn_cancel(s, 0), -TARN_EENDED);
	assert_int_equal(tarn_cancel(s, UINT64_MAX), -TARN_EENDED);
	session_free(s);
}

/* Each has a time of its own, also what waits for another put to its key, and without a connection. */
static void test_deadlines(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static const uint32_t times[] = {3600000, 300, 60, 200, 60};
	uint64_t ops[5], began = clock_now_ns();

	taken_count = 0;
	for (unsigned i = 0; i < 5; i++) {
		struct tarn_async async = with(s);

		/* the last one is of another key */
		async.timeout_ms = times[i];
		assert_int_equal(
			tarn_put_async(s, i < 4 ? "late" : "othe", 4, "", 0, NULL, &async, &ops[i]),
			0);
	}
	s->lost = true;
	while (taken_count < 4) {
		tarn_session_wait(s, 20);
		tarn_session_poll(s, NULL, 0, NULL);
		assert_true(clock_now_ns() - began < 5000000000);
	}
	for (unsigned i = 1; i < 5; i++)
		assert_int_equal(completion_of(ops[i])->status, -TARN_ESESSION);
	assert_true(clock_now_ns() - began >= 300000000);
	s->lost = false;
	finish(s);
	assert_int_equal(completion_of(ops[0])->status, 0);
	assert_int_equal(tarn_exists(s, "othe", 4, NULL), -TARN_ENOTFOUND);
	session_free(s);
}

/* What has to be refused is, whatever comes behind it. */
static void test_refused_put(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_async async = with(s);
	uint64_t ops[4];

	taken_count = 0;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(tarn_put_async(s, "k", 1, "v",
						i == 1 ? s->geometry.max_value_bytes + 1 : 1, NULL,
						&async, &ops[i]),
				 0);
	finish(s);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(completion_of(ops[i])->status, i == 1 ? -TARN_EVALUESIZE : 0);
	session_free(s);
}

/* Wherever a put of many to one key waits, it can be cancelled, and the others are none the worse. */
static void test_cancel_one_of_many(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static uint32_t values[8];

	for (unsigned which = 0; which < 64; which++) {
		struct tarn_async async = with(s);
		uint64_t ops[8];
		uint32_t value, last = 8;

		taken_count = 0;
		for (uint32_t i = 0; i < 8; i++) {
			values[i] = i;
			assert_int_equal(
				tarn_put_async(s, "k", 1, &values[i], 4, NULL, &async, &ops[i]), 0);
		}
		assert_int_equal(tarn_cancel(s, ops[which / 8]), 0);
		if (which % 8 != which / 8)
			assert_int_equal(tarn_cancel(s, ops[which % 8]), 0);
		finish(s);
		assert_int_equal(taken_count, 8);
		for (uint32_t i = 0; i < 8; i++) {
			bool cancelled = i == which / 8 || i == which % 8;

			assert_int_equal(completion_of(ops[i])->status,
					 cancelled ? -TARN_ECANCELED : 0);
			last = cancelled ? last : i;
		}
		assert_int_equal(tarn_get(s, "k", 1, &value, 4, NULL), 0);
		assert_int_equal(value, last);
	}
	session_free(s);
}

static struct tarn_session *own;
static unsigned chain;

/* The session is free inside of a callback. */
static void go_on(void *cookie, const struct tarn_completion *completion)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	uint32_t value;

	assert_int_equal(completion->status, 0);
	assert_int_equal(tarn_get(own, "chain", 5, &value, 4, NULL), 0);
	if (chain++ == 100)
		return;
	async.done = go_on;
	async.cookie = cookie;
	assert_int_equal(tarn_put_async(own, "chain", 5, cookie, 4, NULL, &async, NULL), 0);
}

static void test_calls_in_callbacks(void **state)
{
	uint32_t value = 7;
	struct tarn_async async = TARN_ASYNC_INIT;

	own = fixture_session(*state, TARN_NO_THREAD);
	chain = 0;
	async.done = go_on;
	async.cookie = &value;
	assert_int_equal(tarn_put_async(own, "chain", 5, &value, 4, NULL, &async, NULL), 0);
	finish(own);
	assert_int_equal(chain, 101);
	session_free(own);
}

/* Blocking calls, batches and walks with others under way. */
static void test_mixed(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static uint32_t keys[300];
	struct tarn_mget items[10];
	struct tarn_scan *scan;
	const void *key;
	size_t key_bytes;
	uint32_t value, values[10], walked = 0;

	taken_count = 0;
	for (uint32_t i = 0; i < 300; i++) {
		struct tarn_async async = with(&keys[i]);

		keys[i] = 0x10000 + i;
		assert_int_equal(tarn_put_async(s, &keys[i], 4, &keys[i], 4, NULL, &async, NULL),
				 0);
		if (i % 50 == 49) {
			engine_turn(s->engine);
			assert_int_equal(tarn_put(s, "m", 1, &i, 4, NULL, NULL), 0);
			assert_int_equal(tarn_get(s, "m", 1, &value, 4, NULL), 0);
			assert_int_equal(value, i);
			assert_int_equal(tarn_session_process(s), 0);
			/* housekeeping is under way already: it is not begun again in the midst */
			engine_process(s->engine);
			assert_true(engine_processing(s->engine));
			assert_int_equal(tarn_session_process(s), 0);
			assert_false(engine_processing(s->engine));
		}
	}
	engine_turn(s->engine);
	for (unsigned i = 0; i < 10; i++)
		items[i] = (struct tarn_mget){
			.key = "m", .key_bytes = 1, .buffer = &values[i], .buffer_bytes = 4};
	assert_int_equal(tarn_mget(s, items, 10), 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(items[i].status, 0);
	assert_int_equal(tarn_scan_open(s, NULL, 0, &scan), 0);
	while (tarn_scan_next(scan, &key, &key_bytes, NULL) == 1)
		walked++;
	tarn_scan_close(scan);
	assert_true(walked >= 1);
	finish(s);
	assert_int_equal(taken_count, 300);
	for (unsigned i = 0; i < 300; i++)
		assert_int_equal(taken[i].status, 0);
	session_free(s);
}

/* With a hundred thousand items, among them some that are wrong or not there. */
static void test_batches(void **state)
{
	const uint32_t count = 100000;
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_mput *puts = calloc(count, sizeof(*puts));
	struct tarn_mget *gets = calloc(count, sizeof(*gets));
	struct tarn_mdelete *deletes = calloc(count, sizeof(*deletes));
	uint32_t *keys = calloc(count, sizeof(*keys)), *values = calloc(count, sizeof(*values));
	struct tarn_put_options wrong = TARN_PUT_INIT;

	wrong.flags = 0x80;
	for (uint32_t i = 0; i < count; i++) {
		keys[i] = i;
		puts[i] = (struct tarn_mput){
			.key = &keys[i], .key_bytes = 4, .value = &keys[i], .value_bytes = 4};
		gets[i] = (struct tarn_mget){
			.key = &keys[i], .key_bytes = 4, .buffer = &values[i], .buffer_bytes = 4};
		deletes[i] = (struct tarn_mdelete){.key = &keys[i], .key_bytes = 4};
		if (i % 1000 == 1)
			puts[i].options = &wrong;
		if (i % 1000 == 2)
			gets[i].key_bytes = deletes[i].key_bytes = 0;
	}
	assert_int_equal(tarn_mput(s, puts, count), 0);
	assert_int_equal(tarn_mget(s, gets, count), 0);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(puts[i].status, i % 1000 == 1 ? -EINVAL : 0);
		assert_int_equal(gets[i].status, i % 1000 == 1   ? -TARN_ENOTFOUND
						 : i % 1000 == 2 ? -TARN_EKEYSIZE
								 : 0);
		if (gets[i].status)
			continue;
		assert_int_equal(values[i], i);
		assert_int_equal(gets[i].item.value_bytes, 4);
		assert_true(gets[i].item.stamp == puts[i].stamp);
	}
	assert_int_equal(tarn_mdelete(s, deletes, count), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(deletes[i].status, i % 1000 == 1   ? -TARN_ENOTFOUND
						    : i % 1000 == 2 ? -TARN_EKEYSIZE
								    : 0);
	assert_int_equal(tarn_mget(s, gets, 0), 0);
	assert_int_equal(tarn_mget(s, NULL, 0), 0);
	assert_int_equal(tarn_mget(s, NULL, 1), -EINVAL);
	assert_int_equal(tarn_mput(NULL, puts, 1), -EINVAL);
	free(puts);
	free(gets);
	free(deletes);
	free(keys);
	free(values);
	session_free(s);
}

/* Large keys and large values go side by side, too. */
static void test_large(void **state)
{
	const uint32_t bytes = 1100000, count = 24;
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_mput puts[24];
	struct tarn_mget gets[24];
	uint8_t *values = malloc((size_t)count * bytes), *back = malloc((size_t)count * bytes);
	char *keys = malloc((size_t)count * 60000);

	for (size_t i = 0; i < (size_t)count * bytes; i++)
		values[i] = (uint8_t)(i * 2654435761u >> 20);
	for (uint32_t i = 0; i < count; i++) {
		char *key = keys + (size_t)i * 60000;

		memset(key, 'a' + (int)i, 60000);
		puts[i] = (struct tarn_mput){.key = key,
					     .key_bytes = 1 + i * 2600,
					     .value = values + (size_t)i * bytes,
					     .value_bytes = i * 47000};
		gets[i] = (struct tarn_mget){.key = key,
					     .key_bytes = 1 + i * 2600,
					     .buffer = back + (size_t)i * bytes,
					     .buffer_bytes = bytes};
	}
	assert_int_equal(tarn_mput(s, puts, count), 0);
	assert_int_equal(tarn_mget(s, gets, count), 0);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(puts[i].status, 0);
		assert_int_equal(gets[i].status, 0);
		assert_int_equal(gets[i].item.value_bytes, i * 47000);
		assert_memory_equal(back + (size_t)i * bytes, values + (size_t)i * bytes,
				    i * 47000);
	}
	free(values);
	free(back);
	free(keys);
	session_free(s);
}

/* What nobody waits for any more ends with the session. */
static void test_close(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_async async = with(s);
	static uint32_t keys[600];

	taken_count = 0;
	for (uint32_t i = 0; i < 600; i++) {
		keys[i] = 0x20000 + i;
		assert_int_equal(tarn_put_async(s, &keys[i], 4, &keys[i], 4, NULL, &async, NULL),
				 0);
		if (i % 64 == 0)
			engine_turn(s->engine);
	}
	engine_stop(s->engine);
	assert_int_equal(s->engine->in_flight, 0);
	assert_int_equal(taken_count, 0);
	session_free(s);
}

static void test_descriptor(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct pollfd fd = {.events = POLLIN};

	fd.fd = tarn_session_fd(s);
	assert_true(fd.fd >= 0);
	assert_int_equal(poll(&fd, 1, 0), 0);
	taken_count = 0;
	for (unsigned i = 0; i < 200; i++) {
		struct tarn_async async = with(s);
		unsigned rounds = 0;

		assert_int_equal(tarn_put_async(s, "fd", 2, "v", 1, NULL, &async, NULL), 0);
		while (taken_count == i) {
			assert_int_equal(poll(&fd, 1, 10000), 1);
			tarn_session_poll(s, NULL, 0, NULL);
			assert_true(++rounds < 50);
		}
		assert_int_equal(taken[i].status, 0);
		assert_int_equal(poll(&fd, 1, 0), 0);
	}
	session_free(s);
}

static void test_arguments(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD),
			    *reader = fixture_session(*state, TARN_NO_THREAD | TARN_READONLY);
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_mput put = {.key = "k", .key_bytes = 1};
	struct tarn_mdelete delete = {.key = "k", .key_bytes = 1};
	char byte;

	assert_int_equal(tarn_get_async(NULL, "k", 1, &byte, 1, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_get_async(s, NULL, 1, &byte, 1, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_get_async(s, "k", 1, NULL, 1, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_get_async(s, "k", 0, &byte, 1, NULL, NULL), -TARN_EKEYSIZE);
	assert_int_equal(tarn_put_async(s, "k", 1, NULL, 1, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_put_async(reader, "k", 1, "", 0, NULL, NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_delete_async(reader, "k", 1, NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_add_async(reader, "k", 1, 1, NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_mput(reader, &put, 1), -TARN_EREADONLY);
	assert_int_equal(tarn_mdelete(reader, &delete, 1), -TARN_EREADONLY);
	async.timeout_ms = 3600001;
	assert_int_equal(tarn_exists_async(s, "k", 1, &async, NULL), -EINVAL);
	async.size = 0;
	assert_int_equal(tarn_exists_async(s, "k", 1, &async, NULL), -EINVAL);
	assert_int_equal(tarn_session_ping_async(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_session_poll(NULL, NULL, 0, NULL), -EINVAL);
	assert_int_equal(tarn_session_poll(s, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), 0);
	assert_int_equal(tarn_session_wait(NULL, 0), -EINVAL);
	assert_int_equal(tarn_session_wait(s, 3600001), -EINVAL);
	assert_int_equal(tarn_session_wait(s, 1000), -TARN_EENDED);
	assert_int_equal(tarn_cancel(NULL, 1), -EINVAL);
	assert_int_equal(tarn_cancel(s, 1), -TARN_EENDED);
	atomic_store(&s->owner, SESSION_CALL);
	assert_int_equal(tarn_exists_async(s, "k", 1, NULL, NULL), -TARN_EINUSE);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), -TARN_EINUSE);
	assert_int_equal(tarn_session_wait(s, 0), -TARN_EINUSE);
	assert_int_equal(tarn_cancel(s, 1), -TARN_EINUSE);
	atomic_store(&s->owner, SESSION_IDLE);
	session_free(reader);
	session_free(s);
}

/* In a pool without room each is told so within its deadline, and reads go on. */
static void test_full(void **state)
{
	struct fixture small;
	struct layout_plan plan = fixture_plan(8 * MIB);
	struct tarn_session *s;
	static uint32_t keys[400];
	static uint8_t value[60000];
	unsigned full = 0, good = 0;

	(void)state;
	assert_int_equal(fixture_create(&small, &plan), 0);
	s = fixture_session(&small, TARN_NO_THREAD);
	taken_count = 0;
	for (uint32_t i = 0; i < 400; i++) {
		struct tarn_async async = with(&keys[i]);

		keys[i] = i;
		async.timeout_ms = 300;
		assert_int_equal(
			tarn_put_async(s, &keys[i], 4, value, sizeof(value), NULL, &async, NULL),
			0);
	}
	finish(s);
	assert_int_equal(taken_count, 400);
	for (unsigned i = 0; i < 400; i++) {
		good += taken[i].status == 0;
		/* there is no daemon to ask */
		full += taken[i].status == -EOPNOTSUPP || taken[i].status == -TARN_EPOOLFULL ||
			taken[i].status == -TARN_ETIMEOUT;
		if (taken[i].status == 0)
			assert_int_equal(tarn_exists(s, taken[i].cookie, 4, NULL), 0);
	}
	assert_true(good > 50 && full > 50);
	assert_int_equal(good + full, 400);
	session_free(s);
	fixture_destroy(&small);
}

/* ---- a daemon that takes messages and does not answer ---- */

static const struct fabric_ops *shm_ops;
static struct fabric_ops silent_ops;
static unsigned silent_sent;
static bool silent_gone;

static int silent_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		      size_t capacity, void *cookie)
{
	(void)ep, (void)message, (void)bytes, (void)reply, (void)capacity, (void)cookie;
	silent_sent++;
	return 0;
}

static void silent_rpc_cancel(struct fabric_endpoint *ep)
{
	(void)ep;
}

static int silent_poll(struct fabric_endpoint *ep, struct fabric_completion *completions,
		       unsigned max)
{
	return silent_gone ? -TARN_ESESSION : shm_ops->poll(ep, completions, max);
}

static unsigned count_status(int status)
{
	unsigned count = 0;

	for (unsigned i = 0; i < taken_count; i++)
		count += taken[i].status == status;
	return count;
}

static void make_silent(struct tarn_session *s)
{
	shm_ops = s->ep->ops;
	silent_ops = *shm_ops;
	silent_ops.rpc = silent_rpc;
	silent_ops.rpc_cancel = silent_rpc_cancel;
	silent_ops.poll = silent_poll;
	silent_sent = 0;
	silent_gone = false;
	s->ep->ops = &silent_ops;
}

/* Only an add whose message has left may have counted; the others say that they have not. */
static void test_adds_unsent(void **state)
{
	static const int others[] = {-TARN_ECANCELED, -TARN_ETIMEOUT, -TARN_ESESSION};
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static uint32_t keys[20];
	uint64_t op[20];

	for (uint32_t i = 0; i < 20; i++) {
		keys[i] = i;
		assert_int_equal(tarn_add(s, &keys[i], 4, 1, NULL), 0);
	}
	make_silent(s);
	for (unsigned how = 0; how < 3; how++) {
		taken_count = silent_sent = 0;
		for (uint32_t i = 0; i < 20; i++) {
			struct tarn_async async = with(&keys[i]);

			async.timeout_ms = how == 2 ? 60000 : 1000;
			assert_int_equal(tarn_add_async(s, &keys[i], 4, 1, &async, &op[i]), 0);
		}
		for (unsigned turn = 0; turn < 20; turn++)
			engine_turn(s->engine);
		assert_int_equal(silent_sent, 1);
		for (uint32_t i = 0; i < 20 && how == 0; i++)
			assert_int_equal(tarn_cancel(s, op[i]), 0);
		silent_gone = how == 2;
		finish(s);
		assert_int_equal(taken_count, 20);
		/* each has its own limit: on a slow machine one may be sent when the time of the first is up */
		assert_true(silent_sent == 1 || (how == 1 && silent_sent < 20));
		assert_int_equal(count_status(-TARN_EAMBIGUOUS), silent_sent);
		assert_int_equal(count_status(others[how]), 20 - silent_sent);
	}
	s->ep->ops = shm_ops;
	session_free(s);
}

/* It takes its time, not more and hardly less, and ends when there is something to pick up. */
static void test_wait(void **state)
{
	static const uint32_t times_ms[] = {0, 1, 30};
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_async async = with(s);
	uint64_t began, took;

	assert_int_equal(tarn_session_wait(s, 10), -TARN_EENDED);
	make_silent(s);
	async.timeout_ms = 300;
	taken_count = 0;
	assert_int_equal(tarn_session_ping_async(s, &async, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		began = clock_now_ns();
		assert_int_equal(tarn_session_wait(s, times_ms[i]), 0);
		assert_true(clock_now_ns() - began >= times_ms[i] * MS);
	}
	began = clock_now_ns();
	assert_int_equal(tarn_session_wait(s, 60000), 1);
	took = clock_now_ns() - began;
	assert_true(took < 30000 * MS);
	/* it stays until it is picked up */
	assert_int_equal(tarn_session_wait(s, 60000), 1);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), 1);
	assert_int_equal(taken[0].status, -TARN_ETIMEOUT);
	assert_int_equal(tarn_session_wait(s, 60000), -TARN_EENDED);
	s->ep->ops = shm_ops;
	session_free(s);
}

/* ---- requests that take their turn ---- */

static struct fabric_ops serial_ops;
static uint64_t serial_now, serial_posts;

static uint64_t serial_clock(struct fabric_endpoint *ep)
{
	(void)ep;
	return serial_now;
}

/* Each takes 3 ms, one after the other. */
static int serial_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		       unsigned count, void *cookie)
{
	serial_posts++;
	serial_now += 3 * MS;
	return shm_ops->post(ep, requests, count, cookie);
}

static int serial_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	(void)ep;
	serial_now += timeout_ns < MS ? timeout_ns : MS;
	return 0;
}

/* 64 inserts at a time would take longer than D, and begin again and again. */
static void test_width(void **state)
{
	enum { COUNT = 1000 };
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static uint32_t keys[COUNT];
	uint32_t left = COUNT;

	shm_ops = s->ep->ops;
	serial_ops = *shm_ops;
	serial_ops.now = serial_clock;
	serial_ops.post = serial_post;
	serial_ops.wait = serial_wait;
	serial_now = shm_ops->now(s->ep);
	serial_posts = 0;
	s->ep->ops = &serial_ops;
	s->timeout_ns = 600000 * MS;
	taken_count = 0;
	for (uint32_t i = 0; i < COUNT; i++) {
		struct tarn_async async = with(&keys[i]);

		keys[i] = i;
		assert_int_equal(tarn_put_async(s, &keys[i], 4, &keys[i], 4, NULL, &async, NULL),
				 0);
	}
	while (left > 0) {
		left -= (uint32_t)tarn_session_poll(s, NULL, 0, NULL);
		serial_now += MS; /* who sleeps here wakes up */
	}
	assert_int_equal(count_status(0), COUNT);
	/* four posts each, and few in vain */
	assert_true(serial_posts < 6 * COUNT);
	assert_in_range(s->engine->width.limit, 1, ENGINE_LANES / 2);
	s->ep->ops = shm_ops;
	session_free(s);
}

/* One that rests between two attempts ends at once when it is cancelled. */
static void test_cancel_asleep(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	struct tarn_async async = with(s);
	struct task *task;
	uint64_t op;

	shm_ops = s->ep->ops;
	serial_ops = *shm_ops;
	serial_ops.now = serial_clock;
	serial_ops.post = serial_post;
	serial_now = shm_ops->now(s->ep);
	s->ep->ops = &serial_ops;
	taken_count = 0;
	assert_int_equal(tarn_put_async(s, "k", 1, "v", 1, NULL, &async, &op), 0);
	/* as if all that it does were too late */
	s->geometry.deadline_ns = MS;
	while (TAILQ_EMPTY(&s->engine->asleep))
		engine_turn(s->engine);
	task = TAILQ_FIRST(&s->engine->asleep)->task;
	task->wake_ns = serial_now + 1000000 * MS;
	assert_int_equal(tarn_cancel(s, op), 0);
	assert_true(engine_due(s->engine) <= serial_now);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), 1);
	assert_int_equal(taken[0].status, -TARN_ECANCELED);
	s->ep->ops = shm_ops;
	session_free(s);
}

/* ---- housekeeping beside a long batch ---- */

static struct fabric_ops busy_ops;
static struct tarn_session *busy;
static unsigned busy_posts;
static uint64_t busy_processed;

/* After some posts it is called for, and after many more it has been there. */
static int busy_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		     unsigned count, void *cookie)
{
	busy_posts++;
	if (busy_posts == 100) {
		busy_processed = busy->last_process_ns;
		atomic_store_explicit(&busy->wanted, 1, memory_order_relaxed);
	}
	if (busy_posts == 2000)
		assert_true(busy->last_process_ns != busy_processed);
	return shm_ops->post(ep, requests, count, cookie);
}

/* The session is one call's for a long time: what housekeeping does must not wait until it is over. */
static void test_long_batch(void **state)
{
	enum { COUNT = 5000 };
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);
	static struct tarn_mput items[COUNT];
	static uint32_t keys[COUNT];

	for (uint32_t i = 0; i < COUNT; i++) {
		keys[i] = i;
		items[i] = (struct tarn_mput){
			.key = &keys[i], .key_bytes = 4, .value = &keys[i], .value_bytes = 4};
	}
	busy = s;
	busy_posts = 0;
	shm_ops = s->ep->ops;
	busy_ops = *shm_ops;
	busy_ops.post = busy_post;
	s->ep->ops = &busy_ops;
	assert_int_equal(tarn_mput(s, items, COUNT), 0);
	assert_true(busy_posts > 2000);
	s->ep->ops = shm_ops;
	session_free(s);
}

/* A call's text is its own, though others that fail were driven with it, and stays until the next call that fails. */
static void test_texts(void **state)
{
	static const char expected[] = "the key holds a value of 5 bytes, not a counter";
	struct fixture *f = *state;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);
	size_t too_many = s->geometry.max_value_bytes + 1;
	uint8_t *large = calloc(1, too_many);
	char buffer[8];

	assert_int_equal(tarn_put(s, "k", 1, "value", 5, NULL, NULL), 0);
	/* one that fails when it begins, one when it is answered: nobody answers here */
	assert_int_equal(tarn_put_async(s, "large", 5, large, too_many, NULL, NULL, NULL), 0);
	assert_int_equal(tarn_session_ping_async(s, NULL, NULL), 0);
	assert_int_equal(tarn_add(s, "k", 1, 1, NULL), -TARN_ETYPE);
	assert_string_equal(tarn_last_error_text(), expected);
	while (tarn_session_wait(s, 10000) > 0) {
		struct tarn_completion c;

		assert_int_equal(tarn_session_poll(s, &c, 1, NULL), 1);
		assert_true(c.status < 0);
	}
	/* that was a call which failed: there was nothing to wait for any more */
	assert_int_equal(tarn_add(s, "k", 1, 1, NULL), -TARN_ETYPE);
	assert_int_equal(tarn_session_ping_async(s, NULL, NULL), 0);
	assert_int_equal(tarn_session_wait(s, 10000), 1);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), 0);
	assert_string_equal(tarn_last_error_text(), expected);
	assert_int_equal(tarn_session_ping_async(s, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "k", 1, buffer, sizeof(buffer), NULL), 0);
	assert_string_equal(tarn_last_error_text(), expected);
	free(large);
	session_free(s);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_twins),      TEST(test_list),        TEST(test_many),
		TEST(test_hot_key),    TEST(test_cancel),      TEST(test_cancel_one_of_many),
		TEST(test_deadlines),  TEST(test_refused_put), TEST(test_calls_in_callbacks),
		TEST(test_mixed),      TEST(test_batches),     TEST(test_large),
		TEST(test_close),      TEST(test_descriptor),  TEST(test_arguments),
		TEST(test_full),       TEST(test_adds_unsent), TEST(test_wait),
		TEST(test_long_batch), TEST(test_width),       TEST(test_cancel_asleep),
		TEST(test_texts),
	};

	return cmocka_run_group_tests_name("async", tests, NULL, NULL);
}
