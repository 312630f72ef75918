/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/handover*.c: shards of a cluster go from member to member
 *
 * Three members' real state machines; memory, movers, walks and the map's keeper are the test's. Each thing that is
 * under way is an event that the test lets happen, or never. In test_chances a seed decides, with ends and starts of
 * members, requests that come late, and answers that are lost; there "the data" is one number per shard, which clients change.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster-map.h"
#include "err.h"
#include "handover-internal.h"
#include "tarn/tarn.h"

#define NODES    3
#define SHARDS   64u
#define REQUESTS 32u
#define MS       UINT64_C(1000000)
#define BOUND_NS (5000 * MS)

struct mover {
	bool runs, again, dropped, connected;
	struct handover_ask attempt;
	uint32_t at;
	uint32_t list[HANDOVER_BATCH]; /* what was put at the target */
};

struct node {
	struct world *world;
	unsigned place;
	struct handover *h;
	uint64_t boot_id, map_epoch;
	uint32_t value[SHARDS]; /* 0: nothing */
	bool frozen[SHARDS];
	uint64_t words[SHARDS];
	const uint32_t *job_shards;
	uint32_t job_count;
	enum handover_job job;
	bool job_runs;
	struct mover mover;
	uint64_t cut[NODES + 2]; /* per member: movers up to this number are cut */
	unsigned cuts;
	bool cut_refuses;
	struct handover_ask asked[4];
	unsigned asked_count;
};

struct request {
	struct handover_write write;
	unsigned from;
	uint64_t boot_id; /* of who has sent it */
	bool sent, answered;
};

struct world {
	struct node nodes[NODES];
	struct cluster_map map;
	struct cluster_member members[NODES];
	struct cluster_move moves[SHARDS];
	uint16_t owners[SHARDS];
	uint64_t since[SHARDS], taken[SHARDS];
	struct request requests[REQUESTS];
	uint32_t current[SHARDS]; /* what clients have written last */
	bool lost[SHARDS];        /* and the owner has lost it */
	uint32_t next_value;
	uint64_t now, random;
	unsigned switches;
	struct handover_options options;
};

static uint64_t below(struct world *w, uint64_t n)
{
	w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (w->random >> 33) % n;
}

/* ---- what the machine calls ---- */

static void on_word(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	struct node *n = arg;

	n->words[shard] = shard_word_make(state, epoch);
	/* what says "believe me" is the owner, whatever else is late */
	if (state == SHARD_OPEN || state == SHARD_CLOSING)
		assert_int_equal(n->world->owners[shard], n->place);
}

static int on_job(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count)
{
	struct node *n = arg;

	assert_false(n->job_runs);
	assert_true(count > 0);
	n->job = job;
	n->job_shards = shards;
	n->job_count = count;
	n->job_runs = true;
	return 0;
}

static struct node *target_of(struct node *n)
{
	return &n->world->nodes[n->mover.attempt.to - 1];
}

static int on_copy(void *arg, const struct handover_ask *attempt)
{
	struct node *n = arg;

	assert_false(n->mover.runs);
	n->mover = (struct mover){.runs = true, .attempt = *attempt};
	return 0;
}

static int on_bring(void *arg)
{
	struct node *n = arg;

	assert_false(n->mover.runs);
	n->mover.runs = n->mover.again = true;
	n->mover.at = 0;
	return 0;
}

static void on_drop(void *arg)
{
	struct node *n = arg;

	n->mover.dropped = true;
}

static void on_ask(void *arg, const struct handover_ask *ask)
{
	struct node *n = arg;

	if (n->asked_count < 4)
		n->asked[n->asked_count++] = *ask;
}

static int on_cut(void *arg, uint16_t from, uint64_t number)
{
	struct node *n = arg;

	if (n->cut_refuses)
		return -EAGAIN;
	if (number > n->cut[from])
		n->cut[from] = number;
	n->cuts++;
	return 0;
}

