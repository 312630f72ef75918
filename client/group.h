/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.h - inside of libtarn: up to GROUP_OPS gets and exists as one task, for the engine and near.c
 *
 * All of them are at the same step at the same time, so each step is one post: the buckets of all, then
 * the blocks of all; or, for those with a cached location, slot and block at once. On memory that is near
 * (fabric.h) the second bucket pair is read in a step of its own, and only for who is not in the first one;
 * and the location cache is used for a few of them only. Only what is simple is finished here. The others (a subtable that splits, several candidates, a large value, memory that
 * changed meanwhile, in a cluster what the shard's word has to be looked at for, ...) are left alone: an operation of their own (kv.h) begins again with them.
 */
#ifndef TARN_GROUP_H
#define TARN_GROUP_H

#include "session.h"

#define GROUP_OPS 32u /* two READs each fit into a post */

struct group;

/* What is asked for, and where the answer goes. All memory is the caller's. */
struct group_get {
	const void *key;
	size_t key_bytes;
	void *buffer;
	size_t bytes;
	bool exists_only;
	int *ret_status;            /* of those that have ended */
	struct tarn_item *ret_item; /* likewise; all zero if nothing was found */
	void *owner;                /* for group_ended() */
};

int group_create(struct tarn_session *session, struct group **ret_group);
void group_free(struct group *group);

/* The group is empty again. */
void group_clear(struct group *group);
/*
 * Takes one in: the rest of what it returns is to be filled. There is room: group_count() is less than
 * GROUP_OPS.
 */
struct group_get *group_add(struct group *group, const void *key, size_t key_bytes);
unsigned group_count(const struct group *group);
struct task *group_start(struct group *group);
/*
 * Instead, where the endpoint has `near`, without a task: begin when the group is empty, tell after each one
 * that was added and filled, end; that returns how many were left alone. `count`: how many there will be.
 */
void group_begin_near(struct group *g, unsigned count);
void group_added(struct group *g);
unsigned group_end_near(struct group *g);
/* Of a task that has ended: number i. True: its answer is there; false: it was left alone. */
bool group_ended(const struct group *group, unsigned i, void **ret_owner);

#endif
