/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.h - RDMA devices that listeners are on: what they report of themselves, and their end
 *
 * A device's context belongs to librdmacm. A device that is gone keeps its struct, for its counters
 * and for when it comes back. Main thread.
 */
#ifndef TARN_DAEMON_DEVICE_H
#define TARN_DAEMON_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rdma.h"
#include "verbs.h"

struct registration;

struct device_counters {
	uint64_t events; /* asynchronous ones, of all kinds */
	uint64_t port_errors, port_changes, gid_changes, queue_errors, fatal;
	uint64_t removed; /* how often the device has gone away */
};

struct device {
	TAILQ_ENTRY(device) link;
	struct rdma *rdma;
	char name[IBV_SYSFS_NAME_MAX];
	struct verbs_device verbs; /* verbs.context NULL: the device is gone */
	struct event *async;
	TAILQ_HEAD(, registration) registrations;
	unsigned busy;        /* threads that register memory with it, or end that */
	unsigned registering; /* of them, those of pools; the others are of regions, of pools that are opened */
	bool held;     /* verbs_context_release() is owed */
	bool lost;     /* gone or broken: the sweep takes apart what is on it */
	bool port_down;
	/*
	 * Ids of connections that have ended while the port was down. To destroy one sends a
	 * message, and rxe's queue pair for those never recovers from one that can not be sent.
	 */
	struct rdma_cm_id **parked;
	size_t parked_count, parked_room;
	struct device_counters counters;
};

/* The device of a bound id. 0, or a negative code with a text. */
int device_get(struct rdma *rdma, struct rdma_cm_id *id, struct device **ret_device);
void device_free(struct device *device);
/* Destroys an id of the device, now or when its port is up. */
void device_id_destroy(struct device *device, struct rdma_cm_id *id, bool connected);
/* Its connections and registrations end in the sweep; listeners try again until it is back. */
void device_lose(struct device *device, const char *why);
/* The sweep's part of that. */
void device_take_apart(struct device *device);

#endif
