/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-pick.c - asynchronous calls of a cluster's session that have ended, or shall: they are picked up, or cancelled
 *
 * Runs on the session's owner. Next to read: cluster-async.c.
 */
#include <stddef.h>
#include <stdlib.h>

#include "cluster-async.h"
#include "err.h"
#include "region-control.h"
#include "scan-internal.h"
#include "sync-internal.h"

#define TURNS    4u  /* of one tarn_session_poll(): it shall not take long */
#define PICK_MAX 64u /* callbacks of one tarn_session_poll() */

void cluster_call_release(struct cluster_op *call)
{
	if (call->asked.scan)
		scan_picked_up(call->asked.scan);
	if (call->asked.control) {
		region_control_end(call->asked.control);
		free(call->asked.control);
		call->asked.control = NULL;
	}
	if (call->asked.sync)
		sync_picked_up(call->asked.sync);
	call->asked.sync = NULL;
}

static void release(struct cluster_async *a, struct cluster_op *call)
{
	TAILQ_REMOVE(&a->ended, call, link);
	call->state = CALL_FREE;
	cluster_call_release(call);
	TAILQ_INSERT_TAIL(&a->free, call, link);
}

struct calls {
	unsigned count;
	struct {
		tarn_done *done;
		struct tarn_completion completion;
	} items[PICK_MAX];
};

static size_t pick_up(struct cluster_async *a, struct calls *calls, struct tarn_completion *list,
		      size_t max)
{
	struct cluster_op *call, *next;
	size_t count = 0;

	for (call = TAILQ_FIRST(&a->ended); call; call = next) {
		next = TAILQ_NEXT(call, link);
		if (call->done && calls->count < PICK_MAX) {
			calls->items[calls->count].done = call->done;
			calls->items[calls->count++].completion = call->completion;
		} else if (!call->done && count < max) {
			list[count++] = call->completion;
		} else {
			continue;
		}
		release(a, call);
	}
	return count;
}

int cluster_poll(struct tarn_session *s, struct tarn_completion *list, size_t max, size_t *ret_count)
{
	struct calls calls;
	unsigned turns = 0;
	size_t count = 0;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	calls.count = 0;
	if (s->cluster->async) {
		while (cluster_async_turn(s->cluster) && ++turns < TURNS)
			;
		if (max > INT32_MAX - PICK_MAX)
			max = INT32_MAX - PICK_MAX;
		count = pick_up(s->cluster->async, &calls, list, max);
	}
	cluster_leave(s);
	for (unsigned i = 0; i < calls.count; i++)
		calls.items[i].done(calls.items[i].completion.cookie, &calls.items[i].completion);
	if (ret_count)
		*ret_count = count;
	return (int)(calls.count + count);
}

int cluster_cancel(struct tarn_session *s, uint64_t id)
{
	uint64_t place = id & UINT32_MAX;
	struct cluster_async *a;
	struct cluster_op *call = NULL;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	a = s->cluster->async;
	if (a && place > 0 && place <= ENGINE_OPS)
		call = &a->ops[place - 1];
	if (!call || cluster_call_id(a, call) != id || call->state == CALL_FREE ||
	    call->state == CALL_ENDED) {
		ret = err_set(-TARN_EENDED, "the operation %llu has ended, or there was none",
			      (unsigned long long)id);
	} else {
		call->cancelled = true;
		if (call->state == CALL_UNDER_WAY)
			engine_cancel(call->member->engine, call->op);
	}
	cluster_leave(s);
	return ret;
}

void cluster_async_scan_closed(struct tarn_scan *walk)
{
	struct cluster_op *call =
		(struct cluster_op *)((char *)walk->op - offsetof(struct cluster_op, asked));

	call->cancelled = true;
	if (call->state == CALL_UNDER_WAY)
		engine_cancel(call->member->engine, call->op);
	if (call->state == CALL_ENDED) {
		call->completion.status = -TARN_ECANCELED;
		call->completion.key = NULL;
		call->completion.key_bytes = 0;
	}
}
