/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fdstore.h - memory of pools that systemd keeps while no tarnd runs (FileDescriptorStoreMax=)
 *
 * The memfd of a pool is handed over under the name tarn-pool-NAME once a pool is in it, and is there
 * again when tarnd is restarted or has crashed; it is gone when the unit is stopped.
 */
#ifndef TARN_DAEMON_FDSTORE_H
#define TARN_DAEMON_FDSTORE_H

#include <stdbool.h>
#include <stdint.h>

#include "log.h"
#include "wire.h"

struct fdstore;

/* A memory of a region. A region that is resized gets another one, of the next generation. */
struct fdstore_region {
	const char *pool, *name;
	uint32_t generation;
};

/*
 * What was handed to this process at its start (LISTEN_FDS, LISTEN_FDNAMES). Descriptors that are not
 * ours are closed, with a line in the log. 0 or -ENOMEM with a text.
 */
int fdstore_create(const struct log *log, struct fdstore **ret_store);
/* The pool's memory, which is the caller's then; -1: none was kept. */
int fdstore_take(struct fdstore *store, const char *pool);
/* The same, and it stays the store's. */
int fdstore_find(const struct fdstore *store, const char *pool);
/*
 * Of the pools whose memory was not taken: gives the memory back. To be called when all pools of the
 * configuration are made.
 */
void fdstore_forget_rest(struct fdstore *store);
void fdstore_free(struct fdstore *store);

/* Adds a descriptor as if it had been kept; takes it over. For tests. 0 or -ENOMEM. */
int fdstore_add(struct fdstore *store, const char *pool, int fd);
int fdstore_add_region(struct fdstore *store, struct fdstore_region region, int fd);

/*
 * Hands a pool's memory over. 1; 0: there is nobody who would keep it (store may be NULL); -ENOSPC: systemd keeps no
 * more, or -errno, with a text.
 */
int fdstore_keep(struct fdstore *store, const char *pool, int fd);

/* ---- regions of a pool: tarn-region-POOL/REGION, from generation 1 on tarn-region-POOL/REGION@GENERATION ---- */

/*
 * The next one of the pool, the caller's then; the latest generations come first. -1: there is none left.
 */
int fdstore_take_region(struct fdstore *store, const char *pool,
			char ret_name[WIRE_REGION_NAME_BYTES], uint32_t *ret_generation);
/* As fdstore_keep(). The last place is for who hands one over `instead` of another, which he drops at once. */
int fdstore_keep_region(struct fdstore *store, struct fdstore_region region, int fd, bool instead);
void fdstore_drop_region(struct fdstore *store, struct fdstore_region region);

#endif
