/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * layout.c - making and checking a pool's format
 *
 * Pure functions on memory: no threads, no logging. The daemon formats with layout_format(),
 * everybody else goes through layout_superblock_check() before believing an offset. Next: layout.h
 * for the bits, docs/protocol.md section 2 for the reasons.
 */
#include "layout.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "err.h"
#include "mutation.h"
#include "tarn/tarn.h"

/*
 * 262144 / n rounded down to 64 for n = 4096 ... 1: little is left over at a page's end, and steps
 * are about 1.3.
 */
#define CLASSES(X)                                                                                 \
	X(128) X(64) X(128) X(192) X(256) X(320) X(384) X(512) X(640) X(832) X(1024) X(1280)       \
	X(1600) X(2048) X(2560) X(3328) X(4352) X(5696) X(7232) X(9664) X(12480) X(16384)          \
	X(20160) X(26176) X(32768) X(43648) X(52416) X(65536) X(87360) X(131072) X(262144)         \
	X(87360)
#define SIZE(bytes)    bytes,
#define INVERSE(bytes) (uint32_t)(UINT32_MAX / (bytes / LAYOUT_UNIT) + 1ull),

/* clang-format off */
const uint32_t layout_class_sizes[LAYOUT_CLASSES] = { CLASSES(SIZE) };
const uint32_t layout_class_inverses[LAYOUT_CLASSES] = { CLASSES(INVERSE) };
/* clang-format on */

