/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.c - several operations of one session at a time: lanes, turns, and when to look again
 *
 * Runs on the session's owner: inside of the application's calls, and on the housekeeping thread, so
 * that operations go on when the application looks rarely. Next: engine.h for the rules, engine-queue.c
 * for what waits, engine-op.c for what an operation is, async.c for the public functions.
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"

#define WAIT_NS   100000000u /* at most; then it is looked again */
#define EXPIRE_NS 10000000u  /* between two looks through the queue */

int engine_create(struct tarn_session *s)
{
	struct engine *e;

	if (s->engine)
		return 0;
	e = calloc(1, sizeof(*e));
	if (e)
		e->ops = aligned_alloc(_Alignof(struct op), ENGINE_OPS * sizeof(*e->ops));
	if (!e || !e->ops) {
		free(e);
		return err_set(-ENOMEM, "no memory for asynchronous calls");
	}
	memset(e->ops, 0, ENGINE_OPS * sizeof(*e->ops));
	e->session = s;
	e->timer = -1;
	e->width.limit = ENGINE_WIDTH;
	TAILQ_INIT(&e->free);
	TAILQ_INIT(&e->queued);
	TAILQ_INIT(&e->ended);
	TAILQ_INIT(&e->idle);
	TAILQ_INIT(&e->idle_groups);
	TAILQ_INIT(&e->idle_waits);
	TAILQ_INIT(&e->ready);
	TAILQ_INIT(&e->asleep);
	TAILQ_INIT(&e->waiting);
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		TAILQ_INSERT_TAIL(&e->free, &e->ops[i], link);
	for (unsigned i = 0; i < ENGINE_LANES; i++) {
		e->lanes[i].engine = e;
		TAILQ_INSERT_TAIL(&e->idle, &e->lanes[i], link);
	}
	for (unsigned i = 0; i < ENGINE_GROUPS; i++) {
		e->groups[i].engine = e;
		TAILQ_INSERT_TAIL(&e->idle_groups, &e->groups[i], link);
	}
	for (unsigned i = 0; i < ENGINE_WAITS; i++) {
		e->waits[i].engine = e;
		TAILQ_INSERT_TAIL(&e->idle_waits, &e->waits[i], link);
	}
	e->process.engine = e;
	s->engine = e;
	return 0;
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		if (e->ops[i].state != OP_FREE)
			engine_op_free(e, &e->ops[i]);
	for (unsigned i = 0; i < ENGINE_LANES; i++)
		lane_free(&e->lanes[i]);
	for (unsigned i = 0; i < ENGINE_WAITS; i++)
		lane_free(&e->waits[i]);
	for (unsigned i = 0; i < ENGINE_GROUPS; i++)
		group_free(e->groups[i].group);
	if (e->timer >= 0)
		close(e->timer);
	free(e->ops);
	free(e);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static uint64_t raises(const struct engine *e)
{
	return process_raises(e->session->process);
}

static void make_ready(struct lane *lane)
{
	lane->state = LANE_READY;
	TAILQ_INSERT_TAIL(&lane->engine->ready, lane, link);
}

void engine_completed(struct lane *lane)
{
	if (lane->state != LANE_WAITS)
		return; /* in its step just now, which sees to it */
	/* who waits for an answer of the daemon's owes nothing */
	if (lane->task->asking)
		lane->since = raises(lane->engine);
	TAILQ_REMOVE(&lane->engine->waiting, lane, link);
	make_ready(lane);
}

static void lane_start(struct engine *e, struct lane *lane, struct task *task)
{
	lane->task = task;
	lane->since = raises(e);
	task->lane = lane;
	task->status = 0;
	e->running++;
	make_ready(lane);
}

/* The lanes of its kind. async.c sees to it that there are no more waits than lanes for them. */
static struct lane_list *idle_of(struct engine *e, const struct op *op)
{
	return op_lasts(op) ? &e->idle_waits : &e->idle;
}

/* Does the time rule bind it, so that there may be too many at a time? */
static bool in_width(const struct op *op)
{
	return !op->region && !op->control;
}

static void op_start(struct engine *e, struct op *op)
{
	struct lane *lane = TAILQ_FIRST(idle_of(e, op));
	struct task *task;

	lane->op = op;
	task = lane_begin(lane);
	if (!task) {
		engine_op_end(e, op);
		return;
	}
	TAILQ_REMOVE(idle_of(e, op), lane, link);
	e->width.used += in_width(op);
	op->state = OP_RUNNING;
	op->lane = lane;
	lane_start(e, lane, task);
}

/* An operation has ended. */
static void width_learn(struct engine *e)
{
	const struct tarn_session *s = e->session;
	struct width *w = &e->width;

	w->used--;
	if (w->too_old == s->too_old) {
		if (w->steady && ++w->ended < w->limit)
			return;
		w->ended = 0;
		if (w->limit < ENGINE_LANES)
			w->limit++;
		return;
	}
	w->too_old = s->too_old;
	w->ended = 0;
	/* those that were too late together count once */
	if (w->steady && session_now(e->session) - w->cut_ns < s->geometry.deadline_ns)
		return;
	w->cut_ns = session_now(e->session);
	w->steady = true;
	w->limit = w->limit > 1 ? w->limit / 2 : 1;
}

/* ---- groups of gets -------------------------------------------------------------------------- */

/* The group that is being filled, or a new one; NULL: none is free. */
static struct group *group_open(struct engine *e)
{
	struct lane *lane = e->filling;

	if (lane)
		return lane->group;
	lane = TAILQ_FIRST(&e->idle_groups);
	if (!lane || (!lane->group && group_create(e->session, &lane->group) < 0))
		return NULL;
	TAILQ_REMOVE(&e->idle_groups, lane, link);
	group_clear(lane->group);
	e->filling = lane;
	return lane->group;
}

static void group_close(struct engine *e)
{
	struct lane *lane = e->filling;

	if (!lane)
		return;
	e->filling = NULL;
	lane_start(e, lane, group_start(lane->group));
}

static bool for_groups(const struct op *op)
{
	return (op->kind == TARN_OP_GET || op->kind == TARN_OP_EXISTS) && !op->alone;
}

/* False: no group is free. */
static bool group_take(struct engine *e, struct op *op)
{
	struct group *group = group_open(e);
	struct group_get *get;

	if (!group)
		return false;
	op->state = OP_RUNNING;
	op->lane = NULL;
	get = group_add(group, op->key, op->key_bytes);
	get->buffer = op->buffer;
	get->bytes = op->bytes;
	get->exists_only = op->kind == TARN_OP_EXISTS;
	get->ret_status = &op->completion.status;
	get->ret_item = &op->completion.item;
	get->owner = op;
	if (group_count(group) == GROUP_OPS)
		group_close(e);
	return true;
}

static void group_end(struct engine *e, struct lane *lane)
{
	TAILQ_INSERT_HEAD(&e->idle_groups, lane, link);
	lane->state = LANE_FREE;
	for (unsigned i = 0; i < group_count(lane->group); i++) {
		void *owner;
		bool ended = group_ended(lane->group, i, &owner);
		struct op *op = owner;

		if (ended) {
			engine_op_end(e, op);
		} else if (op->cancelled) {
			op->completion.status = -TARN_ECANCELED;
			engine_op_end(e, op);
		} else {
			op->alone = true;
			op->state = OP_QUEUED;
			TAILQ_INSERT_HEAD(&e->queued, op, link);
		}
	}
}

/* ---- the end of a lane's task ---------------------------------------------------------------- */

/* The connection broke before it can have changed anything: it is made again on another one. */
static bool again(const struct engine *e, const struct op *op)
{
	if (MUTATED(MUTATION_PIPE_AGAIN) && op->completion.status == -TARN_EAMBIGUOUS)
		return true;
	return op->completion.status == -TARN_ESESSION && e->session->connector && !op->cancelled &&
	       session_now(e->session) < op->limit_ns;
}

static void lane_end(struct engine *e, struct lane *lane)
{
	struct op *op = lane->op;

	e->running--;
	lane->task->lane = NULL;
	if (lane->group) {
		group_end(e, lane);
		return;
	}
	if (!op) {
		lane->state = LANE_ENDED;
		return;
	}
	lane_result(lane);
	if (in_width(op))
		width_learn(e);
	lane->state = LANE_FREE;
	TAILQ_INSERT_HEAD(idle_of(e, op), lane, link);
	op->lane = NULL;
	if (again(e, op)) {
		op->state = OP_QUEUED;
		TAILQ_INSERT_HEAD(&e->queued, op, link);
	} else {
		engine_op_end(e, op);
	}
}

/* Does engine_run() wait for it? */
static bool is_calls_own(const struct engine *e, const struct lane *lane)
{
	return !lane->op && !lane->group && lane != &e->process;
}

/* What a blocking call waits for speaks for it: its text is the thread's. That of others is aside. */
static int step_own(struct lane *lane)
{
	bool aside = err_aside(lane->aside);
	int ret = lane->task->step(lane->task);

	err_aside(aside);
	return ret;
}

static void lane_step(struct engine *e, struct lane *lane)
{
	struct task *task = lane->task;

	if (is_calls_own(e, lane) ? step_own(lane) : task->step(task)) {
		lane_end(e, lane);
	} else if (task->wake_ns) {
		lane->state = LANE_SLEEPS;
		TAILQ_INSERT_TAIL(&e->asleep, lane, link);
	} else {
		lane->state = LANE_WAITS;
		TAILQ_INSERT_TAIL(&e->waiting, lane, link);
		if (task->completed)
			engine_completed(lane);
	}
}

static bool step_ready(struct engine *e)
{
	struct lane *lane;
	bool any = false;

	while ((lane = TAILQ_FIRST(&e->ready)) != NULL) {
		TAILQ_REMOVE(&e->ready, lane, link);
		lane_step(e, lane);
		any = true;
	}
	return any;
}

/* Those that have slept for long enough; `all` of them. */
static void wake(struct engine *e, uint64_t now, bool all)
{
	struct lane *lane, *next;

	for (lane = TAILQ_FIRST(&e->asleep); lane; lane = next) {
		next = TAILQ_NEXT(lane, link);
		if (!all && now < lane->task->wake_ns && !(lane->op && lane->op->cancelled))
			continue;
		TAILQ_REMOVE(&e->asleep, lane, link);
		lane->task->status = 0;
		/* with nothing in flight and nothing owed */
		lane->since = raises(e);
		make_ready(lane);
	}
}

bool engine_may_raise(const struct engine *e, const struct task *self)
{
	const struct lane_list *lists[2];
	const struct lane *lane;

	if (!engine_busy(e) || MUTATED(MUTATION_PIPE_RAISE))
		return true;
	lists[0] = &e->ready;
	lists[1] = &e->waiting;
	for (unsigned i = 0; i < 2; i++)
		TAILQ_FOREACH (lane, lists[i], link)
			if (lane->task != self && !lane->group && lane->since < raises(e) &&
			    !lane->task->asking)
				return false;
	return true;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void hold(struct tarn_session *s, int on)
{
	if (s->ep->ops->hold)
		s->ep->ops->hold(s->ep, on);
}

/* Those that wait and whose time is over: when nothing gets on, they would wait for ever. */
static void expire(struct engine *e, uint64_t now)
{
	int status = e->session->lost ? -TARN_ESESSION : -TARN_ETIMEOUT;
	struct op *op, *next;

	e->expire_ns = now + EXPIRE_NS;
	while ((op = writes_late(e, now)) != NULL)
		engine_refuse(e, op, status);
	for (op = TAILQ_FIRST(&e->queued); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (now >= op->limit_ns)
			engine_refuse(e, op, status);
	}
}

/* Is there an operation that waits only for a lane, and a lane of its kind? */
static bool startable(const struct engine *e)
{
	const struct op *op = TAILQ_FIRST(&e->queued);

	if (!op || e->session->lost)
		return false;
	if (for_groups(op))
		return e->filling || !TAILQ_EMPTY(&e->idle_groups);
	if (op_lasts(op))
		return true;
	return (!in_width(op) || e->width.used < e->width.limit) && !TAILQ_EMPTY(&e->idle);
}

static void start_queued(struct engine *e)
{
	while (startable(e)) {
		struct op *op = TAILQ_FIRST(&e->queued);

		TAILQ_REMOVE(&e->queued, op, link);
		if (!for_groups(op)) {
			op_start(e, op);
		} else if (!group_take(e, op)) {
			/* no memory: by itself, when there is a lane */
			op->alone = true;
			TAILQ_INSERT_HEAD(&e->queued, op, link);
		}
	}
	group_close(e);
}

static void fail_waiting(struct engine *e)
{
	struct lane *lane;

	while ((lane = TAILQ_FIRST(&e->waiting)) != NULL)
		session_break(e->session, lane->task);
}

bool engine_turn(struct engine *e)
{
	bool aside = err_aside(true), moved = engine_turn_loud(e);

	err_aside(aside);
	return moved;
}

bool engine_turn_loud(struct engine *e)
{
	struct tarn_session *s = e->session;
	bool moved = false;
	uint64_t now;
	int count;

	/* relaxed: a hint, as in session_leave(); a long wait must not keep housekeeping away */
	if (atomic_load_explicit(&s->wanted, memory_order_relaxed) && !s->lost) {
		atomic_store_explicit(&s->wanted, 0, memory_order_relaxed);
		engine_process(e);
	}
	hold(s, 1);
	do
		start_queued(e);
	while (step_ready(e) && (moved = true));
	hold(s, 0);
	while ((count = session_collect(s)) > 0)
		moved = true;
	if (count < 0)
		fail_waiting(e);
	if (engine_owes(e)) {
		now = session_now(s);
		wake(e, now, s->lost);
		session_rpc_limits(s, now);
		if (now >= e->expire_ns)
			expire(e, now);
	}
	return moved || !TAILQ_EMPTY(&e->ready);
}

int engine_run(struct engine *e, struct task *task)
{
	struct lane lane = {.engine = e};

	/* only to know it */
	lane.aside = err_aside(true);
	err_aside(lane.aside);
	e->session->work_limit_ns = task->limit_ns;
	lane_start(e, &lane, task);
	while (lane.state != LANE_ENDED)
		if (!engine_turn(e))
			engine_sleep(e, UINT64_MAX);
	return task->result;
}

void engine_process(struct engine *e)
{
	if (!engine_processing(e))
		lane_start(e, &e->process, process_start(e->session->process, false));
}

int engine_process_end(struct engine *e)
{
	while (engine_processing(e))
		if (!engine_turn(e))
			engine_sleep(e, UINT64_MAX);
	return e->process.task->result;
}

void engine_abandon(struct engine *e)
{
	bool aside = err_aside(true);

	while (engine_busy(e)) {
		fail_waiting(e);
		wake(e, 0, true);
		step_ready(e);
	}
	err_aside(aside);
}

void engine_stop(struct engine *e)
{
	for (unsigned i = 0; i < ENGINE_OPS; i++)
		if (engine_op_find(e, engine_op_id(e, &e->ops[i])))
			engine_cancel(e, &e->ops[i]);
	while (engine_busy(e))
		if (!engine_turn(e))
			engine_sleep(e, UINT64_MAX);
}

/* ---- when to look again ---------------------------------------------------------------------- */

uint64_t engine_due(const struct engine *e)
{
	const struct tarn_session *s = e->session;
	const struct task *task;
	const struct lane *lane;
	uint64_t due = UINT64_MAX;

	TAILQ_FOREACH (lane, &e->asleep, link)
		if (lane->task->wake_ns < due)
			due = lane->task->wake_ns;
	if (s->rpc && s->rpc->limit_ns < due)
		due = s->rpc->limit_ns;
	TAILQ_FOREACH (task, &s->listeners, rpc_link)
		if (task->limit_ns < due)
			due = task->limit_ns;
	/* more wait than run, or RPCs wait for their turn: each has a time of its own */
	if ((e->in_flight > e->running || !TAILQ_EMPTY(&s->rpcs)) && e->expire_ns < due)
		due = e->expire_ns;
	return due;
}

void engine_sleep(struct engine *e, uint64_t until_ns)
{
	uint64_t due = engine_due(e), most = session_now(e->session) + WAIT_NS;

	if (due > until_ns)
		due = until_ns;
	session_sleep(e->session, due < most ? due : most, !TAILQ_EMPTY(&e->waiting));
}

static void timer_set(struct engine *e, uint64_t due)
{
	struct itimerspec t = {.it_value = {0, 0}};
	uint64_t now = session_now(e->session), ns = due > now ? due - now : 1;

	if (due != UINT64_MAX)
		t.it_value =
			(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	timerfd_settime(e->timer, 0, &t, NULL);
	e->timer_ns = due;
}

void engine_watch(struct engine *e)
{
	const struct tarn_session *s = e->session;
	struct epoll_event event = {.events = EPOLLIN};
	bool at_once = !TAILQ_EMPTY(&e->ended) || !TAILQ_EMPTY(&e->ready) || startable(e);
	uint64_t due = at_once ? 0 : engine_due(e);

	if (e->timer < 0) {
		e->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		e->timer_ns = UINT64_MAX;
		if (e->timer < 0 || epoll_ctl(s->event_fd, EPOLL_CTL_ADD, e->timer, &event) < 0)
			return;
	}
	if (due != e->timer_ns)
		timer_set(e, due);
}
