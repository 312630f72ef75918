/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member.c - this daemon as a member of a cluster: takes maps, has its shards opened and emptied, tells its
 * clients
 *
 * Main thread. It decides little itself: membership says what the map is, handover.c what that means for each shard, shards.c
 * walks over the pool. A fixed map that would take keys from a store pool's member is refused here. Next to read:
 * handover.h, member-stats.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "clock.h"
#include "member-internal.h"
#include "cluster-plan.h"
#include "cluster-publish.h"
#include "config-cluster.h"
#include "err.h"
#include "events.h"
#include "keeper.h"
#include "place.h"
#include "pool-life.h"
#include "pool.h"
#include "self.h"
#include "shards.h"

static int failed(const struct config *config, int rc)
{
	return err_set(rc, "%s:%u: [cluster] %s", config->file, config->cluster.line, err_text());
}

/* ---- hand-overs: what is done for handover.c ---- */

static void step(struct member *member);

static void on_map(void *arg, const struct cluster_map *map);

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct member *member = arg;
	uint64_t confirmed;

	(void)fd;
	(void)what;
	if (member->look)
		on_map(member, membership_map(member->membership, &confirmed));
	member->look = false;
	step(member);
}

static void step(struct member *member)
{
	uint64_t depth = self_load(member->pool, LAYOUT_GLOBAL_DEPTH_OFFSET);
	uint64_t now = clock_now_ns(), due, wait;
	struct timeval tv;

	handover_batch(member->handover, depth < UINT32_MAX ? (uint32_t)depth : UINT32_MAX);
	due = handover_step(member->handover, now);
	if (due == UINT64_MAX)
		return;
	wait = due > now ? due - now : 0;
	tv.tv_sec = (time_t)(wait / 1000000000);
	tv.tv_usec = (suseconds_t)(wait % 1000000000 / 1000);
	event_add(member->timer, &tv);
}

/* Not from within the keeper, which calls this: in the next turn. */
static void on_job_done(void *arg)
{
	struct member *member = arg;

	handover_job_done(member->handover);
	event_active(member->timer, EV_TIMEOUT, 0);
}

static void do_word(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	struct member *member = arg;

	shards_set(keeper_shards(member->pool->keeper), shard, state, epoch);
}

static int do_job(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count)
{
	static const enum shards_job jobs[] = {
		[HANDOVER_FREEZE] = SHARDS_FREEZE,
		[HANDOVER_THAW] = SHARDS_THAW,
		[HANDOVER_EMPTY] = SHARDS_EMPTY,
	};
	struct member *member = arg;

	return shards_begin(keeper_shards(member->pool->keeper), jobs[job], shards, count, on_job_done, member);
}

static int do_copy(void *arg, const struct handover_ask *attempt)
{
	return member_copy(arg, attempt);
}

static int do_bring(void *arg)
{
	return member_bring(arg);
}

static void do_drop(void *arg)
{
	member_drop(arg);
}

static void do_ask(void *arg, const struct handover_ask *ask)
{
	member_ask(arg, ask);
}

static int do_cut(void *arg, uint16_t from, uint64_t number)
{
	return member_cut(arg, from, number);
}

static int do_write(void *arg, const struct handover_write *write)
{
	return member_write(arg, write);
}

static const struct handover_ops handover_ops = {
	.word = do_word,
	.job = do_job,
	.copy = do_copy,
	.bring = do_bring,
	.drop = do_drop,
	.ask = do_ask,
	.cut = do_cut,
	.write = do_write,
};

/* ---- a map ---- */

struct cluster_map *member_map_copy(const struct cluster_map *map)
{
	struct cluster_map *copy = cluster_plan_copy(map);

	if (copy)
		copy->epoch = map->epoch;
	return copy;
}

