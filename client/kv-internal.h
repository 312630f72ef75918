/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-internal.h - inside of kv*.c: one operation and its states
 *
 * Each state has one handler. A handler is called with op->posted false: it posts (and leaves
 * posted true), or decides at once; and with posted true when what it posted is complete. It
 * returns KV_GO_ON (op->state says where; also after a post that was complete in place), KV_WAIT or
 * KV_ENDED.
 *
 *	BEGIN -> [EPOCH] -> [CLAIM, EXTENTS] PREPARE -> [CACHED_GET | CACHED_PUT] -> [DIRECTORY] ->
 *	BUCKETS -> CANDIDATES
 *	  found:  get: [GET_EXTENTS, RENEW];  put, delete: UPDATE;  add: ADD_FAA or ADD_RPC
 *	  absent: put, add: INSERT -> [RIVALS -> [KILL -> [REREAD -> RIVALS]]] -> COMMIT;
 *	          out of any of these: WITHDRAW -> BEGIN
 */
#ifndef TARN_KV_INTERNAL_H
#define TARN_KV_INTERNAL_H

#include "alloc.h"
#include "claim.h"
#include "kv.h"

enum kv_kind { KV_GET, KV_PUT, KV_DELETE, KV_ADD };

enum kv_state {
	KV_BEGIN,
	KV_EPOCH,
	KV_CLAIM,
	KV_EXTENTS,
	KV_PREPARE,
	KV_CACHED_GET,
	KV_CACHED_PUT,
	KV_DIRECTORY,
	KV_BUCKETS,
	KV_CANDIDATES,
	KV_GET_EXTENTS,
	KV_RENEW,
	KV_UPDATE,
	KV_INSERT,
	KV_RIVALS,
	KV_KILL,
	KV_REREAD,
	KV_COMMIT,
	KV_WITHDRAW,
	KV_ADD_FAA,
	KV_ADD_RPC,
	KV_STATES
};

enum kv_next { KV_WAIT = 0, KV_GO_ON = 1, KV_ENDED = 2 };

#define KV_SLOTS         (4u * LAYOUT_BUCKET_SLOTS) /* slots of the two bucket pairs */
#define KV_SCRATCH_BYTES (2u * LAYOUT_BLOCK_MAX)
#define KV_WINDOW        16u /* extents in one post */
/* a block with a wrong checksum under an unchanged slot word is read so often */
#define KV_BAD_TRIES 8u
/* an inserter gives way to a pending rival at a lower position for so long */
#define KV_YIELD_NS 1000000u

/* A slot that may hold the key. */
struct kv_candidate {
	uint64_t slot; /* offset */
	uint64_t word;
	uint32_t scratch; /* where its block was read to */
	bool bad;         /* the block did not fit the word */
};

struct kv_op {
	struct task task;
	struct tarn_session *session;
	enum kv_kind kind;
	enum kv_state state;
	bool posted;
	bool use_cache; /* on the first attempt only */

	/* arguments */
	const uint8_t *key;
	uint32_t key_length;
	uint32_t fp;
	struct layout_hash hash;
	uint8_t *buffer;
	uint64_t buffer_bytes;
	bool exists_only;
	const uint8_t *value;
	uint64_t value_bytes;
	uint32_t put_flags, user_flags;
	uint64_t expiry_ms, if_stamp;
	int64_t delta;

	/* time */
	uint64_t started_ns, limit_ns;
	uint64_t first_read_ns; /* T1 counts from here */
	uint64_t seen_epoch;    /* known before that READ */
	uint64_t now_ns;        /* when the clock was read last: after a completion */
	unsigned attempts;

	/* the index, as read */
	uint64_t pair_offsets[2];
	struct layout_bucket pairs[2][2],
		again[2][2]; /* first READ; READ after the slot was pending */
	uint64_t epoch, depth, entry;
	/* of the first READ, and rivals behind them */
	struct kv_candidate candidates[2 * KV_SLOTS];
	unsigned candidate_count, stranger_count, batch_begin, batch_end;
	bool moved; /* a tombstone of this fingerprint was read */

	/* what was found */
	uint64_t slot, word;
	const struct layout_block *found; /* in scratch */

	/* the new block; extents_taken of its list in the image are ours */
	struct alloc_block block;
	bool have_block, written, named; /* named: a pending slot has named it */
	uint64_t prepared_ns;            /* when the block was dated */
	bool creating;                   /* add: the counter has to be made */
	uint64_t new_word, stamp;
	uint64_t extents_taken, extents_written;
	uint32_t claim_class;
	enum kv_state after_claim;

	/* insert */
	uint64_t own_slot;
	uint64_t pending_slot, pending_word; /* a pending slot in buckets without an empty one */
	uint64_t seen;                       /* what the CAS found */
	uint64_t kills[2 * KV_SLOTS];        /* what the killing CASes found */
	uint64_t yield_slot, yield_word, yield_since_ns;
	bool withdraw_backoff;

