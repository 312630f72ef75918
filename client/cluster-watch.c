/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-watch.c - the descriptor of a cluster's session for event loops
 *
 * A set (epoll) with the descriptor of each member's session, and a timer for what is due by itself: a call that has ended, or is to be
 * begun again. Runs on the session's owner. Next to read: engine_watch(), session_watch(), cluster-async.c.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "cluster-async.h"
#include "err.h"

/* When a call goes on without anything that comes; UINT64_MAX: never. 0: at once. */
static uint64_t due(const struct cluster_async *a)
{
	const struct cluster_op *call;
	uint64_t due = UINT64_MAX;

	if (!a)
		return UINT64_MAX;
	if (!TAILQ_EMPTY(&a->ended))
		return 0;
	TAILQ_FOREACH (call, &a->arrived, link)
		due = call->wake_ns < due ? call->wake_ns : due;
	TAILQ_FOREACH (call, &a->waits, link)
		due = call->wake_ns < due ? call->wake_ns : due;
	return due;
}

static void timer_set(struct cluster *c, uint64_t due_ns)
{
	struct itimerspec t = {.it_value = {0, 0}};
	uint64_t now = clock_now_ns(), ns = due_ns > now ? due_ns - now : 1;

	if (due_ns != UINT64_MAX)
		t.it_value =
			(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	timerfd_settime(c->timer, 0, &t, NULL);
	c->timer_ns = due_ns;
}

/* By hand before it is closed: a forked child may have a copy of the descriptor. */
void cluster_unwatch(struct cluster *c, struct tarn_session *m)
{
	if (c->session->event_fd >= 0 && m->event_fd >= 0)
		epoll_ctl(c->session->event_fd, EPOLL_CTL_DEL, m->event_fd, NULL);
}

static void watch_member(struct tarn_session *s, struct tarn_session *m)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (m->event_fd < 0) {
		m->event_fd = epoll_create1(EPOLL_CLOEXEC);
		if (m->event_fd >= 0 &&
		    epoll_ctl(s->event_fd, EPOLL_CTL_ADD, m->event_fd, &event) < 0) {
			close(m->event_fd);
			m->event_fd = -1;
		}
	}
	session_watch(m);
}

void cluster_watch(struct tarn_session *s)
{
	struct cluster *c = s->cluster;
	struct tarn_session *m = NULL;
	uint64_t due_ns;

	if (s->event_fd < 0)
		return;
	while ((m = cluster_session_next(c, m)) != NULL)
		watch_member(s, m);
	due_ns = due(c->async);
	if (due_ns != c->timer_ns)
		timer_set(c, due_ns);
}

/* With the timer in it from the beginning. */
static int create(struct cluster *c)
{
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(EPOLL_CLOEXEC), timer, error;

	if (set < 0)
		return err_set(-errno, "no descriptor for the session: %s", err_string(errno));
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, timer, &event) == 0) {
		c->timer = timer;
		c->timer_ns = UINT64_MAX;
		return set;
	}
	error = errno;
	close(set);
	if (timer >= 0)
		close(timer);
	return err_set(-error, "no descriptor for the session: %s", err_string(error));
}

int cluster_fd(struct tarn_session *s)
{
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	ret = s->event_fd >= 0 ? s->event_fd : create(s->cluster);
	if (ret >= 0)
		s->event_fd = ret;
	cluster_leave(s);
	return ret;
}
