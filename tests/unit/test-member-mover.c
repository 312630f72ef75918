/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/member-mover.c at the target: what a mover that asks READY is answered, and which connections count as movers' by that. The
 * messages go through daemon/rpc.c, the answers rest on the real handover*.c.
 */
#include <event2/event.h>

#include <tarn/tarn.h>

#include "pool-fixture.h"
#include "rpc.h"

#include "member-target.h"

struct world {
	struct fixture f;
	struct event_base *base;
	struct member_target target;
	struct rpc_client client;
	uint32_t slot;
	unsigned cuts;
};

/* The transport ends the connection; its end is told later. */
static void on_cut(void *peer, const char *why)
{
	struct world *w = peer;

	assert_non_null(strstr(why, "attempt"));
	w->cuts++;
}

static void connect_mover(struct world *w)
{
	struct pool_client who = {.pid = 1, .cut = on_cut, .peer = w};

	assert_int_equal(pool_client_add(w->f.pool, &who, &w->slot), 0);
	rpc_client_init(&w->client, w->slot, false);
}

static void open_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	fixture_open(&w->f, "");
	w->f.pool->geometry.shards = TARGET_SHARDS;
	w->base = event_base_new();
	target_open(&w->target, w->f.pool, &w->f.log, w->base);
	connect_mover(w);
}

static void close_world(struct world *w)
{
	target_close(&w->target);
	rpc_client_end(&w->client);
	event_base_free(w->base);
	fixture_close(&w->f);
}

/* Of member 1's attempt 11 to hand over the shard that is to come. */
static struct wire_rpc question(void)
{
	return (struct wire_rpc){.type = WIRE_RPC_READY,
				 .tag = 3,
				 .class = TARGET_COMING,
				 .slot_offset = TARGET_SINCE,
				 .slot_word = 11,
				 .delta = 2 << 16 | 1};
}

static struct wire_rpc_reply ask(struct world *w, const struct wire_rpc *rpc)
{
	uint8_t bytes[WIRE_RPC_BYTES];
	struct wire_rpc_reply reply;
	struct rpc_answer answer;

	wire_rpc_encode(rpc, bytes);
	assert_int_equal(rpc_handle(w->f.pool, &w->client, bytes, sizeof(bytes), &answer), 0);
	assert_int_equal(wire_rpc_reply_decode(answer.bytes, answer.length, &reply), 0);
	assert_int_equal(reply.type, WIRE_RPC_READY);
	assert_int_equal(reply.tag, 3);
	assert_int_equal(reply.status, 0);
	return reply;
}

/* "Not yet" tells nothing else, and makes nobody a mover. */
static void not_yet(struct world *w, const struct wire_rpc *rpc)
{
	struct wire_rpc_reply reply = ask(w, rpc);

	assert_int_equal(reply.number, WIRE_READY_NOT_YET);
	assert_int_equal(reply.value, 0);
	assert_int_equal(member_cut(&w->target.member, 1, UINT64_MAX), 0);
	assert_int_equal(w->cuts, 0);
}

static void ready(struct world *w, const struct wire_rpc *rpc)
{
	struct wire_rpc_reply reply = ask(w, rpc);

	assert_int_equal(reply.number, WIRE_READY_NOW);
	assert_int_equal(reply.value, TARGET_BOOT_ID);
}

static void test_ready(void **state)
{
	struct wire_rpc rpc = question();
	struct world w;

	(void)state;
	open_world(&w);
	/* what it has of the shard is emptied first */
	not_yet(&w, &rpc);
	target_run(&w.target);
	ready(&w, &rpc);
	ready(&w, &rpc); /* the answer may have been lost */
	assert_true(handover_admits(w.target.member.handover, 1, 11));
	close_world(&w);
}

/* Each part of the question has to be that of the move. */
static void test_another_question(void **state)
{
	struct wire_rpc good = question(), rpc;
	struct world w;

	(void)state;
	open_world(&w);
	target_run(&w.target);
	rpc = good;
	rpc.slot_offset = TARGET_SINCE - 1; /* an attempt of before */
	not_yet(&w, &rpc);
	rpc.slot_offset = TARGET_SINCE + 1; /* one that it has not heard of */
	not_yet(&w, &rpc);
	rpc.slot_offset = 0;
	not_yet(&w, &rpc);
	rpc = good;
	rpc.delta = 2 << 16 | 3; /* not who has the shard */
	not_yet(&w, &rpc);
	rpc.delta = 2 << 16 | 0;
	not_yet(&w, &rpc);
	/* no move of it, another one's, none that there is */
	rpc = good;
	rpc.slot_offset = 1;
	rpc.class = TARGET_COMING + 1;
	not_yet(&w, &rpc);
	rpc.class = TARGET_SHARDS - 1;
	not_yet(&w, &rpc);
	rpc.class = TARGET_SHARDS;
	not_yet(&w, &rpc);
	rpc.class = UINT32_MAX;
	not_yet(&w, &rpc);
	ready(&w, &good);
	close_world(&w);
}

