/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Second chance, page by page; see evict.h. Main thread, called by keeper.c.
 *
 * What is evicted has to rest (T2) before it can be used, so blocks are evicted ahead of the puts: each
 * size class keeps a share of its memory aged or resting, more when clients had to wait, and a hand of
 * its own goes over its full and partial pages. A block whose byte of the reference map is 0 goes, any
 * other one's byte is taken down by one. New blocks fill the pages that the hand has just left, so they
 * have about a turn before it comes again. When the mix of sizes changes, a class that finds nothing
 * needs whole pages: of some candidates the one with the least to lose is emptied. Pieces of large
 * values have no key: they go with their heads, which a hand of their own looks for. Next: blocks.c,
 * recycle.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "blocks.h"
#include "clock.h"
#include "err.h"
#include "evict.h"
#include "pool.h"
#include "recycle.h"
#include "self.h"

#define STEP_NS      1000000u
#define IDLE_NS      50000000u
#define LOOK         8u  /* blocks between two looks at the clock */
#define CANDIDATES   16u /* pages that one to be emptied is chosen from */
#define STUCK_EPOCHS 16u /* a page that could not be emptied is left alone so long */
/*
 * Shares are parts of 1024. What is kept ahead grows by AHEAD_STEP when clients wait, at most every
 * AHEAD_NS, and falls by one each ADAPT_NS. In a small pool it may be more: there a few clients want all
 * of it within the time that it rests.
 */
#define SHARE           1024u
#define AHEAD_MAX       256u
#define AHEAD_MAX_SMALL 512u
#define SMALL_PAGES     256u
#define AHEAD_STEP      16u
#define AHEAD_NS        50000000u
#define ADAPT_NS        250000000u
/* With nothing evicted for so long there is nothing to wait for. */
#define HOPE_NS 2000000000u
/* A search for a page to be emptied that was in vain is not repeated for so long. */
#define VAIN_NS 100000000u
/* A hand that has taken down all chances and still found nothing to evict. */
#define TURNS (LAYOUT_REFERENCED + 1u)

/* A place in the pool that moves on and begins again. */
struct hand {
	uint32_t page, block;
};

/* What was evicted since recycle looked: it rests, and recycle's numbers do not have it all yet. */
struct unseen {
	uint32_t pages;
	uint64_t bytes[LAYOUT_CLASSES];
};

struct evict {
	struct pool *pool;
	struct recycle *recycle;
	struct blocks *blocks;
	uint32_t *stuck; /* by page: not to be emptied before this epoch */
	uint64_t passes; /* of recycle, that `spare` is from */
	bool low;        /* free pages are below the low-water mark */
	uint32_t ahead;  /* share of a class's memory that is kept aged or resting */
	uint32_t wanted; /* pages that clients have asked for in vain */
	uint64_t now_ns; /* of the step that runs */
	uint64_t due_ns, asked_ns, hurried_ns, adapted_ns, vain_ns;
	uint64_t hope_ns; /* something was evicted, or somebody has begun to wait */
	struct recycle_blocks spare[LAYOUT_CLASSES]; /* in full and partial pages */
	struct unseen unseen, before;                /* since the last pass, since the one before */
	uint64_t vain[LAYOUT_CLASSES]; /* pages that the class's hand has passed in vain */
	struct hand hands[LAYOUT_CLASSES], large_hand;
	uint32_t turn;         /* the class that is asked first */
	uint32_t candidate;    /* where the search for a page to be emptied goes on */
	struct hand emptying;  /* the page that is being emptied; POOL_NONE: none */
	uint32_t emptying_left; /* blocks that could not be evicted */
	struct evict_stats stats;
};

