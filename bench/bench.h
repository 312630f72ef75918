/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.h - inside of tarn-bench: what its files share
 *
 * options.c and help.c the command line; tarn-bench.c the order of things; load.c fills the pool;
 * run.c workers and rounds; step.c operations, with rate.c when they start, ycsb.c, grow.c and
 * scan.c what YCSB needs, trace.c and replay.c those of a trace; ceiling.c the table's loop, raw.c
 * those on the bare fabric; report.c medians, and report-*.c and plot*.c output. All workers, threads
 * as well as processes, write into one shared mapping (struct shared), each into places of its own.
 *
 * A run is `rounds` rounds; each has the same steps one after the other: the hash table, each mix,
 * the raw READs of a get, each kind of raw post. So what disturbs the machine for a while disturbs
 * all of them, and the medians over rounds compare like with like.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>
#include <sys/types.h>

#include "clock.h"
#include "hist.h"
#include "machine.h"
#include "table.h"
#include "workload.h"

#include <tarn/tarn.h>

#define BENCH_MIXES_MAX   8u
#define BENCH_ROUNDS_MAX  99u
#define BENCH_WORKERS_MAX 256u
#define BENCH_DEPTH_MAX   1024u
#define BENCH_RATE_MAX    1000000000u
/* of --raw-size: with a word to CAS behind it, it must fit into a block (raw.c) */
#define BENCH_RAW_BYTES_MAX ((256u << 10) - 64)

/* Kinds of single posts. */
enum raw_kind { RAW_READ, RAW_READ_READ, RAW_WRITE, RAW_CAS, RAW_WRITE_CAS, RAW_KINDS };

extern const char *const raw_kind_names[RAW_KINDS];

enum bench_exit { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_UNREACHABLE = 3 };

struct arguments {
	const char *uri, *dist;  /* dist: as given */
	const char *value_sizes; /* as given, or NULL */
	const char *trace;       /* a file, or NULL */
	uint64_t trace_lines;
	uint32_t value_most; /* bytes of the largest value, the trace's included */
	const char *ycsb;    /* the letter, or NULL */
	struct workload workload;
	const char *mix_texts[BENCH_MIXES_MAX];
	struct workload_mix mixes[BENCH_MIXES_MAX];
	uint32_t nmixes;
	uint32_t threads, processes, rounds;
	uint32_t depth;                 /* operations of a batch; 1: none */
	double duration, warmup, pause; /* seconds */
	uint64_t rate;                  /* operations per second of all workers; 0: as they come */
	bool load, clean, verify, json, no_cache;
	bool histogram, plot_text;
	const char *plot_file; /* or NULL */
	bool ceiling_table, ceiling_raw;
	bool load_given, ceiling_given, key_size_given;
	uint32_t raw_kinds;   /* bit: enum raw_kind */
	uint32_t raw_bytes;   /* of READ and WRITE; 0: those of a get and a put */
	uint64_t cache_bytes; /* 0: the library's default */
};

/* What is measured: the operations, then the two ceilings, then the single posts. */
#define TALLY_TABLE WORKLOAD_OPS
#define TALLY_RAW   (WORKLOAD_OPS + 1)
#define TALLY_POSTS (WORKLOAD_OPS + 2) /* + enum raw_kind */
#define TALLIES     (TALLY_POSTS + RAW_KINDS)

/* One kind of work of one worker in one round. */
struct tally {
	uint64_t count, misses;
	uint64_t elapsed_ns; /* of the steps in which this kind occurs, others' time included */
	/* of a sample of the operations: differences of struct tarn_session_stats */
	uint64_t sampled, round_trips, posts, requests, cache_hits;
	struct hist hist;
};

/* --rate: what one worker did of one mix, in all rounds. With --depth an operation is a batch. */
struct pace {
	uint64_t started;
	uint64_t late; /* should have started before the end of their step, and did not */
	uint64_t elapsed_ns;
};

struct shared {
	/* barrier of all workers; who fails sets failed, which ends it for the others too */
	atomic_uint arrived, generation;
	atomic_int failed; /* an error code of the first failure, or 0 */
	char error[512];   /* its text; written by who has set failed */
	struct tarn_pool_info pool;
	uint64_t pool_page_bytes, table_page_bytes;
	uint32_t raw_read_bytes, raw_write_bytes; /* of single posts */
	uint32_t nworkers, rounds;
	/* grow.c: keys that a worker has inserted in this step; each on a cache line of its own */
	struct {
		_Alignas(64) _Atomic uint64_t count;
	} grown[BENCH_WORKERS_MAX];
	struct pace paces[BENCH_WORKERS_MAX][BENCH_MIXES_MAX];
	struct tally tallies[]; /* [round][worker][TALLIES] */
};

struct raw;
struct batch;
struct scans;
struct replay;

struct bench {
	const struct arguments *arguments;
	struct shared *shared;
	struct table table;
};

