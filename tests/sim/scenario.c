/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scenario.c - what a seed stands for: the pool's state at the beginning, the keys, the clients'
 * scripts, the chances
 *
 * The pool has one group of buckets, so that all keys meet, and pages in which all but a few blocks
 * are unusable, so that blocks are soon used again. Pages: 0 index, 1 fillers, then some per class that
 * is used, the last ones free. Next: schedule.c.
 */
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define POOL_BYTES  (18u * LAYOUT_PAGE_BYTES)
#define MS          1000000ull
#define HASH_SEED   0x7461726e5f73696dull
#define FILLER_PAGE 1u
#define FIRST_PAGE  2u
/* Not the smallest ones, since the daemon goes over all blocks of a page again and again. */
#define SMALL_CLASS  6u /* 384 bytes: values of 265 to 328 */
#define SECOND_CLASS 7u /* 512 bytes: up to 456 */
#define MIN_SMALL    (320u - 48u - RUN_KEY_BYTES + 1)
#define MAX_SMALL    (384u - 48u - RUN_KEY_BYTES)
#define MAX_SECOND   (512u - 48u - RUN_KEY_BYTES)
/* A free-map byte of a block that nobody ever uses: no state of a block, so all keep away from it. */
#define UNUSABLE 3u
#define CHOSEN   4u /* so many families are for any schedule; the one behind them for RUN_MOVE */
/* RUN_PIECES: a value of one extent, and one whose block is of the class of that one's head */
#define PIECE_BYTES (LAYOUT_PAGE_BYTES - 40u)
#define HEAD_BYTES  16u

const char *run_kind_name(enum run_kind kind)
{
	static const char *const names[RUN_KINDS + 1] = {
		"mixed", "insert", "reuse", "wrap",     "counter", "expiry",  "memory",
		"large", "flip",   "sweep", "grow",     "evict",   "restart", "late",
		"move",  "pieces", "death", "pipeline", NULL};

	return names[kind];
}

/* ---- once ----------------------------------------------------------------------------------- */

/*
 * Keys of one fingerprint, by which bucket pairs they have; family 3: of different fingerprints; 4: keys
 * that leave the first subtable when it splits.
 */
static bool find_families(struct run *run)
{
	static const uint32_t wanted[RUN_FAMILIES][RUN_KEYS][2] = {
		{{0, 64}, {0, 64}, {0, 64}}, /* the same two pairs */
		{{0, 0}, {0, 0}, {64, 64}},  /* both choices are one pair */
		{{0, 64}, {64, 0}, {64, 64}}, {{0, 64}, {64, 0}, {0, 64}}, {{0, 0}, {0, 0}, {0, 0}},
	};

	for (unsigned family = 0; family < RUN_FAMILIES; family++) {
		unsigned found = 0;
		uint32_t fp = 0;

		for (unsigned i = 0; i < 1000000 && found < RUN_KEYS; i++) {
			char key[16];
			struct layout_hash hash;

			snprintf(key, sizeof(key), "k%u%06u", family, i);
			hash = layout_hash_key(key, RUN_KEY_BYTES, HASH_SEED);
			if (layout_hash_pair(hash, 0, 1) != wanted[family][found][0] ||
			    layout_hash_pair(hash, 1, 1) != wanted[family][found][1] ||
			    (found && family < 3 && layout_hash_fp(hash) != fp) ||
			    (family == CHOSEN && !(layout_hash_suffix(hash) & 1)))
				continue;
			fp = layout_hash_fp(hash);
			memcpy(run->families[family][found++], key, RUN_KEY_BYTES);
		}
		if (found < RUN_KEYS)
			return false;
	}
	return true;
}

/* Blocks of other keys, for slots that are taken. */
static void make_fillers(struct run *run)
{
	struct sim *sim = run->sim;
	uint64_t page = layout_page_offset(&sim->geometry, FILLER_PAGE);

	for (unsigned i = 0; i < RUN_FILLERS; i++) {
		struct {
			struct layout_block block;
			char key[16];
		} image;
		uint64_t offset = page + (uint64_t)i * layout_class_bytes(SMALL_CLASS);

		memset(&image, 0, sizeof(image));
		snprintf(image.key, sizeof(image.key), "f%07u", i);
		image.block = (struct layout_block){.generation = 1,
						    .key_length = RUN_KEY_BYTES,
						    .kind = LAYOUT_KIND_VALUE,
						    .class = SMALL_CLASS};
		image.block.checksum = layout_block_checksum(&image.block, offset);
		sim_write(sim, offset, &image, sizeof(image));
		run->fillers[i] = layout_slot_make(
			LAYOUT_SLOT_COMMITTED,
			layout_hash_fp(layout_hash_key(image.key, RUN_KEY_BYTES, HASH_SEED)),
			SMALL_CLASS, 1, offset);
	}
}