int evict_create(struct pool *pool, struct recycle *recycle, struct evict **ret_evict)
{
	struct evict *evict = calloc(1, sizeof(*evict));

	if (evict) {
		evict->blocks = blocks_create(pool);
		evict->stuck = calloc(pool->geometry.npages, sizeof(*evict->stuck));
	}
	if (!evict || !evict->blocks || !evict->stuck) {
		evict_free(evict);
		return err_set(-ENOMEM, "out of memory");
	}
	evict->pool = pool;
	evict->recycle = recycle;
	evict->emptying.page = POOL_NONE;
	*ret_evict = evict;
	return 0;
}

void evict_free(struct evict *evict)
{
	if (!evict)
		return;
	blocks_free(evict->blocks);
	free(evict->stuck);
	free(evict);
}

/* ---- how much is needed ---- */

static uint32_t mark_share(const struct config_value *percent)
{
	return (uint32_t)percent->number * SHARE / 100;
}

static uint64_t in_pages(uint64_t npages, uint32_t share)
{
	return npages * share / SHARE;
}

/* Pages that are free, or will be once what was evicted has rested. */
static uint64_t free_pages(const struct evict *evict)
{
	return recycle_free_pages(evict->recycle) + recycle_resting_pages(evict->recycle) +
	       evict->unseen.pages + evict->before.pages;
}

/* Free pages that are kept for a class that grows; few: each costs keys that are still asked for. */
static uint64_t reserve(const struct evict *evict)
{
	return 1 + evict->pool->geometry.npages / 256 + evict->wanted;
}

static bool is_small(const struct evict *evict)
{
	return evict->pool->geometry.npages < SMALL_PAGES;
}

static uint32_t ahead_max(const struct evict *evict)
{
	return is_small(evict) ? AHEAD_MAX_SMALL : AHEAD_MAX;
}

static uint32_t wanted_max(const struct evict *evict)
{
	return evict->pool->geometry.npages / (is_small(evict) ? 4 : 8);
}

static uint64_t class_deficit(const struct evict *evict, uint32_t class)
{
	const struct recycle_blocks *spare = &evict->spare[class];
	uint64_t bytes = layout_class_bytes(class), ready = spare->aged + spare->retired,
		 target = (ready + spare->in_use) * evict->ahead / SHARE * bytes,
		 have = ready * bytes + evict->unseen.bytes[class] + evict->before.bytes[class] +
			free_pages(evict) * LAYOUT_PAGE_BYTES; /* anybody may have these */

	/* what is evicted of counters now would be lost for nothing */
	if (layout_class_is_counter(class) && recycle_held_up(evict->recycle))
		return 0;
	if (!evict->low || evict->vain[class] > (uint64_t)TURNS * evict->pool->geometry.npages)
		return 0;
	/* of a class with a few blocks at least one */
	if (target == 0 && spare->in_use > 0)
		target = bytes;
	return have < target ? target - have : 0;
}

static bool page_deficit(const struct evict *evict)
{
	return evict->low && evict->now_ns >= evict->vain_ns &&
	       free_pages(evict) < reserve(evict);
}

/* Once per pass of recycle: what there is. */
static void look_around(struct evict *evict)
{
	const struct config_pool *config = evict->pool->config;
	uint64_t npages = evict->pool->geometry.npages, ready = 0;
	struct recycle_stats recycle;

	recycle_get_stats(evict->recycle, &recycle);
	if (recycle.passes == evict->passes)
		return;
	evict->passes = recycle.passes;
	evict->before = evict->unseen;
	evict->unseen = (struct unseen){0};
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class ++) {
		recycle_get_spare(evict->recycle, class, &evict->spare[class]);
		/* one more turn for who has found nothing */
		evict->vain[class] -= evict->vain[class] < npages ? evict->vain[class] : npages;
		ready += (evict->spare[class].aged + evict->spare[class].retired) *
			 layout_class_bytes(class);
	}
	ready = ready / LAYOUT_PAGE_BYTES + free_pages(evict);
	/* Between the marks nothing begins, and what has begun goes on. */
	if (ready < in_pages(npages, mark_share(&config->low_water)))
		evict->low = true;
	if (recycle_free_pages(evict->recycle) > in_pages(npages, mark_share(&config->high_water)))
		evict->low = false;
	if (evict->ahead < mark_share(&config->high_water))
		evict->ahead = mark_share(&config->high_water);
}

