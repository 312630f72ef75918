/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-region.c - regions of a cluster's session: with which member one is, and calls on it
 *
 * A region is with one member, by its name (cluster_map_region()) or as the application says (NAME@MEMBER). An open one belongs
 * to the session with that member, whose owner is the cluster's session's. What is asked about a name that may be with any
 * member is asked of one after the other. The blocking calls are driven here, their twins by cluster-async.c; what comes next
 * both are told by cluster_region_next(). Runs on the session's owner. Next to read: region-control.h, cluster.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cluster-async.h"
#include "err.h"
#include "region-control.h"
#include "sync-internal.h"

#define NEWER_NS 20000000u /* for a question about the map */

/* ---- calls on an open region ----------------------------------------------------------------- */

int region_hold(const struct tarn_region *region)
{
	struct tarn_session *m = region->session, *front = m->front;
	int ret;

	if (__builtin_expect(!front, 1))
		return session_hold(m);
	ret = cluster_hold(front);
	if (ret < 0)
		return ret;
	ret = session_hold(m);
	if (ret < 0)
		cluster_leave(front);
	return ret;
}

int region_enter(const struct tarn_region *region)
{
	struct tarn_session *m = region->session, *front = m->front;
	int ret;

	if (__builtin_expect(!front, 1))
		return session_enter(m);
	ret = cluster_hold(front);
	if (ret < 0)
		return ret;
	m->timeout_ns = front->timeout_ns;
	ret = session_enter(m);
	if (ret < 0)
		cluster_leave(front);
	return ret;
}

void region_leave(struct tarn_session *m)
{
	struct tarn_session *front = m->front;

	session_leave(m);
	if (__builtin_expect(front != NULL, 0))
		cluster_leave(front);
}

uint32_t region_timeout_ms(const struct tarn_region *region)
{
	const struct tarn_session *m = region->session;

	return (uint32_t)((m->front ? m->front->timeout_ns : m->timeout_ns) / 1000000);
}

int region_result(const struct tarn_region *region, int ret)
{
	char last[300];

	/* what is wrong with `region` itself does not pass */
	if (__builtin_expect(ret >= 0, 1) || !cluster_passes(ret) || !region->session->front)
		return ret;
	strncpy(last, err_text(), sizeof(last) - 1);
	last[sizeof(last) - 1] = 0;
	return err_set(-TARN_EUNAVAILABLE, "region %s is with member %s, which is not there: %s",
		       region->name, region->member, last);
}

