/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-reconnect.c - what a session does when its connection breaks: which calls are made again,
 * which are ambiguous, when it tries to connect and for how long
 *
 * The endpoint here executes nothing before it is polled, as a network would, and breaks at a post
 * of the test's choice: before it is sent, sent without effect, or with effect but without an
 * answer. At the end a stub of a daemon on a real socket, for connect.c's part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cache.h"
#include "clock.h"
#include "fixture.h"
#include "tarn/sync.h"
#include "wire.h"

#define MIB  (1ull << 20)
#define MSEC 1000000ull

/* ---- an endpoint with latency, which breaks -------------------------------------------------- */

enum how { UNSENT, SENT, DONE, HOWS };

/* Where it breaks: at the post with this number, of those that carry such a request. */
struct break_at {
	enum how how;
	unsigned number;  /* from 1; 0: never */
	unsigned opcodes; /* bit: enum fabric_opcode; 0: any */
};

struct queued {
	struct fabric_request requests[FABRIC_POST_MAX];
	uint8_t inlined[FABRIC_POST_MAX][FABRIC_INLINE_BYTES];
	unsigned count;
	void *cookie;
};

#define QUEUE 64u

/* What the test sets, and what all connections of a session share. */
struct fake {
	struct session_connector base;
	struct fixture *pool;
	struct break_at at;
	unsigned posts, commits; /* posts that count for `at`; CASes and FAAs executed */
	unsigned opened, closed;
	unsigned tries;
	uint64_t try_ns[64], try_limit_ns[64];
	/* what the next tries answer: `fail` of them so, then they work */
	unsigned fail;
	int code;
	enum session_again again;
	uint64_t wait_ns;
	uint32_t features;
	bool rpc_breaks, throws_out;
	bool breaks_after; /* behind the next completion */
	unsigned silent;   /* so many polls find nothing */
	uint64_t *vanishes; /* this word becomes 0 between an FAA and the READ behind it */
	atomic_int hold;    /* 1: the next check takes long; 2: it is at it */
	struct fake_ep *last;
};

struct fake_ep {
	struct fabric_endpoint ep;
	struct fake *fake;
	struct fabric_endpoint *memory;
	struct queued queue[QUEUE];
	unsigned head, count;
	bool broken;
	int event;
	uint8_t rpc_message[WIRE_RPC_MAX_BYTES];
	void *rpc_cookie;
	uint8_t *rpc_reply;
	struct fabric_completion last; /* of the post at which it broke */
	bool have_last;
};

static struct fake_ep *fake_of(struct fabric_endpoint *ep)
{
	return (struct fake_ep *)ep;
}

static void execute(struct fake_ep *e)
{
	struct queued *q = &e->queue[e->head];
	unsigned i;

	for (i = 0; i < q->count; i++) {
		if (q->requests[i].flags & FABRIC_INLINE)
			q->requests[i].local = q->inlined[i];
		q->requests[i].space = 0; /* a region is the pool's first bytes here */
		e->fake->commits += q->requests[i].opcode >= FABRIC_CAS;
		if (e->fake->vanishes && q->requests[i].opcode == FABRIC_FAA) {
			word_store_relaxed(e->fake->vanishes, 0);
			e->fake->vanishes = NULL;
		}
	}
	assert_int_equal(fabric_post(e->memory, q->requests, q->count, NULL), 1);
	e->head = (e->head + 1) % QUEUE;
	e->count--;
}

static bool breaks_here(struct fake_ep *e, const struct fabric_request *requests, unsigned count)
{
	struct fake *f = e->fake;
	bool counts = f->at.opcodes == 0;
	unsigned i;

	for (i = 0; i < count; i++)
		counts |= f->at.opcodes >> requests[i].opcode & 1;
	f->posts += counts;
	return counts && f->at.number && f->posts == f->at.number;
}

static int fake_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		     unsigned count, void *cookie)
{
	struct fake_ep *e = fake_of(ep);
	bool breaks = !e->broken && cookie && breaks_here(e, requests, count);
	struct queued *q;
	unsigned i;

	e->broken |= breaks && e->fake->at.how == UNSENT;
	if (e->broken)
		return -TARN_ESESSION;
	if (e->count == QUEUE)
		execute(e);
	q = &e->queue[(e->head + e->count++) % QUEUE];
	memcpy(q->requests, requests, count * sizeof(*requests));
	for (i = 0; i < count; i++)
		if (requests[i].flags & FABRIC_INLINE)
			memcpy(q->inlined[i], requests[i].local, requests[i].length);
	q->count = count;
	q->cookie = cookie;
	if (!breaks)
		return 0;
	while (e->count > (e->fake->at.how == SENT ? 1 : 0))
		execute(e);
	e->count = 0;
	e->broken = e->have_last = true;
	e->last = (struct fabric_completion){.cookie = cookie, .status = -TARN_ESESSION};
	return 0;
}

static int fake_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		    size_t capacity, void *cookie)
{
	struct fake_ep *e = fake_of(ep);

	if (e->broken)
		return -TARN_ESESSION;
	assert_true(capacity >= WIRE_RPC_REPLY_BYTES && bytes <= sizeof(e->rpc_message));
	memcpy(e->rpc_message, message, bytes);
	if (e->fake->rpc_breaks) {
		e->fake->rpc_breaks = false;
		e->broken = e->have_last = true;
		e->last = (struct fabric_completion){.cookie = cookie, .status = -TARN_ESESSION};
		return 0;
	}
	e->rpc_cookie = cookie;
	e->rpc_reply = reply;
	return 0;
}

static void fake_rpc_cancel(struct fabric_endpoint *ep)
{
	fake_of(ep)->rpc_cookie = NULL;
}

/* A region of 4 KiB without registered memory, whatever is asked; else a ping. Its length. */
static uint32_t fake_answer(struct fake_ep *e)
{
	struct wire_rpc_reply reply = {.type = WIRE_RPC_PING};
	struct wire_region_request request;
	struct wire_region_reply region = {.id = 7, .bytes = 4096};

	if (e->rpc_message[0] != WIRE_RPC_REGION_CALL) {
		wire_rpc_reply_encode(&reply, e->rpc_reply);
		return WIRE_RPC_REPLY_BYTES;
	}
	assert_int_equal(wire_region_request_decode(e->rpc_message, WIRE_REGION_BYTES, &request), 0);
	region.call = request.call;
	region.handle = request.handle;
	wire_region_reply_encode(&region, e->rpc_reply);
	return WIRE_REGION_BYTES;
}

static int fake_poll(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
		     unsigned max)
{
	struct fake_ep *e = fake_of(ep);

	assert_true(max >= 1);
	if (e->have_last) {
		e->have_last = false;
		*ret_completions = e->last;
		return 1;
	}
	if (e->broken)
		return -TARN_ESESSION;
	if (e->fake->silent) {
		e->fake->silent--;
		return 0;
	}
	while (e->count) {
		void *cookie = e->queue[e->head].cookie;

		execute(e);
		*ret_completions = (struct fabric_completion){.cookie = cookie};
		if (!cookie)
			continue;
		e->broken |= e->fake->breaks_after;
		e->fake->breaks_after = false;
		return 1;
	}
	if (!e->rpc_cookie)
		return 0;
	*ret_completions =
		(struct fabric_completion){.cookie = e->rpc_cookie, .length = fake_answer(e)};
	e->rpc_cookie = NULL;
	e->broken |= e->fake->breaks_after;
	e->fake->breaks_after = false;
	return 1;
}

static int fake_space_add(struct fabric_endpoint *ep, unsigned space,
			  const struct wire_region *pieces, unsigned count, uint64_t bytes,
			  bool read_only)
{
	(void)ep;
	(void)pieces;
	assert_true(space == 1 && count == 0 && bytes == 4096 && !read_only);
	return 0;
}

