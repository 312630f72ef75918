/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * options.c - a command line, read by tables
 *
 * Takes what getopt_long() takes: -f FILE, -fFILE, -ab, --file FILE, --file=FILE, operands in
 * between, -- before operands that begin with a dash. Names are not abbreviated: a script would
 * break with the next option. Next to read: main.c, which calls it twice (up to the verb, and
 * behind it).
 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

static const struct option_spec *find_name(struct option_values *options, const char *name,
					   size_t n, const char ***ret_value)
{
	for (size_t i = 0; options->specs != NULL && options->specs[i].name != NULL; i++) {
		if (strlen(options->specs[i].name) != n ||
		    strncmp(options->specs[i].name, name, n) != 0)
			continue;
		*ret_value = &options->values[i];
		return &options->specs[i];
	}
	return NULL;
}

static const struct option_spec *find_letter(struct option_values *options, char letter,
					     const char ***ret_value)
{
	for (size_t i = 0; options->specs != NULL && options->specs[i].name != NULL; i++) {
		if (options->specs[i].letter != letter)
			continue;
		*ret_value = &options->values[i];
		return &options->specs[i];
	}
	return NULL;
}

static int fail(struct arguments *args, const char *name, const char *problem)
{
	args->problem_name = name;
	args->problem = problem;
	return -EINVAL;
}

static void add_names(const struct option_spec *specs, const char **names, size_t *count)
{
	for (; specs != NULL && specs->name != NULL; specs++)
		names[(*count)++] = specs->name;
}

static int fail_unknown(struct arguments *args, const char *name)
{
	const char *names[2 * OPTIONS_MAX + 1], *equals = strchr(name, '=');
	char word[64];
	size_t count = 0, n = equals != NULL ? (size_t)(equals - name) : strlen(name);

	add_names(args->own.specs, names, &count);
	add_names(args->global.specs, names, &count);
	names[count] = NULL;
	if (n < sizeof(word)) {
		memcpy(word, name, n);
		word[n] = '\0';
		args->nearest = text_nearest(word, names);
	}
	return fail(args, name - 2, "unknown option");
}

/* --name, --name=value, --name value. Returns how many arguments that were. */
static int parse_long(struct arguments *args, int argc, char **argv)
{
	const char *name = argv[0] + 2, *equals = strchr(name, '=');
	size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
	const char **value = NULL;
	const struct option_spec *spec = find_name(&args->own, name, n, &value);

	if (spec == NULL)
		spec = find_name(&args->global, name, n, &value);
	if (spec == NULL)
		return fail_unknown(args, name);
	if (spec->argument == NULL && equals != NULL)
		return fail(args, argv[0], "this option takes no argument");
	if (spec->argument == NULL) {
		*value = "";
		return 1;
	}
	if (equals == NULL && argc < 2)
		return fail(args, argv[0], "an argument is missing");
	*value = equals != NULL ? equals + 1 : argv[1];
	return equals != NULL ? 1 : 2;
}

/* -a, -abc, -fFILE, -f FILE */
static int parse_letters(struct arguments *args, int argc, char **argv)
{
	for (const char *letter = argv[0] + 1; *letter != '\0'; letter++) {
		const char **value = NULL;
		const struct option_spec *spec = find_letter(&args->own, *letter, &value);

		if (spec == NULL)
			spec = find_letter(&args->global, *letter, &value);
		if (spec == NULL) {
			args->problem_letter =
				letter[1] != '\0' || letter > argv[0] + 1 ? *letter : '\0';
			return fail(args, argv[0], "unknown option");
		}
		if (spec->argument == NULL) {
			*value = "";
			continue;
		}
		if (letter[1] == '\0' && argc < 2)
			return fail(args, argv[0], "an argument is missing");
		*value = letter[1] != '\0' ? letter + 1 : argv[1];
		return letter[1] != '\0' ? 1 : 2;
	}
	return 1;
}

static bool is_negative_number(const char *text)
{
	return text[0] == '-' && isdigit((unsigned char)text[1]);
}

int options_parse(struct arguments *args, int argc, char **argv, bool first_only, bool negative)
{
	int i = 0, used;

	while (i < argc) {
		if (strcmp(argv[i], "--") == 0 && !first_only) {
			for (i++; i < argc; i++)
				args->operands[args->count++] = argv[i];
			break;
		}
		if (argv[i][0] != '-' || argv[i][1] == '\0' ||
		    (negative && is_negative_number(argv[i]))) {
			args->operands[args->count++] = argv[i++];
			if (first_only)
				break;
			continue;
		}
		if (strncmp(argv[i], "--", 2) == 0)
			used = parse_long(args, argc - i, argv + i);
		else
			used = parse_letters(args, argc - i, argv + i);
		if (used < 0)
			return used;
		i += used;
	}
	return i;
}
