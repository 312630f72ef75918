/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h: never backwards (one thread, several threads, the first call made by several at once), the rate is that of
 * CLOCK_MONOTONIC, sleeps are long enough. Bounds are wide: this runs on loaded machines and under valgrind.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "clock.h"

#define THREADS 4
#define ROUNDS  20000

static uint64_t reference_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* The latest time any thread has seen. */
static _Atomic uint64_t latest;
static _Atomic int go;

/*
 * Two cores' counters may differ by some ns, and rdtsc is not serialized: it may be read before the word that the others fight
 * for has come. So between threads an order is only promised to some microseconds, within a thread exactly.
 */
#define SLACK_NS 20000

static void *follow_time(void *arg)
{
	uintptr_t failures = 0;
	uint64_t before = 0;

	(void)arg;
	/* acquire, pairs with the release in test_threads(). */
	while (!atomic_load_explicit(&go, memory_order_acquire))
		;
	for (int i = 0; i < ROUNDS; i++) {
		/* acquire and release: the time is read after another thread's, whose value is then the earlier. */
		uint64_t seen = atomic_load_explicit(&latest, memory_order_acquire);
		uint64_t now = clock_now_ns();

		if (now + SLACK_NS < seen || now < before)
			failures++;
		before = now;
		while (seen < now && !atomic_compare_exchange_weak_explicit(&latest, &seen, now,
									     memory_order_acq_rel,
									     memory_order_acquire))
			;
	}
	return (void *)failures;
}

/* First of all tests, so that the threads race for the measurement of the rate as well. */
static void test_threads(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, follow_time, NULL), 0);
	/* release, pairs with the acquire in follow_time(). */
	atomic_store_explicit(&go, 1, memory_order_release);
	for (int i = 0; i < THREADS; i++) {
		void *failures;

		assert_int_equal(pthread_join(threads[i], &failures), 0);
		assert_int_equal((uintptr_t)failures, 0);
	}
}

static void test_monotonic(void **state)
{
	uint64_t before = clock_now_ns();

	(void)state;
	for (int i = 0; i < 100000; i++) {
		uint64_t now = clock_now_ns();

		assert_true(now >= before);
		before = now;
	}
}

static void test_rate(void **state)
{
	uint64_t before, start, start_reference, end, after, low, high;

	(void)state;
	/* The reference is read outside on both ends and inside on both ends: the true time lies between. */
	before = reference_ns();
	start = clock_now_ns();
	start_reference = reference_ns();
	clock_sleep_ns(50 * 1000 * 1000);
	end = reference_ns();
	after = clock_now_ns();
	high = reference_ns() - before;
	low = end - start_reference;
	/* 1 in 100: ten times what clock.h promises. */
	assert_true(after - start >= low - low / 100);
	assert_true(after - start <= high + high / 100);
}

static void test_zero_is_monotonic(void **state)
{
	uint64_t now = clock_now_ns(), reference = reference_ns();

	(void)state;
	assert_true(now > reference - 1000000000ull && now < reference + 1000000000ull);
}

/* Without a counter, and with one that fell below its base, the time comes from the system. */
static void test_without_counter(void **state)
{
	uint64_t mult, base, now, reference;

	(void)state;
	clock_now_ns();
	/* relaxed: no other thread runs now. */
	mult = atomic_load_explicit(&clock_tsc.mult, memory_order_relaxed);
	base = clock_tsc.base_tsc;

	atomic_store_explicit(&clock_tsc.mult, 0, memory_order_relaxed);
	reference = reference_ns();
	now = clock_now_ns();
	assert_true(now >= reference && now <= reference_ns());

	atomic_store_explicit(&clock_tsc.mult, mult, memory_order_relaxed);
	clock_tsc.base_tsc = base + (1ull << 62);
	reference = reference_ns();
	now = clock_now_ns();
	assert_true(now >= reference && now <= reference_ns());
	clock_tsc.base_tsc = base;
}

static void test_sleep(void **state)
{
	uint64_t start = reference_ns();

	(void)state;
	clock_sleep_ns(3 * 1000 * 1000);
	assert_true(reference_ns() - start >= 3 * 1000 * 1000);
	clock_sleep_ns(0);
}

static void test_wall(void **state)
{
	time_t now = time(NULL);
	uint64_t wall = clock_wall_ms() / 1000;

	(void)state;
	assert_true(wall + 1 >= (uint64_t)now && wall <= (uint64_t)now + 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),		 cmocka_unit_test(test_monotonic),
		cmocka_unit_test(test_rate),		 cmocka_unit_test(test_zero_is_monotonic),
		cmocka_unit_test(test_without_counter), cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_wall),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
