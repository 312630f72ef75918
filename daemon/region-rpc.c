/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers what clients ask about regions. Main thread; each answer takes microseconds, what takes longer is
 * begun, and STAT tells how far it is. A message may hold anything: handles, indices and sizes are checked here,
 * names by its decoder. Next: region.c; client/region.c asks.
 */
#include <errno.h>
#include <string.h>

#include "atomics.h"
#include "err.h"
#include "region.h"
#include "rpc.h"

/* A system's code becomes one that means something on the other side. */
static int32_t status_of(int rc)
{
	switch (rc) {
	case -ENOMEM:
	case -EAGAIN:
		return -TARN_EPOOLFULL;
	case -ENOSPC:
		return -TARN_EQUOTA;
	case -EINVAL:
		return -TARN_EPROTO;
	default: /* Tarn's own, or what a device does not allow */
		return rc <= -1000 || rc == 0 ? rc : -TARN_EPOOLFULL;
	}
}

static void describe(const struct region *region, struct wire_region_reply *reply)
{
	reply->id = region->id;
	reply->state = (uint8_t)region->state;
	reply->bytes = region->bytes;
	reply->created_ms = region->created_ms;
}

/* ---- making and unmaking ---- */

static int32_t create(struct regions *regions, const struct wire_region_request *request)
{
	return status_of(region_create(regions, request->name, request->number));
}

static int32_t resize(struct regions *regions, const struct wire_region_request *request)
{
	struct region *region = regions_find(regions, request->name);

	return region ? status_of(region_resize(region, request->number)) : -TARN_ENOREGION;
}

static int32_t destroy(struct regions *regions, const struct wire_region_request *request)
{
	struct region *region = regions_find(regions, request->name);

	return region ? status_of(region_destroy(region)) : -TARN_ENOREGION;
}

/* ---- asking ---- */

static int32_t stat(struct regions *regions, const struct wire_region_request *request,
		    struct wire_region_reply *reply)
{
	const struct region *region = regions_find(regions, request->name);

	if (!region)
		return -TARN_ENOREGION;
	describe(region, reply);
	reply->number = region->open_count;
	reply->value = reply->length = region->bytes;
	if (region->job && region->state != TARN_REGION_READY)
		region_job_progress(region->job, &reply->value, &reply->length);
	return 0;
}

static int32_t list(const struct regions *regions, const struct wire_region_request *request,
		    struct wire_region_reply *reply)
{
	const struct region *region;

	TAILQ_FOREACH (region, &regions->list, link) {
		if (region->id <= request->number)
			continue;
		reply->id = region->id;
		reply->state = (uint8_t)region->state;
		memcpy(reply->name, region->name, sizeof(reply->name));
		return 0;
	}
	return -TARN_ENOREGION;
}

/* ---- opening ---- */

static int32_t open_it(struct regions *regions, struct rpc_client *client,
		       const struct wire_region_request *request, struct wire_region_reply *reply,
		       int *ret_fd)
{
	bool read_only = client->read_only || request->flags & WIRE_REGION_OPEN_READONLY;
	struct region *region = regions_find(regions, request->name);
	const struct region_mapping *mapping = NULL;
	int rc;

	if (!region || region->state == TARN_REGION_DESTROYING)
		return -TARN_ENOREGION;
	if (region->state != TARN_REGION_READY)
		return region->state == TARN_REGION_FAILED ? -TARN_EPOOLFULL : -TARN_EBUSY;
	if (client->registration) {
		mapping = region_mapping_find(region, client->registration);
		if (!mapping)
			return -TARN_EBUSY;
	}
	rc = region_open(region, client, request->handle, read_only);
	if (rc < 0)
		return status_of(rc);
	describe(region, reply);
	reply->handle = request->handle;
	reply->number = mapping ? mapping->memory.count : 0;
	if (!mapping)
		*ret_fd = read_only ? region->memory.fd_read_only : region->memory.fd;
	return 0;
}

/* The region that a client has open under this handle; NULL, and why not. */
static struct region_open *opened(const struct rpc_client *client, uint32_t handle,
				  int32_t *ret_status)
{
	struct region_open *open = region_open_find(client, handle);

	*ret_status = !open ? -TARN_EPROTO : !open->region ? -TARN_ENOREGION : 0;
	return *ret_status == 0 ? open : NULL;
}

static int32_t memory(const struct rpc_client *client, const struct wire_region_request *request,
		      struct wire_region_reply *reply)
{
	const struct region_mapping *mapping;
	const struct wire_region *piece;
	struct region_open *open;
	int32_t status;

	open = opened(client, request->handle, &status);
	if (!open)
		return status;
	mapping = client->registration ? region_mapping_find(open->region, client->registration)
				       : NULL;
	if (!mapping || request->index >= mapping->memory.count)
		return -TARN_EPROTO;
	piece = open->read_only ? &mapping->memory.read_regions[request->index]
				: &mapping->memory.write_regions[request->index];
	reply->value = piece->address;
	reply->length = piece->length;
	reply->number = piece->rkey;
	return 0;
}

/* ---- notifications ---- */

