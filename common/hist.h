/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A histogram of times in nanoseconds with a fixed size and a bounded relative error, after HdrHistogram (Gil Tene,
 * http://hdrhistogram.org): buckets are linear within each power of two. With 64 of them a bucket is at most 1/64 as
 * wide as its values, and its middle, which is reported, is at most 1/128 off. Values below 128 are exact.
 *
 * One thread adds; for several, give each its own and merge. No malloc: zero the struct or call hist_init().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HIST_SUB_BITS 6
#define HIST_SUB      (1u << HIST_SUB_BITS)

/* Values below 2 * HIST_SUB have a bucket each; then come HIST_SUB for each power of two up to 2^63. */
#define HIST_BUCKETS (HIST_SUB * (64 - HIST_SUB_BITS + 1))

struct hist {
	uint64_t count;
	uint64_t sum_ns; /* wraps after 584 years of added time */
	uint64_t max_ns;
	uint64_t buckets[HIST_BUCKETS];
};

/* The bucket of a value: its highest HIST_SUB_BITS + 1 bits and how far they are shifted. */
static inline unsigned int hist_bucket(uint64_t ns)
{
	unsigned int shift;

	if (ns < 2 * HIST_SUB)
		return (unsigned int)ns;
	shift = 63 - HIST_SUB_BITS - (unsigned int)__builtin_clzll(ns);
	return shift * HIST_SUB + (unsigned int)(ns >> shift);
}

static inline void hist_add(struct hist *h, uint64_t ns)
{
	h->count++;
	h->sum_ns += ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	h->buckets[hist_bucket(ns)]++;
}

void hist_init(struct hist *h);

/* Adds all of from to h. */
void hist_merge(struct hist *h, const struct hist *from);

/* The smallest value that percent (0 to 100) of all values do not exceed, as its bucket's middle; 0 if empty. */
uint64_t hist_percentile(const struct hist *h, double percent);

/* A line of a table of percentiles. */
struct hist_line {
	double percent;    /* 0 to 100; before the first line: -1 */
	uint64_t value_ns; /* as hist_percentile() gives it */
	uint64_t count;    /* of values up to it, all of its bucket included */
};

/*
 * The next line, as HdrHistogram's tables have them: HIST_LINES of them for each halving of what is left to 100
 * percent, so that 99.9 and 99.999 are as near to each other as 50 and 99 are. The last one is 100. False: no more.
 */
#define HIST_LINES 5u
bool hist_next_line(const struct hist *h, struct hist_line *inout_line);

/* How many values are in the buckets below that of `ns`. */
uint64_t hist_count_below(const struct hist *h, uint64_t ns);

uint64_t hist_count(const struct hist *h);
uint64_t hist_max(const struct hist *h);  /* exact; 0 if empty */
uint64_t hist_mean(const struct hist *h); /* exact; 0 if empty */
