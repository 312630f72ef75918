/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs.c - one-sided access over a reliable connection of libibverbs: what fabric.h asks for
 *
 * Posting, waiting and the descriptor for event loops; the caller's thread. Everything between the
 * queue and the NIC is fabric-verbs-queue.c's. Next: that, fabric-verbs.h for the structure,
 * fabric-verbs-connect.c.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "fabric-verbs.h"
#include "tarn/tarn.h"

#define SPIN_CHECKS 16u /* polls per look at the clock */
#define VAIN_SPINS  4u
#define VAIN_EACH   8u

static int lost(const struct verbs_endpoint *v)
{
	return err_set(-TARN_ESESSION, "%s", v->why);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* What the connection manager has to say; each event is acknowledged once. */
static void cm_look(struct verbs_endpoint *v)
{
	struct rdma_cm_event *event;

	while (v->channel && rdma_get_cm_event(v->channel, &event) == 0) {
		enum rdma_cm_event_type type = event->event;
		int status = event->status;

		rdma_ack_cm_event(event);
		switch (type) {
		case RDMA_CM_EVENT_DISCONNECTED:
		case RDMA_CM_EVENT_DEVICE_REMOVAL:
		case RDMA_CM_EVENT_ADDR_CHANGE:
		case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		case RDMA_CM_EVENT_CONNECT_ERROR:
		case RDMA_CM_EVENT_UNREACHABLE:
			fabric_verbs_lose(v, "connection lost: %s (status %d): %s",
					  verbs_event_name(type), status, verbs_event_text(type));
			break;
		case RDMA_CM_EVENT_REJECTED:
			/* ended at once: on the other side it did not count as established yet */
			fabric_verbs_lose(v, "connection lost: %s (status %d): %s",
					  verbs_event_name(type), status,
					  verbs_event_text(RDMA_CM_EVENT_DISCONNECTED));
			break;
		case RDMA_CM_EVENT_ADDR_RESOLVED:
		case RDMA_CM_EVENT_ADDR_ERROR:
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
		case RDMA_CM_EVENT_ROUTE_ERROR:
		case RDMA_CM_EVENT_CONNECT_REQUEST:
		case RDMA_CM_EVENT_CONNECT_RESPONSE:
		case RDMA_CM_EVENT_ESTABLISHED:
		case RDMA_CM_EVENT_MULTICAST_JOIN:
		case RDMA_CM_EVENT_MULTICAST_ERROR:
			break;
		}
	}
}

/* A connection that ends tells both ways: a moment's patience gives the better reason. */
#define CM_SOON_MS 5

void fabric_verbs_cm_look_soon(struct verbs_endpoint *v)
{
	struct pollfd fd = {.fd = v->channel ? v->channel->fd : -1, .events = POLLIN};

	if (poll(&fd, 1, CM_SOON_MS) > 0)
		cm_look(v);
}

#define PROBE_NS 500000000ull /* without an answer, then the connection is tried */

static bool asking(const struct verbs_endpoint *v)
{
	return v->atomic_busy || (v->rpc_busy && v->rpc_sent);
}

/* Times that no completion tells of: an answer that does not come, a NIC that does not get on. */
static void limits_look(struct verbs_endpoint *v)
{
	uint64_t now = asking(v) || v->stall_ns ? clock_now_ns() : 0;

	if (!asking(v))
		v->probe_ns = 0;
	if (v->lost)
		return;
	if (asking(v) && now >= v->probe_ns) {
		if (v->probe_ns)
			fabric_verbs_probe(v);
		v->probe_ns = now + PROBE_NS;
	}
	if (v->atomic_busy && now > v->atomic_limit_ns)
		fabric_verbs_lose(v,
				  "connection given up: tarnd has not answered a CAS or FAA for "
				  "%llu ms: it is stopped or overloaded",
				  (unsigned long long)(v->rpc_limit_ns / 1000000));
	else if (v->stall_ns && v->reaped < v->awaited && now > v->progress_ns + v->stall_ns &&
		 /* sent, and waited for by the limit above */
		 !(v->atomic_busy && v->atomic_sent && v->reaped == v->atomic_sequence))
		fabric_verbs_lose(v,
				  "connection given up: no request has completed for %llu ms: the "
				  "host is gone, the network loses packets, or the adapter hangs",
				  (unsigned long long)(v->stall_ns / 1000000));
}

static bool something(const struct verbs_endpoint *v)
{
	return v->done_head != v->done_tail || v->lost || v->noticed;
}

static void event_fetch(struct verbs_endpoint *v)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(v->completions, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		v->armed = false;
	}
}

