/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-async.c - asynchronous calls of a cluster's session
 *
 * Each is an operation of the engine of the member that has its key; when that has ended it is judged here, as cluster-call.c does,
 * and then picked up, or begun again elsewhere: at once, or a little later. Runs on the session's owner, housekeeping's
 * thread, too. Nothing in it waits but for connecting to a member, and for what a member says of the map. Next to
 * read: cluster.h, engine.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"

#define TURNS        4u         /* of one tarn_session_poll(): it shall not take long */
#define PICK_MAX     64u        /* callbacks of one tarn_session_poll() */
#define MAP_NS       20000000u  /* for a question about the map */
#define OPEN_NS      2000000000u
#define PAUSE_MIN_NS 1000000u
#define PAUSE_MAX_NS 50000000u
#define SIDE_NS      50000u     /* sleep for one member of several */

struct cluster_op {
	TAILQ_ENTRY(cluster_op) link; /* of the list of its state; under way: of none */
	enum { CALL_FREE, CALL_WAITS, CALL_UNDER_WAY, CALL_ARRIVED, CALL_ENDED } state;
	uint32_t serial;
	struct op asked; /* as it was filled in for a session, with its limit */
	tarn_done *done;
	bool cancelled;
	struct cluster_route route;
	uint64_t epoch; /* of the map when it was begun */
	unsigned tries;
	uint64_t wake_ns; /* waits, arrived: not to be looked at before */
	struct tarn_session *member; /* under way: with it, as that operation */
	struct op *op;
	struct tarn_completion completion;
};
TAILQ_HEAD(cluster_ops, cluster_op);

struct cluster_async {
	struct tarn_session *session;
	struct cluster_op *ops;
	struct cluster_ops free, waits, arrived, ended;
	unsigned in_flight; /* that have not ended */
	uint64_t asked_ns;  /* whether there is a newer map, last */
};

static int async_create(struct tarn_session *s)
{
	struct cluster *c = s->cluster;
	struct cluster_async *a;

	if (c->async)
		return 0;
	a = calloc(1, sizeof(*a));
	if (a)
		a->ops = aligned_alloc(_Alignof(struct cluster_op), ENGINE_OPS * sizeof(*a->ops));
	if (!a || !a->ops) {
		free(a);
		return err_set(-ENOMEM, "no memory for asynchronous calls");
	}
	memset(a->ops, 0, ENGINE_OPS * sizeof(*a->ops));
	a->session = s;
	TAILQ_INIT(&a->free);
	TAILQ_INIT(&a->waits);
	TAILQ_INIT(&a->arrived);
	TAILQ_INIT(&a->ended);
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		TAILQ_INSERT_TAIL(&a->free, &a->ops[i], link);
	c->async = a;
	return 0;
}

void cluster_async_free(struct cluster *c)
{
	if (!c->async)
		return;
	free(c->async->ops);
	free(c->async);
	c->async = NULL;
}

static uint64_t call_id(const struct cluster_async *a, const struct cluster_op *call)
{
	return (uint64_t)call->serial << 32 | (uint64_t)(call - a->ops + 1);
}

static bool is_write(const struct cluster_op *call)
{
	return call->asked.kind == TARN_OP_PUT || call->asked.kind == TARN_OP_DELETE ||
	       call->asked.kind == TARN_OP_ADD;
}

