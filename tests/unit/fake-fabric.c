/* SPDX-License-Identifier: BSD-2-Clause */
/* fake-fabric.c - see fake-fabric.h. Runs on the test's thread, and on the library's housekeeping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"
#include "fake-fabric.h"
#include "tarn/region.h"

#define CHECK_NS 5000000000ull /* a check that is held takes no longer */

static struct fake_ep *fake_of(struct fabric_endpoint *ep)
{
	return (struct fake_ep *)ep;
}

static void execute(struct fake_ep *e)
{
	struct fake_queued *q = &e->queue[e->head];
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
	e->head = (e->head + 1) % FAKE_QUEUE;
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
	struct fake_queued *q;
	unsigned i;

	e->broken |= breaks && e->fake->at.how == UNSENT;
	if (e->broken)
		return -TARN_ESESSION;
	if (e->count == FAKE_QUEUE)
		execute(e);
	q = &e->queue[(e->head + e->count++) % FAKE_QUEUE];
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

/* A region of 4 KiB without registered memory, whatever is asked; else a ping. */
static enum fake_answer ask_default(struct fake *f, const void *message, uint8_t *answer,
				    uint32_t *ret_bytes)
{
	struct wire_rpc_reply reply = {.type = WIRE_RPC_PING};
	struct wire_region_request request;
	struct wire_region_reply region = {.id = 7, .bytes = 4096};

	if (f->rpc_breaks) {
		f->rpc_breaks = false;
		return FAKE_BREAKS;
	}
	if (*(const uint8_t *)message != WIRE_RPC_REGION_CALL) {
		wire_rpc_reply_encode(&reply, answer);
		*ret_bytes = WIRE_RPC_REPLY_BYTES;
		return FAKE_ANSWERS;
	}
	assert_int_equal(wire_region_request_decode(message, WIRE_REGION_BYTES, &request), 0);
	region.call = request.call;
	region.handle = request.handle;
	wire_region_reply_encode(&region, answer);
	*ret_bytes = WIRE_REGION_BYTES;
	return FAKE_ANSWERS;
}

static int fake_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		    size_t capacity, void *cookie)
{
	struct fake_ep *e = fake_of(ep);
	enum fake_answer how;

	if (e->broken)
		return -TARN_ESESSION;
	assert_null(e->rpc_cookie);
	assert_true(bytes <= WIRE_RPC_MAX_BYTES);
	how = e->fake->ask ? e->fake->ask(e->fake, message, bytes, e->answer, &e->answer_bytes)
			   : ask_default(e->fake, message, e->answer, &e->answer_bytes);
	if (how == FAKE_BREAKS) {
		e->broken = e->have_last = true;
		e->last = (struct fabric_completion){.cookie = cookie, .status = -TARN_ESESSION};
		return 0;
	}
	assert_true(how == FAKE_SILENT || capacity >= e->answer_bytes);
	e->rpc_cookie = cookie;
	e->rpc_reply = reply;
	e->rpc_silent = how == FAKE_SILENT;
	return 0;
}

static void fake_rpc_cancel(struct fabric_endpoint *ep)
{
	fake_of(ep)->rpc_cookie = NULL;
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
	if (!e->rpc_cookie || e->rpc_silent)
		return 0;
	memcpy(e->rpc_reply, e->answer, e->answer_bytes);
	*ret_completions = (struct fabric_completion){.cookie = e->rpc_cookie,
						      .length = e->answer_bytes};
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
	(void)read_only;
	assert_true(space >= 1 && space <= TARN_REGION_OPEN_MAX && count == 0 && bytes == 4096);
	return 0;
}

static void fake_space_remove(struct fabric_endpoint *ep, unsigned space)
{
	(void)ep;
	assert_true(space >= 1 && space <= TARN_REGION_OPEN_MAX);
}

static bool fake_space_alive(struct fabric_endpoint *ep, unsigned space)
{
	(void)ep;
	(void)space;
	return true;
}

static int fake_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	struct fake_ep *e = fake_of(ep);

	/* nothing will come meanwhile */
	if (!e->count && (!e->rpc_cookie || e->rpc_silent))
		e->fake->passed_ns += timeout_ns;
	return 0;
}

static int fake_check(struct fabric_endpoint *ep)
{
	atomic_int *hold = &fake_of(ep)->fake->hold;
	uint64_t begin = clock_now_ns();

	if (atomic_load(hold) == 1)
		atomic_store(hold, 2);
	while (atomic_load(hold) == 2 && clock_now_ns() - begin < CHECK_NS)
		clock_sleep_ns(1000000);
	return fake_of(ep)->broken ? -TARN_ESESSION : 0;
}

static int fake_fd(struct fabric_endpoint *ep)
{
	return fake_of(ep)->event;
}

static uint64_t fake_now(struct fabric_endpoint *ep)
{
	struct fake *f = fake_of(ep)->fake;

	return f->begin_ns ? f->begin_ns + (f->passed_ns += 1000) : clock_now_ns();
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

struct fake fake_create(struct fixture *pool)
{
	return (struct fake){.base = {.connect = fake_connect, .free = fake_free}, .pool = pool};
}

struct tarn_session *fake_session(struct fake *f, struct fixture *pool, uint32_t flags,
				  uint32_t timeout_ms)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *s;
	struct session_link link;

	options.flags = TARN_NO_THREAD | flags;
	options.timeout_ms = timeout_ms;
	options.cache_bytes = 1u << 16;
	f->base.connect = fake_connect;
	f->base.free = fake_free;
	f->pool = pool;
	assert_int_equal(session_connect(&f->base, clock_now_ns() + 1000000000, &link), 0);
	assert_int_equal(session_create(link.ep, &link.geometry, &link.identity, &options, &s), 0);
	s->connector = &f->base;
	return s;
}
