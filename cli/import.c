/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * import.c - `tarn import DIR [PREFIX]`: every regular file of a tree becomes a key
 *
 * One file that can not be read does not end the walk: it is named and counted. What would fail for
 * each file (no daemon, a full pool) does. Next to read: export.c, the way back.
 */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "cli.h"
#include "clock.h"
#include "progress.h"
#include "text.h"
#include "verbs.h"

#define IMPORT_READ_TRIES 3 /* of a file that is changed meanwhile */

struct import {
	struct cli *cli;
	struct progress progress;
	struct buffer value;
	struct tarn_pool_info pool;
	unsigned char *key; /* the prefix, then the path */
	size_t prefix_bytes, root_bytes;
	uint64_t files, bytes, errors;
	uint64_t symlinks, devices, pipes, sockets, empty_directories;
	int exit_code; /* not CLI_OK: the walk is over */
};

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* One file (or directory) has failed; the rest goes on. */
static void note_error(struct import *import, const char *path, int code, const char *text)
{
	json_t *row = json_pack("{s:o, s:i, s:s, s:o}", "path", writer_text(path), "code", -code,
				"name", tarn_error_name(code), "text", writer_text(text));

	cli_complain(import->cli, path, text);
	writer_row(import->cli->writer, row);
	import->errors++;
}

static bool is_changed(const struct stat *a, const struct stat *b)
{
	return a->st_size != b->st_size || a->st_mtim.tv_sec != b->st_mtim.tv_sec ||
	       a->st_mtim.tv_nsec != b->st_mtim.tv_nsec || a->st_ctim.tv_sec != b->st_ctim.tv_sec ||
	       a->st_ctim.tv_nsec != b->st_ctim.tv_nsec;
}

/*
 * Reads an open file as it was at one moment. 0, -errno, or -EAGAIN when it was changed meanwhile.
 */