/* After this, whatever completes makes the completion channel readable. */
static void arm(struct verbs_endpoint *v)
{
	if (v->lost || v->armed)
		return;
	if (ibv_req_notify_cq(v->cq, 0)) {
		fabric_verbs_lose(v, "connection lost: the completion queue gives no events");
		return;
	}
	v->armed = true;
	fabric_verbs_process(v); /* what came before makes no event */
}

static bool spin(struct verbs_endpoint *v, uint64_t until)
{
	for (;;) {
		for (unsigned i = 0; i < SPIN_CHECKS; i++) {
			fabric_verbs_process(v);
			if (something(v))
				return true;
		}
		if (clock_now_ns() >= until)
			return false;
	}
}

static void sleep_until_event(struct verbs_endpoint *v, uint64_t ns)
{
	struct pollfd fds[2] = {{.fd = v->completions->fd, .events = POLLIN},
				{.fd = v->channel ? v->channel->fd : -1, .events = POLLIN}};
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	if (ppoll(fds, 2, &t, NULL) <= 0)
		return;
	if (fds[0].revents)
		event_fetch(v);
	if (fds[1].revents)
		cm_look(v);
}

/* While one of limits_look()'s times runs: how often it is looked at. */
#define LIMITS_NS 50000000ull

static uint64_t sleep_choose(const struct verbs_endpoint *v, uint64_t ns)
{
	bool limited = asking(v) || (v->stall_ns && v->reaped < v->awaited);

	return limited && ns > LIMITS_NS ? LIMITS_NS : ns;
}

/*
 * Polling takes time from whoever the completion has to come from, when they share a processor, and is in vain where much is on its way:
 * after some waits that were longer it is tried now and then.
 */
static bool may_spin(struct verbs_endpoint *v)
{
	if (v->spins_in_vain < VAIN_SPINS)
		return true;
	if (++v->spins_left_out < VAIN_EACH)
		return false;
	v->spins_left_out = 0;
	return true;
}

/* False: nothing has come, as far as it was polled. */
static bool spin_first(struct verbs_endpoint *v, uint64_t now, uint64_t timeout_ns)
{
	uint64_t spin_ns = v->settings.spin_us * 1000ull;

	if (!spin_ns || !may_spin(v))
		return false;
	if (spin(v, now + (spin_ns < timeout_ns ? spin_ns : timeout_ns))) {
		v->spins_in_vain = 0;
		return true;
	}
	if (v->spins_in_vain < VAIN_SPINS)
		v->spins_in_vain++;
	return false;
}

static int verbs_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	uint64_t now = clock_now_ns(), until = now + timeout_ns;

	fabric_verbs_process(v);
	if (something(v) || spin_first(v, now, timeout_ns))
		return 0;
	while (!something(v)) {
		now = clock_now_ns();
		if (now >= until)
			break;
		arm(v);
		if (something(v))
			break;
		sleep_until_event(v, sleep_choose(v, until - now));
		fabric_verbs_process(v);
		limits_look(v);
	}
	return 0;
}

/* ---- what the caller sees -------------------------------------------------------------------- */

