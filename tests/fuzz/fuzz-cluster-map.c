/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-cluster-map.c - libFuzzer target: the map of a cluster from anywhere
 *
 * What is taken must keep the promises of cluster-map.h, and every key must have a shard.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cluster-map.h"
#include "common/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_members(const struct cluster_map *map)
{
	if (map->member_count == 0 || map->member_count > CLUSTER_MEMBERS_MAX)
		abort();
	for (uint32_t i = 0; i < map->member_count; i++) {
		const struct cluster_member *member = &map->members[i];

		if (!cluster_name_valid(member->name) || member->number == 0 ||
		    member->number > CLUSTER_MEMBERS_MAX || member->weight > CLUSTER_WEIGHT_MAX ||
		    member->address_count == 0 || member->address_count > CLUSTER_ADDRESSES_MAX ||
		    cluster_map_find(map, member->name) != (int)i)
			abort();
		for (uint32_t j = 0; j < member->address_count; j++)
			if (member->addresses[j].text[0] == '\0')
				abort();
	}
}

static void check_shards(const struct cluster_map *map)
{
	if (map->shards < CLUSTER_SHARDS_MIN || map->shards > CLUSTER_SHARDS_MAX ||
	    (map->shards & (map->shards - 1)) != 0 || map->move_count > map->shards)
		abort();
	for (uint32_t i = 0; i < map->shards; i++) {
		uint16_t owner = map->owners[i];

		if (owner != CLUSTER_NOBODY &&
		    (owner >= map->member_count || map->members[owner].state == CLUSTER_LEFT))
			abort();
		if (map->since[i] == 0 || map->since[i] > map->epoch ||
		    map->taken[i] > map->since[i])
			abort();
	}
	for (uint32_t i = 0; i < map->move_count; i++)
		if (map->moves[i].shard >= map->shards || map->moves[i].to >= map->member_count ||
		    map->moves[i].to == map->owners[map->moves[i].shard])
			abort();
}

static void check_place(const struct cluster_map *map)
{
	uint16_t *owners = calloc(map->shards, sizeof(*owners));

	if (owners == NULL)
		abort();
	if (cluster_place(map, owners) == 0)
		for (uint32_t i = 0; i < map->shards; i++)
			if (owners[i] >= map->member_count ||
			    map->members[owners[i]].state != CLUSTER_UP ||
			    map->members[owners[i]].weight == 0)
				abort();
	free(owners);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct cluster_map *map;

	err_clear();
	if (cluster_map_parse((const char *)data, bytes, &map) < 0) {
		if (err_text()[0] == '\0')
			abort();
		return 0;
	}
	check_members(map);
	check_shards(map);
	check_place(map);
	if (cluster_map_shard(map, data, bytes) >= map->shards)
		abort();
	cluster_map_free(map);
	return 0;
}
