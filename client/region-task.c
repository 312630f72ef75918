/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-task.c - what is done with a region, as a task: attach it, post accesses, tell the daemon, wait
 *
 * Runs on the session's owner, driven by session_run() or the engine. Reads may be begun again after a lost
 * connection (-TARN_ESESSION); what may have changed something ends with -TARN_EAMBIGUOUS. Next: region-task.h.
 */
#include "region-task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "mutation.h"
#include "sync-internal.h"

#define REQUEST_MAX (1u << 30) /* bytes of one request */
#define RETRY_NS    5000000u /* between two tries to open what is not ready, or is being attached */
#define PIECES_MAX  (1u << 16)

static struct tarn_session *session_of(const struct region_task *t)
{
	return t->region->session;
}

static int end(struct region_task *t, int result)
{
	free(t->pieces);
	t->pieces = NULL;
	t->task.result = result;
	return 1;
}

/* The connection or the time is gone: has something been changed? */
static int end_failed(struct region_task *t, int status)
{
	if ((status == -TARN_ESESSION || status == -TARN_ETIMEOUT) && t->changed &&
	    !MUTATED(MUTATION_REGION_AMBIGUOUS))
		return end(t, err_set(-TARN_EAMBIGUOUS,
				      "the connection was lost, or tarnd did not answer, while the "
				      "access was "
				      "on its way: it may or may not have taken effect"));
	if (status == -TARN_ESESSION)
		return end(t, session_lost(session_of(t)));
	return end(t, status);
}

static int again_later(struct region_task *t)
{
	uint64_t now = session_now(session_of(t));

	if (now + RETRY_NS >= t->task.limit_ns)
		return end(t, err_set(-TARN_EBUSY,
				      "region %s is being made, resized or registered: try again, "
				      "tarn_region_stat() tells how far it is",
				      t->region->name));
	t->step = REGION_BEGIN;
	t->task.wake_ns = now + RETRY_NS;
	return 0;
}

/* Posts a message about the region; the next step is `step`. */
static int ask(struct region_task *t, const struct wire_region_request *request,
	       enum region_step step)
{
	int ret;

	wire_region_request_encode(request, t->message);
	t->step = step;
	ret = session_rpc(session_of(t), t->message, sizeof(t->message), t->answer,
			  sizeof(t->answer), &t->task);
	return ret;
}

/* ---- attaching ------------------------------------------------------------------------------- */

static int attach_failed(struct region_task *t, int status)
{
	t->region->attaching = false;
	if (status == -TARN_EBUSY)
		return again_later(t);
	if (status == -TARN_ENOREGION)
		t->region->gone = t->region->id != 0;
	return end_failed(t, status);
}

static int attach_begin(struct region_task *t)
{
	struct wire_region_request request = {
		.call = WIRE_REGION_OPEN,
		.handle = t->region->space,
		.flags = t->region->read_only ? WIRE_REGION_OPEN_READONLY : 0,
	};
	int ret;

	if (t->region->attaching)
		return again_later(t);
	t->region->attaching = true;
	t->region->attached = false;
	memcpy(request.name, t->region->name, sizeof(request.name));
	ret = ask(t, &request, REGION_OPENING);
	return ret < 0 ? attach_failed(t, ret) : 0;
}

static int ask_piece(struct region_task *t)
{
	const struct wire_region_request request = {
		.call = WIRE_REGION_MEMORY, .handle = t->region->space, .index = t->pieces_known};
	int ret = ask(t, &request, REGION_PIECE);

	return ret < 0 ? attach_failed(t, ret) : 0;
}

/* 1: go on. */
static int attach_end(struct region_task *t)
{
	struct tarn_region *region = t->region;
	struct tarn_session *s = region->session;
	int ret = s->lost ? -TARN_ESESSION /* it may be no endpoint at all by now, reconnect.c */
		  : s->ep->ops->space_add
			  ? s->ep->ops->space_add(s->ep, region->space, t->pieces, t->piece_count,
						  region->bytes, region->read_only)
			  : err_set(-EOPNOTSUPP, "this connection has no regions");

	free(t->pieces);
	t->pieces = NULL;
	if (ret < 0)
		return attach_failed(t, ret);
	region->attaching = false;
	region->attached = true;
	region->connection = s->stats.reconnects;
	t->step = REGION_READY;
	return 2;
}

