/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packs and unpacks the messages of wire.h, field by field. Any thread; no state. It allocates
 * nothing and reads nothing behind `bytes`. What a message means is decided elsewhere:
 * daemon/handshake.c, rpc.c and control.c, client/connect.c and claim.c. The MACs are auth.c's.
 */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include <tarn/tarn.h>
#include <xxhash.h>

#include "err.h"
#include "layout.h"
#include "wire-bytes.h"
#include "wire.h"

static int check_magic(const char *what, struct reader *reader, size_t bytes, uint32_t expected)
{
	uint32_t magic;

	if (bytes < sizeof(magic))
		return err_set(-TARN_EPROTO, "%s of %zu bytes is too short", what, bytes);
	magic = get32(reader);
	if (magic == expected)
		return 0;
	return err_set(
		-TARN_EPROTO,
		"%s begins with 0x%08x and not with 0x%08x: the other side does not speak Tarn",
		what, magic, expected);
}

/* ---- handshake ---- */

uint64_t wire_pool_hash(const char *name)
{
	return XXH3_64bits(name, strlen(name));
}

void wire_request_encode(const struct wire_request *request, uint8_t buffer[WIRE_REQUEST_BYTES])
{
	struct writer w = {buffer};

	put_uint(&w, WIRE_MAGIC, 4);
	put_uint(&w, request->version_min, 1);
	put_uint(&w, request->version_max, 1);
	put_uint(&w, request->flags, 2);
	put_uint(&w, request->pool, 8);
	put_bytes(&w, request->key_id, WIRE_KEY_ID_BYTES);
	put_uint(&w, request->time_ms, 8);
	put_uint(&w, request->nonce, 8);
	put_bytes(&w, request->mac, WIRE_MAC_BYTES);
	assert(w.at == buffer + WIRE_REQUEST_BYTES);
}

static bool key_id_valid(const uint8_t id[WIRE_KEY_ID_BYTES])
{
	size_t length = 0;

	while (length < WIRE_KEY_ID_BYTES && id[length]) {
		uint8_t c = id[length++];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
		    c != '.' && c != '_' && c != '-')
			return false;
	}
	return all_zero(id + length, WIRE_KEY_ID_BYTES - length);
}

static int request_check(const struct wire_request *request)
{
	if (request->flags & ~(WIRE_REQUEST_READONLY | WIRE_REQUEST_CLUSTER))
		return err_set(-TARN_EPROTO, "handshake request with unknown flags 0x%x",
			       request->flags);
	if (!key_id_valid(request->key_id))
		return err_set(
			-TARN_EPROTO,
			"handshake request with a key id that is not 1 to 8 of [a-zA-Z0-9._-]");
	if (!request->key_id[0] && !all_zero(request->mac, WIRE_MAC_BYTES))
		return err_set(-TARN_EPROTO, "handshake request with a MAC but without a key id");
	return 0;
}

int wire_request_decode(const void *buffer, size_t bytes, struct wire_request *ret_request)
{
	struct wire_request request;
	struct reader r = {buffer};
	int rc = check_magic("handshake request", &r, bytes, WIRE_MAGIC);

	if (rc < 0)
		return rc;
	if (bytes < 6)
		return check_length("handshake request", bytes, WIRE_REQUEST_BYTES);
	/* Before the length: a version that we do not know may well have another one. */
	request.version_min = get8(&r);
	request.version_max = get8(&r);
	if (request.version_min > request.version_max || request.version_max == 0)
		return err_set(-TARN_EPROTO, "handshake request for protocol versions %u to %u",
			       request.version_min, request.version_max);
	if (request.version_min > WIRE_VERSION_MAX || request.version_max < WIRE_VERSION_MIN)
		return err_set(-TARN_EVERSION,
			       "the client speaks protocol versions %u to %u, this build %u to %u",
			       request.version_min, request.version_max, WIRE_VERSION_MIN,
			       WIRE_VERSION_MAX);
	rc = check_length("handshake request", bytes, WIRE_REQUEST_BYTES);
	if (rc < 0)
		return rc;
	request.flags = get16(&r);
	request.pool = get_uint(&r, 8);
	get_bytes(&r, request.key_id, WIRE_KEY_ID_BYTES);
	request.time_ms = get_uint(&r, 8);
	request.nonce = get_uint(&r, 8);
	get_bytes(&r, request.mac, WIRE_MAC_BYTES);
	rc = request_check(&request);
	if (rc < 0)
		return rc;
	*ret_request = request;
	return 0;
}

