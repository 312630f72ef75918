/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps a pool going; see keeper.h. Main thread. It raises the epoch, counts keys, and gives its parts
 * their turns: one that is due works for a bounded step, then comes a pause. Next: recycle.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "err.h"
#include "evict.h"
#include "expire.h"
#include "grow.h"
#include "keeper.h"
#include "pool.h"
#include "quota.h"
#include "recycle.h"
#include "self.h"
#include "shards.h"
#include "sweep.h"

#define PAUSE_NS 2000000u /* between two steps while there is work */

struct keeper;

/* A part of the keeper: works for a bounded step if it is due; returns when it is due again. */
struct part {
	uint64_t (*step)(struct keeper *keeper, const struct keeper_time *time);
};

static uint64_t step_recycle(struct keeper *keeper, const struct keeper_time *time);
static uint64_t step_grow(struct keeper *keeper, const struct keeper_time *time);
static uint64_t step_expire(struct keeper *keeper, const struct keeper_time *time);
static uint64_t step_evict(struct keeper *keeper, const struct keeper_time *time);
static uint64_t step_quota(struct keeper *keeper, const struct keeper_time *time);
static uint64_t step_sweep(struct keeper *keeper, const struct keeper_time *time);
static uint64_t step_shards(struct keeper *keeper, const struct keeper_time *time);

static const struct part parts[] = {
	{step_recycle},
	{step_grow},
	{step_expire},
	{step_evict},
	{step_quota},
	{step_sweep},
	{step_shards},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

struct keeper {
	struct pool *pool;
	const struct log *log;
	struct recycle *recycle;
	struct quota *quota;
	struct expire *expire;
	struct evict *evict;
	struct grow *grow;
	struct sweep *sweep;
	struct shards *shards; /* NULL: of no cluster */
	uint64_t epoch, epoch_due_ns;
	uint64_t due_ns[PARTS];
	uint64_t steps, step_due_ns; /* made, and when the next one is due */
	unsigned turn; /* the part that is asked first */
};

int keeper_create(struct pool *pool, const struct log *log, struct keeper **ret_keeper)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));
	int rc;

	if (!keeper)
		return err_set(-ENOMEM, "out of memory");
	keeper->pool = pool;
	keeper->log = log;
	keeper->epoch = self_load(pool, LAYOUT_EPOCH_OFFSET);
	rc = recycle_create(pool, &keeper->recycle);
	if (rc == 0)
		rc = quota_create(pool, log, &keeper->quota);
	if (rc == 0)
		rc = expire_create(pool, keeper->quota, &keeper->expire);
	if (rc == 0)
		rc = evict_create(pool, keeper->recycle, &keeper->evict);
	if (rc == 0)
		rc = grow_create(pool, log, &keeper->grow);
	if (rc == 0)
		rc = sweep_create(pool, keeper->recycle, &keeper->sweep);
	if (rc == 0 && pool->geometry.shards)
		rc = shards_create(pool, &keeper->shards);
	if (rc < 0) {
		keeper_free(keeper);
		return rc;
	}
	*ret_keeper = keeper;
	return 0;
}

void keeper_free(struct keeper *keeper)
{
	if (!keeper)
		return;
	shards_free(keeper->shards);
	sweep_free(keeper->sweep);
	grow_free(keeper->grow);
	evict_free(keeper->evict);
	expire_free(keeper->expire);
	quota_free(keeper->quota);
	recycle_free(keeper->recycle);
	free(keeper);
}

/* ---- epoch ---- */

/* Never more often than every E; who is late does not catch up. The daemon alone writes the word:
 * what it says is our number. */
static void epoch_step(struct keeper *keeper, uint64_t now)
{
	if (keeper->epoch_due_ns == 0)
		keeper->epoch_due_ns = now + keeper->pool->geometry.epoch_ns;
	if (now < keeper->epoch_due_ns)
		return;
	keeper->epoch++;
	self_store(keeper->pool, LAYOUT_EPOCH_OFFSET, keeper->epoch);
	keeper->epoch_due_ns = now + keeper->pool->geometry.epoch_ns;
}

void keeper_count_soon(struct keeper *keeper)
{
	uint64_t due = expire_soon(keeper->expire);

	for (unsigned i = 0; i < PARTS; i++)
		if (parts[i].step == step_expire && due < keeper->due_ns[i])
			keeper->due_ns[i] = due;
}

/* ---- steps ---- */

static uint64_t step_recycle(struct keeper *keeper, const struct keeper_time *time)
{
	return recycle_step(keeper->recycle, time);
}

static uint64_t step_grow(struct keeper *keeper, const struct keeper_time *time)
{
	return grow_step(keeper->grow, time);
}

int keeper_grow(struct keeper *keeper, struct layout_hash hash, uint32_t depth)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (parts[i].step == step_grow)
			keeper->due_ns[i] = 0;
	return grow_request(keeper->grow, hash, depth);
}

static uint64_t step_expire(struct keeper *keeper, const struct keeper_time *time)
{
	struct shards_stats shards = {0};
	struct evict_stats evict;
	struct grow_stats grow;

	evict_get_stats(keeper->evict, &evict);
	grow_get_stats(keeper->grow, &grow);
	if (keeper->shards)
		shards_get_stats(keeper->shards, &shards);
	return expire_step(keeper->expire, time, evict.evicted + grow.splits + shards.emptied);
}

static uint64_t step_evict(struct keeper *keeper, const struct keeper_time *time)
{
	return evict_step(keeper->evict, time);
}

static uint64_t step_quota(struct keeper *keeper, const struct keeper_time *time)
{
	return quota_step(keeper->quota, time);
}

static uint64_t step_sweep(struct keeper *keeper, const struct keeper_time *time)
{
	return sweep_step(keeper->sweep, time);
}

