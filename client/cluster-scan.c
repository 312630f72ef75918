/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-scan.c - a walk over all keys of a cluster: one member's after the other
 *
 * A *pass* is a walk over one member, which shows the keys of the shards that it had as the pass began and that had not been
 * walked. A shard that goes to another member meanwhile leaves the pass, and is walked as a whole where it is then: its
 * keys may come twice, but none is left out. What a pass has shown counts by the words behind what it read (scan-shard.c); in a
 * cache pool also by a map that is fresh behind it. Runs on the session's owner. Next to read: cluster.h, scan-shard.c;
 * cluster-async.c for the asynchronous call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cluster.h"
#include "err.h"
#include "mutation.h"
#include "scan-internal.h"
#include "shard.h"

#define TIME_MIN_NS 1000000u

struct cluster_scan {
	struct tarn_scan *walk; /* the application's, whose this is */
	bool *done;             /* per shard: walked from its beginning to its end */
	uint32_t left;          /* that are not */
	uint32_t stuck;         /* one that could not be walked, for the error's text */

	/* ---- the pass ---- */
	struct tarn_scan *member; /* NULL: none is under way */
	uint16_t number;          /* that member's */
	uint64_t *since;          /* since when it has the pass' shards; 0: not of the pass */
	uint64_t epoch, seen;     /* of the map as the pass began, and as it was looked at last */
	bool lowest;              /* nothing was left at members with a lower number */
	bool found;               /* it is at a key that was not handed out: the map was not fresh */
	struct tarn_item item;    /* of that */

	/* ---- where it is to be begun at, from a position; cursor_bytes 0: nowhere ---- */
	uint16_t cursor_number;
	uint64_t cursor_epoch;
	size_t cursor_bytes;
	uint8_t cursor[SCAN_POSITION_BYTES];
};

static struct cluster *cluster_of(const struct cluster_scan *cs)
{
	return cs->walk->session->cluster;
}

static void end_pass(struct cluster_scan *cs)
{
	tarn_scan_close(cs->member);
	cs->member = NULL;
	cs->found = false;
}

int cluster_scan_create(struct tarn_scan *walk)
{
	uint32_t shards = walk->session->cluster->map->shards;
	struct cluster_scan *cs = calloc(1, sizeof(*cs));

	if (cs) {
		cs->walk = walk;
		cs->left = shards;
		cs->done = calloc(shards, sizeof(*cs->done));
		cs->since = calloc(shards, sizeof(*cs->since));
		walk->cluster = cs;
	}
	return cs && cs->done && cs->since
		       ? 0
		       : err_set(-ENOMEM, "no memory for a walk over %u shards", shards);
}

void cluster_scan_free(struct cluster_scan *cs)
{
	if (!cs)
		return;
	end_pass(cs);
	free(cs->done);
	free(cs->since);
	free(cs);
}

/* ---- whose turn it is ------------------------------------------------------------------------ */

static void set_done(struct cluster_scan *cs, uint32_t shard)
{
	cs->left -= !cs->done[shard];
	cs->done[shard] = true;
}

/* In a cache pool a shard that nobody has is empty when somebody takes it, which is not before each such map has ceased to be fresh. */
static void skip_empty(struct cluster_scan *cs)
{
	const struct cluster_map *map = cluster_of(cs)->map;

	if (!map->cache || (!cluster_fresh(cluster_of(cs)) && !MUTATED(MUTATION_WALKFRESH)))
		return;
	for (uint32_t i = 0; i < map->shards; i++)
		if (map->owners[i] == CLUSTER_NOBODY)
			set_done(cs, i);
}

bool cluster_scan_skips(const struct tarn_scan *walk)
{
	const struct cluster_map *map = walk->session->cluster->map;

	for (uint32_t i = 0; map->cache && i < map->shards; i++)
		if (map->owners[i] == CLUSTER_NOBODY && !walk->cluster->done[i])
			return true;
	return false;
}

/* The lowest number above `behind` of a member that has something left; 0: there is none. */
static uint16_t next_number(const struct cluster_scan *cs, uint16_t behind, bool down,
			    uint32_t *ret_shard)
{
	const struct cluster_map *map = cluster_of(cs)->map;
	uint16_t lowest = 0;

	for (uint32_t i = 0; i < map->shards; i++) {
		const struct cluster_member *owner;

		if (cs->done[i] || map->owners[i] == CLUSTER_NOBODY)
			continue;
		owner = &map->members[map->owners[i]];
		if (owner->number <= behind || (lowest && owner->number >= lowest) ||
		    (!down && owner->state == CLUSTER_DOWN))
			continue;
		lowest = owner->number;
		*ret_shard = i;
	}
	return lowest;
}

