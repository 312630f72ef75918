/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA listeners: connect requests, and coming up again after the device or the address has gone
 * away. Main thread. At the start a failure is an error; later it is logged once and tried again
 * every 2 s, while the pools go on. rdma-address.c finds the address, peer-verbs.c has the
 * connections, listen-verbs-memory.c and registration.c the memory.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "err.h"
#include "events.h"
#include "listen-verbs.h"
#include "peer-verbs.h"
#include "rdma-address.h"
#include "verbs.h"

#define HANDSHAKES 32u
#define KERNEL_QUEUE \
	1024 /* requests that the kernel keeps until we have looked; then they are ours */
#define RETRY_MS 2000
#define LOOK_MS  100 /* events come in swarms */

struct listener_verbs *listener_verbs_of(struct listener *listener)
{
	return listener->kind == &listener_verbs_kind ? (struct listener_verbs *)(void *)listener
						      : NULL;
}

/* ---- binding ---- */

static void options_set(const struct listener_verbs *listener)
{
	const struct config_listen *config = listener->listener.config;
	uint8_t tos = (uint8_t)config->tos.number;

	/* What is sent before a queue pair is connected; its own packets: verbs_qp_connect(). */
	if (config->tos.number >= 0 && rdma_set_option(listener->id, RDMA_OPTION_ID,
						       RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) != 0)
		log_warning(listener->rdma->daemon->log,
			    "%s: tos = %u is not possible for the handshake: %s, ignoring",
			    listener->text, tos, strerrordesc_np(errno));
}

/* Else each client would be refused, when its queue pair is made. */
static int gid_check(const struct listener_verbs *listener)
{
	const struct verbs_device *device = &listener->device->verbs;
	int64_t index = listener->listener.config->gid_index.number;
	struct ibv_gid_entry entry;

	if (index < 0 || device->iwarp ||
	    ibv_query_gid_ex(device->context, device->port, (uint32_t)index, &entry, 0) == 0)
		return 0;
	return err_set(-EINVAL,
		       "gid_index = %d: %s port %u has no such GID: `tarn doctor` lists those that "
		       "it has; -1: the one that belongs to the address",
		       (int)index, device->name, device->port);
}

static int listener_bind_id(struct listener_verbs *listener)
{
	struct rdma *rdma = listener->rdma;
	struct sockaddr_storage address;
	int rc = rdma_channel_open(rdma);

	if (rc == 0)
		rc = rdma_address_find(rdma, listener->listener.config, &address);
	if (rc < 0)
		return rc;
	/* A port that was free once and is known to clients stays the same. */
	if (config_listen_port(listener->listener.config) == 0 && listener->address.ss_family)
		rdma_address_set_port(&address,
				      ntohs(((struct sockaddr_in *)(void *)&listener->address)
						    ->sin_port)); /* at the same place in both */
	listener->id = rdma_address_bind(rdma, (const struct sockaddr *)&address);
	if (!listener->id)
		return rdma_address_failed(rdma, &address, errno);
	rc = device_get(rdma, listener->id, &listener->device);
	if (rc == 0)
		rc = gid_check(listener);
	if (rc < 0) {
		(void)rdma_destroy_id(listener->id);
		listener->id = NULL;
		listener->device = NULL;
		return rc;
	}
	listener->id->context = &listener->target;
	rdma_address_set_port(&address, ntohs(rdma_get_src_port(listener->id)));
	listener->address = address;
	rdma_address_text((const struct sockaddr *)&address, listener->text,
			  sizeof(listener->text));
	options_set(listener);
	listener->moved = false;
	return 0;
}

static int listen_now(struct listener_verbs *listener)
{
	const struct verbs_device *device = &listener->device->verbs;

	if (rdma_listen(listener->id, KERNEL_QUEUE) != 0)
		return rdma_address_failed(listener->rdma, &listener->address, errno);
	listener->state = LISTENER_UP;
	listener->failure[0] = '\0';
	events_tell(listener->rdma->daemon->events, EVENT_listener_up,
		    EVENT_FIELDS(.listener = listener->listener.config->name, .device = device->name),
		    "listening on %s (%s, %s)", listener->text, device->name,
		    device->iwarp                                               ? "iWARP"
		    : device->port_attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
										: "RoCE");
	return 0;
}

/* ---- away and back ---- */

static void retry_in(struct listener_verbs *listener, int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};

	event_add(listener->retry, &tv);
}

