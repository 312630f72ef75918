/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs-space.c - memory on the other side: the pool's, and that of regions, each with keys of its own
 *
 * What the daemon names is checked here; which piece an access goes to is looked up for each request by
 * fabric-verbs-queue.c. The caller's thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "fabric-verbs.h"
#include "tarn/tarn.h"

int fabric_verbs_space_init(struct verbs_space *space, unsigned capacity)
{
	space->count = 0;
	space->pieces = calloc(capacity, sizeof(*space->pieces));
	space->starts = calloc(capacity, sizeof(*space->starts));
	if (space->pieces && space->starts)
		return 0;
	fabric_verbs_space_free(space);
	return err_set(-ENOMEM, "no memory for an endpoint");
}

void fabric_verbs_space_free(struct verbs_space *space)
{
	free(space->pieces);
	free(space->starts);
	*space = (struct verbs_space){.count = 0};
}

uint64_t fabric_verbs_space_sum(const struct verbs_space *space)
{
	unsigned n = space->count;

	return n ? space->starts[n - 1] + space->pieces[n - 1].length : 0;
}

int fabric_verbs_space_append(struct verbs_space *space, const struct wire_region *piece,
			      uint64_t bytes_max)
{
	/* in words: none may lie on both sides of a border */
	if (piece->length == 0 || piece->length % 8 || piece->address % 8 ||
	    piece->address + piece->length < piece->address || piece->length > bytes_max)
		return err_set(-TARN_EPROTO, "tarnd gave access to an impossible region %u",
			       space->count);
	space->starts[space->count] = fabric_verbs_space_sum(space);
	space->pieces[space->count++] = *piece;
	return 0;
}

int fabric_verbs_space_add(struct fabric_endpoint *ep, unsigned space,
			   const struct wire_region *pieces, unsigned count, uint64_t bytes,
			   bool read_only)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	struct verbs_space it = {.count = 0};
	int ret = 0;

	if (!v->spaces)
		v->spaces = calloc(FABRIC_SPACES, sizeof(*v->spaces));
	if (!v->spaces)
		return err_set(-ENOMEM, "no memory for a region");
	if (count == 0)
		return err_set(-TARN_EPROTO, "tarnd gave access to no memory of the region");
	ret = fabric_verbs_space_init(&it, count);
	for (unsigned i = 0; ret == 0 && i < count; i++)
		ret = fabric_verbs_space_append(&it, &pieces[i],
						UINT64_MAX - fabric_verbs_space_sum(&it));
	if (ret == 0 && fabric_verbs_space_sum(&it) < bytes)
		ret = err_set(-TARN_EPROTO, "tarnd gave access to %llu bytes of a region of %llu",
			      (unsigned long long)fabric_verbs_space_sum(&it),
			      (unsigned long long)bytes);
	if (ret < 0) {
		fabric_verbs_space_free(&it);
		return ret;
	}
	fabric_verbs_space_free(&v->spaces[space - 1]);
	it.bytes = bytes;
	it.read_only = read_only;
	v->spaces[space - 1] = it;
	return 0;
}

void fabric_verbs_space_remove(struct fabric_endpoint *ep, unsigned space)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);

	if (v->spaces)
		fabric_verbs_space_free(&v->spaces[space - 1]);
}

/* The adapter on the other side refuses access to what is no more. */
bool fabric_verbs_space_alive(struct fabric_endpoint *ep, unsigned space)
{
	return verbs_endpoint(ep)->spaces[space - 1].count > 0;
}
