/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-threads.c - four threads, each with its own session, on one pool: what
 * `--enable-sanitizers=thread` looks at
 *
 * Values check themselves (a key's value is a repetition of one number that some thread wrote for
 * it), counters of each thread add up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "fixture.h"

#define THREADS 4u
#define KEYS    64u
#define ROUNDS  20000u

struct worker {
	pthread_t thread;
	struct tarn_session *session;
	uint32_t id;
	uint32_t wrong;
	int64_t added;
};

static void one_round(struct worker *w, uint64_t x)
{
	uint32_t key = (uint32_t)(x >> 40) % KEYS, value[8], i;
	uint64_t counter = (x >> 50) % 4 + 1000;
	struct tarn_item item = TARN_ITEM_INIT;
	int ret;

	switch ((x >> 33) % 8) {
	case 0:
		ret = tarn_delete(w->session, &key, 4);
		w->wrong += ret != 0 && ret != -TARN_ENOTFOUND;
		break;
	case 1:
	case 2:
	case 3:
		for (i = 0; i < 8; i++)
			value[i] = (uint32_t)x ^ key;
		w->wrong += tarn_put(w->session, &key, 4, value, sizeof(value), NULL, NULL) != 0;
		break;
	case 4:
		ret = tarn_add(w->session, &counter, 8, 1, NULL);
		w->wrong += ret != 0;
		w->added += ret == 0;
		break;
	default:
		ret = tarn_get(w->session, &key, 4, value, sizeof(value), &item);
		w->wrong += ret != 0 && ret != -TARN_ENOTFOUND;
		for (i = 1; ret == 0 && i < 8; i++)
			w->wrong += value[i] != value[0];
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t x = w->id + 1, i;

	for (i = 0; i < ROUNDS; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		one_round(w, x);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct layout_plan plan = fixture_plan(64ull << 20);
	struct worker workers[THREADS] = {0};
	int64_t sum = 0, added = 0, value;
	struct fixture f;
	uint64_t counter;
	unsigned i;

	(void)state;
	assert_int_equal(fixture_create(&f, &plan), 0);
	for (i = 0; i < THREADS; i++) {
		workers[i].id = i;
		workers[i].session = fixture_session(&f, TARN_NO_THREAD);
		workers[i].session->ep->features |= FABRIC_COUNTER_FAA;
		assert_int_equal(housekeeping_add(workers[i].session), 0);
	}
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].wrong, 0);
		added += workers[i].added;
	}
	for (counter = 1000; counter < 1004; counter++) {
		assert_int_equal(tarn_get(workers[0].session, &counter, 8, &value, 8, NULL), 0);
		sum += value;
	}
	assert_int_equal(sum, added);
	for (i = 0; i < THREADS; i++) {
		housekeeping_remove(workers[i].session);
		session_free(workers[i].session);
	}
	fixture_destroy(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
