/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-world.h - a region, endpoints whose requests take effect word by word, and a daemon that answers about it
 *
 * All on one thread, all from a seed. Of the real code there is the client's (client/region-task.c and what is below
 * it); the fabric and the daemon's side are here. What may happen:
 *  - a request's words take effect one by one; what may pass what is written at candidate() in region-world.c
 *  - a post whose last request is a WRITE may be complete before that has taken effect
 *  - a connection is lost at any step; what was left of WRITE, CAS and FAA takes effect later, up to some word
 *  - the daemon stands still for longer than a call waits
 *  - the region is destroyed in its steps, is made anew under the same name, or has another size when nobody has it open
 * Every effect is an event; test-regions.c judges the calls by them. Next: test-regions.c.
 */
#ifndef TARN_SIM_REGION_WORLD_H
#define TARN_SIM_REGION_WORLD_H

#include "fabric.h"
#include "layout.h"
#include "region-task.h"
#include "session.h"
#include "wire.h"

#define RW_CLIENTS  3
#define RW_WORDS    40u
#define RW_MOST     12u /* words of one access */
#define RW_OPS      5u  /* accesses of one call */
#define RW_CALLS    160u
#define RW_EVENTS   8192u
#define RW_MEMORIES 24u
#define RW_FLIGHTS  32u
#define RW_LATE     64u
#define RW_NONE     UINT32_MAX

/* A region's memory, of one time and size. */
struct rw_memory {
	uint64_t id, bytes, sequence;
	bool alive, open; /* open: nobody is cut yet */
	bool gone;        /* its registration has ended, and its memory is nobody's */
	uint64_t words[RW_WORDS];
};

struct rw_event {
	uint64_t ns;
	uint32_t call, op, memory, word; /* op: RW_NONE: none of the call's */
	uint8_t opcode;                  /* enum fabric_opcode */
	bool gone;                       /* its memory was nobody's */
	uint64_t value;                  /* READ: what was read. WRITE: written. CAS, FAA: as it was before */
};

/* A call on the region: as it was made, and how it ended. */
struct rw_call {
	unsigned client;
	enum region_goal goal;
	struct tarn_region_op ops[RW_OPS];
	uint64_t buffers[RW_OPS][RW_MOST];
	uint32_t count;
	uint64_t id, bytes;            /* of the region, as the handle knew it; 0: not yet */
	uint64_t connection, began_ns, ended_ns;
	uint64_t sequence;             /* WAIT: that was known */
	int result;
	bool ended, quiet;
	bool broken, slow; /* meanwhile: its connection was lost; an answer did not come in time, or it was cut */
	bool lost_later;   /* its connection, after it had ended */
};

struct rw_flight {
	struct fabric_request request;
	uint32_t call, pieces, done;
	uint64_t data[RW_MOST];
	void *cookie;
	bool last, told, finished; /* told: its completion was given before */
};

struct rw_message {
	uint8_t bytes[WIRE_REGION_BYTES];
	uint32_t call;
	void *reply, *cookie;
	size_t capacity;
	bool waits, cancelled;
};

struct rw_late {
	struct rw_flight flight;
	uint32_t memory;
	uint64_t due_ns;
};

struct rw_world;

struct rw_endpoint {
	struct fabric_endpoint base;
	struct rw_world *world;
	unsigned client;
	struct rw_flight flights[RW_FLIGHTS];
	unsigned flight_count;
	struct rw_message message;
	struct fabric_completion done[4];
	unsigned done_count;
	bool broken;
	/* index of a memory + 1 */
	uint32_t spaces[FABRIC_SPACES + 1];  /* as the client has been told */
	uint32_t handles[FABRIC_SPACES + 1]; /* as the daemon has opened it */
	bool armed[FABRIC_SPACES + 1], told;
};

struct rw_world {
	uint64_t random, now_ns;
	bool verbs; /* else shared memory */
	bool reads_late, early, write_notify, chaos;
	unsigned rare; /* of faults */
	struct rw_memory memories[RW_MEMORIES];
	uint32_t memory_count, current; /* current: RW_NONE: there is none of this name */
	uint64_t last_id, stopped_ns;
	struct rw_endpoint *endpoints[RW_CLIENTS]; /* the connections that stand */
	uint32_t calling[RW_CLIENTS];              /* the call under way; RW_NONE */
	struct rw_call calls[RW_CALLS];
	uint32_t call_count;
	struct rw_event events[RW_EVENTS];
	uint32_t event_count;
	struct rw_late late[RW_LATE];
	uint32_t late_count;
	char failure[300];
};

void rw_reset(struct rw_world *world, uint64_t seed);
uint64_t rw_random(struct rw_world *world, uint64_t below);
void rw_fail(struct rw_world *world, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A connection for a client. */
struct fabric_endpoint *rw_connect(struct rw_world *world, unsigned client);
void rw_break(struct rw_endpoint *ep);
/* One step of somebody who is not a client: a word, an answer, a step of the region's life. */
void rw_step(struct rw_world *world);
/* Nothing is under way any more. */
bool rw_quiet(const struct rw_world *world);

#endif
