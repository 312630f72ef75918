/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-handover.c - schedules of handover-world.h, and what has to hold in each
 *
 *	test-handover [--schedules N] [--first SEED]
 *	test-handover --seed N --verbose
 *	test-handover-mutations --mutations
 *
 * Checked, as by tests/model/shard.pml: H1 what the target holds at the switch is what the source held; H2 an acknowledged write was done where the
 * shard was; H3 the history of each key is linearizable over all members (linear.c); H4 when nothing moves any more, each owner
 * is open, its slots can be written, and nobody else has any. Prints TAP.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handover-main.h"

#define STEPS     6000u   /* of others' wishes and faults */
#define STEPS_END 200000u /* a schedule that takes more has no end */

struct bench {
	struct hw_test test; /* its first member */
	struct hw_world world;
	struct linear *linear;
	uint64_t crowded;
};

/* ---- who takes the next step ---- */

static bool due(const struct hw_world *w, uint64_t at_ns)
{
	return at_ns <= w->now_ns;
}

static bool act(struct hw_world *w, unsigned actor)
{
	unsigned n = actor / 4;

	switch (actor % 4) {
	case 0:
		if (n >= w->clients_count || !due(w, w->client[n].wake_ns) ||
		    (w->client[n].phase == HW_IDLE && !w->client[n].calls))
			return false;
		hw_client_step(&w->client[n]);
		return true;
	case 1:
		if (n >= w->clients_count || !due(w, w->client[n].house_ns))
			return false;
		hw_client_house(&w->client[n]);
		return true;
	case 2:
		if (n >= w->members || !due(w, w->member[n].wake_ns))
			return false;
		hw_member_step(&w->member[n]);
		return true;
	default:
		if (n >= w->members || !w->member[n].mover.runs || w->member[n].h == NULL ||
		    !due(w, w->member[n].mover.wake_ns))
			return false;
		hw_mover_step(&w->member[n]);
		return true;
	}
}

#define ACTORS (4u * HW_MEMBERS)

/* Often the same one again; when nobody has anything to do, time goes on faster. */
static unsigned step(struct hw_world *w, unsigned last)
{
	unsigned actor = hw_chance(w, 500) ? last : (unsigned)hw_below(w, ACTORS);
	bool done = false;

	w->steps++;
	w->now_ns += hw_below(w, w->tick_ns);
	for (unsigned i = 0; i < 2 * ACTORS && !done; i++) {
		if (i > 0)
			actor = (unsigned)hw_below(w, ACTORS);
		done = act(w, actor);
	}
	if (!done)
		w->now_ns += hw_below(w, w->bound_ns / 4);
	hw_keeper_step(w);
	return actor;
}

/* ---- the end ---- */

static bool at_rest(const struct hw_world *w)
{
	const struct hw_map *map = hw_newest(w);

	if (!hw_keeper_idle(w) || map->map.move_count)
		return false;
	for (unsigned i = 0; i < w->clients_count; i++)
		if (w->client[i].phase != HW_IDLE || w->client[i].calls)
			return false;
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++)
		if (map->owners[shard] == CLUSTER_NOBODY)
			return false;
	for (unsigned i = 0; i < w->members; i++) {
		const struct hw_member *m = &w->member[i];
		struct handover_stats stats;

		if (!hw_member_idle(m))
			return false;
		handover_get_stats(m->h, &stats);
		if (stats.phase != HANDOVER_IDLE || stats.open != stats.owned || stats.clearing ||
		    stats.ready || stats.fenced)
			return false;
	}
	return true;
}

/* No faults any more, and nobody who has a wish. */
static void calm_down(struct hw_world *w)
{
	w->calm = true;
	hw_trace(w, "from here on nothing befalls anybody");
	for (unsigned i = 0; i < w->members; i++) {
		struct hw_member *m = &w->member[i];

		m->wake_ns = m->apart_ns = m->split_ns = m->start_ns = m->mover.wake_ns = 0;
	}
	for (unsigned i = 0; i < w->clients_count; i++)
		w->client[i].house_ns = 0;
	for (unsigned i = 0; i < HW_REQUESTS; i++)
		w->requests[i].ready_ns = 0;
	hw_revive(w);
}

/* H4, and what each key holds in the end as one more get. */
static void check_end(struct hw_world *w)
{
	const struct hw_map *map = hw_newest(w);

	for (unsigned i = 0; i < w->members; i++)
		for (uint32_t key = 0; key < HW_KEYS; key++) {
			uint32_t shard = key % HW_PLAY, word = w->member[i].slots[key];
			bool owner = map->owners[shard] == i;

			if (w->member[i].words[shard] !=
			    (owner ? shard_word_make(SHARD_OPEN, map->since[shard]) : 0))
				hw_fail(w, "m%u's word of shard %u is %llx in the end", i, shard,
					(unsigned long long)w->member[i].words[shard]);
			if (hw_slot_state(word) == HW_FROZEN)
				hw_fail(w, "key %u is frozen at m%u in the end", key, i);
			/* a pending slot is of a client that has died: it is in nobody's way */
			if (!owner && hw_slot_state(word) != HW_PENDING && word)
				hw_fail(w, "m%u holds %x of key %u in the end, and does not own it", i, word,
					key);
			if (owner && hw_slot_value(word) != w->current[key])
				hw_fail(w, "key %u has value %u at its owner in the end, not %u", key,
					hw_slot_value(word), w->current[key]);
		}
}

