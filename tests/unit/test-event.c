/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/event.c: fields in the journal, a plain line elsewhere, no more of them than is allowed; and what tarnd(8) says. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "event.h"

/* Us as journald, and a pipe as stderr. */
struct journal {
	struct log log;
	char folder[64], path[80];
	int socket, out[2];
};

static void journal_open(struct journal *j)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(j->folder, sizeof(j->folder), "/tmp/tarn-test-event-XXXXXX");
	assert_non_null(mkdtemp(j->folder));
	snprintf(j->path, sizeof(j->path), "%s/socket", j->folder);
	memcpy(address.sun_path, j->path, sizeof(j->path));
	j->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(j->socket, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(pipe2(j->out, O_NONBLOCK | O_CLOEXEC), 0);
	log_init(&j->log, j->out[1], LOG_LEVEL_INFO);
	j->log.format = LOG_FORMAT_JOURNAL;
	j->log.journal = j->path;
}

static void journal_close(struct journal *j)
{
	close(j->socket);
	close(j->out[0]);
	close(j->out[1]);
	unlink(j->path);
	rmdir(j->folder);
}

static const char *next(int fd, char *buffer, size_t bytes)
{
	ssize_t got = read(fd, buffer, bytes - 1);

	buffer[got > 0 ? got : 0] = '\0';
	return buffer;
}

static void test_fields(void **state)
{
	struct journal j;
	char got[4096];

	(void)state;
	journal_open(&j);
	event_log(&j.log, EVENT_CLIENT_DIED,
		  EVENT_FIELDS(.pool = "main", .peer = "a\nMESSAGE_ID=forged", .client = 7,
			       .error = -12),
		  "text %d", 1);
	next(j.socket, got, sizeof(got));
	assert_non_null(strstr(got, "MESSAGE=text 1\nPRIORITY=4\nMESSAGE_ID="));
	assert_non_null(strstr(got, "\nSYSLOG_IDENTIFIER=tarnd\nTARN_POOL=main\n"));
	assert_non_null(
		strstr(got, "\nTARN_PEER=a\\x0aMESSAGE_ID=forged\nTARN_CLIENT=7\nERRNO=12\n"));
	assert_null(strstr(got, "TARN_DEVICE"));
	assert_string_equal(next(j.out[0], got, sizeof(got)), "");

	event_log(&j.log, EVENT_READY, NULL, "ready\nPRIORITY=0");
	next(j.socket, got, sizeof(got));
	assert_non_null(strstr(got, "MESSAGE=ready\\x0aPRIORITY=0\nPRIORITY=5\n"));
	assert_null(strstr(got, "TARN_"));
	journal_close(&j);
}

/* Fields that are as long as they can be: the message comes, whole lines of it. */
static void test_long(void **state)
{
	struct journal j;
	char got[8192], text[3 * LOG_LINE_BYTES];

	(void)state;
	journal_open(&j);
	memset(text, 1, sizeof(text)); /* four bytes each, when escaped */
	text[sizeof(text) - 1] = '\0';
	event_log(&j.log, EVENT_CLIENT_DIED, EVENT_FIELDS(.pool = text, .peer = text, .client = 7),
		  "%s", text);
	next(j.socket, got, sizeof(got));
	assert_int_equal(strncmp(got, "MESSAGE=\\x01", 12), 0);
	assert_non_null(strstr(got, "\nTARN_CLIENT=7\n"));
	journal_close(&j);
}

