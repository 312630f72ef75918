/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member-etcd.c - a member whose map is in etcd: it joins, says who is gone, takes what nobody owns, and fences itself
 *
 * Main thread. Each change is a whole next map (cluster-plan.h) that is written if the epoch is still that of the map in use;
 * whoever is refused sees the newer map and plans again. In a cache pool what has to move is owned by nobody first, and then taken by
 * who should have it, when clients have stopped to use the old map. Next to read: member.c, membership.h, handover.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "clock.h"
#include "cluster-plan.h"
#include "cluster-publish.h"
#include "err.h"
#include "events.h"
#include "keeper.h"
#include "member-internal.h"
#include "pool.h"
#include "reload-keys.h"
#include "service.h"
#include "shards.h"

#define EXTEND_US  60000000u
#define TICK_PARTS 16 /* of map_bound: how often clients are told how new the map is */

/* ---- writing ---- */

static enum handover_outcome outcome_of(enum membership_outcome outcome)
{
	switch (outcome) {
	case MEMBERSHIP_WRITTEN:
		return HANDOVER_WRITTEN;
	case MEMBERSHIP_REFUSED:
		return HANDOVER_REFUSED;
	case MEMBERSHIP_UNKNOWN:
		break;
	}
	return HANDOVER_UNKNOWN;
}

static void on_handover_written(void *arg, enum membership_outcome outcome, const char *text)
{
	struct member *member = arg;

	(void)text;
	handover_written(member->handover, outcome_of(outcome));
	event_active(member->timer, EV_TIMEOUT, 0);
}

/*
 * Who should have a shard may be another one by now than when this member was told to take it: then it is left to that one.
 * Returns how many changes are left, or -ENOMEM.
 */
static int leave_others(const struct member *member, struct handover_write *write)
{
	bool *takes = calloc(member->map->shards, sizeof(*takes));
	int rc = takes ? cluster_plan_takes(member->map, (uint16_t)member_find(member->map, member->self.name), takes)
		       : -ENOMEM;
	uint32_t kept = 0;

	for (uint32_t i = 0; rc >= 0 && i < write->count; i++)
		if (write->changes[i].what != HANDOVER_TAKE || takes[write->changes[i].shard])
			write->changes[kept++] = write->changes[i];
	write->count = kept;
	free(takes);
	return rc < 0 ? rc : (int)kept;
}

static int write_changes(struct member *member, struct handover_write *write)
{
	const char *if_member = write->if_member != HANDOVER_NOBODY ? member_name(member, write->if_member) : NULL;
	struct cluster_map *next;
	int rc = leave_others(member, write);

	if (rc <= 0)
		return rc < 0 ? rc : -EAGAIN;
	if (write->if_member != HANDOVER_NOBODY && !if_member)
		return -EAGAIN;
	next = member_map_copy(member->map);
	if (!next)
		return -ENOMEM;
	rc = handover_apply(write, next);
	next->epoch++;
	if (rc == 0)
		rc = membership_write(member->membership, next, write->if_epoch, if_member, write->if_boot_id,
				      on_handover_written, member);
	cluster_map_free(next);
	return rc;
}

int member_write(struct member *member, const struct handover_write *write)
{
	struct handover_write ours = *write;
	int rc;

	if (!member->held || write->if_epoch != member->map->epoch)
		return -EAGAIN;
	ours.changes = calloc(write->count, sizeof(*ours.changes));
	if (!ours.changes)
		return -ENOMEM;
	memcpy(ours.changes, write->changes, write->count * sizeof(*ours.changes));
	rc = write_changes(member, &ours);
	free(ours.changes);
	return rc;
}

/* The map that is in use is planned with again when a newer one comes, or this one has been refused. */
static void on_planned(void *arg, enum membership_outcome outcome, const char *text)
{
	struct member *member = arg;

	member->planning = false;
	member->news = true;
	if (outcome != MEMBERSHIP_WRITTEN)
		log_info(member->log, "cluster %s: a change of the map was not made: %s", member->config_name, text);
}

