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

struct http_listener;
struct http_listeners;

/* The i-th address of [http] listen. 0; -ENOENT: there are no more; -EINVAL with a text. */
int http_address(const struct config_http *http, size_t i, struct config_address *ret_address);
/* 127.0.0.0/8 or ::1. */
bool http_address_local(const struct config_address *address);

/* Who is told. `at` is only compared: two connections with the same one came in at the same address. */
struct http_listeners_to {
	void (*on_accept)(void *arg, const struct http_listener *at, int fd); /* owns the new socket */
	void (*on_gone)(void *arg, const struct http_listener *at);           /* a reload has removed the address */
	void *arg;
};

/* What listeners are to become. */
struct http_listeners_plan {
	struct http_listener *all[HTTP_ADDRESSES_MAX];
	size_t count;
};

/* Without any address yet. 0 or -ENOMEM with a text. */
int http_listeners_create(struct event_base *base, const struct log *log, const struct http_listeners_to *to,
			  struct http_listeners **ret_listeners);
void http_listeners_free(struct http_listeners *listeners);
/*
 * The addresses of the configuration: those that are there already keep their sockets, others are bound. Nothing that serves is
 * changed. 0, or a negative code with a text that begins with file and line; then there is nothing to undo.
 */
int http_listeners_prepare(struct http_listeners *listeners, const struct config *config,
			   struct http_listeners_plan *ret_plan);
/* Listens at the new ones; nobody is accepted before the loop goes on. 0, or a negative code with a text: undo it then. */
int http_listeners_open(const struct http_listeners_plan *plan, struct event_base *base);
void http_listeners_undo(const struct http_listeners *listeners, struct http_listeners_plan *plan);
/* They are the listeners from now on, and others are closed. Can not fail. */
void http_listeners_commit(struct http_listeners *listeners, struct http_listeners_plan *plan);

#endif
