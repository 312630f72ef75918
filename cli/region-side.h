/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-side.h - what `tarn region` transfers from and to: regions, files, pipes, standard output
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <tarn/region.h>

#include "cli.h"
#include "partial.h"
#include "transfer.h"

#define HEX_LINE_BYTES 16

struct side {
	struct transfer_side transfer;
	struct tarn_session *session;
	struct tarn_region *region; /* of the session */
	uint64_t offset;            /* in the region: where the first byte is */
	int fd;
	const volatile sig_atomic_t *stop;
	struct partial *file;
	struct writer *writer;
	unsigned char line[HEX_LINE_BYTES]; /* hex: the one before */
	bool begun, repeated;
};

/* Read from or written to. */
void side_from_region(struct side *side, struct tarn_session *session, struct tarn_region *region,
		      uint64_t offset);
void side_to_region(struct side *side, struct tarn_session *session, struct tarn_region *region,
		    uint64_t offset);
/* Read to its end; a signal that sets *stop ends the wait for a pipe. */
void side_from_fd(struct side *side, int fd, const volatile sig_atomic_t *stop);
void side_to_partial(struct side *side, struct partial *file);
/* As it is, or as lines of hexadecimal numbers that begin with the offset in the region. */
void side_to_writer(struct side *side, struct writer *writer);
void side_to_hex(struct side *side, struct writer *writer, uint64_t offset);

/* transfer->turn, for sides that are all of this file. */
int side_turn(struct transfer *transfer, bool wait);