void wire_reply_encode(const struct wire_reply *reply, uint8_t buffer[WIRE_REPLY_BYTES])
{
	struct writer w = {buffer};

	put_uint(&w, WIRE_MAGIC, 4);
	put_uint(&w, reply->version, 1);
	put_uint(&w, reply->region_count, 1);
	put_uint(&w, reply->role, 1);
	put_uint(&w, reply->atomics, 1);
	put_uint(&w, reply->incarnation, 8);
	put_uint(&w, reply->boot_id, 8);
	put_uint(&w, reply->client_id, 4);
	put_uint(&w, reply->client_slot, 2);
	put_zeros(&w, 2);
	for (unsigned int i = 0; i < WIRE_REGIONS; i++) {
		put_uint(&w, reply->regions[i].address, 8);
		put_uint(&w, reply->regions[i].length, 8);
		put_uint(&w, reply->regions[i].rkey, 4);
		put_uint(&w, reply->regions[i].flags, 4);
	}
	put_uint(&w, reply->deadline_us, 4);
	put_uint(&w, reply->epoch_us, 4);
	put_uint(&w, reply->grace_us, 4);
	put_uint(&w, reply->layout_version, 4);
	put_uint(&w, reply->pool_bytes, 8);
	put_uint(&w, reply->nonce, 8);
	put_uint(&w, reply->map_epoch, 8);
	put_uint(&w, reply->cluster, 8);
	put_zeros(&w, 4);
	put_bytes(&w, reply->mac, WIRE_MAC_BYTES);
	assert(w.at == buffer + WIRE_REPLY_BYTES);
}

static int regions_check(const struct wire_reply *reply)
{
	uint64_t sum = 0;

	if (reply->region_count < 1 || reply->region_count > WIRE_REGIONS)
		return err_set(-TARN_EPROTO, "handshake reply with %u regions, allowed are 1 to %u",
			       reply->region_count, WIRE_REGIONS);
	if (reply->pool_bytes == 0 || reply->pool_bytes > LAYOUT_MAX_POOL_BYTES)
		return err_set(-TARN_EPROTO,
			       "handshake reply with a pool of %llu bytes, allowed are 1 to %llu",
			       (unsigned long long)reply->pool_bytes, LAYOUT_MAX_POOL_BYTES);
	for (unsigned int i = 0; i < WIRE_REGIONS; i++) {
		const struct wire_region *region = &reply->regions[i];

		/* No overflow of the sum: each length is at most the pool's, which is small. */
		if (region->length > reply->pool_bytes ||
		    (region->length == 0) != (i >= reply->region_count))
			return err_set(-TARN_EPROTO,
				       "handshake reply: region %u of %u has %llu bytes", i,
				       reply->region_count, (unsigned long long)region->length);
		if (region->flags != 0)
			return err_set(-TARN_EPROTO,
				       "handshake reply: region %u has unknown flags 0x%x", i,
				       region->flags);
		sum += region->length;
	}
	if (sum > reply->pool_bytes ||
	    (sum < reply->pool_bytes && reply->region_count < WIRE_REGIONS))
		return err_set(-TARN_EPROTO,
			       "handshake reply: regions of %llu bytes for a pool of %llu",
			       (unsigned long long)sum, (unsigned long long)reply->pool_bytes);
	return 0;
}

static int reply_check(const struct wire_reply *reply)
{
	if (reply->role != WIRE_ROLE_READ && reply->role != WIRE_ROLE_WRITE)
		return err_set(-TARN_EPROTO, "handshake reply with unknown role %u", reply->role);
	if (reply->atomics != LAYOUT_ATOMICS_CPU && reply->atomics != LAYOUT_ATOMICS_NIC)
		return err_set(-TARN_EPROTO, "handshake reply with unknown atomic domain %u",
			       reply->atomics);
	if (reply->client_id == 0)
		return err_set(-TARN_EPROTO, "handshake reply with client id 0");
	/* G >= 2 E > 2 D, docs/protocol.md section 3; in 64 bits, 2 E may not fit in 32 */
	if (reply->deadline_us == 0 || reply->epoch_us <= reply->deadline_us ||
	    reply->grace_us < 2ull * reply->epoch_us)
		return err_set(-TARN_EPROTO,
			       "handshake reply with deadline %u us, epoch %u us, grace %u us",
			       reply->deadline_us, reply->epoch_us, reply->grace_us);
	return regions_check(reply);
}

