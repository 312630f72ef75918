/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packs and unpacks the messages about applications' regions. Any thread; no state. What they mean is
 * daemon/region-rpc.c's and client/region.c's. Next: wire.h.
 */
#include <assert.h>
#include <errno.h>

#include <tarn/region.h>

#include "wire-bytes.h"
#include "wire.h"

static_assert(WIRE_REGION_BYTES <= WIRE_RPC_MAX_BYTES, "fits the buffers of messages");
static_assert(WIRE_REGION_NAME_BYTES == TARN_REGION_NAME_MAX + 1, "one name, one length");

int wire_region_name_check(const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t bytes = strnlen(name, TARN_REGION_NAME_MAX + 1);

	if (bytes == 0 || bytes > TARN_REGION_NAME_MAX)
		return err_set(-EINVAL, "the name of a region has %s%u bytes, allowed are 1 to %u",
			       bytes ? "more than " : "", bytes ? TARN_REGION_NAME_MAX : 0,
			       TARN_REGION_NAME_MAX);
	if (strspn(name, allowed) != bytes)
		return err_set(-EINVAL,
			       "the region's name '%s': allowed are letters, digits and ._-", name);
	return 0;
}

void wire_region_request_encode(const struct wire_region_request *request,
				uint8_t buffer[WIRE_REGION_BYTES])
{
	struct writer w = {buffer};

	put_uint(&w, WIRE_RPC_REGION_CALL, 1);
	put_uint(&w, request->call, 1);
	put_uint(&w, request->flags, 2);
	put_uint(&w, request->tag, 4);
	put_uint(&w, request->handle, 4);
	put_uint(&w, request->index, 4);
	put_uint(&w, request->number, 8);
	put_bytes(&w, request->name, sizeof(request->name));
	assert(w.at == buffer + WIRE_REGION_BYTES);
}

/* A name has its end, and nothing behind it. */
static bool padded(const char name[WIRE_REGION_NAME_BYTES])
{
	size_t bytes = strnlen(name, WIRE_REGION_NAME_BYTES);

	return bytes < WIRE_REGION_NAME_BYTES &&
	       all_zero((const uint8_t *)name + bytes, WIRE_REGION_NAME_BYTES - bytes);
}

static bool named(uint8_t call)
{
	return call == WIRE_REGION_CREATE || call == WIRE_REGION_OPEN || call == WIRE_REGION_STAT ||
	       call == WIRE_REGION_RESIZE || call == WIRE_REGION_DESTROY;
}

int wire_region_request_decode(const void *buffer, size_t bytes,
			       struct wire_region_request *ret_request)
{
	struct wire_region_request request = {.call = 0};
	struct reader r = {buffer};
	int rc = check_length("request about a region", bytes, WIRE_REGION_BYTES);

	if (rc < 0)
		return rc;
	if (get8(&r) != WIRE_RPC_REGION_CALL)
		return err_set(-TARN_EPROTO, "no request about a region");
	request.call = get8(&r);
	request.flags = get16(&r);
	request.tag = get32(&r);
	request.handle = get32(&r);
	request.index = get32(&r);
	request.number = get_uint(&r, 8);
	get_bytes(&r, request.name, sizeof(request.name));
	if (request.call < WIRE_REGION_CREATE || request.call > WIRE_REGION_LAST)
		return err_set(-TARN_EPROTO, "unknown call %u about a region", request.call);
	if (!padded(request.name) ||
	    (named(request.call) && wire_region_name_check(request.name) < 0))
		return err_set(-TARN_EPROTO, "a request about a region without a valid name");
	*ret_request = request;
	return 0;
}

void wire_region_reply_encode(const struct wire_region_reply *reply,
			      uint8_t buffer[WIRE_REGION_BYTES])
{
	struct writer w = {buffer};

	put_uint(&w, WIRE_RPC_REGION_CALL, 1);
	put_uint(&w, reply->call, 1);
	put_uint(&w, reply->state, 1);
	put_zeros(&w, 1);
	put_uint(&w, reply->tag, 4);
	put_uint(&w, (uint32_t)reply->status, 4);
	put_uint(&w, reply->handle, 4);
	put_uint(&w, reply->id, 8);
	if (reply->call == WIRE_REGION_LIST) {
		put_bytes(&w, reply->name, sizeof(reply->name));
	} else {
		put_uint(&w, reply->bytes, 8);
		put_uint(&w, reply->value, 8);
		put_uint(&w, reply->length, 8);
		put_uint(&w, reply->created_ms, 8);
		put_uint(&w, reply->number, 4);
		put_zeros(&w, 4);
	}
	assert(w.at == buffer + WIRE_REGION_BYTES);
}

int wire_region_reply_decode(const void *buffer, size_t bytes, struct wire_region_reply *ret_reply)
{
	struct wire_region_reply reply = {.call = 0};
	struct reader r = {buffer};
	int rc = check_length("reply about a region", bytes, WIRE_REGION_BYTES);

	if (rc < 0)
		return rc;
	if (get8(&r) != WIRE_RPC_REGION_CALL)
		return err_set(-TARN_EPROTO, "no reply about a region");
	reply.call = get8(&r);
	reply.state = get8(&r);
	skip(&r, 1);
	reply.tag = get32(&r);
	reply.status = (int32_t)get32(&r);
	reply.handle = get32(&r);
	reply.id = get_uint(&r, 8);
	if (reply.call == WIRE_REGION_LIST) {
		get_bytes(&r, reply.name, sizeof(reply.name));
	} else {
		reply.bytes = get_uint(&r, 8);
		reply.value = get_uint(&r, 8);
		reply.length = get_uint(&r, 8);
		reply.created_ms = get_uint(&r, 8);
		reply.number = get32(&r);
	}
	if (reply.call < WIRE_REGION_CREATE || reply.call > WIRE_REGION_LAST || reply.status > 0 ||
	    !padded(reply.name))
		return err_set(-TARN_EPROTO,
			       "a malformed reply about a region (call %u, status %d)", reply.call,
			       reply.status);
	*ret_reply = reply;
	return 0;
}