/* An address may be another member's by now: it says who it is, or it would be asked for ever. */
static void test_another_member(void **state)
{
	static const uint16_t asked[] = {0, 1, 3, UINT16_MAX};
	struct wire_rpc rpc = question();
	struct world w;

	(void)state;
	open_world(&w);
	target_run(&w.target);
	for (unsigned i = 0; i < 8; i++) {
		struct wire_rpc_reply reply;

		/* also without a lease */
		w.target.member.held = i < 4;
		rpc.delta = (int64_t)asked[i % 4] << 16 | 1;
		reply = ask(&w, &rpc);
		assert_int_equal(reply.number, WIRE_READY_ANOTHER);
		assert_int_equal(reply.value, 2);
	}
	assert_int_equal(member_cut(&w.target.member, 1, UINT64_MAX), 0);
	assert_int_equal(w.cuts, 0);
	close_world(&w);
}

static void test_no_lease(void **state)
{
	struct wire_rpc rpc = question();
	struct handover *handover;
	struct world w;

	(void)state;
	open_world(&w);
	target_run(&w.target);
	w.target.member.held = false;
	not_yet(&w, &rpc);
	w.target.member.held = true;
	/* it is just beginning, or ending */
	handover = w.target.member.handover;
	w.target.member.handover = NULL;
	not_yet(&w, &rpc);
	w.target.member.handover = handover;
	handover_fence(handover);
	not_yet(&w, &rpc);
	target_map(&w.target);
	target_run(&w.target);
	ready(&w, &rpc);
	close_world(&w);
}

/* Given up and begun anew: the earlier attempt's connection is ended first, and until that is so nobody is told "ready". */
static void test_new_attempt(void **state)
{
	struct wire_rpc rpc = question();
	struct world w;

	(void)state;
	open_world(&w);
	target_run(&w.target);
	ready(&w, &rpc);
	w.target.since[TARGET_COMING] = w.target.map.epoch + 1;
	target_map(&w.target);
	target_run(&w.target);
	assert_int_equal(w.cuts, 1);
	rpc.slot_offset = w.target.map.epoch;
	rpc.slot_word = 12;
	assert_int_equal(ask(&w, &rpc).number, WIRE_READY_NOT_YET);
	pool_client_end(w.f.pool, w.slot);
	target_run(&w.target);
	assert_false(handover_admits(w.target.member.handover, 1, 11));
	rpc_client_end(&w.client);
	connect_mover(&w);
	ready(&w, &rpc);
	assert_int_equal(w.cuts, 1);
	/* cut: its own member's, up to its number */
	assert_int_equal(member_cut(&w.target.member, 3, 12), 0);
	assert_int_equal(member_cut(&w.target.member, 1, 11), 0);
	assert_int_equal(w.cuts, 1);
	assert_int_equal(member_cut(&w.target.member, 1, 12), -EAGAIN);
	assert_int_equal(member_cut(&w.target.member, 1, 12), -EAGAIN);
	assert_int_equal(w.cuts, 2);
	close_world(&w);
}

/* Who may only read is no mover; and of a message that is cut or has something behind it nothing is taken. */
static void test_refused(void **state)
{
	struct wire_rpc rpc = question();
	uint8_t bytes[WIRE_RPC_BYTES + 1] = {0};
	struct wire_rpc_reply reply;
	struct rpc_answer answer;
	struct world w;

	(void)state;
	open_world(&w);
	target_run(&w.target);
	wire_rpc_encode(&rpc, bytes);
	for (size_t size = 0; size <= sizeof(bytes); size++)
		if (size != WIRE_RPC_BYTES)
			assert_int_equal(rpc_handle(w.f.pool, &w.client, bytes, size, &answer), -TARN_EPROTO);
	w.client.read_only = true;
	assert_int_equal(rpc_handle(w.f.pool, &w.client, bytes, WIRE_RPC_BYTES, &answer), 0);
	assert_int_equal(wire_rpc_reply_decode(answer.bytes, answer.length, &reply), 0);
	assert_int_equal(reply.status, -TARN_EREADONLY);
	assert_int_equal(member_cut(&w.target.member, 1, UINT64_MAX), 0);
	assert_int_equal(w.cuts, 0);
	w.client.read_only = false;
	ready(&w, &rpc);
	close_world(&w);
}

/* A pool whose shards are not handed over, with a fixed map or of a cache, is never ready. */
static void test_nothing_moves(void **state)
{
	struct wire_rpc rpc = question();
	struct world w;

	(void)state;
	open_world(&w);
	target_run(&w.target);
	member_mover_end(&w.target.member);
	not_yet(&w, &rpc);
	w.target.member.fixed = true;
	assert_int_equal(member_mover_begin(&w.target.member), 0);
	not_yet(&w, &rpc);
	w.target.member.fixed = false;
	w.target.map.cache = true;
	assert_int_equal(member_mover_begin(&w.target.member), 0);
	not_yet(&w, &rpc);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ready),	   cmocka_unit_test(test_another_question),
		cmocka_unit_test(test_another_member), cmocka_unit_test(test_no_lease),
		cmocka_unit_test(test_new_attempt),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_nothing_moves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
