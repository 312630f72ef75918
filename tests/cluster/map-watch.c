/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * map-watch.c - many sessions with a cluster that do nothing, and when each of them has a newer map, for group_map.py
 *
 *	map-watch URI SESSIONS
 *
 * Prints "open", then, each time when one of them has another epoch than before, a line "SESSION EPOCH NS", the time in ns of
 * CLOCK_MONOTONIC. Their own threads fetch the map; here it is only looked at. Ends with standard input.
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tarn/tarn.h>

#include "cluster.h"

#define LOOK_MS 5

struct watch {
	struct tarn_session *session;
	uint64_t epoch;
};

/* clock_now_ns() counts by itself; this is compared with another program's. */
static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t epoch_of(struct tarn_session *session)
{
	uint64_t epoch;

	if (cluster_hold(session) < 0)
		errx(1, "%s", tarn_last_error_text());
	epoch = session->cluster->map->epoch;
	cluster_leave(session);
	return epoch;
}

static void look(struct watch *watches, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint64_t epoch = epoch_of(watches[i].session);

		if (epoch == watches[i].epoch)
			continue;
		watches[i].epoch = epoch;
		printf("%u %llu %llu\n", i, (unsigned long long)epoch, (unsigned long long)now_ns());
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	struct watch *watches;
	unsigned count;

	if (argc != 3)
		errx(2, "usage: map-watch URI SESSIONS");
	count = (unsigned)strtoul(argv[2], NULL, 10);
	watches = calloc(count + 1, sizeof(*watches));
	if (!watches || count == 0)
		errx(2, "sessions: 1 or more");
	for (unsigned i = 0; i < count; i++)
		if (tarn_session_open(argv[1], NULL, &watches[i].session) < 0)
			errx(1, "%s", tarn_last_error_text());
	printf("open\n");
	while (poll(&input, 1, LOOK_MS) == 0)
		look(watches, count);
	for (unsigned i = 0; i < count; i++)
		tarn_session_close(watches[i].session);
	free(watches);
	return 0;
}
