/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.c - `tarn config ...`: the daemon's configuration as it runs, and against its file
 *
 * The daemon knows what runs and compares; `check` needs no daemon and is config-check.c. The
 * command's thread. Next to read: reload.c; the daemon's control-config.c.
 */
#include "config.h"

#include <string.h>

#include "control.h"
#include "verbs.h"

/* ---- reports ---- */

static void line(struct cli *cli, const char *text)
{
	writer_raw(cli->writer, text, strlen(text));
	writer_raw(cli->writer, "\n", 1);
}

static int refused(struct cli *cli, json_t *errors, const char *what)
{
	const char *first = json_string_value(json_array_get(errors, 0));
	json_t *error;
	size_t i;

	if (json_array_size(errors) == 1)
		return cli_fail(cli, -TARN_EREFUSED, NULL, "%s: %s", what, first);
	json_array_foreach(errors, i, error) cli_complain(cli, NULL, json_string_value(error));
	return cli_fail(cli, -TARN_EREFUSED, NULL, "%s: %zu errors", what, json_array_size(errors));
}

static void changes(struct cli *cli, json_t *report)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(report, "notices"), i, row)
		cli_complain(cli, "notice", json_string_value(row));
	json_array_foreach(json_object_get(report, "changes"), i, row)
		line(cli, json_string_value(json_object_get(row, "text")));
	json_array_foreach(json_object_get(report, "access_keys"), i, row)
	{
		json_t *text = json_sprintf("[pool %s] %s",
					    json_string_value(json_object_get(row, "pool")),
					    json_string_value(json_object_get(row, "text")));

		if (text != NULL)
			line(cli, json_string_value(text));
		json_decref(text);
	}
	if (json_is_true(json_object_get(report, "http_secrets_changed")))
		line(cli, "[http] a new certificate or token");
}

static void summary(struct cli *cli, json_t *report)
{
	json_t *cut = json_object_get(report, "clients_cut");
	json_t *text = json_sprintf(
		"%s: %s", json_string_value(json_object_get(report, "file")),
		strcmp(json_string_value(json_object_get(report, "result")), "unchanged") == 0
			? cut != NULL ? "reloaded; nothing has changed" : "nothing is different"
		: cut != NULL ? "reloaded"
			      : "is different from what runs");

	if (text != NULL)
		writer_raw(cli->writer, json_string_value(text), json_string_length(text));
	json_decref(text);
	text = json_integer_value(cut) > 0
		       ? json_sprintf("; %lld clients cut off\n", json_integer_value(cut))
		       : json_string("\n");
	if (text != NULL)
		writer_raw(cli->writer, json_string_value(text), json_string_length(text));
	json_decref(text);
}

/* A daemon of another version may have left something out. */
static bool complete(json_t *report)
{
	return json_is_string(json_object_get(report, "result")) &&
	       json_is_string(json_object_get(report, "file")) &&
	       json_is_array(json_object_get(report, "changes")) &&
	       json_is_array(json_object_get(report, "errors"));
}

int config_report(struct cli *cli, json_t *answer, const char *name, const char *what)
{
	json_t *report = json_incref(json_object_get(answer, name));
	int status = CLI_OK;

	if (!complete(report)) {
		json_decref(answer);
		status = cli_fail(cli, -TARN_EPROTO, cli->uri, "the daemon's answer has no %s",
				  name);
		json_decref(report);
		return status;
	}
	if (writer_is_json(cli->writer)) {
		writer_document(cli->writer, answer);
	} else {
		json_decref(answer);
		changes(cli, report);
	}
	if (strcmp(json_string_value(json_object_get(report, "result")), "refused") == 0)
		status = refused(cli, json_object_get(report, "errors"), what);
	else if (!cli->quiet && !writer_is_json(cli->writer))
		summary(cli, report);
	json_decref(report);
	return status;
}

/* ---- show and diff ---- */

static json_t *bare(json_t *row, const char *name)
{
	json_t *value = json_object_get(row, name);

	return value != NULL ? json_incref(value) : json_null();
}

/* "[pool main] size" is one column. */
static json_t *setting_row(json_t *setting)
{
	const char *name = json_string_value(json_object_get(setting, "name"));
	json_t *row = json_object();

	json_object_set_new(row, "setting",
			    json_sprintf("[%s%s%s] %s",
					 json_string_value(json_object_get(setting, "section")),
					 name != NULL ? " " : "", name != NULL ? name : "",
					 json_string_value(json_object_get(setting, "key"))));
	json_object_set_new(row, "value", bare(setting, "value"));
	json_object_set_new(row, "default", bare(setting, "default"));
	json_object_set_new(row, "reload", bare(setting, "reloadable"));
	json_object_set_new(row, "source", bare(setting, "source"));
	return row;
}

static int show(struct cli *cli)
{
	json_t *answer, *setting;
	size_t i;
	int status = control_ask(cli, "{\"get\":\"config\"}", &answer);

	if (status != CLI_OK)
		return status;
	if (writer_is_json(cli->writer)) {
		writer_document(cli->writer, answer);
		return CLI_OK;
	}
	writer_list_begin(cli->writer, WRITER_TABLE, "settings");
	json_array_foreach(json_object_get(answer, "settings"), i, setting)
		writer_row(cli->writer, setting_row(setting));
	writer_list_end(cli->writer);
	json_decref(answer);
	return CLI_OK;
}

static int diff(struct cli *cli)
{
	json_t *answer;
	int status = control_ask(cli, "{\"get\":\"config_diff\"}", &answer);

	return status != CLI_OK ? status
				: config_report(cli, answer, "diff", "a reload would be refused");
}

static int run_config(struct cli *cli, const struct arguments *args)
{
	const char *what = args->operands[0];

	if (strcmp(what, "check") == 0)
		return config_check(cli, args);
	if (args->count == 1 && strcmp(what, "show") == 0)
		return show(cli);
	if (args->count == 1 && strcmp(what, "diff") == 0)
		return diff(cli);
	return cli_fail_usage(cli, "'%s': write `tarn config show`, `diff` or `check [FILE]`",
			      args->count == 1 ? what : args->operands[1]);
}

const struct verb verb_config = {
	.name = "config",
	.operands = "show | diff | check [FILE]",
	.help = "the daemon's settings, and its configuration file",
	.details =
		"`show`: each setting of the running daemon, its default, where it comes from, and "
		"whether a reload changes it. `diff`: what a reload would change now, and what in "
		"the "
		"file needs a restart; root and the daemon's user may ask for it. `check` looks "
		"through a file and at this machine as tarnd -t does, without asking a daemon; the "
		"exit code is 6 if something is wrong.",
	.min_operands = 1,
	.max_operands = 2,
	.run = run_config,
};
