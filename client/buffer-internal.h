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
	bool unreachable; /* `map` keeps the addresses free alone: this CPU can not touch the memory */
};

/*
 * With the session held. `wanted`: as memory, bytes, writable and dmabuf of a registration say, with a `dmabuf` of its
 * own, which is taken over (not on failure). 0 or a negative code with a text.
 */
int buffer_create(struct tarn_session *session, const struct registration *wanted,
		  struct tarn_buffer **ret_buffer);

#endif
