/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-reconnect-try.c - when a session tries to connect again and for how long, in calls and beside them
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "reconnect-fixture.h"

/* ---- when it is tried ------------------------------------------------------------------------ */

static void test_backoff(void **state)
{
	struct test *t = *state;
	uint64_t begin, spent;
	unsigned i;

	assert_int_equal(put(t, "k", "v", NULL), 0);
	assert_int_equal(tarn_session_set_timeout(t->s, 400), 0);
	lose(t);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	begin = clock_now_ns();
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ESESSION);
	spent = clock_now_ns() - begin;
	assert_true(spent >= 350 * MSEC && spent < 2000 * MSEC);
	assert_non_null(strstr(tarn_last_error_text(), "the fake fails"));
	assert_true(t->fake.tries >= 4 && t->fake.tries <= 16);
	for (i = 1; i < t->fake.tries; i++)
		assert_true(t->fake.try_ns[i] - t->fake.try_ns[i - 1] >= 4 * MSEC);
	/* calls that need no connection */
	assert_int_equal(tarn_session_set_timeout(t->s, 1000), 0);
	/* it comes back in the middle of a call; a write that nothing was sent of is made */
	fail_tries(t, 3, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	assert_int_equal(put(t, "k", "w", NULL), 0);
	assert_int_equal(t->fake.tries, 4);
	expect(t, "k", "w");
	/* a daemon that takes everybody in and throws them out again */
	assert_int_equal(tarn_session_set_timeout(t->s, 200), 0);
	lose(t);
	fail_tries(t, 0, 0, SESSION_NEVER, 0);
	t->fake.throws_out = true;
	begin = clock_now_ns();
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ESESSION);
	assert_true(clock_now_ns() - begin < 1000 * MSEC);
	assert_true(t->fake.tries >= 2 && t->fake.tries <= 22);
	t->fake.throws_out = false;
}

static void test_permanent(void **state)
{
	static const int codes[] = {-TARN_EAUTH, -TARN_ENOPOOL, -TARN_EVERSION, -ENOENT};
	struct test *t = *state;
	uint64_t begin;
	unsigned i;

	assert_int_equal(put(t, "k", "v", NULL), 0);
	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		lose(t);
		fail_tries(t, 2, codes[i], SESSION_NEVER, 0);
		begin = clock_now_ns();
		assert_int_equal(tarn_exists(t->s, "k", 1, NULL), codes[i]);
		assert_int_equal(put(t, "k", "v", NULL), codes[i]);
		assert_true(clock_now_ns() - begin < 500 * MSEC);
		assert_int_equal(t->fake.tries, 2);
		/* somebody has acted */
		assert_int_equal(tarn_exists(t->s, "k", 1, NULL), 0);
	}
	/* found in the middle of a call */
	arm(t, SENT, 1, 0);
	fail_tries(t, 1, -TARN_EAUTH, SESSION_NEVER, 0);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_EAUTH);
}

/* Refusals that pass: also a session that is being opened waits for them, as long as it was told. */
static void test_told_to_wait(void **state)
{
	struct test *t = *state;
	struct fake fake = fake_create(&t->pool);
	struct session_link link;
	uint64_t begin = clock_now_ns(), spent;
	unsigned i;

	fake.fail = 3;
	fake.code = -TARN_EREFUSED;
	fake.again = SESSION_SOON;
	fake.wait_ns = 40 * MSEC;
	assert_int_equal(session_connect(&fake.base, begin + 5000 * MSEC, &link), 0);
	assert_int_equal(fake.tries, 4);
	for (i = 1; i < 4; i++) {
		spent = fake.try_ns[i] - fake.try_ns[i - 1];
		/* half of it to one and a half of it */
		assert_true(spent >= 19 * MSEC && spent < 1000 * MSEC);
	}
	link.ep->ops->close(link.ep);
	/* never past the limit; then the last refusal is the error */
	fake.fail = UINT32_MAX;
	fake.tries = 0;
	begin = clock_now_ns();
	assert_int_equal(session_connect(&fake.base, begin + 200 * MSEC, &link), -TARN_EREFUSED);
	spent = clock_now_ns() - begin;
	assert_true(spent < 1000 * MSEC && fake.tries >= 2);
	/* rejected by the connection manager, which names no time */
	fake.tries = 0;
	fake.code = -EAGAIN;
	fake.wait_ns = 0;
	begin = clock_now_ns();
	assert_int_equal(session_connect(&fake.base, begin + 1000 * MSEC, &link), -TARN_EREFUSED);
	assert_true(fake.tries >= 3);
	assert_string_equal(err_text(), "the fake fails");
	/* what may pass some time is not waited for by who has never been connected */
	fake.tries = 0;
	fake.again = SESSION_LATER;
	fake.code = -TARN_EUNREACHABLE;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 5000 * MSEC, &link),
			 -TARN_EUNREACHABLE);
	assert_int_equal(fake.tries, 1);
}

/* A message of the first connection is lost: there is time for another try, but for no more than the
 * caller has. */
static void test_first_is_lost(void **state)
{
	struct test *t = *state;
	struct fake fake = fake_create(&t->pool);
	struct session_link link;

	fake.fail = 2;
	fake.code = -TARN_ETIMEOUT;
	fake.again = SESSION_LATER;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 12000 * MSEC, &link), 0);
	assert_int_equal(fake.tries, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(fake.try_limit_ns[i], 3900 * MSEC, 4000 * MSEC);
	link.ep->ops->close(link.ep);
	fake.fail = 1;
	fake.tries = 0;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 5000 * MSEC, &link), 0);
	assert_int_equal(fake.tries, 2);
	assert_int_equal(fake.try_limit_ns[0], 2000 * MSEC);
	link.ep->ops->close(link.ep);
	fake.fail = UINT32_MAX;
	fake.tries = 0;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 200 * MSEC, &link),
			 -TARN_ETIMEOUT);
	assert_in_range(fake.tries, 2, 20);
	for (unsigned i = 0; i < fake.tries; i++)
		assert_true(fake.try_limit_ns[i] <= 200 * MSEC);
}

