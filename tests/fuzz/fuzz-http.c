/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes requests of HTTP: bytes as they come from a connection, until the daemon would close it. What is
 * answered must be an answer: its head as HTTP wants it, its length right, its body JSON or metrics, and
 * nothing but 401 where the token is wrong, except of the dashboard's files. The daemon has no pools and no listeners.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "clock.h"
#include "config.h"
#include "dashboard.h"
#include "events.h"
#include "http-answer.h"
#include "http-request.h"
#include "port-stats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct daemon the_daemon;
static struct http_answers *answers;
static struct config config;
static struct http_request request;

static void begin(void)
{
	the_daemon.config = &config;
	the_daemon.events = events_create(NULL);
	the_daemon.port_stats = port_stats_create("/nonexistent");
	the_daemon.started_ns = clock_now_ns();
	the_daemon.ready_ms = 1;
	events_tell(the_daemon.events, EVENT_started, NULL, "fuzzing");
	answers = http_answers_create(&the_daemon);
}

/* The body behind the head; checks the head. */
static const char *body_of(const char *answer, size_t length, int status, bool head_only)
{
	const char *body = strstr(answer, "\r\n\r\n"), *stated = strstr(answer, "\r\nContent-Length: ");
	char begin_wanted[32];

	snprintf(begin_wanted, sizeof(begin_wanted), "HTTP/1.1 %d ", status);
	if (strncmp(answer, begin_wanted, strlen(begin_wanted)) != 0 || !body || !stated || stated > body)
		abort();
	body += 4;
	if (!head_only &&
	    strtoull(stated + strlen("\r\nContent-Length: "), NULL, 10) != length - (size_t)(body - answer))
		abort();
	if (head_only && *body)
		abort();
	return body;
}

static void body_check(const char *answer, const char *body)
{
	json_t *json;

	if (strncmp(answer, "HTTP/1.1 200 ", 13) == 0 && dashboard_find(request.path)) {
		const struct dashboard_file *file = dashboard_find(request.path);

		if (memcmp(body, file->bytes, *file->length) != 0)
			abort();
		return;
	}
	if (strstr(answer, "Content-Type: application/json") == NULL) {
		if (strncmp(body, "# HELP tarn_build_info", 22) != 0)
			abort();
		return;
	}
	json = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
	if (!json || json_integer_value(json_object_get(json, "schema")) != 1)
		abort();
	json_decref(json);
}

/* Returns whether the connection goes on. */
static bool answer(int status, const struct http_token *token)
{
	bool head_only = status == 200 && strcmp(request.method, "HEAD") == 0, close = false;
	struct evbuffer *to = evbuffer_new();
	size_t length;
	char *text;

	status = http_answer(answers, status, &request, token, true, &close, to);
	length = evbuffer_get_length(to);
	text = calloc(1, length + 1);
	evbuffer_remove(to, text, length);
	evbuffer_free(to);
	if (token->set && status == 200 && strcmp(request.path, "/healthz") != 0 &&
	    strcmp(request.path, "/readyz") != 0 && !dashboard_find(request.path) && !request.authorization)
		abort();
	if (!head_only)
		body_check(text, body_of(text, length, status, false));
	else
		(void)body_of(text, length, status, true);
	free(text);
	return !close;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_token token = {0};
	const char *at;
	char *copy;
	int status;

	if (!answers)
		begin();
	if (size < 1 || size > 65536)
		return 0;
	token.set = data[0] & 1; /* a hash that no token has */
	copy = malloc(size);     /* a block of its own: what is read behind it is seen */
	memcpy(copy, data + 1, size - 1);
	at = copy;
	size--;
	while (size > 0) {
		size_t used = 0;

		status = http_request_parse(at, size, &request, &used);
		if (status == 200 && (used == 0 || used > size))
			abort();
		if (status == 0)
			break;
		if (!answer(status, &token))
			break;
		at += used;
		size -= used;
	}
	free(copy);
	return 0;
}
