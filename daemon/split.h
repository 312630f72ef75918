/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * split.h - one split of a subtable, in bounded steps: docs/protocol.md section 8
 *
 * Used by grow.c alone, which decides what is split and when. Main thread. Every step may be
 * repeated: what has been done already is seen in the pool's memory.
 */
#ifndef TARN_DAEMON_SPLIT_H
#define TARN_DAEMON_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

struct pool;

enum split_state {
	SPLIT_NONE,      /* no split is under way */
	SPLIT_PAGE,      /* looks for a free page for the new subtable */
	SPLIT_NO_PAGE,   /* there was none: given up */
	SPLIT_FORMAT,    /* the page is ours, and gets headers */
	SPLIT_DOUBLE,    /* the directory's lower half is copied to its upper half */
	SPLIT_PUBLISH,   /* the new subtable gets its directory entries, as migrating */
	SPLIT_FLAG,      /* the headers say that a split is under way */
	SPLIT_MOVE,      /* slots move; a bucket's headers get the new depth, and "filled" */
	SPLIT_DIRECTORY, /* so do the directory entries */
	SPLIT_DONE
};

struct split {
	struct pool *pool;
	enum split_state state;
	uint32_t suffix, depth; /* of the old subtable, before the split */
	uint32_t old_page, new_page;
	uint32_t global_depth; /* of the directory; what stands in the pool is only written */
	uint64_t cursor;       /* how far the state has got */
	uint64_t ahead;        /* up to here split-many.c has been */
	uint32_t page_cursor;  /* where the search for a free page goes on, downward */
	bool stuck;            /* a slot has found no place in the new subtable: once more */
	struct layout_hash hash; /* of the key that was looked at last */
	uint64_t doublings, moved, retries, damaged;
	/* what is read of a block: its header and key */
	uint64_t block[(LAYOUT_BLOCK_HEADER + LAYOUT_MAX_KEY_BYTES + 8) / 8];
};

/* Takes the global depth from the pool. 0, or -TARN_ECORRUPT with a text. */
int split_init(struct split *split, struct pool *pool);

/*
 * Does this directory entry name a subtable? Its page is an index page and its first bucket
 * has this suffix. `index`: where in the directory it stands.
 */
bool split_entry_valid(const struct split *split, uint64_t index, uint64_t entry);

/* A split of the subtable of a valid directory entry begins; no other is under way. */
void split_begin(struct split *split, uint64_t index, uint64_t entry);
/*
 * Goes on with the split whose new subtable has this entry, which is "migrating", at `index`.
 * 0, or -TARN_ECORRUPT with a text: no such split can be.
 */
int split_resume(struct split *split, uint64_t index, uint64_t entry);

/*
 * Works until the budget is used up, the state is DONE or NO_PAGE, or it can not go on now. True:
 * it would go on at once.
 */
bool split_step(struct split *split, uint64_t budget_ns);

static inline bool split_under_way(const struct split *split)
{
	return split->state != SPLIT_NONE && split->state != SPLIT_NO_PAGE &&
	       split->state != SPLIT_DONE;
}

#endif