static void last_get(struct hw_world *w, uint32_t key)
{
	struct hw_record *r = &w->records[w->record_count++];

	*r = (struct hw_record){.key = key};
	r->op.kind = LINEAR_GET;
	r->op.client = HW_CLIENTS;
	r->op.outcome = w->current[key] ? LINEAR_OK : LINEAR_ABSENT;
	r->op.value = w->current[key];
	r->op.invoked = ++w->clock;
	r->op.returned = ++w->clock;
}

static unsigned history(const struct hw_world *w, uint32_t key, struct linear_op *ops)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < w->record_count; i++) {
		const struct hw_record *r = &w->records[i];

		if (r->key != key || r->dropped)
			continue;
		if (count == LINEAR_MAX_OPS)
			return count + 1;
		ops[count++] = r->op;
	}
	return count;
}

static void check_histories(struct bench *b)
{
	struct hw_world *w = &b->world;

	for (uint32_t key = 0; key < HW_KEYS && !w->failure[0]; key++) {
		struct linear_op ops[LINEAR_MAX_OPS];
		unsigned count;
		uint64_t deepest = 0;

		last_get(w, key);
		count = history(w, key, ops);
		if (count > LINEAR_MAX_OPS) {
			b->crowded++;
			continue;
		}
		if (linear_check(b->linear, ops, count, &deepest) == 1)
			continue;
		hw_fail(w, "the history of key %u is not linearizable", key);
		if (w->verbose)
			linear_print(stdout, ops, count, deepest);
	}
}

/* ---- schedules ---- */

static bool run_one(struct hw_test *test, uint64_t seed)
{
	struct bench *b = (struct bench *)test;
	struct hw_world *w = &b->world;
	unsigned last = 0;

	hw_reset(w, seed);
	for (unsigned i = 0; i < STEPS && !w->failure[0]; i++) {
		last = step(w, last);
		if (hw_chance(w, 4))
			hw_planner_step(w);
		if (hw_chance(w, w->faults))
			hw_fault_step(w);
	}
	calm_down(w);
	for (unsigned i = 0; !w->failure[0] && !at_rest(w); i++) {
		last = step(w, last);
		w->now_ns += hw_below(w, 2 * HW_MS);
		if (i == STEPS_END)
			hw_fail(w, "no end");
	}
	if (!w->failure[0])
		check_end(w);
	check_histories(b);
	return !w->failure[0];
}

static bool idle(const struct hw_test *test)
{
	const struct bench *b = (const struct bench *)test;
	const struct hw_world *w = test->world;

	return !w->switches || !w->given_up || !w->takes || !w->starts || !w->fences ||
	       b->crowded * 50 > test->schedules;
}

static void print(const struct hw_test *test)
{
	const struct hw_world *w = test->world;

	printf("%llu hand-overs, %llu given up, %llu shards taken, %llu starts, %llu leases lost; of %llu "
	       "calls %llu answered",
	       (unsigned long long)w->switches, (unsigned long long)w->given_up,
	       (unsigned long long)w->takes, (unsigned long long)w->starts,
	       (unsigned long long)w->fences, (unsigned long long)w->calls,
	       (unsigned long long)w->acknowledged);
}

static const int mutations[] = {
	MUTATION_MISSWORD, MUTATION_FROZWORD, MUTATION_WORDEPOCH, MUTATION_INSWORD,
	MUTATION_INSEARLY, MUTATION_NOFREEZE, MUTATION_NOKILL,    MUTATION_NOPURGE,
	MUTATION_NOAGAIN,  MUTATION_NODEL,    MUTATION_PLAIN,     MUTATION_NOGONE,
	MUTATION_REOPEN,   MUTATION_NOBOOT,   MUTATION_NOABORT,   MUTATION_FORGETS,
	MUTATION_MOVER,    MUTATION_TAKEFIRST, MUTATION_NOWAIT,   MUTATION_READYSINCE,
	MUTATION_NOBOUND,  MUTATION_ACKFRESH, MUTATION_TAKEBOOT,  MUTATION_FENCEDWORD,
};

int main(int argc, char **argv)
{
	struct bench *b = calloc(1, sizeof(*b));
	int ret = 1;

	if (b && (b->linear = linear_create())) {
		b->test = (struct hw_test){.name = "test-handover",
					   .world = &b->world,
					   .run = run_one,
					   .idle = idle,
					   .print = print,
					   .mutations = mutations,
					   .mutation_count = sizeof(mutations) / sizeof(mutations[0])};
		ret = hw_main(&b->test, 300, argc, argv);
		hw_free(&b->world);
		linear_free(b->linear);
	}
	free(b);
	return ret;
}