/* It is down, why: the log and /v1/events. */
static void tell_down(const struct listener_verbs *listener, int rc, const char *why)
{
	const struct config_listen *config = listener->listener.config;
	char text[RDMA_ADDRESS_TEXT + CONFIG_NAME_MAX];

	events_tell(listener->rdma->daemon->events, EVENT_listener_down,
		    EVENT_FIELDS(.listener = config->name, .error = rc),
		    "[listen %s] %s is down: %s; trying again every 2 s", config->name,
		    config_listen_text(config, text, sizeof(text)), why);
}

void listener_verbs_down(struct listener_verbs *listener, const char *why)
{
	struct peer_verbs *peer;

	TAILQ_FOREACH (peer, &listener->peers, link)
		if (peer->state == PEER_VERBS_WAITING)
			peer_verbs_end(peer, LOG_LEVEL_DEBUG, "the listener has gone");
	if (listener->id)
		(void)rdma_destroy_id(listener->id);
	listener->id = NULL;
	listener->device = NULL;
	if (why && listener->state == LISTENER_UP && !listener->rdma->daemon->stopping)
		tell_down(listener, 0, why);
	listener->state = LISTENER_DOWN;
	if (!listener->rdma->daemon->stopping)
		retry_in(listener, RETRY_MS);
}

void listener_verbs_look(struct listener_verbs *listener)
{
	if (listener->state == LISTENER_UP || listener->state == LISTENER_DOWN)
		retry_in(listener, LOOK_MS);
}

/* Not yet: says so, once as long as the reason is the same. */
static void still_down(struct listener_verbs *listener)
{
	if (strcmp(listener->failure, err_text()) != 0)
		tell_down(listener, 0, err_text());
	snprintf(listener->failure, sizeof(listener->failure), "%s", err_text());
	listener_verbs_down(listener, NULL);
}

/* It has failed on the way: err_text() says why. */
static void not_up(struct listener_verbs *listener)
{
	if (listener->device && !listener->device->registering)
		listener_verbs_unready_free(listener->device);
	still_down(listener);
}

static int serve(struct listener_verbs *listener);

static void on_run_done(evutil_socket_t fd, short what, void *arg)
{
	struct listener_verbs *listener = arg;
	struct device *device = listener->device;
	int rc;

	(void)fd;
	(void)what;
	event_free(listener->run_done);
	listener->run_done = NULL;
	rc = registration_run_finish(listener->run);
	listener->run = NULL;
	if (device->lost) {
		rdma_sweep_soon(listener->rdma); /* it has waited for us */
		return;
	}
	if (rc == 0)
		rc = listener_verbs_open_all(device, false);
	if (rc == 0)
		rc = serve(listener); /* a reload may have offered another pool meanwhile */
	if (rc < 0)
		not_up(listener);
}

static int run_begin(struct listener_verbs *listener, struct registration *const *list, int count)
{
	int rc = registration_run_start(list, (size_t)count, &listener->run);

	if (rc < 0)
		return rc;
	log_notice(listener->rdma->daemon->log, "%s is there: registering %d pool%s",
		   listener->device->name, count, count == 1 ? "" : "s");
	listener->state = LISTENER_REGISTERING;
	listener->run_done = event_new(listener->rdma->daemon->base, listener->run->fd, EV_READ,
				       on_run_done, listener);
	if (listener->run_done && event_add(listener->run_done, NULL) == 0)
		return 0;
	if (listener->run_done)
		event_free(listener->run_done);
	listener->run_done = NULL;
	registration_run_cancel(listener->run);
	(void)registration_run_finish(listener->run);
	listener->run = NULL;
	return err_set(-ENOMEM, "out of memory");
}

/* Bound: registers what is not registered yet, then listens. */
static int serve(struct listener_verbs *listener)
{
	struct daemon *daemon = listener->rdma->daemon;
	struct registration **list = calloc(daemon->pool_count + 1, sizeof(*list));
	int rc = list ? listener_verbs_missing(listener, list) : err_set(-ENOMEM, "out of memory");

	if (rc > 0)
		rc = run_begin(listener, list, rc);
	else if (rc == 0)
		rc = listen_now(listener);
	free(list);
	return rc;
}

static void come_up(struct listener_verbs *listener)
{
	int rc = listener_bind_id(listener);

	if (rc == 0)
		rc = serve(listener);
	if (rc < 0)
		not_up(listener);
}

/* Is the address where it was? A listener whose address goes and comes would stay deaf on some
 * devices. */
