/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mover.c - a thread with an ordinary session at the member that gets shards: asks whether it is ready, and copies
 *
 * The thread has session and copy for itself; it takes one command at a time and posts what has become of it, which the main thread reads
 * from the loop. A connection belongs to one attempt: the target knows it by the attempt's number since its first "ready", and ends it
 * when the attempt is over there. Next to read: shard-copy.h; member-mover.c, which is the main thread's side of it.
 */
#include "mover.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "err.h"
#include "pool.h"
#include "uri.h"

#define TIMEOUT_MS 5000u      /* of one operation at the target, and of connecting */
#define LOOK_NS    250000000u /* how often a connection that waits is looked at */
#define SHORT_NS   20000000u  /* a copy that took no longer is not made again */
#define TEXT_MAX   255u

enum command { MOVER_NONE, MOVER_ASK, MOVER_COPY, MOVER_BRING };

/* For the main thread. */
struct news {
	bool answered, copied, lost, unreachable;
	uint64_t answer_number, boot_id, lost_number;
	enum handover_answer answer;
	int result;
	char copied_text[TEXT_MAX + 1], text[TEXT_MAX + 1];
};

struct mover {
	const struct pool *pool;
	struct mover_events events;
	void *arg;
	struct event *event; /* of fd */
	int fd;              /* an eventfd: there is news */
	bool runs;
	pthread_t thread;
	atomic_bool stop; /* the copy is to end; changed under the lock */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* ---- under the lock ---- */
	enum command next;
	bool drops, quits;
	struct mover_target target; /* of the command */
	struct handover_ask ask;
	uint64_t rate;
	struct mover_stats stats; /* of copies that are over */
	struct shard_copy *copy;  /* made and freed by the thread */
	struct news news;
	/* ---- the thread's ---- */
	struct tarn_session *session;
	uint64_t number; /* of the session's attempt */
	bool ready;      /* the target has said so of all its shards by this session, and not otherwise since */
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void publish(struct mover *m)
{
	uint64_t one = 1;

	(void)!write(m->fd, &one, sizeof(one)); /* an eventfd takes it */
}

static void tell_answer(struct mover *m, uint64_t number, enum handover_answer answer, uint64_t boot_id)
{
	pthread_mutex_lock(&m->lock);
	m->news.answered = true;
	m->news.answer_number = number;
	m->news.answer = answer;
	m->news.boot_id = boot_id;
	pthread_mutex_unlock(&m->lock);
	publish(m);
}

static void tell_copied(struct mover *m, int result)
{
	pthread_mutex_lock(&m->lock);
	m->news.copied = true;
	m->news.result = result;
	snprintf(m->news.copied_text, sizeof(m->news.copied_text), "%s", result < 0 ? err_text() : "");
	pthread_mutex_unlock(&m->lock);
	publish(m);
}

/* With err_text(). number: of the connection that is lost; 0: there was none. */
static void tell_failed(struct mover *m, uint64_t number)
{
	pthread_mutex_lock(&m->lock);
	m->news.lost = number != 0;
	m->news.lost_number = number;
	m->news.unreachable = number == 0;
	snprintf(m->news.text, sizeof(m->news.text), "%s", err_text());
	pthread_mutex_unlock(&m->lock);
	publish(m);
}

static void copy_set(struct mover *m, struct shard_copy *copy)
{
	struct shard_copy *old;
	struct shard_copy_stats stats;

	pthread_mutex_lock(&m->lock);
	old = m->copy;
	if (old) {
		shard_copy_get_stats(old, &stats);
		m->stats.keys += stats.keys;
		m->stats.bytes += stats.bytes;
	}
	m->copy = copy;
	if (copy)
		shard_copy_set_rate(copy, m->rate);
	pthread_mutex_unlock(&m->lock);
	shard_copy_free(old);
}

static void hang_up(struct mover *m)
{
	copy_set(m, NULL);
	tarn_session_close(m->session);
	m->session = NULL;
	m->ready = false;
}

static int open_address(const struct mover_target *target, const struct cluster_address *address,
			struct tarn_session **ret_session)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	char text[sizeof("tarn:/?pool=") + WIRE_POOL_NAME_MAX];
	struct uri *uri = malloc(sizeof(*uri));
	int rc = uri ? 0 : err_set(-ENOMEM, "out of memory");

