/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recover.h - a pool whose memory was there before: may it be opened, and what has to be finished
 *
 * docs/protocol.md section 7, "Restart of the daemon". Nothing that stands in the memory is believed
 * before it is checked: it may be of another release, for another configuration, damaged, or torn by a
 * crash of the host.
 */
#ifndef TARN_DAEMON_RECOVER_H
#define TARN_DAEMON_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

struct pool;

/* What a superblock's pool is to become. */
struct recover_wish {
	struct layout_plan plan; /* as for a new pool of this configuration */
	uint8_t host_boot_id[16];
	bool durable; /* the memory outlives the host: it may be torn */
};

/* What the atomic domain and the time rules become can not change under a client that uses them. */
enum recover_change { RECOVER_SAME, RECOVER_FENCE_FIRST };

/*
 * May the pool with this superblock (a copy) in `bytes` bytes be opened? 0, its geometry and whether
 * something changes for which nobody may have it mapped; -TARN_EVERSION, -TARN_ECORRUPT, -EINVAL (made for
 * another configuration) or -ESTALE (torn) with a text.
 */
int recover_check(const struct layout_superblock *superblock, uint64_t bytes,
		  const struct recover_wish *wish, struct layout_geometry *ret_geometry,
		  enum recover_change *ret_change);

struct recover_report {
	uint64_t pages;         /* of the pool */
	uint64_t orphans;       /* slabs whose owner is gone */
	uint64_t index_freed;   /* index pages that no directory entry names */
	uint64_t headers;       /* of buckets, that differed from the rest of their subtable */
	uint64_t thawed;        /* frozen slots */
	uint64_t cleared;       /* tombstones */
	uint64_t killed;        /* pending slots */
	uint64_t rings;         /* with impossible heads or tails */
	uint64_t damaged_pages; /* page words with an impossible state: left alone */
	uint64_t damaged_slots; /* slot words likewise */
};

/* Called now and then while recover_run() works. */
struct recover_progress {
	void (*step)(void *arg, uint64_t pages, uint64_t all);
	void *arg;
};

/*
 * Finishes what was half done: splits, frozen and pending slots, tombstones (in a pool of a cluster all shards' words
 * become "gone", and frozen slots stay: whose the shards are the map says, later); makes orphans of the slabs
 * of clients that are gone; empties the client table but for live ones. Before: geometry,
 * last_client_id and the unfenced clients of `pool` are set, nobody else can reach the memory, and there
 * is no keeper. May be repeated, also after it was broken off anywhere. progress: NULL: none. 0, or a
 * negative code with a text: -TARN_ECORRUPT when the index contradicts itself.
 */
int recover_run(struct pool *pool, const struct recover_progress *progress,
		struct recover_report *ret_report);

#endif