static int on_write(void *arg, const struct handover_write *write)
{
	struct node *n = arg;

	for (unsigned i = 0; i < REQUESTS; i++) {
		struct request *r = &n->world->requests[i];

		if (r->sent)
			continue;
		*r = (struct request){
			.write = *write, .from = n->place, .boot_id = n->boot_id, .sent = true};
		r->write.changes = malloc(write->count * sizeof(*write->changes));
		assert_non_null(r->write.changes);
		memcpy(r->write.changes, write->changes, write->count * sizeof(*write->changes));
		return 0;
	}
	return -EAGAIN;
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

/* ---- the world's events ---- */

static void tell_map(struct node *n)
{
	n->map_epoch = n->world->map.epoch;
	assert_int_equal(handover_map(n->h, &n->world->map, n->world->now), 0);
}

static void step(struct node *n)
{
	handover_step(n->h, n->world->now);
}

static void job_end(struct node *n)
{
	assert_true(n->job_runs);
	for (uint32_t i = 0; i < n->job_count; i++) {
		uint32_t shard = n->job_shards[i];

		switch (n->job) {
		case HANDOVER_FREEZE:
			n->frozen[shard] = true;
			break;
		case HANDOVER_THAW:
			n->frozen[shard] = false;
			break;
		case HANDOVER_EMPTY:
			n->value[shard] = 0;
			n->frozen[shard] = false;
			break;
		}
	}
	n->job_runs = false;
	handover_job_done(n->h);
}

static bool connected(struct node *n)
{
	const struct mover *m = &n->mover;
	const struct node *target = target_of(n);

	return m->connected && target->boot_id == m->attempt.boot_id &&
	       target->cut[n->place + 1] < m->attempt.number;
}

static void mover_end(struct node *n, int result)
{
	n->mover.runs = false;
	handover_copied(n->h, n->mover.dropped ? -ECANCELED : result);
}

/* One shard, or the connection. */
static void mover_step(struct node *n)
{
	struct mover *m = &n->mover;
	struct node *target = target_of(n);
	uint32_t shard;

	if (!m->connected && !m->again && m->at == 0) {
		m->connected = target->boot_id == m->attempt.boot_id &&
			       handover_admits(target->h, m->attempt.from, m->attempt.number);
		if (!m->connected) {
			mover_end(n, -TARN_ESESSION);
			return;
		}
	}
	if (m->at == m->attempt.count) {
		mover_end(n, 0);
		return;
	}
	if (!connected(n)) {
		mover_end(n, -TARN_ESESSION);
		return;
	}
	shard = m->attempt.shards[m->at];
	if (!m->again || n->value[shard] != m->list[m->at]) {
		target->value[shard] = m->list[m->at] = n->value[shard];
		target->frozen[shard] = true;
	}
	m->at++;
}

static void answer_ask(struct node *n)
{
	struct handover_ask ask = n->asked[0];
	struct node *target = &n->world->nodes[ask.to - 1];

	n->asked_count--;
	memmove(n->asked, n->asked + 1, n->asked_count * sizeof(n->asked[0]));
	handover_answered(n->h, ask.number, handover_asked(target->h, &ask), target->boot_id);
}

static void check_switch(struct world *w, const struct handover_write *write)
{
	for (uint32_t i = 0; i < write->count; i++) {
		uint32_t shard = write->changes[i].shard;

		if (write->changes[i].what != HANDOVER_SWITCH)
			continue;
		w->switches++;
		/* asked for before, by the process that had it: then it is found again */
		if (w->lost[shard])
			w->current[shard] = w->nodes[w->owners[shard]].value[shard];
		w->lost[shard] = false;
		if (!w->options.cache)
			assert_int_equal(w->nodes[w->owners[shard]].value[shard],
					 w->current[shard]);
		else
			w->current[shard] = 0;
	}
}

/* The request arrives; true: it was done. */
static bool arrive(struct world *w, struct request *r)
{
	if (r->write.if_epoch != w->map.epoch)
		return false;
	if (r->write.if_member != HANDOVER_NOBODY &&
	    w->nodes[r->write.if_member - 1].boot_id != r->write.if_boot_id)
		return false;
	assert_int_equal(handover_apply(&r->write, &w->map), 0);
	check_switch(w, &r->write);
	w->map.epoch += 1 + below(w, 5);
	return true;
}

static void forget(struct request *r)
{
	free(r->write.changes);
	*r = (struct request){0};
}

static void answer(struct world *w, struct request *r, enum handover_outcome outcome)
{
	struct node *n = &w->nodes[r->from];

	if (!r->answered && r->boot_id == n->boot_id)
		handover_written(n->h, outcome);
	r->answered = true;
}

static void serve(struct world *w, struct request *r)
{
	answer(w, r, arrive(w, r) ? HANDOVER_WRITTEN : HANDOVER_REFUSED);
	forget(r);
}

/* A process that begins; with or without what the memory held. */
static void start(struct node *n, bool memory)
{
	struct world *w = n->world;
	struct handover_options options = w->options;

	handover_free(n->h);
	n->boot_id++;
	n->job_runs = n->mover.runs = n->mover.connected = false;
	n->asked_count = 0;
	memset(n->words, 0, sizeof(n->words));
	memset(n->cut, 0, sizeof(n->cut));
	if (!memory) {
		memset(n->value, 0, sizeof(n->value));
		memset(n->frozen, 0, sizeof(n->frozen));
	}
	options.self = (uint16_t)(n->place + 1);
	options.boot_id = n->boot_id;
	assert_int_equal(handover_create(&options, &ops, n, &n->h), 0);
}

/* ---- everything goes on until nothing does ---- */

static bool busy(const struct world *w)
{
	for (unsigned i = 0; i < NODES; i++) {
		const struct node *n = &w->nodes[i];

		if (n->job_runs || n->mover.runs || n->asked_count || n->map_epoch != w->map.epoch)
			return true;
	}
	for (unsigned i = 0; i < REQUESTS; i++)
		if (w->requests[i].sent)
			return true;
	return false;
}

static void go_node(struct node *n)
{
	if (n->map_epoch != n->world->map.epoch)
		tell_map(n);
	step(n);
	if (n->job_runs)
		job_end(n);
	if (n->mover.runs)
		mover_step(n);
	if (n->asked_count)
		answer_ask(n);
	step(n);
}

/* Until nobody has anything to do for a minute. */
static void go(struct world *w, bool writes)
{
	for (unsigned quiet = 0, rounds = 0; quiet < 600; rounds++) {
		assert_true(rounds < 20000);
		w->now += 100 * MS;
		for (unsigned i = 0; i < NODES; i++)
			go_node(&w->nodes[i]);
		for (unsigned i = 0; writes && i < REQUESTS; i++)
			if (w->requests[i].sent)
				serve(w, &w->requests[i]);
		quiet = busy(w) && writes ? 0 : quiet + 1;
	}
}

static struct world *world_create(bool cache, bool fixed)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->random = 1;
	w->now = 1000 * MS;
	w->options = (struct handover_options){
		.shards = SHARDS, .cache = cache, .fixed = fixed, .bound_ns = BOUND_NS};
	w->map = (struct cluster_map){.cache = cache,
				      .epoch = 10,
				      .shards = SHARDS,
				      .member_count = NODES,
				      .members = w->members,
				      .owners = w->owners,
				      .since = w->since,
				      .taken = w->taken,
				      .moves = w->moves};
	for (unsigned i = 0; i < NODES; i++)
		w->members[i].number = (uint16_t)(i + 1);
	for (uint32_t i = 0; i < SHARDS; i++) {
		w->owners[i] = (uint16_t)(i % NODES);
		w->since[i] = 10;
	}
	for (unsigned i = 0; i < NODES; i++) {
		w->nodes[i].world = w;
		w->nodes[i].place = i;
		start(&w->nodes[i], false);
	}
	return w;
}

