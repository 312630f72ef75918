/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts the daemon together and takes it apart. RDMA addresses are taken first, so that the devices
 * are known on which the pools' memory and atomics depend; then pools, since they take long; then
 * their registration with the devices; listeners last, so that nobody waits in front of a daemon
 * that fails. Then one libevent loop with signals and the keepers' timer. Main thread, the only one
 * but for those that register memory (registration.c). Next: peer.c and peer-verbs.c for what a
 * connection does, keeper.c for what happens on its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "clock.h"
#include "member.h"
#include "control-check.h"
#include "daemon.h"
#include "err.h"
#include "events.h"
#include "fdstore.h"
#include "http.h"
#include "keeper.h"
#include "listen.h"
#include "listen-verbs.h"
#include "peer.h"
#include "place.h"
#include "port-stats.h"
#include "rdma.h"
#include "region.h"
#include "reload.h"
#include "replay.h"
#include "service.h"
#include "watchdog.h"

#define LOG_LINES_PER_SECOND 20u

/* ---- guests and their lines ---- */

bool daemon_may_log(struct daemon *daemon)
{
	uint64_t second = clock_now_ns() / 1000000000;

	if (second != daemon->log_second) {
		if (daemon->log_dropped)
			log_warning(daemon->log,
				    "%u lines about strangers were not logged: more than %u in a "
				    "second",
				    daemon->log_dropped, LOG_LINES_PER_SECOND);
		daemon->log_second = second;
		daemon->log_lines = daemon->log_dropped = 0;
	}
	if (daemon->log_lines++ < LOG_LINES_PER_SECOND)
		return true;
	daemon->log_dropped++;
	return false;
}

void daemon_guest_add(struct daemon *daemon)
{
	if (++daemon->guests < DAEMON_GUESTS_MAX)
		return;
	for (size_t i = 0; i < daemon->listener_count; i++)
		listener_pause(daemon->listeners[i]);
}

void daemon_guest_remove(struct daemon *daemon)
{
	if (daemon->guests-- != DAEMON_GUESTS_MAX)
		return;
	for (size_t i = 0; i < daemon->listener_count; i++)
		listener_resume(daemon->listeners[i]);
}

/* ---- events ---- */

/* libevent runs these in the loop: they are no signal handlers and may do anything. */
static void on_stop_signal(evutil_socket_t signal_number, short what, void *arg)
{
	struct daemon *daemon = arg;

	(void)what;
	events_tell(daemon->events, EVENT_stopping, NULL, "got %s, stopping",
		    signal_number == SIGINT ? "SIGINT" : "SIGTERM");
	daemon->stopping = true;
	service_stopping();
	event_base_loopbreak(daemon->base);
}

static void on_reload_signal(evutil_socket_t signal_number, short what, void *arg)
{
	struct daemon *daemon = arg;
	struct reload_report report;

	(void)signal_number;
	(void)what;
	log_notice(daemon->log, "got SIGHUP: reloading %s", daemon->config->file);
	reload(daemon, &report);
	reload_report_free(&report);
}

static void on_keeper_timer(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *daemon = arg;
	uint64_t wait = 1000000000;
	struct timeval tv;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < daemon->pool_count; i++) {
		uint64_t due = keeper_step(daemon->pools[i]->keeper, clock_now_ns());

		pool_unfenced_poll(daemon->pools[i], clock_now_ns());
		pool_cut_off_check(daemon->pools[i]);
		regions_poll(daemon->pools[i]->regions);
		if (due < wait)
			wait = due;
	}
	events_tell_dropped(daemon->events, false);
	tv.tv_sec = (time_t)(wait / 1000000000);
	tv.tv_usec = (suseconds_t)(wait % 1000000000 / 1000);
	event_add(daemon->keeper_timer, &tv);
}

static void keeper_wake(void *arg)
{
	const struct timeval now = {0};
	struct daemon *daemon = arg;

	if (daemon->keeper_timer)
		event_add(daemon->keeper_timer, &now);
}

/* ---- start ---- */

/* Pools are made before this: a signal meanwhile ends the process as it always does, and nothing is
 * left behind. */
static int signals_create(struct daemon *daemon)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
	struct timeval soon = {0};

	for (int i = 0; i < 3; i++) {
		daemon->signals[i] = evsignal_new(
			daemon->base, numbers[i],
			numbers[i] == SIGHUP ? on_reload_signal : on_stop_signal, daemon);
		if (!daemon->signals[i] || event_add(daemon->signals[i], NULL) < 0)
			return err_set(-ENOMEM, "no memory for signal events");
	}
	daemon->keeper_timer = evtimer_new(daemon->base, on_keeper_timer, daemon);
	if (!daemon->keeper_timer || event_add(daemon->keeper_timer, &soon) < 0)
		return err_set(-ENOMEM, "no memory for a timer");
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

