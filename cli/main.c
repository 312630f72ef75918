/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * main.c - `tarn`: the command line, the table of verbs, and nothing else
 *
 * The one global is what a signal handler may touch. Next to read: cli.h, then the file of a verb
 * (get.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "text.h"
#include "verbs.h"

enum {
	GLOBAL_URI,
	GLOBAL_KEY_FILE,
	GLOBAL_TIMEOUT,
	GLOBAL_READ_ONLY,
	GLOBAL_ESCAPED,
	GLOBAL_JSON,
	GLOBAL_QUIET,
	GLOBAL_HELP,
	GLOBAL_VERSION
};

static const struct option_spec global_options[] = {
	[GLOBAL_URI] = {"uri", 'u', "URI", "the pool; else TARN_URI, else " CLI_DEFAULT_URI},
	[GLOBAL_KEY_FILE] = {"key-file", 'k', "KEYFILE", "credentials; else TARN_KEY_FILE"},
	[GLOBAL_TIMEOUT] = {"timeout", 't', "TIME",
			    "time limit of each operation: 500ms, 10s, 5min (5s)"},
	[GLOBAL_READ_ONLY] = {"read-only", 0, NULL, "never write"},
	[GLOBAL_ESCAPED] = {"escaped", 'x', NULL,
			    "KEY and PREFIX have escapes: \\xNN \\\\ \\n \\r \\t \\0"},
	[GLOBAL_JSON] = {"json", 0, NULL, "print one JSON object"},
	[GLOBAL_QUIET] = {"quiet", 'q', NULL, "no progress, no summary"},
	[GLOBAL_HELP] = {"help", 'h', NULL, "what tarn help says"},
	[GLOBAL_VERSION] = {"version", 'V', NULL, "what tarn version says"},
	{0},
};

static const struct verb *const verbs[] = {
	&verb_import,  &verb_export, &verb_snapshot, &verb_restore,
	&verb_put,     &verb_get,    &verb_del,
	&verb_add,     &verb_keys,   &verb_exists,  &verb_region,
	&verb_stats,   &verb_top,    &verb_pool,    &verb_pools,
	&verb_clients, &verb_config, &verb_reload,  &verb_members,
	&verb_map,     &verb_drain,  &verb_undrain, &verb_rebalance,
	&verb_forget,
	&verb_ping,    &verb_doctor, &verb_version, &verb_help,    NULL,
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

/*
 * The first SIGINT or SIGTERM ends a long walk between two keys, with a summary; the second one
 * ends the process. A closed pipe is a write error like others, and so is a file that has become as
 * large as it may.
 */
static void set_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

/*
 * If standard input, output or error is closed, the pool's memory must not get its number: output
 * would be written into the pool. The stand-ins are opened the wrong way round, so that using them
 * fails as with the closed one.
 */
static void fill_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			abort();
}

static int fail_parse(struct cli *cli, const struct arguments *args)
{
	if (args->nearest != NULL)
		return cli_fail_usage(cli, "%s: %s; did you mean --%s?", args->problem_name,
				      args->problem, args->nearest);
	if (args->problem_letter != 0)
		return cli_fail_usage(cli, "%s: %s -%c", args->problem_name, args->problem,
				      args->problem_letter);
	return cli_fail_usage(cli, "%s: %s", args->problem_name, args->problem);
}

/* The words behind `tarn __complete` are somebody's command line, not options of this one. */
static bool completes(struct cli *cli, struct arguments *args, int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], verb_complete.name) != 0)
		return false;
	cli->verb = &verb_complete;
	args->count = (size_t)argc - 2;
	for (size_t i = 0; i < args->count; i++)
		args->operands[i] = argv[i + 2];
	return true;
}

static int find_verb(struct cli *cli, const char *name)
{
	const char *names[sizeof(verbs) / sizeof(verbs[0])] = {NULL}, *nearest;

	for (size_t i = 0; verbs[i] != NULL; i++) {
		names[i] = verbs[i]->name;
		if (strcmp(verbs[i]->name, name) == 0) {
			cli->verb = verbs[i];
			return CLI_OK;
		}
	}
	nearest = text_nearest(name, names);
	if (nearest != NULL)
		return cli_fail_usage(cli, "unknown verb '%s'; did you mean %s?", name, nearest);
	return cli_fail_usage(cli, "unknown verb '%s'", name);
}

