/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-world.c - the map's keeper, who else changes the map, and what befalls the members
 *
 * Watches what the model (tests/model/shard.pml) calls H1 and H2: where each key is, and what it holds there. Next: handover-member.c.
 */
#include "handover-world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- chance, words ---- */

uint64_t hw_below(struct hw_world *w, uint64_t n)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % n;
}

bool hw_chance(struct hw_world *w, uint32_t per_1024)
{
	return hw_below(w, 1024) < per_1024;
}

uint64_t hw_while(struct hw_world *w)
{
	switch (hw_below(w, 16)) {
	case 0:
		return hw_below(w, 4 * HW_BOUND_NS);
	case 1:
	case 2:
		return hw_below(w, HW_BOUND_NS / 2);
	default:
		return hw_below(w, 4 * w->tick_ns);
	}
}

void hw_fail(struct hw_world *w, const char *format, ...)
{
	va_list args;

	if (w->failure[0])
		return;
	va_start(args, format);
	vsnprintf(w->failure, sizeof(w->failure), format, args);
	va_end(args);
	hw_trace(w, "FAILED: %s", w->failure);
}

void hw_trace(struct hw_world *w, const char *format, ...)
{
	va_list args;

	if (!w->verbose)
		return;
	printf("%6llu %10.3f ms  ", (unsigned long long)w->steps, (double)w->now_ns / 1e6);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

/* ---- the map ---- */

static void map_bind(struct hw_map *m)
{
	m->map.members = m->members;
	m->map.moves = m->moves;
	m->map.owners = m->owners;
	m->map.since = m->since;
	m->map.taken = m->taken;
}

struct hw_map *hw_map_next(struct hw_world *w)
{
	struct hw_map *next;

	if (w->newest + 1 == HW_MAPS) {
		hw_fail(w, "the map has changed %u times, and there is no end", HW_MAPS);
		return NULL;
	}
	next = &w->maps[w->newest + 1];
	*next = *hw_newest(w);
	map_bind(next);
	return next;
}

void hw_map_publish(struct hw_world *w)
{
	struct hw_map *m = &w->maps[w->newest + 1];

	m->map.epoch += 1 + hw_below(w, 3);
	w->newest++;
	for (uint32_t shard = 0; shard < HW_PLAY; shard++) {
		if (m->owners[shard] != CLUSTER_NOBODY)
			w->last_owner[shard] = m->owners[shard];
		hw_trace(w, "the map of epoch %llu: shard %u is m%d's since %llu, taken %llu",
			 (unsigned long long)m->map.epoch, shard,
			 m->owners[shard] == CLUSTER_NOBODY ? -1 : m->owners[shard],
			 (unsigned long long)m->since[shard], (unsigned long long)m->taken[shard]);
	}
	for (uint32_t i = 0; i < m->map.move_count; i++)
		hw_trace(w, "  shard %u moves to m%u", m->moves[i].shard, m->moves[i].to);
}

/* ---- where each key is ---- */

bool hw_change(struct hw_world *w, unsigned member, uint32_t key, uint32_t word)
{
	uint32_t before = hw_slot_value(w->member[member].slots[key]), after = hw_slot_value(word);

	w->member[member].slots[key] = word;
	/* until somebody else begins, a shard without an owner is where it was */
	if (w->last_owner[key % HW_PLAY] != member)
		return false;
	if (before != after)
		w->current[key] = after;
	return true;
}

void hw_vanish(struct hw_world *w, uint32_t shard)
{
	for (uint32_t key = shard; key < HW_KEYS; key += HW_PLAY) {
		struct hw_record *r = &w->records[w->record_count++];

		*r = (struct hw_record){.key = key};
		r->op.kind = w->pools ? LINEAR_VANISH : LINEAR_DELETE;
		r->op.outcome = w->current[key] || w->pools ? LINEAR_OK : LINEAR_ABSENT;
		r->op.client = HW_CLIENTS;
		r->op.invoked = ++w->clock;
		r->op.returned = ++w->clock;
		w->current[key] = 0;
	}
}

/* H1 */
static void check_switch(struct hw_world *w, uint32_t shard)
{
	unsigned owner = hw_newest(w)->owners[shard];

	w->switches++;
	if (w->cache) {
		hw_vanish(w, shard);
		return;
	}
	for (uint32_t key = shard; key < HW_KEYS; key += HW_PLAY) {
		uint32_t truth = 0;

		if (!hw_arrived(w, owner, key, &truth))
			hw_fail(w, "key %u: m%u becomes the owner with value %u, and it is %u", key, owner,
				hw_held(w, owner, key), truth);
	}
}

/* ---- requests ---- */

static bool keep_changes(struct hw_request *r, const struct handover_write *write)
{
	size_t bytes = write->count * sizeof(*write->changes);

	r->write.changes = malloc(bytes);
	if (r->write.changes == NULL)
		r->sent = false;
	else
		memcpy(r->write.changes, write->changes, bytes);
	return r->sent;
}

int hw_send(struct hw_member *m, const struct handover_write *write)
{
	struct hw_world *w = m->world;

	for (unsigned i = 0; i < HW_REQUESTS; i++) {
		struct hw_request *r = &w->requests[i];

		if (r->sent)
			continue;
		*r = (struct hw_request){.write = *write,
					 .from = m->place,
					 .boot_id = m->boot_id,
					 .sent = true,
					 .ready_ns = w->now_ns + (w->calm ? 0 : hw_while(w))};
		if (!keep_changes(r, write))
			return -ENOMEM;
		/* a request that outlives who has sent it */
		if (write->changes[0].what == HANDOVER_TAKE && !w->calm && hw_chance(w, 300)) {
			m->dies_ns = w->now_ns + hw_below(w, 10 * w->tick_ns);
			r->ready_ns = m->dies_ns + hw_below(w, 300 * w->tick_ns);
		}
		hw_trace(w, "m%u asks the keeper: change %u of shard %u, if epoch %llu, if boot id %llu",
			 m->place, write->changes[0].what, write->changes[0].shard,
			 (unsigned long long)write->if_epoch, (unsigned long long)write->if_boot_id);
		return 0;
	}
	return -EAGAIN;
}

static void request_free(struct hw_request *r)
{
	free(r->write.changes);
	*r = (struct hw_request){0};
}

static bool arrive(struct hw_world *w, const struct hw_request *r)
{
	const struct handover_write *write = &r->write;
	struct hw_map *next;

	if (write->if_epoch != hw_newest(w)->map.epoch)
		return false;
	if (write->if_member != HANDOVER_NOBODY &&
	    w->record_boot[write->if_member - 1] != write->if_boot_id)
		return false;
	next = hw_map_next(w);
	if (next == NULL || handover_apply(write, &next->map) < 0) {
		hw_fail(w, "a write of m%u does not fit the map", r->from);
		return false;
	}
	hw_map_publish(w);
	for (uint32_t i = 0; i < write->count; i++) {
		uint32_t shard = write->changes[i].shard;

		switch (write->changes[i].what) {
		case HANDOVER_SWITCH:
			check_switch(w, shard);
			break;
		case HANDOVER_TAKE:
			if (shard < HW_PLAY) {
				w->takes++;
				hw_vanish(w, shard);
			}
			break;
		case HANDOVER_AGAIN:
		case HANDOVER_GIVE_UP:
			w->given_up++;
			break;
		}
	}
	return true;
}

static void tell(struct hw_world *w, struct hw_request *r, enum handover_outcome outcome)
{
	if (!r->told)
		hw_member_told(&w->member[r->from], r, outcome);
	r->told = true;
}

static void end_doomed(struct hw_member *m)
{
	struct hw_world *w = m->world;

	if (m->dies_ns == 0 || m->dies_ns > w->now_ns || m->h == NULL)
		return;
	m->dies_ns = 0;
	w->starts++;
	hw_member_end(m, true, hw_below(w, 20 * w->tick_ns));
}

void hw_keeper_step(struct hw_world *w)
{
	struct hw_request *r = &w->requests[hw_below(w, HW_REQUESTS)];
	bool done;

	for (unsigned i = 0; i < w->members; i++)
		end_doomed(&w->member[i]);
	if (!r->sent || r->ready_ns > w->now_ns)
		return;
	/* the answer comes before the request does: it is late, or never comes */
	if (!w->calm && hw_chance(w, 150)) {
		tell(w, r, HANDOVER_UNKNOWN);
		r->ready_ns = w->now_ns + hw_while(w);
		if (hw_chance(w, 300))
			request_free(r);
		return;
	}
	done = arrive(w, r);
	hw_trace(w, "the request of m%u arrives: %s", r->from, done ? "done" : "refused");
	tell(w, r,
	     !w->calm && hw_chance(w, 150) ? HANDOVER_UNKNOWN
	     : done			   ? HANDOVER_WRITTEN
					   : HANDOVER_REFUSED);
	request_free(r);
}

bool hw_keeper_idle(const struct hw_world *w)
{
	for (unsigned i = 0; i < HW_REQUESTS; i++)
		if (w->requests[i].sent)
			return false;
	return true;
}

/* ---- others, who change the map ---- */

static bool moves(const struct hw_map *m, uint32_t shard)
{
	for (uint32_t i = 0; i < m->map.move_count; i++)
		if (m->moves[i].shard == shard)
			return true;
	return false;
}

static void plan_move(struct hw_world *w, uint32_t shard, uint16_t to)
{
	const struct hw_map *now = hw_newest(w);
	struct hw_map *next;

	if (moves(now, shard) || now->owners[shard] == to || now->owners[shard] == CLUSTER_NOBODY ||
	    now->members[to].state != CLUSTER_UP)
		return;
	next = hw_map_next(w);
	if (next == NULL)
		return;
	if (next->map.move_count && next->moves[0].shard > shard) {
		next->moves[1] = next->moves[0];
		next->moves[0] = (struct cluster_move){.shard = shard, .to = to};
	} else {
		next->moves[next->map.move_count] = (struct cluster_move){.shard = shard, .to = to};
	}
	next->map.move_count++;
	hw_map_publish(w);
}

static void withdraw(struct hw_world *w, uint32_t shard)
{
	struct hw_map *next;

	if (!moves(hw_newest(w), shard) || (next = hw_map_next(w)) == NULL)
		return;
	handover_withdraw(&next->map, shard);
	hw_map_publish(w);
}

/* It is taken for dead, or for living again. */
static void declare(struct hw_world *w, uint16_t place)
{
	struct hw_map *next = hw_map_next(w);

	if (next == NULL)
		return;
	if (next->members[place].state == CLUSTER_DOWN) {
		next->members[place].state = CLUSTER_UP;
		hw_map_publish(w);
		return;
	}
	next->members[place].state = CLUSTER_DOWN;
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++) {
		uint64_t epoch = next->map.epoch + 1;

		for (uint32_t i = 0; i < next->map.move_count; i++)
			if (next->moves[i].shard == shard && (next->moves[i].to == place || next->owners[shard] == place)) {
				handover_withdraw(&next->map, shard);
				break;
			}
		if (next->owners[shard] != place)
			continue;
		next->owners[shard] = CLUSTER_NOBODY;
		next->since[shard] = next->taken[shard] = epoch;
	}
	hw_trace(w, "m%u is taken for dead", place);
	/* it may well be standing still, and clients may hear of nothing */
	if (hw_chance(w, 512))
		w->member[place].wake_ns = w->now_ns + w->bound_ns + hw_below(w, 3 * w->bound_ns);
	for (unsigned i = 0; i < w->clients_count; i++)
		if (hw_chance(w, 300))
			w->client[i].house_ns = w->now_ns + hw_below(w, 4 * w->bound_ns);
	hw_map_publish(w);
}

