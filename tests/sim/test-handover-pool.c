/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-handover-pool.c - schedules of pool-world.h: hand-overs of shards between two pools, with the real clients' and daemons' code
 *
 *	test-handover-pool [--schedules N] [--first SEED]
 *	test-handover-pool --seed N --verbose
 *
 * Checked: at each switch the target holds what the source has frozen; behind a fence all words are "gone"; each key's history over both pools is linearizable; in the end each owner is
 * open, nothing is frozen, and nobody else has a key; walks over all keys, pool-walk.c; and what shadow.c watches in each pool. Prints TAP.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handover-main.h"
#include "pool-world.h"
#include "sim-daemon.h"
#include "tarn/tarn.h"

#define STEPS     24000u
#define STEPS_END 400000u
#define HASH_SEED 0x7461726e5f73696dull

struct bench {
	struct hw_test test; /* its first member */
	struct pw_world world;
	struct linear *linear;
};

/* ---- once ---- */

/* Keys of the first shards. */
static bool find_keys(struct pw_world *w)
{
	uint32_t found = 0;

	for (unsigned i = 0; i < 1000000 && found < HW_KEYS; i++) {
		char key[PW_KEY_BYTES + 8];

		snprintf(key, sizeof(key), "k%07u", i);
		if (shard_of(layout_hash_key(key, PW_KEY_BYTES, HASH_SEED), HW_SHARDS) == found % HW_PLAY)
			memcpy(w->keys[found++], key, PW_KEY_BYTES);
	}
	return found == HW_KEYS;
}

static bool prepare(struct pw_world *w)
{
	const struct layout_plan plan = {
		.pool_bytes = 40u * LAYOUT_PAGE_BYTES,
		.keys = 4,
		.max_clients = SIM_SLOTS,
		.groups = 1,
		.deadline_ns = 100 * HW_MS,
		.epoch_ns = 250 * HW_MS,
		.grace_ns = 500 * HW_MS,
		.max_value_bytes = 1u << 20,
		.hash_seed = HASH_SEED,
		.incarnation = 1,
		.boot_id = 1,
		.shards = HW_SHARDS,
	};

	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		w->pools[i].sim = sim_create(&plan);
		if (!w->pools[i].sim)
			return false;
	}
	return find_keys(w);
}

/* ---- a schedule begins ---- */

#define TAKE_MUTATIONS                                                                        \
	MUTATION_TAKEFIRST, MUTATION_MOVER, MUTATION_NOWAIT, MUTATION_NOBOUND, MUTATION_FENCEDWORD, MUTATION_WALKFRESH

#define WALK_MUTATIONS MUTATION_WALKWORD, MUTATION_WALKMAP, MUTATION_WALKFROZEN

/* In 1024. What a mutation needs is in all of its schedules, or in none. */
static uint32_t takes_share(void)
{
#ifdef TARN_MUTATIONS
	static const int mutations[] = {TAKE_MUTATIONS};

	for (unsigned i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++)
		if (MUTATED(mutations[i]))
			return 1024;
	if (tarn_mutation)
		return 0;
#endif
	return 256;
}

static uint32_t walks_share(void)
{
#ifdef TARN_MUTATIONS
	static const int mutations[] = {WALK_MUTATIONS, MUTATION_WALKFRESH};

	for (unsigned i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++)
		if (MUTATED(mutations[i]))
			return 1024;
	if (tarn_mutation)
		return 0;
#endif
	return 256;
}

/* Half of the schedules have plain calls alone, which are quick and have most of what is told apart by mutations. */
static void choose_mix(struct pw_world *w)
{
	struct hw_world *hw = &w->hw;

	w->mix = (struct pw_mix){.takes = hw_chance(hw, takes_share())};
	if (hw_chance(hw, 512))
		return;
	w->mix = (struct pw_mix){.takes = w->mix.takes,
				 .counters = hw_chance(hw, 512),
				 .counting = hw_chance(hw, 300),
				 .conditions = hw_chance(hw, 512),
				 .expiry = hw_chance(hw, 400),
				 .sizes = hw_chance(hw, 512),
				 .large = hw_chance(hw, 100)};
}

