/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that comes back: blocks age, pages move on; see recycle.h. Main thread, called by keeper.c.
 * It walks over the page table again and again, a bounded piece per step. Pages are moved on by CAS
 * of their word alone, and a map byte is written in full pages only: there nobody else changes it
 * but from "in use" to "retired". ring.c has the ready rings, sweep.c finds what nobody retires. Read
 * docs/protocol.md section 6 with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "err.h"
#include "events.h"
#include "free-map.h"
#include "mutation.h"
#include "pool.h"
#include "quiescence.h"
#include "recycle.h"
#include "ring.h"
#include "self.h"

#define STEP_NS     1000000u    /* a step works this long, and a bit */
#define HURRY_NS    2000000u    /* how long recycle_hurry() works */
#define HURRY_GAP   20000000u   /* and how seldom */
#define WALK_SHARE  16u         /* the walk takes this part of the time at most */
#define IDLE_MAX    4u          /* a page where nothing happens is looked at in one of 2^4 walks */
#define ASKED_NS    2000000000u /* so long it matters that somebody has waited for memory */
#define HELD_UP_NS  3000000000u /* clients that run raise their counts twice within this */
#define NOTES_BYTES (16u << 20)
#define TELL_NS     10000000000u /* so seldom it is told of damage */

/* Which blocks of a full page were retired when, for T2. Good as long as the page word is this one.
 */
struct note {
	uint64_t word;
	uint64_t seen_ns, seen_epoch;
	uint64_t round;  /* a counters' page: of the quiescence sample that has to pass */
	uint32_t bytes;  /* of the struct */
	uint64_t bits[]; /* of free-map.h */
};

/* What is known of one page. */
struct page {
	uint64_t word; /* for which the numbers of blocks were counted */
	struct note *note;
	struct free_map_counts counts;
	bool counted;
	uint8_t idle; /* so often in a row nothing had happened */
	uint8_t skip; /* walks that do not look at it */
};

struct recycle {
	struct pool *pool;
	struct ring *ring;
	struct page *pages;
	size_t note_bytes;
	uint64_t epoch;   /* of the step that runs */
	uint64_t now_ns;  /* its beginning */
	bool scarce;      /* there are few free pages */
	uint64_t told_ns; /* when damage was told last; 0: never */
	uint32_t
		asked; /* the step is for a client that found no page for this class; POOL_NONE: it is not */
	/* Counters: samples of the quiescence counts, one after the other as long as there is need. */
	struct quiescence *quiescence;
	enum { ROUND_NONE, ROUND_SAMPLE, ROUND_WAIT } round_state;
	uint64_t round, round_passed; /* number of the last one begun, of the last one passed */
	uint64_t round_wanted;        /* the highest that a note waits for */
	uint64_t round_began_ns;
	struct free_map *map;
	uint32_t map_page;  /* whose bytes these are, if they were read in this look at it */
	uint32_t walk_page; /* the walk goes on here */
	uint64_t walk_due_ns, walk_began_ns, walk_worked_ns;
	uint64_t free_pages, free_pages_now; /* in the last walk, in this one */
	uint64_t orphans, orphans_now;       /* likewise */
	/* full pages that will be free once what is retired in them has aged; likewise */
	uint64_t resting_pages, resting_pages_now;
	struct recycle_blocks blocks_now[LAYOUT_CLASSES];
	struct recycle_blocks spare[LAYOUT_CLASSES], spare_now[LAYOUT_CLASSES]; /* without slabs */
	uint64_t hurry_ns;                                                      /* not before */
	/* pages of this step's walk that are to become free, all by one post */
	struct self_change freed[SELF_CHANGES_MAX];
	uint32_t freed_numbers[SELF_CHANGES_MAX];
	unsigned freed_count;
	/* when a client has found no page last, and nothing rested that it could wait for; 0: never */
	uint64_t asked_ns;
	struct recycle_stats stats;
};

int recycle_create(struct pool *pool, struct recycle **ret_recycle)
{
	struct recycle *recycle = calloc(1, sizeof(*recycle));

	if (!recycle)
		return err_set(-ENOMEM, "out of memory");
	recycle->pool = pool;
	recycle->pages = calloc(pool->geometry.npages, sizeof(*recycle->pages));
	recycle->ring = ring_create(pool);
	recycle->map = free_map_create(pool);
	recycle->quiescence = quiescence_create(pool);
	if (!recycle->pages || !recycle->ring || !recycle->map || !recycle->quiescence) {
		recycle_free(recycle);
		return err_set(-ENOMEM, "out of memory");
	}
	recycle->free_pages = pool->geometry.npages;
	*ret_recycle = recycle;
	return 0;
}

