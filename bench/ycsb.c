/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ycsb.c - --ycsb: the standard parameters of YCSB's workloads
 *
 * Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010. Runs in main() while
 * options are read; from then on a workload is a mix like any other. It must not overrule what the
 * command line says. Next: grow.c for D's inserts, scan.c for E.
 */
#include <errno.h>
#include <string.h>

#include "bench.h"
#include "err.h"

#define YCSB_KEY_BYTES   23u   /* "user" and 19 digits */
#define YCSB_VALUE_BYTES 1000u /* 10 fields of 100 bytes */

struct ycsb {
	const char *name, *mix, *dist;
	bool grows;
};

static const struct ycsb workloads[] = {
	{"A", "get=50,put=50", "zipf", false},
	{"B", "get=95,put=5", "zipf", false},
	{"C", "get", "zipf", false},
	{"D", "get=95,insert=5", "latest", true},
	{"E", "scan=95,insert=5", "uniform", true},
	{"F", "get=50,rmw=50", "zipf", false},
};

static const struct ycsb *find(const char *name)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		if (strcmp(workloads[i].name, name) == 0)
			return &workloads[i];
	}
	return NULL;
}

int ycsb_parse(const char *text, struct arguments *arguments)
{
	if (!find(text))
		return err_set(-EINVAL, "--ycsb=%s: must be A, B, C, D, E or F", text);
	arguments->ycsb = text;
	return 0;
}

int ycsb_apply(struct arguments *arguments)
{
	const struct ycsb *ycsb;
	int ret;

	if (!arguments->ycsb)
		return 0;
	ycsb = find(arguments->ycsb);
	if (arguments->nmixes)
		return err_set(-EINVAL, "--ycsb=%s and --mix exclude each other: leave one out",
			       arguments->ycsb);
	if (!arguments->key_size_given)
		arguments->workload.key_size = YCSB_KEY_BYTES;
	if (!arguments->value_sizes)
		arguments->workload.value_size = YCSB_VALUE_BYTES;
	ret = mix_parse(ycsb->mix, arguments);
	arguments->mixes[0].grows = ycsb->grows;
	if (ret == 0 && !arguments->dist)
		ret = dist_parse(ycsb->dist, arguments);
	return ret;
}
