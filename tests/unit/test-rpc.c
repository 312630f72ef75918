/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/rpc.c: pages, counters, client ids; and what is refused. */
#include <tarn/tarn.h>

#include "clock.h"
#include "fabric.h"
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
	uint8_t bytes[WIRE_RPC_BYTES];
	struct rpc_answer answer;
	struct wire_rpc_reply reply;

	wire_rpc_encode(rpc, bytes);
	assert_int_equal(rpc_handle(c->f.pool, &c->client, bytes, sizeof(bytes), &answer), 0);
	assert_int_equal(wire_rpc_reply_decode(answer.bytes, answer.length, &reply), 0);
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
	for (int i = 0; i < 200;
	     i++) { /* "full" is believed for a moment; a look takes some pages only */
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
	c.f.pool->clients[3].state = LAYOUT_CLIENT_LIVE;
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

/*
 * What was deleted since the last walk: "full" is said with the number of the walk behind which it is the
 * last word, and by then the page is known to rest.
 */
static void test_full_is_sure(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PAGE, .tag = 1, .class = 4};
	struct wire_rpc_reply reply;
	struct counter c;
	uint64_t sure;

	(void)state;
	counter_open(&c);
	c.f.pool->clients[3].state = LAYOUT_CLIENT_LIVE;
	for (uint32_t page = 1; page < c.f.pool->geometry.npages; page++)
		fixture_page(c.f.pool, page, LAYOUT_PAGE_SLAB, 4, 3);
	for (int i = 0; i < 1000 && keeper_passes(c.f.pool->keeper) < 3; i++) {
		usleep(10000);
		keeper_step(c.f.pool->keeper, clock_now_ns());
	}
	call(&c, &rpc); /* it was asked a moment ago: no look at once */
	fixture_blocks(c.f.pool, 12, 5, 0, layout_class_blocks(5), LAYOUT_FREE_RETIRED);
	fixture_page(c.f.pool, 12, LAYOUT_PAGE_FULL, 5, 0);
	reply = call(&c, &rpc);
	assert_int_equal(reply.status, -TARN_EPOOLFULL);
	sure = reply.number == 1 ? 0 : (uint64_t)reply.value;
	assert_true(reply.number == 1 || sure > reply.length);
	for (int i = 0; i < 1000; i++) {
		usleep(10000);
		keeper_step(c.f.pool->keeper, clock_now_ns());
		reply = call(&c, &rpc);
		if (reply.status == 0)
			break;
		assert_true(reply.number == 1 || reply.length < sure);
	}
	assert_int_equal(reply.number, 12);
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
	for (rpc.type = WIRE_RPC_PAGE; rpc.type <= WIRE_RPC_GROW; rpc.type++)
		if (rpc.type != WIRE_RPC_REGION)
			assert_int_equal(call(&c, &rpc).status, -TARN_EREADONLY);
	fixture_close(&c.f);
}

static struct wire_rpc_reply atomic(struct counter *c, uint8_t type, uint64_t offset,
				    uint64_t compare, uint64_t operand)
{
	struct wire_rpc rpc = {.type = type,
			       .tag = 5,
			       .slot_offset = offset,
			       .slot_word = compare,
			       .delta = (int64_t)operand};

	return call(c, &rpc);
}

