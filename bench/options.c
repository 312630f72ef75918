/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * options.c - from the command line to struct arguments
 *
 * Runs in main() before anything else. A wrong value gets one line that names option, value and
 * what is allowed. Next: tarn-bench.c; help.c has the text of --help.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "err.h"

enum option_code {
	OPTION_THREADS = 256,
	OPTION_PROCESSES,
	OPTION_KEYS,
	OPTION_KEY_SIZE,
	OPTION_VALUE_SIZE,
	OPTION_MIX,
	OPTION_DIST,
	OPTION_YCSB,
	OPTION_TRACE,
	OPTION_CHAIN,
	OPTION_RATE,
	OPTION_DEPTH,
	OPTION_DURATION,
	OPTION_WARMUP,
	OPTION_ROUNDS,
	OPTION_PAUSE,
	OPTION_CACHE,
	OPTION_LOAD,
	OPTION_NO_LOAD,
	OPTION_CLEAN,
	OPTION_VERIFY,
	OPTION_NO_VERIFY,
	OPTION_CEILING,
	OPTION_RAW,
	OPTION_RAW_SIZE,
	OPTION_HISTOGRAM,
	OPTION_PLOT,
	OPTION_JSON,
};

static const struct option options[] = {
	{"uri", required_argument, NULL, 'u'},
	{"threads", required_argument, NULL, OPTION_THREADS},
	{"processes", required_argument, NULL, OPTION_PROCESSES},
	{"keys", required_argument, NULL, OPTION_KEYS},
	{"key-size", required_argument, NULL, OPTION_KEY_SIZE},
	{"value-size", required_argument, NULL, OPTION_VALUE_SIZE},
	{"mix", required_argument, NULL, OPTION_MIX},
	{"dist", required_argument, NULL, OPTION_DIST},
	{"rate", required_argument, NULL, OPTION_RATE},
	{"ycsb", required_argument, NULL, OPTION_YCSB},
	{"trace", required_argument, NULL, OPTION_TRACE},
	{"chain", no_argument, NULL, OPTION_CHAIN},
	{"depth", required_argument, NULL, OPTION_DEPTH},
	{"duration", required_argument, NULL, OPTION_DURATION},
	{"warmup", required_argument, NULL, OPTION_WARMUP},
	{"rounds", required_argument, NULL, OPTION_ROUNDS},
	{"pause", required_argument, NULL, OPTION_PAUSE},
	{"cache", required_argument, NULL, OPTION_CACHE},
	{"load", no_argument, NULL, OPTION_LOAD},
	{"no-load", no_argument, NULL, OPTION_NO_LOAD},
	{"clean", no_argument, NULL, OPTION_CLEAN},
	{"verify", no_argument, NULL, OPTION_VERIFY},
	{"no-verify", no_argument, NULL, OPTION_NO_VERIFY},
	{"ceiling", required_argument, NULL, OPTION_CEILING},
	{"raw", required_argument, NULL, OPTION_RAW},
	{"raw-size", required_argument, NULL, OPTION_RAW_SIZE},
	{"histogram", no_argument, NULL, OPTION_HISTOGRAM},
	{"plot", optional_argument, NULL, OPTION_PLOT},
	{"json", no_argument, NULL, OPTION_JSON},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

/* ---- values of options ----------------------------------------------------------------------- */

/* Reads a whole number with an optional suffix K, M or G; what follows it is the caller's. */
static bool read_number(const char *text, const char **ret_end, uint64_t *ret_number)
{
	unsigned long long number;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (end == text || *text < '0' || *text > '9' || errno)
		return false;
	if (*end == 'K' || *end == 'M' || *end == 'G')
		shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
	if (number > UINT64_MAX >> shift)
		return false;
	*ret_end = end + (shift > 0);
	*ret_number = number << shift;
	return true;
}

/* The whole text as such a number. */
static int parse_number(const char *name, const char *text, uint64_t minimum, uint64_t maximum,
			uint64_t *ret_number)
{
	uint64_t number;
	const char *end;

	if (!read_number(text, &end, &number) || *end || number < minimum || number > maximum)
		return err_set(-EINVAL, "--%s=%s: must be a number from %llu to %llu", name, text,
			       (unsigned long long)minimum, (unsigned long long)maximum);
	*ret_number = number;
	return 0;
}

static int parse_number32(const char *name, const char *text, uint32_t minimum, uint32_t maximum,
			  uint32_t *ret_number)
{
	uint64_t number = 0;
	int ret = parse_number(name, text, minimum, maximum, &number);

	if (ret == 0)
		*ret_number = (uint32_t)number;
	return ret;
}

static int parse_seconds(const char *name, const char *text, double *ret_seconds)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0) || seconds > 86400)
		return err_set(-EINVAL, "--%s=%s: must be seconds, 0 to 86400", name, text);
	*ret_seconds = seconds;
	return 0;
}

