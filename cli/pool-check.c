/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-check.c - `tarn pool check`: of a file, here; of a pool that a daemon serves, by the daemon
 *
 * A file is locked for the time of it, so that no daemon opens it, and none is opened that somebody
 * uses. The command's thread. Next to read: common/check.h; control.c and the daemon's
 * control-check.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check-json.h"
#include "clock.h"
#include "control.h"
#include "err.h"
#include "pool.h"
#include "progress.h"
#include "uri.h"

#define SHOWN   20u        /* findings */
#define POLL_NS 100000000u /* how often the daemon is asked how far it is */

struct pool_checking {
	struct cli *cli;
	struct progress progress;
	bool all;
	uint64_t shown, hidden;
};

/* ---- findings -------------------------------------------------------------------------------- */

static const char *member(json_t *row, const char *name)
{
	const char *text = json_string_value(json_object_get(row, name));

	return text ? text : "";
}

/* Two lines: what is there, and what that means. */
static void print_finding(struct pool_checking *p, json_t *row)
{
	bool repaired = json_is_true(json_object_get(row, "repaired"));
	const char *repair = member(row, "repair");
	json_t *text = json_sprintf("%-5s  %s at %lld: %s\n       %s%s%s\n", member(row, "effect"),
				    member(row, "code"),
				    json_integer_value(json_object_get(row, "offset")),
				    member(row, "text"), member(row, "meaning"),
				    repaired  ? "; repaired: "
				    : *repair ? "; a repair would have: "
					      : "; can not be repaired",
				    repair);

	if (text)
		writer_raw(p->cli->writer, json_string_value(text), json_string_length(text));
	json_decref(text);
}

static void show_finding(struct pool_checking *p, json_t *row)
{
	if (!p->all && p->shown == SHOWN) {
		p->hidden++;
		json_decref(row);
		return;
	}
	p->shown++;
	if (writer_is_json(p->cli->writer)) {
		writer_row(p->cli->writer, row);
		return;
	}
	progress_clear(&p->progress);
	print_finding(p, row);
	json_decref(row);
}

static void print_hidden(const struct pool_checking *p)
{
	json_t *text = json_sprintf("%llu findings more: --all shows them\n",
				    (unsigned long long)p->hidden);

	if (text && p->hidden)
		writer_raw(p->cli->writer, json_string_value(text), json_string_length(text));
	json_decref(text);
}

static void begin(struct pool_checking *p, struct cli *cli, const struct arguments *args)
{
	*p = (struct pool_checking){.cli = cli, .all = args->own.values[POOL_ALL] != NULL};
	progress_begin(&p->progress, !cli->quiet);
	cli->progress = &p->progress;
	writer_list_begin(cli->writer, WRITER_HIDDEN, "findings");
}

