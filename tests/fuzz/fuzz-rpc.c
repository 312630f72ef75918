/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes what clients ask the daemon's CPU for (daemon/rpc.c, region-rpc.c): messages of 40 bytes, or 64 about
 * regions, one behind the other, on one small pool whose memory they change as they go; the first byte says as what the
 * client came in, and whether the pool is that of a member that a shard is to come to (daemon/member-mover.c answers READY then: of the
 * move that there is, and nothing else). The superblock must stay what it is, and every answer must be one that the client's decoder takes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "auth.h"
#include "config.h"
#include "keeper.h"
#include "log.h"
#include "pool.h"
#include "region.h"
#include "rpc.h"
#include "self.h"
#include "../unit/member-target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "[listen l]\npath = /l\n[pool main]\nsize = 4M\nhugepages = off\n"
			   "max_clients = 4\nregion_memory = 2M\n";
static const struct wire_region regions[] = {{.address = 4096, .length = 2 << 20, .rkey = 1},
					     {.address = 1 << 30, .length = 2 << 20, .rkey = 2}};

static struct pool *pool_open(struct log *log)
{
	struct config_errors errors = {0};
	struct pool_place place = {.numa_node = -1};
	static struct config *config; /* the pool refers to it */
	struct pool *pool;

	log_init(log, -1, LOG_LEVEL_ERROR);
	if (auth_init() < 0 || config_parse("fuzz", text, strlen(text), &errors, &config) < 0 ||
	    errors.count || pool_create(&config->pools[0], &place, log, &pool) < 0)
		abort();
	return pool;
}

static void check_ready(const struct pool *pool, const uint8_t *data, const struct wire_rpc_reply *reply)
{
	bool ready = reply->number == WIRE_READY_NOW, another = reply->number == WIRE_READY_ANOTHER;
	struct wire_rpc rpc;

	if (reply->number > WIRE_READY_ANOTHER || wire_rpc_decode(data, WIRE_RPC_BYTES, &rpc) < 0)
		abort();
	if (reply->value != (ready ? (int64_t)TARGET_BOOT_ID : another ? 2 : 0))
		abort();
	if (reply->number && (reply->status || !pool->ready))
		abort();
	if (ready && (rpc.class != TARGET_COMING || rpc.slot_offset != TARGET_SINCE || (rpc.delta & UINT32_MAX) != (2 << 16 | 1)))
		abort();
}

static void handle(struct pool *pool, struct rpc_client *client, const uint8_t *data, size_t size)
{
	struct wire_region_reply region;
	struct wire_rpc_reply reply;
	struct rpc_answer answer;

	if (rpc_handle(pool, client, data, size, &answer) < 0)
		return;
	if (data[0] == WIRE_RPC_REGION_CALL) {
		if (wire_region_reply_decode(answer.bytes, answer.length, &region) < 0 ||
		    region.call != data[1])
			abort();
		return;
	}
	if (wire_rpc_reply_decode(answer.bytes, answer.length, &reply) < 0 || reply.type != data[0])
		abort();
	if (reply.type == WIRE_RPC_PAGE && reply.status == 0 &&
	    reply.number >= pool->geometry.npages)
		abort();
	if (reply.type == WIRE_RPC_READY)
		check_ready(pool, data, &reply);
}

/* None is left to the next input. */
static void regions_end(struct regions *regions)
{
	struct region *region;

	TAILQ_FOREACH (region, &regions->list, link)
		if (region_destroy(region) < 0)
			abort();
	while (regions->count) {
		regions_poll(regions);
		usleep(10);
	}
	if (regions->bytes)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pool *pool; /* the process's, as libFuzzer is: to make one takes too long */
	static struct log log;
	static struct layout_superblock first;
	static struct member_target target;
	static void (*ready)(void *arg, uint32_t slot, const struct wire_rpc *rpc, struct wire_rpc_reply *reply);
	struct layout_superblock now;
	struct rpc_client client;

	if (!pool) {
		pool = pool_open(&log);
		pool->geometry.shards = TARGET_SHARDS;
		target_open(&target, pool, &log, event_base_new());
		target_run(&target);
		ready = pool->ready;
		self_read(pool, 0, &first, sizeof(first));
	}
	if (size == 0)
		return 0;
	rpc_client_init(&client, 0, data[0] & 1);
	if (data[0] & 2) {
		client.regions = regions;
		client.region_count = 2;
	}
	pool->geometry.atomics = data[0] & 4 ? LAYOUT_ATOMICS_NIC : LAYOUT_ATOMICS_CPU;
	pool->geometry.shards = data[0] & 24 ? TARGET_SHARDS : 0;
	pool->ready = data[0] & 8 ? ready : NULL;
	pool->last_client_id = 0; /* they are used up otherwise */
	for (data++, size--; size > 0;) {
		size_t most = data[0] == WIRE_RPC_REGION_CALL ? WIRE_REGION_BYTES : WIRE_RPC_BYTES,
		       part = size < most ? size : most;

		handle(pool, &client, data, part);
		data += part;
		size -= part;
	}
	rpc_client_end(&client);
	regions_end(pool->regions);
	self_read(pool, 0, &now, sizeof(now));
	now.page_cursor = first.page_cursor;
	now.last_client_id = first.last_client_id; /* reserved ahead */
	if (memcmp(&first, &now, sizeof(now)) != 0)
		abort();
	return 0;
}
