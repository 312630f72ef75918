/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-map.c - what a hand-over's transaction changes in the map
 *
 * The epoch in which a shard changes its owner, or an attempt is given up, is named before it is known: `since` becomes
 * one more than the epoch that the transaction compares, which is at most the new one, and of which no other change of the shard can have the
 * same. Pure functions, any thread. Next to read: common/cluster-map.h.
 */
#include <errno.h>

#include "err.h"
#include "handover.h"

static struct cluster_move *find_move(const struct cluster_map *map, uint32_t shard)
{
	uint32_t low = 0, high = map->move_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (map->moves[middle].shard < shard)
			low = middle + 1;
		else
			high = middle;
	}
	return low < map->move_count && map->moves[low].shard == shard ? &map->moves[low] : NULL;
}

static void remove_move(struct cluster_map *map, struct cluster_move *move)
{
	struct cluster_move *end = map->moves + map->move_count;

	for (; move + 1 < end; move++)
		*move = move[1];
	map->move_count--;
}

void handover_withdraw(struct cluster_map *map, uint32_t shard)
{
	struct cluster_move *move = find_move(map, shard);

	if (move == NULL)
		return;
	map->since[shard] = map->epoch + 1;
	remove_move(map, move);
}

static int take(struct cluster_map *map, uint32_t shard, uint16_t number)
{
	uint16_t place = 0;

	while (place < map->member_count && map->members[place].number != number)
		place++;
	if (map->owners[shard] != CLUSTER_NOBODY || place == map->member_count)
		return err_set(-EINVAL, "shard %u can not be taken by member %u: %s", shard, number,
			       place == map->member_count ? "the map has no such member"
							  : "the shard has an owner");
	map->owners[shard] = place;
	map->since[shard] = map->taken[shard] = map->epoch + 1;
	return 0;
}

int handover_apply(const struct handover_write *write, struct cluster_map *map)
{
	if (map->epoch != write->if_epoch)
		return err_set(-EINVAL,
			       "a change for epoch %llu of the map, and this is epoch %llu",
			       (unsigned long long)write->if_epoch, (unsigned long long)map->epoch);
	for (uint32_t i = 0; i < write->count; i++) {
		uint32_t shard = write->changes[i].shard;
		enum handover_change what = write->changes[i].what;
		struct cluster_move *move = find_move(map, shard);
		int rc;

		if (what == HANDOVER_TAKE) {
			rc = take(map, shard, write->self);
			if (rc < 0)
				return rc;
			continue;
		}
		if (move == NULL)
			return err_set(-EINVAL, "the map of epoch %llu has no move of shard %u",
				       (unsigned long long)map->epoch, shard);
		map->since[shard] = map->epoch + 1;
		if (what == HANDOVER_SWITCH)
			map->owners[shard] = move->to;
		if (what != HANDOVER_AGAIN)
			remove_move(map, move);
	}
	return 0;
}
