/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-queue.c - schedules of producers and consumers of one queue, for test-sync
 *
 * What has to hold is the contract in tarn/sync.h: what was sent is delivered once, whole, in its producer's order; what
 * was not sent is not; a killed consumer loses one message at most, or gets it again; nobody gets -TARN_ECORRUPT;
 * and in the end a new consumer and a new producer get on.
 */
#include <string.h>

#include "err.h"
#include "sync-world.h"

#define QUEUE_OFFSET  128u
#define MESSAGES      256u
#define MESSAGE_BYTES 40u
#define CONSUMERS     2u

enum outcome { UNUSED = 0, CALLING, SENT, NOT_SENT, MAYBE };

struct message {
	enum outcome outcome;
	unsigned delivered, consumed;
};

struct queue_test {
	uint64_t slots;
	uint32_t lease_ms, flags;
	unsigned producers, consumers, each;
	unsigned used; /* ids that were given */
	struct message messages[MESSAGES];
	unsigned calling[WORLD_PARTIES]; /* id + 1 of the message that a producer sends */
	unsigned last[CONSUMERS][WORLD_PARTIES]
		     [64]; /* what came last to a consumer, of a producer's life */
	unsigned may_miss; /* messages that killed consumers may have had */
	bool receiving[WORLD_PARTIES];
	unsigned to_come; /* without faults: so many messages are delivered in all */
};

static void unexpected(struct party *p, const char *what, int ret)
{
	world_fail(p->region.world, "%s: %s (%s)", what, err_name(ret), err_text());
}

static int open_queue(struct party *p, void **ret_handle)
{
	return tarn_queue_open(&p->region, QUEUE_OFFSET, (struct tarn_queue **)ret_handle);
}

static void close_queue(void *handle)
{
	tarn_queue_close(handle);
}

static bool begin(struct party *p)
{
	struct queue_test *t = p->region.world->test;
	int ret = tarn_queue_init(&p->region, QUEUE_OFFSET, t->slots, MESSAGE_BYTES, t->lease_ms,
				  t->flags);

	if (ret == -TARN_EAMBIGUOUS || ret == -TARN_ESESSION)
		return false;
	if (ret < 0)
		unexpected(p, "init", ret);
	world_open(p, open_queue, close_queue);
	return p->handle != NULL;
}

/* ---- producers ------------------------------------------------------------------------------- */

/* Bytes that follow from the id; the first of its words are id, producer and life. */
static size_t fill(uint64_t words[MESSAGE_BYTES / 8], unsigned id, unsigned number, unsigned life)
{
	size_t count = 3 + id % (MESSAGE_BYTES / 8 - 2);

	words[0] = id;
	words[1] = number;
	words[2] = life;
	for (size_t i = 3; i < count; i++)
		words[i] = (id + 1) * 0x9e3779b97f4a7c15ull * i;
	return count * 8;
}

static bool send_message(struct party *p)
{
	struct world *w = p->region.world;
	struct queue_test *t = w->test;
	uint64_t words[MESSAGE_BYTES / 8];
	unsigned id = t->used;
	struct message *m = &t->messages[id];
	int ret;

	if (t->used == MESSAGES)
		return false;
	t->used++;
	m->outcome = CALLING;
	t->calling[p->number] = id + 1;
	ret = tarn_queue_send(p->handle, words, fill(words, id, p->number, p->life),
			      w->faults ? (uint32_t)(world_random(w) % 500) : 3600000);
	t->calling[p->number] = 0;
	if (ret == 0)
		m->outcome = SENT;
	else if (ret == -TARN_ETIMEOUT || ret == -TARN_ESESSION)
		m->outcome = NOT_SENT;
	else if (ret == -TARN_EAMBIGUOUS)
		m->outcome = MAYBE;
	else
		unexpected(p, "send", ret);
	if (m->outcome == NOT_SENT && m->delivered)
		world_fail(w, "message %u was delivered, and was not sent", id);
	return true;
}

static void produce(struct party *p)
{
	struct world *w = p->region.world;
	struct queue_test *t = w->test;

	if (!begin(p))
		return;
	for (unsigned i = 0; i < t->each && !w->failure[0] && send_message(p); i++)
		if (world_random(w) % 3 == 0)
			party_sleep_ns(p, world_random(w) % 5000000);
}

