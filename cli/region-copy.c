/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-copy.c - `tarn region copy`: from region to region, from a file, into a file
 *
 * Both sides are opened and compared before the first byte is copied. What stands in a region after a failure is said;
 * a file gets its name only when it is whole. Main thread. Next to read: region-stream.c (read and write, one
 * side of which is standard input or output), transfer.c (the copying).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "progress.h"
#include "region.h"
#include "region-run.h"
#include "text.h"

/* SOURCE or TARGET. */
struct place {
	const char *operand; /* for messages */
	char *uri;           /* of a region */
	const char *region;  /* NULL: a file */
	uint64_t bytes;      /* how large it is; of a file that is written: 0 */
	struct tarn_session *session;
	struct tarn_region *open;
	bool owns_session;
	int fd;              /* of a file that is read */
	struct partial file; /* of one that is written */
};

struct copy {
	struct cli *cli;
	struct place source, target;
	uint64_t bytes;
};

/* ---- operands -------------------------------------------------------------------------------- */

static int place_parse(struct cli *cli, const char *operand, struct place *place)
{
	const char *name = strrchr(operand, '#');
	bool is_uri = strncmp(operand, "tarn:", 5) == 0;

	place->operand = operand;
	if (is_uri && name == NULL)
		return cli_fail_usage(cli, "'%s': a region of another pool is URI#NAME", operand);
	if (strcmp(operand, "-") == 0)
		return cli_fail_usage(cli,
				      "copy takes no pipes: `tarn region read` and `tarn region "
				      "write` do");
	if (!is_uri && strchr(operand, '/') != NULL)
		return CLI_OK;
	place->region = is_uri ? name + 1 : operand;
	place->uri = is_uri ? strndup(operand, (size_t)(name - operand)) : strdup(cli->uri);
	if (place->uri == NULL)
		return cli_fail_system(cli, -ENOMEM, NULL);
	return region_check_name(cli, place->region);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A file of that name is likely to be meant when there is no such region. */
static int fail_region(struct cli *cli, int code, const struct place *place)
{
	char text[ERR_TEXT_BYTES];

	snprintf(text, sizeof(text), "%s", tarn_last_error_text());
	if (code == -TARN_ENOREGION && place->region == place->operand &&
	    access(place->operand, F_OK) == 0)
		return cli_fail(cli, code, place->operand,
				"%s; the file of this name is written ./%s", text, place->operand);
	return cli_fail(cli, code, place->operand, "%s", text);
}

/* Of one pool one session does. */
static int open_session(struct copy *copy, struct place *place, bool read_only)
{
	struct place *other = &copy->source;

	if (place != other && other->region != NULL && strcmp(other->uri, place->uri) == 0) {
		place->session = other->session;
		return CLI_OK;
	}
	place->owns_session = true;
	return cli_open_uri(copy->cli, place->uri, read_only, &place->session);
}

static int open_region(struct copy *copy, struct place *place, bool read_only)
{
	const struct place *target = &copy->target;
	bool shared = target->region != NULL && strcmp(target->uri, place->uri) == 0;
	int status = open_session(copy, place, read_only && !shared);

	if (status != CLI_OK)
		return status;
	status = tarn_region_open(place->session, place->region,
				  read_only ? TARN_REGION_READONLY : 0, &place->open);
	if (status < 0)
		return fail_region(copy->cli, status, place);
	place->bytes = tarn_region_bytes(place->open);
	return CLI_OK;
}

static int open_source_file(struct copy *copy)
{
	struct place *place = &copy->source;
	struct cli *cli = copy->cli;
	struct stat st;

	place->fd = open(place->operand, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (place->fd < 0 || fstat(place->fd, &st) < 0)
		return cli_fail_system(cli, -errno, place->operand);
	if (S_ISDIR(st.st_mode))
		return cli_fail_system(cli, -EISDIR, place->operand);
	if (!S_ISREG(st.st_mode))
		return cli_fail(cli, -EINVAL, place->operand,
				"is a device, pipe or socket: `tarn region write` takes these");
	place->bytes = (uint64_t)st.st_size;
	(void)posix_fadvise(place->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return CLI_OK;
}

/* Takes the room at once: a full disk is an error before, not after an hour. */
static int open_target_file(struct copy *copy, bool force)
{
	struct place *place = &copy->target;
	const struct partial_wish wish = {.path = place->operand, .force = force};
	bool is_new;
	int status = partial_open(&place->file, &wish, &is_new);

	if (status == 0)
		status = partial_truncate(&place->file);
	if (status == 0)
		status = partial_reserve(&place->file, copy->bytes);
	return status < 0 ? cli_fail(copy->cli, status, place->operand, "%s", err_text()) : CLI_OK;
}

/* ---- before it begins ------------------------------------------------------------------------ */

static int check_sizes(struct copy *copy)
{
	const struct place *source = &copy->source, *target = &copy->target;
	struct cli *cli = copy->cli;

	if (copy->bytes == UINT64_MAX)
		copy->bytes = source->bytes;
	if (copy->bytes > source->bytes)
		return cli_fail(cli, -EINVAL, source->operand,
				"--bytes is %" PRIu64 ", and it has only %" PRIu64, copy->bytes,
				source->bytes);
	if (target->region != NULL && copy->bytes > target->bytes)
		return cli_fail(cli, -EFBIG, target->operand,
				"%" PRIu64 " bytes do not fit: the region has %" PRIu64
				"; make it larger by `tarn region resize`, or copy less by --bytes",
				copy->bytes, target->bytes);
	return CLI_OK;
}

static int check_not_same(struct copy *copy)
{
	const struct place *places[2] = {&copy->source, &copy->target};
	uint64_t incarnations[2], ids[2];

	for (size_t i = 0; i < 2; i++) {
		struct tarn_pool_info pool = {.size = sizeof(pool)};
		struct tarn_region_info region = {.size = sizeof(region)};
		int status = 0;

		if (places[i]->region == NULL)
			return CLI_OK;
		status = tarn_session_get_pool_info(places[i]->session, &pool);
		if (status == 0)
			status = tarn_region_stat(places[i]->session, places[i]->region, &region);
		if (status < 0)
			return fail_region(copy->cli, status, places[i]);
		incarnations[i] = pool.incarnation;
		ids[i] = region.id;
	}
	if (incarnations[0] != incarnations[1] || ids[0] != ids[1])
		return CLI_OK;
	return cli_fail_usage(copy->cli, "'%s' and '%s' are the same region", copy->source.operand,
			      copy->target.operand);
}

static int open_both(struct copy *copy, bool force)
{
	struct cli *cli = copy->cli;
	int status = copy->source.region != NULL ? open_region(copy, &copy->source, true)
						 : open_source_file(copy);

	if (status == CLI_OK && copy->target.region != NULL)
		status = open_region(copy, &copy->target, false);
	if (status == CLI_OK)
		status = check_not_same(copy);
	if (status == CLI_OK)
		status = check_sizes(copy);
	if (status == CLI_OK && copy->target.region == NULL)
		status = open_target_file(copy, force);
	if (status == CLI_OK && *cli->stop)
		status = cli_fail(cli, -EINTR, NULL, "interrupted");
	return status;
}

/* ---- copying --------------------------------------------------------------------------------- */

/* Also of a copy that has failed. */
static void put_result(struct copy *copy, uint64_t done_bytes, uint64_t elapsed_ns, bool quiet)
{
	enum writer_look look = quiet ? WRITER_HIDDEN : WRITER_TABLE;
	struct writer *writer = copy->cli->writer;
	double seconds = (double)(elapsed_ns > 0 ? elapsed_ns : 1) / 1e9;

	writer_field(writer, WRITER_HIDDEN, "source", writer_text(copy->source.operand));
	writer_field(writer, WRITER_HIDDEN, "target", writer_text(copy->target.operand));
	writer_field(writer, look, "bytes", writer_u64(done_bytes));
	writer_field(writer, look, "elapsed_ns", writer_u64(elapsed_ns));
	writer_field(writer, look, "bytes_per_second",
		     writer_u64((uint64_t)((double)done_bytes / seconds)));
}

/* What has become of TARGET is said with the error. */
static int fail_run(struct copy *copy, int status, const struct region_run *run)
{
	const struct place *culprit = run->failed_source ? &copy->source : &copy->target;
	uint64_t done = run->done_bytes;

	if (copy->target.region == NULL)
		return cli_fail(copy->cli, status, culprit->operand,
				"%s; stopped at byte %" PRIu64 " of %" PRIu64
				", and no file was made",
				run->text, done, copy->bytes);
	return cli_fail(copy->cli, status, culprit->operand,
			"%s; the first %" PRIu64 " of %" PRIu64
			" bytes are in %s, some of the next %" PRIu64
			" may be, the rest is as it was",
			run->text, done, copy->bytes, copy->target.operand, run->open_bytes);
}

static void set_sides(struct copy *copy, struct region_run *run)
{
	struct place *source = &copy->source, *target = &copy->target;

	if (source->region != NULL)
		side_from_region(&run->source, source->session, source->open, 0);
	else
		side_from_fd(&run->source, source->fd, copy->cli->stop);
	if (target->region != NULL)
		side_to_region(&run->target, target->session, target->open, 0);
	else
		side_to_partial(&run->target, &target->file);
	run->bytes = copy->bytes;
}

static int copy_bytes(struct copy *copy)
{
	uint64_t begin_ns = clock_now_ns();
	struct region_run run = {0};
	int status;

	set_sides(copy, &run);
	status = region_run(copy->cli, &run);
	if (status == 0 && run.done_bytes < copy->bytes) {
		run.failed_source = true;
		snprintf(run.text, sizeof(run.text), "it has become shorter meanwhile");
		status = -EIO;
	}
	if (status == 0 && copy->target.region == NULL) {
		status = partial_finish(&copy->target.file);
		if (status < 0)
			snprintf(run.text, sizeof(run.text), "%s", err_text());
	}
	put_result(copy, run.done_bytes, clock_now_ns() - begin_ns, copy->cli->quiet || status < 0);
	return status < 0 ? fail_run(copy, status, &run) : CLI_OK;
}

static void place_close(struct place *place, bool whole)
{
	if (!whole)
		partial_discard(&place->file);
	partial_close(&place->file);
	if (place->fd >= 0)
		close(place->fd);
	tarn_region_close(place->open);
	if (place->owns_session)
		tarn_session_close(place->session);
	free(place->uri);
}

int region_copy(struct cli *cli, const struct arguments *args)
{
	struct copy copy = {.cli = cli, .bytes = UINT64_MAX};
	bool force = args->own.values[REGION_FORCE] != NULL;
	int status;

	copy.source.fd = copy.target.fd = -1;
	copy.source.file.folder = copy.source.file.fd = -1;
	copy.target.file.folder = copy.target.file.fd = -1;
	status = place_parse(cli, args->operands[0], &copy.source);
	if (status == CLI_OK)
		status = place_parse(cli, args->operands[1], &copy.target);
	if (status == CLI_OK && copy.source.region == NULL && copy.target.region == NULL)
		status = cli_fail_usage(cli, "neither '%s' nor '%s' is a region: cp copies files",
					copy.source.operand, copy.target.operand);
	if (status == CLI_OK)
		status = region_parse_option(cli, args, REGION_BYTES, &copy.bytes);
	if (status == CLI_OK)
		status = open_both(&copy, force);
	if (status == CLI_OK)
		status = copy_bytes(&copy);
	/* The target first: its session may be the source's. */
	place_close(&copy.target, status == CLI_OK);
	place_close(&copy.source, true);
	return status;
}
