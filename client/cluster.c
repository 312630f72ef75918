/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster.c - a cluster's session: its map, how fresh that is, and the sessions with members
 *
 * Runs on the session's owner. Nothing here knows URIs or messages: that is cluster-connect.c. Next to read: cluster.h,
 * cluster-route.c and cluster-call.c for operations, cluster-session.c for the rest of the public functions.
 */
#include "cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "engine.h"
#include "err.h"

#define ASK_MAX_NS   1000000000u /* one question: a member that stands still must not eat the whole limit */
#define OPEN_MAX_NS  2000000000u
#define DELAY_MIN_NS 10000000u
#define DELAY_MAX_NS 1000000000u

/* ---- sessions with members ------------------------------------------------------------------- */

/* Of all but size and client_id, which come first. */
#define STATS_FIRST (2 * sizeof(uint32_t) / sizeof(uint64_t))

static void stats_add(struct tarn_session_stats *to, const struct tarn_session_stats *from)
{
	uint64_t *sum = (uint64_t *)to;
	const uint64_t *more = (const uint64_t *)from;

	for (size_t i = STATS_FIRST; i < sizeof(*to) / sizeof(*sum); i++)
		sum[i] += more[i];
}

/* Hands memory back, if there is a connection. */
static void session_end(struct cluster *c, struct tarn_session *m)
{
	stats_add(&c->gone, &m->stats);
	cluster_unwatch(c, m);
	tarn_session_close(m);
}

static void node_close(struct cluster *c, struct cluster_node *node)
{
	if (!node->session)
		return;
	/* what the application has open goes on by itself, as with a single daemon */
	if (!LIST_EMPTY(&node->session->regions))
		LIST_INSERT_HEAD(&c->retired, node->session, housekeeping);
	else
		session_end(c, node->session);
	node->session = NULL;
}

struct tarn_session *cluster_session_next(const struct cluster *c, const struct tarn_session *after)
{
	bool found = !after;

	for (uint32_t i = 0; i < c->map->member_count; i++) {
		if (c->nodes[i].session && found)
			return c->nodes[i].session;
		found |= c->nodes[i].session && c->nodes[i].session == after;
	}
	return found ? LIST_FIRST(&c->retired) : LIST_NEXT(after, housekeeping);
}

void cluster_prune(struct cluster *c)
{
	struct tarn_session *m, *next;

	for (m = LIST_FIRST(&c->retired); m; m = next) {
		next = LIST_NEXT(m, housekeeping);
		if (!LIST_EMPTY(&m->regions) || engine_owes(m->engine))
			continue;
		LIST_REMOVE(m, housekeeping);
		session_end(c, m);
	}
}

static void nodes_free(struct cluster *c, struct cluster_node *nodes, uint32_t count)
{
	for (uint32_t i = 0; nodes && i < count; i++) {
		node_close(c, &nodes[i]);
		free(nodes[i].since);
	}
	free(nodes);
}

static void node_adopt(struct cluster *c, struct cluster_node *node, struct tarn_session *m)
{
	m->front = c->session;
	m->since = node->since;
	m->since_shards = c->map->shards;
	node->session = m;
	node->delay_ns = 0;
}

/* It is who the map says, of this cluster's pool, and does not go back behind what it has said. */
static int node_judge(struct cluster *c, struct cluster_node *node,
		      const struct cluster_answer *answer, const struct tarn_session *m)
{
	const char *name = c->map->members[node - c->nodes].name;

	if (answer->number != node->number)
		return err_set(-TARN_EPROTO,
			       "at the address of member %s (number %u) is the member of number %u: the map's "
			       "addresses are wrong, or a name leads to another host",
			       name, node->number, answer->number);
	if (m->geometry.shards != c->map->shards || m->geometry.hash_seed != c->map->seed)
		return err_set(-TARN_EPROTO,
			       "the pool of member %s has %u shards, or another hash seed: it was not "
			       "made for this cluster, whose map says %u shards",
			       name, m->geometry.shards, c->map->shards);
	if (answer->epoch < node->epoch)
		return err_set(-TARN_EPROTO,
			       "member %s speaks of epoch %llu after %llu: its connection is given up", name,
			       (unsigned long long)answer->epoch, (unsigned long long)node->epoch);
	node->epoch = answer->epoch;
	return 0;
}

