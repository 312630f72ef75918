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
 *	          out of any of these: WITHDRAW -> BEGIN; no slot: GROW -> BEGIN
 *
 * While the key's subtable splits, two subtables are looked at:
 *
 *	BUCKETS -> SPLIT_ENTRIES -> [SPLIT_OLD] -> SPLIT_NEW -> CANDIDATES, and
 *	INSERT and REREAD_OLD go on to REREAD
 *
 * In a cluster a miss, and a frozen slot that was found, go by SHARD (kv-shard.c) to what they mean.
 */
#ifndef TARN_KV_INTERNAL_H
#define TARN_KV_INTERNAL_H

#include "alloc.h"
#include "claim.h"
#include "found.h"
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
	KV_GROW,
	KV_SPLIT_ENTRIES,
	KV_SPLIT_OLD,
	KV_SPLIT_NEW,
	KV_REREAD_OLD,
	KV_ADD_FAA,
	KV_ADD_RPC,
	KV_SHARD,
	KV_SHARD_KEY,
	KV_STATES
};

enum kv_next { KV_WAIT = 0, KV_GO_ON = 1, KV_ENDED = 2 };

/* slots of the two bucket pairs, in the old and in the new subtable of a split */
#define KV_SLOTS         (2u * 4u * LAYOUT_BUCKET_SLOTS)
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
	/* its fields are written by each operation: none of them shall straddle a cache line by chance */
	_Alignas(64) struct task task;
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
	unsigned too_old; /* so often T1 has stopped it, up to OLD_MAX */
	bool congested;   /* that was not the first time: it begins again after a while */
	const char *why;  /* it is not done yet, for who reads that the time is up; "" or "; ..." */

	/* the index, as read */
	uint64_t pair_offsets[2];
	struct layout_bucket pairs[2][2],
		again[2][2]; /* first READ; READ after the slot was pending */
	uint64_t epoch, depth, entry;
	/* of the first READ, and rivals behind them */
	struct kv_candidate candidates[2 * KV_SLOTS];
	unsigned candidate_count, stranger_count, batch_begin, batch_end;
	bool moved;              /* a tombstone was read: the key may be in another subtable */
	bool refresh;            /* the directory entry has to be read, whatever is known */
	unsigned contradictions; /* so often in a row directory and headers did not agree */

	/*
	 * kv-split.c: the key's subtable splits. Then pair_offsets, pairs and again are those of the
	 * new subtable, and these of the old one
	 */
	bool split;
	bool filled;          /* the headers were read, and said "filled" */
	uint32_t split_depth; /* of the old one: this bit of the key's hash is set */
	uint64_t old_offsets[2];
	struct layout_bucket old_pairs[2][2], old_again[2][2];
	uint64_t new_entry;
	bool old_flagged; /* the split had reached all its buckets before old_pairs was read */

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
	uint32_t claim_class, claim_pages;
	bool larger;          /* its memory rests: a block of a larger class will do */
	unsigned claim_looks; /* so often in vain: another operation claims a page of the class */
	enum kv_state after_claim;

	/* insert */
	uint64_t own_slot;
	uint64_t pending_slot, pending_word; /* a pending slot in buckets without an empty one */
	uint64_t seen;                       /* what the CAS found */
	uint64_t kills[2 * KV_SLOTS];        /* what the killing CASes found */
	uint64_t yield_slot, yield_word, yield_since_ns;
	bool withdraw_backoff;
	unsigned late;     /* how often it has been waited for the daemon */
	uint64_t asked_ns; /* when the daemon was asked to split, last; 0: never */

	/* shard-put.h: a mover's write: slots are frozen, before and behind it */
	bool frozen;
	uint32_t owner;        /* of the new block */
	uint64_t placed_slot;
	uint64_t replaced_word; /* what the slot said before; 0: it was empty */
	uint64_t only_word, only_hash; /* of a delete: only this block, and of this key */

	/* kv-shard.c: the key's shard, of a cluster's pool */
	bool cluster;
	bool shard_found;      /* what SHARD goes on with: a frozen slot; else a miss */
	bool shard_seen;       /* shard_word was read behind what this attempt has read, and fits */
	bool shard_unfit;      /* it does not: what follows when the pending slot is withdrawn */
	uint32_t shard;
	uint64_t since;        /* when the operation began: session->since of it */
	uint64_t shard_word;

	/* corruption */
	uint64_t bad_slot, bad_word;
	unsigned bad_count;

	/* large get */
	uint64_t extents_read, window_end, renew_posted_ns;
	bool window_bad;

	/* add */
	uint64_t faa_word;  /* the FAA's slot word was another one: only this block counts */
	uint64_t full_pass; /* claim_full_is_sure(), of a larger index */
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
/* Likewise, in a millisecond or some: only the daemon can help, and needs that long. */
int kv_restart_late(struct kv_op *op);
/* Directory and headers do not agree: the entry is read again. */
int kv_contradiction(struct kv_op *op);
/* The buckets have been read: on to the blocks of the candidates, or to what is done without. */
int kv_collected(struct kv_op *op);
void kv_set_key(struct kv_op *op, const void *key, uint32_t key_length);
/* The key's block is op->found. */
int kv_found(struct kv_op *op);
/* T1: has too much time passed since the first READ? */
bool kv_too_old(struct kv_op *op);
static inline int kv_block_match(const struct kv_op *op, const struct layout_block *block,
				 uint64_t word)
{
	return found_match(op->key, op->key_length, block, word);
}
/* A slot's block was bad: look again, or give up as corrupt. */
int kv_bad(struct kv_op *op, uint64_t slot, uint64_t word);
/*
 * Posts READs of the blocks of candidates from op->batch_begin on, as many as fit; sets batch_end.
 */
