/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * barrier.c - a barrier of n parties in a region
 *
 * Each party has a word of its own: in how many rounds it has arrived. A round is over when all words have come so
 * far. So a party that was killed and comes back knows where it stands, and no one counts twice. A call is handlers
 * (sync-call.c). Runs on the thread of the session. Next: docs/sync.md.
 */
#include <errno.h>
#include <stdlib.h>

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
	struct sync_call call; /* first */
	uint64_t offset;
	uint32_t party, parties;
	uint64_t round;                /* this party has arrived in so many rounds */
	bool waiting;                  /* for the last of them to be over */
	struct barrier_memory *memory; /* as last read */
	/* the call under way */
	unsigned tries;
	uint64_t own; /* the party's word, as it was opened */
	uint64_t *ret_round;
	struct tarn_barrier **ret_barrier;
};

static struct tarn_barrier *barrier_of(struct sync_call *call)
{
	return (struct tarn_barrier *)call;
}

static void barrier_free(struct sync_call *call)
{
	free(barrier_of(call)->memory);
	free(barrier_of(call));
}

static uint64_t bytes_of(uint64_t parties)
{
	return sizeof(struct barrier_memory) + parties * 8;
}

uint64_t tarn_barrier_bytes(uint32_t parties)
{
	return parties && parties <= TARN_BARRIER_PARTIES_MAX ? bytes_of(parties) : 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

int barrier_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		       uint32_t parties)
{
	int ret;

	if (!parties || parties > TARN_BARRIER_PARTIES_MAX)
		return err_set(-EINVAL, "parties is %u: must be 1 to %u", parties,
			       TARN_BARRIER_PARTIES_MAX);
	ret = sync_check_place(region, offset, bytes_of(parties));
	if (ret == 0)
		sync_init_begin(init, region, offset, sizeof(struct barrier_memory), SYNC_BARRIER,
				parties);
	return ret;
}

int tarn_barrier_init(struct tarn_region *region, uint64_t offset, uint32_t parties)
{
	struct sync_init init;
	int ret = barrier_init_begin(&init, region, offset, parties);

	return ret < 0 ? ret : sync_run(&init.call);
}

/* ---- opening --------------------------------------------------------------------------------- */

/*
 * What was read with `status`. 1: all have arrived in this party's round. 0: not yet. While a party has not gone on, no
 * other one can be further than a round before or behind it.
 */
static int all_arrived(const struct tarn_barrier *b, int status)
{
	int all = 1;

	if (status < 0)
		return status;
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

static enum sync_want look(struct sync_call *call, sync_handler *seen)
{
	struct tarn_barrier *b = barrier_of(call);

	call->ops[0] = sync_op_read(b->offset, b->memory, bytes_of(b->parties));
	return sync_access(call, 1, seen);
}

static enum sync_want open_seen(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);
	int ret = all_arrived(b, call->status);

	if (ret < 0)
		return sync_end(call, ret);
	b->waiting = ret == 0;
	*b->ret_barrier = b;
	return sync_open_end(call);
}

/* What a party of this number has done before, perhaps in another process. */
static enum sync_want own_read(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	b->round = b->own;
	return look(call, open_seen);
}

static int take_parties(struct tarn_barrier *b, uint64_t parties)
{
	if (!parties || parties > TARN_BARRIER_PARTIES_MAX)
		return err_set(-TARN_ECORRUPT, "the barrier has %llu parties: damaged",
			       (unsigned long long)parties);
	if (b->party >= parties)
		return err_set(-EINVAL, "party is %u: must be 0 to %llu", b->party,
			       (unsigned long long)parties - 1);
	b->parties = (uint32_t)parties;
	return sync_check_place(b->call.region, b->offset, bytes_of(parties));
}

static enum sync_want opened(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);
	uint64_t parties;
	enum sync_kind kind;
	int ret = sync_opened(call, b->offset, &kind, &parties);

	if (ret == 0 && kind != SYNC_BARRIER)
		ret = sync_wrong_kind(kind, "a barrier");
	if (ret == 0)
		ret = take_parties(b, parties);
	if (ret < 0)
		return sync_end(call, ret);
	b->memory = malloc(bytes_of(parties));
	if (!b->memory)
		return sync_end(call, err_set(-ENOMEM, "no memory for a barrier"));
	call->ops[0] = sync_op_read(b->offset + bytes_of(b->party), &b->own, 8);
	return sync_access(call, 1, own_read);
}

