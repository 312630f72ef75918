/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * schedule.c - who takes the next step, until all scripts have ended and all queues are empty
 *
 * The actors are: each endpoint's queue (one word of a request), each client (a completion, a
 * call), each RPC at the daemon, the keeper. When nobody can act, time leaps to the next instant at
 * which somebody can. Kills, broken connections and flips happen at steps that scenario.c has
 * drawn.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define MAX_STEPS    400000u /* a schedule that takes more has a livelock */
#define KEEPER_LEAPS 8u      /* scans of the keeper in one leap of time */

void run_fail(struct run *run, const char *format, ...)
{
	va_list args;

	if (run->failed)
		return;
	run->failed = true;
	run->failed_key = RUN_KEYS;
	va_start(args, format);
	vsnprintf(run->failure, sizeof(run->failure), format, args);
	va_end(args);
	sim_tracef(run->sim, "FAILED: %s", run->failure);
}

/* ---- what happens to clients and memory ----------------------------------------------------- */

/*
 * Fault: one bit of a block that a committed slot names. Of a counter, not of its number, which has
 * no checksum.
 */
static void flip(struct run *run)
{
	struct sim *sim = run->sim;
	uint64_t subtable = sim->geometry.pages_offset;

	for (unsigned i = 0; i < 3 * LAYOUT_BUCKET_BYTES / 8; i++) {
		uint64_t word = sim_word(sim, subtable + 8ull * i),
			 offset = layout_slot_offset(word), at;
		const struct layout_block *block;
		uint8_t byte;

		/* headers look like slots here and there; fillers have no value */
		if (i % 8 == 0 || layout_slot_state(word) != LAYOUT_SLOT_COMMITTED)
			continue;
		block = (const void *)(sim->pool + offset);
		if (block->key_length != RUN_KEY_BYTES || block->kind == LAYOUT_KIND_COUNTER ||
		    block->value_length == 0 || sim_chance(sim, 256))
			continue;
		at = offset + sim_below(sim, layout_block_bytes(block->kind, block->key_length,
								block->value_length));
		if (block->kind == LAYOUT_KIND_EXTENTS && sim_chance(sim, 512)) {
			const struct layout_extent *e = layout_block_value(block);

			at = layout_slot_offset(e->where) + sim_below(sim, 1000);
		}
		byte = (uint8_t)(sim->pool[at] ^ 1u << sim_below(sim, 8));
		sim_write(sim, at, &byte, 1);
		sim_tracef(sim, "a bit flips at block %llx + %llu", (unsigned long long)offset,
			   (unsigned long long)(at - offset));
		run->flipped = true;
		run->flip_step = SIM_NEVER;
		return;
	}
}

static void happen(struct run *run)
{
	uint64_t step = run->sim->step;

	for (unsigned i = 0; i < run->nclients; i++) {
		if (run->kill_step[i] == step)
			client_kill(&run->clients[i]);
		if (run->break_step[i] == step)
			client_break(&run->clients[i]);
	}
	if (step >= run->flip_step)
		flip(run);
	if (run->daemon_stop_step == step) {
		run->daemon_stop_step = SIM_NEVER;
		run->sim->daemon_stopped_ns =
			run->sim->now_ns + sim_below(run->sim, 6 * run->sim->geometry.grace_ns);
		sim_tracef(run->sim, "the daemon stands still until %llu us",
			   (unsigned long long)run->sim->daemon_stopped_ns / 1000);
	}
	if (run->sim->late_count)
		sim_late_step(run->sim, false);
}

/* ---- actors --------------------------------------------------------------------------------- */

enum actor_kind { ACTOR_QUEUE, ACTOR_CLIENT, ACTOR_RPC, ACTOR_KEEPER };
struct actor {
	enum actor_kind kind;
	unsigned client;
};
#define ACTORS (3u * RUN_CLIENTS + 1u)

static void act(struct run *run, struct actor actor)
{
	switch (actor.kind) {
	case ACTOR_QUEUE:
		sim_step(run->clients[actor.client].ep);
		break;
	case ACTOR_CLIENT:
		client_act(&run->clients[actor.client]);
		break;
	case ACTOR_RPC:
		sim_rpc_step(run->clients[actor.client].ep);
		break;
	case ACTOR_KEEPER:
		sim_keeper_step(run->sim->daemon);
		break;
	}
}

