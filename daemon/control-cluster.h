/* SPDX-License-Identifier: BSD-2-Clause */
/* control-cluster.h - answers about the cluster; for control.c */
#ifndef TARN_DAEMON_CONTROL_CLUSTER_H
#define TARN_DAEMON_CONTROL_CLUSTER_H

#include <jansson.h>

#include "member.h"

/* How this member sees its cluster; null without one. */
json_t *control_cluster(const struct member *member);
/* The same, and its members: none without a cluster. */
void control_members(const struct member *member, json_t *answer);
/* The whole answer to {"get": "map"}, which the caller frees; NULL: no memory. */
char *control_map(const struct member *member);

#endif
