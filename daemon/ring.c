/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts pages into the ready rings. Main thread, called by keeper.c. Clients draw tickets by
 * FAA(head), also past the tail; the daemon alone writes entries and the tail, so it keeps the
 * tail, and which ticket a page has, in its own memory and never reads them back.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "layout.h"
#include "pool.h"
#include "ring.h"
#include "self.h"

/*
 * Clients FAA the head only when it is below the tail: it can pass it by one per client at most, or
 * by a few where a page is one block.
 */
#define HEAD_SLACK (4u * LAYOUT_MAX_CLIENTS)

struct ring {
	struct pool *pool;
	uint64_t tails[LAYOUT_CLASSES];
	/* Per page: ticket of its last entry * LAYOUT_CLASSES + class + 1; 0: never had one. A
	 * ticket takes 2^58 pushes to overflow this. */
	uint64_t entries[];
};

struct ring *ring_create(struct pool *pool)
{
	struct ring *ring =
		calloc(1, sizeof(*ring) + pool->geometry.npages * sizeof(ring->entries[0]));

	if (!ring)
		return NULL;
	ring->pool = pool;
	/* Of a pool that was there before, entries that nobody has drawn stay; recover.c has checked it. */
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++)
		ring->tails[class] = self_load(pool, layout_ring_offset(&pool->geometry, class) +
							     LAYOUT_RING_TAIL);
	return ring;
}

void ring_free(struct ring *ring)
{
	free(ring);
}

/* We never overwrite an entry between head and tail, so a ticket in there still stands for its
 * page. */
static bool named(const struct ring *ring, uint32_t class, uint32_t page, uint64_t head)
{
	uint64_t entry = ring->entries[page];
	uint64_t ticket = (entry - 1) / LAYOUT_CLASSES;

	return entry && (entry - 1) % LAYOUT_CLASSES == class && ticket >= head &&
	       ticket < ring->tails[class];
}

enum ring_result ring_push(struct ring *ring, uint32_t class, uint32_t page)
{
	const struct layout_geometry *g = &ring->pool->geometry;
	uint64_t offset = layout_ring_offset(g, class),
		 head = self_load(ring->pool, offset + LAYOUT_RING_HEAD);
	uint64_t tail = ring->tails[class];

	if (head > tail + HEAD_SLACK) {
		self_cas(ring->pool, offset + LAYOUT_RING_HEAD, head, tail);
		return RING_DAMAGED;
	}
	if (named(ring, class, page, head))
		return RING_NAMED;
	/* Tickets below the head are drawn: an entry there would never be read. */
	if (tail < head)
		tail = head;
	if (tail - head >= g->ring_entries)
		return RING_FULL;
	/* The entry, then the tail: who sees the tail finds the entry. */
	self_store(ring->pool, offset + LAYOUT_RING_ENTRIES + 8 * (tail % g->ring_entries),
		   layout_ring_make(tail, page));
	self_store(ring->pool, offset + LAYOUT_RING_TAIL, tail + 1);
	ring->tails[class] = tail + 1;
	ring->entries[page] = tail * LAYOUT_CLASSES + class + 1;
	return RING_PUSHED;
}
