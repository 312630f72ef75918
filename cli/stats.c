/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stats.c - `tarn stats`, `tarn pools`, `tarn clients`: what the daemon says about itself; and
 * `tarn clients kill`, which ends one
 *
 * The daemon decides what there is to say; JSON has all of it. As text the lists of pools and
 * clients have the columns that fit on a line. Next to read: control.c, and the daemon's control.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "control.h"
#include "verbs.h"

/*
 * A column: where its value is in a row, "member" or "object.member". The title is the last name.
 */
static const char *const pools_columns[] = {
	"name",    "bytes",       "hugepage_bytes", "max_value_bytes", "pages",     "pages_free",
	"clients", "max_clients", "auth",           "atomics",         "listeners", NULL};
static const char *const clients_columns[] = {
	"pool",
	"client_id",
	"listener",
	"transport",
	"pid",
	"uid",
	"name",
	"read_only",
	"connected_ms",
	"operations.gets",
	"operations.puts",
	"operations.deletes",
	"operations.adds",
	"operations.errors",
	NULL,
};

static const char *const killed_columns[] = {"pool", "client_id", "listener", "transport",
					     "pid",  "name",      NULL};

static json_t *find(json_t *row, const char *column)
{
	const char *dot = strchr(column, '.');
	char outer[32];

	if (dot == NULL)
		return json_object_get(row, column);
	if ((size_t)(dot - column) >= sizeof(outer))
		return NULL;
	memcpy(outer, column, (size_t)(dot - column));
	outer[dot - column] = '\0';
	return json_object_get(json_object_get(row, outer), dot + 1);
}

/* As text a list of names is "a, b". */
static json_t *join(json_t *names)
{
	json_t *joined = json_string(""), *name;
	size_t i;

	json_array_foreach(names, i, name)
	{
		json_t *longer = json_sprintf("%s%s%s", json_string_value(joined),
					      i > 0 ? ", " : "", json_string_value(name));

		json_decref(joined);
		joined = longer;
	}
	return joined;
}

/* A row with these columns alone. A client that has not reported yet has no operations. */
static json_t *select_columns(json_t *row, const char *const *columns)
{
	json_t *selected = json_object();

	for (; *columns != NULL; columns++) {
		const char *dot = strchr(*columns, '.');
		json_t *value = find(row, *columns);

		if (json_object_set_new(selected, dot != NULL ? dot + 1 : *columns,
					value == NULL          ? json_null()
					: json_is_array(value) ? join(value)
							       : json_incref(value)) < 0) {
			json_decref(selected);
			return NULL;
		}
	}
	return selected;
}

static int show_list(struct cli *cli, const char *question, const char *name,
		     const char *const *columns)
{
	json_t *answer, *row;
	size_t i;
	int status = control_ask(cli, question, &answer);

	if (status != CLI_OK)
		return status;
	if (writer_is_json(cli->writer)) {
		writer_document(cli->writer, answer);
		return CLI_OK;
	}
	writer_list_begin(cli->writer, WRITER_TABLE, name);
	json_array_foreach(json_object_get(answer, name), i, row)
		writer_row(cli->writer, select_columns(row, columns));
	writer_list_end(cli->writer);
	json_decref(answer);
	return CLI_OK;
}

static int run_stats(struct cli *cli, const struct arguments *args)
{
	json_t *answer, *pool;
	size_t i;
	int status = control_ask(cli, "{\"get\":\"stats\"}", &answer);

	(void)args;
	if (status != CLI_OK)
		return status;
	if (!writer_is_json(cli->writer))
		json_array_foreach(json_object_get(answer, "pools"), i, pool) json_object_set_new(
			pool, "listeners", join(json_object_get(pool, "listeners")));
	writer_document(cli->writer, answer);
	return CLI_OK;
}

static int run_pools(struct cli *cli, const struct arguments *args)
{
	(void)args;
	return show_list(cli, "{\"get\":\"pools\"}", "pools", pools_columns);
}

enum { CLIENTS_POOL };

static const struct option_spec clients_options[] = {
	[CLIENTS_POOL] = {"pool", 0, "NAME", "kill: the client of this pool"},
	{0},
};

/* 0, or an exit code after complaining; *ret_question is to be freed. */
static int kill_question(struct cli *cli, const struct arguments *args, char **ret_question)
{
	const char *pool = args->own.values[CLIENTS_POOL];
	json_t *client, *question;
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(args->operands[1], &end, 10);
	if (args->operands[1][0] < '0' || args->operands[1][0] > '9' || *end != '\0' ||
	    errno != 0 || number > UINT32_MAX)
		return cli_fail_usage(cli,
				      "%s: is not a client's number: `tarn clients` shows them "
				      "as client_id",
				      args->operands[1]);
	client = json_pack("{s:I}", "client", (json_int_t)number);
	if (pool != NULL && json_object_set_new(client, "pool", json_string(pool)) < 0) {
		json_decref(client);
		return cli_fail_usage(cli, "--pool: is no text");
	}
	question = json_pack("{s:o}", "kill", client);
	*ret_question = json_dumps(question, JSON_COMPACT);
	json_decref(question);
	return *ret_question != NULL ? CLI_OK : cli_fail_system(cli, -ENOMEM, args->operands[1]);
}

static int run_kill(struct cli *cli, const struct arguments *args)
{
	char *question = NULL;
	json_t *answer, *killed;
	int status = kill_question(cli, args, &question);

	if (status == CLI_OK)
		status = control_ask(cli, question, &answer);
	free(question);
	if (status != CLI_OK)
		return status;
	if (writer_is_json(cli->writer)) {
		writer_document(cli->writer, answer);
		return CLI_OK;
	}
	killed = json_object_get(answer, "killed");
	writer_list_begin(cli->writer, WRITER_TABLE, "killed");
	writer_row(cli->writer, select_columns(killed, killed_columns));
	writer_list_end(cli->writer);
	json_decref(answer);
	return CLI_OK;
}

static int run_clients(struct cli *cli, const struct arguments *args)
{
	if (args->count == 2 && strcmp(args->operands[0], "kill") == 0)
		return run_kill(cli, args);
	if (args->count > 0)
		return cli_fail_usage(cli, "write `tarn clients`, or `tarn clients kill ID`");
	if (args->own.values[CLIENTS_POOL] != NULL)
		return cli_fail_usage(cli, "--pool is for `tarn clients kill ID`");
	return show_list(cli, "{\"get\":\"clients\"}", "clients", clients_columns);
}

const struct verb verb_stats = {
	.name = "stats",
	.operands = "",
	.help = "what the daemon and its clients have done",
	.details = "The daemon does not see one-sided operations: clients report what they have "
		   "done about once a second.",
	.run = run_stats,
};

const struct verb verb_pools = {
	.name = "pools",
	.operands = "",
	.help = "list the daemon's pools",
	.run = run_pools,
};

const struct verb verb_clients = {
	.name = "clients",
	.operands = "[kill ID]",
	.help = "list the clients that are connected, or end one",
	.details =
		"Operations are those that a client has reported; it does so about once a second. "
		"`kill` ends the connection of the client with this client_id, at once; root and "
		"the "
		"daemon's user may do that. An RDMA client has no access to the pool from then on. "
		"A client on this host has the pool mapped until its process ends or closes the "
		"session: end the process, too. Either may connect again, if its key is still in "
		"the daemon's key file.",
	.options = clients_options,
	.max_operands = 2,
	.run = run_clients,
};
