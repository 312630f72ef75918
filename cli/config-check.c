/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config-check.c - `tarn config check`: runs tarnd -t, which knows what is right, and reads what it
 * says
 *
 * The environment variable TARND names another tarnd than the installed one. The command's thread.
 * Next to read: config.c; the daemon's main.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"

/* tarnd(8), "EXIT STATUS" */
enum { TARND_PERMISSION = 4, TARND_CONFIGURATION = 6 };

extern char **environ;

/* Its standard error is the pipe. 0 or -errno. */
static int start(const char *program, const char *file, pid_t *ret_pid, FILE **ret_lines)
{
	char *const argv[] = {(char *)"tarnd", (char *)"-t", (char *)"-c", (char *)file, NULL};
	posix_spawn_file_actions_t actions;
	int fds[2], rc;

	if (pipe(fds) < 0)
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDERR_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addclose(&actions, fds[0]);
	rc = -posix_spawn(ret_pid, program, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (rc == 0 && !(*ret_lines = fdopen(fds[0], "r")))
		rc = -errno;
	if (rc < 0)
		close(fds[0]);
	return rc;
}

static json_t *line_row(const char *file, const char *line, bool notice)
{
	size_t length = strlen(file);
	unsigned int number = 0;

	if (strncmp(line, file, length) == 0 && line[length] == ':')
		number = (unsigned int)strtoul(line + length + 1, NULL, 10);
	return json_pack("{s:b, s:o, s:o}", "notice", notice, "line",
			 number ? json_integer(number) : json_null(), "text", writer_text(line));
}

/* Counts the errors; `last` has the last line afterwards. */
static unsigned int read_lines(struct cli *cli, const char *file, FILE *lines, char *last,
			       size_t bytes)
{
	static const char notice[] = "notice: ";
	unsigned int errors = 0;

	writer_list_begin(cli->writer, WRITER_HIDDEN, "findings");
	while (fgets(last, (int)bytes, lines)) {
		bool is_notice = strncmp(last, notice, strlen(notice)) == 0;

		last[strcspn(last, "\n")] = '\0';
		errors += !is_notice;
		if (writer_is_json(cli->writer)) {
			writer_row(cli->writer,
				   line_row(file, is_notice ? last + strlen(notice) : last,
					    is_notice));
			continue;
		}
		writer_raw(cli->writer, last, strlen(last));
		writer_raw(cli->writer, "\n", 1);
	}
	writer_list_end(cli->writer);
	return errors;
}

static int ended(struct cli *cli, const char *file, int status, unsigned int errors,
		 const char *last)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

	if (code == TARND_PERMISSION)
		return cli_fail(cli, -EACCES, NULL, "%s", last);
	if (code != 0 && code != TARND_CONFIGURATION)
		return cli_fail(cli, -TARN_EREFUSED, NULL, "tarnd -t has failed: %s", last);
	writer_field(cli->writer, WRITER_HIDDEN, "file", writer_text(file));
	writer_field(cli->writer, WRITER_HIDDEN, "errors", writer_u64(errors));
	writer_field(cli->writer, WRITER_HIDDEN, "ok", json_boolean(code == 0));
	if (code == 0 && !cli->quiet && !writer_is_json(cli->writer)) {
		writer_raw(cli->writer, file, strlen(file));
		writer_raw(cli->writer, ": ok\n", 5);
	}
	return code == 0 ? CLI_OK : CLI_UNHEALTHY;
}

int config_check(struct cli *cli, const struct arguments *args)
{
	const char *file = args->count > 1 ? args->operands[1] : TARND_CONF,
		   *program = getenv("TARND");
	char last[4096] = "";
	unsigned int errors;
	FILE *lines = NULL;
	pid_t pid = -1;
	int rc, status = 0;

	if (!program || !*program)
		program = TARND_PATH;
	rc = start(program, file, &pid, &lines);
	if (rc < 0)
		return cli_fail(cli, rc, program, "can not be run: %s (TARND names another tarnd)",
				strerror(-rc));
	errors = read_lines(cli, file, lines, last, sizeof(last));
	fclose(lines);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return ended(cli, file, status, errors, last);
}
