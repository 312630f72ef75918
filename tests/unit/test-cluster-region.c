/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions, registered memory and the descriptor of a cluster's session, with three members that the test plays: where a region is
 * looked for, what becomes of an open one when its member goes, and who has which memory. With real daemons it is
 * tests/integration/test-cluster-region.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>

#include "buffer-internal.h"
#include "clock.h"
#include "cluster-wire.h"
#include "cluster.h"
#include "fake-fabric.h"
#include "region-task.h"

#define MIB    (1ull << 20)
#define SHARDS 64u
#define NODES  3u

struct node {
	struct fake fake; /* first */
	struct fixture pool;
	bool away;
	char names[8][40]; /* its regions; "": none. The id is the place, and 10 times the node */
	unsigned asked;    /* about regions */
};

struct world {
	struct cluster_source source; /* first */
	struct node nodes[NODES];
	struct cluster_map *map;
	struct tarn_session *s;
};

/* ---- members --------------------------------------------------------------------------------- */

static struct world *world; /* of the test that runs */

static uint64_t id_of(const struct node *node, unsigned i)
{
	return 10 * (uint64_t)(node - world->nodes) + i + 1;
}

static int find(const struct node *node, const char *name)
{
	for (int i = 0; i < 8; i++)
		if (node->names[i][0] && strcmp(node->names[i], name) == 0)
			return i;
	return -1;
}

static void answer_list(const struct node *node, uint64_t after, struct wire_region_reply *reply)
{
	reply->status = -TARN_ENOREGION;
	for (unsigned i = 8; i-- > 0;) {
		if (!node->names[i][0] || id_of(node, i) <= after)
			continue;
		reply->status = 0;
		reply->id = id_of(node, i);
		strcpy(reply->name, node->names[i]);
	}
}

static enum fake_answer ask(struct fake *fake, const void *message, size_t bytes, uint8_t *answer,
			    uint32_t *ret_bytes)
{
	struct node *node = (struct node *)fake;
	struct wire_region_request request;
	struct wire_region_reply reply;
	int at;

	assert_int_equal(wire_region_request_decode(message, bytes, &request), 0);
	node->asked++;
	at = find(node, request.name);
	reply = (struct wire_region_reply){.call = request.call,
					   .handle = request.handle,
					   .state = TARN_REGION_READY,
					   .bytes = 4096};
	if (request.call == WIRE_REGION_CREATE && at < 0) {
		at = 0;
		while (node->names[at][0])
			at++;
		strcpy(node->names[at], request.name);
	} else if (request.call == WIRE_REGION_DESTROY && at >= 0) {
		node->names[at][0] = 0;
	} else if (request.call == WIRE_REGION_LIST) {
		answer_list(node, request.number, &reply);
	} else if (request.call != WIRE_REGION_CLOSE && at < 0) {
		reply.status = -TARN_ENOREGION;
	}
	if (request.call != WIRE_REGION_LIST && at >= 0)
		reply.id = id_of(node, (unsigned)at);
	wire_region_reply_encode(&reply, answer);
	*ret_bytes = WIRE_REGION_BYTES;
	return FAKE_ANSWERS;
}

/* It can not be reached, and who was connected is not any more. */
static void leave(struct world *w, unsigned i)
{
	w->nodes[i].away = true;
	w->nodes[i].fake.fail = UINT32_MAX;
	w->nodes[i].fake.code = -TARN_EUNREACHABLE;
	w->nodes[i].fake.again = SESSION_LATER;
	if (w->nodes[i].fake.last)
		w->nodes[i].fake.last->broken = true;
}

static void come_back(struct world *w, unsigned i)
{
	w->nodes[i].away = false;
	w->nodes[i].fake.fail = 0;
}

/* ---- the source ------------------------------------------------------------------------------ */

static struct cluster_map *copy(const struct cluster_map *map)
{
	size_t bytes = cluster_wire_bytes(map);
	struct cluster_map *again = NULL;
	void *buffer = malloc(bytes);

	assert_int_equal(cluster_wire_encode(map, buffer, bytes, &bytes), 0);
	assert_int_equal(cluster_wire_decode(buffer, bytes, &again), 0);
	free(buffer);
	return again;
}

static int source_seed(struct cluster_source *source, unsigned i, uint64_t timeout_ns,
		       struct tarn_session **ret_session)
{
	struct world *w = (struct world *)source;

