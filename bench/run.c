/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c - the workers: processes and threads, and the rounds that they go through together
 *
 * Next: step.c, what they do in a round; ceiling.c, raw.c, report.c.
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

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Every step of a round for `seconds`, all workers at once. */
static int round_run(struct worker *worker, double seconds, struct tally *tallies,
		     struct pace *paces)
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
			ret = step_run(worker, &arguments->mixes[i], clock_now_ns() + ns, tallies,
				       &paces[i]);
		if (ret == 0 && arguments->mixes[i].grows) {
			ret = barrier(worker->bench);
			if (ret == 0)
				ret = grow_take_back(worker);
		}
	}
	if (ret == 0 && arguments->ceiling_raw) {
		ret = barrier(worker->bench);
		if (ret == 0)
			ret = ceiling_raw(worker, clock_now_ns() + ns, &tallies[TALLY_RAW]);
	}
	for (unsigned int kind = 0; ret == 0 && kind < RAW_KINDS; kind++) {
		if (!(arguments->raw_kinds & 1u << kind))
			continue;
		ret = barrier(worker->bench);
		if (ret == 0)
			ret = raw_run(worker, (enum raw_kind)kind, clock_now_ns() + ns,
				      &tallies[TALLY_POSTS + kind]);
	}
	return ret;
}

static int worker_rounds(struct worker *worker)
{
	const struct arguments *arguments = worker->bench->arguments;
	struct tally *scratch = calloc(TALLIES, sizeof(*scratch));
	struct pace scratch_paces[BENCH_MIXES_MAX] = {0};
	int ret;

	if (!scratch)
		return bench_fail(worker->bench, -ENOMEM, "no memory for the warm-up");
	if (arguments->cache_bytes && arguments->nmixes && !arguments->trace) {
		ret = step_learn(worker);
		if (ret < 0)
			goto out;
	}
	/* The warm-up touches the pages of the pool's mapping: the first touch of each is a page
	 * fault. */
	ret = round_run(worker, arguments->warmup, scratch, scratch_paces);
	for (uint32_t round = 0; ret == 0 && round < arguments->rounds; round++)
		ret = round_run(worker, arguments->duration / arguments->rounds,
				bench_tallies(worker->bench, round, worker->index),
				worker->bench->shared->paces[worker->index]);
out:
	free(scratch);
	return ret;
}

static int worker_prepare(struct worker *worker)
{
	const struct workload *workload = worker->workload;
	int ret;

	/* 16 bytes more: a value's first two words are written whole. */
	worker->capacity = worker->bench->arguments->value_most;
	worker->value = calloc(1, worker->capacity + 16u);
	worker->buffer = calloc(1, worker->capacity + 16u);
	if (!worker->value || !worker->buffer)
		return bench_fail(worker->bench, -ENOMEM, "no memory for values");
	memset(worker->value, 'v', worker->capacity);
	workload_key_prepare((uint8_t *)worker->key_words);
	ret = workload_picker_init(workload, worker->index * 0x9e3779b9u + 1, &worker->picker);
	if (ret < 0)
		return bench_fail(worker->bench, ret, "%s", err_text());
	ret = bench_session_open(worker->bench, &worker->session);
	if (ret == 0 &&
	    (worker->bench->arguments->ceiling_raw || worker->bench->arguments->raw_kinds))
		ret = raw_create(worker, &worker->raw);
	if (ret == 0 && worker->bench->arguments->depth > 1)
		ret = batch_create(worker, worker->bench->arguments->depth, &worker->batch);
	if (ret == 0 && worker->bench->arguments->trace)
		ret = replay_create(worker, &worker->replay);
	for (uint32_t i = 0; ret == 0 && i < worker->bench->arguments->nmixes; i++) {
		if (worker->bench->arguments->mixes[i].weights[WORKLOAD_SCAN] && !worker->scans)
			ret = scans_create(worker, &worker->scans);
	}
	return ret;
}

static void *worker_main(void *data)
{
	struct worker *worker = data;

	if (worker_prepare(worker) == 0)
		(void)worker_rounds(worker);
	raw_free(worker->raw);
	batch_free(worker->batch);
	scans_free(worker->scans);
	replay_free(worker->replay);
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
