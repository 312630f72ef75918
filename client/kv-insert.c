/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-insert.c - a key that is not there: insert, and who wins when several insert it at once
 *
 * The slot is taken as pending, which nobody sees; the buckets are read again; rivals are killed,
 * or we give way; only then it is committed. Nobody waits for a client that died, since anyone may
 * kill a pending slot. Next: docs/protocol.md section 4 "Key absent"; tests/model/kv.pml.
 */
#include <string.h>

#include "err.h"
#include "kv-internal.h"
#include "mutation.h"

static uint64_t pending_word(const struct kv_op *op)
{
	return layout_slot_with_state(op->new_word, LAYOUT_SLOT_PENDING);
}

/* Who found no slot asks the daemon so often. */
#define ASK_AGAIN_NS 20000000u

/* ---- choosing a slot ------------------------------------------------------------------------- */

/*
 * Empty slots per pair, and the best of each: main buckets first, so that overflow buckets are left
 * to those who need them.
 */
struct choice {
	unsigned empties, main_empties;
	uint64_t main, overflow;
};

static inline void choose(void *arg, unsigned pair, unsigned bucket, uint64_t slot, uint64_t word)
{
	struct kv_op *op = arg;
	struct choice *c = &((struct choice *)op->scratch)[pair];
	/*
	 * pairs begin at the group's main bucket A, or at its overflow bucket, with main bucket B
	 * behind it
	 */
	bool main = bucket == (op->pair_offsets[pair] - op->session->geometry.pages_offset) %
				      LAYOUT_PAGE_BYTES % LAYOUT_GROUP_BYTES / LAYOUT_BUCKET_BYTES;

	if (layout_slot_state(word) == LAYOUT_SLOT_PENDING && !op->pending_slot) {
		op->pending_slot = slot;
		op->pending_word = word;
	}
	if (word || !kv_split_free(op, pair, bucket, (unsigned)(slot / 8 + 7) % 8))
		return;
	c->empties++;
	c->main_empties += main;
	if (main && !c->main)
		c->main = slot;
	else if (!main && !c->overflow)
		c->overflow = slot;
}

static uint64_t choose_slot(struct kv_op *op)
{
	struct choice *c = (struct choice *)op->scratch;
	unsigned best;

	memset(c, 0, 2 * sizeof(*c));
	op->pending_slot = 0;
	found_each_slot(op, op->pair_offsets, op->pairs, choose);
	/*
	 * A reader that is near pays for the second pair: only once the first one's main bucket is all
	 * but full is it the emptier one, as two choices need it to be for a subtable to fill up.
	 */
	best = c[0].main_empties < 2 && c[1].empties > c[0].empties;
	return c[best].main ? c[best].main : c[best].overflow;
}

/* Is the rival that we gave way to first still among the candidates? */
static bool still_yielding(const struct kv_op *op)
{
	unsigned i;

	for (i = 0; i < op->candidate_count; i++)
		if (op->candidates[i].slot == op->yield_slot &&
		    op->candidates[i].word == op->yield_word)
			return true;
	return false;
}

/*
 * Has a pending rival been in the way, unchanged, for longer than its owner needs if it lives? The
 * clock of the first one counts for all: with one each, two dead rivals would start it again in
 * turn for ever.
 */
static bool yielded_enough(struct kv_op *op, uint64_t slot, uint64_t word)
{
	uint64_t now = session_now(op->session);

	if ((op->yield_slot != slot || op->yield_word != word) && !still_yielding(op)) {
		op->yield_slot = slot;
		op->yield_word = word;
		op->yield_since_ns = now;
	}
	/*
	 * What its owner needs is some round trips, and since our first READ it was one or two: where
	 * they are long, so is this, or clients would kill each other's slots without end.
	 */
	return now - op->yield_since_ns >
	       (MUTATED(MUTATION_PATIENCE) ? 4 : 1) * KV_YIELD_NS + 4 * (now - op->first_read_ns);
}

/*
 * Neither empty nor pending: the daemon splits the subtable, perhaps already. It is asked now and
 * then, and what came of it is looked at more often.
 */
static int await_slot(struct kv_op *op)
{
	uint64_t now = session_now(op->session);

	op->why = "; the index has no slot for the key, and did not grow: tarnd is stopped or "
		  "overloaded";
	if (op->split || (op->asked_ns && now - op->asked_ns < ASK_AGAIN_NS))
		return kv_restart_late(op);
	op->asked_ns = now;
	op->state = KV_GROW;
	return KV_GO_ON;
}