bool scenario_prepare(struct run *run)
{
	const struct layout_plan plan = {
		.pool_bytes = POOL_BYTES,
		.keys = 4,
		.max_clients = SIM_SLOTS,
		.groups = 1,
		.deadline_ns = 100 * MS,
		.epoch_ns = 250 * MS,
		.grace_ns = 500 * MS,
		.max_value_bytes = 1u << 20,
		.hash_seed = HASH_SEED,
		.incarnation = 1,
		.boot_id = 1,
	};
	const struct layout_geometry *g;
	struct sim *sim = run->sim = sim_create(&plan);

	if (!sim || !find_families(run))
		return false;
	g = &sim->geometry;
	for (uint32_t page = 1; page < g->npages; page++) {
		memset(sim->pool + layout_free_map_offset(g, layout_page_offset(g, page)), UNUSABLE,
		       LAYOUT_UNITS_PER_PAGE);
		/* pages that are not in play are one block, which is soon looked at */
		sim_set_word(sim, layout_page_word_offset(g, page),
			     layout_page_make(LAYOUT_PAGE_FULL,
					      page == FILLER_PAGE ? SMALL_CLASS : LAYOUT_CLASS_MAX,
					      0, 1));
	}
	make_fillers(run);
	sim_keep(sim);
	return true;
}

/* ---- memory of one schedule ----------------------------------------------------------------- */

/* The next page gets this class, and that many blocks which can be had. */
static void partial_page(struct run *run, uint32_t class, uint32_t blocks)
{
	struct sim *sim = run->sim;
	const struct layout_geometry *g = &sim->geometry;
	uint32_t page = FIRST_PAGE + run->page_count;
	uint64_t map = layout_free_map_offset(g, layout_page_offset(g, page));
	const uint8_t aged = LAYOUT_FREE_AGED;

	run->pages[run->page_count++] =
		(struct run_page){.page = page, .class = class, .blocks = blocks};
	for (uint32_t i = 0; i < blocks; i++)
		sim_write(sim, map + (uint64_t)i * (layout_class_bytes(class) / LAYOUT_UNIT), &aged,
			  1);
	sim_set_word(sim, layout_page_word_offset(g, page),
		     layout_page_make(LAYOUT_PAGE_PARTIAL, class, 0, 2));
}

static void free_pages(struct run *run, uint32_t count)
{
	struct sim *sim = run->sim;
	const struct layout_geometry *g = &sim->geometry;
	static const uint8_t aged[LAYOUT_UNITS_PER_PAGE]; /* all 0 */

	for (uint32_t page = g->npages - count - (run->root > 0);
	     page < g->npages - (run->root > 0); page++) {
		sim_write(sim, layout_free_map_offset(g, layout_page_offset(g, page)), aged,
			  sizeof(aged));
		sim_set_word(sim, layout_page_word_offset(g, page),
			     layout_page_make(LAYOUT_PAGE_FREE, 0, 0, 2));
		if (run->page_count < RUN_PAGES)
			run->pages[run->page_count++] = (struct run_page){
				.page = page, .class = LAYOUT_CLASSES, .blocks = 64};
	}
	sim_set_word(sim, LAYOUT_CURSOR_OFFSET, g->npages - count);
}

/* A slot of another key. */
static void fill_slot(struct run *run, unsigned at)
{
	struct sim *sim = run->sim;

	sim_set_word(sim,
		     layout_page_offset(&sim->geometry, run->root) + at / 7 * LAYOUT_BUCKET_BYTES +
			     8 + at % 7 * 8ull,
		     run->fillers[run->filler_count++]);
}

/* Slots of other keys: some stay empty. */
static void fill_slots(struct run *run, unsigned leave)
{
	struct sim *sim = run->sim;
	unsigned at = (unsigned)sim_below(sim, 21),
		 step = 1 + 3 * (unsigned)sim_below(sim, 2); /* 1 or 4: coprime to 21 */

	while (run->filler_count < 21 - leave && run->filler_count < RUN_FILLERS) {
		fill_slot(run, at);
		at = (at + step) % 21;
	}
}

/*
 * The first subtable is in the pool's last page, so that a sweep has been where its keys go to before it
 * comes there; and nothing but one slot of its overflow bucket is free for its keys.
 */
