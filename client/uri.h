/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uri.h - inside of libtarn: where a pool is, as text
 *
 *	tarn:PATH?pool=NAME[&key=FILE][&readonly=0|1][&timeout=MS]
 *	tarn://HOST[:PORT]/POOL[?key=...]      HOST may be [v6] or [v6]:PORT
 */
#ifndef TARN_URI_H
#define TARN_URI_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

#define URI_PATH_MAX 4096u
#define URI_HOST_MAX 256u

struct uri {
	char path[URI_PATH_MAX]; /* of the unix socket; "" when it is a host */
	char host[URI_HOST_MAX];
	uint16_t port; /* 0: not given */
	char pool[WIRE_POOL_NAME_MAX + 1];
	char key_file[URI_PATH_MAX]; /* "" when not given */
	bool read_only;
	uint32_t timeout_ms; /* 0: not given */
};

/* 0, or -TARN_EURI with a text that names what is wrong. */
int uri_parse(const char *text, struct uri *ret_uri);

#endif
