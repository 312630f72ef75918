/* SPDX-License-Identifier: BSD-2-Clause */
/* http-request.h - the head of an HTTP request, as text */
#ifndef TARN_DAEMON_HTTP_REQUEST_H
#define TARN_DAEMON_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_HEAD_MAX    8192u /* bytes of a request */
#define HTTP_HEADERS_MAX 64u

/* Texts are in `text`; NULL: there is no such header. */
struct http_request {
	const char *method, *path, *query; /* path without its query; query NULL: none */
	const char *host, *accept, *authorization;
	bool keep_alive; /* the client wants to ask more */
	bool body;       /* it sends something behind the head, which is not read */
	char text[HTTP_HEAD_MAX + 1];
};

/*
 * 0: it is not complete yet. 200: it is, and has taken ret_used bytes. Else the status with which to
 * refuse it; what follows in the connection can't be told apart from it any more.
 */
int http_request_parse(const char *bytes, size_t count, struct http_request *ret, size_t *ret_used);

#endif
