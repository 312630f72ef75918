/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * restore.c - `tarn restore FILE [URI]`: what a snapshot holds is put into a pool
 *
 * The file is read twice: checked to its end before anything is written, and checked again while it
 * is put, since it may be changed in between. Running it again does no harm. Next to read:
 * snapshot-read.c.
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
#include "err.h"
#include "progress.h"
#include "snapshot-read.h"
#include "text.h"
#include "verbs.h"

enum { RESTORE_IF_ABSENT, RESTORE_VERIFY, RESTORE_LIST };

static const struct option_spec restore_options[] = {
	[RESTORE_IF_ABSENT] = {"if-absent", 0, NULL, "leave keys alone that are there"},
	[RESTORE_VERIFY] = {"verify", 0, NULL, "only check FILE and say what is in it"},
	[RESTORE_LIST] = {"list", 'l', NULL, "only check FILE and list its keys"},
	{0},
};

struct restore {
	struct cli *cli;
	const char *path;
	int fd;
	bool if_absent, list;
	struct progress progress;
	struct buffer value;
	struct snapshot_header header;
	struct snapshot_totals totals; /* of the whole file */
	uint64_t keys, value_bytes;    /* restored */
	uint64_t skipped;              /* were there */
};

static int fail_file(struct restore *restore, int code)
{
	return cli_fail(restore->cli, code, restore->path, "%s", err_text());
}

static int open_file(struct restore *restore)
{
	/* O_NONBLOCK: nobody waits for a pipe's writer. */
	int fd = open(restore->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return cli_fail_system(restore->cli, -errno, restore->path);
	restore->fd = fd;
	if (!S_ISREG(st.st_mode))
		return cli_fail(restore->cli, -EINVAL, restore->path,
				"is no regular file: it is read twice, a pipe or device can not be");
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return CLI_OK;
}

static void list_record(struct restore *restore, const struct snapshot_record *record,
			const unsigned char *key)
{
	struct tarn_item item = {.kind = record->kind};
	json_t *row = json_object();

	if (row != NULL &&
	    (writer_set_key(row, key, record->key_bytes) < 0 ||
	     json_object_set_new(row, "value_bytes", writer_u64(record->value_bytes)) < 0 ||
	     json_object_set_new(row, "kind", cli_kind(&item)) < 0 ||
	     json_object_set_new(row, "flags", json_integer(record->user_flags)) < 0 ||
	     json_object_set_new(row, "stamp", writer_u64(record->stamp)) < 0 ||
	     json_object_set_new(row, "expiry_ms",
				 record->expiry_ms != 0 ? writer_u64(record->expiry_ms)
							: json_null()) < 0)) {
		json_decref(row);
		row = NULL;
	}
	writer_row(restore->cli->writer, row);
}

static bool is_stopped(struct restore *restore)
{
	return *restore->cli->stop || writer_failed(restore->cli->writer) != 0;
}

static void show_progress(struct restore *restore, const struct snapshot_reader *reader)
{
	restore->progress.files = reader->totals.values + reader->totals.counters;
	restore->progress.bytes = reader->totals.value_bytes;
	if (reader->file_bytes > 0)
		restore->progress.permille = (uint64_t)(1000.0 * (double)reader->offset /
							(double)reader->file_bytes);
	progress_update(&restore->progress);
}

/* Reads the whole file. 0, or an exit code after complaining. */
static int verify(struct restore *restore)
{
	struct snapshot_reader *reader = NULL;
	struct snapshot_record record;
	int status = snapshot_reader_open(restore->fd, &reader);

	while (status >= 0 && !is_stopped(restore)) {
		status = snapshot_reader_next(reader, NULL, &record);
		if (status <= 0)
			break;
		if (restore->list)
			list_record(restore, &record, reader->key);
		show_progress(restore, reader);
	}
	if (status < 0) {
		status = fail_file(restore, status);
	} else if (status > 0) {
		status = cli_fail(restore->cli, -EINTR, restore->path,
				  "interrupted: nothing was written");
	} else {
		restore->header = reader->header;
		restore->totals = reader->totals;
	}
	snapshot_reader_free(reader);
	return status;
}

/* ---- into the pool --------------------------------------------------------------------------- */

static int stop_at(struct restore *restore, int code, const unsigned char *key, size_t n)
{
	char text[ERR_TEXT_BYTES], *escaped = malloc(TEXT_ESCAPED_BYTES(n));

	snprintf(text, sizeof(text), "%s",
		 code == -EINTR ? "interrupted" : tarn_last_error_text());
	if (escaped != NULL)
		text_escape(key, n, escaped);
	code = cli_fail(restore->cli, code, escaped,
			"%s; %" PRIu64 " of %" PRIu64
			" keys are restored: run it again, with --if-absent it leaves them alone",
			text, restore->keys + restore->skipped,
			restore->totals.values + restore->totals.counters);
	free(escaped);
	return code;
}

static int put_record(struct restore *restore, const struct snapshot_record *record,
		      const unsigned char *key)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	int status;

	options.flags = (restore->if_absent ? TARN_PUT_IF_ABSENT : 0) |
			(record->kind == TARN_KIND_COUNTER ? TARN_PUT_COUNTER : 0);
	options.user_flags = record->user_flags;
	options.expiry_ms = record->expiry_ms;
	status = tarn_put(restore->cli->session, key, record->key_bytes, restore->value.bytes,
			  (size_t)record->value_bytes, &options, NULL);
	if (status == -TARN_EEXISTS) {
		restore->skipped++;
		return CLI_OK;
	}
	if (status < 0)
		return stop_at(restore, status, key, record->key_bytes);
	restore->keys++;
	restore->value_bytes += record->value_bytes;
	return CLI_OK;
}

