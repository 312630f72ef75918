/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exists.c - `tarn exists KEY`: what is known of a key besides its value
 *
 * That a key is not there is an answer, no error: it is said on standard output. Next to read:
 * put.c, whose --if-stamp takes the stamp that is shown here.
 */
#include <errno.h>

#include "cli.h"
#include "verbs.h"

static int run_exists(struct cli *cli, const struct arguments *args)
{
	struct tarn_item item = TARN_ITEM_INIT;
	json_t *object = json_object();
	struct cli_key key = {0};
	int status = cli_key_parse(cli, args->operands[0], false, &key);

	if (status == CLI_OK)
		status = cli_open(cli, true);
	if (status != CLI_OK)
		goto out_free;
	status = tarn_exists(cli->session, key.bytes, key.n, &item);
	writer_key(cli->writer, key.bytes, key.n);
	if (status < 0 && status != -TARN_ENOTFOUND) {
		status = cli_fail_library(cli, status, key.text);
		goto out_free;
	}
	if (!cli->quiet || cli->json)
		writer_field(cli->writer, WRITER_TABLE, "exists", json_boolean(status == 0));
	if (status == 0 && (object == NULL || cli_set_item(object, &item) < 0))
		status = cli_fail_system(cli, -ENOMEM, NULL);
	else if (status == 0)
		writer_members(cli->writer, cli->quiet ? WRITER_HIDDEN : WRITER_TABLE,
			       json_incref(object));
	else
		status = CLI_REFUSED;
out_free:
	json_decref(object);
	cli_key_free(&key);
	return status;
}

const struct verb verb_exists = {
	.name = "exists",
	.operands = "KEY",
	.help = "say whether a key is there, and what is known of it",
	.details = "Shows kind, size, flags, stamp, time to live and writer. Exit code 1 when the "
		   "key is not there. With -q "
		   "the exit code is all.",
	.min_operands = 1,
	.max_operands = 1,
	.run = run_exists,
};
