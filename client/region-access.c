/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-access.c - the public calls that access a region's memory, blocking and asynchronous
 *
 * Runs on the application's thread. tarn/region.h is the manual. Next: region-task.h, async.c.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "engine.h"
#include "err.h"
#include "sync-internal.h"
#include "region-task.h"

/* A call that waits for long lets housekeeping in now and then. */
#define WAIT_SLICE_NS  250000000u
#define TIMEOUT_MAX_MS 3600000u

/* ---- what a caller gives --------------------------------------------------------------------- */

static int check_one(const struct tarn_region *region, const struct tarn_region_op *op, size_t i)
{
	bool atomic = op->kind == TARN_REGION_CAS || op->kind == TARN_REGION_FAA;
	uint64_t bytes = atomic ? 8 : op->bytes;

	if (op->kind < TARN_REGION_READ || op->kind > TARN_REGION_FAA)
		return err_set(-EINVAL, "access %zu: kind is %u: 1 to 4 are known", i, op->kind);
	if (op->offset > region->bytes || bytes > region->bytes - op->offset)
		return err_set(-EINVAL,
			       "access %zu: %llu bytes at offset %llu: region %s has %llu bytes", i,
			       (unsigned long long)bytes, (unsigned long long)op->offset,
			       region->name, (unsigned long long)region->bytes);
	if (atomic && op->offset % 8)
		return err_set(
			-EINVAL,
			"access %zu: an atomic operation at offset %llu: must be a multiple of 8",
			i, (unsigned long long)op->offset);
	if (!atomic && !op->buffer && op->bytes)
		return err_set(-EINVAL, "access %zu: buffer is NULL but has %llu bytes", i,
			       (unsigned long long)op->bytes);
	if (op->kind != TARN_REGION_READ && region->read_only)
		return err_set(-TARN_EREADONLY, "region %s is open for reading only", region->name);
	return 0;
}

