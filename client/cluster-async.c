/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-async.c - asynchronous calls of a cluster's session
 *
 * Each is an operation of the engine of the member that has its key; when that has ended it is judged here, as cluster-call.c does,
 * and then picked up, or begun again elsewhere: at once, or a little later. Runs on the session's owner, housekeeping's
 * thread, too. Nothing in it waits but for connecting to a member, and for what a member says of the map. Next to
 * read: cluster-async.h, engine.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cluster-async.h"
#include "err.h"
#include "region-control.h"
#include "scan-internal.h"

#define MAP_NS       20000000u  /* for a question about the map */
#define OPEN_NS      2000000000u
#define PAUSE_MIN_NS 1000000u
#define PAUSE_MAX_NS 50000000u
#define SIDE_NS      50000u     /* sleep for one member of several */

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

void cluster_async_stop(struct cluster *c)
{
	struct tarn_session *m = NULL;

	if (!c->async)
		return;
	while ((m = cluster_session_next(c, m)) != NULL) {
		if (!m->engine)
			continue;
		if (m->lost)
			engine_abandon(m->engine);
		engine_refuse_all(m->engine, NULL, -TARN_ECANCELED);
		engine_stop(m->engine);
	}
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		if (c->async->ops[i].state != CALL_FREE)
			cluster_call_release(&c->async->ops[i]);
}

