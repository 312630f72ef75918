/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets and connections of the statistics over HTTP. Main thread, in the daemon's loop. libevent's
 * bufferevents carry the bytes, with or without TLS; its evhttp is not used, since version 2.1 tells nobody when
 * a connection ends that has not asked anything yet, so that their number has no bound, and its time limit
 * is one of silence alone, so that a byte a minute keeps a connection for ever. Here each connection has a
 * deadline for the next thing that it has to do. Next to read: http-answer.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "err.h"
#include "http-answer.h"
#include "http-listen.h"
#include "http.h"
#include "log.h"

#define REQUEST_SECONDS 10           /* for a whole request, from the connection's beginning */
#define ANSWER_SECONDS  10           /* to take an answer */
#define IDLE_SECONDS    75           /* between two of them */
#define CLOSE_SECONDS   1            /* until the client closes, too */
#define REFUSALS_MAX    32u          /* connections beyond max_connections that are told so */
#define PENDING_MAX     (256u << 20) /* bytes of answers that wait for their readers */

enum connection_state {
	CONNECTION_ASKING,    /* the request has not come as a whole */
	CONNECTION_ANSWERING, /* the answer has not gone as a whole */
	CONNECTION_CLOSING,   /* all is sent, and the client told that there is no more */
};

struct connection {
	TAILQ_ENTRY(connection) link;
	struct http *http;
	const struct http_listener *at; /* where it came in; NULL: a reload has removed that */
	struct bufferevent *bev;
	struct event *deadline;
	enum connection_state state;
	bool idle;    /* ASKING, and has got an answer before */
	bool refused; /* beyond max_connections */
	bool close;   /* after the answer */
	bool local;
	size_t pending; /* bytes of the answer, ANSWERING */
};

struct http {
	struct daemon *daemon;
	struct http_listeners *listeners;
	struct http_listeners_plan opening; /* between http_bind() and http_open() */
	struct http_tls *tls; /* NULL: none */
	struct http_token token;
	struct http_answers *answers;
	TAILQ_HEAD(, connection) connections;
	uint64_t max_connections, refusals;
	size_t pending; /* of all connections */
	struct http_stats stats;
	struct http_request request; /* the one that is looked at; too large for the stack */
};

static void connection_step(struct connection *connection);

/* ---- the end of a connection ---- */

static void connection_free(struct connection *connection)
{
	struct http *http = connection->http;

	TAILQ_REMOVE(&http->connections, connection, link);
	http->stats.connections--;
	http->refusals -= connection->refused;
	http->pending -= connection->pending;
	event_free(connection->deadline);
	bufferevent_free(connection->bev);
	free(connection);
}

static void deadline_set(struct connection *connection, time_t seconds)
{
	event_add(connection->deadline, &(struct timeval){.tv_sec = seconds});
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct connection *connection = arg;

	(void)fd;
	(void)what;
	if (!connection->idle && connection->state != CONNECTION_CLOSING)
		connection->http->stats.dropped++;
	connection_free(connection);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	if (!(what & BEV_EVENT_CONNECTED)) /* the end of TLS' handshake is none */
		connection_free(arg);
}

/*
 * A socket that is closed while there is something unread in it is reset, and the client may lose the answer
 * with it: so it is told that there is no more, and has a moment to close.
 */
static void connection_end(struct connection *connection)
{
	connection->state = CONNECTION_CLOSING;
	if (!connection->local)
		http_tls_finish(connection->bev);
	shutdown(bufferevent_getfd(connection->bev), SHUT_WR);
	deadline_set(connection, CLOSE_SECONDS);
	bufferevent_enable(connection->bev, EV_READ);
	evbuffer_drain(bufferevent_get_input(connection->bev), SIZE_MAX);
}

/* ---- requests ---- */