static void prepare_move(struct run *run)
{
	struct sim *sim = run->sim;
	const struct layout_geometry *g = &sim->geometry;
	uint32_t last = g->npages - 1;
	unsigned left = 7 + (unsigned)sim_below(sim, 7);
	const uint8_t unusable = UNUSABLE;

	sim_write(sim, layout_page_offset(g, last), sim->pool + layout_page_offset(g, 0),
		  3 * LAYOUT_BUCKET_BYTES);
	sim_set_word(sim, layout_page_word_offset(g, last),
		     layout_page_make(LAYOUT_PAGE_INDEX, 0, 0, 2));
	sim_set_word(sim, layout_directory_offset(g, 0),
		     layout_directory_make(last, 0, LAYOUT_DIRECTORY_VALID));
	sim_set_word(sim, layout_page_word_offset(g, 0),
		     layout_page_make(LAYOUT_PAGE_FULL, LAYOUT_CLASS_MAX, 0, 2));
	sim_write(sim, layout_free_map_offset(g, layout_page_offset(g, 0)), &unusable, 1);
	run->root = last;
	for (unsigned at = 0; at < 14 + sim_below(sim, 4); at++)
		if (at != left)
			fill_slot(run, at);
}

static uint32_t between(struct sim *sim, uint32_t low, uint32_t high)
{
	return low + (uint32_t)sim_below(sim, high - low + 1);
}

/* ---- kinds ---------------------------------------------------------------------------------- */

/* Chances of a script's lines, in parts of their sum. */
struct weights {
	uint8_t get, exists, put, put_if_absent, put_if_stamp, delete, add, process, sleep;
};

static const struct weights weights[RUN_KINDS] = {
	[RUN_MIXED] = {26, 3, 24, 10, 12, 12, 5, 3, 3},
	[RUN_INSERT] = {18, 2, 24, 28, 3, 24, 0, 0, 2},
	[RUN_REUSE] = {20, 1, 36, 4, 7, 8, 0, 8, 16},
	[RUN_WRAP] = {22, 1, 22, 4, 22, 15, 0, 1, 8},
	[RUN_COUNTER] = {10, 0, 5, 2, 2, 16, 46, 10, 9},
	[RUN_EXPIRY] = {26, 2, 24, 10, 8, 8, 2, 1, 22},
	[RUN_MEMORY] = {14, 0, 40, 5, 3, 10, 1, 18, 12},
	[RUN_LARGE] = {36, 2, 36, 4, 6, 8, 0, 2, 8},
	[RUN_FLIP] = {36, 2, 26, 6, 8, 10, 0, 2, 4},
	[RUN_SWEEP] = {10, 0, 40, 8, 2, 14, 2, 8, 26},
	[RUN_GROW] = {24, 2, 30, 14, 6, 18, 4, 1, 1},
	[RUN_EVICT] = {36, 2, 40, 6, 6, 6, 0, 2, 8},
	[RUN_RESTART] = {20, 1, 36, 6, 6, 14, 6, 3, 8},
	[RUN_LATE] = {40, 1, 34, 8, 5, 9, 0, 1, 2},
	[RUN_MOVE] = {60, 0, 0, 0, 0, 0, 0, 4, 0},
	[RUN_PIECES] = {20, 0, 30, 0, 0, 10, 0, 4, 20},
	[RUN_DEATH] = {20, 1, 30, 20, 8, 24, 8, 2, 0},
	[RUN_PIPELINE] = {24, 2, 36, 8, 8, 12, 6, 6, 4},
};

static enum run_kind choose_kind(struct sim *sim)
{
	static const uint16_t parts[RUN_KINDS] = {290, 220, 200, 20, 80, 40, 80, 2,  20,
						  20,  60,  40,  60, 20, 20, 2,  60, 100};
	uint64_t sum = 0, at;
	unsigned i;

	for (i = 0; i < RUN_KINDS; i++)
		sum += parts[i];
	at = sim_below(sim, sum);
	for (i = 0; at >= parts[i]; i++)
		at -= parts[i];
	return (enum run_kind)i;
}

static uint64_t pick(struct sim *sim, const uint64_t *of, unsigned count)
{
	return of[sim_below(sim, count)];
}
#define PICK(sim, ...) \
	pick(sim, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8)

static int32_t choose_drift(struct sim *sim)
{
	return (int32_t)sim_below(sim, 2 * SIM_DRIFT_MAX + 1) - SIM_DRIFT_MAX;
}

