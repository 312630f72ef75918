/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client/cluster.h: a session with a cluster of three pools in this process's memory
 *
 * The test is all daemons and the keeper of the map: it writes shards' words, and says what members answer, how old that
 * is, and whether they can be reached. What daemons do is tests/integration/test-cluster.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clock.h"
#include "cluster-wire.h"
#include "cluster.h"
#include "fixture.h"
#include "shard.h"

#define MIB     (1ull << 20)
#define SHARDS  64u
#define NODES   3u
#define SECOND  1000000000ull
#define KEYS    400u
#define BOUND   (5 * SECOND)

struct node {
	struct fixture f;
	bool away;           /* can not be reached */
	unsigned asked;
	uint64_t epoch;      /* of the map that it has; 0: the newest */
	uint16_t number;     /* that it says it has */
	struct cluster_map *map; /* that it has, with `epoch`; NULL: the newest */
};

struct world {
	struct cluster_source source;
	struct node nodes[NODES];
	struct cluster_map *map; /* the newest */
	uint64_t now;            /* boottime */
	uint64_t age_ns;
	/* after so many looks at the clock it is later by `leap`; 0: never */
	unsigned looks, leap_after;
	uint64_t leap;
	unsigned asked, fetched, opened;
	bool silent; /* nobody answers any question */
	bool freed;
};

static struct world *world_of(struct cluster_source *source)
{
	return (struct world *)source;
}

/* ---- the map --------------------------------------------------------------------------------- */

/* As it comes from a member. */
static struct cluster_map *copy(const struct cluster_map *map)
{
	size_t bytes = cluster_wire_bytes(map);
	struct cluster_map *again = NULL;
	void *buffer = malloc(bytes);

	if (cluster_wire_encode(map, buffer, bytes, &bytes) < 0 ||
	    cluster_wire_decode(buffer, bytes, &again) < 0)
		fail_msg("%s", err_text());
	free(buffer);
	return again;
}

static struct cluster_map *new_map(bool cache)
{
	static const char *const names[] = {"a", "b", "c"};
	struct cluster_map *map = calloc(1, sizeof(*map));

	strcpy(map->cluster, "c1");
	strcpy(map->pool, "main");
	map->cache = cache;
	map->seed = 42; /* fixture_plan()'s */
	map->epoch = 5;
	map->shards = SHARDS;
	map->member_count = NODES;
	map->members = calloc(NODES, sizeof(*map->members));
	map->owners = calloc(SHARDS, sizeof(*map->owners));
	map->since = calloc(SHARDS, sizeof(*map->since));
	map->taken = calloc(SHARDS, sizeof(*map->taken));
	map->moves = calloc(1, sizeof(*map->moves));
	for (unsigned i = 0; i < NODES; i++) {
		struct cluster_member *m = &map->members[i];

		strcpy(m->name, names[i]);
		m->number = (uint16_t)(i + 11);
		m->weight = 100;
		m->address_count = 1;
		m->addresses = calloc(1, sizeof(*m->addresses));
		strcpy(m->addresses[0].text, names[i]);
	}
	for (unsigned i = 0; i < SHARDS; i++) {
		map->owners[i] = (uint16_t)(i % NODES);
		map->since[i] = 5;
	}
	return map;
}

static void set_word(struct world *w, unsigned node, uint32_t shard, enum shard_state state,
		     uint64_t epoch)
{
	struct fixture *f = &w->nodes[node].f;

	*fixture_word(f, layout_shard_offset(&f->geometry, shard)) = shard_word_make(state, epoch);
}

/* The shard is another one's from the next epoch on; its keys do not go along. */
static void give(struct world *w, uint32_t shard, unsigned to)
{
	set_word(w, w->map->owners[shard], shard, SHARD_GONE, 0);
	w->map->epoch++;
	w->map->owners[shard] = (uint16_t)to;
	w->map->since[shard] = w->map->epoch;
	set_word(w, to, shard, SHARD_OPEN, w->map->epoch);
}

/* ---- the source ------------------------------------------------------------------------------ */

static struct node *node_of(struct world *w, const struct tarn_session *m)
{
	for (unsigned i = 0; i < NODES; i++)
		if (m->geometry.boot_id == w->nodes[i].f.geometry.boot_id)
			return &w->nodes[i];
	fail();
	return NULL;
}

static int open_node(struct world *w, unsigned i, struct tarn_session **ret_session)
{
	if (w->nodes[i].away)
		return err_set(-TARN_EUNREACHABLE, "%c is away", 'a' + (int)i);
	w->opened++;
	*ret_session = fixture_session(&w->nodes[i].f, TARN_NO_THREAD);
	return 0;
}

static int source_seed(struct cluster_source *source, unsigned i, uint64_t timeout_ns,
		       struct tarn_session **ret_session)
{
	(void)timeout_ns;
	return i < 2 ? open_node(world_of(source), i, ret_session) : -ENOENT;
}

static int source_member(struct cluster_source *source, const struct cluster_map *map,
			 const struct cluster_member *member, uint64_t timeout_ns,
			 struct tarn_session **ret_session)
{
	(void)map;
	(void)timeout_ns;
	return open_node(world_of(source), (unsigned)(member->name[0] - 'a'), ret_session);
}

static int source_ask(struct cluster_source *source, struct tarn_session *m, uint64_t timeout_ns,
		      struct cluster_answer *ret_answer)
{
	struct world *w = world_of(source);
	struct node *node = node_of(w, m);

	(void)timeout_ns;
	w->asked++;
	node->asked++;
	if (node->away)
		session_lose(m);
	if (node->away || w->silent)
		return err_set(-TARN_ESESSION, "no answer");
	*ret_answer = (struct cluster_answer){.epoch = node->epoch ? node->epoch : w->map->epoch,
					      .age_ns = w->age_ns,
					      .number = node->number};
	return 0;
}

static int source_fetch(struct cluster_source *source, struct tarn_session *m, uint64_t timeout_ns,
			struct cluster_map **ret_map)
{
	struct world *w = world_of(source);
	struct node *node = node_of(w, m);

	(void)timeout_ns;
	w->fetched++;
	if (node->away)
		return err_set(-TARN_ESESSION, "no answer");
	*ret_map = copy(node->map ? node->map : w->map);
	return 0;
}

static uint64_t source_boottime(struct cluster_source *source)
{
	struct world *w = world_of(source);

	if (w->leap_after && ++w->looks == w->leap_after)
		w->now += w->leap;
	return w->now;
}

static void source_free(struct cluster_source *source)
{
	world_of(source)->freed = true;
}

/* ---- a world --------------------------------------------------------------------------------- */

static void make(struct world *w, bool cache)
{
	memset(w, 0, sizeof(*w));
	w->source = (struct cluster_source){.seed = source_seed,
					    .member = source_member,
					    .ask = source_ask,
					    .fetch = source_fetch,
					    .boottime = source_boottime,
					    .free = source_free};
	w->now = 1000 * SECOND;
	w->map = new_map(cache);
	for (unsigned i = 0; i < NODES; i++) {
		struct layout_plan plan = fixture_plan(16 * MIB);

		plan.shards = SHARDS;
		plan.map_bytes = 4096;
		plan.boot_id = 100 + i;
		plan.mode = cache ? LAYOUT_MODE_CACHE : LAYOUT_MODE_STORE;
		assert_int_equal(fixture_create(&w->nodes[i].f, &plan), 0);
		w->nodes[i].number = (uint16_t)(i + 11);
	}
	for (uint32_t shard = 0; shard < SHARDS; shard++)
		set_word(w, shard % NODES, shard, SHARD_OPEN, 5);
}

static int open_world(struct world *w, uint32_t flags, struct tarn_session **ret_session)
{
	struct tarn_options options = TARN_OPTIONS_INIT;

	options.flags = TARN_NO_THREAD | flags;
	options.timeout_ms = 5000;
	return cluster_open(&w->source, &options, BOUND, ret_session);
}

