/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c - the workers: processes and threads, the rounds that they go through together, and the
 * operations
 *
 * The clock is read once per operation: where one ends the next begins. So a latency includes
 * choosing the item and making its key, some nanoseconds, for Tarn as for the ceilings. Next:
 * ceiling.c, report.c.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "err.h"

/* One operation in so many is wrapped into two looks at the session's own counters, which are not
 * timed. A prime, so that it does not beat with anything. */
#define SAMPLE_EVERY 61u

/* ---- all workers together -------------------------------------------------------------------- */

/* Waits for all workers, in whichever process. -ECANCELED once anyone has failed. */
static int barrier(struct bench *bench)
{
	struct shared *shared = bench->shared;
	unsigned int generation = atomic_load(&shared->generation), spins = 0;

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == shared->nworkers) {
		atomic_store(&shared->arrived, 0);
		atomic_fetch_add(&shared->generation, 1);
	}
	while (atomic_load(&shared->generation) == generation) {
		if (bench_failed(bench))
			return -ECANCELED;
		if (++spins < 100)
			sched_yield();
		else
			clock_sleep_ns(20000);
	}
	return bench_failed(bench) ? -ECANCELED : 0;
}

/* ---- operations ------------------------------------------------------------------------------ */

struct step {
	struct worker *worker;
	struct tally *tallies;
	const struct workload_mix *mix;
	uint64_t now_ns; /* end of the last operation */
	uint64_t paused_ns;
	uint32_t countdown; /* to the next sample */
	struct tarn_session_stats stats;
};

static int operation_failed(struct worker *worker, const char *what, int code)
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
	uint64_t from = step->now_ns;

	(void)tarn_session_get_stats(step->worker->session, &stats);
	tally->sampled++;
	tally->round_trips += stats.round_trips - step->stats.round_trips;
	tally->posts += stats.posts - step->stats.posts;
	tally->requests += stats.requests - step->stats.requests;
	tally->cache_hits += stats.cache_hits - step->stats.cache_hits;
	step->countdown = SAMPLE_EVERY;
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
			return operation_failed(worker, "get", ret);
		worker->misses++;
		return 0;
	}
	if (worker->verify && (item.value_bytes != worker->workload->value_size ||
			       !workload_verify(worker->workload, id, worker->buffer)))
		return bench_fail(worker->bench, -TARN_ECORRUPT, "get: a key has a wrong value");
	if (worker->workload->chain)
		workload_chain(&worker->picker, worker->buffer[0]);
	return 0;
}

static inline int do_put(struct worker *worker, uint64_t id)
{
	const struct workload *workload = worker->workload;
	int ret;

	workload_value(workload, id, ++worker->writes, worker->value);
	ret = tarn_put(worker->session, worker->key_words, workload->key_size, worker->value,
		       workload->value_size, NULL, NULL);
	return __builtin_expect(ret < 0, 0) ? operation_failed(worker, "put", ret) : 0;
}

static inline int do_delete(struct worker *worker)
{
	int ret = tarn_delete(worker->session, worker->key_words, worker->workload->key_size);

	if (ret == -TARN_ENOTFOUND) {
		worker->misses++;
		return 0;
	}
	return __builtin_expect(ret < 0, 0) ? operation_failed(worker, "delete", ret) : 0;
}

static inline int do_exists(struct worker *worker)
{
	int ret = tarn_exists(worker->session, worker->key_words, worker->workload->key_size, NULL);

	if (ret == -TARN_ENOTFOUND) {
		worker->misses++;
		return 0;
	}
	return __builtin_expect(ret < 0, 0) ? operation_failed(worker, "exists", ret) : 0;
}

static inline int do_add(struct worker *worker)
{
	int ret = tarn_add(worker->session, worker->key_words, worker->workload->key_size, 1, NULL);

	return __builtin_expect(ret < 0, 0) ? operation_failed(worker, "add", ret) : 0;
}

