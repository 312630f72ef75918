/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-walk.c - a client's walk over all keys while shards are handed over: client/cluster-scan.c and scan*.c, step by step
 *
 * What tarn_scan_open() promises is checked by histories: a key that is shown is a get that has found that value at some instant of the
 * walk, and one that is not is a get that has found nothing at some instant of it. No key comes twice unless its shard was to be moved,
 * a daemon was started again, or it may have been deleted meanwhile. Next: pool-client.c.
 */
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "pool-world.h"
#include "scan-internal.h"
#include "tarn/tarn.h"

#define RECORDS_LEFT 60u /* for the calls */

struct pw_walk {
	struct pw_client *client;
	struct tarn_session front; /* the cluster's, of which there is no more than this */
	struct cluster cluster;
	struct cluster_source source; /* of the time: 0 while the map is fresh */
	bool fresh;
	struct tarn_scan *walk, *member; /* member: whose call is under way */
	uint32_t map;                    /* with which it has begun */
	uint64_t invoked, epoch_invoked;
	uint64_t pools[PW_MEMBERS]; /* of its sessions: another one after a daemon's start, which a walk is told of */
	bool shown[HW_KEYS];
	bool passed; /* a member could not be reached */
	bool skipped[HW_PLAY]; /* nobody had the shard, by a fresh map: see is_over() */
	bool loose;  /* its position said less than it knew: tarn_scan_position() */
};

/* cluster.c's; the wrap is in Makefile.inc. */
int __wrap_cluster_node_session(struct tarn_session *front, uint32_t place, uint64_t limit_ns, struct tarn_session **ret_session);

static struct hw_world *world_of(const struct pw_client *c)
{
	return c->client->world;
}

int __wrap_cluster_node_session(struct tarn_session *front, uint32_t place, uint64_t limit_ns, struct tarn_session **ret_session)
{
	struct pw_walk *v = (struct pw_walk *)((char *)front - offsetof(struct pw_walk, front));
	struct tarn_session *s = v->client->sessions[place];

	(void)limit_ns;
	if (s->lost && session_reconnect_try(s, 0) < 0) {
		s->try_ns = 0;
		v->passed = true;
		return -TARN_ESESSION;
	}
	*ret_session = s;
	return 0;
}

static uint64_t boottime(struct cluster_source *source)
{
	return !((const struct pw_walk *)((char *)source - offsetof(struct pw_walk, source)))->fresh;
}

/* ---- begin and end ---- */

static bool make_walk(struct pw_walk *v)
{
	v->walk = calloc(1, sizeof(*v->walk));
	if (!v->walk)
		return false;
	v->walk->prefix = (uint8_t *)"";
	v->walk->session = &v->front;
	return cluster_scan_create(v->walk) == 0;
}

static void end_walk(struct pw_walk *v)
{
	if (!v->walk)
		return;
	cluster_scan_free(v->walk->cluster);
	free(v->walk);
	v->walk = v->member = NULL;
}

bool pw_walk_create(struct pw_client *c)
{
	c->walk = calloc(1, sizeof(*c->walk));
	if (!c->walk)
		return false;
	c->walk->client = c;
	c->walk->front.cluster = &c->walk->cluster;
	c->walk->source.boottime = boottime;
	c->walk->cluster.source = &c->walk->source;
	c->walk->cluster.bound_ns = 1;
	return true;
}

void pw_walk_free(struct pw_client *c)
{
	if (c->walk)
		end_walk(c->walk);
	free(c->walk);
	c->walk = NULL;
}

/* As housekeeping has it now. */
static void use_map(struct pw_walk *v)
{
	v->cluster.map = &world_of(v->client)->maps[v->client->client->map].map;
}

