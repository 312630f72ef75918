/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-batch.c - a batch of a cluster: cut by members, the parts side by side, what has moved once more
 *
 * Runs on the session's owner. A round gives each item that is left to the member that has its shard, and judges what came of it as
 * cluster-call.c does of one. Next to read: batch.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "clock.h"
#include "cluster.h"
#include "err.h"

struct round {
	struct tarn_session *session;
	enum batch_kind kind;
	char *items; /* the application's */
	size_t item_bytes, count;

	uint32_t *left;              /* items that have no result yet, in order */
	size_t left_count;
	struct cluster_route *routes; /* of each item; place CLUSTER_NOBODY: not begun in this round */
	struct batch_part *parts;    /* per member; items are copies */
	uint64_t limit_ns;
	unsigned tries;
};

static void *item_at(const struct round *r, size_t i)
{
	return r->items + i * r->item_bytes;
}

static const void *item_key(const struct round *r, size_t i, size_t *ret_bytes)
{
	const void *item = item_at(r, i);

	switch (r->kind) {
	case BATCH_GET:
		*ret_bytes = ((const struct tarn_mget *)item)->key_bytes;
		return ((const struct tarn_mget *)item)->key;
	case BATCH_PUT:
		*ret_bytes = ((const struct tarn_mput *)item)->key_bytes;
		return ((const struct tarn_mput *)item)->key;
	case BATCH_DELETE:
		break;
	}
	*ret_bytes = ((const struct tarn_mdelete *)item)->key_bytes;
	return ((const struct tarn_mdelete *)item)->key;
}

static int *item_status(const struct round *r, void *item)
{
	switch (r->kind) {
	case BATCH_GET:
		return &((struct tarn_mget *)item)->status;
	case BATCH_PUT:
		return &((struct tarn_mput *)item)->status;
	case BATCH_DELETE:
		break;
	}
	return &((struct tarn_mdelete *)item)->status;
}

static bool cache_read(const struct round *r)
{
	return r->kind == BATCH_GET && r->session->cluster->map->cache;
}

/* ---- a round --------------------------------------------------------------------------------- */

/* The member's session for this round; NULL: it is not there now, or nobody has the shard: the item's status says so. */
static struct tarn_session *route_item(struct round *r, size_t i)
{
	struct cluster *c = r->session->cluster;
	struct cluster_route *route = &r->routes[i];
	struct tarn_session *member = NULL;
	size_t bytes;
	const void *key = item_key(r, i, &bytes);
	/* what is wrong with a key is found by its part */
	uint32_t shard = key && bytes ? cluster_map_shard(c->map, key, bytes) : 0;
	int ret;

	route->place = CLUSTER_NOBODY;
	route->shard = shard;
	ret = cluster_route(c, shard, route);
	if (ret == 0)
		ret = cluster_node_session(r->session, route->place, r->limit_ns, &member);
	if (ret == 0)
		return member;
	route->place = CLUSTER_NOBODY;
	*item_status(r, item_at(r, i)) = ret;
	return NULL;
}

/* Which items go where, as copies. 0 or -ENOMEM. */
static int cut(struct round *r, uint32_t members)
{
	memset(r->parts, 0, members * sizeof(*r->parts));
	for (size_t n = 0; n < r->left_count; n++) {
		size_t i = r->left[n];
		struct tarn_session *member = route_item(r, i);

		if (!member)
			continue;
		r->parts[r->routes[i].place].session = member;
		r->parts[r->routes[i].place].count++;
	}
	for (uint32_t m = 0; m < members; m++) {
		struct batch_part *part = &r->parts[m];

		if (!part->count)
			continue;
		part->items = malloc(part->count * r->item_bytes);
		if (!part->items)
			return err_set(-ENOMEM, "no memory for a batch");
		part->count = 0;
	}
	for (size_t n = 0; n < r->left_count; n++) {
		struct cluster_route *route = &r->routes[r->left[n]];
		struct batch_part *part;

		if (route->place == CLUSTER_NOBODY)
			continue;
		part = &r->parts[route->place];
		memcpy((char *)part->items + part->count++ * r->item_bytes,
		       item_at(r, r->left[n]), r->item_bytes);
	}
	return 0;
}

/* Results back to their places. */
static void gather(struct round *r, uint32_t members)
{
	for (uint32_t m = 0; m < members; m++)
		r->parts[m].count = 0;
	for (size_t n = 0; n < r->left_count; n++) {
		struct cluster_route *route = &r->routes[r->left[n]];
		struct batch_part *part;

		if (route->place == CLUSTER_NOBODY)
			continue;
		part = &r->parts[route->place];
		memcpy(item_at(r, r->left[n]),
		       (char *)part->items + part->count++ * r->item_bytes, r->item_bytes);
	}
}

/* All parts that there are, side by side. */
static int run_parts(struct round *r, uint32_t members)
{
	unsigned count = 0;
	struct batch_part *side = calloc(members, sizeof(*side));
	int ret;

	if (!side)
		return err_set(-ENOMEM, "no memory for a batch");
	for (uint32_t m = 0; m < members; m++) {
		if (!r->parts[m].count)
			continue;
		side[count] = r->parts[m];
		side[count].session->timeout_ns = r->session->timeout_ns;
		count++;
	}
	ret = count ? batch_run(r->kind, side, count) : 0;
	free(side);
	return ret;
}

