/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-scan.c - a walk over an index that grows under it, one step of a split between two READs
 *
 * The splits are made by hand, in the order of docs/protocol.md section 8. Walks over an index that
 * stands still: test-kv.c; over broken connections: test-reconnect.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"
#include "rounds.h"
#include "scan-cursor.h"

#define MIB       (1ull << 20)
#define KEYS      600u
#define MAX_DEPTH 6u
#define GROUPS    100u

#define CLEAR_PHASE 7u /* the last one: tombstones become empty */

/* Where a split is: each call of split_step() changes one word. */
struct split {
	struct fixture *f;
	uint32_t suffix, depth; /* of the subtable that splits */
	uint64_t old, new;      /* offsets of the pages */
	uint32_t next_page;
	uint32_t phase, at, part;
	bool running;
	uint64_t steps, splits, random;
	uint32_t pause; /* posts until the next step */
};

static uint64_t draw(struct split *sp, uint64_t below)
{
	uint64_t z = sp->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % below;
}

static uint64_t *directory(struct split *sp, uint64_t index)
{
	return fixture_word(sp->f, layout_directory_offset(&sp->f->geometry, index));
}

static uint32_t global_depth(struct split *sp)
{
	return (uint32_t)*fixture_word(sp->f, LAYOUT_GLOBAL_DEPTH_OFFSET);
}

static uint64_t *bucket(struct split *sp, uint64_t page, uint32_t b)
{
	return fixture_word(sp->f, page + (uint64_t)b * LAYOUT_BUCKET_BYTES);
}

static void set_entries(struct split *sp, uint32_t suffix, uint32_t depth, uint64_t entry)
{
	uint64_t i;

	for (i = suffix; i < 1ull << global_depth(sp); i += 1ull << depth)
		*directory(sp, i) = entry;
}

static uint32_t page_of(struct split *sp, uint64_t offset)
{
	return layout_offset_page(&sp->f->geometry, offset);
}

static bool split_begin(struct split *sp)
{
	uint32_t b, suffix = (uint32_t)draw(sp, 1u << global_depth(sp));
	uint64_t entry = *directory(sp, suffix);

	sp->depth = layout_directory_depth(entry);
	if (sp->depth >= MAX_DEPTH)
		return false;
	sp->suffix = layout_suffix(suffix, sp->depth);
	sp->old = layout_page_offset(&sp->f->geometry, layout_directory_page(entry));
	sp->new = layout_page_offset(&sp->f->geometry, --sp->next_page);
	memset(bucket(sp, sp->new, 0), 0, LAYOUT_PAGE_BYTES);
	for (b = 0; b < 3 * GROUPS; b++)
		*bucket(sp, sp->new, b) = layout_header_make(sp->suffix | 1u << sp->depth,
							     sp->depth + 1, 0, 1);
	if (sp->depth == global_depth(sp)) {
		for (b = 0; b < 1u << sp->depth; b++)
			*directory(sp, b + (1u << sp->depth)) = *directory(sp, b);
		*fixture_word(sp->f, LAYOUT_GLOBAL_DEPTH_OFFSET) = sp->depth + 1;
	}
	set_entries(sp, sp->suffix | 1u << sp->depth, sp->depth + 1,
		    layout_directory_make(page_of(sp, sp->new), sp->depth + 1,
					  LAYOUT_DIRECTORY_MIGRATING));
	sp->phase = sp->at = sp->part = 0;
	sp->running = true;
	return true;
}

static void set_header(struct split *sp, bool new, uint32_t depth, enum layout_split flag)
{
	uint64_t *header = bucket(sp, new ? sp->new : sp->old, sp->at++);

	*header = layout_header_make(sp->suffix | (new ? 1u << sp->depth : 0), depth, flag,
				     layout_header_version(*header) + 1);
	if (sp->at == 3 * GROUPS) {
		sp->at = 0;
		sp->phase++;
	}
}

