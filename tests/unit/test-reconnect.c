/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-reconnect.c - which calls are made again when the connection breaks, which are ambiguous, and what a session keeps
 *
 * The endpoint is fake-fabric.h's. When it is tried to connect: test-reconnect-try.c; regions: test-reconnect-region.c;
 * connections to a daemon: test-connect.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cache.h"
#include "reconnect-fixture.h"

/* ---- reads ----------------------------------------------------------------------------------- */

/* Wherever a get is when the connection breaks, it goes on over the next one. */
static void test_get(void **state)
{
	struct test *t = *state;
	char buffer[64];
	uint32_t client;
	unsigned n, broken = 0;
	int how;

	assert_int_equal(put(t, "k", "value", NULL), 0);
	for (how = UNSENT; how < HOWS; how++) {
		for (n = 1; n <= 4; n++) {
			uint64_t reconnects = t->s->stats.reconnects;
			struct tarn_item item = TARN_ITEM_INIT;

			client = t->s->stats.client_id;
			/* n 3 and 4: without the location, so that there are more posts */
			if (n > 2)
				cache_clear(t->s->cache);
			arm(t, (enum how)how, n > 2 ? n - 2 : n, 0);
			memset(buffer, 0, sizeof(buffer));
			assert_int_equal(tarn_get(t->s, "k", 1, buffer, sizeof(buffer), &item), 0);
			assert_string_equal(buffer, "value");
			if (broke(t)) {
				broken++;
				assert_int_equal(t->s->stats.reconnects, reconnects + 1);
				assert_int_not_equal(t->s->stats.client_id, client);
			}
		}
	}
	assert_true(broken >= 9);
	/* nothing there is an answer, too */
	arm(t, SENT, 1, 0);
	assert_int_equal(tarn_exists(t->s, "nothing", 7, NULL), -TARN_ENOTFOUND);
	assert_true(broke(t));
	/* lost before the call begins, and a ping that is lost on its way */
	arm(t, SENT, 0, 0);
	lose(t);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), 0);
	t->fake.rpc_breaks = true;
	assert_int_equal(tarn_session_ping(t->s, NULL), 0);
	assert_false(t->fake.rpc_breaks);
}

static void test_get_large(void **state)
{
	struct test *t = *state;
	uint8_t *value = malloc(6 * MIB), *back = malloc(6 * MIB);
	unsigned n;

	for (n = 0; n < 6 * MIB; n++)
		value[n] = (uint8_t)(n * 2654435761u >> 24);
	assert_int_equal(tarn_put(t->s, "large", 5, value, 6 * MIB, NULL, NULL), 0);
	for (n = 1; n < 6; n++) {
		arm(t, SENT, n, 0);
		memset(back, 0, 6 * MIB);
		assert_int_equal(tarn_get(t->s, "large", 5, back, 6 * MIB, NULL), 0);
		assert_memory_equal(back, value, 6 * MIB);
	}
	free(value);
	free(back);
}

/* ---- writes ---------------------------------------------------------------------------------- */

#define ATOMICS (1u << FABRIC_CAS | 1u << FABRIC_FAA)

/*
 * A put that breaks at its n-th post: either it worked, and is there; or it is ambiguous, and what
 * is there is the old or the new value, as the stamp tells. Whether it took effect is never left to
 * chance where the test knows: SENT means no, DONE means yes.
 */
static void put_breaking(struct test *t, const char *key, const char *old, const char *new,
			 unsigned n, enum how how, unsigned *ambiguous)
{
	uint64_t stamp = 0;
	char there[64];
	struct tarn_item item;
	int ret;

	arm(t, how, n, 0);
	ret = put(t, key, new, &stamp);
	if (ret < 0)
		assert_non_null(strstr(tarn_last_error_text(), "may or may not"));
	item = stored(&t->pool, key, there, sizeof(there));
	if (ret == 0) {
		assert_string_equal(there, new);
		assert_true(item.stamp == stamp);
	} else {
		assert_int_equal(ret, -TARN_EAMBIGUOUS);
		assert_true(broke(t) && how != UNSENT);
		assert_string_equal(there, how == DONE ? new : old);
		assert_int_equal(item.stamp == stamp, how == DONE);
		++*ambiguous;
	}
	arm(t, SENT, 0, 0);
	/* the session is as good as new */
	assert_int_equal(put(t, key, new, NULL), 0);
	assert_int_equal(tarn_exists(t->s, key, strlen(key), NULL), 0);
}

