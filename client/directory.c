/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * directory.c - the client's copy of the directory
 *
 * Entries are read one by one, when first needed, so that opening a session costs nothing however
 * large the pool is. Runs on the session's owner. Next: kv.c, which reads the entries.
 */
#include "directory.h"

#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "tarn/tarn.h"

struct directory {
	const struct layout_geometry *geometry;
	uint32_t depth; /* global depth as last seen */
	/*
	 * By hash suffix; 0: not read yet. Untouched pages of it cost no memory. What was learned
	 * at a lower depth stays: most subtables have not been split since.
	 */
	uint64_t entries[];
};

int directory_create(const struct layout_geometry *geometry, struct directory **ret_directory)
{
	struct directory *d = calloc(1, sizeof(*d) + (8ull << geometry->max_depth));

	if (!d)
		return err_set(-ENOMEM, "no memory for a directory of 2^%u entries",
			       geometry->max_depth);
	d->geometry = geometry;
	*ret_directory = d;
	return 0;
}

void directory_free(struct directory *directory)
{
	free(directory);
}

static uint32_t index_of(const struct directory *d, struct layout_hash hash)
{
	return layout_suffix(layout_hash_suffix(hash), d->depth);
}

uint64_t directory_find(const struct directory *d, struct layout_hash hash)
{
	uint32_t depth = d->depth;
	uint64_t entry;

	do
		entry = d->entries[layout_suffix(layout_hash_suffix(hash), depth)];
	while (!entry && depth-- > 0);
	return entry ? layout_page_offset(d->geometry, layout_directory_page(entry)) : 0;
}

uint64_t directory_where(const struct directory *d, struct layout_hash hash)
{
	return layout_directory_offset(d->geometry, index_of(d, hash));
}

uint32_t directory_depth(const struct directory *d)
{
	return d->depth;
}

int directory_learn_depth(struct directory *d, uint64_t global_depth)
{
	if (global_depth > d->geometry->max_depth)
		return err_set(-TARN_ECORRUPT, "the pool's global depth is %llu, its limit %u",
			       (unsigned long long)global_depth, d->geometry->max_depth);
	if (global_depth == d->depth)
		return 0;
	d->depth = (uint32_t)global_depth;
	return 1;
}

uint64_t directory_subtable(const struct directory *d, uint64_t entry)
{
	if (layout_directory_state(entry) == LAYOUT_DIRECTORY_NONE ||
	    layout_directory_page(entry) >= d->geometry->npages ||
	    layout_directory_depth(entry) > d->geometry->max_depth)
		return 0;
	return layout_page_offset(d->geometry, layout_directory_page(entry));
}

int directory_learn(struct directory *d, struct layout_hash hash, uint64_t global_depth,
		    uint64_t entry)
{
	int ret = directory_learn_depth(d, global_depth);

	if (ret != 0)
		return ret;
	if (!directory_subtable(d, entry))
		return err_set(-TARN_ECORRUPT,
			       "directory entry %u of the pool is %016llx, which names no subtable",
			       index_of(d, hash), (unsigned long long)entry);
	d->entries[index_of(d, hash)] = entry;
	return 0;
}

void directory_forget(struct directory *d, struct layout_hash hash)
{
	d->entries[index_of(d, hash)] = 0;
}