void pw_walk_begin(struct pw_client *c)
{
	struct hw_world *w = world_of(c);
	struct pw_walk *v = c->walk;

	use_map(v);
	if (!make_walk(v))
		hw_fail(w, "no memory");
	v->map = c->client->map;
	v->invoked = ++w->clock;
	v->epoch_invoked = pw_world(w)->epochs_all;
	memset(v->shown, 0, sizeof(v->shown));
	for (unsigned i = 0; i < PW_MEMBERS; i++)
		v->pools[i] = c->sessions[i]->pool_serial;
	memset(v->skipped, 0, sizeof(v->skipped));
	v->passed = v->loose = false;
	pw_world(w)->walks++;
	hw_trace(w, "c%u begins a walk", c->client->number);
}

/* ---- what has come ---- */

/* A get that was called when the walk began and returns now. NULL: there have been too many. */
static struct hw_record *record(struct pw_walk *v, uint32_t key)
{
	struct hw_world *w = world_of(v->client);
	struct hw_record *r = &w->records[w->record_count];

	if (w->record_count + RECORDS_LEFT >= HW_RECORDS)
		return NULL;
	w->record_count++;
	*r = (struct hw_record){.key = key};
	r->op.kind = LINEAR_GET;
	r->op.client = v->client->client->number;
	r->op.invoked = v->invoked;
	r->op.returned = ++w->clock;
	r->op.outcome = LINEAR_ABSENT;
	r->op.epoch_invoked = v->epoch_invoked;
	r->op.epoch_returned = pw_world(w)->epochs_any;
	return r;
}

/* May it have been away for a moment? */
static bool may_go(const struct pw_walk *v, uint32_t key)
{
	const struct hw_world *w = world_of(v->client);

	for (uint32_t i = 0; i < w->record_count; i++) {
		const struct hw_record *r = &w->records[i];

		if (r->key == key && ((r->op.kind == LINEAR_DELETE && r->op.returned > v->invoked) || r->ttl_epochs))
			return true;
	}
	return false;
}

/* A hand-over that was given up counts, too: the shard is another one's by its `since`. */
static bool was_moved(const struct pw_walk *v, uint32_t shard)
{
	const struct hw_world *w = world_of(v->client);

	return w->maps[v->map].since[shard] != w->maps[v->client->client->map].since[shard];
}

/* Whose daemon was started again. */
static bool was_restarted(const struct pw_walk *v)
{
	for (unsigned i = 0; i < PW_MEMBERS; i++)
		if (v->client->sessions[i]->pool_serial != v->pools[i])
			return true;
	return false;
}

static void check_item(const struct pw_walk *v, uint32_t key, const struct tarn_item *item)
{
	struct hw_world *w = world_of(v->client);
	const struct hw_record *put = &w->records[item->user_flags - 1];

	if (item->user_flags == 0 || item->user_flags > w->record_count || put->key != key || put->bytes != item->value_bytes)
		hw_fail(w, "c%u: a walk shows of key %u what nobody has put: flags %u, %llu bytes", v->client->client->number, key,
			item->user_flags, (unsigned long long)item->value_bytes);
}

static void show(struct pw_walk *v)
{
	struct hw_world *w = world_of(v->client);
	struct tarn_item item;
	size_t bytes;
	const void *name = cluster_scan_key(v->walk, &bytes, &item);
	uint32_t key = 0;
	struct hw_record *r;

	while (key < HW_KEYS && (bytes != PW_KEY_BYTES || memcmp(name, pw_world(w)->keys[key], bytes) != 0))
		key++;
	if (key == HW_KEYS) {
		hw_fail(w, "c%u: a walk shows a key that nobody has put", v->client->client->number);
		return;
	}
	hw_trace(w, "c%u's walk shows key %u", v->client->client->number, key);
	if (v->shown[key] && !was_moved(v, key % HW_PLAY) && !was_restarted(v) && !v->loose && !may_go(v, key))
		hw_fail(w, "c%u: a walk shows key %u twice, whose shard has not moved", v->client->client->number, key);
	pw_world(w)->again += v->shown[key];
	v->shown[key] = true;
	/* a walk tells no counter's number */
	if (item.kind == TARN_KIND_COUNTER)
		return;
	check_item(v, key, &item);
	r = record(v, key);
	if (r) {
		r->op.outcome = LINEAR_OK;
		r->op.value = item.user_flags;
	}
}

