/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-stream.c - `tarn region read` and `tarn region write`: to standard output, from a file or any stream
 *
 * Main thread. Next to read: region-run.c, region-copy.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region.h"
#include "region-run.h"

/* What a terminal shows when nobody has said how much. */
#define SHOWN_BYTES 512u

/* One JSON string, which needs several times as much memory. */
#define JSON_MAX_BYTES (16u << 20)

/* How many bytes there are from offset on; *bytes: at most so many, if it is not UINT64_MAX. */
static int check_range(struct cli *cli, const char *name, uint64_t size, uint64_t offset,
		       uint64_t *bytes)
{
	if (offset > size)
		return cli_fail(cli, -EINVAL, name,
				"--offset %" PRIu64 " is outside: the region has %" PRIu64 " bytes",
				offset, size);
	if (*bytes == UINT64_MAX)
		*bytes = size - offset;
	if (*bytes > size - offset)
		return cli_fail(cli, -EINVAL, name,
				"%" PRIu64 " bytes at %" PRIu64
				" are not inside: the region has %" PRIu64 " bytes",
				*bytes, offset, size);
	return CLI_OK;
}

static void put_place(struct cli *cli, const char *name, uint64_t offset)
{
	writer_field(cli->writer, WRITER_HIDDEN, "name", writer_text(name));
	writer_field(cli->writer, WRITER_HIDDEN, "offset", writer_u64(offset));
}

/* ---- read ------------------------------------------------------------------------------------ */

static int read_json(struct cli *cli, const char *name, struct tarn_region *region, uint64_t offset,
		     uint64_t bytes)
{
	unsigned char *data;
	int status;

	if (bytes > JSON_MAX_BYTES)
		return cli_fail(cli, -EFBIG, name,
				"JSON has at most %u bytes of a region, not %" PRIu64
				": use --bytes and --offset",
				JSON_MAX_BYTES, bytes);
	data = malloc(bytes > 0 ? (size_t)bytes : 1);
	if (data == NULL)
		return cli_fail_system(cli, -ENOMEM, NULL);
	status = tarn_region_read(region, offset, data, (size_t)bytes);
	if (status < 0) {
		status = cli_fail_library(cli, status, name);
	} else {
		writer_field(cli->writer, WRITER_HIDDEN, "bytes", writer_u64(bytes));
		writer_bytes(cli->writer, "data", data, (size_t)bytes);
	}
	free(data);
	return status;
}

static int read_text(struct cli *cli, const char *name, struct tarn_region *region, uint64_t offset,
		     uint64_t bytes, bool hex, bool terminal)
{
	struct region_run run = {.bytes = bytes, .no_progress = terminal};
	int status;

	side_from_region(&run.source, cli->session, region, offset);
	if (hex)
		side_to_hex(&run.target, cli->writer, offset);
	else
		side_to_writer(&run.target, cli->writer);
	status = region_run(cli, &run);
	if (status == 0)
		return CLI_OK;
	if (writer_failed(cli->writer) < 0) /* main() says so */
		return CLI_REFUSED;
	return cli_fail(cli, status, name, "%s; %" PRIu64 " of %" PRIu64 " bytes were written",
			run.text, run.done_bytes, bytes);
}

int region_read(struct cli *cli, const struct arguments *args)
{
	bool terminal = !cli->json && isatty(STDOUT_FILENO),
	     hex = terminal || args->own.values[REGION_HEX] != NULL, cut = false;
	uint64_t offset = 0, bytes = UINT64_MAX, all;
	const char *name = args->operands[0];
	struct tarn_region *region = NULL;
	int status = region_parse_option(cli, args, REGION_OFFSET, &offset);

	if (status == CLI_OK)
		status = region_parse_option(cli, args, REGION_BYTES, &bytes);
	if (status == CLI_OK)
		status = region_open(cli, name, true, &region);
	if (status != CLI_OK)
		return status;
	cut = terminal && bytes == UINT64_MAX;
	status = check_range(cli, name, tarn_region_bytes(region), offset, &bytes);
	if (status != CLI_OK)
		goto out_region;
	all = bytes;
	if (cut && bytes > SHOWN_BYTES)
		bytes = SHOWN_BYTES;
	put_place(cli, name, offset);
	status = cli->json ? read_json(cli, name, region, offset, bytes)
			   : read_text(cli, name, region, offset, bytes, hex, terminal);
	if (status == CLI_OK && bytes < all && !cli->quiet) {
		char text[96];

		snprintf(text, sizeof(text),
			 "%" PRIu64 " of %" PRIu64 " bytes are shown: --bytes shows more", bytes,
			 all);
		cli_complain(cli, name, text);
	}
out_region:
	tarn_region_close(region);
	return status;
}