static void look(struct listener_verbs *listener)
{
	struct sockaddr_storage address = listener->address;
	struct rdma_cm_id *id;
	bool same;

	rdma_address_set_port(&address, 0);
	id = rdma_address_bind(listener->rdma, (const struct sockaddr *)&address);
	if (!id) {
		rdma_address_failed(listener->rdma, &listener->address, errno);
		still_down(listener);
		return;
	}
	same = id->verbs == listener->device->verbs.context && !listener->moved;
	(void)rdma_destroy_id(id);
	if (same)
		return;
	listener_verbs_down(listener, "its address has moved: listening anew");
	come_up(listener);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct listener_verbs *listener = arg;

	(void)fd;
	(void)what;
	if (listener->state == LISTENER_UP)
		look(listener);
	else if (listener->state == LISTENER_DOWN)
		come_up(listener);
}

/* ---- events of its id ---- */

static void on_event(struct rdma_target *target, const struct rdma_cm_event *event)
{
	struct listener_verbs *listener =
		(struct listener_verbs *)(void *)((char *)target -
						  offsetof(struct listener_verbs, target));
	struct daemon *daemon = listener->rdma->daemon;
	enum rdma_cm_event_type type = event->event;

	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		peer_verbs_arrive(listener, event);
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (listener->device)
			device_lose(listener->device, "the device is being removed");
		return;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		log_warning(daemon->log, "%s: %s", listener->text, verbs_event_text(type));
		listener->moved = true;
		listener_verbs_look(listener);
		return;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	}
	listener->rdma->unexpected_events++;
	if (daemon_may_log(daemon))
		log_warning(daemon->log, "%s: unexpected event %s (status %d), ignoring",
			    listener->text, verbs_event_name(type), event->status);
}

void listener_verbs_next(struct listener_verbs *listener)
{
	struct admission_entry *entry;

	while ((entry = admission_next(&listener->admission)))
		peer_verbs_begin((struct peer_verbs *)(void *)((char *)entry -
							       offsetof(struct peer_verbs, entry)));
}

/* ---- the kind ---- */

/* To bind is the test, and comes before the memory. */
static int check(const struct log *log, const struct config_listen *config)
{
	(void)log;
	(void)config;
	return 0;
}

/*
 * No RDMA device at all, or no module yet: a host may find its adapter late, and those who use
 * shared memory need not wait for that. A wrong address is another matter: that is an error.
 */
static bool may_come_later(const struct config *config, int rc)
{
	if (rc != -ENODEV && rc != -ENOSYS)
		return false;
	for (size_t i = 0; i < config->listen_count; i++)
		if (!config_listen_rdma(&config->listens[i]))
			return true;
	return false;
}

static int bind_or_wait(struct listener_verbs *listener)
{
	int rc = verbs_available();

	if (rc < 0 && may_come_later(listener->rdma->daemon->config, rc)) {
		tell_down(listener, rc, err_text());
		snprintf(listener->failure, sizeof(listener->failure), "%s", err_text());
		listener->state = LISTENER_DOWN;
		return 0;
	}
	listener->state = LISTENER_BOUND;
	return rc < 0 ? rc : listener_bind_id(listener);
}

static void settings_fill(const struct config_listen *config, struct fabric_settings *ret)
{
	*ret = (struct fabric_settings)FABRIC_SETTINGS_INIT;
	ret->ack_timeout = (int16_t)config->ack_timeout.number;
	ret->retries = config->retries.line ? (int16_t)config->retries.number : -1;
	ret->tos = (int16_t)config->tos.number;
	ret->service_level = (int16_t)config->service_level.number;
	ret->gid_index = (int16_t)config->gid_index.number;
	if (config->mtu.number != CONFIG_MTU_PATH)
		ret->mtu = (uint16_t)(128u << (unsigned)config->mtu.number);
}

static void limits_fill(const struct config_listen *config, struct admission_limits *ret)
{
	*ret = (struct admission_limits){.handshakes = HANDSHAKES,
					 .waiting = (uint32_t)config->backlog.number,
					 .connections = (uint32_t)config->max_connections.number,
					 .per_address = (uint32_t)config->max_per_address.number};
}

static int kind_bind(struct daemon *daemon, const struct config_listen *config,
		     struct listener **ret_listener)
{
	struct admission_limits limits;
	struct listener_verbs *listener;
	int rc = daemon->rdma ? 0 : rdma_create(daemon, &daemon->rdma);

