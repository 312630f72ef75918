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

static struct hist_line line_at(const struct hist *h, double percent)
{
	struct hist_line line = {.percent = percent, .value_ns = h->max_ns};
	uint64_t rank = rank_of(h->count, percent), middle;

	for (unsigned int i = 0; h->count > 0 && i < HIST_BUCKETS; i++) {
		line.count += h->buckets[i];
		if (line.count < rank)
			continue;
		/* The highest bucket's middle may lie above what was ever added. */
		middle = bucket_middle(i);
		if (middle < h->max_ns)
			line.value_ns = middle;
		break;
	}
	return line;
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
	return line_at(h, percent).value_ns;
}

bool hist_next_line(const struct hist *h, struct hist_line *inout_line)
{
	double next = 0, ticks = HIST_LINES;

	if (h->count == 0 || inout_line->percent >= 100)
		return false;
	if (inout_line->percent >= 0) {
		/* as many lines in 0 to 50 as in 50 to 75, in 75 to 87.5 and so on */
		for (double left = 100 - inout_line->percent; left <= 100 && ticks < 1e15; left *= 2)
			ticks *= 2;
		next = inout_line->percent + 100 / ticks;
	}
	/* All values have come: what is left is one line that says so. */
	if (inout_line->count == h->count || next > 100)
		next = 100;
	*inout_line = line_at(h, next);
	return true;
}

uint64_t hist_count_below(const struct hist *h, uint64_t ns)
{
	uint64_t count = 0;

	for (unsigned int i = 0; i < hist_bucket(ns); i++)
		count += h->buckets[i];
	return count;
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
