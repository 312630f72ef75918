/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine-queue.c - the operations of an engine, from their submission to their end
 *
 * Which wait, which may run, and what becomes of those that are refused or cancelled. Runs on the
 * session's owner. Next: engine-writes.c for the order of writes to one key, engine.c for what runs
 * them.
 */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "mutation.h"
#include "scan-internal.h"

struct op *engine_op(struct engine *e)
{
	struct op *op = TAILQ_FIRST(&e->free);
	uint32_t serial;

	if (!op)
		return NULL;
	TAILQ_REMOVE(&e->free, op, link);
	serial = op->serial + 1;
	/*
	 * But for what comes back, which costs more than all the rest. In pieces: as a whole it would be done by an
	 * instruction that takes longer to begin than all of them.
	 */
	for (size_t at = 0; at < offsetof(struct op, completion); at += 64)
		memset((char *)op + at, 0, 64);
	memset(&op->completion, 0, offsetof(struct tarn_completion, item));
	op->completion.stamp = 0;
	op->completion.value = 0;
	op->completion.key = NULL;
	op->completion.key_bytes = 0;
	op->serial = serial;
	return op;
}

void engine_op_free(struct engine *e, struct op *op)
{
	op->state = OP_FREE;
	if (op->kind == TARN_OP_SCAN)
		scan_picked_up(op->scan);
	if (op->control) {
		region_control_end(op->control);
		free(op->control);
		op->control = NULL;
	}
	if (op->sync)
		sync_picked_up(op->sync);
	op->sync = NULL;
	/* the one that is still in the processor's cache is used next */
	TAILQ_INSERT_HEAD(&e->free, op, link);
}

struct op *engine_op_find(struct engine *e, uint64_t id)
{
	uint64_t place = id & UINT32_MAX;
	struct op *op;

	if (place == 0 || place > ENGINE_OPS)
		return NULL;
	op = &e->ops[place - 1];
	return op->serial == id >> 32 && op->state != OP_FREE && op->state != OP_ENDED ? op : NULL;
}

static void enqueue(struct engine *e, struct op *op)
{
	op->state = OP_QUEUED;
	TAILQ_INSERT_TAIL(&e->queued, op, link);
}

/* Would it contend with another one of its key? An add that is one-sided would not. */
static bool contends(const struct engine *e, const struct op *op)
{
	/* a mover's delete knows its block, and finds its key there; of one block there is one */
	if (op->moved && op->kind == TARN_OP_DELETE)
		return false;
	if (op->kind == TARN_OP_ADD)
		return !(e->session->ep->features & FABRIC_COUNTER_FAA);
	return op->kind == TARN_OP_PUT || op->kind == TARN_OP_DELETE;
}

/* A put that can be taken for written under another one: not one that is to be refused, or counts against a quota, or is a mover's. */
static bool is_blind(const struct engine *e, const struct op *op)
{
	const uint32_t conditions = TARN_PUT_IF_ABSENT | TARN_PUT_IF_STAMP;

	return op->kind == TARN_OP_PUT && !op->moved && op->bytes <= e->session->geometry.max_value_bytes &&
	       !(e->session->limits.limits & (LAYOUT_LIMIT_KEYS | LAYOUT_LIMIT_BYTES)) &&
	       (MUTATED(MUTATION_PIPE_PUTS) ||
		!(op->with_options && op->options.flags & conditions));
}

void engine_submit(struct engine *e, struct op *op)
{
	e->in_flight++;
	e->wait_count += op_lasts(op);
	op->blind = is_blind(e, op);
	op->chained = contends(e, op);
	if (op->chained && writes_enter(e, op))
		return;
	enqueue(e, op);
	/* who has no connection has nothing open at the daemon */
	if (op->control && op->control->call == CONTROL_CLOSE && e->session->lost)
		engine_refuse(e, op, -TARN_ESESSION);
}

static void tell(struct engine *e, struct op *op)
{
	bool get = op->kind == TARN_OP_GET || op->kind == TARN_OP_EXISTS;
	int status = op->completion.status;
	bool item = op->kind == TARN_OP_SCAN ? status == 1
					     : get && (status == 0 || status == -TARN_ETOOSMALL);

	/* what an earlier one has left there */
	if (!item)
		memset(&op->completion.item, 0, sizeof(op->completion.item));
	op->state = OP_ENDED;
	e->in_flight--;
	e->wait_count -= op_lasts(op);
	if (op->ended)
		op->ended(op);
	else
		TAILQ_INSERT_TAIL(&e->ended, op, link);
}

