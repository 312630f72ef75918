/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * workload.h - which keys, which values, which operations: the same for tarn-bench and for the
 * peers that it is compared with
 *
 * A key is named by an item: an index below `keys` in one of three spaces (loaded keys, fresh keys,
 * counters). Key bytes and the value's first word follow from the item alone, so every value that
 * is read can be checked without remembering anything.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WORKLOAD_KEY_MIN   6u /* 24 bits: 4 million items in each space */
#define WORKLOAD_KEY_MAX   1024u
#define WORKLOAD_VALUE_MAX (16u << 20)
#define WORKLOAD_SCAN_KEYS 100u
#define WORKLOAD_SIZES     1024u /* a power of two */

enum workload_space { WORKLOAD_LOADED = 0, WORKLOAD_FRESH = 1, WORKLOAD_COUNTER = 2 };

enum workload_op {
	WORKLOAD_GET,
	WORKLOAD_PUT,    /* replaces the value of a loaded key */
	WORKLOAD_INSERT, /* a key that is not there; deleted again */
	WORKLOAD_DELETE, /* a loaded key; inserted again */
	WORKLOAD_ADD,    /* to a counter */
	WORKLOAD_EXISTS,
	WORKLOAD_SCAN, /* up to WORKLOAD_SCAN_KEYS keys from a random place, with their values */
	WORKLOAD_RMW,  /* a get and a put of the same key */
	WORKLOAD_OPS
};

extern const char *const workload_op_names[WORKLOAD_OPS];

struct workload {
	uint64_t keys; /* loaded ones */
	uint32_t key_size;
	uint32_t value_size;   /* the largest; an item's own: workload_value_bytes() */
	uint32_t value_spread; /* the smallest is so much less; 0: all have the same size */
	bool value_zipf;       /* small ones are frequent: the n-th size comes 1/n times as often */
	double theta;          /* 0: uniform; else zipf's, above 0 and below 1 */
	bool latest;           /* zipf, and picks are ranks: 0 is the item that came last */
	bool chain; /* the next item depends on the value read before: no two operations overlap in
		       the CPU */
	uint64_t id_mask;
	unsigned int space_shift;
	uint32_t value_sizes[WORKLOAD_SIZES]; /* value_zipf: quantiles */
};

/* Weights of one stream of operations. */
struct workload_mix {
	uint32_t weights[WORKLOAD_OPS];
	uint32_t total;
	int only;     /* the one operation with a weight, or -1 */
	bool replays; /* the operations are those of a trace; weights: 1 for what occurs */
	bool grows;   /* inserts are no pairs with deletes: they add keys until the step ends */
};

/* One worker's source of items. */
struct workload_picker {
	uint64_t random;
	uint64_t keys;
	const uint32_t *sequence; /* zipf: drawn beforehand; NULL: uniform */
	uint32_t position, mask;
};

/* Completes the derived fields. Returns 0, or -EINVAL with a text (err.h). */
int workload_init(struct workload *workload);

/* "get", "get=95,put=5". Returns 0, or -EINVAL with a text. */
int workload_mix_parse(const char *text, struct workload_mix *ret_mix);

/* Draws a zipf sequence beforehand if need be. Returns 0 or -ENOMEM with a text. */
int workload_picker_init(const struct workload *workload, uint64_t seed,
			 struct workload_picker *ret_picker);
void workload_picker_free(struct workload_picker *picker);

/* Fills a key buffer's tail behind the 16 digits once; workload_key() then writes digits alone. */
void workload_key_prepare(uint8_t *ret_key);

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014) */
static inline uint64_t workload_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* A number below `limit`; the high bits of a product (Lemire), biased by less than limit / 2^64. */
static inline uint64_t workload_below(uint64_t random, uint64_t limit)
{
	return (uint64_t)((unsigned __int128)random * limit >> 64);
}

static inline uint64_t workload_pick(struct workload_picker *picker)
{
	if (picker->sequence)
		return picker->sequence[picker->position++ & picker->mask];
	return workload_below(workload_random(&picker->random), picker->keys);
}

