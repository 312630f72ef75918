/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sweep.h - the reachability sweep: what dead clients had allocated or owed comes back
 * (docs/protocol.md section 6, its last point)
 *
 * A part of the keeper (keeper.h). Main thread.
 */
#ifndef TARN_DAEMON_SWEEP_H
#define TARN_DAEMON_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper.h"

struct pool;
struct recycle;
struct sweep;

int sweep_create(struct pool *pool, struct recycle *recycle, struct sweep **ret_sweep);
void sweep_free(struct sweep *sweep);

/* One bounded step, if one is due; returns when the next one is, in the clock of time->now_ns. */
uint64_t sweep_step(struct sweep *sweep, const struct keeper_time *time);
/* A client has died: sweep soon, and not at leisure. The next step has to be at once. */
void sweep_soon(struct sweep *sweep);
/* A split is about to move this word from one slot to another, perhaps behind the walk. */
void sweep_moved(struct sweep *sweep, uint64_t word);
/* Has it waited for a client for so long that nobody should wait for what it will free? */
bool sweep_held_up(const struct sweep *sweep, uint64_t now_ns);
/* For tests: so much memory for a batch of pages. */
void sweep_set_batch(struct sweep *sweep, uint64_t bytes);
void sweep_get_stats(const struct sweep *sweep, uint64_t now_ns, struct sweep_stats *ret_stats);

#endif
