/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reconnect.c - a session whose connection is gone gets another one, as a new client
 *
 * When to try is decided here; what a try is, by the session's connector (connect.c). What the old
 * connection owned in the pool is forgotten, the sweep finds it (docs/protocol.md section 5); what
 * is known of the index stays as long as the pool is the same. Also here: the descriptor for event
 * loops, which has to outlive connections. Runs on the session's owner; what the engine has under way
 * ends first. Next: connect.c, housekeeping.c.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "alloc.h"
#include "auth.h"
#include "cache.h"
#include "clock.h"
#include "cluster.h"
#include "directory.h"
#include "engine.h"
#include "err.h"
#include "reference.h"
#include "mutation.h"
#include "session.h"

#define DELAY_MIN_NS   10000000ull
#define DELAY_MAX_NS   1000000000ull
#define DELAY_NEVER_NS 10000000000ull /* in the background, when somebody has to act first */
#define LAST_TRY_NS    20000000ull    /* with less time left than this no further try is made */
#define TRY_MAX_NS     2000000000ull /* one try of a reconnect: a dead host must not eat them all */
#define FIRST_TRIES \
	3u /* of a first connection: rdma_cm sends a lost message again after 4 s only */
#define TOLD_MAX_NS 10000000000ull /* nobody is left alone for longer, whatever it asks for */

/* ---- the endpoint of a session without a connection ------------------------------------------ */

static int nowhere_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
			unsigned count, void *cookie)
{
	(void)ep;
	(void)requests;
	(void)count;
	(void)cookie;
	return -TARN_ESESSION;
}

static int nowhere_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		       size_t capacity, void *cookie)
{
	(void)ep;
	(void)message;
	(void)bytes;
	(void)reply;
	(void)capacity;
	(void)cookie;
	return -TARN_ESESSION;
}

static int nowhere_poll(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
			unsigned max)
{
	(void)ep;
	(void)ret_completions;
	(void)max;
	return -TARN_ESESSION;
}

static int nowhere_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	(void)ep;
	(void)timeout_ns;
	return 0;
}

static int nowhere_check(struct fabric_endpoint *ep)
{
	(void)ep;
	return -TARN_ESESSION;
}

static int nowhere_fd(struct fabric_endpoint *ep)
{
	(void)ep;
	return -1;
}

static uint64_t nowhere_now(struct fabric_endpoint *ep)
{
	(void)ep;
	return clock_now_ns();
}

static void nowhere_nothing(struct fabric_endpoint *ep)
{
	(void)ep;
}

static const struct fabric_ops nowhere_ops = {
	.name = "none",
	.post = nowhere_post,
	.rpc = nowhere_rpc,
	.rpc_cancel = nowhere_nothing,
	.poll = nowhere_poll,
	.wait = nowhere_wait,
	.check = nowhere_check,
	.fd = nowhere_fd,
	.now = nowhere_now,
	.close = nowhere_nothing,
};

void session_nowhere(struct tarn_session *s)
{
	s->nowhere = (struct fabric_endpoint){.ops = &nowhere_ops};
	s->ep = &s->nowhere;
	s->transport = nowhere_ops.name;
}

/* ---- the descriptor for event loops ---------------------------------------------------------- */

static void unwatch(struct tarn_session *s)
{
	/*
	 * by hand: a descriptor of which a forked child has a copy would stay in the set when it is
	 * closed here
	 */
	if (s->watched_fd >= 0)
		epoll_ctl(s->event_fd, EPOLL_CTL_DEL, s->watched_fd, NULL);
	s->watched_fd = -1;
}

static void watch(struct tarn_session *s)
{
	struct epoll_event event = {.events = EPOLLIN};
	int fd = s->ep->ops->fd(s->ep);

	if (fd == s->watched_fd)
		return;
	unwatch(s);
	if (fd >= 0 && epoll_ctl(s->event_fd, EPOLL_CTL_ADD, fd, &event) == 0)
		s->watched_fd = fd;
}

void session_watch(struct tarn_session *s)
{
	if (s->event_fd < 0)
		return;
	watch(s);
	/* an endpoint is asked for it by a poll that finds nothing */
	while (!s->lost && session_collect(s) > 0)
		;
	if (s->engine)
		engine_watch(s->engine);
}

TARN_API int tarn_session_fd(struct tarn_session *session)
{
	int ret;

	if (session && session->cluster)
		return cluster_fd(session);
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	if (session->event_fd < 0)
		session->event_fd = epoll_create1(EPOLL_CLOEXEC);
	ret = session->event_fd >= 0
		      ? session->event_fd
		      : err_set(-errno, "no descriptor for the session: %s", err_string(errno));
	session_leave(session);
	return ret;
}

