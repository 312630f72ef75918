/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-sync.c - schedules of locks, queues, barriers and epoch counters, from seeds
 *
 *	test-sync [--schedules N] [--first SEED] [--kind lock|queue|barrier|epoch]
 *	test-sync --mutations [--schedules N]       each protection taken away (a build with TARN_MUTATIONS)
 *	test-sync --seed N --kind KIND [--mutation M]
 *
 * Prints TAP. Next: sync-world.h.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutation.h"
#include "sync-world.h"

#ifdef TARN_MUTATIONS
int tarn_mutation;
#endif

static const struct kind {
	const char *name;
	void (*schedule)(struct world *world, uint64_t seed);
	int first, last; /* mutations that it has to notice; of 101 and 102, one */
} kinds[] = {
	{"lock", sync_lock_schedule, MUTATION_SYNC_ARM, MUTATION_LOCK_OVERTAKEN},
	{"queue", sync_queue_schedule, MUTATION_QUEUE_CHECKSUM, MUTATION_QUEUE_LATE},
	{"barrier", sync_barrier_schedule, MUTATION_BARRIER_ALL, MUTATION_BARRIER_ALL},
	{"epoch", sync_epoch_schedule, 0, 0},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct arguments {
	uint64_t schedules, first;
	const struct kind *kind; /* NULL: all */
	bool mutations, verbose;
	int mutation;
};

/* What may go wrong follows from the seed; in a quarter of the schedules nothing does. */
static bool run_one(struct world *w, const struct kind *kind, uint64_t seed)
{
	static const unsigned faults[] = {0,
					  FAULT_STALL,
					  FAULT_KILL,
					  FAULT_LATE | FAULT_AWAY,
					  FAULT_STALL | FAULT_KILL,
					  FAULT_STALL | FAULT_KILL | FAULT_LATE,
					  FAULT_KILL | FAULT_LATE | FAULT_AWAY,
					  0};

	world_reset(w, seed);
	w->faults = faults[seed % 8];
	w->rare = 30u << seed / 8 % 4;
	kind->schedule(w, seed);
	world_settle(w);
	return !w->failure[0];
}

/* True: none of them has found anything. */
static bool run_many(struct world *w, const struct kind *kind, const struct arguments *a,
		     uint64_t *ret_seed)
{
	for (uint64_t i = 0; i < a->schedules; i++) {
		*ret_seed = a->first + i;
		if (!run_one(w, kind, *ret_seed))
			return false;
	}
	return true;
}

static bool wanted(const struct arguments *a, const struct kind *kind)
{
	return !a->kind || a->kind == kind;
}

static bool run_kinds(struct world *w, const struct arguments *a)
{
	bool all = true;

	printf("1..%zu\n", a->kind ? 1 : KINDS);
	for (unsigned i = 0, n = 0; i < KINDS; i++) {
		uint64_t seed = 0;
		bool ok;

		if (!wanted(a, &kinds[i]))
			continue;
		w->steps = w->kills = w->lates = w->stalls = 0;
		ok = run_many(w, &kinds[i], a, &seed);
		printf("%sok %u - %s: %llu schedules", ok ? "" : "not ", ++n, kinds[i].name,
		       (unsigned long long)(seed - a->first + 1));
		printf(", %llu steps, %llu stops, %llu kills, %llu lost connections\n",
		       (unsigned long long)w->steps, (unsigned long long)w->stalls,
		       (unsigned long long)w->kills, (unsigned long long)w->lates);
		if (!ok)
			printf("# seed %llu: %s\n# again: --kind %s --seed %llu\n",
			       (unsigned long long)seed, w->failure, kinds[i].name,
			       (unsigned long long)seed);
		all &= ok;
		fflush(stdout);
	}
	return all;
}

#ifdef TARN_MUTATIONS
static bool run_mutations(struct world *w, const struct arguments *a)
{
	bool all = true;

	printf("1..%d\n", MUTATION_SYNC_LAST - MUTATION_SYNC_FIRST + 1);
	for (int m = MUTATION_SYNC_FIRST; m <= MUTATION_SYNC_LAST; m++) {
		const struct kind *kind = kinds;
		uint64_t seed = 0;
		bool missed;

		while (m > kind->last)
			kind++;
		tarn_mutation = m;
		missed = run_many(w, kind, a, &seed);
		printf("%sok %d - mutation %d (%s) is caught: ", missed ? "not " : "",
		       m - MUTATION_SYNC_FIRST + 1, m, kind->name);
		printf("%llu schedules: %s\n", (unsigned long long)(seed - a->first + 1),
		       missed ? "nothing" : w->failure);
		all &= !missed;
		fflush(stdout);
	}
	return all;
}
#endif

static int usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--schedules N] [--first SEED] [--seed SEED] [--kind "
		"lock|queue|barrier|epoch] "
		"[--mutations] [--mutation M]\n",
		program);
	return 2;
}

static int parse(int argc, char **argv, struct arguments *a)
{
	static const struct option options[] = {
		{"schedules", required_argument, NULL, 'n'},
		{"first", required_argument, NULL, 'f'},
		{"seed", required_argument, NULL, 's'},
		{"kind", required_argument, NULL, 'k'},
		{"mutations", no_argument, NULL, 'M'},
		{"mutation", required_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	int option;

	*a = (struct arguments){.schedules = 400, .first = 1};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'n') {
			a->schedules = strtoull(optarg, NULL, 0);
		} else if (option == 'f' || option == 's') {
			a->first = strtoull(optarg, NULL, 0);
			if (option == 's')
				a->schedules = 1;
		} else if (option == 'k') {
			for (unsigned i = 0; i < KINDS; i++)
				if (!strcmp(optarg, kinds[i].name))
					a->kind = &kinds[i];
			if (!a->kind)
				return usage(argv[0]);
		} else if (option == 'M') {
			a->mutations = true;
		} else if (option == 'm') {
			a->mutation = atoi(optarg);
		} else {
			return usage(argv[0]);
		}
	}
	return optind == argc ? 0 : usage(argv[0]);
}

int main(int argc, char **argv)
{
	struct world *world = calloc(1, sizeof(*world));
	struct arguments a;
	bool ok;

	if (!world || parse(argc, argv, &a))
		return 2;
#ifdef TARN_MUTATIONS
	tarn_mutation = a.mutation;
	ok = a.mutations ? run_mutations(world, &a) : run_kinds(world, &a);
#else
	if (a.mutations || a.mutation)
		return usage(argv[0]);
	ok = run_kinds(world, &a);
#endif
	world_free(world);
	return ok ? 0 : 1;
}
