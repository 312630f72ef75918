/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-near.c - gets of a pool in this process's memory: in place, or by posts, and then of both bucket pairs at
 * once or of one after the other. All of them say the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixture.h"
#include "group.h"
#include "near.h"

#define MIB   (1ull << 20)
#define KEYS  40000u
#define COUNT (KEYS + KEYS / 4) /* so many are asked for: some are not there */
#define SMALL 24u               /* of the buffers */
#define LARGE 6000u

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct layout_plan plan = fixture_plan(256 * MIB);

	plan.keys = KEYS;
	*state = f;
	return fixture_create(f, &plan);
}

static int teardown(void **state)
{
	fixture_destroy(*state);
	free(*state);
	return 0;
}

/* ---- what is asked for, and what comes ------------------------------------------------------- */

struct asked {
	char keys[COUNT][24];
	uint8_t buffers[COUNT][SMALL];
	struct tarn_mget gets[COUNT];
};

/* Of 1 to 21 bytes. */
static size_t key_of(uint32_t i, char key[24])
{
	return (size_t)snprintf(key, 24, "%x%.*s", i, (int)(i % 17), "-key-of-some-bytes");
}

static size_t value_bytes_of(uint32_t i)
{
	return i % 1000 == 7 ? LARGE : i % 50 == 3 ? SMALL + 1 : i % (SMALL + 1);
}

static void load(struct tarn_session *s)
{
	static uint8_t value[LARGE];
	char key[24];

	for (uint32_t i = 0; i < KEYS; i++) {
		struct tarn_put_options options = TARN_PUT_INIT;
		size_t bytes = key_of(i, key);

		memset(value, (int)i, sizeof(value));
		options.user_flags = i;
		assert_int_equal(tarn_put(s, key, bytes, value, value_bytes_of(i), &options, NULL),
				 0);
	}
}

static struct asked *ask(void)
{
	struct asked *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	for (uint32_t i = 0; i < COUNT; i++) {
		size_t bytes = key_of(i, a->keys[i]);

		memset(a->buffers[i], 0xee, SMALL);
		memset(&a->gets[i].item, 0xee, sizeof(a->gets[i].item));
		a->gets[i].key = a->keys[i];
		a->gets[i].key_bytes = i % 3000 == 11 ? 0 : bytes;
		a->gets[i].buffer = a->buffers[i];
		a->gets[i].buffer_bytes = SMALL;
		a->gets[i].status = 77;
	}
	return a;
}

static void judge(const struct asked *a, uint32_t i)
{
	static const struct tarn_item nothing;
	const struct tarn_mget *got = &a->gets[i];
	size_t bytes = value_bytes_of(i);

	if (i % 3000 == 11 || i >= KEYS) {
		assert_int_equal(got->status, i % 3000 == 11 ? -TARN_EKEYSIZE : -TARN_ENOTFOUND);
		assert_memory_equal(&got->item, &nothing, sizeof(nothing));
		return;
	}
	assert_int_equal(got->status, bytes > SMALL ? -TARN_ETOOSMALL : 0);
	assert_int_equal(got->item.value_bytes, bytes);
	assert_int_equal(got->item.user_flags, i);
	for (size_t n = 0; n < SMALL && bytes <= SMALL; n++)
		assert_int_equal(a->buffers[i][n], n < bytes ? (uint8_t)i : 0xee);
}

static void get_all(struct tarn_session *s)
{
	struct asked *a = ask();

	assert_int_equal(tarn_mget(s, a->gets, COUNT), 0);
	for (uint32_t i = 0; i < COUNT; i++)
		judge(a, i);
	free(a);
}

/* Without a location cache. */
static struct tarn_session *open(void **state)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD | TARN_NO_CACHE);

	assert_null(s->cache);
	assert_non_null(s->ep->near);
	assert_true(s->ep->features & FABRIC_NEAR);
	return s;
}

