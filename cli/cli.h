/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli.h - what the verbs of `tarn` share: the command line's wishes, the session, errors and exit
 * codes
 *
 * A verb's run() returns the exit code. Whoever first decides that something is an error calls one
 * of cli_fail...(), which say so on standard error and in the JSON, and returns what they return.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tarn/tarn.h>

#include "options.h"
#include "writer.h"

#define CLI_DEFAULT_URI        "tarn:/run/tarn/tarn.sock?pool=main"
#define CLI_TIMEOUT_MAX_MS     3600000u /* as tarn.h's timeout_ms */
#define CLI_TIMEOUT_DEFAULT_MS 5000u
#define CLI_KEY_MAX_BYTES      65535u
#define CLI_PARTS_MAX          16 /* of a verb */

/* tarn(1), "EXIT STATUS", */
enum cli_exit {
	CLI_OK = 0,
	CLI_REFUSED = 1, /* or not found */
	CLI_USAGE = 2,
	CLI_UNREACHABLE = 3,
	CLI_PERMISSION = 4,
	CLI_TIMEOUT = 5,
	CLI_UNHEALTHY = 6,
};

struct cli;
struct progress;

/* What the first operand of a verb may be, where it says what is to be done: `tarn region create`. */
struct verb_part {
	const char *name;
	const char *operands;              /* those behind the name */
	const char *help;                  /* one line */
	const char *const *options;        /* names of the verb's options that it takes, or NULL */
	size_t min_operands, max_operands; /* without the name; SIZE_MAX: any number */
	int (*run)(struct cli *cli, const struct arguments *args);
};

struct verb {
	const char *name;
	const char *operands;              /* "KEY [VALUE]" */
	const char *help;                  /* one line */
	const char *details;               /* paragraphs for `tarn help VERB`, or NULL */
	const struct option_spec *options; /* or NULL */
	const struct verb_part *parts;     /* ends with zeros; or NULL */
	size_t min_operands, max_operands; /* SIZE_MAX: any number */
	bool negative;                     /* "-5" is an operand */
	int (*run)(struct cli *cli, const struct arguments *args);
};

struct cli {
	const struct verb *const *verbs; /* ends with NULL */
	const struct verb *verb;         /* NULL until it is known */
	const char *uri, *key_file;
	uint32_t timeout_ms; /* 0: the library's default */
	bool read_only, json, quiet, escaped;
	const struct option_spec *global_options;
	struct output *output;
	struct writer *writer;
	struct progress *progress;         /* what is drawn now, or NULL */
	const volatile sig_atomic_t *stop; /* set when the user has interrupted a long walk */
	struct tarn_session *session;      /* closed by main() */
};

/* A key or prefix; bytes are to be freed with cli_key_free(). */
struct cli_key {
	unsigned char *bytes;
	size_t n;
	char *text; /* escaped, for messages */
};

/* ---- errors ---- */

int cli_exit_code(int code);

/* What an exit code means: a phrase for help and man page. */
const char *cli_exit_text(int exit_code);

/*
 * `tarn: VERB: what: text` on standard error; what may be NULL; both may hold bytes from elsewhere.
 */
void cli_complain(const struct cli *cli, const char *what, const char *text);

/* Complains, puts "error" into the JSON, and returns code's exit code. */
int cli_fail(struct cli *cli, int code, const char *what, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The same with the library's text for a call that returned code. */
int cli_fail_library(struct cli *cli, int code, const char *what);

/* The same for a system call: code is -errno. */
int cli_fail_system(struct cli *cli, int code, const char *what);

/* The command line is wrong: exit code 2, and where to find help. */
int cli_fail_usage(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- session and operands ---- */

/*
 * Opens cli->session, for reading only if `read_only` or the user says so. 0, or an exit code after
 * complaining.
 */
int cli_open(struct cli *cli, bool read_only);

/* The same with another pool, and a session that the caller closes. */
int cli_open_uri(struct cli *cli, const char *uri, bool read_only,
		 struct tarn_session **ret_session);

/* Of an operation of cli->session. */
uint32_t cli_timeout_ms(const struct cli *cli);

/* Runs the part that the first operand names; args are then those behind it. */
int cli_run_part(struct cli *cli, const struct arguments *args);

/*
 * An operand as key (or, with prefix, as possibly empty prefix). 0, or an exit code after
 * complaining.
 */
int cli_key_parse(struct cli *cli, const char *operand, bool prefix, struct cli_key *ret_key);
void cli_key_free(struct cli_key *key);

/* What a walk over the keys had to leave out. Begin with zeros. */
struct cli_damage {
	uint64_t count;
	char last[512]; /* message */
};

/*
 * tarn_scan_next() that goes on behind a damaged entry, after saying so. A damage that comes again
 * is returned: the walk can not get past it.
 */
int cli_scan_next(struct cli *cli, struct tarn_scan *scan, const void **ret_key,
		  size_t *ret_key_bytes, struct tarn_item *ret_item, struct cli_damage *damage);

/* "name": "value" or "counter". */
json_t *cli_kind(const struct tarn_item *item);

/*
 * What is known of an item, as fields of an object: value_bytes, kind, flags, stamp, expiry_ms,
 * writer.
 */
int cli_set_item(json_t *object, const struct tarn_item *item);
