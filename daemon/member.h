/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member.h - this daemon as a member of a cluster: [cluster] of its configuration (docs/protocol.md,
 * section 11)
 *
 * Main thread. member.c brings together who says what the map is (membership.h), which shards this member
 * has and how they come and go (handover.h), the pool that has them, and what its clients are told
 * (cluster-publish.h). member-stats.c has what people are told.
 */
#ifndef TARN_DAEMON_MEMBER_H
#define TARN_DAEMON_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster-map.h"
#include "config.h"
#include "handover.h"
#include "membership.h"
#include "mover.h"

struct member;
struct daemon;

/*
 * Before the pools are made: reads the map, and tells the place of the cluster's pool which shards and seed it has. *ret_member
 * is NULL without [cluster]. 0, or a negative code with a text that begins with file and line.
 */
int member_open(struct daemon *daemon, struct member **ret_member);
/* The pools are there, and nobody can connect yet: opens the shards that are this member's. 0 or a negative code with a text. */
int member_begin(struct member *member);
/* NULL is fine. */
void member_close(struct member *member);

/*
 * A reload, the last thing in it that can fail: reads the map again. 0, and the new one is in use from the next turn of the loop; or a
 * negative code with a text that begins with file and line, and all is as before. NULL: 0.
 */
int member_reload(struct member *member, const struct config *next);

/* Are clients served? Not while the lease is lost. NULL: yes. */
bool member_serves(const struct member *member);
/* The map that is in use. */
const struct cluster_map *member_map(const struct member *member);

/* ---- what operators wish, member-etcd.c ---- */

enum member_verb { MEMBER_DRAIN, MEMBER_UNDRAIN, MEMBER_REBALANCE, MEMBER_FORGET };
#define MEMBER_WISHES 16u /* so many last ones are known */

struct member_wish_begun {
	uint64_t number; /* to ask what has become of it; 0: nothing was asked for */
	uint64_t epoch;  /* of the map that it began with */
	uint64_t moving; /* shards that get another owner */
};
/*
 * Asks for a change of the map; `name` is a member, none for REBALANCE. Returns 1, and member_wish_find() tells what becomes of it; 0:
 * it is so already; with dry_run 1 or 0, and nothing is asked for; negative with a text: it can not be.
 */
int member_wish(struct member *member, enum member_verb verb, const char *name, bool dry_run,
		struct member_wish_begun *ret_begun);

struct member_wish {
	uint64_t number;
	bool done;
	enum handover_outcome outcome; /* when it is done; refused: somebody else has changed the map, ask again */
	char text[MEMBERSHIP_TEXT_MAX + 1];
};
/* NULL: it is not known any more. */
const struct member_wish *member_wish_find(const struct member *member, uint64_t number);

/* ---- for people, member-stats.c ---- */

struct member_stats {
	const struct cluster_map *map;
	const char *member, *pool; /* this one's */
	uint16_t number;
	enum cluster_state state;
	uint64_t map_ms;      /* wall clock when it was seen first */
	uint64_t map_bytes;   /* as clients get it */
	uint64_t map_changes; /* since the start */
	bool confirmed;       /* is it known when the map was the newest? */
	uint64_t age_ns;      /* since then */
	uint64_t bound_ns;    /* map_bound, as it was at the start */
	uint64_t members[CLUSTER_STATES];
	uint64_t shards, moving; /* of the cluster */
	uint64_t nobodys, downs; /* without owner, and of owners that are down: unavailable */
	struct handover_stats handover;
	struct mover_stats mover;
	struct membership_state membership;
};

/* Valid until the loop goes on. */
void member_get_stats(const struct member *member, struct member_stats *ret_stats);

struct member_peer_stats {
	const struct cluster_member *member;
	bool self;
	uint64_t shards, outgoing, incoming; /* owned; by the map's moves */
	char boot_id[17]; /* of its record, in hexadecimal; "": it is not known */
};

/* The i-th of the map. False: there are no more. */
bool member_get_peer(const struct member *member, size_t i, struct member_peer_stats *ret_stats);

#endif
