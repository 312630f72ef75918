/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-main.c - see handover-main.h. Next: test-handover.c, test-handover-pool.c.
 */
#include "handover-main.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef TARN_MUTATIONS
int tarn_mutation;
#endif

static bool run_many(struct hw_test *test, uint64_t first, uint64_t schedules, uint64_t *ret_seed)
{
	for (uint64_t i = 0; i < schedules; i++) {
		*ret_seed = first + i;
		test->schedules++;
		if (!test->run(test, *ret_seed))
			return false;
	}
	return true;
}

static bool run_all(struct hw_test *test, uint64_t first, uint64_t schedules)
{
	const struct hw_world *w = test->world;
	uint64_t seed = first;
	bool ok;

	printf("1..1\n");
	ok = run_many(test, first, schedules, &seed);
	if (ok && test->schedules >= 100 && test->idle(test)) {
		ok = false;
		printf("# something has never happened, see below\n");
	}
	printf("%sok 1 - %llu schedules: ", ok ? "" : "not ", (unsigned long long)test->schedules);
	test->print(test);
	printf("\n");
	if (!ok && w->failure[0])
		printf("# seed %llu: %s\n# again: tests/sim/%s --seed %llu --verbose\n",
		       (unsigned long long)seed, w->failure, test->name, (unsigned long long)seed);
	return ok;
}

#ifdef TARN_MUTATIONS
static bool run_mutations(struct hw_test *test, uint64_t first, uint64_t schedules)
{
	bool all = true;

	printf("1..%u\n", test->mutation_count);
	for (unsigned i = 0; i < test->mutation_count; i++) {
		uint64_t seed = first;
		bool missed;

		tarn_mutation = test->mutations[i];
		missed = run_many(test, first, schedules, &seed);
		printf("%sok %u - mutation %d is caught: %llu schedules: %s\n", missed ? "not " : "",
		       i + 1, test->mutations[i], (unsigned long long)(seed - first + 1),
		       missed ? "nothing" : test->world->failure);
		all &= !missed;
		fflush(stdout);
	}
	return all;
}
#endif

static int usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--schedules N] [--first SEED] [--seed N] [--verbose] [--mutations] "
		"[--mutation M]\n",
		program);
	return 2;
}

int hw_main(struct hw_test *test, uint64_t schedules, int argc, char **argv)
{
	static const struct option options[] = {{"schedules", required_argument, NULL, 'n'},
						{"first", required_argument, NULL, 'f'},
						{"seed", required_argument, NULL, 's'},
						{"verbose", no_argument, NULL, 'v'},
						{"mutations", no_argument, NULL, 'M'},
						{"mutation", required_argument, NULL, 'm'},
						{NULL, 0, NULL, 0}};
	int option, mutation = 0;
	bool mutations = false, ok;
	uint64_t first = 1;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'n') {
			schedules = strtoull(optarg, NULL, 0);
		} else if (option == 'f') {
			first = strtoull(optarg, NULL, 0);
		} else if (option == 's') {
			first = strtoull(optarg, NULL, 0);
			schedules = 1;
		} else if (option == 'v') {
			test->world->verbose = true;
		} else if (option == 'm') {
			mutation = atoi(optarg);
		} else if (option == 'M') {
			mutations = true;
		} else {
			return usage(argv[0]);
		}
	}
	if (optind != argc)
		return usage(argv[0]);
#ifdef TARN_MUTATIONS
	tarn_mutation = mutation;
	ok = mutations ? run_mutations(test, first, schedules) : run_all(test, first, schedules);
#else
	if (mutations || mutation)
		return usage(argv[0]);
	ok = run_all(test, first, schedules);
#endif
	return ok ? 0 : 1;
}
