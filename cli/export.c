/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * export.c - `tarn export DIR [PREFIX]`: every key becomes a file
 *
 * The way back of import.c: PREFIX is cut off, the rest is the path beneath DIR. Keys come from
 * whoever may write to the pool: place.c keeps them inside DIR.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "cli.h"
#include "clock.h"
#include "place.h"
#include "progress.h"
#include "text.h"
#include "verbs.h"

struct export
{
	struct cli *cli;
	struct progress progress;
	struct buffer value;
	int root; /* DIR */
	size_t prefix_bytes;
	uint64_t files, bytes, errors;
	uint64_t vanished; /* deleted between the walk and the get */
	struct cli_damage damage;
	int exit_code; /* not CLI_OK: the walk is over */
};

/* One key is not written; the rest goes on. */
static void note_error(struct export *export, const void *key, size_t n, int code, const char *text)
{
	char *escaped = malloc(TEXT_ESCAPED_BYTES(n));
	json_t *row = json_pack("{s:i, s:s, s:o}", "code", -code, "name", tarn_error_name(code),
				"text", writer_text(text));

	if (escaped != NULL) {
		text_escape(key, n, escaped);
		cli_complain(export->cli, escaped, text);
	}
	if (row != NULL && writer_set_key(row, key, n) < 0) {
		json_decref(row);
		row = NULL;
	}
	writer_row(export->cli->writer, row);
	free(escaped);
	export->errors++;
}

/* Would the next file fail in the same way? */
static bool is_fatal(int code)
{
	return code == -ENOSPC || code == -EDQUOT || code == -EIO || code == -EROFS ||
	       code == -ENOMEM || code == -EMFILE || code == -ENFILE;
}

static void write_value(struct export *export, const char *key, size_t n, const void *bytes,
			size_t value_bytes, const struct tarn_item *item)
{
	/*
	 * Only what import has put there: another application's flags are not permissions. Never
	 * set-user-id.
	 */
	mode_t mode = S_ISREG(item->user_flags) ? item->user_flags & 0777 : 0;
	const char *why = "";
	char text[256];
	int status = place_write(export->root, key + export->prefix_bytes, n - export->prefix_bytes,
				 bytes, value_bytes, mode, &why);

	if (status == 0) {
		export->files++;
		export->bytes += value_bytes;
		return;
	}
	snprintf(text, sizeof(text), "%s: %s", why, strerror(-status));
	if (is_fatal(status))
		export->exit_code =
			cli_fail(export->cli, status, key + export->prefix_bytes, "%s", text);
	else
		note_error(export, key, n, status, text);
}

static void export_key(struct export *export, const char *key, size_t n)
{
	const char *refusal = place_refusal(key + export->prefix_bytes, n - export->prefix_bytes);
	struct tarn_item item = TARN_ITEM_INIT;
	char number[32];
	int64_t counter;
	int status;

	if (refusal != NULL) {
		note_error(export, key, n, -EINVAL, refusal);
		return;
	}
	status = buffer_get(&export->value, export->cli->session, key, n, &item);
	if (status == -TARN_ENOTFOUND) {
		export->vanished++;
	} else if (status == -ENOMEM) {
		export->exit_code = cli_fail_system(export->cli, status, NULL);
	} else if (status == -TARN_ECORRUPT) {
		note_error(export, key, n, status, tarn_last_error_text());
	} else if (status < 0) {
		export->exit_code = cli_fail_library(export->cli, status, NULL);
	} else if (item.kind == TARN_KIND_COUNTER && item.value_bytes == sizeof(counter)) {
		memcpy(&counter, export->value.bytes, sizeof(counter));
		write_value(export, key, n, number,
			    (size_t)snprintf(number, sizeof(number), "%" PRId64 "\n", counter),
			    &item);
	} else {
		write_value(export, key, n, export->value.bytes, (size_t)item.value_bytes, &item);
	}
}