static inline struct tally *bench_tallies(const struct bench *bench, uint32_t round,
					  uint32_t worker)
{
	return &bench->shared
			->tallies[((uint64_t)round * bench->shared->nworkers + worker) * TALLIES];
}

/* One worker: a thread of one of the processes. Everything but `bench` is its own. */
struct worker {
	struct bench *bench;
	const struct workload *workload; /* hot, so close at hand */
	struct tarn_session *session;
	struct raw *raw;
	struct batch *batch;           /* with a depth above 1 */
	struct scans *scans;           /* if a mix has any */
	struct replay *replay;         /* with --trace ... */
	const struct trace_line *line; /* ... the operation under way */
	uint32_t index, nworkers;
	bool verify;
	uint32_t capacity; /* of buffer */
	uint64_t writes, fresh;
	uint64_t misses; /* since the last look */
	struct workload_picker picker;
	uint64_t key_words[WORKLOAD_KEY_MAX / 8];
	uint8_t *value, *buffer;
};

/* ---- options.c, help.c ----------------------------------------------------------------------- */

extern const char bench_help[];
/* The values of --mix and --dist. 0, or -EINVAL with a text. */
int mix_parse(const char *text, struct arguments *arguments);
int dist_parse(const char *text, struct arguments *arguments);
/* -1: go on; else exit with this code. */
int arguments_parse(int argc, char **argv, struct arguments *ret_arguments);

/* ---- tarn-bench.c ---------------------------------------------------------------------------- */

