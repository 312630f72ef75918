/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue-send.c - a producer: reserves a position, writes, publishes
 *
 * A position that was reserved and not published in time is skipped by the consumer; a producer finds that out when
 * it publishes, and takes another one. It never writes into a slot that is not free for its position. A call is handlers
 * (sync-call.c). Runs on the thread of the session. Next: queue-receive.c.
 */
#include <errno.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "queue-internal.h"

#define TAIL_OFFSET offsetof(struct queue_memory, tail)

static sync_handler attempt, reserve, ready;

/* `sending` at its position: the list of what has to be written, and the CAS that publishes it. */
static void fill(struct tarn_queue *q, struct tarn_region_op ops[4])
{
	struct sending *s = &q->s;
	uint64_t slot = queue_slot_offset(q, s->position), lap = queue_lap(q, s->position);

	s->head[0] = queue_checksum(s->position, s->data, s->bytes);
	s->head[1] = s->bytes;
	ops[0] = sync_op_write(slot + offsetof(struct queue_slot, checksum), s->head, 16);
	ops[1] = sync_op_write(slot + offsetof(struct queue_slot, data), s->data, s->bytes);
	ops[2] = sync_op_cas(slot, queue_state(lap, SLOT_FREE), queue_state(lap, SLOT_FULL));
	ops[3] = sync_op_read(q->offset + SYNC_SLEEPS, &q->call.sleeps, 8);
}

static enum sync_want sent(struct sync_call *call)
{
	return sync_end(call, 0);
}

/* What the slot was when it should have become FULL. Else the position was skipped: another one. */
static enum sync_want published_at(struct tarn_queue *q, uint64_t before)
{
	uint64_t lap = queue_lap(q, q->s.position);

	if (before == queue_state(lap, SLOT_FREE))
		return sync_wake(&q->call, q->offset + SYNC_SLEEPS, sent);
	if (before >> 2 < lap || before == queue_state(lap, SLOT_FULL))
		return sync_end(&q->call, queue_corrupt(q, q->s.position, before));
	return sync_pause(&q->call, attempt);
}

/* ---- a position is closed -------------------------------------------------------------------- */

static sync_handler close_tried;

static enum sync_want close_try(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t lap = queue_lap(q, q->s.position);

	call->ops[0] = sync_op_cas(queue_slot_offset(q, q->s.position), queue_state(lap, SLOT_FREE),
				   queue_state(lap, SLOT_DEAD));
	return sync_access(call, 1, close_tried);
}

/*
 * The connection was lost while it was on its way: the position is closed, and so that is certain which of the
 * two has come first. Either it was published, or it was not and never will be.
 */
static enum sync_want close_position(struct tarn_queue *q)
{
	q->tries = 0;
	return close_try(&q->call);
}

static enum sync_want close_tried(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t lap = queue_lap(q, q->s.position), before = call->ops[0].before;

	if (call->status == -TARN_EAMBIGUOUS && ++q->tries < SYNC_TRIES)
		return close_try(call);
	if (call->status == 0 &&
	    (MUTATED(MUTATION_QUEUE_CLOSE) || before == queue_state(lap, SLOT_FREE) ||
	     before == queue_state(lap, SLOT_DEAD)))
		return sync_pause(call, attempt);
	if (call->status == 0 &&
	    (before == queue_state(lap, SLOT_FULL) || before == queue_state(lap + 1, SLOT_FREE)))
		return sync_end(call, 0);
	q->unclosed = q->s.position;
	return sync_end(call, err_set(-TARN_EAMBIGUOUS, "the message may be in the queue or not"));
}

/* Nothing of the message was written, and nothing will be: whatever becomes of the position, another one. */
static enum sync_want given_up(struct sync_call *call)
{
	if (call->status < 0 && call->status != -TARN_EAMBIGUOUS)
		return sync_end(call, call->status);
	return sync_pause(call, attempt);
}

