/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-world.c - the fabric and the daemon's side of a simulated region; see region-world.h
 *
 * One thread, no globals. Next: candidate() for what may pass what, answer() for the daemon.
 */
#include "region-world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tarn/tarn.h"

uint64_t rw_random(struct rw_world *w, uint64_t below)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % below;
}

void rw_fail(struct rw_world *w, const char *fmt, ...)
{
	va_list args;

	if (w->failure[0])
		return;
	va_start(args, fmt);
	vsnprintf(w->failure, sizeof(w->failure), fmt, args);
	va_end(args);
}

static struct rw_endpoint *endpoint(struct fabric_endpoint *base)
{
	return (struct rw_endpoint *)base;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_make(struct rw_world *w, uint64_t id, uint64_t bytes)
{
	struct rw_memory *m = &w->memories[w->memory_count];

	*m = (struct rw_memory){.id = id, .bytes = bytes, .alive = true, .open = true};
	m->sequence = rw_random(w, 1000);
	w->current = w->memory_count++;
}

/* Which access of its call is this? */
static uint32_t op_of(const struct rw_world *w, const struct rw_flight *f)
{
	const struct rw_call *call = &w->calls[f->call];
	const uint8_t *local = f->request.local;

	for (uint32_t i = 0; i < call->count; i++) {
		const struct tarn_region_op *op = &call->ops[i];

		if (local == (const uint8_t *)&op->before ||
		    (local >= (const uint8_t *)op->buffer &&
		     local < (const uint8_t *)op->buffer + op->bytes))
			return i;
	}
	return RW_NONE;
}

/* One word of a request, in this memory. `late`: nobody waits for its result. */
static void effect(struct rw_world *w, struct rw_flight *f, uint32_t memory, bool late)
{
	const struct fabric_request *r = &f->request;
	struct rw_memory *m = &w->memories[memory];
	uint64_t index = r->offset / 8 + f->done, none = 0, *word = m->gone ? &none : &m->words[index];
	struct rw_event *e = &w->events[w->event_count];

	if (w->event_count == RW_EVENTS - 1) {
		rw_fail(w, "more events than there is room for");
		return;
	}
	w->event_count++;
	*e = (struct rw_event){.ns = w->now_ns,
			       .call = f->call,
			       .op = op_of(w, f),
			       .memory = memory,
			       .word = (uint32_t)index,
			       .opcode = r->opcode,
			       .gone = m->gone,
			       .value = *word};
	switch ((enum fabric_opcode)r->opcode) {
	case FABRIC_READ:
		memcpy((uint8_t *)r->local + (uint64_t)f->done * 8, word, 8);
		break;
	case FABRIC_WRITE:
		e->value = *word = f->data[f->done];
		break;
	case FABRIC_CAS:
		if (*word == r->compare)
			*word = r->operand;
		break;
	case FABRIC_FAA:
		*word += r->operand;
		break;
	}
	if (!late && (r->opcode == FABRIC_CAS || r->opcode == FABRIC_FAA))
		memcpy(r->local, &e->value, 8);
	f->done++;
	f->finished = f->done == f->pieces;
}

/* ---- posting --------------------------------------------------------------------------------- */

static void complete(struct rw_endpoint *ep, void *cookie, int status, uint32_t length)
{
	if (ep->done_count == 4)
		abort(); /* a task waits for one thing at a time */
	ep->done[ep->done_count++] =
		(struct fabric_completion){.cookie = cookie, .status = status, .length = length};
}

static bool inside(struct rw_endpoint *ep, const struct fabric_request *r)
{
	uint32_t memory = r->space <= FABRIC_SPACES ? ep->spaces[r->space] : 0;

	return memory && r->offset % 8 == 0 && r->length % 8 == 0 && r->length &&
	       r->length <= RW_MOST * 8 && r->offset <= ep->world->memories[memory - 1].bytes &&
	       r->length <= ep->world->memories[memory - 1].bytes - r->offset;
}

static void put_flight(struct rw_endpoint *ep, const struct fabric_request *r, void *cookie,
		       bool last)
{
	struct rw_flight *f = &ep->flights[ep->flight_count++];

	*f = (struct rw_flight){.request = *r,
				.call = ep->world->calling[ep->client],
				.pieces = r->length / 8,
				.cookie = cookie,
				.last = last};
	if (r->opcode == FABRIC_WRITE)
		memcpy(f->data, r->local, r->length);
}

static int rw_post(struct fabric_endpoint *base, const struct fabric_request *requests,
		   unsigned count, void *cookie)
{
	struct rw_endpoint *ep = endpoint(base);

	if (ep->broken)
		return -TARN_ESESSION;
	if (count == 0 || count + ep->flight_count > RW_FLIGHTS) {
		rw_fail(ep->world, "a post of %u requests", count);
		return -EINVAL;
	}
	for (unsigned i = 0; i < count; i++)
		if (!inside(ep, &requests[i])) {
			rw_fail(ep->world, "a request outside of the region, or on none");
			return -EINVAL;
		}
	for (unsigned i = 0; i < count; i++)
		put_flight(ep, &requests[i], i == count - 1 ? cookie : NULL, i == count - 1);
	return 0;
}

static int rw_rpc(struct fabric_endpoint *base, const void *message, size_t bytes, void *reply,
		  size_t capacity, void *cookie)
{
	struct rw_endpoint *ep = endpoint(base);
	struct rw_message *m = &ep->message;

	if (ep->broken)
		return -TARN_ESESSION;
	if (bytes != sizeof(m->bytes) || (m->waits && !m->cancelled)) {
		rw_fail(ep->world, "a message of %zu bytes, or two at a time", bytes);
		return -EINVAL;
	}
	*m = (struct rw_message){.call = ep->world->calling[ep->client],
				 .reply = reply,
				 .cookie = cookie,
				 .capacity = capacity,
				 .waits = true};
	memcpy(m->bytes, message, bytes);
	return 0;
}

static int rw_write_notify(struct fabric_endpoint *base, const struct fabric_request *write,
			   void *reply, size_t capacity, void *cookie)
{
	const struct wire_region_request request = {.call = WIRE_REGION_NOTIFY,
						    .handle = write->space};
	struct rw_endpoint *ep = endpoint(base);
	uint8_t message[WIRE_REGION_BYTES];

	if (write->length && !inside(ep, write))
		rw_fail(ep->world, "a request outside of the region, or on none");
	if (write->length && !ep->broken && !ep->world->failure[0])
		put_flight(ep, write, NULL, false);
	wire_region_request_encode(&request, message);
	return rw_rpc(base, message, sizeof(message), reply, capacity, cookie);
}

static void rw_rpc_cancel(struct fabric_endpoint *base)
{
	struct rw_endpoint *ep = endpoint(base);
	unsigned kept = 0;

	for (unsigned i = 0; i < ep->done_count; i++)
		if (ep->done[i].cookie != ep->message.cookie)
			ep->done[kept++] = ep->done[i];
	ep->done_count = kept;
	ep->message.cancelled = true;
}

static int rw_space_add(struct fabric_endpoint *base, unsigned space,
			const struct wire_region *pieces, unsigned count, uint64_t bytes,
			bool read_only)
{
	struct rw_endpoint *ep = endpoint(base);
	uint32_t memory = count ? (uint32_t)pieces->address : ep->handles[space];

	(void)read_only;
	if (memory == 0 || ep->world->memories[memory - 1].bytes != bytes)
		rw_fail(ep->world, "a space of %llu bytes, which the region has not",
			(unsigned long long)bytes);
	ep->spaces[space] = memory;
	return 0;
}

static void rw_space_remove(struct fabric_endpoint *base, unsigned space)
{
	endpoint(base)->spaces[space] = 0;
}

static bool rw_space_alive(struct fabric_endpoint *base, unsigned space)
{
	const struct rw_endpoint *ep = endpoint(base);

	return ep->world->verbs || ep->world->memories[ep->spaces[space] - 1].alive;
}

static int rw_poll(struct fabric_endpoint *base, struct fabric_completion *ret, unsigned max)
{
	struct rw_endpoint *ep = endpoint(base);
	unsigned n = 0;

	while (n < max && n < ep->done_count) {
		ret[n] = ep->done[n];
		n++;
	}
	memmove(ep->done, ep->done + n, (ep->done_count - n) * sizeof(ep->done[0]));
	ep->done_count -= n;
	return n == 0 && ep->broken ? -TARN_ESESSION : (int)n;
}

static int rw_wait(struct fabric_endpoint *base, uint64_t timeout_ns)
{
	(void)base;
	(void)timeout_ns;
	return 0;
}

static int rw_check(struct fabric_endpoint *base)
{
	return endpoint(base)->broken ? -TARN_ESESSION : 0;
}

static int rw_fd(struct fabric_endpoint *base)
{
	(void)base;
	return -1;
}

static uint64_t rw_now(struct fabric_endpoint *base)
{
	return endpoint(base)->world->now_ns;
}

static void rw_close(struct fabric_endpoint *base)
{
	struct rw_endpoint *ep = endpoint(base);

	if (ep->world->endpoints[ep->client] == ep)
		ep->world->endpoints[ep->client] = NULL;
	free(ep);
}

static const struct fabric_ops rw_ops = {
	.name = "sim",
	.post = rw_post,
	.rpc = rw_rpc,
	.rpc_cancel = rw_rpc_cancel,
	.space_add = rw_space_add,
	.space_remove = rw_space_remove,
	.space_alive = rw_space_alive,
	.write_notify = rw_write_notify,
	.poll = rw_poll,
	.wait = rw_wait,
	.check = rw_check,
	.fd = rw_fd,
	.now = rw_now,
	.close = rw_close,
};

struct fabric_endpoint *rw_connect(struct rw_world *w, unsigned client)
{
	struct rw_endpoint *ep = calloc(1, sizeof(*ep));