bool cluster_region_in_use(const struct tarn_region *region)
{
	const struct cluster_async *a = region->session->front->cluster->async;

	for (unsigned i = 0; a && i < ENGINE_OPS; i++)
		if (a->ops[i].state != CALL_FREE && a->ops[i].asked.region == region)
			return true;
	return false;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

int cluster_region_name(struct tarn_session *s, const char *name, struct region_control *c)
{
	const char *at = strchr(name, '@');
	size_t bytes = at ? (size_t)(at - name) : strlen(name);
	struct region_search *search = &c->search;

	if (at && !cluster_name_valid(at + 1))
		return err_set(-EINVAL,
			       "the region '%s': behind the @ the name of a member is wanted, of 1 to %u letters, "
			       "digits and ._-",
			       name, TARN_MEMBER_NAME_MAX);
	if (bytes < sizeof(c->name))
		memcpy(c->name, name, bytes);
	if (bytes >= sizeof(c->name) || wire_region_name_check(c->name) < 0)
		return wire_region_name_check(bytes < sizeof(c->name) ? c->name : name);
	if (at)
		strncpy(search->at, at + 1, sizeof(search->at) - 1);
	search->front = s;
	search->probing = c->call == CONTROL_CREATE && !at;
	return 0;
}

void cluster_region_list(struct tarn_session *s, struct region_control *c)
{
	c->search.front = s;
	c->search.cursor = c->number;
	c->search.tell_cursor = c->ret_cursor;
	c->search.tell_info = c->ret_info;
}

/* ---- the member that is asked next ----------------------------------------------------------- */

/* Its place in the map; -ENOENT: all have been asked. */
static int find_place(struct region_control *c, uint64_t limit_ns)
{
	struct region_search *search = &c->search;
	struct cluster *cl = search->front->cluster;
	uint16_t place;
	int ret;

	if (!search->at[0]) {
		/* a list's is the one that was found last */
		place = cluster_map_region(cl->map, c->call == CONTROL_LIST ? "" : c->name,
					   search->rank);
		return place == CLUSTER_NOBODY ? -ENOENT : place;
	}
	ret = cluster_map_find(cl->map, search->at);
	/* it may have joined a moment ago */
	if (ret < 0 && cluster_newer(search->front, limit_ns, false))
		ret = cluster_map_find(cl->map, search->at);
	if (ret < 0)
		return err_set(-EINVAL, "region %s@%s: cluster %s has no member of this name in epoch %llu: tarn_region_list() "
					"and `tarn members` have the names",
			       c->name, search->at, cl->map->cluster,
			       (unsigned long long)cl->map->epoch);
	return ret;
}

/* The task is prepared for that. */
static void aim(struct region_control *c)
{
	struct region_search *search = &c->search;

	if (search->probing || c->call == CONTROL_LIST) {
		c->ret_info = &search->found;
		search->found.size = sizeof(search->found);
	}
	if (search->probing) {
		c->call = c->stage = CONTROL_STAT;
	} else if (c->call == CONTROL_LIST) {
		c->number = search->cursor;
		c->ret_cursor = &search->found.id;
	}
}

int cluster_region_pick(struct region_control *c, uint64_t limit_ns, struct tarn_session **ret_member)
{
	struct region_search *search = &c->search;
	struct cluster *cl = search->front->cluster;
	const struct cluster_member *member;
	uint64_t now = clock_now_ns();
	int place;

	if (search->rank == 0)
		search->epoch = cl->map->epoch;
	/* where it is made is asked behind the others */
	if (search->probing && search->rank == 0)
		search->rank = 1;
	place = find_place(c, now + NEWER_NS < limit_ns ? now + NEWER_NS : limit_ns);
	if (place == -ENOENT && search->probing) {
		search->probing = false;
		search->rank = 0;
		c->call = c->stage = CONTROL_CREATE;
		c->ret_info = NULL;
		place = find_place(c, limit_ns);
	}
	if (place < 0)
		return place;
	aim(c);
	member = &cl->map->members[place];
	strcpy(search->member, member->name);
	if (member->state == CLUSTER_DOWN || member->state == CLUSTER_LEFT)
		return err_set(-TARN_EUNAVAILABLE, "member %s is %s in epoch %llu of cluster %s",
			       member->name, cluster_state_name(member->state),
			       (unsigned long long)cl->map->epoch, cl->map->cluster);
	return cluster_node_session(search->front, (uint32_t)place, limit_ns, ret_member);
}

/* ---- what comes of an answer ----------------------------------------------------------------- */

static enum cluster_search go_on(struct region_control *c)
{
	region_control_reset(c);
	c->search.rank++;
	return SEARCH_ON;
}

/* From the beginning, a little later. */
static enum cluster_search begin_again(struct region_control *c, int *result)
{
	struct region_search *search = &c->search;
	char last[300];

	strncpy(last, err_text(), sizeof(last) - 1);
	last[sizeof(last) - 1] = 0;
	if (c->call == CONTROL_LIST)
		*result = err_set(-TARN_EUNAVAILABLE,
				  "there may be more regions, with member %s, which is not there: %s",
				  search->missing, last);
	else
		*result = err_set(-TARN_EUNAVAILABLE,
				  "region %s%s member %s, which is not there: %s", c->name,
				  search->at[0] ? " is wanted at" : " may be with", search->missing,
				  last);
	search->rank = 0;
	return SEARCH_LATER;
}

/* One more of the list, the first one behind the cursor; or there is none with this member. */
static enum cluster_search listed(struct region_control *c, int result)
{
	struct region_search *search = &c->search;

	if (result == 1 && (!search->best.id || search->found.id < search->best.id))
		search->best = search->found;
	return go_on(c);
}

static enum cluster_search all_asked(struct region_control *c, int *result)
{
	struct region_search *search = &c->search;

	if (search->best.id) {
		region_info_tell(&search->best, search->tell_info);
		*search->tell_cursor = search->best.id;
		*result = 1;
	} else if (search->missing[0]) {
		begin_again(c, result);
		/* whom to wait for is the caller's affair: others' regions were told */
		return c->call == CONTROL_LIST ? SEARCH_END : SEARCH_LATER;
	} else if (c->call == CONTROL_LIST) {
		*result = 0;
	} else {
		*result = err_set(-TARN_ENOREGION,
				  "there is no region %s with any member of the cluster: "
				  "tarn_region_list() has those that there are",
				  c->name);
	}
	return SEARCH_END;
}

enum cluster_search cluster_region_next(struct region_control *c, int *result)
{
	struct region_search *search = &c->search;
	bool away = cluster_passes(*result) || *result == -TARN_EUNAVAILABLE;

	if (*result == -ENOENT)
		return all_asked(c, result);
	if (c->call == CONTROL_LIST && *result >= 0)
		return listed(c, *result);
	if (search->probing && *result == 0) {
		*result = err_set(-TARN_EEXISTS, "there is a region %s already, with member %s",
				  c->name, search->member);
		return SEARCH_END;
	}
	/* what has begun goes on there */
	if (away && c->begun) {
		strcpy(search->missing, search->member);
		strcpy(search->at, search->member);
		return begin_again(c, result);
	}
	if (search->probing && (away || *result == -TARN_ENOREGION))
		return go_on(c);
	if (!away && (*result != -TARN_ENOREGION || search->at[0] || c->begun))
		return SEARCH_END;
	if (away)
		strcpy(search->missing, search->member);
	if (!away || (!search->at[0] && c->call != CONTROL_CREATE))
		return go_on(c);
	region_control_reset(c);
	return begin_again(c, result);
}

/* ---- blocking -------------------------------------------------------------------------------- */

/* With this member, to its end there. */
static int ask_member(struct region_control *c, struct tarn_session *m)
{
	c->session = m;
	for (;;) {
		int ret = session_enter(m);

		if (ret < 0)
			return ret;
		ret = session_run(m, region_control_task(c));
		session_leave(m);
		if (!c->pause_ns)
			return ret;
		clock_sleep_ns(c->pause_ns);
	}
}

static int run(struct region_control *c)
{
	struct region_search *search = &c->search;
	struct tarn_session *front = search->front, *m = NULL;
	uint64_t limit_ns = clock_now_ns() + front->timeout_ns;
	enum cluster_search next;
	int ret;

	do {
		ret = cluster_region_pick(c, limit_ns, &m);
		if (ret == 0) {
			m->timeout_ns = front->timeout_ns;
			ret = ask_member(c, m);
		}
		next = cluster_region_next(c, &ret);
		if (next == SEARCH_LATER) {
			char text[ERR_TEXT_BYTES];

			strcpy(text, err_text());
			if (!cluster_again(front, search->epoch, &search->tries, limit_ns))
				next = SEARCH_END;
			err_set(0, "%s", text);
			search->missing[0] = 0;
		}
	} while (next != SEARCH_END);
	return ret;
}

int cluster_region_run(struct region_control *c)
{
	struct tarn_session *front = c->search.front;
	int ret = cluster_hold(front);

	if (ret < 0) {
		free(c->region);
		return ret;
	}
	ret = run(c);
	region_control_end(c);
	cluster_leave(front);
	return ret;
}
