/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads hw_counters and counters of /sys/class/infiniband when somebody asks, at most once a second, and
 * remembers the last two values of each: their difference is the rate. Main thread; a driver may ask its
 * adapter for these, which takes it some microseconds. Which counters matter is in
 * common/port-counters.c. Next to read: control-rdma.c.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port-stats.h"

#define PORTS_MAX    64u
#define COUNTERS_MAX 64u
#define INTERVAL_NS  1000000000u

struct counter {
	char name[48];
	const struct port_counter *known;
	uint64_t count, before;
	bool has_before;
};

struct port {
	char device[64];
	unsigned number;
	uint64_t read_ns, before_ns; /* 0: not yet */
	size_t count;
	struct counter counters[COUNTERS_MAX];
};

struct port_stats {
	const char *root;
	struct port *ports[PORTS_MAX];
	const struct port *current;
};

struct port_stats *port_stats_create(const char *root)
{
	struct port_stats *stats = calloc(1, sizeof(*stats));

	if (stats)
		stats->root = root;
	return stats;
}

void port_stats_free(struct port_stats *stats)
{
	if (!stats)
		return;
	for (size_t i = 0; i < PORTS_MAX; i++)
		free(stats->ports[i]);
	free(stats);
}

/* NULL: more ports than any machine has, or no memory. */
static struct port *port_get(struct port_stats *stats, const char *device, unsigned number)
{
	for (size_t i = 0; i < PORTS_MAX; i++) {
		struct port *port = stats->ports[i];

		if (!port) {
			port = stats->ports[i] = calloc(1, sizeof(*port));
			if (!port)
				return NULL;
			snprintf(port->device, sizeof(port->device), "%s", device);
			port->number = number;
			return port;
		}
		if (port->number == number && strcmp(port->device, device) == 0)
			return port;
	}
	return NULL;
}

/* What was known of the counter before; a count that has become less has begun anew. */
static void counter_set(struct counter *counter, const struct port *old, uint64_t count)
{
	for (size_t i = 0; i < old->count; i++)
		if (strcmp(old->counters[i].name, counter->name) == 0 && old->counters[i].count <= count) {
			counter->before = old->counters[i].count;
			counter->has_before = true;
		}
	counter->count = count;
}

static void folder_read(const struct port_stats *stats, struct port *port, const struct port *old, const char *folder)
{
	char path[512];
	DIR *directory;

	snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s/ports/%u/%s", stats->root, port->device, port->number,
		 folder);
	directory = opendir(path);
	if (!directory)
		return;
	for (const struct dirent *entry; (entry = readdir(directory)) && port->count < COUNTERS_MAX;) {
		struct counter *counter = &port->counters[port->count];
		char file[800];
		uint64_t count;

		if (strlen(entry->d_name) >= sizeof(counter->name) || !port_counter_find(entry->d_name))
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		if (port_file_number(file, &count) < 0)
			continue;
		*counter = (struct counter){.known = port_counter_find(entry->d_name)};
		strcpy(counter->name, entry->d_name);
		counter_set(counter, old, count);
		port->count++;
	}
	closedir(directory);
}

size_t port_stats_read(struct port_stats *stats, const char *device, unsigned number, uint64_t now_ns)
{
	struct port *port = port_get(stats, device, number);
	struct port *old;

	stats->current = port;
	if (!port)
		return 0;
	if (port->read_ns && now_ns - port->read_ns < INTERVAL_NS)
		return port->count;
	old = malloc(sizeof(*old));
	if (!old)
		return port->count;
	*old = *port;
	port->count = 0;
	port->before_ns = old->read_ns;
	port->read_ns = now_ns;
	folder_read(stats, port, old, "hw_counters");
	folder_read(stats, port, old, "counters");
	free(old);
	return port->count;
}

void port_stats_view(const struct port_stats *stats, size_t i, struct metrics_port_counter *ret_view)
{
	const struct port *port = stats->current;
	const struct counter *counter = &port->counters[i];

	*ret_view = (struct metrics_port_counter){
		.name = counter->name,
		.known = counter->known,
		.count = counter->count,
		.has_rate = counter->has_before && port->before_ns,
	};
	if (ret_view->has_rate)
		ret_view->per_second =
			(double)(counter->count - counter->before) * 1e9 / (double)(port->read_ns - port->before_ns);
}
