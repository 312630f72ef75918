/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shadow.c - a map of blocks beside the pool; see shadow.h
 *
 * Times are the simulation's own, so T2's grace is counted with the party's clock at its fastest
 * (SIM_DRIFT_MAX). Blocks of extents are reached through other blocks: what they need is in
 * structure.c. Next: structure.c, the pool at the end.
 */
#include "shadow.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 1024u /* a power of two; a schedule uses some tens */

struct block {
	uint64_t offset; /* 0: nothing */
	uint32_t named;  /* by so many slots: pending, committed, frozen */
	uint64_t since_ns, since_epoch; /* `named` is 0; 0: never was named */
};

struct shadow {
	struct block blocks[BLOCKS];
	uint32_t used[BLOCKS], used_count;
};

struct shadow *shadow_create(void)
{
	return calloc(1, sizeof(struct shadow));
}

void shadow_free(struct shadow *shadow)
{
	free(shadow);
}

void shadow_reset(struct shadow *s)
{
	for (uint32_t i = 0; i < s->used_count; i++)
		s->blocks[s->used[i]] = (struct block){0};
	s->used_count = 0;
}

static void violation(struct sim *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void violation(struct sim *sim, const char *format, ...)
{
	va_list args;

	if (sim->violation[0])
		return;
	va_start(args, format);
	vsnprintf(sim->violation, sizeof(sim->violation), format, args);
	va_end(args);
}

static const char *name(uint32_t slot, char buffer[32])
{
	if (slot == SHADOW_DAEMON)
		return "the daemon";
	snprintf(buffer, 32, "client in slot %u", slot);
	return buffer;
}

static struct block *find(struct shadow *s, uint64_t offset, bool make)
{
	uint32_t i = (uint32_t)(offset / LAYOUT_UNIT * 0x9e3779b1u) % BLOCKS;

	while (s->blocks[i].offset && s->blocks[i].offset != offset)
		i = (i + 1) % BLOCKS;
	if (s->blocks[i].offset)
		return &s->blocks[i];
	if (!make)
		return NULL;
	if (s->used_count == BLOCKS / 2)
		abort(); /* scenario.c makes no such pool */
	s->used[s->used_count++] = i;
	s->blocks[i].offset = offset;
	return &s->blocks[i];
}

static bool names(uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	return state >= LAYOUT_SLOT_PENDING && state <= LAYOUT_SLOT_FROZEN;
}

void shadow_slot(struct sim *sim, uint64_t before, uint64_t after)
{
	struct block *b;

	if (names(after))
		find(sim->shadow, layout_slot_offset(after), true)->named++;
	if (!names(before))
		return;
	b = find(sim->shadow, layout_slot_offset(before), true);
	if (b->named)
		b->named--;
	if (b->named == 0) {
		b->since_ns = sim->now_ns;
		b->since_epoch = sim_epoch(sim);
	}
}

/* The block around an offset, by its page's class; 0 when the page has no blocks. */
static uint64_t block_of(const struct sim *sim, uint64_t offset, uint64_t *ret_word)
{
	const struct layout_geometry *g = &sim->geometry;
	uint32_t page = layout_offset_page(g, offset);
	uint64_t word = sim_word(sim, layout_page_word_offset(g, page)),
		 start = layout_page_offset(g, page);
	uint32_t bytes = layout_class_bytes(layout_page_class(word));

	*ret_word = word;
	if (layout_page_state(word) == LAYOUT_PAGE_INDEX ||
	    layout_page_state(word) == LAYOUT_PAGE_FREE)
		return 0;
	return start + (offset - start) / bytes * bytes;
}

/* T2: reachable no more, for G and two epochs. */
static bool rested(const struct sim *sim, const struct block *b)
{
	uint64_t least = sim->geometry.grace_ns - sim->geometry.grace_ns * SIM_DRIFT_MAX / 1024;

	return !b || b->since_ns == 0 ||
	       (sim->now_ns - b->since_ns >= least && sim_epoch(sim) >= b->since_epoch + 2);
}

void shadow_write(struct sim *sim, uint32_t slot, uint64_t offset)
{
	uint64_t word, start = block_of(sim, offset, &word);
	const struct block *b;

	if (!start || layout_page_state(word) != LAYOUT_PAGE_SLAB ||
	    layout_page_owner(word) != slot) {
		violation(sim, "client in slot %u writes to %llx, whose page word is %llx", slot,
			  (unsigned long long)offset, (unsigned long long)word);
		return;
	}
	b = find(sim->shadow, start, false);
	if (b && b->named)
		violation(sim, "client in slot %u writes to block %llx, which the index names",
			  slot, (unsigned long long)start);
	else if (!rested(sim, b))
		violation(sim,
			  "client in slot %u writes to block %llx %llu us and %llu epochs after the "
			  "index named it",
			  slot, (unsigned long long)start,
			  (unsigned long long)(sim->now_ns - b->since_ns) / 1000,
			  (unsigned long long)(sim_epoch(sim) - b->since_epoch));
}

void shadow_add(struct sim *sim, const char *who, uint64_t offset)
{
	uint64_t word, start;

	if (offset < sim->geometry.pages_offset)
		return;
	start = block_of(sim, offset, &word);
	if (!start || !layout_class_is_counter(layout_page_class(word)) ||
	    sim->pool[layout_free_map_offset(&sim->geometry, start)] == LAYOUT_FREE_AGED)
		violation(sim, "%s adds to %llx, whose block was given away (page word %llx)", who,
			  (unsigned long long)offset, (unsigned long long)word);
}

void shadow_map(struct sim *sim, uint32_t slot, uint64_t offset, uint8_t value)
{
	const struct layout_geometry *g = &sim->geometry;
	uint64_t word, start = block_of(sim,
					g->pages_offset + (offset - g->free_map_offset) * LAYOUT_UNIT,
					&word);
	uint32_t state = layout_page_state(word);
	const struct block *b = start ? find(sim->shadow, start, false) : NULL;
	char who[32];
	bool own = slot == SHADOW_DAEMON
			   ? state == LAYOUT_PAGE_FULL || state == LAYOUT_PAGE_ORPHAN
			   : state == LAYOUT_PAGE_SLAB && layout_page_owner(word) == slot;

	if (value == LAYOUT_FREE_RETIRED && b &&
	    (b->named || sim->pool[offset] == LAYOUT_FREE_AGED))
		violation(sim, "%s retires block %llx, which %s", name(slot, who), (unsigned long long)start,
			  b->named ? "the index names" : "was given away");
	if (value == LAYOUT_FREE_RETIRED)
		return;
	if (!own)
		violation(sim, "%s writes %u into the free map of block %llx, page word %llx",
			  name(slot, who), value, (unsigned long long)start, (unsigned long long)word);
	else if (value == LAYOUT_FREE_AGED && b && (b->named || !rested(sim, b)))
		violation(sim, "%s gives block %llx away %s", name(slot, who), (unsigned long long)start,
			  b->named ? "while the index names it" : "before it has rested");
}

void shadow_misled(struct sim *sim, uint32_t slot, uint64_t offset)
{
	violation(sim, "client in slot %u goes for page %llu, which an entry of another ticket names", slot,
		  (unsigned long long)(offset - sim->geometry.page_table_offset) / 8);
}
