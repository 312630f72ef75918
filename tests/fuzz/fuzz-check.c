/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-check.c - libFuzzer target: the check of a pool full of garbage, offline, with repair, online
 *
 * A small pool with some keys is damaged as the input says. The check must not crash, hang, or read
 * outside of the pool; after a repair nothing that can be repaired may be left, and each key that
 * could be read before it has its value still; where nothing is damaged nothing is found.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/fixture.h"
#include "check.h"

#define POOL_BYTES (3ull << 20)
#define KEYS       24u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A clock that runs by being looked at: retries up to the time limit take no time. */
static uint64_t fast_now(struct fabric_endpoint *ep)
{
	static uint64_t now = 1000000000;

	(void)ep;
	return now += 200000;
}

static const uint8_t large[300000];

/* Which keys can be read? 0 to KEYS - 1, then the large one. */
static uint32_t readable(struct fixture *f)
{
	static uint8_t buffer[sizeof(large)];
	static struct fabric_ops ops;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD | TARN_READONLY);
	struct tarn_item item = TARN_ITEM_INIT;
	uint32_t keys = 0;

	ops = *s->ep->ops;
	ops.now = fast_now;
	s->ep->ops = &ops;
	for (uint32_t i = 0; i < KEYS; i++)
		if (tarn_get(s, &i, 4, buffer, sizeof(buffer), &item) == 0 &&
		    item.value_bytes == 16 && !memcmp(buffer, "value of the key", 16))
			keys |= 1u << i;
	if (tarn_get(s, "large", 5, buffer, sizeof(buffer), &item) == 0 &&
	    item.value_bytes == sizeof(large) && !memcmp(buffer, large, sizeof(large)))
		keys |= 1u << KEYS;
	session_free(s);
	return keys;
}

static void fill(struct fixture *f)
{
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);

	((struct layout_superblock *)f->base)->last_client_id = 100;
	s->ep->features |= FABRIC_COUNTER_FAA;
	for (uint32_t i = 0; i < KEYS; i++)
		if (tarn_put(s, &i, 4, "value of the key", 16, NULL, NULL) < 0)
			abort();
	if (tarn_put(s, "large", 5, large, sizeof(large), NULL, NULL) < 0 ||
	    tarn_add(s, "counter", 7, 1, NULL) < 0)
		abort();
	alloc_hand_back_all(s->alloc);
	session_free(s);
}

/*
 * 12 bytes of input: 4 say where, 8 what; a block's checksum is made right again where that is asked
 * for, so that what is behind it is reached. Places worth damaging come first.
 */
static void damage(struct fixture *f, const uint8_t *data, size_t bytes)
{
	const struct layout_geometry *g = &f->geometry;
	const uint64_t begins[] = {layout_page_offset(g, 0),
				   g->page_table_offset,
				   g->ready_rings_offset,
				   g->directory_offset,
				   LAYOUT_EPOCH_OFFSET,
				   layout_page_offset(g, 2),
				   g->free_map_offset,
				   g->client_table_offset,
				   layout_page_offset(g, 1),
				   0,
				   0};
	const uint64_t lengths[] = {g->groups * LAYOUT_GROUP_BYTES,
				    8ull * g->npages,
				    4096,
				    16,
				    128,
				    LAYOUT_PAGE_BYTES,
				    (uint64_t)g->npages * LAYOUT_UNITS_PER_PAGE,
				    g->max_clients * LAYOUT_CLIENT_BYTES,
				    g->groups * LAYOUT_GROUP_BYTES,
				    f->bytes,
				    256};

	for (; bytes >= 12; data += 12, bytes -= 12) {
		uint64_t value, at;
		uint32_t where;

		memcpy(&where, data, 4);
		memcpy(&value, data + 4, 8);
		at = begins[where % 11] + (where / 11 % (1u << 24) * 8ull) % lengths[where % 11];
		if (at + 8 > f->bytes)
			continue;
		/* whole, or some bits of it */
		if (where >> 31)
			memcpy((uint8_t *)f->base + at / 8 * 8, &value, 8);
		else
			*fixture_word(f, at / 8 * 8) ^= value & value >> 8 & value >> 16;
	}
}

static void seal_all(struct fixture *f)
{
	uint64_t at = layout_page_offset(&f->geometry, 2);

	for (uint64_t end = f->bytes - LAYOUT_BLOCK_MAX; at < end; at += LAYOUT_UNIT) {
		struct layout_block *block = (struct layout_block *)fixture_word(f, at);

		if (block->kind == LAYOUT_KIND_EXTENTS && block->value_length < 1u << 20)
			block->checksum = layout_block_checksum(block, at);
	}
}

static void on_finding(void *arg, const struct check_finding *finding)
{
	uint64_t *left = arg;

	*left += finding->repair && !finding->repaired;
	if (finding->code == CHECK_NONE || !*finding->text)
		abort();
}

static void check_offline(struct fixture *f, bool damaged)
{
	struct check_totals totals;
	uint64_t left = 0;
	uint32_t before;
	struct check_run run = {
		.memory = {.base = f->base, .bytes = f->bytes}, .report = on_finding, .arg = &left};

	if (check_run(&run, &totals) < 0) {
		if (!damaged)
			abort();
		return;
	}
	for (unsigned i = 0; i < CHECK_EFFECTS; i++)
		if (totals.by_effect[i] && !damaged)
			abort();
	run.memory.repair = f->base;
	left = 0;
	before = readable(f);
	/* refused: it is the superblock that is wrong */
	if (check_run(&run, &totals) == 0 && left)
		abort();
	if (before & ~readable(f))
		abort();
}

static void check_online(struct fixture *f)
{
	struct check_memory memory = {.base = f->base, .bytes = f->bytes};
	uint64_t now = 1, left = 0;
	struct check_options options = {.flags = CHECK_ONLINE, .report = on_finding, .arg = &left};
	enum check_next next;
	struct check *c;

	if (check_begin(&memory, &options, &c) < 0)
		return;
	while ((next = check_step(c, now)) != CHECK_DONE)
		if (next == CHECK_WAIT)
			now = check_due_ns(c);
	check_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct layout_plan plan = fixture_plan(POOL_BYTES);
	struct fixture f;

	plan.groups = 4;
	plan.keys = 80;
	if (fixture_create(&f, &plan) < 0)
		abort();
	fill(&f);
	damage(&f, data, bytes);
	if (bytes % 12 == 1)
		seal_all(&f);
	check_online(&f);
	check_offline(&f, bytes >= 12);
	fixture_destroy(&f);
	return 0;
}