static void world_free(struct world *w)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		forget(&w->requests[i]);
	for (unsigned i = 0; i < NODES; i++)
		handover_free(w->nodes[i].h);
	free(w);
}

/* As a planner does: every shard of `from` that has no move goes to `to`. */
static void plan_moves(struct world *w, uint16_t from, uint16_t to, uint32_t most)
{
	uint32_t count = 0;
	struct cluster_move next[SHARDS];

	for (uint32_t shard = 0, at = 0; shard < SHARDS; shard++) {
		if (at < w->map.move_count && w->moves[at].shard == shard) {
			next[count++] = w->moves[at++];
		} else if (w->owners[shard] == from && most > 0) {
			next[count++] = (struct cluster_move){.shard = shard, .to = to};
			most--;
		}
	}
	memcpy(w->moves, next, count * sizeof(next[0]));
	w->map.move_count = count;
	w->map.epoch++;
}

static bool client_writes(struct world *w, struct node *n, uint32_t shard)
{
	uint32_t state = shard_word_state(n->words[shard]);
	bool update = n->value[shard] != 0 && !n->frozen[shard];

	if (n->frozen[shard] || (state != SHARD_OPEN && !update))
		return false;
	/* nobody but the owner has what can be written */
	assert_int_equal(w->owners[shard], n->place);
	w->current[shard] = n->value[shard] = ++w->next_value;
	w->lost[shard] = false;
	return true;
}

static void check_rest(struct world *w)
{
	for (uint32_t shard = 0; shard < SHARDS; shard++)
		for (unsigned i = 0; i < NODES; i++) {
			const struct node *n = &w->nodes[i];
			bool owner = w->owners[shard] == i;

			assert_int_equal(n->words[shard],
					 owner ? shard_word_make(SHARD_OPEN, w->since[shard]) : 0);
			assert_false(n->frozen[shard]);
			assert_int_equal(n->value[shard], owner ? w->current[shard] : 0);
		}
	for (unsigned i = 0; i < NODES; i++) {
		struct handover_stats stats;

		handover_get_stats(w->nodes[i].h, &stats);
		assert_int_equal(stats.phase, HANDOVER_IDLE);
		assert_int_equal(stats.open, stats.owned);
		assert_int_equal(stats.ready + stats.clearing + stats.incoming + stats.outgoing, 0);
	}
}