/* ---- beside the calls ------------------------------------------------------------------------ */

static void test_process(void **state)
{
	struct test *t = *state;
	uint64_t begin;

	/* the loss is found, and the next time mended */
	t->fake.last->broken = true;
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(tarn_session_process(t->s), 0);
	/* one try, then none until its time has come */
	lose(t);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	begin = clock_now_ns();
	while (t->fake.tries < 6) {
		assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
		clock_sleep_ns(MSEC);
	}
	/* 10, 20, 40, 80, 160 ms, each at least by half */
	assert_true(clock_now_ns() - begin > 120 * MSEC);
	/* a call does not wait for that */
	t->fake.fail = 0;
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ENOTFOUND);
	assert_int_equal(tarn_session_process(t->s), 0);
	/* what needs somebody to act keeps its own code */
	lose(t);
	fail_tries(t, 1, -TARN_EAUTH, SESSION_NEVER, 0);
	t->s->try_ns = 0;
	assert_int_equal(tarn_session_process(t->s), -TARN_EAUTH);
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(t->fake.tries, 1);
}

static void test_housekeeping(void **state)
{
	struct test *t = *state;
	uint64_t begin = clock_now_ns(), reconnects = 0;
	struct tarn_session_stats stats = {.size = sizeof(stats)};

	assert_int_equal(housekeeping_add(t->s), 0);
	assert_int_equal(session_hold(t->s), 0);
	t->fake.last->broken = true;
	session_leave(t->s);
	while (reconnects == 0 && clock_now_ns() - begin < 20000 * MSEC) {
		clock_sleep_ns(10 * MSEC);
		assert_int_equal(tarn_session_get_stats(t->s, &stats), 0);
		reconnects = stats.reconnects;
	}
	assert_int_equal(reconnects, 1);
	housekeeping_remove(t->s);
}

/* A session whose daemon is stopped keeps the thread, but nobody who opens or closes another one. */
static void test_long_visit(void **state)
{
	struct test *t = *state;
	struct tarn_session other = {.owner = SESSION_CALL};
	uint64_t begin = clock_now_ns();

	atomic_store(&t->fake.hold, 1);
	assert_int_equal(housekeeping_add(t->s), 0);
	while (atomic_load(&t->fake.hold) == 1 && clock_now_ns() - begin < 20000 * MSEC)
		clock_sleep_ns(MSEC);
	assert_int_equal(atomic_load(&t->fake.hold), 2);
	assert_int_equal(housekeeping_add(&other), 0);
	housekeeping_remove(&other);
	assert_int_equal(atomic_load(&t->fake.hold), 2); /* it is still at it */
	assert_true(clock_now_ns() - begin < 4000 * MSEC);
	atomic_store(&t->fake.hold, 0);
	housekeeping_remove(t->s);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void test_descriptor(void **state)
{
	struct test *t = *state;
	uint64_t one = 1;
	int fd = tarn_session_fd(t->s);

	assert_true(fd >= 0);
	assert_int_equal(tarn_session_fd(NULL), -EINVAL);
	assert_int_equal(tarn_session_process(NULL), -EINVAL);
	assert_false(readable(fd));
	assert_int_equal(write(t->fake.last->event, &one, 8), 8);
	assert_true(readable(fd));
	/* it is the connection's end: taken note of, and a new one */
	t->fake.last->broken = true;
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(tarn_session_process(t->s), 0);
	assert_false(readable(fd));
	assert_int_equal(tarn_session_fd(t->s), fd);
	assert_int_equal(write(t->fake.last->event, &one, 8), 8);
	assert_true(readable(fd));
	/* no connection: silent */
	lose(t);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_false(readable(fd));
	assert_int_equal(tarn_session_fd(t->s), fd);
	t->fake.fail = 0;
}

/* A close that breaks, or of a lost session, does not try to connect. */
static void test_close(void **state)
{
	struct test *t = *state;
	unsigned n;
	int how;

	for (how = UNSENT; how < HOWS; how++) {
		for (n = 0; n <= 2; n++) {
			uint64_t begin = clock_now_ns();

			assert_int_equal(put(t, "k", "v", NULL), 0);
			if (n == 0)
				lose(t);
			arm(t, (enum how)how, n, 0);
			t->fake.tries = 0;
			tarn_session_close(t->s);
			assert_int_equal(t->fake.tries, 0);
			assert_int_equal(t->fake.opened, t->fake.closed);
			assert_true(clock_now_ns() - begin < 500 * MSEC);
			arm(t, SENT, 0, 0);
			open_session(t, 0);
		}
	}
}

/* Without a connector (the simulation) a lost session stays lost. */
static void test_no_connector(void **state)
{
	struct test *t = *state;

	t->s->connector = NULL;
	lose(t);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ESESSION);
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(put(t, "k", "v", NULL), -TARN_ESESSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_backoff, setup, teardown),
		cmocka_unit_test_setup_teardown(test_permanent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_told_to_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_housekeeping, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_visit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptor, setup, teardown),
		cmocka_unit_test_setup_teardown(test_close, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_connector, setup, teardown),
	};

	return cmocka_run_group_tests_name("reconnect-try", tests, NULL, NULL);
}
