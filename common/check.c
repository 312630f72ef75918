/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check.c - the check of a pool as a whole: its phases, suspects that are looked at again, findings
 *
 * Runs on whoever calls it: the daemon's main loop online, the command's thread offline. Must not
 * read the memory but through check_load() and its like. Next: check-index.c (directory and
 * subtables), check-slot.c (slots, blocks, keys), check-pages.c (page words, free map, rings,
 * clients).
 */
#include "check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "check-internal.h"
#include "err.h"
#include "tarn/tarn.h"

#define REPAIR_PASSES  5u /* each may show something that the one before has hidden */
#define PROGRESS_STEPS 1024u

static const struct {
	const char *name;
	enum check_effect effect;
	const char *meaning;
} codes[CHECK_CODE_COUNT] = {[CHECK_NONE] = {"none", CHECK_IS_HINT, ""},
#define CODE(symbol, name, effect, meaning) [CHECK_##symbol] = {name, effect, meaning},
			     CHECK_CODES(CODE)
#undef CODE
};

const char *check_code_name(enum check_code code)
{
	return codes[code].name;
}

enum check_effect check_code_effect(enum check_code code)
{
	return codes[code].effect;
}

const char *check_code_meaning(enum check_code code)
{
	return codes[code].meaning;
}

const char *check_effect_name(enum check_effect effect)
{
	static const char *const names[CHECK_EFFECTS] = {"hint", "leak", "lost", "wrong"};

	return names[effect];
}

