/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * session.c - one session: its parts, who is inside, and driving tasks to their end
 *
 * Runs on whatever thread owns the session (session->owner). Connecting is connect.c, the
 * operations are kv.c, the public functions api.c.
 */
#include "session.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cache.h"
#include "clock.h"
#include "directory.h"
#include "err.h"
#include "kv.h"

#define DEFAULT_TIMEOUT_MS  5000u
#define DEFAULT_CACHE_BYTES (8u << 20)
#define SLEEP_NS            1000000u /* a wait that is longer than this sleeps, a shorter one spins */
/* at most, for the completion of a post; then it is looked for again */
#define WAIT_NS             100000000u

static int parts_create(struct tarn_session *s, uint64_t cache_bytes)
{
	int ret = alloc_create(s, &s->alloc);

	if (ret == 0 && !(s->flags & TARN_NO_CACHE))
		ret = cache_create(cache_bytes, &s->cache);
	if (ret == 0)
		ret = directory_create(&s->geometry, &s->directory);
	if (ret == 0)
		ret = kv_op_create(s, &s->op);
	if (ret == 0)
		ret = process_create(s, &s->process);
	return ret;
}

int session_create(struct fabric_endpoint *ep, const struct layout_geometry *geometry,
		   const struct session_identity *identity, const struct tarn_options *options,
		   struct tarn_session **ret_session)
{
	struct tarn_session *s = calloc(1, sizeof(*s));
	uint64_t cache_bytes =
		options && options->cache_bytes ? options->cache_bytes : DEFAULT_CACHE_BYTES;
	int ret;

	if (!s) {
		ep->ops->close(ep);
		return err_set(-ENOMEM, "no memory for a session");
	}
	s->ep = ep;
	s->geometry = *geometry;
	s->identity = *identity;
	s->flags = options ? options->flags : 0;
	s->timeout_ns =
		(options && options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS) *
		1000000ull;
	s->fork_generation = session_fork_generation();
	s->random = (uint64_t)identity->client_id << 32 | 0x9e3779b9u;
	s->stats.client_id = identity->client_id;
	s->last_call_ns = session_now(s);
	ret = parts_create(s, cache_bytes);
	if (ret < 0) {
		session_free(s);
		return ret;
	}
	*ret_session = s;
	return 0;
}

void session_free(struct tarn_session *s)
{
	if (!s)
		return;
	process_free(s->process);
	kv_op_free(s->op);
	directory_free(s->directory);
	cache_free(s->cache);
	alloc_free(s->alloc);
	s->ep->ops->close(s->ep);
	free(s);
}

int session_lost(void)
{
	return err_set(-TARN_ESESSION, "the connection to tarnd is gone: close this session and "
				       "open a new one");
}

/* ---- fork ------------------------------------------------------------------------------------ */

/*
 * Of the process, like what it tells apart; asking getpid() would be a system call per operation.
 */
static atomic_uint forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