static void tune(struct run *run)
{
	struct sim *sim = run->sim;
	uint64_t wrap_ns =
		(sim->geometry.epoch_ns << LAYOUT_GEN_BITS) + 16 * sim->geometry.epoch_ns;
	struct sim_tuning t = {
		.tick_ns = (uint32_t)PICK(sim, 2000, 20000, 100000),
		.delays = (uint32_t)PICK(sim, 0, 0, 8, 40),
		.stalls = (uint32_t)PICK(sim, 0, 4, 16),
		.longest_stall_ns = PICK(sim, 200 * MS, 2000 * MS, 20000 * MS),
		.shuffle = sim_chance(sim, 512),
		.stoppable = sim_chance(sim, 512),
		.reads_late = sim_chance(sim, 256),
	};

	t.post_stalls = t.stalls;
	if (run->kind == RUN_INSERT)
		t.stalls = (uint32_t)PICK(sim, 0, 0, 4);
	if (run->kind == RUN_REUSE || run->kind == RUN_LARGE)
		t.stalls = (uint32_t)PICK(sim, 16, 60);
	if (run->kind == RUN_SWEEP || (run->kind == RUN_PIPELINE && sim_chance(sim, 512))) {
		t.stalls = (uint32_t)PICK(sim, 4, 20, 60);
		t.longest_stall_ns = PICK(sim, 2000 * MS, 20000 * MS);
	}
	if (run->kind == RUN_WRAP) {
		t.stalls = (uint32_t)PICK(sim, 100, 200);
		t.post_stalls = (uint32_t)PICK(sim, 0, 0, 10);
		t.longest_stall_ns = wrap_ns;
		t.wraps = true;
		t.calm_clients = 1; /* client 0 has to be in time */
	}
	if (run->kind == RUN_MEMORY && sim_chance(sim, 700)) {
		t.stoppable = true;
		t.post_stalls = (uint32_t)PICK(sim, 20, 100);
	}
	if (run->kind == RUN_MOVE)
		t.tick_ns = (uint32_t)PICK(sim, 20000, 100000);
	t.ends_soon = run->kind == RUN_MOVE || run->kind == RUN_PIECES;
	if (run->kind == RUN_DEATH)
		t = (struct sim_tuning){.tick_ns = 200,
					.shuffle = t.shuffle,
					.stoppable = t.stoppable,
					.reads_late = t.reads_late};
	t.pipelined = run->kind == RUN_PIPELINE;
	if (run->kind == RUN_LATE) {
		t.late_writes = true;
		run->flipped = true;
	}
	t.faa = !t.stoppable && sim_chance(sim, 512);
	if (sim_chance(sim, 512) && !t.wraps) {
		sim->daemon_drift = choose_drift(sim);
		for (unsigned i = 0; i < RUN_CLIENTS; i++)
			sim->endpoints[i].drift = choose_drift(sim);
	}
	sim_tune(sim, &t);
	run->burst = (uint32_t)PICK(sim, 0, 512, 900, 990);
	run->timeout_ms = (uint32_t)PICK(sim, 50, 5000, 5000, 5000, 5000, 12000, 12000);
	if (run->kind == RUN_WRAP)
		run->timeout_ms = 3600000;
	run->raises = run->kind == RUN_SWEEP || run->kind == RUN_COUNTER || run->kind == RUN_RESTART
			      ? (uint32_t)PICK(sim, 0, 4, 30)
		      : run->kind == RUN_PIPELINE ? (uint32_t)PICK(sim, 0, 30, 300)
						  : 0;
	if (run->kind == RUN_PIECES)
		run->timeout_ms = 12000;
	run->caches = sim_chance(sim, run->kind == RUN_REUSE || run->kind == RUN_WRAP ? 800 : 512);
}

static void give_memory(struct run *run, bool counters, bool second)
{
	struct sim *sim = run->sim;
	uint32_t low = 2, high = 6;
	unsigned pages = run->nclients;

	if (run->kind == RUN_REUSE || run->kind == RUN_WRAP || run->kind == RUN_MEMORY)
		high = 3;
	if (run->kind == RUN_MEMORY)
		pages = between(sim, 1, run->nclients);
	/* nobody waits for memory */
	if (run->kind == RUN_DEATH)
		low = high = 12;
	for (unsigned i = 0; i < pages; i++)
		partial_page(run, SMALL_CLASS, between(sim, low, high));
	if (run->kind == RUN_PIECES)
		partial_page(run,
			     layout_class_for(layout_block_bytes(LAYOUT_KIND_EXTENTS, RUN_KEY_BYTES,
								 PIECE_BYTES)),
			     1);
	for (unsigned i = 0; second && i < pages; i++)
		partial_page(run, SECOND_CLASS, between(sim, low, high));
	for (unsigned i = 0; counters && i < pages; i++)
		partial_page(run, LAYOUT_CLASS_COUNTER, between(sim, low, low + 2));
	if (run->kind == RUN_LARGE)
		free_pages(run, between(sim, 3, 8));
	else if (run->kind == RUN_MOVE || run->kind == RUN_PIECES)
		free_pages(run, 1);
	else if (run->kind == RUN_DEATH)
		free_pages(run, 0);
	else if (run->grows)
		free_pages(run, between(sim, 1, 3));
	else if (run->kind == RUN_SWEEP)
		free_pages(run, between(sim, 0, 2));
	else
		free_pages(run, run->kind == RUN_MEMORY || sim_chance(sim, 64)
					? (uint32_t)sim_below(sim, 2)
					: 0);
}

/* ---- scripts -------------------------------------------------------------------------------- */

