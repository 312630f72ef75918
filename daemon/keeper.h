/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keeper.h - what a pool needs done beside the data path: the epoch, blocks that age, pages that
 * come back, counting
 *
 * docs/protocol.md section 6, its first point. In this version without counters, sweeps and
 * eviction. Runs in steps of about a millisecond on the main loop's timer.
 */
#ifndef TARN_DAEMON_KEEPER_H
#define TARN_DAEMON_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "log.h"

struct keeper;
struct pool;

struct keeper_blocks {
	uint64_t aged, in_use, retired;
};

struct keeper_stats {
	uint64_t epoch;
	uint64_t passes;                             /* complete walks over the page table */
	uint64_t blocks_aged;                        /* retired -> aged */
	uint64_t pages_partial;                      /* full -> partial */
	uint64_t pages_freed;                        /* full -> free */
	uint64_t pages_pushed;                       /* into a ready ring */
	uint64_t damaged;                            /* ring heads and page words that can't be */
	struct keeper_blocks blocks[LAYOUT_CLASSES]; /* in slabs of clients, full and partial pages;
							as of the last pass */
	uint64_t keys;        /* committed and frozen slots, as of the last count */
	uint64_t key_counts;  /* complete counts; 0: `keys` is not known yet */
	uint64_t keys_age_ns; /* time since that count */
};

int keeper_create(struct pool *pool, const struct log *log, struct keeper **ret_keeper);
void keeper_free(struct keeper *keeper);

/* One bounded step at time `now_ns` of clock_now_ns(); returns in how many nanoseconds the next one
 * is due. */
uint64_t keeper_step(struct keeper *keeper, uint64_t now_ns);
/*
 * A client found no page: look at some pages at once, taking every aged block. True if a page has
 * become partial or free. Bounded; does nothing when it has been called a moment ago.
 */
bool keeper_hurry(struct keeper *keeper, uint64_t now_ns);
/* Much may have changed (a client has ended): count the keys again soon, though not all the time.
 */
void keeper_count_soon(struct keeper *keeper);
/*
 * Blocks of this class, and whole pages of any class, that rest until T2 lets them be used again, as
 * of the last pass.
 */
uint64_t keeper_resting(const struct keeper *keeper, uint32_t class);
void keeper_get_stats(const struct keeper *keeper, uint64_t now_ns, struct keeper_stats *ret_stats);

#endif
