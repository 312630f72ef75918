/* SPDX-License-Identifier: BSD-2-Clause */
/* place.h - where a pool's memory lies and who does its atomics: decided from its listeners' devices
 */
#ifndef TARN_DAEMON_PLACE_H
#define TARN_DAEMON_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "pool.h"
#include "verbs.h"

struct place {
	struct pool_place pool;
	char warning[160]; /* "": nothing is odd */
};

/*
 * devices[i] is that of config->listens[i], NULL for a unix socket and for an RDMA
 * listener whose device is not there. 0; or -EINVAL with a text when
 * atomics = nic can not be.
 */
int place_decide(const struct config *config, const struct config_pool *pool,
		 const struct verbs_device *const *devices, struct place *ret_place);

/*
 * The size of the pieces in which memory is registered: a multiple of 2 MiB, at most what the
 * device (max_mr_size) and the setting (0: nothing set) allow. 0: the device can not register even
 * one.
 */
uint64_t place_piece_bytes(uint64_t device_limit, uint64_t setting);
/* How many of them a pool needs. */
uint64_t place_pieces(uint64_t pool_bytes, uint64_t piece_bytes);

#endif