static void fill(struct world *w)
{
	go(w, true);
	for (uint32_t shard = 0; shard < SHARDS; shard++)
		assert_true(client_writes(w, &w->nodes[w->owners[shard]], shard));
}

/* Until the first member's attempt is in this phase. */
static void go_until(struct world *w, enum handover_phase phase)
{
	struct handover_stats stats = {0};

	for (unsigned i = 0; i < 1000 && stats.phase != phase; i++) {
		w->now += 10 * MS;
		for (unsigned n = 0; n < NODES && stats.phase != phase; n++) {
			go_node(&w->nodes[n]);
			handover_get_stats(w->nodes[0].h, &stats);
		}
	}
	assert_int_equal(stats.phase, phase);
}

static struct request *sent(struct world *w)
{
	for (unsigned i = 0; i < REQUESTS; i++)
		if (w->requests[i].sent && !w->requests[i].answered)
			return &w->requests[i];
	return NULL;
}

/* ---- the whole way ---- */

static void test_moves(void **state)
{
	(void)state;
	for (int cache = 0; cache < 2; cache++) {
		struct world *w = world_create(cache, false);
		struct handover_stats stats;

		fill(w);
		plan_moves(w, 0, 1, SHARDS);
		plan_moves(w, 2, 1, 3);
		go(w, true);
		check_rest(w);
		for (uint32_t shard = 0; shard < SHARDS; shard++)
			assert_int_not_equal(w->owners[shard], 0);
		handover_get_stats(w->nodes[0].h, &stats);
		assert_int_equal(stats.moved, (SHARDS + 2) / 3);
		assert_int_equal(stats.owned, 0);
		assert_int_equal(w->map.move_count, 0);
		/* and back */
		plan_moves(w, 1, 0, SHARDS);
		go(w, true);
		check_rest(w);
		world_free(w);
	}
}

/* Reads go on until the request for the switch is made; the words say so. */
static void test_words(void **state)
{
	struct world *w = world_create(false, false);

	(void)state;
	fill(w);
	plan_moves(w, 0, 1, 1);
	go_until(w, HANDOVER_COPYING);
	assert_int_equal(w->nodes[0].words[0], shard_word_make(SHARD_OPEN, 10));
	assert_int_equal(shard_word_state(w->nodes[1].words[0]), SHARD_INCOMING);
	go_until(w, HANDOVER_BRINGING);
	assert_int_equal(w->nodes[0].words[0], shard_word_make(SHARD_CLOSING, 10));
	assert_true(w->nodes[0].frozen[0]);
	go_until(w, HANDOVER_SWITCHING);
	assert_int_equal(shard_word_state(w->nodes[0].words[0]), SHARD_GONE);
	assert_int_equal(w->nodes[0].value[0], w->current[0]);
	go(w, true);
	check_rest(w);
	world_free(w);
}

/* ---- giving up ---- */

/* The mover's connection ends in each phase: nothing is lost, and it is tried again. */
static void test_connection_lost(void **state)
{
	(void)state;
	for (enum handover_phase phase = HANDOVER_COPYING; phase <= HANDOVER_SWITCHING; phase++) {
		struct world *w = world_create(false, false);
		struct handover_stats stats;

		if (phase == HANDOVER_FREEZING) {
			world_free(w);
			continue;
		}
		fill(w);
		plan_moves(w, 0, 1, 4);
		go_until(w, phase);
		w->nodes[0].mover.connected = false;
		handover_lost(w->nodes[0].h, w->nodes[0].mover.attempt.number);
		step(&w->nodes[0]);
		handover_get_stats(w->nodes[0].h, &stats);
		assert_int_equal(stats.phase, HANDOVER_GIVING_UP);
		assert_int_equal(stats.last_error, -TARN_ESESSION);
		/* not open before it is written */
		assert_int_equal(w->nodes[0].frozen[0], phase > HANDOVER_COPYING);
		go(w, true);
		check_rest(w);
		assert_int_equal(w->owners[0], 1);
		assert_true(w->nodes[1].cuts > 1);
		world_free(w);
	}
}

/* The target has no room: the move is taken back, and not tried again. */
static void test_target_full(void **state)
{
	struct world *w = world_create(false, false);
	struct handover_stats stats;

	(void)state;
	fill(w);
	plan_moves(w, 0, 1, 4);
	go_until(w, HANDOVER_COPYING);
	mover_end(&w->nodes[0], -TARN_EPOOLFULL);
	go(w, true);
	check_rest(w);
	assert_int_equal(w->owners[0], 0);
	assert_int_equal(w->map.move_count, 0);
	handover_get_stats(w->nodes[0].h, &stats);
	assert_int_equal(stats.given_up, 4);
	assert_int_equal(stats.last_error, -TARN_EPOOLFULL);
	world_free(w);
}

