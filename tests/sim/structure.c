/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * structure.c - the pool after a schedule: is each thing in it reached once, and each block in
 * exactly one state?
 *
 * The index is walked as the daemon's sweep would, then each block of the pages in play is compared
 * with what the index, the free map and the live clients' allocators say of it. Also what each key
 * holds at the end becomes a last "get" of its history.
 */
#include <string.h>

#include "alloc.h"
#include "mutation.h"
#include "run.h"

#define REACHED_MAX 64u

struct reached {
	uint64_t offset;
	uint32_t class;
};

struct walk {
	struct run *run;
	struct reached reached[REACHED_MAX];
	unsigned count;
	bool key_seen[RUN_KEYS];
	uint32_t page, suffix, depth; /* the subtable */
	bool losses; /* somebody died or lost its connection, or a block is damaged: the sweep has work */
};

static bool is_filler(const struct run *run, uint64_t word)
{
	for (unsigned i = 0; i < run->filler_count; i++)
		if (run->fillers[i] == word)
			return true;
	return false;
}

static const struct run_page *page_in_play(const struct run *run, uint64_t offset)
{
	uint32_t page = layout_offset_page(&run->sim->geometry, offset);

	for (unsigned i = 0; i < run->page_count; i++)
		if (run->pages[i].page == page)
			return &run->pages[i];
	return NULL;
}

static bool is_reached(const struct walk *w, uint64_t offset)
{
	for (unsigned i = 0; i < w->count; i++)
		if (w->reached[i].offset == offset)
			return true;
	return false;
}

/* Notes a block that a slot or an extent names. */
static void reach(struct walk *w, uint64_t offset, uint32_t class)
{
	struct run *run = w->run;
	const struct layout_geometry *g = &run->sim->geometry;
	uint64_t word;

	if (!layout_block_place_valid(g, offset, class) || !page_in_play(run, offset)) {
		run_fail(run, "the index names %llx with class %u, which is no block",
			 (unsigned long long)offset, class);
		return;
	}
	word = sim_word(run->sim, layout_page_word_offset(g, layout_offset_page(g, offset)));
	if (layout_page_class(word) != class)
		run_fail(run, "the index names block %llx with class %u, its page has %u",
			 (unsigned long long)offset, class, layout_page_class(word));
	if (is_reached(w, offset))
		run_fail(run, "block %llx is reached twice", (unsigned long long)offset);
	if (w->count < REACHED_MAX)
		w->reached[w->count++] = (struct reached){offset, class};
	if (run->sim->pool[layout_free_map_offset(g, offset)] != LAYOUT_FREE_IN_USE)
		run_fail(run, "block %llx is reached but its free-map byte is %u",
			 (unsigned long long)offset,
			 run->sim->pool[layout_free_map_offset(g, offset)]);
	for (unsigned i = 0; i < run->nclients; i++) {
		const struct run_client *c = &run->clients[i];
		enum alloc_block_state state =
			c->gone || c->lost ? ALLOC_FOREIGN
					   : alloc_block_state(c->session->alloc, offset);

		if (state == ALLOC_AVAILABLE || state == ALLOC_WAITING)
			run_fail(run, "block %llx is reached but client %u holds it for %s",
				 (unsigned long long)offset, i,
				 state == ALLOC_WAITING ? "waiting" : "available");
	}
}

/* What a key holds at the end, as one more get. */
static void last_get(struct walk *w, unsigned key, const struct layout_block *block)
{
	struct run *run = w->run;
	struct record *r;
	const uint8_t *value = layout_block_value(block);

	if (run->record_count == RUN_RECORDS ||
	    (block->expiry && sim_epoch(run->sim) + 1 >= block->expiry))
		return;
	r = &run->records[run->record_count++];
	*r = (struct record){.key = key};
	r->op = (struct linear_op){
		.kind = LINEAR_GET,
		.outcome = LINEAR_OK,
		.client = RUN_CLIENTS,
		.epoch_invoked = sim_epoch(run->sim),
		.epoch_returned = sim_epoch(run->sim),
	};
	if (block->kind == LAYOUT_KIND_COUNTER) {
		r->op.counter = true;
		memcpy(&r->op.value, value, 8);
	} else if (block->kind == LAYOUT_KIND_VALUE) {
		r->op.value = value_identify(run, key, value, block->value_length);
	} else {
		r->op.value = block->user_flags;
	}
	r->op.invoked = ++run->clock;
	r->op.returned = ++run->clock;
}