/* Takes `next` over. status: of a plan. */
static int write_plan(struct member *member, int status, struct cluster_map *next)
{
	uint64_t if_epoch = member->map ? member->map->epoch : 0;
	int rc;

	if (status <= 0)
		return status;
	cluster_plan_release(next);
	rc = membership_write(member->membership, next, if_epoch, NULL, 0, on_planned, member);
	cluster_map_free(next);
	member->planning = rc == 0;
	return rc;
}

/* ---- what has to be done ---- */

static struct cluster_member as_member(const struct member *member, struct cluster_address *addresses)
{
	struct cluster_member self = {
		.weight = member->self.weight,
		.address_count = member->self.address_count,
		.addresses = addresses,
	};

	snprintf(self.name, sizeof(self.name), "%s", member->self.name);
	memcpy(addresses, member->self.addresses, sizeof(member->self.addresses));
	return self;
}

static bool *alive_of(const struct member *member)
{
	bool *alive = calloc(member->map->member_count, sizeof(*alive));

	for (uint32_t i = 0; alive && i < member->map->member_count; i++) {
		const char *name = member->map->members[i].name;

		alive[i] = strcmp(name, member->self.name) == 0;
		for (unsigned int j = 0; j < member->alive_count && !alive[i]; j++)
			alive[i] = strcmp(name, member->alive[j].name) == 0;
	}
	return alive;
}

/* Without owner, and this member's by right: its hand-overs empty and take them. */
static int claim(struct member *member, uint16_t place)
{
	bool *takes = calloc(member->map->shards, sizeof(*takes));
	int count = takes ? cluster_plan_takes(member->map, place, takes) : -ENOMEM;

	for (uint32_t i = 0; count > 0 && i < member->map->shards; i++)
		if (takes[i])
			handover_take(member->handover, i);
	free(takes);
	return count;
}

static int tend(struct member *member)
{
	struct cluster_map *next = NULL;
	bool *alive = alive_of(member);
	int rc = alive ? cluster_plan_tend(member->map, alive, &next) : -ENOMEM;

	free(alive);
	return write_plan(member, rc, next);
}

static int do_next(struct member *member)
{
	struct cluster_address addresses[CLUSTER_ADDRESSES_MAX];
	struct cluster_member self = as_member(member, addresses);
	struct cluster_map *next = NULL;
	int rc = cluster_plan_join(member->map, &self, &next);

	if (rc != 0)
		return write_plan(member, rc, next);
	if (!member->handover)
		return 0;
	rc = member->alive_count > 0 ? tend(member) : 0;
	if (rc < 0 || member->planning)
		return rc;
	rc = claim(member, (uint16_t)member_find(member->map, member->self.name));
	if (rc > 0)
		event_active(member->timer, EV_TIMEOUT, 0);
	return rc;
}

/*
 * What this member can do for the cluster, when it is news that there may be something: one thing at a time, for each changes the
 * map. Not before the pool is there, since others count on who has joined.
 */
static void consider(struct member *member)
{
	int rc;

	if (!member->held || member->planning || !member->map || !member->pool || !member->news)
		return;
	member->news = false;
	rc = do_next(member);
	if (rc < 0 && rc != member->complained)
		log_warning(member->log, "cluster %s: %s", member->config_name, err_text());
	member->complained = rc < 0 ? rc : 0;
	member->news = member->news || rc < 0;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct member *member = arg;
	uint64_t confirmed;

	(void)fd;
	(void)what;
	if (!member->handover) {
		service_extend(EXTEND_US);
	} else if (member->held && membership_held(member->membership)) {
		(void)membership_map(member->membership, &confirmed);
		cluster_publish_confirm(member->pool, confirmed);
	}
	consider(member);
}

/* ---- what membership tells ---- */

