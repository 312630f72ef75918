/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-member.c - a member with a pool: the daemon's jobs around the real daemon/handover*.c, and the mover
 *
 * Walks and words are daemon/shards.c's, the mover drives daemon/shard-copy.c. Next: test-handover-pool.c.
 */
#include <errno.h>
#include <string.h>

#include "engine.h"
#include "keeper.h"
#include "kv.h"
#include "pool-world.h"
#include "shard-copy.h"
#include "shards.h"
#include "sim-daemon.h"
#include "sim-system.h"
#include "tarn/tarn.h"

static struct pw_pool *pool_of(const struct hw_member *m)
{
	return m->pool;
}

static struct sim_daemon *daemon_of(const struct hw_member *m)
{
	return pw_sim(m)->daemon;
}

/* Code of the daemon outside of its jobs: nobody comes between. */
static struct shards *shards_of(const struct hw_member *m)
{
	struct sim_daemon *d = daemon_of(m);

	d->calm = true;
	sim_system_set(d);
	return keeper_shards(d->pool.keeper);
}

/* ---- what is in the memory ---- */

uint64_t pw_slot(const struct hw_world *w, unsigned member, uint32_t key, uint64_t *ret_word)
{
	const struct sim *sim = pw_sim(&w->member[member]);
	const char *name = ((const struct pw_world *)w)->keys[key];
	uint64_t found = 0;

	*ret_word = 0;
	for (uint32_t i = 0; i < 3 * LAYOUT_BUCKET_BYTES / 8; i++) {
		uint64_t at = layout_page_offset(&sim->geometry, 0) + 8ull * i, word = sim_word(sim, at);
		const struct layout_block *block;

		if (i % 8 == 0 || (layout_slot_state(word) != LAYOUT_SLOT_COMMITTED &&
				   layout_slot_state(word) != LAYOUT_SLOT_FROZEN))
			continue;
		block = (const void *)(sim->pool + layout_slot_offset(word));
		if (block->key_length != PW_KEY_BYTES ||
		    memcmp(layout_block_key(block), name, PW_KEY_BYTES) != 0)
			continue;
		if (found)
			hw_fail(w->member[member].world, "key %u has two slots at m%u", key, member);
		found = at;
		*ret_word = word;
	}
	return found;
}

static const struct layout_block *block_of(const struct hw_member *m, uint64_t word)
{
	return (const void *)(pw_sim(m)->pool + layout_slot_offset(word));
}

uint32_t hw_held(const struct hw_world *w, unsigned member, uint32_t key)
{
	const struct layout_block *block;
	uint64_t word, value;

	if (!pw_slot(w, member, key, &word))
		return 0;
	block = block_of(&w->member[member], word);
	memcpy(&value, layout_block_value(block), sizeof(value));
	return block->kind == LAYOUT_KIND_COUNTER ? (uint32_t)value : block->user_flags;
}

static bool expired(const struct hw_member *m, const struct layout_block *block)
{
	return block->expiry && sim_epoch(pw_sim(m)) >= block->expiry;
}

bool pw_last(const struct hw_world *w, unsigned member, uint32_t key, bool *ret_counter, uint64_t *ret_value)
{
	const struct layout_block *block;
	uint64_t word;

	if (!pw_slot(w, member, key, &word))
		return false;
	block = block_of(&w->member[member], word);
	*ret_value = block->user_flags;
	*ret_counter = block->kind == LAYOUT_KIND_COUNTER;
	if (*ret_counter)
		memcpy(ret_value, layout_block_value(block), sizeof(*ret_value));
	return !expired(&w->member[member], block);
}

/*
 * Against what the source, which was the owner in the map before, has frozen. With FAA its counters may be added to behind
 * that, in calls that say nothing.
 */
bool hw_arrived(const struct hw_world *w, unsigned owner, uint32_t key, uint32_t *ret_truth)
{
	unsigned source = w->maps[w->newest - 1].owners[key % HW_PLAY];
	const struct layout_block *here, *there;
	uint64_t word, copy;
	bool has;

	*ret_truth = hw_held(w, source, key);
	has = pw_slot(w, owner, key, &copy) != 0;
	if (!pw_slot(w, source, key, &word))
		return !has;
	here = block_of(&w->member[source], word);
	there = block_of(&w->member[owner], copy);
	if (!has)
		return expired(&w->member[source], here);
	if (here->kind != there->kind || here->stamp != there->stamp ||
	    here->value_length != there->value_length || here->owner != there->owner ||
	    here->user_flags != there->user_flags || !here->expiry != !there->expiry)
		return false;
	return (here->kind == LAYOUT_KIND_COUNTER && pw_sim(&w->member[source])->tuning.faa) ||
	       hw_held(w, owner, key) == *ret_truth;
}

