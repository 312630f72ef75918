/* SPDX-License-Identifier: BSD-2-Clause */
/* control.h - answers of the daemon to the command tarn, as JSON */
#ifndef TARN_DAEMON_CONTROL_H
#define TARN_DAEMON_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "daemon.h"

/*
 * The answer to {"get": what}, which changes nothing: stats, pools, clients, events, members, map, ping or version.
 * Text of a JSON object that
 * the caller frees; NULL: no memory.
 */
char *control_get(struct daemon *daemon, const char *what);

/*
 * Answers a question, {"get": "stats"}, or does what is asked for, {"kill": {"pool": "main",
 * "client": 7}}, which is root's right and that of the daemon's own user: `uid` is who asks. Text of
 * a JSON object, always; {"schema": 1, "error": {"name": ..., "text": ...}} when it can not be
 * answered. The caller frees it. NULL: no memory, or longer than an answer may be.
 */
char *control_answer(struct daemon *daemon, uint32_t uid, const char *question, size_t bytes,
		     size_t *ret_bytes);

#endif
