/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member-leave.c - a fixed map that takes shards of a store pool from this member: only if they have no keys
 *
 * Main thread. Nobody can hand over what is in them, since nobody can write the map; so it would be lost. A reload is refused by
 * what the keeper has counted last. Whoever puts keys meanwhile is noticed, too: before the map is used the shards are
 * frozen, which counts what is in them, and opened again if that is anything. Next to read: member.c, shards.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "clock.h"
#include "member-internal.h"
#include "err.h"
#include "events.h"
#include "keeper.h"
#include "pool.h"
#include "shards.h"

static bool owns(const struct member *member, const struct cluster_map *map, uint32_t shard)
{
	uint16_t owner = map->owners[shard];

	return owner != CLUSTER_NOBODY && map->members[owner].number == member->self.number;
}

static bool leaves(const struct member *member, const struct cluster_map *next, uint32_t shard)
{
	return owns(member, member->map, shard) && !owns(member, next, shard);
}

/* How many shards go away; *ret_shard is the first of them. */
static uint32_t count_leaving(const struct member *member, const struct cluster_map *next, uint32_t *ret_shard)
{
	uint32_t count = 0;

	for (uint32_t i = next->shards; i-- > 0;) {
		if (!leaves(member, next, i))
			continue;
		*ret_shard = i;
		count++;
	}
	return count;
}

static int refuse(const struct member *member, const struct cluster_map *next, uint32_t shard, uint32_t count,
		  uint64_t keys)
{
	uint16_t owner = next->owners[shard];
	const char *to = owner == CLUSTER_NOBODY ? "nobody" : next->members[owner].name;

	return err_set(-EINVAL,
		       "map: it gives shard %u (and %u others) from this member, '%s', to '%s', but this one has %" PRIu64
		       " keys, which would be lost: shards of a store pool move with membership = etcd only; leave them where they "
		       "are, or delete the keys first",
		       shard, count - 1, member->self.name, to, keys);
}

int member_leave_check(const struct member *member, const struct cluster_map *next)
{
	struct keeper_stats stats;
	uint32_t shard = 0, count;

	if (!member->fixed || next->cache)
		return 0;
	count = count_leaving(member, next, &shard);
	if (count == 0)
		return 0;
	keeper_get_stats(member->pool->keeper, clock_now_ns(), &stats);
	return stats.key_counts > 0 && stats.keys == 0 ? 0 : refuse(member, next, shard, count, stats.keys);
}

/* ---- the exact count ---- */

static void on_thawed(void *arg)
{
	(void)arg;
}

static void end(struct member *member)
{
	cluster_map_free(member->waiting);
	free(member->leaving);
	member->waiting = NULL;
	member->leaving = NULL;
	member->leaving_count = 0;
}

/* All is as it was before. */
static int reopen(struct member *member, uint64_t keys)
{
	struct shards *shards = keeper_shards(member->pool->keeper);
	int rc = refuse(member, member->waiting, member->leaving[0], member->leaving_count, keys);

	for (uint32_t i = 0; i < member->leaving_count; i++)
		shards_set(shards, member->leaving[i], SHARD_OPEN, member->map->since[member->leaving[i]]);
	(void)shards_begin(shards, SHARDS_THAW, member->leaving, member->leaving_count, on_thawed, NULL);
	return rc;
}

static void on_frozen(void *arg)
{
	struct member *member = arg;
	const struct shards *shards = keeper_shards(member->pool->keeper);
	uint64_t keys = 0;
	int rc = 0;

	for (uint32_t i = 0; i < member->leaving_count; i++)
		keys += shards_keys(shards, member->leaving[i]);
	if (keys > 0)
		rc = reopen(member, keys);
	member_map_decided(member, member->waiting, rc);
	end(member);
}

int member_leave_begin(struct member *member, const struct cluster_map *next)
{
	struct shards *shards = keeper_shards(member->pool->keeper);
	uint32_t shard;
	int rc;

	if (!member->fixed || next->cache || count_leaving(member, next, &shard) == 0)
		return 0;
	member->waiting = member_map_copy(next);
	member->leaving = calloc(next->shards, sizeof(*member->leaving));
	if (!member->waiting || !member->leaving) {
		end(member);
		return err_set(-ENOMEM, "out of memory");
	}
	/* what is not open has no keys yet */
	for (uint32_t i = 0; i < next->shards; i++) {
		if (!leaves(member, next, i) || shard_word_state(shards_word(shards, i)) != SHARD_OPEN)
			continue;
		shards_set(shards, i, SHARD_CLOSING, member->map->since[i]);
		member->leaving[member->leaving_count++] = i;
	}
	rc = member->leaving_count
		     ? shards_begin(shards, SHARDS_FREEZE, member->leaving, member->leaving_count, on_frozen, member)
		     : 0;
	if (rc == 0 && member->leaving_count)
		return 1;
	for (uint32_t i = 0; i < member->leaving_count; i++)
		shards_set(shards, member->leaving[i], SHARD_OPEN, member->map->since[member->leaving[i]]);
	end(member);
	return rc;
}
