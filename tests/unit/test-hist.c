/* SPDX-License-Identifier: BSD-2-Clause */
/* hist.h against exact quantiles of sorted samples: the error stays within half a bucket, 1/128. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hist.h"

#define SAMPLES 20000

static struct hist h, other;
static uint64_t samples[SAMPLES];

/* xorshift64: the same samples each time. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Within 1/128 of exact; differences of big numbers, without floating point. */
static void assert_near(uint64_t value, uint64_t exact)
{
	uint64_t off = value > exact ? value - exact : exact - value;

	if (off > exact / 128)
		fail_msg("%llu is not within 1/128 of %llu", (unsigned long long)value, (unsigned long long)exact);
}

static void check_quantiles(size_t count)
{
	static const double percents[] = {0, 0.1, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99, 100};

	hist_init(&h);
	for (size_t i = 0; i < count; i++)
		hist_add(&h, samples[i]);
	qsort(samples, count, sizeof(samples[0]), compare);
	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		double exact = (double)count * percents[i] / 100.0;
		size_t rank = (size_t)exact;

		if ((double)rank < exact)
			rank++;
		if (rank == 0)
			rank = 1;
		assert_near(hist_percentile(&h, percents[i]), samples[rank - 1]);
	}
	assert_int_equal(hist_count(&h), count);
	assert_int_equal(hist_max(&h), samples[count - 1]);
}

static void test_uniform(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (size_t i = 0; i < SAMPLES; i++)
		samples[i] = next_random(&seed) % 1000000;
	check_quantiles(SAMPLES);
}

/* All magnitudes from 1 to 2^64: as many samples below 1 us as above a century. */
static void test_all_magnitudes(void **state)
{
	uint64_t seed = 2;

	(void)state;
	for (size_t i = 0; i < SAMPLES; i++) {
		uint64_t value = next_random(&seed);

		samples[i] = value >> (next_random(&seed) % 64);
	}
	check_quantiles(SAMPLES);
}

static void test_few(void **state)
{
	(void)state;
	samples[0] = 777777;
	check_quantiles(1);
	assert_int_equal(hist_mean(&h), 777777);
	samples[0] = 3000000;
	samples[1] = 10;
	check_quantiles(2);
	assert_int_equal(hist_mean(&h), 1500005);
}

static void test_empty(void **state)
{
	(void)state;
	hist_init(&h);
	assert_int_equal(hist_count(&h), 0);
	assert_int_equal(hist_max(&h), 0);
	assert_int_equal(hist_mean(&h), 0);
	assert_int_equal(hist_percentile(&h, 50), 0);
}

static void test_buckets(void **state)
{
	unsigned int previous = 0;

	(void)state;
	/* Small values exactly; then one after the other, none left out; the last value has the last bucket. */
	for (unsigned int i = 0; i < 2 * HIST_SUB; i++)
		assert_int_equal(hist_bucket(i), i);
	for (uint64_t i = 0; i < 1 << 16; i++) {
		unsigned int bucket = hist_bucket(i);

		assert_true(bucket == previous || bucket == previous + 1);
		previous = bucket;
	}
	assert_int_equal(hist_bucket(UINT64_MAX), HIST_BUCKETS - 1);
	hist_init(&h);
	hist_add(&h, UINT64_MAX);
	hist_add(&h, 0);
	assert_near(hist_percentile(&h, 100), UINT64_MAX);
	assert_int_equal(hist_percentile(&h, 0), 0);
}

/* Percentages that are none do not lead out of the table. */
static void test_odd_percent(void **state)
{
	(void)state;
	hist_init(&h);
	hist_add(&h, 5);
	hist_add(&h, 9);
	assert_int_equal(hist_percentile(&h, -3), 5);
	assert_int_equal(hist_percentile(&h, 1000), 9);
	assert_int_equal(hist_percentile(&h, (double)NAN), 5);
}

static void test_merge(void **state)
{
	uint64_t seed = 3;

	(void)state;
	hist_init(&h);
	hist_init(&other);
	for (size_t i = 0; i < SAMPLES; i++) {
		samples[i] = next_random(&seed) % 100000000;
		hist_add(i % 3 ? &h : &other, samples[i]);
	}
	hist_merge(&h, &other);
	qsort(samples, SAMPLES, sizeof(samples[0]), compare);
	assert_int_equal(hist_count(&h), SAMPLES);
	assert_int_equal(hist_max(&h), samples[SAMPLES - 1]);
	assert_near(hist_percentile(&h, 50), samples[SAMPLES / 2 - 1]);
	assert_near(hist_percentile(&h, 99), samples[SAMPLES / 100 * 99 - 1]);
}

/* The lines of a table: HIST_LINES for each halving, and each as hist_percentile() has it. */
static void test_lines(void **state)
{
	struct hist_line line = {.percent = -1}, last = line;
	unsigned int below_half = 0, to_75 = 0;
	uint64_t random = 7;

	(void)state;
	hist_init(&h);
	assert_false(hist_next_line(&h, &line));
	for (size_t i = 0; i < SAMPLES; i++)
		hist_add(&h, next_random(&random) >> 40);
	while (hist_next_line(&h, &line)) {
		assert_true(line.percent > last.percent && line.value_ns >= last.value_ns && line.count >= last.count);
		assert_int_equal(line.value_ns, hist_percentile(&h, line.percent));
		assert_true((double)line.count >= SAMPLES * line.percent / 100 - 0.5);
		below_half += line.percent < 50;
		to_75 += line.percent >= 50 && line.percent < 75;
		if (last.percent < 0)
			assert_true(line.percent == 0);
		last = line;
	}
	assert_true(last.percent == 100);
	assert_int_equal(last.count, SAMPLES);
	assert_int_equal(hist_count_below(&h, hist_percentile(&h, 0)), 0);
	assert_int_equal(hist_count_below(&h, UINT64_MAX), SAMPLES);
	assert_in_range(hist_count_below(&h, 1 << 23), SAMPLES * 48 / 100, SAMPLES * 52 / 100);
	assert_int_equal(below_half, HIST_LINES);
	assert_int_equal(to_75, HIST_LINES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uniform), cmocka_unit_test(test_all_magnitudes),
		cmocka_unit_test(test_few),	cmocka_unit_test(test_empty),
		cmocka_unit_test(test_buckets), cmocka_unit_test(test_odd_percent),
		cmocka_unit_test(test_merge),   cmocka_unit_test(test_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