static void fake_space_remove(struct fabric_endpoint *ep, unsigned space)
{
	(void)ep;
	(void)space;
}

static bool fake_space_alive(struct fabric_endpoint *ep, unsigned space)
{
	(void)ep;
	(void)space;
	return true;
}

static int fake_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	(void)ep;
	(void)timeout_ns;
	return 0;
}

static int fake_check(struct fabric_endpoint *ep)
{
	atomic_int *hold = &fake_of(ep)->fake->hold;
	uint64_t begin = clock_now_ns();

	if (atomic_load(hold) == 1)
		atomic_store(hold, 2);
	while (atomic_load(hold) == 2 && clock_now_ns() - begin < 5000 * MSEC)
		clock_sleep_ns(MSEC);
	return fake_of(ep)->broken ? -TARN_ESESSION : 0;
}

static int fake_fd(struct fabric_endpoint *ep)
{
	return fake_of(ep)->event;
}

static uint64_t fake_now(struct fabric_endpoint *ep)
{
	(void)ep;
	return clock_now_ns();
}

static void fake_close(struct fabric_endpoint *ep)
{
	struct fake_ep *e = fake_of(ep);

	e->fake->closed++;
	if (e->fake->last == e)
		e->fake->last = NULL;
	e->memory->ops->close(e->memory);
	close(e->event);
	free(e);
}

static const struct fabric_ops fake_ops = {
	.name = "fake",
	.post = fake_post,
	.rpc = fake_rpc,
	.rpc_cancel = fake_rpc_cancel,
	.space_add = fake_space_add,
	.space_remove = fake_space_remove,
	.space_alive = fake_space_alive,
	.poll = fake_poll,
	.wait = fake_wait,
	.check = fake_check,
	.fd = fake_fd,
	.now = fake_now,
	.close = fake_close,
};

static int fake_connect(struct session_connector *base, uint64_t timeout_ns,
			struct session_link *ret_link, enum session_again *ret_again,
			uint64_t *ret_wait_ns)
{
	struct fake *f = (struct fake *)base;
	struct fake_ep *e;

	assert_true(timeout_ns > 0);
	if (f->tries < 64) {
		f->try_ns[f->tries] = clock_now_ns();
		f->try_limit_ns[f->tries] = timeout_ns;
	}
	f->tries++;
	if (f->fail) {
		f->fail--;
		*ret_again = f->again;
		*ret_wait_ns = f->wait_ns;
		return err_set(f->code, "the fake fails");
	}
	/* the place of the old connection is given back first */
	assert_int_equal(f->opened, f->closed);
	f->opened++;
	e = calloc(1, sizeof(*e));
	e->ep = (struct fabric_endpoint){
		.ops = &fake_ops, .pool_bytes = f->pool->bytes, .features = f->features};
	e->fake = f;
	e->broken = f->throws_out;
	e->event = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(fabric_shm_attach(f->pool->base, f->pool->bytes, 0, &e->memory), 0);
	f->last = e;
	*ret_link = (struct session_link){
		.ep = &e->ep,
		.geometry = f->pool->geometry,
		.identity = {.client_id = f->pool->clients + 1, .client_slot = f->pool->clients},
	};
	f->pool->clients = (f->pool->clients + 1) % 16;
	return 0;
}

static void fake_free(struct session_connector *base)
{
	(void)base;
}

/* ---- sessions on it -------------------------------------------------------------------------- */

struct test {
	struct fixture pool, other; /* other: after a restart of the daemon */
	struct fake fake;
	struct tarn_session *s;
};

static void open_session(struct test *t, uint32_t flags)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct session_link link;

	options.flags = TARN_NO_THREAD | flags;
	options.timeout_ms = 1000;
	options.cache_bytes = 1u << 16;
	t->fake.base.connect = fake_connect;
	t->fake.base.free = fake_free;
	t->fake.pool = &t->pool;
	assert_int_equal(session_connect(&t->fake.base, clock_now_ns() + 1000 * MSEC, &link), 0);
	assert_int_equal(session_create(link.ep, &link.geometry, &link.identity, &options, &t->s),
			 0);
	t->s->connector = &t->fake.base;
}

static int setup(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	struct layout_plan plan = fixture_plan(32 * MIB), other = fixture_plan(16 * MIB);

	*state = t;
	other.boot_id = 3;
	other.max_value_bytes = 1000;
	if (fixture_create(&t->pool, &plan) < 0 || fixture_create(&t->other, &other) < 0)
		return -1;
	open_session(t, 0);
	return 0;
}

static int teardown(void **state)
{
	struct test *t = *state;

	tarn_session_close(t->s);
	assert_int_equal(t->fake.opened, t->fake.closed);
	fixture_destroy(&t->pool);
	fixture_destroy(&t->other);
	free(t);
	return 0;
}

static void lose(struct test *t)
{
	t->fake.last->broken = true;
	t->s->lost = true;
}

static void arm(struct test *t, enum how how, unsigned number, unsigned opcodes)
{
	t->fake.at = (struct break_at){how, number, opcodes};
	t->fake.posts = 0;
}

static bool broke(const struct test *t)
{
	return t->fake.at.number && t->fake.posts >= t->fake.at.number;
}

static int put(struct test *t, const char *key, const char *value, uint64_t *ret_stamp)
{
	return tarn_put(t->s, key, strlen(key), value, strlen(value), NULL, ret_stamp);
}

/* What is stored under a key; "" for nothing. By a session of its own. */
static struct tarn_item stored(struct fixture *pool, const char *key, char *value, size_t bytes)
{
	struct tarn_session *s = fixture_session(pool, TARN_NO_THREAD | TARN_READONLY);
	struct tarn_item item = TARN_ITEM_INIT;
	int ret = tarn_get(s, key, strlen(key), value, bytes - 1, &item);

	assert_true(ret == 0 || ret == -TARN_ENOTFOUND);
	value[ret == 0 ? item.value_bytes : 0] = 0;
	session_free(s);
	return item;
}

static void expect(struct test *t, const char *key, const char *value)
{
	char there[64];

	stored(t->fake.pool, key, there, sizeof(there));
	assert_string_equal(there, value);
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Wherever a get is when the connection breaks, it goes on over the next one. */
static void test_get(void **state)
{
	struct test *t = *state;
	char buffer[64];
	uint32_t client;
	unsigned n, broken = 0;
	int how;

	assert_int_equal(put(t, "k", "value", NULL), 0);
	for (how = UNSENT; how < HOWS; how++) {
		for (n = 1; n <= 4; n++) {
			uint64_t reconnects = t->s->stats.reconnects;
			struct tarn_item item = TARN_ITEM_INIT;

			client = t->s->stats.client_id;
			/* n 3 and 4: without the location, so that there are more posts */
			if (n > 2)
				cache_clear(t->s->cache);
			arm(t, (enum how)how, n > 2 ? n - 2 : n, 0);
			memset(buffer, 0, sizeof(buffer));
			assert_int_equal(tarn_get(t->s, "k", 1, buffer, sizeof(buffer), &item), 0);
			assert_string_equal(buffer, "value");
			if (broke(t)) {
				broken++;
				assert_int_equal(t->s->stats.reconnects, reconnects + 1);
				assert_int_not_equal(t->s->stats.client_id, client);
			}
		}
	}
	assert_true(broken >= 9);
	/* nothing there is an answer, too */
	arm(t, SENT, 1, 0);
	assert_int_equal(tarn_exists(t->s, "nothing", 7, NULL), -TARN_ENOTFOUND);
	assert_true(broke(t));
	/* lost before the call begins, and a ping that is lost on its way */
	arm(t, SENT, 0, 0);
	lose(t);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), 0);
	t->fake.rpc_breaks = true;
	assert_int_equal(tarn_session_ping(t->s, NULL), 0);
	assert_false(t->fake.rpc_breaks);
}