	(void)timeout_ns;
	if (i >= NODES)
		return -ENOENT;
	if (w->nodes[i].away)
		return err_set(-TARN_EUNREACHABLE, "%c is away", 'a' + (int)i);
	*ret_session = fake_session(&w->nodes[i].fake, &w->nodes[i].pool, 0, 1000);
	return 0;
}

static int source_member(struct cluster_source *source, const struct cluster_map *map,
			 const struct cluster_member *member, uint64_t timeout_ns,
			 struct tarn_session **ret_session)
{
	(void)map;
	return source_seed(source, (unsigned)(member->name[0] - 'a'), timeout_ns, ret_session);
}

static unsigned place_of(const struct world *w, const struct tarn_session *m)
{
	for (unsigned i = 0; i < NODES; i++)
		if (m->connector == &w->nodes[i].fake.base)
			return i;
	fail();
	return 0;
}

static int source_ask(struct cluster_source *source, struct tarn_session *m, uint64_t timeout_ns,
		      struct cluster_answer *ret_answer)
{
	struct world *w = (struct world *)source;
	unsigned i = place_of(w, m);

	(void)timeout_ns;
	if (w->nodes[i].away) {
		session_lose(m);
		return err_set(-TARN_ESESSION, "no answer");
	}
	*ret_answer = (struct cluster_answer){.epoch = w->map->epoch, .number = (uint16_t)(i + 11)};
	return 0;
}

static int source_fetch(struct cluster_source *source, struct tarn_session *m, uint64_t timeout_ns,
			struct cluster_map **ret_map)
{
	(void)m;
	(void)timeout_ns;
	*ret_map = copy(((struct world *)source)->map);
	return 0;
}

static uint64_t source_boottime(struct cluster_source *source)
{
	(void)source;
	return 1000000000000ull;
}

static void source_free(struct cluster_source *source)
{
	(void)source;
}

/* ---- a world --------------------------------------------------------------------------------- */

static struct cluster_map *new_map(unsigned count)
{
	struct cluster_map *map = calloc(1, sizeof(*map));

	strcpy(map->cluster, "c1");
	strcpy(map->pool, "main");
	map->seed = 42; /* fixture_plan()'s */
	map->epoch = 5;
	map->shards = SHARDS;
	map->member_count = count;
	map->members = calloc(count, sizeof(*map->members));
	map->owners = calloc(SHARDS, sizeof(*map->owners));
	map->since = calloc(SHARDS, sizeof(*map->since));
	map->taken = calloc(SHARDS, sizeof(*map->taken));
	map->moves = calloc(1, sizeof(*map->moves));
	for (unsigned i = 0; i < count; i++) {
		struct cluster_member *m = &map->members[i];

		snprintf(m->name, sizeof(m->name), "%c", 'a' + (int)i);
		m->number = (uint16_t)(i + 11);
		m->weight = 100;
		m->address_count = 1;
		m->addresses = calloc(1, sizeof(*m->addresses));
		strcpy(m->addresses[0].text, m->name);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		map->since[i] = 5;
	return map;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct tarn_options options = TARN_OPTIONS_INIT;

	*state = world = w;
	w->source = (struct cluster_source){source_seed,  source_member,   source_ask,
					    source_fetch, source_boottime, source_free};
	w->map = new_map(NODES);
	for (unsigned i = 0; i < NODES; i++) {
		struct layout_plan plan = fixture_plan(16 * MIB);

		plan.shards = SHARDS;
		plan.map_bytes = 4096;
		plan.boot_id = 100 + i;
		if (fixture_create(&w->nodes[i].pool, &plan) < 0)
			return -1;
		w->nodes[i].fake.ask = ask;
	}
	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 1000;
	return cluster_open(&w->source, &options, CLUSTER_BOUND_NS, &w->s);
}

static int teardown(void **state)
{
	struct world *w = *state;

	tarn_session_close(w->s);
	for (unsigned i = 0; i < NODES; i++)
		fixture_destroy(&w->nodes[i].pool);
	cluster_map_free(w->map);
	free(w);
	return 0;
}

/* The member that is asked about this name at that place of the order. */
static unsigned rank(const struct world *w, const char *name, unsigned n)
{
	return cluster_map_region(w->map, name, n);
}

static struct tarn_region *open_region(struct world *w, const char *name)
{
	struct tarn_region *region = NULL;

