/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-reconnect-region.c - regions, and locks and queues in them, when the connection breaks
 *
 * A region is the pool's first bytes here (fake-fabric.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reconnect-fixture.h"
#include "tarn/sync.h"

/*
 * What an asynchronous access was waiting for has come, and right behind it the end of the connection: it goes on only when
 * that is gone, and there is no endpoint that knows of regions.
 */
static void region_breaks(struct test *t, struct tarn_region *region)
{
	const struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion completion;
	uint64_t word, reconnects = t->s->stats.reconnects;
	size_t count = 0;

	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, &async, NULL), 0);
	t->fake.breaks_after = true;
	t->fake.silent = 2;
	/* two turns, and then what comes is taken when the session is left, for its descriptor */
	assert_int_equal(tarn_session_poll(t->s, &completion, 1, &count), 0);
	assert_false(t->fake.breaks_after);
	assert_true(t->s->lost);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ENOTFOUND);
	assert_int_equal(t->s->stats.reconnects, reconnects + 1);
	while (count == 0)
		assert_true(tarn_session_poll(t->s, &completion, 1, &count) >= 0);
	assert_int_equal(completion.status, 0);
}

static void test_region(void **state)
{
	struct test *t = *state;
	struct tarn_region *region;

	assert_true(tarn_session_fd(t->s) >= 0);
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	region_breaks(t, region); /* at the access */
	lose(t);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ENOTFOUND);
	region_breaks(t, region); /* when it is attached again */
	assert_int_equal(tarn_region_close(region), 0);
}

/* The status of the asynchronous call with a lock that has begun; *ret_token: what it tells. */
static int lock_call(struct test *t, int ret, uint64_t *ret_token)
{
	struct tarn_completion completion;
	size_t count = 0;

	assert_int_equal(ret, 0);
	while (count == 0) {
		assert_true(tarn_session_wait(t->s, 1000) >= 0);
		assert_true(tarn_session_poll(t->s, &completion, 1, &count) >= 0);
	}
	assert_int_equal(completion.kind, TARN_OP_SYNC);
	*ret_token = (uint64_t)completion.value;
	return completion.status;
}

/*
 * Wherever the connection breaks, a call with a lock comes to the end that its blocking twin has: it is taken, with a
 * token that no one had before, renewed and released. What may have taken it, and does not know, waits for the lease.
 */
static void test_lock(void **state)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_region *region;
	struct test *t = *state;
	struct tarn_lock *lock;
	uint64_t token, last = 0;

	t->s->timeout_ns = 60000 * MSEC;
	async.timeout_ms = 60000;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	assert_int_equal(tarn_lock_init(region, 2048, TARN_SYNC_LEASE_MIN_MS), 0);
	assert_int_equal(tarn_lock_open(region, 2048, 1, &lock), 0);
	for (int how = UNSENT; how < HOWS; how++)
		for (unsigned at = 0; at <= 4; at++) {
			uint64_t reconnects = t->s->stats.reconnects;

			arm(t, (enum how)how, at, 0);
			assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL),
						   &token),
					 0);
			assert_true(token > last);
			last = token;
			assert_int_equal(lock_call(t, tarn_lock_renew_async(lock, &async, NULL),
						   &token),
					 0);
			assert_true(token > last);
			last = token;
			assert_int_equal(t->s->stats.reconnects, reconnects + (at > 0));
			arm(t, (enum how)how, at == 1, 0);
			assert_int_equal(lock_call(t, tarn_lock_release_async(lock, &async, NULL),
						   &token),
					 0);
			assert_int_equal(t->s->stats.reconnects, reconnects + (at > 0) + (at == 1));
		}
	arm(t, UNSENT, 0, 0);
	tarn_lock_close(lock);
	assert_int_equal(tarn_region_close(region), 0);
}

/* One of each kind, in zeros. */
enum kind { A_LOCK, A_QUEUE, A_BARRIER, AN_EPOCH, KINDS };
#define PLACE       2048u
#define PLACE_BYTES 512u

