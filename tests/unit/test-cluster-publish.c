/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/cluster-publish.h: what a client is told of the cluster's map, and what it finds in the pool; and who gets a pool of a
 * cluster.
 */
#include <stdlib.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "cluster-publish.h"
#include "cluster-wire.h"
#include "handshake.h"
#include "pool-fixture.h"
#include "rpc.h"

#define SHARDS 64u
#define ROOM   8192u /* for both maps */

struct world {
	struct fixture f;
	struct rpc_client client;
	struct cluster_map map;
	struct cluster_member member;
	struct cluster_address address;
	uint16_t owners[SHARDS];
	uint64_t since[SHARDS], taken[SHARDS];
	struct cluster_move moves[1];
};

static void open_world(struct world *w)
{
	struct pool_client who = {.pid = 1};
	uint32_t slot;

	memset(w, 0, sizeof(*w));
	fixture_open(&w->f, "");
	/* a page that nobody uses */
	w->f.pool->geometry.shards = SHARDS;
	w->f.pool->geometry.map_offset = layout_page_offset(&w->f.pool->geometry, 20);
	w->f.pool->geometry.map_bytes = ROOM;
	assert_int_equal(pool_client_add(w->f.pool, &who, &slot), 0);
	rpc_client_init(&w->client, slot, true);
	w->address = (struct cluster_address){.shm = true, .text = "/run/a.sock"};
	w->member = (struct cluster_member){.name = "a",
					    .number = 7,
					    .weight = 100,
					    .address_count = 1,
					    .addresses = &w->address};
	w->map = (struct cluster_map){.cluster = "c1",
				      .pool = "main",
				      .epoch = 5,
				      .seed = 1,
				      .shards = SHARDS,
				      .member_count = 1,
				      .members = &w->member,
				      .owners = w->owners,
				      .since = w->since,
				      .taken = w->taken,
				      .moves = w->moves};
	for (unsigned i = 0; i < SHARDS; i++)
		w->since[i] = 1;
}

static struct wire_rpc_reply send_rpc(struct world *w, const struct wire_rpc *rpc)
{
	uint8_t bytes[WIRE_RPC_BYTES];
	struct wire_rpc_reply reply;
	struct rpc_answer answer;

	wire_rpc_encode(rpc, bytes);
	assert_int_equal(rpc_handle(w->f.pool, &w->client, bytes, sizeof(bytes), &answer), 0);
	assert_int_equal(wire_rpc_reply_decode(answer.bytes, answer.length, &reply), 0);
	assert_int_equal(reply.type, rpc->type);
	assert_int_equal(reply.tag, rpc->tag);
	return reply;
}

static struct wire_rpc_reply ask(struct world *w, uint32_t what)
{
	const struct wire_rpc rpc = {.type = WIRE_RPC_MAP, .tag = 3, .class = what};

	return send_rpc(w, &rpc);
}

/* What a client would read there. */
static struct cluster_map *read_at(struct world *w, const struct wire_rpc_reply *where)
{
	uint64_t words[ROOM / 8] = {0};
	struct cluster_map *map = NULL;

	assert_true(where->number <= sizeof(words));
	self_read(w->f.pool, (uint64_t)where->value, words, (where->number + 7) & ~7u);
	assert_int_equal(cluster_wire_checksum(words, where->number), where->length);
	if (cluster_wire_decode(words, where->number, &map) < 0)
		fail_msg("%s", err_text());
	return map;
}

static void test_published(void **state)
{
	struct wire_rpc_reply how_new, first, second, third;
	struct cluster_map *map;
	struct world w;

	(void)state;
	open_world(&w);
	assert_int_equal(ask(&w, 0).status, -TARN_ENOTFOUND);
	cluster_publish_begin(w.f.pool, "c1", 7);
	assert_int_equal(ask(&w, 0).status, -TARN_ENOTFOUND);
	assert_int_equal(ask(&w, 1).status, -TARN_ENOTFOUND);
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, CLUSTER_PUBLISH_ALWAYS), 0);
	how_new = ask(&w, 0);
	assert_int_equal(how_new.status, 0);
	assert_int_equal(how_new.value, 5);
	assert_int_equal(how_new.number, 7);
	assert_int_equal(how_new.length, 0);
	first = ask(&w, 1);
	map = read_at(&w, &first);
	assert_int_equal(map->epoch, 5);
	cluster_map_free(map);

	/* the one of before stays whole until the next but one */
	w.map.epoch = 6;
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, CLUSTER_PUBLISH_ALWAYS), 0);
	second = ask(&w, 1);
	assert_int_not_equal(first.value, second.value);
	map = read_at(&w, &first);
	assert_int_equal(map->epoch, 5);
	cluster_map_free(map);
	map = read_at(&w, &second);
	assert_int_equal(map->epoch, 6);
	cluster_map_free(map);
	w.map.epoch = 7;
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, CLUSTER_PUBLISH_ALWAYS), 0);
	third = ask(&w, 1);
	assert_int_equal(first.value, third.value);
	assert_int_not_equal(first.length, third.length);
	fixture_close(&w.f);
}

