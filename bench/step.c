/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * step.c - one step of a round: the operations of a mix, each timed and counted
 *
 * On the workers. The clock is read once per operation: where one ends the next begins. So a
 * latency includes choosing the item and making its key, some nanoseconds, for Tarn as for the
 * ceilings. The operations are here and not in a file of their own so that the compiler can put
 * them into the loop. Next: batch.c, run.c.
 */
#include <errno.h>

#include "bench.h"

/* One operation in so many is wrapped into two looks at the session's own counters, which are not
 * timed. A prime, so that it does not beat with anything. */
#define SAMPLE_EVERY 61u
/* Where an operation takes long there are few of them, and a sample costs nothing beside it. */
#define SAMPLE_SLOW_NS    10000u
#define SAMPLE_SLOW_EVERY 3u
/* Between two looks at the clock of a worker that no line of a trace belongs to. */
#define REPLAY_IDLE_NS 1000000u

/* ---- operations ------------------------------------------------------------------------------ */

struct step {
	struct worker *worker;
	struct tally *tallies;
	const struct workload_mix *mix;
	uint64_t
		now_ns; /* end of the last operation; with --rate, when this one should have begun */
	struct rate rate;
	uint64_t paused_ns;
	uint32_t countdown; /* to the next sample */
	struct tarn_session_stats stats;
};

int step_failed(struct worker *worker, const char *what, int code)
{
	const char *remedy = "";

	if (code == -TARN_EPOOLFULL)
		remedy =
			". Mind that what is written over or deleted takes room for about a second "
			"more: a benchmark needs a pool for all the writes of a second";
	return bench_fail(worker->bench, code, "%s: %s (%s)%s", what, tarn_last_error_text(),
			  tarn_error_name(code), remedy);
}

/* Not timed: the pause is taken off the step's elapsed time. */
static void sample_begin(struct step *step)
{
	step->stats.size = sizeof(step->stats);
	(void)tarn_session_get_stats(step->worker->session, &step->stats);
}

static void sample_end(struct step *step, struct tally *tally)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	uint64_t from = step->now_ns, typical_ns;

	(void)tarn_session_get_stats(step->worker->session, &stats);
	tally->sampled++;
	tally->round_trips += stats.round_trips - step->stats.round_trips;
	tally->posts += stats.posts - step->stats.posts;
	tally->requests += stats.requests - step->stats.requests;
	tally->cache_hits += stats.cache_hits - step->stats.cache_hits;
	/* Latencies of an open loop have the waiting in them. */
	typical_ns = step->rate.interval_ns > 0 ? (uint64_t)step->rate.interval_ns
						: hist_mean(&tally->hist);
	step->countdown = typical_ns < SAMPLE_SLOW_NS ? SAMPLE_EVERY : SAMPLE_SLOW_EVERY;
	step->now_ns = clock_now_ns();
	step->paused_ns += step->now_ns - from;
}

/* Counts an operation that has just ended. */
static inline void step_count(struct step *step, enum workload_op op)
{
	struct tally *tally = &step->tallies[op];
	uint64_t now = clock_now_ns();

	hist_add(&tally->hist, now - step->now_ns);
	step->now_ns = now;
	tally->count++;
}

static inline int do_get(struct worker *worker, uint64_t id)
{
	struct tarn_item item = TARN_ITEM_INIT;
	int ret = tarn_get(worker->session, worker->key_words, worker->workload->key_size,
			   worker->buffer, worker->capacity, &item);

	if (__builtin_expect(ret < 0, 0)) {
		if (ret != -TARN_ENOTFOUND)
			return step_failed(worker, "get", ret);
		worker->misses++;
		return 0;
	}
	if (worker->verify && (item.value_bytes != workload_value_bytes(worker->workload, id) ||
			       !workload_verify(worker->workload, id, worker->buffer)))
		return bench_fail(worker->bench, -TARN_ECORRUPT, "get: a key has a wrong value");
	if (worker->workload->chain)
		workload_chain(&worker->picker, worker->buffer[0]);
	return 0;
}

/* value: the old one, or the worker's. */
static inline int do_put(struct worker *worker, uint64_t id, uint8_t *value)
{
	const struct workload *workload = worker->workload;
	int ret;

	workload_value(workload, id, ++worker->writes, value);
	ret = tarn_put(worker->session, worker->key_words, workload->key_size, value,
		       workload_value_bytes(workload, id), NULL, NULL);
	return __builtin_expect(ret < 0, 0) ? step_failed(worker, "put", ret) : 0;
}

static inline int do_delete(struct worker *worker)
{
	int ret = tarn_delete(worker->session, worker->key_words, worker->workload->key_size);

	if (ret == -TARN_ENOTFOUND) {
		worker->misses++;
		return 0;
	}
	return __builtin_expect(ret < 0, 0) ? step_failed(worker, "delete", ret) : 0;
}

