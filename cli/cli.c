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
#include "uri.h"

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
	{TARN_EMAP, CLI_UNREACHABLE},
	{TARN_EUNAVAILABLE, CLI_UNREACHABLE},
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
		return "the pool or a snapshot is damaged, the daemon answers nonsense, or the doctor, pool "
		       "check or config check found a problem";
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

/* ---- session ---- */

int cli_open_uri(struct cli *cli, const char *uri, bool read_only,
		 struct tarn_session **ret_session)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	int status;

	options.flags = read_only || cli->read_only ? TARN_READONLY : 0;
	options.timeout_ms = cli->timeout_ms;
	options.key_file = cli->key_file;
	status = tarn_session_open(uri, &options, ret_session);
	return status < 0 ? cli_fail_library(cli, status, uri) : CLI_OK;
}

int cli_open(struct cli *cli, bool read_only)
{
	return cli_open_uri(cli, cli->uri, read_only, &cli->session);
}

uint32_t cli_timeout_ms(const struct cli *cli)
{
	struct uri uri;

	if (cli->timeout_ms != 0)
		return cli->timeout_ms;
	return uri_parse(cli->uri, &uri) == 0 && uri.timeout_ms != 0 ? uri.timeout_ms
								     : CLI_TIMEOUT_DEFAULT_MS;
}

/* ---- verbs with parts ---- */

static const struct verb_part *find_part(struct cli *cli, const char *name)
{
	const struct verb_part *parts = cli->verb->parts;
	const char *names[CLI_PARTS_MAX + 1] = {NULL}, *nearest;

	for (size_t i = 0; parts[i].name != NULL; i++) {
		if (strcmp(parts[i].name, name) == 0)
			return &parts[i];
		if (i < CLI_PARTS_MAX)
			names[i] = parts[i].name;
	}
	nearest = text_nearest(name, names);
	cli_fail_usage(cli, "unknown verb '%s'%s%s%s", name,
		       nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
		       nearest != NULL ? "?" : "");
	return NULL;
}

static bool takes(const struct verb_part *part, const char *option)
{
	for (const char *const *name = part->options; name != NULL && *name != NULL; name++)
		if (strcmp(*name, option) == 0)
			return true;
	return false;
}

int cli_run_part(struct cli *cli, const struct arguments *args)
{
	const struct verb_part *part = find_part(cli, args->operands[0]);
	const struct option_spec *options = cli->verb->options;
	struct arguments rest = *args;

	if (part == NULL)
		return CLI_USAGE;
	rest.operands++;
	rest.count--;
	if (rest.count > part->max_operands)
		return cli_fail_usage(cli, "'%s' is one argument too many: tarn %s %s%s%s",
				      rest.operands[part->max_operands], cli->verb->name,
				      part->name, *part->operands != '\0' ? " " : "",
				      part->operands);
	if (rest.count < part->min_operands)
		return cli_fail_usage(cli, "an argument is missing: tarn %s %s %s", cli->verb->name,
				      part->name, part->operands);
	for (size_t i = 0; options != NULL && options[i].name != NULL; i++)
		if (rest.own.values[i] != NULL && !takes(part, options[i].name))
			return cli_fail_usage(cli, "--%s is not for `tarn %s %s`", options[i].name,
					      cli->verb->name, part->name);
	return part->run(cli, &rest);
}

/* ---- keys ---- */

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