/* Is the map one of this member's pool? */
int member_map_fits(const struct member *member, const struct cluster_map *map)
{
	const struct config_pool *pool = &member->daemon->config->pools[member->pool_index];
	bool cache = pool->mode.number == CONFIG_MODE_CACHE;

	if (strcmp(map->pool, pool->name) != 0)
		return err_set(-EINVAL,
			       "map: its pool is \"%s\", and this member's is [pool %s]: give both the same name, or name "
			       "another one by `pool`",
			       map->pool, pool->name);
	if (map->cache != cache)
		return err_set(-EINVAL, "map: its mode is \"%s\", and [pool %s] has mode = %s: they have to be the same",
			       map->cache ? "cache" : "store", pool->name, cache ? "cache" : "store");
	return 0;
}

int member_find(const struct cluster_map *map, const char *name)
{
	for (uint32_t i = 0; i < map->member_count; i++)
		if (strcmp(map->members[i].name, name) == 0)
			return (int)i;
	return -1;
}

/* From now on. The first one is told by the event "started". */
static int map_use(struct member *member, const struct cluster_map *map)
{
	struct cluster_map *copy = member_map_copy(map);
	uint64_t confirmed;
	int rc = copy ? 0 : -ENOMEM;

	if (rc == 0)
		rc = handover_map(member->handover, copy, clock_now_ns());
	(void)membership_map(member->membership, &confirmed);
	if (rc == 0)
		rc = cluster_publish(member->pool, copy, member->self.number,
				     member->fixed ? CLUSTER_PUBLISH_ALWAYS : confirmed);
	if (rc < 0) {
		cluster_map_free(copy);
		return rc;
	}
	cluster_map_free(member->map);
	member->map = copy;
	member->map_ms = clock_wall_ms();
	return 0;
}

/* ---- what membership tells ---- */

void member_map_decided(struct member *member, const struct cluster_map *map, int rc)
{
	struct events *events = member->daemon->events;
	uint64_t before = member->map->epoch;

	if (rc == 0)
		rc = map_use(member, map);
	if (rc < 0) {
		events_tell(events, EVENT_cluster_map_refused, EVENT_FIELDS(.pool = member->pool->name),
			    "cluster %s: the map of epoch %" PRIu64 " is not used: %s", member->map->cluster, map->epoch,
			    err_text());
		return;
	}
	member->map_changes++;
	events_tell(events, EVENT_cluster_map, EVENT_FIELDS(.pool = member->pool->name),
		    "cluster %s: a map of epoch %" PRIu64 " (before: %" PRIu64 "): %u of %u shards are this member's",
		    map->cluster, map->epoch, before,
		    cluster_plan_owned(map, (uint16_t)cluster_map_find(map, member->self.name)), map->shards);
	/* not from here: this may be the keeper's turn */
	event_active(member->timer, EV_TIMEOUT, 0);
}

/* While one waits to be decided about, others do, too: a reload later tells the newest one again. */
static void on_map(void *arg, const struct cluster_map *map)
{
	struct member *member = arg;
	int rc;

	if (!member->fixed) {
		member_etcd_map(member, map);
		return;
	}
	if (!map || map->epoch == member->map->epoch || (member->waiting && map->epoch == member->waiting->epoch))
		return;
	if (member->waiting)
		rc = err_set(-EAGAIN, "that of epoch %" PRIu64 " is still being decided about: reload once more, with a higher epoch",
			     member->waiting->epoch);
	else
		rc = member_map_fits(member, map);
	if (rc == 0)
		rc = member_leave_begin(member, map);
	if (rc <= 0)
		member_map_decided(member, map, rc);
}

static void on_records(void *arg, const struct membership_record *records, unsigned int count)
{
	struct member *member = arg;

	if (!member->fixed)
		member_etcd_records(member, records, count);
}

static void on_lost(void *arg, const char *why)
{
	member_etcd_lost(arg, why);
}

static void on_regained(void *arg)
{
	struct member *member = arg;

	if (!member->fixed)
		member_etcd_regained(member);
}

