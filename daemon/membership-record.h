/* SPDX-License-Identifier: BSD-2-Clause */
/* membership-record.h - a member's record as JSON, as it stands in etcd */
#ifndef TARN_DAEMON_MEMBERSHIP_RECORD_H
#define TARN_DAEMON_MEMBERSHIP_RECORD_H

#include <stddef.h>

#include "membership.h"

#define MEMBERSHIP_RECORD_MAX 8192u /* bytes */

/* The caller frees *ret_text. 0; -EINVAL with a text: a name, address or version can not be one; -ENOMEM. */
int membership_record_write(const struct membership_record *record, char **ret_text);
/*
 * Reads one that somebody has written. Members that are not known are passed over: a newer version may have more. 0, or -EINVAL with a
 * text that says what is wrong, -ENOMEM.
 */
int membership_record_parse(const char *text, size_t bytes, struct membership_record *ret_record);

#endif
