/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recycle.h - blocks that age, pages that come back: docs/protocol.md section 6, its first point
 *
 * A part of the keeper (keeper.h), as sweep.h, grow.h and evict.h are. Main thread.
 */
#ifndef TARN_DAEMON_RECYCLE_H
#define TARN_DAEMON_RECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper.h"
#include "layout.h"

struct pool;
struct recycle;

int recycle_create(struct pool *pool, struct recycle **ret_recycle);
void recycle_free(struct recycle *recycle);

/* One bounded step, if one is due; returns when the next one is, in the clock of time->now_ns. */
uint64_t recycle_step(struct recycle *recycle, const struct keeper_time *time);
/*
 * A client found no page for this class: look at some pages at once, taking every aged block. True if a
 * page has become partial or free. Bounded; does nothing when it has been called a moment ago.
 */
bool recycle_hurry(struct recycle *recycle, uint32_t class, const struct keeper_time *time);
/*
 * Does a client that stands still keep retired counters from ageing? How long is up to it: they are not
 * to be counted on.
 */
bool recycle_held_up(const struct recycle *recycle);
/*
 * Blocks of this class in pages that nobody owns, and whole pages of any class, that rest until T2 lets
 * them be used again, as of the last pass.
 */
uint64_t recycle_resting(const struct recycle *recycle, uint32_t class);
/* Are free pages few? As of the last pass. */
bool recycle_scarce(const struct recycle *recycle);
/* Free pages, as of the last pass. */
uint64_t recycle_free_pages(const struct recycle *recycle);
/* Full pages that will be free once all that is in them has rested, as of the last pass. */
uint64_t recycle_resting_pages(const struct recycle *recycle);
/* The class's blocks in pages that belong to no client, full and partial ones, as of the last pass. */
void recycle_get_spare(const struct recycle *recycle, uint32_t class,
		       struct recycle_blocks *ret_blocks);
/* Orphan pages, as of the last complete walk, and how many walks are complete. */
uint64_t recycle_orphans(const struct recycle *recycle);
uint64_t recycle_passes(const struct recycle *recycle);
/* Number, from 1, of the first walk that has not begun yet. */
uint64_t recycle_next_pass(const struct recycle *recycle);
/* sweep.c has written a page's map bytes. */
void recycle_changed(struct recycle *recycle, uint32_t page);
void recycle_get_stats(const struct recycle *recycle, struct recycle_stats *ret_stats);

#endif
