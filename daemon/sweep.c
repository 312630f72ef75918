/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds blocks that are "in use" and that nothing reaches, and frees them; see sweep.h. Main thread,
 * called by keeper.c. The order of its states is the rule of docs/protocol.md section 6: page words
 * and map, then the whole index, then the sample of the quiescence counts, then the wait, then a look
 * at the page words again. What stands in the pool may be garbage: a slot can only make this believe
 * that a block is reached. candidates.c has the bits, sweep-walk.c goes over the index, quiescence.c
 * samples. Read recycle.c next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "candidates.h"
#include "clock.h"
#include "err.h"
#include "events.h"
#include "mutation.h"
#include "pool.h"
#include "quiescence.h"
#include "recycle.h"
#include "self.h"
#include "sweep-walk.h"
#include "sweep.h"

#define STEP_NS     500000u /* a step works this long, and a bit */
#define BATCH_BYTES (64u << 20)
#define TOGETHER_NS 300000000u   /* so long deaths are collected */
#define LOOK_NS     1000000000u  /* between two looks whether there is need of a sweep */
#define POLL_NS     50000000u    /* between two looks while connections are waited for */
#define PAUSE_NS    30000000000u /* between two sweeps that nothing calls for */
#define AGAIN_NS    3000000000u  /* after one that has found something, or left something over */
#define SHARE       50u          /* they take this part of the time at most */
#define SHARE_SOON  10u          /* and the one after a death this */
#define SHARE_SCARCE 4u          /* if, besides, free pages are few */
#define HELD_UP_NS  5000000000u
#define TELL_NS     10000000000u /* so long a client may hold a sweep up before the log says so */
#define TELL_MAX_NS 3600000000000u
#define RETRY_NS    1000000000u /* after a failure of memory */

struct sweep {
	struct pool *pool;
	struct recycle *recycle;
	struct quiescence *quiescence;
	enum sweep_state state;
	uint64_t due_ns;
	bool soon;   /* a client has died since this sweep began */
	bool hasten; /* this sweep is after a death */
	/* of this sweep */
	uint64_t batch_bytes;
	struct candidates *candidates;
	struct sweep_walk *walk;
	uint32_t first, next, end; /* the batch's pages: from, where the work goes on, behind the last */
	bool large;                /* there may be large values */
	uint64_t worked_ns;
	uint64_t leaked;    /* blocks */
	uint64_t left_over; /* pages with such blocks that somebody has owned meanwhile */
	bool pendings;      /* of dead clients were seen: their blocks are the next sweep's */
	/* of the wait */
	uint64_t since_ns, since_epoch; /* not before the sample was complete; 0: not yet begun */
	uint64_t tell_ns, tell_after_ns;
	/* connections that had ended when this sweep and the one before it began */
	uint64_t ended_now, ended_before;
	bool knows_before;
	uint64_t passes; /* of recycle.c: from this one on it does not tell of orphans that are freed */
	struct sweep_stats stats;
};

int sweep_create(struct pool *pool, struct recycle *recycle, struct sweep **ret_sweep)
{
	struct sweep *sweep = calloc(1, sizeof(*sweep));

	if (!sweep)
		return err_set(-ENOMEM, "out of memory");
	sweep->pool = pool;
	sweep->recycle = recycle;
	sweep->batch_bytes = BATCH_BYTES;
	sweep->quiescence = quiescence_create(pool);
	sweep->walk = sweep_walk_create(pool);
	if (!sweep->quiescence || !sweep->walk) {
		sweep_free(sweep);
		return err_set(-ENOMEM, "out of memory");
	}
	*ret_sweep = sweep;
	return 0;
}

void sweep_free(struct sweep *sweep)
{
	if (!sweep)
		return;
	candidates_free(sweep->candidates);
	sweep_walk_free(sweep->walk);
	quiescence_free(sweep->quiescence);
	free(sweep);
}

/* ---- beginning and end ---- */

static uint64_t batch_begin(struct sweep *sweep, uint64_t now)
{
	candidates_free(sweep->candidates);
	sweep->candidates = candidates_create(sweep->pool, sweep->batch_bytes);
	if (!sweep->candidates)
		return now + RETRY_NS;
	sweep->next = sweep->first;
	sweep->large = false;
	sweep->since_ns = 0;
	sweep->state = SWEEP_PAGES;
	return now;
}

/* Are there orphans that came by another way than a client's end? */
static bool orphans(const struct sweep *sweep)
{
	return recycle_passes(sweep->recycle) >= sweep->passes && recycle_orphans(sweep->recycle);
}

