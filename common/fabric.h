/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric.h - one-sided access to a pool, the same on every transport
 *
 * An endpoint is one connection to one pool. It takes a list of requests in one post and later
 * yields one completion for the post. What is promised (docs/protocol.md section 1):
 *  - requests of one endpoint take effect in the order in which they were posted, WRITE before CAS,
 *    CAS before READ; nothing is promised of the order of two READs, nor of requests on two
 *    endpoints
 *  - READ and WRITE are whole per aligned word only; a WRITE touches the bytes that it names only
 *  - CAS and FAA are atomic in the pool's atomic domain
 *  - the completion of a post means that all its READs, CASes and FAAs, those of earlier posts and
 *    every WRITE in front of one of them have taken effect. After a WRITE that nothing follows it
 *    means only that `local` is free (iWARP: the bytes are TCP's by then)
 * Requests outside the pool, or atomics on odd addresses, are refused with -EINVAL before any of
 * the post takes effect.
 *
 * An endpoint is used by one thread at a time. Implementations: fabric-shm.c here,
 * tests/sim/fabric-sim.c. Nothing outside an implementation asks which one it is; capabilities are
 * asked for by name (features).
 */
#ifndef TARN_FABRIC_H
#define TARN_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A region of an application (tarn/region.h) on shared memory: behind its bytes stands a page of the daemon's,
 * of which clients read this word: not 0: it is there; 0: it was destroyed.
 */
#define FABRIC_SPACE_TAIL_BYTES 4096u

enum fabric_opcode { FABRIC_READ, FABRIC_WRITE, FABRIC_CAS, FABRIC_FAA };

/* WRITE of up to FABRIC_INLINE_BYTES: `local` may change as soon as post has returned */
#define FABRIC_INLINE 0x1u
/* wait for the earlier READs, CASes and FAAs of this endpoint first */
#define FABRIC_FENCE 0x2u
/* `local` is the caller's: straight from or to there, if it is registered (memory_add) */
#define FABRIC_DIRECT       0x4u
#define FABRIC_INLINE_BYTES 64u

struct fabric_request {
	uint8_t opcode; /* enum fabric_opcode */
	uint8_t flags;
	uint16_t space;  /* 0: the pool; else a region, see space_add */
	uint32_t length; /* bytes; 8 for CAS and FAA */
	uint64_t offset; /* in the space */
	/*
	 * READ: where the bytes go. WRITE: where they come from. CAS, FAA: a uint64_t that gets the
	 * word as it was before. Belongs to the endpoint until the completion (but see
	 * FABRIC_INLINE).
	 */
	void *local;
	uint64_t compare; /* CAS: the word expected */
	uint64_t operand; /* CAS: the new word. FAA: what to add */
};

static inline struct fabric_request fabric_read(uint64_t offset, void *local, uint32_t length)
{
	return (struct fabric_request){
		.opcode = FABRIC_READ, .length = length, .offset = offset, .local = local};
}

struct fabric_completion {
	void *cookie;
	/* 0, or -TARN_ESESSION: whether any request of the post took effect is unknown */
	int status;
	uint32_t length; /* of an RPC: bytes of the reply */
};

/* Spaces besides the pool are 1 to FABRIC_SPACES. */
#define FABRIC_SPACES 60u

struct wire_region;

/* features of an endpoint */
/* a late FAA is impossible (T3), so counters may be added to by FAA; else by RPC */
#define FABRIC_COUNTER_FAA 0x1u
/* there is write_notify */
#define FABRIC_WRITE_NOTIFY 0x2u
/* a READ costs a cache miss, a post nothing: fewer READs are better than fewer posts */
#define FABRIC_NEAR 0x4u

struct fabric_endpoint;

struct fabric_ops {
	const char *name; /* for people: stats and messages */
	/*
	 * Hands over `count` (1 to FABRIC_POST_MAX) requests. Returns 1 when all have taken effect
	 * already (no completion follows), 0 when a completion with this cookie will follow (none
	 * with cookie NULL), else a negative code (nothing was posted).
	 */
	int (*post)(struct fabric_endpoint *ep, const struct fabric_request *requests,
		    unsigned count, void *cookie);
	/*
	 * Sends a message to the daemon's CPU; the completion comes when the reply stands in
	 * `reply` (cut at `capacity`; completion.length is its length). One RPC at a time per
	 * endpoint: -EBUSY. Returns 0 or a negative code.
	 */
	int (*rpc)(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		   size_t capacity, void *cookie);
	/* Gives up the RPC in flight, if any: no completion, its reply will be dropped. */
	void (*rpc_cancel)(struct fabric_endpoint *ep);
	/*
	 * `on`: posts with a cookie may be kept back from now on; else: what was kept goes out now, in
	 * one go. NULL: nothing is ever kept.
	 */
	void (*hold)(struct fabric_endpoint *ep, int on);
	/*
	 * READs into this memory (`writable`) and WRITEs from it need no copy from now on, until it is
	 * removed, with the same arguments, or the connection is lost. All NULL where nothing is ever
	 * copied. add may take a while, and returns 0 or a negative code with a text; remove only when
	 * nothing that is under way uses it.
	 */
	int (*memory_add)(struct fabric_endpoint *ep, void *memory, size_t bytes, bool writable);
	/*
	 * Likewise of a part of a dma-buf, which all requests know by the addresses at `memory`, whether there is
	 * anything or not; with the same place in a page as `offset`. -EOPNOTSUPP: the adapter can not.
	 */
	int (*memory_add_dmabuf)(struct fabric_endpoint *ep, int fd, uint64_t offset, void *memory,
				 size_t bytes, bool writable);
	void (*memory_remove)(struct fabric_endpoint *ep, const void *memory, size_t bytes,
			      bool writable);
	bool (*memory_has)(struct fabric_endpoint *ep, const void *local, size_t bytes,
			   bool writable);
	/*
	 * Another memory than the pool, from now on: the region that the daemon has opened under this
	 * number (1 to FABRIC_SPACES; one that is there goes). `pieces` are those in which it is registered; with
	 * 0 of them it is the descriptor that came with the daemon's answer. All NULL: not offered.
	 * Nothing is under way there. alive: false when it is known that it was destroyed.
	 */
	int (*space_add)(struct fabric_endpoint *ep, unsigned space, const struct wire_region *pieces,
			 unsigned count, uint64_t bytes, bool read_only);
	void (*space_remove)(struct fabric_endpoint *ep, unsigned space);
	bool (*space_alive)(struct fabric_endpoint *ep, unsigned space);
	/*
	 * A WRITE to a region (FABRIC_INLINE), and with it the message that it was made: an RPC that needs no message of
	 * the caller's (wire.h: NOTIFY); reply and completion are those of rpc. See FABRIC_WRITE_NOTIFY.
	 */
	int (*write_notify)(struct fabric_endpoint *ep, const struct fabric_request *write, void *reply,
			    size_t capacity, void *cookie);
	/*
	 * These bytes will probably be read soon. Promises nothing; NULL where it would be of no
	 * use.
	 */
	void (*hint)(struct fabric_endpoint *ep, uint64_t offset, uint32_t length);
	/*
	 * Up to `max` completions; never blocks. Returns their number, or -TARN_ESESSION when none
	 * is left and none will come.
	 */
	int (*poll)(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
		    unsigned max);
	/*
	 * Sleeps until poll may have something, at most `timeout_ns`. Returns 0; may return early.
	 */
	int (*wait)(struct fabric_endpoint *ep, uint64_t timeout_ns);
	/*
	 * Is the other side still there? Cheap enough for a few times a second. Returns 0 or
	 * -TARN_ESESSION.
	 */
	int (*check)(struct fabric_endpoint *ep);
	/*
	 * A descriptor that becomes readable when poll may have something; only to be trusted after
	 * poll has returned 0.
	 */
	int (*fd)(struct fabric_endpoint *ep);
	/* Nanoseconds of a monotonic clock. */
	uint64_t (*now)(struct fabric_endpoint *ep);
	void (*close)(struct fabric_endpoint *ep);
};

#define FABRIC_POST_MAX 64u

/* Head of every implementation's endpoint. */
struct fabric_endpoint {
	const struct fabric_ops *ops;
	uint64_t pool_bytes; /* length of what can be accessed */
	uint32_t features;
	uint32_t read_only; /* 1: WRITE, CAS and FAA would be refused */
	uint32_t notices;   /* that have come: a region that somebody waits for was notified */
	bool listening;     /* somebody waits for one: the caller's */
	/* not NULL: here the pool's bytes stand, and may be read with fabric-near.h as by a READ */
	const uint8_t *near;
};

static inline int fabric_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
			      unsigned count, void *cookie)
{
	return ep->ops->post(ep, requests, count, cookie);
}
static inline void fabric_hint(struct fabric_endpoint *ep, uint64_t offset, uint32_t length)
{
	if (ep->ops->hint)
		ep->ops->hint(ep, offset, length);
}
static inline int fabric_poll(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
			      unsigned max)
{
	return ep->ops->poll(ep, ret_completions, max);
}
static inline uint64_t fabric_now(struct fabric_endpoint *ep)
{
	return ep->ops->now(ep);
}

