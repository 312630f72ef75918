/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.h - one schedule: clients with their scripts on a simulated pool, what they did, and what is
 * checked afterwards
 *
 * run_schedule() does all of it; the parts are scenario.c (what a seed stands for: pool, keys,
 * scripts, chances), client.c (one client: the next call, completions, results), schedule.c (who
 * takes the next step), structure.c (the pool afterwards).
 */
#ifndef TARN_RUN_H
#define TARN_RUN_H

#include "fabric-sim.h"
#include "linear.h"
#include "session.h"

#define RUN_CLIENTS      SIM_CLIENTS
#define RUN_KEYS         3u
#define RUN_SCRIPT       12u
#define RUN_RECORDS      60u /* at most 64: linear.h */
#define RUN_KEY_BYTES    8u
#define RUN_BUFFER_BYTES (768u * 1024u)
#define RUN_FAMILIES     5u
#define RUN_FILLERS      20u

/* What schedules are about; each has a weight in scenario.c. */
enum run_kind {
	RUN_MIXED,   /* everything, short stalls */
	RUN_INSERT,  /* clients insert and delete the same key at once */
	RUN_REUSE,   /* few blocks, used again and again; long sleeps; location caches */
	RUN_WRAP,    /* stalls of about 4096 epochs: generations come again */
	RUN_COUNTER, /* adds */
	RUN_EXPIRY,  /* values that expire */
	RUN_MEMORY,  /* few pages: claims, hand-backs, the keeper */
	RUN_LARGE,   /* values in extents */
	RUN_FLIP,    /* fault: a bit of a published block changes */
	RUN_SWEEP,   /* clients die; in the end nothing is lost */
	RUN_GROW,    /* the index is full again and again */
	RUN_EVICT,   /* a cache pool: keys vanish */
	RUN_RESTART, /* the daemon dies and comes again, several times */
	RUN_LATE,    /* fault: words of a WRITE take effect after the requests behind it */
	RUN_MOVE,    /* a split moves a key while a sweep goes over the index */
	RUN_PIECES,  /* a large value waits for its last block while a sweep runs */
	RUN_DEATH,   /* clients die, and nobody waits for them for longer than RUN_WAIT_NS */
	RUN_PIPELINE, /* several calls of a client at a time, some of them cancelled */
	RUN_KINDS
};
const char *run_kind_name(enum run_kind kind);

/* docs/protocol.md section 7: what a client's death costs another one's call at most. */
#define RUN_WAIT_NS 2000000u

enum script_verb {
	SCRIPT_GET,
	SCRIPT_EXISTS,
	SCRIPT_PUT,
	SCRIPT_PUT_IF_ABSENT,
	SCRIPT_PUT_IF_STAMP,
	SCRIPT_DELETE,
	SCRIPT_ADD,
	SCRIPT_PROCESS, /* housekeeping */
	SCRIPT_CLOSE,   /* housekeeping for the last time: hand everything back */
	SCRIPT_DIE,
	SCRIPT_AWAIT_SWEEP, /* until the daemon goes over the pages or the index */
	SCRIPT_SLEEP,
	SCRIPT_SLEEP_WRAP /* until the epoch of this client's first put comes again, modulo 4096 */
};

struct script {
	enum script_verb verb;
	unsigned key;
	uint32_t bytes; /* of the value */
	uint32_t expiry_ms;
	int64_t delta;
	uint64_t sleep_ns;
};

/* A call that a client made. */
struct record {
	struct linear_op op;
	unsigned key;
	uint32_t bytes; /* of a put's value */
	uint64_t stamp; /* of a put */
	uint32_t ttl_epochs;
	bool dropped; /* it had no effect and says nothing */
};

/* An asynchronous call. */
struct run_call {
	struct run_client *client;
	struct record *record; /* NULL: there is none */
	const struct script *line;
	uint64_t op;
	bool cancelled;
	uint8_t *buffer, *value;
};
#define RUN_DEPTH      5u
#define RUN_CALL_BYTES 1024u

/* How a call has ended. */
struct outcome {
	struct record *record;
	const struct script *line;
	int result;
	bool cancelled;
	const struct tarn_item *item; /* of a get that has found something */
	const uint8_t *buffer;
	uint64_t added;
};

struct run_client {
	struct run *run;
	unsigned number;
	struct sim_endpoint *ep;
	struct tarn_session *session;
	struct script script[RUN_SCRIPT];
	unsigned length, at;
	struct session_connector connector;
	struct task *task; /* the call that runs */
	struct record *record;
	uint64_t began_ns; /* by the client's clock */
	bool raised; /* its count was raised in the midst of this call */
	uint64_t wake_ns; /* it does nothing before this */
	uint64_t sleep_ns; /* end of a sleep of its script */
	uint64_t sweep_ns;           /* it waits for a sweep until this; 0: it does not */
	uint64_t house_ns, pause_ns; /* when housekeeping is due, and how long it pauses then */
	bool gone;        /* killed */
	bool lost;        /* its connection broke, and it has no other yet */
	bool finished;    /* its script is over */
	bool ended;       /* it does nothing at all any more */
	uint64_t known[RUN_KEYS], known_stamp[RUN_KEYS]; /* the value that this client saw last */
	uint64_t first_put_epoch, wrap_epoch;
	uint8_t *buffer, *value;
	struct run_call calls[RUN_DEPTH]; /* under way, if the schedule has a depth */
	unsigned call_count;
};

