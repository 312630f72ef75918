/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-sim.c - endpoints whose requests take effect one word at a time
 *
 * One thread, no globals. post() only puts requests into the endpoint's queue; sim_step() lets one
 * word of the queue take effect. What may be mixed with what is decided in candidate(); everything
 * else is bookkeeping. Next: sim-memory.c, schedule.c.
 */
#include "fabric-sim.h"

#include "shadow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tarn/tarn.h"

static struct sim_endpoint *endpoint(struct fabric_endpoint *ep)
{
	return (struct sim_endpoint *)ep;
}

/* ---- posting -------------------------------------------------------------------------------- */

static bool request_valid(const struct sim *sim, const struct fabric_request *r)
{
	bool atomic = r->opcode == FABRIC_CAS || r->opcode == FABRIC_FAA;

	if (r->length == 0 || r->offset > sim->bytes || r->length > sim->bytes - r->offset)
		return false;
	if ((r->flags & FABRIC_INLINE) && r->length > FABRIC_INLINE_BYTES)
		return false;
	return !atomic || (r->length == 8 && r->offset % 8 == 0);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* The order of a request's words: ascending, descending, or any that steps round. */
static void choose_order(struct sim *sim, struct sim_flight *f)
{
	f->first = 0;
	f->stride = 1;
	if (!sim->tuning.shuffle || f->pieces < 2)
		return;
	switch (sim_below(sim, 3)) {
	case 0:
		break;
	case 1:
		f->first = f->pieces - 1;
		f->stride = f->pieces - 1;
		break;
	default:
		f->first = (uint32_t)sim_below(sim, f->pieces);
		f->stride = 1 + (uint32_t)sim_below(sim, f->pieces - 1);
		while (gcd(f->pieces, f->stride) != 1)
			f->stride = f->stride % (f->pieces - 1) + 1;
		break;
	}
}

static bool queue_room(struct sim_endpoint *ep, unsigned count)
{
	struct sim_flight *more;

	if (ep->count + count <= ep->size)
		return true;
	more = malloc((size_t)ep->size * 2 * sizeof(*more));
	if (!more)
		return false;
	for (uint32_t i = 0; i < ep->count; i++)
		more[i] = ep->flights[(ep->head + i) % ep->size];
	free(ep->flights);
	ep->flights = more;
	ep->head = 0;
	ep->size *= 2;
	return queue_room(ep, count);
}

static bool calm(const struct sim_endpoint *ep)
{
	return ep->sim->tuning.calm_clients >> ep->client & 1;
}

/*
 * When a post may take effect: now; a while later on the network (T3); or the client was stopped
 * before it could post.
 */
static uint64_t choose_ready(struct sim_endpoint *ep, bool waited_for, uint64_t *ret_posted)
{
	struct sim *sim = ep->sim;
	uint64_t spread = (sim->geometry.grace_ns - sim->geometry.deadline_ns) / 2;

	*ret_posted = sim->now_ns;
	if (calm(ep))
		return *ret_posted;
	if (waited_for && sim_chance(sim, sim->tuning.post_stalls)) {
		*ret_posted += sim_stall(sim, sim->longest_prepost_ns);
		sim_tracef(sim, "c%u is stopped before it posts, until %llu us", ep->client,
			   (unsigned long long)*ret_posted / 1000);
	}
	if (sim_chance(sim, sim->tuning.delays))
		return *ret_posted + sim_below(sim, spread);
	return *ret_posted;
}

static int sim_post(struct fabric_endpoint *base, const struct fabric_request *requests,
		    unsigned count, void *cookie)
{
	struct sim_endpoint *ep = endpoint(base);
	struct sim *sim = ep->sim;
	uint64_t posted, ready;

	if (count == 0 || count > FABRIC_POST_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < count; i++)
		if (!request_valid(sim, &requests[i]))
			return -EINVAL;
	if (ep->dead || ep->broken)
		return -TARN_ESESSION;
	if (!queue_room(ep, count))
		return -ENOMEM;
	ready = choose_ready(ep, cookie != NULL, &posted);
	for (unsigned i = 0; i < count; i++) {
		const struct fabric_request *r = &requests[i];
		struct sim_flight *f = &ep->flights[(ep->head + ep->count++) % ep->size];

		f->request = *r;
		f->pieces = (uint32_t)((r->offset + r->length + 7) / 8 - r->offset / 8);
		f->done = 0;
		f->finished = false;
		f->last = i == count - 1;
		f->cookie = cookie;
		f->ready_ns = ready;
		f->due_ns = posted + (sim->geometry.grace_ns - sim->geometry.deadline_ns) * 3 / 4;
		if (r->opcode == FABRIC_WRITE && (r->flags & FABRIC_INLINE))
			memcpy(f->data, r->local, r->length);
		choose_order(sim, f);
	}
	return 0;
}

/* ---- taking effect -------------------------------------------------------------------------- */

static struct sim_flight *flight_at(const struct sim_endpoint *ep, uint32_t i)
{
	return &ep->flights[(ep->head + i) % ep->size];
}

/* A word of a WRITE that will come late, instead of now. */
static bool make_late(struct sim_endpoint *ep, uint64_t offset, const uint8_t *data, uint32_t bytes)
{
	struct sim *sim = ep->sim;
	struct sim_late *late;

	if (!sim->tuning.late_writes || sim->late_count == SIM_LATE_MAX || !sim_chance(sim, 128))
		return false;
	late = &sim->late[sim->late_count++];
	late->client = ep->client;
	late->bytes = bytes;
	late->offset = offset;
	late->step = sim->step + 1 + sim_below(sim, 300);
	memcpy(late->data, data, bytes);
	return true;
}

/* A WRITE is about to begin. */
static void watch(struct sim_endpoint *ep, const struct sim_flight *f)
{
	const struct layout_geometry *g = &ep->sim->geometry;
	const struct fabric_request *r = &f->request;

	if (r->opcode != FABRIC_WRITE)
		return;
	if (r->offset >= g->pages_offset)
		shadow_write(ep->sim, ep->slot, r->offset);
	else if (r->offset >= g->free_map_offset && r->offset < g->reference_map_offset)
		shadow_map(ep->sim, ep->slot, r->offset,
			   r->flags & FABRIC_INLINE ? f->data[0] : *(const uint8_t *)r->local);
}

/* One word of a READ or WRITE. */
static void move_piece(struct sim_endpoint *ep, struct sim_flight *f)
{
	const struct fabric_request *r = &f->request;
	uint64_t index = (f->first + (uint64_t)f->done * f->stride) % f->pieces;
	uint64_t from = (r->offset / 8 + index) * 8, to = from + 8;
	uint8_t *local;

	if (from < r->offset)
		from = r->offset;
	if (to > r->offset + r->length)
		to = r->offset + r->length;
	local = (r->flags & FABRIC_INLINE) && r->opcode == FABRIC_WRITE ? f->data : r->local;
	local += from - r->offset;
	if (r->opcode == FABRIC_READ)
		memcpy(local, ep->sim->pool + from, to - from);
	else if (r->length <= 8 || !make_late(ep, from, local, (uint32_t)(to - from)))
		sim_write(ep->sim, from, local, to - from);
}

static void trace_flight(const struct sim_endpoint *ep, const struct sim_flight *f, uint64_t was)
{
	static const char *const names[] = {"READ", "WRITE", "CAS", "FAA"};
	const struct fabric_request *r = &f->request;
	char where[96];

	if (!ep->sim->trace)
		return;
	sim_where(ep->sim, r->offset, where, sizeof(where));
	if (r->opcode == FABRIC_CAS)
		sim_tracef(ep->sim, "c%u   CAS %s: %llx -> %llx, was %llx: %s", ep->client, where,
			   (unsigned long long)r->compare, (unsigned long long)r->operand,
			   (unsigned long long)was, was == r->compare ? "done" : "failed");
	else if (r->opcode == FABRIC_FAA)
		sim_tracef(ep->sim, "c%u   FAA %s: + %lld, was %llx", ep->client, where,
			   (long long)r->operand, (unsigned long long)was);
	else if (r->opcode == FABRIC_READ && r->length == 8)
		sim_tracef(ep->sim, "c%u   READ %s: %llx", ep->client, where,
			   (unsigned long long)*(const uint64_t *)r->local);
	else if (f->done == 0)
		sim_tracef(ep->sim, "c%u   %s %s, %u bytes begins", ep->client, names[r->opcode],
			   where, r->length);
	else
		sim_tracef(ep->sim, "c%u   %s %s, %u bytes ends", ep->client, names[r->opcode],
			   where, r->length);
}

static void do_atomic(struct sim_endpoint *ep, struct sim_flight *f)
{
	const struct fabric_request *r = &f->request;
	uint64_t was = sim_word(ep->sim, r->offset);

	memcpy(r->local, &was, 8);
	if (r->opcode == FABRIC_FAA) {
		shadow_add(ep->sim, "a client", r->offset);
		sim_set_word(ep->sim, r->offset, was + r->operand);
	} else if (was == r->compare) {
		sim_set_word(ep->sim, r->offset, r->operand);
	}
	f->done = f->pieces;
	trace_flight(ep, f, was);
}

static void note_entry(struct sim_endpoint *ep, uint64_t place, uint64_t entry)
{
	const struct layout_geometry *g = &ep->sim->geometry;
	bool fits = false;

	if (layout_ring_page(entry) >= g->npages || ep->named_count == SIM_NAMED)
		return;
	for (uint64_t i = 0; i < ep->drawn; i++)
		fits |= ((ep->ticket + i) & (g->ring_entries - 1)) == place &&
			(uint32_t)(ep->ticket + i) == layout_ring_ticket(entry);
	ep->named[ep->named_count++] = (struct sim_named){
		.offset = layout_page_word_offset(g, layout_ring_page(entry)), .fits = fits};
}

/* Only entries of other tickets lead to it. */
static bool misled(const struct sim_endpoint *ep, uint64_t offset)
{
	bool any = false;

	for (unsigned i = 0; i < ep->named_count; i++) {
		if (ep->named[i].offset != offset)
			continue;
		if (ep->named[i].fits)
			return false;
		any = true;
	}
	return any;
}

/* Section 5: an entry counts only for the ticket that it carries. A request has taken effect. */
static void watch_ticket(struct sim_endpoint *ep, const struct fabric_request *r)
{
	const struct layout_geometry *g = &ep->sim->geometry;
	uint64_t ring = layout_ring_offset(g, 1) - layout_ring_offset(g, 0),
		 at = r->offset - g->ready_rings_offset;
	bool in_ring = r->offset >= g->ready_rings_offset && at < LAYOUT_CLASSES * ring;
	bool in_table = r->offset >= g->page_table_offset &&
			r->offset < layout_page_word_offset(g, g->npages);

	/* with several operations at a time it is not told whose request comes next */
	if (ep->sim->tuning.pipelined)
		return;
	if (in_ring && r->opcode == FABRIC_READ && at % ring >= LAYOUT_RING_ENTRIES) {
		for (uint32_t i = 0; i < r->length / 8; i++)
			note_entry(ep, (at % ring - LAYOUT_RING_ENTRIES) / 8 + i,
				   ((uint64_t *)r->local)[i]);
		return;
	}
	/* the words of all pages that the entries name are read in one post */
	if (r->opcode != FABRIC_READ || !in_table)
		ep->named_count = 0;
	for (uint32_t i = 0; ep->named_count && i < r->length; i += 8)
		if (misled(ep, r->offset + i))
			shadow_misled(ep->sim, ep->slot, r->offset + i);
	if (in_ring && r->opcode == FABRIC_FAA) {
		ep->ticket = *(uint64_t *)r->local;
		ep->drawn = r->operand;
	}
}

/*
 * Which request takes the next step? The first that is not finished, or one that may pass those
 * before it.
 */
static struct sim_flight *candidate(struct sim_endpoint *ep)
{
	struct sim_flight *allowed[4];
	unsigned n = 0;

	for (uint32_t i = 0; i < ep->count && n < 4; i++) {
		struct sim_flight *f = flight_at(ep, i);

		/* everything in front of it, so far, is finished or a READ */
		if (f->ready_ns > ep->sim->now_ns)
			break;
		if (f->finished)
			continue;
		if (n && f->request.opcode != FABRIC_READ &&
		    (!ep->sim->tuning.reads_late || (f->request.flags & FABRIC_FENCE)))
			break;
		allowed[n++] = f;
		if (f->request.opcode != FABRIC_READ)
			break;
	}
	return n ? allowed[n == 1 ? 0 : sim_below(ep->sim, n)] : NULL;
}

/* Finished requests leave the queue in order; the last of a post brings its completion. */
static void pop_finished(struct sim_endpoint *ep)
{
	while (ep->count && flight_at(ep, 0)->finished) {
		struct sim_flight *f = flight_at(ep, 0);

		ep->head = (ep->head + 1) % ep->size;
		ep->count--;
		if (f->last && f->cookie && !ep->dead)
			sim_complete(ep, &(struct fabric_completion){.cookie = f->cookie});
	}
}

/*
 * Somebody on shared memory may be stopped between any two words. Only while it waits: it does
 * nothing else then.
 */
static void maybe_freeze(struct sim_endpoint *ep)
{
	struct sim *sim = ep->sim;

	if (!sim->tuning.stoppable || calm(ep) || !ep->count ||
	    !flight_at(ep, ep->count - 1)->cookie ||
	    sim_below(sim, 16384) >= sim->tuning.post_stalls)
		return;
	ep->frozen_ns = sim->now_ns + sim_stall(sim, sim->longest_prepost_ns);
	sim_tracef(sim, "c%u is stopped in its post until %llu us", ep->client,
		   (unsigned long long)ep->frozen_ns / 1000);
}

void sim_step(struct sim_endpoint *ep)
{
	struct sim_flight *f = candidate(ep);
	uint64_t run = 1;

	if (!f)
		return;
	if (f->request.opcode == FABRIC_CAS || f->request.opcode == FABRIC_FAA) {
		do_atomic(ep, f);
	} else {
		/* long transfers in bigger steps: who looks at the single words of a free map? */
		if (f->pieces > 64)
			run = 1 + sim_below(ep->sim, f->pieces / 4);
		if (f->done == 0)
			watch(ep, f);
		if (f->done == 0 && f->pieces > 1)
			trace_flight(ep, f, 0);
		for (; run && f->done < f->pieces; run--, f->done++)
			move_piece(ep, f);
		if (f->done == f->pieces)
			trace_flight(ep, f, 0);
	}
	if (f->done == f->pieces) {
		f->finished = true;
		if (f->request.opcode != FABRIC_WRITE)
			watch_ticket(ep, &f->request);
		pop_finished(ep);
	}
	maybe_freeze(ep);
}

uint64_t sim_ready(const struct sim_endpoint *ep)
{
	uint64_t ready;

	if (!ep->count || ep->fenced)
		return SIM_NEVER;
	ready = flight_at(ep, 0)->ready_ns;
	return ready > ep->frozen_ns ? ready : ep->frozen_ns;
}

bool sim_due(const struct sim_endpoint *ep)
{
	return ep->count && !ep->fenced && !ep->sim->tuning.stoppable &&
	       flight_at(ep, 0)->due_ns <= ep->sim->now_ns;
}

/* ---- completions ---------------------------------------------------------------------------- */

void sim_complete(struct sim_endpoint *ep, const struct fabric_completion *completion)
{
	struct sim *sim = ep->sim;
	struct sim_done *done = &ep->done[(ep->done_head + ep->done_count) % SIM_DONE_MAX];

	if (ep->done_count == SIM_DONE_MAX)
		abort(); /* a task waits for one post at a time */
	ep->done_count++;
	done->completion = *completion;
	done->visible_ns = sim->now_ns;
	if (!calm(ep) && sim_chance(sim, sim->tuning.stalls)) {
		done->visible_ns += sim_stall(sim, sim->tuning.longest_stall_ns);
		sim_tracef(sim, "c%u is stopped until %llu us", ep->client,
			   (unsigned long long)done->visible_ns / 1000);
	}
}

uint64_t sim_visible(const struct sim_endpoint *ep)
{
	return ep->done_count ? ep->done[ep->done_head].visible_ns : SIM_NEVER;
}

static int sim_poll(struct fabric_endpoint *base, struct fabric_completion *ret_completions,
		    unsigned max)
{
	struct sim_endpoint *ep = endpoint(base);
	unsigned n = 0;

	while (n < max && ep->done_count && ep->done[ep->done_head].visible_ns <= ep->sim->now_ns) {
		ret_completions[n++] = ep->done[ep->done_head].completion;
		ep->done_head = (ep->done_head + 1) % SIM_DONE_MAX;
		ep->done_count--;
	}
	return n == 0 && !ep->done_count && ep->broken ? -TARN_ESESSION : (int)n;
}

/* ---- ends of a connection ------------------------------------------------------------------- */

static void cut(struct sim_endpoint *ep)
{
	struct sim *sim = ep->sim;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < sim->late_count; i++)
		if (sim->late[i].client != ep->client)
			sim->late[kept++] = sim->late[i];
	sim->late_count = kept;
	ep->count = 0;
	ep->message_count = 0;
	ep->fenced = true;
}

