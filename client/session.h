/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * session.h - inside of libtarn: one session and the tasks that run on it
 *
 * A task is a state machine over fabric.h: it posts requests and goes on when their completion has
 * come. It knows neither the transport nor who drives it: session_run() for the blocking calls,
 * tests/sim for a seeded scheduler. Rules:
 *  - step() runs the task until it has posted something (returns 0) or has ended (returns 1;
 *    `result` is its outcome)
 *  - a task has at most one post or RPC in flight whose completion it waits for; the completion's
 *    cookie is the task
 *  - whoever gets that completion writes its status to task->status and calls step() again
 *  - a task that backs off has nothing in flight: step() has returned 0 and left task->wake_ns !=
 *    0; it is to be called again (status 0) once now() has reached that, and no completion comes
 */
#ifndef TARN_SESSION_H
#define TARN_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "fabric.h"
#include "layout.h"
#include "tarn/tarn.h"
#include "wire.h"

struct tarn_session;

struct task {
	int (*step)(struct task *task);
	int status;       /* of the completion that step() is called for */
	uint32_t length;  /* of an RPC's reply */
	int result;       /* valid once step() has returned 1 */
	uint64_t wake_ns; /* not 0: the task waits for this time, see above; step() clears it */
	/*
	 * An RPC in flight is given up at this time: status -TARN_ETIMEOUT. A post never is: it
	 * ends by itself (T3), and until then the transport may write into the task's memory.
	 */
	uint64_t limit_ns;
	bool asking; /* what is in flight is an RPC */
};

/* Who a session is, from the handshake's reply. */
struct session_identity {
	uint32_t client_id;
	uint32_t client_slot;
	bool read_only;
};

enum session_owner { SESSION_IDLE = 0, SESSION_CALL = 1, SESSION_HOUSEKEEPING = 2 };

struct alloc;
struct cache;
struct claim;
struct directory;
struct kv_op;
struct process;

struct tarn_session {
	/*
	 * one of enum session_owner; taken with acquire, given back with release: whoever holds it
	 * owns all below
	 */
	atomic_uint owner;
	/*
	 * 1: housekeeping found a call in the session too often; the next call does its work at its
	 * end
	 */
	atomic_uint wanted;

	struct fabric_endpoint *ep;
	struct layout_geometry geometry;
	struct session_identity identity;
	uint32_t flags;           /* TARN_... of struct tarn_options */
	uint64_t timeout_ns;      /* of a call */
	unsigned fork_generation; /* session_fork_generation() of the process that opened it */
	bool lost;                /* the connection is gone for good */

	uint64_t epoch;          /* as last read */
	uint64_t epoch_read_ns;  /* when; 0: never */
	uint32_t stamp_sequence; /* of the next write; with the client id it makes the stamp */
	uint64_t random;         /* state of the back-off's generator */

	struct alloc *alloc;
	struct cache *cache; /* NULL: none */
	struct directory *directory;
	struct kv_op *op;        /* the one that blocking calls use */
	struct process *process; /* housekeeping's task */

	struct tarn_session_stats stats;
	uint64_t get_latency[LAYOUT_LATENCY_BUCKETS], put_latency[LAYOUT_LATENCY_BUCKETS];
	uint64_t last_call_ns; /* end of the last call: idle sessions hand memory back */

	LIST_ENTRY(tarn_session) housekeeping; /* under housekeeping.c's mutex */
};

/*
 * A session on an endpoint that is connected already. Takes the endpoint over (also on failure).
 * `options` as for tarn_session_open(), may be NULL. No network. 0 or -ENOMEM.
 */
int session_create(struct fabric_endpoint *ep, const struct layout_geometry *geometry,
		   const struct session_identity *identity, const struct tarn_options *options,
		   struct tarn_session **ret_session);
/*
 * Frees without network: what the session owned in the pool stays as it is, as if the client had
 * died.
 */
void session_free(struct tarn_session *session);

/* The error of a session whose connection is gone: -TARN_ESESSION with its text. */
int session_lost(void);

/* Drives a task to its end. Blocks. Returns its result. */
int session_run(struct tarn_session *session, struct task *task);
/* Waits for the completion of what was posted for a task. Blocks. Returns its status. */
int session_wait(struct tarn_session *session, struct task *task);
/* Posts and waits: for code that has nothing better to do. 0 or a negative code with a text. */
int session_sync(struct tarn_session *session, const struct fabric_request *requests,
		 unsigned count);

/* A number that is another one in each forked child. The first call arranges for that. */
unsigned session_fork_generation(void);

/* Enters and leaves a public call: 0, -TARN_EINUSE or -TARN_ESESSION with a text. */
int session_enter(struct tarn_session *session);
void session_leave(struct tarn_session *session);

/*
 * Posts for a task and counts. Returns 1: complete in place, go on; 0: posted, return 0 from
 * step(); negative: nothing was posted. `task` NULL: nobody waits (then 0 and 1 mean the same).
 */
int session_post(struct tarn_session *session, const struct fabric_request *requests,
		 unsigned count, struct task *task);
int session_rpc(struct tarn_session *session, const void *message, size_t bytes, void *reply,
		size_t capacity, struct task *task);

static inline uint64_t session_now(struct tarn_session *session)
{
	return fabric_now(session->ep);
}
uint64_t session_random(struct tarn_session *session);
/* Is the epoch that we know too old to date a block with (older than half an epoch)? */
static inline bool session_epoch_stale(const struct tarn_session *session, uint64_t now)
{
	return session->epoch_read_ns == 0 ||
	       now - session->epoch_read_ns > session->geometry.epoch_ns / 2;
}
/* Takes note of an epoch whose READ was posted at `posted_ns`. */
void session_epoch_learn(struct tarn_session *session, uint64_t epoch, uint64_t posted_ns);
/* Fills as much of a caller's item as its size says. */
void session_copy_item(struct tarn_item *ret_item, const struct tarn_item *item);
/* Draws the stamp of a new write. */
uint64_t session_stamp(struct tarn_session *session);
/*
 * Gets a new client id from the daemon when the stamps of this one are about to run out. Blocks.
 * Before each write.
 */
int session_renew_stamps(struct tarn_session *session);
/* A question to the daemon's CPU and its answer, status included. Blocks up to the time limit. */
int session_ask(struct tarn_session *session, const struct wire_rpc *rpc,
		struct wire_rpc_reply *ret_reply);

/* ---- housekeeping.c: the one thread of the process ------------------------------------------- */
int housekeeping_add(struct tarn_session *session);
void housekeeping_remove(struct tarn_session *session);

/* ---- process.c: what housekeeping does to one session, as a task ----------------------------- */
int process_create(struct tarn_session *session, struct process **ret_process);
void process_free(struct process *process);
/* Periodic work. `final`: hand everything back, the session is being closed. */
struct task *process_start(struct process *process, bool final);

#endif
