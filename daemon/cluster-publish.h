/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-publish.h - the cluster's map as clients get it: in the pool's memory, by a READ, and how new it is, by an answer
 *
 * Main thread. The pool has room for two maps (layout.h: map_offset), which are written in turn, so that one that a client is
 * just reading stays whole until the change after the next; a client that is slower than that sees a wrong checksum, and asks
 * again. The checksum is in the answer, so clients that may write to the pool can not make others believe in another map.
 */
#ifndef TARN_DAEMON_CLUSTER_PUBLISH_H
#define TARN_DAEMON_CLUSTER_PUBLISH_H

#include <stdint.h>

#include "cluster-map.h"
#include "pool.h"
#include "wire.h"

#define CLUSTER_PUBLISH_ALWAYS UINT64_MAX /* confirmed at any time: nobody else can change the map (static) */

/* From the pool's start: which cluster it belongs to, and which member this is. Handshakes say so, there is no map yet. */
void cluster_publish_begin(struct pool *pool, const char *cluster, uint16_t number);
/*
 * A newer map. confirmed_ns: CLOCK_BOOTTIME of before the question was sent that was answered with it, or
 * CLUSTER_PUBLISH_ALWAYS. 0, or -E2BIG with a text that names map and room: then that of before stays. -ENOMEM.
 */
int cluster_publish(struct pool *pool, const struct cluster_map *map, uint16_t number,
		    uint64_t confirmed_ns);
/* That of before is still the newest one. */
void cluster_publish_confirm(struct pool *pool, uint64_t confirmed_ns);
/* Fenced: clients are told of no map until the next cluster_publish(). */
void cluster_publish_withdraw(struct pool *pool);
/* The answer to WIRE_RPC_MAP; a status as in wire.h. */
int32_t cluster_publish_answer(const struct pool *pool, const struct wire_rpc *rpc,
			       struct wire_rpc_reply *reply);

#endif