static int put_all(struct restore *restore)
{
	struct snapshot_reader *reader = NULL;
	struct snapshot_record record;
	int status = snapshot_reader_open(restore->fd, &reader), exit_code = CLI_OK;

	while (status >= 0 && exit_code == CLI_OK) {
		status = snapshot_reader_next(reader, &restore->value, &record);
		if (status <= 0)
			break;
		if (is_stopped(restore))
			exit_code = stop_at(restore, -EINTR, reader->key, record.key_bytes);
		else
			exit_code = put_record(restore, &record, reader->key);
		show_progress(restore, reader);
	}
	if (status < 0)
		exit_code = fail_file(restore, status);
	snapshot_reader_free(reader);
	return exit_code;
}

/* What would fail in the middle is said before anything is written. */
static int check_fit(struct restore *restore)
{
	struct tarn_pool_info info = {.size = sizeof(info)};
	int status = tarn_session_get_pool_info(restore->cli->session, &info);

	if (status < 0)
		return cli_fail_library(restore->cli, status, restore->cli->uri);
	if (restore->totals.largest_value_bytes > info.max_value_bytes)
		return cli_fail(restore->cli, -TARN_EVALUESIZE, restore->path,
				"its largest value has %" PRIu64
				" bytes, the pool takes up to %" PRIu64
				" (max_value in tarnd.conf); nothing was written",
				restore->totals.largest_value_bytes, info.max_value_bytes);
	return CLI_OK;
}

/* ---- what is in the file --------------------------------------------------------------------- */

static void describe(struct restore *restore)
{
	const struct snapshot_header *header = &restore->header;
	const struct snapshot_totals *totals = &restore->totals;
	struct writer *writer = restore->cli->writer;
	enum writer_look look = restore->list || restore->cli->quiet ? WRITER_HIDDEN : WRITER_TABLE;
	char incarnation[20];

	snprintf(incarnation, sizeof(incarnation), "%016" PRIx64, header->incarnation);
	writer_field(writer, look, "version", json_integer(header->version));
	writer_field(writer, look, "pool", writer_text(header->pool));
	writer_field(writer, look, "incarnation", writer_text(incarnation));
	writer_field(writer, look, "tarn_version", writer_text(header->tarn_version));
	writer_field(writer, WRITER_HIDDEN, "created_ms", writer_u64(header->created_ms));
	writer_field(writer, WRITER_HIDDEN, "finished_ms", writer_u64(totals->finished_ms));
	writer_field(writer, look, "pool_bytes", writer_u64(header->pool_bytes));
	writer_field(writer, look, "keys", writer_u64(totals->values + totals->counters));
	writer_field(writer, look, "values", writer_u64(totals->values));
	writer_field(writer, look, "counters", writer_u64(totals->counters));
	writer_field(writer, look, "key_bytes", writer_u64(totals->key_bytes));
	writer_field(writer, look, "value_bytes", writer_u64(totals->value_bytes));
	writer_field(writer, look, "largest_value_bytes", writer_u64(totals->largest_value_bytes));
	writer_field(writer, look, "vanished", writer_u64(totals->vanished));
	writer_field(writer, look, "damaged", writer_u64(totals->damaged));
}

