/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The words of a pool's shards, and walks over the slots of some of them, a bounded piece per step; see shards.h. Main
 * thread, called by keeper.c and by who hands shards over. A walk goes by the directory, so it is as short as the
 * shards' share of the index; the index stands still where it walks. Decisions come from an own copy of the
 * words. Read docs/protocol.md section 11 with it; next: grow.c and split.c, which keep frozen slots frozen.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "blocks.h"
#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"
#include "shards.h"

#define STEP_NS 1000000u
#define WAIT_NS 5000000u /* a split, or the daemon's own connection, is looked at so often */
#define AHEAD   2u       /* buckets whose blocks are fetched before they are looked at */
#define TRIES   100u     /* a slot is looked at in a row while clients change it */

struct job {
	STAILQ_ENTRY(job) link;
	enum shards_job kind;
	void (*done)(void *arg);
	void *arg;
	/* where it is: the subtables of shard `at` of the list, by the directory's index, and in one of them */
	bool begun;
	uint32_t global_depth; /* when it began; its subtables are not split meanwhile */
	unsigned at;
	uint64_t nth;
	uint32_t bucket;
	unsigned count;
	uint32_t list[];
};

struct shards {
	struct pool *pool;
	struct blocks *blocks;
	uint64_t *words; /* as they were set; the pool's own are only written */
	uint64_t *keys;
	uint8_t *wanted; /* by shard: of the job under way */
	uint32_t closing;
	uint64_t due_ns;
	STAILQ_HEAD(, job) jobs;
	struct shards_stats stats;
};

/* ---- words ---- */

int shards_create(struct pool *pool, struct shards **ret_shards)
{
	uint32_t count = pool->geometry.shards;
	struct shards *s = calloc(1, sizeof(*s));

	if (s) {
		STAILQ_INIT(&s->jobs);
		s->pool = pool;
		s->blocks = blocks_create(pool);
		s->words = calloc(count, sizeof(*s->words));
		s->keys = calloc(count, sizeof(*s->keys));
		s->wanted = calloc(count, sizeof(*s->wanted));
	}
	if (!s || !s->blocks || !s->words || !s->keys || !s->wanted) {
		shards_free(s);
		return err_set(-ENOMEM, "out of memory");
	}
	s->due_ns = UINT64_MAX;
	for (uint32_t i = 0; i < count; i++)
		self_store(pool, layout_shard_offset(&pool->geometry, i), 0);
	*ret_shards = s;
	return 0;
}

void shards_free(struct shards *s)
{
	struct job *job;

	if (!s)
		return;
	while ((job = STAILQ_FIRST(&s->jobs)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->jobs, link);
		free(job);
	}
	blocks_free(s->blocks);
	free(s->words);
	free(s->keys);
	free(s->wanted);
	free(s);
}

/*
 * By CAS, though nobody else writes the word: in the atomic domain it comes before our look at the slots, as the flag of
 * a split does. With our own connection lost all clients are fenced before anything else is done to the pool, and a
 * store will do.
 */
void shards_set(struct shards *s, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	uint64_t offset = layout_shard_offset(&s->pool->geometry, shard);
	uint64_t before = self_load(s->pool, offset), word = shard_word_make(state, epoch);

	s->closing -= shard_word_state(s->words[shard]) == SHARD_CLOSING;
	s->closing += state == SHARD_CLOSING;
	s->words[shard] = word;
	if (self_cas(s->pool, offset, before, word) != before)
		self_store(s->pool, offset, word);
}

uint64_t shards_word(const struct shards *s, uint32_t shard)
{
	return s->words[shard];
}

