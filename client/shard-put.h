/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-put.h - inside of libtarn: a shard's keys put as frozen slots, by who moves the shard to a member
 *
 * For tarnd's mover alone (docs/protocol.md section 11, steps 2 and 4), on a session that has no `since`: no word is
 * looked at. The member's shard is "incoming", so nobody else writes its keys.
 */
#ifndef TARN_SHARD_PUT_H
#define TARN_SHARD_PUT_H

#include "kv.h"

/* A key as it is where it comes from. Key and value live until the task has ended. */
struct shard_put {
	const void *key;
	size_t key_bytes;
	const void *value; /* of a counter: its 8 bytes */
	uint64_t value_bytes;
	bool counter;
	uint32_t user_flags, owner;
	uint64_t stamp;
	uint64_t expiry_ms; /* that are left to it; 0: for ever */
};

/*
 * Puts it as a frozen slot, in the place of the key's one if it has one, whatever its state. Results as of
 * kv_put(); no quota counts. An operation as any other: kv_op_create().
 */
struct task *shard_put(struct kv_op *op, const struct shard_put *put);
/*
 * Deletes what a put has placed: the key with this hash (its upper half) whose block is the one of that word, as long as it is. 0; -TARN_ENOTFOUND or
 * -TARN_ESTAMP: there is no such key any more, or it has another block by now; or as of kv_delete().
 */
struct task *shard_delete(struct kv_op *op, uint64_t word, uint64_t hash);
/* Of a put that ended with 0: its slot, what that says, and what it said before (0: the key was not there). */
void shard_placed(const struct kv_op *op, uint64_t *ret_slot, uint64_t *ret_word,
		  uint64_t *ret_replaced);

/*
 * One of these among several at a time, through the session's engine (engine.h): puts of one key run one after the other, in the
 * order in which they were begun. The caller's until done() is called, which is in a turn of the engine.
 */
struct shard_job {
	struct shard_put put;
	uint64_t word, hash;       /* of a delete, instead */
	uint64_t placed, replaced; /* of a put that ended with 0: as of shard_placed() */
	void (*done)(struct shard_job *job, int result);
	void *arg;
};
/* 0; or -TARN_EBUSY with a text: the engine has no room for it. */
int shard_put_begin(struct tarn_session *session, struct shard_job *job);
int shard_delete_begin(struct tarn_session *session, struct shard_job *job);

#endif