uint32_t layout_class_for(uint64_t bytes)
{
	uint32_t low = 1, high = LAYOUT_CLASS_MAX;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (layout_class_sizes[middle] < bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint32_t layout_class_for_counter(uint32_t key_length)
{
	uint64_t bytes = layout_block_bytes(LAYOUT_KIND_COUNTER, key_length, 8);

	return bytes <= layout_class_sizes[LAYOUT_CLASS_COUNTER] ? LAYOUT_CLASS_COUNTER
								 : LAYOUT_CLASS_COUNTER_LARGE;
}

/* ---- checksums and hashes -------------------------------------------------------------------- */

/* The place is part of the sum, so that a block's bytes are not valid anywhere else. */
static inline uint64_t place(uint64_t sum, uint64_t offset)
{
	return sum ^ offset * 0x9e3779b97f4a7c15ull;
}

uint64_t layout_block_checksum(const struct layout_block *block, uint64_t offset)
{
	uint64_t end = layout_value_offset(block->key_length);

	/* a counter's value changes in place */
	if (block->kind != LAYOUT_KIND_COUNTER)
		end += layout_stored_length(block->kind, block->value_length);
	return place(
		XXH3_64bits(&block->generation, end - offsetof(struct layout_block, generation)),
		offset);
}

uint64_t layout_extent_checksum(const void *data, uint64_t bytes, uint64_t offset)
{
	return place(XXH3_64bits(data, bytes), offset);
}

static bool block_lengths_valid(const struct layout_block *block, uint64_t bytes)
{
	if (block->key_length == 0)
		return false;
	switch (block->kind) {
	case LAYOUT_KIND_VALUE:
		break;
	case LAYOUT_KIND_COUNTER:
		if (block->value_length != 8)
			return false;
		break;
	case LAYOUT_KIND_EXTENTS:
		if (block->value_length > LAYOUT_MAX_VALUE_BYTES ||
		    !layout_value_is_large(block->key_length, block->value_length))
			return false;
		break;
	default:
		return false;
	}
	/* first the bare number, so that the sum cannot overflow */
	return block->value_length <= LAYOUT_MAX_VALUE_BYTES &&
	       layout_block_bytes(block->kind, block->key_length, block->value_length) <= bytes;
}

bool layout_block_valid(const struct layout_block *block, uint64_t bytes, uint64_t offset)
{
	if (!block_lengths_valid(block, bytes))
		return false;
	return MUTATED(MUTATION_CHECKSUM) ||
	       layout_block_checksum(block, offset) == block->checksum;
}

/*
 * Which of 16 parts of the index a key belongs to, for 23 evenly distributed bits. The parts are unequal
 * on purpose, the i-th 2^(1/16) times as large as the one before: else all subtables would fill up and
 * split at the same time, and the index be half empty behind that (G. N. N. Martin: Spiral Storage,
 * 1979). The i-th part begins at 2^23 * (2^(i/16) - 1). Backwards, so that it is so from the first split on.
 */
static uint32_t part_of(uint32_t bits)
{
	static const uint32_t begins[17] = {0,       371395,  759234,  1164243, 1587184, 2028850,
					    2490071, 2971711, 3474675, 3999908, 4548394, 5121164,
					    5719293, 6343903, 6996167, 7677309, 1u << 23};
	static const uint8_t backwards[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
	/* for the six upper bits the part of the first one; at most one more begins among the rest */
	static const uint8_t parts[64] = {0,  0,  0,  1,  1,  1,  2,  2,  2,  3,  3,  3,  3,
					  4,  4,  4,  5,  5,  5,  6,  6,  6,  6,  7,  7,  7,
					  7,  8,  8,  8,  8,  9,  9,  9,  9,  10, 10, 10, 10,
					  10, 11, 11, 11, 11, 12, 12, 12, 12, 12, 13, 13, 13,
					  13, 13, 14, 14, 14, 14, 14, 15, 15, 15, 15, 15};
	uint32_t part = parts[bits >> 17 & 63];

	return backwards[part + (bits >= begins[part + 1])];
}

struct layout_hash layout_hash_key(const void *key, size_t bytes, uint64_t seed)
{
	XXH128_hash_t h = XXH3_128bits_withSeed(key, bytes, seed);
	/* 23 bits that pick nothing else */
	uint32_t part = part_of((uint32_t)(h.high64 >> 41));

	return (struct layout_hash){.low = (h.low64 & ~0xfull) | part, .high = h.high64};
}

uint32_t layout_owner(const uint8_t *key_id, size_t bytes)
{
	uint32_t tag;

	if (key_id[0] == 0)
		return 0;
	tag = (uint32_t)XXH3_64bits(key_id, bytes);
	return tag ? tag : 1;
}

/* A new pool's index gets one of so many pages, or one. */
#define INDEX_SHARE 256u

/* ---- making a pool --------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static uint32_t log2_up(uint64_t n)
{
	uint32_t bits = 0;

	while ((1ull << bits) < n)
		bits++;
	return bits;
}

uint32_t layout_index_depth(uint64_t keys, uint32_t groups)
{
	uint64_t per_subtable = (uint64_t)groups * 3 * LAYOUT_BUCKET_SLOTS * 3 / 4;

	if (per_subtable == 0)
		per_subtable = 1;
	return log2_up((keys + per_subtable - 1) / per_subtable);
}

/* What a pool of a cluster has besides, from `offset` on; returns where it ends. */
static uint64_t place_shards(struct layout_superblock *sb, uint64_t offset)
{
	if (sb->shards == 0)
		return offset;
	sb->shard_words_offset = align_up(offset, 4096);
	sb->map_offset = align_up(sb->shard_words_offset + 8ull * sb->shards, 4096);
	return sb->map_offset + sb->map_bytes;
}

/* Places every part behind the one before; returns the bytes needed in all. */
static uint64_t place_parts(struct layout_superblock *sb, uint32_t npages)
{
	uint32_t ring = 1u << log2_up(npages < 8 ? 8 : npages > 1024 ? 1024 : npages);

	sb->npages = npages;
	sb->ring_entries = ring;
	sb->client_table_offset = LAYOUT_SUPERBLOCK_BYTES;
	sb->page_table_offset =
		sb->client_table_offset + (uint64_t)sb->max_clients * LAYOUT_CLIENT_BYTES;
	sb->ready_rings_offset = align_up(sb->page_table_offset + 8ull * npages, 4096);
	sb->directory_offset =
		align_up(sb->ready_rings_offset +
				 (uint64_t)LAYOUT_CLASSES * (LAYOUT_RING_ENTRIES + 8ull * ring),
			 4096);
	sb->free_map_offset = align_up(sb->directory_offset + (8ull << sb->max_depth), 4096);
	sb->reference_map_offset = sb->free_map_offset + (uint64_t)npages * LAYOUT_UNITS_PER_PAGE;
	sb->pages_offset =
		align_up(place_shards(sb, sb->reference_map_offset +
						  (uint64_t)npages * (LAYOUT_PAGE_BYTES /
								      LAYOUT_REFERENCE_UNIT)),
			 LAYOUT_PAGE_BYTES);
	return sb->pages_offset + (uint64_t)npages * LAYOUT_PAGE_BYTES;
}

static uint32_t depth_limit(uint64_t pool_bytes)
{
	uint32_t depth = log2_up(pool_bytes / LAYOUT_PAGE_BYTES);

	return depth < LAYOUT_MAX_DEPTH ? depth : LAYOUT_MAX_DEPTH;
}

/* Places every part, with as many pages as there is room for; returns their number. */
static uint32_t fit_parts(struct layout_superblock *sb, uint64_t pool_bytes)
{
	uint32_t npages = (uint32_t)(pool_bytes / LAYOUT_PAGE_BYTES);

	while (npages && place_parts(sb, npages) > pool_bytes)
		npages--;
	return npages;
}

bool layout_geometry_usual(const struct layout_geometry *g)
{
	struct layout_superblock sb = {.max_clients = g->max_clients,
				       .max_depth = depth_limit(g->pool_bytes),
				       .shards = g->shards,
				       .map_bytes = g->map_bytes};

	return fit_parts(&sb, g->pool_bytes) == g->npages && sb.max_depth == g->max_depth &&
	       sb.ring_entries == g->ring_entries &&
	       sb.client_table_offset == g->client_table_offset &&
	       sb.page_table_offset == g->page_table_offset &&
	       sb.ready_rings_offset == g->ready_rings_offset &&
	       sb.directory_offset == g->directory_offset &&
	       sb.free_map_offset == g->free_map_offset &&
	       sb.reference_map_offset == g->reference_map_offset &&
	       sb.shard_words_offset == g->shard_words_offset && sb.map_offset == g->map_offset &&
	       sb.pages_offset == g->pages_offset;
}

static bool shards_valid(uint32_t shards)
{
	return shards >= LAYOUT_MIN_SHARDS && shards <= LAYOUT_MAX_SHARDS &&
	       (shards & (shards - 1)) == 0;
}

static int plan_check(const struct layout_plan *plan)
{
	if (plan->pool_bytes % LAYOUT_PAGE_BYTES || plan->pool_bytes < 4 * LAYOUT_PAGE_BYTES ||
	    plan->pool_bytes > LAYOUT_MAX_POOL_BYTES)
		return err_set(-EINVAL,
			       "pool size %llu: must be a multiple of 256 KiB from 1 MiB to 2 TiB",
			       (unsigned long long)plan->pool_bytes);
	if (plan->max_clients == 0 || plan->max_clients > LAYOUT_MAX_CLIENTS)
		return err_set(-EINVAL, "max_clients %u: must be 1 to %u", plan->max_clients,
			       LAYOUT_MAX_CLIENTS);
	if (plan->groups > LAYOUT_MAX_GROUPS)
		return err_set(-EINVAL, "groups %u: at most %u", plan->groups, LAYOUT_MAX_GROUPS);
	if (plan->shards && !shards_valid(plan->shards))
		return err_set(-EINVAL, "shards %u: must be a power of two from %u to %u",
			       plan->shards, LAYOUT_MIN_SHARDS, LAYOUT_MAX_SHARDS);
	if (plan->max_value_bytes > LAYOUT_MAX_VALUE_BYTES)
		return err_set(-EINVAL, "max_value %llu: at most 2 GiB",
			       (unsigned long long)plan->max_value_bytes);
	if (plan->deadline_ns == 0 || plan->epoch_ns <= plan->deadline_ns ||
	    plan->grace_ns < 2 * plan->epoch_ns)
		return err_set(-EINVAL,
			       "time rules: grace >= 2 x epoch > 2 x deadline > 0 does not hold");
	return 0;
}

static void superblock_fill(struct layout_superblock *sb, const struct layout_plan *plan)
{
	memset(sb, 0, sizeof(*sb));
	sb->layout_version = LAYOUT_VERSION;
	sb->atomics = plan->atomics;
	memcpy(sb->pool_id, plan->pool_id, sizeof(sb->pool_id));
	sb->incarnation = plan->incarnation;
	sb->boot_id = plan->boot_id;
	sb->pool_bytes = plan->pool_bytes;
	sb->hash_seed = plan->hash_seed;
	sb->max_clients = plan->max_clients;
	sb->groups = plan->groups ? plan->groups : LAYOUT_MAX_GROUPS;
	sb->classes = LAYOUT_CLASSES;
	sb->deadline_ns = plan->deadline_ns;
	sb->epoch_ns = plan->epoch_ns;
	sb->grace_ns = plan->grace_ns;
	sb->max_value_bytes = plan->max_value_bytes;
	sb->created_ms = plan->created_ms;
	sb->mode = plan->mode;
	sb->reference_sample = plan->reference_sample;
	sb->shards = plan->shards;
	if (plan->shards)
		sb->map_bytes = plan->map_bytes ? plan->map_bytes : 2 * LAYOUT_MAP_BYTES;
	sb->epoch = 1;
}

static void subtable_format(uint8_t *page, uint32_t groups, uint32_t suffix, uint32_t depth)
{
	struct layout_bucket *buckets = (struct layout_bucket *)page;
	uint32_t i;

	for (i = 0; i < groups * 3; i++)
		buckets[i].header = layout_header_make(suffix, depth, 0, 0);
}

static void index_format(uint8_t *base, const struct layout_superblock *sb)
{
	uint64_t *directory = (uint64_t *)(base + sb->directory_offset);
	uint64_t *page_table = (uint64_t *)(base + sb->page_table_offset);
	uint32_t depth = (uint32_t)sb->global_depth;
	uint32_t i;

	for (i = 0; i < 1u << depth; i++) {
		subtable_format(base + sb->pages_offset + (uint64_t)i * LAYOUT_PAGE_BYTES,
				sb->groups, i, depth);
		directory[i] = layout_directory_make(i, depth, LAYOUT_DIRECTORY_VALID);
		page_table[i] = layout_page_make(LAYOUT_PAGE_INDEX, 0, 0, 1);
	}
}

/* A small index: it grows while clients work, and faster when it has several subtables already. */
static uint32_t default_depth(uint32_t npages)
{
	return npages < INDEX_SHARE ? 0 : log2_up(npages / INDEX_SHARE + 1) - 1;
}

int layout_format(void *base, const struct layout_plan *plan)
{
	struct layout_superblock *sb = base;
	uint64_t keys = plan->keys;
	uint32_t npages, depth;
	int ret = plan_check(plan);

	if (ret < 0)
		return ret;
	superblock_fill(sb, plan);
	npages = (uint32_t)(plan->pool_bytes / LAYOUT_PAGE_BYTES);
	depth = keys ? layout_index_depth(keys, sb->groups) : default_depth(npages);
	sb->max_depth = depth_limit(plan->pool_bytes);
	if (depth > sb->max_depth || 1ull << depth > npages / 2)
		return err_set(
			-EINVAL,
			"keys %llu: their index takes more than half of a pool of %llu bytes; "
			"enlarge the pool (size) or expect fewer keys (keys)",
			(unsigned long long)keys, (unsigned long long)plan->pool_bytes);
	sb->global_depth = depth;
	npages = fit_parts(sb, plan->pool_bytes);
	if (npages < (1u << depth) + 1)
		return err_set(-EINVAL,
			       "pool size %llu: too small for its tables (%u clients); enlarge it "
			       "or lower max_clients",
			       (unsigned long long)plan->pool_bytes, plan->max_clients);
	index_format(base, sb);
	sb->page_cursor = 1u << depth;
	sb->magic = LAYOUT_MAGIC;
	return 0;
}

/* ---- believing a pool ------------------------------------------------------------------------ */

static bool numbers_valid(const struct layout_superblock *sb)
{
	return sb->max_clients >= 1 && sb->max_clients <= LAYOUT_MAX_CLIENTS && sb->npages >= 1 &&
	       sb->npages <= LAYOUT_MAX_POOL_BYTES / LAYOUT_PAGE_BYTES && sb->ring_entries >= 1 &&
	       sb->ring_entries <= 1u << 20 && (sb->ring_entries & (sb->ring_entries - 1)) == 0 &&
	       sb->max_depth <= LAYOUT_MAX_DEPTH && sb->global_depth <= sb->max_depth &&
	       sb->groups >= 1 && sb->groups <= LAYOUT_MAX_GROUPS &&
	       sb->classes == LAYOUT_CLASSES && sb->atomics <= LAYOUT_ATOMICS_NIC &&
	       sb->mode <= LAYOUT_MODE_CACHE && sb->max_value_bytes <= LAYOUT_MAX_VALUE_BYTES &&
	       (sb->shards == 0 || shards_valid(sb->shards));
}

static bool times_valid(const struct layout_superblock *sb)
{
	const uint64_t hour = 3600ull * 1000000000ull;

	return sb->deadline_ns > 0 && sb->epoch_ns > sb->deadline_ns && sb->epoch_ns <= hour &&
	       sb->grace_ns >= 2 * sb->epoch_ns && sb->grace_ns <= hour;
}

/*
 * Does the part at `offset` begin at or behind *end, aligned, and end within the pool? Moves *end
 * behind it.
 */
static bool part_valid(uint64_t offset, uint64_t bytes, uint64_t align, uint64_t pool_bytes,
		       uint64_t *end)
{
	if (offset < *end || offset % align || offset > pool_bytes || bytes > pool_bytes - offset)
		return false;
	*end = offset + bytes;
	return true;
}

/* A pool of a cluster has both parts, any other neither. */
static bool shard_parts_valid(const struct layout_superblock *sb, uint64_t pool_bytes,
			      uint64_t *end)
{
	if (sb->shards == 0)
		return sb->shard_words_offset == 0 && sb->map_offset == 0 && sb->map_bytes == 0;
	return sb->map_bytes > 0 && sb->map_bytes % 128 == 0 &&
	       part_valid(sb->shard_words_offset, 8ull * sb->shards, 64, pool_bytes, end) &&
	       part_valid(sb->map_offset, sb->map_bytes, 64, pool_bytes, end);
}

static bool parts_valid(const struct layout_superblock *sb, uint64_t pool_bytes)
{
	uint64_t end = LAYOUT_SUPERBLOCK_BYTES;
	uint64_t rings = (uint64_t)LAYOUT_CLASSES * (LAYOUT_RING_ENTRIES + 8ull * sb->ring_entries);
	uint64_t npages = sb->npages;

	return part_valid(sb->client_table_offset, (uint64_t)sb->max_clients * LAYOUT_CLIENT_BYTES,
			  64, pool_bytes, &end) &&
	       part_valid(sb->page_table_offset, 8 * npages, 64, pool_bytes, &end) &&
	       part_valid(sb->ready_rings_offset, rings, 64, pool_bytes, &end) &&
	       part_valid(sb->directory_offset, 8ull << sb->max_depth, 64, pool_bytes, &end) &&
	       part_valid(sb->free_map_offset, npages * LAYOUT_UNITS_PER_PAGE, 64, pool_bytes,
			  &end) &&
	       part_valid(sb->reference_map_offset,
			  npages * (LAYOUT_PAGE_BYTES / LAYOUT_REFERENCE_UNIT), 64, pool_bytes,
			  &end) &&
	       shard_parts_valid(sb, pool_bytes, &end) &&
	       part_valid(sb->pages_offset, npages * LAYOUT_PAGE_BYTES, LAYOUT_PAGE_BYTES,
			  pool_bytes, &end);
}

static void geometry_fill(const struct layout_superblock *sb, struct layout_geometry *g)
{
	*g = (struct layout_geometry){
		.pool_bytes = sb->pool_bytes,
		.hash_seed = sb->hash_seed,
		.incarnation = sb->incarnation,
		.boot_id = sb->boot_id,
		.client_table_offset = sb->client_table_offset,
		.page_table_offset = sb->page_table_offset,
		.ready_rings_offset = sb->ready_rings_offset,
		.directory_offset = sb->directory_offset,
		.free_map_offset = sb->free_map_offset,
		.reference_map_offset = sb->reference_map_offset,
		.pages_offset = sb->pages_offset,
		.max_clients = sb->max_clients,
		.npages = sb->npages,
		.ring_entries = sb->ring_entries,
		.max_depth = sb->max_depth,
		.groups = sb->groups,
		.atomics = sb->atomics,
		.mode = sb->mode,
		.reference_sample = sb->reference_sample,
		.deadline_ns = sb->deadline_ns,
		.epoch_ns = sb->epoch_ns,
		.grace_ns = sb->grace_ns,
		.max_value_bytes = sb->max_value_bytes,
		.shard_words_offset = sb->shard_words_offset,
		.map_offset = sb->map_offset,
		.shards = sb->shards,
		.map_bytes = sb->map_bytes,
	};
}

int layout_superblock_check(const struct layout_superblock *sb, uint64_t pool_bytes,
			    struct layout_geometry *ret_geometry)
{
	if (sb->magic != LAYOUT_MAGIC)
		return err_set(-TARN_ECORRUPT, "not a tarn pool: magic is %016llx",
			       (unsigned long long)sb->magic);
	if (sb->layout_version != LAYOUT_VERSION)
		return err_set(-TARN_EVERSION,
			       "pool has layout version %u, this build knows %u: use the same "
			       "release on both sides",
			       sb->layout_version, LAYOUT_VERSION);
	if (sb->pool_bytes != pool_bytes || !numbers_valid(sb) || !times_valid(sb) ||
	    !parts_valid(sb, pool_bytes))
		return err_set(-TARN_ECORRUPT,
			       "the pool's superblock contradicts itself (size %llu, expected "
			       "%llu): restart tarnd "
			       "with a fresh pool",
			       (unsigned long long)sb->pool_bytes, (unsigned long long)pool_bytes);
	geometry_fill(sb, ret_geometry);
	return 0;
}
