/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * del.c - `tarn del KEY...`
 *
 * Next to read: cli.c.
 */
#include "cli.h"
#include "verbs.h"

/* A key that is not there does not keep the others from being deleted; another failure does. */
static int delete_one(struct cli *cli, const struct cli_key *key, uint64_t *missing)
{
	int status = tarn_delete(cli->session, key->bytes, key->n);
	json_t *row = json_object();

	if (status < 0 && status != -TARN_ENOTFOUND) {
		json_decref(row);
		return cli_fail_library(cli, status, key->text);
	}
	if (row != NULL && (writer_set_key(row, key->bytes, key->n) < 0 ||
			    json_object_set_new(row, "deleted", json_boolean(status == 0)) < 0)) {
		json_decref(row);
		row = NULL;
	}
	writer_row(cli->writer, row);
	if (status == 0)
		return CLI_OK;
	cli_complain(cli, key->text, "not found");
	(*missing)++;
	return CLI_OK;
}

static int run_del(struct cli *cli, const struct arguments *args)
{
	uint64_t missing = 0;
	int status = cli_open(cli, false);

	if (status != CLI_OK)
		return status;
	writer_list_begin(cli->writer, WRITER_HIDDEN, "keys");
	for (size_t i = 0; i < args->count && status == CLI_OK; i++) {
		struct cli_key key = {0};

		status = cli_key_parse(cli, args->operands[i], false, &key);
		if (status == CLI_OK)
			status = delete_one(cli, &key, &missing);
		cli_key_free(&key);
	}
	writer_list_end(cli->writer);
	if (status != CLI_OK)
		return status;
	writer_field(cli->writer, WRITER_HIDDEN, "deleted", writer_u64(args->count - missing));
	writer_field(cli->writer, WRITER_HIDDEN, "missing", writer_u64(missing));
	return missing == 0 ? CLI_OK : CLI_REFUSED;
}

const struct verb verb_del = {
	.name = "del",
	.operands = "KEY...",
	.help = "delete keys",
	.details = "A key that is not there is named and makes the exit code 1; the other keys are "
		   "deleted all the same.",
	.min_operands = 1,
	.max_operands = SIZE_MAX,
	.run = run_del,
};
