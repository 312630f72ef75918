/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event.h - lines of the log by which an operator's tools know what has happened
 *
 * Where stderr is the journal, the line goes there with fields: MESSAGE_ID, TARN_POOL, TARN_PEER, TARN_DEVICE, TARN_CLIENT, ERRNO.
 * Elsewhere, or when the journal does not take it, it is a line as any other.
 */
#ifndef TARN_DAEMON_EVENT_H
#define TARN_DAEMON_EVENT_H

#include <stdint.h>

#include "log.h"

#define EVENT(name, level, limit, id, when) EVENT_##name,
enum event_id {
#include "event.def"
	EVENT_COUNT
};
#undef EVENT

/* What is not known stays 0 and is left out. */
struct event_fields {
	const char *pool, *peer, *device;
	uint32_t client; /* id */
	int error;       /* errno's, with either sign */
};

/* As a compound literal: EVENT_FIELDS(.pool = pool->name). */
#define EVENT_FIELDS(...) (&(const struct event_fields){__VA_ARGS__})

/*
 * Main thread. Never waits. What is more than the event's limit is dropped, and counted in the next
 * line of it that is not. `fields` may be NULL.
 */
void event_log(const struct log *log, enum event_id event, const struct event_fields *fields,
	       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
