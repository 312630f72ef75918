/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registration.h - one pool's memory on one RDMA device, and the queues for its clients' messages
 *
 * A protection domain of its own, so that the keys of another pool are worth nothing; the memory
 * registered twice, for who may write and for who may only read; one completion queue and one
 * shared receive queue. Registering blocks for long, so a thread does it (struct registration_run);
 * all else runs in the main thread.
 */
#ifndef TARN_DAEMON_REGISTRATION_H
#define TARN_DAEMON_REGISTRATION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <infiniband/verbs.h>

#include "err.h"
#include "pool.h"
#include "rdma.h"
#include "wire.h"

struct device;
struct peer_verbs;

#define REGISTRATION_BUCKETS 256u

/* What an honest client has outstanding at most: its own message, and one atomic of its endpoint. */
#define REGISTRATION_HONEST 2u
/* More unanswered ones than this and the client is cut off. */
/* also of an honest one after the daemon has stood still: 5 that it has given up, those, and 2 notices */
#define REGISTRATION_REPLIES 10u
/* Receives of a queue pair, where there is no shared queue. */
#define REGISTRATION_RECEIVES (REGISTRATION_REPLIES + REGISTRATION_HONEST)
/* Sends of a queue pair: replies, and the probe whether the client lives. */
#define REGISTRATION_SENDS (REGISTRATION_REPLIES + 2u)

/* Memory that is registered: the pool's, or that of a region of it. */
struct registration_memory {
	uint8_t *base;
	uint64_t bytes;
	char name[CONFIG_NAME_MAX * 2 + 16]; /* whose, for people: "pool main" */
	const char *file;                    /* it is a file that outlives the host; NULL: no */
	/* in pieces */
	uint64_t piece_bytes;
	uint32_t count;
	struct ibv_mr **mrs; /* 2 * count: to write, to read */
	struct wire_region *write_regions, *read_regions;
	_Atomic uint64_t done; /* bytes, by the thread; of both registrations */
	_Atomic bool cancel;
};

struct registration {
	TAILQ_ENTRY(registration) link; /* of the device */
	TAILQ_ENTRY(registration) pool_link; /* of pool->regions, once it is opened: region.c */
	struct device *device;
	struct pool *pool;
	bool opened; /* all is made but perhaps pool->self */
	bool ready;  /* clients may come */
	struct ibv_pd *pd;
	uint64_t max_region;
	struct registration_memory memory; /* the pool's */
	/* messages */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct event *readable;
	struct event *more;  /* there were more completions than one turn takes */
	struct ibv_srq *srq; /* NULL: each queue pair has its own receives */
	uint8_t *buffers;    /* WIRE_RPC_MAX_BYTES each */
	struct ibv_mr *buffer_mr;
	uint32_t buffer_count, cqe;
	uint32_t *free_places, free_count; /* places for peers among the buffers, without srq */
	/* queue pairs */
	LIST_HEAD(, peer_verbs) peers[REGISTRATION_BUCKETS]; /* by number */
	uint32_t peer_count, peer_max;
	uint64_t receives, probes, stale;
};

/*
 * A registration without memory yet, in the device's list. The largest piece is what device and
 * `max_region` (0: no limit) allow. 0, or a negative code with a text.
 */
int registration_create(struct device *device, struct pool *pool, uint64_t max_region,
			struct registration **ret_registration);
struct registration *registration_find(struct device *device, const struct pool *pool);
/*
 * The queues, and in a nic domain the pool's connection to itself: clients may come. When that
 * fails alone (the port is down), it is opened but not ready, and rdma_renew_soon() is for later.
 */
int registration_open(struct registration *registration);
/*
 * No client can reach the memory through it afterwards; there must be no queue pair left. Takes
 * pool->self away, if it is this one's.
 */
void registration_free(struct registration *registration);

/* ---- memory ---- */

/* Cuts it into pieces; base, bytes, name and file are set. 0, or a negative code with a text. */
int registration_memory_plan(const struct registration *registration,
			     struct registration_memory *memory);
/* Blocks: the kernel pins every page. Any thread. 0, or a negative code with a text. */
int registration_memory_register(const struct registration *registration,
				 struct registration_memory *memory);
/* Nobody can reach it through this registration afterwards. Any thread. */
void registration_memory_free(struct registration_memory *memory);
/* Bytes so far, of both registrations. */
uint64_t registration_memory_done(const struct registration_memory *memory);

/*
 * Fences all its clients for good: their queue pairs are destroyed. Before pool->self is renewed or
 * dropped, since nobody else's atomics may be under way then.
 */
void registration_fence(struct registration *registration, const char *why);
/* Makes pool->self anew; clients may come if it works. 0, or a negative code with a text. */
int registration_self_renew(struct registration *registration);
/* The same, and when it fails: logged, and tried again every 2 s. Until then the pool's words are
 * the CPU's, and nobody is let in. */
void registration_self_try(struct registration *registration);
/* The device is gone: the pool's words are the CPU's. */
void registration_self_drop(struct registration *registration);

/* ---- the queues, registration-queues.c ---- */

/* Makes them; what was made before a failure stays for registration_queues_free(). 0, or a negative
 * code with a text. */
int registration_queues_open(struct registration *registration);
void registration_queues_free(struct registration *registration);
/* Handles up to `most` completions that are there now, or a few more. */
void registration_poll(struct registration *registration, uint32_t most);
void registration_peer_add(struct registration *registration, struct peer_verbs *peer);
void registration_peer_remove(struct registration *registration, struct peer_verbs *peer);
struct peer_verbs *registration_peer_find(struct registration *registration, uint32_t qp_num);
/* Without a shared queue: fills the queue pair's receives. 0, -ENOSPC or -errno with a text. */
int registration_receives_post(struct registration *registration, struct peer_verbs *peer);

/* ---- the thread ---- */

struct registration_run {
	struct registration **list;
	size_t count;
	pthread_t thread;
	int fd; /* readable when it is done */
	int rc;
	char text[ERR_TEXT_BYTES];
};

/* Registers the memory of those in the list (copied) on a thread. 0, or -errno with a text. */
int registration_run_start(struct registration *const *list, size_t count,
			   struct registration_run **ret_run);
/* Bytes registered so far, and all. */
void registration_run_progress(const struct registration_run *run, uint64_t *ret_done,
			       uint64_t *ret_total);
/* Tells it to stop after the piece that it is at. */
void registration_run_cancel(struct registration_run *run);
/* Waits for the thread, frees the run. 0, or what went wrong, with a text. */
int registration_run_finish(struct registration_run *run);

/* ---- limits ---- */

/*
 * Could that much be locked at all? 0, or -ENOMEM with a text: limit, need, remedy. Only what is
 * certain: the kernel may still say no.
 */
int registration_memlock_check(uint64_t bytes);

#endif
