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
#include <sys/mman.h>

#include "err.h"

struct entry {
	uint64_t high; /* of the hash; the other half chose the set and is compared, too */
	uint64_t low;
	uint64_t word;  /* 0: unused */
	uint64_t place; /* slot offset / 8 : 38 | epoch in which the word was seen : 26 */
};

#define HUGE_PAGE       (2u << 20)
#define PLACE_SLOT_BITS 38
#define EPOCH_MASK      ((1ull << 26) - 1)
#define GENERATIONS     (1ull << LAYOUT_GEN_BITS)
/*
 * Epochs by which the one that we know may be behind (1), and that may begin while a CAS is under
 * way (2, in G - D): tests/model/FINDINGS.md, 1.
 */
#define MARGIN 3u

struct cache {
	struct entry *entries;
	uint64_t sets;  /* power of two */
	uint64_t swept; /* epoch of the last sweep, so that 26 bits never wrap unnoticed */
};

/* On huge pages where it is large enough: a look into the cache should cost one miss, not two. */
static struct entry *entries_create(uint64_t bytes)
{
	bool huge = bytes >= HUGE_PAGE;
	struct entry *entries = aligned_alloc(huge ? HUGE_PAGE : 64, bytes);

	if (!entries)
		return NULL;
	if (huge)
		madvise(entries, bytes, MADV_HUGEPAGE);
	memset(entries, 0, bytes);
	return entries;
}

int cache_create(uint64_t bytes, struct cache **ret_cache)
{
	struct cache *c = calloc(1, sizeof(*c));
	uint64_t sets = 1;

	while (sets * 2 * 2 * sizeof(struct entry) <= bytes)
		sets *= 2;
	if (c)
		c->entries = entries_create(sets * 2 * sizeof(struct entry));
	if (!c || !c->entries) {
		free(c);
		return err_set(-ENOMEM, "no memory for a location cache of %llu bytes",
			       (unsigned long long)bytes);
	}
	c->sets = sets;
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

/* Entries that nobody touched for a quarter of 2^26 epochs go before they can look young. */
static void sweep(struct cache *c, uint64_t epoch)
{
	if (epoch - c->swept < EPOCH_MASK / 4)
		return;
	c->swept = epoch;
	memset(c->entries, 0, c->sets * 2 * sizeof(struct entry));
}

/*
 * Can the word have been replaced and come back since it was seen? A generation comes again 4096
 * epochs after its block was dated, however short ago the word was seen: so no multiple of 4096
 * epochs since that date may have passed since then, nor be about to.
 */
static bool still_unique(const struct entry *e, uint64_t epoch)
{
	uint64_t since_seen = (epoch - (e->place >> PLACE_SLOT_BITS)) & EPOCH_MASK;
	uint64_t since_dated = (epoch - layout_slot_gen(e->word)) % GENERATIONS;

	return since_seen <= since_dated && since_dated < GENERATIONS - MARGIN;
}

static struct entry *set_of(struct cache *c, struct layout_hash hash)
{
	return c->entries + (hash.low >> 8 & (c->sets - 1)) * 2;
}

static bool is(const struct entry *e, struct layout_hash hash)
{
	return e->word && e->low == hash.low && e->high == hash.high;
}

bool cache_find(struct cache *c, struct layout_hash hash, uint64_t epoch, uint64_t *ret_slot,
		uint64_t *ret_word)
{
	struct entry *e = set_of(c, hash);

	sweep(c, epoch);
	if (!is(e, hash)) {
		struct entry first = e[0];

		if (!is(e + 1, hash))
			return false;
		e[0] = e[1];
		e[1] = first;
	}
	if (!still_unique(e, epoch))
		return false;
	*ret_slot = (e->place & ((1ull << PLACE_SLOT_BITS) - 1)) * 8;
	*ret_word = e->word;
	return true;
}

void cache_add(struct cache *c, struct layout_hash hash, uint64_t epoch, uint64_t slot,
	       uint64_t word)
{
	struct entry *e = set_of(c, hash);

	sweep(c, epoch);
	if (!is(e, hash) && (e->word || is(e + 1, hash)))
		e++;
	*e = (struct entry){
		.high = hash.high,
		.low = hash.low,
		.word = word,
		.place = slot / 8 | (epoch & EPOCH_MASK) << PLACE_SLOT_BITS,
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
