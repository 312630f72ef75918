/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs-connect.c - connecting a verbs endpoint to a daemon by librdmacm
 *
 * Address, route, resources, request out, answer in, queue pair up. The caller's thread; it blocks
 * in poll() on the event channel only, up to the deadline. Each event is acknowledged in the
 * function that gets it. Next: fabric-verbs-resources.c, fabric-verbs.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "fabric-verbs.h"
#include "layout.h"
#include "tarn/tarn.h"

/* how long a CAS or FAA may wait for tarnd's answer */
#define RPC_LIMIT_MIN_NS 1000000000ull
#define RPC_LIMIT_MAX_NS 5000000000ull
#define STALL_SPARE_NS   1000000000ull
#define REJECT_CONSUMER  28 /* of InfiniBand's connection manager: consumer defined */

/* ---- connecting: addresses ------------------------------------------------------------------- */

/* One try at one address. */
struct attempt {
	const struct fabric_address *address;
	const void *request;
	size_t request_bytes;
	uint64_t deadline;
	struct verbs_endpoint *v;
	struct verbs_device device;
	char where[NI_MAXHOST + NI_MAXSERV + 8]; /* for people: 10.0.0.1 port 7477 */
	uint8_t *reply;
	size_t reply_capacity, reply_bytes;
};

static int lookup(const char *host, const char *service, int family, struct addrinfo **ret_list)
{
	struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
	int error = getaddrinfo(host, service, &hints, ret_list);

	if (error)
		return err_set(-TARN_EUNREACHABLE, "%s: %s", host,
			       error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
	return 0;
}

/* fe80:: without an interface means another host on each of them. */
static int scope_check(const struct addrinfo *info, const char *where)
{
	struct sockaddr_in6 in6;

	if (info->ai_family != AF_INET6)
		return 0;
	memcpy(&in6, info->ai_addr, sizeof(in6));
	if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) && in6.sin6_scope_id == 0)
		return err_set(-TARN_EUNREACHABLE,
			       "%s: a link-local address needs its interface: ADDRESS%%INTERFACE",
			       where);
	return 0;
}

static void name_address(const struct addrinfo *info, char *ret_where, size_t bytes)
{
	char host[NI_MAXHOST] = "?", service[NI_MAXSERV] = "?";

	getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof(host), service, sizeof(service),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(ret_where, bytes, "%s port %s", host, service);
}

/* ---- connecting: events ---------------------------------------------------------------------- */

/* Milliseconds to the deadline, rounded up; 0: it has passed. */
static int remaining_ms(uint64_t deadline)
{
	uint64_t now = clock_now_ns(), ms;

	if (now >= deadline)
		return 0;
	ms = (deadline - now) / 1000000 + 1;
	return ms < 3600000 ? (int)ms : 3600000;
}

static int too_late(const struct attempt *a, const char *what)
{
	return err_set(-TARN_ETIMEOUT,
		       "%s: no answer in time (%s): is the host up, the address right, tarnd "
		       "running (not stopped or overloaded), and RDMA let through (`tarn doctor "
		       "--peer`)?",
		       a->where, what);
}

static int next_event(struct attempt *a, const char *what, struct rdma_cm_event **ret_event)
{
	struct pollfd fd = {.fd = a->v->channel->fd, .events = POLLIN};

	while (rdma_get_cm_event(a->v->channel, ret_event)) {
		if (errno != EAGAIN && errno != EINTR)
			return err_set(-errno, "%s: the connection manager fails: %s", a->where,
				       strerror(errno));
		if (remaining_ms(a->deadline) == 0)
			return too_late(a, what);
		poll(&fd, 1, remaining_ms(a->deadline));
	}
	return 0;
}

/* error: 0 if no cause was given. */
static int unresolved(const struct attempt *a, enum rdma_cm_event_type type, int error)
{
	const char *source = a->address->source;

	return err_set(-TARN_EUNREACHABLE, "%s: %s (%s): %s%s%s", a->where, verbs_event_name(type),
		       error ? strerror(error) : "no cause given", verbs_event_text(type),
		       source ? "; or it is the source address: " : "", source ? source : "");
}