/* Who does not wait any more needs less ahead. */
static void adapt(struct evict *evict)
{
	if (evict->now_ns - evict->adapted_ns < ADAPT_NS)
		return;
	evict->adapted_ns = evict->now_ns;
	if (evict->ahead > mark_share(&evict->pool->config->high_water))
		evict->ahead--;
	if (evict->wanted > 0 && evict->now_ns - evict->hurried_ns > ADAPT_NS)
		evict->wanted--;
}

void evict_hurry(struct evict *evict, uint32_t class, uint64_t now)
{
	/* counters rest until every client has gone on: who waits for that long gets other memory */
	uint64_t resting = layout_class_is_counter(class)
				   ? 0
				   : evict->spare[class].retired * layout_class_bytes(class) +
					     evict->unseen.bytes[class] +
					     evict->before.bytes[class];

	if (evict->pool->geometry.mode != LAYOUT_MODE_CACHE)
		return;
	evict->stats.waits++;
	if (evict->asked_ns == 0 || now - evict->asked_ns > HOPE_NS)
		evict->hope_ns = now;
	evict->asked_ns = now;
	if (now - evict->hurried_ns < AHEAD_NS)
		return;
	evict->hurried_ns = evict->due_ns = now;
	evict->low = true;
	if (evict->ahead < ahead_max(evict))
		evict->ahead += AHEAD_STEP;
	/* a class that has pages has more ahead in them now; one that has hardly any needs some */
	if (resting < LAYOUT_PAGE_BYTES && evict->wanted < wanted_max(evict))
		evict->wanted++;
}

bool evict_hopeful(const struct evict *evict)
{
	return evict->asked_ns != 0 && evict->asked_ns < evict->hope_ns + HOPE_NS;
}

/* ---- a block ---- */

static bool in_use(const struct evict *evict, uint64_t offset)
{
	return self_load_byte(evict->pool,
			      layout_free_map_offset(&evict->pool->geometry, offset)) ==
	       LAYOUT_FREE_IN_USE;
}

/*
 * Was it asked for? The hand takes one of its chances, whether or not the block is in use: small blocks
 * share a byte, and the last one of them takes it down.
 */
static bool spared(struct evict *evict, uint64_t offset, uint32_t class)
{
	const struct layout_geometry *g = &evict->pool->geometry;
	uint64_t at = layout_reference_offset(g, offset);
	uint8_t chances = self_load_byte(evict->pool, at);

	if (chances == 0)
		return false;
	if (chances > LAYOUT_REFERENCED) /* no client of ours has written that */
		chances = LAYOUT_REFERENCED;
	if (layout_reference_offset(g, offset + layout_class_bytes(class)) != at)
		self_store_byte(evict->pool, at, (uint8_t)(chances - 1));
	return true;
}

/* True if the block is gone. */
static bool evict_block(struct evict *evict, uint64_t offset, uint32_t class, bool large_only)
{
	uint64_t slot, word, bytes, own = layout_class_bytes(class);
	struct layout_block header;

	if (!blocks_find(evict->blocks, offset, class, &slot, &word) ||
	    (large_only &&
	     (blocks_header(evict->blocks, slot, word, &header) != BLOCKS_DONE ||
	      header.kind != LAYOUT_KIND_EXTENTS || spared(evict, offset, class))) ||
	    blocks_remove(evict->blocks, slot, word, false, &bytes) != BLOCKS_DONE)
		return false;
	evict->hope_ns = evict->now_ns;
	evict->stats.evicted++;
	evict->stats.evicted_bytes += bytes;
	evict->unseen.bytes[class] += own;
	evict->unseen.pages += (uint32_t)((bytes - own) / LAYOUT_PAGE_BYTES); /* a large value's */
	return true;
}