/* ---- consumers ------------------------------------------------------------------------------- */

static void deliver(struct party *p, const uint64_t *words, size_t bytes, bool last)
{
	struct world *w = p->region.world;
	struct queue_test *t = w->test;
	unsigned id = (unsigned)words[0], number = (unsigned)words[1], life = (unsigned)words[2];
	uint64_t expected[MESSAGE_BYTES / 8];
	struct message *m;
	unsigned *seen;

	if (bytes < 24 || words[0] >= t->used || number >= WORLD_PARTIES || life >= 64 ||
	    fill(expected, id, number, life) != bytes || memcmp(expected, words, bytes) != 0) {
		world_fail(w, "a message is not what was sent");
		return;
	}
	m = &t->messages[id];
	seen = &t->last[last ? 0 : p->number % CONSUMERS][number][life];
	if (m->outcome == NOT_SENT)
		world_fail(w, "message %u was delivered, and was not sent", id);
	if (m->consumed)
		world_fail(w, "message %u was delivered again", id);
	if (!m->delivered && *seen > id + 1)
		world_fail(w, "message %u came after %u", id, *seen - 1);
	if (*seen < id + 1)
		*seen = id + 1;
	m->delivered++;
}

/* 1: a message; 0: none; below: it is over. */
static int receive(struct party *p, uint32_t timeout_ms, bool last)
{
	struct queue_test *t = p->region.world->test;
	uint64_t words[MESSAGE_BYTES / 8];
	size_t bytes;
	int ret;

	t->receiving[p->number] = true;
	ret = tarn_queue_receive(p->handle, words, sizeof(words), timeout_ms, &bytes);
	t->receiving[p->number] = false;
	if (ret == -TARN_ETIMEOUT)
		return 0;
	if (ret == -TARN_ESESSION)
		return 1; /* nothing was received */
	if (ret == 0 || ret == -TARN_EAMBIGUOUS)
		deliver(p, words, bytes, last);
	else
		unexpected(p, "receive", ret);
	if (ret == 0)
		t->messages[words[0] % MESSAGES].consumed++;
	return ret == 0 || ret == -TARN_EAMBIGUOUS ? 1 : -1;
}

/* Somebody else may consume: another consumer, or what a killed one had under way. */
static bool others(const struct world *w)
{
	const struct queue_test *t = w->test;

	return t->consumers > 1 || (w->faults & FAULT_KILL && w->faults & FAULT_LATE);
}

static int peek(struct party *p, uint32_t timeout_ms)
{
	struct world *w = p->region.world;
	struct queue_test *t = w->test;
	uint64_t words[MESSAGE_BYTES / 8], position;
	size_t bytes;
	int ret = tarn_queue_peek(p->handle, words, sizeof(words), timeout_ms, &bytes, &position);

	if (ret == -TARN_ETIMEOUT)
		return 0;
	if (ret == -TARN_ESESSION)
		return 1;
	if (ret < 0) {
		unexpected(p, "peek", ret);
		return -1;
	}
	/* several consumers see the same one; it is theirs when it was consumed */
	if (t->consumers == 1)
		deliver(p, words, bytes, false);
	if (world_random(w) % 4 == 0)
		party_sleep_ns(p, world_random(w) % 2000000);
	ret = tarn_queue_consume(p->handle, position);
	if (ret == 0 && t->consumers > 1)
		deliver(p, words, bytes, false);
	if (ret == 0)
		t->messages[words[0] % MESSAGES].consumed++;
	else if (ret != -TARN_EAMBIGUOUS && ret != -TARN_ESESSION &&
		 !(ret == -TARN_EOVERTAKEN && others(w)))
		unexpected(p, "consume", ret);
	return 1;
}

static bool producers_run(const struct world *w)
{
	const struct queue_test *t = w->test;

	for (unsigned i = 0; i < w->count; i++)
		if (w->parties[i].number >= t->consumers && w->parties[i].running)
			return true;
	return false;
}

