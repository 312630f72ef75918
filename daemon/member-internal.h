/* SPDX-License-Identifier: BSD-2-Clause */
/* member-internal.h - what the files of member.h share; nobody else's */
#ifndef TARN_DAEMON_MEMBER_INTERNAL_H
#define TARN_DAEMON_MEMBER_INTERNAL_H

#include <event2/event.h>

#include "member.h"
#include "daemon.h"

struct member_guest;
struct mover;

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
	/* ---- member-etcd.c ---- */
	const char *config_name; /* of the cluster */
	bool held;               /* the lease */
	bool fenced;             /* nobody is served since it was lost */
	bool none;               /* there is no map */
	bool planning;           /* a change of the map is being written */
	bool news;               /* map, leases or this member's record have changed */
	int complained;          /* what was logged last */
	struct membership_record *alive; /* who has a lease */
	unsigned int alive_count;
	struct event *tick;
	struct member_wish wishes[MEMBER_WISHES]; /* by their numbers */
	uint64_t wish_number;                     /* the last one */
	/* ---- member-mover.c; NULL: nothing is copied in this pool ---- */
	struct mover *mover;
	struct member_guest *guests; /* other members' movers, by their slots */
	bool waits;                  /* it was logged that clients of the daemon before are waited for */
	uint64_t held_ns;            /* CLOCK_BOOTTIME: since when this member's record has been there */
	/* member-leave.c: a map that is used if these shards have no keys; NULL: none */
	struct cluster_map *waiting;
	uint32_t *leaving, leaving_count;
};

/* The place of a name in the map, or -1. */
int member_find(const struct cluster_map *map, const char *name);
/* Is it one of this member's pool? 0, or -EINVAL with a text. */
int member_map_fits(const struct member *member, const struct cluster_map *map);
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


/* ---- member-mover.c ---- */

int member_mover_begin(struct member *member);
/* Nothing moves any more; who is connected stays known. */
void member_mover_end(struct member *member);
/* For struct handover_ops. */
void member_ask(struct member *member, const struct handover_ask *ask);
int member_copy(struct member *member, const struct handover_ask *attempt);
int member_bring(struct member *member);
void member_drop(struct member *member);
int member_cut(struct member *member, uint16_t from, uint64_t number);
/* Of a number in the map; NULL: nobody has it. */
const char *member_name(const struct member *member, uint16_t number);

/* ---- member-etcd.c ---- */

#define MEMBER_SHARDS 4096u /* of a new cluster */

/* Waits, in the loop, for a lease and a map; makes the first one. 0, or a negative code with a text. */
int member_etcd_open(struct member *member);
/* The pool is there: waits until the map has this member. The same. */
int member_etcd_join(struct member *member);
/* What membership tells. */
void member_etcd_map(struct member *member, const struct cluster_map *map);
void member_etcd_records(struct member *member, const struct membership_record *records, unsigned int count);
void member_etcd_lost(struct member *member, const char *why);
void member_etcd_regained(struct member *member);
/* Another weight, or addresses. */
void member_etcd_changed(struct member *member);
/* For struct handover_ops. */
int member_write(struct member *member, const struct handover_write *write);

#endif