static void test_get_large(void **state)
{
	struct test *t = *state;
	uint8_t *value = malloc(6 * MIB), *back = malloc(6 * MIB);
	unsigned n;

	for (n = 0; n < 6 * MIB; n++)
		value[n] = (uint8_t)(n * 2654435761u >> 24);
	assert_int_equal(tarn_put(t->s, "large", 5, value, 6 * MIB, NULL, NULL), 0);
	for (n = 1; n < 6; n++) {
		arm(t, SENT, n, 0);
		memset(back, 0, 6 * MIB);
		assert_int_equal(tarn_get(t->s, "large", 5, back, 6 * MIB, NULL), 0);
		assert_memory_equal(back, value, 6 * MIB);
	}
	free(value);
	free(back);
}

/* ---- writes ---------------------------------------------------------------------------------- */

#define ATOMICS (1u << FABRIC_CAS | 1u << FABRIC_FAA)

/*
 * A put that breaks at its n-th post: either it worked, and is there; or it is ambiguous, and what
 * is there is the old or the new value, as the stamp tells. Whether it took effect is never left to
 * chance where the test knows: SENT means no, DONE means yes.
 */
static void put_breaking(struct test *t, const char *key, const char *old, const char *new,
			 unsigned n, enum how how, unsigned *ambiguous)
{
	uint64_t stamp = 0;
	char there[64];
	struct tarn_item item;
	int ret;

	arm(t, how, n, 0);
	ret = put(t, key, new, &stamp);
	if (ret < 0)
		assert_non_null(strstr(tarn_last_error_text(), "may or may not"));
	item = stored(&t->pool, key, there, sizeof(there));
	if (ret == 0) {
		assert_string_equal(there, new);
		assert_true(item.stamp == stamp);
	} else {
		assert_int_equal(ret, -TARN_EAMBIGUOUS);
		assert_true(broke(t) && how != UNSENT);
		assert_string_equal(there, how == DONE ? new : old);
		assert_int_equal(item.stamp == stamp, how == DONE);
		++*ambiguous;
	}
	arm(t, SENT, 0, 0);
	/* the session is as good as new */
	assert_int_equal(put(t, key, new, NULL), 0);
	assert_int_equal(tarn_exists(t->s, key, strlen(key), NULL), 0);
}

static void test_put(void **state)
{
	struct test *t = *state;
	unsigned n, ambiguous = 0;
	char key[16], old[16] = "", new[16];
	int how, cached;

	/* updates, by a cached location and without one */
	assert_int_equal(put(t, "u", old, NULL), 0);
	for (cached = 0; cached < 2; cached++) {
		for (how = UNSENT; how < HOWS; how++) {
			for (n = 1; n <= 8; n++) {
				snprintf(new, sizeof(new), "%d%d%u", cached, how, n);
				if (!cached)
					cache_clear(t->s->cache);
				put_breaking(t, "u", old, new, n, (enum how)how, &ambiguous);
				strcpy(old, new);
			}
		}
	}
	assert_true(ambiguous >= 4);
	/* inserts */
	ambiguous = 0;
	for (how = UNSENT; how < HOWS; how++) {
		for (n = 1; n <= 9; n++) {
			snprintf(key, sizeof(key), "i%d%u", how, n);
			put_breaking(t, key, "", "new", n, (enum how)how, &ambiguous);
		}
	}
	/* the second CAS of an insert is the one that decides; the first is seen by nobody */
	for (how = UNSENT; how < HOWS; how++) {
		snprintf(key, sizeof(key), "j%d", how);
		assert_int_equal(put(t, "page", "x", NULL), 0);
		arm(t, (enum how)how, 2, ATOMICS);
		assert_int_equal(put(t, key, "new", NULL), how == UNSENT ? 0 : -TARN_EAMBIGUOUS);
		expect(t, key, how == SENT ? "" : "new");
		snprintf(key, sizeof(key), "k%d", how);
		assert_int_equal(put(t, "page", "x", NULL), 0);
		arm(t, (enum how)how, 1, ATOMICS);
		assert_int_equal(put(t, key, "new", NULL), 0);
		assert_true(broke(t));
		expect(t, key, "new");
	}
	/* nothing is replayed: the one CAS that decides was executed once */
	assert_int_equal(put(t, "u", "a", NULL), 0);
	t->fake.commits = 0;
	arm(t, DONE, 1, ATOMICS);
	assert_int_equal(put(t, "u", "b", NULL), -TARN_EAMBIGUOUS);
	assert_int_equal(t->fake.commits, 1);
	/* and what could not be sent is made again, exactly once */
	t->fake.commits = 0;
	arm(t, UNSENT, 1, ATOMICS);
	assert_int_equal(tarn_delete(t->s, "u", 1), 0);
	assert_int_equal(t->fake.commits, 1);
	expect(t, "u", "");
}

static void test_delete(void **state)
{
	struct test *t = *state;
	int how;

	for (how = UNSENT; how < HOWS; how++) {
		arm(t, SENT, 0, 0);
		assert_int_equal(put(t, "d", "x", NULL), 0);
		arm(t, (enum how)how, 1, ATOMICS);
		assert_int_equal(tarn_delete(t->s, "d", 1), how == UNSENT ? 0 : -TARN_EAMBIGUOUS);
		expect(t, "d", how == SENT ? "x" : "");
	}
	/* a condition does not become true by being tried again */
	arm(t, SENT, 1, 0);
	assert_int_equal(tarn_delete(t->s, "d", 1), -TARN_ENOTFOUND);
}

static void test_add(void **state)
{
	struct test *t = *state;
	int64_t value = 0, expected = 1;
	int how;

	t->fake.features = t->s->ep->features = FABRIC_COUNTER_FAA;
	assert_int_equal(tarn_add(t->s, "n", 1, 1, &value), 0);
	for (how = UNSENT; how < HOWS; how++) {
		arm(t, (enum how)how, 1, 1u << FABRIC_FAA);
		assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL),
				 how == UNSENT ? 0 : -TARN_EAMBIGUOUS);
		expected += how != SENT;
		assert_int_equal(tarn_get(t->s, "n", 1, &value, 8, NULL), 0);
		assert_int_equal(value, expected);
	}
	/* by a message to the daemon */
	t->fake.features = t->s->ep->features = 0;
	t->fake.rpc_breaks = true;
	assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL), -TARN_EAMBIGUOUS);
}

/*
 * An add whose FAA may have hit a counter that is being replaced: if then the connection breaks, the
 * call does not say that nothing was changed, nor is it made again.
 */
static void test_add_unsure(void **state)
{
	struct test *t = *state;
	int64_t value;
	int how;

	t->fake.features = t->s->ep->features = FABRIC_COUNTER_FAA;
	assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL), 0);
	for (how = UNSENT; how < HOWS; how++) {
		uint64_t *slot = fixture_word(&t->pool, fixture_slot(&t->pool, "n", 1)),
			 word = *slot;

		/* buckets, block, FAA; buckets again; the epoch is known */
		assert_int_equal(tarn_session_process(t->s), 0);
		t->fake.vanishes = slot;
		arm(t, (enum how)how, 4, 0);
		assert_int_equal(tarn_add(t->s, "n", 1, 1, NULL), -TARN_EAMBIGUOUS);
		assert_true(broke(t));
		assert_null(t->fake.vanishes);
		*slot = word;
	}
	arm(t, SENT, 0, 0);
	assert_int_equal(tarn_add(t->s, "n", 1, 1, &value), 0);
	assert_int_equal(value, 5);
}