static enum script_verb choose_verb(struct run *run)
{
	const struct weights *w = &weights[run->kind];
	struct sim *sim = run->sim;
	const uint8_t parts[] = {w->get,
				 w->exists,
				 w->put,
				 w->put_if_absent,
				 w->put_if_stamp,
				 w->delete,
				 run->counters ? w->add : 0,
				 w->process,
				 w->sleep};
	static const enum script_verb verbs[] = {
		SCRIPT_GET,           SCRIPT_EXISTS,       SCRIPT_PUT,
		SCRIPT_PUT_IF_ABSENT, SCRIPT_PUT_IF_STAMP, SCRIPT_DELETE,
		SCRIPT_ADD,           SCRIPT_PROCESS,      SCRIPT_SLEEP};
	unsigned sum = 0, at, i;

	for (i = 0; i < 9; i++)
		sum += parts[i];
	at = (unsigned)sim_below(sim, sum);
	for (i = 0; at >= parts[i]; i++)
		at -= parts[i];
	return verbs[i];
}

static uint64_t choose_sleep(struct run *run)
{
	const struct layout_geometry *g = &run->sim->geometry;

	/* as long as a sweep takes */
	if (run->kind == RUN_SWEEP)
		return sim_below(run->sim, 8 * g->grace_ns);
	switch (sim_below(run->sim, 4)) {
	case 0:
		return sim_below(run->sim, 2 * g->deadline_ns);
	case 1:
		return sim_below(run->sim, 2 * g->epoch_ns);
	default:
		/* blocks that were retired before can be used again */
		return g->grace_ns + sim_below(run->sim, 3 * g->epoch_ns);
	}
}

static void write_line(struct run *run, struct script *s, enum script_verb verb, bool second)
{
	struct sim *sim = run->sim;
	uint32_t room = second && sim_chance(sim, 512) ? MAX_SECOND : MAX_SMALL;

	*s = (struct script){.verb = verb, .key = (unsigned)sim_below(sim, run->nkeys)};
	switch (verb) {
	case SCRIPT_PUT:
	case SCRIPT_PUT_IF_ABSENT:
	case SCRIPT_PUT_IF_STAMP:
		s->bytes = between(sim, room == MAX_SECOND ? MAX_SMALL + 1 : MIN_SMALL, room);
		if (run->kind == RUN_LARGE && sim_chance(sim, 700))
			s->bytes =
				(uint32_t)PICK(sim, LAYOUT_PAGE_BYTES - 40, LAYOUT_PAGE_BYTES + 40,
					       2 * LAYOUT_PAGE_BYTES + 16);
		if (run->kind == RUN_EXPIRY && sim_chance(sim, 700))
			s->expiry_ms = between(sim, 1, 1500);
		break;
	case SCRIPT_ADD:
		s->delta = sim_chance(sim, 900) ? (int64_t)between(sim, 1, 9)
						: -(int64_t)between(sim, 1, 9);
		break;
	case SCRIPT_SLEEP:
		s->sleep_ns = choose_sleep(run);
		break;
	case SCRIPT_PROCESS:
		/* as if idle: pages go from hand to hand */
		if (run->kind == RUN_MEMORY && sim_chance(sim, 700))
			s->verb = SCRIPT_CLOSE;
		break;
	default:
		break;
	}
}

static void add_line(struct run *run, struct run_client *c, enum script_verb verb, unsigned key,
		     uint64_t sleep_ns)
{
	struct script *s = &c->script[c->length++];

	write_line(run, s, verb, false);
	s->key = key;
	if (verb == SCRIPT_SLEEP)
		s->sleep_ns = sleep_ns;
}

/*
 * A story: client 0 puts a key, takes it away or replaces it, waits until its block can be used
 * again (in a wrap schedule: until the generation comes again, too), and puts it or another key of
 * the same fingerprint. Client 1 looks at the key at the beginning, and writes it at the end: by a
 * location that it remembers, or by a call that was held up all the while.
 */
