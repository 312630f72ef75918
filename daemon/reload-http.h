/* SPDX-License-Identifier: BSD-2-Clause */
/* reload-http.h - what a reload does to [http]: the section, its addresses, certificate and token; see reload.c */
#ifndef TARN_DAEMON_RELOAD_HTTP_H
#define TARN_DAEMON_RELOAD_HTTP_H

#include <stdbool.h>

#include "config.h"
#include "daemon.h"
#include "http-listen.h"
#include "http.h"

/* Zeros: nothing is prepared. */
struct reload_http {
	struct daemon *daemon;
	const struct config *next;
	struct http *fresh; /* the section is new */
	struct http_secrets secrets;
	struct http_listeners_plan listeners;
	bool secrets_changed;
};

/* Files are read, new addresses bound; nothing that serves is changed. 0, or a negative code with a text; undo it then, too. */
int reload_http_prepare(struct daemon *daemon, const struct config *next, struct reload_http *plan);
/* Listens at the new addresses: the last thing that can fail. */
int reload_http_open(struct reload_http *plan);
void reload_http_undo(struct reload_http *plan);
/* Takes effect. Who is connected at an address that stays does not notice; a section that goes ends all. */
void reload_http_commit(struct reload_http *plan);

#endif
