/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync.c - what locks, queues, barriers and epoch counters share: the first word, which says what there is
 *
 * Uses the public calls of tarn/region.h alone, as all of client/lock.c, queue*.c, barrier.c and epoch.c do; runs on
 * the application's thread. Next: sync-call.c for waiting and waking, docs/sync.md.
 */
#include "sync-internal.h"

#include <errno.h>
#include <string.h>

#include "err.h"

int sync_check_place(const struct tarn_region *region, uint64_t offset, uint64_t bytes)
{
	uint64_t room;

	if (!region)
		return err_set(-EINVAL, "region must not be NULL");
	room = tarn_region_bytes(region);
	if (offset % 8)
		return err_set(-EINVAL, "offset is %llu: it must be a multiple of 8",
			       (unsigned long long)offset);
	if (bytes > room || offset > room - bytes)
		return err_set(-EINVAL,
			       "%llu bytes at offset %llu are not inside the region of %llu bytes",
			       (unsigned long long)bytes, (unsigned long long)offset,
			       (unsigned long long)room);
	return 0;
}

int sync_check_lease(uint32_t lease_ms)
{
	if (lease_ms < TARN_SYNC_LEASE_MIN_MS || lease_ms > TARN_SYNC_LEASE_MAX_MS)
		return err_set(-EINVAL, "lease_ms is %u: must be %u to %u", lease_ms,
			       TARN_SYNC_LEASE_MIN_MS, TARN_SYNC_LEASE_MAX_MS);
	return 0;
}

static const char *kind_name(uint64_t config)
{
	static const char *const names[] = {
		[SYNC_LOCK] = "a lock",
		[SYNC_QUEUE] = "a queue",
		[SYNC_QUEUE_SINGLE] = "a queue of one producer",
		[SYNC_BARRIER] = "a barrier",
		[SYNC_EPOCH] = "an epoch counter",
	};
	uint64_t kind = config >> SYNC_PARAMETERS_BITS & 15;

	if (config >> 52 != SYNC_MAGIC || kind < SYNC_LOCK || kind > SYNC_EPOCH)
		return "something else";
	return names[kind];
}

/* ---- init ------------------------------------------------------------------------------------ */

static struct sync_init *init_of(struct sync_call *call)
{
	return (struct sync_init *)call;
}

static sync_handler init_looked, init_first, init_tried;

static enum sync_want init_look(struct sync_call *call)
{
	struct sync_init *init = init_of(call);

	call->ops[0] = sync_op_read(init->offset + 8, init->words, init->bytes - 8);
	return sync_access(call, 1, init_looked);
}

static enum sync_want init_try(struct sync_call *call)
{
	struct sync_init *init = init_of(call);

	call->ops[0] = sync_op_cas(init->offset, 0, init->config);
	return sync_access(call, 1, init_tried);
}

/* What is not zero before the first word is was there before. */
static enum sync_want init_looked(struct sync_call *call)
{
	struct sync_init *init = init_of(call);
	uint64_t used = 0;

	if (call->status < 0)
		return sync_end(call, call->status);
	for (size_t i = 0; i < init->bytes / 8 - 1; i++)
		used |= init->words[i];
	if (!used)
		return init_try(call);
	call->ops[0] = sync_op_read(init->offset, &init->before, 8);
	return sync_access(call, 1, init_first);
}

static enum sync_want init_first(struct sync_call *call)
{
	struct sync_init *init = init_of(call);

	if (call->status < 0)
		return sync_end(call, call->status);
	if (init->before)
		return init_try(call);
	return sync_end(
		call, err_set(-TARN_EEXISTS,
			      "there are other data at offset %llu: it must be memory of zeros",
			      (unsigned long long)init->offset));
}

static enum sync_want init_failed(struct sync_init *init, int status)
{
	/* once more: it says the same if the first has worked */
	if (status == -TARN_EAMBIGUOUS) {
		init->ambiguous = true;
		if (++init->tries < SYNC_TRIES)
			return init_try(&init->call);
	}
	if (init->ambiguous && status != -TARN_EAMBIGUOUS)
		status = err_set(-TARN_EAMBIGUOUS,
				 "what is at offset %llu may have been made or not: init it again",
				 (unsigned long long)init->offset);
	return sync_end(&init->call, status);
}

static enum sync_want init_tried(struct sync_call *call)
{
	struct sync_init *init = init_of(call);
	uint64_t before = call->ops[0].before;

	if (call->status < 0)
		return init_failed(init, call->status);
	if (before == 0 || before == init->config)
		return sync_end(call, 0);
	return sync_end(call, err_set(-TARN_EEXISTS, "at offset %llu is %s%s",
				      (unsigned long long)init->offset, kind_name(before),
				      before >> SYNC_PARAMETERS_BITS ==
						      init->config >> SYNC_PARAMETERS_BITS
					      ? " with other parameters"
					      : ""));
}

void sync_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		     size_t bytes, enum sync_kind kind, uint64_t parameters)
{
	*init = (struct sync_init){
		.call.region = region,
		.offset = offset,
		.bytes = bytes,
		.config = SYNC_MAGIC << 52 | (uint64_t)kind << SYNC_PARAMETERS_BITS | parameters};
	sync_begin(&init->call, init_look);
}

/* ---- open ------------------------------------------------------------------------------------ */

void sync_open_begin(struct sync_call *call, struct tarn_region *region, uint64_t offset,
		     void (*free_handle)(struct sync_call *call), sync_handler *opened)
{
	call->region = region;
	call->free = free_handle;
	call->closed = true;
	sync_begin(call, opened);
	call->ops[0] = sync_op_read(offset, &call->config, 8);
	call->want = sync_access(call, 1, opened);
}

int sync_open_run(struct sync_call *call)
{
	int ret = sync_run(call);

	if (call->closed)
		call->free(call);
	return ret;
}

int sync_opened(const struct sync_call *call, uint64_t offset, enum sync_kind *ret_kind,
		uint64_t *ret_parameters)
{
	uint64_t config = call->config;

	if (call->status < 0)
		return call->status;
	if (config == 0)
		return err_set(-TARN_ENOTFOUND, "nothing was made at offset %llu: init it",
			       (unsigned long long)offset);
	if (config >> 52 != SYNC_MAGIC)
		return err_set(-TARN_ECORRUPT,
			       "at offset %llu is 0x%016llx: no lock, queue, barrier or counter",
			       (unsigned long long)offset, (unsigned long long)config);
	*ret_kind = config >> SYNC_PARAMETERS_BITS & 15;
	*ret_parameters = config & ((1ull << SYNC_PARAMETERS_BITS) - 1);
	return 0;
}

int sync_wrong_kind(enum sync_kind kind, const char *wanted)
{
	uint64_t config = SYNC_MAGIC << 52 | (uint64_t)kind << SYNC_PARAMETERS_BITS;

	return err_set(-TARN_ETYPE, "there is %s, not %s", kind_name(config), wanted);
}
