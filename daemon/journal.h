/* SPDX-License-Identifier: BSD-2-Clause */
/* journal.h - a message with fields for journald; never waits. Any thread. */
#ifndef TARN_DAEMON_JOURNAL_H
#define TARN_DAEMON_JOURNAL_H

#include <stddef.h>

#include "log.h"

struct journal {
	size_t length;
	char bytes[2 * LOG_LINE_BYTES];
};

/*
 * Append NAME=value. NULL, "" and 0 are left out, and so is what has no room. A text may come from outside: it is escaped
 * as in a line of the log.
 */
void journal_text(struct journal *journal, const char *name, const char *text);
void journal_number(struct journal *journal, const char *name, unsigned number);
/* To the socket of journald with this path. 0, or -errno: it was not taken. */
int journal_send(const struct journal *journal, const char *path);

#endif
