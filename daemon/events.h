/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * events.h - the last things that have happened, for /v1/events and `tarn_events_total`
 *
 * A ring: what does not fit drops the oldest. The log has the same in more words; this is for
 * dashboards, which have no log. Main thread.
 */
#ifndef TARN_DAEMON_EVENTS_H
#define TARN_DAEMON_EVENTS_H

#include <stddef.h>
#include <stdint.h>

/* KIND(name, what it is for people) */
#define EVENTS_KINDS(KIND)                                                              \
	KIND(started, "The daemon is ready.")                                           \
	KIND(reload, "The configuration or key files were read again.")                 \
	KIND(reload_refused, "They were not, since something is wrong with them.")      \
	KIND(client_connected, "A client was let in.")                                  \
	KIND(client_left, "A client is gone, and owned nothing.")                       \
	KIND(client_dead, "A client is gone and has left pages behind.")                \
	KIND(client_cut, "A client was ended: killed, revoked, or expelled.")           \
	KIND(key_refused, "A handshake failed for its key, secret, time or role.")      \
	KIND(handshake_refused, "A handshake was refused for another reason.")          \
	KIND(pool_full, "A client found no memory.")                                    \
	KIND(pool_cut_off, "A pool's file was cut off: the pool can not be used.")      \
	KIND(device_gone, "An RDMA device broke or went away.")                         \
	KIND(device_back, "An RDMA device is there again.")                             \
	KIND(listener_down, "An RDMA listener has lost its address or device.")         \
	KIND(listener_up, "An RDMA listener is up.")

enum event_kind {
#define EVENTS_ID(name, help) EVENT_##name,
	EVENTS_KINDS(EVENTS_ID)
#undef EVENTS_ID
		EVENT_KINDS
};

struct event_entry {
	uint64_t number;  /* counts from 1 */
	uint64_t time_ms; /* wall clock */
	enum event_kind kind;
	char subject[64]; /* pool, listener or device; "": none */
	char text[192];
};

struct events;

/* NULL without memory. */
struct events *events_create(void);
void events_free(struct events *events);
/*
 * `subject` may be NULL. Of one kind 16 are listed in a minute, all are counted. Nothing happens when
 * events is NULL.
 */
void events_add(struct events *events, enum event_kind kind, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* How often it has happened. */
uint64_t events_count(const struct events *events, enum event_kind kind);
const char *events_kind_name(enum event_kind kind);
const char *events_kind_help(enum event_kind kind);
/* The i-th of those that are kept, from the oldest; NULL: there are no more. */
const struct event_entry *events_at(const struct events *events, size_t i);

#endif
