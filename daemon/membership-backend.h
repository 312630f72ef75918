/* SPDX-License-Identifier: BSD-2-Clause */
/* membership-backend.h - what a kind of membership implements; for membership*.c and tests */
#ifndef TARN_DAEMON_MEMBERSHIP_BACKEND_H
#define TARN_DAEMON_MEMBERSHIP_BACKEND_H

#include "membership.h"

/* As the functions of membership.h. */
struct membership_backend {
	void (*free)(struct membership *membership);
	bool (*held)(struct membership *membership);
	const struct cluster_map *(*map)(const struct membership *membership, uint64_t *ret_confirmed_ns);
	int (*write)(struct membership *membership, const struct cluster_map *next, uint64_t if_epoch,
		     const char *if_member, uint64_t if_boot_id,
		     void (*done)(void *arg, enum membership_outcome outcome, const char *text), void *arg);
	int (*reload)(struct membership *membership, const struct config_cluster *config,
		      const struct membership_record *self);
	void (*state)(const struct membership *membership, struct membership_state *ret_state);
};

/* The first member of each backend's struct. */
struct membership {
	const struct membership_backend *backend;
	struct event_base *base;
	const struct log *log;
	const struct membership_events *events; /* the caller's, static */
	void *arg;
};

int membership_static_create(const struct config_cluster *config, const struct membership *begin,
			     const struct membership_record *self, struct membership **ret_membership);
int membership_etcd_create(const struct config_cluster *config, const struct membership *begin,
			   const struct membership_record *self, struct membership **ret_membership);

/* tarnd -t. 0, or a negative code with a text that begins with the key. */
int membership_static_check(const struct config_cluster *config, const char *member);
int membership_etcd_check(const struct config_cluster *config);

/* Can the second map follow the first, but for its epoch? 0, or -EINVAL with a text. */
int membership_follows(const struct cluster_map *map, const struct cluster_map *next);

/* CLOCK_BOOTTIME, which goes on while the machine is suspended. */
uint64_t membership_now_ns(void);

#endif
