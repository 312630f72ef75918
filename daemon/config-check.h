/* SPDX-License-Identifier: BSD-2-Clause */
/* config-check.h - what settings have to do with each other; config_parse() calls it */
#ifndef TARN_DAEMON_CONFIG_CHECK_H
#define TARN_DAEMON_CONFIG_CHECK_H

#include "config.h"

void config_check(const struct config *config, struct config_errors *errors);

#endif