static int make_async(struct tarn_region *region, int kind)
{
	switch ((enum kind)kind) {
	case A_LOCK:
		return tarn_lock_init_async(region, PLACE, 1000, NULL, NULL);
	case A_QUEUE:
		return tarn_queue_init_async(region, PLACE, 4, 8, 1000, 0, NULL, NULL);
	case A_BARRIER:
		return tarn_barrier_init_async(region, PLACE, 2, NULL, NULL);
	case AN_EPOCH:
	case KINDS:
		break;
	}
	return tarn_epoch_init_async(region, PLACE, NULL, NULL);
}

union handle {
	struct tarn_lock *lock;
	struct tarn_queue *queue;
	struct tarn_barrier *barrier;
	struct tarn_epoch *epoch;
	void *any;
};

static int open_async(struct tarn_region *region, int kind, union handle *h)
{
	switch ((enum kind)kind) {
	case A_LOCK:
		return tarn_lock_open_async(region, PLACE, 1, &h->lock, NULL, NULL);
	case A_QUEUE:
		return tarn_queue_open_async(region, PLACE, &h->queue, NULL, NULL);
	case A_BARRIER:
		return tarn_barrier_open_async(region, PLACE, 1, &h->barrier, NULL, NULL);
	case AN_EPOCH:
	case KINDS:
		break;
	}
	return tarn_epoch_open_async(region, PLACE, &h->epoch, NULL, NULL);
}

/* Status of stat, where there is one; closes it. */
static int stat_and_close(struct test *t, int kind, union handle h)
{
	struct tarn_lock_info lock = {.size = sizeof(lock)};
	struct tarn_queue_info queue = {.size = sizeof(queue)};
	uint64_t value;
	int status = 0;

	if (kind == A_LOCK) {
		status = lock_call(t, tarn_lock_stat_async(h.lock, &lock, NULL, NULL), &value);
		assert_int_equal(lock.lease_ms, 1000);
		tarn_lock_close(h.lock);
	} else if (kind == A_QUEUE) {
		status = lock_call(t, tarn_queue_stat_async(h.queue, &queue, NULL, NULL), &value);
		assert_int_equal(queue.slots, 4);
		tarn_queue_close(h.queue);
	} else if (kind == A_BARRIER) {
		tarn_barrier_close(h.barrier);
	} else {
		tarn_epoch_close(h.epoch);
	}
	return status;
}

/* Wherever the connection breaks while one is made, opened or looked at: it is done on the next one. */
static void test_make_open(void **state)
{
	struct tarn_region *region;
	struct test *t = *state;
	unsigned broken = 0;
	uint64_t value;

	t->s->timeout_ns = 60000 * MSEC;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	for (int kind = 0; kind < KINDS; kind++)
		for (int how = UNSENT; how < HOWS; how++)
			for (unsigned at = 0; at <= 6; at++) {
				union handle h = {.any = NULL};

				memset(t->pool.base + PLACE, 0, PLACE_BYTES);
				arm(t, (enum how)how, at, 0);
				assert_int_equal(lock_call(t, make_async(region, kind), &value), 0);
				assert_int_equal(
					lock_call(t, open_async(region, kind, &h), &value), 0);
				assert_non_null(h.any);
				assert_int_equal(stat_and_close(t, kind, h), 0);
				broken += broke(t);
			}
	/* at the least: looked at and made, opened */
	assert_true(broken >= KINDS * HOWS * 3);
	arm(t, UNSENT, 0, 0);
	assert_int_equal(tarn_region_close(region), 0);
}

