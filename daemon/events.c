/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A line in the log, a ring of what has happened last, and a count of each kind. Main thread. What strangers cause (a refused key,
 * again and again) has two limits: in the ring, so that it does not drive out what an operator looks for, and in the log, so that
 * the log does not grow by it; all of it is counted. Next to read: journal.c, control.c for /v1/events.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "events.h"
#include "journal.h"

#define RING_ENTRIES 256u
#define RING_RATE    16u          /* of one kind, in a minute */
#define LIMIT_NS     10000000000u /* of event.def's limits */

static const struct {
	const char *name, *id, *help;
	enum log_level level;
	unsigned limit;
} kinds[EVENT_KINDS] = {
#define EVENT(name, level, limit, id, help) {#name, id, help, LOG_LEVEL_##level, limit},
#include "event.def"
#undef EVENT
};

struct limit {
	uint64_t began_ns;
	unsigned lines, dropped;
};

struct events {
	const struct log *log;
	struct event_entry ring[RING_ENTRIES];
	uint64_t added; /* to the ring */
	uint64_t minute;
	unsigned listed[EVENT_KINDS]; /* in this minute */
	uint64_t counts[EVENT_KINDS];
	bool dropped; /* there may be some in `limits` that nobody has been told of */
	struct limit limits[EVENT_KINDS]; /* of the log's lines */
};

struct events *events_create(const struct log *log)
{
	struct events *events = calloc(1, sizeof(*events));

	if (events)
		events->log = log;
	return events;
}

void events_free(struct events *events)
{
	free(events);
}

/* ---- the ring ---- */

static bool may_list(struct events *events, enum event_kind kind, uint64_t now_ms)
{
	if (now_ms / 60000 != events->minute) {
		events->minute = now_ms / 60000;
		memset(events->listed, 0, sizeof(events->listed));
	}
	return events->listed[kind]++ < RING_RATE;
}

static const char *subject(const struct event_fields *fields)
{
	const char *name = fields->pool ? fields->pool : fields->listener ? fields->listener : fields->device;

	return name ? name : "";
}

static void to_ring(struct events *events, enum event_kind kind, const struct event_fields *fields, const char *text)
{
	uint64_t now_ms = clock_wall_ms();
	struct event_entry *entry;

	if (!may_list(events, kind, now_ms))
		return;
	entry = &events->ring[events->added++ % RING_ENTRIES];
	*entry = (struct event_entry){.number = events->added, .time_ms = now_ms, .kind = kind};
	snprintf(entry->subject, sizeof(entry->subject), "%s", subject(fields));
	/* names of clients are the clients' choice */
	log_escape(entry->text, sizeof(entry->text), text);
}

/* ---- the log ---- */

/* May the line be written? Then *ret_dropped is how many were not, since the last one. */
static bool may_log(struct events *events, enum event_kind kind, unsigned *ret_dropped)
{
	struct limit *limit = &events->limits[kind];
	uint64_t now;

	*ret_dropped = 0;
	if (!kinds[kind].limit)
		return true;
	now = clock_now_ns();
	if (limit->lines == 0 || now - limit->began_ns >= LIMIT_NS) {
		limit->began_ns = now;
		limit->lines = 0;
	}
	if (limit->lines >= kinds[kind].limit) {
		limit->dropped++;
		events->dropped = true;
		return false;
	}
	limit->lines++;
	*ret_dropped = limit->dropped;
	limit->dropped = 0;
	return true;
}

static int to_journal(const struct log *log, enum event_kind kind, const struct event_fields *fields, const char *text)
{
	struct journal journal = {.length = 0};

	journal_text(&journal, "MESSAGE", text);
	journal_number(&journal, "PRIORITY", kinds[kind].level);
	journal_text(&journal, "MESSAGE_ID", kinds[kind].id);
	journal_text(&journal, "SYSLOG_IDENTIFIER", "tarnd");
	journal_text(&journal, "TARN_POOL", fields->pool);
	journal_text(&journal, "TARN_LISTENER", fields->listener);
	journal_text(&journal, "TARN_PEER", fields->peer);
	journal_text(&journal, "TARN_DEVICE", fields->device);
	journal_number(&journal, "TARN_CLIENT", fields->client);
	journal_number(&journal, "ERRNO", (unsigned)abs(fields->error));
	return journal_send(&journal, log->journal);
}

static void write_line(const struct log *log, enum event_kind kind,
		       const struct event_fields *fields, const char *text)
{
	if (log->format != LOG_FORMAT_JOURNAL || to_journal(log, kind, fields, text) < 0)
		log_write(log, kinds[kind].level, "%s", text);
}

/* The text has `length` bytes, and room for more. */
static void to_log(struct events *events, enum event_kind kind, const struct event_fields *fields,
		   char text[LOG_LINE_BYTES], int length)
{
	const struct log *log = events->log;
	unsigned dropped;

	if (!log || !log_wants(log, kinds[kind].level) || !may_log(events, kind, &dropped))
		return;
	if (dropped && length > 0 && length < LOG_LINE_BYTES)
		snprintf(text + length, LOG_LINE_BYTES - (size_t)length,
			 " (%u more like this were not logged)", dropped);
	write_line(log, kind, fields, text);
}

void events_tell_dropped(struct events *events, bool all)
{
	static const struct event_fields none;
	char text[128];
	uint64_t now;

	if (!events || !events->dropped)
		return;
	now = clock_now_ns();
	events->dropped = false;
	for (unsigned kind = 0; kind < EVENT_KINDS; kind++) {
		struct limit *limit = &events->limits[kind];

		if (!limit->dropped)
			continue;
		if (!all && now - limit->began_ns < LIMIT_NS) {
			events->dropped = true;
			continue;
		}
		snprintf(text, sizeof(text), "%s: %u more of these events were not logged",
			 kinds[kind].name, limit->dropped);
		limit->dropped = 0;
		if (log_wants(events->log, kinds[kind].level))
			write_line(events->log, (enum event_kind)kind, &none, text);
	}
}

/* ---- both ---- */

void events_tell(struct events *events, enum event_kind kind, const struct event_fields *fields,
		 const char *fmt, ...)
{
	static const struct event_fields none;
	int saved_errno = errno, length;
	char text[LOG_LINE_BYTES] = "";
	va_list args;

	if (!events)
		return;
	events->counts[kind]++;
	va_start(args, fmt);
	length = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	to_ring(events, kind, fields ? fields : &none, text);
	to_log(events, kind, fields ? fields : &none, text, length);
	errno = saved_errno;
}

/* ---- what there is ---- */

uint64_t events_count(const struct events *events, enum event_kind kind)
{
	return events->counts[kind];
}

const char *events_kind_name(enum event_kind kind)
{
	return kinds[kind].name;
}

const char *events_kind_help(enum event_kind kind)
{
	return kinds[kind].help;
}

const char *events_kind_id(enum event_kind kind)
{
	return kinds[kind].id;
}

enum log_level events_kind_level(enum event_kind kind)
{
	return kinds[kind].level;
}

const struct event_entry *events_at(const struct events *events, size_t i)
{
	uint64_t first = events->added > RING_ENTRIES ? events->added - RING_ENTRIES : 0;

	return first + i < events->added ? &events->ring[(first + i) % RING_ENTRIES] : NULL;
}
