/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-publish.c - writes the cluster's map where clients read it, and answers how new it is
 *
 * Main thread. What is told is kept in struct pool, out of clients' reach. Next to read: cluster-publish.h,
 * common/cluster-wire.h for the bytes, client/cluster-connect.c for who asks.
 */
#include "cluster-publish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "cluster-wire.h"
#include "err.h"
#include "self.h"

void cluster_publish_begin(struct pool *pool, const char *cluster, uint16_t number)
{
	pool->published = (struct cluster_published){.cluster = cluster_hash(cluster),
						     .number = number,
						     .offset = pool->geometry.map_offset};
}

int cluster_publish(struct pool *pool, const struct cluster_map *map, uint16_t number,
		    uint64_t confirmed_ns)
{
	uint64_t room = pool->geometry.map_bytes / 2, base = pool->geometry.map_offset;
	struct cluster_published *p = &pool->published;
	size_t bytes = 0, words = (size_t)room & ~(size_t)7;
	uint8_t *buffer = calloc(1, words + 8);
	int rc;

	if (!buffer)
		return err_set(-ENOMEM, "no memory for the cluster's map");
	rc = cluster_wire_encode(map, buffer, words, &bytes);
	if (rc == 0) {
		*p = (struct cluster_published){
			.epoch = map->epoch,
			.cluster = cluster_hash(map->cluster),
			.confirmed_ns = confirmed_ns,
			/* not the place of the last one: somebody may be reading that */
			.offset = p->offset == base ? base + room : base,
			.checksum = cluster_wire_checksum(buffer, bytes),
			.bytes = (uint32_t)bytes,
			.number = number,
		};
		self_write(pool, p->offset, buffer, (bytes + 7) & ~(size_t)7);
	}
	free(buffer);
	return rc;
}

void cluster_publish_confirm(struct pool *pool, uint64_t confirmed_ns)
{
	pool->published.confirmed_ns = confirmed_ns;
}

void cluster_publish_withdraw(struct pool *pool)
{
	pool->published.epoch = 0;
}

static uint64_t age_ns(const struct cluster_published *p)
{
	uint64_t now = clock_boottime_ns();

	return p->confirmed_ns < now ? now - p->confirmed_ns : 0;
}

int32_t cluster_publish_answer(const struct pool *pool, const struct wire_rpc *rpc,
			       struct wire_rpc_reply *reply)
{
	const struct cluster_published *p = &pool->published;

	if (!pool->geometry.shards || rpc->class > 1)
		return -TARN_EPROTO;
	if (p->epoch == 0)
		return -TARN_ENOTFOUND;
	if (rpc->class == 0) {
		reply->value = (int64_t)p->epoch;
		reply->number = p->number;
		reply->length = age_ns(p);
	} else {
		reply->value = (int64_t)p->offset;
		reply->number = p->bytes;
		reply->length = p->checksum;
	}
	return 0;
}
