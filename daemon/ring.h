/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring.h - the ready rings of a pool, one per size class: pages worth claiming
 *
 * A hint for clients, docs/protocol.md sections 2 and 5; checked by the Promela model claim.pml
 * (its FIX_RING).
 */
#ifndef TARN_DAEMON_RING_H
#define TARN_DAEMON_RING_H

#include <stdint.h>

struct pool;
struct ring;

enum ring_result {
	RING_PUSHED,
	RING_NAMED, /* a live entry names the page already */
	RING_FULL,
	RING_DAMAGED, /* the head could not be; it has been set right, push again */
};

/* Starts with the empty rings of a pool just formatted; NULL without memory. */
struct ring *ring_create(struct pool *pool);
void ring_free(struct ring *ring);
enum ring_result ring_push(struct ring *ring, uint32_t class, uint32_t page);

#endif
