/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report-rate.c - what became of --rate: asked for and achieved
 *
 * After the run, in main(). All rounds together: a backlog of one is not made up for by another.
 * Next: rate.c, which notes it; report.c.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "bench.h"

struct achieved {
	double rate;
	uint64_t started, late; /* operations */
	bool sustained;
};

static struct achieved achieved_make(const struct bench *bench, uint32_t mix)
{
	uint32_t depth = bench->arguments->depth;
	struct achieved a = {0};

	for (uint32_t i = 0; i < bench->shared->nworkers; i++) {
		const struct pace *pace = &bench->shared->paces[i][mix];

		a.started += pace->started * depth;
		a.late += pace->late * depth;
		if (pace->elapsed_ns)
			a.rate += (double)(pace->started * depth) * 1e9 / (double)pace->elapsed_ns;
	}
	a.sustained = a.late * 100 <= a.started + a.late;
	return a;
}

json_t *rate_json(const struct bench *bench)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < bench->arguments->nmixes; i++) {
		struct achieved a = achieved_make(bench, i);

		json_array_append_new(array,
				      json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}", "mix",
						bench->arguments->mix_texts[i], "rate_asked",
						(json_int_t)bench->arguments->rate, "rate",
						(json_int_t)llround(a.rate), "started",
						(json_int_t)a.started, "late", (json_int_t)a.late,
						"sustained", a.sustained));
	}
	return array;
}

void rate_print(const struct bench *bench)
{
	putchar('\n');
	for (uint32_t i = 0; i < bench->arguments->nmixes; i++) {
		struct achieved a = achieved_make(bench, i);

		printf("%s: %" PRIu64 " operations per second asked for, %.0f achieved, ",
		       bench->arguments->mix_texts[i], bench->arguments->rate, a.rate);
		if (a.sustained)
			printf("sustained\n");
		else
			printf("the load could not be sustained: %" PRIu64 " of %" PRIu64
			       " operations that were due had not started in the end, and "
			       "latencies "
			       "are those of a growing queue\n",
			       a.late, a.started + a.late);
	}
}
