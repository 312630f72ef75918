/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of what has happened last, and a count of each kind. Main thread. What strangers cause (a
 * refused key, again and again) is listed at most RATE_MAX times a minute, so that it does not drive
 * out what an operator looks for; all of it is counted. Next to read: control.c for /v1/events.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "events.h"

#define RING_ENTRIES 256u
#define RATE_MAX     16u

struct events {
	struct event_entry ring[RING_ENTRIES];
	uint64_t added; /* to the ring */
	uint64_t counts[EVENT_KINDS];
	uint64_t minute;
	unsigned int listed[EVENT_KINDS]; /* in this minute */
};

struct events *events_create(void)
{
	return calloc(1, sizeof(struct events));
}

void events_free(struct events *events)
{
	free(events);
}

static bool may_list(struct events *events, enum event_kind kind, uint64_t now_ms)
{
	if (now_ms / 60000 != events->minute) {
		events->minute = now_ms / 60000;
		memset(events->listed, 0, sizeof(events->listed));
	}
	return events->listed[kind]++ < RATE_MAX;
}

void events_add(struct events *events, enum event_kind kind, const char *subject, const char *fmt, ...)
{
	uint64_t now_ms = clock_wall_ms();
	struct event_entry *entry;
	va_list args;

	if (!events)
		return;
	events->counts[kind]++;
	if (!may_list(events, kind, now_ms))
		return;
	entry = &events->ring[events->added++ % RING_ENTRIES];
	*entry = (struct event_entry){.number = events->added, .time_ms = now_ms, .kind = kind};
	snprintf(entry->subject, sizeof(entry->subject), "%s", subject ? subject : "");
	va_start(args, fmt);
	vsnprintf(entry->text, sizeof(entry->text), fmt, args);
	va_end(args);
	/* names of clients are the clients' choice */
	for (char *c = entry->text; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
}

uint64_t events_count(const struct events *events, enum event_kind kind)
{
	return events->counts[kind];
}

static const struct {
	const char *name, *help;
} kinds[EVENT_KINDS] = {
#define EVENTS_NAME(name, help) {#name, help},
	EVENTS_KINDS(EVENTS_NAME)};

const char *events_kind_name(enum event_kind kind)
{
	return kinds[kind].name;
}

const char *events_kind_help(enum event_kind kind)
{
	return kinds[kind].help;
}

const struct event_entry *events_at(const struct events *events, size_t i)
{
	uint64_t first = events->added > RING_ENTRIES ? events->added - RING_ENTRIES : 0;

	return first + i < events->added ? &events->ring[(first + i) % RING_ENTRIES] : NULL;
}