void recycle_free(struct recycle *recycle)
{
	if (!recycle)
		return;
	for (uint32_t i = 0; recycle->pages && i < recycle->pool->geometry.npages; i++)
		free(recycle->pages[i].note);
	free(recycle->pages);
	ring_free(recycle->ring);
	free_map_free(recycle->map);
	quiescence_free(recycle->quiescence);
	free(recycle);
}

/* ---- counting ---- */

/* The next look comes later each time; when memory is scarce nobody asks for that. */
static void nothing_new(struct page *page)
{
	if (page->idle < IDLE_MAX)
		page->idle++;
	page->skip = (uint8_t)((1u << page->idle) - 1);
}

static void count_now(struct recycle *recycle, uint32_t number, uint64_t word)
{
	struct page *page = &recycle->pages[number];

	free_map_read(recycle->map, number, layout_page_class(word));
	recycle->map_page = number;
	page->word = word;
	page->counts = free_map_count(recycle->map);
	page->counted = true;
}

/*
 * Counts a page's blocks, unless nothing has happened to it for a while. As long as the page word is
 * the same, blocks become "in use" only in a client's slab, and leave it only by "retired" (or by us,
 * who count then): numbers that are old show too little retired, never too little in use.
 */
static void count(struct recycle *recycle, uint32_t number, uint64_t word, bool hurry)
{
	struct page *page = &recycle->pages[number];
	bool same = page->counted && page->word == word;
	uint16_t retired = page->counts.retired;

	if (same && page->skip > 0 && !hurry) {
		page->skip--;
		return;
	}
	count_now(recycle, number, word);
	if (same && page->counts.retired == retired)
		nothing_new(page);
	else
		page->idle = page->skip = 0;
}

/* ---- ageing ---- */

static void note_drop(struct recycle *recycle, struct page *page)
{
	if (!page->note)
		return;
	recycle->note_bytes -= page->note->bytes;
	free(page->note);
	page->note = NULL;
}

/* For the whole of a pool it is one part in 475. */
static uint64_t notes_max(const struct recycle *recycle)
{
	uint64_t bytes = recycle->pool->geometry.pool_bytes / 1024;

	return bytes > NOTES_BYTES ? bytes : NOTES_BYTES;
}

/*
 * Notes what is retired now. Without memory the page waits for a later walk. The time is that of a
 * look at the clock after the map was read: the process may have stood still meanwhile. The round of a
 * counters' page is one whose sample is yet to begin.
 */
static void note_take(struct recycle *recycle, uint32_t number, uint64_t word)
{
	struct page *page = &recycle->pages[number];
	uint32_t class = layout_page_class(word),
		 bytes = (uint32_t)sizeof(struct note) + free_map_bits_bytes(class);
	struct note *note;
	uint64_t seen;

	note_drop(recycle, page);
	if (recycle->note_bytes + bytes > notes_max(recycle) || !(note = malloc(bytes)))
		return;
	*note = (struct note){.word = word, .bytes = bytes};
	/* the count may be of an earlier walk */
	if (recycle->map_page != number)
		free_map_read(recycle->map, number, class);
	free_map_get_retired(recycle->map, note->bits);
	seen = clock_now_ns();
	note->seen_ns = seen > recycle->now_ns ? seen : recycle->now_ns;
	note->seen_epoch = recycle->epoch;
	if (layout_class_is_counter(class))
		note->round = recycle->round_wanted = recycle->round + 1;
	recycle->note_bytes += bytes;
	page->note = note;
}

/*
 * T2: seen retired G ago, and the epoch has gone up by two since. A late FAA is not harmless as a late
 * CAS is: counters rest, besides, until every connection has done what it owed.
 */
static bool note_ripe(const struct recycle *recycle, const struct note *note)
{
	if (MUTATED(MUTATION_KEEPER_GRACE))
		return true;
	return recycle->now_ns >= note->seen_ns + recycle->pool->geometry.grace_ns &&
	       recycle->epoch >= note->seen_epoch + 2 &&
	       (recycle->round_passed >= note->round || MUTATED(MUTATION_COUNTERS));
}

/* Full pages alone, so the bytes that we write are nobody else's. */
static void age_noted(struct recycle *recycle, uint32_t number, uint64_t word)
{
	struct page *page = &recycle->pages[number];

	recycle->stats.blocks_aged +=
		free_map_age(recycle->pool, number, layout_page_class(word), page->note->bits);
	note_drop(recycle, page);
	count_now(recycle, number, word);
}