/* Notes the first failure, for all. Returns code. */
int bench_fail(struct bench *bench, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static inline bool bench_failed(const struct bench *bench)
{
	/* relaxed: a flag to stop at; the text is read after the workers have ended */
	return atomic_load_explicit(&bench->shared->failed, memory_order_relaxed) != 0;
}
/* A session with the arguments' options. 0, or a negative code that has been noted. */
int bench_session_open(struct bench *bench, struct tarn_session **ret_session);

/* ---- load.c ---------------------------------------------------------------------------------- */

/* Looks at the pool and loads the keys if they are to be loaded. 0, or a negative code that has
 * been noted. */
int load_run(struct bench *bench);
/* Deletes what the run has left: loaded keys and counters. */
int load_clean(struct bench *bench);

/* ---- run.c ----------------------------------------------------------------------------------- */

/* Starts the workers and waits for them. 0, or a negative code that has been noted. */
int run_workers(struct bench *bench);

/* ---- step.c ---------------------------------------------------------------------------------- */

/* One mix until `until_ns`. 0, or a negative code that has been noted. */
int step_run(struct worker *worker, const struct workload_mix *mix, uint64_t until_ns,
	     struct tally *tallies, struct pace *pace);
/* Notes that an operation has failed. Returns code. */
int step_failed(struct worker *worker, const char *what, int code);
/* Lets the location cache learn every key; likewise. */
int step_learn(struct worker *worker);

/* ---- ycsb.c ---------------------------------------------------------------------------------- */

/* Takes the letter of a workload. 0, or -EINVAL with a text. */
int ycsb_parse(const char *text, struct arguments *arguments);
/* When all options are known: sets what the command line does not say; likewise. */
int ycsb_apply(struct arguments *arguments);

/* ---- grow.c ---------------------------------------------------------------------------------- */

/* The next new item. 0, or a negative code that has been noted. */
int grow_next(struct worker *worker, uint64_t *ret_id);
/* It is in the pool: others may pick it. */
void grow_done(struct worker *worker);
/* The index of the item that has `rank` younger ones. */
uint64_t grow_latest(const struct worker *worker, uint64_t rank);
/* Deletes what this worker has added, when no worker reads it any more; as grow_next(). */
int grow_take_back(struct worker *worker);

/* ---- scan.c ---------------------------------------------------------------------------------- */

/* Walks the pool once for places to begin at. 0, or a negative code that has been noted. */
int scans_create(struct worker *worker, struct scans **ret_scans);
void scans_free(struct scans *scans);
/* One scan with its values; likewise. */
int scans_do(struct worker *worker);

/* ---- trace.c --------------------------------------------------------------------------------- */

#define TRACE_TEXT_MAX (WORKLOAD_KEY_MAX + 64u)

struct trace_line {
	enum workload_op op; /* get, put or delete */
	const char *key;
	uint32_t key_bytes, value_bytes;
};

struct trace {
	FILE *file;
	const char *path;
	uint64_t number;      /* of the line read last */
	uint32_t value_bytes; /* where a line has no size */
	char text[TRACE_TEXT_MAX];
};

/* Reads the trace once and makes a mix of it. 0, or a negative code with a text. */
int trace_check(struct arguments *arguments);
int trace_open(const struct arguments *arguments, struct trace *ret_trace);
void trace_close(struct trace *trace);
void trace_rewind(struct trace *trace);
/* The next line, whose key lives until the one after it: 1, 0 at the end, or a negative code with a
 * text. */
int trace_next(struct trace *trace, struct trace_line *ret_line);
/* The value of the line's key, in a buffer that keeps the rest; is this one? Its size is not known. */
void trace_value(const struct trace_line *line, uint64_t write, uint8_t *ret_value);
bool trace_verify(const struct trace_line *line, const uint8_t *value, uint64_t value_bytes);

/* ---- replay.c -------------------------------------------------------------------------------- */

int replay_create(struct worker *worker, struct replay **ret_replay);
void replay_free(struct replay *replay);
/* Must more be read first? That takes milliseconds. */
bool replay_is_empty(const struct worker *worker);
/* Reads. 1, 0 when this worker has nothing to do, or a negative code that has been noted. */
int replay_fill(struct worker *worker);
const struct trace_line *replay_next(struct worker *worker);
/* One operation. 0, or a negative code that has been noted. */
int replay_do(struct worker *worker, const struct trace_line *line);

/* ---- rate.c ---------------------------------------------------------------------------------- */

/* One worker's timetable of one step; interval_ns is 0 without --rate. */
struct rate {
	double interval_ns, first_ns; /* first_ns: after start_ns */
	uint64_t start_ns, started;
};

struct rate rate_begin(const struct worker *worker, uint64_t start_ns);
/* When the next operation should start. */
uint64_t rate_due_ns(const struct rate *rate);
/* Waits until then; returns at once when it is late. Returns when it should have been. */
uint64_t rate_wait(struct rate *rate);
/* Notes what became of the timetable up to `until_ns`. */
void rate_end(const struct rate *rate, uint64_t until_ns, uint64_t end_ns, struct pace *pace);

/* ---- batch.c --------------------------------------------------------------------------------- */

int batch_create(struct worker *worker, uint32_t depth, struct batch **ret_batch);
void batch_free(struct batch *batch);
/* As many gets or puts at a time as the depth says. 0, or a negative code that has been noted. */
int batch_do(struct worker *worker, enum workload_op op);
/* Sets the key of place `i`, below the depth, of an item. */
void batch_set(struct batch *batch, uint32_t i, uint64_t id);
/* Gets the first `count` keys. 0, or a negative code that has been noted. */
int batch_get(struct worker *worker, struct batch *batch, uint32_t count);
/* As many lookups in the table, with the misses of all under way at a time; likewise. */
int batch_table(struct worker *worker);

/* ---- ceiling.c ------------------------------------------------------------------------------- */

/* Looks up keys in the table until `until_ns`. Returns a negative code that has been noted, or 0.
 */
int ceiling_table(struct worker *worker, uint64_t until_ns, struct tally *tally);

/* ---- raw.c ----------------------------------------------------------------------------------- */

/* Adds a list of kinds. 0, or -EINVAL with a text. */
int raw_kinds_parse(const char *text, uint32_t *inout_kinds);
/* Finds the places that the requests go to. 0, or a negative code that has been noted. */
int raw_create(struct worker *worker, struct raw **ret_raw);
/* Before its session is closed: gives the block back that was written to. */
void raw_free(struct raw *raw);
/* READs as a cold get does, until `until_ns`. */
int ceiling_raw(struct worker *worker, uint64_t until_ns, struct tally *tally);
/* Posts of one kind, until `until_ns`. */
int raw_run(struct worker *worker, enum raw_kind kind, uint64_t until_ns, struct tally *tally);

/* ---- report-rate.c --------------------------------------------------------------------------- */

/* Asked for and achieved, of each mix; an array. */
json_t *rate_json(const struct bench *bench);
void rate_print(const struct bench *bench);

/* ---- report-hist.c --------------------------------------------------------------------------- */

/* The latencies of one kind of work, of all rounds and workers. */
void report_hist(const struct bench *bench, unsigned int kind, struct hist *ret_hist);
/* Percentiles of all kinds that were measured: an object with an array for each. */
json_t *hist_json(const struct bench *bench);
void hist_print(const struct bench *bench);

/* ---- plot.c, plot-file.c --------------------------------------------------------------------- */

/* NULL: as text. 0, or -EINVAL with a text. */
int plot_parse(const char *text, struct arguments *arguments);
/* Draws what was asked for. 0, or a negative code with a text. */
int plot_print(const struct bench *bench);
/* To the file. Likewise. */
int plot_write(const struct bench *bench);

/* ---- report.c -------------------------------------------------------------------------------- */

#define BENCH_NAME_MAX 48u
/* What a row of the table is called. Returns `ret_name`. */
const char *report_name(const struct bench *bench, unsigned int kind,
			char ret_name[BENCH_NAME_MAX]);
/* Prints everything to stdout. Returns an exit code: a run that measured nothing has failed. */
enum bench_exit report_print(const struct bench *bench, const struct machine *machine);
