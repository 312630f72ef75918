/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which kind of membership a configuration asks for; the rest is handed on to it. Main thread. Next to read:
 * membership-static.c, membership-etcd.c.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "config-cluster.h"
#include "err.h"
#include "membership-backend.h"

uint64_t membership_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int membership_follows(const struct cluster_map *map, const struct cluster_map *next)
{
	if (strcmp(map->pool, next->pool) != 0)
		return err_set(-EINVAL, "its pool is \"%s\", and this cluster's is \"%s\"", next->pool, map->pool);
	if (map->seed != next->seed || map->shards != next->shards || map->cache != next->cache)
		return err_set(-EINVAL,
			       "its seed, shards or mode are others than before (%016llx, %u, %s), which can not change while the pool is there",
			       (unsigned long long)map->seed, map->shards, map->cache ? "cache" : "store");
	return 0;
}

int membership_create(const struct config_cluster *config, struct event_base *base, const struct membership_record *self,
		      const struct membership_events *events, void *arg, const struct log *log,
		      struct membership **ret_membership)
{
	const struct membership begin = {.base = base, .log = log, .events = events, .arg = arg};

	if (config->membership.number == CONFIG_MEMBERSHIP_STATIC)
		return membership_static_create(config, &begin, self, ret_membership);
	return membership_etcd_create(config, &begin, self, ret_membership);
}

void membership_free(struct membership *membership)
{
	if (membership)
		membership->backend->free(membership);
}

const struct cluster_map *membership_map(const struct membership *membership, uint64_t *ret_confirmed_ns)
{
	return membership->backend->map(membership, ret_confirmed_ns);
}

bool membership_held(struct membership *membership)
{
	return membership->backend->held(membership);
}

int membership_write(struct membership *membership, const struct cluster_map *next, uint64_t if_epoch,
		     const char *if_member, uint64_t if_boot_id,
		     void (*done)(void *arg, enum membership_outcome outcome, const char *text), void *arg)
{
	if (next->epoch != if_epoch + 1)
		return err_set(-EINVAL, "a map that follows epoch %llu is to have the epoch %llu, not %llu",
			       (unsigned long long)if_epoch, (unsigned long long)if_epoch + 1,
			       (unsigned long long)next->epoch);
	return membership->backend->write(membership, next, if_epoch, if_member, if_boot_id, done, arg);
}

int membership_reload(struct membership *membership, const struct config_cluster *config,
		      const struct membership_record *self)
{
	return membership->backend->reload(membership, config, self);
}

void membership_state(const struct membership *membership, struct membership_state *ret_state)
{
	*ret_state = (struct membership_state){.backend = "", .endpoint = "", .error = ""};
	membership->backend->state(membership, ret_state);
}

void membership_check(const struct config *config, struct config_errors *errors)
{
	const struct config_cluster *cluster = &config->cluster;
	char member[CONFIG_NAME_MAX + 1];
	struct config_endpoint endpoint;
	int rc = 0;

	if (!cluster->line || config_member_name(cluster, member) < 0)
		return;
	if (cluster->membership.number == CONFIG_MEMBERSHIP_ETCD) {
		if (config_endpoint(cluster, 0, &endpoint) == 0)
			rc = membership_etcd_check(cluster);
	} else if (cluster->map.text[0]) {
		rc = membership_static_check(cluster, member);
	}
	if (rc < 0)
		config_error(errors, "%s:%u: [cluster] %s", config->file, cluster->line, err_text());
}
