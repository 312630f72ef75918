/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue-receive.c - a consumer: finds the next message, skips what was not published in time, consumes
 *
 * To consume is a CAS of the slot; the head follows. Whoever finds the head behind the slots moves it on, so a
 * consumer may be killed at any step. Runs on the application's thread. Next: docs/sync.md.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "queue-internal.h"

#define HEAD_OFFSET offsetof(struct queue_memory, head)
/* Of a slot so much is read at once; the rest when it is known that there is more. */
#define FIRST_BYTES 4096u

static uint64_t patience_ns(const struct tarn_queue *q)
{
	return sync_patience_ns(q->lease_ns);
}

/* ---- the head, and slots without a message --------------------------------------------------- */

/* Moves the head on by one, if no other one has, after a CAS of the slot if that is not 0. *ret_before: of that CAS. */
static int move_head(struct tarn_queue *q, const struct tarn_region_op *slot, uint64_t *ret_before)
{
	uint64_t position = q->head, sleeps = 0;
	struct tarn_region_op ops[3];
	size_t count = 0;
	int ret;

	if (slot)
		ops[count++] = *slot;
	ops[count++] = sync_op_cas(q->offset + HEAD_OFFSET, position, position + 1);
	ops[count++] = sync_op_read(q->offset + SYNC_SLEEPS_SECOND, &sleeps, 8);
	ret = tarn_region_batch(q->region, ops, count);
	if (ret < 0)
		return ret;
	sync_wake(q->region, q->offset + SYNC_SLEEPS_SECOND, sleeps);
	if (ret_before)
		*ret_before = ops[0].before;
	if (ops[count - 2].before != position)
		return queue_look(q);
	q->head = position + 1;
	if (q->tail < q->head)
		q->tail = q->head;
	return 0;
}

static struct queue_dead *dead_entry(struct tarn_queue *q, uint64_t slot)
{
	struct queue_dead *unused = NULL;

	for (unsigned i = 0; i < QUEUE_DEAD_KNOWN; i++) {
		if (q->dead[i].since_ns && q->dead[i].slot == slot)
			return &q->dead[i];
		if (!q->dead[i].since_ns)
			unused = &q->dead[i];
	}
	if (unused)
		*unused = (struct queue_dead){.slot = slot, .state = QUEUE_UNKNOWN, .since_ns = 1};
	return unused;
}

/*
 * Has the slot been dead for so long that its producer writes no more? `state` is what it is now, *next what it will
 * be as dead in this lap: from pass to pass it has to be what this consumer has left.
 */
static bool quarantine_over(struct tarn_queue *q, uint64_t position, uint64_t state, uint64_t next)
{
	struct queue_dead *dead = dead_entry(q, position & (q->slots - 1));
	uint64_t now = clock_now_ns();

	if (!dead)
		return false;
	if (dead->state != state)
		dead->since_ns = now;
	dead->state = next;
	if (state == next || (now <= dead->since_ns + QUEUE_QUARANTINE * patience_ns(q) &&
			      !MUTATED(MUTATION_QUEUE_QUARANTINE)))
		return false;
	dead->since_ns = 0;
	return true;
}

/* The position has no message, and is reserved: its slot is dead. It is marked with this lap, or free again. */
static int pass(struct tarn_queue *q, uint64_t state)
{
	uint64_t lap = queue_lap(q, q->head), next = queue_state(lap, SLOT_DEAD);
	struct tarn_region_op slot;

	if (quarantine_over(q, q->head, state, next))
		next = queue_state(lap + 1, SLOT_FREE);
	slot = sync_op_cas(queue_slot_offset(q, q->head), state, next);
	return move_head(q, &slot, NULL);
}

/* The position is reserved and not published. 0: in time still. 1: skipped, or it was published meanwhile. */
static int pending(struct tarn_queue *q, uint64_t *ret_due_ns)
{
	uint64_t lap = queue_lap(q, q->head), now = clock_now_ns(), patience = patience_ns(q);
	int ret;

	if (q->pending != q->head) {
		q->pending = q->head;
		q->pending_ns = now;
	}
	*ret_due_ns = q->pending_ns + patience;
	if (now <= q->pending_ns + patience)
		return 0;
	if (MUTATED(MUTATION_QUEUE_SKIP))
		return move_head(q, NULL, NULL) < 0 ? -1 : 1;
	ret = tarn_region_cas(q->region, queue_slot_offset(q, q->head), queue_state(lap, SLOT_FREE),
			      queue_state(lap, SLOT_DEAD), NULL);
	return ret < 0 && ret != -TARN_EAMBIGUOUS ? ret : 1;
}

