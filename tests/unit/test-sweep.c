/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/sweep.c, sweep-walk.c, candidates.c, quiescence.c: each rule of the sweep. Time is ours. */
#include <stdlib.h>
#include <unistd.h>

#include "candidates.h"
#include "clock.h"
#include "events.h"
#include "pool-fixture.h"
#include "quiescence.h"
#include "recycle.h"
#include "sweep-walk.h"
#include "sweep.h"

#define MS    1000000ull
#define CLASS 20u /* 12480 bytes: 21 blocks a page */
#define G     500
#define PAGE  25 /* of the fixture's pool: no index page */

struct swept {
	struct fixture f;
	struct pool *pool;
	struct recycle *recycle;
	struct sweep *sweep;
	struct keeper_time time;
};

static void swept_open(struct swept *s)
{
	fixture_open(&s->f, "");
	s->pool = s->f.pool;
	s->time = (struct keeper_time){.now_ns = 1ull << 60, .epoch = 10};
	assert_int_equal(recycle_create(s->pool, &s->recycle), 0);
	assert_int_equal(sweep_create(s->pool, s->recycle, &s->sweep), 0);
	assert_true(PAGE + 4 < s->pool->geometry.npages);
	assert_int_equal(layout_page_state(pool_load_page_word(s->pool, 0)), LAYOUT_PAGE_INDEX);
}

static void swept_close(struct swept *s)
{
	sweep_free(s->sweep);
	recycle_free(s->recycle);
	events_free(s->pool->events);
	fixture_close(&s->f);
}

static struct sweep_stats stats(struct swept *s)
{
	struct sweep_stats got;

	sweep_get_stats(s->sweep, s->time.now_ns, &got);
	return got;
}

static void pass_time(struct swept *s, uint64_t ms)
{
	s->time.now_ns += ms * MS;
	s->time.epoch += ms / 250;
}

/* Steps until the sweep is in that state, without any time going by but at the beginning. */
static void step_to(struct swept *s, enum sweep_state state)
{
	if (stats(s).state == SWEEP_IDLE) {
		sweep_soon(s->sweep);
		sweep_step(s->sweep, &s->time);
		pass_time(s, 1000);
	}
	for (int i = 0; i < 1000 && stats(s).state != state; i++)
		sweep_step(s->sweep, &s->time);
	assert_int_equal(stats(s).state, state);
}

/* Time goes by, in which the sweep does what it can. */
static void wait_ms(struct swept *s, uint64_t ms)
{
	for (uint64_t i = 0; i < ms; i += 50) {
		pass_time(s, 50);
		s->time.epoch += i % 250 == 0;
		for (int j = 0; j < 20 && stats(s).state != SWEEP_IDLE; j++)
			sweep_step(s->sweep, &s->time);
	}
}

/* A whole sweep, or a part of it from where it is now. */
static void sweep_through(struct swept *s)
{
	uint64_t before = stats(s).sweeps;

	step_to(s, SWEEP_WAIT);
	wait_ms(s, 2 * G);
	assert_int_equal(stats(s).sweeps, before + 1);
}

static uint64_t block_offset(struct swept *s, uint32_t page, uint32_t class, uint32_t block)
{
	return layout_page_offset(&s->pool->geometry, page) +
	       (uint64_t)block * layout_class_bytes(class);
}

static uint64_t slot_offset(struct swept *s, uint32_t slot)
{
	return layout_page_offset(&s->pool->geometry, 0) + 64ull * (slot / 7) + 8 * (1 + slot % 7);
}

/* Slot number `slot` of the index names a block. */
static uint64_t point(struct swept *s, uint32_t slot, enum layout_slot_state state, uint32_t page,
		      uint32_t class, uint32_t block)
{
	uint64_t word = layout_slot_make(state, 1, class, 1, block_offset(s, page, class, block));

	self_store(s->pool, slot_offset(s, slot), word);
	return word;
}

static void header(struct swept *s, uint32_t page, uint32_t class, uint32_t block, uint32_t kind,
		   uint64_t value_length, uint32_t client_id)
{
	struct layout_block image = {.kind = (uint8_t)kind,
				     .key_length = 8,
				     .class = (uint8_t)class,
				     .value_length = value_length,
				     .stamp = (uint64_t)client_id << 32 | 7};

	self_write(s->pool, block_offset(s, page, class, block), &image, sizeof(image));
}

