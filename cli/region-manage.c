/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-manage.c - `tarn region create`, `list`, `show`, `resize` and `destroy`
 *
 * The daemon does the work, in the background; this begins it and looks how far it is. Main thread. Next to read: region.c.
 */
#include <errno.h>
#include <inttypes.h>

#include "clock.h"
#include "progress.h"
#include "region.h"

#define LOOK_FIRST_NS 1000000ull   /* between two looks at a region that is being made */
#define LOOK_MOST_NS  100000000ull /* likewise, after a while */

/* ---- what is known --------------------------------------------------------------------------- */

static json_t *state_name(uint32_t state)
{
	switch ((enum tarn_region_state)state) {
	case TARN_REGION_CREATING:
		return json_string("creating");
	case TARN_REGION_READY:
		return json_string("ready");
	case TARN_REGION_RESIZING:
		return json_string("resizing");
	case TARN_REGION_DESTROYING:
		return json_string("destroying");
	case TARN_REGION_FAILED:
		return json_string("failed");
	}
	return json_integer(state);
}

static bool is_being_made(const struct tarn_region_info *info)
{
	return info->state == TARN_REGION_CREATING || info->state == TARN_REGION_RESIZING;
}

/* An object, or NULL: no memory. */
static json_t *describe(const struct tarn_region_info *info, bool with_progress)
{
	json_t *object =
		json_pack("{s:s, s:o, s:o, s:o}", "name", info->name, "id", writer_u64(info->id),
			  "bytes", writer_u64(info->bytes), "state", state_name(info->state));
	int status = 0;

	if (object == NULL)
		return NULL;
	if (with_progress) {
		status |= json_object_set_new(object, "ready_bytes", writer_u64(info->ready_bytes));
		status |= json_object_set_new(object, "ready_of_bytes",
					      writer_u64(info->ready_of_bytes));
	}
	if (info->member[0] != '\0')
		status |= json_object_set_new(object, "member", json_string(info->member));
	status |= json_object_set_new(object, "opens", json_integer(info->opens));
	status |= json_object_set_new(object, "created_ms", writer_u64(info->created_ms));
	if (status == 0)
		return object;
	json_decref(object);
	return NULL;
}

int region_list(struct cli *cli, const struct arguments *args)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	uint64_t cursor = 0, count = 0;
	int status = cli_open(cli, true);

	(void)args;
	if (status != CLI_OK)
		return status;
	writer_list_begin(cli->writer, WRITER_TABLE, "regions");
	while ((status = tarn_region_list(cli->session, &cursor, &info)) > 0) {
		writer_row(cli->writer, describe(&info, cli->json));
		count++;
	}
	writer_list_end(cli->writer);
	if (status < 0)
		return cli_fail_library(cli, status, NULL);
	writer_field(cli->writer, WRITER_HIDDEN, "count", writer_u64(count));
	return CLI_OK;
}

int region_show(struct cli *cli, const struct arguments *args)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	const char *name = args->operands[0];
	int status = region_check_name(cli, name);

	if (status == CLI_OK)
		status = cli_open(cli, true);
	if (status != CLI_OK)
		return status;
	status = tarn_region_stat(cli->session, name, &info);
	if (status < 0)
		return cli_fail_library(cli, status, name);
	writer_members(cli->writer, WRITER_TABLE,
		       describe(&info, cli->json || is_being_made(&info)));
	return CLI_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

struct making {
	struct cli *cli;
	const char *name;
	uint64_t id; /* 0: not known yet */
	uint64_t moved_ns, moved_bytes;
	struct progress progress;
};

/* Is it under way yet? *ret_exit_code: what it has become. */
static bool is_under_way(struct making *m, struct tarn_region_info *info, int *ret_exit_code)
{
	struct cli *cli = m->cli;
	int status = tarn_region_stat(cli->session, m->name, info);

	*ret_exit_code = CLI_OK;
	if (status < 0) {
		*ret_exit_code = cli_fail_library(cli, status, m->name);
	} else if (info->state == TARN_REGION_DESTROYING || (m->id != 0 && info->id != m->id)) {
		*ret_exit_code = cli_fail(cli, -TARN_ENOREGION, m->name,
					  "somebody has destroyed it meanwhile");
	} else if (info->state == TARN_REGION_FAILED) {
		*ret_exit_code = cli_fail(cli, -TARN_EPOOLFULL, m->name,
					  "it could not be made, tarnd's log says why: take it "
					  "away by `tarn region destroy %s`",
					  m->name);
	} else if (is_being_made(info)) {
		m->id = info->id;
		return true;
	}
	return false;
}

