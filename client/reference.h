/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reference.h - inside of libtarn: telling the eviction of a cache pool what is asked for
 *
 * One of the pool's reference_sample hits, drawn at random, is marked in the reference map, by a WRITE
 * that nobody waits for. What this session has marked in the same epoch is not marked again: the hottest
 * keys would make all clients write to the same few bytes. docs/protocol.md section 6.
 */
#ifndef TARN_REFERENCE_H
#define TARN_REFERENCE_H

#include "session.h"

#define REFERENCE_MARKED 256u

struct reference {
	uint32_t sample; /* one of so many hits */
	uint32_t left;   /* hits up to the next one */
	/* place in the reference map << 16 | low bits of the epoch */
	uint64_t marked[REFERENCE_MARKED];
};

/* For the session's pool, if it wants marks and the session may make them. 0 or -ENOMEM. */
int reference_create(struct tarn_session *session);
void reference_free(struct reference *reference);
/* The pool may be another one. */
void reference_reset(struct tarn_session *session);

/* Of a hit that counts: marks the block. */
void reference_mark(struct tarn_session *session, uint64_t block_offset);

/* A key was found in the block at this offset. */
static inline void reference_hit(struct tarn_session *session, uint64_t block_offset)
{
	if (__builtin_expect(--session->reference->left == 0, 0))
		reference_mark(session, block_offset);
}

#endif
