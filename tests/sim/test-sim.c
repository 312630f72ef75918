/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-sim.c - runs schedules and reports
 *
 *	test-sim [--schedules N] [--first SEED] [--seconds S] [--kind KIND]
 *	test-sim --seed N [--kind KIND] [--verbose]
 *
 * Prints TAP. With --mutation N (check-mutations: it is built for that) success is to find a violation.
 * Next: run.h.
 */
#include <getopt.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mutation.h"
#include "run.h"

#ifdef TARN_MUTATIONS
int tarn_mutation;
#endif

struct arguments {
	uint64_t schedules, first;
	double seconds;
	enum run_kind kind;
	bool one, verbose;
	int mutation; /* 0: none */
	const char *program;
};

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--schedules N] [--first SEED] [--seconds S] [--seed N] [--kind KIND] "
		"[--verbose] "
		"[--mutation N]\nkinds:",
		program);
	for (unsigned i = 0; i < RUN_KINDS; i++)
		fprintf(stderr, " %s", run_kind_name((enum run_kind)i));
	fputc('\n', stderr);
	return 2;
}

static int parse(int argc, char **argv, struct arguments *a)
{
	static const struct option options[] = {
		{"schedules", required_argument, NULL, 'n'},
		{"first", required_argument, NULL, 'f'},
		{"seconds", required_argument, NULL, 't'},
		{"seed", required_argument, NULL, 's'},
		{"kind", required_argument, NULL, 'k'},
		{"verbose", no_argument, NULL, 'v'},
		{"mutation", required_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	int option;

	*a = (struct arguments){
		.schedules = 100000, .first = 1, .kind = RUN_KINDS, .program = argv[0]};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'n':
			a->schedules = strtoull(optarg, NULL, 0);
			break;
		case 's':
			a->one = true;
			a->schedules = 1;
			a->first = strtoull(optarg, NULL, 0);
			break;
		case 'f':
			a->first = strtoull(optarg, NULL, 0);
			break;
		case 't':
			a->seconds = strtod(optarg, NULL);
			break;
		case 'k':
			for (unsigned i = 0; i < RUN_KINDS; i++)
				if (!strcmp(optarg, run_kind_name((enum run_kind)i)))
					a->kind = (enum run_kind)i;
			if (a->kind == RUN_KINDS)
				return usage(argv[0]);
			break;
		case 'v':
			a->verbose = true;
			break;
		case 'm':
			a->mutation = atoi(optarg);
			break;
		default:
			return usage(argv[0]);
		}
	}
	return optind == argc ? 0 : usage(argv[0]);
}

static void progress(const struct arguments *a, uint64_t done, double spent)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%llu of %llu schedules, %.0f a second ",
			(unsigned long long)done, (unsigned long long)a->schedules,
			(double)done / spent);
}

static void summary(const struct run *run, uint64_t done, double spent)
{
	static const char *const names[] = {"get",          "put",    "put-if-absent",
					    "put-if-stamp", "delete", "add"};

	printf("# %llu schedules, %llu steps, %llu calls in %.1f s: %.0f schedules a second\n",
	       (unsigned long long)done, (unsigned long long)run->total_steps,
	       (unsigned long long)run->total_calls, spent, (double)done / spent);
	printf("# kinds:");
	for (unsigned i = 0; i < RUN_KINDS; i++)
		printf(" %s %llu", run_kind_name((enum run_kind)i),
		       (unsigned long long)run->by_kind[i]);
	printf("\n# daemon: blocks aged %llu, leaked ones found %llu, splits %llu, keys evicted %llu, "
	       "starts after a death %llu",
	       (unsigned long long)run->daemon.aged, (unsigned long long)run->daemon.leaked,
	       (unsigned long long)run->daemon.splits, (unsigned long long)run->daemon.evicted,
	       (unsigned long long)run->daemon.starts);
	if (run->by_kind[RUN_DEATH])
		printf("\n# the longest call beside a death: %llu us, of %u",
		       (unsigned long long)run->longest_ns / 1000, RUN_WAIT_NS / 1000);
	printf("\n# calls that worked, and that did not:");
	for (unsigned i = 0; i < 6; i++)
		printf(" %s %llu/%llu", names[i], (unsigned long long)run->results[1][i],
		       (unsigned long long)run->results[0][i]);
	printf("\n");
}

/* A simulation in which something never happens proves nothing of it. */
static bool idle(const struct arguments *a, const struct run *run, uint64_t done)
{
	const struct sim_counts *d = &run->daemon;

	return a->kind == RUN_KINDS && !a->mutation && done >= 5000 &&
	       (!d->aged || !d->leaked || !d->splits || !d->evicted || !d->starts);
}

static void report_failure(const struct arguments *a, const struct run *run)
{
	run_print(run, stdout);
	printf("# again: %s --seed %llu%s%s --verbose\n", a->program, (unsigned long long)run->seed,
	       a->kind == RUN_KINDS ? "" : " --kind ",
	       a->kind == RUN_KINDS ? "" : run_kind_name(a->kind));
}

int main(int argc, char **argv)
{
	struct arguments a;
	struct run *run;
	uint64_t done = 0;
	double begun = seconds_now();
	bool failed = false;

	if (parse(argc, argv, &a))
		return 2;
#ifdef TARN_MUTATIONS
	tarn_mutation = a.mutation;
#endif
	/* sessions come and go with each schedule: keep their memory */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	run = run_create();
	if (!run) {
		printf("Bail out! no memory for the simulation\n");
		return 1;
	}
	run->verbose = a.verbose;
	printf("1..1\n");
	while (!failed && done < a.schedules &&
	       (a.seconds <= 0 || seconds_now() - begun < a.seconds)) {
		failed = !run_schedule(run, a.first + done, a.kind);
		done++;
		if (done % 1000 == 0)
			progress(&a, done, seconds_now() - begun);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%60s\r", "");
	if (!failed && idle(&a, run, done)) {
		failed = true;
		printf("# the daemon has not done all of its work, see below\n");
	} else if (failed && (!a.mutation || a.verbose)) {
		report_failure(&a, run);
	}
	summary(run, done, seconds_now() - begun);
	if (a.mutation)
		printf("%sok 1 - mutation %d is caught: after %llu schedules, %.1f s%s%s\n",
		       failed ? "" : "not ", a.mutation, (unsigned long long)done,
		       seconds_now() - begun, failed ? ": " : "", failed ? run->failure : "");
	else
		printf("%sok 1 - simulated schedules from seed %llu\n", failed ? "not " : "",
		       (unsigned long long)a.first);
	run_free(run);
	return failed != (a.mutation != 0);
}
