/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks etcd over HTTP, by libevent's evhttp. Main thread. Each call has a connection for itself, which the next one may use
 * again; what evhttp does not bound is bounded here: the time of a whole answer, a line of a stream. What evhttp calls back only notes what
 * has happened; everything else is done in a turn of the loop of its own, so that connections are never freed beneath evhttp, and who
 * is called back may do what it wants. Next to read: membership-etcd.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/http.h>
#include <openssl/err.h>

#include "err.h"
#include "membership-etcd-client.h"
#include "membership-etcd-message.h"

#define HEAD_MAX      65536 /* bytes of an answer's head */
#define LINKS_IDLE    4u
#define QUIET_SECONDS 86400 /* evhttp's own limit: ours are shorter */
#define AUTH_LIMIT_MS 5000u

/* A connection. */
struct etcd_link {
	TAILQ_ENTRY(etcd_link) link; /* while it is idle */
	struct evhttp_connection *connection;
	unsigned int endpoint, generation;
	bool closed;
};

struct etcd_call {
	TAILQ_ENTRY(etcd_call) link;
	struct etcd_client *client;
	struct etcd_link *at; /* NULL: not begun, it waits for the token */
	struct event *deadline, *turn;
	char *path, *body;
	bool fresh, ended, streaming, used_up, no_token;
	size_t streamed; /* bytes */
	int status;
	struct evbuffer *answer;
	char error[256];
	unsigned int endpoint;
	void (*on_line)(void *arg, const char *line, size_t bytes);
	void (*done)(void *arg, const struct etcd_reply *reply);
	void *arg;
	bool *gone; /* somebody wants to know whether it was freed meanwhile */
};

struct etcd_client {
	struct event_base *base;
	struct evdns_base *names; /* NULL: all endpoints are addresses */
	struct etcd_settings settings;
	unsigned int at, generation; /* the endpoint in use; of the settings */
	char endpoint[300];
	char *token;
	struct etcd_call *authentication;
	TAILQ_HEAD(, etcd_link) idle;
	unsigned int idle_count;
	TAILQ_HEAD(, etcd_call) calls;
};

static int call_begin(struct etcd_call *call);

/* ---- connections ---- */

static void link_free(struct etcd_link *at)
{
	if (!at)
		return;
	if (at->connection)
		evhttp_connection_free(at->connection);
	free(at);
}

static void on_close(struct evhttp_connection *connection, void *arg)
{
	struct etcd_link *at = arg;

	(void)connection;
	at->closed = true;
}

static void endpoint_text(const struct config_endpoint *endpoint, char *buffer, size_t bytes)
{
	bool six = strchr(endpoint->host, ':') != NULL;

	snprintf(buffer, bytes, "%s://%s%s%s:%u", endpoint->tls ? "https" : "http", six ? "[" : "", endpoint->host,
		 six ? "]" : "", endpoint->port);
}

/* An address needs nobody to look it up, and evhttp asks the loop's resolver for names alone. */
static bool is_address(const char *host)
{
	struct in6_addr number;

	return inet_pton(AF_INET, host, &number) == 1 || inet_pton(AF_INET6, host, &number) == 1;
}

static struct evdns_base *names_of(struct etcd_client *client, const char *host)
{
	if (is_address(host))
		return NULL;
	if (!client->names)
		client->names = evdns_base_new(client->base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
								     EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	return client->names;
}

static struct bufferevent *bufferevent_of(struct etcd_client *client, const struct config_endpoint *endpoint)
{
	struct bufferevent *bev;
	SSL *ssl;

