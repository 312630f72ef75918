/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All rows of the daemon, for Prometheus: the daemon, its pools with their sizes of blocks, listeners,
 * devices. Clients have none: their labels would have no bound. Main thread; one look at each pool's page
 * table and client table. Next to read: metrics-text.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "events.h"
#include "http.h"
#include "listen-verbs.h"
#include "metrics-views.h"
#include "metrics.h"
#include "port-stats.h"
#include "process-stats.h"
#include "registration.h"

/* Grows; views of histograms are kept until the text is written. */
struct rows {
	struct metrics_row *rows;
	size_t count, room;
	struct layout_telemetry *operations; /* of the pools */
	bool failed;
};

/* NULL without memory. */
static struct metrics_row *add(struct rows *rows, enum metrics_subject subject, const void *view)
{
	if (rows->count == rows->room) {
		size_t room = rows->room ? 2 * rows->room : 16;
		struct metrics_row *grown = realloc(rows->rows, room * sizeof(*grown));

		if (!grown) {
			rows->failed = true;
			return NULL;
		}
		rows->rows = grown;
		rows->room = room;
	}
	metrics_fill(&rows->rows[rows->count], subject, view);
	return &rows->rows[rows->count++];
}

static void add_labelled(struct rows *rows, enum metrics_subject subject, const void *view, const char *name,
			 const char *value)
{
	struct metrics_row *row = add(rows, subject, view);

	if (row)
		metrics_label(row, name, value);
}

static void add_daemon(struct rows *rows, const struct daemon *daemon)
{
	struct process_stats process;
	struct metrics_daemon view;

	metrics_daemon_view(daemon, &view);
	add_labelled(rows, SUBJECT_BUILD, &view, "version", PACKAGE_VERSION);
	add(rows, SUBJECT_HEAD, &view);
	add(rows, SUBJECT_DAEMON, &view);
	for (int kind = 0; kind < EVENT_KINDS; kind++) {
		struct metrics_event_kind events = {events_count(daemon->events, (enum event_kind)kind)};

		add_labelled(rows, SUBJECT_EVENT_KIND, &events, "kind", events_kind_name((enum event_kind)kind));
	}
	if (daemon->http)
		add(rows, SUBJECT_HTTP, http_stats(daemon->http));
	process_stats_get(&process);
	add(rows, SUBJECT_PROCESS, &process);
}

static void add_cluster(struct rows *rows, const struct member *member)
{
	struct member_stats stats;
	struct metrics_row *row;

	if (!member)
		return;
	member_get_stats(member, &stats);
	row = add(rows, SUBJECT_CLUSTER, &stats);
	if (!row)
		return;
	metrics_label(row, "cluster", stats.map->cluster);
	metrics_label(row, "member", stats.member);
}

static void add_classes(struct rows *rows, const struct metrics_pool *pool)
{
	struct metrics_class view;
	struct metrics_row *row;
	char size[24];

	for (uint32_t class = 0; class < LAYOUT_CLASSES; class ++) {
		if (!metrics_class_view(pool, class, &view))
			continue;
		row = add(rows, SUBJECT_CLASS, &view);
		if (!row)
			return;
		snprintf(size, sizeof(size), "%u", (unsigned)layout_class_bytes(class));
		metrics_label(row, "pool", pool->pool->name);
		metrics_label(row, "block_bytes", size);
		metrics_label(row, "counters", layout_class_is_counter(class) ? "yes" : "no");
	}
}

static void add_pool(struct rows *rows, const struct pool *pool, struct layout_telemetry *operations)
{
	struct metrics_pool view;

	metrics_pool_view(pool, clock_now_ns(), &view);
	*operations = view.operations;
	add_labelled(rows, SUBJECT_POOL_HEAD, &view, "pool", pool->name);
	add_labelled(rows, SUBJECT_POOL, &view, "pool", pool->name);
	add_labelled(rows, SUBJECT_OPERATIONS, operations, "pool", pool->name);
	if (pool->geometry.mode == LAYOUT_MODE_CACHE)
		add_labelled(rows, SUBJECT_EVICTION, &view.keeper.evict, "pool", pool->name);
	add_classes(rows, &view);
}

static void add_listeners(struct rows *rows, const struct daemon *daemon)
{
	for (size_t i = 0; i < daemon->listener_count; i++) {
		struct metrics_listener view = {daemon->listeners[i], listener_verbs_of(daemon->listeners[i])};
		const char *name = view.listener->config->name;

		add_labelled(rows, SUBJECT_LISTENER, &view, "listener", name);
		if (view.verbs)
			add_labelled(rows, SUBJECT_LISTENER_RDMA, &view, "listener", name);
	}
}

static void add_port(struct rows *rows, const struct daemon *daemon, const struct device *device)
{
	size_t count = port_stats_read(daemon->port_stats, device->name, device->verbs.port, clock_now_ns());
	struct metrics_port_counter counter;
	struct metrics_row *row;

	for (size_t i = 0; i < count; i++) {
		port_stats_view(daemon->port_stats, i, &counter);
		row = add(rows, SUBJECT_PORT_COUNTER, &counter);
		if (!row)
			return;
		metrics_label(row, "device", device->name);
		metrics_label(row, "counter", counter.name);
	}
}

static void add_device(struct rows *rows, const struct daemon *daemon, const struct device *device)
{
	const struct registration *reg;
	struct metrics_device view;
	struct metrics_row *row;

	metrics_device_view(device, &view);
	add_labelled(rows, SUBJECT_DEVICE, &view, "device", device->name);
	add_port(rows, daemon, device);
	TAILQ_FOREACH (reg, &device->registrations, link) {
		row = add(rows, SUBJECT_REGISTRATION, reg);
		if (!row)
			return;
		metrics_label(row, "device", device->name);
		metrics_label(row, "pool", reg->pool->name);
	}
}

int metrics_scrape(struct daemon *daemon, enum metrics_format format, struct evbuffer *to)
{
	struct rows rows = {.operations = calloc(daemon->pool_count + 1, sizeof(struct layout_telemetry))};
	const struct device *device;
	int rc = -ENOMEM;

	rows.failed = !rows.operations;
	if (!rows.failed)
		add_daemon(&rows, daemon);
	if (!rows.failed)
		add_cluster(&rows, daemon->member);
	for (size_t i = 0; i < daemon->pool_count && !rows.failed; i++)
		add_pool(&rows, daemon->pools[i], &rows.operations[i]);
	if (!rows.failed)
		add_listeners(&rows, daemon);
	if (daemon->rdma && !rows.failed)
		TAILQ_FOREACH (device, &daemon->rdma->devices, link)
			add_device(&rows, daemon, device);
	if (!rows.failed)
		rc = metrics_text(to, format, rows.rows, rows.count);
	free(rows.operations);
	free(rows.rows);
	return rc;
}