void sim_kill(struct sim *sim, unsigned client)
{
	struct sim_endpoint *ep = &sim->endpoints[client];

	sim_tracef(sim, "c%u is killed, %u requests of it on their way", client, ep->count);
	if (sim->tuning.stoppable)
		cut(ep);
	ep->done_count = 0;
	ep->dead = true;
	if (ep->open && !ep->broken)
		sim_daemon_disconnect(sim->daemon, client, ep->slot);
}

void sim_break(struct sim *sim, unsigned client)
{
	struct sim_endpoint *ep = &sim->endpoints[client];
	void *cookie = NULL;

	for (uint32_t i = 0; i < ep->count; i++)
		if (flight_at(ep, i)->cookie)
			cookie = flight_at(ep, i)->cookie;
	if (ep->asking)
		cookie = ep->asked;
	sim_tracef(sim, "c%u loses its connection, %u requests of it on their way", client,
		   ep->count);
	cut(ep);
	ep->broken = true;
	/* of an orphan the daemon hears when its memory is unmapped */
	if (!ep->orphaned)
		sim_daemon_disconnect(sim->daemon, client, ep->slot);
	if (cookie)
		sim_complete(ep, &(struct fabric_completion){.cookie = cookie,
							     .status = -TARN_ESESSION});
}

