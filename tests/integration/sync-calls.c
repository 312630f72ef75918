/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every asynchronous call of tarn/sync.h, and tarn_region_close_async(), by one thread that never waits for one of them but by the session's
 * descriptor, for test-sync.py: many parties in one process, cancels, deadlines, handles that are in use.
 *
 *	sync-calls URI
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/sync.h>

#include "expect.h"

#define LEASE_MS 20000u /* nothing here takes so long */
#define PARTIES  16u
#define BYTES    65536u

static struct tarn_session *session;
static struct tarn_region *region;

/* The next one, as an event loop gets it. */
static struct tarn_completion pick_up(void)
{
	struct pollfd p = {.fd = tarn_session_fd(session), .events = POLLIN};
	struct tarn_completion c;
	size_t count = 0;

	HOLDS(p.fd >= 0);
	for (;;) {
		HOLDS(tarn_session_poll(session, &c, 1, &count) >= 0);
		if (count)
			break;
		HOLDS(poll(&p, 1, 60000) == 1);
	}
	HOLDS(c.kind == TARN_OP_SYNC);
	return c;
}

static int status(void)
{
	return pick_up().status;
}

static const struct tarn_async *cookie(uint64_t number)
{
	static struct tarn_async async = TARN_ASYNC_INIT;

	async.timeout_ms = 60000;
	async.cookie = (void *)(uintptr_t)number;
	return &async;
}

static const struct tarn_async *within(uint32_t ms)
{
	static struct tarn_async async = TARN_ASYNC_INIT;

	async.timeout_ms = ms;
	return &async;
}

/* ---- making and opening ---- */

