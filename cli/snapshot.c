/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot.c - `tarn snapshot [URI] FILE`: a copy of a pool while clients work
 *
 * One walk over the keys (tarn_scan_...) and a get for each. What was written when it is interrupted
 * is of use: --resume goes on behind it. Main thread. Next to read: snapshot-write.c,
 * and restore.c, the way back.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "cli.h"
#include "clock.h"
#include "err.h"
#include "progress.h"
#include "snapshot-write.h"
#include "uri.h"
#include "verbs.h"

enum { SNAPSHOT_FORCE, SNAPSHOT_RESUME };

static const struct option_spec snapshot_options[] = {
	[SNAPSHOT_FORCE] = {"force", 0, NULL, "replace FILE if it is there; begin FILE.partial anew"},
	[SNAPSHOT_RESUME] = {"resume", 0, NULL, "go on with FILE.partial if it is there"},
	{0},
};

struct snapshot {
	struct cli *cli;
	const char *path;
	struct progress progress;
	struct buffer value;
	struct snapshot_file *file;
	uint64_t incarnation;
	uint64_t vanished; /* deleted or expired between the walk and the get */
	struct cli_damage damage;
	int exit_code; /* not CLI_OK: the walk is over */
};

static uint64_t keys_of(const struct snapshot *snapshot)
{
	const struct snapshot_totals *totals = snapshot_file_totals(snapshot->file);

	return totals->values + totals->counters;
}

/* What is worth keeping is kept, and how to go on is said. */
static void stop_at(struct snapshot *snapshot, int code, const char *text)
{
	int status = snapshot_file_flush(snapshot->file);

	snapshot->exit_code =
		cli_fail(snapshot->cli, code, snapshot->path,
			 "%s; %" PRIu64 " keys are in %s.partial%s: --resume goes on", text,
			 keys_of(snapshot), snapshot->path,
			 status < 0 ? ", of which the last ones are not on disk" : "");
}

