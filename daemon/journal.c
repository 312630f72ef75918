/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to journald. Any thread. The native protocol is written here and not by sd_journal_sendv(): that waits when journald
 * stands still, and the daemon must not. It is one datagram of NAME=value lines
 * (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). Next: events.c, which uses it.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "journal.h"

/* The escaped text has no newline. */
void journal_text(struct journal *journal, const char *name, const char *text)
{
	char escaped[LOG_LINE_BYTES];
	size_t room = sizeof(journal->bytes) - journal->length;
	int got;

	if (!text || !*text)
		return;
	got = snprintf(journal->bytes + journal->length, room, "%s=%s\n", name,
		       log_escape(escaped, sizeof(escaped), text));
	if (got > 0 && (size_t)got < room)
		journal->length += (size_t)got;
}

void journal_number(struct journal *journal, const char *name, unsigned number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	if (number)
		journal_text(journal, name, text);
}

int journal_send(const struct journal *journal, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (sendto(fd, journal->bytes, journal->length, MSG_NOSIGNAL, (struct sockaddr *)&address,
		   sizeof(address)) < 0)
		rc = -errno;
	close(fd);
	return rc;
}
