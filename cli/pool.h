/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h - the parts of `tarn pool`
 */
#pragma once

#include "cli.h"

enum { POOL_REPAIR, POOL_ALL }; /* options */

int pool_check(struct cli *cli, const struct arguments *args);