static void test_put(void **state)
{
	struct test *t = *state;
	unsigned n, ambiguous = 0;
	char key[16], old[16] = "", new[16];
	int how, cached;

	/* updates, by a cached location and without one */
	assert_int_equal(put(t, "u", old, NULL), 0);
	for (cached = 0; cached < 2; cached++) {
		for (how = UNSENT; how < HOWS; how++) {
			for (n = 1; n <= 8; n++) {
				snprintf(new, sizeof(new), "%d%d%u", cached, how, n);
				if (!cached)
					cache_clear(t->s->cache);
				put_breaking(t, "u", old, new, n, (enum how)how, &ambiguous);
				strcpy(old, new);
			}
		}
	}
	assert_true(ambiguous >= 4);
	/* inserts */
	ambiguous = 0;
	for (how = UNSENT; how < HOWS; how++) {
		for (n = 1; n <= 9; n++) {
			snprintf(key, sizeof(key), "i%d%u", how, n);
			put_breaking(t, key, "", "new", n, (enum how)how, &ambiguous);
		}
	}
	/* the second CAS of an insert is the one that decides; the first is seen by nobody */
	for (how = UNSENT; how < HOWS; how++) {
		snprintf(key, sizeof(key), "j%d", how);
		assert_int_equal(put(t, "page", "x", NULL), 0);
		arm(t, (enum how)how, 2, ATOMICS);
		assert_int_equal(put(t, key, "new", NULL), how == UNSENT ? 0 : -TARN_EAMBIGUOUS);
		expect(t, key, how == SENT ? "" : "new");
		snprintf(key, sizeof(key), "k%d", how);
		assert_int_equal(put(t, "page", "x", NULL), 0);
		arm(t, (enum how)how, 1, ATOMICS);
		assert_int_equal(put(t, key, "new", NULL), 0);
		assert_true(broke(t));
		expect(t, key, "new");
	}
	/* nothing is replayed: the one CAS that decides was executed once */
	assert_int_equal(put(t, "u", "a", NULL), 0);
	t->fake.commits = 0;
	arm(t, DONE, 1, ATOMICS);
	assert_int_equal(put(t, "u", "b", NULL), -TARN_EAMBIGUOUS);
	assert_int_equal(t->fake.commits, 1);
	/* and what could not be sent is made again, exactly once */
	t->fake.commits = 0;
	arm(t, UNSENT, 1, ATOMICS);
	assert_int_equal(tarn_delete(t->s, "u", 1), 0);
	assert_int_equal(t->fake.commits, 1);
	expect(t, "u", "");
}

static void test_delete(void **state)
{
	struct test *t = *state;
	int how;

	for (how = UNSENT; how < HOWS; how++) {
		arm(t, SENT, 0, 0);
		assert_int_equal(put(t, "d", "x", NULL), 0);
		arm(t, (enum how)how, 1, ATOMICS);
		assert_int_equal(tarn_delete(t->s, "d", 1), how == UNSENT ? 0 : -TARN_EAMBIGUOUS);
		expect(t, "d", how == SENT ? "x" : "");
	}
	/* a condition does not become true by being tried again */
	arm(t, SENT, 1, 0);
	assert_int_equal(tarn_delete(t->s, "d", 1), -TARN_ENOTFOUND);
}

static void test_add(void **state)
{
	struct test *t = *state;
	int64_t value = 0, expected = 1;
	int how;

	t->fake.features = t->s->ep->features = FABRIC_COUNTER_FAA;
	assert_int_equal(tarn_add(t->s, "n", 1, 1, &value), 0);
	for (how = UNSENT; how < HOWS; how++) {
		arm(t, (enum how)how, 1, 1u << FABRIC_FAA);
		assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL),
				 how == UNSENT ? 0 : -TARN_EAMBIGUOUS);
		expected += how != SENT;
		assert_int_equal(tarn_get(t->s, "n", 1, &value, 8, NULL), 0);
		assert_int_equal(value, expected);
	}
	/* by a message to the daemon */
	t->fake.features = t->s->ep->features = 0;
	t->fake.rpc_breaks = true;
	assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL), -TARN_EAMBIGUOUS);
}

/*
 * An add whose FAA may have hit a counter that is being replaced: if then the connection breaks, the
 * call does not say that nothing was changed, nor is it made again.
 */