void hw_revive(struct hw_world *w)
{
	for (uint16_t i = 0; i < w->members; i++)
		if (hw_newest(w)->members[i].state == CLUSTER_DOWN)
			declare(w, i);
}

void hw_planner_step(struct hw_world *w)
{
	uint32_t shard = (uint32_t)hw_below(w, HW_PLAY);
	uint16_t place = (uint16_t)hw_below(w, w->members);

	switch (hw_below(w, 8)) {
	case 0:
		withdraw(w, shard);
		break;
	case 1:
		if (w->cache || w->forgets)
			declare(w, place);
		break;
	case 2: /* of something else */
		if (hw_map_next(w))
			hw_map_publish(w);
		break;
	default:
		plan_move(w, shard, place);
	}
}

/* ---- maps are read ---- */

enum handover_answer hw_asked(struct hw_world *w, struct hw_member *target, const struct handover_ask *ask)
{
	struct handover_question question;

	if (hw_chance(w, 500))
		return handover_asked(target->h, ask);
	handover_question(ask, HW_SHARDS, &question);
	return handover_questioned(target->h, &question);
}

void hw_member_read_map(struct hw_member *m)
{
	struct hw_world *w = m->world;
	bool fenced = m->fenced;

	switch (m->reading) {
	case 0:
		m->sent_ns = w->now_ns;
		break;
	case 1:
		m->read_map = w->newest;
		break;
	default:
		m->confirmed_ns = m->lease_ns = m->sent_ns;
		m->fenced = false;
		if (m->read_map > m->map || fenced) {
			m->map = m->read_map > m->map ? m->read_map : m->map;
			hw_trace(w, "m%u has the map of epoch %llu", m->place,
				 (unsigned long long)w->maps[m->map].map.epoch);
			handover_map(m->h, &w->maps[m->map].map, w->now_ns);
		}
		break;
	}
	m->reading = (m->reading + 1) % 3;
}

