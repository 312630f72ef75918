/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers HTTP requests: who may ask, what there is, and in which form. Main thread; changes nothing but
 * its own memory of the last answers. It has no connection and no socket: tests/fuzz/fuzz-http.c calls it
 * with bytes. Next to read: control.c and metrics-rows.c, which have the contents; dashboard.c has the page at /.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "clock.h"
#include "control.h"
#include "dashboard.h"
#include "health.h"
#include "http-answer.h"
#include "metrics.h"

#define JSON_TYPE "application/json; charset=utf-8"

enum endpoint_form { FORM_JSON, FORM_METRICS, FORM_HEALTH, FORM_READY };

static const struct endpoint {
	const char *path, *question;
	enum endpoint_form form;
	bool open; /* needs no token: it tells nothing */
} endpoints[] = {
	{"/healthz", NULL, FORM_HEALTH, true},      {"/readyz", NULL, FORM_READY, true},
	{"/metrics", NULL, FORM_METRICS, false},    {"/v1/stats", "stats", FORM_JSON, false},
	{"/v1/pools", "pools", FORM_JSON, false},   {"/v1/clients", "clients", FORM_JSON, false},
	{"/v1/events", "events", FORM_JSON, false}, {"/v1/members", "members", FORM_JSON, false},
	{"/v1/map", "map", FORM_JSON, false},
};
#define ENDPOINTS (sizeof(endpoints) / sizeof(endpoints[0]))

/* /metrics has two forms. */
struct kept {
	struct evbuffer *body;
	uint64_t made_ns;
};

struct http_answers {
	struct daemon *daemon;
	struct kept kept[ENDPOINTS][METRICS_OPENMETRICS + 1];
};

struct http_answers *http_answers_create(struct daemon *daemon)
{
	struct http_answers *answers = calloc(1, sizeof(*answers));

	if (answers)
		answers->daemon = daemon;
	return answers;
}

void http_answers_free(struct http_answers *answers)
{
	if (!answers)
		return;
	for (size_t i = 0; i < ENDPOINTS; i++)
		for (int form = 0; form <= METRICS_OPENMETRICS; form++)
			if (answers->kept[i][form].body)
				evbuffer_free(answers->kept[i][form].body);
	free(answers);
}

/* ---- bodies ---- */

static void text_free(const void *text, size_t bytes, void *arg)
{
	(void)bytes;
	(void)arg;
	free((void *)(uintptr_t)text);
}

/* Takes the text over; NULL: there was no memory for it. */
static int text_add(struct evbuffer *to, char *text)
{
	if (!text)
		return -1;
	if (evbuffer_add_reference(to, text, strlen(text), text_free, NULL) < 0) {
		free(text);
		return -1;
	}
	return evbuffer_add(to, "\n", 1);
}

static int json_add(struct evbuffer *to, json_t *object)
{
	char *text = json_dumps(object, METRICS_JSON_FORM);

	json_decref(object);
	return text_add(to, text);
}

static json_t *document(void)
{
	json_t *object = json_object();

	json_object_set_new(object, "schema", json_integer(1));
	return object;
}

static int body_make(struct daemon *daemon, const struct endpoint *endpoint, enum metrics_format format,
		     struct evbuffer *to)
{
	if (endpoint->form == FORM_METRICS)
		return metrics_scrape(daemon, format, to);
	return text_add(to, control_get(daemon, endpoint->question));
}

/* The kept body, made again when it is old; NULL without memory. */
static struct evbuffer *body_get(struct http_answers *answers, const struct endpoint *endpoint,
				 enum metrics_format format)
{
	struct kept *kept = &answers->kept[endpoint - endpoints][format];
	uint64_t now = clock_now_ns();
	struct evbuffer *fresh;

	if (kept->body && now - kept->made_ns < HTTP_KEEP_NS)
		return kept->body;
	fresh = evbuffer_new();
	if (!fresh || body_make(answers->daemon, endpoint, format, fresh) < 0) {
		if (fresh)
			evbuffer_free(fresh);
		return NULL;
	}
	if (kept->body)
		evbuffer_free(kept->body);
	kept->body = fresh;
	kept->made_ns = now;
	return fresh;
}

/* ---- the head ---- */

static const char *status_text(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 401:
		return "Unauthorized";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 413:
		return "Content Too Large";
	case 421:
		return "Misdirected Request";
	case 431:
		return "Request Header Fields Too Large";
	case 500:
		return "Internal Server Error";
	case 503:
		return "Service Unavailable";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Bad Request";
	}
}

static const char *status_advice(int status)
{
	switch (status) {
	case 401:
		return "send the token of [http] token_file: Authorization: Bearer TOKEN";
	case 404:
		return "there are /, /metrics, /v1/stats, /v1/pools, /v1/clients, /v1/events, /v1/members, /v1/map, "
		       "/healthz and /readyz";
	case 405:
		return "only GET and HEAD are allowed: changes are made by the command tarn, through the unix socket";
	case 413:
		return "requests have no body here";
	case 421:
		return "this listener answers to localhost and to addresses alone, not to other names: a page of "
		       "another site might have sent this request";
	case 431:
		return "a request has at most 8192 bytes and 64 header lines";
	case 500:
		return "out of memory";
	case 503:
		return "there are too many connections: see [http] max_connections";
	case 505:
		return "only HTTP/1.0 and HTTP/1.1 are understood";
	default:
		return "this is no HTTP request";
	}
}

