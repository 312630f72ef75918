/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoch.c - a counter in a region that goes up and can be waited for
 *
 * Each call is handlers (sync-call.c). Runs on the thread of the session. Next: docs/sync.md.
 */
#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "sync-internal.h"

struct epoch_memory {
	uint64_t config;
	uint64_t sleeps;
	uint64_t value;
	uint64_t reserved[5];
};
_Static_assert(sizeof(struct epoch_memory) == TARN_EPOCH_BYTES, "layout of an epoch counter");

#define VALUE_OFFSET offsetof(struct epoch_memory, value)

struct tarn_epoch {
	struct sync_call call; /* first */
	uint64_t offset;
	uint64_t highest; /* value that was ever seen */
	/* the call under way */
	uint64_t words[2]; /* whether somebody sleeps, and the value */
	uint64_t number;   /* what to add, or to come to */
	unsigned ambiguous;
	uint64_t *ret_value;
	struct tarn_epoch **ret_epoch;
};

static struct tarn_epoch *epoch_of(struct sync_call *call)
{
	return (struct tarn_epoch *)call;
}

static void epoch_free(struct sync_call *call)
{
	free(epoch_of(call));
}

int epoch_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset)
{
	int ret = sync_check_place(region, offset, TARN_EPOCH_BYTES);

	if (ret == 0)
		sync_init_begin(init, region, offset, TARN_EPOCH_BYTES, SYNC_EPOCH, 0);
	return ret;
}

int tarn_epoch_init(struct tarn_region *region, uint64_t offset)
{
	struct sync_init init;
	int ret = epoch_init_begin(&init, region, offset);

	return ret < 0 ? ret : sync_run(&init.call);
}

static enum sync_want opened(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);
	uint64_t parameters;
	enum sync_kind kind;
	int ret = sync_opened(call, epoch->offset, &kind, &parameters);

	if (ret == 0 && kind != SYNC_EPOCH)
		ret = sync_wrong_kind(kind, "an epoch counter");
	else if (ret == 0 && parameters)
		ret = err_set(-TARN_ECORRUPT, "the counter's first word is damaged");
	if (ret < 0)
		return sync_end(call, ret);
	*epoch->ret_epoch = epoch;
	return sync_open_end(call);
}

int epoch_open_begin(struct tarn_region *region, uint64_t offset, struct tarn_epoch **ret_epoch,
		     struct sync_call **ret_call)
{
	struct tarn_epoch *epoch;
	int ret = sync_check_place(region, offset, TARN_EPOCH_BYTES);

	if (ret == 0 && !ret_epoch)
		ret = err_set(-EINVAL, "ret_epoch must not be NULL");
	if (ret < 0)
		return ret;
	epoch = calloc(1, sizeof(*epoch));
	if (!epoch)
		return err_set(-ENOMEM, "no memory for an epoch counter");
	epoch->offset = offset;
	epoch->ret_epoch = ret_epoch;
	sync_open_begin(&epoch->call, region, offset, epoch_free, opened);
	*ret_call = &epoch->call;
	return 0;
}

int tarn_epoch_open(struct tarn_region *region, uint64_t offset, struct tarn_epoch **ret_epoch)
{
	struct sync_call *call;
	int ret = epoch_open_begin(region, offset, ret_epoch, &call);

	return ret < 0 ? ret : sync_open_run(call);
}

void tarn_epoch_close(struct tarn_epoch *epoch)
{
	if (epoch)
		sync_close(&epoch->call);
}

static int check(const struct tarn_epoch *epoch)
{
	return epoch ? sync_check_free(&epoch->call) : err_set(-EINVAL, "epoch must not be NULL");
}

static int learn(struct tarn_epoch *epoch, uint64_t value)
{
	if (value < epoch->highest || value > SYNC_WORD_MAX)
		return err_set(-TARN_ECORRUPT,
			       "the counter's memory is damaged: it was %llu, and is %llu",
			       (unsigned long long)epoch->highest, (unsigned long long)value);
	epoch->highest = value;
	return 0;
}

static enum sync_want told(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);

	if (epoch->ret_value)
		*epoch->ret_value = epoch->highest;
	return sync_end(call, 0);
}

static enum sync_want woken(struct sync_call *call)
{
	return sync_wake(call, epoch_of(call)->offset + SYNC_SLEEPS, told);
}

/* The value, and whether somebody sleeps. */
static enum sync_want look(struct sync_call *call, sync_handler *seen)
{
	struct tarn_epoch *epoch = epoch_of(call);

	call->ops[0] =
		sync_op_read(epoch->offset + SYNC_SLEEPS, epoch->words, sizeof(epoch->words));
	return sync_access(call, 1, seen);
}

/* What look() has found, as a status. */
static int learned(struct tarn_epoch *epoch)
{
	if (epoch->call.status < 0)
		return epoch->call.status;
	epoch->call.sleeps = epoch->words[0];
	return learn(epoch, epoch->words[1]);
}

/* ---- read and add ---------------------------------------------------------------------------- */

static enum sync_want read_seen(struct sync_call *call)
{
	int ret = learned(epoch_of(call));

	return ret < 0 ? sync_end(call, ret) : told(call);
}

static enum sync_want read_look(struct sync_call *call)
{
	return look(call, read_seen);
}

