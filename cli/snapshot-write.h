/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot-write.h - a snapshot's file: begun as FILE.partial, named FILE when it is whole
 *
 * Functions return 0 or a negative code with a text (err.h).
 */
#pragma once

#include <stdbool.h>

#include "snapshot-format.h"

struct snapshot_file;

/* What is asked of the file. */
struct snapshot_wish {
	const char *path;
	bool force;  /* replace FILE, and begin FILE.partial anew */
	bool resume; /* go on with FILE.partial, if there is one */
};

/*
 * Opens FILE.partial. header: of a new snapshot; one that is resumed has its own, which must be of
 * the same pool. To be freed; what is in FILE.partial then stays.
 */
int snapshot_file_open(const struct snapshot_wish *wish, const struct snapshot_header *header,
		       struct snapshot_file **ret_file);
void snapshot_file_free(struct snapshot_file *file);

/* What is in the file already. */
const struct snapshot_totals *snapshot_file_totals(const struct snapshot_file *file);
uint64_t snapshot_file_bytes(const struct snapshot_file *file);
bool snapshot_file_is_resumed(const struct snapshot_file *file);
/* Its last chunk was written: only its name is missing. */
bool snapshot_file_is_whole(const struct snapshot_file *file);
/* Where the walk goes on; *ret_n 0: at its beginning. */
const void *snapshot_file_position(const struct snapshot_file *file, size_t *ret_n);

/*
 * Adds a record. position: where the walk is behind it. After a failure only snapshot_file_free()
 * makes sense.
 */
int snapshot_file_add(struct snapshot_file *file, const struct snapshot_record *record,
		      const void *key, const void *value, const void *position,
		      size_t position_bytes);

/* Writes what was added: it can be resumed behind it. */
int snapshot_file_flush(struct snapshot_file *file);

/* The end: totals, to disk, and its name. vanished and damaged are added to the totals. */
int snapshot_file_finish(struct snapshot_file *file, uint64_t vanished, uint64_t damaged);