/* Client ids, and so stamps, are another member's never: docs/protocol.md section 11. */
static void set_ids(struct sim *sim, unsigned member)
{
	uint64_t first = (member + 1) * (UINT64_C(1) << 20);

	sim_set_word(sim, offsetof(struct layout_superblock, last_client_id), first);
	sim->daemon->pool.last_client_id = sim->daemon->pool.reserved_client_id = (uint32_t)first;
}

static bool begin(struct pw_world *w, uint64_t seed)
{
	struct hw_world *hw = &w->hw;
	bool stoppable, faa;

	hw_reset(hw, seed);
	choose_mix(w);
	hw->pools = true;
	hw->cache = w->mix.takes && hw_chance(hw, 512);
	hw->forgets = w->mix.takes && !hw->cache;
	/* one with an old map says nothing of keys that were given up, and can not tell when that was */
	w->mix.walks = !hw->forgets && hw_chance(hw, walks_share());
	w->switches = hw->switches;
	w->epochs_all = w->epochs_any = 0;
	faa = hw_chance(hw, w->mix.counting ? 800 : 512);
	hw->maps[1].map.cache = hw->cache;
	hw->maps[1].map.seed = HASH_SEED;
	hw->members = hw->maps[1].map.member_count = PW_MEMBERS;
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++)
		hw->maps[1].owners[shard] = (uint16_t)(shard % PW_MEMBERS);
	hw->tick_ns = HW_MS / 20 << hw_below(hw, 5);
	if (w->mix.takes) {
		hw->bound_ns = PW_BOUND_NS;
		hw->lease_ns = PW_LEASE_NS;
		hw->tick_ns = HW_MS / 5 << hw_below(hw, 3);
	}
	stoppable = hw_chance(hw, 512);
	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		struct sim *sim = w->pools[i].sim;
		struct sim_tuning tuning = {.tick_ns = (uint32_t)hw->tick_ns,
					    .delays = (uint32_t[]){0, 8, 40}[hw_below(hw, 3)],
					    .stalls = (uint32_t[]){0, 4, 16}[hw_below(hw, 3)],
					    .post_stalls = (uint32_t[]){0, 4, 40, 150}[hw_below(hw, 4)],
					    .longest_stall_ns = (2000 + 18000 * hw_below(hw, 2)) * HW_MS,
					    .stoppable = stoppable,
					    .shuffle = hw_chance(hw, 512),
					    .faa = faa,
					    /* movers have several keys under way: shadow.c can not tell whose a ticket is */
					    .pipelined = true,
					    .reads_late = hw_chance(hw, 256)};

		sim->trace = NULL;
		sim_reset(sim, hw_below(hw, UINT32_MAX));
		sim->now_ns = hw->now_ns;
		sim->trace = hw->verbose ? stdout : NULL;
		sim_tune(sim, &tuning);
		w->pools[i].mover = (struct pw_mover){0};
		hw->member[i].pool = &w->pools[i];
		if (!sim_daemon_begin(sim->daemon))
			return false;
		set_ids(sim, i);
		w->epoch_seen[i] = w->epoch_base[i] = sim_epoch(sim);
		pw_member_begin(&hw->member[i]);
	}
	for (unsigned i = 0; i < HW_CLIENTS; i++) {
		w->clients[i].client = &hw->client[i];
		if (!pw_client_open(&w->clients[i]))
			return false;
	}
	return true;
}

static void finish(struct pw_world *w)
{
	for (unsigned i = 0; i < HW_CLIENTS; i++)
		pw_client_free(&w->clients[i]);
	for (unsigned i = 0; i < PW_MEMBERS; i++)
		pw_mover_close(&w->hw.member[i]);
}

/* ---- who takes the next step ---- */

enum { ACTOR_CLIENT, ACTOR_HOUSE, ACTOR_MEMBER, ACTOR_MOVER, ACTOR_QUEUE };
#define ACTORS (2u * HW_CLIENTS + 2u * PW_MEMBERS + PW_MEMBERS * SIM_CLIENTS)

