/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-lock.c - schedules of parties on one lock, for test-sync
 *
 * What has to hold: no two believe at one time that they have it (each by its own clock); a token that acquire or
 * renew has returned is higher than all that had been returned before the call; the word never goes back; who was
 * overtaken is told so; a guard that is written by compare-and-swap with the token never goes back, whoever stands
 * still; and in the end a new party gets the lock.
 */
#include <string.h>

#include "err.h"
#include "sync-world.h"

#define LOCK_OFFSET 64u
#define WORD_INDEX  ((LOCK_OFFSET + 16u) / 8)
#define GUARD       1024u

struct lock_test {
	uint32_t lease_ms;
	unsigned rounds;
	uint64_t highest;          /* token that was ever returned */
	bool holds[WORLD_PARTIES]; /* as the party knows */
	unsigned taken;
};

static int open_lock(struct party *p, void **ret_handle)
{
	return tarn_lock_open(&p->region, LOCK_OFFSET, 100 + p->number,
			      (struct tarn_lock **)ret_handle);
}

static void close_lock(void *handle)
{
	tarn_lock_close(handle);
}

static bool believes(struct world *w, unsigned number)
{
	struct party *p = &w->parties[number], *current = w->current;
	struct lock_test *t = w->test;
	bool left;

	if (!p->running || !p->handle || !t->holds[number])
		return false;
	world_as(w, p);
	left = tarn_lock_left_ms(p->handle) > 0;
	world_as(w, current);
	return left;
}

static void check_beliefs(struct world *w)
{
	unsigned count = 0;

	for (unsigned i = 0; i < w->count; i++)
		count += believes(w, i);
	if (count > 1)
		world_fail(w, "%u parties have the lock", count);
}

static void word_changed(struct world *w, uint64_t index, uint64_t before, uint64_t after)
{
	if (index == WORD_INDEX && after >> 1 < before >> 1)
		world_fail(w, "the lock's token goes back");
	if (index == GUARD / 8 && after < before)
		world_fail(w, "the guard goes back");
	check_beliefs(w);
}

static void killed(struct party *p)
{
	struct lock_test *t = p->region.world->test;

	t->holds[p->number] = false;
}

/* `known`: the highest token that had been returned before the call. */
static void new_token(struct party *p, uint64_t token, uint64_t known)
{
	struct lock_test *t = p->region.world->test;

	if (token <= known)
		world_fail(p->region.world, "token %llu after %llu", (unsigned long long)token,
			   (unsigned long long)known);
	if (token > t->highest)
		t->highest = token;
	t->holds[p->number] = true;
	check_beliefs(p->region.world);
}

static void unexpected(struct party *p, const char *what, int ret)
{
	world_fail(p->region.world, "%s: %s (%s)", what, err_name(ret), err_text());
}

/* A word that only the newest token may write. */
static void write_guard(struct party *p, uint64_t token)
{
	uint64_t before = 0, guard;

	if (tarn_region_read(&p->region, GUARD, &guard, 8) < 0 || guard > token)
		return;
	if (tarn_region_cas(&p->region, GUARD, guard, token, &before) < 0)
		return;
}

/* True: it is still held as far as the party knows. */
static bool renew(struct party *p, uint64_t *token)
{
	struct lock_test *t = p->region.world->test;
	uint64_t known = t->highest;
	int ret = tarn_lock_renew(p->handle, token);

	if (ret == 0) {
		new_token(p, *token, known);
		return true;
	}
	if (ret == -TARN_EAMBIGUOUS || ret == -TARN_ESESSION)
		return true;
	t->holds[p->number] = false;
	if (ret != -TARN_EOVERTAKEN)
		unexpected(p, "renew", ret);
	return false;
}

static void release(struct party *p, uint64_t token)
{
	struct lock_test *t = p->region.world->test;
	uint64_t known = t->highest;
	int ret;

	t->holds[p->number] = false;
	ret = tarn_lock_release(p->handle);
	if (ret == 0 && known > token)
		world_fail(p->region.world, "released, but the token was overtaken");
	if (ret == -TARN_ESESSION) {
		/* of what it has under way nothing may come later, either */
		party_sleep_ns(p, 2 * p->region.world->late_ns);
		if (p->region.world->words[WORD_INDEX] == token << 1)
			world_fail(p->region.world, "not released, it said, and it was");
		else
			release(p, token);
	} else if (ret < 0 && ret != -TARN_EOVERTAKEN && ret != -TARN_EAMBIGUOUS) {
		unexpected(p, "release", ret);
	}
}

