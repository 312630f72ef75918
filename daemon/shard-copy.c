/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies shards to another member; see shard-copy.h. The thread of a mover: it shares with the main thread the pool's
 * memory, which it reads, and atomics for the statistics. Keys are read one after the other, and up to ITEMS are on their way to
 * the target as operations of its session's engine; a phase ends when none is. Next: shard-read.c, shard-list.h, client/shard-put.h.
 */
#include "shard-copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "engine.h"
#include "err.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"
#include "shard-list.h"
#include "shard-put.h"
#include "shard-read.h"
#include "shard-walk.h"

#define ITEMS         SHARD_COPY_AT_ONCE
#define ROOM          (16u << 20) /* bytes of large values under way; a larger one goes by itself */
#define SLOTS_AT_ONCE 448u        /* are looked at in one call, when none has to be copied */
#define PROCESS_NS    250000000u  /* what the target's session needs beside its calls is done so often */
#define SLICE_NS      20000000u   /* a rest is no longer without a look at `stop` */
#define CREDIT_NS     5000000u    /* what a rest that was too long lets go at once afterwards */
#define TRIES         1000u       /* a slot of another shard that changes is looked at in a row */
#define TEXT_MAX      255u

static_assert(ITEMS <= ENGINE_LANES, "each has its lane, when there is room at the target");

enum phase { WALKS, DELETIONS, ENDED };

struct shard_copy {
	struct tarn_session *target;
	enum phase phase;
	bool second; /* pass */
	bool repeats; /* the first one, at most until: */
	uint64_t repeats_ns;
	int result;  /* negative: given up, with this text */
	char text[TEXT_MAX + 1];
	bool processes; /* the session's housekeeping is under way */
	uint64_t process_ns, rest_ns;

	/* where the walk is, and the deletions are */
	struct shard_walk walk;
	bool inside;
	uint32_t bucket, slot;
	uint64_t next_entry, epoch;
	struct shard_list list;

	/* what is under way, by item: the slot's word, as committed; 0: a delete, or the item is free */
	uint64_t words[ITEMS];
	struct shard_item *items;
	struct shard_item *idle[ITEMS];
	unsigned idle_count;

	struct shard_reader reader;
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
	shard_walk_begin(&c->walk, c->reader.pool, c->shards, c->count);
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
	c->target = target;
	c->count = count;
	/*
	 * Half of the time in which the target's generations come round; and in a quarter of it no copy is like one that an earlier
	 * pass has put for the same key, and the last one has replaced
	 */
	shard_list_init(&c->list, target->geometry.epoch_ns << (LAYOUT_GEN_BITS - 1));
	c->repeats_ns = session_now(target) + c->list.bound_ns / 2;
	c->wanted = calloc(pool->geometry.shards, 1);
	c->shards = calloc(count, sizeof(*shards));
	c->items = calloc(ITEMS, sizeof(*c->items));
	/* it only reads */
	c->reader = (struct shard_reader){.pool = pool,
					  .blocks = blocks_create((struct pool *)pool),
					  .wanted = c->wanted,
					  .room = ROOM};
	if (!c->reader.blocks || !c->wanted || !c->shards || !c->items ||
	    engine_create(target) < 0) {
		shard_copy_free(c);
		return err_set(-ENOMEM, "out of memory");
	}
	for (unsigned i = 0; i < ITEMS; i++) {
		c->items[i].job.arg = c;
		c->idle[c->idle_count++] = &c->items[i];
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
	for (unsigned i = 0; c->items && i < ITEMS; i++)
		shard_item_clear(&c->reader, &c->items[i]);
	shard_list_free(&c->list);
	blocks_free(c->reader.blocks);
	free(c->items);
	free(c->wanted);
	free(c->shards);
	free(c);
}

void shard_copy_set_rate(struct shard_copy *c, uint64_t bytes_per_second)
{
	atomic_store_explicit(&c->rate, bytes_per_second, memory_order_relaxed);
}

void shard_copy_again(struct shard_copy *c)
{
	c->repeats = true;
	pass_begin(c);
}

void shard_copy_bring(struct shard_copy *c)
{
	c->second = true;
	c->rest_ns = 0;
	pass_begin(c);
}

/* With the thread's text. The first failure is what is told. */
static void give_up(struct shard_copy *c, int result)
{
	if (c->result < 0)
		return;
	c->result = result;
	snprintf(c->text, sizeof(c->text), "%s", err_text());
}

/* ---- the walk ---- */

static uint64_t normal(uint64_t word)
{
	return layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED);
}

