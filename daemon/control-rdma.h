/* SPDX-License-Identifier: BSD-2-Clause */
/* control-rdma.h - the parts of control.c's answers that are about RDMA devices, listeners and
 * connections */
#ifndef TARN_DAEMON_CONTROL_RDMA_H
#define TARN_DAEMON_CONTROL_RDMA_H

#include <jansson.h>

#include "daemon.h"
#include "pool.h"

/* Arrays: one object for each device that a listener is, or was, on; one for each listener. */
json_t *control_devices(const struct daemon *daemon);
json_t *control_listeners(const struct daemon *daemon);
/* How many regions the pool has on each device: an array. */
json_t *control_regions(const struct daemon *daemon, const struct pool *pool);
/* What a client's connection is: an object, or null for shared memory. */
json_t *control_connection(const struct pool_client *client);

#endif
