/* SPDX-License-Identifier: BSD-2-Clause */
/* listen.h - where connections come from */
#ifndef TARN_DAEMON_LISTEN_H
#define TARN_DAEMON_LISTEN_H

#include "config.h"
#include "daemon.h"

struct listener;

/*
 * Could the path be listened on? Changes nothing. 0, or a negative code with a text as of
 * listener_open().
 */
int listener_check(const struct log *log, const struct config_listen *config);
/* 0, or a negative code with a text: path in use, no permission, unknown group... */
int listener_open(struct daemon *daemon, const struct config_listen *config,
		  struct listener **ret_listener);
/* Removes the socket's file, if it is still ours. */
void listener_close(struct listener *listener);
/* While there are too many guests nobody is accepted; they wait in the backlog. */
void listener_pause(struct listener *listener);
void listener_resume(struct listener *listener);

/* The group's id, -1 for "". -EINVAL with a text when there is no such group. */
int listener_group(const struct config_listen *config, uint32_t *ret_gid);

#endif
