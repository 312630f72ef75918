/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stats.c - `tarn stats`, `tarn pools`, `tarn clients`: what the daemon says about itself
 *
 * The daemon decides what there is to say; JSON has all of it. As text the lists of pools and
 * clients have the columns that fit on a line. Next to read: control.c, and the daemon's control.c.
 */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "control.h"
#include "verbs.h"

/*
 * A column: where its value is in a row, "member" or "object.member". The title is the last name.
 */
static const char *const pools_columns[] = {
	"name",  "bytes",      "hugepage_bytes", "max_value_bytes",
	"pages", "pages_free", "clients",        "max_clients",
	"auth",  NULL};
static const char *const clients_columns[] = {
	"pool",
	"client_id",
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

/* A row with these columns alone. A client that has not reported yet has no operations. */
static json_t *select_columns(json_t *row, const char *const *columns)
{
	json_t *selected = json_object();

	for (; *columns != NULL; columns++) {
		const char *dot = strchr(*columns, '.');
		json_t *value = find(row, *columns);

		if (json_object_set_new(selected, dot != NULL ? dot + 1 : *columns,
					value != NULL ? json_incref(value) : json_null()) < 0) {
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
	json_t *answer;
	int status = control_ask(cli, "{\"get\":\"stats\"}", &answer);

	(void)args;
	if (status == CLI_OK)
		writer_document(cli->writer, answer);
	return status;
}

static int run_pools(struct cli *cli, const struct arguments *args)
{
	(void)args;
	return show_list(cli, "{\"get\":\"pools\"}", "pools", pools_columns);
}

static int run_clients(struct cli *cli, const struct arguments *args)
{
	(void)args;
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
	.operands = "",
	.help = "list the clients that are connected",
	.details =
		"Operations are those that a client has reported; it does so about once a second.",
	.run = run_clients,
};
