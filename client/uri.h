/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uri.h - inside of libtarn: where a pool is, as text
 *
 *	tarn:PATH?pool=NAME[&key=FILE][&readonly=0|1][&timeout=MS][&spin=US]
 *	tarn://HOST[:PORT]/POOL[?key=...]      HOST may be [v6] or [v6]:PORT
 *	tarn:PATH,PATH?pool=NAME, tarn://HOST,HOST/POOL   some members of a cluster; a comma behind one says so, too
 * and of a host only: source, ack_timeout, retries, tos, sl, gid, mtu (tarn.h, "URIs").
 */
#ifndef TARN_URI_H
#define TARN_URI_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric.h"
#include "wire.h"

#define URI_PATH_MAX 4096u
#define URI_HOST_MAX 256u
#define URI_NODES_MAX 64u
/* longest time that a wait may spin, microseconds */
#define URI_SPIN_MAX_US 1000000u

struct uri {
	char path[URI_PATH_MAX]; /* of the unix socket; "" when it is a host */
	char host[URI_HOST_MAX];
	uint16_t port; /* 0: not given */
	char pool[WIRE_POOL_NAME_MAX + 1];
	char key_file[URI_PATH_MAX]; /* "" when not given */
	bool read_only;
	uint32_t timeout_ms;       /* 0: not given */
	/* of a cluster: the nodes as they were written, of which the first is path or host; node_count 0: of none */
	char nodes[URI_PATH_MAX];
	unsigned node_count;
	bool cluster;          /* node_count is not 0, or cluster=1 */
	uint32_t map_bound_ms; /* 0: not given */
	char source[URI_HOST_MAX]; /* local address; "" when not given */
	/* what is not given is as in FABRIC_SETTINGS_INIT */
	struct fabric_settings settings;
};

/* 0, or -TARN_EURI with a text that names what is wrong. */
int uri_parse(const char *text, struct uri *ret_uri);
/* The same with the i-th of its nodes as path or host. 0, or -ENOENT: there are no more. */
int uri_node(const struct uri *uri, unsigned i, struct uri *ret_uri);
/* Sets host and port, or path, of an address: HOST[:PORT], [v6][:PORT]. 0 or -TARN_EURI with a text. */
int uri_set_host(struct uri *uri, const char *address);
int uri_set_path(struct uri *uri, const char *path);

#endif