struct choice {
	unsigned actors[ACTORS], count;
	uint64_t next_ns;
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t member_next(const struct hw_member *m)
{
	const struct sim_daemon *d = pw_sim(m)->daemon;
	uint64_t keeper = sim_keeper_next(d), daemon = sim_daemon_next(d);
	uint64_t next = keeper < daemon ? keeper : daemon;

	/* the loop turns all the time: asks, maps, time */
	if (m->h != NULL && next > m->world->now_ns + m->world->tick_ns)
		next = m->world->now_ns + m->world->tick_ns;
	return later(next, m->wake_ns);
}

static uint64_t actor_next(struct pw_world *w, unsigned actor, unsigned *ret_kind, unsigned *ret_n)
{
	struct hw_world *hw = &w->hw;

	if (actor < 2 * HW_CLIENTS) {
		*ret_n = actor / 2;
		*ret_kind = actor % 2 ? ACTOR_HOUSE : ACTOR_CLIENT;
		return actor % 2 ? hw->client[*ret_n].house_ns : pw_client_next(&w->clients[*ret_n]);
	}
	actor -= 2 * HW_CLIENTS;
	if (actor < 2 * PW_MEMBERS) {
		*ret_n = actor / 2;
		*ret_kind = actor % 2 ? ACTOR_MOVER : ACTOR_MEMBER;
		return actor % 2 ? pw_mover_next(&hw->member[*ret_n]) : member_next(&hw->member[*ret_n]);
	}
	*ret_n = actor - 2 * PW_MEMBERS;
	*ret_kind = ACTOR_QUEUE;
	return sim_ready(&w->pools[*ret_n / SIM_CLIENTS].sim->endpoints[*ret_n % SIM_CLIENTS]);
}

static void act(struct pw_world *w, unsigned kind, unsigned n)
{
	switch (kind) {
	case ACTOR_CLIENT:
		hw_client_step(&w->hw.client[n]);
		break;
	case ACTOR_HOUSE:
		hw_client_house(&w->hw.client[n]);
		break;
	case ACTOR_MEMBER:
		hw_member_step(&w->hw.member[n]);
		break;
	case ACTOR_MOVER:
		hw_mover_step(&w->hw.member[n]);
		break;
	default:
		sim_step(&w->pools[n / SIM_CLIENTS].sim->endpoints[n % SIM_CLIENTS]);
	}
}

/* What has to take effect before time goes on (T3). */
static bool overdue(struct pw_world *w)
{
	for (unsigned i = 0; i < PW_MEMBERS * SIM_CLIENTS; i++) {
		struct sim_endpoint *ep = &w->pools[i / SIM_CLIENTS].sim->endpoints[i % SIM_CLIENTS];

		if (sim_due(ep) && sim_ready(ep) <= w->hw.now_ns) {
			sim_step(ep);
			return true;
		}
	}
	return false;
}

static unsigned step(struct pw_world *w, unsigned last)
{
	struct hw_world *hw = &w->hw;
	struct choice choice = {.next_ns = SIM_NEVER};
	unsigned kind, n, actor;

	hw->steps++;
	if (overdue(w))
		return last;
	for (unsigned i = 0; i < ACTORS; i++) {
		uint64_t at = actor_next(w, i, &kind, &n);

		if (at <= hw->now_ns)
			choice.actors[choice.count++] = i;
		else if (at < choice.next_ns)
			choice.next_ns = at;
	}
	if (choice.count == 0) {
		hw->now_ns = choice.next_ns == SIM_NEVER ? hw->now_ns + HW_MS : choice.next_ns;
	} else {
		actor = choice.actors[hw_below(hw, choice.count)];
		for (unsigned i = 0; i < choice.count; i++)
			if (choice.actors[i] == last && hw_chance(hw, 600))
				actor = last;
		last = actor;
		hw->now_ns += 1 + hw_below(hw, hw->tick_ns);
		actor_next(w, actor, &kind, &n);
	}
	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		w->pools[i].sim->now_ns = hw->now_ns;
		w->pools[i].sim->step = hw->steps;
	}
	if (choice.count)
		act(w, kind, n);
	pw_epochs(w);
	hw_keeper_step(hw);
	for (unsigned i = 0; i < PW_MEMBERS; i++)
		if (w->pools[i].sim->violation[0])
			hw_fail(hw, "m%u: %s", i, w->pools[i].sim->violation);
	return last;
}

