/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * near.h - inside of libtarn: blocking gets where the pool's memory is near, without the engine
 */
#ifndef TARN_NEAR_H
#define TARN_NEAR_H

#include "engine.h"
#include "session.h"

/* May it be done so? Not while others are under way: they are driven by who waits. */
static inline bool near_may(const struct tarn_session *session)
{
	return session->ep->near && !session->lost && !engine_owes(session->engine);
}

/* Neither 0 nor an error: it has to be done in the usual way. */
#define NEAR_LEFT 1

/*
 * One get or exists, with its arguments checked. Returns what tarn_get() returns, without a text, or NEAR_LEFT; with 0
 * and -TARN_ETOOSMALL *ret_item is filled.
 */
int near_get(struct tarn_session *session, const void *key, size_t key_bytes, void *buffer,
	     size_t bytes, bool exists_only, struct tarn_item *ret_item);
/*
 * Those of a batch that can be done so: their status and item are set. That of the others becomes NEAR_LEFT; returns how
 * many these are.
 */
size_t near_mget(struct tarn_session *session, struct tarn_mget *items, size_t count);

#endif