void shards_gone(struct shards *s)
{
	for (uint32_t i = 0; i < s->pool->geometry.shards; i++) {
		s->words[i] = shard_word_make(SHARD_GONE, shard_word_epoch(s->words[i]));
		self_store(s->pool, layout_shard_offset(&s->pool->geometry, i), s->words[i]);
	}
	s->closing = 0;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- jobs ---- */

int shards_begin(struct shards *s, enum shards_job kind, const uint32_t *shard, unsigned count,
		 void (*done)(void *arg), void *arg)
{
	struct job *job = calloc(1, sizeof(*job) + count * sizeof(*shard));

	if (!job)
		return err_set(-ENOMEM, "out of memory");
	job->kind = kind;
	job->done = done;
	job->arg = arg;
	job->count = count;
	memcpy(job->list, shard, count * sizeof(*shard));
	STAILQ_INSERT_TAIL(&s->jobs, job, link);
	s->stats.waiting++;
	s->due_ns = 0;
	if (s->pool->wake)
		s->pool->wake(s->pool->wake_arg);
	return 0;
}

uint64_t shards_keys(const struct shards *s, uint32_t shard)
{
	return s->keys[shard];
}

uint64_t shards_due(const struct shards *s)
{
	return s->due_ns;
}

static bool of_list(const struct shards *s, const uint32_t *list, unsigned count, uint32_t suffix,
		    uint32_t depth)
{
	for (unsigned i = 0; i < count; i++)
		if (shard_in_subtable(list[i], s->pool->geometry.shards, suffix, depth))
			return true;
	return false;
}

bool shards_hold(const struct shards *s, uint32_t suffix, uint32_t depth)
{
	const struct job *job = STAILQ_FIRST(&s->jobs);
	uint32_t shards = s->pool->geometry.shards;

	if (job && of_list(s, job->list, job->count, suffix, depth))
		return true;
	for (uint32_t i = 0; s->closing && i < shards; i++)
		if (shard_word_state(s->words[i]) == SHARD_CLOSING &&
		    shard_in_subtable(i, shards, suffix, depth))
			return true;
	return false;
}

/* ---- a slot ---- */

enum looked { DONE, AGAIN };

/* Is the slot's key of a shard of the job? -1: its block says nothing. One shard's subtable needs no look. */
static int is_wanted(struct shards *s, uint64_t word, uint32_t suffix, uint32_t depth,
		     uint32_t *ret_shard)
{
	uint32_t shards = s->pool->geometry.shards;
	struct layout_hash hash;

	if (shard_bits_of(depth, shards) == shards - 1) {
		*ret_shard = suffix >> SHARD_SHIFT & (shards - 1);
	} else {
		if (!blocks_hash(s->blocks, word, &hash))
			return -1;
		*ret_shard = shard_of(hash, shards);
	}
	return s->wanted[*ret_shard];
}

/* A slot that names a key of ours becomes `next`. */
static enum looked change(struct shards *s, uint64_t slot, uint64_t word, uint64_t next,
			  uint64_t *count)
{
	if (self_cas(s->pool, slot, word, next) != word)
		return AGAIN;
	++*count;
	return DONE;
}

static enum looked empty(struct shards *s, uint64_t slot, uint64_t word)
{
	uint64_t bytes;

	if (MUTATED(MUTATION_NOPURGE))
		return DONE;
	switch (blocks_remove(s->blocks, slot, word, false, &bytes)) {
	case BLOCKS_DONE:
		s->stats.emptied++;
		return DONE;
	case BLOCKS_CHANGED:
		return AGAIN;
	case BLOCKS_DAMAGED: /* what its block was, the sweep finds */
		break;
	}
	return change(s, slot, word, 0, &s->stats.emptied);
}

static enum looked act(struct shards *s, const struct job *job, uint64_t slot, uint64_t word)
{
	bool frozen = layout_slot_state(word) == LAYOUT_SLOT_FROZEN;

	switch (job->kind) {
	case SHARDS_EMPTY:
		return empty(s, slot, word);
	case SHARDS_FREEZE:
		if (frozen || MUTATED(MUTATION_NOFREEZE))
			return DONE;
		return change(s, slot, word, layout_slot_with_state(word, LAYOUT_SLOT_FROZEN),
			      &s->stats.frozen);
	case SHARDS_THAW:
		if (!frozen)
			return DONE;
		return change(s, slot, word, layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED),
			      &s->stats.thawed);
	case SHARDS_COUNT:
		break;
	}
	return DONE;
}

