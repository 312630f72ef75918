/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * get.c - `tarn get KEY`
 *
 * The value goes to standard output as it is, whatever it is. Next to read: buffer.c, which knows
 * how to get a value whose size nobody has told.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "cli.h"
#include "verbs.h"

enum { GET_OUTPUT };

static const struct option_spec get_options[] = {
	[GET_OUTPUT] = {"output", 'o', "FILE", "write the value into FILE"},
	{0},
};

/* The file is opened when the value is there: a key that is not does not cost the old content. */
static int write_file(struct cli *cli, const char *file, const void *bytes, size_t n)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int status;

	if (fd < 0)
		return cli_fail_system(cli, -errno, file);
	status = output_write_all(fd, bytes, n);
	if (close(fd) < 0 && status == 0)
		status = -errno;
	return status < 0 ? cli_fail_system(cli, status, file) : CLI_OK;
}

static int show_value(struct cli *cli, const char *file, const void *bytes, size_t n)
{
	if (file != NULL)
		return write_file(cli, file, bytes, n);
	writer_bytes(cli->writer, "value", bytes, n);
	return CLI_OK;
}

static int show_counter(struct cli *cli, const char *file, const void *bytes)
{
	char text[32];
	int64_t number;
	int n;

	memcpy(&number, bytes, sizeof(number));
	n = snprintf(text, sizeof(text), "%" PRId64 "\n", number);
	if (file != NULL)
		return write_file(cli, file, text, (size_t)n);
	writer_field(cli->writer, WRITER_BARE, "value", json_integer(number));
	return CLI_OK;
}

static int run_get(struct cli *cli, const struct arguments *args)
{
	const char *file = args->own.values[GET_OUTPUT];
	struct tarn_item item = TARN_ITEM_INIT;
	struct buffer buffer = {0};
	json_t *object = json_object();
	struct cli_key key = {0};
	int status = cli_key_parse(cli, args->operands[0], false, &key);

	if (status == CLI_OK)
		status = cli_open(cli, true);
	if (status != CLI_OK)
		goto out_free;
	status = buffer_get(&buffer, cli->session, key.bytes, key.n, &item);
	writer_key(cli->writer, key.bytes, key.n);
	if (status == -ENOMEM) {
		status = cli_fail_system(cli, status, key.text);
		goto out_free;
	}
	if (status < 0) {
		status = cli_fail_library(cli, status, key.text);
		goto out_free;
	}
	if (object == NULL || cli_set_item(object, &item) < 0) {
		status = cli_fail_system(cli, -ENOMEM, NULL);
		goto out_free;
	}
	writer_members(cli->writer, WRITER_HIDDEN, json_incref(object));
	if (item.kind == TARN_KIND_COUNTER && item.value_bytes == sizeof(int64_t))
		status = show_counter(cli, file, buffer.bytes);
	else
		status = show_value(cli, file, buffer.bytes, (size_t)item.value_bytes);
out_free:
	json_decref(object);
	buffer_free(&buffer);
	cli_key_free(&key);
	return status;
}

const struct verb verb_get = {
	.name = "get",
	.operands = "KEY",
	.help = "print a value",
	.details = "The value's bytes go to standard output as they are; a counter is printed as a "
		   "decimal number and a "
		   "newline. With --json the value is value_base64, and also value when it is "
		   "UTF-8; a counter's value is a "
		   "number.",
	.options = get_options,
	.min_operands = 1,
	.max_operands = 1,
	.run = run_get,
};