	if (rc < 0)
		return rc;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return err_set(-ENOMEM, "out of memory");
	listener->listener =
		(struct listener){.kind = &listener_verbs_kind, .daemon = daemon, .config = config};
	listener->rdma = daemon->rdma;
	listener->target.on_event = on_event;
	TAILQ_INIT(&listener->peers);
	TAILQ_INSERT_TAIL(&daemon->rdma->listeners, listener, link);
	listener->added = daemon->pool_count > 0;
	limits_fill(config, &limits);
	admission_init(&listener->admission, &limits);
	settings_fill(config, &listener->settings);
	listener->retry = evtimer_new(daemon->base, on_retry, listener);
	rc = listener->retry ? bind_or_wait(listener) : err_set(-ENOMEM, "out of memory");
	if (rc < 0) {
		listener_close(&listener->listener);
		return rc;
	}
	*ret_listener = &listener->listener;
	return 0;
}

static int kind_open(struct listener *base)
{
	struct listener_verbs *listener = listener_verbs_of(base);
	int rc;

	if (listener->state == LISTENER_DOWN) {
		retry_in(listener, RETRY_MS);
		return 0;
	}
	if (!listener->device || listener->device->lost)
		rc = err_set(-ENODEV, "its device has gone away meanwhile");
	else
		rc = serve(listener);
	if (rc == 0 || !listener->added)
		return rc;
	not_up(listener);
	return 0;
}

void listener_verbs_free(struct listener_verbs *listener)
{
	if (listener->id)
		(void)rdma_destroy_id(listener->id);
	if (listener->retry)
		event_free(listener->retry);
	free(listener);
}

static void kind_close(struct listener *base)
{
	struct listener_verbs *listener = listener_verbs_of(base);
	struct peer_verbs *peer;

	if (listener->run_done)
		event_free(listener->run_done);
	if (listener->run) {
		registration_run_cancel(listener->run);
		(void)registration_run_finish(listener->run);
	}
	TAILQ_FOREACH (peer, &listener->peers, link)
		peer_verbs_end(peer, LOG_LEVEL_DEBUG, "tarnd stops");
	while ((peer = TAILQ_FIRST(&listener->rdma->closing)))
		peer_verbs_finish(peer);
	TAILQ_REMOVE(&listener->rdma->listeners, listener, link);
	listener_verbs_free(listener);
}

/* Without waiting: the sweep finishes its connections, which can do nothing any more. */
static void kind_remove(struct listener *base)
{
	struct listener_verbs *listener = listener_verbs_of(base);
	struct peer_verbs *peer;

	TAILQ_FOREACH (peer, &listener->peers, link)
		peer_verbs_end(peer, LOG_LEVEL_NOTICE, "its listener was removed");
	if (listener->id)
		(void)rdma_destroy_id(listener->id);
	listener->id = NULL;
	listener->device = NULL;
	listener->state = LISTENER_DOWN;
	event_del(listener->retry);
	base->config = NULL; /* gone with the configuration that it was in */
	listener->removed = true;
	TAILQ_REMOVE(&listener->rdma->listeners, listener, link);
	if (listener->peer_count == 0)
		listener_verbs_free(listener);
}

static bool kind_busy(const struct listener *base)
{
	return ((const struct listener_verbs *)(const void *)base)->run != NULL;
}

/* What holds for a connection is what was set when it came; who is above a new limit stays. */
static void kind_update(struct listener *base)
{
	struct listener_verbs *listener = listener_verbs_of(base);

	limits_fill(base->config, &listener->admission.limits);
	settings_fill(base->config, &listener->settings);
	if (listener->state != LISTENER_UP)
		return; /* it takes up the rest when it comes up */
	options_set(listener);
	if (!listener_verbs_incomplete(listener))
		return;
	listener_verbs_down(listener, "listening anew for its pools"); /* connections stay; so does nobody who waits */
	come_up(listener);
}

static const struct verbs_device *kind_device(const struct listener *base)
{
	const struct listener_verbs *listener = (const struct listener_verbs *)(const void *)base;

	return listener->device ? &listener->device->verbs : NULL;
}

const struct listener_kind listener_verbs_kind = {
	.name = "rdma",
	.check = check,
	.bind = kind_bind,
	.open = kind_open,
	.close = kind_close,
	.device = kind_device,
	.update = kind_update,
	.busy = kind_busy,
	.remove = kind_remove,
};
