/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-route.c - which member has a shard by the map, and what is done when it is not there
 *
 * Runs on the session's owner. Next to read: cluster.h, cluster-call.c.
 */
#include <string.h>

#include "clock.h"
#include "cluster.h"
#include "err.h"

#define PAUSE_MIN_NS 1000000u
#define PAUSE_MAX_NS 50000000u

int cluster_route(const struct cluster *c, uint32_t shard, struct cluster_route *ret_route)
{
	uint16_t owner = c->map->owners[shard];

	if (owner == CLUSTER_NOBODY)
		return err_set(-TARN_EUNAVAILABLE,
			       "shard %u has no owner in epoch %llu of cluster %s: it is being taken over, or its "
			       "owner was given up",
			       shard, (unsigned long long)c->map->epoch, c->map->cluster);
	if (c->map->members[owner].state == CLUSTER_DOWN)
		return err_set(-TARN_EUNAVAILABLE,
			       "shard %u is with member %s, which is down in epoch %llu of cluster %s: its keys are "
			       "there again when it is",
			       shard, c->map->members[owner].name,
			       (unsigned long long)c->map->epoch, c->map->cluster);
	*ret_route = (struct cluster_route){
		.shard = shard, .place = owner, .since = c->map->since[shard], .epoch = c->map->epoch};
	return 0;
}

bool cluster_again(struct tarn_session *s, uint64_t began_epoch, unsigned *tries, uint64_t limit_ns)
{
	uint64_t now = clock_now_ns(), pause;

	if (now >= limit_ns)
		return false;
	/* one may not have heard of the newest map yet: so all are asked; those without a connection now and then */
	if (s->cluster->map->epoch > began_epoch ||
	    cluster_newer(s, now + SESSION_TRY_NS < limit_ns ? now + SESSION_TRY_NS : limit_ns,
			  *tries % 4 == 0))
		return true;
	pause = PAUSE_MIN_NS << (*tries < 6 ? *tries : 6);
	if (pause > PAUSE_MAX_NS)
		pause = PAUSE_MAX_NS;
	(*tries)++;
	now = clock_now_ns();
	if (now + pause >= limit_ns)
		return false;
	clock_sleep_ns(pause);
	return true;
}

int cluster_unavailable(const struct cluster *c, uint32_t shard)
{
	uint16_t owner = c->map->owners[shard];
	char last[300];

	strncpy(last, err_text(), sizeof(last) - 1);
	last[sizeof(last) - 1] = 0;
	return err_set(-TARN_EUNAVAILABLE, "member %s does not serve shard %u: %s",
		       owner == CLUSTER_NOBODY ? "(none)" : c->map->members[owner].name, shard,
		       last);
}
