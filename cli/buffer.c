/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * buffer.c - room for one value, filled from a file or from the pool
 *
 * Read and not mapped: a file that somebody truncates meanwhile would end the process with SIGBUS.
 * Next to read: put.c, get.c.
 */
#include "buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_FIRST    ((size_t)64 * 1024)
#define BUFFER_READ_MAX ((size_t)1 << 30)

int buffer_reserve(struct buffer *buffer, size_t n)
{
	unsigned char *bytes;

	if (n <= buffer->capacity)
		return 0;
	if (n < BUFFER_FIRST)
		n = BUFFER_FIRST;
	bytes = realloc(buffer->bytes, n);
	if (bytes == NULL)
		return -ENOMEM;
	buffer->bytes = bytes;
	buffer->capacity = n;
	return 0;
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->bytes);
	*buffer = (struct buffer){0};
}

int buffer_read(struct buffer *buffer, int fd, size_t expected, uint64_t max, size_t *ret_n)
{
	size_t n = 0;

	/* One byte more shows the end without growing the buffer. */
	if (expected < max && buffer_reserve(buffer, expected + 1) < 0)
		return -ENOMEM;
	for (;;) {
		size_t room;
		ssize_t got;

		if (n == buffer->capacity &&
		    buffer_reserve(buffer, n < BUFFER_FIRST ? BUFFER_FIRST : 2 * n) < 0)
			return -ENOMEM;
		room = buffer->capacity - n;
		got = read(fd, buffer->bytes + n, room < BUFFER_READ_MAX ? room : BUFFER_READ_MAX);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		n += (size_t)got;
		*ret_n = n;
		if (n > max)
			return -EFBIG;
		if (got == 0)
			return 0;
	}
}

int buffer_get(struct buffer *buffer, struct tarn_session *session, const void *key,
	       size_t key_bytes, struct tarn_item *ret_item)
{
	struct tarn_item item = TARN_ITEM_INIT;
	int status;

	if (buffer_reserve(buffer, BUFFER_FIRST) < 0)
		return -ENOMEM;
	for (;;) {
		status = tarn_get(session, key, key_bytes, buffer->bytes, buffer->capacity, &item);
		if (status != -TARN_ETOOSMALL || item.value_bytes <= buffer->capacity)
			break;
		/* It may have grown again by the next get. */
		if (item.value_bytes > SIZE_MAX / 2 ||
		    buffer_reserve(buffer,
				   (size_t)item.value_bytes + (size_t)item.value_bytes / 8) < 0)
			return -ENOMEM;
	}
	if (status == 0)
		*ret_item = item;
	return status;
}