/* The scan's key lives until the scan's next call, with no final 0: a copy has one. */
static void walk(struct export *export, struct tarn_scan *scan)
{
	char *copy = malloc(CLI_KEY_MAX_BYTES + 1);
	const void *key;
	size_t n;
	int status = copy != NULL ? 1 : -ENOMEM;

	while (export->exit_code == CLI_OK && status > 0) {
		if (*export->cli->stop) {
			export->exit_code = cli_fail(export->cli, -EINTR, NULL,
						     "interrupted: the rest was not exported");
			break;
		}
		status = cli_scan_next(export->cli, scan, &key, &n, NULL, &export->damage);
		if (status <= 0)
			break;
		memcpy(copy, key, n);
		copy[n] = '\0';
		export_key(export, copy, n);
		export->progress.files = export->files;
		export->progress.bytes = export->bytes;
		export->progress.permille = tarn_scan_progress(scan);
		progress_update(&export->progress);
	}
	if (status == -ENOMEM && copy == NULL)
		export->exit_code = cli_fail_system(export->cli, status, NULL);
	else if (status < 0)
		export->exit_code = cli_fail_library(export->cli, status, NULL);
	free(copy);
}

static void summary(struct export *export)
{
	struct writer *writer = export->cli->writer;
	enum writer_look look = export->cli->quiet ? WRITER_HIDDEN : WRITER_TABLE;

	writer_field(writer, look, "files", writer_u64(export->files));
	writer_field(writer, look, "bytes", writer_u64(export->bytes));
	writer_field(writer, export->vanished > 0 ? look : WRITER_HIDDEN, "vanished",
		     writer_u64(export->vanished));
	writer_field(writer, look, "errors", writer_u64(export->errors));
	writer_field(writer, look, "elapsed_ns",
		     writer_u64(clock_now_ns() - export->progress.start_ns));
}

static int export_keys(struct export *export, struct tarn_scan *scan)
{
	struct cli *cli = export->cli;

	progress_begin(&export->progress, !cli->quiet);
	cli->progress = &export->progress;
	writer_list_begin(cli->writer, WRITER_HIDDEN, "failed");
	walk(export, scan);
	writer_list_end(cli->writer);
	progress_clear(&export->progress);
	cli->progress = NULL;
	if (export->exit_code != CLI_OK) /* it stopped at this one */
		export->errors++;
	summary(export);
	if (export->exit_code == CLI_OK && export->prefix_bytes > 0 && export->files == 0 &&
	    export->errors == 0 && export->damage.count == 0)
		return cli_fail(cli, -TARN_ENOTFOUND, NULL, "no key begins with this prefix");
	if (export->exit_code == CLI_OK && export->damage.count > 0)
		return cli_fail(cli, -TARN_ECORRUPT, NULL,
				"%" PRIu64 " damaged entries are left out", export->damage.count);
	if (export->exit_code == CLI_OK && export->errors > 0)
		return CLI_REFUSED;
	return export->exit_code;
}

/* DIR itself may be a symbolic link: the user has named it. */
static int open_root(struct cli *cli, const char *path, int *ret_root)
{
	int fd;

	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return cli_fail_system(cli, -errno, path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return cli_fail_system(cli, -errno, path);
	*ret_root = fd;
	return CLI_OK;
}

static int run_export(struct cli *cli, const struct arguments *args)
{
	struct export export = {.cli = cli, .root = -1};
	struct tarn_scan *scan = NULL;
	struct cli_key prefix = {0};
	int status = cli_key_parse(cli, args->count > 1 ? args->operands[1] : "", true, &prefix);

	if (status == CLI_OK)
		status = cli_open(cli, true);
	if (status == CLI_OK)
		status = open_root(cli, args->operands[0], &export.root);
	if (status != CLI_OK)
		goto out_prefix;
	status = tarn_scan_open(cli->session, prefix.bytes, prefix.n, &scan);
	if (status < 0) {
		status = cli_fail_library(cli, status, prefix.text);
		goto out_root;
	}
	export.prefix_bytes = prefix.n;
	status = export_keys(&export, scan);
	tarn_scan_close(scan);
	buffer_free(&export.value);
out_root:
	close(export.root);
out_prefix:
	cli_key_free(&prefix);
	return status;
}

const struct verb verb_export = {
	.name = "export",
	.operands = "DIR [PREFIX]",
	.help = "write every key into a file",
	.details = "Takes the keys that begin with PREFIX and writes each into a file beneath DIR "
		   "whose path is the rest of the "
		   "key: the way back of import. Keys that are no such path (absolute, with '..', "
		   "'.', an empty component, a NUL "
		   "byte, too long) are named, skipped, and make the exit code 1. Nothing is "
		   "written outside of DIR, and no "
		   "symbolic link in it is followed. A counter is written as a decimal number and "
		   "a newline.",
	.min_operands = 1,
	.max_operands = 2,
	.run = run_export,
};
