/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-world.h - a region in plain memory, and parties that use it at the same time, for test-sync
 *
 * Each party runs in a fiber of its own. Another one may have its turn in front of every word that is read or written,
 * and in front of every atomic operation. What may happen besides, by the world's `faults`:
 *	FAULT_STALL  a party stands still, for a while of up to stall_ns
 *	FAULT_KILL   a party is gone, at any word, and comes back later as a new one
 *	FAULT_AWAY   a call ends with -TARN_ESESSION, and has done nothing: there is no connection; often behind a FAULT_LATE
 *	FAULT_LATE   a call that writes ends with -TARN_EAMBIGUOUS: what was left of it happens up to late_ns later, in
 *	             order, or never; likewise what a killed party had under way
 * Time is simulated; each party's clock is wrong by up to 5 %, and begins anywhere. Reads and writes of several words
 * come in rising or falling order, or begin in the middle.
 */
#ifndef TARN_SYNC_WORLD_H
#define TARN_SYNC_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/sync.h>

#include "fiber.h"

#define WORLD_PARTIES 8u
#define WORLD_WORDS   4096u
#define WORLD_LATE    1024u
#define WORLD_KILLS   40u /* in one schedule: it has to come to an end */

#define FAULT_STALL 1u
#define FAULT_KILL  2u
#define FAULT_LATE  4u
#define FAULT_AWAY  8u

struct world;

struct tarn_region {
	struct world *world;
	unsigned party;
};

struct party {
	struct tarn_region region;
	struct fiber *fiber;
	void (*work)(struct party *party);
	void *handle; /* of what is tested, closed by `close` when the party ends */
	void (*close)(void *handle);
	unsigned number, life; /* how often it was killed */
	bool running, begun, killed;
	uint64_t wake_ns; /* does nothing before */
	uint64_t clock_base;
	int64_t clock_ppm;
	bool waits; /* for a notification */
	bool opening; /* no faults */
	bool cut;     /* its last access was ambiguous */
	/* the call that is under way */
	struct tarn_region_op *ops;
	size_t count, op, word;
};

/* One word of what arrives late. */
struct late {
	uint64_t due_ns, index, compare, value;
	bool cas;
	bool faa;
};

struct world {
	uint64_t words[WORLD_WORDS];
	uint64_t now_ns, sequence, random;
	unsigned faults;
	uint64_t stall_ns, late_ns;
	uint64_t away_ns; /* at the longest without a connection, in front of an access */
	unsigned rare; /* a fault in one of so many steps */
	struct party parties[WORLD_PARTIES];
	unsigned count;
	struct party *current;
	unsigned killed;
	unsigned turn; /* so many steps more of the current party */
	struct late late[WORLD_LATE];
	size_t late_count;
	uint64_t steps, kills, lates, stalls, silent_waits;
	bool chaos; /* faults happen; off for the end of a schedule */
	/* called before a party is dropped, and after each word that changes; may be NULL */
	void (*on_kill)(struct party *party);
	void (*on_change)(struct world *world, uint64_t index, uint64_t before, uint64_t after);
	void *test;
	char failure[256];
};

void world_reset(struct world *world, uint64_t seed);
void world_free(struct world *world);
/* A party begins, `after_ns` from now. It goes on until its work returns. */
struct party *world_add(struct world *world, void (*work)(struct party *party), uint64_t after_ns);
/* Until all parties are done, or `limit_ns` has passed, which is a failure. */
void world_run(struct world *world, uint64_t limit_ns);
/* No party runs any more; what is late has arrived. */
void world_settle(struct world *world);
uint64_t world_random(struct world *world);
void world_fail(struct world *world, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* In a party: */
/* Opens p->handle. To open only reads, so nobody is killed meanwhile, and nothing leaks. */
void world_open(struct party *party, int (*open)(struct party *party, void **ret_handle),
		void (*close)(void *handle));
void party_sleep_ns(struct party *party, uint64_t ns);
/* What `party`'s clock shows; for calls from outside of it, until the next call of this. */
void world_as(struct world *world, struct party *party);

/* ---- what is tested: a schedule each; false: world->failure says what is wrong ---- */
void sync_lock_schedule(struct world *world, uint64_t seed);
void sync_queue_schedule(struct world *world, uint64_t seed);
void sync_barrier_schedule(struct world *world, uint64_t seed);
void sync_epoch_schedule(struct world *world, uint64_t seed);

#endif
