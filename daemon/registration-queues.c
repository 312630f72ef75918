/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues of a registration, through which its clients' messages come: one completion queue, and
 * the receives, shared or of each queue pair. Main thread. peer-verbs.c handles what comes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "err.h"
#include "peer-verbs.h"
#include "registration.h"

#define POLL_BATCH 32
#define POLL_MOST  1024u /* completions before others get their turn */
#define SPARE      64u   /* receives beyond what honest clients need */
#define BUFFER     WIRE_RPC_MAX_BYTES

/* ---- receives ---- */

static void receive_fill(const struct registration *reg, uint32_t index, struct ibv_sge *ret_sge,
			 struct ibv_recv_wr *ret_wr)
{
	*ret_sge = (struct ibv_sge){
		.addr = (uint64_t)(uintptr_t)(reg->buffers + (size_t)index * BUFFER),
		.length = BUFFER,
		.lkey = reg->buffer_mr->lkey};
	*ret_wr = (struct ibv_recv_wr){.wr_id = index, .sg_list = ret_sge, .num_sge = 1};
}

static int receive_post(struct registration *reg, struct ibv_qp *qp, uint32_t index)
{
	struct ibv_recv_wr wr, *bad;
	struct ibv_sge sge;
	int rc;

	receive_fill(reg, index, &sge, &wr);
	rc = reg->srq ? ibv_post_srq_recv(reg->srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
	/* verbs give a positive errno, siw a negative one */
	return rc == 0 ? 0 : -abs(rc);
}

int registration_receives_post(struct registration *reg, struct peer_verbs *peer)
{
	if (reg->srq)
		return 0;
	for (uint32_t i = 0; i < REGISTRATION_RECEIVES; i++) {
		int rc = receive_post(reg, peer->qp, peer->place * REGISTRATION_RECEIVES + i);

		if (rc < 0)
			return err_set(rc, "%s takes no receive: %s", reg->device->name,
				       strerrordesc_np(-rc));
	}
	return 0;
}

/* How many clients there may be, so that neither queue ever overflows. */
static void queues_plan(struct registration *reg, bool shared)
{
	const struct ibv_device_attr *attr = &reg->device->verbs.attr;
	uint32_t most = (uint32_t)attr->max_cqe, clients = reg->pool->geometry.max_clients;
	uint64_t each = REGISTRATION_SENDS + (shared ? 0 : REGISTRATION_RECEIVES), fixed = 0;

	reg->buffer_count = clients * REGISTRATION_RECEIVES;
	if (shared) {
		reg->buffer_count = REGISTRATION_HONEST * clients + SPARE;
		if (reg->buffer_count > (uint32_t)attr->max_srq_wr)
			reg->buffer_count = (uint32_t)attr->max_srq_wr;
		fixed = reg->buffer_count;
	}
	reg->peer_max = clients;
	if (fixed + each * clients > most)
		reg->peer_max = most > fixed ? (uint32_t)((most - fixed) / each) : 0;
	reg->cqe = (uint32_t)(fixed + each * reg->peer_max);
}

/* error: errno; 0 where a provider has failed without a word. */
static int no_queue(const struct registration *reg, const char *what, int error)
{
	if (error == 0)
		error = EIO;
	return err_set(-error, "%s: no %s for pool %s: %s%s", reg->device->name, what,
		       reg->pool->name, strerrordesc_np(error),
		       error == ENOMEM ? " (locked memory or the device's resources: LimitMEMLOCK, "
					 "`rdma resource`), or lower max_clients"
				       : "");
}

static int buffers_create(struct registration *reg)
{
	size_t bytes = ((size_t)reg->buffer_count * BUFFER + 4095) / 4096 * 4096;

	reg->buffers = aligned_alloc(4096, bytes);
	if (!reg->buffers)
		return err_set(-ENOMEM, "out of memory");
	memset(reg->buffers, 0, bytes);
	reg->buffer_mr = ibv_reg_mr(reg->pd, reg->buffers, bytes, IBV_ACCESS_LOCAL_WRITE);
	return reg->buffer_mr ? 0 : no_queue(reg, "registered buffers", errno);
}

static int shared_create(struct registration *reg)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = reg->buffer_count, .max_sge = 1}};

	errno = 0;
	reg->srq = ibv_create_srq(reg->pd, &attr);
	if (!reg->srq)
		return no_queue(reg, "shared receive queue", errno);
	for (uint32_t i = 0; i < reg->buffer_count; i++) {
		int rc = receive_post(reg, NULL, i);

		if (rc < 0)
			return no_queue(reg, "receives in the shared queue", -rc);
	}
	return 0;
}

static int places_create(struct registration *reg)
{
	reg->free_places = calloc(reg->peer_max + 1, sizeof(uint32_t));
	if (!reg->free_places)
		return err_set(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < reg->peer_max; i++)
		reg->free_places[reg->free_count++] = reg->peer_max - 1 - i;
	return 0;
}

/* A test may want to see how it goes without shared receive queues. */
static bool shared_possible(const struct registration *reg)
{
	const struct ibv_device_attr *attr = &reg->device->verbs.attr;

	return attr->max_srq > 0 && attr->max_srq_wr > 0 && !secure_getenv("TARND_NO_SRQ");
}

/* ---- clients ---- */

struct peer_verbs *registration_peer_find(struct registration *reg, uint32_t qp_num)
{
	struct peer_verbs *peer;

	LIST_FOREACH (peer, &reg->peers[qp_num % REGISTRATION_BUCKETS], by_number)
		if (peer->qp_num == qp_num)
			return peer;
	return NULL;
}

