/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A batch of pages with a bit for each block that is "in use" and not reached; see candidates.h.
 * Main thread, called by sweep.c.
 */
#include <stdlib.h>

#include "candidates.h"
#include "layout.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"

/* Of a page: its word, then the bits of its blocks. */
#define WORDS_MAX (1 + LAYOUT_UNITS_PER_PAGE / 64)

struct candidates {
	const struct pool *pool;
	uint32_t *at; /* per page: where in `store` it begins; 0: not noted */
	uint64_t *store;
	uint32_t size, used; /* words */
};

/* What is not touched of these costs no memory. */
struct candidates *candidates_create(const struct pool *pool, uint64_t bytes)
{
	struct candidates *candidates = calloc(1, sizeof(*candidates));
	uint64_t most = 1 + (uint64_t)pool->geometry.npages * WORDS_MAX;

	if (!candidates)
		return NULL;
	candidates->pool = pool;
	candidates->size = (uint32_t)(bytes / 8 < most ? bytes / 8 : most);
	candidates->used = 1;
	candidates->at = calloc(pool->geometry.npages, sizeof(*candidates->at));
	candidates->store = calloc(candidates->size, sizeof(*candidates->store));
	if (!candidates->at || !candidates->store) {
		candidates_free(candidates);
		return NULL;
	}
	return candidates;
}

void candidates_free(struct candidates *candidates)
{
	if (!candidates)
		return;
	free(candidates->at);
	free(candidates->store);
	free(candidates);
}

static uint32_t words_of(uint64_t word)
{
	return 1 + (layout_class_blocks(layout_page_class(word)) + 63) / 64;
}

/* Garbage in the map is left alone, as by everybody. */
static bool note_blocks(const struct pool *pool, uint32_t page, uint32_t class, uint64_t *bits)
{
	uint64_t offset = pool->geometry.free_map_offset + (uint64_t)page * LAYOUT_UNITS_PER_PAGE;
	uint32_t blocks = layout_class_blocks(class), step = layout_class_bytes(class) / LAYOUT_UNIT;
	uint8_t map[LAYOUT_UNITS_PER_PAGE];
	bool any = false;

	self_read(pool, offset, map, sizeof(map));
	for (uint32_t i = 0; i < blocks; i++) {
		if (map[i * step] != LAYOUT_FREE_IN_USE && !MUTATED(MUTATION_SWEEP_ORDER))
			continue;
		bits[i / 64] |= 1ull << i % 64;
		any = true;
	}
	return any;
}

enum candidates_result candidates_add(struct candidates *candidates, uint32_t page, uint64_t word)
{
	uint32_t words = words_of(word);
	uint64_t *own = candidates->store + candidates->used;
	bool any;

	if (words > candidates->size - candidates->used)
		return CANDIDATES_FULL;
	any = note_blocks(candidates->pool, page, layout_page_class(word), own + 1);
	if (!any && layout_page_state(word) != LAYOUT_PAGE_ORPHAN)
		return CANDIDATES_NOTHING;
	own[0] = word;
	candidates->at[page] = candidates->used;
	candidates->used += words;
	return CANDIDATES_ADDED;
}

/* Whatever class the slot claims: all of the page's blocks that it touches count as reached. */
void candidates_strike(struct candidates *candidates, uint64_t offset, uint32_t class)
{
	const struct layout_geometry *g = &candidates->pool->geometry;
	uint32_t page = layout_offset_page(g, offset), at = candidates->at[page];
	uint64_t inside = (offset - g->pages_offset) % LAYOUT_PAGE_BYTES;
	uint32_t block_bytes, blocks, first, last;

	if (!at)
		return;
	block_bytes = layout_class_bytes(layout_page_class(candidates->store[at]));
	blocks = LAYOUT_PAGE_BYTES / block_bytes;
	first = (uint32_t)inside / block_bytes;
	last = ((uint32_t)inside + layout_class_bytes(class) - 1) / block_bytes;
	for (uint32_t i = first; i <= last && i < blocks; i++)
		candidates->store[at + 1 + i / 64] &= ~(1ull << i % 64);
}

bool candidates_word(const struct candidates *candidates, uint32_t page, uint64_t *ret_word)
{
	uint32_t at = candidates->at[page];

	if (!at)
		return false;
	*ret_word = candidates->store[at];
	return true;
}

bool candidates_left(const struct candidates *candidates, uint32_t page, uint32_t block)
{
	return candidates->store[candidates->at[page] + 1 + block / 64] >> block % 64 & 1;
}

bool candidates_any_left(const struct candidates *candidates, uint32_t page)
{
	uint32_t at = candidates->at[page], words = words_of(candidates->store[at]);

	for (uint32_t i = 1; i < words; i++)
		if (candidates->store[at + i])
			return true;
	return false;
}
