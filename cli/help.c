/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * help.c - `tarn help [VERB]`, made from the tables that the command line is read by
 *
 * Next to read: main.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "text.h"
#include "verbs.h"

#define HELP_WIDTH 78
#define HELP_NAME  28

static void line(struct cli *cli, const char *text)
{
	writer_raw(cli->writer, text, strlen(text));
	writer_raw(cli->writer, "\n", 1);
}

/* Text in lines of at most HELP_WIDTH, broken at spaces. */
static void paragraph(struct cli *cli, const char *text)
{
	while (*text != '\0') {
		size_t n = strlen(text);

		if (n > HELP_WIDTH)
			for (n = HELP_WIDTH; n > 1 && text[n] != ' '; n--)
				;
		writer_raw(cli->writer, text, n);
		writer_raw(cli->writer, "\n", 1);
		text += n;
		text += strspn(text, " ");
	}
}

static void option_line(struct cli *cli, const struct option_spec *option)
{
	char name[64], text[256];

	snprintf(name, sizeof(name), "%c%c%s --%s%s%s", option->letter != 0 ? '-' : ' ',
		 option->letter != 0 ? option->letter : ' ', option->letter != 0 ? "," : " ",
		 option->name, option->argument != NULL ? " " : "",
		 option->argument != NULL ? option->argument : "");
	snprintf(text, sizeof(text), "  %-*s%s", HELP_NAME, name, option->help);
	line(cli, text);
}

static void options_text(struct cli *cli, const char *heading, const struct option_spec *options)
{
	if (options == NULL)
		return;
	line(cli, "");
	line(cli, heading);
	for (; options->name != NULL; options++)
		option_line(cli, options);
}

static void parts_text(struct cli *cli, const struct verb_part *part)
{
	char name[96], text[256];

	if (part == NULL)
		return;
	line(cli, "");
	line(cli, "Verbs:");
	for (; part->name != NULL; part++) {
		snprintf(name, sizeof(name), "%s %s", part->name, part->operands);
		snprintf(text, sizeof(text), "  %-*s%s", HELP_NAME, name, part->help);
		line(cli, text);
	}
}

static void verb_text(struct cli *cli, const struct verb *verb)
{
	char text[256];

	snprintf(text, sizeof(text), "usage: tarn %s%s%s%s", verb->name,
		 verb->options != NULL ? " [OPTIONS]" : "", *verb->operands != '\0' ? " " : "",
		 verb->operands);
	line(cli, text);
	line(cli, "");
	snprintf(text, sizeof(text), "%s: %s", verb->name, verb->help);
	line(cli, text);
	if (verb->details != NULL) {
		line(cli, "");
		paragraph(cli, verb->details);
	}
	parts_text(cli, verb->parts);
	options_text(cli, "Options:", verb->options);
	options_text(cli, "Options of every verb:", cli->global_options);
}

static void all_text(struct cli *cli)
{
	char name[64], text[256];

	line(cli, "usage: tarn [OPTIONS] VERB ...");
	line(cli, "");
	line(cli, "Reads and writes the keys and regions of a Tarn pool. Verbs:");
	for (size_t i = 0; cli->verbs[i] != NULL; i++) {
		snprintf(name, sizeof(name), "%s %s", cli->verbs[i]->name, cli->verbs[i]->operands);
		snprintf(text, sizeof(text), "  %-*s%s", HELP_NAME, name, cli->verbs[i]->help);
		line(cli, text);
	}
	options_text(cli, "Options of every verb, before or after it:", cli->global_options);
	line(cli, "");
	line(cli, "Exit codes:");
	for (int i = CLI_OK; i <= CLI_UNHEALTHY; i++) {
		snprintf(text, sizeof(text), "  %d  %s", i, cli_exit_text(i));
		line(cli, text);
	}
	line(cli, "");
	line(cli, "tarn help VERB says more; so does tarn(1).");
}

static json_t *options_json(const struct option_spec *options)
{
	json_t *array = json_array();

	for (; options != NULL && options->name != NULL; options++) {
		char letter[2] = {options->letter, '\0'};

		json_array_append_new(array, json_pack("{s:s, s:s, s:s?, s:s}", "name",
						       options->name, "letter", letter, "argument",
						       options->argument, "help", options->help));
	}
	return array;
}

static json_t *parts_json(const struct verb_part *part)
{
	json_t *array = json_array();

	for (; part != NULL && part->name != NULL; part++) {
		json_t *options = json_array();

		for (const char *const *name = part->options; name != NULL && *name != NULL; name++)
			json_array_append_new(options, json_string(*name));
		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:o}", "name", part->name,
						       "operands", part->operands, "help", part->help,
						       "options", options));
	}
	return array;
}

static json_t *verb_json(const struct verb *verb)
{
	return json_pack("{s:s, s:s, s:s, s:s?, s:o, s:o}", "name", verb->name, "operands",
			 verb->operands, "help", verb->help, "details", verb->details, "options",
			 options_json(verb->options), "verbs", parts_json(verb->parts));
}

static void all_json(struct cli *cli, const struct verb *only)
{
	writer_list_begin(cli->writer, WRITER_HIDDEN, "verbs");
	for (size_t i = 0; cli->verbs[i] != NULL; i++)
		if (only == NULL || only == cli->verbs[i])
			writer_row(cli->writer, verb_json(cli->verbs[i]));
	writer_list_end(cli->writer);
	writer_field(cli->writer, WRITER_HIDDEN, "options", options_json(cli->global_options));
	writer_list_begin(cli->writer, WRITER_HIDDEN, "exit_codes");
	for (int i = CLI_OK; i <= CLI_UNHEALTHY; i++)
		writer_row(cli->writer,
			   json_pack("{s:i, s:s}", "code", i, "text", cli_exit_text(i)));
	writer_list_end(cli->writer);
}

static int run_help(struct cli *cli, const struct arguments *args)
{
	const struct verb *only = NULL;

	for (size_t i = 0; args->count > 0 && cli->verbs[i] != NULL; i++)
		if (strcmp(cli->verbs[i]->name, args->operands[0]) == 0)
			only = cli->verbs[i];
	if (args->count > 0 && only == NULL)
		return cli_fail_usage(cli, "no verb '%s'", args->operands[0]);
	if (cli->json)
		all_json(cli, only);
	else if (only != NULL)
		verb_text(cli, only);
	else
		all_text(cli);
	return CLI_OK;
}

const struct verb verb_help = {
	.name = "help",
	.operands = "[VERB]",
	.help = "say how to use this command, or one verb",
	.max_operands = 1,
	.run = run_help,
};
