/* SPDX-License-Identifier: BSD-2-Clause */
/* http-answer.h - what is answered to a request */
#ifndef TARN_DAEMON_HTTP_ANSWER_H
#define TARN_DAEMON_HTTP_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include <event2/buffer.h>

#include "daemon.h"
#include "http-request.h"
#include "http-tls.h"

/* Answers that are costly are kept for a moment: however often somebody asks, the daemon has more to do. */
#define HTTP_KEEP_NS 100000000u

struct http_answers;

/* NULL without memory. */
struct http_answers *http_answers_create(struct daemon *daemon);
void http_answers_free(struct http_answers *answers);
/*
 * Appends a whole answer, head and body, to `to`; returns its status. `status`: what
 * http_request_parse() has returned, or 503 for a connection beyond the limit; unless it is 200, nothing
 * in `request` is looked at. `local`: the listener is on loopback without TLS, where a browser could be made to ask
 * by a page from elsewhere. *inout_close: shall, will the connection be closed behind it?
 */
int http_answer(struct http_answers *answers, int status, const struct http_request *request,
		const struct http_token *token, bool local, bool *inout_close, struct evbuffer *to);

#endif