static inline int request_check(const struct verbs_endpoint *v, const struct fabric_request *r)
{
	const struct verbs_space *space = NULL;
	uint64_t bytes = v->ep.pool_bytes;

	if (r->space) {
		space = v->spaces && r->space <= FABRIC_SPACES ? &v->spaces[r->space - 1] : NULL;
		bytes = space ? space->bytes : 0;
	}
	if (r->offset > bytes || r->length > bytes - r->offset || (r->space && !bytes))
		return -EINVAL;
	if (r->opcode == FABRIC_READ)
		return 0;
	if (r->opcode > FABRIC_FAA)
		return -EINVAL;
	if (v->ep.read_only || (space && space->read_only))
		return -TARN_EREADONLY;
	if (r->opcode >= FABRIC_CAS && (r->offset % 8 || r->length != 8))
		return -EINVAL;
	if ((r->flags & FABRIC_INLINE) && r->length > FABRIC_INLINE_BYTES)
		return -EINVAL;
	return 0;
}

/* Until the queue has room for so many. */
static int make_room(struct verbs_endpoint *v, unsigned count)
{
	while (VERBS_QUEUE - (v->queue_tail - v->queue_head) < count) {
		fabric_verbs_pump(v);
		fabric_verbs_process(v);
		if (v->lost)
			return lost(v);
		if (VERBS_QUEUE - (v->queue_tail - v->queue_head) >= count)
			break;
		arm(v);
		if (!v->lost && VERBS_QUEUE - (v->queue_tail - v->queue_head) < count)
			sleep_until_event(v, LIMITS_NS);
		limits_look(v);
	}
	return v->lost ? lost(v) : 0;
}

static void enqueue(struct verbs_endpoint *v, const struct fabric_request *r, bool last,
		    void *cookie)
{
	struct verbs_queued *q = &v->queue[v->queue_tail++ % VERBS_QUEUE];

	q->kind = r->opcode;
	q->flags = r->flags;
	q->space = (uint8_t)r->space;
	q->notify = false;
	q->last = last;
	q->length = r->length;
	q->done = 0;
	q->offset = r->offset;
	q->local = r->local;
	q->compare = r->compare;
	q->operand = r->operand;
	q->cookie = last ? cookie : NULL;
	if (r->opcode == FABRIC_WRITE && (r->flags & FABRIC_INLINE)) {
		if (r->length)
			memcpy(q->bytes, r->local, r->length);
		q->local = q->bytes;
	}
}

/*
 * Requests of no bytes are left out; a post of nothing else reads a byte, to have its completion.
 * So does, on iWARP, a post that ends with a WRITE: see signal_when_due(). At most count + 1.
 */
static void enqueue_all(struct verbs_endpoint *v, const struct fabric_request *requests,
			unsigned count, void *cookie)
{
	const struct fabric_request byte = {.opcode = FABRIC_READ, .length = 1};
	bool more;

	while (count > 0 && requests[count - 1].length == 0)
		count--;
	more = cookie && (count == 0 || (v->iwarp && requests[count - 1].opcode == FABRIC_WRITE));
	for (unsigned i = 0; i < count; i++)
		if (requests[i].length)
			enqueue(v, &requests[i], !more && i == count - 1, cookie);
	if (more)
		enqueue(v, &byte, true, cookie);
}

static int verbs_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		      unsigned count, void *cookie)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	int ret;

	if (v->lost)
		return lost(v);
	for (unsigned i = 0; i < count; i++) {
		ret = request_check(v, &requests[i]);
		if (ret < 0)
			return ret;
	}
	if (cookie && v->owed >= VERBS_POSTS)
		return err_set(-EAGAIN, "%u posts are under way: poll first", v->owed);
	ret = make_room(v, count + 1);
	if (ret < 0)
		return ret;
	v->owed += cookie != NULL;
	enqueue_all(v, requests, count, cookie);
	if (!v->holding)
		fabric_verbs_pump(v);
	return 0;
}