static uint64_t idle(struct sweep *sweep, uint64_t now)
{
	if (sweep->soon || orphans(sweep)) {
		if (!sweep->hasten)
			sweep->due_ns = now + TOGETHER_NS;
		sweep->hasten = true;
	}
	if (sweep->due_ns == 0)
		sweep->due_ns = now + PAUSE_NS;
	if (now < sweep->due_ns) /* orphans may turn up before */
		return sweep->due_ns < now + LOOK_NS ? sweep->due_ns : now + LOOK_NS;
	sweep->soon = false;
	sweep->first = 0;
	sweep->worked_ns = sweep->leaked = sweep->left_over = 0;
	sweep->pendings = false;
	sweep->ended_now = sweep->pool->connections_ended;
	return batch_begin(sweep, now);
}

/* Nobody had died: then somebody writes to the pool who should not, or something is broken. */
static void tell_leaks(const struct sweep *sweep)
{
	if (sweep->leaked && sweep->knows_before &&
	    sweep->pool->connections_ended == sweep->ended_before)
		events_tell(sweep->pool->events, EVENT_pool_scribbled,
			    EVENT_FIELDS(.pool = sweep->pool->name),
			    "pool %s: %llu blocks were in use that no key reaches, though no client "
			    "has died: they are free again. A client writes where it should not, or "
			    "this is an error in Tarn",
			    sweep->pool->name, (unsigned long long)sweep->leaked);
}

static uint64_t batch_end(struct sweep *sweep, uint64_t now)
{
	uint64_t least = sweep->leaked || sweep->left_over ? AGAIN_NS : PAUSE_NS;
	uint64_t pause = SHARE * sweep->worked_ns;

	candidates_free(sweep->candidates);
	sweep->candidates = NULL;
	sweep->stats.batches++;
	if (sweep->end < sweep->pool->geometry.npages) {
		sweep->first = sweep->end;
		return batch_begin(sweep, now);
	}
	tell_leaks(sweep);
	sweep->ended_before = sweep->ended_now;
	/* what this one had to leave the next one finds, without another death */
	sweep->knows_before = !sweep->pendings && !sweep->left_over;
	sweep->stats.sweeps++;
	sweep->stats.worked_ns = sweep->worked_ns;
	sweep->state = SWEEP_IDLE;
	sweep->hasten = false;
	sweep->passes = recycle_passes(sweep->recycle) + 2; /* one may be under way */
	sweep->due_ns = now + (pause > least ? pause : least);
	return now;
}

/* ---- the pages ---- */

/* False: the batch is full. */
static bool note_page(struct sweep *sweep, uint32_t page)
{
	uint64_t word = pool_load_page_word(sweep->pool, page);

	switch (layout_page_state(word)) {
	case LAYOUT_PAGE_SLAB:
		break;
	case LAYOUT_PAGE_FULL:
	case LAYOUT_PAGE_PARTIAL:
	case LAYOUT_PAGE_ORPHAN:
		if (candidates_add(sweep->candidates, page, word) == CANDIDATES_FULL)
			return false;
		break;
	default: /* free, index, garbage */
		return true;
	}
	/* The first extent of a large value has this class, whatever the key's length is. */
	if (layout_page_class(word) == LAYOUT_CLASS_MAX)
		sweep->large = true;
	return true;
}

static uint64_t pages_step(struct sweep *sweep, uint64_t now)
{
	uint64_t began = clock_now_ns();

	while (sweep->next < sweep->pool->geometry.npages) {
		if (!note_page(sweep, sweep->next))
			break;
		sweep->next++;
		if (sweep->next % 16 == 0 && clock_now_ns() - began >= STEP_NS)
			return now;
	}
	sweep->end = sweep->next;
	/* Pages that are not in the batch have not been looked at for large values. */
	if (sweep->first > 0 || sweep->end < sweep->pool->geometry.npages)
		sweep->large = true;
	sweep->state = SWEEP_WALK;
	sweep_walk_begin(sweep->walk, sweep->candidates, sweep->large);
	return now;
}

/* ---- the index ---- */

static uint64_t walk_step(struct sweep *sweep, uint64_t now)
{
	if (sweep_walk_step(sweep->walk, STEP_NS)) {
		sweep->state = SWEEP_SAMPLE;
		quiescence_begin(sweep->quiescence);
	}
	return now;
}