/* A request for the switch that comes when the source has given up changes nothing. */
static void test_late_switch(void **state)
{
	struct world *w = world_create(false, false);
	struct request *late;

	(void)state;
	fill(w);
	plan_moves(w, 0, 1, 1);
	go_until(w, HANDOVER_SWITCHING);
	step(&w->nodes[0]);
	late = sent(w);
	assert_non_null(late);
	answer(w, late, HANDOVER_UNKNOWN);
	handover_lost(w->nodes[0].h, w->nodes[0].mover.attempt.number);
	w->nodes[0].mover.connected = false;
	for (unsigned i = 0; i < 10; i++) {
		w->now += 50 * MS;
		step(&w->nodes[0]);
	}
	/* closed, for it can not know */
	assert_true(w->nodes[0].frozen[0]);
	assert_int_equal(shard_word_state(w->nodes[0].words[0]), SHARD_GONE);
	serve(w, sent(w));
	tell_map(&w->nodes[0]);
	for (unsigned i = 0; i < 4; i++) {
		step(&w->nodes[0]);
		if (w->nodes[0].job_runs)
			job_end(&w->nodes[0]);
	}
	assert_true(client_writes(w, &w->nodes[0], 0));
	assert_false(arrive(w, late));
	forget(late);
	go(w, true);
	check_rest(w);
	world_free(w);
}

/* Done, and the answer is lost: the map tells. */
static void test_lost_answer(void **state)
{
	struct world *w = world_create(false, false);
	struct request *r;

	(void)state;
	fill(w);
	plan_moves(w, 0, 1, 1);
	go_until(w, HANDOVER_SWITCHING);
	step(&w->nodes[0]);
	r = sent(w);
	assert_non_null(r);
	assert_true(arrive(w, r));
	answer(w, r, HANDOVER_UNKNOWN);
	forget(r);
	go(w, true);
	check_rest(w);
	assert_int_equal(w->owners[0], 1);
	assert_int_equal(w->switches, 1);
	world_free(w);
}

/* The target comes back with another boot id, with or without its memory: the switch is refused, and all begins anew. */
static void test_target_restarts(void **state)
{
	(void)state;
	for (int memory = 0; memory < 2; memory++) {
		struct world *w = world_create(false, false);
		uint64_t since;

		fill(w);
		plan_moves(w, 0, 1, 1);
		go_until(w, HANDOVER_SWITCHING);
		start(&w->nodes[1], memory);
		if (!memory)
			for (uint32_t i = 1; i < SHARDS; i += NODES)
				w->current[i] = 0;
		since = w->since[0];
		w->nodes[1].map_epoch = 0;
		go(w, true);
		check_rest(w);
		assert_int_equal(w->owners[0], 1);
		assert_true(w->since[0] > since + 1);
		world_free(w);
	}
}

/* The source comes back: its moves are given up in writing before anything is open. */
static void test_source_restarts(void **state)
{
	struct world *w = world_create(false, false);
	struct request *late;

	(void)state;
	fill(w);
	plan_moves(w, 0, 1, 1);
	go_until(w, HANDOVER_SWITCHING);
	step(&w->nodes[0]);
	late = sent(w);
	assert_non_null(late);
	late->answered = true;
	start(&w->nodes[0], true);
	tell_map(&w->nodes[0]);
	step(&w->nodes[0]);
	assert_int_equal(w->nodes[0].words[0], 0);
	assert_true(w->nodes[0].frozen[0]);
	assert_int_equal(sent(w)->write.count, 1);
	assert_int_equal(sent(w)->write.changes[0].what, HANDOVER_AGAIN);
	/* the old request was first: then it is the target's */
	assert_true(arrive(w, late));
	forget(late);
	go(w, true);
	check_rest(w);
	assert_int_equal(w->owners[0], 1);
	world_free(w);
}

/* Somebody else calls the drain off, in the midst of it. */
static void test_withdrawn(void **state)
{
	(void)state;
	for (enum handover_phase phase = HANDOVER_ASKING; phase <= HANDOVER_SWITCHING; phase++) {
		struct world *w = world_create(false, false);

		fill(w);
		plan_moves(w, 0, 1, 6);
		if (phase != HANDOVER_FREEZING)
			go_until(w, phase);
		for (uint32_t shard = 0; shard < SHARDS; shard++)
			handover_withdraw(&w->map, shard);
		assert_int_equal(w->map.move_count, 0);
		w->map.epoch++;
		go(w, true);
		check_rest(w);
		assert_int_equal(w->owners[0], 0);
		world_free(w);
	}
}