static void reach_extents(struct walk *w, const struct layout_block *block)
{
	const struct layout_extent *e = layout_block_value(block);
	uint64_t n = block->kind == LAYOUT_KIND_EXTENTS ? layout_extents(block->value_length) : 0;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t offset = layout_slot_offset(e[i].where),
			 rest = block->value_length - i * LAYOUT_PAGE_BYTES;
		uint64_t bytes = rest < LAYOUT_PAGE_BYTES ? rest : LAYOUT_PAGE_BYTES;

		reach(w, offset, layout_slot_class(e[i].where));
		if (!w->run->failed && !w->run->flipped &&
		    layout_extent_checksum(w->run->sim->pool + offset, bytes, offset) !=
			    e[i].checksum)
			run_fail(w->run, "extent %llx has a wrong checksum",
				 (unsigned long long)offset);
	}
}

static unsigned find_key(const struct run *run, const struct layout_block *block)
{
	for (unsigned key = 0; key < run->nkeys; key++)
		if (block->key_length == RUN_KEY_BYTES &&
		    !memcmp(layout_block_key(block), run->keys[key], RUN_KEY_BYTES))
			return key;
	return RUN_KEYS;
}

static void committed(struct walk *w, uint64_t slot, uint64_t word)
{
	struct run *run = w->run;
	uint64_t offset = layout_slot_offset(word);
	const struct layout_block *block = (const void *)(run->sim->pool + offset);
	uint64_t subtable = layout_page_offset(&run->sim->geometry, w->page);
	struct layout_hash hash;
	unsigned key;

	if (!layout_block_valid(block, layout_class_bytes(layout_slot_class(word)), offset)) {
		if (!run->flipped)
			run_fail(run, "block %llx of the committed slot at %llx is not valid",
				 (unsigned long long)offset, (unsigned long long)slot);
		return;
	}
	key = find_key(run, block);
	/* a flip has no say in this: a block that it has hit is not valid */
	if (key == RUN_KEYS || ((block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(word) &&
				!MUTATED(MUTATION_GENERATION))) {
		if (!run->flipped)
			run_fail(run, "block %llx has another key or generation than its slot",
				 (unsigned long long)offset);
		return;
	}
	hash = layout_hash_key(run->keys[key], RUN_KEY_BYTES, run->sim->geometry.hash_seed);
	if (layout_hash_fp(hash) != layout_slot_fp(word) ||
	    layout_suffix(layout_hash_suffix(hash), w->depth) != w->suffix ||
	    (slot - subtable - layout_hash_pair(hash, 0, 1) >= LAYOUT_PAIR_BYTES &&
	     slot - subtable - layout_hash_pair(hash, 1, 1) >= LAYOUT_PAIR_BYTES))
		run_fail(run, "key %u stands in a slot where nobody looks for it", key);
	if (w->key_seen[key]) {
		run_fail(run, "key %u stands in two committed slots", key);
		run->failed_key = key;
	}
	w->key_seen[key] = true;
	reach_extents(w, block);
	last_get(w, key, block);
}

static void slot(struct walk *w, uint64_t at)
{
	struct run *run = w->run;
	uint64_t word = sim_word(run->sim, at);

	if (word == 0 || is_filler(run, word))
		return;
	switch (layout_slot_state(word)) {
	case LAYOUT_SLOT_COMMITTED:
		reach(w, layout_slot_offset(word), layout_slot_class(word));
		if (!run->failed)
			committed(w, at, word);
		break;
	case LAYOUT_SLOT_PENDING:
		if (!w->losses || run->settles)
			run_fail(run, "a slot is pending, and nobody died%s",
				 w->losses ? " lately" : "");
		reach(w, layout_slot_offset(word), layout_slot_class(word));
		break;
	default:
		run_fail(run, "a slot holds %llx", (unsigned long long)word);
		break;
	}
}

/* A key that nobody found in the index was missing at the end. */
static void missing_keys(struct walk *w)
{
	struct run *run = w->run;

	for (unsigned key = 0; key < run->nkeys; key++) {
		struct record *r = &run->records[run->record_count];

		if (w->key_seen[key] || run->flipped || run->record_count == RUN_RECORDS)
			continue;
		*r = (struct record){.key = key};
		r->op = (struct linear_op){.kind = LINEAR_GET,
					   .outcome = LINEAR_ABSENT,
					   .client = RUN_CLIENTS,
					   .epoch_invoked = sim_epoch(run->sim),
					   .epoch_returned = sim_epoch(run->sim)};
		r->op.invoked = ++run->clock;
		r->op.returned = ++run->clock;
		run->record_count++;
	}
}

/* A block that nothing names: somebody has to know of it. */
static void unreached(struct walk *w, uint64_t offset)
{
	struct run *run = w->run;
	uint8_t byte = run->sim->pool[layout_free_map_offset(&run->sim->geometry, offset)];

	for (unsigned i = 0; i < run->nclients; i++) {
		const struct run_client *c = &run->clients[i];
		enum alloc_block_state state =
			c->gone || c->lost ? ALLOC_FOREIGN
					   : alloc_block_state(c->session->alloc, offset);

		if (state == ALLOC_AVAILABLE || state == ALLOC_WAITING)
			return;
	}
	if (byte == LAYOUT_FREE_IN_USE && (!w->losses || run->settles))
		run_fail(run, "block %llx is lost: in use, but nothing names it and nobody has it",
			 (unsigned long long)offset);
}

static void account(struct walk *w)
{
	struct run *run = w->run;
	const struct layout_geometry *g = &run->sim->geometry;

	for (unsigned i = 0; i < run->page_count && !run->failed; i++) {
		const struct run_page *p = &run->pages[i];
		uint64_t word = sim_word(run->sim, layout_page_word_offset(g, p->page));
		uint32_t class = layout_page_class(word);

		if (layout_page_state(word) == LAYOUT_PAGE_FREE ||
		    layout_page_state(word) == LAYOUT_PAGE_INDEX)
			continue;
		if (layout_page_state(word) == LAYOUT_PAGE_ORPHAN && run->settles)
			run_fail(run, "page %u is still an orphan", p->page);
		for (uint32_t b = 0; b < p->blocks && b < layout_class_blocks(class); b++) {
			uint64_t offset = layout_page_offset(g, p->page) +
					  (uint64_t)b * layout_class_bytes(class);

			if (!is_reached(w, offset))
				unreached(w, offset);
		}
	}
	for (unsigned i = 0; i < run->nclients && !run->failed; i++) {
		const struct run_client *c = &run->clients[i];
		struct alloc_counts counts;

		if (c->gone || c->lost)
			continue;
		alloc_count(c->session->alloc, &counts);
		if (counts.held)
			run_fail(run, "client %u is idle but has %u blocks in hand", i,
				 counts.held);
	}
}

/* A subtable that the directory names. */
static void subtable(struct walk *w)
{
	struct run *run = w->run;
	uint64_t bucket = layout_page_offset(&run->sim->geometry, w->page);

	for (unsigned b = 0; b < 3; b++, bucket += LAYOUT_BUCKET_BYTES) {
		uint64_t header = sim_word(run->sim, bucket);

		if (layout_header_depth(header) != w->depth || layout_header_split(header) ||
		    layout_header_suffix(header) != w->suffix)
			run_fail(run, "subtable %u of depth %u has the header %llx", w->suffix,
				 w->depth, (unsigned long long)header);
		for (unsigned s = 1; s <= LAYOUT_BUCKET_SLOTS && !run->failed; s++)
			slot(w, bucket + 8ull * s);
	}
}

static void index_check(struct walk *w)
{
	struct run *run = w->run;
	const struct layout_geometry *g = &run->sim->geometry;
	uint64_t global = sim_word(run->sim, LAYOUT_GLOBAL_DEPTH_OFFSET);

	for (uint64_t i = 0; i < 1ull << global && !run->failed; i++) {
		uint64_t entry = sim_word(run->sim, layout_directory_offset(g, i));

		w->page = layout_directory_page(entry);
		w->depth = layout_directory_depth(entry);
		w->suffix = layout_suffix((uint32_t)i, w->depth);
		if (layout_directory_state(entry) != LAYOUT_DIRECTORY_VALID || w->depth > global ||
		    w->page >= g->npages ||
		    layout_page_state(sim_word(run->sim, layout_page_word_offset(g, w->page))) !=
			    LAYOUT_PAGE_INDEX)
			run_fail(run, "entry %llu of the directory is %llx", (unsigned long long)i,
				 (unsigned long long)entry);
		else if (w->suffix == i)
			subtable(w);
	}
}

void structure_check(struct run *run)
{
	struct walk walk = {.run = run};

	/* corrupt blocks are not retired by anybody */
	walk.losses = run->losses || run->flipped;
	index_check(&walk);
	if (!run->failed)
		missing_keys(&walk);
	if (!run->failed)
		account(&walk);
}
