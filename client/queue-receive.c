/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue-receive.c - a consumer: finds the next message, skips what was not published in time, consumes
 *
 * To consume is a CAS of the slot; the head follows. Whoever finds the head behind the slots moves it on, so a
 * consumer may be killed at any step. A call is handlers (sync-call.c). Runs on the thread of the session. Next:
 * docs/sync.md.
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

static enum sync_want moved(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->ops[q->with_slot].before != q->r.head)
		return queue_look(call);
	q->head = q->r.head + 1;
	if (q->tail < q->head)
		q->tail = q->head;
	return sync_back(call, 0);
}

static enum sync_want move_tried(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status < 0)
		return sync_back(call, call->status);
	q->before = call->ops[0].before;
	return sync_wake(call, q->offset + SYNC_SLEEPS_SECOND, moved);
}

/*
 * Moves the head on by one, if no other one has: a part of a call, for sync_sub(); after a CAS of the slot, if
 * queue->with_slot: it is in ops[0], and what it finds in queue->before.
 */
static enum sync_want move_head(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	size_t count = q->with_slot;

	q->r.head = q->head;
	call->ops[count++] = sync_op_cas(q->offset + HEAD_OFFSET, q->head, q->head + 1);
	call->ops[count++] = sync_op_read(q->offset + SYNC_SLEEPS_SECOND, &call->sleeps, 8);
	return sync_access(call, count, move_tried);
}

static enum sync_want move_with_slot(struct tarn_queue *q, struct tarn_region_op slot,
				     sync_handler *back)
{
	q->with_slot = true;
	q->call.ops[0] = slot;
	return sync_sub(&q->call, move_head, back);
}

static enum sync_want move_alone(struct tarn_queue *q, sync_handler *back)
{
	q->with_slot = false;
	return sync_sub(&q->call, move_head, back);
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

/* ---- a slot without a message ---------------------------------------------------------------- */

static sync_handler find, find_again;

/* What was tried may have worked or not: the slot says it. */
static enum sync_want look_on(struct sync_call *call)
{
	if (call->status < 0 && call->status != -TARN_EAMBIGUOUS)
		return sync_end(call, call->status);
	return find_again(call);
}

static enum sync_want look_on_or_end(struct sync_call *call)
{
	return call->status < 0 ? sync_end(call, call->status) : find_again(call);
}

/* The position has no message, and is reserved: its slot is dead. It is marked with this lap, or free again. */
static enum sync_want pass(struct tarn_queue *q)
{
	uint64_t lap = queue_lap(q, q->head), next = queue_state(lap, SLOT_DEAD);

	if (quarantine_over(q, q->head, q->r.state, next))
		next = queue_state(lap + 1, SLOT_FREE);
	return move_with_slot(q, sync_op_cas(queue_slot_offset(q, q->head), q->r.state, next),
			      look_on);
}

/* The position is reserved and not published. In time still, or it is skipped, or was published meanwhile. */
static enum sync_want pending(struct tarn_queue *q)
{
	uint64_t lap = queue_lap(q, q->head), now = clock_now_ns(), patience = patience_ns(q);

	if (q->pending != q->head) {
		q->pending = q->head;
		q->pending_ns = now;
	}
	q->call.due_ns = q->pending_ns + patience;
	if (now <= q->pending_ns + patience)
		return sync_pause(&q->call, find);
	if (MUTATED(MUTATION_QUEUE_SKIP))
		return move_alone(q, look_on_or_end);
	q->call.ops[0] = sync_op_cas(queue_slot_offset(q, q->head), queue_state(lap, SLOT_FREE),
				     queue_state(lap, SLOT_DEAD));
	return sync_access(&q->call, 1, look_on);
}

/* A slot that is free for the head's position, or dead, and the head and tail after that. */
static enum sync_want no_message(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	if (q->head != q->r.head)
		return find_again(call);
	if (q->tail == q->head)
		return sync_pause(call, find);
	return (q->r.state & 3) == SLOT_FREE ? pending(q) : pass(q);
}

/* ---- consume --------------------------------------------------------------------------------- */

static sync_handler consume_tried;

static enum sync_want consume_try(struct tarn_queue *q)
{
	uint64_t lap = queue_lap(q, q->r.position);

	q->before = QUEUE_UNKNOWN;
	return move_with_slot(q,
			      sync_op_cas(queue_slot_offset(q, q->r.position),
					  queue_state(lap, SLOT_FULL),
					  queue_state(lap + 1, SLOT_FREE)),
			      consume_tried);
}

/* What the CAS has found is not known. */
static enum sync_want consume_failed(struct tarn_queue *q)
{
	int ret = q->call.status;

