/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-control.c - making, finding, opening and unmaking a region, as a task that asks the daemon
 *
 * Runs on the session's owner, driven by session_run() or the engine. What only looks is asked again after a lost
 * connection (-TARN_ESESSION); a CREATE that may have arrived is -TARN_EAMBIGUOUS. Next: region-control.h.
 */
#include "region-control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handle.h"

#define LOOK_MIN_NS 1000000u /* between two looks whether a region is ready */
#define LOOK_MAX_NS 50000000u
#define ROUND_BYTES 4096u /* of a region's size, by the daemon */

static int end(struct region_control *c, int result)
{
	c->attach.task.result = result;
	return 1;
}

/* Goes on with another question. */
static int next(struct region_control *c, enum control_stage stage)
{
	c->stage = stage;
	return 2;
}

static int no_region(struct region_control *c, int code)
{
	if (code != -TARN_ENOREGION)
		return end(c, code);
	return end(c,
		   err_set(code, "there is no region %s: tarn_region_list() has those of the pool",
			   c->name));
}

static int no_memory(struct region_control *c)
{
	return end(c,
		   err_set(-TARN_EPOOLFULL,
			   "region %s: the node could not get the memory for it, or register it; "
			   "tarnd's log says why",
			   c->name));
}

/* ---- stat and list --------------------------------------------------------------------------- */

static void info_fill(const struct region_control *c, const struct wire_region_reply *reply,
		      struct tarn_region_info *info)
{
	*info = (struct tarn_region_info){
		.size = sizeof(*info),
		.state = reply->state,
		.id = reply->id,
		.bytes = reply->bytes,
		.ready_bytes = reply->value,
		.ready_of_bytes = reply->length,
		.created_ms = reply->created_ms,
		.opens = reply->number,
	};
	memcpy(info->name, c->name, sizeof(info->name));
	memcpy(info->member, c->search.member, sizeof(info->member));
}

void region_info_tell(const struct tarn_region_info *from, struct tarn_region_info *to)
{
	size_t size = to->size < sizeof(*from) ? to->size : sizeof(*from);

	memcpy((uint8_t *)to + sizeof(uint32_t), (const uint8_t *)from + sizeof(uint32_t),
	       size - sizeof(uint32_t));
}

/* It was to be destroyed, and the answer was lost: by now somebody may have made another one of that name. */
static int destroy_looked(struct region_control *c, int status,
			  const struct wire_region_reply *reply)
{
	if (status == -TARN_ENOREGION || (status == 0 && reply->id != c->id))
		return end(c, 0);
	if (status < 0)
		return end(c, status);
	return next(c, reply->state == TARN_REGION_DESTROYING ? CONTROL_GONE : CONTROL_DESTROY);
}

static int stat_answered(struct region_control *c, int status,
			 const struct wire_region_reply *reply)
{
	/* one may go between being listed and being looked at */
	if (c->call == CONTROL_LIST && status == -TARN_ENOREGION)
		return next(c, CONTROL_LIST);
	if (c->call == CONTROL_DESTROY && c->begun)
		return destroy_looked(c, status, reply);
	if (status < 0)
		return no_region(c, status);
	if (c->call == CONTROL_DESTROY) {
		c->id = reply->id;
		return next(c, CONTROL_DESTROY);
	}
	info_fill(c, reply, &c->info);
	region_info_tell(&c->info, c->ret_info);
	if (c->call != CONTROL_LIST)
		return end(c, 0);
	*c->ret_cursor = c->number;
	return end(c, 1);
}

static int list_answered(struct region_control *c, int status,
			 const struct wire_region_reply *reply)
{
	if (status < 0)
		return end(c, status == -TARN_ENOREGION ? 0 : status);
	if (reply->id <= c->number || wire_region_name_check(reply->name) < 0)
		return end(c, err_set(-TARN_EPROTO, "tarnd's list of regions makes no sense"));
	c->number = reply->id;
	memcpy(c->name, reply->name, sizeof(c->name));
	return next(c, CONTROL_STAT);
}

/* ---- pauses ---------------------------------------------------------------------------------- */

/* The daemon is at it: the time begins again. */
static void progressed(struct region_control *c)
{
	c->next_pause_ns = LOOK_MIN_NS;
	if (c->patient && !c->cut)
		c->limit_ns = session_now(c->session) + c->session->timeout_ns;
}

