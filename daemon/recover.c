/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens a pool that was there before; see recover.h. Main thread, before the pool has a keeper or a new
 * client; but shared-memory clients of the daemon before may be at work in it all the while, so that
 * what they share is changed by CAS alone. Knows nothing of files and locks: pool-open.c, the caller,
 * has those. Read docs/protocol.md sections 7 and 8 with it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#include "err.h"
#include "grow.h"
#include "pool.h"
#include "recover.h"
#include "self.h"

#define PROGRESS_PAGES 256u
/* An epoch of 2 ms, the shortest, takes four million years to come here. */
#define EPOCH_MAX (1ull << 56)

/* ---- may it be opened? ---- */

#define MADE_WITH                                                                               \
	"the pool in the kept memory was made with %llu%s, and %s: set it back, or make a new " \
	"pool (`tarn snapshot` and `tarn restore` carry the keys over)"

/* What can not change in the life of a pool. */
static int same_pool(const struct layout_superblock *sb, const struct layout_plan *plan)
{
	if (sb->max_clients != plan->max_clients)
		return err_set(-EINVAL, "max_clients = %u: " MADE_WITH, plan->max_clients,
			       (unsigned long long)sb->max_clients, "",
			       "its client table can not change its size");
	if (sb->shards != plan->shards)
		return err_set(-EINVAL, "shards = %u: " MADE_WITH, plan->shards,
			       (unsigned long long)sb->shards, sb->shards ? "" : " (for no cluster)",
			       "their words have a place of their own in it");
	if (sb->shards && sb->hash_seed != plan->hash_seed)
		return err_set(-EINVAL, "seed %llu of the cluster's map: " MADE_WITH,
			       (unsigned long long)plan->hash_seed,
			       (unsigned long long)sb->hash_seed, "",
			       "all its keys are where that seed has put them: it is the pool of another cluster");
	if (sb->epoch_ns != plan->epoch_ns)
		return err_set(-EINVAL, "epoch = %llums: " MADE_WITH,
			       (unsigned long long)plan->epoch_ns / 1000000,
			       (unsigned long long)sb->epoch_ns / 1000000, "ms",
			       "its keys' times to live are counted in epochs");
	return 0;
}

/* The words that go on from where they were. */
static int counts_check(const struct layout_superblock *sb)
{
	if (sb->epoch == 0 || sb->epoch > EPOCH_MAX || sb->last_client_id > UINT32_MAX)
		return err_set(-TARN_ECORRUPT,
			       "the pool's superblock is damaged: epoch %llu, last client id %llu",
			       (unsigned long long)sb->epoch,
			       (unsigned long long)sb->last_client_id);
	return 0;
}

/* What the processors have written is in the memory, whatever became of the daemon; unless the host
 * went down before a file's pages were on the disk. */
static int torn_check(const struct layout_superblock *sb, const struct recover_wish *wish)
{
	if (!wish->durable || sb->clean_ms ||
	    memcmp(sb->host_boot_id, wish->host_boot_id, sizeof(sb->host_boot_id)) == 0)
		return 0;
	return err_set(
		-ESTALE,
		"the host was restarted while the pool was in use, so that parts of the file "
		"may be older than others: `tarn pool check --repair FILE` says what is left "
		"and makes it usable; or remove the file to begin with an empty pool");
}

int recover_check(const struct layout_superblock *sb, uint64_t bytes,
		  const struct recover_wish *wish, struct layout_geometry *ret_geometry,
		  enum recover_change *ret_change)
{
	const struct layout_plan *plan = &wish->plan;
	int rc = layout_superblock_check(sb, bytes, ret_geometry);

	if (rc == 0)
		rc = counts_check(sb);
	if (rc == 0)
		rc = same_pool(sb, plan);
	if (rc == 0)
		rc = torn_check(sb, wish);
	if (rc < 0)
		return rc;
	*ret_change = sb->atomics != plan->atomics || sb->deadline_ns != plan->deadline_ns ||
				      sb->grace_ns != plan->grace_ns
			      ? RECOVER_FENCE_FIRST
			      : RECOVER_SAME;
	return 0;
}

/* ---- what is half done ---- */