/* A slot that is free for the head's position, or dead. 1: look again; 0: nothing to receive yet. */
static int no_message(struct tarn_queue *q, uint64_t state, uint64_t *ret_due_ns)
{
	uint64_t head = q->head;
	int ret = queue_look(q);

	if (ret < 0)
		return ret;
	if (q->head != head)
		return 1;
	if (q->tail == head)
		return 0;
	if ((state & 3) == SLOT_FREE)
		return pending(q, ret_due_ns);
	ret = pass(q, state);
	return ret < 0 && ret != -TARN_EAMBIGUOUS ? ret : 1;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool whole(const struct tarn_queue *q)
{
	return q->slot->bytes <= q->message_bytes &&
	       q->slot->checksum == queue_checksum(q->head, q->slot->data, q->slot->bytes);
}

static int read_slot(struct tarn_queue *q, uint64_t from, uint64_t to)
{
	return tarn_region_read(q->region, queue_slot_offset(q, q->head) + from,
				(uint8_t *)q->slot + from, to - from);
}

static int consume(struct tarn_queue *q, uint64_t position);

/*
 * The slot is full, and its beginning was read, perhaps before it was written. 1: the message is in q->slot.
 * 0: the slot has changed, look again. Damaged messages are consumed, so that the queue goes on.
 */
static int check_message(struct tarn_queue *q, uint64_t first_bytes)
{
	uint64_t state = q->slot->state, position = q->head;
	int ret;

	if (q->slot->bytes <= first_bytes - sizeof(struct queue_slot) && whole(q))
		return 1;
	/* it was full before this read begins: everything of the message is there */
	ret = MUTATED(MUTATION_QUEUE_REREAD) ? 0 : read_slot(q, 0, q->stride);
	if (ret < 0 || q->slot->state != state)
		return ret;
	if (whole(q))
		return 1;
	ret = consume(q, position);
	if (ret < 0)
		return ret == -TARN_EOVERTAKEN ? 0 : ret;
	return err_set(-TARN_ECORRUPT, "message %llu was damaged, and is dropped",
		       (unsigned long long)position);
}

/* 1: the message of the head's position is in q->slot. 0: none there; *ret_due_ns: when to look again. */
static int find(struct tarn_queue *q, uint64_t *ret_due_ns)
{
	uint64_t first = q->stride < FIRST_BYTES ? q->stride : FIRST_BYTES;

	*ret_due_ns = 0;
	/* each round but the last moves the head on, or another consumer does */
	for (unsigned round = 0; round < QUEUE_ROUNDS; round++) {
		uint64_t lap = queue_lap(q, q->head), state, head = q->head;
		int ret = read_slot(q, 0, first);

		if (ret < 0)
			return ret;
		state = q->slot->state;
		if (state == queue_state(lap, SLOT_FULL)) {
			ret = check_message(q, first);
			if (ret != 0)
				return ret;
		} else if (state == queue_state(lap + 1, SLOT_FREE)) {
			/* consumed, or what would be: by one who was killed before the head was moved */
			ret = move_head(q, NULL, NULL);
			if (ret < 0 && ret != -TARN_EAMBIGUOUS)
				return ret;
		} else if (state == queue_state(lap, SLOT_FREE) || queue_is_dead(state, lap)) {
			ret = no_message(q, state, ret_due_ns);
			if (ret <= 0)
				return ret;
		} else {
			ret = queue_look(q);
			if (ret < 0)
				return ret;
			if (q->head == head)
				return queue_corrupt(q, head, state);
		}
	}
	return 0;
}

/*
 * After what is ambiguous once more. The slot was full, and has left that state only by being consumed: if it is
 * another one then, that was this consumer.
 */
static int consume(struct tarn_queue *q, uint64_t position)
{
	uint64_t lap = queue_lap(q, position), before = 0;
	struct tarn_region_op slot =
		sync_op_cas(queue_slot_offset(q, position), queue_state(lap, SLOT_FULL),
			    queue_state(lap + 1, SLOT_FREE));
	int ret = -TARN_EAMBIGUOUS;

	if (position != q->head)
		return err_set(-TARN_EOVERTAKEN, "message %llu was consumed already",
			       (unsigned long long)position);
	for (unsigned i = 0; ret == -TARN_EAMBIGUOUS && i < SYNC_TRIES; i++) {
		ret = move_head(q, &slot, &before);
		if (ret == -TARN_EAMBIGUOUS)
			q->ambiguous = position;
	}
	if (ret < 0)
		return ret;
	if (before == queue_state(lap, SLOT_FULL) || MUTATED(MUTATION_QUEUE_TAKE) ||
	    q->ambiguous == position)
		return 0;
	return err_set(-TARN_EOVERTAKEN, "message %llu was consumed by another one",
		       (unsigned long long)position);
}

/* Waits for a message, into q->slot. */
static int wait_for_message(struct tarn_queue *q, struct sync_wait *wait)
{
	int ret = 0;

	while (ret == 0) {
		ret = find(q, &wait->due_ns);
		if (ret == 0)
			ret = sync_pause(wait);
	}
	return ret < 0 ? ret : 0;
}

static int begin(struct tarn_queue *q, struct sync_wait *wait, const void *buffer,
		 size_t buffer_bytes, const size_t *ret_bytes, uint32_t timeout_ms)
{
	int ret = queue_check(q);

	if (ret == 0 && ((!buffer && buffer_bytes) || !ret_bytes))
		ret = err_set(-EINVAL, "buffer and ret_bytes must not be NULL");
	if (ret < 0)
		return ret;
	q->peeked = QUEUE_UNKNOWN;
	*wait = (struct sync_wait){.what = "the queue is empty",
				   .region = q->region,
				   .sleeps_offset = q->offset + SYNC_SLEEPS,
				   .sequence = &q->sequence,
				   .random = &q->random};
	return sync_wait_begin(wait, timeout_ms);
}

/* The message in q->slot; its length also if it does not fit. */
static int copy_out(const struct tarn_queue *q, void *buffer, size_t buffer_bytes,
		    size_t *ret_bytes)
{
	*ret_bytes = q->slot->bytes;
	if (q->slot->bytes > buffer_bytes)
		return err_set(-TARN_ETOOSMALL, "the message has %llu bytes, the buffer %zu",
			       (unsigned long long)q->slot->bytes, buffer_bytes);
	if (q->slot->bytes)
		memcpy(buffer, q->slot->data, q->slot->bytes);
	return 0;
}

int tarn_queue_peek(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
		    uint32_t timeout_ms, size_t *ret_bytes, uint64_t *ret_position)
{
	struct sync_wait wait;
	int ret = begin(queue, &wait, buffer, buffer_bytes, ret_bytes, timeout_ms);

	if (ret == 0 && !ret_position)
		ret = err_set(-EINVAL, "ret_position must not be NULL");
	if (ret == 0)
		ret = wait_for_message(queue, &wait);
	if (ret == 0)
		ret = copy_out(queue, buffer, buffer_bytes, ret_bytes);
	if (ret < 0)
		return ret;
	queue->peeked = queue->head;
	*ret_position = queue->head;
	return 0;
}

int tarn_queue_consume(struct tarn_queue *queue, uint64_t position)
{
	int ret = queue_check(queue);

	if (ret == 0 && (position != queue->peeked || position == QUEUE_UNKNOWN))
		ret = err_set(-EINVAL, "position %llu is not that of the last tarn_queue_peek()",
			      (unsigned long long)position);
	if (ret == 0)
		ret = consume(queue, position);
	if (ret == 0 || ret == -TARN_EOVERTAKEN)
		queue->peeked = QUEUE_UNKNOWN;
	return ret;
}

int tarn_queue_receive(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
		       uint32_t timeout_ms, size_t *ret_bytes)
{
	struct sync_wait wait;
	int ret = begin(queue, &wait, buffer, buffer_bytes, ret_bytes, timeout_ms);

	if (ret < 0)
		return ret;
	for (unsigned round = 0; round < QUEUE_ROUNDS; round++) {
		ret = wait_for_message(queue, &wait);
		if (ret == 0)
			ret = copy_out(queue, buffer, buffer_bytes, ret_bytes);
		if (ret == 0)
			ret = consume(queue, queue->head);
		if (ret != -TARN_EOVERTAKEN)
			return ret;
	}
	return err_set(-TARN_ETIMEOUT, "other consumers have taken %u messages first",
		       QUEUE_ROUNDS);
}
