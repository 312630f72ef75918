/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-misuse.c - what an application does that it must not do: two threads in a session, handles that were closed, a
 * fork in the midst, cancels that come too late, memory that is used twice
 *
 * On a pool in this process's memory; its endpoint completes what was posted when the test lets it. What only a debug
 * build notices is tested in such a build: with sanitizers, that is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "fixture.h"
#include "handle.h"

#define MIB   (1ull << 20)
#define LARGE 300001u

struct test {
	struct fixture f;
	struct tarn_session *s;
};

/* ---- an endpoint that waits ------------------------------------------------------------------ */

static const struct fabric_ops *real_ops;
static struct fabric_ops ops;
static struct fabric_completion come[4096];
static unsigned come_count;
static atomic_bool standing;

static int wait_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		     unsigned count, void *cookie)
{
	int ret = real_ops->post(ep, requests, count, cookie);

	if (ret != 1 || !cookie)
		return ret;
	come[come_count++] = (struct fabric_completion){.cookie = cookie};
	return 0;
}

static int wait_poll(struct fabric_endpoint *ep, struct fabric_completion *ret, unsigned max)
{
	unsigned n = come_count < max ? come_count : max;

	(void)ep;
	if (atomic_load(&standing))
		return 0;
	memcpy(ret, come, n * sizeof(*ret));
	memmove(come, come + n, (come_count - n) * sizeof(*come));
	come_count -= n;
	return (int)n;
}

static int wait_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	(void)ep;
	(void)timeout_ns;
	return usleep(100);
}

static int setup(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	struct layout_plan plan = fixture_plan(64 * MIB);

	if (fixture_create(&t->f, &plan) < 0)
		return -1;
	t->s = fixture_session(&t->f, TARN_NO_THREAD);
	/* how long it takes, under valgrind and beside others, is not what is tested */
	tarn_session_set_timeout(t->s, 60000);
	real_ops = t->s->ep->ops;
	ops = *real_ops;
	ops.post = wait_post;
	ops.poll = wait_poll;
	ops.wait = wait_wait;
	ops.hold = NULL;
	t->s->ep->ops = &ops;
	/* so nothing is read in place either */
	t->s->ep->near = NULL;
	come_count = 0;
	atomic_store(&standing, false);
	*state = t;
	return tarn_put(t->s, "k", 1, "value", 5, NULL, NULL);
}

static int teardown(void **state)
{
	struct test *t = *state;

	atomic_store(&standing, false);
	tarn_session_close(t->s);
	fixture_destroy(&t->f);
	free(t);
	return 0;
}

/* Until nothing is under way. Returns how many have ended with this status. */
static unsigned finish(struct tarn_session *s, int32_t status)
{
	struct tarn_completion c;
	unsigned n = 0;

	while (tarn_session_wait(s, 10000) > 0) {
		assert_int_equal(tarn_session_poll(s, &c, 1, NULL), 1);
		n += c.status == status;
	}
	return n;
}

/* ---- two threads ----------------------------------------------------------------------------- */

static void *waits(void *session)
{
	return (void *)(intptr_t)tarn_session_wait(session, 60000);
}