static void write_story(struct run *run)
{
	static const enum script_verb late_calls[] = {SCRIPT_PUT, SCRIPT_PUT_IF_STAMP,
						      SCRIPT_DELETE, SCRIPT_GET};
	struct sim *sim = run->sim;
	const struct layout_geometry *g = &sim->geometry;
	struct run_client *first = &run->clients[0], *other = &run->clients[1];
	unsigned key = (unsigned)sim_below(sim, run->nkeys),
		 then = (unsigned)sim_below(sim, run->nkeys);
	uint64_t moment = 400ull * sim->tuning.tick_ns,
		 again = g->grace_ns + g->epoch_ns + sim_below(sim, 4 * g->epoch_ns);
	bool wrap = run->kind == RUN_WRAP;

	first->length = other->length = 0;
	add_line(run, first, SCRIPT_PUT, key, 0);
	add_line(run, first, SCRIPT_SLEEP, 0, moment + sim_below(sim, moment));
	add_line(run, first, sim_chance(sim, 512) ? SCRIPT_PUT : SCRIPT_DELETE, key, 0);
	/* this reads the epoch: two epochs later, and after G, the block can be had */
	add_line(run, first, SCRIPT_PROCESS, 0, 0);
	add_line(run, first, wrap ? SCRIPT_SLEEP_WRAP : SCRIPT_SLEEP, 0, again);
	add_line(run, first, SCRIPT_PUT, then, 0);
	add_line(run, first, SCRIPT_SLEEP, 0, 12 * g->epoch_ns);
	add_line(run, first, SCRIPT_GET, then, 0);
	other->wake_ns = sim->now_ns + moment / 2 + sim_below(sim, moment);
	add_line(run, other, sim_chance(sim, 800) ? SCRIPT_GET : SCRIPT_PUT, key, 0);
	if (!wrap || sim_chance(sim, 256))
		add_line(run, other, SCRIPT_SLEEP, 0, again + sim_below(sim, 2 * g->epoch_ns));
	add_line(run, other, late_calls[sim_below(sim, 4)], key, 0);
	add_line(run, other, SCRIPT_GET, then, 0);
}

/* Somebody dies who has a page, which calls for a sweep. */
static void write_death(struct run *run, struct run_client *c, uint64_t sleep_ns)
{
	c->length = 0;
	add_line(run, c, SCRIPT_PUT, 1, 0);
	add_line(run, c, SCRIPT_DELETE, 1, 0);
	add_line(run, c, SCRIPT_SLEEP, 0, sleep_ns);
	add_line(run, c, SCRIPT_DIE, 0, 0);
}

/*
 * Client 0 puts a key and gives its memory back; client 2 dies. While a sweep goes over the index
 * client 1 puts another key, for which there is no slot: the subtable splits, and the first key moves.
 */
static void write_move(struct run *run)
{
	struct run_client *first = &run->clients[0], *other = &run->clients[1],
			  *reader = &run->clients[3];

	first->length = other->length = reader->length = 0;
	add_line(run, first, SCRIPT_SLEEP, 0, 100 * MS);
	add_line(run, first, SCRIPT_PUT, 0, 0);
	add_line(run, first, SCRIPT_CLOSE, 0, 0);
	add_line(run, other, SCRIPT_AWAIT_SWEEP, 0, 0);
	add_line(run, other, SCRIPT_PUT, 1, 0);
	add_line(run, other, SCRIPT_GET, 0, 0);
	write_death(run, &run->clients[2], 200 * MS);
	add_line(run, reader, SCRIPT_AWAIT_SWEEP, 0, 0);
	for (unsigned l = 0; l < 8; l++)
		add_line(run, reader, SCRIPT_GET, 0, 0);
}

/*
 * Client 1 fills the one block that heads of large values have, and empties it again: it rests. Client 0
 * puts a large value: its extent has a block, its head waits for that one. Client 2 dies, which calls
 * for a sweep meanwhile. Then somebody else puts a large value.
 */
static void write_pieces(struct run *run)
{
	struct sim *sim = run->sim;
	uint64_t again = 4 * sim->geometry.grace_ns;

	for (unsigned i = 0; i < 2; i++)
		run->clients[i].length = 0;
	add_line(run, &run->clients[1], SCRIPT_PUT, 1, 0);
	run->clients[1].script[0].bytes = HEAD_BYTES;
	add_line(run, &run->clients[1], SCRIPT_DELETE, 1, 0);
	add_line(run, &run->clients[1], SCRIPT_CLOSE, 0, 0);
	add_line(run, &run->clients[1], SCRIPT_SLEEP, 0, again + sim_below(sim, again));
	add_line(run, &run->clients[1], SCRIPT_GET, 0, 0);
	add_line(run, &run->clients[0], SCRIPT_SLEEP, 0, sim_below(sim, 400 * MS));
	add_line(run, &run->clients[0], SCRIPT_PUT, 0, 0);
	run->clients[0].script[1].bytes = PIECE_BYTES;
	add_line(run, &run->clients[0], SCRIPT_SLEEP, 0, again + sim_below(sim, again));
	add_line(run, &run->clients[0], SCRIPT_GET, 0, 0);
	write_death(run, &run->clients[2], sim_below(sim, 400 * MS));
}

/*
 * Client 1 puts a key and gives its memory back; client 2 dies. While a sweep goes over the pool client 0
 * replaces the value, and so owes the old block's byte, with other calls beside it; it raises its count
 * as often as it may.
 */
