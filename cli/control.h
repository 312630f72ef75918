/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.h - questions to the daemon itself, as JSON over its unix socket
 */
#pragma once

#include <jansson.h>

#include "cli.h"

/* Asks and waits for the answer up to the time limit. 0, or an exit code after complaining. */
int control_ask(struct cli *cli, const char *question, json_t **ret_answer);

/*
 * The same without a complaint: 0, or a negative code with err_text(). -ECANCELED when wake_fd (-1:
 * none) could be read before the answer was there.
 */
int control_try(struct cli *cli, const char *question, int wake_fd, json_t **ret_answer);
