/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * free-map.h - the free-map bytes of a page's blocks: read at once, counted, aged
 *
 * For recycle.c, which looks at thousands of pages a second. Main thread.
 */
#ifndef TARN_DAEMON_FREE_MAP_H
#define TARN_DAEMON_FREE_MAP_H

#include <stdint.h>

struct pool;
struct free_map;

/* Blocks of a page, at most 4096 of them, by their byte; garbage counts as in use: better never used again. */
struct free_map_counts {
	uint16_t aged, in_use, retired;
};

/* NULL: out of memory. The pool must outlive it. */
struct free_map *free_map_create(struct pool *pool);
void free_map_free(struct free_map *map);

/* Reads the bytes of this page, which holds blocks of this class; the next two speak of what was read. */
void free_map_read(struct free_map *map, uint32_t page, uint32_t class);
struct free_map_counts free_map_count(const struct free_map *map);
/* Which blocks are "retired": free_map_bits_bytes() bytes, for free_map_age() alone to read. */
void free_map_get_retired(const struct free_map *map, uint64_t *ret_bits);
uint32_t free_map_bits_bytes(uint32_t class);
/*
 * Makes "aged" of what is in bits and still "retired", in the pool; returns how many. The page must be
 * full: only there nobody else writes these bytes.
 */
uint32_t free_map_age(struct pool *pool, uint32_t page, uint32_t class, const uint64_t *bits);

#endif