/* `region` is not NULL. */
int region_check(const struct tarn_region *region, const struct tarn_region_op *ops, size_t count)
{
	if (!ops && count)
		return err_set(-EINVAL, "ops is NULL but has %zu accesses", count);
	for (size_t i = 0; i < count; i++) {
		int ret = check_one(region, &ops[i], i);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int check(const struct tarn_region *region, const struct tarn_region_op *ops, size_t count)
{
	if (!region || region->closed)
		return err_set(-EINVAL,
			       region ? "the region was closed before" : "region must not be NULL");
	return region_check(region, ops, count);
}

static struct tarn_region_op access_of(enum tarn_region_op_kind kind, uint64_t offset,
				       const void *buffer, size_t bytes)
{
	/* a WRITE's is not written to */
	return (struct tarn_region_op){
		.kind = kind, .offset = offset, .buffer = (void *)buffer, .bytes = bytes};
}

static struct tarn_region_op atomic_of(enum tarn_region_op_kind kind, uint64_t offset,
				       uint64_t compare, uint64_t operand)
{
	return (struct tarn_region_op){
		.kind = kind, .offset = offset, .compare = compare, .operand = operand};
}

/* ---- blocking -------------------------------------------------------------------------------- */

static int run_until(struct tarn_region *region, enum region_goal goal, struct tarn_region_op *ops,
		     size_t count, uint64_t not_after_ns)
{
	struct tarn_session *s;
	struct region_task task;
	int ret = check(region, ops, count);

	if (ret < 0)
		return ret;
	s = region->session;
	ret = region_enter(region);
	if (ret < 0)
		return ret;
	do {
		region_task(&task, region, goal, ops, count);
		task.not_after_ns = not_after_ns;
		ret = session_run(s, &task.task);
	} while (session_retry(s, &ret));
	region_leave(s);
	return ret;
}

static int run(struct tarn_region *region, enum region_goal goal, struct tarn_region_op *ops,
	       size_t count)
{
	return region_result(region, run_until(region, goal, ops, count, 0));
}

TARN_API int tarn_region_read(struct tarn_region *region, uint64_t offset, void *buffer,
			      size_t bytes)
{
	struct tarn_region_op op = access_of(TARN_REGION_READ, offset, buffer, bytes);

	return run(region, REGION_ACCESS, &op, 1);
}

TARN_API int tarn_region_write(struct tarn_region *region, uint64_t offset, const void *data,
			       size_t bytes)
{
	struct tarn_region_op op = access_of(TARN_REGION_WRITE, offset, data, bytes);

	return run(region, REGION_ACCESS, &op, 1);
}

static int run_atomic(struct tarn_region *region, struct tarn_region_op *op, uint64_t *ret_before)
{
	int ret = run(region, REGION_ACCESS, op, 1);

	if (ret == 0 && ret_before)
		*ret_before = op->before;
	return ret;
}

TARN_API int tarn_region_cas(struct tarn_region *region, uint64_t offset, uint64_t compare,
			     uint64_t swap, uint64_t *ret_before)
{
	struct tarn_region_op op = atomic_of(TARN_REGION_CAS, offset, compare, swap);

	return run_atomic(region, &op, ret_before);
}

TARN_API int tarn_region_faa(struct tarn_region *region, uint64_t offset, uint64_t add,
			     uint64_t *ret_before)
{
	struct tarn_region_op op = atomic_of(TARN_REGION_FAA, offset, 0, add);

	return run_atomic(region, &op, ret_before);
}

TARN_API int tarn_region_flush(struct tarn_region *region)
{
	return run(region, REGION_FLUSH, NULL, 0);
}

TARN_API int tarn_region_batch(struct tarn_region *region, struct tarn_region_op *ops, size_t count)
{
	return run(region, REGION_ACCESS, ops, count);
}

int sync_batch(struct tarn_region *region, struct tarn_region_op *ops, size_t count,
	       uint64_t not_after_ns)
{
	return run_until(region, REGION_ACCESS, ops, count, not_after_ns);
}

TARN_API int tarn_region_write_notify(struct tarn_region *region, uint64_t offset, const void *data,
				      size_t bytes)
{
	struct tarn_region_op op = access_of(TARN_REGION_WRITE, offset, data, bytes);

	return run(region, REGION_NOTIFY, &op, 1);
}

/* Up to `until_ns`, or a slice of that. 1: there is a later one, 0: nobody has notified. */
static int wait_slice(struct tarn_region *region, uint64_t *sequence, uint64_t until_ns)
{
	struct tarn_session *s = region->session;
	struct region_task task;
	uint64_t slice_ns;
	int ret = region_enter(region);

	if (ret < 0)
		return region_result(region, ret);
	do {
		slice_ns = session_now(s) + WAIT_SLICE_NS;
		region_task(&task, region, REGION_WAIT, NULL, 0);
		task.sequence = *sequence;
		task.listen_until_ns = slice_ns < until_ns ? slice_ns : until_ns;
		ret = session_run(s, &task.task);
	} while (session_retry(s, &ret));
	region_leave(s);
	if (ret == 0)
		*sequence = task.sequence;
	if (task.quiet)
		return 0;
	return ret < 0 ? region_result(region, ret) : 1;
}

TARN_API int tarn_region_wait(struct tarn_region *region, uint64_t *sequence, uint32_t timeout_ms)
{
	uint64_t until_ns;
	int ret;

	if (!region || region->closed || !sequence || timeout_ms > TIMEOUT_MAX_MS)
		return err_set(-EINVAL,
			       "timeout_ms is %u: at most %u; region and sequence must not be NULL",
			       timeout_ms, TIMEOUT_MAX_MS);
	until_ns = clock_now_ns() + timeout_ms * 1000000ull;
	/* the daemon is asked in any case: there may be a notification already */
	do
		ret = wait_slice(region, sequence, until_ns);
	while (ret == 0 && clock_now_ns() < until_ns);
	return ret;
}

/* ---- asynchronous ---------------------------------------------------------------------------- */

static int begin(struct tarn_region *region, enum region_goal goal, struct tarn_region_op *ops,
		 size_t count, struct op *op, const struct tarn_async *async, uint64_t *ret_op)
{
	int ret = check(region, ops, count);

	if (ret < 0)
		return ret;
	op->kind = goal == REGION_WAIT ? TARN_OP_REGION_WAIT : TARN_OP_REGION;
	op->region = region;
	op->goal = goal;
	op->accesses = ops;
	op->access_count = count;
	return async_begin(region->session, op, async, ret_op);
}

/* One access, which the operation keeps. */
static int begin_one(struct tarn_region *region, enum region_goal goal,
		     const struct tarn_region_op *access, const struct tarn_async *async,
		     uint64_t *ret_op)
{
	struct op op = {.one = *access};
	int ret = check(region, access, 1);

	/* its list is its own, wherever it is copied to: engine-op.c */
	return ret < 0 ? ret : begin(region, goal, NULL, 0, &op, async, ret_op);
}

TARN_API int tarn_region_read_async(struct tarn_region *region, uint64_t offset, void *buffer,
				    size_t bytes, const struct tarn_async *async, uint64_t *ret_op)
{
	struct tarn_region_op access = access_of(TARN_REGION_READ, offset, buffer, bytes);

	return begin_one(region, REGION_ACCESS, &access, async, ret_op);
}

TARN_API int tarn_region_write_async(struct tarn_region *region, uint64_t offset, const void *data,
				     size_t bytes, const struct tarn_async *async, uint64_t *ret_op)
{
	struct tarn_region_op access = access_of(TARN_REGION_WRITE, offset, data, bytes);

	return begin_one(region, REGION_ACCESS, &access, async, ret_op);
}

TARN_API int tarn_region_cas_async(struct tarn_region *region, uint64_t offset, uint64_t compare,
				   uint64_t swap, const struct tarn_async *async, uint64_t *ret_op)
{
	struct tarn_region_op access = atomic_of(TARN_REGION_CAS, offset, compare, swap);

	return begin_one(region, REGION_ACCESS, &access, async, ret_op);
}

TARN_API int tarn_region_faa_async(struct tarn_region *region, uint64_t offset, uint64_t add,
				   const struct tarn_async *async, uint64_t *ret_op)
{
	struct tarn_region_op access = atomic_of(TARN_REGION_FAA, offset, 0, add);

	return begin_one(region, REGION_ACCESS, &access, async, ret_op);
}

TARN_API int tarn_region_flush_async(struct tarn_region *region, const struct tarn_async *async,
				     uint64_t *ret_op)
{
	struct op op = {.kind = 0};

	return begin(region, REGION_FLUSH, NULL, 0, &op, async, ret_op);
}

TARN_API int tarn_region_batch_async(struct tarn_region *region, struct tarn_region_op *ops,
				     size_t count, const struct tarn_async *async, uint64_t *ret_op)
{
	struct op op = {.kind = 0};

	return begin(region, REGION_ACCESS, ops, count, &op, async, ret_op);
}

TARN_API int tarn_region_write_notify_async(struct tarn_region *region, uint64_t offset,
					    const void *data, size_t bytes,
					    const struct tarn_async *async, uint64_t *ret_op)
{
	struct tarn_region_op access = access_of(TARN_REGION_WRITE, offset, data, bytes);

	return begin_one(region, REGION_NOTIFY, &access, async, ret_op);
}

TARN_API int tarn_region_wait_async(struct tarn_region *region, uint64_t sequence,
				    const struct tarn_async *async, uint64_t *ret_op)
{
	struct op op = {.sequence = sequence};

	return begin(region, REGION_WAIT, NULL, 0, &op, async, ret_op);
}
