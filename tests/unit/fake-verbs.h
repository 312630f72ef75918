/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake-verbs.h - libibverbs and librdmacm for unit tests: no kernel, no threads, no time
 *
 * fake-verbs.c (objects and work requests), fake-rdmacm.c (connections) and fake-system.c (clock,
 * poll(), memory) define the functions of both libraries that the code calls. The tests are linked without the real ones, so
 * that a call which is not faked is an error of the linker. As strict as the real thing, or
 * stricter: what would give EBUSY there, block for ever or corrupt memory fails the test here.
 *
 *  - every object is counted; fake_end() fails the test if one is left
 *  - fake.fail_at = N: the Nth call from now on that may fail fails with fake.fail_errno
 *  - connection events come when the code makes the call that brings them about, as fake.on_...
 *    says, or when the test says so: fake_event()
 *  - work requests are carried out when the completion queue is polled, in order, against memory
 *    of the test (fake_remote()) or of another registration; fake.wc_error_at makes one fail
 *  - descriptors of channels are real, poll() and libevent can wait for them
 *  - time stands still: a look at the clock takes 1 us, poll() without an event its whole
 *    timeout
 */
#ifndef TARN_TESTS_FAKE_VERBS_H
#define TARN_TESTS_FAKE_VERBS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

enum fake_kind {
	FAKE_CONTEXT, /* opened by ibv_open_device */
	FAKE_DEVICE_LIST,
	FAKE_PD,
	FAKE_PARENT_PD,
	FAKE_TD,
	FAKE_MR,
	FAKE_COMP_CHANNEL,
	FAKE_CQ,
	FAKE_QP,
	FAKE_SRQ,
	FAKE_EVENT_CHANNEL,
	FAKE_ID,
	FAKE_CM_EVENT, /* got and not acknowledged */
	FAKE_CQ_EVENT,
	FAKE_ASYNC_EVENT,
	FAKE_ADDRINFO,
	FAKE_EVENT, /* of libevent */
	FAKE_THREAD,
	FAKE_KINDS
};

/* What comes of a call that has an event as its answer. */
struct fake_answer {
	bool silent; /* nothing comes */
	enum rdma_cm_event_type event;
	int status;
	const void *bytes; /* private data */
	uint8_t byte_count;
};

#define FAKE_PRIVATE_MAX 196u

/* What was done with a rdma_cm_id; stays when the id is gone. */
struct fake_record {
	struct rdma_cm_id *id; /* NULL: destroyed */
	unsigned connected, accepted, rejected, established, disconnected, listening, notified,
		destroyed;
	struct rdma_conn_param param;    /* of connect or accept */
	uint8_t bytes[FAKE_PRIVATE_MAX]; /* of connect, accept or reject */
	uint8_t byte_count;
	int tos; /* -1: not set */
};

/* A work request as it was posted. */
struct fake_wr {
	uint32_t qp_num;
	unsigned post; /* number of the ibv_post_send it was in, from 1 */
	enum ibv_wr_opcode opcode;
	unsigned flags;
	uint64_t remote;
	uint32_t rkey, length;
	uint64_t compare_add, swap;
	enum ibv_wc_status status; /* when carried out */
	bool done;
};

#define FAKE_DEVICES 2u
#define FAKE_RECORDS 1024u

struct fake_device {
	struct ibv_device device;
	struct verbs_context verbs; /* .context at its end is what the code sees */
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	bool no_td;          /* thread domains are not offered */
	bool no_dmabuf;      /* nor the registration of dma-bufs */
	bool no_srq;         /* neither are shared receive queues */
	bool negative_errno; /* ibv_post_send returns negative codes, as siw does */
	uint32_t max_inline;
	bool ready;
};

struct fake {
	/* ---- to be set by the test ---- */
	struct fake_device devices[FAKE_DEVICES];
	unsigned device_count;
	unsigned long fail_at; /* 0: never */
	int fail_errno;
	struct fake_answer on_resolve_addr, on_resolve_route, on_connect, on_establish, on_accept,
		on_disconnect;
	/* instead of on_connect: the daemon's side */
	void (*connect)(struct rdma_cm_id *id, const struct rdma_conn_param *param);
	/* instead of the above: called where event `what` would come; true: has done all itself */
	bool (*event_hook)(struct rdma_cm_id *id, enum rdma_cm_event_type what);
	/* a SEND has arrived at the other side of this queue pair */
	void (*send)(struct ibv_qp *qp, const void *bytes, uint32_t count);
	/* called right before a completion queue is armed: what comes now makes no event */
	void (*arming)(struct ibv_cq *cq);
	/* called when poll() would sleep; the test may make something happen */
	void (*idle)(void);
	struct rdma_conn_param request_param; /* of fake_request(), but for its private data */
	bool hold_threads;                    /* see fake-event.c */
	bool gone[FAKE_DEVICES];              /* the device is not there */
	bool memory;                          /* fail_at counts calloc, malloc and mmap, too */
	bool dmabufs;                         /* fstatfs() takes a memfd for a dma-buf */
	bool hold;                            /* work requests are not carried out by polling */
	uint32_t hold_qp_num;                 /* those of this queue pair are not carried out */
	unsigned long wc_error_at; /* the Nth work request carried out from now on fails; 0: none */
	enum ibv_wc_status wc_error;
	bool atomics_mute; /* atomics succeed, but what they found is not told */
	bool rnr_is_fatal; /* a message that meets no receive buffer fails the test (default) */
	uint64_t tick_ns;

