/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sweep-walk.h - the sweep's way over the whole index: strikes out what slots reach, and remembers
 * pending slots of the dead
 *
 * A piece of sweep.c. Main thread.
 */
#ifndef TARN_DAEMON_SWEEP_WALK_H
#define TARN_DAEMON_SWEEP_WALK_H

#include <stdbool.h>
#include <stdint.h>

struct candidates;
struct pool;
struct sweep_walk;

struct sweep_walk *sweep_walk_create(struct pool *pool); /* NULL: no memory */
void sweep_walk_free(struct sweep_walk *walk);

/* `large`: there may be large values, whose extents have to be followed. */
void sweep_walk_begin(struct sweep_walk *walk, struct candidates *candidates, bool large);
/* A split is about to move this word to another slot, behind us perhaps: it has been seen. */
void sweep_walk_moved(struct sweep_walk *walk, uint64_t word);
/* Walks for about `budget_ns`; true: it has been everywhere. */
bool sweep_walk_step(struct sweep_walk *walk, uint64_t budget_ns);
/* Has the walk seen pending slots whose blocks no live client has written? */
bool sweep_walk_pendings(const struct sweep_walk *walk);
/*
 * Empties those that are still the same, which is allowed at any time, and counts them; true: it is
 * through.
 */
bool sweep_walk_kill(struct sweep_walk *walk, uint64_t budget_ns, uint64_t *killed);

#endif