/* Is a put of this block under way? It is not in the list yet; twice there it would be deleted in the end, being in one slot alone. */
static bool under_way(const struct shard_copy *c, uint64_t word)
{
	word = normal(word);
	for (unsigned i = 0; i < ITEMS; i++)
		if (c->words[i] == word)
			return true;
	return false;
}

/* What a look at a slot has come to; negative: given up. */
enum look { LOOK_NOTHING, LOOK_KEY, LOOK_AGAIN, LOOK_NO_ROOM };

static int look_once(struct shard_copy *c, uint64_t slot, struct shard_item *item)
{
	uint64_t word = self_load(c->reader.pool, slot);
	uint32_t state = layout_slot_state(word), shard;
	struct shard_entry *entry;

	if (state != LAYOUT_SLOT_COMMITTED && state != LAYOUT_SLOT_FROZEN)
		return LOOK_NOTHING;
	/* what is known needs no look at its block */
	entry = shard_list_find(&c->list, word, c->epoch);
	if (entry) {
		entry->there = c->second;
		return LOOK_NOTHING;
	}
	if (!c->walk.whole && shard_walk_shard(&c->walk, c->reader.blocks, word, &shard) &&
	    !c->wanted[shard])
		return LOOK_NOTHING;
	/* an add changes its value in place: what it is, is known behind the freeze */
	if (!c->second && layout_class_is_counter(layout_slot_class(word)) &&
	    !MUTATED(MUTATION_COUNTEARLY))
		return LOOK_NOTHING;
	if ((c->second && c->list.count && MUTATED(MUTATION_NOAGAIN)) || under_way(c, word))
		return LOOK_NOTHING;
	switch (shard_read(&c->reader, slot, word, c->epoch, item)) {
	case SHARD_READ_KEY:
		return LOOK_KEY;
	case SHARD_READ_CHANGED:
		return LOOK_AGAIN;
	case SHARD_READ_DAMAGED:
		add(&c->damaged, c->second);
		return LOOK_NOTHING;
	case SHARD_READ_OTHER:
		return LOOK_NOTHING;
	case SHARD_READ_NO_ROOM:
		return LOOK_NO_ROOM;
	case SHARD_READ_FAILED:
		break;
	}
	return -ENOMEM;
}

/*
 * The first pass leaves to the second one what changes under its hands. Then what is ours is frozen: what changes is of
 * another shard, and as soon as it can be read it says so.
 */
static int look_at(struct shard_copy *c, uint64_t slot, struct shard_item *item)
{
	int ret = look_once(c, slot, item);

	for (unsigned tries = 0; c->second && ret == LOOK_AGAIN && tries < TRIES; tries++)
		ret = look_once(c, slot, item);
	if (ret != LOOK_AGAIN)
		return ret;
	return !c->second ? LOOK_NOTHING
			  : err_set(-EBUSY,
				    "the slot at pool offset %llu changes all the time, and "
				    "its shard is to be frozen",
				    (unsigned long long)slot);
}

static bool bucket_next(struct shard_copy *c)
{
	c->slot = 1;
	return ++c->bucket < 3 * c->reader.pool->geometry.groups;
}

/* False: the walk has ended. */
static bool subtable_next(struct shard_copy *c)
{
	enum shard_walk_next next = shard_walk_next(&c->walk);

	c->inside = next == SHARD_WALK_SUBTABLE;
	c->bucket = 0;
	c->slot = 1;
	return next != SHARD_WALK_END;
}