/* Blocks that a schedule may use: the others of their page are in use for ever. */
struct run_page {
	uint32_t page, class, blocks;
};
#define RUN_PAGES 24u

struct run {
	struct sim *sim;
	struct linear *linear;
	uint64_t seed;
	enum run_kind kind;
	unsigned nclients, nkeys;
	struct run_client clients[RUN_CLIENTS];
	char keys[RUN_KEYS][RUN_KEY_BYTES];
	uint64_t fillers[RUN_FILLERS]; /* slot words of other keys, to make slots scarce */
	unsigned filler_count;         /* of this schedule */
	char families[RUN_FAMILIES][RUN_KEYS][RUN_KEY_BYTES]; /* keys that meet, see scenario.c */
	struct run_page pages[RUN_PAGES];
	unsigned page_count;
	uint32_t timeout_ms;
	unsigned depth; /* calls of a client at a time; 1: blocking ones */
	bool caches, counters, grows; /* grows: the index is full, and there are pages for more */
	uint32_t root;  /* page of the first subtable */
	uint32_t burst; /* per 1024: the actor of the last step takes the next, too */
	uint32_t raises; /* per 1024: before a step somebody's count is raised in the midst of a call */
	uint64_t kill_step[RUN_CLIENTS], break_step[RUN_CLIENTS], flip_step,
		daemon_stop_step, daemon_kill_step; /* SIM_NEVER: does not happen */
	unsigned daemon_kills; /* so many more after that */
	bool reconnects;          /* who has lost its connection gets another one */
	bool settles;             /* in the end there is time for everything to come back */
	uint64_t quiet_ns;        /* then it has; 0: somebody is still at his script */
	bool losses;              /* somebody died or lost its connection */
	bool flipped;             /* a fault has happened: -TARN_ECORRUPT is a right answer */
	/* a fault was in this key's own bytes, RUN_KEYS: in none; the root's depth by then */
	unsigned unreadable_key;
	uint32_t unreadable_depth;
	struct record records[RUN_RECORDS];
	unsigned record_count;
	uint64_t clock; /* of calls and returns */
	bool crowded;   /* there was no room for all records: histories say nothing */
	bool failed;
	char failure[512];
	unsigned failed_key; /* RUN_KEYS: the failure is not about the history of a key */
	uint64_t deepest;
	/* what all schedules so far have done */
	struct sim_counts daemon;
	uint64_t longest_ns; /* RUN_DEATH: of all calls */
	uint64_t total_steps, total_calls, results[2][16], by_kind[RUN_KINDS];
	bool verbose;
};

struct run *run_create(void);
void run_free(struct run *run);
/* One schedule. `kind` RUN_KINDS: by chance. True: nothing wrong; else run->failure says what. */
bool run_schedule(struct run *run, uint64_t seed, enum run_kind kind);
/* The history of each key, or of the one that failed. */
void run_print(const struct run *run, FILE *file);
/* Have all come to the end of their scripts? */
bool run_quiet(struct run *run);
/* Depth of the subtable that was the first. */
uint32_t run_root_depth(const struct run *run);
void run_fail(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* scenario.c */
bool scenario_prepare(struct run *run); /* once */
bool scenario_begin(struct run *run, enum run_kind kind);
/* schedule.c */
void schedule_run(struct run *run);
/* client.c */
bool client_open(struct run_client *c);
void client_free(struct run_client *c);
uint64_t
client_next(const struct run_client *c); /* when it can act; SIM_NEVER: it waits or has ended */
/* It has waited for a sweep, and here is one. */
bool client_awaited(const struct run_client *c);
void client_act(struct run_client *c);
/* Whoever sleeps after the end of its script goes on with its housekeeping now. */
void client_wake(struct run_client *c);
void client_kill(struct run_client *c);
/*
 * Raises the client's quiescence count in the midst of a call, as the protocol allows: what it owed at
 * the raise before, which was not in this call, has been posted since. False: not now.
 */
bool client_raise(struct run_client *c);
void client_break(struct run_client *c);
/* Its daemon has died. */
void client_orphan(struct run_client *c);
/* A dead client was fenced: what it was doing has taken effect, or never does. */
void client_fenced(struct run_client *c);
void value_fill(uint8_t *value, uint64_t id, uint32_t bytes);
/* Id of a value that was read, or 0: no client ever put it. */
uint64_t value_identify(const struct run *run, unsigned key, const uint8_t *value, uint64_t bytes);
/* The call begins: its record. */
struct record *client_record(struct run_client *c, const struct script *s);
/* Fills the value, and the options of a put; the record is there already. */
struct tarn_put_options client_put_options(struct run_client *c, const struct script *s, uint64_t id,
					   uint8_t *value);
void client_outcome(struct run_client *c, const struct outcome *o);
/* Is there a call of which nobody knows how it ends? */
bool client_doubtful(const struct run_client *c);
/* pipeline.c: several calls of a client at a time */
void pipeline_open(struct run_client *c);
/* Are there some, or housekeeping beside them? */
bool pipeline_busy(const struct run_client *c);
/* When something can be done about them; SIM_NEVER: not now. */
uint64_t pipeline_next(const struct run_client *c);
/* True: it has done something; false: the next line is none for here, and no call is under way. */
bool pipeline_act(struct run_client *c);
/* structure.c */
void structure_check(struct run *run);

#endif
