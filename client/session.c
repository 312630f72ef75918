/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * session.c - one session: its parts, and who is inside
 *
 * Runs on whatever thread owns the session (session->owner). What it posts and waits for is
 * completion.c, connecting is connect.c, connecting again reconnect.c, the operations are kv.c, the
 * public functions api.c and async.c.
 */
#include "session.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "cache.h"
#include "clock.h"
#include "directory.h"
#include "engine.h"
#include "err.h"
#include "handle.h"
#include "kv.h"
#include "reference.h"
#include "scan-internal.h"

#define DEFAULT_TIMEOUT_MS  5000u
#define DEFAULT_CACHE_BYTES (8u << 20)
#define YIELDS              100u   /* to housekeeping in the session; after that: */
#define YIELD_SLEEP_NS      50000u /* it may be connecting */

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
	s->transport = ep->ops->name;
	s->event_fd = s->watched_fd = -1;
	TAILQ_INIT(&s->rpcs);
	TAILQ_INIT(&s->listeners);
	LIST_INIT(&s->scans);
	LIST_INIT(&s->registrations);
	LIST_INIT(&s->buffers);
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
	if (ret == 0)
		ret = reference_create(s);
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
	/* first: until then it may write into what is freed below */
	s->ep->ops->close(s->ep);
	/* before the regions: those that were to be opened leave their list */
	engine_free(s->engine);
	group_free(s->near);
	region_free_all(s);
	buffer_free_all(s);
	scan_detach_all(s);
	if (s->event_fd >= 0)
		close(s->event_fd);
	if (s->connector)
		s->connector->free(s->connector);
	process_free(s->process);
	kv_op_free(s->op);
	directory_free(s->directory);
	cache_free(s->cache);
	reference_free(s->reference);
	alloc_free(s->alloc);
	atomic_store_explicit(&s->owner, SESSION_CLOSED, memory_order_relaxed);
	handle_free(s);
}

void session_lose(struct tarn_session *s)
{
	if (s->lost)
		return;
	s->lost = true;
	err_clear();
	s->ep->ops->check(s->ep);
	strncpy(s->loss, err_text(), sizeof(s->loss) - 1);
}

int session_lost(const struct tarn_session *s)
{
	return err_set(-TARN_ESESSION, "the connection to tarnd is gone%s%s",
		       s->loss[0] ? ": " : "", s->loss);
}

struct tarn_session *session_create_front(const struct tarn_options *options)
{
	struct tarn_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	session_nowhere(s);
	s->event_fd = s->watched_fd = -1;
	TAILQ_INIT(&s->rpcs);
	TAILQ_INIT(&s->listeners);
	LIST_INIT(&s->scans);
	LIST_INIT(&s->registrations);
	LIST_INIT(&s->buffers);
	s->flags = options->flags;
	s->identity.read_only = options->flags & TARN_READONLY;
	s->timeout_ns = options->timeout_ms * 1000000ull;
	s->fork_generation = session_fork_generation();
	return s;
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

int session_hold(struct tarn_session *s)
{
	if (__builtin_expect(s && s->cluster, 0))
		return err_set(-EOPNOTSUPP, "that is not for a session of a cluster");
	return session_hold_front(s);
}

int session_hold_front(struct tarn_session *s)
{
	unsigned yields = 0;

	if (!s)
		return err_set(-EINVAL, "session must not be NULL");
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
		if (idle == SESSION_CLOSED)
			return err_set(-EINVAL, "the session was closed");
		if (idle == SESSION_CALL)
			return err_set(-TARN_EINUSE, "another thread is in a call on this session: "
						     "use one session per thread");
		if (idle == SESSION_HOUSEKEEPING && ++yields < YIELDS)
			sched_yield();
		else if (idle == SESSION_HOUSEKEEPING)
			clock_sleep_ns(YIELD_SLEEP_NS);
	}
	s->limit_ns = 0;
	return 0;
}

int session_enter(struct tarn_session *s)
{
	int ret = session_hold(s);

	if (__builtin_expect(ret < 0 || !s->lost, 1))
		return ret;
	s->limit_ns = session_now(s) + s->timeout_ns;
	ret = session_reconnect(s, s->limit_ns);
	if (ret < 0) {
		session_watch(s);
		atomic_store_explicit(&s->owner, SESSION_IDLE, memory_order_release);
	}
	return ret;
}

int session_process(struct tarn_session *s)
{
	return engine_processing(s->engine) ? engine_process_end(s->engine)
					    : session_run(s, process_start(s->process, false));
}

/* What housekeeping found no time for. The call's own text is still to be read by the caller. */
static void process_wanted(struct tarn_session *s)
{
	bool aside;

	atomic_store_explicit(&s->wanted, 0, memory_order_relaxed);
	if (s->lost)
		return;
	if (s->engine && s->engine->in_flight) {
		engine_process(s->engine);
		return;
	}
	aside = err_aside(true);
	session_process(s);
	err_aside(aside);
}

void session_process_wanted(struct tarn_session *s)
{
	/* relaxed: only a hint, what it is about is done under the ownership that we hold */
	if (atomic_load_explicit(&s->wanted, memory_order_relaxed))
		process_wanted(s);
}

void session_leave(struct tarn_session *s)
{
	session_process_wanted(s);
	if (__builtin_expect(s->event_fd >= 0, 0))
		session_watch(s);
	atomic_store_explicit(&s->owner, SESSION_IDLE, memory_order_release);
}

int session_check_value(const struct tarn_session *s, size_t value_bytes)
{
	if (value_bytes > s->geometry.max_value_bytes)
		return err_set(-TARN_EVALUESIZE,
			       "the value has %zu bytes: this pool takes up to %llu (max_value in "
			       "tarnd.conf)",
			       value_bytes, (unsigned long long)s->geometry.max_value_bytes);
	return 0;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

int session_over_quota(const struct tarn_session *s, uint64_t bit)
{
	const struct layout_quota *quota = &s->limits.quota, *used = &s->limits.used;
	const char *what = bit == LAYOUT_LIMIT_KEYS    ? "keys"
			   : bit == LAYOUT_LIMIT_BYTES ? "bytes"
						       : "pages";
	uint64_t most = bit == LAYOUT_LIMIT_KEYS    ? quota->keys
			: bit == LAYOUT_LIMIT_BYTES ? quota->bytes
						    : quota->pages,
		 now = bit == LAYOUT_LIMIT_KEYS    ? used->keys
		       : bit == LAYOUT_LIMIT_BYTES ? used->bytes
						   : used->pages;

	return err_set(-TARN_EQUOTA,
		       "access key %s has used up its quota of %s (%llu of %llu): %s, or have the "
		       "quota raised in tarnd's key file",
		       s->identity.key_id[0] ? s->identity.key_id : "(none)", what,
		       (unsigned long long)now, (unsigned long long)most,
		       bit == LAYOUT_LIMIT_PAGES ? "use fewer clients at a time" : "delete keys");
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

/* more than are drawn before it is looked again: those of all asynchronous puts */
#define STAMPS_LEFT (2 * ENGINE_OPS)

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