/* Asks again later. False: there is no time left for that. */
static bool later(struct region_control *c)
{
	uint64_t now = session_now(c->session), ns = c->next_pause_ns;

	if (c->cut || now + 2 * LOOK_MIN_NS > c->limit_ns)
		return false;
	/* the last look is in time, too */
	if (ns > c->limit_ns - now - LOOK_MIN_NS)
		ns = c->limit_ns - now - LOOK_MIN_NS;
	c->next_pause_ns = ns * 2 < LOOK_MAX_NS ? ns * 2 : LOOK_MAX_NS;
	if (c->blocking)
		c->pause_ns = ns;
	else
		c->attach.task.wake_ns = now + ns;
	return true;
}

static int paused(struct region_control *c)
{
	return c->blocking ? end(c, 0) : 0;
}

/* ---- create and resize ----------------------------------------------------------------------- */

static int refused(struct region_control *c, int code)
{
	switch (code) {
	case -TARN_EEXISTS:
		return end(c, err_set(code, "there is a region %s already", c->name));
	case -TARN_EQUOTA:
		return end(c, err_set(code,
				      "region %s of %llu bytes: that is more than region_memory in "
				      "the pool's section of tarnd.conf leaves (or there are 4096 "
				      "regions)",
				      c->name, (unsigned long long)c->number));
	case -TARN_EPOOLFULL:
		return no_memory(c);
	case -TARN_EBUSY:
		return end(c,
			   err_set(code,
				   "region %s is open, being made or destroyed, or has failed: it "
				   "can not be resized now (tarn_region_stat() tells)",
				   c->name));
	default:
		return no_region(c, code);
	}
}

static int ambiguous(struct region_control *c, const char *what)
{
	return end(c, err_set(-TARN_EAMBIGUOUS,
			      "the connection was lost: region %s may have been %s; "
			      "tarn_region_stat() tells",
			      c->name, what));
}

static int make_answered(struct region_control *c, int status,
			 const struct wire_region_reply *reply)
{
	bool before = c->begun;

	(void)reply;
	c->begun |= c->attach.task.sent;
	if (status == -TARN_ESESSION && c->stage == CONTROL_CREATE && c->attach.task.sent)
		return ambiguous(c, "made");
	/* asked again, after an answer that was lost: busy may be what was asked for before */
	if (status == -TARN_EBUSY && before)
		return ambiguous(c, "begun to be resized");
	if (status == -TARN_ESESSION)
		return end(c, status);
	if (status < 0)
		return refused(c, status);
	if (c->background)
		return end(c, 0);
	progressed(c);
	return next(c, CONTROL_LOOK);
}

static int made(struct region_control *c)
{
	if (c->call == CONTROL_CREATE && c->info.state == TARN_REGION_FAILED) {
		/* it takes something back, so it has a time of its own */
		c->limit_ns = session_now(c->session) + c->session->timeout_ns;
		return next(c, CONTROL_UNDO);
	}
	if (c->call == CONTROL_CREATE)
		return end(c, 0);
	if (c->info.bytes < c->number || c->info.bytes - c->number >= ROUND_BYTES)
		return no_memory(c);
	return end(c, 0);
}

static int look_answered(struct region_control *c, int status,
			 const struct wire_region_reply *reply)
{
	if (status < 0)
		return no_region(c, status);
	info_fill(c, reply, &c->info);
	if (c->info.state == TARN_REGION_READY || c->info.state == TARN_REGION_FAILED)
		return made(c);
	if (c->info.state == TARN_REGION_DESTROYING)
		return end(c,
			   err_set(-TARN_ENOREGION, "somebody has destroyed region %s", c->name));
	if (c->info.ready_bytes != c->progress && c->patient && !c->cut)
		c->limit_ns = session_now(c->session) + c->session->timeout_ns;
	c->progress = c->info.ready_bytes;
	if (later(c))
		return paused(c);
	return end(c, err_set(-TARN_ETIMEOUT,
			      "region %s is not ready yet (%llu of %llu bytes of work are done): "
			      "tarnd goes on with it",
			      c->name, (unsigned long long)c->info.ready_bytes,
			      (unsigned long long)c->info.ready_of_bytes));
}

static int undo_answered(struct region_control *c, int status,
			 const struct wire_region_reply *reply)
{
	(void)status;
	(void)reply;
	return no_memory(c);
}

/* ---- destroy --------------------------------------------------------------------------------- */

