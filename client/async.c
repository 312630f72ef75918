/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * async.c - the public functions that begin an operation and do not wait for it, and those that pick
 * up what has ended
 *
 * Runs on the application's thread. tarn.h is the manual. Next: engine.h.
 */
#include <errno.h>
#include <string.h>

#include "arguments.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "scan-internal.h"

#define TIMEOUT_MAX_MS 3600000u
#define TURNS          4u  /* of one tarn_session_poll(): it shall not take long */
#define PICK_MAX       64u /* callbacks of one tarn_session_poll() */

static_assert(TARN_ASYNC_MAX == ENGINE_OPS, "as the manual says");

/* ---- beginning ------------------------------------------------------------------------------- */

static int check_async(const struct tarn_async *async, struct tarn_async *ret_known)
{
	*ret_known = (struct tarn_async)TARN_ASYNC_INIT;
	if (!async)
		return 0;
	if (async->size < 2 * sizeof(uint32_t))
		return err_set(-EINVAL, "async.size is %u: start from TARN_ASYNC_INIT",
			       async->size);
	memcpy(ret_known, async, async->size < sizeof(*async) ? async->size : sizeof(*async));
	if (ret_known->timeout_ms > TIMEOUT_MAX_MS)
		return err_set(-EINVAL, "async.timeout_ms is %u: at most %u", ret_known->timeout_ms,
			       TIMEOUT_MAX_MS);
	return 0;
}

/* With the session held. */
static int submit(struct tarn_session *s, const struct op *asked, const struct tarn_async *async,
		  uint64_t *ret_op)
{
	uint64_t timeout_ns = async->timeout_ms ? async->timeout_ms * 1000000ull : s->timeout_ns;
	int ret = engine_create(s);
	struct op *op;
	uint32_t serial;

	if (ret == 0)
		ret = engine_op_check(s, asked);
	if (ret < 0)
		return ret;
	if (op_lasts(asked) && s->engine->wait_count == ENGINE_WAITS)
		return err_set(-TARN_EBUSY,
			       "%u calls that wait in a region, or make, find or open one, are under "
			       "way: as many as there may be",
			       ENGINE_WAITS);
	op = engine_op(s->engine);
	if (!op)
		return err_set(-TARN_EBUSY,
			       "%u asynchronous calls are under way or not picked up: "
			       "tarn_session_poll() picks up those that have ended",
			       ENGINE_OPS);
	serial = op->serial;
	*op = *asked;
	op->serial = serial;
	if (op->scan)
		op->scan->op = op;
	op->limit_ns = session_now(s) + timeout_ns;
	op->done = async->done;
	op->completion.op = engine_op_id(s->engine, op);
	op->completion.cookie = async->cookie;
	op->completion.kind = op->kind;
	if (ret_op)
		*ret_op = op->completion.op;
	engine_submit(s->engine, op);
	return 0;
}

int async_begin(struct tarn_session *s, const struct op *asked, const struct tarn_async *async,
		uint64_t *ret_op)
{
	struct tarn_async known;
	int ret = check_async(async, &known);

	/* an open region's is a member's */
	if (ret == 0 && s && (s->cluster || s->front))
		return cluster_async_begin(s->front ? s->front : s, asked, &known, ret_op);
	if (ret == 0)
		ret = session_hold(s);
	if (ret < 0)
		return ret;
	ret = submit(s, asked, &known, ret_op);
	session_leave(s);
	return ret;
}

TARN_API int tarn_get_async(struct tarn_session *session, const void *key, size_t key_bytes,
			    void *buffer, size_t buffer_bytes, const struct tarn_async *async,
			    uint64_t *ret_op)
{
	const struct op op = {.kind = TARN_OP_GET,
			      .key = key,
			      .key_bytes = key_bytes,
			      .buffer = buffer,
			      .bytes = buffer_bytes};
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_buffer(buffer, buffer_bytes);
	return ret < 0 ? ret : async_begin(session, &op, async, ret_op);
}

TARN_API int tarn_exists_async(struct tarn_session *session, const void *key, size_t key_bytes,
			       const struct tarn_async *async, uint64_t *ret_op)
{
	const struct op op = {.kind = TARN_OP_EXISTS, .key = key, .key_bytes = key_bytes};
	int ret = arguments_key(session, key, key_bytes);

	return ret < 0 ? ret : async_begin(session, &op, async, ret_op);
}

TARN_API int tarn_put_async(struct tarn_session *session, const void *key, size_t key_bytes,
			    const void *value, size_t value_bytes,
			    const struct tarn_put_options *options, const struct tarn_async *async,
			    uint64_t *ret_op)
{
	struct op op = {.kind = TARN_OP_PUT,
			.key = key,
			.key_bytes = key_bytes,
			.value = value,
			.bytes = value_bytes,
			.with_options = options != NULL};
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0)
		ret = arguments_put(value, value_bytes, options, &op.options);
	return ret < 0 ? ret : async_begin(session, &op, async, ret_op);
}

TARN_API int tarn_delete_async(struct tarn_session *session, const void *key, size_t key_bytes,
			       const struct tarn_async *async, uint64_t *ret_op)
{
	const struct op op = {.kind = TARN_OP_DELETE, .key = key, .key_bytes = key_bytes};
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_writable(session);
	return ret < 0 ? ret : async_begin(session, &op, async, ret_op);
}