/* Whosever a pending slot is: to kill it is never wrong, and its block need not be read. */
static enum looked pending(struct shards *s, const struct job *job, uint64_t slot, uint64_t word)
{
	if (job->kind != SHARDS_EMPTY && job->kind != SHARDS_FREEZE)
		return DONE;
	if (MUTATED(MUTATION_NOKILL))
		return DONE;
	return change(s, slot, word, 0, &s->stats.killed);
}

static enum looked look_at(struct shards *s, const struct job *job, uint64_t slot, uint32_t suffix,
			   uint32_t depth)
{
	uint64_t word = self_load(s->pool, slot);
	enum looked looked;
	uint32_t shard;
	int wanted;

	switch (layout_slot_state(word)) {
	case LAYOUT_SLOT_PENDING:
		return pending(s, job, slot, word);
	case LAYOUT_SLOT_COMMITTED:
	case LAYOUT_SLOT_FROZEN:
		break;
	default: /* empty, moved, or a state that is none */
		return DONE;
	}
	wanted = is_wanted(s, word, suffix, depth, &shard);
	/* replaced while we read its block: that may have been another one */
	if (wanted <= 0 && self_load(s->pool, slot) != word)
		return AGAIN;
	s->stats.damaged += wanted < 0;
	if (wanted <= 0)
		return DONE;
	looked = act(s, job, slot, word);
	s->keys[shard] += looked == DONE;
	return looked;
}

/* ---- the walk ---- */

/* The directory's indices that shard `shard` can be at, one after the other; false: there are no more. */
static bool nth_index(const struct job *job, uint32_t shards, uint32_t shard, uint64_t nth,
		      uint64_t *ret_index)
{
	uint64_t low = nth & ((1u << SHARD_SHIFT) - 1), high = nth >> SHARD_SHIFT;

	*ret_index = low | (uint64_t)shard << SHARD_SHIFT | high * shards << SHARD_SHIFT;
	if (high == 0) {
		/* a small directory does not have all these bits */
		bool whole = job->global_depth >= SHARD_SHIFT || low < 1ull << job->global_depth;

		*ret_index = layout_suffix((uint32_t)*ret_index, job->global_depth);
		return whole;
	}
	return *ret_index < 1ull << job->global_depth;
}

/* A subtable that the walk comes to for the first time: its page. */
static bool subtable_of(const struct shards *s, const struct job *job, uint64_t index,
			uint32_t *ret_page, uint32_t *ret_suffix, uint32_t *ret_depth)
{
	const struct pool *pool = s->pool;
	uint64_t entry = self_load(pool, layout_directory_offset(&pool->geometry, index));
	uint32_t page = layout_directory_page(entry), depth = layout_directory_depth(entry);
	uint32_t suffix = layout_suffix((uint32_t)index, depth), picks;

	if (layout_directory_state(entry) != LAYOUT_DIRECTORY_VALID ||
	    page >= pool->geometry.npages || depth > job->global_depth ||
	    layout_page_state(pool_load_page_word(pool, page)) != LAYOUT_PAGE_INDEX)
		return false;
	*ret_page = page;
	*ret_suffix = suffix;
	*ret_depth = depth;
	/* of the indices of the shard that lead to it the first one, and no earlier shard of the list has done so */
	picks = ((1u << depth) - 1) | (pool->geometry.shards - 1) << SHARD_SHIFT;
	return (index & ~(uint64_t)picks) == 0 && !of_list(s, job->list, job->at, suffix, depth);
}

static void hint(const struct shards *s, uint64_t bucket)
{
	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t word = self_load(s->pool, bucket + 8ull * i);

		if (layout_slot_state(word) == LAYOUT_SLOT_COMMITTED ||
		    layout_slot_state(word) == LAYOUT_SLOT_FROZEN)
			blocks_hint(s->blocks, word);
	}
}

