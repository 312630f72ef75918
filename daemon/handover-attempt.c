/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-attempt.c - this member as the source: one attempt at a time to hand a batch of shards over;
 * and all that is written into the map
 *
 * docs/protocol.md section 11, steps 1 to 6 and giving up. That an attempt is over is known from a map alone, never
 * from an answer or from time: the answer may be lost, and the request may arrive later. One thread, no I/O.
 * Next to read: handover-map.c.
 */
#include <errno.h>
#include <string.h>

#include <tarn/tarn.h>

#include "handover-internal.h"
#include "mutation.h"

#define ASK_FIRST_NS    UINT64_C(10000000)
#define ASK_LAST_NS     UINT64_C(200000000)
#define ASKS_MOST       30u /* then others have their turn; nothing has been done yet */
#define BACKOFF_LAST_NS UINT64_C(30000000000)

/* ---- begin ---- */

static bool leaves(const struct handover *h, const struct handover_shard *s)
{
	return s->stage == STAGE_OPEN && s->to != HANDOVER_NOBODY && s->to != h->options.self &&
	       handover_mine(h, s);
}

static void set_word(struct handover *h, enum shard_state state)
{
	h->attempt.word = state;
	for (uint32_t i = 0; i < h->attempt.ask.count; i++)
		handover_show(h, h->attempt.ask.shards[i]);
}

void handover_batch(struct handover *h, uint32_t depth)
{
	/* the bits of a key's hash that are in front of its shard's are any */
	uint32_t bits = depth > SHARD_SHIFT ? depth - SHARD_SHIFT : 0;

	h->batch = bits < 32 ? h->options.shards >> bits : 0;
	if (h->batch < HANDOVER_BATCH_MIN)
		h->batch = HANDOVER_BATCH_MIN;
	if (h->batch > HANDOVER_BATCH)
		h->batch = HANDOVER_BATCH;
}

/* The next batch to one member, from where the last one ended. */
static bool begin(struct handover *h, uint64_t now_ns)
{
	uint64_t last = h->attempt.ask.number;
	struct handover_ask ask = {.from = h->options.self};
	uint32_t begun = h->cursor;

	for (uint32_t i = 0; i < h->options.shards && ask.count < h->batch; i++) {
		uint32_t at = (begun + i) & (h->options.shards - 1),
			 shard = handover_place(at, h->options.shards);
		const struct handover_shard *s = &h->shards[shard];

		if (!leaves(h, s) || (ask.count > 0 && s->to != ask.to))
			continue;
		ask.to = s->to;
		ask.shards[ask.count] = shard;
		ask.since[ask.count++] = s->since;
		h->cursor = at + 1;
	}
	if (ask.count == 0)
		return false;
	ask.number = h->epoch > last ? h->epoch : last + 1;
	h->attempt = (struct handover_attempt){.phase = HANDOVER_ASKING,
					       .ask = ask,
					       .word = SHARD_OPEN,
					       .due_ns = now_ns,
					       .ask_ns = ASK_FIRST_NS};
	for (uint32_t i = 0; i < ask.count; i++)
		h->shards[ask.shards[i]].stage = STAGE_OUT;
	return true;
}

static void back_off(struct handover *h, uint64_t now_ns)
{
	h->backoff_ns = h->backoff_ns == 0 ? HANDOVER_RETRY_NS : 2 * h->backoff_ns;
	if (h->backoff_ns > BACKOFF_LAST_NS)
		h->backoff_ns = BACKOFF_LAST_NS;
	h->begin_ns = now_ns + h->backoff_ns;
}

/* Nothing was done at the target, and nothing asked for: no need to write. */
static bool abandon(struct handover *h, uint64_t now_ns)
{
	for (uint32_t i = 0; i < h->attempt.ask.count; i++)
		h->shards[h->attempt.ask.shards[i]].stage = STAGE_OPEN;
	h->attempt.phase = HANDOVER_IDLE;
	back_off(h, now_ns);
	return true;
}

/* ---- giving up ---- */

static bool give_up(struct handover *h, int error, uint64_t now_ns)
{
	struct handover_attempt *a = &h->attempt;

	a->phase = HANDOVER_GIVING_UP;
	a->permanent = error == -TARN_EPOOLFULL || error == -TARN_EINDEXFULL;
	h->stats.last_error = error;
	h->ops.drop(h->arg);
	back_off(h, now_ns);
	if (MUTATED(MUTATION_REOPEN)) {
		a->phase = HANDOVER_IDLE;
		for (uint32_t i = 0; i < a->ask.count; i++)
			handover_reopen(h, a->ask.shards[i]);
	}
	return true;
}

/* ---- what a new map does ---- */

