/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs-resources.c - what a verbs endpoint consists of: made, described and unmade
 *
 * Protection domain, completion queue, queue pair, registered memory, and the pool's regions.
 * Whatever has been made stands in the endpoint, so fabric_verbs_free() is the one way back from
 * anywhere. The caller's thread. Next: fabric-verbs-connect.c, which connects it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "fabric-verbs.h"
#include "layout.h"
#include "tarn/tarn.h"

#define MEMORY_BYTES (VERBS_RING_BYTES + VERBS_RECVS * WIRE_RPC_MAX_BYTES)

/* ---- resources of an endpoint ---------------------------------------------------------------- */

struct verbs_endpoint *fabric_verbs_new(const struct fabric_settings *settings)
{
	struct verbs_endpoint *v = calloc(1, sizeof(*v));

	if (!v) {
		err_set(-ENOMEM, "no memory for an endpoint");
		return NULL;
	}
	v->ep.ops = &fabric_verbs_ops;
	v->settings = *settings;
	v->epoll = -1;
	v->pid = getpid();
	return v;
}

int fabric_verbs_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_set(-errno, "fcntl: %s", strerror(errno));
	return 0;
}

/* errno of a failed call, with the remedy that is nearly always the right one. */
int fabric_verbs_resource_error(const char *device, const char *what)
{
	int error = errno ? errno : EIO;

	if (error == ENOMEM || error == EAGAIN)
		return err_set(-ENOMEM,
			       "%s: no %s: %s: the limit of locked memory is too low (ulimit -l; "
			       "LimitMEMLOCK= of a systemd unit), or the adapter is out of "
			       "resources (`rdma resource`)",
			       device, what, strerror(error));
	return err_set(-error, "%s: no %s: %s", device, what, strerror(error));
}

static const char *device_name(const struct verbs_endpoint *v)
{
	return ibv_get_device_name(v->context->device);
}

/* A domain that says: one thread at a time. It saves the provider's locks; few offer it. */
static void thread_domain_create(struct verbs_endpoint *v)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr attr = {.pd = v->pd};

	v->td = ibv_alloc_td(v->context, &td_attr);
	if (!v->td)
		return;
	attr.td = v->td;
	v->parent_domain = ibv_alloc_parent_domain(v->context, &attr);
	if (!v->parent_domain) {
		ibv_dealloc_td(v->td);
		v->td = NULL;
	}
}

static uint32_t depth_choose(const struct verbs_device *device)
{
	uint32_t depth = VERBS_FLIGHTS;

	while (depth > 16 && depth > (uint32_t)device->attr.max_qp_wr)
		depth /= 2;
	return depth;
}

/* As much inline data as the device takes. */
struct ibv_qp *fabric_verbs_qp_create(struct verbs_endpoint *v, uint32_t sends, uint32_t recvs,
				      uint32_t *ret_inline)
{
	static const uint32_t inlines[] = {VERBS_INLINE, 128, 80, 64, 0};
	struct ibv_qp *qp = NULL;

	for (unsigned i = 0; !qp && i < sizeof(inlines) / sizeof(inlines[0]); i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = v->cq,
			.recv_cq = v->cq,
			.cap = {.max_send_wr = sends,
				.max_recv_wr = recvs,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inlines[i]},
			.qp_type = IBV_QPT_RC,
		};

		errno = 0;
		qp = ibv_create_qp(v->parent_domain ? v->parent_domain : v->pd, &attr);
		if (qp)
			*ret_inline = attr.cap.max_inline_data;
		else if (errno == ENOMEM)
			return NULL;
	}
	return qp;
}

static int memory_create(struct verbs_endpoint *v)
{
	uint8_t *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		return err_set(-ENOMEM, "no memory for an endpoint: %s", strerror(errno));
	v->memory = memory;
	/* a fork would make the process's pages copies, while the adapter goes on with the old */
	madvise(memory, MEMORY_BYTES, MADV_DONTFORK);
	errno = 0;
	v->mr = ibv_reg_mr(v->pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE);
	return v->mr ? 0
		     : fabric_verbs_resource_error(device_name(v),
						   "registration of 1 MiB of memory");
}

