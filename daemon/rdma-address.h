/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma-address.h - addresses of this host that belong to RDMA devices */
#ifndef TARN_DAEMON_RDMA_ADDRESS_H
#define TARN_DAEMON_RDMA_ADDRESS_H

#include <stdint.h>
#include <sys/socket.h>

#include "config.h"
#include "rdma.h"

/* The address that a listener's configuration means, with its port. 0, or a negative code with a
 * text. */
int rdma_address_find(struct rdma *rdma, const struct config_listen *config,
		      struct sockaddr_storage *ret_address);
/* An id that is bound to the address and so has a device; NULL and errno. */
struct rdma_cm_id *rdma_address_bind(struct rdma *rdma, const struct sockaddr *address);
/* The error of an address that could not be bound or listened on, by errno, in words. */
int rdma_address_failed(struct rdma *rdma, const struct sockaddr_storage *address, int error);
void rdma_address_set_port(struct sockaddr_storage *address, uint16_t port);

#endif