int wire_reply_decode(const void *buffer, size_t bytes, struct wire_reply *ret_reply)
{
	struct wire_reply reply;
	struct reader r = {buffer};
	int rc = check_magic("handshake reply", &r, bytes, WIRE_MAGIC);

	if (rc < 0)
		return rc;
	rc = check_length("handshake reply", bytes, WIRE_REPLY_BYTES);
	if (rc < 0)
		return rc;
	reply.version = get8(&r);
	if (reply.version < WIRE_VERSION_MIN || reply.version > WIRE_VERSION_MAX)
		return err_set(-TARN_EVERSION,
			       "the daemon chose protocol version %u, this build speaks %u to %u",
			       reply.version, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
	reply.region_count = get8(&r);
	reply.role = get8(&r);
	reply.atomics = get8(&r);
	reply.incarnation = get_uint(&r, 8);
	reply.boot_id = get_uint(&r, 8);
	reply.client_id = get32(&r);
	reply.client_slot = get16(&r);
	skip(&r, 2);
	for (unsigned int i = 0; i < WIRE_REGIONS; i++) {
		reply.regions[i].address = get_uint(&r, 8);
		reply.regions[i].length = get_uint(&r, 8);
		reply.regions[i].rkey = get32(&r);
		reply.regions[i].flags = get32(&r);
	}
	reply.deadline_us = get32(&r);
	reply.epoch_us = get32(&r);
	reply.grace_us = get32(&r);
	reply.layout_version = get32(&r);
	reply.pool_bytes = get_uint(&r, 8);
	reply.nonce = get_uint(&r, 8);
	reply.map_epoch = get_uint(&r, 8);
	reply.cluster = get_uint(&r, 8);
	skip(&r, 4);
	get_bytes(&r, reply.mac, WIRE_MAC_BYTES);
	rc = reply_check(&reply);
	if (rc < 0)
		return rc;
	*ret_reply = reply;
	return 0;
}

void wire_reject_encode(const struct wire_reject *reject, uint8_t buffer[WIRE_REJECT_BYTES])
{
	struct writer w = {buffer};

	put_uint(&w, WIRE_MAGIC, 4);
	put_uint(&w, reject->version_min, 1);
	put_uint(&w, reject->version_max, 1);
	put_uint(&w, reject->reason, 2);
	put_uint(&w, reject->detail, 8);
	put_uint(&w, reject->retry_after_ms, 4);
	put_zeros(&w, 12);
	assert(w.at == buffer + WIRE_REJECT_BYTES);
}

/* No check of the versions: a reject must be understood even if, just because, there is none in
 * common. */
int wire_reject_decode(const void *buffer, size_t bytes, struct wire_reject *ret_reject)
{
	struct reader r = {buffer};
	struct wire_reject reject;
	int rc = check_magic("handshake reject", &r, bytes, WIRE_MAGIC);

	if (rc < 0)
		return rc;
	rc = check_length("handshake reject", bytes, WIRE_REJECT_BYTES);
	if (rc < 0)
		return rc;
	reject.version_min = get8(&r);
	reject.version_max = get8(&r);
	reject.reason = get16(&r);
	if (reject.version_min > reject.version_max)
		return err_set(-TARN_EPROTO, "handshake reject with protocol versions %u to %u",
			       reject.version_min, reject.version_max);
	if (reject.reason == WIRE_REASON_NONE)
		return err_set(-TARN_EPROTO, "handshake reject without a reason");
	reject.detail = get_uint(&r, 8);
	reject.retry_after_ms = get32(&r);
	*ret_reject = reject;
	return 0;
}

const char *wire_reason_text(uint16_t reason)
{
	/* No default: the compiler then warns of a reason that was forgotten. */
	switch ((enum wire_reason)reason) {
	case WIRE_REASON_NONE:
		return "no reason";
	case WIRE_REASON_VERSION:
		return "client and daemon have no protocol version in common: upgrade the older "
		       "one";
	case WIRE_REASON_NO_POOL:
		return "the daemon has no pool of this name: `tarn pools` lists them";
	case WIRE_REASON_NO_KEY:
		return "the pool wants a key: give key=FILE or TARN_KEY_FILE";
	case WIRE_REASON_UNKNOWN_KEY:
		return "the daemon does not know this key's id: compare the key file with the "
		       "daemon's";
	case WIRE_REASON_BAD_MAC:
		return "the key's secret is not the daemon's: compare the key file with the "
		       "daemon's";
	case WIRE_REASON_TIME:
		return "the clocks of client and daemon differ by more than 5 minutes, or by the "
		       "client's clock this daemon has not started yet: set them";
	case WIRE_REASON_ROLE:
		return "the key may only read: open with readonly=1 or use another key";
	case WIRE_REASON_CLIENTS:
		return "the pool or its listener has its highest number of clients: close some, "
		       "or raise max_clients (of the pool; of an RDMA listener max_connections) "
		       "in tarnd.conf";
	case WIRE_REASON_SHUTDOWN:
		return "the daemon is stopping";
	case WIRE_REASON_MALFORMED:
		return "the daemon could not read the request: is this library older or newer than "
		       "the daemon?";
	case WIRE_REASON_INTERNAL:
		return "the daemon failed: its log says why";
	case WIRE_REASON_BUSY:
		return "too many connect at once: try again in a moment";
	case WIRE_REASON_REPLAY:
		return "this very request has been used before: somebody replays it, or two "
		       "clients draw the same random numbers";
	case WIRE_REASON_ADDRESS:
		return "too many connections from this address: close some, or raise "
		       "max_per_address in tarnd.conf";
	case WIRE_REASON_TRANSPORT:
		return "the pool is not offered at this listener (connect to one that the pool's "
		       "listen setting in tarnd.conf names), or over shared memory for reading only "
		       "(its atomic operations are done by an RDMA device)";
	case WIRE_REASON_CLUSTER:
		return "the pool belongs to a cluster, of which this daemon has a part only: open it as "
		       "tarn://HOST,HOST2/POOL with some of the members, with tarn://HOST,/POOL if one is known, or on "
		       "its own host with tarn:SOCKET-PATH,?pool=NAME";
	}
	return "for a reason that this version does not know: upgrade the client";
}

int wire_reason_code(uint16_t reason)
{
	switch ((enum wire_reason)reason) {
	case WIRE_REASON_VERSION:
		return -TARN_EVERSION;
	case WIRE_REASON_NO_POOL:
		return -TARN_ENOPOOL;
	case WIRE_REASON_NO_KEY:
	case WIRE_REASON_UNKNOWN_KEY:
	case WIRE_REASON_BAD_MAC:
	case WIRE_REASON_TIME:
	case WIRE_REASON_ROLE:
	case WIRE_REASON_REPLAY:
		return -TARN_EAUTH;
	case WIRE_REASON_MALFORMED:
		return -TARN_EPROTO;
	case WIRE_REASON_NONE:
	case WIRE_REASON_CLIENTS:
	case WIRE_REASON_SHUTDOWN:
	case WIRE_REASON_INTERNAL:
	case WIRE_REASON_BUSY:
	case WIRE_REASON_ADDRESS:
	case WIRE_REASON_TRANSPORT:
	case WIRE_REASON_CLUSTER:
		return -TARN_EREFUSED;
	}
	return -TARN_EREFUSED;
}

/* ---- RPC ---- */

void wire_rpc_encode(const struct wire_rpc *rpc, uint8_t buffer[WIRE_RPC_BYTES])
{
	struct writer w = {buffer};

	memset(buffer, 0, WIRE_RPC_BYTES);
	put_uint(&w, rpc->type, 1);
	put_zeros(&w, 3);
	put_uint(&w, rpc->tag, 4);
	if (rpc->type == WIRE_RPC_PAGE || rpc->type == WIRE_RPC_REGION ||
	    rpc->type == WIRE_RPC_GROW || rpc->type == WIRE_RPC_MAP)
		put_uint(&w, rpc->class, 4);
	if (rpc->type == WIRE_RPC_ADD || rpc->type == WIRE_RPC_CAS || rpc->type == WIRE_RPC_FAA ||
	    rpc->type == WIRE_RPC_READY) {
		put_uint(&w, rpc->slot_offset, 8);
		put_uint(&w, rpc->slot_word, 8);
		put_uint(&w, (uint64_t)rpc->delta, 8);
	}
	if (rpc->type == WIRE_RPC_CAS || rpc->type == WIRE_RPC_FAA || rpc->type == WIRE_RPC_READY)
		put_uint(&w, rpc->class, 4);
	if (rpc->type == WIRE_RPC_GROW) {
		put_uint(&w, rpc->slot_offset, 8);
		put_uint(&w, rpc->slot_word, 8);
	}
}

int wire_rpc_decode(const void *buffer, size_t bytes, struct wire_rpc *ret_rpc)
{
	struct reader r = {buffer};
	struct wire_rpc rpc = {0};
	int rc = check_length("RPC", bytes, WIRE_RPC_BYTES);

	if (rc < 0)
		return rc;
	rpc.type = get8(&r);
	skip(&r, 3);
	rpc.tag = get32(&r);
	if (rpc.type < WIRE_RPC_PING ||
	    (rpc.type > WIRE_RPC_GROW && rpc.type != WIRE_RPC_MAP && rpc.type != WIRE_RPC_READY))
		return err_set(-TARN_EPROTO, "RPC of unknown type %u", rpc.type);
	if (rpc.type == WIRE_RPC_PAGE) {
		rpc.class = get32(&r);
		if (!layout_class_valid(rpc.class))
			return err_set(-TARN_EPROTO,
				       "RPC for a page of size class %u, there are 0 to %u",
				       rpc.class, LAYOUT_CLASSES - 1);
	}
	if (rpc.type == WIRE_RPC_REGION || rpc.type == WIRE_RPC_GROW || rpc.type == WIRE_RPC_MAP)
		rpc.class = get32(&r);
	if (rpc.type == WIRE_RPC_ADD || rpc.type == WIRE_RPC_CAS || rpc.type == WIRE_RPC_FAA ||
	    rpc.type == WIRE_RPC_READY) {
		rpc.slot_offset = get_uint(&r, 8);
		rpc.slot_word = get_uint(&r, 8);
		rpc.delta = (int64_t)get_uint(&r, 8);
	}
	if (rpc.type == WIRE_RPC_CAS || rpc.type == WIRE_RPC_FAA || rpc.type == WIRE_RPC_READY)
		rpc.class = get32(&r);
	if (rpc.type == WIRE_RPC_GROW) {
		rpc.slot_offset = get_uint(&r, 8);
		rpc.slot_word = get_uint(&r, 8);
	}
	*ret_rpc = rpc;
	return 0;
}

void wire_rpc_reply_encode(const struct wire_rpc_reply *reply, uint8_t buffer[WIRE_RPC_REPLY_BYTES])
{
	struct writer w = {buffer};

	put_uint(&w, reply->type, 1);
	put_zeros(&w, 3);
	put_uint(&w, reply->tag, 4);
	put_uint(&w, (uint32_t)reply->status, 4);
	put_uint(&w, reply->number, 4);
	put_uint(&w, (uint64_t)reply->value, 8);
	put_uint(&w, reply->length, 8);
	assert(w.at == buffer + WIRE_RPC_REPLY_BYTES);
}

int wire_rpc_reply_decode(const void *buffer, size_t bytes, struct wire_rpc_reply *ret_reply)
{
	struct reader r = {buffer};
	struct wire_rpc_reply reply;
	int rc = check_length("RPC reply", bytes, WIRE_RPC_REPLY_BYTES);

	if (rc < 0)
		return rc;
	reply.type = get8(&r);
	skip(&r, 3);
	reply.tag = get32(&r);
	reply.status = (int32_t)get32(&r);
	reply.number = get32(&r);
	reply.value = (int64_t)get_uint(&r, 8);
	reply.length = get_uint(&r, 8);
	if (reply.type < WIRE_RPC_PING ||
	    (reply.type > WIRE_RPC_GROW && reply.type != WIRE_RPC_NOTICE &&
	     reply.type != WIRE_RPC_MAP && reply.type != WIRE_RPC_READY))
		return err_set(-TARN_EPROTO, "RPC reply of unknown type %u", reply.type);
	if (reply.status > 0)
		return err_set(-TARN_EPROTO, "RPC reply with status %d, it is 0 or negative",
			       reply.status);
	*ret_reply = reply;
	return 0;
}

/* ---- control ---- */

void wire_control_encode(uint8_t flags, uint8_t buffer[WIRE_CONTROL_HEADER])
{
	struct writer w = {buffer};

	put_uint(&w, WIRE_CONTROL_MAGIC, 4);
	put_uint(&w, flags, 1);
	put_zeros(&w, 3);
}

int wire_control_decode(const void *buffer, size_t bytes, uint8_t *ret_flags, const char **ret_text,
			size_t *ret_text_bytes)
{
	struct reader r = {buffer};
	uint8_t flags;
	int rc = check_magic("control packet", &r, bytes, WIRE_CONTROL_MAGIC);

	if (rc < 0)
		return rc;
	if (bytes < WIRE_CONTROL_HEADER || bytes > WIRE_CONTROL_HEADER + WIRE_CONTROL_CHUNK)
		return err_set(-TARN_EPROTO, "control packet of %zu bytes, allowed are %u to %u",
			       bytes, WIRE_CONTROL_HEADER,
			       WIRE_CONTROL_HEADER + WIRE_CONTROL_CHUNK);
	flags = get8(&r);
	if (flags & ~WIRE_CONTROL_LAST)
		return err_set(-TARN_EPROTO, "control packet with unknown flags 0x%x", flags);
	*ret_flags = flags;
	*ret_text = (const char *)buffer + WIRE_CONTROL_HEADER;
	*ret_text_bytes = bytes - WIRE_CONTROL_HEADER;
	return 0;
}
