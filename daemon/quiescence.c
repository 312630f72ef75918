/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Samples of the quiescence counts; see quiescence.h. Main thread, called by recycle.c (counters'
 * blocks) and sweep.c. Memory: 16 bytes for each of max_clients.
 */
#include <stddef.h>
#include <stdlib.h>

#include "layout.h"
#include "mutation.h"
#include "pool.h"
#include "quiescence.h"
#include "self.h"

#define LOOK   4096u /* connections that one call looks at */
#define RAISES (MUTATED(MUTATION_SECOND_RAISE) ? 1u : 2u)

/* A connection that has not been seen to be through. */
struct entry {
	uint32_t slot;
	uint32_t first_id; /* names the connection */
	uint64_t count;
};

struct quiescence {
	const struct pool *pool;
	uint32_t next; /* slot at which the sample goes on */
	uint32_t count;
	struct entry entries[]; /* max_clients */
};

struct quiescence *quiescence_create(const struct pool *pool)
{
	struct quiescence *quiescence =
		calloc(1, sizeof(*quiescence) +
				  pool->geometry.max_clients * sizeof(quiescence->entries[0]));

	if (quiescence)
		quiescence->pool = pool;
	return quiescence;
}

void quiescence_free(struct quiescence *quiescence)
{
	free(quiescence);
}

static uint64_t count_of(const struct pool *pool, uint32_t slot)
{
	return self_load(pool, layout_client_offset(&pool->geometry, slot) +
				       offsetof(struct layout_client, quiescence));
}

void quiescence_begin(struct quiescence *quiescence)
{
	quiescence->next = 0;
	quiescence->count = 0;
}

bool quiescence_take(struct quiescence *quiescence)
{
	const struct pool *pool = quiescence->pool;

	for (uint32_t i = 0; i < LOOK && quiescence->next < pool->geometry.max_clients; i++) {
		uint32_t slot = quiescence->next++;
		const struct pool_client *client = &pool->clients[slot];

		if (client->state != LAYOUT_CLIENT_LIVE || client->read_only)
			continue;
		quiescence->entries[quiescence->count++] = (struct entry){
			.slot = slot, .first_id = client->first_id, .count = count_of(pool, slot)};
	}
	return quiescence->next == pool->geometry.max_clients;
}

static bool through(const struct pool *pool, const struct entry *entry)
{
	const struct pool_client *client = &pool->clients[entry->slot];
	uint64_t count;

	if (client->state != LAYOUT_CLIENT_LIVE || client->first_id != entry->first_id)
		return true;
	count = count_of(pool, entry->slot);
	return count >= entry->count && count - entry->count >= RAISES;
}

bool quiescence_passed(struct quiescence *quiescence)
{
	for (uint32_t i = 0; i < LOOK && quiescence->count > 0; i++) {
		if (!through(quiescence->pool, &quiescence->entries[quiescence->count - 1]))
			return false;
		quiescence->count--;
	}
	return quiescence->count == 0;
}

uint32_t quiescence_waits_for(const struct quiescence *quiescence)
{
	return quiescence->count > 0 ? quiescence->entries[quiescence->count - 1].slot : POOL_NONE;
}
