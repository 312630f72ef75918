/* SPDX-License-Identifier: BSD-2-Clause */
/* health.h - can clients be served? */
#ifndef TARN_DAEMON_HEALTH_H
#define TARN_DAEMON_HEALTH_H

#include <stdbool.h>

#include <jansson.h>

#include "daemon.h"

/* All pools can be used, all listeners are up. `reasons`: an array for what is not; may be NULL. */
bool health_ready(const struct daemon *daemon, json_t *reasons);

#endif