/* ---- connecting ------------------------------------------------------------------------------ */

#define FABRIC_PORT 7477u /* where tarnd listens for RDMA, when nothing else is said */

/* What can be said of an RDMA connection; shared memory has no use for it. */
struct fabric_settings {
	int16_t ack_timeout;   /* 1 to 31: 4.096 us * 2^n; 0: chosen */
	int16_t retries;       /* 0 to 7; -1: chosen */
	int16_t tos;           /* type of service, 0 to 255; -1: the system's */
	int16_t service_level; /* 0 to 15; -1: the path's */
	int16_t gid_index;     /* -1: the one that belongs to the address */
	/* path MTU: 256, 512, 1024, 2048 or 4096, the same on both sides; 0: the path's */
	uint16_t mtu;
	uint32_t spin_us; /* how long a wait polls before it sleeps */
};
#define FABRIC_SPIN_US 200u
#define FABRIC_SETTINGS_INIT                                                    \
	{                                                                       \
		.retries = -1, .tos = -1, .service_level = -1, .gid_index = -1, \
		.spin_us = FABRIC_SPIN_US                                       \
	}

/*
 * Where and with what: the request and reply are those of wire.h, which transports carry but don't
 * read.
 */
struct fabric_address {
	const char *path;   /* unix socket; NULL when host is given */
	const char *host;   /* name or address; IPv6 without brackets, a scope as in fe80::1%eth0 */
	uint16_t port;      /* 0: FABRIC_PORT */
	const char *source; /* local address to connect from; NULL: the route decides */
	struct fabric_settings settings;
};

