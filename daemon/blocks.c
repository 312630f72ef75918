/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looks at blocks that slots name, and takes keys out of the index; see blocks.h. Main thread. All
 * that it reads may be garbage or change the moment after: one copy is made, checked and used, and the
 * CAS of the whole slot word says whether it still holds. Next: expire.c, evict.c.
 */
#include <stdlib.h>

#include "blocks.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"

struct blocks {
	struct pool *pool;
	uint64_t words[LAYOUT_BLOCK_MAX / 8]; /* copy of a block */
};

struct blocks *blocks_create(struct pool *pool)
{
	struct blocks *blocks = calloc(1, sizeof(*blocks));

	if (blocks)
		blocks->pool = pool;
	return blocks;
}

void blocks_free(struct blocks *blocks)
{
	free(blocks);
}

/* ---- is it a block? ---- */

/* Can this be the header of a block of the class, as far as it can be told without the rest? */
static bool header_valid(const struct layout_block *header, uint32_t class)
{
	switch (header->kind) {
	case LAYOUT_KIND_VALUE:
	case LAYOUT_KIND_COUNTER:
	case LAYOUT_KIND_EXTENTS:
		break;
	default:
		return false;
	}
	return header->class == class && header->key_length > 0 &&
	       header->value_length <= LAYOUT_MAX_VALUE_BYTES &&
	       layout_block_bytes(header->kind, header->key_length, header->value_length) <=
		       layout_class_bytes(class);
}

static bool header_fits(const struct layout_block *header, uint64_t word)
{
	return header_valid(header, layout_slot_class(word)) &&
	       (header->generation & LAYOUT_GEN_MASK) == layout_slot_gen(word);
}

/* What a block that does not fit its slot word means. */
static enum blocks_result verdict(const struct blocks *blocks, uint64_t slot, uint64_t word)
{
	return self_load(blocks->pool, slot) == word ? BLOCKS_DAMAGED : BLOCKS_CHANGED;
}

/* An address alone is enough for that: there need not be anything. */
void blocks_hint(const struct blocks *blocks, uint64_t word)
{
	uintptr_t base = (uintptr_t)blocks->pool->memory.base;

	__builtin_prefetch((const void *)(base + layout_slot_offset(word)));
}

enum blocks_result blocks_header(const struct blocks *blocks, uint64_t slot, uint64_t word,
				 struct layout_block *ret_header)
{
	struct layout_block header;

	if (!layout_block_place_valid(&blocks->pool->geometry, layout_slot_offset(word),
				      layout_slot_class(word)))
		return verdict(blocks, slot, word);
	self_read(blocks->pool, layout_slot_offset(word), &header, sizeof(header));
	if (!header_fits(&header, word))
		return verdict(blocks, slot, word);
	*ret_header = header;
	return BLOCKS_DONE;
}

bool blocks_hash(struct blocks *blocks, uint64_t word, struct layout_hash *ret_hash)
{
	const struct layout_geometry *g = &blocks->pool->geometry;
	uint64_t offset = layout_slot_offset(word);
	struct layout_block header;

	if (!layout_block_place_valid(g, offset, layout_slot_class(word)))
		return false;
	self_read(blocks->pool, offset, &header, sizeof(header));
	if (!header_fits(&header, word))
		return false;
	self_read(blocks->pool, offset + sizeof(header), blocks->words,
		  layout_pad8(header.key_length));
	*ret_hash = layout_hash_key(blocks->words, header.key_length, g->hash_seed);
	return layout_hash_fp(*ret_hash) == layout_slot_fp(word);
}

/* ---- from a block to its slot ---- */

static bool find_in_pair(const struct blocks *blocks, uint64_t pair, uint64_t offset,
			 const struct layout_block *header, uint64_t *ret_slot, uint64_t *ret_word)
{
	for (uint32_t i = 0; i < LAYOUT_PAIR_BYTES / 8; i++) {
		uint64_t word;

		if (i % (LAYOUT_BUCKET_BYTES / 8) == 0) /* a header */
			continue;
		word = self_load(blocks->pool, pair + 8ull * i);
		if (layout_slot_state(word) != LAYOUT_SLOT_COMMITTED ||
		    layout_slot_offset(word) != offset || !header_fits(header, word))
			continue;
		*ret_slot = pair + 8ull * i;
		*ret_word = word;
		return true;
	}
	return false;
}