/* Nobody answers: others have their turn, and nothing has to be written. */
static void test_target_silent(void **state)
{
	struct world *w = world_create(false, false);
	uint64_t epoch;

	(void)state;
	fill(w);
	plan_moves(w, 0, 1, 1);
	plan_moves(w, 0, 2, 1);
	epoch = w->map.epoch;
	tell_map(&w->nodes[0]);
	for (unsigned i = 0; i < 200; i++) {
		w->now += 100 * MS;
		step(&w->nodes[0]);
		w->nodes[0].asked_count = 0;
		assert_true(w->map.epoch == epoch && sent(w) == NULL);
	}
	assert_true(client_writes(w, &w->nodes[0], 0));
	go(w, true);
	check_rest(w);
	assert_int_equal(w->owners[0], 1);
	assert_int_equal(w->owners[3], 2);
	world_free(w);
}

/* ---- the target's answers ---- */

static void test_asked(void **state)
{
	struct world *w = world_create(false, false);
	struct node *target = &w->nodes[1];
	struct handover_ask ask = {.from = 1, .to = 2, .number = 11, .count = 1, .since = {10}};

	(void)state;
	fill(w);
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_WAIT);
	plan_moves(w, 0, 1, 1);
	tell_map(target);
	target->value[0] = 77; /* of an earlier time */
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_WAIT);
	step(target);
	job_end(target);
	step(target);
	assert_int_equal(target->value[0], 0);
	assert_false(handover_admits(target->h, 1, 11));
	ask.since[0] = 9;
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_WAIT);
	ask.since[0] = 10;
	ask.from = 3;
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_WAIT);
	ask.from = 1;
	ask.shards[0] = SHARDS;
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_WAIT);
	ask.shards[0] = 0;
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_READY);
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_READY);
	assert_true(handover_admits(target->h, 1, 11));
	assert_false(handover_admits(target->h, 1, 10));
	assert_false(handover_admits(target->h, 3, 11));
	/* a new attempt: the old one's mover is cut before anything else, and what it has put is emptied */
	target->value[0] = 78;
	w->since[0] = ++w->map.epoch;
	target->cut_refuses = true;
	tell_map(target);
	step(target);
	assert_false(handover_admits(target->h, 1, 11));
	assert_false(target->job_runs);
	target->cut_refuses = false;
	step(target);
	assert_int_equal(target->cut[1], 11);
	assert_true(target->job_runs);
	assert_int_equal(handover_asked(target->h, &ask), HANDOVER_WAIT);
	world_free(w);
}

/* Of several shards in one message: all that move, and as each side knows them, or it is no answer. */
static void test_questioned(void **state)
{
	struct world *w = world_create(false, false);
	struct node *target = &w->nodes[1];
	struct handover_ask ask = {.from = 1, .to = 2, .number = 11, .count = 2, .since = {10, 10}};
	struct handover_question good, bad;

	(void)state;
	fill(w);
	for (uint32_t shard = 0, count = 0; shard < SHARDS && count < 2; shard++)
		if (w->owners[shard] == 0)
			ask.shards[count++] = shard;
	/* by their places, as a source takes them */
	if (handover_place(ask.shards[0], SHARDS) > handover_place(ask.shards[1], SHARDS)) {
		uint32_t first = ask.shards[1];

		ask.shards[1] = ask.shards[0];
		ask.shards[0] = first;
	}
	plan_moves(w, 0, 1, 2);
	tell_map(target);
	handover_question(&ask, SHARDS, &good);
	assert_int_equal(handover_questioned(target->h, &good), HANDOVER_WAIT);
	step(target);
	job_end(target);
	step(target);
	bad = good;
	bad.to = 3;
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	bad = good;
	bad.from = 3;
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	bad = good;
	bad.hash++;
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	bad = good;
	bad.places = 0;
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	bad.places = SHARDS + 1;
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	bad.places = UINT32_MAX;
	bad.first = UINT32_MAX;
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	ask.since[1]++;
	handover_question(&ask, SHARDS, &bad);
	assert_int_equal(handover_questioned(target->h, &bad), HANDOVER_WAIT);
	assert_false(handover_admits(target->h, 1, 11));
	assert_int_equal(handover_questioned(target->h, &good), HANDOVER_READY);
	assert_true(handover_admits(target->h, 1, 11));
	world_free(w);
}

/* ---- fenced ---- */

