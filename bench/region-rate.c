/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast a region is read and written, or values are got and put, by one session with many of these under way, for
 * bench/rdma-rates, which has perftest beside it. One thread. Prints a JSON object per line:
 *
 *	region-rate URI read|write|get|put SIZE[,SIZE...] DEPTH SECONDS [copy]
 *
 * SIZE: bytes of each access or value; there are as many keys as DEPTH. With `copy` the memory is not registered. On shared memory memcpy() of as many bytes between
 * two buffers of the same kind is measured beside it, in turns.
 */
#include <err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tarn/region.h>

#define REGION_BYTES (32u << 20)
#define DEPTH_MAX    128u
#define TURNS        5u

struct run {
	struct tarn_session *session;
	struct tarn_region *region; /* or NULL: keys */
	bool write, shm;
	size_t bytes;
	unsigned depth;
	uint8_t *memory; /* as many accesses as are under way, or 32 MiB of them */
	size_t places;
	char keys[DEPTH_MAX][32];
	unsigned idle[DEPTH_MAX], idle_count; /* keys that no operation is under way with */
};

static void check(int ret, const char *what)
{
	if (ret < 0)
		errx(1, "%s: %s", what, tarn_last_error_text());
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A key and a place in memory of its own for each that is under way: they end in any order. */
static void begin_key(struct run *run)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	unsigned slot = run->idle[--run->idle_count];
	uint8_t *memory = run->memory + slot * run->bytes;
	const char *key = run->keys[slot];

	async.cookie = (void *)(uintptr_t)slot;
	check(run->write ? tarn_put_async(run->session, key, strlen(key), memory, run->bytes, NULL,
					  &async, NULL)
			 : tarn_get_async(run->session, key, strlen(key), memory, run->bytes,
					  &async, NULL),
	      "an operation");
}

static void begin(struct run *run, uint64_t number)
{
	const struct tarn_async async = TARN_ASYNC_INIT;
	uint64_t offset = number % (REGION_BYTES / run->bytes) * run->bytes;
	uint8_t *memory = run->memory + number % run->places * run->bytes;

	if (!run->region) {
		begin_key(run);
		return;
	}
	check(run->write ? tarn_region_write_async(run->region, offset, memory, run->bytes, &async,
						   NULL)
			 : tarn_region_read_async(run->region, offset, memory, run->bytes, &async,
						  NULL),
	      "an access");
}

/* Picks up what has ended; how many. */
static uint64_t pick_up(struct run *run)
{
	struct tarn_completion list[DEPTH_MAX];
	size_t count;

	check(tarn_session_poll(run->session, list, DEPTH_MAX, &count), "poll");
	for (size_t i = 0; i < count; i++) {
		if (list[i].status < 0)
			errx(1, "an operation ended with %s", tarn_error_name(list[i].status));
		if (!run->region)
			run->idle[run->idle_count++] = (unsigned)(uintptr_t)list[i].cookie;
	}
	if (count == 0)
		check(tarn_session_wait(run->session, 1000), "wait");
	return count;
}

/* Accesses per second. */
static double rate(struct run *run, uint64_t ns)
{
	uint64_t started = now_ns(), begun = 0, ended = 0;

	while (now_ns() - started < ns) {
		while (begun - ended < run->depth)
			begin(run, begun++);
		ended += pick_up(run);
	}
	while (ended < begun)
		ended += pick_up(run);
	return (double)ended * 1e9 / (double)(now_ns() - started);
}

static void one_blocking(struct run *run)
{
	const char *key = run->keys[0];

	if (run->region)
		check(run->write ? tarn_region_write(run->region, 0, run->memory, run->bytes)
				 : tarn_region_read(run->region, 0, run->memory, run->bytes),
		      "an access");
	else
		check(run->write ? tarn_put(run->session, key, strlen(key), run->memory, run->bytes,
					    NULL, NULL)
				 : tarn_get(run->session, key, strlen(key), run->memory, run->bytes,
					    NULL),
		      "an operation");
}

/* One after the other, by blocking calls: nanoseconds each. */
static double latency(struct run *run, uint64_t ns)
{
	uint64_t started = now_ns(), count = 0;

	for (; now_ns() - started < ns; count++)
		one_blocking(run);
	return (double)(now_ns() - started) / (double)count;
}

