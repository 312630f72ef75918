/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-client.c - a client of a cluster, by docs/protocol.md section 11: one access a step
 *
 * What client/kv*.c and a cluster's session do with shards' words and maps, on slots of the test's own. The map of a call is
 * the one with which it began; housekeeping gets newer ones at the same time. Next: test-handover.c.
 */
#include "handover-world.h"
#include "shard.h"

static const struct hw_map *map_of(const struct hw_client *c)
{
	return &c->world->maps[c->call_map];
}

static struct hw_record *record_of(const struct hw_client *c)
{
	return &c->world->records[c->record];
}

static uint32_t shard_of_call(const struct hw_client *c)
{
	return record_of(c)->key % HW_PLAY;
}

static uint32_t *slot_of(const struct hw_client *c)
{
	return &c->world->member[c->target].slots[record_of(c)->key];
}

static bool cas(struct hw_client *c, uint32_t compare, uint32_t word)
{
	struct hw_world *w = c->world;
	uint32_t key = record_of(c)->key;
	bool done = *slot_of(c) == compare;

	hw_trace(w, "c%u CAS key %u at m%u: %x -> %x, was %x", c->number, key, c->target, compare,
		 word, *slot_of(c));
	if (done)
		c->effective = hw_change(w, c->target, key, word);
	return done;
}

/* ---- a call begins and ends ---- */

void hw_client_begin(struct hw_client *c)
{
	struct hw_world *w = c->world;
	static const enum linear_kind kinds[] = {LINEAR_GET, LINEAR_GET, LINEAR_PUT,
						 LINEAR_PUT, LINEAR_DELETE};
	struct hw_record *r = &w->records[w->record_count];

	c->record = w->record_count++;
	*r = (struct hw_record){.key = (uint32_t)hw_below(w, HW_KEYS)};
	r->op.kind = kinds[hw_below(w, 5)];
	r->op.client = c->number;
	r->op.invoked = ++w->clock;
	r->op.returned = LINEAR_NEVER;
	r->op.outcome = LINEAR_MAYBE;
	if (r->op.kind == LINEAR_PUT)
		r->op.value = w->record_count;
	c->calls--;
	c->phase = HW_BEGIN;
	c->pends = false;
	c->limit_ns = w->now_ns + HW_LIMIT_NS;
	w->calls++;
	hw_trace(w, "c%u begins %s of key %u%s%u", c->number,
		 r->op.kind == LINEAR_GET   ? "get"
		 : r->op.kind == LINEAR_PUT ? "put"
					    : "delete",
		 r->key, r->op.kind == LINEAR_PUT ? ", value " : ", record ", w->record_count);
}

static void end(struct hw_client *c, enum linear_outcome outcome, bool dropped)
{
	struct hw_world *w = c->world;
	struct hw_record *r = record_of(c);

	r->op.returned = ++w->clock;
	r->op.outcome = outcome;
	r->dropped = dropped;
	if (r->op.kind == LINEAR_GET && outcome == LINEAR_OK)
		r->op.value = c->value;
	w->acknowledged += !dropped && outcome != LINEAR_MAYBE;
	hw_trace(w, "c%u ends: %s", c->number,
		 dropped                    ? "no answer"
		 : outcome == LINEAR_MAYBE  ? "ambiguous"
		 : outcome == LINEAR_ABSENT ? "absent"
					    : "done");
	c->phase = HW_IDLE;
	c->wake_ns = w->now_ns + hw_while(w);
}

void hw_client_break(struct hw_client *c)
{
	struct hw_world *w = c->world;

	if (c->phase == HW_IDLE)
		return;
	end(c, LINEAR_MAYBE, record_of(c)->op.kind == LINEAR_GET);
	/* what it has posted is done already, or never will be */
	record_of(c)->op.returned = ++w->clock;
}

/* The map is old, or somebody moves the shard: again, with whatever map there is then. */
static void again(struct hw_client *c)
{
	struct hw_world *w = c->world;

	if (w->now_ns > c->limit_ns) {
		end(c, LINEAR_MAYBE, true); /* timeout: no effect */
		return;
	}
	c->phase = HW_BEGIN;
	/* a question at once, if it can be asked */
	if (c->house_ns < w->now_ns + w->bound_ns)
		c->house_ns = w->now_ns;
	c->wake_ns = w->now_ns + hw_below(w, 20 * HW_MS);
}

/* ---- words ---- */

static bool compares(const struct hw_client *c, uint64_t word, bool writable)
{
	uint64_t since = MUTATED(MUTATION_WORDEPOCH) ? shard_word_epoch(word) : c->since;

	return writable ? shard_word_writable(word, since) : shard_word_readable(word, since);
}

static bool look(struct hw_client *c, bool writable)
{
	uint64_t word = c->world->member[c->target].words[shard_of_call(c)];

	hw_trace(c->world, "c%u reads the word of shard %u at m%u: state %u, epoch %llu, its map has %llu",
		 c->number, shard_of_call(c), c->target, shard_word_state(word),
		 (unsigned long long)shard_word_epoch(word), (unsigned long long)c->since);
	return compares(c, word, writable);
}

/* ---- the steps of a call ---- */

