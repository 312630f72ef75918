/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * buffer.h - room for one value of up to some GiB, used again for the next one
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <tarn/tarn.h>

/* Begin with zeros. */
struct buffer {
	unsigned char *bytes;
	size_t capacity;
};

/* Makes room for n bytes; what is in it may be kept or not. 0 or -ENOMEM. */
int buffer_reserve(struct buffer *buffer, size_t n);
void buffer_free(struct buffer *buffer);

/*
 * Reads fd to its end. expected: how much that will probably be. 0; -errno; -EFBIG when it is more
 * than max bytes, with *ret_n what was read until then.
 */
int buffer_read(struct buffer *buffer, int fd, size_t expected, uint64_t max, size_t *ret_n);

/*
 * tarn_get() with as much room as the value needs, also when it grows meanwhile. 0 or what
 * tarn_get() returns.
 */
int buffer_get(struct buffer *buffer, struct tarn_session *session, const void *key,
	       size_t key_bytes, struct tarn_item *ret_item);
