/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma.h - what a daemon's RDMA listeners, devices and connections share
 *
 * One event channel of rdma_cm in the libevent loop, one timer, and the sweep: work that must not
 * be done inside the handler that finds it necessary (an object can not be destroyed while one of
 * its events is being looked at). Main thread.
 */
#ifndef TARN_DAEMON_RDMA_H
#define TARN_DAEMON_RDMA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <rdma/rdma_cma.h>

#include "config.h"
#include "daemon.h"

struct device;
struct listener_verbs;
struct peer_verbs;

/* What is behind the context of a rdma_cm_id; the first member of its owner. */
struct rdma_target {
	void (*on_event)(struct rdma_target *target, const struct rdma_cm_event *event);
};

struct rdma {
	struct daemon *daemon;
	struct rdma_event_channel *channel;
	struct event *readable, *sweep, *tick, *renew;
	uint32_t ticks;
	TAILQ_HEAD(, device) devices;
	TAILQ_HEAD(, listener_verbs) listeners;
	TAILQ_HEAD(, peer_verbs) closing; /* fenced, to be ended by the sweep */
	uint64_t unexpected_events;
};

#define RDMA_TICK_MS 100u

/* 0, or a negative code with a text: what is missing on this machine and what to do. */
int rdma_create(struct daemon *daemon, struct rdma **ret_rdma);
/* The event channel, if it is not there yet: without any RDMA device there can be none. 0, or a
 * negative code with a text. */
int rdma_channel_open(struct rdma *rdma);
/* After the listeners are closed. */
void rdma_free(struct rdma *rdma);
/* The sweep, as soon as the loop is free. */
void rdma_sweep_soon(struct rdma *rdma);
/* In so many ms, and then every 2 s: registrations that have lost pool->self try to get it again. */
void rdma_renew_soon(struct rdma *rdma, int ms);
/* There is a connection: the timer runs as long as there are some. */
void rdma_tick_start(struct rdma *rdma);
/* "ADDRESS:PORT" or "[ADDRESS]:PORT". */
const char *rdma_address_text(const struct sockaddr *address, char *buffer, size_t bytes);
#define RDMA_ADDRESS_TEXT 64u

#endif
