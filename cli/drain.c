/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * drain.c - `tarn drain`, `undrain`, `rebalance`, `forget`: what is wished of a cluster's members
 *
 * Any member can be asked: it plans the next map and has it written, if nobody has changed the map meanwhile; then it is asked
 * once more. The command's thread. Next to read: members.c; the daemon's control-cluster.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "control.h"
#include "progress.h"
#include "verbs.h"

#define POLL_NS 50000000u

enum { DRAIN_WAIT };

static const struct option_spec drain_options[] = {
	[DRAIN_WAIT] = {"wait", 0, NULL, "until the member owns nothing, and all its shards have new owners; on a terminal it shows how far that is"},
	{0},
};

enum { REBALANCE_DRY };

static const struct option_spec rebalance_options[] = {
	[REBALANCE_DRY] = {"dry-run", 0, NULL, "say how many shards would get another owner, and change nothing"},
	{0},
};

/* Takes the question over. 0, or an exit code after complaining. */
static int ask(struct cli *cli, json_t *question, json_t **ret_answer)
{
	char *text = question != NULL ? json_dumps(question, JSON_COMPACT) : NULL;
	int status = text == NULL ? cli_fail_system(cli, -ENOMEM, NULL) : control_ask(cli, text, ret_answer);

	free(text);
	json_decref(question);
	return status;
}

/* Asks for a wish, or how far it is: taken over. */
static int ask_wish(struct cli *cli, json_t *about, json_t **ret_wish)
{
	json_t *answer;
	int status = ask(cli, json_pack("{s:o}", "cluster", about), &answer);

	if (status != CLI_OK)
		return status;
	*ret_wish = json_incref(json_object_get(answer, "wish"));
	json_decref(answer);
	if (json_is_object(*ret_wish))
		return CLI_OK;
	json_decref(*ret_wish);
	return cli_fail(cli, -TARN_EPROTO, cli->uri, "the daemon's answer has no \"wish\"");
}

static const char *state_of(json_t *wish)
{
	const char *state = json_string_value(json_object_get(wish, "state"));

	return state != NULL ? state : "";
}

static uint64_t deadline(const struct cli *cli)
{
	return clock_now_ns() + (uint64_t)(cli->timeout_ms ? cli->timeout_ms : CLI_TIMEOUT_DEFAULT_MS) * 1000000;
}

/* Until the wish is done. *inout_wish: as it was begun, then as it has ended. */
static int follow(struct cli *cli, uint64_t until_ns, json_t **inout_wish)
{
	int status = CLI_OK;

	while (status == CLI_OK && strcmp(state_of(*inout_wish), "waiting") == 0) {
		json_t *number = json_incref(json_object_get(*inout_wish, "number"));

		if (clock_now_ns() >= until_ns) {
			json_decref(number);
			return cli_fail(cli, -TARN_ETIMEOUT, NULL,
					"the change of the map is not answered yet: it may or may not be made; `tarn "
					"members` shows it");
		}
		clock_sleep_ns(POLL_NS);
		json_decref(*inout_wish);
		*inout_wish = NULL;
		status = ask_wish(cli, json_pack("{s:o}", "wish", number), inout_wish);
	}
	return status;
}

/* Asks until it is written, or so already. The number of shards that get another owner. */
static int wish(struct cli *cli, const char *what, const char *name, bool dry_run, json_int_t *ret_moving)
{
	uint64_t until_ns = deadline(cli);

	for (;;) {
		json_t *about = json_pack("{s:s, s:b}", "do", what, "dry_run", dry_run), *current = NULL;
		json_int_t moving;
		bool done, refused;
		int status;

		if (name != NULL && json_object_set_new(about, "member", json_string(name)) < 0) {
			json_decref(about);
			return cli_fail_usage(cli, "the member's name is no text");
		}
		status = ask_wish(cli, about, &current);
		if (status != CLI_OK)
			return status;
		moving = json_integer_value(json_object_get(current, "moving"));
		status = follow(cli, until_ns, &current);
		if (status != CLI_OK) {
			json_decref(current);
			return status;
		}
		refused = strcmp(state_of(current), "refused") == 0 || strcmp(state_of(current), "unknown") == 0;
		done = !refused;
		json_decref(current);
		if (done) {
			*ret_moving = moving;
			return CLI_OK;
		}
		if (clock_now_ns() >= until_ns)
			return cli_fail(cli, -TARN_ETIMEOUT, NULL,
					"others change the map all the time, or etcd does not answer: try again");
		clock_sleep_ns(POLL_NS);
	}
}

static int show(struct cli *cli, const char *name, const char *done, json_int_t moving)
{
	if (name != NULL)
		writer_field(cli->writer, WRITER_TABLE, "member", writer_text(name));
	writer_field(cli->writer, WRITER_TABLE, "done", json_string(done));
	writer_field(cli->writer, WRITER_TABLE, "shards_moving", json_integer(moving));
	return CLI_OK;
}

/* ---- drain --wait ---------------------------------------------------------------------------- */

/* How far it is. */
struct drain {
	const char *name;
	json_int_t left;            /* shards that the member owns, or that nobody does */
	json_int_t keys, bytes;     /* that it has moved: known if it is the member that is asked, */
	bool known;
	json_int_t from_keys, from_bytes; /* ... before this */
	struct progress progress;
};

static json_int_t number_in(const json_t *object, const char *outer, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(object, outer), name));
}

