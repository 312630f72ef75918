/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets of [http] listen: bound before the pools are made, so that a port that is taken is said at once,
 * and listened on when all is ready. In a reload new ones are bound and opened beside those that serve, and an address that is in
 * both keeps its socket. Main thread. Next to read: http.c, reload-http.c.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/listener.h>

#include "err.h"
#include "http-listen.h"

#define BACKLOG    128
#define RETRY_USEC 100000 /* when no socket could be accepted */

struct http_listener {
	struct http_listeners *of;
	struct config_address address; /* as in the configuration, with its port */
	uint16_t port;                 /* which it has */
	int fd; /* -1: evconnlistener has it, or none */
	char text[80];
	struct evconnlistener *listener;
};

struct http_listeners {
	const struct log *log;
	struct http_listener *all[HTTP_ADDRESSES_MAX];
	size_t count;
	struct event *retry;
	struct http_listeners_to to;
};

/* ---- addresses ---- */

int http_address(const struct config_http *http, size_t i, struct config_address *ret_address)
{
	const char *at = http->listen.text;
	char text[80];
	size_t length;

	for (; i > 0; i--) {
		at += strcspn(at, ",");
		at += *at == ',';
	}
	at += strspn(at, " \t");
	length = strcspn(at, ",");
	while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t'))
		length--;
	if (!*at)
		return -ENOENT;
	snprintf(text, sizeof(text), "%.*s", (int)(length < sizeof(text) ? length : sizeof(text) - 1), at);
	return config_address_parse_any(text, ret_address);
}

bool http_address_local(const struct config_address *address)
{
	return strncmp(address->host, "127.", 4) == 0 || strcmp(address->host, "::1") == 0;
}

static void port_fill(struct http_listener *listener, const struct sockaddr_storage *socket_address)
{
	const struct config_address *address = &listener->address;
	const struct sockaddr_in *in = (const void *)socket_address;
	const struct sockaddr_in6 *in6 = (const void *)socket_address;

	listener->port = ntohs(address->family == AF_INET6 ? in6->sin6_port : in->sin_port);
	snprintf(listener->text, sizeof(listener->text), address->family == AF_INET6 ? "[%s%s%s]:%u" : "%s%s%s:%u", address->host,
		 address->scope[0] ? "%" : "", address->scope, listener->port);
}

static const char *bind_advice(int error)
{
	switch (error) {
	case EADDRINUSE:
		return "another program has this port (`ss -ltnp` shows which): stop it, or name another port in "
		       "[http] listen, or remove [http]";
	case EADDRNOTAVAIL:
		return "this host does not have the address: name one that `ip address` shows";
	case EACCES:
		return "ports below 1024 need the right to: name another port";
	default:
		return "name another address in [http] listen";
	}
}

static int bind_failed(int error, const char *text)
{
	return err_set(-error, "%s: %s: %s", text, strerrordesc_np(error), bind_advice(error));
}

static int bind_socket(struct http_listener *listener)
{
	const struct config_address *address = &listener->address;
	struct sockaddr_storage where;
	socklen_t bytes = address->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int one = 1, rc = config_address_socket(address, address->port, &where);

	if (rc < 0)
		return rc;
	port_fill(listener, &where);
	listener->fd = socket(address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener->fd < 0)
		return bind_failed(errno, listener->text);
	(void)setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (address->family == AF_INET6)
		(void)setsockopt(listener->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(listener->fd, (struct sockaddr *)&where, bytes) < 0) {
		rc = bind_failed(errno, listener->text);
		close(listener->fd);
		listener->fd = -1;
		return rc;
	}
	bytes = sizeof(where);
	if (getsockname(listener->fd, (struct sockaddr *)&where, &bytes) == 0)
		port_fill(listener, &where);
	return 0;
}

static void listener_free(struct http_listener *listener)
{
	if (listener->listener)
		evconnlistener_free(listener->listener);
	if (listener->fd >= 0)
		close(listener->fd);
	free(listener);
}

static int listener_bind_one(struct http_listeners *of, const struct config_address *address,
			     struct http_listener **ret_listener)
{
	struct http_listener *listener = calloc(1, sizeof(*listener));
	int rc;

	if (!listener)
		return err_set(-ENOMEM, "out of memory");
	listener->of = of;
	listener->fd = -1;
	listener->address = *address;
	rc = bind_socket(listener);
	if (rc < 0) {
		listener_free(listener);
		return rc;
	}
	*ret_listener = listener;
	return 0;
}

static struct http_listener *find(struct http_listener *const *all, size_t count, const struct config_address *address)
{
	for (size_t i = 0; i < count; i++) {
		const struct config_address *has = &all[i]->address;

		if ((has->port == address->port || all[i]->port == address->port) && strcmp(has->host, address->host) == 0 &&
		    strcmp(has->scope, address->scope) == 0)
			return all[i];
	}
	return NULL;
}

static bool is_in(struct http_listener *const *all, size_t count, const struct http_listener *listener)
{
	for (size_t i = 0; i < count; i++)
		if (all[i] == listener)
			return true;
	return false;
}

/* The socket that has the port is this daemon's own, and is closed only when nothing can fail any more. */
static int port_failed(int rc, const struct http_listeners *listeners, const struct config_address *address)
{
	for (size_t i = 0; rc == -EADDRINUSE && i < listeners->count; i++)
		if (listeners->all[i]->port == address->port)
			return err_set(rc,
				       "port %u: the running tarnd has it at %s: name another port, or remove that "
				       "address by a reload of its own before",
				       address->port, listeners->all[i]->text);
	return rc;
}