static int apply_globals(struct cli *cli, const char *const *values)
{
	uint64_t ms = 0;

	cli->uri = values[GLOBAL_URI];
	if (cli->uri == NULL)
		cli->uri = getenv("TARN_URI");
	if (cli->uri == NULL || *cli->uri == '\0')
		cli->uri = CLI_DEFAULT_URI;
	cli->key_file = values[GLOBAL_KEY_FILE];
	cli->read_only = values[GLOBAL_READ_ONLY] != NULL;
	cli->escaped = values[GLOBAL_ESCAPED] != NULL;
	cli->quiet = values[GLOBAL_QUIET] != NULL;
	if (values[GLOBAL_TIMEOUT] != NULL &&
	    (text_parse_ms(values[GLOBAL_TIMEOUT], CLI_TIMEOUT_MAX_MS, &ms) < 0 || ms == 0))
		return cli_fail_usage(
			cli,
			"--timeout '%s': a time is a number with ms, s or min, from 1ms to 60min",
			values[GLOBAL_TIMEOUT]);
	cli->timeout_ms = (uint32_t)ms;
	return CLI_OK;
}

/* --help and --version are verbs in disguise. */
static bool swap_verb(struct cli *cli, struct arguments *args)
{
	if (args->global.values[GLOBAL_VERSION] != NULL) {
		cli->verb = &verb_version;
		args->count = 0;
		return true;
	}
	if (args->global.values[GLOBAL_HELP] == NULL)
		return false;
	args->count = cli->verb != NULL ? 1 : 0;
	if (cli->verb != NULL)
		args->operands[0] = (char *)(uintptr_t)cli->verb->name;
	cli->verb = &verb_help;
	return true;
}

static int check_operands(struct cli *cli, const struct arguments *args)
{
	const struct verb *verb = cli->verb;

	if (args->count > verb->max_operands)
		return cli_fail_usage(cli, "'%s' is one argument too many: tarn %s %s",
				      args->operands[verb->max_operands], verb->name,
				      verb->operands);
	if (args->count < verb->min_operands)
		return cli_fail_usage(cli, "an argument is missing: tarn %s %s", verb->name,
				      verb->operands);
	return CLI_OK;
}

/*
 * Is --json given? Errors of the rest of the command line are to be JSON, too, wherever it stands.
 */
static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

/* Up to the verb, then behind it: which of its options there are depends on the verb. */
static int parse(struct cli *cli, struct arguments *args, int argc, char **argv)
{
	int used = options_parse(args, argc - 1, argv + 1, true, false), status;

	if (used < 0)
		return fail_parse(cli, args);
	if (args->count == 0)
		return swap_verb(cli, args) ? CLI_OK : cli_fail_usage(cli, "a verb is missing");
	status = find_verb(cli, args->operands[0]);
	if (status != CLI_OK)
		return status;
	args->count = 0;
	args->own.specs = cli->verb->options;
	if (options_parse(args, argc - 1 - used, argv + 1 + used, false, cli->verb->negative) < 0)
		return fail_parse(cli, args);
	if (swap_verb(cli, args))
		return CLI_OK;
	status = check_operands(cli, args);
	return status != CLI_OK ? status : apply_globals(cli, args->global.values);
}

/* The result is written last of all: then the exit code can still say that it was not. */
static int finish(struct cli *cli, int exit_code)
{
	int status = writer_finish(cli->writer);

	if (status == 0)
		return exit_code;
	cli_complain(cli, "standard output", strerror(-status));
	return exit_code != CLI_OK ? exit_code : CLI_REFUSED;
}

int main(int argc, char **argv)
{
	struct cli cli = {.verbs = verbs, .global_options = global_options, .stop = &stop};
	struct arguments args = {.global.specs = global_options};
	struct output *output;
	int exit_code;

	setlocale(LC_CTYPE, "");
	fill_standard_fds();
	set_signals();
	output = malloc(sizeof(*output));
	args.operands = calloc((size_t)argc + 1, sizeof(*args.operands));
	if (output == NULL || args.operands == NULL)
		return CLI_REFUSED;
	output_init(output, STDOUT_FILENO);
	cli.json = !completes(&cli, &args, argc, argv) && wants_json(argc, argv);
	if (writer_new(output, cli.json, &cli.writer) < 0)
		return CLI_REFUSED;

	exit_code = cli.verb != NULL ? CLI_OK : parse(&cli, &args, argc, argv);
	if (exit_code == CLI_OK)
		exit_code = cli.verb->run(&cli, &args);
	exit_code = finish(&cli, exit_code);
	tarn_session_close(cli.session);
	writer_free(cli.writer);
	free(args.operands);
	free(output);
	return exit_code;
}
