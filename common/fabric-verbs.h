/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs.h - inside of the verbs endpoint
 *
 * Shared by fabric-verbs-resources.c, which makes and unmakes what stands here, -connect.c and
 * -pair.c, which connect it, -queue.c, which moves data with it, and fabric-verbs.c, whom the
 * session calls. A request's way: copied into `queue` by post(); cut into pieces that
 * become work requests and stand in `flights` while the NIC has them; their bytes in `ring`, the
 * only memory that is registered; retired in order when a signaled one completes; with the last
 * piece of a post its completion goes to `done`, where poll() takes it. What lies in memory that the caller
 * has registered takes no room in `ring` (fabric-verbs-memory.c). All of it is one thread's
 * at a time, nothing is allocated on the way.
 */
#ifndef TARN_FABRIC_VERBS_H
#define TARN_FABRIC_VERBS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fabric.h"
#include "verbs.h"
#include "wire.h"

#define VERBS_QUEUE        256u /* requests not yet handed to the NIC */
#define VERBS_FLIGHTS      128u /* work requests that the NIC has, at most; a power of two */
#define VERBS_RECVS        12u
#define VERBS_POSTS        512u /* posts whose completion poll() has not given yet */
#define VERBS_DONE         (2 * VERBS_POSTS)
#define VERBS_RING_BYTES   (1u << 20)
#define VERBS_PIECE_BYTES  (64u << 10)
#define VERBS_INLINE       256u /* asked for; siw gives 80 */
#define VERBS_POLL_BATCH   16
#define VERBS_REGIONS_MAX  4096u
#define VERBS_MEMORIES_MAX 1024u
/*
 * Given-up RPCs whose reply has not come: more and the daemon takes us for one that floods it, and
 * there would be no receive buffer for the replies.
 */
#define VERBS_STALE_MAX 5u
#define VERBS_WHY_BYTES 384u
#define VERBS_TAG_AT    4u /* of the tag's 4 bytes, in RPCs and replies */

static_assert((VERBS_QUEUE & (VERBS_QUEUE - 1)) == 0, "power of two");
static_assert((VERBS_DONE & (VERBS_DONE - 1)) == 0, "power of two");
static_assert((VERBS_RING_BYTES & (VERBS_RING_BYTES - 1)) == 0, "power of two");
static_assert(VERBS_RECVS >= VERBS_STALE_MAX + 4, "a receive buffer for every reply, and notices");

enum verbs_kind {
	VERBS_READ = FABRIC_READ,
	VERBS_WRITE = FABRIC_WRITE,
	VERBS_CAS = FABRIC_CAS,
	VERBS_FAA = FABRIC_FAA,
	VERBS_RPC,    /* of ops->rpc */
	VERBS_NOTHING /* an RPC that was given up before it was sent */
};

/* A request that waits for its turn. */
struct verbs_queued {
	uint8_t kind; /* enum verbs_kind */
	uint8_t flags;
	bool last;   /* of its post */
	bool notify; /* a WRITE: the last piece of it is one with immediate data, `tag`, and is the RPC */
	uint8_t space;
	uint32_t length;
	uint32_t done; /* bytes that have become pieces already */
	uint32_t tag;  /* RPC */
	uint64_t offset;
	void *local;
	uint64_t compare, operand;
	void *cookie;                       /* of the post; only with `last` */
	uint8_t bytes[FABRIC_INLINE_BYTES]; /* FABRIC_INLINE: what is written; RPC: the message */
};
static_assert(WIRE_RPC_MAX_BYTES <= FABRIC_INLINE_BYTES, "an RPC fits a queued request");

/* A work request that the NIC has, or had until its completion is seen. */
struct verbs_flight {
	uint8_t kind;
	bool last;
	bool replied; /* CAS and FAA by RPC: `result` is there */
	uint32_t length;
	uint32_t ring_bytes; /* to be given back, with what was skipped at the ring's end */
	uint64_t offset;
	uint64_t result; /* by the NIC: what stands in `staged` until its answer does */
	void *local;     /* READ, CAS, FAA: where the bytes go */
	const uint8_t *staged;
	void *cookie;
};

/* Memory on the other side, in the pieces in which it is registered there. */
struct verbs_space {
	unsigned count;
	struct wire_region *pieces;
	uint64_t *starts; /* offset of each piece */
	uint64_t bytes;   /* that may be accessed */
	bool read_only;
};

