/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The check of a pool: a pool that clients have made is clean; each rule broken is found by its
 * name; a repair leaves nothing to repair, and loses no key but the broken one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check.h"
#include "fixture.h"
#include "tarn/tarn.h"

#define POOL_BYTES  (8ull << 20)
#define KEYS        40u
#define LARGE_BYTES 300000u
#define GONE        UINT32_MAX /* no key is lost */

struct pool {
	struct fixture f;
	struct tarn_session *session;
	struct check_totals totals;
	/* findings of a run */
	enum check_code last;
	uint64_t repairable, repaired;
	char text[512];
};

static uint64_t *word(struct pool *p, uint64_t offset)
{
	return fixture_word(&p->f, offset);
}

static uint8_t *byte(struct pool *p, uint64_t offset)
{
	return (uint8_t *)p->f.base + offset;
}

/* ---- a pool with keys ------------------------------------------------------------------------ */

static const void *value_of(uint32_t i, size_t *ret_bytes)
{
	static uint8_t value[LARGE_BYTES];

	*ret_bytes = i == 0 ? LARGE_BYTES : 10 + 37 * i;
	memset(value, (int)(i + 1), *ret_bytes);
	return value;
}

static void put(struct tarn_session *s, uint32_t i)
{
	size_t bytes;
	const void *value = value_of(i, &bytes);

	assert_int_equal(tarn_put(s, &i, sizeof(i), value, bytes, NULL, NULL), 0);
}

/* Keys 0 (large) to KEYS - 1, a counter, some updates and deletes; nobody at work any more. */
static void pool_open(struct pool *p)
{
	struct layout_plan plan = fixture_plan(POOL_BYTES);

	memset(p, 0, sizeof(*p));
	plan.groups = 8;
	plan.keys = 400;
	assert_int_equal(fixture_create(&p->f, &plan), 0);
	((struct layout_superblock *)p->f.base)->last_client_id = 100;
	p->session = fixture_session(&p->f, TARN_NO_THREAD);
	p->session->ep->features |= FABRIC_COUNTER_FAA;
	for (uint32_t i = 0; i < KEYS + 10; i++)
		put(p->session, i);
	for (uint32_t i = 0; i < KEYS; i += 3)
		put(p->session, i);
	for (uint32_t i = KEYS; i < KEYS + 10; i++)
		assert_int_equal(tarn_delete(p->session, &i, sizeof(i)), 0);
	assert_int_equal(tarn_add(p->session, "counter", 7, 5, NULL), 0);
	alloc_hand_back_all(p->session->alloc);
}

static void pool_close(struct pool *p)
{
	session_free(p->session);
	fixture_destroy(&p->f);
}

static uint64_t slot_of(struct pool *p, uint32_t i)
{
	uint64_t slot = fixture_slot(&p->f, &i, sizeof(i));

	assert_true(slot);
	return slot;
}

static uint64_t block_of(struct pool *p, uint32_t i)
{
	return layout_slot_offset(*word(p, slot_of(p, i)));
}

static void check_keys(struct pool *p, uint32_t lost)
{
	static uint8_t got[LARGE_BYTES];
	struct tarn_session *s = fixture_session(&p->f, TARN_NO_THREAD);

	for (uint32_t i = 0; i < KEYS; i++) {
		struct tarn_item item = TARN_ITEM_INIT;
		size_t bytes;
		const void *value = value_of(i, &bytes);

		if (i == lost)
			continue;
		if (tarn_get(s, &i, sizeof(i), got, sizeof(got), &item) < 0)
			fail_msg("key %u: %s", i, tarn_last_error_text());
		assert_int_equal(item.value_bytes, bytes);
		assert_memory_equal(got, value, bytes);
	}
	session_free(s);
}

/* ---- running it ------------------------------------------------------------------------------ */

static void on_finding(void *arg, const struct check_finding *finding)
{
	struct pool *p = arg;

	p->last = finding->code;
	p->repairable += finding->repair && !finding->repaired;
	p->repaired += finding->repaired;
	snprintf(p->text, sizeof(p->text), "%s at %llu: %s", check_code_name(finding->code),
		 (unsigned long long)finding->offset, finding->text);
	assert_true(strlen(finding->text) < 250);
	assert_in_range(finding->offset, 0, p->f.bytes);
}

static int run(struct pool *p, bool repair)
{
	struct check_run run = {.memory = {.base = p->f.base,
					   .repair = repair ? p->f.base : NULL,
					   .bytes = p->f.bytes},
				.report = on_finding,
				.arg = p};

	p->repairable = p->repaired = 0;
	p->text[0] = '\0';
	return check_run(&run, &p->totals);
}

static uint64_t found(const struct pool *p)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < CHECK_EFFECTS; i++)
		sum += p->totals.by_effect[i];
	return sum;
}

