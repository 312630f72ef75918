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
 * Several tasks can run at a time (engine.h). An endpoint carries one RPC at a time: a task whose RPC
 * has to wait for its turn notices nothing of that.
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
	bool asking;    /* what is in flight is an RPC, or a wait for a notice */
	bool noticing;  /* it is that: in session->listeners, by rpc_link */
	bool sent;      /* it has left: not, when it still waits for its turn */
	bool completed; /* what was in flight has come: status and length are its */

	/* ---- of whoever drives it ---- */
	struct lane *lane; /* engine.h; NULL: somebody waits for this task alone */
	/* an RPC that waits for its turn in session->rpcs */
	TAILQ_ENTRY(task) rpc_link;
	const void *rpc_message; /* NULL: rpc_write is it */
	const struct fabric_request *rpc_write;
	size_t rpc_bytes, rpc_capacity;
	void *rpc_reply;
};

/* Who a session is, from the handshake's reply. */
struct session_identity {
	uint32_t client_id;
	uint32_t client_slot;
	bool read_only;                     /* the same in each connection of a session */
	uint32_t owner;                     /* layout_owner() of the access key; likewise */
	char key_id[WIRE_KEY_ID_BYTES + 1]; /* for messages; "": none; likewise */
};

/* What the session's access key may use and does, as the daemon has written it into our slot. */
struct session_limits {
	uint64_t limits; /* bits of enum layout_limit */
	struct layout_quota quota, used;
};
static_assert(sizeof(struct session_limits) == 56, "as in struct layout_client");
#define SESSION_LIMITS_OFFSET offsetof(struct layout_client, limits)

/* ---- connections: made by connect.c, or by a test -------------------------------------------- */

/* A connection that stands. */
struct session_link {
	struct fabric_endpoint *ep;
	struct layout_geometry geometry;
	struct session_identity identity;
};

/* Is it of use to try again, after a try that failed? */
enum session_again {
	SESSION_NEVER, /* no: somebody has to change something first */
	SESSION_LATER, /* a session that had a connection tries again, a new one does not */
	SESSION_SOON,  /* yes: a refusal that passes by itself */
};

/* What a session needs to connect, and to connect again. */
struct session_connector {
	/*
	 * One try of up to `timeout_ns`, on clock_now_ns()'s clock, as is that of the endpoint. 0; or
	 * a negative code with a text and *ret_again, and with SESSION_SOON *ret_wait_ns: how long
	 * the other side wants to be left alone (0: it did not say).
	 */
	int (*connect)(struct session_connector *connector, uint64_t timeout_ns,
		       struct session_link *ret_link, enum session_again *ret_again,
		       uint64_t *ret_wait_ns);
	void (*free)(struct session_connector *connector);
};

/* CLOSED: in debug builds, handle.h */
enum session_owner {
	SESSION_IDLE = 0,
	SESSION_CALL = 1,
	SESSION_HOUSEKEEPING = 2,
	SESSION_CLOSED = 3
};