static void eat(struct party *p)
{
	struct world *w = p->region.world;
	int ret = 1;

	if (!begin(p))
		return;
	while (!w->failure[0] && ret >= 0) {
		uint32_t timeout_ms = w->faults ? (uint32_t)(world_random(w) % 100) : 99;
		bool more = producers_run(w);

		/* what a killed one had peeked at is delivered again, so that is only for those that know */
		ret = world_random(w) % 2 ? peek(p, timeout_ms) : receive(p, timeout_ms, false);
		if (ret == 0 && !more)
			return;
		if (world_random(w) % 4 == 0)
			party_sleep_ns(p, world_random(w) % 3000000);
	}
}

static void killed(struct party *p)
{
	struct queue_test *t = p->region.world->test;
	unsigned calling = t->calling[p->number];

	if (calling && t->messages[calling - 1].outcome == CALLING)
		t->messages[calling - 1].outcome = MAYBE;
	t->calling[p->number] = 0;
	/* in the call, or in the moment between its end and what this test notes down */
	if (p->number < t->consumers)
		t->may_miss++;
	t->receiving[p->number] = false;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void last(struct party *p)
{
	struct world *w = p->region.world;
	struct queue_test *t = w->test;
	unsigned missing = 0;
	int ret = 1;

	if (!begin(p))
		return;
	/* an empty queue is one in which nothing is pending either */
	while (ret > 0)
		ret = receive(p, 4 * t->lease_ms, true);
	for (unsigned i = 0; i < t->used; i++)
		missing += t->messages[i].outcome == SENT && !t->messages[i].delivered;
	if (missing > t->may_miss)
		world_fail(w, "%u messages are lost, %u may be", missing, t->may_miss);
	/* all slots may have been skipped: then it takes the quarantine until one can be used */
	for (unsigned i = 0; i < 60 && !w->failure[0]; i++) {
		unsigned id = t->used == MESSAGES ? MESSAGES - 1 : t->used;
		uint64_t words[MESSAGE_BYTES / 8];
		size_t bytes = fill(words, id, p->number, p->life), got;

		ret = tarn_queue_send(p->handle, words, bytes, t->lease_ms);
		if (ret == 0)
			ret = tarn_queue_receive(p->handle, words, sizeof(words), t->lease_ms,
						 &got);
		if (ret == 0)
			return;
		if (ret != -TARN_ETIMEOUT)
			unexpected(p, "send in the end", ret);
		ret = tarn_queue_receive(p->handle, words, sizeof(words), 0, &got);
	}
	if (!w->failure[0])
		world_fail(w, "the queue has no slot any more");
}

void sync_queue_schedule(struct world *w, uint64_t seed)
{
	static struct queue_test test;
	struct queue_test *t = &test;

	memset(t, 0, sizeof(*t));
	t->flags = seed / 8 % 3 == 0 ? TARN_QUEUE_SINGLE : 0;
	t->slots = 4u << world_random(w) % 2;
	t->lease_ms = w->faults ? 10 : 1000;
	t->producers = t->flags ? 1 : 2 + (unsigned)(world_random(w) % 2);
	t->consumers = !(w->faults & FAULT_LATE) && world_random(w) % 4 == 0 ? 2 : 1;
	t->each = 12;
	w->test = t;
	/* shorter than the quarantine of 16 leases and more */
	w->stall_ns = t->lease_ms * (world_random(w) % 2 ? 12000000ull : 1000000ull);
	w->late_ns = t->lease_ms * 1000000ull;
	/* and much longer than that */
	w->away_ns = t->lease_ms * 60000000ull;
	w->on_kill = killed;
	w->chaos = true;
	for (unsigned i = 0; i < t->consumers; i++)
		world_add(w, eat, 0);
	for (unsigned i = 0; i < t->producers; i++)
		world_add(w, produce, world_random(w) % 100000);
	world_run(w, 600000000000ull);
	if (!w->failure[0] && !w->faults && w->silent_waits)
		world_fail(w, "%llu times nobody woke a waiter",
			   (unsigned long long)w->silent_waits);
	world_settle(w);
	if (w->failure[0])
		return;
	t->consumers = 1;
	world_add(w, last, 0);
	world_run(w, 60000000000ull);
	world_settle(w);
}
