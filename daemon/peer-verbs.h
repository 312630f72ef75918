/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer-verbs.h - one RDMA connection, from the connect request to its end
 *
 *	WAITING      in the listener's queue; nothing but the request is kept
 *	CONNECTING   checked and answered: it has a queue pair, a slot, and until ESTABLISHED 5 s
 *	CLIENT       it works; its messages are answered, its NIC is asked whether it lives
 *	FENCED       its queue pair refuses everything; the sweep ends it
 *
 * Main thread.
 */
#ifndef TARN_DAEMON_PEER_VERBS_H
#define TARN_DAEMON_PEER_VERBS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "admission.h"
#include "listen-verbs.h"
#include "pool.h"
#include "rdma.h"
#include "registration.h"
#include "rpc.h"

enum peer_verbs_state {
	PEER_VERBS_WAITING,
	PEER_VERBS_CONNECTING,
	PEER_VERBS_CLIENT,
	PEER_VERBS_FENCED,
	PEER_VERBS_STATES
};

struct peer_verbs {
	struct rdma_target target; /* first */
	struct admission_entry entry;
	TAILQ_ENTRY(peer_verbs) link;     /* of the listener */
	TAILQ_ENTRY(peer_verbs) closing;  /* of struct rdma */
	LIST_ENTRY(peer_verbs) by_number; /* of the registration */
	struct listener_verbs *listener;
	struct rdma_cm_id *id;
	enum peer_verbs_state state;
	uint64_t since_ns; /* in CONNECTING */
	uint32_t serial;
	char address[RDMA_ADDRESS_TEXT];
	/* the request */
	uint8_t request[WIRE_REQUEST_BYTES];
	uint8_t initiator_depth, responder_resources;
	/* from CONNECTING on */
	struct registration *registration;
	struct ibv_qp *qp;
	uint32_t qp_num;
	uint32_t place;    /* among the registration's buffers, without a shared queue */
	struct pool *pool; /* NULL: has no slot */
	struct rpc_client rpc;
	uint32_t replies;  /* sent, and not completed */
	bool probing;      /* a probe is under way */
	uint64_t probe_ns; /* since when */
	bool heard;        /* something has come from it since it was looked at last */
	bool established;
	char why[512]; /* FENCED */
};

/* A connect request; takes the id. The event is read and not kept. */
void peer_verbs_arrive(struct listener_verbs *listener, const struct rdma_cm_event *event);
/* Its turn has come: checks and answers it. */
void peer_verbs_begin(struct peer_verbs *peer);
/* Fences it at once; the sweep ends it. `why` goes to the log; level: enum log_level. */
void peer_verbs_end(struct peer_verbs *peer, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Destroys its queue pair, and sees to it that none of its completions is left. */
void peer_verbs_fence_for_good(struct peer_verbs *peer);
/* The sweep's part: frees the peer. */
void peer_verbs_finish(struct peer_verbs *peer);
/* A completion of its queue pair; `message`: received bytes, or NULL. */
void peer_verbs_completion(struct peer_verbs *peer, const struct ibv_wc *wc, const void *message);
/* An asynchronous event of its queue pair. */
void peer_verbs_async(struct peer_verbs *peer, enum ibv_event_type type);
/* Ten times a second: limits, and whether it lives. */
void peer_verbs_tick(struct peer_verbs *peer, uint64_t now, uint32_t tick);

#endif
