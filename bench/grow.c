/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grow.c - keys that a step adds behind the loaded ones, and which keys are the latest
 *
 * On the workers. New items have indexes from `keys` on, dealt out to the workers like cards, so
 * that nobody waits for anybody: the n-th one of a worker is keys + n * nworkers + worker. A count
 * goes up when its item is in the pool, and only then may others pick it. It must not take a key
 * back while others read: run.c waits for all before. Next: step.c.
 */
#include <errno.h>

#include "bench.h"

static uint64_t grown_index(const struct worker *worker, uint64_t n, uint32_t whose)
{
	return worker->workload->keys + n * worker->nworkers + whose;
}

static uint64_t grown_count(const struct worker *worker, uint32_t whose)
{
	/* acquire, pairs with grow_done(): an item that is counted is in the pool */
	return atomic_load_explicit(&worker->bench->shared->grown[whose].count,
				    memory_order_acquire);
}

int grow_next(struct worker *worker, uint64_t *ret_id)
{
	const struct workload *workload = worker->workload;
	uint64_t index = grown_index(worker, grown_count(worker, worker->index), worker->index);

	if (index >> workload->space_shift)
		return bench_fail(worker->bench, -EINVAL,
				  "insert: keys of %u bytes are used up; give a larger --key-size",
				  workload->key_size);
	*ret_id = workload_id(workload, WORKLOAD_LOADED, index);
	return 0;
}

void grow_done(struct worker *worker)
{
	/* the only writer of its count */
	atomic_store_explicit(&worker->bench->shared->grown[worker->index].count,
			      grown_count(worker, worker->index) + 1, memory_order_release);
}

uint64_t grow_latest(const struct worker *worker, uint64_t rank)
{
	uint32_t whose = (uint32_t)(rank % worker->nworkers);
	uint64_t n = rank / worker->nworkers, count = grown_count(worker, whose);

	if (n < count)
		return grown_index(worker, count - 1 - n, whose);
	/* Older than all of its worker's: one of the loaded, the last of which is the youngest. */
	return worker->workload->keys - 1 - (rank - count * worker->nworkers);
}

int grow_take_back(struct worker *worker)
{
	const struct workload *workload = worker->workload;
	uint64_t count = grown_count(worker, worker->index);

	for (uint64_t n = 0; n < count; n++) {
		uint64_t index = grown_index(worker, n, worker->index);
		int ret;

		workload_key(workload_id(workload, WORKLOAD_LOADED, index),
			     (uint8_t *)worker->key_words);
		ret = tarn_delete(worker->session, worker->key_words, workload->key_size);
		if (ret < 0 && ret != -TARN_ENOTFOUND)
			return bench_fail(worker->bench, ret, "deleting what was inserted: %s",
					  tarn_last_error_text());
	}
	/* relaxed: the barrier before the next step orders it */
	atomic_store_explicit(&worker->bench->shared->grown[worker->index].count, 0,
			      memory_order_relaxed);
	return 0;
}