/* The block that a hand points at; the hand goes on. */
static uint64_t hand_take(const struct evict *evict, struct hand *hand, uint32_t class)
{
	return layout_page_offset(&evict->pool->geometry, hand->page) +
	       (uint64_t)hand->block++ * layout_class_bytes(class);
}

/* ---- the hands ---- */

static bool has_blocks(uint64_t word)
{
	return layout_page_state(word) == LAYOUT_PAGE_FULL ||
	       layout_page_state(word) == LAYOUT_PAGE_PARTIAL;
}

static void hand_next(const struct evict *evict, struct hand *hand)
{
	hand->block = 0;
	if (++hand->page >= evict->pool->geometry.npages)
		hand->page = 0;
}

/* The class's hand goes on until enough is evicted or the time is up. */
static void class_step(struct evict *evict, uint32_t class, uint64_t until)
{
	struct hand *hand = &evict->hands[class];

	for (uint32_t looked = 1; class_deficit(evict, class) > 0; looked++) {
		uint64_t word = pool_load_page_word(evict->pool, hand->page), offset;

		if (!has_blocks(word) || layout_page_class(word) != class ||
		    hand->block >= layout_class_blocks(class)) {
			hand_next(evict, hand);
			evict->vain[class]++;
		} else {
			offset = hand_take(evict, hand, class);
			if (!spared(evict, offset, class) && in_use(evict, offset) &&
			    evict_block(evict, offset, class, false))
				evict->vain[class] = 0;
		}
		if (looked % LOOK == 0 && clock_now_ns() >= until)
			return;
	}
}

/* A large value's head may be in a page of any class. True if one was evicted. */
static bool large_step(struct evict *evict, uint64_t until)
{
	struct hand *hand = &evict->large_hand;
	uint32_t pages = 0;

	for (uint32_t looked = 1; pages <= evict->pool->geometry.npages; looked++) {
		uint64_t word = pool_load_page_word(evict->pool, hand->page), offset;
		uint32_t class = layout_page_class(word);

		if (!has_blocks(word) || hand->block >= layout_class_blocks(class)) {
			hand_next(evict, hand);
			pages++;
		} else {
			offset = hand_take(evict, hand, class);
			if (in_use(evict, offset) && evict_block(evict, offset, class, true))
				return true;
		}
		if (looked % LOOK == 0 && clock_now_ns() >= until)
			break;
	}
	return false;
}

/* ---- whole pages ---- */

/* What would be lost with a page: bytes in use, and more of those that were asked for. */
static uint64_t page_worth(const struct evict *evict, uint32_t page, uint32_t class)
{
	const struct layout_geometry *g = &evict->pool->geometry;
	uint64_t offset = layout_page_offset(g, page), worth = 0;
	uint32_t bytes = layout_class_bytes(class);

	for (uint32_t i = 0; i < layout_class_blocks(class); i++, offset += bytes)
		if (in_use(evict, offset))
			worth += bytes * (1u + self_load_byte(evict->pool,
							      layout_reference_offset(g, offset)));
	return worth;
}

/* POOL_NONE: none of those looked at will do. */
static uint32_t choose_page(struct evict *evict, uint64_t epoch)
{
	uint32_t npages = evict->pool->geometry.npages, chosen = POOL_NONE, seen = 0;
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < npages && seen < CANDIDATES; i++) {
		uint32_t page = evict->candidate, class;
		uint64_t word = pool_load_page_word(evict->pool, page), worth;

		evict->candidate = (page + 1) % npages;
		class = layout_page_class(word);
		/* counters' pages come back late, if somebody is stopped: no help */
		if (!has_blocks(word) || layout_class_is_counter(class) ||
		    evict->stuck[page] > epoch)
			continue;
		seen++;
		worth = page_worth(evict, page, class);
		if (worth > 0 && worth < least) { /* with nothing in use recycle has it already */
			least = worth;
			chosen = page;
		}
	}
	return chosen;
}

