/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * load.c - an application that never stops to put and get, for boot-inside.sh
 *
 *	load URI PREFIX
 *
 * Puts PREFIX1, PREFIX2 and so on, each again until the daemon has it, and gets one of the earlier ones after each. On
 * SIGTERM it gets all of them. A key that is not there, or has another value, ends it with exit code 1 and a line that
 * names it. Says how far it is by a line per 20 keys, at the end how much it was. Built against the installed
 * libtarn-dev, it knows nothing of this tree.
 */
#include <err.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>
#include <time.h>

#define VALUE_MAX    1000u
#define ANSWER_TRIES 20u /* at the end, of each key: then the daemon is there for good */

static volatile sig_atomic_t stopping;

static void stop(int signal)
{
	(void)signal;
	stopping = 1;
}

static void nap(long ms)
{
	struct timespec time = {0, ms * 1000000};

	nanosleep(&time, NULL);
}

/* All of a value follows from its key. */
static size_t make(const char *prefix, unsigned number, char key[64], char value[VALUE_MAX])
{
	size_t length = (size_t)snprintf(key, 64, "%s%u", prefix, number);
	size_t bytes = length + number * 37 % (VALUE_MAX - 64);

	for (size_t i = 0; i < bytes; i++)
		value[i] = key[i % length];
	return bytes;
}

/* False: no answer now. */
static bool get(struct tarn_session *session, const char *prefix, unsigned number)
{
	struct tarn_item item = TARN_ITEM_INIT;
	char key[64], value[VALUE_MAX], found[VALUE_MAX];
	size_t bytes = make(prefix, number, key, value);
	int status = tarn_get(session, key, strlen(key), found, sizeof(found), &item);

	if (status == -TARN_ENOTFOUND)
		errx(1, "key %s is lost", key);
	if (status == -TARN_ETOOSMALL ||
	    (status == 0 && (item.value_bytes != bytes || memcmp(found, value, bytes) != 0)))
		errx(1, "key %s has another value, of %zu bytes instead of %zu", key,
		     (size_t)item.value_bytes, bytes);
	return status == 0;
}

static bool put(struct tarn_session *session, const char *prefix, unsigned number)
{
	char key[64], value[VALUE_MAX];
	size_t bytes = make(prefix, number, key, value);

	return tarn_put(session, key, strlen(key), value, bytes, NULL, NULL) == 0;
}

int main(int argc, char **argv)
{
	struct tarn_session *session;
	struct tarn_session_stats stats = {0};
	unsigned keys = 0, again = 0, tries;

	if (argc != 3 || strlen(argv[2]) > 40)
		errx(2, "usage: load URI PREFIX");
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, stop);
	if (tarn_session_open(argv[1], NULL, &session) < 0)
		errx(1, "%s", tarn_last_error_text());
	srand(1);
	while (!stopping) {
		if (!put(session, argv[2], keys + 1)) {
			if (!again++)
				printf("first failure: %s\n", tarn_last_error_text());
			nap(10);
			continue;
		}
		keys++;
		get(session, argv[2], 1 + (unsigned)rand() % keys);
		if (keys % 20 == 0)
			printf("%u\n", keys);
		nap(2);
	}
	for (unsigned i = 1; i <= keys; i++)
		for (tries = 0; !get(session, argv[2], i); nap(100))
			if (++tries == ANSWER_TRIES)
				errx(1, "key %s%u: %s", argv[2], i, tarn_last_error_text());
	stats.size = sizeof(stats);
	tarn_session_get_stats(session, &stats);
	printf("%u keys are there, %u puts were repeated, connected %u times\n", keys, again,
	       (unsigned)stats.reconnects + 1);
	tarn_session_close(session);
	return keys == 0;
}