/* more: further lines, each with its end. */
static void head(struct evbuffer *to, int status, const char *type, const char *more, size_t length, bool close)
{
	evbuffer_add_printf(to,
			    "HTTP/1.1 %d %s\r\n"
			    "Content-Type: %s\r\n"
			    "Content-Length: %zu\r\n"
			    "Cache-Control: no-store\r\n"
			    "X-Content-Type-Options: nosniff\r\n"
			    "%s%s%s%s%s\r\n",
			    status, status_text(status), type, length, more, status == 405 ? "Allow: GET, HEAD\r\n" : "",
			    status == 401 ? "WWW-Authenticate: Bearer realm=\"tarnd\"\r\n" : "",
			    status == 503 ? "Retry-After: 1\r\n" : "",
			    close ? "Connection: close\r\n" : "Connection: keep-alive\r\n");
}

/* Head and body; the body's bytes are shared, not copied. A HEAD gets the head alone. */
static int whole(struct evbuffer *to, int status, const char *type, struct evbuffer *body, bool head_only, bool close)
{
	head(to, status, type, "", evbuffer_get_length(body), close);
	if (!head_only && evbuffer_add_buffer_reference(to, body) < 0)
		return 500;
	return status;
}

/* A small JSON document, taken over. */
static int small(struct evbuffer *to, int status, json_t *object, bool head_only, bool close)
{
	struct evbuffer *body = evbuffer_new();

	if (body && json_add(body, object) == 0)
		status = whole(to, status, JSON_TYPE, body, head_only, close);
	if (body)
		evbuffer_free(body);
	return status;
}

static int refuse(struct evbuffer *to, int status, bool head_only, bool close)
{
	json_t *object = document();

	json_object_set_new(object, "error",
			    json_pack("{s:i, s:s, s:s}", "status", status, "name", status_text(status), "text",
				      status_advice(status)));
	return small(to, status, object, head_only, close);
}

static int ready(const struct daemon *daemon, struct evbuffer *to, bool head_only, bool close)
{
	json_t *object = document(), *reasons = json_array();
	bool is = health_ready(daemon, reasons);

	json_object_set_new(object, "ready", json_boolean(is));
	json_object_set_new(object, "reasons", reasons);
	return small(to, is ? 200 : 503, object, head_only, close);
}

static int health(struct evbuffer *to, bool head_only, bool close)
{
	json_t *object = document();

	json_object_set_new(object, "healthy", json_true());
	return small(to, 200, object, head_only, close);
}

/* A file of the dashboard: its bytes are the program's own. */
static int page(struct evbuffer *to, const struct dashboard_file *file, bool head_only, bool close)
{
	head(to, 200, file->type, DASHBOARD_HEADERS, *file->length, close);
	if (!head_only && evbuffer_add_reference(to, file->bytes, *file->length, NULL, NULL) < 0)
		return 500;
	return 200;
}

/* ---- who may ask for what ---- */

/*
 * A page of any site can have its own name lead to 127.0.0.1 and then read what a browser on this host gets
 * there; but it cannot change the name that the browser sends.
 */
static bool host_allowed(const char *host)
{
	size_t length = strcspn(host, ":");

	if (host[0] == '[')
		return true;
	if (length == strlen("localhost") && strncasecmp(host, "localhost", length) == 0)
		return true;
	return length > 0 && strspn(host, "0123456789.") == length;
}

static const struct endpoint *endpoint_find(const char *path)
{
	for (size_t i = 0; i < ENDPOINTS; i++)
		if (strcmp(endpoints[i].path, path) == 0)
			return &endpoints[i];
	return NULL;
}

/* 200 or with which status it is refused. `there`: something is at this path; `open`: for everybody. */
static int judge(const struct http_request *request, bool there, bool open, const struct http_token *token, bool local)
{
	if (local && request->host && !host_allowed(request->host))
		return 421;
	if (token->set && !open && !http_token_check(token, request->authorization))
		return 401;
	if (!there)
		return 404;
	if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
		return 405;
	return request->body ? 413 : 200;
}

int http_answer(struct http_answers *answers, int status, const struct http_request *request,
		const struct http_token *token, bool local, bool *inout_close, struct evbuffer *to)
{
	enum metrics_format format = METRICS_PROMETHEUS;
	const struct dashboard_file *file;
	const struct endpoint *endpoint;
	struct evbuffer *body;
	bool head_only;

	if (status != 200) {
		*inout_close = true;
		return refuse(to, status, false, true);
	}
	*inout_close = *inout_close || !request->keep_alive || request->body;
	head_only = strcmp(request->method, "HEAD") == 0;
	endpoint = endpoint_find(request->path);
	file = dashboard_find(request->path); /* a browser asks for these without a token, and they tell nothing */
	status = judge(request, file || endpoint, file || (endpoint && endpoint->open), token, local);
	if (status != 200)
		return refuse(to, status, head_only, *inout_close);
	if (file)
		return page(to, file, head_only, *inout_close);
	if (endpoint->form == FORM_HEALTH)
		return health(to, head_only, *inout_close);
	if (endpoint->form == FORM_READY)
		return ready(answers->daemon, to, head_only, *inout_close);
	if (endpoint->form == FORM_METRICS)
		format = metrics_format_of(request->accept);
	body = body_get(answers, endpoint, format);
	if (!body)
		return refuse(to, 500, head_only, *inout_close);
	return whole(to, 200, endpoint->form == FORM_METRICS ? metrics_content_type(format) : JSON_TYPE, body,
		     head_only, *inout_close);
}
