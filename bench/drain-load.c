/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * drain-load.c - the clients of bench/drain: one session that fills a pool, or works until its input ends
 *
 *	drain-load fill URI KEYS VALUE_BYTES     all keys, in batches; prints what that took
 *	drain-load work URI KEYS VALUE_BYTES     gets and, each fourth time, puts of random keys, one after the other; prints a line
 *	                                         each tenth of a second: ms of CLOCK_MONOTONIC, operations so far, the longest one in us
 *
 * A key that is missing, or has another value, ends it with 1. One thread. Next to read: bench/drain.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "workload.h"

#define KEY_BYTES  16
#define BATCH      64u
#define LINE_NS    100000000u
#define TIMEOUT_MS 60000

struct load {
	struct tarn_session *session;
	uint64_t keys, random;
	size_t value_bytes;
	uint8_t *value;
	uint64_t operations, longest_ns;
};

static int fail(const char *what, int status)
{
	fprintf(stderr, "drain-load: %s: %s: %s\n", what, tarn_error_name(status),
		tarn_last_error_text());
	return 1;
}

static void key_of(uint64_t number, char key[KEY_BYTES + 1])
{
	snprintf(key, KEY_BYTES + 1, "%016llx", (unsigned long long)number);
}

/* ---- fill ---- */

static int put_batch(struct load *l, uint64_t from, size_t count)
{
	static char keys[BATCH][KEY_BYTES + 1];
	struct tarn_mput items[BATCH] = {0};
	int status;

	for (size_t i = 0; i < count; i++) {
		key_of(from + i, keys[i]);
		items[i].key = keys[i];
		items[i].key_bytes = KEY_BYTES;
		items[i].value = l->value;
		items[i].value_bytes = l->value_bytes;
	}
	status = tarn_mput(l->session, items, count);
	for (size_t i = 0; i < count && status >= 0; i++)
		if (items[i].status < 0)
			status = items[i].status;
	return status < 0 ? fail("put", status) : 0;
}

static int fill(struct load *l)
{
	uint64_t began = clock_now_ns();

	for (uint64_t i = 0; i < l->keys; i += BATCH)
		if (put_batch(l, i, l->keys - i < BATCH ? (size_t)(l->keys - i) : BATCH))
			return 1;
	printf("%.6f\n", (double)(clock_now_ns() - began) / 1e9);
	return 0;
}

/* ---- work ---- */

static int get(struct load *l, const char *key)
{
	struct tarn_item item = TARN_ITEM_INIT;
	int status = tarn_get(l->session, key, KEY_BYTES, l->value, l->value_bytes, &item);

	if (status == 0 && item.value_bytes != l->value_bytes) {
		fprintf(stderr, "drain-load: key %s has a value of %llu bytes\n", key,
			(unsigned long long)item.value_bytes);
		return 1;
	}
	return status < 0 ? fail("get", status) : 0;
}

static int put(struct load *l, const char *key)
{
	int status = tarn_put(l->session, key, KEY_BYTES, l->value, l->value_bytes, NULL, NULL);

	/* it may have been written, so it is written again */
	while (status == -TARN_EAMBIGUOUS)
		status = tarn_put(l->session, key, KEY_BYTES, l->value, l->value_bytes, NULL,
				  NULL);
	return status < 0 ? fail("put", status) : 0;
}

static bool ends(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) != 0;
}

static int work(struct load *l)
{
	uint64_t line = clock_now_ns(), now = line, before;
	char key[KEY_BYTES + 1];

	for (;;) {
		key_of(workload_random(&l->random) % l->keys, key);
		before = now;
		if (l->operations % 4 == 3 ? put(l, key) : get(l, key))
			return 1;
		now = clock_now_ns();
		l->operations++;
		if (now - before > l->longest_ns)
			l->longest_ns = now - before;
		if (now < line)
			continue;
		printf("%llu %llu %llu\n", (unsigned long long)(now / 1000000),
		       (unsigned long long)l->operations,
		       (unsigned long long)(l->longest_ns / 1000));
		fflush(stdout);
		if (ends())
			return 0;
		l->longest_ns = 0;
		line = now + LINE_NS;
		now = clock_now_ns();
	}
}

int main(int argc, char **argv)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct load l = {.random = 88172645463325252u};
	int status;

	if (argc != 5 || (strcmp(argv[1], "fill") != 0 && strcmp(argv[1], "work") != 0)) {
		fprintf(stderr, "Usage: drain-load fill|work URI KEYS VALUE_BYTES\n");
		return 2;
	}
	l.keys = strtoull(argv[3], NULL, 10);
	l.value_bytes = (size_t)strtoull(argv[4], NULL, 10);
	l.value = calloc(1, l.value_bytes + 1);
	if (!l.value || l.keys == 0)
		return fail("memory", -ENOMEM);
	options.timeout_ms = TIMEOUT_MS;
	status = tarn_session_open(argv[2], &options, &l.session);
	if (status < 0)
		return fail(argv[2], status);
	status = strcmp(argv[1], "fill") == 0 ? fill(&l) : work(&l);
	tarn_session_close(l.session);
	free(l.value);
	return status;
}