	if (tarn_region_open(w->s, name, 0, &region) < 0)
		fail_msg("%s", err_text());
	return region;
}

/* It is that member's memory. */
static void expect_at(struct world *w, struct tarn_region *region, unsigned node)
{
	uint8_t bytes[256];

	assert_int_equal(tarn_region_read(region, 0, bytes, sizeof(bytes)), 0);
	assert_memory_equal(bytes, w->nodes[node].pool.base, sizeof(bytes));
	for (unsigned i = 0; i < NODES; i++)
		if (i != node)
			assert_memory_not_equal(bytes, w->nodes[i].pool.base, sizeof(bytes));
}

static struct tarn_completion pick_up(struct world *w)
{
	struct tarn_completion c;
	size_t count = 0;

	while (count == 0) {
		struct pollfd p = {.fd = tarn_session_fd(w->s), .events = POLLIN};

		assert_true(p.fd >= 0);
		assert_int_equal(poll(&p, 1, 10000), 1);
		assert_true(tarn_session_poll(w->s, &c, 1, &count) >= 0);
	}
	return c;
}

/* ---- tests: places --------------------------------------------------------------------------- */

/* Each member is asked once; in proportion to the weights first; and who leaves changes nothing for the others. */
static void test_order(void **state)
{
	struct cluster_map *map = new_map(4);
	unsigned first[4] = {0, 0, 0, 0};

	(void)state;
	map->members[3].weight = 300;
	for (unsigned i = 0; i < 6000; i++) {
		char name[16];
		unsigned seen = 0, order[4];

		snprintf(name, sizeof(name), "r%u", i);
		for (unsigned n = 0; n < 4; n++) {
			order[n] = cluster_map_region(map, name, n);
			assert_true(order[n] < 4);
			seen |= 1u << order[n];
		}
		assert_int_equal(seen, 15);
		assert_int_equal(cluster_map_region(map, name, 4), CLUSTER_NOBODY);
		first[order[0]]++;
		map->members[order[0]].state = CLUSTER_LEFT;
		assert_int_equal(cluster_map_region(map, name, 0), order[1]);
		assert_int_equal(cluster_map_region(map, name, 3), CLUSTER_NOBODY);
		/* what drains takes nothing new, and is asked for what it has */
		map->members[order[0]].state = CLUSTER_DRAINING;
		assert_int_equal(cluster_map_region(map, name, 0), order[1]);
		assert_int_equal(cluster_map_region(map, name, 3), order[0]);
		map->members[order[0]].state = CLUSTER_UP;
	}
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(first[i], 850, 1150);
	assert_in_range(first[3], 2800, 3200);
	cluster_map_free(map);
}

static void test_create(void **state)
{
	struct world *w = *state;
	unsigned at = rank(w, "x", 0), other = rank(w, "x", 2);
	struct tarn_region *region;
	char name[32];

	assert_int_equal(tarn_region_create(w->s, "x", 4096, 0), 0);
	assert_int_equal(find(&w->nodes[at], "x"), 0);
	region = open_region(w, "x");
	expect_at(w, region, at);
	assert_int_equal(tarn_region_close(region), 0);
	/* on another member, if it is wanted so; by the name alone it is the first one's */
	snprintf(name, sizeof(name), "x@%c", 'a' + (int)other);
	assert_int_equal(tarn_region_create(w->s, name, 4096, 0), 0);
	region = open_region(w, name);
	expect_at(w, region, other);
	assert_int_equal(tarn_region_close(region), 0);
	region = open_region(w, "x");
	expect_at(w, region, at);
	assert_int_equal(tarn_region_close(region), 0);
	assert_int_equal(tarn_region_create(w->s, "x@", 4096, 0), -EINVAL);
	assert_int_equal(tarn_region_create(w->s, "x@b@c", 4096, 0), -EINVAL);
	assert_int_equal(tarn_region_create(w->s, "@b", 4096, 0), -EINVAL);
	assert_int_equal(tarn_region_create(w->s, "x@d", 4096, 0), -EINVAL);
	assert_non_null(strstr(tarn_last_error_text(), "no member"));
}

/* It was made when another member was the first one for its name. */
static void test_elsewhere(void **state)
{
	struct world *w = *state;
	unsigned at = rank(w, "old", 2);
	struct tarn_region_info info = {.size = sizeof(info)};
	struct tarn_region *region;

	strcpy(w->nodes[at].names[3], "old");
	region = open_region(w, "old");
	expect_at(w, region, at);
	assert_int_equal(tarn_region_close(region), 0);
	assert_int_equal(tarn_region_stat(w->s, "old", &info), 0);
	assert_int_equal(info.member[0], 'a' + (int)at);
	assert_int_equal(tarn_region_create(w->s, "old", 4096, 0), -TARN_EEXISTS);
	assert_int_equal(tarn_region_create_async(w->s, "old", 4096, 0, NULL, NULL), 0);
	assert_int_equal(pick_up(w).status, -TARN_EEXISTS);
	assert_int_equal(tarn_region_open_async(w->s, "old", 0, &region, NULL, NULL), 0);
	assert_int_equal(pick_up(w).status, 0);
	expect_at(w, region, at);
	assert_int_equal(tarn_region_close_async(region, NULL, NULL), 0);
	assert_int_equal(pick_up(w).status, 0);
	assert_int_equal(tarn_region_destroy(w->s, "old"), 0);
	assert_int_equal(find(&w->nodes[at], "old"), -1);
	assert_int_equal(tarn_region_open(w->s, "old", 0, &region), -TARN_ENOREGION);
	assert_int_equal(tarn_region_open_async(w->s, "old", 0, &region, NULL, NULL), 0);
	assert_int_equal(pick_up(w).status, -TARN_ENOREGION);
}

/* All members' by rising id; with one away, those of the others and then that there may be more. */
static void test_list(void **state)
{
	struct world *w = *state;
	struct tarn_region_info info = {.size = sizeof(info)};
	static const char *const names[] = {"a1", "a2", "b1", "c1", "c2"};
	uint64_t cursor = 0;

	strcpy(w->nodes[0].names[1], "a1");
	strcpy(w->nodes[0].names[2], "a2");
	strcpy(w->nodes[1].names[5], "b1");
	strcpy(w->nodes[2].names[0], "c1");
	strcpy(w->nodes[2].names[7], "c2");
	for (unsigned i = 0; i < 5; i++) {
		if (i % 2) {
			assert_int_equal(tarn_region_list(w->s, &cursor, &info), 1);
		} else {
			assert_int_equal(tarn_region_list_async(w->s, &cursor, &info, NULL, NULL),
					 0);
			assert_int_equal(pick_up(w).status, 1);
		}
		assert_string_equal(info.name, names[i]);
		assert_int_equal(info.member[0], names[i][0]);
		assert_int_equal(cursor, info.id);
	}
	assert_int_equal(tarn_region_list(w->s, &cursor, &info), 0);
	leave(w, 1);
	cursor = 0;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(tarn_region_list(w->s, &cursor, &info), 1);
		assert_string_equal(info.name, names[i < 2 ? i : i + 1]);
	}
	assert_int_equal(tarn_region_list(w->s, &cursor, &info), -TARN_EUNAVAILABLE);
	assert_non_null(strstr(tarn_last_error_text(), "member b"));
}

