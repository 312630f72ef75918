/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-layout.c - the pool's format: bit positions, size classes, placing the parts, refusing
 * superblocks that lie
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"
#include "shard.h"

static void test_slot_word(void **state)
{
	uint64_t word = layout_slot_make(LAYOUT_SLOT_FROZEN, 0x1a5, 17, 0xabc, 64ull * 0x7ffffffff);

	(void)state;
	assert_int_equal(layout_slot_state(word), LAYOUT_SLOT_FROZEN);
	assert_int_equal(layout_slot_fp(word), 0x1a5);
	assert_int_equal(layout_slot_class(word), 17);
	assert_int_equal(layout_slot_gen(word), 0xabc);
	assert_true(layout_slot_offset(word) == 64ull * 0x7ffffffff);
	assert_true(layout_slot_make(LAYOUT_SLOT_EMPTY, 0, 0, 0, 0) == 0);
	/* one field never spills into another */
	assert_true(layout_slot_make(LAYOUT_SLOT_EMPTY, 0x1ff, 0, 0, 0) == 0xff8);
	assert_true(layout_slot_make(LAYOUT_SLOT_EMPTY, 0, 0x1f, 0, 0) == 0x1f000);
	assert_true(layout_slot_make(LAYOUT_SLOT_EMPTY, 0, 0, 0xffff, 0) == 0x1ffe0000);
	assert_true(layout_slot_make(LAYOUT_SLOT_EMPTY, 0, 0, 0, 64) == 1ull << 29);
	assert_int_equal(layout_slot_state(layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED)),
			 LAYOUT_SLOT_COMMITTED);
}

static void test_other_words(void **state)
{
	uint64_t header = layout_header_make(0xdeadbeef, 23, 2, 0x123456);
	uint64_t page = layout_page_make(LAYOUT_PAGE_SLAB, 31, 0xfedc, 0x123456789a);
	uint64_t entry = layout_directory_make(0x89abcdef, 13, LAYOUT_DIRECTORY_MIGRATING);
	uint64_t ring = layout_ring_make(0x1ffffffffull, 77);

	(void)state;
	assert_int_equal(layout_header_suffix(header), 0xdeadbeef);
	assert_int_equal(layout_header_depth(header), 23);
	assert_int_equal(layout_header_split(header), 2);
	assert_int_equal(layout_header_version(header), 0x123456);
	assert_int_equal(layout_page_state(page), LAYOUT_PAGE_SLAB);
	assert_int_equal(layout_page_class(page), 31);
	assert_int_equal(layout_page_owner(page), 0xfedc);
	assert_true(layout_page_generation(page) == 0x123456789a);
	assert_true(layout_page_generation(layout_page_next(page, LAYOUT_PAGE_FULL, 3, 0)) ==
		    0x123456789b);
	assert_int_equal(layout_directory_page(entry), 0x89abcdef);
	assert_int_equal(layout_directory_depth(entry), 13);
	assert_int_equal(layout_directory_state(entry), LAYOUT_DIRECTORY_MIGRATING);
	assert_int_equal(layout_ring_ticket(ring), 0xffffffff);
	assert_int_equal(layout_ring_page(ring), 77);
}

static void test_classes(void **state)
{
	uint32_t class, bytes;

	(void)state;
	for (class = 0; class < LAYOUT_CLASSES; class ++) {
		assert_int_equal(layout_class_bytes(class) % LAYOUT_UNIT, 0);
		assert_true(layout_class_blocks(class) >= 1);
	}
	for (class = 2; class <= LAYOUT_CLASS_MAX; class ++) {
		assert_true(layout_class_bytes(class) > layout_class_bytes(class - 1));
		/* at a page's end less than a fiftieth is lost, or less than a block */
		assert_true(LAYOUT_PAGE_BYTES % layout_class_bytes(class) < LAYOUT_PAGE_BYTES / 25);
	}
	for (bytes = 1; bytes <= LAYOUT_BLOCK_MAX; bytes += bytes < 5000 ? 1 : 977) {
		class = layout_class_for(bytes);
		assert_true(layout_class_bytes(class) >= bytes);
		assert_true(class == 1 || layout_class_bytes(class - 1) < bytes);
	}
	for (class = 0; class < LAYOUT_CLASSES; class ++)
		for (bytes = 0; bytes < LAYOUT_PAGE_BYTES; bytes += 8)
			assert_true(layout_class_divides(class, bytes) ==
				    (bytes % layout_class_bytes(class) == 0));
	assert_int_equal(layout_class_for(LAYOUT_BLOCK_MAX), LAYOUT_CLASS_MAX);
	assert_int_equal(layout_class_for_counter(1), LAYOUT_CLASS_COUNTER);
	assert_int_equal(layout_class_for_counter(72), LAYOUT_CLASS_COUNTER);
	assert_int_equal(layout_class_for_counter(73), LAYOUT_CLASS_COUNTER_LARGE);
	assert_true(layout_block_bytes(LAYOUT_KIND_COUNTER, 65535, 8) <=
		    layout_class_bytes(LAYOUT_CLASS_COUNTER_LARGE));
	/* the largest value's list of extents fits a block together with the longest key */
	assert_true(layout_block_bytes(LAYOUT_KIND_EXTENTS, 65535, LAYOUT_MAX_VALUE_BYTES) <=
		    LAYOUT_BLOCK_MAX);
}