unsigned session_fork_generation(void)
{
	pthread_once(&forks_once, watch_forks);
	return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ---- who is inside --------------------------------------------------------------------------- */

int session_enter(struct tarn_session *s)
{
	if (atomic_load_explicit(&forks, memory_order_relaxed) != s->fork_generation)
		return err_set(-TARN_EINUSE, "the session belongs to the process that opened it, "
					     "not to its forked child");
	for (;;) {
		unsigned idle = SESSION_IDLE;

		/*
		 * acquire: pairs with the release in session_leave() and in housekeeping's; what
		 * the last owner wrote is seen
		 */
		if (atomic_compare_exchange_weak_explicit(&s->owner, &idle, SESSION_CALL,
							  memory_order_acquire,
							  memory_order_relaxed))
			break;
		if (idle == SESSION_CALL)
			return err_set(-TARN_EINUSE, "another thread is in a call on this session: "
						     "use one session per thread");
		if (idle == SESSION_HOUSEKEEPING)
			sched_yield();
	}
	if (s->lost) {
		atomic_store_explicit(&s->owner, SESSION_IDLE, memory_order_release);
		return session_lost();
	}
	return 0;
}

void session_leave(struct tarn_session *s)
{
	/* relaxed: only a hint, what it is about is done under the ownership that we hold */
	if (atomic_load_explicit(&s->wanted, memory_order_relaxed)) {
		atomic_store_explicit(&s->wanted, 0, memory_order_relaxed);
		session_run(s, process_start(s->process, false));
	}
	atomic_store_explicit(&s->owner, SESSION_IDLE, memory_order_release);
}

/* ---- posting and waiting --------------------------------------------------------------------- */

static int post_failed(struct tarn_session *s, int code)
{
	if (code == -TARN_ESESSION) {
		s->lost = true;
		return session_lost();
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
	if (ret < 0)
		return post_failed(s, ret);
	if (task) {
		task->status = 0;
		task->asking = false;
	}
	return ret;
}

int session_rpc(struct tarn_session *s, const void *message, size_t bytes, void *reply,
		size_t capacity, struct task *task)
{
	int ret;

	s->stats.rpcs++;
	ret = s->ep->ops->rpc(s->ep, message, bytes, reply, capacity, task);
	task->asking = true;
	return ret < 0 ? post_failed(s, ret) : 0;
}

/* Sleeps until something can have come, but not past the task's times. */
static void wait_a_while(struct tarn_session *s, struct task *task, unsigned idle_polls)
{
	uint64_t now = session_now(s);
	uint64_t until = task->wake_ns  ? task->wake_ns
			 : task->asking ? task->limit_ns
					: now + WAIT_NS;

	if (now >= until)
		return;
	/* a back-off is shorter than a sleep can be; waiting for resting blocks is not */
	if (task->wake_ns && until - now > SLEEP_NS)
		clock_sleep_ns(until - now);
	else if (task->wake_ns)
		sched_yield();
	else if (idle_polls > 100)
		s->ep->ops->wait(s->ep, until - now);
}

/* Gets the completion of the task's post. Returns 1 when step() is to be called. */
static int poll_for(struct tarn_session *s, struct task *task)
{
	struct fabric_completion completion;
	int ret = fabric_poll(s->ep, &completion, 1);

	if (ret < 0) {
		s->lost = true;
		task->status = ret;
		return 1;
	}
	if (ret == 0) {
		if (!task->asking || session_now(s) < task->limit_ns)
			return 0;
		s->ep->ops->rpc_cancel(s->ep);
		task->status = -TARN_ETIMEOUT;
		return 1;
	}
	if (completion.cookie != task)
		return 0;
	if (completion.status == -TARN_ESESSION)
		s->lost = true;
	task->status = completion.status;
	task->length = completion.length;
	return 1;
}

int session_wait(struct tarn_session *s, struct task *task)
{
	unsigned idle_polls = 0;

	while (!poll_for(s, task))
		wait_a_while(s, task, ++idle_polls);
	return task->status;
}

int session_run(struct tarn_session *s, struct task *task)
{
	task->status = 0;
	while (!task->step(task)) {
		if (!task->wake_ns) {
			session_wait(s, task);
			continue;
		}
		while (session_now(s) < task->wake_ns)
			wait_a_while(s, task, 0);
		task->status = 0;
	}
	return task->result;
}

int session_sync(struct tarn_session *s, const struct fabric_request *requests, unsigned count)
{
	struct task task = {.status = 0};
	int ret = session_post(s, requests, count, &task);

	if (ret == 0)
		ret = session_wait(s, &task) < 0 ? post_failed(s, task.status) : 0;
	return ret < 0 ? ret : 0;
}

int session_ask(struct tarn_session *s, const struct wire_rpc *rpc,
		struct wire_rpc_reply *ret_reply)
{
	uint8_t message[WIRE_RPC_BYTES], answer[WIRE_RPC_REPLY_BYTES];
	struct task task = {.limit_ns = session_now(s) + s->timeout_ns};
	struct wire_rpc_reply reply;
	int ret;

	wire_rpc_encode(rpc, message);
	ret = session_rpc(s, message, sizeof(message), answer, sizeof(answer), &task);
	if (ret == 0)
		ret = session_wait(s, &task);
	if (ret == -TARN_ETIMEOUT)
		return err_set(
			ret,
			"tarnd did not answer within the time limit: it is stopped or overloaded");
	if (ret < 0)
		return post_failed(s, ret);
	ret = wire_rpc_reply_decode(answer, task.length, &reply);
	if (ret == 0 && reply.status < 0)
		ret = err_set(reply.status, "tarnd refused: %s", err_string(reply.status));
	if (ret == 0)
		*ret_reply = reply;
	return ret;
}

/* ---- small things ---------------------------------------------------------------------------- */

/* splitmix64 (Steele et al., OOPSLA 2014): for back-off only */
uint64_t session_random(struct tarn_session *s)
{
	uint64_t z = s->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void session_epoch_learn(struct tarn_session *s, uint64_t epoch, uint64_t posted_ns)
{
	/*
	 * never backwards: what a hostile or restarted pool says must not make a generation repeat
	 */
	if (epoch > s->epoch)
		s->epoch = epoch;
	s->epoch_read_ns = posted_ns;
	alloc_epoch(s->alloc, s->epoch, posted_ns);
}

#define STAMPS_LEFT 1024u

int session_renew_stamps(struct tarn_session *s)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_NUMBER};
	struct wire_rpc_reply reply;
	int ret;

	if (__builtin_expect(s->stamp_sequence < UINT32_MAX - STAMPS_LEFT, 1))
		return 0;
	ret = session_ask(s, &rpc, &reply);
	if (ret < 0)
		return ret;
	s->identity.client_id = s->stats.client_id = reply.number;
	s->stamp_sequence = 0;
	return 0;
}

uint64_t session_stamp(struct tarn_session *s)
{
	return (uint64_t)s->identity.client_id << 32 | ++s->stamp_sequence;
}
