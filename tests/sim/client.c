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

#include "kv.h"
#include "mutation.h"
#include "run.h"

#define CACHE_BYTES 4096u
#define NO_VALUE    (1ull << 40) /* an id that no put has */

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

bool client_open(struct run_client *c)
{
	struct run *run = c->run;
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct session_identity identity = {.client_id = c->number + 1, .client_slot = c->number};

	options.flags = TARN_NO_THREAD | (run->caches ? 0 : TARN_NO_CACHE);
	options.timeout_ms = run->timeout_ms;
	options.cache_bytes = CACHE_BYTES;
	c->ep = &run->sim->endpoints[c->number];
	c->task = NULL;
	c->record = NULL;
	c->wake_ns = 0;
	c->at = 0;
	c->gone = c->lost = c->ended = false;
	c->first_put_epoch = 0;
	memset(c->known, 0, sizeof(c->known));
	return session_create(sim_connect(run->sim, c->number), &run->sim->geometry, &identity,
			      &options, &c->session) == 0;
}

void client_free(struct run_client *c)
{
	session_free(c->session);
	c->session = NULL;
}

/* ---- a call begins -------------------------------------------------------------------------- */

static void note_call(struct run_client *c, const struct script *s, enum linear_kind kind)
{
	struct run *run = c->run;
	struct record *r = &run->records[run->record_count++];

	*r = (struct record){.key = s->key, .bytes = s->bytes};
	r->op.kind = kind;
	r->op.client = c->number;
	r->op.invoked = ++run->clock;
	r->op.returned = LINEAR_NEVER;
	r->op.outcome = LINEAR_MAYBE;
	r->op.epoch_invoked = run->sim->epoch;
	r->op.epoch_returned = UINT64_MAX;
	c->record = r;
}

static struct task *call_get(struct run_client *c, const struct script *s)
{
	note_call(c, s, LINEAR_GET);
	c->record->bytes = 0;
	return kv_get(c->session->op, c->run->keys[s->key], RUN_KEY_BYTES, c->buffer,
		      s->verb == SCRIPT_EXISTS ? 0 : RUN_BUFFER_BYTES, s->verb == SCRIPT_EXISTS);
}

static struct task *call_put(struct run_client *c, const struct script *s)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	struct run *run = c->run;
	uint64_t id = run->record_count + 1, epoch_ms = run->sim->geometry.epoch_ns / 1000000;
	struct task *task;

	note_call(c, s,
		  s->verb == SCRIPT_PUT_IF_ABSENT  ? LINEAR_PUT_IF_ABSENT
		  : s->verb == SCRIPT_PUT_IF_STAMP ? LINEAR_PUT_IF_STAMP
						   : LINEAR_PUT);
	c->record->op.value = id;
	options.user_flags = (uint32_t)id;
	options.expiry_ms = s->expiry_ms;
	if (s->verb == SCRIPT_PUT_IF_ABSENT)
		options.flags = TARN_PUT_IF_ABSENT;
	if (s->verb == SCRIPT_PUT_IF_STAMP) {
		options.flags = TARN_PUT_IF_STAMP;
		options.stamp = c->known[s->key] ? c->known_stamp[s->key] : 1;
		c->record->op.expected = c->known[s->key] ? c->known[s->key] : NO_VALUE;
	}
	value_fill(c->value, id, s->bytes);
	task = kv_put(c->session->op, run->keys[s->key], RUN_KEY_BYTES, c->value, s->bytes,
		      &options);
	c->record->stamp = kv_stamp(c->session->op);
	if (s->expiry_ms)
		c->record->ttl_epochs = (uint32_t)((s->expiry_ms + epoch_ms - 1) / epoch_ms);
	if (!c->first_put_epoch)
		c->first_put_epoch = run->sim->epoch;
	return task;
}

/*
 * When does the epoch of the first put come again, 4096 epochs later? Somewhere in the middle of
 * it.
 */
static uint64_t wrap_time(const struct run_client *c)
{
	struct sim *sim = c->run->sim;
	uint64_t again = c->first_put_epoch;

	while (again <= sim->epoch)
		again += 1u << LAYOUT_GEN_BITS;
	return sim->next_epoch_ns + (again - sim->epoch - 1) * sim->geometry.epoch_ns +
	       sim_below(sim, sim->geometry.epoch_ns / 2);
}

