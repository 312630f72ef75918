/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mover.h - the connection to the member that shards are handed over to, and the thread that copies through it
 *
 * What handover.h's ask, copy, bring and drop do at the source (docs/protocol.md section 11). One attempt at a time, with a connection
 * of its own: by it the target is asked whether it is ready, and by it alone keys are put there. If it is lost the attempt is to be
 * given up; it is never made again for the same copy. All functions: main thread, none blocks but mover_free().
 */
#ifndef TARN_DAEMON_MOVER_H
#define TARN_DAEMON_MOVER_H

#include <event2/event.h>

#include "auth.h"
#include "cluster-map.h"
#include "handover.h"
#include "shard-copy.h"

struct mover;
struct pool;

/* Told from the loop, never from within a call; texts are valid during the call. */
struct mover_events {
	void (*answered)(void *arg, uint64_t number, enum handover_answer answer, uint64_t boot_id);
	/* A copy, or what has changed since, has ended: once for each mover_copy() and mover_bring(). text: why it has failed. */
	void (*copied)(void *arg, int result, const char *text);
	/* The connection of this attempt has ended by itself, while nothing was copied. */
	void (*lost)(void *arg, uint64_t number, const char *text);
	/* The target can not be asked. */
	void (*unreachable)(void *arg, const char *text);
};

/* Who is asked. Copied. */
struct mover_target {
	struct cluster_address addresses[CLUSTER_ADDRESSES_MAX];
	uint32_t address_count;
	char pool[WIRE_POOL_NAME_MAX + 1];
	uint64_t cluster; /* cluster_hash() */
	bool has_key;
	struct auth_key key;
};

struct mover_stats {
	uint64_t keys, bytes; /* put at other members, since the start */
};

/* The pool has to outlive it. 0, or a negative code with a text. */
int mover_create(const struct pool *pool, struct event_base *base, const struct mover_events *events, void *arg,
		 struct mover **ret_mover);
/* Ends the thread: waits for what it is just doing, seconds if the target does not answer. NULL is fine. */
void mover_free(struct mover *mover);

/* Bytes a second in the first pass, at most; 0: no limit. */
void mover_set_rate(struct mover *mover, uint64_t bytes_per_second);

/* Asks the target of the attempt, connected before; a question that is under way, or a copy, is not disturbed. */
void mover_ask(struct mover *mover, const struct mover_target *target, const struct handover_ask *ask);
/* Steps 2 and 4 of the attempt that was answered "ready". When the second one has ended well, the connection is ended, too. */
void mover_copy(struct mover *mover, const struct handover_ask *attempt);
void mover_bring(struct mover *mover);
/* The attempt is over. */
void mover_drop(struct mover *mover);

void mover_get_stats(struct mover *mover, struct mover_stats *ret_stats);

#endif
