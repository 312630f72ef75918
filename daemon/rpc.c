/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers clients' messages: a page to claim, a subtable to split, an add to a counter, a new client
 * id, an atomic operation for who cannot do it, a region of memory. Main thread; each answer takes microseconds, a
 * search for a page up to some milliseconds. Message and pool may hold anything: an offset is used
 * only after it has been checked. peer.c and peer-verbs.c carry the messages; docs/protocol.md
 * section 1, "atomic domain", section 4, "counter add", and section 5, "claim".
 */
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "cluster-publish.h"
#include "events.h"
#include "keeper.h"
#include "region.h"
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
	client->regions = NULL;
	client->region_count = 0;
	client->registration = NULL;
	client->opens = NULL;
	client->told = false;
	client->notice = NULL;
}

void rpc_client_end(struct rpc_client *client)
{
	region_close_all(client);
}

/* ---- a page ---- */

/*
 * A search in vain is not repeated for a moment (pool.c), but a walk of the keeper's may have brought
 * pages since. Returns false if there was no search.
 */
static bool search(struct pool *pool, uint32_t class, uint32_t *ret_found)
{
	uint64_t passes = keeper_passes(pool->keeper);
	bool searched;

	if (pool->full_pass[class] != passes) {
		pool->full_pass[class] = passes;
		pool->full_until[class] = 0;
	}
	searched = clock_now_ns() >= pool->full_until[class];
	*ret_found = pool_find_page(pool, class);
	return searched;
}

/* What a client needs to know that what it is told is not out of date: wire.h. */
static void say_full(const struct pool *pool, bool rests, struct wire_rpc_reply *reply)
{
	reply->number = rests;
	reply->value = (int64_t)keeper_sure_pass(pool->keeper);
	reply->length = keeper_passes(pool->keeper);
}

static int32_t page(struct pool *pool, uint32_t class, struct wire_rpc_reply *reply)
{
	uint32_t found;
	bool searched = search(pool, class, &found);

	if (found == POOL_NONE && keeper_hurry(pool->keeper, class, clock_now_ns())) {
		pool->full_until[class] = 0;
		searched = search(pool, class, &found);
	}
	if (found == POOL_NONE) {
		say_full(pool, !searched || keeper_resting(pool->keeper, class) > 0, reply);
		events_tell(pool->events, EVENT_pool_full, EVENT_FIELDS(.pool = pool->name),
			    "pool %s: no memory for blocks of %u bytes", pool->name, (unsigned)layout_class_bytes(class));
		return -TARN_EPOOLFULL;
	}
	reply->number = found;
	return 0;
}

/* ---- a larger index ---- */

