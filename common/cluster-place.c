/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-place.c - which member a shard should have: weighted rendezvous hashing
 *
 * Each member draws a number for each shard, exponentially distributed with its weight as rate: the
 * lowest one wins, so each wins in proportion to its weight, and a new member changes only what it
 * wins. In integers, for all machines must come to the same. Any thread. Next to read: cluster-map.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cluster-map.h"
#include "err.h"
#include "layout.h"
#include "shard.h"

#define FRACTION 24u /* bits of a logarithm behind the point */

uint32_t cluster_map_shard(const struct cluster_map *map, const void *key, size_t bytes)
{
	return shard_of(layout_hash_key(key, bytes, map->seed), map->shards);
}

/* -log2(x / 2^64) in units of 2^-FRACTION, rounded up: 1 to 64 << FRACTION. */
static uint64_t minus_log2(uint64_t x)
{
	uint64_t log, mantissa;
	unsigned int zeros;

	if (x == 0)
		return (uint64_t)64 << FRACTION;
	zeros = (unsigned int)__builtin_clzll(x);
	mantissa = (x << zeros) >> 32; /* 31 bits behind the point, in [1, 2) */
	log = 63 - zeros;
	for (unsigned int i = 0; i < FRACTION; i++) {
		mantissa = (mantissa * mantissa) >> 31;
		log <<= 1;
		if (mantissa >> 32) {
			log |= 1;
			mantissa >>= 1;
		}
	}
	return ((uint64_t)64 << FRACTION) - log;
}

static uint64_t draw(const struct cluster_map *map, const struct cluster_member *member,
		     uint32_t shard)
{
	unsigned char bytes[sizeof(shard) + CLUSTER_NAME_MAX];
	size_t length = strlen(member->name);

	for (unsigned int i = 0; i < sizeof(shard); i++)
		bytes[i] = (unsigned char)(shard >> (8 * i));
	memcpy(bytes + sizeof(shard), member->name, length);
	return minus_log2(XXH3_64bits_withSeed(bytes, sizeof(shard) + length, map->seed));
}

/* ---- regions --------------------------------------------------------------------------------- */

/* NAME@MEMBER is hashed: no name has an '@'. */
static uint64_t draw_region(const struct cluster_map *map, const struct cluster_member *member,
			    const char *name)
{
	char text[2 * CLUSTER_NAME_MAX + 64];
	int length = snprintf(text, sizeof(text), "%s@%s", name, member->name);
	size_t bytes = (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1;

	return minus_log2(XXH3_64bits_withSeed(text, bytes, map->seed));
}

/* Those that take nothing new come last. */
static bool takes(const struct cluster_member *member)
{
	return member->weight > 0 && member->state != CLUSTER_DRAINING;
}

/* Is `a` to be asked before `b`? */
static bool before(const struct cluster_map *map, const char *name, const struct cluster_member *a,
		   const struct cluster_member *b)
{
	uint64_t left, right;

	if (takes(a) != takes(b))
		return takes(a);
	left = draw_region(map, a, name) * (b->weight ? b->weight : 1);
	right = draw_region(map, b, name) * (a->weight ? a->weight : 1);
	return left != right ? left < right : a->number < b->number;
}

uint16_t cluster_map_region(const struct cluster_map *map, const char *name, uint32_t rank)
{
	for (uint16_t i = 0; i < map->member_count; i++) {
		uint32_t ahead = 0;

		if (map->members[i].state == CLUSTER_LEFT)
			continue;
		for (uint16_t j = 0; j < map->member_count && ahead <= rank; j++)
			ahead += j != i && map->members[j].state != CLUSTER_LEFT &&
				 before(map, name, &map->members[j], &map->members[i]);
		if (ahead == rank)
			return i;
	}
	return CLUSTER_NOBODY;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* room: of each member, 0 for those that get nothing. Returns a place in `members`. */
static uint16_t best(const struct cluster_map *map, const uint32_t *room, uint32_t shard)
{
	uint64_t lowest = 0, weight = 0;
	uint16_t winner = CLUSTER_NOBODY;

	for (uint16_t i = 0; i < map->member_count; i++) {
		const struct cluster_member *member = &map->members[i];
		uint64_t drawn;

		if (room[i] == 0)
			continue;
		drawn = draw(map, member, shard);
		/* drawn / member->weight < lowest / weight; equal: the lower number, whatever the
		 * order in the document */
		if (winner == CLUSTER_NOBODY || drawn * weight < lowest * member->weight ||
		    (drawn * weight == lowest * member->weight &&
		     member->number < map->members[winner].number)) {
			lowest = drawn;
			weight = member->weight;
			winner = i;
		}
	}
	return winner;
}

int cluster_place(const struct cluster_map *map, uint16_t *ret_owners)
{
	uint64_t total = 0;
	uint32_t *room;

	for (uint32_t i = 0; i < map->member_count; i++)
		if (map->members[i].state == CLUSTER_UP)
			total += map->members[i].weight;
	if (total == 0)
		return err_set(-EINVAL,
			       "members: none that is up has a weight above 0: one at least needs "
			       "a weight of 1 to %u",
			       CLUSTER_WEIGHT_MAX);
	room = calloc(map->member_count, sizeof(*room));
	if (room == NULL)
		return err_set(-ENOMEM, "no memory for %u members", map->member_count);
	/* rounded up, so there is room for all */
	for (uint32_t i = 0; i < map->member_count; i++)
		if (map->members[i].state == CLUSTER_UP && map->members[i].weight > 0)
			room[i] = (uint32_t)((uint64_t)map->shards * map->members[i].weight * 51 /
					     (50 * total)) +
				  1;
	for (uint32_t shard = 0; shard < map->shards; shard++) {
		ret_owners[shard] = best(map, room, shard);
		room[ret_owners[shard]]--;
	}
	free(room);
	return 0;
}
