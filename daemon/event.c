/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events; see event.h. Main thread. The journal's native protocol is written here and not by sd_journal_sendv(): that waits when
 * journald stands still, and the daemon must not. It is one datagram of NAME=value lines
 * (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). Next: common/log.c.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "event.h"

#define LIMIT_NS 10000000000u

static const struct {
	enum log_level level;
	unsigned limit;
	const char *id;
} events[] = {
#define EVENT(name, level, limit, id, when) {LOG_LEVEL_##level, limit, id},
#include "event.def"
#undef EVENT
};
_Static_assert(EVENT_COUNT <= LOG_EVENTS, "common/log.h has a limit for each event");

/* ---- the rate limit ---- */

/* May the line be written? Then *ret_dropped is how many were not, since the last one. */
static bool may_log(const struct log *log, enum event_id event, unsigned *ret_dropped)
{
	/* as log.c's count of lost lines: in a struct that is const to all others */
	struct log_limit *limit = &((struct log *)(uintptr_t)log)->limits[event];
	uint64_t now = clock_now_ns();

	if (limit->lines == 0 || now - limit->began_ns >= LIMIT_NS) {
		limit->began_ns = now;
		limit->lines = 0;
	}
	if (events[event].limit && limit->lines >= events[event].limit) {
		limit->dropped++;
		return false;
	}
	limit->lines++;
	*ret_dropped = limit->dropped;
	limit->dropped = 0;
	return true;
}

/* ---- the journal ---- */

struct datagram {
	size_t length;
	char bytes[2 * LOG_LINE_BYTES];
};

/* A value from outside has no newline when it comes here: log_escape(). One that has no room is left out. */
static void add(struct datagram *datagram, const char *name, const char *value)
{
	size_t room = sizeof(datagram->bytes) - datagram->length;
	int got;

	if (!value || !*value)
		return;
	got = snprintf(datagram->bytes + datagram->length, room, "%s=%s\n", name, value);
	if (got > 0 && (size_t)got < room)
		datagram->length += (size_t)got;
}

static void add_text(struct datagram *datagram, const char *name, const char *value)
{
	char escaped[LOG_LINE_BYTES];

	if (value)
		add(datagram, name, log_escape(escaped, sizeof(escaped), value));
}

static void add_number(struct datagram *datagram, const char *name, unsigned number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	if (number)
		add(datagram, name, text);
}

/* 0, or -errno: it was not taken. */
static int journal_send(const char *path, const struct datagram *datagram)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (sendto(fd, datagram->bytes, datagram->length, MSG_NOSIGNAL, (struct sockaddr *)&address,
		   sizeof(address)) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int to_journal(const struct log *log, enum event_id event, const struct event_fields *fields,
		      const char *text)
{
	struct datagram datagram = {.length = 0};

	add_text(&datagram, "MESSAGE", text);
	add_number(&datagram, "PRIORITY", events[event].level);
	add(&datagram, "MESSAGE_ID", events[event].id);
	add(&datagram, "SYSLOG_IDENTIFIER", "tarnd");
	if (fields) {
		add_text(&datagram, "TARN_POOL", fields->pool);
		add_text(&datagram, "TARN_PEER", fields->peer);
		add_text(&datagram, "TARN_DEVICE", fields->device);
		add_number(&datagram, "TARN_CLIENT", fields->client);
		add_number(&datagram, "ERRNO", (unsigned)abs(fields->error));
	}
	return journal_send(log->journal, &datagram);
}

void event_log(const struct log *log, enum event_id event, const struct event_fields *fields,
	       const char *fmt, ...)
{
	int saved_errno = errno;
	char text[LOG_LINE_BYTES] = "";
	unsigned dropped;
	va_list args;
	int length;

	if (!log_wants(log, events[event].level) || !may_log(log, event, &dropped))
		return;
	va_start(args, fmt);
	length = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (dropped && length > 0 && (size_t)length < sizeof(text))
		snprintf(text + length, sizeof(text) - (size_t)length,
			 " (%u more like this were not logged)", dropped);
	if (log->format != LOG_FORMAT_JOURNAL || to_journal(log, event, fields, text) < 0)
		log_write(log, events[event].level, "%s", text);
	errno = saved_errno;
}