/* There is no connection: neither is made nor opened, and the session ends with one that waits. */
static void test_make_open_lost(void **state)
{
	struct tarn_region *region;
	struct test *t = *state;
	union handle h = {.any = NULL};
	uint64_t value;

	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	t->s->timeout_ns = 50 * MSEC;
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	lose(t);
	for (int kind = 0; kind < KINDS; kind++) {
		assert_int_equal(lock_call(t, make_async(region, kind), &value), -TARN_ESESSION);
		assert_int_equal(lock_call(t, open_async(region, kind, &h), &value),
				 -TARN_ESESSION);
		assert_null(h.any);
	}
	assert_int_equal(make_async(region, A_LOCK), 0);
	assert_int_equal(open_async(region, A_QUEUE, &h), 0);
	tarn_session_close(t->s);
	assert_null(h.any);
	t->fake.fail = 0;
	open_session(t, 0);
}

#define AWAY_SLOTS 32u

static uint64_t slot_state(const struct test *t, uint64_t position)
{
	uint64_t at = PLACE + 192 + position * (24 + 8), state;

	memcpy(&state, (const uint8_t *)t->pool.base + at, 8);
	return state;
}

/*
 * A producer has its place, and no connection until more than half of its lease is over: it writes nothing there any
 * more, where by now another one's message may stand, and takes another place.
 */
static void test_queue_away(void **state)
{
	struct tarn_queue_info info = {.size = sizeof(info)};
	struct tarn_region *region;
	struct tarn_queue *queue;
	struct test *t = *state;
	uint64_t before = 0, value;

	/* with a descriptor a call takes note of the end of a connection when it leaves the session */
	assert_true(tarn_session_fd(t->s) >= 0);
	t->s->timeout_ns = 60000 * MSEC;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	assert_int_equal(tarn_queue_init(region, PLACE, AWAY_SLOTS, 8, 200, 0), 0);
	assert_int_equal(tarn_queue_open(region, PLACE, &queue), 0);
	for (unsigned async = 0; async < 2; async++) {
		t->fake.breaks_after = true; /* reserved, not written */
		fail_tries(t, 1, -TARN_EREFUSED, SESSION_SOON, 500 * MSEC);
		if (async)
			assert_int_equal(
				lock_call(t, tarn_queue_send_async(queue, "message", 8, NULL, NULL),
					  &value),
				0);
		else
			assert_int_equal(tarn_queue_send(queue, "message", 8, 60000), 0);
		assert_true(!t->fake.breaks_after && t->fake.fail == 0);
		assert_int_equal(tarn_queue_stat(queue, &info), 0);
		assert_true(info.tail >= before + 2 && info.tail <= AWAY_SLOTS);
		assert_int_equal(slot_state(t, before), 2);        /* DEAD */
		assert_int_equal(slot_state(t, info.tail - 1), 1); /* FULL */
		before = info.tail;
	}
	tarn_queue_close(queue);
	assert_int_equal(tarn_region_close(region), 0);
}

/* There is no connection any more: the call ends, and what it may have done it does not deny. */
static void test_lock_lost(void **state)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_region *region;
	struct test *t = *state;
	struct tarn_lock *lock;
	uint64_t token;

	async.timeout_ms = 50;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	assert_int_equal(tarn_lock_init(region, 2048, TARN_SYNC_LEASE_MAX_MS), 0);
	assert_int_equal(tarn_lock_open(region, 2048, 1, &lock), 0);
	t->s->timeout_ns = 50 * MSEC;
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	lose(t);
	assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL), &token),
			 -TARN_ESESSION);
	t->fake.fail = 0;
	t->s->timeout_ns = 60000 * MSEC;
	async.timeout_ms = 60000;
	assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL), &token), 0);
	/* it was held when the connection broke behind the CAS, though the owner could not be written */
	assert_int_equal(tarn_lock_release(lock), 0);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	t->s->timeout_ns = 50 * MSEC;
	arm(t, UNSENT, 3, 0);
	assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL), &token), 0);
	assert_true(token > 0 && tarn_lock_left_ms(lock) > 0);
	t->fake.fail = 0;
	arm(t, UNSENT, 0, 0);
	tarn_lock_close(lock);
	assert_int_equal(tarn_region_close(region), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_region, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_open, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_open_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue_away, setup, teardown),
	};

	return cmocka_run_group_tests_name("reconnect-region", tests, NULL, NULL);
}
