/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member-stats.c - the cluster in numbers, as this member sees it
 *
 * Main thread; changes nothing. Next to read: member.h; control-cluster.c and metrics.def, which show them.
 */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "member-internal.h"
#include "cluster-plan.h"
#include "config.h"
#include "pool.h"

/* Of all shards of the map. */
static void count_shards(const struct cluster_map *map, struct member_stats *stats)
{
	stats->shards = map->shards;
	stats->moving = map->move_count;
	for (uint32_t i = 0; i < map->shards; i++) {
		uint16_t owner = map->owners[i];

		if (owner == CLUSTER_NOBODY)
			stats->nobodys++;
		else
			stats->downs += map->members[owner].state == CLUSTER_DOWN;
	}
	for (uint32_t i = 0; i < map->member_count; i++)
		stats->members[map->members[i].state]++;
}

void member_get_stats(const struct member *member, struct member_stats *ret_stats)
{
	const struct cluster_map *map = member->map;
	uint64_t confirmed, now = clock_boottime_ns();
	struct member_stats stats = {
		.map = map,
		.member = member->self.name,
		.pool = member->pool->name,
		.number = member->self.number,
		.state = map->members[cluster_map_find(map, member->self.name)].state,
		.map_ms = member->map_ms,
		.map_bytes = member->pool->published.bytes,
		.map_changes = member->map_changes,
		.bound_ns = (uint64_t)member->daemon->config->cluster.map_bound.number,
	};

	(void)membership_map(member->membership, &confirmed);
	stats.confirmed = confirmed != 0;
	stats.age_ns = confirmed < now ? now - confirmed : 0;
	count_shards(map, &stats);
	handover_get_stats(member->handover, &stats.handover);
	if (member->mover)
		mover_get_stats(member->mover, &stats.mover);
	if (!member_serves(member))
		stats.handover.open = 0; /* their words are "gone" */
	membership_state(member->membership, &stats.membership);
	*ret_stats = stats;
}

/* 0: it is not known. With a fixed map there are no leases, and nobody else's is known. */
static uint64_t boot_id_of(const struct member *member, const char *name)
{
	if (strcmp(name, member->self.name) == 0)
		return member->self.boot_id;
	for (unsigned int i = 0; i < member->alive_count; i++)
		if (strcmp(name, member->alive[i].name) == 0)
			return member->alive[i].boot_id;
	return 0;
}

bool member_get_peer(const struct member *member, size_t i, struct member_peer_stats *ret_stats)
{
	const struct cluster_map *map = member->map;
	struct member_peer_stats stats;
	uint64_t boot_id;

	if (i >= map->member_count)
		return false;
	stats = (struct member_peer_stats){
		.member = &map->members[i],
		.self = map->members[i].number == member->self.number,
		.shards = cluster_plan_owned(map, (uint16_t)i),
	};
	for (uint32_t move = 0; move < map->move_count; move++) {
		stats.outgoing += map->owners[map->moves[move].shard] == i;
		stats.incoming += map->moves[move].to == i;
	}
	boot_id = boot_id_of(member, map->members[i].name);
	if (boot_id != 0)
		snprintf(stats.boot_id, sizeof(stats.boot_id), "%016llx", (unsigned long long)boot_id);
	*ret_stats = stats;
	return true;
}