static int pool_failed(const struct config *config, const struct config_pool *pool, int rc)
{
	return err_set(rc, "%s:%u: [pool %s]: %s", config->file, pool->size.line, pool->name,
		       err_text());
}

static int pools_create(struct daemon *daemon)
{
	const struct config *config = daemon->config;

	daemon->pools = calloc(config->pool_count, sizeof(struct pool *));
	if (!daemon->pools)
		return err_set(-ENOMEM, "out of memory");
	for (size_t i = 0; i < config->pool_count; i++) {
		int rc;

		daemon->places[i].pool.kept = daemon->fdstore;
		daemon->places[i].pool.events = daemon->events;
		rc = pool_create(&config->pools[i], &daemon->places[i].pool, daemon->log,
				 &daemon->pools[i]);
		if (rc < 0)
			return pool_failed(config, &config->pools[i], rc);
		daemon->pools[i]->wake = keeper_wake;
		daemon->pools[i]->wake_arg = daemon;
		daemon->pool_count++;
	}
	fdstore_forget_rest(daemon->fdstore);
	return 0;
}

/* What depends on the listeners' devices. */
static int places_decide(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	const struct verbs_device *devices[CONFIG_SECTIONS_MAX];
	bool rdma = false;

	daemon->places = calloc(config->pool_count, sizeof(struct place));
	if (!daemon->places)
		return err_set(-ENOMEM, "out of memory");
	for (size_t i = 0; i < config->listen_count; i++) {
		devices[i] = listener_device(daemon->listeners[i]);
		rdma = rdma || devices[i];
	}
	for (size_t i = 0; i < config->pool_count; i++) {
		struct place *place = &daemon->places[i];
		int rc = place_decide(config, &config->pools[i], devices, place);

		if (rc < 0)
			return pool_failed(config, &config->pools[i], rc);
		if (rdma)
			log_info(daemon->log, "pool %s: atomics by the %s: %s",
				 config->pools[i].name,
				 place->pool.atomics == LAYOUT_ATOMICS_NIC ? "NIC" : "CPU",
				 place->pool.why);
		if (place->warning[0])
			log_warning(daemon->log, "pool %s: %s", config->pools[i].name,
				    place->warning);
	}
	return 0;
}

static int listen_failed(const struct config *config, const struct config_listen *listen, int rc)
{
	unsigned int line = listen->path.line      ? listen->path.line
			    : listen->address.line ? listen->address.line
						   : listen->device.line;
	size_t sockets = 0;

	for (size_t i = 0; i < config->listen_count; i++)
		sockets += !config_listen_rdma(&config->listens[i]);
	return err_set(rc, "%s:%u: [listen %s]: %s%s", config->file, line, listen->name, err_text(),
		       config_listen_rdma(listen) && sockets
			       ? "; without this section tarnd serves shared memory alone"
			       : "");
}

static int listeners_check(const struct daemon *daemon)
{
	const struct config *config = daemon->config;

	for (size_t i = 0; i < config->listen_count; i++) {
		int rc = listener_check(daemon->log, &config->listens[i]);

		if (rc < 0)
			return listen_failed(config, &config->listens[i], rc);
	}
	return 0;
}

static int listeners_bind(struct daemon *daemon)
{
	const struct config *config = daemon->config;

	daemon->listeners = calloc(config->listen_count, sizeof(struct listener *));
	if (!daemon->listeners)
		return err_set(-ENOMEM, "out of memory");
	for (size_t i = 0; i < config->listen_count; i++) {
		int rc = listener_bind(daemon, &config->listens[i], &daemon->listeners[i]);

		if (rc < 0)
			return listen_failed(config, &config->listens[i], rc);
		daemon->listener_count++;
	}
	return 0;
}

static int listeners_open(struct daemon *daemon)
{
	const struct config *config = daemon->config;

	for (size_t i = 0; i < config->listen_count; i++) {
		int rc = listener_open(daemon->listeners[i]);

		if (rc < 0)
			return listen_failed(config, &config->listens[i], rc);
	}
	return 0;
}

/* One descriptor per client, a few for guests and ourselves. */
static void raise_file_limit(struct daemon *daemon)
{
	uint64_t need = DAEMON_GUESTS_MAX + 64;
	struct rlimit limit;

	for (size_t i = 0; i < daemon->pool_count; i++)
		need += daemon->pools[i]->geometry.max_clients;
	if (daemon->http)
		need += (uint64_t)daemon->config->http.max_connections.number;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < need)
		log_warning(daemon->log,
			    "%" PRIu64 " file descriptors are needed for max_clients in all pools, "
			    "the limit is %" PRIu64 ": raise LimitNOFILE (ulimit -n)",
			    need, (uint64_t)limit.rlim_max);
}

