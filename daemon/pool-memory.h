/* SPDX-License-Identifier: BSD-2-Clause */
/* pool-memory.h - the memory of a pool: a sealed memfd, mapped, of the pages that the configuration
 * asks for */
#ifndef TARN_DAEMON_POOL_MEMORY_H
#define TARN_DAEMON_POOL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "log.h"

struct pool_memory {
	int fd;           /* read and write */
	int fd_read_only; /* the same file, opened for reading: can't be mapped for writing */
	uint8_t *base;
	uint64_t bytes;          /* a multiple of LAYOUT_PAGE_BYTES and of hugepage_bytes */
	uint64_t hugepage_bytes; /* what was got: 2M, 1G, or the normal page size */
	bool hugetlb;            /* reserved hugepages, and not transparent ones */
};

/* What the pools that were checked before will take. */
struct pool_memory_claims {
	bool whole_machine; /* compare with all that the machine has: now a daemon with this
			       configuration may be using it */
	uint64_t normal_bytes;
	uint64_t huge_bytes;
};

/*
 * Is there memory for this pool, besides `claims`, to which it is then added? 0 and whether
 * reserved hugepages will be used; or -ENOMEM or -EINVAL with a text: numbers and remedy.
 */
int pool_memory_check(const struct config_pool *config, struct pool_memory_claims *claims,
		      bool *ret_hugetlb);

/* Blocks while the memory is touched; logs and tells systemd how far it is. 0, or -errno with a
 * text. */
int pool_memory_create(const struct config_pool *config, const struct log *log,
		       struct pool_memory *ret_memory);
void pool_memory_free(struct pool_memory *memory);

#endif
