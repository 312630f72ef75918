/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps a pool going; see keeper.h. Main thread. It walks over the page table again and again, a
 * bounded piece per step, and beside that raises the epoch and counts keys. Pages are moved on by
 * CAS of their word alone, and a map byte is written in full pages only: there nobody else changes
 * it but from "in use" to "retired". ring.c has the ready rings. Read docs/protocol.md section 6
 * with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "err.h"
#include "keeper.h"
#include "pool.h"
#include "ring.h"
#include "self.h"

#define STEP_NS         1000000u  /* a step works this long, and a bit */
#define PAUSE_NS        2000000u  /* between two steps of one walk */
#define HURRY_NS        2000000u  /* how long keeper_hurry() works */
#define HURRY_GAP       20000000u /* and how seldom */
#define KEYS_NS         1000000000u
#define KEYS_SHARE      400u /* counting keys takes at most this part of the time */
#define KEYS_SHARE_SOON 10u
#define WALK_SHARE      5u
#define NOTES_BYTES     (16u << 20)
#define RETIRED_MASK    0x0202020202020202ull

/* Which blocks of a full page were retired when, for T2. Good as long as the page word is this one.
 */
struct note {
	uint64_t word;
	uint64_t seen_ns, seen_epoch;
	uint32_t bytes; /* of the struct */
	uint8_t bits[];
};

/* What is known of one page. */
struct page {
	uint64_t word; /* for which the numbers of blocks were counted */
	struct note *note;
	uint16_t aged, in_use, retired; /* at most 4096 each */
	bool counted;
};

struct keeper {
	struct pool *pool;
	const struct log *log;
	struct ring *ring;
	struct page *pages;
	size_t note_bytes;
	uint64_t epoch_due_ns;
	uint32_t walk_page; /* the walk goes on here */
	uint64_t walk_due_ns, walk_began_ns, walk_worked_ns;
	uint64_t free_pages, free_pages_now; /* in the last walk, in this one */
	/* full pages that will be free once what is retired in them has aged; likewise */
	uint64_t resting_pages, resting_pages_now;
	struct keeper_blocks blocks_now[LAYOUT_CLASSES];
	uint32_t keys_page;
	uint64_t keys_due_ns, keys_worked_ns, keys_now, keys_counted_ns;
	uint64_t hurry_ns; /* not before */
	struct keeper_stats stats;
};

int keeper_create(struct pool *pool, const struct log *log, struct keeper **ret_keeper)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));

	if (!keeper)
		return err_set(-ENOMEM, "out of memory");
	keeper->pool = pool;
	keeper->log = log;
	keeper->pages = calloc(pool->geometry.npages, sizeof(*keeper->pages));
	keeper->ring = ring_create(pool);
	if (!keeper->pages || !keeper->ring) {
		keeper_free(keeper);
		return err_set(-ENOMEM, "out of memory");
	}
	keeper->stats.epoch = 1; /* as layout_format() has it */
	keeper->free_pages = pool->geometry.npages;
	*ret_keeper = keeper;
	return 0;
}

void keeper_free(struct keeper *keeper)
{
	if (!keeper)
		return;
	for (uint32_t i = 0; keeper->pages && i < keeper->pool->geometry.npages; i++)
		free(keeper->pages[i].note);
	free(keeper->pages);
	ring_free(keeper->ring);
	free(keeper);
}

/* ---- epoch ---- */

/* Never more often than every E; who is late does not catch up. The daemon alone writes the word:
 * what it says is our number. */
static void epoch_step(struct keeper *keeper, uint64_t now)
{
	if (keeper->epoch_due_ns == 0)
		keeper->epoch_due_ns = now + keeper->pool->geometry.epoch_ns;
	if (now < keeper->epoch_due_ns)
		return;
	keeper->stats.epoch++;
	self_store(keeper->pool, LAYOUT_EPOCH_OFFSET, keeper->stats.epoch);
	keeper->epoch_due_ns = now + keeper->pool->geometry.epoch_ns;
}

/* ---- a page's free map ---- */

static uint64_t map_offset(const struct keeper *keeper, uint32_t page)
{
	return keeper->pool->geometry.free_map_offset + (uint64_t)page * LAYOUT_UNITS_PER_PAGE;
}

static uint64_t byte_offset(const struct keeper *keeper, uint32_t page, uint32_t class,
			    uint32_t block)
{
	return map_offset(keeper, page) + (uint64_t)block * layout_class_bytes(class) / LAYOUT_UNIT;
}

/* Is any byte of the map "retired"? A word at a time, since most pages have none. */
static bool any_retired(const struct keeper *keeper, uint32_t page)
{
	uint64_t offset = map_offset(keeper, page);

	for (uint32_t i = 0; i < LAYOUT_UNITS_PER_PAGE; i += 8)
		if (self_load(keeper->pool, offset + i) & RETIRED_MASK)
			return true;
	return false;
}