/* No journald, one that takes nothing more, no journal at all: a line on stderr, and no waiting. */
static void test_without(void **state)
{
	struct journal j;
	char got[4096];
	unsigned lines = 0;

	(void)state;
	journal_open(&j);
	j.log.journal = "/nowhere/socket";
	event_log(&j.log, EVENT_READY, NULL, "ready");
	assert_string_equal(next(j.out[0], got, sizeof(got)), "<5>ready\n");

	j.log.journal = j.path;
	for (unsigned i = 0; i < 5000 && lines == 0; i++) {
		j.log.limits[EVENT_READY].lines = 0;
		event_log(&j.log, EVENT_READY, NULL, "ready %u", i);
		lines += *next(j.out[0], got, sizeof(got)) != '\0';
	}
	assert_int_equal(lines, 1); /* its queue was full */

	j.log.format = LOG_FORMAT_PLAIN;
	event_log(&j.log, EVENT_START_FAILED, NULL, "no");
	assert_non_null(strstr(next(j.out[0], got, sizeof(got)), " error: no\n"));
	journal_close(&j);
}

static void test_limit(void **state)
{
	struct journal j;
	char got[8192];
	unsigned lines = 0;

	(void)state;
	journal_open(&j);
	j.log.format = LOG_FORMAT_PLAIN;
	for (unsigned i = 0; i < 15; i++)
		event_log(&j.log, EVENT_POOL_SCRIBBLED, NULL, "refused");
	event_log(&j.log, EVENT_READY, NULL, "another event has a limit of its own");
	next(j.out[0], got, sizeof(got));
	for (const char *at = got; (at = strstr(at, "refused\n")); at++)
		lines++;
	assert_int_equal(lines, 10);
	assert_non_null(strstr(got, "of its own\n"));

	j.log.limits[EVENT_POOL_SCRIBBLED].began_ns -= 11000000000;
	event_log(&j.log, EVENT_POOL_SCRIBBLED, NULL, "refused");
	assert_non_null(strstr(next(j.out[0], got, sizeof(got)),
			       "refused (5 more like this were not logged)\n"));
	event_log(&j.log, EVENT_POOL_SCRIBBLED, NULL, "refused");
	assert_non_null(strstr(next(j.out[0], got, sizeof(got)), "refused\n"));
	log_set_level(&j.log, LOG_LEVEL_ERROR);
	event_log(&j.log, EVENT_READY, NULL, "not wanted");
	assert_string_equal(next(j.out[0], got, sizeof(got)), "");
	log_set_level(&j.log, LOG_LEVEL_INFO);
	lines = 0;
	for (unsigned i = 0; i < 100; i++) { /* each is named that was cut off */
		event_log(&j.log, EVENT_CLIENT_CUT, NULL, "cut");
		lines += *next(j.out[0], got, sizeof(got)) != '\0';
	}
	assert_int_equal(lines, 100);
	journal_close(&j);
}

/* Each id once, and in the manual page, with its level. */
static void test_table(void **state)
{
	static const struct {
		const char *id, *level, *when;
	} table[] = {
#define EVENT(name, level, limit, id, when) {id, #level, when},
#include "event.def"
#undef EVENT
	};
	const char *source = getenv("TARN_SRCDIR");
	char path[4096], page[65536], entry[512];
	FILE *file;

	(void)state;
	snprintf(path, sizeof(path), "%s/docs/man/tarnd.8", source ? source : ".");
	file = fopen(path, "r");
	assert_non_null(file);
	page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
	fclose(file);
	for (size_t i = 0; i < EVENT_COUNT; i++) {
		assert_int_equal(strlen(table[i].id), 32);
		assert_int_equal(strspn(table[i].id, "0123456789abcdef"), 32);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(table[i].id, table[k].id);
		snprintf(entry, sizeof(entry), ".It Li %s\n%c%s\n.Pq %s .\n", table[i].id,
			 table[i].when[0] -
				 ('a' <= table[i].when[0] && table[i].when[0] <= 'z' ? 32 : 0),
			 table[i].when + 1,
			 table[i].level[0] == 'E'   ? "error"
			 : table[i].level[0] == 'W' ? "warning"
						    : "notice");
		if (!strstr(page, entry))
			fail_msg("tarnd(8) does not have:\n%s", entry);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),  cmocka_unit_test(test_long),
		cmocka_unit_test(test_without), cmocka_unit_test(test_limit),
		cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