static bool is_for_new(struct split *sp, uint64_t word)
{
	const struct layout_block *block =
		(const void *)((uint8_t *)sp->f->base + layout_slot_offset(word));
	struct layout_hash hash = layout_hash_key(layout_block_key(block), block->key_length,
						  sp->f->geometry.hash_seed);

	return layout_hash_suffix(hash) >> sp->depth & 1;
}

static void move_slot(struct split *sp)
{
	uint32_t b = sp->at / 7, i = sp->at % 7 + 1;
	uint64_t *s = bucket(sp, sp->old, b) + i, *n = bucket(sp, sp->new, b) + i;

	if (sp->part == 0 &&
	    (layout_slot_state(*s) != LAYOUT_SLOT_COMMITTED || !is_for_new(sp, *s)))
		sp->part = 4;
	else if (sp->part == 0)
		*s = layout_slot_with_state(*s, LAYOUT_SLOT_FROZEN);
	else if (sp->part == 1)
		*n = *s;
	else if (sp->part == 2)
		*s = layout_tombstone_make(layout_slot_fp(*s), sp->depth);
	else
		*n = layout_slot_with_state(*n, LAYOUT_SLOT_COMMITTED);
	if (++sp->part < 4)
		return;
	sp->part = 0;
	if (++sp->at == 3 * GROUPS * 7) {
		sp->at = 0;
		sp->phase++;
	}
}

static void clear_moved(struct split *sp)
{
	uint64_t *s = bucket(sp, sp->old, sp->at / 7) + sp->at % 7 + 1;

	if (layout_slot_state(*s) == LAYOUT_SLOT_MOVED)
		*s = 0;
	if (++sp->at == 3 * GROUPS * 7)
		sp->running = false;
}

static void split_step(struct split *sp)
{
	sp->steps++;
	if (!sp->running) {
		sp->splits += split_begin(sp);
		return;
	}
	switch (sp->phase) {
	case 0:
		set_header(sp, true, sp->depth + 1, LAYOUT_SPLIT_NEW);
		break;
	case 1:
		set_header(sp, false, sp->depth, LAYOUT_SPLIT_OLD);
		break;
	case 2:
		move_slot(sp);
		break;
	case 3:
		set_header(sp, false, sp->depth + 1, LAYOUT_SPLIT_NONE);
		break;
	case 4:
		set_header(sp, true, sp->depth + 1, LAYOUT_SPLIT_NONE);
		break;
	case 5:
		set_entries(sp, sp->suffix, sp->depth + 1,
			    layout_directory_make(page_of(sp, sp->old), sp->depth + 1,
						  LAYOUT_DIRECTORY_VALID));
		sp->phase++;
		break;
	case 6:
		set_entries(sp, sp->suffix | 1u << sp->depth, sp->depth + 1,
			    layout_directory_make(page_of(sp, sp->new), sp->depth + 1,
						  LAYOUT_DIRECTORY_VALID));
		sp->phase++;
		break;
	default:
		clear_moved(sp);
	}
}

/* ---- an endpoint before each of whose posts the splits go on ---------------------------------- */

static struct split *splitting;
static const struct fabric_ops *real_ops;

static void go_on(uint64_t steps, bool inside)
{
	/* within one READ no tombstone is cleared: that takes longer than a READ may */
	while (steps-- && !(inside && splitting->running && splitting->phase == CLEAR_PHASE))
		split_step(splitting);
}

static void read_word(struct fabric_endpoint *ep, const struct fabric_request *r, uint32_t at)
{
	struct fabric_request word = fabric_read(r->offset + at, (uint8_t *)r->local + at, 8);

	assert_int_equal(real_ops->post(ep, &word, 1, NULL), 1);
	if (draw(splitting, 200) == 0)
		go_on(draw(splitting, 2ull * splitting->pause + 1), true);
}