static struct tarn_session *start(struct world *w, bool cache)
{
	struct tarn_session *s = NULL;

	make(w, cache);
	if (open_world(w, 0, &s) < 0)
		fail_msg("%s", err_text());
	return s;
}

static void destroy(struct world *w)
{
	assert_true(w->freed);
	for (unsigned i = 0; i < NODES; i++)
		fixture_destroy(&w->nodes[i].f);
	cluster_map_free(w->map);
}

static void finish(struct world *w, struct tarn_session *s)
{
	tarn_session_close(s);
	destroy(w);
}

static size_t name_key(char *key, unsigned i)
{
	return (size_t)sprintf(key, "key-%u", i);
}

static int put_key(struct tarn_session *s, unsigned i)
{
	char key[32];
	size_t n = name_key(key, i);

	return tarn_put(s, key, n, key, n, NULL, NULL);
}

static int get_key(struct tarn_session *s, unsigned i)
{
	char key[32], value[32] = "";
	size_t n = name_key(key, i);
	int ret = tarn_get(s, key, n, value, sizeof(value), NULL);

	if (ret == 0)
		assert_string_equal(key, value);
	return ret;
}

static uint32_t shard_of_key(const struct world *w, unsigned i)
{
	char key[32];
	size_t n = name_key(key, i);

	return cluster_map_shard(w->map, key, n);
}

/* The first key of this owner. */
static unsigned key_of(const struct world *w, unsigned node)
{
	for (unsigned i = 0;; i++)
		if (w->map->owners[shard_of_key(w, i)] == node)
			return i;
}

static bool is_at(struct world *w, unsigned node, unsigned i)
{
	char key[32];
	size_t n = name_key(key, i);

	return fixture_slot(&w->nodes[node].f, key, n) != 0;
}

/* A key's slot is emptied, as a daemon does that has handed its shard over. */
static void forget(struct world *w, unsigned node, unsigned i)
{
	char key[32];
	size_t n = name_key(key, i);
	uint64_t slot = fixture_slot(&w->nodes[node].f, key, n);

	if (slot)
		*fixture_word(&w->nodes[node].f, slot) = 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Each key is with the owner of its shard, and with nobody else. */
static void test_spread(void **state)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct tarn_pool_info info = {.size = sizeof(info)};
	unsigned seen[NODES] = {0};
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	assert_int_equal(w.opened, 1);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(put_key(s, i), 0);
	assert_int_equal(w.opened, NODES);
	for (unsigned i = 0; i < KEYS; i++) {
		unsigned owner = w.map->owners[shard_of_key(&w, i)];

		assert_int_equal(get_key(s, i), 0);
		for (unsigned node = 0; node < NODES; node++)
			assert_int_equal(is_at(&w, node, i), node == owner);
		seen[owner]++;
	}
	for (unsigned node = 0; node < NODES; node++)
		assert_true(seen[node] > 0);
	for (unsigned i = 0; i < KEYS; i += 2) {
		char key[32];
		size_t n = name_key(key, i);

		assert_int_equal(tarn_delete(s, key, n), 0);
		assert_int_equal(tarn_delete(s, key, n), -TARN_ENOTFOUND);
	}
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(get_key(s, i), i % 2 ? 0 : -TARN_ENOTFOUND);
	assert_int_equal(tarn_session_get_stats(s, &stats), 0);
	assert_int_equal(stats.puts, KEYS);
	assert_int_equal(stats.deletes, KEYS / 2);
	assert_int_equal(tarn_session_get_pool_info(s, &info), 0);
	assert_int_equal(info.pool_bytes, NODES * 16 * MIB);
	assert_int_equal(tarn_session_set_timeout(s, 100), 0);
	assert_int_equal(tarn_exists(s, "key-1", 5, NULL), 0);
	assert_int_equal(tarn_session_process(s), 0);
	finish(&w, s);
}

/* A shard is another member's by now: the call finds the key there, by the newest map. */
static void test_moved(void **state)
{
	struct tarn_session *s;
	struct world w;
	unsigned i;

	(void)state;
	s = start(&w, false);
	i = key_of(&w, 0);
	assert_int_equal(put_key(s, i), 0);
	assert_int_equal(get_key(s, i), 0);
	give(&w, shard_of_key(&w, i), 1);
	forget(&w, 0, i);
	assert_int_equal(get_key(s, i), -TARN_ENOTFOUND);
	assert_int_equal(s->cluster->map->epoch, 6);
	assert_int_equal(put_key(s, i), 0);
	assert_true(is_at(&w, 1, i));
	assert_false(is_at(&w, 0, i));
	/* a put is the first to find out */
	give(&w, shard_of_key(&w, i), 2);
	forget(&w, 1, i);
	assert_int_equal(put_key(s, i), 0);
	assert_true(is_at(&w, 2, i));
	assert_false(is_at(&w, 1, i));
	finish(&w, s);
}

/* Without a fresh map nothing is written; reads of a store pool go on, in a cache pool they are misses. */
static void test_bound(void **state)
{
	for (unsigned cache = 0; cache < 2; cache++) {
		struct tarn_session *s;
		struct world w;

		(void)state;
		s = start(&w, cache);
		assert_int_equal(put_key(s, 1), 0);
		assert_int_equal(tarn_session_set_timeout(s, 30), 0);
		w.silent = true;
		w.now += BOUND - 1;
		assert_int_equal(put_key(s, 1), 0);
		w.now += 1;
		assert_int_equal(put_key(s, 1), -TARN_EMAP);
		assert_non_null(strstr(tarn_last_error_text(), "no fresh map of cluster c1 since"));
		assert_int_equal(put_key(s, 2), -TARN_EMAP);
		assert_int_equal(tarn_delete(s, "key-1", 5), -TARN_EMAP);
		assert_int_equal(get_key(s, 1), cache ? -TARN_ENOTFOUND : 0);
		w.silent = false;
		assert_int_equal(get_key(s, 1), 0);
		assert_int_equal(get_key(s, 2), -TARN_ENOTFOUND);
		assert_int_equal(put_key(s, 2), 0);
		finish(&w, s);
	}
}

/* What a member says is as old as it says, and a twentieth more. */
static void test_age(void **state)
{
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	w.age_ns = 4 * SECOND;
	w.now += BOUND;
	/* as of 4.2 s ago */
	assert_int_equal(put_key(s, 1), 0);
	w.silent = true;
	w.now += 799 * SECOND / 1000;
	assert_int_equal(put_key(s, 1), 0);
	w.now += SECOND / 1000;
	assert_int_equal(tarn_session_set_timeout(s, 30), 0);
	assert_int_equal(put_key(s, 1), -TARN_EMAP);
	w.silent = false;
	w.age_ns = BOUND;
	assert_int_equal(put_key(s, 1), -TARN_EMAP);
	w.age_ns = UINT64_MAX;
	assert_int_equal(put_key(s, 1), -TARN_EMAP);
	w.age_ns = 0;
	assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
	assert_int_equal(put_key(s, 1), 0);
	finish(&w, s);
}

/* The look at the clock is behind the completion: 1: nobody says anything, 2: all is as it was, 3: the shard was taken. */
static void test_late_write(void **state)
{
	for (unsigned how = 1; how <= 3; how++) {
		struct tarn_session *s;
		struct world w;
		uint32_t shard;

		(void)state;
		s = start(&w, true);
		assert_int_equal(put_key(s, 1), 0);
		assert_int_equal(tarn_session_set_timeout(s, 30), 0);
		shard = shard_of_key(&w, 1);
		/* one look in front of the post, one behind it */
		w.looks = 0;
		w.leap_after = 2;
		w.leap = BOUND;
		w.silent = how == 1;
		if (how == 3) {
			w.map->epoch++;
			w.map->owners[shard] = (uint16_t)((w.map->owners[shard] + 1) % NODES);
			w.map->since[shard] = w.map->taken[shard] = w.map->epoch;
		}
		assert_int_equal(put_key(s, 1), how == 2 ? 0 : -TARN_EAMBIGUOUS);
		finish(&w, s);
	}
}

