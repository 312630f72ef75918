/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report-text.c - the results as a table for people, through libsmartcols
 *
 * In main(), after report.c has made the results. Next: report-hist.c, plot.c.
 */
#include <inttypes.h>
#include <libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>

#include "report.h"

enum column {
	COLUMN_NAME,
	COLUMN_RATE,
	COLUMN_SPREAD,
	COLUMN_MIN,
	COLUMN_P50,
	COLUMN_P99,
	COLUMN_P999,
	COLUMN_ROUND_TRIPS,
	COLUMN_POSTS,
	COLUMN_REQUESTS,
	COLUMN_TO_TABLE,
	COLUMN_TO_RAW,
	COLUMNS
};

static const char *const column_names[COLUMNS] = {
	"",         "per second",  "+-",    "min ns",   "p50 ns",   "p99 ns",
	"p99.9 ns", "round trips", "posts", "requests", "of table", "of raw",
};

__attribute__((format(printf, 3, 4))) static void cell(struct libscols_line *line,
						       enum column column, const char *format, ...)
{
	char text[64];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	scols_line_set_data(line, column, text);
}

static void ratio_cell(struct libscols_line *line, enum column column, const struct result *result,
		       const struct result *ceiling)
{
	if (ceiling->measured && ceiling->rate > 0)
		cell(line, column, "%.2f", result->rate / ceiling->rate);
}

static void add_row(struct libscols_table *table, const char *name, const struct result *results,
		    unsigned int kind)
{
	const struct result *r = &results[kind];
	struct libscols_line *line = scols_table_new_line(table, NULL);

	if (!line)
		return;
	cell(line, COLUMN_NAME, "%s", name);
	cell(line, COLUMN_RATE, "%.0f", r->rate);
	cell(line, COLUMN_SPREAD, "%.0f%%", 50 * (r->rate_max - r->rate_min) / r->rate);
	cell(line, COLUMN_MIN, "%.0f", r->min);
	cell(line, COLUMN_P50, "%.0f", r->p50);
	cell(line, COLUMN_P99, "%.0f", r->p99);
	cell(line, COLUMN_P999, "%.0f", r->p999);
	if (kind < WORKLOAD_OPS) {
		cell(line, COLUMN_ROUND_TRIPS, "%.2f", r->round_trips);
		cell(line, COLUMN_POSTS, "%.2f", r->posts);
		cell(line, COLUMN_REQUESTS, "%.2f", r->requests);
	}
	/* Of an operation that shared its time with others the rate says nothing against a ceiling.
	 */
	if (kind < WORKLOAD_OPS && r->alone) {
		ratio_cell(line, COLUMN_TO_TABLE, r, &results[TALLY_TABLE]);
		ratio_cell(line, COLUMN_TO_RAW, r, &results[TALLY_RAW]);
	}
}

static void print_head(const struct bench *bench, const struct machine *machine)
{
	const struct arguments *a = bench->arguments;
	const struct shared *shared = bench->shared;
	char number[16];
	const char *sizes = a->value_sizes;

	if (!sizes) {
		snprintf(number, sizeof(number), "%u", a->workload.value_size);
		sizes = number;
	}
	printf("%s, %u cores, %s; load %.2f\n", machine->cpu, machine->cores, machine->kernel,
	       machine->load);
	printf("pool %" PRIu64 " MiB on %s, pages of %" PRIu64 " KiB (hash table: %" PRIu64
	       " KiB)\n",
	       shared->pool.pool_bytes >> 20, shared->pool.transport, shared->pool_page_bytes >> 10,
	       shared->table_page_bytes >> 10);
	printf("%" PRIu64
	       " keys of %u bytes, values of %s bytes, %s%s; %u x %u workers, %u rounds\n",
	       a->workload.keys, a->workload.key_size, sizes, a->dist,
	       a->workload.chain ? ", chained" : "", a->processes, a->threads, a->rounds);
	if (a->trace)
		printf("trace %s, %" PRIu64 " lines, instead of keys of its own\n", a->trace,
		       a->trace_lines);
	if (a->ycsb)
		printf("YCSB's workload %s: %s\n", a->ycsb, a->mix_texts[0]);
	printf("reading the clock costs %.0f ns per operation, included everywhere\n\n",
	       machine->clock_ns);
}

void report_print_text(const struct bench *bench, const struct machine *machine,
		       const struct result *results)
{
	struct libscols_table *table = scols_new_table();
	char name[BENCH_NAME_MAX];

	print_head(bench, machine);
	for (unsigned int i = 0; table && i < COLUMNS; i++)
		scols_table_new_column(table, column_names[i], 0,
				       i == COLUMN_NAME ? 0 : SCOLS_FL_RIGHT);
	if (table) {
		for (unsigned int kind = 0; kind < TALLIES; kind++) {
			if (results[kind].measured)
				add_row(table, report_name(bench, kind, name), results, kind);
		}
		scols_print_table(table);
		scols_unref_table(table);
	}
	if (bench->arguments->rate)
		rate_print(bench);
	if (bench->arguments->histogram)
		hist_print(bench);
}
