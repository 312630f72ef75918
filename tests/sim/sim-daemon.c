/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-daemon.c - the daemon as an actor: which job it does next, and its life
 *
 * The jobs are daemon/'s real code: keeper_step(), rpc_handle(), pool_client_end(). What stands here
 * is what surrounds them in the real daemon: the main loop, the timer of the keeper, connections that
 * end (daemon/peer*.c). Next: sim-self.c for the accesses, sim-system.c for the rest of its world.
 */
#include "sim-daemon.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "keeper.h"
#include "mutation.h"
#include "recover.h"
#include "sim-system.h"
#include "tarn/tarn.h"

struct sim_daemon *sim_daemon_create(struct sim *sim)
{
	struct sim_daemon *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->sim = sim;
	d->fiber = fiber_create();
	if (!d->fiber) {
		free(d);
		return NULL;
	}
	log_init(&d->log, STDERR_FILENO, LOG_LEVEL_ERROR);
	return d;
}

void sim_daemon_free(struct sim_daemon *d)
{
	if (!d)
		return;
	sim_daemon_end(d);
	fiber_free(d->fiber);
	free(d);
}

/* ---- birth and death ------------------------------------------------------------------------- */

static void become(struct sim_daemon *d)
{
	struct pool *pool = &d->pool;

	memset(pool, 0, sizeof(*pool));
	memset(d->clients, 0, sizeof(d->clients));
	d->config.low_water.number = 5;
	d->config.high_water.number = 8;
	snprintf(d->config.name, sizeof(d->config.name), "sim");
	snprintf(pool->name, sizeof(pool->name), "sim");
	pool->config = &d->config;
	pool->log = &d->log;
	pool->memory.base = d->sim->pool;
	pool->memory.bytes = d->sim->bytes;
	pool->geometry = d->sim->geometry;
	pool->clients = d->clients;
	pool->lazy_ends = d->lazy_ends;
	pool->geometry.max_clients = d->slots;
	d->mean = (uint64_t[]){200, 2000, 20000}[sim_below(d->sim, 3)];
	d->far = d->mean == 2000;
	d->allowance = 0;
	sim_system_set(d);
}

static bool keeper_begin(struct sim_daemon *d)
{
	if (keeper_create(&d->pool, &d->log, &d->pool.keeper) < 0)
		return false;
	d->up = true;
	d->keeper_ns = d->sim->now_ns + sim_below(d->sim, d->sim->geometry.epoch_ns);
	return true;
}

bool sim_daemon_begin(struct sim_daemon *d)
{
	d->lazy_ends = sim_chance(d->sim, 400);
	d->slots = SIM_CLIENTS + (uint32_t)sim_below(d->sim, SIM_SLOTS - SIM_CLIENTS + 1);
	become(d);
	d->ending_count = 0;
	d->calm = true;
	d->waited = false;
	d->counts = (struct sim_counts){0};
	return keeper_begin(d);
}

/* What the keeper has counted until now. */
static void count(struct sim_daemon *d)
{
	struct keeper_stats stats;

	d->calm = true;
	keeper_get_stats(d->pool.keeper, sim_system_now_ns(), &stats);
	d->counts.aged += stats.recycle.blocks_aged;
	d->counts.leaked += stats.sweep.leaked_blocks;
	d->counts.splits += stats.grow.splits;
	d->counts.evicted += stats.evict.evicted;
}

void sim_daemon_count(struct sim_daemon *d, struct sim_counts *sum)
{
	if (d->up)
		count(d);
	sum->aged += d->counts.aged;
	sum->leaked += d->counts.leaked;
	sum->splits += d->counts.splits;
	sum->evicted += d->counts.evicted;
	sum->starts += d->counts.starts;
}

void sim_daemon_end(struct sim_daemon *d)
{
	fiber_drop(d->fiber);
	sim_heap_drop(d);
	d->job = SIM_JOB_NONE;
	d->up = false;
}

void sim_daemon_kill(struct sim_daemon *d, uint64_t pause_ns)
{
	sim_tracef(d->sim, "the daemon is killed%s", d->job == SIM_JOB_NONE ? "" : " at work");
	if (d->up)
		count(d);
	sim_daemon_end(d);
	d->ending_count = 0;
	d->waited = false;
	d->start_ns = d->sim->now_ns + pause_ns;
}

/* Those who have the memory mapped go on in it, without a connection. */
static void find_unfenced(struct sim_daemon *d)
{
	for (unsigned i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_endpoint *ep = &d->sim->endpoints[i];
		struct pool_client *client = &d->clients[ep->slot];

		if (!ep->orphaned || ep->dead || !ep->open || MUTATED(MUTATION_UNFENCED))
			continue;
		*client = (struct pool_client){.state = LAYOUT_CLIENT_LIVE,
					       .client_id = ep->client_id,
					       .first_id = ep->client_id,
					       .unfenced = true,
					       .name = "sim"};
		d->pool.client_count++;
		d->pool.unfenced_count++;
	}
}