static void test_hash(void **state)
{
	uint32_t used[9] = {0}, i, groups = 3;
	struct layout_hash a = layout_hash_key("a", 1, 1), b = layout_hash_key("a", 1, 2);

	(void)state;
	assert_true(a.low != b.low && a.high != b.high);
	for (i = 0; i < 10000; i++) {
		struct layout_hash h = layout_hash_key(&i, sizeof(i), 7);
		uint32_t choice;

		assert_true(layout_hash_fp(h) < 512);
		for (choice = 0; choice < 2; choice++) {
			uint32_t pair = layout_hash_pair(h, choice, groups);

			/* A + overflow, or overflow + B, never across a group's end */
			assert_true(pair % LAYOUT_GROUP_BYTES <= LAYOUT_BUCKET_BYTES);
			assert_true(pair + LAYOUT_PAIR_BYTES <= groups * LAYOUT_GROUP_BYTES);
			used[pair / LAYOUT_BUCKET_BYTES]++;
		}
	}
	for (i = 0; i < 9; i++)
		assert_true(i % 3 == 2 ? used[i] == 0 : used[i] > 2500);
}

/* The parts of the index: each 2^(1/16) of the next smaller one, in the order of their bits read backwards. */
static void test_hash_parts(void **state)
{
	uint32_t counts[16] = {0}, upper[16] = {0}, i;
	const double total = 1000000, ratio = 1.0442737824274138; /* 2^(1/16) */
	double share = total * (ratio - 1), edges[17] = {0};

	(void)state;
	for (i = 0; i < 16; i++)
		edges[i + 1] = (edges[i] + (1 << 23)) * ratio - (1 << 23);
	for (i = 0; i < 1000000; i++) {
		struct layout_hash h = layout_hash_key(&i, sizeof(i), 7);
		uint32_t suffix = layout_hash_suffix(h), part = suffix & 15;
		double bits = (double)(h.high >> 41);

		part = (part & 1) << 3 | (part & 2) << 1 | (part & 4) >> 1 | part >> 3;
		/* each hash by itself, but for how an edge is rounded */
		assert_true(bits > edges[part] - 1 && bits < edges[part + 1] + 1);
		counts[part]++;
		upper[part] += suffix >> 4 & 1;
	}
	for (i = 0; i < 16; i++, share *= ratio) {
		assert_true(counts[i] > 0.98 * share && counts[i] < 1.02 * share);
		/* behind that the bits are even */
		assert_true(upper[i] > 0.49 * counts[i] && upper[i] < 0.51 * counts[i]);
	}
}

static void test_format(void **state)
{
	static const uint64_t sizes[] = {1ull << 20, 4ull << 20, 64ull << 20, 1ull << 30};
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct layout_plan plan = fixture_plan(sizes[i]);
		struct fixture f;
		uint32_t page, index = 0;

		assert_int_equal(fixture_create(&f, &plan), 0);
		assert_true(layout_page_offset(&f.geometry, f.geometry.npages) <= sizes[i]);
		/* not more than a tenth and 1 MiB is spent on tables */
		assert_true((uint64_t)f.geometry.npages * LAYOUT_PAGE_BYTES + sizes[i] / 10 +
				    (1u << 20) >=
			    sizes[i]);
		for (page = 0; page < f.geometry.npages; page++)
			index += layout_page_state(*fixture_word(
					 &f, layout_page_word_offset(&f.geometry, page))) ==
				 LAYOUT_PAGE_INDEX;
		assert_int_equal(index, 1u << *fixture_word(&f, LAYOUT_GLOBAL_DEPTH_OFFSET));
		assert_int_equal(*fixture_word(&f, LAYOUT_CURSOR_OFFSET), index);
		fixture_destroy(&f);
	}
}

