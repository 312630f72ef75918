/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c - one schedule from seed to verdict
 *
 * Next: scenario.c (the beginning), schedule.c (the middle), structure.c and linear.c (the end).
 */
#include <stdlib.h>
#include <string.h>

#include "run.h"

struct run *run_create(void)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	run->linear = linear_create();
	for (unsigned i = 0; i < RUN_CLIENTS; i++) {
		struct run_client *c = &run->clients[i];

		c->run = run;
		c->number = i;
		c->buffer = calloc(1, RUN_BUFFER_BYTES);
		c->value = calloc(1, RUN_BUFFER_BYTES);
		if (!c->buffer || !c->value)
			goto fail;
		for (unsigned call = 0; call < RUN_DEPTH; call++) {
			c->calls[call].client = c;
			c->calls[call].buffer = calloc(2, RUN_CALL_BYTES);
			if (!c->calls[call].buffer)
				goto fail;
			c->calls[call].value = c->calls[call].buffer + RUN_CALL_BYTES;
		}
	}
	if (!run->linear || !scenario_prepare(run))
		goto fail;
	return run;
fail:
	run_free(run);
	return NULL;
}

void run_free(struct run *run)
{
	if (!run)
		return;
	for (unsigned i = 0; i < RUN_CLIENTS; i++) {
		free(run->clients[i].buffer);
		free(run->clients[i].value);
		for (unsigned call = 0; call < RUN_DEPTH; call++)
			free(run->clients[i].calls[call].buffer);
	}
	linear_free(run->linear);
	sim_free(run->sim);
	free(run);
}

/* The calls on one key, without those that say nothing. */
static unsigned history(const struct run *run, unsigned key, struct linear_op ops[RUN_RECORDS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < run->record_count; i++)
		if (run->records[i].key == key && !run->records[i].dropped)
			ops[n++] = run->records[i].op;
	return n;
}

uint32_t run_root_depth(const struct run *run)
{
	return layout_header_depth(
		sim_word(run->sim, layout_page_offset(&run->sim->geometry, run->root)));
}

static void histories_check(struct run *run)
{
	struct linear_op ops[RUN_RECORDS];
	/* this key was hit, and then a split had to guess */
	unsigned lost = run_root_depth(run) != run->unreadable_depth ? run->unreadable_key
								     : RUN_KEYS;

	for (unsigned key = 0; key < run->nkeys && !run->failed; key++) {
		unsigned n = history(run, key, ops);
		int verdict = linear_check(run->linear, ops, n, &run->deepest);

		if (verdict == 1 || key == lost)
			continue;
		run_fail(run,
			 verdict == 0 ? "the history of key %u is not linearizable"
				      : "key %u: the checker failed",
			 key);
		run->failed_key = key;
	}
}

bool run_schedule(struct run *run, uint64_t seed, enum run_kind kind)
{
	struct sim *sim = run->sim;
	bool good;

	run->seed = seed;
	run->failed = run->flipped = run->losses = false;
	run->record_count = run->filler_count = run->page_count = 0;
	run->unreadable_key = RUN_KEYS;
	run->unreadable_depth = 0;
	run->clock = run->deepest = run->quiet_ns = 0;
	sim->trace = run->verbose ? stdout : NULL;
	sim_reset(sim, seed);
	good = scenario_begin(run, kind);
	run->by_kind[run->kind]++;
	if (good)
		schedule_run(run);
	else
		run_fail(run, "no memory for a client");
	if (!run->failed)
		structure_check(run);
	if (!run->failed && !run->crowded)
		histories_check(run);
	sim_daemon_count(sim->daemon, &run->daemon);
	run->total_steps += sim->step;
	for (unsigned i = 0; i < run->nclients; i++)
		client_free(&run->clients[i]);
	return !run->failed;
}

void run_print(const struct run *run, FILE *file)
{
	struct linear_op ops[RUN_RECORDS];

	fprintf(file, "# seed %llu, kind %s: %s\n", (unsigned long long)run->seed,
		run_kind_name(run->kind), run->failure);
	for (unsigned key = 0; key < run->nkeys; key++) {
		if (run->failed_key < RUN_KEYS && key != run->failed_key)
			continue;
		fprintf(file,
			"# history of key %u (* could not be put in order; client %u is the pool "
			"at the end):\n",
			key, RUN_CLIENTS);
		linear_print(file, ops, history(run, key, ops),
			     run->failed_key == key ? run->deepest : UINT64_MAX);
	}
}