static void test_fence(void **state)
{
	(void)state;
	for (enum handover_phase phase = HANDOVER_ASKING; phase <= HANDOVER_SWITCHING; phase++)
		for (unsigned who = 0; who < 2; who++) {
			struct world *w = world_create(false, false);
			struct node *n = &w->nodes[who];

			fill(w);
			plan_moves(w, 0, 1, 4);
			if (phase != HANDOVER_FREEZING)
				go_until(w, phase);
			memset(n->words, 0, sizeof(n->words)); /* shards_gone() */
			n->cut[1] = UINT64_MAX / 2;            /* ... and all connections */
			handover_fence(n->h);
			for (unsigned i = 0; i < 50; i++) {
				w->now += 100 * MS;
				step(n);
				for (uint32_t shard = 0; shard < SHARDS; shard++)
					assert_int_equal(n->words[shard], 0);
			}
			assert_int_equal(handover_asked(n->h, &w->nodes[0].mover.attempt),
					 HANDOVER_WAIT);
			n->cut[1] = w->nodes[0].mover.attempt.number;
			tell_map(n);
			go(w, true);
			check_rest(w);
			assert_int_equal(w->owners[0], 1);
			world_free(w);
		}
}

/* The walk that thaws ends behind the fence, and then the next lease is lost, too, before a map has come. */
static void test_fence_walk(void **state)
{
	struct world *w = world_create(false, false);
	struct node *n = &w->nodes[0];

	(void)state;
	fill(w);
	start(n, true);
	tell_map(n);
	for (unsigned i = 0; i < 10 && !n->job_runs; i++)
		step(n);
	assert_int_equal(n->job, HANDOVER_THAW);
	memset(n->words, 0, sizeof(n->words));
	handover_fence(n->h);
	job_end(n);
	step(n);
	for (uint32_t shard = 0; shard < SHARDS; shard++)
		assert_int_equal(n->words[shard], 0);
	memset(n->words, 0, sizeof(n->words));
	handover_fence(n->h);
	tell_map(n);
	go(w, true);
	check_rest(w);
	world_free(w);
}

/* ---- taken without its owner ---- */

static void test_take(void **state)
{
	struct world *w = world_create(true, false);
	struct node *n = &w->nodes[1];

	(void)state;
	fill(w);
	n->value[0] = 5; /* of an earlier time */
	for (uint32_t shard = 0; shard < SHARDS; shard += NODES)
		w->owners[shard] = CLUSTER_NOBODY;
	w->map.epoch++;
	tell_map(n);
	handover_take(n->h, 0);
	handover_take(n->h, 0);
	handover_take(n->h, 1); /* its own: nothing */
	step(n);
	job_end(n);
	step(n);
	assert_int_equal(n->value[0], 0);
	assert_int_equal(shard_word_state(n->words[0]), SHARD_INCOMING);
	/* clients may have the old map for the bound and a margin */
	w->now += BOUND_NS + BOUND_NS / 8 - 1;
	assert_int_equal(handover_step(n->h, w->now), w->now + 1);
	assert_null(sent(w));
	w->now++;
	step(n);
	assert_non_null(sent(w));
	assert_int_equal(sent(w)->write.changes[0].what, HANDOVER_TAKE);
	serve(w, sent(w));
	assert_int_equal(w->owners[0], 1);
	assert_int_equal(w->taken[0], w->since[0]);
	w->current[0] = 0;
	for (unsigned i = 0; i < 3; i++) {
		tell_map(n);
		step(n);
		if (n->job_runs)
			job_end(n);
	}
	assert_int_equal(n->words[0], shard_word_make(SHARD_OPEN, w->since[0]));
	/* the old owner empties what it has */
	go(w, true);
	assert_int_equal(w->nodes[0].value[0], 0);
	assert_int_equal(w->nodes[0].words[0], 0);
	world_free(w);
}

/* Static membership: a new file. */
static void test_fixed(void **state)
{
	struct world *w = world_create(true, true);
	struct node *n = &w->nodes[1];

	(void)state;
	fill(w);
	w->owners[0] = 1;
	w->since[0] = ++w->map.epoch;
	for (unsigned i = 0; i < NODES; i++)
		tell_map(&w->nodes[i]);
	assert_int_equal(w->nodes[0].words[0], 0);
	for (unsigned i = 0; i < 5; i++) {
		step(n);
		if (n->job_runs)
			job_end(n);
	}
	assert_int_equal(shard_word_state(n->words[0]), SHARD_INCOMING);
	w->now += BOUND_NS + BOUND_NS / 8 - 1;
	step(n);
	assert_int_equal(shard_word_state(n->words[0]), SHARD_INCOMING);
	w->now++;
	step(n);
	assert_int_equal(n->words[0], shard_word_make(SHARD_OPEN, w->since[0]));
	w->current[0] = 0;
	go(w, true);
	check_rest(w);
	world_free(w);
}