/* ---- write ----------------------------------------------------------------------------------- */

/* What a regular file has is known before; of a stream it is seen at its end. */
static int check_input(struct cli *cli, int fd, const char *what, const char *name, uint64_t offset,
		       uint64_t room)
{
	struct stat st;
	off_t at;

	if (fstat(fd, &st) < 0)
		return cli_fail_system(cli, -errno, what);
	if (S_ISDIR(st.st_mode))
		return cli_fail_system(cli, -EISDIR, what);
	if (!S_ISREG(st.st_mode))
		return CLI_OK;
	at = lseek(fd, 0, SEEK_CUR);
	if (at < 0 || st.st_size <= at || (uint64_t)(st.st_size - at) <= room)
		return CLI_OK;
	return cli_fail(cli, -EFBIG, what,
			"%" PRIu64 " bytes do not fit into %s: it has %" PRIu64
			" from offset %" PRIu64 " on; make it larger by `tarn region resize`",
			(uint64_t)(st.st_size - at), name, room, offset);
}

/* Has it more than there was room for? */
static int check_end(struct cli *cli, int fd, const char *what, const char *name, uint64_t room)
{
	ssize_t n;
	char byte;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR && !*cli->stop);
	if (n < 0)
		return cli_fail_system(cli, -errno, what);
	return n == 0 ? CLI_OK
		      : cli_fail(cli, -EFBIG, what,
				 "it has more than the %" PRIu64
				 " bytes that %s has room for: these are "
				 "written, the rest is not",
				 room, name);
}

static int write_from(struct cli *cli, int fd, const char *what, const char *name,
		      struct tarn_region *region, uint64_t offset, uint64_t room)
{
	struct region_run run = {.bytes = room};
	int status;

	side_from_fd(&run.source, fd, cli->stop);
	side_to_region(&run.target, cli->session, region, offset);
	status = region_run(cli, &run);
	put_place(cli, name, offset);
	writer_field(cli->writer, WRITER_HIDDEN, "bytes", writer_u64(run.done_bytes));
	if (status < 0)
		return cli_fail(cli, status, run.failed_source ? what : name,
				"%s; the first %" PRIu64
				" bytes are in %s, some of the next %" PRIu64 " may be",
				run.text, run.done_bytes, name, run.open_bytes);
	return run.done_bytes == room ? check_end(cli, fd, what, name, room) : CLI_OK;
}

int region_write(struct cli *cli, const struct arguments *args)
{
	bool from_stdin = args->count < 2 || strcmp(args->operands[1], "-") == 0;
	const char *name = args->operands[0],
		   *what = from_stdin ? "standard input" : args->operands[1];
	uint64_t offset = 0, room = UINT64_MAX;
	struct tarn_region *region = NULL;
	int fd = STDIN_FILENO, status = region_parse_option(cli, args, REGION_OFFSET, &offset);

	if (status == CLI_OK)
		status = region_open(cli, name, false, &region);
	if (status != CLI_OK)
		return status;
	status = check_range(cli, name, tarn_region_bytes(region), offset, &room);
	if (status != CLI_OK)
		goto out_region;
	if (!from_stdin)
		fd = open(what, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		status = cli_fail_system(cli, -errno, what);
		goto out_region;
	}
	status = check_input(cli, fd, what, name, offset, room);
	if (status == CLI_OK)
		status = write_from(cli, fd, what, name, region, offset, room);
	if (!from_stdin)
		close(fd);
out_region:
	tarn_region_close(region);
	return status;
}
