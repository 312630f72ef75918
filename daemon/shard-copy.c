/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies shards to another member; see shard-copy.h. The thread of a mover: it shares with the main thread the pool's
 * memory, which it reads, and atomics for the statistics. A key is read whole, and its slot again behind that:
 * as long as that names the block, nobody has written over it. Next: shard-list.h, client/shard-put.h.
 */
#include "shard-copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "clock.h"
#include "err.h"
#include "kv.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"
#include "shard-list.h"
#include "shard-put.h"
#include "shard-walk.h"
#include "shard.h"

#define SLOTS_AT_ONCE 448u       /* are looked at in one call, when none has to be copied */
#define PROCESS_NS    250000000u /* what the target's session needs beside its calls is done so often */
#define SLICE_NS      20000000u  /* a rest is no longer without a look at `stop` */
#define TRIES         1000u      /* a slot of another shard that changes is looked at in a row */
#define VALUE_KEPT    (1u << 20) /* memory for a large value is given back if it is more */

/* What the task that was returned last does. */
enum doing { NOTHING, PUTS, DELETES, PROCESSES };
enum phase { WALKS, DELETIONS, ENDED };

struct shard_copy {
	const struct pool *pool;
	struct tarn_session *target;
	struct kv_op *op;
	struct task *task;
	enum doing doing;
	enum phase phase;
	bool second; /* pass */
	int result;  /* negative: given up */
	uint64_t process_ns, rest_ns;

	/* where the walk is, and the deletions are */
	struct shard_walk walk;
	bool inside;
	uint32_t bucket, slot;
	uint64_t next_entry;
	struct shard_list list;

	/* the key under way */
	struct shard_put put;
	uint64_t word, hash, epoch;
	uint64_t image[LAYOUT_BLOCK_MAX / 8];
	uint8_t *value; /* a large one */
	uint64_t value_room;

	struct blocks *blocks;
	uint8_t *wanted; /* by shard */
	uint32_t *shards;
	unsigned count;

	_Atomic uint64_t rate;
	_Atomic uint64_t keys, bytes, again, deleted, damaged;
};