/* By the map nobody serves any of those that are left. */
static int nobody(const struct cluster_scan *cs)
{
	struct cluster_route route;

	for (uint32_t i = 0; i < cluster_of(cs)->map->shards; i++) {
		int ret = cs->done[i] ? 0 : cluster_route(cluster_of(cs), i, &route);

		if (ret < 0)
			return ret;
	}
	return -TARN_EMOVED;
}

/* Which shards the pass shows. A position's cursor is of those that its member had by the map of then. */
static void choose_shards(struct cluster_scan *cs, uint32_t place, bool resume)
{
	const struct cluster_map *map = cluster_of(cs)->map;

	for (uint32_t i = 0; i < map->shards; i++) {
		bool ours = map->owners[i] == place && !cs->done[i] &&
			    (!resume || map->since[i] <= cs->cursor_epoch);

		cs->since[i] = ours ? map->since[i] : 0;
	}
}

static int begin_pass(struct cluster_scan *cs, uint32_t place, struct tarn_session *m)
{
	const struct cluster_map *map = cluster_of(cs)->map;
	bool resume = cs->cursor_bytes && cs->cursor_number == map->members[place].number;
	const struct tarn_scan *walk = cs->walk;
	uint32_t shard;
	int ret;

	if (resume)
		ret = tarn_scan_open_at(m, walk->prefix, walk->prefix_bytes, cs->cursor,
					cs->cursor_bytes, &cs->member);
	else
		ret = tarn_scan_open(m, walk->prefix, walk->prefix_bytes, &cs->member);
	if (ret < 0)
		return ret;
	choose_shards(cs, place, resume);
	if (resume)
		cs->cursor_bytes = 0;
	cs->member->since = cs->since;
	cs->number = map->members[place].number;
	cs->epoch = cs->seen = map->epoch;
	cs->lowest = next_number(cs, 0, true, &shard) == cs->number;
	cs->found = false;
	return 0;
}

/* The next member that can be reached; those that can not have their turn when nothing else is left. */
static int next_pass(struct cluster_scan *cs, uint64_t limit_ns)
{
	struct cluster *c = cluster_of(cs);
	uint16_t number = 0;
	uint32_t shard;
	int last = 0;

	while ((number = next_number(cs, number, false, &shard)) != 0) {
		struct tarn_session *m;
		int ret = cluster_node_session(cs->walk->session, c->map->owners[shard], limit_ns,
					       &m);

		if (ret == 0)
			return begin_pass(cs, c->map->owners[shard], m);
		if (!cluster_passes(ret))
			return ret;
		cs->stuck = shard;
		last = ret;
	}
	return last < 0 ? last : nobody(cs);
}

static void leave_pass(struct cluster_scan *cs, uint32_t shard)
{
	if (MUTATED(MUTATION_WALKMAP) && cs->since[shard])
		set_done(cs, shard);
	cs->since[shard] = 0;
}

/* By a newer map the pass loses the shards that are elsewhere; the pass ends if there is nothing more in it. */
static void follow_map(struct cluster_scan *cs)
{
	const struct cluster_map *map = cluster_of(cs)->map;
	bool any = false;

	if (!cs->member || cs->seen == map->epoch)
		return;
	cs->seen = map->epoch;
	for (uint32_t i = 0; i < map->shards; i++) {
		const struct cluster_member *owner =
			map->owners[i] == CLUSTER_NOBODY ? NULL : &map->members[map->owners[i]];

		if (!owner || owner->number != cs->number || owner->state == CLUSTER_DOWN ||
		    map->since[i] != cs->since[i] || map->taken[i] > cs->since[i])
			leave_pass(cs, i);
		any |= cs->since[i] != 0;
	}
	if (!any)
		end_pass(cs);
}

/* The session of the member of the pass, whose place may be another one by now. */
static int pass_session(struct cluster_scan *cs, uint64_t limit_ns, struct tarn_session **ret_session)
{
	struct cluster *c = cluster_of(cs);
	uint32_t i = 0;

	while (i < c->map->member_count && c->map->members[i].number != cs->number)
		i++;
	if (i == c->map->member_count)
		return err_set(-TARN_EMOVED, "the member of number %u is no more", cs->number);
	for (cs->stuck = 0; cs->stuck < c->map->shards - 1 && !cs->since[cs->stuck];)
		cs->stuck++;
	return cluster_node_session(cs->walk->session, i, limit_ns, ret_session);
}