/* Those that the map has decided about are no part of it any more: handover.c has settled them. */
void attempt_map_changed(struct handover *h)
{
	struct handover_attempt *a = &h->attempt;
	uint32_t kept = 0, moved = 0;

	if (a->phase == HANDOVER_IDLE)
		return;
	for (uint32_t i = 0; i < a->ask.count; i++) {
		const struct handover_shard *s = &h->shards[a->ask.shards[i]];

		if (s->stage == STAGE_OUT) {
			a->ask.shards[kept] = a->ask.shards[i];
			a->ask.since[kept++] = a->ask.since[i];
		} else if (s->owner == a->ask.to) {
			moved++;
		} else {
			h->stats.given_up++;
		}
	}
	h->stats.moved += moved;
	if (kept == a->ask.count)
		return;
	if (moved > 0)
		h->backoff_ns = 0;
	a->ask.count = kept;
	if (kept > 0) {
		/* somebody has decided about some of them: about all, then */
		a->is_lost = true;
		return;
	}
	if (a->phase != HANDOVER_ASKING && a->phase != HANDOVER_GIVING_UP)
		h->ops.drop(h->arg);
	a->phase = HANDOVER_IDLE;
}

void handover_answered(struct handover *h, uint64_t number, enum handover_answer answer,
		       uint64_t boot_id)
{
	struct handover_attempt *a = &h->attempt;

	if (a->phase != HANDOVER_ASKING || number != a->ask.number || answer != HANDOVER_READY ||
	    a->has_answer)
		return;
	a->has_answer = true;
	a->ask.boot_id = boot_id;
}

void handover_copied(struct handover *h, int result)
{
	h->copier_busy = false;
	h->attempt.has_copied = true;
	h->attempt.copied = result;
}

void handover_lost(struct handover *h, uint64_t number)
{
	if (number == h->attempt.ask.number)
		h->attempt.is_lost = true;
}

/* ---- steps ---- */

static bool asking(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	struct handover_attempt *a = &h->attempt;

	if (a->is_lost)
		return abandon(h, now_ns);
	if (a->has_answer && h->options.cache) {
		a->phase = HANDOVER_FREEZING;
		return true;
	}
	if (a->has_answer) {
		if (h->ops.copy(h->arg, &a->ask) < 0)
			return abandon(h, now_ns);
		h->copier_busy = true;
		a->has_copied = false;
		a->phase = HANDOVER_COPYING;
		return true;
	}
	if (now_ns < a->due_ns) {
		handover_due(next, a->due_ns);
		return false;
	}
	if (a->asks++ == ASKS_MOST)
		return abandon(h, now_ns);
	h->ops.ask(h->arg, &a->ask);
	a->due_ns = now_ns + a->ask_ns;
	if (a->ask_ns < ASK_LAST_NS)
		a->ask_ns *= 2;
	handover_due(next, a->due_ns);
	return false;
}

static bool copying(struct handover *h, uint64_t now_ns)
{
	struct handover_attempt *a = &h->attempt;

	if (!a->has_copied)
		return false;
	a->has_copied = false;
	if (a->copied < 0)
		return give_up(h, a->copied, now_ns);
	if (a->phase == HANDOVER_COPYING) {
		a->phase = HANDOVER_FREEZING;
		return true;
	}
	/* step 5; behind it the request */
	a->phase = HANDOVER_SWITCHING;
	if (!MUTATED(MUTATION_NOGONE))
		set_word(h, SHARD_GONE);
	return true;
}

static bool freezing(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	if (h->job_runs)
		return false;
	if (now_ns < h->job_ns) {
		handover_due(next, h->job_ns);
		return false;
	}
	/* when the walk can begin, and not before: writes stop here */
	set_word(h, SHARD_CLOSING);
	if (handover_begin_freeze(h) == 0)
		return true;
	h->job_ns = now_ns + HANDOVER_RETRY_NS;
	handover_due(next, h->job_ns);
	return false;
}

void attempt_frozen(struct handover *h)
{
	struct handover_attempt *a = &h->attempt;

	if (!h->options.cache) {
		a->phase = HANDOVER_BRINGING;
		return;
	}
	a->phase = HANDOVER_SWITCHING;
	if (!MUTATED(MUTATION_NOGONE))
		set_word(h, SHARD_GONE);
}

bool attempt_step(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	struct handover_attempt *a = &h->attempt;

	if (a->is_lost && a->phase > HANDOVER_ASKING && a->phase < HANDOVER_GIVING_UP) {
		a->is_lost = false;
		return give_up(h, -TARN_ESESSION, now_ns);
	}
	switch (a->phase) {
	case HANDOVER_IDLE:
		if (h->options.fixed || h->copier_busy)
			return false;
		if (now_ns < h->begin_ns) {
			handover_due(next, h->begin_ns);
			return false;
		}
		return begin(h, now_ns);
	case HANDOVER_ASKING:
		return asking(h, now_ns, next);
	case HANDOVER_COPYING:
		return copying(h, now_ns);
	case HANDOVER_FREEZING:
		return freezing(h, now_ns, next);
	case HANDOVER_BRINGING:
		if (a->brings)
			return copying(h, now_ns);
		a->brings = true;
		if (h->ops.bring(h->arg) < 0)
			return give_up(h, -TARN_ESESSION, now_ns);
		h->copier_busy = true;
		return true;
	case HANDOVER_SWITCHING:
	case HANDOVER_GIVING_UP:
		break;
	}
	return false;
}

