/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report.c - from the workers' tallies to what is printed
 *
 * A number is the median over the rounds of what all workers did together in a round: rates are
 * added up, histograms merged. Nothing is subtracted. Text goes through libsmartcols, JSON through
 * jansson. Next: machine.c.
 */
#include <inttypes.h>
#include <jansson.h>
#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <stdarg.h>

#include "bench.h"

/* One kind of work in the end. */
struct result {
	bool measured;
	bool alone; /* in each mix that it was in */
	double rate, rate_min, rate_max, p50, p99, p999, mean;
	uint64_t count, misses, max_ns, sampled;
	double round_trips, posts, requests, cache_hits; /* per operation */
};

/* ---- medians --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof(*values), compare);
	if (count == 0)
		return 0;
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* All workers of one round. Returns the rate. */
static double round_merge(const struct bench *bench, uint32_t round, unsigned int kind,
			  struct hist *hist, struct result *result)
{
	double rate = 0;

	hist_init(hist);
	for (uint32_t i = 0; i < bench->shared->nworkers; i++) {
		const struct tally *tally = &bench_tallies(bench, round, i)[kind];

		if (tally->count == 0)
			continue;
		hist_merge(hist, &tally->hist);
		if (tally->elapsed_ns)
			rate += (double)tally->count * 1e9 / (double)tally->elapsed_ns;
		result->count += tally->count;
		result->misses += tally->misses;
		result->sampled += tally->sampled;
		result->round_trips += (double)tally->round_trips;
		result->posts += (double)tally->posts;
		result->requests += (double)tally->requests;
		result->cache_hits += (double)tally->cache_hits;
	}
	return rate;
}

static bool ran_alone(const struct arguments *arguments, unsigned int kind)
{
	for (uint32_t i = 0; i < arguments->nmixes; i++) {
		const struct workload_mix *mix = &arguments->mixes[i];
		bool pairs = mix->weights[WORKLOAD_INSERT] || mix->weights[WORKLOAD_DELETE];

		if (kind == WORKLOAD_INSERT || kind == WORKLOAD_DELETE
			    ? pairs
			    : mix->weights[kind] && mix->only != (int)kind)
			return false;
	}
	return true;
}

static struct result result_make(const struct bench *bench, unsigned int kind)
{
	double rates[BENCH_ROUNDS_MAX], p50[BENCH_ROUNDS_MAX], p99[BENCH_ROUNDS_MAX];
	double p999[BENCH_ROUNDS_MAX], mean[BENCH_ROUNDS_MAX];
	struct result result = {0};
	struct hist hist;
	uint32_t n = 0;

	for (uint32_t round = 0; round < bench->shared->rounds; round++) {
		double rate = round_merge(bench, round, kind, &hist, &result);

		/* A rare kind of operation may not have come at all in a short round. */
		if (hist_count(&hist) == 0)
			continue;
		rates[n] = rate;
		p50[n] = (double)hist_percentile(&hist, 50);
		p99[n] = (double)hist_percentile(&hist, 99);
		p999[n] = (double)hist_percentile(&hist, 99.9);
		mean[n++] = (double)hist_mean(&hist);
		result.max_ns = hist_max(&hist) > result.max_ns ? hist_max(&hist) : result.max_ns;
	}
	result.measured = n > 0;
	result.alone = kind >= WORKLOAD_OPS || ran_alone(bench->arguments, kind);
	if (n == 0)
		return result;
	result.rate = median(rates, n);
	result.rate_min = rates[0]; /* median() has sorted them */
	result.rate_max = rates[n - 1];
	result.p50 = median(p50, n);
	result.p99 = median(p99, n);
	result.p999 = median(p999, n);
	result.mean = median(mean, n);
	if (result.sampled) {
		result.round_trips /= (double)result.sampled;
		result.posts /= (double)result.sampled;
		result.requests /= (double)result.sampled;
		result.cache_hits /= (double)result.sampled;
	}
	return result;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Numbers as people write them: 15 digits would claim what was not measured. */
static json_t *number(double value, unsigned int decimals)
{
	double scale = pow(10.0, (double)decimals);

	return decimals ? json_real(round(value * scale) / scale)
			: json_integer((json_int_t)llround(value));
}

static json_t *result_json(const struct result *r)
{
	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}",
		"rate", number(r->rate, 0), "p50_ns", number(r->p50, 0), "p99_ns",
		number(r->p99, 0), "p999_ns", number(r->p999, 0), "mean_ns", number(r->mean, 0),
		"rate_min", number(r->rate_min, 0), "max_ns", (json_int_t)r->max_ns, "rate_max",
		number(r->rate_max, 0), "round_trips", number(r->round_trips, 4), "count",
		(json_int_t)r->count, "misses", (json_int_t)r->misses, "posts", number(r->posts, 4),
		"requests", number(r->requests, 4), "cache_hits", number(r->cache_hits, 4),
		"sampled", json_integer((json_int_t)r->sampled));
}

