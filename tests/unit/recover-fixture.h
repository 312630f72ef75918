/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool that goes from one daemon to the next, for the tests of recover.c: the memory is handed on as a
 * descriptor, as through systemd's store; and a client with some keys.
 */
#ifndef TARN_TESTS_RECOVER_FIXTURE_H
#define TARN_TESTS_RECOVER_FIXTURE_H

#include "pool-fixture.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>

#include <tarn/tarn.h>

#include "fabric.h"
#include "fdstore.h"
#include "session.h"

#define KEYS 400u

/* An assertion that also holds in a child process, where cmocka must not go on with other tests. */
static bool in_child;

static inline void must(bool holds, const char *what)
{
	if (!holds && in_child) {
		fprintf(stderr, "child: %s: %s; %s\n", what, err_text(), tarn_last_error_text());
		_exit(2);
	}
	if (!holds)
		fail_msg("%s: %s", what, err_text());
}

/* ---- from one daemon to the next ---- */

static inline int config_open(struct fixture *f, struct config *config, int fd)
{
	struct pool_place place = {.numa_node = -1};
	int rc;

	f->config = config;
	f->pool = NULL;
	must(fdstore_create(&f->log, &place.kept) == 0, "fdstore_create");
	must(fdstore_add(place.kept, "main", fd) == 0, "fdstore_add");
	rc = pool_create(&config->pools[0], &place, &f->log, &f->pool);
	fdstore_free(place.kept);
	return rc;
}

/* The daemon's end: by a signal that it does not see, or in order. Returns the memory. */
static inline int leave(struct fixture *f, bool killed)
{
	int fd = fcntl(f->pool->memory.fd, F_DUPFD_CLOEXEC, 0);

	assert_true(fd >= 0);
	f->pool->open = !killed;
	fixture_close(f);
	return fd;
}

/* ---- a client ---- */

static inline struct tarn_session *session_open(struct fixture *f)
{
	const struct pool_client client = {.name = "test"};
	struct session_identity identity = {0};
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct fabric_endpoint *ep;
	struct tarn_session *s;

	must(pool_client_add(f->pool, &client, &identity.client_slot) == 0, "pool_client_add");
	identity.client_id = f->pool->clients[identity.client_slot].client_id;
	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 1000;
	if (fabric_shm_attach(f->pool->memory.base, f->pool->memory.bytes, 0, &ep) < 0 ||
	    session_create(ep, &f->pool->geometry, &identity, &options, &s) < 0)
		abort();
	return s;
}

static inline uint32_t value_of(uint32_t key, uint32_t round, char *ret_value)
{
	return (uint32_t)snprintf(ret_value, 64, "value %u of round %u", key, round);
}

static inline void put_keys(struct tarn_session *s, uint32_t round)
{
	char value[64];

	for (uint32_t key = 0; key < KEYS; key++) {
		uint32_t bytes = value_of(key, round, value);

		must(tarn_put(s, &key, sizeof(key), value, bytes, NULL, NULL) == 0, "put");
	}
}

/* In a cache pool a key may be missing. */
static inline void check_keys_if(struct tarn_session *s, uint32_t round, bool missing_allowed)
{
	char value[64], expected[64];

	for (uint32_t key = 0; key < KEYS; key++) {
		struct tarn_item item = TARN_ITEM_INIT;
		int rc = tarn_get(s, &key, sizeof(key), value, sizeof(value), &item);

		if (rc == -TARN_ENOTFOUND && missing_allowed)
			continue;
		if (rc < 0)
			fail_msg("key %u: %s", key, tarn_last_error_text());
		assert_int_equal(item.value_bytes, value_of(key, round, expected));
		assert_memory_equal(value, expected, item.value_bytes);
	}
}

static inline void check_keys(struct tarn_session *s, uint32_t round)
{
	check_keys_if(s, round, false);
}

static inline void check_pool(struct fixture *f, uint32_t round)
{
	struct tarn_session *s = session_open(f);

	check_keys(s, round);
	put_keys(s, round + 1);
	check_keys(s, round + 1);
	put_keys(s, round);
	session_free(s);
}

static inline void filled(struct fixture *f)
{
	struct tarn_session *s;

	fixture_open(f, "");
	s = session_open(f);
	put_keys(s, 1);
	session_free(s);
}

#endif