void sim_orphan(struct sim *sim, unsigned client)
{
	struct sim_endpoint *ep = &sim->endpoints[client];
	void *cookie = ep->asking ? ep->asked : NULL;

	ep->message_count = 0;
	ep->asking = false;
	ep->orphaned = true;
	if (cookie)
		sim_complete(ep, &(struct fabric_completion){.cookie = cookie,
							     .status = -TARN_ESESSION});
}

void sim_fence(struct sim *sim, unsigned client, uint32_t slot)
{
	struct sim_endpoint *ep = &sim->endpoints[client];

	/* the client may have another connection by now */
	if (ep->slot == slot && (ep->dead || ep->broken) && !ep->fenced)
		cut(ep);
}

/* ---- the rest of fabric_ops ----------------------------------------------------------------- */

/* A message that was given up is done by the daemon all the same, unless too many wait. */
static struct sim_message *message_add(struct sim_endpoint *ep)
{
	if (ep->message_count == SIM_MESSAGES) {
		memmove(ep->messages, ep->messages + 1,
			(SIM_MESSAGES - 1) * sizeof(ep->messages[0]));
		ep->message_count--;
	}
	return &ep->messages[ep->message_count++];
}

static int sim_rpc(struct fabric_endpoint *base, const void *message, size_t bytes, void *reply,
		   size_t capacity, void *cookie)
{
	struct sim_endpoint *ep = endpoint(base);
	struct sim_message *m;
	uint64_t posted;

	if (ep->dead || ep->broken || ep->orphaned)
		return -TARN_ESESSION;
	if (bytes > sizeof(m->bytes))
		return -EINVAL;
	if (ep->asking)
		return -EBUSY;
	m = message_add(ep);
	*m = (struct sim_message){
		.length = bytes, .reply = reply, .capacity = capacity, .cookie = cookie};
	memcpy(m->bytes, message, bytes);
	m->ready_ns = choose_ready(ep, true, &posted);
	ep->asking = true;
	ep->asked = cookie;
	return 0;
}

