/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.h - inside of libtarn: up to GROUP_OPS gets and exists as one task, for the engine
 *
 * All of them are at the same step at the same time, so each step is one post: the buckets of all, then
 * the blocks of all; or, for those with a cached location, slot and block at once. Only what is simple
 * is finished here. The others (a subtable that splits, several candidates, a large value, memory that
 * changed meanwhile, in a cluster what the shard's word has to be looked at for, ...) are left alone: an operation of their own (kv.h) begins again with them.
 */
#ifndef TARN_GROUP_H
#define TARN_GROUP_H

#include "session.h"

#define GROUP_OPS 32u /* two READs each fit into a post */

struct group;
struct op;

int group_create(struct tarn_session *session, struct group **ret_group);
void group_free(struct group *group);

/* The group is empty again. */
void group_clear(struct group *group);
/* Takes an operation in. There is room: group_count() is less than GROUP_OPS. */
void group_add(struct group *group, struct op *op);
unsigned group_count(const struct group *group);
struct task *group_start(struct group *group);
/* Of a task that has ended: operation i. True: its completion is filled in; false: it was left alone. */
bool group_ended(const struct group *group, unsigned i, struct op **ret_op);

#endif