int cluster_scan_step(struct tarn_scan *walk, uint64_t limit_ns, struct tarn_scan **ret_member)
{
	struct cluster_scan *cs = walk->cluster;
	struct tarn_session *m;
	int ret;

	for (;;) {
		follow_map(cs);
		if (!cs->member) {
			skip_empty(cs);
			if (cs->left == 0)
				return 0;
			ret = next_pass(cs, limit_ns);
			if (ret < 0)
				return ret;
		}
		if (!cs->found) {
			ret = pass_session(cs, limit_ns, &m);
			if (ret < 0)
				return ret;
			/* its session was closed: it was gone from the map for a time, or was another one */
			if (cs->member->session != m) {
				end_pass(cs);
				continue;
			}
		}
		*ret_member = cs->member;
		return 1;
	}
}

/* ---- what has come --------------------------------------------------------------------------- */

bool cluster_scan_found(const struct tarn_scan *walk)
{
	return walk->cluster->found;
}

void cluster_scan_keep(struct tarn_scan *walk, int result, const struct tarn_item *item)
{
	walk->cluster->found = result == 1;
	walk->cluster->item = *item;
}

const void *cluster_scan_key(const struct tarn_scan *walk, size_t *ret_key_bytes,
			     struct tarn_item *ret_item)
{
	*ret_item = walk->cluster->item;
	return scan_key(walk->cluster->member, ret_key_bytes);
}

bool cluster_scan_judge(struct tarn_scan *walk, int *ret_result)
{
	struct cluster_scan *cs = walk->cluster;
	const struct cluster_map *map = walk->session->cluster->map;
	uint32_t shard = 0;
	size_t bytes;

	if (*ret_result == -TARN_ERESTARTED) {
		end_pass(cs);
		return false;
	}
	if (*ret_result < 0)
		return true;
	cs->found = false;
	if (*ret_result == 1) {
		const void *key = scan_key(cs->member, &bytes);

		shard = cluster_map_shard(map, key, bytes);
	}
	follow_map(cs);
	if (*ret_result == 1)
		return cs->since[shard] != 0;
	for (uint32_t i = 0; cs->member && i < map->shards; i++)
		if (cs->since[i])
			set_done(cs, i);
	end_pass(cs);
	return false;
}

/* ---- the blocking call ----------------------------------------------------------------------- */

struct call {
	struct tarn_session *session;
	struct tarn_scan *walk;
	uint64_t limit_ns;
	unsigned tries;
};

static int member_next(struct call *call, struct tarn_scan *member)
{
	uint64_t now = clock_now_ns();
	struct tarn_item item = TARN_ITEM_INIT;
	const void *key;
	size_t bytes;
	int ret;

	if (cluster_scan_found(call->walk))
		return 1;
	/* it gets on, however short its time is */
	member->session->timeout_ns = call->limit_ns > now + TIME_MIN_NS ? call->limit_ns - now
									 : TIME_MIN_NS;
	ret = tarn_scan_next(member, &key, &bytes, &item);
	if (ret >= 0)
		cluster_scan_keep(call->walk, ret, &item);
	return ret;
}

static int make_fresh(struct call *call)
{
	return cluster_fresh(call->session->cluster) ? 0 : cluster_refresh(call->session, call->limit_ns);
}

/* 1, 0, or what it ended with. */
static int attempt(struct call *call)
{
	const struct cluster *c = call->session->cluster;
	struct tarn_scan *member;
	int ret;

	do {
		ret = cluster_scan_skips(call->walk) ? make_fresh(call) : 0;
		if (ret < 0)
			return ret;
		ret = cluster_scan_step(call->walk, call->limit_ns, &member);
		if (ret <= 0)
			return ret;
		ret = member_next(call, member);
		if (ret >= 0 && c->map->cache) {
			int stale = make_fresh(call);

			if (stale < 0)
				return stale;
		}
		if (cluster_scan_judge(call->walk, &ret))
			return ret;
	} while (clock_now_ns() < call->limit_ns);
	return err_set(-TARN_ETIMEOUT, "no further key within the time limit; call again to go on");
}

/* True: go on. Else *ret_result is the call's. */
static bool again(struct call *call, uint64_t epoch, int *ret_result)
{
	bool down = *ret_result == -TARN_EUNAVAILABLE;

	if (!down && !cluster_passes(*ret_result))
		return false;
	/* nothing to wait for but for a map that says something else */
	if (down && call->tries > 0)
		return false;
	if (cluster_again(call->session, epoch, &call->tries, call->limit_ns))
		return true;
	if (!down)
		*ret_result = cluster_unavailable(call->session->cluster, call->walk->cluster->stuck);
	return false;
}

int cluster_scan_next(struct tarn_scan *walk, const void **ret_key, size_t *ret_key_bytes,
		      struct tarn_item *ret_item)
{
	struct call call = {.session = walk->session, .walk = walk};
	struct tarn_item item;
	uint64_t epoch;
	int ret = cluster_hold(call.session);

