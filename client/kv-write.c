/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-write.c - the new block of a write, and what happens to a key that is there: update, delete,
 * add
 *
 * A block is written before anything names it and never changed afterwards. Next: kv-insert.c for
 * keys that are not there; docs/protocol.md sections 4 and 5.
 */
#include <string.h>

#include "cache.h"
#include "err.h"
#include "kv-internal.h"
#include "mutation.h"
#include "shard.h"

/* So often it is looked whether another operation has brought a page; then less and less. */
#define CLAIM_LOOK_NS   5000u
#define CLAIM_DOUBLINGS 8u

static const uint8_t in_use = LAYOUT_FREE_IN_USE;

/* ---- the new block --------------------------------------------------------------------------- */

/* Another operation of the session is getting a page of the class. */
static int await_claim(struct kv_op *op)
{
	uint64_t now = session_now(op->session);

	if (now > op->limit_ns &&
	    alloc_claim_result(op->session->alloc, op->claim_class) == -TARN_EPOOLFULL)
		return kv_end(op,
			      err_set(-TARN_EPOOLFULL,
				      "the pool has no page for blocks of %u bytes: delete keys, "
				      "or enlarge the pool (size)",
				      layout_class_bytes(op->claim_class)));
	if (now > op->limit_ns)
		return kv_end(op, err_set(-TARN_ETIMEOUT, "no free block within the time limit"));
	op->task.wake_ns = now + (CLAIM_LOOK_NS << op->claim_looks);
	op->claim_looks += op->claim_looks < CLAIM_DOUBLINGS;
	return KV_WAIT;
}

int kv_claim(struct kv_op *op)
{
	struct alloc *alloc = op->session->alloc;
	int result;

	if (!op->posted) {
		if (op->claim_looks && alloc_has(alloc, op->claim_class)) {
			op->claim_looks = 0;
			op->state = op->after_claim;
			return KV_GO_ON;
		}
		if (!alloc_claim_begin(alloc, op->claim_class))
			return await_claim(op);
		op->claim_looks = 0;
		claim_start(&op->claim, op->session, &op->task, op->claim_class, op->claim_pages);
		op->posted = true;
	}
	if (!claim_step(&op->claim, &result))
		return KV_WAIT;
	alloc_claim_end(alloc, op->claim_class, result);
	op->posted = false;
	if (result < 0)
		return kv_end(op, result);
	if (session_now(op->session) > op->limit_ns)
		return kv_end(op, err_set(-TARN_ETIMEOUT, "no free block within the time limit"));
	op->larger = op->claim.larger;
	op->state = op->after_claim;
	return KV_GO_ON;
}

/* A block of this class, or the way to one. */
static bool take(struct kv_op *op, uint32_t class, struct alloc_block *ret_block)
{
	if (alloc_take(op->session->alloc, class, ret_block))
		return true;
	if (op->larger) {
		op->larger = false;
		if (alloc_take(op->session->alloc, alloc_larger(op->session->alloc, class),
			       ret_block))
			return true;
	}
	op->claim_class = class;
	op->claim_pages = 1;
	op->after_claim = op->state;
	op->state = KV_CLAIM;
	return false;
}

static struct layout_extent *image_extents(struct kv_op *op)
{
	return (struct layout_extent *)(op->image + layout_value_offset(op->key_length));
}

static uint64_t extent_length(const struct kv_op *op, uint64_t i)
{
	uint64_t rest = op->value_bytes - i * LAYOUT_PAGE_BYTES;

	return rest < LAYOUT_PAGE_BYTES ? rest : LAYOUT_PAGE_BYTES;
}

/* Of what is still to be taken, as many whole pages as are claimed at a time. */
static uint32_t extent_pages(const struct kv_op *op)
{
	uint64_t whole = op->value_bytes / LAYOUT_PAGE_BYTES, n = 1;

	if (op->extents_taken < whole)
		n = whole - op->extents_taken;
	return n < CLAIM_PAGES ? (uint32_t)n : CLAIM_PAGES;
}