void pw_epochs(struct pw_world *w)
{
	bool all = true;

	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		uint64_t epoch = sim_epoch(w->pools[i].sim);

		w->epochs_any += epoch - w->epoch_seen[i];
		w->epoch_seen[i] = epoch;
		all &= epoch > w->epoch_base[i];
	}
	if (!all)
		return;
	w->epochs_all++;
	memcpy(w->epoch_base, w->epoch_seen, sizeof(w->epoch_base));
}

/* ---- tasks ---- */

bool pw_task_step(struct tarn_session *session, struct task *task)
{
	if (task->wake_ns)
		task->status = 0;
	else if (session_collect(session) < 0 && !task->completed)
		session_break(session, task);
	else if (!task->completed)
		session_rpc_give_up(session, task);
	return task->step(task);
}

uint64_t pw_task_next(const struct sim_endpoint *ep, const struct task *task)
{
	if (sim_visible(ep) != SIM_NEVER)
		return sim_visible(ep);
	if (task->wake_ns)
		return sim_time(task->wake_ns, ep->drift);
	if (ep->broken)
		return 0;
	return ep->asking ? sim_time(task->limit_ns, ep->drift) : SIM_NEVER;
}

/* ---- the mover's connection ---- */

static struct hw_member *other(const struct hw_member *m)
{
	return &m->world->member[1 - m->place];
}

void pw_mover_break(struct hw_member *target)
{
	struct hw_member *source = other(target);
	struct pw_mover *v = &pool_of(source)->mover;

	if (v->session && !v->session->lost) {
		sim_break(pw_sim(target), PW_MOVER);
		v->session->lost = true;
	}
	source->mover.connected = false;
}

void pw_mover_close(struct hw_member *m)
{
	struct pw_mover *v = &pool_of(m)->mover;

	shard_copy_free(v->copy);
	v->copy = NULL;
	v->due_ns = 0;
	if (!v->session)
		return;
	/* nothing of it takes effect any more, for the memory that its requests are made of goes, too */
	if (!v->session->lost)
		sim_break(pw_sim(other(m)), PW_MOVER);
	session_free(v->session);
	v->session = NULL;
}

/* ---- what the machine calls ---- */

static void on_word(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	struct hw_member *m = arg;

	if (m->fenced && state != SHARD_GONE)
		hw_fail(m->world, "m%u: the word of shard %u becomes %u behind the fence", m->place,
			shard, state);
	if (shard < HW_PLAY)
		hw_trace(m->world, "m%u word of shard %u: state %u, epoch %llu", m->place, shard, state,
			 (unsigned long long)epoch);
	shards_set(shards_of(m), shard, state, epoch);
}

static void job_done(void *arg)
{
	pool_of(arg)->job_done = true;
}

static int on_job(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count)
{
	static const enum shards_job jobs[] = {[HANDOVER_FREEZE] = SHARDS_FREEZE,
					       [HANDOVER_THAW] = SHARDS_THAW,
					       [HANDOVER_EMPTY] = SHARDS_EMPTY};
	static const char *const names[] = {"freeze", "thaw", "empty"};
	struct hw_member *m = arg;

	hw_trace(m->world, "m%u begins to %s %u shards, the first is %u", m->place, names[job], count,
		 shards[0]);
	daemon_of(m)->keeper_ns = m->world->now_ns;
	return shards_begin(shards_of(m), jobs[job], shards, count, job_done, m);
}

static int on_copy(void *arg, const struct handover_ask *attempt)
{
	struct hw_member *m = arg;

	pw_mover_close(m);
	m->mover = (struct hw_mover){.runs = true, .attempt = *attempt};
	return 0;
}

static int on_bring(void *arg)
{
	struct hw_member *m = arg;

	m->mover.runs = m->mover.bring = true;
	(void)shards_of(m); /* its code */
	shard_copy_bring(pool_of(m)->mover.copy);
	return 0;
}

static void on_drop(void *arg)
{
	struct hw_member *m = arg;

	m->mover.dropped = true;
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
	const struct hw_mover *mover;

	if (number > m->cut[from])
		m->cut[from] = number;
	if (from == HANDOVER_NOBODY)
		return 0;
	mover = &m->world->member[from - 1].mover;
	hw_trace(m->world, "m%u cuts movers of m%d up to %llu", m->place, (int)from - 1,
		 (unsigned long long)number);
	if (mover->connected && mover->attempt.number <= number)
		pw_mover_break(m);
	return 0;
}

