/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h - inside of libtarn: several operations of one session at a time
 *
 * An operation is what an asynchronous call or an item of a batch asks for. It waits in a queue for a
 * lane; a lane runs it as a task (session.h). A turn starts what there is room for, steps every task
 * that can go on, hands all that they post to the endpoint together, and takes what has come. Nobody's
 * memory is allocated per operation. All on the session's owner. Blocking calls use the engine only
 * while it has something under way (session_run()).
 *
 * Order: none is promised between operations. But writes to one key never run side by side: the later
 * one waits; and if it is a put without a condition, and another such one comes meanwhile, it is taken for
 * written and at once written over: it ends with that one, or, if that one fails, gets its own turn.
 */
#ifndef TARN_ENGINE_H
#define TARN_ENGINE_H

#include <errno.h>

#include "err.h"
#include "group.h"
#include "kv.h"
#include "region-control.h"
#include "shard-put.h"
#include "sync-async.h"

#define ENGINE_OPS    4096u /* asynchronous operations that have not been picked up yet */
#define ENGINE_LANES  64u   /* operations that run; the others wait */
#define ENGINE_GROUPS 4u    /* groups of gets that run, besides */
#define ENGINE_WAITS  64u   /* waits for a region, or for the daemon, besides: they may take any time */

enum op_state {
	OP_FREE,
	OP_QUEUED,
	OP_BEHIND, /* another write to its key comes first */
	OP_UNDER,  /* written over before it was written: ends with the one that did it */
	OP_RUNNING,
	OP_ENDED
};

struct op {
	TAILQ_ENTRY(op) link; /* of the free, queued or ended ones */
	enum op_state state;
	uint32_t serial; /* tells apart what has had this place, see engine_op_id() */
	bool cancelled;
	bool alone;        /* a get that no group takes any more */
	struct lane *lane; /* that runs it; NULL: a group does */

	/* what is asked for: kind is enum tarn_op_kind. All memory is the caller's */
	uint32_t kind;
	const void *key;
	size_t key_bytes;
	void *buffer;
	const void *value;
	size_t bytes; /* of buffer or value */
	struct tarn_put_options options;
	bool with_options;
	int64_t delta;
	struct tarn_scan *scan;
	uint64_t limit_ns;

	/* of a region; NULL: it is about a key */
	struct tarn_region *region;
	enum region_goal goal;
	struct tarn_region_op *accesses; /* the caller's; NULL: `one` is it, if its kind is not 0 */
	size_t access_count;
	struct tarn_region_op one;
	uint64_t sequence;
	struct region_control *control; /* its own: REGION_CONTROL */
	struct sync_call *sync;         /* the handle's: SYNC */
	struct shard_job *moved;        /* a PUT or DELETE of a mover's, which it says all about: shard-put.h; else NULL */
	bool lasts;                     /* it may take any time */

	/* writes to one key: engine-writes.c */
	bool chained; /* it takes part in that */
	bool blind;   /* a put without a condition */
	uint64_t hash;
	struct op *next;   /* in its list of the table, or in the list `under` */
	struct op *behind; /* may run once this one has ended */
	struct op *last;   /* of the first one of a key: the last one behind it, or itself */
	struct op *under;  /* those that end with this one, the latest first */

	/* called once it has ended, inside of a turn; NULL: it waits in the list of the ended */
	void (*ended)(struct op *op);
	void *batch;
	tarn_done *done;
	_Alignas(64) struct tarn_completion completion;
};
TAILQ_HEAD(op_list, op);

/* Is its lane one of those for what may take any time? */
static inline bool op_lasts(const struct op *op)
{
	return op->lasts || op->kind == TARN_OP_REGION_WAIT || op->kind == TARN_OP_REGION_CONTROL;
}

/* A question to the daemon, as a task. */
struct ping {
	struct task task;
	struct tarn_session *session;
	bool posted;
	uint64_t began_ns, took_ns;
	uint8_t message[WIRE_RPC_BYTES], answer[WIRE_RPC_REPLY_BYTES];
};