/* Kernels give some causes as -errno, some as errno. */
static int event_error(const struct attempt *a, const struct rdma_cm_event *event)
{
	int error = event->status < 0 ? -event->status : event->status;

	/* of IB's connection manager these are codes of its own */
	if (event->event != RDMA_CM_EVENT_ADDR_ERROR && event->event != RDMA_CM_EVENT_ROUTE_ERROR)
		return err_set(-TARN_EUNREACHABLE, "%s: %s (status %d): %s", a->where,
			       verbs_event_name(event->event), event->status,
			       verbs_event_text(event->event));
	return unresolved(a, event->event, error);
}

/* A refusal in Tarn's words is an answer: 1. Any other: -TARN_EUNREACHABLE. */
static int rejected(struct attempt *a, const struct rdma_cm_event *event)
{
	const uint8_t *data = event->param.conn.private_data;
	size_t bytes = data ? event->param.conn.private_data_len : 0;
	struct wire_reject reject;

	/* padded by InfiniBand's connection manager */
	if (bytes >= WIRE_REJECT_BYTES && a->reply_capacity >= WIRE_REJECT_BYTES &&
	    wire_reject_decode(data, WIRE_REJECT_BYTES, &reject) == 0) {
		memcpy(a->reply, data, WIRE_REJECT_BYTES);
		a->reply_bytes = WIRE_REJECT_BYTES;
		return 1;
	}
	/* without a word of Tarn's: its queue in the kernel was full, or it ended just then */
	return err_set(!a->device.iwarp && event->status == REJECT_CONSUMER ? -EAGAIN
									    : -TARN_EUNREACHABLE,
		       "%s: refused (status %d): %s", a->where, event->status,
		       verbs_reject_text(event->status, a->device.iwarp));
}

/* ---- connecting: step by step ---------------------------------------------------------------- */

/* What rdma_cm returns at once is the same as what comes as an event. */
static int resolve_failed(const struct attempt *a, enum rdma_cm_event_type type)
{
	return unresolved(a, type, errno);
}

static int await_resolved(struct attempt *a, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	int ret = next_event(a, verbs_event_name(wanted), &event);

	if (ret < 0)
		return ret;
	if (event->event != wanted)
		ret = event_error(a, event);
	rdma_ack_cm_event(event);
	return ret;
}

static int source_lookup(struct attempt *a, const struct addrinfo *info, struct addrinfo **ret_list)
{
	int ret;

	*ret_list = NULL;
	if (!a->address->source)
		return 0;
	ret = lookup(a->address->source, NULL, info->ai_family, ret_list);
	return ret < 0 ? err_set(ret,
				 "%s: source address %s: not an address of this host of the same "
				 "family",
				 a->where, a->address->source)
		       : 0;
}

static int resolve_address(struct attempt *a, const struct addrinfo *info)
{
	struct addrinfo *source;
	int ret = source_lookup(a, info, &source), error;

	if (ret < 0)
		return ret;
	error = rdma_resolve_addr(a->v->id, source ? source->ai_addr : NULL, info->ai_addr,
				  remaining_ms(a->deadline));
	if (error)
		ret = resolve_failed(a, RDMA_CM_EVENT_ADDR_ERROR);
	if (source)
		freeaddrinfo(source);
	return ret < 0 ? ret : await_resolved(a, RDMA_CM_EVENT_ADDR_RESOLVED);
}