/* All blocks "in use", in a page of this state. */
static void page_in_use(struct swept *s, uint32_t page, enum layout_page_state state)
{
	fixture_blocks(s->pool, page, CLASS, 0, layout_class_blocks(CLASS), LAYOUT_FREE_IN_USE);
	fixture_page(s->pool, page, state, CLASS, 0);
}

static uint8_t map_byte(struct swept *s, uint32_t block)
{
	return fixture_block(s->pool, PAGE, CLASS, block);
}

static uint32_t client(struct swept *s, bool read_only)
{
	struct pool_client client = {.pid = 4711, .name = "ada", .read_only = read_only};
	uint32_t slot;

	assert_int_equal(pool_client_add(s->pool, &client, &slot), 0);
	return slot;
}

static void set_count(struct swept *s, uint32_t slot, uint64_t count)
{
	self_store(s->pool,
		   layout_client_offset(&s->pool->geometry, slot) +
			   offsetof(struct layout_client, quiescence),
		   count);
}

/* ---- what is found, and what not ---- */

static void test_leak(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	fixture_blocks(s.pool, PAGE, CLASS, 5, 6, LAYOUT_FREE_RETIRED);
	point(&s, 0, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
	point(&s, 8, LAYOUT_SLOT_FROZEN, PAGE, CLASS, 1);
	point(&s, 20, LAYOUT_SLOT_PENDING, PAGE, CLASS, 2);
	header(&s, PAGE, CLASS, 2, LAYOUT_KIND_VALUE, 8, s.pool->clients[client(&s, true)].client_id);
	point(&s, 21, LAYOUT_SLOT_MOVED, PAGE, CLASS, 3);
	sweep_through(&s);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(map_byte(&s, i), LAYOUT_FREE_IN_USE);
	assert_int_equal(map_byte(&s, 3), LAYOUT_FREE_AGED);
	assert_int_equal(map_byte(&s, 4), LAYOUT_FREE_AGED);
	assert_int_equal(map_byte(&s, 5), LAYOUT_FREE_RETIRED); /* recycle.c's, by its own rules */
	assert_int_equal(map_byte(&s, 20), LAYOUT_FREE_AGED);
	assert_int_equal(stats(&s).leaked_blocks, 17);
	assert_int_equal(stats(&s).leaked_bytes, 17 * layout_class_bytes(CLASS));
	assert_int_equal(layout_page_state(pool_load_page_word(s.pool, PAGE)), LAYOUT_PAGE_FULL);
	sweep_through(&s);
	assert_int_equal(stats(&s).leaked_blocks, 17);
	swept_close(&s);
}

/* Pages that clients own, and free ones, are left alone. */
static void test_owned(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_SLAB);
	sweep_through(&s);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(stats(&s).leaked_blocks, 0);
	swept_close(&s);
}

static void test_orphan(void **state)
{
	struct swept s;
	uint64_t generation;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_ORPHAN);
	point(&s, 0, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
	fixture_page(s.pool, PAGE + 1, LAYOUT_PAGE_ORPHAN, CLASS, 0); /* nothing "in use" */
	generation = layout_page_generation(pool_load_page_word(s.pool, PAGE));
	sweep_through(&s);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_AGED);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(layout_page_state(pool_load_page_word(s.pool, PAGE + i)),
				 LAYOUT_PAGE_FULL);
	assert_int_equal(layout_page_generation(pool_load_page_word(s.pool, PAGE)), generation + 1);
	assert_int_equal(layout_page_class(pool_load_page_word(s.pool, PAGE)), CLASS);
	assert_int_equal(stats(&s).orphans_freed, 2);
	swept_close(&s);
}

/* A partial page is taken back before its map is written. */
static void test_partial(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_PARTIAL);
	point(&s, 0, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
	page_in_use(&s, PAGE + 1, LAYOUT_PAGE_PARTIAL); /* nothing has leaked here */
	for (uint32_t i = 0; i < layout_class_blocks(CLASS); i++)
		point(&s, 30 + i, LAYOUT_SLOT_COMMITTED, PAGE + 1, CLASS, i);
	sweep_through(&s);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_AGED);
	assert_int_equal(layout_page_state(pool_load_page_word(s.pool, PAGE)), LAYOUT_PAGE_FULL);
	assert_int_equal(layout_page_state(pool_load_page_word(s.pool, PAGE + 1)), LAYOUT_PAGE_PARTIAL);
	swept_close(&s);
}

