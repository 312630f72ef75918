/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The free-map bytes of one page; see free-map.h. Main thread. Pages of many blocks are read, counted and
 * noted eight bytes at a time, those of few large blocks byte by byte: the bytes between are nobody's.
 * recycle.c is who calls it; docs/protocol.md section 6 says who may write which byte.
 */
#include <stdlib.h>

#include "free-map.h"
#include "layout.h"
#include "pool.h"
#include "self.h"

#define FEW_BLOCKS 64u /* so few bytes are read one by one */
#define WORDS      (LAYOUT_UNITS_PER_PAGE / 8)
#define ONES       0x0101010101010101ull
#define GARBAGE    (0xfc * ONES)
#define CHUNK      128u /* so many words are added up bytewise: up to 255 would fit */

static_assert(WORDS % CHUNK == 0, "loops of a constant length, which compilers vectorize");

struct free_map {
	struct pool *pool;
	uint32_t class; /* of the page that was read */
	uint64_t words[WORDS];
	uint8_t few[FEW_BLOCKS];
	/* 1 in the byte of each block; classes of few blocks have none */
	uint64_t ones[LAYOUT_CLASSES][WORDS];
};

static bool few(uint32_t class)
{
	return layout_class_blocks(class) <= FEW_BLOCKS;
}

static uint32_t units(uint32_t class)
{
	return layout_class_bytes(class) / LAYOUT_UNIT;
}

struct free_map *free_map_create(struct pool *pool)
{
	struct free_map *map = calloc(1, sizeof(*map));

	if (!map)
		return NULL;
	map->pool = pool;
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++)
		for (uint32_t i = 0; !few(class) && i < layout_class_blocks(class); i++)
			map->ones[class][i * units(class) / 8] |= 1ull << i * units(class) % 8 * 8;
	return map;
}

void free_map_free(struct free_map *map)
{
	free(map);
}

static uint64_t byte_offset(const struct pool *pool, uint32_t page, uint32_t unit)
{
	return pool->geometry.free_map_offset + (uint64_t)page * LAYOUT_UNITS_PER_PAGE + unit;
}

/* What no value is counts as in use. */
static uint64_t without_garbage(uint64_t word)
{
	for (uint32_t shift = 0; shift < 64; shift += 8)
		if ((word >> shift & 0xff) > LAYOUT_FREE_RETIRED)
			word = (word & ~(0xffull << shift)) | (uint64_t)LAYOUT_FREE_IN_USE << shift;
	return word;
}

void free_map_read(struct free_map *map, uint32_t page, uint32_t class)
{
	map->class = class;
	if (!few(class)) {
		uint64_t any = 0;

		self_read(map->pool, byte_offset(map->pool, page, 0), map->words,
			  sizeof(map->words));
		for (uint32_t i = 0; i < WORDS; i++)
			any |= map->words[i];
		for (uint32_t i = 0; (any & GARBAGE) && i < WORDS; i++)
			map->words[i] = without_garbage(map->words[i]);
		return;
	}
	for (uint32_t i = 0; i < layout_class_blocks(class); i++)
		map->few[i] =
			self_load_byte(map->pool, byte_offset(map->pool, page, i * units(class)));
}

/*
 * 1 in the byte of each block that is "aged" (0), or "retired" (2). Garbage of 3, which free_map_read()
 * lets pass, is neither.
 */
static uint64_t aged_in(uint64_t word, uint64_t ones)
{
	return ~(word | word >> 1) & ones;
}

static uint64_t retired_in(uint64_t word, uint64_t ones)
{
	return word >> 1 & ~word & ones;
}

/* The sum of the bytes. */
static uint16_t bytes_sum(uint64_t word)
{
	uint64_t pairs = (word & 0x00ff00ff00ff00ffull) + (word >> 8 & 0x00ff00ff00ff00ffull);

	return (uint16_t)(pairs * 0x0001000100010001ull >> 48);
}

static struct free_map_counts count_few(const struct free_map *map)
{
	uint32_t blocks = layout_class_blocks(map->class);
	struct free_map_counts counts = {0};

	for (uint32_t i = 0; i < blocks; i++) {
		if (map->few[i] == LAYOUT_FREE_AGED)
			counts.aged++;
		else if (map->few[i] == LAYOUT_FREE_RETIRED)
			counts.retired++;
	}
	counts.in_use = (uint16_t)(blocks - counts.aged - counts.retired);
	return counts;
}

struct free_map_counts free_map_count(const struct free_map *map)
{
	const uint64_t *ones = map->ones[map->class];
	struct free_map_counts counts = {0};

	if (few(map->class))
		return count_few(map);
	for (uint32_t begin = 0; begin < WORDS; begin += CHUNK) {
		uint64_t aged = 0, retired = 0;

		for (uint32_t i = 0; i < CHUNK; i++) {
			aged += aged_in(map->words[begin + i], ones[begin + i]);
			retired += retired_in(map->words[begin + i], ones[begin + i]);
		}
		counts.aged = (uint16_t)(counts.aged + bytes_sum(aged));
		counts.retired = (uint16_t)(counts.retired + bytes_sum(retired));
	}
	counts.in_use = (uint16_t)(layout_class_blocks(map->class) - counts.aged - counts.retired);
	return counts;
}

/* ---- what is retired, as bits: of units, or of the blocks where they are few ---- */

/* Bit j of byte k becomes bit k of byte j (H. S. Warren, Hacker's Delight, 7-3). */
static uint64_t transpose(uint64_t bits)
{
	uint64_t swap;

	swap = (bits ^ bits >> 7) & 0x00aa00aa00aa00aaull;
	bits ^= swap ^ swap << 7;
	swap = (bits ^ bits >> 14) & 0x0000cccc0000ccccull;
	bits ^= swap ^ swap << 14;
	swap = (bits ^ bits >> 28) & 0x00000000f0f0f0f0ull;
	return bits ^ swap ^ swap << 28;
}

uint32_t free_map_bits_bytes(uint32_t class)
{
	return few(class) ? FEW_BLOCKS / 8 : LAYOUT_UNITS_PER_PAGE / 8;
}

void free_map_get_retired(const struct free_map *map, uint64_t *ret_bits)
{
	const uint64_t *ones = map->ones[map->class];

	if (few(map->class)) {
		*ret_bits = 0;
		for (uint32_t i = 0; i < layout_class_blocks(map->class); i++)
			*ret_bits |= (uint64_t)(map->few[i] == LAYOUT_FREE_RETIRED) << i;
		return;
	}
	for (uint32_t i = 0; i < WORDS; i += 8) {
		uint64_t bits = 0;

		for (uint32_t j = 0; j < 8; j++)
			bits |= retired_in(map->words[i + j], ones[i + j]) << j;
		ret_bits[i / 8] = transpose(bits);
	}
}

uint32_t free_map_age(struct pool *pool, uint32_t page, uint32_t class, const uint64_t *bits)
{
	uint32_t aged = 0, step = few(class) ? units(class) : 1;

	for (uint32_t word = 0; word < free_map_bits_bytes(class) / 8; word++) {
		for (uint64_t left = bits[word]; left; left &= left - 1) {
			uint32_t unit = (word * 64 + (uint32_t)__builtin_ctzll(left)) * step;
			uint64_t offset = byte_offset(pool, page, unit);

			if (self_load_byte(pool, offset) != LAYOUT_FREE_RETIRED)
				continue;
			self_store_byte(pool, offset, LAYOUT_FREE_AGED);
			aged++;
		}
	}
	return aged;
}
