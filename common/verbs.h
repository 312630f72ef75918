/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - what client and daemon share of libibverbs and librdmacm
 *
 * Queue pairs are made with ibv_create_qp and brought up by hand (rdma_cm_id.qp stays NULL), so
 * that access rights, ack timeout, path MTU, service level and GID are ours to decide and not
 * rdma_cm's: verbs_qp_init(), verbs_qp_connect(). Texts for people: verbs-text.c. Nothing here
 * keeps state, but for verbs_context_hold(). Next: fabric-verbs.c (the client's endpoint),
 * daemon/listen-verbs.c.
 */
#ifndef TARN_VERBS_H
#define TARN_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "fabric.h"
#include "wire.h"

/* ---- the time rule T3 (docs/protocol.md section 3) ------------------------------------------- */

#define VERBS_ACK_TIMEOUT 11u /* 4.096 us * 2^11 = 8.4 ms */
/*
 * Not 7, which soft-RoCE takes for "for ever", against T3 (rxe_completer() counts down from anything
 * but 7); verbs_qp_connect() makes 6 of it.
 */
#define VERBS_RETRIES     6u
#define VERBS_RETRIES_MAX 6u
/*
 * A receiver without a buffer is asked again VERBS_RNR_RETRIES times (7 would be: for ever, against
 * T3), each time after the time that VERBS_RNR_TIMER stands for (1.28 ms).
 */
#define VERBS_RNR_RETRIES 6u
#define VERBS_RNR_TIMER   14u

/* How late a request may take effect at most: 4 * ack timeout * (retries + 1). */
uint64_t verbs_late_ns(unsigned ack_timeout, unsigned retries);
/*
 * The ack timeout and retries to use in a pool with this D and G: what the settings say if that
 * keeps T3, or -EINVAL with a text that names the value, the largest allowed and the rule; where
 * they say nothing, the default, lowered until it keeps T3.
 */
int verbs_timeout_choose(const struct fabric_settings *settings, uint64_t deadline_ns,
			 uint64_t grace_ns, unsigned *ret_ack_timeout, unsigned *ret_retries);

/* ---- devices --------------------------------------------------------------------------------- */

struct verbs_device {
	struct ibv_context *context; /* librdmacm's, or opened by the caller; not owned */
	struct ibv_device_attr attr;
	uint8_t port;
	struct ibv_port_attr port_attr;
	bool iwarp;
	bool atomics;  /* reports IBV_ATOMIC_HCA or IBV_ATOMIC_GLOB */
	int numa_node; /* -1: unknown */
	const char *name;
};

/* 0, or a negative code with a text. */
int verbs_device_query(struct ibv_context *context, uint8_t port, struct verbs_device *ret_device);
/*
 * Is there RDMA on this machine at all? 0, or -ENODEV, -EACCES, -ENOSYS with a text that says what
 * is missing (no device; module not loaded: which; permissions of /dev/infiniband/...) and the
 * remedy.
 */
int verbs_available(void);

/*
 * To be held from before the first queue on the context to after the last: else soft-iWARP comes to
 * a point from which on it makes none (verbs.c says why). true: verbs_context_release() is owed,
 * with the context still open. Other devices need nothing. Any thread.
 */
bool verbs_context_hold(const struct verbs_device *device);
void verbs_context_release(struct ibv_context *context);

/* ---- queue pairs ----------------------------------------------------------------------------- */

/*
 * RESET -> INIT with these remote access rights (IBV_ACCESS_REMOTE_...; 0 is fine) for a connection
 * of `id`. 0 or -errno with a text.
 */
int verbs_qp_init(struct rdma_cm_id *id, struct ibv_qp *qp, unsigned access,
		  const struct fabric_settings *settings);

struct verbs_link {
	unsigned ack_timeout, retries; /* of verbs_timeout_choose() */
	uint8_t initiator_depth;       /* READs and atomics that this side may have in flight */
	uint8_t responder_resources;   /* that the other side may have in flight here */
};
/*
 * INIT -> RTR -> RTS. Not for iWARP, where the kernel does it when the connection comes up.
 */
int verbs_qp_connect(struct rdma_cm_id *id, struct ibv_qp *qp, const struct verbs_link *link,
		     const struct fabric_settings *settings);
/* To the error state: what is in flight is flushed, what still comes is refused by the NIC. */
int verbs_qp_fence(struct ibv_qp *qp);

/*
 * Two queue pairs of one protection domain, connected to each other without rdma_cm: the daemon's
 * own way to the words of a pool in a nic domain. The responder side gets REMOTE_READ, WRITE and
 * ATOMIC. *ret_ep reaches `regions` through the initiator side; its close ends both. Not for iWARP.
 */
int fabric_verbs_pair(const struct verbs_device *device, struct ibv_pd *pd,
		      const struct wire_region *regions, unsigned count,
		      struct fabric_endpoint **ret_ep);

/* ---- what a connection has become, for people and `tarn doctor` ------------------------------ */

struct verbs_description {
	char device[64];
	uint8_t port;
	bool iwarp;
	bool atomics_by_rpc; /* CAS and FAA are messages to the daemon: a cpu domain */
	/* not on iWARP, where the kernel and TCP decide: 0 there */
	uint8_t ack_timeout, retries, rnr_retries;
	uint64_t late_ns; /* verbs_late_ns() of them */
	unsigned mtu_bytes;
	int gid_index; /* -1: none (InfiniBand without a global route, iWARP) */
	union ibv_gid gid;
	bool roce_v2;
	uint8_t traffic_class, service_level;
	uint8_t initiator_depth, responder_resources;
	uint32_t max_inline, send_depth;
	unsigned regions;
};
/* Of an endpoint of fabric_verbs_transport; -EOPNOTSUPP for others. 0 or -errno with a text. */
int fabric_verbs_describe(struct fabric_endpoint *ep, struct verbs_description *ret);

/* ---- texts, verbs-text.c --------------------------------------------------------------------- */

/* What it means, the usual causes, what to check. Never NULL. */
const char *verbs_status_name(enum ibv_wc_status status); /* "RETRY_EXC_ERR" */
const char *verbs_status_text(enum ibv_wc_status status);
const char *verbs_event_name(enum rdma_cm_event_type event); /* "ROUTE_ERROR" */
const char *verbs_event_text(enum rdma_cm_event_type event);
const char *verbs_async_text(enum ibv_event_type event);
/* Why the other side's connection manager has refused (rdma_cm_event.status of a REJECTED). */
const char *verbs_reject_text(int status, bool iwarp);

#endif
