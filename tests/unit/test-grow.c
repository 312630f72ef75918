/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/grow.c, split.c and client/kv-split.c: the index grows under clients.
 *
 * A small pool with tiny subtables, the daemon's real code, and a client of the same process whose
 * messages rpc.c answers. The daemon's changes of the pool go through __wrap_self_cas() and
 * __wrap_self_store(): so something can happen, or the daemon can die, before each of them.
 */
#include <stdlib.h>

#include "clock.h"
#include "fabric.h"
#include "grow.h"
#include "pool-fixture.h"
#include "rpc.h"
#include "self.h"
#include "session.h"
#include "tarn/tarn.h"

#define KEYS 64u
#define MS   1000000ull

struct world {
	struct fixture f;
	struct pool *pool;
	struct grow *grow; /* besides the keeper's, which gets no steps */
	uint64_t now;
	struct tarn_session *session, *other;
	struct rpc_client rpc_client;
	struct fabric_completion answer;
	bool answered;
	bool driven; /* the client's looks at the clock are the daemon's steps */
	/* the keys that ought to be there, and their values' numbers */
	bool present[KEYS];
	uint32_t value[KEYS];
	uint32_t next_value;
	uint32_t put_ms; /* time limit of puts and deletes; 0: the session's */
};

/* ---- before each change by the daemon -------------------------------------------------------- */

static struct {
	uint64_t changes;    /* so far */
	uint64_t at;         /* before this one (from 1) ... */
	bool die;            /* the daemon dies, or ... */
	void (*act)(void *); /* ... this is done; */
	void *argument;
	jmp_buf death;
} point;

uint64_t __real_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
void __real_self_store(struct pool *pool, uint64_t offset, uint64_t value);
uint64_t __wrap_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
void __wrap_self_store(struct pool *pool, uint64_t offset, uint64_t value);

static void change(void)
{
	if (++point.changes != point.at)
		return;
	if (point.die)
		longjmp(point.death, 1);
	if (point.act)
		point.act(point.argument);
}

uint64_t __wrap_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value)
{
	change();
	return __real_self_cas(pool, offset, compare, value);
}

void __wrap_self_store(struct pool *pool, uint64_t offset, uint64_t value)
{
	change();
	__real_self_store(pool, offset, value);
}

/* As in a nic domain: many CAS at a time. */
static bool far_away;

bool __wrap_self_is_far(const struct pool *pool);
void __wrap_self_cas_many(struct pool *pool, struct self_change *changes, unsigned count);

bool __wrap_self_is_far(const struct pool *pool)
{
	(void)pool;
	return far_away;
}

/* Others may be between two of a list, as they may be between two CAS of a post. */
void __wrap_self_cas_many(struct pool *pool, struct self_change *changes, unsigned count)
{
	assert_true(count <= SELF_CHANGES_MAX);
	for (unsigned i = 0; i < count; i++)
		changes[i].seen = __wrap_self_cas(pool, changes[i].offset, changes[i].compare,
						  changes[i].value);
}

static int far_begin(void **state)
{
	(void)state;
	far_away = true;
	return 0;
}

static int far_end(void **state)
{
	(void)state;
	far_away = false;
	return 0;
}

static void point_set(uint64_t at, void (*act)(void *), void *argument)
{
	point.changes = 0;
	point.at = at;
	point.die = act == NULL;
	point.act = act;
	point.argument = argument;
}

/* ---- a client -------------------------------------------------------------------------------- */

static struct world *client_world; /* of the endpoint's functions */
static const struct fabric_ops *shm_ops;
static struct fabric_ops client_ops;
static struct {
	unsigned posts, at; /* before this post (from 1) ... */
	void (*act)(struct world *w);
} post_point;

static int client_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		      size_t capacity, void *cookie)
{
	struct world *w = client_world;
	struct rpc_answer answer;

	(void)ep;
	assert_true(capacity >= WIRE_RPC_REPLY_BYTES);
	assert_int_equal(rpc_handle(w->pool, &w->rpc_client, message, bytes, &answer), 0);
	memcpy(reply, answer.bytes, WIRE_RPC_REPLY_BYTES);
	w->answer = (struct fabric_completion){.cookie = cookie, .length = WIRE_RPC_REPLY_BYTES};
	w->answered = true;
	return 0;
}

