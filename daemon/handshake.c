/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides on a handshake request: version, pool, listener, key, role, place in the client table.
 * Main thread. Bytes come in, an answer goes out, and a client-table slot is taken. peer.c and
 * listen-verbs.c carry both; common/wire.c packs them, common/auth.c has the proofs, replay.c the
 * requests that have been used.
 */
#include <errno.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "err.h"
#include "events.h"
#include "handshake.h"
#include "keeper.h"
#include "replay.h"

/* When a client that was refused for a reason that passes may try again. */
#define RETRY_BUSY_MS  200
#define RETRY_LIMIT_MS 1000

/* What a refusal says besides its reason. pool, listen: NULL when unknown. */
static uint64_t reason_detail(const struct pool *pool, const struct config_listen *listen,
			      uint16_t reason)
{
	if (reason == WIRE_REASON_VERSION)
		return WIRE_VERSION_MIN | WIRE_VERSION_MAX << 8;
	if (reason == WIRE_REASON_TIME)
		return clock_wall_ms();
	if (reason == WIRE_REASON_CLIENTS && pool)
		return pool->geometry.max_clients;
	if (reason == WIRE_REASON_ADDRESS && listen)
		return (uint64_t)listen->max_per_address.number;
	return 0;
}

/* 0: to try again is useless. A request from before our start is the exception, see start_wait(). */
static uint32_t reason_retry_ms(uint16_t reason)
{
	switch ((enum wire_reason)reason) {
	case WIRE_REASON_BUSY:
		return RETRY_BUSY_MS;
	case WIRE_REASON_CLIENTS:
	case WIRE_REASON_ADDRESS:
	case WIRE_REASON_SHUTDOWN:
		return RETRY_LIMIT_MS;
	case WIRE_REASON_NONE:
	case WIRE_REASON_VERSION:
	case WIRE_REASON_NO_POOL:
	case WIRE_REASON_NO_KEY:
	case WIRE_REASON_UNKNOWN_KEY:
	case WIRE_REASON_BAD_MAC:
	case WIRE_REASON_TIME:
	case WIRE_REASON_ROLE:
	case WIRE_REASON_MALFORMED:
	case WIRE_REASON_INTERNAL:
	case WIRE_REASON_REPLAY:
	case WIRE_REASON_TRANSPORT:
	case WIRE_REASON_CLUSTER:
		break;
	}
	return 0;
}

static void reject_encode(uint16_t reason, uint64_t detail, uint32_t retry_after_ms,
			  uint8_t ret_answer[WIRE_REJECT_BYTES])
{
	const struct wire_reject reject = {.version_min = WIRE_VERSION_MIN,
					   .version_max = WIRE_VERSION_MAX,
					   .reason = reason,
					   .detail = detail,
					   .retry_after_ms = retry_after_ms};

	wire_reject_encode(&reject, ret_answer);
}

/* pool, listen: NULL when they are not known. */
static void refuse(struct daemon *daemon, struct pool *pool, const struct config_listen *listen,
		   uint16_t reason, uint32_t retry_after_ms, struct handshake *ret)
{
	if (pool)
		pool->counters.handshakes_refused[reason]++;
	else
		daemon->refused[reason]++;
	reject_encode(reason, reason_detail(pool, listen, reason), retry_after_ms, ret->answer);
	ret->answer_bytes = WIRE_REJECT_BYTES;
	ret->reason = reason;
	ret->pool = NULL;
	ret->refused = pool;
	explicit_bzero(&ret->key, sizeof(ret->key));
}

static struct pool *find_pool(const struct daemon *daemon, uint64_t hash)
{
	for (size_t i = 0; i < daemon->pool_count; i++)
		if (daemon->pools[i]->hash == hash)
			return daemon->pools[i];
	return NULL;
}

