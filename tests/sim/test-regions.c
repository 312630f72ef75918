/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-regions.c - schedules of accesses to a region, from seeds, and what each call may have done
 *
 *	test-regions [--schedules N] [--first SEED] [--mutation M]
 *	test-regions --mutations [--schedules N]     each protection taken away (a build with TARN_MUTATIONS)
 *
 * Several clients, each with the real client/region-task.c on a session of its own, one call at a time, some of
 * them cut. Judged by tarn/region.h: a call that has worked has done all of it, once, in its order, in its time, and
 * in the region that it was opened for; one that says it has changed nothing never does. Prints TAP. Next:
 * region-world.h.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "mutation.h"
#include "region-world.h"

#ifdef TARN_MUTATIONS
int tarn_mutation;
#endif

#define STEPS      5000u
#define STEPS_END  400000u
#define TIMEOUT_MS 12
#define POOL_BYTES (4u << 20)

struct client {
	struct session_connector connector; /* first */
	struct rw_world *world;
	struct layout_geometry geometry;
	struct tarn_session *session;
	struct tarn_region region;
	struct region_task task;
	unsigned number;
	bool busy;
	uint64_t seen[RW_WORDS]; /* for CAS: what a word was */
	uint64_t sequence;
};

struct bench {
	struct rw_world world;
	struct client clients[RW_CLIENTS];
	struct layout_geometry geometry;
	uint64_t calls, worked, ambiguous, broken, gone, waits;
};

/* ---- what was done --------------------------------------------------------------------------- */

static bool changes(enum fabric_opcode opcode)
{
	return opcode != FABRIC_READ;
}

static uint32_t op_words(const struct tarn_region_op *op)
{
	return op->kind == TARN_REGION_READ || op->kind == TARN_REGION_WRITE
		       ? (uint32_t)(op->bytes / 8)
		       : 1;
}

/* How often a word of an access has taken effect; *ret_at: the last of these events. */
static unsigned events_of(const struct rw_world *w, uint32_t call, uint32_t op, uint32_t word,
			  uint32_t *ret_at)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < w->event_count; i++) {
		const struct rw_event *e = &w->events[i];

		if (e->call != call || e->op != op || e->word != word)
			continue;
		*ret_at = i;
		count++;
	}
	return count;
}

static bool has_changes(const struct rw_call *call)
{
	for (uint32_t i = 0; i < call->count; i++)
		if (call->ops[i].kind != TARN_REGION_READ)
			return true;
	return false;
}

/* Nothing in the call comes behind this access for which it would have to be there already. */
static bool trails(const struct rw_call *call, uint32_t op)
{
	if (call->goal == REGION_NOTIFY)
		return false;
	for (uint32_t i = op; i < call->count; i++)
		if (call->ops[i].kind != TARN_REGION_WRITE)
			return false;
	return true;
}

/* The call has worked: an access is there, all of it, and says what was there. */
static void check_access(struct rw_world *w, uint32_t number, uint32_t op)
{
	const struct rw_call *call = &w->calls[number];
	const struct tarn_region_op *o = &call->ops[op];
	bool may_come = trails(call, op);

	for (uint32_t i = 0; i < op_words(o); i++) {
		uint32_t at = 0;
		unsigned count = events_of(w, number, op, (uint32_t)(o->offset / 8) + i, &at);
		const struct rw_event *e = &w->events[at];

		if (count == 0 && may_come)
			continue;
		if (count != 1)
			rw_fail(w, "call %u has worked: a word of its access %u took effect %u times",
				number, op, count);
		else if (e->gone)
			rw_fail(w, "call %u has worked, in memory that was nobody's", number);
		else if (e->ns < call->began_ns || (!may_come && e->ns > call->ended_ns))
			rw_fail(w, "call %u has worked: its access %u took effect at another time", number,
				op);
		else if (o->kind == TARN_REGION_READ && call->buffers[op][i] != e->value)
			rw_fail(w, "call %u returns another word than it has read", number);
		else if (o->kind >= TARN_REGION_CAS && o->before != e->value)
			rw_fail(w, "call %u: its access %u says that the word was another one", number, op);
	}
}