static void test_atomics(void **state)
{
	const struct layout_geometry *g;
	struct wire_rpc_reply reply;
	uint64_t word, cursor;
	struct counter c;

	(void)state;
	counter_open(&c);
	g = &c.f.pool->geometry;
	word = layout_page_word_offset(g, 3);
	self_store(c.f.pool, word, UINT64_MAX - 1);
	reply = atomic(&c, WIRE_RPC_CAS, word, UINT64_MAX - 1, UINT64_MAX);
	assert_true(reply.status == 0 && reply.value == -2);
	reply = atomic(&c, WIRE_RPC_CAS, word, UINT64_MAX - 1,
		       7); /* fails, and says what is there */
	assert_true(reply.status == 0 && reply.value == -1);
	assert_true(self_load(c.f.pool, word) == UINT64_MAX);
	reply = atomic(&c, WIRE_RPC_FAA, word, 0, 3); /* wraps */
	assert_true(reply.status == 0 && reply.value == -1 && self_load(c.f.pool, word) == 2);
	cursor = self_load(c.f.pool, LAYOUT_CURSOR_OFFSET);
	reply = atomic(&c, WIRE_RPC_FAA, LAYOUT_CURSOR_OFFSET, 0, 1);
	assert_true(reply.status == 0 && (uint64_t)reply.value == cursor &&
		    self_load(c.f.pool, LAYOUT_CURSOR_OFFSET) == cursor + 1);
	reply = atomic(&c, WIRE_RPC_CAS, g->pool_bytes - 8, 0, 9); /* the last word */
	assert_true(reply.status == 0 && self_load(c.f.pool, g->pool_bytes - 8) == 9);
	assert_int_equal(atomic(&c, WIRE_RPC_CAS, LAYOUT_SUPERBLOCK_BYTES, 0, 0).status, 0);
	fixture_close(&c.f);
}

static void test_atomics_places(void **state)
{
	struct layout_superblock before, after;
	struct counter c;

	(void)state;
	counter_open(&c);
	self_read(c.f.pool, 0, &before, sizeof(before));
	{
		const uint64_t bytes = c.f.pool->geometry.pool_bytes;
		const uint64_t bad[] = {0,
					8,
					LAYOUT_EPOCH_OFFSET,
					LAYOUT_GLOBAL_DEPTH_OFFSET,
					LAYOUT_CURSOR_OFFSET - 8,
					LAYOUT_CURSOR_OFFSET + 8,
					LAYOUT_CURSOR_OFFSET + 4,
					LAYOUT_SUPERBLOCK_BYTES - 8,
					LAYOUT_SUPERBLOCK_BYTES + 1,
					bytes,
					bytes - 7,
					bytes - 4,
					UINT64_MAX,
					UINT64_MAX - 7};

		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			assert_int_equal(atomic(&c, WIRE_RPC_FAA, bad[i], 0, 1).status,
					 -TARN_EPROTO);
			assert_int_equal(atomic(&c, WIRE_RPC_CAS, bad[i], 0, 1).status,
					 -TARN_EPROTO);
		}
	}
	self_read(c.f.pool, 0, &after, sizeof(after));
	assert_memory_equal(&before, &after, sizeof(before));
	fixture_close(&c.f);
}

static void test_region(void **state)
{
	static const struct wire_region regions[] = {
		{.address = UINT64_MAX - 4095, .length = 1 << 20, .rkey = 0xfedcba98},
		{.address = 4096, .length = 7 << 20, .rkey = 2}};
	struct wire_rpc rpc = {.type = WIRE_RPC_REGION, .tag = 3};
	struct wire_rpc_reply reply;
	struct counter c;

	(void)state;
	counter_open(&c);
	assert_int_equal(call(&c, &rpc).status, -TARN_EPROTO); /* shared memory has none */
	c.client.regions = regions;
	c.client.region_count = 2;
	c.client.read_only = true;
	reply = call(&c, &rpc);
	assert_true(reply.status == 0 && reply.number == 0xfedcba98 && reply.length == 1 << 20 &&
		    (uint64_t)reply.value == UINT64_MAX - 4095);
	rpc.class = 1;
	assert_int_equal(call(&c, &rpc).number, 2);
	rpc.class = 2;
	reply = call(&c, &rpc);
	assert_true(reply.status == -TARN_EPROTO && reply.number == 0 && reply.value == 0);
	rpc.class = UINT32_MAX;
	assert_int_equal(call(&c, &rpc).status, -TARN_EPROTO);
	assert_int_equal(c.f.pool->counters.rpcs[WIRE_RPC_REGION], 5);
	fixture_close(&c.f);
}

/* ---- a nic domain ---- */

/* A device that does what it is told, later, or not at all. */
struct device {
	struct fabric_endpoint ep;
	struct pool *pool;
	struct fabric_completion completion;
	unsigned int posts, delay; /* how often poll finds nothing */
	bool posted, dead, silent;
};