bool check_clean(const struct check_totals *t)
{
	return !(t->by_effect[CHECK_IS_LEAK] | t->by_effect[CHECK_IS_LOST] |
		 t->by_effect[CHECK_IS_WRONG]);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Word by word: others may write meanwhile. */
void check_copy(const struct check *c, uint64_t offset, void *ret_words, uint64_t bytes)
{
	const uint64_t *from = (const uint64_t *)(const void *)(c->memory.base + offset);
	uint64_t *to = ret_words;

	assert(offset % 8 == 0 && bytes % 8 == 0 && bytes <= c->memory.bytes &&
	       offset <= c->memory.bytes - bytes);
	for (uint64_t i = 0; i < bytes / 8; i++)
		to[i] = word_load_relaxed(&from[i]);
}

void check_store(struct check *c, uint64_t offset, uint64_t value)
{
	assert(offset % 8 == 0 && offset <= c->memory.bytes - 8);
	word_store_relaxed((uint64_t *)(void *)(c->memory.repair + offset), value);
}

void check_store_byte(struct check *c, uint64_t offset, uint8_t value)
{
	assert(offset < c->memory.bytes);
	byte_store_relaxed(c->memory.repair + offset, value);
}

/* ---- findings -------------------------------------------------------------------------------- */

enum check_code check_fault(struct check *c, enum check_code code, uint64_t offset,
			    const char *format, ...)
{
	va_list args;

	c->fault = (struct check_fault){.code = code, .offset = offset};
	va_start(args, format);
	vsnprintf(c->fault.text, sizeof(c->fault.text), format, args);
	va_end(args);
	return code;
}

void check_fault_word(struct check *c, const char *repair, uint64_t offset, uint64_t value)
{
	c->fault.repair = repair;
	c->fault.write_offset = offset;
	c->fault.write_value = value;
	c->fault.write_bytes = 8;
}

void check_fault_byte(struct check *c, const char *repair, uint64_t offset, uint8_t value)
{
	check_fault_word(c, repair, offset, value);
	c->fault.write_bytes = 1;
}

static void suspect_add(struct check *c)
{
	const struct check_object *last = c->suspects + c->suspect_count;

	/* several faults of one object come one after the other */
	if (c->suspect_count && (--last)->kind == c->object.kind &&
	    last->index == c->object.index && last->where == c->object.where &&
	    last->other == c->object.other)
		return;
	if (c->suspect_count == CHECK_SUSPECTS)
		c->totals.unsettled++;
	else
		c->suspects[c->suspect_count++] = c->object;
}

bool check_found(struct check *c)
{
	const struct check_fault *fault = &c->fault;
	struct check_finding finding = {.code = fault->code,
					.offset = fault->offset,
					.text = fault->text,
					.repair = fault->repair,
					.repaired = c->memory.repair && fault->repair};

	if (check_online(c) && !c->again) {
		suspect_add(c);
		return false;
	}
	if (check_online(c) && c->round < CHECK_LOOKS) {
		c->suspects[c->suspect_next].still = true;
		return false;
	}
	c->totals.findings[fault->code]++;
	c->totals.by_effect[codes[fault->code].effect]++;
	c->totals.repaired += finding.repaired;
	if (c->options.report)
		c->options.report(c->options.arg, &finding);
	if (!finding.repaired)
		return false;
	if (fault->write_bytes == 8)
		check_store(c, fault->write_offset, fault->write_value);
	else if (fault->write_bytes == 1)
		check_store_byte(c, fault->write_offset, (uint8_t)fault->write_value);
	return true;
}

/* ---- suspects -------------------------------------------------------------------------------- */

static void look_at_slot(struct check *c, const struct check_object *object)
{
	struct check_subtable subtable;
	uint64_t begin;

	/* the subtable may be another one by now: then the suspicion was about nothing */
	if (!check_subtable_load(c, object->index, &subtable))
		return;
	begin = layout_page_offset(&c->geometry, subtable.page);
	if (object->where < begin || object->where >= begin + LAYOUT_PAGE_BYTES)
		return;
	if (object->kind == CHECK_OBJECT_BUCKET)
		check_bucket(c, &subtable, object->where);
	else
		check_slot(c, &subtable, object->where);
}

static void check_epoch(struct check *c)
{
	c->object = (struct check_object){.kind = CHECK_OBJECT_EPOCH};
	if (check_load(c, LAYOUT_EPOCH_OFFSET))
		return;
	check_fault(c, CHECK_EPOCH, LAYOUT_EPOCH_OFFSET, "the epoch is 0: it starts at 1");
	check_found(c);
}

static void check_superblock(struct check *c)
{
	c->object = (struct check_object){.kind = CHECK_OBJECT_SUPERBLOCK};
	if (layout_geometry_usual(&c->geometry))
		return;
	check_fault(
		c, CHECK_SUPERBLOCK, 0,
		"the superblock puts the pool's parts elsewhere than a pool of this size with %u "
		"clients has them",
		c->geometry.max_clients);
	check_found(c);
}

static void look_again(struct check *c, const struct check_object *object)
{
	struct check_subtable subtable;

	switch (object->kind) {
	case CHECK_OBJECT_SUPERBLOCK:
		check_superblock(c);
		break;
	case CHECK_OBJECT_EPOCH:
		check_epoch(c);
		break;
	case CHECK_OBJECT_ENTRY:
		check_entry(c, object->index);
		break;
	case CHECK_OBJECT_SUBTABLE:
		if (check_subtable_load(c, object->index, &subtable))
			check_subtable(c, &subtable);
		break;
	case CHECK_OBJECT_BUCKET:
	case CHECK_OBJECT_SLOT:
		look_at_slot(c, object);
		break;
	case CHECK_OBJECT_PAIR:
		check_pair(c, object->where, object->other);
		break;
	case CHECK_OBJECT_PAGE:
		check_page(c, object->index);
		break;
	case CHECK_OBJECT_RING:
		check_ring(c, object->index);
		break;
	case CHECK_OBJECT_CLIENT:
		check_client(c, object->index);
		break;
	}
}

/* The rounds together take longer than G + D: what was under way then is over. */
static void round_begin(struct check *c)
{
	c->due_ns = c->now_ns + (c->geometry.grace_ns + c->geometry.deadline_ns) / 2;
	c->suspect_next = 0;
	c->round++;
}

/* Those that were wrong again stay. */
static void round_end(struct check *c)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->suspect_count; i++) {
		if (!c->suspects[i].still)
			continue;
		c->suspects[kept] = c->suspects[i];
		c->suspects[kept++].still = false;
	}
	c->suspect_count = kept;
}

