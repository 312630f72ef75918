/* SPDX-License-Identifier: BSD-2-Clause */
/* rpc.h - what clients ask the daemon's CPU for after the handshake (wire.h); the same for every
 * transport */
#ifndef TARN_DAEMON_RPC_H
#define TARN_DAEMON_RPC_H

#include "pool.h"
#include "wire.h"

/* Per client: a limit on what can't be had without end. */
struct rpc_client {
	uint32_t slot;
	bool read_only;
	uint32_t numbers;    /* client ids that may be taken now */
	uint64_t numbers_ns; /* since when */
};

void rpc_client_init(struct rpc_client *client, uint32_t slot, bool read_only);
/* Answers one message. 0, or -TARN_EPROTO with a text: it is malformed and there is no answer. */
int rpc_handle(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
	       uint8_t ret_reply[WIRE_RPC_REPLY_BYTES]);

#endif