/* A client that does not look at shards' words would take another member's keys for missing. */
static uint16_t check_cluster(const struct pool *pool, const struct wire_request *request)
{
	if (!pool->geometry.shards || request->flags & WIRE_REQUEST_CLUSTER)
		return 0;
	err_set(-TARN_EREFUSED,
		"pool %s is a part of a cluster's: its client has to open it as a cluster, with "
		"tarn://HOST,/POOL or tarn:SOCKET-PATH,?pool=NAME",
		pool->name);
	return WIRE_REASON_CLUSTER;
}

/* Is the pool offered here, and for this? 0 or the reason. */
static uint16_t check_listener(const struct pool *pool, const struct pool_client *who,
			       bool read_only)
{
	if (who->listener && !config_pool_offered(pool->config, who->listener)) {
		err_set(-TARN_EREFUSED, "pool %s is not offered at listener %s: its `listen` is %s",
			pool->name, who->listener->name, pool->config->listen.text);
		return WIRE_REASON_TRANSPORT;
	}
	if (who->transport == POOL_SHM && !read_only &&
	    pool->geometry.atomics != LAYOUT_ATOMICS_CPU) {
		err_set(-TARN_EREFUSED,
			"pool %s: its atomic operations are done by an RDMA device: over shared "
			"memory it can only be read",
			pool->name);
		return WIRE_REASON_TRANSPORT;
	}
	return 0;
}

/*
 * What was signed before this daemon started, it cannot know to be new: its memory of requests began
 * then. On a unix socket nobody listens who could replay it. Returns how long a client with a slow
 * clock has to wait, 0: not at all.
 */
static uint32_t start_wait_ms(const struct daemon *daemon, const struct pool_client *who,
			      const struct wire_request *request)
{
	uint64_t wait_ms;

	if (who->transport == POOL_SHM || request->time_ms > daemon->ready_ms)
		return 0;
	wait_ms = daemon->ready_ms - request->time_ms + 1;
	return wait_ms < UINT32_MAX ? (uint32_t)wait_ms : UINT32_MAX;
}

static void before_start(const struct daemon *daemon, uint32_t wait_ms)
{
	uint64_t now_ms = clock_wall_ms();

	if (now_ms < daemon->ready_ms)
		err_set(-TARN_EAUTH,
			"the clock of the daemon's host was set back by %.1f s or more since it has started, so that "
			"it can not tell whether a request is an old one that somebody replays: restart tarnd",
			(double)(daemon->ready_ms - now_ms) / 1e3);
	else
		err_set(-TARN_EAUTH,
			"its request was signed %u ms before this daemon started, by its clock: it "
			"may be an old one that somebody replays",
			wait_ms);
}

static uint16_t check_new(struct daemon *daemon, const struct pool_client *who,
			  const struct wire_request *request, uint32_t *ret_retry_ms)
{
	enum replay_result result = REPLAY_NEW;

	*ret_retry_ms = start_wait_ms(daemon, who, request);
	if (*ret_retry_ms > 0) {
		before_start(daemon, *ret_retry_ms);
		return WIRE_REASON_TIME;
	}
	result = replay_remember(daemon->replay, request->key_id, request->nonce, request->time_ms,
				 clock_wall_ms());
	switch (result) {
	case REPLAY_NEW:
		return 0;
	case REPLAY_SEEN:
		return WIRE_REASON_REPLAY;
	case REPLAY_OLD:
		return WIRE_REASON_TIME;
	case REPLAY_FULL:
		err_set(-TARN_EREFUSED,
			"more than %u handshakes with keys within %u s: it has to wait",
			REPLAY_ENTRIES, AUTH_TIME_WINDOW_MS / 1000);
		*ret_retry_ms = RETRY_LIMIT_MS;
		return WIRE_REASON_BUSY;
	}
	return WIRE_REASON_INTERNAL;
}

/*
 * 0 or the reason. Where the pool wants no key any key id is fine, and nothing is signed. A request
 * with a right MAC is used up, whatever becomes of it: to try again a client makes another one.
 */