/*
 * What was not shown was not there all the time. Keys of a shard that was nobody's are gone at some instant between the end of its owner and
 * the next one's beginning, not for everybody at the same.
 */
static void is_over(struct pw_walk *v)
{
	struct hw_world *w = world_of(v->client);

	hw_trace(w, "c%u's walk ends", v->client->client->number);
	pw_world(w)->walked++;
	for (uint32_t key = 0; key < HW_KEYS; key++)
		if (!v->shown[key] && !v->skipped[key % HW_PLAY])
			(void)record(v, key);
	end_walk(v);
}

/* Another process goes on where this one is. */
static void hand_on(struct pw_walk *v)
{
	struct hw_world *w = world_of(v->client);
	uint8_t position[TARN_SCAN_POSITION_BYTES];
	size_t bytes = cluster_scan_save(v->walk, position);

	hw_trace(w, "c%u's walk goes on from its position", v->client->client->number);
	for (uint32_t shard = 0; shard < HW_PLAY; shard++)
		v->loose |= v->passed || was_moved(v, shard);
	end_walk(v);
	if (!make_walk(v) || cluster_scan_load(v->walk, position, bytes) < 0)
		hw_fail(w, "c%u: a walk can not go on from its position", v->client->client->number);
}

/* ---- steps ---- */

static enum pw_walk_next ended_with(struct pw_walk *v, int result)
{
	struct hw_world *w = world_of(v->client);

	if (result == 0) {
		is_over(v);
		return PW_WALK_OVER;
	}
	if (result != -TARN_EMOVED && result != -TARN_ESESSION && result != -TARN_EUNAVAILABLE && result != -TARN_ETIMEOUT)
		hw_fail(w, "c%u: a walk's call returned %d, which it must not", v->client->client->number, result);
	return PW_WALK_WAIT;
}

enum pw_walk_next pw_walk_judge(struct pw_client *c, int result, bool fresh)
{
	struct hw_world *w = world_of(c);
	struct pw_walk *v = c->walk;
	struct tarn_item item = TARN_ITEM_INIT;

	hw_trace(w, "c%u's walk at m%u: %d", c->client->number, c->client->target, result);
	use_map(v);
	if (v->member && result >= 0) {
		if (result == 1)
			scan_item(v->member, &item);
		cluster_scan_keep(v->walk, result, &item);
	}
	v->member = NULL;
	if (result >= 0 && w->cache && !fresh)
		return PW_WALK_WAIT;
	if (!cluster_scan_judge(v->walk, &result))
		return PW_WALK_GO_ON;
	if (result < 0)
		return ended_with(v, result);
	show(v);
	if (hw_chance(w, 100))
		hand_on(v);
	return PW_WALK_PAUSE;
}

enum pw_walk_next pw_walk_next(struct pw_client *c, bool fresh, struct task **ret_task, unsigned *ret_member)
{
	struct hw_world *w = world_of(c);
	struct pw_walk *v = c->walk;
	struct tarn_scan *member;
	int ret;

	if (w->now_ns > c->client->limit_ns) {
		end_walk(v);
		return PW_WALK_OVER;
	}
	use_map(v);
	v->fresh = fresh;
	for (uint32_t shard = 0; w->cache && shard < HW_PLAY; shard++)
		v->skipped[shard] |= fresh && v->cluster.map->owners[shard] == CLUSTER_NOBODY;
	ret = cluster_scan_step(v->walk, 0, &member);
	if (ret <= 0)
		return ended_with(v, ret);
	if (cluster_scan_found(v->walk))
		return pw_walk_judge(c, 1, fresh);
	v->member = member;
	*ret_task = scan_next(member);
	(*ret_task)->status = 0;
	*ret_member = member->session == c->sessions[1];
	return PW_WALK_TASK;
}
