/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check-pages.c - page words and the free map, ready rings, client table
 *
 * A part of check.c. Pages come after the index: what is in use and was not reached by then is a
 * leak, or online a candidate. One finding of each kind for a page, however many blocks it is about.
 * On the thread of check.c's caller. Next to read: check-slot.c.
 */
#include <stdlib.h>

#include "check-internal.h"

/* A client reads a head before it raises it: one of each may pass the tail, four where a page is a block. */
#define HEAD_SLACK (4u * LAYOUT_MAX_CLIENTS)

/* ---- page words ------------------------------------------------------------------------------ */

/* Does the directory name this index page? Its own headers say where to look. */
static bool subtable_reached(const struct check *c, uint32_t page)
{
	uint64_t header = check_load(c, layout_page_offset(&c->geometry, page));
	uint32_t index = layout_suffix(layout_header_suffix(header), layout_header_depth(header));
	struct check_subtable s;

	if (c->page_flags[page] & CHECK_PAGE_SUBTABLE)
		return true;
	return check_subtable_load(c, index, &s) && s.page == page;
}

static bool subtable_empty(const struct check *c, uint32_t page)
{
	uint64_t at = layout_page_offset(&c->geometry, page);

	for (uint32_t i = 0; i < 3 * c->geometry.groups * (1 + LAYOUT_BUCKET_SLOTS); i++) {
		uint32_t state = layout_slot_state(check_load(c, at + 8ull * i));

		if (i % (1 + LAYOUT_BUCKET_SLOTS) &&
		    (state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN))
			return false;
	}
	return true;
}

static bool client_live(const struct check *c, uint32_t slot)
{
	uint64_t word;

	if (slot >= c->geometry.max_clients)
		return false;
	/* state and client id */
	word = check_load(c, layout_client_offset(&c->geometry, slot));
	return (uint32_t)word == LAYOUT_CLIENT_LIVE;
}

static enum check_code owner_judge(struct check *c, uint32_t page, uint64_t at, uint64_t word)
{
	uint32_t owner = layout_page_owner(word), class = layout_page_class(word);

	/* offline nobody owns anything: the daemon makes them orphans when it opens the pool */
	if (!check_online(c) && owner < c->geometry.max_clients)
		return CHECK_NONE;
	if (client_live(c, owner))
		return CHECK_NONE;
	check_fault(c, CHECK_PAGE_OWNER, at,
		    "page %u belongs to client-table slot %u, of %u, where no client is", page,
		    owner, c->geometry.max_clients);
	check_fault_word(c, "page made an orphan", at,
			 layout_page_next(word, LAYOUT_PAGE_ORPHAN, class, 0));
	return c->fault.code;
}

static enum check_code unreached_judge(struct check *c, uint32_t page, uint64_t at, uint64_t word)
{
	if (subtable_reached(c, page))
		return CHECK_NONE;
	check_fault(c, CHECK_SUBTABLE_UNREACHED, at,
		    "page %u is a page of the index, and no directory entry names it%s", page,
		    subtable_empty(c, page) ? "" : "; it has keys, so it is left as it is");
	if (!c->incomplete && subtable_empty(c, page))
		check_fault_word(c, "page freed", at,
				 layout_page_next(word, LAYOUT_PAGE_FREE, 0, 0));
	return c->fault.code;
}

/* Fields that have no meaning in this state. */
static enum check_code fields_judge(struct check *c, uint32_t page, uint64_t at, uint64_t word)
{
	uint32_t state = layout_page_state(word),
		 class = check_page_has_blocks(state) ? layout_page_class(word) : 0,
		 owner = state == LAYOUT_PAGE_SLAB ? layout_page_owner(word) : 0;

	if (class == layout_page_class(word) && owner == layout_page_owner(word))
		return CHECK_NONE;
	check_fault(c, CHECK_PAGE_FIELDS, at,
		    "page %u has state %u, class %u and owner %u: this state has no such class or "
		    "owner",
		    page, state, layout_page_class(word), layout_page_owner(word));
	check_fault_word(c, "fields cleared", at,
			 layout_page_next(word, (enum layout_page_state)state, class, owner));
	return c->fault.code;
}

