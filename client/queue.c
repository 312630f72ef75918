/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue.c - a ring queue in a region: making, opening, head and tail
 *
 * Runs on the application's thread. Next: queue-internal.h for the memory, queue-send.c, queue-receive.c,
 * docs/sync.md.
 */
#include "queue-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "mutation.h"

/* parameters: bits 0..21 the lease in ms, 22..42 message_bytes / 8, 43..47 log2 of slots */
#define LEASE_BITS 22
#define WORDS_BITS 21

static uint32_t round_up(uint32_t message_bytes)
{
	return (message_bytes + 7) & ~7u;
}

static bool valid(uint64_t slots, uint32_t message_bytes)
{
	return slots >= QUEUE_SLOTS_MIN && slots <= QUEUE_SLOTS_MAX && !(slots & (slots - 1)) &&
	       message_bytes && message_bytes <= TARN_QUEUE_MESSAGE_MAX;
}

static uint64_t queue_bytes(uint64_t slots, uint32_t message_bytes)
{
	return sizeof(struct queue_memory) +
	       slots * (sizeof(struct queue_slot) + round_up(message_bytes));
}

uint64_t tarn_queue_bytes(uint64_t slots, uint32_t message_bytes)
{
	return valid(slots, message_bytes) ? queue_bytes(slots, message_bytes) : 0;
}

uint64_t queue_checksum(uint64_t position, const void *data, uint64_t bytes)
{
	if (MUTATED(MUTATION_QUEUE_CHECKSUM))
		return 0;
	return XXH3_64bits_withSeed(data, bytes, position << 21 ^ bytes);
}

int queue_corrupt(const struct tarn_queue *queue, uint64_t position, uint64_t state)
{
	return err_set(-TARN_ECORRUPT,
		       "the queue's memory is damaged: slot of position %llu is 0x%llx, head %llu, "
		       "tail %llu",
		       (unsigned long long)position, (unsigned long long)state,
		       (unsigned long long)queue->head, (unsigned long long)queue->tail);
}

int queue_check(const struct tarn_queue *queue)
{
	return queue ? sync_check_free(&queue->call) : err_set(-EINVAL, "queue must not be NULL");
}

int queue_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		     uint64_t slots, uint32_t message_bytes, uint32_t lease_ms, uint32_t flags)
{
	uint64_t parameters;
	int ret;

	if (flags & ~TARN_QUEUE_SINGLE)
		return err_set(-EINVAL, "flags is 0x%x: must be 0 or TARN_QUEUE_SINGLE", flags);
	if (!valid(slots, message_bytes))
		return err_set(
			-EINVAL,
			"%llu slots of %u bytes: a queue has %u to %u slots, a power of two, and "
			"messages of 1 to %u bytes",
			(unsigned long long)slots, message_bytes, QUEUE_SLOTS_MIN, QUEUE_SLOTS_MAX,
			TARN_QUEUE_MESSAGE_MAX);
	ret = sync_check_place(region, offset, queue_bytes(slots, message_bytes));
	if (ret == 0)
		ret = sync_check_lease(lease_ms);
	if (ret < 0)
		return ret;
	parameters = lease_ms | (uint64_t)round_up(message_bytes) / 8 << LEASE_BITS |
		     (uint64_t)__builtin_ctzll(slots) << (LEASE_BITS + WORDS_BITS);
	sync_init_begin(init, region, offset, sizeof(struct queue_memory),
			flags & TARN_QUEUE_SINGLE ? SYNC_QUEUE_SINGLE : SYNC_QUEUE, parameters);
	return 0;
}

int tarn_queue_init(struct tarn_region *region, uint64_t offset, uint64_t slots,
		    uint32_t message_bytes, uint32_t lease_ms, uint32_t flags)
{
	struct sync_init init;
	int ret = queue_init_begin(&init, region, offset, slots, message_bytes, lease_ms, flags);

	return ret < 0 ? ret : sync_run(&init.call);
}

/* What the first word says is checked like an argument. */
static int take_parameters(struct tarn_queue *q, uint64_t parameters)
{
	uint64_t words = parameters >> LEASE_BITS & ((1u << WORDS_BITS) - 1);
	uint32_t lease_ms = parameters & ((1u << LEASE_BITS) - 1);

	q->slots_log2 = (uint32_t)(parameters >> (LEASE_BITS + WORDS_BITS));
	q->slots = 1ull << q->slots_log2;
	if (words > TARN_QUEUE_MESSAGE_MAX / 8 || !valid(q->slots, (uint32_t)words * 8) ||
	    sync_check_lease(lease_ms) < 0)
		return err_set(-TARN_ECORRUPT, "the queue's parameters are 0x%llx: damaged",
			       (unsigned long long)parameters);
	q->message_bytes = (uint32_t)words * 8;
	q->stride = sizeof(struct queue_slot) + q->message_bytes;
	q->lease_ns = lease_ms * 1000000ull;
	return sync_check_place(q->call.region, q->offset, queue_bytes(q->slots, q->message_bytes));
}

/* ---- head and tail --------------------------------------------------------------------------- */

static enum sync_want look_end(struct tarn_queue *q)
{
	const struct queue_memory *m = &q->looked;

	if (m->head < q->head || m->tail < q->tail)
		return sync_back(&q->call,
				 err_set(-TARN_ECORRUPT,
					 "the queue's memory is damaged: head or tail went back, "
					 "from %llu and %llu to %llu and %llu",
					 (unsigned long long)q->head, (unsigned long long)q->tail,
					 (unsigned long long)m->head, (unsigned long long)m->tail));
	q->head = m->head;
	q->tail = m->tail;
	return sync_back(&q->call, 0);
}

