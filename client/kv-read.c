/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-read.c - a get once its block was found, by the index or by the location cache
 *
 * Large values are read extent by extent straight into the caller's buffer, in windows of one post;
 * the slot word is read again (RENEW) before the time rule T1 runs out. Next: kv.c;
 * docs/protocol.md sections 3 and 4.
 */
#include <string.h>

#include "cache.h"
#include "err.h"
#include "kv-internal.h"
#include "mutation.h"
#include "reference.h"

int kv_get_found(struct kv_op *op)
{
	const struct layout_block *block = op->found;

	if (found_expired(op->session, block))
		return kv_end(op, -TARN_ENOTFOUND);
	/* a location that came from the cache is in it: writing it again would dirty the line */
	if (op->state != KV_CACHED_GET && op->session->cache &&
	    block->kind != LAYOUT_KIND_EXTENTS &&
	    layout_slot_state(op->word) == LAYOUT_SLOT_COMMITTED) {
		cache_see(op->session->cache, op->hash, op->slot, op->word);
		cache_add(op->session->cache, op->hash, op->seen_epoch, op->slot, op->word);
	}
	op->item = found_item(op->session, block);
	if (op->session->reference)
		reference_hit(op->session, layout_slot_offset(op->word));
	if (op->exists_only)
		return kv_end(op, 0);
	if (block->value_length > op->buffer_bytes)
		return kv_end(op, -TARN_ETOOSMALL);
	if (block->kind == LAYOUT_KIND_EXTENTS) {
		op->extents_read = 0;
		op->window_bad = false;
		op->state = KV_GET_EXTENTS;
		return KV_GO_ON;
	}
	found_copy(op->session, op->buffer, block);
	return kv_end(op, 0);
}

/* One round trip: a hit if the slot still says what it said when the location was learned. */
int kv_cached_get(struct kv_op *op)
{
	struct tarn_session *s = op->session;
	uint32_t bytes = layout_class_bytes(layout_slot_class(op->word));
	bool late;
	struct fabric_request requests[] = {
		fabric_read(op->slot, &op->seen, 8),
		fabric_read(layout_slot_offset(op->word), op->scratch, bytes),
	};

	if (!op->posted) {
		op->first_read_ns = op->started_ns;
		op->seen_epoch = s->epoch;
		return kv_post(op, requests, 2);
	}
	op->posted = false;
	op->found = (const struct layout_block *)op->scratch;
	late = kv_too_old(op);
	if (!late && op->seen == op->word && kv_block_match(op, op->found, op->word) > 0) {
		s->stats.cache_hits++;
		return kv_get_found(op);
	}
	s->stats.cache_misses++;
	/* that we were late does not speak against the location */
	if (!late)
		cache_fail(s->cache, op->hash);
	return kv_restart(op, false);
}

/* ---- large values ---------------------------------------------------------------------------- */

static uint64_t extent_length(const struct kv_op *op, uint64_t i)
{
	uint64_t begin = i * LAYOUT_PAGE_BYTES, rest = op->item.value_bytes - begin;

	return rest < LAYOUT_PAGE_BYTES ? rest : LAYOUT_PAGE_BYTES;
}

static const struct layout_extent *extents(const struct kv_op *op)
{
	return layout_block_value(op->found);
}

static int renew(struct kv_op *op)
{
	op->state = KV_RENEW;
	return KV_GO_ON;
}

static int post_window(struct kv_op *op)
{
	struct fabric_request requests[KV_WINDOW];
	uint64_t total = layout_extents(op->item.value_bytes), i;
	unsigned n = 0;

	for (i = op->extents_read; i < total && n < KV_WINDOW; i++) {
		uint64_t where = extents(op)[i].where, length = extent_length(op, i);

		if (!layout_block_place_valid(&op->session->geometry, layout_slot_offset(where),
					      layout_slot_class(where)) ||
		    length > layout_class_bytes(layout_slot_class(where))) {
			op->window_bad = true;
			return renew(op);
		}
		requests[n] = fabric_read(layout_slot_offset(where),
					  op->buffer + i * LAYOUT_PAGE_BYTES, (uint32_t)length);
		requests[n].flags = FABRIC_DIRECT;
		buffer_count(op->session, &requests[n++]);
	}
	op->window_end = i;
	return kv_post(op, requests, n);
}

static bool window_valid(const struct kv_op *op)
{
	uint64_t i;

	for (i = op->extents_read; i < op->window_end; i++) {
		const struct layout_extent *e = &extents(op)[i];

		if (layout_extent_checksum(op->buffer + i * LAYOUT_PAGE_BYTES, extent_length(op, i),
					   layout_slot_offset(e->where)) != e->checksum &&
		    !MUTATED(MUTATION_CHECKSUM))
			return false;
	}
	return true;
}

int kv_get_extents(struct kv_op *op)
{
	uint64_t total = layout_extents(op->item.value_bytes);

	if (!op->posted) {
		if (op->extents_read == total)
			return kv_end(op, 0);
		return post_window(op);
	}
	op->posted = false;
	op->now_ns = session_now(op->session);
	op->window_bad = !window_valid(op);
	/*
	 * what comes next must still lie within D of the first READ: half of it is spent at the
	 * most
	 */
	if (op->window_bad ||
	    (session_now(op->session) - op->first_read_ns > op->session->geometry.deadline_ns / 2 &&
	     !MUTATED(MUTATION_DEADLINE)))
		return renew(op);
	op->extents_read = op->window_end;
	return KV_GO_ON;
}

/*
 * The slot word again: unchanged means that all that was read through it is good, and the clock
 * starts again.
 */
int kv_renew(struct kv_op *op)
{
	struct fabric_request r = fabric_read(op->slot, &op->seen, 8);

	if (!op->posted) {
		op->renew_posted_ns = session_now(op->session);
		if (op->renew_posted_ns > op->limit_ns)
			return kv_end(op, err_set(-TARN_ETIMEOUT,
						  "the value (%llu bytes) could not be read within "
						  "the time limit",
						  (unsigned long long)op->item.value_bytes));
		return kv_post(op, &r, 1);
	}
	op->posted = false;
	/* frozen by a split, the block is the same */
	if (layout_slot_with_state(op->seen, LAYOUT_SLOT_COMMITTED) !=
		    layout_slot_with_state(op->word, LAYOUT_SLOT_COMMITTED) ||
	    (layout_slot_state(op->seen) != LAYOUT_SLOT_COMMITTED &&
	     layout_slot_state(op->seen) != LAYOUT_SLOT_FROZEN))
		return kv_restart(op, false);
	if (op->window_bad)
		return kv_bad(op, op->slot, op->word);
	op->first_read_ns = op->renew_posted_ns;
	op->extents_read = op->window_end;
	op->state = KV_GET_EXTENTS;
	return KV_GO_ON;
}
