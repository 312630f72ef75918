/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * add.c - `tarn add KEY N`
 *
 * Next to read: get.c, which prints a counter.
 */
#include "cli.h"
#include "text.h"
#include "verbs.h"

static int run_add(struct cli *cli, const struct arguments *args)
{
	struct cli_key key = {0};
	int64_t delta, value = 0;
	int status;

	if (text_parse_i64(args->operands[1], &delta) < 0)
		return cli_fail_usage(cli, "'%s' is not a whole number of 64 bits",
				      args->operands[1]);
	status = cli_key_parse(cli, args->operands[0], false, &key);
	if (status == CLI_OK)
		status = cli_open(cli, false);
	if (status != CLI_OK)
		goto out_key;
	status = tarn_add(cli->session, key.bytes, key.n, delta, &value);
	writer_key(cli->writer, key.bytes, key.n);
	if (status < 0)
		status = cli_fail_library(cli, status, key.text);
	else
		writer_field(cli->writer, WRITER_BARE, "value", json_integer(value));
out_key:
	cli_key_free(&key);
	return status;
}

const struct verb verb_add = {
	.name = "add",
	.operands = "KEY N",
	.help = "add to a counter and print its new value",
	.details = "N may be negative. A key that is not there becomes a counter that starts at 0.",
	.min_operands = 2,
	.max_operands = 2,
	.negative = true,
	.run = run_add,
};
