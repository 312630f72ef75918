/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarnd: options, configuration, exit codes; all else is libtarnd (daemon.c), which tests link. The
 * process's only globals are getopt's.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "daemon.h"
#include "err.h"
#include "log.h"

#ifndef TARND_CONF
#define TARND_CONF "/etc/tarn/tarnd.conf"
#endif

enum exit_code { EXIT_USAGE = 2, EXIT_PERMISSION = 4, EXIT_CONFIGURATION = 6 };

struct options {
	const char *file;
	bool test;
	int level; /* -1: as configured */
};

static void usage(FILE *to)
{
	fprintf(to,
		"Usage: tarnd [-c FILE] [-t] [-d | --log-level LEVEL]\n"
		"       tarnd -V | -h\n"
		"\n"
		"Serves pools of memory to clients; runs in the foreground and logs to stderr.\n"
		"\n"
		"  -c, --config FILE      configuration (default %s)\n"
		"  -t, --test             check the configuration and this machine, say all that "
		"is wrong, and exit\n"
		"  -d, --debug            log everything; the same as --log-level debug\n"
		"      --log-level LEVEL  error, warning, notice, info or debug; comes before the "
		"configuration\n"
		"  -V, --version          print the version\n"
		"  -h, --help             print this\n"
		"\n"
		"SIGTERM and SIGINT stop it, SIGHUP reloads the configuration (`tarn reload` also says "
		"what became of it).\nExit codes: 0 stopped or fine, 1 failed "
		"while running, 2 usage,\n"
		"4 no permission, 6 the configuration or the machine does not allow it.\n",
		TARND_CONF);
}

/* -1: go on; else the process's exit code. */
static int options_parse(int argc, char **argv, struct options *ret)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},
		{"test", no_argument, NULL, 't'},
		{"debug", no_argument, NULL, 'd'},
		{"log-level", required_argument, NULL, 'l'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	enum log_level level;
	int c;

	while ((c = getopt_long(argc, argv, "c:tdVh", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			ret->file = optarg;
			break;
		case 't':
			ret->test = true;
			break;
		case 'd':
			ret->level = LOG_LEVEL_DEBUG;
			break;
		case 'l':
			if (log_level_parse(optarg, &level) < 0) {
				fprintf(stderr,
					"tarnd: --log-level %s: is none of error, warning, notice, "
					"info, debug\n",
					optarg);
				return EXIT_USAGE;
			}
			ret->level = (int)level;
			break;
		case 'V':
			printf("tarnd %s\n", PACKAGE_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			usage(stdout);
			return EXIT_SUCCESS;
		default:
			fprintf(stderr, "`tarnd -h` lists the options\n");
			return EXIT_USAGE;
		}
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "tarnd: unexpected argument %s; `tarnd -h` lists the options\n",
		argv[optind]);
	return EXIT_USAGE;
}

static int exit_code(int rc)
{
	return rc == -EACCES || rc == -EPERM ? EXIT_PERMISSION : EXIT_CONFIGURATION;
}

/* The configuration, or the exit code after all that is wrong has been printed. */
static int config_get(const struct options *options, struct config **ret_config)
{
	struct config_errors errors = {0}, notices = {0};
	int rc = config_load(options->file, &errors, ret_config);

	if (rc < 0) {
		fprintf(stderr, "tarnd: %s%s\n", err_text(),
			rc == -ENOENT ? ": name a file with -c FILE" : "");
		config_errors_free(&errors);
		return exit_code(rc);
	}
	/* When the text is wrong already the machine is not to blame for anything yet; but -t says
	 * everything. */
	if (options->test) {
		config_check_environment(*ret_config, &errors);
		config_notices(*ret_config, &notices);
	}
	for (size_t i = 0; i < errors.count; i++)
		fprintf(stderr, "%s\n", errors.texts[i]);
	for (size_t i = 0; i < notices.count; i++)
		fprintf(stderr, "notice: %s\n", notices.texts[i]);
	config_errors_free(&notices);
	if (errors.count == 0)
		return -1;
	config_errors_free(&errors);
	config_free(*ret_config);
	return EXIT_CONFIGURATION;
}

static int run(const struct options *options, const struct config *config)
{
	struct daemon *daemon;
	struct log log;
	int rc;

	/* The table's choices are in the order of the levels, which begin with error = 3. */
	log_init(&log, STDERR_FILENO,
		 options->level >= 0
			 ? (enum log_level)options->level
			 : (enum log_level)(config->daemon.log_level.number + LOG_LEVEL_ERROR));
	rc = daemon_create(config, &log, &daemon);
	if (rc < 0)
		return exit_code(rc);
	daemon->log_level_fixed = options->level >= 0;
	rc = daemon_run(daemon);
	daemon_free(daemon);
	if (rc == 0)
		log_notice(&log, "stopped");
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct options options = {.file = TARND_CONF, .level = -1};
	struct config *config;
	int code = options_parse(argc, argv, &options);

	if (code < 0)
		code = config_get(&options, &config);
	if (code >= 0)
		return code;
	if (options.test) {
		printf("%s: ok\n", options.file);
		code = EXIT_SUCCESS;
	} else {
		code = run(&options, config);
	}
	config_free(config);
	return code;
}
