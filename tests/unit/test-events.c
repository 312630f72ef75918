/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/events.c: one call is a line in the log (with fields in the journal), a row of the ring and a count; no more than is allowed. */
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

#include "clock.h"
#include "events.h"

/* Time goes by when a test says so. */
static uint64_t now_ns = 1000000000, wall_ms = 1700000000000;

uint64_t __wrap_clock_now_slow_ns(void);
uint64_t __wrap_clock_wall_ms(void);

uint64_t __wrap_clock_now_slow_ns(void)
{
	return now_ns;
}

uint64_t __wrap_clock_wall_ms(void)
{
	return wall_ms;
}

/* Us as journald, and a pipe as stderr. */
struct journald {
	struct log log;
	struct events *events;
	char folder[64], path[80];
	int socket, out[2];
};

static void journal_open(struct journald *j)
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
	j->events = events_create(&j->log);
	assert_non_null(j->events);
}

static void journal_close(struct journald *j)
{
	events_free(j->events);
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
	struct journald j;
	char got[4096];

	(void)state;
	journal_open(&j);
	events_tell(j.events, EVENT_client_dead,
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

	events_tell(j.events, EVENT_started, NULL, "ready\nPRIORITY=0");
	next(j.socket, got, sizeof(got));
	assert_non_null(strstr(got, "MESSAGE=ready\\x0aPRIORITY=0\nPRIORITY=5\n"));
	assert_null(strstr(got, "TARN_"));
	journal_close(&j);
}

/* Fields that are as long as they can be: the message comes, whole lines of it. */
static void test_long(void **state)
{
	struct journald j;
	char got[8192], text[3 * LOG_LINE_BYTES];

	(void)state;
	journal_open(&j);
	memset(text, 1, sizeof(text)); /* four bytes each, when escaped */
	text[sizeof(text) - 1] = '\0';
	events_tell(j.events, EVENT_client_dead, EVENT_FIELDS(.pool = text, .peer = text, .client = 7),
		  "%s", text);
	next(j.socket, got, sizeof(got));
	assert_int_equal(strncmp(got, "MESSAGE=\\x01", 12), 0);
	assert_non_null(strstr(got, "\nTARN_CLIENT=7\n"));
	journal_close(&j);
}

/* No journald, one that takes nothing more, no journal at all: a line on stderr, and no waiting. */
static void test_without(void **state)
{
	struct journald j;
	char got[4096];
	unsigned lines = 0;

	(void)state;
	journal_open(&j);
	j.log.journal = "/nowhere/socket";
	events_tell(j.events, EVENT_started, NULL, "ready");
	assert_string_equal(next(j.out[0], got, sizeof(got)), "<5>ready\n");

	j.log.journal = j.path;
	for (unsigned i = 0; i < 5000 && lines == 0; i++) {
		events_tell(j.events, EVENT_started, NULL, "ready %u", i);
		lines += *next(j.out[0], got, sizeof(got)) != '\0';
	}
	assert_int_equal(lines, 1); /* its queue was full */

	j.log.format = LOG_FORMAT_PLAIN;
	events_tell(j.events, EVENT_start_failed, NULL, "no");
	assert_non_null(strstr(next(j.out[0], got, sizeof(got)), " error: no\n"));
	journal_close(&j);
}

static void test_limit(void **state)
{
	struct journald j;
	char got[8192];
	unsigned lines = 0;

	(void)state;
	journal_open(&j);
	j.log.format = LOG_FORMAT_PLAIN;
	for (unsigned i = 0; i < 15; i++)
		events_tell(j.events, EVENT_pool_scribbled, NULL, "refused");
	events_tell(j.events, EVENT_started, NULL, "another event has a limit of its own");
	next(j.out[0], got, sizeof(got));
	for (const char *at = got; (at = strstr(at, "refused\n")); at++)
		lines++;
	assert_int_equal(lines, 10);
	assert_non_null(strstr(got, "of its own\n"));

	now_ns += 10000000000;
	events_tell(j.events, EVENT_pool_scribbled, NULL, "refused");
	assert_non_null(strstr(next(j.out[0], got, sizeof(got)),
			       "refused (5 more like this were not logged)\n"));
	events_tell(j.events, EVENT_pool_scribbled, NULL, "refused");
	assert_non_null(strstr(next(j.out[0], got, sizeof(got)), "refused\n"));
	log_set_level(&j.log, LOG_LEVEL_ERROR);
	events_tell(j.events, EVENT_started, NULL, "not wanted");
	assert_string_equal(next(j.out[0], got, sizeof(got)), "");
	log_set_level(&j.log, LOG_LEVEL_INFO);
	lines = 0;
	for (unsigned i = 0; i < 100; i++) { /* each is named that was cut off */
		events_tell(j.events, EVENT_client_cut, NULL, "cut");
		lines += *next(j.out[0], got, sizeof(got)) != '\0';
	}
	assert_int_equal(lines, 100);
	journal_close(&j);
}

/* Clients that come and go all the time: how many lines there were not is said when it is over, too. */
static void test_dropped(void **state)
{
	static const enum event_kind kinds[] = {EVENT_client_connected, EVENT_client_left,
						EVENT_client_dead};
	struct journald j;
	char got[4096];

	(void)state;
	journal_open(&j);
	for (unsigned i = 0; i < 3; i++) {
		unsigned lines = 0;

		for (unsigned n = 0; n < 10000; n++) {
			events_tell(j.events, kinds[i], NULL, "client %u", n);
			lines += *next(j.socket, got, sizeof(got)) != '\0';
			lines += *next(j.out[0], got, sizeof(got)) != '\0';
		}
		assert_int_equal(lines, 200);
	}
	now_ns += 9999999999;
	events_tell_dropped(j.events, false);
	assert_string_equal(next(j.socket, got, sizeof(got)), "");
	now_ns++;
	events_tell_dropped(j.events, false);
	assert_non_null(strstr(next(j.socket, got, sizeof(got)),
			       "MESSAGE=client_connected: 9800 more of these events were not logged\n"));
	assert_non_null(strstr(got, "c1b721a120234e9b94adbbcebabb9dcc"));
	assert_non_null(strstr(next(j.socket, got, sizeof(got)), "client_left: 9800 more"));
	assert_non_null(strstr(next(j.socket, got, sizeof(got)), "client_dead: 9800 more"));
	events_tell_dropped(j.events, false);
	assert_string_equal(next(j.socket, got, sizeof(got)), "");
	/* said once: not in the next line as well */
	events_tell(j.events, EVENT_client_left, NULL, "one");
	assert_non_null(strstr(next(j.socket, got, sizeof(got)), "MESSAGE=one\n"));
	/* at the end at once */
	for (unsigned n = 0; n < 201; n++) {
		events_tell(j.events, EVENT_client_left, NULL, "client %u", n);
		next(j.socket, got, sizeof(got));
	}
	events_tell_dropped(j.events, true);
	assert_non_null(strstr(next(j.socket, got, sizeof(got)), "client_left: 2 more"));
	journal_close(&j);
}

/* Each name and id once: what is told of one event is not found as another one. */
static void test_table(void **state)
{
	(void)state;
	for (int i = 0; i < EVENT_KINDS; i++) {
		enum event_kind kind = (enum event_kind)i;
		const char *help = events_kind_help(kind);

		assert_int_equal(strlen(events_kind_id(kind)), 32);
		assert_int_equal(strspn(events_kind_id(kind), "0123456789abcdef"), 32);
		assert_int_equal(strspn(events_kind_name(kind), "abcdefghijklmnopqrstuvwxyz_"),
				 strlen(events_kind_name(kind)));
		assert_int_equal(help[strlen(help) - 1], '.');
		for (int k = 0; k < i; k++) {
			assert_string_not_equal(events_kind_id(kind), events_kind_id((enum event_kind)k));
			assert_string_not_equal(events_kind_name(kind), events_kind_name((enum event_kind)k));
		}
	}
}

/* ---- the ring ---- */

static size_t listed(const struct events *events)
{
	size_t count = 0;

	while (events_at(events, count))
		count++;
	return count;
}

/* What a level keeps out of the log is in the ring, with the same words. */
static void test_ring(void **state)
{
	struct journald j;
	char got[4096];

	(void)state;
	journal_open(&j);
	events_tell(NULL, EVENT_started, NULL, "nobody is told");
	assert_null(events_at(j.events, 0));
	log_set_level(&j.log, LOG_LEVEL_ERROR);
	events_tell(j.events, EVENT_started, NULL, "ready");
	events_tell(j.events, EVENT_client_left, EVENT_FIELDS(.pool = "main", .device = "mlx5_0"),
		    "client %u (%s)", 7u, "a\nb\x80");
	events_tell(j.events, EVENT_device_gone, EVENT_FIELDS(.device = "mlx5_0"), "it is gone");
	next(j.socket, got, sizeof(got));
	assert_int_equal(strncmp(got, "MESSAGE=it is gone\n", 19), 0);
	assert_string_equal(next(j.socket, got, sizeof(got)), "");
	assert_string_equal(events_at(j.events, 0)->subject, "");
	assert_string_equal(events_at(j.events, 1)->text, "client 7 (a\\x0ab\\x80)");
	assert_string_equal(events_at(j.events, 1)->subject, "main");
	assert_string_equal(events_kind_name(events_at(j.events, 1)->kind), "client_left");
	assert_string_equal(events_at(j.events, 2)->subject, "mlx5_0");
	assert_string_equal(events_at(j.events, 2)->text, "it is gone");
	assert_int_equal(events_at(j.events, 2)->time_ms, wall_ms);
	assert_null(events_at(j.events, 3));
	journal_close(&j);
}

/* Of one kind 16 are listed in a minute, and all are counted; the others have their place. */
static void test_flood(void **state)
{
	struct events *events = events_create(NULL);

	(void)state;
	events_tell(events, EVENT_started, NULL, "ready");
	for (int i = 0; i < 1000; i++)
		events_tell(events, EVENT_key_refused, EVENT_FIELDS(.pool = "main"), "%d", i);
	assert_int_equal(events_count(events, EVENT_key_refused), 1000);
	assert_int_equal(listed(events), 17);
	assert_string_equal(events_at(events, 0)->text, "ready");
	assert_string_equal(events_at(events, 16)->text, "15");
	assert_int_equal(events_at(events, 16)->number, 17);
	events_tell(events, EVENT_client_left, NULL, "another kind");
	wall_ms -= 3600000; /* the clock is set back: another minute */
	events_tell(events, EVENT_key_refused, NULL, "later");
	assert_int_equal(listed(events), 19);
	assert_string_equal(events_at(events, 18)->text, "later");
	events_free(events);
}

/* So many that the ring comes round. */
static void test_round(void **state)
{
	struct events *events = events_create(NULL);
	uint64_t first;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		events_tell(events, (enum event_kind)(i % EVENT_KINDS), NULL, "%d", i);
		wall_ms += 60000;
	}
	assert_int_equal(listed(events), 256);
	first = events_at(events, 0)->number;
	assert_int_equal(first, 1000 - 256 + 1);
	for (size_t i = 0; i < 256; i++)
		assert_int_equal(events_at(events, i)->number, first + i);
	assert_string_equal(events_at(events, 255)->text, "999");
	events_free(events);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),  cmocka_unit_test(test_long),
		cmocka_unit_test(test_without), cmocka_unit_test(test_limit),
		cmocka_unit_test(test_dropped),
		cmocka_unit_test(test_table),   cmocka_unit_test(test_ring),
		cmocka_unit_test(test_flood),   cmocka_unit_test(test_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
