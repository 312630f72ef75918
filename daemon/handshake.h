/* SPDX-License-Identifier: BSD-2-Clause */
/* handshake.h - who may use which pool as what; the same for every transport */
#ifndef TARN_DAEMON_HANDSHAKE_H
#define TARN_DAEMON_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon.h"
#include "pool.h"
#include "wire.h"

struct handshake {
	struct pool *pool; /* NULL: refused */
	uint32_t slot;     /* the client's, in the pool */
	uint16_t reason;   /* refused: enum wire_reason */
	size_t answer_bytes;
	uint8_t answer[WIRE_REPLY_BYTES]; /* a reply or a reject, ready to be sent */
};

/*
 * Decides on a request as it came. `who` has pid, uid, gid and name. If it is accepted the client
 * has its slot: the caller then owes a pool_client_end(). If not, err_text() says why.
 */
void handshake(struct daemon *daemon, const void *request, size_t bytes,
	       const struct pool_client *who, struct handshake *ret_handshake);

#endif
