/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * self.h - the daemon's own way to read and change a pool's memory
 *
 * The only place of the daemon that does so once clients can see the pool, since each word belongs
 * to the pool's atomic domain. In a cpu domain that is C11 atomics; in a nic domain it will be a
 * connection to itself. Offsets are the caller's affair: they are checked by assert() alone, so one
 * that comes from a client or from the pool has to be checked before (layout.h).
 */
#ifndef TARN_DAEMON_SELF_H
#define TARN_DAEMON_SELF_H

#include <stddef.h>
#include <stdint.h>

struct pool;

uint64_t self_load(const struct pool *pool, uint64_t offset);
void self_store(struct pool *pool, uint64_t offset, uint64_t value);
/* The word as it was before. */
uint64_t self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
uint64_t self_faa(struct pool *pool, uint64_t offset, uint64_t add);
uint8_t self_load_byte(const struct pool *pool, uint64_t offset);
void self_store_byte(struct pool *pool, uint64_t offset, uint8_t value);
/* Whole words; each is read or written at once, all of them are not. */
void self_read(const struct pool *pool, uint64_t offset, void *ret_words, size_t bytes);
void self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes);

#endif
