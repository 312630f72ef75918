/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/rpc.c: pages, counters, client ids; and what is refused. */
#include <tarn/tarn.h>

#include "clock.h"
#include "keeper.h"
#include "pool-fixture.h"
#include "rpc.h"

#define CLASS LAYOUT_CLASS_COUNTER

struct counter {
	struct fixture f;
	struct rpc_client client;
	uint64_t slot_offset, block_offset, value_offset, word;
	struct layout_block block;
};

static void counter_open(struct counter *c)
{
	static const char key[8] = "visits";
	const struct layout_geometry *g;
	struct pool_client who = {.pid = 1};
	uint32_t slot;

	fixture_open(&c->f, "");
	g = &c->f.pool->geometry;
	assert_int_equal(pool_client_add(c->f.pool, &who, &slot), 0);
	rpc_client_init(&c->client, slot, false);
	c->slot_offset = layout_page_offset(g, 0) + 64 + 8 * 3;
	c->block_offset = layout_page_offset(g, 9) + 5 * layout_class_bytes(CLASS);
	c->block = (struct layout_block){.generation = 0x5001,
					 .key_length = 6,
					 .kind = LAYOUT_KIND_COUNTER,
					 .class = CLASS,
					 .value_length = 8};
	c->word = layout_slot_make(LAYOUT_SLOT_COMMITTED, 0x55, CLASS, 0x001, c->block_offset);
	c->value_offset = c->block_offset + layout_value_offset(6);
	self_write(c->f.pool, c->block_offset, &c->block, sizeof(c->block));
	self_write(c->f.pool, c->block_offset + sizeof(c->block), key, sizeof(key));
	self_store(c->f.pool, c->value_offset, 40);
	self_store(c->f.pool, c->slot_offset, c->word);
}

static struct wire_rpc_reply call(struct counter *c, const struct wire_rpc *rpc)
{
	uint8_t bytes[WIRE_RPC_BYTES], answer[WIRE_RPC_REPLY_BYTES];
	struct wire_rpc_reply reply;

	wire_rpc_encode(rpc, bytes);
	assert_int_equal(rpc_handle(c->f.pool, &c->client, bytes, sizeof(bytes), answer), 0);
	assert_int_equal(wire_rpc_reply_decode(answer, sizeof(answer), &reply), 0);
	assert_int_equal(reply.tag, rpc->tag);
	assert_int_equal(reply.type, rpc->type);
	return reply;
}

static struct wire_rpc_reply add(struct counter *c, uint64_t slot_offset, uint64_t word,
				 int64_t delta)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_ADD,
			       .tag = 77,
			       .slot_offset = slot_offset,
			       .slot_word = word,
			       .delta = delta};

	return call(c, &rpc);
}

static void test_add(void **state)
{
	struct wire_rpc_reply reply;
	struct counter c;

	(void)state;
	counter_open(&c);
	reply = add(&c, c.slot_offset, c.word, 2);
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.value, 42);
	assert_int_equal(add(&c, c.slot_offset, c.word, -43).value, -1);
	assert_int_equal(self_load(c.f.pool, c.value_offset), UINT64_MAX);
	self_store(c.f.pool, c.value_offset, INT64_MAX);
	assert_true(add(&c, c.slot_offset, c.word, 1).value == INT64_MIN); /* wraps */
	/* another word in the slot */
	assert_int_equal(add(&c, c.slot_offset, c.word + (1 << 17), 1).status, -TARN_ESTAMP);
	self_store(c.f.pool, c.slot_offset, layout_slot_with_state(c.word, LAYOUT_SLOT_FROZEN));
	assert_int_equal(add(&c, c.slot_offset, c.word, 1).status, -TARN_ESTAMP);
	assert_int_equal(
		add(&c, c.slot_offset, layout_slot_with_state(c.word, LAYOUT_SLOT_FROZEN), 1)
			.status,
		-TARN_EPROTO);
	assert_true(self_load(c.f.pool, c.value_offset) == (uint64_t)INT64_MIN);
	fixture_close(&c.f);
}

