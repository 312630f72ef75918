/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon's pool whose time is the test's, and a session right on its memory: the client's real code
 * against the keeper's. RPCs of the session fail, so a test must not run out of pages.
 */
#ifndef TARN_TESTS_KEEPER_FIXTURE_H
#define TARN_TESTS_KEEPER_FIXTURE_H

#include <stdlib.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "pool-fixture.h"
#include "session.h"

#define MS 1000000ull

struct kept {
	struct fixture f;
	struct pool *pool;
	struct tarn_session *session;
	uint64_t now;
};

static inline struct keeper_stats kept_stats(struct kept *k)
{
	struct keeper_stats got;

	keeper_get_stats(k->pool->keeper, k->now, &got);
	return got;
}

/* Time goes on by a bit at a time, with a step at each. */
static inline void kept_pass(struct kept *k, uint64_t ms)
{
	for (uint64_t i = 0; i < ms; i += 5) {
		k->now += 5 * MS;
		keeper_step(k->pool->keeper, k->now);
	}
}

/* A client of the pool, as a handshake would have made it. */
static inline uint32_t kept_client(struct kept *k, const char *key_id)
{
	struct pool_client client = {.transport = POOL_SHM};
	uint32_t slot;

	memcpy(client.key_id, key_id, strlen(key_id));
	assert_int_equal(pool_client_add(k->pool, &client, &slot), 0);
	return slot;
}

static inline struct tarn_session *kept_session(struct kept *k, const char *key_id)
{
	struct session_identity identity = {0};
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct fabric_endpoint *ep;
	struct tarn_session *session;

	identity.client_slot = kept_client(k, key_id);
	identity.client_id = k->pool->clients[identity.client_slot].client_id;
	memcpy(identity.key_id, key_id, strlen(key_id));
	identity.owner = layout_owner((const uint8_t *)identity.key_id, WIRE_KEY_ID_BYTES);
	options.flags = TARN_NO_CACHE;
	assert_int_equal(
		fabric_shm_attach(k->pool->memory.base, k->pool->memory.bytes, 0, &ep), 0);
	assert_int_equal(session_create(ep, &k->pool->geometry, &identity, &options, &session), 0);
	return session;
}

static inline void kept_open(struct kept *k, const char *more)
{
	fixture_open(&k->f, more);
	k->pool = k->f.pool;
	k->now = clock_now_ns() + 3600000 * MS; /* ahead of the clock that some look at themselves */
	keeper_step(k->pool->keeper, k->now);
	k->session = kept_session(k, "");
}

static inline void kept_close(struct kept *k)
{
	session_free(k->session);
	fixture_close(&k->f);
}

/* What housekeeping does now and then. */
static inline void kept_process(struct tarn_session *session)
{
	assert_int_equal(session_run(session, process_start(session->process, false)), 0);
}

/* All that the session owns is handed back: its pages are full or partial. */
static inline void kept_hand_back(struct tarn_session *session)
{
	assert_int_equal(session_run(session, process_start(session->process, true)), 0);
}

static inline int kept_put(struct tarn_session *session, unsigned number, size_t bytes,
			   uint64_t expiry_ms)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	static uint8_t value[1 << 20];
	char key[16];

	options.expiry_ms = expiry_ms;
	memset(value, (int)number, bytes);
	return tarn_put(session, key, (size_t)snprintf(key, sizeof(key), "key%u", number), value,
			bytes, &options, NULL);
}

static inline int kept_exists(struct tarn_session *session, unsigned number)
{
	char key[16];

	return tarn_exists(session, key, (size_t)snprintf(key, sizeof(key), "key%u", number), NULL);
}

/* Free-map bytes of a page's blocks that are in this state. */
static inline uint32_t kept_blocks(struct kept *k, enum layout_free state)
{
	const struct layout_geometry *g = &k->pool->geometry;
	uint32_t count = 0;

	for (uint32_t page = 0; page < g->npages; page++) {
		uint64_t word = pool_load_page_word(k->pool, page);
		uint32_t class = layout_page_class(word);

		if (layout_page_state(word) < LAYOUT_PAGE_SLAB)
			continue;
		for (uint32_t i = 0; i < layout_class_blocks(class); i++)
			count += fixture_block(k->pool, page, class, i) == state;
	}
	return count;
}

#endif
