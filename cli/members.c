/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * members.c - `tarn members`: the members of a cluster, as the daemon sees them
 *
 * The command's thread. Next to read: control.c, map.c; the daemon's control-cluster.c.
 */
#include <string.h>

#include "control.h"
#include "verbs.h"

static void show_head(struct cli *cli, json_t *cluster)
{
	static const char *const names[] = {"name",   "pool",  "mode",   "member",
					    "epoch", "shards", "membership"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		writer_field(cli->writer, WRITER_TABLE, i == 0 ? "cluster" : names[i],
			     json_incref(json_object_get(cluster, names[i])));
}

/* As text the first address stands for all. */
static json_t *row_of(json_t *member)
{
	static const char *const names[] = {"name", "number", "state", "weight", "shards", "shards_outgoing", "shards_incoming"};
	static const char *const titles[] = {"member", "number", "state", "weight", "shards", "outgoing", "incoming"};
	json_t *row = json_object(), *first = json_array_get(json_object_get(member, "addresses"), 0);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		json_object_set(row, titles[i], json_object_get(member, names[i]));
	json_object_set_new(row, "address", writer_text(json_string_value(json_object_get(first, "address"))));
	return row;
}

static int run_members(struct cli *cli, const struct arguments *args)
{
	json_t *answer, *cluster, *member;
	size_t i;
	int status = control_ask(cli, "{\"get\":\"members\"}", &answer);

	(void)args;
	if (status != CLI_OK)
		return status;
	if (writer_is_json(cli->writer)) {
		writer_document(cli->writer, answer);
		return CLI_OK;
	}
	cluster = json_object_get(answer, "cluster");
	if (json_is_object(cluster)) {
		show_head(cli, cluster);
		writer_list_begin(cli->writer, WRITER_TABLE, "members");
		json_array_foreach(json_object_get(answer, "members"), i, member)
			writer_row(cli->writer, row_of(member));
		writer_list_end(cli->writer);
	} else {
		writer_field(cli->writer, WRITER_TABLE, "cluster", json_string("none: [cluster] is not in the daemon's configuration"));
	}
	json_decref(answer);
	return CLI_OK;
}

const struct verb verb_members = {
	.name = "members",
	.operands = "",
	.help = "list the members of the daemon's cluster",
	.details = "Each member with its state, its weight and how many shards it owns, as the map "
		   "says that this daemon uses, and how many it is to hand over (outgoing) and to get (incoming). `tarn map show` has the map itself.",
	.run = run_members,
};
