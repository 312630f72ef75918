/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-wire.h - the map of a cluster as bytes: what a member publishes in its pool, and clients READ
 *
 * Little-endian, bounded, with a checksum at the end. The decoder gets bytes from a stranger: it checks all that
 * cluster-map.h promises of a map, so what it returns is as good as what cluster_map_parse() returns. No state, any thread.
 *
 *	 0  magic 4, format 1, flags 1 (1: cache pool, 2: owners are those of cluster_place()), owners per shard 2 (1)
 *	 8  all bytes, checksum included 4, shards 4, members 4, moves 4
 *	24  seed 8, epoch 8
 *	40  cluster 64, pool 64: names, zero padded
 *	168 each member: number 2, state 1, addresses 1, weight 4, name 64;
 *	    each of its addresses: fabric 1 (0 verbs, 1 shm), length 1, text
 *	    each shard: place of its owner in the members 2 (0xffff: nobody)
 *	    each shard: since 8; each shard: taken 8
 *	    each move, by shard: shard 4, place of the member that gets it 2
 *	    XXH3 (64 bits) of all before it 8
 */
#ifndef TARN_CLUSTER_WIRE_H
#define TARN_CLUSTER_WIRE_H

#include "cluster-map.h"

#define CLUSTER_WIRE_MAX_BYTES (1024u * 1024u)
#define CLUSTER_WIRE_FORMAT    1u

/* How many bytes it takes; may be more than CLUSTER_WIRE_MAX_BYTES. */
size_t cluster_wire_bytes(const struct cluster_map *map);
/* Writes them. 0; -E2BIG with a text if they are more than `capacity` or CLUSTER_WIRE_MAX_BYTES. */
int cluster_wire_encode(const struct cluster_map *map, void *buffer, size_t capacity,
			size_t *ret_bytes);
/* 0; -TARN_EPROTO with a text; -ENOMEM. The caller frees *ret_map with cluster_map_free(). */
int cluster_wire_decode(const void *buffer, size_t bytes, struct cluster_map **ret_map);
/* The checksum at the end of what cluster_wire_encode() has written. */
uint64_t cluster_wire_checksum(const void *buffer, size_t bytes);

/* What tells clusters apart where there is no place for a name; never 0, which is "no cluster". */
uint64_t cluster_hash(const char *cluster);

#endif
