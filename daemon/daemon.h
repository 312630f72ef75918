/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon.h - all that a running tarnd has; main.c owns the one there is
 *
 * Everything runs on the main thread, in one libevent loop, and nothing in it blocks once the pools
 * are made.
 */
#ifndef TARN_DAEMON_DAEMON_H
#define TARN_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>

#include "config.h"
#include "log.h"
#include "pool.h"

#define DAEMON_GUESTS_MAX \
	256u /* connections that are not clients (yet): before the handshake, and control */

struct listener;
struct peer;
TAILQ_HEAD(peer_list, peer);

struct daemon {
	const struct log *log;
	const struct config *config;
	struct event_base *base;
	struct pool **pools;
	size_t pool_count;
	struct listener **listeners;
	size_t listener_count;
	struct peer_list peers;
	unsigned int guests; /* of them */
	bool stopping;
	uint64_t started_ns, started_ms;
	uint64_t refused[WIRE_REASON_LAST + 1]; /* handshakes refused before their pool was known,
						   by enum wire_reason */
	uint64_t accept_errors, expelled;
	/* lines that strangers cause are limited */
	uint64_t log_second;
	unsigned int log_lines, log_dropped;
	struct event *signals[3];
	struct event *keeper_timer;
};

/* Makes pools and listeners and logs "ready". 0, or a negative code after it has been logged. The
 * config must outlive it. */
int daemon_create(const struct config *config, const struct log *log, struct daemon **ret_daemon);
/* Until SIGTERM or SIGINT. 0 or a negative code. */
int daemon_run(struct daemon *daemon);
void daemon_free(struct daemon *daemon);

/* May one more line be logged that somebody outside has caused? */
bool daemon_may_log(struct daemon *daemon);
/* A connection has become a guest, or is none any more. */
void daemon_guest_add(struct daemon *daemon);
void daemon_guest_remove(struct daemon *daemon);

#endif