struct recovery {
	struct pool *pool;
	const struct layout_geometry *g;
	bool *named; /* by page: the directory does */
	struct recover_report report;
};

static uint64_t entry_at(const struct recovery *r, uint64_t index)
{
	return self_load(r->pool, layout_directory_offset(r->g, index));
}

static int directory_damaged(uint64_t index, uint64_t entry)
{
	return err_set(
		-TARN_ECORRUPT,
		"the pool's directory contradicts itself: entry %llu is %016llx: `tarn pool "
		"check FILE` says more; a pool whose directory is damaged has to be made anew",
		(unsigned long long)index, (unsigned long long)entry);
}

/* No split is under way; one may have ended a moment ago, and grow.c takes that flag away. */
static bool settled(uint64_t header)
{
	return layout_header_split(header) == LAYOUT_SPLIT_NONE ||
	       layout_header_split(header) == LAYOUT_SPLIT_FILLED;
}

/* Does the directory's entry name a subtable for these hashes, and do all that should name it? */
static bool entry_valid(const struct recovery *r, uint64_t index, uint64_t global_depth)
{
	uint64_t entry = entry_at(r, index), header;
	uint32_t page = layout_directory_page(entry), depth = layout_directory_depth(entry);

	if (layout_directory_state(entry) != LAYOUT_DIRECTORY_VALID || page >= r->g->npages ||
	    depth > global_depth || entry_at(r, layout_suffix((uint32_t)index, depth)) != entry)
		return false;
	header = self_load(r->pool, layout_page_offset(r->g, page));
	return layout_page_state(pool_load_page_word(r->pool, page)) == LAYOUT_PAGE_INDEX &&
	       layout_header_depth(header) == depth && settled(header) &&
	       layout_header_suffix(header) == layout_suffix((uint32_t)index, depth);
}

static int directory_check(struct recovery *r)
{
	uint64_t global_depth = self_load(r->pool, LAYOUT_GLOBAL_DEPTH_OFFSET);

	if (global_depth > r->g->max_depth)
		return err_set(-TARN_ECORRUPT,
			       "the pool's directory has depth %llu, at most %u is possible",
			       (unsigned long long)global_depth, r->g->max_depth);
	for (uint64_t i = 0; i < 1ull << global_depth; i++) {
		if (!entry_valid(r, i, global_depth))
			return directory_damaged(i, entry_at(r, i));
		r->named[layout_directory_page(entry_at(r, i))] = true;
	}
	return 0;
}

/* ---- pages ---- */

static bool slot_to(struct recovery *r, uint64_t offset, uint64_t word, uint64_t value)
{
	return self_cas(r->pool, offset, word, value) == word;
}

static void slot_finish(struct recovery *r, uint64_t offset)
{
	uint64_t word = self_load(r->pool, offset);

	switch (layout_slot_state(word)) {
	case LAYOUT_SLOT_EMPTY:
	case LAYOUT_SLOT_COMMITTED:
		return;
	case LAYOUT_SLOT_PENDING: /* to kill one is never wrong, whoever may still be at it */
		r->report.killed += slot_to(r, offset, word, 0);
		return;
	case LAYOUT_SLOT_FROZEN: /* no split is under way any more; a hand-over may be */
		if (r->g->shards)
			return;
		r->report.thawed += slot_to(r, offset, word,
					    layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED));
		return;
	case LAYOUT_SLOT_MOVED:
		/* the split may have been finished just now, under their eyes: grow.c waits for that */
		if (r->pool->unfenced_count > 0)
			return;
		r->report.cleared += slot_to(r, offset, word, 0);
		return;
	default:
		r->report.damaged_slots++;
	}
}

/* All buckets of a subtable have the first one's header (which the directory agrees with); a key in a
 * bucket that says something else would not be found. */