TARN_API int tarn_add_async(struct tarn_session *session, const void *key, size_t key_bytes,
			    int64_t delta, const struct tarn_async *async, uint64_t *ret_op)
{
	const struct op op = {
		.kind = TARN_OP_ADD, .key = key, .key_bytes = key_bytes, .delta = delta};
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_writable(session);
	return ret < 0 ? ret : async_begin(session, &op, async, ret_op);
}

TARN_API int tarn_session_ping_async(struct tarn_session *session, const struct tarn_async *async,
				     uint64_t *ret_op)
{
	const struct op op = {.kind = TARN_OP_PING};

	if (!session)
		return err_set(-EINVAL, "session must not be NULL");
	return async_begin(session, &op, async, ret_op);
}

TARN_API int tarn_scan_next_async(struct tarn_scan *scan, const struct tarn_async *async,
				  uint64_t *ret_op)
{
	const struct op op = {.kind = TARN_OP_SCAN, .scan = scan};
	int ret;

	if (!scan)
		return err_set(-EINVAL, "scan must not be NULL");
	ret = scan_check(scan);
	return ret < 0 ? ret : async_begin(scan->session, &op, async, ret_op);
}

/* ---- picking up ------------------------------------------------------------------------------ */

/* What is called once the session is free again. */
struct calls {
	unsigned count;
	struct {
		tarn_done *done;
		struct tarn_completion completion;
	} items[PICK_MAX];
};

/* Those with a callback, up to PICK_MAX, and into the list what there is room for. */
static void pick_up(struct engine *e, struct calls *calls, struct tarn_completion *list, size_t max,
		    size_t *ret_count)
{
	struct op *op, *next;
	size_t count = 0;

	for (op = TAILQ_FIRST(&e->ended); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (op->done && calls->count < PICK_MAX) {
			calls->items[calls->count].done = op->done;
			calls->items[calls->count++].completion = op->completion;
		} else if (!op->done && count < max) {
			list[count++] = op->completion;
		} else if (calls->count == PICK_MAX && count == max) {
			break;
		} else {
			continue;
		}
		TAILQ_REMOVE(&e->ended, op, link);
		engine_op_free(e, op);
	}
	*ret_count = count;
}

TARN_API int tarn_session_poll(struct tarn_session *session,
			       struct tarn_completion *ret_completions, size_t max,
			       size_t *ret_count)
{
	struct calls calls;
	unsigned turns = 0;
	size_t count = 0;
	int ret;

	if (!session || (!ret_completions && max))
		return err_set(-EINVAL, "session must not be NULL, nor a list with room for %zu",
			       max);
	if (session->cluster)
		return cluster_poll(session, ret_completions, max, ret_count);
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	calls.count = 0;
	if (session->engine) {
		while (engine_turn(session->engine) && ++turns < TURNS)
			;
		if (max > INT32_MAX - PICK_MAX)
			max = INT32_MAX - PICK_MAX;
		pick_up(session->engine, &calls, ret_completions, max, &count);
	}
	session_leave(session);
	for (unsigned i = 0; i < calls.count; i++)
		calls.items[i].done(calls.items[i].completion.cookie, &calls.items[i].completion);
	if (ret_count)
		*ret_count = count;
	return (int)(calls.count + count);
}

#define AGAIN_NS 10000000u /* between two looks at a session without a connection */

/* That there is no connection yet is no failure of the call that waits. */
static int try_aside(struct tarn_session *s, uint64_t timeout_ns)
{
	bool aside = err_aside(true);
	int ret = session_reconnect_try(s, timeout_ns);

	err_aside(aside);
	return ret;
}

/* One step of waiting. */
static void wait_once(struct tarn_session *s, uint64_t until_ns)
{
	if (engine_turn(s->engine))
		return;
	if (s->lost && !engine_busy(s->engine)) {
		uint64_t now = session_now(s), left = until_ns - now;

		/* with less time left a try says nothing */
		if (now + SESSION_TRY_NS / 4 < until_ns &&
		    try_aside(s, left < SESSION_TRY_NS ? left : SESSION_TRY_NS) == 0)
			return;
		if (until_ns > now + AGAIN_NS)
			until_ns = now + AGAIN_NS;
	}
	engine_sleep(s->engine, until_ns);
}

TARN_API int tarn_session_wait(struct tarn_session *session, uint32_t timeout_ms)
{
	struct engine *e;
	uint64_t until;
	int ret;

	if (!session || timeout_ms > TIMEOUT_MAX_MS)
		return err_set(-EINVAL, "timeout_ms is %u: must be up to %u, of a session",
			       timeout_ms, TIMEOUT_MAX_MS);
	if (session->cluster)
		return cluster_wait(session, timeout_ms);
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	e = session->engine;
	until = session_now(session) + timeout_ms * 1000000ull;
	while (e && e->in_flight && TAILQ_EMPTY(&e->ended) && session_now(session) < until)
		wait_once(session, until);
	if (e && !TAILQ_EMPTY(&e->ended))
		ret = 1;
	else if (!e || !e->in_flight)
		ret = err_set(-TARN_EENDED, "no asynchronous call is under way");
	session_leave(session);
	return ret;
}

TARN_API int tarn_cancel(struct tarn_session *session, uint64_t op)
{
	struct op *found;
	int ret;

	if (session && session->cluster)
		return cluster_cancel(session, op);
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	found = session->engine ? engine_op_find(session->engine, op) : NULL;
	if (found)
		engine_cancel(session->engine, found);
	else
		ret = err_set(-TARN_EENDED, "the operation %llu has ended, or there was none",
			      (unsigned long long)op);
	session_leave(session);
	return ret;
}