/* Every call on a session that another thread is in, by this one; `code`: what each says. */
static void refused(struct tarn_session *s, struct tarn_scan *scan, struct tarn_buffer *buffer,
		    void *memory, int code)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct tarn_pool_info info = {.size = sizeof(info)};
	struct tarn_mget get = {.key = "k", .key_bytes = 1};
	struct tarn_mput put = {.key = "k", .key_bytes = 1};
	struct tarn_mdelete delete = {.key = "k", .key_bytes = 1};
	struct tarn_buffer *other = NULL;
	struct tarn_scan *walk = NULL;
	static uint8_t bytes[100];
	void *more = NULL;
	const void *key;
	size_t n;

	assert_int_equal(tarn_get(s, "k", 1, bytes, 100, NULL), code);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), code);
	assert_int_equal(tarn_put(s, "k", 1, bytes, 1, NULL, NULL), code);
	assert_int_equal(tarn_delete(s, "k", 1), code);
	assert_int_equal(tarn_add(s, "n", 1, 1, NULL), code);
	assert_int_equal(tarn_get_async(s, "k", 1, bytes, 100, NULL, NULL), code);
	assert_int_equal(tarn_exists_async(s, "k", 1, NULL, NULL), code);
	assert_int_equal(tarn_put_async(s, "k", 1, bytes, 1, NULL, NULL, NULL), code);
	assert_int_equal(tarn_delete_async(s, "k", 1, NULL, NULL), code);
	assert_int_equal(tarn_add_async(s, "n", 1, 1, NULL, NULL), code);
	assert_int_equal(tarn_mget(s, &get, 1), code);
	assert_int_equal(tarn_mput(s, &put, 1), code);
	assert_int_equal(tarn_mdelete(s, &delete, 1), code);
	assert_int_equal(tarn_session_poll(s, NULL, 0, NULL), code);
	assert_int_equal(tarn_session_wait(s, 0), code);
	assert_int_equal(tarn_cancel(s, 1), code);
	assert_int_equal(tarn_session_ping(s, NULL), code);
	assert_int_equal(tarn_session_ping_async(s, NULL, NULL), code);
	assert_int_equal(tarn_session_process(s), code);
	assert_int_equal(tarn_session_fd(s), code);
	assert_int_equal(tarn_session_set_timeout(s, 1000), code);
	assert_int_equal(tarn_session_get_stats(s, &stats), code);
	assert_int_equal(tarn_session_get_pool_info(s, &info), code);
	assert_int_equal(tarn_buffer_register(s, bytes, 100, 0, &other), code);
	assert_int_equal(tarn_buffer_deregister(buffer), code);
	assert_int_equal(tarn_alloc(s, 1, &more), code);
	assert_int_equal(tarn_free(s, memory), code);
	assert_int_equal(tarn_scan_open(s, NULL, 0, &walk), code);
	assert_int_equal(tarn_scan_next(scan, &key, &n, NULL), code);
	assert_int_equal(tarn_scan_next_async(scan, NULL, NULL), code);
	assert_null(other);
	assert_null(more);
	assert_null(walk);
	assert_int_equal(stats.posts, 0);
	assert_int_equal(info.pool_bytes, 0);
}

/* Whatever it is, nothing comes of it, and the thread that is inside notices nothing. */
static void test_two_threads(void **state)
{
	struct test *t = *state;
	struct tarn_buffer *buffer;
	struct tarn_scan *scan;
	static uint8_t memory[100];
	pthread_t thread;
	void *alloc, *ret;
	const void *key;
	size_t n;

	assert_int_equal(tarn_buffer_register(t->s, memory, sizeof(memory), 0, &buffer), 0);
	assert_int_equal(tarn_alloc(t->s, 100, &alloc), 0);
	assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
	atomic_store(&standing, true);
	assert_int_equal(tarn_get_async(t->s, "k", 1, memory, 100, NULL, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, waits, t->s), 0);
	while (atomic_load(&t->s->owner) != SESSION_CALL)
		usleep(100);
	refused(t->s, scan, buffer, alloc, -TARN_EINUSE);
	/* what has no result does nothing, and says why */
	tarn_scan_close(scan);
	tarn_session_close(t->s);
	assert_non_null(strstr(tarn_last_error_text(), "another thread"));
	atomic_store(&standing, false);
	pthread_join(thread, &ret);
	assert_int_equal((intptr_t)ret, 1);
	assert_int_equal(finish(t->s, 0), 1);
	assert_memory_equal(memory, "value", 5);
	assert_int_equal(tarn_scan_next(scan, &key, &n, NULL), 1);
	tarn_scan_close(scan);
	assert_int_equal(tarn_free(t->s, alloc), 0);
	assert_int_equal(tarn_buffer_deregister(buffer), 0);
}