/* What runs a task. */
struct lane {
	TAILQ_ENTRY(lane) link;
	struct engine *engine;
	struct task *task;
	struct op *op;       /* NULL: engine_run() waits for the task */
	struct kv_op *kv;    /* of this lane, made when it is used first */
	struct group *group; /* instead of the three above; likewise */
	struct ping ping;
	struct region_task region;
	bool aside; /* engine_run()'s: was the text of its caller so (err_aside())? */
	/* the quiescence count when it began, or when it last owed nothing */
	uint64_t since;
	enum { LANE_FREE, LANE_READY, LANE_WAITS, LANE_SLEEPS, LANE_ENDED } state;
};
TAILQ_HEAD(lane_list, lane);

/*
 * How many operations run at a time. As many as get done within D: where each takes its turn with others, as
 * CASes do that the daemon makes, ENGINE_LANES may be too many, and each would begin again and again. Found
 * out as TCP does it (RFC 5681): doubled at first, then one more each time that all have ended, and
 * half as many when one was too late.
 */
struct width {
	unsigned limit, used, ended;
	bool steady;      /* it was too large once */
	uint64_t too_old; /* the session's, as of then */
	uint64_t cut_ns;  /* when */
};
#define ENGINE_WIDTH 8u /* to begin with */

#define ENGINE_KEYS 1024u

struct engine {
	struct tarn_session *session;
	struct op *ops;
	struct op_list free, queued, ended;
	unsigned in_flight; /* operations that have not ended */
	struct lane lanes[ENGINE_LANES], groups[ENGINE_GROUPS], waits[ENGINE_WAITS], process;
	struct lane_list idle, idle_groups, idle_waits, ready, asleep, waiting;
	unsigned wait_count;            /* operations for these lanes that have not ended */
	struct lane *filling;           /* a group that takes operations in; NULL: none */
	unsigned running;               /* lanes in use, engine_run()'s, too */
	struct width width;             /* how many of `lanes` run */
	uint64_t expire_ns;             /* those that wait are looked through for who is late */
	struct op *writes[ENGINE_KEYS]; /* by the key's hash: the first write of each key */
	int timer;                      /* in session->event_fd; -1: none */
	uint64_t timer_ns;              /* when it wakes */
};

/* Makes the session's engine, if it has none. 0 or -ENOMEM. */
int engine_create(struct tarn_session *session);
void engine_free(struct engine *engine);

/* Is there a lane in use? NULL: no. */
static inline bool engine_busy(const struct engine *engine)
{
	return engine && engine->running > 0;
}

/* Or an operation that waits for one? */
static inline bool engine_owes(const struct engine *engine)
{
	return engine_busy(engine) || (engine && engine->in_flight > 0);
}

/* ---- engine-queue.c: operations ---- */

/* A free one with everything zero but completion.item; NULL: there are ENGINE_OPS. */
struct op *engine_op(struct engine *engine);
/* Does it get into memory that another one uses which has not been picked up, or the other way round? */
bool engine_clashes(const struct engine *engine, const struct op *op);
/* Can the library touch its memory? In debug builds also: is it its own? 0 or a negative code with a text. */
static inline int engine_op_check(const struct tarn_session *session, const struct op *op)
{
	if (TARN_DEBUG && engine_clashes(session->engine, op))
		return err_set(-EINVAL,
			       "the call's memory is that of another one under way, and one of "
			       "them gets into it");
	return buffer_check(session, op->buffer ? op->buffer : op->value, op->bytes,
			    op->buffer != NULL, false);
}
/* Queues one that is filled in. */
void engine_submit(struct engine *engine, struct op *op);
/* Its completion has been picked up. */
void engine_op_free(struct engine *engine, struct op *op);
static inline uint64_t engine_op_id(const struct engine *engine, const struct op *op)
{
	return (uint64_t)op->serial << 32 | (uint64_t)(op - engine->ops + 1);
}
/* The operation of this number, if it has not ended; else NULL. */
struct op *engine_op_find(struct engine *engine, uint64_t id);
/* One that waits, in the queue or for another one, ends with this status. */
void engine_refuse(struct engine *engine, struct op *op, int status);
/* Likewise all that wait and belong to this batch; NULL: all that do. */
void engine_refuse_all(struct engine *engine, const void *batch, int status);
/* Likewise all that wait and are of no region, nor about one. True: there was one. */
bool engine_refuse_keys(struct engine *engine, int status);
/* Does it get into this memory, or put from it, or has its key there? Does any so that has not been picked up? */
bool engine_op_uses(const struct op *op, const void *memory, size_t bytes);
bool engine_uses(const struct engine *engine, const void *memory, size_t bytes);
/* It ends as soon as it can. */
void engine_cancel(struct engine *engine, struct op *op);
/* It ends now, with its completion filled in; not one that waits. */
void engine_op_end(struct engine *engine, struct op *op);

