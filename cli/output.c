/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * output.c - standard output with a buffer, and with the first write error kept
 *
 * Used by one thread. Callers may go on after an error, it is sticky; long loops look at
 * output->error. Next to read: writer.c.
 */
#include "output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Linux writes at most 0x7ffff000 bytes at once; stay well below. */
#define OUTPUT_WRITE_MAX ((size_t)1 << 30)

void output_init(struct output *output, int fd)
{
	output->fd = fd;
	output->error = 0;
	output->used = 0;
}

int output_write_all(int fd, const void *bytes, size_t n)
{
	const char *s = bytes;

	while (n > 0) {
		ssize_t done = write(fd, s, n < OUTPUT_WRITE_MAX ? n : OUTPUT_WRITE_MAX);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		s += done;
		n -= (size_t)done;
	}
	return 0;
}

int output_flush(struct output *output)
{
	if (output->error == 0)
		output->error = output_write_all(output->fd, output->buffer, output->used);
	output->used = 0;
	return output->error;
}

void output_write(struct output *output, const void *bytes, size_t n)
{
	if (n > sizeof(output->buffer) - output->used)
		output_flush(output);
	if (n > sizeof(output->buffer)) {
		if (output->error == 0)
			output->error = output_write_all(output->fd, bytes, n);
		return;
	}
	if (n > 0)
		memcpy(output->buffer + output->used, bytes, n);
	output->used += n;
}

void output_text(struct output *output, const char *text)
{
	output_write(output, text, strlen(text));
}