static void return_extents(struct kv_op *op)
{
	uint64_t i;

	for (i = 0; i < op->extents_taken; i++) {
		uint64_t where = image_extents(op)[i].where;
		struct alloc_block block = {.offset = layout_slot_offset(where),
					    .class = layout_slot_class(where)};

		if (op->named)
			alloc_retire_held(op->session->alloc, &block);
		else
			alloc_return(op->session->alloc, &block);
	}
	op->extents_taken = 0;
}

/* A large value's pieces are written before the first READ of its put. */
int kv_extents(struct kv_op *op)
{
	struct fabric_request requests[2 * KV_WINDOW];
	uint64_t total = layout_extents(op->value_bytes);
	unsigned n = 0;

	op->posted = false;
	if (session_now(op->session) > op->limit_ns)
		return kv_end(
			op,
			err_set(-TARN_ETIMEOUT,
				"the value (%llu bytes) could not be written within the time limit",
				(unsigned long long)op->value_bytes));
	while (op->extents_taken < total && n < 2 * KV_WINDOW) {
		uint64_t i = op->extents_taken, length = extent_length(op, i);
		const uint8_t *data = op->value + i * LAYOUT_PAGE_BYTES;
		struct alloc_block block;

		if (!take(op, layout_class_for(length), &block)) {
			op->claim_pages = extent_pages(op);
			if (n == 0)
				return KV_GO_ON;
			op->state = KV_EXTENTS;
			break;
		}
		image_extents(op)[i].where =
			layout_slot_make(LAYOUT_SLOT_EMPTY, 0, block.class, 0, block.offset);
		image_extents(op)[i].checksum = layout_extent_checksum(data, length, block.offset);
		op->extents_taken++;
		requests[n] = (struct fabric_request){.opcode = FABRIC_WRITE,
						      .flags = FABRIC_DIRECT,
						      .length = (uint32_t)length,
						      .offset = block.offset,
						      .local = (void *)data};
		buffer_count(op->session, &requests[n++]);
		if (block.mark)
			requests[n++] = alloc_map_write(op->session->alloc, block.offset, &in_use);
	}
	if (n)
		return kv_post(op, requests, n);
	op->state = KV_PREPARE;
	return KV_GO_ON;
}

static uint64_t expiry_epoch(const struct kv_op *op)
{
	uint64_t epoch_us = op->session->geometry.epoch_ns / 1000, epochs;

	if (!op->expiry_ms)
		return 0;
	if (epoch_us == 0)
		epoch_us = 1;
	epochs = (op->expiry_ms * 1000 + epoch_us - 1) / epoch_us;
	/* the current epoch is partly over: one more, so that it is never too early */
	return op->session->epoch + epochs + 1;
}

static void build_image(struct kv_op *op, uint32_t kind, uint64_t value_bytes)
{
	struct layout_block *block = (struct layout_block *)op->image;
	uint64_t padded = layout_value_offset(op->key_length);

	*block = (struct layout_block){
		.generation = (uint32_t)op->session->epoch,
		.key_length = (uint16_t)op->key_length,
		.kind = (uint8_t)kind,
		.class = (uint8_t)op->block.class,
		.value_length = value_bytes,
		.user_flags = op->user_flags,
		.owner = op->owner,
		.stamp = op->stamp,
		.expiry = expiry_epoch(op),
	};
	memset(op->image + padded - 8, 0, 8);
	memcpy(block + 1, op->key, op->key_length);
	if (kind == LAYOUT_KIND_VALUE && value_bytes) {
		/* What fills the last word goes into the pool as well: not this process's old memory. */
		memset(op->image + padded + layout_pad8(value_bytes) - 8, 0, 8);
		memcpy(op->image + padded, op->value, value_bytes);
		op->session->stats.bytes_copied += value_bytes;
	} else if (kind == LAYOUT_KIND_COUNTER) {
		memcpy(op->image + padded, &op->delta, 8);
	}
	block->checksum = layout_block_checksum(block, op->block.offset);
	op->new_word = layout_slot_make(
		op->frozen && !MUTATED(MUTATION_PLAIN) ? LAYOUT_SLOT_FROZEN : LAYOUT_SLOT_COMMITTED,
		op->fp, op->block.class, MUTATED(MUTATION_GENERATION) ? 0 : block->generation,
		op->block.offset);
}

