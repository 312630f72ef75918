/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group-internal.h - what a group and its items are, for group.c
 */
#ifndef TARN_GROUP_INTERNAL_H
#define TARN_GROUP_INTERNAL_H

#include "fabric.h"
#include "group.h"
#include "layout.h"
#include "session.h"

#define SCRATCH_BYTES (64u << 10)
#define BLOCK_MAX     4096u /* a larger one is left alone */
#define CANDIDATES    4u    /* of one key; with more it is left alone */
#define WAVE          4u /* near: so many are worked on while the reads of the others are on their way */
#define WAVES         (GROUP_OPS / WAVE)
#define NEAR_READS    (2 * GROUP_OPS + 1)
#define FEW           4u /* for so few a miss more beside the first is cheaper than one behind it */

static_assert(2 * GROUP_OPS <= FABRIC_POST_MAX, "one post");

struct candidate {
	uint64_t slot, word;
};

struct item {
	struct group_get get;
	/* PAIRS: those from `read` to `wanted` are on their way, BLOCK: that of candidate `at` */
	enum { ITEM_CACHED, ITEM_PAIRS, ITEM_BLOCK, ITEM_ENDED, ITEM_ALONE } state;
	uint8_t read, wanted;
	uint8_t count, at;
	bool alone;       /* something was seen that is not simple */
	uint32_t scratch; /* where its block is read to */
	struct layout_hash hash;
	uint64_t fp_bits; /* as they stand in a slot's word */
	uint64_t seen;    /* of a cached location: what the slot says now */
	uint64_t offsets[2];
	struct candidate candidates[CANDIDATES];
	struct layout_bucket pairs[2][2];
};

static inline bool is_active(const struct item *item)
{
	return item->state < ITEM_ENDED;
}

/* Those that have not ended, nor are left alone. */
struct active {
	unsigned count;
	uint8_t items[GROUP_OPS];
};

struct group {
	struct task task;
	struct tarn_session *session;
	const uint8_t *near; /* of the endpoint, while the group runs */
	/* the second bucket pair is read only for a key that is not found by the first one */
	bool lazy;
	bool posted, begun;
	struct cache *cache; /* or NULL: it is not used */
	bool cached;         /* it is asked first */
	unsigned count, left;
	bool few;                /* of them, as far as is known at their beginning */
	unsigned waves, located; /* near: the first `located` items are in so many waves */
	struct active active[WAVES];
	uint32_t scratch_used;
	uint64_t first_read_ns, now_ns, seen_epoch, epoch;
	/* near: what the next step reads */
	unsigned reads;
	struct near_read {
		const uint8_t *from;
		uint32_t length;
	} near_reads[NEAR_READS];
	struct layout_bucket near_pair[2];
	struct item items[GROUP_OPS];
	uint8_t *scratch;
};

#endif