/* ---- the end ---- */

static bool at_rest(const struct pw_world *w)
{
	const struct hw_world *hw = &w->hw;

	if (!hw_keeper_idle(hw) || hw_newest(hw)->map.move_count)
		return false;
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++)
		if (hw_newest(hw)->owners[shard] == CLUSTER_NOBODY)
			return false;
	for (unsigned i = 0; i < HW_CLIENTS; i++)
		if (hw->client[i].phase != HW_IDLE || hw->client[i].calls)
			return false;
	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		struct handover_stats stats;

		if (!hw_member_idle(&hw->member[i]))
			return false;
		handover_get_stats(hw->member[i].h, &stats);
		if (stats.phase != HANDOVER_IDLE || stats.open != stats.owned || stats.clearing ||
		    stats.ready || stats.fenced)
			return false;
	}
	return true;
}

static void check_end(struct pw_world *w)
{
	struct hw_world *hw = &w->hw;
	const struct hw_map *map = hw_newest(hw);

	for (unsigned i = 0; i < PW_MEMBERS; i++)
		for (uint32_t key = 0; key < HW_KEYS; key++) {
			const struct sim *sim = w->pools[i].sim;
			uint32_t shard = key % HW_PLAY;
			bool owner = map->owners[shard] == i;
			uint64_t word = sim_word(sim, layout_shard_offset(&sim->geometry, shard)), slot;

			if (owner ? word != shard_word_make(SHARD_OPEN, map->since[shard])
				  : shard_word_state(word) != SHARD_GONE)
				hw_fail(hw, "m%u's word of shard %u is %llx in the end", i, shard,
					(unsigned long long)word);
			if (!pw_slot(hw, i, key, &slot))
				continue;
			if (layout_slot_state(slot) == LAYOUT_SLOT_FROZEN || !owner)
				hw_fail(hw, "m%u has slot %llx of key %u in the end", i,
					(unsigned long long)slot, key);
		}
}

/* What is there in the end is what one more get would find. */
static void last_get(struct pw_world *w, uint32_t key, struct linear_op *ret_op)
{
	struct hw_world *hw = &w->hw;
	unsigned owner = hw_newest(hw)->owners[key % HW_PLAY];

	*ret_op = (struct linear_op){.kind = LINEAR_GET,
				     .client = HW_CLIENTS,
				     .epoch_invoked = w->epochs_all,
				     .epoch_returned = w->epochs_any};
	ret_op->outcome = pw_last(hw, owner, key, &ret_op->counter, &ret_op->value) ? LINEAR_OK
										    : LINEAR_ABSENT;
	ret_op->invoked = ++hw->clock;
	ret_op->returned = ++hw->clock;
}

static void check_histories(struct bench *b)
{
	struct hw_world *w = &b->world.hw;

	for (uint32_t key = 0; key < HW_KEYS && !w->failure[0]; key++) {
		struct linear_op ops[LINEAR_MAX_OPS];
		unsigned count = 0;
		uint64_t deepest = 0;

		for (uint32_t i = 0; i < w->record_count && count + 1 < LINEAR_MAX_OPS; i++)
			if (w->records[i].key == key && !w->records[i].dropped) {
				pw_call_expires(&b->world, &w->records[i]);
				ops[count++] = w->records[i].op;
			}
		if (count + 1 == LINEAR_MAX_OPS) {
			b->world.crowded++;
			continue;
		}
		last_get(&b->world, key, &ops[count++]);
		if (linear_check(b->linear, ops, count, &deepest) == 1)
			continue;
		hw_fail(w, "the history of key %u is not linearizable", key);
		if (w->verbose)
			linear_print(stdout, ops, count, deepest);
	}
}

static void calm_down(struct pw_world *w)
{
	struct hw_world *hw = &w->hw;

	hw->calm = true;
	hw->tick_ns = HW_MS;
	hw_trace(hw, "from here on nothing befalls anybody");
	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		struct hw_member *m = &hw->member[i];

		m->wake_ns = m->apart_ns = m->mover.wake_ns = 0;
		pw_sim(m)->tuning.stalls = pw_sim(m)->tuning.post_stalls = 0;
	}
	for (unsigned i = 0; i < HW_CLIENTS; i++)
		hw->client[i].house_ns = 0;
	for (unsigned i = 0; i < HW_REQUESTS; i++)
		hw->requests[i].ready_ns = 0;
	hw_revive(hw);
}

