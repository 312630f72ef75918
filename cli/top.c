/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top.c - `tarn top`: one daemon, looked at again and again
 *
 * Three questions to the daemon's socket are a look. On a terminal it is drawn in place; into a file
 * or pipe as text, one look behind the other; with --json as a document on each line. A daemon that
 * goes away is waited for. One thread. Next to read: top-look.c, then top-view.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "control.h"
#include "err.h"
#include "text.h"
#include "top.h"
#include "verbs.h"

#define INTERVAL_DEFAULT_MS 2000
#define INTERVAL_MIN_MS     100
#define INTERVAL_MAX_MS     3600000
#define COUNT_MAX           1000000000u
#define CLIENTS_DEFAULT     10
#define CLIENTS_MAX         1000000
#define EVENTS_MAX          8
#define BATCH_WIDTH         512
#define WIDTH_MIN           20
#define NOTICE_BYTES        512
#define NO_ANSWER           "no answer: "

enum { TOP_DELAY, TOP_COUNT, TOP_BATCH, TOP_SORT, TOP_CLIENTS };

static const struct option_spec top_options[] = {
	[TOP_DELAY] = {"delay", 'd', "SECONDS", "time between two looks: 0.1 to 3600 (2)"},
	[TOP_COUNT] = {"count", 'n', "N", "end after N looks"},
	[TOP_BATCH] = {"batch", 'b', NULL, "text behind text, as into a file, also on a terminal"},
	[TOP_SORT] = {"sort", 's', "NAME",
		      "clients by operations (default), gets, puts, deletes, adds, errors, retries, bytes, name"},
	[TOP_CLIENTS] = {"clients", 0, "N", "at most N clients (10; on a terminal as many as fit)"},
	{0},
};

struct top {
	struct cli *cli;
	struct top_terminal *terminal;
	bool interactive;
	uint64_t interval_ms, count; /* 0: without end */
	enum top_sort sort;
	size_t max_clients;
	struct top_answers before, now;
	json_t *look; /* of these; NULL: none yet */
	struct top_screen screen;
	char notice[NOTICE_BYTES]; /* "": none */
	bool failed;               /* the last look: the notice says why */
	int status;                /* of it: 0 or a negative code */
	uint64_t shown;
	uint64_t next_ns; /* when to look again */
};

/* ---- options ---- */

/* "2", "0.5", and what other times are written like: "500ms". */
static int parse_interval(const char *text, uint64_t *ret_ms)
{
	char *end;
	double seconds;

	if (text_parse_ms(text, INTERVAL_MAX_MS, ret_ms) < 0) {
		if (text[0] < '0' || text[0] > '9')
			return -EINVAL;
		seconds = strtod(text, &end);
		if (*end != '\0' || !(seconds >= 0 && seconds * 1000 <= INTERVAL_MAX_MS) ||
		    strspn(text, "0123456789.") != strlen(text))
			return -EINVAL;
		*ret_ms = (uint64_t)(seconds * 1000 + 0.5);
	}
	return *ret_ms >= INTERVAL_MIN_MS ? 0 : -ERANGE;
}

