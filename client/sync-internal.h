/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-internal.h - inside of libtarn: what locks, queues, barriers and epoch counters share
 *
 * Each is some memory of a region. Its first word is the configuration, which also says what it is:
 *
 *	bits 52..63 SYNC_MAGIC | 48..51 enum sync_kind | 0..47 parameters
 *
 * and is all that init writes, by one CAS: so it does not matter how many do it at once, or whether one of them
 * is killed. All other words begin as the zeros that a new region has. docs/sync.md has the layouts.
 */
#ifndef TARN_SYNC_INTERNAL_H
#define TARN_SYNC_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <tarn/sync.h>

#define SYNC_MAGIC           0x7a5ull
#define SYNC_PARAMETERS_BITS 48
#define SYNC_WORD_MAX        (1ull << 60) /* what counts upwards never comes so far: more is damage */
#define SYNC_TRIES           4u           /* of what is ambiguous, before the caller is told so */
#define SYNC_TIMEOUT_MAX_MS  3600000u

enum sync_kind {
	SYNC_LOCK = 1,
	SYNC_QUEUE = 2,
	SYNC_QUEUE_SINGLE = 3, /* one producer */
	SYNC_BARRIER = 4,
	SYNC_EPOCH = 5
};

/* Offset of the word that says that somebody sleeps, the same for all kinds. Queues have a second one. */
#define SYNC_SLEEPS        8u
#define SYNC_SLEEPS_SECOND 16u

/* Is there room for `bytes` at the offset, a multiple of 8? */
int sync_check_place(const struct tarn_region *region, uint64_t offset, uint64_t bytes);
int sync_check_lease(uint32_t lease_ms);
/* Makes it; `bytes`: how much of it has to be zeros. Fine if it is there already, with the same parameters. */
int sync_init(struct tarn_region *region, uint64_t offset, size_t bytes, enum sync_kind kind,
	      uint64_t parameters);
/* What it is, and its parameters. */
int sync_open(struct tarn_region *region, uint64_t offset, enum sync_kind *ret_kind,
	      uint64_t *ret_parameters);
/* -TARN_ENOTFOUND or -TARN_ECORRUPT for what was found in place of what was wanted. */
int sync_wrong_kind(enum sync_kind kind, const char *wanted);

/*
 * How long a waiter has to see the same word until its owner, whose clock is another one, knows for sure that the
 * lease is over: clocks that are wrong by 5 %, one too slow, the other too fast, ask for 1.05 / 0.95 = 1.106.
 */
static inline uint64_t sync_patience_ns(uint64_t lease_ns)
{
	return lease_ns + lease_ns / 8 + 1000000;
}

/* One call that waits: it tries, and calls sync_pause() as long as that does not work. */
struct sync_wait {
	struct tarn_region *region;
	uint64_t sleeps_offset; /* of the word that is 1 while somebody sleeps */
	uint64_t *sequence;     /* the last notification known of */
	uint64_t *random;
	uint64_t end_ns, pause_ns;
	uint64_t due_ns; /* when something is to be done without being woken; 0: never */
	bool armed;
	const char *what; /* what is waited for, for the error text */
};

/* Its end is timeout_ms from now. */
int sync_wait_begin(struct sync_wait *wait, uint32_t timeout_ms);
/* 0: try again; -TARN_ETIMEOUT, or another error. */
int sync_pause(struct sync_wait *wait);
/* Wakes those who sleep, if `sleeps` (as it was read after the change) says that there are some. */
void sync_wake(struct tarn_region *region, uint64_t sleeps_offset, uint64_t sleeps);

static inline struct tarn_region_op sync_op_read(uint64_t offset, void *buffer, uint64_t bytes)
{
	return (struct tarn_region_op){
		.kind = TARN_REGION_READ, .offset = offset, .buffer = buffer, .bytes = bytes};
}

/* A write does not change what it is given, but the member can not be const. */
static inline struct tarn_region_op sync_op_write(uint64_t offset, const void *data, uint64_t bytes)
{
	return (struct tarn_region_op){.kind = TARN_REGION_WRITE,
				       .offset = offset,
				       .buffer = (void *)(uintptr_t)data,
				       .bytes = bytes};
}

static inline struct tarn_region_op sync_op_cas(uint64_t offset, uint64_t compare, uint64_t swap)
{
	return (struct tarn_region_op){
		.kind = TARN_REGION_CAS, .offset = offset, .compare = compare, .operand = swap};
}

#endif