struct verbs_endpoint {
	struct fabric_endpoint ep;
	/* what is made at connect, in this order */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id; /* NULL: a pair */
	struct ibv_context *context;
	bool held; /* verbs_context_release() is owed */
	struct ibv_pd *pd;
	bool pd_borrowed;
	struct ibv_td *td;            /* NULL: not offered */
	struct ibv_pd *parent_domain; /* NULL: not offered */
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp *responder; /* the other end of a pair */
	uint8_t *memory;          /* the ring, then the receive buffers */
	struct ibv_mr *mr;
	struct verbs_memory *memories; /* the caller's, by address; NULL: there were none */
	unsigned memory_count;
	bool connected; /* rdma_disconnect is owed */
	bool iwarp;
	pid_t pid;
	int epoll; /* of fd(); -1: not asked for yet */
	struct fabric_settings settings;

	/* the pool */
	bool by_rpc; /* CAS and FAA: a cpu domain */
	struct verbs_space pool;
	struct verbs_space *spaces; /* FABRIC_SPACES; NULL: there were none */
	bool noticed;               /* a notice has come, and no poll since */

	/* requests */
	uint32_t queue_head, queue_tail;   /* free running */
	uint32_t depth;                    /* of the send queue; a power of two */
	uint32_t max_inline;               /* bytes */
	uint64_t flight_head, flight_tail; /* sequence numbers: the oldest, the next */
	uint64_t reaped;                   /* all before this sequence number are complete */
	uint64_t awaited;                  /* a signaled one stands right before this */
	uint32_t unsignaled, unsignaled_bytes;
	bool marker_due;               /* iWARP: a READ has to follow the WRITEs before */
	bool cookie_due;               /* somebody waits for one of those that are not signaled */
	bool holding;                  /* what is posted waits for the end of hold() */
	uint64_t ring_head, ring_tail; /* free running */

	/* the RPC of ops->rpc, and CAS or FAA by RPC */
	uint32_t next_tag, stale;
	bool rpc_busy, rpc_sent;
	bool rpc_done; /* its completion stands in `done`, at rpc_done_at */
	uint32_t rpc_done_at;
	uint32_t rpc_tag;
	uint8_t rpc_caller_tag[4];
	void *rpc_cookie, *rpc_reply;
	size_t rpc_capacity;
	bool atomic_busy; /* nothing is sent until its reply is there */
	bool atomic_sent; /* iWARP: its completion has come, its reply not yet */
	uint32_t atomic_tag;
	uint64_t atomic_sequence, atomic_limit_ns, rpc_limit_ns;

	/* completions */
	uint32_t done_head, done_tail; /* free running */
	uint32_t owed;                 /* completions promised and not given yet */
	bool armed;                    /* ibv_req_notify_cq, and its event not yet fetched */
	unsigned spins_in_vain, spins_left_out; /* in a row, in a wait */
	unsigned idle_polls;
	/*
	 * Without any progress for so long the connection is given up. iWARP: nothing else bounds
	 * TCP's retries (T3). 0: a pair, whose user watches
	 */
	uint64_t stall_ns, progress_ns;
	uint64_t
		probe_ns; /* who waits for an answer looks then whether the connection still carries */

	bool lost;
	char why[VERBS_WHY_BYTES];

	struct verbs_queued queue[VERBS_QUEUE];
	struct verbs_flight flights[VERBS_FLIGHTS];
	struct ibv_send_wr wrs[VERBS_FLIGHTS]; /* the list that the pump makes */
	struct ibv_sge sges[VERBS_FLIGHTS];
	struct fabric_completion done[VERBS_DONE];
};

static inline struct verbs_endpoint *verbs_endpoint(struct fabric_endpoint *ep)
{
	return (struct verbs_endpoint *)ep;
}

extern const struct fabric_ops fabric_verbs_ops;

/* ---- fabric-verbs-queue.c -------------------------------------------------------------------- */

/* Takes what has completed, and sends what there is room for now. */
void fabric_verbs_process(struct verbs_endpoint *v);
/* Sends what there is room for. */
void fabric_verbs_pump(struct verbs_endpoint *v);
/*
 * READs a byte, unless something is on its way whose end tells as much: a connection that is dead fails
 * that. What is waited for may be a message, of which the NIC knows nothing.
 */
