/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync.c - what locks, queues, barriers and epoch counters share: the first word, which says what there is
 *
 * Uses the public calls of tarn/region.h alone, as all of client/lock.c, queue*.c, barrier.c and epoch.c do; runs on
 * the application's thread. Next: sync-call.c for waiting and waking, docs/sync.md.
 */
#include "sync-internal.h"

#include <errno.h>
#include <string.h>

#include "err.h"

#define INIT_WORDS_MAX 24u

int sync_check_place(const struct tarn_region *region, uint64_t offset, uint64_t bytes)
{
	uint64_t room;

	if (!region)
		return err_set(-EINVAL, "region must not be NULL");
	room = tarn_region_bytes(region);
	if (offset % 8)
		return err_set(-EINVAL, "offset is %llu: it must be a multiple of 8",
			       (unsigned long long)offset);
	if (bytes > room || offset > room - bytes)
		return err_set(-EINVAL,
			       "%llu bytes at offset %llu are not inside the region of %llu bytes",
			       (unsigned long long)bytes, (unsigned long long)offset,
			       (unsigned long long)room);
	return 0;
}

int sync_check_lease(uint32_t lease_ms)
{
	if (lease_ms < TARN_SYNC_LEASE_MIN_MS || lease_ms > TARN_SYNC_LEASE_MAX_MS)
		return err_set(-EINVAL, "lease_ms is %u: must be %u to %u", lease_ms,
			       TARN_SYNC_LEASE_MIN_MS, TARN_SYNC_LEASE_MAX_MS);
	return 0;
}

static const char *kind_name(uint64_t config)
{
	static const char *const names[] = {
		[SYNC_LOCK] = "a lock",
		[SYNC_QUEUE] = "a queue",
		[SYNC_QUEUE_SINGLE] = "a queue of one producer",
		[SYNC_BARRIER] = "a barrier",
		[SYNC_EPOCH] = "an epoch counter",
	};
	uint64_t kind = config >> SYNC_PARAMETERS_BITS & 15;

	if (config >> 52 != SYNC_MAGIC || kind < SYNC_LOCK || kind > SYNC_EPOCH)
		return "something else";
	return names[kind];
}

int sync_init(struct tarn_region *region, uint64_t offset, size_t bytes, enum sync_kind kind,
	      uint64_t parameters)
{
	uint64_t config = SYNC_MAGIC << 52 | (uint64_t)kind << SYNC_PARAMETERS_BITS | parameters;
	uint64_t words[INIT_WORDS_MAX], before = 0, used = 0;
	int ret;

	/* What is not zero before the first word is was there before. */
	ret = tarn_region_read(region, offset + 8, words, bytes - 8);
	for (size_t i = 0; ret == 0 && i < bytes / 8 - 1; i++)
		used |= words[i];
	if (ret == 0 && used)
		ret = tarn_region_read(region, offset, &before, 8);
	if (ret < 0)
		return ret;
	if (used && !before)
		return err_set(-TARN_EEXISTS,
			       "there are other data at offset %llu: it must be memory of zeros",
			       (unsigned long long)offset);
	/* once more after what is ambiguous: it says the same if the first has worked */
	for (unsigned i = 0; i < SYNC_TRIES; i++) {
		ret = tarn_region_cas(region, offset, 0, config, &before);
		if (ret != -TARN_EAMBIGUOUS)
			break;
	}
	if (ret < 0 || before == 0 || before == config)
		return ret;
	return err_set(-TARN_EEXISTS, "at offset %llu is %s%s", (unsigned long long)offset,
		       kind_name(before),
		       before >> SYNC_PARAMETERS_BITS == config >> SYNC_PARAMETERS_BITS
			       ? " with other parameters"
			       : "");
}

int sync_open(struct tarn_region *region, uint64_t offset, enum sync_kind *ret_kind,
	      uint64_t *ret_parameters)
{
	uint64_t config;
	int ret = tarn_region_read(region, offset, &config, 8);

	if (ret < 0)
		return ret;
	if (config == 0)
		return err_set(-TARN_ENOTFOUND, "nothing was made at offset %llu: init it",
			       (unsigned long long)offset);
	if (config >> 52 != SYNC_MAGIC)
		return err_set(-TARN_ECORRUPT,
			       "at offset %llu is 0x%016llx: no lock, queue, barrier or counter",
			       (unsigned long long)offset, (unsigned long long)config);
	*ret_kind = config >> SYNC_PARAMETERS_BITS & 15;
	*ret_parameters = config & ((1ull << SYNC_PARAMETERS_BITS) - 1);
	return 0;
}

int sync_wrong_kind(enum sync_kind kind, const char *wanted)
{
	uint64_t config = SYNC_MAGIC << 52 | (uint64_t)kind << SYNC_PARAMETERS_BITS;

	return err_set(-TARN_ETYPE, "there is %s, not %s", kind_name(config), wanted);
}
