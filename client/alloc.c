/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alloc.c - pages that this session owns, and their blocks
 *
 * All bookkeeping is local; what has to be told to the pool (free-map bytes, page words) is posted
 * without waiting: requests of one endpoint take effect in order, so whatever the session posts
 * later comes after it. Runs on the session's owner. Next: claim.c for getting pages,
 * docs/protocol.md sections 5 and 3 (T2) for the rules.
 */
#include "alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "mutation.h"

#define BITMAP_WORDS (LAYOUT_UNITS_PER_PAGE / 64)
#define SPARES       16u
#define LARGER_STEPS 4u /* of about 1.3 each */

/* A page that we own. */
struct page {
	TAILQ_ENTRY(page) link; /* in its class's list: pages with available blocks first */
	uint64_t word;          /* as our CAS left it */
	uint32_t number;
	uint32_t class;
	uint32_t available, held, waiting;
	uint32_t hint;                /* index of the bitmap word to look at first */
	uint64_t free[BITMAP_WORDS];  /* bit: block is available */
	uint64_t clean[BITMAP_WORDS]; /* bit: its free-map byte does not say "in use" */
	uint64_t waits[BITMAP_WORDS]; /* bit: on the wait list */
};
TAILQ_HEAD(page_list, page);

/* A retired block of an own page. */
struct wait {
	uint64_t offset;
	uint64_t since_ns;
	uint64_t base; /* an epoch read after it was retired; 0: none yet */
	/* of the ownership: a page that was handed back takes its blocks along */
	uint32_t page_serial;
	uint32_t class;
};

struct alloc {
	struct tarn_session *session;
	struct page_list classes[LAYOUT_CLASSES];
	uint32_t pages_of_class[LAYOUT_CLASSES];
	struct page **owned; /* by page number; NULL: not ours */
	/* page structs to use again, so that a steady state allocates no memory */
	struct page *spares[SPARES];
	unsigned spare_count;
	/* wait list: a ring that grows; times are ascending */
	struct wait *waits;
	uint32_t wait_size, wait_head, wait_count;
	uint32_t wait_dated;               /* how many from the head have a base */
	uint32_t unsettled;                /* bit: alloc_settle() is to look at this class */
	uint32_t used;                     /* bit: this class has handed out a block of late */
	uint8_t claiming[LAYOUT_CLASSES];  /* so many pages of it are being claimed */
	int claim_results[LAYOUT_CLASSES]; /* how the last claim has ended */
	/* result of CASes that nobody waits for: only we change an own page's word */
	uint64_t dummy;
};

int alloc_create(struct tarn_session *session, struct alloc **ret_alloc)
{
	struct alloc *a = calloc(1, sizeof(*a));
	unsigned i;

	if (a) {
		/* untouched parts of these cost no memory */
		a->owned = calloc(session->geometry.npages, sizeof(*a->owned));
		a->wait_size = 1024;
		a->waits = calloc(a->wait_size, sizeof(*a->waits));
	}
	if (!a || !a->owned || !a->waits) {
		alloc_free(a);
		return err_set(-ENOMEM, "no memory for the allocator");
	}
	for (i = 0; i < LAYOUT_CLASSES; i++)
		TAILQ_INIT(&a->classes[i]);
	a->session = session;
	*ret_alloc = a;
	return 0;
}

void alloc_free(struct alloc *a)
{
	unsigned i;

	if (!a)
		return;
	for (i = 0; i < LAYOUT_CLASSES; i++) {
		while (a->owned && a->session && !TAILQ_EMPTY(&a->classes[i])) {
			struct page *p = TAILQ_FIRST(&a->classes[i]);

			TAILQ_REMOVE(&a->classes[i], p, link);
			free(p);
		}
	}
	while (a->spare_count)
		free(a->spares[--a->spare_count]);
	free(a->owned);
	free(a->waits);
	free(a);
}

/* ---- small things ---------------------------------------------------------------------------- */

static bool bit_test(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> i % 64 & 1;
}
static void bit_set(uint64_t *map, uint32_t i)
{
	map[i / 64] |= 1ull << i % 64;
}
static void bit_clear(uint64_t *map, uint32_t i)
{
	map[i / 64] &= ~(1ull << i % 64);
}

static struct page *page_of(const struct alloc *a, uint64_t offset)
{
	return a->owned[layout_offset_page(&a->session->geometry, offset)];
}

static uint32_t index_of(const struct alloc *a, const struct page *p, uint64_t offset)
{
	return (uint32_t)((offset - layout_page_offset(&a->session->geometry, p->number)) /
			  layout_class_bytes(p->class));
}

static uint64_t offset_of(const struct alloc *a, const struct page *p, uint32_t index)
{
	return layout_page_offset(&a->session->geometry, p->number) +
	       (uint64_t)index * layout_class_bytes(p->class);
}

