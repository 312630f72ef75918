/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover.h - which of a cluster's shards this member has, and how they come and go
 *
 * docs/protocol.md section 11, steps 1 to 8 and "taken without its owner", as the source and as the target, with
 * restarts. A state machine and nothing else: it reads no clock and touches no memory of a pool; what
 * has happened is told to it, and handover_step() calls struct handover_ops for what is to be done (word() and drop() may also be
 * called by handover_map() and handover_fence()). So the daemon (cluster.c) and the simulation (tests/sim) run the same code.
 * One thread; nothing blocks. A call of struct handover_ops must not call back into this.
 *
 * A shard's words are set by this alone once it exists; before, all are "gone" (recover.c).
 *
 * Each attempt to hand a shard over has a `since` of its own: who gives an attempt up, be it in the
 * source's place, writes a new one (handover_withdraw()). So source and target can tell whether an attempt that they
 * know is still the one that the map means, however many maps they have not seen.
 */
#ifndef TARN_DAEMON_HANDOVER_H
#define TARN_DAEMON_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster-map.h"
#include "shard.h"

#define HANDOVER_BATCH_MIN 32u  /* shards of one attempt: one walk, one transaction */
#define HANDOVER_BATCH     2048u /* of a small index: handover_batch() */
#define HANDOVER_NOBODY    0u   /* a member's number; real ones begin with 1 */

struct handover;

enum handover_job {
	HANDOVER_FREEZE, /* pending slots are killed, committed ones frozen */
	HANDOVER_THAW,   /* frozen -> committed */
	HANDOVER_EMPTY,  /* all slots are emptied, whatever their state, and their blocks retired */
};

/* An attempt of one member to hand shards over to another. */
struct handover_ask {
	uint16_t from, to; /* members' numbers */
	uint64_t number;   /* of the attempt: a later one of the same source has a higher one */
	uint64_t boot_id;  /* of the target, when it was ready; 0 in a question */
	uint32_t count;    /* 1 to HANDOVER_BATCH */
	uint32_t shards[HANDOVER_BATCH];
	uint64_t since[HANDOVER_BATCH];
};

/*
 * An attempt in few words, for one message: its shards are all that the map moves from the one to the other, of so many places
 * in the order in which shards are handed over.
 */
struct handover_question {
	uint16_t from, to;
	uint64_t number;
	uint32_t first, places; /* the shards of a map, at most */
	uint64_t hash;          /* of the shards and their since */
};

enum handover_answer {
	HANDOVER_WAIT,  /* not yet: ask again in a moment */
	HANDOVER_READY, /* emptied, the words are "incoming", no earlier mover is connected */
};

enum handover_change {
	HANDOVER_SWITCH,  /* to whom the move goes is the owner; no move */
	HANDOVER_AGAIN,   /* given up, and to be tried again: the move stays */
	HANDOVER_GIVE_UP, /* given up: no move */
	HANDOVER_TAKE,    /* the shard had no owner: this member is */
};

/* A change of the map, to be made as one transaction. */
struct handover_write {
	uint64_t if_epoch;   /* only if the map still has this epoch, */
	uint16_t if_member;  /* and this member's record ... (HANDOVER_NOBODY: no such condition) */
	uint64_t if_boot_id; /* ... this boot id */
	uint16_t self;       /* HANDOVER_TAKE: the new owner */
	uint32_t count;
	struct {
		uint32_t shard;
		enum handover_change what;
	} * changes;
};

enum handover_outcome {
	HANDOVER_WRITTEN,
	HANDOVER_REFUSED, /* the epoch or the boot id is another; it never takes effect */
	HANDOVER_UNKNOWN, /* it may have taken effect, or may do so later */
};

struct handover_ops {
	/* Sets a shard's word. */
	void (*word)(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch);
	/*
	 * Begins a walk; its end is told by handover_job_done(), exactly once. One at a time. `shards` is the
	 * machine's, unchanged until then. 0; negative: not now, it is asked for again.
	 */
	int (*job)(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count);
	/*
	 * Source, step 2: connects to the target, whose boot id has to be attempt->boot_id, and copies. Step 4: brings
	 * what has changed. Each is answered by handover_copied(), exactly once, also after drop().
	 * 0; negative: the attempt is given up.
	 */
	int (*copy)(void *arg, const struct handover_ask *attempt);
	int (*bring)(void *arg);
	/* The attempt is over: the connection is closed, the list is forgotten, soon. */
	void (*drop)(void *arg);
	/* Asks a member whether it is ready: handover_answered(), or nothing. */
	void (*ask)(void *arg, const struct handover_ask *ask);
	/*
	 * Target: ends (queue pair to error) all connections of movers of member `from` whose attempt has this
	 * number or a lower one, and lets none of them in again. `from` HANDOVER_NOBODY: all that are from before this process began,
	 * also who has its memory mapped. 0: nothing that they have posted takes effect any more. -EAGAIN: not yet; it is called again.
	 */
	int (*cut)(void *arg, uint16_t from, uint64_t number);
	/* Begins to write; handover_written(), exactly once. 0; negative: not now, asked for again. */
	int (*write)(void *arg, const struct handover_write *write);
};