	if (!ep)
		abort();
	ep->base.ops = &rw_ops;
	ep->base.features = w->verbs && w->write_notify ? FABRIC_WRITE_NOTIFY : 0;
	ep->world = w;
	ep->client = client;
	w->endpoints[client] = ep;
	return &ep->base;
}

/* ---- a connection is lost -------------------------------------------------------------------- */

static void leave_late(struct rw_endpoint *ep)
{
	struct rw_world *w = ep->world;
	uint64_t due = w->now_ns;

	for (unsigned i = 0; i < ep->flight_count && w->late_count < RW_LATE; i++) {
		struct rw_flight *f = &ep->flights[i];

		if (f->finished || f->request.opcode == FABRIC_READ)
			continue;
		if (rw_random(w, 4) == 0)
			return;
		due += rw_random(w, 2000000);
		w->late[w->late_count++] = (struct rw_late){
			.flight = *f, .memory = ep->spaces[f->request.space] - 1, .due_ns = due};
	}
}

void rw_break(struct rw_endpoint *ep)
{
	struct rw_world *w = ep->world;
	void *cookie = ep->message.waits && !ep->message.cancelled ? ep->message.cookie : NULL;

	if (ep->broken)
		return;
	ep->broken = true;
	for (unsigned i = 0; i < ep->flight_count; i++)
		if (ep->flights[i].cookie && !ep->flights[i].told)
			cookie = ep->flights[i].cookie;
	if (rw_random(w, 4))
		leave_late(ep);
	ep->flight_count = 0;
	ep->message.waits = false;
	for (uint32_t i = 0; i < w->call_count; i++) {
		struct rw_call *call = &w->calls[i];

		if (call->client == ep->client && !call->ended)
			call->broken = true;
		else if (call->client == ep->client)
			call->lost_later = true;
	}
	if (cookie)
		complete(ep, cookie, -TARN_ESESSION, 0);
}

/* ---- taking effect --------------------------------------------------------------------------- */

/* The first that is not finished; or one behind it, if all in front of that are READs and it need not wait for them. */
static struct rw_flight *candidate(struct rw_endpoint *ep)
{
	struct rw_flight *allowed[4];
	unsigned n = 0;