void member_etcd_map(struct member *member, const struct cluster_map *map)
{
	struct cluster_map *copy;

	member->none = !map;
	member->news = true;
	if (!map)
		return;
	if (!member->handover) {
		copy = member_map_copy(map);
		if (!copy)
			return;
		cluster_map_free(member->map);
		member->map = copy;
	} else if (member->held && (map->epoch != member->map->epoch || member->fenced)) {
		member_map_decided(member, map, member_map_fits(member, map));
		member->fenced = false;
	}
	consider(member);
}

void member_etcd_records(struct member *member, const struct membership_record *records, unsigned int count)
{
	struct membership_record *copy = calloc(count + 1, sizeof(*copy));

	if (!copy)
		return;
	if (count > 0)
		memcpy(copy, records, count * sizeof(*copy));
	free(member->alive);
	member->alive = copy;
	member->alive_count = count;
	member->news = true;
	consider(member);
}

/* Connections first: what they have posted must not be done any more. */
static void fence(struct member *member)
{
	struct pool *pool = member->pool;

	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		if (pool->clients[slot].state == LAYOUT_CLIENT_LIVE && pool->clients[slot].cut)
			reload_cut(&pool->clients[slot], "this member has lost its lease");
	shards_gone(keeper_shards(pool->keeper));
	cluster_publish_withdraw(pool);
	handover_fence(member->handover);
}

void member_etcd_lost(struct member *member, const char *why)
{
	if (!member->held)
		return;
	member->held = false;
	if (!member->handover)
		return;
	fence(member);
	member->fenced = true;
	events_tell(member->daemon->events, EVENT_cluster_fenced, EVENT_FIELDS(.pool = member->pool->name),
		    "cluster %s: the lease is lost, nobody is served until there is a new one: %s", member->config_name, why);
}

void member_etcd_regained(struct member *member)
{
	uint64_t confirmed;

	member->held = true;
	member->held_ns = clock_boottime_ns();
	if (member->fenced)
		events_tell(member->daemon->events, EVENT_cluster_lease, EVENT_FIELDS(.pool = member->pool->name),
			    "cluster %s: there is a new lease", member->config_name);
	member_etcd_map(member, membership_map(member->membership, &confirmed));
}

/* ---- the beginning ---- */

static int first_map(struct member *member)
{
	const struct config *config = member->daemon->config;
	const struct config_pool *pool = &config->pools[member->pool_index];
	struct cluster_plan_first first = {
		.cluster = member->config_name,
		.pool = pool->name,
		.cache = pool->mode.number == CONFIG_MODE_CACHE,
		.seed = auth_random(),
		.shards = MEMBER_SHARDS,
	};
	struct cluster_address addresses[CLUSTER_ADDRESSES_MAX];
	struct cluster_member self = as_member(member, addresses);
	struct cluster_map *next = NULL;
	int rc = cluster_plan_first(&first, &self, &next);

	return write_plan(member, rc, next);
}

/* In the loop, since nothing can be made before: systemd is told that it goes on. */
static int wait_for(struct member *member, bool (*there)(const struct member *member), const char *what)
{
	bool told = false;

	while (!there(member)) {
		if (member->none && member->held && !member->planning) {
			int rc = first_map(member);

			if (rc < 0)
				return rc;
		}
		if (!told) {
			log_notice(member->log, "cluster %s: waiting for %s", member->config_name, what);
			service_status("waiting for %s", what);
		}
		told = true;
		if (event_base_loop(member->daemon->base, EVLOOP_ONCE) < 0 || member->daemon->stopping)
			return err_set(-ECANCELED, "stopped while waiting for %s", what);
	}
	return 0;
}

static bool has_map(const struct member *member)
{
	return member->held && member->map;
}

static bool has_joined(const struct member *member)
{
	int place = member->map ? member_find(member->map, member->self.name) : -1;
	uint64_t confirmed;

	/* a switch that an earlier process was ready for can not be made any more when this map is read: its record is gone */
	if (place < 0 || !member->held || !membership_map(member->membership, &confirmed) || confirmed <= member->held_ns)
		return false;
	return member->map->epoch == membership_map(member->membership, &confirmed)->epoch &&
	       (member->map->members[place].state == CLUSTER_UP ||
		member->map->members[place].state == CLUSTER_DRAINING);
}

