/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One RDMA connection, from the connect request to its end; see peer-verbs.h. Main thread.
 *
 * What happens to a connection is an input of a state machine: one handler per state. Nothing is
 * destroyed in a handler: a connection that ends is fenced at once, and the sweep of rdma.c does
 * the rest, in the order of docs/protocol.md section 7: fence, destroy the queue pair, flush, end
 * the client, disconnect.
 */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "err.h"
#include "events.h"
#include "handshake.h"
#include "peer-verbs.h"
#include "region.h"
#include "self.h"
#include "verbs.h"

#define HANDSHAKE_NS   5000000000ull
#define PROBE_NS       4000000000ull
#define IWARP_FIRST_NS 2000000000ull
#define TICKS_PER_LOOK 10u /* a silent client's NIC is asked about once a second */

/* wr_id of sends; receives have the number of their buffer, which is less */
#define WR_REPLY (1ull << 40)
#define WR_PROBE (1ull << 41)

enum input {
	INPUT_TURN,        /* its handshake may begin */
	INPUT_ESTABLISHED, /* the other side has taken our answer, or has sent something */
	INPUT_GONE,        /* the other side has disconnected, or refused our answer */
	INPUT_FAULT,       /* something has failed */
};

static void input(struct peer_verbs *peer, enum input what, const char *why);

/* ---- the end ---- */

