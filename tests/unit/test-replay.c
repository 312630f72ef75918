/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/replay.c: each request once, in bounded memory, also when clocks step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "auth.h"
#include "replay.h"

#define WINDOW 300000u
#define NOW    1000000000u

static const uint8_t ada[WIRE_KEY_ID_BYTES] = "ada", bob[WIRE_KEY_ID_BYTES] = "bob";

static void test_once(void **state)
{
	struct replay *replay = replay_create(16, WINDOW);

	(void)state;
	assert_int_equal(replay_remember(replay, ada, 1, NOW, NOW), REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 1, NOW, NOW), REPLAY_SEEN);
	assert_int_equal(replay_remember(replay, ada, 1, NOW + 5, NOW), REPLAY_SEEN);
	assert_int_equal(replay_remember(replay, bob, 1, NOW, NOW), REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 2, NOW, NOW), REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 1, NOW, NOW + WINDOW), REPLAY_SEEN);
	replay_free(replay);
	replay_free(NULL);
}

/* Full of young ones: nobody is forgotten; when they are old, the places are used again. */
static void test_full(void **state)
{
	struct replay *replay = replay_create(256, WINDOW);

	(void)state;
	for (uint64_t i = 0; i < 256; i++)
		assert_int_equal(replay_remember(replay, ada, i, NOW + i, NOW + i), REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 999, NOW + 300, NOW + 300), REPLAY_FULL);
	for (uint64_t i = 0; i < 256; i++)
		assert_int_equal(replay_remember(replay, ada, i, NOW + i, NOW + 300), REPLAY_SEEN);
	/* at exactly the window's end the oldest could still be used */
	assert_int_equal(replay_remember(replay, ada, 999, NOW + WINDOW, NOW + WINDOW),
			 REPLAY_FULL);
	assert_int_equal(replay_remember(replay, ada, 999, NOW + WINDOW, NOW + WINDOW + 1),
			 REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 998, NOW + WINDOW, NOW + WINDOW + 1),
			 REPLAY_FULL);
	assert_int_equal(replay_remember(replay, ada, 1, NOW + 1, NOW + WINDOW + 1), REPLAY_SEEN);
	replay_free(replay);
}

/* The clock steps back: what was forgotten must not be new again. */
static void test_clock_back(void **state)
{
	struct replay *replay = replay_create(2, WINDOW);
	uint64_t later = NOW + 2 * WINDOW;

	(void)state;
	assert_int_equal(replay_remember(replay, ada, 1, NOW, NOW), REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 2, NOW + 1, NOW + 1), REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 3, later, later), REPLAY_NEW); /* forgets 1 */
	assert_int_equal(replay_remember(replay, ada, 1, NOW, NOW + 5), REPLAY_OLD);
	assert_int_equal(replay_remember(replay, ada, 2, NOW + 1, NOW + 5), REPLAY_SEEN);
	assert_int_equal(replay_remember(replay, ada, 4, NOW + 6, NOW + 6), REPLAY_FULL);
	replay_free(replay);
}

/* One in the future keeps its place longer, and holds up only itself. */
static void test_future(void **state)
{
	struct replay *replay = replay_create(4, WINDOW);

	(void)state;
	assert_int_equal(replay_remember(replay, ada, 0, NOW + WINDOW, NOW), REPLAY_NEW);
	for (uint64_t i = 1; i < 4; i++)
		assert_int_equal(replay_remember(replay, ada, i, NOW, NOW), REPLAY_NEW);
	for (uint64_t i = 4; i < 7; i++)
		assert_int_equal(
			replay_remember(replay, ada, i, NOW + WINDOW + 1, NOW + WINDOW + 1),
			REPLAY_NEW);
	assert_int_equal(replay_remember(replay, ada, 7, NOW + WINDOW + 1, NOW + WINDOW + 1),
			 REPLAY_FULL);
	assert_int_equal(replay_remember(replay, ada, 0, NOW + WINDOW, NOW + WINDOW + 1),
			 REPLAY_SEEN);
	replay_free(replay);
}

/* Many, over a long time: chains stay whole while entries come and go. */
static void test_long(void **state)
{
	struct replay *replay = replay_create(1024, 1000);

	(void)state;
	for (uint64_t i = 0; i < 200000; i++) {
		uint64_t now = NOW + 2 * i;

		assert_int_equal(replay_remember(replay, ada, i, now, now), REPLAY_NEW);
		if (i >= 400)
			assert_int_equal(replay_remember(replay, ada, i - 400, now - 800, now),
					 REPLAY_SEEN);
	}
	replay_free(replay);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),       cmocka_unit_test(test_full),
		cmocka_unit_test(test_clock_back), cmocka_unit_test(test_future),
		cmocka_unit_test(test_long),
	};

	if (auth_init() < 0)
		return 99;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