/* Of two accesses that are not both reads, the first one comes first. */
static void check_order(struct rw_world *w, uint32_t number)
{
	const struct rw_call *call = &w->calls[number];
	uint32_t first[RW_OPS], last[RW_OPS];

	for (uint32_t i = 0; i < RW_OPS; i++) {
		first[i] = RW_NONE;
		last[i] = 0;
	}
	for (uint32_t i = 0; i < w->event_count; i++) {
		const struct rw_event *e = &w->events[i];

		if (e->call != number || e->op == RW_NONE)
			continue;
		if (first[e->op] == RW_NONE)
			first[e->op] = i;
		last[e->op] = i;
	}
	for (uint32_t i = 0; i < call->count; i++)
		for (uint32_t k = i + 1; k < call->count; k++)
			if (first[i] != RW_NONE && first[k] != RW_NONE && last[i] > first[k] &&
			    (call->ops[i].kind != TARN_REGION_READ ||
			     call->ops[k].kind != TARN_REGION_READ))
				rw_fail(w, "call %u: its access %u overtakes access %u", number, k, i);
}

/* What it did was in the region that the handle is for, as long as that was there. */
static void check_place(struct rw_world *w, uint32_t number)
{
	const struct rw_call *call = &w->calls[number];

	for (uint32_t i = 0; i < w->event_count; i++) {
		const struct rw_event *e = &w->events[i];
		const struct rw_memory *m = &w->memories[e->memory];

		if (e->call == number && (m->id != call->id || m->bytes != call->bytes))
			rw_fail(w, "call %u is on region %llu, and touches region %llu", number,
				(unsigned long long)call->id, (unsigned long long)m->id);
	}
}

/* What the session has written before, on this connection, is there behind this call. */
static void check_flushed(struct rw_world *w, uint32_t number)
{
	const struct rw_call *call = &w->calls[number];
	bool flushes = call->goal == REGION_FLUSH ||
		       (call->goal == REGION_ACCESS &&
			call->ops[call->count - 1].kind != TARN_REGION_WRITE);

	for (uint32_t i = 0; flushes && i < number; i++) {
		const struct rw_call *before = &w->calls[i];
		uint32_t at;

		if (before->client != call->client || before->result || before->broken ||
		    before->lost_later)
			continue;
		for (uint32_t op = 0; op < before->count; op++)
			for (uint32_t word = 0; word < op_words(&before->ops[op]); word++)
				if (!events_of(w, i, op,
					       (uint32_t)(before->ops[op].offset / 8) + word, &at))
					rw_fail(w, "call %u has returned, and the write of call %u is not there",
						number, i);
	}
}

static void check_worked(struct rw_world *w, uint32_t number)
{
	for (uint32_t op = 0; op < w->calls[number].count; op++)
		check_access(w, number, op);
	check_flushed(w, number);
}

/* ---- how it ended ---------------------------------------------------------------------------- */

/* Has this region been there and gone, or changed its size? */
static bool went(const struct rw_world *w, const struct rw_call *call)
{
	const struct rw_memory *m = w->current == RW_NONE ? NULL : &w->memories[w->current];

	if (call->id == 0)
		return w->memory_count > 1 || !m || !m->alive;
	return !m || !m->alive || m->id != call->id || m->bytes != call->bytes;
}

static bool may_return(const struct rw_world *w, const struct rw_call *call)
{
	switch (call->result) {
	case 0:
		return true;
	case -TARN_ENOREGION:
		return went(w, call);
	case -TARN_EAMBIGUOUS:
		return (call->broken || call->slow) && has_changes(call);
	case -TARN_ESESSION:
		return call->broken;
	case -TARN_ETIMEOUT:
		return call->slow || (call->goal == REGION_WAIT && call->quiet);
	default:
		return false;
	}
}

