/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides, from the devices that a pool's listeners are on, its atomic domain (docs/protocol.md
 * section 1), its NUMA node, and the pieces in which it is registered. Pure functions; daemon.c and
 * registration.c call them.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "err.h"
#include "place.h"

#define PIECE_ALIGN (2ull << 20)

/* What a pool's listeners have in common. */
struct survey {
	const struct config_listen *unix_listener;     /* the first one */
	const struct config_listen *absent;            /* RDMA without its device */
	const struct verbs_device *device, *other;     /* the first, and one that is not the same */
	const struct config_listen *listener, *second; /* theirs */
};

static struct survey survey(const struct config *config, const struct config_pool *pool,
			    const struct verbs_device *const *devices)
{
	struct survey found = {0};

	for (size_t i = 0; i < config->listen_count; i++) {
		const struct config_listen *listen = &config->listens[i];

		if (!config_pool_offered(pool, listen))
			continue;
		if (!devices[i] && config_listen_rdma(listen)) {
			found.absent = listen;
		} else if (!devices[i]) {
			if (!found.unix_listener)
				found.unix_listener = listen;
		} else if (!found.device) {
			found.device = devices[i];
			found.listener = listen;
		} else if (!found.other && strcmp(devices[i]->name, found.device->name) != 0) {
			found.other = devices[i];
			found.second = listen;
		}
	}
	return found;
}

/* Can it be the device? Says why, or why not. */
static bool nic_possible(const struct survey *found, char *reason, size_t bytes)
{
	if (found->absent)
		snprintf(reason, bytes, "the device of [listen %s] is not there",
			 found->absent->name);
	else if (!found->device)
		snprintf(reason, bytes, "the pool has no RDMA listener");
	else if (found->unix_listener)
		snprintf(reason, bytes,
			 "the pool is offered at the unix socket of [listen %s], too",
			 found->unix_listener->name);
	else if (found->other)
		snprintf(reason, bytes, "its listeners are on two devices, %s and %s",
			 found->device->name, found->other->name);
	else if (!found->device->atomics)
		snprintf(reason, bytes, "%s has no atomics%s", found->device->name,
			 found->device->iwarp ? " (iWARP)" : "");
	else {
		snprintf(reason, bytes, "%s has atomics and is the only way to the pool",
			 found->device->name);
		return true;
	}
	return false;
}

static int domain(const struct config_pool *pool, const struct survey *found, struct place *place)
{
	bool possible = nic_possible(found, place->pool.why, sizeof(place->pool.why));

	place->pool.atomics = LAYOUT_ATOMICS_CPU;
	switch ((enum config_atomics)pool->atomics.number) {
	case CONFIG_ATOMICS_CPU:
		snprintf(place->pool.why, sizeof(place->pool.why), "atomics = cpu is set");
		return 0;
	case CONFIG_ATOMICS_NIC:
		if (!possible)
			return err_set(
				-EINVAL,
				"atomics = nic: can not be: %s; it needs RDMA listeners on "
				"one device with atomics and no other: name them in `listen`, "
				"or choose auto or cpu",
				place->pool.why);
		place->pool.atomics = LAYOUT_ATOMICS_NIC;
		return 0;
	case CONFIG_ATOMICS_AUTO:
		if (possible)
			place->pool.atomics = LAYOUT_ATOMICS_NIC;
		return 0;
	}
	return 0;
}

static void node(const struct config_pool *pool, const struct survey *found, struct place *place)
{
	int set = (int)pool->numa_node.number,
	    devices = found->device && !found->other ? found->device->numa_node : -1;

	place->pool.numa_node = set >= 0 ? set : devices;
	if (set >= 0 && devices >= 0 && set != devices)
		snprintf(
			place->warning, sizeof(place->warning),
			"numa_node = %d, but %s is on node %d: each access crosses the processors' "
			"link; numa_node = %d would be faster",
			set, found->device->name, devices, devices);
}

int place_decide(const struct config *config, const struct config_pool *pool,
		 const struct verbs_device *const *devices, struct place *ret_place)
{
	struct survey found = survey(config, pool, devices);
	struct place place = {0};
	int rc = domain(pool, &found, &place);

	if (rc < 0)
		return rc;
	node(pool, &found, &place);
	*ret_place = place;
	return 0;
}

uint64_t place_piece_bytes(uint64_t device_limit, uint64_t setting)
{
	uint64_t limit = setting && setting < device_limit ? setting : device_limit;

	/* A setting below the step is taken as the step; what the device can not do it can not. */
	if (setting && limit < PIECE_ALIGN && device_limit >= PIECE_ALIGN)
		return PIECE_ALIGN;
	return limit / PIECE_ALIGN * PIECE_ALIGN;
}

uint64_t place_pieces(uint64_t pool_bytes, uint64_t piece_bytes)
{
	return pool_bytes / piece_bytes + (pool_bytes % piece_bytes != 0);
}