	if (!endpoint->tls)
		return bufferevent_socket_new(client->base, -1, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	ssl = etcd_tls_connect(&client->settings, endpoint);
	if (!ssl)
		return NULL;
	bev = bufferevent_openssl_socket_new(client->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING,
					     BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	if (bev)
		bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	else
		SSL_free(ssl);
	return bev;
}

static struct etcd_link *link_new(struct etcd_client *client)
{
	const struct config_endpoint *endpoint = &client->settings.endpoints[client->at];
	struct etcd_link *at = calloc(1, sizeof(*at));
	struct evdns_base *names = names_of(client, endpoint->host);
	struct bufferevent *bev = NULL;

	if (at && (names || is_address(endpoint->host)))
		bev = bufferevent_of(client, endpoint);
	if (bev)
		at->connection = evhttp_connection_base_bufferevent_new(client->base, names, bev, endpoint->host,
									endpoint->port);
	if (!at || !at->connection) {
		if (bev)
			bufferevent_free(bev);
		free(at);
		return NULL;
	}
	at->endpoint = client->at;
	at->generation = client->generation;
	evhttp_connection_set_timeout(at->connection, QUIET_SECONDS);
	evhttp_connection_set_max_headers_size(at->connection, HEAD_MAX);
	evhttp_connection_set_max_body_size(at->connection, ETCD_ANSWER_MAX);
	evhttp_connection_set_closecb(at->connection, on_close, at);
	return at;
}

static struct etcd_link *link_get(struct etcd_client *client, bool fresh)
{
	struct etcd_link *at = TAILQ_FIRST(&client->idle), *next;

	for (; at && !fresh; at = next) {
		next = TAILQ_NEXT(at, link);
		TAILQ_REMOVE(&client->idle, at, link);
		client->idle_count--;
		if (!at->closed && at->endpoint == client->at && at->generation == client->generation)
			return at;
		link_free(at);
	}
	return link_new(client);
}

/* The call has its answer: another one may have the connection. */
static void link_put(struct etcd_client *client, struct etcd_link *at)
{
	if (at->closed || at->endpoint != client->at || at->generation != client->generation ||
	    client->idle_count >= LINKS_IDLE) {
		link_free(at);
		return;
	}
	TAILQ_INSERT_TAIL(&client->idle, at, link);
	client->idle_count++;
}

/* ---- the end of a call ---- */

static void call_free(struct etcd_call *call)
{
	struct etcd_client *client = call->client;

	if (call->gone)
		*call->gone = true;
	TAILQ_REMOVE(&client->calls, call, link);
	if (client->authentication == call)
		client->authentication = NULL;
	link_free(call->at);
	if (call->deadline)
		event_free(call->deadline);
	if (call->turn)
		event_free(call->turn);
	if (call->answer)
		evbuffer_free(call->answer);
	free(call->path);
	free(call->body);
	free(call);
}

void etcd_call_cancel(struct etcd_call *call)
{
	if (call)
		call_free(call);
}

static void call_done(struct etcd_call *call)
{
	void (*done)(void *arg, const struct etcd_reply *reply) = call->done;
	struct evbuffer *answer = call->answer;
	struct etcd_reply reply = {.status = call->status, .endpoint = call->endpoint};
	char error[sizeof(call->error)];
	void *arg = call->arg;

	memcpy(error, call->error, sizeof(error));
	reply.bytes = evbuffer_get_length(answer);
	reply.body = reply.bytes ? (const char *)evbuffer_pullup(answer, -1) : "";
	reply.error = error[0] ? error : NULL;
	if (!reply.body) {
		reply.bytes = 0;
		reply.body = "";
		reply.error = "no memory for the answer";
	}
	call->answer = NULL;
	if (!reply.error && !call->streaming && call->at) {
		link_put(call->client, call->at);
		call->at = NULL;
	}
	call_free(call);
	done(arg, &reply);
	evbuffer_free(answer);
}

/* What went wrong, as far as it can be known: TLS says why, sockets only sometimes. */
static void call_fail(struct etcd_call *call, const char *what)
{
	const struct config_endpoint *endpoint = &call->client->settings.endpoints[call->endpoint];
	struct bufferevent *bev = call->at ? evhttp_connection_get_bufferevent(call->at->connection) : NULL;
	SSL *ssl = bev && endpoint->tls ? bufferevent_openssl_get_ssl(bev) : NULL;
	unsigned long code = ssl ? bufferevent_get_openssl_error(bev) : 0;
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	char at[300];

	if (call->error[0])
		return;
	if (call->at && call->at->generation != call->client->generation)
		snprintf(at, sizeof(at), "an endpoint of before the reload");
	else
		endpoint_text(endpoint, at, sizeof(at));
	if (ssl && SSL_get_verify_result(ssl) != X509_V_OK)
		snprintf(call->error, sizeof(call->error), "%.120s: its certificate is not right: %s (etcd_ca says whom to trust)",
			 at, X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
	else
		snprintf(call->error, sizeof(call->error), "%.120s: %s%s%s", at, what, reason ? ": TLS: " : "",
			 reason ? reason : "");
}

/* ---- what evhttp calls back ---- */

static void turn_soon(struct etcd_call *call)
{
	event_active(call->turn, EV_TIMEOUT, 0);
}

static void on_error(enum evhttp_request_error error, void *arg)
{
	struct etcd_call *call = arg;

	switch (error) {
	case EVREQ_HTTP_TIMEOUT:
		call_fail(call, "no answer");
		break;
	case EVREQ_HTTP_EOF:
		call_fail(call, "the connection has ended in the middle of the answer, or in front of it");
		break;
	case EVREQ_HTTP_INVALID_HEADER:
		call_fail(call, "the answer is not HTTP");
		break;
	case EVREQ_HTTP_BUFFER_ERROR:
		call_fail(call, "the connection is broken");
		break;
	case EVREQ_HTTP_REQUEST_CANCEL:
		break;
	case EVREQ_HTTP_DATA_TOO_LONG:
		/* a stream that has told much: it is asked for again, nothing is wrong */
		call->used_up = call->streaming && call->streamed > ETCD_ANSWER_MAX / 2;
		if (!call->used_up)
			call_fail(call, "the answer is too long");
		break;
	}
}

static void on_answer(struct evhttp_request *request, void *arg)
{
	struct etcd_call *call = arg;

	call->ended = true;
	call->status = request ? evhttp_request_get_response_code(request) : 0;
	if (call->used_up)
		call->status = 200;
	else if (call->status)
		evbuffer_add_buffer(call->answer, evhttp_request_get_input_buffer(request));
	else
		call_fail(call, "no connection: is etcd there, and is it the right address?");
	turn_soon(call);
}

static void on_chunk(struct evhttp_request *request, void *arg)
{
	struct etcd_call *call = arg;
	struct evbuffer *more = evhttp_request_get_input_buffer(request);

	call->streamed += evbuffer_get_length(more);
	evbuffer_add_buffer(call->answer, more);
	turn_soon(call);
}

/* ---- turns ---- */

/* A stream that dies without a word is noticed by TCP. */
static void stream_begins(struct etcd_call *call)
{
	int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(call->at->connection));
	int one = 1, idle = 5, interval = 3, count = 3;

	call->streaming = true;
	event_del(call->deadline);
	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Hands the whole lines of a stream over; false: the call is gone. */
static bool lines_step(struct etcd_call *call)
{
	bool gone = false;
	size_t length;
	char *line;

	call->gone = &gone;
	while (!gone && (line = evbuffer_readln(call->answer, &length, EVBUFFER_EOL_LF))) {
		if (!call->streaming)
			stream_begins(call);
		call->on_line(call->arg, line, length);
		free(line);
	}
	if (!gone)
		call->gone = NULL;
	return !gone;
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct etcd_call *call = arg;

	(void)fd;
	(void)what;
	if (!call->at && !call->ended && !call->error[0]) { /* it has waited for the token */
		if (call_begin(call) == 0)
			return;
		call->ended = true;
	}
	if (call->on_line && !lines_step(call))
		return;
	if (!call->ended && evbuffer_get_length(call->answer) > ETCD_ANSWER_MAX)
		call_fail(call, "a line of the answer is too long");
	if (call->ended || call->error[0])
		call_done(call);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct etcd_call *call = arg;

	(void)fd;
	(void)what;
	call_fail(call, call->at ? "no answer within the time limit" : "no token within the time limit");
	call_done(call);
}

/* ---- authentication ---- */

static bool token_needed(const struct etcd_client *client)
{
	return client->settings.user && !client->token;
}

static void authenticated(void *arg, const struct etcd_reply *reply)
{
	struct etcd_client *client = arg;
	struct etcd_answer answer = {0};
	char error[sizeof(((struct etcd_call *)NULL)->error)] = "";
	struct etcd_call *call;

	if (reply->error)
		snprintf(error, sizeof(error), "%s", reply->error);
	else if (etcd_answer_parse(reply->body, reply->bytes, &answer) < 0)
		snprintf(error, sizeof(error), "%.250s", err_text());
	else if (answer.code || !answer.token)
		snprintf(error, sizeof(error), "etcd does not let user '%.60s' in (etcd_user, etcd_password_file): %.120s",
			 client->settings.user ? client->settings.user : "", answer.code ? answer.error : "no token");
	if (!error[0])
		etcd_client_token_set(client, answer.token);
	etcd_answer_free(&answer);
	TAILQ_FOREACH (call, &client->calls, link) {
		if (call->at || call->no_token || call->ended)
			continue;
		memcpy(call->error, error, sizeof(error));
		call->endpoint = reply->endpoint;
		turn_soon(call);
	}
}

static struct etcd_call *call_new(struct etcd_client *client, const char *path, char *body);

/* Unless it is under way. */
static int authenticate(struct etcd_client *client)
{
	struct etcd_call *call;

	if (client->authentication)
		return 0;
	call = call_new(client, "/v3/auth/authenticate",
			etcd_authenticate(client->settings.user, client->settings.password));
	if (!call)
		return -ENOMEM;
	call->no_token = true;
	call->done = authenticated;
	call->arg = client;
	client->authentication = call;
	event_add(call->deadline, &(struct timeval){.tv_sec = AUTH_LIMIT_MS / 1000});
	if (call_begin(call) < 0)
		turn_soon(call);
	return 0;
}

/* ---- the beginning of a call ---- */

static struct evhttp_request *request_new(struct etcd_call *call)
{
	const struct config_endpoint *endpoint = &call->client->settings.endpoints[call->client->at];
	struct evhttp_request *request = evhttp_request_new(on_answer, call);
	struct evkeyvalq *headers;
	char host[300];

	if (!request)
		return NULL;
	evhttp_request_set_error_cb(request, on_error);
	if (call->on_line)
		evhttp_request_set_chunked_cb(request, on_chunk);
	headers = evhttp_request_get_output_headers(request);
	endpoint_text(endpoint, host, sizeof(host));
	if (evhttp_add_header(headers, "Host", strstr(host, "://") + 3) < 0 ||
	    evhttp_add_header(headers, "Content-Type", "application/json") < 0 ||
	    (call->client->token && !call->no_token &&
	     evhttp_add_header(headers, "Authorization", call->client->token) < 0) ||
	    evbuffer_add(evhttp_request_get_output_buffer(request), call->body, strlen(call->body)) < 0) {
		evhttp_request_free(request);
		return NULL;
	}
	return request;
}

/* 0, or a negative code, and the call has its error's text. */
static int call_begin(struct etcd_call *call)
{
	struct etcd_client *client = call->client;
	struct evhttp_request *request;

	call->endpoint = client->at;
	call->at = link_get(client, call->fresh);
	request = call->at ? request_new(call) : NULL;
	if (!request || evhttp_make_request(call->at->connection, request, EVHTTP_REQ_POST, call->path) < 0) {
		call_fail(call, "can not be asked: no memory, or nobody to look its name up (/etc/resolv.conf)");
		return -ENOMEM;
	}
	return 0;
}

static struct etcd_call *call_new(struct etcd_client *client, const char *path, char *body)
{
	struct etcd_call *call = calloc(1, sizeof(*call));

	if (!call) {
		free(body);
		return NULL;
	}
	call->client = client;
	call->body = body;
	call->path = strdup(path);
	call->answer = evbuffer_new();
	call->deadline = evtimer_new(client->base, on_deadline, call);
	call->turn = evtimer_new(client->base, on_turn, call);
	TAILQ_INSERT_TAIL(&client->calls, call, link);
	if (call->body && call->path && call->answer && call->deadline && call->turn)
		return call;
	call_free(call);
	return NULL;
}

struct etcd_call *etcd_post(struct etcd_client *client, const char *path, char *body, unsigned int limit_ms, bool fresh,
			    void (*on_line)(void *arg, const char *line, size_t bytes),
			    void (*done)(void *arg, const struct etcd_reply *reply), void *arg)
{
	struct etcd_call *call = call_new(client, path, body);

	if (!call)
		return NULL;
	call->fresh = fresh || on_line;
	call->on_line = on_line;
	call->done = done;
	call->arg = arg;
	call->endpoint = client->at;
	event_add(call->deadline, &(struct timeval){.tv_sec = limit_ms / 1000, .tv_usec = limit_ms % 1000 * 1000});
	if (token_needed(client)) {
		if (authenticate(client) < 0) {
			call_free(call);
			return NULL;
		}
	} else if (call_begin(call) < 0) {
		turn_soon(call);
	}
	return call;
}

/* ---- the client ---- */

static void idle_free(struct etcd_client *client)
{
	struct etcd_link *at;

	while ((at = TAILQ_FIRST(&client->idle))) {
		TAILQ_REMOVE(&client->idle, at, link);
		link_free(at);
	}
	client->idle_count = 0;
}

struct etcd_client *etcd_client_create(struct event_base *base, struct etcd_settings *settings)
{
	struct etcd_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->base = base;
	TAILQ_INIT(&client->idle);
	TAILQ_INIT(&client->calls);
	client->settings = *settings;
	*settings = (struct etcd_settings){0};
	return client;
}

void etcd_client_free(struct etcd_client *client)
{
	struct etcd_call *call;

	if (!client)
		return;
	while ((call = TAILQ_FIRST(&client->calls)))
		call_free(call);
	idle_free(client);
	if (client->names)
		evdns_base_free(client->names, 0);
	etcd_settings_free(&client->settings);
	etcd_client_token_set(client, NULL);
	free(client);
}

struct etcd_client *etcd_client_move(struct etcd_client *client, struct event_base *base)
{
	struct etcd_client *moved = etcd_client_create(base, &client->settings);

	if (moved) {
		moved->at = client->at;
		etcd_client_token_set(moved, client->token);
	}
	etcd_client_free(client);
	return moved;
}

void etcd_client_settings(struct etcd_client *client, struct etcd_settings *settings)
{
	struct etcd_call *call;

	if (client->authentication)
		call_free(client->authentication);
	TAILQ_FOREACH (call, &client->calls, link)
		if (!call->at)
			turn_soon(call); /* asks without a token, and begins again with the answer */
	etcd_settings_free(&client->settings); /* connections hold on to what they use of TLS */
	client->settings = *settings;
	*settings = (struct etcd_settings){0};
	client->at = 0;
	client->generation++;
	idle_free(client);
	etcd_client_token_set(client, NULL);
}

void etcd_client_rotate(struct etcd_client *client, unsigned int failed_endpoint)
{
	if (client->at == failed_endpoint)
		client->at = (client->at + 1) % (unsigned int)client->settings.count;
}

size_t etcd_client_endpoints(const struct etcd_client *client)
{
	return client->settings.count;
}

const char *etcd_client_endpoint(const struct etcd_client *client)
{
	struct etcd_client *mine = (struct etcd_client *)(uintptr_t)client;

	endpoint_text(&client->settings.endpoints[client->at], mine->endpoint, sizeof(mine->endpoint));
	return client->endpoint;
}

const char *etcd_client_token(const struct etcd_client *client)
{
	return client->token;
}

void etcd_client_token_set(struct etcd_client *client, const char *token)
{
	free(client->token);
	client->token = token ? strdup(token) : NULL;
}