static void test_clean(void **state)
{
	struct pool p;

	(void)state;
	pool_open(&p);
	assert_int_equal(run(&p, false), 0);
	if (found(&p))
		fail_msg("%s", p.text);
	assert_int_equal(p.totals.keys, KEYS + 1);
	assert_int_equal(p.totals.counters, 1);
	assert_int_equal(p.totals.large, 1);
	assert_int_equal(p.totals.subtables, 4);
	assert_int_equal(p.totals.slots, 4 * 8 * 21);
	assert_int_equal(p.totals.pages, p.f.geometry.npages);
	assert_int_equal(p.totals.leaked_blocks, 0);
	/* nothing to be repaired, nothing changed */
	assert_int_equal(run(&p, true), 0);
	assert_int_equal(p.totals.repaired, 0);
	check_keys(&p, GONE);
	pool_close(&p);
}

/* ---- rules broken one by one ----------------------------------------------------------------- */

/* Returns the key that is lost by it, or GONE. */
struct breakage {
	enum check_code code;
	uint32_t (*make)(struct pool *p);
	bool lasting; /* no repair helps */
};

/* The first slot of a state in a subtable. */
static uint64_t empty_slot(struct pool *p)
{
	uint64_t at = layout_page_offset(&p->f.geometry, 1);

	for (uint64_t i = 0;; i++)
		if (i % 8 && *word(p, at + 8 * i) == 0)
			return at + 8 * i;
}