int kv_post_candidates(struct kv_op *op);
static inline const struct layout_block *kv_candidate_block(const struct kv_op *op,
							    const struct kv_candidate *c)
{
	return (const struct layout_block *)(op->scratch + c->scratch);
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

/* ---- kv-split.c: while the key's subtable splits ---- */
/* A header says that the key's subtable splits, and which: goes to SPLIT_ENTRIES. */
int kv_split(struct kv_op *op, uint64_t header);
int kv_split_entries(struct kv_op *op);
int kv_split_old(struct kv_op *op);
int kv_split_new(struct kv_op *op);
/* Adds the visible slots of the old subtable to the candidates. */
void kv_split_collect(struct kv_op *op);
/* May an insert take the empty slot of the new subtable that is in this place? */
bool kv_split_free(const struct kv_op *op, unsigned pair, unsigned bucket, unsigned slot);

/* ---- kv-shard.c: is the key's shard this member's? ---- */
/* At the beginning of an operation. */
void kv_shard_begin(struct kv_op *op);
/* The session's map says at once that it is not. */
int kv_shard_elsewhere(struct kv_op *op);
/* Has the word still to be looked at, before a miss, or a frozen slot that was found, means anything? */
static inline bool kv_shard_owed(const struct kv_op *op)
{
	return __builtin_expect(op->cluster, 0) && !op->shard_seen;
}
/* Goes to SHARD. */
int kv_shard_look(struct kv_op *op, bool found);
int kv_shard(struct kv_op *op);
/* Adds the READ of the word to a post with `n` requests that begins with the pending slot's CAS; returns how many there are. */
unsigned kv_shard_add(struct kv_op *op, struct fabric_request *requests, unsigned n);
/* A mover's delete: which key is in the block of op->only_word. */
int kv_shard_key(struct kv_op *op);
/* The word was read behind the pending slot: may it be committed? */
bool kv_shard_writable(struct kv_op *op);
/* The word does not fit: pauses, or ends. */
int kv_shard_unfit(struct kv_op *op);
/* Writers of a frozen slot wait: for the shard's hand-over, or for a split. */
int kv_shard_wait(struct kv_op *op);

/* ---- kv-insert.c ---- */
int kv_absent(struct kv_op *op);
int kv_insert(struct kv_op *op);
int kv_rivals(struct kv_op *op);
int kv_kill(struct kv_op *op);
int kv_reread(struct kv_op *op);
int kv_commit(struct kv_op *op);
int kv_withdraw(struct kv_op *op);
int kv_reread_old(struct kv_op *op);
int kv_grow(struct kv_op *op);

#endif