static inline int do_exists(struct worker *worker)
{
	int ret = tarn_exists(worker->session, worker->key_words, worker->workload->key_size, NULL);

	if (ret == -TARN_ENOTFOUND) {
		worker->misses++;
		return 0;
	}
	return __builtin_expect(ret < 0, 0) ? step_failed(worker, "exists", ret) : 0;
}

static inline int do_add(struct worker *worker)
{
	int ret = tarn_add(worker->session, worker->key_words, worker->workload->key_size, 1, NULL);

	return __builtin_expect(ret < 0, 0) ? step_failed(worker, "add", ret) : 0;
}

/* Not atomic: as who has no better operation does it. What is written is what was read, changed. */
static int do_rmw(struct worker *worker, uint64_t id)
{
	int ret = do_get(worker, id);

	return ret < 0 || worker->misses ? ret : do_put(worker, id, worker->buffer);
}

static inline int do_one(struct worker *worker, enum workload_op op, uint64_t id)
{
	if (__builtin_expect(worker->line != NULL, 0))
		return replay_do(worker, worker->line);
	switch (op) {
	case WORKLOAD_GET:
		return do_get(worker, id);
	case WORKLOAD_PUT:
	case WORKLOAD_INSERT:
		return do_put(worker, id, worker->value);
	case WORKLOAD_DELETE:
		return do_delete(worker);
	case WORKLOAD_ADD:
		return do_add(worker);
	case WORKLOAD_EXISTS:
		return do_exists(worker);
	case WORKLOAD_SCAN:
		return scans_do(worker);
	case WORKLOAD_RMW:
		return do_rmw(worker, id);
	case WORKLOAD_OPS:
		break;
	}
	return -EINVAL;
}

static int do_timed(struct step *step, enum workload_op op, uint64_t id)
{
	struct tally *tally = &step->tallies[op];
	bool sample = --step->countdown == 0;
	int ret;

	if (__builtin_expect(sample, 0))
		sample_begin(step);
	if (__builtin_expect(step->rate.interval_ns > 0, 0))
		step->now_ns = rate_wait(&step->rate);
	ret = do_one(step->worker, op, id);
	if (__builtin_expect(ret < 0, 0))
		return ret;
	step_count(step, op);
	tally->misses += step->worker->misses;
	step->worker->misses = 0;
	if (__builtin_expect(sample, 0))
		sample_end(step, tally);
	return 0;
}

/* As many operations at a time as --depth says; what is timed is all of them. */
static int do_batch(struct step *step, enum workload_op op)
{
	struct tally *tally = &step->tallies[op];
	bool sample = --step->countdown == 0;
	int ret;

	if (__builtin_expect(sample, 0))
		sample_begin(step);
	if (step->rate.interval_ns > 0)
		step->now_ns = rate_wait(&step->rate);
	ret = batch_do(step->worker, op);
	if (ret < 0)
		return ret;
	step_count(step, op);
	tally->count += step->worker->bench->arguments->depth - 1;
	tally->misses += step->worker->misses;
	step->worker->misses = 0;
	if (__builtin_expect(sample, 0)) {
		sample_end(step, tally);
		tally->sampled += step->worker->bench->arguments->depth - 1;
	}
	return 0;
}

/* An item that no other worker deletes or inserts: those with index % nworkers == worker's. */
static uint64_t own_index(const struct worker *worker, uint64_t index)
{
	uint64_t own = index - index % worker->nworkers + worker->index;

	return own < worker->workload->keys ? own : worker->index % worker->workload->keys;
}

/* The pair of an insert or a delete: what the first one changes the second one takes back, so the
 * pool stays as it is. */
static int do_pair(struct step *step, enum workload_op op)
{
	struct worker *worker = step->worker;
	enum workload_op back = op == WORKLOAD_DELETE ? WORKLOAD_INSERT : WORKLOAD_DELETE;
	uint64_t index = own_index(worker, workload_pick(&worker->picker)), id;
	int ret;

	id = workload_id(worker->workload, op == WORKLOAD_DELETE ? WORKLOAD_LOADED : WORKLOAD_FRESH,
			 index);
	workload_key(id, (uint8_t *)worker->key_words);
	ret = do_timed(step, op, id);
	return ret < 0 ? ret : do_timed(step, back, id);
}

/* An insert that stays until the step ends. */
static int do_grow(struct step *step)
{
	uint64_t id;
	int ret = grow_next(step->worker, &id);

	if (ret == 0) {
		workload_key(id, (uint8_t *)step->worker->key_words);
		ret = do_timed(step, WORKLOAD_INSERT, id);
	}
	if (ret == 0)
		grow_done(step->worker);
	return ret;
}

