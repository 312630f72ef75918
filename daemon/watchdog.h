/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watchdog.h - tells systemd that the daemon gets on (WatchdogSec=)
 *
 * The loop's timer alone would tell little: it fires as well when nothing else is done. So the message is sent only
 * when each pool's keeper has made a step since the last one, or is known to have nothing to do yet.
 */
#ifndef TARN_DAEMON_WATCHDOG_H
#define TARN_DAEMON_WATCHDOG_H

#include <stddef.h>

struct event_base;
struct pool;
struct watchdog;

/*
 * Begins, if systemd waits for messages from this process (WATCHDOG_USEC, WATCHDOG_PID); else *ret_watchdog is NULL.
 * The pools must outlive it. 0 or -ENOMEM with a text.
 */
int watchdog_create(struct event_base *base, struct pool *const *pools, size_t pool_count,
		    struct watchdog **ret_watchdog);
void watchdog_free(struct watchdog *watchdog);

#endif
