/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * schedule.c - who takes the next step, until all scripts have ended and all queues are empty
 *
 * The actors are: each endpoint's queue (one word of a request), each client (a completion, a
 * call), the daemon (to its next access that others may come before). When nobody can act, time leaps to
 * the next instant at which somebody can. Kills, broken connections and flips happen at steps that scenario.c has
 * drawn.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define MAX_STEPS   400000u        /* a schedule that takes more has a livelock */
#define SETTLE_NS   90000000000ull /* so long everybody looks after the pool in the end */
#define TIDY_NS     5000000000ull  /* in this time no split is half done any more */
#define LEAP_EPOCHS 9u             /* a longer sleep of everybody is cut short for the keeper */

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

bool run_quiet(struct run *run)
{
	for (unsigned i = 0; i < run->nclients; i++)
		if (!run->clients[i].finished && !run->clients[i].gone && !run->clients[i].ended)
			return false;
	if (!run->quiet_ns) {
		run->quiet_ns = run->sim->now_ns + (run->settles ? SETTLE_NS : 0);
		for (unsigned i = 0; i < run->nclients; i++)
			client_wake(&run->clients[i]);
	}
	return run->sim->now_ns >= run->quiet_ns;
}

/* ---- what happens to clients and memory ----------------------------------------------------- */

/* Section 8: a split leaves a key that it can not read where it is, which may be the wrong half. */
static void note_unreadable(struct run *run, const struct layout_block *block, uint64_t at)
{
	unsigned key = 0;

	if (at != offsetof(struct layout_block, key_length) &&
	    at != offsetof(struct layout_block, key_length) + 1 &&
	    (at < LAYOUT_BLOCK_HEADER || at >= LAYOUT_BLOCK_HEADER + RUN_KEY_BYTES))
		return;
	while (key < run->nkeys &&
	       memcmp(run->keys[key], layout_block_key(block), RUN_KEY_BYTES) != 0)
		key++;
	run->unreadable_key = key;
	run->unreadable_depth = run_root_depth(run);
}

/*
 * Fault: one bit of a block that a committed slot names. Of a counter, not of its number, which has
 * no checksum.
 */
static void flip(struct run *run)
{
	struct sim *sim = run->sim;
	uint64_t subtable = layout_page_offset(&sim->geometry, run->root);

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
		note_unreadable(run, block, at - offset);
		byte = (uint8_t)(sim->pool[at] ^ 1u << sim_below(sim, 8));
		sim_write(sim, at, &byte, 1);
		sim_tracef(sim, "a bit flips at block %llx + %llu", (unsigned long long)offset,
			   (unsigned long long)(at - offset));
		run->flipped = true;
		run->flip_step = SIM_NEVER;
		return;
	}
}

static void kill_daemon(struct run *run)
{
	struct sim *sim = run->sim;

	sim_daemon_kill(sim->daemon, sim_below(sim, 2 * sim->geometry.grace_ns));
	for (unsigned i = 0; i < run->nclients; i++)
		client_orphan(&run->clients[i]);
	run->daemon_kill_step = run->daemon_kills ? sim->step + 1 + sim_below(sim, 600) : SIM_NEVER;
	run->daemon_kills -= run->daemon_kills > 0;
}

/* What comes back needs its time again, and everybody's housekeeping. */
static void settle_again(struct run *run)
{
	run->quiet_ns = 0;
	for (unsigned i = 0; i < run->nclients; i++)
		run->clients[i].ended = false;
}

/* True: there is something to be done now. */
static bool raise_somebody(struct run *run)
{
	return run->raises && sim_chance(run->sim, run->raises) &&
	       client_raise(&run->clients[sim_below(run->sim, run->nclients)]);
}

static void happen(struct run *run)
{
	uint64_t step = run->sim->step;
	bool losses = run->losses;

	run->losses = false;
	for (unsigned i = 0; i < run->nclients; i++) {
		if (run->kill_step[i] == step)
			client_kill(&run->clients[i]);
		if (run->break_step[i] == step)
			client_break(&run->clients[i]);
		if (run->clients[i].gone && client_doubtful(&run->clients[i]) &&
		    run->clients[i].ep->fenced)
			client_fenced(&run->clients[i]);
	}
	raise_somebody(run);
	if (step >= run->flip_step)
		flip(run);
	if (run->daemon_kill_step <= step)
		kill_daemon(run);
	if (run->daemon_stop_step == step) {
		run->daemon_stop_step = SIM_NEVER;
		run->sim->daemon_stopped_ns =
			run->sim->now_ns + sim_below(run->sim, 6 * run->sim->geometry.grace_ns);
		sim_tracef(run->sim, "the daemon stands still until %llu us",
			   (unsigned long long)run->sim->daemon_stopped_ns / 1000);
	}
	if (run->sim->late_count)
		sim_late_step(run->sim, false);
	if (run->losses && run->settles)
		settle_again(run);
	run->losses |= losses;
}

/* ---- actors --------------------------------------------------------------------------------- */

