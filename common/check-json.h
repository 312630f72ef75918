/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check-json.h - what a check has found, as JSON: the daemon's answer, and what `tarn pool check`
 * shows of a file
 */
#ifndef TARN_CHECK_JSON_H
#define TARN_CHECK_JSON_H

#include <jansson.h>

#include "check.h"

/* NULL: no memory. */
json_t *check_json_finding(const struct check_finding *finding);
json_t *check_json_totals(const struct check_totals *totals, bool online);

#endif