	if (ret == -TARN_EAMBIGUOUS)
		q->ambiguous = q->r.position;
	if (ret == -TARN_EAMBIGUOUS && ++q->tries < SYNC_TRIES)
		return consume_try(q);
	/* this try has done nothing, but an earlier one may have */
	if (q->ambiguous == q->r.position)
		ret = err_set(-TARN_EAMBIGUOUS, "message %llu may be consumed or not",
			      (unsigned long long)q->r.position);
	return sync_back(&q->call, ret);
}

/*
 * After what is ambiguous once more. The slot was full, and has left that state only by being consumed: if it is
 * another one then, that was this consumer. Whether the head could be moved is of no matter then.
 */
static enum sync_want consume_tried(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t position = q->r.position;

	if (q->before == QUEUE_UNKNOWN && call->status < 0)
		return consume_failed(q);
	if (q->before == queue_state(queue_lap(q, position), SLOT_FULL) ||
	    MUTATED(MUTATION_QUEUE_TAKE) || q->ambiguous == position)
		return sync_back(call, 0);
	return sync_back(call, err_set(-TARN_EOVERTAKEN, "message %llu was consumed by another one",
				       (unsigned long long)position));
}

/* queue->r.position: a part of a call, for sync_sub(). */
static enum sync_want consume(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (q->r.position != q->head)
		return sync_back(call,
				 err_set(-TARN_EOVERTAKEN, "message %llu was consumed already",
					 (unsigned long long)q->r.position));
	q->tries = 0;
	return consume_try(q);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool whole(const struct tarn_queue *q)
{
	return q->slot->bytes <= q->message_bytes &&
	       q->slot->checksum == queue_checksum(q->head, q->slot->data, q->slot->bytes);
}

static enum sync_want read_slot(struct tarn_queue *q, uint64_t bytes, sync_handler *next)
{
	q->call.ops[0] = sync_op_read(queue_slot_offset(q, q->head), q->slot, bytes);
	return sync_access(&q->call, 1, next);
}

/* Damaged messages are consumed, so that the queue goes on. */
static enum sync_want dropped(struct sync_call *call)
{
	if (call->status == -TARN_EOVERTAKEN)
		return find_again(call);
	/* what is ambiguous: it is dropped now, or next time */
	if (call->status < 0 && call->status != -TARN_EAMBIGUOUS)
		return sync_end(call, call->status);
	return sync_end(call, err_set(-TARN_ECORRUPT, "message %llu was damaged, and is dropped",
				      (unsigned long long)queue_of(call)->r.position));
}

/* All of the slot, which was full before it was read. */
static enum sync_want message_read(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	/* it has changed */
	if (q->slot->state != q->r.state)
		return find_again(call);
	if (whole(q))
		return q->r.found(call);
	q->r.position = q->head;
	return sync_sub(call, consume, dropped);
}

/* The slot is full, and its beginning was read, perhaps before it was written. */
static enum sync_want message(struct tarn_queue *q, uint64_t first_bytes)
{
	if (q->slot->bytes <= first_bytes - sizeof(struct queue_slot) && whole(q))
		return q->r.found(&q->call);
	if (MUTATED(MUTATION_QUEUE_REREAD))
		return message_read(&q->call);
	/* it was full before this read begins: everything of the message is there */
	return read_slot(q, q->stride, message_read);
}

/* The slot is of no state that goes with the head: the head has to be another one by now. */
static enum sync_want odd(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status == 0 && q->head == q->r.head)
		return sync_end(call, queue_corrupt(q, q->head, q->r.state));
	return look_on_or_end(call);
}

static uint64_t first_bytes(const struct tarn_queue *q)
{
	return q->stride < FIRST_BYTES ? q->stride : FIRST_BYTES;
}

static enum sync_want seen(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t lap = queue_lap(q, q->head), state;

	if (call->status < 0)
		return sync_end(call, call->status);
	q->r.head = q->head;
	q->r.state = state = q->slot->state;
	if (state == queue_state(lap, SLOT_FULL))
		return message(q, first_bytes(q));
	/* consumed, or what would be: by one who was killed before the head was moved */
	if (state == queue_state(lap + 1, SLOT_FREE))
		return move_alone(q, look_on);
	if (state == queue_state(lap, SLOT_FREE) || queue_is_dead(state, lap))
		return sync_sub(call, queue_look, no_message);
	return sync_sub(call, queue_look, odd);
}

/* Each round but the last moves the head on, or another consumer does. */
static enum sync_want find_again(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (q->round++ == QUEUE_ROUNDS)
		return sync_pause(call, find);
	return read_slot(q, first_bytes(q), seen);
}

/* Waits for the message of the head's position, which comes into queue->slot: then queue->r.found. */
static enum sync_want find(struct sync_call *call)
{
	call->due_ns = 0;
	queue_of(call)->round = 0;
	return find_again(call);
}

/* The call was begun, so what was peeked at before is none of it any more. */
static enum sync_want find_first(struct sync_call *call)
{
	queue_of(call)->peeked = QUEUE_UNKNOWN;
	return find(call);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int begin(struct tarn_queue *q, void *buffer, size_t buffer_bytes, size_t *ret_bytes,
		 uint32_t timeout_ms, sync_handler *found)
{
	int ret = queue_check(q);

	if (ret == 0 && ((!buffer && buffer_bytes) || !ret_bytes))
		ret = err_set(-EINVAL, "buffer and ret_bytes must not be NULL");
	if (ret < 0)
		return ret;
	q->r = (struct receiving){.buffer = buffer,
				  .buffer_bytes = buffer_bytes,
				  .ret_bytes = ret_bytes,
				  .found = found};
	ret = sync_wait_begin(&q->call, timeout_ms, q->offset + SYNC_SLEEPS, "the queue is empty");
	if (ret == 0)
		sync_begin(&q->call, find_first);
	return ret;
}

/* The message in q->slot; its length also if it does not fit. */
static int copy_out(const struct tarn_queue *q)
{
	const struct receiving *r = &q->r;

	*r->ret_bytes = q->slot->bytes;
	if (q->slot->bytes > r->buffer_bytes)
		return err_set(-TARN_ETOOSMALL, "the message has %llu bytes, the buffer %zu",
			       (unsigned long long)q->slot->bytes, r->buffer_bytes);
	if (q->slot->bytes)
		memcpy(r->buffer, q->slot->data, q->slot->bytes);
	return 0;
}

static enum sync_want peeked(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	int ret = copy_out(q);

	if (ret < 0)
		return sync_end(call, ret);
	q->peeked = q->head;
	*q->r.ret_position = q->head;
	return sync_end(call, 0);
}

int queue_peek_begin(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
		     uint32_t timeout_ms, size_t *ret_bytes, uint64_t *ret_position)
{
	int ret = begin(queue, buffer, buffer_bytes, ret_bytes, timeout_ms, peeked);

	if (ret == 0 && !ret_position)
		ret = err_set(-EINVAL, "ret_position must not be NULL");
	if (ret == 0)
		queue->r.ret_position = ret_position;
	return ret;
}

int tarn_queue_peek(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
		    uint32_t timeout_ms, size_t *ret_bytes, uint64_t *ret_position)
{
	int ret =
		queue_peek_begin(queue, buffer, buffer_bytes, timeout_ms, ret_bytes, ret_position);

	return ret < 0 ? ret : sync_run(&queue->call);
}

static enum sync_want consumed(struct sync_call *call)
{
	if (call->status == 0 || call->status == -TARN_EOVERTAKEN)
		queue_of(call)->peeked = QUEUE_UNKNOWN;
	return sync_end(call, call->status);
}

static enum sync_want consume_peeked(struct sync_call *call)
{
	return sync_sub(call, consume, consumed);
}

int queue_consume_begin(struct tarn_queue *queue, uint64_t position)
{
	int ret = queue_check(queue);

	if (ret == 0 && (position != queue->peeked || position == QUEUE_UNKNOWN))
		ret = err_set(-EINVAL, "position %llu is not that of the last tarn_queue_peek()",
			      (unsigned long long)position);
	if (ret < 0)
		return ret;
	queue->r.position = position;
	sync_begin(&queue->call, consume_peeked);
	return 0;
}

int tarn_queue_consume(struct tarn_queue *queue, uint64_t position)
{
	int ret = queue_consume_begin(queue, position);

	return ret < 0 ? ret : sync_run(&queue->call);
}

static enum sync_want received(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status != -TARN_EOVERTAKEN)
		return sync_end(call, call->status);
	if (++q->r.taken < QUEUE_ROUNDS)
		return find(call);
	return sync_end(call,
			err_set(-TARN_ETIMEOUT, "other consumers have taken %u messages first",
				QUEUE_ROUNDS));
}

static enum sync_want receive(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	int ret = copy_out(q);

	if (ret < 0)
		return sync_end(call, ret);
	q->r.position = q->head;
	return sync_sub(call, consume, received);
}

int queue_receive_begin(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
			uint32_t timeout_ms, size_t *ret_bytes)
{
	return begin(queue, buffer, buffer_bytes, ret_bytes, timeout_ms, receive);
}

int tarn_queue_receive(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
		       uint32_t timeout_ms, size_t *ret_bytes)
{
	int ret = queue_receive_begin(queue, buffer, buffer_bytes, timeout_ms, ret_bytes);

	return ret < 0 ? ret : sync_run(&queue->call);
}