/* ---- what is kept and what is not ------------------------------------------------------------ */

static void test_same_pool(void **state)
{
	struct test *t = *state;
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct layout_client *slot;
	struct alloc_counts counts;
	uint64_t trips;
	char byte;

	assert_int_equal(put(t, "k", "v", NULL), 0);
	assert_int_equal(tarn_session_process(t->s), 0);
	slot = (struct layout_client *)fixture_word(
		&t->pool, layout_client_offset(&t->pool.geometry, t->s->identity.client_slot));
	assert_int_equal(slot->telemetry.puts, 1);
	assert_int_equal(slot->quiescence, 1);
	lose(t);
	assert_int_equal(tarn_get(t->s, "k", 1, &byte, 1, NULL), 0);
	/* pages of the old connection are the sweep's */
	alloc_count(t->s->alloc, &counts);
	assert_int_equal(counts.pages + counts.waiting + counts.held, 0);
	/* directory and locations are known as before */
	trips = t->s->stats.round_trips;
	assert_int_equal(tarn_get(t->s, "k", 1, &byte, 1, NULL), 0);
	assert_int_equal(t->s->stats.round_trips, trips + 1);
	/* the session counts on, its new connection from 0 */
	assert_int_equal(tarn_session_process(t->s), 0);
	slot = (struct layout_client *)fixture_word(
		&t->pool, layout_client_offset(&t->pool.geometry, t->s->identity.client_slot));
	assert_int_equal(slot->telemetry.puts, 0);
	assert_int_equal(slot->telemetry.gets, 2);
	assert_int_equal(slot->telemetry.reports, 1);
	assert_int_equal(slot->quiescence, 1);
	assert_int_equal(tarn_session_get_stats(t->s, &stats), 0);
	assert_int_equal(stats.puts, 1);
	assert_int_equal(stats.reconnects, 1);
	/* an older caller's struct is not written past its end */
	stats.reconnects = 77;
	stats.size = offsetof(struct tarn_session_stats, reconnects);
	assert_int_equal(tarn_session_get_stats(t->s, &stats), 0);
	assert_int_equal(stats.reconnects, 77);
}

static void test_other_pool(void **state)
{
	struct test *t = *state;
	struct tarn_pool_info info = {.size = sizeof(info)};
	uint64_t slot, word, epoch;
	char value[2000] = "";
	struct layout_hash hash;
	unsigned i, known = 0;

	for (i = 0; i < 100; i++)
		assert_int_equal(tarn_put(t->s, &i, 4, "x", 1, NULL, NULL), 0);
	epoch = t->s->epoch;
	fixture_epoch(&t->pool, 100);
	assert_int_equal(tarn_session_process(t->s), 0);
	assert_true(t->s->epoch > 100);
	lose(t);
	t->fake.pool = &t->other;
	for (i = 0; i < 100; i++)
		assert_int_equal(tarn_exists(t->s, &i, 4, NULL), -TARN_ENOTFOUND);
	/*
	 * No location is left. One that is would name what may be another key's slot here, with the
	 * very same word.
	 */
	for (i = 0; i < 100; i++) {
		hash = layout_hash_key(&i, 4, t->other.geometry.hash_seed);
		known += cache_find(t->s->cache, hash, epoch, &slot, &word);
	}
	assert_int_equal(known, 0);
	/* the other pool's clock, limits and size */
	assert_true(t->s->epoch < 100);
	assert_int_equal(tarn_put(t->s, "k", 1, value, 1000, NULL, NULL), 0);
	assert_int_equal(tarn_put(t->s, "k", 1, value, 1001, NULL, NULL), -TARN_EVALUESIZE);
	assert_int_equal(tarn_session_get_pool_info(t->s, &info), 0);
	assert_int_equal(info.boot_id, 3);
	assert_int_equal(info.pool_bytes, 16 * MIB);
	assert_int_equal(info.max_value_bytes, 1000);
	assert_string_equal(info.transport, "fake");
	/* the limit is that of the pool in which the call ends */
	t->fake.pool = &t->pool;
	lose(t);
	assert_int_equal(tarn_put(t->s, "k", 1, value, 1001, NULL, NULL), 0);
	assert_int_equal(tarn_session_get_pool_info(t->s, &info), 0);
	assert_int_equal(info.boot_id, 2);
}

/* ---- scan ------------------------------------------------------------------------------------ */

#define SCAN_KEYS 1500u

/* The next key, by either kind of call. */
static int next_key(struct test *t, struct tarn_scan *scan, bool async, const void **ret_key,
		    size_t *ret_key_bytes)
{
	struct tarn_completion c;

	if (!async)
		return tarn_scan_next(scan, ret_key, ret_key_bytes, NULL);
	assert_int_equal(tarn_scan_next_async(scan, NULL, NULL), 0);
	while (tarn_session_poll(t->s, &c, 1, NULL) == 0)
		assert_true(tarn_session_wait(t->s, 10000) >= 0);
	*ret_key = c.key;
	*ret_key_bytes = c.key_bytes;
	return c.status;
}

static unsigned walk(struct test *t, struct tarn_scan *scan, bool async, uint8_t *seen)
{
	const void *key;
	size_t bytes;
	unsigned n = 0, i;
	int ret;

	while ((ret = next_key(t, scan, async, &key, &bytes)) > 0) {
		memcpy(&i, key, 4);
		assert_true(i < SCAN_KEYS);
		n += !seen[i];
		seen[i] = 1;
		/* each walk breaks more than once */
		if (broke(t))
			arm(t, t->fake.at.how, t->fake.at.number, 0);
	}
	assert_int_equal(ret, 0);
	return n;
}

static void test_scan(void **state)
{
	struct test *t = *state;
	char long_key[300] = {0};
	struct tarn_scan *scan;
	const void *key;
	size_t bytes;
	unsigned i;
	int how;

	/* how long a walk takes, under valgrind and beside others, is not what is tested */
	assert_int_equal(tarn_session_set_timeout(t->s, 60000), 0);
	for (i = 0; i < SCAN_KEYS; i++) {
		memcpy(long_key, &i, 4);
		assert_int_equal(tarn_put(t->s, long_key, i % 7 ? 4 : 300, "x", 1, NULL, NULL), 0);
	}
	for (how = UNSENT; how < HOWS; how++) {
		for (i = 2; i < 24; i++) {
			uint64_t reconnects = t->s->stats.reconnects;
			uint8_t seen[SCAN_KEYS] = {0};

			arm(t, (enum how)how, i / 2, 0);
			assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
			assert_int_equal(walk(t, scan, i % 2, seen), SCAN_KEYS);
			assert_true(t->s->stats.reconnects > reconnects);
			tarn_scan_close(scan);
		}
	}
	arm(t, SENT, 0, 0);
	assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &bytes, NULL), 1);
	lose(t);
	t->fake.pool = &t->other;
	assert_int_equal(tarn_scan_next(scan, &key, &bytes, NULL), -TARN_ERESTARTED);
	assert_int_equal(next_key(t, scan, true, &key, &bytes), -TARN_ERESTARTED);
	tarn_scan_close(scan);
	assert_int_equal(tarn_scan_open(t->s, NULL, 0, &scan), 0);
	assert_int_equal(tarn_scan_next(scan, &key, &bytes, NULL), 0);
	tarn_scan_close(scan);
}

/* ---- when it is tried ------------------------------------------------------------------------ */

static void fail_tries(struct test *t, unsigned count, int code, enum session_again again,
		       uint64_t wait_ns)
{
	t->fake.fail = count;
	t->fake.code = code;
	t->fake.again = again;
	t->fake.wait_ns = wait_ns;
	t->fake.tries = 0;
}