/*
 * async.c: begins one that is filled in as far as the arguments go, for a public call.
 */
int async_begin(struct tarn_session *session, const struct op *asked, const struct tarn_async *async,
		uint64_t *ret_op);

/* ---- turns ---- */

/*
 * One turn. True: something has moved, so another one may be of use at once. What operations say of their failures
 * is not left as the thread's text (err_aside()): completions have none, and the caller may be another operation.
 */
bool engine_turn(struct engine *engine);
/* The same, but it is left: of a batch whose items are about all that is under way. */
bool engine_turn_loud(struct engine *engine);
/* When to look again if no completion comes: a time of the session's clock, or UINT64_MAX. */
uint64_t engine_due(const struct engine *engine);
/* Sleeps until something may go on, at most until then. */
void engine_sleep(struct engine *engine, uint64_t until_ns);
/* Drives this task to its end, and all others meanwhile. Returns its result. */
int engine_run(struct engine *engine, struct task *task);
/* Housekeeping's task begins, unless it is under way: nobody waits for it. */
void engine_process(struct engine *engine);
/* Is it under way? NULL: no. Then it can not begin, and is driven to its end. Returns its result. */
static inline bool engine_processing(const struct engine *engine)
{
	return engine && engine->process.task && engine->process.state != LANE_ENDED;
}
int engine_process_end(struct engine *engine);
/*
 * The connection is gone, and another one is about to be made: what runs ends; what may be made again
 * goes back to the queue.
 */
void engine_abandon(struct engine *engine);
/* Everything is cancelled and has ended. Blocks. Before the session is closed. */
void engine_stop(struct engine *engine);
/* Makes session->event_fd readable when there is something to do. */
void engine_watch(struct engine *engine);
/* completion.c: the lane's task has got what it waited for. */
void engine_completed(struct lane *lane);
/*
 * May the session's quiescence count be raised (docs/protocol.md section 6)? Not while a task is under
 * way that was so at the last raise, for it may owe something. `self` is not counted: it owes nothing.
 */
bool engine_may_raise(const struct engine *engine, const struct task *self);

/* ---- engine-op.c: an operation as a task ---- */
/* Prepares a task for the lane's operation; NULL: it has ended already, with completion.status. */
struct task *lane_begin(struct lane *lane);
/* Fills the completion from what the task has left. */
void lane_result(struct lane *lane);
/* Its operation is to end as soon as it can. */
void lane_cut(struct lane *lane);
void lane_free(struct lane *lane);

/* ---- engine-writes.c: writes to one key ---- */
/* A new one. True: it waits behind another one; false: it may run. */
bool writes_enter(struct engine *engine, struct op *op);
/*
 * One that was the first of its key has ended. Returns the one that may run now, or NULL. Those under
 * it are left to the caller.
 */
struct op *writes_leave(struct engine *engine, struct op *op);
/* The latest of those under it comes behind it, with the others under that one. */
void writes_inherit(struct op *op);
/* One that waits behind another one, or under it, is taken out. */
void writes_remove(struct engine *engine, struct op *op);
/* One of those behind the first ones, or under them, whose time is over; NULL: there is none. */
struct op *writes_late(struct engine *engine, uint64_t now);

#endif
