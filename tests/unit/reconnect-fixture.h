/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reconnect-fixture.h - a session on fake-fabric.h whose connection a test breaks, for tests/unit/test-reconnect*.c
 */
#ifndef TARN_TEST_RECONNECT_FIXTURE_H
#define TARN_TEST_RECONNECT_FIXTURE_H

#include "clock.h"
#include "fake-fabric.h"

#define MIB  (1ull << 20)
#define MSEC 1000000ull

struct test {
	struct fixture pool, other; /* other: after a restart of the daemon */
	struct fake fake;
	struct tarn_session *s;
};

static inline void open_session(struct test *t, uint32_t flags)
{
	t->s = fake_session(&t->fake, &t->pool, flags, 1000);
}

static inline int setup(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	struct layout_plan plan = fixture_plan(32 * MIB), other = fixture_plan(16 * MIB);

	*state = t;
	other.boot_id = 3;
	other.max_value_bytes = 1000;
	if (fixture_create(&t->pool, &plan) < 0 || fixture_create(&t->other, &other) < 0)
		return -1;
	open_session(t, 0);
	return 0;
}

static inline int teardown(void **state)
{
	struct test *t = *state;

	tarn_session_close(t->s);
	assert_int_equal(t->fake.opened, t->fake.closed);
	fixture_destroy(&t->pool);
	fixture_destroy(&t->other);
	free(t);
	return 0;
}

static inline void lose(struct test *t)
{
	t->fake.last->broken = true;
	t->s->lost = true;
}

static inline void arm(struct test *t, enum how how, unsigned number, unsigned opcodes)
{
	t->fake.at = (struct break_at){how, number, opcodes};
	t->fake.posts = 0;
}

static inline bool broke(const struct test *t)
{
	return t->fake.at.number && t->fake.posts >= t->fake.at.number;
}

static inline void fail_tries(struct test *t, unsigned count, int code, enum session_again again,
		       uint64_t wait_ns)
{
	t->fake.fail = count;
	t->fake.code = code;
	t->fake.again = again;
	t->fake.wait_ns = wait_ns;
	t->fake.tries = 0;
}

static inline int put(struct test *t, const char *key, const char *value, uint64_t *ret_stamp)
{
	return tarn_put(t->s, key, strlen(key), value, strlen(value), NULL, ret_stamp);
}

/* What is stored under a key; "" for nothing. By a session of its own. */
static inline struct tarn_item stored(struct fixture *pool, const char *key, char *value, size_t bytes)
{
	struct tarn_session *s = fixture_session(pool, TARN_NO_THREAD | TARN_READONLY);
	struct tarn_item item = TARN_ITEM_INIT;
	int ret = tarn_get(s, key, strlen(key), value, bytes - 1, &item);

	assert_true(ret == 0 || ret == -TARN_ENOTFOUND);
	value[ret == 0 ? item.value_bytes : 0] = 0;
	session_free(s);
	return item;
}

static inline void expect(struct test *t, const char *key, const char *value)
{
	char there[64];

	stored(t->fake.pool, key, there, sizeof(there));
	assert_string_equal(there, value);
}

#endif
