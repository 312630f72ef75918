/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-client.c - a client of a cluster with a session at each member: its calls through client/kv*.c
 *
 * What stands here is what a cluster's session does: which member, when to look for a newer map and begin again. Next: pool-call.c.
 */
#include <string.h>

#include "kv.h"
#include "pool-world.h"
#include "tarn/tarn.h"

#define RETRY_NS (5 * HW_MS)
#define WAIT_NS  (50 * HW_MS) /* for a map that says something else */
#define KEEP_NS  (400 * HW_MS)

static struct pw_client *of(struct hw_client *c)
{
	return &pw_world(c->world)->clients[c->number];
}

static struct hw_record *record_of(const struct hw_client *c)
{
	return &c->world->records[c->record];
}

static bool takes(const struct hw_client *c)
{
	return pw_world(c->world)->mix.takes;
}

/* ---- connections ---- */

static int connect_again(struct session_connector *connector, uint64_t timeout_ns,
			 struct session_link *ret_link, enum session_again *ret_again,
			 uint64_t *ret_wait_ns)
{
	const struct pw_connector *own = (const struct pw_connector *)connector;
	const struct pw_client *c = own->client;
	struct sim *sim = pw_sim(&c->client->world->member[own->member]);
	struct session_link link = {0};

	(void)timeout_ns;
	*ret_wait_ns = 0;
	*ret_again = SESSION_SOON;
	if (c->client->world->member[own->member].fenced ||
	    !sim_daemon_connect(sim->daemon, &link.identity.client_slot, &link.identity.client_id))
		return -TARN_ESESSION;
	link.ep = sim_connect(sim, c->client->number, link.identity.client_slot, link.identity.client_id);
	link.geometry = sim->geometry;
	*ret_link = link;
	return 0;
}

static void connector_free(struct session_connector *connector)
{
	(void)connector;
}

bool pw_client_open(struct pw_client *c)
{
	struct hw_client *client = c->client;
	struct tarn_options options = TARN_OPTIONS_INIT;

	options.flags = TARN_NO_THREAD | TARN_NO_CACHE;
	options.timeout_ms = 5000;
	c->task = NULL;
	c->keeps = false;
	c->keep_ns = 0;
	c->kept = 0;
	memset(c->since, 0, sizeof(c->since));
	memset(c->known, 0, sizeof(c->known));
	if (!pw_walk_create(c))
		return false;
	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		struct sim *sim = pw_sim(&client->world->member[i]);
		struct session_identity identity = {0};

		if (!sim_daemon_connect(sim->daemon, &identity.client_slot, &identity.client_id) ||
		    session_create(sim_connect(sim, client->number, identity.client_slot,
					       identity.client_id),
				   &sim->geometry, &identity, &options, &c->sessions[i]) < 0)
			return false;
		c->connectors[i] = (struct pw_connector){
			.base = {.connect = connect_again, .free = connector_free},
			.client = c,
			.member = i};
		c->sessions[i]->connector = &c->connectors[i].base;
		c->sessions[i]->since = c->since[i];
		c->sessions[i]->since_shards = HW_SHARDS;
	}
	return true;
}

void pw_client_free(struct pw_client *c)
{
	pw_walk_free(c);
	for (unsigned i = 0; i < PW_MEMBERS; i++) {
		session_free(c->sessions[i]);
		c->sessions[i] = NULL;
	}
}

void pw_client_lose(struct pw_client *c, unsigned member)
{
	struct sim *sim = pw_sim(&c->client->world->member[member]);

	if (c->sessions[member] == NULL || c->sessions[member]->lost)
		return;
	sim_break(sim, c->client->number);
	c->sessions[member]->lost = true;
}

void hw_client_break(struct hw_client *client)
{
	pw_client_lose(of(client), (unsigned)hw_below(client->world, PW_MEMBERS));
}

/* ---- calls ---- */