static int destroy_answered(struct region_control *c, int status,
			    const struct wire_region_reply *reply)
{
	(void)reply;
	c->begun |= c->attach.task.sent;
	if (status == -TARN_ESESSION && c->attach.task.sent)
		c->stage = CONTROL_STAT; /* first, on the next connection */
	if (status < 0 && status != -TARN_ENOREGION)
		return end(c, status);
	progressed(c);
	return next(c, CONTROL_GONE);
}

/* Until nobody has access any more. */
static int gone_answered(struct region_control *c, int status,
			 const struct wire_region_reply *reply)
{
	if (status == -TARN_ENOREGION || (status == 0 && reply->id != c->id))
		return end(c, 0);
	if (status < 0)
		return end(c, status);
	if (later(c))
		return paused(c);
	return end(c,
		   err_set(-TARN_ETIMEOUT,
			   "region %s is still being destroyed: tarnd goes on with it", c->name));
}

/* ---- open ------------------------------------------------------------------------------------ */

/* A number that no other region of the session has; 0: all are in use. */
static unsigned space_free(const struct tarn_session *s)
{
	uint64_t used = 0;
	const struct tarn_region *region;

	LIST_FOREACH (region, &s->regions, link)
		used |= 1ull << region->space;
	for (unsigned space = 1; space <= TARN_REGION_OPEN_MAX; space++)
		if (!(used & 1ull << space))
			return space;
	return 0;
}

/* Its number is its own from now on. */
static void enter(struct region_control *c)
{
	struct tarn_region *region = c->region;

	region->space = space_free(c->session);
	if (!region->space)
		return;
	region->session = c->session;
	memcpy(region->name, c->name, sizeof(region->name));
	memcpy(region->member, c->search.member, sizeof(region->member));
	region->read_only |= c->session->identity.read_only;
	LIST_INSERT_HEAD(&c->session->regions, region, link);
}

/* On this connection nothing is known of it yet. */
static void attach_again(struct region_control *c)
{
	struct tarn_region *region = c->region;

	region->id = 0;
	region->gone = region->attaching = region->attached = false;
	region_task(&c->attach, region, REGION_ATTACH, NULL, 0);
	c->attach.limit_ns = c->limit_ns;
}

/* Has the daemon opened it, or is about to? Who does not answer in time is not asked for more. */
static bool to_be_closed(const struct region_control *c, int code)
{
	if (c->session->lost || code == -TARN_ESESSION)
		return false;
	return c->cut ? c->attach.task.sent || c->region->id
		      : c->region->id && code != -TARN_ETIMEOUT;
}

static int opened(struct region_control *c)
{
	int ret = c->attach.task.result;

	if (ret == 0) {
		*c->ret_region = c->region;
		c->region = NULL;
		return end(c, 0);
	}
	if (ret == -TARN_EPOOLFULL)
		no_memory(c);
	else
		no_region(c, ret);
	if (!to_be_closed(c, ret))
		return 1;
	c->result = ret;
	snprintf(c->text, sizeof(c->text), "%s", err_text());
	c->limit_ns = session_now(c->session) + c->session->timeout_ns;
	return next(c, CONTROL_CLOSE);
}

static int attach(struct region_control *c)
{
	if (!c->region->space)
		return end(c, err_set(-ENOSPC, "a session may have %u regions open",
				      TARN_REGION_OPEN_MAX));
	/* between two tries */
	if (c->cut && c->attach.step == REGION_BEGIN)
		return end(c, err_set(-TARN_ETIMEOUT, "cancelled"));
	return region_step(&c->attach) ? opened(c) : 0;
}

static int close_answered(struct region_control *c, int status,
			  const struct wire_region_reply *reply)
{
	const struct fabric_ops *ops = c->session->ep->ops;

	(void)status;
	(void)reply;
	/* what came with an answer that nobody waited for any more */
	if (ops->space_remove)
		ops->space_remove(c->session->ep, c->region->space);
	return end(c, c->call == CONTROL_CLOSE ? 0 : err_set(c->result, "%s", c->text));
}

/* ---- the task -------------------------------------------------------------------------------- */

