/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-plan-moves.c - copies of maps, where each shard should be, and moves: from their beginning to
 * their end
 *
 * A shard of a store pool changes its owner by cluster_plan_switch() alone, at the end of a move. Any
 * thread. Next to read: common/cluster-place.c; cluster-plan.c; docs/protocol.md, section 11.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster-plan-internal.h"
#include "err.h"

/* ---- a map in the making --------------------------------------------------------------------- */

static void *copy_array(const void *from, size_t count, size_t room, size_t size)
{
	void *to = calloc(room + 1, size);

	if (to != NULL && count > 0)
		memcpy(to, from, count * size);
	return to;
}

int cluster_plan_addresses(struct cluster_member *to, const struct cluster_member *from)
{
	struct cluster_address *addresses = copy_array(from->addresses, from->address_count,
						       from->address_count, sizeof(*addresses));

	if (addresses == NULL)
		return err_set(-ENOMEM, "no memory for the map's addresses");
	free(to->addresses);
	to->addresses = addresses;
	to->address_count = from->address_count;
	return 0;
}

static int copy_members(struct cluster_map *to, const struct cluster_map *from)
{
	to->members = copy_array(from->members, from->member_count, from->member_count + 1,
				 sizeof(*to->members));
	if (to->members == NULL)
		return err_set(-ENOMEM, "no memory for the map's members");
	for (uint32_t i = 0; i < from->member_count; i++)
		to->members[i].addresses = NULL;
	to->member_count = from->member_count;
	for (uint32_t i = 0; i < from->member_count; i++)
		if (cluster_plan_addresses(&to->members[i], &from->members[i]) < 0)
			return -ENOMEM;
	return 0;
}

struct cluster_map *cluster_plan_copy(const struct cluster_map *map)
{
	struct cluster_map *next = malloc(sizeof(*next));

	if (next == NULL) {
		err_set(-ENOMEM, "no memory for a map");
		return NULL;
	}
	*next = *map;
	next->member_count = 0;
	next->members = NULL;
	next->epoch = map->epoch + 1;
	next->placed = false;
	next->owners = copy_array(map->owners, map->shards, map->shards, sizeof(*next->owners));
	next->since = copy_array(map->since, map->shards, map->shards, sizeof(*next->since));
	next->taken = copy_array(map->taken, map->shards, map->shards, sizeof(*next->taken));
	next->moves = copy_array(map->moves, map->move_count, map->shards, sizeof(*next->moves));
	if (next->owners == NULL || next->since == NULL || next->taken == NULL ||
	    next->moves == NULL || copy_members(next, map) < 0) {
		cluster_map_free(next);
		err_set(-ENOMEM, "no memory for a map");
		return NULL;
	}
	return next;
}

/* status: below 0, and the map is given up; else it is the caller's. */
int cluster_plan_finish(int status, struct cluster_map *next, struct cluster_map **ret_next)
{
	if (status < 0) {
		cluster_map_free(next);
		return status;
	}
	*ret_next = next;
	return 1;
}

uint32_t cluster_plan_owned(const struct cluster_map *map, uint16_t member)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < map->shards; i++)
		n += map->owners[i] == member;
	return n;
}

/* ---- where shards should be ------------------------------------------------------------------ */

/* Of each shard the member that should have it: one that is up, or, if a place is kept for them, down. */
static int place(const struct cluster_map *map, bool down_too, uint16_t *ret_owners)
{
	struct cluster_map with = *map;
	int status;

	with.members = copy_array(map->members, map->member_count, map->member_count,
				  sizeof(*with.members));
	if (with.members == NULL)
		return err_set(-ENOMEM, "no memory for the map's members");
	for (uint32_t i = 0; i < map->member_count && down_too; i++)
		if (with.members[i].state == CLUSTER_DOWN)
			with.members[i].state = CLUSTER_UP;
	status = cluster_place(&with, ret_owners);
	free(with.members);
	return status;
}

/*
 * Of each shard where it should be: a member that is up; or its owner, if it should be with one that
 * is down or nobody can take it. CLUSTER_NOBODY if it has no owner and nobody can take it.
 */
