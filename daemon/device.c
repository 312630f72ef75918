/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA devices: their asynchronous events in the libevent loop, each acknowledged exactly once, and
 * what happens when a device goes away. Main thread. The memory of the pools outlives it: only its
 * registrations go. librdmacm owns the context, and lets go of a dead one when it looks at the list
 * of devices; until then some kernels make the device's removal wait. Next: listen-verbs.c, which
 * comes back when the device does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"
#include "device.h"
#include "err.h"
#include "events.h"
#include "listen-verbs.h"
#include "peer-verbs.h"
#include "registration.h"
#include "self.h"

/* ---- asynchronous events ---- */

enum action {
	ACTION_COUNT,  /* worth a line, and nothing to do */
	ACTION_QP,     /* a client's queue pair */
	ACTION_QUEUES, /* queues of a registration: all on it have to connect again */
	ACTION_PORT,   /* listeners look whether all is as it was */
	ACTION_LOSE,
	ACTION_QUIET
};

static const struct reaction {
	enum action action;
	int level; /* enum log_level */
} reactions[] = {
	[IBV_EVENT_CQ_ERR] = {ACTION_QUEUES, LOG_LEVEL_ERROR},
	[IBV_EVENT_QP_FATAL] = {ACTION_QP, LOG_LEVEL_ERROR},
	[IBV_EVENT_QP_REQ_ERR] = {ACTION_QP, LOG_LEVEL_WARNING},
	[IBV_EVENT_QP_ACCESS_ERR] = {ACTION_QP, LOG_LEVEL_WARNING},
	[IBV_EVENT_COMM_EST] = {ACTION_QP, LOG_LEVEL_DEBUG},
	[IBV_EVENT_SQ_DRAINED] = {ACTION_QUIET, LOG_LEVEL_DEBUG},
	[IBV_EVENT_PATH_MIG] = {ACTION_COUNT, LOG_LEVEL_NOTICE},
	[IBV_EVENT_PATH_MIG_ERR] = {ACTION_QP, LOG_LEVEL_WARNING},
	[IBV_EVENT_DEVICE_FATAL] = {ACTION_LOSE, LOG_LEVEL_ERROR},
	[IBV_EVENT_PORT_ACTIVE] = {ACTION_PORT, LOG_LEVEL_NOTICE},
	[IBV_EVENT_PORT_ERR] = {ACTION_PORT, LOG_LEVEL_ERROR},
	[IBV_EVENT_LID_CHANGE] = {ACTION_PORT, LOG_LEVEL_WARNING},
	[IBV_EVENT_PKEY_CHANGE] = {ACTION_COUNT, LOG_LEVEL_WARNING},
	[IBV_EVENT_SM_CHANGE] = {ACTION_COUNT, LOG_LEVEL_NOTICE},
	[IBV_EVENT_SRQ_ERR] = {ACTION_QUEUES, LOG_LEVEL_ERROR},
	[IBV_EVENT_SRQ_LIMIT_REACHED] = {ACTION_COUNT, LOG_LEVEL_WARNING},
	[IBV_EVENT_QP_LAST_WQE_REACHED] = {ACTION_QUIET, LOG_LEVEL_DEBUG},
	[IBV_EVENT_CLIENT_REREGISTER] = {ACTION_PORT, LOG_LEVEL_NOTICE},
	[IBV_EVENT_GID_CHANGE] = {ACTION_PORT, LOG_LEVEL_NOTICE},
	[IBV_EVENT_WQ_FATAL] = {ACTION_COUNT, LOG_LEVEL_ERROR},
};
#define REACTIONS ((int)(sizeof(reactions) / sizeof(reactions[0])))

static bool about_port(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
	       type == IBV_EVENT_LID_CHANGE || type == IBV_EVENT_PKEY_CHANGE ||
	       type == IBV_EVENT_SM_CHANGE || type == IBV_EVENT_CLIENT_REREGISTER ||
	       type == IBV_EVENT_GID_CHANGE;
}

static void count(struct device *device, enum ibv_event_type type)
{
	struct device_counters *c = &device->counters;

	c->events++;
	if (type == IBV_EVENT_PORT_ERR)
		c->port_errors++;
	else if (type == IBV_EVENT_GID_CHANGE)
		c->gid_changes++;
	else if (about_port(type))
		c->port_changes++;
	else if (type == IBV_EVENT_DEVICE_FATAL)
		c->fatal++;
	else if (type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR ||
		 type == IBV_EVENT_QP_FATAL)
		c->queue_errors++;
}