/* May it be believed? Else the status is what it is worth. fresh: the map is the newest one, known behind all completions. */
static void judge(struct round *r, int *status, const struct cluster_route *route, bool fresh)
{
	bool write = r->kind != BATCH_GET;

	if (*status < 0 && *status != -TARN_ENOTFOUND && *status != -TARN_EEXISTS &&
	    *status != -TARN_ESTAMP && *status != -TARN_ETYPE && *status != -TARN_ETOOSMALL)
		return;
	if (!fresh && write)
		*status = *status == 0 ? -TARN_EAMBIGUOUS : -TARN_EMAP;
	else if (!fresh && cache_read(r))
		*status = -TARN_ENOTFOUND;
	else if (cluster_taken(r->session->cluster, route))
		*status = write && *status == 0 ? -TARN_EAMBIGUOUS : -TARN_EMOVED;
}

/* Those that are to be done again stay in `left`. Returns whether any other one has ended. */
static bool settle(struct round *r)
{
	bool needs = r->kind != BATCH_GET || cache_read(r), progress = false;
	bool fresh = !needs || cluster_fresh(r->session->cluster) ||
		     cluster_refresh(r->session, r->limit_ns) == 0;
	size_t kept = 0;

	for (size_t n = 0; n < r->left_count; n++) {
		size_t i = r->left[n];
		int *status = item_status(r, item_at(r, i));

		if (r->routes[i].place != CLUSTER_NOBODY)
			judge(r, status, &r->routes[i], fresh);
		if (*status == -TARN_EUNAVAILABLE || cluster_passes(*status))
			r->left[kept++] = (uint32_t)i;
		else
			progress = true;
	}
	r->left_count = kept;
	return progress;
}

/* No more rounds: what is left has no member that serves it. */
static void give_up(struct round *r)
{
	for (size_t n = 0; n < r->left_count; n++)
		*item_status(r, item_at(r, r->left[n])) =
			cache_read(r) ? -TARN_ENOTFOUND : -TARN_EUNAVAILABLE;
}

/* Is each that is left with a member that is down, by a map that was looked for after that? */
static bool all_down(const struct round *r)
{
	for (size_t n = 0; n < r->left_count; n++)
		if (*item_status(r, item_at(r, r->left[n])) != -TARN_EUNAVAILABLE)
			return false;
	return !r->session->cluster->map->cache && r->tries > 0;
}

/* What goes on while there is progress, goes on. 0 or a negative code; then no item was begun in this round. */
static int rounds(struct round *r)
{
	struct tarn_session *s = r->session;
	int ret = 0;

	r->limit_ns = clock_now_ns() + s->timeout_ns;
	while (ret == 0 && r->left_count) {
		uint32_t members = s->cluster->map->member_count;
		uint64_t epoch = s->cluster->map->epoch;

		if (r->kind != BATCH_GET && !cluster_fresh(s->cluster)) {
			ret = cluster_refresh(s, r->limit_ns);
			if (ret < 0)
				break;
			members = s->cluster->map->member_count;
			epoch = s->cluster->map->epoch;
		}
		r->parts = calloc(members, sizeof(*r->parts));
		ret = r->parts ? cut(r, members) : err_set(-ENOMEM, "no memory for a batch");
		if (ret == 0)
			ret = run_parts(r, members);
		if (ret == 0)
			gather(r, members);
		for (uint32_t m = 0; r->parts && m < members; m++)
			free(r->parts[m].items);
		free(r->parts);
		if (ret < 0)
			break;
		if (settle(r))
			r->limit_ns = clock_now_ns() + s->timeout_ns;
		if (r->left_count == 0)
			break;
		/* an absent member of a cache pool is not waited for */
		if (all_down(r) || (cache_read(r) && r->tries > 1) ||
		    !cluster_again(s, epoch, &r->tries, r->limit_ns)) {
			give_up(r);
			break;
		}
	}
	return ret;
}

/* A failure of the whole behind the first round is that of the items that are left. */
static int run(struct tarn_session *s, enum batch_kind kind, void *items, size_t item_bytes,
	       size_t count)
{
	struct round r = {.session = s,
			  .kind = kind,
			  .items = items,
			  .item_bytes = item_bytes,
			  .count = count};
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	if (count > UINT32_MAX)
		ret = err_set(-EINVAL, "a batch of %zu items: at most %u", count, UINT32_MAX);
	if (ret == 0 && count) {
		r.left = malloc(count * sizeof(*r.left));
		r.routes = calloc(count, sizeof(*r.routes));
		if (!r.left || !r.routes)
			ret = err_set(-ENOMEM, "no memory for a batch");
	}
	if (ret == 0 && count) {
		for (size_t i = 0; i < count; i++)
			r.left[i] = (uint32_t)i;
		r.left_count = count;
		ret = rounds(&r);
		for (size_t n = 0; ret < 0 && n < r.left_count; n++)
			*item_status(&r, item_at(&r, r.left[n])) = ret;
		if (r.left_count < count || ret == -TARN_EMAP)
			ret = 0;
	}
	free(r.left);
	free(r.routes);
	cluster_leave(s);
	return ret;
}

int cluster_mget(struct tarn_session *s, struct tarn_mget *items, size_t count)
{
	return run(s, BATCH_GET, items, sizeof(*items), count);
}

int cluster_mput(struct tarn_session *s, struct tarn_mput *items, size_t count)
{
	return run(s, BATCH_PUT, items, sizeof(*items), count);
}

int cluster_mdelete(struct tarn_session *s, struct tarn_mdelete *items, size_t count)
{
	return run(s, BATCH_DELETE, items, sizeof(*items), count);
}
