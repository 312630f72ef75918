/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One key that several sessions write at the same time, beside a bare CAS by as many on one word: a region's. One thread
 * per session; both kinds of work in turns, so that what disturbs the machine disturbs both. Prints a JSON object:
 *
 *	hot-key URI SESSIONS SECONDS DEPTH
 *
 * A CAS counts whether it has swapped or not: it is what the memory can take. A put counts when it was acknowledged;
 * DEPTH of them are under way at a time in each session, and may be combined (tarn.h, "Rules").
 */
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tarn/region.h>

#define SESSIONS_MAX 64u
#define DEPTH_MAX    256u
#define TURNS        5u

enum work { WORK_CAS, WORK_PUT, WORKS };

struct shared {
	const char *uri;
	unsigned depth;
	pthread_barrier_t barrier;
	_Atomic bool stop;
};

struct worker {
	pthread_t thread;
	struct shared *shared;
	uint64_t done[TURNS][WORKS];
};

static void check(int ret, const char *what)
{
	if (ret < 0)
		errx(1, "%s: %s", what, tarn_last_error_text());
}

static uint64_t swap(struct tarn_region *region, const atomic_bool *stop)
{
	uint64_t word = 0, count = 0;

	/* relaxed: a flag to stop at */
	for (; !atomic_load_explicit(stop, memory_order_relaxed); count++)
		check(tarn_region_cas(region, 0, word, word + 1, &word), "cas");
	return count;
}

static uint64_t put(struct tarn_session *session, unsigned depth, const atomic_bool *stop)
{
	struct tarn_mput items[DEPTH_MAX];
	uint64_t count = 0;
	char value[64];

	memset(value, 'v', sizeof(value));
	for (unsigned i = 0; i < depth; i++)
		items[i] = (struct tarn_mput){.key = "hot-key",
					      .key_bytes = 7,
					      .value = value,
					      .value_bytes = sizeof(value)};
	while (!atomic_load_explicit(stop, memory_order_relaxed)) {
		check(tarn_mput(session, items, depth), "put");
		for (unsigned i = 0; i < depth; i++)
			if (items[i].status < 0)
				errx(1, "put: %s", tarn_error_name(items[i].status));
		count += depth;
	}
	return count;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct shared *shared = worker->shared;
	struct tarn_session *session;
	struct tarn_region *region;

	check(tarn_session_open(shared->uri, NULL, &session), shared->uri);
	check(tarn_region_open(session, "hot-key", 0, &region), "region");
	check(tarn_put(session, "hot-key", 7, "v", 1, NULL, NULL), "put");
	for (unsigned i = 0; i < TURNS * WORKS; i++) {
		pthread_barrier_wait(&shared->barrier); /* all begin */
		worker->done[i / WORKS][i % WORKS] =
			i % WORKS == WORK_CAS ? swap(region, &shared->stop)
					      : put(session, shared->depth, &shared->stop);
		pthread_barrier_wait(&shared->barrier); /* all have ended */
	}
	check(tarn_region_close(region), "close");
	tarn_session_close(session);
	return NULL;
}

static void turn(struct shared *shared, double seconds)
{
	const struct timespec t = {(time_t)seconds,
				   (long)((seconds - (double)(time_t)seconds) * 1e9)};

	atomic_store_explicit(&shared->stop, false, memory_order_relaxed);
	pthread_barrier_wait(&shared->barrier);
	nanosleep(&t, NULL);
	atomic_store_explicit(&shared->stop, true, memory_order_relaxed);
	pthread_barrier_wait(&shared->barrier);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const struct worker *workers, unsigned count, double seconds)
{
	double ratios[TURNS], rates[WORKS] = {0};
	uint64_t puts[SESSIONS_MAX] = {0}, all = 0, least = UINT64_MAX;

	for (unsigned t = 0; t < TURNS; t++) {
		uint64_t sum[WORKS] = {0};

		for (unsigned i = 0; i < count; i++) {
			sum[WORK_CAS] += workers[i].done[t][WORK_CAS];
			sum[WORK_PUT] += workers[i].done[t][WORK_PUT];
			puts[i] += workers[i].done[t][WORK_PUT];
		}
		ratios[t] = (double)sum[WORK_PUT] / (double)sum[WORK_CAS];
		rates[WORK_CAS] += (double)sum[WORK_CAS] / seconds / TURNS;
		rates[WORK_PUT] += (double)sum[WORK_PUT] / seconds / TURNS;
		all += sum[WORK_PUT];
	}
	for (unsigned i = 0; i < count; i++)
		if (puts[i] < least)
			least = puts[i];
	qsort(ratios, TURNS, sizeof(ratios[0]), compare);
	printf("{\"sessions\":%u,\"cas_per_s\":%.0f,\"puts_per_s\":%.0f,\"put_to_cas\":%.3f,"
	       "\"slowest_to_mean\":%.3f}\n",
	       count, rates[WORK_CAS], rates[WORK_PUT], ratios[TURNS / 2],
	       (double)least * count / (double)all);
}

int main(int argc, char **argv)
{
	static struct worker workers[SESSIONS_MAX];
	unsigned count = argc == 5 ? (unsigned)atoi(argv[2]) : 0;
	struct shared shared = {.uri = argv[1], .depth = argc == 5 ? (unsigned)atoi(argv[4]) : 0};
	struct tarn_session *session;

	if (count < 1 || count > SESSIONS_MAX || shared.depth < 1 || shared.depth > DEPTH_MAX)
		errx(2,
		     "usage: hot-key URI SESSIONS SECONDS DEPTH; SESSIONS is 1 to %u, DEPTH 1 to "
		     "%u",
		     SESSIONS_MAX, DEPTH_MAX);
	check(tarn_session_open(argv[1], NULL, &session), argv[1]);
	tarn_region_destroy(session, "hot-key");
	check(tarn_region_create(session, "hot-key", 4096, 0), "region");
	pthread_barrier_init(&shared.barrier, NULL, count + 1);
	for (unsigned i = 0; i < count; i++) {
		workers[i].shared = &shared;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			errx(1, "no thread");
	}
	for (unsigned i = 0; i < TURNS * WORKS; i++)
		turn(&shared, atof(argv[3]) / TURNS / WORKS);
	for (unsigned i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
	report(workers, count, atof(argv[3]) / TURNS / WORKS);
	check(tarn_region_destroy(session, "hot-key"), "destroy");
	tarn_session_close(session);
	return 0;
}
