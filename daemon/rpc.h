/* SPDX-License-Identifier: BSD-2-Clause */
/* rpc.h - what clients ask the daemon's CPU for after the handshake (wire.h); the same for every
 * transport */
#ifndef TARN_DAEMON_RPC_H
#define TARN_DAEMON_RPC_H

#include "pool.h"
#include "wire.h"

struct region_open;
struct registration;

/* Per client: a limit on what can't be had without end. */
struct rpc_client {
	uint32_t slot;
	bool read_only;
	uint32_t numbers;    /* client ids that may be taken now */
	uint64_t numbers_ns; /* since when */
	/* What the client has access to, in the order of the pool; NULL for shared memory. */
	const struct wire_region *regions;
	uint32_t region_count;
	/* Applications' regions, region-open.c. By which device it comes; NULL: shared memory. */
	const struct registration *registration;
	struct region_open **opens; /* by handle - 1; NULL: there were none */
	bool told;                  /* a notice was sent, and it has not asked since */
	void (*notice)(struct rpc_client *client); /* sends one; NULL: nobody can be told */
};

/* An answer. */
struct rpc_answer {
	uint8_t bytes[WIRE_RPC_MAX_BYTES];
	size_t length;
	int fd; /* goes along; stays whose it is; -1: none */
};

/* Of one that is not in use. Without regions, registration and notice: who has some sets them after this. */
void rpc_client_init(struct rpc_client *client, uint32_t slot, bool read_only);
/* The client is gone. */
void rpc_client_end(struct rpc_client *client);
/* Answers one message. 0, or -TARN_EPROTO with a text: it is malformed and there is no answer. */
int rpc_handle(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
	       struct rpc_answer *ret_answer);
/* What is sent unasked to a client that waits for a region. */
void rpc_notice(uint8_t ret_bytes[WIRE_RPC_REPLY_BYTES]);

#endif
