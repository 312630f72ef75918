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
#include "shard-walk.h"
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
	bool begun;
	struct shard_walk walk; /* its subtables are not split meanwhile */
	bool inside;            /* in one of them, */
	uint32_t bucket;        /* where it goes on here */
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

bool shards_busy(const struct shards *s)
{
	return !STAILQ_EMPTY(&s->jobs) && STAILQ_FIRST(&s->jobs)->begun;
}

uint64_t shards_due(const struct shards *s)
{
	return s->due_ns;
}

bool shards_hold(const struct shards *s, uint32_t suffix, uint32_t depth)
{
	const struct job *job = STAILQ_FIRST(&s->jobs);
	uint32_t shards = s->pool->geometry.shards;

	if (job && shard_walk_has(job->list, job->count, shards, suffix, depth))
		return true;
	for (uint32_t i = 0; s->closing && i < shards; i++)
		if (shard_word_state(s->words[i]) == SHARD_CLOSING &&
		    shard_in_subtable(i, shards, suffix, depth))
			return true;
	return false;
}

/* ---- a slot ---- */

enum looked { DONE, AGAIN };

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

static enum looked look_at(struct shards *s, const struct job *job, uint64_t slot)
{
	uint64_t word = self_load(s->pool, slot);
	bool known, wanted;
	uint32_t shard;

	switch (layout_slot_state(word)) {
	case LAYOUT_SLOT_PENDING:
		return pending(s, job, slot, word);
	case LAYOUT_SLOT_COMMITTED:
	case LAYOUT_SLOT_FROZEN:
		break;
	default: /* empty, moved, or a state that is none */
		return DONE;
	}
	/* where all shards of the subtable are wanted no block need be read, unless each shard is counted by itself */
	if (job->walk.whole && job->kind != SHARDS_COUNT)
		return act(s, job, slot, word);
	known = shard_walk_shard(&job->walk, s->blocks, word, &shard);
	wanted = known && s->wanted[shard];
	/* replaced while we read its block: that may have been another one */
	if (!wanted && self_load(s->pool, slot) != word)
		return AGAIN;
	s->stats.damaged += !known;
	if (!wanted)
		return DONE;
	s->keys[shard] += job->kind == SHARDS_COUNT;
	return act(s, job, slot, word);
}

/* ---- the walk ---- */

/* False: not now. What has been done of the bucket is done again. */
static bool walk_bucket(struct shards *s, const struct job *job, uint64_t bucket)
{
	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		unsigned tries = 0;

		while (look_at(s, job, bucket + 8ull * i) == AGAIN)
			if (s->pool->self_lost || ++tries == TRIES)
				return false;
	}
	return true;
}

static bool reads_blocks(const struct job *job)
{
	return !job->walk.whole || job->kind == SHARDS_EMPTY || job->kind == SHARDS_COUNT;
}

/* Goes on in a subtable. True: it is done. */
static bool walk_subtable(struct shards *s, struct job *job, uint64_t until)
{
	uint32_t buckets = 3 * s->pool->geometry.groups;
	uint64_t offset = layout_page_offset(&s->pool->geometry, job->walk.page);

	while (job->bucket < buckets) {
		uint64_t bucket = offset + (uint64_t)job->bucket * LAYOUT_BUCKET_BYTES;

		if (job->bucket + AHEAD < buckets && reads_blocks(job))
			shard_walk_hint(&job->walk, s->blocks,
					bucket + AHEAD * LAYOUT_BUCKET_BYTES);
		if (!walk_bucket(s, job, bucket))
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
	for (;;) {
		if (job->inside && !walk_subtable(s, job, until))
			return false;
		job->inside = false;
		switch (shard_walk_next(&job->walk)) {
		case SHARD_WALK_SUBTABLE:
			job->inside = true;
			break;
		case SHARD_WALK_NONE:
			break;
		case SHARD_WALK_END:
			return true;
		}
		if (clock_now_ns() >= until)
			return false;
	}
}

/* Nothing of it splits any more: it may begin. */
static bool may_begin(const struct shards *s, const struct job *job)
{
	uint32_t suffix, depth;

	return !keeper_splits(s->pool->keeper, &suffix, &depth) ||
	       !shard_walk_has(job->list, job->count, s->pool->geometry.shards, suffix, depth);
}

static void begin(struct shards *s, struct job *job)
{
	job->begun = true;
	shard_walk_begin(&job->walk, s->pool, job->list, job->count);
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