static void connection_answer(struct connection *connection, int status)
{
	struct http *http = connection->http;
	struct evbuffer *output = bufferevent_get_output(connection->bev);

	if (connection->refused || http->pending > PENDING_MAX)
		status = 503;
	bufferevent_disable(connection->bev, EV_READ);
	connection->state = CONNECTION_ANSWERING;
	connection->idle = false;
	status = http_answer(http->answers, status, &http->request, &http->token, connection->local, &connection->close,
			     output);
	http->stats.answers[status / 100 % 6]++;
	connection->pending = evbuffer_get_length(output);
	http->pending += connection->pending;
	deadline_set(connection, ANSWER_SECONDS);
	if (connection->pending == 0) /* no memory for it */
		connection_end(connection);
}

/* Looks whether a whole request has come. */
static void connection_step(struct connection *connection)
{
	struct evbuffer *input = bufferevent_get_input(connection->bev);
	size_t count = evbuffer_get_length(input), used = 0;
	const char *bytes;
	int status;

	if (count > HTTP_HEAD_MAX + 8)
		count = HTTP_HEAD_MAX + 8;
	bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)count);
	if (!bytes)
		return;
	status = http_request_parse(bytes, count, &connection->http->request, &used);
	if (status == 0)
		return;
	evbuffer_drain(input, used);
	connection_answer(connection, status);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct connection *connection = arg;

	if (connection->state == CONNECTION_ASKING)
		connection_step(connection);
	else if (connection->state == CONNECTION_CLOSING)
		evbuffer_drain(bufferevent_get_input(bev), SIZE_MAX);
}

/* The answer is with the kernel. */
static void on_written(struct bufferevent *bev, void *arg)
{
	struct connection *connection = arg;

	if (connection->state != CONNECTION_ANSWERING)
		return;
	connection->http->pending -= connection->pending;
	connection->pending = 0;
	if (connection->close) {
		connection_end(connection);
		return;
	}
	connection->state = CONNECTION_ASKING;
	connection->idle = true;
	deadline_set(connection, IDLE_SECONDS);
	bufferevent_enable(bev, EV_READ);
	connection_step(connection); /* the next one may be there already */
}

/* ---- the beginning ---- */

/* One that waits for nothing makes room; false: there is none. */
static bool connection_make_room(struct http *http)
{
	struct connection *connection;

	TAILQ_FOREACH (connection, &http->connections, link)
		if (connection->idle && evbuffer_get_length(bufferevent_get_input(connection->bev)) == 0) {
			connection_free(connection);
			return true;
		}
	return false;
}

static struct connection *connection_new(struct http *http, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	struct event_base *base = http->daemon->base;

	if (!connection)
		return NULL;
	connection->http = http;
	connection->deadline = evtimer_new(base, on_deadline, connection);
	if (connection->deadline)
		connection->bev = http->tls ? http_tls_accept(http->tls, base, fd)
					    : bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!connection->bev) {
		if (connection->deadline)
			event_free(connection->deadline);
		free(connection);
		return NULL;
	}
	return connection;
}

/* http-listen.c: somebody has come. */
static void on_accept(void *arg, const struct http_listener *at, int fd)
{
	struct http *http = arg;
	struct connection *connection;
	bool full = http->stats.connections - http->refusals >= http->max_connections && !connection_make_room(http);

	http->stats.refused += full;
	if (full && http->refusals >= REFUSALS_MAX) {
		close(fd);
		return;
	}
	connection = connection_new(http, fd);
	if (!connection) {
		close(fd);
		return;
	}
	connection->at = at;
	connection->refused = full;
	connection->close = full;
	connection->local = !http->tls;
	http->refusals += full;
	http->stats.connections++;
	TAILQ_INSERT_TAIL(&http->connections, connection, link);
	bufferevent_setcb(connection->bev, on_read, on_written, on_event, connection);
	/* no more than a request at a time: what does not fit stays with the kernel */
	bufferevent_setwatermark(connection->bev, EV_READ, 0, HTTP_HEAD_MAX + 16);
	bufferevent_enable(connection->bev, EV_READ | EV_WRITE);
	deadline_set(connection, full ? CLOSE_SECONDS : REQUEST_SECONDS);
}

/* The same: an address is no more. Who has asked there gets an answer. */
static void on_gone(void *arg, const struct http_listener *at)
{
	struct http *http = arg;
	struct connection *connection = TAILQ_FIRST(&http->connections), *next;

	for (; connection; connection = next) {
		next = TAILQ_NEXT(connection, link);
		if (connection->at != at)
			continue;
		connection->at = NULL;
		connection->close = true;
		if (connection->idle && evbuffer_get_length(bufferevent_get_input(connection->bev)) == 0)
			connection_free(connection);
	}
}