/* A read in a cache pool whose shard was taken meanwhile begins again: what it found is not the newest. */
static void test_late_read(void **state)
{
	struct tarn_session *s;
	struct world w;
	uint32_t shard;
	unsigned next;

	(void)state;
	s = start(&w, true);
	assert_int_equal(put_key(s, 1), 0);
	shard = shard_of_key(&w, 1);
	next = (w.map->owners[shard] + 1u) % NODES;
	w.looks = 0;
	w.leap_after = 1; /* the one behind it */
	w.leap = BOUND;
	w.map->epoch++;
	w.map->owners[shard] = (uint16_t)next;
	w.map->since[shard] = w.map->taken[shard] = w.map->epoch;
	set_word(&w, next, shard, SHARD_OPEN, w.map->epoch);
	/* the old member stands still, and has the key */
	assert_int_equal(get_key(s, 1), -TARN_ENOTFOUND);
	assert_int_equal(put_key(s, 1), 0);
	assert_true(is_at(&w, next, 1));
	finish(&w, s);
}

/* Down by the map: unavailable, by name, at once; in a cache pool a miss. */
static void test_down(void **state)
{
	for (unsigned cache = 0; cache < 2; cache++) {
		struct tarn_session *s;
		char text[64];
		struct world w;
		unsigned i;

		(void)state;
		s = start(&w, cache);
		i = key_of(&w, 1);
		assert_int_equal(put_key(s, i), 0);
		w.nodes[1].away = true;
		session_lose(s->cluster->nodes[1].session);
		w.map->epoch++;
		w.map->members[1].state = CLUSTER_DOWN;
		if (cache)
			assert_int_equal(tarn_session_set_timeout(s, 50), 0);
		assert_int_equal(get_key(s, i), cache ? -TARN_ENOTFOUND : -TARN_EUNAVAILABLE);
		assert_int_equal(put_key(s, i), -TARN_EUNAVAILABLE);
		snprintf(text, sizeof(text), "shard %u is with member b", shard_of_key(&w, i));
		assert_non_null(strstr(tarn_last_error_text(), text));
		/* the others go on */
		assert_int_equal(put_key(s, key_of(&w, 0)), 0);
		assert_int_equal(get_key(s, key_of(&w, 0)), 0);
		finish(&w, s);
	}
}

/* Up by the map, and not to be reached: tried until the limit. */
static void test_away(void **state)
{
	for (unsigned cache = 0; cache < 2; cache++) {
		struct tarn_session *s;
		struct world w;
		unsigned i;

		(void)state;
		s = start(&w, cache);
		w.nodes[2].away = true;
		assert_int_equal(tarn_session_set_timeout(s, 50), 0);
		i = key_of(&w, 2);
		assert_int_equal(get_key(s, i), cache ? -TARN_ENOTFOUND : -TARN_EUNAVAILABLE);
		assert_int_equal(put_key(s, i), -TARN_EUNAVAILABLE);
		assert_non_null(strstr(tarn_last_error_text(), "member c does not serve shard"));
		assert_int_equal(put_key(s, key_of(&w, 0)), 0);
		w.nodes[2].away = false;
		assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
		assert_int_equal(put_key(s, i), 0);
		assert_int_equal(get_key(s, i), 0);
		finish(&w, s);
	}
}

/* Another one has taken it over while it is away: nobody waits for the first one. */
static void test_away_and_moved(void **state)
{
	struct tarn_session *s;
	struct world w;
	unsigned i;

	(void)state;
	s = start(&w, false);
	i = key_of(&w, 2);
	w.nodes[2].away = true;
	give(&w, shard_of_key(&w, i), 1);
	assert_int_equal(put_key(s, i), 0);
	assert_true(is_at(&w, 1, i));
	finish(&w, s);
}

/* ---- batches --------------------------------------------------------------------------------- */

struct batch_of {
	char keys[KEYS][32], values[KEYS][32];
	struct tarn_mput puts[KEYS];
	struct tarn_mget gets[KEYS];
	struct tarn_mdelete deletes[KEYS];
};

static struct batch_of *batch_make(void)
{
	struct batch_of *b = calloc(1, sizeof(*b));

	for (unsigned i = 0; i < KEYS; i++) {
		size_t n = name_key(b->keys[i], i);

		b->puts[i] = (struct tarn_mput){
			.key = b->keys[i], .key_bytes = n, .value = b->keys[i], .value_bytes = n};
		b->gets[i] = (struct tarn_mget){.key = b->keys[i],
						.key_bytes = n,
						.buffer = b->values[i],
						.buffer_bytes = sizeof(b->values[i])};
		b->deletes[i] = (struct tarn_mdelete){.key = b->keys[i], .key_bytes = n};
		b->puts[i].status = b->gets[i].status = b->deletes[i].status = 77;
	}
	return b;
}