static const struct membership_events membership_events = {
	.map = on_map,
	.records = on_records,
	.lost = on_lost,
	.regained = on_regained,
};

/* ---- beginning and end ---- */

/* Where clients of the pool can connect to. */
static void add_addresses(struct membership_record *record, const struct config *config, const struct config_pool *pool)
{
	for (size_t i = 0; i < config->listen_count; i++) {
		const struct config_listen *listen = &config->listens[i];
		struct cluster_address *address = &record->addresses[record->address_count];

		if (!config_pool_offered(pool, listen) || record->address_count == CLUSTER_ADDRESSES_MAX)
			continue;
		address->shm = !config_listen_rdma(listen);
		config_listen_text(listen, address->text, sizeof(address->text));
		record->address_count++;
	}
}

static int self_fill(const struct daemon *daemon, const struct config_pool *pool, struct membership_record *record)
{
	const struct config *config = daemon->config;
	int rc = config_member_name(&config->cluster, record->name);

	if (rc < 0)
		return rc;
	if (config->cluster.membership.number != CONFIG_MEMBERSHIP_STATIC)
		record->previous_boot_id =
			pool_life_read(pool, daemon->fdstore, config->cluster.name.text, record->name);
	record->weight = (uint32_t)config->cluster.weight.number;
	while (record->boot_id == 0)
		record->boot_id = auth_random();
	snprintf(record->version, sizeof(record->version), "%s", PACKAGE_VERSION);
	add_addresses(record, config, pool);
	return 0;
}

/* By these clients find this member. Names of hosts and devices are not compared. */
static void addresses_check(const struct member *member)
{
	const struct cluster_member *known = &member->map->members[cluster_map_find(member->map, member->self.name)];

	for (uint32_t i = 0; i < known->address_count; i++)
		for (uint32_t j = 0; j < member->self.address_count; j++)
			if (known->addresses[i].shm == member->self.addresses[j].shm &&
			    strcmp(known->addresses[i].text, member->self.addresses[j].text) == 0)
				return;
	log_warning(member->log,
		    "cluster %s: none of the addresses that the map has of this member, '%s' (%s), is one of its listeners' "
		    "(%s): clients may not find it",
		    member->map->cluster, known->name, known->addresses[0].text,
		    member->self.address_count ? member->self.addresses[0].text : "none");
}

/* The map is there: the pool is made by it. */
static int open_map(struct member *member, const struct cluster_map *map)
{
	struct pool_place *place = &member->daemon->places[member->pool_index].pool;
	int rc = member_map_fits(member, map);

	if (rc < 0)
		return rc;
	place->shards = map->shards;
	place->hash_seed = map->seed;
	return 0;
}

static int open_fixed(struct member *member)
{
	uint64_t confirmed;
	const struct cluster_map *map = membership_map(member->membership, &confirmed);
	int rc = open_map(member, map);

	if (rc < 0)
		return rc;
	member->map = member_map_copy(map);
	if (!member->map)
		return -ENOMEM;
	member->self.number = map->members[member_find(map, member->self.name)].number;
	addresses_check(member);
	return 0;
}

static int open_etcd(struct member *member)
{
	int rc = member_etcd_open(member);

	return rc < 0 ? rc : open_map(member, member->map);
}

int member_open(struct daemon *daemon, struct member **ret_member)
{
	const struct config *config = daemon->config;
	const struct config_pool *pool = config_cluster_pool(config);
	struct member *member;
	int rc;

	*ret_member = NULL;
	if (!pool)
		return 0;
	member = calloc(1, sizeof(*member));
	if (!member)
		return err_set(-ENOMEM, "out of memory");
	member->daemon = daemon;
	member->log = daemon->log;
	member->pool_index = (size_t)(pool - config->pools);
	member->fixed = config->cluster.membership.number == CONFIG_MEMBERSHIP_STATIC;
	member->config_name = config->cluster.name.text;
	member->timer = evtimer_new(daemon->base, on_timer, member);
	rc = member->timer ? self_fill(daemon, pool, &member->self) : err_set(-ENOMEM, "out of memory");
	if (rc == 0)
		rc = membership_create(&config->cluster, daemon->base, &member->self, &membership_events, member,
				       daemon->log, &member->membership);
	if (rc == 0)
		rc = member->fixed ? open_fixed(member) : open_etcd(member);
	if (rc < 0) {
		rc = failed(config, rc);
		member_close(member);
		return rc;
	}
	*ret_member = member;
	return 0;
}