static int opened(struct region_task *t, const struct wire_region_reply *reply)
{
	struct tarn_region *region = t->region;

	/* one that was made anew under the name of ours; the daemon closes it with the connection */
	if (region->id && (reply->id != region->id || reply->bytes != region->bytes) &&
	    !MUTATED(MUTATION_REGION_ID))
		return attach_failed(
			t,
			err_set(-TARN_ENOREGION,
				"region %s was destroyed, or has another size now: open it again",
				region->name));
	if (reply->handle != region->space || reply->bytes < 8 || reply->number > PIECES_MAX ||
	    reply->id == 0)
		return attach_failed(t, err_set(-TARN_EPROTO,
						"tarnd's answer about region %s makes no sense",
						region->name));
	region->id = reply->id;
	region->bytes = reply->bytes;
	t->piece_count = reply->number;
	t->pieces_known = 0;
	if (t->piece_count == 0)
		return attach_end(t);
	t->pieces = calloc(t->piece_count, sizeof(*t->pieces));
	if (!t->pieces)
		return attach_failed(t, err_set(-ENOMEM, "no memory for a region"));
	return ask_piece(t);
}

static int piece_known(struct region_task *t, const struct wire_region_reply *reply)
{
	t->pieces[t->pieces_known++] = (struct wire_region){
		.address = reply->value, .length = reply->length, .rkey = reply->number};
	return t->pieces_known < t->piece_count ? ask_piece(t) : attach_end(t);
}

/* The answer to OPEN or MEMORY. */
static int attach_answered(struct region_task *t)
{
	struct wire_region_reply reply;
	int ret =
		region_ask_reply(session_of(t), t->task.status, t->answer, t->task.length, &reply);

	if (ret < 0)
		return attach_failed(t, ret);
	return t->step == REGION_OPENING ? opened(t, &reply) : piece_known(t, &reply);
}

/* ---- accesses -------------------------------------------------------------------------------- */

static struct fabric_request request_of(struct region_task *t, struct tarn_region_op *op)
{
	uint64_t left = op->bytes - t->tail_bytes - t->posted;
	struct fabric_request r = {
		.space = (uint16_t)t->region->space,
		.flags = FABRIC_DIRECT,
		.offset = op->offset + t->posted,
		.length = left < REQUEST_MAX ? (uint32_t)left : REQUEST_MAX,
		.local = (uint8_t *)op->buffer + t->posted,
	};

	if (op->kind == TARN_REGION_READ || op->kind == TARN_REGION_WRITE) {
		r.opcode = op->kind == TARN_REGION_READ ? FABRIC_READ : FABRIC_WRITE;
		return r;
	}
	r.opcode = op->kind == TARN_REGION_CAS ? FABRIC_CAS : FABRIC_FAA;
	r.flags = 0;
	r.length = 8;
	r.offset = op->offset;
	r.local = &op->before;
	r.compare = op->compare;
	r.operand = op->operand;
	return r;
}

/* A list is in order: nothing passes a READ or an atomic operation in front of it, but a READ. */
static void fence(struct region_task *t, uint32_t kind, struct fabric_request *r)
{
	if (kind != TARN_REGION_READ && t->fence && !MUTATED(MUTATION_REGION_FENCE)) {
		r->flags |= FABRIC_FENCE;
		t->fence = false;
	}
	t->fence |= kind != TARN_REGION_WRITE;
}

/* The next post of the list. Its length. */
static unsigned fill(struct region_task *t, struct fabric_request requests[FABRIC_POST_MAX])
{
	unsigned n = 0;

	while (n < FABRIC_POST_MAX && t->next < t->count) {
		struct tarn_region_op *op = &t->ops[t->next];
		bool data = op->kind == TARN_REGION_READ || op->kind == TARN_REGION_WRITE;

		if (data && op->bytes == t->tail_bytes) {
			t->next++;
			continue;
		}
		requests[n] = request_of(t, op);
		fence(t, op->kind, &requests[n]);
		t->changed |= op->kind != TARN_REGION_READ;
		if (data)
			buffer_count(session_of(t), &requests[n]);
		t->posted += data ? requests[n].length : 0;
		n++;
		if (!data || t->posted == op->bytes - t->tail_bytes) {
			t->next++;
			t->posted = 0;
		}
	}
	return n;
}