/* True if blocks of the page rest, and none have just been through with it. */
static bool age(struct recycle *recycle, uint32_t number, uint64_t word)
{
	struct page *page = &recycle->pages[number];
	bool rests = false;

	if (page->note && page->note->word != word)
		note_drop(recycle, page);
	if (page->note && note_ripe(recycle, page->note))
		age_noted(recycle, number, word);
	else
		rests = page->counts.retired > 0;
	if (page->counts.retired > 0 && !page->note)
		note_take(recycle, number, word);
	return rests && page->note;
}

/* ---- moving pages on ---- */

bool recycle_scarce(const struct recycle *recycle)
{
	return recycle->free_pages < recycle->pool->geometry.npages / 16 + 1;
}

static void push(struct recycle *recycle, uint32_t class, uint32_t number)
{
	switch (ring_push(recycle->ring, class, number)) {
	case RING_PUSHED:
		recycle->stats.pages_pushed++;
		break;
	case RING_DAMAGED:
		recycle->stats.damaged++;
		if (recycle->told_ns && recycle->now_ns - recycle->told_ns < TELL_NS)
			break;
		recycle->told_ns = recycle->now_ns;
		events_tell(recycle->pool->events, EVENT_pool_scribbled,
			    EVENT_FIELDS(.pool = recycle->pool->name),
			    "pool %s: the ready ring of size class %u has an impossible head: a "
			    "client has scribbled over it",
			    recycle->pool->name, class);
		break;
	case RING_FULL: /* comes again in the next walk */
	case RING_NAMED:
		break;
	}
}

/*
 * Need the page's bytes be looked at? What was noted waits until it is ripe, and is counted then. But
 * when somebody is to be told that there is no memory, and none that rests, all are looked at: that relies
 * on a walk that has seen everything.
 */
static bool needs_count(const struct recycle *recycle, const struct page *page, uint64_t word)
{
	if (!page->note || page->note->word != word || !page->counted || page->word != word)
		return true;
	return recycle->asked_ns && recycle->now_ns - recycle->asked_ns <= ASKED_NS &&
	       !note_ripe(recycle, page->note);
}

/* What free_page() has put together. True if one has become free. */
static bool free_together(struct recycle *recycle)
{
	bool any = false;

	self_cas_many(recycle->pool, recycle->freed, recycle->freed_count);
	for (unsigned i = 0; i < recycle->freed_count; i++) {
		uint32_t number = recycle->freed_numbers[i];

		if (recycle->freed[i].seen != recycle->freed[i].compare)
			continue;
		note_drop(recycle, &recycle->pages[number]);
		recycle->stats.pages_freed++;
		/* any class may have it; this one has used memory and is likely to want it again,
		 * and through the ring it gets it without asking us */
		push(recycle, layout_page_class(recycle->freed[i].compare), number);
		recycle->free_pages_now++;
		any = true;
	}
	recycle->freed_count = 0;
	return any;
}

/* Nobody changes a full page without a block in use: that its CAS comes a bit later makes no difference. */
static bool free_page(struct recycle *recycle, uint32_t number, uint64_t word)
{
	recycle->freed_numbers[recycle->freed_count] = number;
	recycle->freed[recycle->freed_count++] = (struct self_change){
		.offset = layout_page_word_offset(&recycle->pool->geometry, number),
		.compare = word,
		.value = layout_page_next(word, LAYOUT_PAGE_FREE, 0, 0)};
	if (self_is_far(recycle->pool) && recycle->freed_count < SELF_CHANGES_MAX)
		return false;
	return free_together(recycle);
}

/* True if the page has become partial or free. */
static bool full_page(struct recycle *recycle, uint32_t number, uint64_t word, bool hurry)
{
	struct page *page = &recycle->pages[number];
	uint32_t class = layout_page_class(word),
		 enough = hurry ? 1 : (layout_class_blocks(class) + 3) / 4;
	bool rests;

	if (needs_count(recycle, page, word))
		count(recycle, number, word, hurry);
	rests = age(recycle, number, word);
	if (page->counts.in_use == 0 && page->counts.retired > 0 &&
	    !(layout_class_is_counter(class) && recycle_held_up(recycle)))
		recycle->resting_pages_now++;
	if (page->counts.in_use == 0 && page->counts.retired == 0)
		return free_page(recycle, number, word);
	/*
	 * What rests here does so for nothing if the page leaves: only when somebody is waiting for
	 * just this size. Who waits for another one needs the page whole, and would not get it.
	 */
	if (page->counts.aged < enough || (rests && recycle->asked != class) ||
	    !pool_cas_page_word(recycle->pool, number, word,
				layout_page_next(word, LAYOUT_PAGE_PARTIAL, class, 0)))
		return false;
	note_drop(recycle, page);
	recycle->stats.pages_partial++;
	push(recycle, class, number);
	return true;
}

