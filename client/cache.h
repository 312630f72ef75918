/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache.h - inside of libtarn: where keys were last found
 *
 * Bounded memory, two entries a cache line, identified by all 128 bits of the hash (a cached put
 * overwrites a slot without reading the key). Holds committed slot words of plain values and
 * counters only. An entry is offered only while its word cannot have been replaced and come back
 * since it was seen (docs/protocol.md section 2), and while it is likely to be right.
 */
#ifndef TARN_CACHE_H
#define TARN_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

struct cache;

int cache_create(uint64_t bytes, struct cache **ret_cache);
void cache_free(struct cache *cache);
/* Forgets everything: the pool is another one. */
void cache_clear(struct cache *cache);

/* This key will be asked for soon. */
void cache_hint(const struct cache *cache, struct layout_hash hash);
/*
 * True, with slot offset and word, when the key's location is known and good. `epoch`: the one that
 * is known now, at most one behind the pool's.
 */
bool cache_find(struct cache *cache, struct layout_hash hash, uint64_t epoch, uint64_t *ret_slot,
		uint64_t *ret_word);
/*
 * The index was looked into, and this is where the key was. To be said before cache_add() for what was
 * found: whether a location from here would have been right decides on the next ones.
 */
void cache_see(struct cache *cache, struct layout_hash hash, uint64_t slot, uint64_t word);
/* A location from here was not right. */
void cache_fail(struct cache *cache, struct layout_hash hash);
/* A location that was read or written; `epoch` was known before the first READ that saw it. */
void cache_add(struct cache *cache, struct layout_hash hash, uint64_t epoch, uint64_t slot,
	       uint64_t word);
/* The key is gone. */
void cache_remove(struct cache *cache, struct layout_hash hash);

#endif
