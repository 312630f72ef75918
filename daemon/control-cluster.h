/* SPDX-License-Identifier: BSD-2-Clause */
/* control-cluster.h - answers about the cluster; for control.c */
#ifndef TARN_DAEMON_CONTROL_CLUSTER_H
#define TARN_DAEMON_CONTROL_CLUSTER_H

#include <stdint.h>

#include <jansson.h>

#include "member.h"

/* How this member sees its cluster; null without one. */
json_t *control_cluster(const struct member *member);
/* The same, and its members: none without a cluster. */
void control_members(const struct member *member, json_t *answer);
/* The whole answer to {"get": "map"}, which the caller frees; NULL: no memory. */
char *control_map(const struct member *member);
/*
 * {"do": "drain" | "undrain" | "forget" | "rebalance", "member": NAME, "dry_run": true} asks for a change of the map; {"wish":
 * NUMBER} how far that is. Sets "wish" in the answer; or returns a sentence that says why not, and in *ret_name the code's
 * name. To change something is root's right, and that of the daemon's own user.
 */
const char *control_wish(struct member *member, uint32_t uid, const json_t *asked, json_t *answer, const char **ret_name);

#endif
