/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time. clock_now_ns() is read several times per operation, so it must cost nanoseconds: on x86-64 with an invariant
 * time stamp counter it is that counter, scaled; elsewhere clock_gettime(CLOCK_MONOTONIC). The difference is largest
 * where clock_gettime is a real system call (User Mode Linux: 24 us; some clock sources in virtual machines: 1 us).
 *
 * The rate is measured once per process and is right to about 1 in 1000; the zero is that of CLOCK_MONOTONIC at that
 * moment. So differences are good for timeouts, deadlines and latencies, but values are not to be compared between
 * processes, nor with CLOCK_MONOTONIC after hours.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Fraction bits of clock_tsc.mult. */
#define CLOCK_TSC_SHIFT 32

/*
 * The one global of common/: a property of the machine, written once, by the first thread that asks for the time.
 * mult is 0 until the measurement is done, and for ever if there is no counter to rely on.
 */
struct clock_tsc {
	_Atomic uint64_t mult; /* ns per tick, times 2^32; stored last, with release */
	uint64_t base_tsc;     /* ticks at base_ns */
	uint64_t base_ns;      /* CLOCK_MONOTONIC then */
};

extern struct clock_tsc clock_tsc;

/* The slow way: measures on the first call, falls back to clock_gettime. */
uint64_t clock_now_slow_ns(void);

/* Monotonic time. Any thread. */
static inline uint64_t clock_now_ns(void)
{
#if defined(__x86_64__)
	/* acquire, pairs with the release in clock_calibrate(): a mult that is not 0 comes with its base. */
	uint64_t mult = atomic_load_explicit(&clock_tsc.mult, memory_order_acquire);

	if (__builtin_expect(mult != 0, 1)) {
		/* Not serialized (lfence would double the cost): off by the depth of the pipeline, some tens of ns. */
		uint64_t ticks = __rdtsc() - clock_tsc.base_tsc;

		/* A counter below its base (another core within a few ns of the measurement, or one that a resume from
		 * suspend has reset) gives a huge difference: the slow way then, never a jump of centuries. */
		if (__builtin_expect((int64_t)ticks >= 0, 1))
			return clock_tsc.base_ns +
			       (uint64_t)(((unsigned __int128)ticks * mult) >> CLOCK_TSC_SHIFT);
	}
#endif
	return clock_now_slow_ns();
}

/*
 * CPU time that the calling thread has used, in nanoseconds: how much work something was, whatever else
 * runs on the machine. A system call. Any thread.
 */
uint64_t clock_thread_ns(void);

/* Milliseconds since 1970: for what is shown to people and for stored expiry times. It may step. */
uint64_t clock_wall_ms(void);

/*
 * Time that goes on while the machine is suspended, which clock_now_ns() need not do: for what somebody else counts, too. Not
 * comparable with that. Any thread.
 */
uint64_t clock_boottime_ns(void);

/* Sleeps at least this long; signals do not shorten it. */
void clock_sleep_ns(uint64_t ns);