/* Takes the next line of the script. */
static void begin(struct run_client *c)
{
	const struct script *s = &c->script[c->at++];
	struct run *run = c->run;

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
		note_call(c, s, LINEAR_DELETE);
		c->task = kv_delete(c->session->op, run->keys[s->key], RUN_KEY_BYTES);
		break;
	case SCRIPT_ADD:
		note_call(c, s, LINEAR_ADD);
		c->record->op.value = (uint64_t)s->delta;
		c->task = kv_add(c->session->op, run->keys[s->key], RUN_KEY_BYTES, s->delta);
		break;
	case SCRIPT_PROCESS:
	case SCRIPT_CLOSE:
		c->task = process_start(c->session->process, s->verb == SCRIPT_CLOSE);
		break;
	case SCRIPT_SLEEP:
		c->wake_ns = run->sim->now_ns + s->sleep_ns;
		return;
	case SCRIPT_SLEEP_WRAP:
		c->wake_ns = wrap_time(c);
		return;
	}
	run->total_calls++;
	c->task->status = 0;
	if (run->sim->trace) {
		static const char *const verbs[] = {
			"get", "exists",  "put",   "put-if-absent", "put-if-stamp", "delete",
			"add", "process", "close", "sleep",         "sleep-wrap"};

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
static void end_get(struct run_client *c, bool whole)
{
	struct run *run = c->run;
	const struct tarn_item *item = kv_item(c->session->op);
	struct record *r = c->record;
	uint64_t id = stamp_owner(run, r->key, item->stamp);

	r->op.outcome = LINEAR_OK;
	r->op.counter = item->kind == TARN_KIND_COUNTER;
	if (r->op.counter) {
		if (whole)
			memcpy(&r->op.value, c->buffer, 8);
		else
			r->dropped = true;
		c->known[r->key] = 0;
		return;
	}
	if (!id || (whole && value_identify(run, r->key, c->buffer, item->value_bytes) != id) ||
	    item->value_bytes != run->records[id - 1].bytes || item->user_flags != (uint32_t)id ||
	    item->writer != run->records[id - 1].op.client + 1) {
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
static bool answered(struct run_client *c, int result)
{
	struct linear_op *op = &c->record->op;
	bool get = op->kind == LINEAR_GET;

	if (result == 0 || (result == -TARN_ETOOSMALL && get)) {
		op->outcome = LINEAR_OK;
		if (get)
			end_get(c, result == 0 && c->script[c->at - 1].verb == SCRIPT_GET);
		if (op->kind == LINEAR_ADD)
			op->result = (uint64_t)kv_added(c->session->op);
		if (op->kind == LINEAR_PUT || op->kind == LINEAR_PUT_IF_ABSENT ||
		    op->kind == LINEAR_PUT_IF_STAMP) {
			c->known[c->record->key] = op->value;
			c->known_stamp[c->record->key] = c->record->stamp;
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
		break;
	}
	return false;
}

/* The other results: may the call return this, and what does it say? */
static void failed(struct run_client *c, int result)
{
	struct run *run = c->run;
	struct record *r = c->record;
	bool write = r->op.kind != LINEAR_GET;

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
	} else if (result == -TARN_ETIMEOUT || (result == -TARN_ESESSION && c->lost) ||
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

static void end(struct run_client *c)
{
	struct run *run = c->run;
	int result = c->task->result;

	c->task = NULL;
	sim_tracef(run->sim, "c%u ends: %d", c->number, result);
	if (!c->record) {
		if (result < 0 && !c->lost && result != -TARN_ETIMEOUT)
			run_fail(run, "client %u: housekeeping returned %d", c->number, result);
		return;
	}
	c->record->op.returned = ++run->clock;
	c->record->op.epoch_returned = run->sim->epoch;
	run->results[result == 0][c->record->op.kind]++;
	if (!answered(c, result))
		failed(c, result);
	note_expiry(c->record);
	c->record = NULL;
}

/* ---- taking steps --------------------------------------------------------------------------- */

static bool rpc_in_flight(const struct run_client *c)
{
	return c->ep->rpc.state != SIM_RPC_NONE && !c->ep->rpc.cancelled;
}

uint64_t client_next(const struct run_client *c)
{
	if (c->ended || c->gone)
		return SIM_NEVER;
	if (!c->task)
		return c->wake_ns;
	if (sim_visible(c->ep) != SIM_NEVER)
		return sim_visible(c->ep);
	if (c->task->wake_ns)
		return c->task->wake_ns;
	return rpc_in_flight(c) ? c->task->limit_ns : SIM_NEVER;
}

/* What session_run() does between two steps of a task. */
static void receive(struct run_client *c)
{
	struct fabric_completion completion;

	if (c->task->wake_ns) {
		c->task->status = 0;
	} else if (fabric_poll(&c->ep->base, &completion, 1) == 1) {
		if (completion.cookie != c->task) {
			run_fail(c->run, "client %u: a completion that nobody waits for",
				 c->number);
			return;
		}
		c->session->lost |= completion.status == -TARN_ESESSION;
		c->task->status = completion.status;
		c->task->length = completion.length;
	} else {
		c->ep->base.ops->rpc_cancel(&c->ep->base);
		c->task->status = -TARN_ETIMEOUT;
	}
}

void client_act(struct run_client *c)
{
	if (!c->task) {
		if (c->at == c->length || c->lost) {
			c->ended = true;
			c->ep->idle = true;
			return;
		}
		begin(c);
		if (!c->task)
			return;
	} else {
		receive(c);
	}
	if (c->task->step(c->task))
		end(c);
	else if (!c->task->wake_ns && !c->ep->count && !c->ep->done_count && !rpc_in_flight(c) &&
		 !c->lost)
		run_fail(c->run, "client %u: a task waits for nothing", c->number);
}

/* Whatever the client was doing may have taken effect before now, or never. */
static void doubt(struct run_client *c)
{
	struct record *r = c->record;

	if (!r)
		return;
	r->op.returned = ++c->run->clock;
	r->op.epoch_returned = c->run->sim->epoch;
	r->op.outcome = LINEAR_MAYBE;
	r->dropped = r->op.kind == LINEAR_GET;
	note_expiry(r);
}

void client_kill(struct run_client *c)
{
	if (c->ended || c->gone)
		return;
	sim_kill(c->run->sim, c->number);
	doubt(c);
	c->record = NULL;
	c->task = NULL;
	c->gone = true;
}

void client_break(struct run_client *c)
{
	if (c->ended || c->gone)
		return;
	sim_break(c->run->sim, c->number);
	c->lost = true;
}
