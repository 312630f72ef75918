/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * housekeeping.c - the one thread of the process, which looks after all sessions while the
 * application makes no calls
 *
 * Started with the first session, ended with the last. It takes a session only when no call is in
 * it; from one that is busy at every visit it asks the call to do the work (session->wanted). A
 * session in which nothing happens is only asked whether the daemon is still there, and gets the
 * rest once a second. The list of sessions is the one thing here that belongs to the whole process.
 * Next: process.c for what is done, reconnect.c for sessions that are lost.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "session.h"

#define VISIT_NS 250000000
#define IDLE_NS  900000000u /* an idle session's turn comes with every fourth visit */

/* Lock order: lock, then a session's owner word. */
static struct housekeeping {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool running;
	uintptr_t run; /* number of the thread that shall run; an older one ends */
	/* of the process that this state belongs to: a forked child has no thread */
	unsigned generation;
	/* visited without the lock, so it stays in the list meanwhile; NULL: none */
	const struct tarn_session *visited;
	LIST_HEAD(, tarn_session) sessions;
} housekeeping = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Connects a lost session again, if there is time left for that in this round. */
static void revive(struct tarn_session *s, uint64_t *budget_ns)
{
	uint64_t begin = clock_now_ns(), spent;

	if (*budget_ns == 0)
		return;
	session_reconnect_try(s, *budget_ns);
	spent = clock_now_ns() - begin;
	*budget_ns = spent < *budget_ns ? *budget_ns - spent : 0;
}

static void look_after(struct tarn_session *s, uint64_t *budget_ns)
{
	bool idle = s->last_call_ns < s->last_process_ns &&
		    session_now(s) - s->last_process_ns < IDLE_NS;

	if (!s->lost && s->ep->ops->check(s->ep) < 0)
		session_lose(s);
	if (s->engine && !s->lost)
		engine_turn(s->engine);
	if (s->lost)
		revive(s, budget_ns);
	else if (!idle)
		session_process(s);
	session_watch(s);
}

void housekeeping_visit(struct tarn_session *s, uint64_t *budget_ns)
{
	unsigned idle = SESSION_IDLE;

	/* acquire and release: pair with those in session_enter() and session_leave() */
	if (!atomic_compare_exchange_strong_explicit(&s->owner, &idle, SESSION_HOUSEKEEPING,
						     memory_order_acquire, memory_order_relaxed)) {
		atomic_store_explicit(&s->wanted, 1, memory_order_relaxed);
		return;
	}
	if (s->cluster)
		cluster_look_after(s, budget_ns);
	else
		look_after(s, budget_ns);
	atomic_store_explicit(&s->owner, SESSION_IDLE, memory_order_release);
}

static void *run(void *arg)
{
	struct housekeeping *h = &housekeeping;
	struct tarn_session *s;
	struct timespec t;

	pthread_mutex_lock(&h->lock);
	while (h->run == (uintptr_t)arg) {
		uint64_t budget_ns = SESSION_TRY_NS; /* for all sessions of a round */

		/*
		 * Without the lock: a daemon that is stopped can make a visit last as long as a
		 * call, and only who closes that session has to wait for it.
		 */
		LIST_FOREACH (s, &h->sessions, housekeeping) {
			h->visited = s;
			pthread_mutex_unlock(&h->lock);
			housekeeping_visit(s, &budget_ns);
			pthread_mutex_lock(&h->lock);
			h->visited = NULL;
			pthread_cond_broadcast(&h->changed);
		}
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += VISIT_NS;
		t.tv_sec += t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&h->changed, &h->lock, &t);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* The thread takes no signals: they are the application's. */
static int start(struct housekeeping *h)
{
	sigset_t all, old;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&h->thread, NULL, run, (void *)++h->run);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return err_set(-error,
			       "cannot start the housekeeping thread: %s; or use TARN_NO_THREAD",
			       strerror(error));
	pthread_setname_np(h->thread, "tarn-house");
	h->running = true;
	return 0;
}

/*
 * In a forked child the parent's sessions are not ours, its thread does not exist, and its lock may
 * be held for ever.
 */
static void adopt_child(struct housekeeping *h)
{
	if (h->generation == session_fork_generation())
		return;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->changed, NULL);
	h->running = false;
	h->visited = NULL;
	LIST_INIT(&h->sessions);
	h->generation = session_fork_generation();
}

int housekeeping_add(struct tarn_session *session)
{
	struct housekeeping *h = &housekeeping;
	int ret = 0;

	adopt_child(h);
	pthread_mutex_lock(&h->lock);
	if (!h->running)
		ret = start(h);
	if (ret == 0)
		LIST_INSERT_HEAD(&h->sessions, session, housekeeping);
	pthread_mutex_unlock(&h->lock);
	return ret;
}

void housekeeping_remove(struct tarn_session *session)
{
	struct housekeeping *h = &housekeeping;
	bool last;
	pthread_t thread;

	pthread_mutex_lock(&h->lock);
	while (h->visited == session)
		pthread_cond_wait(&h->changed, &h->lock);
	LIST_REMOVE(session, housekeeping);
	last = LIST_EMPTY(&h->sessions);
	thread = h->thread;
	if (last) {
		h->run++;
		h->running = false;
		pthread_cond_broadcast(&h->changed);
	}
	pthread_mutex_unlock(&h->lock);
	if (last)
		pthread_join(thread, NULL);
}