/* What the daemon says to that. */
static int grow_reply(struct kv_op *op)
{
	struct wire_rpc_reply reply;
	int ret = op->task.status < 0 ? op->task.status
				      : wire_rpc_reply_decode(op->reply, op->task.length, &reply);

	if (ret == -TARN_ESESSION)
		return kv_end(op, session_lost(op->session));
	if (ret == -TARN_ETIMEOUT)
		return kv_restart_late(op);
	if (ret < 0)
		return kv_end(op, ret);
	switch (reply.status) {
	case 0:
		return kv_restart_late(op);
	case -TARN_EINDEXFULL:
		return kv_end(op, err_set(reply.status,
					  "all slots of this key's buckets are in use, and the "
					  "index has its largest size (max_depth %u): delete keys, "
					  "or enlarge the pool (size)",
					  op->session->geometry.max_depth));
	case -TARN_EPOOLFULL:
		/* what was deleted a moment ago still rests, or the daemon does not know of it */
		if (!claim_full_is_sure(&reply, &op->full_pass))
			return kv_restart_late(op);
		return kv_end(op,
			      err_set(reply.status,
				      "all slots of this key's buckets are in use, and the pool "
				      "has no free page for a larger index: delete keys, or "
				      "enlarge the pool (size)"));
	default:
		return kv_end(op, err_set(reply.status, "tarnd does not enlarge the index: %s",
					  err_string(reply.status)));
	}
}

int kv_grow(struct kv_op *op)
{
	struct wire_rpc message = {
		.type = WIRE_RPC_GROW,
		.class = layout_header_depth(op->pairs[0][0].header),
		.slot_offset = op->hash.low,
		.slot_word = op->hash.high,
	};
	int ret;

	if (op->posted) {
		op->posted = false;
		return grow_reply(op);
	}
	wire_rpc_encode(&message, op->message);
	ret = session_rpc(op->session, op->message, sizeof(op->message), op->reply,
			  sizeof(op->reply), &op->task);
	if (ret < 0)
		return kv_end(op, ret);
	op->posted = true;
	return KV_WAIT;
}

/* No empty slot. A pending one may be left from a client that died: then it is killed and used. */
static int no_slot(struct kv_op *op)
{
	if (!op->pending_slot)
		return await_slot(op);
	if (!yielded_enough(op, op->pending_slot, op->pending_word))
		return kv_restart(op, true);
	op->candidate_count = op->batch_begin = 0;
	op->own_slot = 0;
	op->candidates[op->candidate_count++] =
		(struct kv_candidate){.slot = op->pending_slot, .word = op->pending_word};
	op->state = KV_KILL;
	return KV_GO_ON;
}

static int begin_insert(struct kv_op *op)
{
	uint64_t limits = op->session->limits.limits;

	if (__builtin_expect(limits & (LAYOUT_LIMIT_KEYS | LAYOUT_LIMIT_BYTES) && !op->frozen, 0))
		return kv_end(op, session_over_quota(op->session, limits & LAYOUT_LIMIT_KEYS
									  ? LAYOUT_LIMIT_KEYS
									  : LAYOUT_LIMIT_BYTES));
	op->own_slot = choose_slot(op);
	if (!op->own_slot)
		return no_slot(op);
	op->state = KV_INSERT;
	return KV_GO_ON;
}

/* The search has ended without the key. Who inserts looks at the shard's word behind that. */
int kv_absent(struct kv_op *op)
{
	bool inserts = op->kind == KV_PUT ? !(op->put_flags & TARN_PUT_IF_STAMP)
					  : op->kind == KV_ADD && !op->faa_word;

	if (!inserts && !MUTATED(MUTATION_MISSWORD) && kv_shard_owed(op))
		return kv_shard_look(op, false);
	switch (op->kind) {
	case KV_GET:
	case KV_DELETE:
		return kv_end(op, -TARN_ENOTFOUND);
	case KV_PUT:
		if (op->put_flags & TARN_PUT_IF_STAMP)
			return kv_end(op, -TARN_ENOTFOUND);
		return begin_insert(op);
	case KV_ADD:
		if (op->faa_word)
			return kv_end(op,
				      err_set(-TARN_ECONFLICT, "the counter was deleted while the "
							       "add was on its way: it may or may "
							       "not have counted"));
		if (op->have_block)
			return begin_insert(op);
		op->creating = true;
		op->state = KV_BEGIN;
		return KV_GO_ON;
	}
	return KV_ENDED;
}

/* ---- pending --------------------------------------------------------------------------------- */

