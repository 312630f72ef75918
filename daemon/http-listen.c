/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets of [http] listen: bound before the pools are made, so that a port that is taken is said at once,
 * and listened on when all is ready. Main thread. Next to read: http.c.
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
	int fd; /* -1: evconnlistener has it, or none */
	char text[80];
	struct evconnlistener *listener;
};

struct http_listeners {
	const struct log *log;
	struct http_listener all[HTTP_ADDRESSES_MAX];
	size_t count;
	struct event *retry;
	void (*on_accept)(void *arg, int fd);
	void *arg;
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

static void address_text(const struct sockaddr_storage *socket_address, const struct config_address *address,
			 char *text, size_t bytes)
{
	const struct sockaddr_in *in = (const void *)socket_address;
	const struct sockaddr_in6 *in6 = (const void *)socket_address;
	unsigned port = ntohs(address->family == AF_INET6 ? in6->sin6_port : in->sin_port);

	snprintf(text, bytes, address->family == AF_INET6 ? "[%s%s%s]:%u" : "%s%s%s:%u", address->host,
		 address->scope[0] ? "%" : "", address->scope, port);
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

static int bind_one(struct http_listener *listener, const struct config_address *address)
{
	struct sockaddr_storage where;
	socklen_t bytes = address->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int one = 1, rc = config_address_socket(address, address->has_port ? address->port : HTTP_PORT, &where);

	if (rc < 0)
		return rc;
	address_text(&where, address, listener->text, sizeof(listener->text));
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
		address_text(&where, address, listener->text, sizeof(listener->text));
	return 0;
}

int http_listeners_bind(const struct config *config, const struct log *log, struct http_listeners **ret_listeners)
{
	struct http_listeners *listeners = calloc(1, sizeof(*listeners));
	const struct config_http *http = &config->http;
	struct config_address address;
	int rc = 0;

	if (!listeners)
		return err_set(-ENOMEM, "out of memory");
	listeners->log = log;
	for (size_t i = 0; i < HTTP_ADDRESSES_MAX && rc == 0; i++) {
		rc = http_address(http, i, &address);
		if (rc == 0)
			rc = bind_one(&listeners->all[listeners->count], &address);
		/* who has not asked for ::1 does not miss it on a host without IPv6 */
		if ((rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT) && !http->listen.line && i > 0) {
			log_info(log, "no statistics at %s: this host has no IPv6",
				 listeners->all[listeners->count].text);
			rc = 0;
			continue;
		}
		listeners->count += rc == 0;
	}
	if (rc < 0 && rc != -ENOENT) {
		rc = err_set(rc, "%s:%u: [http] listen = %s: %s", config->file,
			     http->listen.line ? http->listen.line : http->line, http->listen.text, err_text());
		http_listeners_close(listeners);
		return rc;
	}
	*ret_listeners = listeners;
	return 0;
}

/* ---- accepting ---- */

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int bytes,
			  void *arg)
{
	struct http_listeners *listeners = arg;

	(void)listener;
	(void)address;
	(void)bytes;
	listeners->on_accept(listeners->arg, fd);
}

/* No descriptor is left, or no memory: without a pause the loop would ask again and again. */
static void on_failure(struct evconnlistener *listener, void *arg)
{
	struct http_listeners *listeners = arg;

	(void)listener;
	for (size_t i = 0; i < listeners->count; i++)
		evconnlistener_disable(listeners->all[i].listener);
	event_add(listeners->retry, &(struct timeval){.tv_usec = RETRY_USEC});
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct http_listeners *listeners = arg;

	(void)fd;
	(void)what;
	for (size_t i = 0; i < listeners->count; i++)
		evconnlistener_enable(listeners->all[i].listener);
}

int http_listeners_open(struct http_listeners *listeners, struct event_base *base, void (*on_accept)(void *arg, int fd),
			void *arg)
{
	listeners->on_accept = on_accept;
	listeners->arg = arg;
	listeners->retry = evtimer_new(base, on_retry, listeners);
	if (!listeners->retry)
		return err_set(-ENOMEM, "no memory for a timer");
	for (size_t i = 0; i < listeners->count; i++) {
		struct http_listener *one = &listeners->all[i];

		errno = 0;
		one->listener = evconnlistener_new(base, on_connection, listeners,
						   LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, one->fd);
		if (!one->listener)
			return bind_failed(errno ? errno : ENOMEM, one->text);
		one->fd = -1;
		evconnlistener_set_error_cb(one->listener, on_failure);
		log_notice(listeners->log, "statistics over HTTP at %s", one->text);
	}
	return 0;
}

void http_listeners_close(struct http_listeners *listeners)
{
	if (!listeners)
		return;
	for (size_t i = 0; i < listeners->count; i++) {
		if (listeners->all[i].listener)
			evconnlistener_free(listeners->all[i].listener);
		else
			close(listeners->all[i].fd);
	}
	if (listeners->retry)
		event_free(listeners->retry);
	free(listeners);
}
