/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * quota.h - what each access key may use of a pool, and what it uses: keys, bytes, pages
 *
 * A part of the keeper (keeper.h). Main thread. Keys and bytes are counted by expire.c's walk, pages by
 * a walk of its own; what is used up is told to the clients in their slots of the client table
 * (struct layout_client), and they do without. tarnd.conf(5), "Keys".
 */
#ifndef TARN_DAEMON_QUOTA_H
#define TARN_DAEMON_QUOTA_H

#include <stdint.h>

#include "keeper.h"
#include "log.h"

struct pool;
struct quota;

/* For the keys that pool->keys has. */
int quota_create(struct pool *pool, const struct log *log, struct quota **ret_quota);
void quota_free(struct quota *quota);
/*
 * Other keys, in two steps: what can fail (0, or -ENOMEM), to be freed if nothing comes of it; then what
 * can not, in the same turn of the main loop. What was counted stays.
 */
int quota_prepare(const struct quota *quota, const struct auth_keys *keys, struct quota **ret_fresh);
void quota_commit(struct quota *quota, struct quota *fresh);

/* A walk over the index begins; it has found a key of this owner (layout_owner()); it is complete. */
void quota_walk_begin(struct quota *quota);
void quota_count(struct quota *quota, uint32_t owner, uint64_t bytes);
void quota_walk_end(struct quota *quota);

/* A client is new: what is used up it shall know from the beginning. */
void quota_tell(struct quota *quota, uint32_t slot);

/* One bounded step, if one is due; returns when the next one is, in the clock of time->now_ns. */
uint64_t quota_step(struct quota *quota, const struct keeper_time *time);
/* One entry per access key; the array stays until the next call with this quota. */
const struct quota_stats *quota_get_stats(const struct quota *quota, uint32_t *ret_count);

#endif