static void test_add_places(void **state)
{
	const struct layout_geometry *g;
	struct counter c;

	(void)state;
	counter_open(&c);
	g = &c.f.pool->geometry;
	{
		const uint64_t bad[] = {
			0,
			8,
			LAYOUT_EPOCH_OFFSET,
			g->page_table_offset,
			g->pages_offset - 8,
			g->pool_bytes,
			UINT64_MAX - 7,
			c.slot_offset + 1,
			c.slot_offset + 4,
			layout_page_offset(g, 0),      /* a header */
			layout_page_offset(g, 0) + 64, /* a header */
			layout_page_offset(g, 0) + (uint64_t)g->groups * LAYOUT_GROUP_BYTES +
				8,                    /* behind the last group */
			layout_page_offset(g, 9) + 8, /* no index page */
			layout_page_offset(g, g->npages) + 8,
		};

		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			assert_int_equal(add(&c, bad[i], c.word, 1).status, -TARN_EPROTO);
	}
	assert_int_equal(self_load(c.f.pool, c.value_offset), 40);
	fixture_close(&c.f);
}

/* What a hostile client could put into a slot and its block. */
static void test_add_garbage(void **state)
{
	const struct layout_geometry *g;
	struct layout_block block;
	struct counter c;

	(void)state;
	counter_open(&c);
	g = &c.f.pool->geometry;
	{
		const struct {
			uint64_t offset;
			uint32_t class;
			int status;
		} words[] = {
			{0, CLASS, -TARN_EPROTO},
			{g->page_table_offset, CLASS, -TARN_EPROTO},
			{1ull << 40, CLASS, -TARN_EPROTO},
			{c.block_offset + 64, CLASS, -TARN_EPROTO},
			{c.block_offset, 3, -TARN_EPROTO},
			{layout_page_offset(g, 9), 3, -TARN_ETYPE},
			{layout_page_offset(g, 9) + 2 * 87360 + 64, LAYOUT_CLASS_COUNTER_LARGE,
			 -TARN_EPROTO},
			{layout_page_offset(g, 9) + 3 * 87360, LAYOUT_CLASS_COUNTER_LARGE,
			 -TARN_EPROTO}, /* no room up to the page's end */
		};

		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
			uint64_t word = layout_slot_make(LAYOUT_SLOT_COMMITTED, 0, words[i].class,
							 1, words[i].offset);

			self_store(c.f.pool, c.slot_offset, word);
			assert_int_equal(add(&c, c.slot_offset, word, 1).status, words[i].status);
		}
	}
	self_store(c.f.pool, c.slot_offset, c.word);
#define WITH(field, value, code)                                                  \
	do {                                                                      \
		block = c.block;                                                  \
		block.field = value;                                              \
		self_write(c.f.pool, c.block_offset, &block, sizeof(block));      \
		assert_int_equal(add(&c, c.slot_offset, c.word, 1).status, code); \
	} while (0)
	WITH(kind, LAYOUT_KIND_VALUE, -TARN_ETYPE);
	WITH(kind, 0, -TARN_ETYPE);
	WITH(class, 5, -TARN_ECORRUPT);
	WITH(generation, 0x5002, -TARN_ECORRUPT);
	WITH(key_length, 0, -TARN_ECORRUPT);
	WITH(key_length, 73, -TARN_ECORRUPT); /* 48 + 80 + 8 > 128 */
	WITH(key_length, 65535, -TARN_ECORRUPT);
	WITH(value_length, 9, -TARN_ECORRUPT);
	WITH(value_length, UINT64_MAX, -TARN_ECORRUPT);
	WITH(user_flags, 1, 0);
	fixture_close(&c.f);
}