struct choice {
	struct actor actors[ACTORS];
	unsigned count;
	bool must; /* the only actor is a queue that has to take effect before time goes on (T3) */
	uint64_t next_ns; /* when somebody else could act */
};

static void consider(struct choice *choice, struct actor actor, uint64_t at, uint64_t now)
{
	if (at <= now)
		choice->actors[choice->count++] = actor;
	else if (at < choice->next_ns)
		choice->next_ns = at;
}

static void gather(struct run *run, struct choice *choice)
{
	uint64_t now = run->sim->now_ns;

	choice->count = 0;
	choice->must = false;
	choice->next_ns = SIM_NEVER;
	for (unsigned i = 0; i < run->nclients; i++) {
		struct run_client *c = &run->clients[i];

		if (sim_due(c->ep) && sim_ready(c->ep) <= now) {
			choice->actors[0] = (struct actor){ACTOR_QUEUE, i};
			choice->count = 1;
			choice->must = true;
			return;
		}
		consider(choice, (struct actor){ACTOR_QUEUE, i}, sim_ready(c->ep), now);
		consider(choice, (struct actor){ACTOR_CLIENT, i}, client_next(c), now);
		consider(choice, (struct actor){ACTOR_RPC, i}, sim_rpc_ready(c->ep), now);
	}
	if (choice->count && sim_keeper_ready(run->sim->daemon))
		choice->actors[choice->count++] = (struct actor){ACTOR_KEEPER, 0};
}

static struct actor choose(struct run *run, const struct choice *choice, struct actor last)
{
	if (sim_chance(run->sim, run->burst))
		for (unsigned i = 0; i < choice->count; i++)
			if (choice->actors[i].kind == last.kind &&
			    choice->actors[i].client == last.client)
				return last;
	/* in a burst a client and its queue go on together */
	if (sim_chance(run->sim, run->burst))
		for (unsigned i = 0; i < choice->count; i++)
			if (choice->actors[i].kind != ACTOR_KEEPER &&
			    choice->actors[i].client == last.client)
				return choice->actors[i];
	return choice->actors[sim_below(run->sim, choice->count)];
}

/* Nobody can act before `until`. The keeper looks around now and then on the way. */
static void leap(struct run *run, uint64_t until)
{
	struct sim *sim = run->sim;

	for (unsigned i = 0; i < KEEPER_LEAPS && sim_keeper_next(sim->daemon) < until; i++) {
		uint64_t next = sim_keeper_next(sim->daemon);

		if (next > sim->now_ns)
			sim_advance(sim, next - sim->now_ns);
		while (sim_keeper_ready(sim->daemon))
			sim_keeper_step(sim->daemon);
	}
	if (until > sim->now_ns)
		sim_advance(sim, until - sim->now_ns);
}

/* Nobody can act, now or later: right if all have ended. */
static void finish(struct run *run)
{
	for (unsigned i = 0; i < run->nclients; i++) {
		const struct run_client *c = &run->clients[i];

		if (!c->ended && !c->gone)
			run_fail(run, "client %u waits for ever", i);
	}
	sim_late_step(run->sim, true);
}

void schedule_run(struct run *run)
{
	struct sim *sim = run->sim;
	struct actor last = {ACTOR_CLIENT, 0};

	while (!run->failed) {
		struct choice choice;

		happen(run);
		gather(run, &choice);
		if (!choice.count && choice.next_ns == SIM_NEVER) {
			finish(run);
			return;
		}
		if (!choice.count) {
			leap(run, choice.next_ns);
			continue;
		}
		sim->step++;
		if (sim->step > MAX_STEPS)
			run_fail(run, "no end after %u steps", MAX_STEPS);
		if (!choice.must)
			sim_advance(sim, 1 + sim_below(sim, sim->tuning.tick_ns));
		last = choice.must ? choice.actors[0] : choose(run, &choice, last);
		act(run, last);
	}
}
