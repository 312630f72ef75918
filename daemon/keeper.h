/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keeper.h - what a pool needs done beside the data path: the epoch, recycling, counting, and who
 * does which when
 *
 * docs/protocol.md sections 6 to 8. The keeper calls its parts (recycle.h and others) in turn, each
 * for a bounded step, on the main loop's timer, so that nothing else of the daemon waits for long and
 * no two of them are ever at work at once.
 */
#ifndef TARN_DAEMON_KEEPER_H
#define TARN_DAEMON_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "auth.h"
#include "layout.h"
#include "log.h"
#include "wire.h"

struct keeper;
struct pool;
struct shards;

/* What each step of each part is told. */
struct keeper_time {
	uint64_t now_ns; /* clock_now_ns() */
	uint64_t epoch;  /* the pool's: what the keeper has written last, whatever stands there */
};

struct recycle_blocks {
	uint64_t aged, in_use, retired;
};

struct recycle_stats {
	uint64_t passes;        /* complete walks over the page table */
	uint64_t blocks_aged;   /* retired -> aged */
	uint64_t pages_partial; /* full -> partial */
	uint64_t pages_freed;   /* full -> free */
	uint64_t pages_pushed;  /* into a ready ring */
	uint64_t damaged;       /* ring heads and page words that can't be */
	struct recycle_blocks blocks[LAYOUT_CLASSES]; /* in slabs of clients, full and partial pages;
							 as of the last pass */
};

enum sweep_state { /* docs/protocol.md section 6, the sweep's three steps */
	SWEEP_IDLE,
	SWEEP_PAGES,  /* (1) page words and maps */
	SWEEP_WALK,   /* (1) the index */
	SWEEP_SAMPLE, /* (1) the quiescence counts */
	SWEEP_WAIT,   /* (2) */
	SWEEP_FREE,   /* (3) */
};

struct sweep_stats {
	uint64_t sweeps;      /* over the whole pool */
	uint64_t batches;     /* of pages: as much as the sweep's memory holds */
	uint64_t worked_ns;   /* by the last whole sweep */
	uint64_t leaked_blocks, leaked_bytes; /* found and freed */
	uint64_t orphans_freed;               /* pages: orphan -> full */
	uint64_t pendings_killed;             /* slots that dead clients had left pending */
	enum sweep_state state;
	bool soon;                 /* somebody has died: the sweep is under way for that, or soon */
	uint64_t waiting_ns;       /* in SWEEP_WAIT */
	uint32_t waits_for_client; /* one that holds it up; 0: nobody */
	uint32_t waits_for_pid;
	char waits_for_name[32];
};

struct grow_stats {
	uint64_t splits; /* done */
	bool under_way;
	uint64_t doublings;      /* of the directory */
	uint64_t slots_moved;
	uint64_t frozen_retries; /* a slot was changed by a client just before it was frozen */
	uint64_t requests;       /* of clients that found no slot, and were true */
	uint64_t refused;        /* no page, or max_depth reached */
	uint64_t damaged;        /* entries and slots that can't be */
	uint64_t resting;        /* subtables with tombstones */
	uint64_t subtables;
	uint64_t load_permille; /* of those that the round under way has not come to: as of the last one */
	/* as of the last round over all subtables */
	uint32_t depth_min, depth_max;
	uint32_t global_depth, max_depth;
};

struct expire_stats {
	uint64_t walks;  /* over the whole index */
	uint64_t age_ns; /* time since the last of them ended; what follows is as of it */
	uint64_t keys;
	uint64_t bytes;   /* of keys and values */
	uint64_t damaged; /* slots whose block can't be */
	/* in all */
	uint64_t expired, expired_bytes; /* keys; memory that came back by them */
};

struct evict_stats {
	uint64_t evicted, evicted_bytes; /* keys; memory that came back by them */
	uint64_t pages_emptied;          /* for another size */
	uint64_t waits;                  /* a client found no page and had to wait, or gave up */
	uint32_t ahead_percent;          /* of each size's memory is kept aged or resting */
	bool active;
};