struct handover_options {
	uint32_t shards;   /* of the map */
	uint16_t self;     /* this member's number */
	uint64_t boot_id;  /* of this process, as in its record */
	bool cache;        /* nothing is copied */
	bool fixed;        /* static membership: nothing can be written */
	uint64_t bound_ns; /* map_bound: how long a client goes on with a map */
};

int handover_create(const struct handover_options *options, const struct handover_ops *ops,
		    void *arg, struct handover **ret_handover);
void handover_free(struct handover *h);

/* ---- what has happened; then handover_step() is to be called ---- */

/*
 * The newest map, or the one known again: older ones are ignored. The first one, and the first after handover_fence(), must
 * have been read after this member's record was written with the boot id of the memory as it is now: only
 * then no switch that was asked for before can take effect later. now_ns: any clock that only goes
 * forward, not later than now. 0, -EINVAL (other shards, or this member is not in it) with a text.
 */
int handover_map(struct handover *h, const struct cluster_map *map, uint64_t now_ns);
/*
 * The lease is lost: all words are "gone" and all connections ended, by the caller, before this. Nothing is done
 * until handover_map() is called again.
 */
void handover_fence(struct handover *h);
/* This member is to take a shard that has no owner. Once; forgotten when it has one. */
void handover_take(struct handover *h, uint32_t shard);
void handover_job_done(struct handover *h);
/* result: 0, or negative: the attempt is given up; with -TARN_EPOOLFULL, -TARN_EINDEXFULL it is not tried again by itself. */
void handover_copied(struct handover *h, int result);
/* The mover's connection of this attempt has ended, also when all has been copied. */
void handover_lost(struct handover *h, uint64_t number);
/* number: of the attempt that was asked about. */
void handover_answered(struct handover *h, uint64_t number, enum handover_answer answer,
		       uint64_t boot_id);
void handover_written(struct handover *h, enum handover_outcome outcome);

/*
 * How many shards a next attempt takes, HANDOVER_BATCH_MIN (as at first) to HANDOVER_BATCH: as many as lie in the same subtables, so
 * that no walk goes over keys of many others. depth: of the index's directory.
 */
void handover_batch(struct handover *h, uint32_t depth);

/* Does what is to be done now. Returns when it is to be called next, if nothing happens; UINT64_MAX. */
uint64_t handover_step(struct handover *h, uint64_t now_ns);

/* ---- target: what others ask ---- */

enum handover_answer handover_asked(struct handover *h, const struct handover_ask *ask);
/* What `ask` is in few words; `shards`: of the map. */
void handover_question(const struct handover_ask *ask, uint32_t shards, struct handover_question *ret_question);
/* Likewise. WAIT also when by the map that is known here it would be about other shards: then they are asked for by their numbers. */
enum handover_answer handover_questioned(struct handover *h, const struct handover_question *question);
/* May a mover of this attempt connect? */
bool handover_admits(const struct handover *h, uint16_t from, uint64_t number);

/* ---- the map ---- */

/* Makes a write's changes in a copy of the map that has its if_epoch; its epoch stays. 0, or -EINVAL with a text: they do not fit. */
int handover_apply(const struct handover_write *write, struct cluster_map *map);
/*
 * For whoever else takes a move away (the target has left, the drain is called off): the move goes, and the shard's `since`
 * becomes that of the map that will be written in place of this one. Nothing if there is no move.
 */
void handover_withdraw(struct cluster_map *map, uint32_t shard);

/* ---- for people ---- */

enum handover_phase { /* of the attempt that this member makes as the source */
		      HANDOVER_IDLE,
		      HANDOVER_ASKING,    /* 1 */
		      HANDOVER_COPYING,   /* 2 */
		      HANDOVER_FREEZING,  /* 3, 4 */
		      HANDOVER_BRINGING,  /* 4: what has changed */
		      HANDOVER_SWITCHING, /* 5, 6 */
		      HANDOVER_GIVING_UP,
};
struct handover_stats {
	uint32_t owned;              /* by the map */
	uint32_t open;               /* everything can be read and written */
	uint32_t outgoing, incoming; /* moves of the map */
	uint32_t ready;              /* target: of these, those that are prepared */
	uint32_t clearing;           /* still to be emptied */
	enum handover_phase phase;
	uint16_t to; /* of that attempt; its shards */
	uint32_t shards;
	uint64_t moved, given_up, taken; /* shards, since the start */
	int last_error;                  /* of the last attempt that was given up; 0: none was */
	bool fenced;
};
void handover_get_stats(const struct handover *h, struct handover_stats *ret_stats);
const char *handover_phase_name(enum handover_phase phase);

#endif