int cluster_plan_targets(const struct cluster_map *map, uint16_t **ret_targets)
{
	uint16_t *ideal = calloc(map->shards, sizeof(*ideal));
	uint16_t *now = calloc(map->shards, sizeof(*now));
	bool anybody;
	int status;

	if (ideal == NULL || now == NULL) {
		free(ideal);
		free(now);
		return err_set(-ENOMEM, "no memory for %u shards", map->shards);
	}
	status = place(map, false, now);
	anybody = status == 0;
	if (status != -ENOMEM)
		status = map->cache || !anybody ? 0 : place(map, true, ideal);
	for (uint32_t i = 0; i < map->shards && status == 0; i++) {
		uint16_t owner = map->owners[i];
		bool stays = owner != CLUSTER_NOBODY && map->members[owner].state == CLUSTER_UP;

		if (!anybody)
			now[i] = owner;
		else if (!map->cache && map->members[ideal[i]].state == CLUSTER_UP)
			now[i] = ideal[i];
		else if (!map->cache && stays)
			now[i] = owner;
	}
	free(ideal);
	if (status < 0)
		free(now);
	else
		*ret_targets = now;
	return status;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Of each shard where it moves to, or CLUSTER_NOBODY. The caller frees it. NULL with a text. */
static uint16_t *unpack_moves(const struct cluster_map *map)
{
	uint16_t *to = calloc(map->shards, sizeof(*to));

	if (to == NULL) {
		err_set(-ENOMEM, "no memory for %u shards", map->shards);
		return NULL;
	}
	for (uint32_t i = 0; i < map->shards; i++)
		to[i] = CLUSTER_NOBODY;
	for (uint32_t i = 0; i < map->move_count; i++)
		to[map->moves[i].shard] = map->moves[i].to;
	return to;
}

/*
 * What moves from now on. Ways that can not be are left out: to the owner, to or from nobody, to one
 * that is not up. Whatever ends here, in its source's place, gets a `since` of its own, so that source
 * and target can tell that attempt from the next one.
 */
static void pack_moves(struct cluster_map *next, uint16_t *to)
{
	for (uint32_t i = 0; i < next->shards; i++)
		if (to[i] != CLUSTER_NOBODY &&
		    (next->owners[i] == CLUSTER_NOBODY || to[i] == next->owners[i] ||
		     next->members[to[i]].state != CLUSTER_UP))
			to[i] = CLUSTER_NOBODY;
	for (uint32_t i = 0; i < next->move_count; i++)
		if (to[next->moves[i].shard] != next->moves[i].to)
			next->since[next->moves[i].shard] = next->epoch;
	next->move_count = 0;
	for (uint32_t i = 0; i < next->shards; i++)
		if (to[i] != CLUSTER_NOBODY)
			next->moves[next->move_count++] =
				(struct cluster_move){.shard = i, .to = to[i]};
}

static bool move_valid(const struct cluster_map *next, uint16_t to)
{
	return to != CLUSTER_NOBODY && next->members[to].state == CLUSTER_UP;
}

/*
 * Each shard to where it should be. What is under way to there already goes on; shards of members
 * that are down go on in their ways, too, for when these are back.
 */
int cluster_plan_move_all(struct cluster_map *next)
{
	uint16_t *to = unpack_moves(next), *wanted = NULL;
	int status = to == NULL ? -ENOMEM : cluster_plan_targets(next, &wanted);

	for (uint32_t i = 0; i < next->shards && status == 0; i++) {
		uint16_t owner = next->owners[i];
		bool down = owner != CLUSTER_NOBODY && next->members[owner].state == CLUSTER_DOWN;

		if (!down || (to[i] != CLUSTER_NOBODY && !move_valid(next, to[i])))
			to[i] = wanted[i];
	}
	if (status == 0)
		pack_moves(next, to);
	free(wanted);
	free(to);
	return status;
}

/*
 * Ways that have no end any more get another one, if their source has to leave, else they end. Who has to
 * leave gets a way for all that it has.
 */
int cluster_plan_repair(struct cluster_map *next)
{
	uint16_t *to = unpack_moves(next), *wanted = NULL;
	int status = to == NULL ? -ENOMEM : cluster_plan_targets(next, &wanted);

	for (uint32_t i = 0; i < next->shards && status == 0; i++) {
		uint16_t owner = next->owners[i];
		bool leaves =
			owner != CLUSTER_NOBODY && next->members[owner].state == CLUSTER_DRAINING;
		bool left = owner != CLUSTER_NOBODY && to[i] != CLUSTER_NOBODY &&
			    next->members[owner].state == CLUSTER_DOWN;

		if (!move_valid(next, to[i]))
			to[i] = leaves || left ? wanted[i] : CLUSTER_NOBODY;
	}
	if (status == 0)
		pack_moves(next, to);
	free(wanted);
	free(to);
	return status;
}

bool cluster_plan_leaves(const struct cluster_map *map, uint16_t member)
{
	uint32_t moving = 0;

	for (uint32_t i = 0; i < map->move_count; i++)
		moving += map->owners[map->moves[i].shard] == member;
	return moving > 0 && moving == cluster_plan_owned(map, member);
}

static bool same_moves(const struct cluster_map *a, const struct cluster_map *b)
{
	for (uint32_t i = 0; i < a->move_count && a->move_count == b->move_count; i++)
		if (a->moves[i].shard != b->moves[i].shard || a->moves[i].to != b->moves[i].to)
			return false;
	return a->move_count == b->move_count;
}

/* With the moves of the next map, unless they are what they were. */
int cluster_plan_finish_moves(int status, const struct cluster_map *map, struct cluster_map *next,
			      struct cluster_map **ret_next)
{
	if (status == 0 && same_moves(map, next)) {
		cluster_map_free(next);
		return 0;
	}
	return cluster_plan_finish(status, next, ret_next);
}

void cluster_plan_release(struct cluster_map *next)
{
	for (uint32_t i = 0; i < next->move_count && next->cache; i++) {
		uint32_t shard = next->moves[i].shard;

		next->owners[shard] = CLUSTER_NOBODY;
		next->since[shard] = next->taken[shard] = next->epoch;
	}
	if (next->cache)
		next->move_count = 0;
}