static uint16_t check_key(const struct pool *pool, const struct pool_client *who,
			  struct handshake *shake, uint32_t *ret_retry_ms)
{
	const struct wire_request *request = &shake->request;
	uint64_t now = clock_wall_ms(),
		 apart = now > request->time_ms ? now - request->time_ms : request->time_ms - now;
	const struct auth_key *key;
	uint16_t reason;

	if (!pool->auth)
		return 0;
	if (!request->key_id[0])
		return WIRE_REASON_NO_KEY;
	key = auth_keys_find(&pool->keys, request->key_id);
	if (!key)
		return WIRE_REASON_UNKNOWN_KEY;
	if (auth_request_check(key, shake->request_bytes) < 0)
		return WIRE_REASON_BAD_MAC;
	/* After the MAC: who does not know the secret learns nothing of our clock. */
	if (apart > AUTH_TIME_WINDOW_MS)
		return WIRE_REASON_TIME;
	reason = check_new(shake->daemon, who, request, ret_retry_ms);
	if (reason)
		return reason;
	if (key->role == WIRE_ROLE_READ && !(request->flags & WIRE_REQUEST_READONLY))
		return WIRE_REASON_ROLE;
	shake->has_key = true;
	shake->key = *key;
	return 0;
}

static uint16_t take_slot(struct pool *pool, const struct pool_client *who, struct handshake *shake)
{
	struct pool_client client = *who;
	int rc;

	client.read_only = shake->request.flags & WIRE_REQUEST_READONLY;
	client.connected_ms = clock_wall_ms();
	if (shake->has_key)
		memcpy(client.key_id, shake->key.id, sizeof(client.key_id));
	else
		memset(client.key_id, 0, sizeof(client.key_id));
	if (pool->cut_off) {
		err_set(-EIO, "the pool's file has been cut off: remove it and restart tarnd");
		return WIRE_REASON_INTERNAL;
	}
	if (pool->client_count == pool->geometry.max_clients)
		pool_unfenced_poll(pool, UINT64_MAX); /* one of them may have been this client */
	rc = pool_client_add(pool, &client, &shake->slot);
	if (rc == -EBUSY) {
		err_set(rc, "all %u client-table slots are taken: raise max_clients",
			pool->geometry.max_clients);
		return WIRE_REASON_CLIENTS;
	}
	if (rc < 0) {
		err_set(rc, "all client ids of this pool are used up: restart tarnd");
		return WIRE_REASON_INTERNAL;
	}
	keeper_client_new(pool->keeper, shake->slot);
	return 0;
}

void handshake_accept(struct handshake *shake, const struct wire_region *regions, unsigned count)
{
	const struct layout_geometry *g = &shake->pool->geometry;
	const struct pool_client *client = &shake->pool->clients[shake->slot];
	struct wire_reply reply = {
		.version = shake->request.version_max < WIRE_VERSION_MAX
				   ? shake->request.version_max
				   : WIRE_VERSION_MAX,
		.region_count = (uint8_t)count,
		.role = client->read_only ? WIRE_ROLE_READ : WIRE_ROLE_WRITE,
		.atomics = (uint8_t)g->atomics,
		.incarnation = g->incarnation,
		.boot_id = g->boot_id,
		.client_id = client->client_id,
		.client_slot = (uint16_t)shake->slot,
		.deadline_us = (uint32_t)(g->deadline_ns / 1000),
		.epoch_us = (uint32_t)(g->epoch_ns / 1000),
		.grace_us = (uint32_t)(g->grace_ns / 1000),
		.layout_version = LAYOUT_VERSION,
		.pool_bytes = g->pool_bytes,
		.nonce = shake->request.nonce,
		.map_epoch = shake->pool->published.epoch,
		.cluster = shake->pool->published.cluster,
	};

	memcpy(reply.regions, regions, count * sizeof(*regions));
	wire_reply_encode(&reply, shake->answer);
	if (shake->has_key)
		auth_reply_sign(&shake->key, shake->request_bytes, shake->answer);
	explicit_bzero(&shake->key, sizeof(shake->key));
	shake->answer_bytes = WIRE_REPLY_BYTES;
	shake->reason = WIRE_REASON_NONE;
	shake->pool->counters.handshakes_accepted++;
}

