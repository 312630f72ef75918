/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache.c - the location cache
 *
 * Sets of two: the entry used last stands first, a new one takes the second place, so that a walk
 * over many keys cannot push out what is used again. A location that turns out wrong costs a round trip
 * more than none: each entry counts how often it was wrong of late, and is not offered while that is
 * more often than not (a saturating counter, as those by which processors predict branches: J. E. Smith,
 * A study of branch prediction strategies, 1981). Runs on the session's owner. Next: kv.c.
 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "err.h"
#include "prefetch.h"

struct entry {
	uint64_t high; /* of the hash; the other half chose the set and is compared, too */
	uint64_t low;
	uint64_t word;          /* 0: unused */
	uint64_t slot : 38;     /* offset / 8 */
	uint64_t epoch : 23;    /* in which the word was seen */
	uint64_t doubt : 2;     /* goes up when it was wrong, down when it would have been right */
	uint64_t known_bad : 1; /* the word is not there any more */
};
static_assert(sizeof(struct entry) == 32, "two fill a cache line");

#define HUGE_PAGE   (2u << 20)
#define EPOCH_MASK  ((1ull << 23) - 1)
#define DOUBT_MAX   3u
#define DOUBTED     2u /* from there on it is not offered */
#define GENERATIONS (1ull << LAYOUT_GEN_BITS)
/*
 * Epochs by which the one that we know may be behind (1), and that may begin while a CAS is under
 * way (2, in G - D): tests/model/FINDINGS.md, 1.
 */
#define MARGIN 3u

struct cache {
	struct entry *entries;
	uint64_t sets;  /* power of two */
	uint64_t swept; /* epoch of the last sweep, so that 23 bits never wrap unnoticed */
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

void cache_clear(struct cache *c)
{
	memset(c->entries, 0, c->sets * 2 * sizeof(struct entry));
	c->swept = 0;
}

/* Entries that nobody touched for a quarter of 2^23 epochs go before they can look young. */
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
	uint64_t since_seen = (epoch - e->epoch) & EPOCH_MASK;
	uint64_t since_dated = (epoch - layout_slot_gen(e->word)) % GENERATIONS;

	return since_seen <= since_dated && since_dated < GENERATIONS - MARGIN;
}

static struct entry *set_of(const struct cache *c, struct layout_hash hash)
{
	return c->entries + (hash.low >> 8 & (c->sets - 1)) * 2;
}

static bool is(const struct entry *e, struct layout_hash hash)
{
	return e->word && e->low == hash.low && e->high == hash.high;
}

void cache_hint(const struct cache *c, struct layout_hash hash)
{
	prefetch_line_to_write(set_of(c, hash));
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
	if (e->known_bad || e->doubt >= DOUBTED || !still_unique(e, epoch))
		return false;
	*ret_slot = (uint64_t)e->slot * 8;
	*ret_word = e->word;
	return true;
}

static struct entry *find(struct cache *c, struct layout_hash hash)
{
	struct entry *e = set_of(c, hash);

	if (is(e, hash))
		return e;
	return is(e + 1, hash) ? e + 1 : NULL;
}

void cache_add(struct cache *c, struct layout_hash hash, uint64_t epoch, uint64_t slot,
	       uint64_t word)
{
	struct entry *e;
	uint64_t doubt = 0;

	sweep(c, epoch);
	e = find(c, hash);
	if (e)
		doubt = e->doubt;
	else if ((e = set_of(c, hash))->word && !e->known_bad)
		e++;
	*e = (struct entry){
		.high = hash.high,
		.low = hash.low,
		.word = word,
		.slot = slot / 8 & ((1ull << 38) - 1),
		.epoch = epoch & EPOCH_MASK,
		.doubt = doubt & DOUBT_MAX,
	};
}

static void learn(struct entry *e, bool wrong)
{
	if (wrong && e->doubt < DOUBT_MAX)
		e->doubt++;
	else if (!wrong && e->doubt > 0)
		e->doubt--;
}

void cache_see(struct cache *c, struct layout_hash hash, uint64_t slot, uint64_t word)
{
	struct entry *e = find(c, hash);

	/* one that was found bad has been counted */
	if (e && !e->known_bad)
		learn(e, e->word != word || (uint64_t)e->slot * 8 != slot);
}

void cache_fail(struct cache *c, struct layout_hash hash)
{
	struct entry *e = find(c, hash);

	if (!e)
		return;
	learn(e, true);
	e->known_bad = 1;
}

void cache_remove(struct cache *c, struct layout_hash hash)
{
	struct entry *e = find(c, hash);

	if (e)
		e->word = 0;
}