static int client_poll(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
		       unsigned max)
{
	struct world *w = client_world;

	if (!w->answered)
		return shm_ops->poll(ep, ret_completions, max);
	w->answered = false;
	*ret_completions = w->answer;
	return 1;
}

static int client_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		       unsigned count, void *cookie)
{
	if (++post_point.posts == post_point.at)
		post_point.act(client_world);
	return shm_ops->post(ep, requests, count, cookie);
}

static uint64_t client_now(struct fabric_endpoint *ep)
{
	struct world *w = client_world;

	if (w->driven)
		keeper_step(w->pool->keeper, clock_now_ns());
	return shm_ops->now(ep);
}

static struct tarn_session *session_of(struct world *w, uint32_t flags, uint32_t timeout_ms)
{
	struct pool_client who = {.pid = 1};
	struct session_identity identity = {0};
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *session;
	struct fabric_endpoint *ep;

	assert_int_equal(pool_client_add(w->pool, &who, &identity.client_slot), 0);
	identity.client_id = w->pool->clients[identity.client_slot].client_id;
	rpc_client_init(&w->rpc_client, identity.client_slot, false);
	options.flags = flags | TARN_NO_THREAD;
	options.cache_bytes = 1u << 14;
	options.timeout_ms = timeout_ms;
	assert_int_equal(fabric_shm_attach(w->pool->memory.base, w->pool->memory.bytes, false, &ep),
			 0);
	shm_ops = ep->ops;
	client_ops = *ep->ops;
	client_ops.rpc = client_rpc;
	client_ops.poll = client_poll;
	client_ops.post = client_post;
	client_ops.now = client_now;
	ep->ops = &client_ops;
	assert_int_equal(session_create(ep, &w->pool->geometry, &identity, &options, &session), 0);
	return session;
}

/* ---- a world --------------------------------------------------------------------------------- */

/* The pool of the fixture once more, with small subtables. */
static void format(struct pool *pool, uint32_t groups, uint64_t keys)
{
	struct layout_plan plan = {
		.pool_bytes = pool->memory.bytes,
		.keys = keys,
		.groups = groups,
		.max_clients = 8,
		.deadline_ns = 100 * MS,
		.epoch_ns = 250 * MS,
		.grace_ns = 500 * MS,
		.max_value_bytes = 1u << 20,
		.hash_seed = 7,
		.incarnation = 1,
		.boot_id = 1,
	};

	keeper_free(pool->keeper);
	fixture_clear(pool);
	assert_int_equal(layout_format(pool->memory.base, &plan), 0);
	assert_int_equal(layout_superblock_check((const void *)pool->memory.base,
						 pool->memory.bytes, &pool->geometry),
			 0);
	assert_int_equal(keeper_create(pool, pool->log, &pool->keeper), 0);
}

static void world_open(struct world *w, uint32_t groups, uint64_t keys)
{
	memset(w, 0, sizeof(*w));
	post_point.at = 0;
	point_set(0, NULL, NULL);
	fixture_open(&w->f, "");
	w->pool = w->f.pool;
	format(w->pool, groups, keys);
	assert_int_equal(grow_create(w->pool, &w->f.log, &w->grow), 0);
	client_world = w;
	w->now = 1000 * MS;
	w->session = session_of(w, 0, 300);
	w->other = session_of(w, TARN_NO_CACHE, 300);
}

static void world_close(struct world *w)
{
	point_set(0, NULL, NULL);
	session_free(w->session);
	session_free(w->other);
	grow_free(w->grow);
	fixture_close(&w->f);
}

static void step(struct world *w, uint64_t ms)
{
	struct keeper_time time = {.now_ns = w->now += ms * MS, .epoch = 1};

	grow_step(w->grow, &time);
}

static struct grow_stats stats(const struct world *w)
{
	struct grow_stats s;

	grow_get_stats(w->grow, &s);
	return s;
}

/* ---- keys, and a map of what they ought to be ------------------------------------------------- */

/* A write may wait for a daemon that has died, a read never does: on a busy machine it has time. */
static void limit_write(struct world *w, struct tarn_session *s)
{
	assert_int_equal(tarn_session_set_timeout(s, w->put_ms ? w->put_ms : 5000), 0);
}

static int put(struct world *w, struct tarn_session *s, uint32_t key)
{
	uint32_t value = ++w->next_value;
	int ret;

	limit_write(w, s);
	ret = tarn_put(s, &key, sizeof(key), &value, sizeof(value), NULL, NULL);
	if (ret == 0) {
		w->present[key] = true;
		w->value[key] = value;
	}
	return ret;
}

