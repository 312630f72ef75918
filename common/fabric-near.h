/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-near.h - READs of memory that this process has mapped: a copy, each aligned word whole
 *
 * For fabric-shm.c; and for whoever reads so much through an endpoint with `near` that the requests for
 * it cost more than the bytes (client/group.c). What is promised is what fabric.h promises of a READ;
 * fabric_near_done() is the end of a post.
 */
#ifndef TARN_FABRIC_NEAR_H
#define TARN_FABRIC_NEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "atomics.h"
#include "fabric.h"
#include "prefetch.h"

#define NEAR_HINT_LINES 8u

/* These bytes will be read soon. */
static inline void near_hint(const uint8_t *from, uint32_t length)
{
	unsigned lines = (length + 63) / 64, line;

	for (line = 0; line < lines && line < NEAR_HINT_LINES; line++)
		prefetch_line(from + (size_t)line * 64);
}

/*
 * 16 bytes at a time where the processor reads and writes each of the two words of an aligned 16
 * whole (x86-64 does). `volatile` keeps the compiler from doing it in any other way. The thread
 * sanitizer needs the atomics below.
 */
#if defined(__SANITIZE_THREAD__)
#define WIDE_COPY 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WIDE_COPY 0
#endif
#endif
#if !defined(WIDE_COPY) && !defined(__SSE2__)
#define WIDE_COPY 0
#endif
#if !defined(WIDE_COPY)
#define WIDE_COPY 1
static inline void near_copy_wide(uint8_t **to, const uint8_t **from, size_t *bytes)
{
	/*
	 * the shared side is aligned to 8 already; on the private side unaligned stores and loads
	 * do no harm
	 */
#pragma GCC unroll 4
	for (; *bytes >= 16; *bytes -= 16, *to += 16, *from += 16) {
		__m128i_u words = *(const volatile __m128i_u *)*from;

		*(volatile __m128i_u *)*to = words;
	}
}
#else
static inline void near_copy_wide(uint8_t **to, const uint8_t **from, size_t *bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
}
#endif

/*
 * Relaxed accesses: what orders them is named at fabric_post's callers (T1, the slot word read
 * first) and at near_done().
 */
static inline void near_read(void *to, const uint8_t *from, size_t bytes)
{
	uint8_t *out = to;

	for (; bytes && (uintptr_t)from % 8; bytes--)
		*out++ = byte_load_relaxed(from++);
	near_copy_wide(&out, &from, &bytes);
	for (; bytes >= 8; bytes -= 8, from += 8, out += 8) {
		uint64_t word = word_load_relaxed((const uint64_t *)from);

		memcpy(out, &word, 8);
	}
	for (; bytes; bytes--)
		*out++ = byte_load_relaxed(from++);
}

/* The same of bytes that begin at a word, as all that has a layout in a pool does; a multiple of 64 of them. */
static inline void near_read_lines(void *to, const uint8_t *from, size_t bytes)
{
#if WIDE_COPY
	uint8_t *out = to;

	for (; bytes; bytes -= 64, out += 64, from += 64) {
		__m128i_u a = *(const volatile __m128i_u *)from,
			  b = *(const volatile __m128i_u *)(from + 16),
			  c = *(const volatile __m128i_u *)(from + 32),
			  d = *(const volatile __m128i_u *)(from + 48);

		*(volatile __m128i_u *)out = a;
		*(volatile __m128i_u *)(out + 16) = b;
		*(volatile __m128i_u *)(out + 32) = c;
		*(volatile __m128i_u *)(out + 48) = d;
	}
#else
	near_read(to, from, bytes);
#endif
}

/*
 * What is read next must not be older than what was read so far. Pairs with the seq_cst CAS that
 * published it. A plain compiler barrier on x86.
 */
static inline void near_done(void)
{
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* Are these bytes the endpoint's? It has `near`. */
static inline bool near_has(const struct fabric_endpoint *ep, uint64_t offset, uint64_t length)
{
	return offset <= ep->pool_bytes && length <= ep->pool_bytes - offset;
}

#endif