static void test_page(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PAGE, .tag = 1, .class = 4};
	struct wire_rpc_reply reply;
	struct counter c;

	(void)state;
	counter_open(&c);
	reply = call(&c, &rpc);
	assert_int_equal(reply.status, 0);
	assert_int_equal(layout_page_state(pool_load_page_word(c.f.pool, reply.number)),
			 LAYOUT_PAGE_FREE);
	for (uint32_t page = 1; page < c.f.pool->geometry.npages; page++)
		fixture_page(c.f.pool, page, LAYOUT_PAGE_SLAB, 4, 3);
	assert_int_equal(call(&c, &rpc).status, -TARN_EPOOLFULL);
	/* Full pages with a block that has aged are turned out on request. */
	fixture_blocks(c.f.pool, 11, 4, 1, layout_class_blocks(4), LAYOUT_FREE_IN_USE);
	fixture_page(c.f.pool, 11, LAYOUT_PAGE_FULL, 4, 0);
	for (int i = 0; i < 200; i++) { /* "full" is believed for a moment; a look takes some pages only */
		usleep(20000);
		reply = call(&c, &rpc);
		if (reply.status == 0)
			break;
	}
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.number, 11);
	fixture_close(&c.f);
}

/* Blocks that rest are not lost: "full", but ask again; and after G the page is named. */
static void test_resting(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PAGE, .tag = 1, .class = 4};
	struct wire_rpc_reply reply;
	struct counter c;
	bool asked_again = false;

	(void)state;
	counter_open(&c);
	for (uint32_t page = 1; page < c.f.pool->geometry.npages; page++)
		fixture_page(c.f.pool, page, LAYOUT_PAGE_SLAB, 4, 3);
	fixture_blocks(c.f.pool, 12, 5, 0, layout_class_blocks(5), LAYOUT_FREE_RETIRED);
	/* of another class, but all of it rests: it will be free for any class */
	fixture_page(c.f.pool, 12, LAYOUT_PAGE_FULL, 5, 0);
	for (int i = 0; i < 1000; i++) {
		usleep(10000);
		keeper_step(c.f.pool->keeper, clock_now_ns());
		reply = call(&c, &rpc);
		if (reply.status == 0)
			break;
		assert_int_equal(reply.status, -TARN_EPOOLFULL);
		asked_again = asked_again || reply.number == 1;
	}
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.number, 12);
	assert_true(asked_again);
	fixture_close(&c.f);
}

static void test_number(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_NUMBER, .tag = 1};
	uint32_t last = 1;
	struct counter c;
	int i;

	(void)state;
	counter_open(&c);
	for (i = 0; i < 100; i++) {
		struct wire_rpc_reply reply = call(&c, &rpc);

		if (reply.status < 0)
			break;
		assert_int_equal(reply.number, last + 1);
		last = reply.number;
		assert_int_equal(c.f.pool->clients[c.client.slot].client_id, last);
	}
	assert_in_range(i, 10, 50); /* not without end */
	fixture_close(&c.f);
}

static void test_read_only(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING, .tag = 1, .class = 3};
	struct counter c;

	(void)state;
	counter_open(&c);
	c.client.read_only = true;
	assert_int_equal(call(&c, &rpc).status, 0);
	for (rpc.type = WIRE_RPC_PAGE; rpc.type <= WIRE_RPC_LAST; rpc.type++)
		assert_int_equal(call(&c, &rpc).status, -TARN_EREADONLY);
	fixture_close(&c.f);
}

static void test_malformed(void **state)
{
	uint8_t bytes[WIRE_RPC_MAX_BYTES] = {WIRE_RPC_PING}, answer[WIRE_RPC_REPLY_BYTES];
	struct counter c;

	(void)state;
	counter_open(&c);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(rpc_handle(c.f.pool, &c.client, bytes, length, answer),
				 length == WIRE_RPC_BYTES ? 0 : -TARN_EPROTO);
	bytes[0] = 99;
	assert_int_equal(rpc_handle(c.f.pool, &c.client, bytes, WIRE_RPC_BYTES, answer),
			 -TARN_EPROTO);
	fixture_close(&c.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),         cmocka_unit_test(test_add_places),
		cmocka_unit_test(test_add_garbage), cmocka_unit_test(test_page),
		cmocka_unit_test(test_resting),
		cmocka_unit_test(test_number),      cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
