/* SPDX-License-Identifier: BSD-2-Clause */
/* wire-bytes.h - inside of wire.c and wire-region.c: fields into bytes, and back */
#ifndef TARN_WIRE_BYTES_H
#define TARN_WIRE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <tarn/tarn.h>

#include "err.h"

/* A place in a buffer whose length the caller has checked. */
struct writer {
	uint8_t *at;
};

struct reader {
	const uint8_t *at;
};

static inline void put_uint(struct writer *writer, uint64_t value, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		*writer->at++ = (uint8_t)(value >> (8 * i));
}

static inline void put_bytes(struct writer *writer, const void *from, size_t bytes)
{
	memcpy(writer->at, from, bytes);
	writer->at += bytes;
}

static inline void put_zeros(struct writer *writer, size_t bytes)
{
	memset(writer->at, 0, bytes);
	writer->at += bytes;
}

static inline uint64_t get_uint(struct reader *reader, unsigned int bytes)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < bytes; i++)
		value |= (uint64_t)*reader->at++ << (8 * i);
	return value;
}

static inline uint8_t get8(struct reader *reader)
{
	return (uint8_t)get_uint(reader, 1);
}

static inline uint16_t get16(struct reader *reader)
{
	return (uint16_t)get_uint(reader, 2);
}

static inline uint32_t get32(struct reader *reader)
{
	return (uint32_t)get_uint(reader, 4);
}

static inline void get_bytes(struct reader *reader, void *to, size_t bytes)
{
	memcpy(to, reader->at, bytes);
	reader->at += bytes;
}

/* Reserved bytes are written as zero and ignored when read: a later version may give them a
 * meaning. */
static inline void skip(struct reader *reader, size_t bytes)
{
	reader->at += bytes;
}

static inline bool all_zero(const uint8_t *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i])
			return false;
	return true;
}

static inline int check_length(const char *what, size_t bytes, size_t expected)
{
	if (bytes == expected)
		return 0;
	return err_set(-TARN_EPROTO, "%s of %zu bytes, it has %zu", what, bytes, expected);
}

#endif
