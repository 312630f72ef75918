/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reload.c - `tarn reload`: the daemon reads its configuration again, and it is said what came of it
 *
 * The daemon answers when the reload is done or refused, so the exit code tells. The command's
 * thread. Next to read: config.c; the daemon's reload.c.
 */
#include "config.h"
#include "control.h"
#include "verbs.h"

static int run_reload(struct cli *cli, const struct arguments *args)
{
	json_t *answer;
	int status = control_ask(cli, "{\"reload\":{}}", &answer);

	(void)args;
	return status != CLI_OK ? status
				: config_report(cli, answer, "reload",
						"refused, everything stays as it was");
}

const struct verb verb_reload = {
	.name = "reload",
	.operands = "",
	.help = "have the daemon read its configuration and key files again",
	.details = "All of it takes effect at once, or nothing: if anything is wrong, it says "
		   "what, with "
		   "file and line, and the exit code is 1. It prints what has changed, and what "
		   "needs a "
		   "restart. Clients whose rights are gone are cut off; no others notice anything. "
		   "Root "
		   "and the daemon's user may do it.",
	.run = run_reload,
};