/* It has come, and nobody has seen it yet. */
static void drop_answer(struct sim_endpoint *ep)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < ep->done_count; i++) {
		uint32_t from = (ep->done_head + i) % SIM_DONE_MAX;

		if (ep->done[from].completion.cookie != ep->asked)
			ep->done[(ep->done_head + kept++) % SIM_DONE_MAX] = ep->done[from];
	}
	ep->done_count = kept;
}

static void sim_rpc_cancel(struct fabric_endpoint *base)
{
	struct sim_endpoint *ep = endpoint(base);

	for (uint32_t i = 0; i < ep->message_count; i++)
		ep->messages[i].cancelled = true;
	drop_answer(ep);
	ep->asking = false;
	ep->cancels++;
}

static int sim_wait(struct fabric_endpoint *base, uint64_t timeout_ns)
{
	(void)base;
	(void)timeout_ns;
	return 0;
}

static int sim_check(struct fabric_endpoint *base)
{
	return endpoint(base)->broken || endpoint(base)->orphaned ? -TARN_ESESSION : 0;
}

static int sim_fd(struct fabric_endpoint *base)
{
	(void)base;
	return -1;
}

static uint64_t sim_clock(struct fabric_endpoint *base)
{
	/*
	 * a task that waits in a loop for time to pass would hang here; it is to give way instead
	 * (task->wake_ns)
	 */
	return sim_local(endpoint(base)->sim->now_ns, endpoint(base)->drift);
}