static void set_why(struct peer_verbs *peer, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
static void set_why(struct peer_verbs *peer, const char *fmt, va_list args)
{
	vsnprintf(peer->why, sizeof(peer->why), fmt, args);
}

void peer_verbs_end(struct peer_verbs *peer, int level, const char *fmt, ...)
{
	struct rdma *rdma = peer->listener->rdma;
	va_list args;

	if (peer->state == PEER_VERBS_FENCED)
		return;
	if (peer->qp)
		(void)verbs_qp_fence(peer->qp); /* fails when the device is gone: so is the QP */
	peer->state = PEER_VERBS_FENCED;
	va_start(args, fmt);
	set_why(peer, fmt, args);
	va_end(args);
	TAILQ_INSERT_TAIL(&rdma->closing, peer, closing);
	rdma_sweep_soon(rdma);
	if (level <= LOG_LEVEL_WARNING && daemon_may_log(rdma->daemon))
		log_at(rdma->daemon->log, (enum log_level)level,
		       "connection of %s at %s: %s; ending it", peer->address, peer->listener->text,
		       peer->why);
}

/* struct pool_client's cut. */
static void on_cut(void *arg, const char *why)
{
	struct peer_verbs *peer = arg;
	uint32_t client_id;

	if (peer->state == PEER_VERBS_FENCED)
		return;
	peer->listener->rdma->daemon->expelled++;
	client_id = peer->pool ? peer->pool->clients[peer->rpc.slot].client_id : 0;
	events_tell(peer->listener->rdma->daemon->events, EVENT_client_cut,
		    EVENT_FIELDS(.pool = peer->pool ? peer->pool->name : NULL,
				 .peer = peer->address, .client = client_id),
		    "pool %s: client %u (slot %u, %s) is cut off: %s",
		    peer->pool ? peer->pool->name : "?", client_id, peer->rpc.slot, peer->address,
		    why);
	peer_verbs_end(peer, LOG_LEVEL_NOTICE, "cut off: %s", why);
}

void peer_verbs_fence_for_good(struct peer_verbs *peer)
{
	struct registration *reg = peer->registration;
	int rc;

	if (!peer->qp)
		return;
	rc = ibv_destroy_qp(peer->qp);
	if (rc != 0 && abs(rc) != EIO)
		log_error(peer->listener->rdma->daemon->log,
			  "queue pair 0x%x of %s can not be destroyed: %s", peer->qp_num,
			  peer->address, strerrordesc_np(abs(rc)));
	peer->qp = NULL;
	/* What it has left in the queue must not be taken for another one's of the same number. */
	registration_poll(reg, reg->cqe);
	registration_peer_remove(reg, peer);
}

/* Fenced; what its NIC had accepted takes effect before its state is touched. */
static void client_end(struct peer_verbs *peer)
{
	struct pool *pool = peer->pool;

	if (self_flush(pool) < 0) {
		registration_fence(peer->registration, "the daemon's own connection has failed");
		registration_self_try(peer->registration);
	}
	pool_client_end_told(pool, peer->rpc.slot, peer->address, peer->why);
	peer->pool = NULL;
}

/* Tells the other side, and destroys what is left: the queue pair last but for the id, whose
 * disconnecting may need it. */
static void id_end(struct peer_verbs *peer)
{
	struct device *device =
		peer->registration ? peer->registration->device : peer->listener->device;

	if (peer->established && device && !device->port_down)
		(void)rdma_disconnect(peer->id);
	peer_verbs_fence_for_good(peer);
	if (device)
		device_id_destroy(device, peer->id, peer->established);
	else
		(void)rdma_destroy_id(peer->id);
}

void peer_verbs_finish(struct peer_verbs *peer)
{
	struct listener_verbs *listener = peer->listener;

	TAILQ_REMOVE(&listener->rdma->closing, peer, closing);
	/* In a cpu domain nothing else says that the NIC has done with what it had accepted. */
	peer_verbs_fence_for_good(peer);
	rpc_client_end(&peer->rpc);
	if (peer->pool && !listener->rdma->daemon->stopping) /* then its pool ends, too */
		client_end(peer);
	id_end(peer);
	admission_leave(&listener->admission, &peer->entry);
	TAILQ_REMOVE(&listener->peers, peer, link);
	listener->peer_count--;
	free(peer);
	if (!listener->removed)
		listener_verbs_next(listener);
	else if (listener->peer_count == 0)
		listener_verbs_free(listener);
}

/* ---- the handshake ---- */

static void refuse(struct peer_verbs *peer, const void *answer, size_t bytes, uint16_t reason)
{
	peer->listener->refused[reason <= WIRE_REASON_LAST ? reason : WIRE_REASON_INTERNAL]++;
	(void)rdma_reject(peer->id, answer, (uint8_t)bytes); /* else it is gone already */
	peer_verbs_end(peer, LOG_LEVEL_DEBUG, "refused");
}

static int qp_create(struct peer_verbs *peer)
{
	struct registration *reg = peer->registration;
	struct ibv_qp_init_attr attr = {
		.send_cq = reg->cq,
		.recv_cq = reg->cq,
		.srq = reg->srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = REGISTRATION_SENDS,
			.max_recv_wr = reg->srq ? 0 : REGISTRATION_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = WIRE_RPC_MAX_BYTES},
	};
	int error;

	errno = 0; /* a provider may fail without a word */
	peer->qp = ibv_create_qp(reg->pd, &attr);
	error = errno ? errno : EIO;
	if (!peer->qp)
		return err_set(-error, "%s gives no queue pair: %s%s", reg->device->name,
			       strerrordesc_np(error),
			       error == ENOMEM ? ": too many (`rdma resource`), or locked memory "
						 "is short (LimitMEMLOCK)"
					       : "");
	peer->qp_num = peer->qp->qp_num;
	registration_peer_add(reg, peer);
	return 0;
}

/* What the pool's memory may be used for through this queue pair; the keys that the client is given
 * say the same, since siw looks at these alone. */