static void test_format_refuses(void **state)
{
	struct layout_plan plan = fixture_plan(4ull << 20);
	struct fixture f;

	(void)state;
	plan.keys = 100000000;
	assert_int_equal(fixture_create(&f, &plan), -EINVAL);
	assert_non_null(strstr(err_text(), "keys"));
	fixture_destroy(&f);
	plan = fixture_plan(4ull << 20);
	plan.max_clients = 65535;
	assert_int_equal(fixture_create(&f, &plan), -EINVAL);
	assert_non_null(strstr(err_text(), "max_clients"));
	fixture_destroy(&f);
	plan = fixture_plan(4ull << 20);
	plan.grace_ns = plan.epoch_ns;
	assert_int_equal(fixture_create(&f, &plan), -EINVAL);
	fixture_destroy(&f);
	plan = fixture_plan((4ull << 20) + 4096);
	assert_int_equal(fixture_create(&f, &plan), -EINVAL);
	fixture_destroy(&f);
}

/* A pool of a cluster has its words and room for two maps; any other is as it was before there were clusters. */
static void test_shards(void **state)
{
	struct layout_plan plan = fixture_plan(16ull << 20);
	const struct layout_superblock *sb;
	struct layout_superblock copy;
	struct layout_geometry g;
	struct fixture f;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	sb = f.base;
	assert_true(sb->shard_words_offset == 0 && sb->map_offset == 0 && sb->shards == 0 &&
		    sb->map_bytes == 0);
	copy = *sb;
	copy.shard_words_offset = copy.reference_map_offset;
	assert_true(layout_superblock_check(&copy, f.bytes, &g) < 0);
	fixture_destroy(&f);

	plan.shards = 4096;
	assert_int_equal(fixture_create(&f, &plan), 0);
	assert_int_equal(f.geometry.shards, 4096);
	assert_int_equal(f.geometry.map_bytes, 2 * LAYOUT_MAP_BYTES);
	assert_true(f.geometry.shard_words_offset >=
		    layout_reference_offset(&f.geometry,
					    layout_page_offset(&f.geometry, f.geometry.npages)));
	assert_true(layout_shard_offset(&f.geometry, 4096) <= f.geometry.map_offset);
	assert_true(f.geometry.map_offset + f.geometry.map_bytes <= f.geometry.pages_offset);
	assert_true(layout_geometry_usual(&f.geometry));
	assert_int_equal(*fixture_word(&f, layout_shard_offset(&f.geometry, 4095)), 0);
	copy = *(struct layout_superblock *)f.base;
	copy.shards = 4095;
	assert_true(layout_superblock_check(&copy, f.bytes, &g) < 0);
	copy.shards = 1u << 15;
	assert_true(layout_superblock_check(&copy, f.bytes, &g) < 0);
	copy.shards = 4096;
	copy.map_offset = copy.pages_offset;
	assert_true(layout_superblock_check(&copy, f.bytes, &g) < 0);
	copy.map_offset = copy.shard_words_offset;
	assert_true(layout_superblock_check(&copy, f.bytes, &g) < 0);
	fixture_destroy(&f);

	plan.shards = 4000;
	assert_int_equal(fixture_create(&f, &plan), -EINVAL);
	assert_non_null(strstr(err_text(), "4000"));
	fixture_destroy(&f);
}

/* A shard's keys lie in the subtables that shard_in_subtable() says. */
static void test_shard_of(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 10000; i++) {
		struct layout_hash h = layout_hash_key(&i, sizeof(i), 7);
		uint32_t shard = shard_of(h, 4096);

		assert_true(shard < 4096);
		for (uint32_t depth = 0; depth <= LAYOUT_MAX_DEPTH; depth++) {
			uint32_t suffix = layout_suffix(layout_hash_suffix(h), depth);

			assert_true(shard_in_subtable(shard, 4096, suffix, depth));
			assert_true(depth <= 4 ||
				    !shard_in_subtable(shard ^ 1, 4096, suffix, depth));
			assert_true(depth < 16 ||
				    !shard_in_subtable(shard ^ 1u << 11, 4096, suffix, depth));
		}
		assert_true(shard_in_subtable(shard ^ 1, 4096, 0, 4));
	}
}

