/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.c - main() of the peers: loads or measures, and prints one line
 *
 * Next: peer-memcached.c, peer-lmdb.c, and bench/vs-peers, which runs them.
 */
#include "peer.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "hist.h"
#include "workload.h"

static const char usage[] =
	"Usage: peer-NAME [--load] [--keys=N] [--key-size=N] [--value-size=N] [--duration=S] "
	"[--warmup=S] WHERE\n"
	"--load fills it; without, it measures gets and prints one line of JSON.\n";

struct run {
	struct workload workload;
	const char *where;
	double duration, warmup;
	int load;
	struct peer *peer;
	struct workload_picker picker;
	uint64_t key_words[WORKLOAD_KEY_MAX / 8];
	uint8_t *value;
	struct hist hist;
};

static int load(struct run *run)
{
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < run->workload.keys; i++) {
		uint64_t id = workload_id(&run->workload, WORKLOAD_LOADED, i);

		workload_key(id, (uint8_t *)run->key_words);
		workload_value(&run->workload, id, 0, run->value);
		ret = peer_ops.load(run->peer, run->key_words, run->workload.key_size, run->value,
				    run->workload.value_size);
	}
	return ret < 0 ? ret : peer_ops.flush(run->peer);
}

/* Gets for some seconds. The same loop as tarn-bench's: one reading of the clock per get. */
static int measure(struct run *run, double seconds, uint64_t *ret_elapsed_ns)
{
	uint64_t start = clock_now_ns(), before = start, now = start;
	uint64_t until = start + (uint64_t)(seconds * 1e9);

	hist_init(&run->hist);
	while (now < until) {
		uint64_t id =
			workload_id(&run->workload, WORKLOAD_LOADED, workload_pick(&run->picker));
		int64_t size;

		workload_key(id, (uint8_t *)run->key_words);
		size = peer_ops.get(run->peer, run->key_words, run->workload.key_size, run->value,
				    run->workload.value_size);
		if (size == -ENOENT)
			return err_set(-ENOENT, "a key is not there: --load first");
		if (size < 0)
			return (int)size;
		if (size != (int64_t)run->workload.value_size ||
		    !workload_verify(&run->workload, id, run->value))
			return err_set(-EBADMSG, "a key has a wrong value");
		now = clock_now_ns();
		hist_add(&run->hist, now - before);
		before = now;
	}
	*ret_elapsed_ns = now - start;
	return 0;
}

static int measure_and_print(struct run *run)
{
	uint64_t elapsed_ns;
	int ret = measure(run, run->warmup, &elapsed_ns);

	if (ret == 0)
		ret = measure(run, run->duration, &elapsed_ns);
	if (ret < 0)
		return ret;
	if (hist_count(&run->hist) == 0)
		return err_set(-EINVAL, "nothing was measured: give it more time (--duration)");
	printf("{\"peer\": \"%s\", \"rate\": %.0f, \"p50_ns\": %llu, \"p99_ns\": %llu, \"count\": "
	       "%llu}\n",
	       peer_ops.name, (double)hist_count(&run->hist) * 1e9 / (double)elapsed_ns,
	       (unsigned long long)hist_percentile(&run->hist, 50),
	       (unsigned long long)hist_percentile(&run->hist, 99),
	       (unsigned long long)hist_count(&run->hist));
	return 0;
}

static int arguments_parse(int argc, char **argv, struct run *run)
{
	static const struct option options[] = {
		{"keys", required_argument, NULL, 'k'},
		{"key-size", required_argument, NULL, 'K'},
		{"value-size", required_argument, NULL, 'V'},
		{"duration", required_argument, NULL, 'd'},
		{"warmup", required_argument, NULL, 'w'},
		{"load", no_argument, NULL, 'l'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'k')
			run->workload.keys = strtoull(optarg, NULL, 10);
		else if (option == 'K')
			run->workload.key_size = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'V')
			run->workload.value_size = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'd')
			run->duration = strtod(optarg, NULL);
		else if (option == 'w')
			run->warmup = strtod(optarg, NULL);
		else if (option == 'l')
			run->load = 1;
		else
			return -EINVAL;
	}
	if (optind + 1 != argc)
		return -EINVAL;
	run->where = argv[optind];
	return 0;
}

static int run_all(struct run *run)
{
	const struct workload *workload = &run->workload;
	int ret = workload_init(&run->workload);

	if (ret < 0)
		return ret;
	run->value = calloc(1, workload->value_size + 16u);
	if (!run->value)
		return err_set(-ENOMEM, "no memory for a value");
	memset(run->value, 'v', workload->value_size);
	workload_key_prepare((uint8_t *)run->key_words);
	ret = workload_picker_init(workload, 1, &run->picker);
	if (ret == 0)
		ret = peer_ops.open(run->where,
				    workload->keys * (workload->key_size + workload->value_size),
				    &run->peer);
	if (ret < 0)
		goto out_value;
	ret = run->load ? load(run) : measure_and_print(run);
	peer_ops.close(run->peer);
out_value:
	free(run->value);
	return ret;
}

int main(int argc, char **argv)
{
	static struct run run = {.workload = {.keys = 1000000, .key_size = 16, .value_size = 64},
				 .duration = 1,
				 .warmup = 0.5};

	if (arguments_parse(argc, argv, &run) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	if (run_all(&run) < 0) {
		fprintf(stderr, "peer-%s: %s\n", peer_ops.name, err_text());
		return 1;
	}
	return 0;
}
