/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report-json.c - --json: the results as one object, through jansson
 *
 * In main(), after report.c has made the results. Names stay: scripts read them, and tarn-bench(1)
 * explains them. Next: report-hist.c, report-rate.c.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "report.h"

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
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}",
		"rate", number(r->rate, 0), "p50_ns", number(r->p50, 0), "p99_ns",
		number(r->p99, 0), "p999_ns", number(r->p999, 0), "mean_ns", number(r->mean, 0),
		"min_ns", number(r->min, 0), "rate_min", number(r->rate_min, 0), "max_ns",
		(json_int_t)r->max_ns, "rate_max", number(r->rate_max, 0), "round_trips",
		number(r->round_trips, 4), "count", (json_int_t)r->count, "misses",
		(json_int_t)r->misses, "posts", number(r->posts, 4), "requests",
		number(r->requests, 4), "cache_hits", number(r->cache_hits, 4), "sampled",
		json_integer((json_int_t)r->sampled));
}

static json_t *arguments_json(const struct bench *bench)
{
	const struct arguments *a = bench->arguments;
	json_t *mixes = json_array(), *raw = json_array(), *cache;

	for (unsigned int kind = 0; kind < RAW_KINDS; kind++) {
		if (a->raw_kinds & 1u << kind)
			json_array_append_new(raw, json_string(raw_kind_names[kind]));
	}
	for (uint32_t i = 0; i < a->nmixes; i++)
		json_array_append_new(mixes, json_string(a->mix_texts[i]));
	cache = a->no_cache      ? json_string("off")
		: a->cache_bytes ? json_integer((json_int_t)a->cache_bytes)
				 : json_string("default");
	return json_pack(
		"{s:s, s:i, s:i, s:I, s:i, s:i, s:s?, s:o, s:s, s:b, s:o, s:o, s:i, s:o, s:b, "
		"s:b, s:o, s:i, s:o, s:i, s:I, s:s?, s:s?}",
		"uri", a->uri, "threads", (int)a->threads, "processes", (int)a->processes, "keys",
		(json_int_t)a->workload.keys, "key_size", (int)a->workload.key_size, "value_size",
		(int)a->workload.value_size, "value_sizes", a->value_sizes, "mix", mixes, "dist",
		a->dist, "chain", a->workload.chain, "duration_s", number(a->duration, 3),
		"warmup_s", number(a->warmup, 3), "rounds", (int)a->rounds, "cache", cache, "load",
		a->load, "verify", a->verify, "raw", raw, "raw_size", (int)a->raw_bytes, "pause_s",
		number(a->pause, 3), "depth", (int)a->depth, "rate", (json_int_t)a->rate, "ycsb",
		a->ycsb, "trace", a->trace);
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

static json_t *posts_json(const struct bench *bench, const struct result *results)
{
	json_t *posts = json_object();

	for (unsigned int kind = 0; kind < RAW_KINDS; kind++) {
		const struct result *r = &results[TALLY_POSTS + kind];

		if (r->measured)
			json_object_set_new(
				posts, raw_kind_names[kind],
				json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}",
					  "bytes", (int)report_post_bytes(bench, kind), "rate",
					  number(r->rate, 0), "p50_ns", number(r->p50, 0), "p99_ns",
					  number(r->p99, 0), "p999_ns", number(r->p999, 0),
					  "mean_ns", number(r->mean, 0), "min_ns",
					  number(r->min, 0), "rate_min", number(r->rate_min, 0),
					  "rate_max", number(r->rate_max, 0), "max_ns",
					  (json_int_t)r->max_ns, "count", (json_int_t)r->count));
	}
	return posts;
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

void report_print_json(const struct bench *bench, const struct machine *machine,
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
	all = json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "version",
			tarn_version(), "results", operations, "ceiling", ceiling_json(results),
			"raw", posts_json(bench, results), "ratios", ratios, "machine",
			machine_of_run(bench, machine), "arguments", arguments_json(bench));
	if (bench->arguments->rate)
		json_object_set_new(all, "open_loop", rate_json(bench));
	if (bench->arguments->histogram)
		json_object_set_new(all, "histograms", hist_json(bench));
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}