static void write_owing(struct run *run)
{
	struct run_client *first = &run->clients[0], *other = &run->clients[1];

	first->length = other->length = 0;
	add_line(run, other, SCRIPT_PUT, 0, 0);
	add_line(run, other, SCRIPT_CLOSE, 0, 0);
	write_death(run, &run->clients[2], 200 * MS);
	add_line(run, first, SCRIPT_AWAIT_SWEEP, 0, 0);
	add_line(run, first, SCRIPT_PUT, 0, 0);
	for (unsigned l = 0; l < 6; l++)
		add_line(run, first, SCRIPT_GET, l % run->nkeys, 0);
	run->raises = 1024;
}

static void write_scripts(struct run *run, bool second)
{
	struct sim *sim = run->sim;
	unsigned lines = run->kind == RUN_LARGE ? 4
			 : run->kind == RUN_REUSE || run->kind == RUN_MEMORY ||
					 run->kind == RUN_SWEEP || run->kind == RUN_COUNTER
				 ? 11
				 : 6;
	bool prepared = sim_chance(sim, 512);

	for (unsigned i = 0; i < run->nclients; i++) {
		struct run_client *c = &run->clients[i];

		c->length = between(sim, lines - 3, lines);
		for (unsigned l = 0; l < c->length; l++)
			write_line(run, &c->script[l], choose_verb(run), second);
		/* the keys are there before the others begin */
		if (prepared && i == 0)
			for (unsigned key = 0; key < run->nkeys && key < c->length; key++) {
				enum script_verb verb =
					run->kind == RUN_COUNTER ? SCRIPT_ADD : SCRIPT_PUT;

				write_line(run, &c->script[key], verb, second);
				c->script[key].key = key;
			}
		if (sim_chance(sim, 128))
			write_line(run, &c->script[c->length++], SCRIPT_CLOSE, false);
		if (i > 0 && prepared)
			c->wake_ns = sim->now_ns + sim_below(sim, 1000ull * sim->tuning.tick_ns);
	}
	if (run->kind == RUN_WRAP ||
	    ((run->kind == RUN_REUSE || run->kind == RUN_LARGE) && sim_chance(sim, 400)))
		write_story(run);
	if (run->kind == RUN_MOVE)
		write_move(run);
	if (run->kind == RUN_PIECES)
		write_pieces(run);
	if (run->kind == RUN_PIPELINE && run->settles && run->nclients > 2 && run->nkeys > 1 &&
	    sim_chance(sim, 400))
		write_owing(run);
}

/* ---- a cache pool ---------------------------------------------------------------------------- */

/* To its clients it is as if somebody had deleted the key at that instant. */
static void removed(void *argument, uint64_t word)
{
	struct run *run = argument;
	const struct layout_block *block =
		(const void *)(run->sim->pool + layout_slot_offset(word));
	struct record *r = &run->records[run->record_count];
	unsigned needed = run->record_count + run->nkeys;

	for (unsigned i = 0; i < run->nclients; i++)
		needed += run->clients[i].length;
	for (unsigned key = 0; key < run->nkeys; key++) {
		if (block->key_length != RUN_KEY_BYTES ||
		    memcmp(layout_block_key(block), run->keys[key], RUN_KEY_BYTES) != 0)
			continue;
		if (needed >= RUN_RECORDS) {
			run->crowded = true;
			return;
		}
		*r = (struct record){.key = key};
		r->op = (struct linear_op){.kind = LINEAR_DELETE,
					   .outcome = LINEAR_OK,
					   .client = RUN_CLIENTS,
					   .epoch_invoked = sim_epoch(run->sim),
					   .epoch_returned = sim_epoch(run->sim)};
		r->op.invoked = ++run->clock;
		r->op.returned = ++run->clock;
		run->record_count++;
	}
}

