/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync.c - what locks, queues, barriers and epoch counters share: the first word, waiting and waking
 *
 * Uses the public calls of tarn/region.h alone, as all of client/lock.c, queue*.c, barrier.c and epoch.c do; runs on
 * the application's thread. Waiting: first some short pauses, part chance, that double; then the waiter says in a
 * word that it sleeps, tries once more, and sleeps until it is notified. Whoever changes what is waited for
 * reads that word afterwards: one of the two sees the other. A notification can still be missing (its sender was
 * killed in front of it), so nobody sleeps for longer than SLEEP_MS. Next: docs/sync.md.
 */
#include "sync-internal.h"

#include <errno.h>
#include <string.h>

#include "auth.h"
#include "clock.h"
#include "err.h"
#include "mutation.h"

#define PAUSE_FIRST_NS 4000u
#define PAUSE_LAST_NS  1000000u
#define SLEEP_MS       100u

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

/* ---- waiting and waking ---------------------------------------------------------------------- */

int sync_wait_begin(struct sync_wait *wait, uint32_t timeout_ms)
{
	if (timeout_ms > SYNC_TIMEOUT_MAX_MS)
		return err_set(-EINVAL, "timeout_ms is %u: must be 0 to %u", timeout_ms,
			       SYNC_TIMEOUT_MAX_MS);
	if (!*wait->random)
		*wait->random = auth_random() | 1;
	wait->end_ns = clock_now_ns() + timeout_ms * 1000000ull;
	wait->pause_ns = PAUSE_FIRST_NS;
	wait->due_ns = 0;
	wait->armed = false;
	return 0;
}

/* xorshift: waiters must only not go in step. */
static uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static int arm(struct sync_wait *wait)
{
	int ret = tarn_region_cas(wait->region, wait->sleeps_offset, 0, 1, NULL);

	/* not there: it is tried again, or the sleep is as long as without it */
	if (ret < 0 && ret != -TARN_EAMBIGUOUS)
		return ret;
	wait->armed = true;
	return 0;
}

static int sleep_until(struct sync_wait *wait, uint64_t now, uint64_t until)
{
	uint64_t ms = (until - now) / 1000000 + 1;
	int ret = tarn_region_wait(wait->region, wait->sequence,
				   ms < SLEEP_MS ? (uint32_t)ms : SLEEP_MS);

	wait->armed = false;
	/* no connection for so long: the next try waits for it, as long as calls of the session do */
	return ret < 0 && ret != -TARN_ESESSION && ret != -TARN_ETIMEOUT && ret != -TARN_EBUSY ? ret
											       : 0;
}

int sync_pause(struct sync_wait *wait)
{
	uint64_t now = clock_now_ns(), until = wait->end_ns, pause;

	if (now >= until)
		return err_set(-TARN_ETIMEOUT, "%s", wait->what);
	if (wait->due_ns && wait->due_ns < until)
		until = wait->due_ns > now ? wait->due_ns : now;
	if (wait->pause_ns > PAUSE_LAST_NS) {
		if (!wait->armed && !MUTATED(MUTATION_SYNC_ARM))
			return arm(wait);
		return sleep_until(wait, now, until);
	}
	pause = wait->pause_ns / 2 + next_random(wait->random) % (wait->pause_ns / 2);
	if (pause > until - now)
		pause = until - now;
	if (pause)
		clock_sleep_ns(pause);
	wait->pause_ns *= 2;
	return 0;
}

void sync_wake(struct tarn_region *region, uint64_t sleeps_offset, uint64_t sleeps)
{
	const uint64_t nobody = 0;

	if (!sleeps || MUTATED(MUTATION_SYNC_WAKE))
		return;
	/* those who sleep wake by themselves, too, a little later */
	if (tarn_region_write_notify(region, sleeps_offset, &nobody, 8) < 0)
		err_clear();
}