static void end(struct hw_client *c, enum linear_outcome outcome, bool dropped)
{
	struct hw_world *w = c->world;
	struct hw_record *r = record_of(c);

	pw_call_returns(of(c));
	r->op.outcome = outcome;
	r->dropped = dropped;
	w->acknowledged += !dropped && outcome != LINEAR_MAYBE;
	hw_trace(w, "c%u ends: %s", c->number,
		 dropped		     ? "no answer"
		 : outcome == LINEAR_MAYBE   ? "ambiguous"
		 : outcome == LINEAR_ABSENT ? "absent"
					     : "done");
	c->phase = HW_IDLE;
	/* so that there are calls for as long as members come and go */
	c->wake_ns = w->now_ns + (takes(c) ? hw_below(w, w->bound_ns / 2) : hw_while(w) / 16);
}

/* Its housekeeping asks for a map, unless it can reach nobody. */
static void ask_soon(struct hw_client *c)
{
	if (!takes(c) || c->house_ns < c->world->now_ns + c->world->bound_ns)
		c->house_ns = c->world->now_ns;
}

static void again(struct hw_client *c)
{
	struct hw_world *w = c->world;

	if (w->now_ns > c->limit_ns) {
		end(c, LINEAR_MAYBE, true);
		return;
	}
	c->phase = HW_BEGIN;
	ask_soon(c);
	c->wake_ns = w->now_ns + hw_below(w, takes(c) ? WAIT_NS : RETRY_NS);
}

static void begin(struct hw_client *c)
{
	c->calls--;
	c->phase = HW_BEGIN;
	c->limit_ns = c->world->now_ns + HW_LIMIT_NS;
	if (pw_world(c->world)->mix.walks && hw_chance(c->world, 150)) {
		c->phase = HW_WALK;
		pw_walk_begin(of(c));
		return;
	}
	pw_call_begin(c);
}

static bool fresh(const struct hw_client *c)
{
	return c->world->now_ns < c->fresh_ns || MUTATED(MUTATION_NOBOUND);
}

/* The map as it is known now; which member, and its session. */
static void start(struct hw_client *client)
{
	struct pw_client *c = of(client);
	struct hw_world *w = client->world;
	const struct hw_map *map = &w->maps[client->map];
	const struct hw_record *r = record_of(client);
	struct tarn_session *s;

	client->call_map = client->map;
	client->target = map->owners[r->key % HW_PLAY];
	/* no write is begun with an old map; of one that gets old meanwhile answer() decides */
	if (client->target == CLUSTER_NOBODY ||
	    (takes(client) && r->op.kind != LINEAR_GET && !fresh(client) && hw_chance(w, 900))) {
		again(client);
		return;
	}
	s = c->sessions[client->target];
	if (s->lost && session_reconnect_try(s, 0) < 0) {
		/* not by the session's own back-off, which knows the real time alone */
		s->try_ns = 0;
		again(client);
		return;
	}
	for (unsigned i = 0; i < PW_MEMBERS; i++)
		for (uint32_t shard = 0; shard < HW_SHARDS; shard++)
			c->since[i][shard] = map->owners[shard] == i ? map->since[shard] : 0;
	client->phase = HW_READ;
	c->task = pw_call_task(client, s);
	c->task->status = 0;
}

/*
 * client/cluster-call.c, judge(): does the map with which the call was begun count? In a store pool a get goes on with an old one, and what
 * it finds of a shard that was given up meanwhile is not told here.
 */
static void answer(struct hw_client *client)
{
	struct hw_world *w = client->world;
	const struct hw_record *r = record_of(client);
	bool get = r->op.kind == LINEAR_GET;
	uint64_t taken = w->maps[client->map].taken[r->key % HW_PLAY];

	if (!fresh(client) && get && !w->cache) {
		end(client, LINEAR_MAYBE, true);
	} else if (!fresh(client) && w->now_ns < client->limit_ns && hw_chance(w, 900)) {
		client->phase = HW_ANSWER;
		client->wake_ns = w->now_ns + hw_below(w, WAIT_NS);
		ask_soon(client);
	} else if (fresh(client) &&
		   (taken <= w->maps[client->call_map].map.epoch || MUTATED(MUTATION_ACKFRESH))) {
		end(client, r->op.outcome, false);
	} else if (!get && r->op.outcome == LINEAR_OK) {
		end(client, LINEAR_MAYBE, false);
	} else {
		again(client);
	}
}

