/* SPDX-License-Identifier: BSD-2-Clause */
/* control-config.h - `tarn reload`, `tarn config show` and `tarn config diff`, as JSON */
#ifndef TARN_DAEMON_CONTROL_CONFIG_H
#define TARN_DAEMON_CONTROL_CONFIG_H

#include <stdint.h>

#include <jansson.h>

struct daemon;

/*
 * Sets "reload" in the answer, also when it was refused: "result" is then "refused", and "errors"
 * says why. Or returns a sentence that says why nothing was tried, and in *ret_name the code's
 * name.
 */
const char *control_reload(struct daemon *daemon, uint32_t uid, json_t *answer,
			   const char **ret_name);
/* "diff", in the same way: what a reload would do. */
const char *control_config_diff(struct daemon *daemon, uint32_t uid, json_t *answer,
				const char **ret_name);
/* Sets "file" and "settings": each key of each section, as it runs. */
void control_config_show(const struct daemon *daemon, json_t *answer);

#endif