/* Has it stood still for too long, or is nobody interested any more? */
static int give_up(struct making *m, const struct tarn_region_info *info)
{
	struct cli *cli = m->cli;
	uint64_t now_ns = clock_now_ns(), limit_ms = cli_timeout_ms(cli);

	if (info->ready_bytes != m->moved_bytes) {
		m->moved_bytes = info->ready_bytes;
		m->moved_ns = now_ns;
	}
	if (*cli->stop)
		return cli_fail(cli, -EINTR, m->name,
				"interrupted; the daemon goes on with it: tarn region show %s",
				m->name);
	if (now_ns - m->moved_ns > limit_ms * 1000000)
		return cli_fail(cli, -TARN_ETIMEOUT, m->name,
				"no progress for %" PRIu64 " ms, at %" PRIu64 " of %" PRIu64
				" bytes; the daemon goes on with it: tarn region show %s",
				limit_ms, info->ready_bytes, info->ready_of_bytes, m->name);
	return CLI_OK;
}

/* Until it is ready. */
static int follow(struct making *m, struct tarn_region_info *info)
{
	struct cli *cli = m->cli;
	uint64_t pause_ns = LOOK_FIRST_NS;
	int exit_code;

	progress_begin(&m->progress, !cli->quiet);
	m->progress.things = "";
	m->moved_ns = clock_now_ns();
	cli->progress = &m->progress;
	while (is_under_way(m, info, &exit_code)) {
		m->progress.bytes = info->ready_bytes;
		m->progress.total_bytes = info->ready_of_bytes;
		progress_update(&m->progress);
		exit_code = give_up(m, info);
		if (exit_code != CLI_OK)
			break;
		clock_sleep_ns(pause_ns);
		pause_ns = pause_ns * 2 < LOOK_MOST_NS ? pause_ns * 2 : LOOK_MOST_NS;
	}
	progress_clear(&m->progress);
	cli->progress = NULL;
	return exit_code;
}

static void summary(struct cli *cli, const struct tarn_region_info *info, uint64_t begin_ns)
{
	enum writer_look look = cli->quiet ? WRITER_HIDDEN : WRITER_TABLE;

	writer_members(cli->writer, look, describe(info, cli->json || is_being_made(info)));
	writer_field(cli->writer, look, "elapsed_ns", writer_u64(clock_now_ns() - begin_ns));
}

typedef int make_function(struct tarn_session *session, const char *name, uint64_t bytes,
			  uint32_t flags);

/* It is always begun in the background: what waits here is what shows the progress. */
static int make(struct cli *cli, const struct arguments *args, make_function *function)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	struct making m = {.cli = cli, .name = args->operands[0]};
	uint64_t bytes = 0, begin_ns = clock_now_ns();
	int status = region_check_name(cli, m.name);

	if (status == CLI_OK)
		status = region_parse_bytes(cli, "SIZE", args->operands[1], 1,
					    TARN_REGION_BYTES_MAX, &bytes);
	if (status == CLI_OK)
		status = cli_open(cli, false);
	if (status != CLI_OK)
		return status;
	status = function(cli->session, m.name, bytes, TARN_REGION_BACKGROUND);
	if (status < 0)
		return cli_fail_library(cli, status, m.name);
	if (args->own.values[REGION_BACKGROUND] == NULL) {
		status = follow(&m, &info);
	} else {
		status = tarn_region_stat(cli->session, m.name, &info);
		if (status < 0)
			return cli_fail_library(cli, status, m.name);
	}
	if (status == CLI_OK)
		summary(cli, &info, begin_ns);
	return status;
}

int region_create(struct cli *cli, const struct arguments *args)
{
	return make(cli, args, tarn_region_create);
}

int region_resize(struct cli *cli, const struct arguments *args)
{
	return make(cli, args, tarn_region_resize);
}

/* ---- destroying ------------------------------------------------------------------------------ */

/* One that is not there does not keep the others from being destroyed; another failure does. */
static int destroy_one(struct cli *cli, const char *name, uint64_t *missing)
{
	int status = tarn_region_destroy(cli->session, name);

	if (status < 0 && status != -TARN_ENOREGION)
		return cli_fail_library(cli, status, name);
	writer_row(cli->writer, json_pack("{s:s, s:b}", "name", name, "destroyed", status == 0));
	if (status == 0)
		return CLI_OK;
	cli_complain(cli, name, "there is no such region");
	(*missing)++;
	return CLI_OK;
}

int region_destroy(struct cli *cli, const struct arguments *args)
{
	uint64_t missing = 0;
	int status = CLI_OK;

	for (size_t i = 0; i < args->count && status == CLI_OK; i++)
		status = region_check_name(cli, args->operands[i]);
	if (status == CLI_OK)
		status = cli_open(cli, false);
	if (status != CLI_OK)
		return status;
	writer_list_begin(cli->writer, WRITER_HIDDEN, "regions");
	for (size_t i = 0; i < args->count && status == CLI_OK; i++)
		status = destroy_one(cli, args->operands[i], &missing);
	writer_list_end(cli->writer);
	if (status != CLI_OK)
		return status;
	writer_field(cli->writer, WRITER_HIDDEN, "destroyed", writer_u64(args->count - missing));
	writer_field(cli->writer, WRITER_HIDDEN, "missing", writer_u64(missing));
	return missing == 0 ? CLI_OK : CLI_REFUSED;
}