static uint32_t make_epoch(struct pool *p)
{
	*word(p, LAYOUT_EPOCH_OFFSET) = 0;
	return GONE;
}
static uint32_t make_directory_state(struct pool *p)
{
	*word(p, layout_directory_offset(&p->f.geometry, 2)) = 0;
	return GONE;
}
static uint32_t make_directory_page(struct pool *p)
{
	*word(p, layout_directory_offset(&p->f.geometry, 1)) =
		layout_directory_make(p->f.geometry.npages, 2, LAYOUT_DIRECTORY_VALID);
	return GONE;
}
static uint32_t make_directory_depth(struct pool *p)
{
	*word(p, layout_directory_offset(&p->f.geometry, 3)) =
		layout_directory_make(3, 3, LAYOUT_DIRECTORY_VALID);
	return GONE;
}
static uint32_t make_directory_unequal(struct pool *p)
{
	/* as if it were of depth 1: then entry 1 has to be the same */
	*word(p, layout_directory_offset(&p->f.geometry, 3)) =
		layout_directory_make(3, 1, LAYOUT_DIRECTORY_VALID);
	return GONE;
}
static uint32_t make_subtable(struct pool *p)
{
	*word(p, layout_directory_offset(&p->f.geometry, 1)) =
		layout_directory_make(20, 2, LAYOUT_DIRECTORY_VALID);
	return GONE;
}
static uint32_t make_subtable_twice(struct pool *p)
{
	*word(p, layout_directory_offset(&p->f.geometry, 1)) =
		layout_directory_make(0, 2, LAYOUT_DIRECTORY_VALID);
	return GONE;
}
static uint32_t make_subtable_page(struct pool *p)
{
	*word(p, layout_page_word_offset(&p->f.geometry, 2)) =
		layout_page_make(LAYOUT_PAGE_FREE, 0, 0, 7);
	return GONE;
}
static uint32_t make_subtable_unreached(struct pool *p)
{
	*word(p, layout_page_word_offset(&p->f.geometry, p->f.geometry.npages - 1)) =
		layout_page_make(LAYOUT_PAGE_INDEX, 0, 0, 7);
	return GONE;
}
static uint32_t make_header(struct pool *p)
{
	*word(p, layout_page_offset(&p->f.geometry, 1) + 64) ^= 1ull << 3;
	return GONE;
}
static uint32_t make_header_depth(struct pool *p)
{
	*word(p, layout_page_offset(&p->f.geometry, 1)) ^= 1ull << 33;
	return GONE;
}
static uint32_t make_header_split(struct pool *p)
{
	*word(p, layout_page_offset(&p->f.geometry, 1) + 128) |= 1ull << 38;
	return GONE;
}
static uint32_t make_slot_state(struct pool *p)
{
	*word(p, empty_slot(p)) = 6;
	return GONE;
}
static uint32_t make_slot_empty(struct pool *p)
{
	*word(p, empty_slot(p)) = 0x1000;
	return GONE;
}
static uint32_t make_slot_pending(struct pool *p)
{
	uint64_t slot = slot_of(p, 5);

	*word(p, slot) = layout_slot_with_state(*word(p, slot), LAYOUT_SLOT_PENDING);
	return 5;
}
static uint32_t make_slot_pending_large(struct pool *p)
{
	uint64_t slot = slot_of(p, 0);

	*word(p, slot) = layout_slot_with_state(*word(p, slot), LAYOUT_SLOT_PENDING);
	return 0;
}
static uint32_t make_slot_frozen(struct pool *p)
{
	uint64_t slot = slot_of(p, 6);

	*word(p, slot) = layout_slot_with_state(*word(p, slot), LAYOUT_SLOT_FROZEN);
	return GONE;
}
static uint32_t make_slot_moved(struct pool *p)
{
	uint64_t slot = slot_of(p, 7);

	*word(p, slot) = layout_slot_with_state(*word(p, slot), LAYOUT_SLOT_MOVED);
	return 7;
}
static uint32_t make_slot_offset(struct pool *p)
{
	/* half a block further */
	*word(p, slot_of(p, 8)) += 1ull << 29;
	return 8;
}
static uint32_t make_slot_outside(struct pool *p)
{
	*word(p, slot_of(p, 9)) |= 0x3ffffffffull << 30;
	return 9;
}
static uint32_t make_slot_class(struct pool *p)
{
	*word(p, slot_of(p, 10)) ^= 31u << 12;
	return 10;
}
static uint32_t make_block_value(struct pool *p)
{
	*byte(p, block_of(p, 11) + 60) ^= 1;
	return 11;
}
static uint32_t make_block_lengths(struct pool *p)
{
	((struct layout_block *)word(p, block_of(p, 12)))->value_length = UINT64_MAX;
	return 12;
}
static uint32_t make_block_kind(struct pool *p)
{
	((struct layout_block *)word(p, block_of(p, 13)))->kind = 77;
	return 13;
}
static void seal(struct pool *p, uint64_t offset)
{
	struct layout_block *block = (struct layout_block *)word(p, offset);

	block->checksum = layout_block_checksum(block, offset);
}
static uint32_t make_block_generation(struct pool *p)
{
	((struct layout_block *)word(p, block_of(p, 14)))->generation += 4;
	seal(p, block_of(p, 14));
	return 14;
}
static uint32_t make_block_class(struct pool *p)
{
	((struct layout_block *)word(p, block_of(p, 15)))->class ^= 1;
	seal(p, block_of(p, 15));
	return GONE;
}
static uint32_t make_block_future(struct pool *p)
{
	uint64_t slot = slot_of(p, 16), block = block_of(p, 16);

	((struct layout_block *)word(p, block))->generation += 4096;
	seal(p, block);
	(void)slot;
	return GONE;
}
static uint32_t make_block_stamp(struct pool *p)
{
	((struct layout_superblock *)p->f.base)->last_client_id = 0;
	return GONE;
}
static uint64_t page_word_of(struct pool *p, uint32_t i)
{
	return layout_page_word_offset(&p->f.geometry,
				       layout_offset_page(&p->f.geometry, block_of(p, i)));
}
static uint32_t make_block_page_free(struct pool *p)
{
	*word(p, page_word_of(p, 20)) = layout_page_make(LAYOUT_PAGE_FREE, 0, 0, 9);
	return GONE;
}
static uint32_t make_block_page_state(struct pool *p)
{
	*word(p, page_word_of(p, 21)) |= 7;
	return GONE;
}
static uint32_t make_block_page_class(struct pool *p)
{
	*word(p, page_word_of(p, 22)) ^= 3u << 3;
	return GONE;
}
static uint32_t make_block_aged(struct pool *p)
{
	*byte(p, layout_free_map_offset(&p->f.geometry, block_of(p, 23))) = LAYOUT_FREE_AGED;
	return GONE;
}
static uint32_t make_block_retired(struct pool *p)
{
	*byte(p, layout_free_map_offset(&p->f.geometry, block_of(p, 24))) = LAYOUT_FREE_RETIRED;
	return GONE;
}
static uint32_t make_block_byte(struct pool *p)
{
	*byte(p, layout_free_map_offset(&p->f.geometry, block_of(p, 25))) = 200;
	return GONE;
}
static struct layout_extent *extents_of(struct pool *p)
{
	struct layout_block *block = (struct layout_block *)word(p, block_of(p, 0));