static int withdraw(struct kv_op *op, bool backoff)
{
	op->withdraw_backoff = backoff;
	op->state = KV_WITHDRAW;
	return KV_GO_ON;
}

int kv_withdraw(struct kv_op *op)
{
	struct fabric_request r = kv_cas(op->own_slot, pending_word(op), 0, &op->seen);

	/* failed: somebody killed it; either way it is not ours any more */
	if (!op->posted)
		return kv_post(op, &r, 1);
	op->posted = false;
	if (op->shard_unfit)
		return kv_shard_unfit(op);
	return kv_restart(op, op->withdraw_backoff);
}

static bool headers_unchanged(const struct kv_op *op)
{
	unsigned i;

	if (MUTATED(MUTATION_FLAG_REREAD))
		return true;
	for (i = 0; i < 4; i++) {
		if (op->pairs[i / 2][i % 2].header != op->again[i / 2][i % 2].header)
			return false;
		if (op->split &&
		    op->old_pairs[i / 2][i % 2].header != op->old_again[i / 2][i % 2].header)
			return false;
	}
	return true;
}

/* Was this word there at the first READ, and its block found to be another key's? */
static bool known_stranger(const struct kv_op *op, uint64_t slot, uint64_t word)
{
	unsigned i;

	for (i = 0; i < op->batch_begin; i++)
		if (op->candidates[i].slot == slot && op->candidates[i].word == word)
			return true;
	return false;
}

static inline void collect_rival(void *arg, unsigned pair, unsigned bucket, uint64_t slot,
				 uint64_t word)
{
	struct kv_op *op = arg;
	uint32_t state = layout_slot_state(word);

	(void)pair;
	(void)bucket;
	if (slot == op->own_slot || layout_slot_fp(word) != op->fp || state == LAYOUT_SLOT_EMPTY)
		return;
	if (state == LAYOUT_SLOT_MOVED)
		op->moved |= found_tombstone_counts(op->hash, word);
	else if (!known_stranger(op, slot, word))
		op->candidates[op->candidate_count++] =
			(struct kv_candidate){.slot = slot, .word = word};
}

/* What the READ that came after our slot was pending shows. */
static int look_for_rivals(struct kv_op *op)
{
	if (kv_too_old(op) || !headers_unchanged(op))
		return withdraw(op, false);
	/* the strangers of the first READ stay in front, the rivals come behind */
	op->candidate_count = op->batch_begin = op->stranger_count;
	/* a tombstone of the old subtable is no news: the new one was read behind it */
	if (op->split)
		found_each_slot(op, op->old_offsets, op->old_again, collect_rival);
	op->moved = false;
	if (!MUTATED(MUTATION_PENDING_REREAD))
		found_each_slot(op, op->pair_offsets, op->again, collect_rival);
	if (op->moved)
		return withdraw(op, true);
	op->state = op->candidate_count > op->stranger_count ? KV_RIVALS : KV_COMMIT;
	return KV_GO_ON;
}

/*
 * While the subtable splits, the old one is read first, and only then the new one: what moves
 * meanwhile is seen in one of them.
 */
int kv_insert(struct kv_op *op)
{
	const uint64_t *offsets = op->split ? op->old_offsets : op->pair_offsets;
	struct layout_bucket(*again)[2] = op->split ? op->old_again : op->again;
	struct fabric_request requests[4] = {
		kv_cas(op->own_slot, 0, pending_word(op), &op->seen),
		fabric_read(offsets[0], again[0], LAYOUT_PAIR_BYTES),
		fabric_read(offsets[1], again[1], LAYOUT_PAIR_BYTES),
	};

	if (!op->posted) {
		op->named = true;
		op->stranger_count = op->candidate_count;
		return kv_post(op, requests, op->cluster ? kv_shard_add(op, requests, 3) : 3);
	}
	op->posted = false;
	if (op->seen != 0)
		return kv_restart(op, false);
	/* S's daemon kills what is pending behind "closing": one of the two sees the other */
	if (op->cluster && !kv_shard_writable(op))
		return withdraw(op, false);
	if (!op->split)
		return look_for_rivals(op);
	op->state = KV_REREAD;
	return KV_GO_ON;
}

int kv_reread_old(struct kv_op *op)
{
	struct fabric_request requests[] = {
		fabric_read(op->old_offsets[0], op->old_again[0], LAYOUT_PAIR_BYTES),
		fabric_read(op->old_offsets[1], op->old_again[1], LAYOUT_PAIR_BYTES),
	};

	if (!op->posted)
		return kv_post(op, requests, 2);
	op->posted = false;
	op->state = KV_REREAD;
	return KV_GO_ON;
}