/* Makes the next pick wait for a word that was read, without changing which item it is. */
static inline void workload_chain(struct workload_picker *picker, uint64_t word)
{
	uint64_t zero = word;

#if defined(__x86_64__)
	/* The compiler must not see that this is 0, the CPU must not either: `and` is no dependency
	 * breaker. */
	__asm__ volatile("andq $0, %0" : "+r"(zero)::"cc");
#else
	__asm__ volatile("" : "+r"(zero));
	zero = zero >> 63 >> 1;
	__asm__ volatile("" : "+r"(zero));
#endif
	picker->random += zero;
	picker->position += (uint32_t)zero;
}

static inline uint64_t workload_id(const struct workload *workload, enum workload_space space,
				   uint64_t index)
{
	/* A multiplication by an odd number scatters: neighbours are not neighbours in a sorted
	 * store. */
	return ((uint64_t)space << workload->space_shift | index) * 0x9e3779b97f4a7c15ull &
	       workload->id_mask;
}

/* Eight hexadecimal digits, the lowest first, all at once. */
static inline uint64_t workload_digits(uint32_t value)
{
	uint64_t x = value, letters;

	x = (x | x << 16) & 0x0000ffff0000ffffull;
	x = (x | x << 8) & 0x00ff00ff00ff00ffull;
	x = (x | x << 4) & 0x0f0f0f0f0f0f0f0full;
	letters = (x + 0x0606060606060606ull) >> 4 & 0x0101010101010101ull;
	return x + 0x3030303030303030ull + letters * ('a' - '0' - 10);
}

/* Writes the key of an item; the buffer has WORKLOAD_KEY_MAX bytes and was prepared. */
static inline void workload_key(uint64_t id, uint8_t *ret_key)
{
	uint64_t low = workload_digits((uint32_t)id), high = workload_digits((uint32_t)(id >> 32));

	memcpy(ret_key, &low, 8);
	memcpy(ret_key + 8, &high, 8);
}

/* The way back, from a key that may be anyone's: is it one of ours? */
bool workload_key_parse(const struct workload *workload, const uint8_t *key, size_t key_bytes,
			uint64_t *ret_id);

/* The first word of an item's value. */
static inline uint64_t workload_check_word(uint64_t id)
{
	return (id ^ 0x5441524e62656e63ull) * 0xd6e8feb86659fd93ull;
}

/* The size of an item's value: it follows from the item, so that it can be checked, too. */
static inline uint32_t workload_value_bytes(const struct workload *workload, uint64_t id)
{
	uint64_t state = id, random;

	if (__builtin_expect(workload->value_spread == 0, 1))
		return workload->value_size;
	random = workload_random(&state);
	if (workload->value_zipf)
		return workload->value_sizes[random % WORKLOAD_SIZES];
	return workload->value_size - (uint32_t)workload_below(random, workload->value_spread + 1u);
}

/* The mean of these sizes. */
uint32_t workload_value_mean(const struct workload *workload);

/* Makes a value: the check word, then a number that tells writes apart; the buffer's rest stays as
 * it is. It has 16 bytes more than the largest value. */
static inline void workload_value(const struct workload *workload, uint64_t id, uint64_t write,
				  uint8_t *ret_value)
{
	uint64_t word = workload_check_word(id);
	uint32_t bytes = workload_value_bytes(workload, id);

	if (bytes >= 16) {
		memcpy(ret_value, &word, 8);
		memcpy(ret_value + 8, &write, 8);
	} else {
		memcpy(ret_value, &word, bytes < 8 ? bytes : 8);
	}
}

/* Is this the value of that item? The caller has looked at its size. */
static inline bool workload_verify(const struct workload *workload, uint64_t id,
				   const uint8_t *value)
{
	uint64_t word = workload_check_word(id), found;
	uint32_t bytes = workload_value_bytes(workload, id);

	if (__builtin_expect(bytes < 8, 0))
		return memcmp(value, &word, bytes) == 0;
	memcpy(&found, value, 8);
	return found == word;
}
