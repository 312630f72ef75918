/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * complete.c - `tarn __complete`, by which shells complete a command line
 *
 * Made from the tables that the command line is read by. It gets the words behind `tarn`, the last of them the one that is being
 * typed (perhaps empty), and prints what could stand there: a line each, the text, a tab, and what it is. A line `:file` means
 * names of files. It opens no pool: a shell must not wait. One thread. Next to read: main.c.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "top.h"
#include "verbs.h"

struct state {
	struct cli *cli;
	const char *word; /* what is being typed */
};

static void offer(const struct state *state, const char *prefix, const char *text, const char *help)
{
	char line[512];
	int length;

	length = snprintf(line, sizeof(line), "%s%s\t%s\n", prefix, text, help);
	if (length > 0 && (size_t)length < sizeof(line) &&
	    strncmp(line, state->word, strlen(state->word)) == 0)
		writer_raw(state->cli->writer, line, (size_t)length);
}

static void offer_options(const struct state *state, const struct option_spec *options)
{
	for (; options != NULL && options->name != NULL; options++)
		offer(state, "--", options->name, options->help);
}

/* A value that is a file, by what the tables call it. */
static bool is_file(const char *argument)
{
	return strstr(argument, "FILE") != NULL || strstr(argument, "DIR") != NULL ||
	       strstr(argument, "PATH") != NULL;
}

static void offer_files(const struct state *state)
{
	writer_raw(state->cli->writer, ":file\n", strlen(":file\n"));
}

static const struct option_spec *find_option(const struct option_spec *options, const char *word)
{
	for (; options != NULL && options->name != NULL; options++) {
		if (word[1] == '-'
			    ? strcmp(word + 2, options->name) == 0
			    : options->letter != 0 && word[1] == options->letter && word[2] == '\0')
			return options;
	}
	return NULL;
}

/* The option whose value the next word is, or NULL. */
static const struct option_spec *waits_for_value(const struct cli *cli, const struct verb *verb,
						 const char *word)
{
	const struct option_spec *option = NULL;

	if (word[0] != '-' || word[1] == '\0')
		return NULL;
	if (verb != NULL)
		option = find_option(verb->options, word);
	if (option == NULL)
		option = find_option(cli->global_options, word);
	return option != NULL && option->argument != NULL ? option : NULL;
}

static const struct verb *find_verb(const struct cli *cli, const char *name)
{
	for (size_t i = 0; cli->verbs[i] != NULL; i++)
		if (strcmp(cli->verbs[i]->name, name) == 0)
			return cli->verbs[i];
	return NULL;
}

static void offer_verbs(const struct state *state)
{
	for (size_t i = 0; state->cli->verbs[i] != NULL; i++)
		offer(state, "", state->cli->verbs[i]->name, state->cli->verbs[i]->help);
}

/* The words in lower case among the operands are to be written as they are: "check [FILE | URI]", "[kill ID]". */
static void offer_operands(const struct state *state, const struct verb *verb)
{
	char word[64];
	size_t n;

	if (verb == &verb_help)
		offer_verbs(state);
	for (const char *s = verb->operands; *s != '\0'; s += n > 0 ? n : 1) {
		n = strspn(s, "abcdefghijklmnopqrstuvwxyz-");
		if (n == 0 || n >= sizeof(word) || s[0] == '-')
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)n, s);
		offer(state, "", word, verb->help);
	}
	if (is_file(verb->operands))
		offer_files(state);
}

static void offer_values(const struct state *state, const struct verb *verb,
			 const struct option_spec *option)
{
	if (is_file(option->argument))
		offer_files(state);
	if (verb != &verb_top || strcmp(option->name, "sort") != 0)
		return;
	for (enum top_sort sort = 0; sort < TOP_SORTS; sort++)
		offer(state, "", top_sort_name(sort), option->help);
}

static int run_complete(struct cli *cli, const struct arguments *args)
{
	struct state state = {.cli = cli,
			      .word = args->count > 0 ? args->operands[args->count - 1] : ""};
	const struct option_spec *value = NULL;
	const struct verb *verb = NULL;
	bool options_end = false;

	for (size_t i = 0; i + 1 < args->count; i++) {
		const char *word = args->operands[i];

		if (value != NULL) {
			value = NULL;
		} else if (!options_end && word[0] == '-' && word[1] != '\0') {
			options_end = strcmp(word, "--") == 0;
			value = waits_for_value(cli, verb, word);
		} else if (verb == NULL) {
			verb = find_verb(cli, word);
			if (verb == NULL)
				return CLI_OK; /* nothing fits behind an unknown one */
		}
	}
	if (value != NULL) {
		offer_values(&state, verb, value);
	} else if (!options_end && state.word[0] == '-') {
		offer_options(&state, verb != NULL ? verb->options : NULL);
		offer_options(&state, cli->global_options);
	} else if (verb == NULL) {
		offer_verbs(&state);
	} else {
		offer_operands(&state, verb);
	}
	return CLI_OK;
}

const struct verb verb_complete = {
	.name = "__complete",
	.operands = "[WORD...]",
	.help = "for the shells' completion",
	.max_operands = SIZE_MAX,
	.run = run_complete,
};
