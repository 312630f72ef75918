/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn-bench.c - main(): the arguments, and the order of things
 *
 * Load, build the private table, run the workers, report. Next: bench.h, which says how a run is
 * made up.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "err.h"

static const char help[] =
	"Usage: tarn-bench [OPTION...]\n"
	"Measures a pool, and in the same run what this machine can do at best.\n"
	"\n"
	"It writes its own keys into the pool (16 hexadecimal digits each): use a pool made for "
	"it.\n"
	"\n"
	"  -u, --uri=URI            the pool, tarn:PATH?pool=NAME (default: $TARN_URI)\n"
	"      --threads=N          threads per process, each with a session of its own (default "
	"1)\n"
	"      --processes=N        processes (default 1)\n"
	"      --keys=N             loaded keys (default 1000000; suffixes K, M, G: powers of "
	"1024)\n"
	"      --key-size=BYTES     6 to 1024 (default 16)\n"
	"      --value-size=BYTES   0 to 16M (default 64)\n"
	"      --mix=MIX            get, put, insert, delete, add, exists, or weights: "
	"get=95,put=5\n"
	"                           (default get). May be given up to 8 times: then each round "
	"runs one\n"
	"                           after the other. insert and delete come in pairs that leave "
	"the pool\n"
	"                           as it was; each of the two is reported under its own name.\n"
	"      --dist=DIST          uniform, zipf or zipf:THETA (default uniform; THETA 0.99)\n"
	"      --chain              the next key depends on the value just read, so that the CPU "
	"cannot\n"
	"                           overlap operations, neither of Tarn nor of the ceilings\n"
	"      --duration=SECONDS   measured time of each mix over all rounds (default 3)\n"
	"      --warmup=SECONDS     before the first round, of each mix (default 0.5)\n"
	"      --rounds=N           rounds, whose medians are reported (default 5)\n"
	"      --cache=BYTES|off    memory of the location cache (default: the library's); with "
	"BYTES\n"
	"                           every key is read once before the warm-up\n"
	"      --no-load            the keys are there already\n"
	"      --clean              delete the keys afterwards\n"
	"      --no-verify          do not look at the values that are read\n"
	"      --ceiling=WHICH      both, table, raw or off (default both)\n"
	"      --json               print one JSON object instead of a table\n"
	"  -h, --help   -V, --version\n"
	"\n"
	"The clock is read once per operation; what that costs is reported as machine.clock_ns.\n"
	"Exit codes: 0 ok, 1 failed (also: nothing was read), 2 usage, 3 daemon unreachable.\n";

enum option_code {
	OPTION_THREADS = 256,
	OPTION_PROCESSES,
	OPTION_KEYS,
	OPTION_KEY_SIZE,
	OPTION_VALUE_SIZE,
	OPTION_MIX,
	OPTION_DIST,
	OPTION_CHAIN,
	OPTION_DURATION,
	OPTION_WARMUP,
	OPTION_ROUNDS,
	OPTION_CACHE,
	OPTION_LOAD,
	OPTION_NO_LOAD,
	OPTION_CLEAN,
	OPTION_VERIFY,
	OPTION_NO_VERIFY,
	OPTION_CEILING,
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
	{"chain", no_argument, NULL, OPTION_CHAIN},
	{"duration", required_argument, NULL, OPTION_DURATION},
	{"warmup", required_argument, NULL, OPTION_WARMUP},
	{"rounds", required_argument, NULL, OPTION_ROUNDS},
	{"cache", required_argument, NULL, OPTION_CACHE},
	{"load", no_argument, NULL, OPTION_LOAD},
	{"no-load", no_argument, NULL, OPTION_NO_LOAD},
	{"clean", no_argument, NULL, OPTION_CLEAN},
	{"verify", no_argument, NULL, OPTION_VERIFY},
	{"no-verify", no_argument, NULL, OPTION_NO_VERIFY},
	{"ceiling", required_argument, NULL, OPTION_CEILING},
	{"json", no_argument, NULL, OPTION_JSON},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

/* ---- values of options ----------------------------------------------------------------------- */

/* A whole number with an optional suffix K, M or G. */
static int parse_number(const char *name, const char *text, uint64_t minimum, uint64_t maximum,
			uint64_t *ret_number)
{
	unsigned long long number;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'M' || *end == 'G')
		shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
	if (end == text || *text == '-' || errno || end[shift > 0] ||
	    number > UINT64_MAX >> shift || number << shift < minimum || number << shift > maximum)
		return err_set(-EINVAL, "--%s=%s: must be a number from %llu to %llu", name, text,
			       (unsigned long long)minimum, (unsigned long long)maximum);
	*ret_number = number << shift;
	return 0;
}