struct fabric_request alloc_map_write(const struct alloc *a, uint64_t offset, const uint8_t *value)
{
	return (struct fabric_request){
		.opcode = FABRIC_WRITE,
		.flags = FABRIC_INLINE,
		.length = 1,
		.offset = layout_free_map_offset(&a->session->geometry, offset),
		.local = (void *)value,
	};
}

static void post_and_forget(struct alloc *a, const struct fabric_request *requests, unsigned count)
{
	/*
	 * failed: the connection is gone and with it everything that we owned; the next call says
	 * so
	 */
	if (count)
		session_post(a->session, requests, count, NULL);
}

static void make_available(struct page *p, uint32_t index, struct alloc *a)
{
	bit_set(p->free, index);
	if (p->available++ == 0) {
		/* pages with something to give stand first */
		TAILQ_REMOVE(&a->classes[p->class], p, link);
		TAILQ_INSERT_HEAD(&a->classes[p->class], p, link);
	}
}

/* ---- handing out and taking back ------------------------------------------------------------- */

bool alloc_take(struct alloc *a, uint32_t class, struct alloc_block *ret_block)
{
	struct page *p = TAILQ_FIRST(&a->classes[class]);
	uint32_t word, index;

	if (!p || !p->available)
		return false;
	for (word = p->hint; !p->free[word]; word = (word + 1) % BITMAP_WORDS)
		;
	p->hint = word;
	index = word * 64 + (uint32_t)__builtin_ctzll(p->free[word]);
	a->used |= 1u << class;
	bit_clear(p->free, index);
	p->held++;
	if (--p->available == 0) {
		TAILQ_REMOVE(&a->classes[class], p, link);
		TAILQ_INSERT_TAIL(&a->classes[class], p, link);
	}
	ret_block->offset = offset_of(a, p, index);
	ret_block->class = class;
	ret_block->mark = bit_test(p->clean, index);
	bit_clear(p->clean, index);
	return true;
}

bool alloc_claim_begin(struct alloc *a, uint32_t class)
{
	/* a page of one block is enough for one: a large value's extents would wait for each other */
	unsigned most = layout_class_blocks(class) == 1 ? ALLOC_CLAIMS : 1;

	if (a->claiming[class] == most)
		return false;
	a->claiming[class]++;
	return true;
}

void alloc_claim_end(struct alloc *a, uint32_t class, int result)
{
	a->claiming[class]--;
	a->claim_results[class] = result;
}

int alloc_claim_result(const struct alloc *a, uint32_t class)
{
	return a->claim_results[class];
}

/* Pages with something to give stand first. */
bool alloc_has(const struct alloc *a, uint32_t class)
{
	const struct page *p = TAILQ_FIRST(&a->classes[class]);

	return p && p->available;
}

uint32_t alloc_larger(const struct alloc *a, uint32_t class)
{
	uint32_t larger;

	for (larger = class + 1; !layout_class_is_counter(class) && larger <= LAYOUT_CLASS_MAX &&
				 larger <= class + LARGER_STEPS;
	     larger++)
		if (alloc_has(a, larger))
			return larger;
	return class;
}

bool alloc_rests(const struct alloc *a, uint32_t class)
{
	const struct page *p;

	TAILQ_FOREACH (p, &a->classes[class], link) {
		if (p->waiting)
			return true;
	}
	return false;
}

/* Takes a held block off its page's account. */
static struct page *release(struct alloc *a, uint64_t offset)
{
	struct page *p = page_of(a, offset);

	if (MUTATED(MUTATION_UNPUBLISHED) && !p)
		return NULL;
	p->held--;
	if (p->available == 0)
		a->unsettled |= 1u << p->class;
	return p;
}

void alloc_publish(struct alloc *a, uint64_t offset)
{
	release(a, offset);
}

void alloc_return(struct alloc *a, const struct alloc_block *block)
{
	struct page *p = release(a, block->offset);
	uint32_t index;

	if (MUTATED(MUTATION_UNPUBLISHED) && !p)
		return;
	index = index_of(a, p, block->offset);
	if (block->mark)
		bit_set(p->clean, index);
	make_available(p, index, a);
}

/* ---- the wait list --------------------------------------------------------------------------- */

static struct wait *wait_at(struct alloc *a, uint32_t i)
{
	return &a->waits[(a->wait_head + i) % a->wait_size];
}

static bool wait_grow(struct alloc *a)
{
	struct wait *more = calloc((size_t)a->wait_size * 2, sizeof(*more));
	uint32_t i;

	if (!more)
		return false;
	for (i = 0; i < a->wait_count; i++)
		more[i] = *wait_at(a, i);
	free(a->waits);
	a->waits = more;
	a->wait_size *= 2;
	a->wait_head = 0;
	return true;
}

