/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-async.c - the asynchronous twins of the calls of tarn/sync.h: what a call wants is done as a task of the engine
 *
 * The calls themselves are those of lock.c, queue-*.c, barrier.c and epoch.c. An access that was not made because the
 * connection was lost ends the task with -TARN_ESESSION; on the next connection the engine begins it again, and the
 * call goes on with the same access. Runs on the session's owner; the public functions on the application's thread.
 * Next: sync-internal.h, region-task.h, engine.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine.h"
#include "err.h"
#include "sync-async.h"
#include "sync-internal.h"

#define CANCELLED_NS \
	200000000u /* an answer of the daemon's is waited for so long once the call was cancelled */

/* ---- the task -------------------------------------------------------------------------------- */

static int step(struct task *task);

static uint64_t access_limit(const struct sync_call *c, uint64_t now)
{
	const struct tarn_session *s = c->region->session;

	return now + (c->cancelled && s->timeout_ns > CANCELLED_NS ? CANCELLED_NS : s->timeout_ns);
}

/* Prepares what is wanted. 0, or it is not allowed. */
static int prepare(struct region_task *t, struct sync_call *c)
{
	uint64_t now = session_now(c->region->session);
	struct lane *lane = t->task.lane;
	int ret = 0;

	switch (c->want) {
	case SYNC_ACCESS:
		ret = region_check(c->region, c->ops, c->count);
		region_task(t, c->region, REGION_ACCESS, c->ops, c->count);
		t->not_after_ns = c->not_after_ns;
		break;
	case SYNC_NOTIFY:
		ret = region_check(c->region, &c->wake, 1);
		region_task(t, c->region, REGION_NOTIFY, &c->wake, 1);
		break;
	case SYNC_LISTEN:
		region_task(t, c->region, REGION_WAIT, NULL, 0);
		t->sequence = c->sequence;
		t->listen_until_ns = now + c->pause_ns;
		break;
	case SYNC_SLEEP:
	case SYNC_ENDED:
		break;
	}
	c->asked = true;
	t->task.lane = lane;
	t->task.step = step;
	t->limit_ns = t->task.limit_ns = c->limit_ns;
	t->task.wake_ns = c->want == SYNC_SLEEP && c->pause_ns ? now + c->pause_ns : 0;
	return ret;
}

/* What tarn_region_wait() would have returned. */
static int heard(const struct region_task *t, struct sync_call *c)
{
	if (t->quiet)
		return 0;
	if (t->task.result < 0)
		return t->task.result;
	c->sequence = t->sequence;
	return 1;
}

/* 0: not done yet; 1: done, with *ret_status; 2: to be done again on the next connection. */
static int perform(struct region_task *t, struct sync_call *c, int *ret_status)
{
	const struct tarn_session *s = c->region->session;

	*ret_status = 0;
	if (!c->asked) {
		if (!c->lost)
			c->limit_ns = access_limit(c, fabric_now(s->ep));
		/* the connection is gone: an access that was begun now would be ambiguous for nothing */
		if (s->lost && (c->want == SYNC_ACCESS || c->want == SYNC_NOTIFY))
			return 2;
		c->lost = false;
		*ret_status = prepare(t, c);
		if (*ret_status < 0)
			return 1;
		if (t->task.wake_ns)
			return 0;
	}
	t->task.wake_ns = 0;
	if (c->want == SYNC_SLEEP)
		return 1;
	if (!region_step(t))
		return 0;
	*ret_status = c->want == SYNC_LISTEN ? heard(t, c) : t->task.result;
	return c->want != SYNC_LISTEN && *ret_status == -TARN_ESESSION ? 2 : 1;
}

static int step(struct task *task)
{
	struct region_task *t = (struct region_task *)task;
	struct sync_call *c = t->sync;

	while (c->want != SYNC_ENDED) {
		int status, done = perform(t, c, &status);

		if (done == 0)
			return 0;
		c->asked = false;
		c->lost = done == 2;
		if (c->lost) {
			task->result = -TARN_ESESSION;
			return 1;
		}
		c->status = status;
		c->want = c->next(c);
	}
	task->result = c->status;
	return 1;
}

struct task *sync_task(struct region_task *t, struct sync_call *call)
{
	t->sync = call;
	t->pieces = NULL;
	t->task = (struct task){.step = step};
	call->asked = false;
	return &t->task;
}

void sync_cut(struct region_task *t)
{
	struct sync_call *c = t->sync;

	c->cancelled = true;
	if (c->want == SYNC_LISTEN)
		region_task_cut(t);
	else if (t->task.limit_ns > access_limit(c, session_now(c->region->session)))
		t->task.limit_ns = access_limit(c, session_now(c->region->session));
}

uint64_t sync_limit_ns(const struct sync_call *call)
{
	return call->limit_ns;
}

