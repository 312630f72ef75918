/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The event channel of rdma_cm, the timer and the sweep of all RDMA listeners; see rdma.h. Main
 * thread, never blocking. An event is copied and acknowledged, once, before anybody sees it: what
 * handles it may then destroy the id that it is about. Next: listen-verbs.c and peer-verbs.c, which
 * get the events; device.c.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "err.h"
#include "listen-verbs.h"
#include "peer-verbs.h"
#include "registration.h"
#include "verbs.h"

#define RENEW_MS 2000
#define SWEEP_NS 5000000u
#define BATCH    64 /* events before others get their turn */

const char *rdma_address_text(const struct sockaddr *address, char *buffer, size_t bytes)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							  : sizeof(struct sockaddr_in);

	if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(buffer, bytes, "?");
	else
		snprintf(buffer, bytes, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
			 port);
	return buffer;
}

/* ---- events ---- */

static void dispatch(const struct rdma_cm_event *event)
{
	/* The id of a connect request is new: it is the listener's affair. */
	struct rdma_cm_id *id =
		event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
	struct rdma_target *target = id->context;

	if (target)
		target->on_event(target, event);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct rdma *rdma = arg;
	struct rdma_cm_event *event, copy;
	uint8_t bytes[256];

	(void)fd;
	(void)what;
	for (int i = 0; i < BATCH && rdma_get_cm_event(rdma->channel, &event) == 0; i++) {
		copy = *event;
		if (copy.param.conn.private_data && copy.param.conn.private_data_len) {
			memcpy(bytes, copy.param.conn.private_data,
			       copy.param.conn.private_data_len);
			copy.param.conn.private_data = bytes;
		}
		rdma_ack_cm_event(event);
		dispatch(&copy);
	}
}

/* ---- the sweep ---- */

static void self_check(struct device *device)
{
	struct registration *reg;

	TAILQ_FOREACH (reg, &device->registrations, link) {
		if (!reg->opened || !reg->pool->self_lost)
			continue;
		registration_fence(reg, "the daemon's own connection has failed");
		registration_self_try(reg);
	}
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct rdma *rdma = arg;
	struct device *device;
	struct peer_verbs *peer;
	uint64_t began = clock_now_ns();

	(void)fd;
	(void)what;
	TAILQ_FOREACH (device, &rdma->devices, link)
		self_check(device);
	TAILQ_FOREACH (device, &rdma->devices, link)
		if (device->lost)
			device_take_apart(device);
	/* Each end walks over the pool's page table: others want their turn when many die at once. */
	while ((peer = TAILQ_FIRST(&rdma->closing))) {
		peer_verbs_finish(peer);
		if (clock_now_ns() - began > SWEEP_NS) {
			/* by the timer: an event that is activated here comes before all others */
			event_add(rdma->sweep, &(struct timeval){0});
			return;
		}
	}
}

void rdma_sweep_soon(struct rdma *rdma)
{
	event_active(rdma->sweep, EV_TIMEOUT, 0);
}

/* ---- the timers ---- */

void rdma_renew_soon(struct rdma *rdma, int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};

	event_add(rdma->renew, &tv);
}

static void on_renew(evutil_socket_t fd, short what, void *arg)
{
	struct rdma *rdma = arg;
	struct registration *reg;
	struct device *device;

	(void)fd;
	(void)what;
	/* The sweep, if pool->self was lost while no client was there. */
	rdma_sweep_soon(rdma);
	TAILQ_FOREACH (device, &rdma->devices, link) {
		TAILQ_FOREACH (reg, &device->registrations, link) {
			if (reg->opened && !reg->ready && !device->lost)
				registration_self_try(reg);
			if (reg->pool->geometry.atomics == LAYOUT_ATOMICS_NIC)
				rdma_renew_soon(rdma, RENEW_MS);
		}
	}
}