static bool is_cache_read(const struct cluster_async *a, const struct cluster_op *call)
{
	return a->session->cluster->map->cache &&
	       (call->asked.kind == TARN_OP_GET || call->asked.kind == TARN_OP_EXISTS);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void end(struct cluster_async *a, struct cluster_op *call, int status)
{
	call->state = CALL_ENDED;
	call->completion.status = status;
	a->in_flight--;
	TAILQ_INSERT_TAIL(&a->ended, call, link);
}

static void later(struct cluster_async *a, struct cluster_op *call, uint64_t wake_ns)
{
	call->state = CALL_WAITS;
	call->wake_ns = wake_ns;
	TAILQ_INSERT_TAIL(&a->waits, call, link);
}

/* In a turn of the member's engine: nothing else may be done there. */
static void call_ended(struct op *op)
{
	struct cluster_op *call = op->batch;
	struct cluster_async *a = call->member->front->cluster->async;
	struct tarn_completion *completion = &call->completion;
	uint64_t id = completion->op;
	void *cookie = completion->cookie;

	*completion = op->completion;
	completion->op = id;
	completion->cookie = cookie;
	/* the member's session ended under it */
	if (completion->status == -TARN_ECANCELED && !call->cancelled)
		completion->status = -TARN_ESESSION;
	engine_op_free(call->member->engine, op);
	call->member = NULL;
	call->op = NULL;
	call->state = CALL_ARRIVED;
	call->wake_ns = 0;
	TAILQ_INSERT_TAIL(&a->arrived, call, link);
}

/* It has ended with a code that passes, or nobody has its shard: a newer map, or a pause, or that is its end. */
static void again(struct cluster_async *a, struct cluster_op *call, int status)
{
	struct cluster *c = a->session->cluster;
	uint64_t now = clock_now_ns(), pause = PAUSE_MIN_NS << (call->tries < 6 ? call->tries : 6);
	bool nobody = status == -TARN_EUNAVAILABLE;

	if (call->cancelled) {
		end(a, call, -TARN_ECANCELED);
		return;
	}
	if (is_cache_read(a, call) && status != -TARN_EMOVED && call->tries > 0) {
		end(a, call, -TARN_ENOTFOUND);
		return;
	}
	if (now >= call->asked.limit_ns || (nobody && !c->map->cache && call->tries > 0)) {
		end(a, call, call->asked.kind == TARN_OP_PING ? status : -TARN_EUNAVAILABLE);
		return;
	}
	if (c->map->epoch == call->epoch && now - a->asked_ns > PAUSE_MIN_NS) {
		cluster_newer(a->session, now + MAP_NS, call->tries % 4 == 0);
		a->asked_ns = clock_now_ns();
	}
	if (pause > PAUSE_MAX_NS)
		pause = PAUSE_MAX_NS;
	if (c->map->epoch > call->epoch)
		pause = 0;
	else
		call->tries++;
	later(a, call, now + pause);
}

static bool fresh_now(struct cluster_async *a)
{
	struct cluster *c = a->session->cluster;
	uint64_t now = clock_now_ns();

	if (cluster_fresh(c))
		return true;
	if (now - a->asked_ns <= PAUSE_MIN_NS)
		return false;
	cluster_refresh(a->session, now + MAP_NS);
	a->asked_ns = clock_now_ns();
	return cluster_fresh(c);
}

static bool conclusive(int status)
{
	return status >= 0 || status == -TARN_ENOTFOUND || status == -TARN_EEXISTS ||
	       status == -TARN_ESTAMP || status == -TARN_ETYPE || status == -TARN_ETOOSMALL;
}

/* What has come of one is judged. False: it waits for a fresh map. */
static bool settle(struct cluster_async *a, struct cluster_op *call)
{
	int status = call->completion.status;
	bool write = is_write(call), changed = write && status == 0;

	if (call->asked.kind == TARN_OP_PING && !cluster_passes(status)) {
		end(a, call, status);
	} else if (cluster_passes(status)) {
		again(a, call, status);
	} else if (!conclusive(status)) {
		end(a, call, status);
	} else if ((write || is_cache_read(a, call)) && !fresh_now(a)) {
		if (clock_now_ns() < call->asked.limit_ns)
			return false;
		end(a, call,
		    changed ? -TARN_EAMBIGUOUS
			    : write ? -TARN_EMAP
				    : -TARN_ENOTFOUND);
	} else if (cluster_taken(a->session->cluster, &call->route)) {
		if (changed)
			end(a, call, -TARN_EAMBIGUOUS);
		else
			again(a, call, -TARN_EMOVED);
	} else {
		end(a, call, status);
	}
	return true;
}

/* ---- begins ---------------------------------------------------------------------------------- */

/* Whose it is now. A ping is anybody's. */
static int find_member(struct cluster_async *a, struct cluster_op *call, uint64_t now,
		       struct tarn_session **ret_member)
{
	struct cluster *c = a->session->cluster;
	int ret = 0;

	call->epoch = c->map->epoch;
	if (call->asked.kind == TARN_OP_PING)
		call->route.place = (c->asked + call->tries) % c->map->member_count;
	else
		ret = cluster_route(c,
				    cluster_map_shard(c->map, call->asked.key, call->asked.key_bytes),
				    &call->route);
	if (ret == 0)
		ret = cluster_node_session(a->session, call->route.place, now + OPEN_NS, ret_member);
	if (ret == 0)
		ret = engine_create(*ret_member);
	return ret;
}

/* One that is in no list. */
static void begin(struct cluster_async *a, struct cluster_op *call)
{
	uint64_t now = clock_now_ns();
	struct tarn_session *m = NULL;
	struct op *op;
	uint32_t serial;
	int ret;

	if (call->cancelled || now >= call->asked.limit_ns) {
		int status = call->tries > 0 ? -TARN_EUNAVAILABLE : -TARN_ETIMEOUT;

		end(a, call, call->cancelled ? -TARN_ECANCELED : status);
		return;
	}
	if (is_write(call) && !fresh_now(a)) {
		if (now + PAUSE_MAX_NS >= call->asked.limit_ns)
			end(a, call, -TARN_EMAP);
		else
			later(a, call, now + PAUSE_MAX_NS / 4);
		return;
	}
	ret = find_member(a, call, now, &m);
	if (ret < 0 && (ret == -TARN_EUNAVAILABLE || cluster_passes(ret)))
		again(a, call, ret);
	else if (ret < 0)
		end(a, call, ret);
	if (ret < 0)
		return;
	op = engine_op(m->engine);
	if (!op) {
		later(a, call, now + PAUSE_MIN_NS);
		return;
	}
	serial = op->serial;
	*op = call->asked;
	op->serial = serial;
	op->completion.kind = op->kind;
	op->ended = call_ended;
	op->batch = call;
	call->member = m;
	call->op = op;
	call->state = CALL_UNDER_WAY;
	engine_submit(m->engine, op);
}

int cluster_async_begin(struct tarn_session *s, const struct op *asked,
			const struct tarn_async *async, uint64_t *ret_op)
{
	uint64_t timeout_ns;
	struct cluster_async *a;
	struct cluster_op *call;
	uint32_t serial;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	ret = async_create(s);
	a = s->cluster->async;
	call = ret == 0 ? TAILQ_FIRST(&a->free) : NULL;
	if (ret == 0 && !call)
		ret = err_set(-TARN_EBUSY,
			      "%u asynchronous calls are under way or not picked up: "
			      "tarn_session_poll() picks up those that have ended",
			      ENGINE_OPS);
	if (ret == 0) {
		TAILQ_REMOVE(&a->free, call, link);
		serial = call->serial + 1;
		memset(call, 0, sizeof(*call));
		call->serial = serial ? serial : 1;
		call->asked = *asked;
		timeout_ns = async->timeout_ms ? async->timeout_ms * 1000000ull : s->timeout_ns;
		call->asked.limit_ns = clock_now_ns() + timeout_ns;
		call->done = async->done;
		call->completion.op = call_id(a, call);
		call->completion.cookie = async->cookie;
		call->completion.kind = asked->kind;
		if (ret_op)
			*ret_op = call->completion.op;
		a->in_flight++;
		begin(a, call);
	}
	cluster_leave(s);
	return ret;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* True: something has moved. */
static bool turn_members(struct cluster *c)
{
	bool moved = false;

	for (uint32_t i = 0; i < c->map->member_count; i++) {
		struct tarn_session *m = c->nodes[i].session;

		if (!m || !m->engine)
			continue;
		moved |= engine_turn(m->engine);
		/* what waits for a connection may have another member by now */
		if (m->lost && !engine_busy(m->engine) && m->engine->in_flight)
			engine_refuse_all(m->engine, NULL, -TARN_ESESSION);
	}
	return moved;
}

/* Each that is there now, once. */
static bool look_through(struct cluster_async *a, struct cluster_ops *list)
{
	struct cluster_op *call, *last = TAILQ_LAST(list, cluster_ops), *next;
	uint64_t now = clock_now_ns();
	bool moved = false;

	for (call = TAILQ_FIRST(list); call; call = next) {
		bool arrived = call->state == CALL_ARRIVED;

		next = call == last ? NULL : TAILQ_NEXT(call, link);
		if (call->wake_ns > now && !call->cancelled)
			continue;
		TAILQ_REMOVE(list, call, link);
		if (!arrived) {
			begin(a, call);
		} else if (!settle(a, call)) {
			call->wake_ns = now + PAUSE_MIN_NS * 5;
			TAILQ_INSERT_TAIL(list, call, link);
			continue;
		}
		moved = true;
	}
	return moved;
}

bool cluster_async_turn(struct cluster *c)
{
	struct cluster_async *a = c->async;
	bool moved;

	if (!a || !a->in_flight)
		return false;
	moved = turn_members(c);
	moved |= look_through(a, &a->arrived);
	moved |= look_through(a, &a->waits);
	return moved;
}

/* Until something may go on, at most until then. */
static void sleep_until(struct cluster_async *a, uint64_t until_ns)
{
	struct cluster *c = a->session->cluster;
	struct engine *one = NULL;
	unsigned busy = 0;

	for (uint32_t i = 0; i < c->map->member_count; i++) {
		struct tarn_session *m = c->nodes[i].session;

		if (!m || !m->engine || !m->engine->in_flight)
			continue;
		one = m->engine;
		busy++;
	}
	if (busy != 1 || !TAILQ_EMPTY(&a->waits) || !TAILQ_EMPTY(&a->arrived)) {
		uint64_t soon = clock_now_ns() + (one ? SIDE_NS : PAUSE_MIN_NS);

		until_ns = soon < until_ns ? soon : until_ns;
	}
	if (one)
		engine_sleep(one, until_ns);
	else
		clock_sleep_ns(PAUSE_MIN_NS);
}

/* ---- what the public functions do ------------------------------------------------------------ */

static void release(struct cluster_async *a, struct cluster_op *call)
{
	TAILQ_REMOVE(&a->ended, call, link);
	call->state = CALL_FREE;
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

int cluster_wait(struct tarn_session *s, uint32_t timeout_ms)
{
	struct cluster_async *a;
	uint64_t until;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	a = s->cluster->async;
	until = clock_now_ns() + timeout_ms * 1000000ull;
	while (a && a->in_flight && TAILQ_EMPTY(&a->ended) && clock_now_ns() < until)
		if (!cluster_async_turn(s->cluster))
			sleep_until(a, until);
	if (a && !TAILQ_EMPTY(&a->ended))
		ret = 1;
	else if (!a || !a->in_flight)
		ret = err_set(-TARN_EENDED, "no asynchronous call is under way");
	cluster_leave(s);
	return ret;
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
	if (!call || call_id(a, call) != id || call->state == CALL_FREE ||
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