static void stop_at_library(struct snapshot *snapshot, int code)
{
	char text[ERR_TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", tarn_last_error_text());
	stop_at(snapshot, code, text);
}

/* The disk is full, or the like: what could be written is whole chunks, which is good enough. */
static void stop_at_file(struct snapshot *snapshot, int code)
{
	snapshot->exit_code = cli_fail(snapshot->cli, code, snapshot->path,
				       "%s; what is whole of %s.partial can be gone on with: --resume",
				       err_text(), snapshot->path);
}

/* Is the session still in the pool that the snapshot is of? */
static bool is_same_pool(struct snapshot *snapshot)
{
	struct tarn_pool_info info = {.size = sizeof(info)};

	if (tarn_session_get_pool_info(snapshot->cli->session, &info) == 0 &&
	    info.incarnation == snapshot->incarnation)
		return true;
	stop_at(snapshot, -TARN_ERESTARTED,
		"tarnd was started again meanwhile: the pool is another one");
	return false;
}

static void add_record(struct snapshot *snapshot, const void *key, size_t n,
		       const struct tarn_item *item, const struct tarn_scan *scan)
{
	struct snapshot_record record = {
		.key_bytes = (uint16_t)n,
		.kind = (uint8_t)item->kind,
		.user_flags = item->user_flags,
		.value_bytes = item->value_bytes,
		.expiry_ms = item->expiry_ms,
		.stamp = item->stamp,
	};
	unsigned char position[TARN_SCAN_POSITION_BYTES];
	size_t position_bytes = 0;
	int status = tarn_scan_position(scan, position, &position_bytes);

	if (status == 0)
		status = snapshot_file_add(snapshot->file, &record, key, snapshot->value.bytes,
					   position, position_bytes);
	if (status < 0)
		stop_at_file(snapshot, status);
}

static void add_key(struct snapshot *snapshot, const void *key, size_t n,
		    const struct tarn_scan *scan)
{
	struct tarn_item item = TARN_ITEM_INIT;
	int status = buffer_get(&snapshot->value, snapshot->cli->session, key, n, &item);

	if (status == -TARN_ENOTFOUND) {
		snapshot->vanished++;
	} else if (status == -TARN_ECORRUPT) {
		snapshot->damage.count++;
		cli_complain(snapshot->cli, NULL, tarn_last_error_text());
	} else if (status == -ENOMEM) {
		stop_at(snapshot, status, "no memory for a value");
	} else if (status < 0) {
		stop_at_library(snapshot, status);
	} else if (is_same_pool(snapshot)) {
		add_record(snapshot, key, n, &item, scan);
	}
}

static void show_progress(struct snapshot *snapshot, const struct tarn_scan *scan)
{
	snapshot->progress.files = keys_of(snapshot);
	snapshot->progress.bytes = snapshot_file_totals(snapshot->file)->value_bytes;
	snapshot->progress.permille = tarn_scan_progress(scan);
	progress_update(&snapshot->progress);
}

static void walk(struct snapshot *snapshot, struct tarn_scan *scan)
{
	const void *key;
	size_t n;
	int status = 1;

	while (snapshot->exit_code == CLI_OK) {
		if (*snapshot->cli->stop) {
			stop_at(snapshot, -EINTR, "interrupted");
			return;
		}
		status = cli_scan_next(snapshot->cli, scan, &key, &n, NULL, &snapshot->damage);
		if (status < 0)
			stop_at_library(snapshot, status);
		if (status <= 0)
			return;
		add_key(snapshot, key, n, scan);
		show_progress(snapshot, scan);
	}
}

static void summary(struct snapshot *snapshot)
{
	const struct snapshot_totals *totals = snapshot_file_totals(snapshot->file);
	struct writer *writer = snapshot->cli->writer;
	enum writer_look look = snapshot->cli->quiet ? WRITER_HIDDEN : WRITER_TABLE;

	writer_field(writer, WRITER_HIDDEN, "file", writer_text(snapshot->path));
	writer_field(writer, look, "keys", writer_u64(keys_of(snapshot)));
	writer_field(writer, WRITER_HIDDEN, "values", writer_u64(totals->values));
	writer_field(writer, WRITER_HIDDEN, "counters", writer_u64(totals->counters));
	writer_field(writer, look, "value_bytes", writer_u64(totals->value_bytes));
	writer_field(writer, look, "file_bytes", writer_u64(snapshot_file_bytes(snapshot->file)));
	writer_field(writer, snapshot->vanished > 0 ? look : WRITER_HIDDEN, "vanished",
		     writer_u64(snapshot->vanished));
	writer_field(writer, snapshot->damage.count > 0 ? look : WRITER_HIDDEN, "damaged",
		     writer_u64(snapshot->damage.count));
	writer_field(writer, WRITER_HIDDEN, "resumed",
		     json_boolean(snapshot_file_is_resumed(snapshot->file)));
	writer_field(writer, look, "elapsed_ns",
		     writer_u64(clock_now_ns() - snapshot->progress.start_ns));
}

/* The walk, from where the file is, to its end. */
static void take(struct snapshot *snapshot)
{
	struct cli *cli = snapshot->cli;
	struct tarn_scan *scan = NULL;
	size_t n;
	const void *position = snapshot_file_position(snapshot->file, &n);
	int status = n > 0 ? tarn_scan_open_at(cli->session, NULL, 0, position, n, &scan)
			   : tarn_scan_open(cli->session, NULL, 0, &scan);

	if (status < 0) {
		snapshot->exit_code = cli_fail_library(cli, status, snapshot->path);
		return;
	}
	progress_begin(&snapshot->progress, !cli->quiet);
	snapshot->progress.things = "keys";
	cli->progress = &snapshot->progress;
	if (!snapshot_file_is_whole(snapshot->file))
		walk(snapshot, scan);
	tarn_scan_close(scan);
	if (snapshot->exit_code == CLI_OK && is_same_pool(snapshot)) {
		status = snapshot_file_finish(snapshot->file, snapshot->vanished,
					      snapshot->damage.count);
		if (status < 0)
			stop_at_file(snapshot, status);
	}
	progress_clear(&snapshot->progress);
	cli->progress = NULL;
	summary(snapshot);
	if (snapshot->exit_code == CLI_OK && snapshot->damage.count > 0)
		snapshot->exit_code =
			cli_fail(cli, -TARN_ECORRUPT, NULL,
				 "%" PRIu64 " damaged entries are left out", snapshot->damage.count);
}

static int make_header(struct cli *cli, struct snapshot_header *ret_header)
{
	struct tarn_pool_info info = {.size = sizeof(info)};
	struct uri uri;
	int status = tarn_session_get_pool_info(cli->session, &info);

	if (status == 0)
		status = uri_parse(cli->uri, &uri);
	if (status < 0)
		return cli_fail_library(cli, status, cli->uri);
	*ret_header = (struct snapshot_header){
		.created_ms = clock_wall_ms(),
		.incarnation = info.incarnation,
		.boot_id = info.boot_id,
		.pool_bytes = info.pool_bytes,
		.max_value_bytes = info.max_value_bytes,
		.epoch_ns = info.epoch_ns,
	};
	static_assert(sizeof(uri.pool) <= sizeof(ret_header->pool), "pool's name");
	memcpy(ret_header->pool, uri.pool, strlen(uri.pool));
	strncpy(ret_header->tarn_version, tarn_version(), sizeof(ret_header->tarn_version) - 1);
	return CLI_OK;
}

static int run_snapshot(struct cli *cli, const struct arguments *args)
{
	struct snapshot snapshot = {.cli = cli, .path = args->operands[args->count - 1]};
	struct snapshot_wish wish = {
		.path = snapshot.path,
		.force = args->own.values[SNAPSHOT_FORCE] != NULL,
		.resume = args->own.values[SNAPSHOT_RESUME] != NULL,
	};
	struct snapshot_header header;
	int status;

	if (strncmp(snapshot.path, "tarn:", 5) == 0)
		return cli_fail_usage(cli, "'%s' is no FILE: write `tarn snapshot [URI] FILE`",
				      snapshot.path);
	if (strcmp(snapshot.path, "-") == 0)
		return cli_fail_usage(cli, "a snapshot is a regular file, not standard output");
	if (args->count == 2)
		cli->uri = args->operands[0];
	status = cli_open(cli, true);
	if (status == CLI_OK)
		status = make_header(cli, &header);
	if (status != CLI_OK)
		return status;
	status = snapshot_file_open(&wish, &header, &snapshot.file);
	if (status < 0)
		return cli_fail(cli, status, snapshot.path, "%s", err_text());
	snapshot.incarnation = header.incarnation;
	take(&snapshot);
	snapshot_file_free(snapshot.file);
	buffer_free(&snapshot.value);
	return snapshot.exit_code;
}

const struct verb verb_snapshot = {
	.name = "snapshot",
	.operands = "[URI] FILE",
	.help = "copy a pool into a file while clients work",
	.details = "Each key that is there during the whole copy is in it once, with a value that it "
		   "had meanwhile. The file is written as FILE.partial and gets its name when it is "
		   "whole and on disk. After an interruption --resume goes on behind what is there, "
		   "if the pool is still the same. URI is the pool, as with -u.",
	.options = snapshot_options,
	.min_operands = 1,
	.max_operands = 2,
	.run = run_snapshot,
};