void rdma_tick_start(struct rdma *rdma)
{
	struct timeval tv = {.tv_usec = RDMA_TICK_MS * 1000};

	if (!evtimer_pending(rdma->tick, NULL))
		event_add(rdma->tick, &tv);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct rdma *rdma = arg;
	struct listener_verbs *listener;
	struct registration *reg;
	struct device *device;
	uint64_t now = clock_now_ns();
	bool any = false;

	(void)fd;
	(void)what;
	rdma->ticks++;
	TAILQ_FOREACH (device, &rdma->devices, link)
		TAILQ_FOREACH (reg, &device->registrations, link)
			if (reg->pool->self_lost)
				rdma_sweep_soon(rdma);
	TAILQ_FOREACH (listener, &rdma->listeners, link) {
		struct peer_verbs *peer;

		TAILQ_FOREACH (peer, &listener->peers, link) {
			peer_verbs_tick(peer, now, rdma->ticks);
			any = true;
		}
	}
	if (any)
		rdma_tick_start(rdma);
}

/* ---- making it ---- */

static int no_channel(int error)
{
	int rc = verbs_available();

	if (rc < 0)
		return rc;
	return err_set(
		-error,
		"no RDMA event channel: %s: is the module rdma_ucm loaded (`modprobe rdma_ucm`), "
		"and may tarnd open /dev/infiniband/rdma_cm?",
		strerrordesc_np(error));
}

static void channel_close(struct rdma *rdma)
{
	if (rdma->readable)
		event_free(rdma->readable);
	if (rdma->channel)
		rdma_destroy_event_channel(rdma->channel);
	rdma->readable = NULL;
	rdma->channel = NULL;
}

static int channel_watch(struct rdma *rdma)
{
	rdma->readable = event_new(rdma->daemon->base, rdma->channel->fd, EV_READ | EV_PERSIST,
				   on_readable, rdma);
	if (!rdma->readable || event_add(rdma->readable, NULL) < 0)
		return err_set(-ENOMEM, "out of memory");
	return 0;
}

int rdma_channel_open(struct rdma *rdma)
{
	int rc;

	if (rdma->channel)
		return 0;
	rdma->channel = rdma_create_event_channel();
	if (!rdma->channel)
		return no_channel(errno);
	rc = evutil_make_socket_nonblocking(rdma->channel->fd) < 0
		     ? err_set(-EIO, "the RDMA event channel can not be made nonblocking")
		     : channel_watch(rdma);
	if (rc < 0)
		channel_close(rdma); /* one that nobody reads would be taken for a good one */
	return rc;
}

int rdma_create(struct daemon *daemon, struct rdma **ret_rdma)
{
	struct rdma *rdma = calloc(1, sizeof(*rdma));

	if (!rdma)
		return err_set(-ENOMEM, "out of memory");
	rdma->daemon = daemon;
	TAILQ_INIT(&rdma->devices);
	TAILQ_INIT(&rdma->listeners);
	TAILQ_INIT(&rdma->closing);
	rdma->sweep = evtimer_new(daemon->base, on_sweep, rdma);
	rdma->tick = evtimer_new(daemon->base, on_tick, rdma);
	rdma->renew = evtimer_new(daemon->base, on_renew, rdma);
	if (!rdma->sweep || !rdma->tick || !rdma->renew) {
		rdma_free(rdma);
		return err_set(-ENOMEM, "out of memory");
	}
	*ret_rdma = rdma;
	return 0;
}

void rdma_free(struct rdma *rdma)
{
	struct peer_verbs *peer;
	struct device *device;

	if (!rdma)
		return;
	while ((peer = TAILQ_FIRST(&rdma->closing))) /* of listeners that were removed */
		peer_verbs_finish(peer);
	while ((device = TAILQ_FIRST(&rdma->devices)))
		device_free(device);
	if (rdma->sweep)
		event_free(rdma->sweep);
	if (rdma->tick)
		event_free(rdma->tick);
	if (rdma->renew)
		event_free(rdma->renew);
	channel_close(rdma);
	free(rdma);
}