void sync_op_ended(struct sync_call *c, struct tarn_completion *completion)
{
	int status = completion->status;

	/* what was begun may have changed something: then it can not say that it has not */
	if (c->want != SYNC_ENDED)
		completion->status = sync_abort(
			c, c->lost && status == -TARN_ECANCELED ? -TARN_ESESSION : status);
	completion->value = (int64_t)(c->value ? c->value : c->bytes);
	completion->stamp = c->position;
}

void sync_picked_up(struct sync_call *call)
{
	call->busy = false;
	if (call->closed)
		call->free(call);
}

/* ---- the twins ------------------------------------------------------------------------------- */

/* A call's time is the deadline. What is wrong with `async` async_begin() says. */
static uint32_t timeout_ms(const struct sync_call *call, const struct tarn_async *async)
{
	if (async && async->size >= 2 * sizeof(uint32_t) && async->timeout_ms)
		return async->timeout_ms;
	return call && call->region ? region_timeout_ms(call->region) : 0;
}

/* The call has begun (`ret` 0), or was refused. */
static int submit(int ret, struct sync_call *call, struct op *op, const struct tarn_async *async,
		  uint64_t *ret_op)
{
	if (ret < 0)
		return ret;
	op->kind = TARN_OP_SYNC;
	op->region = call->region;
	op->sync = call;
	call->value = call->position = 0;
	call->bytes = 0;
	call->lost = false;
	call->busy = true;
	ret = async_begin(call->region->session, op, async, ret_op);
	call->busy = ret == 0;
	if (ret < 0 && call->closed)
		call->free(call);
	return ret;
}

/* ---- making and opening ---- */

static void init_free(struct sync_call *call)
{
	free(call);
}

/* Memory for one; it goes with its completion. NULL: there is none. */
static struct sync_init *init_create(void)
{
	struct sync_init *init = malloc(sizeof(*init));

	if (!init)
		err_set(-ENOMEM, "no memory for an asynchronous call");
	return init;
}

static int submit_init(int ret, struct sync_init *init, const struct tarn_async *async,
		       uint64_t *ret_op)
{
	struct op op = {.lasts = false};

	if (ret < 0) {
		free(init);
		return ret;
	}
	init->call.free = init_free;
	init->call.closed = true;
	return submit(0, &init->call, &op, async, ret_op);
}

static int submit_open(int ret, struct sync_call *call, const struct tarn_async *async,
		       uint64_t *ret_op)
{
	struct op op = {.lasts = false};

	return submit(ret, call, &op, async, ret_op);
}

int tarn_lock_init_async(struct tarn_region *region, uint64_t offset, uint32_t lease_ms,
			 const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_init *init = init_create();
	int ret = init ? lock_init_begin(init, region, offset, lease_ms) : -ENOMEM;

	return submit_init(ret, init, async, ret_op);
}

int tarn_queue_init_async(struct tarn_region *region, uint64_t offset, uint64_t slots,
			  uint32_t message_bytes, uint32_t lease_ms, uint32_t flags,
			  const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_init *init = init_create();
	int ret = init ? queue_init_begin(init, region, offset, slots, message_bytes, lease_ms,
					  flags)
		       : -ENOMEM;

	return submit_init(ret, init, async, ret_op);
}

int tarn_barrier_init_async(struct tarn_region *region, uint64_t offset, uint32_t parties,
			    const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_init *init = init_create();
	int ret = init ? barrier_init_begin(init, region, offset, parties) : -ENOMEM;

	return submit_init(ret, init, async, ret_op);
}

int tarn_epoch_init_async(struct tarn_region *region, uint64_t offset,
			  const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_init *init = init_create();
	int ret = init ? epoch_init_begin(init, region, offset) : -ENOMEM;

	return submit_init(ret, init, async, ret_op);
}

int tarn_lock_open_async(struct tarn_region *region, uint64_t offset, uint64_t owner,
			 struct tarn_lock **ret_lock, const struct tarn_async *async,
			 uint64_t *ret_op)
{
	struct sync_call *call = NULL;
	int ret = lock_open_begin(region, offset, owner, ret_lock, &call);

	return submit_open(ret, call, async, ret_op);
}

int tarn_queue_open_async(struct tarn_region *region, uint64_t offset,
			  struct tarn_queue **ret_queue, const struct tarn_async *async,
			  uint64_t *ret_op)
{
	struct sync_call *call = NULL;
	int ret = queue_open_begin(region, offset, ret_queue, &call);

	return submit_open(ret, call, async, ret_op);
}

int tarn_barrier_open_async(struct tarn_region *region, uint64_t offset, uint32_t party,
			    struct tarn_barrier **ret_barrier, const struct tarn_async *async,
			    uint64_t *ret_op)
{
	struct sync_call *call = NULL;
	int ret = barrier_open_begin(region, offset, party, ret_barrier, &call);

	return submit_open(ret, call, async, ret_op);
}