static void get(struct world *w, struct tarn_session *s, uint32_t key)
{
	uint32_t value = 0;
	int ret;

	assert_int_equal(tarn_session_set_timeout(s, 10000), 0);
	ret = tarn_get(s, &key, sizeof(key), &value, sizeof(value), NULL);
	if (ret != (w->present[key] ? 0 : -TARN_ENOTFOUND))
		fail_msg("key %u at change %llu: %d %s", key, (unsigned long long)point.changes,
			 ret, err_text());
	if (ret == 0 && value != w->value[key])
		fail_msg("key %u has value %u, not %u", key, value, w->value[key]);
}

static void get_all(struct world *w, struct tarn_session *s)
{
	for (uint32_t key = 0; key < KEYS; key++)
		get(w, s, key);
}

/* If it can be, within the time limit. */
static void try_delete(struct world *w, struct tarn_session *s, uint32_t key)
{
	limit_write(w, s);
	if (w->present[key] && tarn_delete(s, &key, sizeof(key)) == 0)
		w->present[key] = false;
}

static void delete_key(struct world *w, struct tarn_session *s, uint32_t key)
{
	assert_int_equal(tarn_delete(s, &key, sizeof(key)), w->present[key] ? 0 : -TARN_ENOTFOUND);
	w->present[key] = false;
}

static void fill(struct world *w, uint32_t count)
{
	for (uint32_t key = 0; key < count; key++)
		assert_int_equal(put(w, w->session, key), 0);
}

/* Slots of all subtables by state, and every rule of an index at rest. */
struct slots {
	uint32_t by_state[8];
	uint32_t filled; /* headers that say so */
};

static uint64_t word_at(const struct world *w, uint64_t offset)
{
	return self_load(w->pool, offset);
}

static void check_subtable(const struct world *w, uint64_t index, uint64_t entry,
			   struct slots *slots)
{
	const struct layout_geometry *g = &w->pool->geometry;
	uint64_t page = layout_page_offset(g, layout_directory_page(entry));

	for (uint32_t i = 0; i < 3 * g->groups * 8; i++) {
		uint64_t word = word_at(w, page + 8ull * i);

		if (i % 8) {
			slots->by_state[layout_slot_state(word)]++;
			continue;
		}
		assert_int_equal(layout_header_suffix(word), index);
		assert_int_equal(layout_header_depth(word), layout_directory_depth(entry));
		if (layout_header_split(word) == LAYOUT_SPLIT_FILLED)
			slots->filled++;
		else
			assert_int_equal(layout_header_split(word), LAYOUT_SPLIT_NONE);
	}
}

static struct slots check_index(const struct world *w)
{
	const struct layout_geometry *g = &w->pool->geometry;
	uint64_t depth = word_at(w, LAYOUT_GLOBAL_DEPTH_OFFSET);
	struct slots slots = {0};
	uint32_t present = 0;

	for (uint64_t i = 0; i < 1ull << depth; i++) {
		uint64_t entry = word_at(w, layout_directory_offset(g, i));
		uint32_t first = layout_suffix((uint32_t)i, layout_directory_depth(entry));

		assert_int_equal(layout_directory_state(entry), LAYOUT_DIRECTORY_VALID);
		assert_true(entry == word_at(w, layout_directory_offset(g, first)));
		assert_int_equal(layout_page_state(pool_load_page_word(
					 w->pool, layout_directory_page(entry))),
				 LAYOUT_PAGE_INDEX);
		if (first == i)
			check_subtable(w, i, entry, &slots);
	}
	for (uint32_t key = 0; key < KEYS; key++)
		present += w->present[key];
	/* no key twice, none lost */
	assert_int_equal(slots.by_state[LAYOUT_SLOT_COMMITTED], present);
	assert_int_equal(slots.by_state[LAYOUT_SLOT_FROZEN], 0);
	return slots;
}

