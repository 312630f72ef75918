/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * prefetch.h - bringing a cache line nearer before it is read
 */
#ifndef TARN_PREFETCH_H
#define TARN_PREFETCH_H

/*
 * gcc 12 takes a function that does nothing but prefetch for one that does nothing, and drops its calls: the
 * empty instruction is something.
 */
static inline __attribute__((always_inline)) void prefetch_line(const void *line)
{
	__builtin_prefetch(line);
	__asm__ volatile("" : : "r"(line));
}

static inline __attribute__((always_inline)) void prefetch_line_to_write(const void *line)
{
	__builtin_prefetch(line, 1);
	__asm__ volatile("" : : "r"(line));
}

#endif
