/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli.c - what the verbs of `tarn` share: errors and exit codes, the session, keys
 *
 * Next to read: writer.c (output), and any verb, get.c for example.
 */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"
#include "text.h"

#define CLI_MESSAGE_BYTES 2048

/* ---- exit codes ---- */

/* What is not here is "refused or not found". */
static const struct {
	int code;
	enum cli_exit exit_code;
} exit_codes[] = {
	{0, CLI_OK},
	{TARN_EURI, CLI_USAGE},
	{TARN_ENOTBUILT, CLI_USAGE},
	{EINVAL, CLI_USAGE},
	{TARN_EUNREACHABLE, CLI_UNREACHABLE},
	{TARN_ESESSION, CLI_UNREACHABLE},
	{ECONNREFUSED, CLI_UNREACHABLE},
	{ECONNRESET, CLI_UNREACHABLE},
	{TARN_EREADONLY, CLI_PERMISSION},
	{TARN_EAUTH, CLI_PERMISSION},
	{EACCES, CLI_PERMISSION},
	{EPERM, CLI_PERMISSION},
	{EROFS, CLI_PERMISSION},
	{TARN_ETIMEOUT, CLI_TIMEOUT},
	{TARN_EAMBIGUOUS, CLI_TIMEOUT},
	{ETIMEDOUT, CLI_TIMEOUT},
	{TARN_ECORRUPT, CLI_UNHEALTHY},
	{TARN_EPROTO, CLI_UNHEALTHY},
	{TARN_EVERSION, CLI_UNHEALTHY},
	{TARN_EINUSE, CLI_UNHEALTHY},
};

int cli_exit_code(int code)
{
	if (code < 0)
		code = -code;
	for (size_t i = 0; i < sizeof(exit_codes) / sizeof(exit_codes[0]); i++)
		if (exit_codes[i].code == code)
			return exit_codes[i].exit_code;
	return CLI_REFUSED;
}

const char *cli_exit_text(int exit_code)
{
	switch ((enum cli_exit)exit_code) {
	case CLI_OK:
		return "done";
	case CLI_REFUSED:
		return "refused, failed, or not found";
	case CLI_USAGE:
		return "the command line or the URI is wrong";
	case CLI_UNREACHABLE:
		return "the daemon is not reachable";
	case CLI_PERMISSION:
		return "no permission";
	case CLI_TIMEOUT:
		return "the time limit ran out; a write may or may not have taken effect";
	case CLI_UNHEALTHY:
		return "the pool is damaged, or the daemon answers nonsense";
	}
	return "";
}

/* ---- messages ---- */

void cli_complain(const struct cli *cli, const char *what, const char *text)
{
	const char *verb = cli->verb != NULL ? cli->verb->name : "";
	char *raw, *clean;
	int n = asprintf(&raw, "tarn: %s%s%s%s%s", verb, *verb != '\0' ? ": " : "",
			 what != NULL ? what : "", what != NULL ? ": " : "", text);

	if (n < 0)
		return;
	clean = malloc(TEXT_ESCAPED_BYTES(n) + 1);
	if (clean != NULL) {
		size_t used = text_clean(raw, (size_t)n, clean);

		clean[used++] = '\n';
		if (cli->progress != NULL)
			progress_clear(cli->progress);
		/*
		 * One write: lines of several processes on one terminal stay whole. Nobody to tell
		 * when it fails.
		 */
		(void)!write(STDERR_FILENO, clean, used);
	}
	free(clean);
	free(raw);
}

/* Errors before there is a writer (the command line itself) have none to put them in. */
static void put_error(struct cli *cli, int code, const char *what, const char *text)
{
	const char *name = code == -EINVAL ? "EINVAL" : tarn_error_name(code);
	char *full;

	if (cli->writer == NULL || !cli->json)
		return;
	if (asprintf(&full, "%s%s%s", what != NULL ? what : "", what != NULL ? ": " : "", text) < 0)
		return;
	writer_error(cli->writer, code, name, full);
	free(full);
}

static int fail(struct cli *cli, int code, const char *what, const char *text)
{
	cli_complain(cli, what, text);
	put_error(cli, code, what, text);
	return cli_exit_code(code);
}

