/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of the histogram that is not on a data path. No state of its own; whoever owns the struct runs it.
 * hist.h explains the buckets.
 */
#include <assert.h>
#include <string.h>

#include "hist.h"

static_assert(sizeof(struct hist) == (3 + 3776) * sizeof(uint64_t), "about 30 KiB; the comment and the bound follow");

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

void hist_merge(struct hist *h, const struct hist *from)
{
	h->count += from->count;
	h->sum_ns += from->sum_ns;
	if (from->max_ns > h->max_ns)
		h->max_ns = from->max_ns;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++)
		h->buckets[i] += from->buckets[i];
}

/* The inverse of hist_bucket(): the middle of what falls into it. */
static uint64_t bucket_middle(unsigned int bucket)
{
	unsigned int shift;
	uint64_t low;

	if (bucket < 2 * HIST_SUB)
		return bucket;
	shift = bucket / HIST_SUB - 1;
	low = (uint64_t)(HIST_SUB + bucket % HIST_SUB) << shift;
	return low + (((uint64_t)1 << shift) - 1) / 2;
}

/* The number of the value that is looked for, counted from 1, smallest first. */
static uint64_t rank_of(uint64_t count, double percent)
{
	/* Multiplied before divided: 99.9 % of 1000 is then 999 and not a little more. */
	double exact = (double)count * percent / 100.0;
	uint64_t rank;

	if (!(exact >= 1.0)) /* NaN as well */
		return 1;
	/* A double has 53 bits: near 2^64 the comparison comes before the conversion. */
	if (exact >= (double)count)
		return count;
	rank = (uint64_t)exact;
	return (double)rank < exact ? rank + 1 : rank;
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
	uint64_t seen = 0, rank, middle;

	if (h->count == 0)
		return 0;
	rank = rank_of(h->count, percent);
	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen < rank)
			continue;
		/* The highest bucket's middle may lie above what was ever added. */
		middle = bucket_middle(i);
		return middle < h->max_ns ? middle : h->max_ns;
	}
	return h->max_ns;
}

uint64_t hist_count(const struct hist *h)
{
	return h->count;
}

uint64_t hist_max(const struct hist *h)
{
	return h->max_ns;
}

uint64_t hist_mean(const struct hist *h)
{
	return h->count == 0 ? 0 : h->sum_ns / h->count;
}
