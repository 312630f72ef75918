/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-main.h - the command of test-handover and test-handover-pool: which schedules, and TAP
 *
 *	PROGRAM [--schedules N] [--first SEED]
 *	PROGRAM --seed N --verbose
 *	PROGRAM-mutations --mutations | --mutation M
 */
#ifndef TARN_SIM_HANDOVER_MAIN_H
#define TARN_SIM_HANDOVER_MAIN_H

#include "handover-world.h"

struct hw_test {
	const char *name;
	struct hw_world *world;
	uint64_t schedules; /* so many were run */
	/* One schedule; false: world->failure says why. */
	bool (*run)(struct hw_test *test, uint64_t seed);
	/* Something has never happened: then nothing is proven of it. */
	bool (*idle)(const struct hw_test *test);
	/* What has happened, behind "N schedules: ". */
	void (*print)(const struct hw_test *test);
	const int *mutations;
	unsigned mutation_count;
};

/* The exit code. `schedules`: unless the command says otherwise. */
int hw_main(struct hw_test *test, uint64_t schedules, int argc, char **argv);

#endif