enum actor_kind { ACTOR_QUEUE, ACTOR_CLIENT, ACTOR_DAEMON };
struct actor {
	enum actor_kind kind;
	unsigned client;
};
#define ACTORS (2u * RUN_CLIENTS + 1u)

static void act(struct run *run, struct actor actor)
{
	switch (actor.kind) {
	case ACTOR_QUEUE:
		sim_step(run->clients[actor.client].ep);
		break;
	case ACTOR_CLIENT:
		client_act(&run->clients[actor.client]);
		break;
	case ACTOR_DAEMON:
		sim_daemon_step(run->sim->daemon);
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
	const struct actor daemon = {ACTOR_DAEMON, RUN_CLIENTS};
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
	}
	consider(choice, daemon, sim_daemon_next(run->sim->daemon), now);
	/* while all sleep the keeper alone is no reason to go step by step */
	if (choice->count && choice->actors[choice->count - 1].kind != ACTOR_DAEMON)
		consider(choice, daemon, sim_keeper_next(run->sim->daemon), now);
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
			if (choice->actors[i].client == last.client)
				return choice->actors[i];
	return choice->actors[sim_below(run->sim, choice->count)];
}

static bool somebody_awaited(const struct run *run)
{
	for (unsigned i = 0; i < run->nclients; i++)
		if (client_awaited(&run->clients[i]))
			return true;
	return false;
}

/*
 * Nobody but the keeper can act before `until`. It does its work undisturbed; in a very long time only
 * at the beginning and at the end. Its last step may be late, and meet those who wake up.
 */
static void leap(struct run *run, uint64_t until)
{
	struct sim *sim = run->sim;
	uint64_t epoch = sim->geometry.epoch_ns, next;
	unsigned least = run->kind == RUN_WRAP ? 3 : LEAP_EPOCHS; /* there it happens often */
	bool whole = until - sim->now_ns < least * epoch;
	uint64_t skip_ns = sim->now_ns + least / 3 * epoch;

	while ((next = sim_keeper_next(sim->daemon)) < until) {
		if (next > sim->now_ns)
			sim->now_ns = next;
		if (until - next < epoch / 4 && sim_chance(sim, 400))
			break;
		/* a daemon that stood still has perhaps slept through most of it */
		if (!whole && next >= skip_ns && (until - next) / epoch > least / 3) {
			uint64_t skipped = (until - next) / epoch - least / 3;

			sim_keeper_skip(sim->daemon, skipped);
			sim->now_ns += skipped * epoch;
			whole = true;
		}
		sim_keeper_run(sim->daemon);
		if (somebody_awaited(run) || raise_somebody(run))
			return;
	}
	if (until > sim->now_ns)
		sim->now_ns = until;
}

/* Is something of a split still to be done? */
static bool untidy(const struct sim *sim)
{
	const struct layout_geometry *g = &sim->geometry;
	uint64_t global = sim_word(sim, LAYOUT_GLOBAL_DEPTH_OFFSET);

	for (uint64_t i = 0; i < 1ull << global; i++) {
		uint64_t entry = sim_word(sim, layout_directory_offset(g, i)),
			 bucket = layout_page_offset(g, layout_directory_page(entry));

		if (layout_directory_state(entry) != LAYOUT_DIRECTORY_VALID)
			return true;
		for (unsigned word = 0; word < 3 * LAYOUT_BUCKET_BYTES / 8; word++) {
			uint64_t value = sim_word(sim, bucket + 8ull * word);

			if (word % 8 == 0 ? layout_header_split(value) != 0
					  : layout_slot_state(value) >= LAYOUT_SLOT_FROZEN)
				return true;
		}
	}
	return false;
}

/* There was nobody left to wait for what comes back. */
static bool nobody_left(const struct run *run)
{
	for (unsigned i = 0; i < run->nclients; i++)
		if (!run->clients[i].gone)
			return false;
	return true;
}

/* Nobody can act, now or later: right if all have ended. */
static void finish(struct run *run)
{
	struct sim *sim = run->sim;
	uint64_t until = sim->now_ns + TIDY_NS;
	bool alone = run->settles && nobody_left(run);

	for (unsigned i = 0; i < run->nclients; i++) {
		const struct run_client *c = &run->clients[i];

		if (!c->ended && !c->gone)
			run_fail(run, "client %u waits for ever", i);
	}
	sim_late_step(sim, true);
	if (alone)
		until = sim->now_ns + SETTLE_NS;
	while ((alone || untidy(sim)) && sim_keeper_next(sim->daemon) < until) {
		if (sim_keeper_next(sim->daemon) > sim->now_ns)
			sim->now_ns = sim_keeper_next(sim->daemon);
		sim_keeper_run(sim->daemon);
	}
	if (sim->violation[0])
		run_fail(run, "%s", sim->violation);
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
			sim->now_ns += 1 + sim_below(sim, sim->tuning.tick_ns);
		last = choice.must ? choice.actors[0] : choose(run, &choice, last);
		act(run, last);
		if (sim->violation[0])
			run_fail(run, "%s", sim->violation);
	}
}
