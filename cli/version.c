/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * version.c - `tarn version`
 *
 * Next to read: wire.h, for what the protocol's versions are about.
 */
#include "cli.h"
#include "verbs.h"
#include "wire.h"

static int run_version(struct cli *cli, const struct arguments *args)
{
	(void)args;
	if (!cli->json)
		writer_raw(cli->writer, "tarn ", 5);
	writer_field(cli->writer, WRITER_BARE, "version", json_string(PACKAGE_VERSION));
	writer_field(cli->writer, WRITER_HIDDEN, "library", json_string(tarn_version()));
	writer_field(cli->writer, WRITER_HIDDEN, "protocol_min", json_integer(WIRE_VERSION_MIN));
	writer_field(cli->writer, WRITER_HIDDEN, "protocol_max", json_integer(WIRE_VERSION_MAX));
	return CLI_OK;
}

const struct verb verb_version = {
	.name = "version",
	.operands = "",
	.help = "print the version",
	.run = run_version,
};
