/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * membership-etcd.h - what the files of membership by etcd share
 *
 *	membership-etcd.c          the interface, writes
 *	membership-etcd-read.c     map and records: questions that confirm the map, the watch
 *	membership-etcd-lease.c    the lease, this member's record, fencing
 *	membership-etcd-client.c   calls over HTTP;  -tls.c: certificates;  -message.c: JSON
 */
#ifndef TARN_DAEMON_MEMBERSHIP_ETCD_H
#define TARN_DAEMON_MEMBERSHIP_ETCD_H

#include <sys/queue.h>

#include "membership-backend.h"
#include "membership-etcd-client.h"
#include "membership-etcd-message.h"

#define ETCD_SECOND_NS UINT64_C(1000000000)

/* A record in etcd, and the revision that wrote it. */
struct etcd_member {
	struct membership_record record;
	uint64_t revision;
};

/* What an error is about, so that one does not hide the other. */
enum etcd_about { ETCD_ABOUT_LEASE, ETCD_ABOUT_MAP, ETCD_ABOUT_ASKING };
#define ETCD_ABOUTS 3

enum etcd_lease_step {
	ETCD_LEASE_NONE,     /* ask for one */
	ETCD_LEASE_GRANTED,  /* write the record */
	ETCD_LEASE_RECORDED, /* look at the map, as it is now */
	ETCD_LEASE_HELD,     /* the caller knows */
};

struct etcd_lease {
	enum etcd_lease_step step;
	uint64_t id, ttl_ns;        /* 0: none */
	uint64_t sent_ns;           /* of the question that was answered last */
	uint64_t asked_ns;          /* of the one under way */
	uint64_t record_revision;   /* of our record, when we last saw it; 0: none */
	bool record_again;          /* what it says has changed */
	struct etcd_call *call;
	struct event *timer;        /* the next step */
	int fence_fd;               /* a timer of CLOCK_BOOTTIME */
	struct event *fence;
	unsigned int failures;      /* in a row */
};

struct etcd_write {
	TAILQ_ENTRY(etcd_write) link;
	struct etcd *etcd;
	struct etcd_call *call; /* NULL: it is refused without asking */
	struct event *turn;
	char text[MEMBERSHIP_TEXT_MAX + 1];
	void (*done)(void *arg, enum membership_outcome outcome, const char *text);
	void *arg;
};

struct etcd {
	struct membership membership; /* the first */
	struct etcd_client *client;
	struct membership_record self;
	char cluster[CLUSTER_NAME_MAX + 1];
	char *prefix, *prefix_end, *map_key, *member_key; /* PREFIX/CLUSTER/... */
	uint64_t bound_ns, ttl_ns; /* as configured */
	uint64_t cluster_id;       /* of the etcd that answered first; 0: none yet */
	uint64_t revision;         /* the highest that was seen */
	uint64_t requests, failures, fenced;
	bool connected;
	char errors[ETCD_ABOUTS][MEMBERSHIP_TEXT_MAX + 1]; /* "": it is all right now */
	char logged[MEMBERSHIP_TEXT_MAX + 1];
	uint64_t logged_ns;

	/* map and records */
	struct cluster_map *map;
	uint64_t confirmed_ns;
	bool none_told;        /* that there is no map */
	uint64_t bad_revision; /* of a map that can not be used */
	struct etcd_member *members;
	size_t member_count;
	bool members_told;      /* once */
	struct etcd_call *read;
	bool read_all;          /* the one under way asks for everything */
	bool all_next;          /* the next one is to */
	bool read_again;        /* at once */
	uint64_t read_sent_ns;
	unsigned int reads, read_failures;
	struct event *read_timer;
	struct etcd_call *watch;
	uint64_t watch_from, listed_revision; /* 0: not known */
	unsigned int watch_failures;
	struct event *watch_timer;

	struct etcd_lease lease;
	TAILQ_HEAD(, etcd_write) writes;
};

/* ---- membership-etcd.c ---- */

/*
 * What has come of a question: an answer to be freed, or what is wrong is noted, and logged once; the next endpoint is asked then, if
 * it can be this one's fault. *ret_code: gRPC's, or ETCD_UNAVAILABLE. Any answer counts for `connected`.
 */
int etcd_reply_take(struct etcd *etcd, const struct etcd_reply *reply, struct etcd_answer *ret_answer, uint64_t *ret_code);
/* Notes an error; logs it unless that was said a moment ago. */
void etcd_complain(struct etcd *etcd, enum etcd_about about, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* How long until the next try, when so many have failed in a row. */
struct timeval etcd_pause(const struct etcd *etcd, unsigned int failures);
struct timeval etcd_timeval(uint64_t ns);
/* For a short question, in ms. */
unsigned int etcd_limit_ms(const struct etcd *etcd);

/* ---- membership-etcd-read.c ---- */

int etcd_read_create(struct etcd *etcd);
void etcd_read_free(struct etcd *etcd);
/* As soon as may be: everything. */
void etcd_read_now(struct etcd *etcd);
/* Of this name; NULL: it has none. */
const struct etcd_member *etcd_member_find(const struct etcd *etcd, const char *name);

/* ---- membership-etcd-lease.c ---- */

int etcd_lease_create(struct etcd *etcd);
void etcd_lease_free(struct etcd *etcd);
/* Everything was read, and is told. */
void etcd_lease_read(struct etcd *etcd);
/* Records have changed: is ours among them still? */
void etcd_lease_records(struct etcd *etcd);
/* This member's record says something else. */
void etcd_lease_record_again(struct etcd *etcd);
/* Is it held, by the clock? If it has just run out, the caller is told first. */
bool etcd_lease_held(struct etcd *etcd);
/* Until this member fences itself, 0: it has. */
uint64_t etcd_lease_left_ns(const struct etcd *etcd);

#endif