static int parse_sort(struct cli *cli, const char *text, enum top_sort *ret_sort)
{
	const char *names[TOP_SORTS + 1] = {NULL}, *nearest;

	for (enum top_sort sort = 0; sort < TOP_SORTS; sort++) {
		names[sort] = top_sort_name(sort);
		if (strcmp(text, names[sort]) == 0) {
			*ret_sort = sort;
			return CLI_OK;
		}
	}
	nearest = text_nearest(text, names);
	return cli_fail_usage(cli,
			      "--sort '%s': is not one of operations, gets, puts, deletes, adds, "
			      "errors, retries, bytes, name%s%s%s",
			      text, nearest != NULL ? "; did you mean " : "",
			      nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
}

static int parse_options(struct top *top, const char *const *values)
{
	uint64_t clients = top->interactive ? CLIENTS_MAX : CLIENTS_DEFAULT;

	top->interval_ms = INTERVAL_DEFAULT_MS;
	if (values[TOP_DELAY] != NULL && parse_interval(values[TOP_DELAY], &top->interval_ms) < 0)
		return cli_fail_usage(top->cli, "--delay '%s': is not a time of 0.1 to 3600 seconds",
				      values[TOP_DELAY]);
	if (values[TOP_COUNT] != NULL &&
	    (text_parse_u64(values[TOP_COUNT], COUNT_MAX, &top->count) < 0 || top->count == 0))
		return cli_fail_usage(top->cli, "--count '%s': is not a number from 1 to %u",
				      values[TOP_COUNT], COUNT_MAX);
	if (values[TOP_CLIENTS] != NULL &&
	    text_parse_u64(values[TOP_CLIENTS], CLIENTS_MAX, &clients) < 0)
		return cli_fail_usage(top->cli, "--clients '%s': is not a number from 0 to %u",
				      values[TOP_CLIENTS], CLIENTS_MAX);
	top->max_clients = (size_t)clients;
	if (values[TOP_SORT] != NULL)
		return parse_sort(top->cli, values[TOP_SORT], &top->sort);
	return CLI_OK;
}

/* ---- looks ---- */

static int ask(struct top *top, struct top_answers *answers)
{
	int wake_fd = top_terminal_fd(top->terminal);
	int status = control_try(top->cli, "{\"get\":\"stats\"}", wake_fd, &answers->stats);

	answers->time_ns = clock_now_ns();
	answers->time_ms = clock_wall_ms();
	if (status == 0)
		status = control_try(top->cli, "{\"get\":\"clients\"}", wake_fd, &answers->clients);
	if (status == 0)
		status = control_try(top->cli, "{\"get\":\"events\"}", wake_fd, &answers->events);
	return status;
}

static void make_look(struct top *top)
{
	json_decref(top->look);
	top->look = top_look(top->before.stats != NULL ? &top->before : NULL, &top->now, top->sort,
			     top->max_clients, EVENTS_MAX);
}

/* What was said of a failure is over; that the daemon is another one stays to be read. */
static void accept_answers(struct top *top, struct top_answers *answers)
{
	if (top->failed)
		top->notice[0] = '\0';
	if (top->now.stats != NULL && top_restarted(&top->now, answers)) {
		json_t *daemon = json_object_get(answers->stats, "daemon");
		time_t started = (time_t)(
			json_integer_value(json_object_get(daemon, "started_ms")) / 1000);
		char when[32] = "";
		struct tm tm;

		if (localtime_r(&started, &tm) != NULL)
			strftime(when, sizeof(when), " at %H:%M:%S", &tm);
		snprintf(top->notice, sizeof(top->notice),
			 "the daemon was started again%s: rates began anew", when);
	}
	top->failed = false;
	top->status = 0;
	top_answers_free(&top->before);
	top->before = top->now;
	top->now = *answers;
	make_look(top);
}

/* 0, -ECANCELED: there is input, or another code: it has failed, which top->notice says. */
static int look(struct top *top)
{
	struct top_answers answers = {0};
	int status = ask(top, &answers);

	if (status == 0) {
		accept_answers(top, &answers);
		return top->look != NULL ? 0 : -ENOMEM;
	}
	top_answers_free(&answers);
	if (status == -ECANCELED)
		return status;
	top->failed = true;
	top->status = status;
	snprintf(top->notice, sizeof(top->notice), NO_ANSWER "%s",
		 *err_text() != '\0' ? err_text() : err_string(status));
	return status;
}

/* ---- output ---- */

static struct top_view view_of(const struct top *top)
{
	return (struct top_view){
		.sort = top->sort,
		.notice = top->notice[0] != '\0' ? top->notice : NULL,
		.bad = top->failed,
		.keys = top->interactive && isatty(STDIN_FILENO),
		.interval = (double)top->interval_ms / 1000,
	};
}

static void show_json(struct top *top)
{
	struct writer *writer = top->cli->writer;

	if (!top->failed) {
		writer_document(writer, json_incref(top->look));
		return;
	}
	writer_field(writer, WRITER_HIDDEN, "time_ms", writer_u64(clock_wall_ms()));
	writer_error(writer, top->status, tarn_error_name(top->status), top->notice);
}

static void show_text(struct top *top)
{
	struct top_view view = view_of(top);
	const char *columns = getenv("COLUMNS");
	uint64_t width;

	top->screen.width = BATCH_WIDTH;
	if (columns != NULL && text_parse_u64(columns, BATCH_WIDTH, &width) == 0 &&
	    width >= WIDTH_MIN)
		top->screen.width = (size_t)width;
	if (top->failed) {
		top_screen_clear(&top->screen);
		top_screen_line(&top->screen, TOP_PLAIN, top->notice);
	} else {
		top_view_draw(&view, top->look, &top->screen);
	}
	if (top->shown > 0)
		writer_raw(top->cli->writer, "\n", 1);
	writer_raw(top->cli->writer, top->screen.text, top->screen.n);
}

/* On a terminal, in place. 0, -ECANCELED or -errno. */
static int draw(struct top *top)
{
	static const char home[] = "\033[H", below[] = "\033[J";
	struct top_view view = view_of(top);
	int status;

	top_terminal_size(top->terminal, &top->screen.width, &top->screen.height);
	top_view_draw(&view, top->look, &top->screen);
	status = top_terminal_write(top->terminal, home, strlen(home));
	if (status == 0)
		status = top_terminal_write(top->terminal, top->screen.text, top->screen.n);
	if (status == 0)
		status = top_terminal_write(top->terminal, below, strlen(below));
	return status;
}

/* Writing into a pipe may wait for its reader: signals end that as they end other verbs. */
static int show(struct top *top)
{
	int status;

	if (top->interactive) {
		top_terminal_enter(top->terminal);
		status = draw(top);
	} else {
		if (writer_is_json(top->cli->writer))
			show_json(top);
		else
			show_text(top);
		top_terminal_let(top->terminal);
		status = writer_end_document(top->cli->writer);
		top_terminal_hold(top->terminal);
	}
	if (status != -ECANCELED)
		top->shown++;
	return top->screen.failed ? -ENOMEM : status;
}

/* ---- input ---- */

/* False: it is no key that means something. */
static bool press(struct top *top, char key)
{
	static const char keys[TOP_SORTS + 1] = "ogpdaerbn";
	const char *found = key != '\0' ? strchr(keys, key) : NULL;

	if (key == ' ')
		top->next_ns = 0;
	if (found == NULL)
		return key == ' ';
	top->sort = (enum top_sort)(found - keys);
	return true;
}

/* Until the next look is due. False: it is over. */
static bool wait_next(struct top *top)
{
	while (!*top->cli->stop) {
		char key = '\0';
		enum top_input input = top_terminal_wait(top->terminal, top->next_ns, &key);

		if (input == TOP_INPUT_END || (input == TOP_INPUT_KEY && key == 'q'))
			return false;
		if (input == TOP_INPUT_TIME)
			return true;
		if (input == TOP_INPUT_KEY && !press(top, key))
			continue;
		if (top->look == NULL)
			return true;
		if (input == TOP_INPUT_KEY && top->look != NULL)
			make_look(top);
		if (top->look != NULL)
			(void)draw(top); /* one that fails does so again at the next look */
	}
	return false;
}

/* 0 or a negative code: the terminal or the output is gone, or the first look has failed. */
static int run_looks(struct top *top)
{
	top->next_ns = clock_now_ns();
	for (;;) {
		int status = look(top);

		if (status < 0 && status != -ECANCELED && top->look == NULL)
			return status;
		if (status != -ECANCELED) {
			/* Behind the answer, not in step: rates over a moment say nothing. */
			top->next_ns = clock_now_ns() + top->interval_ms * 1000000;
			status = show(top);
			if (status < 0 && status != -ECANCELED)
				return status;
			if (top->count > 0 && top->shown >= top->count)
				return 0;
		} else {
			top->next_ns = clock_now_ns(); /* ask again at once */
		}
		if (!wait_next(top))
			return 0;
	}
}

static bool dumb_terminal(void)
{
	const char *term = getenv("TERM");

	return term == NULL || *term == '\0' || strcmp(term, "dumb") == 0;
}

static int report(struct top *top, int status)
{
	/* A failed write: the sticky error is said at the end by main(). */
	if (status < 0 && !top->interactive && writer_failed(top->cli->writer) != 0)
		return CLI_REFUSED;
	if (status < 0 && top->look == NULL)
		return cli_fail(top->cli, status, top->cli->uri, "%s",
				top->notice + strlen(NO_ANSWER));
	if (status < 0)
		return cli_fail_system(top->cli, status, "the terminal");
	/* Scripts want to know how it has ended. */
	if (top->failed)
		cli_complain(top->cli, top->cli->uri, top->notice + strlen(NO_ANSWER));
	return top->failed ? cli_exit_code(top->status) : CLI_OK;
}

static int run_top(struct cli *cli, const struct arguments *args)
{
	const char *no_colour = getenv("NO_COLOR");
	struct top top = {.cli = cli};
	int status;

	top.interactive = !writer_is_json(cli->writer) && args->own.values[TOP_BATCH] == NULL &&
			  isatty(STDOUT_FILENO) && !dumb_terminal();
	top.screen.escapes = top.interactive;
	top.screen.colour = top.interactive && (no_colour == NULL || *no_colour == '\0');
	status = parse_options(&top, args->own.values);
	if (status != CLI_OK)
		return status;
	status = top_terminal_open(top.interactive, &top.terminal);
	if (status < 0) {
		top_terminal_close(top.terminal);
		return cli_fail_system(cli, status, "signals");
	}
	status = run_looks(&top);
	top_terminal_close(top.terminal);
	status = report(&top, status);
	json_decref(top.look);
	top_answers_free(&top.before);
	top_answers_free(&top.now);
	top_screen_free(&top.screen);
	return status;
}

const struct verb verb_top = {
	.name = "top",
	.operands = "",
	.help = "a live view of the daemon: pools, keeper, devices, busiest clients, events",
	.details = "On a terminal: q ends it, o g p d a e r b n sort the clients (operations, gets, puts, "
		   "deletes, adds, errors, retries, bytes, name), the space bar looks at once. Else, or with "
		   "-b, text behind text. With --json a document on each line. Rates are between two looks; "
		   "clients report their operations about once a second. Latencies are since the start of the "
		   "daemon or client.",
	.options = top_options,
	.run = run_top,
};
