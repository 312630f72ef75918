/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine-op.c - an operation of the engine as a task: how it begins, and what it leaves
 *
 * Runs on the session's owner, from engine.c. Next: kv.h for the tasks.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine.h"
#include "err.h"
#include "scan-internal.h"

/* ---- ping ------------------------------------------------------------------------------------ */

static int ping_end(struct ping *p, int result)
{
	p->task.result = result;
	return 1;
}

static int ping_step(struct task *task)
{
	const struct wire_rpc rpc = {.type = WIRE_RPC_PING};
	struct ping *p = (struct ping *)task;
	struct wire_rpc_reply reply;
	int ret;

	if (p->posted) {
		p->took_ns = session_now(p->session) - p->began_ns;
		return ping_end(p, session_ask_reply(p->session, task->status, p->answer,
						     task->length, &reply));
	}
	wire_rpc_encode(&rpc, p->message);
	p->began_ns = session_now(p->session);
	ret = session_rpc(p->session, p->message, sizeof(p->message), p->answer, sizeof(p->answer),
			  task);
	if (ret < 0)
		return ping_end(p, ret);
	p->posted = true;
	return 0;
}

static struct task *ping_begin(struct lane *lane)
{
	struct ping *p = &lane->ping;

	*p = (struct ping){.session = lane->engine->session};
	p->task.step = ping_step;
	p->task.limit_ns = lane->op->limit_ns;
	return &p->task;
}

/* ---- regions --------------------------------------------------------------------------------- */

static struct task *region_begin(struct lane *lane)
{
	struct op *op = lane->op;
	bool one = !op->accesses && op->one.kind;

	region_task(&lane->region, op->region, op->goal, one ? &op->one : op->accesses,
		    one ? 1 : op->access_count);
	lane->region.sequence = op->sequence;
	return &lane->region.task;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* May ask the daemon, once in four billion writes; what a blocking call is limited by stays the same. */
static int renew_stamps(struct tarn_session *s)
{
	uint64_t limit_ns = s->work_limit_ns;
	int ret = session_renew_stamps(s);

	s->work_limit_ns = limit_ns;
	return ret;
}

/* By the session's owner: after a reconnect it may be another pool with another limit. */
static int check_put(const struct lane *lane)
{
	struct tarn_session *s = lane->engine->session;
	int ret = session_check_value(s, lane->op->bytes);

	return ret < 0 ? ret : renew_stamps(s);
}

static struct task *key_begin(struct lane *lane)
{
	struct op *op = lane->op;

	switch ((enum tarn_op_kind)op->kind) {
	case TARN_OP_GET:
	case TARN_OP_EXISTS:
		return kv_get(lane->kv, op->key, op->key_bytes, op->buffer, op->bytes,
			      op->kind == TARN_OP_EXISTS);
	case TARN_OP_PUT:
		if (op->moved)
			return shard_put(lane->kv, &op->moved->put);
		op->completion.status = check_put(lane);
		if (op->completion.status < 0)
			return NULL;
		return kv_put(lane->kv, op->key, op->key_bytes, op->value, op->bytes,
			      op->with_options ? &op->options : NULL);
	case TARN_OP_DELETE:
		if (op->moved)
			return shard_delete(lane->kv, op->moved->word, op->moved->hash);
		return kv_delete(lane->kv, op->key, op->key_bytes);
	case TARN_OP_ADD:
		op->completion.status = renew_stamps(lane->engine->session);
		if (op->completion.status < 0)
			return NULL;
		return kv_add(lane->kv, op->key, op->key_bytes, op->delta);
	case TARN_OP_SCAN:
		return scan_next(op->scan);
	case TARN_OP_PING:
		return ping_begin(lane);
	case TARN_OP_REGION_CONTROL:
		return region_control_task(op->control);
	case TARN_OP_SYNC:
		return sync_task(&lane->region, op->sync);
	case TARN_OP_REGION:
	case TARN_OP_REGION_WAIT:
		break;
	}
	return region_begin(lane);
}

struct task *lane_begin(struct lane *lane)
{
	struct tarn_session *s = lane->engine->session;
	uint64_t limit_ns = s->limit_ns;
	struct task *task;