/* The i-th address of the configuration: the socket that is there, or a new one. -ENOENT: there are no more. */
static int prepare_one(struct http_listeners *listeners, const struct config_http *http, size_t i,
		       struct http_listeners_plan *plan)
{
	struct http_listener **at = &plan->all[plan->count];
	struct config_address address;
	int rc = http_address(http, i, &address);

	if (rc < 0)
		return rc;
	address.port = address.has_port ? address.port : HTTP_PORT;
	*at = find(listeners->all, listeners->count, &address);
	if (find(plan->all, plan->count, &address) || is_in(plan->all, plan->count, *at))
		return 0; /* named twice */
	if (!*at) {
		rc = listener_bind_one(listeners, &address, at);
		/* who has not asked for ::1 does not miss it on a host without IPv6 */
		if ((rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT) && !http->listen.line && i > 0) {
			log_info(listeners->log, "no statistics at %s: this host has no IPv6", address.host);
			return 0;
		}
		if (rc < 0)
			return port_failed(rc, listeners, &address);
	}
	plan->count++;
	return 0;
}

int http_listeners_prepare(struct http_listeners *listeners, const struct config *config,
			   struct http_listeners_plan *ret_plan)
{
	const struct config_http *http = &config->http;
	struct http_listeners_plan plan = {.count = 0};
	int rc = 0;

	for (size_t i = 0; i < HTTP_ADDRESSES_MAX && rc == 0; i++)
		rc = prepare_one(listeners, http, i, &plan);
	if (rc < 0 && rc != -ENOENT) {
		rc = err_set(rc, "%s:%u: [http] listen = %s: %s", config->file,
			     http->listen.line ? http->listen.line : http->line, http->listen.text, err_text());
		http_listeners_undo(listeners, &plan);
		return rc;
	}
	*ret_plan = plan;
	return 0;
}

/* ---- accepting ---- */

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int bytes,
			  void *arg)
{
	struct http_listener *of = arg;

	(void)listener;
	(void)address;
	(void)bytes;
	of->of->to.on_accept(of->of->to.arg, of, fd);
}

/* No descriptor is left, or no memory: without a pause the loop would ask again and again. */
static void on_failure(struct evconnlistener *listener, void *arg)
{
	struct http_listeners *listeners = ((struct http_listener *)arg)->of;

	(void)listener;
	for (size_t i = 0; i < listeners->count; i++)
		evconnlistener_disable(listeners->all[i]->listener);
	event_add(listeners->retry, &(struct timeval){.tv_usec = RETRY_USEC});
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct http_listeners *listeners = arg;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < listeners->count; i++)
		evconnlistener_enable(listeners->all[i]->listener);
}

/* Nobody is accepted before the loop goes on. */
static int open_one(struct http_listener *one, struct event_base *base)
{
	errno = 0;
	one->listener = evconnlistener_new(base, on_connection, one, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG,
					   one->fd);
	if (!one->listener)
		return bind_failed(errno ? errno : ENOMEM, one->text);
	one->fd = -1;
	evconnlistener_set_error_cb(one->listener, on_failure);
	return 0;
}

int http_listeners_open(const struct http_listeners_plan *plan, struct event_base *base)
{
	int rc = 0;

	for (size_t i = 0; i < plan->count && rc == 0; i++)
		if (!plan->all[i]->listener)
			rc = open_one(plan->all[i], base);
	return rc;
}

void http_listeners_undo(const struct http_listeners *listeners, struct http_listeners_plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		if (!is_in(listeners->all, listeners->count, plan->all[i]))
			listener_free(plan->all[i]);
	plan->count = 0;
}

void http_listeners_commit(struct http_listeners *listeners, struct http_listeners_plan *plan)
{
	struct http_listeners was = *listeners;

	memcpy(listeners->all, plan->all, sizeof(listeners->all));
	listeners->count = plan->count;
	plan->count = 0;
	for (size_t i = 0; i < listeners->count; i++)
		if (!is_in(was.all, was.count, listeners->all[i]))
			log_notice(listeners->log, "statistics over HTTP at %s", listeners->all[i]->text);
	for (size_t i = 0; i < was.count; i++) {
		if (is_in(listeners->all, listeners->count, was.all[i]))
			continue;
		log_notice(listeners->log, "no more statistics over HTTP at %s", was.all[i]->text);
		listeners->to.on_gone(listeners->to.arg, was.all[i]);
		listener_free(was.all[i]);
	}
}

/* ---- all of it ---- */

int http_listeners_create(struct event_base *base, const struct log *log, const struct http_listeners_to *to,
			  struct http_listeners **ret_listeners)
{
	struct http_listeners *listeners = calloc(1, sizeof(*listeners));

	if (!listeners)
		return err_set(-ENOMEM, "out of memory");
	listeners->log = log;
	listeners->to = *to;
	listeners->retry = evtimer_new(base, on_retry, listeners);
	if (!listeners->retry) {
		free(listeners);
		return err_set(-ENOMEM, "no memory for a timer");
	}
	*ret_listeners = listeners;
	return 0;
}

void http_listeners_free(struct http_listeners *listeners)
{
	if (!listeners)
		return;
	for (size_t i = 0; i < listeners->count; i++)
		listener_free(listeners->all[i]);
	event_free(listeners->retry);
	free(listeners);
}
