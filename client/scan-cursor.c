/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan-cursor.c - where a walk over the index is, such that the index may grow under it
 *
 * The order is that of the hash's lowest bits, read backwards (Redis' SCAN has the same): when a
 * subtable splits, both halves lie in what is left of it, whatever part of it has been walked. No
 * pool is touched here. Runs on the session's owner. Next: scan.c.
 */
#include "scan-cursor.h"

#include <errno.h>
#include <string.h>

#include "err.h"

void scan_cursor_begin(struct scan_cursor *cursor)
{
	*cursor = (struct scan_cursor){.count = 1};
}

void scan_cursor_narrow(struct scan_cursor *cursor, uint32_t depth)
{
	struct scan_range *range = scan_cursor_range(cursor);

	while (range->depth < depth) {
		range->depth++;
		range[1] = range[0];
		/* beneath the one under way: the half whose new bit is 1 */
		range[0].suffix |= 1u << (range->depth - 1);
		range++;
		cursor->count++;
	}
}

void scan_cursor_pop(struct scan_cursor *cursor)
{
	cursor->count--;
}

uint32_t scan_cursor_progress(const struct scan_cursor *cursor, uint32_t groups)
{
	const uint64_t all = 1000ull << LAYOUT_MAX_DEPTH;
	uint64_t left = 0, places = (uint64_t)groups * SCAN_GROUP_PLACES;
	uint32_t i;

	for (i = 0; i < cursor->count; i++) {
		const struct scan_range *range = &cursor->ranges[i];
		uint64_t whole = all >> range->depth;

		left += whole - whole / places * range->place;
	}
	return left >= all ? 0 : (uint32_t)((all - left) >> LAYOUT_MAX_DEPTH);
}

/* ---- as bytes -------------------------------------------------------------------------------- */

#define POSITION_MAGIC 0x31534f50u /* "POS1" */

struct position_head {
	uint32_t magic;
	uint32_t groups;
	uint64_t incarnation;
	uint32_t count;
	uint32_t reserved;
};
static_assert(sizeof(struct position_head) == 24, "position");

struct position_range {
	uint32_t suffix, place;
	uint8_t depth, has_come;
	uint8_t reserved[6];
	uint64_t came_low, came_high;
};
static_assert(sizeof(struct position_range) == 32, "position");
static_assert(sizeof(struct position_head) +
			      (LAYOUT_MAX_DEPTH + 2) * sizeof(struct position_range) <=
		      SCAN_POSITION_BYTES,
	      "position");

size_t scan_cursor_save(const struct scan_cursor *cursor, uint64_t incarnation, uint32_t groups,
			uint8_t ret_bytes[SCAN_POSITION_BYTES])
{
	struct position_head head = {.magic = POSITION_MAGIC,
				     .groups = groups,
				     .incarnation = incarnation,
				     .count = cursor->count};
	size_t n = sizeof(head);
	uint32_t i;

	memcpy(ret_bytes, &head, sizeof(head));
	for (i = 0; i < cursor->count; i++) {
		const struct scan_range *range = &cursor->ranges[i];
		struct position_range packed = {
			.suffix = range->suffix,
			.place = range->place,
			.depth = (uint8_t)range->depth,
			.has_come = range->has_come,
			.came_low = range->has_come ? range->came.low : 0,
			.came_high = range->has_come ? range->came.high : 0,
		};

		memcpy(ret_bytes + n, &packed, sizeof(packed));
		n += sizeof(packed);
	}
	return n;
}

/*
 * What narrow() and pop() can leave: in each range but the last the highest bit is 1 and the last
 * range's is 0, and below that they agree. So no two overlap, and each depth comes once.
 */
static bool range_fits(const struct scan_range *range, const struct scan_range *last)
{
	uint32_t bit = range->depth ? 1u << (range->depth - 1) : 0;

	return bit && range->depth <= last->depth && (range->suffix & bit) &&
	       !(last->suffix & bit) && !((range->suffix ^ last->suffix) & (bit - 1)) &&
	       range->suffix < 2 * bit;
}

static bool cursor_valid(const struct scan_cursor *cursor, uint32_t groups)
{
	const struct scan_range *last = &cursor->ranges[cursor->count - 1];
	uint32_t i;

	for (i = 0; i < cursor->count; i++) {
		const struct scan_range *range = &cursor->ranges[i];

		if (range->depth > LAYOUT_MAX_DEPTH || range->place > groups * SCAN_GROUP_PLACES)
			return false;
	}
	for (i = 0; i + 1 < cursor->count; i++)
		if (!range_fits(&cursor->ranges[i], last) ||
		    (i && cursor->ranges[i].depth <= cursor->ranges[i - 1].depth))
			return false;
	return last->suffix >> last->depth == 0;
}

int scan_cursor_load(struct scan_cursor *cursor, const void *bytes, size_t n,
		     uint64_t *ret_incarnation, uint32_t *ret_groups)
{
	struct scan_cursor loaded = {0};
	struct position_head head;
	uint32_t i;

	if (n < sizeof(head) || n > SCAN_POSITION_BYTES)
		return err_set(-EINVAL, "a walk's position has %zu bytes: this is none", n);
	memcpy(&head, bytes, sizeof(head));
	if (head.magic != POSITION_MAGIC || head.count > LAYOUT_MAX_DEPTH + 1 ||
	    n != sizeof(head) + head.count * sizeof(struct position_range) ||
	    head.groups > LAYOUT_MAX_GROUPS || (head.count && !head.groups))
		return err_set(-EINVAL, "these %zu bytes are no walk's position", n);
	loaded.count = head.count;
	for (i = 0; i < head.count; i++) {
		struct position_range packed;

		memcpy(&packed, (const uint8_t *)bytes + sizeof(head) + i * sizeof(packed),
		       sizeof(packed));
		loaded.ranges[i] = (struct scan_range){
			.suffix = packed.suffix,
			.depth = packed.depth,
			.place = packed.place,
			.has_come = packed.has_come != 0,
			.came = {packed.came_low, packed.came_high},
		};
	}
	if (head.count && !cursor_valid(&loaded, head.groups))
		return err_set(-EINVAL, "a walk's position is damaged");
	*cursor = loaded;
	*ret_incarnation = head.incarnation;
	*ret_groups = head.groups;
	return 0;
}