struct alloc;
struct registration;
struct cache;
struct claim;
struct directory;
struct engine;
struct kv_op;
struct process;
struct reference;
struct cluster;

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
	/* cluster.h: not NULL: of a cluster, and has no connection of its own */
	struct cluster *cluster;
	struct tarn_session *front; /* a member's: the cluster's session, whose owner connects it again; else NULL */

	struct fabric_endpoint *ep;
	struct layout_geometry geometry;
	struct session_identity identity;
	uint32_t flags;           /* TARN_... of struct tarn_options */
	uint64_t timeout_ns;      /* of a call */
	unsigned fork_generation; /* session_fork_generation() of the process that opened it */
	bool lost;                /* the connection is gone */
	char loss[200];           /* why, in the transport's words; "" when it has none */

	/* ---- reconnect.c ---- */
	struct session_connector *connector; /* NULL: a lost connection stays lost */
	struct fabric_endpoint nowhere;      /* stands in for one that is gone: ep points to it */
	const char *transport;               /* name of the last one, for people */
	uint64_t limit_ns; /* end of the call under way once it had to reconnect; 0: it had not */
	uint64_t work_limit_ns; /* end of what was driven last: until it had to, that is the same */
	uint64_t try_ns;        /* not before this is it tried again in the background */
	uint64_t try_delay_ns;  /* the last delay of that; 0: none */
	uint64_t pool_serial;   /* goes up when the pool is another one after a reconnect */
	int event_fd, watched_fd; /* tarn_session_fd() and the endpoint's in it; -1: none */

	uint64_t epoch;              /* as last read */
	uint64_t epoch_read_ns;      /* when; 0: never */
	uint32_t stamp_sequence;     /* of the next write; with the client id it makes the stamp */
	uint64_t too_old;            /* attempts that T1 has stopped: there is more under way than gets done */
	uint64_t random;             /* state of the back-off's generator */
	struct reference *reference; /* marks of hits, reference.h; NULL: this session makes none */
	/* bits of enum layout_limit and what they come from, as last read */
	struct session_limits limits;

	/*
	 * A pool of a cluster: since which epoch this member has each shard, by the client's map (0: it is not
	 * its own), since_shards of them. NULL: of no cluster, and no shard's word is looked at. Who owns
	 * the session may change it between calls; an operation goes by what it was at its beginning. What
	 * the pool contradicts ends with -TARN_EMOVED: then there is a newer map, or the member
	 * has not seen the newest yet (it has been started a moment ago): fetch it, wait a moment if it is
	 * the same, and begin again.
	 */
	const uint64_t *since;
	uint32_t since_shards;
	/*
	 * While a blocking call of the cluster runs at this member: the key whose hash it has found out already.
	 * NULL: there is none.
	 */
	const void *hashed_key;
	size_t hashed_bytes;
	struct layout_hash hashed;

	struct alloc *alloc;
	struct cache *cache; /* NULL: none */
	struct directory *directory;
	struct kv_op *op;        /* the one that blocking calls use */
	struct engine *engine;   /* asynchronous calls; NULL: there were none */
	struct group *near;      /* near.c's; NULL: not needed yet */
	struct task *rpc;        /* whose RPC the endpoint has; NULL: none */
	TAILQ_HEAD(, task) rpcs; /* wait for their turn */
	TAILQ_HEAD(, task) listeners; /* wait for the next notice, completion.c */
	uint32_t notices_seen;        /* of the endpoint's */
	struct process *process; /* housekeeping's task */

	LIST_HEAD(, tarn_scan) scans;            /* scan.c */
	LIST_HEAD(, registration) registrations; /* buffer.c */
	LIST_HEAD(, tarn_buffer) buffers;
	unsigned unreachable; /* of those: memory that this CPU can not touch */
	LIST_HEAD(, tarn_region) regions; /* region.c */

	struct tarn_session_stats stats;
	uint64_t get_latency[LAYOUT_LATENCY_BUCKETS], put_latency[LAYOUT_LATENCY_BUCKETS];
	uint64_t last_call_ns;    /* end of the last call: idle sessions hand memory back */
	uint64_t last_process_ns; /* begin of the last housekeeping */

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
struct uri;
struct auth_key;
/*
 * connect.c: a session with a pool of a cluster's member, and of no thread's. cluster: cluster_hash(); 0: of any. `options`: merged
 * ones, with the time for this; both are copied.
 */
int session_open_member(const struct uri *uri, const struct tarn_options *options,
			uint64_t cluster, struct tarn_session **ret_session);
/*
 * The same for tarnd's mover (daemon/mover.c): with this key, or NULL, instead of a file; and a connection that is lost stays
 * lost.
 */
int session_open_mover(const struct uri *uri, const struct tarn_options *options, uint64_t cluster,
		       const struct auth_key *key, struct tarn_session **ret_session);
/* A session without any part of a connection, for a cluster's: cluster.h. NULL: no memory. */
struct tarn_session *session_create_front(const struct tarn_options *options);
/* reconnect.c: its endpoint is one that knows the time and nothing else. */
void session_nowhere(struct tarn_session *session);

/* Takes note that the connection is gone, and of why, as far as the transport can say. */
void session_lose(struct tarn_session *session);
/* The error of that: -TARN_ESESSION with a text. */
int session_lost(const struct tarn_session *session);

/* ---- completion.c: what is posted, and what comes back --------------------------------------- */

/* Drives a task to its end, and others that are under way. Blocks. Returns its result. */
int session_run(struct tarn_session *session, struct task *task);
/*
 * Takes what has come, without blocking, and gives it to the tasks: completed, status, length. Also
 * notes that the connection is gone. Returns how many, or -TARN_ESESSION: none is left and none will come.
 */
int session_collect(struct tarn_session *session);
/* A task's RPC has not been answered within its time: status -TARN_ETIMEOUT. */
void session_rpc_give_up(struct tarn_session *session, struct task *task);
/* What a task has in flight will not come any more: status -TARN_ESESSION. */
void session_break(struct tarn_session *session, struct task *task);
/*
 * Waits for a notice that has come after `seen` (ep->notices): 1: it has already; 0: the task goes on when it
 * comes, status 0; or at its limit, -TARN_ETIMEOUT.
 */
