/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan-cursor.h - inside of libtarn: where a walk over the index is, such that the index may grow
 * under it
 *
 * What is left of a walk is a list of ranges of key hashes, each of them the hashes that end in
 * some bits. A subtable holds one range; when it splits, each half goes on where the whole was,
 * since a split leaves every entry in its group, bucket and place.
 */
#ifndef TARN_SCAN_CURSOR_H
#define TARN_SCAN_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define SCAN_GROUP_PLACES (3u * LAYOUT_BUCKET_SLOTS)

/* Hashes whose lowest `depth` bits are `suffix`. */
struct scan_range {
	uint32_t suffix, depth;
	uint32_t place; /* the next one to look at: slots of a subtable, counted without headers */
	bool has_come;  /* a key of that place has been shown already ... */
	struct layout_hash came; /* ... this one */
};

/* The last range is under way. No range is in another one. */
struct scan_cursor {
	uint32_t count; /* 0: the walk is over */
	struct scan_range ranges[LAYOUT_MAX_DEPTH + 2];
};

/* Everything is left. */
void scan_cursor_begin(struct scan_cursor *cursor);
static inline struct scan_range *scan_cursor_range(struct scan_cursor *cursor)
{
	return &cursor->ranges[cursor->count - 1];
}
/* Narrows the range under way to `depth` bits; the halves that this leaves come later. */
void scan_cursor_narrow(struct scan_cursor *cursor, uint32_t depth);
/* The range under way is done. */
void scan_cursor_pop(struct scan_cursor *cursor);
/* Thousandths that are done. */
uint32_t scan_cursor_progress(const struct scan_cursor *cursor, uint32_t groups);

/* A cursor as bytes, at most SCAN_POSITION_BYTES, for a pool with this geometry. */
#define SCAN_POSITION_BYTES 1024u
size_t scan_cursor_save(const struct scan_cursor *cursor, uint64_t incarnation, uint32_t groups,
			uint8_t ret_bytes[SCAN_POSITION_BYTES]);
/* The way back, from anywhere. 0, or -EINVAL with a text: these bytes are no such cursor. */
int scan_cursor_load(struct scan_cursor *cursor, const void *bytes, size_t n,
		     uint64_t *ret_incarnation, uint32_t *ret_groups);

#endif
