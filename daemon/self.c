/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads and changes words of a pool in its atomic domain; see self.h. Main thread. For now the
 * domain is always the CPU. What is loaded here may change or lie the moment after: callers keep
 * one copy and check that.
 */
#include <assert.h>
#include <string.h>

#include "atomics.h"
#include "pool.h"
#include "self.h"

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

uint64_t self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value)
{
	return word_cas(word(pool, offset), compare, value);
}

uint64_t self_faa(struct pool *pool, uint64_t offset, uint64_t add)
{
	return word_faa(word(pool, offset), add);
}

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