static void begin(struct hw_client *c)
{
	const struct hw_map *map = &c->world->maps[c->map];
	uint32_t shard = shard_of_call(c);

	c->call_map = c->map;
	c->effective = false;
	if (map->owners[shard] == CLUSTER_NOBODY) {
		again(c);
		return;
	}
	c->target = map->owners[shard];
	c->since = map->since[shard];
	c->phase = HW_READ;
}

static void found(struct hw_client *c)
{
	enum linear_kind kind = record_of(c)->op.kind;
	enum hw_state state = hw_slot_state(c->word);
	bool present = state >= HW_COMMITTED;

	c->value = hw_slot_value(c->word);
	c->outcome = present ? LINEAR_OK : LINEAR_ABSENT;
	if (kind == LINEAR_PUT && !present) {
		c->phase = state == HW_PENDING		   ? HW_KILL
			   : MUTATED(MUTATION_INSEARLY) ? HW_EARLY
							   : HW_PEND;
		return;
	}
	if (kind != LINEAR_GET && state == HW_FROZEN) {
		again(c);
		return;
	}
	if (kind != LINEAR_GET && present) {
		c->phase = HW_CHANGE;
		return;
	}
	c->phase = HW_ANSWER;
	if (state == HW_FROZEN && !MUTATED(MUTATION_FROZWORD))
		c->phase = HW_WORD;
	if (!present && !MUTATED(MUTATION_MISSWORD))
		c->phase = HW_WORD;
}

/* Behind the completion: is the map of the call one that counts? */
static bool counts(const struct hw_client *c)
{
	const struct hw_map *now = &c->world->maps[c->map];
	uint32_t shard = shard_of_call(c);
	bool good = true;

	if (!MUTATED(MUTATION_ACKFRESH))
		good &= now->taken[shard] <= map_of(c)->map.epoch;
	if (!MUTATED(MUTATION_NOBOUND))
		good &= c->world->now_ns < c->fresh_ns;
	return good;
}

static void answer(struct hw_client *c)
{
	struct hw_world *w = c->world;
	bool get = record_of(c)->op.kind == LINEAR_GET;
	bool effect = !get && c->outcome == LINEAR_OK;

	/* in a store pool owners do not change without themselves: what was read is true whatever the clock says */
	if (!counts(c) && (!get || w->cache)) {
		if (effect)
			end(c, LINEAR_MAYBE, false);
		else
			again(c);
		return;
	}
	if (effect && !c->effective)
		hw_fail(w, "c%u: a write of key %u is acknowledged, and was not done where the shard was",
			c->number, record_of(c)->key);
	end(c, c->outcome, false);
}

static void change(struct hw_client *c)
{
	struct hw_record *r = record_of(c);
	uint32_t word = r->op.kind == LINEAR_PUT ? hw_slot(HW_COMMITTED, (uint32_t)r->op.value) : 0;

	if (cas(c, c->word, word))
		c->phase = HW_ANSWER;
	else
		c->phase = HW_READ;
}

static void commit(struct hw_client *c)
{
	uint32_t value = (uint32_t)record_of(c)->op.value;

	if (cas(c, hw_slot(HW_PENDING, value), hw_slot(HW_COMMITTED, value))) {
		c->outcome = LINEAR_OK;
		c->phase = HW_ANSWER;
	} else {
		again(c); /* killed */
	}
}

void hw_client_step(struct hw_client *c)
{
	struct hw_world *w = c->world;
	uint32_t pending;

	if (c->phase == HW_IDLE) {
		if (c->calls > 0)
			hw_client_begin(c);
		return;
	}
	pending = hw_slot(HW_PENDING, (uint32_t)record_of(c)->op.value);
	switch (c->phase) {
	case HW_IDLE:
	case HW_WALK:
		break;
	case HW_BEGIN:
		begin(c);
		break;
	case HW_READ:
		c->word = *slot_of(c);
		hw_trace(w, "c%u reads key %u at m%u: %x", c->number, record_of(c)->key, c->target, c->word);
		found(c);
		break;
	case HW_WORD:
		if (look(c, false))
			c->phase = HW_ANSWER;
		else
			again(c);
		break;
	case HW_EARLY:
		c->phase = HW_PEND;
		if (!look(c, true))
			again(c);
		break;
	case HW_PEND:
		if (!cas(c, 0, pending))
			c->phase = HW_READ;
		else if (MUTATED(MUTATION_INSEARLY) || MUTATED(MUTATION_INSWORD))
			c->phase = HW_COMMIT;
		else
			c->phase = HW_BEHIND;
		break;
	case HW_BEHIND:
		c->phase = look(c, true) ? HW_COMMIT : HW_WITHDRAW;
		break;
	case HW_WITHDRAW:
		cas(c, pending, 0);
		again(c);
		break;
	case HW_COMMIT:
		commit(c);
		break;
	case HW_KILL:
		cas(c, c->word, 0);
		c->phase = HW_READ;
		break;
	case HW_CHANGE:
		change(c);
		break;
	case HW_ANSWER:
		answer(c);
		break;
	}
	if (c->phase > HW_BEGIN && !w->calm && hw_chance(w, w->stalls))
		c->wake_ns = w->now_ns + hw_while(w);
}

/* ---- its map ---- */

void hw_client_house(struct hw_client *c)
{
	hw_client_ask(c);
}
