/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control-check.h - the check of a pool that is being served, for `tarn pool check`
 */
#ifndef TARN_DAEMON_CONTROL_CHECK_H
#define TARN_DAEMON_CONTROL_CHECK_H

#include <stdint.h>

#include <jansson.h>

struct daemon;

/*
 * {"check": {"pool": NAME, "id": N}}: how far check N is, or what it has found; id 0, or none, begins
 * one or joins that which runs. Sets "check" in the answer; or returns a sentence that says why not,
 * and in *ret_name the code's name.
 */
const char *control_check(struct daemon *daemon, uint32_t uid, const json_t *asked, json_t *answer,
			  const char **ret_name);
/* Ends those that run, before the pools go. */
void control_check_free(struct daemon *daemon);

#endif
