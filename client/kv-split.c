/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-split.c - finding a key, and a place for it, while its subtable splits
 *
 * A header's flag leads here. The old subtable is read first and the new one behind it: what the
 * daemon moves meanwhile is seen in one of them, since it is in the new one before it leaves the old
 * one. A new key goes into the new one, into a place that nothing will want to move to. Reads never
 * wait for the daemon. Next: docs/protocol.md section 8; daemon/split.c for the other side.
 */
#include "directory.h"
#include "err.h"
#include "kv-internal.h"

int kv_split(struct kv_op *op, uint64_t header)
{
	uint32_t depth = layout_header_depth(header);

	if (layout_header_split(header) == LAYOUT_SPLIT_NEW) {
		/* a new subtable has a depth, and the bit that makes it the new one */
		if (depth == 0 || !(layout_hash_suffix(op->hash) >> ((depth - 1) & 31) & 1))
			return kv_contradiction(op);
		depth--;
	}
	if (depth >= op->session->geometry.max_depth)
		return kv_contradiction(op);
	op->split = true;
	op->split_depth = depth;
	op->old_flagged = false;
	op->state = KV_SPLIT_ENTRIES;
	return KV_GO_ON;
}

/* ---- where the two are ----------------------------------------------------------------------- */

static uint64_t where(const struct kv_op *op, uint32_t suffix)
{
	const struct directory *d = op->session->directory;

	return layout_directory_offset(&op->session->geometry,
				       layout_suffix(suffix, directory_depth(d)));
}

/* Has all moved that was in the bucket with this header? */
static bool bucket_done(const struct kv_op *op, uint64_t header)
{
	return layout_header_depth(header) > op->split_depth;
}

/* What the old subtable's headers say: -1: not of this split; 1: the split has reached all; 0: not yet. */
static int old_headers(const struct kv_op *op)
{
	uint32_t suffix = layout_hash_suffix(op->hash) & ~(1u << op->split_depth);
	unsigned i, reached = 0;

	for (i = 0; i < 4; i++) {
		uint64_t header = op->old_pairs[i / 2][i % 2].header;
		uint32_t depth = layout_header_depth(header);

		if (layout_header_suffix(header) != layout_suffix(suffix, depth) ||
		    depth < op->split_depth)
			return -1;
		reached +=
			bucket_done(op, header) || layout_header_split(header) == LAYOUT_SPLIT_OLD;
	}
	return reached == 4;
}

/* May the old subtable's buckets be those that were read? Their flags were, then. */
static bool old_was_read(struct kv_op *op)
{
	unsigned i;

	if (op->old_offsets[0] != op->pair_offsets[0])
		return false;
	for (i = 0; i < 4; i++)
		op->old_pairs[i / 2][i % 2] = op->pairs[i / 2][i % 2];
	op->old_flagged = old_headers(op) > 0;
	return true;
}

/*
 * Both entries are read afresh: the new one was published before the first flag. What is known of
 * the directory stays: until the split is over the way by the old subtable is the shorter one.
 */
int kv_split_entries(struct kv_op *op)
{
	struct directory *d = op->session->directory;
	uint32_t suffix = layout_hash_suffix(op->hash);
	struct fabric_request requests[] = {
		fabric_read(LAYOUT_GLOBAL_DEPTH_OFFSET, &op->depth, 8),
		fabric_read(where(op, suffix & ~(1u << op->split_depth)), &op->entry, 8),
		fabric_read(where(op, suffix), &op->new_entry, 8),
	};
	uint64_t old, new;
	int ret;

	if (!op->posted)
		return kv_post(op, requests, 3);
	op->posted = false;
	ret = directory_learn_depth(d, op->depth);
	if (ret < 0)
		return kv_end(op, ret);
	/* another depth: read again, with all that led here */
	if (ret > 0)
		return kv_restart(op, false);
	old = directory_subtable(d, op->entry);
	new = directory_subtable(d, op->new_entry);
	if (!old || !new || old == new)
		return kv_contradiction(op);
	found_pair_offsets(op->session, op->hash, old, op->old_offsets);
	/* who does not insert need not know which places are free */
	op->state = old_was_read(op) && (op->kind == KV_GET || op->kind == KV_DELETE)
			    ? KV_SPLIT_NEW
			    : KV_SPLIT_OLD;
	found_pair_offsets(op->session, op->hash, new, op->pair_offsets);
	return KV_GO_ON;
}

/* ---- the old subtable ------------------------------------------------------------------------ */

/*
 * For an insert the flags have to be older than the slots that are looked at: an inserter who was
 * there before the flags has its pending slot then, and none comes after. So once more, at most.
 */
int kv_split_old(struct kv_op *op)
{
	struct fabric_request requests[] = {
		fabric_read(op->old_offsets[0], op->old_pairs[0], LAYOUT_PAIR_BYTES),
		fabric_read(op->old_offsets[1], op->old_pairs[1], LAYOUT_PAIR_BYTES),
	};
	int reached;

	if (!op->posted)
		return kv_post(op, requests, 2);
	op->posted = false;
	reached = old_headers(op);
	if (reached < 0)
		return kv_contradiction(op);
	if (reached && !op->old_flagged && (op->kind == KV_PUT || op->kind == KV_ADD)) {
		op->old_flagged = true;
		return KV_GO_ON;
	}
	op->state = KV_SPLIT_NEW;
	return KV_GO_ON;
}

bool kv_split_free(const struct kv_op *op, unsigned pair, unsigned bucket, unsigned slot)
{
	const struct layout_bucket *old = &op->old_pairs[pair][bucket];

	if (!op->split || bucket_done(op, old->header))
		return true;
	return op->old_flagged &&
	       (old->slots[slot] == 0 || layout_slot_state(old->slots[slot]) == LAYOUT_SLOT_MOVED);
}

/* ---- the new subtable ------------------------------------------------------------------------ */

int kv_split_new(struct kv_op *op)
{
	struct fabric_request requests[] = {
		fabric_read(op->pair_offsets[0], op->pairs[0], LAYOUT_PAIR_BYTES),
		fabric_read(op->pair_offsets[1], op->pairs[1], LAYOUT_PAIR_BYTES),
	};
	uint32_t suffix = layout_hash_suffix(op->hash);
	unsigned i;

	if (!op->posted)
		return kv_post(op, requests, 2);
	op->posted = false;
	for (i = 0; i < 4; i++) {
		uint64_t header = op->pairs[i / 2][i % 2].header;

		/* it splits itself by now: this split is over */
		if (layout_header_suffix(header) !=
			    layout_suffix(suffix, layout_header_depth(header)) ||
		    layout_header_split(header) == LAYOUT_SPLIT_OLD)
			return kv_contradiction(op);
	}
	op->contradictions = 0;
	kv_split_collect(op);
	return kv_collected(op);
}
