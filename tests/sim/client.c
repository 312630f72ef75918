/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client.c - one client of a schedule: makes the calls of its script through the client's real
 * code, and records them
 *
 * It stands in for session_run() and the public calls: it starts a task, gives it its completions
 * when the scheduler lets it, and notes when the call began and ended and what it answered. Next:
 * schedule.c.
 */
#include <stdlib.h>
#include <string.h>

#include "kv-internal.h"
#include "mutation.h"
#include "run.h"

#define CACHE_BYTES     4096u
#define NO_VALUE        (1ull << 40) /* an id that no put has */
#define HOUSEKEEPING_NS 1000000000ull
#define RECONNECT_NS    10000000ull
#define AWAIT_NS        3000000000ull /* a sweep that does not come by then */

/* ---- values that say who wrote them --------------------------------------------------------- */

static uint64_t pattern(uint64_t id, uint64_t i)
{
	return i ? (id * 0x9e3779b97f4a7c15ull + i) * 0xd6e8feb86659fd93ull : id;
}

void value_fill(uint8_t *value, uint64_t id, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word = pattern(id, at / 8);

		memcpy(value + at, &word, bytes - at < 8 ? bytes - at : 8);
	}
}

uint64_t value_identify(const struct run *run, unsigned key, const uint8_t *value, uint64_t bytes)
{
	uint64_t id;

	if (bytes < 8)
		return 0;
	memcpy(&id, value, 8);
	if (id == 0 || id > run->record_count || run->records[id - 1].bytes != bytes ||
	    run->records[id - 1].key != key)
		return 0;
	for (uint64_t at = 0; at < bytes; at += 8) {
		uint64_t word = pattern(id, at / 8);

		if (memcmp(value + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
			return 0;
	}
	return id;
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* What reconnect.c asks for: a handshake that succeeds at once or not at all. */
static int connect_again(struct session_connector *connector, uint64_t timeout_ns,
			 struct session_link *ret_link, enum session_again *ret_again,
			 uint64_t *ret_wait_ns)
{
	struct run_client *c =
		(struct run_client *)(void *)((uint8_t *)connector -
					      offsetof(struct run_client, connector));
	struct sim *sim = c->run->sim;
	struct session_link link = {0};

	(void)timeout_ns;
	*ret_wait_ns = 0;
	*ret_again = SESSION_SOON;
	if (!sim_daemon_connect(sim->daemon, &link.identity.client_slot, &link.identity.client_id))
		return -TARN_ESESSION;
	link.ep = sim_connect(sim, c->number, link.identity.client_slot, link.identity.client_id);
	link.geometry = sim->geometry;
	*ret_link = link;
	return 0;
}

static void connector_free(struct session_connector *connector)
{
	(void)connector;
}

bool client_open(struct run_client *c)
{
	struct run *run = c->run;
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct session_identity identity = {0};

	options.flags = TARN_NO_THREAD | (run->caches ? 0 : TARN_NO_CACHE);
	options.timeout_ms = run->timeout_ms;
	options.cache_bytes = CACHE_BYTES;
	c->ep = &run->sim->endpoints[c->number];
	c->task = NULL;
	c->record = NULL;
	c->wake_ns = c->sleep_ns = c->house_ns = 0;
	c->pause_ns = HOUSEKEEPING_NS;
	c->at = 0;
	c->gone = c->lost = c->ended = c->finished = false;
	c->first_put_epoch = c->wrap_epoch = c->sweep_ns = 0;
	memset(c->known, 0, sizeof(c->known));
	if (!sim_daemon_connect(run->sim->daemon, &identity.client_slot, &identity.client_id) ||
	    session_create(
		    sim_connect(run->sim, c->number, identity.client_slot, identity.client_id),
		    &run->sim->geometry, &identity, &options, &c->session) < 0)
		return false;
	c->connector = (struct session_connector){.connect = connect_again, .free = connector_free};
	c->session->connector = &c->connector;
	c->call_count = 0;
	if (run->depth > 1)
		pipeline_open(c);
	return true;
}

void client_free(struct run_client *c)
{
	session_free(c->session);
	c->session = NULL;
}

/* ---- a call begins -------------------------------------------------------------------------- */

static enum linear_kind linear_kind(const struct script *s)
{
	switch (s->verb) {
	case SCRIPT_PUT:
		return LINEAR_PUT;
	case SCRIPT_PUT_IF_ABSENT:
		return LINEAR_PUT_IF_ABSENT;
	case SCRIPT_PUT_IF_STAMP:
		return LINEAR_PUT_IF_STAMP;
	case SCRIPT_DELETE:
		return LINEAR_DELETE;
	case SCRIPT_ADD:
		return LINEAR_ADD;
	default:
		return LINEAR_GET;
	}
}

struct record *client_record(struct run_client *c, const struct script *s)
{
	struct run *run = c->run;
	struct record *r = &run->records[run->record_count++];

	*r = (struct record){.key = s->key, .bytes = s->bytes};
	r->op.kind = linear_kind(s);
	r->op.client = c->number;
	r->op.invoked = ++run->clock;
	r->op.returned = LINEAR_NEVER;
	r->op.outcome = LINEAR_MAYBE;
	r->op.epoch_invoked = sim_epoch(run->sim);
	r->op.epoch_returned = UINT64_MAX;
	if (r->op.kind == LINEAR_GET)
		r->bytes = 0;
	if (r->op.kind == LINEAR_ADD)
		r->op.value = (uint64_t)s->delta;
	return r;
}

struct tarn_put_options client_put_options(struct run_client *c, const struct script *s,
					   uint64_t id, uint8_t *value)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	struct run *run = c->run;
	struct record *r = &run->records[id - 1];
	uint64_t epoch_ms = run->sim->geometry.epoch_ns / 1000000;

	r->op.value = id;
	options.user_flags = (uint32_t)id;
	options.expiry_ms = s->expiry_ms;
	if (s->verb == SCRIPT_PUT_IF_ABSENT)
		options.flags = TARN_PUT_IF_ABSENT;
	if (s->verb == SCRIPT_PUT_IF_STAMP) {
		options.flags = TARN_PUT_IF_STAMP;
		options.stamp = c->known[s->key] ? c->known_stamp[s->key] : 1;
		r->op.expected = c->known[s->key] ? c->known[s->key] : NO_VALUE;
	}
	value_fill(value, id, s->bytes);
	if (s->expiry_ms)
		r->ttl_epochs = (uint32_t)((s->expiry_ms + epoch_ms - 1) / epoch_ms);
	if (!c->first_put_epoch)
		c->first_put_epoch = sim_epoch(run->sim);
	return options;
}

static struct task *call_get(struct run_client *c, const struct script *s)
{
	c->record = client_record(c, s);
	return kv_get(c->session->op, c->run->keys[s->key], RUN_KEY_BYTES, c->buffer,
		      s->verb == SCRIPT_EXISTS ? 0 : RUN_BUFFER_BYTES, s->verb == SCRIPT_EXISTS);
}

static struct task *call_put(struct run_client *c, const struct script *s)
{
	struct tarn_put_options options;
	struct task *task;

	c->record = client_record(c, s);
	options = client_put_options(c, s, c->run->record_count, c->value);
	task = kv_put(c->session->op, c->run->keys[s->key], RUN_KEY_BYTES, c->value, s->bytes,
		      &options);
	c->record->stamp = kv_stamp(c->session->op);
	return task;
}

/* Until the epoch of the first put comes again, 4096 epochs later. */
static uint64_t wrap_epoch(const struct run_client *c)
{
	uint64_t again = c->first_put_epoch;

	while (again <= sim_epoch(c->run->sim))
		again += 1u << LAYOUT_GEN_BITS;
	return again;
}

/* The daemon decides when an epoch comes: near its time we look again and again. */
static uint64_t wrap_time(const struct run_client *c)
{
	const struct sim *sim = c->run->sim;
	uint64_t left = c->wrap_epoch - sim_epoch(sim);

	return sim->now_ns + (left > 4 ? left - 3 : 0) * sim->geometry.epoch_ns +
	       sim->geometry.epoch_ns / 4;
}

/* Lines that are no calls. True: this is one. */
static bool line_done(struct run_client *c, const struct script *s)
{
	uint64_t now = c->run->sim->now_ns;

	switch (s->verb) {
	case SCRIPT_DIE:
		client_kill(c);
		return true;
	case SCRIPT_AWAIT_SWEEP:
		c->sweep_ns = now + AWAIT_NS;
		return true;
	case SCRIPT_SLEEP:
		c->sleep_ns = now + s->sleep_ns;
		c->pause_ns = HOUSEKEEPING_NS;
		return true;
	case SCRIPT_SLEEP_WRAP:
		c->wrap_epoch = wrap_epoch(c);
		c->pause_ns = HOUSEKEEPING_NS;
		return true;
	default:
		return false;
	}
}

/* Takes the next line of the script. */
static void begin(struct run_client *c)
{
	const struct script *s = &c->script[c->at++];
	struct run *run = c->run;

	c->sweep_ns = 0;
	if (line_done(c, s))
		return;
	c->raised = false;
	c->began_ns = session_now(c->session);
	switch (s->verb) {
	case SCRIPT_GET:
	case SCRIPT_EXISTS:
		c->task = call_get(c, s);
		break;
	case SCRIPT_PUT:
	case SCRIPT_PUT_IF_ABSENT:
	case SCRIPT_PUT_IF_STAMP:
		c->task = call_put(c, s);
		break;
	case SCRIPT_DELETE:
		c->record = client_record(c, s);
		c->task = kv_delete(c->session->op, run->keys[s->key], RUN_KEY_BYTES);
		break;
	case SCRIPT_ADD:
		c->record = client_record(c, s);
		c->task = kv_add(c->session->op, run->keys[s->key], RUN_KEY_BYTES, s->delta);
		break;
	case SCRIPT_PROCESS:
	case SCRIPT_CLOSE:
		c->task = process_start(c->session->process, s->verb == SCRIPT_CLOSE);
		break;
	default:
		return;
	}
	run->total_calls++;
	c->task->status = 0;
	if (run->sim->trace) {
		static const char *const verbs[] = {"get",           "exists",       "put",
						    "put-if-absent", "put-if-stamp", "delete",
						    "add",           "process",      "close"};

		sim_tracef(run->sim, "c%u begins %s of key %u%s", c->number, verbs[s->verb], s->key,
			   c->record ? "" : " (no call)");
		if (c->record && c->record->op.value)
			sim_tracef(run->sim, "c%u   (v%llu)", c->number,
				   (unsigned long long)c->record->op.value);
	}
}

/* ---- a call ends ---------------------------------------------------------------------------- */

/*
 * Where the expiry of a put lies: the client knew the epoch of its block late by up to one, and
 * adds up to one.
 */
static void note_expiry(struct record *r)
{
	if (!r->ttl_epochs)
		return;
	r->op.expires_from = r->op.epoch_invoked + r->ttl_epochs - 1;
	r->op.expires_until = r->op.epoch_returned == UINT64_MAX
				      ? UINT64_MAX
				      : r->op.epoch_returned + r->ttl_epochs + 3;
}

/* The put with this stamp. */
static uint64_t stamp_owner(const struct run *run, unsigned key, uint64_t stamp)
{
	for (unsigned i = 0; i < run->record_count; i++)
		if (run->records[i].key == key && run->records[i].stamp == stamp &&
		    run->records[i].op.kind != LINEAR_GET)
			return i + 1;
	return 0;
}

/*
 * What a get found has to be something that was put, whole, and with the attributes of the same
 * put.
 */
static void end_get(struct run_client *c, const struct outcome *o, bool whole)
{
	struct run *run = c->run;
	const struct tarn_item *item = o->item;
	struct record *r = o->record;
	uint64_t id = stamp_owner(run, r->key, item->stamp);

	r->op.outcome = LINEAR_OK;
	r->op.counter = item->kind == TARN_KIND_COUNTER;
	if (r->op.counter) {
		if (whole)
			memcpy(&r->op.value, o->buffer, 8);
		else
			r->dropped = true;
		c->known[r->key] = 0;
		return;
	}
	if (!id || (whole && value_identify(run, r->key, o->buffer, item->value_bytes) != id) ||
	    item->value_bytes != run->records[id - 1].bytes || item->user_flags != (uint32_t)id ||
	    item->writer != run->records[id - 1].stamp >> 32) {
		run_fail(run,
			 "client %u: get of key %u returned what nobody put: stamp %llx (v%llu), "
			 "%llu bytes, flags %u, "
			 "writer %u",
			 c->number, r->key, (unsigned long long)item->stamp, (unsigned long long)id,
			 (unsigned long long)item->value_bytes, item->user_flags, item->writer);
		run->failed_key = r->key;
		return;
	}
	r->op.value = id;
	c->known[r->key] = id;
	c->known_stamp[r->key] = item->stamp;
}

/* A result that says "it worked" or that a condition did not hold. */
static bool answered(struct run_client *c, const struct outcome *o)
{
	struct linear_op *op = &o->record->op;
	bool get = op->kind == LINEAR_GET;
	int result = o->result;

	if (result == 0 || (result == -TARN_ETOOSMALL && get)) {
		op->outcome = LINEAR_OK;
		if (get)
			end_get(c, o, result == 0 && o->line->verb == SCRIPT_GET);
		if (op->kind == LINEAR_ADD)
			op->result = o->added;
		if (op->kind == LINEAR_PUT || op->kind == LINEAR_PUT_IF_ABSENT ||
		    op->kind == LINEAR_PUT_IF_STAMP) {
			c->known[o->record->key] = op->value;
			c->known_stamp[o->record->key] = o->record->stamp;
		}
		return true;
	}
	op->outcome = result == -TARN_ENOTFOUND ? LINEAR_ABSENT
		      : result == -TARN_EEXISTS ? LINEAR_EXISTS
						: LINEAR_OTHER;
	switch (op->kind) {
	case LINEAR_GET:
	case LINEAR_DELETE:
		return result == -TARN_ENOTFOUND;
	case LINEAR_PUT_IF_ABSENT:
		return result == -TARN_EEXISTS;
	case LINEAR_PUT_IF_STAMP:
		return result == -TARN_ENOTFOUND || result == -TARN_ESTAMP;
	case LINEAR_ADD:
		return result == -TARN_ETYPE;
	case LINEAR_PUT:
	case LINEAR_VANISH:
		break;
	}
	return false;
}

/* The other results: may the call return this, and what does it say? */
static void failed(struct run_client *c, const struct outcome *o)
{
	struct run *run = c->run;
	struct record *r = o->record;
	bool write = r->op.kind != LINEAR_GET;
	int result = o->result;
	/* a call may hear of it when the next connection stands already */
	bool lost = c->lost || (run->depth > 1 && run->losses);

	if (result == -TARN_EAMBIGUOUS && write) {
		r->op.outcome = LINEAR_MAYBE;
		/*
		 * over a broken connection nothing can come any more; what the daemon was asked for
		 * may come later
		 */
		if (!c->lost)
			r->op.returned = LINEAR_NEVER;
	} else if (result == -TARN_ECONFLICT && r->op.kind == LINEAR_ADD) {
		r->op.outcome = LINEAR_MAYBE;
	} else if (result == -TARN_ETIMEOUT || (result == -TARN_ESESSION && lost) ||
		   (result == -TARN_ECANCELED && o->cancelled) ||
		   (result == -TARN_EPOOLFULL && write) ||
		   (result == -TARN_EINDEXFULL && write && run->filler_count) ||
		   (result == -TARN_ECORRUPT && run->flipped)) {
		r->dropped = true;
	} else {
		run_fail(run, "client %u: a call on key %u returned %d, which it must not",
			 c->number, r->key, result);
		run->failed_key = r->key;
	}
}

void client_outcome(struct run_client *c, const struct outcome *o)
{
	struct record *r = o->record;

	r->op.returned = ++c->run->clock;
	r->op.epoch_returned = sim_epoch(c->run->sim);
	c->run->results[o->result == 0][r->op.kind]++;
	if (!answered(c, o))
		failed(c, o);
	note_expiry(r);
}

/*
 * Nobody but the dead was in its way, and those who live and are quick. (A split is waited for for other
 * reasons; here there is no page for one.)
 */
static void time_call(struct run_client *c)
{
	uint64_t took = session_now(c->session) - c->began_ns;

	if (c->session->op->asked_ns)
		return;
	if (took > c->run->longest_ns)
		c->run->longest_ns = took;
	if (took > RUN_WAIT_NS)
		run_fail(
			c->run,
			"client %u: a call took %llu us, though nobody but the dead was in its way",
			c->number, (unsigned long long)took / 1000);
}

static void end(struct run_client *c)
{
	struct run *run = c->run;
	int result = c->task->result;

	c->task = NULL;
	/* its daemon is gone, and now it knows */
	if (c->session->lost)
		c->lost = true;
	sim_tracef(run->sim, "c%u ends: %d", c->number, result);
	if (!c->record) {
		if (result < 0 && !c->lost && result != -TARN_ETIMEOUT)
			run_fail(run, "client %u: housekeeping returned %d", c->number, result);
		return;
	}
	if (run->kind == RUN_DEATH)
		time_call(c);
	client_outcome(c, &(struct outcome){.record = c->record,
					    .line = &c->script[c->at - 1],
					    .result = result,
					    .item = kv_item(c->session->op),
					    .buffer = c->buffer,
					    .added = (uint64_t)kv_added(c->session->op)});
	c->record = NULL;
}

/* ---- taking steps --------------------------------------------------------------------------- */

bool client_awaited(const struct run_client *c)
{
	return c->sweep_ns && !c->task && !c->gone && sim_daemon_sweeps(c->run->sim->daemon);
}

uint64_t client_next(const struct run_client *c)
{
	if (c->ended || c->gone)
		return SIM_NEVER;
	if (client_awaited(c))
		return 0;
	if (pipeline_busy(c))
		return pipeline_next(c);
	if (!c->task)
		return c->finished && run_quiet(c->run) ? 0 : c->wake_ns;
	if (sim_visible(c->ep) != SIM_NEVER)
		return sim_visible(c->ep);
	if (c->task->wake_ns)
		return sim_time(c->task->wake_ns, c->ep->drift);
	return c->ep->asking ? sim_time(c->task->limit_ns, c->ep->drift) : SIM_NEVER;
}

/* What session_run() does between two steps of a task. */
static void receive(struct run_client *c)
{
	if (c->task->wake_ns) {
		c->task->status = 0;
		return;
	}
	if (session_collect(c->session) < 0 && !c->task->completed)
		session_break(c->session, c->task);
	else if (!c->task->completed)
		session_rpc_give_up(c->session, c->task);
}

/* As api.c does before the next call. */
static void reconnect(struct run_client *c)
{
	struct sim *sim = c->run->sim;

	if (session_reconnect_try(c->session, 0) == 0) {
		c->lost = false;
		sim_tracef(sim, "c%u is connected again, in slot %u", c->number, c->ep->slot);
	} else {
		/* not by the session's own back-off, which knows the real time alone */
		c->session->try_ns = 0;
		c->wake_ns = sim->now_ns + RECONNECT_NS + sim_below(sim, RECONNECT_NS);
	}
}

/* The script is over; what is left is housekeeping, as long as others work. */
static void finish(struct run_client *c)
{
	if (!c->finished || c->run->quiet_ns)
		c->pause_ns = 3 * HOUSEKEEPING_NS;
	c->finished = true;
	c->sleep_ns = c->run->sim->now_ns + c->pause_ns;
}

/*
 * What the housekeeping thread does while the application makes no calls. Once a second at first; later
 * it would find nothing new.
 */
static void housekeep(struct run_client *c)
{
	c->pause_ns *= c->pause_ns < 4 * HOUSEKEEPING_NS ? 2 : 16;
	c->wake_ns = 0;
	c->task = process_start(c->session->process, false);
	c->task->status = 0;
}

void client_wake(struct run_client *c)
{
	if (c->finished)
		c->wake_ns = c->sleep_ns = c->house_ns = c->run->sim->now_ns;
}

/* Sleeps on, with housekeeping now and then. */
static void idle(struct run_client *c, uint64_t until_ns)
{
	uint64_t now = c->run->sim->now_ns;

	if (c->house_ns <= now && !c->lost) {
		c->house_ns = now + c->pause_ns;
		housekeep(c);
		return;
	}
	c->wake_ns = c->house_ns > now && c->house_ns < until_ns ? c->house_ns : until_ns;
}

/* Between two calls. */
static void next_call(struct run_client *c)
{
	struct sim *sim = c->run->sim;

	if (c->finished && run_quiet(c->run))
		c->ended = true;
	else if (c->wrap_epoch > sim_epoch(sim))
		idle(c, wrap_time(c));
	else if (c->sweep_ns > sim->now_ns && !client_awaited(c))
		idle(c, c->sweep_ns);
	else if (c->sleep_ns > sim->now_ns)
		idle(c, c->sleep_ns);
	else if (c->lost && c->run->reconnects)
		reconnect(c);
	else if (c->lost)
		c->ended = true;
	else if (c->at < c->length)
		begin(c);
	else
		finish(c);
}

void client_act(struct run_client *c)
{
	if (pipeline_busy(c) && c->session->lost && c->run->reconnects) {
		reconnect(c);
		return;
	}
	if (c->run->depth > 1 && !c->task && c->wake_ns <= c->run->sim->now_ns && !c->lost &&
	    c->sleep_ns <= c->run->sim->now_ns &&
	    (c->sweep_ns <= c->run->sim->now_ns || client_awaited(c)) && pipeline_act(c))
		return;
	if (pipeline_busy(c)) {
		pipeline_act(c);
		return;
	}
	if (!c->task) {
		next_call(c);
		if (!c->task)
			return;
	} else {
		receive(c);
	}
	if (c->task->step(c->task))
		end(c);
	else if (!c->task->wake_ns && !c->ep->count && !c->ep->done_count && !c->ep->asking &&
		 !c->lost)
		run_fail(c->run, "client %u: a task waits for nothing", c->number);
}

/* Whatever the client was doing may have taken effect before now, or never. */
static void doubt(struct run_client *c, struct record *r)
{
	if (!r)
		return;
	r->op.returned = ++c->run->clock;
	r->op.epoch_returned = sim_epoch(c->run->sim);
	r->op.outcome = LINEAR_MAYBE;
	r->dropped = r->op.kind == LINEAR_GET;
	note_expiry(r);
}

bool client_doubtful(const struct run_client *c)
{
	return c->record || c->call_count;
}

bool client_raise(struct run_client *c)
{
	struct fabric_request r;

	if (!c->record || !c->task || c->raised || c->gone || c->lost || c->session->lost)
		return false;
	r = process_raise(c->session->process);
	c->raised = true;
	sim_tracef(c->run->sim, "c%u raises its count in the midst of a call", c->number);
	return session_post(c->session, &r, 1, NULL) >= 0;
}

void client_kill(struct run_client *c)
{
	if (c->ended || c->gone)
		return;
	sim_kill(c->run->sim, c->number);
	c->task = NULL;
	c->gone = c->run->losses = true;
}

void client_orphan(struct run_client *c)
{
	/* the end of the daemon is the end of its queue pairs, also of those that it was to fence */
	sim_fence(c->run->sim, c->number, c->ep->slot);
	if (c->gone || c->lost)
		return;
	if (c->run->sim->tuning.stoppable)
		sim_orphan(c->run->sim, c->number);
	else
		client_break(c);
	c->run->losses = true;
}

void client_fenced(struct run_client *c)
{
	doubt(c, c->record);
	c->record = NULL;
	for (unsigned i = 0; i < RUN_DEPTH; i++) {
		doubt(c, c->calls[i].record);
		c->calls[i].record = NULL;
	}
	c->call_count = 0;
}

void client_break(struct run_client *c)
{
	if (c->gone || c->lost)
		return;
	sim_break(c->run->sim, c->number);
	c->lost = c->session->lost = c->run->losses = true;
}