/*
 * A partial page waits to be claimed. When it has as much to recycle that this is worth the wait,
 * or nothing to give at all, it is taken back to full first: only there may we write its map. A
 * claim that comes between wins the CAS.
 */
static void partial_page(struct recycle *recycle, uint32_t number, uint64_t word, bool hurry)
{
	struct page *page = &recycle->pages[number];
	uint32_t class = layout_page_class(word), blocks = layout_class_blocks(class);
	bool back;

	count(recycle, number, word, hurry);
	back = page->counts.in_use == 0 || page->counts.aged == 0 ||
	       page->counts.retired >= (blocks + 3) / 4;
	/* but it stays for who is waiting for it */
	if (back && (page->counts.aged == 0 || recycle->asked != class)) {
		pool_cas_page_word(recycle->pool, number, word,
				   layout_page_next(word, LAYOUT_PAGE_FULL, class, 0));
		return; /* the next walk goes on with it */
	}
	push(recycle, class, number);
}

/*
 * Waits for the sweep. But the blocks that its owner never used are nobody's: it marked each one before
 * anybody could see it, and is fenced. When memory is scarce they do not wait; what has leaked here is
 * found when the page rests as any other.
 */
static void orphan_page(struct recycle *recycle, uint32_t number, uint64_t word, bool hurry)
{
	const struct page *page = &recycle->pages[number];
	uint32_t class = layout_page_class(word);

	count(recycle, number, word, false);
	if (!hurry || page->counts.aged < (layout_class_blocks(class) + 3) / 4 ||
	    !pool_cas_page_word(recycle->pool, number, word,
				layout_page_next(word, LAYOUT_PAGE_FULL, class, 0)))
		recycle->orphans_now++;
}

static void blocks_add(struct recycle_blocks *blocks, const struct page *page)
{
	blocks->aged += page->counts.aged;
	blocks->in_use += page->counts.in_use;
	blocks->retired += page->counts.retired;
}

/* True if the page has become partial or free. */
static bool page_step(struct recycle *recycle, uint32_t number, bool hurry)
{
	uint64_t word = pool_load_page_word(recycle->pool, number);
	uint32_t class = layout_page_class(word);
	bool moved = false;

	recycle->map_page = POOL_NONE;
	switch (layout_page_state(word)) {
	case LAYOUT_PAGE_FREE:
		recycle->free_pages_now++;
		return false;
	case LAYOUT_PAGE_INDEX:
		return false;
	case LAYOUT_PAGE_SLAB:
		word = pool_orphan_page(recycle->pool, number, word);
		count(recycle, number, word, false);
		break;
	case LAYOUT_PAGE_ORPHAN:
		orphan_page(recycle, number, word, hurry);
		break;
	case LAYOUT_PAGE_FULL:
		moved = full_page(recycle, number, word, hurry);
		break;
	case LAYOUT_PAGE_PARTIAL:
		partial_page(recycle, number, word, hurry);
		break;
	default:
		recycle->stats.damaged++;
		return false;
	}
	blocks_add(&recycle->blocks_now[class], &recycle->pages[number]);
	if (layout_page_state(word) == LAYOUT_PAGE_FULL ||
	    layout_page_state(word) == LAYOUT_PAGE_PARTIAL)
		blocks_add(&recycle->spare_now[class], &recycle->pages[number]);
	return moved;
}

/* ---- the walk over all pages ---- */

static void walk_begin(struct recycle *recycle, uint64_t now)
{
	recycle->walk_page = 0;
	recycle->walk_began_ns = now;
	recycle->walk_worked_ns = 0;
	recycle->free_pages_now = 0;
	recycle->resting_pages_now = 0;
	recycle->orphans_now = 0;
	recycle->scarce = recycle_scarce(recycle);
	for (uint32_t i = 0; i < LAYOUT_CLASSES; i++)
		recycle->blocks_now[i] = recycle->spare_now[i] = (struct recycle_blocks){0};
}

/*
 * Twice in G, and more often when memory is scarce, so that blocks rest little longer than they must;
 * but not all day long in a huge pool.
 */