static void add(_Atomic uint64_t *counter, uint64_t n)
{
	/* relaxed: for people */
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- its beginning and end ---- */

static void pass_begin(struct shard_copy *c)
{
	shard_walk_begin(&c->walk, c->pool, c->shards, c->count);
	c->inside = false;
	c->next_entry = 0;
	c->phase = WALKS;
}

int shard_copy_create(const struct pool *pool, const uint32_t *shards, unsigned count,
		      struct tarn_session *target, struct shard_copy **ret_copy)
{
	struct shard_copy *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(-ENOMEM, "out of memory");
	c->pool = pool;
	c->target = target;
	c->count = count;
	shard_list_init(&c->list);
	/* it only reads */
	c->blocks = blocks_create((struct pool *)pool);
	c->wanted = calloc(pool->geometry.shards, 1);
	c->shards = calloc(count, sizeof(*shards));
	if (!c->blocks || !c->wanted || !c->shards || kv_op_create(target, &c->op) < 0) {
		shard_copy_free(c);
		return err_set(-ENOMEM, "out of memory");
	}
	memcpy(c->shards, shards, count * sizeof(*shards));
	for (unsigned i = 0; i < count; i++)
		c->wanted[shards[i]] = 1;
	pass_begin(c);
	*ret_copy = c;
	return 0;
}

void shard_copy_free(struct shard_copy *c)
{
	if (!c)
		return;
	kv_op_free(c->op);
	shard_list_free(&c->list);
	blocks_free(c->blocks);
	free(c->value);
	free(c->wanted);
	free(c->shards);
	free(c);
}

void shard_copy_set_rate(struct shard_copy *c, uint64_t bytes_per_second)
{
	atomic_store_explicit(&c->rate, bytes_per_second, memory_order_relaxed);
}

void shard_copy_bring(struct shard_copy *c)
{
	c->second = true;
	c->rest_ns = 0;
	pass_begin(c);
}

/* ---- reading a key ---- */

enum read {
	READ_KEY,
	READ_CHANGED, /* the slot says something else by now */
	READ_DAMAGED,
	READ_OTHER, /* not of our shards, or has expired */
	READ_FAILED, /* no memory: with a text */
};

static bool same_block(uint64_t a, uint64_t b)
{
	return layout_slot_with_state(a, LAYOUT_SLOT_COMMITTED) ==
	       layout_slot_with_state(b, LAYOUT_SLOT_COMMITTED);
}

/* Does the slot name its block still? Frozen or thawed meanwhile, it does. All that was read before is whole then. */
static bool unchanged(const struct shard_copy *c, uint64_t slot, uint64_t word)
{
	uint64_t now;

	/* acquire: what was read relaxed was read before */
	atomic_thread_fence(memory_order_acquire);
	now = self_load(c->pool, slot);
	return same_block(now, word) && (layout_slot_state(now) == LAYOUT_SLOT_COMMITTED ||
					 layout_slot_state(now) == LAYOUT_SLOT_FROZEN);
}

static int value_reserve(struct shard_copy *c, uint64_t bytes)
{
	if (c->value_room >= bytes && (c->value_room <= VALUE_KEPT || c->value_room / 2 < bytes))
		return 0;
	free(c->value);
	c->value_room = bytes > VALUE_KEPT ? bytes : VALUE_KEPT;
	c->value = malloc(c->value_room);
	if (c->value)
		return 0;
	c->value_room = 0;
	return err_set(-ENOMEM, "no memory for a value of %llu bytes that is to be copied",
		       (unsigned long long)bytes);
}

/* A large value, piece by piece. False: one of them is not what the list says. */
static bool read_extents(struct shard_copy *c, const struct layout_block *block)
{
	const struct layout_extent *list = layout_block_value(block);
	uint64_t count = layout_extents(block->value_length);

	for (uint64_t i = 0; i < count; i++) {
		uint64_t begin = i * LAYOUT_PAGE_BYTES, rest = block->value_length - begin;
		uint64_t length = rest < LAYOUT_PAGE_BYTES ? rest : LAYOUT_PAGE_BYTES;
		uint64_t offset = layout_slot_offset(list[i].where);
		uint32_t class = layout_slot_class(list[i].where);

		if (!layout_block_place_valid(&c->pool->geometry, offset, class) ||
		    layout_pad8(length) > layout_class_bytes(class))
			return false;
		self_read(c->pool, offset, c->value + begin, layout_pad8(length));
		if (layout_extent_checksum(c->value + begin, length, offset) != list[i].checksum)
			return false;
	}
	return true;
}

static uint64_t remaining_ms(const struct shard_copy *c, uint64_t expiry)
{
	uint64_t us = (expiry - c->epoch) * (c->pool->geometry.epoch_ns / 1000);

	return us / 1000 + 1;
}

/* The copy of the block in c->image is whole: what is to be put. */
static void put_fill(struct shard_copy *c)
{
	const struct layout_block *block = (const struct layout_block *)c->image;

	c->put = (struct shard_put){
		.key = layout_block_key(block),
		.key_bytes = block->key_length,
		.value = block->kind == LAYOUT_KIND_EXTENTS ? c->value : layout_block_value(block),
		.value_bytes = block->value_length,
		.counter = block->kind == LAYOUT_KIND_COUNTER,
		.user_flags = block->user_flags,
		.owner = block->owner,
		.stamp = block->stamp,
		.expiry_ms = block->expiry ? remaining_ms(c, block->expiry) : 0,
	};
}

static enum read read_block(struct shard_copy *c, uint64_t slot, uint64_t word)
{
	const struct layout_block *block = (const struct layout_block *)c->image;
	uint32_t class_bytes = layout_class_bytes(layout_slot_class(word));
	uint64_t offset = layout_slot_offset(word);
	struct layout_block header;
	struct layout_hash hash;

	switch (blocks_header(c->blocks, slot, word, &header)) {
	case BLOCKS_DONE:
		break;
	case BLOCKS_CHANGED:
		return READ_CHANGED;
	case BLOCKS_DAMAGED:
		return READ_DAMAGED;
	}
	self_read(c->pool, offset, c->image,
		  layout_pad8(layout_block_bytes(header.kind, header.key_length,
						 header.value_length)));
	/* the copy is checked, and nothing else used */
	if (!layout_block_valid(block, class_bytes, offset) || block->kind != header.kind ||
	    (block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(word))
		return READ_DAMAGED;
	hash = layout_hash_key(layout_block_key(block), block->key_length,
			       c->pool->geometry.hash_seed);
	if (!c->wanted[shard_of(hash, c->pool->geometry.shards)] ||
	    (block->expiry && c->epoch >= block->expiry))
		return READ_OTHER;
	c->hash = hash.high;
	if (block->kind == LAYOUT_KIND_EXTENTS) {
		if (value_reserve(c, layout_pad8(block->value_length)) < 0)
			return READ_FAILED;
		if (!read_extents(c, block))
			return READ_DAMAGED;
	}
	put_fill(c);
	return READ_KEY;
}

/* ---- the walk ---- */

/* Nothing to do, or 1: c->put is the slot's key, to be put; -EAGAIN: it has changed meanwhile; else negative: given up. */
static int look_once(struct shard_copy *c, uint64_t slot)
{
	uint64_t word = self_load(c->pool, slot);
	uint32_t state = layout_slot_state(word), shard;
	struct shard_entry *entry;
	enum read got;

	if (state != LAYOUT_SLOT_COMMITTED && state != LAYOUT_SLOT_FROZEN)
		return 0;
	if (shard_walk_shard(&c->walk, c->blocks, word, &shard) && !c->wanted[shard])
		return 0;
	/* an add changes its value in place: what it is, is known behind the freeze */
	if (!c->second && layout_class_is_counter(layout_slot_class(word)))
		return 0;
	entry = shard_list_find(&c->list, word, c->epoch);
	if (entry)
		entry->there = c->second;
	if (entry || (c->second && c->list.count && MUTATED(MUTATION_NOAGAIN)))
		return 0;
	got = read_block(c, slot, word);
	if (got == READ_FAILED)
		return -ENOMEM;
	if (got == READ_CHANGED || !unchanged(c, slot, word))
		return -EAGAIN;
	c->word = word;
	if (got == READ_DAMAGED && c->second)
		add(&c->damaged, 1);
	return got == READ_KEY;
}

/*
 * The first pass leaves to the second one what changes under its hands. Then what is ours is frozen: what changes is of
 * another shard, and as soon as it can be read it says so.
 */
static int look_at(struct shard_copy *c, uint64_t slot)
{
	int ret = look_once(c, slot);

	for (unsigned tries = 0; c->second && ret == -EAGAIN && tries < TRIES; tries++)
		ret = look_once(c, slot);
	if (ret != -EAGAIN)
		return ret;
	return !c->second ? 0
			  : err_set(-EBUSY,
				    "the slot at pool offset %llu changes all the time, and "
				    "its shard is to be frozen",
				    (unsigned long long)slot);
}

static bool bucket_next(struct shard_copy *c)
{
	c->slot = 1;
	return ++c->bucket < 3 * c->pool->geometry.groups;
}

/* 1: there is a key to be put. 0: not yet; the phase may be over. Negative: given up. */
static int walk(struct shard_copy *c)
{
	for (uint32_t i = 0; i < SLOTS_AT_ONCE; i++) {
		uint64_t bucket;
		int ret;

		if (!c->inside) {
			enum shard_walk_next next = shard_walk_next(&c->walk);

			c->inside = next == SHARD_WALK_SUBTABLE;
			c->bucket = 0;
			c->slot = 1;
			if (next == SHARD_WALK_END) {
				c->phase = c->second && !MUTATED(MUTATION_NODEL) ? DELETIONS
										 : ENDED;
				return 0;
			}
			continue;
		}
		bucket = layout_page_offset(&c->pool->geometry, c->walk.page) +
			 (uint64_t)c->bucket * LAYOUT_BUCKET_BYTES;
		if (c->slot == 1) {
			/* known before its slots are read */
			c->epoch = self_load(c->pool, LAYOUT_EPOCH_OFFSET);
			shard_walk_hint(&c->walk, c->blocks, bucket);
		}
		ret = look_at(c, bucket + 8ull * c->slot);
		if (c->slot++ == LAYOUT_BUCKET_SLOTS)
			c->inside = bucket_next(c);
		if (ret != 0)
			return ret;
	}
	return 0;
}

/* ---- deletions ---- */

/* The next entry that is in no slot any more; NULL: not yet, or the phase is over. */
static const struct shard_entry *next_gone(struct shard_copy *c)
{
	for (uint32_t i = 0; i < SLOTS_AT_ONCE; i++) {
		const struct shard_entry *entry;

		if (c->next_entry == c->list.room) {
			c->phase = ENDED;
			return NULL;
		}
		entry = &c->list.entries[c->next_entry++];
		if (entry->word && !entry->there &&
		    !shard_list_is_replaced(&c->list, entry->copy))
			return entry;
	}
	return NULL;
}

/* ---- tasks ---- */

static int begin(struct shard_copy *c, enum doing doing, struct task *task, struct task **ret_task)
{
	c->doing = doing;
	*ret_task = c->task = task;
	return SHARD_COPY_TASK;
}

static int put_done(struct shard_copy *c)
{
	uint64_t rate = atomic_load_explicit(&c->rate, memory_order_relaxed);
	uint64_t bytes = c->put.key_bytes + c->put.value_bytes, slot, copy, replaced;

	if (c->task->result < 0)
		return c->task->result;
	add(&c->keys, 1);
	add(&c->bytes, bytes);
	shard_placed(c->op, &slot, &copy, &replaced);
	if (c->second) {
		add(&c->again, 1);
		return replaced ? shard_list_replace(&c->list, replaced) : 0;
	}
	if (rate)
		c->rest_ns += bytes * 1000000000u / rate;
	return shard_list_add(&c->list, c->word, copy, c->hash, c->epoch);
}

/* What the task that was returned has come to. */
static int done(struct shard_copy *c)
{
	enum doing doing = c->doing;
	int result = c->task->result;

	c->doing = NOTHING;
	switch (doing) {
	case PUTS:
		return put_done(c);
	case DELETES:
		add(&c->deleted, result == 0);
		return result == -TARN_ENOTFOUND || result == -TARN_ESTAMP ? 0 : result;
	case PROCESSES:
		return result < 0 ? result : 0;
	case NOTHING:
		break;
	}
	return 0;
}

/* The next thing to do: as shard_copy_next(). */
static int go_on(struct shard_copy *c, uint64_t now, struct task **ret_task)
{
	const struct shard_entry *entry;
	int ret;

	switch (c->phase) {
	case WALKS:
		ret = walk(c);
		if (ret <= 0)
			return ret < 0 ? ret : SHARD_COPY_REST;
		if (c->rest_ns < now)
			c->rest_ns = now;
		return begin(c, PUTS, shard_put(c->op, &c->put), ret_task);
	case DELETIONS:
		entry = next_gone(c);
		if (!entry)
			return SHARD_COPY_REST;
		return begin(c, DELETES, shard_delete(c->op, entry->copy, entry->hash), ret_task);
	case ENDED:
		break;
	}
	return SHARD_COPY_ENDED;
}

int shard_copy_next(struct shard_copy *c, struct task **ret_task, uint64_t *ret_until_ns)
{
	uint64_t now = session_now(c->target);
	int ret = c->result;

	if (ret == 0 && c->doing != NOTHING)
		ret = done(c);
	if (ret == 0 && c->target->lost)
		ret = session_lost(c->target);
	if (ret < 0) {
		c->result = ret;
		return ret;
	}
	*ret_until_ns = now;
	if (now >= c->process_ns) {
		c->process_ns = now + PROCESS_NS;
		return begin(c, PROCESSES, process_start(c->target->process, false), ret_task);
	}
	if (!c->second && now < c->rest_ns && atomic_load_explicit(&c->rate, memory_order_relaxed)) {
		*ret_until_ns = c->rest_ns < c->process_ns ? c->rest_ns : c->process_ns;
		return SHARD_COPY_REST;
	}
	ret = go_on(c, now, ret_task);
	if (ret < 0)
		c->result = ret;
	return ret;
}

/* ---- in a thread ---- */

static int run(struct shard_copy *c, const atomic_bool *stop)
{
	for (;;) {
		uint64_t until, now;
		struct task *task;
		int ret;

		if (atomic_load_explicit(stop, memory_order_relaxed))
			return err_set(-ECANCELED, "the copy of shards was stopped");
		ret = shard_copy_next(c, &task, &until);
		if (ret == SHARD_COPY_TASK) {
			session_run(c->target, task);
			continue;
		}
		if (ret <= 0)
			return ret;
		now = session_now(c->target);
		session_sleep(c->target, until < now + SLICE_NS ? until : now + SLICE_NS, false);
	}
}

int shard_copy_run(struct shard_copy *c, const atomic_bool *stop)
{
	int ret = session_hold(c->target);

	if (ret < 0)
		return ret;
	ret = run(c, stop);
	session_leave(c->target);
	return ret;
}

void shard_copy_get_stats(const struct shard_copy *c, struct shard_copy_stats *ret_stats)
{
	*ret_stats = (struct shard_copy_stats){
		.keys = atomic_load_explicit(&c->keys, memory_order_relaxed),
		.bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed),
		.again = atomic_load_explicit(&c->again, memory_order_relaxed),
		.deleted = atomic_load_explicit(&c->deleted, memory_order_relaxed),
		.damaged = atomic_load_explicit(&c->damaged, memory_order_relaxed),
	};
}