	for (unsigned i = 0; i < ep->flight_count && n < 4; i++) {
		struct rw_flight *f = &ep->flights[i];

		if (f->finished)
			continue;
		if (n && f->request.opcode != FABRIC_READ &&
		    (!ep->world->reads_late || f->request.flags & FABRIC_FENCE))
			break;
		allowed[n++] = f;
		if (f->request.opcode != FABRIC_READ)
			break;
	}
	return n ? allowed[n == 1 ? 0 : rw_random(ep->world, n)] : NULL;
}

static void pop(struct rw_endpoint *ep)
{
	unsigned done = 0;

	while (done < ep->flight_count && ep->flights[done].finished) {
		struct rw_flight *f = &ep->flights[done++];

		if (f->last && f->cookie && !f->told)
			complete(ep, f->cookie, 0, 0);
	}
	memmove(ep->flights, ep->flights + done, (ep->flight_count - done) * sizeof(ep->flights[0]));
	ep->flight_count -= done;
}

/* A WRITE at the end of a post, and nothing but WRITEs in front of it. */
static bool tell_early(struct rw_endpoint *ep)
{
	for (unsigned i = 0; i < ep->flight_count; i++) {
		struct rw_flight *f = &ep->flights[i];

		if (!f->finished && f->request.opcode != FABRIC_WRITE)
			return false;
		if (!f->last || !f->cookie || f->told || f->request.opcode != FABRIC_WRITE)
			continue;
		f->told = true;
		complete(ep, f->cookie, 0, 0);
		return true;
	}
	return false;
}

static void step_endpoint(struct rw_endpoint *ep)
{
	struct rw_world *w = ep->world;
	struct rw_flight *f;
	uint32_t memory;

	if (w->early && rw_random(w, 3) == 0 && tell_early(ep))
		return;
	f = candidate(ep);
	if (!f)
		return;
	memory = ep->spaces[f->request.space] - 1;
	if (w->verbs && w->memories[memory].gone) {
		rw_break(ep); /* the adapter refuses */
		return;
	}
	effect(w, f, memory, false);
	pop(ep);
}

static void step_late(struct rw_world *w)
{
	struct rw_late *late = &w->late[0];
	const struct rw_memory *m = &w->memories[late->memory];

	if (late->due_ns > w->now_ns)
		return;
	if (!(w->verbs && m->gone))
		effect(w, &late->flight, late->memory, true);
	else
		late->flight.finished = true;
	if (!late->flight.finished)
		return;
	w->late_count--;
	memmove(w->late, w->late + 1, w->late_count * sizeof(w->late[0]));
}

/* ---- the daemon ------------------------------------------------------------------------------ */

/* Everything that the call has written is there: so is whoever is woken. */
static void check_behind(struct rw_world *w, uint32_t number)
{
	const struct rw_call *call = &w->calls[number];
	uint64_t words = 0, found = 0;

	for (uint32_t i = 0; i < call->count; i++)
		words += call->ops[i].bytes / 8;
	for (uint32_t i = 0; i < w->event_count; i++)
		found += w->events[i].call == number && w->events[i].opcode == FABRIC_WRITE;
	if (found < words)
		rw_fail(w, "call %u: its notification is there before what it has written", number);
}

static void tell(struct rw_world *w, uint32_t memory)
{
	for (unsigned i = 0; i < RW_CLIENTS; i++) {
		struct rw_endpoint *ep = w->endpoints[i];

		for (unsigned space = 1; ep && !ep->broken && space <= FABRIC_SPACES; space++) {
			if (ep->handles[space] != memory + 1 || !ep->armed[space])
				continue;
			ep->armed[space] = false;
			if (!ep->told)
				ep->base.notices++;
			ep->told = true;
		}
	}
}

static int32_t open_it(struct rw_endpoint *ep, const struct wire_region_request *request,
		       struct wire_region_reply *reply)
{
	const struct rw_world *w = ep->world;
	const struct rw_memory *m;

