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

static int settings_valid(const struct uri *uri)
{
	const struct fabric_settings *s = &uri->settings;

	if (uri->path[0] && (uri->source[0] || s->ack_timeout || s->mtu || s->retries != -1 ||
			     s->tos != -1 || s->service_level != -1 || s->gid_index != -1))
		return 0;
	return s->ack_timeout >= 0 && s->ack_timeout <= 31 && s->retries >= -1 && s->retries <= 6 &&
	       s->tos >= -1 && s->tos <= 255 && s->service_level >= -1 && s->service_level <= 15 &&
	       s->gid_index >= -1 && s->gid_index <= 255 &&
	       (s->mtu == 0 || (s->mtu >= 256 && s->mtu <= 4096 && !(s->mtu & (s->mtu - 1)))) &&
	       s->spin_us <= URI_SPIN_MAX_US;
}

/* As many as it says, each with exactly one of path and host; no more. */
static int nodes_valid(const struct uri *uri)
{
	unsigned count = uri->node_count ? uri->node_count : 1;
	struct uri node;

	if (uri->node_count > URI_NODES_MAX || (uri->node_count && !uri->cluster) ||
	    (uri->map_bound_ms && !uri->cluster))
		return 0;
	for (unsigned i = 0; i < count; i++)
		if (uri_node(uri, i, &node) < 0 || !node.path[0] == !node.host[0] ||
		    !node.path[0] != !uri->path[0])
			return 0;
	return uri_node(uri, count, &node) < 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct uri uri;
	char *text = malloc(bytes + 1);

	if (!text)
		return 0;
	memcpy(text, data, bytes);
	text[bytes] = 0;
	/* what was accepted has a pool, exactly one of path and host, and settings in their ranges */
	if (uri_parse(text, &uri) == 0 &&
	    (!uri.pool[0] || !uri.path[0] == !uri.host[0] || !settings_valid(&uri) ||
	     !nodes_valid(&uri)))
		abort();
	free(text);
	return 0;
}
