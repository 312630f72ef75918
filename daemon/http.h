/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * http.h - statistics over HTTP: GET and HEAD alone, nothing can be changed by it
 *
 * http.c has sockets and connections, http-request.c takes a request apart, http-answer.c answers it,
 * http-tls.c has certificate and token.
 */
#ifndef TARN_DAEMON_HTTP_H
#define TARN_DAEMON_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "daemon.h"
#include "http-tls.h"

struct http;

/* What is in the files that [http] names. */
struct http_secrets {
	struct http_tls *tls; /* NULL: none */
	struct http_token token;
};

struct http_stats {
	uint64_t connections; /* open ones */
	uint64_t refused, dropped;
	uint64_t answers[6]; /* by the first digit of the status */
	uint64_t expires;    /* the certificate, seconds since 1970; 0: there is none */
};

/*
 * As the configuration's [http] says: reads certificate and token, takes the addresses; nobody can
 * connect yet. *ret_http is NULL when there is no such section. 0, or a negative code with a text that
 * begins with file and line.
 */
int http_bind(struct daemon *daemon, const struct config *config, struct http **ret_http);
/* From now on. 0, or a negative code with a text. */
int http_open(struct http *http);
/* All listeners and connections, at once; another http_bind() may follow. NULL is fine. */
void http_close(struct http *http);
/* For reload-http.c. */
struct http_listeners *http_listeners(struct http *http);
/* What else [http] says is this from now on. */
void http_config_use(struct http *http, const struct config *config);
/*
 * A reload: reads and checks certificate, key and token; nothing without [http]. 0, or a negative code with a
 * text that begins with file and line.
 */
int http_secrets_load(const struct config *config, struct http_secrets *ret_secrets);
/* Are these the ones that are in use? */
bool http_secrets_same(const struct http *http, const struct http_secrets *secrets);
/* Takes them over, for the connections and requests from now on. Can not fail. */
void http_secrets_use(struct http *http, struct http_secrets *secrets);
void http_secrets_free(struct http_secrets *secrets);
const struct http_stats *http_stats(const struct http *http);

/* tarnd -t: are the files of [http] right? */
void http_check(const struct config *config, struct config_errors *errors);

#endif