	return (struct layout_extent *)((uint8_t *)block + layout_value_offset(block->key_length));
}
static uint32_t make_extent_place(struct pool *p)
{
	extents_of(p)[1].where += 1ull << 29;
	seal(p, block_of(p, 0));
	return 0;
}
static uint32_t make_extent_word(struct pool *p)
{
	extents_of(p)[0].where |= LAYOUT_SLOT_COMMITTED;
	seal(p, block_of(p, 0));
	return 0;
}
static uint32_t make_extent_data(struct pool *p)
{
	*byte(p, layout_slot_offset(extents_of(p)[1].where) + 1000) ^= 4;
	return 0;
}
static uint32_t make_extent_unmarked(struct pool *p)
{
	*byte(p, layout_free_map_offset(&p->f.geometry,
					layout_slot_offset(extents_of(p)[0].where))) = 0;
	return GONE;
}
static uint32_t make_extent_twice(struct pool *p)
{
	/* a large value of two times the same page: 524288 bytes */
	static uint8_t two[2 * LAYOUT_PAGE_BYTES];
	struct layout_block *block;
	struct layout_extent *extents;
	uint64_t slot;

	memset(two, 1, sizeof(two));
	assert_int_equal(tarn_put(p->session, "two", 3, two, sizeof(two), NULL, NULL), 0);
	alloc_hand_back_all(p->session->alloc);
	slot = fixture_slot(&p->f, "two", 3);
	block = (struct layout_block *)word(p, layout_slot_offset(*word(p, slot)));
	extents =
		(struct layout_extent *)((uint8_t *)block + layout_value_offset(block->key_length));
	*byte(p, layout_free_map_offset(&p->f.geometry, layout_slot_offset(extents[1].where))) =
		LAYOUT_FREE_AGED;
	extents[1] = extents[0];
	seal(p, layout_slot_offset(*word(p, slot)));
	return GONE;
}
/* A slot's word in another bucket, which is none of the key's. */
static uint32_t make_key_place(struct pool *p)
{
	uint64_t slot = slot_of(p, 26), page = layout_page_offset(&p->f.geometry, 0);
	uint32_t number = layout_offset_page(&p->f.geometry, slot), other = (number + 1) % 4;
	uint64_t to = layout_page_offset(&p->f.geometry, other) + slot % LAYOUT_PAGE_BYTES;

	(void)page;
	while (*word(p, to) || to % 64 == 0)
		to += 8;
	*word(p, to) = *word(p, slot);
	*word(p, slot) = 0;
	return 26;
}
/* Another slot of the same bucket pair gets the same word. */
static uint64_t free_neighbour(struct pool *p, uint64_t slot)
{
	uint64_t to = slot / 64 * 64 + 8;

	while (*word(p, to))
		to += 8;
	assert_true(to / 64 == slot / 64);
	return to;
}
static uint32_t make_key_twice_same(struct pool *p)
{
	uint64_t slot = slot_of(p, 27);

	*word(p, free_neighbour(p, slot)) = *word(p, slot);
	return GONE;
}
/* An older value of the key, in a block of its own. */
static uint32_t make_key_twice_older(struct pool *p)
{
	uint32_t i = 28;
	uint64_t slot = slot_of(p, i), old = *word(p, slot);

	*byte(p, layout_free_map_offset(&p->f.geometry, layout_slot_offset(old))) =
		LAYOUT_FREE_IN_USE;
	put(p->session, i);
	alloc_hand_back_all(p->session->alloc);
	*byte(p, layout_free_map_offset(&p->f.geometry, layout_slot_offset(old))) =
		LAYOUT_FREE_IN_USE;
	*word(p, free_neighbour(p, slot_of(p, i))) = old;
	return GONE;
}
static uint32_t make_page_state(struct pool *p)
{
	*word(p, layout_page_word_offset(&p->f.geometry, p->f.geometry.npages - 1)) = 7;
	return GONE;
}
static uint32_t make_page_owner(struct pool *p)
{
	uint64_t at = page_word_of(p, 29);

	*word(p, at) = layout_page_make(LAYOUT_PAGE_SLAB, layout_page_class(*word(p, at)), 4000, 9);
	return GONE;
}
static uint32_t make_page_fields(struct pool *p)
{
	*word(p, layout_page_word_offset(&p->f.geometry, p->f.geometry.npages - 1)) |= 5u << 3;
	return GONE;
}
static uint32_t make_index_fields(struct pool *p)
{
	*word(p, layout_page_word_offset(&p->f.geometry, 0)) |= 5u << 8;
	return GONE;
}
/* A byte of the map in key 30's page that belongs to a free block. */
static uint64_t free_byte(struct pool *p)
{
	const struct layout_geometry *g = &p->f.geometry;
	uint32_t page = layout_offset_page(g, block_of(p, 30));
	uint32_t class = layout_page_class(*word(p, layout_page_word_offset(g, page)));
	uint64_t last = layout_page_offset(g, page) +
			(uint64_t)(layout_class_blocks(class) - 1) * layout_class_bytes(class);

	assert_int_equal(*byte(p, layout_free_map_offset(g, last)), 0);
	return layout_free_map_offset(g, last);
}
static uint32_t make_map_byte(struct pool *p)
{
	*byte(p, free_byte(p)) = 3;
	return GONE;
}
static uint32_t make_leak(struct pool *p)
{
	*byte(p, free_byte(p)) = LAYOUT_FREE_IN_USE;
	return GONE;
}
static uint32_t make_map_gap(struct pool *p)
{
	*byte(p, free_byte(p) + 1) = LAYOUT_FREE_IN_USE;
	return GONE;
}
static uint32_t make_map_free_page(struct pool *p)
{
	*byte(p, layout_free_map_offset(
			 &p->f.geometry,
			 layout_page_offset(&p->f.geometry, p->f.geometry.npages - 1) + 640)) =
		LAYOUT_FREE_RETIRED;
	return GONE;
}
static uint32_t make_map_index_page(struct pool *p)
{
	*byte(p, layout_free_map_offset(&p->f.geometry, layout_page_offset(&p->f.geometry, 1))) = 1;
	return GONE;
}
static uint32_t make_ring_head(struct pool *p)
{
	*word(p, layout_ring_offset(&p->f.geometry, 4) + LAYOUT_RING_HEAD) = 1ull << 40;
	return GONE;
}
static uint32_t make_ring_tail(struct pool *p)
{
	*word(p, layout_ring_offset(&p->f.geometry, 4) + LAYOUT_RING_TAIL) =
		p->f.geometry.ring_entries + 1;
	return GONE;
}
static uint32_t make_ring_ticket(struct pool *p)
{
	*word(p, layout_ring_offset(&p->f.geometry, 4) + LAYOUT_RING_TAIL) = 1;
	*word(p, layout_ring_offset(&p->f.geometry, 4) + LAYOUT_RING_ENTRIES) =
		layout_ring_make(1, 0);
	return GONE;
}
static uint32_t make_ring_page(struct pool *p)
{
	*word(p, layout_ring_offset(&p->f.geometry, 4) + LAYOUT_RING_TAIL) = 1;
	*word(p, layout_ring_offset(&p->f.geometry, 4) + LAYOUT_RING_ENTRIES) =
		layout_ring_make(0, p->f.geometry.npages);
	return GONE;
}
static void client_set(struct pool *p, uint32_t slot, uint32_t state, uint32_t id)
{
	struct layout_client *client =
		(struct layout_client *)word(p, layout_client_offset(&p->f.geometry, slot));

	client->state = state;
	client->client_id = id;
}
static uint32_t make_client_state(struct pool *p)
{
	client_set(p, 3, 2, 9);
	return GONE;
}
static uint32_t make_client_id(struct pool *p)
{
	client_set(p, 3, LAYOUT_CLIENT_LIVE, 0);
	return GONE;
}
static uint32_t make_client_twice(struct pool *p)
{
	client_set(p, 3, LAYOUT_CLIENT_LIVE, 77);
	client_set(p, 9, LAYOUT_CLIENT_LIVE, 77);
	return GONE;
}

