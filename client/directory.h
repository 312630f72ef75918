/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * directory.h - inside of libtarn: the client's copy of the directory, hash suffix -> subtable
 *
 * May be stale at any time: the bucket headers say whether a subtable is the right one.
 */
#ifndef TARN_DIRECTORY_H
#define TARN_DIRECTORY_H

#include "layout.h"

struct directory;

int directory_create(const struct layout_geometry *geometry, struct directory **ret_directory);
void directory_free(struct directory *directory);

/*
 * Offset of the subtable for a hash as far as is known, perhaps from before the directory doubled;
 * or 0: not known yet, read it (directory_where) and tell (directory_learn).
 */
uint64_t directory_find(const struct directory *directory, struct layout_hash hash);
/* Where in the pool this hash's entry stands, as far as the global depth is known. */
uint64_t directory_where(const struct directory *directory, struct layout_hash hash);
/*
 * Takes note of a global depth and of the entry read from directory_where(). Returns 0: known now;
 * 1: the depth was another one, read again; -TARN_ECORRUPT with a text.
 */
int directory_learn(struct directory *directory, struct layout_hash hash, uint64_t global_depth,
		    uint64_t entry);
/*
 * For who looks at entries without keeping them, while a subtable splits: the global depth, what a
 * read one changes (as directory_learn()), and the subtable that an entry names (0: none).
 */
uint32_t directory_depth(const struct directory *directory);
int directory_learn_depth(struct directory *directory, uint64_t global_depth);
uint64_t directory_subtable(const struct directory *directory, uint64_t entry);
/* Forgets the entry of a hash: a header has contradicted it. */
void directory_forget(struct directory *directory, struct layout_hash hash);

#endif
