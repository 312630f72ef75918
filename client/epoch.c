/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * epoch.c - a counter in a region that goes up and can be waited for
 *
 * Runs on the application's thread. Next: docs/sync.md.
 */
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"
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
	struct tarn_region *region;
	uint64_t offset;
	uint64_t highest; /* value that was ever seen */
	uint64_t sequence, random;
};

int tarn_epoch_init(struct tarn_region *region, uint64_t offset)
{
	int ret = sync_check_place(region, offset, TARN_EPOCH_BYTES);

	return ret < 0 ? ret : sync_init(region, offset, TARN_EPOCH_BYTES, SYNC_EPOCH, 0);
}

int tarn_epoch_open(struct tarn_region *region, uint64_t offset, struct tarn_epoch **ret_epoch)
{
	uint64_t parameters;
	enum sync_kind kind;
	struct tarn_epoch *epoch;
	int ret = sync_check_place(region, offset, TARN_EPOCH_BYTES);

	if (ret == 0 && !ret_epoch)
		ret = err_set(-EINVAL, "ret_epoch must not be NULL");
	if (ret == 0)
		ret = sync_open(region, offset, &kind, &parameters);
	if (ret < 0)
		return ret;
	if (kind != SYNC_EPOCH)
		return sync_wrong_kind(kind, "an epoch counter");
	if (parameters)
		return err_set(-TARN_ECORRUPT, "the counter's first word is damaged");
	epoch = calloc(1, sizeof(*epoch));
	if (!epoch)
		return err_set(-ENOMEM, "no memory for an epoch counter");
	epoch->region = region;
	epoch->offset = offset;
	*ret_epoch = epoch;
	return 0;
}

void tarn_epoch_close(struct tarn_epoch *epoch)
{
	free(epoch);
}

static int check(const struct tarn_epoch *epoch)
{
	return epoch ? 0 : err_set(-EINVAL, "epoch must not be NULL");
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

/* The value, and whether somebody sleeps. */
static int look(struct tarn_epoch *epoch, uint64_t *ret_sleeps)
{
	uint64_t words[2];
	int ret =
		tarn_region_read(epoch->region, epoch->offset + SYNC_SLEEPS, words, sizeof(words));

	if (ret == 0)
		ret = learn(epoch, words[1]);
	if (ret == 0)
		*ret_sleeps = words[0];
	return ret;
}

int tarn_epoch_read(struct tarn_epoch *epoch, uint64_t *ret_value)
{
	uint64_t sleeps;
	int ret = check(epoch);

	if (ret == 0 && !ret_value)
		ret = err_set(-EINVAL, "ret_value must not be NULL");
	if (ret == 0)
		ret = look(epoch, &sleeps);
	if (ret == 0)
		*ret_value = epoch->highest;
	return ret;
}

int tarn_epoch_add(struct tarn_epoch *epoch, uint64_t add, uint64_t *ret_value)
{
	uint64_t sleeps = 0;
	struct tarn_region_op ops[2];
	int ret = check(epoch);

	if (ret == 0 && (!add || add > TARN_EPOCH_ADD_MAX))
		ret = err_set(-EINVAL, "add is %llu: must be 1 to %llu", (unsigned long long)add,
			      (unsigned long long)TARN_EPOCH_ADD_MAX);
	if (ret < 0)
		return ret;
	ops[0] = (struct tarn_region_op){
		.kind = TARN_REGION_FAA, .offset = epoch->offset + VALUE_OFFSET, .operand = add};
	ops[1] = sync_op_read(epoch->offset + SYNC_SLEEPS, &sleeps, 8);
	ret = tarn_region_batch(epoch->region, ops, 2);
	if (ret == 0)
		ret = learn(epoch, ops[0].before);
	if (ret < 0)
		return ret;
	epoch->highest = ops[0].before + add;
	sync_wake(epoch->region, epoch->offset + SYNC_SLEEPS, sleeps);
	if (ret_value)
		*ret_value = epoch->highest;
	return 0;
}

/* One step towards `value`. 1: it is there, and those who sleep are woken. */
static int raise_step(struct tarn_epoch *epoch, uint64_t value)
{
	uint64_t sleeps = 0, known;
	struct tarn_region_op ops[2];
	int ret = look(epoch, &sleeps);

	if (ret < 0 || epoch->highest >= value) {
		/* raised, and not known to be: then nobody was woken */
		if (ret == 0)
			sync_wake(epoch->region, epoch->offset + SYNC_SLEEPS, sleeps);
		return ret < 0 ? ret : 1;
	}
	known = epoch->highest;
	ops[0] = sync_op_cas(epoch->offset + VALUE_OFFSET, known, value);
	ops[1] = sync_op_read(epoch->offset + SYNC_SLEEPS, &sleeps, 8);
	ret = tarn_region_batch(epoch->region, ops, 2);
	if (ret < 0 || ops[0].before != known)
		return ret;
	epoch->highest = value;
	sync_wake(epoch->region, epoch->offset + SYNC_SLEEPS, sleeps);
	return 1;
}

int tarn_epoch_raise(struct tarn_epoch *epoch, uint64_t value)
{
	unsigned ambiguous = 0;
	int ret = check(epoch);

	if (ret == 0 && value > TARN_EPOCH_MAX)
		ret = err_set(-EINVAL, "value is %llu: must be up to %llu",
			      (unsigned long long)value, (unsigned long long)TARN_EPOCH_MAX);
	/* it ends: each time that another one was faster the value is higher */
	while (ret == 0) {
		ret = raise_step(epoch, value);
		if (ret == -TARN_EAMBIGUOUS && ++ambiguous < SYNC_TRIES)
			ret = 0;
	}
	return ret < 0 ? ret : 0;
}

int tarn_epoch_wait(struct tarn_epoch *epoch, uint64_t at_least, uint32_t timeout_ms,
		    uint64_t *ret_value)
{
	struct sync_wait wait = {.what = "the counter has not come so far"};
	uint64_t sleeps;
	int ret = check(epoch);

	if (ret < 0)
		return ret;
	wait.region = epoch->region;
	wait.sleeps_offset = epoch->offset + SYNC_SLEEPS;
	wait.sequence = &epoch->sequence;
	wait.random = &epoch->random;
	ret = sync_wait_begin(&wait, timeout_ms);
	while (ret == 0) {
		ret = look(epoch, &sleeps);
		if (ret == 0 && epoch->highest >= at_least)
			break;
		if (ret == 0)
			ret = sync_pause(&wait);
	}
	if (ret == 0 && ret_value)
		*ret_value = epoch->highest;
	return ret;
}