/* ---- schedules ---- */

static bool run_one(struct hw_test *test, uint64_t seed)
{
	struct bench *b = (struct bench *)test;
	struct pw_world *w = &b->world;
	struct hw_world *hw = &w->hw;
	unsigned last = 0;

	if (!begin(w, seed))
		hw_fail(hw, "no memory for a client");
	for (unsigned i = 0; i < STEPS && !hw->failure[0]; i++) {
		last = step(w, last);
		if (hw_below(hw, 600) == 0)
			hw_planner_step(hw);
		if (hw->faults && hw_below(hw, 8192) < hw->faults)
			hw_fault_step(hw);
	}
	calm_down(w);
	for (unsigned i = 0; !hw->failure[0] && !at_rest(w); i++) {
		last = step(w, last);
		if (i == STEPS_END)
			hw_fail(hw, "no end");
	}
	if (!hw->failure[0])
		check_end(w);
	if (!hw->failure[0])
		check_histories(b);
	finish(w);
	return !hw->failure[0];
}

static bool idle(const struct hw_test *test)
{
	const struct pw_world *pw = &((const struct bench *)test)->world;
	const struct hw_world *w = test->world;

	return !w->takes || !w->fences || pw->crowded * 50 > test->schedules || !w->switches || !w->given_up || !w->starts || !pw->adds || !pw->conditional || !pw->expiring ||
	       !pw->larges || !pw->walked;
}

static void print(const struct hw_test *test)
{
	const struct pw_world *pw = &((const struct bench *)test)->world;
	const struct hw_world *w = test->world;

	printf("%llu hand-overs, %llu given up, %llu shards taken, %llu leases lost, %llu starts; of %llu calls %llu answered; %llu adds, %llu "
	       "conditions, %llu values that expire, %llu in extents; %llu of %llu walks ended, in which %llu keys came again",
	       (unsigned long long)w->switches, (unsigned long long)w->given_up,
	       (unsigned long long)w->takes, (unsigned long long)w->fences,
	       (unsigned long long)w->starts, (unsigned long long)w->calls,
	       (unsigned long long)w->acknowledged, (unsigned long long)pw->adds,
	       (unsigned long long)pw->conditional, (unsigned long long)pw->expiring,
	       (unsigned long long)pw->larges, (unsigned long long)pw->walked,
	       (unsigned long long)pw->walks, (unsigned long long)pw->again);
}

/* WORDEPOCH, INSEARLY, ACKFRESH and TAKEBOOT need more chance than there is time for here: test-handover has them */
static const int mutations[] = {
	MUTATION_MISSWORD, MUTATION_FROZWORD, MUTATION_INSWORD, MUTATION_NOFREEZE, MUTATION_NOKILL,
	MUTATION_NOPURGE,  MUTATION_NOAGAIN,  MUTATION_NODEL,   MUTATION_PLAIN,
	MUTATION_COUNTREAD, MUTATION_COUNTEARLY, MUTATION_NOTTL,
	TAKE_MUTATIONS,
	WALK_MUTATIONS,
};

int main(int argc, char **argv)
{
	struct bench *b = calloc(1, sizeof(*b));
	int ret = 1;

	/* sessions come and go with each schedule: keep their memory */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	if (b && (b->linear = linear_create()) && prepare(&b->world)) {
		b->test = (struct hw_test){.name = "test-handover-pool",
					   .world = &b->world.hw,
					   .run = run_one,
					   .idle = idle,
					   .print = print,
					   .mutations = mutations,
					   .mutation_count = sizeof(mutations) / sizeof(mutations[0])};
		ret = hw_main(&b->test, 200, argc, argv);
		hw_free(&b->world.hw);
	}
	for (unsigned i = 0; b && i < PW_MEMBERS; i++)
		if (b->world.pools[i].sim)
			sim_free(b->world.pools[i].sim);
	if (b)
		linear_free(b->linear);
	free(b);
	return ret;
}