/*
 * Connects, sends `request`, and waits for the daemon's answer: `reply` gets its bytes (*ret_bytes
 * of them, a reply or a reject of wire.h). With a reply *ret_ep is the endpoint, to be closed by
 * ops->close; with a reject it is NULL. Blocks up to `timeout_ns`. Returns 0, -TARN_EUNREACHABLE,
 * -TARN_ETIMEOUT, -TARN_EPROTO, -TARN_ENOTBUILT, -EACCES, -ENOMEM, each with a text.
 */
struct fabric_transport {
	const char *name;
	int (*connect)(const struct fabric_address *address, const void *request,
		       size_t request_bytes, uint64_t timeout_ns, void *reply,
		       size_t reply_capacity, size_t *ret_bytes, struct fabric_endpoint **ret_ep);
};

extern const struct fabric_transport fabric_shm_transport;
extern const struct fabric_transport fabric_verbs_transport;

/* The transport for an address, or NULL when this build has none. */
const struct fabric_transport *fabric_transport_for(const struct fabric_address *address);

/*
 * An endpoint on memory that this process has mapped already, for the daemon's own use, for tests
 * and for the benchmark's ceiling. No RPC. The memory stays the caller's.
 */
int fabric_shm_attach(void *base, uint64_t bytes, int read_only, struct fabric_endpoint **ret_ep);

#endif
