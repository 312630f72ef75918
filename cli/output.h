/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * output.h - standard output with a buffer, and with the first write error kept
 *
 * Not stdio: a full disk or a closed pipe must be seen, named by its errno, and end a long walk at
 * once.
 */
#pragma once

#include <stddef.h>

#define OUTPUT_BUFFER_BYTES 65536

struct output {
	int fd;    /* not owned */
	int error; /* 0, or the -errno of the first failed write; nothing is written after it */
	size_t used;
	char buffer[OUTPUT_BUFFER_BYTES];
};

void output_init(struct output *output, int fd);
void output_write(struct output *output, const void *bytes, size_t n);
void output_text(struct output *output, const char *text);

/* Writes what is buffered. 0, or the -errno of the first write that failed since output_init(). */
int output_flush(struct output *output);

/* Writes all bytes to fd; 0 or -errno. */
int output_write_all(int fd, const void *bytes, size_t n);
