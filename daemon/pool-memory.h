/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-memory.h - the memory of a pool: a sealed memfd or a file, mapped, of the pages that the
 * configuration asks for
 *
 * Either may have been there before, with a pool in it: a file in the file system, a memfd with
 * systemd (fdstore.h).
 */
#ifndef TARN_DAEMON_POOL_MEMORY_H
#define TARN_DAEMON_POOL_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "layout.h"
#include "log.h"

struct pool_memory {
	int fd;           /* read and write; stays with the daemon, since its locks are on it */
	int fd_read_only; /* the same file, opened for reading: can't be mapped for writing */
	uint8_t *base;
	uint64_t bytes;          /* a multiple of LAYOUT_PAGE_BYTES and of hugepage_bytes */
	uint64_t hugepage_bytes; /* what was got: 2M, 1G, or the normal page size */
	bool hugetlb;            /* reserved hugepages, and not transparent ones */
	bool kept;               /* it was there before, with a pool in it */
	bool durable;            /* a file that outlives the host */
	bool unpublished;        /* a new file, which does not have its name yet */
	const char *path;        /* of the file, the configuration's; NULL: a memfd */
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

/* For who makes memory beside the main loop: how far it is, and whether to go on. */
struct pool_memory_watch {
	_Atomic uint64_t done; /* bytes touched */
	_Atomic bool cancel;
};

/*
 * On this NUMA node (-1: any): bound to it when the configuration says so, else preferred. Blocks
 * while the memory is touched; logs and tells systemd how far it is, or `watch`, if that is not NULL.
 * 0, or -errno with a text; -ECANCELED: by the watch.
 */
int pool_memory_create(const struct config_pool *config, int numa_node, const struct log *log,
		       struct pool_memory_watch *watch, struct pool_memory *ret_memory);
/*
 * The same with a memfd that was kept, of the pool's size or of any; takes the descriptor over, also on
 * failure.
 */
int pool_memory_adopt(const struct config_pool *config, int fd, bool any_size, const struct log *log,
		      struct pool_memory *ret_memory);
/* The pool in it is whole now: gives a new file its name. 0, or -errno with a text. */
int pool_memory_publish(struct pool_memory *memory);
/* Writes a range of a durable file to the disk; of other memory: does nothing. 0 or -errno with a text. */
int pool_memory_sync(const struct pool_memory *memory, uint64_t offset, uint64_t bytes);
/* A new file that has no name yet is removed. */
void pool_memory_free(struct pool_memory *memory);

/* ---- files, pool-file.c ---- */

/* Could the pool's file be made or used? Changes nothing. 0, or a negative code with a text. */
int pool_file_check(const struct config_pool *config);
/*
 * Opens the pool's file, or makes one under another name, and locks it: all of ret_memory but base and
 * fd_read_only. 0, or a negative code with a text, and then ret_memory may have a descriptor.
 */
int pool_file_open(const struct config_pool *config, const struct log *log,
		   struct pool_memory *ret_memory);
int pool_file_publish(const struct pool_memory *memory);
void pool_file_remove(const struct pool_memory *memory);

/* ---- locks, pool-lock.c: on ranges of the file, of open file descriptions (F_OFD_SETLK) ---- */

/* The daemon's, on the superblock. -EBUSY with a text: another one has it. */
int pool_lock_daemon(const struct pool_memory *memory);
/*
 * A descriptor for a client that may write, with a lock on its client-table slot that the kernel keeps
 * as long as the descriptor or a mapping of it is there, whatever becomes of us. -EBUSY with a text: the
 * slot's last client still has the memory mapped.
 */
int pool_lock_client(const struct pool_memory *memory, const struct layout_geometry *geometry,
		     uint32_t slot, int *ret_fd);
/* Does anybody hold one on one of `count` slots from `slot` on? */
bool pool_lock_held(const struct pool_memory *memory, const struct layout_geometry *geometry,
		    uint32_t slot, uint32_t count);

#endif