static uint64_t left_until(uint64_t limit_ns, uint64_t most_ns)
{
	uint64_t now = clock_now_ns(), left = limit_ns > now ? limit_ns - now : 1;

	return left < most_ns ? left : most_ns;
}

static int node_ask(struct cluster *c, struct cluster_node *node, uint64_t limit_ns,
		    struct cluster_answer *ret_answer)
{
	int ret = c->source->ask(c->source, node->session, left_until(limit_ns, ASK_MAX_NS),
				 ret_answer);

	if (ret == 0) {
		ret = node_judge(c, node, ret_answer, node->session);
		if (ret < 0)
			node_close(c, node);
	}
	return ret;
}

static int node_open(struct cluster *c, struct cluster_node *node, uint64_t limit_ns)
{
	const struct cluster_member *member = &c->map->members[node - c->nodes];
	struct cluster_answer answer;
	struct tarn_session *m;
	uint64_t now = clock_now_ns();
	int ret;

	if (now < node->try_ns)
		return err_set(-TARN_EUNREACHABLE,
			       "member %s could not be reached a moment ago: %s", member->name,
			       node->why);
	ret = c->source->member(c->source, c->map, member, left_until(limit_ns, OPEN_MAX_NS), &m);
	if (ret == 0) {
		node_adopt(c, node, m);
		ret = cluster_buffer_adopt(m);
	}
	if (ret == 0) {
		ret = node_ask(c, node, limit_ns, &answer);
	}
	if (ret == 0)
		return 0;
	node_close(c, node);
	node->delay_ns = node->delay_ns ? 2 * node->delay_ns : DELAY_MIN_NS;
	if (node->delay_ns > DELAY_MAX_NS)
		node->delay_ns = DELAY_MAX_NS;
	node->try_ns = clock_now_ns() + node->delay_ns;
	strncpy(node->why, err_text(), sizeof(node->why) - 1);
	return ret;
}

/* It may be another one's now: the address is all that is the same. */
static int node_reconnect(struct cluster *c, struct cluster_node *node, uint64_t limit_ns)
{
	struct cluster_answer answer;
	int ret = session_hold(node->session);

	if (ret < 0)
		return ret;
	ret = session_reconnect_try(node->session, left_until(limit_ns, SESSION_TRY_NS));
	session_leave(node->session);
	return ret < 0 ? ret : node_ask(c, node, limit_ns, &answer);
}

int cluster_node_session(struct tarn_session *s, uint32_t place, uint64_t limit_ns,
			 struct tarn_session **ret_session)
{
	struct cluster_node *node = &s->cluster->nodes[place];
	int ret = 0;

	if (__builtin_expect(!node->session, 0))
		ret = node_open(s->cluster, node, limit_ns);
	else if (__builtin_expect(node->session->lost, 0))
		ret = node_reconnect(s->cluster, node, limit_ns);
	if (ret < 0)
		return ret;
	*ret_session = node->session;
	return 0;
}

bool cluster_passes(int result)
{
	switch (result) {
	case -TARN_EMOVED:
	case -TARN_ESESSION:
	case -TARN_EUNREACHABLE:
	case -TARN_EREFUSED:
	case -TARN_EPROTO: /* closed without an answer, or the wrong one at an address */
	case -TARN_ENOPOOL: /* it is starting */
	case -EACCES:
	case -EAGAIN:
		return true;
	default:
		return false;
	}
}

/* ---- the map --------------------------------------------------------------------------------- */