static bool with_immediate(const struct region_task *t)
{
	return session_of(t)->ep->features & FABRIC_WRITE_NOTIFY;
}

/* The last bytes go with the message. */
static int tell_by_write(struct region_task *t)
{
	const struct tarn_region_op *op = t->ops;
	uint64_t at = op->bytes - t->tail_bytes;
	int ret;

	t->tail = (struct fabric_request){
		.opcode = FABRIC_WRITE,
		.flags = FABRIC_INLINE,
		.space = (uint16_t)t->region->space,
		.offset = op->offset + at,
		.length = (uint32_t)t->tail_bytes,
		.local = op->buffer ? (uint8_t *)op->buffer + at : NULL,
	};
	t->changed |= t->tail_bytes > 0;
	t->step = REGION_TELLING;
	ret = session_write_notify(session_of(t), &t->tail, t->answer, sizeof(t->answer), &t->task);
	return ret < 0 ? end_failed(t, ret) : 0;
}

static int tell(struct region_task *t)
{
	const struct wire_region_request request = {.call = WIRE_REGION_NOTIFY,
						    .handle = t->region->space};
	int ret = ask(t, &request, REGION_TELLING);

	return ret < 0 ? end_failed(t, ret) : 0;
}

static int arm(struct region_task *t)
{
	const struct wire_region_request request = {
		.call = WIRE_REGION_WAIT, .handle = t->region->space, .number = t->sequence};
	struct tarn_session *s = session_of(t);
	int ret;

	s->ep->listening = true;
	t->notices = s->ep->notices;
	t->task.limit_ns = t->limit_ns;
	ret = ask(t, &request, REGION_ARMING);
	return ret < 0 ? end_failed(t, ret) : 0;
}

/* 2: go on with the next step. */
static int post(struct region_task *t)
{
	struct fabric_request requests[FABRIC_POST_MAX];
	struct tarn_session *s = session_of(t);
	unsigned count;
	int ret;

	/* of each connection anew: what was waited for until now may have taken any time */
	if (t->not_after_ns && !t->changed && session_now(s) > t->not_after_ns)
		return end(t, err_set(SYNC_LATE, "it is too late to begin the access"));
	count = fill(t, requests);
	if (count == 0 && t->goal == REGION_NOTIFY)
		return with_immediate(t) ? tell_by_write(t) : tell(t);
	if (count == 0)
		return end(t, 0);
	t->step = REGION_POSTED;
	ret = session_post(s, requests, count, &t->task);
	if (ret < 0)
		return end_failed(t, ret);
	return ret == 0 ? 0 : 2;
}

static int flush(struct region_task *t)
{
	struct fabric_request request = fabric_read(0, &t->flushed, 8);
	int ret;

	request.space = (uint16_t)t->region->space;
	t->step = REGION_POSTED;
	ret = session_post(session_of(t), &request, 1, &t->task);
	if (ret < 0)
		return end_failed(t, ret);
	return ret == 0 ? 0 : 2;
}

static int gone(struct region_task *t)
{
	t->region->gone = true;
	return end(t, err_set(-TARN_ENOREGION, "region %s was destroyed", t->region->name));
}

static int posted(struct region_task *t)
{
	struct tarn_session *s = session_of(t);

	if (t->task.status < 0)
		return end_failed(t, t->task.status);
	/* between two connections (engine_abandon()) nobody knows any more whether it was alive */
	if (!s->ep->ops->space_alive)
		return end_failed(t, -TARN_ESESSION);
	if (!s->ep->ops->space_alive(s->ep, t->region->space) && !MUTATED(MUTATION_REGION_ALIVE))
		return gone(t);
	t->step = REGION_READY;
	return t->goal == REGION_FLUSH ? end(t, 0) : 2;
}

static int ready(struct region_task *t)
{
	/* between two posts of a long list, too: the connection may be another one */
	if (!region_attached(t->region)) {
		t->step = REGION_BEGIN;
		return t->changed ? end_failed(t, -TARN_ESESSION) : 2;
	}
	switch (t->goal) {
	case REGION_ATTACH:
		break;
	case REGION_NOTIFY:
		if (with_immediate(t) && t->next == 0 && t->posted == 0)
			t->tail_bytes = t->ops->bytes < FABRIC_INLINE_BYTES ? t->ops->bytes
									    : FABRIC_INLINE_BYTES;
		return post(t);
	case REGION_ACCESS:
		return post(t);
	case REGION_FLUSH:
		return flush(t);
	case REGION_WAIT:
		return arm(t);
	}
	return end(t, 0);
}

