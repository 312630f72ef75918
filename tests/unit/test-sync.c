/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-sync.c - arguments of tarn/sync.h, what it does when all goes well, and memory that is damaged
 *
 * On a region in the test's own memory. What happens between several parties is the simulation's: tests/sim/sync-*.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <tarn/sync.h>

#include "clock.h"
#include "err.h"
#include "sync-internal.h"

#define BYTES 8192u
#define MS    1000000u

struct tarn_region {
	uint64_t words[BYTES / 8];
	uint64_t random;
	unsigned noise; /* one word of so many that are read is another one; 0: none */
	int fails;      /* every access ends with this */
	unsigned accesses;
};

static uint64_t next_random(struct tarn_region *r)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	return r->random ^= r->random << 17;
}

/* Not any number, but one that could be meant. */
static uint64_t hostile(struct tarn_region *r, uint64_t word)
{
	switch (next_random(r) % 8) {
	case 0:
		return next_random(r);
	case 1:
		return UINT64_MAX;
	case 2:
		return word + 1 + next_random(r) % 8;
	case 3:
		return word - 1 - next_random(r) % 8;
	case 4:
		return next_random(r) % 64;
	case 5:
		return 1ull << next_random(r) % 64;
	case 6:
		return r->words[next_random(r) % 128];
	default:
		return word ^ 1ull << next_random(r) % 64;
	}
}

static void check_inside(uint64_t offset, uint64_t bytes)
{
	assert_true(offset <= BYTES && bytes <= BYTES - offset);
}

int tarn_region_read(struct tarn_region *r, uint64_t offset, void *buffer, size_t bytes)
{
	check_inside(offset, bytes);
	r->accesses++;
	if (r->fails)
		return r->fails;
	memcpy(buffer, (uint8_t *)r->words + offset, bytes);
	for (size_t i = 0; r->noise && i < bytes / 8; i++)
		if (next_random(r) % r->noise == 0) {
			uint64_t word = hostile(r, r->words[offset / 8 + i]);

			memcpy((uint8_t *)buffer + i * 8, &word, 8);
		}
	return 0;
}

int tarn_region_write(struct tarn_region *r, uint64_t offset, const void *data, size_t bytes)
{
	check_inside(offset, bytes);
	r->accesses++;
	if (r->fails)
		return r->fails;
	if (bytes)
		memcpy((uint8_t *)r->words + offset, data, bytes);
	return 0;
}

static uint64_t atomic_op(struct tarn_region *r, const struct tarn_region_op *op)
{
	uint64_t before = r->words[op->offset / 8];

	assert_true(op->offset % 8 == 0);
	check_inside(op->offset, 8);
	if (r->noise && next_random(r) % r->noise == 0)
		return hostile(r, before);
	if (op->kind == TARN_REGION_FAA)
		r->words[op->offset / 8] += op->operand;
	else if (before == op->compare)
		r->words[op->offset / 8] = op->operand;
	return before;
}

int tarn_region_batch(struct tarn_region *r, struct tarn_region_op *ops, size_t count)
{
	r->accesses++;
	for (size_t i = 0; i < count; i++) {
		if (r->fails)
			return r->fails;
		if (ops[i].kind == TARN_REGION_READ)
			assert_int_equal(
				tarn_region_read(r, ops[i].offset, ops[i].buffer, ops[i].bytes), 0);
		else if (ops[i].kind == TARN_REGION_WRITE)
			assert_int_equal(
				tarn_region_write(r, ops[i].offset, ops[i].buffer, ops[i].bytes),
				0);
		else
			ops[i].before = atomic_op(r, &ops[i]);
	}
	return 0;
}

int region_result(const struct tarn_region *r, int ret)
{
	(void)r;
	return ret;
}

int sync_batch(struct tarn_region *r, struct tarn_region_op *ops, size_t count,
	       uint64_t not_after_ns)
{
	(void)not_after_ns; /* nobody waits here */
	return tarn_region_batch(r, ops, count);
}