/*
 * Counts a page's blocks. As long as the page word is the same, blocks become "in use" only in a
 * client's slab, and leave it only by "retired" (or by us, who count then), so a full or partial
 * page without a retired byte needs no second look.
 */
static void count(struct keeper *keeper, uint32_t number, uint64_t word)
{
	struct page *page = &keeper->pages[number];
	uint32_t class = layout_page_class(word), blocks = layout_class_blocks(class);
	uint16_t counts[3] = {0};

	if (page->counted && page->word == word && page->retired == 0 &&
	    layout_page_state(word) != LAYOUT_PAGE_SLAB && !any_retired(keeper, number))
		return;
	for (uint32_t i = 0; i < blocks; i++) {
		uint8_t byte = self_load_byte(keeper->pool, byte_offset(keeper, number, class, i));

		counts[byte <= LAYOUT_FREE_RETIRED
			       ? byte
			       : LAYOUT_FREE_IN_USE]++; /* garbage: better never used again */
	}
	page->word = word;
	page->aged = counts[LAYOUT_FREE_AGED];
	page->in_use = counts[LAYOUT_FREE_IN_USE];
	page->retired = counts[LAYOUT_FREE_RETIRED];
	page->counted = true;
}

/* ---- ageing ---- */

static void note_drop(struct keeper *keeper, struct page *page)
{
	if (!page->note)
		return;
	keeper->note_bytes -= page->note->bytes;
	free(page->note);
	page->note = NULL;
}

/* Notes what is retired now. Without memory the page waits for a later walk. */
static void note_take(struct keeper *keeper, uint32_t number, uint64_t word, uint64_t now)
{
	struct page *page = &keeper->pages[number];
	uint32_t class = layout_page_class(word), blocks = layout_class_blocks(class);
	uint32_t bytes = (uint32_t)sizeof(struct note) + (blocks + 7) / 8;
	struct note *note;

	note_drop(keeper, page);
	if (keeper->note_bytes + bytes > NOTES_BYTES || !(note = calloc(1, bytes)))
		return;
	note->word = word;
	note->seen_ns = now;
	note->seen_epoch = keeper->stats.epoch;
	note->bytes = bytes;
	for (uint32_t i = 0; i < blocks; i++)
		if (self_load_byte(keeper->pool, byte_offset(keeper, number, class, i)) ==
		    LAYOUT_FREE_RETIRED)
			note->bits[i / 8] |= (uint8_t)(1u << i % 8);
	keeper->note_bytes += bytes;
	page->note = note;
}

/* T2: seen retired G ago, and the epoch has gone up by two since. */
static bool note_ripe(const struct keeper *keeper, const struct note *note, uint64_t now)
{
	return now - note->seen_ns >= keeper->pool->geometry.grace_ns &&
	       keeper->stats.epoch >= note->seen_epoch + 2;
}

/* Full pages alone, so the bytes that we write are nobody else's. */
static void age(struct keeper *keeper, uint32_t number, uint64_t word, uint64_t now)
{
	struct page *page = &keeper->pages[number];
	uint32_t class = layout_page_class(word), blocks = layout_class_blocks(class);

	if (page->note && page->note->word != word)
		note_drop(keeper, page);
	if (page->note && note_ripe(keeper, page->note, now)) {
		for (uint32_t i = 0; i < blocks; i++) {
			uint64_t offset = byte_offset(keeper, number, class, i);

			if (!(page->note->bits[i / 8] & 1u << i % 8) ||
			    self_load_byte(keeper->pool, offset) != LAYOUT_FREE_RETIRED)
				continue;
			self_store_byte(keeper->pool, offset, LAYOUT_FREE_AGED);
			page->retired--;
			page->aged++;
			keeper->stats.blocks_aged++;
		}
		note_drop(keeper, page);
	}
	if (page->retired > 0 && !page->note)
		note_take(keeper, number, word, now);
}

/* ---- moving pages on ---- */

static bool scarce(const struct keeper *keeper)
{
	return keeper->free_pages < keeper->pool->geometry.npages / 16 + 1;
}

static void push(struct keeper *keeper, uint32_t class, uint32_t number)
{
	switch (ring_push(keeper->ring, class, number)) {
	case RING_PUSHED:
		keeper->stats.pages_pushed++;
		break;
	case RING_DAMAGED:
		keeper->stats.damaged++;
		log_warning(keeper->log,
			    "pool %s: the ready ring of size class %u has an impossible head: a "
			    "client has scribbled over it",
			    keeper->pool->name, class);
		break;
	case RING_FULL: /* comes again in the next walk */
	case RING_NAMED:
		break;
	}
}