static const struct breakage breakages[] = {
	{CHECK_EPOCH, make_epoch, true},
	{CHECK_DIRECTORY, make_directory_state, true},
	{CHECK_DIRECTORY, make_directory_page, true},
	{CHECK_DIRECTORY, make_directory_depth, true},
	{CHECK_DIRECTORY_UNEQUAL, make_directory_unequal, true},
	{CHECK_SUBTABLE, make_subtable, true},
	{CHECK_SUBTABLE_TWICE, make_subtable_twice, true},
	{CHECK_SUBTABLE_PAGE, make_subtable_page, false},
	{CHECK_SUBTABLE_UNREACHED, make_subtable_unreached, false},
	{CHECK_HEADER, make_header, false},
	{CHECK_HEADER, make_header_depth, false},
	{CHECK_HEADER_SPLIT, make_header_split, false},
	{CHECK_SLOT_STATE, make_slot_state, false},
	{CHECK_SLOT_EMPTY, make_slot_empty, false},
	{CHECK_SLOT_PENDING, make_slot_pending, false},
	{CHECK_SLOT_PENDING, make_slot_pending_large, false},
	{CHECK_SLOT_FROZEN, make_slot_frozen, false},
	{CHECK_SLOT_MOVED, make_slot_moved, false},
	{CHECK_SLOT_PLACE, make_slot_offset, false},
	{CHECK_SLOT_PLACE, make_slot_outside, false},
	{CHECK_SLOT_PLACE, make_slot_class, false},
	{CHECK_BLOCK_DAMAGED, make_block_value, false},
	{CHECK_BLOCK_DAMAGED, make_block_lengths, false},
	{CHECK_BLOCK_DAMAGED, make_block_kind, false},
	{CHECK_BLOCK_GENERATION, make_block_generation, false},
	{CHECK_BLOCK_CLASS, make_block_class, true},
	{CHECK_BLOCK_FUTURE, make_block_future, true},
	{CHECK_BLOCK_STAMP, make_block_stamp, false},
	{CHECK_BLOCK_PAGE, make_block_page_free, false},
	{CHECK_BLOCK_PAGE, make_block_page_state, false},
	{CHECK_BLOCK_PAGE, make_block_page_class, true},
	{CHECK_BLOCK_UNMARKED, make_block_aged, false},
	{CHECK_BLOCK_UNMARKED, make_block_retired, false},
	{CHECK_BLOCK_UNMARKED, make_block_byte, false},
	{CHECK_EXTENT_PLACE, make_extent_place, false},
	{CHECK_EXTENT_PLACE, make_extent_word, false},
	{CHECK_EXTENT_DAMAGED, make_extent_data, false},
	{CHECK_BLOCK_UNMARKED, make_extent_unmarked, false},
	{CHECK_BLOCK_TWICE, make_extent_twice, true},
	{CHECK_KEY_PLACE, make_key_place, false},
	{CHECK_KEY_TWICE, make_key_twice_same, false},
	{CHECK_KEY_TWICE, make_key_twice_older, false},
	{CHECK_PAGE_STATE, make_page_state, false},
	{CHECK_PAGE_OWNER, make_page_owner, false},
	{CHECK_PAGE_FIELDS, make_page_fields, false},
	{CHECK_PAGE_FIELDS, make_index_fields, false},
	{CHECK_MAP_BYTE, make_map_byte, false},
	{CHECK_LEAK, make_leak, false},
	{CHECK_MAP_GAP, make_map_gap, false},
	{CHECK_MAP_FREE_PAGE, make_map_free_page, false},
	{CHECK_MAP_FREE_PAGE, make_map_index_page, false},
	{CHECK_RING, make_ring_head, false},
	{CHECK_RING, make_ring_tail, false},
	{CHECK_RING_ENTRY, make_ring_ticket, false},
	{CHECK_RING_ENTRY, make_ring_page, false},
	{CHECK_CLIENT_STATE, make_client_state, false},
	{CHECK_CLIENT_ID, make_client_id, false},
	{CHECK_CLIENT_ID, make_client_twice, false},
};