static json_t *arguments_json(const struct bench *bench)
{
	const struct arguments *a = bench->arguments;
	json_t *mixes = json_array(), *cache;

	for (uint32_t i = 0; i < a->nmixes; i++)
		json_array_append_new(mixes, json_string(a->mix_texts[i]));
	cache = a->no_cache      ? json_string("off")
		: a->cache_bytes ? json_integer((json_int_t)a->cache_bytes)
				 : json_string("default");
	return json_pack(
		"{s:s, s:i, s:i, s:I, s:i, s:i, s:o, s:s, s:b, s:o, s:o, s:i, s:o, s:b, s:b}",
		"uri", a->uri, "threads", (int)a->threads, "processes", (int)a->processes, "keys",
		(json_int_t)a->workload.keys, "key_size", (int)a->workload.key_size, "value_size",
		(int)a->workload.value_size, "mix", mixes, "dist", a->dist, "chain",
		a->workload.chain, "duration_s", number(a->duration, 3), "warmup_s",
		number(a->warmup, 3), "rounds", (int)a->rounds, "cache", cache, "load", a->load,
		"verify", a->verify);
}

static void set_ratio(json_t *object, const char *name, const struct result *a,
		      const struct result *b)
{
	if (a->measured && b->measured && a->alone && b->alone && b->rate > 0)
		json_object_set_new(object, name, number(a->rate / b->rate, 3));
}

static json_t *ceiling_json(const struct result *results)
{
	const struct result *table = &results[TALLY_TABLE], *raw = &results[TALLY_RAW];
	json_t *ceiling = json_object();

	if (table->measured) {
		json_object_set_new(ceiling, "hash_table_rate", number(table->rate, 0));
		json_object_set_new(ceiling, "hash_table_p50_ns", number(table->p50, 0));
	}
	if (raw->measured) {
		json_object_set_new(ceiling, "raw_read_rate", number(raw->rate, 0));
		json_object_set_new(ceiling, "raw_read_p50_ns", number(raw->p50, 0));
	}
	return ceiling;
}

static json_t *machine_of_run(const struct bench *bench, const struct machine *machine)
{
	const struct shared *shared = bench->shared;
	json_t *object = machine_json(machine);

	json_object_set_new(object, "transport", json_string(shared->pool.transport));
	json_object_set_new(object, "atomics", json_string(shared->pool.atomics));
	json_object_set_new(object, "pool_bytes",
			    json_integer((json_int_t)shared->pool.pool_bytes));
	json_object_set_new(object, "pool_page_bytes",
			    json_integer((json_int_t)shared->pool_page_bytes));
	json_object_set_new(object, "table_page_bytes",
			    json_integer((json_int_t)shared->table_page_bytes));
	return object;
}