/* ---- after a close --------------------------------------------------------------------------- */

#if TARN_DEBUG
static void test_after_close(void **state)
{
	struct test *t = *state;
	struct tarn_session *s;
	struct tarn_buffer *buffer[2];
	struct tarn_scan *scan[2];
	static uint8_t memory[100];
	const void *key;
	size_t n;

	s = fixture_session(&t->f, TARN_NO_THREAD);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(tarn_buffer_register(s, memory, 100 - i, 0, &buffer[i]), 0);
		assert_int_equal(tarn_scan_open(s, NULL, 0, &scan[i]), 0);
	}
	assert_int_equal(tarn_buffer_deregister(buffer[0]), 0);
	assert_int_equal(tarn_buffer_deregister(buffer[0]), -EINVAL);
	assert_non_null(strstr(tarn_last_error_text(), "was deregistered"));
	tarn_scan_close(scan[0]);
	tarn_scan_close(scan[0]);
	assert_int_equal(tarn_scan_next(scan[0], &key, &n, NULL), -EINVAL);
	assert_non_null(strstr(tarn_last_error_text(), "walk was closed"));
	tarn_session_close(s);
	tarn_session_close(s);
	refused(s, scan[1], buffer[1], memory, -EINVAL);
	assert_int_equal(tarn_get(s, "k", 1, memory, 100, NULL), -EINVAL);
	assert_non_null(strstr(tarn_last_error_text(), "session was closed"));
	tarn_scan_close(scan[1]);
	tarn_scan_close(scan[1]);
	/* not for ever */
	for (unsigned i = 0; i < 3 * HANDLES_KEPT; i++) {
		assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan[0]), 0);
		tarn_scan_close(scan[0]);
	}
}
#endif

/* ---- fork ------------------------------------------------------------------------------------ */