/*
 * Each 8 bytes of a good superblock overwritten by each of some bad numbers: accepted only if all
 * offsets still lie inside.
 */
static void test_superblock_lies(void **state)
{
	static const uint64_t bad[] = {
		0, 1, 63, 4095, 1ull << 31, 1ull << 40, UINT64_MAX - 7, UINT64_MAX};
	struct layout_plan plan = fixture_plan(4ull << 20);
	struct layout_superblock sb;
	struct fixture f;
	unsigned i, j;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	for (i = 0; i < 192; i += 4) {
		for (j = 0; j < sizeof(bad) / sizeof(bad[0]); j++) {
			struct layout_geometry g;

			memcpy(&sb, f.base, sizeof(sb));
			memcpy((uint8_t *)&sb + i, &bad[j], i % 8 ? 4 : 8);
			if (layout_superblock_check(&sb, f.bytes, &g) < 0)
				continue;
			assert_true(layout_page_offset(&g, g.npages) <= f.bytes);
			assert_true(layout_client_offset(&g, g.max_clients) <= g.page_table_offset);
			assert_true(layout_page_word_offset(&g, g.npages) <= g.ready_rings_offset);
			assert_true(layout_ring_offset(&g, LAYOUT_CLASSES) <= g.directory_offset);
			assert_true(layout_directory_offset(&g, 1ull << g.max_depth) <=
				    g.free_map_offset);
		}
	}
	memcpy(&sb, f.base, sizeof(sb));
	sb.layout_version = 99;
	assert_int_equal(layout_superblock_check(&sb, f.bytes, &f.geometry), -TARN_EVERSION);
	sb.layout_version = LAYOUT_VERSION;
	sb.magic = 0;
	assert_int_equal(layout_superblock_check(&sb, f.bytes, &f.geometry), -TARN_ECORRUPT);
	fixture_destroy(&f);
}

static void test_block_valid(void **state)
{
	uint8_t memory[256] __attribute__((aligned(8))) = {0};
	struct layout_block *block = (struct layout_block *)memory;
	unsigned i;

	(void)state;
	*block = (struct layout_block){
		.generation = 5, .key_length = 3, .kind = LAYOUT_KIND_VALUE, .value_length = 10};
	memcpy(block + 1, "key", 3);
	memcpy(memory + layout_value_offset(3), "0123456789", 10);
	block->checksum = layout_block_checksum(block, 640);
	assert_true(layout_block_valid(block, sizeof(memory), 640));
	/* the same bytes at another place are not that block */
	assert_false(layout_block_valid(block, sizeof(memory), 704));
	/* any flipped bit of it is seen */
	for (i = 0; i < (layout_value_offset(3) + 10) * 8; i++) {
		memory[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_false(layout_block_valid(block, sizeof(memory), 640));
		memory[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_false(layout_block_valid(block, 64, 640));
	block->value_length = UINT64_MAX;
	assert_false(layout_block_valid(block, sizeof(memory), 640));
	block->kind = LAYOUT_KIND_EXTENTS;
	assert_false(layout_block_valid(block, sizeof(memory), 640));
}

static void test_block_place(void **state)
{
	struct layout_plan plan = fixture_plan(4ull << 20);
	struct fixture f;
	const struct layout_geometry *g = &f.geometry;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	assert_true(layout_block_place_valid(g, layout_page_offset(g, 2), 2));
	assert_true(layout_block_place_valid(g, layout_page_offset(g, 2) + 128, 2));
	assert_false(layout_block_place_valid(g, layout_page_offset(g, 2) + 64, 2));
	assert_false(layout_block_place_valid(g, 0, 2));
	assert_false(layout_block_place_valid(g, g->free_map_offset, 2));
	assert_false(layout_block_place_valid(g, layout_page_offset(g, g->npages), 2));
	/* the rest behind the last whole block of a page is no block */
	assert_false(layout_block_place_valid(g, layout_page_offset(g, 2) + 3ull * 87360, 28));
	fixture_destroy(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slot_word),      cmocka_unit_test(test_other_words),
		cmocka_unit_test(test_classes),        cmocka_unit_test(test_hash),
		cmocka_unit_test(test_hash_parts),     cmocka_unit_test(test_format),
		cmocka_unit_test(test_format_refuses), cmocka_unit_test(test_shards),
		cmocka_unit_test(test_shard_of),       cmocka_unit_test(test_superblock_lies),
		cmocka_unit_test(test_block_valid),    cmocka_unit_test(test_block_place),
	};

	return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