static void check_wait(struct client *c, const struct rw_call *call)
{
	struct rw_world *w = c->world;
	const struct rw_memory *m = w->current == RW_NONE ? NULL : &w->memories[w->current];

	if (call->result == 0 && c->task.sequence == call->sequence)
		rw_fail(w, "a wait returns, and nobody has notified");
	/* in front of that its time was over when the daemon's answer came: the next wait hears of it */
	if (call->quiet && c->task.step == REGION_LISTENING && !call->broken && m && m->open &&
	    m->id == call->id && m->sequence != c->task.sequence)
		rw_fail(w, "client %u: a notification has woken nobody", c->number);
}

static void learn(struct client *c, const struct rw_call *call)
{
	for (uint32_t i = 0; i < call->count; i++) {
		const struct tarn_region_op *op = &call->ops[i];

		if (op->kind == TARN_REGION_CAS)
			c->seen[op->offset / 8] = op->before == op->compare ? op->operand : op->before;
		for (uint32_t k = 0; op->kind == TARN_REGION_READ && k < op_words(op); k++)
			c->seen[op->offset / 8 + k] = call->buffers[i][k];
	}
}

static void count(struct bench *b, const struct rw_call *call)
{
	b->calls++;
	b->worked += call->result == 0;
	b->ambiguous += call->result == -TARN_EAMBIGUOUS;
	b->broken += call->broken;
	b->gone += call->result == -TARN_ENOREGION;
	b->waits += call->goal == REGION_WAIT && call->result == 0;
}

static void handle_new(struct client *c)
{
	struct rw_world *w = c->world;
	unsigned space = 1 + (unsigned)rw_random(w, TARN_REGION_OPEN_MAX);

	c->region = (struct tarn_region){.session = c->session, .name = "r", .space = space};
	memset(c->seen, 0, sizeof(c->seen));
}

static void call_end(struct bench *b, struct client *c)
{
	struct rw_world *w = c->world;
	uint32_t number = w->calling[c->number];
	struct rw_call *call = &w->calls[number];

	if (call->id && (c->region.id != call->id || c->region.bytes != call->bytes))
		rw_fail(w, "call %u: its handle has become another region's", number);
	call->id = c->region.id;
	call->bytes = c->region.bytes;
	call->result = c->task.task.result;
	call->quiet = c->task.quiet;
	call->ended_ns = w->now_ns;
	call->ended = true;
	w->calling[c->number] = RW_NONE;
	c->busy = false;
	if (!may_return(w, call))
		rw_fail(w, "call %u of client %u returned %s (%s)", number, c->number,
			err_name(call->result), err_text());
	if (call->goal == REGION_WAIT)
		check_wait(c, call);
	if (call->goal == REGION_WAIT && call->result == 0)
		c->sequence = c->task.sequence;
	check_place(w, number);
	check_order(w, number);
	if (call->result == 0) {
		check_worked(w, number);
		learn(c, call);
	}
	count(b, call);
	if (c->region.gone || call->result == -TARN_ENOREGION)
		handle_new(c);
}