int session_listen(struct tarn_session *session, struct task *task, uint32_t seen);
/* Gives up those whose time is over. */
void session_rpc_limits(struct tarn_session *session, uint64_t now);
/* Sleeps until something may have come, at most until then; a short time is spun away. */
void session_sleep(struct tarn_session *session, uint64_t until_ns, bool for_completion);
/* Posts and waits: for code that has nothing better to do. 0 or a negative code with a text. */
int session_sync(struct tarn_session *session, const struct fabric_request *requests,
		 unsigned count);

/* A number that is another one in each forked child. The first call arranges for that. */
unsigned session_fork_generation(void);

/*
 * Enters and leaves a public call. session_enter(): 0, and the session is connected unless the
 * connection breaks now; or -TARN_EINUSE, or what session_reconnect() returns.
 * session_hold(): 0 or -TARN_EINUSE, for calls that need no connection. NULL: -EINVAL.
 */
int session_enter(struct tarn_session *session);
int session_hold(struct tarn_session *session);
/* The same for a cluster's session, of which session_hold() says that it can not do that. cluster.h has what can be done. */
int session_hold_front(struct tarn_session *session);
void session_leave(struct tarn_session *session);
/* In the midst of a call that takes long and drives no engine: housekeeping's work, if it is wanted. */
void session_process_wanted(struct tarn_session *session);

/*
 * reconnect.c. Connects a lost session again, as a new client. Tries with back-off until
 * `limit_ns`, then -TARN_ESESSION; what trying again cannot help is returned at once with its own
 * code. All with a text.
 */
int session_reconnect(struct tarn_session *session, uint64_t limit_ns);
/*
 * What a call was doing has ended with *ret_result. True: it was -TARN_ESESSION, so it has changed nothing,
 * and the session is connected again: begin again. Else *ret_result is the call's result.
 */
bool session_again(struct tarn_session *session, int *ret_result);
/* The same for what is with this member of a cluster and nowhere else. */
bool session_retry(struct tarn_session *session, int *ret_result);
/*
 * For housekeeping: one short try (up to `timeout_ns`), if it is time for one. 0: connected; else a
 * negative code with a text.
 */
int session_reconnect_try(struct tarn_session *session, uint64_t timeout_ns);
#define SESSION_TRY_NS 200000000u
/* Opening: tries until the time is up as long as the refusals are of the passing kind. */
int session_connect(struct session_connector *connector, uint64_t limit_ns,
		    struct session_link *ret_link);
/*
 * For sessions with a tarn_session_fd(), whenever nothing is under way: the endpoint's descriptor
 * is in it, tells of what comes next, and of nothing that is over.
 */
void session_watch(struct tarn_session *session);
/* By the pool's seed, which is the cluster's, too. */
static inline struct layout_hash session_hash(const struct tarn_session *session, const void *key,
					      size_t bytes)
{
	return key == session->hashed_key && bytes == session->hashed_bytes
		       ? session->hashed
		       : layout_hash_key(key, bytes, session->geometry.hash_seed);
}
/* Begins with the time that is left to a call: what session_run()'s tasks are limited by. */
static inline uint64_t session_limit(const struct tarn_session *session, uint64_t now)
{
	return session->limit_ns ? session->limit_ns : now + session->timeout_ns;
}

/*
 * Posts for a task and counts. Returns 1: complete in place, go on; 0: posted, return 0 from
 * step(); negative: nothing was posted. `task` NULL: nobody waits (then 0 and 1 mean the same).
 */
int session_post(struct tarn_session *session, const struct fabric_request *requests,
		 unsigned count, struct task *task);
int session_rpc(struct tarn_session *session, const void *message, size_t bytes, void *reply,
		size_t capacity, struct task *task);
/* The same with a WRITE that notifies (fabric.h: write_notify), which stays the caller's until the answer. */
int session_write_notify(struct tarn_session *session, const struct fabric_request *write, void *reply,
			 size_t capacity, struct task *task);