/* LOOK_KEY: the item has one. LOOK_NOTHING: not yet; LOOK_AGAIN: there is none any more. Or as look_at(). */
static int walk(struct shard_copy *c, struct shard_item *item)
{
	uint32_t buckets = 3 * c->reader.pool->geometry.groups;

	for (uint32_t i = 0; i < SLOTS_AT_ONCE; i++) {
		uint64_t bucket;
		int ret;

		if (!c->inside) {
			if (!subtable_next(c))
				return LOOK_AGAIN;
			continue;
		}
		bucket = layout_page_offset(&c->reader.pool->geometry, c->walk.page) +
			 (uint64_t)c->bucket * LAYOUT_BUCKET_BYTES;
		if (c->slot == 1) {
			/* known before its slots are read */
			c->epoch = self_load(c->reader.pool, LAYOUT_EPOCH_OFFSET);
			if ((!c->second || !c->walk.whole) && c->bucket + 1 < buckets)
				shard_walk_hint(&c->walk, c->reader.blocks,
						bucket + LAYOUT_BUCKET_BYTES);
		}
		ret = look_at(c, bucket + 8ull * c->slot, item);
		if (ret == LOOK_NO_ROOM)
			return ret;
		if (c->slot++ == LAYOUT_BUCKET_SLOTS)
			c->inside = bucket_next(c);
		if (ret != LOOK_NOTHING)
			return ret;
	}
	return LOOK_NOTHING;
}

/* The next entry that is in no slot any more; NULL: not yet, or there is none any more. */
static const struct shard_entry *next_gone(struct shard_copy *c)
{
	for (uint32_t i = 0; i < SLOTS_AT_ONCE && c->next_entry < c->list.room; i++) {
		uint64_t at = c->next_entry++;
		const struct shard_entry *entry = &c->list.entries[at];

		if (c->list.words[at] && !entry->there &&
		    !shard_list_is_replaced(&c->list, entry->copy, session_now(c->target)))
			return entry;
	}
	return NULL;
}

/* ---- what is under way ---- */

static struct shard_copy *item_end(struct shard_job *job)
{
	struct shard_copy *c = job->arg;
	struct shard_item *item = (struct shard_item *)job; /* its first member */

	shard_item_clear(&c->reader, item);
	c->words[item - c->items] = 0;
	c->idle[c->idle_count++] = item;
	return c;
}

static void put_done(struct shard_job *job, int result)
{
	const struct shard_item *item = (const struct shard_item *)job;
	struct shard_copy *c = item_end(job);

	if (result == 0) {
		add(&c->keys, 1);
		add(&c->bytes, job->put.key_bytes + job->put.value_bytes);
		add(&c->again, c->second);
		if (!c->second)
			result = shard_list_add(&c->list, item->word, job->placed, job->hash,
						item->epoch);
	}
	if (result == 0 && job->replaced)
		result = shard_list_replace(&c->list, job->replaced, session_now(c->target));
	if (result < 0)
		give_up(c, result);
}

static void delete_done(struct shard_job *job, int result)
{
	struct shard_copy *c = item_end(job);

	add(&c->deleted, result == 0);
	if (result < 0 && result != -TARN_ENOTFOUND && result != -TARN_ESTAMP)
		give_up(c, result);
}

/* The key that has been read. */
static void put_begin(struct shard_copy *c, struct shard_item *item, uint64_t now)
{
	uint64_t rate = atomic_load_explicit(&c->rate, memory_order_relaxed);
	int ret;

	if (!c->second && rate) {
		if (c->rest_ns + CREDIT_NS < now)
			c->rest_ns = now - CREDIT_NS;
		c->rest_ns += (item->job.put.key_bytes + item->job.put.value_bytes) * 1000000000u /
			      rate;
	}
	c->idle_count--;
	c->words[item - c->items] = normal(item->word);
	item->job.done = put_done;
	ret = shard_put_begin(c->target, &item->job);
	if (ret < 0)
		put_done(&item->job, ret);
}

static void delete_begin(struct shard_copy *c, struct shard_item *item,
			 const struct shard_entry *entry)
{
	int ret;

	c->idle_count--;
	item->job.word = entry->copy;
	item->job.hash = entry->hash;
	item->job.done = delete_done;
	ret = shard_delete_begin(c->target, &item->job);
	if (ret < 0)
		delete_done(&item->job, ret);
}

/* ---- the pass ---- */

enum begun { BEGUN, BEGUN_LOOKED /* and there is more to look at */, BEGUN_WAITS };

static enum begun walk_on(struct shard_copy *c, uint64_t now, uint64_t *ret_until_ns)
{
	struct shard_item *item = c->idle[c->idle_count - 1];
	int ret;