static uint64_t step_shards(struct keeper *keeper, const struct keeper_time *time)
{
	return keeper->shards ? shards_step(keeper->shards, time) : UINT64_MAX;
}

/* A job that was begun meanwhile is due. */
static void shards_look(struct keeper *keeper)
{
	for (unsigned i = 0; keeper->shards && i < PARTS; i++)
		if (parts[i].step == step_shards)
			keeper->due_ns[i] = shards_due(keeper->shards);
}

struct shards *keeper_shards(const struct keeper *keeper)
{
	return keeper->shards;
}

bool keeper_splits(const struct keeper *keeper, uint32_t *ret_suffix, uint32_t *ret_depth)
{
	return grow_splits(keeper->grow, ret_suffix, ret_depth);
}

void keeper_moved(struct keeper *keeper, uint64_t word)
{
	sweep_moved(keeper->sweep, word);
}

uint64_t keeper_next_pass(const struct keeper *keeper)
{
	return recycle_next_pass(keeper->recycle);
}

uint64_t keeper_passes(const struct keeper *keeper)
{
	return recycle_passes(keeper->recycle);
}

/* A walk leaves out pages where nothing happens, unless free ones were few as of the one before. */
uint64_t keeper_sure_pass(const struct keeper *keeper)
{
	return recycle_next_pass(keeper->recycle) + !recycle_scarce(keeper->recycle);
}

void keeper_sweep_soon(struct keeper *keeper)
{
	sweep_soon(keeper->sweep);
	for (unsigned i = 0; i < PARTS; i++)
		if (parts[i].step == step_sweep)
			keeper->due_ns[i] = 0;
}

static struct keeper_time time_now(const struct keeper *keeper, uint64_t now)
{
	return (struct keeper_time){.now_ns = now, .epoch = keeper->epoch};
}

/* Clients may wait for the end of a walk over shards that are handed over. */
static uint64_t pause(const struct keeper *keeper)
{
	return keeper->shards && shards_busy(keeper->shards) ? 0 : PAUSE_NS;
}

uint64_t keeper_step(struct keeper *keeper, uint64_t now)
{
	struct keeper_time time;
	uint64_t next;

	epoch_step(keeper, now);
	shards_look(keeper);
	time = time_now(keeper, now);
	/* One part a step: the first that is due, beginning behind the one that was last. */
	for (unsigned i = 0; i < PARTS; i++) {
		unsigned part = (keeper->turn + i) % PARTS;

		if (now < keeper->due_ns[part])
			continue;
		keeper->due_ns[part] = parts[part].step(keeper, &time);
		keeper->turn = (part + 1) % PARTS;
		break;
	}
	shards_look(keeper);
	next = keeper->epoch_due_ns;
	for (unsigned i = 0; i < PARTS; i++)
		if (keeper->due_ns[i] < next)
			next = keeper->due_ns[i];
	keeper->steps++;
	if (next < now + pause(keeper))
		next = now + pause(keeper);
	keeper->step_due_ns = next;
	return keeper->step_due_ns - now;
}

uint64_t keeper_steps(const struct keeper *keeper, uint64_t *ret_due_ns)
{
	*ret_due_ns = keeper->step_due_ns;
	return keeper->steps;
}

void keeper_skip(struct keeper *keeper, uint64_t epochs)
{
	keeper->epoch += epochs;
	keeper->epoch_due_ns += epochs * keeper->pool->geometry.epoch_ns;
	self_store(keeper->pool, LAYOUT_EPOCH_OFFSET, keeper->epoch);
}

bool keeper_hurry(struct keeper *keeper, uint32_t class, uint64_t now)
{
	struct keeper_time time = time_now(keeper, now);

	evict_hurry(keeper->evict, class, now);
	for (unsigned i = 0; i < PARTS; i++)
		if (parts[i].step == step_evict)
			keeper->due_ns[i] = 0;
	return recycle_hurry(keeper->recycle, class, &time);
}

uint64_t keeper_free_pages(const struct keeper *keeper)
{
	return recycle_free_pages(keeper->recycle);
}

uint64_t keeper_resting(const struct keeper *keeper, uint32_t class)
{
	uint64_t orphans = sweep_held_up(keeper->sweep, clock_now_ns())
				   ? 0
				   : recycle_orphans(keeper->recycle);

	return recycle_resting(keeper->recycle, class) + orphans + evict_hopeful(keeper->evict);
}

void keeper_client_new(struct keeper *keeper, uint32_t slot)
{
	quota_tell(keeper->quota, slot);
}

int keeper_keys_prepare(const struct keeper *keeper, const struct auth_keys *keys,
			struct quota **ret_quota)
{
	return quota_prepare(keeper->quota, keys, ret_quota);
}

void keeper_keys_commit(struct keeper *keeper, struct quota *quota)
{
	quota_commit(keeper->quota, quota);
	keeper_count_soon(keeper); /* whose keys are whose */
}

void keeper_get_stats(const struct keeper *keeper, uint64_t now, struct keeper_stats *ret_stats)
{
	*ret_stats = (struct keeper_stats){
		.epoch = keeper->epoch,
	};
	expire_get_stats(keeper->expire, now, &ret_stats->expire);
	ret_stats->keys = ret_stats->expire.keys;
	ret_stats->key_counts = ret_stats->expire.walks;
	ret_stats->keys_age_ns = ret_stats->expire.age_ns;
	evict_get_stats(keeper->evict, &ret_stats->evict);
	ret_stats->quotas = quota_get_stats(keeper->quota, &ret_stats->quota_count);
	recycle_get_stats(keeper->recycle, &ret_stats->recycle);
	grow_get_stats(keeper->grow, &ret_stats->grow);
	sweep_get_stats(keeper->sweep, now, &ret_stats->sweep);
}
