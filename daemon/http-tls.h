/* SPDX-License-Identifier: BSD-2-Clause */
/* http-tls.h - certificate and token of the HTTP listeners */
#ifndef TARN_DAEMON_HTTP_TLS_H
#define TARN_DAEMON_HTTP_TLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <event2/bufferevent.h>

/* ---- TLS ---- */

struct http_tls;

/*
 * Reads a certificate chain and its key, PEM. 0, or a negative code with a text that names the file and
 * what to do: not there, not readable, not matching, expired, not valid yet.
 */
int http_tls_load(const char *certificate, const char *key, struct http_tls **ret_tls);
void http_tls_free(struct http_tls *tls);
/* Have both the same certificate? NULL: none. */
bool http_tls_same(const struct http_tls *one, const struct http_tls *other);
/* Seconds since 1970. */
int64_t http_tls_expires(const struct http_tls *tls);
/* The server's side of a connection; owns fd. NULL: no memory, fd is still the caller's. */
struct bufferevent *http_tls_accept(const struct http_tls *tls, struct event_base *base, int fd);

/* Tells the client that nothing more comes. */
void http_tls_finish(struct bufferevent *bev);

/* 0, or a text: can not be read, or others may read (mode & forbidden) what nobody else may: "remedy path". */
int http_tls_file_check(const char *path, mode_t forbidden, const char *remedy);

/* ---- the token ---- */

#define HTTP_TOKEN_MIN 16u
#define HTTP_TOKEN_MAX 512u

/* Its hash: the secret itself is not kept, and hashes of one length can be compared in constant time. */
struct http_token {
	bool set;
	uint8_t hash[32];
};

/* The first line of the file, mode 0600. 0, or a negative code with a text. */
int http_token_load(const char *path, struct http_token *ret_token);
/* Is this the value of an Authorization header with the token? NULL: there is none. */
bool http_token_check(const struct http_token *token, const char *authorization);

#endif