/* Word by word, in an order that does most harm: all headers before or behind all slots. */
static void read_words(struct fabric_endpoint *ep, const struct fabric_request *r)
{
	bool headers = draw(splitting, 2);
	uint32_t at, pass;

	for (pass = 0; pass < 2; pass++, headers = !headers) {
		for (at = 0; at < r->length; at += 8)
			if ((at % LAYOUT_BUCKET_BYTES == 0) == headers)
				read_word(ep, r, at);
		/* most of a split */
		if (pass == 0 && splitting->pause && draw(splitting, 4) == 0)
			go_on(draw(splitting, 10000), true);
	}
}

static int post(struct fabric_endpoint *ep, const struct fabric_request *requests, unsigned count,
		void *cookie)
{
	go_on(draw(splitting, 2ull * splitting->pause + 1), false);
	if (requests[0].opcode != FABRIC_READ || requests[0].length < LAYOUT_GROUP_BYTES)
		return real_ops->post(ep, requests, count, cookie);
	read_words(ep, &requests[0]);
	return count > 1 ? real_ops->post(ep, requests + 1, count - 1, cookie) : 1;
}

static uint32_t key_number(const void *key, size_t bytes)
{
	uint32_t i;

	assert_true(bytes == 4 || bytes == 500);
	memcpy(&i, key, 4);
	assert_true(i < KEYS);
	return i;
}

static void fill(struct tarn_session *s)
{
	uint8_t key[500] = {0};
	uint32_t i;

	/* how long a walk takes, under valgrind and beside others, is not what is tested */
	assert_int_equal(tarn_session_set_timeout(s, 60000), 0);
	for (i = 0; i < KEYS; i++) {
		memcpy(key, &i, 4);
		assert_int_equal(tarn_put(s, key, i % 9 ? 4 : 500, "v", 1, NULL, NULL), 0);
	}
}

static void reopen(struct tarn_session *s, struct tarn_scan **scan)
{
	uint8_t position[TARN_SCAN_POSITION_BYTES];
	size_t n;

	assert_int_equal(tarn_scan_position(*scan, position, &n), 0);
	tarn_scan_close(*scan);
	assert_int_equal(tarn_scan_open_at(s, NULL, 0, position, n, scan), 0);
}

/* The next key, by either kind of call. */
static int next_key(struct tarn_session *s, struct tarn_scan *scan, bool async,
		    const void **ret_key, size_t *ret_key_bytes)
{
	struct tarn_completion c;

	if (!async)
		return tarn_scan_next(scan, ret_key, ret_key_bytes, NULL);
	assert_int_equal(tarn_scan_next_async(scan, NULL, NULL), 0);
	while (tarn_session_poll(s, &c, 1, NULL) == 0)
		assert_true(tarn_session_wait(s, 10000) >= 0);
	*ret_key = c.key;
	*ret_key_bytes = c.key_bytes;
	return c.status;
}

static void walk(struct tarn_session *s, struct split *sp, bool reopens)
{
	uint8_t seen[KEYS] = {0};
	struct tarn_scan *scan;
	uint32_t i, last = 0;
	const void *key;
	size_t bytes;
	int ret;

	assert_int_equal(tarn_scan_open(s, NULL, 0, &scan), 0);
	while ((ret = next_key(s, scan, draw(sp, 2), &key, &bytes)) == 1) {
		i = key_number(key, bytes);
		if (seen[i])
			fail_msg("key %u comes twice", i);
		seen[i] = 1;
		assert_true(tarn_scan_progress(scan) >= last);
		last = tarn_scan_progress(scan);
		if (reopens && draw(sp, 5) == 0)
			reopen(s, &scan);
	}
	assert_int_equal(ret, 0);
	assert_int_equal(tarn_scan_progress(scan), 1000);
	tarn_scan_close(scan);
	for (i = 0; i < KEYS; i++)
		if (!seen[i])
			fail_msg("key %u is lost", i);
}