/* Those under one that was written were so right before it. */
static void tell_under(struct engine *e, struct op *under)
{
	struct op *next;

	for (; under; under = next) {
		next = under->next;
		under->completion.status = 0;
		under->completion.stamp = session_stamp(e->session);
		e->session->stats.puts++;
		tell(e, under);
	}
}

void engine_op_end(struct engine *e, struct op *op)
{
	struct op *under = op->under, *next;

	if (op->sync)
		sync_op_ended(op->sync, &op->completion);
	/* not written: then none of those under it was, and they come first now */
	if (under && op->completion.status != 0) {
		writes_inherit(op);
		under = NULL;
	}
	next = op->chained ? writes_leave(e, op) : NULL;
	if (next) {
		next->state = OP_QUEUED;
		TAILQ_INSERT_HEAD(&e->queued, next, link);
	}
	tell(e, op);
	tell_under(e, under);
}

void engine_refuse(struct engine *e, struct op *op, int status)
{
	bool aside = err_aside(true);

	if (op->state == OP_QUEUED) {
		TAILQ_REMOVE(&e->queued, op, link);
	} else {
		writes_remove(e, op);
		op->chained = false;
	}
	op->completion.status = op->control ? region_control_refuse(op->control, status) : status;
	engine_op_end(e, op);
	err_aside(aside);
}

static bool waits(const struct op *op)
{
	return op->state == OP_QUEUED || op->state == OP_BEHIND || op->state == OP_UNDER;
}

void engine_refuse_all(struct engine *e, const void *batch, int status)
{
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		if (waits(&e->ops[i]) && (!batch || e->ops[i].batch == batch))
			engine_refuse(e, &e->ops[i], status);
}

bool engine_refuse_keys(struct engine *e, int status)
{
	bool some = false;

	for (unsigned i = 0; i < ENGINE_OPS; i++) {
		if (!waits(&e->ops[i]) || e->ops[i].region || e->ops[i].control)
			continue;
		engine_refuse(e, &e->ops[i], status);
		some = true;
	}
	return some;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	uintptr_t a_begin = (uintptr_t)a, b_begin = (uintptr_t)b;

	return a_bytes && b_bytes && a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

static bool accesses_overlap(const struct op *op, const void *memory, size_t bytes)
{
	if (!op->region)
		return false;
	for (size_t i = 0; op->accesses && i < op->access_count; i++)
		if (op->accesses[i].kind <= TARN_REGION_WRITE &&
		    overlap(memory, bytes, op->accesses[i].buffer, op->accesses[i].bytes))
			return true;
	return op->one.kind && op->one.kind <= TARN_REGION_WRITE &&
	       overlap(memory, bytes, op->one.buffer, op->one.bytes);
}

bool engine_op_uses(const struct op *op, const void *memory, size_t bytes)
{
	return overlap(memory, bytes, op->key, op->key_bytes) ||
	       overlap(memory, bytes, op->buffer, op->buffer ? op->bytes : 0) ||
	       accesses_overlap(op, memory, bytes) ||
	       overlap(memory, bytes, op->value, op->value ? op->bytes : 0);
}

bool engine_uses(const struct engine *e, const void *memory, size_t bytes)
{
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		if (e->ops[i].state != OP_FREE && engine_op_uses(&e->ops[i], memory, bytes))
			return true;
	return false;
}

/* Does `op` get into what the other one uses? */
static bool gets_into(const struct op *op, const struct op *other)
{
	size_t bytes = op->buffer ? op->bytes : 0;

	return overlap(op->buffer, bytes, other->key, other->key_bytes) ||
	       overlap(op->buffer, bytes, other->buffer, other->buffer ? other->bytes : 0) ||
	       overlap(op->buffer, bytes, other->value, other->value ? other->bytes : 0);
}

bool engine_clashes(const struct engine *e, const struct op *op)
{
	for (unsigned i = 0; i < ENGINE_OPS; i++) {
		const struct op *other = &e->ops[i];

		if (other != op && other->state != OP_FREE &&
		    (gets_into(op, other) || gets_into(other, op)))
			return true;
	}
	return false;
}

void engine_cancel(struct engine *e, struct op *op)
{
	op->cancelled = true;
	if (waits(op))
		engine_refuse(e, op, -TARN_ECANCELED);
	else if (op->lane)
		lane_cut(op->lane);
	if (op->lane && op->lane->state == LANE_SLEEPS)
		op->lane->task->wake_ns = 1; /* at once */
}
