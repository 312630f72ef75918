/* SPDX-License-Identifier: BSD-2-Clause */
/* Membership by etcd is not there yet. */
#include <errno.h>

#include "err.h"
#include "membership-backend.h"

int membership_etcd_create(const struct config_cluster *config, const struct membership *begin,
			   const struct membership_record *self, struct membership **ret_membership)
{
	(void)begin;
	(void)self;
	(void)ret_membership;
	return membership_etcd_check(config);
}

int membership_etcd_check(const struct config_cluster *config)
{
	(void)config;
	return err_set(-ENOSYS, "membership = etcd: this version has none yet: choose static");
}