/* Who has owned a page since may use its blocks: it is left for the next sweep. */
static void test_word_changes(void **state)
{
	static const enum layout_page_state states[] = {LAYOUT_PAGE_FULL, LAYOUT_PAGE_PARTIAL,
							LAYOUT_PAGE_ORPHAN};

	(void)state;
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		struct swept s;

		swept_open(&s);
		page_in_use(&s, PAGE, states[i]);
		step_to(&s, SWEEP_WAIT);
		fixture_page(s.pool, PAGE, LAYOUT_PAGE_SLAB, CLASS, 0);
		fixture_page(s.pool, PAGE, states[i], CLASS, 0);
		wait_ms(&s, 2 * G);
		assert_int_equal(stats(&s).sweeps, 1);
		assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
		assert_int_equal(layout_page_state(pool_load_page_word(s.pool, PAGE)), states[i]);
		sweep_through(&s);
		assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_AGED);
		swept_close(&s);
	}
}

/* What somebody retires meanwhile has its own time to rest. */
static void test_retired_meanwhile(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&s, SWEEP_WAIT);
	fixture_blocks(s.pool, PAGE, CLASS, 3, 4, LAYOUT_FREE_RETIRED);
	wait_ms(&s, 2 * G);
	assert_int_equal(map_byte(&s, 3), LAYOUT_FREE_RETIRED);
	assert_int_equal(map_byte(&s, 4), LAYOUT_FREE_AGED);
	swept_close(&s);
}

/* ---- order and time ---- */

/* The index is looked at after the map: what is published in between is reached. */
static void test_map_before_index(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&s, SWEEP_WALK);
	point(&s, 0, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
	fixture_blocks(s.pool, PAGE + 1, CLASS, 0, 21, LAYOUT_FREE_IN_USE);
	fixture_page(s.pool, PAGE + 1, LAYOUT_PAGE_FULL, CLASS, 0);
	wait_ms(&s, 3 * G);
	assert_int_equal(stats(&s).sweeps, 1);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_AGED);
	/* its word was read before it was full */
	assert_int_equal(fixture_block(s.pool, PAGE + 1, CLASS, 0), LAYOUT_FREE_IN_USE);
	swept_close(&s);
}

/* Raises from before the end of the walk do not count. */
static void test_counts_after_index(void **state)
{
	uint32_t slot;
	struct swept s;

	(void)state;
	swept_open(&s);
	slot = client(&s, false);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&s, SWEEP_SAMPLE);
	set_count(&s, slot, 2);
	wait_ms(&s, 4 * G);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	set_count(&s, slot, 4);
	wait_ms(&s, 100);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_AGED);
	swept_close(&s);
}

/* T2: a reader may have found it just before the walk. */
static void test_rests(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&s, SWEEP_WAIT);
	sweep_step(s.sweep, &s.time);
	s.time.now_ns += (G - 1) * MS;
	s.time.epoch += 10;
	for (int i = 0; i < 50; i++)
		sweep_step(s.sweep, &s.time);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	s.time.now_ns += MS;
	for (int i = 0; i < 50; i++)
		sweep_step(s.sweep, &s.time);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_AGED);
	swept_close(&s);
}

/* A daemon that stood still: G has passed, the epoch has not. */
static void test_rests_for_two_epochs(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&s, SWEEP_WAIT);
	sweep_step(s.sweep, &s.time);
	s.time.now_ns += 100000 * MS;
	s.time.epoch++;
	for (int i = 0; i < 50; i++)
		sweep_step(s.sweep, &s.time);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	s.time.epoch++;
	for (int i = 0; i < 50; i++)
		sweep_step(s.sweep, &s.time);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_AGED);
	swept_close(&s);
}

/* ---- connections ---- */

struct holdup {
	struct swept s;
	uint32_t slot;
};

/* A sweep waits for a client, whose count stands at 100. */
static void holdup_open(struct holdup *h)
{
	swept_open(&h->s);
	h->slot = client(&h->s, false);
	set_count(&h->s, h->slot, 100);
	page_in_use(&h->s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&h->s, SWEEP_WAIT);
	wait_ms(&h->s, 4 * G);
	assert_int_equal(stats(&h->s).state, SWEEP_WAIT);
	assert_int_equal(map_byte(&h->s, 0), LAYOUT_FREE_IN_USE);
}