static unsigned access_of(const struct pool *pool, const struct pool_client *client)
{
	if (client->read_only)
		return IBV_ACCESS_REMOTE_READ;
	return IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
	       (pool->geometry.atomics == LAYOUT_ATOMICS_NIC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static int qp_connect(struct peer_verbs *peer, unsigned access)
{
	const struct layout_geometry *g = &peer->pool->geometry;
	const struct fabric_settings *settings = &peer->listener->settings;
	struct verbs_link link = {.initiator_depth = peer->initiator_depth,
				  .responder_resources = peer->responder_resources};
	int rc = verbs_timeout_choose(settings, g->deadline_ns, g->grace_ns, &link.ack_timeout,
				      &link.retries);

	if (rc == 0)
		rc = verbs_qp_init(peer->id, peer->qp, access, settings);
	if (rc == 0)
		rc = registration_receives_post(peer->registration, peer);
	if (rc == 0 && !peer->registration->device->verbs.iwarp)
		rc = verbs_qp_connect(peer->id, peer->qp, &link, settings);
	return rc;
}

/* Everything that can fail before the answer. 0, or the reason of the refusal. */
static enum wire_reason prepare(struct peer_verbs *peer, const struct handshake *shake)
{
	struct device *device = peer->listener->device;
	struct registration *reg = device ? registration_find(device, shake->pool) : NULL;

	if (!reg || !reg->ready || device->lost || shake->pool->self_lost) {
		err_set(-EAGAIN, "the pool is not ready on this device");
		return WIRE_REASON_BUSY;
	}
	if (reg->peer_count >= reg->peer_max) {
		err_set(-EBUSY, "%s can serve no more than %u clients of the pool", device->name,
			reg->peer_max);
		return WIRE_REASON_CLIENTS;
	}
	peer->registration = reg;
	if (qp_create(peer) < 0)
		return WIRE_REASON_INTERNAL;
	if (qp_connect(peer, access_of(shake->pool, &shake->pool->clients[shake->slot])) < 0)
		return WIRE_REASON_INTERNAL;
	return WIRE_REASON_NONE;
}

/* ---- sending ---- */

static int post_signaled(struct peer_verbs *peer, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->send_flags |= IBV_SEND_SIGNALED;
	rc = ibv_post_send(peer->qp, wr, &bad);
	/* verbs give a positive errno, siw a negative one */
	return rc == 0 ? 0 : -abs(rc);
}

static int reply_send(struct peer_verbs *peer, const uint8_t *reply, size_t bytes)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)reply, .length = (uint32_t)bytes};
	struct ibv_send_wr wr = {.wr_id = WR_REPLY,
				 .opcode = IBV_WR_SEND,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_INLINE};
	int rc = post_signaled(peer, &wr);

	if (rc == 0)
		peer->replies++;
	return rc;
}

/* struct rpc_client's. */
static void on_notice(struct rpc_client *client)
{
	struct peer_verbs *peer =
		(struct peer_verbs *)(void *)((char *)client - offsetof(struct peer_verbs, rpc));
	uint8_t bytes[WIRE_RPC_REPLY_BYTES];

	if (peer->state != PEER_VERBS_CLIENT)
		return;
	rpc_notice(bytes);
	if (reply_send(peer, bytes, sizeof(bytes)) < 0)
		input(peer, INPUT_FAULT, "a notice can not be sent to it");
}

static int answer(struct peer_verbs *peer, struct handshake *shake)
{
	const struct registration *reg = peer->registration;
	bool read_only = shake->pool->clients[shake->slot].read_only;
	const struct wire_region *regions = read_only ? reg->memory.read_regions : reg->memory.write_regions;
	uint32_t count = reg->memory.count < WIRE_REGIONS ? reg->memory.count : WIRE_REGIONS;
	struct rdma_conn_param param = {.responder_resources = peer->responder_resources,
					.initiator_depth = peer->initiator_depth,
					.rnr_retry_count = VERBS_RNR_RETRIES,
					.qp_num = peer->qp_num,
					.srq = reg->srq != NULL};

	handshake_accept(shake, regions, count);
	rpc_client_init(&peer->rpc, shake->slot, read_only);
	peer->rpc.regions = regions;
	peer->rpc.region_count = reg->memory.count;
	peer->rpc.registration = reg;
	peer->rpc.notice = on_notice;
	param.private_data = shake->answer;
	param.private_data_len = (uint8_t)shake->answer_bytes;
	if (rdma_accept(peer->id, &param) != 0)
		return err_set(-errno, "it can not be accepted: %s", strerrordesc_np(errno));
	return 0;
}