	options.flags = TARN_NO_THREAD | TARN_NO_CACHE;
	options.timeout_ms = TIMEOUT_MS;
	snprintf(text, sizeof(text), "tarn:/?pool=%s", target->pool);
	if (rc == 0)
		rc = uri_parse(text, uri);
	if (rc == 0)
		rc = address->shm ? uri_set_path(uri, address->text) : uri_set_host(uri, address->text);
	if (rc == 0)
		rc = session_open_mover(uri, &options, target->cluster, target->has_key ? &target->key : NULL,
					ret_session);
	free(uri);
	return rc;
}

static int dial(struct mover *m, const struct mover_target *target, uint64_t number)
{
	int rc = err_set(-TARN_EUNREACHABLE, "the map has no address of it that leads there");
	const struct cluster_address *address;
	uint32_t at = 0;

	while ((address = cluster_address_next(target->addresses, target->address_count, &at))) {
		rc = open_address(target, address, &m->session);
		if (rc == 0) {
			m->number = number;
			return 0;
		}
		m->session = NULL;
	}
	return rc;
}

static int question(struct mover *m, const struct wire_rpc *rpc, struct wire_rpc_reply *ret_reply)
{
	int rc = session_hold(m->session);

	if (rc < 0)
		return rc;
	m->session->limit_ns = session_now(m->session) + TIMEOUT_MS * 1000000ull;
	rc = session_ask(m->session, rpc, ret_reply);
	m->session->limit_ns = 0;
	session_leave(m->session);
	return rc;
}

/* 1: it is ready for what is asked; 0: not yet; negative: with a text, the connection is of no use. */
static int ask_one(struct mover *m, const struct handover_ask *ask, uint32_t first, uint32_t places, uint64_t hash,
		   uint64_t *ret_boot_id)
{
	const struct wire_rpc rpc = {
		.type = WIRE_RPC_READY,
		.class = first,
		.slot_offset = hash,
		.slot_word = ask->number,
		.delta = (int64_t)(ask->from | (uint64_t)ask->to << 16 | (uint64_t)places << 32),
	};
	struct wire_rpc_reply reply;
	int rc = question(m, &rpc, &reply);

	if (rc < 0)
		return rc;
	if (reply.number == WIRE_READY_ANOTHER)
		return err_set(-TARN_EPROTO,
			       "member %u is asked at its address in the map, and member %lld answers: have each "
			       "member's [listen ...] say addresses of its own, and restart the one that is wrong",
			       ask->to, (long long)reply.value);
	*ret_boot_id = (uint64_t)reply.value;
	return reply.number == WIRE_READY_NOW;
}

/* In one message; if that does not lead there one shard after the other: none ceases to be ready but with its attempt. Likewise. */
static int ask_shards(struct mover *m, const struct handover_ask *ask, uint64_t *ret_boot_id)
{
	struct handover_question all;
	int rc;

	handover_question(ask, m->pool->geometry.shards, &all);
	rc = ask_one(m, ask, all.first, all.places, all.hash, ret_boot_id);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < ask->count; i++) {
		rc = ask_one(m, ask, ask->shards[i], 0, ask->since[i], ret_boot_id);
		if (rc != 1)
			return rc;
	}
	return 1;
}

static void do_ask(struct mover *m, const struct mover_target *target, const struct handover_ask *ask)
{
	uint64_t boot_id = 0;
	int rc = 0;

	if (m->session && m->number != ask->number)
		hang_up(m);
	if (!m->session)
		rc = dial(m, target, ask->number);
	if (rc == 0)
		rc = ask_shards(m, ask, &boot_id);
	if (rc < 0) {
		tell_failed(m, 0);
		hang_up(m);
		return;
	}
	m->ready = rc == 1;
	tell_answer(m, ask->number, rc == 1 ? HANDOVER_READY : HANDOVER_WAIT, boot_id);
}

/*
 * Clients go on while it is copied, and what they have changed is brought while they can not write: as little as can be. So it is
 * copied again, as long as that has got much shorter.
 */