/* A split of the only subtable is asked for behind the daemon's back, as if it were full. */
static void begin(struct world *w)
{
	const struct layout_geometry *g = &w->pool->geometry;
	struct layout_hash hash;
	uint32_t key = 0;
	uint64_t page, saved[LAYOUT_PAIR_BYTES / 4];

	hash = layout_hash_key(&key, sizeof(key), g->hash_seed);
	page = layout_page_offset(
		g, layout_directory_page(word_at(
			   w, layout_directory_offset(
				      g, layout_suffix(layout_hash_suffix(hash),
						       (uint32_t)word_at(
							       w, LAYOUT_GLOBAL_DEPTH_OFFSET))))));
	for (unsigned choice = 0; choice < 2; choice++)
		for (unsigned i = 0; i < LAYOUT_PAIR_BYTES / 8; i++) {
			uint64_t offset = page + layout_hash_pair(hash, choice, g->groups) + 8 * i;

			saved[choice * LAYOUT_PAIR_BYTES / 8 + i] = word_at(w, offset);
			if (i % 8 && word_at(w, offset) == 0)
				__real_self_store(w->pool, offset, ~7ull | LAYOUT_SLOT_PENDING);
		}
	assert_int_equal(grow_request(w->grow, hash, LAYOUT_MAX_DEPTH), 0);
	for (unsigned choice = 2; choice-- > 0;)
		for (unsigned i = 0; i < LAYOUT_PAIR_BYTES / 8; i++) {
			uint64_t word = saved[choice * LAYOUT_PAIR_BYTES / 8 + i];

			if (i % 8)
				__real_self_store(
					w->pool,
					page + layout_hash_pair(hash, choice, g->groups) + 8 * i,
					layout_slot_state(word) == LAYOUT_SLOT_PENDING ? 0 : word);
		}
}

static void finish(struct world *w)
{
	for (unsigned i = 0; i < 1000 && (i == 0 || grow_active(w->grow)); i++)
		step(w, 21);
	assert_false(grow_active(w->grow));
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_split(void **state)
{
	struct slots slots;
	struct world w;

	(void)state;
	world_open(&w, 4, 1);
	fill(&w, 60);
	get_all(&w, w.other);
	begin(&w);
	finish(&w);
	assert_int_equal(stats(&w).splits, 1);
	assert_int_equal(stats(&w).doublings, 1);
	assert_int_equal(word_at(&w, LAYOUT_GLOBAL_DEPTH_OFFSET), 1);
	slots = check_index(&w);
	assert_int_equal(slots.by_state[LAYOUT_SLOT_MOVED], stats(&w).slots_moved);
	assert_int_equal(slots.filled, 12);
	assert_true(stats(&w).slots_moved > 15 && stats(&w).slots_moved < 45);
	/* with stale directory and locations */
	get_all(&w, w.session);
	get_all(&w, w.other);
	/* tombstones stay for a while */
	step(&w, 60);
	assert_true(check_index(&w).by_state[LAYOUT_SLOT_MOVED] > 0);
	for (unsigned i = 0; i < 8; i++)
		step(&w, 21);
	slots = check_index(&w);
	assert_int_equal(slots.by_state[LAYOUT_SLOT_MOVED], 0);
	assert_int_equal(slots.filled, 0);
	assert_int_equal(stats(&w).resting, 0);
	get_all(&w, w.other);
	world_close(&w);
}

/* A walk over all keys just behind a split: each comes once. */
static void test_scan(void **state)
{
	struct tarn_scan *scan;
	struct world w;
	const void *key;
	size_t bytes;
	unsigned n = 0;

	(void)state;
	world_open(&w, 4, 1);
	fill(&w, 60);
	begin(&w);
	finish(&w);
	assert_int_equal(check_index(&w).filled, 12);
	assert_int_equal(tarn_session_set_timeout(w.other, 10000), 0);
	assert_int_equal(tarn_scan_open(w.other, NULL, 0, &scan), 0);
	while (tarn_scan_next(scan, &key, &bytes, NULL) > 0)
		n++;
	assert_int_equal(n, 60);
	tarn_scan_close(scan);
	world_close(&w);
}

/* Three deep, while all keys stay where they are found. */
static void test_many_splits(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, 2, 1);
	fill(&w, 24);
	for (unsigned i = 0; i < 3; i++) {
		begin(&w);
		finish(&w);
		get_all(&w, w.session);
		get_all(&w, w.other);
		check_index(&w);
		for (unsigned n = 0; n < 10; n++)
			step(&w, 21);
	}
	assert_int_equal(word_at(&w, LAYOUT_GLOBAL_DEPTH_OFFSET), 3);
	for (uint32_t key = 24; key < KEYS; key++)
		put(&w, w.session, key);
	get_all(&w, w.other);
	for (uint32_t key = 0; key < KEYS; key++)
		delete_key(&w, key % 2 ? w.session : w.other, key);
	check_index(&w);
	world_close(&w);
}

