/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-barrier.c - schedules of parties at a barrier, and of an epoch counter, for test-sync
 *
 * Barrier: nobody passes a round before all have arrived in it, and all come to the last round, whoever is killed and
 * comes back. Epoch counter: it never goes back, a wait returns when it has come so far, and in the end it is the
 * sum.
 */
#include "err.h"
#include "sync-world.h"

#define OFFSET 256u
#define ROUNDS 5u

static void unexpected(struct party *p, const char *what, int ret)
{
	world_fail(p->region.world, "%s: %s (%s)", what, err_name(ret), err_text());
}

/* ---- barrier --------------------------------------------------------------------------------- */

struct barrier_test {
	uint32_t parties;
};

static int open_barrier(struct party *p, void **ret_handle)
{
	return tarn_barrier_open(&p->region, OFFSET, p->number, (struct tarn_barrier **)ret_handle);
}

static void close_barrier(void *handle)
{
	tarn_barrier_close(handle);
}

static void check_passed(struct party *p, uint64_t round)
{
	struct world *w = p->region.world;
	struct barrier_test *t = w->test;

	for (uint32_t i = 0; i < t->parties; i++)
		if (w->words[(OFFSET + 64) / 8 + i] < round)
			world_fail(w, "party %u has passed round %llu, party %u has not arrived",
				   p->number, (unsigned long long)round, i);
}

static void meet(struct party *p)
{
	struct world *w = p->region.world;
	struct barrier_test *t = w->test;
	uint64_t round = 0;
	int ret;

	do
		ret = tarn_barrier_init(&p->region, OFFSET, t->parties);
	while (ret == -TARN_EAMBIGUOUS);
	if (ret < 0)
		unexpected(p, "init", ret);
	world_open(p, open_barrier, close_barrier);
	while (p->handle && !w->failure[0] && round < ROUNDS) {
		uint64_t before = round;

		ret = tarn_barrier_wait(
			p->handle, w->faults ? (uint32_t)(world_random(w) % 50) : 3600000, &round);
		if (ret == 0)
			check_passed(p, round);
		else if (ret != -TARN_ETIMEOUT && ret != -TARN_EAMBIGUOUS)
			unexpected(p, "wait", ret);
		if (ret == 0 && before && round != before + 1)
			world_fail(w, "round %llu after %llu", (unsigned long long)round,
				   (unsigned long long)before);
		party_sleep_ns(p, world_random(w) % 5000000);
		/* it was killed behind its last round */
		if (ret == -TARN_ETIMEOUT && w->words[(OFFSET + 64) / 8 + p->number] > ROUNDS)
			return;
	}
}

void sync_barrier_schedule(struct world *w, uint64_t seed)
{
	struct barrier_test t = {.parties = 1 + (uint32_t)(seed / 8 % 5)};

	w->test = &t;
	w->stall_ns = 30000000;
	w->late_ns = 10000000;
	w->faults &= ~FAULT_AWAY;
	w->chaos = true;
	for (unsigned i = 0; i < t.parties; i++)
		world_add(w, meet, world_random(w) % 1000000);
	world_run(w, 600000000000ull);
	if (!w->failure[0] && !w->faults && w->silent_waits)
		world_fail(w, "%llu times nobody woke a waiter",
			   (unsigned long long)w->silent_waits);
	world_settle(w);
}

/* ---- epoch counter --------------------------------------------------------------------------- */

struct epoch_test {
	uint64_t sum, unknown; /* what was added, and what perhaps was */
	uint64_t adding[WORLD_PARTIES];
	uint64_t goal;
};

static int open_epoch(struct party *p, void **ret_handle)
{
	return tarn_epoch_open(&p->region, OFFSET, (struct tarn_epoch **)ret_handle);
}

static void close_epoch(void *handle)
{
	tarn_epoch_close(handle);
}

static void value_changed(struct world *w, uint64_t index, uint64_t before, uint64_t after)
{
	if (index == OFFSET / 8 + 2 && after < before)
		world_fail(w, "the counter goes back");
}

static void adder_killed(struct party *p)
{
	struct epoch_test *t = p->region.world->test;

	t->unknown += t->adding[p->number];
	t->adding[p->number] = 0;
}

static bool begin(struct party *p)
{
	int ret;

	do
		ret = tarn_epoch_init(&p->region, OFFSET);
	while (ret == -TARN_EAMBIGUOUS);
	if (ret < 0)
		unexpected(p, "init", ret);
	world_open(p, open_epoch, close_epoch);
	return p->handle != NULL;
}

static void add(struct party *p)
{
	struct world *w = p->region.world;
	struct epoch_test *t = w->test;

	if (!begin(p))
		return;
	for (unsigned i = 0; i < 5 && !w->failure[0]; i++) {
		uint64_t value, n = 1 + world_random(w) % 3;
		int ret;

		t->adding[p->number] = n;
		ret = tarn_epoch_add(p->handle, n, &value);
		t->adding[p->number] = 0;
		if (ret == 0)
			t->sum += n;
		else if (ret == -TARN_EAMBIGUOUS)
			t->unknown += n;
		else
			unexpected(p, "add", ret);
		party_sleep_ns(p, world_random(w) % 5000000);
	}
}

/* Comes last, and so the waiter's goal is reached in any case. */
static void raise_to_goal(struct party *p)
{
	struct world *w = p->region.world;
	struct epoch_test *t = w->test;
	uint64_t value = 0;
	int ret;

	if (!begin(p))
		return;
	do
		ret = tarn_epoch_raise(p->handle, t->goal);
	while (ret == -TARN_EAMBIGUOUS);
	if (ret == 0)
		ret = tarn_epoch_read(p->handle, &value);
	if (ret < 0)
		unexpected(p, "raise", ret);
	else if (value < t->goal)
		world_fail(w, "raised to %llu, and is %llu", (unsigned long long)t->goal,
			   (unsigned long long)value);
}

static void await(struct party *p)
{
	struct world *w = p->region.world;
	struct epoch_test *t = w->test;
	uint64_t value = 0;
	int ret;

	if (!begin(p))
		return;
	do
		ret = tarn_epoch_wait(p->handle, t->goal, 90, &value);
	while (ret == -TARN_ETIMEOUT);
	if (ret < 0)
		unexpected(p, "wait", ret);
	else if (value < t->goal || value > w->words[OFFSET / 8 + 2])
		world_fail(w, "waited for %llu, and it is %llu", (unsigned long long)t->goal,
			   (unsigned long long)value);
}

void sync_epoch_schedule(struct world *w, uint64_t seed)
{
	struct epoch_test t = {.goal = seed / 8 % 2 ? 1000 : 3};
	uint64_t value;

	w->test = &t;
	w->stall_ns = 30000000;
	w->late_ns = 10000000;
	w->on_change = value_changed;
	w->on_kill = adder_killed;
	w->faults &= ~FAULT_AWAY;
	w->chaos = true;
	world_add(w, await, 0);
	world_add(w, add, 0);
	world_add(w, add, 1000);
	if (t.goal == 1000)
		world_add(w, raise_to_goal, 40000000);
	world_run(w, 600000000000ull);
	world_settle(w);
	value = w->words[OFFSET / 8 + 2];
	if (t.goal == 3 && (value < t.sum || value > t.sum + t.unknown))
		world_fail(w, "the counter is %llu, %llu was added, and perhaps %llu more",
			   (unsigned long long)value, (unsigned long long)t.sum,
			   (unsigned long long)t.unknown);
}