/* True if the page has become partial or free. */
static bool full_page(struct keeper *keeper, uint32_t number, uint64_t word, uint64_t now,
		      bool hurry)
{
	struct page *page = &keeper->pages[number];
	uint32_t class = layout_page_class(word),
		 enough = hurry ? 1 : (layout_class_blocks(class) + 3) / 4;

	count(keeper, number, word);
	/* counters' blocks age by another rule, in a later version */
	if (layout_class_is_counter(class))
		return false;
	age(keeper, number, word, now);
	if (page->in_use == 0 && page->retired > 0)
		keeper->resting_pages_now++;
	if (page->in_use == 0 && page->retired == 0) {
		if (!pool_cas_page_word(keeper->pool, number, word,
					layout_page_next(word, LAYOUT_PAGE_FREE, 0, 0)))
			return false;
		note_drop(keeper, page);
		keeper->stats.pages_freed++;
		/* any class may have it; this one has used memory and is likely to want it again,
		 * and through the ring it gets it without asking us */
		push(keeper, class, number);
		keeper->free_pages_now++;
		return true;
	}
	if (page->aged < enough ||
	    !pool_cas_page_word(keeper->pool, number, word,
				layout_page_next(word, LAYOUT_PAGE_PARTIAL, class, 0)))
		return false;
	note_drop(keeper, page);
	keeper->stats.pages_partial++;
	push(keeper, class, number);
	return true;
}

/*
 * A partial page waits to be claimed. When it has as much to recycle that this is worth the wait,
 * or nothing to give at all, it is taken back to full first: only there may we write its map. A
 * claim that comes between wins the CAS.
 */
static void partial_page(struct keeper *keeper, uint32_t number, uint64_t word, bool hurry)
{
	struct page *page = &keeper->pages[number];
	uint32_t class = layout_page_class(word), blocks = layout_class_blocks(class);
	bool back;

	count(keeper, number, word);
	back = page->in_use == 0 || page->aged == 0 || page->retired >= (blocks + 3) / 4 ||
	       (hurry && page->retired > 0);
	if (back && !layout_class_is_counter(class)) {
		pool_cas_page_word(keeper->pool, number, word,
				   layout_page_next(word, LAYOUT_PAGE_FULL, class, 0));
		return; /* the next walk goes on with it */
	}
	push(keeper, class, number);
}

static void blocks_add(struct keeper *keeper, uint32_t number, uint32_t class)
{
	struct keeper_blocks *blocks = &keeper->blocks_now[class];
	const struct page *page = &keeper->pages[number];

	blocks->aged += page->aged;
	blocks->in_use += page->in_use;
	blocks->retired += page->retired;
}

/* True if the page has become partial or free. */
static bool page_step(struct keeper *keeper, uint32_t number, uint64_t now, bool hurry)
{
	uint64_t word = pool_load_page_word(keeper->pool, number);
	uint32_t class = layout_page_class(word);
	bool moved = false;

	switch (layout_page_state(word)) {
	case LAYOUT_PAGE_FREE:
		keeper->free_pages_now++;
		return false;
	case LAYOUT_PAGE_INDEX:
		return false;
	case LAYOUT_PAGE_SLAB:
	case LAYOUT_PAGE_ORPHAN: /* waits for the sweep, in a later version */
		count(keeper, number, word);
		break;
	case LAYOUT_PAGE_FULL:
		moved = full_page(keeper, number, word, now, hurry);
		break;
	case LAYOUT_PAGE_PARTIAL:
		partial_page(keeper, number, word, hurry);
		break;
	default:
		keeper->stats.damaged++;
		return false;
	}
	blocks_add(keeper, number, class);
	return moved;
}

/* ---- the walk over all pages ---- */

static void walk_begin(struct keeper *keeper, uint64_t now)
{
	keeper->walk_page = 0;
	keeper->walk_began_ns = now;
	keeper->walk_worked_ns = 0;
	keeper->free_pages_now = 0;
	keeper->resting_pages_now = 0;
	for (uint32_t i = 0; i < LAYOUT_CLASSES; i++)
		keeper->blocks_now[i] = (struct keeper_blocks){0};
}

/* Twice in G, so that blocks rest little longer than they must; but not all day long in a huge
 * pool. */
static void walk_end(struct keeper *keeper)
{
	uint64_t pause = keeper->pool->geometry.grace_ns / 2;

	if (pause < WALK_SHARE * keeper->walk_worked_ns)
		pause = WALK_SHARE * keeper->walk_worked_ns;
	keeper->walk_due_ns = keeper->walk_began_ns + pause;
	keeper->walk_page = 0;
	keeper->free_pages = keeper->free_pages_now;
	keeper->resting_pages = keeper->resting_pages_now;
	keeper->stats.passes++;
	for (uint32_t i = 0; i < LAYOUT_CLASSES; i++)
		keeper->stats.blocks[i] = keeper->blocks_now[i];
}