static void sim_close(struct fabric_endpoint *base)
{
	struct sim_endpoint *ep = endpoint(base);

	/* a daemon that does not know of it sees that nobody has the memory mapped any more */
	if (ep->orphaned && ep->open)
		sim_daemon_disconnect(ep->sim->daemon, ep->client, ep->slot);
	ep->open = false;
}

static const struct fabric_ops sim_ops = {
	.name = "sim",
	.post = sim_post,
	.rpc = sim_rpc,
	.rpc_cancel = sim_rpc_cancel,
	.poll = sim_poll,
	.wait = sim_wait,
	.check = sim_check,
	.fd = sim_fd,
	.now = sim_clock,
	.close = sim_close,
};

struct fabric_endpoint *sim_connect(struct sim *sim, unsigned client, uint32_t slot,
				    uint32_t client_id)
{
	struct sim_endpoint *ep = &sim->endpoints[client];
	struct sim_flight *flights = ep->flights;
	uint32_t size = ep->size;

	*ep = (struct sim_endpoint){.sim = sim,
				    .client = client,
				    .slot = slot,
				    .client_id = client_id,
				    .serial = ++sim->serial,
				    .drift = ep->drift,
				    .open = true,
				    .flights = flights,
				    .size = size};
	ep->base.ops = &sim_ops;
	ep->base.pool_bytes = sim->bytes;
	/* groups of gets read one bucket pair after the other, or both at once */
	ep->base.features =
		(sim->tuning.faa ? FABRIC_COUNTER_FAA : 0) | (sim->serial % 2 ? FABRIC_NEAR : 0);
	return &ep->base;
}