static void verbs_hold(struct fabric_endpoint *ep, int on)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);

	v->holding = on;
	if (!on && v->queue_head != v->queue_tail)
		fabric_verbs_pump(v);
}

/* The place of the one RPC is free, and taken from now on. 0 or a negative code. */
static int rpc_begin(struct verbs_endpoint *v, uint32_t tag, void *reply, size_t capacity, void *cookie)
{
	int ret;

	if (v->rpc_busy || v->rpc_done)
		return -EBUSY;
	if (v->stale >= VERBS_STALE_MAX) {
		fabric_verbs_process(v); /* an answer may have come */
		if (v->stale >= VERBS_STALE_MAX)
			return err_set(-EAGAIN, "tarnd does not answer RPCs");
	}
	ret = make_room(v, 1);
	if (ret < 0)
		return ret;
	v->rpc_busy = true;
	v->rpc_sent = false;
	v->rpc_tag = tag;
	v->rpc_cookie = cookie;
	v->rpc_reply = reply;
	v->rpc_capacity = capacity;
	v->owed++;
	return 0;
}

static int verbs_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		     size_t capacity, void *cookie)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	struct verbs_queued *q;
	int ret;

	if (v->responder)
		return -EOPNOTSUPP;
	if (v->lost)
		return lost(v);
	if (bytes < VERBS_TAG_AT + sizeof(v->rpc_tag) || bytes > WIRE_RPC_MAX_BYTES)
		return -EINVAL;
	ret = rpc_begin(v, fabric_verbs_tag(v), reply, capacity, cookie);
	if (ret < 0)
		return ret;
	q = &v->queue[v->queue_tail++ % VERBS_QUEUE];
	*q = (struct verbs_queued){.kind = VERBS_RPC, .length = (uint32_t)bytes, .tag = v->rpc_tag};
	memcpy(q->bytes, message, bytes);
	memcpy(v->rpc_caller_tag, q->bytes + VERBS_TAG_AT, sizeof(v->rpc_caller_tag));
	memcpy(q->bytes + VERBS_TAG_AT, &v->rpc_tag, sizeof(v->rpc_tag));
	fabric_verbs_pump(v);
	return 0;
}

static int verbs_write_notify(struct fabric_endpoint *ep, const struct fabric_request *r, void *reply,
			      size_t capacity, void *cookie)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	int ret = v->lost ? lost(v) : request_check(v, r);

	/* iWARP has no immediate data; what may be given up must not refer to the caller's memory */
	if (v->iwarp)
		return -EOPNOTSUPP;
	if (r->opcode != FABRIC_WRITE || !(r->flags & FABRIC_INLINE))
		return -EINVAL;
	if (ret == 0)
		ret = rpc_begin(v, fabric_verbs_tag(v) & WIRE_NOTIFY_TAG_MASK, reply, capacity, cookie);
	if (ret < 0)
		return ret;
	memset(v->rpc_caller_tag, 0, sizeof(v->rpc_caller_tag));
	enqueue(v, r, false, NULL);
	v->queue[(v->queue_tail - 1) % VERBS_QUEUE].notify = true;
	v->queue[(v->queue_tail - 1) % VERBS_QUEUE].tag = v->rpc_tag;
	fabric_verbs_pump(v);
	return 0;
}

/* The completion of the RPC, if it has come and nobody has taken it. */
static void done_drop_rpc(struct verbs_endpoint *v)
{
	if (!v->rpc_done)
		return;
	for (uint32_t i = v->rpc_done_at; i + 1 != v->done_tail; i++)
		v->done[i % VERBS_DONE] = v->done[(i + 1) % VERBS_DONE];
	v->done_tail--;
	v->owed--;
	v->rpc_done = false;
}