/* When nothing can come any more. */
static void check_end(struct rw_world *w)
{
	for (uint32_t n = 0; n < w->call_count; n++) {
		const struct rw_call *call = &w->calls[n];
		bool never = call->result == -TARN_ESESSION || call->result == -TARN_ETIMEOUT;

		check_order(w, n);
		check_place(w, n);
		for (uint32_t op = 0; op < call->count; op++)
			for (uint32_t i = 0; i < op_words(&call->ops[op]); i++) {
				uint32_t at = 0;
				unsigned times = events_of(w, n, op, (uint32_t)(call->ops[op].offset / 8) + i, &at);

				if (times == 0 && call->result == 0 && !call->broken && !call->lost_later)
					rw_fail(w, "call %u has worked, and its access %u is nowhere", n, op);
				if (times == 0 || !changes((enum fabric_opcode)w->events[at].opcode))
					continue;
				if (times > 1)
					rw_fail(w, "call %u: its access %u took effect %u times", n, op, times);
				if (never)
					rw_fail(w, "call %u says that it has changed nothing, and has", n);
			}
	}
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Words 0 to 7 are added to, 8 to 15 compared and swapped, those behind them written; all are read. */
static void access_make(struct client *c, struct rw_call *call, uint32_t number)
{
	struct rw_world *w = c->world;
	struct tarn_region_op *op = &call->ops[call->count];
	uint64_t words = 1 + rw_random(w, RW_MOST), limit = c->region.bytes / 8, at;

	switch (rw_random(w, 4)) {
	case 0:
		at = rw_random(w, limit - words + 1);
		*op = (struct tarn_region_op){.kind = TARN_REGION_READ, .offset = at * 8, .bytes = words * 8};
		break;
	case 1:
		at = 16 + rw_random(w, limit - 16 - words + 1);
		*op = (struct tarn_region_op){.kind = TARN_REGION_WRITE, .offset = at * 8, .bytes = words * 8};
		break;
	case 2:
		at = 8 + rw_random(w, 8);
		*op = (struct tarn_region_op){.kind = TARN_REGION_CAS,
					      .offset = at * 8,
					      .compare = c->seen[at],
					      .operand = (number + 1ull) << 8 | call->count};
		break;
	default:
		*op = (struct tarn_region_op){
			.kind = TARN_REGION_FAA, .offset = rw_random(w, 8) * 8, .operand = 1};
		break;
	}
	op->buffer = call->buffers[call->count];
	for (unsigned i = 0; i < RW_MOST; i++)
		call->buffers[call->count][i] = (number + 1ull) << 16 | call->count << 8 | i;
	call->count++;
}

/* Outside of the region, or crooked: refused, and nothing of it is posted (region-world.c would see it). */
static void check_refused(struct client *c)
{
	struct rw_world *w = c->world;
	uint64_t word = 0, bytes = c->region.bytes;
	const struct tarn_region_op bad[] = {
		{.kind = TARN_REGION_READ, .offset = bytes - 8, .buffer = &word, .bytes = 16},
		{.kind = TARN_REGION_WRITE, .offset = bytes + 8, .buffer = &word, .bytes = 8},
		{.kind = TARN_REGION_WRITE, .offset = UINT64_MAX - 7, .buffer = &word, .bytes = 16},
		{.kind = TARN_REGION_READ, .offset = 8, .buffer = &word, .bytes = UINT64_MAX - 7},
		{.kind = TARN_REGION_CAS, .offset = bytes},
		{.kind = TARN_REGION_FAA, .offset = 4},
		{.kind = 5, .offset = 8},
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (region_check(&c->region, &bad[i], 1) != -EINVAL)
			rw_fail(w, "access %u, which is outside of the region, is not refused", i);
}

static void call_fill(struct client *c, struct rw_call *call, uint32_t number)
{
	struct rw_world *w = c->world;
	unsigned kind = c->region.id ? (unsigned)rw_random(w, 10) : 10;

	call->goal = REGION_ACCESS;
	if (kind == 10) {
		call->goal = REGION_ATTACH;
	} else if (kind == 9) {
		call->goal = REGION_FLUSH;
	} else if (kind == 8) {
		call->goal = REGION_WAIT;
	} else if (kind >= 6) {
		call->goal = REGION_NOTIFY;
		while (!call->count || call->ops[0].kind != TARN_REGION_WRITE) {
			call->count = 0;
			access_make(c, call, number);
		}
	} else {
		for (uint64_t n = kind < 3 ? 1 : 2 + rw_random(w, RW_OPS - 1); n; n--)
			access_make(c, call, number);
		check_refused(c);
	}
}

static void call_begin(struct client *c)
{
	struct rw_world *w = c->world;
	uint32_t number = w->call_count++;
	struct rw_call *call = &w->calls[number];

	*call = (struct rw_call){.client = c->number,
				 .id = c->region.id,
				 .bytes = c->region.bytes,
				 .began_ns = w->now_ns,
				 .sequence = c->sequence};
	call_fill(c, call, number);
	call->broken = !w->endpoints[c->number] || w->endpoints[c->number]->broken;
	w->calling[c->number] = number;
	region_task(&c->task, &c->region, call->goal, call->count ? call->ops : NULL, call->count);
	c->task.sequence = call->sequence;
	if (call->goal == REGION_WAIT)
		c->task.listen_until_ns = w->now_ns + rw_random(w, 6000000);
	c->busy = true;
}

/* ---- a client's turn ------------------------------------------------------------------------- */

static int reconnect(struct session_connector *connector, uint64_t timeout_ns,
		     struct session_link *ret_link, enum session_again *ret_again,
		     uint64_t *ret_wait_ns)
{
	struct client *c = (struct client *)connector;

	(void)timeout_ns;
	(void)ret_again;
	(void)ret_wait_ns;
	*ret_link = (struct session_link){.ep = rw_connect(c->world, c->number),
					  .geometry = c->geometry,
					  .identity = {.client_id = c->number + 1}};
	return 0;
}

static void connector_free(struct session_connector *connector)
{
	(void)connector; /* a part of the client */
}

/* What session_run() does between two steps. False: nothing has come. */
static bool receive(struct client *c, struct rw_call *call)
{
	struct task *task = &c->task.task;
	struct tarn_session *s = c->session;

	if (task->wake_ns) {
		task->status = 0;
		return c->world->now_ns >= task->wake_ns;
	}
	if (session_collect(s) < 0 && !task->completed)
		session_break(s, task);
	if (!task->completed && task->asking)
		session_rpc_limits(s, c->world->now_ns);
	call->slow |= task->completed && task->status == -TARN_ETIMEOUT;
	return task->completed;
}

static void act(struct bench *b, struct client *c)
{
	struct rw_world *w = c->world;

	if (!c->busy && c->session->lost) {
		c->session->try_ns = 0;
		if (session_reconnect_try(c->session, 0) < 0)
			rw_fail(w, "no new connection: %s", err_text());
		return;
	}
	if (!c->busy) {
		if (!w->chaos && w->call_count >= RW_CALLS - RW_CLIENTS)
			return;
		if (w->call_count == RW_CALLS)
			return;
		call_begin(c);
		c->task.task.status = 0;
	} else {
		struct rw_call *call = &w->calls[w->calling[c->number]];

		if (w->chaos && rw_random(w, 100 * w->rare) == 0) {
			call->slow = true;
			region_task_cut(&c->task);
		}
		if (!receive(c, call))
			return;
	}
	if (c->task.task.step(&c->task.task))
		call_end(b, c);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void clients_open(struct bench *b)
{
	struct tarn_options options = TARN_OPTIONS_INIT;

	options.timeout_ms = TIMEOUT_MS;
	for (unsigned i = 0; i < RW_CLIENTS; i++) {
		struct client *c = &b->clients[i];
		struct session_identity identity = {.client_id = i + 1, .client_slot = i};

		*c = (struct client){.connector = {.connect = reconnect, .free = connector_free},
				     .world = &b->world,
				     .geometry = b->geometry,
				     .number = i};
		if (session_create(rw_connect(&b->world, i), &b->geometry, &identity, &options,
				   &c->session) < 0)
			abort();
		c->session->connector = &c->connector;
		handle_new(c);
	}
}

static bool all_idle(const struct bench *b)
{
	for (unsigned i = 0; i < RW_CLIENTS; i++)
		if (b->clients[i].busy)
			return false;
	return rw_quiet(&b->world);
}

static void run_steps(struct bench *b, unsigned most, bool to_end)
{
	struct rw_world *w = &b->world;

	for (unsigned i = 0; i < most && !w->failure[0]; i++) {
		struct client *c = &b->clients[rw_random(w, RW_CLIENTS)];

		if (to_end && all_idle(b))
			return;
		if (rw_random(w, 3) && (!to_end || c->busy))
			act(b, c);
		else
			rw_step(w);
	}
	if (to_end)
		rw_fail(w, "a call does not come to its end");
}

static bool run_one(struct bench *b, uint64_t seed)
{
	rw_reset(&b->world, seed);
	clients_open(b);
	run_steps(b, STEPS, false);
	b->world.chaos = false;
	run_steps(b, STEPS_END, true);
	check_end(&b->world);
	for (unsigned i = 0; i < RW_CLIENTS; i++)
		session_free(b->clients[i].session);
	return !b->world.failure[0];
}

static bool run_many(struct bench *b, uint64_t first, uint64_t schedules, uint64_t *ret_seed)
{
	for (uint64_t i = 0; i < schedules; i++) {
		*ret_seed = first + i;
		if (!run_one(b, *ret_seed))
			return false;
	}
	return true;
}

static bool run_all(struct bench *b, uint64_t first, uint64_t schedules)
{
	uint64_t seed = first;
	bool ok;

	printf("1..1\n");
	ok = run_many(b, first, schedules, &seed);
	printf("%sok 1 - %llu schedules: %llu calls, %llu worked, %llu ambiguous, %llu on lost connections, "
	       "%llu on regions that were gone, %llu woken\n",
	       ok ? "" : "not ", (unsigned long long)(seed - first + 1), (unsigned long long)b->calls,
	       (unsigned long long)b->worked, (unsigned long long)b->ambiguous,
	       (unsigned long long)b->broken, (unsigned long long)b->gone,
	       (unsigned long long)b->waits);
	if (!ok)
		printf("# seed %llu: %s\n", (unsigned long long)seed, b->world.failure);
	return ok;
}

#ifdef TARN_MUTATIONS
static bool run_mutations(struct bench *b, uint64_t first, uint64_t schedules)
{
	bool all = true;

	printf("1..%d\n", MUTATION_REGION_LAST - MUTATION_REGION_FIRST + 1);
	for (int m = MUTATION_REGION_FIRST; m <= MUTATION_REGION_LAST; m++) {
		uint64_t seed = first;
		bool missed;

		tarn_mutation = m;
		missed = run_many(b, first, schedules, &seed);
		printf("%sok %d - mutation %d is caught: %llu schedules: %s\n", missed ? "not " : "",
		       m - MUTATION_REGION_FIRST + 1, m, (unsigned long long)(seed - first + 1),
		       missed ? "nothing" : b->world.failure);
		all &= !missed;
		fflush(stdout);
	}
	return all;
}
#endif

static int usage(const char *program)
{
	fprintf(stderr, "usage: %s [--schedules N] [--first SEED] [--mutations] [--mutation M]\n",
		program);
	return 2;
}

static bool geometry_make(struct layout_geometry *ret_geometry)
{
	const struct layout_plan plan = {.pool_bytes = POOL_BYTES,
					 .max_clients = 16,
					 .deadline_ns = 100000000,
					 .epoch_ns = 250000000,
					 .grace_ns = 500000000,
					 .max_value_bytes = 1u << 20,
					 .hash_seed = 42,
					 .incarnation = 1,
					 .boot_id = 2};
	void *pool = aligned_alloc(4096, POOL_BYTES);
	bool ok;

	if (!pool)
		return false;
	memset(pool, 0, POOL_BYTES);
	ok = layout_format(pool, &plan) == 0 &&
	     layout_superblock_check(pool, POOL_BYTES, ret_geometry) == 0;
	free(pool);
	return ok;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"schedules", required_argument, NULL, 'n'},
						{"first", required_argument, NULL, 'f'},
						{"mutations", no_argument, NULL, 'M'},
						{"mutation", required_argument, NULL, 'm'},
						{NULL, 0, NULL, 0}};
	uint64_t schedules = 300, first = 1;
	struct bench *bench = calloc(1, sizeof(*bench));
	int option, mutation = 0;
	bool mutations = false, ok;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'n')
			schedules = strtoull(optarg, NULL, 0);
		else if (option == 'f')
			first = strtoull(optarg, NULL, 0);
		else if (option == 'm')
			mutation = atoi(optarg);
		else if (option == 'M')
			mutations = true;
		else
			return usage(argv[0]);
	}
	if (optind != argc || !bench || !geometry_make(&bench->geometry))
		return usage(argv[0]);
#ifdef TARN_MUTATIONS
	tarn_mutation = mutation;
	ok = mutations ? run_mutations(bench, first, schedules) : run_all(bench, first, schedules);
#else
	if (mutations || mutation)
		return usage(argv[0]);
	ok = run_all(bench, first, schedules);
#endif
	free(bench);
	return ok ? 0 : 1;
}