/*
 * daemon/pool-open.c, open_kept(): what it does of it to the pool. It begins with a sleep, if somebody
 * may still be at work with what he has read before.
 */
static void work_start(struct sim_daemon *d)
{
	struct recover_report report;
	int rc;

	become(d);
	d->pool.last_client_id = d->pool.reserved_client_id =
		(uint32_t)sim_word(d->sim, offsetof(struct layout_superblock, last_client_id));
	find_unfenced(d);
	if (d->pool.unfenced_count && !d->waited) {
		d->waited = true;
		d->start_ns = sim_time(sim_system_now_ns() + d->sim->geometry.deadline_ns * 5 / 4,
				       d->sim->daemon_drift);
		return;
	}
	sim_tracef(d->sim, "the daemon starts, %u clients have the memory mapped",
		   d->pool.unfenced_count);
	d->sim->geometry.boot_id++;
	d->counts.starts++;
	rc = recover_run(&d->pool, NULL, &report);
	if (rc < 0)
		snprintf(d->sim->violation, sizeof(d->sim->violation),
			 "the daemon does not start again: %s", err_text());
	else if (!keeper_begin(d))
		abort();
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void work_keeper(struct sim_daemon *d)
{
	uint64_t pause = keeper_step(d->pool.keeper, sim_system_now_ns());

	/* as a timer does: counted from when the step has ended */
	d->keeper_ns = sim_time(sim_system_now_ns() + pause, d->sim->daemon_drift);
}

static void answer(struct sim_daemon *d, const uint8_t *reply)
{
	struct sim_endpoint *ep = &d->sim->endpoints[d->client];
	const struct sim_message *m = &d->message;
	size_t length = WIRE_RPC_REPLY_BYTES < m->capacity ? WIRE_RPC_REPLY_BYTES : m->capacity;

	if (ep->serial != d->serial || ep->dead || ep->broken || m->cancelled)
		return;
	memcpy(m->reply, reply, length);
	ep->asking = false;
	sim_complete(ep, &(struct fabric_completion){.cookie = m->cookie,
						     .length = (uint32_t)length});
}

static void work_rpc(struct sim_daemon *d)
{
	struct sim_endpoint *ep = &d->sim->endpoints[d->client];
	struct rpc_answer reply;
	uint64_t cancels = ep->cancels;
	int rc;

	sim_tracef(d->sim, "daemon: message %u of c%u", d->message.bytes[0], d->client);
	rc = rpc_handle(&d->pool, &d->rpc_clients[ep->slot], d->message.bytes, d->message.length,
			&reply);
	if (rc < 0)
		abort(); /* no client of ours sends nonsense */
	d->message.cancelled |= ep->cancels != cancels;
	sim_tracef(d->sim, "daemon: its answer%s", d->message.cancelled ? ", nobody waits for it" : "");
	answer(d, reply.bytes);
}

/* daemon/peer-verbs.c and peer.c: the connection is fenced, then its state is touched. */
static void work_end(struct sim_daemon *d)
{
	sim_tracef(d->sim, "daemon: end of c%u in slot %u", d->ending.client, d->ending.slot);
	if (!MUTATED(MUTATION_FENCE))
		sim_fence(d->sim, d->ending.client, d->ending.slot);
	if (d->clients[d->ending.slot].unfenced) {
		d->clients[d->ending.slot].unfenced = false;
		d->pool.unfenced_count--;
	}
	pool_client_end(&d->pool, d->ending.slot);
}

static void work(void *argument)
{
	struct sim_daemon *d = argument;

	switch (d->job) {
	case SIM_JOB_NONE:
		break;
	case SIM_JOB_KEEPER:
		work_keeper(d);
		break;
	case SIM_JOB_RPC:
		work_rpc(d);
		break;
	case SIM_JOB_END:
		work_end(d);
		break;
	case SIM_JOB_START:
		work_start(d);
		break;
	}
}

static void run(struct sim_daemon *d, bool begins)
{
	bool more;

	sim_system_set(d);
	more = begins ? fiber_start(d->fiber, work, d) : fiber_resume(d->fiber);
	if (!more)
		d->job = SIM_JOB_NONE;
}

/* ---- which job ------------------------------------------------------------------------------- */

static uint64_t message_ready(const struct sim_endpoint *ep)
{
	if (!ep->message_count || ep->fenced)
		return SIM_NEVER;
	return ep->messages[0].ready_ns;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When there is something to do besides the keeper. */
static uint64_t client_work(const struct sim_daemon *d)
{
	uint64_t next = SIM_NEVER;

	for (unsigned i = 0; i < SIM_CLIENTS; i++)
		next = earlier(next, message_ready(&d->sim->endpoints[i]));
	for (unsigned i = 0; i < d->ending_count; i++)
		next = earlier(next, d->endings[i].ready_ns);
	return next;
}

uint64_t sim_daemon_next(const struct sim_daemon *d)
{
	uint64_t next = d->job != SIM_JOB_NONE ? 0 : d->up ? client_work(d) : d->start_ns;

	if (next != SIM_NEVER && next < d->sim->daemon_stopped_ns)
		next = d->sim->daemon_stopped_ns;
	return next;
}

uint64_t sim_keeper_next(const struct sim_daemon *d)
{
	if (d->job != SIM_JOB_NONE || !d->up)
		return SIM_NEVER;
	return d->keeper_ns > d->sim->daemon_stopped_ns ? d->keeper_ns : d->sim->daemon_stopped_ns;
}

static void begin_message(struct sim_daemon *d, struct sim_endpoint *ep)
{
	d->job = SIM_JOB_RPC;
	d->client = ep->client;
	d->serial = ep->serial;
	d->message = ep->messages[0];
	memmove(ep->messages, ep->messages + 1, (SIM_MESSAGES - 1) * sizeof(ep->messages[0]));
	ep->message_count--;
}

/* One of those that are due, by chance. */
static void choose_job(struct sim_daemon *d)
{
	uint64_t now = d->sim->now_ns;
	unsigned seen = 0, ending = 0;
	struct sim_endpoint *ep = NULL;

	if (!d->up) {
		d->job = d->start_ns <= now ? SIM_JOB_START : SIM_JOB_NONE;
		return;
	}
	for (unsigned i = 0; i < SIM_CLIENTS; i++)
		if (message_ready(&d->sim->endpoints[i]) <= now && sim_below(d->sim, ++seen) == 0) {
			ep = &d->sim->endpoints[i];
			d->job = SIM_JOB_RPC;
		}
	for (unsigned i = 0; i < d->ending_count; i++)
		if (d->endings[i].ready_ns <= now && sim_below(d->sim, ++seen) == 0) {
			ending = i;
			d->job = SIM_JOB_END;
		}
	if (d->keeper_ns <= now && sim_below(d->sim, ++seen) == 0)
		d->job = SIM_JOB_KEEPER;
	if (d->job == SIM_JOB_RPC)
		begin_message(d, ep);
	if (d->job == SIM_JOB_END) {
		d->ending = d->endings[ending];
		d->endings[ending] = d->endings[--d->ending_count];
	}
}

void sim_daemon_step(struct sim_daemon *d)
{
	bool begins = d->job == SIM_JOB_NONE;

	if (begins)
		choose_job(d);
	if (d->job == SIM_JOB_NONE)
		return;
	d->calm = false;
	run(d, begins);
}

void sim_keeper_run(struct sim_daemon *d)
{
	d->job = SIM_JOB_KEEPER;
	d->calm = true;
	run(d, true);
}

void sim_keeper_skip(struct sim_daemon *d, uint64_t epochs)
{
	d->calm = true;
	keeper_skip(d->pool.keeper, epochs);
	d->keeper_ns = d->sim->now_ns + epochs * d->sim->geometry.epoch_ns;
}

bool sim_daemon_sweeps(const struct sim_daemon *d)
{
	struct keeper_stats stats;

	if (!d->up)
		return false;
	keeper_get_stats(d->pool.keeper, sim_system_now_ns(), &stats);
	return stats.sweep.state == SWEEP_PAGES || stats.sweep.state == SWEEP_WALK;
}

/* ---- connections ----------------------------------------------------------------------------- */

bool sim_daemon_connect(struct sim_daemon *d, uint32_t *ret_slot, uint32_t *ret_client_id)
{
	struct pool_client client = {.pid = 1, .name = "sim"};
	uint32_t slot;

	if (!d->up || d->job != SIM_JOB_NONE || d->sim->daemon_stopped_ns > d->sim->now_ns)
		return false;
	sim_system_set(d);
	d->calm = true;
	if (pool_client_add(&d->pool, &client, &slot) < 0)
		return false;
	rpc_client_init(&d->rpc_clients[slot], slot, false);
	*ret_slot = slot;
	*ret_client_id = d->clients[slot].client_id;
	return true;
}

void sim_daemon_disconnect(struct sim_daemon *d, unsigned client, uint32_t slot)
{
	uint64_t later = sim_chance(d->sim, 512)
				 ? sim_below(d->sim, 100 * (uint64_t)d->sim->tuning.tick_ns)
				 : sim_below(d->sim, 2 * d->sim->geometry.grace_ns);

	if (d->sim->tuning.ends_soon)
		later %= 1000000;
	if (!d->up && d->job != SIM_JOB_START)
		return; /* the next one will not find it */
	if (d->ending_count == SIM_ENDINGS)
		abort();
	d->endings[d->ending_count++] = (struct sim_ending){
		.slot = slot, .client = client, .ready_ns = d->sim->now_ns + later};
}
