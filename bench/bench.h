/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.h - inside of tarn-bench: what its files share
 *
 * tarn-bench.c options and the order of things; load.c fills the pool; run.c workers, rounds and
 * operations; ceiling.c the table's and the fabric's loops; report.c medians and output. All
 * workers, threads as well as processes, write into one shared mapping (struct shared), each into
 * places of its own.
 *
 * A run is `rounds` rounds; each has the same steps one after the other: the hash table, each mix,
 * the raw READs. So what disturbs the machine for a while disturbs all of them, and the medians
 * over rounds compare like with like.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
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

enum bench_exit { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_UNREACHABLE = 3 };

struct arguments {
	const char *uri, *dist; /* dist: as given */
	struct workload workload;
	const char *mix_texts[BENCH_MIXES_MAX];
	struct workload_mix mixes[BENCH_MIXES_MAX];
	uint32_t nmixes;
	uint32_t threads, processes, rounds;
	double duration, warmup; /* seconds */
	bool load, clean, verify, json, no_cache;
	bool ceiling_table, ceiling_raw;
	uint64_t cache_bytes; /* 0: the library's default */
};

/* What is measured: the operations, then the two ceilings. */
#define TALLY_TABLE WORKLOAD_OPS
#define TALLY_RAW   (WORKLOAD_OPS + 1)
#define TALLIES     (WORKLOAD_OPS + 2)

/* One kind of work of one worker in one round. */
struct tally {
	uint64_t count, misses;
	uint64_t elapsed_ns; /* of the steps in which this kind occurs, others' time included */
	/* of a sample of the operations: differences of struct tarn_session_stats */
	uint64_t sampled, round_trips, posts, requests, cache_hits;
	struct hist hist;
};

struct shared {
	/* barrier of all workers; who fails sets failed, which ends it for the others too */
	atomic_uint arrived, generation;
	atomic_int failed; /* an error code of the first failure, or 0 */
	char error[512];   /* its text; written by who has set failed */
	struct tarn_pool_info pool;
	uint64_t pool_page_bytes, table_page_bytes;
	uint32_t nworkers, rounds;
	struct tally tallies[]; /* [round][worker][TALLIES] */
};

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
	uint32_t index, nworkers;
	bool verify;
	uint32_t capacity; /* of buffer */
	uint64_t writes, fresh;
	uint64_t misses; /* since the last look */
	struct workload_picker picker;
	uint64_t key_words[WORKLOAD_KEY_MAX / 8];
	uint8_t *value, *buffer;
};

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

/* ---- ceiling.c ------------------------------------------------------------------------------- */

/* Looks up keys in the table until `until_ns`. Returns a negative code that has been noted, or 0.
 */
int ceiling_table(struct worker *worker, uint64_t until_ns, struct tally *tally);

/* Finds the pages that the READs go to. 0, or a negative code that has been noted. */
int raw_create(struct worker *worker, struct raw **ret_raw);
void raw_free(struct raw *raw);
/* READs as a get does, until `until_ns`. */
int ceiling_raw(struct worker *worker, uint64_t until_ns, struct tally *tally);

/* ---- report.c -------------------------------------------------------------------------------- */

/* Prints everything to stdout. Returns an exit code: a run that measured nothing has failed. */
enum bench_exit report_print(const struct bench *bench, const struct machine *machine);
