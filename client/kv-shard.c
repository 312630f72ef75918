/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-shard.c - a pool of a cluster: is the key's shard this member's, as the client's map says?
 *
 * docs/protocol.md section 11, "what a client asks of the word". A committed slot needs no look; a miss, and a
 * frozen slot, do, behind the access that they judge; and an insert, behind its pending slot. What does not
 * fit ends with -TARN_EMOVED, or is looked at again when the hand-over alone has to be waited for. Runs on
 * the session's owner. Next: kv.c; common/shard.h; session.h, `since`.
 */
#include <string.h>

#include "err.h"
#include "kv-internal.h"
#include "mutation.h"
#include "shard.h"

void kv_shard_begin(struct kv_op *op)
{
	op->since = found_since(op->session, op->hash, &op->shard);
	op->shard_seen = op->shard_unfit = false;
}

int kv_shard_elsewhere(struct kv_op *op)
{
	return kv_end(op, err_set(-TARN_EMOVED,
				  "shard %u is not this member's, by the map that the client has",
				  op->shard));
}

static bool readable(const struct kv_op *op)
{
	uint32_t state = shard_word_state(op->shard_word);

	if (MUTATED(MUTATION_WORDEPOCH))
		return state == SHARD_OPEN || state == SHARD_CLOSING;
	return shard_word_readable(op->shard_word, op->since);
}

static bool writable(const struct kv_op *op)
{
	if (MUTATED(MUTATION_WORDEPOCH))
		return shard_word_state(op->shard_word) == SHARD_OPEN;
	return shard_word_writable(op->shard_word, op->since);
}

/* With FAA an add may come behind the freeze, and behind the copy: what it makes of the counter is not to be seen. */
static bool counts_late(const struct kv_op *op)
{
	return op->kind == KV_GET && shard_word_state(op->shard_word) == SHARD_CLOSING &&
	       op->found->kind == LAYOUT_KIND_COUNTER &&
	       op->session->ep->features & FABRIC_COUNTER_FAA;
}

int kv_shard_look(struct kv_op *op, bool found)
{
	op->shard_found = found;
	op->state = KV_SHARD;
	return KV_GO_ON;
}

/* What was read is judged by the word as it is behind that: so no clock is looked at again. */
int kv_shard(struct kv_op *op)
{
	struct fabric_request r = fabric_read(
		layout_shard_offset(&op->session->geometry, op->shard), &op->shard_word, 8);

	if (!op->posted)
		return kv_post(op, &r, 1);
	op->posted = false;
	if (!readable(op) && !(op->shard_found && MUTATED(MUTATION_FROZWORD)))
		return kv_shard_unfit(op);
	if (op->shard_found && counts_late(op) && !MUTATED(MUTATION_COUNTREAD))
		return kv_shard_unfit(op);
	op->shard_seen = true;
	return op->shard_found ? kv_found(op) : kv_absent(op);
}

unsigned kv_shard_add(struct kv_op *op, struct fabric_request *requests, unsigned n)
{
	struct fabric_request r = fabric_read(
		layout_shard_offset(&op->session->geometry, op->shard), &op->shard_word, 8);

	if (MUTATED(MUTATION_INSEARLY)) {
		memmove(requests + 1, requests, n * sizeof(*requests));
		requests[0] = r;
	} else {
		requests[n] = r;
	}
	return n + 1;
}

bool kv_shard_writable(struct kv_op *op)
{
	op->shard_unfit = !writable(op) && !MUTATED(MUTATION_INSWORD);
	return !op->shard_unfit;
}

/*
 * Is it to be waited for? "Closing" under our epoch: until it is handed over, or given up. "Incoming" of an
 * older epoch than ours: the member owns it, and has not heard of that.
 */
static bool passes(const struct kv_op *op)
{
	return op->shard_word == shard_word_make(SHARD_CLOSING, op->since) ||
	       shard_word_comes(op->shard_word, op->since);
}

static const char *state_name(uint64_t word)
{
	switch (shard_word_state(word)) {
	case SHARD_GONE:
		return "gone";
	case SHARD_OPEN:
		return "open";
	case SHARD_CLOSING:
		return "closing";
	case SHARD_INCOMING:
		return "incoming";
	default:
		return "damaged";
	}
}

int kv_shard_unfit(struct kv_op *op)
{
	op->shard_unfit = false;
	if (passes(op)) {
		op->why = "; the key's shard is being handed over to another member";
		return kv_restart_late(op);
	}
	return kv_end(op, err_set(-TARN_EMOVED,
				  "shard %u is \"%s\" since epoch %llu at this member, and its "
				  "own since %llu by the map that the client has",
				  op->shard, state_name(op->shard_word),
				  (unsigned long long)shard_word_epoch(op->shard_word),
				  (unsigned long long)op->since));
}

int kv_shard_wait(struct kv_op *op)
{
	if (!op->cluster || writable(op))
		return kv_restart(op, true);
	return kv_shard_unfit(op);
}

/* ---- a mover's delete ------------------------------------------------------------------------ */

/* It has placed the block, and nobody else takes it away while a slot names it. */
int kv_shard_key(struct kv_op *op)
{
	uint64_t offset = layout_slot_offset(op->only_word);
	uint32_t bytes = layout_class_bytes(layout_slot_class(op->only_word));
	struct fabric_request r = fabric_read(offset, op->image, bytes);
	const struct layout_block *block = (const struct layout_block *)op->image;

	if (!op->posted)
		return kv_post(op, &r, 1);
	op->posted = false;
	if (!layout_block_valid(block, bytes, offset) ||
	    (block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(op->only_word))
		return kv_end(op, -TARN_ESTAMP);
	kv_set_key(op, layout_block_key(block), block->key_length);
	if (op->hash.high != op->only_hash)
		return kv_end(op, -TARN_ESTAMP);
	op->state = KV_BEGIN;
	return KV_GO_ON;
}