static enum check_code word_judge(struct check *c, uint32_t page, uint64_t at, uint64_t word)
{
	enum check_code code = CHECK_NONE;

	switch (layout_page_state(word)) {
	case LAYOUT_PAGE_FREE:
	case LAYOUT_PAGE_FULL:
	case LAYOUT_PAGE_PARTIAL:
	case LAYOUT_PAGE_ORPHAN:
		break;
	case LAYOUT_PAGE_INDEX:
		code = unreached_judge(c, page, at, word);
		break;
	case LAYOUT_PAGE_SLAB:
		code = owner_judge(c, page, at, word);
		break;
	default:
		check_fault(c, CHECK_PAGE_STATE, at, "page %u has state %u: there are 0 to 5", page,
			    layout_page_state(word));
		/* what had been reached in it would have made it an orphan */
		if (!c->incomplete)
			check_fault_word(c, "page freed", at,
					 layout_page_next(word, LAYOUT_PAGE_FREE, 0, 0));
		return c->fault.code;
	}
	return code != CHECK_NONE ? code : fields_judge(c, page, at, word);
}

/* ---- the free map ---------------------------------------------------------------------------- */

struct map_count {
	uint32_t count, first; /* unit */
};

struct map_counts {
	uint32_t in_use, retired, aged;
	struct map_count leaks, impossible, gaps;
};

static void note(struct map_count *count, uint32_t unit)
{
	if (count->count++ == 0)
		count->first = unit;
}

static bool unit_reached(const struct check *c, uint32_t page, uint32_t unit)
{
	return check_bit(c->reached, (uint64_t)page * LAYOUT_UNITS_PER_PAGE + unit);
}

static bool unit_begins_block(uint32_t unit, uint32_t class)
{
	uint32_t bytes = layout_class_bytes(class), at = unit * LAYOUT_UNIT;

	return at % bytes == 0 && at + bytes <= LAYOUT_PAGE_BYTES;
}

static void unit_count(const struct check *c, uint32_t page, uint32_t class, uint32_t unit,
		       struct map_counts *counts)
{
	uint8_t byte = c->map[unit];

	if (!unit_begins_block(unit, class)) {
		if (byte)
			note(&counts->gaps, unit);
		return;
	}
	counts->in_use += byte == LAYOUT_FREE_IN_USE;
	counts->retired += byte == LAYOUT_FREE_RETIRED;
	counts->aged += byte == LAYOUT_FREE_AGED;
	if (byte == LAYOUT_FREE_IN_USE && !unit_reached(c, page, unit))
		note(&counts->leaks, unit);
	if (byte > LAYOUT_FREE_RETIRED && !unit_reached(c, page, unit))
		note(&counts->impossible, unit);
}

static uint64_t map_offset(const struct check *c, uint32_t page)
{
	return layout_free_map_offset(&c->geometry, layout_page_offset(&c->geometry, page));
}

/* Sets the bytes of one kind to 0. */
static void map_clear(struct check *c, uint32_t page, uint32_t class, enum check_code code)
{
	uint64_t at = map_offset(c, page);

	for (uint32_t unit = 0; unit < LAYOUT_UNITS_PER_PAGE; unit++) {
		bool begins = unit_begins_block(unit, class);
		uint8_t byte = c->map[unit];

		if (code == CHECK_MAP_FREE_PAGE || (code == CHECK_MAP_GAP && !begins) ||
		    (code == CHECK_LEAK && begins && byte == LAYOUT_FREE_IN_USE) ||
		    (code == CHECK_MAP_BYTE && begins && byte > LAYOUT_FREE_RETIRED))
			if (byte && !unit_reached(c, page, unit))
				check_store_byte(c, at + unit, LAYOUT_FREE_AGED);
	}
}