	if (w->current == RW_NONE || !w->memories[w->current].open)
		return -TARN_ENOREGION;
	m = &w->memories[w->current];
	ep->handles[request->handle] = w->current + 1;
	ep->armed[request->handle] = false;
	reply->id = m->id;
	reply->bytes = m->bytes;
	reply->state = TARN_REGION_READY;
	reply->handle = request->handle;
	reply->number = w->verbs ? 1 : 0;
	return 0;
}

static int32_t about(struct rw_endpoint *ep, const struct wire_region_request *request,
		     struct wire_region_reply *reply)
{
	struct rw_world *w = ep->world;
	uint32_t memory = ep->handles[request->handle];
	struct rw_memory *m = memory ? &w->memories[memory - 1] : NULL;

	if (request->call == WIRE_REGION_OPEN)
		return open_it(ep, request, reply);
	if (!m)
		return -TARN_EPROTO;
	if (!m->open)
		return -TARN_ENOREGION;
	if (request->call == WIRE_REGION_MEMORY) {
		reply->value = memory;
		reply->length = m->bytes;
		return 0;
	}
	if (request->call == WIRE_REGION_NOTIFY) {
		check_behind(w, ep->message.call);
		m->sequence++;
		tell(w, memory - 1);
	} else {
		ep->told = false;
		ep->armed[request->handle] = m->sequence == request->number;
	}
	reply->value = m->sequence;
	return 0;
}

static void answer(struct rw_endpoint *ep)
{
	struct wire_region_request request;
	struct wire_region_reply reply = {.call = 0};
	struct rw_message *m = &ep->message;

	m->waits = false;
	if (wire_region_request_decode(m->bytes, sizeof(m->bytes), &request) < 0) {
		rw_fail(ep->world, "a message that makes no sense");
		return;
	}
	reply.call = request.call;
	reply.tag = request.tag;
	reply.status = about(ep, &request, &reply);
	if (m->cancelled)
		return;
	wire_region_reply_encode(&reply, m->reply);
	complete(ep, m->cookie, 0, WIRE_REGION_BYTES);
}

/* ---- the life of the region ------------------------------------------------------------------ */

static bool in_use(const struct rw_world *w)
{
	for (unsigned i = 0; i < RW_CLIENTS; i++)
		for (unsigned s = 1; w->endpoints[i] && s <= FABRIC_SPACES; s++)
			if (!w->endpoints[i]->broken && w->endpoints[i]->handles[s] == w->current + 1)
				return true;
	return w->late_count > 0;
}

/* docs/protocol.md section 10, Destroyed: one step of it, or the making of another one. */
static void live(struct rw_world *w)
{
	struct rw_memory *m = w->current == RW_NONE ? NULL : &w->memories[w->current];

	if (!m) {
		if (w->memory_count < RW_MEMORIES - 1)
			memory_make(w, ++w->last_id, 8ull * (RW_WORDS - rw_random(w, 3)));
	} else if (!m->alive && m->open) {
		m->open = false;
		tell(w, w->current);
	} else if (!m->open) {
		m->gone = true;
		w->current = RW_NONE;
	} else if (rw_random(w, 2)) {
		m->alive = false;
	} else if (!in_use(w) && w->memory_count < RW_MEMORIES - 1) {
		memory_make(w, m->id, m->bytes == 8 * RW_WORDS ? m->bytes - 8 : 8 * RW_WORDS);
		memcpy(w->memories[w->current].words, m->words, sizeof(m->words));
		m->alive = m->open = false;
		m->gone = true;
	}
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool dying(const struct rw_world *w)
{
	return w->current != RW_NONE && !w->memories[w->current].alive;
}

void rw_step(struct rw_world *w)
{
	struct rw_endpoint *ep = w->endpoints[rw_random(w, RW_CLIENTS)];

	w->now_ns += 1 + rw_random(w, 20000);
	if (w->late_count)
		step_late(w);
	if (rw_random(w, w->chaos ? 40 * w->rare : 400) == 0 && (w->chaos || w->current == RW_NONE))
		live(w);
	else if (dying(w) && rw_random(w, 20) == 0)
		live(w);
	if (w->chaos && rw_random(w, 60 * w->rare) == 0)
		w->stopped_ns = w->now_ns + rw_random(w, 30000000);
	if (!ep || ep->broken)
		return;
	if (w->chaos && rw_random(w, 20 * w->rare) == 0)
		rw_break(ep);
	else if (ep->flight_count)
		step_endpoint(ep);
	else if (ep->message.waits && w->stopped_ns <= w->now_ns)
		answer(ep);
}

bool rw_quiet(const struct rw_world *w)
{
	for (unsigned i = 0; i < RW_CLIENTS; i++)
		if (w->endpoints[i] && !w->endpoints[i]->broken &&
		    (w->endpoints[i]->flight_count || w->endpoints[i]->message.waits))
			return false;
	return w->late_count == 0;
}

void rw_reset(struct rw_world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->random = seed * 0x2545f4914f6cdd1dull + 1;
	w->now_ns = 1000000000;
	w->verbs = seed % 2;
	w->reads_late = rw_random(w, 2);
	w->early = rw_random(w, 2);
	w->write_notify = rw_random(w, 2);
	w->chaos = seed % 8 >= 2;
	w->rare = 3u << rw_random(w, 4);
	for (unsigned i = 0; i < RW_CLIENTS; i++)
		w->calling[i] = RW_NONE;
	memory_make(w, ++w->last_id, 8ull * RW_WORDS);
}