static void verbs_rpc_cancel(struct fabric_endpoint *ep)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);

	if (!v->rpc_busy) {
		done_drop_rpc(v);
		return;
	}
	v->rpc_busy = false;
	v->owed--;
	if (v->rpc_sent) {
		v->stale++;
		return;
	}
	for (uint32_t i = v->queue_head; i != v->queue_tail; i++) {
		struct verbs_queued *q = &v->queue[i % VERBS_QUEUE];

		if ((q->kind == VERBS_RPC || q->notify) && q->tag == v->rpc_tag)
			q->kind = VERBS_NOTHING;
	}
}

static int take_done(struct verbs_endpoint *v, struct fabric_completion *ret_completions,
		     unsigned max)
{
	unsigned n = 0;

	while (n < max && v->done_head != v->done_tail) {
		if (v->rpc_done && v->rpc_done_at == v->done_head)
			v->rpc_done = false;
		ret_completions[n++] = v->done[v->done_head++ % VERBS_DONE];
	}
	v->owed -= n;
	if (v->lost && n > 0)
		lost(v);
	return (int)n;
}

#define IDLE_POLLS 4096u /* then the times and the connection manager are looked at, too */

static int verbs_poll(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
		      unsigned max)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	int count;

	fabric_verbs_process(v);
	v->noticed = false;
	count = take_done(v, ret_completions, max);
	if (count > 0) {
		v->idle_polls = 0;
		return count;
	}
	if (v->lost)
		return lost(v);
	if (v->epoll >= 0) {
		/* somebody sleeps on the descriptor when we have nothing: it has to wake him */
		if (v->armed)
			event_fetch(v);
		arm(v);
		cm_look(v);
		limits_look(v);
		count = take_done(v, ret_completions, max);
		return count == 0 && v->lost ? lost(v) : count;
	}
	if (++v->idle_polls >= IDLE_POLLS) {
		v->idle_polls = 0;
		cm_look(v);
		limits_look(v);
	}
	return 0;
}

static int verbs_check(struct fabric_endpoint *ep)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);

	fabric_verbs_process(v);
	if (!v->lost)
		cm_look(v);
	limits_look(v);
	return v->lost ? lost(v) : 0;
}

static int verbs_fd(struct fabric_endpoint *ep)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	struct epoll_event event = {.events = EPOLLIN};
	int fd;

	if (v->epoll >= 0)
		return v->epoll;
	fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd < 0)
		return err_set(-errno, "epoll_create1: %s", strerror(errno));
	if (epoll_ctl(fd, EPOLL_CTL_ADD, v->completions->fd, &event) < 0 ||
	    (v->channel && epoll_ctl(fd, EPOLL_CTL_ADD, v->channel->fd, &event) < 0)) {
		int error = errno;

		close(fd);
		return err_set(-error, "epoll_ctl: %s", strerror(error));
	}
	v->epoll = fd;
	arm(v);
	return fd;
}

static uint64_t verbs_now(struct fabric_endpoint *ep)
{
	(void)ep;
	return clock_now_ns();
}

static void verbs_close(struct fabric_endpoint *ep)
{
	fabric_verbs_free(verbs_endpoint(ep));
}

const struct fabric_ops fabric_verbs_ops = {
	.name = "verbs",
	.post = verbs_post,
	.rpc = verbs_rpc,
	.rpc_cancel = verbs_rpc_cancel,
	.hold = verbs_hold,
	.memory_add = fabric_verbs_memory_add,
	.memory_add_dmabuf = fabric_verbs_memory_add_dmabuf,
	.memory_remove = fabric_verbs_memory_remove,
	.memory_has = fabric_verbs_memory_has,
	.space_add = fabric_verbs_space_add,
	.space_remove = fabric_verbs_space_remove,
	.space_alive = fabric_verbs_space_alive,
	.write_notify = verbs_write_notify,
	.poll = verbs_poll,
	.wait = verbs_wait,
	.check = verbs_check,
	.fd = verbs_fd,
	.now = verbs_now,
	.close = verbs_close,
};
