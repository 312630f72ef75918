/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-sim.h - a pool in plain memory, several clients' endpoints on it, one thread, virtual time
 *
 * The endpoints are fabric.h's, so the client's real code runs on them. Nothing happens by itself:
 * schedule.c decides which endpoint takes the next step, and one step is one word of one request.
 * All chance comes from sim_random(): one seed is one schedule.
 *
 * What may happen is what docs/protocol.md sections 1 and 3 allow, and all of it:
 *  - requests of an endpoint in order, word by word, words of one request in any order, adjacent
 *    READs mixed
 *  - a request takes effect up to G - D after it was posted (T3); a completion is seen any time
 *    later
 *  - a client may be stopped between looking at the clock and posting, for any time up to
 *    cache_max_age
 *  - with `stoppable` (shared memory): also between any two words of a post
 *  - a client dies, or loses its connection: what has not taken effect never does, its last WRITE
 *    may be half done
 * and, when a tuning says so, two faults that it does not allow (late_writes, and flips made by
 * schedule.c).
 */
#ifndef TARN_FABRIC_SIM_H
#define TARN_FABRIC_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fabric.h"
#include "layout.h"
#include "wire.h"

#define SIM_CLIENTS   4u
#define SIM_SLOTS     8u /* of the client table: a client that reconnects may take another one */
#define SIM_NEVER     UINT64_MAX
#define SIM_DRIFT_MAX 51 /* clocks are wrong by up to so many in 1024 */

struct sim_tuning {
	uint32_t tick_ns;     /* a step takes up to this long */
	uint32_t delays;      /* per 1024: a post waits before it takes effect */
	uint32_t stalls;      /* per 1024: a client is stopped before it sees a completion */
	uint32_t post_stalls; /* per 1024: before it posts; stoppable: per 16384, before any word */
	uint64_t longest_stall_ns;
	bool shuffle;    /* words of a request in any order */
	bool stoppable;  /* clients as on shared memory: T3 does not bind them */
	bool faa;        /* atomics in a nic domain: counters by FAA */
	bool reads_late; /* a READ may be passed by later requests without a fence (InfiniBand) */
	bool pipelined;  /* clients have several operations at a time */
	uint32_t calm_clients; /* bit: this client has neither stalls nor delays */
	bool ends_soon;   /* the daemon hears of the end of a connection within a millisecond */
	bool wraps;       /* many stalls last until generations come again */
	bool late_writes; /* fault: words of a WRITE take effect after the requests behind it */
};

/* A request on its way. */
struct sim_flight {
	struct fabric_request request;
	uint8_t data[FABRIC_INLINE_BYTES]; /* FABRIC_INLINE */
	uint32_t pieces, done;             /* words that it touches; how many have taken effect */
	uint32_t first, stride;            /* their order */
	bool finished;
	bool last;         /* of its post */
	void *cookie;      /* of its post */
	uint64_t ready_ns; /* earliest time of its effect */
	uint64_t due_ns;   /* latest */
};

struct sim_done {
	struct fabric_completion completion;
	uint64_t visible_ns;
};

#define SIM_DONE_MAX 8u
#define SIM_NAMED    16u

/* A message to the daemon's CPU. */
struct sim_message {
	uint8_t bytes[WIRE_RPC_MAX_BYTES];
	size_t length, capacity;
	void *reply, *cookie;
	bool cancelled; /* nobody waits for its answer */
	uint64_t ready_ns;
};
#define SIM_MESSAGES 8u

struct sim_endpoint {
	struct fabric_endpoint base;
	struct sim *sim;
	unsigned client;
	uint32_t slot; /* of the client table */
	uint32_t client_id;
	uint64_t serial; /* another one for each connection */
	int32_t drift;   /* of the client's clock, in 1024 */
	/* dead: killed, posts nothing any more. broken: told -TARN_ESESSION */
	bool open, dead, broken;
	bool fenced;   /* nothing of it takes effect any more */
	bool orphaned; /* its daemon has died; it has the memory mapped and may go on */
	struct sim_flight *flights; /* ring */
	uint32_t size, head, count;
	uint64_t frozen_ns; /* no step before this */
	struct sim_done done[SIM_DONE_MAX];
	uint32_t done_head, done_count;
	struct sim_message messages[SIM_MESSAGES]; /* in the order in which they were sent */
	uint32_t message_count;
	bool asking;      /* an answer is waited for */
	void *asked;      /* with this cookie */
	uint64_t cancels; /* how often that was given up */
	/* of ready rings: the tickets drawn last, and the page words that entries lead to since then */
	uint64_t ticket, drawn;
	struct sim_named {
		uint64_t offset;
		bool fits; /* the entry is that of such a ticket */
	} named[SIM_NAMED];
	unsigned named_count;
};

/* A word of a WRITE that is late (fault). */
struct sim_late {
	unsigned client;
	uint32_t bytes;
	uint64_t offset, step;
	uint8_t data[8];
};
#define SIM_LATE_MAX 32u

struct sim {
	uint8_t *pool, *pristine;
	uint64_t bytes;
	uint64_t *dirty_map; /* bit: this cache line is not as in pristine */
	uint32_t *dirty;     /* list of those */
	uint32_t dirty_count;
	struct layout_geometry geometry;
	struct sim_tuning tuning;
	uint64_t random;
	uint64_t now_ns, step;
	uint64_t daemon_stopped_ns; /* the daemon does nothing before this */
	int32_t daemon_drift;       /* of its clock, in 1024 */
	uint64_t serial;            /* of the last connection */
	uint64_t longest_prepost_ns;
	struct sim_endpoint endpoints[SIM_CLIENTS];
	struct sim_late late[SIM_LATE_MAX];
	uint32_t late_count;
	struct sim_daemon *daemon; /* sim-daemon.c */
	struct shadow *shadow;     /* shadow.c */
	char violation[256];       /* what it has seen first; "": nothing */
	/* The daemon has taken a key out of the index: called with its slot's word. */
	void (*removed)(void *argument, uint64_t word);
	void *removed_argument;
	FILE *trace;
};

