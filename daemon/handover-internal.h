/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-internal.h - what handover.c (a shard's states, jobs, words) and handover-attempt.c (the attempt
 * of this member as the source, and what is written) share
 */
#ifndef TARN_DAEMON_HANDOVER_INTERNAL_H
#define TARN_DAEMON_HANDOVER_INTERNAL_H

#include "handover.h"

#define HANDOVER_RETRY_NS UINT64_C(100000000) /* what could not be done is tried again */

enum shard_stage {
	STAGE_NONE,     /* nothing of it is here */
	STAGE_DIRTY,    /* another's: to be emptied */
	STAGE_LEAVING,  /* another's: movers are cut, then DIRTY */
	STAGE_CUTTING,  /* it will come: movers are cut, then */
	STAGE_EMPTYING, /* it is emptied, then */
	STAGE_READY,    /* "incoming" */
	STAGE_ENTERING, /* ours: movers are cut, then */
	STAGE_OPENING,  /* open, and thawed, then */
	STAGE_OPEN,     /* as most shards are most of the time */
	STAGE_OUT,      /* in our attempt */
	STAGE_RECOVER,  /* ours, in an attempt that has lost its process or lease: given up first */
};

struct handover_shard {
	/* by the newest map; `to` is HANDOVER_NOBODY without a move */
	uint16_t owner, to;
	uint64_t since;

	enum shard_stage stage;
	bool busy;          /* the job under way is for this stage */
	bool in_job;      /* it walks over this shard, whatever for */
	bool take;          /* handover_take() */
	bool claimed;       /* fixed: ours by a new file, and clients may have the old one */
	bool taking;        /* CUTTING to READY: to be taken, not handed over */
	uint64_t key;       /* the `since` that the stage is about */
	uint64_t nobody_ns; /* since when the map has no owner, or `claimed` */
	uint16_t mover;     /* CUTTING to READY, ENTERING, LEAVING: whose mover was told READY, */
	uint64_t number;    /* ... in which attempt */
	uint64_t shown;     /* the word */
};

struct handover_attempt {
	enum handover_phase phase;
	struct handover_ask ask;
	enum shard_state word; /* of its shards */
	bool brings;           /* BRINGING: it was begun */
	bool permanent;        /* GIVING_UP: not to be tried again by itself */
	unsigned int asks, refusals;
	uint64_t refused_epoch;
	bool has_answer, has_copied, is_lost; /* told, and not looked at yet */
	int copied;
	uint64_t due_ns, ask_ns;
};

struct handover {
	struct handover_options options;
	struct handover_ops ops;
	void *arg;
	struct handover_shard *shards;
	uint64_t epoch;     /* of the newest map; 0: none yet */
	bool fenced, first; /* first: the next map is the first of this process */
	bool strangers;     /* movers from before this process may be connected */
	bool changed;       /* the map */

	uint32_t *job_shards, job_count;
	enum handover_job job;
	uint64_t job_number; /* FREEZE: of the attempt */
	bool job_runs, job_ended;
	uint64_t job_ns; /* not begun before */

	struct handover_attempt attempt;
	bool copier_busy;
	uint32_t batch;      /* shards of an attempt */
	uint32_t cursor;     /* where the next attempt looks first */
	uint64_t backoff_ns; /* after the last failure */
	uint64_t begin_ns;   /* no attempt before */

	struct handover_write write;
	bool writing, has_outcome;
	enum handover_outcome outcome;
	uint64_t written_epoch; /* nothing is written before a map that is newer than this */
	uint64_t write_ns;      /* ... nor before this */

	struct handover_ask question; /* what handover_questioned() puts together */
	struct handover_stats stats;
};

static inline bool handover_mine(const struct handover *h, const struct handover_shard *s)
{
	return s->owner == h->options.self;
}

/* handover.c */
void handover_show(struct handover *h, uint32_t shard);
/* An attempt's shard goes back to its owner's normal life. */
void handover_reopen(struct handover *h, uint32_t shard);
/* FREEZE of the attempt's shards; 0, or negative. */
int handover_begin_freeze(struct handover *h);

/* handover-attempt.c */
void attempt_map_changed(struct handover *h);
void attempt_frozen(struct handover *h);
/* Both: one thing that is due; true if something was done. They lower *next to when they are due. */
bool attempt_step(struct handover *h, uint64_t now_ns, uint64_t *next);
bool attempt_write_step(struct handover *h, uint64_t now_ns, uint64_t *next);

static inline void handover_due(uint64_t *next, uint64_t at_ns)
{
	if (at_ns < *next)
		*next = at_ns;
}

/*
 * The order in which shards are handed over, and its own inverse: shards that differ in the highest bits lie in the same
 * subtables, and are neighbours.
 */
uint32_t handover_place(uint32_t at, uint32_t shards);

#endif