static void test_batches(void **state)
{
	struct batch_of *b = batch_make();
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	b->gets[7].key_bytes = 0;
	assert_int_equal(tarn_mput(s, b->puts, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		assert_int_equal(b->puts[i].status, 0);
		assert_true(b->puts[i].stamp != 0);
		assert_true(is_at(&w, w.map->owners[shard_of_key(&w, i)], i));
	}
	/* one shard goes on, so its keys have to be looked for elsewhere, and are not there */
	give(&w, shard_of_key(&w, 3), (w.map->owners[shard_of_key(&w, 3)] + 1u) % NODES);
	for (unsigned i = 0; i < KEYS; i++)
		if (shard_of_key(&w, i) == shard_of_key(&w, 3))
			forget(&w, (w.map->owners[shard_of_key(&w, 3)] + NODES - 1) % NODES, i);
	assert_int_equal(tarn_mget(s, b->gets, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		if (i != 7 && shard_of_key(&w, i) == shard_of_key(&w, 3)) {
			assert_int_equal(b->gets[i].status, -TARN_ENOTFOUND);
		} else if (i == 7) {
			assert_int_equal(b->gets[i].status, -TARN_EKEYSIZE);
		} else {
			assert_int_equal(b->gets[i].status, 0);
			assert_int_equal(b->gets[i].item.value_bytes, strlen(b->keys[i]));
			assert_string_equal(b->values[i], b->keys[i]);
		}
	}
	assert_int_equal(s->cluster->map->epoch, 6);
	assert_int_equal(tarn_mput(s, &b->puts[3], 1), 0);
	assert_int_equal(b->puts[3].status, 0);
	assert_int_equal(tarn_mget(s, &b->gets[3], 1), 0);
	assert_int_equal(b->gets[3].status, 0);
	assert_int_equal(tarn_mdelete(s, b->deletes, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		/* other keys of the shard were left behind, with a member that does not have it any more */
		if (shard_of_key(&w, i) != shard_of_key(&w, 3) || i == 3)
			assert_int_equal(b->deletes[i].status, 0);
		else
			assert_int_equal(b->deletes[i].status, -TARN_ENOTFOUND);
	}
	assert_int_equal(tarn_mget(s, b->gets, 0), 0);
	finish(&w, s);
	free(b);
}

/* Items of one member fail, those of the others do not. */
static void test_batch_down(void **state)
{
	struct batch_of *b = batch_make();
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	assert_int_equal(tarn_mput(s, b->puts, KEYS), 0);
	w.nodes[1].away = true;
	session_lose(s->cluster->nodes[1].session);
	w.map->epoch++;
	w.map->members[1].state = CLUSTER_DOWN;
	assert_int_equal(tarn_mget(s, b->gets, KEYS), 0);
	assert_int_equal(tarn_mput(s, b->puts, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		int expected = w.map->owners[shard_of_key(&w, i)] == 1 ? -TARN_EUNAVAILABLE : 0;

		assert_int_equal(b->gets[i].status, expected);
		assert_int_equal(b->puts[i].status, expected);
	}
	finish(&w, s);
	free(b);
}

/* One that is down may stand still with its connection: who has others to ask does not wait for it. */
static void test_down_is_asked_last(void **state)
{
	struct tarn_session *s;
	struct world w;
	unsigned key;

	(void)state;
	s = start(&w, false);
	key = key_of(&w, 1);
	assert_int_equal(put_key(s, key), 0);
	w.map->epoch++;
	w.map->members[1].state = CLUSTER_DOWN;
	assert_true(cluster_newer(s, clock_now_ns() + 1000000000u, false));
	assert_non_null(cluster_node_standing(s->cluster, 1));
	w.nodes[1].asked = 0;
	assert_int_equal(get_key(s, key), -TARN_EUNAVAILABLE);
	assert_int_equal(w.nodes[1].asked, 0);
	/* nobody else answers: it may be back */
	w.nodes[0].away = w.nodes[2].away = true;
	w.map->epoch++;
	w.map->members[1].state = CLUSTER_UP;
	assert_int_equal(get_key(s, key), 0);
	assert_true(w.nodes[1].asked > 0);
	finish(&w, s);
}

static void test_batch_bound(void **state)
{
	struct batch_of *b = batch_make();
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	assert_int_equal(tarn_mput(s, b->puts, KEYS), 0);
	assert_int_equal(tarn_session_set_timeout(s, 30), 0);
	w.silent = true;
	w.now += BOUND;
	assert_int_equal(tarn_mput(s, b->puts, KEYS), 0);
	assert_int_equal(tarn_mget(s, b->gets, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		assert_int_equal(b->puts[i].status, -TARN_EMAP);
		assert_int_equal(b->gets[i].status, 0);
	}
	/* and once it was done already */
	w.silent = false;
	assert_int_equal(tarn_mput(s, b->puts, 1), 0);
	assert_int_equal(b->puts[0].status, 0);
	w.silent = true;
	w.looks = 0;
	w.leap_after = 2;
	w.leap = BOUND;
	/* they shall all be done in time on a slow machine, too */
	assert_int_equal(tarn_session_set_timeout(s, 1000), 0);
	assert_int_equal(tarn_mput(s, b->puts, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(b->puts[i].status, -TARN_EAMBIGUOUS);
	finish(&w, s);
	free(b);
}

/* ---- maps and members that are wrong --------------------------------------------------------- */

static void test_seeds(void **state)
{
	struct tarn_session *s = NULL;
	struct world w;

	(void)state;
	make(&w, false);
	w.nodes[0].away = w.nodes[1].away = true;
	assert_int_equal(open_world(&w, 0, &s), -TARN_EUNREACHABLE);
	assert_non_null(strstr(tarn_last_error_text(), "a is away"));
	assert_non_null(strstr(tarn_last_error_text(), "b is away"));
	destroy(&w);
	make(&w, false);
	w.nodes[0].away = true;
	assert_int_equal(open_world(&w, 0, &s), 0);
	assert_int_equal(put_key(s, key_of(&w, 1)), 0);
	finish(&w, s);
}

/* Who lags is not believed that its map is the newest; who goes back is left alone. */
static void test_old_epochs(void **state)
{
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	assert_int_equal(put_key(s, key_of(&w, 0)), 0);
	assert_int_equal(put_key(s, key_of(&w, 1)), 0);
	give(&w, shard_of_key(&w, key_of(&w, 2)), 1);
	w.nodes[0].epoch = w.nodes[2].epoch = 5;
	w.now += BOUND;
	assert_int_equal(put_key(s, key_of(&w, 1)), 0);
	assert_int_equal(s->cluster->map->epoch, 6);
	/* those that have not heard of it can not say that it is still the newest */
	w.nodes[1].away = true;
	session_lose(s->cluster->nodes[1].session);
	w.now += BOUND;
	assert_int_equal(tarn_session_set_timeout(s, 30), 0);
	assert_int_equal(put_key(s, key_of(&w, 0)), -TARN_EMAP);
	w.nodes[0].epoch = 0;
	assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
	assert_int_equal(put_key(s, key_of(&w, 0)), 0);
	w.nodes[0].epoch = 5;
	assert_int_equal(tarn_session_process(s), 0);
	s->cluster->asked_ns = 0;
	assert_int_equal(tarn_session_process(s), 0);
	assert_null(s->cluster->nodes[0].session);
	assert_int_equal(s->cluster->map->epoch, 6);
	finish(&w, s);
}

static void test_another_cluster(void **state)
{
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	w.nodes[0].map = copy(w.map);
	strcpy(w.nodes[0].map->cluster, "c2");
	w.nodes[0].map->epoch = w.nodes[0].epoch = 9;
	w.nodes[1].away = w.nodes[2].away = true;
	w.now += BOUND;
	assert_int_equal(tarn_session_set_timeout(s, 30), 0);
	assert_int_equal(put_key(s, key_of(&w, 0)), -TARN_EMAP);
	assert_non_null(strstr(tarn_last_error_text(), "cluster c2"));
	assert_string_equal(s->cluster->map->cluster, "c1");
	cluster_map_free(w.nodes[0].map);
	finish(&w, s);
}

/* Another member answers at the address. */
static void test_wrong_member(void **state)
{
	struct tarn_session *s;
	struct world w;

	(void)state;
	s = start(&w, false);
	w.nodes[2].number = 12;
	assert_int_equal(tarn_session_set_timeout(s, 30), 0);
	assert_int_equal(put_key(s, key_of(&w, 2)), -TARN_EUNAVAILABLE);
	assert_false(is_at(&w, 2, key_of(&w, 2)));
	finish(&w, s);
}

/* A member that joins, one that leaves. */
static void test_members_change(void **state)
{
	struct tarn_session *s;
	struct world w;
	unsigned i;

	(void)state;
	s = start(&w, false);
	for (i = 0; i < KEYS; i++)
		assert_int_equal(put_key(s, i), 0);
	assert_int_equal(w.opened, 3);
	/* c is out, and what it had is b's */
	w.map->epoch++;
	for (uint32_t shard = 0; shard < SHARDS; shard++) {
		if (w.map->owners[shard] != 2)
			continue;
		set_word(&w, 2, shard, SHARD_GONE, 0);
		set_word(&w, 1, shard, SHARD_OPEN, 6);
		w.map->owners[shard] = 1;
		w.map->since[shard] = 6;
	}
	free(w.map->members[2].addresses);
	w.map->member_count = 2;
	s->cluster->asked_ns = 0;
	assert_int_equal(tarn_session_process(s), 0);
	assert_int_equal(s->cluster->map->member_count, 2);
	for (i = 0; i < KEYS; i++)
		assert_int_equal(put_key(s, i), 0);
	for (i = 0; i < KEYS; i++)
		assert_true(is_at(&w, w.map->owners[shard_of_key(&w, i)], i));
	/* the others were not connected anew */
	assert_int_equal(w.opened, 3);
	finish(&w, s);
}

/* ---- asynchronous calls ---------------------------------------------------------------------- */

struct async_of {
	struct tarn_session *s;
	char keys[KEYS][32], values[KEYS][32];
	uint64_t ops[KEYS];
	int status[KEYS];
	unsigned ended, called;
};

static struct async_of *async_make(struct tarn_session *s)
{
	struct async_of *a = calloc(1, sizeof(*a));

	a->s = s;
	for (unsigned i = 0; i < KEYS; i++)
		name_key(a->keys[i], i);
	return a;
}

static void async_put(struct async_of *a, unsigned i)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.cookie = &a->status[i];
	a->status[i] = 77;
	assert_int_equal(tarn_put_async(a->s, a->keys[i], strlen(a->keys[i]), a->keys[i],
					strlen(a->keys[i]), NULL, &async, &a->ops[i]),
			 0);
}

static void async_get(struct async_of *a, unsigned i)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.cookie = &a->status[i];
	a->status[i] = 77;
	memset(a->values[i], 0, sizeof(a->values[i]));
	assert_int_equal(tarn_get_async(a->s, a->keys[i], strlen(a->keys[i]), a->values[i],
					sizeof(a->values[i]), &async, &a->ops[i]),
			 0);
}

/* Until all have been picked up. */
static void async_all(struct async_of *a)
{
	struct tarn_completion list[16];
	size_t count;
	int ret;

	while ((ret = tarn_session_wait(a->s, 1000)) >= 0) {
		assert_true(tarn_session_poll(a->s, list, 16, &count) >= 0);
		for (size_t n = 0; n < count; n++) {
			size_t i = (size_t)((int *)list[n].cookie - a->status);

			assert_true(i < KEYS);
			assert_int_equal(a->status[i], 77);
			assert_int_equal(list[n].op, a->ops[i]);
			a->status[i] = list[n].status;
			if (list[n].kind == TARN_OP_PUT && list[n].status == 0)
				assert_true(list[n].stamp != 0);
			if (list[n].kind == TARN_OP_GET && list[n].status == 0)
				assert_int_equal(list[n].item.value_bytes, strlen(a->keys[i]));
			a->ended++;
		}
	}
	assert_int_equal(ret, -TARN_EENDED);
}

static void test_async(void **state)
{
	struct tarn_session *s;
	struct async_of *a;
	struct world w;
	uint32_t moved;

	(void)state;
	s = start(&w, false);
	a = async_make(s);
	assert_int_equal(tarn_session_wait(s, 0), -TARN_EENDED);
	for (unsigned i = 0; i < KEYS; i++)
		async_put(a, i);
	async_all(a);
	assert_int_equal(a->ended, KEYS);
	for (unsigned i = 0; i < KEYS; i++) {
		assert_int_equal(a->status[i], 0);
		assert_true(is_at(&w, w.map->owners[shard_of_key(&w, i)], i));
	}
	/* a shard goes on, with nothing in it */
	moved = shard_of_key(&w, 3);
	for (unsigned i = 0; i < KEYS; i++)
		if (shard_of_key(&w, i) == moved)
			forget(&w, w.map->owners[moved], i);
	give(&w, moved, (w.map->owners[moved] + 1u) % NODES);
	for (unsigned i = 0; i < KEYS; i++)
		async_get(a, i);
	async_all(a);
	for (unsigned i = 0; i < KEYS; i++) {
		bool there = shard_of_key(&w, i) != moved;

		assert_int_equal(a->status[i], there ? 0 : -TARN_ENOTFOUND);
		if (there)
			assert_string_equal(a->values[i], a->keys[i]);
	}
	give(&w, moved, (w.map->owners[moved] + 1u) % NODES);
	async_put(a, 3);
	/* a blocking call besides */
	assert_int_equal(put_key(s, 5), 0);
	async_all(a);
	assert_int_equal(a->status[3], 0);
	assert_true(is_at(&w, w.map->owners[moved], 3));
	finish(&w, s);
	free(a);
}

static void count_call(void *cookie, const struct tarn_completion *completion)
{
	struct async_of *a = cookie;

	a->called++;
	a->ended += completion->status == 0;
}

static void test_async_rest(void **state)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_session *s;
	struct async_of *a;
	struct world w;
	uint64_t op;

	(void)state;
	s = start(&w, false);
	a = async_make(s);
	async.cookie = a;
	async.done = count_call;
	assert_int_equal(tarn_add_async(s, "n", 1, 4, &async, NULL), 0);
	assert_int_equal(tarn_exists_async(s, "none", 4, &async, NULL), 0);
	while (tarn_session_wait(s, 1000) >= 0)
		assert_true(tarn_session_poll(s, NULL, 0, NULL) >= 0);
	assert_int_equal(a->called, 2);
	assert_int_equal(a->ended, 1);
	assert_int_equal(tarn_delete_async(s, "n", 1, &async, &op), 0);
	while (tarn_session_wait(s, 1000) >= 0)
		assert_true(tarn_session_poll(s, NULL, 0, NULL) >= 0);
	assert_int_equal(a->ended, 2);
	assert_int_equal(tarn_cancel(s, op), -TARN_EENDED);
	assert_int_equal(tarn_exists(s, "n", 1, NULL), -TARN_ENOTFOUND);
	/* as many as there may be */
	async.done = NULL;
	for (unsigned i = 0; i < TARN_ASYNC_MAX; i++)
		assert_int_equal(tarn_exists_async(s, "none", 4, &async, NULL), 0);
	assert_int_equal(tarn_exists_async(s, "none", 4, &async, NULL), -TARN_EBUSY);
	/* the end, with all that under way */
	finish(&w, s);
	free(a);
}

/* The same rules as for blocking calls. */
static void test_async_late(void **state)
{
	for (unsigned how = 1; how <= 3; how++) {
		struct tarn_session *s;
		struct async_of *a;
		struct world w;
		uint32_t shard;

		(void)state;
		s = start(&w, true);
		a = async_make(s);
		assert_int_equal(put_key(s, 1), 0);
		assert_int_equal(tarn_session_set_timeout(s, 100), 0);
		shard = shard_of_key(&w, 1);
		w.looks = 0;
		w.leap_after = 2;
		w.leap = BOUND;
		w.silent = how == 1;
		if (how == 3) {
			w.map->epoch++;
			w.map->owners[shard] = (uint16_t)((w.map->owners[shard] + 1) % NODES);
			w.map->since[shard] = w.map->taken[shard] = w.map->epoch;
		}
		async_put(a, 1);
		async_all(a);
		assert_int_equal(a->status[1], how == 2 ? 0 : -TARN_EAMBIGUOUS);
		finish(&w, s);
		free(a);
	}
}

static void test_async_absent(void **state)
{
	struct tarn_session *s;
	struct async_of *a;
	struct world w;
	unsigned i, other;

	(void)state;
	s = start(&w, false);
	a = async_make(s);
	i = key_of(&w, 2);
	other = key_of(&w, 0);
	w.nodes[2].away = true;
	async_put(a, i);
	async_put(a, other);
	/* nobody waits for it longer than for the other one */
	while (a->status[other] == 77) {
		struct tarn_completion completion;
		size_t count;

		assert_int_equal(tarn_session_wait(s, 1000), 1);
		assert_true(tarn_session_poll(s, &completion, 1, &count) >= 0);
		assert_int_equal(count, 1);
		*(int *)completion.cookie = completion.status;
	}
	assert_int_equal(a->status[other], 0);
	assert_int_equal(a->status[i], 77);
	assert_int_equal(tarn_cancel(s, a->ops[i]), 0);
	async_all(a);
	assert_int_equal(a->status[i], -TARN_ECANCELED);
	async_put(a, i);
	assert_int_equal(tarn_session_wait(s, 20), 0);
	w.nodes[2].away = false;
	async_all(a);
	assert_int_equal(a->status[i], 0);
	/* down by the map */
	w.nodes[1].away = true;
	if (s->cluster->nodes[1].session)
		session_lose(s->cluster->nodes[1].session);
	w.map->epoch++;
	w.map->members[1].state = CLUSTER_DOWN;
	i = key_of(&w, 1);
	async_get(a, i);
	async_all(a);
	assert_int_equal(a->status[i], -TARN_EUNAVAILABLE);
	/* with no fresh map nothing is written */
	assert_int_equal(tarn_session_set_timeout(s, 100), 0);
	w.silent = true;
	w.now += BOUND;
	async_put(a, other);
	async_all(a);
	assert_int_equal(a->status[other], -TARN_EMAP);
	async_get(a, other);
	async_all(a);
	assert_int_equal(a->status[other], 0);
	finish(&w, s);
	free(a);
}

/* ---- walks ----------------------------------------------------------------------------------- */

struct walk_of {
	struct tarn_scan *scan;
	unsigned seen[KEYS]; /* how often each came */
	unsigned count;
};

static void fill(struct tarn_session *s)
{
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(put_key(s, i), 0);
}

static struct walk_of begin_walk(struct tarn_session *s)
{
	struct walk_of walk = {0};

	if (tarn_scan_open(s, NULL, 0, &walk.scan) < 0)
		fail_msg("%s", err_text());
	return walk;
}

static void note_key(struct walk_of *walk, const void *key, size_t bytes,
		     const struct tarn_item *item)
{
	char text[32] = "";

	assert_true(bytes > 4 && bytes < sizeof(text));
	memcpy(text, key, bytes);
	assert_int_equal(item->value_bytes, bytes);
	assert_int_equal(strncmp(text, "key-", 4), 0);
	walk->seen[atoi(text + 4)]++;
	walk->count++;
}

/* It is away, and the session with it has ended. */
static void leave_node(struct world *w, struct tarn_session *s, unsigned i)
{
	w->nodes[i].away = true;
	tarn_session_close(s->cluster->nodes[i].session);
	s->cluster->nodes[i].session = NULL;
}

/* So many keys, or all that there are. Returns what the last call ended with. */
static int go_on(struct walk_of *walk, unsigned most)
{
	struct tarn_item item = TARN_ITEM_INIT;
	const void *key;
	size_t bytes;
	int ret = 1;

	while (most-- && (ret = tarn_scan_next(walk->scan, &key, &bytes, &item)) == 1)
		note_key(walk, key, bytes, &item);
	return ret;
}

/* All others came once; those of this shard at least once, and not more than `most` times. */
static void expect_once_but(struct world *w, const struct walk_of *walk, uint32_t shard,
			    unsigned most)
{
	for (unsigned i = 0; i < KEYS; i++) {
		if (walk->seen[i] == 1)
			continue;
		if (shard_of_key(w, i) != shard || walk->seen[i] == 0 || walk->seen[i] > most)
			fail_msg("key %u of shard %u came %u times", i, shard_of_key(w, i),
				 walk->seen[i]);
	}
}

static void expect_once(struct world *w, const struct walk_of *walk)
{
	expect_once_but(w, walk, SHARDS, 1);
}

/* The shard goes, with its keys, which another client writes there. */
static void hand_over(struct world *w, struct tarn_session *other, uint32_t shard, unsigned to)
{
	unsigned from = w->map->owners[shard];

	give(w, shard, to);
	for (unsigned i = 0; i < KEYS; i++) {
		if (shard_of_key(w, i) != shard)
			continue;
		forget(w, from, i);
		assert_int_equal(put_key(other, i), 0);
		assert_true(is_at(w, to, i));
	}
}

static void test_walk(void **state)
{
	for (unsigned cache = 0; cache < 2; cache++) {
		struct tarn_item item = TARN_ITEM_INIT;
		struct walk_of walk;
		struct tarn_session *s;
		struct world w;
		const void *key;
		size_t bytes;

		(void)state;
		s = start(&w, cache);
		walk = begin_walk(s);
		assert_int_equal(go_on(&walk, KEYS), 0);
		assert_int_equal(walk.count, 0);
		tarn_scan_close(walk.scan);
		fill(s);
		walk = begin_walk(s);
		assert_int_equal(tarn_scan_progress(walk.scan), 0);
		assert_int_equal(go_on(&walk, KEYS - 1), 1);
		assert_in_range(tarn_scan_progress(walk.scan), 600, 1000);
		assert_int_equal(go_on(&walk, 2), 0);
		assert_int_equal(tarn_scan_progress(walk.scan), 1000);
		expect_once(&w, &walk);
		/* it stays at its end */
		assert_int_equal(go_on(&walk, 1), 0);
		tarn_scan_close(walk.scan);
		/* a prefix */
		assert_int_equal(tarn_scan_open(s, "key-39", 6, &walk.scan), 0);
		walk.count = 0;
		while (tarn_scan_next(walk.scan, &key, &bytes, &item) == 1) {
			assert_memory_equal(key, "key-39", 6);
			walk.count++;
		}
		assert_int_equal(walk.count, 11);
		tarn_session_close(s);
		assert_int_equal(tarn_scan_next(walk.scan, &key, &bytes, &item), -EINVAL);
		tarn_scan_close(walk.scan);
		destroy(&w);
	}
}

/* At each place of the walk a shard goes from each member to each: nothing is missing, and all else comes once. */
static void test_walk_moved(void **state)
{
	struct tarn_session *s, *other = NULL;
	struct world w;

	(void)state;
	s = start(&w, false);
	assert_int_equal(open_world(&w, 0, &other), 0);
	fill(s);
	for (unsigned round = 0; round < 24; round++) {
		struct walk_of walk = begin_walk(s);
		uint32_t shard = round * 7 % SHARDS;
		unsigned to = (w.map->owners[shard] + 1 + round % 2) % NODES;

		assert_int_equal(go_on(&walk, round * KEYS / 24), 1);
		hand_over(&w, other, shard, to);
		/* sometimes the session knows before the walk finds out */
		if (round % 3 == 0)
			assert_true(cluster_newer(s, clock_now_ns() + SECOND, true));
		assert_int_equal(go_on(&walk, 2 * KEYS), 0);
		expect_once_but(&w, &walk, shard, 2);
		tarn_scan_close(walk.scan);
	}
	tarn_session_close(other);
	finish(&w, s);
}

/* What a member still has of a shard that is another one's is not shown. */
static void test_walk_left_behind(void **state)
{
	struct tarn_session *s;
	struct walk_of walk;
	struct world w;
	uint32_t shard;

	(void)state;
	s = start(&w, false);
	fill(s);
	shard = shard_of_key(&w, 1);
	give(&w, shard, (w.map->owners[shard] + 1u) % NODES);
	walk = begin_walk(s);
	assert_int_equal(go_on(&walk, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(walk.seen[i], shard_of_key(&w, i) != shard);
	tarn_scan_close(walk.scan);
	finish(&w, s);
}

/* The keys of those that are there, then an error that names who is not; and when it is there, the rest. */
static void test_walk_down(void **state)
{
	for (unsigned how = 0; how < 4; how++) {
		bool by_map = how % 2;
		struct walk_of walk;
		struct tarn_session *s;
		struct world w;
		unsigned i;

		(void)state;
		s = start(&w, how >= 2);
		fill(s);
		leave_node(&w, s, 1);
		if (by_map) {
			w.map->epoch++;
			w.map->members[1].state = CLUSTER_DOWN;
		}
		assert_true(cluster_newer(s, clock_now_ns() + SECOND, true) == by_map);
		assert_int_equal(tarn_session_set_timeout(s, 50), 0);
		walk = begin_walk(s);
		/* more than one call: the time may be over before */
		for (i = 0; i < 100 && go_on(&walk, KEYS) != -TARN_EUNAVAILABLE; i++)
			;
		assert_true(i < 100);
		assert_non_null(strstr(tarn_last_error_text(), "member b"));
		for (i = 0; i < KEYS; i++)
			assert_int_equal(walk.seen[i], w.map->owners[shard_of_key(&w, i)] != 1);
		w.nodes[1].away = false;
		if (by_map) {
			w.map->epoch++;
			w.map->members[1].state = CLUSTER_UP;
		}
		assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
		assert_int_equal(go_on(&walk, KEYS), 0);
		expect_once(&w, &walk);
		tarn_scan_close(walk.scan);
		finish(&w, s);
	}
}

/* A shard without an owner: unavailable in a store pool, and empty by the rules in a cache pool. */
static void test_walk_nobody(void **state)
{
	for (unsigned cache = 0; cache < 2; cache++) {
		struct walk_of walk;
		struct tarn_session *s;
		struct world w;
		uint32_t shard;

		(void)state;
		s = start(&w, cache);
		fill(s);
		shard = shard_of_key(&w, 1);
		set_word(&w, w.map->owners[shard], shard, SHARD_GONE, 0);
		w.map->epoch++;
		w.map->owners[shard] = CLUSTER_NOBODY;
		w.map->since[shard] = w.map->taken[shard] = w.map->epoch;
		walk = begin_walk(s);
		assert_int_equal(go_on(&walk, KEYS), cache ? 0 : -TARN_EUNAVAILABLE);
		if (!cache)
			assert_non_null(strstr(tarn_last_error_text(), "has no owner"));
		for (unsigned i = 0; i < KEYS; i++)
			assert_int_equal(walk.seen[i], shard_of_key(&w, i) != shard);
		tarn_scan_close(walk.scan);
		finish(&w, s);
	}
}

/* In a cache pool nothing is shown by a map that is not fresh, and nothing is lost by that. */
static void test_walk_bound(void **state)
{
	for (unsigned cache = 0; cache < 2; cache++) {
		struct tarn_session *s;
		struct walk_of walk;
		struct world w;
		int ret;

		(void)state;
		s = start(&w, cache);
		fill(s);
		walk = begin_walk(s);
		assert_int_equal(go_on(&walk, 10), 1);
		assert_int_equal(tarn_session_set_timeout(s, 20), 0);
		w.silent = true;
		w.now += BOUND;
		if (cache) {
			/* where the machine stands still the time may be over before */
			while ((ret = go_on(&walk, KEYS)) == -TARN_ETIMEOUT)
				;
			assert_int_equal(ret, -TARN_EMAP);
			while ((ret = go_on(&walk, KEYS)) == -TARN_ETIMEOUT)
				;
			assert_int_equal(ret, -TARN_EMAP);
			assert_int_equal(walk.count, 10);
			w.silent = false;
		}
		assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
		assert_int_equal(go_on(&walk, KEYS), 0);
		expect_once(&w, &walk);
		tarn_scan_close(walk.scan);
		finish(&w, s);
	}
}

/* Taken from a member that does not know it: by the fresh map behind it, its keys are none. */
static void test_walk_taken(void **state)
{
	struct tarn_session *s;
	struct walk_of walk;
	struct world w;
	uint32_t shard;

	(void)state;
	s = start(&w, true);
	fill(s);
	shard = shard_of_key(&w, 1);
	w.map->epoch++;
	w.map->owners[shard] = CLUSTER_NOBODY;
	w.map->since[shard] = w.map->taken[shard] = w.map->epoch;
	w.now += BOUND;
	walk = begin_walk(s);
	assert_int_equal(go_on(&walk, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(walk.seen[i], shard_of_key(&w, i) != shard);
	tarn_scan_close(walk.scan);
	finish(&w, s);
}

/* A member goes and comes in the middle; one is started again. */
static void test_walk_members(void **state)
{
	struct tarn_session *s;
	struct walk_of walk;
	struct world w;
	unsigned twice = 0;

	(void)state;
	s = start(&w, false);
	fill(s);
	walk = begin_walk(s);
	assert_int_equal(go_on(&walk, 10), 1);
	/* the session with the member under way is another one by now */
	leave_node(&w, s, 0);
	w.nodes[0].away = false;
	assert_int_equal(go_on(&walk, 5), 1);
	/* its pool is another one */
	s->cluster->nodes[0].session->pool_serial++;
	assert_int_equal(go_on(&walk, 2 * KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		assert_true(walk.seen[i] >= 1);
		if (w.map->owners[shard_of_key(&w, i)] != 0)
			assert_int_equal(walk.seen[i], 1);
		twice += walk.seen[i] > 1;
	}
	assert_in_range(twice, 5, 15);
	tarn_scan_close(walk.scan);
	finish(&w, s);
}

/* Another walk goes on at its position. */
static void go_on_elsewhere(struct tarn_session *s, struct walk_of *walk)
{
	uint8_t position[TARN_SCAN_POSITION_BYTES];
	size_t n = 0;

	assert_int_equal(tarn_scan_position(walk->scan, position, &n), 0);
	tarn_scan_close(walk->scan);
	if (tarn_scan_open_at(s, NULL, 0, position, n, &walk->scan) < 0)
		fail_msg("%s", err_text());
}

static void test_walk_position(void **state)
{
	uint8_t position[TARN_SCAN_POSITION_BYTES], bad[TARN_SCAN_POSITION_BYTES];
	struct tarn_session *s, *other = NULL;
	struct tarn_scan *scan;
	struct walk_of walk;
	struct world w;
	uint32_t shard;
	size_t n;
	int ret;

	(void)state;
	s = start(&w, false);
	assert_int_equal(open_world(&w, 0, &other), 0);
	fill(s);
	walk = begin_walk(s);
	do {
		go_on_elsewhere(walk.count % 2 ? s : other, &walk);
		ret = go_on(&walk, 1);
	} while (ret == 1);
	assert_int_equal(ret, 0);
	expect_once(&w, &walk);
	/* its end, too, is a position */
	go_on_elsewhere(s, &walk);
	assert_int_equal(go_on(&walk, 1), 0);
	tarn_scan_close(walk.scan);
	/* a shard moves meanwhile, out of what was walked and into it */
	for (unsigned round = 0; round < 12; round++) {
		walk = begin_walk(s);
		shard = round * 11 % SHARDS;
		assert_int_equal(go_on(&walk, 1 + round * KEYS / 12), 1);
		if (round % 2)
			go_on_elsewhere(s, &walk);
		hand_over(&w, other, shard, (w.map->owners[shard] + 1u) % NODES);
		assert_int_equal(go_on(&walk, 3), 1);
		go_on_elsewhere(other, &walk);
		assert_int_equal(go_on(&walk, 3 * KEYS), 0);
		for (unsigned i = 0; i < KEYS; i++)
			assert_true(walk.seen[i] >= 1);
		tarn_scan_close(walk.scan);
	}
	/* what is none */
	walk = begin_walk(s);
	assert_int_equal(go_on(&walk, 10), 1);
	assert_int_equal(tarn_scan_position(walk.scan, position, &n), 0);
	tarn_scan_close(walk.scan);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(tarn_scan_open_at(s, NULL, 0, position, i == 24 ? 0 : i, &scan),
				 -EINVAL);
	memcpy(bad, position, n);
	bad[0]++;
	assert_int_equal(tarn_scan_open_at(s, NULL, 0, bad, n, &scan), -EINVAL);
	assert_non_null(strstr(tarn_last_error_text(), "no position of a walk over cluster c1"));
	bad[0]--;
	bad[16]++;
	assert_int_equal(tarn_scan_open_at(s, NULL, 0, bad, n, &scan), -EINVAL);
	/* nor is it one in one member's pool, nor that of one here */
	assert_int_equal(tarn_scan_open_at(s->cluster->nodes[0].session, NULL, 0, position, n, &scan),
			 -EINVAL);
	assert_int_equal(tarn_scan_open(s->cluster->nodes[0].session, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_position(scan, position, &n), 0);
	tarn_scan_close(scan);
	assert_int_equal(tarn_scan_open_at(s, NULL, 0, position, n, &scan), -EINVAL);
	tarn_session_close(other);
	finish(&w, s);
}

/* Waits for one asynchronous call of the walk. */
static int next_async(struct tarn_session *s, struct walk_of *walk)
{
	struct tarn_completion completion;
	size_t count = 0;
	uint64_t op;

	assert_int_equal(tarn_scan_next_async(walk->scan, NULL, &op), 0);
	assert_int_equal(tarn_scan_next_async(walk->scan, NULL, NULL), -TARN_EBUSY);
	while (count == 0) {
		assert_true(tarn_session_wait(s, 1000) >= 0);
		assert_true(tarn_session_poll(s, &completion, 1, &count) >= 0);
	}
	assert_int_equal(completion.op, op);
	assert_int_equal(completion.kind, TARN_OP_SCAN);
	if (completion.status == 1)
		note_key(walk, completion.key, completion.key_bytes, &completion.item);
	return completion.status;
}

static int next_blocking(struct tarn_session *s, struct walk_of *walk)
{
	(void)s;
	return go_on(walk, 1);
}

/* By a map that is not fresh nothing is passed as empty: who takes what nobody has waits as long as such a map counts, and no longer. */
static void test_walk_nobody_bound(void **state)
{
	struct tarn_session *s;
	struct walk_of walk;
	struct world w;

	(void)state;
	for (unsigned async = 0; async < 2; async++) {
		int (*next)(struct tarn_session *, struct walk_of *) = async ? next_async : next_blocking;
		uint16_t owners[SHARDS];
		int ret;

		s = start(&w, true);
		memcpy(owners, w.map->owners, sizeof(owners));
		w.map->epoch++;
		for (uint32_t shard = 0; shard < SHARDS; shard++) {
			set_word(&w, owners[shard], shard, SHARD_GONE, 0);
			w.map->owners[shard] = CLUSTER_NOBODY;
			w.map->since[shard] = w.map->taken[shard] = w.map->epoch;
		}
		walk = begin_walk(s);
		assert_int_equal(next(s, &walk), 0);
		tarn_scan_close(walk.scan);
		/* nobody can say that it is still so, and it is not */
		walk = begin_walk(s);
		w.silent = true;
		w.now += BOUND;
		assert_int_equal(tarn_session_set_timeout(s, 20), 0);
		while ((ret = next(s, &walk)) == -TARN_ETIMEOUT)
			;
		assert_int_equal(ret, -TARN_EMAP);
		w.map->epoch++;
		for (uint32_t shard = 0; shard < SHARDS; shard++) {
			w.map->owners[shard] = owners[shard];
			w.map->since[shard] = w.map->epoch;
			set_word(&w, owners[shard], shard, SHARD_OPEN, w.map->epoch);
		}
		w.silent = false;
		assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
		fill(s);
		while ((ret = next(s, &walk)) == 1)
			;
		assert_int_equal(ret, 0);
		expect_once(&w, &walk);
		tarn_scan_close(walk.scan);
		finish(&w, s);
	}
}

static void test_walk_async(void **state)
{
	struct tarn_session *s, *other = NULL;
	struct walk_of walk;
	struct world w;
	uint32_t shard;
	int ret = 1;

	(void)state;
	s = start(&w, false);
	assert_int_equal(open_world(&w, 0, &other), 0);
	fill(s);
	walk = begin_walk(s);
	while ((ret = next_async(s, &walk)) == 1)
		;
	assert_int_equal(ret, 0);
	expect_once(&w, &walk);
	tarn_scan_close(walk.scan);
	/* a shard moves, and there are blocking calls between */
	walk = begin_walk(s);
	shard = shard_of_key(&w, 1);
	while ((ret = next_async(s, &walk)) == 1) {
		if (walk.count == KEYS / 2)
			hand_over(&w, other, shard, (w.map->owners[shard] + 1u) % NODES);
		ret = go_on(&walk, 1);
		if (ret != 1)
			break;
	}
	assert_int_equal(ret, 0);
	expect_once_but(&w, &walk, shard, 2);
	tarn_scan_close(walk.scan);
	tarn_session_close(other);
	finish(&w, s);
}

/* Freshness, who is not there, and ends at any time. */
static void test_walk_async_ends(void **state)
{
	struct tarn_completion completion;
	struct tarn_session *s;
	struct walk_of walk;
	struct world w;
	size_t count = 0;
	uint64_t op;
	int ret;

	(void)state;
	s = start(&w, true);
	fill(s);
	walk = begin_walk(s);
	assert_int_equal(next_async(s, &walk), 1);
	w.silent = true;
	w.now += BOUND;
	assert_int_equal(tarn_session_set_timeout(s, 20), 0);
	for (unsigned i = 0; i < 2; i++) {
		while ((ret = next_async(s, &walk)) == -TARN_ETIMEOUT)
			;
		assert_int_equal(ret, -TARN_EMAP);
	}
	w.silent = false;
	assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
	assert_int_equal(next_async(s, &walk), 1);
	/* cancelled, or it had ended: nothing is lost by that */
	assert_int_equal(tarn_scan_next_async(walk.scan, NULL, &op), 0);
	(void)tarn_cancel(s, op);
	while (count == 0) {
		assert_true(tarn_session_wait(s, 1000) >= 0);
		assert_true(tarn_session_poll(s, &completion, 1, &count) >= 0);
	}
	assert_true(completion.status == 1 || completion.status == -TARN_ECANCELED);
	if (completion.status == 1)
		note_key(&walk, completion.key, completion.key_bytes, &completion.item);
	leave_node(&w, s, 2);
	assert_int_equal(tarn_session_set_timeout(s, 50), 0);
	while (next_async(s, &walk) != -TARN_EUNAVAILABLE)
		;
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(walk.seen[i], w.map->owners[shard_of_key(&w, i)] != 2);
	w.nodes[2].away = false;
	assert_int_equal(tarn_session_set_timeout(s, 5000), 0);
	while (next_async(s, &walk) == 1)
		;
	expect_once(&w, &walk);
	tarn_scan_close(walk.scan);
	/* the walk is closed first, the call is picked up later */
	walk = begin_walk(s);
	assert_int_equal(tarn_scan_next_async(walk.scan, NULL, NULL), 0);
	tarn_scan_close(walk.scan);
	count = 0;
	while (count == 0) {
		assert_true(tarn_session_wait(s, 1000) >= 0);
		assert_true(tarn_session_poll(s, &completion, 1, &count) >= 0);
	}
	assert_int_equal(completion.status, -TARN_ECANCELED);
	assert_null(completion.key);
	/* the session is closed first, with one walk that is closed before and one behind */
	walk = begin_walk(s);
	assert_int_equal(tarn_scan_next_async(walk.scan, NULL, NULL), 0);
	tarn_scan_close(walk.scan);
	walk = begin_walk(s);
	assert_int_equal(tarn_scan_next_async(walk.scan, NULL, NULL), 0);
	finish(&w, s);
	tarn_scan_close(walk.scan);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void test_read_only(void **state)
{
	struct tarn_session *s = NULL;
	struct world w;

	(void)state;
	make(&w, false);
	assert_int_equal(open_world(&w, TARN_READONLY, &s), 0);
	assert_int_equal(put_key(s, 1), -TARN_EREADONLY);
	assert_int_equal(get_key(s, 1), -TARN_ENOTFOUND);
	finish(&w, s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_age),
		cmocka_unit_test(test_late_write),
		cmocka_unit_test(test_late_read),
		cmocka_unit_test(test_down),
		cmocka_unit_test(test_away),
		cmocka_unit_test(test_away_and_moved),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_batch_down),
		cmocka_unit_test(test_down_is_asked_last),
		cmocka_unit_test(test_batch_bound),
		cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_old_epochs),
		cmocka_unit_test(test_another_cluster),
		cmocka_unit_test(test_wrong_member),
		cmocka_unit_test(test_members_change),
		cmocka_unit_test(test_async),
		cmocka_unit_test(test_async_rest),
		cmocka_unit_test(test_async_late),
		cmocka_unit_test(test_async_absent),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_walk_moved),
		cmocka_unit_test(test_walk_left_behind),
		cmocka_unit_test(test_walk_down),
		cmocka_unit_test(test_walk_nobody),
		cmocka_unit_test(test_walk_bound),
		cmocka_unit_test(test_walk_nobody_bound),
		cmocka_unit_test(test_walk_taken),
		cmocka_unit_test(test_walk_members),
		cmocka_unit_test(test_walk_position),
		cmocka_unit_test(test_walk_async),
		cmocka_unit_test(test_walk_async_ends),
		cmocka_unit_test(test_read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