static void everything(void *argument)
{
	struct world *w = argument;
	uint32_t i = (uint32_t)point.changes;

	get_all(w, w->session);
	get_all(w, w->other);
	/* what is there, what is not, what comes again; a frozen slot or a missing place: later */
	for (uint32_t key = 0; key < 24; key++)
		put(w, key % 2 ? w->session : w->other, key);
	put(w, w->other, 24 + i % 20);
	try_delete(w, w->session, (i + 5) % 24);
	put(w, w->other, (i + 5) % 24);
	get_all(w, w->session);
	get_all(w, w->other);
}

/* A client does everything before each change that the daemon makes. */
static void test_client_at_each_change(void **state)
{
	uint64_t at;

	(void)state;
	for (at = 1;; at++) {
		struct world w;

		world_open(&w, 2, 1);
		fill(&w, 24);
		w.put_ms = 3;
		begin(&w);
		point_set(at, everything, &w);
		finish(&w);
		get_all(&w, w.session);
		get_all(&w, w.other);
		check_index(&w);
		if (point.changes < at) {
			world_close(&w);
			break;
		}
		world_close(&w);
	}
	/* page word, directory, 12 headers twice and four for each slot that moves */
	assert_true(at > 60);
}

/* The daemon dies before each change that it makes; another one finishes what it has begun. */
static void test_death_at_each_change(void **state)
{
	static struct world w; /* what longjmp() must not lose */
	static bool alive, died;
	static uint64_t at;

	(void)state;
	died = true;
	for (at = 1; died; at++) {
		world_open(&w, 2, 1);
		fill(&w, 24);
		begin(&w);
		point_set(at, NULL, NULL);
		alive = true;
		if (setjmp(point.death) == 0)
			finish(&w);
		else
			alive = false;
		died = !alive;
		point_set(0, NULL, NULL);
		/* the clients go on meanwhile, as far as they can */
		get_all(&w, w.session);
		get_all(&w, w.other);
		assert_int_equal(grow_recover(w.pool), 0);
		check_index(&w);
		get_all(&w, w.session);
		get_all(&w, w.other);
		assert_int_equal(put(&w, w.session, 3), 0);
		assert_int_equal(put(&w, w.other, 40), 0);
		get_all(&w, w.other);
		check_index(&w);
		world_close(&w);
	}
	assert_true(at > 60);
}

static void run_split(struct world *w)
{
	begin(w);
	finish(w);
}

static void begin_split(struct world *w)
{
	begin(w);
	point_set(20, NULL, NULL);
	if (setjmp(point.death) == 0)
		finish(w);
	point_set(0, NULL, NULL);
}

static void one_of_each(struct world *w, unsigned kind, uint32_t key)
{
	struct tarn_session *s = kind % 2 ? w->session : w->other;

	if (kind / 2 == 0)
		get(w, s, key);
	else if (kind / 2 == 1)
		put(w, s, key);
	else
		try_delete(w, s, key);
}

/* A whole split, or the first half of one, before each post of a client's operation. */
static void test_split_at_each_post(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 6; kind++)
		for (unsigned at = 1; at < 7; at++)
			for (uint32_t key = 15; key < 33; key++) {
				static struct world w;

				world_open(&w, 2, 1);
				fill(&w, 24);
				get_all(&w, w.session);
				get_all(&w, w.other);
				w.put_ms = 3;
				post_point.posts = 0;
				post_point.act = key % 3 ? run_split : begin_split;
				post_point.at = at;
				one_of_each(&w, kind, key);
				post_point.at = 0;
				assert_int_equal(grow_recover(w.pool), 0);
				get_all(&w, w.session);
				get_all(&w, w.other);
				check_index(&w);
				world_close(&w);
			}
}

/* The put finds no slot, asks, and waits. */
static void test_request(void **state)
{
	struct keeper_stats k;
	struct world w;

	(void)state;
	world_open(&w, 2, 1);
	w.driven = true;
	fill(&w, KEYS);
	w.driven = false;
	get_all(&w, w.session);
	get_all(&w, w.other);
	keeper_get_stats(w.pool->keeper, clock_now_ns(), &k);
	assert_true(k.grow.splits >= 1);
	assert_true(w.pool->counters.rpcs[WIRE_RPC_GROW] >= 1);
	check_index(&w);
	world_close(&w);
}

