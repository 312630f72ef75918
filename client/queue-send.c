/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue-send.c - a producer: reserves a position, writes, publishes
 *
 * A position that was reserved and not published in time is skipped by the consumer; a producer finds that out when
 * it publishes, and takes another one. It never writes into a slot that is not free for its position. Runs on the
 * application's thread. Next: queue-receive.c.
 */
#include <errno.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "queue-internal.h"

#define TAIL_OFFSET offsetof(struct queue_memory, tail)

/* A message on its way. */
struct sending {
	const void *data;
	uint64_t bytes;
	uint64_t position;
	uint64_t head[2]; /* checksum and bytes, as they stand in the slot */
	uint64_t consumer_sleeps;
};

/* `sending` at its position: the list of what has to be written, and the CAS that publishes it. */
static void fill(struct tarn_queue *q, struct sending *s, struct tarn_region_op ops[4])
{
	uint64_t slot = queue_slot_offset(q, s->position), lap = queue_lap(q, s->position);

	s->head[0] = queue_checksum(s->position, s->data, s->bytes);
	s->head[1] = s->bytes;
	ops[0] = sync_op_write(slot + offsetof(struct queue_slot, checksum), s->head, 16);
	ops[1] = sync_op_write(slot + offsetof(struct queue_slot, data), s->data, s->bytes);
	ops[2] = sync_op_cas(slot, queue_state(lap, SLOT_FREE), queue_state(lap, SLOT_FULL));
	ops[3] = sync_op_read(q->offset + SYNC_SLEEPS, &s->consumer_sleeps, 8);
}

/* What the slot was when it should have become FULL. 1: it has. 0: the position was skipped: another one. */
static int published(struct tarn_queue *q, const struct sending *s, uint64_t before)
{
	uint64_t lap = queue_lap(q, s->position);

	if (before == queue_state(lap, SLOT_FREE)) {
		sync_wake(q->region, q->offset + SYNC_SLEEPS, s->consumer_sleeps);
		return 1;
	}
	if (before >> 2 < lap || before == queue_state(lap, SLOT_FULL))
		return queue_corrupt(q, s->position, before);
	return 0;
}

/*
 * The connection was lost while it was on its way: the position is closed, and so that is certain which of the
 * two has come first. 1: it was published. 0: it was not, and never will be.
 */
static int close_position(struct tarn_queue *q, const struct sending *s)
{
	uint64_t lap = queue_lap(q, s->position), before = 0;
	int ret = -TARN_EAMBIGUOUS;

	for (unsigned i = 0; ret == -TARN_EAMBIGUOUS && i < SYNC_TRIES; i++)
		ret = tarn_region_cas(q->region, queue_slot_offset(q, s->position),
				      queue_state(lap, SLOT_FREE), queue_state(lap, SLOT_DEAD),
				      &before);
	if (ret == 0 && MUTATED(MUTATION_QUEUE_CLOSE))
		return 0;
	if (ret == 0 &&
	    (before == queue_state(lap, SLOT_FREE) || before == queue_state(lap, SLOT_DEAD)))
		return 0;
	if (ret == 0 &&
	    (before == queue_state(lap, SLOT_FULL) || before == queue_state(lap + 1, SLOT_FREE)))
		return 1;
	return err_set(-TARN_EAMBIGUOUS, "the message may be in the queue or not");
}

/* A position that has no message: 1 if the slot can take one, 0 to pass it over, or an error. */
static int usable(struct tarn_queue *q, uint64_t position, uint64_t state)
{
	uint64_t lap = queue_lap(q, position);

	if (state == queue_state(lap, SLOT_FREE))
		return 1;
	if (queue_is_dead(state, lap))
		return 0;
	/* skipped, and much more: this producer has stood still */
	if (state >> 2 > lap)
		return 0;
	return queue_corrupt(q, position, state);
}

/* 1: full; what is known of the head may be old, so that is looked at first. */
static int full(struct tarn_queue *q)
{
	int ret = 0;

	if (q->tail - q->head >= q->slots)
		ret = queue_look(q);
	return ret < 0 ? ret : q->tail - q->head >= q->slots && !MUTATED(MUTATION_QUEUE_FULL);
}

/* Raises the tail from q->tail by one. 1: done; 0: another one was faster, q->tail is its. */
static int raised(struct tarn_queue *q, uint64_t before)
{
	if (before == q->tail) {
		q->tail++;
		return 1;
	}
	/* of what is found there only queue_look() makes something that is known */
	return queue_look(q);
}