static void test_backoff(void **state)
{
	struct test *t = *state;
	uint64_t begin, spent;
	unsigned i;

	assert_int_equal(put(t, "k", "v", NULL), 0);
	assert_int_equal(tarn_session_set_timeout(t->s, 400), 0);
	lose(t);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	begin = clock_now_ns();
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ESESSION);
	spent = clock_now_ns() - begin;
	assert_true(spent >= 350 * MSEC && spent < 2000 * MSEC);
	assert_non_null(strstr(tarn_last_error_text(), "the fake fails"));
	assert_true(t->fake.tries >= 4 && t->fake.tries <= 16);
	for (i = 1; i < t->fake.tries; i++)
		assert_true(t->fake.try_ns[i] - t->fake.try_ns[i - 1] >= 4 * MSEC);
	/* calls that need no connection */
	assert_int_equal(tarn_session_set_timeout(t->s, 1000), 0);
	/* it comes back in the middle of a call; a write that nothing was sent of is made */
	fail_tries(t, 3, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	assert_int_equal(put(t, "k", "w", NULL), 0);
	assert_int_equal(t->fake.tries, 4);
	expect(t, "k", "w");
	/* a daemon that takes everybody in and throws them out again */
	assert_int_equal(tarn_session_set_timeout(t->s, 200), 0);
	lose(t);
	fail_tries(t, 0, 0, SESSION_NEVER, 0);
	t->fake.throws_out = true;
	begin = clock_now_ns();
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ESESSION);
	assert_true(clock_now_ns() - begin < 1000 * MSEC);
	assert_true(t->fake.tries >= 2 && t->fake.tries <= 22);
	t->fake.throws_out = false;
}

static void test_permanent(void **state)
{
	static const int codes[] = {-TARN_EAUTH, -TARN_ENOPOOL, -TARN_EVERSION, -ENOENT};
	struct test *t = *state;
	uint64_t begin;
	unsigned i;

	assert_int_equal(put(t, "k", "v", NULL), 0);
	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		lose(t);
		fail_tries(t, 2, codes[i], SESSION_NEVER, 0);
		begin = clock_now_ns();
		assert_int_equal(tarn_exists(t->s, "k", 1, NULL), codes[i]);
		assert_int_equal(put(t, "k", "v", NULL), codes[i]);
		assert_true(clock_now_ns() - begin < 500 * MSEC);
		assert_int_equal(t->fake.tries, 2);
		/* somebody has acted */
		assert_int_equal(tarn_exists(t->s, "k", 1, NULL), 0);
	}
	/* found in the middle of a call */
	arm(t, SENT, 1, 0);
	fail_tries(t, 1, -TARN_EAUTH, SESSION_NEVER, 0);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_EAUTH);
}

/* Refusals that pass: also a session that is being opened waits for them, as long as it was told. */
static void test_told_to_wait(void **state)
{
	struct test *t = *state;
	struct fake fake = {.base = {fake_connect, fake_free}, .pool = &t->pool};
	struct session_link link;
	uint64_t begin = clock_now_ns(), spent;
	unsigned i;

	fake.fail = 3;
	fake.code = -TARN_EREFUSED;
	fake.again = SESSION_SOON;
	fake.wait_ns = 40 * MSEC;
	assert_int_equal(session_connect(&fake.base, begin + 5000 * MSEC, &link), 0);
	assert_int_equal(fake.tries, 4);
	for (i = 1; i < 4; i++) {
		spent = fake.try_ns[i] - fake.try_ns[i - 1];
		/* half of it to one and a half of it */
		assert_true(spent >= 19 * MSEC && spent < 1000 * MSEC);
	}
	link.ep->ops->close(link.ep);
	/* never past the limit; then the last refusal is the error */
	fake.fail = UINT32_MAX;
	fake.tries = 0;
	begin = clock_now_ns();
	assert_int_equal(session_connect(&fake.base, begin + 200 * MSEC, &link), -TARN_EREFUSED);
	spent = clock_now_ns() - begin;
	assert_true(spent < 1000 * MSEC && fake.tries >= 2);
	/* rejected by the connection manager, which names no time */
	fake.tries = 0;
	fake.code = -EAGAIN;
	fake.wait_ns = 0;
	begin = clock_now_ns();
	assert_int_equal(session_connect(&fake.base, begin + 1000 * MSEC, &link), -TARN_EREFUSED);
	assert_true(fake.tries >= 3);
	assert_string_equal(err_text(), "the fake fails");
	/* what may pass some time is not waited for by who has never been connected */
	fake.tries = 0;
	fake.again = SESSION_LATER;
	fake.code = -TARN_EUNREACHABLE;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 5000 * MSEC, &link),
			 -TARN_EUNREACHABLE);
	assert_int_equal(fake.tries, 1);
}

/* A message of the first connection is lost: there is time for another try, but for no more than the
 * caller has. */
static void test_first_is_lost(void **state)
{
	struct test *t = *state;
	struct fake fake = {.base = {fake_connect, fake_free}, .pool = &t->pool};
	struct session_link link;

	fake.fail = 2;
	fake.code = -TARN_ETIMEOUT;
	fake.again = SESSION_LATER;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 12000 * MSEC, &link), 0);
	assert_int_equal(fake.tries, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_in_range(fake.try_limit_ns[i], 3900 * MSEC, 4000 * MSEC);
	link.ep->ops->close(link.ep);
	fake.fail = 1;
	fake.tries = 0;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 5000 * MSEC, &link), 0);
	assert_int_equal(fake.tries, 2);
	assert_int_equal(fake.try_limit_ns[0], 2000 * MSEC);
	link.ep->ops->close(link.ep);
	fake.fail = UINT32_MAX;
	fake.tries = 0;
	assert_int_equal(session_connect(&fake.base, clock_now_ns() + 200 * MSEC, &link),
			 -TARN_ETIMEOUT);
	assert_in_range(fake.tries, 2, 20);
	for (unsigned i = 0; i < fake.tries; i++)
		assert_true(fake.try_limit_ns[i] <= 200 * MSEC);
}

/* ---- beside the calls ------------------------------------------------------------------------ */

static void test_process(void **state)
{
	struct test *t = *state;
	uint64_t begin;

	/* the loss is found, and the next time mended */
	t->fake.last->broken = true;
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(tarn_session_process(t->s), 0);
	/* one try, then none until its time has come */
	lose(t);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	begin = clock_now_ns();
	while (t->fake.tries < 6) {
		assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
		clock_sleep_ns(MSEC);
	}
	/* 10, 20, 40, 80, 160 ms, each at least by half */
	assert_true(clock_now_ns() - begin > 120 * MSEC);
	/* a call does not wait for that */
	t->fake.fail = 0;
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ENOTFOUND);
	assert_int_equal(tarn_session_process(t->s), 0);
	/* what needs somebody to act keeps its own code */
	lose(t);
	fail_tries(t, 1, -TARN_EAUTH, SESSION_NEVER, 0);
	t->s->try_ns = 0;
	assert_int_equal(tarn_session_process(t->s), -TARN_EAUTH);
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(t->fake.tries, 1);
}

static void test_housekeeping(void **state)
{
	struct test *t = *state;
	uint64_t begin = clock_now_ns(), reconnects = 0;
	struct tarn_session_stats stats = {.size = sizeof(stats)};

	assert_int_equal(housekeeping_add(t->s), 0);
	assert_int_equal(session_hold(t->s), 0);
	t->fake.last->broken = true;
	session_leave(t->s);
	while (reconnects == 0 && clock_now_ns() - begin < 20000 * MSEC) {
		clock_sleep_ns(10 * MSEC);
		assert_int_equal(tarn_session_get_stats(t->s, &stats), 0);
		reconnects = stats.reconnects;
	}
	assert_int_equal(reconnects, 1);
	housekeeping_remove(t->s);
}

