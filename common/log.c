/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Formats, escapes and writes log lines. Any thread; it holds no state but the caller's struct and takes no lock: a line
 * is built on the stack and leaves in one write(). log.h has the rules for messages.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

static const struct {
	enum log_level level;
	const char *name;
} levels[] = {
	{LOG_LEVEL_ERROR, "error"}, {LOG_LEVEL_WARNING, "warning"}, {LOG_LEVEL_NOTICE, "notice"},
	{LOG_LEVEL_INFO, "info"},   {LOG_LEVEL_DEBUG, "debug"},
};

#define LEVELS (sizeof(levels) / sizeof(levels[0]))

/* JOURNAL_STREAM is "DEVICE:INODE" of the stream that systemd gave us; someone may have redirected fd since. */
static bool is_journal(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2 || fstat(fd, &st) < 0)
		return false;
	return st.st_dev == (dev_t)device && st.st_ino == (ino_t)inode;
}

void log_init(struct log *log, int fd, enum log_level level)
{
	log->fd = fd;
	/* relaxed: nobody else has the struct yet */
	atomic_store_explicit(&log->lost, 0, memory_order_relaxed);
	log->journal = "/run/systemd/journal/socket";
	log->format = is_journal(fd) ? LOG_FORMAT_JOURNAL : LOG_FORMAT_PLAIN;
	log_set_level(log, level);
}

void log_set_level(struct log *log, enum log_level level)
{
	/* relaxed: see log_wants(). */
	atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
	for (size_t i = 0; i < LEVELS; i++) {
		if (strcmp(name, levels[i].name) != 0)
			continue;
		*ret_level = levels[i].level;
		return 0;
	}
	return -EINVAL;
}

const char *log_level_name(enum log_level level)
{
	for (size_t i = 0; i < LEVELS; i++)
		if (levels[i].level == level)
			return levels[i].name;
	return "unknown";
}

/*
 * Length of the printable UTF-8 character at s, or 0: control characters (also U+0080 to U+009F, which some terminals
 * obey), overlong forms, surrogates and cut sequences. s ends with a 0, which is no continuation byte.
 */
static size_t printable(const unsigned char *s)
{
	unsigned int length, code;

	if (s[0] < 0x80)
		return s[0] >= 0x20 && s[0] != 0x7f;
	if (s[0] >= 0xc2 && s[0] < 0xe0)
		length = 2;
	else if (s[0] >= 0xe0 && s[0] < 0xf0)
		length = 3;
	else if (s[0] >= 0xf0 && s[0] < 0xf5)
		length = 4;
	else
		return 0;
	code = s[0] & (0xffu >> (length + 1));
	for (unsigned int i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3fu);
	}
	if (code < 0xa0 || (length == 3 && code < 0x800) || (length == 4 && code < 0x10000))
		return 0;
	if ((code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
		return 0;
	return length;
}

/* A line that is being built. There is always room for the ending: "...\n". */
struct line {
	size_t length;
	bool cut;
	char bytes[LOG_LINE_BYTES];
};

#define LINE_ENDING "...\n"

static void line_add(struct line *line, const void *bytes, size_t size)
{
	if (line->cut || size > sizeof(line->bytes) - (sizeof(LINE_ENDING) - 1) - line->length) {
		line->cut = true;
		return;
	}
	memcpy(line->bytes + line->length, bytes, size);
	line->length += size;
}

static void line_add_escaped(struct line *line, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	char escape[8];
	size_t size;

	for (; *s; s += size) {
		size = printable(s);
		if (size > 0) {
			line_add(line, s, size);
			continue;
		}
		size = 1;
		line_add(line, escape, (size_t)snprintf(escape, sizeof(escape), "\\x%02x", *s));
	}
}

const char *log_escape(char *buffer, size_t bytes, const char *text)
{
	struct line line = {.length = 0};
	size_t length;

	line_add_escaped(&line, text);
	length = line.length < bytes ? line.length : bytes - 1;
	memcpy(buffer, line.bytes, length);
	buffer[length] = '\0';
	return buffer;
}

static void line_end(struct line *line)
{
	const char *ending = line->cut ? LINE_ENDING : "\n";

	memcpy(line->bytes + line->length, ending, strlen(ending));
	line->length += strlen(ending);
}

static void line_begin(struct line *line, enum log_format format, enum log_level level)
{
	char prefix[64] = "";
	struct timespec now;
	struct tm local;
	int size = 0;

	switch (format) {
	case LOG_FORMAT_JOURNAL:
		size = snprintf(prefix, sizeof(prefix), "<%d>", (int)level);
		break;
	case LOG_FORMAT_PLAIN:
		clock_gettime(CLOCK_REALTIME, &now);
		if (localtime_r(&now.tv_sec, &local))
			size = (int)strftime(prefix, sizeof(prefix), "%Y-%m-%d %H:%M:%S", &local);
		size += snprintf(prefix + size, sizeof(prefix) - (size_t)size, ".%03d %s: ",
				 (int)(now.tv_nsec / 1000000), log_level_name(level));
		break;
	}
	line->length = 0;
	line->cut = false;
	line_add(line, prefix, (size_t)size);
}

/* A pipe that is writable takes a whole line at once: LOG_LINE_BYTES is less than PIPE_BUF. */
static bool writable(const struct log *log)
{
	struct pollfd p = {.fd = log->fd, .events = POLLOUT};

	return poll(&p, 1, 0) > 0;
}

static void write_line(const struct log *log, const struct line *line)
{
	ssize_t written;

	do {
		written = write(log->fd, line->bytes, line->length);
	} while (written < 0 && errno == EINTR);
}

/* What was lost is counted in a struct that is const to all others. */
static void write_or_lose(const struct log *log, const struct line *line)
{
	_Atomic unsigned *lost = &((struct log *)(uintptr_t)log)->lost;
	char text[64];
	struct line note;
	unsigned count;

	if (!writable(log)) {
		/* relaxed, as below: a number for people, it orders nothing */
		atomic_fetch_add_explicit(lost, 1, memory_order_relaxed);
		return;
	}
	count = atomic_exchange_explicit(lost, 0, memory_order_relaxed);
	if (count) {
		snprintf(text, sizeof(text), "%u log lines were lost: nobody read the log", count);
		line_begin(&note, log->format, LOG_LEVEL_WARNING);
		line_add_escaped(&note, text);
		line_end(&note);
		write_line(log, &note);
		if (!writable(log)) {
			atomic_fetch_add_explicit(lost, 1, memory_order_relaxed);
			return;
		}
	}
	write_line(log, line);
}

void log_vwrite(const struct log *log, enum log_level level, const char *fmt, va_list args)
{
	int saved_errno = errno;
	char text[LOG_LINE_BYTES] = "";
	struct line line;

	if (!log_wants(log, level))
		return;
	/* As long as a line at most: what vsnprintf cuts would be cut below. */
	vsnprintf(text, sizeof(text), fmt, args);
	line_begin(&line, log->format, level);
	line_add_escaped(&line, text);
	line_end(&line);
	write_or_lose(log, &line);
	errno = saved_errno;
}

void log_write(const struct log *log, enum log_level level, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	log_vwrite(log, level, fmt, args);
	va_end(args);
}
