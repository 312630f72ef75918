/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/handover-attempt.c: how many shards go at a time. In an index that is small they lie in the same subtables, so that each
 * attempt would walk over all keys; in a large one an attempt of many would keep writers waiting for long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "handover.h"

#define SHARDS 4096u

struct world {
	struct cluster_member members[2];
	struct cluster_move moves[SHARDS];
	uint16_t owners[SHARDS];
	uint64_t since[SHARDS], taken[SHARDS];
	struct cluster_map map;
	struct handover *h;
	struct handover_ask asked;
};

static void on_word(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	(void)arg, (void)shard, (void)state, (void)epoch;
}

static int on_job(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count)
{
	struct world *w = arg;

	(void)job, (void)shards, (void)count;
	handover_job_done(w->h);
	return 0;
}

static int on_copy(void *arg, const struct handover_ask *attempt)
{
	(void)arg, (void)attempt;
	return 0;
}

static int on_bring(void *arg)
{
	(void)arg;
	return 0;
}

static void on_drop(void *arg)
{
	(void)arg;
}

static void on_ask(void *arg, const struct handover_ask *ask)
{
	((struct world *)arg)->asked = *ask;
}

static int on_cut(void *arg, uint16_t from, uint64_t number)
{
	(void)arg, (void)from, (void)number;
	return 0;
}

static int on_write(void *arg, const struct handover_write *write)
{
	(void)arg, (void)write;
	return 0;
}

/* All shards go from the first member to the second one: how many of them in the first attempt? */
static uint32_t batch_at(struct world *w, bool told, uint32_t depth)
{
	static const struct handover_ops ops = {
		.word = on_word,
		.job = on_job,
		.copy = on_copy,
		.bring = on_bring,
		.drop = on_drop,
		.ask = on_ask,
		.cut = on_cut,
		.write = on_write,
	};
	const struct handover_options options = {.shards = SHARDS, .self = 1, .boot_id = 7, .bound_ns = 1000};
	uint64_t now = 1;

	memset(w, 0, sizeof(*w));
	for (uint32_t i = 0; i < SHARDS; i++) {
		w->since[i] = 1;
		w->moves[i].shard = i;
		w->moves[i].to = 1;
	}
	w->members[0].number = 1;
	w->members[1].number = 2;
	w->map = (struct cluster_map){.epoch = 1,
				      .shards = SHARDS,
				      .member_count = 2,
				      .members = w->members,
				      .owners = w->owners,
				      .since = w->since,
				      .taken = w->taken,
				      .moves = w->moves};
	assert_int_equal(handover_create(&options, &ops, w, &w->h), 0);
	if (told)
		handover_batch(w->h, depth);
	assert_int_equal(handover_map(w->h, &w->map, now), 0);
	for (unsigned i = 0; i < 5; i++)
		handover_step(w->h, now++);
	/* only then do they begin to go */
	w->map.epoch = 2;
	w->map.move_count = SHARDS;
	assert_int_equal(handover_map(w->h, &w->map, now), 0);
	handover_step(w->h, now);
	handover_free(w->h);
	return w->asked.count;
}

static void test_depths(void **state)
{
	static struct world w;

	(void)state;
	assert_int_equal(batch_at(&w, false, 0), HANDOVER_BATCH_MIN);
	assert_int_equal(batch_at(&w, true, 0), HANDOVER_BATCH);
	assert_int_equal(batch_at(&w, true, 4), HANDOVER_BATCH);
	assert_int_equal(batch_at(&w, true, 7), 512);
	assert_int_equal(batch_at(&w, true, 8), 256);
	assert_int_equal(batch_at(&w, true, 11), 32);
	assert_int_equal(batch_at(&w, true, 12), HANDOVER_BATCH_MIN);
	/* what clients may write into the pool does no harm */
	assert_int_equal(batch_at(&w, true, UINT32_MAX), HANDOVER_BATCH_MIN);
}

/* They lie in the subtables of one: what the hash's bits in front of the directory's depth say is the same for all. */
static void test_neighbours(void **state)
{
	static struct world w;
	uint32_t count = batch_at(&w, true, 8);

	(void)state;
	for (uint32_t i = 1; i < count; i++)
		assert_int_equal(w.asked.shards[i] & 0xf, w.asked.shards[0] & 0xf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_depths),
		cmocka_unit_test(test_neighbours),
	};

	return cmocka_run_group_tests_name("handover-batch", tests, NULL, NULL);
}
