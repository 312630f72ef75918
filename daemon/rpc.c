/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers clients' messages: a page to claim, an add to a counter, a new client id. Main thread;
 * each answer takes microseconds, a search for a page up to some milliseconds. Message and pool may
 * hold anything: an offset is used only after it has been checked. peer.c carries the messages;
 * docs/protocol.md section 4, "counter add", and section 5, "claim".
 */
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "keeper.h"
#include "rpc.h"
#include "self.h"

/* Client ids: a client needs one per 2^32 writes; 2^32 of them must last a pool's life. */
#define NUMBERS_BURST 16u
#define NUMBERS_GAP   1000000000u

void rpc_client_init(struct rpc_client *client, uint32_t slot, bool read_only)
{
	client->slot = slot;
	client->read_only = read_only;
	client->numbers = NUMBERS_BURST;
	client->numbers_ns = clock_now_ns();
}

/* ---- a page ---- */

static int32_t page(struct pool *pool, uint32_t class, uint32_t *ret_page)
{
	uint32_t found = pool_find_page(pool, class);

	if (found == POOL_NONE && keeper_hurry(pool->keeper, clock_now_ns())) {
		pool->full_until[class] = 0;
		found = pool_find_page(pool, class);
	}
	if (found == POOL_NONE) {
		*ret_page = keeper_resting(pool->keeper, class) > 0;
		return -TARN_EPOOLFULL;
	}
	*ret_page = found;
	return 0;
}

/* ---- add ---- */

/* Is this the offset of a slot: a word, not a header, of a subtable in an index page? */
static bool slot_offset_valid(const struct pool *pool, uint64_t offset)
{
	const struct layout_geometry *g = &pool->geometry;
	uint64_t inside;

	if (offset % 8 || offset < g->pages_offset || offset >= layout_page_offset(g, g->npages))
		return false;
	inside = (offset - g->pages_offset) % LAYOUT_PAGE_BYTES;
	if (inside >= (uint64_t)g->groups * LAYOUT_GROUP_BYTES || inside % LAYOUT_BUCKET_BYTES == 0)
		return false;
	return layout_page_state(pool_load_page_word(pool, layout_offset_page(g, offset))) ==
	       LAYOUT_PAGE_INDEX;
}

/* 0 and where the counter's value is. */
static int32_t find_value(const struct pool *pool, uint64_t slot_word, uint64_t *ret_offset)
{
	uint64_t offset = layout_slot_offset(slot_word);
	uint32_t class = layout_slot_class(slot_word);
	struct layout_block block; /* our copy: what is checked is what is used */

	if (layout_slot_state(slot_word) != LAYOUT_SLOT_COMMITTED ||
	    !layout_block_place_valid(&pool->geometry, offset, class))
		return -TARN_EPROTO;
	if (!layout_class_is_counter(class))
		return -TARN_ETYPE;
	self_read(pool, offset, &block, sizeof(block));
	if (block.kind != LAYOUT_KIND_COUNTER)
		return -TARN_ETYPE;
	/* The slot word was right a moment ago: a block that does not fit it is damaged or just
	 * being replaced. */
	if (block.class != class ||
	    (block.generation & LAYOUT_GEN_MASK) != layout_slot_gen(slot_word) ||
	    block.key_length == 0 || block.value_length != 8 ||
	    layout_block_bytes(LAYOUT_KIND_COUNTER, block.key_length, 8) >
		    layout_class_bytes(class))
		return -TARN_ECORRUPT;
	*ret_offset = offset + layout_value_offset(block.key_length);
	return 0;
}

/*
 * Between the two looks at the slot a client may replace the counter, but its block is not used
 * again before this thread itself ages it (docs/protocol.md section 3). So the add never falls into
 * somebody else's data; at worst it falls into a block that is no longer the counter, and then it
 * is a conflict.
 */
static int32_t add(struct pool *pool, const struct wire_rpc *rpc, int64_t *ret_value)
{
	uint64_t offset, word, before;
	int32_t status;

	if (!slot_offset_valid(pool, rpc->slot_offset))
		return -TARN_EPROTO;
	if (self_load(pool, rpc->slot_offset) != rpc->slot_word)
		return -TARN_ESTAMP;
	status = find_value(pool, rpc->slot_word, &offset);
	if (status < 0)
		return self_load(pool, rpc->slot_offset) == rpc->slot_word ? status : -TARN_ESTAMP;
	before = self_faa(pool, offset, (uint64_t)rpc->delta);
	word = self_load(pool, rpc->slot_offset);
	if (word != rpc->slot_word &&
	    word != layout_slot_with_state(rpc->slot_word, LAYOUT_SLOT_FROZEN))
		return -TARN_ECONFLICT;
	*ret_value = (int64_t)(before + (uint64_t)rpc->delta);
	return 0;
}

/* ---- a client id ---- */

static int32_t number(struct pool *pool, struct rpc_client *client, uint32_t *ret_number)
{
	uint64_t now = clock_now_ns();

	if (now - client->numbers_ns >= NUMBERS_GAP) {
		uint64_t gained = (now - client->numbers_ns) / NUMBERS_GAP;

		client->numbers = gained >= NUMBERS_BURST - client->numbers
					  ? NUMBERS_BURST
					  : client->numbers + (uint32_t)gained;
		client->numbers_ns = now;
	}
	if (client->numbers == 0)
		return -TARN_EPROTO;
	client->numbers--;
	return pool_client_renumber(pool, client->slot, ret_number) < 0 ? -TARN_EREFUSED : 0;
}

int rpc_handle(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
	       uint8_t ret_reply[WIRE_RPC_REPLY_BYTES])
{
	struct wire_rpc_reply reply;
	struct wire_rpc rpc;
	int rc = wire_rpc_decode(message, bytes, &rpc);

	if (rc < 0)
		return rc;
	memset(&reply, 0, sizeof(reply));
	reply.type = rpc.type;
	reply.tag = rpc.tag;
	pool->counters.rpcs[rpc.type]++;
	if (client->read_only && rpc.type != WIRE_RPC_PING)
		reply.status = -TARN_EREADONLY;
	else if (rpc.type == WIRE_RPC_PAGE)
		reply.status = page(pool, rpc.class, &reply.number);
	else if (rpc.type == WIRE_RPC_ADD)
		reply.status = add(pool, &rpc, &reply.value);
	else if (rpc.type == WIRE_RPC_NUMBER)
		reply.status = number(pool, client, &reply.number);
	wire_rpc_reply_encode(&reply, ret_reply);
	return 0;
}