static int device_post(struct fabric_endpoint *ep, const struct fabric_request *r, unsigned count,
		       void *cookie)
{
	struct device *d = (struct device *)(void *)ep;

	d->posts++;
	d->posted = true;
	d->completion = (struct fabric_completion){.cookie = cookie,
						   .status = d->dead ? -TARN_ESESSION : 0};
	for (; count && !d->dead; r++, count--) {
		uint64_t *word = (uint64_t *)(void *)(d->pool->memory.base + r->offset);

		assert_int_equal(r->length, 8);
		*(uint64_t *)r->local = *word;
		if (r->opcode == FABRIC_CAS && *word == r->compare)
			*word = r->operand;
		else if (r->opcode == FABRIC_FAA)
			*word += r->operand;
	}
	return 0;
}

static int device_poll(struct fabric_endpoint *ep, struct fabric_completion *ret, unsigned max)
{
	struct device *d = (struct device *)(void *)ep;

	assert_true(max >= 1);
	if (!d->posted || d->silent || (d->delay && d->delay--))
		return 0;
	d->posted = false;
	*ret = d->completion;
	return 1;
}

static int device_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	(void)ep;
	usleep((useconds_t)(timeout_ns / 1000));
	return 0;
}

static const struct fabric_ops device_ops = {
	.name = "test", .post = device_post, .poll = device_poll, .wait = device_wait};

static void device_open(struct counter *c, struct device *device)
{
	counter_open(c);
	c->f.pool->geometry.atomics = LAYOUT_ATOMICS_NIC;
	*device = (struct device){.ep.ops = &device_ops, .pool = c->f.pool};
	c->f.pool->self = &device->ep;
}

static void test_nic(void **state)
{
	struct device d;
	struct counter c;
	uint64_t word;

	(void)state;
	device_open(&c, &d);
	word = layout_page_word_offset(&c.f.pool->geometry, 3);
	/* what a client does itself is refused */
	assert_int_equal(atomic(&c, WIRE_RPC_CAS, word, 0, 1).status, -TARN_EPROTO);
	assert_int_equal(atomic(&c, WIRE_RPC_FAA, LAYOUT_CURSOR_OFFSET, 0, 1).status, -TARN_EPROTO);
	assert_int_equal(add(&c, c.slot_offset, c.word, 1).status, -TARN_EPROTO);
	assert_int_equal(d.posts, 0);
	/* what the daemon does goes through the device, however long that takes */
	d.delay = 100;
	assert_true(pool_cas_page_word(c.f.pool, 3, self_load(c.f.pool, word), 77 << 24));
	assert_int_equal(self_cas(c.f.pool, word, 1, 2), 77 << 24);
	assert_int_equal(self_faa(c.f.pool, word, 1), 77 << 24);
	assert_int_equal(self_load(c.f.pool, word), (77 << 24) + 1);
	assert_int_equal(self_flush(c.f.pool), 0);
	assert_int_equal(d.posts, 4);
	/* without a connection nobody else is there */
	c.f.pool->self = NULL;
	assert_int_equal(self_cas(c.f.pool, word, (77 << 24) + 1, 5), (77 << 24) + 1);
	assert_int_equal(self_load(c.f.pool, word), 5);
	assert_int_equal(self_flush(c.f.pool), 0);
	assert_int_equal(d.posts, 4);
	fixture_close(&c.f);
}

