/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ping.c - `tarn ping`: how long a one-sided read and a message to the daemon take
 *
 * The two differ in whose work it is: a read needs no CPU of the daemon and still works when that
 * stands still. Next to read: hist.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "cli.h"
#include "clock.h"
#include "hist.h"
#include "text.h"
#include "verbs.h"

#define PING_COUNT_DEFAULT 10
#define PING_COUNT_MAX     100000000u

/* Looking for this key reads its buckets; that it is not there is the answer expected. */
#define PING_KEY "\0tarn ping"

enum { PING_COUNT };

static const struct option_spec ping_options[] = {
	[PING_COUNT] = {"count", 'c', "N", "how many times (10)"},
	{0},
};

struct times {
	uint64_t min_ns;
	struct hist hist;
};

static void times_add(struct times *times, uint64_t ns)
{
	if (times->hist.count == 0 || ns < times->min_ns)
		times->min_ns = ns;
	hist_add(&times->hist, ns);
}

static json_t *times_row(const char *what, const struct times *times)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:o}", "what", what, "min_ns",
			 writer_u64(times->min_ns), "p50_ns",
			 writer_u64(hist_percentile(&times->hist, 50)), "p99_ns",
			 writer_u64(hist_percentile(&times->hist, 99)), "max_ns",
			 writer_u64(hist_max(&times->hist)));
}

static int measure(struct cli *cli, uint64_t count, struct times *reads, struct times *messages)
{
	for (uint64_t i = 0; i < count && !*cli->stop; i++) {
		uint64_t begin_ns = clock_now_ns(), ns = 0;
		int status = tarn_exists(cli->session, PING_KEY, sizeof(PING_KEY) - 1, NULL);

		if (status < 0 && status != -TARN_ENOTFOUND)
			return cli_fail_library(cli, status, "one-sided read");
		times_add(reads, clock_now_ns() - begin_ns);
		status = tarn_session_ping(cli->session, &ns);
		if (status < 0)
			return cli_fail_library(cli, status, "message to the daemon");
		times_add(messages, ns);
	}
	return CLI_OK;
}

static int run_ping(struct cli *cli, const struct arguments *args)
{
	uint64_t count = PING_COUNT_DEFAULT;
	struct times *times;
	int status;

	if (args->own.values[PING_COUNT] != NULL &&
	    (text_parse_u64(args->own.values[PING_COUNT], PING_COUNT_MAX, &count) < 0 ||
	     count == 0))
		return cli_fail_usage(cli, "--count '%s' is not a number from 1 to %u",
				      args->own.values[PING_COUNT], PING_COUNT_MAX);
	times = calloc(2, sizeof(*times));
	if (times == NULL)
		return cli_fail_system(cli, -ENOMEM, NULL);
	status = cli_open(cli, true);
	if (status == CLI_OK)
		status = measure(cli, count, &times[0], &times[1]);
	if (status == CLI_OK) {
		writer_field(cli->writer, WRITER_HIDDEN, "count", writer_u64(times[0].hist.count));
		writer_list_begin(cli->writer, WRITER_TABLE, "times");
		writer_row(cli->writer, times_row("read", &times[0]));
		writer_row(cli->writer, times_row("message", &times[1]));
		writer_list_end(cli->writer);
	}
	free(times);
	return status;
}

const struct verb verb_ping = {
	.name = "ping",
	.operands = "",
	.help = "measure a one-sided read and a message to the daemon",
	.details = "\"read\" is the time to look for a key that is not there, by one-sided reads; "
		   "\"message\" is a message to "
		   "the daemon's CPU and its answer.",
	.options = ping_options,
	.run = run_ping,
};