static int copy_all(struct mover *m, struct shard_copy *copy)
{
	uint64_t took, before = UINT64_MAX, began = clock_now_ns();
	int rc = shard_copy_run(copy, &m->stop);

	for (took = clock_now_ns() - began; rc == 0 && took > SHORT_NS && took < before / 2;
	     took = clock_now_ns() - began) {
		before = took;
		began += took;
		shard_copy_again(copy);
		rc = shard_copy_run(copy, &m->stop);
	}
	return rc;
}

static void do_copy(struct mover *m, const struct handover_ask *ask)
{
	struct shard_copy *copy;
	int rc = 0;

	/*
	 * "Ready" may have been said by a connection before this one: then the target has cut the attempt, and knows
	 * nothing of a mover here that it would have to cut
	 */
	if (!m->session || m->number != ask->number || !m->ready)
		rc = err_set(-TARN_ESESSION, "the connection by which it was ready is lost");
	if (rc == 0)
		rc = shard_copy_create(m->pool, ask->shards, ask->count, m->session, &copy);
	if (rc == 0) {
		copy_set(m, copy);
		rc = copy_all(m, copy);
	}
	tell_copied(m, rc);
}

static void do_bring(struct mover *m)
{
	int rc = m->copy ? 0 : err_set(-TARN_ESESSION, "the connection by which it was copied is lost");

	if (rc == 0) {
		shard_copy_bring(m->copy);
		rc = shard_copy_run(m->copy, &m->stop);
	}
	tell_copied(m, rc);
	/* the target opens when its movers' connections have ended, and no reader waits for that then */
	if (rc == 0)
		hang_up(m);
}

/* Nobody uses it just now: has it ended? And its part of what all sessions do, which the target's sweeps wait for. */
static void look(struct mover *m)
{
	const struct wire_rpc ping = {.type = WIRE_RPC_PING};
	struct wire_rpc_reply reply;
	int rc = question(m, &ping, &reply);

	if (rc == 0)
		rc = tarn_session_process(m->session);
	if (rc == 0)
		return;
	tell_failed(m, m->number);
	hang_up(m);
}

/* With the lock. False: the connection is to be looked at. */
static bool await(struct mover *m)
{
	struct timespec until;
	uint64_t ns;

	if (m->quits || m->drops || m->next != MOVER_NONE)
		return true;
	if (!m->session) {
		pthread_cond_wait(&m->wake, &m->lock);
		return m->quits || m->drops || m->next != MOVER_NONE;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	ns = (uint64_t)until.tv_nsec + LOOK_NS;
	until.tv_sec += (time_t)(ns / 1000000000);
	until.tv_nsec = (long)(ns % 1000000000);
	(void)pthread_cond_timedwait(&m->wake, &m->lock, &until);
	return m->quits || m->drops || m->next != MOVER_NONE;
}

static void run(struct mover *m, enum command command, const struct mover_target *target,
		const struct handover_ask *ask)
{
	switch (command) {
	case MOVER_NONE:
		break;
	case MOVER_ASK:
		do_ask(m, target, ask);
		break;
	case MOVER_COPY:
		do_copy(m, ask);
		break;
	case MOVER_BRING:
		do_bring(m);
		break;
	}
}

static void *mover_main(void *arg)
{
	struct mover *m = arg;
	struct mover_target target;
	struct handover_ask ask;
	enum command command;
	bool drops;

	pthread_mutex_lock(&m->lock);
	while (!m->quits) {
		if (!await(m)) {
			pthread_mutex_unlock(&m->lock);
			if (m->session)
				look(m);
			pthread_mutex_lock(&m->lock);
			continue;
		}
		if (m->quits)
			break;
		command = m->next;
		drops = m->drops;
		target = m->target;
		ask = m->ask;
		m->next = MOVER_NONE;
		m->drops = false;
		if (drops)
			atomic_store(&m->stop, false);
		pthread_mutex_unlock(&m->lock);
		if (drops)
			hang_up(m);
		run(m, command, &target, &ask);
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	hang_up(m);
	explicit_bzero(&target, sizeof(target));
	return NULL;
}

/* ---- the main thread ------------------------------------------------------------------------- */

static void on_news(evutil_socket_t fd, short what, void *arg)
{
	struct mover *m = arg;
	struct news news;
	uint64_t count;

	(void)what;
	(void)!read(fd, &count, sizeof(count)); /* what it counts is not needed */
	pthread_mutex_lock(&m->lock);
	news = m->news;
	m->news = (struct news){0};
	pthread_mutex_unlock(&m->lock);
	if (news.lost)
		m->events.lost(m->arg, news.lost_number, news.text);
	if (news.unreachable)
		m->events.unreachable(m->arg, news.text);
	if (news.answered)
		m->events.answered(m->arg, news.answer_number, news.answer, news.boot_id);
	if (news.copied)
		m->events.copied(m->arg, news.result, news.copied_text);
}

/* Signals are the main thread's. */
static int thread_start(struct mover *m)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	/* a fault of memory is its own: sigbus.h */
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = -pthread_create(&m->thread, NULL, mover_main, m);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	m->runs = rc == 0;
	return rc < 0 ? err_set(rc, "no thread to hand shards over: %s", strerrordesc_np(-rc)) : 0;
}

int mover_create(const struct pool *pool, struct event_base *base, const struct mover_events *events, void *arg,
		 struct mover **ret_mover)
{
	struct mover *m = calloc(1, sizeof(*m));
	int rc = 0;

	if (!m)
		return err_set(-ENOMEM, "out of memory");
	m->pool = pool;
	m->events = *events;
	m->arg = arg;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->wake, NULL);
	m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->fd < 0)
		rc = err_set(-errno, "eventfd: %s", strerrordesc_np(errno));
	if (rc == 0) {
		m->event = event_new(base, m->fd, EV_READ | EV_PERSIST, on_news, m);
		if (!m->event || event_add(m->event, NULL) < 0)
			rc = err_set(-ENOMEM, "out of memory");
	}
	if (rc == 0)
		rc = thread_start(m);
	if (rc < 0) {
		mover_free(m);
		return rc;
	}
	*ret_mover = m;
	return 0;
}