/* A session whose daemon is stopped keeps the thread, but nobody who opens or closes another one. */
static void test_long_visit(void **state)
{
	struct test *t = *state;
	struct tarn_session other = {.owner = SESSION_CALL};
	uint64_t begin = clock_now_ns();

	atomic_store(&t->fake.hold, 1);
	assert_int_equal(housekeeping_add(t->s), 0);
	while (atomic_load(&t->fake.hold) == 1 && clock_now_ns() - begin < 20000 * MSEC)
		clock_sleep_ns(MSEC);
	assert_int_equal(atomic_load(&t->fake.hold), 2);
	assert_int_equal(housekeeping_add(&other), 0);
	housekeeping_remove(&other);
	assert_int_equal(atomic_load(&t->fake.hold), 2); /* it is still at it */
	assert_true(clock_now_ns() - begin < 4000 * MSEC);
	atomic_store(&t->fake.hold, 0);
	housekeeping_remove(t->s);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void test_descriptor(void **state)
{
	struct test *t = *state;
	uint64_t one = 1;
	int fd = tarn_session_fd(t->s);

	assert_true(fd >= 0);
	assert_int_equal(tarn_session_fd(NULL), -EINVAL);
	assert_int_equal(tarn_session_process(NULL), -EINVAL);
	assert_false(readable(fd));
	assert_int_equal(write(t->fake.last->event, &one, 8), 8);
	assert_true(readable(fd));
	/* it is the connection's end: taken note of, and a new one */
	t->fake.last->broken = true;
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(tarn_session_process(t->s), 0);
	assert_false(readable(fd));
	assert_int_equal(tarn_session_fd(t->s), fd);
	assert_int_equal(write(t->fake.last->event, &one, 8), 8);
	assert_true(readable(fd));
	/* no connection: silent */
	lose(t);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_false(readable(fd));
	assert_int_equal(tarn_session_fd(t->s), fd);
	t->fake.fail = 0;
}

/* A close that breaks, or of a lost session, does not try to connect. */
static void test_close(void **state)
{
	struct test *t = *state;
	unsigned n;
	int how;

	for (how = UNSENT; how < HOWS; how++) {
		for (n = 0; n <= 2; n++) {
			uint64_t begin = clock_now_ns();

			assert_int_equal(put(t, "k", "v", NULL), 0);
			if (n == 0)
				lose(t);
			arm(t, (enum how)how, n, 0);
			t->fake.tries = 0;
			tarn_session_close(t->s);
			assert_int_equal(t->fake.tries, 0);
			assert_int_equal(t->fake.opened, t->fake.closed);
			assert_true(clock_now_ns() - begin < 500 * MSEC);
			arm(t, SENT, 0, 0);
			open_session(t, 0);
		}
	}
}

/* Without a connector (the simulation) a lost session stays lost. */
/*
 * What an asynchronous access was waiting for has come, and right behind it the end of the connection: it goes on only when
 * that is gone, and there is no endpoint that knows of regions.
 */
static void region_breaks(struct test *t, struct tarn_region *region)
{
	const struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion completion;
	uint64_t word, reconnects = t->s->stats.reconnects;
	size_t count = 0;

	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, &async, NULL), 0);
	t->fake.breaks_after = true;
	t->fake.silent = 2;
	/* two turns, and then what comes is taken when the session is left, for its descriptor */
	assert_int_equal(tarn_session_poll(t->s, &completion, 1, &count), 0);
	assert_false(t->fake.breaks_after);
	assert_true(t->s->lost);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ENOTFOUND);
	assert_int_equal(t->s->stats.reconnects, reconnects + 1);
	while (count == 0)
		assert_true(tarn_session_poll(t->s, &completion, 1, &count) >= 0);
	assert_int_equal(completion.status, 0);
}

static void test_region(void **state)
{
	struct test *t = *state;
	struct tarn_region *region;

	assert_true(tarn_session_fd(t->s) >= 0);
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	region_breaks(t, region); /* at the access */
	lose(t);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ENOTFOUND);
	region_breaks(t, region); /* when it is attached again */
	assert_int_equal(tarn_region_close(region), 0);
}

/* The status of the asynchronous call with a lock that has begun; *ret_token: what it tells. */
static int lock_call(struct test *t, int ret, uint64_t *ret_token)
{
	struct tarn_completion completion;
	size_t count = 0;

	assert_int_equal(ret, 0);
	while (count == 0) {
		assert_true(tarn_session_wait(t->s, 1000) >= 0);
		assert_true(tarn_session_poll(t->s, &completion, 1, &count) >= 0);
	}
	assert_int_equal(completion.kind, TARN_OP_SYNC);
	*ret_token = (uint64_t)completion.value;
	return completion.status;
}

/*
 * Wherever the connection breaks, a call with a lock comes to the end that its blocking twin has: it is taken, with a
 * token that no one had before, renewed and released. What may have taken it, and does not know, waits for the lease.
 */
static void test_lock(void **state)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_region *region;
	struct test *t = *state;
	struct tarn_lock *lock;
	uint64_t token, last = 0;

	t->s->timeout_ns = 60000 * MSEC;
	async.timeout_ms = 60000;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	assert_int_equal(tarn_lock_init(region, 2048, TARN_SYNC_LEASE_MIN_MS), 0);
	assert_int_equal(tarn_lock_open(region, 2048, 1, &lock), 0);
	for (int how = UNSENT; how < HOWS; how++)
		for (unsigned at = 0; at <= 4; at++) {
			uint64_t reconnects = t->s->stats.reconnects;

			arm(t, (enum how)how, at, 0);
			assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL),
						   &token),
					 0);
			assert_true(token > last);
			last = token;
			assert_int_equal(lock_call(t, tarn_lock_renew_async(lock, &async, NULL),
						   &token),
					 0);
			assert_true(token > last);
			last = token;
			assert_int_equal(t->s->stats.reconnects, reconnects + (at > 0));
			arm(t, (enum how)how, at == 1, 0);
			assert_int_equal(lock_call(t, tarn_lock_release_async(lock, &async, NULL),
						   &token),
					 0);
			assert_int_equal(t->s->stats.reconnects, reconnects + (at > 0) + (at == 1));
		}
	arm(t, UNSENT, 0, 0);
	tarn_lock_close(lock);
	assert_int_equal(tarn_region_close(region), 0);
}

/* One of each kind, in zeros. */
enum kind { A_LOCK, A_QUEUE, A_BARRIER, AN_EPOCH, KINDS };
#define PLACE       2048u
#define PLACE_BYTES 512u

static int make_async(struct tarn_region *region, int kind)
{
	switch ((enum kind)kind) {
	case A_LOCK:
		return tarn_lock_init_async(region, PLACE, 1000, NULL, NULL);
	case A_QUEUE:
		return tarn_queue_init_async(region, PLACE, 4, 8, 1000, 0, NULL, NULL);
	case A_BARRIER:
		return tarn_barrier_init_async(region, PLACE, 2, NULL, NULL);
	case AN_EPOCH:
	case KINDS:
		break;
	}
	return tarn_epoch_init_async(region, PLACE, NULL, NULL);
}

union handle {
	struct tarn_lock *lock;
	struct tarn_queue *queue;
	struct tarn_barrier *barrier;
	struct tarn_epoch *epoch;
	void *any;
};