static void by_posts(struct tarn_session *s, bool lazy)
{
	s->ep->near = NULL;
	s->ep->features &= lazy ? ~0u : ~FABRIC_NEAR;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The same in each way; and near the second pair is read only for those that are in it, or in neither. */
static void test_ways(void **state)
{
	struct tarn_session *s[3] = {open(state), open(state), open(state)};
	uint64_t reads[3];

	load(s[0]);
	by_posts(s[1], true);
	by_posts(s[2], false);
	for (unsigned i = 0; i < 3; i++) {
		/* the directory is known then */
		get_all(s[i]);
		reads[i] = s[i]->stats.requests;
		s[i]->stats.gets = s[i]->stats.hits = 0;
		get_all(s[i]);
		reads[i] = s[i]->stats.requests - reads[i];
		assert_int_equal(s[i]->stats.gets, COUNT - COUNT / 3000 - 1);
		assert_int_equal(s[i]->stats.hits, KEYS - KEYS / 3000 - 1);
		assert_int_equal(s[i]->stats.errors, 0);
	}
	assert_true(s[0]->engine == NULL || s[0]->engine->in_flight == 0);
	assert_true(reads[0] < reads[2]);
	assert_true(reads[1] < reads[2]);
	for (unsigned i = 0; i < 3; i++)
		session_free(s[i]);
}

/* Of all keys the slots are in either pair, and some have several candidates: a group finds these alone, too. */
static void test_nothing_left(void **state)
{
	struct tarn_session *s = open(state);
	struct asked *a = ask();
	size_t large = 0, left;
	unsigned second = 0;

	load(s);
	get_all(s);
	for (uint32_t i = 0; i < KEYS; i++) {
		struct layout_hash h =
			layout_hash_key(a->keys[i], strlen(a->keys[i]), s->geometry.hash_seed);
		uint64_t slot = fixture_slot(*state, a->keys[i], strlen(a->keys[i]));

		assert_true(slot != 0);
		second += (slot - s->geometry.pages_offset) % LAYOUT_PAGE_BYTES -
				  layout_hash_pair(h, 0, s->geometry.groups) >=
			  LAYOUT_PAIR_BYTES;
	}
	assert_in_range(second, KEYS / 10, KEYS - KEYS / 10);
	/* but those whose block is too large, and the few of another's fingerprint with such a block */
	for (uint32_t i = 0; i < KEYS; i++)
		large += i % 1000 == 7 && i % 3000 != 11;
	left = near_mget(s, a->gets, COUNT);
	if (!TARN_DEBUG)
		assert_in_range(left, large, large + 20);
	free(a);
	session_free(s);
}

/* Single gets. */
static void test_single(void **state)
{
	struct tarn_session *s[2] = {open(state), open(state)};
	uint8_t buffer[SMALL];
	char key[24];

	load(s[0]);
	by_posts(s[1], false);
	for (uint32_t i = 0; i < COUNT; i += 7) {
		struct tarn_item item = TARN_ITEM_INIT, other = TARN_ITEM_INIT;
		size_t bytes = key_of(i, key);
		int expected = i >= KEYS                   ? -TARN_ENOTFOUND
			       : value_bytes_of(i) > SMALL ? -TARN_ETOOSMALL
							   : 0;

		for (unsigned n = 0; n < 2; n++) {
			memset(buffer, 0xee, sizeof(buffer));
			assert_int_equal(
				tarn_get(s[n], key, bytes, buffer, SMALL, n ? &other : &item),
				expected);
			for (size_t b = 0; b < SMALL && !expected; b++)
				assert_int_equal(buffer[b],
						 b < value_bytes_of(i) ? (uint8_t)i : 0xee);
		}
		assert_memory_equal(&item, &other, sizeof(item));
		assert_int_equal(tarn_exists(s[0], key, bytes, &other),
				 i < KEYS ? 0 : -TARN_ENOTFOUND);
		if (i < KEYS)
			assert_int_equal(other.value_bytes, value_bytes_of(i));
	}
	session_free(s[0]);
	session_free(s[1]);
}

/* A block that does not fit its slot: reported, and nothing else is. */
static void test_damaged(void **state)
{
	struct tarn_session *s = open(state);
	struct tarn_mget gets[3] = {{.key = "a", .key_bytes = 1},
				    {.key = "b", .key_bytes = 1},
				    {.key = "c", .key_bytes = 1}};
	char buffers[3][8];
	uint64_t word;

	for (unsigned i = 0; i < 3; i++) {
		gets[i].buffer = buffers[i];
		gets[i].buffer_bytes = 8;
		assert_int_equal(tarn_put(s, gets[i].key, 1, "value", 5, NULL, NULL), 0);
	}
	word = *fixture_word(*state, fixture_slot(*state, "b", 1));
	*fixture_word(*state, layout_slot_offset(word) + sizeof(struct layout_block) + 8) ^= 1;
	assert_int_equal(tarn_mget(s, gets, 3), 0);
	assert_int_equal(gets[0].status, 0);
	assert_int_equal(gets[1].status, -TARN_ECORRUPT);
	assert_int_equal(gets[2].status, 0);
	assert_memory_equal(buffers[2], "value", 5);
	assert_int_equal(tarn_get(s, "b", 1, buffers[1], 8, NULL), -TARN_ECORRUPT);
	session_free(s);
}

/* ---- T1 ---- */

static const struct fabric_ops *shm_ops;
static uint64_t calls, pause_at, ahead_ns;

/* It stands still for longer than D before its call number pause_at. */
static uint64_t paused(struct fabric_endpoint *ep)
{
	if (++calls == pause_at)
		ahead_ns += 300000000;
	return shm_ops->now(ep) + ahead_ns;
}

/* What was read too long ago is not made anything of: it is read again, and counts once. */
static void test_too_late(void **state)
{
	struct tarn_session *s = open(state);
	struct fabric_ops ops;
	char buffers[40][SMALL], keys[40][24];
	struct tarn_mget gets[40];

	load(s);
	get_all(s);
	for (uint32_t i = 0; i < 40; i++)
		gets[i] = (struct tarn_mget){.key = keys[i],
					     .key_bytes = key_of(i * 50, keys[i]),
					     .buffer = buffers[i],
					     .buffer_bytes = SMALL};
	shm_ops = s->ep->ops;
	ops = *shm_ops;
	ops.now = paused;
	s->ep->ops = &ops;
	for (pause_at = 1; pause_at < 8; pause_at++) {
		uint64_t gets_before = s->stats.gets, reads = s->stats.requests;

		calls = 0;
		assert_int_equal(tarn_mget(s, gets, 40), 0);
		for (uint32_t i = 0; i < 40; i++) {
			assert_int_equal(gets[i].status, 0);
			assert_int_equal(gets[i].item.user_flags, i * 50);
		}
		assert_int_equal(s->stats.gets - gets_before, 40);
		/* the second look at the clock is behind the reads of the first group: they are done again */
		if (pause_at == 2)
			assert_true(s->stats.requests - reads >= 2 * 40 + GROUP_OPS);
		calls = 0;
		assert_int_equal(tarn_get(s, keys[3], gets[3].key_bytes, buffers[3], SMALL, NULL),
				 0);
		assert_int_equal(s->stats.gets - gets_before, 41);
	}
	s->ep->ops = shm_ops;
	session_free(s);
}

/* Such a session stands still as above. `ops` is its own. */
static struct tarn_session *open_paused(void **state, struct fabric_ops *ops)
{
	struct tarn_session *s = fixture_session(*state, TARN_NO_THREAD);

	load(s);
	get_all(s);
	get_all(s);
	shm_ops = s->ep->ops;
	*ops = *shm_ops;
	ops->now = paused;
	s->ep->ops = ops;
	return s;
}

/* What the location cache has known, and was too late, counts once, too. It is asked for a few; for many it takes too long. */
static void test_too_late_cached(void **state)
{
	struct fabric_ops ops;
	struct tarn_session *s = open_paused(state, &ops);
	char buffers[40][SMALL], keys[40][24];
	struct tarn_mget gets[40];
	uint64_t hits, misses;

	for (uint32_t i = 0; i < 40; i++)
		gets[i] = (struct tarn_mget){.key = keys[i],
					     .key_bytes = key_of(i * 50, keys[i]),
					     .buffer = buffers[i],
					     .buffer_bytes = SMALL};
	for (pause_at = 1; pause_at < 8; pause_at++) {
		hits = s->stats.cache_hits;
		misses = s->stats.cache_misses;
		calls = 0;
		assert_int_equal(tarn_mget(s, gets, 3), 0);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(gets[i].status, 0);
		assert_int_equal(s->stats.cache_hits - hits + s->stats.cache_misses - misses, 3);
	}
	hits = s->stats.cache_hits;
	misses = s->stats.cache_misses;
	pause_at = 0;
	assert_int_equal(tarn_mget(s, gets, 40), 0);
	for (uint32_t i = 0; i < 40; i++)
		assert_int_equal(gets[i].status, 0);
	assert_int_equal(s->stats.cache_hits, hits);
	assert_int_equal(s->stats.cache_misses, misses);
	s->ep->ops = shm_ops;
	session_free(s);
}

/* A key that stands in its own buffer is still there when it is needed a second time. */
static void test_key_in_buffer(void **state)
{
	struct fabric_ops ops;
	struct tarn_session *s = open_paused(state, &ops);
	char buffers[40][SMALL];
	struct tarn_mget gets[40];
	struct tarn_item item = TARN_ITEM_INIT;

	for (pause_at = 1; pause_at < 8; pause_at++) {
		for (uint32_t i = 0; i < 40; i++)
			gets[i] = (struct tarn_mget){.key = buffers[i],
						     .key_bytes = key_of(i * 50 + 20, buffers[i]),
						     .buffer = buffers[i],
						     .buffer_bytes = SMALL};
		calls = 0;
		assert_int_equal(tarn_mget(s, gets, 40), 0);
		for (uint32_t i = 0; i < 40; i++) {
			assert_int_equal(gets[i].status, 0);
			assert_int_equal(gets[i].item.user_flags, i * 50 + 20);
		}
		calls = 0;
		assert_int_equal(
			tarn_get(s, buffers[0], key_of(20, buffers[0]), buffers[0], SMALL, &item),
			0);
		assert_int_equal(item.user_flags, 20);
	}
	s->ep->ops = shm_ops;
	session_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_left, setup, teardown),
		cmocka_unit_test_setup_teardown(test_single, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_late_cached, setup, teardown),
		cmocka_unit_test_setup_teardown(test_key_in_buffer, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
