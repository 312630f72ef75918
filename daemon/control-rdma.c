/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA in the daemon's answers: devices, listeners, registrations, connections. Main thread;
 * changes nothing. A port's state and the driver's counters are asked for each time, all else is known.
 * control.c puts the parts together.
 */
#include <arpa/inet.h>

#include "clock.h"
#include "control-rdma.h"
#include "device.h"
#include "listen-verbs.h"
#include "metrics-views.h"
#include "metrics.h"
#include "peer-verbs.h"
#include "port-stats.h"
#include "registration.h"

/* ---- devices ---- */

/* The GIDs that listeners are bound to: they belong to their addresses. */
static json_t *gids(const struct rdma *rdma, const struct device *device)
{
	const struct listener_verbs *listener;
	json_t *array = json_array();

	TAILQ_FOREACH (listener, &rdma->listeners, link) {
		const union ibv_gid *gid;
		char text[INET6_ADDRSTRLEN];

		if (listener->device != device || !listener->id)
			continue;
		gid = &listener->id->route.addr.addr.ibaddr.sgid;
		inet_ntop(AF_INET6, gid->raw, text, sizeof(text));
		json_array_append_new(array, json_string(text));
	}
	return array;
}

static json_t *counters(const struct daemon *daemon, const struct device *device)
{
	size_t count = port_stats_read(daemon->port_stats, device->name, device->verbs.port, clock_now_ns());
	struct metrics_port_counter view;
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++) {
		port_stats_view(daemon->port_stats, i, &view);
		json_array_append_new(array, metrics_object(SUBJECT_PORT_COUNTER, &view));
	}
	return array;
}

json_t *control_devices(const struct daemon *daemon)
{
	json_t *array = json_array();
	const struct device *device;

	if (!daemon->rdma)
		return array;
	TAILQ_FOREACH (device, &daemon->rdma->devices, link) {
		struct metrics_device view;
		json_t *object;

		metrics_device_view(device, &view);
		object = metrics_object(SUBJECT_DEVICE, &view);
		json_object_set_new(object, "gids", gids(daemon->rdma, device));
		json_object_set_new(object, "counters", counters(daemon, device));
		json_array_append_new(array, object);
	}
	return array;
}

json_t *control_regions(const struct daemon *daemon, const struct pool *pool)
{
	json_t *array = json_array();
	const struct registration *reg;
	const struct device *device;

	if (!daemon->rdma)
		return array;
	TAILQ_FOREACH (device, &daemon->rdma->devices, link)
		TAILQ_FOREACH (reg, &device->registrations, link)
			if (reg->pool == pool)
				json_array_append_new(array, metrics_object(SUBJECT_REGISTRATION, reg));
	return array;
}

/* ---- listeners ---- */

json_t *control_listeners(const struct daemon *daemon)
{
	json_t *array = json_array();

	for (size_t i = 0; i < daemon->listener_count; i++) {
		struct metrics_listener view = {daemon->listeners[i], listener_verbs_of(daemon->listeners[i])};
		json_t *object = metrics_object(SUBJECT_LISTENER, &view);

		metrics_json_view(object, view.verbs ? SUBJECT_LISTENER_RDMA : SUBJECT_LISTENER_UNIX, &view);
		json_array_append_new(array, object);
	}
	return array;
}

/* ---- connections ---- */

json_t *control_connection(const struct pool_client *client)
{
	if (client->transport != POOL_VERBS || !client->peer)
		return json_null();
	return metrics_object(SUBJECT_CONNECTION, client->peer);
}