static inline int do_one(struct worker *worker, enum workload_op op, uint64_t id)
{
	switch (op) {
	case WORKLOAD_GET:
		return do_get(worker, id);
	case WORKLOAD_PUT:
	case WORKLOAD_INSERT:
		return do_put(worker, id);
	case WORKLOAD_DELETE:
		return do_delete(worker);
	case WORKLOAD_ADD:
		return do_add(worker);
	case WORKLOAD_EXISTS:
		return do_exists(worker);
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

static inline int do_single(struct step *step, enum workload_op op)
{
	struct worker *worker = step->worker;
	enum workload_space space = op == WORKLOAD_ADD ? WORKLOAD_COUNTER : WORKLOAD_LOADED;
	uint64_t id = workload_id(worker->workload, space, workload_pick(&worker->picker));

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

/* One mix until `until_ns`. */
static int step_run(struct worker *worker, const struct workload_mix *mix, uint64_t until_ns,
		    struct tally *tallies)
{
	struct step step = {.worker = worker,
			    .tallies = tallies,
			    .mix = mix,
			    .countdown = 1 + worker->index % SAMPLE_EVERY};
	uint64_t start = clock_now_ns(), elapsed, before[WORKLOAD_OPS];
	int ret = 0;

	for (int op = 0; op < WORKLOAD_OPS; op++)
		before[op] = tallies[op].count;
	step.now_ns = start;
	while (ret == 0 && step.now_ns < until_ns) {
		enum workload_op op = mix_pick(mix, &worker->picker.random);

		ret = op == WORKLOAD_INSERT || op == WORKLOAD_DELETE ? do_pair(&step, op)
								     : do_single(&step, op);
	}
	elapsed = step.now_ns - start - step.paused_ns;
	for (int op = 0; op < WORKLOAD_OPS; op++) {
		if (tallies[op].count != before[op])
			tallies[op].elapsed_ns += elapsed;
	}
	return ret;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Every step of a round for `seconds`, all workers at once. */
static int round_run(struct worker *worker, double seconds, struct tally *tallies)
{
	const struct arguments *arguments = worker->bench->arguments;
	uint64_t ns = (uint64_t)(seconds * 1e9);
	int ret = 0;

	if (arguments->ceiling_table) {
		ret = barrier(worker->bench);
		if (ret == 0)
			ret = ceiling_table(worker, clock_now_ns() + ns, &tallies[TALLY_TABLE]);
	}
	for (uint32_t i = 0; ret == 0 && i < arguments->nmixes; i++) {
		ret = barrier(worker->bench);
		if (ret == 0)
			ret = step_run(worker, &arguments->mixes[i], clock_now_ns() + ns, tallies);
	}
	if (ret == 0 && arguments->ceiling_raw) {
		ret = barrier(worker->bench);
		if (ret == 0)
			ret = ceiling_raw(worker, clock_now_ns() + ns, &tallies[TALLY_RAW]);
	}
	return ret;
}

/*
 * Lets the location cache learn every key. Random picks alone would leave a third of the keys out
 * after as many gets as there are keys, and what is called cached would be measured partly cold.
 */
static int learn_keys(struct worker *worker)
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

static int worker_rounds(struct worker *worker)
{
	const struct arguments *arguments = worker->bench->arguments;
	struct tally *scratch = calloc(TALLIES, sizeof(*scratch));
	int ret;

	if (!scratch)
		return bench_fail(worker->bench, -ENOMEM, "no memory for the warm-up");
	if (arguments->cache_bytes) {
		ret = learn_keys(worker);
		if (ret < 0)
			goto out;
	}
	/* The warm-up touches the pages of the pool's mapping: the first touch of each is a page
	 * fault. */
	ret = round_run(worker, arguments->warmup, scratch);
	for (uint32_t round = 0; ret == 0 && round < arguments->rounds; round++)
		ret = round_run(worker, arguments->duration / arguments->rounds,
				bench_tallies(worker->bench, round, worker->index));
out:
	free(scratch);
	return ret;
}

static int worker_prepare(struct worker *worker)
{
	const struct workload *workload = worker->workload;
	int ret;

	/* 16 bytes more: a value's first two words are written whole. */
	worker->capacity = workload->value_size;
	worker->value = calloc(1, workload->value_size + 16u);
	worker->buffer = calloc(1, workload->value_size + 16u);
	if (!worker->value || !worker->buffer)
		return bench_fail(worker->bench, -ENOMEM, "no memory for values");
	memset(worker->value, 'v', workload->value_size);
	workload_key_prepare((uint8_t *)worker->key_words);
	ret = workload_picker_init(workload, worker->index * 0x9e3779b9u + 1, &worker->picker);
	if (ret < 0)
		return bench_fail(worker->bench, ret, "%s", err_text());
	ret = bench_session_open(worker->bench, &worker->session);
	if (ret == 0 && worker->bench->arguments->ceiling_raw)
		ret = raw_create(worker, &worker->raw);
	return ret;
}

static void *worker_main(void *data)
{
	struct worker *worker = data;

	if (worker_prepare(worker) == 0)
		(void)worker_rounds(worker);
	raw_free(worker->raw);
	tarn_session_close(worker->session);
	workload_picker_free(&worker->picker);
	free(worker->value);
	free(worker->buffer);
	return NULL;
}

/* ---- threads and processes ------------------------------------------------------------------- */

static void run_threads(struct bench *bench, uint32_t process)
{
	uint32_t threads = bench->arguments->threads, started = 1;
	struct worker *workers = calloc(threads, sizeof(*workers));
	pthread_t *ids = calloc(threads, sizeof(*ids));

	if (!workers || !ids) {
		bench_fail(bench, -ENOMEM, "no memory for %u workers", threads);
		goto out;
	}
	for (uint32_t i = 0; i < threads; i++)
		workers[i] = (struct worker){.bench = bench,
					     .workload = &bench->arguments->workload,
					     .verify = bench->arguments->verify,
					     .index = process * threads + i,
					     .nworkers = bench->shared->nworkers};
	for (; started < threads; started++) {
		int error = pthread_create(&ids[started], NULL, worker_main, &workers[started]);

		if (error) {
			bench_fail(bench, -error, "cannot start thread %u: %s", started,
				   strerror(error));
			break;
		}
	}
	worker_main(&workers[0]);
	for (uint32_t i = 1; i < started; i++)
		pthread_join(ids[i], NULL);
out:
	free(workers);
	free(ids);
}

/* A child that dies must not leave the others waiting at the barrier. */
static void wait_for(struct bench *bench, uint32_t children)
{
	for (; children > 0; children--) {
		int status;

		if (wait(&status) < 0)
			return;
		if (WIFSIGNALED(status))
			bench_fail(bench, -ECHILD, "a worker process died of signal %d",
				   WTERMSIG(status));
		else if (WEXITSTATUS(status) != 0)
			bench_fail(bench, -ECHILD, "a worker process ended with code %d",
				   WEXITSTATUS(status));
	}
}

int run_workers(struct bench *bench)
{
	uint32_t processes = bench->arguments->processes, started = 0;

	if (processes == 1) {
		run_threads(bench, 0);
		return atomic_load(&bench->shared->failed);
	}
	for (; started < processes; started++) {
		pid_t pid = fork();

		if (pid == 0) {
			run_threads(bench, started);
			_exit(0);
		}
		if (pid < 0) {
			bench_fail(bench, -errno, "cannot start process %u: %s", started,
				   strerror(errno));
			break;
		}
	}
	wait_for(bench, started);
	return atomic_load(&bench->shared->failed);
}