static int parts_create(struct daemon *daemon)
{
	int rc = auth_init();

	if (rc < 0)
		return rc;
	rc = fdstore_create(daemon->log, &daemon->fdstore);
	if (rc < 0)
		return rc;
	daemon->base = event_base_new();
	if (!daemon->base)
		return err_set(-ENOMEM, "no event loop");
	daemon->replay = replay_create(REPLAY_ENTRIES, AUTH_TIME_WINDOW_MS);
	daemon->port_stats = port_stats_create("");
	if (!daemon->replay || !daemon->port_stats)
		return err_set(-ENOMEM, "out of memory");
	/* before minutes are spent on the pools' memory, and memory is taken from a daemon that runs */
	rc = listeners_check(daemon);
	if (rc == 0)
		rc = http_bind(daemon, daemon->config, &daemon->http);
	if (rc == 0)
		rc = listeners_bind(daemon);
	if (rc == 0)
		rc = places_decide(daemon);
	if (rc == 0 && daemon->rdma)
		rc = listeners_verbs_check(daemon->rdma);
	if (rc == 0)
		rc = member_open(daemon, &daemon->member);
	if (rc == 0)
		rc = pools_create(daemon);
	if (rc == 0 && daemon->rdma)
		rc = listeners_verbs_register(daemon->rdma);
	if (rc < 0)
		return rc;
	raise_file_limit(daemon);
	rc = signals_create(daemon);
	if (rc == 0)
		rc = watchdog_create(daemon->base, daemon->pools, daemon->pool_count,
				     &daemon->watchdog);
	if (rc == 0 && daemon->member)
		rc = member_begin(daemon->member);
	if (rc == 0)
		rc = listeners_open(daemon);
	return rc == 0 && daemon->http ? http_open(daemon->http) : rc;
}

int daemon_create(const struct config *config, struct log *log, struct daemon **ret_daemon)
{
	struct daemon *daemon = calloc(1, sizeof(*daemon));
	struct events *events = events_create(log);
	int rc;

	if (!daemon || !events) {
		rc = err_set(-ENOMEM, "out of memory");
		log_error(log, "%s", err_text());
		events_free(events);
		free(daemon);
		return rc;
	}
	daemon->events = events;
	daemon->log = log;
	daemon->config = config;
	daemon->started_ns = clock_now_ns();
	daemon->started_ms = clock_wall_ms();
	TAILQ_INIT(&daemon->peers);
	rc = parts_create(daemon);
	if (rc < 0) {
		events_tell(events, EVENT_start_failed, EVENT_FIELDS(.error = rc), "%s", err_text());
		daemon_free(daemon);
		return rc;
	}
	*ret_daemon = daemon;
	return 0;
}

int daemon_run(struct daemon *daemon)
{
	daemon->ready_ms = clock_wall_ms();
	events_tell(daemon->events, EVENT_started, NULL, "tarnd %s is ready: %zu pools, %zu listeners",
		    PACKAGE_VERSION, daemon->pool_count, daemon->listener_count);
	service_ready();
	if (event_base_dispatch(daemon->base) < 0) {
		log_error(daemon->log, "the event loop failed");
		return -EIO;
	}
	return 0;
}

/* ---- end ---- */

void daemon_free(struct daemon *daemon)
{
	if (!daemon)
		return;
	daemon->stopping = true;
	http_close(daemon->http);
	peers_free(daemon); /* they refer to pools, and wake listeners */
	for (size_t i = 0; i < daemon->listener_count; i++)
		listener_close(daemon->listeners[i]);
	watchdog_free(daemon->watchdog);
	member_close(daemon->member); /* walks over a pool */
	rdma_free(daemon->rdma);
	control_check_free(daemon);
	for (size_t i = 0; i < daemon->pool_count; i++)
		pool_free(daemon->pools[i]);
	for (int i = 0; i < 3; i++)
		if (daemon->signals[i])
			event_free(daemon->signals[i]);
	if (daemon->keeper_timer)
		event_free(daemon->keeper_timer);
	if (daemon->base)
		event_base_free(daemon->base);
	replay_free(daemon->replay);
	events_tell_dropped(daemon->events, true);
	events_free(daemon->events);
	port_stats_free(daemon->port_stats);
	fdstore_free(daemon->fdstore);
	free(daemon->listeners);
	free(daemon->places);
	free(daemon->pools);
	config_free(daemon->reloaded);
	free(daemon);
}