static uint64_t boottime(const struct cluster *c)
{
	return c->source->boottime(c->source);
}

bool cluster_fresh(const struct cluster *c)
{
	return boottime(c) < c->fresh_ns + c->bound_ns;
}

static void fill_since(const struct cluster_map *map, uint32_t place, uint64_t *since)
{
	for (uint32_t i = 0; i < map->shards; i++)
		since[i] = map->owners[i] == place ? map->since[i] : 0;
}

/* Those of before that are in the new map keep their sessions; others end. */
static int adopt(struct cluster *c, struct cluster_map *map)
{
	uint32_t before = c->map ? c->map->member_count : 0;
	struct cluster_node *nodes = calloc(map->member_count, sizeof(*nodes));

	for (uint32_t i = 0; nodes && i < map->member_count; i++) {
		nodes[i].number = map->members[i].number;
		nodes[i].since = calloc(map->shards, sizeof(*nodes[i].since));
		if (!nodes[i].since) {
			nodes_free(c, nodes, map->member_count);
			nodes = NULL;
		}
	}
	if (!nodes)
		return err_set(-ENOMEM, "no memory for the cluster's map");
	for (uint32_t i = 0; i < map->member_count; i++) {
		struct cluster_node *node = &nodes[i], *old = NULL;

		for (uint32_t j = 0; !old && j < before; j++)
			if (c->nodes[j].number == node->number)
				old = &c->nodes[j];
		if (old) {
			free(node->since);
			*node = *old;
			old->session = NULL;
			old->since = NULL;
		}
		/* in place: operations under way go by what it was when they began */
		fill_since(map, i, node->since);
	}
	nodes_free(c, c->nodes, before);
	cluster_map_free(c->map);
	c->map = map;
	c->nodes = nodes;
	c->asked = c->asked < map->member_count ? c->asked : 0;
	return 0;
}

/* A map that a member has given. Takes it over. */
static int take(struct cluster *c, struct cluster_map *map)
{
	int ret = 0;

	if (c->map && (strcmp(c->map->cluster, map->cluster) != 0 || c->map->seed != map->seed ||
		       strcmp(c->map->pool, map->pool) != 0 || c->map->shards != map->shards))
		ret = err_set(-TARN_EPROTO,
			      "a member gives the map of cluster %s, pool %s, with %u shards: this "
			      "session's is of cluster %s, pool %s, with %u, or the hash seed differs",
			      map->cluster, map->pool, map->shards, c->map->cluster, c->map->pool,
			      c->map->shards);
	else if (!c->map || map->epoch > c->map->epoch)
		return adopt(c, map);
	cluster_map_free(map);
	return ret;
}

/* Counted from when the question was sent; the twentieth is for clocks that do not run alike. */
static void learn_age(struct cluster *c, uint64_t sent_ns, uint64_t age_ns)
{
	uint64_t most = age_ns < UINT64_MAX / 2 ? age_ns + age_ns / 20 : UINT64_MAX;
	uint64_t fresh = most < sent_ns ? sent_ns - most : 0;

	if (fresh > c->fresh_ns)
		c->fresh_ns = fresh;
}

/* Asks this one, and fetches its map if that is newer. */
static int ask_node(struct cluster *c, uint32_t place, uint64_t limit_ns)
{
	struct cluster_node *node = &c->nodes[place];
	uint64_t sent_ns = boottime(c);
	struct cluster_answer answer;
	struct cluster_map *map;
	int ret = node_ask(c, node, limit_ns, &answer);

	if (ret < 0)
		return ret;
	if (answer.epoch < c->map->epoch)
		return err_set(-EAGAIN, "member %s has a map of epoch %llu, which is older",
			       c->map->members[place].name, (unsigned long long)answer.epoch);
	c->asked = place;
	if (answer.epoch > c->map->epoch) {
		ret = c->source->fetch(c->source, node->session, left_until(limit_ns, ASK_MAX_NS),
				       &map);
		if (ret == 0)
			ret = take(c, map); /* `node` is gone */
		/* what it has given may be older than what it spoke of, if something is wrong with it */
		if (ret == 0 && c->map->epoch < answer.epoch)
			ret = err_set(-TARN_EPROTO, "a member gives a map of epoch %llu and speaks of %llu",
				      (unsigned long long)c->map->epoch,
				      (unsigned long long)answer.epoch);
	}
	if (ret == 0)
		learn_age(c, sent_ns, answer.age_ns);
	return ret;
}