static void who_fill(struct peer_verbs *peer, struct pool_client *who)
{
	memset(who, 0, sizeof(*who));
	who->uid = who->gid = UINT32_MAX;
	who->transport = POOL_VERBS;
	who->listener = peer->listener->listener.config;
	who->cut = on_cut;
	who->peer = peer;
	memcpy(who->name, peer->address, sizeof(who->name) - 1); /* a longer one is cut */
}

/* Its turn: what the request says, a queue pair, the answer. */
static void handshake_run(struct peer_verbs *peer)
{
	struct pool_client who;
	struct handshake shake;
	enum wire_reason reason;

	peer->state = PEER_VERBS_CONNECTING;
	peer->since_ns = clock_now_ns();
	who_fill(peer, &who);
	handshake(peer->listener->rdma->daemon, peer->request, sizeof(peer->request), &who, &shake);
	if (!shake.pool) {
		handshake_tell_refused(&shake, &who, peer->address);
		refuse(peer, shake.answer, shake.answer_bytes, shake.reason);
		return;
	}
	peer->pool = shake.pool; /* for what it has; the slot is the handshake's until it accepts */
	reason = prepare(peer, &shake);
	if (reason != WIRE_REASON_NONE) {
		peer->pool = NULL;
		handshake_refuse(&shake, reason);
		handshake_tell_refused(&shake, &who, peer->address);
		refuse(peer, shake.answer, shake.answer_bytes, (uint16_t)reason);
		return;
	}
	if (answer(peer, &shake) < 0)
		peer_verbs_end(peer, LOG_LEVEL_WARNING, "%s", err_text());
}

/* ---- the state machine ---- */

static void state_waiting(struct peer_verbs *peer, enum input what, const char *why)
{
	switch (what) {
	case INPUT_TURN:
		handshake_run(peer);
		break;
	case INPUT_ESTABLISHED:
		break;
	case INPUT_GONE:
	case INPUT_FAULT:
		peer_verbs_end(peer, LOG_LEVEL_DEBUG, "%s", why);
		break;
	}
}

static void state_connecting(struct peer_verbs *peer, enum input what, const char *why)
{
	switch (what) {
	case INPUT_TURN:
		break;
	case INPUT_ESTABLISHED:
		peer->state = PEER_VERBS_CLIENT;
		peer->established = true;
		peer->listener->accepted++;
		pool_client_tell_connected(peer->pool, peer->rpc.slot, peer->address);
		admission_done(&peer->listener->admission, &peer->entry);
		listener_verbs_next(peer->listener);
		break;
	case INPUT_GONE:
	case INPUT_FAULT:
		peer->listener->unanswered++;
		peer_verbs_end(peer, LOG_LEVEL_WARNING, "%s before it was connected", why);
		break;
	}
}

static void state_client(struct peer_verbs *peer, enum input what, const char *why)
{
	switch (what) {
	case INPUT_TURN:
	case INPUT_ESTABLISHED:
		break;
	case INPUT_GONE:
		peer_verbs_end(peer, LOG_LEVEL_INFO, "%s", why);
		break;
	case INPUT_FAULT:
		peer_verbs_end(peer, LOG_LEVEL_WARNING, "%s", why);
		break;
	}
}

static void state_fenced(struct peer_verbs *peer, enum input what, const char *why)
{
	(void)peer;
	(void)what;
	(void)why;
}

