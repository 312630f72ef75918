/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * table.h - a private hash table in this process: the ceiling that a get is measured against
 *
 * What a good C programmer would write for keys and values of any size: open addressing over 8-byte
 * slots { 16 bits of the hash, place of the entry }, at most half full, and entries of their own
 * behind it. A hit costs two dependent cache misses, slot and entry, as a get of Tarn does. Filled
 * once, then read by all workers without a lock.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "prefetch.h"
#include "workload.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define TABLE_TAG_SHIFT 48
#define TABLE_PLACE     ((1ull << TABLE_TAG_SHIFT) - 1)

struct table_entry {
	uint32_t key_size, value_size;
	uint8_t bytes[]; /* key, padded to 8; value */
};

struct table {
	uint64_t *slots; /* 0: empty */
	uint64_t mask;
	uint8_t *entries; /* place 8 is the first: a slot is never 0 */
	uint64_t seed;
	void *memory;
	uint64_t memory_bytes, page_bytes; /* what page_bytes the memory got */
};

/* Fills a table with all loaded items. page_bytes: pages to ask for, as the pool has. 0 or -ENOMEM
 * with a text. */
int table_create(const struct workload *workload, uint64_t page_bytes, struct table *ret_table);
void table_free(struct table *table);

static inline uint64_t table_pad8(uint64_t bytes)
{
	return (bytes + 7) & ~7ull;
}

static inline uint64_t table_hash(const struct table *table, const void *key, uint32_t key_size)
{
	return XXH3_64bits_withSeed(key, key_size, table->seed);
}

static inline void table_prefetch_slot(const struct table *table, uint64_t hash)
{
	prefetch_line(&table->slots[hash & table->mask]);
}

/* The first entry that it may be, as far as a line of slots tells. */
static inline void table_prefetch_entry(const struct table *table, uint64_t hash)
{
	uint64_t at = hash & table->mask, slot;

	for (unsigned i = 0; i < 8 && (slot = table->slots[at]) != 0; i++) {
		if (slot >> TABLE_TAG_SHIFT == hash >> TABLE_TAG_SHIFT) {
			const uint8_t *entry = table->entries + (slot & TABLE_PLACE);

			prefetch_line(entry);
			prefetch_line(entry + 64);
			return;
		}
		at = (at + 1) & table->mask;
	}
}

/* Copies the value out. Returns its size, or -1 when the key is not there or the value larger than
 * the buffer. */
static inline int64_t table_get_hashed(const struct table *table, uint64_t hash, const void *key,
				       uint32_t key_size, void *ret_value, uint32_t capacity)
{
	uint64_t at = hash & table->mask, slot;

	for (; (slot = table->slots[at]) != 0; at = (at + 1) & table->mask) {
		const struct table_entry *entry;

		if (slot >> TABLE_TAG_SHIFT != hash >> TABLE_TAG_SHIFT)
			continue;
		entry = (const void *)(table->entries + (slot & TABLE_PLACE));
		if (entry->key_size != key_size || memcmp(entry->bytes, key, key_size) != 0)
			continue;
		if (entry->value_size > capacity)
			return -1;
		memcpy(ret_value, entry->bytes + table_pad8(key_size), entry->value_size);
		return entry->value_size;
	}
	return -1;
}

static inline int64_t table_get(const struct table *table, const void *key, uint32_t key_size,
				void *ret_value, uint32_t capacity)
{
	return table_get_hashed(table, table_hash(table, key, key_size), key, key_size, ret_value,
				capacity);
}