/* A request that is not true costs no memory. */
static void test_request_untrue(void **state)
{
	struct world w;
	uint32_t key = 1;

	(void)state;
	world_open(&w, 2, 1);
	assert_int_equal(grow_request(w.grow, layout_hash_key(&key, 4, 7), 0), 0);
	step(&w, 21);
	assert_false(grow_active(w.grow));
	assert_int_equal(stats(&w).splits, 0);
	world_close(&w);
}

static void test_largest_index(void **state)
{
	struct world w;
	uint32_t key;
	int ret = 0;

	(void)state;
	world_open(&w, 1, 1);
	w.pool->geometry.max_depth = 1;
	w.driven = true;
	for (key = 0; key < KEYS && ret == 0; key++)
		ret = put(&w, w.session, key);
	assert_int_equal(ret, -TARN_EINDEXFULL);
	assert_non_null(strstr(err_text(), "max_depth"));
	w.driven = false;
	get_all(&w, w.session);
	check_index(&w);
	world_close(&w);
}

static void test_no_page(void **state)
{
	struct world w;
	uint32_t key;
	int ret = 0;

	(void)state;
	world_open(&w, 1, 1);
	/* a page for its blocks first */
	assert_int_equal(put(&w, w.session, 0), 0);
	for (uint32_t page = 0; page < w.pool->geometry.npages; page++)
		if (layout_page_state(pool_load_page_word(w.pool, page)) == LAYOUT_PAGE_FREE)
			fixture_page(w.pool, page, LAYOUT_PAGE_INDEX, 0, 0);
	w.driven = true;
	for (key = 1; key < KEYS && ret == 0; key++)
		ret = put(&w, w.session, key);
	assert_int_equal(ret, -TARN_EPOOLFULL);
	assert_non_null(strstr(err_text(), "index"));
	w.driven = false;
	get_all(&w, w.session);
	world_close(&w);
}

/* Nobody answers: a put ends in time, and says what it waited for. */
static void test_stopped_daemon(void **state)
{
	struct world w;
	uint32_t key;
	int ret = 0;

	(void)state;
	world_open(&w, 1, 1);
	w.put_ms = 50;
	for (key = 0; key < KEYS && ret == 0; key++)
		ret = put(&w, w.session, key);
	assert_int_equal(ret, -TARN_ETIMEOUT);
	assert_non_null(strstr(err_text(), "did not grow"));
	get_all(&w, w.other);
	world_close(&w);
}

static uint64_t quiescence_of(const struct world *w, const struct tarn_session *s)
{
	return word_at(w, layout_client_offset(&w->pool->geometry, s->identity.client_slot) +
				  offsetof(struct layout_client, quiescence));
}

/*
 * The page that an insert waits for may be a dead client's, which a sweep gives back, which waits for
 * everybody's count: who waits raises it. Who does not wait leaves that to housekeeping.
 */
static void test_waiting_raises(void **state)
{
	struct world w;
	uint32_t key;
	int ret = 0;

	(void)state;
	world_open(&w, 1, 1);
	assert_int_equal(put(&w, w.session, 0), 0);
	assert_int_equal(quiescence_of(&w, w.session), 0);
	w.put_ms = 50;
	for (key = 1; key < KEYS && ret == 0; key++)
		ret = put(&w, w.session, key);
	assert_int_equal(ret, -TARN_ETIMEOUT);
	assert_true(quiescence_of(&w, w.session) >= 2);
	world_close(&w);
}

static void test_counter(void **state)
{
	struct world w;
	int64_t value = 0;

	(void)state;
	world_open(&w, 2, 1);
	for (uint32_t key = 0; key < 20; key++)
		assert_int_equal(tarn_add(w.session, &key, 4, key, NULL), 0);
	begin(&w);
	finish(&w);
	for (uint32_t key = 0; key < 20; key++) {
		assert_int_equal(tarn_add(w.other, &key, 4, 1, &value), 0);
		assert_int_equal(value, key + 1);
		w.session->ep->features |= FABRIC_COUNTER_FAA;
		assert_int_equal(tarn_add(w.session, &key, 4, 1, &value), 0);
		assert_int_equal(value, key + 2);
	}
	world_close(&w);
}