static void expect_held_up(struct holdup *h, bool held_up)
{
	wait_ms(&h->s, 100);
	assert_int_equal(map_byte(&h->s, 0), held_up ? LAYOUT_FREE_IN_USE : LAYOUT_FREE_AGED);
	if (held_up)
		assert_int_equal(stats(&h->s).state, SWEEP_WAIT);
}

static void test_two_raises(void **state)
{
	struct holdup h;

	(void)state;
	holdup_open(&h);
	set_count(&h.s, h.slot, 101);
	expect_held_up(&h, true);
	set_count(&h.s, h.slot, 0); /* down is not up */
	expect_held_up(&h, true);
	set_count(&h.s, h.slot, 102);
	expect_held_up(&h, false);
	/* The next sweep waits for two more. */
	page_in_use(&h.s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&h.s, SWEEP_WAIT);
	wait_ms(&h.s, 4 * G);
	expect_held_up(&h, true);
	set_count(&h.s, h.slot, 104);
	expect_held_up(&h, false);
	swept_close(&h.s);
}

static void test_every_client(void **state)
{
	struct holdup h;
	uint32_t other;

	(void)state;
	swept_open(&h.s);
	h.slot = client(&h.s, false);
	other = client(&h.s, false);
	client(&h.s, true); /* owes nothing */
	page_in_use(&h.s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&h.s, SWEEP_WAIT);
	wait_ms(&h.s, 4 * G);
	client(&h.s, false); /* was not there */
	set_count(&h.s, h.slot, 2);
	expect_held_up(&h, true);
	set_count(&h.s, other, 2);
	expect_held_up(&h, false);
	swept_close(&h.s);
}

static void test_fenced(void **state)
{
	struct holdup h;
	uint32_t id;

	(void)state;
	holdup_open(&h);
	assert_int_equal(pool_client_renumber(h.s.pool, h.slot, &id), 0);
	expect_held_up(&h, true); /* another id, the same connection */
	pool_client_end(h.s.pool, h.slot);
	expect_held_up(&h, false);
	swept_close(&h.s);
}

/* Its slot has been given to another connection, which may stand still. */
static void test_fenced_and_replaced(void **state)
{
	struct holdup h;

	(void)state;
	holdup_open(&h);
	pool_client_end(h.s.pool, h.slot);
	h.s.pool->slot_cursor = h.slot;
	assert_int_equal(client(&h.s, false), h.slot);
	expect_held_up(&h, false);
	swept_close(&h.s);
}

/* Who holds it up is told, in the stats and in the log. */
static void test_told(void **state)
{
	char text[4096] = "";
	struct holdup h;
	int fds[2];

	(void)state;
	holdup_open(&h);
	assert_int_equal(stats(&h.s).waits_for_client, h.s.pool->clients[h.slot].client_id);
	assert_int_equal(stats(&h.s).waits_for_pid, 4711);
	assert_string_equal(stats(&h.s).waits_for_name, "ada");
	assert_true(stats(&h.s).waiting_ns >= 3 * G * MS);
	assert_int_equal(pipe(fds), 0);
	log_init(&h.s.f.log, fds[1], LOG_LEVEL_WARNING);
	h.s.pool->events = events_create(&h.s.f.log);
	wait_ms(&h.s, 35000); /* after 10 s, and after 20 more */
	assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "client 1 (slot 0, pid 4711 ada) has held up the sweep for 10 s"));
	assert_non_null(strstr(text, "tarn_session_process"));
	assert_non_null(strstr(text, "for 30 s"));
	assert_null(strstr(text, "for 20 s"));
	close(fds[0]);
	close(fds[1]);
	swept_close(&h.s);
}

/* A leak without a death is told, one after a death is not. */
static void test_leak_without_death(void **state)
{
	char text[4096] = "";
	struct swept s;
	int fds[2];

	(void)state;
	swept_open(&s);
	assert_int_equal(pipe(fds), 0);
	log_init(&s.f.log, fds[1], LOG_LEVEL_WARNING);
	s.pool->events = events_create(&s.f.log);
	sweep_through(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	pool_client_end(s.pool, client(&s, false));
	sweep_through(&s);
	assert_int_equal(stats(&s).leaked_blocks, 21);
	sweep_through(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	fixture_blocks(s.pool, PAGE, CLASS, 4, 21, LAYOUT_FREE_AGED);
	sweep_through(&s);
	assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "4 blocks were in use"));
	assert_null(strstr(text, "21 blocks"));
	close(fds[0]);
	close(fds[1]);
	swept_close(&s);
}

