/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * batch.c - --depth: gets and puts that go to the pool many at a time, by tarn_mget() and tarn_mput()
 *
 * On the workers. Items are picked one after the other, as without it; what is timed is the whole batch.
 * Next: step.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct batch {
	uint32_t depth, stride; /* stride: of values */
	uint64_t *ids;
	uint8_t *keys, *values;
	struct tarn_mget *gets;
	struct tarn_mput *puts;
};

void batch_free(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->ids);
	free(batch->keys);
	free(batch->values);
	free(batch->gets);
	free(batch->puts);
	free(batch);
}

static void batch_fill(struct batch *b, const struct workload *workload)
{
	for (uint32_t i = 0; i < b->depth; i++) {
		uint8_t *key = b->keys + (size_t)i * WORKLOAD_KEY_MAX;
		uint8_t *value = b->values + (size_t)i * b->stride;

		workload_key_prepare(key);
		memset(value, 'v', workload->value_size);
		b->gets[i] = (struct tarn_mget){.key = key,
						.key_bytes = workload->key_size,
						.buffer = value,
						.buffer_bytes = workload->value_size};
		b->puts[i] = (struct tarn_mput){.key = key,
						.key_bytes = workload->key_size,
						.value = value,
						.value_bytes = workload->value_size};
	}
}

int batch_create(struct worker *worker, uint32_t depth, struct batch **ret_batch)
{
	const struct workload *workload = worker->workload;
	struct batch *b = calloc(1, sizeof(*b));

	if (b) {
		b->depth = depth;
		/* 16 bytes more: a value's first two words are written whole */
		b->stride = (workload->value_size + 16u + 63u) & ~63u;
		b->ids = calloc(depth, sizeof(*b->ids));
		b->keys = calloc(depth, WORKLOAD_KEY_MAX);
		b->values = calloc(depth, b->stride);
		b->gets = calloc(depth, sizeof(*b->gets));
		b->puts = calloc(depth, sizeof(*b->puts));
	}
	if (!b || !b->ids || !b->keys || !b->values || !b->gets || !b->puts) {
		batch_free(b);
		return bench_fail(worker->bench, -ENOMEM, "no memory for batches of %u", depth);
	}
	batch_fill(b, workload);
	*ret_batch = b;
	return 0;
}

void batch_set(struct batch *b, uint32_t i, uint64_t id)
{
	b->ids[i] = id;
	workload_key(id, b->keys + (size_t)i * WORKLOAD_KEY_MAX);
}

static void pick(struct worker *worker)
{
	for (uint32_t i = 0; i < worker->batch->depth; i++)
		batch_set(worker->batch, i,
			  workload_id(worker->workload, WORKLOAD_LOADED,
				      workload_pick(&worker->picker)));
}

static int failed(struct worker *worker, const char *what, int code)
{
	return bench_fail(worker->bench, code, "%s: %s (%s)", what, tarn_strerror(code),
			  tarn_error_name(code));
}

int batch_get(struct worker *worker, struct batch *b, uint32_t count)
{
	int ret = tarn_mget(worker->session, b->gets, count);

	if (ret < 0)
		return failed(worker, "mget", ret);
	for (uint32_t i = 0; i < count; i++) {
		const struct tarn_mget *item = &b->gets[i];

		if (__builtin_expect(item->status == 0, 1)) {
			if (worker->verify &&
			    (item->item.value_bytes !=
				     workload_value_bytes(worker->workload, b->ids[i]) ||
			     !workload_verify(worker->workload, b->ids[i], item->buffer)))
				return bench_fail(worker->bench, -TARN_ECORRUPT,
						  "mget: a key has a wrong value");
		} else if (item->status == -TARN_ENOTFOUND) {
			worker->misses++;
		} else {
			return failed(worker, "mget", item->status);
		}
	}
	return 0;
}

static int put(struct worker *worker)
{
	struct batch *b = worker->batch;
	int ret;

	for (uint32_t i = 0; i < b->depth; i++) {
		workload_value(worker->workload, b->ids[i], ++worker->writes,
			       b->values + (size_t)i * b->stride);
		b->puts[i].value_bytes = workload_value_bytes(worker->workload, b->ids[i]);
	}
	ret = tarn_mput(worker->session, b->puts, b->depth);
	for (uint32_t i = 0; ret == 0 && i < b->depth; i++)
		ret = b->puts[i].status;
	return ret < 0 ? failed(worker, "mput", ret) : 0;
}

int batch_do(struct worker *worker, enum workload_op op)
{
	pick(worker);
	return op == WORKLOAD_GET ? batch_get(worker, worker->batch, worker->batch->depth)
				  : put(worker);
}

int batch_table(struct worker *worker)
{
	struct batch *b = worker->batch;
	const struct table *table = &worker->bench->table;
	const struct workload *workload = worker->workload;
	uint64_t hashes[BENCH_DEPTH_MAX];

	pick(worker);
	for (uint32_t i = 0; i < b->depth; i++) {
		hashes[i] = table_hash(table, b->gets[i].key, workload->key_size);
		table_prefetch_slot(table, hashes[i]);
	}
	for (uint32_t i = 0; i < b->depth; i++)
		table_prefetch_entry(table, hashes[i]);
	for (uint32_t i = 0; i < b->depth; i++)
		if (table_get_hashed(table, hashes[i], b->gets[i].key, workload->key_size,
				     b->gets[i].buffer, workload->value_size) !=
			    (int64_t)workload_value_bytes(workload, b->ids[i]) ||
		    (worker->verify && !workload_verify(workload, b->ids[i], b->gets[i].buffer)))
			return bench_fail(
				worker->bench, -TARN_ECORRUPT,
				"the private hash table lost a key or gave a wrong value");
	return 0;
}
