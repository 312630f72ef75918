/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/watchdog.c: systemd hears that all is well as long as keepers make their steps, and not without. */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <event2/event.h>

#include "clock.h"
#include "pool-fixture.h"
#include "watchdog.h"

#define USEC "90000" /* a timer of 30 ms */

/* A pool, and this test as systemd. */
struct machine {
	struct fixture f;
	struct event_base *base;
	struct event *steps;
	struct watchdog *watchdog;
	int socket;
};

static void on_step(evutil_socket_t fd, short what, void *arg)
{
	struct machine *m = arg;

	(void)fd;
	(void)what;
	keeper_step(m->f.pool->keeper, clock_now_ns());
}

static void machine_open(struct machine *m)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	/* in the abstract namespace: nothing to remove */
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "tarn-test-watchdog-%d",
		 (int)getpid());
	m->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(m->socket, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
					  strlen(address.sun_path + 1))),
			 0);
	fixture_open(&m->f, ""); /* says other things to systemd, so before that is there */
	address.sun_path[0] = '@';
	assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", USEC, 1), 0);
	unsetenv("WATCHDOG_PID");
	m->base = event_base_new();
	m->steps = event_new(m->base, -1, EV_PERSIST, on_step, m);
	assert_non_null(m->steps);
	assert_int_equal(watchdog_create(m->base, &m->f.pool, 1, &m->watchdog), 0);
}

static void machine_close(struct machine *m)
{
	watchdog_free(m->watchdog);
	event_free(m->steps);
	event_base_free(m->base);
	fixture_close(&m->f);
	close(m->socket);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
}

/* Runs the loop; how many messages there were. */
static unsigned run_for(struct machine *m, long ms)
{
	unsigned count = 0;
	char text[64];
	ssize_t got;

	assert_int_equal(
		event_base_loopexit(m->base, &(struct timeval){ms / 1000, ms % 1000 * 1000}), 0);
	assert_int_equal(event_base_dispatch(m->base), 0);
	while ((got = recv(m->socket, text, sizeof(text), 0)) > 0) {
		assert_int_equal(got, strlen("WATCHDOG=1"));
		assert_memory_equal(text, "WATCHDOG=1", (size_t)got);
		count++;
	}
	return count;
}

static void test_steps(void **state)
{
	struct machine m;

	(void)state;
	machine_open(&m);
	assert_non_null(m.watchdog);
	event_add(m.steps, &(struct timeval){0, 5000});
	assert_true(run_for(&m, 500) >= 3);
	machine_close(&m);
}

/* The loop runs, its timers fire, and the keeper stands still though it is due. */
static void test_stuck(void **state)
{
	struct machine m;

	(void)state;
	machine_open(&m);
	log_init(&m.f.log, -1, LOG_LEVEL_ERROR);
	keeper_step(m.f.pool->keeper, clock_now_ns() / 2); /* long due, also soon after a boot */
	assert_int_equal(run_for(&m, 60), 1);                          /* that step */
	assert_int_equal(run_for(&m, 300), 0);
	event_add(m.steps, &(struct timeval){0, 5000});
	assert_true(run_for(&m, 500) >= 3);
	machine_close(&m);
}

/* No step is made, and none is due. */
static void test_idle(void **state)
{
	struct machine m;

	(void)state;
	machine_open(&m);
	keeper_step(m.f.pool->keeper, clock_now_ns() + 3600000000000);
	assert_true(run_for(&m, 500) >= 3);
	machine_close(&m);
}

/* Nobody waits for messages: of no process, or of another one. */
static void test_off(void **state)
{
	struct machine m;
	struct watchdog *watchdog = (struct watchdog *)1;

	(void)state;
	machine_open(&m);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(watchdog_create(m.base, &m.f.pool, 1, &watchdog), 0);
	assert_null(watchdog);
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "many", 1);
	watchdog = (struct watchdog *)1;
	assert_int_equal(watchdog_create(m.base, &m.f.pool, 1, &watchdog), 0);
	assert_null(watchdog);
	watchdog_free(NULL);
	machine_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
