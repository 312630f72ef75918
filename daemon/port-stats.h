/* SPDX-License-Identifier: BSD-2-Clause */
/* port-stats.h - the driver's counters of trouble of the devices' ports, and how fast they grow */
#ifndef TARN_DAEMON_PORT_STATS_H
#define TARN_DAEMON_PORT_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "metrics-views.h"

struct port_stats;

/* `root` is in front of /sys; "" for the real one. NULL without memory. */
struct port_stats *port_stats_create(const char *root);
void port_stats_free(struct port_stats *stats);
/*
 * Reads the counters of this port, unless that was done within the last second. Returns how many there
 * are; a port without any, or that is gone, has none.
 */
size_t port_stats_read(struct port_stats *stats, const char *device, unsigned port, uint64_t now_ns);
/* The i-th of the port that was read last. */
void port_stats_view(const struct port_stats *stats, size_t i, struct metrics_port_counter *ret_view);

#endif