/* Everything that the pool has to give is written over: a key in what was freed would be seen. */
static void fill(struct pool *p)
{
	struct tarn_session *s = fixture_session(&p->f, TARN_NO_THREAD);
	uint32_t key[2] = {0, 1};
	int ret = 0;

	for (uint32_t i = 0; i < 300 && ret == 0; i++) {
		size_t bytes;
		const void *value = value_of(i % KEYS, &bytes);

		key[0] = i;
		ret = tarn_put(s, key, sizeof(key), value, bytes, NULL, NULL);
	}
	session_free(s);
}

static void one_breakage(const struct breakage *b)
{
	struct pool p;
	uint32_t lost;
	uint64_t total;

	pool_open(&p);
	lost = b->make(&p);
	assert_int_equal(run(&p, false), 0);
	if (p.totals.findings[b->code] == 0)
		fail_msg("%s was not found; last: %s", check_code_name(b->code), p.text);
	total = found(&p);
	assert_true(b->lasting || p.repairable > 0);
	assert_int_equal(run(&p, true), 0);
	if (b->lasting != (p.totals.repaired == 0))
		fail_msg("%s: %llu repaired; last: %s", check_code_name(b->code),
			 (unsigned long long)p.repaired, p.text);
	assert_int_equal(p.totals.repaired, p.repaired);
	assert_int_equal(run(&p, false), 0);
	if (p.repairable)
		fail_msg("%s: left after a repair: %s", check_code_name(b->code), p.text);
	if (b->lasting) {
		assert_int_equal(found(&p), total);
	} else {
		if (found(&p))
			fail_msg("%s: left after a repair: %s", check_code_name(b->code), p.text);
		check_keys(&p, lost);
		fill(&p);
		check_keys(&p, lost);
	}
	pool_close(&p);
}