static double copy_rate(const struct run *run, uint8_t *other, uint64_t ns)
{
	uint64_t started = now_ns(), count = 0;

	for (; now_ns() - started < ns; count++) {
		uint8_t *there = other + count % (REGION_BYTES / run->bytes) * run->bytes;
		uint8_t *here = run->memory + count % run->places * run->bytes;

		memcpy(run->write ? there : here, run->write ? here : there, run->bytes);
		__asm__ volatile("" : : "r"(here), "r"(there) : "memory");
	}
	return (double)count * 1e9 / (double)(now_ns() - started);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double values[TURNS])
{
	qsort(values, TURNS, sizeof(*values), compare);
	return values[TURNS / 2];
}

static void keys_put(struct run *run)
{
	if (run->depth > run->places)
		errx(2, "%u values of %zu bytes: must fit into %u bytes", run->depth, run->bytes,
		     REGION_BYTES);
	run->idle_count = 0;
	for (unsigned i = 0; i < run->depth; i++) {
		snprintf(run->keys[i], sizeof(run->keys[i]), "region-rate/%u", i);
		run->idle[run->idle_count++] = i;
		check(tarn_put(run->session, run->keys[i], strlen(run->keys[i]), run->memory,
			       run->bytes, NULL, NULL),
		      "a put");
	}
}

static void keys_delete(const struct run *run)
{
	for (unsigned i = 0; i < run->depth; i++)
		check(tarn_delete(run->session, run->keys[i], strlen(run->keys[i])), "a delete");
}

static void measure(struct run *run, uint64_t ns, uint8_t *other)
{
	double rates[TURNS], copies[TURNS], times[TURNS];

	run->places = REGION_BYTES / run->bytes;
	if (!run->region)
		keys_put(run);
	(void)rate(run, ns / TURNS);
	for (unsigned i = 0; i < TURNS; i++) {
		rates[i] = rate(run, ns / TURNS);
		copies[i] = run->shm ? copy_rate(run, other, ns / TURNS) : 0;
		times[i] = latency(run, ns / TURNS / 4);
	}
	printf("{\"bytes\":%zu,\"depth\":%u,\"per_s\":%.0f,\"bytes_per_s\":%.0f,\"blocking_ns\":%."
	       "0f",
	       run->bytes, run->depth, median(rates), median(rates) * (double)run->bytes,
	       median(times));
	if (run->shm)
		printf(",\"memcpy_bytes_per_s\":%.0f", median(copies) * (double)run->bytes);
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct tarn_pool_info info = {.size = sizeof(info)};
	struct run run = {.depth = argc > 4 ? (unsigned)atoi(argv[4]) : 0};
	bool copy = argc > 6, region;
	uint8_t *other;
	void *memory;

	if (argc < 6 || run.depth < 1 || run.depth > DEPTH_MAX)
		errx(2,
		     "usage: region-rate URI read|write|get|put SIZE[,SIZE...] DEPTH SECONDS "
		     "[copy]; DEPTH is 1 to %u",
		     DEPTH_MAX);
	run.write = strcmp(argv[2], "write") == 0 || strcmp(argv[2], "put") == 0;
	region = strcmp(argv[2], "get") != 0 && strcmp(argv[2], "put") != 0;
	check(tarn_session_open(argv[1], NULL, &run.session), argv[1]);
	check(tarn_session_get_pool_info(run.session, &info), "pool");
	run.shm = strcmp(info.transport, "shm") == 0;
	if (region) {
		(void)tarn_region_destroy(run.session, "region-rate");
		check(tarn_region_create(run.session, "region-rate", REGION_BYTES, 0), "region");
		check(tarn_region_open(run.session, "region-rate", 0, &run.region), "region");
	}
	other = copy ? malloc(REGION_BYTES) : NULL;
	if (copy)
		memory = malloc(REGION_BYTES);
	else
		check(tarn_alloc(run.session, REGION_BYTES, &memory), "memory");
	if (run.shm && !other)
		other = malloc(REGION_BYTES);
	if (!memory || (run.shm && !other))
		errx(1, "no memory");
	memset(memory, 1, REGION_BYTES);
	if (other)
		memset(other, 1, REGION_BYTES);
	run.memory = memory;
	for (char *size = strtok(argv[3], ","); size; size = strtok(NULL, ",")) {
		run.bytes = strtoul(size, NULL, 10);
		if (run.bytes == 0 || run.bytes > REGION_BYTES / 2)
			errx(2, "size %s: 1 to %u", size, REGION_BYTES / 2);
		measure(&run, (uint64_t)(strtod(argv[5], NULL) * 1e9), other);
	}
	if (region) {
		check(tarn_region_close(run.region), "close");
		check(tarn_region_destroy(run.session, "region-rate"), "destroy");
	} else {
		keys_delete(&run);
	}
	tarn_session_close(run.session);
	return 0;
}
