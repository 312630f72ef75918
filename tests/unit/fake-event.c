/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libevent's timers, threads, interfaces and limits for unit tests of the daemon (fake-verbs.h),
 * wrapped by the linker: a timer comes when fake_loop() has made the fake's time pass, a thread runs when it
 * is made, or, with fake.hold_threads, when it is waited for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "fake-verbs.h"

#define TIMERS 4096u
#define ROUNDS 100000u /* of the loop without time passing: something makes itself busy */

static struct {
	struct event *event;
	uint64_t due_ns;
} timers[TIMERS];
static unsigned timer_count;

static struct {
	void *(*start)(void *);
	void *arg;
	bool waiting;
} thread;

struct event *__real_event_new(struct event_base *base, evutil_socket_t fd, short what,
			       event_callback_fn call, void *arg);
struct event *__wrap_event_new(struct event_base *base, evutil_socket_t fd, short what,
			       event_callback_fn call, void *arg);
int __real_event_add(struct event *event, const struct timeval *tv);
int __wrap_event_add(struct event *event, const struct timeval *tv);
int __real_event_del(struct event *event);
int __wrap_event_del(struct event *event);
void __real_event_free(struct event *event);
void __wrap_event_free(struct event *event);
int __real_event_pending(const struct event *event, short what, struct timeval *ret_tv);
int __wrap_event_pending(const struct event *event, short what, struct timeval *ret_tv);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *),
			  void *arg);
int __wrap_pthread_join(pthread_t id, void **ret);
int __wrap_getifaddrs(struct ifaddrs **ret);
int __real_getrlimit(int resource, struct rlimit *ret);
int __wrap_getrlimit(int resource, struct rlimit *ret);
void __wrap_freeifaddrs(struct ifaddrs *list);

/* ---- timers ---- */

static void timer_forget(const struct event *event)
{
	for (unsigned i = 0; i < timer_count; i++)
		if (timers[i].event == event)
			timers[i--] = timers[--timer_count];
}

struct event *__wrap_event_new(struct event_base *base, evutil_socket_t fd, short what,
			       event_callback_fn call, void *arg)
{
	if (fake_refuses("event_new"))
		return NULL;
	fake_count(FAKE_EVENT, 1);
	return __real_event_new(base, fd, what, call, arg);
}

int __wrap_event_add(struct event *event, const struct timeval *tv)
{
	if (!tv)
		return fake_refuses("event_add") ? -1 : __real_event_add(event, NULL);
	/* a timer and nothing else: no other is used. To set it needs no memory: never fails. */
	assert_int_equal(event_get_fd(event), -1);
	timer_forget(event);
	assert_in_range(timer_count, 0, TIMERS - 1);
	timers[timer_count].event = event;
	timers[timer_count++].due_ns =
		fake.now_ns + (uint64_t)tv->tv_sec * 1000000000 + (uint64_t)tv->tv_usec * 1000;
	return 0;
}

int __wrap_event_del(struct event *event)
{
	timer_forget(event);
	return __real_event_del(event);
}

void __wrap_event_free(struct event *event)
{
	timer_forget(event);
	fake_count(FAKE_EVENT, -1);
	__real_event_free(event);
}

int __wrap_event_pending(const struct event *event, short what, struct timeval *ret_tv)
{
	for (unsigned i = 0; i < timer_count; i++)
		if (timers[i].event == event)
			return EV_TIMEOUT;
	return __real_event_pending(event, what, ret_tv);
}

void fake_event_end(void)
{
	timer_count = 0;
	thread.waiting = false;
}

/* ---- the loop ---- */

static bool timer_fire(uint64_t until_ns)
{
	unsigned first = timer_count;

	for (unsigned i = 0; i < timer_count; i++)
		if (timers[i].due_ns <= until_ns &&
		    (first == timer_count || timers[i].due_ns < timers[first].due_ns))
			first = i;
	if (first == timer_count)
		return false;
	if (timers[first].due_ns > fake.now_ns)
		fake_pass_ns(timers[first].due_ns - fake.now_ns);
	{
		struct event *event = timers[first].event;

		timers[first] = timers[--timer_count];
		event_active(event, EV_TIMEOUT, 1);
	}
	return true;
}

static void nic_runs(void)
{
	struct ibv_qp *qp;

	for (unsigned i = 0; !fake.hold && (qp = fake_nth_qp(i)); i++)
		fake_run(qp, UINT32_MAX);
}

/* Until nothing is left to do at this moment. */
static void settle(struct event_base *base)
{
	for (unsigned i = 0; i < 4; i++) {
		nic_runs();
		/* 1: no events are registered; 0: something was, or could have been, handled */
		event_base_loop(base, EVLOOP_NONBLOCK);
	}
}

void fake_loop(struct event_base *base, uint64_t ns)
{
	uint64_t until = fake.now_ns + ns;
	unsigned rounds = 0;

	settle(base);
	while (timer_fire(until)) {
		settle(base);
		if (++rounds > ROUNDS)
			fail_msg("the loop does not come to rest");
	}
	if (fake.now_ns < until)
		fake_pass_ns(until - fake.now_ns);
}

/* ---- threads ---- */

void fake_thread_run(void)
{
	if (!thread.waiting)
		return;
	thread.waiting = false;
	thread.start(thread.arg);
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *),
			  void *arg)
{
	(void)attr;
	if (fake_refuses("pthread_create"))
		return errno;
	assert_false(thread.waiting);
	*ret = pthread_self();
	thread.start = start;
	thread.arg = arg;
	thread.waiting = true;
	fake_count(FAKE_THREAD, 1);
	if (!fake.hold_threads)
		fake_thread_run();
	return 0;
}

int __wrap_pthread_join(pthread_t id, void **ret)
{
	(void)id;
	(void)ret;
	fake_thread_run();
	fake_count(FAKE_THREAD, -1);
	return 0;
}

/* ---- interfaces: one, with the first device's address ---- */

int __wrap_getifaddrs(struct ifaddrs **ret)
{
	struct sockaddr_in *address;
	struct ifaddrs *one;

	if (fake_refuses("getifaddrs"))
		return -1;
	one = __real_calloc(1, sizeof(*one) + sizeof(*address));
	assert_non_null(one);
	address = (struct sockaddr_in *)(void *)(one + 1);
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(0x0a4d0001);
	one->ifa_name = (char *)(uintptr_t) "fake-eth0";
	one->ifa_flags = IFF_UP;
	one->ifa_addr = (struct sockaddr *)address;
	*ret = one;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
	free(list);
}

/* ---- limits: whoever runs the test may lock as much as it takes ---- */

int __wrap_getrlimit(int resource, struct rlimit *ret)
{
	int rc = __real_getrlimit(resource, ret);

	if (rc == 0 && resource == RLIMIT_MEMLOCK)
		ret->rlim_cur = ret->rlim_max = RLIM_INFINITY;
	return rc;
}