/* False: not now. What has been done of the bucket is done again. */
static bool walk_bucket(struct shards *s, const struct job *job, uint64_t bucket, uint32_t suffix,
			uint32_t depth)
{
	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		unsigned tries = 0;

		while (look_at(s, job, bucket + 8ull * i, suffix, depth) == AGAIN)
			if (s->pool->self_lost || ++tries == TRIES)
				return false;
	}
	return true;
}

/* Goes on in a subtable. True: it is done. */
static bool walk_subtable(struct shards *s, struct job *job, uint32_t page, uint32_t suffix,
			  uint32_t depth, uint64_t until)
{
	uint32_t buckets = 3 * s->pool->geometry.groups;
	uint64_t offset = layout_page_offset(&s->pool->geometry, page);

	while (job->bucket < buckets) {
		uint64_t bucket = offset + (uint64_t)job->bucket * LAYOUT_BUCKET_BYTES;

		if (job->bucket + AHEAD < buckets)
			hint(s, bucket + AHEAD * LAYOUT_BUCKET_BYTES);
		if (!walk_bucket(s, job, bucket, suffix, depth))
			return false;
		job->bucket++;
		if (clock_now_ns() >= until && job->bucket < buckets)
			return false;
	}
	job->bucket = 0;
	return true;
}

/* True: the job is done. */
static bool walk(struct shards *s, struct job *job, uint64_t until)
{
	uint32_t shards = s->pool->geometry.shards, page, suffix, depth;
	uint64_t index;

	while (job->at < job->count) {
		if (!nth_index(job, shards, job->list[job->at], job->nth, &index)) {
			job->at++;
			job->nth = 0;
			continue;
		}
		if (subtable_of(s, job, index, &page, &suffix, &depth) &&
		    !walk_subtable(s, job, page, suffix, depth, until))
			return false;
		job->nth++;
		if (clock_now_ns() >= until)
			return job->at == job->count;
	}
	return true;
}

/* Nothing of it splits any more: it may begin. */
static bool may_begin(const struct shards *s, const struct job *job)
{
	uint32_t suffix, depth;

	return !keeper_splits(s->pool->keeper, &suffix, &depth) ||
	       !of_list(s, job->list, job->count, suffix, depth);
}

static void begin(struct shards *s, struct job *job)
{
	job->begun = true;
	job->global_depth = keeper_index_depth(s->pool->keeper);
	memset(s->wanted, 0, s->pool->geometry.shards);
	for (unsigned i = 0; i < job->count; i++) {
		s->wanted[job->list[i]] = 1;
		s->keys[job->list[i]] = 0;
	}
}

uint64_t shards_step(struct shards *s, const struct keeper_time *time)
{
	struct job *job = STAILQ_FIRST(&s->jobs);
	void (*done)(void *arg);
	void *arg;

	s->due_ns = job ? time->now_ns + WAIT_NS : UINT64_MAX;
	if (!job || s->pool->self_lost || (!job->begun && !may_begin(s, job)))
		return s->due_ns;
	if (!job->begun)
		begin(s, job);
	s->due_ns = time->now_ns;
	if (!walk(s, job, clock_now_ns() + STEP_NS))
		return s->due_ns;
	STAILQ_REMOVE_HEAD(&s->jobs, link);
	s->stats.jobs++;
	s->stats.waiting--;
	if (STAILQ_EMPTY(&s->jobs))
		s->due_ns = UINT64_MAX;
	done = job->done;
	arg = job->arg;
	free(job);
	if (done)
		done(arg); /* which may begin the next */
	return s->due_ns;
}

void shards_get_stats(const struct shards *s, struct shards_stats *ret_stats)
{
	*ret_stats = s->stats;
	for (uint32_t i = 0; i < s->pool->geometry.shards; i++)
		switch ((enum shard_state)shard_word_state(s->words[i])) {
		case SHARD_GONE:
			ret_stats->gone++;
			break;
		case SHARD_OPEN:
			ret_stats->open++;
			break;
		case SHARD_CLOSING:
			ret_stats->closing++;
			break;
		case SHARD_INCOMING:
			ret_stats->incoming++;
			break;
		}
}