static enum sync_want give_up_position(struct tarn_queue *q)
{
	enum sync_want want = close_try(&q->call);

	q->call.next = given_up;
	return want;
}

static sync_handler left_closed;

/*
 * A position of an earlier call, which had no connection any more. Where there is one producer the tail may still be
 * there, and what that call had under way would destroy what this one writes.
 */
static enum sync_want close_left(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t lap = queue_lap(q, q->unclosed);

	call->ops[0] = sync_op_cas(queue_slot_offset(q, q->unclosed), queue_state(lap, SLOT_FREE),
				   queue_state(lap, SLOT_DEAD));
	return sync_access(call, 1, left_closed);
}

static enum sync_want left_closed(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status == -TARN_EAMBIGUOUS && ++q->tries < SYNC_TRIES)
		return close_left(call);
	/* of this call's message nothing is ambiguous */
	if (call->status == -TARN_EAMBIGUOUS)
		return sync_end(call, err_set(-TARN_ESESSION,
					      "the connection is lost again and again"));
	if (call->status < 0)
		return sync_end(call, call->status);
	q->unclosed = q->ready = QUEUE_UNKNOWN;
	return attempt(call);
}

/* ---- several producers: reserve, then publish ------------------------------------------------ */

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

static bool full(const struct tarn_queue *q)
{
	return q->tail - q->head >= q->slots;
}

/* Goes on with `known`; what is known of the head may be old, so that is looked at first if it says full. */
static enum sync_want look_if_full(struct tarn_queue *q, sync_handler *known)
{
	if (full(q))
		return sync_sub(&q->call, queue_look, known);
	q->call.status = 0;
	return known(&q->call);
}

static enum sync_want written(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status == SYNC_LATE)
		return give_up_position(q);
	if (call->status == -TARN_EAMBIGUOUS)
		return close_position(q);
	return call->status < 0 ? sync_end(call, call->status)
				: published_at(q, call->ops[2].before);
}

/* The position is this producer's, and its slot is free. */
static enum sync_want reserved(struct tarn_queue *q)
{
	uint64_t until_ns = q->s.begun_ns + q->lease_ns / 2;

	/*
	 * Who was stopped here, or has no connection until then, does not even begin: what he writes could meet the slot's
	 * next use.
	 */
	if (clock_now_ns() > until_ns)
		return give_up_position(q);
	fill(q, q->call.ops);
	return sync_access_until(&q->call, 4, written,
				 MUTATED(MUTATION_QUEUE_LATE) ? 0 : until_ns);
}

/* Of what is found in place of the tail only queue_look() makes something that is known. */
static enum sync_want reserve_looked(struct sync_call *call)
{
	return call->status < 0 ? sync_end(call, call->status) : reserve(call);
}

static enum sync_want reserve_tried(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	int ret = call->status;

	/* ambiguous: reserved without knowing it, it will be skipped; or another one was faster */
	if (ret == -TARN_EAMBIGUOUS || (ret == 0 && call->ops[0].before != q->tail))
		return sync_sub(call, queue_look, reserve_looked);
	if (ret < 0)
		return sync_end(call, ret);
	q->tail++;
	ret = usable(q, q->s.position, q->s.state);
	if (ret < 0)
		return sync_end(call, ret);
	return ret == 1 ? reserved(q) : reserve(call);
}

static enum sync_want reserve_known(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	if (full(q) && !MUTATED(MUTATION_QUEUE_FULL))
		return sync_pause(call, attempt);
	q->s.position = q->tail;
	call->ops[0] = sync_op_cas(q->offset + TAIL_OFFSET, q->tail, q->tail + 1);
	call->ops[1] = sync_op_read(queue_slot_offset(q, q->tail), &q->s.state, 8);
	return sync_access(call, 2, reserve_tried);
}

/* Each round but the last passes over a dead slot, or another producer has got on. */
static enum sync_want reserve(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (q->round++ == QUEUE_ROUNDS)
		return sync_pause(call, attempt);
	return look_if_full(q, reserve_known);
}

