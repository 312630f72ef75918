/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys.c - `tarn keys [PREFIX]`: all keys, as the walk over the index finds them
 *
 * Nothing is kept or sorted: a pool may hold more keys than this process has memory. Next to read:
 * writer.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "verbs.h"

enum { KEYS_LONG, KEYS_NULL };

static const struct option_spec keys_options[] = {
	[KEYS_LONG] = {"long", 'l', NULL, "show size, kind and time to live, too"},
	[KEYS_NULL] = {"null", '0', NULL, "keys as they are, each ended by a NUL byte"},
	{0},
};

static json_t *make_row(const void *key, size_t n, const struct tarn_item *item, bool with_item)
{
	json_t *row = json_object();

	if (row == NULL || writer_set_key(row, key, n) < 0)
		goto out_row;
	if (!with_item)
		return row;
	if (json_object_set_new(row, "value_bytes", writer_u64(item->value_bytes)) < 0 ||
	    json_object_set_new(row, "kind", cli_kind(item)) < 0 ||
	    json_object_set_new(row, "expiry_ms",
				item->expiry_ms != 0 ? writer_u64(item->expiry_ms) : json_null()) <
		    0)
		goto out_row;
	return row;

out_row:
	json_decref(row);
	return NULL;
}

static int walk(struct cli *cli, struct tarn_scan *scan, const struct arguments *args,
		struct cli_damage *damage, uint64_t *ret_count)
{
	bool raw = args->own.values[KEYS_NULL] != NULL,
	     with_item = args->own.values[KEYS_LONG] != NULL;
	struct tarn_item item = TARN_ITEM_INIT;
	const void *key;
	size_t n;
	int status;

	while ((status = cli_scan_next(cli, scan, &key, &n, &item, damage)) > 0 &&
	       writer_failed(cli->writer) == 0) {
		if (raw) {
			writer_raw(cli->writer, key, n);
			writer_raw(cli->writer, "", 1);
		} else {
			writer_row(cli->writer, make_row(key, n, &item, with_item || cli->json));
		}
		(*ret_count)++;
	}
	return status < 0 ? cli_fail_library(cli, status, NULL) : CLI_OK;
}

static int run_keys(struct cli *cli, const struct arguments *args)
{
	struct cli_damage damage = {0};
	struct tarn_scan *scan = NULL;
	struct cli_key prefix = {0};
	uint64_t count = 0;
	int status;

	if (args->own.values[KEYS_NULL] != NULL &&
	    (cli->json || args->own.values[KEYS_LONG] != NULL))
		return cli_fail_usage(cli, "--null excludes --json and --long");
	status = cli_key_parse(cli, args->count > 0 ? args->operands[0] : "", true, &prefix);
	if (status == CLI_OK)
		status = cli_open(cli, true);
	if (status != CLI_OK)
		goto out_prefix;
	status = tarn_scan_open(cli->session, prefix.bytes, prefix.n, &scan);
	if (status < 0) {
		status = cli_fail_library(cli, status, prefix.text);
		goto out_prefix;
	}
	writer_list_begin(cli->writer, WRITER_BARE, "keys");
	status = walk(cli, scan, args, &damage, &count);
	writer_list_end(cli->writer);
	if (status == CLI_OK)
		writer_field(cli->writer, WRITER_HIDDEN, "count", writer_u64(count));
	if (status == CLI_OK && damage.count > 0)
		status = cli_fail(cli, -TARN_ECORRUPT, NULL,
				  "%" PRIu64 " damaged entries are left out", damage.count);
	tarn_scan_close(scan);
out_prefix:
	cli_key_free(&prefix);
	return status;
}

const struct verb verb_keys = {
	.name = "keys",
	.operands = "[PREFIX]",
	.help = "list keys",
	.details = "One key a line, in no order. Bytes that are not printable are escaped; -x "
		   "reads them again. A key that is "
		   "deleted and put again while the walk goes on may come twice or not at all.",
	.options = keys_options,
	.max_operands = 1,
	.run = run_keys,
};
