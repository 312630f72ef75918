/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-world.h - two or three members of a cluster, their clients, and the map's keeper: shards go from one to the other
 *
 * Of the real code there is daemon/handover*.c; what it lets others do (walks over slots, the mover, clients, the
 * keeper of the map) is here, by docs/protocol.md section 11, one access to one shared word a step. A key has one
 * slot at each member. All on one thread, all from a seed. What may happen:
 *  - anybody stops between any two accesses, for as long as he likes; a mover goes on after its attempt was given up, until it
 *    is cut
 *  - a daemon ends anywhere and comes back, with its memory, or (who owns nothing) without; clients go on in the memory meanwhile
 *  - a member can not reach the keeper, or another one; then it loses its lease, and is fenced when it comes to it
 *  - a request to the keeper comes late or never, its answer gets lost; others change the map at any time; moves are called off
 *  - in a cache pool any member is taken for dead at any time, be it alive
 *  - clients have maps of any age, and clocks that are wrong by up to a twentieth
 * Next: handover-world.c, handover-member.c, handover-client.c, test-handover.c.
 */
#ifndef TARN_SIM_HANDOVER_WORLD_H
#define TARN_SIM_HANDOVER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster-map.h"
#include "handover.h"
#include "linear.h"
#include "mutation.h"

#define HW_MEMBERS  3u
#define HW_CLIENTS  3u
#ifndef HW_SHARDS
#define HW_SHARDS 2u
#endif
#define HW_PLAY     2u /* so many of them have keys, and move */
#define HW_KEYS     4u /* key % HW_PLAY is its shard */
#define HW_CALLS    16u /* of a client */
#define HW_RECORDS  200u
#define HW_MAPS     512u
#define HW_REQUESTS 16u
#define HW_ASKS     4u
#define HW_MS       UINT64_C(1000000)
#define HW_BOUND_NS (5000 * HW_MS)
#define HW_LEASE_NS (10000 * HW_MS)
#define HW_LIMIT_NS (20000 * HW_MS) /* of a call */

/* Slot words. A value is the number of the put that has made it. */
enum hw_state { HW_EMPTY, HW_PENDING, HW_COMMITTED, HW_FROZEN };
static inline uint32_t hw_slot(enum hw_state state, uint32_t value)
{
	return (uint32_t)state | value << 2;
}
static inline enum hw_state hw_slot_state(uint32_t word)
{
	return (enum hw_state)(word & 3);
}
/* 0: there is none. */
static inline uint32_t hw_slot_value(uint32_t word)
{
	return hw_slot_state(word) >= HW_COMMITTED ? word >> 2 : 0;
}

struct hw_map {
	struct cluster_map map;
	struct cluster_member members[HW_MEMBERS];
	struct cluster_move moves[HW_SHARDS];
	uint16_t owners[HW_SHARDS];
	uint64_t since[HW_SHARDS], taken[HW_SHARDS];
};

struct hw_mover {
	bool runs, bring, dropped, connected;
	struct handover_ask attempt;
	uint32_t at;              /* of keys */
	bool has_read;            /* list[at] is to be put */
	uint32_t list[HW_KEYS];   /* what stands at the target */
	uint32_t next;            /* what was read */
	uint64_t wake_ns;
};

struct hw_member {
	struct hw_world *world;
	unsigned place;
	void *pool;         /* pool-member.c's */
	struct handover *h; /* NULL: it is down */
	uint64_t boot_id;
	uint32_t slots[HW_KEYS];
	uint64_t words[HW_SHARDS];
	/* the daemon */
	uint64_t start_ns, wake_ns, due_ns;
	uint64_t dies_ns; /* 0: not by itself */
	enum handover_job job;
	uint32_t job_shards[HW_SHARDS], job_count, job_at; /* job_at: of keys */
	bool job_runs;
	struct handover_ask asks[HW_ASKS];
	uint32_t ask_count;
	uint64_t cut[HW_MEMBERS + 1];
	struct hw_mover mover;
	/* what it knows of the map */
	bool registered, fenced;
	unsigned reading; /* 0: no read under way, 1: sent, 2: answered */
	uint64_t sent_ns, confirmed_ns; /* of its map */
	uint64_t lease_ns;              /* renewed, with each question */
	uint32_t read_map, map; /* index; 0: none */
	uint64_t apart_ns;      /* it can not reach the keeper until then */
	uint64_t split_ns;      /* nor the others */
};

/* A call. */
struct hw_record {
	struct linear_op op;
	uint32_t key;
	bool dropped; /* it says nothing */
	/* of a put, for test-handover-pool */
	uint32_t bytes, ttl_epochs;
	uint64_t epochs; /* struct pw_world, epochs_all, as it returned */
};

enum hw_phase {
	HW_IDLE,
	HW_BEGIN,
	HW_READ,
	HW_WORD,    /* of a miss or a frozen slot */
	HW_EARLY,   /* INSEARLY */
	HW_PEND,
	HW_BEHIND,  /* the word behind the pending slot */
	HW_WITHDRAW,
	HW_COMMIT,
	HW_KILL,
	HW_CHANGE,
	HW_ANSWER,
	HW_WALK, /* test-handover-pool */
};

