/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-plan.c - the next map of a cluster: what a member that comes, goes or is sent away changes
 *
 * Everything here is arithmetic on a copy of the map. Who writes it, and when, is not known here: two
 * members may plan the same thing, and one of them will be refused. What is wished only adds and removes
 * moves. Any thread. Next to read: cluster-plan-moves.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster-plan-internal.h"
#include "err.h"

/* ---- members --------------------------------------------------------------------------------- */

int cluster_plan_first(const struct cluster_plan_first *first, const struct cluster_member *self,
		       struct cluster_map **ret_next)
{
	struct cluster_map none = {
		.shards = first->shards, .seed = first->seed, .cache = first->cache};
	struct cluster_map *next;
	int status;

	if (self->weight == 0)
		return err_set(
			-EINVAL,
			"the first member of cluster '%s' has the weight 0: it needs one of 1 "
			"to %u, since it owns all shards until others come",
			first->cluster, CLUSTER_WEIGHT_MAX);
	none.owners = calloc(first->shards, sizeof(*none.owners));
	none.since = none.taken = calloc(first->shards, sizeof(*none.since));
	next = none.owners == NULL || none.since == NULL ? NULL : cluster_plan_copy(&none);
	free(none.owners);
	free(none.since);
	if (next == NULL)
		return err_set(-ENOMEM, "no memory for a map");
	strcpy(next->cluster, first->cluster);
	strcpy(next->pool, first->pool);
	next->members[0] = *self;
	next->members[0].addresses = NULL;
	next->members[0].number = 1;
	next->members[0].state = CLUSTER_UP;
	next->member_count = 1;
	for (uint32_t i = 0; i < next->shards; i++)
		next->since[i] = next->epoch;
	status = cluster_plan_addresses(&next->members[0], self);
	return cluster_plan_finish(status, next, ret_next);
}

static uint32_t free_number(const struct cluster_map *map)
{
	uint32_t highest = 0;

	for (uint32_t i = 0; i < map->member_count; i++)
		if (map->members[i].number > highest)
			highest = map->members[i].number;
	return highest + 1;
}

static int add_member(struct cluster_map *next, const struct cluster_member *self)
{
	uint32_t number = free_number(next);
	struct cluster_member *member = &next->members[next->member_count];

	if (number > CLUSTER_MEMBERS_MAX)
		return err_set(
			-EINVAL,
			"member '%s' can not join cluster '%s': all numbers to %u have been "
			"given, and none is given twice; let it join by the name of a member "
			"that has left",
			self->name, next->cluster, CLUSTER_MEMBERS_MAX);
	*member = *self;
	member->addresses = NULL;
	member->number = (uint16_t)number;
	member->state = CLUSTER_UP;
	next->member_count++;
	return cluster_plan_addresses(member, self);
}

static bool same_addresses(const struct cluster_member *a, const struct cluster_member *b)
{
	if (a->address_count != b->address_count)
		return false;
	for (uint32_t i = 0; i < a->address_count; i++)
		if (a->addresses[i].shm != b->addresses[i].shm ||
		    strcmp(a->addresses[i].text, b->addresses[i].text) != 0)
			return false;
	return true;
}

/* A member that is back. Its moves are as they were: its hand-overs know that they begin anew. */
static int rejoin(struct cluster_map *next, uint16_t member)
{
	struct cluster_member *back = &next->members[member];

	if (back->state == CLUSTER_UP || back->state == CLUSTER_DRAINING)
		return 0;
	back->state = cluster_plan_leaves(next, member) ? CLUSTER_DRAINING : CLUSTER_UP;
	return cluster_plan_move_all(next);
}

static int find_quietly(const struct cluster_map *map, const char *name)
{
	for (uint32_t i = 0; i < map->member_count; i++)
		if (strcmp(map->members[i].name, name) == 0)
			return (int)i;
	return -1;
}

int cluster_plan_join(const struct cluster_map *map, const struct cluster_member *self,
		      struct cluster_map **ret_next)
{
	int place = find_quietly(map, self->name), status;
	const struct cluster_member *known = place < 0 ? NULL : &map->members[place];
	struct cluster_map *next;

	if (known != NULL && (known->state == CLUSTER_UP || known->state == CLUSTER_DRAINING) &&
	    known->weight == self->weight && same_addresses(known, self))
		return 0;
	next = cluster_plan_copy(map);
	if (next == NULL)
		return -ENOMEM;
	if (known == NULL) {
		status = add_member(next, self);
		if (status == 0)
			status = cluster_plan_move_all(next);
		return cluster_plan_finish(status, next, ret_next);
	}
	next->members[place].weight = self->weight;
	status = cluster_plan_addresses(&next->members[place], self);
	if (status == 0)
		status = rejoin(next, (uint16_t)place);
	return cluster_plan_finish(status, next, ret_next);
}

/* Nobody owns what it has. A client's write that is under way there is ambiguous from now on. */
static void disown(struct cluster_map *next, uint16_t member)
{
	for (uint32_t i = 0; i < next->shards; i++) {
		if (next->owners[i] != member)
			continue;
		next->owners[i] = CLUSTER_NOBODY;
		next->since[i] = next->taken[i] = next->epoch;
	}
}

/* What becomes of those who have no lease. Returns how many these are. */
static uint32_t lose(struct cluster_map *next, const bool *alive)
{
	uint32_t lost = 0;

	for (uint16_t i = 0; i < next->member_count; i++) {
		struct cluster_member *member = &next->members[i];

		if (alive[i] || member->state == CLUSTER_DOWN || member->state == CLUSTER_LEFT)
			continue;
		member->state =
			member->state == CLUSTER_DRAINING && cluster_plan_owned(next, i) == 0
				? CLUSTER_LEFT
				: CLUSTER_DOWN;
		if (next->cache)
			disown(next, i);
		lost++;
	}
	return lost;
}