int epoch_read_begin(struct tarn_epoch *epoch, uint64_t *ret_value)
{
	int ret = check(epoch);

	if (ret < 0)
		return ret;
	epoch->ret_value = ret_value;
	sync_begin(&epoch->call, read_look);
	return 0;
}

int tarn_epoch_read(struct tarn_epoch *epoch, uint64_t *ret_value)
{
	int ret = epoch_read_begin(epoch, ret_value);

	if (ret == 0 && !ret_value)
		ret = err_set(-EINVAL, "ret_value must not be NULL");
	return ret < 0 ? ret : sync_run(&epoch->call);
}

static enum sync_want added(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);
	int ret = call->status;

	if (ret == 0)
		ret = learn(epoch, call->ops[0].before);
	if (ret < 0)
		return sync_end(call, ret);
	epoch->highest = call->ops[0].before + epoch->number;
	return woken(call);
}

static enum sync_want add(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);

	call->ops[0] = (struct tarn_region_op){.kind = TARN_REGION_FAA,
					       .offset = epoch->offset + VALUE_OFFSET,
					       .operand = epoch->number};
	call->ops[1] = sync_op_read(epoch->offset + SYNC_SLEEPS, &call->sleeps, 8);
	return sync_access(call, 2, added);
}

int epoch_add_begin(struct tarn_epoch *epoch, uint64_t number, uint64_t *ret_value)
{
	int ret = check(epoch);

	if (ret == 0 && (!number || number > TARN_EPOCH_ADD_MAX))
		ret = err_set(-EINVAL, "add is %llu: must be 1 to %llu", (unsigned long long)number,
			      (unsigned long long)TARN_EPOCH_ADD_MAX);
	if (ret < 0)
		return ret;
	epoch->number = number;
	epoch->ret_value = ret_value;
	sync_begin(&epoch->call, add);
	return 0;
}

int tarn_epoch_add(struct tarn_epoch *epoch, uint64_t number, uint64_t *ret_value)
{
	int ret = epoch_add_begin(epoch, number, ret_value);

	return ret < 0 ? ret : sync_run(&epoch->call);
}

/* ---- raise ----------------------------------------------------------------------------------- */

static sync_handler raise_seen, raise_tried;

static enum sync_want raise_look(struct sync_call *call)
{
	return look(call, raise_seen);
}

static enum sync_want raise_seen(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);
	int ret = learned(epoch);

	if (ret < 0)
		return sync_end(call, ret);
	/* raised, and not known to be: then nobody was woken */
	if (epoch->highest >= epoch->number)
		return woken(call);
	call->ops[0] = sync_op_cas(epoch->offset + VALUE_OFFSET, epoch->highest, epoch->number);
	call->ops[1] = sync_op_read(epoch->offset + SYNC_SLEEPS, &call->sleeps, 8);
	return sync_access(call, 2, raise_tried);
}

/* It ends: each time that another one was faster the value is higher. */
static enum sync_want raise_tried(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);

	if (call->status == -TARN_EAMBIGUOUS && ++epoch->ambiguous < SYNC_TRIES)
		return raise_look(call);
	if (call->status < 0)
		return sync_end(call, call->status);
	if (call->ops[0].before != epoch->highest)
		return raise_look(call);
	epoch->highest = epoch->number;
	return woken(call);
}

int epoch_raise_begin(struct tarn_epoch *epoch, uint64_t value)
{
	int ret = check(epoch);

	if (ret == 0 && value > TARN_EPOCH_MAX)
		ret = err_set(-EINVAL, "value is %llu: must be up to %llu",
			      (unsigned long long)value, (unsigned long long)TARN_EPOCH_MAX);
	if (ret < 0)
		return ret;
	epoch->number = value;
	epoch->ambiguous = 0;
	epoch->ret_value = NULL;
	sync_begin(&epoch->call, raise_look);
	return 0;
}

int tarn_epoch_raise(struct tarn_epoch *epoch, uint64_t value)
{
	int ret = epoch_raise_begin(epoch, value);

	return ret < 0 ? ret : sync_run(&epoch->call);
}

/* ---- wait ------------------------------------------------------------------------------------ */

static sync_handler wait_seen;

static enum sync_want wait_look(struct sync_call *call)
{
	return look(call, wait_seen);
}

static enum sync_want wait_seen(struct sync_call *call)
{
	struct tarn_epoch *epoch = epoch_of(call);
	int ret = learned(epoch);

	if (ret < 0)
		return sync_end(call, ret);
	return epoch->highest >= epoch->number ? told(call) : sync_pause(call, wait_look);
}

int epoch_wait_begin(struct tarn_epoch *epoch, uint64_t at_least, uint32_t timeout_ms,
		     uint64_t *ret_value)
{
	int ret = check(epoch);

	if (ret == 0)
		ret = sync_wait_begin(&epoch->call, timeout_ms, epoch->offset + SYNC_SLEEPS,
				      "the counter has not come so far");
	if (ret < 0)
		return ret;
	epoch->number = at_least;
	epoch->ret_value = ret_value;
	sync_begin(&epoch->call, wait_look);
	return 0;
}

int tarn_epoch_wait(struct tarn_epoch *epoch, uint64_t at_least, uint32_t timeout_ms,
		    uint64_t *ret_value)
{
	int ret = epoch_wait_begin(epoch, at_least, timeout_ms, ret_value);

	return ret < 0 ? ret : sync_run(&epoch->call);
}