/*
 * A rival could not be killed: it has given way, or has committed. Still pending, we look again: if
 * we gave way, too, the two could push each other out without end.
 */
int kv_reread(struct kv_op *op)
{
	struct fabric_request requests[] = {
		fabric_read(op->pair_offsets[0], op->again[0], LAYOUT_PAIR_BYTES),
		fabric_read(op->pair_offsets[1], op->again[1], LAYOUT_PAIR_BYTES),
	};

	if (!op->posted)
		return kv_post(op, requests, 2);
	op->posted = false;
	return look_for_rivals(op);
}

/* ---- rivals ---------------------------------------------------------------------------------- */

/*
 * What a rival means for us: 0 nothing, 1 kill it, -1 give way; *ret_backoff: is it of use to wait?
 */
static int judge(struct kv_op *op, struct kv_candidate *c, bool *ret_backoff)
{
	bool pending = layout_slot_state(c->word) == LAYOUT_SLOT_PENDING;
	int match = c->bad ? -1 : kv_block_match(op, kv_candidate_block(op, c), c->word);

	*ret_backoff = false;
	if (match == 0)
		return 0;
	if (!pending && MUTATED(MUTATION_COMMITTED_RIVAL))
		return 0;
	/*
	 * the key is there: go on as an update. Or a block that cannot be read: the next search
	 * will say
	 */
	if (!pending)
		return -1;
	/* a pending block that cannot be read is treated as the key's: to kill is always allowed */
	if (c->slot > op->own_slot)
		return 1;
	if (MUTATED(MUTATION_LOWER_RIVAL))
		return 0;
	*ret_backoff = true;
	return yielded_enough(op, c->slot, c->word) ? 1 : -1;
}

/*
 * All rivals are read, batch by batch; those to kill are gathered at the front of the list (behind
 * the strangers nothing is needed any more).
 */
int kv_rivals(struct kv_op *op)
{
	unsigned i;
	bool backoff;

	if (!op->posted)
		return kv_post_candidates(op);
	op->posted = false;
	if (kv_too_old(op))
		return withdraw(op, false);
	for (i = op->batch_begin; i < op->batch_end; i++) {
		int verdict = judge(op, &op->candidates[i], &backoff);

		if (verdict < 0)
			return withdraw(op, backoff);
		/* word 0: nothing to kill here */
		if (verdict == 0)
			op->candidates[i].word = 0;
	}
	op->batch_begin = op->batch_end;
	if (op->batch_begin < op->candidate_count)
		return KV_GO_ON;
	op->state = KV_KILL;
	return KV_GO_ON;
}

static int post_kills(struct kv_op *op)
{
	struct fabric_request requests[FABRIC_POST_MAX];
	unsigned i, n = 0;

	for (i = 0; i < op->candidate_count && n < FABRIC_POST_MAX; i++) {
		const struct kv_candidate *c = &op->candidates[i];

		if (layout_slot_state(c->word) != LAYOUT_SLOT_PENDING)
			continue;
		requests[n] = kv_cas(c->slot, c->word, 0, &op->kills[n]);
		n++;
	}
	if (n)
		return kv_post(op, requests, n);
	op->posted = true;
	return KV_GO_ON;
}

int kv_kill(struct kv_op *op)
{
	unsigned i, n = 0;
	bool all = true;

	if (!op->posted)
		return post_kills(op);
	op->posted = false;
	for (i = 0; i < op->candidate_count; i++) {
		const struct kv_candidate *c = &op->candidates[i];

		if (layout_slot_state(c->word) != LAYOUT_SLOT_PENDING)
			continue;
		all = n < FABRIC_POST_MAX && op->kills[n] == c->word && all;
		n++;
	}
	/* without a slot of our own we were only making room */
	if (!op->own_slot)
		return kv_restart(op, false);
	if (kv_too_old(op))
		return withdraw(op, false);
	if (all || MUTATED(MUTATION_KILL_RULE))
		op->state = KV_COMMIT;
	else
		op->state = op->split ? KV_REREAD_OLD : KV_REREAD;
	return KV_GO_ON;
}

int kv_commit(struct kv_op *op)
{
	struct fabric_request r = kv_cas(op->own_slot, pending_word(op), op->new_word, &op->seen);

	if (!op->posted)
		return kv_post(op, &r, 1);
	op->posted = false;
	/* somebody killed it */
	if (op->seen != pending_word(op))
		return kv_restart(op, true);
	kv_published(op, op->own_slot);
	op->added = op->delta;
	return kv_end(op, 0);
}