/* Some work under the lock, perhaps longer than the lease. */
static bool hold(struct party *p, uint64_t *token)
{
	struct world *w = p->region.world;
	struct lock_test *t = w->test;
	uint64_t lease_ns = t->lease_ms * 1000000ull;

	for (unsigned n = (unsigned)(world_random(w) % 4); n; n--) {
		party_sleep_ns(p, world_random(w) % (w->faults ? lease_ns : 4000000));
		check_beliefs(w);
		write_guard(p, *token);
		if (world_random(w) % 2 && !renew(p, token))
			return false;
	}
	return true;
}

static void work(struct party *p)
{
	struct world *w = p->region.world;
	struct lock_test *t = w->test;
	int ret = tarn_lock_init(&p->region, LOCK_OFFSET, t->lease_ms);

	if (ret < 0 && ret != -TARN_EAMBIGUOUS && ret != -TARN_ESESSION)
		unexpected(p, "init", ret);
	if (ret < 0)
		return;
	world_open(p, open_lock, close_lock);
	for (unsigned i = 0; p->handle && i < t->rounds; i++) {
		uint32_t timeout_ms =
			w->faults ? (uint32_t)(world_random(w) % (4 * t->lease_ms)) : 3600000;
		uint64_t token, known = t->highest;

		ret = tarn_lock_acquire(p->handle, timeout_ms, &token);
		if (ret == 0) {
			t->taken++;
			new_token(p, token, known);
			if (hold(p, &token))
				release(p, token);
		} else if (ret != -TARN_ETIMEOUT && ret != -TARN_ESESSION) {
			unexpected(p, "acquire", ret);
		}
		party_sleep_ns(p, world_random(w) % 3000000);
	}
}

/* A new party, when all others are gone. */
static void last(struct party *p)
{
	struct world *w = p->region.world;
	struct lock_test *t = w->test;
	uint64_t token, known = t->highest;
	struct tarn_lock_info info = {.size = sizeof(info)};
	int ret = tarn_lock_init(&p->region, LOCK_OFFSET, t->lease_ms);

	if (ret < 0)
		unexpected(p, "init", ret);
	world_open(p, open_lock, close_lock);
	if (!p->handle)
		return;
	ret = tarn_lock_acquire(p->handle, 2 * t->lease_ms, &token);
	if (ret < 0) {
		unexpected(p, "acquire in the end", ret);
		return;
	}
	new_token(p, token, known);
	ret = tarn_lock_stat(p->handle, &info);
	if (ret < 0 || !info.held || info.token != token || info.owner != 100 + p->number ||
	    info.lease_ms != t->lease_ms)
		unexpected(p, "stat", ret);
	release(p, token);
}

void sync_lock_schedule(struct world *w, uint64_t seed)
{
	struct lock_test t = {.lease_ms = seed % 2 ? 10 : 25, .rounds = 6};
	unsigned parties = 2 + (unsigned)(world_random(w) % 3);

	if (!w->faults)
		t.lease_ms = 1000;
	w->test = &t;
	w->stall_ns = t.lease_ms * 3000000ull;
	w->late_ns = t.lease_ms * 1500000ull;
	w->on_change = word_changed;
	w->on_kill = killed;
	w->chaos = true;
	for (unsigned i = 0; i < parties; i++)
		world_add(w, work, world_random(w) % 100000);
	world_run(w, 60000000000ull);
	if (!w->failure[0] && !w->faults && w->silent_waits)
		world_fail(w, "%llu times nobody woke a waiter",
			   (unsigned long long)w->silent_waits);
	if (!w->failure[0] && !w->faults && t.taken != parties * t.rounds)
		world_fail(w, "the lock was taken %u times", t.taken);
	world_settle(w);
	memset(t.holds, 0, sizeof(t.holds));
	if (w->failure[0])
		return;
	world_add(w, last, 0);
	world_run(w, 60000000000ull);
	world_settle(w);
}