void mover_free(struct mover *m)
{
	if (!m)
		return;
	if (m->runs) {
		pthread_mutex_lock(&m->lock);
		m->quits = true;
		atomic_store(&m->stop, true);
		pthread_cond_signal(&m->wake);
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
	}
	if (m->event)
		event_free(m->event);
	if (m->fd >= 0)
		close(m->fd);
	pthread_cond_destroy(&m->wake);
	pthread_mutex_destroy(&m->lock);
	explicit_bzero(&m->target, sizeof(m->target));
	free(m);
}

void mover_set_rate(struct mover *m, uint64_t bytes_per_second)
{
	pthread_mutex_lock(&m->lock);
	m->rate = bytes_per_second;
	if (m->copy)
		shard_copy_set_rate(m->copy, bytes_per_second);
	pthread_mutex_unlock(&m->lock);
}

/* With the lock. */
static void command(struct mover *m, enum command next)
{
	m->next = next;
	pthread_cond_signal(&m->wake);
}

void mover_ask(struct mover *m, const struct mover_target *target, const struct handover_ask *ask)
{
	pthread_mutex_lock(&m->lock);
	if (m->next == MOVER_NONE || m->next == MOVER_ASK) {
		m->target = *target;
		m->ask = *ask;
		command(m, MOVER_ASK);
	}
	pthread_mutex_unlock(&m->lock);
}

void mover_copy(struct mover *m, const struct handover_ask *attempt)
{
	pthread_mutex_lock(&m->lock);
	m->ask = *attempt;
	command(m, MOVER_COPY);
	pthread_mutex_unlock(&m->lock);
}

void mover_bring(struct mover *m)
{
	pthread_mutex_lock(&m->lock);
	command(m, MOVER_BRING);
	pthread_mutex_unlock(&m->lock);
}

/* A copy that has not begun yet finds no connection, and says so. */
void mover_drop(struct mover *m)
{
	pthread_mutex_lock(&m->lock);
	m->drops = true;
	atomic_store(&m->stop, true);
	if (m->next == MOVER_ASK)
		m->next = MOVER_NONE;
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->lock);
}

void mover_get_stats(struct mover *m, struct mover_stats *ret_stats)
{
	struct shard_copy_stats stats = {0};

	pthread_mutex_lock(&m->lock);
	if (m->copy)
		shard_copy_get_stats(m->copy, &stats);
	*ret_stats = m->stats;
	ret_stats->keys += stats.keys;
	ret_stats->bytes += stats.bytes;
	pthread_mutex_unlock(&m->lock);
}