static int look(struct cli *cli, struct drain *d)
{
	json_t *answer, *member, *cluster;
	const char *self;
	size_t i;
	int status = control_ask(cli, "{\"get\":\"members\"}", &answer);

	if (status != CLI_OK)
		return status;
	cluster = json_object_get(answer, "cluster");
	d->left = number_in(cluster, "shards_unavailable", "nobody");
	json_array_foreach(json_object_get(answer, "members"), i, member)
	{
		const char *is = json_string_value(json_object_get(member, "name"));

		if (is != NULL && strcmp(is, d->name) == 0)
			d->left += json_integer_value(json_object_get(member, "shards"));
	}
	self = json_string_value(json_object_get(cluster, "member"));
	d->known = self != NULL && strcmp(self, d->name) == 0;
	d->keys = number_in(cluster, "handover", "keys_moved");
	d->bytes = number_in(cluster, "handover", "bytes_moved");
	json_decref(answer);
	return CLI_OK;
}

/* The line on the terminal; what has been moved is in it if the member says so itself. */
static void show_progress(struct drain *d, json_int_t all)
{
	d->progress.permille = all > 0 && d->left < all ? (uint64_t)(1000 * (all - d->left) / all) : 0;
	if (d->known) {
		d->progress.things = "keys";
		d->progress.files = (uint64_t)(d->keys - d->from_keys);
		d->progress.bytes = (uint64_t)(d->bytes - d->from_bytes);
	} else {
		d->progress.things = "shards";
		d->progress.files = (uint64_t)(all - d->left);
	}
	progress_update(&d->progress);
}

static int wait_drained(struct cli *cli, struct drain *d)
{
	int status = look(cli, d);
	json_int_t all = d->left;

	progress_begin(&d->progress, !cli->quiet);
	cli->progress = &d->progress;
	while (status == CLI_OK && d->left > 0) {
		show_progress(d, all > d->left ? all : d->left);
		if (*cli->stop) {
			status = cli_fail(cli, -ECANCELED, NULL, "interrupted; the members go on with it");
			break;
		}
		clock_sleep_ns(2 * POLL_NS);
		status = look(cli, d);
	}
	progress_clear(&d->progress);
	cli->progress = NULL;
	return status;
}

/* ---- the verbs ------------------------------------------------------------------------------- */

static int run_drain(struct cli *cli, const struct arguments *args)
{
	const char *name = args->operands[0];
	struct drain drain = {.name = name};
	json_int_t moving = 0;
	bool waits = args->own.values[DRAIN_WAIT] != NULL;
	int status = waits ? look(cli, &drain) : CLI_OK;

	drain.from_keys = drain.keys;
	drain.from_bytes = drain.bytes;
	if (status == CLI_OK)
		status = wish(cli, "drain", name, false, &moving);
	if (status == CLI_OK && waits)
		status = wait_drained(cli, &drain);
	if (status != CLI_OK)
		return status;
	status = show(cli, name, "drain", moving);
	if (drain.known) {
		writer_field(cli->writer, WRITER_TABLE, "keys_moved", json_integer(drain.keys - drain.from_keys));
		writer_field(cli->writer, WRITER_TABLE, "bytes_moved", json_integer(drain.bytes - drain.from_bytes));
	}
	return status;
}

static int run_undrain(struct cli *cli, const struct arguments *args)
{
	json_int_t moving = 0;
	int status = wish(cli, "undrain", args->operands[0], false, &moving);

	return status != CLI_OK ? status : show(cli, args->operands[0], "undrain", moving);
}

static int run_forget(struct cli *cli, const struct arguments *args)
{
	json_int_t moving = 0;
	int status = wish(cli, "forget", args->operands[0], false, &moving);

	return status != CLI_OK ? status : show(cli, args->operands[0], "forget", moving);
}

static int run_rebalance(struct cli *cli, const struct arguments *args)
{
	bool dry_run = args->own.values[REBALANCE_DRY] != NULL;
	json_int_t moving = 0;
	int status = wish(cli, "rebalance", NULL, dry_run, &moving);

	return status != CLI_OK ? status : show(cli, NULL, dry_run ? "nothing (dry run)" : "rebalance", moving);
}

const struct verb verb_drain = {
	.name = "drain",
	.operands = "MEMBER",
	.help = "have a member of the cluster give all its shards to the others",
	.details = "It can be stopped then without anybody's missing it. In a store pool its keys go with its shards "
		   "while clients work: `tarn members` shows how many are left, and [cluster] drain_rate how fast it may be. In a "
		   "cache pool its keys are gone: they are misses. `tarn undrain` is the way back. Any member can be asked; root and its daemon's user may do "
		   "it. With membership = etcd alone.",
	.options = drain_options,
	.min_operands = 1,
	.max_operands = 1,
	.run = run_drain,
};

const struct verb verb_undrain = {
	.name = "undrain",
	.operands = "MEMBER",
	.help = "have a member of the cluster take shards again",
	.details = "Ends `tarn drain`: the member gets its share of the shards back.",
	.min_operands = 1,
	.max_operands = 1,
	.run = run_undrain,
};

const struct verb verb_rebalance = {
	.name = "rebalance",
	.operands = "",
	.help = "have each member of the cluster own what its weight says",
	.details = "Members that come and go get and leave their shares by themselves; this is for when a weight was "
		   "changed.",
	.options = rebalance_options,
	.run = run_rebalance,
};

const struct verb verb_forget = {
	.name = "forget",
	.operands = "MEMBER",
	.help = "take a member that is down for gone for good",
	.details = "Its shards, if it has any, are taken by the others, empty. Refused for one that is alive: drain it. "
		   "If its daemon is started again it joins as any other.",
	.min_operands = 1,
	.max_operands = 1,
	.run = run_forget,
};
