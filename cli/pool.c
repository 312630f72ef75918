/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.c - `tarn pool ...`: what is done with a pool as a whole
 *
 * The first operand says what; each has a file of its own. Main thread. Next to read: pool-check.c.
 */
#include "pool.h"

#include <string.h>

#include "verbs.h"

static const struct option_spec pool_options[] = {
	[POOL_REPAIR] = {"repair", 0, NULL, "check FILE: repair what can be repaired"},
	[POOL_ALL] = {"all", 0, NULL, "check: print all findings, and not 20 of them"},
	{0},
};

static int run_pool(struct cli *cli, const struct arguments *args)
{
	if (strcmp(args->operands[0], "check") == 0)
		return pool_check(cli, args);
	return cli_fail_usage(cli, "'%s': write `tarn pool check [FILE | URI]`", args->operands[0]);
}

const struct verb verb_pool = {
	.name = "pool",
	.operands = "check [FILE | URI]",
	.help = "look whether a pool is as it must be",
	.details =
		"Looks at all of a pool: index, blocks and their checksums, pages, free map. "
		"Without "
		"FILE the daemon does it with the pool of the URI, beside its work, while clients "
		"go on; root and the daemon's user may ask for it. With FILE it is a pool's file "
		"(`file` in tarnd.conf) that no daemon and no client uses. --repair frees and "
		"clears what is wrong in a file; keys whose blocks are damaged are lost by it, "
		"others are not: keep a copy. The exit code is 6 if something is wrong.",
	.options = pool_options,
	.min_operands = 1,
	.max_operands = 2,
	.run = run_pool,
};
