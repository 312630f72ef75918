/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-member.c - a member: its daemon, around the real daemon/handover*.c; its walks over slots; its mover
 *
 * The walks stand for daemon/shards.c, the mover for daemon/shard-copy.c, the rest for daemon/member*.c. Next: handover-client.c.
 */
#include <errno.h>
#include <string.h>

#include "handover-world.h"
#include "tarn/tarn.h"

/* ---- what the machine calls ---- */

static void on_word(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	struct hw_member *m = arg;

	hw_trace(m->world, "m%u word of shard %u: state %u, epoch %llu", m->place, shard, state,
		 (unsigned long long)epoch);
	if (m->fenced && state != SHARD_GONE)
		hw_fail(m->world, "m%u: the word of shard %u becomes %u behind the fence", m->place,
			shard, state);
	m->words[shard] = shard_word_make(state, epoch);
}

static int on_job(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count)
{
	static const char *const names[] = {"freeze", "thaw", "empty"};
	struct hw_member *m = arg;

	if (m->job_runs || count > HW_SHARDS)
		hw_fail(m->world, "m%u: a walk begins while another one is under way", m->place);
	hw_trace(m->world, "m%u begins to %s shard %u%s", m->place, names[job], shards[0],
		 count > 1 ? " and another" : "");
	memcpy(m->job_shards, shards, count * sizeof(*shards));
	m->job = job;
	m->job_count = count;
	m->job_at = 0;
	m->job_runs = true;
	return hw_chance(m->world, 20) ? (m->job_runs = false, -EAGAIN) : 0;
}

static int on_copy(void *arg, const struct handover_ask *attempt)
{
	struct hw_member *m = arg;

	m->mover = (struct hw_mover){.runs = true, .attempt = *attempt};
	return 0;
}

static int on_bring(void *arg)
{
	struct hw_member *m = arg;

	m->mover.runs = m->mover.bring = true;
	m->mover.at = 0;
	m->mover.has_read = false;
	return 0;
}

static void on_drop(void *arg)
{
	struct hw_member *m = arg;

	m->mover.dropped = true;
	/* a thread that notices it late */
	if (hw_chance(m->world, 300))
		m->mover.wake_ns = m->world->now_ns + hw_while(m->world);
}

static void on_ask(void *arg, const struct handover_ask *ask)
{
	struct hw_member *m = arg;

	if (m->ask_count < HW_ASKS)
		m->asks[m->ask_count++] = *ask;
}

static int on_cut(void *arg, uint16_t from, uint64_t number)
{
	struct hw_member *m = arg;

	if (hw_chance(m->world, 100))
		return -EAGAIN;
	if (number > m->cut[from])
		m->cut[from] = number;
	hw_trace(m->world, "m%u cuts movers of m%d up to %llu", m->place, (int)from - 1,
		 (unsigned long long)number);
	return 0;
}

static int on_write(void *arg, const struct handover_write *write)
{
	return hw_send(arg, write);
}

static const struct handover_ops ops = {
	.word = on_word,
	.job = on_job,
	.copy = on_copy,
	.bring = on_bring,
	.drop = on_drop,
	.ask = on_ask,
	.cut = on_cut,
	.write = on_write,
};

uint32_t hw_held(const struct hw_world *w, unsigned member, uint32_t key)
{
	return hw_slot_value(w->member[member].slots[key]);
}

bool hw_arrived(const struct hw_world *w, unsigned owner, uint32_t key, uint32_t *ret_truth)
{
	*ret_truth = w->current[key];
	return hw_held(w, owner, key) == *ret_truth;
}

/* ---- the walks ---- */

static uint32_t walked(enum handover_job job, uint32_t word)
{
	enum hw_state state = hw_slot_state(word);

	switch (job) {
	case HANDOVER_FREEZE:
		if (state == HW_PENDING && !MUTATED(MUTATION_NOKILL))
			return 0;
		if (state == HW_COMMITTED && !MUTATED(MUTATION_NOFREEZE))
			return hw_slot(HW_FROZEN, word >> 2);
		return word;
	case HANDOVER_THAW:
		return state == HW_FROZEN ? hw_slot(HW_COMMITTED, word >> 2) : word;
	case HANDOVER_EMPTY:
		return MUTATED(MUTATION_NOPURGE) ? word : 0;
	}
	return word;
}