static void map_found(struct check *c, uint32_t page, uint32_t class, enum check_code code,
		      const struct map_count *count, const char *what)
{
	uint64_t first =
		layout_page_offset(&c->geometry, page) + (uint64_t)count->first * LAYOUT_UNIT;

	if (count->count == 0)
		return;
	check_fault(c, code, first, "page %u: %u %s; the first is at %llu", page, count->count,
		    what, (unsigned long long)first);
	/* where the index could not be walked they may belong to a key */
	if (!c->incomplete)
		c->fault.repair = "marked as aged";
	if (check_found(c))
		map_clear(c, page, class, code);
}

static void map_blocks(struct check *c, uint32_t page, uint32_t class)
{
	struct check_totals *t = &c->totals;
	struct map_counts counts = {0};

	for (uint32_t unit = 0; unit < LAYOUT_UNITS_PER_PAGE; unit++)
		unit_count(c, page, class, unit, &counts);
	if (!c->again) {
		t->blocks_in_use += counts.in_use;
		t->blocks_retired += counts.retired;
		t->blocks_aged += counts.aged;
		t->leaked_blocks += counts.leaks.count;
		t->leaked_bytes += (uint64_t)counts.leaks.count * layout_class_bytes(class);
	}
	map_found(c, page, class, CHECK_MAP_GAP, &counts.gaps,
		  "bytes of the free map are set where no block begins");
	map_found(c, page, class, CHECK_MAP_BYTE, &counts.impossible,
		  "bytes of the free map are above 2");
	/* online they may be a client's */
	if (!check_online(c))
		map_found(c, page, class, CHECK_LEAK, &counts.leaks,
			  "blocks are in use, and nothing reaches them");
}

static void map_no_blocks(struct check *c, uint32_t page)
{
	struct map_count count = {0};

	for (uint32_t unit = 0; unit < LAYOUT_UNITS_PER_PAGE; unit++)
		if (c->map[unit])
			note(&count, unit);
	map_found(c, page, LAYOUT_CLASS_MAX, CHECK_MAP_FREE_PAGE, &count,
		  "bytes of the free map are set in a page without blocks");
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void page_count(struct check *c, uint64_t word)
{
	uint32_t state = layout_page_state(word);

	c->totals.pages++;
	if (state >= LAYOUT_PAGE_STATES)
		return;
	c->totals.by_state[state]++;
	if (check_page_has_blocks(state))
		c->totals.by_class[layout_page_class(word)][state]++;
}

/* Word by word, so that what is judged is what was read; the word is looked at before and after. */
static bool page_load(struct check *c, uint32_t page, uint64_t at, uint64_t *ret_word)
{
	for (unsigned tries = 0; tries < CHECK_TRIES; tries++) {
		uint64_t word = check_load(c, at);

		check_copy(c, map_offset(c, page), c->map, sizeof(c->map));
		if (check_load(c, at) != word)
			continue;
		*ret_word = word;
		return true;
	}
	c->totals.unsettled++;
	return false;
}

void check_page(struct check *c, uint32_t page)
{
	uint64_t at = layout_page_word_offset(&c->geometry, page), word;

	c->object = (struct check_object){.kind = CHECK_OBJECT_PAGE, .index = page};
	if (!page_load(c, page, at, &word))
		return;
	/* each repair of the word may show the next fault */
	while (word_judge(c, page, at, word) != CHECK_NONE && check_found(c))
		word = check_load(c, at);
	if (!c->again)
		page_count(c, word);
	if (c->page_flags[page] & CHECK_PAGE_DISTRUST)
		return;
	if (check_page_has_blocks(layout_page_state(word)))
		map_blocks(c, page, layout_page_class(word));
	else if (layout_page_state(word) < LAYOUT_PAGE_STATES)
		map_no_blocks(c, page);
}

bool check_pages_step(struct check *c)
{
	if (c->next == c->geometry.npages)
		return false;
	check_page(c, c->next++);
	return true;
}

/* ---- ready rings ----------------------------------------------------------------------------- */

static enum check_code head_judge(struct check *c, uint32_t class, uint64_t head, uint64_t tail)
{
	uint64_t at = layout_ring_offset(&c->geometry, class);
	uint32_t entries = c->geometry.ring_entries;

	if (head <= tail ? tail - head <= entries : head - tail <= HEAD_SLACK)
		return CHECK_NONE;
	check_fault(c, CHECK_RING, at,
		    "the ready ring of class %u has head %llu and tail %llu: between them are at "
		    "most its %u entries",
		    class, (unsigned long long)head, (unsigned long long)tail, entries);
	if (head > tail)
		check_fault_word(c, "ring emptied", at + LAYOUT_RING_HEAD, tail);
	else
		check_fault_word(c, "ring emptied", at + LAYOUT_RING_TAIL, head);
	return c->fault.code;
}

static enum check_code entry_judge(struct check *c, uint32_t class, uint64_t ticket, uint64_t head)
{
	uint64_t ring = layout_ring_offset(&c->geometry, class),
		 at = ring + LAYOUT_RING_ENTRIES + 8 * (ticket % c->geometry.ring_entries),
		 entry = check_load(c, at);

	if (layout_ring_ticket(entry) == (uint32_t)ticket &&
	    layout_ring_page(entry) < c->geometry.npages)
		return CHECK_NONE;
	check_fault(c, CHECK_RING_ENTRY, at,
		    "the ready ring of class %u has for ticket %llu page %u and ticket %u: there "
		    "are %u pages",
		    class, (unsigned long long)ticket, layout_ring_page(entry),
		    layout_ring_ticket(entry), c->geometry.npages);
	check_fault_word(c, "ring emptied", ring + LAYOUT_RING_TAIL, head);
	return c->fault.code;
}

void check_ring(struct check *c, uint32_t class)
{
	uint64_t at = layout_ring_offset(&c->geometry, class),
		 head = check_load(c, at + LAYOUT_RING_HEAD),
		 tail = check_load(c, at + LAYOUT_RING_TAIL);

	c->object = (struct check_object){.kind = CHECK_OBJECT_RING, .index = class};
	if (head_judge(c, class, head, tail) != CHECK_NONE) {
		check_found(c);
		return;
	}
	for (uint64_t ticket = head; ticket < tail; ticket++) {
		if (entry_judge(c, class, ticket, head) == CHECK_NONE)
			continue;
		check_found(c);
		return;
	}
}

bool check_rings_step(struct check *c)
{
	if (c->next == LAYOUT_CLASSES)
		return false;
	check_ring(c, c->next++);
	return true;
}

/* ---- client table ---------------------------------------------------------------------------- */

static bool id_known(const struct check *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->client_id_count; i++)
		if (c->client_ids[i] == id)
			return true;
	return false;
}

