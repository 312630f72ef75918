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

/* What has become of reloads. */
struct reload_counters {
	uint64_t applied, refused;
	uint64_t last_ms, last_applied_ms; /* wall clock; 0: never */
	uint64_t last_ns;                  /* what the last one took of the main loop */
	uint64_t longest_ns;
};

struct member;
struct control_check;
struct events;
struct http;
struct listener;
struct peer;
struct place;
struct port_stats;
struct rdma;
struct replay;
struct watchdog;
TAILQ_HEAD(peer_list, peer);

struct daemon {
	struct log *log;
	/* What runs: main.c's at first, then of the last reload, and ours (reload.c). */
	const struct config *config;
	struct config *reloaded;
	bool log_level_fixed; /* by the command line */
	struct reload_counters reloads;
	struct event_base *base;
	struct pool **pools;
	size_t pool_count;
	struct place *places;        /* of the pools, by their index */
	struct fdstore *fdstore;     /* memory that was kept */
	struct listener **listeners; /* by their index in config */
	size_t listener_count;
	struct member *member; /* NULL: no member of one */
	struct rdma *rdma; /* NULL: no RDMA listener */
	struct peer_list peers;
	unsigned int guests; /* of them */
	bool stopping;
	uint64_t started_ns, started_ms;
	uint64_t ready_ms;     /* wall clock: signed requests from before are not ours */
	struct replay *replay; /* handshakes that have been used */
	uint64_t refused[WIRE_REASON_LAST + 1]; /* handshakes refused before their pool was known,
						   by enum wire_reason */
	uint64_t accept_errors, expelled;
	/* lines that strangers cause are limited */
	uint64_t log_second;
	unsigned int log_lines, log_dropped;
	struct event *signals[3];
	struct event *keeper_timer;
	struct watchdog *watchdog;    /* NULL: nobody waits for it */
	struct events *events;         /* what has happened last */
	struct http *http;             /* NULL: statistics by the unix socket alone */
	struct port_stats *port_stats; /* counters of the adapters' drivers */
	struct control_check *checks; /* of pools, for who has asked (control-check.c) */
};

/* Makes pools and listeners and logs "ready". 0, or a negative code after it has been logged. The
 * config must outlive it. */
int daemon_create(const struct config *config, struct log *log, struct daemon **ret_daemon);
/* Until SIGTERM or SIGINT. 0 or a negative code. */
int daemon_run(struct daemon *daemon);
void daemon_free(struct daemon *daemon);

/* May one more line be logged that somebody outside has caused? */
bool daemon_may_log(struct daemon *daemon);
/* A connection has become a guest, or is none any more. */
void daemon_guest_add(struct daemon *daemon);
void daemon_guest_remove(struct daemon *daemon);

#endif