/* Returns true if a page has moved on. */
static bool walk(struct keeper *keeper, uint64_t now, uint64_t budget_ns, bool hurry)
{
	uint64_t began = clock_now_ns(), worked = 0;
	bool moved = false;

	if (keeper->walk_page == 0)
		walk_begin(keeper, now);
	while (keeper->walk_page < keeper->pool->geometry.npages && worked < budget_ns) {
		if (page_step(keeper, keeper->walk_page++, now, hurry))
			moved = true;
		if (keeper->walk_page % 16 == 0)
			worked = clock_now_ns() - began;
	}
	keeper->walk_worked_ns += clock_now_ns() - began;
	if (keeper->walk_page == keeper->pool->geometry.npages)
		walk_end(keeper);
	return moved;
}

/* ---- counting keys ---- */

static uint64_t count_keys(const struct keeper *keeper, uint32_t page)
{
	const struct layout_geometry *g = &keeper->pool->geometry;
	uint64_t offset = layout_page_offset(g, page), keys = 0;

	for (uint32_t bucket = 0; bucket < 3 * g->groups; bucket++, offset += LAYOUT_BUCKET_BYTES) {
		for (uint32_t slot = 1; slot <= LAYOUT_BUCKET_SLOTS;
		     slot++) { /* word 0 is the header */
			uint32_t state =
				layout_slot_state(self_load(keeper->pool, offset + 8ull * slot));

			keys += state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN;
		}
	}
	return keys;
}

static void keys_step(struct keeper *keeper, uint64_t now)
{
	uint64_t began = clock_now_ns(), worked = 0, pause;

	if (keeper->keys_page == 0)
		keeper->keys_now = keeper->keys_worked_ns = 0;
	while (keeper->keys_page < keeper->pool->geometry.npages && worked < STEP_NS) {
		uint32_t page = keeper->keys_page++;

		if (layout_page_state(pool_load_page_word(keeper->pool, page)) == LAYOUT_PAGE_INDEX)
			keeper->keys_now += count_keys(keeper, page);
		worked = clock_now_ns() - began;
	}
	keeper->keys_worked_ns += worked;
	if (keeper->keys_page < keeper->pool->geometry.npages)
		return;
	keeper->keys_page = 0;
	keeper->stats.keys = keeper->keys_now;
	keeper->stats.key_counts++;
	keeper->keys_counted_ns = now;
	pause = KEYS_SHARE * keeper->keys_worked_ns;
	keeper->keys_due_ns = now + (pause > KEYS_NS ? pause : KEYS_NS);
}

void keeper_count_soon(struct keeper *keeper)
{
	uint64_t due = keeper->keys_counted_ns + KEYS_SHARE_SOON * keeper->keys_worked_ns;

	if (due < keeper->keys_due_ns)
		keeper->keys_due_ns = due;
}

/* ---- steps ---- */

uint64_t keeper_step(struct keeper *keeper, uint64_t now)
{
	uint64_t next;

	epoch_step(keeper, now);
	if (keeper->walk_page > 0 || now >= keeper->walk_due_ns)
		walk(keeper, now, STEP_NS, scarce(keeper));
	else if (keeper->keys_page > 0 || now >= keeper->keys_due_ns)
		keys_step(keeper, now);
	if (keeper->walk_page > 0 || keeper->keys_page > 0)
		return PAUSE_NS;
	next = keeper->epoch_due_ns < keeper->walk_due_ns ? keeper->epoch_due_ns
							  : keeper->walk_due_ns;
	if (keeper->keys_due_ns < next)
		next = keeper->keys_due_ns;
	return next > now + PAUSE_NS ? next - now : PAUSE_NS;
}

bool keeper_hurry(struct keeper *keeper, uint64_t now)
{
	if (now < keeper->hurry_ns)
		return false;
	keeper->hurry_ns = now + HURRY_GAP;
	return walk(keeper, now, HURRY_NS, true);
}

uint64_t keeper_resting(const struct keeper *keeper, uint32_t class)
{
	uint64_t blocks = layout_class_is_counter(class) ? 0 : keeper->stats.blocks[class].retired;

	return blocks + keeper->resting_pages;
}

void keeper_get_stats(const struct keeper *keeper, uint64_t now, struct keeper_stats *ret_stats)
{
	*ret_stats = keeper->stats;
	ret_stats->keys_age_ns = keeper->stats.key_counts ? now - keeper->keys_counted_ns : 0;
}