	/* corruption */
	uint64_t bad_slot, bad_word;
	unsigned bad_count;

	/* large get */
	uint64_t extents_read, window_end, renew_posted_ns;
	bool window_bad;

	/* add */
	uint64_t faa_word; /* the FAA's slot word was another one: only this block counts */
	uint8_t message[WIRE_RPC_BYTES], reply[WIRE_RPC_REPLY_BYTES];

	/* results */
	struct tarn_item item;
	int64_t added;

	struct claim claim;
	uint8_t *image;   /* LAYOUT_BLOCK_MAX: the new block */
	uint8_t *scratch; /* KV_SCRATCH_BYTES: blocks read */
};

/* ---- kv.c ---- */
int kv_post(struct kv_op *op, const struct fabric_request *requests, unsigned count);
int kv_end(struct kv_op *op, int result);
/* Starts again from the index; later, if `backoff`. Ends the operation when its time is up. */
int kv_restart(struct kv_op *op, bool backoff);
/* T1: has too much time passed since the first READ? */
bool kv_too_old(struct kv_op *op);
/* A block read for `word`: 1 is the key's, 0 is another key's, -1 does not fit the word. */
int kv_block_match(const struct kv_op *op, const struct layout_block *block, uint64_t word);
/* A slot's block was bad: look again, or give up as corrupt. */
int kv_bad(struct kv_op *op, uint64_t slot, uint64_t word);
/*
 * Calls fn for each slot of the bucket pairs. The pairs may overlap: an address counts once.
 * Inlined, fn and all.
 */
typedef void kv_slot_fn(struct kv_op *op, unsigned pair, unsigned bucket, uint64_t slot,
			uint64_t word);
static inline __attribute__((always_inline)) void
kv_each_slot(struct kv_op *op, struct layout_bucket pairs[2][2], kv_slot_fn *fn)
{
	unsigned p, b, i;

	for (p = 0; p < 2; p++) {
		for (b = 0; b < 2; b++) {
			uint64_t offset = op->pair_offsets[p] + b * LAYOUT_BUCKET_BYTES;

			if (p == 1 && offset - op->pair_offsets[0] < LAYOUT_PAIR_BYTES)
				continue;
			for (i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
				fn(op, p, b, offset + 8 + 8ull * i, pairs[p][b].slots[i]);
		}
	}
}
/*
 * Posts READs of the blocks of candidates from op->batch_begin on, as many as fit; sets batch_end.
 */
int kv_post_candidates(struct kv_op *op);
static inline const struct layout_block *kv_candidate_block(const struct kv_op *op,
							    const struct kv_candidate *c)
{
	return (const struct layout_block *)(op->scratch + c->scratch);
}
static inline bool kv_expired(const struct kv_op *op, const struct layout_block *block)
{
	return block->expiry && op->session->epoch >= block->expiry;
}
static inline struct fabric_request kv_cas(uint64_t offset, uint64_t compare, uint64_t operand,
					   uint64_t *seen)
{
	return (struct fabric_request){
		.opcode = FABRIC_CAS,
		.length = 8,
		.offset = offset,
		.local = seen,
		.compare = compare,
		.operand = operand,
	};
}

/* ---- kv-read.c ---- */
int kv_get_found(struct kv_op *op);
int kv_cached_get(struct kv_op *op);
int kv_get_extents(struct kv_op *op);
int kv_renew(struct kv_op *op);

/* ---- kv-write.c: the new block, update, delete, add ---- */
/*
 * Appends the WRITEs of the new block, if they are owed, and takes them for done: the post that
 * carries them must follow.
 */
unsigned kv_add_block_writes(struct kv_op *op, struct fabric_request *requests);
int kv_put_found(struct kv_op *op);
int kv_delete_found(struct kv_op *op);
int kv_add_found(struct kv_op *op);
/* Gives up the new block when the operation has ended without publishing it. */
void kv_drop_block(struct kv_op *op);
/* The new block is in the index. */
void kv_published(struct kv_op *op, uint64_t slot);
int kv_extents(struct kv_op *op);
int kv_prepare(struct kv_op *op);
int kv_claim(struct kv_op *op);
int kv_cached_put(struct kv_op *op);
int kv_update(struct kv_op *op);
int kv_add_faa(struct kv_op *op);
int kv_add_rpc(struct kv_op *op);

/* ---- kv-insert.c ---- */
int kv_absent(struct kv_op *op);
int kv_insert(struct kv_op *op);
int kv_rivals(struct kv_op *op);
int kv_kill(struct kv_op *op);
int kv_reread(struct kv_op *op);
int kv_commit(struct kv_op *op);
int kv_withdraw(struct kv_op *op);

#endif