/* ---- answers --------------------------------------------------------------------------------- */

static int told(struct region_task *t)
{
	struct wire_region_reply reply;
	int ret =
		region_ask_reply(session_of(t), t->task.status, t->answer, t->task.length, &reply);

	if (ret == -TARN_ENOREGION)
		return gone(t);
	return ret < 0 ? end_failed(t, ret) : end(t, 0);
}

static int nobody(struct region_task *t)
{
	t->quiet = true;
	return end(t, err_set(-TARN_ETIMEOUT, "nobody has notified region %s", t->region->name));
}

static int armed(struct region_task *t)
{
	struct tarn_session *s = session_of(t);
	struct wire_region_reply reply;
	int ret = region_ask_reply(s, t->task.status, t->answer, t->task.length, &reply);

	if (ret == -TARN_ENOREGION)
		return gone(t);
	if (ret < 0)
		return end_failed(t, ret);
	if (reply.value != t->sequence && !MUTATED(MUTATION_REGION_ARM)) {
		t->sequence = reply.value;
		return end(t, 0);
	}
	if (t->listen_until_ns < t->limit_ns)
		t->task.limit_ns = t->listen_until_ns;
	if (session_now(s) >= t->task.limit_ns)
		return nobody(t);
	t->step = REGION_LISTENING;
	ret = session_listen(s, &t->task, t->notices);
	t->task.status = 0;
	return ret ? 2 : 0;
}

static int heard(struct region_task *t)
{
	if (t->task.status == -TARN_ETIMEOUT)
		return nobody(t);
	if (t->task.status < 0)
		return end_failed(t, t->task.status);
	t->step = REGION_READY;
	return 2;
}

/* ---- the task -------------------------------------------------------------------------------- */

/* Of memory that only the adapter reaches, the last bytes could not go with a notification. */
static int memory_check(const struct region_task *t)
{
	const struct tarn_session *s = session_of(t);
	int ret = 0;

	for (size_t i = 0; s->unreachable && !s->lost && ret == 0 && i < t->count; i++)
		if (t->ops[i].kind == TARN_REGION_READ || t->ops[i].kind == TARN_REGION_WRITE)
			ret = buffer_check(s, t->ops[i].buffer, t->ops[i].bytes,
					   t->ops[i].kind == TARN_REGION_READ,
					   t->goal != REGION_NOTIFY);
	return ret;
}

static int begin(struct region_task *t)
{
	int ret = memory_check(t);

	if (ret < 0)
		return end(t, ret);
	if (t->region->gone)
		return gone(t);
	if (!region_attached(t->region))
		return attach_begin(t);
	t->step = REGION_READY;
	return 2;
}

int region_step(struct region_task *t)
{
	static int (*const steps[])(struct region_task *) = {
		[REGION_BEGIN] = begin,           [REGION_OPENING] = attach_answered,
		[REGION_PIECE] = attach_answered, [REGION_READY] = ready,
		[REGION_POSTED] = posted,         [REGION_TELLING] = told,
		[REGION_ARMING] = armed,          [REGION_LISTENING] = heard,
	};
	int ret;

	t->task.wake_ns = 0;
	do
		ret = steps[t->step](t);
	while (ret == 2);
	return ret;
}

static int step(struct task *task)
{
	return region_step((struct region_task *)task);
}

struct task *region_task(struct region_task *t, struct tarn_region *region, enum region_goal goal,
			 struct tarn_region_op *ops, size_t count)
{
	struct tarn_session *s = region->session;

	t->task = (struct task){.step = step, .limit_ns = session_limit(s, session_now(s))};
	t->limit_ns = t->task.limit_ns;
	t->listen_until_ns = UINT64_MAX;
	t->region = region;
	t->goal = goal;
	t->step = REGION_BEGIN;
	t->ops = ops;
	t->count = count;
	t->next = 0;
	t->posted = t->tail_bytes = 0;
	t->changed = t->quiet = t->fence = false;
	t->not_after_ns = 0;
	t->pieces = NULL;
	return &t->task;
}

void region_task_cut(struct region_task *t)
{
	t->task.limit_ns = t->limit_ns = 0;
}
