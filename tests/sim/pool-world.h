/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-world.h - handover-world.h's two members with pools: the real code of clients (client/kv*.c) and of the daemon (keeper.c
 * and its parts, shards.c, shard-copy.c, recover.c) around daemon/handover*.c
 *
 * Each pool is a struct sim (fabric-sim.h), with endpoints for the clients and, the last one, for the other member's mover. In some schedules
 * (struct pw_mix, takes) members have leases and are fenced, or taken for dead though they live: then in a cache pool, or in a store pool whose
 * operator gives their keys up (`forget`), the other one takes their shards, and clients' maps are bound in time. Next: pool-member.c,
 * pool-client.c, test-handover-pool.c.
 */
#ifndef TARN_SIM_POOL_WORLD_H
#define TARN_SIM_POOL_WORLD_H

#include "fabric-sim.h"
#include "handover-world.h"
#include "session.h"

#define PW_MEMBERS   2u
#define PW_KEY_BYTES 8u
#define PW_MOVER     HW_CLIENTS /* its endpoint */
#define PW_VALUE_BYTES 300000u  /* the largest value: two blocks and a head */
#define PW_BOUND_NS    (1000 * HW_MS) /* of a map, where shards are taken; a lease */
#define PW_LEASE_NS    (2000 * HW_MS)

struct pw_mover {
	struct tarn_session *session;
	struct shard_copy *copy;
	uint64_t due_ns; /* when it goes on if nothing comes */
};

struct pw_pool {
	struct sim *sim;
	struct pw_mover mover; /* of this member, with a session at the other one */
	bool job_done;
};

struct pw_walk; /* pool-walk.c */

struct pw_connector {
	struct session_connector base;
	struct pw_client *client;
	unsigned member;
};

struct pw_client {
	struct hw_client *client;
	struct tarn_session *sessions[PW_MEMBERS];
	struct pw_connector connectors[PW_MEMBERS];
	uint64_t since[PW_MEMBERS][HW_SHARDS];
	struct task *task;
	bool keeps; /* the task is housekeeping, of session `kept` */
	unsigned kept;
	uint64_t keep_ns;
	/* the stamp of what it has seen last of a key, and whose put that was; 0: nothing */
	uint64_t known_stamp[HW_KEYS];
	uint32_t known[HW_KEYS];
	bool exists_only; /* the get under way */
	int64_t delta;    /* of the add under way */
	struct pw_walk *walk;
	uint8_t value[PW_VALUE_BYTES], buffer[PW_VALUE_BYTES];
};

/* What a schedule's calls are, besides gets, puts and deletes of small values. */
struct pw_mix {
	bool counters; /* keys 0 and 1 are mostly counted with */
	bool counting; /* nothing else is done */
	bool takes; /* leases; members are taken for dead */
	bool walks; /* over all keys */
	bool conditions, expiry, sizes;
	bool large; /* values in extents */
};

struct pw_world {
	struct hw_world hw;
	struct pw_pool pools[PW_MEMBERS];
	struct pw_client clients[HW_CLIENTS];
	char keys[HW_KEYS][PW_KEY_BYTES + 1];
	struct pw_mix mix;
	/*
	 * Epochs that have come at every member, and at any of them: each member that had a key has seen at least, and
	 * at most, so many while it had it. Expiry is checked by these.
	 */
	uint64_t epochs_all, epochs_any, epoch_seen[PW_MEMBERS], epoch_base[PW_MEMBERS];
	uint64_t switches; /* before the schedule */
	/* of all schedules */
	uint64_t adds, conditional, expiring, larges, crowded;
	uint64_t walks, walked, again; /* begun; ended; keys that came again */
};

static inline struct pw_world *pw_world(struct hw_world *w)
{
	return (struct pw_world *)w; /* its first member */
}
static inline struct sim *pw_sim(const struct hw_member *m)
{
	return ((struct pw_pool *)m->pool)->sim;
}

/* pool-member.c */
/* The slot of a key at a member, 0: it has none that names it. */
uint64_t pw_slot(const struct hw_world *w, unsigned member, uint32_t key, uint64_t *ret_word);
/* The key's last get in the end, without the call: false, it is not there. A counter's number, or whose put it was. */
bool pw_last(const struct hw_world *w, unsigned member, uint32_t key, bool *ret_counter, uint64_t *ret_value);
/* Epochs come and are counted. */
void pw_epochs(struct pw_world *w);
/* Its daemon starts again, or does one step. */
void pw_member_begin(struct hw_member *m);
/* When its mover can go on; SIM_NEVER. */
uint64_t pw_mover_next(const struct hw_member *m);
/* Its mover has ended: connection, list and all. */
void pw_mover_close(struct hw_member *m);
/* The other member's mover has lost its connection to this one. */
void pw_mover_break(struct hw_member *target);
/* A task goes on: true, it has ended. */
bool pw_task_step(struct tarn_session *session, struct task *task);
/* When it can; SIM_NEVER. */
uint64_t pw_task_next(const struct sim_endpoint *ep, const struct task *task);

/* pool-call.c */
enum pw_answer {
	PW_ANSWERED, /* the record has the outcome */
	PW_AGAIN,
	PW_MAYBE,
	PW_NOTHING, /* no effect */
};
/* The client's next call is chosen; its task with this session; the end of that; the end of the call. */
void pw_call_begin(struct hw_client *client);
struct task *pw_call_task(struct hw_client *client, struct tarn_session *session);
enum pw_answer pw_call_judge(struct hw_client *client, const struct tarn_session *session,
			     int result);
void pw_call_returns(struct pw_client *c);
/* When the value of a put is gone at the latest: each hand-over rounds up, and begins with a part of an epoch. */
void pw_call_expires(const struct pw_world *pw, struct hw_record *put);

/* pool-walk.c: with a client's sessions and map */
enum pw_walk_next {
	PW_WALK_TASK,  /* it is to be run, and its result judged */
	PW_WALK_GO_ON, /* now, with pw_walk_next() */
	PW_WALK_PAUSE, /* a key was shown */
	PW_WALK_WAIT,  /* for a newer map, or a connection */
	PW_WALK_OVER,
};
bool pw_walk_create(struct pw_client *c);
void pw_walk_free(struct pw_client *c);
void pw_walk_begin(struct pw_client *c);
/* fresh: is the client's map? */
enum pw_walk_next pw_walk_next(struct pw_client *c, bool fresh, struct task **ret_task, unsigned *ret_member);
enum pw_walk_next pw_walk_judge(struct pw_client *c, int result, bool fresh);

/* pool-client.c */
bool pw_client_open(struct pw_client *c);
void pw_client_free(struct pw_client *c);
/* The member's daemon has died, or the client's connection to it has broken. */
void pw_client_lose(struct pw_client *c, unsigned member);
uint64_t pw_client_next(const struct pw_client *c);

#endif
