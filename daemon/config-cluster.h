/* SPDX-License-Identifier: BSD-2-Clause */
/* config-cluster.h - what [cluster] says, beyond single values */
#ifndef TARN_DAEMON_CONFIG_CLUSTER_H
#define TARN_DAEMON_CONFIG_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"

#define CONFIG_ENDPOINTS_MAX 16u
#define CONFIG_ETCD_PORT     2379u

struct config_endpoint {
	bool tls;
	char host[256]; /* name or address, without brackets */
	uint16_t port;
};

/*
 * The i-th of etcd_endpoints. 0; -ENOENT: there are no more; -EINVAL with a text. Without a scheme it is http. Asks
 * nobody.
 */
int config_endpoint(const struct config_cluster *cluster, size_t i, struct config_endpoint *ret_endpoint);
/* This member's name: `member`, or the host's. 0, or -EINVAL with a text: the host's can not be one. */
int config_member_name(const struct config_cluster *cluster, char ret_name[CONFIG_NAME_MAX + 1]);
/* The pool that belongs to the cluster; NULL: there is no cluster, or not just one such pool. */
const struct config_pool *config_cluster_pool(const struct config *config);

/* For config-check.c: all that can be wrong between the keys of [cluster]. */
void config_cluster_check(const struct config *config, struct config_errors *errors);
/* For config-env.c: what is allowed but perhaps not meant. */
void config_cluster_notices(const struct config *config, struct config_errors *notices);

#endif