/* In the child: 0, or which one of its checks has failed. */
static int child(struct tarn_session *s, struct tarn_buffer *buffer, struct tarn_scan *scan,
		 void *alloc)
{
	struct tarn_completion c;
	uint8_t *own;

	/* cmocka's handler would go on with the other tests here */
	signal(SIGSEGV, SIG_DFL);
	if (tarn_session_poll(s, &c, 1, NULL) != -TARN_EINUSE ||
	    tarn_session_wait(s, 0) != -TARN_EINUSE ||
	    tarn_put(s, "k", 1, "child", 5, NULL, NULL) != -TARN_EINUSE ||
	    tarn_get_async(s, "k", 1, &c, 1, NULL, NULL) != -TARN_EINUSE)
		return 1;
	if (!strstr(tarn_last_error_text(), "forked child"))
		return 2;
	if (tarn_buffer_deregister(buffer) != -TARN_EINUSE || tarn_free(s, alloc) != -TARN_EINUSE)
		return 3;
	/* what tarn_alloc() gave is not here, so other memory may be */
	own = mmap(alloc, 2 * MIB, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (own == MAP_FAILED && errno == EEXIST)
		return 4;
	/* valgrind takes the addresses for used, and does not ask the kernel */
	if (own != MAP_FAILED)
		memset(own, 7, 2 * MIB);
	tarn_scan_close(scan);
	tarn_session_close(s);
	for (uint64_t i = 0; own != MAP_FAILED && i < 2 * MIB; i++)
		if (own[i] != 7)
			return 5;
	return 0;
}

/* With all kinds of calls under way: the child can not use the session, and the parent notices nothing. */
static void test_fork(void **state)
{
	struct test *t = *state;
	static uint8_t memory[100][16];
	struct tarn_buffer *buffer;
	struct tarn_scan *scan;
	void *alloc;
	pid_t pid;
	int status;

	assert_int_equal(tarn_buffer_register(t->s, memory, sizeof(memory), 0, &buffer), 0);
	assert_int_equal(tarn_alloc(t->s, 100, &alloc), 0);
	assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
	atomic_store(&standing, true);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(i % 2 ? tarn_get_async(t->s, "k", 1, memory[i], 16, NULL, NULL)
				       : tarn_put_async(t->s, "k", 1, "value", 5, NULL, NULL, NULL),
				 0);
	assert_int_equal(tarn_scan_next_async(scan, NULL, NULL), 0);
	assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	pid = fork();
	if (pid == 0)
		_exit(child(t->s, buffer, scan, alloc));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	atomic_store(&standing, false);
	assert_int_equal(finish(t->s, 0), 100);
	for (unsigned i = 1; i < 100; i += 2)
		assert_memory_equal(memory[i], "value", 5);
	tarn_scan_close(scan);
}

/* ---- cancels that come too late --------------------------------------------------------------- */

struct self {
	struct tarn_session *session;
	int answer;
};

static void cancel_self(void *cookie, const struct tarn_completion *c)
{
	struct self *self = cookie;

	self->answer = tarn_cancel(self->session, c->op);
}

static void test_cancel_ended(void **state)
{
	struct test *t = *state;
	struct tarn_async async = TARN_ASYNC_INIT;
	uint64_t op, next;
	struct tarn_completion c;
	struct self self = {.session = t->s};

	assert_int_equal(tarn_exists_async(t->s, "k", 1, NULL, &op), 0);
	assert_int_equal(tarn_session_wait(t->s, 10000), 1);
	/* there, and not picked up; picked up; its place has another one, which goes on */
	assert_int_equal(tarn_cancel(t->s, op), -TARN_EENDED);
	assert_int_equal(tarn_session_poll(t->s, &c, 1, NULL), 1);
	assert_int_equal(c.status, 0);
	assert_int_equal(tarn_cancel(t->s, op), -TARN_EENDED);
	assert_int_equal(tarn_exists_async(t->s, "k", 1, NULL, &next), 0);
	assert_true((uint32_t)next == (uint32_t)op && next != op);
	assert_int_equal(tarn_cancel(t->s, op), -TARN_EENDED);
	assert_int_equal(finish(t->s, 0), 1);
	/* twice; and by its own callback */
	atomic_store(&standing, true);
	assert_int_equal(tarn_exists_async(t->s, "k", 1, NULL, &op), 0);
	assert_int_equal(tarn_cancel(t->s, op), 0);
	assert_int_equal(tarn_cancel(t->s, op), -TARN_EENDED);
	atomic_store(&standing, false);
	assert_int_equal(finish(t->s, -TARN_ECANCELED), 1);
	async.done = cancel_self;
	async.cookie = &self;
	assert_int_equal(tarn_exists_async(t->s, "k", 1, &async, NULL), 0);
	while (tarn_session_wait(t->s, 10000) > 0)
		assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 1);
	assert_int_equal(self.answer, -TARN_EENDED);
}

/* ---- memory that is used twice ---------------------------------------------------------------- */

/* What a get ends with whose buffer another one writes to as well. A debug build says so of the second. */
static bool plausible(int status, bool large)
{
	return status == 0 || (TARN_DEBUG && status == -EINVAL) ||
	       (large && status == -TARN_ECORRUPT);
}

static void test_overlapping_buffers(void **state)
{
	struct test *t = *state;
	static uint8_t value[LARGE], buffer[LARGE + 100];
	struct tarn_mget gets[20];
	struct tarn_mput puts[20];

	for (unsigned large = 0; large < 2; large++) {
		for (unsigned i = 0; i < 20; i++)
			puts[i] = (struct tarn_mput){.key = &"abcdefghijklmnopqrst"[i],
						     .key_bytes = 1,
						     .value = value + i,
						     .value_bytes = (large ? LARGE : 100) - 20};
		memset(value, 'v', sizeof(value));
		/* many may be put from the same memory */
		assert_int_equal(tarn_mput(t->s, puts, 20), 0);
		for (unsigned i = 0; i < 20; i++) {
			assert_int_equal(puts[i].status, 0);
			gets[i] = (struct tarn_mget){.key = puts[i].key,
						     .key_bytes = 1,
						     .buffer = buffer + i,
						     .buffer_bytes = LARGE};
		}
		assert_int_equal(tarn_mget(t->s, gets, 20), 0);
		for (unsigned i = 0; i < 20; i++)
			assert_true(plausible(gets[i].status, large));
		assert_int_equal(gets[0].status, 0);
	}
	/* nothing is left of that */
	assert_int_equal(tarn_get(t->s, "a", 1, buffer, LARGE, NULL), 0);
	assert_memory_equal(buffer, value, LARGE - 20);
}

