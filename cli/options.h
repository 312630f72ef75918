/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * options.h - a command line, read by the tables that also make the help text
 *
 * Not getopt_long(): global options stand before or after the verb, `add KEY -5` has a negative
 * number, help is made from the same tables, and a wrong name is answered with the nearest right
 * one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define OPTIONS_MAX 12 /* of one table */

/* A table ends with an entry of zeros. */
struct option_spec {
	const char *name;     /* long name */
	char letter;          /* 0: none */
	const char *argument; /* what to call it, "FILE"; NULL: takes none */
	const char *help;     /* one line */
};

struct option_values {
	const struct option_spec *specs;
	/* by place in the table; NULL: not given; "" for one without argument */
	const char *values[OPTIONS_MAX];
};

struct arguments {
	struct option_values global, own;
	char **operands; /* points into the command line */
	size_t count;
	const char *problem_name; /* of a failed parse: the argument that is wrong, and ... */
	const char *problem;      /* ... what is wrong with it */
	char problem_letter;      /* for a letter in the midst of others */
	const char *nearest;      /* NULL: nothing is near */
};

/*
 * Sorts the command line (argv[0] left out) into options and operands. operands has room for argc
 * pointers. first_only: stops behind the first operand and returns how many arguments it has used:
 * the verb and what is before it. negative: "-5" is an operand. Returns a count, or -EINVAL with
 * args->problem.
 */
int options_parse(struct arguments *args, int argc, char **argv, bool first_only, bool negative);