int member_begin(struct member *member)
{
	const struct config *config = member->daemon->config;
	struct handover_options options;
	int rc;

	member->pool = member->daemon->pools[member->pool_index];
	rc = member->fixed ? 0 : member_etcd_join(member);
	if (rc < 0)
		return failed(config, rc);
	if (!member->fixed)
		pool_life_write(member->pool, member->config_name, member->self.name, member->self.boot_id);
	options = (struct handover_options){
		.shards = member->map->shards,
		.self = member->self.number,
		.boot_id = member->self.boot_id,
		.cache = member->map->cache,
		.fixed = member->fixed,
		.bound_ns = (uint64_t)config->cluster.map_bound.number,
	};
	cluster_publish_begin(member->pool, member->map->cluster, member->self.number);
	rc = handover_create(&options, &handover_ops, member, &member->handover);
	if (rc == 0)
		rc = member_mover_begin(member);
	if (rc == 0)
		rc = map_use(member, member->map);
	if (rc < 0)
		return failed(config, rc);
	step(member);
	log_notice(member->log, "cluster %s: this is member %s, number %u; epoch %" PRIu64 ", %u of %u shards, %u members",
		   member->map->cluster, member->self.name, member->self.number, member->map->epoch,
		   cluster_plan_owned(member->map, (uint16_t)cluster_map_find(member->map, member->self.name)),
		   member->map->shards, member->map->member_count);
	return 0;
}

void member_close(struct member *member)
{
	if (!member)
		return;
	member_mover_end(member);
	if (member->membership) {
		membership_free(member->membership);
		member->held = member->look = false;
		/* libevent frees a connection that has something to call back in a later turn of its loop */
		(void)event_base_loop(member->daemon->base, EVLOOP_NONBLOCK);
	}
	handover_free(member->handover);
	if (member->timer)
		event_free(member->timer);
	if (member->tick)
		event_free(member->tick);
	free(member->guests);
	free(member->alive);
	cluster_map_free(member->map);
	cluster_map_free(member->waiting);
	free(member->leaving);
	free(member);
}

/* ---- a reload ---- */

/* The file is looked at before membership takes it, so that who reloads is told. */
static int reload_check(struct member *member, const struct config *next)
{
	struct cluster_map *map = NULL;
	int rc = membership_static_load(&next->cluster, member->self.name, &map);

	if (rc == 0)
		rc = member_map_fits(member, map);
	if (rc == 0)
		rc = member_leave_check(member, map);
	cluster_map_free(map);
	return rc;
}

int member_reload(struct member *member, const struct config *next)
{
	int rc;

	if (!member)
		return 0;
	member->self.weight = (uint32_t)next->cluster.weight.number;
	rc = member->fixed ? reload_check(member, next) : 0;
	if (rc == 0)
		rc = membership_reload(member->membership, &next->cluster, &member->self);
	if (rc < 0)
		return failed(next, rc);
	/* a map that was refused before is no news to membership */
	member->look = member->fixed;
	event_active(member->timer, EV_TIMEOUT, 0);
	if (!member->fixed)
		member_etcd_changed(member);
	return 0;
}

bool member_serves(const struct member *member)
{
	return !member || member->fixed || !member->fenced;
}

const struct cluster_map *member_map(const struct member *member)
{
	return member->map;
}