static void choose_mode(struct run *run)
{
	struct sim *sim = run->sim;
	bool cache = run->kind == RUN_EVICT;

	sim->geometry.mode = cache ? LAYOUT_MODE_CACHE : LAYOUT_MODE_STORE;
	sim->geometry.reference_sample = cache ? (uint32_t)between(sim, 1, 3) : 0;
	sim->removed = cache ? removed : NULL;
	sim->removed_argument = run;
	run->crowded = false;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void choose_disasters(struct run *run)
{
	struct sim *sim = run->sim;

	for (unsigned i = 0; i < RUN_CLIENTS; i++)
		run->kill_step[i] = run->break_step[i] = SIM_NEVER;
	run->flip_step = run->daemon_stop_step = run->daemon_kill_step = SIM_NEVER;
	run->reconnects =
		sim_chance(sim, 768) || run->kind == RUN_RESTART || run->kind == RUN_SWEEP;
	run->daemon_kills = 0;
	run->settles = run->kind == RUN_SWEEP ||
		       (run->kind == RUN_PIPELINE && sim_chance(sim, 512)) ||
		       run->kind == RUN_PIECES || run->kind == RUN_MOVE;
	/* somebody has to be there for as long as it takes */
	run->reconnects |= run->settles;
	if (run->kind == RUN_PIECES || run->kind == RUN_MOVE)
		return;
	/* seeds one after the other go over all steps */
	if (run->kind == RUN_DEATH) {
		run->kill_step[0] = run->seed % 1024;
		if (sim_chance(sim, 300) && run->nclients > 2)
			run->kill_step[1] = sim_below(sim, 1024);
		return;
	}
	if (run->kind == RUN_SWEEP || (run->kind == RUN_PIPELINE && run->settles))
		for (unsigned i = between(sim, 1, 3); i > 0; i--)
			(sim_chance(sim, 700) ? run->kill_step
					      : run->break_step)[sim_below(sim, run->nclients)] =
				sim_below(sim, 900);
	if (run->kind == RUN_RESTART || (run->settles && sim_chance(sim, 100))) {
		run->daemon_kill_step = sim_below(sim, 1000);
		run->daemon_kills = (unsigned)sim_below(sim, 4);
	}
	if (sim_chance(sim, 300))
		run->kill_step[sim_below(sim, run->nclients)] = sim_below(sim, 1500);
	if (sim_chance(sim, 60))
		run->kill_step[sim_below(sim, run->nclients)] = sim_below(sim, 1500);
	if (sim_chance(sim, 80))
		run->break_step[sim_below(sim, run->nclients)] = sim_below(sim, 1500);
	if (run->kind == RUN_FLIP || (run->kind == RUN_LARGE && sim_chance(sim, 200)))
		run->flip_step = sim_below(sim, 1000);
	if (sim_chance(sim, 50) && run->kind != RUN_EXPIRY)
		run->daemon_stop_step = sim_below(sim, 1000);
}

bool scenario_begin(struct run *run, enum run_kind kind)
{
	struct sim *sim = run->sim;
	unsigned family;
	bool counters, second;

	run->kind = kind == RUN_KINDS ? choose_kind(sim) : kind;
	run->nclients = run->kind == RUN_LARGE ? 2 : between(sim, 2, RUN_CLIENTS);
	if (run->kind == RUN_WRAP && sim_chance(sim, 800))
		run->nclients = 2;
	if (run->kind == RUN_MOVE || run->kind == RUN_PIECES)
		run->nclients = run->kind == RUN_MOVE ? 4 : 3;
	run->nkeys = run->kind == RUN_INSERT || run->kind == RUN_LARGE ? between(sim, 1, 2)
								       : between(sim, 1, RUN_KEYS);
	family = (unsigned)sim_below(sim, CHOSEN + 2) % CHOSEN;
	if (run->kind == RUN_MOVE || run->kind == RUN_PIECES)
		run->nkeys = 2;
	if (run->kind == RUN_MOVE)
		family = CHOSEN;
	memcpy(run->keys, run->families[family], sizeof(run->keys));
	tune(run);
	sim_set_word(sim, LAYOUT_EPOCH_OFFSET, 2 + sim_below(sim, 3 << LAYOUT_GEN_BITS));
	counters = weights[run->kind].add > 0 && (run->kind == RUN_COUNTER || sim_chance(sim, 400));
	run->root = 0;
	if (run->kind == RUN_MOVE)
		prepare_move(run);
	second = run->kind == RUN_MEMORY || (run->kind != RUN_LARGE && sim_chance(sim, 200));
	run->grows = run->kind == RUN_GROW || (run->kind == RUN_RESTART && sim_chance(sim, 512));
	/* all keys can have each of the free slots, and they are enough */
	if (run->kind == RUN_DEATH && sim_chance(sim, 512)) {
		memcpy(run->keys, run->families[0], sizeof(run->keys));
		fill_slots(run, run->nkeys);
	} else if (run->kind != RUN_MOVE && run->kind != RUN_DEATH &&
		   (sim_chance(sim, 300) || run->grows)) {
		fill_slots(run, run->grows ? between(sim, 1, 5) : between(sim, 3, 8));
		/* who waits for a slot looks again a thousand times a second */
		if (run->timeout_ms < 100000)
			run->timeout_ms = (uint32_t)PICK(sim, 50, 300, 600);
	}
	run->depth = run->kind == RUN_PIPELINE ? between(sim, 2, RUN_DEPTH) : 1;
	run->counters = counters;
	give_memory(run, counters, second);
	choose_disasters(run);
	choose_mode(run);
	if (!sim_daemon_begin(sim->daemon))
		return false;
	/* a walk over all pages, which fills the ready rings */
	for (unsigned i = 0; i < 4; i++)
		sim_keeper_run(sim->daemon);
	for (unsigned i = 0; i < run->nclients; i++)
		if (!client_open(&run->clients[i]))
			return false;
	write_scripts(run, second);
	return true;
}
