/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * evict.h - keys that nobody asks for make room in a pool with `mode = cache`
 *
 * A part of the keeper (keeper.h). Main thread. docs/protocol.md section 6.
 */
#ifndef TARN_DAEMON_EVICT_H
#define TARN_DAEMON_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper.h"
#include "log.h"

struct evict;
struct pool;
struct recycle;

/* Does nothing in a pool of another mode. */
int evict_create(struct pool *pool, struct recycle *recycle, struct evict **ret_evict);
void evict_free(struct evict *evict);

/* One bounded step, if one is due; returns when the next one is, in the clock of time->now_ns. */
uint64_t evict_step(struct evict *evict, const struct keeper_time *time);
/* A client found no page for blocks of this class: evict more, and further ahead. */
void evict_hurry(struct evict *evict, uint32_t class, uint64_t now_ns);
/* Was it worth waiting when evict_hurry() was called last: could something still be evicted? */
bool evict_hopeful(const struct evict *evict);
void evict_get_stats(const struct evict *evict, struct evict_stats *ret_stats);

#endif
