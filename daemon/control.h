/* SPDX-License-Identifier: BSD-2-Clause */
/* control.h - answers of the daemon to the command tarn, as JSON */
#ifndef TARN_DAEMON_CONTROL_H
#define TARN_DAEMON_CONTROL_H

#include <stddef.h>

#include "daemon.h"

/*
 * Answers a question, {"get": "stats"}: text of a JSON object, always; {"schema": 1, "error": ...}
 * when the question makes no sense. The caller frees it. NULL: no memory, or longer than an answer
 * may be.
 */
char *control_answer(struct daemon *daemon, const char *question, size_t bytes, size_t *ret_bytes);

#endif