/* Left over by clients that died: pending slots do not come along. */
static void test_dead_pending(void **state)
{
	uint64_t page;
	struct world w;

	(void)state;
	world_open(&w, 2, 1);
	fill(&w, 10);
	page = layout_page_offset(&w.pool->geometry, 0);
	for (uint32_t i = 0; i < 48; i++)
		if (i % 8 && word_at(&w, page + 8 * i) == 0)
			self_store(w.pool, page + 8 * i,
				   layout_slot_make(LAYOUT_SLOT_PENDING, i, 2, 9, page));
	run_split(&w);
	assert_int_equal(check_index(&w).by_state[LAYOUT_SLOT_PENDING], 0);
	get_all(&w, w.session);
	world_close(&w);
}

/* A fingerprint from this one on that no key has: whoever looks for a key does not meet such slots. */
static uint32_t strange_fp(uint32_t fp)
{
	for (uint32_t key = 0; key < KEYS; key++)
		if (layout_hash_fp(layout_hash_key(&key, sizeof(key), 7)) == fp)
			return strange_fp(fp + 1);
	return fp;
}

/* Slots whose blocks are garbage stay; the others are moved. */
static void test_damaged_slots(void **state)
{
	uint64_t page;
	struct world w;

	(void)state;
	world_open(&w, 4, 1);
	fill(&w, 20);
	page = layout_page_offset(&w.pool->geometry, 0);
	for (uint32_t i = 0, n = 0; i < 96 && n < 10; i++)
		if (i % 8 && word_at(&w, page + 8 * i) == 0)
			self_store(w.pool, page + 8 * i,
				   layout_slot_make(LAYOUT_SLOT_COMMITTED, strange_fp(i), n++ % 32,
						    i, i % 3 ? page + 64 * i : (uint64_t)i << 36));
	run_split(&w);
	assert_true(stats(&w).damaged >= 10);
	get_all(&w, w.session);
	world_close(&w);
}

/* A place of the new subtable that was free for the taking, says a client, and was not. */
static void test_place_taken(void **state)
{
	static struct world w;
	uint64_t new_page;

	(void)state;
	world_open(&w, 2, 1);
	fill(&w, 24);
	begin(&w);
	point_set(8, NULL, NULL); /* the flags are being set */
	if (setjmp(point.death) == 0)
		finish(&w);
	point_set(0, NULL, NULL);
	new_page = layout_page_offset(&w.pool->geometry, w.pool->geometry.npages - 1);
	for (uint32_t bucket = 0; bucket < 6; bucket++) {
		/* a dead client's; and one that should not be there */
		self_store(w.pool, new_page + 64 * bucket + 8,
			   layout_slot_make(LAYOUT_SLOT_PENDING, 1, 1, 1, new_page));
		self_store(w.pool, new_page + 64 * bucket + 16,
			   layout_slot_make(LAYOUT_SLOT_COMMITTED, 1, 1, 1, new_page));
	}
	assert_int_equal(grow_recover(w.pool), 0);
	for (uint32_t bucket = 0; bucket < 6; bucket++)
		self_store(w.pool, new_page + 64 * bucket + 16, 0);
	get_all(&w, w.other);
	world_close(&w);
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

/* Directory, headers, slots, page words: whatever stands there, the daemon goes on. */
static void test_garbage(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		struct world w;
		const struct layout_geometry *g;

		world_open(&w, 2, 200);
		g = &w.pool->geometry;
		fill(&w, 30);
		if (i % 2)
			begin(&w);
		for (unsigned n = 0; n < 1 + i % 40; n++) {
			uint64_t where[] = {
				layout_directory_offset(g, random_number() % 16),
				layout_page_offset(g, random_number() % 10 & 7) +
					8 * (random_number() % 48),
				layout_page_word_offset(g, (uint32_t)(random_number() % g->npages)),
				LAYOUT_GLOBAL_DEPTH_OFFSET,
			};
			uint64_t offset = where[random_number() % 4], word = word_at(&w, offset);

			self_store(w.pool, offset,
				   random_number() % 2 ? random_number()
						       : word ^ 1ull << random_number() % 48);
			step(&w, 21);
		}
		for (unsigned n = 0; n < 50; n++)
			step(&w, 21);
		(void)grow_recover(w.pool);
		world_close(&w);
	}
}

/*
 * How full a subtable of the usual size is when the first key finds no slot: that must be more than
 * what grow.c waits for.
 */
