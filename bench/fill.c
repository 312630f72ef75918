/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.c - how much a store pool takes until it is full
 *
 * One session puts keys of 16 bytes and values of --low to --high bytes, evenly distributed (or the
 * logarithm of their sizes is, --log), until the pool says that it is full for so long that nothing
 * rests any more. Prints what was stored. One thread. bench/pool-life starts a daemon for it and reads the
 * pool's side from its stats: read that next.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "workload.h"

#define KEY_BYTES 16
#define TIMEOUT_MS \
	3000 /* of the last put: longer than T2, and than the keeper takes to find what is free */

struct fill {
	uint32_t low, high;
	bool logarithmic;
	uint64_t random;
};

static uint32_t value_size(struct fill *fill)
{
	double u = (double)(workload_random(&fill->random) >> 11) / 9007199254740992.0,
	       low = fill->low, high = fill->high + 1.0;

	return (uint32_t)(fill->logarithmic ? low * pow(high / low, u) : low + (high - low) * u);
}

static int fail(const char *what, int status)
{
	fprintf(stderr, "fill: %s: %s: %s\n", what, tarn_error_name(status),
		tarn_last_error_text());
	return 1;
}

static int run(struct fill *fill, struct tarn_session *session)
{
	uint64_t keys = 0, bytes = 0, began = clock_now_ns();
	uint8_t *value = calloc(1, fill->high + 1u);
	char key[KEY_BYTES + 1];
	int status = 0;

	if (!value)
		return fail("memory", -ENOMEM);
	while (status == 0) {
		uint32_t size = value_size(fill);

		snprintf(key, sizeof(key), "%016llx", (unsigned long long)keys);
		status = tarn_put(session, key, KEY_BYTES, value, size, NULL, NULL);
		if (status < 0)
			break;
		keys++;
		bytes += KEY_BYTES + size;
	}
	free(value);
	if (status != -TARN_EPOOLFULL)
		return fail("put", status);
	printf("{\"keys\": %llu, \"bytes\": %llu, \"seconds\": %.1f}\n", (unsigned long long)keys,
	       (unsigned long long)bytes, (double)(clock_now_ns() - began) / 1e9);
	return 0;
}

static const struct option options[] = {{"low", required_argument, NULL, 'l'},
					{"high", required_argument, NULL, 'h'},
					{"log", no_argument, NULL, 'g'},
					{0}};

int main(int argc, char **argv)
{
	struct fill fill = {.low = 64, .high = 4096};
	struct tarn_options open = TARN_OPTIONS_INIT;
	struct tarn_session *session;
	int option, status;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'l')
			fill.low = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'h')
			fill.high = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'g')
			fill.logarithmic = true;
		else
			optind = argc;
	}
	if (optind + 1 != argc || fill.low == 0 || fill.low > fill.high ||
	    fill.high > WORKLOAD_VALUE_MAX) {
		fprintf(stderr, "usage: fill URI [--low=64] [--high=4096] [--log]\n");
		return 2;
	}
	open.timeout_ms = TIMEOUT_MS;
	status = tarn_session_open(argv[optind], &open, &session);
	if (status < 0)
		return fail(argv[optind], status);
	status = run(&fill, session);
	tarn_session_close(session);
	return status;
}
