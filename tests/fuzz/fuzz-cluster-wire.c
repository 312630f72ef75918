/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-cluster-wire.c - libFuzzer target: the map of a cluster as bytes of a stranger's
 *
 * The input is the map without its checksum, which is put behind it: else none would ever get past that. What is taken
 * must keep the promises of cluster-map.h, and give the same bytes again.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/cluster-wire.h"
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
		    member->state >= CLUSTER_STATES || cluster_map_find(map, member->name) != (int)i)
			abort();
	}
}

static void check_shards(const struct cluster_map *map)
{
	if (map->shards < CLUSTER_SHARDS_MIN || map->shards > CLUSTER_SHARDS_MAX ||
	    (map->shards & (map->shards - 1)) != 0 || map->move_count > map->shards)
		abort();
	for (uint32_t i = 0; i < map->shards; i++)
		if ((map->owners[i] != CLUSTER_NOBODY && map->owners[i] >= map->member_count) ||
		    map->since[i] == 0 || map->since[i] > map->epoch ||
		    map->taken[i] > map->since[i])
			abort();
	for (uint32_t i = 0; i < map->move_count; i++)
		if (map->moves[i].shard >= map->shards || map->moves[i].to >= map->member_count ||
		    map->moves[i].to == map->owners[map->moves[i].shard])
			abort();
}

/* Reserved bits are refused, so a map has one form. */
static void check_again(const struct cluster_map *map, const uint8_t *bytes, size_t count)
{
	uint8_t *again = malloc(count);
	size_t written;

	if (again == NULL || cluster_wire_encode(map, again, count, &written) < 0 ||
	    written != count || memcmp(again, bytes, count) != 0)
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *all = malloc(bytes + 8);
	struct cluster_map *map;
	uint64_t sum;

	if (all == NULL)
		return 0;
	memcpy(all, data, bytes);
	/* and its length, where there is one */
	for (unsigned int i = 0; bytes >= 12 && i < 4; i++)
		all[8 + i] = (uint8_t)((bytes + 8) >> (8 * i));
	sum = XXH3_64bits(all, bytes);
	for (unsigned int i = 0; i < 8; i++)
		all[bytes + i] = (uint8_t)(sum >> (8 * i));
	err_clear();
	if (cluster_wire_decode(all, bytes + 8, &map) == 0) {
		check_members(map);
		check_shards(map);
		check_again(map, all, bytes + 8);
		cluster_map_free(map);
	} else if (err_text()[0] == '\0') {
		abort();
	}
	free(all);
	return 0;
}
