/* SPDX-License-Identifier: BSD-2-Clause */
/* log.h: levels, formats, one line per message whatever it contains, and the journal's prefix only in the journal. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "log.h"

static int ends[2];
static struct log to_pipe;
static char text[65536];

static int setup(void **state)
{
	(void)state;
	unsetenv("JOURNAL_STREAM");
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	log_init(&to_pipe, ends[1], LOG_LEVEL_INFO);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(ends[0]);
	close(ends[1]);
	return 0;
}

/* What was written since the last call, as a string. */
static const char *output(void)
{
	ssize_t size = read(ends[0], text, sizeof(text) - 1);

	text[size > 0 ? size : 0] = '\0';
	return text;
}

/* The same without "2026-11-29 17:53:46.123 ", which is checked for its shape. */
static const char *message(void)
{
	static const char shape[] = "0000-00-00 00:00:00.000 ";
	const char *line = output();

	for (size_t i = 0; shape[i]; i++) {
		if (shape[i] == '0')
			assert_in_range(line[i], '0', '9');
		else
			assert_int_equal(line[i], shape[i]);
	}
	return line + strlen(shape);
}

static void test_plain(void **state)
{
	(void)state;
	assert_int_equal(to_pipe.format, LOG_FORMAT_PLAIN);
	log_warning(&to_pipe, "pool %s: %d pages", "main", 7);
	assert_string_equal(message(), "warning: pool main: 7 pages\n");
	errno = ENOENT;
	log_error(&to_pipe, "can not open: %m");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(message(), "error: can not open: No such file or directory\n");
}

static int evaluated;

static int evaluate(void)
{
	return ++evaluated;
}

static void test_levels(void **state)
{
	(void)state;
	evaluated = 0;
	log_debug(&to_pipe, "%d", evaluate());
	assert_string_equal(output(), "");
	assert_int_equal(evaluated, 0);
	log_info(&to_pipe, "%d", evaluate());
	assert_string_equal(message(), "info: 1\n");

	log_set_level(&to_pipe, LOG_LEVEL_ERROR);
	log_notice(&to_pipe, "no");
	log_write(&to_pipe, LOG_LEVEL_WARNING, "no");
	assert_string_equal(output(), "");
	log_set_level(&to_pipe, LOG_LEVEL_DEBUG);
	log_debug(&to_pipe, "yes");
	assert_string_equal(message(), "debug: yes\n");
}

static void test_parse(void **state)
{
	static const char *const names[] = {"error", "warning", "notice", "info", "debug"};
	enum log_level level = LOG_LEVEL_DEBUG;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(log_level_parse(names[i], &level), 0);
		assert_int_equal(level, LOG_LEVEL_ERROR + i);
		assert_string_equal(log_level_name(level), names[i]);
	}
	assert_int_equal(log_level_parse("Error", &level), -EINVAL);
	assert_int_equal(log_level_parse("", &level), -EINVAL);
	assert_int_equal(level, LOG_LEVEL_DEBUG);
}

static void test_hostile(void **state)
{
	(void)state;
	log_info(&to_pipe, "user %s", "x\n2026-11-29 00:00:00.000 error: forged\r\x1b[2J\x7f\t");
	assert_string_equal(message(), "info: user x\\x0a2026-11-29 00:00:00.000 error: forged\\x0d\\x1b[2J\\x7f\\x09\n");
}

static void test_utf8(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"Gr\xc3\xbc\xc3\x9f""e \xe2\x82\xac \xf0\x9f\x98\x80", "Gr\xc3\xbc\xc3\x9f""e \xe2\x82\xac \xf0\x9f\x98\x80"},
		{"\xc2\x9b""31m", "\\xc2\\x9b31m"},		/* U+009B: a terminal's escape */
		{"\xff\x80", "\\xff\\x80"},			/* never in UTF-8 */
		{"\xc0\x8a", "\\xc0\\x8a"},			/* overlong newline */
		{"\xe0\x80\x8a", "\\xe0\\x80\\x8a"},
		{"\xf0\x80\x80\x8a", "\\xf0\\x80\\x80\\x8a"},
		{"\xed\xa0\x80", "\\xed\\xa0\\x80"},		/* surrogate */
		{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},	/* above U+10FFFF */
		{"cut\xe2\x82", "cut\\xe2\\x82"},
		{"\xc3", "\\xc3"},
	};
	char expected[128];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		log_info(&to_pipe, "%s", cases[i].in);
		snprintf(expected, sizeof(expected), "info: %s\n", cases[i].out);
		assert_string_equal(message(), expected);
	}
}

