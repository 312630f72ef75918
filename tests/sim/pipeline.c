/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pipeline.c - several calls of one client at a time, through the asynchronous calls and the engine
 *
 * Lines of the script that are calls on keys are begun as long as there is room; some are cancelled.
 * All else in a script waits until none is under way. Next: client.c, client/engine.h.
 */
#include <string.h>

#include "engine.h"
#include "run.h"

void pipeline_open(struct run_client *c)
{
	for (unsigned i = 0; i < RUN_DEPTH; i++)
		c->calls[i].record = NULL;
}

bool pipeline_busy(const struct run_client *c)
{
	return c->call_count || engine_busy(c->session->engine);
}

static void done(void *cookie, const struct tarn_completion *completion)
{
	struct run_call *call = cookie;
	struct run_client *c = call->client;

	c->lost |= c->session->lost;
	if (completion->stamp)
		call->record->stamp = completion->stamp;
	sim_tracef(c->run->sim, "c%u: call %llu on key %u ends: %d", c->number,
		   (unsigned long long)call->op, call->record->key, completion->status);
	client_outcome(c, &(struct outcome){.record = call->record,
					    .line = call->line,
					    .result = completion->status,
					    .cancelled = call->cancelled,
					    .item = &completion->item,
					    .buffer = call->buffer,
					    .added = (uint64_t)completion->value});
	call->record = NULL;
	c->call_count--;
}

static bool is_call(enum script_verb verb)
{
	return verb <= SCRIPT_ADD;
}

static struct run_call *free_call(struct run_client *c)
{
	for (unsigned i = 0; i < c->run->depth; i++)
		if (!c->calls[i].record)
			return &c->calls[i];
	return NULL;
}

static int submit(struct run_client *c, struct run_call *call, const struct tarn_async *async)
{
	const struct script *s = call->line;
	const char *key = c->run->keys[s->key];
	struct tarn_put_options options;

	switch (s->verb) {
	case SCRIPT_GET:
		return tarn_get_async(c->session, key, RUN_KEY_BYTES, call->buffer, RUN_CALL_BYTES,
				      async, &call->op);
	case SCRIPT_EXISTS:
		return tarn_exists_async(c->session, key, RUN_KEY_BYTES, async, &call->op);
	case SCRIPT_DELETE:
		return tarn_delete_async(c->session, key, RUN_KEY_BYTES, async, &call->op);
	case SCRIPT_ADD:
		return tarn_add_async(c->session, key, RUN_KEY_BYTES, s->delta, async, &call->op);
	default:
		options = client_put_options(c, s, (uint64_t)(call->record - c->run->records) + 1,
					     call->value);
		return tarn_put_async(c->session, key, RUN_KEY_BYTES, call->value, s->bytes,
				      &options, async, &call->op);
	}
}

static void begin(struct run_client *c, struct run_call *call)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct sim *sim = c->run->sim;

	async.done = done;
	async.cookie = call;
	/* a deadline that comes in the midst of it */
	if (sim_chance(sim, 100))
		async.timeout_ms = 1 + (uint32_t)sim_below(sim, 20);
	call->line = &c->script[c->at++];
	call->record = client_record(c, call->line);
	call->cancelled = false;
	c->sweep_ns = 0;
	c->call_count++;
	c->run->total_calls++;
	if (submit(c, call, &async) < 0)
		run_fail(c->run, "client %u: a call was refused", c->number);
	sim_tracef(sim, "c%u begins call %llu, verb %u of key %u (v%llu)", c->number,
		   (unsigned long long)call->op, call->line->verb, call->line->key,
		   (unsigned long long)call->record->op.value);
}

static void cancel(struct run_client *c)
{
	struct run_call *call = &c->calls[sim_below(c->run->sim, c->run->depth)];

	if (!call->record)
		return;
	call->cancelled |= tarn_cancel(c->session, call->op) == 0;
	sim_tracef(c->run->sim, "c%u cancels call %llu", c->number, (unsigned long long)call->op);
}

/* A put that runs has its stamp by now, and nothing of it has taken effect yet. */
static void learn_stamps(struct run_client *c)
{
	for (unsigned i = 0; i < c->run->depth; i++) {
		const struct run_call *call = &c->calls[i];
		const struct op *op =
			call->record ? engine_op_find(c->session->engine, call->op) : NULL;

		if (op && op->lane && op->kind == TARN_OP_PUT)
			call->record->stamp = kv_stamp(op->lane->kv);
	}
}

/* As often as it may be. */
static void raise(struct run_client *c)
{
	for (unsigned i = 0; i < 3 && engine_may_raise(c->session->engine, NULL); i++) {
		struct fabric_request r = process_raise(c->session->process);

		session_post(c->session, &r, 1, NULL);
	}
}

uint64_t pipeline_next(const struct run_client *c)
{
	const struct engine *e = c->session->engine;
	uint64_t next, due;

	if (c->wake_ns > c->run->sim->now_ns)
		return c->wake_ns;
	if (!TAILQ_EMPTY(&e->ended) || !TAILQ_EMPTY(&e->ready) || c->session->lost ||
	    (!TAILQ_EMPTY(&e->queued) && !TAILQ_EMPTY(&e->idle)) ||
	    (c->at < c->length && is_call(c->script[c->at].verb) && c->call_count < c->run->depth))
		return 0;
	next = sim_visible(c->ep);
	due = engine_due(e);
	if (due != UINT64_MAX && sim_time(due, c->ep->drift) < next)
		next = sim_time(due, c->ep->drift);
	return next;
}

bool pipeline_act(struct run_client *c)
{
	struct sim *sim = c->run->sim;
	bool more = c->at < c->length && is_call(c->script[c->at].verb);
	struct run_call *call = more && !c->session->lost ? free_call(c) : NULL;

	if (!pipeline_busy(c) && !call)
		return false;
	if (call && (!pipeline_busy(c) || sim_chance(sim, 500))) {
		begin(c, call);
		return true;
	}
	if (sim_chance(sim, 30))
		cancel(c);
	/* housekeeping in the midst of it */
	if (sim_chance(sim, 40) && engine_busy(c->session->engine))
		engine_process(c->session->engine);
	if (c->run->raises && sim_chance(sim, c->run->raises)) {
		raise(c);
		/* an application that does not look at what has come for a long time */
		if (sim_chance(sim, 200)) {
			c->wake_ns = sim->now_ns + sim_below(sim, 4 * sim->geometry.grace_ns);
			return true;
		}
	}
	tarn_session_poll(c->session, NULL, 0, NULL);
	learn_stamps(c);
	c->lost |= c->session->lost;
	if (c->session->lost)
		c->wake_ns = sim->now_ns + 1000000;
	return true;
}
