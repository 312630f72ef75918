/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache.c - the location cache
 *
 * Sets of two: the entry used last stands first, a new one takes the second place, so that a walk
 * over many keys cannot push out what is used again. Runs on the session's owner. Next: kv.c.
 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

struct entry {
	uint64_t high; /* of the hash; the other half chose the set and is compared, too */
	uint64_t low;
	uint64_t word; /* 0: unused */
	/* slot offset / 8 : 38 | time in units of 2^24 ns since the cache was made : 26 */
	uint64_t place;
};

#define PLACE_SLOT_BITS 38
/* 17 ms; 26 bits of it are 13 days, checked against the age at each use */
#define TIME_SHIFT      24
#define TIME_MASK       ((1ull << 26) - 1)

struct cache {
	struct entry *entries;
	uint64_t sets;    /* power of two */
	uint64_t max_age; /* in units */
	/* unit of time up to which old entries were swept, so that 26 bits never wrap unnoticed */
	uint64_t swept;
};

int cache_create(const struct layout_geometry *geometry, uint64_t bytes, struct cache **ret_cache)
{
	struct cache *c = calloc(1, sizeof(*c));
	uint64_t sets = 1;

	while (sets * 2 * 2 * sizeof(struct entry) <= bytes)
		sets *= 2;
	if (c)
		c->entries = aligned_alloc(64, sets * 2 * sizeof(struct entry));
	if (!c || !c->entries) {
		free(c);
		return err_set(-ENOMEM, "no memory for a location cache of %llu bytes",
			       (unsigned long long)bytes);
	}
	memset(c->entries, 0, sets * 2 * sizeof(struct entry));
	c->sets = sets;
	c->max_age = (geometry->epoch_ns << LAYOUT_GEN_BITS) / 4 >> TIME_SHIFT;
	if (c->max_age > TIME_MASK / 4)
		c->max_age = TIME_MASK / 4;
	*ret_cache = c;
	return 0;
}

void cache_free(struct cache *cache)
{
	if (!cache)
		return;
	free(cache->entries);
	free(cache);
}

/*
 * The 26 bits wrap after 13 days: entries that nobody touched for a quarter of that are thrown out
 * before they can look young.
 */
static void sweep(struct cache *c, uint64_t unit)
{
	if (unit - c->swept < TIME_MASK / 4)
		return;
	c->swept = unit;
	memset(c->entries, 0, c->sets * 2 * sizeof(struct entry));
}

static struct entry *set_of(struct cache *c, struct layout_hash hash)
{
	return c->entries + (hash.low >> 8 & (c->sets - 1)) * 2;
}

static bool is(const struct entry *e, struct layout_hash hash)
{
	return e->word && e->low == hash.low && e->high == hash.high;
}

bool cache_find(struct cache *c, struct layout_hash hash, uint64_t now, uint64_t *ret_slot,
		uint64_t *ret_word)
{
	struct entry *e = set_of(c, hash);
	uint64_t unit = now >> TIME_SHIFT;

	sweep(c, unit);
	if (!is(e, hash)) {
		struct entry first = e[0];

		if (!is(e + 1, hash))
			return false;
		e[0] = e[1];
		e[1] = first;
	}
	if (((unit - (e->place >> PLACE_SLOT_BITS)) & TIME_MASK) > c->max_age) {
		e->word = 0;
		return false;
	}
	*ret_slot = (e->place & ((1ull << PLACE_SLOT_BITS) - 1)) * 8;
	*ret_word = e->word;
	return true;
}

void cache_add(struct cache *c, struct layout_hash hash, uint64_t now, uint64_t slot, uint64_t word)
{
	struct entry *e = set_of(c, hash);

	sweep(c, now >> TIME_SHIFT);
	if (!is(e, hash) && (e->word || is(e + 1, hash)))
		e++;
	*e = (struct entry){
		.high = hash.high,
		.low = hash.low,
		.word = word,
		.place = slot / 8 | (now >> TIME_SHIFT & TIME_MASK) << PLACE_SLOT_BITS,
	};
}

void cache_remove(struct cache *c, struct layout_hash hash)
{
	struct entry *e = set_of(c, hash);

	if (is(e, hash))
		e->word = 0;
	else if (is(e + 1, hash))
		e[1].word = 0;
}
