/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * partial.h - a file that is written as FILE.partial and named FILE when it is whole and on disk
 *
 * Functions return 0 or a negative code with a text (err.h).
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct partial_wish {
	const char *path; /* FILE; must live as long as the struct partial */
	bool force;       /* replace FILE, and begin FILE.partial anew */
	bool resume;      /* go on with FILE.partial, if there is one */
	bool resumable;   /* somebody may wish so: for the text of an error */
};

struct partial {
	struct partial_wish wish;
	int folder, fd; /* fd: FILE.partial, for reading and writing, locked */
	char *folder_path;
	char name[NAME_MAX + 1], partial[NAME_MAX + 16];
};

/*
 * Opens FILE.partial, readable by its owner only. *ret_new: nothing in it is of use. To be ended with
 * partial_close(), which does no harm after a failure.
 */
int partial_open(struct partial *file, const struct partial_wish *wish, bool *ret_new);

/* Empties it. */
int partial_truncate(struct partial *file);

/* Takes the room for so many bytes on the disk, where its file system can do that. */
int partial_reserve(struct partial *file, uint64_t bytes);

/* Where its descriptor is. */
int partial_write(struct partial *file, const void *bytes, size_t n);

/* To disk, and its name. */
int partial_finish(struct partial *file);

/* Takes FILE.partial away; FILE, if there is one, stays as it was. */
void partial_discard(struct partial *file);

/* What is in FILE.partial stays. */
void partial_close(struct partial *file);
