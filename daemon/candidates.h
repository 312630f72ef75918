/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * candidates.h - blocks that may have leaked: what sweep.c has noted of pages, and what the index
 * does not reach of it
 *
 * Bounded memory: a batch of pages at a time. Main thread.
 */
#ifndef TARN_DAEMON_CANDIDATES_H
#define TARN_DAEMON_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct candidates;
struct pool;

enum candidates_result {
	CANDIDATES_ADDED,
	CANDIDATES_NOTHING, /* no block of the page is "in use" */
	CANDIDATES_FULL,    /* the batch is */
};

/* Takes at most about `bytes` and 4 for each page of the pool; NULL: no memory. */
struct candidates *candidates_create(const struct pool *pool, uint64_t bytes);
void candidates_free(struct candidates *candidates);

/*
 * Notes a page's blocks that are "in use". `word`: the page word, read before; a page for its own sake
 * (an orphan) is noted also without such blocks.
 */
enum candidates_result candidates_add(struct candidates *candidates, uint32_t page, uint64_t word);
/* The index reaches the block at this offset, which is a possible place for a block of this class. */
void candidates_strike(struct candidates *candidates, uint64_t offset, uint32_t class);
/* False: the page was not noted. */
bool candidates_word(const struct candidates *candidates, uint32_t page, uint64_t *ret_word);
/* Is the block number `block` of a noted page left over? */
bool candidates_left(const struct candidates *candidates, uint32_t page, uint32_t block);
bool candidates_any_left(const struct candidates *candidates, uint32_t page);

#endif
