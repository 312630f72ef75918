/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * events.h - what has happened: told once, to the log, to a ring of the last ones and to a count of each kind
 *
 * The ring is for /v1/events, the counts are `tarn_events_total`. Where stderr is the journal, the line goes there with fields:
 * MESSAGE_ID, TARN_POOL, TARN_LISTENER, TARN_PEER, TARN_DEVICE, TARN_CLIENT, ERRNO; elsewhere, or when the journal does not take it,
 * it is a line as any other. event.def has the kinds. Main thread.
 */
#ifndef TARN_DAEMON_EVENTS_H
#define TARN_DAEMON_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

#define EVENT(name, level, limit, id, help) EVENT_##name,
enum event_kind {
#include "event.def"
	EVENT_KINDS
};
#undef EVENT

/* What is not known stays 0 and is left out. The first one of pool, listener and device is the subject in /v1/events. */
struct event_fields {
	const char *pool, *listener, *device, *peer;
	uint32_t client; /* id */
	int error;       /* errno's, with either sign */
};

/* As a compound literal: EVENT_FIELDS(.pool = pool->name). */
#define EVENT_FIELDS(...) (&(const struct event_fields){__VA_ARGS__})

struct event_entry {
	uint64_t number;  /* counts from 1 */
	uint64_t time_ms; /* wall clock */
	enum event_kind kind;
	char subject[64]; /* "": none */
	char text[384];
};

struct events;

/* The log, which may be NULL, is told of each; the caller keeps it. NULL without memory. */
struct events *events_create(const struct log *log);
void events_free(struct events *events);
/*
 * The one call by which an event is told. Never waits; does not change errno. All are counted; of one kind 16 are put into the ring
 * in a minute, and the log gets what event.def allows: what is dropped there is counted in the kind's next line, or by
 * events_tell_dropped(). `fields` may be NULL. Nothing happens when events is NULL (a pool in a test).
 */
void events_tell(struct events *events, enum event_kind kind, const struct event_fields *fields,
		 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Says of each kind how many lines its limit has dropped, once its ten seconds are over; `all`: now. Cheap; now and then. */
void events_tell_dropped(struct events *events, bool all);
/* How often it has happened. */
uint64_t events_count(const struct events *events, enum event_kind kind);
const char *events_kind_name(enum event_kind kind);
const char *events_kind_help(enum event_kind kind);
const char *events_kind_id(enum event_kind kind); /* MESSAGE_ID */
enum log_level events_kind_level(enum event_kind kind);
/* The i-th of those that are kept, from the oldest; NULL: there are no more. */
const struct event_entry *events_at(const struct events *events, size_t i);

#endif
