/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-uri.c - libFuzzer target: a pool's URI as text from anywhere
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct uri uri;
	char *text = malloc(bytes + 1);

	if (!text)
		return 0;
	memcpy(text, data, bytes);
	text[bytes] = 0;
	/* what was accepted has a pool, and exactly one of path and host */
	if (uri_parse(text, &uri) == 0 && (!uri.pool[0] || !uri.path[0] == !uri.host[0]))
		abort();
	free(text);
	return 0;
}