/* 1: *ret_position is this producer's, and its slot is free. 0: the queue is full. */
static int reserve(struct tarn_queue *q, uint64_t *ret_position)
{
	/* each round but the last passes over a dead slot, or another producer has got on */
	for (unsigned round = 0; round < QUEUE_ROUNDS; round++) {
		uint64_t position, state;
		struct tarn_region_op ops[2];
		int ret = full(q);

		if (ret != 0)
			return ret < 0 ? ret : 0;
		position = q->tail;
		ops[0] = sync_op_cas(q->offset + TAIL_OFFSET, position, position + 1);
		ops[1] = sync_op_read(queue_slot_offset(q, position), &state, 8);
		ret = tarn_region_batch(q->region, ops, 2);
		/* reserved without knowing it: it will be skipped */
		if (ret == -TARN_EAMBIGUOUS)
			ret = queue_look(q);
		else if (ret == 0)
			ret = raised(q, ops[0].before);
		if (ret == 1)
			ret = usable(q, position, state);
		*ret_position = position;
		if (ret != 0)
			return ret;
	}
	return 0;
}

static int send_one(struct tarn_queue *q, struct sending *s)
{
	struct tarn_region_op ops[4];
	uint64_t begun_ns = clock_now_ns();
	int ret = reserve(q, &s->position);

	if (ret <= 0)
		return ret;
	/* Who was stopped here does not even begin: what he writes could meet the slot's next use. */
	if (clock_now_ns() > begun_ns + q->lease_ns / 2)
		return close_position(q, s);
	fill(q, s, ops);
	ret = tarn_region_batch(q->region, ops, 4);
	if (ret == -TARN_EAMBIGUOUS)
		return close_position(q, s);
	return ret < 0 ? ret : published(q, s, ops[2].before);
}

/* ---- one producer: reserve and publish in one go --------------------------------------------- */

/*
 * Until the slot at the tail is known to be free. 1: it is. 0: full. A free slot is not enough: a consumer empties it
 * before it moves the head, and who is still there must not find the next lap's message.
 */
static int find_ready(struct tarn_queue *q)
{
	for (unsigned round = 0; round < QUEUE_ROUNDS; round++) {
		struct tarn_region_op pass;
		uint64_t state;
		int ret = q->ready == q->tail ? 0 : queue_look(q);

		if (ret == 0)
			ret = full(q);
		if (ret != 0)
			return ret < 0 ? ret : 0;
		if (q->ready == q->tail)
			return 1;
		ret = tarn_region_read(q->region, queue_slot_offset(q, q->tail), &state, 8);
		if (ret == 0)
			ret = usable(q, q->tail, state);
		if (ret == 1)
			q->ready = q->tail;
		if (ret != 0)
			return ret;
		pass = sync_op_cas(q->offset + TAIL_OFFSET, q->tail, q->tail + 1);
		ret = tarn_region_batch(q->region, &pass, 1);
		if (ret < 0 && ret != -TARN_EAMBIGUOUS)
			return ret;
	}
	return 0;
}

static int send_single(struct tarn_queue *q, struct sending *s)
{
	struct tarn_region_op ops[6];
	uint64_t next;
	int ret = find_ready(q);

	if (ret <= 0)
		return ret;
	s->position = q->tail;
	q->ready = QUEUE_UNKNOWN;
	ops[0] = sync_op_cas(q->offset + TAIL_OFFSET, s->position, s->position + 1);
	fill(q, s, ops + 1);
	ops[5] = sync_op_read(queue_slot_offset(q, s->position + 1), &next, 8);
	ret = tarn_region_batch(q->region, ops, 6);
	if (ret == -TARN_EAMBIGUOUS)
		return close_position(q, s);
	if (ret < 0)
		return ret;
	if (ops[0].before != s->position)
		return err_set(-TARN_EOVERTAKEN, "another producer sends to this queue, which is "
						 "made for one: the message may "
						 "be in it or not");
	q->tail = s->position + 1;
	if (next == queue_state(queue_lap(q, q->tail), SLOT_FREE))
		q->ready = q->tail;
	return published(q, s, ops[3].before);
}

static int check_message(const struct tarn_queue *q, const void *data, size_t bytes)
{
	int ret = queue_check(q);

	if (ret == 0 && !data && bytes)
		ret = err_set(-EINVAL, "data is NULL but has %zu bytes", bytes);
	if (ret == 0 && bytes > q->message_bytes)
		ret = err_set(-TARN_EVALUESIZE,
			      "the message has %zu bytes: this queue takes up to %u", bytes,
			      q->message_bytes);
	return ret;
}

int tarn_queue_send(struct tarn_queue *queue, const void *data, size_t bytes, uint32_t timeout_ms)
{
	struct sync_wait wait = {.what = "the queue is full"};
	struct sending s = {.data = data ? data : "", .bytes = bytes};
	int ret = check_message(queue, data, bytes);

	if (ret < 0)
		return ret;
	wait.region = queue->region;
	wait.sleeps_offset = queue->offset + SYNC_SLEEPS_SECOND;
	wait.sequence = &queue->sequence;
	wait.random = &queue->random;
	ret = sync_wait_begin(&wait, timeout_ms);
	while (ret == 0) {
		ret = queue->single ? send_single(queue, &s) : send_one(queue, &s);
		if (ret == 0)
			ret = sync_pause(&wait);
	}
	return ret < 0 ? ret : 0;
}