/* Of an access key. */
struct quota;

struct quota_stats {
	char key_id[WIRE_KEY_ID_BYTES + 1];
	struct layout_quota quota; /* 0: none */
	struct layout_quota used;
	uint64_t limits; /* bits of enum layout_limit: what is used up */
};

struct keeper_stats {
	uint64_t epoch;
	uint64_t keys;        /* committed and frozen slots, as of the last count */
	uint64_t key_counts;  /* complete counts; 0: `keys` is not known yet */
	uint64_t keys_age_ns; /* time since that count */
	struct recycle_stats recycle;
	struct expire_stats expire;
	struct evict_stats evict;
	const struct quota_stats *quotas; /* until the next call */
	uint32_t quota_count;
	struct grow_stats grow;
	struct sweep_stats sweep;
};

int keeper_create(struct pool *pool, const struct log *log, struct keeper **ret_keeper);
void keeper_free(struct keeper *keeper);

/* One bounded step at time `now_ns` of clock_now_ns(); returns in how many nanoseconds the next one
 * is due. */
uint64_t keeper_step(struct keeper *keeper, uint64_t now_ns);
/* For the simulation: so many epochs pass in which nothing else is done. */
void keeper_skip(struct keeper *keeper, uint64_t epochs);
/* How many steps it has made, and until when it has nothing to do: it is stuck when the number stands still after that. */
uint64_t keeper_steps(const struct keeper *keeper, uint64_t *ret_due_ns);
/*
 * A client found no page for blocks of this class: look at some pages at once, taking every aged block,
 * and evict more in a cache pool. True if a page has become partial or free. Bounded; looks at nothing
 * when it has been called a moment ago.
 */
bool keeper_hurry(struct keeper *keeper, uint32_t class, uint64_t now_ns);
/* Much may have changed (a client has ended): count the keys again soon, though not all the time.
 */
void keeper_count_soon(struct keeper *keeper);
/* Number, from 1, of recycle.c's first walk over all pages that has not begun yet. */
uint64_t keeper_next_pass(const struct keeper *keeper);
/* Walks over all pages that are complete. */
uint64_t keeper_passes(const struct keeper *keeper);
/* Number of the first walk that has not begun yet and leaves no page out. */
uint64_t keeper_sure_pass(const struct keeper *keeper);
/* A client is new in this slot. */
void keeper_client_new(struct keeper *keeper, uint32_t slot);
/* pool->keys will be these: what can fail, 0 or -ENOMEM; to be freed by quota_free() or given to the other. */
int keeper_keys_prepare(const struct keeper *keeper, const struct auth_keys *keys,
			struct quota **ret_quota);
/* Now they are, in the same turn of the main loop. */
void keeper_keys_commit(struct keeper *keeper, struct quota *quota);
/* A client has died and left something behind: find it soon. */
void keeper_sweep_soon(struct keeper *keeper);
/*
 * Blocks of this class, and whole pages of any class, that rest until T2 lets them be used again, as
 * of the last pass; and 1 for what can still be evicted. To be asked after keeper_hurry().
 */
uint64_t keeper_resting(const struct keeper *keeper, uint32_t class);
/* grow_request(): a client found no slot. */
int keeper_grow(struct keeper *keeper, struct layout_hash hash, uint32_t depth);
/* Of a pool of a cluster; NULL: it is of none. */
struct shards *keeper_shards(const struct keeper *keeper);
/* Is a split under way? Of which subtable. */
bool keeper_splits(const struct keeper *keeper, uint32_t *ret_suffix, uint32_t *ret_depth);
/* Free pages, as of the last pass. */
uint64_t keeper_free_pages(const struct keeper *keeper);
/* A split is about to move this slot word to another slot: the sweep must not miss it. */
void keeper_moved(struct keeper *keeper, uint64_t word);
void keeper_get_stats(const struct keeper *keeper, uint64_t now_ns, struct keeper_stats *ret_stats);

#endif