void hw_client_ask(struct hw_client *c)
{
	struct hw_world *w = c->world;
	const struct hw_member *m;
	uint64_t spent;

	switch (c->asking) {
	case 0:
		c->asked = (unsigned)hw_below(w, w->members);
		c->sent_ns = w->now_ns;
		c->asking = 1;
		break;
	case 1:
		m = &w->member[c->asked];
		c->asking = 0;
		c->house_ns = w->now_ns + hw_below(w, w->bound_ns / 4);
		if (m->h == NULL || m->map == 0 || m->wake_ns > w->now_ns)
			break;
		c->answered_map = m->map;
		c->age_ns = w->now_ns - m->confirmed_ns;
		c->asking = 2;
		break;
	default:
		c->asking = 0;
		c->house_ns = w->now_ns + hw_below(w, w->bound_ns / 4);
		/* who knows less than the client does not count */
		if (c->answered_map < c->map)
			break;
		c->map = c->answered_map;
		spent = c->age_ns + c->age_ns / 20;
		if (spent > w->bound_ns)
			break;
		c->fresh_ns = c->sent_ns + (w->bound_ns - spent) * (uint64_t)(1024 + c->drift) / 1024;
		hw_trace(w, "c%u has the map of epoch %llu", c->number,
			 (unsigned long long)w->maps[c->map].map.epoch);
		break;
	}
}

