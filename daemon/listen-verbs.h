/* SPDX-License-Identifier: BSD-2-Clause */
/* listen-verbs.h - an RDMA listener, for what is behind it: peer-verbs.c, device.c, rdma.c */
#ifndef TARN_DAEMON_LISTEN_VERBS_H
#define TARN_DAEMON_LISTEN_VERBS_H

#include "admission.h"
#include "fabric.h"
#include "listen.h"
#include "rdma.h"
#include "registration.h"

enum listener_verbs_state {
	LISTENER_DOWN,        /* its address or device is not there: it tries again */
	LISTENER_BOUND,       /* at the start: waits for the pools */
	LISTENER_REGISTERING, /* a thread registers the pools with a device that has come back */
	LISTENER_UP
};

struct listener_verbs {
	struct listener listener;  /* first */
	struct rdma_target target; /* of its id */
	TAILQ_ENTRY(listener_verbs) link;
	struct rdma *rdma;
	enum listener_verbs_state state;
	struct rdma_cm_id *id;
	struct device *device; /* NULL when down */
	struct sockaddr_storage address;
	char text[RDMA_ADDRESS_TEXT]; /* the real one, also for port 0 */
	struct fabric_settings settings;
	struct admission admission;
	TAILQ_HEAD(, peer_verbs) peers;
	uint32_t peer_count, serial;
	struct event *retry;          /* to come up again, or to see whether all is as it was */
	struct registration_run *run; /* REGISTERING */
	struct event *run_done;
	char failure[512]; /* the last one, so that it is logged once */
	bool moved;        /* its address has gone to another device */
	bool added;        /* by a reload: what goes wrong later than binding is tried again */
	bool removed;      /* by a reload: goes when its last connection has */
	uint64_t accepted, refused[WIRE_REASON_LAST + 1], unanswered;
};

/* What was bound belongs to it no more; connections stay what they are. `why`: for people; NULL: they know. */
void listener_verbs_down(struct listener_verbs *listener, const char *why);
/* Something has changed: looks soon whether it is still where it was, or can come back. */
void listener_verbs_look(struct listener_verbs *listener);
/* Its last connection has gone, and it was removed before. */
void listener_verbs_free(struct listener_verbs *listener);
/* Gives those who wait their turn. */
void listener_verbs_next(struct listener_verbs *listener);
/* NULL: a unix socket. */
struct listener_verbs *listener_verbs_of(struct listener *listener);
/* ---- listen-verbs-memory.c ---- */

/* Is a pool offered there that its device does not have yet? */
bool listener_verbs_incomplete(const struct listener_verbs *listener);
/*
 * Registrations that a listener needs and that are not there, made without memory. The list has
 * room for all pools. Returns their number; -EBUSY: a thread is at it, for another listener.
 */
int listener_verbs_missing(struct listener_verbs *listener, struct registration **list);
/* Frees those that a thread has been at and that clients can not use: it has failed. */
void listener_verbs_unready_free(struct device *device);
/*
 * At the start all must work. Later what is missing is only said, and the listener comes up: who
 * connects is told to come again.
 */
int listener_verbs_open_all(struct device *device, bool start);
/* Before the pools are made: could their memory be locked? 0, or -ENOMEM with a text. */
int listeners_verbs_check(struct rdma *rdma);
/* After the pools are made: registers each one with the devices of its listeners, and waits for it.
 * 0, or a negative code with a text. */
int listeners_verbs_register(struct rdma *rdma);

#endif
