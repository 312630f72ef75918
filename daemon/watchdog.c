/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * systemd's watchdog; see watchdog.h. Main thread, a timer of the loop at a third of the time that systemd waits, so that
 * one late message is no reason to be killed. What it does not see: clients' one-sided operations, which need no daemon,
 * and threads that register memory (registration.c), which may well take minutes. Next: keeper.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <event2/event.h>
#include <systemd/sd-daemon.h>

#include "clock.h"
#include "err.h"
#include "events.h"
#include "keeper.h"
#include "pool.h"
#include "service.h"
#include "watchdog.h"

struct watchdog {
	struct pool *const *pools;
	size_t pool_count;
	uint64_t *steps; /* of each pool's keeper, at the last message */
	struct event *timer;
};

/* Has it made a step since the last message, or nothing to do? Else it is stuck. */
static bool gets_on(const struct pool *pool, uint64_t steps_before)
{
	uint64_t now = clock_now_ns(), due, steps = keeper_steps(pool->keeper, &due);

	if (steps != steps_before || now < due)
		return true;
	events_tell(pool->events, EVENT_keeper_stuck, EVENT_FIELDS(.pool = pool->name),
		    "pool %s: its keeper should have made a step %.1f s ago: systemd is not told "
		    "that all is well",
		    pool->name, (double)(now - due) / 1e9);
	return false;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct watchdog *watchdog = arg;
	bool all = true;
	uint64_t due;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < watchdog->pool_count; i++) /* all of them, for the log */
		all = gets_on(watchdog->pools[i], watchdog->steps[i]) && all;
	if (!all)
		return;
	for (size_t i = 0; i < watchdog->pool_count; i++)
		watchdog->steps[i] = keeper_steps(watchdog->pools[i]->keeper, &due);
	service_alive();
}

int watchdog_create(struct event_base *base, struct pool *const *pools, size_t pool_count,
		    struct watchdog **ret_watchdog)
{
	struct watchdog *watchdog;
	struct timeval interval;
	uint64_t usec = 0;

	if (sd_watchdog_enabled(0, &usec) <= 0) {
		*ret_watchdog = NULL;
		return 0;
	}
	watchdog = calloc(1, sizeof(*watchdog));
	if (!watchdog)
		return err_set(-ENOMEM, "out of memory");
	watchdog->pools = pools;
	watchdog->pool_count = pool_count;
	interval =
		(struct timeval){(time_t)(usec / 3 / 1000000), (suseconds_t)(usec / 3 % 1000000)};
	watchdog->steps = calloc(pool_count, sizeof(uint64_t));
	watchdog->timer = event_new(base, -1, EV_PERSIST, on_timer, watchdog);
	if (!watchdog->steps || !watchdog->timer || event_add(watchdog->timer, &interval) < 0) {
		watchdog_free(watchdog);
		return err_set(-ENOMEM, "no memory for the watchdog");
	}
	*ret_watchdog = watchdog;
	return 0;
}

void watchdog_free(struct watchdog *watchdog)
{
	if (!watchdog)
		return;
	if (watchdog->timer)
		event_free(watchdog->timer);
	free(watchdog->steps);
	free(watchdog);
}