/* ---- from one connection to the next --------------------------------------------------------- */

/* The old connection ends before a new one is asked for: its place may be the last one. */
static void drop(struct tarn_session *s)
{
	struct fabric_endpoint *old = s->ep;

	if (old == &s->nowhere)
		return;
	/* what has come before the end is known */
	while (session_collect(s) > 0)
		;
	unwatch(s);
	s->nowhere = (struct fabric_endpoint){
		.ops = &nowhere_ops,
		.pool_bytes = old->pool_bytes,
		.read_only = old->read_only,
	};
	s->ep = &s->nowhere;
	buffer_lost(s);
	old->ops->close(old);
}

/* What belongs to one connection, or to one pool, is made anew. Takes the endpoint over. */
static int adopt(struct tarn_session *s, const struct session_link *link)
{
	bool same = link->geometry.boot_id == s->geometry.boot_id &&
		    link->geometry.incarnation == s->geometry.incarnation;
	struct layout_geometry before = s->geometry;
	struct directory *directory = NULL;
	struct alloc *alloc = NULL;
	int ret;

	s->geometry = link->geometry;
	ret = alloc_create(s, &alloc);
	if (ret == 0 && !same)
		ret = directory_create(&s->geometry, &directory);
	if (ret < 0) {
		s->geometry = before;
		alloc_free(alloc);
		link->ep->ops->close(link->ep);
		return ret;
	}
	if (MUTATED(MUTATION_RECONNECT)) {
		alloc_free(alloc);
	} else {
		alloc_free(s->alloc);
		s->alloc = alloc;
	}
	s->epoch_read_ns = 0;
	if (!same) {
		directory_free(s->directory);
		s->directory = directory;
		if (s->cache)
			cache_clear(s->cache);
		s->epoch = 0;
		s->pool_serial++;
	}
	s->ep = link->ep;
	s->notices_seen = 0;
	s->transport = link->ep->ops->name;
	buffer_connected(s);
	s->identity.client_id = s->stats.client_id = link->identity.client_id;
	s->identity.client_slot = link->identity.client_slot;
	s->stamp_sequence = 0;
	s->stats.reconnects++;
	process_reset(s->process);
	s->limits = (struct session_limits){0};
	reference_reset(s);
	s->lost = false;
	s->loss[0] = 0;
	s->try_delay_ns = 0;
	if (s->event_fd >= 0)
		watch(s);
	return 0;
}

/* ---- when to try ----------------------------------------------------------------------------- */

/* Half of it to one and a half of it: those who were thrown out together do not come together. */
static uint64_t jitter(uint64_t ns)
{
	uint64_t pause = ns / 2 + auth_random() % (ns + 1);

	return pause > DELAY_MIN_NS ? pause : DELAY_MIN_NS;
}

static uint64_t doubled(uint64_t delay_ns)
{
	if (delay_ns == 0)
		return DELAY_MIN_NS;
	return delay_ns * 2 < DELAY_MAX_NS ? delay_ns * 2 : DELAY_MAX_NS;
}

struct tries {
	uint64_t limit_ns;
	bool stubborn;       /* SESSION_LATER is tried again, too; else only no answer in time is */
	uint64_t try_max_ns; /* for one try */
	unsigned count;
	enum session_again again; /* of the last one */
	uint64_t told_ns; /* as long as the other side wants to be left alone; 0: not said */
	uint64_t delay_ns;
};

/* How long to wait until the next try; 0: there is no time for one. */
static uint64_t pause_before(struct tries *t)
{
	uint64_t now = clock_now_ns(), pause, left;

	if (now + LAST_TRY_NS > t->limit_ns)
		return 0;
	left = t->limit_ns - now;
	if (t->again == SESSION_SOON && t->told_ns) {
		pause = jitter(t->told_ns < TOLD_MAX_NS ? t->told_ns : TOLD_MAX_NS);
		return pause < left ? pause : 0;
	}
	t->delay_ns = doubled(t->delay_ns);
	pause = jitter(t->delay_ns);
	if (pause > DELAY_MAX_NS)
		pause = DELAY_MAX_NS;
	return pause < left / 2 ? pause : left / 2;
}

static int try_until(struct session_connector *connector, struct tries *t,
		     struct session_link *ret_link)
{
	uint64_t now = clock_now_ns(), pause;
	int ret = err_set(-TARN_ETIMEOUT, "the time limit of the call is over");