/* BYTES, MIN-MAX or zipf:MIN-MAX. */
static int parse_value_size(const char *text, struct arguments *arguments)
{
	struct workload *workload = &arguments->workload;
	bool zipf = strncmp(text, "zipf:", 5) == 0;
	uint64_t min = 0, max;
	const char *end;
	bool good = read_number(zipf ? text + 5 : text, &end, &min);

	max = min;
	if (good && (*end == '-' || zipf))
		good = *end == '-' && read_number(end + 1, &end, &max);
	if (!good || *end || min > max || max > WORKLOAD_VALUE_MAX)
		return err_set(
			-EINVAL,
			"--value-size=%s: must be BYTES, MIN-MAX or zipf:MIN-MAX, sizes from 0 "
			"to %u, MIN not above MAX",
			text, WORKLOAD_VALUE_MAX);
	arguments->value_sizes = text;
	workload->value_size = (uint32_t)max;
	workload->value_spread = (uint32_t)(max - min);
	workload->value_zipf = zipf && max > min;
	return 0;
}

int dist_parse(const char *text, struct arguments *arguments)
{
	double theta = 0.99;
	char *end;

	arguments->dist = text;
	arguments->workload.theta = 0;
	arguments->workload.latest = strcmp(text, "latest") == 0;
	if (strcmp(text, "uniform") == 0)
		return 0;
	if (strncmp(text, "zipf:", 5) == 0) {
		theta = strtod(text + 5, &end);
		if (end == text + 5 || *end || !(theta > 0) || !(theta < 1))
			return err_set(-EINVAL, "--dist=%s: THETA must be above 0 and below 1",
				       text);
	} else if (strcmp(text, "zipf") != 0 && !arguments->workload.latest) {
		return err_set(-EINVAL, "--dist=%s: must be uniform, zipf, zipf:THETA or latest",
			       text);
	}
	arguments->workload.theta = theta;
	return 0;
}

static int parse_ceiling(const char *text, struct arguments *arguments)
{
	bool both = strcmp(text, "both") == 0, off = strcmp(text, "off") == 0;

	arguments->ceiling_given = true;
	arguments->ceiling_table = both || strcmp(text, "table") == 0;
	arguments->ceiling_raw = both || strcmp(text, "raw") == 0;
	if (!off && !arguments->ceiling_table && !arguments->ceiling_raw)
		return err_set(-EINVAL, "--ceiling=%s: must be both, table, raw or off", text);
	return 0;
}

static int parse_cache(const char *text, struct arguments *arguments)
{
	arguments->no_cache = strcmp(text, "off") == 0;
	if (arguments->no_cache)
		return 0;
	return parse_number("cache", text, 1, 1u << 30, &arguments->cache_bytes);
}

int mix_parse(const char *text, struct arguments *arguments)
{
	if (arguments->nmixes == BENCH_MIXES_MAX)
		return err_set(-EINVAL, "--mix: at most %u of them", BENCH_MIXES_MAX);
	arguments->mix_texts[arguments->nmixes] = text;
	return workload_mix_parse(text, &arguments->mixes[arguments->nmixes++]);
}

static int parse_option(int option, const char *text, struct arguments *arguments)
{
	switch (option) {
	case 'u':
		arguments->uri = text;
		return 0;
	case OPTION_THREADS:
		return parse_number32("threads", text, 1, BENCH_WORKERS_MAX, &arguments->threads);
	case OPTION_PROCESSES:
		return parse_number32("processes", text, 1, BENCH_WORKERS_MAX,
				      &arguments->processes);
	case OPTION_KEYS:
		return parse_number("keys", text, 1, UINT32_MAX, &arguments->workload.keys);
	case OPTION_KEY_SIZE:
		arguments->key_size_given = true;
		return parse_number32("key-size", text, WORKLOAD_KEY_MIN, WORKLOAD_KEY_MAX,
				      &arguments->workload.key_size);
	case OPTION_VALUE_SIZE:
		return parse_value_size(text, arguments);
	case OPTION_MIX:
		return mix_parse(text, arguments);
	case OPTION_YCSB:
		return ycsb_parse(text, arguments);
	case OPTION_TRACE:
		arguments->trace = text;
		return 0;
	case OPTION_DIST:
		return dist_parse(text, arguments);
	case OPTION_DURATION:
		return parse_seconds("duration", text, &arguments->duration);
	case OPTION_WARMUP:
		return parse_seconds("warmup", text, &arguments->warmup);
	case OPTION_PAUSE:
		return parse_seconds("pause", text, &arguments->pause);
	case OPTION_RATE:
		return parse_number("rate", text, 1, BENCH_RATE_MAX, &arguments->rate);
	case OPTION_DEPTH:
		return parse_number32("depth", text, 1, BENCH_DEPTH_MAX, &arguments->depth);
	case OPTION_ROUNDS:
		return parse_number32("rounds", text, 1, BENCH_ROUNDS_MAX, &arguments->rounds);
	case OPTION_CACHE:
		return parse_cache(text, arguments);
	case OPTION_CEILING:
		return parse_ceiling(text, arguments);
	case OPTION_RAW:
		return raw_kinds_parse(text, &arguments->raw_kinds);
	case OPTION_RAW_SIZE:
		return parse_number32("raw-size", text, 1, BENCH_RAW_BYTES_MAX,
				      &arguments->raw_bytes);
	case OPTION_CHAIN:
		arguments->workload.chain = true;
		return 0;
	case OPTION_LOAD:
	case OPTION_NO_LOAD:
		arguments->load = option == OPTION_LOAD;
		arguments->load_given = true;
		return 0;
	case OPTION_HISTOGRAM:
		arguments->histogram = true;
		return 0;
	case OPTION_PLOT:
		return plot_parse(text, arguments);
	case OPTION_CLEAN:
		arguments->clean = true;
		return 0;
	case OPTION_VERIFY:
	case OPTION_NO_VERIFY:
		arguments->verify = option == OPTION_VERIFY;
		return 0;
	default:
		arguments->json = true;
		return 0;
	}
}