void fabric_verbs_probe(struct verbs_endpoint *v);
/* fabric-verbs.c: what has the connection manager to say? Soon: it may need a moment. */
void fabric_verbs_cm_look_soon(struct verbs_endpoint *v);
static inline uint32_t fabric_verbs_tag(struct verbs_endpoint *v)
{
	return v->next_tag++;
}
/* Posts the receive buffers. 0 or a negative code with a text. */
int fabric_verbs_recvs(struct verbs_endpoint *v);
/* The connection is gone: everything unfinished fails. Keeps the first text. -TARN_ESESSION. */
int fabric_verbs_lose(struct verbs_endpoint *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- fabric-verbs-memory.c ------------------------------------------------------------------- */

/* See struct fabric_ops. */
int fabric_verbs_memory_add(struct fabric_endpoint *ep, void *memory, size_t bytes, bool writable);
int fabric_verbs_memory_add_dmabuf(struct fabric_endpoint *ep, int fd, uint64_t offset, void *memory,
				   size_t bytes, bool writable);
void fabric_verbs_memory_remove(struct fabric_endpoint *ep, const void *memory, size_t bytes,
				bool writable);
bool fabric_verbs_memory_has(struct fabric_endpoint *ep, const void *local, size_t bytes,
			     bool writable);
/* With the key by which the adapter knows it. `writable`: it is to be written to. */
bool fabric_verbs_memory_find(const struct verbs_endpoint *v, const void *local, size_t bytes,
			      bool writable, uint32_t *ret_lkey);
/* Nothing is registered any more: the adapter does not touch it from now on. */
void fabric_verbs_memory_drop(struct verbs_endpoint *v);

/* ---- fabric-verbs-space.c -------------------------------------------------------------------- */

/* Room for so many pieces. 0 or -ENOMEM with a text. */
int fabric_verbs_space_init(struct verbs_space *space, unsigned capacity);
/* The next piece, as the daemon names it, of memory of at most so many bytes. 0 or -TARN_EPROTO with a text. */
int fabric_verbs_space_append(struct verbs_space *space, const struct wire_region *piece,
			      uint64_t bytes_max);
/* Bytes of the pieces that are there. */
uint64_t fabric_verbs_space_sum(const struct verbs_space *space);
void fabric_verbs_space_free(struct verbs_space *space);
/* The piece in which this offset lies. */
static inline unsigned fabric_verbs_space_find(const struct verbs_space *space, uint64_t offset)
{
	unsigned low = 0, high = space->count;

	while (high - low > 1) {
		unsigned middle = (low + high) / 2;

		if (space->starts[middle] <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}
/* See struct fabric_ops. */
int fabric_verbs_space_add(struct fabric_endpoint *ep, unsigned space,
			   const struct wire_region *pieces, unsigned count, uint64_t bytes,
			   bool read_only);
void fabric_verbs_space_remove(struct fabric_endpoint *ep, unsigned space);
bool fabric_verbs_space_alive(struct fabric_endpoint *ep, unsigned space);

/* ---- fabric-verbs-resources.c ---------------------------------------------------------------- */

/* An empty endpoint; NULL with a text without memory. */
struct verbs_endpoint *fabric_verbs_new(const struct fabric_settings *settings);
/* All that needs no other side yet; `recvs`: receive buffers. 0 or a negative code with a text. */
int fabric_verbs_resources(struct verbs_endpoint *v, const struct verbs_device *device,
			   uint32_t recvs);
/*
 * Takes over the regions that the daemon names, `room` of them at most in the end. 0 or a negative
 * code with a text.
 */
int fabric_verbs_regions_set(struct verbs_endpoint *v, const struct wire_region *regions,
			     unsigned count, unsigned capacity);
/* Asks the daemon for the rest of them, by RPC. Blocks up to the deadline. */
int fabric_verbs_regions_fetch(struct verbs_endpoint *v, uint64_t deadline);
struct ibv_qp *fabric_verbs_qp_create(struct verbs_endpoint *v, uint32_t sends, uint32_t recvs,
				      uint32_t *ret_inline);
/* The error of an object that could not be made, by errno. */
int fabric_verbs_resource_error(const char *device, const char *what);
int fabric_verbs_nonblocking(int fd);
/* READs and atomics in flight, of what a device can: librdmacm keeps a device's limit in 8 bits. */
static inline uint8_t fabric_verbs_depth(int device)
{
	if (device < 1)
		return 1;
	return device < 128 ? (uint8_t)device : 128;
}
/* Undoes whatever has been made; frees. */
void fabric_verbs_free(struct verbs_endpoint *v);

#endif