	if (!c->second && now < c->rest_ns &&
	    atomic_load_explicit(&c->rate, memory_order_relaxed)) {
		*ret_until_ns = c->rest_ns;
		return BEGUN_WAITS;
	}
	/* what it leaves out, the second pass brings */
	ret = c->repeats && !c->second && now >= c->repeats_ns ? LOOK_AGAIN : walk(c, item);
	switch (ret) {
	case LOOK_KEY:
		put_begin(c, item, now);
		return BEGUN;
	case LOOK_NOTHING:
		return BEGUN_LOOKED;
	case LOOK_NO_ROOM:
		return BEGUN_WAITS;
	case LOOK_AGAIN:
		c->phase = c->second && !MUTATED(MUTATION_NODEL) ? DELETIONS : ENDED;
		return BEGUN_LOOKED;
	default:
		give_up(c, ret);
		return BEGUN_WAITS;
	}
}

/* Not before all puts have ended: they say what is replaced, and a copy's key may be one that is under way. */
static enum begun delete_on(struct shard_copy *c)
{
	const struct shard_entry *entry = next_gone(c);

	if (entry)
		delete_begin(c, c->idle[c->idle_count - 1], entry);
	else if (c->next_entry == c->list.room)
		c->phase = ENDED;
	return entry ? BEGUN : BEGUN_LOOKED;
}

static bool puts_under_way(const struct shard_copy *c)
{
	for (unsigned i = 0; i < ITEMS; i++)
		if (c->words[i])
			return true;
	return false;
}

/* True: there is more to do at once. */
static bool begin_some(struct shard_copy *c, unsigned most, uint64_t now, uint64_t *ret_until_ns)
{
	enum begun begun = BEGUN;

	while (most > 0 && begun == BEGUN && c->idle_count > 0 && c->result == 0) {
		if (c->phase == WALKS)
			begun = walk_on(c, now, ret_until_ns);
		else if (c->phase == DELETIONS && !puts_under_way(c))
			begun = delete_on(c);
		else
			return false;
		most--;
	}
	return begun != BEGUN_WAITS && c->idle_count > 0;
}

/* What the session needs beside its calls. */
static void process(struct shard_copy *c, uint64_t now)
{
	struct engine *e = c->target->engine;

	if (c->processes && !engine_processing(e)) {
		c->processes = false;
		if (e->process.task->result < 0)
			give_up(c, e->process.task->result);
	}
	if (!c->processes && now >= c->process_ns) {
		c->process_ns = now + PROCESS_NS;
		c->processes = true;
		engine_process(e);
	}
}

static int given_up(const struct shard_copy *c)
{
	return err_set(c->result, "%s", c->text);
}

int shard_copy_next(struct shard_copy *c, unsigned most, uint64_t *ret_until_ns)
{
	struct engine *e = c->target->engine;
	uint64_t now = session_now(c->target);
	bool more;

	if (c->target->lost)
		give_up(c, session_lost(c->target));
	if (c->result < 0)
		return given_up(c);
	*ret_until_ns = UINT64_MAX;
	process(c, now);
	more = begin_some(c, most, now, ret_until_ns);
	more |= engine_turn_loud(e);
	if (c->result < 0)
		return given_up(c);
	if (c->phase == ENDED && c->idle_count == ITEMS && !engine_busy(e))
		return SHARD_COPY_ENDED;
	if (*ret_until_ns > c->process_ns)
		*ret_until_ns = c->process_ns;
	return more ? SHARD_COPY_MORE : SHARD_COPY_REST;
}

/* ---- in a thread ---- */

static int run(struct shard_copy *c, const atomic_bool *stop)
{
	for (;;) {
		uint64_t until, slice;
		int ret;

		if (atomic_load_explicit(stop, memory_order_relaxed))
			give_up(c, err_set(-ECANCELED, "the copy of shards was stopped"));
		ret = shard_copy_next(c, ITEMS, &until);
		if (ret <= 0)
			return ret;
		if (ret == SHARD_COPY_MORE)
			continue;
		slice = session_now(c->target) + SLICE_NS;
		engine_sleep(c->target->engine, until < slice ? until : slice);
	}
}

int shard_copy_run(struct shard_copy *c, const atomic_bool *stop)
{
	int ret = session_hold(c->target);

	if (ret < 0)
		return ret;
	ret = run(c, stop);
	if (ret < 0) {
		/* what is under way is of the copy's memory */
		engine_stop(c->target->engine);
		ret = given_up(c);
	}
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