static void judge(struct hw_client *client, int result)
{
	struct pw_client *c = of(client);
	struct hw_record *r = record_of(client);
	const struct tarn_session *s = c->sessions[client->target];

	switch (pw_call_judge(client, s, result)) {
	case PW_ANSWERED:
		if (takes(client))
			answer(client);
		else
			end(client, r->op.outcome, false);
		break;
	case PW_AGAIN:
		again(client);
		break;
	case PW_MAYBE:
		end(client, LINEAR_MAYBE, false);
		/* the daemon may still do what it was asked for */
		if (r->op.kind == LINEAR_ADD && !s->lost)
			r->op.returned = LINEAR_NEVER;
		break;
	case PW_NOTHING:
		end(client, LINEAR_MAYBE, true);
	}
}

/* ---- walks ---- */

static void walk_goes_on(struct hw_client *client, enum pw_walk_next next)
{
	struct hw_world *w = client->world;

	switch (next) {
	case PW_WALK_OVER:
		client->phase = HW_IDLE;
		client->wake_ns = w->now_ns + hw_while(w) / 16;
		break;
	case PW_WALK_WAIT:
		ask_soon(client);
		client->wake_ns = w->now_ns + hw_below(w, takes(client) ? WAIT_NS : RETRY_NS);
		break;
	case PW_WALK_PAUSE:
		client->wake_ns = w->now_ns + hw_while(w) / 16;
		break;
	case PW_WALK_TASK:
	case PW_WALK_GO_ON:
		break;
	}
}

static void walk(struct hw_client *client)
{
	struct pw_client *c = of(client);
	enum pw_walk_next next = pw_walk_next(c, fresh(client), &c->task, &client->target);

	walk_goes_on(client, next);
}

/* Between two calls: pages go back, and counts are raised, which sweeps wait for. */
static void keep(struct pw_client *c)
{
	struct hw_world *w = c->client->world;
	struct tarn_session *s;

	c->keep_ns = w->now_ns + KEEP_NS / 2 + hw_below(w, KEEP_NS);
	c->kept = 1 - c->kept;
	s = c->sessions[c->kept];
	if (s->lost)
		return;
	c->keeps = true;
	c->task = process_start(s->process, false);
	c->task->status = 0;
}

static unsigned member_of_task(const struct pw_client *c)
{
	return c->keeps ? c->kept : c->client->target;
}

uint64_t pw_client_next(const struct pw_client *c)
{
	const struct hw_client *client = c->client;

	if (c->task)
		return pw_task_next(&pw_sim(&client->world->member[member_of_task(c)])
					     ->endpoints[client->number],
				    c->task);
	if ((client->phase == HW_IDLE || client->phase == HW_WALK) &&
	    ((client->phase == HW_IDLE && client->calls == 0) || c->keep_ns < client->wake_ns))
		return c->keep_ns;
	return client->wake_ns;
}

void hw_client_step(struct hw_client *client)
{
	struct pw_client *c = of(client);
	bool ended = false;
	int result;

	if (c->task) {
		ended = pw_task_step(c->sessions[member_of_task(c)], c->task);
	} else if ((client->phase == HW_IDLE || client->phase == HW_WALK) &&
		   c->keep_ns <= client->world->now_ns) {
		keep(c);
		ended = c->task && c->task->step(c->task);
	} else if (client->phase == HW_BEGIN) {
		start(client);
		ended = c->task && c->task->step(c->task);
	} else if (client->phase == HW_ANSWER) {
		answer(client);
	} else if (client->phase == HW_WALK) {
		walk(client);
		ended = c->task && c->task->step(c->task);
	} else if (client->calls) {
		begin(client);
	}
	if (!ended)
		return;
	result = c->task->result;
	c->task = NULL;
	if (!c->keeps && client->phase == HW_WALK)
		walk_goes_on(client, pw_walk_judge(c, result, fresh(client)));
	else if (!c->keeps)
		judge(client, result);
	c->keeps = false;
}

/* A newer map, of a member that can be asked. */
static void look_for_map(struct hw_client *c)
{
	struct hw_world *w = c->world;
	const struct hw_member *m = &w->member[hw_below(w, w->members)];

	c->house_ns = w->now_ns + hw_below(w, HW_BOUND_NS);
	if (m->h != NULL && m->map > c->map && m->wake_ns <= w->now_ns)
		c->map = m->map;
}

void hw_client_house(struct hw_client *c)
{
	if (takes(c))
		hw_client_ask(c);
	else
		look_for_map(c);
}
