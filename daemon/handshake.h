/* SPDX-License-Identifier: BSD-2-Clause */
/* handshake.h - who may use which pool as what; the same for every transport */
#ifndef TARN_DAEMON_HANDSHAKE_H
#define TARN_DAEMON_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon.h"
#include "pool.h"
#include "wire.h"

struct handshake {
	struct daemon *daemon;
	struct pool *pool; /* NULL: refused */
	const struct pool *refused; /* then: the pool that it has asked for, if there is one */
	uint32_t slot;     /* the client's, in the pool */
	uint16_t reason;   /* refused: enum wire_reason */
	size_t answer_bytes;
	uint8_t answer[WIRE_REPLY_BYTES]; /* a reply or a reject, ready to be sent */
	/* for handshake_accept() */
	struct wire_request request;
	uint8_t request_bytes[WIRE_REQUEST_BYTES];
	bool has_key;
	/* a copy, wiped at the end: the key file may be read again meanwhile */
	struct auth_key key;
};

/*
 * Decides on a request as it came. `who` has transport, listener, pid, uid, gid, name, cut and
 * peer. If it may come in, `pool` is set and the client has its slot: the caller then owes
 * handshake_accept() or handshake_refuse(), and after the former a pool_client_end(). If not, the
 * answer is a reject and err_text() says why.
 */
void handshake(struct daemon *daemon, const void *request, size_t bytes,
	       const struct pool_client *who, struct handshake *ret_handshake);
/*
 * Fills in the answer: access is given to these regions (WIRE_REGIONS at most; when the pool has
 * more, the client asks for them by RPC).
 */
void handshake_accept(struct handshake *handshake, const struct wire_region *regions,
		      unsigned count);
/*
 * After all not: gives the slot back and fills in a reject, with the detail and the time to wait that
 * belong to the reason. err_text() is the caller's affair.
 */
void handshake_refuse(struct handshake *handshake, enum wire_reason reason);
/* Tells of a refusal, after either; err_text() says why. `peer`: the process' name or the address. */
void handshake_tell_refused(const struct handshake *handshake, const struct pool_client *who,
			    const char *peer);
/*
 * A reject without any look at the request, for who cannot even be listened to (WIRE_REASON_BUSY).
 * Counted. Returns its bytes.
 */
size_t handshake_reject(struct daemon *daemon, enum wire_reason reason, uint64_t detail,
			uint32_t retry_after_ms, uint8_t ret_answer[WIRE_REJECT_BYTES]);

#endif