struct hw_client {
	struct hw_world *world;
	unsigned number;
	uint32_t calls; /* left */
	uint64_t wake_ns;
	/* its map, and its housekeeping's question */
	uint32_t map;
	uint64_t fresh_ns; /* until then */
	unsigned asking, asked;
	uint64_t sent_ns, age_ns, house_ns;
	uint32_t answered_map;
	int32_t drift; /* in 1024 */
	/* the call */
	enum hw_phase phase;
	uint32_t record; /* index */
	uint32_t call_map, target, word;
	uint64_t since, limit_ns;
	bool pends;     /* its pending slot may stand */
	bool effective; /* the write was done where the shard was */
	enum linear_outcome outcome;
	uint32_t value; /* of a get */
};

struct hw_request {
	struct handover_write write;
	unsigned from;
	uint64_t boot_id;
	bool sent, told;
	uint64_t ready_ns;
};

struct hw_world {
	uint64_t seed, random, now_ns, steps;
	bool cache, verbose, calm; /* calm: no faults any more */
	bool forgets; /* a store pool, whose members are taken for dead, too: their keys are given up (`forget`) */
	bool pools;   /* test-handover-pool: what a key holds is known in its pool alone */
	uint32_t members, clients_count;
	uint32_t faults, stalls; /* per 1024 steps, of all and of a client's */
	uint64_t tick_ns, bound_ns, lease_ns;
	struct hw_member member[HW_MEMBERS];
	struct hw_client client[HW_CLIENTS];
	struct hw_map maps[HW_MAPS];
	uint32_t newest;
	uint64_t record_boot[HW_MEMBERS]; /* of the members' records; 0: none */
	struct hw_request requests[HW_REQUESTS];
	struct hw_record records[HW_RECORDS];
	uint32_t record_count;
	uint64_t clock; /* of calls and returns */
	uint32_t current[HW_KEYS];
	unsigned last_owner[HW_SHARDS];
	char failure[300];
	/* of all schedules */
	uint64_t switches, given_up, takes, starts, fences, calls, acknowledged;
};

uint64_t hw_below(struct hw_world *w, uint64_t n);
bool hw_chance(struct hw_world *w, uint32_t per_1024);
/* A while: mostly short, sometimes very long. */
uint64_t hw_while(struct hw_world *w);
void hw_fail(struct hw_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hw_trace(struct hw_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline const struct hw_map *hw_newest(const struct hw_world *w)
{
	return &w->maps[w->newest];
}
/* A copy of the newest map, to be changed and published. NULL: the schedule has had enough of them. */
struct hw_map *hw_map_next(struct hw_world *w);
void hw_map_publish(struct hw_world *w);
/* struct handover_ops, write(). */
int hw_send(struct hw_member *m, const struct handover_write *write);
/* A slot changes; true: where the key is. */
bool hw_change(struct hw_world *w, unsigned member, uint32_t key, uint32_t word);
/* The value of a key at a member, 0: none. By handover-member.c, or pool-member.c. */
uint32_t hw_held(const struct hw_world *w, unsigned member, uint32_t key);
/* At a switch: does the new owner hold of the key what it is, *ret_truth? */
bool hw_arrived(const struct hw_world *w, unsigned owner, uint32_t key, uint32_t *ret_truth);
/* Every key of a shard is gone, at this instant. */
void hw_vanish(struct hw_world *w, uint32_t shard);
/* A request reaches the keeper, if any does; what others do to the map; what befalls the members. */
void hw_keeper_step(struct hw_world *w);
void hw_planner_step(struct hw_world *w);
void hw_fault_step(struct hw_world *w);
bool hw_keeper_idle(const struct hw_world *w);
/* The target of an attempt is asked, by the shards' numbers or in few words. */
enum handover_answer hw_asked(struct hw_world *w, struct hw_member *target, const struct handover_ask *ask);
/* A member asks etcd for the map, in three steps: its lease, and what it has read, count from when it has sent the question. */
void hw_member_read_map(struct hw_member *m);
/* A client asks a member for its map, likewise. */
void hw_client_ask(struct hw_client *c);
/* Who was taken for dead lives, and has been noticed. */
void hw_revive(struct hw_world *w);
void hw_reset(struct hw_world *w, uint64_t seed);
void hw_free(struct hw_world *w);

/* handover-member.c */
void hw_member_step(struct hw_member *m);
void hw_mover_step(struct hw_member *m);
void hw_member_end(struct hw_member *m, bool memory, uint64_t pause_ns);
void hw_member_told(struct hw_member *m, const struct hw_request *r, enum handover_outcome outcome);
bool hw_member_idle(const struct hw_member *m);

/* handover-client.c */
void hw_client_begin(struct hw_client *c);
void hw_client_step(struct hw_client *c);
void hw_client_house(struct hw_client *c);
/* It dies, or loses its connections: whatever it was doing may have been done. */
void hw_client_break(struct hw_client *c);

#endif
