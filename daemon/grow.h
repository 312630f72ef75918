/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grow.h - the index grows: which subtable is split when (split.h: how)
 *
 * A part of the keeper (keeper.h). docs/protocol.md section 8. Ahead of need, by the load of a
 * sample of each subtable's slots; on request of a client that found no slot; never two splits at a
 * time. Main thread.
 */
#ifndef TARN_DAEMON_GROW_H
#define TARN_DAEMON_GROW_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper.h"
#include "layout.h"
#include "log.h"

struct grow;
struct pool;

int grow_create(struct pool *pool, const struct log *log, struct grow **ret_grow);
void grow_free(struct grow *grow);
/* One bounded step, if one is due; returns when the next one is, in the clock of time->now_ns. */
uint64_t grow_step(struct grow *grow, const struct keeper_time *time);
void grow_get_stats(const struct grow *grow, struct grow_stats *ret_stats);

/*
 * A client found no slot for a key with this hash in a subtable of this depth. 0: it will be split,
 * or has been, or a slot has become empty: look again in a moment; -TARN_EINDEXFULL: max_depth is
 * reached; -TARN_EPOOLFULL: no page is free for a new subtable.
 */
int grow_request(struct grow *grow, struct layout_hash hash, uint32_t depth);

/* Is a split under way? */
bool grow_active(const struct grow *grow);
/* Likewise, and of which subtable. */
bool grow_splits(const struct grow *grow, uint32_t *ret_suffix, uint32_t *ret_depth);

/*
 * A new daemon on a pool that is kept, before there is a keeper: finishes splits that are half done.
 * Afterwards all directory entries are valid and agree. What a split leaves (tombstones, the flag
 * "filled") is left, for grow_step() to clear when no READ of before can be under way. Index pages that
 * no directory entry names may be left, too. 0, or -TARN_ECORRUPT or -ENOMEM with a text.
 */
int grow_recover(struct pool *pool);

#endif
