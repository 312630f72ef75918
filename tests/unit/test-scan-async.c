/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-scan-async.c - walks whose next key is asked for by an asynchronous call
 *
 * On a pool in this process's memory, whose endpoint completes nothing on the spot: so a call can be caught at each of
 * its steps. What a walk finds while the index grows is test-scan.c's, over broken connections test-reconnect.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "fixture.h"

#define MIB  (1ull << 20)
#define KEYS 500u

struct test {
	struct fixture f;
	struct tarn_session *s;
};

/* ---- an endpoint that is slow ---------------------------------------------------------------- */

static const struct fabric_ops *real_ops;
static struct fabric_ops slow_ops;
static struct fabric_completion come[4096];
static unsigned come_count, held; /* held: so many looks in vain first */

static int slow_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		     unsigned count, void *cookie)
{
	int ret = real_ops->post(ep, requests, count, cookie);

	if (ret != 1 || !cookie)
		return ret;
	come[come_count++] = (struct fabric_completion){.cookie = cookie};
	return 0;
}

static int slow_poll(struct fabric_endpoint *ep, struct fabric_completion *ret, unsigned max)
{
	unsigned n = come_count < max ? come_count : max;

	(void)ep;
	if (held) {
		held--;
		return 0;
	}
	memcpy(ret, come, n * sizeof(*ret));
	memmove(come, come + n, (come_count - n) * sizeof(*come));
	come_count -= n;
	return (int)n;
}

static int slow_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	(void)ep;
	(void)timeout_ns;
	return 0;
}

static void slow(struct tarn_session *s)
{
	real_ops = s->ep->ops;
	slow_ops = *real_ops;
	slow_ops.post = slow_post;
	slow_ops.poll = slow_poll;
	slow_ops.wait = slow_wait;
	slow_ops.hold = NULL;
	s->ep->ops = &slow_ops;
	come_count = held = 0;
}

/* Some keys are long, and read by a READ of their own. */
static size_t key_of(uint32_t i, uint8_t key[500])
{
	memset(key, 0, 500);
	memcpy(key, &i, 4);
	return i % 9 ? 4 : 500;
}

static int setup(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	struct layout_plan plan = fixture_plan(32 * MIB);
	uint8_t key[500];

	if (fixture_create(&t->f, &plan) < 0)
		return -1;
	t->s = fixture_session(&t->f, TARN_NO_THREAD);
	/* how long it takes, under valgrind and beside others, is not what is tested */
	tarn_session_set_timeout(t->s, 60000);
	for (uint32_t i = 0; i < KEYS; i++) {
		size_t bytes = key_of(i, key);

		if (tarn_put(t->s, key, bytes, key, i % 100, NULL, NULL) < 0)
			return -1;
	}
	slow(t->s);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct test *t = *state;

	if (t->s)
		tarn_session_close(t->s);
	fixture_destroy(&t->f);
	free(t);
	return 0;
}

/* ---- walks ----------------------------------------------------------------------------------- */

struct walk {
	struct tarn_scan *scan;
	struct tarn_session *s;
	uint8_t seen[KEYS];
	unsigned keys;
	int32_t last; /* status */
	bool ended;
};

static void see(struct walk *w, const struct tarn_completion *c)
{
	uint32_t i;

	assert_int_equal(c->kind, TARN_OP_SCAN);
	w->last = c->status;
	if (c->status != 1) {
		assert_null(c->key);
		assert_int_equal(c->key_bytes, 0);
		assert_int_equal(c->item.kind, 0);
		return;
	}
	memcpy(&i, c->key, 4);
	assert_true(i < KEYS && c->key_bytes == (i % 9 ? 4 : 500));
	assert_false(w->seen[i]);
	w->seen[i] = 1;
	w->keys++;
	assert_int_equal(c->item.kind, TARN_KIND_VALUE);
	assert_int_equal(c->item.value_bytes, i % 100);
	assert_true(c->item.stamp != 0);
}

static void begin(struct walk *w);

/* As an application would go on: from within the callback. */
static void done(void *cookie, const struct tarn_completion *c)
{
	struct walk *w = cookie;

	see(w, c);
	if (c->status == 1 || c->status == -TARN_ECANCELED || c->status == -TARN_ETIMEOUT)
		begin(w);
	else
		w->ended = true;
}

static uint64_t begun; /* the last one's number */

static void begin(struct walk *w)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.done = done;
	async.cookie = w;
	if (tarn_scan_next_async(w->scan, &async, &begun) < 0)
		fail_msg("%s", tarn_last_error_text());
}

