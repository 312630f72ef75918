/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * plot.c - --plot: the distribution of latencies as bars in the terminal, or as a picture in a file
 *
 * After the run, in main(). Rows stand at equal factors of time, since latencies reach over many
 * powers of ten. It must not count anything itself: report-hist.c merges what the workers counted.
 * Next: plot-file.c, which draws the pictures.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "err.h"

#define BAR_CELLS 50u
#define ROWS      20u

int plot_parse(const char *text, struct arguments *arguments)
{
	const char *dot = text ? strrchr(text, '.') : NULL;

	if (!text) {
		arguments->plot_text = true;
		return 0;
	}
	if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".gp") != 0))
		return err_set(-EINVAL,
			       "--plot=%s: must be the name of a file that ends in .svg or .gp; "
			       "without a name it is drawn as text",
			       text);
	arguments->plot_file = text;
	return 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

struct rows {
	double low_ns, factor; /* row i begins at low_ns * factor^i */
	uint32_t count;
	uint64_t counts[ROWS + 1], most;
};

/* Steps of 2^(1/8), 2^(1/4), 2^(1/2), 2 or 4, so that 99.9 percent have ROWS of them: the slowest of
 * millions is so far out that all others would stand in a few rows. The last row has the rest. */
static struct rows rows_make(const struct hist *hist)
{
	double low = (double)hist_percentile(hist, 0), most = (double)hist_percentile(hist, 99.9);
	struct rows rows = {.low_ns = low < 1 ? 1 : low, .factor = pow(2, 0.125)};
	uint64_t before = 0, up_to;

	while (rows.low_ns * pow(rows.factor, ROWS) <= most && rows.factor < 4)
		rows.factor *= rows.factor;
	do {
		double begin = rows.low_ns * pow(rows.factor, rows.count);
		bool last = begin > most || rows.count == ROWS;

		up_to = last ? hist_count(hist)
			     : hist_count_below(hist, (uint64_t)(begin * rows.factor));
		rows.counts[rows.count++] = up_to - before;
		if (up_to - before > rows.most)
			rows.most = up_to - before;
		before = up_to;
	} while (up_to < hist_count(hist));
	return rows;
}

static void text_print(const char *name, const struct hist *hist)
{
	static const char cells[] = "##################################################";
	struct rows rows = rows_make(hist);
	double all = (double)hist_count(hist), sum = 0;

	printf("\n%s: share of the latencies from so many ns on; the last row has all the rest\n",
	       name);
	for (uint32_t i = 0; i < rows.count; i++) {
		double share = (double)rows.counts[i] / all;
		uint32_t full = (uint32_t)((double)rows.counts[i] * BAR_CELLS / (double)rows.most);

		sum += share;
		printf("%12.0f |%-*.*s| %6.2f%% %6.2f%%\n",
		       rows.low_ns * pow(rows.factor, (double)i), (int)BAR_CELLS,
		       full || !rows.counts[i] ? (int)full : 1,
		       full || !rows.counts[i] ? cells : ".", 100 * share, 100 * sum);
	}
}

int plot_print(const struct bench *bench)
{
	char name[BENCH_NAME_MAX];
	struct hist hist;

	for (unsigned int kind = 0; bench->arguments->plot_text && kind < TALLIES; kind++) {
		report_hist(bench, kind, &hist);
		if (hist_count(&hist))
			text_print(report_name(bench, kind, name), &hist);
	}
	return bench->arguments->plot_file ? plot_write(bench) : 0;
}