static void test_load(void **state)
{
	const struct layout_geometry *g;
	struct world w;
	uint32_t key = 0;
	uint64_t permille;

	(void)state;
	world_open(&w, 0, 1);
	g = &w.pool->geometry;
	assert_int_equal(tarn_session_set_timeout(w.session, 20), 0);
	while (tarn_put(w.session, &key, sizeof(key), "", 0, NULL, NULL) == 0)
		key++;
	permille = 1000ull * key / (g->groups * 3 * LAYOUT_BUCKET_SLOTS);
	print_message("the first insert without a slot: at load 0.%llu\n",
		      (unsigned long long)permille);
	assert_true(permille > 900);
	world_close(&w);
}

/* Nobody asks: a subtable is split when it is nearly full. */
static void test_ahead(void **state)
{
	struct world w;
	uint32_t key;

	(void)state;
	world_open(&w, 0, 1);
	for (key = 0; key < 22000; key++)
		assert_int_equal(tarn_put(w.session, &key, sizeof(key), "", 0, NULL, NULL), 0);
	for (unsigned i = 0; i < 100; i++)
		step(&w, 21);
	assert_int_equal(stats(&w).splits, 0);
	assert_int_equal(stats(&w).load_permille, 22000000 / 28665);
	for (; key < 24800; key++)
		assert_int_equal(tarn_put(w.session, &key, sizeof(key), "", 0, NULL, NULL), 0);
	for (unsigned i = 0; i < 100; i++)
		step(&w, 21);
	assert_int_equal(stats(&w).splits, 1);
	assert_int_equal(stats(&w).subtables, 2);
	while (key-- > 0)
		assert_int_equal(tarn_exists(w.other, &key, sizeof(key), NULL), 0);
	world_close(&w);
}

/* Slowly, this many keys are no reason (above); at the rate of these puts it would be full before it is split. */
static void test_rate(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, 0, 1);
	step(&w, 21);
	for (uint32_t key = 0; key < 22000; key++) {
		assert_int_equal(tarn_put(w.session, &key, sizeof(key), "", 0, NULL, NULL), 0);
		if (key % 2000 == 1999)
			finish(&w);
	}
	assert_int_equal(stats(&w).splits, 1);
	world_close(&w);
}

/* A round that finds much to split takes long: meanwhile the stats tell what is, not what was. */
static void test_stats_while_splitting(void **state)
{
	const uint64_t slots = 8 * 3 * LAYOUT_BUCKET_SLOTS;
	uint64_t worst = 0, load, truth;
	struct world w;
	uint32_t key;

	(void)state;
	world_open(&w, 8, 1);
	assert_int_equal(stats(&w).subtables, 1);
	for (key = 0; key < 2400; key++) {
		assert_int_equal(tarn_put(w.session, &key, sizeof(key), "", 0, NULL, NULL), 0);
		for (unsigned i = 0; i < 4; i++)
			step(&w, 21);
		assert_int_equal(stats(&w).subtables, 1 + stats(&w).splits);
		load = stats(&w).load_permille;
		truth = 1000ull * (key + 1) / (stats(&w).subtables * slots);
		if (stats(&w).subtables >= 8 &&
		    (load > truth ? load - truth : truth - load) > worst)
			worst = load > truth ? load - truth : truth - load;
	}
	print_message("%llu subtables; the load is told to %llu thousandths\n",
		      (unsigned long long)stats(&w).subtables, (unsigned long long)worst);
	assert_true(stats(&w).subtables >= 16);
	assert_true(worst < 100);
	world_close(&w);
}

/* CAS one by one, and many at a time. */
#define BOTH(test) cmocka_unit_test(test), cmocka_unit_test_setup_teardown(test, far_begin, far_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_split),
		BOTH(test_scan),
		BOTH(test_many_splits),
		BOTH(test_client_at_each_change),
		BOTH(test_death_at_each_change),
		BOTH(test_split_at_each_post),
		cmocka_unit_test(test_request),
		cmocka_unit_test(test_request_untrue),
		cmocka_unit_test(test_largest_index),
		cmocka_unit_test(test_no_page),
		cmocka_unit_test(test_stopped_daemon),
		cmocka_unit_test(test_waiting_raises),
		BOTH(test_counter),
		BOTH(test_dead_pending),
		BOTH(test_damaged_slots),
		BOTH(test_place_taken),
		BOTH(test_garbage),
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_stats_while_splitting),
	};

	return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
