/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-daemon.h - inside of the simulated daemon: daemon/'s real code in a fiber
 *
 * One job at a time, as on the daemon's main loop: a step of the keeper, an answer to a message, the
 * end of a client. Within a job every access to the pool may be where the others go on (sim-self.c).
 */
#ifndef TARN_SIM_DAEMON_H
#define TARN_SIM_DAEMON_H

#include "config.h"
#include "fabric-sim.h"
#include "fiber.h"
#include "pool.h"
#include "rpc.h"

enum sim_job { SIM_JOB_NONE, SIM_JOB_KEEPER, SIM_JOB_RPC, SIM_JOB_END, SIM_JOB_START };

/* A piece of the heap of the daemon's code. */
struct sim_chunk {
	struct sim_chunk *next, **previous; /* previous: the pointer that points here */
	size_t bytes;
	_Alignas(16) uint8_t data[];
};

/* A connection that has ended, and of which the daemon will hear. */
struct sim_ending {
	uint32_t slot;
	unsigned client;
	uint64_t ready_ns;
};
#define SIM_ENDINGS SIM_SLOTS

struct sim_daemon {
	struct sim *sim;
	struct fiber *fiber;
	struct pool pool;
	struct pool_client clients[SIM_SLOTS];
	struct rpc_client rpc_clients[SIM_SLOTS];
	struct config_pool config;
	struct log log;
	struct sim_chunk *heap; /* list */
	enum sim_job job;
	unsigned client; /* RPC: whose */
	uint64_t serial; /* RPC: of its connection */
	struct sim_message message;
	struct sim_ending ending; /* END */
	struct sim_ending endings[SIM_ENDINGS];
	unsigned ending_count;
	struct sim_counts counts;
	bool lazy_ends; /* for the pool */
	uint32_t slots; /* of its client table, that it uses */
	bool up; /* false: it has died and was not started again yet */
	bool waited;                  /* START has had its sleep */
	uint64_t start_ns, keeper_ns; /* when it starts again; when the keeper is due */
	/* accesses, weighted, until the others have their turn again; calm: never */
	int64_t allowance;
	uint64_t mean;
	bool far; /* it does many CAS at a time, as in a nic domain */
	bool calm;
};

/* sim-system.c: throws away what the daemon's code has allocated. */
void sim_heap_drop(struct sim_daemon *daemon);

#endif