/* One word. */
static enum sync_want read_word(struct tarn_queue *q, uint64_t offset, uint64_t *word,
				sync_handler *next)
{
	if (q->call.status < 0)
		return sync_back(&q->call, q->call.status);
	q->call.ops[0] = sync_op_read(q->offset + offset, word, 8);
	return sync_access(&q->call, 1, next);
}

static sync_handler tail_next, head_next, head_read;

/* Three reads one after the other: what is read first is not higher than what is read later. */
static enum sync_want look_again(struct tarn_queue *q)
{
	return read_word(q, offsetof(struct queue_memory, head), &q->first, tail_next);
}

static enum sync_want tail_next(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	return read_word(q, offsetof(struct queue_memory, tail), &q->looked.tail, head_next);
}

static enum sync_want head_next(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	return read_word(q, offsetof(struct queue_memory, head), &q->looked.head, head_read);
}

static enum sync_want head_read(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t first = q->first, tail = q->looked.tail, last = q->looked.head;

	if (call->status < 0)
		return sync_back(call, call->status);
	if (first > tail || last < first || tail > SYNC_WORD_MAX || last > SYNC_WORD_MAX ||
	    tail > last + q->slots)
		return sync_back(call, err_set(-TARN_ECORRUPT,
					       "the queue's memory is damaged: head %llu, tail "
					       "%llu of %llu slots",
					       (unsigned long long)last, (unsigned long long)tail,
					       (unsigned long long)q->slots));
	q->looked.tail = tail < last ? last : tail;
	return look_end(q);
}

static enum sync_want looked(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	const struct queue_memory *m = &q->looked;

	if (call->status < 0)
		return sync_back(call, call->status);
	/* they come in one read, in any order: what does not fit together may only be of different times */
	if (m->head > m->tail || m->tail - m->head > q->slots || m->tail > SYNC_WORD_MAX)
		return look_again(q);
	return look_end(q);
}

enum sync_want queue_look(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	call->ops[0] = sync_op_read(q->offset, &q->looked, sizeof(q->looked));
	return sync_access(call, 1, looked);
}

/* ---- handles --------------------------------------------------------------------------------- */

static void queue_free(struct sync_call *call)
{
	free(queue_of(call)->slot);
	free(queue_of(call));
}

static enum sync_want open_looked(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	*q->ret_queue = q;
	return sync_open_end(call);
}

static enum sync_want opened(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	uint64_t parameters;
	enum sync_kind kind;
	int ret = sync_opened(call, q->offset, &kind, &parameters);

	if (ret == 0 && kind != SYNC_QUEUE && kind != SYNC_QUEUE_SINGLE)
		ret = sync_wrong_kind(kind, "a queue");
	if (ret == 0)
		ret = take_parameters(q, parameters);
	if (ret < 0)
		return sync_end(call, ret);
	q->single = kind == SYNC_QUEUE_SINGLE;
	q->slot = malloc(q->stride);
	if (!q->slot)
		return sync_end(call, err_set(-ENOMEM, "no memory for a queue"));
	return sync_sub(call, queue_look, open_looked);
}

int queue_open_begin(struct tarn_region *region, uint64_t offset, struct tarn_queue **ret_queue,
		     struct sync_call **ret_call)
{
	struct tarn_queue *q;
	int ret = sync_check_place(region, offset, sizeof(struct queue_memory));

	if (ret == 0 && !ret_queue)
		ret = err_set(-EINVAL, "ret_queue must not be NULL");
	if (ret < 0)
		return ret;
	q = calloc(1, sizeof(*q));
	if (!q)
		return err_set(-ENOMEM, "no memory for a queue");
	q->offset = offset;
	q->ready = q->unclosed = QUEUE_UNKNOWN;
	q->pending = q->peeked = q->ambiguous = QUEUE_UNKNOWN;
	q->ret_queue = ret_queue;
	sync_open_begin(&q->call, region, offset, queue_free, opened);
	*ret_call = &q->call;
	return 0;
}

int tarn_queue_open(struct tarn_region *region, uint64_t offset, struct tarn_queue **ret_queue)
{
	struct sync_call *call;
	int ret = queue_open_begin(region, offset, ret_queue, &call);

	return ret < 0 ? ret : sync_open_run(call);
}

void tarn_queue_close(struct tarn_queue *queue)
{
	if (queue)
		sync_close(&queue->call);
}

static enum sync_want stat_looked(struct sync_call *call)
{
	struct tarn_queue *q = queue_of(call);
	struct tarn_queue_info info = {.flags = q->single ? TARN_QUEUE_SINGLE : 0};

	if (call->status < 0)
		return sync_end(call, call->status);
	info.size = q->ret_info->size;
	info.slots = q->slots;
	info.message_bytes = q->message_bytes;
	info.lease_ms = (uint32_t)(q->lease_ns / 1000000);
	info.head = q->head;
	info.tail = q->tail;
	memcpy(q->ret_info, &info, info.size < sizeof(info) ? info.size : sizeof(info));
	return sync_end(call, 0);
}

static enum sync_want stat_look(struct sync_call *call)
{
	return sync_sub(call, queue_look, stat_looked);
}

int queue_stat_begin(struct tarn_queue *queue, struct tarn_queue_info *ret_info)
{
	int ret = queue_check(queue);

	if (ret == 0 && (!ret_info || ret_info->size < 2 * sizeof(uint32_t)))
		ret = err_set(-EINVAL, "ret_info must not be NULL, and its size the struct's");
	if (ret < 0)
		return ret;
	queue->ret_info = ret_info;
	sync_begin(&queue->call, stat_look);
	return 0;
}

int tarn_queue_stat(struct tarn_queue *queue, struct tarn_queue_info *ret_info)
{
	int ret = queue_stat_begin(queue, ret_info);

	return ret < 0 ? ret : sync_run(&queue->call);
}
