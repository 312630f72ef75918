/* SPDX-License-Identifier: BSD-2-Clause */
/* reload-listen.h - what a reload does to listeners: those that stay, come and go; see reload.c */
#ifndef TARN_DAEMON_RELOAD_LISTEN_H
#define TARN_DAEMON_RELOAD_LISTEN_H

#include "config.h"
#include "daemon.h"

struct reload_listen {
	struct daemon *daemon;
	const struct config *next;
	struct listener **listeners;      /* by their index in next */
	const struct config_listen **now; /* by their index in what runs; NULL: to be removed */
	size_t adjusted;                  /* so many of next's have been */
};

/* What can be found out without changing anything. 0, or -EINVAL and errors. */
int reload_listen_check(struct daemon *daemon, const struct config *next,
			struct config_errors *errors);
/*
 * All that can fail: new ones are bound, sockets are opened (nobody is accepted before the loop
 * goes on), others get their new permissions. 0, or -EINVAL and errors; then undo it.
 */
int reload_listen_prepare(struct daemon *daemon, const struct config *next,
			  struct config_errors *errors, struct reload_listen *ret);
/* As if nothing had been; also of one that was not prepared to the end, or not at all. */
void reload_listen_undo(struct reload_listen *plan);
/* The clients' listeners become those of next. Nothing is ended by that yet. */
void reload_listen_clients(const struct reload_listen *plan);
/*
 * Takes effect, when daemon->config is next already and pools have theirs. What was there for a
 * listener that is removed has been cut off.
 */
void reload_listen_commit(struct reload_listen *plan, const struct config *was);

#endif