/* The element is alive: it can not be destroyed before its event is acknowledged. */
static struct peer_verbs *peer_of(struct device *device, uint32_t qp_num)
{
	struct registration *reg;
	struct peer_verbs *peer = NULL;

	TAILQ_FOREACH (reg, &device->registrations, link)
		if ((peer = registration_peer_find(reg, qp_num)))
			break;
	return peer;
}

static void look_all(struct device *device)
{
	struct listener_verbs *listener;
	struct registration *reg;

	/* Is the address gone that a pool's connection to itself was made with? */
	TAILQ_FOREACH (reg, &device->registrations, link)
		if (reg->ready && !device->port_down)
			(void)self_flush(reg->pool);

	/* also those that are down: it may be their address that has come */
	TAILQ_FOREACH (listener, &device->rdma->listeners, link)
		if (!listener->device || listener->device == device)
			listener_verbs_look(listener);
	rdma_sweep_soon(device->rdma);
}

static void id_destroy(struct device *device, struct rdma_cm_id *id)
{
	if (rdma_destroy_id(id) != 0)
		log_error(device->rdma->daemon->log,
			  "%s: a connection's id can not be destroyed: %s", device->name,
			  strerrordesc_np(errno));
}

static void parked_destroy(struct device *device)
{
	for (size_t i = 0; i < device->parked_count; i++)
		id_destroy(device, device->parked[i]);
	free(device->parked);
	device->parked = NULL;
	device->parked_count = device->parked_room = 0;
}

static bool park(struct device *device, struct rdma_cm_id *id)
{
	size_t room = device->parked_room ? 2 * device->parked_room : 16;
	struct rdma_cm_id **more;

	if (device->parked_count == device->parked_room) {
		more = realloc(device->parked, room * sizeof(*more));
		if (!more)
			return false;
		device->parked = more;
		device->parked_room = room;
	}
	id->context = NULL; /* nobody is behind it any more */
	device->parked[device->parked_count++] = id;
	return true;
}

void device_id_destroy(struct device *device, struct rdma_cm_id *id, bool connected)
{
	if (connected && device->port_down && !device->lost && park(device, id))
		return;
	id_destroy(device, id);
}

static void port_up(struct device *device)
{
	device->port_down = false;
	parked_destroy(device);
	rdma_renew_soon(device->rdma, 100);
}

static void react(struct device *device, const struct ibv_async_event *event)
{
	const struct log *log = device->rdma->daemon->log;
	struct reaction reaction = {ACTION_COUNT, LOG_LEVEL_NOTICE};
	struct peer_verbs *peer;

	if ((int)event->event_type < REACTIONS)
		reaction = reactions[event->event_type];
	count(device, event->event_type);
	/* an adapter's other port is not ours */
	if (event->event_type == IBV_EVENT_PORT_ERR &&
	    event->element.port_num == device->verbs.port)
		device->port_down = true;
	else if (event->event_type == IBV_EVENT_PORT_ACTIVE &&
		 event->element.port_num == device->verbs.port)
		port_up(device);
	if (reaction.action == ACTION_QP) {
		peer = peer_of(device, event->element.qp->qp_num);
		if (peer) {
			peer_verbs_async(peer, event->event_type);
			return;
		}
	}
	if (reaction.level < LOG_LEVEL_DEBUG && daemon_may_log(device->rdma->daemon)) {
		if (about_port(event->event_type))
			log_at(log, (enum log_level)reaction.level, "%s port %d: %s", device->name,
			       event->element.port_num, verbs_async_text(event->event_type));
		else
			log_at(log, (enum log_level)reaction.level, "%s: %s", device->name,
			       verbs_async_text(event->event_type));
	}
	if (reaction.action == ACTION_PORT)
		look_all(device);
	else if (reaction.action == ACTION_QUEUES)
		device_lose(device, "its queues have failed");
	else if (reaction.action == ACTION_LOSE)
		device_lose(device, "the device is gone or has failed");
}

static void on_async(evutil_socket_t fd, short what, void *arg)
{
	struct device *device = arg;
	struct ibv_async_event event;

	(void)fd;
	(void)what;
	while (device->verbs.context && ibv_get_async_event(device->verbs.context, &event) == 0) {
		react(device, &event);
		ibv_ack_async_event(&event);
	}
}

/* ---- coming and going ---- */