/* ---- tests: members that go ------------------------------------------------------------------ */

static void test_away(void **state)
{
	struct world *w = *state;
	unsigned at = rank(w, "x", 0);
	const char text[] = {'m', 'e', 'm', 'b', 'e', 'r', ' ', (char)('a' + (int)at), 0};
	struct tarn_region *region, *other;
	uint64_t word;

	assert_int_equal(tarn_region_create(w->s, "x", 4096, 0), 0);
	strcpy(w->nodes[rank(w, "x", 1)].names[0], "y");
	region = open_region(w, "x");
	other = open_region(w, "y");
	leave(w, at);
	assert_int_equal(tarn_session_set_timeout(w->s, 100), 0);
	assert_int_equal(tarn_region_read(region, 0, &word, 8), -TARN_EUNAVAILABLE);
	assert_non_null(strstr(tarn_last_error_text(), text));
	assert_non_null(strstr(tarn_last_error_text(), "region x"));
	/* there may be one there */
	assert_int_equal(tarn_region_destroy(w->s, "z"), -TARN_EUNAVAILABLE);
	assert_non_null(strstr(tarn_last_error_text(), text));
	assert_int_equal(tarn_region_create(w->s, "x", 4096, 0), -TARN_EUNAVAILABLE);
	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, NULL, NULL), 0);
	while (tarn_session_wait(w->s, 1000) == 0)
		;
	assert_int_not_equal(pick_up(w).status, 0);
	expect_at(w, other, rank(w, "x", 1));
	come_back(w, at);
	assert_int_equal(tarn_session_set_timeout(w->s, 10000), 0);
	expect_at(w, region, at);
	/* a call that was begun while it was away goes on when it is there */
	leave(w, at);
	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, NULL, NULL), 0);
	assert_int_equal(tarn_session_wait(w->s, 20), 0);
	come_back(w, at);
	assert_int_equal(tarn_session_wait(w->s, 10000), 1);
	assert_int_equal(pick_up(w).status, 0);
	assert_int_equal(tarn_region_close(region), 0);
	assert_int_equal(tarn_region_close(other), 0);
}

