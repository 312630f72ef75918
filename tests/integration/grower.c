/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grower.c - puts more and more keys while readers read them, for test-grow.py
 *
 *	grower URI FIRST END WRITERS READERS [again]
 *
 * Each writer puts its share of the keys FIRST to END - 1. The readers get keys that were put already:
 * each must be there, with its value. again: the keys are all there before, and are put once more, so
 * that nothing grows. Prints how long all that took, and the times of the gets, as one JSON object.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "hist.h"

#define WRITERS_MAX 8u
#define READERS_MAX 8u

/* What the processes share. */
struct board {
	_Atomic uint64_t put[WRITERS_MAX]; /* keys of this writer that are there */
	atomic_uint writing;               /* writers that have not ended */
	atomic_uint failed;
	struct hist gets[READERS_MAX], puts[WRITERS_MAX];
};

static struct board *board;
static uint64_t first, end;
static unsigned writers, readers;

static void fail(const char *what, uint64_t key, int code)
{
	fprintf(stderr, "grower: %s of key %" PRIu64 ": %d %s\n", what, key, code,
		tarn_last_error_text());
	atomic_store(&board->failed, 1);
	exit(1);
}

static struct tarn_session *connect_to(const char *uri)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *session;
	int ret;

	options.timeout_ms = 30000;
	ret = tarn_session_open(uri, &options, &session);
	if (ret < 0)
		fail("connection instead", 0, ret);
	return session;
}

static void write_keys(const char *uri, unsigned me)
{
	struct tarn_session *session = connect_to(uri);

	for (uint64_t key = first + me; key < end; key += writers) {
		uint64_t began = clock_now_ns(), value = ~key;
		int ret = tarn_put(session, &key, sizeof(key), &value, sizeof(value), NULL, NULL);

		if (ret < 0)
			fail("put", key, ret);
		hist_add(&board->puts[me], clock_now_ns() - began);
		atomic_fetch_add(&board->put[me], 1);
	}
	tarn_session_close(session);
	atomic_fetch_sub(&board->writing, 1);
}

/* A key that is there: of any writer, anywhere among what it has put. */
static bool pick(unsigned *seed, bool again, uint64_t *ret_key)
{
	unsigned writer = (unsigned)rand_r(seed) % writers;
	uint64_t number = (uint64_t)rand_r(seed);
	uint64_t count = again ? (end - first) / writers : atomic_load(&board->put[writer]);

	*ret_key = first + writer + (count ? number % count : 0) * writers;
	return count > 0;
}

static void read_keys(const char *uri, unsigned me, bool again)
{
	struct tarn_session *session = connect_to(uri);
	unsigned seed = me + 1;
	uint64_t key;

	while (atomic_load(&board->writing) && !atomic_load(&board->failed)) {
		uint64_t value = 0, began;
		int ret;

		if (!pick(&seed, again, &key))
			continue;
		began = clock_now_ns();
		ret = tarn_get(session, &key, sizeof(key), &value, sizeof(value), NULL);
		if (ret < 0 || value != ~key)
			fail("get", key, ret);
		hist_add(&board->gets[me], clock_now_ns() - began);
	}
	tarn_session_close(session);
}

static void times(const char *name, struct hist *hists, unsigned count)
{
	for (unsigned i = 1; i < count; i++)
		hist_merge(&hists[0], &hists[i]);
	printf(", \"%s\": %" PRIu64 ", \"%s_p50_ns\": %" PRIu64 ", \"%s_p99_ns\": %" PRIu64
	       ", \"%s_p999_ns\": %" PRIu64 ", \"%s_max_ns\": %" PRIu64,
	       name, hist_count(hists), name, hist_percentile(hists, 50), name,
	       hist_percentile(hists, 99), name, hist_percentile(hists, 99.9), name,
	       hist_max(hists));
}

int main(int argc, char **argv)
{
	bool again = argc > 6;
	uint64_t began;
	int status, bad = 0;

	if (argc < 6)
		return 2;
	first = strtoull(argv[2], NULL, 10);
	end = strtoull(argv[3], NULL, 10);
	writers = (unsigned)atoi(argv[4]);
	readers = (unsigned)atoi(argv[5]);
	if (writers < 1 || writers > WRITERS_MAX || readers < 1 || readers > READERS_MAX ||
	    end - first < writers)
		return 2;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED)
		return 1;
	atomic_store(&board->writing, writers);
	began = clock_now_ns();
	for (unsigned i = 0; i < writers + readers; i++) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (child > 0)
			continue;
		if (i < writers)
			write_keys(argv[1], i);
		else
			read_keys(argv[1], i - writers, again);
		return 0;
	}
	while (wait(&status) > 0)
		bad |= status;
	if (bad)
		return 1;
	printf("{\"seconds\": %.3f", (double)(clock_now_ns() - began) / 1e9);
	times("gets", board->gets, readers);
	times("puts", board->puts, writers);
	printf("}\n");
	return 0;
}