static enum check_next again_step(struct check *c)
{
	if (!c->again) {
		c->again = true;
		round_begin(c);
	}
	if (c->suspect_count == 0) {
		c->phase = CHECK_PHASE_DONE;
		return CHECK_DONE;
	}
	if (c->now_ns < c->due_ns)
		return CHECK_WAIT;
	if (c->suspect_next < c->suspect_count) {
		struct check_object object = c->suspects[c->suspect_next];

		look_again(c, &object);
		/* a large value goes on in the next steps, with this suspect */
		if (!c->large.active)
			c->suspect_next++;
		return CHECK_MORE;
	}
	if (c->round == CHECK_LOOKS) {
		c->suspect_count = 0;
	} else {
		round_end(c);
		round_begin(c);
	}
	return CHECK_MORE;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool phase_step(struct check *c)
{
	switch (c->phase) {
	case CHECK_PHASE_DIRECTORY:
		return check_directory_step(c);
	case CHECK_PHASE_INDEX:
		return check_index_step(c);
	case CHECK_PHASE_PAGES:
		return check_pages_step(c);
	case CHECK_PHASE_RINGS:
		return check_rings_step(c);
	case CHECK_PHASE_CLIENTS:
		return check_clients_step(c);
	case CHECK_PHASE_AGAIN:
	case CHECK_PHASE_DONE:
		break;
	}
	return false;
}

enum check_next check_step(struct check *c, uint64_t now_ns)
{
	c->now_ns = now_ns;
	if (c->phase == CHECK_PHASE_DONE)
		return CHECK_DONE;
	if (c->large.active) {
		check_large_step(c);
		if (!c->large.active && c->again)
			c->suspect_next++;
		return CHECK_MORE;
	}
	if (c->phase == CHECK_PHASE_AGAIN)
		return again_step(c);
	if (!phase_step(c)) {
		c->phase++;
		c->next = 0;
	}
	return CHECK_MORE;
}

uint64_t check_due_ns(const struct check *c)
{
	return c->due_ns;
}

/* The index is most of the work. */
uint32_t check_permille(const struct check *c)
{
	uint64_t all = 1ull << check_global_depth(c), buckets = 3ull * c->geometry.groups,
		 done = (c->next * buckets + c->bucket) * 800 / (all * buckets);

	switch (c->phase) {
	case CHECK_PHASE_DIRECTORY:
		return 0;
	case CHECK_PHASE_INDEX:
		/* the depth is others' to change */
		return done < 800 ? (uint32_t)done + 10 : 810;
	case CHECK_PHASE_PAGES:
		return (uint32_t)(820 + 170ull * c->next / c->geometry.npages);
	case CHECK_PHASE_RINGS:
	case CHECK_PHASE_CLIENTS:
	case CHECK_PHASE_AGAIN:
		return 990;
	case CHECK_PHASE_DONE:
		break;
	}
	return 1000;
}

void check_get_totals(const struct check *c, struct check_totals *ret_totals)
{
	*ret_totals = c->totals;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int superblock_load(struct check *c)
{
	struct layout_superblock superblock;
	int ret;

	if (c->memory.bytes < LAYOUT_SUPERBLOCK_BYTES || c->memory.bytes % 8)
		return err_set(-TARN_ECORRUPT, "a pool of %llu bytes: it has no superblock",
			       (unsigned long long)c->memory.bytes);
	check_copy(c, 0, &superblock, sizeof(superblock));
	ret = layout_superblock_check(&superblock, c->memory.bytes, &c->geometry);
	if (ret == 0)
		c->totals.depth = (uint32_t)superblock.global_depth;
	return ret;
}

static int memory_get(struct check *c)
{
	const struct layout_geometry *g = &c->geometry;
	/* twice what two subtables, the halves of a split, can hold */
	uint64_t keys = 1, most = 2ull * 2 * 3 * LAYOUT_BUCKET_SLOTS * g->groups;

	while (keys < most)
		keys *= 2;
	c->key_mask = keys - 1;
	c->page_flags = calloc(g->npages, 1);
	c->reached = calloc((uint64_t)g->npages * LAYOUT_UNITS_PER_PAGE / 64, 8);
	c->keys = calloc(keys, sizeof(*c->keys));
	c->client_ids = calloc(g->max_clients, sizeof(*c->client_ids));
	c->suspects = calloc(CHECK_SUSPECTS, sizeof(*c->suspects));
	for (unsigned i = 0; i < 3; i++)
		c->blocks[i] = malloc(LAYOUT_BLOCK_MAX);
	if (c->page_flags && c->reached && c->keys && c->client_ids && c->suspects &&
	    c->blocks[0] && c->blocks[1] && c->blocks[2])
		return 0;
	return err_set(-ENOMEM, "no memory to check a pool of %llu bytes: about %llu are needed",
		       (unsigned long long)c->memory.bytes,
		       (unsigned long long)g->npages * (LAYOUT_UNITS_PER_PAGE / 8 + 1) +
			       (4u << 20));
}

int check_begin(const struct check_memory *memory, const struct check_options *options,
		struct check **ret_check)
{
	struct check *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return err_set(-ENOMEM, "no memory to check a pool");
	c->memory = *memory;
	c->options = *options;
	ret = superblock_load(c);
	if (ret == 0)
		ret = memory_get(c);
	if (ret < 0) {
		check_free(c);
		return ret;
	}
	check_superblock(c);
	check_epoch(c);
	*ret_check = c;
	return 0;
}

void check_free(struct check *c)
{
	if (!c)
		return;
	free(c->page_flags);
	free(c->reached);
	free(c->keys);
	free(c->client_ids);
	free(c->suspects);
	for (unsigned i = 0; i < 3; i++)
		free(c->blocks[i]);
	free(c);
}

/* ---- to the end ------------------------------------------------------------------------------ */

int check_may_repair(const struct check_totals *t)
{
	/* more than half of what there is, and one alone proves it only where it would be lost */
	const struct {
		enum check_code code;
		uint64_t of, allowed;
	} telling[] = {
		{CHECK_KEY_PLACE, t->keys, 0},
		{CHECK_BLOCK_UNMARKED, t->blocks, 1},
		{CHECK_SUBTABLE_PAGE, t->subtables, 1},
	};

	if (t->findings[CHECK_SUPERBLOCK])
		return err_set(-TARN_ECORRUPT,
			       "the superblock is not as it was made, so nothing is repaired; keep "
			       "a copy of the file, and start tarnd with a fresh pool");
	for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
		uint64_t found = t->findings[telling[i].code];

		if (found <= telling[i].allowed || found <= telling[i].of / 2)
			continue;
		return err_set(
			-TARN_ECORRUPT,
			"%llu findings %s where there are %llu: it is the superblock that is "
			"wrong, not they, and a repair would do harm; keep a copy of the file, "
			"and start tarnd with a fresh pool",
			(unsigned long long)found, codes[telling[i].code].name,
			(unsigned long long)telling[i].of);
	}
	return 0;
}

/* Keeps back what the last check will tell again. */
struct repaired_only {
	const struct check_run *run;
};

static void report_repaired(void *arg, const struct check_finding *finding)
{
	const struct repaired_only *only = arg;

	if (finding->repaired && only->run->report)
		only->run->report(only->run->arg, finding);
}

static int pass(const struct check_run *run, bool repair, const struct check_options *options,
		struct check_totals *ret_totals)
{
	struct check_memory memory = run->memory;
	struct check *c;
	int ret;