int kv_prepare(struct kv_op *op)
{
	bool counter = op->kind == KV_ADD || op->put_flags & TARN_PUT_COUNTER;
	uint64_t value_bytes = op->kind == KV_ADD ? 8 : op->value_bytes;
	uint32_t kind = counter             ? LAYOUT_KIND_COUNTER
			: op->extents_taken ? LAYOUT_KIND_EXTENTS
					    : LAYOUT_KIND_VALUE;
	uint32_t class =
		kind == LAYOUT_KIND_COUNTER
			? layout_class_for_counter(op->key_length)
			: layout_class_for(layout_block_bytes(kind, op->key_length, value_bytes));

	/*
	 * A claim or the extents may have taken long. A date older than E / 2 could be that of what
	 * the block held before it was retired, and then the slot word would come again.
	 */
	if (session_epoch_stale(op->session, session_now(op->session))) {
		op->state = KV_EPOCH;
		return KV_GO_ON;
	}
	if (!take(op, class, &op->block))
		return KV_GO_ON;
	op->have_block = true;
	op->prepared_ns = session_now(op->session);
	op->written = op->named = false;
	build_image(op, kind, value_bytes);
	op->state = KV_BEGIN;
	return KV_GO_ON;
}

unsigned kv_add_block_writes(struct kv_op *op, struct fabric_request *requests)
{
	const struct layout_block *block = (const struct layout_block *)op->image;
	unsigned n = 0;

	if (!op->have_block || op->written)
		return 0;
	requests[n++] = (struct fabric_request){
		.opcode = FABRIC_WRITE,
		.offset = op->block.offset,
		.local = op->image,
		.length = (uint32_t)layout_pad8(
			layout_block_bytes(block->kind, block->key_length, block->value_length)),
	};
	if (op->block.mark)
		requests[n++] = alloc_map_write(op->session->alloc, op->block.offset, &in_use);
	op->block.mark = false;
	op->written = true;
	return n;
}

void kv_drop_block(struct kv_op *op)
{
	struct alloc *alloc = op->session->alloc;

	if (op->extents_taken)
		return_extents(op);
	if (op->have_block && op->named)
		alloc_retire_held(alloc, &op->block);
	else if (op->have_block)
		alloc_return(alloc, &op->block);
	op->have_block = false;
}

void kv_published(struct kv_op *op, uint64_t slot)
{
	uint64_t i;

	for (i = 0; i < op->extents_taken; i++)
		alloc_publish(op->session->alloc, layout_slot_offset(image_extents(op)[i].where));
	alloc_publish(op->session->alloc, op->block.offset);
	op->placed_slot = slot;
	if (op->session->cache && !op->extents_taken && !op->frozen)
		cache_add(op->session->cache, op->hash, op->seen_epoch, slot, op->new_word);
	op->have_block = false;
	op->extents_taken = 0;
}

/* The state may be another one: a slot is frozen and thawed. */
static bool same_block(uint64_t a, uint64_t b)
{
	return layout_slot_with_state(a, LAYOUT_SLOT_COMMITTED) ==
	       layout_slot_with_state(b, LAYOUT_SLOT_COMMITTED);
}

/* ---- update and delete ----------------------------------------------------------------------- */

/* The block that this client has just made unreachable, and its extents. */
static void retire_found(struct kv_op *op)
{
	struct alloc *alloc = op->session->alloc;
	const struct layout_block *block = op->found;
	const struct layout_extent *list = layout_block_value(block);
	uint64_t i,
		n = block->kind == LAYOUT_KIND_EXTENTS ? layout_extents(block->value_length) : 0;

	for (i = 0; i < n; i++)
		alloc_retire(alloc, layout_slot_offset(list[i].where),
			     layout_slot_class(list[i].where));
	alloc_retire(alloc, layout_slot_offset(op->word), layout_slot_class(op->word));
}