/* All that a connection needs of the device. v->context is set, v->pd may be. */
int fabric_verbs_resources(struct verbs_endpoint *v, const struct verbs_device *device,
			   uint32_t recvs)
{
	v->iwarp = device->iwarp;
	v->depth = depth_choose(device);
	v->held = verbs_context_hold(device);
	errno = 0;
	if (!v->pd)
		v->pd = ibv_alloc_pd(v->context);
	if (!v->pd)
		return fabric_verbs_resource_error(device->name, "protection domain");
	thread_domain_create(v);
	errno = 0; /* that there is no such domain is no cause of what follows */
	v->completions = ibv_create_comp_channel(v->context);
	if (!v->completions)
		return fabric_verbs_resource_error(device->name, "completion channel");
	/* everything may be signaled, and everything is when it is flushed */
	v->cq = ibv_create_cq(v->context, (int)(v->depth + recvs + VERBS_POLL_BATCH), NULL,
			      v->completions, 0);
	if (!v->cq)
		return fabric_verbs_resource_error(device->name, "completion queue");
	v->qp = fabric_verbs_qp_create(v, v->depth, recvs, &v->max_inline);
	if (!v->qp)
		return fabric_verbs_resource_error(device->name, "queue pair");
	return fabric_verbs_nonblocking(v->completions->fd) < 0 ? -EIO : memory_create(v);
}

/* librdmacm waits in rdma_destroy_id() for those that were fetched, and for no others. */
static void cm_drain(struct verbs_endpoint *v)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(v->channel, &event) == 0)
		rdma_ack_cm_event(event);
}

static void qps_destroy(struct verbs_endpoint *v)
{
	if (v->qp)
		ibv_destroy_qp(v->qp);
	if (v->responder)
		ibv_destroy_qp(v->responder);
	if (v->cq)
		ibv_destroy_cq(v->cq); /* waits for unacknowledged events: there are none */
	if (v->completions)
		ibv_destroy_comp_channel(v->completions);
}

static void domains_destroy(struct verbs_endpoint *v)
{
	fabric_verbs_memory_drop(v);
	if (v->mr)
		ibv_dereg_mr(v->mr);
	if (v->memory)
		munmap(v->memory, MEMORY_BYTES);
	if (v->parent_domain)
		ibv_dealloc_pd(v->parent_domain);
	if (v->td)
		ibv_dealloc_td(v->td);
	if (v->pd && !v->pd_borrowed)
		ibv_dealloc_pd(v->pd);
}

void fabric_verbs_free(struct verbs_endpoint *v)
{
	/* a forked child has copies of the numbers; what they name is the parent's */
	if (v->pid == getpid()) {
		if (v->connected)
			rdma_disconnect(v->id);
		if (v->epoll >= 0)
			close(v->epoll);
		qps_destroy(v);
		domains_destroy(v);
		if (v->held)
			verbs_context_release(v->context);
		if (v->id) {
			cm_drain(v);
			rdma_destroy_id(v->id);
		}
		if (v->channel)
			rdma_destroy_event_channel(v->channel);
	}
	fabric_verbs_space_free(&v->pool);
	for (unsigned i = 0; v->spaces && i < FABRIC_SPACES; i++)
		fabric_verbs_space_free(&v->spaces[i]);
	free(v->spaces);
	free(v->memories);
	free(v);
}

/* ---- the pool's regions ---------------------------------------------------------------------- */

int fabric_verbs_regions_set(struct verbs_endpoint *v, const struct wire_region *regions,
			     unsigned count, unsigned capacity)
{
	int ret = fabric_verbs_space_init(&v->pool, capacity);

	for (unsigned i = 0; ret == 0 && i < count; i++)
		ret = fabric_verbs_space_append(&v->pool, &regions[i], v->ep.pool_bytes);
	return ret;
}

