/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-life.h - the boot id of the cluster's member whose pool this memory was in an earlier life of its daemon
 *
 * docs/protocol.md section 11, "its last life". Main thread, in front of the loop.
 */
#ifndef TARN_DAEMON_POOL_LIFE_H
#define TARN_DAEMON_POOL_LIFE_H

#include <stdint.h>

#include "config.h"

struct fdstore;
struct pool;

/*
 * The boot id under which this pool's memory was a member's last, if that member was this one of this cluster, on this host since it
 * was booted, in just this file, and no daemon has the memory now. 0: none of that is known. `store` may be NULL.
 */
uint64_t pool_life_read(const struct config_pool *config, const struct fdstore *store, const char *cluster,
			const char *member);
/* This one is a member from now on. */
void pool_life_write(struct pool *pool, const char *cluster, const char *member, uint64_t boot_id);

#endif