static void summary(struct restore *restore)
{
	struct writer *writer = restore->cli->writer;
	enum writer_look look = restore->cli->quiet ? WRITER_HIDDEN : WRITER_TABLE;

	writer_field(writer, look, "keys", writer_u64(restore->keys));
	writer_field(writer, look, "value_bytes", writer_u64(restore->value_bytes));
	writer_field(writer, restore->skipped > 0 ? look : WRITER_HIDDEN, "skipped",
		     writer_u64(restore->skipped));
	writer_field(writer, look, "elapsed_ns",
		     writer_u64(clock_now_ns() - restore->progress.start_ns));
}

static void begin_progress(struct restore *restore)
{
	progress_begin(&restore->progress, !restore->cli->quiet);
	restore->progress.things = "keys";
	restore->cli->progress = &restore->progress;
}

static void end_progress(struct restore *restore)
{
	progress_clear(&restore->progress);
	restore->cli->progress = NULL;
}

static int show_file(struct restore *restore)
{
	int status;

	if (restore->list)
		writer_list_begin(restore->cli->writer, WRITER_TABLE, "records");
	begin_progress(restore);
	status = verify(restore);
	end_progress(restore);
	if (restore->list)
		writer_list_end(restore->cli->writer);
	if (status == CLI_OK)
		describe(restore);
	return status;
}

static int restore_file(struct restore *restore)
{
	int status;

	begin_progress(restore);
	status = verify(restore);
	if (status == CLI_OK)
		status = cli_open(restore->cli, false);
	if (status == CLI_OK)
		status = check_fit(restore);
	if (status != CLI_OK) {
		end_progress(restore);
		return status;
	}
	begin_progress(restore);
	status = put_all(restore);
	end_progress(restore);
	summary(restore);
	return status;
}

static int run_restore(struct cli *cli, const struct arguments *args)
{
	struct restore restore = {
		.cli = cli,
		.path = args->operands[0],
		.fd = -1,
		.if_absent = args->own.values[RESTORE_IF_ABSENT] != NULL,
		.list = args->own.values[RESTORE_LIST] != NULL,
	};
	bool only_show = restore.list || args->own.values[RESTORE_VERIFY] != NULL;
	int status;

	if (only_show && (args->count == 2 || restore.if_absent))
		return cli_fail_usage(cli, "--verify and --list have nothing to do with a pool");
	if (strncmp(restore.path, "tarn:", 5) == 0)
		return cli_fail_usage(cli, "'%s' is no FILE: write `tarn restore FILE [URI]`",
				      restore.path);
	if (args->count == 2)
		cli->uri = args->operands[1];
	status = open_file(&restore);
	if (status == CLI_OK)
		status = only_show ? show_file(&restore) : restore_file(&restore);
	if (restore.fd >= 0)
		close(restore.fd);
	buffer_free(&restore.value);
	return status;
}

const struct verb verb_restore = {
	.name = "restore",
	.operands = "FILE [URI]",
	.help = "put what a snapshot holds into a pool",
	.details = "The whole file is checked before anything is written; a damaged one is refused "
		   "with the offset. Keys that are there are replaced, or with --if-absent left "
		   "alone; others stay. What would expire has the time left that it had in the "
		   "snapshot. The pool may have another size: if it is full, the rest is missing, and "
		   "how much that is is said. URI is the pool, as with -u.",
	.options = restore_options,
	.min_operands = 1,
	.max_operands = 2,
	.run = run_restore,
};