static int32_t notify(const struct rpc_client *client, const struct wire_region_request *request,
		      struct wire_region_reply *reply)
{
	struct region_open *open;
	int32_t status;

	open = opened(client, request->handle, &status);
	if (!open)
		return status;
	if (open->read_only)
		return -TARN_EREADONLY;
	region_notify(open->region);
	reply->value = open->region->sequence;
	return 0;
}

static int32_t wait_for(struct rpc_client *client, const struct wire_region_request *request,
			struct wire_region_reply *reply)
{
	struct region_open *open;
	int32_t status;

	open = opened(client, request->handle, &status);
	if (!open)
		return status;
	client->told = false;
	reply->value = open->region->sequence;
	open->armed = reply->value == request->number;
	return 0;
}

/* ---- all of them ---- */

/* Who may only read changes nothing: neither regions nor the sleep of others. */
static bool may_read_only(uint8_t call)
{
	return call == WIRE_REGION_OPEN || call == WIRE_REGION_MEMORY ||
	       call == WIRE_REGION_CLOSE || call == WIRE_REGION_STAT || call == WIRE_REGION_LIST ||
	       call == WIRE_REGION_WAIT;
}

static int32_t answer(struct pool *pool, struct rpc_client *client,
		      const struct wire_region_request *request, struct wire_region_reply *reply,
		      int *ret_fd)
{
	struct regions *regions = pool->regions;

	if (client->read_only && !may_read_only(request->call))
		return -TARN_EREADONLY;
	switch ((enum wire_region_call)request->call) { /* the decoder has checked */
	case WIRE_REGION_CREATE:
		return create(regions, request);
	case WIRE_REGION_OPEN:
		return open_it(regions, client, request, reply, ret_fd);
	case WIRE_REGION_MEMORY:
		return memory(client, request, reply);
	case WIRE_REGION_CLOSE:
		region_close(client, request->handle);
		return 0;
	case WIRE_REGION_STAT:
		return stat(regions, request, reply);
	case WIRE_REGION_LIST:
		return list(regions, request, reply);
	case WIRE_REGION_RESIZE:
		return resize(regions, request);
	case WIRE_REGION_DESTROY:
		return destroy(regions, request);
	case WIRE_REGION_NOTIFY:
		return notify(client, request, reply);
	case WIRE_REGION_WAIT:
		return wait_for(client, request, reply);
	}
	return -TARN_EPROTO;
}

int region_rpc(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
	       uint8_t ret_reply[WIRE_REGION_BYTES], int *ret_fd)
{
	struct wire_region_request request;
	struct wire_region_reply reply = {.call = 0};
	int rc = wire_region_request_decode(message, bytes, &request);

	*ret_fd = -1;
	if (rc < 0)
		return rc;
	if (!pool->regions) /* a pool of a test */
		return err_set(-TARN_EPROTO, "there are no regions here");
	regions_poll(pool->regions);
	reply.call = request.call;
	reply.tag = request.tag;
	reply.status = answer(pool, client, &request, &reply, ret_fd);
	wire_region_reply_encode(&reply, ret_reply);
	return 0;
}

void region_rpc_refuse(struct rpc_client *client, uint8_t reply[WIRE_REGION_BYTES])
{
	struct wire_region_reply opened, refused;

	if (wire_region_reply_decode(reply, WIRE_REGION_BYTES, &opened) < 0)
		return;
	region_close(client, opened.handle);
	refused = (struct wire_region_reply){
		.call = opened.call, .tag = opened.tag, .status = -TARN_EBUSY};
	wire_region_reply_encode(&refused, reply);
}

int region_notified(struct rpc_client *client, uint32_t immediate,
		    uint8_t ret_reply[WIRE_REGION_BYTES])
{
	const struct wire_region_request request = {.call = WIRE_REGION_NOTIFY,
						    .handle = immediate >> 24};
	struct wire_region_reply reply = {.call = WIRE_REGION_NOTIFY,
					  .tag = immediate & WIRE_NOTIFY_TAG_MASK};

	if (!region_open_find(client, request.handle))
		return err_set(-TARN_EPROTO,
			       "it has written with immediate data 0x%08x, which names no region that it has open",
			       immediate);
	reply.status = notify(client, &request, &reply);
	wire_region_reply_encode(&reply, ret_reply);
	return 0;
}

int32_t region_atomic(const struct rpc_client *client, const struct wire_rpc *rpc,
		      int64_t *ret_before)
{
	struct region_open *open;
	uint64_t *word;
	int32_t status;

	open = opened(client, rpc->class, &status);
	if (!open)
		return status;
	if (open->read_only)
		return -TARN_EREADONLY;
	if (open->region->regions->pool->geometry.atomics != LAYOUT_ATOMICS_CPU ||
	    rpc->slot_offset % 8 || rpc->slot_offset > open->region->bytes - 8)
		return -TARN_EPROTO;
	word = (uint64_t *)(void *)(open->region->memory.base + rpc->slot_offset);
	*ret_before = (int64_t)(rpc->type == WIRE_RPC_CAS
					? word_cas(word, rpc->slot_word, (uint64_t)rpc->delta)
					: word_faa(word, (uint64_t)rpc->delta));
	return 0;
}