/* ---- what is written ---- */

static void add(struct handover *h, uint32_t shard, enum handover_change what)
{
	h->write.changes[h->write.count].shard = shard;
	h->write.changes[h->write.count++].what = what;
}

static bool may_take(const struct handover *h, const struct handover_shard *s, uint64_t now_ns,
		     uint64_t *next)
{
	uint64_t wait_ns = h->options.bound_ns + h->options.bound_ns / 8;

	if (s->stage != STAGE_READY || !s->taking || s->owner != HANDOVER_NOBODY)
		return false;
	if (now_ns - s->nobody_ns >= wait_ns || MUTATED(MUTATION_NOWAIT))
		return true;
	handover_due(next, s->nobody_ns + wait_ns);
	return false;
}

/* One transaction; the switch alone, for its condition is another. */
static void compose(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	const struct handover_attempt *a = &h->attempt;
	struct handover_write *w = &h->write;

	w->count = 0;
	w->if_epoch = h->epoch;
	/* what an earlier process has asked for must not be done for this one, which may have begun to empty */
	w->if_member = h->options.self;
	w->if_boot_id = h->options.boot_id;
	if (MUTATED(MUTATION_TAKEBOOT))
		w->if_member = HANDOVER_NOBODY;
	w->self = h->options.self;
	for (uint32_t i = 0; i < h->options.shards; i++) {
		if (h->shards[i].stage == STAGE_RECOVER)
			add(h, i, HANDOVER_AGAIN);
		else if (may_take(h, &h->shards[i], now_ns, next))
			add(h, i, HANDOVER_TAKE);
	}
	if (a->phase == HANDOVER_GIVING_UP)
		for (uint32_t i = 0; i < a->ask.count; i++)
			add(h, a->ask.shards[i], a->permanent ? HANDOVER_GIVE_UP : HANDOVER_AGAIN);
	if (w->count > 0 || a->phase != HANDOVER_SWITCHING)
		return;
	for (uint32_t i = 0; i < a->ask.count; i++)
		add(h, a->ask.shards[i], HANDOVER_SWITCH);
	w->if_member = MUTATED(MUTATION_NOBOOT) ? HANDOVER_NOBODY : a->ask.to;
	w->if_boot_id = a->ask.boot_id;
}

/* REFUSED twice with the same map: it is the boot id. */
static bool refused(struct handover *h, uint64_t now_ns)
{
	struct handover_attempt *a = &h->attempt;

	if (a->phase != HANDOVER_SWITCHING || h->write.if_member != a->ask.to)
		return false;
	if (a->refused_epoch != h->epoch)
		a->refusals = 0;
	a->refused_epoch = h->epoch;
	return h->write.if_epoch == h->epoch && ++a->refusals == 2 &&
	       give_up(h, -TARN_ESESSION, now_ns);
}

void handover_written(struct handover *h, enum handover_outcome outcome)
{
	h->has_outcome = true;
	h->outcome = outcome;
}

static bool outcome_step(struct handover *h, uint64_t now_ns)
{
	if (!h->has_outcome)
		return false;
	h->has_outcome = h->writing = false;
	if (h->outcome == HANDOVER_WRITTEN) {
		for (uint32_t i = 0; i < h->write.count; i++)
			h->stats.taken += h->write.changes[i].what == HANDOVER_TAKE;
		h->written_epoch = h->write.if_epoch;
		return true;
	}
	/* sooner if a map comes; the same again if not: at most one of them takes effect */
	h->write_ns = now_ns + HANDOVER_RETRY_NS;
	if (h->outcome == HANDOVER_REFUSED)
		refused(h, now_ns);
	return true;
}

bool attempt_write_step(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	bool done = outcome_step(h, now_ns);

	if (h->writing || h->epoch <= h->written_epoch)
		return done;
	if (now_ns < h->write_ns && h->epoch == h->write.if_epoch) {
		handover_due(next, h->write_ns);
		return done;
	}
	compose(h, now_ns, next);
	if (h->write.count == 0)
		return done;
	if (h->ops.write(h->arg, &h->write) == 0) {
		h->writing = true;
		return true;
	}
	h->write_ns = now_ns + HANDOVER_RETRY_NS;
	handover_due(next, h->write_ns);
	return done;
}
