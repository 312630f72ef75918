/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h - the parts of `tarn config`, and what it shares with `tarn reload`
 */
#pragma once

#include <jansson.h>

#include "cli.h"

/* By tarnd -t. */
int config_check(struct cli *cli, const struct arguments *args);

/*
 * Shows what a reload has changed, or would change: the answer's object of this name. Takes the
 * answer over. Returns the exit code: that of a refused one is 1.
 */
int config_report(struct cli *cli, json_t *answer, const char *name, const char *refused);
