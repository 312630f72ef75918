/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * found.h - inside of libtarn: what bucket pairs and blocks say that were read, for a single operation
 * (kv.c) and for many gets at a time (group.c)
 */
#ifndef TARN_FOUND_H
#define TARN_FOUND_H

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "layout.h"
#include "mutation.h"
#include "session.h"
#include "shard.h"

/* ---- bucket pairs ---------------------------------------------------------------------------- */

/* Offset of a key's bucket pairs in a subtable. */
static inline void found_pair_offsets(const struct tarn_session *s, struct layout_hash hash,
				      uint64_t subtable, uint64_t ret_offsets[2])
{
	for (unsigned i = 0; i < 2; i++)
		ret_offsets[i] = subtable + layout_hash_pair(hash, i, s->geometry.groups);
}

/*
 * Calls fn for each slot of the bucket pairs. The pairs may overlap: an address counts once.
 * Inlined, fn and all.
 */
typedef void found_slot_fn(void *arg, unsigned pair, unsigned bucket, uint64_t slot, uint64_t word);
static inline __attribute__((always_inline)) void
found_each_slot(void *arg, const uint64_t offsets[2], const struct layout_bucket pairs[2][2],
		found_slot_fn *fn)
{
	unsigned p, b, i;

	for (p = 0; p < 2; p++) {
		for (b = 0; b < 2; b++) {
			uint64_t offset = offsets[p] + b * LAYOUT_BUCKET_BYTES;

			if (p == 1 && offset - offsets[0] < LAYOUT_PAIR_BYTES)
				continue;
			for (i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
				fn(arg, p, b, offset + 8 + 8ull * i, pairs[p][b].slots[i]);
		}
	}
}

enum found_headers { HEADERS_FIT, HEADERS_OTHER_SUBTABLE, HEADERS_SPLITTING, HEADERS_FILLED };

/* The half of the keys that stays in a subtable that splits need not know of it. */
static inline bool found_splits(uint64_t header, uint32_t suffix)
{
	uint32_t split = layout_header_split(header);

	return split == LAYOUT_SPLIT_NEW ||
	       (split == LAYOUT_SPLIT_OLD && suffix >> (layout_header_depth(header) & 31) & 1);
}

/* Of `count` buckets. *ret_splitting: the header that says so. */
static inline enum found_headers found_headers(const struct layout_bucket *buckets, unsigned count,
					       struct layout_hash hash, uint64_t *ret_splitting)
{
	uint32_t suffix = layout_hash_suffix(hash);
	enum found_headers result = HEADERS_FIT;

	for (unsigned i = 0; i < count; i++) {
		uint64_t header = buckets[i].header;

		if (layout_header_suffix(header) !=
		    layout_suffix(suffix, layout_header_depth(header)))
			return HEADERS_OTHER_SUBTABLE;
		if (layout_header_split(header) == LAYOUT_SPLIT_FILLED && result == HEADERS_FIT)
			result = HEADERS_FILLED;
		if (!found_splits(header, suffix))
			continue;
		*ret_splitting = header;
		result = HEADERS_SPLITTING;
	}
	return result;
}

/*
 * Which words of a pair are slots with this fingerprint, a bit each; `fp_bits` as they stand in a word.
 * Few are, and each that is looked at closely costs a comparison.
 */
#define FOUND_HEADERS 0x101u
#if defined(__SSE2__)
static inline __m128i found_low_halves(const uint64_t *words)
{
	__m128 a = _mm_castsi128_ps(_mm_loadu_si128((const void *)words)),
	       b = _mm_castsi128_ps(_mm_loadu_si128((const void *)(words + 2)));

	return _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
}

static inline uint32_t found_words(const struct layout_bucket pair[2], uint64_t fp_bits)
{
	const __m128i mask = _mm_set1_epi32((int)LAYOUT_SLOT_FP_BITS),
		      fp = _mm_set1_epi32((int)fp_bits);
	const uint64_t *w = &pair[0].header;
	__m128i a = _mm_cmpeq_epi32(_mm_and_si128(found_low_halves(w), mask), fp),
		b = _mm_cmpeq_epi32(_mm_and_si128(found_low_halves(w + 4), mask), fp),
		c = _mm_cmpeq_epi32(_mm_and_si128(found_low_halves(w + 8), mask), fp),
		d = _mm_cmpeq_epi32(_mm_and_si128(found_low_halves(w + 12), mask), fp);

	return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d))) &
	       ~FOUND_HEADERS;
}
#else
static inline uint32_t found_words(const struct layout_bucket pair[2], uint64_t fp_bits)
{
	uint32_t found = 0;

	for (unsigned b = 0; b < 2; b++)
		for (unsigned i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
			found |= (uint32_t)((pair[b].slots[i] & LAYOUT_SLOT_FP_BITS) == fp_bits)
				 << (8 * b + 1 + i);
	return found;
}
#endif

/* A tombstone's key may be this one: same fingerprint, and the half that moved. */
static inline bool found_tombstone_counts(struct layout_hash hash, uint64_t word)
{
	return layout_hash_suffix(hash) >> layout_tombstone_depth(word) & 1;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Of a cluster's session: since when this member has the key's shard, by the client's map; 0: it has not. */
static inline uint64_t found_since(const struct tarn_session *s, struct layout_hash hash,
				   uint32_t *ret_shard)
{
	bool fits = s->geometry.shards && s->geometry.shards == s->since_shards;

	*ret_shard = fits ? shard_of(hash, s->geometry.shards) : 0;
	return fits ? s->since[*ret_shard] : 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Short keys are compared here: a call costs more. */
static inline bool found_equal(const void *a, const void *b, uint32_t bytes)
{
	const uint8_t *p = a, *q = b;
	uint64_t x, y, u, v;

	if (bytes < 8 || bytes > 16)
		return memcmp(a, b, bytes) == 0;
	memcpy(&x, p, 8);
	memcpy(&y, q, 8);
	memcpy(&u, p + bytes - 8, 8);
	memcpy(&v, q + bytes - 8, 8);
	return ((x ^ y) | (u ^ v)) == 0;
}

/* A block read for `word`: 1 is the key's, 0 is another key's, -1 does not fit the word. */
static inline int found_match(const void *key, uint32_t key_length,
			      const struct layout_block *block, uint64_t word)
{
	uint64_t offset = layout_slot_offset(word);

	if (!layout_block_valid(block, layout_class_bytes(layout_slot_class(word)), offset))
		return -1;
	if ((block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(word) &&
	    !MUTATED(MUTATION_GENERATION))
		return -1;
	if (MUTATED(MUTATION_KEY_COMPARE))
		return 1;
	return block->key_length == key_length &&
	       found_equal(layout_block_key(block), key, key_length);
}

static inline bool found_expired(const struct tarn_session *s, const struct layout_block *block)
{
	return block->expiry && s->epoch >= block->expiry;
}

static inline struct tarn_item found_item(const struct tarn_session *s,
					  const struct layout_block *block)
{
	struct tarn_item item = {
		.size = sizeof(item),
		.kind = block->kind == LAYOUT_KIND_COUNTER ? TARN_KIND_COUNTER : TARN_KIND_VALUE,
		.value_bytes = block->value_length,
		.stamp = block->stamp,
		.user_flags = block->user_flags,
		.writer = (uint32_t)(block->stamp >> 32),
	};

	if (block->expiry > s->epoch)
		item.expiry_ms = (block->expiry - s->epoch) * (s->geometry.epoch_ns / 1000) / 1000;
	return item;
}

/* Copies the value to the caller, who may have no buffer for an empty one. */
static inline void found_copy(struct tarn_session *s, void *buffer, const struct layout_block *block)
{
	if (!block->value_length)
		return;
	memcpy(buffer, layout_block_value(block), block->value_length);
	s->stats.bytes_copied += block->value_length;
}

#endif
