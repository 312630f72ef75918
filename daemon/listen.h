/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * listen.h - where connections come from: unix sockets (listen-shm.c), RDMA (listen-verbs.c)
 *
 * A listener comes up in three steps, since pools are made between the second and the third:
 * listener_check(), listener_bind(), listener_open(). A reload goes the same way, and may change
 * one that is there (listener_adjust(), listener_update()) or end it (listener_remove()).
 */
#ifndef TARN_DAEMON_LISTEN_H
#define TARN_DAEMON_LISTEN_H

#include "config.h"
#include "daemon.h"

struct listener;
struct verbs_device;

struct listener_kind {
	const char *name;
	int (*check)(const struct log *log, const struct config_listen *config);
	int (*bind)(struct daemon *daemon, const struct config_listen *config,
		    struct listener **ret_listener);
	int (*open)(struct listener *listener);
	void (*close)(struct listener *listener);
	void (*pause)(struct listener *listener, bool pause); /* NULL: has limits of its own */
	const struct verbs_device *(*device)(const struct listener *listener); /* NULL: none */
	/* by a reload; NULL: nothing to do, but for the last one */
	int (*adjust)(struct listener *listener, const struct config_listen *config);
	void (*update)(struct listener *listener);
	bool (*busy)(const struct listener *listener);
	void (*remove)(struct listener *listener);
};

extern const struct listener_kind listener_shm_kind, listener_verbs_kind;

/* Head of every kind's struct. */
struct listener {
	const struct listener_kind *kind;
	struct daemon *daemon;
	const struct config_listen *config;
};

/*
 * Could it listen there? Changes nothing. 0, or a negative code with a text as of the other two.
 */
int listener_check(const struct log *log, const struct config_listen *config);
/* RDMA: takes address and port, so that its device is known. Nobody can connect yet. */
int listener_bind(struct daemon *daemon, const struct config_listen *config,
		  struct listener **ret_listener);
/*
 * 0, or a negative code with a text: path in use, no permission, unknown group... An RDMA listener
 * that a reload has added does not fail here any more: it tries again.
 */
int listener_open(struct listener *listener);
/* Ends its RDMA connections, too. A unix socket's file is removed, if it is still ours. */
void listener_close(struct listener *listener);
/*
 * The part of a changed configuration that can fail: the socket's mode, group and backlog. Undone
 * by another call with the old one. 0, or a negative code with a text.
 */
int listener_adjust(struct listener *listener, const struct config_listen *config);
/* Its configuration is this one now, and its pools have theirs: takes up the rest of what is new. */
void listener_update(struct listener *listener, const struct config_listen *config);
/* Can it not be removed now? (A thread registers memory for it.) */
bool listener_busy(const struct listener *listener);
/* Closes it while the daemon goes on, without waiting. Its RDMA connections are fenced at once. */
void listener_remove(struct listener *listener);
/* While there are too many guests nobody is accepted; they wait in the backlog. */
void listener_pause(struct listener *listener);
void listener_resume(struct listener *listener);
/* NULL: a unix socket, or the device is gone. */
const struct verbs_device *listener_device(const struct listener *listener);

/* The group's id, -1 for "". -EINVAL with a text when there is no such group. */
int listener_group(const struct config_listen *config, uint32_t *ret_gid);

#endif