static void test_breakages(void **state)
{
	bool seen[CHECK_CODE_COUNT] = {false};

	(void)state;
	for (size_t i = 0; i < sizeof(breakages) / sizeof(breakages[0]); i++) {
		one_breakage(&breakages[i]);
		seen[breakages[i].code] = true;
	}
	/* below */
	seen[CHECK_SPLIT] = seen[CHECK_SUPERBLOCK] = true;
	for (unsigned code = 1; code < CHECK_CODE_COUNT; code++)
		if (!seen[code])
			fail_msg("no test for %s", check_code_name((enum check_code)code));
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* Subtable 1 becomes 1 and 5; what has been done of it is for the caller. Returns the new page. */
static uint32_t split_begin(struct pool *p)
{
	const struct layout_geometry *g = &p->f.geometry;
	uint32_t page = g->npages - 1;

	/* twice, so that each half has two entries */
	for (uint32_t i = 0; i < 12; i++)
		*word(p, layout_directory_offset(g, i + 4)) =
			*word(p, layout_directory_offset(g, i));
	*word(p, LAYOUT_GLOBAL_DEPTH_OFFSET) = 4;
	*word(p, layout_page_word_offset(g, page)) = layout_page_make(LAYOUT_PAGE_INDEX, 0, 0, 3);
	for (uint32_t i = 0; i < 3 * g->groups; i++)
		*word(p, layout_page_offset(g, page) + 64ull * i) =
			layout_header_make(5, 3, LAYOUT_SPLIT_NEW, 0);
	*word(p, layout_directory_offset(g, 5)) = *word(p, layout_directory_offset(g, 13)) =
		layout_directory_make(page, 3, LAYOUT_DIRECTORY_MIGRATING);
	for (uint32_t i = 0; i < 3 * g->groups; i++)
		*word(p, layout_page_offset(g, 1) + 64ull * i) =
			layout_header_make(1, 2, LAYOUT_SPLIT_OLD, 1);
	return page;
}

/* A key of subtable 1 that goes into 5. */
static uint64_t moving_slot(struct pool *p)
{
	for (uint32_t i = 1; i < KEYS; i++) {
		struct layout_hash h = layout_hash_key(&i, sizeof(i), p->f.geometry.hash_seed);

		if (layout_suffix(layout_hash_suffix(h), 3) == 5)
			return slot_of(p, i);
	}
	fail();
	return 0;
}

static void split_entry(struct pool *p, uint32_t index, uint32_t page,
			enum layout_directory_state state)
{
	*word(p, layout_directory_offset(&p->f.geometry, index)) =
		layout_directory_make(page, 3, state);
}

/* One step more of moving all that there is to move, and of the end. */
static void split_step(struct pool *p, unsigned step, uint64_t from, uint64_t to, uint64_t w)
{
	const struct layout_geometry *g = &p->f.geometry;
	uint32_t page = layout_offset_page(g, to);

	switch (step) {
	case 1:
		*word(p, from) = layout_slot_with_state(w, LAYOUT_SLOT_FROZEN);
		break;
	case 2:
		*word(p, to) = *word(p, from);
		break;
	case 3:
		*word(p, from) = layout_tombstone_make(layout_slot_fp(w), 2);
		break;
	case 4:
		*word(p, to) = w;
		break;
	case 5: /* half of the old headers */
	case 6:
		for (uint32_t i = 0; i < (step == 5 ? g->groups : 3 * g->groups); i++)
			*word(p, layout_page_offset(g, 1) + 64ull * i) =
				layout_header_make(1, 3, LAYOUT_SPLIT_NONE, 2);
		break;
	case 7:
		for (uint32_t i = 0; i < 3 * g->groups; i++)
			*word(p, layout_page_offset(g, page) + 64ull * i) =
				layout_header_make(5, 3, LAYOUT_SPLIT_NONE, 1);
		break;
	case 8:
		split_entry(p, 1, 1, LAYOUT_DIRECTORY_VALID);
		break;
	case 9:
		split_entry(p, 9, 1, LAYOUT_DIRECTORY_VALID);
		break;
	case 10:
		split_entry(p, 5, page, LAYOUT_DIRECTORY_VALID);
		break;
	default:
		break;
	}
}

/* Moves all other keys, for they are not what is looked at. */
static void move_others(struct pool *p, uint32_t page, uint64_t but)
{
	for (uint32_t i = 0; i <= KEYS; i++) {
		const void *key = i < KEYS ? (const void *)&i : "counter";
		size_t bytes = i < KEYS ? sizeof(i) : 7;
		struct layout_hash h = layout_hash_key(key, bytes, p->f.geometry.hash_seed);
		uint64_t from;

		if (layout_suffix(layout_hash_suffix(h), 3) != 5)
			continue;
		from = fixture_slot(&p->f, key, bytes);
		if (from == but || layout_offset_page(&p->f.geometry, from) == page)
			continue;
		*word(p, layout_page_offset(&p->f.geometry, page) + from % LAYOUT_PAGE_BYTES) =
			*word(p, from);
		*word(p, from) = layout_tombstone_make(layout_hash_fp(h), 2);
	}
}

static void test_split(void **state)
{
	struct pool p;
	uint64_t from, to, w;
	uint32_t page;

	(void)state;
	pool_open(&p);
	from = moving_slot(&p);
	w = *word(&p, from);
	/* before the directory says anything else */
	move_others(&p, p.f.geometry.npages - 1, from);
	page = split_begin(&p);
	to = layout_page_offset(&p.f.geometry, page) + from % LAYOUT_PAGE_BYTES;
	/* each step: nothing but "a split is under way" */
	for (unsigned step = 0; step <= 10; step++) {
		split_step(&p, step, from, to, w);
		assert_int_equal(run(&p, true), 0);
		if (step < 10 && (found(&p) == 0 || p.totals.findings[CHECK_SPLIT] != found(&p)))
			fail_msg("step %u: %s", step, p.text);
		if (step == 10)
			break;
		assert_int_equal(p.totals.repaired, 0);
		assert_int_equal(p.totals.subtables, 5);
		assert_int_equal(p.totals.keys, step == 2 ? KEYS + 2 : KEYS + 1);
	}
	/* the last step's tombstones are cleared, and no key is gone */
	assert_int_equal(p.totals.findings[CHECK_SPLIT], found(&p));
	assert_true(p.totals.repaired > 0);
	split_entry(&p, 13, page, LAYOUT_DIRECTORY_VALID);
	assert_int_equal(run(&p, false), 0);
	assert_int_equal(found(&p), 0);
	assert_int_equal(p.totals.keys, KEYS + 1);
	check_keys(&p, GONE);
	pool_close(&p);
}

/* In a split: committed in both is what must never be. */
static void test_split_twice(void **state)
{
	struct pool p;
	uint64_t from, w;
	uint32_t page;

	(void)state;
	pool_open(&p);
	from = moving_slot(&p);
	w = *word(&p, from);
	page = split_begin(&p);
	*word(&p, layout_page_offset(&p.f.geometry, page) + from % LAYOUT_PAGE_BYTES) = w;
	assert_int_equal(run(&p, false), 0);
	assert_int_equal(p.totals.findings[CHECK_KEY_TWICE], 1);
	pool_close(&p);
}

/* ---- what a repair refuses ------------------------------------------------------------------- */

static void test_refused(void **state)
{
	struct layout_superblock *superblock;
	struct pool p;

	(void)state;
	pool_open(&p);
	superblock = p.f.base;
	/* the hash seed: each key is at the wrong place now, and none is damaged */
	superblock->hash_seed ^= 1;
	assert_int_equal(run(&p, false), 0);
	assert_int_equal(p.totals.findings[CHECK_KEY_PLACE], KEYS + 1);
	assert_int_equal(run(&p, true), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "superblock"));
	superblock->hash_seed ^= 1;
	assert_int_equal(run(&p, false), 0);
	assert_int_equal(found(&p), 0);
	/* possible in itself, but not what a pool of this size has */
	superblock->max_clients--;
	assert_int_equal(run(&p, false), 0);
	assert_int_equal(p.totals.findings[CHECK_SUPERBLOCK], 1);
	assert_int_equal(run(&p, true), -TARN_ECORRUPT);
	superblock->max_clients++;
	superblock->magic ^= 1;
	assert_int_equal(run(&p, true), -TARN_ECORRUPT);
	superblock->magic ^= 1;
	superblock->layout_version++;
	assert_int_equal(run(&p, true), -TARN_EVERSION);
	superblock->layout_version--;
	p.f.bytes -= LAYOUT_PAGE_BYTES;
	assert_int_equal(run(&p, true), -TARN_ECORRUPT);
	p.f.bytes += LAYOUT_PAGE_BYTES;
	pool_close(&p);
}