/* Several CAS are one post; each says what it has found. */
static void test_nic_many(void **state)
{
	struct self_change changes[SELF_CHANGES_MAX];
	struct device d;
	struct counter c;
	uint64_t word;

	(void)state;
	device_open(&c, &d);
	word = layout_page_word_offset(&c.f.pool->geometry, 3);
	self_store(c.f.pool, word, 100);
	assert_true(self_is_far(c.f.pool));
	for (unsigned i = 0; i < SELF_CHANGES_MAX; i++)
		changes[i] = (struct self_change){
			.offset = word, .compare = 100 + i, .value = 101 + i};
	changes[SELF_CHANGES_MAX - 1].compare = 7;
	self_cas_many(c.f.pool, changes, SELF_CHANGES_MAX);
	assert_int_equal(d.posts, 1);
	for (unsigned i = 0; i < SELF_CHANGES_MAX; i++)
		assert_int_equal(changes[i].seen, 100 + i);
	assert_int_equal(self_load(c.f.pool, word), 100 + SELF_CHANGES_MAX - 1);
	self_cas_many(c.f.pool, changes, 0);
	assert_int_equal(d.posts, 1);
	/* the same by the CPU, when there is no connection */
	c.f.pool->self = NULL;
	assert_false(self_is_far(c.f.pool));
	changes[0] = (struct self_change){.offset = word, .compare = 99 + SELF_CHANGES_MAX, .value = 5};
	changes[1] = (struct self_change){.offset = word, .compare = 6, .value = 7};
	self_cas_many(c.f.pool, changes, 2);
	assert_int_equal(changes[0].seen, 99 + SELF_CHANGES_MAX);
	assert_int_equal(changes[1].seen, 5);
	assert_int_equal(self_load(c.f.pool, word), 5);
	/* a lost one: none has been seen to succeed, and none is tried again */
	c.f.pool->self = &d.ep;
	log_init(&c.f.log, -1, LOG_LEVEL_ERROR);
	d.dead = true;
	for (unsigned again = 0; again < 2; again++) {
		changes[0].compare = changes[1].compare = 5;
		self_cas_many(c.f.pool, changes, 2);
		assert_int_not_equal(changes[0].seen, 5);
		assert_int_not_equal(changes[1].seen, 5);
	}
	assert_true(c.f.pool->self_lost);
	assert_int_equal(d.posts, 2);
	assert_int_equal(self_load(c.f.pool, word), 5);
	c.f.pool->self = NULL;
	c.f.pool->self_lost = false;
	fixture_close(&c.f);
}

static void test_nic_lost(void **state)
{
	struct device d;
	struct counter c;
	uint64_t word;

	(void)state;
	for (int silent = 0; silent < 2; silent++) {
		device_open(&c, &d);
		log_init(&c.f.log, -1, LOG_LEVEL_ERROR);
		d.silent = silent;
		d.dead = !silent;
		word = layout_page_word_offset(&c.f.pool->geometry, 3);
		self_store(c.f.pool, word, 6);
		if (silent)
			assert_int_equal(self_flush(c.f.pool), -TARN_ESESSION);
		else
			assert_int_not_equal(self_cas(c.f.pool, word, 6, 7), 6);
		assert_true(c.f.pool->self_lost);
		/* nothing is done, neither by the device nor by the CPU, until somebody has looked */
		assert_int_equal(self_flush(c.f.pool), -TARN_ESESSION);
		assert_int_not_equal(self_cas(c.f.pool, word, 6, 7), 6);
		assert_false(pool_cas_page_word(c.f.pool, 3, 6, 7));
		c.f.pool->self = NULL;
		assert_int_not_equal(self_cas(c.f.pool, word, 6, 7), 6);
		assert_int_equal(self_load(c.f.pool, word), 6);
		assert_int_equal(d.posts, 1);
		c.f.pool->self_lost = false;
		assert_int_equal(self_cas(c.f.pool, word, 6, 7), 6);
		fixture_close(&c.f);
	}
}

static void test_malformed(void **state)
{
	uint8_t bytes[WIRE_RPC_MAX_BYTES] = {WIRE_RPC_PING};
	struct rpc_answer answer;
	struct counter c;

	(void)state;
	counter_open(&c);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(rpc_handle(c.f.pool, &c.client, bytes, length, &answer),
				 length == WIRE_RPC_BYTES ? 0 : -TARN_EPROTO);
	bytes[0] = 99;
	assert_int_equal(rpc_handle(c.f.pool, &c.client, bytes, WIRE_RPC_BYTES, &answer),
			 -TARN_EPROTO);
	fixture_close(&c.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_add_places),
		cmocka_unit_test(test_add_garbage),
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_resting),
		cmocka_unit_test(test_full_is_sure),
		cmocka_unit_test(test_number),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_region),
		cmocka_unit_test(test_atomics_places),
		cmocka_unit_test(test_nic),
		cmocka_unit_test(test_nic_many),
		cmocka_unit_test(test_nic_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
