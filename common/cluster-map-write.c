/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-map-write.c - the map of a cluster as JSON
 *
 * What is written is read again before it is given away: a mistake of whoever changed the map ends here, not at all members.
 * Any thread. Next to read: cluster-map.c.
 */
#include "cluster-map-write.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

static json_t *member_json(const struct cluster_member *member)
{
	json_t *addresses = json_array();

	for (uint32_t i = 0; i < member->address_count; i++)
		json_array_append_new(addresses,
				      json_pack("{s:s, s:s}", "fabric", member->addresses[i].shm ? "shm" : "verbs",
						"address", member->addresses[i].text));
	return json_pack("{s:s, s:i, s:s, s:i, s:o}", "name", member->name, "number", (int)member->number, "state",
			 cluster_state_name(member->state), "weight", (int)member->weight, "addresses", addresses);
}

static json_t *owners_json(const struct cluster_map *map)
{
	json_t *owners = json_array();

	for (uint32_t i = 0; i < map->shards; i++) {
		json_t *owner = json_array();

		if (map->owners[i] < map->member_count)
			json_array_append_new(owner, json_integer(map->members[map->owners[i]].number));
		json_array_append_new(owners, owner);
	}
	return owners;
}

static json_t *epochs_json(const uint64_t *epochs, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(array, json_integer((json_int_t)epochs[i]));
	return array;
}

static json_t *moves_json(const struct cluster_map *map)
{
	json_t *moves = json_array();

	for (uint32_t i = 0; i < map->move_count; i++)
		json_array_append_new(moves, json_pack("{s:i, s:i}", "shard", (int)map->moves[i].shard, "to",
						       map->moves[i].to < map->member_count
							       ? (int)map->members[map->moves[i].to].number
							       : 0));
	return moves;
}

static json_t *document(const struct cluster_map *map)
{
	json_t *members = json_array();

	for (uint32_t i = 0; i < map->member_count; i++)
		json_array_append_new(members, member_json(&map->members[i]));
	return json_pack("{s:i, s:s, s:s, s:s, s:o, s:I, s:i, s:o, s:o, s:o, s:o, s:o}", "format", CLUSTER_MAP_FORMAT,
			 "cluster", map->cluster, "pool", map->pool, "mode", map->cache ? "cache" : "store", "seed",
			 json_sprintf("%016llx", (unsigned long long)map->seed), "epoch", (json_int_t)map->epoch,
			 "shards", (int)map->shards, "members", members, "owners", owners_json(map), "since",
			 epochs_json(map->since, map->shards), "taken", epochs_json(map->taken, map->shards), "moves",
			 moves_json(map));
}

int cluster_map_write(const struct cluster_map *map, char **ret_text, size_t *ret_bytes)
{
	json_t *json = document(map);
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	struct cluster_map *again = NULL;
	size_t bytes;
	int rc;

	json_decref(json);
	if (!text)
		return err_set(-ENOMEM, "no memory for the map, or a name in it is no UTF-8");
	bytes = strlen(text);
	rc = cluster_map_parse(text, bytes, &again);
	cluster_map_free(again);
	if (rc < 0) {
		free(text);
		return rc;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	return 0;
}