/* The subtable of a hash, as the directory has it; 0: it has none that can be. */
static uint64_t subtable(const struct blocks *blocks, struct layout_hash hash)
{
	const struct pool *pool = blocks->pool;
	const struct layout_geometry *g = &pool->geometry;
	uint64_t depth = self_load(pool, LAYOUT_GLOBAL_DEPTH_OFFSET), entry;
	uint32_t page;

	if (depth > g->max_depth)
		return 0;
	entry = self_load(pool, layout_directory_offset(g, layout_suffix(layout_hash_suffix(hash),
									 (uint32_t)depth)));
	page = layout_directory_page(entry);
	if (layout_directory_state(entry) == LAYOUT_DIRECTORY_NONE || page >= g->npages ||
	    layout_page_state(pool_load_page_word(pool, page)) != LAYOUT_PAGE_INDEX)
		return 0;
	return layout_page_offset(g, page);
}

bool blocks_find(struct blocks *blocks, uint64_t offset, uint32_t class, uint64_t *ret_slot,
		 uint64_t *ret_word)
{
	const struct layout_geometry *g = &blocks->pool->geometry;
	struct layout_block header;
	struct layout_hash hash;
	uint64_t table;

	self_read(blocks->pool, offset, &header, sizeof(header));
	if (!header_valid(&header, class))
		return false;
	self_read(blocks->pool, offset + sizeof(header), blocks->words,
		  layout_pad8(header.key_length));
	hash = layout_hash_key(blocks->words, header.key_length, g->hash_seed);
	table = subtable(blocks, hash);
	for (unsigned i = 0; table && i < 2; i++)
		if (find_in_pair(blocks, table + layout_hash_pair(hash, i, g->groups), offset,
				 &header, ret_slot, ret_word))
			return true;
	return false;
}

/* ---- taking a key out ---- */

static uint64_t retire(struct blocks *blocks, uint64_t offset, uint32_t class)
{
	self_store_byte(blocks->pool, layout_free_map_offset(&blocks->pool->geometry, offset),
			MUTATED(MUTATION_EVICT_RETIRE) ? LAYOUT_FREE_AGED : LAYOUT_FREE_RETIRED);
	return layout_class_bytes(class);
}

/* The checked list of a large value's pieces stands in blocks->words. */
static uint64_t retire_extents(struct blocks *blocks)
{
	const struct layout_block *block = (const struct layout_block *)blocks->words;
	const struct layout_extent *list = layout_block_value(block);
	uint64_t count = layout_extents(block->value_length), bytes = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t offset = layout_slot_offset(list[i].where);
		uint32_t class = layout_slot_class(list[i].where);

		if (layout_block_place_valid(&blocks->pool->geometry, offset, class))
			bytes += retire(blocks, offset, class);
	}
	return bytes;
}

enum blocks_result blocks_remove(struct blocks *blocks, uint64_t slot, uint64_t word, bool check,
				 uint64_t *ret_bytes)
{
	const struct layout_block *block = (const struct layout_block *)blocks->words;
	uint64_t offset = layout_slot_offset(word), bytes;
	uint32_t class = layout_slot_class(word);
	struct layout_block header;
	enum blocks_result result = blocks_header(blocks, slot, word, &header);
	bool extents;

	if (result != BLOCKS_DONE)
		return result;
	extents = header.kind == LAYOUT_KIND_EXTENTS;
	if (check || extents) {
		self_read(blocks->pool, offset, blocks->words,
			  layout_pad8(layout_block_bytes(header.kind, header.key_length,
							 header.value_length)));
		if (block->kind != header.kind || !header_fits(block, word) ||
		    !layout_block_valid(block, layout_class_bytes(class), offset))
			return verdict(blocks, slot, word);
	}
	if (self_cas(blocks->pool, slot, word, 0) != word)
		return BLOCKS_CHANGED;
	bytes = retire(blocks, offset, class);
	if (extents)
		bytes += retire_extents(blocks);
	*ret_bytes = bytes;
	return BLOCKS_DONE;
}
