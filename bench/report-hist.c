/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report-hist.c - --histogram: percentiles of latencies, of all rounds and workers
 *
 * After the run, in main(). The histograms themselves are common/hist.h's, filled by the workers;
 * the text has the form of HdrHistogram's tables, so that its plotters read it. Next: report.c.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "bench.h"

void report_hist(const struct bench *bench, unsigned int kind, struct hist *ret_hist)
{
	hist_init(ret_hist);
	for (uint32_t round = 0; round < bench->shared->rounds; round++) {
		for (uint32_t i = 0; i < bench->shared->nworkers; i++) {
			const struct tally *tally = &bench_tallies(bench, round, i)[kind];

			/* Pages of what was never done stay untouched. */
			if (tally->count)
				hist_merge(ret_hist, &tally->hist);
		}
	}
}

static json_t *lines_json(const struct hist *hist)
{
	struct hist_line line = {.percent = -1};
	json_t *array = json_array();

	while (hist_next_line(hist, &line)) {
		json_t *inverse =
			line.percent < 100 ? json_real(100 / (100 - line.percent)) : json_null();

		json_array_append_new(array, json_pack("{s:I, s:f, s:I, s:o}", "value_ns",
						       (json_int_t)line.value_ns, "percentile",
						       line.percent / 100, "total_count",
						       (json_int_t)line.count, "inverse", inverse));
	}
	return array;
}

json_t *hist_json(const struct bench *bench)
{
	json_t *object = json_object();
	char name[BENCH_NAME_MAX];
	struct hist hist;

	for (unsigned int kind = 0; kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist))
			json_object_set_new(object, report_name(bench, kind, name),
					    lines_json(&hist));
	}
	return object;
}

static void lines_print(const char *name, const struct hist *hist)
{
	struct hist_line line = {.percent = -1};

	printf("\n%s, ns\n%12s %14s %10s %14s\n\n", name, "Value", "Percentile", "TotalCount",
	       "1/(1-Percentile)");
	while (hist_next_line(hist, &line)) {
		printf("%12.3f %2.12f %10" PRIu64, (double)line.value_ns, line.percent / 100,
		       line.count);
		if (line.percent < 100)
			printf(" %14.2f", 100 / (100 - line.percent));
		putchar('\n');
	}
	printf("#[Mean    = %12.3f]\n#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n",
	       (double)hist_mean(hist), (double)hist_max(hist), hist_count(hist));
}

void hist_print(const struct bench *bench)
{
	char name[BENCH_NAME_MAX];
	struct hist hist;

	for (unsigned int kind = 0; kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist))
			lines_print(report_name(bench, kind, name), &hist);
	}
}
