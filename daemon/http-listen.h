/* SPDX-License-Identifier: BSD-2-Clause */
/* http-listen.h - the addresses at which statistics are served */
#ifndef TARN_DAEMON_HTTP_LISTEN_H
#define TARN_DAEMON_HTTP_LISTEN_H

#include <stdbool.h>

#include <event2/event.h>

#include "config.h"
#include "log.h"

#define HTTP_PORT          7471u
#define HTTP_ADDRESSES_MAX 16u

struct http_listeners;

/* The i-th address of [http] listen. 0; -ENOENT: there are no more; -EINVAL with a text. */
int http_address(const struct config_http *http, size_t i, struct config_address *ret_address);
/* 127.0.0.0/8 or ::1. */
bool http_address_local(const struct config_address *address);

/* 0, or a negative code with a text that begins with file and line. */
int http_listeners_bind(const struct config *config, const struct log *log, struct http_listeners **ret_listeners);
/* on_accept gets each new socket and owns it. 0, or a negative code with a text. */
int http_listeners_open(struct http_listeners *listeners, struct event_base *base, void (*on_accept)(void *arg, int fd),
			void *arg);
void http_listeners_close(struct http_listeners *listeners);

#endif