void registration_peer_add(struct registration *reg, struct peer_verbs *peer)
{
	if (!reg->srq)
		peer->place = reg->free_places[--reg->free_count]; /* peer_max of them */
	LIST_INSERT_HEAD(&reg->peers[peer->qp_num % REGISTRATION_BUCKETS], peer, by_number);
	reg->peer_count++;
}

void registration_peer_remove(struct registration *reg, struct peer_verbs *peer)
{
	if (!reg->srq)
		reg->free_places[reg->free_count++] = peer->place;
	LIST_REMOVE(peer, by_number);
	reg->peer_count--;
}

/* ---- completions ---- */

static void completion(struct registration *reg, const struct ibv_wc *wc)
{
	struct peer_verbs *peer = registration_peer_find(reg, wc->qp_num);
	bool receive = wc->wr_id < reg->buffer_count;
	const uint8_t *message = reg->buffers + (size_t)wc->wr_id * BUFFER;

	if (!peer)
		reg->stale++; /* of one that has ended */
	else
		peer_verbs_completion(peer, wc, receive ? message : NULL);
	if (!receive)
		return;
	reg->receives += wc->status == IBV_WC_SUCCESS;
	/* At once, so that nobody finds the shared queue empty; a queue pair that has failed gets
	 * none. */
	if (reg->srq ||
	    (peer && peer->state != PEER_VERBS_FENCED && wc->status != IBV_WC_WR_FLUSH_ERR))
		if (receive_post(reg, peer ? peer->qp : NULL, (uint32_t)wc->wr_id) < 0 && reg->srq)
			device_lose(reg->device, "its shared receive queue takes no receives");
}

void registration_poll(struct registration *reg, uint32_t most)
{
	struct ibv_wc wcs[POLL_BATCH];
	uint32_t handled = 0;
	int count;

	while (handled < most && (count = ibv_poll_cq(reg->cq, POLL_BATCH, wcs)) > 0) {
		for (int i = 0; i < count; i++)
			completion(reg, &wcs[i]);
		handled += (uint32_t)count;
	}
	/*
	 * By a timer: libevent runs what is made active in a handler before it looks at anything
	 * else, and while the queue is never empty no other event would ever have its turn.
	 */
	if (handled >= most)
		event_add(reg->more, &(struct timeval){0});
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct registration *reg = arg;
	struct ibv_cq *cq;
	unsigned events = 0;
	void *context;

	(void)fd;
	(void)what;
	while (ibv_get_cq_event(reg->channel, &cq, &context) == 0)
		events++;
	if (events)
		ibv_ack_cq_events(reg->cq, events);
	/* Armed before it is polled: what comes between makes a new event. */
	if (ibv_req_notify_cq(reg->cq, 0) != 0)
		device_lose(reg->device,
			    "the device is gone, or has failed (a completion queue can "
			    "not be armed)");
	registration_poll(reg, POLL_MOST);
}

static int completions_create(struct registration *reg)
{
	struct daemon *daemon = reg->device->rdma->daemon;

	errno = 0;
	reg->channel = ibv_create_comp_channel(reg->device->verbs.context);
	if (!reg->channel)
		return no_queue(reg, "completion channel", errno);
	if (evutil_make_socket_nonblocking(reg->channel->fd) < 0)
		return no_queue(reg, "nonblocking completion channel", errno);
	errno = 0;
	reg->cq = ibv_create_cq(reg->device->verbs.context, (int)reg->cqe, NULL, reg->channel, 0);
	if (!reg->cq)
		return no_queue(reg, "completion queue", errno);
	reg->readable =
		event_new(daemon->base, reg->channel->fd, EV_READ | EV_PERSIST, on_readable, reg);
	reg->more = evtimer_new(daemon->base, on_readable, reg);
	if (!reg->readable || !reg->more || event_add(reg->readable, NULL) < 0)
		return err_set(-ENOMEM, "out of memory");
	if (ibv_req_notify_cq(reg->cq, 0) != 0)
		return no_queue(reg, "armed completion queue", errno);
	return 0;
}

/* ---- open and free ---- */

int registration_queues_open(struct registration *reg)
{
	bool shared = shared_possible(reg);
	int rc;

	queues_plan(reg, shared);
	if (reg->peer_max == 0)
		return err_set(-ENOTSUP, "%s: its completion queues hold %d entries, too few",
			       reg->device->name, reg->device->verbs.attr.max_cqe);
	if (reg->peer_max < reg->pool->geometry.max_clients)
		log_warning(reg->pool->log,
			    "pool %s: %s can serve %u clients at once, max_clients is %u (its "
			    "completion queues hold %d entries)",
			    reg->pool->name, reg->device->name, reg->peer_max,
			    reg->pool->geometry.max_clients, reg->device->verbs.attr.max_cqe);
	rc = completions_create(reg);
	if (rc == 0)
		rc = buffers_create(reg);
	if (rc == 0)
		rc = shared ? shared_create(reg) : places_create(reg);
	return rc;
}

void registration_queues_free(struct registration *reg)
{
	if (reg->readable)
		event_free(reg->readable);
	if (reg->more)
		event_free(reg->more);
	if (reg->srq)
		ibv_destroy_srq(reg->srq);
	if (reg->buffer_mr)
		ibv_dereg_mr(reg->buffer_mr);
	if (reg->cq) {
		struct ibv_cq *cq;
		unsigned events = 0;
		void *context;

		/* to destroy it blocks until each event that was read is acknowledged */
		while (ibv_get_cq_event(reg->channel, &cq, &context) == 0)
			events++;
		if (events)
			ibv_ack_cq_events(reg->cq, events);
		ibv_destroy_cq(reg->cq);
	}
	if (reg->channel)
		ibv_destroy_comp_channel(reg->channel);
	free(reg->buffers);
	free(reg->free_places);
}