static int open_async(struct tarn_region *region, int kind, union handle *h)
{
	switch ((enum kind)kind) {
	case A_LOCK:
		return tarn_lock_open_async(region, PLACE, 1, &h->lock, NULL, NULL);
	case A_QUEUE:
		return tarn_queue_open_async(region, PLACE, &h->queue, NULL, NULL);
	case A_BARRIER:
		return tarn_barrier_open_async(region, PLACE, 1, &h->barrier, NULL, NULL);
	case AN_EPOCH:
	case KINDS:
		break;
	}
	return tarn_epoch_open_async(region, PLACE, &h->epoch, NULL, NULL);
}

/* Status of stat, where there is one; closes it. */
static int stat_and_close(struct test *t, int kind, union handle h)
{
	struct tarn_lock_info lock = {.size = sizeof(lock)};
	struct tarn_queue_info queue = {.size = sizeof(queue)};
	uint64_t value;
	int status = 0;

	if (kind == A_LOCK) {
		status = lock_call(t, tarn_lock_stat_async(h.lock, &lock, NULL, NULL), &value);
		assert_int_equal(lock.lease_ms, 1000);
		tarn_lock_close(h.lock);
	} else if (kind == A_QUEUE) {
		status = lock_call(t, tarn_queue_stat_async(h.queue, &queue, NULL, NULL), &value);
		assert_int_equal(queue.slots, 4);
		tarn_queue_close(h.queue);
	} else if (kind == A_BARRIER) {
		tarn_barrier_close(h.barrier);
	} else {
		tarn_epoch_close(h.epoch);
	}
	return status;
}

/* Wherever the connection breaks while one is made, opened or looked at: it is done on the next one. */
static void test_make_open(void **state)
{
	struct tarn_region *region;
	struct test *t = *state;
	unsigned broken = 0;
	uint64_t value;

	t->s->timeout_ns = 60000 * MSEC;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	for (int kind = 0; kind < KINDS; kind++)
		for (int how = UNSENT; how < HOWS; how++)
			for (unsigned at = 0; at <= 6; at++) {
				union handle h = {.any = NULL};

				memset(t->pool.base + PLACE, 0, PLACE_BYTES);
				arm(t, (enum how)how, at, 0);
				assert_int_equal(lock_call(t, make_async(region, kind), &value), 0);
				assert_int_equal(
					lock_call(t, open_async(region, kind, &h), &value), 0);
				assert_non_null(h.any);
				assert_int_equal(stat_and_close(t, kind, h), 0);
				broken += broke(t);
			}
	/* at the least: looked at and made, opened */
	assert_true(broken >= KINDS * HOWS * 3);
	arm(t, UNSENT, 0, 0);
	assert_int_equal(tarn_region_close(region), 0);
}

/* There is no connection: neither is made nor opened, and the session ends with one that waits. */
static void test_make_open_lost(void **state)
{
	struct tarn_region *region;
	struct test *t = *state;
	union handle h = {.any = NULL};
	uint64_t value;

	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	t->s->timeout_ns = 50 * MSEC;
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	lose(t);
	for (int kind = 0; kind < KINDS; kind++) {
		assert_int_equal(lock_call(t, make_async(region, kind), &value), -TARN_ESESSION);
		assert_int_equal(lock_call(t, open_async(region, kind, &h), &value),
				 -TARN_ESESSION);
		assert_null(h.any);
	}
	assert_int_equal(make_async(region, A_LOCK), 0);
	assert_int_equal(open_async(region, A_QUEUE, &h), 0);
	tarn_session_close(t->s);
	assert_null(h.any);
	t->fake.fail = 0;
	open_session(t, 0);
}

#define AWAY_SLOTS 32u

static uint64_t slot_state(const struct test *t, uint64_t position)
{
	uint64_t at = PLACE + 192 + position * (24 + 8), state;

	memcpy(&state, (const uint8_t *)t->pool.base + at, 8);
	return state;
}

/*
 * A producer has its place, and no connection until more than half of its lease is over: it writes nothing there any
 * more, where by now another one's message may stand, and takes another place.
 */
static void test_queue_away(void **state)
{
	struct tarn_queue_info info = {.size = sizeof(info)};
	struct tarn_region *region;
	struct tarn_queue *queue;
	struct test *t = *state;
	uint64_t before = 0, value;

	/* with a descriptor a call takes note of the end of a connection when it leaves the session */
	assert_true(tarn_session_fd(t->s) >= 0);
	t->s->timeout_ns = 60000 * MSEC;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	assert_int_equal(tarn_queue_init(region, PLACE, AWAY_SLOTS, 8, 200, 0), 0);
	assert_int_equal(tarn_queue_open(region, PLACE, &queue), 0);
	for (unsigned async = 0; async < 2; async++) {
		t->fake.breaks_after = true; /* reserved, not written */
		fail_tries(t, 1, -TARN_EREFUSED, SESSION_SOON, 500 * MSEC);
		if (async)
			assert_int_equal(
				lock_call(t, tarn_queue_send_async(queue, "message", 8, NULL, NULL),
					  &value),
				0);
		else
			assert_int_equal(tarn_queue_send(queue, "message", 8, 60000), 0);
		assert_true(!t->fake.breaks_after && t->fake.fail == 0);
		assert_int_equal(tarn_queue_stat(queue, &info), 0);
		assert_true(info.tail >= before + 2 && info.tail <= AWAY_SLOTS);
		assert_int_equal(slot_state(t, before), 2);        /* DEAD */
		assert_int_equal(slot_state(t, info.tail - 1), 1); /* FULL */
		before = info.tail;
	}
	tarn_queue_close(queue);
	assert_int_equal(tarn_region_close(region), 0);
}

/* There is no connection any more: the call ends, and what it may have done it does not deny. */
static void test_lock_lost(void **state)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_region *region;
	struct test *t = *state;
	struct tarn_lock *lock;
	uint64_t token;

	async.timeout_ms = 50;
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	assert_int_equal(tarn_lock_init(region, 2048, TARN_SYNC_LEASE_MAX_MS), 0);
	assert_int_equal(tarn_lock_open(region, 2048, 1, &lock), 0);
	t->s->timeout_ns = 50 * MSEC;
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	lose(t);
	assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL), &token),
			 -TARN_ESESSION);
	t->fake.fail = 0;
	t->s->timeout_ns = 60000 * MSEC;
	async.timeout_ms = 60000;
	assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL), &token), 0);
	/* it was held when the connection broke behind the CAS, though the owner could not be written */
	assert_int_equal(tarn_lock_release(lock), 0);
	fail_tries(t, UINT32_MAX, -TARN_EUNREACHABLE, SESSION_LATER, 0);
	t->s->timeout_ns = 50 * MSEC;
	arm(t, UNSENT, 3, 0);
	assert_int_equal(lock_call(t, tarn_lock_acquire_async(lock, &async, NULL), &token), 0);
	assert_true(token > 0 && tarn_lock_left_ms(lock) > 0);
	t->fake.fail = 0;
	arm(t, UNSENT, 0, 0);
	tarn_lock_close(lock);
	assert_int_equal(tarn_region_close(region), 0);
}

static void test_no_connector(void **state)
{
	struct test *t = *state;

	t->s->connector = NULL;
	lose(t);
	assert_int_equal(tarn_exists(t->s, "k", 1, NULL), -TARN_ESESSION);
	assert_int_equal(tarn_session_process(t->s), -TARN_ESESSION);
	assert_int_equal(put(t, "k", "v", NULL), -TARN_ESESSION);
}

/* ---- a stub of a daemon, for connect.c -------------------------------------------------------- */

struct stub {
	struct fixture pool;
	int memory, listener;
	char folder[32], path[64], uri[128];
	pthread_t thread;
	/* reasons of the refusals to come, 0: let it in, -1: close without an answer */
	const int *script;
	unsigned length, at;
	uint64_t nonces[64];
	unsigned requests;
	int accepted[64]; /* connections let in */
	unsigned accepted_count;
};