static struct walk *walk_open(struct tarn_session *s)
{
	struct walk *w = calloc(1, sizeof(*w));

	w->s = s;
	assert_int_equal(tarn_scan_open(s, NULL, 0, &w->scan), 0);
	return w;
}

static void walk_close(struct walk *w)
{
	tarn_scan_close(w->scan);
	free(w);
}

/* Side by side, with other calls beside them, and blocking ones between. */
static void test_walks(void **state)
{
	struct test *t = *state;
	struct walk *walks[3];
	struct tarn_completion list[16];
	static uint8_t keys[50][500];
	uint8_t value[100];
	unsigned gets = 0, i;
	size_t count;

	for (i = 0; i < 3; i++) {
		walks[i] = walk_open(t->s);
		begin(walks[i]);
	}
	for (i = 0; i < 50; i++) {
		assert_int_equal(
			tarn_get_async(t->s, keys[i], key_of(i, keys[i]), NULL, 0, NULL, NULL), 0);
		assert_true(tarn_session_poll(t->s, list, 16, &count) >= 0);
		gets += (unsigned)count;
		assert_int_equal(tarn_get(t->s, keys[i], key_of(i, keys[i]), value, 100, NULL), 0);
		assert_true(tarn_scan_progress(walks[0]->scan) <= 1000);
	}
	while (tarn_session_wait(t->s, 10000) > 0) {
		assert_true(tarn_session_poll(t->s, list, 16, &count) > 0);
		gets += (unsigned)count;
	}
	assert_int_equal(gets, 50);
	for (i = 0; i < 3; i++) {
		assert_true(walks[i]->ended);
		assert_int_equal(walks[i]->last, 0);
		assert_int_equal(walks[i]->keys, KEYS);
		assert_int_equal(tarn_scan_progress(walks[i]->scan), 1000);
		walk_close(walks[i]);
	}
}

/* A call that is cancelled, or late, leaves the walk where it was, whatever it was doing. */
static void test_cancel(void **state)
{
	struct test *t = *state;
	unsigned cancelled = 0;

	for (unsigned after = 0; after < 12; after++) {
		struct walk *w = walk_open(t->s);
		unsigned polls = 0;

		begin(w);
		while (!w->ended) {
			int32_t before = w->last;

			/* so often that some get through */
			if (polls++ % 12 == after)
				(void)tarn_cancel(t->s, begun);
			held = polls % 3;
			assert_true(tarn_session_poll(t->s, NULL, 0, NULL) >= 0);
			cancelled += w->last == -TARN_ECANCELED && before != w->last;
		}
		assert_int_equal(w->last, 0);
		assert_int_equal(w->keys, KEYS);
		walk_close(w);
	}
	assert_true(cancelled > 20);
}

/* Likewise one whose completions come too late. A call gets on nevertheless, or the walk would have no end. */
static void test_deadline(void **state)
{
	struct test *t = *state;
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion c;
	struct walk *w = walk_open(t->s);
	unsigned late = 0;

	async.timeout_ms = 1;
	do {
		assert_int_equal(tarn_scan_next_async(w->scan, &async, NULL), 0);
		for (held = 4; tarn_session_poll(t->s, &c, 1, NULL) == 0;)
			if (come_count)
				usleep(1500);
		see(w, &c);
		late += c.status == -TARN_ETIMEOUT;
		assert_true(c.status >= 0 || c.status == -TARN_ETIMEOUT);
	} while (c.status != 0);
	assert_int_equal(w->keys, KEYS);
	assert_true(late > 10);
	walk_close(w);
}