/*
 * A formatted pool in which nothing but the index is in use; all else is done by the caller, then
 * sim_keep() makes that the state to return to.
 */
struct sim *sim_create(const struct layout_plan *plan);
void sim_keep(struct sim *sim);
void sim_free(struct sim *sim);
/* Back to the kept state, with a new seed and no tuning at all. Undoes only what was touched. */
void sim_reset(struct sim *sim, uint64_t seed);
/* To be called before the first endpoint connects. */
void sim_tune(struct sim *sim, const struct sim_tuning *tuning);
uint64_t sim_random(struct sim *sim);
static inline uint64_t sim_below(struct sim *sim, uint64_t n)
{
	return sim_random(sim) % n;
}
static inline bool sim_chance(struct sim *sim, uint32_t per_1024)
{
	return sim_random(sim) % 1024 < per_1024;
}
/* A length for a stall: around D, E, G, or much longer; never above `longest`. */
uint64_t sim_stall(struct sim *sim, uint64_t longest_ns);

/* Memory, as the scheduler and the daemon change it. */
void sim_write(struct sim *sim, uint64_t offset, const void *data, uint64_t bytes);
static inline uint64_t sim_word(const struct sim *sim, uint64_t offset)
{
	return *(const uint64_t *)(const void *)(sim->pool + offset);
}
static inline void sim_set_word(struct sim *sim, uint64_t offset, uint64_t word)
{
	sim_write(sim, offset, &word, 8);
}

static inline uint64_t sim_epoch(const struct sim *sim)
{
	return sim_word(sim, LAYOUT_EPOCH_OFFSET);
}

/* What a clock that is wrong by `drift` in 1024 shows at this time, and when it shows `local`. */
static inline uint64_t sim_local(uint64_t now_ns, int32_t drift)
{
	return now_ns + (uint64_t)(int64_t)((__int128)now_ns * drift / 1024);
}
uint64_t sim_time(uint64_t local_ns, int32_t drift);

/* A new connection of a client, which has this slot of the client table. */
struct fabric_endpoint *sim_connect(struct sim *sim, unsigned client, uint32_t slot,
				    uint32_t client_id);
/*
 * The client dies: it posts nothing any more. What it has posted may take effect until the daemon
 * fences it; not with shared memory.
 */
void sim_kill(struct sim *sim, unsigned client);
/* The client loses its connection: nothing of it takes effect any more, but it lives and is told. */
void sim_break(struct sim *sim, unsigned client);
/* The daemon of this connection has died; the client has its memory mapped and does not know yet. */
void sim_orphan(struct sim *sim, unsigned client);
/* Nothing of this connection takes effect any more. */
void sim_fence(struct sim *sim, unsigned client, uint32_t slot);

/* When can this endpoint's queue take its next step? SIM_NEVER: it is empty. */
uint64_t sim_ready(const struct sim_endpoint *ep);
/* Has the queue to take steps before time goes on? */
bool sim_due(const struct sim_endpoint *ep);
void sim_step(struct sim_endpoint *ep);
/* When will poll have something? SIM_NEVER: nothing is known to come. */
uint64_t sim_visible(const struct sim_endpoint *ep);
/* Puts a completion into the endpoint's queue. */
void sim_complete(struct sim_endpoint *ep, const struct fabric_completion *completion);
/* Applies late words whose time has come (`all`: every one). */
void sim_late_step(struct sim *sim, bool all);

void sim_tracef(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says in words what stands at an offset. */
const char *sim_where(const struct sim *sim, uint64_t offset, char *buffer, size_t bytes);

/* ---- sim-daemon.c: the daemon's real code ---- */

/* What daemons have done: blocks, splits, keys, starts after a death. */
struct sim_counts {
	uint64_t aged, leaked, splits, evicted, starts;
};

struct sim_daemon *sim_daemon_create(struct sim *sim);
void sim_daemon_free(struct sim_daemon *daemon);
/* A daemon that has just started, on the pool as it is now. False: no memory. */
bool sim_daemon_begin(struct sim_daemon *daemon);
/* Everything of it is gone, wherever it was. */
void sim_daemon_end(struct sim_daemon *daemon);
/* Can the daemon take a step now, or when? SIM_NEVER: it waits for others. */
uint64_t sim_daemon_next(const struct sim_daemon *daemon);
/* One step, to the next access at which the others have their turn. */
void sim_daemon_step(struct sim_daemon *daemon);
/* When it is due to look after the pool, and that without anybody else. */
uint64_t sim_keeper_next(const struct sim_daemon *daemon);
void sim_keeper_run(struct sim_daemon *daemon);
/* So many epochs pass in which nobody does anything. */
void sim_keeper_skip(struct sim_daemon *daemon, uint64_t epochs);
/* Is a sweep on its way over the pages or the index? */
bool sim_daemon_sweeps(const struct sim_daemon *daemon);
/* A handshake. False: not now. */
bool sim_daemon_connect(struct sim_daemon *daemon, uint32_t *ret_slot, uint32_t *ret_client_id);
/* The daemon hears of the end of a connection some time after this. */
void sim_daemon_disconnect(struct sim_daemon *daemon, unsigned client, uint32_t slot);
/* The daemon dies where it is, and is started again after a while. */
void sim_daemon_kill(struct sim_daemon *daemon, uint64_t pause_ns);
/* Adds what it has done since sim_daemon_begin(). */
void sim_daemon_count(struct sim_daemon *daemon, struct sim_counts *sum);

#endif
