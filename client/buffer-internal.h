/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * buffer-internal.h - inside of buffer.c and buffer-dmabuf.c: registered memory, and who has registered it
 */
#ifndef TARN_BUFFER_INTERNAL_H
#define TARN_BUFFER_INTERNAL_H

#include "session.h"

/* What the connection knows, or is told of when there is one. */
struct registration {
	LIST_ENTRY(registration) link; /* in session->registrations */
	uint8_t *memory;
	size_t bytes;
	bool writable;
	int dmabuf; /* the memory is part of this; -1: it is memory of the process */
	uint64_t dmabuf_offset;
	unsigned users;
	bool live; /* the connection knows it */
};

struct tarn_buffer {
	LIST_ENTRY(tarn_buffer) link; /* in session->buffers */
	struct tarn_session *session;
	struct registration *registration;
	uint8_t *memory;
	size_t bytes;
	uint8_t *map; /* the library's, to be unmapped; NULL: the memory is the caller's */
	size_t mapped;
	struct tarn_buffer *of; /* in a session with a member: this one of the cluster's session, which owns `map`; else NULL */
	bool unreachable; /* `map` keeps the addresses free alone: this CPU can not touch the memory */
};

/*
 * With the session held. `wanted`: as memory, bytes, writable and dmabuf of a registration say, with a `dmabuf` of its
 * own, which is taken over (not on failure). `must`: it is an error that the connection does not take it. 0 or a negative code with a text.
 */
int buffer_create(struct tarn_session *session, const struct registration *wanted, bool must,
		  struct tarn_buffer **ret_buffer);
/* One that is complete becomes known to a cluster's members; on failure it is removed. 0 or a negative code with a text. */
int buffer_share(struct tarn_buffer *buffer);
/* It is no buffer any more; frees all but its addresses. With the session held. */
void buffer_remove(struct tarn_buffer *buffer);
/* session_hold() and session_leave(), of a cluster's session, too. */
int buffer_hold(struct tarn_session *session);
void buffer_leave(struct tarn_session *session);

/* ---- cluster-buffer.c: of a cluster's session, held ---- */
/* The sessions with members get it as it is now, or none does. */
int cluster_buffer_share(struct tarn_buffer *buffer);
void cluster_buffer_end(struct tarn_buffer *buffer);
/* Does an asynchronous call that has not been picked up use it? */
bool cluster_buffer_in_use(const struct tarn_buffer *buffer);
/* Do all connections take dma-bufs that can not be mapped? */
bool cluster_buffer_dmabufs(const struct tarn_session *session);

#endif