static int parse_number32(const char *name, const char *text, uint32_t minimum, uint32_t maximum,
			  uint32_t *ret_number)
{
	uint64_t number;
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

static int parse_dist(const char *text, struct arguments *arguments)
{
	double theta = 0.99;
	char *end;

	arguments->dist = text;
	arguments->workload.theta = 0;
	if (strcmp(text, "uniform") == 0)
		return 0;
	if (strncmp(text, "zipf:", 5) == 0) {
		theta = strtod(text + 5, &end);
		if (end == text + 5 || *end || !(theta > 0) || !(theta < 1))
			return err_set(-EINVAL, "--dist=%s: THETA must be above 0 and below 1",
				       text);
	} else if (strcmp(text, "zipf") != 0) {
		return err_set(-EINVAL, "--dist=%s: must be uniform, zipf or zipf:THETA", text);
	}
	arguments->workload.theta = theta;
	return 0;
}

static int parse_ceiling(const char *text, struct arguments *arguments)
{
	bool both = strcmp(text, "both") == 0, off = strcmp(text, "off") == 0;

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

static int parse_mix(const char *text, struct arguments *arguments)
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
		return parse_number32("key-size", text, WORKLOAD_KEY_MIN, WORKLOAD_KEY_MAX,
				      &arguments->workload.key_size);
	case OPTION_VALUE_SIZE:
		return parse_number32("value-size", text, 0, WORKLOAD_VALUE_MAX,
				      &arguments->workload.value_size);
	case OPTION_MIX:
		return parse_mix(text, arguments);
	case OPTION_DIST:
		return parse_dist(text, arguments);
	case OPTION_DURATION:
		return parse_seconds("duration", text, &arguments->duration);
	case OPTION_WARMUP:
		return parse_seconds("warmup", text, &arguments->warmup);
	case OPTION_ROUNDS:
		return parse_number32("rounds", text, 1, BENCH_ROUNDS_MAX, &arguments->rounds);
	case OPTION_CACHE:
		return parse_cache(text, arguments);
	case OPTION_CEILING:
		return parse_ceiling(text, arguments);
	case OPTION_CHAIN:
		arguments->workload.chain = true;
		return 0;
	case OPTION_LOAD:
	case OPTION_NO_LOAD:
		arguments->load = option == OPTION_LOAD;
		return 0;
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

static int arguments_check(struct arguments *arguments)
{
	if (!arguments->uri || !*arguments->uri)
		return err_set(-EINVAL, "no pool: give --uri=URI or set TARN_URI");
	if (arguments->nmixes == 0 && parse_mix("get", arguments) < 0)
		return -EINVAL;
	if (arguments->threads * arguments->processes > BENCH_WORKERS_MAX)
		return err_set(-EINVAL, "%u threads in %u processes: at most %u in all",
			       arguments->threads, arguments->processes, BENCH_WORKERS_MAX);
	if (arguments->threads * arguments->processes > arguments->workload.keys)
		return err_set(-EINVAL, "fewer keys than threads");
	return workload_init(&arguments->workload);
}

/* -1: go on; else exit with this code. */
static int arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	int option;

	*ret_arguments = (struct arguments){
		.uri = getenv("TARN_URI"),
		.dist = "uniform",
		.threads = 1,
		.processes = 1,
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
			       option == 'h' ? help : tarn_version());
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

/* ---- for all files --------------------------------------------------------------------------- */

int bench_fail(struct bench *bench, int code, const char *format, ...)
{
	struct shared *shared = bench->shared;
	int none = 0;
	va_list list;

	/* Only the first one: the others fail because of it. */
	if (!atomic_compare_exchange_strong(&shared->failed, &none, code))
		return code;
	va_start(list, format);
	vsnprintf(shared->error, sizeof(shared->error), format, list);
	va_end(list);
	return code;
}

int bench_session_open(struct bench *bench, struct tarn_session **ret_session)
{
	const struct arguments *arguments = bench->arguments;
	struct tarn_options session = TARN_OPTIONS_INIT;
	int ret;

	session.flags = arguments->no_cache ? TARN_NO_CACHE : 0;
	session.cache_bytes = arguments->cache_bytes;
	ret = tarn_session_open(arguments->uri, &session, ret_session);
	if (ret < 0)
		return bench_fail(bench, ret, "%s", tarn_last_error_text());
	return 0;
}

/* ---- the order of things --------------------------------------------------------------------- */

static int shared_create(const struct arguments *arguments, struct shared **ret_shared)
{
	uint32_t workers = arguments->threads * arguments->processes;
	size_t bytes = sizeof(struct shared) +
		       (size_t)arguments->rounds * workers * TALLIES * sizeof(struct tally);
	struct shared *shared;

	/* Pages that nobody touches cost nothing: no worker does all kinds of operations. */
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED)
		return err_set(-ENOMEM, "no memory for the results of %u workers", workers);
	shared->nworkers = workers;
	shared->rounds = arguments->rounds;
	*ret_shared = shared;
	return 0;
}

static int measure(struct bench *bench)
{
	int ret = load_run(bench);

	if (ret == 0 && bench->arguments->ceiling_table) {
		ret = table_create(&bench->arguments->workload, bench->shared->pool_page_bytes,
				   &bench->table);
		if (ret < 0)
			bench_fail(bench, ret, "%s", err_text());
		bench->shared->table_page_bytes = bench->table.page_bytes;
	}
	if (ret == 0)
		ret = run_workers(bench);
	if (ret == 0 && bench->arguments->clean)
		ret = load_clean(bench);
	table_free(&bench->table);
	return ret;
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	struct bench bench = {.arguments = &arguments};
	struct machine machine;
	int ret = arguments_parse(argc, argv, &arguments);

	if (ret >= 0)
		return ret;
	ret = shared_create(&arguments, &bench.shared);
	if (ret < 0) {
		fprintf(stderr, "tarn-bench: %s\n", err_text());
		return BENCH_FAILED;
	}
	/* Before any fork(): calibrates the clock, which the children inherit. */
	machine_look(&machine);
	ret = measure(&bench);
	if (ret < 0 || bench_failed(&bench)) {
		fprintf(stderr, "tarn-bench: %s\n", bench.shared->error);
		return ret == -TARN_EUNREACHABLE ? BENCH_UNREACHABLE : BENCH_FAILED;
	}
	return (int)report_print(&bench, &machine);
}