/*
 * One round over the members with a connection, or over the others. Who is down may stand still, with a connection, and would keep
 * us waiting: they come last, and only if nobody else has answered. True: the map is another one, and places have changed; or, if that is
 * what is wanted, it is fresh.
 */
static bool ask_round(struct tarn_session *s, uint64_t limit_ns, bool connect, bool fresh,
		      bool *answered)
{
	struct cluster *c = s->cluster;
	uint32_t count = c->map->member_count, first = c->asked;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t place = (first + i) % count;
		uint64_t epoch = c->map->epoch;
		struct tarn_session *m = c->nodes[place].session;
		bool down = c->map->members[place].state == CLUSTER_DOWN;
		bool connected = m && !m->lost && !down;
		int ret;

		if (connected == connect || c->map->members[place].state == CLUSTER_LEFT ||
		    (down && *answered))
			continue;
		ret = cluster_node_session(s, place, limit_ns, &m);
		if (ret == 0)
			ret = ask_node(c, place, limit_ns);
		if ((ret == 0 && fresh && cluster_fresh(c)) || c->map->epoch > epoch)
			return true;
		*answered |= ret == 0;
		/* that says more than who could not be reached */
		if (ret == -TARN_EPROTO)
			strncpy(c->wrong, err_text(), sizeof(c->wrong) - 1);
	}
	return false;
}

bool cluster_newer(struct tarn_session *s, uint64_t limit_ns, bool connect)
{
	bool answered = false;

	return ask_round(s, limit_ns, false, false, &answered) ||
	       (connect && ask_round(s, limit_ns, true, false, &answered));
}