/* A partial page is taken back to full: nobody may claim it now. */
static bool take_back(struct evict *evict, uint32_t page)
{
	uint64_t word = pool_load_page_word(evict->pool, page);

	return layout_page_state(word) == LAYOUT_PAGE_FULL ||
	       (layout_page_state(word) == LAYOUT_PAGE_PARTIAL &&
		pool_cas_page_word(evict->pool, page, word,
				   layout_page_next(word, LAYOUT_PAGE_FULL, layout_page_class(word),
						    0)));
}

/* Goes on with the page that is being emptied. */
static void empty_step(struct evict *evict, uint64_t epoch, uint64_t until)
{
	struct hand *hand = &evict->emptying;
	uint64_t word = pool_load_page_word(evict->pool, hand->page), offset;
	uint32_t class = layout_page_class(word), pages = evict->unseen.pages;

	while (layout_page_state(word) == LAYOUT_PAGE_FULL &&
	       hand->block < layout_class_blocks(class)) {
		offset = hand_take(evict, hand, class);
		if (in_use(evict, offset) && !evict_block(evict, offset, class, false))
			evict->emptying_left++;
		if (evict->unseen.pages > pages && !page_deficit(evict)) {
			hand->page = POOL_NONE; /* a large value that went has made it needless */
			return;
		}
		if (hand->block % LOOK == 0 && clock_now_ns() >= until)
			return;
	}
	if (evict->emptying_left == 0) {
		evict->unseen.pages++;
		evict->stats.pages_emptied++;
	} else {
		evict->stuck[hand->page] = (uint32_t)epoch + STUCK_EPOCHS;
	}
	hand->page = POOL_NONE;
}

static void pages_step(struct evict *evict, uint64_t epoch, uint64_t until)
{
	while (evict->emptying.page != POOL_NONE || page_deficit(evict)) {
		if (evict->emptying.page != POOL_NONE) {
			empty_step(evict, epoch, until);
		} else {
			uint32_t page = choose_page(evict, epoch);

			if (page != POOL_NONE && take_back(evict, page)) {
				evict->emptying = (struct hand){.page = page};
				evict->emptying_left = 0;
			} else if (page == POOL_NONE && !large_step(evict, until)) {
				evict->vain_ns = evict->now_ns + VAIN_NS;
			}
		}
		if (clock_now_ns() >= until)
			return;
	}
}

/* ---- steps ---- */

static bool anything_to_do(const struct evict *evict)
{
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class ++)
		if (class_deficit(evict, class) > 0)
			return true;
	return evict->emptying.page != POOL_NONE || page_deficit(evict);
}

uint64_t evict_step(struct evict *evict, const struct keeper_time *time)
{
	uint64_t until = clock_now_ns() + STEP_NS;

	if (evict->pool->geometry.mode != LAYOUT_MODE_CACHE)
		return time->now_ns + HOPE_NS;
	if (time->now_ns < evict->due_ns)
		return evict->due_ns;
	evict->now_ns = time->now_ns;
	look_around(evict);
	adapt(evict);
	pages_step(evict, time->epoch, until);
	for (uint32_t i = 0; i < LAYOUT_CLASSES && clock_now_ns() < until; i++) {
		class_step(evict, evict->turn, until);
		evict->turn = (evict->turn + 1) % LAYOUT_CLASSES;
	}
	evict->due_ns = anything_to_do(evict) ? evict->now_ns : evict->now_ns + IDLE_NS;
	return evict->due_ns;
}

void evict_get_stats(const struct evict *evict, struct evict_stats *ret_stats)
{
	*ret_stats = evict->stats;
	ret_stats->ahead_percent = evict->ahead * 100 / SHARE;
	ret_stats->active = evict->low;
}
