/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.h - one line on the terminal that says how far a long walk is
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool enabled, drawn;
	const char *things; /* what is counted; NULL: files; "": bytes alone */
	uint64_t start_ns, last_ns;
	uint64_t files, bytes; /* done */
	uint64_t permille;     /* 0 to 1000 */
	uint64_t total_bytes;  /* 0: permille is what is known */
	uint64_t total_files;
};

/* enabled: draw it if standard error is a terminal. */
void progress_begin(struct progress *progress, bool enabled);

/* Draws, at most ten times a second. */
void progress_update(struct progress *progress);

/* Takes the line away; the next update draws it again. */
void progress_clear(struct progress *progress);