/* Of an open region, or of what is with a member and nowhere else. */
static bool is_bound(const struct cluster_op *call)
{
	return call->asked.region || (call->asked.control && !call->asked.control->search.front);
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
	a->lasting -= op_lasts(&call->asked);
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
	/* what is of its own is kept until it is picked up here */
	op->control = NULL;
	op->sync = NULL;
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

/* The same for a walk's next key. */
static bool settle_scan(struct cluster_async *a, struct cluster_op *call)
{
	struct tarn_scan *walk = call->asked.scan;
	int status = call->completion.status;

	if (walk->closed) {
		end(a, call, -TARN_ECANCELED);
	} else if (cluster_passes(status)) {
		again(a, call, status);
	} else if (status >= 0 && a->session->cluster->map->cache && !fresh_now(a)) {
		if (!call->cancelled && clock_now_ns() < call->asked.limit_ns)
			return false;
		cluster_scan_keep(walk, status, &call->completion.item);
		end(a, call, call->cancelled ? -TARN_ECANCELED : -TARN_EMAP);
	} else if (cluster_scan_judge(walk, &status)) {
		end(a, call, status);
	} else {
		later(a, call, 0);
	}
	if (call->state == CALL_ENDED && call->completion.status != 1)
		call->completion.key = NULL;
	return true;
}

/* The connection was made again for it, until its time was up. */
static void settle_bound(struct cluster_async *a, struct cluster_op *call)
{
	int status = call->completion.status;

	end(a, call, cluster_passes(status) ? -TARN_EUNAVAILABLE : status);
}

/* With this member, or that none can be asked. */
static void settle_search(struct cluster_async *a, struct cluster_op *call, int status)
{
	struct region_control *control = call->asked.control;
	bool aside = err_aside(true);
	uint64_t now = clock_now_ns(), pause = PAUSE_MIN_NS << (call->tries < 6 ? call->tries : 6);
	enum cluster_search next = SEARCH_END;

	if (!call->cancelled)
		next = cluster_region_next(control, &status);
	else if (control->search.probing || control->call == CONTROL_LIST)
		status = -TARN_ECANCELED;
	if (next == SEARCH_END || (next == SEARCH_LATER && now >= call->asked.limit_ns)) {
		end(a, call, status);
	} else if (next == SEARCH_ON) {
		later(a, call, 0);
	} else {
		control->search.missing[0] = 0;
		call->tries++;
		if (a->session->cluster->map->epoch == control->search.epoch &&
		    now - a->asked_ns > PAUSE_MIN_NS) {
			cluster_newer(a->session, now + MAP_NS, false);
			a->asked_ns = clock_now_ns();
		}
		later(a, call, now + (pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS));
	}
	err_aside(aside);
}

/* What has come of one is judged. False: it waits for a fresh map. */
static bool settle(struct cluster_async *a, struct cluster_op *call)
{
	int status = call->completion.status;
	bool write = is_write(call), changed = write && status == 0;

	if (call->asked.scan)
		return settle_scan(a, call);
	if (call->asked.region || call->asked.control) {
		if (is_bound(call))
			settle_bound(a, call);
		else
			settle_search(a, call, status);
		return true;
	}
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

/* The walk has a key, or is over, without a member: that is judged like what a member gives. */
static void arrive(struct cluster_async *a, struct cluster_op *call, int status)
{
	struct tarn_completion *completion = &call->completion;

	completion->status = status;
	if (status == 1)
		completion->key = cluster_scan_key(call->asked.scan, &completion->key_bytes,
						   &completion->item);
	call->state = CALL_ARRIVED;
	call->wake_ns = 0;
	TAILQ_INSERT_TAIL(&a->arrived, call, link);
}

/* 1: *ret_scan is to be asked. 0: that was all. Else a code. */
static int find_scan(struct cluster_async *a, struct cluster_op *call, uint64_t now,
		     struct tarn_session **ret_member, struct tarn_scan **ret_scan)
{
	struct tarn_scan *walk = call->asked.scan;
	int ret;

	call->epoch = a->session->cluster->map->epoch;
	ret = cluster_scan_step(walk, now + OPEN_NS, ret_scan);
	if (ret == 1 && cluster_scan_found(walk)) {
		arrive(a, call, 1);
		return 0;
	}
	if (ret == 0)
		end(a, call, 0);
	if (ret <= 0)
		return ret;
	*ret_member = (*ret_scan)->session;
	ret = engine_create(*ret_member);
	return ret < 0 ? ret : 1;
}

/* As find_scan(). */
static int find_region(struct cluster_op *call, uint64_t now, struct tarn_session **ret_member)
{
	struct region_control *control = call->asked.control;
	int ret = 0;

	if (call->asked.region)
		*ret_member = call->asked.region->session;
	else if (is_bound(call))
		*ret_member = control->session;
	else
		ret = cluster_region_pick(control, now + OPEN_NS, ret_member);
	if (ret == 0 && control)
		control->session = *ret_member;
	if (ret == 0)
		ret = engine_create(*ret_member);
	return ret < 0 ? ret : 1;
}

/* Whose it is now. A ping is anybody's. As find_scan(). */
static int find_member(struct cluster_async *a, struct cluster_op *call, uint64_t now,
		       struct tarn_session **ret_member, struct tarn_scan **ret_scan)
{
	struct cluster *c = a->session->cluster;
	int ret = 0;

	if (call->asked.scan)
		return find_scan(a, call, now, ret_member, ret_scan);
	call->epoch = c->map->epoch;
	if (call->asked.region || call->asked.control)
		return find_region(call, now, ret_member);
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
	return ret < 0 ? ret : 1;
}

/* One that is in no list. */
static void begin(struct cluster_async *a, struct cluster_op *call)
{
	uint64_t now = clock_now_ns();
	struct tarn_session *m = NULL;
	struct tarn_scan *scan = NULL;
	struct op *op;
	uint32_t serial;
	int ret;

	if (call->cancelled || now >= call->asked.limit_ns) {
		int status = call->tries > 0 ? -TARN_EUNAVAILABLE : -TARN_ETIMEOUT;

		if (call->cancelled)
			status = call->asked.control ? region_control_refuse(call->asked.control,
									     -TARN_ECANCELED)
						     : -TARN_ECANCELED;
		end(a, call, status);
		return;
	}
	if ((is_write(call) || (call->asked.scan && cluster_scan_skips(call->asked.scan))) && !fresh_now(a)) {
		if (now + PAUSE_MAX_NS >= call->asked.limit_ns)
			end(a, call, -TARN_EMAP);
		else
			later(a, call, now + PAUSE_MAX_NS / 4);
		return;
	}
	ret = find_member(a, call, now, &m, &scan);
	if (ret < 0 && call->asked.control && !is_bound(call)) {
		settle_search(a, call, ret);
		return;
	}
	if (ret < 0 && (ret == -TARN_EUNAVAILABLE || cluster_passes(ret)))
		again(a, call, ret);
	else if (ret < 0)
		end(a, call, ret);
	if (ret <= 0)
		return;
	op = engine_op(m->engine);
	if (!op) {
		later(a, call, now + PAUSE_MIN_NS);
		return;
	}
	serial = op->serial;
	*op = call->asked;
	op->serial = serial;
	op->scan = scan;
	if (scan)
		scan->op = op;
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
	if (ret == 0)
		ret = buffer_check(s, asked->buffer ? asked->buffer : asked->value, asked->bytes,
				   asked->buffer != NULL, false);
	a = s->cluster->async;
	call = ret == 0 ? TAILQ_FIRST(&a->free) : NULL;
	if (ret == 0 && !call)
		ret = err_set(-TARN_EBUSY,
			      "%u asynchronous calls are under way or not picked up: "
			      "tarn_session_poll() picks up those that have ended",
			      ENGINE_OPS);
	if (ret == 0 && op_lasts(asked) && a->lasting == ENGINE_WAITS)
		ret = err_set(-TARN_EBUSY,
			      "%u calls that wait in a region, or make, find or open one, are under "
			      "way: as many as there may be",
			      ENGINE_WAITS);
	if (ret == 0) {
		TAILQ_REMOVE(&a->free, call, link);
		serial = call->serial + 1;
		memset(call, 0, sizeof(*call));
		call->serial = serial ? serial : 1;
		call->asked = *asked;
		timeout_ns = async->timeout_ms ? async->timeout_ms * 1000000ull : s->timeout_ns;
		call->asked.limit_ns = clock_now_ns() + timeout_ns;
		call->done = async->done;
		call->completion.op = cluster_call_id(a, call);
		call->completion.cookie = async->cookie;
		call->completion.kind = asked->kind;
		if (ret_op)
			*ret_op = call->completion.op;
		a->in_flight++;
		a->lasting += op_lasts(asked);
		if (call->asked.scan)
			call->asked.scan->op = &call->asked;
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

	struct tarn_session *m = NULL;

	while ((m = cluster_session_next(c, m)) != NULL) {
		if (!m->engine)
			continue;
		moved |= engine_turn(m->engine);
		/* what waits for a connection may have another member by now; what is of an open region has not */
		if (m->lost && !engine_busy(m->engine) && m->engine->in_flight)
			moved |= engine_refuse_keys(m->engine, -TARN_ESESSION);
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

	struct tarn_session *m = NULL;

	while ((m = cluster_session_next(c, m)) != NULL) {
		if (!m->engine || !m->engine->in_flight)
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

/* Members whose regions are waited for. True: one is there again. That there is no connection yet is no failure of the call that waits. */
static bool connect_again(struct cluster *c, uint64_t until_ns)
{
	struct tarn_session *m = NULL;
	bool aside = err_aside(true), found = false;

	while (!found && (m = cluster_session_next(c, m)) != NULL) {
		uint64_t now = clock_now_ns();

		if (!m->lost || !m->engine || !m->engine->in_flight || engine_busy(m->engine) ||
		    now + SESSION_TRY_NS / 4 >= until_ns)
			continue;
		found = session_reconnect_try(m, until_ns - now < SESSION_TRY_NS ? until_ns - now
										 : SESSION_TRY_NS) == 0;
	}
	err_aside(aside);
	return found;
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
		if (!cluster_async_turn(s->cluster) && !connect_again(s->cluster, until))
			sleep_until(a, until);
	if (a && !TAILQ_EMPTY(&a->ended))
		ret = 1;
	else if (!a || !a->in_flight)
		ret = err_set(-TARN_EENDED, "no asynchronous call is under way");
	cluster_leave(s);
	return ret;
}