static void input(struct peer_verbs *peer, enum input what, const char *why)
{
	static void (*const states[PEER_VERBS_STATES])(struct peer_verbs *, enum input,
						       const char *) = {
		[PEER_VERBS_WAITING] = state_waiting,
		[PEER_VERBS_CONNECTING] = state_connecting,
		[PEER_VERBS_CLIENT] = state_client,
		[PEER_VERBS_FENCED] = state_fenced,
	};

	states[peer->state](peer, what, why);
}

void peer_verbs_begin(struct peer_verbs *peer)
{
	input(peer, INPUT_TURN, NULL);
}

/* ---- events of the connection manager ---- */

/* Every event of enum rdma_cm_event_type; those that a passive side can not get are -1. */
static int input_of(const struct rdma_cm_event *event, char *why, size_t bytes)
{
	enum rdma_cm_event_type type = event->event;

	snprintf(why, bytes, "%s", verbs_event_text(type));
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		return INPUT_ESTABLISHED;
	case RDMA_CM_EVENT_DISCONNECTED:
		snprintf(why, bytes, "it has disconnected");
		return INPUT_GONE;
	case RDMA_CM_EVENT_REJECTED:
		snprintf(why, bytes, "it has refused our answer (status %d)", event->status);
		return INPUT_GONE;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return INPUT_FAULT;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		break;
	}
	return -1;
}

static void on_event(struct rdma_target *target, const struct rdma_cm_event *event)
{
	struct peer_verbs *peer = (struct peer_verbs *)(void *)target;
	char why[512];
	int what = input_of(event, why, sizeof(why));

	struct device *device =
		peer->registration ? peer->registration->device : peer->listener->device;

	if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL && device)
		device_lose(device, "the device is being removed");
	if (what >= 0)
		input(peer, (enum input)what, why);
	else if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
		peer->listener->rdma->unexpected_events++;
}

void peer_verbs_async(struct peer_verbs *peer, enum ibv_event_type type)
{
	if (type == IBV_EVENT_COMM_EST) {
		/* A message came before the answer's answer: tell rdma_cm, so that it does not
		 * wait for that. */
		(void)rdma_notify(peer->id, type);
		return;
	}
	if (type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR)
		input(peer, INPUT_FAULT,
		      region_fault_text(&peer->rpc,
					"it has tried what its queue pair does not allow (an address "
					"outside the pool, a key that is not its own, or a write although "
					"it is read-only): check the program"));
	else
		input(peer, INPUT_FAULT, verbs_async_text(type));
}

/* ---- arrival ---- */