/* Before the walk there is nothing to be told: it will come by the word where it is then. */
void sweep_moved(struct sweep *sweep, uint64_t word)
{
	if (sweep->state == SWEEP_WALK && !MUTATED(MUTATION_SWEEP_MOVED))
		sweep_walk_moved(sweep->walk, word);
}

static uint64_t sample_step(struct sweep *sweep, uint64_t now)
{
	if (quiescence_take(sweep->quiescence)) {
		sweep->state = SWEEP_WAIT;
		sweep->since_ns = 0;
	}
	return now;
}

/* ---- the wait ---- */

static void wait_begin(struct sweep *sweep, const struct keeper_time *time)
{
	sweep->since_ns = time->now_ns;
	sweep->since_epoch = time->epoch;
	sweep->tell_after_ns = TELL_NS;
	sweep->tell_ns = time->now_ns + TELL_NS;
}

/* Once in a while, more and more seldom. */
static void tell_wait(struct sweep *sweep, uint64_t now)
{
	uint32_t slot = quiescence_waits_for(sweep->quiescence);
	const struct pool_client *client;

	if (slot == POOL_NONE || now < sweep->tell_ns)
		return;
	if (sweep->tell_after_ns < TELL_MAX_NS)
		sweep->tell_after_ns *= 2;
	sweep->tell_ns = now + sweep->tell_after_ns;
	client = &sweep->pool->clients[slot];
	events_tell(sweep->pool->events, EVENT_sweep_held_up,
		    EVENT_FIELDS(.pool = sweep->pool->name, .peer = client->name,
				 .client = client->client_id),
		    "pool %s: client %u (slot %u, pid %u %s) has held up the sweep for %llu s: it is "
		    "stopped, or has no housekeeping thread and does not call tarn_session_process. "
		    "What dead clients have left does not come back until it goes on or ends",
		    sweep->pool->name, client->client_id, slot, client->pid, client->name,
		  (unsigned long long)((now - sweep->since_ns) / 1000000000));
}

/*
 * Their blocks are not reached any more, whoever has killed them: the next sweep finds them. True: it
 * is through.
 */
static bool kill_pendings(struct sweep *sweep)
{
	if (sweep_walk_pendings(sweep->walk))
		sweep->soon = sweep->pendings = true;
	return sweep_walk_kill(sweep->walk, STEP_NS, &sweep->stats.pendings_killed);
}

static uint64_t wait_step(struct sweep *sweep, const struct keeper_time *time)
{
	uint64_t now = time->now_ns;

	if (sweep->since_ns == 0)
		wait_begin(sweep, time);
	/* T2: what was reachable until just before the walk may still be read. */
	if (now - sweep->since_ns < sweep->pool->geometry.grace_ns ||
	    time->epoch < sweep->since_epoch + 2)
		return now + POLL_NS;
	if (!kill_pendings(sweep))
		return now;
	if (!MUTATED(MUTATION_QUIESCENCE) && !quiescence_passed(sweep->quiescence)) {
		tell_wait(sweep, now);
		return now + POLL_NS;
	}
	sweep->next = sweep->first;
	sweep->state = SWEEP_FREE;
	return now;
}

/* ---- what has leaked ---- */

static uint64_t free_blocks(struct sweep *sweep, uint32_t page, uint32_t class)
{
	const struct layout_geometry *g = &sweep->pool->geometry;
	uint64_t offset = g->free_map_offset + (uint64_t)page * LAYOUT_UNITS_PER_PAGE, leaked = 0;
	uint32_t blocks = layout_class_blocks(class), step = layout_class_bytes(class) / LAYOUT_UNIT;

	for (uint32_t i = 0; i < blocks; i++) {
		uint64_t at = offset + (uint64_t)i * step;

		if (!candidates_left(sweep->candidates, page, i) ||
		    self_load_byte(sweep->pool, at) != LAYOUT_FREE_IN_USE)
			continue;
		self_store_byte(sweep->pool, at, LAYOUT_FREE_AGED);
		leaked++;
	}
	return leaked;
}

static bool unchanged(const struct sweep *sweep, uint32_t page, uint64_t *word)
{
	uint64_t now = pool_load_page_word(sweep->pool, page);

	/* as if the word, and with SWEEP_ORDER the map, had been read only now */
	if ((MUTATED(MUTATION_SWEEP_WORD) ||
	     (MUTATED(MUTATION_SWEEP_ORDER) && layout_page_state(now) != LAYOUT_PAGE_SLAB)) &&
	    layout_page_class(now) == layout_page_class(*word))
		*word = now;
	return now == *word;
}

