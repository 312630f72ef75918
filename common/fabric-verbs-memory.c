/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs-memory.c - the caller's memory that is registered: READs and WRITEs go straight there
 *
 * A table by address; what is in it needs no room in the ring, and no copy. The caller's thread. Next:
 * fabric-verbs-queue.c, which asks for each piece.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fabric-verbs.h"

struct verbs_memory {
	uintptr_t begin, end;
	uintptr_t end_max; /* the highest end up to here in the table */
	struct ibv_mr *mr;
	bool writable;
};

static void ends_update(struct verbs_endpoint *v)
{
	uintptr_t most = 0;

	for (unsigned i = 0; i < v->memory_count; i++) {
		if (v->memories[i].end > most)
			most = v->memories[i].end;
		v->memories[i].end_max = most;
	}
}

static void insert(struct verbs_endpoint *v, const struct verbs_memory *memory)
{
	unsigned at = v->memory_count;

	while (at > 0 && v->memories[at - 1].begin > memory->begin) {
		v->memories[at] = v->memories[at - 1];
		at--;
	}
	v->memories[at] = *memory;
	v->memory_count++;
	ends_update(v);
}

/* Is there room for one more? */
static int table_reserve(struct verbs_endpoint *v)
{
	if (v->memory_count == VERBS_MEMORIES_MAX)
		return err_set(-ENOSPC, "a session can have %u registered pieces of memory",
			       VERBS_MEMORIES_MAX);
	if (!v->memories) {
		v->memories = calloc(VERBS_MEMORIES_MAX, sizeof(*v->memories));
		if (!v->memories)
			return err_set(-ENOMEM, "no memory for a table of registered memory");
	}
	return 0;
}

static int refused(const struct verbs_endpoint *v, size_t bytes)
{
	char what[80];

	snprintf(what, sizeof(what), "registration of %zu bytes of memory", bytes);
	return fabric_verbs_resource_error(ibv_get_device_name(v->context->device), what);
}

int fabric_verbs_memory_add(struct fabric_endpoint *ep, void *memory, size_t bytes, bool writable)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	struct verbs_memory it = {
		.begin = (uintptr_t)memory, .end = (uintptr_t)memory + bytes, .writable = writable};
	int ret;

	if (v->lost)
		return 0; /* nothing is done there any more */
	ret = table_reserve(v);
	if (ret < 0)
		return ret;
	errno = 0;
	it.mr = ibv_reg_mr(v->pd, memory, bytes, writable ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (!it.mr && errno == EFAULT)
		return err_set(-EFAULT,
			       "%zu bytes at %p are no memory of this process, or not writable "
			       "(TARN_BUFFER_SOURCE: for puts alone)",
			       bytes, memory);
	if (!it.mr)
		return refused(v, bytes);
	insert(v, &it);
	return 0;
}

/* Drivers say it in one way, kernels that do not know of it in others. */
static bool not_supported(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == ENOTTY ||
	       error == EPROTONOSUPPORT;
}

int fabric_verbs_memory_add_dmabuf(struct fabric_endpoint *ep, int fd, uint64_t offset,
				   void *memory, size_t bytes, bool writable)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);
	struct verbs_memory it = {
		.begin = (uintptr_t)memory, .end = (uintptr_t)memory + bytes, .writable = writable};
	int ret;

	if (v->lost)
		return 0;
	ret = table_reserve(v);
	if (ret < 0)
		return ret;
	errno = 0;
	it.mr = ibv_reg_dmabuf_mr(v->pd, offset, bytes, it.begin, fd,
				  writable ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (!it.mr && not_supported(errno))
		return err_set(
			-EOPNOTSUPP,
			"%s: the adapter, its driver or the kernel can not register a dma-buf: "
			"use memory of the process (tarn_alloc), and let the device copy",
			ibv_get_device_name(v->context->device));
	if (!it.mr)
		return refused(v, bytes);
	insert(v, &it);
	return 0;
}

void fabric_verbs_memory_remove(struct fabric_endpoint *ep, const void *memory, size_t bytes,
				bool writable)
{
	struct verbs_endpoint *v = verbs_endpoint(ep);

	for (unsigned i = 0; i < v->memory_count; i++) {
		struct verbs_memory *it = &v->memories[i];

		if (it->begin != (uintptr_t)memory || it->end - it->begin != bytes ||
		    it->writable != writable)
			continue;
		ibv_dereg_mr(it->mr);
		v->memory_count--;
		memmove(it, it + 1, (v->memory_count - i) * sizeof(*it));
		ends_update(v);
		return;
	}
}

bool fabric_verbs_memory_has(struct fabric_endpoint *ep, const void *local, size_t bytes,
			     bool writable)
{
	uint32_t lkey;

	return fabric_verbs_memory_find(verbs_endpoint(ep), local, bytes, writable, &lkey);
}

bool fabric_verbs_memory_find(const struct verbs_endpoint *v, const void *local, size_t bytes,
			      bool writable, uint32_t *ret_lkey)
{
	uintptr_t begin = (uintptr_t)local;
	unsigned low = 0, high = v->memory_count;

	/* those from `high` on begin behind it */
	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (v->memories[middle].begin <= begin)
			low = middle + 1;
		else
			high = middle;
	}
	while (high-- > 0 && v->memories[high].end_max > begin &&
	       v->memories[high].end_max - begin >= bytes) {
		const struct verbs_memory *it = &v->memories[high];

		if (it->end <= begin || it->end - begin < bytes || (writable && !it->writable))
			continue;
		*ret_lkey = it->mr->lkey;
		return true;
	}
	return false;
}

void fabric_verbs_memory_drop(struct verbs_endpoint *v)
{
	for (unsigned i = 0; i < v->memory_count; i++)
		ibv_dereg_mr(v->memories[i].mr);
	v->memory_count = 0;
}
