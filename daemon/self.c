/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads and changes words of a pool in its atomic domain; see self.h. Main thread. What is loaded
 * here may change or lie the moment after: callers keep one copy and check that. Loads and stores
 * are the CPU's also in a nic domain: an aligned word is read and written whole by both.
 */
#include <assert.h>
#include <string.h>

#include <tarn/tarn.h>

#include "atomics.h"
#include "clock.h"
#include "err.h"
#include "events.h"
#include "fabric.h"
#include "pool.h"
#include "self.h"

static_assert(SELF_CHANGES_MAX <= FABRIC_POST_MAX, "one post");

/* So long a completion is polled for, then slept for: an adapter takes 2 to 3 us; one of software needs the processor for its answer. */
#define SPIN_NS  20000u
#define SLEEP_NS 1000000u
#define LIMIT_NS 2500000000u /* more than the pair's ack timeout and retries take */

static uint64_t *word(const struct pool *pool, uint64_t offset)
{
	assert(offset % 8 == 0 && offset <= pool->memory.bytes - 8);
	return (uint64_t *)(void *)(pool->memory.base + offset);
}

/* Acquire: pairs with the clients' CAS, and with self_store() for what the daemon itself has
 * published. */
uint64_t self_load(const struct pool *pool, uint64_t offset)
{
	return word_load_acquire(word(pool, offset));
}

/* Release: pairs with the clients' READs. What was stored before (a ring's entry) is seen with it
 * (the tail). */
void self_store(struct pool *pool, uint64_t offset, uint64_t value)
{
	word_store_release(word(pool, offset), value);
}

/* ---- by the device ---- */

static bool by_device(const struct pool *pool)
{
	return pool->geometry.atomics == LAYOUT_ATOMICS_NIC && (pool->self || pool->self_lost);
}

/*
 * The completion of what was posted. T3 is not at stake, since we do nothing meanwhile; to wait as
 * long as the adapter tries costs less than to lose the connection, and all clients with it.
 */
static int completion_wait(struct pool *pool)
{
	uint64_t began = clock_now_ns(), waited = 0, limit = LIMIT_NS;
	struct fabric_completion done;
	int got;

	while ((got = fabric_poll(pool->self, &done, 1)) == 0 && waited < limit) {
		waited = clock_now_ns() - began;
		if (waited > SPIN_NS)
			pool->self->ops->wait(pool->self, SLEEP_NS);
	}
	if (got < 0)
		return got;
	if (got == 0)
		return err_set(-TARN_ETIMEOUT, "no completion for %llu ms",
			       (unsigned long long)(limit / 1000000));
	return done.status;
}

/*
 * Posts requests and waits for the last one. Their words are pool->self_words and none on the stack: after
 * a failure the endpoint may hold on to them. Stores of ours that came before are seen by who sees their
 * effect: to post is a release for the device, and the fence makes it one for a device of software.
 */
static int device_do_all(struct pool *pool, struct fabric_request *requests, unsigned count)
{
	int rc;

	if (pool->self_lost)
		return -TARN_ESESSION;
	err_clear();
	for (unsigned i = 0; i < count; i++) {
		requests[i].local = &pool->self_words[i];
		requests[i].length = sizeof(pool->self_words[i]);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	rc = fabric_post(pool->self, requests, count, &pool->self_words[0]);
	if (rc == 0)
		rc = completion_wait(pool);
	if (rc >= 0)
		return 0;
	pool->self_lost = true;
	events_tell(
		pool->events, EVENT_self_lost, EVENT_FIELDS(.pool = pool->name, .error = rc),
		"pool %s: the daemon's own RDMA connection, through which it changes what clients "
		"share, has failed (%s): its clients have to connect again",
		pool->name, err_text()[0] ? err_text() : err_string(rc));
	return -TARN_ESESSION;
}

static int device_do(struct pool *pool, struct fabric_request request)
{
	return device_do_all(pool, &request, 1);
}

uint64_t self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value)
{
	struct fabric_request request = {
		.opcode = FABRIC_CAS, .offset = offset, .compare = compare, .operand = value};

	if (!by_device(pool))
		return word_cas(word(pool, offset), compare, value);
	assert(offset % 8 == 0 && offset <= pool->memory.bytes - 8);
	return device_do(pool, request) == 0 ? pool->self_words[0] : ~compare;
}

uint64_t self_faa(struct pool *pool, uint64_t offset, uint64_t add)
{
	struct fabric_request request = {.opcode = FABRIC_FAA, .offset = offset, .operand = add};

	if (!by_device(pool))
		return word_faa(word(pool, offset), add);
	assert(offset % 8 == 0 && offset <= pool->memory.bytes - 8);
	return device_do(pool, request) == 0 ? pool->self_words[0] : self_load(pool, offset);
}

bool self_is_far(const struct pool *pool)
{
	return by_device(pool);
}

static void device_cas_many(struct pool *pool, struct self_change *changes, unsigned count)
{
	struct fabric_request requests[SELF_CHANGES_MAX];
	int rc;

	for (unsigned i = 0; i < count; i++) {
		assert(changes[i].offset % 8 == 0 &&
		       changes[i].offset <= pool->memory.bytes - 8);
		requests[i] = (struct fabric_request){.opcode = FABRIC_CAS,
						      .offset = changes[i].offset,
						      .compare = changes[i].compare,
						      .operand = changes[i].value};
	}
	rc = device_do_all(pool, requests, count);
	for (unsigned i = 0; i < count; i++)
		changes[i].seen = rc == 0 ? pool->self_words[i] : ~changes[i].compare;
}

void self_cas_many(struct pool *pool, struct self_change *changes, unsigned count)
{
	assert(count <= SELF_CHANGES_MAX);
	if (count && by_device(pool)) {
		device_cas_many(pool, changes, count);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		changes[i].seen = word_cas(word(pool, changes[i].offset), changes[i].compare,
					   changes[i].value);
}

int self_flush(struct pool *pool)
{
	struct fabric_request request = {.opcode = FABRIC_READ, .offset = LAYOUT_EPOCH_OFFSET};

	return by_device(pool) ? device_do(pool, request) : 0;
}

/* ---- bytes and blocks ---- */

/* Relaxed: a map byte says nothing of other memory; the page word's CAS, which follows, orders it.
 */
uint8_t self_load_byte(const struct pool *pool, uint64_t offset)
{
	assert(offset < pool->memory.bytes);
	return byte_load_relaxed(pool->memory.base + offset);
}

void self_store_byte(struct pool *pool, uint64_t offset, uint8_t value)
{
	assert(offset < pool->memory.bytes);
	byte_store_relaxed(pool->memory.base + offset, value);
}

void self_read(const struct pool *pool, uint64_t offset, void *ret_words, size_t bytes)
{
	uint8_t *to = ret_words;

	assert(bytes % 8 == 0);
	/* clients have written to most of these lines: wait for all at once, not for a few at a time */
	for (size_t i = 0; i < bytes; i += 64)
		__builtin_prefetch(pool->memory.base + offset + i);
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t value = word_load_relaxed(word(pool, offset + i));

		memcpy(to + i, &value, sizeof(value));
	}
}

void self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes)
{
	const uint8_t *from = words;

	assert(bytes % 8 == 0);
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t value;

		memcpy(&value, from + i, sizeof(value));
		word_store_relaxed(word(pool, offset + i), value);
	}
}
