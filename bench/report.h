/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report.h - what the files of the report share: report.c makes results, report-text.c and
 * report-json.c print them
 */
#pragma once

#include "bench.h"

/* One kind of work in the end. */
struct result {
	bool measured;
	bool alone; /* in each mix that it was in */
	double rate, rate_min, rate_max, p50, p99, p999, mean;
	double min; /* of all rounds, as its bucket's middle (hist.h) */
	uint64_t count, misses, max_ns, sampled;
	double round_trips, posts, requests, cache_hits; /* per operation */
};

/* Bytes of a kind of post; of two requests, those of the block. */
uint32_t report_post_bytes(const struct bench *bench, unsigned int kind);
/* results: TALLIES of them. */
void report_print_text(const struct bench *bench, const struct machine *machine,
		       const struct result *results);
void report_print_json(const struct bench *bench, const struct machine *machine,
		       const struct result *results);