static void print_json(const struct bench *bench, const struct machine *machine,
		       const struct result *results)
{
	json_t *operations = json_object(), *ratios = json_object(), *all;

	for (unsigned int op = 0; op < WORKLOAD_OPS; op++) {
		if (results[op].measured)
			json_object_set_new(operations, workload_op_names[op],
					    result_json(&results[op]));
	}
	set_ratio(ratios, "get_to_hash_table", &results[WORKLOAD_GET], &results[TALLY_TABLE]);
	set_ratio(ratios, "get_to_raw_read", &results[WORKLOAD_GET], &results[TALLY_RAW]);
	set_ratio(ratios, "put_to_get", &results[WORKLOAD_PUT], &results[WORKLOAD_GET]);
	all = json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "version",
			tarn_version(), "results", operations, "ceiling", ceiling_json(results),
			"ratios", ratios, "machine", machine_of_run(bench, machine), "arguments",
			arguments_json(bench));
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

/* ---- text ------------------------------------------------------------------------------------ */

enum column {
	COLUMN_NAME,
	COLUMN_RATE,
	COLUMN_SPREAD,
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
	"",      "per second", "+-",       "p50 ns", "p99 ns", "p99.9 ns", "round trips",
	"posts", "requests",   "of table", "of raw",
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

	printf("%s, %u cores, %s; load %.2f\n", machine->cpu, machine->cores, machine->kernel,
	       machine->load);
	printf("pool %" PRIu64 " MiB on %s, pages of %" PRIu64 " KiB (hash table: %" PRIu64
	       " KiB)\n",
	       shared->pool.pool_bytes >> 20, shared->pool.transport, shared->pool_page_bytes >> 10,
	       shared->table_page_bytes >> 10);
	printf("%" PRIu64
	       " keys of %u bytes, values of %u bytes, %s%s; %u x %u workers, %u rounds\n",
	       a->workload.keys, a->workload.key_size, a->workload.value_size, a->dist,
	       a->workload.chain ? ", chained" : "", a->processes, a->threads, a->rounds);
	printf("reading the clock costs %.0f ns per operation, included everywhere\n\n",
	       machine->clock_ns);
}

static void print_text(const struct bench *bench, const struct machine *machine,
		       const struct result *results)
{
	struct libscols_table *table = scols_new_table();

	print_head(bench, machine);
	for (unsigned int i = 0; table && i < COLUMNS; i++)
		scols_table_new_column(table, column_names[i], 0,
				       i == COLUMN_NAME ? 0 : SCOLS_FL_RIGHT);
	if (table) {
		for (unsigned int op = 0; op < WORKLOAD_OPS; op++) {
			if (results[op].measured)
				add_row(table, workload_op_names[op], results, op);
		}
		if (results[TALLY_TABLE].measured)
			add_row(table, "hash table", results, TALLY_TABLE);
		if (results[TALLY_RAW].measured)
			add_row(table, "raw READs", results, TALLY_RAW);
		scols_print_table(table);
		scols_unref_table(table);
	}
}

/* ---- both ------------------------------------------------------------------------------------ */

/* A rate of misses looks like a rate of hits: a run that has read nothing must not pass. */
static enum bench_exit check(const struct result *results)
{
	bool any = false;

	for (unsigned int op = 0; op < WORKLOAD_OPS; op++) {
		const struct result *r = &results[op];

		any |= r->measured;
		if (!r->measured || r->misses * 2 <= r->count)
			continue;
		fprintf(stderr,
			"tarn-bench: %s: %" PRIu64 " of %" PRIu64
			" keys were not there: load first\n",
			workload_op_names[op], r->misses, r->count);
		return BENCH_FAILED;
	}
	if (any)
		return BENCH_OK;
	fprintf(stderr, "tarn-bench: nothing was measured: give it more time (--duration)\n");
	return BENCH_FAILED;
}

enum bench_exit report_print(const struct bench *bench, const struct machine *machine)
{
	struct result results[TALLIES];
	enum bench_exit code;

	for (unsigned int kind = 0; kind < TALLIES; kind++)
		results[kind] = result_make(bench, kind);
	code = check(results);
	if (bench->arguments->json)
		print_json(bench, machine, results);
	else
		print_text(bench, machine, results);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "tarn-bench: cannot write the result\n");
		return BENCH_FAILED;
	}
	return code;
}