static int read_once(struct import *import, int fd, struct stat *st, size_t *ret_n)
{
	struct stat after;
	int status;

	if (fstat(fd, st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -EAGAIN;
	if ((uint64_t)st->st_size > import->pool.max_value_bytes)
		return -EFBIG;
	status = buffer_read(&import->value, fd, (size_t)st->st_size, import->pool.max_value_bytes,
			     ret_n);
	if (status < 0)
		return status;
	if (fstat(fd, &after) < 0)
		return -errno;
	/* Files of /proc say that they have 0 bytes, and have more. */
	if (is_changed(st, &after) || (*ret_n != (size_t)st->st_size && st->st_size != 0))
		return -EAGAIN;
	return 0;
}

static int read_file(struct import *import, const FTSENT *entry, struct stat *st, size_t *ret_n)
{
	/* O_NONBLOCK: should it be a pipe by now, nobody waits for its writer. */
	int fd = open(entry->fts_accpath, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
	    status = -EAGAIN;

	if (fd < 0)
		return -errno;
	for (int i = 0; i < IMPORT_READ_TRIES && status == -EAGAIN; i++)
		status = read_once(import, fd, st, ret_n);
	close(fd);
	return status;
}

/* Would the next file fail in the same way? */
static bool is_fatal(int code)
{
	switch (-code) {
	case TARN_EKEYSIZE:
	case TARN_EVALUESIZE:
	case TARN_EINDEXFULL:
		return false;
	}
	return true;
}

static void put_file(struct import *import, const char *path, size_t key_bytes,
		     const struct stat *st, size_t n)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	int status;

	/* With the type: so export knows these flags from those of another application. */
	options.user_flags = st->st_mode & (S_IFMT | 0777);
	status = tarn_put(import->cli->session, import->key, key_bytes, import->value.bytes, n,
			  &options, NULL);
	if (status == 0) {
		import->files++;
		import->bytes += n;
	} else if (is_fatal(status)) {
		import->exit_code = cli_fail_library(import->cli, status, path);
	} else {
		note_error(import, path, status, tarn_last_error_text());
	}
}

/* The path beneath the tree's root. */
static const char *relative_path(const struct import *import, const FTSENT *entry, size_t *ret_n)
{
	const char *path = entry->fts_path + import->root_bytes;

	path += *path == '/';
	*ret_n = (size_t)entry->fts_pathlen - (size_t)(path - entry->fts_path);
	return path;
}

static void import_file(struct import *import, const FTSENT *entry)
{
	size_t path_bytes, key_bytes, n = 0;
	const char *path = relative_path(import, entry, &path_bytes);
	char text[160];
	struct stat st;
	int status;

	key_bytes = import->prefix_bytes + path_bytes;
	if (key_bytes > CLI_KEY_MAX_BYTES) {
		snprintf(text, sizeof(text), "its key would have %zu bytes, %u are allowed",
			 key_bytes, CLI_KEY_MAX_BYTES);
		note_error(import, entry->fts_path, -TARN_EKEYSIZE, text);
		return;
	}
	memcpy(import->key + import->prefix_bytes, path, path_bytes);
	status = read_file(import, entry, &st, &n);
	if (status == 0) {
		put_file(import, entry->fts_path, key_bytes, &st, n);
	} else if (status == -EFBIG) {
		snprintf(text, sizeof(text), "larger than the pool's max_value, %" PRIu64 " bytes",
			 import->pool.max_value_bytes);
		note_error(import, entry->fts_path, -TARN_EVALUESIZE, text);
	} else if (status == -EAGAIN) {
		note_error(import, entry->fts_path, status,
			   "was changed each time while it was read");
	} else {
		note_error(import, entry->fts_path, status, strerror(-status));
	}
}

static void count_other(struct import *import, mode_t mode)
{
	if (S_ISFIFO(mode))
		import->pipes++;
	else if (S_ISSOCK(mode))
		import->sockets++;
	else
		import->devices++;
}

static void import_entry(struct import *import, FTSENT *entry)
{
	/* A directory counts its entries, to be known as empty behind them. */
	entry->fts_parent->fts_number++;
	switch (entry->fts_info) {
	case FTS_F:
		import_file(import, entry);
		break;
	case FTS_D:
		entry->fts_number = 0;
		break;
	case FTS_DP:
		entry->fts_parent->fts_number--;
		import->empty_directories += entry->fts_number == 0 && entry->fts_level > 0;
		break;
	case FTS_SL:
	case FTS_SLNONE:
		import->symlinks++;
		break;
	case FTS_DEFAULT:
		count_other(import, entry->fts_statp->st_mode);
		break;
	case FTS_DC:
		note_error(import, entry->fts_path, -ELOOP, "the directory contains itself");
		break;
	default: /* FTS_DNR, FTS_ERR, FTS_NS */
		note_error(import, entry->fts_path, -entry->fts_errno, strerror(entry->fts_errno));
	}
}

/* For the estimate of the time that is left. */
static void count_tree(struct import *import, char *root)
{
	char *roots[] = {root, NULL};
	FTS *fts = import->progress.enabled ? fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW, NULL)
					    : NULL;
	FTSENT *entry;

	while (fts != NULL && (entry = fts_read(fts)) != NULL && !*import->cli->stop) {
		if (entry->fts_info != FTS_F)
			continue;
		import->progress.total_files++;
		import->progress.total_bytes += (uint64_t)entry->fts_statp->st_size;
	}
	if (fts != NULL)
		fts_close(fts);
}

static void walk(struct import *import, char *root)
{
	char *roots[] = {root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW, by_name);
	FTSENT *entry;

	if (fts == NULL) {
		import->exit_code = cli_fail_system(import->cli, -errno, root);
		return;
	}
	errno = 0;
	while (import->exit_code == CLI_OK && (entry = fts_read(fts)) != NULL) {
		if (*import->cli->stop) {
			import->exit_code = cli_fail(import->cli, -EINTR, root,
						     "interrupted: the rest was not imported");
			break;
		}
		import_entry(import, entry);
		import->progress.files = import->files;
		import->progress.bytes = import->bytes;
		progress_update(&import->progress);
		errno = 0;
	}
	if (import->exit_code == CLI_OK && errno != 0)
		import->exit_code = cli_fail_system(import->cli, -errno, root);
	fts_close(fts);
}

static void summary(struct import *import)
{
	struct writer *writer = import->cli->writer;
	enum writer_look look = import->cli->quiet ? WRITER_HIDDEN : WRITER_TABLE;
	const struct {
		const char *name;
		uint64_t count;
	} skipped[] = {
		{"skipped_symlinks", import->symlinks},
		{"skipped_devices", import->devices},
		{"skipped_pipes", import->pipes},
		{"skipped_sockets", import->sockets},
		{"skipped_empty_directories", import->empty_directories},
	};

	writer_field(writer, look, "files", writer_u64(import->files));
	writer_field(writer, look, "bytes", writer_u64(import->bytes));
	/* In text only what there is to say. */
	for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++)
		writer_field(writer, skipped[i].count > 0 ? look : WRITER_HIDDEN, skipped[i].name,
			     writer_u64(skipped[i].count));
	writer_field(writer, look, "errors", writer_u64(import->errors));
	writer_field(writer, look, "elapsed_ns",
		     writer_u64(clock_now_ns() - import->progress.start_ns));
}