static inline int do_single(struct step *step, enum workload_op op)
{
	struct worker *worker = step->worker;
	enum workload_space space = op == WORKLOAD_ADD ? WORKLOAD_COUNTER : WORKLOAD_LOADED;
	uint64_t index = workload_pick(&worker->picker), id;

	if (__builtin_expect(worker->workload->latest, 0) && space == WORKLOAD_LOADED)
		index = grow_latest(worker, index);
	id = workload_id(worker->workload, space, index);
	workload_key(id, (uint8_t *)worker->key_words);
	return do_timed(step, op, id);
}

static inline enum workload_op mix_pick(const struct workload_mix *mix, uint64_t *random)
{
	uint32_t ticket;
	int op = 0;

	if (mix->only >= 0)
		return (enum workload_op)mix->only;
	ticket = (uint32_t)workload_below(workload_random(random), mix->total);
	while (ticket >= mix->weights[op])
		ticket -= mix->weights[op++];
	return (enum workload_op)op;
}

/* What was since the last operation ended is not timed, and part of no rate. */
static void step_paused(struct step *step, uint64_t from_ns)
{
	step->now_ns = clock_now_ns();
	step->paused_ns += step->now_ns - from_ns;
	step->rate.start_ns += step->now_ns - from_ns;
}

static void step_pause(struct step *step, uint64_t pause_ns)
{
	uint64_t from = step->now_ns;

	clock_sleep_ns(pause_ns);
	step_paused(step, from);
}

/* The next operation of a trace. */
static int do_replay(struct step *step)
{
	struct worker *worker = step->worker;
	int ret = 1;

	if (replay_is_empty(worker)) {
		uint64_t from = clock_now_ns();

		ret = replay_fill(worker);
		step_paused(step, from);
	}
	if (ret == 0)
		step_pause(step, REPLAY_IDLE_NS);
	if (ret <= 0)
		return ret;
	worker->line = replay_next(worker);
	ret = do_timed(step, worker->line->op, 0);
	worker->line = NULL;
	return ret;
}

static inline bool step_goes_on(const struct step *step, uint64_t until_ns)
{
	if (__builtin_expect(step->rate.interval_ns > 0, 0) && rate_due_ns(&step->rate) >= until_ns)
		return false;
	return step->now_ns < until_ns;
}

/* Nanoseconds that the operations of the step had, for rates. */
static uint64_t step_elapsed(const struct step *step, uint64_t start_ns, uint64_t until_ns)
{
	/* With --rate waiting for the next one to be due is part of it. */
	if (step->rate.interval_ns > 0)
		return (step->now_ns > until_ns ? step->now_ns : until_ns) - step->rate.start_ns;
	return step->now_ns - start_ns - step->paused_ns;
}

/* The next operation of a mix. */
static inline int do_drawn(struct step *step)
{
	struct worker *worker = step->worker;
	enum workload_op op = mix_pick(step->mix, &worker->picker.random);

	if (worker->batch)
		return do_batch(step, op);
	if (op == WORKLOAD_INSERT || op == WORKLOAD_DELETE)
		return step->mix->grows ? do_grow(step) : do_pair(step, op);
	return do_single(step, op);
}

int step_run(struct worker *worker, const struct workload_mix *mix, uint64_t until_ns,
	     struct tally *tallies, struct pace *pace)
{
	struct step step = {.worker = worker,
			    .tallies = tallies,
			    .mix = mix,
			    .countdown = 1 + worker->index % SAMPLE_EVERY};
	uint64_t pause_ns = (uint64_t)(worker->bench->arguments->pause * 1e9);
	uint64_t start = clock_now_ns(), elapsed, before[WORKLOAD_OPS];
	int ret = 0;

	for (int op = 0; op < WORKLOAD_OPS; op++)
		before[op] = tallies[op].count;
	step.now_ns = start;
	step.rate = rate_begin(worker, start);
	while (ret == 0 && step_goes_on(&step, until_ns)) {
		ret = mix->replays ? do_replay(&step) : do_drawn(&step);
		if (__builtin_expect(pause_ns > 0, 0))
			step_pause(&step, pause_ns);
	}
	elapsed = step_elapsed(&step, start, until_ns);
	if (step.rate.interval_ns > 0)
		rate_end(&step.rate, until_ns, step.now_ns, pace);
	for (int op = 0; op < WORKLOAD_OPS; op++) {
		if (tallies[op].count != before[op])
			tallies[op].elapsed_ns += elapsed;
	}
	return ret;
}

/*
 * Every key in turn: random picks alone would leave a third of them out after as many gets as there
 * are keys, and what is called cached would be measured partly cold.
 */
int step_learn(struct worker *worker)
{
	for (uint64_t i = 0; i < worker->workload->keys && !bench_failed(worker->bench); i++) {
		uint64_t id = workload_id(worker->workload, WORKLOAD_LOADED, i);
		int ret;

		workload_key(id, (uint8_t *)worker->key_words);
		ret = do_get(worker, id);
		if (ret < 0)
			return ret;
	}
	worker->misses = 0;
	return 0;
}