/* Nor is what a sweep had to leave to the next one: a dead client's pending slot is emptied first. */
static void test_leak_of_a_pending(void **state)
{
	char text[4096] = "";
	struct swept s;
	int fds[2];

	(void)state;
	swept_open(&s);
	assert_int_equal(pipe(fds), 0);
	log_init(&s.f.log, fds[1], LOG_LEVEL_WARNING);
	s.pool->events = events_create(&s.f.log);
	sweep_through(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	fixture_blocks(s.pool, PAGE, CLASS, 1, 21, LAYOUT_FREE_AGED);
	header(&s, PAGE, CLASS, 0, LAYOUT_KIND_VALUE, 8, 99);
	point(&s, 0, LAYOUT_SLOT_PENDING, PAGE, CLASS, 0);
	sweep_through(&s);
	assert_int_equal(stats(&s).pendings_killed, 1);
	assert_int_equal(stats(&s).leaked_blocks, 0);
	sweep_through(&s);
	assert_int_equal(stats(&s).leaked_blocks, 1);
	close(fds[1]);
	assert_int_equal(read(fds[0], text, sizeof(text) - 1), 0);
	close(fds[0]);
	swept_close(&s);
}

/* ---- splits ---- */

/* A split moves a slot from where the walk has not been yet to where it has been. */
static void test_split(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	step_to(&s, SWEEP_WALK);
	sweep_moved(s.sweep, layout_slot_make(LAYOUT_SLOT_FROZEN, 1, CLASS, 1,
					      layout_page_offset(&s.pool->geometry, PAGE)));
	wait_ms(&s, 3 * G);
	assert_int_equal(stats(&s).sweeps, 1);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_AGED);
	swept_close(&s);
}

/* ---- large values ---- */

#define BIG LAYOUT_CLASS_MAX

/* A large value in block 0 of PAGE: extents are all of PAGE + 1 and block 3 of PAGE + 2. */
static void large_value(struct swept *s)
{
	struct layout_extent list[2] = {
		{.where = layout_slot_make(0, 0, BIG, 0, block_offset(s, PAGE + 1, BIG, 0))},
		{.where = layout_slot_make(0, 0, CLASS, 0, block_offset(s, PAGE + 2, CLASS, 3))},
	};

	header(s, PAGE, CLASS, 0, LAYOUT_KIND_EXTENTS, LAYOUT_PAGE_BYTES + 5000, 1);
	self_write(s->pool, block_offset(s, PAGE, CLASS, 0) + layout_value_offset(8), list,
		   sizeof(list));
	page_in_use(s, PAGE, LAYOUT_PAGE_FULL);
	fixture_blocks(s->pool, PAGE + 1, BIG, 0, 1, LAYOUT_FREE_IN_USE);
	fixture_page(s->pool, PAGE + 1, LAYOUT_PAGE_FULL, BIG, 0);
	page_in_use(s, PAGE + 2, LAYOUT_PAGE_FULL);
}

static void test_extents(void **state)
{
	static const enum layout_slot_state states[] = {LAYOUT_SLOT_COMMITTED, LAYOUT_SLOT_FROZEN,
							LAYOUT_SLOT_PENDING};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct swept s;

		swept_open(&s);
		assert_int_equal(client(&s, true), 0);
		large_value(&s);
		s.pool->geometry.max_value_bytes = 1; /* it was larger once */
		point(&s, 9, states[i], PAGE, CLASS, 0);
		sweep_through(&s);
		assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
		assert_int_equal(fixture_block(s.pool, PAGE + 1, BIG, 0), LAYOUT_FREE_IN_USE);
		assert_int_equal(fixture_block(s.pool, PAGE + 2, CLASS, 3), LAYOUT_FREE_IN_USE);
		assert_int_equal(fixture_block(s.pool, PAGE + 2, CLASS, 4), LAYOUT_FREE_AGED);
		self_store(s.pool, slot_offset(&s, 9), 0);
		sweep_through(&s);
		assert_int_equal(fixture_block(s.pool, PAGE + 1, BIG, 0), LAYOUT_FREE_AGED);
		assert_int_equal(fixture_block(s.pool, PAGE + 2, CLASS, 3), LAYOUT_FREE_AGED);
		swept_close(&s);
	}
}