/* ---- one producer: reserve and publish in one go --------------------------------------------- */

static enum sync_want single_written(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status == -TARN_EAMBIGUOUS)
		return close_position(q);
	if (call->status < 0)
		return sync_end(call, call->status);
	if (call->ops[0].before != q->s.position)
		return sync_end(call, err_set(-TARN_EOVERTAKEN,
					      "another producer sends to this queue, which is made "
					      "for one: the message may be in it or not"));
	q->tail = q->s.position + 1;
	if (q->s.state == queue_state(queue_lap(q, q->tail), SLOT_FREE))
		q->ready = q->tail;
	return published_at(q, call->ops[3].before);
}

static enum sync_want write_single(struct tarn_queue *q)
{
	struct tarn_region_op *ops = q->call.ops;

	q->s.position = q->tail;
	q->ready = QUEUE_UNKNOWN;
	ops[0] = sync_op_cas(q->offset + TAIL_OFFSET, q->s.position, q->s.position + 1);
	fill(q, ops + 1);
	ops[5] = sync_op_read(queue_slot_offset(q, q->s.position + 1), &q->s.state, 8);
	return sync_access(&q->call, 6, single_written);
}

static enum sync_want ready_passed(struct sync_call *call)
{
	if (call->status < 0 && call->status != -TARN_EAMBIGUOUS)
		return sync_end(call, call->status);
	return ready(call);
}

static enum sync_want ready_seen(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	int ret = call->status;

	if (ret == 0)
		ret = usable(q, q->tail, q->s.state);
	if (ret < 0)
		return sync_end(call, ret);
	if (ret == 1)
		return write_single(q);
	call->ops[0] = sync_op_cas(q->offset + TAIL_OFFSET, q->tail, q->tail + 1);
	return sync_access(call, 1, ready_passed);
}

static enum sync_want ready_known(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	if (full(q) && !MUTATED(MUTATION_QUEUE_FULL))
		return sync_pause(call, attempt);
	if (q->ready == q->tail)
		return write_single(q);
	call->ops[0] = sync_op_read(queue_slot_offset(q, q->tail), &q->s.state, 8);
	return sync_access(call, 1, ready_seen);
}

static enum sync_want ready_looked(struct sync_call *call)
{
	return call->status < 0 ? sync_end(call, call->status)
				: look_if_full(queue_of(call), ready_known);
}

/*
 * Until the slot at the tail is known to be free. A free slot is not enough: a consumer empties it
 * before it moves the head, and who is still there must not find the next lap's message.
 */
static enum sync_want ready(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (q->round++ == QUEUE_ROUNDS)
		return sync_pause(call, attempt);
	if (q->ready != q->tail)
		return sync_sub(call, queue_look, ready_looked);
	return look_if_full(q, ready_known);
}

/* ---- the call -------------------------------------------------------------------------------- */

static enum sync_want attempt(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	q->round = 0;
	q->s.begun_ns = clock_now_ns();
	if (q->single && q->unclosed != QUEUE_UNKNOWN) {
		q->tries = 0;
		return close_left(call);
	}
	return q->single ? ready(call) : reserve(call);
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

int queue_send_begin(struct tarn_queue *queue, const void *data, size_t bytes, uint32_t timeout_ms)
{
	int ret = check_message(queue, data, bytes);

	if (ret == 0)
		ret = sync_wait_begin(&queue->call, timeout_ms, queue->offset + SYNC_SLEEPS_SECOND,
				      "the queue is full");
	if (ret < 0)
		return ret;
	queue->s = (struct sending){.data = data ? data : "", .bytes = bytes};
	sync_begin(&queue->call, attempt);
	return 0;
}

int tarn_queue_send(struct tarn_queue *queue, const void *data, size_t bytes, uint32_t timeout_ms)
{
	int ret = queue_send_begin(queue, data, bytes, timeout_ms);

	return ret < 0 ? ret : sync_run(&queue->call);
}