int barrier_open_begin(struct tarn_region *region, uint64_t offset, uint32_t party,
		       struct tarn_barrier **ret_barrier, struct sync_call **ret_call)
{
	struct tarn_barrier *b;
	int ret = sync_check_place(region, offset, sizeof(struct barrier_memory));

	if (ret == 0 && !ret_barrier)
		ret = err_set(-EINVAL, "ret_barrier must not be NULL");
	if (ret < 0)
		return ret;
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(-ENOMEM, "no memory for a barrier");
	b->offset = offset;
	b->party = party;
	b->ret_barrier = ret_barrier;
	sync_open_begin(&b->call, region, offset, barrier_free, opened);
	*ret_call = &b->call;
	return 0;
}

int tarn_barrier_open(struct tarn_region *region, uint64_t offset, uint32_t party,
		      struct tarn_barrier **ret_barrier)
{
	struct sync_call *call;
	int ret = barrier_open_begin(region, offset, party, ret_barrier, &call);

	return ret < 0 ? ret : sync_open_run(call);
}

void tarn_barrier_close(struct tarn_barrier *barrier)
{
	if (barrier)
		sync_close(&barrier->call);
}

/* ---- wait ------------------------------------------------------------------------------------ */

static sync_handler wait_seen, arrive_tried, arrived_seen;

static enum sync_want wait_look(struct sync_call *call)
{
	return look(call, wait_seen);
}

static enum sync_want wait_seen(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);
	int ret = all_arrived(b, call->status);

	if (ret < 0)
		return sync_end(call, ret);
	if (ret == 0)
		return sync_pause(call, wait_look);
	b->waiting = false;
	if (b->ret_round)
		*b->ret_round = b->round;
	return sync_end(call, 0);
}

/* Counts this party on. By CAS, so that it counts once, also if the connection is lost meanwhile. */
static enum sync_want arrive(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);

	call->ops[0] = sync_op_cas(b->offset + bytes_of(b->party), b->round, b->round + 1);
	return sync_access(call, 1, arrive_tried);
}

static enum sync_want arrive_tried(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);
	uint64_t before = call->ops[0].before;

	if (call->status == -TARN_EAMBIGUOUS && ++b->tries < SYNC_TRIES)
		return arrive(call);
	if (call->status < 0)
		return sync_end(call, call->status);
	/* round + 1: what was ambiguous, now or in an earlier call */
	if (before != b->round && before != b->round + 1)
		return sync_end(call, err_set(-TARN_ECORRUPT,
					      "party %u was in round %llu and is in %llu: damaged, "
					      "or used by two",
					      b->party, (unsigned long long)b->round,
					      (unsigned long long)before));
	b->round++;
	b->waiting = true;
	return look(call, arrived_seen);
}

/* Who comes last wakes the others. */
static enum sync_want arrived_seen(struct sync_call *call)
{
	struct tarn_barrier *b = barrier_of(call);
	int ret = all_arrived(b, call->status);

	if (ret < 0)
		return sync_end(call, ret);
	call->sleeps = ret == 1 ? b->memory->sleeps : 0;
	return sync_wake(call, b->offset + SYNC_SLEEPS, wait_look);
}

int barrier_wait_begin(struct tarn_barrier *barrier, uint32_t timeout_ms, uint64_t *ret_round)
{
	int ret;

	if (!barrier)
		return err_set(-EINVAL, "barrier must not be NULL");
	ret = sync_check_free(&barrier->call);
	if (ret == 0)
		ret = sync_wait_begin(&barrier->call, timeout_ms, barrier->offset + SYNC_SLEEPS,
				      "not all parties have come to the barrier");
	if (ret < 0)
		return ret;
	barrier->tries = 0;
	barrier->ret_round = ret_round;
	sync_begin(&barrier->call, barrier->waiting ? wait_look : arrive);
	return 0;
}

int tarn_barrier_wait(struct tarn_barrier *barrier, uint32_t timeout_ms, uint64_t *ret_round)
{
	int ret = barrier_wait_begin(barrier, timeout_ms, ret_round);

	return ret < 0 ? ret : sync_run(&barrier->call);
}
