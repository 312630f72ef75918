/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sessions.c - many sessions, for run-inside.py
 *
 *	sessions URI cycles COUNT [TIMEOUT-MS]    opens and closes one after the other; each does a put and a get
 *	sessions URI storm COUNT [TIMEOUT-MS]     opens all at once, a thread each; then each does a put and a get; all
 *	                                          are held until standard input ends
 *
 * Prints one JSON object: how many were served, and of those that were not, each text once with its
 * number. storm prints it when all have been answered. Exit code 1 when a value was wrong.
 */
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "clock.h"

#define COUNT_MAX 4096u

struct one {
	pthread_t thread;
	const char *uri;
	uint32_t number, timeout_ms;
	struct tarn_session *session;
	int status;
	uint64_t open_ns;
	char text[256]; /* of a failure */
};

static int failed(struct one *one, int status)
{
	one->status = status;
	snprintf(one->text, sizeof(one->text), "%s: %s", tarn_error_name(status),
		 tarn_last_error_text());
	return status;
}

static int open_one(struct one *one)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	uint64_t begin_ns = clock_now_ns();
	int status;

	options.flags = TARN_NO_THREAD;
	options.timeout_ms = one->timeout_ms;
	options.cache_bytes = 65536;
	status = tarn_session_open(one->uri, &options, &one->session);
	one->open_ns = clock_now_ns() - begin_ns;
	return status < 0 ? failed(one, status) : 0;
}

static int use_one(struct one *one)
{
	char key[32], value[64], got[64];
	struct tarn_item item = TARN_ITEM_INIT;
	int length = snprintf(key, sizeof(key), "session/%" PRIu32, one->number % 64);
	int bytes = snprintf(value, sizeof(value), "value of %s", key);
	int status = tarn_put(one->session, key, (size_t)length, value, (size_t)bytes, NULL, NULL);

	if (status == 0)
		status = tarn_get(one->session, key, (size_t)length, got, sizeof(got), &item);
	if (status < 0)
		return failed(one, status);
	if (item.value_bytes != (uint64_t)bytes || memcmp(value, got, (size_t)bytes) != 0) {
		fprintf(stderr, "sessions: %s has a wrong value\n", key);
		exit(1);
	}
	return 0;
}

static void *thread_of(void *argument)
{
	struct one *one = argument;

	if (open_one(one) == 0)
		use_one(one);
	return NULL;
}

static void report(const struct one *ones, uint32_t count)
{
	json_t *texts = json_object(), *document;
	uint64_t longest_ns = 0;
	int served = 0;

	for (uint32_t i = 0; i < count; i++) {
		json_t *before = json_object_get(texts, ones[i].text);

		longest_ns = ones[i].open_ns > longest_ns ? ones[i].open_ns : longest_ns;
		served += ones[i].status == 0;
		if (ones[i].status != 0)
			json_object_set_new(
				texts, ones[i].text,
				json_integer(before ? json_integer_value(before) + 1 : 1));
	}
	document = json_pack("{s:i, s:I, s:o}", "served", served, "longest_open_ms",
			     (json_int_t)(longest_ns / 1000000), "failures", texts);
	json_dumpf(document, stdout, JSON_COMPACT);
	puts("");
	fflush(stdout);
	json_decref(document);
}

static void cycles(struct one *ones, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		thread_of(&ones[i]);
		tarn_session_close(ones[i].session);
	}
	report(ones, count);
}

static void storm(struct one *ones, uint32_t count)
{
	pthread_attr_t small;
	char byte;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 512 * 1024);
	for (uint32_t i = 0; i < count; i++)
		if (pthread_create(&ones[i].thread, &small, thread_of, &ones[i]) != 0) {
			perror("sessions: pthread_create");
			exit(1);
		}
	for (uint32_t i = 0; i < count; i++)
		pthread_join(ones[i].thread, NULL);
	report(ones, count);
	while (read(0, &byte, 1) > 0)
		;
	for (uint32_t i = 0; i < count; i++)
		tarn_session_close(ones[i].session);
}

int main(int argc, char **argv)
{
	uint32_t count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	struct one *ones;

	if (count == 0 || count > COUNT_MAX)
		return 2;
	ones = calloc(count, sizeof(*ones));
	if (!ones)
		return 1;
	for (uint32_t i = 0; i < count; i++) {
		ones[i].uri = argv[1];
		ones[i].number = i;
		ones[i].timeout_ms = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 20000;
	}
	if (!strcmp(argv[2], "storm"))
		storm(ones, count);
	else
		cycles(ones, count);
	free(ones);
	return 0;
}