/* Lines of all lengths around the limit: one newline, at the end; "..." if and only if something is missing. */
static void test_long(void **state)
{
	static char longer[3 * LOG_LINE_BYTES];

	(void)state;
	for (size_t length = LOG_LINE_BYTES - 60; length < LOG_LINE_BYTES + 60; length++) {
		const char *line;
		size_t written;

		memset(longer, 'a', length);
		longer[length] = '\0';
		log_info(&to_pipe, "%s", longer);
		line = message();
		written = strlen(line);
		assert_true(strlen(text) <= LOG_LINE_BYTES);
		assert_ptr_equal(strchr(line, '\n'), line + written - 1);
		if (written != strlen("info: \n") + length)
			assert_string_equal(line + written - 4, "...\n");
	}
	memset(longer, '\n', sizeof(longer) - 1);
	log_info(&to_pipe, "%s", longer);
	message();
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_true(strlen(text) <= LOG_LINE_BYTES);
}

static void test_journal(void **state)
{
	char stream[64];
	struct stat st;
	struct log log;

	(void)state;
	assert_int_equal(fstat(ends[1], &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(&log, ends[1], LOG_LEVEL_INFO);
	log_warning(&log, "low on\npages");
	assert_string_equal(output(), "<4>low on\\x0apages\n");

	/* systemd's stream, but this is another file. */
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + 1);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(&log, ends[1], LOG_LEVEL_INFO);
	assert_int_equal(log.format, LOG_FORMAT_PLAIN);
	setenv("JOURNAL_STREAM", "nonsense", 1);
	log_init(&log, ends[1], LOG_LEVEL_INFO);
	assert_int_equal(log.format, LOG_FORMAT_PLAIN);
	unsetenv("JOURNAL_STREAM");
}

static void *write_lines(void *arg)
{
	for (int i = 0; i < 50; i++)
		log_info(&to_pipe, "%s", (const char *)arg);
	return NULL;
}

/* Lines of two threads do not cut each other. */
static void test_threads(void **state)
{
	static const char *const lines[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"};
	unsigned int seen = 0;
	pthread_t threads[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_lines, (void *)lines[i]), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	output();
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, seen++) {
		*end = '\0';
		assert_int_equal(strlen(line), strlen("0000-00-00 00:00:00.000 info: ") + strlen(lines[0]));
		assert_true(strstr(line, lines[0]) || strstr(line, lines[1]));
	}
	assert_int_equal(seen, 100);
}

/* A closed or full descriptor loses the line and nothing else. */
static void test_unwritable(void **state)
{
	struct log log;

	(void)state;
	log_init(&log, -1, LOG_LEVEL_INFO);
	errno = EDOM;
	log_error(&log, "lost");
	assert_int_equal(errno, EDOM);
}

/* A reader that stands still: lines are lost and counted, nobody waits. */
static void test_full_pipe(void **state)
{
	char buffer[1 << 17];
	struct log log;
	ssize_t bytes;
	int pair[2];

	(void)state;
	assert_int_equal(pipe(pair), 0);
	log_init(&log, pair[1], LOG_LEVEL_INFO);
	for (int i = 0; i < 3000; i++)
		log_info(&log, "a line of some length, which comes again and again, number %d", i);
	bytes = read(pair[0], buffer, sizeof(buffer) - 1);
	assert_true(bytes > 10000);
	log_info(&log, "the last one");
	bytes = read(pair[0], buffer, sizeof(buffer) - 1);
	assert_true(bytes > 0);
	buffer[bytes] = 0;
	assert_non_null(strstr(buffer, " log lines were lost"));
	assert_non_null(strstr(buffer, "the last one"));
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
		cmocka_unit_test(test_parse),
		cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_utf8, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_journal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
		cmocka_unit_test(test_unwritable),
		cmocka_unit_test(test_full_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