static void walk_step(struct hw_member *m)
{
	uint32_t key = m->job_at++;

	if (key == HW_KEYS) {
		m->job_runs = false;
		handover_job_done(m->h);
		return;
	}
	for (uint32_t i = 0; i < m->job_count; i++) {
		uint32_t to = walked(m->job, m->slots[key]);

		if (m->job_shards[i] != key % HW_PLAY || to == m->slots[key])
			continue;
		hw_trace(m->world, "m%u walks over key %u: %x -> %x", m->place, key, m->slots[key], to);
		/* freezing and thawing are no changes, and what is emptied is not here any more */
		m->slots[key] = to;
	}
}

/* ---- the mover ---- */

static struct hw_member *target_of(const struct hw_member *m)
{
	return &m->world->member[m->mover.attempt.to - 1];
}

static bool split(const struct hw_member *a, const struct hw_member *b)
{
	uint64_t now = a->world->now_ns;

	return a->split_ns > now || b->split_ns > now;
}

static bool connected(const struct hw_member *m)
{
	const struct hw_mover *v = &m->mover;
	const struct hw_member *target = target_of(m);

	return v->connected && target->h != NULL && target->boot_id == v->attempt.boot_id &&
	       target->cut[m->place + 1] < v->attempt.number && !split(m, target);
}

static void mover_end(struct hw_member *m, int result)
{
	m->mover.runs = false;
	if (result < 0)
		m->mover.connected = false;
	hw_trace(m->world, "m%u mover ends: %d", m->place, result);
	handover_copied(m->h, m->mover.dropped ? -ECANCELED : result);
}

static bool in_attempt(const struct hw_mover *v, uint32_t key)
{
	for (uint32_t i = 0; i < v->attempt.count; i++)
		if (v->attempt.shards[i] == key % HW_PLAY)
			return true;
	return false;
}

/* What the target should have of a key, by what the source has. */
static uint32_t wanted(const struct hw_mover *v, uint32_t key, uint32_t word)
{
	enum hw_state state = hw_slot_state(word);

	if (state < HW_COMMITTED)
		return v->bring && MUTATED(MUTATION_NODEL) ? v->list[key] : 0;
	if (v->bring && v->list[key] && MUTATED(MUTATION_NOAGAIN))
		return v->list[key];
	return hw_slot(MUTATED(MUTATION_PLAIN) ? HW_COMMITTED : HW_FROZEN, word >> 2);
}

static void mover_put(struct hw_member *m, uint32_t key)
{
	struct hw_mover *v = &m->mover;
	struct hw_member *target = target_of(m);

	v->has_read = false;
	v->at++;
	if (v->next == v->list[key])
		return;
	hw_trace(m->world, "m%u's mover puts key %u at m%u: %x -> %x", m->place, key, target->place,
		 target->slots[key], v->next);
	v->list[key] = v->next;
	target->slots[key] = v->next;
}

void hw_mover_step(struct hw_member *m)
{
	struct hw_world *w = m->world;
	struct hw_mover *v = &m->mover;
	struct hw_member *target = target_of(m);

	if (v->dropped && !v->bring && hw_chance(w, 300)) {
		mover_end(m, -ECANCELED);
		return;
	}
	if (!v->connected && !v->bring && v->at == 0)
		v->connected = target->h != NULL && target->boot_id == v->attempt.boot_id &&
			       handover_admits(target->h, v->attempt.from, v->attempt.number);
	if (!connected(m)) {
		mover_end(m, -TARN_ESESSION);
		return;
	}
	if (v->at == HW_KEYS) {
		mover_end(m, !w->calm && hw_chance(w, 20) ? -TARN_EPOOLFULL : 0);
		return;
	}
	if (!in_attempt(v, v->at)) {
		v->at++;
		return;
	}
	if (v->has_read) {
		mover_put(m, v->at);
		return;
	}
	v->next = wanted(v, v->at, m->slots[v->at]);
	v->has_read = true;
	if (!w->calm && hw_chance(w, 30))
		v->wake_ns = w->now_ns + hw_while(w);
}

/* ---- the map ---- */

static void fence(struct hw_member *m)
{
	hw_trace(m->world, "m%u loses its lease", m->place);
	m->fenced = true;
	m->registered = false;
	m->reading = 0;
	m->world->fences++;
	memset(m->words, 0, sizeof(m->words));
	for (unsigned i = 0; i < m->world->members; i++)
		if (m->world->member[i].mover.attempt.to == m->place + 1)
			m->world->member[i].mover.connected = false;
	m->mover.connected = false;
	handover_fence(m->h);
}