/* ---- what befalls them ---- */

static bool owns_something(const struct hw_world *w, unsigned place)
{
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++)
		if (w->last_owner[shard] == place)
			return true;
	return false;
}

void hw_fault_step(struct hw_world *w)
{
	struct hw_member *m = &w->member[hw_below(w, w->members)];
	uint64_t until = w->now_ns + hw_while(w);

	switch (hw_below(w, 7)) {
	case 0:
		if (m->h == NULL)
			break;
		w->starts++;
		hw_member_end(m, owns_something(w, m->place) || hw_chance(w, 512), until - w->now_ns);
		break;
	case 1:
		m->wake_ns = until;
		hw_trace(w, "m%u stands still until %.3f ms", m->place, (double)until / 1e6);
		break;
	case 2:
		m->mover.wake_ns = until;
		break;
	case 3:
		m->apart_ns = until;
		hw_trace(w, "m%u can not reach the keeper until %.3f ms", m->place, (double)until / 1e6);
		break;
	case 4:
		m->split_ns = until;
		break;
	case 5:
		hw_client_break(&w->client[hw_below(w, w->clients_count)]);
		break;
	default:
		w->client[hw_below(w, w->clients_count)].wake_ns = until;
	}
}

/* ---- begin and end ---- */

void hw_free(struct hw_world *w)
{
	for (unsigned i = 0; i < HW_REQUESTS; i++)
		request_free(&w->requests[i]);
	for (unsigned i = 0; i < HW_MEMBERS; i++) {
		handover_free(w->member[i].h);
		w->member[i].h = NULL;
	}
}

static void first_map(struct hw_world *w)
{
	struct hw_map *m = &w->maps[1];

	*m = (struct hw_map){.map = {.cache = w->cache,
				     .epoch = 10,
				     .shards = HW_SHARDS,
				     .member_count = w->members}};
	map_bind(m);
	for (unsigned i = 0; i < w->members; i++)
		m->members[i].number = (uint16_t)(i + 1);
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++) {
		m->owners[shard] = (uint16_t)(shard % w->members);
		m->since[shard] = 10;
		w->last_owner[shard] = m->owners[shard];
	}
	w->newest = 1;
}

void hw_reset(struct hw_world *w, uint64_t seed)
{
	hw_free(w);
	w->seed = w->random = seed;
	w->now_ns = 1000 * HW_MS;
	w->steps = w->clock = 0;
	w->calm = w->forgets = false;
	w->bound_ns = HW_BOUND_NS;
	w->lease_ns = HW_LEASE_NS;
	w->failure[0] = 0;
	w->record_count = 0;
	w->cache = hw_chance(w, 400);
	w->members = 2 + (uint32_t)hw_below(w, 2);
	w->clients_count = HW_CLIENTS;
	w->faults = (uint32_t[]){0, 2, 8, 30}[hw_below(w, 4)];
	w->stalls = (uint32_t[]){0, 10, 60, 200}[hw_below(w, 4)];
	w->tick_ns = (uint64_t[]){HW_MS / 4, HW_MS, 4 * HW_MS}[hw_below(w, 3)];
	memset(w->current, 0, sizeof(w->current));
	memset(w->record_boot, 0, sizeof(w->record_boot));
	first_map(w);
	for (unsigned i = 0; i < HW_MEMBERS; i++)
		w->member[i] = (struct hw_member){.world = w, .place = i};
	for (unsigned i = 0; i < HW_CLIENTS; i++)
		w->client[i] = (struct hw_client){.world = w,
						  .number = i,
						  .calls = HW_CALLS,
						  .map = 1,
						  .drift = (int32_t)hw_below(w, 103) - 51};
}