/* What the blocking calls have made, and the other way round; each refusal as theirs. */
static void check_made(uint64_t at)
{
	struct tarn_lock *lock = NULL, *none = NULL;
	struct tarn_queue *queue = NULL;
	struct tarn_barrier *barrier = NULL;
	struct tarn_epoch *epoch = NULL;
	struct tarn_lock_info lock_info = {.size = sizeof(lock_info)};
	struct tarn_queue_info queue_info = {.size = sizeof(queue_info)};

	GIVES(tarn_lock_init_async(NULL, at, LEASE_MS, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_init_async(region, at, 1, NULL, NULL), -EINVAL);
	GIVES(tarn_queue_init_async(region, at, 5, 8, LEASE_MS, 0, NULL, NULL), -EINVAL);
	GIVES(tarn_barrier_init_async(region, at, 0, NULL, NULL), -EINVAL);
	GIVES(tarn_epoch_init_async(region, BYTES, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_open_async(region, at, 1, NULL, NULL, NULL), -EINVAL);
	GIVES(tarn_queue_open_async(region, at, NULL, NULL, NULL), -EINVAL);
	GIVES(tarn_barrier_open_async(region, at + 4, 0, &barrier, NULL, NULL), -EINVAL);
	GIVES(tarn_epoch_open_async(NULL, at, &epoch, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_stat_async(NULL, &lock_info, NULL, NULL), -EINVAL);

	GIVES(tarn_lock_open_async(region, at, 1, &none, NULL, NULL), 0);
	GIVES(status(), -TARN_ENOTFOUND);
	GIVES(tarn_lock_init_async(region, at, LEASE_MS, NULL, NULL), 0);
	GIVES(tarn_region_close(region), -TARN_EBUSY);
	GIVES(status(), 0);
	GIVES(tarn_lock_init(region, at, LEASE_MS), 0);
	GIVES(tarn_lock_init_async(region, at, LEASE_MS + 1, NULL, NULL), 0);
	GIVES(status(), -TARN_EEXISTS);
	GIVES(tarn_queue_init_async(region, at + 64, 4, 8, LEASE_MS, 0, NULL, NULL), 0);
	GIVES(status(), 0);
	GIVES(tarn_barrier_init_async(region, at + 512, 3, NULL, NULL), 0);
	GIVES(status(), 0);
	GIVES(tarn_epoch_init_async(region, at + 1024, NULL, NULL), 0);
	GIVES(status(), 0);

	/* several at a time; none is what another one opens */
	GIVES(tarn_lock_open_async(region, at, 7, &lock, NULL, NULL), 0);
	GIVES(tarn_queue_open_async(region, at + 64, &queue, NULL, NULL), 0);
	GIVES(tarn_barrier_open_async(region, at + 512, 2, &barrier, NULL, NULL), 0);
	GIVES(tarn_epoch_open_async(region, at + 1024, &epoch, NULL, NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		GIVES(status(), 0);
	HOLDS(lock && queue && barrier && epoch);
	GIVES(tarn_lock_open_async(region, at + 64, 1, &none, NULL, NULL), 0);
	GIVES(status(), -TARN_ETYPE);
	GIVES(tarn_barrier_open_async(region, at + 512, 3, &barrier, NULL, NULL), 0);
	GIVES(status(), -EINVAL);
	HOLDS(!none);

	GIVES(tarn_lock_acquire(lock, 0, NULL), 0);
	GIVES(tarn_lock_stat_async(lock, &lock_info, NULL, NULL), 0);
	HOLDS(tarn_lock_left_ms(lock) > 0);
	GIVES(status(), 0);
	HOLDS(lock_info.held == 1 && lock_info.owner == 7 && lock_info.lease_ms == LEASE_MS);
	GIVES(tarn_queue_send(queue, "a", 1, 0), 0);
	GIVES(tarn_queue_stat_async(queue, &queue_info, NULL, NULL), 0);
	GIVES(tarn_queue_stat(queue, &queue_info), -TARN_EBUSY);
	GIVES(status(), 0);
	HOLDS(queue_info.slots == 4 && queue_info.message_bytes == 8 && queue_info.tail == 1 &&
	      queue_info.head == 0);
	GIVES(tarn_barrier_wait(barrier, 0, NULL), -TARN_ETIMEOUT);
	GIVES(tarn_epoch_raise(epoch, 3), 0);
	tarn_lock_close(lock);
	tarn_queue_close(queue);
	tarn_barrier_close(barrier);
	tarn_epoch_close(epoch);
}

/* ---- locks ---- */

static void check_lock(uint64_t at)
{
	struct tarn_lock *lock, *other;
	struct tarn_completion c;
	uint64_t token, op;

	GIVES(tarn_lock_init(region, at, LEASE_MS), 0);
	GIVES(tarn_lock_open(region, at, 1, &lock), 0);
	GIVES(tarn_lock_open(region, at, 2, &other), 0);
	GIVES(tarn_lock_acquire_async(NULL, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_renew_async(lock, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_release_async(lock, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_acquire_async(lock, cookie(7), &op), 0);
	/* one call at a time */
	GIVES(tarn_lock_acquire_async(lock, NULL, NULL), -TARN_EBUSY);
	GIVES(tarn_lock_acquire(lock, 0, NULL), -TARN_EBUSY);
	HOLDS(tarn_lock_left_ms(lock) == 0);
	GIVES(tarn_region_close(region), -TARN_EBUSY);
	c = pick_up();
	HOLDS(c.status == 0 && c.op == op && c.cookie == (void *)7 && c.value > 0);
	token = (uint64_t)c.value;
	HOLDS(tarn_lock_left_ms(lock) > 0);
	GIVES(tarn_lock_acquire_async(lock, NULL, NULL), -EINVAL);
	GIVES(tarn_lock_renew_async(lock, NULL, NULL), 0);
	HOLDS(tarn_lock_left_ms(lock) > 0);
	c = pick_up();
	HOLDS(c.status == 0 && (uint64_t)c.value > token);
	/* who waits: its time, and a cancel */
	GIVES(tarn_lock_acquire_async(other, within(50), NULL), 0);
	GIVES(status(), -TARN_ETIMEOUT);
	GIVES(tarn_lock_acquire_async(other, cookie(0), &op), 0);
	GIVES(tarn_session_wait(session, 200), 0);
	GIVES(tarn_cancel(session, op), 0);
	GIVES(status(), -TARN_ECANCELED);
	/* it waits, and gets it */
	GIVES(tarn_lock_acquire_async(other, cookie(1), NULL), 0);
	GIVES(tarn_session_wait(session, 50), 0);
	GIVES(tarn_lock_release_async(lock, cookie(2), NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		c = pick_up();
		HOLDS(c.status == 0);
		HOLDS((c.cookie == (void *)1) == (c.value != 0));
	}
	HOLDS(tarn_lock_left_ms(lock) == 0 && tarn_lock_left_ms(other) > 0);
	GIVES(tarn_lock_release(other), 0);
	tarn_lock_close(lock);
	tarn_lock_close(other);
}

/* As many as there are, by one thread: each has it once, with a higher token than the one before. */
static void check_many_locks(uint64_t at)
{
	struct tarn_lock *locks[64], *holder, *more;
	unsigned released = 0;
	int64_t last = 0;
	uint64_t word;

	GIVES(tarn_lock_init(region, at, LEASE_MS), 0);
	GIVES(tarn_lock_open(region, at, 100, &holder), 0);
	GIVES(tarn_lock_acquire(holder, 0, NULL), 0);
	for (uint64_t i = 0; i < 64; i++) {
		GIVES(tarn_lock_open(region, at, i, &locks[i]), 0);
		GIVES(tarn_lock_acquire_async(locks[i], cookie(i), NULL), 0);
	}
	GIVES(tarn_lock_open(region, at, 99, &more), 0);
	GIVES(tarn_lock_acquire_async(more, NULL, NULL), -TARN_EBUSY);
	/* they hold nothing else up */
	GIVES(tarn_region_read(region, at, &word, 8), 0);
	GIVES(tarn_lock_release(holder), 0);
	while (released < 64) {
		struct tarn_completion c = pick_up();
		uint64_t i = (uintptr_t)c.cookie;

		HOLDS(c.status == 0);
		if (i >= 64) {
			released++;
			continue;
		}
		HOLDS(c.value > last);
		last = c.value;
		GIVES(tarn_lock_release_async(locks[i], cookie(64 + i), NULL), 0);
	}
	for (uint64_t i = 0; i < 64; i++)
		tarn_lock_close(locks[i]);
	tarn_lock_close(more);
	tarn_lock_close(holder);
}

/* A handle that is closed with a call under way; the sanitizers and valgrind see whether it is freed, once. */
static void check_closed(uint64_t at)
{
	struct tarn_lock *holder, *lock;
	uint64_t op;

	GIVES(tarn_lock_init(region, at, LEASE_MS), 0);
	GIVES(tarn_lock_open(region, at, 1, &holder), 0);
	GIVES(tarn_lock_open(region, at, 2, &lock), 0);
	GIVES(tarn_lock_acquire(holder, 0, NULL), 0);
	GIVES(tarn_lock_acquire_async(lock, cookie(0), &op), 0);
	tarn_lock_close(lock);
	GIVES(tarn_cancel(session, op), 0);
	GIVES(status(), -TARN_ECANCELED);
	GIVES(tarn_lock_release(holder), 0);
	tarn_lock_close(holder);
}

/* ---- queues ---- */

/* More than there is room for is sent and received by one thread; in order. */
static void check_queue(uint64_t at, uint32_t flags)
{
	struct tarn_queue *in, *out;
	uint64_t message = 0, got = 0, sent = 0, received = 0;
	struct tarn_completion c;
	char small[4];

	GIVES(tarn_queue_init(region, at, 4, 100, LEASE_MS, flags), 0);
	GIVES(tarn_queue_open(region, at, &in), 0);
	GIVES(tarn_queue_open(region, at, &out), 0);
	GIVES(tarn_queue_send_async(in, NULL, 8, NULL, NULL), -EINVAL);
	GIVES(tarn_queue_send_async(in, small, 1000, NULL, NULL), -TARN_EVALUESIZE);
	GIVES(tarn_queue_receive_async(NULL, &got, 8, NULL, NULL), -EINVAL);
	GIVES(tarn_queue_consume_async(out, 0, NULL, NULL), -EINVAL);
	GIVES(tarn_queue_receive_async(out, &got, 8, within(20), NULL), 0);
	GIVES(status(), -TARN_ETIMEOUT);
	GIVES(tarn_queue_receive_async(out, &got, 8, cookie(1), NULL), 0);
	GIVES(tarn_queue_send_async(in, &message, 8, cookie(2), NULL), 0);
	while (received < 100) {
		c = pick_up();
		HOLDS(c.status == 0);
		if (c.cookie == (void *)2 && ++sent < 100) {
			message++;
			GIVES(tarn_queue_send_async(in, &message, 8, cookie(2), NULL), 0);
		} else if (c.cookie == (void *)1) {
			HOLDS(c.value == 8 && got == received++);
			if (received < 100)
				GIVES(tarn_queue_receive_async(out, &got, 8, cookie(1), NULL), 0);
		}
	}
	if (sent < 100)
		GIVES(status(), 0);
	/* it stays until it is consumed */
	GIVES(tarn_queue_send_async(in, "hello", 5, cookie(0), NULL), 0);
	GIVES(status(), 0);
	GIVES(tarn_queue_receive_async(out, small, 4, cookie(0), NULL), 0);
	c = pick_up();
	HOLDS(c.status == -TARN_ETOOSMALL && c.value == 5);
	for (unsigned i = 0; i < 2; i++) {
		char text[8];

		GIVES(tarn_queue_peek_async(out, text, 8, cookie(0), NULL), 0);
		c = pick_up();
		HOLDS(c.status == 0 && c.value == 5 && memcmp(text, "hello", 5) == 0);
	}
	GIVES(tarn_queue_consume_async(out, c.stamp + 1, NULL, NULL), -EINVAL);
	GIVES(tarn_queue_consume_async(out, c.stamp, cookie(0), NULL), 0);
	GIVES(status(), 0);
	GIVES(tarn_queue_receive(out, &got, 8, 0, &(size_t){0}), -TARN_ETIMEOUT);
	tarn_queue_close(in);
	tarn_queue_close(out);
}

/* Full: it waits, until there is room, or it is cancelled, and then it has not been sent. */
static void check_full(uint64_t at)
{
	struct tarn_queue *in, *out;
	uint64_t message = 0, got, op;
	size_t bytes;

	GIVES(tarn_queue_init(region, at, 4, 8, LEASE_MS, 0), 0);
	GIVES(tarn_queue_open(region, at, &in), 0);
	GIVES(tarn_queue_open(region, at, &out), 0);
	for (; message < 4; message++)
		GIVES(tarn_queue_send(in, &message, 8, 0), 0);
	GIVES(tarn_queue_send_async(in, &message, 8, cookie(0), &op), 0);
	GIVES(tarn_session_wait(session, 50), 0);
	GIVES(tarn_cancel(session, op), 0);
	GIVES(status(), -TARN_ECANCELED);
	GIVES(tarn_queue_send_async(in, &message, 8, cookie(0), &op), 0);
	GIVES(tarn_session_wait(session, 50), 0);
	GIVES(tarn_queue_receive(out, &got, 8, 0, &bytes), 0);
	GIVES(status(), 0);
	for (uint64_t i = 1; i <= 4; i++) {
		GIVES(tarn_queue_receive(out, &got, 8, 0, &bytes), 0);
		HOLDS(got == i);
	}
	GIVES(tarn_queue_receive(out, &got, 8, 0, &bytes), -TARN_ETIMEOUT);
	tarn_queue_close(in);
	tarn_queue_close(out);
}

/* ---- barriers and epoch counters ---- */

static void check_barrier(uint64_t at)
{
	struct tarn_barrier *parties[PARTIES];
	struct tarn_completion c;

	GIVES(tarn_barrier_init(region, at, PARTIES), 0);
	for (uint32_t i = 0; i < PARTIES; i++)
		GIVES(tarn_barrier_open(region, at, i, &parties[i]), 0);
	GIVES(tarn_barrier_wait_async(NULL, NULL, NULL), -EINVAL);
	/* alone */
	GIVES(tarn_barrier_wait_async(parties[0], within(20), NULL), 0);
	GIVES(status(), -TARN_ETIMEOUT);
	for (int64_t round = 1; round <= 10; round++) {
		for (uint32_t i = 0; i < PARTIES - 1; i++)
			GIVES(tarn_barrier_wait_async(parties[i], cookie(i), NULL), 0);
		GIVES(tarn_session_wait(session, 5), 0);
		GIVES(tarn_barrier_wait_async(parties[PARTIES - 1], cookie(0), NULL), 0);
		for (uint32_t i = 0; i < PARTIES; i++) {
			c = pick_up();
			HOLDS(c.status == 0 && c.value == round);
		}
	}
	for (uint32_t i = 0; i < PARTIES; i++)
		tarn_barrier_close(parties[i]);
}

static void check_epoch(uint64_t at)
{
	struct tarn_epoch *epoch, *waiter;
	struct tarn_completion c;
	uint64_t op;

	GIVES(tarn_epoch_init(region, at), 0);
	GIVES(tarn_epoch_open(region, at, &epoch), 0);
	GIVES(tarn_epoch_open(region, at, &waiter), 0);
	GIVES(tarn_epoch_add_async(epoch, 0, NULL, NULL), -EINVAL);
	GIVES(tarn_epoch_raise_async(epoch, UINT64_MAX, NULL, NULL), -EINVAL);
	GIVES(tarn_epoch_read_async(NULL, NULL, NULL), -EINVAL);
	GIVES(tarn_epoch_read_async(epoch, cookie(0), NULL), 0);
	c = pick_up();
	HOLDS(c.status == 0 && c.value == 0);
	GIVES(tarn_epoch_add_async(epoch, 5, cookie(0), NULL), 0);
	c = pick_up();
	HOLDS(c.status == 0 && c.value == 5);
	GIVES(tarn_epoch_wait_async(waiter, 5, cookie(0), NULL), 0);
	c = pick_up();
	HOLDS(c.status == 0 && c.value == 5);
	GIVES(tarn_epoch_wait_async(waiter, 6, within(20), NULL), 0);
	GIVES(status(), -TARN_ETIMEOUT);
	GIVES(tarn_epoch_wait_async(waiter, 9, cookie(1), &op), 0);
	GIVES(tarn_epoch_raise_async(epoch, 8, cookie(2), NULL), 0);
	HOLDS(pick_up().cookie == (void *)2);
	GIVES(tarn_session_wait(session, 50), 0);
	GIVES(tarn_epoch_raise_async(epoch, 9, cookie(2), NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		c = pick_up();
		HOLDS(c.status == 0 && c.value == (c.cookie == (void *)1 ? 9 : 0));
	}
	GIVES(tarn_epoch_read_async(epoch, cookie(0), NULL), 0);
	HOLDS(pick_up().value == 9);
	tarn_epoch_close(epoch);
	tarn_epoch_close(waiter);
}

/* ---- the end ---- */

/* Closed without waiting: it is not there any more for this session, and can be resized. */
static void check_region_close(void)
{
	struct tarn_region *other;
	struct tarn_completion c;
	uint64_t word, op;
	size_t count = 0;

	GIVES(tarn_region_create(session, "other", 4096, 0), 0);
	GIVES(tarn_region_open(session, "other", 0, &other), 0);
	GIVES(tarn_region_close_async(other, NULL, &op), 0);
	GIVES(tarn_region_read(other, 0, &word, 8), -EINVAL);
	GIVES(tarn_region_close(other), -EINVAL);
	while (count == 0) {
		GIVES(tarn_session_wait(session, 60000), 1);
		HOLDS(tarn_session_poll(session, &c, 1, &count) >= 0);
	}
	HOLDS(c.op == op && c.kind == TARN_OP_REGION_CONTROL && c.status == 0);
	GIVES(tarn_region_resize(session, "other", 8192, 0), 0);
	GIVES(tarn_region_destroy(session, "other"), 0);
}

/* What is under way goes with the session; its handles are closed before or behind. */
static void check_end(uint64_t at)
{
	struct tarn_lock *holder, *before, *behind;

	GIVES(tarn_lock_init(region, at, LEASE_MS), 0);
	GIVES(tarn_lock_open(region, at, 1, &holder), 0);
	GIVES(tarn_lock_open(region, at, 2, &before), 0);
	GIVES(tarn_lock_open(region, at, 3, &behind), 0);
	GIVES(tarn_lock_acquire(holder, 0, NULL), 0);
	GIVES(tarn_lock_acquire_async(before, cookie(0), NULL), 0);
	GIVES(tarn_lock_acquire_async(behind, cookie(0), NULL), 0);
	tarn_lock_close(before);
	tarn_session_close(session);
	tarn_lock_close(behind);
	tarn_lock_close(holder);
}

int main(int argc, char **argv)
{
	struct tarn_options options = TARN_OPTIONS_INIT;

	if (argc != 2)
		errx(2, "usage: sync-calls URI");
	options.timeout_ms = 60000;
	GIVES(tarn_session_open(argv[1], &options, &session), 0);
	GIVES(tarn_region_create(session, "calls", BYTES, 0), 0);
	GIVES(tarn_region_open(session, "calls", 0, &region), 0);
	check_made(50000);
	check_lock(0);
	check_many_locks(64);
	check_closed(128);
	check_queue(1024, 0);
	check_queue(4096, TARN_QUEUE_SINGLE);
	check_full(8192);
	check_barrier(16384);
	check_epoch(32768);
	check_region_close();
	check_end(40000);
	return 0;
}
