/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * split-internal.h - what split.c and split-many.c share
 */
#ifndef TARN_DAEMON_SPLIT_INTERNAL_H
#define TARN_DAEMON_SPLIT_INTERNAL_H

#include "self.h"
#include "split.h"

enum split_side { SPLIT_SIDE_OLD, SPLIT_SIDE_NEW, SPLIT_SIDE_DAMAGED };

/* ---- split.c ---- */

uint64_t split_slot_offset(const struct split *split, uint32_t page, uint64_t bucket,
			   uint32_t slot);
bool split_bucket_done(const struct split *split, uint64_t bucket);
/* The CAS that says in a bucket's header, in one of the two pages, that a split is under way. False: it says so. */
bool split_flag_change(const struct split *split, uint32_t page, uint64_t bucket,
		       struct self_change *ret_change);
enum split_side split_side_of(struct split *split, uint64_t word, uint64_t bucket);
/* The shard of the key that split_side_of() was asked for last is this member's; of a pool without a cluster every one. */
bool split_thaws(const struct split *split);
uint64_t split_find_copy(const struct split *split, uint64_t bucket, uint64_t frozen);
void split_hint_blocks(struct split *split, uint64_t bucket);

/* ---- split-many.c ---- */

/*
 * Both do for buckets from the split's cursor on, of `buckets` in all, many CAS at a time, and leave to
 * split.c what needs a second look. They return for how many buckets: of flags, that are all done; of moves, that
 * split.c goes over next. They may end with pool->self_lost.
 */
unsigned split_flag_many(struct split *split, uint32_t buckets);
unsigned split_move_many(struct split *split, uint32_t buckets);

#endif