	/* ---- to be looked at ---- */
	unsigned long calls; /* that could have failed */
	char failed[48];     /* name of the one that has; "" */
	long live[FAKE_KINDS];
	struct fake_record records[FAKE_RECORDS];
	unsigned record_count;
	struct fake_wr *wrs;
	size_t wr_count, wr_capacity;
	unsigned posts;
	uint64_t now_ns;
	uint64_t wall_ms;
	unsigned long polls_idle;
	unsigned long cq_polls; /* calls of ibv_poll_cq */
};

extern struct fake fake;

/* One InfiniBand-like device "fake0" with atomics, at 10.77.0.1; time is 1000 s. */
void fake_begin(void);
/* The same as an iWARP device. */
void fake_iwarp(struct fake_device *device);
/* Nothing may be left. Frees what the fake itself has. */
void fake_end(void);
const char *fake_kind_name(enum fake_kind kind);
/* Fails the test when something is left, `what` had been done. Only of kinds >= from. */
void fake_nothing_left(const char *what);

struct ibv_context *fake_context(unsigned device);

/* ---- connections ---- */

/* Appends an event for this id to its channel. For a REJECTED, UNREACHABLE...: status. */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status, const void *bytes,
		uint8_t byte_count);
/* A client at 10.78.0.N, port 40000 + N wants to connect; returns the new id (not yet accepted). */
struct rdma_cm_id *fake_request(struct rdma_cm_id *listener, unsigned device, unsigned n,
				const void *bytes, uint8_t byte_count);
struct fake_record *fake_record(const struct rdma_cm_id *id);
/* The last one that was made. */
struct fake_record *fake_last_record(void);
/* The id that listens; NULL. */
struct rdma_cm_id *fake_listener(unsigned nth);
unsigned fake_pending_events(const struct rdma_event_channel *channel);

/* ---- queue pairs ---- */

/* Memory of the other side: what work requests reach under this rkey. Gone with fake_end(). */
uint32_t fake_remote(void *memory, uint64_t bytes, uint64_t address, unsigned access);
/* Carries out up to `max` work requests of this queue pair; returns their number. */
unsigned fake_run(struct ibv_qp *qp, unsigned max);
unsigned fake_queued(const struct ibv_qp *qp); /* posted and not carried out */
/* A message arrives. False: no receive buffer. */
bool fake_deliver(struct ibv_qp *qp, const void *bytes, uint32_t count);
struct ibv_qp *fake_qp(uint32_t qp_num); /* NULL: gone */
struct ibv_qp *fake_nth_qp(unsigned n);  /* of the live ones, oldest first; NULL */
enum ibv_qp_state fake_qp_state(const struct ibv_qp *qp);
unsigned fake_qp_access(const struct ibv_qp *qp);
const struct ibv_qp_attr *fake_qp_attr(const struct ibv_qp *qp);
const struct ibv_qp_init_attr *fake_qp_init(const struct ibv_qp *qp);
struct ibv_cq *fake_nth_cq(unsigned n);
/* Access flags of the registration that a live rkey belongs to; 0: none. */
unsigned fake_mr_access(uint32_t rkey);
const struct ibv_mr *fake_nth_mr(unsigned n);
unsigned fake_nth_mr_access(unsigned n);
/* The NIC has broken off: the queue pair is in error, all is flushed. */
void fake_break(struct ibv_qp *qp);
/* An asynchronous event of a device; element: a QP, CQ, SRQ or NULL (port 1). */
void fake_async(unsigned device, enum ibv_event_type type, void *element);
void fake_async_port(unsigned device, enum ibv_event_type type, int port);

/* ---- time ---- */

void fake_pass_ns(uint64_t ns);

/* ---- the daemon's loop, fake-event.c ---- */

struct event_base;
/* Lets so much time pass, with all that happens in it. 0: what is to be done now. */
void fake_loop(struct event_base *base, uint64_t ns);
/* The thread that was held back. */
void fake_thread_run(void);
void fake_event_end(void);

/* ---- for the parts of the fake ---- */

/* May this call fail? True: it must, errno is set. */
bool fake_refuses(const char *name);
void fake_count(enum fake_kind kind, int by);
/* A connection of iWARP: the kernel brings the queue pair to `state`. */
void fake_qp_kernel(uint32_t qp_num, enum ibv_qp_state state);
void fake_rdmacm_end(void);
void *__real_calloc(size_t count, size_t bytes); /* of the linker's --wrap */
int fake_fd_new(void);
void fake_fd_add(int fd);
void fake_fd_take(int fd);
bool fake_fd_nonblocking(int fd);

#endif
