/* SPDX-License-Identifier: BSD-2-Clause */
/* port-counters.h - which counters of an RDMA port tell of trouble, and what; files of the kernel */
#ifndef TARN_COMMON_PORT_COUNTERS_H
#define TARN_COMMON_PORT_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct port_counter {
	const char *pattern; /* of fnmatch(3) */
	bool grave; /* trouble when it is more than one in a million packets (or when packets are not counted) */
	const char *meaning, *advice;
};

/* NULL: the counter is not one of trouble, or of a driver that is not known. */
const struct port_counter *port_counter_find(const char *name);

/* A file's first bytes, cut, without the white space at its end. The length, or -errno. */
int port_file_read(const char *path, char *ret_text, size_t bytes);
/* A file that is one number. 0 or -errno. */
int port_file_number(const char *path, uint64_t *ret_number);

#endif