	if (!lane->kv && !lane->op->region && !lane->op->control) {
		lane->op->completion.status = kv_op_create(s, &lane->kv);
		if (lane->op->completion.status < 0)
			return NULL;
	}
	s->limit_ns = lane->op->limit_ns;
	task = key_begin(lane);
	s->limit_ns = limit_ns;
	return task;
}

static void scan_result(struct lane *lane)
{
	const struct tarn_scan *scan = lane->op->scan;
	struct tarn_completion *c = &lane->op->completion;

	c->item.size = sizeof(c->item);
	scan_item(scan, &c->item);
	c->key = scan_key(scan, &c->key_bytes);
}

/* It was cancelled: does it say so, because its time was cut short before it had changed anything? */
static bool cut_short(const struct op *op, int status)
{
	/* it says so by itself */
	if (op->sync)
		return false;
	if (op->control)
		return !op->control->begun && (status == -TARN_ETIMEOUT || status == -TARN_EBUSY);
	return status == -TARN_ETIMEOUT || status == -TARN_EPOOLFULL ||
	       (op->region && status == -TARN_EBUSY);
}

void lane_result(struct lane *lane)
{
	struct tarn_completion *c = &lane->op->completion;
	int status = lane->task->result;
	uint64_t slot;

	if (lane->op->cancelled && cut_short(lane->op, status))
		status = err_set(-TARN_ECANCELED, "cancelled before it had changed anything");
	c->status = status;
	switch ((enum tarn_op_kind)lane->op->kind) {
	case TARN_OP_GET:
	case TARN_OP_EXISTS:
		if (status == 0 || status == -TARN_ETOOSMALL)
			c->item = *kv_item(lane->kv);
		break;
	case TARN_OP_PUT:
		if (status == 0 || status == -TARN_EAMBIGUOUS)
			c->stamp = kv_stamp(lane->kv);
		if (status == 0 && lane->op->moved)
			shard_placed(lane->kv, &slot, &lane->op->moved->placed,
				     &lane->op->moved->replaced);
		break;
	case TARN_OP_ADD:
		if (status == 0)
			c->value = kv_added(lane->kv);
		break;
	case TARN_OP_PING:
		if (status == 0)
			c->value = (int64_t)lane->ping.took_ns;
		break;
	case TARN_OP_REGION:
		if (status == 0)
			c->value = (int64_t)lane->op->one.before;
		break;
	case TARN_OP_REGION_WAIT:
		if (status == 0)
			c->value = (int64_t)lane->region.sequence;
		break;
	case TARN_OP_SCAN:
		if (lane->op->scan->closed)
			c->status = -TARN_ECANCELED;
		else if (status == 1)
			scan_result(lane);
		break;
	case TARN_OP_REGION_CONTROL:
		/* it may have more time by now */
		lane->op->limit_ns = lane->op->control->limit_ns;
		break;
	case TARN_OP_SYNC:
		lane->op->limit_ns = sync_limit_ns(lane->op->sync);
		break;
	case TARN_OP_DELETE:
		break;
	}
}

void lane_cut(struct lane *lane)
{
	if (lane->op->kind == TARN_OP_PING)
		lane->ping.task.limit_ns = 0;
	else if (lane->op->sync)
		sync_cut(&lane->region);
	else if (lane->op->region)
		region_task_cut(&lane->region);
	else if (lane->op->control)
		region_control_cut(lane->op->control);
	else if (lane->op->kind == TARN_OP_SCAN)
		scan_cut(lane->op->scan);
	else
		kv_cut(lane->kv);
}

void lane_free(struct lane *lane)
{
	kv_op_free(lane->kv);
	free(lane->region.pieces); /* of one that did not come to its end */
}