static void walk_end(struct recycle *recycle)
{
	uint64_t pause = recycle->pool->geometry.grace_ns / (recycle->scarce ? 4 : 2);

	if (pause < WALK_SHARE * recycle->walk_worked_ns)
		pause = WALK_SHARE * recycle->walk_worked_ns;
	recycle->walk_due_ns = recycle->walk_began_ns + pause;
	recycle->walk_page = 0;
	recycle->free_pages = recycle->free_pages_now;
	recycle->resting_pages = recycle->resting_pages_now;
	recycle->orphans = recycle->orphans_now;
	recycle->stats.passes++;
	pool_clients_settle(recycle->pool, recycle->stats.passes);
	for (uint32_t i = 0; i < LAYOUT_CLASSES; i++) {
		recycle->stats.blocks[i] = recycle->blocks_now[i];
		recycle->spare[i] = recycle->spare_now[i];
	}
}

/* Returns true if a page has moved on. */
static bool walk(struct recycle *recycle, uint64_t budget_ns, bool hurry)
{
	uint64_t began = clock_now_ns(), cpu_began = clock_thread_ns(), worked = 0;
	bool moved = false;

	if (recycle->walk_page == 0)
		walk_begin(recycle, recycle->now_ns);
	while (recycle->walk_page < recycle->pool->geometry.npages && worked < budget_ns) {
		if (page_step(recycle, recycle->walk_page++, hurry))
			moved = true;
		if (recycle->walk_page % 16 == 0)
			worked = clock_now_ns() - began;
	}
	if (free_together(recycle))
		moved = true;
	recycle->walk_worked_ns += clock_thread_ns() - cpu_began;
	if (recycle->walk_page == recycle->pool->geometry.npages)
		walk_end(recycle);
	return moved;
}

/* ---- steps ---- */

static void begin(struct recycle *recycle, const struct keeper_time *time)
{
	recycle->epoch = time->epoch;
	recycle->now_ns = time->now_ns;
	recycle->asked = POOL_NONE;
}

/* The samples for counters: a bounded piece. */
static void round_step(struct recycle *recycle)
{
	switch (recycle->round_state) {
	case ROUND_NONE:
		if (recycle->round_wanted <= recycle->round)
			return;
		recycle->round++;
		recycle->round_began_ns = recycle->now_ns;
		quiescence_begin(recycle->quiescence);
		recycle->round_state = ROUND_SAMPLE;
		break;
	case ROUND_SAMPLE:
		if (quiescence_take(recycle->quiescence))
			recycle->round_state = ROUND_WAIT;
		break;
	case ROUND_WAIT:
		if (!quiescence_passed(recycle->quiescence))
			return;
		recycle->round_passed = recycle->round;
		recycle->round_state = ROUND_NONE;
		break;
	}
}

uint64_t recycle_step(struct recycle *recycle, const struct keeper_time *time)
{
	begin(recycle, time);
	round_step(recycle);
	if (recycle->walk_page > 0 || time->now_ns >= recycle->walk_due_ns)
		walk(recycle, STEP_NS, recycle->scarce);
	return recycle->walk_page > 0 ? time->now_ns : recycle->walk_due_ns;
}

bool recycle_held_up(const struct recycle *recycle)
{
	return recycle->round_state == ROUND_WAIT &&
	       recycle->now_ns - recycle->round_began_ns >= HELD_UP_NS;
}

bool recycle_hurry(struct recycle *recycle, uint32_t class, const struct keeper_time *time)
{
	if (recycle_resting(recycle, class) == 0)
		recycle->asked_ns = time->now_ns;
	if (time->now_ns < recycle->hurry_ns)
		return false;
	recycle->hurry_ns = time->now_ns + HURRY_GAP;
	begin(recycle, time);
	recycle->asked = class;
	return walk(recycle, HURRY_NS, true);
}

uint64_t recycle_resting(const struct recycle *recycle, uint32_t class)
{
	return recycle->spare[class].retired + recycle->resting_pages;
}

uint64_t recycle_free_pages(const struct recycle *recycle)
{
	return recycle->free_pages;
}

uint64_t recycle_resting_pages(const struct recycle *recycle)
{
	return recycle->resting_pages;
}

void recycle_get_spare(const struct recycle *recycle, uint32_t class,
		       struct recycle_blocks *ret_blocks)
{
	*ret_blocks = recycle->spare[class];
}

uint64_t recycle_orphans(const struct recycle *recycle)
{
	return recycle->orphans;
}

uint64_t recycle_passes(const struct recycle *recycle)
{
	return recycle->stats.passes;
}

uint64_t recycle_next_pass(const struct recycle *recycle)
{
	return recycle->stats.passes + 1 + (recycle->walk_page > 0);
}

void recycle_changed(struct recycle *recycle, uint32_t page)
{
	recycle->pages[page].counted = false;
}

void recycle_get_stats(const struct recycle *recycle, struct recycle_stats *ret_stats)
{
	*ret_stats = recycle->stats;
}