static void test_add_unsure(void **state)
{
	struct test *t = *state;
	int64_t value;
	int how;

	t->fake.features = t->s->ep->features = FABRIC_COUNTER_FAA;
	assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL), 0);
	for (how = UNSENT; how < HOWS; how++) {
		uint64_t *slot = fixture_word(&t->pool, fixture_slot(&t->pool, "n", 1)),
			 word = *slot;

		/* buckets, block, FAA; buckets again; the epoch is known */
		assert_int_equal(tarn_session_process(t->s), 0);
		t->fake.vanishes = slot;
		arm(t, (enum how)how, 4, 0);
		assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL), -TARN_EAMBIGUOUS);
		assert_true(broke(t));
		assert_null(t->fake.vanishes);
		*slot = word;
	}
	arm(t, SENT, 0, 0);
	assert_int_equal(tarn_add(t->s, "n", 1, 1, &value), 0);
	assert_int_equal(value, 5);
}

/* ---- what is kept and what is not ------------------------------------------------------------ */

static void test_same_pool(void **state)
{
	struct test *t = *state;
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct layout_client *slot;
	struct alloc_counts counts;
	uint64_t trips;
	char byte;

	assert_int_equal(put(t, "k", "v", NULL), 0);
	assert_int_equal(tarn_session_process(t->s), 0);
	slot = (struct layout_client *)fixture_word(
		&t->pool, layout_client_offset(&t->pool.geometry, t->s->identity.client_slot));
	assert_int_equal(slot->telemetry.puts, 1);
	assert_int_equal(slot->quiescence, 1);
	lose(t);
	assert_int_equal(tarn_get(t->s, "k", 1, &byte, 1, NULL), 0);
	/* pages of the old connection are the sweep's */
	alloc_count(t->s->alloc, &counts);
	assert_int_equal(counts.pages + counts.waiting + counts.held, 0);
	/* directory and locations are known as before */
	trips = t->s->stats.round_trips;
	assert_int_equal(tarn_get(t->s, "k", 1, &byte, 1, NULL), 0);
	assert_int_equal(t->s->stats.round_trips, trips + 1);
	/* the session counts on, its new connection from 0 */
	assert_int_equal(tarn_session_process(t->s), 0);
	slot = (struct layout_client *)fixture_word(
		&t->pool, layout_client_offset(&t->pool.geometry, t->s->identity.client_slot));
	assert_int_equal(slot->telemetry.puts, 0);
	assert_int_equal(slot->telemetry.gets, 2);
	assert_int_equal(slot->telemetry.reports, 1);
	assert_int_equal(slot->quiescence, 1);
	assert_int_equal(tarn_session_get_stats(t->s, &stats), 0);
	assert_int_equal(stats.puts, 1);
	assert_int_equal(stats.reconnects, 1);
	/* an older caller's struct is not written past its end */
	stats.reconnects = 77;
	stats.size = offsetof(struct tarn_session_stats, reconnects);
	assert_int_equal(tarn_session_get_stats(t->s, &stats), 0);
	assert_int_equal(stats.reconnects, 77);
}

static void test_other_pool(void **state)
{
	struct test *t = *state;
	struct tarn_pool_info info = {.size = sizeof(info)};
	uint64_t slot, word, epoch;
	char value[2000] = "";
	struct layout_hash hash;
	unsigned i, known = 0;

	for (i = 0; i < 100; i++)
		assert_int_equal(tarn_put(t->s, &i, 4, "x", 1, NULL, NULL), 0);
	epoch = t->s->epoch;
	fixture_epoch(&t->pool, 100);
	assert_int_equal(tarn_session_process(t->s), 0);
	assert_true(t->s->epoch > 100);
	lose(t);
	t->fake.pool = &t->other;
	for (i = 0; i < 100; i++)
		assert_int_equal(tarn_exists(t->s, &i, 4, NULL), -TARN_ENOTFOUND);
	/*
	 * No location is left. One that is would name what may be another key's slot here, with the
	 * very same word.
	 */
	for (i = 0; i < 100; i++) {
		hash = layout_hash_key(&i, 4, t->other.geometry.hash_seed);
		known += cache_find(t->s->cache, hash, epoch, &slot, &word);
	}
	assert_int_equal(known, 0);
	/* the other pool's clock, limits and size */
	assert_true(t->s->epoch < 100);
	assert_int_equal(tarn_put(t->s, "k", 1, value, 1000, NULL, NULL), 0);
	assert_int_equal(tarn_put(t->s, "k", 1, value, 1001, NULL, NULL), -TARN_EVALUESIZE);
	assert_int_equal(tarn_session_get_pool_info(t->s, &info), 0);
	assert_int_equal(info.boot_id, 3);
	assert_int_equal(info.pool_bytes, 16 * MIB);
	assert_int_equal(info.max_value_bytes, 1000);
	assert_string_equal(info.transport, "fake");
	/* the limit is that of the pool in which the call ends */
	t->fake.pool = &t->pool;
	lose(t);
	assert_int_equal(tarn_put(t->s, "k", 1, value, 1001, NULL, NULL), 0);
	assert_int_equal(tarn_session_get_pool_info(t->s, &info), 0);
	assert_int_equal(info.boot_id, 2);
}

