/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.h - bytes from one place to another, in pieces of which several are under way at a time
 *
 * What the places are this does not know: see region-side.h.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

/*
 * 1 MiB in all: more than a fast link has under way, and as little as a slow one is done with within the time limit of the
 * operations, each of which waits for those before it.
 */
#define TRANSFER_SLOTS      8
#define TRANSFER_SLOT_BYTES ((size_t)128 * 1024)

struct progress;
struct transfer;

enum transfer_state {
	TRANSFER_FREE,
	TRANSFER_READING,
	TRANSFER_READ,
	TRANSFER_WRITING,
	TRANSFER_WRITTEN,
};

/* One piece, and its memory. */
struct transfer_slot {
	struct transfer *transfer;
	enum transfer_state state;
	unsigned char *memory;
	uint64_t position; /* counted from the first byte that is transferred */
	size_t bytes;
	uint64_t op; /* for the side, to cancel it */
};

/* Where pieces are read from or written to. */
struct transfer_side {
	/*
	 * Reads a piece into the slot's memory, or writes it. 0: it is begun, transfer_done() will tell the end;
	 * 1: it is done, and where `bytes` is less than was asked for the source has ended; or a negative code
	 * with a text (err.h).
	 */
	int (*start)(struct transfer_side *side, struct transfer_slot *slot);
	/* Ends early what start() has begun, if that is still possible. NULL: it begins nothing. */
	void (*cancel)(struct transfer_side *side, struct transfer_slot *slot);
};

struct transfer {
	struct transfer_side *source, *target;
	/*
	 * Lets what is under way go on and calls transfer_done() for what has ended; wait: sleeps for a while if
	 * nothing has. 0 or a negative code with a text.
	 */
	int (*turn)(struct transfer *transfer, bool wait);
	unsigned char *memory;             /* TRANSFER_SLOTS pieces */
	uint64_t bytes;                    /* how many; the source may end before */
	const volatile sig_atomic_t *stop; /* set: ends it with -EINTR */
	struct progress *progress;

	/* out */
	uint64_t done_bytes; /* from the first on, without a gap */
	uint64_t open_bytes; /* behind these: were being written, and have or have not */
	const struct transfer_side *failed; /* NULL: neither */
	char text[ERR_TEXT_BYTES];          /* of the first failure */

	/* the transfer's own: how many pieces were begun to be read, begun to be written, are through */
	uint64_t read, written, through;
	unsigned under_way;
	bool ended; /* the source has no more */
	int status;
	struct transfer_slot slots[TRANSFER_SLOTS];
};

/*
 * Until all is transferred, the source has ended, or something fails; nothing is under way any more
 * then. 0 or a negative code, with transfer->text.
 */
int transfer_run(struct transfer *transfer);

/* For sides: what start() has begun is done. status: 0 or a negative code. */
void transfer_done(struct transfer_slot *slot, int status);
