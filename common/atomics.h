/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atomics.h - shared words of a pool in plain memory, as C11 atomics
 *
 * A pool's words are plain integers in layout.h, since a NIC reads and writes them, too. Where a
 * CPU shares them with another one every access goes through these; the comment at the call says
 * what it pairs with. Only fabric-shm.c and the daemon's self.c (and what reads for stats) use
 * them.
 */
#ifndef TARN_ATOMICS_H
#define TARN_ATOMICS_H

#include <stdint.h>

static inline uint64_t word_load_relaxed(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}
static inline uint64_t word_load_acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void word_store_relaxed(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}
static inline void word_store_release(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline uint8_t byte_load_relaxed(const uint8_t *byte)
{
	return __atomic_load_n(byte, __ATOMIC_RELAXED);
}
static inline void byte_store_relaxed(uint8_t *byte, uint8_t value)
{
	__atomic_store_n(byte, value, __ATOMIC_RELAXED);
}
/* Sequentially consistent compare-and-swap; returns the word as it was. */
static inline uint64_t word_cas(uint64_t *word, uint64_t compare, uint64_t value)
{
	__atomic_compare_exchange_n(word, &compare, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare;
}
static inline uint64_t word_faa(uint64_t *word, uint64_t add)
{
	return __atomic_fetch_add(word, add, __ATOMIC_SEQ_CST);
}

#endif
