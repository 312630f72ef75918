/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-map.c - the map of a cluster as a struct: its names, and its end
 *
 * Any thread; no state. It is made by cluster-map-json.c from the document, or by cluster-wire.c from
 * what a member has sent. Next to read: cluster-place.c, docs/protocol.md section 11.
 */
#include "cluster-map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"

static const char *const state_names[CLUSTER_STATES] = {"up", "draining", "down", "left"};

const char *cluster_state_name(enum cluster_state state)
{
	return state_names[state];
}

bool cluster_name_valid(const char *name)
{
	size_t n =
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n > 0 && n <= CLUSTER_NAME_MAX && name[n] == '\0';
}

int cluster_map_find(const struct cluster_map *map, const char *name)
{
	for (uint32_t i = 0; i < map->member_count; i++)
		if (strcmp(map->members[i].name, name) == 0)
			return (int)i;
	return err_set(-ENOENT, "no member '%s' in the map of cluster '%s'", name, map->cluster);
}

const struct cluster_address *cluster_address_next(const struct cluster_address *addresses, uint32_t count, uint32_t *at)
{
	while (*at < 2 * count) {
		bool shm = *at < count;
		const struct cluster_address *address = &addresses[*at % count];

		*at += 1;
		if (address->shm == shm && (!shm || access(address->text, F_OK) == 0))
			return address;
	}
	return NULL;
}

int cluster_map_expect(const struct cluster_map *map, const char *cluster)
{
	if (strcmp(map->cluster, cluster) == 0)
		return 0;
	return err_set(-EINVAL, "cluster is \"%s\": this is the map of another cluster than '%s'",
		       map->cluster, cluster);
}

void cluster_map_free(struct cluster_map *map)
{
	if (map == NULL)
		return;
	for (uint32_t i = 0; i < map->member_count; i++)
		free(map->members[i].addresses);
	free(map->members);
	free(map->owners);
	free(map->since);
	free(map->taken);
	free(map->moves);
	free(map);
}