static void address_key(const struct sockaddr *address, uint8_t ret_key[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memset(ret_key, 0, 16);
	if (address->sa_family == AF_INET6) {
		memcpy(ret_key, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr,
		       16);
	} else if (address->sa_family == AF_INET) {
		memcpy(ret_key, mapped, sizeof(mapped));
		memcpy(ret_key + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
		       4);
	}
}

static uint8_t least(uint8_t asked, int device)
{
	return device < asked ? (uint8_t)(device > 0 ? device : 0) : asked;
}

static void depths(struct peer_verbs *peer, const struct rdma_conn_param *param)
{
	const struct ibv_device_attr *attr = &peer->listener->device->verbs.attr;

	/* rdma_cm has exchanged them already: what this side may have in flight, what it has to
	 * take */
	peer->initiator_depth = least(param->initiator_depth, attr->max_qp_init_rd_atom);
	peer->responder_resources = least(param->responder_resources, attr->max_qp_rd_atom);
}

static void reject_unheard(struct peer_verbs *peer, const struct admission_refusal *refusal)
{
	struct daemon *daemon = peer->listener->rdma->daemon;
	uint8_t bytes[WIRE_REJECT_BYTES];
	size_t count = handshake_reject(daemon, refusal->reason, refusal->detail,
					refusal->retry_after_ms, bytes);

	err_set(-EBUSY, "%s", wire_reason_text((uint16_t)refusal->reason));
	if (refusal->reason != WIRE_REASON_BUSY) /* that is part of the plan */
		events_tell(daemon->events, EVENT_handshake_refused,
			    EVENT_FIELDS(.listener = peer->listener->listener.config->name,
					 .peer = peer->address),
			    "refused %s at %s: %s", peer->address, peer->listener->text, err_text());
	refuse(peer, bytes, count, (uint16_t)refusal->reason);
}

void peer_verbs_arrive(struct listener_verbs *listener, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct admission_refusal refusal = {.reason = WIRE_REASON_MALFORMED};
	struct peer_verbs *peer = calloc(1, sizeof(*peer));
	int rc;

	if (!peer) {
		(void)rdma_reject(event->id, NULL, 0);
		(void)rdma_destroy_id(event->id);
		return;
	}
	peer->target.on_event = on_event;
	peer->listener = listener;
	peer->id = event->id;
	peer->id->context = &peer->target;
	peer->serial = listener->serial++;
	peer->state = PEER_VERBS_WAITING;
	TAILQ_INSERT_TAIL(&listener->peers, peer, link);
	listener->peer_count++;
	rdma_tick_start(listener->rdma);
	rdma_address_text(rdma_get_peer_addr(peer->id), peer->address, sizeof(peer->address));
	address_key(rdma_get_peer_addr(peer->id), peer->entry.address);
	if (param->private_data_len != WIRE_REQUEST_BYTES || !param->private_data) {
		reject_unheard(peer, &refusal);
		return;
	}
	memcpy(peer->request, param->private_data, WIRE_REQUEST_BYTES);
	depths(peer, param);
	rc = admission_arrive(&listener->admission, &peer->entry, &refusal);
	if (rc < 0)
		reject_unheard(peer, &refusal);
	else if (rc == 1)
		peer_verbs_begin(peer);
}

/* ---- messages ---- */

/* Has it room for the answer that it wants? */
static bool may_ask(struct peer_verbs *peer)
{
	if (peer->replies < REGISTRATION_REPLIES)
		return true;
	input(peer, INPUT_FAULT, "it sends messages without taking the answers");
	return false;
}

static void answer_send(struct peer_verbs *peer, int rc, const uint8_t *bytes, size_t count)
{
	/* The answer may have taken the client's own end with it. */
	if (peer->state == PEER_VERBS_FENCED)
		return;
	if (rc < 0) {
		input(peer, INPUT_FAULT, err_text());
		return;
	}
	if (reply_send(peer, bytes, count) < 0)
		input(peer, INPUT_FAULT, "the answer to its message can not be sent");
}

static void on_message(struct peer_verbs *peer, const void *message, uint32_t bytes)
{
	struct rpc_answer answer;
	int rc;

	if (!may_ask(peer))
		return;
	rc = rpc_handle(peer->pool, &peer->rpc, message, bytes, &answer);
	answer_send(peer, rc, answer.bytes, answer.length);
}

/* A WRITE with immediate data: what stands in the buffer is an old message of somebody else. */
static void on_write(struct peer_verbs *peer, uint32_t immediate)
{
	uint8_t reply[WIRE_REGION_BYTES];

	if (may_ask(peer))
		answer_send(peer, region_notified(&peer->rpc, immediate, reply), reply, sizeof(reply));
}

static void on_failure(struct peer_verbs *peer, const struct ibv_wc *wc, bool receive)
{
	char why[512];

	/* Nobody has fenced it, and yet it is in the error state: its own NIC's answer would have
	 * come with a status that says more. */
	if (receive && (wc->status == IBV_WC_LOC_LEN_ERR || wc->status == IBV_WC_LOC_QP_OP_ERR))
		snprintf(why, sizeof(why), "it has sent a message of more than %u bytes",
			 WIRE_RPC_MAX_BYTES);
	else if (!receive && wc->wr_id == WR_PROBE && wc->status == IBV_WC_REM_INV_REQ_ERR)
		snprintf(why, sizeof(why),
			 "its queue pair refuses the zero-length write that asks whether it lives: "
			 "a client has to allow remote writes, to no memory");
	else if (wc->status == IBV_WC_WR_FLUSH_ERR)
		snprintf(why, sizeof(why), "its queue pair has gone to the error state: %s",
			 region_fault_text(&peer->rpc,
					   "it has disconnected, or has tried what it may not"));
	else if (wc->status == IBV_WC_RETRY_EXC_ERR)
		snprintf(why, sizeof(why), "its NIC does not answer any more");
	else
		snprintf(why, sizeof(why), "%s: %s", verbs_status_name(wc->status),
			 verbs_status_text(wc->status));
	input(peer, INPUT_FAULT, why);
}

void peer_verbs_completion(struct peer_verbs *peer, const struct ibv_wc *wc, const void *message)
{
	if (!message && wc->wr_id == WR_REPLY)
		peer->replies--;
	if (!message && wc->wr_id == WR_PROBE)
		peer->probing = false;
	if (peer->state == PEER_VERBS_FENCED)
		return;
	/* Without a shared queue a queue pair's receives are flushed when it is disconnected: the
	 * event that says so, or the probe, follows. */
	if (message && wc->status == IBV_WC_WR_FLUSH_ERR)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		on_failure(peer, wc, message != NULL);
		return;
	}
	if (!message)
		return;
	peer->heard = true;
	input(peer, INPUT_ESTABLISHED, NULL); /* it uses the connection, so it has our answer */
	if (peer->state != PEER_VERBS_CLIENT)
		return;
	if (wc->opcode == IBV_WC_RECV)
		on_message(peer, message, wc->byte_len);
	else
		on_write(peer, be32toh(wc->imm_data));
}

