/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rate.c - --rate: when the next operation should start, whatever became of the ones before it
 *
 * An open loop. The operations of all workers stand in one timetable of equal distances, and each
 * worker has every n-th of them. A latency counts from the timetable's time, so one slow operation
 * makes all late that should have started meanwhile: nothing is left out because the benchmark was
 * waiting. On the workers; step.c asks before each operation, report-rate.c prints. It must not
 * skip what is late. Next: step.c.
 */
#include <math.h>

#include "bench.h"

/* Sleeping overshoots by about as much as the kernel's timer slack; the rest is spun away. */
#define RATE_SPIN_NS 100000u

struct rate rate_begin(const struct worker *worker, uint64_t start_ns)
{
	const struct arguments *arguments = worker->bench->arguments;
	struct rate rate = {.start_ns = start_ns};

	if (arguments->rate == 0)
		return rate;
	/* A batch is due when its first operation is. */
	rate.interval_ns = 1e9 * worker->nworkers * arguments->depth / (double)arguments->rate;
	rate.first_ns = rate.interval_ns * worker->index / worker->nworkers;
	return rate;
}

uint64_t rate_due_ns(const struct rate *rate)
{
	/* multiplied, not added up: no error grows */
	return rate->start_ns +
	       (uint64_t)(rate->first_ns + rate->interval_ns * (double)rate->started);
}

uint64_t rate_wait(struct rate *rate)
{
	uint64_t due = rate_due_ns(rate), now = clock_now_ns();

	if (now + RATE_SPIN_NS < due)
		clock_sleep_ns(due - now - RATE_SPIN_NS);
	while (clock_now_ns() < due)
		;
	rate->started++;
	return due;
}

void rate_end(const struct rate *rate, uint64_t until_ns, uint64_t end_ns, struct pace *pace)
{
	double span = (double)(until_ns - rate->start_ns) - rate->first_ns;
	uint64_t due = span > 0 ? (uint64_t)ceil(span / rate->interval_ns) : 0;

	pace->started += rate->started;
	pace->late += due > rate->started ? due - rate->started : 0;
	pace->elapsed_ns += (end_ns > until_ns ? end_ns : until_ns) - rate->start_ns;
}