static void stub_answer(struct stub *d, int fd, const struct wire_request *request)
{
	int reason = d->at < d->length ? d->script[d->at++] : 0;
	uint8_t answer[WIRE_REPLY_BYTES];
	struct wire_reject reject = {.version_min = 1,
				     .version_max = 1,
				     .reason = (uint16_t)reason,
				     .retry_after_ms = 20};
	struct wire_reply reply = {
		.version = 1,
		.region_count = 1,
		.role = request->flags & WIRE_REQUEST_READONLY ? WIRE_ROLE_READ : WIRE_ROLE_WRITE,
		.atomics = (uint8_t)d->pool.geometry.atomics,
		.incarnation = d->pool.geometry.incarnation,
		.boot_id = d->pool.geometry.boot_id,
		.client_id = ++d->pool.clients,
		.deadline_us = 100000,
		.epoch_us = 250000,
		.grace_us = 500000,
		.layout_version = LAYOUT_VERSION,
		.pool_bytes = d->pool.bytes,
		.nonce = request->nonce,
	};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {{0}};
	struct iovec iov = {answer, reason ? WIRE_REJECT_BYTES : WIRE_REPLY_BYTES};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	reply.regions[0].length = d->pool.bytes;
	if (reason < 0) {
		close(fd);
		return;
	}
	if (reason) {
		wire_reject_encode(&reject, answer);
	} else {
		wire_reply_encode(&reply, answer);
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &d->memory, sizeof(int));
	}
	sendmsg(fd, &message, MSG_NOSIGNAL);
	if (reason)
		close(fd);
	else
		d->accepted[d->accepted_count++] = fd;
}

static void *stub_run(void *arg)
{
	struct stub *d = arg;
	uint8_t packet[WIRE_REQUEST_BYTES];
	struct wire_request request;
	ssize_t bytes;
	int fd;

	while ((fd = accept(d->listener, NULL, NULL)) >= 0) {
		bytes = recv(fd, packet, sizeof(packet), 0);
		if (bytes < 0 || wire_request_decode(packet, (size_t)bytes, &request) < 0 ||
		    d->requests == 64) {
			close(fd);
			continue;
		}
		d->nonces[d->requests++] = request.nonce;
		stub_answer(d, fd, &request);
	}
	return NULL;
}

static void stub_listen(struct stub *d, const int *script, unsigned length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	d->script = script;
	d->length = length;
	d->at = d->requests = d->accepted_count = 0;
	strcpy(address.sun_path, d->path);
	d->listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_true(d->listener >= 0);
	assert_int_equal(bind(d->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(d->listener, 64), 0);
	assert_int_equal(pthread_create(&d->thread, NULL, stub_run, d), 0);
}

/* The stub is gone, and with it its connections. */
static void stub_end(struct stub *d)
{
	shutdown(d->listener, SHUT_RDWR);
	pthread_join(d->thread, NULL);
	close(d->listener);
	while (d->accepted_count)
		close(d->accepted[--d->accepted_count]);
	unlink(d->path);
}

static void stub_create(struct stub *d)
{
	struct layout_plan plan = fixture_plan(8 * MIB);

	memset(d, 0, sizeof(*d));
	strcpy(d->folder, "/tmp/tarn-unit-XXXXXX");
	assert_non_null(mkdtemp(d->folder));
	snprintf(d->path, sizeof(d->path), "%s/sock", d->folder);
	snprintf(d->uri, sizeof(d->uri), "tarn:%s?pool=main", d->path);
	d->memory = memfd_create("stub", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(d->memory, (off_t)plan.pool_bytes), 0);
	assert_int_equal(fcntl(d->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	d->pool.bytes = plan.pool_bytes;
	d->pool.base =
		mmap(NULL, plan.pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->memory, 0);
	assert_true(d->pool.base != MAP_FAILED);
	assert_int_equal(layout_format(d->pool.base, &plan), 0);
	assert_int_equal(layout_superblock_check(d->pool.base, d->pool.bytes, &d->pool.geometry),
			 0);
}

static void stub_destroy(struct stub *d)
{
	fixture_destroy(&d->pool);
	close(d->memory);
	rmdir(d->folder);
}

static void test_open(void **state)
{
	static const int busy[] = {WIRE_REASON_BUSY, WIRE_REASON_SHUTDOWN, WIRE_REASON_BUSY};
	static const int full[] = {WIRE_REASON_CLIENTS, WIRE_REASON_CLIENTS};
	static const int gone[] = {-1, WIRE_REASON_CLIENTS, WIRE_REASON_INTERNAL, WIRE_REASON_BUSY};
	static const int no_pool[] = {WIRE_REASON_NO_POOL}, no_key[] = {WIRE_REASON_UNKNOWN_KEY};
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *s;
	struct stub d;
	uint64_t begin;
	unsigned i, j;

	(void)state;
	stub_create(&d);
	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 5000;

	/* each try is another request: the daemon takes none twice */
	stub_listen(&d, busy, 3);
	assert_int_equal(tarn_session_open(d.uri, &options, &s), 0);
	assert_int_equal(d.requests, 4);
	for (i = 0; i < 4; i++)
		for (j = 0; j < i; j++)
			assert_true(d.nonces[i] != d.nonces[j]);
	assert_int_equal(tarn_put(s, "k", 1, "v", 1, NULL, NULL), 0);
	stub_end(&d);

	/* the daemon is away */
	assert_int_equal(tarn_session_process(s), -TARN_ESESSION);
	assert_int_equal(tarn_session_set_timeout(s, 200), 0);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_ESESSION);
	assert_non_null(strstr(tarn_last_error_text(), "no such socket"));
	assert_int_equal(tarn_session_set_timeout(s, 5000), 0);

	/* it is there again, and takes a while to let its client in */
	stub_listen(&d, gone, 4);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), 0);
	assert_int_equal(d.requests, 5);
	stub_end(&d);

	/* what does not pass by itself is said at once, as what it is */
	begin = clock_now_ns();
	stub_listen(&d, no_pool, 1);
	assert_int_equal(tarn_session_process(s), -TARN_ESESSION);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_ENOPOOL);
	stub_end(&d);
	stub_listen(&d, no_key, 1);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_EAUTH);
	assert_int_equal(d.requests, 1);
	assert_true(clock_now_ns() - begin < 2000 * MSEC);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), 0);
	stub_end(&d);
	tarn_session_close(s);

	/* no place: said at once */
	stub_listen(&d, full, 2);
	begin = clock_now_ns();
	assert_int_equal(tarn_session_open(d.uri, &options, &s), -TARN_EREFUSED);
	assert_true(clock_now_ns() - begin < 2000 * MSEC);
	assert_int_equal(d.requests, 1);
	stub_end(&d);
	stub_destroy(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_get, setup, teardown),
		cmocka_unit_test_setup_teardown(test_get_large, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put, setup, teardown),
		cmocka_unit_test_setup_teardown(test_delete, setup, teardown),
		cmocka_unit_test_setup_teardown(test_add, setup, teardown),
		cmocka_unit_test_setup_teardown(test_add_unsure, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_backoff, setup, teardown),
		cmocka_unit_test_setup_teardown(test_permanent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_told_to_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_housekeeping, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_visit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptor, setup, teardown),
		cmocka_unit_test_setup_teardown(test_close, setup, teardown),
		cmocka_unit_test_setup_teardown(test_region, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_open, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_open_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lock_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_connector, setup, teardown),
		cmocka_unit_test(test_open),
	};

	return cmocka_run_group_tests_name("reconnect", tests, NULL, NULL);
}