static inline uint64_t session_now(struct tarn_session *session)
{
	return fabric_now(session->ep);
}
uint64_t session_random(struct tarn_session *session);
static inline unsigned session_latency_bucket(uint64_t ns)
{
	unsigned bucket = ns ? 64 - (unsigned)__builtin_clzll(ns) : 0;

	return bucket < LAYOUT_LATENCY_BUCKETS ? bucket : LAYOUT_LATENCY_BUCKETS - 1;
}
/* A get or exists has ended, after so long. */
static inline void session_count_get(struct tarn_session *session, uint64_t took_ns, uint64_t now,
				     int result)
{
	session->get_latency[session_latency_bucket(took_ns)]++;
	session->last_call_ns = now;
	if (result == 0 || result == -TARN_ETOOSMALL || result == -TARN_ENOTFOUND) {
		session->stats.gets++;
		session->stats.hits += result != -TARN_ENOTFOUND;
	} else {
		session->stats.errors++;
	}
}
/* As many have, which are well, after the same time; so many of them have found their key. */
static inline void session_count_gets(struct tarn_session *session, uint64_t took_ns, uint64_t now,
				      unsigned count, unsigned hits)
{
	session->get_latency[session_latency_bucket(took_ns)] += count;
	session->last_call_ns = now;
	session->stats.gets += count;
	session->stats.hits += hits;
}
/* Is the epoch that we know too old to date a block with (older than half an epoch)? */
static inline bool session_epoch_stale(const struct tarn_session *session, uint64_t now)
{
	return session->epoch_read_ns == 0 ||
	       now - session->epoch_read_ns > session->geometry.epoch_ns / 2;
}
/* Takes note of an epoch whose READ was posted at `posted_ns`. */
void session_epoch_learn(struct tarn_session *session, uint64_t epoch, uint64_t posted_ns);
/* 0, or -TARN_EVALUESIZE with a text. After a reconnect it may be another pool with another limit. */
int session_check_value(const struct tarn_session *session, size_t value_bytes);
/* Fills as much of a caller's item as its size says. */
void session_copy_item(struct tarn_item *ret_item, const struct tarn_item *item);
/* -TARN_EQUOTA with a text: `bit` of enum layout_limit is set. */
int session_over_quota(const struct tarn_session *session, uint64_t bit);
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
/* The same with bytes. The completion's status, for session_ask_status(). */
int session_ask_bytes(struct tarn_session *session, const void *message, size_t bytes, void *answer,
		      size_t capacity, uint32_t *ret_length);
/* The status as an error with a text; 0: there is an answer. */
int session_ask_status(struct tarn_session *session, int status);
/* What such a question ended with, by the completion's status. 0, or a negative code with a text. */
int session_ask_reply(struct tarn_session *session, int status, const void *answer, uint32_t length,
		      struct wire_rpc_reply *ret_reply);

/* ---- buffer.c: registered memory ------------------------------------------------------------- */

/* There is a new connection, which knows none; it is gone, and knows none any more. */
void buffer_connected(struct tarn_session *session);
void buffer_lost(struct tarn_session *session);
/* The session ends; its endpoint is closed already. */
void buffer_free_all(struct tarn_session *session);
/* region.c: the session ends; its endpoint is closed already. */
void region_free_all(struct tarn_session *session);

/* A piece of a value, with FABRIC_DIRECT: counts it if it is copied on its way nevertheless. */
void buffer_count(struct tarn_session *session, const struct fabric_request *request);
/*
 * May these bytes be touched? Not by the CPU, if they are of a dma-buf that can not be mapped; `direct`: nothing but a
 * request with FABRIC_DIRECT, and without FABRIC_INLINE, is made of them, so that the adapter alone touches them
 * (`writable`: a READ). 0 or -EOPNOTSUPP with a text. With the session held and connected.
 */
int buffer_check_memory(const struct tarn_session *session, const void *memory, size_t bytes,
			bool writable, bool direct);
static inline int buffer_check(const struct tarn_session *session, const void *memory, size_t bytes,
			       bool writable, bool direct)
{
	return __builtin_expect(session->unreachable != 0, 0)
		       ? buffer_check_memory(session, memory, bytes, writable, direct)
		       : 0;
}

/* ---- housekeeping.c: the one thread of the process ------------------------------------------- */
int housekeeping_add(struct tarn_session *session);
void housekeeping_remove(struct tarn_session *session);
/* Looks after one that no call is in. Connecting may take up to *budget_ns, which becomes less by that. */
void housekeeping_visit(struct tarn_session *session, uint64_t *budget_ns);

/* ---- process.c: what housekeeping does to one session, as a task ----------------------------- */
int process_create(struct tarn_session *session, struct process **ret_process);
void process_free(struct process *process);
/* Periodic work. `final`: hand everything back, the session is being closed. */
struct task *process_start(struct process *process, bool final);
/* Periodic work, now, from its beginning to its end. Blocks. Returns its result. */
int session_process(struct tarn_session *session);
/* The quiescence count. */
uint64_t process_raises(const struct process *process);
/* The session is a new client: its counts begin again. */
void process_reset(struct process *process);
/*
 * The request that raises the quiescence count, for an operation that waits for memory: what it waits
 * for may be a sweep, which waits for every client. Only where the operation owes nothing yet, and
 * engine_may_raise() says so.
 */
struct fabric_request process_raise(struct process *process);

#endif