static void write_retired(struct alloc *a, uint64_t offset)
{
	const uint8_t retired = LAYOUT_FREE_RETIRED;
	struct fabric_request r = alloc_map_write(a, offset, &retired);

	post_and_forget(a, &r, 1);
}

static void wait_add(struct alloc *a, struct page *p, uint64_t offset)
{
	uint32_t index = index_of(a, p, offset);

	if (MUTATED(MUTATION_GRACE)) {
		make_available(p, index, a);
		return;
	}
	if (a->wait_count == a->wait_size && !wait_grow(a)) {
		/*
		 * no memory to remember it: tell the daemon instead, when the page is handed back
		 */
		write_retired(a, offset);
		return;
	}
	*wait_at(a, a->wait_count++) = (struct wait){
		.offset = offset,
		.since_ns = session_now(a->session),
		.page_serial = (uint32_t)layout_page_generation(p->word),
		.class = p->class,
	};
	bit_set(p->waits, index);
	p->waiting++;
}

void alloc_retire_held(struct alloc *a, const struct alloc_block *block)
{
	struct page *p = release(a, block->offset);

	if (layout_class_is_counter(block->class) || (MUTATED(MUTATION_UNPUBLISHED) && !p))
		write_retired(a, block->offset);
	else
		wait_add(a, p, block->offset);
}

void alloc_retire(struct alloc *a, uint64_t offset, uint32_t class)
{
	struct page *p;

	if (!layout_block_place_valid(&a->session->geometry, offset, class))
		return;
	p = page_of(a, offset);
	if (!p || layout_class_is_counter(class)) {
		write_retired(a, offset);
		return;
	}
	if (p->class != class || bit_test(p->free, index_of(a, p, offset)) ||
	    bit_test(p->waits, index_of(a, p, offset)))
		return;
	wait_add(a, p, offset);
	if (p->available == 0)
		a->unsettled |= 1u << class;
}

/* Is this entry's page still the one that it was retired in? */
static struct page *wait_page(struct alloc *a, const struct wait *w)
{
	struct page *p = page_of(a, w->offset);

	return p && (uint32_t)layout_page_generation(p->word) == w->page_serial ? p : NULL;
}

void alloc_epoch(struct alloc *a, uint64_t epoch, uint64_t posted_ns)
{
	uint64_t now = session_now(a->session);

	for (; a->wait_dated < a->wait_count && wait_at(a, a->wait_dated)->since_ns <= posted_ns;
	     a->wait_dated++)
		wait_at(a, a->wait_dated)->base = epoch;
	while (a->wait_count) {
		struct wait *w = wait_at(a, 0);
		struct page *p = wait_page(a, w);

		/* T2: G has passed and the epoch has gone up by two */
		if (p && (!w->base || now - w->since_ns < a->session->geometry.grace_ns ||
			  epoch < w->base + 2))
			break;
		if (p) {
			bit_clear(p->waits, index_of(a, p, w->offset));
			p->waiting--;
			make_available(p, index_of(a, p, w->offset), a);
		}
		a->wait_dated -= w->base != 0;
		a->wait_head = (a->wait_head + 1) % a->wait_size;
		a->wait_count--;
	}
}

/* ---- handing back ---------------------------------------------------------------------------- */

/*
 * The free-map bytes of a page that leaves: waiting blocks "retired", available ones "aged" if
 * their byte says otherwise.
 */
static void write_map(struct alloc *a, const struct page *p)
{
	const uint8_t retired = LAYOUT_FREE_RETIRED, aged = LAYOUT_FREE_AGED;
	struct fabric_request requests[FABRIC_POST_MAX];
	uint32_t blocks = layout_class_blocks(p->class), i;
	unsigned count = 0;

	for (i = 0; i < blocks; i++) {
		if (bit_test(p->waits, i))
			requests[count++] = alloc_map_write(a, offset_of(a, p, i), &retired);
		else if (bit_test(p->free, i) && !bit_test(p->clean, i))
			requests[count++] = alloc_map_write(a, offset_of(a, p, i), &aged);
		if (count == FABRIC_POST_MAX) {
			post_and_forget(a, requests, count);
			count = 0;
		}
	}
	post_and_forget(a, requests, count);
}

