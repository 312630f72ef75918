/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * put.c - `tarn put KEY [VALUE | -f FILE]`
 *
 * Next to read: get.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "cli.h"
#include "text.h"
#include "verbs.h"

#define PUT_EXPIRE_MAX_MS (100ull * 366 * 86400 * 1000) /* the library allows 100 years */

enum { PUT_FILE, PUT_IF_ABSENT, PUT_IF_STAMP, PUT_EXPIRE, PUT_FLAGS };

static const struct option_spec put_options[] = {
	[PUT_FILE] = {"file", 'f', "FILE", "take the value from FILE; - is standard input"},
	[PUT_IF_ABSENT] = {"if-absent", 0, NULL, "only if the key is not there"},
	[PUT_IF_STAMP] = {"if-stamp", 0, "N",
			  "only if the key is there with this stamp (see tarn exists)"},
	[PUT_EXPIRE] = {"expire", 0, "TIME",
			"the key goes away after this time: 500ms, 30s, 5min, 2h, 1d"},
	[PUT_FLAGS] = {"flags", 0, "N", "a number of 32 bits that is kept with the value"},
	{0},
};

static int parse_options(struct cli *cli, const char *const *values,
			 struct tarn_put_options *ret_options)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	uint64_t flags = 0;

	if (values[PUT_IF_ABSENT] != NULL && values[PUT_IF_STAMP] != NULL)
		return cli_fail_usage(cli, "--if-absent and --if-stamp exclude each other");
	if (values[PUT_IF_ABSENT] != NULL)
		options.flags = TARN_PUT_IF_ABSENT;
	if (values[PUT_IF_STAMP] != NULL) {
		options.flags = TARN_PUT_IF_STAMP;
		if (text_parse_u64(values[PUT_IF_STAMP], UINT64_MAX, &options.stamp) < 0)
			return cli_fail_usage(cli, "--if-stamp '%s' is not a number",
					      values[PUT_IF_STAMP]);
	}
	if (values[PUT_EXPIRE] != NULL &&
	    (text_parse_ms(values[PUT_EXPIRE], PUT_EXPIRE_MAX_MS, &options.expiry_ms) < 0 ||
	     options.expiry_ms == 0))
		return cli_fail_usage(
			cli, "--expire '%s': a time is a number above 0 with ms, s, min, h or d",
			values[PUT_EXPIRE]);
	if (values[PUT_FLAGS] != NULL && text_parse_u64(values[PUT_FLAGS], UINT32_MAX, &flags) < 0)
		return cli_fail_usage(cli, "--flags '%s' is not a number of 32 bits",
				      values[PUT_FLAGS]);
	options.user_flags = (uint32_t)flags;
	*ret_options = options;
	return CLI_OK;
}

/*
 * The pool's limit is asked for first: a value that is too large is not read into memory as a
 * whole.
 */
static int read_value(struct cli *cli, const char *file, struct buffer *buffer, size_t *ret_n)
{
	bool from_stdin = file == NULL || strcmp(file, "-") == 0;
	struct tarn_pool_info info = {.size = sizeof(info)};
	const char *what = from_stdin ? "standard input" : file;
	struct stat st = {0};
	int fd = from_stdin ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	int status;

	if (fd < 0 || fstat(fd, &st) < 0)
		return cli_fail_system(cli, -errno, what);
	status = tarn_session_get_pool_info(cli->session, &info);
	if (status < 0) {
		status = cli_fail_library(cli, status, what);
		goto out_close;
	}
	status = buffer_read(buffer, fd, S_ISREG(st.st_mode) ? (size_t)st.st_size : 0,
			     info.max_value_bytes, ret_n);
	if (status == -EFBIG)
		status =
			cli_fail(cli, -TARN_EVALUESIZE, what,
				 "the value is larger than the pool's max_value, %" PRIu64 " bytes",
				 info.max_value_bytes);
	else if (status < 0)
		status = cli_fail_system(cli, status, what);
out_close:
	if (!from_stdin)
		close(fd);
	return status;
}

static int put_value(struct cli *cli, const struct cli_key *key, const void *value, size_t n,
		     const struct tarn_put_options *options)
{
	uint64_t stamp = 0;
	int status = tarn_put(cli->session, key->bytes, key->n, value, n, options, &stamp);

	writer_key(cli->writer, key->bytes, key->n);
	if (status == 0 || status == -TARN_EAMBIGUOUS)
		writer_field(cli->writer, WRITER_HIDDEN, "stamp", writer_u64(stamp));
	if (status == 0)
		writer_field(cli->writer, WRITER_HIDDEN, "value_bytes", writer_u64(n));
	if (status == -TARN_EAMBIGUOUS)
		return cli_fail(cli, status, key->text,
				"%s; it has if `tarn exists` shows stamp %" PRIu64,
				tarn_last_error_text(), stamp);
	return status < 0 ? cli_fail_library(cli, status, key->text) : CLI_OK;
}

static int run_put(struct cli *cli, const struct arguments *args)
{
	const char *const *values = args->own.values;
	struct tarn_put_options options;
	struct buffer buffer = {0};
	struct cli_key key = {0};
	const void *value = NULL;
	size_t n = 0;
	int status = parse_options(cli, values, &options);

	if (status == CLI_OK && args->count == 2 && values[PUT_FILE] != NULL)
		status = cli_fail_usage(cli, "VALUE and --file exclude each other");
	if (status == CLI_OK)
		status = cli_key_parse(cli, args->operands[0], false, &key);
	if (status == CLI_OK)
		status = cli_open(cli, false);
	if (status != CLI_OK)
		goto out_free;

	if (args->count == 2) {
		value = args->operands[1];
		n = strlen(value);
	} else {
		status = read_value(cli, values[PUT_FILE], &buffer, &n);
		value = buffer.bytes;
	}
	if (status == CLI_OK)
		status = put_value(cli, &key, value, n, &options);
out_free:
	buffer_free(&buffer);
	cli_key_free(&key);
	return status;
}

const struct verb verb_put = {
	.name = "put",
	.operands = "KEY [VALUE]",
	.help = "write a value",
	.details = "Without VALUE and --file the value is read from standard input, to its end. A "
		   "value of 0 bytes is a "
		   "value. A condition that does not hold (--if-absent, --if-stamp) is exit code "
		   "1, and nothing is changed.",
	.options = put_options,
	.min_operands = 1,
	.max_operands = 2,
	.run = run_put,
};
