/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report.c - from the workers' tallies to what is printed
 *
 * A number is the median over the rounds of what all workers did together in a round: rates are
 * added up, histograms merged. Nothing is subtracted. Runs in main() after the workers. Next:
 * report-text.c, report-json.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "err.h"
#include "report.h"

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
	/* A rate that was asked for says nothing against a ceiling either. */
	if (arguments->rate)
		return false;
	for (uint32_t i = 0; i < arguments->nmixes; i++) {
		const struct workload_mix *mix = &arguments->mixes[i];
		bool pairs = !mix->grows && !mix->replays &&
			     (mix->weights[WORKLOAD_INSERT] || mix->weights[WORKLOAD_DELETE]);

		if (pairs && (kind == WORKLOAD_INSERT || kind == WORKLOAD_DELETE))
			return false;
		if (mix->weights[kind] && mix->only != (int)kind)
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
		if (n == 1 || (double)hist_percentile(&hist, 0) < result.min)
			result.min = (double)hist_percentile(&hist, 0);
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

/* ---- names ----------------------------------------------------------------------------------- */

uint32_t report_post_bytes(const struct bench *bench, unsigned int kind)
{
	if (kind == RAW_CAS)
		return 8;
	return kind == RAW_READ || kind == RAW_READ_READ ? bench->shared->raw_read_bytes
							 : bench->shared->raw_write_bytes;
}

const char *report_name(const struct bench *bench, unsigned int kind, char ret_name[BENCH_NAME_MAX])
{
	if (kind < WORKLOAD_OPS)
		snprintf(ret_name, BENCH_NAME_MAX, "%s", workload_op_names[kind]);
	else if (kind < TALLY_POSTS)
		snprintf(ret_name, BENCH_NAME_MAX, "%s",
			 kind == TALLY_TABLE ? "hash table" : "raw READs");
	else
		snprintf(ret_name, BENCH_NAME_MAX, "raw %s, %u B",
			 raw_kind_names[kind - TALLY_POSTS],
			 report_post_bytes(bench, kind - TALLY_POSTS));
	return ret_name;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* A rate of misses looks like a rate of hits: a run that has read nothing must not pass. */
static enum bench_exit check(const struct arguments *arguments, const struct result *results)
{
	bool any = false;

	for (unsigned int op = 0; op < WORKLOAD_OPS; op++) {
		const struct result *r = &results[op];

		any |= r->measured;
		/* A trace may well ask for what is not there. */
		if (!r->measured || r->misses * 2 <= r->count || arguments->trace)
			continue;
		fprintf(stderr,
			"tarn-bench: %s: %" PRIu64 " of %" PRIu64
			" keys were not there: load first\n",
			workload_op_names[op], r->misses, r->count);
		return BENCH_FAILED;
	}
	for (unsigned int kind = WORKLOAD_OPS; kind < TALLIES; kind++)
		any |= results[kind].measured;
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
	code = check(bench->arguments, results);
	if (bench->arguments->json)
		report_print_json(bench, machine, results);
	else
		report_print_text(bench, machine, results);
	if (plot_print(bench) < 0) {
		fprintf(stderr, "tarn-bench: %s\n", err_text());
		code = BENCH_FAILED;
	}
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "tarn-bench: cannot write the result\n");
		return BENCH_FAILED;
	}
	return code;
}
