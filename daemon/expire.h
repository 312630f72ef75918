/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * expire.h - a slow walk over the whole index: counts keys and bytes, takes expired keys out
 *
 * A part of the keeper (keeper.h). Main thread. Readers treat an expired key as missing all by
 * themselves; this gives its memory back. docs/protocol.md section 6.
 */
#ifndef TARN_DAEMON_EXPIRE_H
#define TARN_DAEMON_EXPIRE_H

#include <stdint.h>

#include "keeper.h"
#include "log.h"

struct expire;
struct pool;
struct quota;

/* `quota` is told what each access key has stored. */
int expire_create(struct pool *pool, struct quota *quota, struct expire **ret_expire);
void expire_free(struct expire *expire);

/*
 * One bounded step, if one is due; returns when the next one is, in the clock of time->now_ns. `changes`
 * is another number whenever other parts of the daemon have changed the index.
 */
uint64_t expire_step(struct expire *expire, const struct keeper_time *time, uint64_t changes);
/* Much may have changed: begin the next walk soon, and hurry. Returns when it is due. */
uint64_t expire_soon(struct expire *expire);
void expire_get_stats(const struct expire *expire, uint64_t now_ns,
		      struct expire_stats *ret_stats);

#endif
