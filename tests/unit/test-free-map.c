/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/free-map.c beside a count of one byte at a time, on every class and with garbage. */
#include <stdlib.h>

#include "free-map.h"
#include "pool-fixture.h"

static struct free_map *map_open(struct fixture *f)
{
	struct free_map *map;

	fixture_open(f, "");
	map = free_map_create(f->pool);
	assert_non_null(map);
	return map;
}

static void map_close(struct fixture *f, struct free_map *map)
{
	free_map_free(map);
	fixture_close(f);
}

static uint64_t byte_at(const struct pool *pool, uint32_t page, uint32_t unit)
{
	return pool->geometry.free_map_offset + (uint64_t)page * LAYOUT_UNITS_PER_PAGE + unit;
}

/* Bytes of all kinds, also where no block begins: mostly of this value. */
static void fill(struct pool *pool, uint32_t page, uint8_t mostly)
{
	for (uint32_t unit = 0; unit < LAYOUT_UNITS_PER_PAGE; unit++) {
		uint8_t byte = mostly;

		if (random() % 8 == 0)
			byte = (uint8_t)(random() % 4);
		else if (random() % 64 == 0)
			byte = (uint8_t)random();
		self_store_byte(pool, byte_at(pool, page, unit), byte);
	}
}

static struct free_map_counts counted(const struct pool *pool, uint32_t page, uint32_t class)
{
	uint32_t step = layout_class_bytes(class) / LAYOUT_UNIT;
	struct free_map_counts counts = {0};

	for (uint32_t i = 0; i < layout_class_blocks(class); i++)
		switch (self_load_byte(pool, byte_at(pool, page, i * step))) {
		case LAYOUT_FREE_AGED:
			counts.aged++;
			break;
		case LAYOUT_FREE_RETIRED:
			counts.retired++;
			break;
		default:
			counts.in_use++;
		}
	return counts;
}

static void assert_same(struct free_map_counts a, struct free_map_counts b)
{
	assert_int_equal(a.aged, b.aged);
	assert_int_equal(a.in_use, b.in_use);
	assert_int_equal(a.retired, b.retired);
}

static void test_counts(void **state)
{
	struct fixture f;
	struct free_map *map = map_open(&f);

	(void)state;
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++)
		for (uint8_t mostly = 0; mostly < 4; mostly++) {
			fill(f.pool, 1, mostly);
			free_map_read(map, 1, class);
			assert_same(free_map_count(map), counted(f.pool, 1, class));
		}
	map_close(&f, map);
}

/* What was noted and is still "retired" becomes "aged", and no other byte of the map changes. */
static void test_age(void **state)
{
	uint64_t bits[LAYOUT_UNITS_PER_PAGE / 64];
	uint8_t before[LAYOUT_UNITS_PER_PAGE];
	struct fixture f;
	struct free_map *map = map_open(&f);

	(void)state;
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++) {
		uint32_t step = layout_class_bytes(class) / LAYOUT_UNIT, aged = 0;

		fill(f.pool, 1, LAYOUT_FREE_RETIRED);
		free_map_read(map, 1, class);
		free_map_get_retired(map, bits);
		/* meanwhile some are gone, and others have come */
		for (uint32_t i = 0; i < layout_class_blocks(class); i++)
			if (random() % 16 == 0)
				self_store_byte(f.pool, byte_at(f.pool, 1, i * step),
						(uint8_t)(random() % 3));
		for (uint32_t unit = 0; unit < LAYOUT_UNITS_PER_PAGE; unit++)
			before[unit] = self_load_byte(f.pool, byte_at(f.pool, 1, unit));
		assert_true(free_map_bits_bytes(class) <= sizeof(bits));
		aged = free_map_age(f.pool, 1, class, bits);
		for (uint32_t unit = 0; unit < LAYOUT_UNITS_PER_PAGE; unit++) {
			uint8_t now = self_load_byte(f.pool, byte_at(f.pool, 1, unit));

			if (now == before[unit])
				continue;
			assert_int_equal(unit % step, 0);
			assert_int_equal(before[unit], LAYOUT_FREE_RETIRED);
			assert_int_equal(now, LAYOUT_FREE_AGED);
			aged--;
		}
		assert_int_equal(aged, 0);
		free_map_read(map, 1, class);
		assert_same(free_map_count(map), counted(f.pool, 1, class));
	}
	map_close(&f, map);
}

/* Each block's own bit: all of a fresh note ages, and what was retired later does not. */
static void test_later(void **state)
{
	uint64_t bits[LAYOUT_UNITS_PER_PAGE / 64];
	struct fixture f;
	struct free_map *map = map_open(&f);

	(void)state;
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++) {
		uint32_t step = layout_class_bytes(class) / LAYOUT_UNIT,
			 blocks = layout_class_blocks(class);

		for (uint32_t i = 0; i < blocks; i++)
			self_store_byte(f.pool, byte_at(f.pool, 1, i * step),
					i % 3 ? LAYOUT_FREE_RETIRED : LAYOUT_FREE_IN_USE);
		free_map_read(map, 1, class);
		free_map_get_retired(map, bits);
		for (uint32_t i = 0; i < blocks; i += 3)
			self_store_byte(f.pool, byte_at(f.pool, 1, i * step), LAYOUT_FREE_RETIRED);
		assert_int_equal(free_map_age(f.pool, 1, class, bits), blocks - (blocks + 2) / 3);
		for (uint32_t i = 0; i < blocks; i++)
			assert_int_equal(self_load_byte(f.pool, byte_at(f.pool, 1, i * step)),
					 i % 3 ? LAYOUT_FREE_AGED : LAYOUT_FREE_RETIRED);
	}
	map_close(&f, map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_age),
		cmocka_unit_test(test_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
