/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs-queue.c - requests on their way to the NIC and back
 *
 * The caller's thread does everything; no locks, no allocation, no system call but the doorbell
 * (and where the driver makes one of polling). A pump moves what fits of the queue into one list
 * for one ibv_post_send. What is not signaled is known to be complete when a later request is:
 * completions of one send queue come in order. CAS and FAA go to the NIC in a nic domain; in a cpu
 * domain they are a message to the daemon, and nothing is sent behind them until the answer is
 * there, which keeps the order that fabric.h promises. Next: fabric-verbs.h for the structure,
 * fabric-verbs.c for who calls.
 */
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "fabric-verbs.h"
#include "tarn/tarn.h"

#define RECV_ID    (1ull << 63) /* wr_id of a receive; else it is a flight's sequence number */
#define RING_ALIGN 64u
#define RING_MASK  (VERBS_RING_BYTES - 1)

static inline struct verbs_flight *flight_at(struct verbs_endpoint *v, uint64_t sequence)
{
	return &v->flights[sequence & (v->depth - 1)];
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void done_push(struct verbs_endpoint *v, void *cookie, int status, uint32_t length)
{
	v->done[v->done_tail++ % VERBS_DONE] =
		(struct fabric_completion){.cookie = cookie, .status = status, .length = length};
}

/* The RPC's completion can be taken back by rpc_cancel(). */
static void done_push_rpc(struct verbs_endpoint *v, int status, uint32_t length)
{
	v->rpc_busy = false;
	v->rpc_done = true;
	v->rpc_done_at = v->done_tail;
	done_push(v, v->rpc_cookie, status, length);
}

static void fail_unfinished(struct verbs_endpoint *v)
{
	for (; v->flight_head != v->flight_tail; v->flight_head++) {
		const struct verbs_flight *f = flight_at(v, v->flight_head);

		if (f->last && f->cookie)
			done_push(v, f->cookie, -TARN_ESESSION, 0);
	}
	for (; v->queue_head != v->queue_tail; v->queue_head++) {
		const struct verbs_queued *q = &v->queue[v->queue_head % VERBS_QUEUE];

		if (q->last && q->cookie)
			done_push(v, q->cookie, -TARN_ESESSION, 0);
	}
	if (v->rpc_busy)
		done_push_rpc(v, -TARN_ESESSION, 0);
	v->atomic_busy = false;
}

int fabric_verbs_lose(struct verbs_endpoint *v, const char *fmt, ...)
{
	va_list args;

	if (v->lost)
		return -TARN_ESESSION;
	v->lost = true;
	va_start(args, fmt);
	vsnprintf(v->why, sizeof(v->why), fmt, args);
	va_end(args);
	/*
	 * What the NIC still has must not take effect any more, nor touch the ring, nor memory that is the
	 * caller's again in a moment: only this makes sure of that.
	 */
	if (v->qp)
		verbs_qp_fence(v->qp);
	fabric_verbs_memory_drop(v);
	fail_unfinished(v);
	return err_set(-TARN_ESESSION, "%s", v->why);
}

/* ---- the staging ring ------------------------------------------------------------------------ */

/* Contiguous room; *ret_taken is what has to be given back. NULL: not now. */
static uint8_t *ring_take(struct verbs_endpoint *v, uint32_t bytes, uint32_t *ret_taken)
{
	uint32_t at = (uint32_t)(v->ring_tail & RING_MASK);
	uint32_t room = (bytes + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
	uint32_t skip = at + room > VERBS_RING_BYTES ? VERBS_RING_BYTES - at : 0;

	if (v->ring_tail - v->ring_head + skip + room > VERBS_RING_BYTES)
		return NULL;
	v->ring_tail += skip + room;
	*ret_taken = skip + room;
	return v->memory + (skip ? 0 : at);
}

/* ---- completion of what the NIC had ---------------------------------------------------------- */

static inline void deliver(const struct verbs_flight *f)
{
	switch ((enum verbs_kind)f->kind) {
	case VERBS_READ:
		if (f->local)
			memcpy(f->local, f->staged, f->length);
		break;
	case VERBS_CAS:
	case VERBS_FAA:
		memcpy(f->local, f->replied ? (const void *)&f->result : f->staged, 8);
		break;
	case VERBS_WRITE:
	case VERBS_RPC:
	case VERBS_NOTHING:
		break;
	}
}

/*
 * An atomic of the NIC that is complete, but whose result never came. soft-RoCE does that when
 * packets are lost: it takes the acknowledgement of a repeated WRITE before a CAS for the CAS's own
 * (seen in Linux 7.3). What was found there is not known then, and the CAS may have been done.
 */
static bool result_missing(const struct verbs_flight *f)
{
	return (f->kind == VERBS_CAS || f->kind == VERBS_FAA) && !f->replied &&
	       memcmp(f->staged, &f->result, sizeof(f->result)) == 0;
}

/* Everything up to `reaped`, but no atomic without its answer, nor what stands behind it. */
static void retire(struct verbs_endpoint *v)
{
	while (v->flight_head != v->reaped) {
		const struct verbs_flight *f = flight_at(v, v->flight_head);

		if (v->atomic_busy && v->flight_head == v->atomic_sequence)
			return;
		if (result_missing(f)) {
			fabric_verbs_lose(v,
					  "connection given up: the adapter says that a %s at "
					  "offset %llu is done, but not what it found there",
					  f->kind == VERBS_CAS ? "CAS" : "FAA",
					  (unsigned long long)f->offset);
			return;
		}
		deliver(f);
		v->ring_head += f->ring_bytes;
		v->flight_head++;
		if (f->last && f->cookie)
			done_push(v, f->cookie, 0, 0);
	}
}

static void lose_by_status(struct verbs_endpoint *v, const struct ibv_wc *wc)
{
	static const char *const names[] = {
		[VERBS_READ] = "READ", [VERBS_WRITE] = "WRITE", [VERBS_CAS] = "CAS",
		[VERBS_FAA] = "FAA",   [VERBS_RPC] = "RPC",     [VERBS_NOTHING] = "?"};
	const char *name = verbs_status_name(wc->status), *text = verbs_status_text(wc->status);
	const struct verbs_flight *f = flight_at(v, wc->wr_id);

	if (wc->wr_id & RECV_ID)
		fabric_verbs_lose(v, "connection lost while waiting for messages: %s: %s", name,
				  text);
	else if (f->kind == VERBS_RPC)
		fabric_verbs_lose(v, "connection lost at an RPC: %s (%u): %s", name, wc->status,
				  text);
	else
		fabric_verbs_lose(v,
				  "connection lost at a %s of %u bytes at offset %llu: %s (%u): %s",
				  names[f->kind], f->length, (unsigned long long)f->offset, name,
				  wc->status, text);
}

/* ---- replies --------------------------------------------------------------------------------- */

static uint8_t *recv_buffer(const struct verbs_endpoint *v, unsigned index)
{
	return v->memory + VERBS_RING_BYTES + (size_t)index * WIRE_RPC_MAX_BYTES;
}

static int recv_post(struct verbs_endpoint *v, unsigned index)
{
	struct ibv_sge sge = {.addr = (uintptr_t)recv_buffer(v, index),
			      .length = WIRE_RPC_MAX_BYTES,
			      .lkey = v->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = RECV_ID | index, .sg_list = &sge, .num_sge = 1};
	int error = ibv_post_recv(v->qp, &wr, &bad);

	return error < 0 ? -error : error;
}

int fabric_verbs_recvs(struct verbs_endpoint *v)
{
	for (unsigned i = 0; i < VERBS_RECVS; i++) {
		int error = recv_post(v, i);

		if (error)
			return err_set(-error, "the adapter takes no receive buffer: %s",
				       strerror(error));
	}
	return 0;
}

static void atomic_replied(struct verbs_endpoint *v, const uint8_t *bytes, uint32_t length)
{
	struct verbs_flight *f = flight_at(v, v->atomic_sequence);
	struct wire_rpc_reply reply;

	if (wire_rpc_reply_decode(bytes, length, &reply) < 0) {
		fabric_verbs_lose(v, "connection given up: %s", err_text());
		return;
	}
	if (reply.status < 0 ||
	    reply.type != (f->kind == VERBS_CAS ? WIRE_RPC_CAS : WIRE_RPC_FAA)) {
		/* the request was checked before it was sent: the two sides disagree */
		fabric_verbs_lose(
			v, "connection given up: tarnd refused a %s at offset %llu: %s",
			f->kind == VERBS_CAS ? "CAS" : "FAA", (unsigned long long)f->offset,
			reply.status < 0 ? err_string(reply.status) : "it answered something else");
		return;
	}
	f->result = (uint64_t)reply.value;
	f->replied = true;
	v->atomic_busy = false;
	if (v->atomic_sent && v->reaped <= v->atomic_sequence)
		v->reaped = v->atomic_sequence + 1;
	retire(v);
}

static void rpc_replied(struct verbs_endpoint *v, uint8_t *bytes, uint32_t length)
{
	memcpy(bytes + VERBS_TAG_AT, v->rpc_caller_tag, sizeof(v->rpc_caller_tag));
	memcpy(v->rpc_reply, bytes, length < v->rpc_capacity ? length : v->rpc_capacity);
	done_push_rpc(v, 0, length);
}

static bool is_notice(const uint8_t *bytes, uint32_t length)
{
	struct wire_rpc_reply reply;

	return bytes[0] == WIRE_RPC_NOTICE && wire_rpc_reply_decode(bytes, length, &reply) == 0;
}

static void received(struct verbs_endpoint *v, const struct ibv_wc *wc)
{
	unsigned index = (unsigned)(wc->wr_id & ~RECV_ID);
	uint8_t *bytes = recv_buffer(v, index);
	uint32_t tag;
	int error;

	if (wc->byte_len < VERBS_TAG_AT + sizeof(tag) || wc->byte_len > WIRE_RPC_MAX_BYTES) {
		fabric_verbs_lose(v, "connection given up: tarnd sent a message of %u bytes",
				  wc->byte_len);
		return;
	}
	memcpy(&tag, bytes + VERBS_TAG_AT, sizeof(tag)); /* ours, as we wrote it: no byte order */
	if (is_notice(bytes, wc->byte_len)) {
		v->ep.notices++;
		v->noticed = true;
	} else if (v->atomic_busy && tag == v->atomic_tag) {
		atomic_replied(v, bytes, wc->byte_len);
	} else if (v->rpc_busy && v->rpc_sent && tag == v->rpc_tag) {
		rpc_replied(v, bytes, wc->byte_len);
	} else if (v->stale) {
		v->stale--;
	} else {
		fabric_verbs_lose(v, "connection given up: tarnd answered what was not asked");
	}
	error = v->lost ? 0 : recv_post(v, index);
	if (error)
		fabric_verbs_lose(v, "connection lost: the adapter takes no receive buffer: %s",
				  strerror(error));
}

/* ---- the completion queue -------------------------------------------------------------------- */

/*
 * An error of its own says more than the flushes that surround it. Completions behind a failure are
 * read for that only.
 */
static void completion(struct verbs_endpoint *v, const struct ibv_wc *wc, struct ibv_wc *failure)
{
	if (wc->status != IBV_WC_SUCCESS) {
		if (failure->status == IBV_WC_SUCCESS ||
		    (failure->status == IBV_WC_WR_FLUSH_ERR && wc->status != IBV_WC_WR_FLUSH_ERR))
			*failure = *wc;
	} else if (v->lost) {
		return;
	} else if (wc->wr_id & RECV_ID) {
		received(v, wc);
	} else if (v->iwarp && v->atomic_busy && wc->wr_id == v->atomic_sequence) {
		v->atomic_sent = true; /* what counts is the answer, see signal_when_due() */
	} else {
		v->reaped = wc->wr_id + 1;
		retire(v);
	}
}

void fabric_verbs_process(struct verbs_endpoint *v)
{
	struct ibv_wc wcs[VERBS_POLL_BATCH], failure = {.status = IBV_WC_SUCCESS};
	bool progress = false;
	int count;

	if (v->lost)
		return;
	do {
		count = ibv_poll_cq(v->cq, VERBS_POLL_BATCH, wcs);
		for (int i = 0; i < count; i++)
			completion(v, &wcs[i], &failure);
		progress |= count > 0;
	} while (count == VERBS_POLL_BATCH);
	if (count < 0)
		fabric_verbs_lose(v, "connection lost: the completion queue cannot be read");
	if (failure.status == IBV_WC_WR_FLUSH_ERR || failure.status == IBV_WC_RETRY_EXC_ERR)
		fabric_verbs_cm_look_soon(v); /* it may know why */
	if (failure.status != IBV_WC_SUCCESS)
		lose_by_status(v, &failure);
	if (progress && v->stall_ns)
		v->progress_ns = clock_now_ns();
	if (progress && (v->queue_head != v->queue_tail || v->marker_due))
		fabric_verbs_pump(v);
}

/* ---- the pump -------------------------------------------------------------------------------- */

/* A piece on its way into the list that is being made. */
struct piece {
	struct verbs_flight *flight;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
};

static struct piece piece_begin(struct verbs_endpoint *v, unsigned n, const struct verbs_queued *q)
{
	struct piece p = {
		.flight = flight_at(v, v->flight_tail), .wr = &v->wrs[n], .sge = &v->sges[n]};

	*p.flight = (struct verbs_flight){.kind = q->kind, .offset = q->offset + q->done};
	p.wr->wr_id = v->flight_tail;
	p.wr->next = NULL;
	p.wr->sg_list = p.sge;
	p.wr->num_sge = 1;
	p.wr->send_flags =
		(q->flags & FABRIC_FENCE) && q->done == 0 ? (unsigned)IBV_SEND_FENCE : 0u;
	p.sge->lkey = v->mr->lkey;
	return p;
}

/* Bytes that go out: inline, or by the ring. False: no room. */
static inline bool piece_out(struct verbs_endpoint *v, struct piece *p, const void *from,
			     uint32_t bytes)
{
	uint8_t *staged;

	p->sge->length = bytes;
	if (bytes <= v->max_inline) {
		p->sge->addr = (uintptr_t)from;
		p->wr->send_flags |= (unsigned)IBV_SEND_INLINE;
		return true;
	}
	staged = ring_take(v, bytes, &p->flight->ring_bytes);
	if (!staged)
		return false;
	memcpy(staged, from, bytes);
	p->sge->addr = (uintptr_t)staged;
	return true;
}

/* Room for bytes that come in. False: none. */
static inline bool piece_in(struct verbs_endpoint *v, struct piece *p, void *local, uint32_t bytes)
{
	uint8_t *staged = ring_take(v, bytes, &p->flight->ring_bytes);

	if (!staged)
		return false;
	p->flight->local = local;
	p->flight->staged = staged;
	p->sge->addr = (uintptr_t)staged;
	p->sge->length = bytes;
	return true;
}

static inline const struct verbs_space *space_of(const struct verbs_endpoint *v,
						 const struct verbs_queued *q)
{
	return q->space ? &v->spaces[q->space - 1] : &v->pool;
}

/* From or to memory that the caller has registered. */
static inline bool piece_direct(const struct verbs_endpoint *v, struct piece *p,
				const struct verbs_queued *q, const uint8_t *local)
{
	uint32_t rest = q->length - q->done;

	if (!(q->flags & FABRIC_DIRECT) || !v->memory_count ||
	    !fabric_verbs_memory_find(v, local, rest, q->kind == VERBS_READ, &p->sge->lkey))
		return false;
	p->sge->addr = (uintptr_t)local;
	return true;
}

/* READ and WRITE: as much as one of the memory's pieces and one of ours take. */
static bool emit_access(struct verbs_endpoint *v, struct verbs_queued *q, struct piece *p)
{
	const struct verbs_space *space = space_of(v, q);
	uint64_t offset = q->offset + q->done;
	unsigned there = fabric_verbs_space_find(space, offset);
	uint64_t inside = offset - space->starts[there];
	uint64_t bytes = space->pieces[there].length - inside;
	uint8_t *local = q->local ? (uint8_t *)q->local + q->done : NULL;
	bool direct = piece_direct(v, p, q, local);

	if (bytes > q->length - q->done)
		bytes = q->length - q->done;
	if (!direct && bytes > VERBS_PIECE_BYTES) /* not through a word: each is moved whole */
		bytes = VERBS_PIECE_BYTES - (offset + VERBS_PIECE_BYTES) % RING_ALIGN;
	if (direct)
		p->sge->length = (uint32_t)bytes;
	else if (q->kind == VERBS_READ ? !piece_in(v, p, local, (uint32_t)bytes)
				       : !piece_out(v, p, local, (uint32_t)bytes))
		return false;
	p->wr->opcode = q->kind == VERBS_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	if (q->notify && q->done + bytes == q->length) {
		p->wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		p->wr->imm_data = htobe32(wire_notify_immediate(q->space, q->tag));
		v->rpc_sent = true;
	}
	p->wr->wr.rdma.remote_addr = space->pieces[there].address + inside;
	p->wr->wr.rdma.rkey = space->pieces[there].rkey;
	p->flight->length = (uint32_t)bytes;
	q->done += (uint32_t)bytes;
	return true;
}

static bool emit_atomic_nic(struct verbs_endpoint *v, struct verbs_queued *q, struct piece *p)
{
	const struct verbs_space *space = space_of(v, q);
	unsigned there = fabric_verbs_space_find(space, q->offset);

	if (!piece_in(v, p, q->local, 8))
		return false;
	/* no value that the word is likely to have, and another one each time */
	p->flight->result = (v->flight_tail + 1) * 0x9e3779b97f4a7c15ull ^ q->compare;
	memcpy((uint8_t *)p->flight->staged, &p->flight->result, sizeof(p->flight->result));
	p->wr->opcode =
		q->kind == VERBS_CAS ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
	p->wr->wr.atomic.remote_addr =
		space->pieces[there].address + (q->offset - space->starts[there]);
	p->wr->wr.atomic.rkey = space->pieces[there].rkey;
	p->wr->wr.atomic.compare_add = q->kind == VERBS_CAS ? q->compare : q->operand;
	p->wr->wr.atomic.swap = q->operand;
	p->flight->length = 8;
	q->done = q->length;
	return true;
}

static bool emit_message(struct verbs_endpoint *v, struct verbs_queued *q, struct piece *p,
			 uint32_t bytes)
{
	if (!piece_out(v, p, q->bytes, bytes))
		return false;
	p->wr->opcode = IBV_WR_SEND;
	p->flight->length = bytes;
	q->done = q->length;
	return true;
}

/*
 * Signaled and fenced: an earlier READ must not see what this changes, and the post is complete
 * when both, answer and completion, are there.
 */
static bool emit_atomic_rpc(struct verbs_endpoint *v, struct verbs_queued *q, struct piece *p)
{
	struct wire_rpc rpc = {
		.type = q->kind == VERBS_CAS ? WIRE_RPC_CAS : WIRE_RPC_FAA,
		.slot_offset = q->offset,
		.slot_word = q->kind == VERBS_CAS ? q->compare : 0,
		.delta = (int64_t)q->operand,
		.class = q->space,
	};
	uint32_t tag = v->next_tag;

	wire_rpc_encode(&rpc, q->bytes);
	memcpy(q->bytes + VERBS_TAG_AT, &tag, sizeof(tag));
	if (!emit_message(v, q, p, WIRE_RPC_BYTES))
		return false;
	p->wr->send_flags |= (unsigned)IBV_SEND_SIGNALED | (unsigned)IBV_SEND_FENCE;
	p->flight->local = q->local;
	v->atomic_busy = true;
	v->atomic_sent = false;
	v->atomic_tag = fabric_verbs_tag(v);
	v->atomic_sequence = v->flight_tail;
	v->atomic_limit_ns = clock_now_ns() + v->rpc_limit_ns;
	return true;
}

static bool emit(struct verbs_endpoint *v, struct verbs_queued *q, struct piece *p)
{
	switch ((enum verbs_kind)q->kind) {
	case VERBS_READ:
	case VERBS_WRITE:
		return emit_access(v, q, p);
	case VERBS_CAS:
	case VERBS_FAA:
		return v->by_rpc ? emit_atomic_rpc(v, q, p) : emit_atomic_nic(v, q, p);
	case VERBS_RPC:
		if (!emit_message(v, q, p, q->length))
			return false;
		v->rpc_sent = true;
		return true;
	case VERBS_NOTHING:
		break;
	}
	return false;
}

static void signaled(struct verbs_endpoint *v, const struct ibv_send_wr *wr)
{
	v->unsignaled = v->unsignaled_bytes = 0;
	v->awaited = wr->wr_id + 1;
	v->marker_due = v->cookie_due = false;
}

/*
 * Signaled: the last one of a list in which there is one that somebody waits for, and every so often
 * one of the others, so that room in send queue and ring comes back. On iWARP the completion of a WRITE or a SEND says only that TCP has
 * it: it can come before those of earlier READs, and before the bytes have arrived, or have even
 * been copied. So there only READs are signaled, whose answer comes when all before them has taken
 * effect (and CAS and FAA, which have an answer of their own); a marker is one of a byte.
 */
static void signal_when_due(struct verbs_endpoint *v, const struct piece *p)
{
	bool due;

	v->unsignaled++;
	/* what goes straight from or to the caller's memory takes as long as what takes the ring */
	v->unsignaled_bytes +=
		p->flight->ring_bytes || p->wr->send_flags & (unsigned)IBV_SEND_INLINE
			? p->flight->ring_bytes
			: p->flight->length;
	due = v->unsignaled >= v->depth / 4 || v->unsignaled_bytes >= VERBS_RING_BYTES / 4;
	if (due && v->iwarp && p->flight->kind != VERBS_READ)
		v->marker_due = true;
	else if (due)
		p->wr->send_flags |= (unsigned)IBV_SEND_SIGNALED;
	if (p->wr->send_flags & (unsigned)IBV_SEND_SIGNALED)
		signaled(v, p->wr);
	else
		v->cookie_due |= p->flight->cookie != NULL;
}

/* The list ends with `last`: who waits for one in it waits for that. False: it can not be signaled. */
static bool signal_last(struct verbs_endpoint *v, struct ibv_send_wr *last)
{
	if (!v->cookie_due)
		return true;
	if (v->iwarp && flight_at(v, last->wr_id)->kind != VERBS_READ)
		return false;
	last->send_flags |= (unsigned)IBV_SEND_SIGNALED;
	signaled(v, last);
	return true;
}

static void piece_end(struct verbs_endpoint *v, struct piece *p, unsigned n)
{
	v->flight_tail++;
	signal_when_due(v, p);
	if (n > 0)
		v->wrs[n - 1].next = p->wr;
}

/* The READ that tells that the WRITEs before it have arrived. */
static bool pump_marker(struct verbs_endpoint *v, unsigned n)
{
	struct verbs_queued marker = {.kind = VERBS_READ, .length = 1};
	struct piece p = piece_begin(v, n, &marker);

	if (!emit_access(v, &marker, &p))
		return false;
	p.wr->send_flags |= (unsigned)IBV_SEND_SIGNALED;
	piece_end(v, &p, n);
	return true;
}

/* The next piece of the queue into slot n of the list; false: there is none, or no room. */
static bool pump_one(struct verbs_endpoint *v, unsigned n)
{
	struct verbs_queued *q;
	struct piece p;

	if (v->flight_tail - v->flight_head == v->depth)
		return false;
	if (v->marker_due)
		return pump_marker(v, n);
	while (v->queue_head != v->queue_tail &&
	       v->queue[v->queue_head % VERBS_QUEUE].kind == VERBS_NOTHING)
		v->queue_head++;
	if (v->queue_head == v->queue_tail || v->atomic_busy)
		return false;
	q = &v->queue[v->queue_head % VERBS_QUEUE];
	p = piece_begin(v, n, q);
	if (!emit(v, q, &p))
		return false;
	if (q->done == q->length) {
		p.flight->last = q->last;
		p.flight->cookie = q->cookie;
		v->queue_head++;
	}
	piece_end(v, &p, n);
	return true;
}

static void post_list(struct verbs_endpoint *v)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(v->qp, v->wrs, &bad);
	if (error) /* siw gives negative ones */
		fabric_verbs_lose(v, "connection lost: the adapter takes no requests: %s",
				  strerror(error < 0 ? -error : error));
}

void fabric_verbs_pump(struct verbs_endpoint *v)
{
	unsigned n = 0;

	if (v->lost)
		return;
	if (v->stall_ns && v->reaped >= v->awaited)
		v->progress_ns = clock_now_ns();
	while (pump_one(v, n))
		n++;
	if (n > 0 && !signal_last(v, &v->wrs[n - 1])) {
		v->marker_due = true;
		n += pump_one(v, n);
	}
	if (n > 0)
		post_list(v);
}

void fabric_verbs_probe(struct verbs_endpoint *v)
{
	if (v->reaped < v->awaited || v->flight_tail - v->flight_head == v->depth)
		return;
	if (v->stall_ns)
		v->progress_ns = clock_now_ns();
	if (pump_marker(v, 0))
		post_list(v);
}