int member_etcd_open(struct member *member)
{
	uint64_t tick_us = (uint64_t)member->daemon->config->cluster.map_bound.number / 1000 / TICK_PARTS;
	const struct timeval tick = {.tv_sec = (time_t)(tick_us / 1000000), .tv_usec = (suseconds_t)(tick_us % 1000000)};

	member->tick = event_new(member->daemon->base, -1, EV_PERSIST, on_tick, member);
	if (!member->tick || event_add(member->tick, &tick) < 0)
		return err_set(-ENOMEM, "out of memory");
	return wait_for(member, has_map, "a lease and the map from etcd");
}

int member_etcd_join(struct member *member)
{
	int rc;

	member->news = true;
	consider(member);
	rc = wait_for(member, has_joined, "a place in the cluster");
	if (rc < 0)
		return rc;
	member->self.number = member->map->members[member_find(member->map, member->self.name)].number;
	return membership_reload(member->membership, &member->daemon->config->cluster, &member->self);
}

void member_etcd_changed(struct member *member)
{
	member->news = true;
	consider(member);
}

/* ---- what operators wish ---- */

static void on_wished(void *arg, enum membership_outcome outcome, const char *text)
{
	struct member_wish *wish = arg;

	wish->outcome = outcome_of(outcome);
	wish->done = true;
	snprintf(wish->text, sizeof(wish->text), "%s", text ? text : "");
}

static int plan_wish(const struct member *member, enum member_verb verb, const char *name, struct cluster_map **ret_next)
{
	bool alive = false;

	for (unsigned int i = 0; i < member->alive_count; i++)
		alive = alive || (name && strcmp(member->alive[i].name, name) == 0);
	switch (verb) {
	case MEMBER_DRAIN:
		return cluster_plan_drain(member->map, name, ret_next);
	case MEMBER_UNDRAIN:
		return cluster_plan_undrain(member->map, name, ret_next);
	case MEMBER_REBALANCE:
		return cluster_plan_rebalance(member->map, ret_next);
	case MEMBER_FORGET:
		return cluster_plan_forget(member->map, name, alive, ret_next);
	}
	return -EINVAL;
}

int member_wish(struct member *member, enum member_verb verb, const char *name, bool dry_run, struct member_wish_begun *ret_begun)
{
	struct member_wish *wish = &member->wishes[(member->wish_number + 1) % MEMBER_WISHES];
	struct member_wish_begun begun = {.epoch = member->map->epoch};
	struct cluster_map *next = NULL;
	int rc;

	if (member->fixed)
		return err_set(-ENOTSUP,
			       "cluster %s has a fixed map (membership = static): change the file, and reload each member",
			       member->config_name);
	rc = plan_wish(member, verb, name, &next);
	if (rc <= 0) {
		if (rc == 0)
			*ret_begun = begun;
		return rc;
	}
	begun.moving = next->move_count;
	cluster_plan_release(next);
	if (!dry_run) {
		if (wish->number && !wish->done)
			rc = err_set(-EBUSY, "cluster %s: %u changes are waiting for etcd already", member->config_name,
				     MEMBER_WISHES);
		else
			rc = membership_write(member->membership, next, member->map->epoch, NULL, 0, on_wished, wish);
		if (rc == 0) {
			*wish = (struct member_wish){.number = ++member->wish_number};
			begun.number = wish->number;
		}
	}
	cluster_map_free(next);
	if (rc < 0)
		return rc;
	*ret_begun = begun;
	return 1;
}

const struct member_wish *member_wish_find(const struct member *member, uint64_t number)
{
	const struct member_wish *wish = &member->wishes[number % MEMBER_WISHES];

	return number && wish->number == number ? wish : NULL;
}
