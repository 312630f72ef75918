/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rounds.h - how often a test does the same with other random numbers
 *
 * TARN_TEST_ROUNDS=N: so often and not as usual, as under valgrind (run-valgrind.sh), where it takes
 * thirty times as long and the second time finds little that the first one has not.
 */
#ifndef TARN_TEST_ROUNDS_H
#define TARN_TEST_ROUNDS_H

#include <stdlib.h>

static inline unsigned int rounds(unsigned int usual)
{
	const char *text = getenv("TARN_TEST_ROUNDS");

	return text ? (unsigned int)strtoul(text, NULL, 10) : usual;
}

#endif