static int update_decided(struct kv_op *op)
{
	/* a split copies what is frozen: with two of us at work there could be a copy of an old one */
	if (op->frozen && op->split)
		return kv_restart(op, true);
	if (op->frozen) {
		op->state = KV_UPDATE;
		return KV_GO_ON;
	}
	/* over its quota an access key may write over a value, but with nothing larger */
	if (op->kind == KV_PUT && op->session->limits.limits & LAYOUT_LIMIT_BYTES &&
	    op->value_bytes > op->found->value_length)
		return kv_end(op, session_over_quota(op->session, LAYOUT_LIMIT_BYTES));
	/* a frozen slot is about to move: a moment later it is writable elsewhere */
	if (layout_slot_state(op->word) == LAYOUT_SLOT_FROZEN)
		return kv_shard_wait(op);
	op->state = KV_UPDATE;
	return KV_GO_ON;
}

int kv_put_found(struct kv_op *op)
{
	bool expired = found_expired(op->session, op->found);

	if (!expired && (op->put_flags & TARN_PUT_IF_ABSENT))
		return kv_end(op, -TARN_EEXISTS);
	if (op->put_flags & TARN_PUT_IF_STAMP) {
		if (expired)
			return kv_end(op, -TARN_ENOTFOUND);
		if (op->found->stamp != op->if_stamp)
			return kv_end(op, -TARN_ESTAMP);
	}
	return update_decided(op);
}

int kv_delete_found(struct kv_op *op)
{
	if (op->frozen && !same_block(op->word, op->only_word))
		return kv_end(op, -TARN_ESTAMP);
	if (found_expired(op->session, op->found) && !op->frozen)
		return kv_end(op, -TARN_ENOTFOUND);
	return update_decided(op);
}

int kv_update(struct kv_op *op)
{
	uint64_t new_word = op->kind == KV_DELETE ? 0 : op->new_word;
	struct fabric_request r = kv_cas(op->slot, op->word, new_word, &op->seen);

	if (!op->posted)
		return kv_post(op, &r, 1);
	op->posted = false;
	if (op->session->cache && op->kind == KV_DELETE)
		cache_remove(op->session->cache, op->hash);
	if (op->seen != op->word)
		return kv_restart(op, true);
	if (op->session->cache && op->kind != KV_DELETE && !op->frozen)
		cache_see(op->session->cache, op->hash, op->slot, op->word);
	op->replaced_word = op->word;
	if (op->kind != KV_DELETE)
		kv_published(op, op->slot);
	retire_found(op);
	op->added = op->delta;
	return kv_end(op, 0);
}

/* One round trip: block and CAS in one post, on a slot word learned earlier. */
int kv_cached_put(struct kv_op *op)
{
	struct tarn_session *s = op->session;
	struct fabric_request requests[3];
	unsigned n;

	if (!op->posted) {
		op->first_read_ns = op->started_ns;
		op->seen_epoch = s->epoch;
		n = kv_add_block_writes(op, requests);
		requests[n++] = kv_cas(op->slot, op->word, op->new_word, &op->seen);
		return kv_post(op, requests, n);
	}
	op->posted = false;
	if (op->seen != op->word) {
		s->stats.cache_misses++;
		cache_fail(s->cache, op->hash);
		return kv_restart(op, false);
	}
	s->stats.cache_hits++;
	kv_published(op, op->slot);
	/* the cache holds plain values and counters only: no extents to retire */
	alloc_retire(s->alloc, layout_slot_offset(op->word), layout_slot_class(op->word));
	return kv_end(op, 0);
}

/* ---- add ------------------------------------------------------------------------------------- */