/* Takes a context into use. */
static int device_open(struct device *device, struct rdma_cm_id *id)
{
	struct daemon *daemon = device->rdma->daemon;
	int rc = verbs_device_query(id->verbs, id->port_num, &device->verbs);

	if (rc < 0)
		return rc;
	device->verbs.name = device->name;
	device->async = NULL;
	if (evutil_make_socket_nonblocking(id->verbs->async_fd) == 0)
		device->async = event_new(daemon->base, id->verbs->async_fd, EV_READ | EV_PERSIST,
					  on_async, device);
	if (!device->async || event_add(device->async, NULL) < 0) {
		if (device->async)
			event_free(device->async);
		device->async = NULL;
		device->verbs.context = NULL;
		return err_set(-ENOMEM, "out of memory");
	}
	device->held = verbs_context_hold(&device->verbs);
	device->lost = false;
	device->port_down = device->verbs.port_attr.state != IBV_PORT_ACTIVE;
	return 0;
}

static struct device *device_new(struct rdma *rdma, const char *name)
{
	struct device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	device->rdma = rdma;
	strncpy(device->name, name, sizeof(device->name) - 1);
	device->verbs.name = device->name;
	TAILQ_INIT(&device->registrations);
	TAILQ_INSERT_TAIL(&rdma->devices, device, link);
	return device;
}

int device_get(struct rdma *rdma, struct rdma_cm_id *id, struct device **ret_device)
{
	const char *name = ibv_get_device_name(id->verbs->device);
	struct device *device, *dead = NULL;
	int rc;

	TAILQ_FOREACH (device, &rdma->devices, link) {
		if (device->verbs.context == id->verbs && !device->lost) {
			*ret_device = device;
			return 0;
		}
		if (strcmp(device->name, name) == 0)
			dead = device;
	}
	if (dead && dead->verbs.context)
		return err_set(-EBUSY, "%s is being taken apart", name);
	device = dead ? dead : device_new(rdma, name);
	if (!device)
		return err_set(-ENOMEM, "out of memory");
	rc = device_open(device, id);
	if (rc < 0) {
		device->verbs.context = NULL;
		return rc;
	}
	if (dead)
		events_tell(rdma->daemon->events, EVENT_device_back, EVENT_FIELDS(.device = name),
			    "%s is there again", name);
	*ret_device = device;
	return 0;
}

static void device_close(struct device *device)
{
	struct registration *reg;

	parked_destroy(device);
	while ((reg = TAILQ_FIRST(&device->registrations)))
		registration_free(reg);
	if (device->async)
		event_free(device->async);
	device->async = NULL;
	if (device->held)
		verbs_context_release(device->verbs.context);
	device->held = false;
	device->verbs.context = NULL;
}

void device_free(struct device *device)
{
	device_close(device);
	TAILQ_REMOVE(&device->rdma->devices, device, link);
	free(device);
}

void device_lose(struct device *device, const char *why)
{
	if (device->lost || !device->verbs.context)
		return;
	device->lost = true;
	device->counters.removed++;
	events_tell(device->rdma->daemon->events, EVENT_device_gone,
		    EVENT_FIELDS(.device = device->name),
		    "%s: %s: its connections end, its memory is released; pools go on, and it is "
		    "tried again every 2 s",
		    device->name, why);
	rdma_sweep_soon(device->rdma);
}

/* Lets librdmacm close what is dead. */
static void contexts_release(void)
{
	struct ibv_context **list = rdma_get_devices(NULL);

	if (list)
		rdma_free_devices(list);
}

void device_take_apart(struct device *device)
{
	struct listener_verbs *listener;
	struct registration *reg;
	struct peer_verbs *peer;

	if (device->busy) /* the thread's end calls for the sweep again */
		return;
	/*
	 * First nobody reaches the memory any more, then the pool's words are the CPU's, then the
	 * clients end, which changes the words of their pages.
	 */
	TAILQ_FOREACH (reg, &device->registrations, link) {
		registration_fence(reg, "the device is gone");
		registration_self_drop(reg);
	}
	TAILQ_FOREACH (listener, &device->rdma->listeners, link) {
		if (listener->device != device)
			continue;
		TAILQ_FOREACH (peer, &listener->peers, link)
			peer_verbs_end(peer, LOG_LEVEL_NOTICE, "the device is gone");
		listener_verbs_down(listener, "the device is gone");
	}
	while ((peer = TAILQ_FIRST(&device->rdma->closing)))
		peer_verbs_finish(peer);
	device_close(device);
	device->lost = false;
	contexts_release();
}