/* Its member leaves the map: what is open stays so, until it is closed. */
static void test_retired(void **state)
{
	struct world *w = *state;
	struct tarn_session_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	struct cluster_map *less = new_map(2);
	struct tarn_region *region;
	uint64_t word;

	strcpy(w->nodes[2].names[0], "x");
	region = open_region(w, "x@c");
	less->epoch = 6;
	cluster_map_free(w->map);
	w->map = less;
	assert_true(cluster_newer(w->s, clock_now_ns() + 1000000000, false));
	assert_int_equal(w->s->cluster->map->member_count, 2);
	expect_at(w, region, 2);
	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, NULL, NULL), 0);
	assert_int_equal(tarn_region_close(region), -TARN_EBUSY);
	assert_int_equal(pick_up(w).status, 0);
	assert_int_equal(tarn_session_get_stats(w->s, &before), 0);
	assert_int_equal(tarn_region_close(region), 0);
	assert_int_equal(tarn_session_process(w->s), 0);
	assert_true(LIST_EMPTY(&w->s->cluster->retired));
	assert_int_equal(tarn_session_get_stats(w->s, &after), 0);
	assert_true(after.posts >= before.posts);
	assert_int_equal(tarn_region_open(w->s, "x@c", 0, &region), -EINVAL);
}

/* The session is closed with calls in every state, and a region that nobody has closed. */
static void test_closed(void **state)
{
	struct world *w = *state;
	struct tarn_region *region, *never = NULL;
	struct tarn_region_info info = {.size = sizeof(info)};
	static uint64_t word;

	strcpy(w->nodes[0].names[0], "x");
	region = open_region(w, "x@a");
	w->nodes[0].fake.silent = UINT32_MAX;
	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, NULL, NULL), 0);
	assert_int_equal(tarn_region_open_async(w->s, "x", 0, &never, NULL, NULL), 0);
	assert_int_equal(tarn_region_stat_async(w->s, "nothing", &info, NULL, NULL), 0);
	tarn_session_poll(w->s, NULL, 0, NULL);
	leave(w, 0);
	assert_null(never);
}

/* ---- tests: memory --------------------------------------------------------------------------- */

static unsigned registered(const struct world *w)
{
	struct tarn_session *m = NULL;
	const struct registration *r;
	unsigned count = 0;

	while ((m = cluster_session_next(w->s->cluster, m)) != NULL)
		LIST_FOREACH (r, &m->registrations, link)
			count++;
	return count;
}

/* Each member's session has it, also one that is made later; none has it behind the end. */
static void test_buffers(void **state)
{
	struct world *w = *state;
	static uint8_t memory[4096];
	struct tarn_region *region;
	struct tarn_buffer *buffer;
	void *own;

	strcpy(w->nodes[0].names[0], "x");
	strcpy(w->nodes[2].names[0], "y");
	region = open_region(w, "x@a");
	assert_int_equal(registered(w), 0);
	assert_int_equal(tarn_buffer_register(w->s, memory, sizeof(memory), 0, &buffer), 0);
	assert_int_equal(registered(w), 1);
	assert_int_equal(tarn_region_close(open_region(w, "y@c")), 0);
	assert_int_equal(registered(w), 2);
	assert_int_equal(tarn_alloc(w->s, 100, &own), 0);
	assert_int_equal(registered(w), 4);
	assert_int_equal(tarn_region_read_async(region, 0, own, 100, NULL, NULL), 0);
	assert_int_equal(tarn_free(w->s, own), -TARN_EBUSY);
	assert_int_equal(tarn_buffer_deregister(buffer), 0);
	assert_int_equal(registered(w), 2);
	assert_int_equal(pick_up(w).status, 0);
	assert_memory_equal(own, w->nodes[0].pool.base, 100);
	assert_int_equal(tarn_free(w->s, own), 0);
	assert_int_equal(registered(w), 0);
	/* what is left is the session's */
	assert_int_equal(tarn_alloc(w->s, 100, &own), 0);
	assert_int_equal(tarn_buffer_register(w->s, memory, sizeof(memory), 0, &buffer), 0);
	assert_int_equal(tarn_region_close(region), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_create, setup, teardown),
		cmocka_unit_test_setup_teardown(test_elsewhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_list, setup, teardown),
		cmocka_unit_test_setup_teardown(test_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_retired, setup, teardown),
		cmocka_unit_test_setup_teardown(test_closed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_buffers, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
