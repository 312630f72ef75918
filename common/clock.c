/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the time stamp counter against CLOCK_MONOTONIC, once per process. Any thread; the first caller of
 * clock_now_ns() spends about two milliseconds here and others that come meanwhile wait for it.
 * The fast path is in clock.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define NS_PER_S 1000000000ull

/* How long the rate is measured, at least. */
#define CALIBRATE_MIN_NS 2000000ull

/* ... and at least this many times the uncertainty of one reading of both clocks (24 us in User Mode Linux). */
#define CALIBRATE_GAPS 500

/* The best of this many readings is taken: the others were interrupted. */
#define CALIBRATE_READINGS 8

/* A counter this many ticks below its base belongs to another core that is a little behind; more, and it was reset. */
#define TSC_SKEW_MAX 100000

struct clock_tsc clock_tsc;

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	/* It fails for a wrong clock id or pointer only. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

#if defined(__x86_64__)

/* CPUID.80000007H:EDX[8]: the counter runs at one rate in all power states, and in step on all cores. */
static bool tsc_is_invariant(void)
{
	unsigned int eax, ebx, ecx, edx;

	if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx))
		return false;
	return (edx & (1u << 8)) != 0;
}

/* Both clocks at one moment. The moment lies within gap ticks, the middle is taken. */
struct reading {
	uint64_t tsc;
	uint64_t ns;
	uint64_t gap;
};

static struct reading read_both(void)
{
	struct reading best = {.gap = UINT64_MAX};

	for (int i = 0; i < CALIBRATE_READINGS; i++) {
		uint64_t before = __rdtsc();
		uint64_t ns = monotonic_ns();
		uint64_t gap = __rdtsc() - before;

		if (gap < best.gap)
			best = (struct reading){.tsc = before + gap / 2, .ns = ns, .gap = gap};
	}
	return best;
}

static void clock_calibrate(void)
{
	struct reading first, last;
	uint64_t mult;

	if (!tsc_is_invariant())
		return;

	first = read_both();
	do {
		last = read_both();
		/* Time stands still or runs backwards: this counter is none, whatever CPUID says. */
		if ((int64_t)(last.tsc - first.tsc) <= 0 || last.ns < first.ns)
			return;
	} while (last.ns - first.ns < CALIBRATE_MIN_NS ||
		 (last.tsc - first.tsc) / CALIBRATE_GAPS < first.gap + last.gap);

	mult = (uint64_t)(((unsigned __int128)(last.ns - first.ns) << CLOCK_TSC_SHIFT) / (last.tsc - first.tsc));
	/* Below 100 MHz or above 100 GHz something else was measured (a virtual machine that stood still). */
	if (mult > 10ull << CLOCK_TSC_SHIFT || mult < (1ull << CLOCK_TSC_SHIFT) / 100)
		return;

	clock_tsc.base_tsc = last.tsc;
	clock_tsc.base_ns = last.ns;
	/* release, pairs with the acquire in clock_now_ns(). */
	atomic_store_explicit(&clock_tsc.mult, mult, memory_order_release);
}

#else

static void clock_calibrate(void)
{
}

#endif

uint64_t clock_now_slow_ns(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, clock_calibrate);
#if defined(__x86_64__)
	/* relaxed: this thread measured, or pthread_once() waited for the one that did. */
	if (atomic_load_explicit(&clock_tsc.mult, memory_order_relaxed) != 0) {
		uint64_t ticks = __rdtsc() - clock_tsc.base_tsc;

		/* From the first call on it is the counter's time: the two clocks differ by the uncertainty of one
		 * reading, and a change from one to the other could step backwards. */
		if ((int64_t)ticks >= 0)
			return clock_now_ns();
		if (-ticks < TSC_SKEW_MAX)
			return clock_tsc.base_ns;
	}
#endif
	return monotonic_ns();
}

uint64_t clock_thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_boottime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void clock_sleep_ns(uint64_t ns)
{
	struct timespec until;
	uint64_t end = monotonic_ns() + ns;

	if (end < ns)
		end = UINT64_MAX;
	until.tv_sec = (time_t)(end / NS_PER_S);
	until.tv_nsec = (long)(end % NS_PER_S);
	/* An absolute time, so that signals neither shorten nor stretch it. */
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}