static int check_depth(const struct arguments *arguments)
{
	for (uint32_t i = 0; arguments->depth > 1 && i < arguments->nmixes; i++)
		for (int op = 0; op < WORKLOAD_OPS; op++)
			if (arguments->mixes[i].weights[op] && op != WORKLOAD_GET &&
			    op != WORKLOAD_PUT)
				return err_set(-EINVAL,
					       "--depth is for get and put, not for the mix %s",
					       arguments->mix_texts[i]);
	if (arguments->depth > 1 && arguments->workload.chain)
		return err_set(-EINVAL, "--depth and --chain exclude each other");
	return 0;
}

static int check_trace(struct arguments *arguments)
{
	if (arguments->nmixes || arguments->depth > 1 || arguments->workload.chain)
		return err_set(-EINVAL,
			       "--trace=%s says all operations: leave out --mix, --ycsb, "
			       "--depth and --chain",
			       arguments->trace);
	/* Ceilings are of other keys and values: only when they are asked for. */
	arguments->ceiling_table &= arguments->ceiling_given;
	arguments->ceiling_raw &= arguments->ceiling_given;
	return trace_check(arguments);
}

/* What can not be had together. */
static int check_pairs(const struct arguments *arguments)
{
	if (arguments->plot_text && arguments->json)
		return err_set(-EINVAL, "--plot as text and --json exclude each other: give "
					"--plot=FILE.svg, or leave one out");
	if (arguments->rate && arguments->pause > 0)
		return err_set(-EINVAL, "--rate and --pause exclude each other: a rate says when "
					"operations start; leave one out");
	if (arguments->rate && arguments->nmixes == 0)
		return err_set(-EINVAL, "--rate is for the operations of a mix: add --mix=MIX");
	return check_depth(arguments);
}

static int arguments_check(struct arguments *arguments)
{
	int ret;

	if (!arguments->uri || !*arguments->uri)
		return err_set(-EINVAL, "no pool: give --uri=URI or set TARN_URI");
	if (ycsb_apply(arguments) < 0)
		return -EINVAL;
	if (!arguments->dist)
		arguments->dist = "uniform";
	if (arguments->trace && (ret = check_trace(arguments)) < 0)
		return ret;
	if (arguments->workload.value_size > arguments->value_most)
		arguments->value_most = arguments->workload.value_size;
	if (arguments->nmixes == 0 && arguments->raw_kinds) {
		/* Raw posts alone, unless more is asked for by name. */
		arguments->ceiling_table &= arguments->ceiling_given;
		arguments->ceiling_raw &= arguments->ceiling_given;
		if (!arguments->load_given)
			arguments->load = arguments->ceiling_raw;
	} else if (arguments->nmixes == 0 && mix_parse("get", arguments) < 0) {
		return -EINVAL;
	}
	if (arguments->threads * arguments->processes > BENCH_WORKERS_MAX)
		return err_set(-EINVAL, "%u threads in %u processes: at most %u in all",
			       arguments->threads, arguments->processes, BENCH_WORKERS_MAX);
	if (check_pairs(arguments) < 0)
		return -EINVAL;
	if (arguments->threads * arguments->processes > arguments->workload.keys)
		return err_set(-EINVAL, "fewer keys than threads");
	return workload_init(&arguments->workload);
}

int arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	int option;

	*ret_arguments = (struct arguments){
		.uri = getenv("TARN_URI"),
		.threads = 1,
		.processes = 1,
		.depth = 1,
		.rounds = 5,
		.duration = 3,
		.warmup = 0.5,
		.load = true,
		.verify = true,
		.ceiling_table = true,
		.ceiling_raw = true,
		.workload = {.keys = 1000000, .key_size = 16, .value_size = 64},
	};
	while ((option = getopt_long(argc, argv, "u:hV", options, NULL)) != -1) {
		if (option == 'h' || option == 'V') {
			printf(option == 'h' ? "%s" : "tarn-bench %s\n",
			       option == 'h' ? bench_help : tarn_version());
			return BENCH_OK;
		}
		if (option == '?')
			return BENCH_USAGE;
		if (parse_option(option, optarg, ret_arguments) < 0)
			goto usage;
	}
	if (optind < argc)
		err_set(-EINVAL, "'%s': no such argument (--help)", argv[optind]);
	else if (arguments_check(ret_arguments) == 0)
		return -1;
usage:
	fprintf(stderr, "tarn-bench: %s\n", err_text());
	return BENCH_USAGE;
}
