/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * metrics-views.h - what the values of metrics.def come from, a struct per subject
 *
 * Other subjects have views of their own: OPERATIONS struct layout_telemetry, EVICTION struct
 * evict_stats, WAITER struct sweep_stats, ACCESS_KEY struct quota_stats, CONNECTION struct peer_verbs,
 * REGISTRATION struct registration, CLUSTER struct member_stats, EVENT struct event_entry, HTTP struct http_stats, PROCESS struct
 * process_stats. Views are made for one answer and not kept.
 */
#ifndef TARN_DAEMON_METRICS_VIEWS_H
#define TARN_DAEMON_METRICS_VIEWS_H

#include "member.h"
#include "daemon.h"
#include "device.h"
#include "keeper.h"
#include "listen-verbs.h"
#include "pool.h"
#include "port-counters.h"
#include "region.h"

struct metrics_daemon {
	const struct daemon *daemon;
	uint64_t now_ns;
	bool ready;
};

struct metrics_event_kind {
	uint64_t count;
};

struct metrics_pool {
	const struct pool *pool;
	struct pool_pages pages;
	struct keeper_stats keeper;
	struct layout_telemetry operations; /* of live clients and ended ones */
	uint64_t reporting, silent;         /* live ones */
};

struct metrics_class {
	uint32_t class;
	const uint64_t *pages; /* by state */
	const struct recycle_blocks *blocks;
};

struct metrics_client {
	const struct pool *pool;
	const struct pool_client *known;
	uint32_t slot;
	bool reporting;
	char key_id[WIRE_KEY_ID_BYTES + 1];
	struct layout_telemetry telemetry;
};

struct metrics_listener {
	const struct listener *listener;
	const struct listener_verbs *verbs; /* NULL: a unix socket */
};

struct metrics_device {
	const struct device *device;
	bool has_port;
	struct ibv_port_attr port;
	uint64_t registered_bytes, regions, connections, queue_pairs, messages, probes;
	bool shared;
};

struct metrics_port_counter {
	const char *name;
	const struct port_counter *known;
	uint64_t count;
	bool has_rate;
	double per_second;
};

void metrics_daemon_view(const struct daemon *daemon, struct metrics_daemon *ret_view);
/* Goes through the page table. */
void metrics_pool_view(const struct pool *pool, uint64_t now_ns, struct metrics_pool *ret_view);
void metrics_client_view(const struct pool *pool, uint32_t slot, struct metrics_client *ret_view);
/* Asks the device for its port. */
void metrics_device_view(const struct device *device, struct metrics_device *ret_view);
/* Has the class a page? */
bool metrics_class_view(const struct metrics_pool *pool, uint32_t class, struct metrics_class *ret_view);

/* Words for what is a number in the views. */
uint64_t metrics_used_bytes(const struct metrics_pool *pool);
uint64_t metrics_reserved_bytes(const struct metrics_pool *pool);
const char *metrics_sweep_state(enum sweep_state state);
const char *metrics_listener_state(enum listener_verbs_state state);
const char *metrics_transport(const struct verbs_device *device);
const char *metrics_atomics(enum ibv_atomic_cap cap);

#endif