static int set_options(struct attempt *a)
{
	const struct fabric_settings *settings = &a->address->settings;
	uint8_t tos = (uint8_t)settings->tos;
	uint8_t timeout =
		settings->ack_timeout > 0 ? (uint8_t)settings->ack_timeout : VERBS_ACK_TIMEOUT;

	if (settings->tos > 255)
		return err_set(-EINVAL, "tos is %d: allowed are 0 to 255", settings->tos);
	if (settings->service_level > 15)
		return err_set(-EINVAL, "service_level is %d: allowed are 0 to 15",
			       settings->service_level);
	if (settings->gid_index > 255)
		return err_set(-EINVAL, "gid_index is %d: allowed are 0 to 255",
			       settings->gid_index);
	if (settings->tos >= 0 &&
	    rdma_set_option(a->v->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)))
		return err_set(-errno, "%s: type of service %d cannot be set: %s", a->where,
			       settings->tos, strerror(errno));
	/* tells the other side; our own is set on the queue pair. Old kernels don't know it. */
	rdma_set_option(a->v->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			sizeof(timeout));
	return 0;
}

static int resolve(struct attempt *a, const struct addrinfo *info)
{
	struct verbs_endpoint *v = a->v;
	int ret;

	v->channel = rdma_create_event_channel();
	if (!v->channel)
		return err_set(-TARN_EUNREACHABLE, "no channel to the connection manager: %s",
			       strerror(errno));
	ret = fabric_verbs_nonblocking(v->channel->fd);
	if (ret == 0 && rdma_create_id(v->channel, &v->id, v, RDMA_PS_TCP))
		ret = err_set(-TARN_EUNREACHABLE, "no connection identifier: %s", strerror(errno));
	if (ret == 0)
		ret = set_options(a);
	if (ret == 0)
		ret = resolve_address(a, info);
	/* the last event may have come late; a time of 0 is an invalid argument */
	if (ret == 0 && remaining_ms(a->deadline) == 0)
		ret = too_late(a, verbs_event_name(RDMA_CM_EVENT_ADDR_RESOLVED));
	if (ret == 0 && rdma_resolve_route(v->id, remaining_ms(a->deadline)))
		ret = resolve_failed(a, RDMA_CM_EVENT_ROUTE_ERROR);
	if (ret == 0)
		ret = await_resolved(a, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (ret == 0 && !v->id->verbs)
		ret = err_set(-TARN_EUNREACHABLE,
			      "%s: its device has no verbs for programs (is its node GUID 0?)",
			      a->where);
	return ret;
}

static int send_request(struct attempt *a)
{
	struct verbs_endpoint *v = a->v;
	struct rdma_conn_param param = {
		.private_data = a->request,
		.private_data_len = (uint8_t)a->request_bytes,
		.responder_resources = fabric_verbs_depth(a->device.attr.max_qp_rd_atom),
		.initiator_depth = fabric_verbs_depth(a->device.attr.max_qp_init_rd_atom),
		.flow_control = 1,
		.retry_count = VERBS_RETRIES,
		.rnr_retry_count = VERBS_RNR_RETRIES,
		.qp_num = v->qp->qp_num,
	};

	if (rdma_connect(v->id, &param) == 0)
		return 0;
	/* on iWARP TCP may have been refused already */
	return err_set(-TARN_EUNREACHABLE, "%s: connect: %s%s%s", a->where, strerror(errno),
		       v->iwarp ? ": " : "", v->iwarp ? verbs_reject_text(-errno, true) : "");
}

/* 0: connected or, but for iWARP, about to be; 1: refused in Tarn's words. */
static int await_reply(struct attempt *a)
{
	struct rdma_cm_event *event;
	int ret = next_event(a, "the connection request", &event);

	if (ret < 0)
		return ret;
	if (event->event == RDMA_CM_EVENT_REJECTED) {
		ret = rejected(a, event);
	} else if (event->event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
		   event->event == RDMA_CM_EVENT_ESTABLISHED) {
		const uint8_t *data = event->param.conn.private_data;

		a->v->connected = event->event == RDMA_CM_EVENT_ESTABLISHED;
		a->reply_bytes = data ? event->param.conn.private_data_len : 0;
		if (a->reply_bytes > a->reply_capacity)
			a->reply_bytes = a->reply_capacity;
		if (a->reply_bytes)
			memcpy(a->reply, data, a->reply_bytes);
	} else {
		ret = event_error(a, event);
	}
	rdma_ack_cm_event(event);
	return ret;
}

/* What the reply says of the pool, as far as it is the transport's business. */
static int take_reply(struct attempt *a, struct wire_reply *ret_reply)
{
	struct verbs_endpoint *v = a->v;
	int ret = wire_reply_decode(a->reply, a->reply_bytes, ret_reply);

	if (ret < 0)
		return ret;
	v->ep.pool_bytes = ret_reply->pool_bytes;
	v->ep.read_only = ret_reply->role == WIRE_ROLE_READ;
	v->by_rpc = ret_reply->atomics != LAYOUT_ATOMICS_NIC;
	if (!v->by_rpc && !v->ep.read_only && !a->device.atomics)
		return err_set(
			-TARN_EUNREACHABLE,
			"%s: the pool's words are changed by RDMA atomics, which %s does not "
			"have: set atomics = cpu for the pool, or open it readonly",
			a->where, a->device.name);
	/* T3 holds for iWARP by our own watch only: not enough for a late FAA */
	v->ep.features = (v->by_rpc || v->iwarp ? 0 : FABRIC_COUNTER_FAA) |
			 (v->iwarp ? 0 : FABRIC_WRITE_NOTIFY);
	if (v->iwarp)
		v->stall_ns = (ret_reply->grace_us - ret_reply->deadline_us) * 1000ull;
	return fabric_verbs_regions_set(v, ret_reply->regions, ret_reply->region_count,
					ret_reply->region_count < WIRE_REGIONS ? WIRE_REGIONS
									       : VERBS_REGIONS_MAX);
}

/* By hand, so that the timeout is ours and T3 holds before the first request. */
static int bring_up(struct attempt *a, const struct wire_reply *reply)
{
	struct verbs_endpoint *v = a->v;
	struct verbs_link link = {
		.initiator_depth = fabric_verbs_depth(a->device.attr.max_qp_init_rd_atom),
		.responder_resources = fabric_verbs_depth(a->device.attr.max_qp_rd_atom),
	};
	int ret;

	if (v->iwarp)
		return 0;
	ret = verbs_timeout_choose(&v->settings, reply->deadline_us * 1000ull,
				   reply->grace_us * 1000ull, &link.ack_timeout, &link.retries);
	if (ret < 0)
		return ret;
	/*
	 * The NIC ends what it cannot do. If it fails to (soft-RoCE does now and then, with the first
	 * request of a connection), nothing may hang for ever.
	 */
	v->stall_ns = 2 * verbs_late_ns(link.ack_timeout, link.retries) + STALL_SPARE_NS;
	ret = verbs_qp_connect(v->id, v->qp, &link, &v->settings);
	if (ret == 0 && rdma_establish(v->id))
		ret = err_set(-EAGAIN, "%s: the connection cannot be completed: %s", a->where,
			      strerror(errno));
	if (ret == -ECONNABORTED)
		ret = -EAGAIN;
	if (ret == 0)
		v->connected = true;
	return ret;
}

/* 0: a->v is connected; 1: refused, the answer stands in a->reply. */
static int attempt_run(struct attempt *a, const struct addrinfo *info)
{
	struct verbs_endpoint *v = a->v;
	struct wire_reply reply;
	int ret = resolve(a, info);

	if (ret == 0) {
		v->context = v->id->verbs;
		ret = verbs_device_query(v->context, v->id->port_num, &a->device);
	}
	if (ret == 0)
		ret = fabric_verbs_resources(v, &a->device, VERBS_RECVS);
	if (ret == 0)
		/* for tarnd's probes of no bytes; no memory is registered for remote access */
		ret = verbs_qp_init(v->id, v->qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
				    &v->settings);
	if (ret == 0)
		ret = fabric_verbs_recvs(v);
	if (ret == 0)
		ret = send_request(a);
	if (ret == 0)
		ret = await_reply(a);
	if (ret == 0)
		ret = take_reply(a, &reply);
	if (ret == 0)
		ret = bring_up(a, &reply);
	if (ret == 0)
		ret = fabric_verbs_regions_fetch(v, a->deadline);
	return ret;
}

static int connect_one(struct attempt *a, const struct addrinfo *info, uint64_t timeout_ns)
{
	int ret;

	name_address(info, a->where, sizeof(a->where));
	ret = scope_check(info, a->where);
	if (ret < 0)
		return ret;
	a->v = fabric_verbs_new(&a->address->settings);
	if (!a->v)
		return -ENOMEM;
	a->v->rpc_limit_ns = timeout_ns < RPC_LIMIT_MIN_NS   ? RPC_LIMIT_MIN_NS
			     : timeout_ns > RPC_LIMIT_MAX_NS ? RPC_LIMIT_MAX_NS
							     : timeout_ns;
	a->v->next_tag = (uint32_t)clock_now_ns();
	ret = attempt_run(a, info);
	if (ret != 0) {
		fabric_verbs_free(a->v);
		a->v = NULL;
	}
	return ret;
}

/* One address after the other, each with its share of the time, until one answers. */
static int connect_any(struct attempt *a, const struct addrinfo *list, uint64_t timeout_ns)
{
	uint64_t end = clock_now_ns() + timeout_ns;
	const struct addrinfo *info;
	unsigned left = 0;
	int ret = -TARN_EUNREACHABLE;

	for (info = list; info; info = info->ai_next)
		left++;
	for (info = list; info; info = info->ai_next, left--) {
		uint64_t now = clock_now_ns();

		if (now >= end)
			break;
		a->deadline = now + (end - now) / left;
		ret = connect_one(a, info, timeout_ns);
		if (ret >= 0)
			break;
	}
	return ret;
}

/*
 * librdmacm opens each device once per process. A forked child that used its parent's opened
 * devices would find some calls refused by the kernel (soft-RoCE's doorbell), and its queue pairs
 * would outlive it in the parent: nobody could see that it has died. So the first user's process is
 * remembered.
 */
static atomic_int first_pid;

static int fork_check(void)
{
	int expected = 0, pid = (int)getpid();

	if (atomic_compare_exchange_strong_explicit(&first_pid, &expected, pid,
						    memory_order_relaxed, memory_order_relaxed) ||
	    expected == pid)
		return 0;
	return err_set(-EOPNOTSUPP,
		       "this process was forked from one that had used RDMA, and cannot use it "
		       "itself: open sessions after fork() only, or exec() first");
}

static int verbs_connect(const struct fabric_address *address, const void *request,
			 size_t request_bytes, uint64_t timeout_ns, void *reply,
			 size_t reply_capacity, size_t *ret_bytes, struct fabric_endpoint **ret_ep)
{
	struct attempt a = {.address = address,
			    .request = request,
			    .request_bytes = request_bytes,
			    .reply = reply,
			    .reply_capacity = reply_capacity};
	struct addrinfo *list;
	char service[8];
	int ret;

	if (request_bytes > WIRE_REQUEST_BYTES)
		return err_set(-EINVAL, "a request of %zu bytes", request_bytes);
	ret = verbs_available();
	if (ret < 0) /* librdmacm would print something */
		return ret == -EACCES ? ret : -TARN_EUNREACHABLE;
	ret = fork_check();
	if (ret < 0)
		return ret;
	snprintf(service, sizeof(service), "%u", address->port ? address->port : FABRIC_PORT);
	ret = lookup(address->host, service, AF_UNSPEC, &list);
	if (ret < 0)
		return ret;
	ret = connect_any(&a, list, timeout_ns);
	freeaddrinfo(list);
	if (ret < 0)
		return ret;
	*ret_bytes = a.reply_bytes;
	*ret_ep = a.v ? &a.v->ep : NULL;
	return 0;
}

const struct fabric_transport fabric_verbs_transport = {.name = "verbs", .connect = verbs_connect};