int cluster_refresh(struct tarn_session *s, uint64_t limit_ns)
{
	struct cluster *c = s->cluster;
	uint64_t pause = DELAY_MIN_NS / 2;
	char last[200];

	c->wrong[0] = 0;
	err_clear();
	for (;;) {
		bool answered = false;

		if ((ask_round(s, limit_ns, false, true, &answered) ||
		     ask_round(s, limit_ns, true, true, &answered)) &&
		    cluster_fresh(c))
			return 0;
		if (clock_now_ns() + pause >= limit_ns)
			break;
		clock_sleep_ns(pause);
		pause = pause < DELAY_MAX_NS / 4 ? 2 * pause : pause;
	}
	snprintf(last, sizeof(last), "%s", c->wrong[0] ? c->wrong : err_text());
	return err_set(-TARN_EMAP,
		       "no fresh map of cluster %s since %.1f s (map_bound is %.1f s): no member could say that epoch "
		       "%llu is still the newest%s%s",
		       c->map->cluster, (double)(boottime(c) - c->fresh_ns) / 1e9,
		       (double)c->bound_ns / 1e9, (unsigned long long)c->map->epoch,
		       last[0] ? "; the last one: " : "", last);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* The seed has become the session with a member, or is of no use. */
static void place_seed(struct cluster *c, struct tarn_session *seed,
		       const struct cluster_answer *answer)
{
	for (uint32_t i = 0; i < c->map->member_count; i++) {
		if (c->nodes[i].number != answer->number || c->nodes[i].session)
			continue;
		node_adopt(c, &c->nodes[i], seed);
		if (node_judge(c, &c->nodes[i], answer, seed) < 0)
			node_close(c, &c->nodes[i]);
		return;
	}
	tarn_session_close(seed);
}

static int try_seed(struct cluster *c, unsigned i, uint64_t limit_ns, uint64_t timeout_ns)
{
	struct cluster_answer answer;
	struct tarn_session *seed;
	struct cluster_map *map;
	uint64_t sent_ns;
	int ret = c->source->seed(c->source, i, timeout_ns, &seed);

	if (ret < 0)
		return ret;
	sent_ns = boottime(c);
	ret = c->source->ask(c->source, seed, left_until(limit_ns, ASK_MAX_NS), &answer);
	if (ret == 0)
		ret = c->source->fetch(c->source, seed, left_until(limit_ns, ASK_MAX_NS), &map);
	if (ret == 0)
		ret = take(c, map);
	if (ret < 0) {
		tarn_session_close(seed);
		return ret;
	}
	learn_age(c, sent_ns, answer.age_ns);
	place_seed(c, seed, &answer);
	return 0;
}

/* One after the other, and again as long as there is time and trying is of use. */
static int first_map(struct cluster *c, uint64_t limit_ns)
{
	for (;;) {
		char all[ERR_TEXT_BYTES - 80] = "";
		bool again = false;
		unsigned i;
		int ret;

		for (i = 0;; i++) {
			size_t at = strlen(all);

			ret = try_seed(c, i, limit_ns, left_until(limit_ns, OPEN_MAX_NS));
			if (ret == 0)
				return 0;
			if (ret == -ENOENT)
				break;
			again |= ret == -TARN_EREFUSED || ret == -TARN_ETIMEOUT || ret == -EAGAIN ||
				 ret == -TARN_ENOTFOUND;
			snprintf(all + at, sizeof(all) - at, "%s%s", i ? "; " : "", err_text());
			/* who says no to the client says no everywhere */
			if (ret == -TARN_EAUTH || ret == -TARN_ENOTBUILT || ret == -TARN_EURI ||
			    ret == -ENOMEM)
				return ret;
		}
		if (!again || clock_now_ns() + DELAY_MIN_NS * 5 >= limit_ns)
			return err_set(-TARN_EUNREACHABLE, "no map from any of %u: %s", i, all);
		clock_sleep_ns(DELAY_MIN_NS * 5);
	}
}

int cluster_open(struct cluster_source *source, const struct tarn_options *options,
		 uint64_t bound_ns, struct tarn_session **ret_session)
{
	uint64_t limit_ns = clock_now_ns() + options->timeout_ms * 1000000ull;
	struct cluster *c = calloc(1, sizeof(*c));
	struct tarn_session *s = c ? session_create_front(options) : NULL;
	int ret;

	if (!s) {
		free(c);
		source->free(source);
		return err_set(-ENOMEM, "no memory for a session");
	}
	c->source = source;
	c->bound_ns = bound_ns;
	c->gone.size = sizeof(c->gone);
	c->session = s;
	c->timer = -1;
	s->cluster = c;
	ret = first_map(c, limit_ns);
	if (ret == 0 && !(s->flags & TARN_NO_THREAD))
		ret = housekeeping_add(s);
	if (ret < 0) {
		cluster_close(s);
		return ret;
	}
	*ret_session = s;
	return 0;
}

void cluster_close(struct tarn_session *s)
{
	struct cluster *c = s->cluster;
	char text[ERR_TEXT_BYTES];

	struct tarn_session *m;

	strcpy(text, err_text());
	if (c->map)
		cluster_async_stop(c);
	nodes_free(c, c->nodes, c->map ? c->map->member_count : 0);
	while ((m = LIST_FIRST(&c->retired)) != NULL) {
		LIST_REMOVE(m, housekeeping);
		session_end(c, m);
	}
	if (c->timer >= 0)
		close(c->timer);
	cluster_async_free(c);
	cluster_map_free(c->map);
	c->source->free(c->source);
	free(c);
	s->cluster = NULL;
	session_free(s);
	err_set(0, "%s", text);
}
