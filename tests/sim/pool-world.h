/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-world.h - handover-world.h's two members with pools: the real code of clients (client/kv*.c) and of the daemon (keeper.c
 * and its parts, shards.c, shard-copy.c, recover.c) around daemon/handover*.c
 *
 * Each pool is a struct sim (fabric-sim.h), with endpoints for the clients and, the last one, for the other member's mover. Store pools
 * alone, and no leases: who is taken for dead, and clients' bounds, are handover-member.c's and handover-client.c's. Next:
 * pool-member.c, pool-client.c, test-handover-pool.c.
 */
#ifndef TARN_SIM_POOL_WORLD_H
#define TARN_SIM_POOL_WORLD_H

#include "fabric-sim.h"
#include "handover-world.h"
#include "session.h"

#define PW_MEMBERS   2u
#define PW_KEY_BYTES 8u
#define PW_MOVER     HW_CLIENTS /* its endpoint */

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
	uint8_t value[8], buffer[64];
};

struct pw_world {
	struct hw_world hw;
	struct pw_pool pools[PW_MEMBERS];
	struct pw_client clients[HW_CLIENTS];
	char keys[HW_KEYS][PW_KEY_BYTES + 1];
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

/* pool-client.c */
bool pw_client_open(struct pw_client *c);
void pw_client_free(struct pw_client *c);
/* The member's daemon has died, or the client's connection to it has broken. */
void pw_client_lose(struct pw_client *c, unsigned member);
uint64_t pw_client_next(const struct pw_client *c);

#endif