	if (!repair)
		memory.repair = NULL;
	ret = check_begin(&memory, options, &c);
	if (ret < 0)
		return ret;
	for (unsigned steps = 0; check_step(c, 0) != CHECK_DONE; steps++) {
		if (steps % PROGRESS_STEPS || !run->progress ||
		    run->progress(run->arg, check_permille(c)))
			continue;
		check_free(c);
		return err_set(-ECANCELED, "the check was interrupted");
	}
	check_get_totals(c, ret_totals);
	check_free(c);
	return 0;
}

static int repair(const struct check_run *run, uint64_t *ret_repaired)
{
	struct repaired_only only = {.run = run};
	struct check_options quiet = {0}, repairing = {.report = report_repaired, .arg = &only};
	struct check_totals totals;
	uint64_t repaired = 0;
	int ret = pass(run, false, &quiet, &totals);

	if (ret == 0)
		ret = check_may_repair(&totals);
	for (unsigned i = 0; ret == 0 && i < REPAIR_PASSES; i++) {
		ret = pass(run, true, &repairing, &totals);
		if (ret < 0 || totals.repaired == 0)
			break;
		repaired += totals.repaired;
	}
	*ret_repaired = repaired;
	return ret;
}

int check_run(const struct check_run *run, struct check_totals *ret_totals)
{
	struct check_options options = {.report = run->report, .arg = run->arg};
	uint64_t repaired = 0;
	int ret = run->memory.repair ? repair(run, &repaired) : 0;

	if (ret == 0)
		ret = pass(run, false, &options, ret_totals);
	if (ret == 0)
		ret_totals->repaired = repaired;
	return ret;
}