/* A key or a value that another call gets into. */
static void test_overlapping_calls(void **state)
{
	struct test *t = *state;
	char buffer[100] = "k";
	int expect = TARN_DEBUG ? -EINVAL : 0;
	unsigned more;

	atomic_store(&standing, true);
	assert_int_equal(tarn_get_async(t->s, "k", 1, buffer + 10, 90, NULL, NULL), 0);
	assert_int_equal(tarn_get_async(t->s, buffer, 1, NULL, 0, NULL, NULL), 0);
	assert_int_equal(tarn_get_async(t->s, "k", 1, buffer + 99, 1, NULL, NULL), expect);
	assert_int_equal(tarn_put_async(t->s, "k", 1, buffer + 9, 2, NULL, NULL, NULL), expect);
	assert_int_equal(tarn_exists_async(t->s, buffer + 50, 2, NULL, NULL), expect);
	assert_int_equal(tarn_put_async(t->s, "k", 1, buffer + 50, 0, NULL, NULL, NULL), 0);
	assert_int_equal(tarn_put_async(t->s, "k", 1, buffer + 5, 5, NULL, NULL, NULL), 0);
	atomic_store(&standing, false);
	more = finish(t->s, 0);
	assert_true(more >= 2);
	/* until they have been picked up, and no longer */
	assert_int_equal(tarn_get_async(t->s, "k", 1, buffer + 10, 90, NULL, NULL), 0);
	assert_int_equal(finish(t->s, 0), 1);
}

/* Batches that begin while others are under way, from a callback of theirs. */
static void batch_within(void *cookie, const struct tarn_completion *c)
{
	struct test *t = cookie;
	struct tarn_mput puts[3];
	struct tarn_mget gets[3];
	char buffer[3][8];

	assert_int_equal(c->status, 0);
	for (unsigned i = 0; i < 3; i++) {
		puts[i] = (struct tarn_mput){
			.key = "same", .key_bytes = 4, .value = "overlap", .value_bytes = 7};
		gets[i] = (struct tarn_mget){
			.key = "same", .key_bytes = 4, .buffer = buffer[i], .buffer_bytes = 8};
	}
	assert_int_equal(tarn_mput(t->s, puts, 3), 0);
	assert_int_equal(tarn_mget(t->s, gets, 3), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(puts[i].status, 0);
		assert_int_equal(gets[i].status, 0);
		assert_memory_equal(buffer[i], "overlap", 7);
	}
}

static void test_overlapping_batches(void **state)
{
	struct test *t = *state;
	struct tarn_async async = TARN_ASYNC_INIT;

	async.done = batch_within;
	async.cookie = t;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(tarn_put_async(t->s, "same", 4, "overlap", 7, NULL, &async, NULL),
				 0);
	while (tarn_session_wait(t->s, 10000) > 0)
		assert_true(tarn_session_poll(t->s, NULL, 0, NULL) > 0);
	assert_int_equal(t->s->engine->in_flight, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_two_threads),
#if TARN_DEBUG
		TEST(test_after_close),
#endif
		TEST(test_fork),
		TEST(test_cancel_ended),
		TEST(test_overlapping_buffers),
		TEST(test_overlapping_calls),
		TEST(test_overlapping_batches),
	};

	return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
