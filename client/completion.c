/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * completion.c - what a session has posted, and what comes back
 *
 * Every post and every RPC of a session goes out here, and every completion comes in here, whichever
 * task it belongs to. An endpoint carries one RPC at a time; the others wait in session->rpcs. Also
 * here: driving one task to its end, for the blocking calls; several at a time are engine.c's. Runs on
 * the session's owner. Next: session.h for what a task is.
 */
#include <errno.h>
#include <sched.h>

#include "clock.h"
#include "engine.h"
#include "err.h"
#include "session.h"

#define SLEEP_NS 1000000u /* a wait that is longer than this sleeps, a shorter one spins */
/* at most, for the completion of a post; then it is looked for again */
#define WAIT_NS 100000000u
#define COLLECT 16u

/* ---- posting --------------------------------------------------------------------------------- */

static int post_failed(struct tarn_session *s, int code)
{
	if (code == -TARN_ESESSION) {
		session_lose(s);
		return session_lost(s);
	}
	if (code == -EAGAIN)
		return err_set(-TARN_ETIMEOUT,
			       "tarnd takes no messages: it is stopped or overloaded");
	if (code == -EINVAL)
		return err_set(-TARN_ECORRUPT, "the pool holds an offset outside of the pool");
	return err_set(code, "post: %s", err_string(code));
}

int session_post(struct tarn_session *s, const struct fabric_request *requests, unsigned count,
		 struct task *task)
{
	unsigned i;
	int ret;

