/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alloc.h - inside of libtarn: the pages that this session owns and their blocks (docs/protocol.md
 * section 5)
 *
 * Blocks are handed out and taken back without network. A block is, for its owner, one of:
 * available, held (handed out, not yet published), published (the index reaches it; not tracked),
 * waiting (retired by this session, not yet usable). When a class has nothing available, claim.h
 * gets another page.
 */
#ifndef TARN_ALLOC_H
#define TARN_ALLOC_H

#include "session.h"

/* pages of one class that are kept although all they have is waiting blocks */
#define ALLOC_KEEP_PAGES 8u
/* operations of a session that claim pages of a class of one block at the same time, up to CLAIM_PAGES each */
#define ALLOC_CLAIMS 16u

struct alloc_block {
	uint64_t offset;
	uint32_t class;
	/*
	 * its free-map byte does not say "in use" yet: WRITE it along with the block, then clear
	 * this
	 */
	bool mark;
};

int alloc_create(struct tarn_session *session, struct alloc **ret_alloc);
void alloc_free(struct alloc *alloc);

/* Hands a block out. False: claim a page of this class first. */
bool alloc_take(struct alloc *alloc, uint32_t class, struct alloc_block *ret_block);
/*
 * The smallest class from this one on, a few steps up at most, that has blocks available; the class
 * itself: none. Never one of the counters'.
 */
uint32_t alloc_larger(const struct alloc *alloc, uint32_t class);
/* Is a block of this class there to be handed out; will one be when it has rested (T2)? */
bool alloc_has(const struct alloc *alloc, uint32_t class);
bool alloc_rests(const struct alloc *alloc, uint32_t class);
/*
 * One operation at a time claims a page of a class, for what it brings is enough for many; up to
 * ALLOC_CLAIMS where a page is one block. False: others are at it.
 */
bool alloc_claim_begin(struct alloc *alloc, uint32_t class);
/* `result`: 0, or the code of the claim's failure, which is kept for those that have waited for it. */
void alloc_claim_end(struct alloc *alloc, uint32_t class, int result);
int alloc_claim_result(const struct alloc *alloc, uint32_t class);
/* A held block was published: the index has it now. */
void alloc_publish(struct alloc *alloc, uint64_t offset);
/* A held block comes back that no slot ever named. */
void alloc_return(struct alloc *alloc, const struct alloc_block *block);
/* A held block comes back that a pending slot has named: others may still look at it. */
void alloc_retire_held(struct alloc *alloc, const struct alloc_block *block);
/*
 * A block that this session has made unreachable: it goes on the wait list (own page) or gets its
 * "retired" byte (another's page, and counters). An offset that cannot be a block of this class is
 * ignored: the pool is damaged there. Posts without waiting.
 */
void alloc_retire(struct alloc *alloc, uint64_t offset, uint32_t class);
/*
 * Pages that have nothing more to give are handed back. Called at the end of every write. Posts
 * without waiting.
 */
void alloc_settle(struct alloc *alloc);
/* Everything that can be is handed back; waiting blocks become "retired". */
void alloc_hand_back_all(struct alloc *alloc);
/* Pages of other classes than this one are handed back, as far as they can be. True: there were some. */
bool alloc_hand_back_others(struct alloc *alloc, uint32_t class);
/* Pages of classes that have handed out nothing since the last call are handed back. */
void alloc_hand_back_unused(struct alloc *alloc);
/*
 * The epoch was read by a READ that was posted at `posted_ns`: blocks that were waiting by then are
 * dated, and those whose time has come become available.
 */
void alloc_epoch(struct alloc *alloc, uint64_t epoch, uint64_t posted_ns);
/* Makes ready the WRITE of a free-map byte (*value lives until the post). */
struct fabric_request alloc_map_write(const struct alloc *alloc, uint64_t offset,
				      const uint8_t *value);
/*
 * After a claim's CAS: the page is ours. `map` is its part of the free map, NULL when all of it is
 * aged. -ENOMEM: hand it back.
 */
int alloc_adopt(struct alloc *alloc, uint32_t page, uint64_t word, const uint8_t *map);

/* For tests and stats. */
struct alloc_counts {
	uint32_t pages, available, held, waiting;
};
void alloc_count(const struct alloc *alloc, struct alloc_counts *ret_counts);
/* What is the block at this offset to this session? For the simulation's check of the pool. */
enum alloc_block_state { ALLOC_FOREIGN, ALLOC_AVAILABLE, ALLOC_WAITING, ALLOC_OTHER };
enum alloc_block_state alloc_block_state(const struct alloc *alloc, uint64_t offset);

#endif