void handshake_refuse(struct handshake *shake, enum wire_reason reason)
{
	struct pool *pool = shake->pool;
	const struct config_listen *listen = pool->clients[shake->slot].listener;

	pool_client_withdraw(pool, shake->slot);
	refuse(shake->daemon, pool, listen, (uint16_t)reason, reason_retry_ms((uint16_t)reason),
	       shake);
}

static enum event_kind refusal_kind(uint16_t reason)
{
	switch (reason) {
	case WIRE_REASON_NO_KEY:
	case WIRE_REASON_UNKNOWN_KEY:
	case WIRE_REASON_BAD_MAC:
	case WIRE_REASON_TIME:
	case WIRE_REASON_ROLE:
	case WIRE_REASON_REPLAY:
		return EVENT_key_refused;
	case WIRE_REASON_INTERNAL:
		return EVENT_handshake_failed;
	}
	return EVENT_handshake_refused;
}

void handshake_tell_refused(const struct handshake *shake, const struct pool_client *who,
			    const char *peer)
{
	const char *pool = shake->refused ? shake->refused->name : NULL;
	char text[POOL_WHO_TEXT];

	events_tell(shake->daemon->events, refusal_kind(shake->reason),
		    EVENT_FIELDS(.pool = pool, .peer = peer), "refused %s at %s%s%s: %s",
		    pool_who_text(who, peer, text), who->listener ? who->listener->name : "?",
		    pool ? ", pool " : "", pool ? pool : "", err_text());
}

size_t handshake_reject(struct daemon *daemon, enum wire_reason reason, uint64_t detail,
			uint32_t retry_after_ms, uint8_t ret_answer[WIRE_REJECT_BYTES])
{
	daemon->refused[reason]++;
	reject_encode((uint16_t)reason, detail, retry_after_ms, ret_answer);
	return WIRE_REJECT_BYTES;
}

/* 0 or the reason; then also how long to wait. */
static uint16_t judge(struct daemon *daemon, struct pool *pool, const struct pool_client *who,
		      struct handshake *shake, uint32_t *ret_retry_ms)
{
	uint16_t reason;

	if (daemon->stopping)
		reason = WIRE_REASON_SHUTDOWN;
	else if (!pool)
		reason = WIRE_REASON_NO_POOL;
	else
		reason = check_listener(pool, who, shake->request.flags & WIRE_REQUEST_READONLY);
	if (!reason)
		reason = check_cluster(pool, &shake->request);
	if (!reason)
		reason = check_key(pool, who, shake, ret_retry_ms);
	if (!reason)
		reason = take_slot(pool, who, shake);
	if (reason && *ret_retry_ms == 0)
		*ret_retry_ms = reason_retry_ms(reason);
	return reason;
}

void handshake(struct daemon *daemon, const void *bytes, size_t count,
	       const struct pool_client *who, struct handshake *ret)
{
	uint32_t retry_ms = 0;
	struct pool *pool;
	uint16_t reason;
	int rc;

	err_clear();
	memset(ret, 0, sizeof(*ret));
	ret->daemon = daemon;
	rc = wire_request_decode(bytes, count, &ret->request);
	if (rc < 0) {
		reason = rc == -TARN_EVERSION ? WIRE_REASON_VERSION : WIRE_REASON_MALFORMED;
		refuse(daemon, NULL, who->listener, reason, 0, ret);
		return;
	}
	memcpy(ret->request_bytes, bytes, sizeof(ret->request_bytes));
	pool = find_pool(daemon, ret->request.pool);
	reason = judge(daemon, pool, who, ret, &retry_ms);
	if (reason) {
		if (!err_text()[0])
			err_set(-TARN_EREFUSED, "%s", wire_reason_text(reason));
		refuse(daemon, pool, who->listener, reason, retry_ms, ret);
		return;
	}
	ret->pool = pool;
}