/* One at a time; what it is about stays until it has been picked up. */
static void test_busy(void **state)
{
	struct test *t = *state;
	uint8_t position[TARN_SCAN_POSITION_BYTES];
	struct walk *w = walk_open(t->s);
	struct tarn_completion c;
	const void *key;
	size_t bytes;

	assert_int_equal(tarn_scan_next_async(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_scan_next_async(w->scan, NULL, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tarn_scan_next_async(w->scan, NULL, NULL), -TARN_EBUSY);
		assert_int_equal(tarn_scan_next(w->scan, &key, &bytes, NULL), -TARN_EBUSY);
		assert_int_equal(tarn_scan_position(w->scan, position, &bytes), -TARN_EBUSY);
		assert_non_null(strstr(tarn_last_error_text(), "picked up"));
		assert_int_equal(tarn_session_wait(t->s, 10000), 1);
	}
	assert_int_equal(tarn_session_poll(t->s, &c, 1, NULL), 1);
	see(w, &c);
	/* the same walk by either kind of call */
	assert_int_equal(tarn_scan_position(w->scan, position, &bytes), 0);
	while (tarn_scan_next(w->scan, &key, &bytes, NULL) == 1) {
		see(w,
		    &(struct tarn_completion){.kind = TARN_OP_SCAN,
					      .status = 1,
					      .key = key,
					      .key_bytes = bytes,
					      .item = {.kind = TARN_KIND_VALUE,
						       .value_bytes = *(const uint32_t *)key % 100,
						       .stamp = 1}});
		if (tarn_scan_next_async(w->scan, NULL, NULL) < 0)
			fail_msg("%s", tarn_last_error_text());
		assert_int_equal(tarn_session_wait(t->s, 10000), 1);
		assert_int_equal(tarn_session_poll(t->s, &c, 1, NULL), 1);
		see(w, &c);
	}
	assert_int_equal(w->keys, KEYS);
	/* refused before it has begun: the walk is free */
	t->s->owner = SESSION_CALL;
	assert_int_equal(tarn_scan_next_async(w->scan, NULL, NULL), -TARN_EINUSE);
	t->s->owner = SESSION_IDLE;
	assert_int_equal(tarn_scan_next_async(w->scan, &(struct tarn_async){.size = 3}, NULL),
			 -EINVAL);
	assert_int_equal(tarn_scan_next(w->scan, &key, &bytes, NULL), 0);
	walk_close(w);
}

/* A walk may end at any step of a call on it, before or after its session. */
static void test_close(void **state)
{
	struct test *t = *state;
	struct tarn_completion c;
	struct tarn_scan *scan, *scans[3];
	const void *key;
	size_t bytes;

	for (unsigned polls = 0; polls < 40; polls++) {
		assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
		assert_int_equal(tarn_scan_next_async(scan, NULL, NULL), 0);
		for (unsigned i = 0; i < polls; i++) {
			held = polls % 2;
			assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
		}
		tarn_scan_close(scan);
		assert_int_equal(tarn_session_wait(t->s, 10000), 1);
		assert_int_equal(tarn_session_poll(t->s, &c, 1, NULL), 1);
		assert_int_equal(c.status, -TARN_ECANCELED);
		assert_null(c.key);
	}
	/* one is closed under way, one not, one was never in a call */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scans[i]), 0);
		if (i < 2)
			assert_int_equal(tarn_scan_next_async(scans[i], NULL, NULL), 0);
		assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	}
	tarn_scan_close(scans[0]);
	tarn_session_close(t->s);
	t->s = NULL;
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(tarn_scan_next(scans[i], &key, &bytes, NULL), -EINVAL);
		assert_non_null(strstr(tarn_last_error_text(), "session was closed"));
		assert_int_equal(tarn_scan_next_async(scans[i], NULL, NULL), -EINVAL);
		assert_true(tarn_scan_progress(scans[i]) <= 1000);
		tarn_scan_close(scans[i]);
	}
}

/* A child has the memory, and nothing else: it may give it back, in any order. */
static void test_fork(void **state)
{
	struct test *t = *state;
	struct tarn_scan *scan[2];
	struct tarn_completion c;
	const void *key;
	size_t bytes;
	int status;

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan[i]), 0);
		assert_int_equal(tarn_scan_next_async(scan[i], NULL, NULL), 0);
	}
	assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	if (fork() == 0) {
		struct tarn_scan *own;
		bool good = tarn_scan_open(t->s, NULL, 0, &own) == -TARN_EINUSE &&
			    tarn_scan_next(scan[0], &key, &bytes, NULL) == -TARN_EBUSY;

		tarn_scan_close(scan[0]);
		tarn_session_close(t->s);
		tarn_scan_close(scan[1]);
		_exit(good ? 0 : 1);
	}
	assert_true(wait(&status) > 0);
	assert_int_equal(status, 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tarn_session_wait(t->s, 10000), 1);
		assert_int_equal(tarn_session_poll(t->s, &c, 1, NULL), 1);
		assert_int_equal(c.status, 1);
		tarn_scan_close(scan[i]);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_walks), TEST(test_cancel), TEST(test_deadline),
		TEST(test_busy),  TEST(test_close),  TEST(test_fork),
	};

	return cmocka_run_group_tests_name("scan-async", tests, NULL, NULL);
}