int cluster_plan_tend(const struct cluster_map *map, const bool *alive,
		      struct cluster_map **ret_next)
{
	struct cluster_map *next = cluster_plan_copy(map);
	uint32_t lost;
	int status;

	if (next == NULL)
		return -ENOMEM;
	lost = lose(next, alive);
	status = cluster_plan_repair(next);
	return lost > 0 ? cluster_plan_finish(status, next, ret_next)
			: cluster_plan_finish_moves(status, map, next, ret_next);
}

/* ---- what operators wish --------------------------------------------------------------------- */

/* Is there another member that is up and has a weight? */
static bool others(const struct cluster_map *map, uint16_t member)
{
	for (uint16_t i = 0; i < map->member_count; i++)
		if (i != member && map->members[i].state == CLUSTER_UP &&
		    map->members[i].weight > 0)
			return true;
	return false;
}

static int not_now(const struct cluster_map *map, uint16_t member, const char *what,
		   const char *remedy)
{
	return err_set(-EINVAL, "member '%s' of cluster '%s' is %s and can not be %s: %s",
		       map->members[member].name, map->cluster,
		       cluster_state_name(map->members[member].state), what, remedy);
}

int cluster_plan_drain(const struct cluster_map *map, const char *name,
		       struct cluster_map **ret_next)
{
	int place = cluster_map_find(map, name);
	struct cluster_map *next;
	uint16_t member = (uint16_t)place;

	if (place < 0)
		return place;
	if (map->members[member].state == CLUSTER_DRAINING)
		return 0;
	if (map->members[member].state == CLUSTER_DOWN)
		return not_now(map, member, "drained",
			       "start its daemon, or, if its keys are lost, `tarn forget` it");
	if (map->members[member].state == CLUSTER_LEFT)
		return not_now(map, member, "drained", "it owns nothing");
	if (!others(map, member))
		return err_set(
			-EINVAL,
			"member '%s' can not be drained: no other member of cluster '%s' is up "
			"and has a weight above 0, so nobody could take its shards",
			name, map->cluster);
	next = cluster_plan_copy(map);
	if (next == NULL)
		return -ENOMEM;
	next->members[member].state = CLUSTER_DRAINING;
	return cluster_plan_finish(cluster_plan_move_all(next), next, ret_next);
}

int cluster_plan_undrain(const struct cluster_map *map, const char *name,
			 struct cluster_map **ret_next)
{
	int place = cluster_map_find(map, name);
	struct cluster_map *next;
	uint16_t member = (uint16_t)place;

	if (place < 0)
		return place;
	if (map->members[member].state == CLUSTER_UP)
		return 0;
	if (map->members[member].state != CLUSTER_DRAINING)
		return not_now(map, member, "undrained",
			       "start its daemon, which lets it join again");
	next = cluster_plan_copy(map);
	if (next == NULL)
		return -ENOMEM;
	next->members[member].state = CLUSTER_UP;
	return cluster_plan_finish(cluster_plan_move_all(next), next, ret_next);
}

int cluster_plan_rebalance(const struct cluster_map *map, struct cluster_map **ret_next)
{
	struct cluster_map *next;

	if (!others(map, CLUSTER_NOBODY))
		return err_set(
			-EINVAL,
			"cluster '%s' can not be rebalanced: no member is up and has a weight "
			"above 0",
			map->cluster);
	next = cluster_plan_copy(map);
	if (next == NULL)
		return -ENOMEM;
	return cluster_plan_finish_moves(cluster_plan_move_all(next), map, next, ret_next);
}

int cluster_plan_forget(const struct cluster_map *map, const char *name, bool alive,
			struct cluster_map **ret_next)
{
	int place = cluster_map_find(map, name);
	uint16_t member = (uint16_t)place;
	enum cluster_state state;
	struct cluster_map *next;

	if (place < 0)
		return place;
	state = map->members[member].state;
	if (state == CLUSTER_LEFT)
		return 0;
	if (alive || state != CLUSTER_DOWN)
		return err_set(
			-EINVAL,
			"member '%s' of cluster '%s' is %s and can not be forgotten: `tarn "
			"drain` it, which loses nothing, or end its daemon and wait until it "
			"is down",
			name, map->cluster,
			state == CLUSTER_DOWN ? "alive" : cluster_state_name(state));
	if (!others(map, member) && cluster_plan_owned(map, member) > 0)
		return err_set(
			-EINVAL,
			"member '%s' can not be forgotten: no other member of cluster '%s' is "
			"up and has a weight above 0, so nobody could take its shards",
			name, map->cluster);
	next = cluster_plan_copy(map);
	if (next == NULL)
		return -ENOMEM;
	next->members[member].state = CLUSTER_LEFT;
	disown(next, member);
	return cluster_plan_finish(cluster_plan_repair(next), next, ret_next);
}

int cluster_plan_takes(const struct cluster_map *map, uint16_t member, bool *ret_takes)
{
	uint16_t *wanted;
	int n = 0, status = cluster_plan_targets(map, &wanted);

	if (status < 0)
		return status;
	for (uint32_t i = 0; i < map->shards; i++) {
		ret_takes[i] = map->owners[i] == CLUSTER_NOBODY && wanted[i] == member;
		n += ret_takes[i];
	}
	free(wanted);
	return n;
}