static enum check_code client_judge(struct check *c, uint32_t slot, uint64_t at, uint64_t word)
{
	uint32_t state = (uint32_t)word, id = (uint32_t)(word >> 32);

	if (state > LAYOUT_CLIENT_LIVE)
		check_fault(c, CHECK_CLIENT_STATE, at, "client-table slot %u has state %u: 0 or 1",
			    slot, state);
	else if (state == LAYOUT_CLIENT_LIVE && id == 0)
		check_fault(c, CHECK_CLIENT_ID, at,
			    "client-table slot %u is taken, and has no client id", slot);
	else if (state == LAYOUT_CLIENT_LIVE && !check_online(c) && id_known(c, id))
		check_fault(c, CHECK_CLIENT_ID, at,
			    "client-table slot %u has client id %u, as another one has", slot, id);
	else
		return CHECK_NONE;
	check_fault_word(c, "slot freed", at, word & ~(uint64_t)UINT32_MAX);
	return c->fault.code;
}

void check_client(struct check *c, uint32_t slot)
{
	uint64_t at = layout_client_offset(&c->geometry, slot), word = check_load(c, at);

	c->object = (struct check_object){.kind = CHECK_OBJECT_CLIENT, .index = slot};
	if (client_judge(c, slot, at, word) != CHECK_NONE) {
		check_found(c);
		return;
	}
	if (c->again || (uint32_t)word != LAYOUT_CLIENT_LIVE)
		return;
	c->totals.clients++;
	c->client_ids[c->client_id_count++] = (uint32_t)(word >> 32);
}

bool check_clients_step(struct check *c)
{
	if (c->next == c->geometry.max_clients)
		return false;
	check_client(c, c->next++);
	return true;
}
