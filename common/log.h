/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log lines for programs (the library has none: it sets err.h's text). The struct is passed by pointer and owned by
 * main(). Each message is one line and one write(), so that threads and processes do not cut each other's lines.
 *
 *	struct log log;
 *
 *	log_init(&log, STDERR_FILENO, LOG_LEVEL_INFO);
 *	log_warning(&log, "pool %s: %s", name, err_text());
 *
 * Messages: lower case, the exact cause, no final newline. Control characters and bytes that are not UTF-8 are
 * written as \xNN: a name that a peer chose can neither forge a line nor reach the terminal.
 */
#pragma once

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* As syslog's numbers, so that the journal's prefix is the level itself. */
enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

enum log_format {
	LOG_FORMAT_PLAIN,   /* "2026-11-29 17:53:46.123 warning: text" */
	LOG_FORMAT_JOURNAL, /* "<4>text": systemd adds the time and takes the level */
};

/* A line has at most this many bytes with its newline; longer ones end in "...". */
#define LOG_LINE_BYTES 2048

struct log {
	_Atomic int level; /* what is above is dropped; log_set_level() may be called while others write */
	enum log_format format;
	int fd; /* not owned */
	_Atomic unsigned lost; /* lines dropped since the last one that was written */
	const char *journal;   /* where journald takes messages with fields */
};

/* Writes to fd; in the journal's format if fd is the journal's stream (JOURNAL_STREAM names its device and inode). */
void log_init(struct log *log, int fd, enum log_level level);

/* Any thread, at any time (a reloaded configuration). */
void log_set_level(struct log *log, enum log_level level);

/* error, warning, notice, info, debug. Returns 0 or -EINVAL. */
int log_level_parse(const char *name, enum log_level *ret_level);

const char *log_level_name(enum log_level level);

/*
 * Any thread. Does not change errno, and never waits: a reader of the log that stands still must not stop the daemon.
 * A line that can not be written is lost; the next one that can be is preceded by one that counts the lost ones.
 */
void log_write(const struct log *log, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void log_vwrite(const struct log *log, enum log_level level, const char *fmt, va_list args)
	__attribute__((format(printf, 3, 0)));

/* The text as it would stand in a line, cut to bytes - 1. Returns buffer. */
const char *log_escape(char *buffer, size_t bytes, const char *text);

static inline int log_wants(const struct log *log, enum log_level level)
{
	/* relaxed: a level that changes takes effect soon; it orders nothing. */
	return (int)level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

/* The arguments are evaluated only if the line is wanted. */
#define log_at(log, at_level, ...)                                                                 \
	do {                                                                                       \
		if (log_wants((log), (at_level)))                                                  \
			log_write((log), (at_level), __VA_ARGS__);                                 \
	} while (0)

#define log_error(log, ...)   log_at(log, LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(log, ...) log_at(log, LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(log, ...)  log_at(log, LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(log, ...)    log_at(log, LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(log, ...)   log_at(log, LOG_LEVEL_DEBUG, __VA_ARGS__)