/* ---- is it alive? ---- */

/*
 * Zero bytes to nowhere: its NIC acknowledges it, or the connection is dead. On iWARP a WRITE is
 * complete when TCP has it, so there it is a READ, and the time that it may take is ours to watch:
 * TCP goes on for a quarter of an hour. It needs a list, of one place without bytes: without one, siw
 * (seen with Linux 7.3, rdma-core 44) reads as many bytes as the inline answer had that stood in the
 * queue's slot before, and the client's side ends the connection.
 */
static void probe(struct peer_verbs *peer, uint64_t now)
{
	bool iwarp = peer->registration->device->verbs.iwarp;
	struct ibv_sge nothing = {.length = 0};
	struct ibv_send_wr wr = {.wr_id = WR_PROBE,
				 .sg_list = iwarp ? &nothing : NULL,
				 .num_sge = iwarp ? 1 : 0,
				 .opcode = iwarp ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE};

	if (post_signaled(peer, &wr) < 0) {
		input(peer, INPUT_FAULT, "its queue pair takes no more requests");
		return;
	}
	peer->probing = true;
	peer->probe_ns = now;
	peer->registration->probes++;
}

void peer_verbs_tick(struct peer_verbs *peer, uint64_t now, uint32_t tick)
{
	if (peer->state == PEER_VERBS_CONNECTING && now - peer->since_ns > HANDSHAKE_NS)
		input(peer, INPUT_FAULT, "did not take our answer within 5 s");
	if (peer->state == PEER_VERBS_CLIENT && peer->probing && now - peer->probe_ns > PROBE_NS)
		input(peer, INPUT_FAULT, "its NIC has not answered for 4 s");
	if (peer->state != PEER_VERBS_CLIENT || (tick + peer->serial) % TICKS_PER_LOOK != 0)
		return;
	/* On iWARP the client has to send first: it reads the superblock as soon as it can. */
	if (!peer->heard && !peer->probing &&
	    (!peer->registration->device->verbs.iwarp || now - peer->since_ns > IWARP_FIRST_NS))
		probe(peer, now);
	peer->heard = false;
}
