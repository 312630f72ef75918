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
#define RUN_RECORDS      52u
#define RUN_KEY_BYTES    8u
#define RUN_BUFFER_BYTES (768u * 1024u)
#define RUN_FAMILIES     4u
#define RUN_FILLERS      18u

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
	RUN_LATE,    /* fault: words of a WRITE take effect after the requests behind it */
	RUN_KINDS
};
const char *run_kind_name(enum run_kind kind);

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

struct run_client {
	struct run *run;
	unsigned number;
	struct sim_endpoint *ep;
	struct tarn_session *session;
	struct script script[RUN_SCRIPT];
	unsigned length, at;
	struct task *task; /* the call that runs */
	struct record *record;
	uint64_t wake_ns; /* of a sleep */
	bool gone;        /* killed */
	bool lost;        /* its connection broke */
	bool ended;
	uint64_t known[RUN_KEYS], known_stamp[RUN_KEYS]; /* the value that this client saw last */
	uint64_t first_put_epoch;
	uint8_t *buffer, *value;
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
	bool caches;
	uint32_t burst; /* per 1024: the actor of the last step takes the next, too */
	uint64_t kill_step[RUN_CLIENTS], break_step[RUN_CLIENTS], flip_step,
		daemon_stop_step; /* SIM_NEVER: does not happen */
	bool flipped;             /* a fault has happened: -TARN_ECORRUPT is a right answer */
	struct record records[RUN_RECORDS];
	unsigned record_count;
	uint64_t clock; /* of calls and returns */
	bool failed;
	char failure[512];
	unsigned failed_key; /* RUN_KEYS: the failure is not about the history of a key */
	uint64_t deepest;
	/* what all schedules so far have done */
	uint64_t total_steps, total_calls, results[2][16], by_kind[RUN_KINDS];
	bool verbose;
};

struct run *run_create(void);
void run_free(struct run *run);
/* One schedule. `kind` RUN_KINDS: by chance. True: nothing wrong; else run->failure says what. */
bool run_schedule(struct run *run, uint64_t seed, enum run_kind kind);
/* The history of each key, or of the one that failed. */
void run_print(const struct run *run, FILE *file);
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
void client_act(struct run_client *c);
void client_kill(struct run_client *c);
void client_break(struct run_client *c);
void value_fill(uint8_t *value, uint64_t id, uint32_t bytes);
/* Id of a value that was read, or 0: no client ever put it. */
uint64_t value_identify(const struct run *run, unsigned key, const uint8_t *value, uint64_t bytes);
/* structure.c */
void structure_check(struct run *run);

#endif
