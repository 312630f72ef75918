/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot-read.h - the records of a snapshot's file, checked before they are believed
 *
 * Functions return a negative code with a text (err.h) that names the offset.
 */
#pragma once

#include <stdbool.h>

#include "buffer.h"
#include "snapshot-format.h"

/* Behind the last chunk that ends with a whole record, where a snapshot can be resumed. */
struct snapshot_point {
	uint64_t offset, sequence; /* of the next chunk */
	struct snapshot_totals totals;
	size_t position_bytes; /* 0: the walk has not begun */
	uint8_t position[SNAPSHOT_POSITION_BYTES];
};

struct snapshot_reader {
	int fd; /* not owned */
	uint64_t file_bytes;
	struct snapshot_header header;
	uint64_t offset;   /* of the next chunk */
	uint64_t sequence; /* its number */
	uint64_t begin;    /* offset of the payload under way */
	uint32_t payload_bytes, used;
	bool has_position; /* the chunk under way ends with a whole record */
	uint32_t position_bytes; /* its position, in body behind the payload */
	bool ended;
	struct snapshot_totals totals; /* of the records so far; at the end: the file's */
	struct snapshot_point point;
	unsigned char *body; /* payload and position of the chunk under way */
	unsigned char key[SNAPSHOT_KEY_MAX_BYTES + 1]; /* of the last record; a 0 behind it */
};

/* Reads the header of a regular file; the reader is to be freed. 0 or a negative code. */
int snapshot_reader_open(int fd, struct snapshot_reader **ret_reader);
void snapshot_reader_free(struct snapshot_reader *reader);

/*
 * The next record; its key is in reader->key. value: where its value goes, or NULL: it is checked
 * only. 1, 0 behind the last one, when the totals were right and nothing is behind them; or a
 * negative code.
 */
int snapshot_reader_next(struct snapshot_reader *reader, struct buffer *value,
			 struct snapshot_record *ret_record);

/* Reads exactly n bytes at an offset. 0; -errno; -TARN_ECORRUPT: the file is shorter. */
int snapshot_read_at(int fd, void *ret_bytes, size_t n, uint64_t offset);
