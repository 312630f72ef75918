/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * self.h - the daemon's own way to read and change a pool's memory
 *
 * The only place of the daemon that does so once clients can see the pool, since each word belongs
 * to the pool's atomic domain. In a cpu domain that is C11 atomics; in a nic domain CAS and FAA go
 * through the device, over the daemon's connection to itself (pool->self), and only words that no
 * client changes by CAS or FAA may be stored to. Offsets are the caller's affair: they are checked
 * by assert() alone, so one that comes from a client or from the pool has to be checked before
 * (layout.h).
 *
 * When pool->self fails, pool->self_lost is set and CAS and FAA do nothing until who owns the
 * connection (registration.c) has fenced all clients of the pool, and then has either made a new one
 * or taken pool->self away, and cleared the mark: as long as a NIC may still act, an instruction of
 * the CPU would not be atomic.
 */
#ifndef TARN_DAEMON_SELF_H
#define TARN_DAEMON_SELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

/* One of several CAS. */
struct self_change {
	uint64_t offset, compare, value;
	uint64_t seen; /* out: as self_cas() returns it */
};
#define SELF_CHANGES_MAX 64u

uint64_t self_load(const struct pool *pool, uint64_t offset);
/* Not for page words, slots, heads of ready rings, the page cursor: clients CAS or FAA them. */
void self_store(struct pool *pool, uint64_t offset, uint64_t value);
/*
 * The word as it was before. In a nic domain these wait for the device, at most as long as T3 lets
 * a request be late. When pool->self is lost, nothing happens, and CAS returns something else than
 * `compare`.
 */
uint64_t self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
uint64_t self_faa(struct pool *pool, uint64_t offset, uint64_t add);
/* Up to SELF_CHANGES_MAX CAS, which take effect in this order; a device has them all before one is waited for. */
void self_cas_many(struct pool *pool, struct self_change *changes, unsigned count);
/* Is a CAS waited for? Then many of them take little longer than one. */
bool self_is_far(const struct pool *pool);
/*
 * Waits until the device has done what it had accepted for the pool's memory before: one READ over
 * pool->self. To be called after a client's queue pair was fenced and before its state is touched.
 * 0, also where there is no pool->self; -TARN_ESESSION: pool->self is lost.
 */
int self_flush(struct pool *pool);
uint8_t self_load_byte(const struct pool *pool, uint64_t offset);
void self_store_byte(struct pool *pool, uint64_t offset, uint8_t value);
/* Whole words; each is read or written at once, all of them are not. */
void self_read(const struct pool *pool, uint64_t offset, void *ret_words, size_t bytes);
void self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes);

#endif