	if (ret < 0)
		return ret;
	call.limit_ns = clock_now_ns() + call.session->timeout_ns;
	do {
		epoch = call.session->cluster->map->epoch;
		ret = attempt(&call);
	} while (ret < 0 && again(&call, epoch, &ret));
	if (ret == 1) {
		*ret_key = cluster_scan_key(walk, ret_key_bytes, &item);
		if (ret_item)
			session_copy_item(ret_item, &item);
	}
	cluster_leave(call.session);
	return ret;
}

/* ---- where it is ----------------------------------------------------------------------------- */

uint32_t cluster_scan_progress(const struct tarn_scan *walk)
{
	const struct cluster_scan *cs = walk->cluster;
	uint32_t shards = walk->session->cluster->map->shards, pass = 0;
	uint64_t progress = 1000ull * (shards - cs->left);

	for (uint32_t i = 0; cs->member && i < shards; i++)
		pass += cs->since[i] != 0;
	if (pass && cs->member->groups)
		progress += (uint64_t)pass *
			    scan_cursor_progress(&cs->member->cursor, cs->member->groups);
	return (uint32_t)(progress / shards);
}

/*
 * As bytes: all shards of members whose number is lower are done, as far as they have them by the map of this epoch; behind
 * that, where the pass over this one is. That is less than what is known after the map has changed: then more is walked again.
 */
#define POSITION_MAGIC 0x32534f50u /* "POS2" */

struct position_head {
	uint32_t magic;
	uint16_t number; /* 0: the walk is over */
	uint16_t reserved;
	uint64_t epoch;
	uint64_t seed; /* the cluster's own */
};
static_assert(sizeof(struct position_head) == 24, "position");
static_assert(sizeof(struct position_head) + 24 + (LAYOUT_MAX_DEPTH + 2) * 32 <=
		      TARN_SCAN_POSITION_BYTES,
	      "a cursor of the largest index has room, scan-cursor.c");

size_t cluster_scan_save(const struct tarn_scan *walk, uint8_t *ret_bytes)
{
	const struct cluster_scan *cs = walk->cluster;
	const struct cluster_map *map = walk->session->cluster->map;
	struct position_head head = {
		.magic = POSITION_MAGIC, .epoch = map->epoch, .seed = map->seed};
	uint8_t cursor[SCAN_POSITION_BYTES];
	uint32_t shard;
	size_t n = 0;

	if (cs->member && cs->lowest && !cs->found) {
		head.number = cs->number;
		head.epoch = cs->epoch;
		n = scan_cursor_save(&cs->member->cursor, cs->member->incarnation,
				     cs->member->groups, cursor);
	} else if (cs->left) {
		head.number = next_number(cs, 0, true, &shard);
		/* all that is left has no owner: from the beginning */
		if (head.number == 0)
			head.number = 1;
	}
	memcpy(ret_bytes, &head, sizeof(head));
	memcpy(ret_bytes + sizeof(head), cursor, n);
	return sizeof(head) + n;
}

int cluster_scan_load(struct tarn_scan *walk, const void *bytes, size_t n)
{
	const struct cluster_map *map = walk->session->cluster->map;
	struct cluster_scan *cs = walk->cluster;
	struct scan_cursor cursor;
	struct position_head head;
	uint64_t incarnation;
	uint32_t groups;
	int ret = 0;

	if (n < sizeof(head) || n > TARN_SCAN_POSITION_BYTES)
		return err_set(-EINVAL, "the position of a walk over a cluster has %zu bytes: this is none", n);
	memcpy(&head, bytes, sizeof(head));
	if (head.magic != POSITION_MAGIC || head.reserved || head.seed != map->seed)
		return err_set(-EINVAL, "these %zu bytes are no position of a walk over cluster %s",
			       n, map->cluster);
	cs->cursor_bytes = n - sizeof(head);
	cs->cursor_number = head.number;
	cs->cursor_epoch = head.epoch;
	memcpy(cs->cursor, (const uint8_t *)bytes + sizeof(head), cs->cursor_bytes);
	if (cs->cursor_bytes)
		ret = scan_cursor_load(&cursor, cs->cursor, cs->cursor_bytes, &incarnation, &groups);
	for (uint32_t i = 0; i < map->shards; i++) {
		bool behind = map->owners[i] != CLUSTER_NOBODY && map->since[i] <= head.epoch &&
			      map->members[map->owners[i]].number < head.number;

		if (head.number == 0 || behind)
			set_done(cs, i);
	}
	return ret;
}