static void test_wrong_map(void **state)
{
	struct world *w = world_create(false, false);
	struct handover_write write = {.if_epoch = 9};

	(void)state;
	fill(w);
	w->map.shards = 128;
	assert_int_equal(handover_map(w->nodes[0].h, &w->map, w->now), -EINVAL);
	assert_non_null(strstr(err_text(), "128 shards"));
	w->map.shards = SHARDS;
	w->members[0].number = 9;
	assert_int_equal(handover_map(w->nodes[0].h, &w->map, w->now), -EINVAL);
	w->members[0].number = 1;
	/* an older one changes nothing */
	w->map.epoch = 3;
	w->owners[0] = 1;
	assert_int_equal(handover_map(w->nodes[0].h, &w->map, w->now), 0);
	assert_int_equal(shard_word_state(w->nodes[0].words[0]), SHARD_OPEN);
	assert_int_equal(handover_apply(&write, &w->map), -EINVAL);
	world_free(w);
}

/* ---- by chance ---- */

static void chance_write(struct world *w)
{
	struct request *r = &w->requests[below(w, REQUESTS)];

	if (!r->sent)
		return;
	switch (below(w, 4)) {
	case 0: /* its answer will not come; it may */
		answer(w, r, HANDOVER_UNKNOWN);
		break;
	case 1: /* done, and nobody is told */
		if (arrive(w, r))
			answer(w, r, HANDOVER_UNKNOWN);
		else
			answer(w, r, HANDOVER_REFUSED);
		forget(r);
		break;
	default:
		serve(w, r);
	}
}

static void chance_fault(struct world *w)
{
	struct node *n = &w->nodes[below(w, NODES)];

	switch (below(w, 6)) {
	case 0: /* it ends and begins again */
		start(n, true);
		n->map_epoch = 0;
		break;
	case 1: /* without its memory: its shards are empty then */
		start(n, false);
		n->map_epoch = 0;
		for (uint32_t shard = 0; shard < SHARDS; shard++)
			if (w->owners[shard] == n->place) {
				w->current[shard] = 0;
				w->lost[shard] = true;
			}
		break;
	case 2:
		memset(n->words, 0, sizeof(n->words));
		for (unsigned i = 0; i < NODES; i++)
			if (w->nodes[i].mover.attempt.to == n->place + 1)
				w->nodes[i].mover.connected = false;
		n->mover.connected = false;
		handover_fence(n->h);
		n->map_epoch = 0;
		break;
	case 3: /* a move is called off */
		handover_withdraw(&w->map, (uint32_t)below(w, SHARDS));
		w->map.epoch++;
		break;
	default: /* the connection of a mover */
		n->mover.connected = false;
		handover_lost(n->h, n->mover.attempt.number);
	}
}

static void chance(struct world *w)
{
	struct node *n = &w->nodes[below(w, NODES)];
	uint32_t shard = (uint32_t)below(w, SHARDS);

	w->now += below(w, 50 * MS);
	switch (below(w, 12)) {
	case 0:
		if (n->map_epoch != w->map.epoch)
			tell_map(n);
		break;
	case 1:
		if (n->job_runs)
			job_end(n);
		break;
	case 2:
	case 3:
		if (n->mover.runs)
			mover_step(n);
		break;
	case 4:
		if (n->asked_count)
			answer_ask(n);
		break;
	case 5:
		chance_write(w);
		break;
	case 6:
	case 7:
		client_writes(w, &w->nodes[below(w, NODES)], shard);
		break;
	case 8:
		if (below(w, 8) == 0)
			plan_moves(w, (uint16_t)n->place,
				   (uint16_t)((n->place + 1 + below(w, NODES - 1)) % NODES),
				   (uint32_t)below(w, 12));
		break;
	case 9:
		if (below(w, 60) == 0)
			chance_fault(w);
		break;
	default:
		step(n);
	}
}

static void test_chances(void **state)
{
	unsigned switches = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world *w = world_create(seed % 4 == 0, false);

		w->random = seed;
		fill(w);
		for (unsigned i = 0; i < 12000; i++)
			chance(w);
		go(w, true);
		check_rest(w);
		switches += w->switches;
		world_free(w);
	}
	assert_true(switches > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_connection_lost),
		cmocka_unit_test(test_target_full),
		cmocka_unit_test(test_late_switch),
		cmocka_unit_test(test_lost_answer),
		cmocka_unit_test(test_target_restarts),
		cmocka_unit_test(test_source_restarts),
		cmocka_unit_test(test_withdrawn),
		cmocka_unit_test(test_target_silent),
		cmocka_unit_test(test_asked),
		cmocka_unit_test(test_questioned),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_fence_walk),
		cmocka_unit_test(test_take),
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_wrong_map),
		cmocka_unit_test(test_chances),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