static void hand_back(struct alloc *a, struct page *p)
{
	enum layout_page_state state = p->available ? LAYOUT_PAGE_PARTIAL : LAYOUT_PAGE_FULL;
	struct fabric_request r = {
		.opcode = FABRIC_CAS,
		.length = 8,
		.offset = layout_page_word_offset(&a->session->geometry, p->number),
		.local = &a->dummy,
		.compare = p->word,
		.operand = layout_page_next(p->word, state, p->class, 0),
	};

	if (MUTATED(MUTATION_HAND_BACK))
		post_and_forget(a, &r, 1);
	if (p->waiting || p->available)
		write_map(a, p);
	if (!MUTATED(MUTATION_HAND_BACK))
		post_and_forget(a, &r, 1);
	a->owned[p->number] = NULL;
	TAILQ_REMOVE(&a->classes[p->class], p, link);
	a->pages_of_class[p->class]--;
	if (a->spare_count < SPARES)
		a->spares[a->spare_count++] = p;
	else
		free(p);
}

void alloc_settle(struct alloc *a)
{
	while (a->unsettled) {
		unsigned class = (unsigned)__builtin_ctz(a->unsettled);
		struct page *p, *next;

		a->unsettled &= ~(1u << class);
		/* pages without available blocks stand behind those that have some */
		for (p = TAILQ_LAST(&a->classes[class], page_list); p && !p->available; p = next) {
			next = TAILQ_PREV(p, page_list, link);
			if (!p->held &&
			    (!p->waiting || a->pages_of_class[class] > ALLOC_KEEP_PAGES))
				hand_back(a, p);
		}
	}
}

/* True: there was a page. */
static bool hand_back_class(struct alloc *a, unsigned class)
{
	struct page *p, *next;
	bool any = false;

	for (p = TAILQ_FIRST(&a->classes[class]); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->held && !MUTATED(MUTATION_UNPUBLISHED))
			continue;
		hand_back(a, p);
		any = true;
	}
	return any;
}

void alloc_hand_back_all(struct alloc *a)
{
	unsigned class;

	for (class = 0; class < LAYOUT_CLASSES; class++)
		hand_back_class(a, class);
}

bool alloc_hand_back_others(struct alloc *a, uint32_t class)
{
	unsigned other;
	bool any = false;

	for (other = 0; other < LAYOUT_CLASSES; other++)
		if (other != class && hand_back_class(a, other))
			any = true;
	return any;
}

void alloc_hand_back_unused(struct alloc *a)
{
	unsigned class;

	for (class = 0; class < LAYOUT_CLASSES; class++)
		if (!(a->used & 1u << class))
			hand_back_class(a, class);
	a->used = 0;
}

/* ---- a claimed page -------------------------------------------------------------------------- */

int alloc_adopt(struct alloc *a, uint32_t number, uint64_t word, const uint8_t *map)
{
	struct page *p = a->spare_count ? a->spares[--a->spare_count] : malloc(sizeof(*p));
	uint32_t class = layout_page_class(word), blocks = layout_class_blocks(class), i;
	uint32_t step = layout_class_bytes(class) / LAYOUT_UNIT;

	if (!p)
		return err_set(-ENOMEM, "no memory for a page");
	memset(p, 0, sizeof(*p));
	p->number = number;
	p->word = word;
	p->class = class;
	a->owned[number] = p;
	a->pages_of_class[class]++;
	TAILQ_INSERT_TAIL(&a->classes[class], p, link);
	for (i = 0; i < blocks; i++) {
		uint8_t byte = map ? map[i * step] : LAYOUT_FREE_AGED;

		if (byte == LAYOUT_FREE_AGED) {
			bit_set(p->clean, i);
			make_available(p, i, a);
		} else if (byte == LAYOUT_FREE_RETIRED && MUTATED(MUTATION_ADOPT_RETIRED)) {
			make_available(p, i, a);
		} else if (byte == LAYOUT_FREE_RETIRED && !layout_class_is_counter(class)) {
			bit_set(p->clean, i);
			wait_add(a, p, offset_of(a, p, i));
		}
	}
	if (!p->available)
		a->unsettled |= 1u << class;
	return 0;
}

void alloc_count(const struct alloc *a, struct alloc_counts *ret_counts)
{
	struct alloc_counts counts = {0};
	const struct page *p;
	unsigned class;

	for (class = 0; class < LAYOUT_CLASSES; class++) {
		TAILQ_FOREACH (p, &a->classes[class], link) {
			counts.pages++;
			counts.available += p->available;
			counts.held += p->held;
			counts.waiting += p->waiting;
		}
	}
	*ret_counts = counts;
}

enum alloc_block_state alloc_block_state(const struct alloc *a, uint64_t offset)
{
	const struct page *p = page_of(a, offset);

	if (!p)
		return ALLOC_FOREIGN;
	if (bit_test(p->free, index_of(a, p, offset)))
		return ALLOC_AVAILABLE;
	return bit_test(p->waits, index_of(a, p, offset)) ? ALLOC_WAITING : ALLOC_OTHER;
}