/* ---- online ---------------------------------------------------------------------------------- */

/* Runs it on a clock that goes by `tick` a step; meanwhile() is called when it begins to wait. */
static void run_online(struct pool *p, void (*meanwhile)(struct pool *p))
{
	struct check_memory memory = {.base = p->f.base, .bytes = p->f.bytes};
	struct check_options options = {.flags = CHECK_ONLINE, .report = on_finding, .arg = p};
	uint64_t now = 1000, waited = 0;
	enum check_next next;
	struct check *c;

	assert_int_equal(check_begin(&memory, &options, &c), 0);
	while ((next = check_step(c, now)) != CHECK_DONE) {
		if (next != CHECK_WAIT)
			continue;
		assert_true(check_due_ns(c) > now);
		waited += check_due_ns(c) - now;
		now = check_due_ns(c);
		if (meanwhile)
			meanwhile(p);
	}
	assert_int_equal(check_permille(c), 1000);
	check_get_totals(c, &p->totals);
	check_free(c);
	/* what is told was looked at for long enough */
	if (found(p))
		assert_true(waited > p->f.geometry.grace_ns + p->f.geometry.deadline_ns);
}

static void test_online(void **state)
{
	struct pool p;

	(void)state;
	pool_open(&p);
	/* what others are doing is none of our business: pending, a block in hand, owned pages */
	put(p.session, 3);
	client_set(&p, 0, LAYOUT_CLIENT_LIVE, 1);
	make_slot_pending(&p);
	make_leak(&p);
	run_online(&p, NULL);
	if (found(&p))
		fail_msg("%s", p.text);
	assert_int_equal(p.totals.pending, 1);
	assert_true(p.totals.leaked_blocks >= 1);
	/* what stays wrong is told */
	make_block_value(&p);
	make_ring_page(&p);
	make_key_twice_same(&p);
	make_extent_data(&p);
	run_online(&p, NULL);
	assert_int_equal(p.totals.findings[CHECK_BLOCK_DAMAGED], 1);
	assert_int_equal(p.totals.findings[CHECK_RING_ENTRY], 1);
	assert_int_equal(p.totals.findings[CHECK_KEY_TWICE], 1);
	assert_int_equal(p.totals.findings[CHECK_EXTENT_DAMAGED], 1);
	assert_int_equal(found(&p), 4);
	pool_close(&p);
}

static void restore_block(struct pool *p)
{
	*byte(p, block_of(p, 11) + 60) &= (uint8_t)~0x80;
}

static void test_online_passing(void **state)
{
	struct pool p;

	(void)state;
	pool_open(&p);
	*byte(&p, block_of(&p, 11) + 60) |= 0x80;
	run_online(&p, restore_block);
	if (found(&p))
		fail_msg("%s", p.text);
	pool_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),          cmocka_unit_test(test_breakages),
		cmocka_unit_test(test_split),          cmocka_unit_test(test_refused),
		cmocka_unit_test(test_split_twice),    cmocka_unit_test(test_online),
		cmocka_unit_test(test_online_passing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