int kv_add_found(struct kv_op *op)
{
	if (op->faa_word) {
		/* the value has perhaps been copied before the add: then it counts nowhere */
		if (same_block(op->faa_word, op->word) && op->cluster &&
		    layout_slot_state(op->word) == LAYOUT_SLOT_FROZEN &&
		    !shard_word_writable(op->shard_word, op->since))
			return kv_end(op, err_set(-TARN_EAMBIGUOUS,
						  "the counter's shard is being handed over: the "
						  "add may or may not have counted"));
		if (same_block(op->faa_word, op->word))
			return kv_end(op, 0);
		return kv_end(op, err_set(-TARN_ECONFLICT, "the counter was replaced while the add "
							   "was on its way: it may or may not "
							   "have counted"));
	}
	if (found_expired(op->session, op->found)) {
		/* present for the CAS, absent for us: a new counter takes its place */
		if (op->have_block)
			return update_decided(op);
		op->creating = true;
		op->state = KV_BEGIN;
		return KV_GO_ON;
	}
	if (op->found->kind != LAYOUT_KIND_COUNTER)
		return kv_end(op, err_set(-TARN_ETYPE,
					  "the key holds a value of %llu bytes, not a counter",
					  (unsigned long long)op->found->value_length));
	if (layout_slot_state(op->word) == LAYOUT_SLOT_FROZEN &&
	    (op->cluster || !(op->session->ep->features & FABRIC_COUNTER_FAA)))
		return kv_shard_wait(op);
	if (op->session->ep->features & FABRIC_COUNTER_FAA)
		op->state = KV_ADD_FAA;
	else
		op->state = KV_ADD_RPC;
	return KV_GO_ON;
}

int kv_add_faa(struct kv_op *op)
{
	uint64_t value = layout_slot_offset(op->word) + layout_value_offset(op->found->key_length);
	struct fabric_request requests[] = {
		{.opcode = FABRIC_FAA,
		 .length = 8,
		 .offset = value,
		 .local = &op->seen,
		 .operand = (uint64_t)op->delta},
		fabric_read(op->slot, &op->kills[0], 8),
	};

	if (!op->posted)
		return kv_post(op, requests, 2);
	op->posted = false;
	op->added = (int64_t)(op->seen + (uint64_t)op->delta);
	/* moved: it may have been replaced since, before the FAA */
	if (same_block(op->kills[0], op->word) &&
	    (layout_slot_state(op->kills[0]) == LAYOUT_SLOT_COMMITTED ||
	     (layout_slot_state(op->kills[0]) == LAYOUT_SLOT_FROZEN && !op->cluster)))
		return kv_end(op, 0);
	op->faa_word = op->word;
	return kv_restart(op, false);
}

static int add_rpc_reply(struct kv_op *op)
{
	struct wire_rpc_reply reply;
	int ret = op->task.status;

	/* an answer that says nothing is none */
	if (ret == 0)
		ret = wire_rpc_reply_decode(op->reply, op->task.length, &reply) < 0 ? -TARN_ESESSION
										    : reply.status;
	switch (ret) {
	case 0:
		op->added = reply.value;
		return kv_end(op, 0);
	case -TARN_ESTAMP:
		return kv_restart(op, true);
	case -TARN_ECONFLICT:
		return kv_end(op, err_set(ret, "the counter was replaced while the add was on its "
					       "way: it may or may not have counted"));
	case -TARN_ETIMEOUT:
	case -TARN_ESESSION:
		return kv_end(op,
			      err_set(-TARN_EAMBIGUOUS,
				      "tarnd did not answer: the add may or may not have counted"));
	default:
		return kv_end(op, err_set(ret, "tarnd refused the add: %s", err_string(ret)));
	}
}

/*
 * cpu domain: the daemon adds, since nothing bounds how late an instruction of ours could be (T3).
 */
int kv_add_rpc(struct kv_op *op)
{
	struct wire_rpc message = {
		.type = WIRE_RPC_ADD,
		.slot_offset = op->slot,
		.slot_word = op->word,
		.delta = op->delta,
	};
	int ret;

	if (!op->posted) {
		wire_rpc_encode(&message, op->message);
		ret = session_rpc(op->session, op->message, sizeof(op->message), op->reply,
				  sizeof(op->reply), &op->task);
		if (ret < 0)
			return kv_end(op, ret);
		op->posted = true;
		return KV_WAIT;
	}
	op->posted = false;
	if (!op->task.sent)
		return kv_end(op, op->task.status == -TARN_ESESSION
					  ? session_lost(op->session)
					  : err_set(-TARN_ETIMEOUT,
						    "the add could not be sent within the time "
						    "limit: tarnd is stopped or overloaded"));
	return add_rpc_reply(op);
}