/* ---- scan ------------------------------------------------------------------------------------ */

#define SCAN_KEYS 1500u

/* The next key, by either kind of call. */
static int next_key(struct test *t, struct tarn_scan *scan, bool async, const void **ret_key,
		    size_t *ret_key_bytes)
{
	struct tarn_completion c;

	if (!async)
		return tarn_scan_next(scan, ret_key, ret_key_bytes, NULL);
	assert_int_equal(tarn_scan_next_async(scan, NULL, NULL), 0);
	while (tarn_session_poll(t->s, &c, 1, NULL) == 0)
		assert_true(tarn_session_wait(t->s, 10000) >= 0);
	*ret_key = c.key;
	*ret_key_bytes = c.key_bytes;
	return c.status;
}

static unsigned walk(struct test *t, struct tarn_scan *scan, bool async, uint8_t *seen)
{
	const void *key;
	size_t bytes;
	unsigned n = 0, i;
	int ret;

	while ((ret = next_key(t, scan, async, &key, &bytes)) > 0) {
		memcpy(&i, key, 4);
		assert_true(i < SCAN_KEYS);
		n += !seen[i];
		seen[i] = 1;
		/* each walk breaks more than once */
		if (broke(t))
			arm(t, t->fake.at.how, t->fake.at.number, 0);
	}
	assert_int_equal(ret, 0);
	return n;
}

static void test_scan(void **state)
{
	struct test *t = *state;
	char long_key[300] = {0};
	struct tarn_scan *scan;
	const void *key;
	size_t bytes;
	unsigned i;
	int how;

	/* how long a walk takes, under valgrind and beside others, is not what is tested */
	assert_int_equal(tarn_session_set_timeout(t->s, 60000), 0);
	for (i = 0; i < SCAN_KEYS; i++) {
		memcpy(long_key, &i, 4);
		assert_int_equal(tarn_put(t->s, long_key, i % 7 ? 4 : 300, "x", 1, NULL, NULL), 0);
	}
	for (how = UNSENT; how < HOWS; how++) {
		for (i = 2; i < 24; i++) {
			uint64_t reconnects = t->s->stats.reconnects;
			uint8_t seen[SCAN_KEYS] = {0};

			arm(t, (enum how)how, i / 2, 0);
			assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
			assert_int_equal(walk(t, scan, i % 2, seen), SCAN_KEYS);
			assert_true(t->s->stats.reconnects > reconnects);
			tarn_scan_close(scan);
		}
	}
	arm(t, SENT, 0, 0);
	assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &bytes, NULL), 1);
	lose(t);
	t->fake.pool = &t->other;
	assert_int_equal(tarn_scan_next(scan, &key, &bytes, NULL), -TARN_ERESTARTED);
	assert_int_equal(next_key(t, scan, true, &key, &bytes), -TARN_ERESTARTED);
	tarn_scan_close(scan);
	assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &bytes, NULL), 0);
	tarn_scan_close(scan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_get, setup, teardown),
		cmocka_unit_test_setup_teardown(test_get_large, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put, setup, teardown),
		cmocka_unit_test_setup_teardown(test_delete, setup, teardown),
		cmocka_unit_test_setup_teardown(test_add, setup, teardown),
		cmocka_unit_test_setup_teardown(test_add_unsure, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
	};

	return cmocka_run_group_tests_name("reconnect", tests, NULL, NULL);
}