/* The first extent's page is somebody's slab: large values are looked for all the same. */
static void test_extents_owned(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	large_value(&s);
	fixture_page(s.pool, PAGE + 1, LAYOUT_PAGE_SLAB, BIG, 0);
	point(&s, 9, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
	sweep_through(&s);
	assert_int_equal(fixture_block(s.pool, PAGE + 2, CLASS, 3), LAYOUT_FREE_IN_USE);
	swept_close(&s);
}

/* ---- batches ---- */

static void test_batches(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	large_value(&s);
	point(&s, 9, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
	page_in_use(&s, PAGE + 3, LAYOUT_PAGE_ORPHAN);
	sweep_set_batch(s.sweep, 8 * 5); /* two pages of this class */
	step_to(&s, SWEEP_WAIT);
	wait_ms(&s, 10 * G);
	assert_int_equal(stats(&s).sweeps, 1);
	assert_true(stats(&s).batches >= 2);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_AGED);
	assert_int_equal(fixture_block(s.pool, PAGE + 1, BIG, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(fixture_block(s.pool, PAGE + 2, CLASS, 3), LAYOUT_FREE_IN_USE);
	assert_int_equal(fixture_block(s.pool, PAGE + 2, CLASS, 4), LAYOUT_FREE_AGED);
	assert_int_equal(fixture_block(s.pool, PAGE + 3, CLASS, 4), LAYOUT_FREE_AGED);
	swept_close(&s);
}

static void test_candidates(void **state)
{
	struct candidates *c;
	uint64_t word, got;
	struct swept s;

	(void)state;
	swept_open(&s);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	word = pool_load_page_word(s.pool, PAGE);
	c = candidates_create(s.pool, 8 * 4);
	assert_int_equal(candidates_add(c, PAGE + 1, word), CANDIDATES_NOTHING);
	assert_int_equal(candidates_add(c, PAGE, word), CANDIDATES_ADDED);
	assert_int_equal(candidates_add(c, PAGE + 2, word), CANDIDATES_FULL);
	assert_false(candidates_word(c, PAGE + 1, &got));
	assert_true(candidates_word(c, PAGE, &got) && got == word);
	/* A slot that lies about the class reaches all that it touches. */
	candidates_strike(c, block_offset(&s, PAGE, 22, 1), 22); /* 20160 bytes: blocks 1, 2, 3 */
	candidates_strike(c, block_offset(&s, PAGE, 30, 0) + 12480ull * 20, 20);
	for (uint32_t i = 0; i < 21; i++)
		assert_int_equal(candidates_left(c, PAGE, i), i == 0 || (i > 3 && i < 20));
	candidates_strike(c, block_offset(&s, PAGE, BIG, 0), BIG);
	assert_false(candidates_any_left(c, PAGE));
	candidates_free(c);
	swept_close(&s);
}

/* ---- pending slots ---- */

static void test_pendings(void **state)
{
	uint64_t living, changed;
	struct swept s;
	uint32_t slot;

	(void)state;
	swept_open(&s);
	slot = client(&s, false);
	page_in_use(&s, PAGE, LAYOUT_PAGE_FULL);
	header(&s, PAGE, CLASS, 0, LAYOUT_KIND_VALUE, 8, s.pool->clients[slot].client_id);
	header(&s, PAGE, CLASS, 1, LAYOUT_KIND_VALUE, 8, 99);
	header(&s, PAGE, CLASS, 2, LAYOUT_KIND_VALUE, 8, 99);
	living = point(&s, 0, LAYOUT_SLOT_PENDING, PAGE, CLASS, 0);
	point(&s, 1, LAYOUT_SLOT_PENDING, PAGE, CLASS, 1);
	point(&s, 2, LAYOUT_SLOT_PENDING, PAGE, CLASS, 2);
	self_store(s.pool, slot_offset(&s, 3), layout_slot_make(LAYOUT_SLOT_PENDING, 1, 1, 1, 64));
	step_to(&s, SWEEP_WAIT);
	changed = point(&s, 2, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 2);
	wait_ms(&s, 2 * G); /* the client holds up the sweep, not this */
	assert_int_equal(stats(&s).state, SWEEP_WAIT);
	assert_true(self_load(s.pool, slot_offset(&s, 0)) == living);
	assert_true(self_load(s.pool, slot_offset(&s, 1)) == 0);
	assert_true(self_load(s.pool, slot_offset(&s, 2)) == changed);
	assert_true(self_load(s.pool, slot_offset(&s, 3)) == 0);
	assert_int_equal(stats(&s).pendings_killed, 2);
	/* Their blocks come back in the next sweep, which comes soon. */
	set_count(&s, slot, 2);
	wait_ms(&s, 200);
	assert_int_equal(stats(&s).sweeps, 1);
	assert_true(stats(&s).soon);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_IN_USE);
	sweep_step(s.sweep, &s.time);
	pass_time(&s, 400);
	sweep_step(s.sweep, &s.time);
	step_to(&s, SWEEP_WAIT);
	set_count(&s, slot, 4);
	wait_ms(&s, 2 * G);
	assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
	assert_int_equal(map_byte(&s, 1), LAYOUT_FREE_AGED);
	swept_close(&s);
}

/* ---- when ---- */

static void test_when(void **state)
{
	struct swept s;

	(void)state;
	swept_open(&s);
	sweep_step(s.sweep, &s.time);
	pass_time(&s, 29000);
	sweep_step(s.sweep, &s.time);
	assert_int_equal(stats(&s).state, SWEEP_IDLE);
	pass_time(&s, 1500);
	sweep_step(s.sweep, &s.time);
	assert_int_equal(stats(&s).state, SWEEP_PAGES); /* slowly, always */
	wait_ms(&s, 3 * G);
	assert_int_equal(stats(&s).sweeps, 1);
	sweep_soon(s.sweep);
	sweep_step(s.sweep, &s.time);
	pass_time(&s, 200);
	sweep_step(s.sweep, &s.time);
	assert_int_equal(stats(&s).state, SWEEP_IDLE); /* deaths are collected for a moment */
	pass_time(&s, 200);
	sweep_step(s.sweep, &s.time);
	assert_int_equal(stats(&s).state, SWEEP_PAGES);
	wait_ms(&s, 3 * G);
	assert_int_equal(stats(&s).sweeps, 2);
	pass_time(&s, 5000);
	sweep_step(s.sweep, &s.time);
	assert_int_equal(stats(&s).state, SWEEP_IDLE);
	swept_close(&s);
}

/* ---- garbage ---- */

/* Whatever stands in a pool: no harm to the daemon, and an intact key's block stays. */
static void test_garbage(void **state)
{
	uint64_t seed = 12345;

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct swept s;
		const struct layout_geometry *g;

		swept_open(&s);
		g = &s.pool->geometry;
		for (uint64_t at = g->page_table_offset; at < g->pool_bytes; at += 8) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			if (seed >> 60 <= (unsigned)round % 4)
				self_store(s.pool, at, seed ^ seed >> 29);
		}
		self_store(s.pool, layout_page_word_offset(g, 0),
			   layout_page_make(LAYOUT_PAGE_INDEX, 0, 0, 1));
		large_value(&s);
		point(&s, 9, LAYOUT_SLOT_COMMITTED, PAGE, CLASS, 0);
		sweep_through(&s);
		sweep_through(&s);
		assert_int_equal(map_byte(&s, 0), LAYOUT_FREE_IN_USE);
		assert_int_equal(fixture_block(s.pool, PAGE + 1, BIG, 0), LAYOUT_FREE_IN_USE);
		swept_close(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leak),
		cmocka_unit_test(test_owned),
		cmocka_unit_test(test_orphan),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_word_changes),
		cmocka_unit_test(test_retired_meanwhile),
		cmocka_unit_test(test_map_before_index),
		cmocka_unit_test(test_counts_after_index),
		cmocka_unit_test(test_rests),
		cmocka_unit_test(test_rests_for_two_epochs),
		cmocka_unit_test(test_two_raises),
		cmocka_unit_test(test_every_client),
		cmocka_unit_test(test_fenced),
		cmocka_unit_test(test_fenced_and_replaced),
		cmocka_unit_test(test_told),
		cmocka_unit_test(test_leak_without_death),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_extents),
		cmocka_unit_test(test_extents_owned),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_candidates),
		cmocka_unit_test(test_leak_of_a_pending),
		cmocka_unit_test(test_pendings),
		cmocka_unit_test(test_when),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
