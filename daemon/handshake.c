/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides on a handshake request: version, pool, key, role, place in the client table. Main thread.
 * Knows no transport: bytes come in, an answer goes out, and a client-table slot is taken. peer.c
 * carries both; common/wire.c packs them, common/auth.c has the proofs.
 */
#include <errno.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "err.h"
#include "handshake.h"

/* What a refusal says besides its reason. */
static uint64_t reason_detail(const struct pool *pool, uint16_t reason)
{
	if (reason == WIRE_REASON_VERSION)
		return WIRE_VERSION_MIN | WIRE_VERSION_MAX << 8;
	if (reason == WIRE_REASON_TIME)
		return clock_wall_ms();
	if (reason == WIRE_REASON_CLIENTS && pool)
		return pool->geometry.max_clients;
	return 0;
}

/* pool: NULL when it is not known. */
static void refuse(struct daemon *daemon, struct pool *pool, uint16_t reason, struct handshake *ret)
{
	struct wire_reject reject = {.version_min = WIRE_VERSION_MIN,
				     .version_max = WIRE_VERSION_MAX,
				     .reason = reason,
				     .detail = reason_detail(pool, reason)};

	if (reason == WIRE_REASON_CLIENTS || reason == WIRE_REASON_SHUTDOWN)
		reject.retry_after_ms = 1000;
	if (pool)
		pool->counters.handshakes_refused[reason]++;
	else
		daemon->refused[reason]++;
	wire_reject_encode(&reject, ret->answer);
	ret->answer_bytes = WIRE_REJECT_BYTES;
	ret->reason = reason;
	ret->pool = NULL;
}

static struct pool *find_pool(const struct daemon *daemon, uint64_t hash)
{
	for (size_t i = 0; i < daemon->pool_count; i++)
		if (daemon->pools[i]->hash == hash)
			return daemon->pools[i];
	return NULL;
}

/* 0 or the reason. The key is left NULL where the pool wants none: then any key id is fine, and
 * nothing is signed. */
static uint16_t check_key(const struct pool *pool, const struct wire_request *request,
			  const uint8_t bytes[WIRE_REQUEST_BYTES], const struct auth_key **ret_key)
{
	uint64_t now = clock_wall_ms(),
		 apart = now > request->time_ms ? now - request->time_ms : request->time_ms - now;
	const struct auth_key *key;

	if (!pool->auth)
		return 0;
	if (!request->key_id[0])
		return WIRE_REASON_NO_KEY;
	key = auth_keys_find(&pool->keys, request->key_id);
	if (!key)
		return WIRE_REASON_UNKNOWN_KEY;
	if (auth_request_check(key, bytes) < 0)
		return WIRE_REASON_BAD_MAC;
	/* After the MAC: who does not know the secret learns nothing of our clock. */
	if (apart > AUTH_TIME_WINDOW_MS)
		return WIRE_REASON_TIME;
	if (key->role == WIRE_ROLE_READ && !(request->flags & WIRE_REQUEST_READONLY))
		return WIRE_REASON_ROLE;
	*ret_key = key;
	return 0;
}

static uint16_t take_slot(struct pool *pool, const struct pool_client *who, bool read_only,
			  uint32_t *ret_slot)
{
	struct pool_client client = *who;
	int rc;

	client.read_only = read_only;
	client.connected_ms = clock_wall_ms();
	rc = pool_client_add(pool, &client, ret_slot);
	if (rc == -EBUSY) {
		err_set(rc, "all %u client-table slots are taken: raise max_clients",
			pool->geometry.max_clients);
		return WIRE_REASON_CLIENTS;
	}
	if (rc < 0) {
		err_set(rc, "all client ids of this pool are used up: restart tarnd");
		return WIRE_REASON_INTERNAL;
	}
	return 0;
}

static void accept_request(const struct wire_request *request,
			   const uint8_t request_bytes[WIRE_REQUEST_BYTES],
			   const struct auth_key *key, struct handshake *ret)
{
	const struct layout_geometry *g = &ret->pool->geometry;
	const struct pool_client *client = &ret->pool->clients[ret->slot];
	struct wire_reply reply = {
		.version = request->version_max < WIRE_VERSION_MAX ? request->version_max
								   : WIRE_VERSION_MAX,
		.region_count = 1,
		.role = client->read_only ? WIRE_ROLE_READ : WIRE_ROLE_WRITE,
		.atomics = (uint8_t)g->atomics,
		.incarnation = g->incarnation,
		.boot_id = g->boot_id,
		.client_id = client->client_id,
		.client_slot = (uint16_t)ret->slot,
		.regions = {{.length = g->pool_bytes}},
		.deadline_us = (uint32_t)(g->deadline_ns / 1000),
		.epoch_us = (uint32_t)(g->epoch_ns / 1000),
		.grace_us = (uint32_t)(g->grace_ns / 1000),
		.layout_version = LAYOUT_VERSION,
		.pool_bytes = g->pool_bytes,
		.nonce = request->nonce,
	};

	wire_reply_encode(&reply, ret->answer);
	if (key)
		auth_reply_sign(key, request_bytes, ret->answer);
	ret->answer_bytes = WIRE_REPLY_BYTES;
	ret->reason = WIRE_REASON_NONE;
	ret->pool->counters.handshakes_accepted++;
}

void handshake(struct daemon *daemon, const void *bytes, size_t count,
	       const struct pool_client *who, struct handshake *ret)
{
	const struct auth_key *key = NULL;
	struct wire_request request;
	struct pool *pool;
	uint16_t reason;
	int rc;

	err_clear();
	rc = wire_request_decode(bytes, count, &request);
	if (rc < 0) {
		refuse(daemon, NULL,
		       rc == -TARN_EVERSION ? WIRE_REASON_VERSION : WIRE_REASON_MALFORMED, ret);
		return;
	}
	pool = find_pool(daemon, request.pool);
	if (daemon->stopping)
		reason = WIRE_REASON_SHUTDOWN;
	else if (!pool)
		reason = WIRE_REASON_NO_POOL;
	else
		reason = check_key(pool, &request, bytes, &key);
	if (!reason && pool)
		reason = take_slot(pool, who, request.flags & WIRE_REQUEST_READONLY, &ret->slot);
	if (reason) {
		if (!err_text()[0])
			err_set(-TARN_EREFUSED, "%s", wire_reason_text(reason));
		refuse(daemon, pool, reason, ret);
		return;
	}
	ret->pool = pool;
	accept_request(&request, bytes, key, ret);
}