/* totals: taken over; NULL: the check has failed. Returns the exit code of one that has not. */
static int end(struct pool_checking *p, json_t *totals)
{
	struct cli *cli = p->cli;
	bool clean = json_is_true(json_object_get(totals, "clean"));

	progress_clear(&p->progress);
	cli->progress = NULL;
	writer_list_end(cli->writer);
	if (!totals)
		return CLI_REFUSED;
	print_hidden(p);
	if (!writer_is_json(cli->writer) && p->shown)
		writer_raw(cli->writer, "\n", 1);
	writer_document(cli->writer, totals);
	return clean ? CLI_OK : CLI_UNHEALTHY;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static void on_finding(void *arg, const struct check_finding *finding)
{
	show_finding(arg, check_json_finding(finding));
}

static bool on_progress(void *arg, uint32_t permille)
{
	struct pool_checking *p = arg;

	p->progress.permille = permille;
	progress_update(&p->progress);
	return !*p->cli->stop;
}

/* The daemon has a lock on the superblock, each client one on its slot: all of it is asked for. */
static int lock_file(const char *path, int fd, bool repair)
{
	struct flock lock = {.l_type = repair ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return err_set(
			-EBUSY,
			"is in use by tarnd, or by a client that has it mapped: stop them, or "
			"check the pool while it is served: tarn pool check "
			"tarn:SOCKET?pool=NAME");
	return err_set(-errno, "%s can not be locked: %m", path);
}

static int open_file(const char *path, bool repair, uint64_t *ret_bytes)
{
	int fd = open(path, (repair ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK), ret;
	struct stat st;
	off_t end;

	if (fd < 0)
		return err_set(-errno, "%m");
	ret = fstat(fd, &st) < 0 ? err_set(-errno, "%m") : 0;
	if (ret == 0 && S_ISDIR(st.st_mode))
		ret = err_set(-EISDIR, "is a directory: name a pool's file");
	if (ret == 0)
		ret = lock_file(path, fd, repair);
	end = ret == 0 ? lseek(fd, 0, SEEK_END) : 0;
	if (ret == 0 && (end < (off_t)LAYOUT_SUPERBLOCK_BYTES || end % 8))
		ret = err_set(-TARN_ECORRUPT,
			      "has %lld bytes: a pool's file begins with a superblock of %u",
			      (long long)end, LAYOUT_SUPERBLOCK_BYTES);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	*ret_bytes = (uint64_t)end;
	return fd;
}

static int run_file(struct pool_checking *p, const char *path, bool repair, json_t **ret_totals)
{
	struct check_run run = {.report = on_finding, .progress = on_progress, .arg = p};
	struct check_totals totals;
	void *base;
	int ret, fd = open_file(path, repair, &run.memory.bytes);

	if (fd < 0)
		return fd;
	base = mmap(NULL, run.memory.bytes, PROT_READ | (repair ? PROT_WRITE : 0), MAP_SHARED, fd,
		    0);
	if (base == MAP_FAILED) {
		ret = err_set(-errno, "can not be mapped: %m");
		close(fd);
		return ret;
	}
	run.memory.base = base;
	run.memory.repair = repair ? base : NULL;
	ret = check_run(&run, &totals);
	if (repair && msync(base, run.memory.bytes, MS_SYNC) < 0 && ret == 0)
		ret = err_set(-errno, "what was repaired could not be written: %m");
	munmap(base, run.memory.bytes);
	close(fd);
	if (ret == 0)
		*ret_totals = check_json_totals(&totals, false);
	return ret;
}

static int check_file(struct cli *cli, const struct arguments *args)
{
	bool repair = args->own.values[POOL_REPAIR] != NULL;
	const char *path = args->operands[1];
	struct pool_checking p;
	json_t *totals = NULL;
	int ret, exit_code;

	err_clear();
	begin(&p, cli, args);
	ret = run_file(&p, path, repair, &totals);
	exit_code = end(&p, totals);
	return ret < 0 ? cli_fail(cli, ret, path, "%s", err_text()) : exit_code;
}

/* ---- by the daemon --------------------------------------------------------------------------- */

/* id 0: begin one. 0, or an exit code after complaining. */
static int ask(struct cli *cli, const char *pool, json_int_t id, json_t **ret_check)
{
	json_t *asked = json_pack("{s:{s:s, s:I}}", "check", "pool", pool, "id", id), *answer;
	char *question = json_dumps(asked, JSON_COMPACT);
	int status;

	json_decref(asked);
	if (!question)
		return cli_fail_system(cli, -ENOMEM, NULL);
	status = control_ask(cli, question, &answer);
	free(question);
	if (status != CLI_OK)
		return status;
	*ret_check = json_incref(json_object_get(answer, "check"));
	json_decref(answer);
	if (json_is_object(*ret_check))
		return CLI_OK;
	json_decref(*ret_check);
	return cli_fail(cli, -TARN_EPROTO, cli->uri, "the daemon's answer has no \"check\"");
}

/* Until it is through. */
static int follow(struct pool_checking *p, const char *pool, json_t **ret_check)
{
	struct cli *cli = p->cli;
	json_t *check;
	int status = ask(cli, pool, 0, &check);

	while (status == CLI_OK && json_is_true(json_object_get(check, "running"))) {
		json_int_t id = json_integer_value(json_object_get(check, "id"));

		p->progress.permille =
			(uint64_t)json_integer_value(json_object_get(check, "permille"));
		progress_update(&p->progress);
		json_decref(check);
		if (*cli->stop)
			return cli_fail(cli, -ECANCELED, cli->uri,
					"interrupted; the daemon goes on with it");
		clock_sleep_ns(POLL_NS);
		status = ask(cli, pool, id, &check);
	}
	if (status == CLI_OK)
		*ret_check = check;
	return status;
}

static int check_served(struct cli *cli, const struct arguments *args)
{
	json_t *check = NULL, *row;
	struct pool_checking p;
	struct uri uri;
	size_t i;
	int status, exit_code;

	if (args->own.values[POOL_REPAIR])
		return cli_fail_usage(cli, "--repair is for a file: tarn pool check FILE --repair, "
					   "while no daemon serves it");
	if (uri_parse(cli->uri, &uri) < 0)
		return cli_fail_usage(cli, "%s: %s", cli->uri, err_text());
	begin(&p, cli, args);
	status = follow(&p, uri.pool, &check);
	json_array_foreach(json_object_get(check, "findings"), i, row)
		show_finding(&p, json_incref(row));
	p.hidden += (uint64_t)json_integer_value(json_object_get(check, "findings_left_out"));
	exit_code = end(&p, json_incref(json_object_get(check, "totals")));
	json_decref(check);
	return status != CLI_OK ? status : exit_code;
}

int pool_check(struct cli *cli, const struct arguments *args)
{
	if (args->count == 1)
		return check_served(cli, args);
	if (strncmp(args->operands[1], "tarn:", 5) != 0)
		return check_file(cli, args);
	cli->uri = args->operands[1];
	return check_served(cli, args);
}
