/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * barrier.c - a barrier of n parties in a region
 *
 * Each party has a word of its own: in how many rounds it has arrived. A round is over when all words have come so
 * far. So a party that was killed and comes back knows where it stands, and no one counts twice. Runs on the
 * application's thread. Next: docs/sync.md.
 */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "sync-internal.h"

struct barrier_memory {
	uint64_t config; /* parameters: how many parties */
	uint64_t sleeps;
	uint64_t reserved[6];
	uint64_t arrived[];
};
_Static_assert(sizeof(struct barrier_memory) == 64, "layout of a barrier");

struct tarn_barrier {
	struct tarn_region *region;
	uint64_t offset;
	uint32_t party, parties;
	uint64_t round; /* this party has arrived in so many rounds */
	bool waiting;   /* for the last of them to be over */
	uint64_t sequence, random;
	struct barrier_memory *memory; /* as last read */
};

static uint64_t bytes_of(uint64_t parties)
{
	return sizeof(struct barrier_memory) + parties * 8;
}

uint64_t tarn_barrier_bytes(uint32_t parties)
{
	return parties && parties <= TARN_BARRIER_PARTIES_MAX ? bytes_of(parties) : 0;
}

int tarn_barrier_init(struct tarn_region *region, uint64_t offset, uint32_t parties)
{
	int ret;

	if (!parties || parties > TARN_BARRIER_PARTIES_MAX)
		return err_set(-EINVAL, "parties is %u: must be 1 to %u", parties,
			       TARN_BARRIER_PARTIES_MAX);
	ret = sync_check_place(region, offset, bytes_of(parties));
	if (ret < 0)
		return ret;
	return sync_init(region, offset, sizeof(struct barrier_memory), SYNC_BARRIER, parties);
}

/*
 * Reads all words. 1: all have arrived in this party's round. 0: not yet. While a party has not gone on, no other
 * one can be further than a round before or behind it.
 */
static int all_arrived(struct tarn_barrier *b)
{
	int ret = tarn_region_read(b->region, b->offset, b->memory, bytes_of(b->parties)), all = 1;

	if (ret < 0)
		return ret;
	for (uint32_t i = 0; i < b->parties; i++) {
		uint64_t arrived = b->memory->arrived[i];

		if (arrived + 1 < b->round || arrived > b->round + 1 || arrived > SYNC_WORD_MAX)
			return err_set(-TARN_ECORRUPT,
				       "the barrier's memory is damaged: party %u is in round "
				       "%llu, party %u in "
				       "%llu",
				       b->party, (unsigned long long)b->round, i,
				       (unsigned long long)arrived);
		if (arrived < b->round && !(MUTATED(MUTATION_BARRIER_ALL) && i == 0))
			all = 0;
	}
	return all;
}

/* What a party of this number has done before, perhaps in another process. */
static int resume(struct tarn_barrier *b)
{
	uint64_t own;
	int ret = tarn_region_read(b->region, b->offset + bytes_of(b->party), &own, 8);

	if (ret < 0)
		return ret;
	b->round = own;
	ret = all_arrived(b);
	b->waiting = ret == 0;
	return ret < 0 ? ret : 0;
}

int tarn_barrier_open(struct tarn_region *region, uint64_t offset, uint32_t party,
		      struct tarn_barrier **ret_barrier)
{
	struct tarn_barrier known = {.region = region, .offset = offset, .party = party}, *b;
	uint64_t parties;
	enum sync_kind kind;
	int ret = sync_check_place(region, offset, sizeof(struct barrier_memory));

	if (ret == 0 && !ret_barrier)
		ret = err_set(-EINVAL, "ret_barrier must not be NULL");
	if (ret == 0)
		ret = sync_open(region, offset, &kind, &parties);
	if (ret < 0)
		return ret;
	if (kind != SYNC_BARRIER)
		return sync_wrong_kind(kind, "a barrier");
	if (!parties || parties > TARN_BARRIER_PARTIES_MAX)
		return err_set(-TARN_ECORRUPT, "the barrier has %llu parties: damaged",
			       (unsigned long long)parties);
	if (party >= parties)
		return err_set(-EINVAL, "party is %u: must be 0 to %llu", party,
			       (unsigned long long)parties - 1);
	ret = sync_check_place(region, offset, bytes_of(parties));
	if (ret < 0)
		return ret;
	known.parties = (uint32_t)parties;
	known.memory = malloc(bytes_of(parties));
	b = malloc(sizeof(*b));
	ret = b && known.memory ? resume(&known) : err_set(-ENOMEM, "no memory for a barrier");
	if (ret < 0) {
		free(known.memory);
		free(b);
		return ret;
	}
	*b = known;
	*ret_barrier = b;
	return 0;
}

void tarn_barrier_close(struct tarn_barrier *barrier)
{
	if (barrier)
		free(barrier->memory);
	free(barrier);
}

/* Counts this party on. By CAS, so that it counts once, also if the connection is lost meanwhile. */
static int arrive(struct tarn_barrier *b)
{
	uint64_t before = 0;
	int ret = -TARN_EAMBIGUOUS;

	for (unsigned i = 0; ret == -TARN_EAMBIGUOUS && i < SYNC_TRIES; i++)
		ret = tarn_region_cas(b->region, b->offset + bytes_of(b->party), b->round,
				      b->round + 1, &before);
	if (ret < 0)
		return ret;
	/* round + 1: what was ambiguous, now or in an earlier call */
	if (before != b->round && before != b->round + 1)
		return err_set(-TARN_ECORRUPT,
			       "party %u was in round %llu and is in %llu: damaged, or used by two",
			       b->party, (unsigned long long)b->round, (unsigned long long)before);
	b->round++;
	b->waiting = true;
	ret = all_arrived(b);
	if (ret == 1)
		sync_wake(b->region, b->offset + SYNC_SLEEPS, b->memory->sleeps);
	return ret < 0 ? ret : 0;
}

int tarn_barrier_wait(struct tarn_barrier *barrier, uint32_t timeout_ms, uint64_t *ret_round)
{
	struct sync_wait wait = {.what = "not all parties have come to the barrier"};
	int ret = 0;

	if (!barrier)
		return err_set(-EINVAL, "barrier must not be NULL");
	wait.region = barrier->region;
	wait.sleeps_offset = barrier->offset + SYNC_SLEEPS;
	wait.sequence = &barrier->sequence;
	wait.random = &barrier->random;
	ret = sync_wait_begin(&wait, timeout_ms);
	if (ret == 0 && !barrier->waiting)
		ret = arrive(barrier);
	while (ret == 0) {
		ret = all_arrived(barrier);
		if (ret == 0)
			ret = sync_pause(&wait);
	}
	if (ret < 0)
		return ret;
	barrier->waiting = false;
	if (ret_round)
		*ret_round = barrier->round;
	return 0;
}