static int32_t grow(struct pool *pool, const struct wire_rpc *rpc, struct wire_rpc_reply *reply)
{
	struct layout_hash hash = {.low = rpc->slot_offset, .high = rpc->slot_word};
	int32_t status = keeper_grow(pool->keeper, hash, rpc->class);

	if (status != -TARN_EPOOLFULL)
		return status;
	if (keeper_hurry(pool->keeper, LAYOUT_CLASS_MAX, clock_now_ns()))
		return 0;
	/* a cache makes room all the time; a page that is free now is soon looked for */
	say_full(pool,
		 pool->geometry.mode == LAYOUT_MODE_CACHE ||
			 keeper_resting(pool->keeper, LAYOUT_CLASS_MAX) > 0 ||
			 keeper_free_pages(pool->keeper) > 0,
		 reply);
	return status;
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

	/* in a nic domain clients FAA themselves, and we would do it twice as late */
	if (pool->geometry.atomics != LAYOUT_ATOMICS_CPU ||
	    !slot_offset_valid(pool, rpc->slot_offset))
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

/* ---- CAS and FAA ---- */

/*
 * A word of the pool, but none that the daemon alone writes and believes in: of the superblock the
 * page cursor is the clients'. Who may write could as well WRITE everywhere else; so this need not
 * know more.
 */
static bool atomic_offset_valid(const struct pool *pool, uint64_t offset)
{
	if (offset % 8 || offset > pool->geometry.pool_bytes - 8)
		return false;
	return offset >= LAYOUT_SUPERBLOCK_BYTES || offset == LAYOUT_CURSOR_OFFSET;
}

/*
 * The operations of fabric.h for clients that cannot do them, where the CPU does them. Clients FAA
 * only heads of ready rings and the page cursor this way, which are hints: one that comes late does
 * no harm. A counter is added to by ADD, which looks at the slot here, beside the FAA, so that a
 * message that was long on its way adds nothing to memory that is something else by now (T3).
 */
static int32_t atomic(struct pool *pool, const struct rpc_client *client, const struct wire_rpc *rpc,
		      int64_t *ret_before)
{
	if (rpc->class)
		return region_atomic(client, rpc, ret_before);
	if (pool->geometry.atomics != LAYOUT_ATOMICS_CPU ||
	    !atomic_offset_valid(pool, rpc->slot_offset))
		return -TARN_EPROTO;
	if (rpc->type == WIRE_RPC_CAS)
		*ret_before = (int64_t)self_cas(pool, rpc->slot_offset, rpc->slot_word,
						(uint64_t)rpc->delta);
	else
		*ret_before = (int64_t)self_faa(pool, rpc->slot_offset, (uint64_t)rpc->delta);
	return 0;
}

/* ---- a region ---- */

static int32_t region(const struct rpc_client *client, uint32_t index, struct wire_rpc_reply *reply)
{
	if (!client->regions || index >= client->region_count)
		return -TARN_EPROTO;
	reply->number = client->regions[index].rkey;
	reply->value = (int64_t)client->regions[index].address;
	reply->length = client->regions[index].length;
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

static int32_t answer(struct pool *pool, struct rpc_client *client, const struct wire_rpc *rpc,
		      struct wire_rpc_reply *reply)
{
	enum wire_rpc_type type = (enum wire_rpc_type)rpc->type; /* wire_rpc_decode() has checked */

	if (client->read_only && type != WIRE_RPC_PING && type != WIRE_RPC_REGION &&
	    type != WIRE_RPC_MAP)
		return -TARN_EREADONLY;
	switch (type) {
	case WIRE_RPC_PING:
		return 0;
	case WIRE_RPC_PAGE:
		return page(pool, rpc->class, reply);
	case WIRE_RPC_ADD:
		return add(pool, rpc, &reply->value);
	case WIRE_RPC_NUMBER:
		return number(pool, client, &reply->number);
	case WIRE_RPC_CAS:
	case WIRE_RPC_FAA:
		return atomic(pool, client, rpc, &reply->value);
	case WIRE_RPC_REGION:
		return region(client, rpc->class, reply);
	case WIRE_RPC_GROW:
		return grow(pool, rpc, reply);
	case WIRE_RPC_MAP:
		return cluster_publish_answer(pool, rpc, reply);
	case WIRE_RPC_READY:
		if (!pool->geometry.shards)
			return -TARN_EPROTO;
		if (pool->ready)
			pool->ready(pool->ready_arg, client->slot, rpc, reply);
		return 0;
	case WIRE_RPC_REGION_CALL: /* wire_rpc_decode() takes neither */
	case WIRE_RPC_NOTICE:
		break;
	}
	return -TARN_EPROTO;
}

static int handle(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
		  struct rpc_answer *ret_answer)
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
	reply.status = answer(pool, client, &rpc, &reply);
	wire_rpc_reply_encode(&reply, ret_answer->bytes);
	ret_answer->length = WIRE_RPC_REPLY_BYTES;
	ret_answer->fd = -1;
	return 0;
}

int rpc_handle(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
	       struct rpc_answer *ret_answer)
{
	if (bytes < 1 || *(const uint8_t *)message != WIRE_RPC_REGION_CALL)
		return handle(pool, client, message, bytes, ret_answer);
	pool->counters.rpcs[WIRE_RPC_REGION_CALL]++;
	ret_answer->length = WIRE_REGION_BYTES;
	return region_rpc(pool, client, message, bytes, ret_answer->bytes, &ret_answer->fd);
}

void rpc_notice(uint8_t ret_bytes[WIRE_RPC_REPLY_BYTES])
{
	const struct wire_rpc_reply reply = {.type = WIRE_RPC_NOTICE};

	wire_rpc_reply_encode(&reply, ret_bytes);
}