	s->stats.posts++;
	s->stats.requests += count;
	s->stats.round_trips += task != NULL;
	for (i = 0; i < count; i++) {
		if (requests[i].opcode == FABRIC_READ)
			s->stats.bytes_read += requests[i].length;
		else if (requests[i].opcode == FABRIC_WRITE)
			s->stats.bytes_written += requests[i].length;
	}
	ret = fabric_post(s->ep, requests, count, task);
	if (!task) {
		/*
		 * Nobody waits, so nobody is told: the text belongs to what the call ends with. But
		 * what was not posted is missing in the pool, and what comes later must not rest on
		 * it: a connection of which something is missing is given up.
		 */
		s->lost |= ret < 0;
		return ret;
	}
	if (ret < 0)
		return post_failed(s, ret);
	task->status = 0;
	task->asking = task->completed = false;
	return ret;
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void deliver(struct tarn_session *s, struct task *task, int status, uint32_t length)
{
	if (status == -TARN_ESESSION)
		session_lose(s);
	if (s->rpc == task)
		s->rpc = NULL;
	if (task->noticing)
		TAILQ_REMOVE(&s->listeners, task, rpc_link);
	task->noticing = false;
	task->status = status;
	task->length = length;
	task->completed = true;
	if (task->lane)
		engine_completed(task->lane);
}

static int rpc_send(struct tarn_session *s, const struct task *task)
{
	return task->rpc_message
		       ? s->ep->ops->rpc(s->ep, task->rpc_message, task->rpc_bytes, task->rpc_reply,
					 task->rpc_capacity, (void *)task)
		       : s->ep->ops->write_notify(s->ep, task->rpc_write, task->rpc_reply,
						  task->rpc_capacity, (void *)task);
}

/* The endpoint is free for the next RPC. What can not be sent is answered by that. */
static void rpc_next(struct tarn_session *s)
{
	struct task *task;

	while (!s->rpc && (task = TAILQ_FIRST(&s->rpcs)) != NULL) {
		int ret = rpc_send(s, task);

		TAILQ_REMOVE(&s->rpcs, task, rpc_link);
		task->sent = ret == 0;
		if (ret == 0)
			s->rpc = task;
		else
			deliver(s, task, ret == -EAGAIN ? -TARN_ETIMEOUT : ret, 0);
	}
}

/* What is to be sent stands in the task. (Inlined, gcc takes a task that is waited for on the stack for one that is left.) */
__attribute__((noinline)) static int rpc_begin(struct tarn_session *s, struct task *task)
{
	int ret;

	s->stats.rpcs++;
	task->asking = true;
	task->sent = task->completed = false;
	if (s->rpc) {
		TAILQ_INSERT_TAIL(&s->rpcs, task, rpc_link);
		return 0;
	}
	ret = rpc_send(s, task);
	if (ret < 0)
		return post_failed(s, ret);
	s->rpc = task;
	task->sent = true;
	return 0;
}

int session_rpc(struct tarn_session *s, const void *message, size_t bytes, void *reply,
		size_t capacity, struct task *task)
{
	task->rpc_message = message;
	task->rpc_bytes = bytes;
	task->rpc_reply = reply;
	task->rpc_capacity = capacity;
	return rpc_begin(s, task);
}

int session_write_notify(struct tarn_session *s, const struct fabric_request *write, void *reply,
			 size_t capacity, struct task *task)
{
	s->stats.bytes_written += write->length;
	task->rpc_message = NULL;
	task->rpc_write = write;
	task->rpc_reply = reply;
	task->rpc_capacity = capacity;
	return rpc_begin(s, task);
}

int session_listen(struct tarn_session *s, struct task *task, uint32_t seen)
{
	if (s->ep->notices != seen)
		return 1;
	task->asking = task->noticing = true;
	task->completed = false;
	TAILQ_INSERT_TAIL(&s->listeners, task, rpc_link);
	return 0;
}

/* Each looks by itself whether it was meant. */
static void wake_listeners(struct tarn_session *s)
{
	struct task *task;

	if (s->ep->notices == s->notices_seen)
		return;
	s->notices_seen = s->ep->notices;
	while ((task = TAILQ_FIRST(&s->listeners)) != NULL)
		deliver(s, task, 0, 0);
}

void session_rpc_give_up(struct tarn_session *s, struct task *task)
{
	if (s->rpc == task)
		s->ep->ops->rpc_cancel(s->ep);
	else
		TAILQ_REMOVE(&s->rpcs, task, rpc_link);
	deliver(s, task, -TARN_ETIMEOUT, 0);
	rpc_next(s);
}

void session_break(struct tarn_session *s, struct task *task)
{
	if (task->asking && !task->noticing && s->rpc != task)
		TAILQ_REMOVE(&s->rpcs, task, rpc_link);
	deliver(s, task, -TARN_ESESSION, 0);
}

void session_rpc_limits(struct tarn_session *s, uint64_t now)
{
	struct task *task, *next;

	/* first those that wait: none of them shall be sent now */
	for (task = TAILQ_FIRST(&s->rpcs); task; task = next) {
		next = TAILQ_NEXT(task, rpc_link);
		if (now >= task->limit_ns)
			session_rpc_give_up(s, task);
	}
	if (s->rpc && now >= s->rpc->limit_ns)
		session_rpc_give_up(s, s->rpc);
	for (task = TAILQ_FIRST(&s->listeners); task; task = next) {
		next = TAILQ_NEXT(task, rpc_link);
		if (now >= task->limit_ns)
			deliver(s, task, -TARN_ETIMEOUT, 0);
	}
}

int session_collect(struct tarn_session *s)
{
	struct fabric_completion completions[COLLECT];
	int count = fabric_poll(s->ep, completions, COLLECT), i;

	if (count < 0)
		session_lose(s);
	for (i = 0; i < count; i++)
		deliver(s, completions[i].cookie, completions[i].status, completions[i].length);
	rpc_next(s);
	wake_listeners(s);
	return count;
}

/* ---- waiting --------------------------------------------------------------------------------- */

void session_sleep(struct tarn_session *s, uint64_t until_ns, bool for_completion)
{
	uint64_t now = session_now(s);

	if (now >= until_ns)
		return;
	/* how long it is worth to spin before that is the endpoint's affair */
	if (for_completion)
		s->ep->ops->wait(s->ep, until_ns - now);
	/* a back-off is shorter than a sleep can be; waiting for resting blocks is not */
	else if (until_ns - now > SLEEP_NS)
		clock_sleep_ns(until_ns - now);
	else
		sched_yield();
}

/* Has the completion of what the task has in flight come? */
static bool arrived(struct tarn_session *s, struct task *task)
{
	int ret = session_collect(s);

	if (task->completed)
		return true;
	if (ret < 0)
		deliver(s, task, ret, 0);
	else if (task->asking)
		session_rpc_limits(s, session_now(s));
	return task->completed;
}

static int wait_for(struct tarn_session *s, struct task *task)
{
	while (!arrived(s, task))
		session_sleep(s, task->asking ? task->limit_ns : session_now(s) + WAIT_NS, true);
	return task->status;
}

int session_run(struct tarn_session *s, struct task *task)
{
	if (engine_owes(s->engine))
		return engine_run(s->engine, task);
	task->status = 0;
	task->lane = NULL;
	s->work_limit_ns = task->limit_ns;
	while (!task->step(task)) {
		if (!task->wake_ns) {
			wait_for(s, task);
			continue;
		}
		while (session_now(s) < task->wake_ns)
			session_sleep(s, task->wake_ns, false);
		task->status = 0;
	}
	return task->result;
}

int session_sync(struct tarn_session *s, const struct fabric_request *requests, unsigned count)
{
	struct task task = {.status = 0};
	int ret = session_post(s, requests, count, &task);

	if (ret == 0)
		ret = wait_for(s, &task) < 0 ? post_failed(s, task.status) : 0;
	return ret < 0 ? ret : 0;
}

int session_ask_status(struct tarn_session *s, int status)
{
	if (status == -TARN_ETIMEOUT)
		return err_set(
			status,
			"tarnd did not answer within the time limit: it is stopped or overloaded");
	return status < 0 ? post_failed(s, status) : 0;
}

int session_ask_reply(struct tarn_session *s, int status, const void *answer, uint32_t length,
		      struct wire_rpc_reply *ret_reply)
{
	struct wire_rpc_reply reply;
	int ret = session_ask_status(s, status);

	if (ret < 0)
		return ret;
	ret = wire_rpc_reply_decode(answer, length, &reply);
	if (ret == 0 && reply.status < 0)
		ret = err_set(reply.status, "tarnd refused: %s", err_string(reply.status));
	if (ret == 0)
		*ret_reply = reply;
	return ret;
}

int session_ask_bytes(struct tarn_session *s, const void *message, size_t bytes, void *answer,
		      size_t capacity, uint32_t *ret_length)
{
	struct task task = {.limit_ns = session_limit(s, session_now(s))};
	int ret;

	s->work_limit_ns = task.limit_ns;
	ret = session_rpc(s, message, bytes, answer, capacity, &task);
	if (ret < 0)
		return ret;
	wait_for(s, &task);
	*ret_length = task.length;
	return task.status;
}

int session_ask(struct tarn_session *s, const struct wire_rpc *rpc,
		struct wire_rpc_reply *ret_reply)
{
	uint8_t message[WIRE_RPC_BYTES], answer[WIRE_RPC_REPLY_BYTES];
	uint32_t length = 0;
	int status;

	wire_rpc_encode(rpc, message);
	status = session_ask_bytes(s, message, sizeof(message), answer, sizeof(answer), &length);
	return session_ask_reply(s, status, answer, length, ret_reply);
}