/* Its record first, then the map, which was read behind it. */
static void map_step(struct hw_member *m)
{
	struct hw_world *w = m->world;
	bool apart = m->apart_ns > w->now_ns;

	if (m->registered && w->now_ns > m->lease_ns + w->lease_ns * 3 / 4) {
		fence(m);
		return;
	}
	if (apart)
		return;
	if (!m->registered) {
		m->registered = true;
		m->lease_ns = w->now_ns;
		m->reading = 0;
		w->record_boot[m->place] = m->boot_id;
		return;
	}
	hw_member_read_map(m);
}

/* ---- the daemon ---- */

static void start(struct hw_member *m)
{
	struct hw_world *w = m->world;
	struct handover_options options = {.shards = HW_SHARDS,
						 .self = (uint16_t)(m->place + 1),
						 .cache = w->cache,
						 .bound_ns = w->bound_ns};

	hw_trace(w, "m%u starts", m->place);
	options.boot_id = ++m->boot_id;
	m->map = m->reading = 0;
	m->registered = m->fenced = false;
	m->due_ns = 0;
	memset(m->words, 0, sizeof(m->words));
	memset(m->cut, 0, sizeof(m->cut));
	if (handover_create(&options, &ops, m, &m->h) < 0)
		hw_fail(w, "no memory");
}

void hw_member_end(struct hw_member *m, bool memory, uint64_t pause_ns)
{
	struct hw_world *w = m->world;

	hw_trace(w, "m%u ends%s", m->place, memory ? "" : ", its memory is lost");
	handover_free(m->h);
	m->h = NULL;
	m->start_ns = w->now_ns + pause_ns;
	m->job_runs = false;
	m->ask_count = 0;
	m->mover = (struct hw_mover){0};
	if (memory)
		return;
	/* the machine's end is seen by who has its lease; see FINDINGS.md */
	w->record_boot[m->place] = 0;
	memset(m->slots, 0, sizeof(m->slots));
	memset(m->words, 0, sizeof(m->words));
}

void hw_member_told(struct hw_member *m, const struct hw_request *r, enum handover_outcome outcome)
{
	if (m->h != NULL && m->boot_id == r->boot_id)
		handover_written(m->h, outcome);
}

/* Asks another one; now, or the question is lost. */
static void ask_step(struct hw_member *m)
{
	struct hw_world *w = m->world;
	/* not always the oldest: they go over a network */
	uint32_t at = (uint32_t)hw_below(w, m->ask_count);
	struct handover_ask ask = m->asks[at];
	struct hw_member *target = &w->member[ask.to - 1];
	enum handover_answer answer;

	/* it may come once more, later */
	if (!hw_chance(w, 200))
		m->asks[at] = m->asks[--m->ask_count];
	if (target->h == NULL || target->wake_ns > w->now_ns || split(m, target))
		return;
	answer = hw_asked(w, target, &ask);
	if (!hw_chance(w, 100))
		handover_answered(m->h, ask.number, answer, target->boot_id);
}

static void take_step(struct hw_member *m)
{
	const struct hw_map *map = &m->world->maps[m->map];

	for (uint32_t shard = 0; m->map && shard < HW_SHARDS; shard++)
		if (map->owners[shard] == CLUSTER_NOBODY && map->members[m->place].state == CLUSTER_UP)
			handover_take(m->h, shard);
}

bool hw_member_idle(const struct hw_member *m)
{
	return m->h != NULL && m->map == m->world->newest && !m->job_runs && !m->mover.runs &&
	       m->ask_count == 0;
}

/* One thing that its main loop does. */
void hw_member_step(struct hw_member *m)
{
	struct hw_world *w = m->world;

	if (m->h == NULL) {
		if (m->start_ns <= w->now_ns)
			start(m);
		return;
	}
	switch (hw_below(w, 5)) {
	case 0:
		map_step(m);
		break;
	case 1:
		if (m->ask_count)
			ask_step(m);
		break;
	case 2:
		if (m->job_runs)
			walk_step(m);
		break;
	case 3:
		take_step(m);
		if (m->mover.connected && !connected(m)) {
			m->mover.connected = false;
			handover_lost(m->h, m->mover.attempt.number);
		}
		break;
	default:
		m->due_ns = handover_step(m->h, w->now_ns);
		break;
	}
}