	t->again = SESSION_LATER;
	while (now < t->limit_ns) {
		uint64_t left = t->limit_ns - now;

		t->told_ns = 0;
		t->again = SESSION_NEVER;
		t->count++;
		ret = connector->connect(connector, left < t->try_max_ns ? left : t->try_max_ns,
					 ret_link, &t->again, &t->told_ns);
		if (ret == 0 || t->again == SESSION_NEVER ||
		    (t->again == SESSION_LATER && !t->stubborn && ret != -TARN_ETIMEOUT))
			return ret;
		pause = pause_before(t);
		if (pause == 0)
			return ret;
		clock_sleep_ns(pause);
		now = clock_now_ns();
	}
	return ret;
}

int session_connect(struct session_connector *connector, uint64_t limit_ns,
		    struct session_link *ret_link)
{
	struct tries t = {.limit_ns = limit_ns, .try_max_ns = TRY_MAX_NS};
	uint64_t now = clock_now_ns();
	int ret;

	/* who waits for its turn in a crowd shall not lose it */
	if (now < limit_ns && (limit_ns - now) / FIRST_TRIES > TRY_MAX_NS)
		t.try_max_ns = (limit_ns - now) / FIRST_TRIES;
	ret = try_until(connector, &t, ret_link);

	/* the transport's way to say that the other side's system was too busy to ask tarnd */
	return ret == -EAGAIN ? err_set(-TARN_EREFUSED, "%s", err_text()) : ret;
}

int session_reconnect(struct tarn_session *s, uint64_t limit_ns)
{
	struct tries t = {.limit_ns = limit_ns, .stubborn = true, .try_max_ns = TRY_MAX_NS};
	struct session_link link;
	int ret;

	if (!s->connector)
		return session_lost(s);
	drop(s);
	if (s->engine)
		engine_abandon(s->engine);
	ret = try_until(s->connector, &t, &link);
	if (ret == 0)
		return adopt(s, &link);
	if (t.again == SESSION_NEVER)
		return ret;
	return err_set(-TARN_ESESSION,
		       "not connected to tarnd, tried %u times within the time limit (%llu ms); "
		       "later calls try again. The last try: %s",
		       t.count, (unsigned long long)(s->timeout_ns / 1000000u), err_text());
}

bool session_again(struct tarn_session *s, int *ret_result)
{
	return !s->front && session_retry(s, ret_result);
}

bool session_retry(struct tarn_session *s, int *ret_result)
{
	bool first = s->limit_ns == 0;

	if (*ret_result != -TARN_ESESSION || !s->connector)
		return false;
	if (first)
		s->limit_ns = s->work_limit_ns;
	/* it came and went in this very call: a daemon that throws its clients out */
	if (!first && clock_now_ns() < s->limit_ns)
		clock_sleep_ns(jitter(2 * DELAY_MIN_NS));
	*ret_result = session_reconnect(s, s->limit_ns);
	return *ret_result == 0;
}

int session_reconnect_try(struct tarn_session *s, uint64_t timeout_ns)
{
	enum session_again again = SESSION_NEVER;
	uint64_t told_ns = 0, now;
	struct session_link link;
	int ret;

	if (!s->connector)
		return session_lost(s);
	drop(s);
	if (s->engine)
		engine_abandon(s->engine);
	now = clock_now_ns();
	if (now < s->try_ns)
		return err_set(-TARN_ESESSION,
			       "not connected to tarnd; in the background it is tried again in "
			       "%llu ms, a call on a key tries at once",
			       (unsigned long long)((s->try_ns - now) / 1000000u + 1));
	ret = s->connector->connect(s->connector, timeout_ns, &link, &again, &told_ns);
	if (ret == 0)
		ret = adopt(s, &link);
	if (ret == 0)
		return 0;
	s->try_delay_ns = doubled(s->try_delay_ns);
	if (again == SESSION_NEVER)
		told_ns = DELAY_NEVER_NS;
	/* somebody has to act first: what waits for a connection is told why at once */
	if (again == SESSION_NEVER && s->engine)
		engine_refuse_all(s->engine, NULL, ret);
	if (told_ns > TOLD_MAX_NS)
		told_ns = TOLD_MAX_NS;
	s->try_ns = clock_now_ns() + jitter(told_ns > s->try_delay_ns ? told_ns : s->try_delay_ns);
	return again == SESSION_NEVER
		       ? ret
		       : err_set(-TARN_ESESSION, "not connected to tarnd: %s", err_text());
}