/* ---- all of it ---- */

int http_secrets_load(const struct config *config, struct http_secrets *ret_secrets)
{
	const struct config_http *http = &config->http;
	struct http_secrets secrets = {0};
	unsigned int line = http->token_file.line;
	int rc = 0;

	if (http->token_file.text[0])
		rc = http_token_load(http->token_file.text, &secrets.token);
	if (rc == 0 && http->certificate.text[0]) {
		line = http->certificate.line;
		rc = http_tls_load(http->certificate.text, http->private_key.text, &secrets.tls);
	}
	if (rc < 0)
		return err_set(rc, "%s:%u: [http] %s", config->file, line, err_text());
	*ret_secrets = secrets;
	return 0;
}

bool http_secrets_same(const struct http *http, const struct http_secrets *secrets)
{
	return http_tls_same(http->tls, secrets->tls) && http->token.set == secrets->token.set &&
	       memcmp(http->token.hash, secrets->token.hash, sizeof(http->token.hash)) == 0;
}

void http_secrets_use(struct http *http, struct http_secrets *secrets)
{
	http_tls_free(http->tls); /* connections hold on to what they use */
	http->tls = secrets->tls;
	http->token = secrets->token;
	http->stats.expires = http->tls ? (uint64_t)http_tls_expires(http->tls) : 0;
	*secrets = (struct http_secrets){0};
}

void http_secrets_free(struct http_secrets *secrets)
{
	http_tls_free(secrets->tls);
	*secrets = (struct http_secrets){0};
}

int http_bind(struct daemon *daemon, const struct config *config, struct http **ret_http)
{
	struct http_secrets secrets;
	struct http *http;
	int rc;

	*ret_http = NULL;
	if (!config->http.line)
		return 0;
	rc = http_secrets_load(config, &secrets);
	if (rc < 0)
		return rc;
	http = calloc(1, sizeof(*http));
	if (!http) {
		http_secrets_free(&secrets);
		return err_set(-ENOMEM, "out of memory");
	}
	http->daemon = daemon;
	http_config_use(http, config);
	TAILQ_INIT(&http->connections);
	http_secrets_use(http, &secrets);
	http->answers = http_answers_create(daemon);
	rc = http->answers ? http_listeners_create(daemon->base, daemon->log,
						   &(struct http_listeners_to){on_accept, on_gone, http}, &http->listeners)
			   : err_set(-ENOMEM, "out of memory");
	if (rc == 0)
		rc = http_listeners_prepare(http->listeners, config, &http->opening);
	if (rc < 0) {
		http_close(http);
		return rc;
	}
	*ret_http = http;
	return 0;
}

int http_open(struct http *http)
{
	int rc = http_listeners_open(&http->opening, http->daemon->base);

	if (rc == 0)
		http_listeners_commit(http->listeners, &http->opening);
	return rc;
}

struct http_listeners *http_listeners(struct http *http)
{
	return http->listeners;
}

void http_config_use(struct http *http, const struct config *config)
{
	http->max_connections = (uint64_t)config->http.max_connections.number;
}

void http_close(struct http *http)
{
	struct connection *connection;

	if (!http)
		return;
	if (http->listeners)
		http_listeners_undo(http->listeners, &http->opening);
	http_listeners_free(http->listeners);
	while ((connection = TAILQ_FIRST(&http->connections)))
		connection_free(connection);
	http_answers_free(http->answers);
	http_tls_free(http->tls);
	free(http);
}

const struct http_stats *http_stats(const struct http *http)
{
	return &http->stats;
}

void http_check(const struct config *config, struct config_errors *errors)
{
	struct http_secrets secrets;

	if (!config->http.line || (config->http.certificate.text[0] && !config->http.private_key.text[0]))
		return;
	if (http_secrets_load(config, &secrets) < 0)
		config_error(errors, "%s", err_text());
	else
		http_secrets_free(&secrets);
}
