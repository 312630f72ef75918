/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan.c - the operation scan: some keys from a random place of the index, with their values
 *
 * The index is a hash and has no order of keys, so a scan begins anywhere. A place can only be had
 * from a walk (tarn_scan_position()): one over the whole pool, before anything is timed, notes up
 * to PLACES of them at equal distances. They stay good when the index grows. On the workers, each
 * with places of its own. Next: batch.c, which gets the values.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench.h"

#define PLACES 1024u

struct place {
	size_t bytes;
	uint8_t position[TARN_SCAN_POSITION_BYTES];
};

struct scans {
	uint32_t count; /* of places */
	struct place *places;
	struct batch *batch;
};

void scans_free(struct scans *scans)
{
	if (!scans)
		return;
	batch_free(scans->batch);
	free(scans->places);
	free(scans);
}

static int failed(struct worker *worker, int code)
{
	return bench_fail(worker->bench, code, "scan: %s (%s)", tarn_last_error_text(),
			  tarn_error_name(code));
}

/* The next of our values: 1 with its id, 0 at the end. Others' keys, and counters, do not count. */
static int next(struct worker *worker, struct tarn_scan *scan, uint64_t *ret_id)
{
	struct tarn_item item = TARN_ITEM_INIT;
	const void *key;
	size_t key_bytes;
	int ret;

	do
		ret = tarn_scan_next(scan, &key, &key_bytes, &item);
	while (ret > 0 && (item.kind != TARN_KIND_VALUE ||
			   !workload_key_parse(worker->workload, key, key_bytes, ret_id)));
	return ret < 0 ? failed(worker, ret) : ret;
}

/* A place before every `distance`-th key. */
static int walk(struct worker *worker, struct scans *scans, struct tarn_scan *scan)
{
	uint64_t distance = (worker->workload->keys + PLACES - 1) / PLACES, found = 0, id;
	int ret = 1;

	while (ret > 0 && scans->count < PLACES) {
		struct place *place = &scans->places[scans->count];

		ret = tarn_scan_position(scan, place->position, &place->bytes);
		if (ret < 0)
			return failed(worker, ret);
		ret = 1;
		for (found = 0; ret > 0 && found < distance;) {
			ret = next(worker, scan, &id);
			found += ret > 0;
		}
		/* nothing is behind the last one */
		scans->count += found > 0;
	}
	if (ret >= 0 && scans->count == 0)
		return bench_fail(worker->bench, -TARN_ENOTFOUND,
				  "scan: none of the keys is in the pool: run with --load first");
	return ret < 0 ? ret : 0;
}

int scans_create(struct worker *worker, struct scans **ret_scans)
{
	struct scans *scans = calloc(1, sizeof(*scans));
	struct tarn_scan *scan = NULL;
	int ret;

	if (scans)
		scans->places = calloc(PLACES, sizeof(*scans->places));
	if (!scans || !scans->places) {
		scans_free(scans);
		return bench_fail(worker->bench, -ENOMEM, "no memory for scans");
	}
	ret = tarn_scan_open(worker->session, NULL, 0, &scan);
	if (ret < 0)
		failed(worker, ret);
	else
		ret = walk(worker, scans, scan);
	tarn_scan_close(scan);
	if (ret == 0)
		ret = batch_create(worker, WORKLOAD_SCAN_KEYS, &scans->batch);
	if (ret < 0) {
		scans_free(scans);
		return ret;
	}
	*ret_scans = scans;
	return 0;
}

int scans_do(struct worker *worker)
{
	struct scans *scans = worker->scans;
	uint64_t *random = &worker->picker.random, id;
	const struct place *place =
		&scans->places[workload_below(workload_random(random), scans->count)];
	uint32_t wanted = 1 + (uint32_t)workload_below(workload_random(random), WORKLOAD_SCAN_KEYS);
	uint32_t count = 0;
	struct tarn_scan *scan;
	int ret = tarn_scan_open_at(worker->session, NULL, 0, place->position, place->bytes, &scan);

	if (ret < 0)
		return failed(worker, ret);
	ret = 1;
	while (count < wanted && (ret = next(worker, scan, &id)) > 0)
		batch_set(scans->batch, count++, id);
	tarn_scan_close(scan);
	if (ret < 0)
		return ret;
	ret = batch_get(worker, scans->batch, count);
	/* A scan is one operation, however many keys have gone meanwhile. */
	worker->misses = worker->misses || count == 0;
	return ret;
}
