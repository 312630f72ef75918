/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of locks and queues, for test-sync.py, which kills it at any time. What it is about to do and what it has done
 * it appends to a log, one line each, so that the kernel has it before the next step.
 *
 *	lock NUMBER LOG       takes lock NUMBER again and again, and adds to what it protects:
 *	                      "take T0 T1 TOKEN" (T0, T1: CLOCK_MONOTONIC around the call), "add TOKEN", "added TOKEN"
 *	produce BASE LOG      sends BASE, BASE + 1, ...: "send ID", "sent ID"
 *	receive, peek - LOG   receives: "got ID", "done ID"
 *	drain - LOG           the same, until the queue is empty
 *	number NUMBER -       prints what lock NUMBER protects
 */
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tarn/sync.h>

#define LOCK_LEASE_MS  100u
#define QUEUE_LEASE_MS 200u
#define QUEUE_OFFSET   4096u
#define QUEUE_SLOTS    64u
#define MESSAGE_BYTES  200u
#define BYTES          65536u

struct client {
	struct tarn_session *session;
	struct tarn_region *region;
	int log;
	bool twins; /* every second process makes its calls by their asynchronous twins */
};

static int check(int ret)
{
	if (ret < 0)
		errx(1, "%s: %s", tarn_error_name(ret), tarn_last_error_text());
	return ret;
}

/* The status of an asynchronous call that has begun. */
static int finish(const struct client *c, int ret, struct tarn_completion *completion)
{
	size_t count = 0;

	check(ret);
	while (count == 0) {
		check(tarn_session_wait(c->session, 1000));
		check(tarn_session_poll(c->session, completion, 1, &count));
	}
	return completion->status;
}

static struct tarn_async within(uint32_t timeout_ms)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.timeout_ms = timeout_ms;
	return async;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note(const struct client *c, const char *what, uint64_t value)
{
	char line[64];
	int bytes = snprintf(line, sizeof(line), "%s %" PRIu64 "\n", what, value);

	if (write(c->log, line, (size_t)bytes) != bytes)
		err(1, "log");
}

static void open_all(struct client *c, const char *uri, const char *log)
{
	int ret;

	c->twins = getpid() % 2;
	c->log = open(log, O_WRONLY | O_APPEND | O_CREAT, 0600);
	if (c->log < 0)
		err(1, "%s", log);
	check(tarn_session_open(uri, NULL, &c->session));
	ret = tarn_region_create(c->session, "sync", BYTES, 0);
	if (ret != -TARN_EEXISTS)
		check(ret);
	while ((ret = tarn_region_open(c->session, "sync", 0, &c->region)) == -TARN_EBUSY)
		usleep(1000);
	check(ret);
}

/* ---- locks ---- */

/* token << 24 | number: as in examples/lock.c. */
static void add(const struct client *c, uint64_t guard, uint64_t token)
{
	uint64_t word, before;

	check(tarn_region_read(c->region, guard, &word, 8));
	if (word >> 24 > token)
		return;
	note(c, "add", token);
	check(tarn_region_cas(c->region, guard, word, token << 24 | ((word + 1) & 0xffffff),
			      &before));
	if (before == word)
		note(c, "added", token);
}

static int acquire(const struct client *c, struct tarn_lock *lock, uint64_t *token)
{
	const struct tarn_async async = within(60000);
	struct tarn_completion done;
	int ret;

	if (!c->twins)
		return tarn_lock_acquire(lock, 60000, token);
	ret = finish(c, tarn_lock_acquire_async(lock, &async, NULL), &done);
	*token = (uint64_t)done.value;
	return ret;
}

static int renew(const struct client *c, struct tarn_lock *lock, uint64_t *token)
{
	struct tarn_completion done;
	int ret;

	if (!c->twins)
		return tarn_lock_renew(lock, token);
	ret = finish(c, tarn_lock_renew_async(lock, NULL, NULL), &done);
	*token = (uint64_t)done.value;
	return ret;
}

static int release(const struct client *c, struct tarn_lock *lock)
{
	struct tarn_completion done;

	return c->twins ? finish(c, tarn_lock_release_async(lock, NULL, NULL), &done)
			: tarn_lock_release(lock);
}

static void work_with_lock(const struct client *c, uint64_t number)
{
	uint64_t offset = number * 128, token, begun;
	struct tarn_lock *lock;
	char line[128];
	int ret;

	check(tarn_lock_init(c->region, offset, LOCK_LEASE_MS));
	check(tarn_lock_open(c->region, offset, (uint64_t)getpid(), &lock));
	for (uint64_t round = 0;; round++) {
		int bytes;

		begun = now_ns();
		check(acquire(c, lock, &token));
		bytes = snprintf(line, sizeof(line), "take %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
				 begun, now_ns(), token);
		if (write(c->log, line, (size_t)bytes) != bytes)
			err(1, "log");
		add(c, offset + 64, token);
		ret = round % 4 ? 0 : renew(c, lock, &token);
		if (ret == 0) {
			add(c, offset + 64, token);
			if (round % 16 == 0)
				usleep(2000);
			ret = release(c, lock);
		}
		if (ret != -TARN_EOVERTAKEN)
			check(ret);
	}
}