/* Nobody has owned the page since its word was read, or it is left for the next sweep. */
static void free_page(struct sweep *sweep, uint32_t page)
{
	uint64_t word, full, leaked;
	uint32_t class;

	if (!candidates_word(sweep->candidates, page, &word))
		return;
	if (!unchanged(sweep, page, &word)) {
		sweep->left_over += candidates_any_left(sweep->candidates, page);
		return;
	}
	class = layout_page_class(word);
	full = layout_page_next(word, LAYOUT_PAGE_FULL, class, 0);
	if (candidates_any_left(sweep->candidates, page)) {
		/* Out of the clients' reach first: a claim that comes between wins. */
		if (layout_page_state(word) == LAYOUT_PAGE_PARTIAL &&
		    !pool_cas_page_word(sweep->pool, page, word, full)) {
			sweep->left_over++;
			return;
		}
		leaked = free_blocks(sweep, page, class);
		sweep->leaked += leaked;
		sweep->stats.leaked_blocks += leaked;
		sweep->stats.leaked_bytes += leaked * layout_class_bytes(class);
		recycle_changed(sweep->recycle, page);
	}
	if (layout_page_state(word) == LAYOUT_PAGE_ORPHAN &&
	    pool_cas_page_word(sweep->pool, page, word, full))
		sweep->stats.orphans_freed++;
}

static uint64_t free_step(struct sweep *sweep, uint64_t now)
{
	uint64_t began = clock_now_ns();

	while (sweep->next < sweep->end) {
		free_page(sweep, sweep->next++);
		if (sweep->next % 16 == 0 && clock_now_ns() - began >= STEP_NS)
			return now;
	}
	return batch_end(sweep, now);
}

/* ---- steps ---- */

static uint64_t state_step(struct sweep *sweep, const struct keeper_time *time)
{
	switch (sweep->state) {
	case SWEEP_IDLE:
		return idle(sweep, time->now_ns);
	case SWEEP_PAGES:
		return pages_step(sweep, time->now_ns);
	case SWEEP_WALK:
		return walk_step(sweep, time->now_ns);
	case SWEEP_SAMPLE:
		return sample_step(sweep, time->now_ns);
	case SWEEP_WAIT:
		return wait_step(sweep, time);
	case SWEEP_FREE:
		return free_step(sweep, time->now_ns);
	}
	return time->now_ns;
}

/* A death makes a sweep that is under way hurry, too; who needs memory even more. */
static uint64_t share(const struct sweep *sweep)
{
	if (!sweep->hasten && !sweep->soon)
		return SHARE;
	return recycle_scarce(sweep->recycle) ? SHARE_SCARCE : SHARE_SOON;
}

uint64_t sweep_step(struct sweep *sweep, const struct keeper_time *time)
{
	/* CPU time: on a busy machine the time of others must not count as ours */
	uint64_t began = clock_thread_ns(), worked, pause, due = state_step(sweep, time);

	worked = clock_thread_ns() - began;
	sweep->worked_ns += worked;
	pause = worked * (share(sweep) - 1);
	return due > time->now_ns + pause ? due : time->now_ns + pause;
}

void sweep_soon(struct sweep *sweep)
{
	sweep->soon = true;
}

bool sweep_held_up(const struct sweep *sweep, uint64_t now)
{
	return sweep->state == SWEEP_WAIT && sweep->since_ns > 0 &&
	       now - sweep->since_ns >= HELD_UP_NS;
}

void sweep_set_batch(struct sweep *sweep, uint64_t bytes)
{
	sweep->batch_bytes = bytes;
}

void sweep_get_stats(const struct sweep *sweep, uint64_t now, struct sweep_stats *ret_stats)
{
	uint32_t slot = quiescence_waits_for(sweep->quiescence);

	*ret_stats = sweep->stats;
	ret_stats->state = sweep->state;
	ret_stats->soon = sweep->soon || sweep->hasten;
	if (sweep->state != SWEEP_WAIT || sweep->since_ns == 0)
		return;
	ret_stats->waiting_ns = now - sweep->since_ns;
	if (slot == POOL_NONE)
		return;
	ret_stats->waits_for_client = sweep->pool->clients[slot].client_id;
	ret_stats->waits_for_pid = sweep->pool->clients[slot].pid;
	memcpy(ret_stats->waits_for_name, sweep->pool->clients[slot].name,
	       sizeof(ret_stats->waits_for_name));
}