static void grow_and_walk(uint64_t seed, uint32_t pause, bool reopens)
{
	struct layout_plan plan = fixture_plan(32 * MIB);
	struct fabric_ops ops;
	struct fixture f;
	struct split sp = {.f = &f, .random = seed, .pause = pause};
	struct tarn_session *s;
	uint32_t i;

	plan.groups = GROUPS;
	plan.keys = 500;
	assert_int_equal(fixture_create(&f, &plan), 0);
	assert_true(f.geometry.max_depth >= MAX_DEPTH);
	sp.next_page = f.geometry.npages;
	s = fixture_session(&f, TARN_NO_THREAD);
	fill(s);
	splitting = &sp;
	real_ops = s->ep->ops;
	ops = *real_ops;
	ops.post = post;
	s->ep->ops = &ops;
	for (i = 0; i < 4; i++)
		walk(s, &sp, reopens);
	s->ep->ops = real_ops;
	if (pause >= 500)
		assert_true(sp.splits > 3);
	session_free(s);
	fixture_destroy(&f);
}

static void test_growth(void **state)
{
	const uint32_t pauses[] = {0, 1, 5, 20, 100, 500, 3000};
	uint64_t seed;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++)
		for (seed = 1; seed <= rounds(24); seed++)
			grow_and_walk(seed, pauses[i], false);
}

static void test_growth_and_positions(void **state)
{
	const uint32_t pauses[] = {0, 2, 20, 150, 1000};
	uint64_t seed;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++)
		for (seed = 1; seed <= rounds(9); seed++)
			grow_and_walk(seed, pauses[i], true);
}

/* Headers that belong to no split: said once, and the walk goes on with what can be read. */
static void test_damaged_headers(void **state)
{
	struct layout_plan plan = fixture_plan(32 * MIB);
	struct tarn_session *s;
	struct tarn_scan *scan;
	unsigned n = 0, damaged = 0;
	const void *key;
	struct fixture f;
	size_t bytes;
	int ret;

	(void)state;
	plan.groups = GROUPS;
	plan.keys = 500;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	fill(s);
	*fixture_word(&f, layout_page_offset(&f.geometry, 0) + 5 * LAYOUT_BUCKET_BYTES) ^= 1ull << 38;
	assert_int_equal(tarn_scan_open(s, NULL, 0, &scan), 0);
	while ((ret = tarn_scan_next(scan, &key, &bytes, NULL)) != 0) {
		assert_true(ret == 1 || ret == -TARN_ECORRUPT);
		n += ret == 1;
		damaged += ret < 0;
	}
	tarn_scan_close(scan);
	assert_int_equal(n, KEYS);
	assert_int_equal(damaged, 1);
	session_free(s);
	fixture_destroy(&f);
}

static void test_positions(void **state)
{
	struct scan_cursor cursor, other;
	uint8_t bytes[SCAN_POSITION_BYTES], copy[SCAN_POSITION_BYTES];
	uint64_t incarnation;
	uint32_t groups, i;
	size_t n;

	(void)state;
	scan_cursor_begin(&cursor);
	scan_cursor_narrow(&cursor, 3);
	assert_int_equal(cursor.count, 4);
	scan_cursor_pop(&cursor);
	scan_cursor_narrow(&cursor, LAYOUT_MAX_DEPTH);
	scan_cursor_range(&cursor)->place = 17;
	n = scan_cursor_save(&cursor, 99, 40, bytes);
	assert_int_equal(scan_cursor_load(&other, bytes, n, &incarnation, &groups), 0);
	assert_int_equal(incarnation, 99);
	assert_int_equal(groups, 40);
	assert_int_equal(other.count, cursor.count);
	assert_int_equal(scan_cursor_progress(&cursor, 40), scan_cursor_progress(&other, 40));
	/* whatever is changed: refused, or a cursor that stays inside */
	for (i = 0; i < n * 8; i++) {
		memcpy(copy, bytes, n);
		copy[i / 8] ^= (uint8_t)(1u << i % 8);
		if (scan_cursor_load(&other, copy, n, &incarnation, &groups) < 0)
			continue;
		scan_cursor_narrow(&other, LAYOUT_MAX_DEPTH);
		assert_true(other.count <= LAYOUT_MAX_DEPTH + 1);
		for (; other.count; scan_cursor_pop(&other))
			assert_true(scan_cursor_range(&other)->depth <= LAYOUT_MAX_DEPTH);
	}
	for (i = 0; i < n; i++)
		assert_int_equal(scan_cursor_load(&other, bytes, i, &incarnation, &groups), -EINVAL);
}