/* OPEN has none: it is region-task.c's. */
static const struct {
	uint8_t call;
	bool numbered; /* with control->number */
	bool last;     /* is asked also when the call is to end: it takes something back */
	int (*answered)(struct region_control *c, int status,
			const struct wire_region_reply *reply);
} stages[] = {
	[CONTROL_STAT] = {WIRE_REGION_STAT, false, false, stat_answered},
	[CONTROL_LIST] = {WIRE_REGION_LIST, true, false, list_answered},
	[CONTROL_CREATE] = {WIRE_REGION_CREATE, true, false, make_answered},
	[CONTROL_RESIZE] = {WIRE_REGION_RESIZE, true, false, make_answered},
	[CONTROL_LOOK] = {WIRE_REGION_STAT, false, false, look_answered},
	[CONTROL_UNDO] = {WIRE_REGION_DESTROY, false, true, undo_answered},
	[CONTROL_DESTROY] = {WIRE_REGION_DESTROY, false, false, destroy_answered},
	[CONTROL_GONE] = {WIRE_REGION_STAT, false, false, gone_answered},
	[CONTROL_CLOSE] = {WIRE_REGION_CLOSE, false, true, close_answered},
};

static int answer(struct region_control *c)
{
	struct wire_region_reply reply = {.call = 0};
	int status = region_ask_reply(c->session, c->attach.task.status, c->attach.answer,
				      c->attach.task.length, &reply);

	c->asked = false;
	return stages[c->stage].answered(c, status, &reply);
}

static int ask(struct region_control *c)
{
	struct wire_region_request request = {.call = stages[c->stage].call};
	int ret;

	if (c->cut && !stages[c->stage].last)
		return end(c, err_set(-TARN_ETIMEOUT, "cancelled"));
	if (stages[c->stage].numbered)
		request.number = c->number;
	if (c->stage == CONTROL_CLOSE)
		request.handle = c->region->space;
	else if (c->stage != CONTROL_LIST)
		memcpy(request.name, c->name, sizeof(request.name));
	wire_region_request_encode(&request, c->attach.message);
	c->attach.task.limit_ns = c->limit_ns;
	c->asked = true;
	ret = session_rpc(c->session, c->attach.message, sizeof(c->attach.message),
			  c->attach.answer, sizeof(c->attach.answer), &c->attach.task);
	if (ret == 0)
		return 0;
	/* it has not left */
	c->asked = false;
	return stages[c->stage].last ? stages[c->stage].answered(c, ret, NULL) : end(c, ret);
}

static int step(struct task *task)
{
	struct region_control *c = (struct region_control *)task;
	int ret;

	task->wake_ns = 0;
	do {
		if (c->stage == CONTROL_OPEN)
			ret = attach(c);
		else
			ret = c->asked ? answer(c) : ask(c);
	} while (ret == 2);
	return ret;
}

struct task *region_control_task(struct region_control *c)
{
	struct tarn_session *s = c->session;
	struct task *task = &c->attach.task;

	if (!c->started) {
		c->started = true;
		c->limit_ns = session_limit(s, session_now(s));
		c->next_pause_ns = LOOK_MIN_NS;
		if (c->stage == CONTROL_OPEN)
			enter(c);
	}
	if (c->stage == CONTROL_OPEN && c->region->space)
		attach_again(c);
	*task = (struct task){.step = step, .limit_ns = c->limit_ns};
	c->asked = false;
	c->pause_ns = 0;
	return task;
}

void region_control_cut(struct region_control *c)
{
	c->cut = true;
	/* what it takes back has a time of its own, also when it is cancelled again */
	if (stages[c->stage].last)
		return;
	c->limit_ns = 0;
	region_task_cut(&c->attach);
}

int region_control_refuse(const struct region_control *c, int status)
{
	/* it ends with the connection */
	if (c->call == CONTROL_CLOSE)
		return 0;
	return status == -TARN_ECANCELED && c->begun ? -TARN_ETIMEOUT : status;
}

void region_control_reset(struct region_control *c)
{
	free(c->attach.pieces);
	memset(&c->attach, 0, sizeof(c->attach));
	if (c->region && c->region->space && c->call == CONTROL_OPEN) {
		LIST_REMOVE(c->region, link);
		c->region->space = 0;
		c->region->session = NULL;
	}
	c->stage = c->call == CONTROL_DESTROY ? CONTROL_STAT : c->call;
	c->started = c->asked = c->cut = c->begun = false;
	c->pause_ns = c->id = c->progress = 0;
}

void region_control_end(struct region_control *c)
{
	free(c->attach.pieces);
	c->attach.pieces = NULL;
	if (!c->region)
		return;
	if (c->region->space)
		LIST_REMOVE(c->region, link);
	if (c->call == CONTROL_CLOSE)
		handle_free(c->region);
	else
		free(c->region); /* the application has never had it */
	c->region = NULL;
}