static void subtable_finish(struct recovery *r, uint32_t page)
{
	uint64_t offset = layout_page_offset(r->g, page), first = self_load(r->pool, offset);

	for (uint32_t bucket = 0; bucket < 3 * r->g->groups;
	     bucket++, offset += LAYOUT_BUCKET_BYTES) {
		uint64_t header = self_load(r->pool, offset);
		uint64_t right =
			layout_header_make(layout_header_suffix(first), layout_header_depth(first),
					   settled(header) ? layout_header_split(header) : 0,
					   layout_header_version(header));

		if (header != right && slot_to(r, offset, header, right))
			r->report.headers++;
		for (uint32_t slot = 1; slot <= LAYOUT_BUCKET_SLOTS; slot++)
			slot_finish(r, offset + 8ull * slot);
	}
}

static bool owner_lives(const struct recovery *r, uint64_t word)
{
	uint32_t owner = layout_page_owner(word);

	return owner < r->g->max_clients && r->pool->clients[owner].state == LAYOUT_CLIENT_LIVE;
}

static void page_finish(struct recovery *r, uint32_t page)
{
	uint64_t word = pool_load_page_word(r->pool, page);
	uint32_t class = layout_page_class(word);

	switch (layout_page_state(word)) {
	case LAYOUT_PAGE_FREE:
	case LAYOUT_PAGE_FULL:
	case LAYOUT_PAGE_PARTIAL:
	case LAYOUT_PAGE_ORPHAN:
		return;
	case LAYOUT_PAGE_INDEX:
		if (r->named[page])
			subtable_finish(r, page);
		else
			r->report.index_freed +=
				pool_cas_page_word(r->pool, page, word,
						   layout_page_next(word, LAYOUT_PAGE_FREE, 0, 0));
		return;
	case LAYOUT_PAGE_SLAB:
		if (!owner_lives(r, word))
			r->report.orphans += pool_cas_page_word(
				r->pool, page, word,
				layout_page_next(word, LAYOUT_PAGE_ORPHAN, class, 0));
		return;
	default:
		r->report.damaged_pages++;
	}
}

static void pages_finish(struct recovery *r, const struct recover_progress *progress)
{
	for (uint32_t page = 0; page < r->g->npages; page++) {
		page_finish(r, page);
		if (progress && page % PROGRESS_PAGES == 0)
			progress->step(progress->arg, page, r->g->npages);
	}
}

/* ---- the rest ---- */

/* A client that has drawn a ticket may be reading its entry: entries stay. ring.c goes on from these. */
static void rings_finish(struct recovery *r)
{
	for (uint32_t class = 0; class < LAYOUT_CLASSES; class ++) {
		uint64_t offset = layout_ring_offset(r->g, class);
		uint64_t head = self_load(r->pool, offset + LAYOUT_RING_HEAD),
			 tail = self_load(r->pool, offset + LAYOUT_RING_TAIL);

		if (tail <= head + r->g->ring_entries && head <= tail + LAYOUT_MAX_CLIENTS &&
		    tail < 1ull << 56)
			continue;
		r->report.rings++;
		self_store(r->pool, offset + LAYOUT_RING_TAIL, 0);
		self_cas(r->pool, offset + LAYOUT_RING_HEAD, head, 0);
	}
}

static void client_table_finish(struct recovery *r)
{
	for (uint32_t slot = 0; slot < r->g->max_clients; slot++)
		if (r->pool->clients[slot].state != LAYOUT_CLIENT_LIVE)
			self_store(r->pool, layout_client_offset(r->g, slot), LAYOUT_CLIENT_FREE);
}

/* First of all: what is decided here is not by what a daemon before this one has owned. */
static void shards_finish(struct recovery *r)
{
	for (uint32_t i = 0; i < r->g->shards; i++)
		self_store(r->pool, layout_shard_offset(r->g, i), 0);
}

int recover_run(struct pool *pool, const struct recover_progress *progress,
		struct recover_report *ret_report)
{
	struct recovery r = {.pool = pool, .g = &pool->geometry};
	int rc;

	r.report.pages = r.g->npages;
	r.named = calloc(r.g->npages, sizeof(*r.named));
	if (!r.named)
		return err_set(-ENOMEM, "out of memory");
	shards_finish(&r);
	client_table_finish(&r);
	rings_finish(&r);
	rc = grow_recover(pool);
	if (rc == 0)
		rc = directory_check(&r);
	if (rc == 0) {
		pages_finish(&r, progress);
		*ret_report = r.report;
	}
	free(r.named);
	return rc;
}