static void test_other_pool(void **state)
{
	struct layout_plan plan = fixture_plan(32 * MIB);
	uint8_t position[TARN_SCAN_POSITION_BYTES];
	struct tarn_session *s;
	struct tarn_scan *scan;
	const void *key;
	struct fixture f;
	size_t n;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	fill(s);
	assert_int_equal(tarn_scan_open_at(s, NULL, 0, "junk", 4, &scan), -EINVAL);
	assert_int_equal(tarn_scan_open(s, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &n, NULL), 1);
	assert_int_equal(tarn_scan_position(scan, position, &n), 0);
	tarn_scan_close(scan);
	s->geometry.incarnation++;
	assert_int_equal(tarn_scan_open_at(s, NULL, 0, position, n, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &n, NULL), -TARN_ERESTARTED);
	assert_int_equal(tarn_scan_next(scan, &key, &n, NULL), -TARN_ERESTARTED);
	tarn_scan_close(scan);
	session_free(s);
	fixture_destroy(&f);
}

static void test_put_counter(void **state)
{
	struct layout_plan plan = fixture_plan(32 * MIB);
	struct tarn_put_options options = TARN_PUT_INIT;
	struct tarn_item item = TARN_ITEM_INIT;
	int64_t value = -42, got = 0;
	struct tarn_session *s;
	struct fixture f;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	s = fixture_session(&f, TARN_NO_THREAD);
	s->ep->features |= FABRIC_COUNTER_FAA;
	options.flags = TARN_PUT_COUNTER;
	options.user_flags = 7;
	options.expiry_ms = 100000;
	assert_int_equal(tarn_put(s, "c", 1, &value, 7, &options, NULL), -TARN_EVALUESIZE);
	assert_int_equal(tarn_put(s, "c", 1, &value, 8, &options, NULL), 0);
	assert_int_equal(tarn_get(s, "c", 1, &got, 8, &item), 0);
	assert_int_equal(got, -42);
	assert_int_equal(item.kind, TARN_KIND_COUNTER);
	assert_int_equal(item.user_flags, 7);
	assert_true(item.expiry_ms >= 100000);
	assert_int_equal(tarn_add(s, "c", 1, 2, &got), 0);
	assert_int_equal(got, -40);
	/* over a value, and a value over it */
	assert_int_equal(tarn_put(s, "c", 1, "text", 4, NULL, NULL), 0);
	assert_int_equal(tarn_add(s, "c", 1, 2, &got), -TARN_ETYPE);
	assert_int_equal(tarn_put(s, "c", 1, &value, 8, &options, NULL), 0);
	assert_int_equal(tarn_add(s, "c", 1, 2, &got), 0);
	options.flags = TARN_PUT_COUNTER | TARN_PUT_IF_ABSENT;
	assert_int_equal(tarn_put(s, "c", 1, &value, 8, &options, NULL), -TARN_EEXISTS);
	session_free(s);
	fixture_destroy(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_growth),         cmocka_unit_test(test_growth_and_positions),
		cmocka_unit_test(test_damaged_headers), cmocka_unit_test(test_positions),
		cmocka_unit_test(test_other_pool),     cmocka_unit_test(test_put_counter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
