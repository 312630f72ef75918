/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ceiling.c - what this machine can do at best without any sharing: lookups in a private hash table
 *
 * Runs on the workers, in rounds between the mixes, with the same source of items, the same keys,
 * the same check of each value and the same reading of the clock per operation. table.h says what
 * kind of table it is. Next: raw.c, the transport's ceiling.
 */
#include "bench.h"

static int batches(struct worker *worker, uint64_t until_ns, struct tally *tally)
{
	uint64_t start = clock_now_ns(), before = start, now;

	do {
		int ret = batch_table(worker);

		if (ret < 0)
			return ret;
		now = clock_now_ns();
		hist_add(&tally->hist, now - before);
		before = now;
		tally->count += worker->bench->arguments->depth;
	} while (now < until_ns);
	tally->elapsed_ns += now - start;
	return 0;
}

int ceiling_table(struct worker *worker, uint64_t until_ns, struct tally *tally)
{
	const struct workload *workload = worker->workload;
	const struct table *table = &worker->bench->table;
	uint8_t *key = (uint8_t *)worker->key_words;
	uint64_t start = clock_now_ns(), before = start, now;

	if (worker->batch)
		return batches(worker, until_ns, tally);
	do {
		uint64_t id =
			workload_id(workload, WORKLOAD_LOADED, workload_pick(&worker->picker));
		int64_t size;

		workload_key(id, key);
		size = table_get(table, key, workload->key_size, worker->buffer, worker->capacity);
		if (__builtin_expect(size != (int64_t)workload_value_bytes(workload, id), 0))
			return bench_fail(worker->bench, -TARN_ECORRUPT,
					  "the private hash table lost a key");
		if (worker->verify && !workload_verify(workload, id, worker->buffer))
			return bench_fail(worker->bench, -TARN_ECORRUPT,
					  "the private hash table gave a wrong value");
		if (workload->chain)
			workload_chain(&worker->picker, worker->buffer[0]);
		now = clock_now_ns();
		hist_add(&tally->hist, now - before);
		before = now;
		tally->count++;
	} while (now < until_ns);
	tally->elapsed_ns += now - start;
	return 0;
}