static int on_write(void *arg, const struct handover_write *write)
{
	struct hw_member *m = arg;

	return hw_send(m, write);
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

/* ---- the mover ---- */

static void mover_end(struct hw_member *m, int result)
{
	hw_trace(m->world, "m%u mover ends: %d", m->place, result);
	m->mover.runs = false;
	if (result < 0)
		m->mover.connected = false;
	/* all is there; it hangs up by itself, soon */
	if (result == 0 && m->mover.bring && hw_chance(m->world, 500)) {
		pw_mover_close(m);
		m->mover.connected = false;
	}
	handover_copied(m->h, m->mover.dropped ? -ECANCELED : result);
}

/* The copier is the source's code: it reads the memory at once. What T1 and checksums are for is tests/unit/test-shard-copy.c's. */
static bool begin_calm(const struct hw_member *m)
{
	struct sim_daemon *d = daemon_of(m);
	bool calm = d->calm;

	d->calm = true;
	sim_system_set(d);
	return calm;
}

static bool mover_connect(struct hw_member *m)
{
	const struct handover_ask *attempt = &m->mover.attempt;
	struct pw_mover *v = &pool_of(m)->mover;
	struct hw_member *target = other(m);
	struct sim *sim = pw_sim(target);
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct session_identity identity = {0};
	bool calm, created;

	options.flags = TARN_NO_THREAD | TARN_NO_CACHE;
	options.timeout_ms = 5000;
	if (!target->h || target->boot_id != attempt->boot_id ||
	    target->cut[attempt->from] >= attempt->number ||
	    !handover_admits(target->h, attempt->from, attempt->number) ||
	    !sim_daemon_connect(sim->daemon, &identity.client_slot, &identity.client_id) ||
	    session_create(sim_connect(sim, PW_MOVER, identity.client_slot, identity.client_id),
			   &sim->geometry, &identity, &options, &v->session) < 0)
		return false;
	calm = begin_calm(m);
	created = shard_copy_create(&daemon_of(m)->pool, attempt->shards, attempt->count, v->session,
				    &v->copy) == 0;
	daemon_of(m)->calm = calm;
	return created;
}

/* Keys are begun one by one, or later: the world goes on between two of them. */
static int mover_next(struct hw_member *m)
{
	struct pw_mover *v = &pool_of(m)->mover;
	const struct engine *e = v->session->engine;
	unsigned most = engine_owes(e) && hw_chance(m->world, 500) ? 0 : 1;
	bool calm = begin_calm(m);
	uint64_t until_ns;
	int rc = shard_copy_next(v->copy, most, &until_ns);

	daemon_of(m)->calm = calm;
	v->due_ns = 0;
	if (rc == SHARD_COPY_REST)
		v->due_ns = sim_time(until_ns, pw_sim(other(m))->endpoints[PW_MOVER].drift);
	else if (rc == SHARD_COPY_MORE && most == 0 && engine_owes(e))
		v->due_ns = SIM_NEVER;
	return rc;
}

uint64_t pw_mover_next(const struct hw_member *m)
{
	const struct pw_mover *v = &pool_of(m)->mover;
	const struct sim_endpoint *ep = &pw_sim(other(m))->endpoints[PW_MOVER];
	uint64_t next = v->due_ns, due;
	const struct engine *e;

	if (!m->mover.runs || m->h == NULL)
		return SIM_NEVER;
	if (!v->copy || v->session->lost)
		return m->mover.wake_ns;
	e = v->session->engine;
	due = engine_due(e);
	if (!TAILQ_EMPTY(&e->ready) || (!TAILQ_EMPTY(&e->queued) && !TAILQ_EMPTY(&e->idle)))
		next = 0;
	if (due != UINT64_MAX && sim_time(due, ep->drift) < next)
		next = sim_time(due, ep->drift);
	if (sim_visible(ep) < next)
		next = sim_visible(ep);
	return next > m->mover.wake_ns ? next : m->mover.wake_ns;
}

static void copy_again(struct hw_member *m)
{
	bool calm = begin_calm(m);

	shard_copy_again(pool_of(m)->mover.copy);
	daemon_of(m)->calm = calm;
}

void hw_mover_step(struct hw_member *m)
{
	struct pw_mover *v = &pool_of(m)->mover;
	struct hw_mover *mover = &m->mover;
	int rc;

	if (mover->dropped && hw_chance(m->world, 300)) {
		mover_end(m, -ECANCELED);
		return;
	}
	if (!mover->bring && !v->copy)
		mover->connected = mover_connect(m);
	if (!mover->connected || v->session->lost) {
		mover_end(m, -TARN_ESESSION);
		return;
	}
	rc = mover_next(m);
	if (rc == SHARD_COPY_ENDED && !mover->bring && hw_chance(m->world, 500)) {
		copy_again(m);
		return;
	}
	if (rc == SHARD_COPY_ENDED || rc < 0)
		mover_end(m, rc);
}

/* ---- the daemon ---- */

void pw_member_begin(struct hw_member *m)
{
	struct handover_options options = {
		.shards = HW_SHARDS, .self = (uint16_t)(m->place + 1), .cache = m->world->cache,
		.bound_ns = m->world->bound_ns};

	hw_trace(m->world, "m%u starts", m->place);
	options.boot_id = ++m->boot_id;
	m->map = m->reading = 0;
	m->registered = m->fenced = false;
	pool_of(m)->job_done = false;
	memset(m->cut, 0, sizeof(m->cut));
	if (handover_create(&options, &ops, m, &m->h) < 0)
		hw_fail(m->world, "no memory");
}

/* Its connections end with it, and its mover; the memory is kept. */
void hw_member_end(struct hw_member *m, bool memory, uint64_t pause_ns)
{
	struct pw_world *w = pw_world(m->world);

	(void)memory;
	handover_free(m->h);
	m->h = NULL;
	m->ask_count = 0;
	pw_mover_close(m);
	m->mover = (struct hw_mover){0};
	pw_mover_break(m);
	sim_daemon_kill(daemon_of(m), pause_ns);
	for (unsigned i = 0; i < HW_CLIENTS; i++)
		pw_client_lose(&w->clients[i], m->place);
}

void hw_member_told(struct hw_member *m, const struct hw_request *r, enum handover_outcome outcome)
{
	if (m->h != NULL && m->boot_id == r->boot_id)
		handover_written(m->h, outcome);
}

bool hw_member_idle(const struct hw_member *m)
{
	return m->h != NULL && m->map == m->world->newest && !m->mover.runs && m->ask_count == 0;
}

/* Connections first, as daemon/member-etcd.c does it. Who has the memory mapped may go on in it. */
static void fence(struct hw_member *m)
{
	struct pw_world *w = pw_world(m->world);

	hw_trace(m->world, "m%u loses its lease", m->place);
	m->fenced = true;
	m->registered = false;
	m->reading = 0;
	m->world->fences++;
	pw_mover_break(m);
	for (unsigned i = 0; i < HW_CLIENTS; i++)
		if (!pw_sim(m)->tuning.stoppable || hw_chance(m->world, 512))
			pw_client_lose(&w->clients[i], m->place);
	shards_gone(shards_of(m));
	handover_fence(m->h);
}

/* Its record first, then the map, which was read behind it. */
static void map_step(struct hw_member *m)
{
	struct hw_world *w = m->world;

	if (pw_world(w)->mix.takes && m->registered && w->now_ns > m->lease_ns + w->lease_ns * 3 / 4) {
		fence(m);
		return;
	}
	if (m->apart_ns > w->now_ns)
		return;
	if (!m->registered) {
		m->registered = true;
		m->lease_ns = w->now_ns;
		w->record_boot[m->place] = m->boot_id;
		m->reading = 0;
		return;
	}
	hw_member_read_map(m);
}

/* Any that nobody has: the plan (daemon/cluster-plan.c) says whose, and may be of any age. */
static void take_step(struct hw_member *m)
{
	const struct hw_map *map = &m->world->maps[m->map];

	if (!m->map || map->members[m->place].state != CLUSTER_UP)
		return;
	for (uint32_t shard = 0; shard < HW_SHARDS; shard++)
		if (map->owners[shard] == CLUSTER_NOBODY)
			handover_take(m->h, shard);
}

static void ask_step(struct hw_member *m)
{
	struct hw_world *w = m->world;
	uint32_t at = (uint32_t)hw_below(w, m->ask_count);
	struct handover_ask ask = m->asks[at];
	struct hw_member *target = other(m);
	enum handover_answer answer;

	if (!hw_chance(w, 200))
		m->asks[at] = m->asks[--m->ask_count];
	if (target->h == NULL || target->wake_ns > w->now_ns)
		return;
	answer = hw_asked(w, target, &ask);
	if (!hw_chance(w, 100))
		handover_answered(m->h, ask.number, answer, target->boot_id);
}

/* A piece of a job, or, between two of them, what else its main loop does. */
void hw_member_step(struct hw_member *m)
{
	struct hw_world *w = m->world;
	struct sim_daemon *d = daemon_of(m);

	if (d->job != SIM_JOB_NONE || !d->up || hw_chance(w, 400)) {
		sim_daemon_step(d);
		if (d->up && d->job == SIM_JOB_NONE && m->h == NULL)
			pw_member_begin(m);
		return;
	}
	if (m->h == NULL)
		return;
	if (pool_of(m)->job_done) {
		pool_of(m)->job_done = false;
		handover_job_done(m->h);
	}
	switch (hw_below(w, 4)) {
	case 0:
		map_step(m);
		break;
	case 1:
		if (m->ask_count)
			ask_step(m);
		break;
	case 2:
		take_step(m);
		if (m->mover.connected && pool_of(m)->mover.session->lost) {
			m->mover.connected = false;
			handover_lost(m->h, m->mover.attempt.number);
		}
		break;
	default:
		m->due_ns = handover_step(m->h, w->now_ns);
		break;
	}
}