int tarn_region_cas(struct tarn_region *r, uint64_t offset, uint64_t compare, uint64_t swap,
		    uint64_t *ret_before)
{
	struct tarn_region_op op = {
		.kind = TARN_REGION_CAS, .offset = offset, .compare = compare, .operand = swap};
	int ret = tarn_region_batch(r, &op, 1);

	if (ret == 0 && ret_before)
		*ret_before = op.before;
	return ret;
}

int tarn_region_write_notify(struct tarn_region *r, uint64_t offset, const void *data, size_t bytes)
{
	return tarn_region_write(r, offset, data, bytes);
}

int tarn_region_wait(struct tarn_region *r, uint64_t *sequence, uint32_t timeout_ms)
{
	(void)sequence;
	clock_sleep_ns(timeout_ms < 2 ? timeout_ms * MS : 2 * MS);
	return r->fails;
}

uint64_t tarn_region_bytes(const struct tarn_region *r)
{
	(void)r;
	return BYTES;
}

/* The region has no place of its own: a test is one at a time. */
static struct tarn_region *fresh(void)
{
	static struct tarn_region region;

	memset(&region, 0, sizeof(region));
	region.random = 88172645463325252ull;
	return &region;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void test_making(void **state)
{
	struct tarn_region *r = fresh();
	struct tarn_lock *lock = NULL;
	struct tarn_queue *queue = NULL;
	struct tarn_barrier *barrier = NULL;
	struct tarn_epoch *epoch = NULL;

	(void)state;
	assert_int_equal(tarn_lock_init(NULL, 0, 100), -EINVAL);
	assert_int_equal(tarn_lock_init(r, 4, 100), -EINVAL);
	assert_int_equal(tarn_lock_init(r, BYTES - 56, 100), -EINVAL);
	assert_int_equal(tarn_lock_init(r, UINT64_MAX - 7, 100), -EINVAL);
	assert_int_equal(tarn_lock_init(r, 0, 9), -EINVAL);
	assert_int_equal(tarn_lock_init(r, 0, 3600001), -EINVAL);
	assert_non_null(strstr(err_text(), "3600001: must be 10 to 3600000"));
	assert_int_equal(tarn_lock_open(r, 0, 1, &lock), -TARN_ENOTFOUND);
	assert_int_equal(tarn_lock_init(r, 0, 100), 0);
	assert_int_equal(tarn_lock_init(r, 0, 100), 0);
	assert_int_equal(tarn_lock_init(r, 0, 101), -TARN_EEXISTS);
	assert_string_equal(err_text(), "at offset 0 is a lock with other parameters");
	assert_int_equal(tarn_epoch_init(r, 0), -TARN_EEXISTS);
	assert_int_equal(tarn_lock_open(r, 0, 1, NULL), -EINVAL);
	assert_int_equal(tarn_epoch_open(r, 0, &epoch), -TARN_ETYPE);
	assert_int_equal(tarn_queue_open(r, 0, &queue), -TARN_ETYPE);
	assert_int_equal(tarn_barrier_open(r, 0, 0, &barrier), -TARN_ETYPE);
	assert_int_equal(tarn_epoch_init(r, 64), 0);
	assert_int_equal(tarn_epoch_init(r, 64), 0);
	assert_int_equal(tarn_lock_open(r, 64, 1, &lock), -TARN_ETYPE);
	/* something that is not zeros */
	r->words[300] = 7;
	assert_int_equal(tarn_lock_init(r, 299 * 8, 100), -TARN_EEXISTS);
	assert_int_equal(tarn_lock_init(r, 300 * 8, 100), -TARN_EEXISTS);
	assert_int_equal(tarn_lock_open(r, 300 * 8, 1, &lock), -TARN_ECORRUPT);
	assert_null(lock);
	assert_null(queue);
	assert_null(barrier);
	assert_null(epoch);
	tarn_lock_close(NULL);
	tarn_queue_close(NULL);
	tarn_barrier_close(NULL);
	tarn_epoch_close(NULL);
}

static void test_sizes(void **state)
{
	struct tarn_region *r = fresh();

	(void)state;
	assert_int_equal(tarn_queue_bytes(8, 33), 192 + 8 * (24 + 40));
	assert_int_equal(tarn_queue_bytes(3, 8), 0);
	assert_int_equal(tarn_queue_bytes(6, 8), 0);
	assert_int_equal(tarn_queue_bytes(1u << 25, 8), 0);
	assert_int_equal(tarn_queue_bytes(8, 0), 0);
	assert_int_equal(tarn_queue_bytes(8, TARN_QUEUE_MESSAGE_MAX + 1), 0);
	assert_int_equal(tarn_barrier_bytes(0), 0);
	assert_int_equal(tarn_barrier_bytes(1025), 0);
	assert_int_equal(tarn_barrier_bytes(1024), 64 + 8192);
	assert_int_equal(tarn_queue_init(r, 0, 5, 8, 100, 0), -EINVAL);
	assert_int_equal(tarn_queue_init(r, 0, 4, 0, 100, 0), -EINVAL);
	assert_int_equal(tarn_queue_init(r, 0, 4, 8, 100, 2), -EINVAL);
	assert_int_equal(tarn_queue_init(r, 0, 4, 8, 1, 0), -EINVAL);
	assert_int_equal(tarn_queue_init(r, 0, 1024, 8, 100, 0), -EINVAL);
	assert_int_equal(tarn_barrier_init(r, 0, 0), -EINVAL);
	assert_int_equal(tarn_barrier_init(r, 0, 1024), -EINVAL);
	assert_int_equal(tarn_queue_init(r, 0, 4, 8, 3600000, 0), 0);
	assert_int_equal(tarn_queue_init(r, 0, 4, 8, 3600000, TARN_QUEUE_SINGLE), -TARN_EEXISTS);
}

/* ---- what works ------------------------------------------------------------------------------ */

static void test_lock(void **state)
{
	struct tarn_region *r = fresh();
	struct tarn_lock *one, *two;
	struct tarn_lock_info info = {.size = sizeof(info)};
	uint64_t first, second, third;

	(void)state;
	assert_int_equal(tarn_lock_acquire(NULL, 0, NULL), -EINVAL);
	assert_int_equal(tarn_lock_init(r, 8, 10), 0);
	assert_int_equal(tarn_lock_open(r, 8, 11, &one), 0);
	assert_int_equal(tarn_lock_open(r, 8, 22, &two), 0);
	assert_int_equal(tarn_lock_renew(one, NULL), -EINVAL);
	assert_int_equal(tarn_lock_release(one), -EINVAL);
	assert_int_equal(tarn_lock_left_ms(one), 0);
	assert_int_equal(tarn_lock_left_ms(NULL), 0);
	assert_int_equal(tarn_lock_acquire(one, 3600001, &first), -EINVAL);
	assert_int_equal(tarn_lock_acquire(one, 0, &first), 0);
	assert_int_equal(tarn_lock_acquire(one, 0, &first), -EINVAL);
	assert_int_equal(tarn_lock_acquire(two, 0, &second), -TARN_ETIMEOUT);
	assert_int_equal(tarn_lock_stat(two, NULL), -EINVAL);
	assert_int_equal(tarn_lock_stat(two, &info), 0);
	assert_true(info.held && info.owner == 11 && info.token == first && info.lease_ms == 10);
	assert_int_equal(tarn_lock_renew(one, &second), 0);
	assert_true(second > first);
	/* nobody releases it: two takes it over, and one is told so */
	assert_int_equal(tarn_lock_acquire(two, 5000, &third), 0);
	assert_true(third > second);
	assert_int_equal(tarn_lock_left_ms(one), 0);
	assert_int_equal(tarn_lock_renew(one, &second), -TARN_EOVERTAKEN);
	assert_int_equal(tarn_lock_release(one), -EINVAL);
	assert_int_equal(tarn_lock_release(two), 0);
	assert_int_equal(tarn_lock_stat(one, &info), 0);
	assert_true(!info.held && info.token == third && info.owner == 0);
	/* an error of the region leaves it held */
	assert_int_equal(tarn_lock_acquire(two, 0, NULL), 0);
	r->fails = -TARN_ESESSION;
	assert_int_equal(tarn_lock_release(two), -TARN_ESESSION);
	assert_int_equal(tarn_lock_renew(two, NULL), -TARN_ESESSION);
	r->fails = -TARN_EAMBIGUOUS;
	assert_int_equal(tarn_lock_renew(two, NULL), -TARN_EAMBIGUOUS);
	assert_int_equal(tarn_lock_release(two), -TARN_EAMBIGUOUS);
	assert_int_equal(tarn_lock_release(two), -EINVAL);
	r->fails = 0;
	tarn_lock_close(one);
	tarn_lock_close(two);
}

static void queue_there_and_back(uint32_t flags)
{
	struct tarn_region *r = fresh();
	struct tarn_queue *q, *other;
	struct tarn_queue_info info = {.size = sizeof(info)};
	char message[24], got[24];
	uint64_t position;
	size_t bytes;

	memset(message, 'm', sizeof(message));
	assert_int_equal(tarn_queue_init(r, 64, 4, 20, 10, flags), 0);
	assert_int_equal(tarn_queue_open(r, 64, &q), 0);
	assert_int_equal(tarn_queue_open(r, 64, &other), 0);
	assert_int_equal(tarn_queue_send(NULL, "", 0, 0), -EINVAL);
	assert_int_equal(tarn_queue_send(q, NULL, 1, 0), -EINVAL);
	assert_int_equal(tarn_queue_send(q, message, 25, 0), -TARN_EVALUESIZE);
	assert_int_equal(tarn_queue_receive(q, got, sizeof(got), 0, NULL), -EINVAL);
	assert_int_equal(tarn_queue_receive(q, got, sizeof(got), 0, &bytes), -TARN_ETIMEOUT);
	assert_int_equal(tarn_queue_consume(q, 0), -EINVAL);
	for (unsigned lap = 0; lap < 5; lap++) {
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(tarn_queue_send(q, i ? message : NULL, i * 8, 0), 0);
		assert_int_equal(tarn_queue_send(q, message, 1, 3), -TARN_ETIMEOUT);
		assert_int_equal(tarn_queue_peek(other, got, sizeof(got), 0, &bytes, &position), 0);
		assert_int_equal(bytes, 0);
		assert_int_equal(tarn_queue_consume(other, position + 1), -EINVAL);
		assert_int_equal(tarn_queue_consume(other, position), 0);
		assert_int_equal(tarn_queue_consume(other, position), -EINVAL);
		assert_int_equal(tarn_queue_receive(q, got, 7, 0, &bytes), -TARN_ETOOSMALL);
		assert_int_equal(bytes, 8);
		for (size_t i = 1; i < 4; i++) {
			memset(got, 0, sizeof(got));
			assert_int_equal(
				tarn_queue_receive(i % 2 ? q : other, got, sizeof(got), 0, &bytes),
				0);
			assert_int_equal(bytes, i * 8);
			assert_memory_equal(got, message, bytes);
		}
		assert_int_equal(tarn_queue_receive(q, got, sizeof(got), 0, &bytes),
				 -TARN_ETIMEOUT);
	}
	assert_int_equal(tarn_queue_stat(q, &info), 0);
	assert_true(info.head == 20 && info.tail == 20 && info.slots == 4 &&
		    info.message_bytes == 24 && info.lease_ms == 10 && info.flags == flags);
	tarn_queue_close(q);
	tarn_queue_close(other);
}

static void test_queue(void **state)
{
	(void)state;
	queue_there_and_back(0);
	queue_there_and_back(TARN_QUEUE_SINGLE);
}

/* A place that was reserved by one who died is skipped, and its slot used again much later. */
static void test_queue_skips(void **state)
{
	struct tarn_region *r = fresh();
	struct tarn_queue *q;
	char got[8];
	size_t bytes;
	uint64_t begun;

	(void)state;
	assert_int_equal(tarn_queue_init(r, 0, 4, 8, 10, 0), 0);
	assert_int_equal(tarn_queue_open(r, 0, &q), 0);
	r->words[8] = 1; /* the tail */
	assert_int_equal(tarn_queue_send(q, "12345678", 8, 0), 0);
	assert_int_equal(tarn_queue_receive(q, got, 8, 0, &bytes), -TARN_ETIMEOUT);
	begun = clock_now_ns();
	assert_int_equal(tarn_queue_receive(q, got, 8, 5000, &bytes), 0);
	assert_true(clock_now_ns() - begun >= 10 * MS);
	assert_memory_equal(got, "12345678", 8);
	/* three slots are left: four messages do not fit, until the rest is over */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(tarn_queue_send(q, "abcdefgh", 8, 0), 0);
	begun = clock_now_ns();
	while (r->words[24] >> 2 < 2 || (r->words[24] & 3) == 2) { /* slot 0 is dead */
		assert_true(clock_now_ns() - begun < 60000000000ull);
		assert_int_equal(tarn_queue_receive(q, got, 8, 0, &bytes), 0);
		assert_int_equal(tarn_queue_send(q, "abcdefgh", 8, 0), 0);
		clock_sleep_ns(MS);
	}
	assert_true(clock_now_ns() - begun >= 100 * MS);
	tarn_queue_close(q);
}

static void test_barrier(void **state)
{
	struct tarn_region *r = fresh();
	struct tarn_barrier *b[3];
	uint64_t round = 0;

	(void)state;
	assert_int_equal(tarn_barrier_init(r, 0, 3), 0);
	assert_int_equal(tarn_barrier_open(r, 0, 3, &b[0]), -EINVAL);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(tarn_barrier_open(r, 0, i, &b[i]), 0);
	assert_int_equal(tarn_barrier_wait(NULL, 0, NULL), -EINVAL);
	assert_int_equal(tarn_barrier_wait(b[0], 0, &round), -TARN_ETIMEOUT);
	assert_int_equal(tarn_barrier_wait(b[0], 2, &round), -TARN_ETIMEOUT);
	assert_int_equal(tarn_barrier_wait(b[1], 0, &round), -TARN_ETIMEOUT);
	/* party 1 comes back in another process */
	tarn_barrier_close(b[1]);
	assert_int_equal(tarn_barrier_open(r, 0, 1, &b[1]), 0);
	assert_int_equal(tarn_barrier_wait(b[1], 0, &round), -TARN_ETIMEOUT);
	assert_int_equal(tarn_barrier_wait(b[2], 0, &round), 0);
	assert_int_equal(round, 1);
	assert_int_equal(tarn_barrier_wait(b[2], 0, &round), -TARN_ETIMEOUT);
	assert_int_equal(tarn_barrier_wait(b[1], 0, NULL), 0);
	assert_int_equal(tarn_barrier_wait(b[0], 0, NULL), 0);
	assert_int_equal(tarn_barrier_wait(b[0], 0, NULL), -TARN_ETIMEOUT);
	assert_int_equal(tarn_barrier_wait(b[1], 0, &round), 0);
	assert_int_equal(round, 2);
	for (uint32_t i = 0; i < 3; i++)
		tarn_barrier_close(b[i]);
}

static void test_epoch(void **state)
{
	struct tarn_region *r = fresh();
	struct tarn_epoch *e;
	uint64_t value = 7;

	(void)state;
	assert_int_equal(tarn_epoch_init(r, 0), 0);
	assert_int_equal(tarn_epoch_open(r, 0, &e), 0);
	assert_int_equal(tarn_epoch_read(e, NULL), -EINVAL);
	assert_int_equal(tarn_epoch_read(e, &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(tarn_epoch_add(e, 0, &value), -EINVAL);
	assert_int_equal(tarn_epoch_add(e, TARN_EPOCH_ADD_MAX + 1, &value), -EINVAL);
	assert_int_equal(tarn_epoch_add(e, 3, &value), 0);
	assert_int_equal(value, 3);
	assert_int_equal(tarn_epoch_wait(e, 4, 2, &value), -TARN_ETIMEOUT);
	assert_int_equal(tarn_epoch_raise(e, TARN_EPOCH_MAX + 1), -EINVAL);
	assert_int_equal(tarn_epoch_raise(e, 10), 0);
	assert_int_equal(tarn_epoch_raise(e, 5), 0);
	assert_int_equal(tarn_epoch_wait(e, 4, 0, &value), 0);
	assert_int_equal(value, 10);
	r->fails = -TARN_EAMBIGUOUS;
	assert_int_equal(tarn_epoch_raise(e, 11), -TARN_EAMBIGUOUS);
	assert_int_equal(tarn_epoch_add(e, 1, NULL), -TARN_EAMBIGUOUS);
	r->fails = 0;
	r->words[2] = 9;
	assert_int_equal(tarn_epoch_read(e, &value), -TARN_ECORRUPT);
	tarn_epoch_close(e);
}

/* ---- damage ---------------------------------------------------------------------------------- */

#define LOCK    0u
#define QUEUE   64u
#define SINGLE  1024u
#define BARRIER 2048u
#define EPOCH   4096u

static void allowed(int ret)
{
	static const int codes[] = {-TARN_ETIMEOUT,  -TARN_ECORRUPT,   -TARN_EOVERTAKEN,
				    -TARN_ENOTFOUND, -TARN_EVALUESIZE, -TARN_ETOOSMALL,
				    -TARN_ETYPE,     -TARN_EEXISTS,    -EINVAL,
				    -TARN_EAMBIGUOUS};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (ret == codes[i])
			return;
	if (ret < 0)
		fail_msg("%s: %s", err_name(ret), err_text());
}

static void try_lock(struct tarn_region *r)
{
	struct tarn_lock_info info = {.size = sizeof(info)};
	struct tarn_lock *lock;

	allowed(tarn_lock_init(r, LOCK, 10));
	if (tarn_lock_open(r, LOCK, 1, &lock) < 0)
		return;
	allowed(tarn_lock_acquire(lock, 0, NULL));
	allowed(tarn_lock_renew(lock, NULL));
	allowed(tarn_lock_stat(lock, &info));
	allowed(tarn_lock_release(lock));
	allowed(tarn_lock_acquire(lock, 0, NULL));
	tarn_lock_close(lock);
}

static void try_queue(struct tarn_region *r, uint64_t offset, uint32_t flags)
{
	struct tarn_queue_info info = {.size = sizeof(info)};
	struct tarn_queue *q;
	uint64_t position;
	char got[256];
	size_t bytes;

	allowed(tarn_queue_init(r, offset, 4, 16, 10, flags));
	if (tarn_queue_open(r, offset, &q) < 0)
		return;
	for (unsigned i = 0; i < 6; i++) {
		allowed(tarn_queue_send(q, "0123456789abcdef", i * 2, 0));
		if (i % 2)
			allowed(tarn_queue_receive(q, got, sizeof(got), 0, &bytes));
		else if (tarn_queue_peek(q, got, sizeof(got), 0, &bytes, &position) == 0)
			allowed(tarn_queue_consume(q, position));
	}
	allowed(tarn_queue_stat(q, &info));
	tarn_queue_close(q);
}

static void try_barrier(struct tarn_region *r)
{
	struct tarn_barrier *b;

	allowed(tarn_barrier_init(r, BARRIER, 2));
	for (uint32_t party = 0; party < 2; party++) {
		if (tarn_barrier_open(r, BARRIER, party, &b) < 0)
			continue;
		allowed(tarn_barrier_wait(b, 0, NULL));
		allowed(tarn_barrier_wait(b, 0, NULL));
		tarn_barrier_close(b);
	}
}

static void try_epoch(struct tarn_region *r)
{
	struct tarn_epoch *e;
	uint64_t value;

	allowed(tarn_epoch_init(r, EPOCH));
	if (tarn_epoch_open(r, EPOCH, &e) < 0)
		return;
	allowed(tarn_epoch_add(e, 1, NULL));
	allowed(tarn_epoch_raise(e, 3));
	allowed(tarn_epoch_read(e, &value));
	allowed(tarn_epoch_wait(e, 2, 0, NULL));
	tarn_epoch_close(e);
}

static void try_all(struct tarn_region *r)
{
	try_lock(r);
	try_queue(r, QUEUE, 0);
	try_queue(r, SINGLE, TARN_QUEUE_SINGLE);
	try_barrier(r);
	try_epoch(r);
}

/* Any words of any of them are something else: an error, and no access outside. */
static void test_damage(void **state)
{
	struct tarn_region *r = fresh();
	uint64_t begun = clock_now_ns();

	(void)state;
	for (unsigned i = 0; i < 20000 && clock_now_ns() - begun < 5000000000ull; i++) {
		if (i % 4 == 0) {
			uint64_t random = next_random(r);

			r = fresh();
			r->random = random;
			try_all(r);
		}
		for (uint64_t n = 1 + next_random(r) % 4; n; n--) {
			static const uint64_t begins[] = {LOCK, QUEUE, SINGLE, BARRIER, EPOCH};
			uint64_t index = begins[next_random(r) % 5] / 8 + next_random(r) % 50;

			r->words[index] = hostile(r, r->words[index]);
		}
		try_all(r);
	}
}

/* Somebody writes all the time: each access may see something else. */
static void test_noise(void **state)
{
	struct tarn_region *r = fresh();
	uint64_t begun = clock_now_ns();

	(void)state;
	for (unsigned i = 0; i < 20000 && clock_now_ns() - begun < 5000000000ull; i++) {
		uint64_t random = next_random(r);

		r = fresh();
		r->random = random;
		r->noise = 4u << i % 5;
		try_all(r);
		try_all(r);
	}
}

/* Exactly one message, damaged in every bit: it is dropped, never given out. */
static void test_damaged_message(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 64 * 4; bit++) {
		struct tarn_region *r = fresh();
		struct tarn_queue *q;
		char got[16];
		size_t bytes;

		assert_int_equal(tarn_queue_init(r, 0, 4, 16, 10, 0), 0);
		assert_int_equal(tarn_queue_open(r, 0, &q), 0);
		assert_int_equal(tarn_queue_send(q, "0123456789abcdef", 16, 0), 0);
		assert_int_equal(tarn_queue_send(q, "next", 4, 0), 0);
		r->words[25 + bit / 64] ^= 1ull << bit % 64;
		assert_int_equal(tarn_queue_receive(q, got, sizeof(got), 0, &bytes),
				 -TARN_ECORRUPT);
		assert_non_null(strstr(err_text(), "is dropped"));
		assert_int_equal(tarn_queue_receive(q, got, sizeof(got), 0, &bytes), 0);
		assert_int_equal(bytes, 4);
		assert_memory_equal(got, "next", 4);
		tarn_queue_close(q);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_making),      cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_lock),        cmocka_unit_test(test_queue),
		cmocka_unit_test(test_queue_skips), cmocka_unit_test(test_barrier),
		cmocka_unit_test(test_epoch),       cmocka_unit_test(test_damage),
		cmocka_unit_test(test_noise),       cmocka_unit_test(test_damaged_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
