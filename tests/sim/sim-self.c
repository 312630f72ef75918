/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-self.c - daemon/self.h on the simulated pool: before each access the others may have their turn
 *
 * How soon they have it is drawn anew each time, and counted in weights: a walk over a free map is
 * thousands of loads that nobody needs to see single, a CAS is worth a look from all sides. Next:
 * shadow.c, which knows what the daemon may write.
 */
#include <stdlib.h>
#include <string.h>

#include "self.h"
#include "shadow.h"
#include "sim-daemon.h"

#define WEIGHT_BYTE   1
#define WEIGHT_MAP    2 /* a word of a free map */
#define WEIGHT_COPY   16
#define WEIGHT_LOAD   64
#define WEIGHT_CHANGE 256

static struct sim_daemon *daemon_of(const struct pool *pool)
{
	return (struct sim_daemon *)(void *)((uint8_t *)pool - offsetof(struct sim_daemon, pool));
}

static struct sim *give_way(const struct pool *pool, int64_t weight)
{
	struct sim_daemon *d = daemon_of(pool);

	if (d->calm)
		return d->sim;
	d->allowance -= weight;
	if (d->allowance > 0)
		return d->sim;
	d->allowance = (int64_t)sim_below(d->sim, 2 * d->mean);
	fiber_yield(d->fiber);
	return d->sim;
}

static void check(const struct pool *pool, uint64_t offset, uint64_t bytes)
{
	if (bytes > pool->memory.bytes || offset > pool->memory.bytes - bytes)
		abort(); /* the daemon would have crashed */
}

uint64_t self_load(const struct pool *pool, uint64_t offset)
{
	const struct layout_geometry *g = &pool->geometry;
	bool map = offset >= g->free_map_offset && offset < g->pages_offset;

	check(pool, offset, 8);
	return sim_word(give_way(pool, map ? WEIGHT_MAP : WEIGHT_LOAD), offset);
}

static void trace(struct sim *sim, const char *what, uint64_t offset, uint64_t from, uint64_t to)
{
	char where[96];

	if (!sim->trace)
		return;
	sim_where(sim, offset, where, sizeof(where));
	sim_tracef(sim, "daemon: %s %s: %llx -> %llx", what, where, (unsigned long long)from,
		   (unsigned long long)to);
}

void self_store(struct pool *pool, uint64_t offset, uint64_t value)
{
	struct sim *sim = give_way(pool, WEIGHT_CHANGE);

	check(pool, offset, 8);
	trace(sim, "store", offset, sim_word(sim, offset), value);
	sim_set_word(sim, offset, value);
}

uint64_t self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value)
{
	struct sim *sim = give_way(pool, WEIGHT_CHANGE);
	uint64_t was;

	check(pool, offset, 8);
	was = sim_word(sim, offset);
	trace(sim, was == compare ? "CAS" : "failed CAS", offset, was, value);
	if (was != compare)
		return was;
	sim_set_word(sim, offset, value);
	if (sim->removed && value == 0 && layout_slot_state(was) == LAYOUT_SLOT_COMMITTED &&
	    offset >= sim->geometry.pages_offset)
		sim->removed(sim->removed_argument, was);
	return was;
}

/* In every third schedule. Others have their turn between the CASes of a list, too. */
bool self_is_far(const struct pool *pool)
{
	return daemon_of(pool)->far;
}

void self_cas_many(struct pool *pool, struct self_change *changes, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		changes[i].seen = self_cas(pool, changes[i].offset, changes[i].compare,
					   changes[i].value);
}

uint64_t self_faa(struct pool *pool, uint64_t offset, uint64_t add)
{
	struct sim *sim = give_way(pool, WEIGHT_CHANGE);
	uint64_t was;

	check(pool, offset, 8);
	was = sim_word(sim, offset);
	shadow_add(sim, "the daemon", offset);
	trace(sim, "FAA", offset, was, was + add);
	sim_set_word(sim, offset, was + add);
	return was;
}

int self_flush(struct pool *pool)
{
	give_way(pool, WEIGHT_LOAD);
	return 0;
}

uint8_t self_load_byte(const struct pool *pool, uint64_t offset)
{
	check(pool, offset, 1);
	return give_way(pool, WEIGHT_BYTE)->pool[offset];
}

void self_store_byte(struct pool *pool, uint64_t offset, uint8_t value)
{
	struct sim *sim = give_way(pool, WEIGHT_CHANGE);

	check(pool, offset, 1);
	trace(sim, "store byte", offset, sim->pool[offset], value);
	if (offset >= pool->geometry.free_map_offset && offset < pool->geometry.reference_map_offset)
		shadow_map(sim, SHADOW_DAEMON, offset, value);
	sim_write(sim, offset, &value, 1);
}

void self_read(const struct pool *pool, uint64_t offset, void *ret_words, size_t bytes)
{
	check(pool, offset, bytes);
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t value = sim_word(give_way(pool, WEIGHT_COPY), offset + i);

		memcpy((uint8_t *)ret_words + i, &value, sizeof(value));
	}
}

void self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes)
{
	check(pool, offset, bytes);
	for (size_t i = 0; i < bytes; i += 8)
		sim_write(give_way(pool, WEIGHT_COPY), offset + i, (const uint8_t *)words + i, 8);
}