int tarn_epoch_open_async(struct tarn_region *region, uint64_t offset,
			  struct tarn_epoch **ret_epoch, const struct tarn_async *async,
			  uint64_t *ret_op)
{
	struct sync_call *call = NULL;
	int ret = epoch_open_begin(region, offset, ret_epoch, &call);

	return submit_open(ret, call, async, ret_op);
}

/* ---- what is known of them ---- */

int tarn_lock_stat_async(struct tarn_lock *lock, struct tarn_lock_info *ret_info,
			 const struct tarn_async *async, uint64_t *ret_op)
{
	int ret = lock_stat_begin(lock, ret_info);
	struct op op = {.buffer = ret_info, .bytes = ret == 0 ? ret_info->size : 0};

	return submit(ret, (struct sync_call *)lock, &op, async, ret_op);
}

int tarn_queue_stat_async(struct tarn_queue *queue, struct tarn_queue_info *ret_info,
			  const struct tarn_async *async, uint64_t *ret_op)
{
	int ret = queue_stat_begin(queue, ret_info);
	struct op op = {.buffer = ret_info, .bytes = ret == 0 ? ret_info->size : 0};

	return submit(ret, (struct sync_call *)queue, &op, async, ret_op);
}

/* ---- locks ---- */

int tarn_lock_acquire_async(struct tarn_lock *lock, const struct tarn_async *async,
			    uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)lock;
	struct op op = {.lasts = true};
	int ret = lock_acquire_begin(lock, timeout_ms(call, async), call ? &call->value : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_lock_renew_async(struct tarn_lock *lock, const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)lock;
	struct op op = {.lasts = false};
	int ret = lock_renew_begin(lock, call ? &call->value : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_lock_release_async(struct tarn_lock *lock, const struct tarn_async *async,
			    uint64_t *ret_op)
{
	struct op op = {.lasts = false};

	return submit(lock_release_begin(lock), (struct sync_call *)lock, &op, async, ret_op);
}

/* ---- queues ---- */

int tarn_queue_send_async(struct tarn_queue *queue, const void *data, size_t bytes,
			  const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)queue;
	struct op op = {.lasts = true, .value = data, .bytes = bytes};
	int ret = queue_send_begin(queue, data, bytes, timeout_ms(call, async));

	return submit(ret, call, &op, async, ret_op);
}

int tarn_queue_receive_async(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
			     const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)queue;
	struct op op = {.lasts = true, .buffer = buffer, .bytes = buffer_bytes};
	int ret = queue_receive_begin(queue, buffer, buffer_bytes, timeout_ms(call, async),
				      call ? &call->bytes : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_queue_peek_async(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
			  const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)queue;
	struct op op = {.lasts = true, .buffer = buffer, .bytes = buffer_bytes};
	int ret = queue_peek_begin(queue, buffer, buffer_bytes, timeout_ms(call, async),
				   call ? &call->bytes : NULL, call ? &call->position : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_queue_consume_async(struct tarn_queue *queue, uint64_t position,
			     const struct tarn_async *async, uint64_t *ret_op)
{
	struct op op = {.lasts = false};

	return submit(queue_consume_begin(queue, position), (struct sync_call *)queue, &op, async,
		      ret_op);
}

/* ---- barriers and epoch counters ---- */

int tarn_barrier_wait_async(struct tarn_barrier *barrier, const struct tarn_async *async,
			    uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)barrier;
	struct op op = {.lasts = true};
	int ret = barrier_wait_begin(barrier, timeout_ms(call, async), call ? &call->value : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_epoch_read_async(struct tarn_epoch *epoch, const struct tarn_async *async,
			  uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)epoch;
	struct op op = {.lasts = false};
	int ret = epoch_read_begin(epoch, call ? &call->value : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_epoch_add_async(struct tarn_epoch *epoch, uint64_t add, const struct tarn_async *async,
			 uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)epoch;
	struct op op = {.lasts = false};
	int ret = epoch_add_begin(epoch, add, call ? &call->value : NULL);

	return submit(ret, call, &op, async, ret_op);
}

int tarn_epoch_raise_async(struct tarn_epoch *epoch, uint64_t value, const struct tarn_async *async,
			   uint64_t *ret_op)
{
	struct op op = {.lasts = false};

	return submit(epoch_raise_begin(epoch, value), (struct sync_call *)epoch, &op, async,
		      ret_op);
}

int tarn_epoch_wait_async(struct tarn_epoch *epoch, uint64_t at_least,
			  const struct tarn_async *async, uint64_t *ret_op)
{
	struct sync_call *call = (struct sync_call *)epoch;
	struct op op = {.lasts = true};
	int ret = epoch_wait_begin(epoch, at_least, timeout_ms(call, async),
				   call ? &call->value : NULL);

	return submit(ret, call, &op, async, ret_op);
}