static int import_tree(struct import *import, char *root)
{
	struct cli *cli = import->cli;

	progress_begin(&import->progress, !cli->quiet);
	cli->progress = &import->progress;
	writer_list_begin(cli->writer, WRITER_HIDDEN, "failed");
	count_tree(import, root);
	walk(import, root);
	writer_list_end(cli->writer);
	progress_clear(&import->progress);
	cli->progress = NULL;
	summary(import);
	if (import->exit_code == CLI_OK && import->errors > 0)
		return CLI_REFUSED;
	return import->exit_code;
}

/*
 * A tree begins at a directory; fts would take a file, too. Returns it without slashes at its end.
 */
static int open_root(struct cli *cli, const char *operand, char **ret_root)
{
	size_t n = strlen(operand);
	struct stat st;

	while (n > 1 && operand[n - 1] == '/')
		n--;
	if (stat(operand, &st) < 0)
		return cli_fail_system(cli, -errno, operand);
	if (!S_ISDIR(st.st_mode))
		return cli_fail_system(cli, -ENOTDIR, operand);
	*ret_root = strndup(operand, n);
	return *ret_root == NULL ? cli_fail_system(cli, -ENOMEM, NULL) : CLI_OK;
}

static int run_import(struct cli *cli, const struct arguments *args)
{
	struct import import = {
		.cli = cli, .pool.size = sizeof(import.pool), .key = malloc(CLI_KEY_MAX_BYTES)};
	struct cli_key prefix = {0};
	char *root = NULL;
	int status = open_root(cli, args->operands[0], &root);

	if (status == CLI_OK)
		status =
			cli_key_parse(cli, args->count > 1 ? args->operands[1] : "", true, &prefix);
	if (status == CLI_OK && import.key == NULL)
		status = cli_fail_system(cli, -ENOMEM, NULL);
	if (status == CLI_OK)
		status = cli_open(cli, false);
	if (status != CLI_OK)
		goto out_free;
	status = tarn_session_get_pool_info(cli->session, &import.pool);
	if (status < 0) {
		status = cli_fail_library(cli, status, cli->uri);
		goto out_free;
	}
	memcpy(import.key, prefix.bytes, prefix.n);
	import.prefix_bytes = prefix.n;
	import.root_bytes = strcmp(root, "/") == 0 ? 0 : strlen(root);
	status = import_tree(&import, root);
out_free:
	buffer_free(&import.value);
	free(import.key);
	cli_key_free(&prefix);
	free(root);
	return status;
}

const struct verb verb_import = {
	.name = "import",
	.operands = "DIR [PREFIX]",
	.help = "put every file of a directory tree",
	.details = "A file's key is PREFIX and its path beneath DIR, with nothing in between; its "
		   "value is its content, and the "
		   "permission bits are kept in the flags. Symbolic links, devices, pipes, sockets "
		   "and empty directories are "
		   "skipped and counted. Files that can not be read are named and make the exit "
		   "code 1; the rest goes on.",
	.min_operands = 1,
	.max_operands = 2,
	.run = run_import,
};
