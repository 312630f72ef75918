/* SPDX-License-Identifier: BSD-2-Clause */
/* member-internal.h - what the files of member.h share; nobody else's */
#ifndef TARN_DAEMON_MEMBER_INTERNAL_H
#define TARN_DAEMON_MEMBER_INTERNAL_H

#include <event2/event.h>

#include "member.h"
#include "daemon.h"

struct member {
	struct daemon *daemon;
	const struct log *log;
	size_t pool_index;  /* of the cluster's pool, in the configuration and in daemon->pools */
	struct pool *pool;  /* NULL until it is made */
	struct membership *membership;
	struct membership_record self;
	bool fixed;              /* static membership: nothing can be written */
	struct cluster_map *map; /* in use; ours */
	uint64_t map_ms, map_changes;
	struct handover *handover;
	struct event *timer; /* of handover_step() */
	bool look;           /* membership's map may be another one than ours */
	/* member-leave.c: a map that is used if these shards have no keys; NULL: none */
	struct cluster_map *waiting;
	uint32_t *leaving, leaving_count;
};

/* NULL with a text. */
struct cluster_map *member_map_copy(const struct cluster_map *map);

/* ---- member-leave.c ---- */

/* As far as it is known now: has this member keys that a fixed map would take from it? 0, or -EINVAL with a text that names shard and
 * keys. */
int member_leave_check(const struct member *member, const struct cluster_map *next);
/*
 * Finds out. 0: it has none; negative with a text; 1: member_map_decided() will be called, and until then no other
 * map may come.
 */
int member_leave_begin(struct member *member, const struct cluster_map *next);
/* rc: 0, and the map is used; else it is refused, and err_text() says why. */
void member_map_decided(struct member *member, const struct cluster_map *map, int rc);

#endif