/* One question to the daemon, on the connection that is up. */
static int ask_region(struct verbs_endpoint *v, uint64_t deadline, struct wire_region *ret_region)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_REGION, .class = v->pool.count};
	struct wire_rpc_reply reply;
	struct fabric_completion completion = {.status = 0};
	uint8_t message[WIRE_RPC_BYTES], answer[WIRE_RPC_MAX_BYTES];
	const struct fabric_ops *ops = v->ep.ops;
	int ret;

	wire_rpc_encode(&rpc, message);
	ret = ops->rpc(&v->ep, message, sizeof(message), answer, sizeof(answer), v);
	if (ret < 0)
		return ret;
	while ((ret = ops->poll(&v->ep, &completion, 1)) == 0) {
		uint64_t now = clock_now_ns();

		if (now >= deadline)
			return err_set(-TARN_ETIMEOUT,
				       "tarnd did not tell all regions of the pool in time");
		ops->wait(&v->ep, deadline - now);
	}
	if (ret < 0 || completion.status < 0)
		return -TARN_EUNREACHABLE; /* with the connection's text */
	ret = wire_rpc_reply_decode(answer, completion.length, &reply);
	if (ret < 0)
		return ret;
	if (reply.type != WIRE_RPC_REGION || reply.status < 0)
		return err_set(-TARN_EPROTO, "tarnd does not tell region %u of the pool: %s",
			       v->pool.count, err_string(reply.status));
	*ret_region = (struct wire_region){
		.address = (uint64_t)reply.value, .length = reply.length, .rkey = reply.number};
	return 0;
}

int fabric_verbs_regions_fetch(struct verbs_endpoint *v, uint64_t deadline)
{
	while (fabric_verbs_space_sum(&v->pool) < v->ep.pool_bytes) {
		struct wire_region region;
		int ret;

		if (v->pool.count == VERBS_REGIONS_MAX)
			return err_set(-TARN_EPROTO, "the pool has more than %u regions",
				       VERBS_REGIONS_MAX);
		ret = ask_region(v, deadline, &region);
		if (ret == 0)
			ret = fabric_verbs_space_append(&v->pool, &region, v->ep.pool_bytes);
		if (ret < 0)
			return ret;
	}
	if (fabric_verbs_space_sum(&v->pool) != v->ep.pool_bytes)
		return err_set(
			-TARN_EPROTO, "tarnd gave access to %llu bytes of a pool of %llu bytes",
			(unsigned long long)fabric_verbs_space_sum(&v->pool), (unsigned long long)v->ep.pool_bytes);
	return 0;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void describe_path(const struct verbs_endpoint *v, const struct ibv_qp_attr *attr,
			  struct verbs_description *d)
{
	struct ibv_gid_entry entry;

	d->ack_timeout = attr->timeout;
	d->retries = attr->retry_cnt;
	d->rnr_retries = attr->rnr_retry;
	d->late_ns = verbs_late_ns(attr->timeout, attr->retry_cnt);
	d->service_level = attr->ah_attr.sl;
	if (!attr->ah_attr.is_global)
		return;
	d->gid_index = attr->ah_attr.grh.sgid_index;
	d->traffic_class = attr->ah_attr.grh.traffic_class;
	if (ibv_query_gid_ex(v->context, d->port, attr->ah_attr.grh.sgid_index, &entry, 0))
		return;
	d->gid = entry.gid;
	d->roce_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
}

int fabric_verbs_describe(struct fabric_endpoint *ep, struct verbs_description *ret)
{
	const int mask = IBV_QP_PORT | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			 IBV_QP_RNR_RETRY | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC |
			 IBV_QP_MAX_DEST_RD_ATOMIC;
	struct verbs_endpoint *v = verbs_endpoint(ep);
	struct verbs_description d = {.gid_index = -1};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {0};
	int error;

	if (ep->ops != &fabric_verbs_ops)
		return err_set(-EOPNOTSUPP, "not a connection over RDMA");
	error = ibv_query_qp(v->qp, &attr, mask, &init);
	if (error)
		return err_set(error < 0 ? error : -error,
			       "%s: the queue pair cannot be queried: %s", device_name(v),
			       strerror(error < 0 ? -error : error));
	snprintf(d.device, sizeof(d.device), "%s", device_name(v));
	d.port = v->id ? v->id->port_num : attr.port_num;
	d.iwarp = v->iwarp;
	d.atomics_by_rpc = v->by_rpc;
	d.mtu_bytes = attr.path_mtu >= IBV_MTU_256 ? 128u << attr.path_mtu : 0;
	d.initiator_depth = attr.max_rd_atomic;
	d.responder_resources = attr.max_dest_rd_atomic;
	d.max_inline = v->max_inline;
	d.send_depth = v->depth;
	d.regions = v->pool.count;
	if (!v->iwarp)
		describe_path(v, &attr, &d);
	*ret = d;
	return 0;
}