int cli_fail(struct cli *cli, int code, const char *what, const char *format, ...)
{
	char text[CLI_MESSAGE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return fail(cli, code, what, text);
}

int cli_fail_library(struct cli *cli, int code, const char *what)
{
	const char *text = tarn_last_error_text();

	return fail(cli, code, what, *text != '\0' ? text : tarn_strerror(code));
}

int cli_fail_system(struct cli *cli, int code, const char *what)
{
	return fail(cli, code, what, strerror(-code));
}

int cli_fail_usage(struct cli *cli, const char *format, ...)
{
	char text[CLI_MESSAGE_BYTES];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n >= 0 && (size_t)n < sizeof(text))
		snprintf(text + n, sizeof(text) - (size_t)n, " (see: tarn help%s%s)",
			 cli->verb != NULL ? " " : "", cli->verb != NULL ? cli->verb->name : "");
	fail(cli, -EINVAL, NULL, text);
	return CLI_USAGE;
}

/* ---- session and operands ---- */

int cli_open(struct cli *cli, bool read_only)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	int status;

	options.flags = read_only || cli->read_only ? TARN_READONLY : 0;
	options.timeout_ms = cli->timeout_ms;
	options.key_file = cli->key_file;
	status = tarn_session_open(cli->uri, &options, &cli->session);
	return status < 0 ? cli_fail_library(cli, status, cli->uri) : CLI_OK;
}

int cli_key_parse(struct cli *cli, const char *operand, bool prefix, struct cli_key *ret_key)
{
	struct cli_key key = {.bytes = malloc(strlen(operand) + 1), .n = strlen(operand)};
	int status = 0;

	if (key.bytes == NULL)
		return cli_fail_system(cli, -ENOMEM, NULL);
	if (cli->escaped)
		status = text_unescape(operand, key.bytes, &key.n);
	else
		memcpy(key.bytes, operand, key.n);
	if (status < 0) {
		status = cli_fail_usage(
			cli, "'%s': -x knows the escapes \\\\ \\n \\r \\t \\0 and \\xNN", operand);
		goto out_key;
	}
	if ((key.n == 0 && !prefix) || key.n > CLI_KEY_MAX_BYTES) {
		status = cli_fail(cli, -TARN_EKEYSIZE, key.n > 0 ? NULL : "''",
				  "a key has 1 to %u bytes, this one has %zu", CLI_KEY_MAX_BYTES,
				  key.n);
		goto out_key;
	}
	key.text = malloc(TEXT_ESCAPED_BYTES(key.n));
	if (key.text == NULL) {
		status = cli_fail_system(cli, -ENOMEM, NULL);
		goto out_key;
	}
	text_escape(key.bytes, key.n, key.text);
	*ret_key = key;
	return CLI_OK;

out_key:
	cli_key_free(&key);
	return status;
}

void cli_key_free(struct cli_key *key)
{
	free(key->bytes);
	free(key->text);
	*key = (struct cli_key){0};
}

int cli_scan_next(struct cli *cli, struct tarn_scan *scan, const void **ret_key,
		  size_t *ret_key_bytes, struct tarn_item *ret_item, struct cli_damage *damage)
{
	for (;;) {
		int status = tarn_scan_next(scan, ret_key, ret_key_bytes, ret_item);
		const char *text = tarn_last_error_text();

		if (status != -TARN_ECORRUPT ||
		    strncmp(damage->last, text, sizeof(damage->last) - 1) == 0)
			return status;
		snprintf(damage->last, sizeof(damage->last), "%s", text);
		damage->count++;
		cli_complain(cli, NULL, text);
	}
}

json_t *cli_kind(const struct tarn_item *item)
{
	switch (item->kind) {
	case TARN_KIND_VALUE:
		return json_string("value");
	case TARN_KIND_COUNTER:
		return json_string("counter");
	}
	return json_integer(item->kind);
}

int cli_set_item(json_t *object, const struct tarn_item *item)
{
	int status = 0;

	status |= json_object_set_new(object, "kind", cli_kind(item));
	status |= json_object_set_new(object, "value_bytes", writer_u64(item->value_bytes));
	status |= json_object_set_new(object, "flags", json_integer(item->user_flags));
	status |= json_object_set_new(object, "stamp", writer_u64(item->stamp));
	status |= json_object_set_new(object, "expiry_ms",
				      item->expiry_ms != 0 ? writer_u64(item->expiry_ms)
							   : json_null());
	status |= json_object_set_new(object, "writer", json_integer(item->writer));
	return status != 0 ? -ENOMEM : 0;
}