/* ---- queues ---- */

static struct tarn_queue *open_queue(const struct client *c)
{
	struct tarn_queue *queue;

	check(tarn_queue_init(c->region, QUEUE_OFFSET, QUEUE_SLOTS, MESSAGE_BYTES, QUEUE_LEASE_MS,
			      0));
	check(tarn_queue_open(c->region, QUEUE_OFFSET, &queue));
	return queue;
}

/* Bytes and length follow from the id. */
static size_t fill(uint8_t *message, uint64_t id)
{
	size_t bytes = 8 + id * 7 % (MESSAGE_BYTES - 8);

	memset(message, (int)(id * 31), bytes);
	memcpy(message, &id, 8);
	return bytes;
}

static int send_one(const struct client *c, struct tarn_queue *queue, const void *message,
		    size_t bytes)
{
	const struct tarn_async async = within(60000);
	struct tarn_completion done;

	return c->twins ? finish(c, tarn_queue_send_async(queue, message, bytes, &async, NULL),
				 &done)
			: tarn_queue_send(queue, message, bytes, 60000);
}

static void produce(const struct client *c, uint64_t id)
{
	struct tarn_queue *queue = open_queue(c);
	uint8_t message[MESSAGE_BYTES];

	for (;; id++) {
		note(c, "send", id);
		check(send_one(c, queue, message, fill(message, id)));
		note(c, "sent", id);
	}
}

static uint64_t check_message(const uint8_t *message, size_t bytes)
{
	uint8_t expected[MESSAGE_BYTES];
	uint64_t id;

	memcpy(&id, message, 8);
	if (bytes < 8 || fill(expected, id) != bytes || memcmp(message, expected, bytes) != 0)
		errx(1, "a message of %zu bytes is not what was sent", bytes);
	return id;
}

/* By the twins. */
static int take(const struct client *c, struct tarn_queue *queue, uint8_t *message, bool peeks,
		uint32_t timeout_ms, size_t *bytes, uint64_t *position)
{
	const struct tarn_async async = within(timeout_ms);
	struct tarn_completion done;
	int ret;

	ret = finish(c,
		     peeks ? tarn_queue_peek_async(queue, message, MESSAGE_BYTES, &async, NULL)
			   : tarn_queue_receive_async(queue, message, MESSAGE_BYTES, &async, NULL),
		     &done);
	*bytes = (size_t)done.value;
	*position = done.stamp;
	return ret;
}

static int consume_one(const struct client *c, struct tarn_queue *queue, int peeks,
		       uint32_t timeout_ms)
{
	uint8_t message[MESSAGE_BYTES];
	uint64_t id, position = 0;
	struct tarn_completion done;
	size_t bytes;
	int ret;

	if (c->twins)
		ret = take(c, queue, message, peeks, timeout_ms, &bytes, &position);
	else if (peeks)
		ret = tarn_queue_peek(queue, message, sizeof(message), timeout_ms, &bytes,
				      &position);
	else
		ret = tarn_queue_receive(queue, message, sizeof(message), timeout_ms, &bytes);
	if (ret == -TARN_ETIMEOUT)
		return 0;
	check(ret);
	id = check_message(message, bytes);
	note(c, "got", id);
	if (peeks && c->twins)
		check(finish(c, tarn_queue_consume_async(queue, position, NULL, NULL), &done));
	else if (peeks)
		check(tarn_queue_consume(queue, position));
	note(c, "done", id);
	return 1;
}

static void consume(const struct client *c, int peeks, int drains)
{
	struct tarn_queue *queue = open_queue(c);
	struct tarn_queue_info info = {.size = sizeof(info)};

	/* behind a place that a killed producer had reserved comes more: empty is what has been so for some leases */
	while (consume_one(c, queue, peeks, drains ? 10 * QUEUE_LEASE_MS : 60000) || !drains)
		;
	check(tarn_queue_stat(queue, &info));
	if (info.head != info.tail)
		errx(1, "nothing to receive, but head %" PRIu64 ", tail %" PRIu64, info.head,
		     info.tail);
	tarn_queue_close(queue);
}

int main(int argc, char **argv)
{
	struct client c;
	uint64_t word, number;

	if (argc != 5)
		errx(2, "usage: sync-client URI MODE NUMBER LOG");
	number = strtoull(argv[3], NULL, 10);
	open_all(&c, argv[1], argv[4]);
	if (!strcmp(argv[2], "lock"))
		work_with_lock(&c, number);
	else if (!strcmp(argv[2], "produce"))
		produce(&c, number);
	else if (!strcmp(argv[2], "receive") || !strcmp(argv[2], "peek"))
		consume(&c, argv[2][0] == 'p', 0);
	else if (!strcmp(argv[2], "drain"))
		consume(&c, 0, 1);
	else if (!strcmp(argv[2], "number"))
		check(tarn_region_read(c.region, number * 128 + 64, &word, 8));
	else
		errx(2, "no mode %s", argv[2]);
	if (!strcmp(argv[2], "number"))
		printf("%" PRIu64 "\n", word & 0xffffff);
	tarn_region_close(c.region);
	tarn_session_close(c.session);
	close(c.log);
	return 0;
}