static void test_age(void **state)
{
	const uint64_t second = 1000000000;
	uint64_t now;
	struct world w;

	(void)state;
	open_world(&w);
	now = clock_boottime_ns();
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, now - second), 0);
	/* however long this took */
	assert_true(ask(&w, 0).length >= second);
	assert_true(ask(&w, 0).length <= clock_boottime_ns() - now + second);
	cluster_publish_confirm(w.f.pool, now);
	assert_true(ask(&w, 0).length <= clock_boottime_ns() - now);
	cluster_publish_withdraw(w.f.pool);
	assert_int_equal(ask(&w, 0).status, -TARN_ENOTFOUND);
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, now), 0);
	assert_int_equal(ask(&w, 0).status, 0);
	fixture_close(&w.f);
}

/* As if member-mover.c were there. */
static void say_ready(void *arg, uint32_t slot, const struct wire_rpc *rpc, struct wire_rpc_reply *reply)
{
	const struct world *w = arg;

	assert_int_equal(slot, w->client.slot);
	reply->number = rpc->class == 9 && rpc->slot_offset == 5 && rpc->slot_word == 11 && rpc->delta == (2 << 16 | 1);
	reply->value = 77;
}

/* Who may write asks, and a member that hands nothing over is never ready. */
static void test_ready(void **state)
{
	const struct wire_rpc rpc = {
		.type = WIRE_RPC_READY, .tag = 3, .class = 9, .slot_offset = 5, .slot_word = 11, .delta = 2 << 16 | 1};
	struct wire_rpc_reply reply;
	struct world w;

	(void)state;
	open_world(&w);
	assert_int_equal(send_rpc(&w, &rpc).status, -TARN_EREADONLY);
	w.client.read_only = false;
	reply = send_rpc(&w, &rpc);
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.number, 0);
	w.f.pool->ready = say_ready;
	w.f.pool->ready_arg = &w;
	reply = send_rpc(&w, &rpc);
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.number, 1);
	assert_int_equal(reply.value, 77);
	w.f.pool->geometry.shards = 0;
	assert_int_equal(send_rpc(&w, &rpc).status, -TARN_EPROTO);
	fixture_close(&w.f);
}

static void test_refused(void **state)
{
	struct cluster_address many[8];
	struct cluster_member members[4];
	struct world w;

	(void)state;
	open_world(&w);
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, 1), 0);
	assert_int_equal(ask(&w, 2).status, -TARN_EPROTO);
	/* more than the pool has room for */
	for (unsigned i = 0; i < 8; i++) {
		memset(many[i].text, 'a', CLUSTER_ADDRESS_MAX);
		many[i].text[CLUSTER_ADDRESS_MAX] = 0;
		many[i].shm = true;
	}
	for (unsigned i = 0; i < 4; i++)
		members[i] = (struct cluster_member){.name = {(char)('a' + i)},
						     .number = (uint16_t)(i + 1),
						     .address_count = 8,
						     .addresses = many};
	w.map.members = members;
	w.map.member_count = 4;
	w.map.epoch = 9;
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, 1), -E2BIG);
	assert_non_null(strstr(err_text(), "c1"));
	assert_int_equal(ask(&w, 0).value, 5);
	w.f.pool->geometry.shards = 0;
	assert_int_equal(ask(&w, 0).status, -TARN_EPROTO);
	fixture_close(&w.f);
}

static void shake(struct world *w, uint16_t flags, struct handshake *ret)
{
	const struct wire_request request = {.version_min = 1,
					     .version_max = 1,
					     .flags = flags,
					     .pool = wire_pool_hash("main"),
					     .nonce = 1};
	struct daemon daemon = {.log = &w->f.log, .pools = &w->f.pool, .pool_count = 1};
	struct pool_client who = {.pid = 2};
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(&request, bytes);
	handshake(&daemon, bytes, sizeof(bytes), &who, ret);
	ret->daemon = NULL;
	if (ret->pool)
		handshake_accept(
			ret, &(struct wire_region){.length = ret->pool->geometry.pool_bytes}, 1);
}

/* Who does not know of shards would take another member's keys for missing. */
static void test_handshake(void **state)
{
	struct wire_reject reject;
	struct wire_reply reply;
	struct handshake got;
	struct world w;

	(void)state;
	open_world(&w);
	cluster_publish_begin(w.f.pool, "c1", 7);
	shake(&w, 0, &got);
	assert_null(got.pool);
	assert_int_equal(wire_reject_decode(got.answer, got.answer_bytes, &reject), 0);
	assert_int_equal(reject.reason, WIRE_REASON_CLUSTER);
	assert_int_equal(reject.retry_after_ms, 0);
	assert_non_null(strstr(wire_reason_text(reject.reason), "tarn://HOST,/POOL"));
	assert_int_equal(w.f.pool->counters.handshakes_refused[WIRE_REASON_CLUSTER], 1);
	shake(&w, WIRE_REQUEST_CLUSTER, &got);
	assert_non_null(got.pool);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_int_equal(reply.cluster, cluster_hash("c1"));
	assert_int_equal(reply.map_epoch, 0);
	assert_int_equal(cluster_publish(w.f.pool, &w.map, 7, 1), 0);
	shake(&w, WIRE_REQUEST_CLUSTER | WIRE_REQUEST_READONLY, &got);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_int_equal(reply.map_epoch, 5);
	/* a pool of no cluster is given to both, and says that it is of none */
	w.f.pool->geometry.shards = 0;
	memset(&w.f.pool->published, 0, sizeof(w.f.pool->published));
	shake(&w, WIRE_REQUEST_CLUSTER, &got);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_int_equal(reply.cluster, 0);
	fixture_close(&w.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_age),
		cmocka_unit_test(test_ready),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_handshake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
