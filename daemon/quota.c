/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Quotas of access keys; see quota.h. Main thread, called by keeper.c and by expire.c's walk. Owners in
 * blocks are what clients have written, so a writer can charge its keys to somebody else: quotas keep
 * honest users apart, keys with the role `write` are for who may be trusted with the pool. A client that
 * goes on claiming pages can be seen without its help, and is cut off. Next: expire.c, which counts;
 * client/process.c and claim.c, which obey.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "pool.h"
#include "quota.h"
#include "reload-keys.h"
#include "self.h"

#define STEP_PAGES 65536u /* page words looked at per step */
#define WALK_NS    500000000u
/* Who was told so long ago that there are no more pages has had the time to obey. */
#define OBEY_NS 5000000000u
/* What is used up is given free again when a sixteenth of it is left. */
#define SLACK 16u

struct entry {
	uint32_t tag;
	struct quota_stats stats;
	uint64_t keys_now, bytes_now, pages_now; /* of the walks under way */
	uint64_t far_over_ns; /* since when its clients own far too many pages; 0: they do not */
};

struct quota {
	struct pool *pool;
	const struct log *log;
	struct entry *entries;
	struct quota_stats *stats; /* what was given out last */
	uint32_t count;
	uint32_t *by_tag; /* 1 + index of an entry, at its tag or behind; 0: none */
	uint32_t mask;
	uint32_t *held; /* pages, by client-table slot, in the walk under way */
	uint32_t page;  /* the walk over the page table goes on here */
	uint64_t due_ns, began_ns;
};

/* ---- the keys ---- */

static struct entry *find(const struct quota *quota, uint32_t tag)
{
	if (tag == 0 || quota->count == 0)
		return NULL;
	for (uint32_t i = tag & quota->mask;; i = (i + 1) & quota->mask) {
		struct entry *entry;

		if (quota->by_tag[i] == 0)
			return NULL;
		entry = &quota->entries[quota->by_tag[i] - 1];
		if (entry->tag == tag)
			return entry;
	}
}

static void fill_entry(struct quota *quota, struct entry *entry, const struct auth_key *key)
{
	*entry = (struct entry){.tag = layout_owner(key->id, sizeof(key->id))};
	memcpy(entry->stats.key_id, key->id, sizeof(key->id));
	entry->stats.quota.keys = key->quota.keys;
	entry->stats.quota.bytes = key->quota.bytes;
	if (key->quota.pages_percent)
		entry->stats.quota.pages =
			((uint64_t)quota->pool->geometry.npages * key->quota.pages_percent + 99) /
			100;
}

/* What was known of the key before. */
static void carry_over(struct entry *entry, const struct entry *old)
{
	const struct layout_quota quota = entry->stats.quota;

	*entry = *old;
	entry->stats.quota = quota;
}

static int fill(struct quota *quota, const struct auth_keys *keys, const struct quota *old)
{
	uint32_t places = 2;

	while (places < 2 * keys->count)
		places *= 2;
	quota->mask = places - 1;
	quota->by_tag = calloc(places, sizeof(*quota->by_tag));
	quota->entries = calloc(keys->count + 1, sizeof(*quota->entries));
	quota->stats = calloc(keys->count + 1, sizeof(*quota->stats));
	if (!quota->by_tag || !quota->entries || !quota->stats)
		return err_set(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < keys->count; i++) {
		struct entry *entry = &quota->entries[quota->count];
		uint32_t place;

		fill_entry(quota, entry, &keys->keys[i]);
		if (find(quota, entry->tag)) {
			log_warning(quota->log,
				    "pool %s: key %s has the same tag as another one: it is counted "
				    "with that one, and has no quota; choose another id",
				    quota->pool->name, entry->stats.key_id);
			continue;
		}
		if (old && find(old, entry->tag))
			carry_over(entry, find(old, entry->tag));
		for (place = entry->tag & quota->mask; quota->by_tag[place];)
			place = (place + 1) & quota->mask;
		quota->by_tag[place] = ++quota->count;
	}
	return 0;
}

static void clear(struct quota *quota)
{
	free(quota->by_tag);
	free(quota->entries);
	free(quota->stats);
}

int quota_create(struct pool *pool, const struct log *log, struct quota **ret_quota)
{
	struct quota *quota = calloc(1, sizeof(*quota));
	int rc;

	if (!quota)
		return err_set(-ENOMEM, "out of memory");
	quota->pool = pool;
	quota->log = log;
	quota->held = calloc(pool->geometry.max_clients, sizeof(*quota->held));
	rc = quota->held ? fill(quota, &pool->keys, NULL) : err_set(-ENOMEM, "out of memory");
	if (rc < 0) {
		quota_free(quota);
		return rc;
	}
	*ret_quota = quota;
	return 0;
}

void quota_free(struct quota *quota)
{
	if (!quota)
		return;
	clear(quota);
	free(quota->held);
	free(quota);
}

int quota_prepare(const struct quota *quota, const struct auth_keys *keys, struct quota **ret_fresh)
{
	struct quota *fresh = calloc(1, sizeof(*fresh));
	int rc;

	if (!fresh)
		return err_set(-ENOMEM, "out of memory");
	fresh->pool = quota->pool;
	fresh->log = quota->log;
	rc = fill(fresh, keys, quota);
	if (rc < 0) {
		quota_free(fresh);
		return rc;
	}
	*ret_fresh = fresh;
	return 0;
}

void quota_commit(struct quota *quota, struct quota *fresh)
{
	fresh->held = quota->held;
	fresh->page = quota->page;
	fresh->due_ns = quota->due_ns;
	fresh->began_ns = quota->began_ns;
	clear(quota);
	*quota = *fresh;
	free(fresh);
}

/* ---- keys and bytes ---- */

void quota_walk_begin(struct quota *quota)
{
	for (uint32_t i = 0; i < quota->count; i++)
		quota->entries[i].keys_now = quota->entries[i].bytes_now = 0;
}

void quota_count(struct quota *quota, uint32_t owner, uint64_t bytes)
{
	struct entry *entry = find(quota, owner);

	if (!entry)
		return;
	entry->keys_now++;
	entry->bytes_now += bytes;
}

/* Used up, or was and not enough has come back? */
static bool over(uint64_t used, uint64_t quota, bool was)
{
	if (quota == 0)
		return false;
	return used >= quota || (was && used > quota - quota / SLACK);
}

static void judge(struct entry *entry, uint64_t bit, uint64_t used, uint64_t quota)
{
	if (over(used, quota, entry->stats.limits & bit))
		entry->stats.limits |= bit;
	else
		entry->stats.limits &= ~bit;
}

void quota_walk_end(struct quota *quota)
{
	for (uint32_t i = 0; i < quota->count; i++) {
		struct entry *entry = &quota->entries[i];
		struct quota_stats *stats = &entry->stats;

		stats->used.keys = entry->keys_now;
		stats->used.bytes = entry->bytes_now;
		judge(entry, LAYOUT_LIMIT_KEYS, stats->used.keys, stats->quota.keys);
		judge(entry, LAYOUT_LIMIT_BYTES, stats->used.bytes, stats->quota.bytes);
	}
	quota->due_ns = 0; /* clients shall know at once */
}

/* ---- pages, and telling the clients ---- */

static struct entry *entry_of(const struct quota *quota, const struct pool_client *client)
{
	return find(quota, layout_owner(client->key_id, sizeof(client->key_id)));
}

static void count_pages(struct quota *quota)
{
	const struct pool *pool = quota->pool;
	uint32_t end = quota->page + STEP_PAGES;

	if (quota->page == 0) {
		for (uint32_t i = 0; i < quota->count; i++)
			quota->entries[i].pages_now = 0;
		memset(quota->held, 0, pool->geometry.max_clients * sizeof(*quota->held));
	}
	for (; quota->page < pool->geometry.npages && quota->page < end; quota->page++) {
		uint64_t word = pool_load_page_word(pool, quota->page);
		uint32_t owner = layout_page_owner(word);
		struct entry *entry;

		if (layout_page_state(word) != LAYOUT_PAGE_SLAB ||
		    owner >= pool->geometry.max_clients ||
		    pool->clients[owner].state != LAYOUT_CLIENT_LIVE)
			continue;
		entry = entry_of(quota, &pool->clients[owner]);
		if (!entry)
			continue;
		entry->pages_now++;
		quota->held[owner]++;
	}
}

static void tell(struct quota *quota, uint32_t slot, const struct quota_stats *stats)
{
	uint64_t offset = layout_client_offset(&quota->pool->geometry, slot) +
			  offsetof(struct layout_client, limits);

	/* the numbers are for messages alone */
	self_write(quota->pool, offset + sizeof(uint64_t), &stats->quota, sizeof(stats->quota));
	self_write(quota->pool, offset + sizeof(uint64_t) + sizeof(stats->quota), &stats->used,
		   sizeof(stats->used));
	self_store(quota->pool, offset, stats->limits);
}

/* Do its clients own far more pages than they may? Several that claim at once may well be a few over. */
static bool far_over(const struct quota_stats *stats)
{
	return stats->quota.pages > 0 && stats->used.pages > 2 * stats->quota.pages + SLACK;
}

/* Of its clients the one that has most. */
static void cut_largest(struct quota *quota, struct entry *entry)
{
	const struct pool *pool = quota->pool;
	uint32_t largest = POOL_NONE;
	char why[160];

	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		if (pool->clients[slot].state == LAYOUT_CLIENT_LIVE && pool->clients[slot].cut &&
		    entry_of(quota, &pool->clients[slot]) == entry &&
		    (largest == POOL_NONE || quota->held[slot] > quota->held[largest]))
			largest = slot;
	if (largest == POOL_NONE)
		return;
	snprintf(why, sizeof(why),
		 "it owns %u of the %llu pages that clients of its key %s may own, and goes on "
		 "although they have %llu",
		 quota->held[largest], (unsigned long long)entry->stats.quota.pages,
		 entry->stats.key_id, (unsigned long long)entry->stats.used.pages);
	reload_cut(&pool->clients[largest], why);
}

void quota_tell(struct quota *quota, uint32_t slot)
{
	const struct entry *entry = entry_of(quota, &quota->pool->clients[slot]);

	if (entry)
		tell(quota, slot, &entry->stats);
}

static void tell_clients(struct quota *quota)
{
	for (uint32_t slot = 0; slot < quota->pool->geometry.max_clients; slot++)
		if (quota->pool->clients[slot].state == LAYOUT_CLIENT_LIVE)
			quota_tell(quota, slot);
}

static void pages_counted(struct quota *quota, uint64_t now)
{
	for (uint32_t i = 0; i < quota->count; i++) {
		struct entry *entry = &quota->entries[i];

		entry->stats.used.pages = entry->pages_now;
		judge(entry, LAYOUT_LIMIT_PAGES, entry->stats.used.pages, entry->stats.quota.pages);
		if (!far_over(&entry->stats))
			entry->far_over_ns = 0;
		else if (entry->far_over_ns == 0)
			entry->far_over_ns = now;
	}
	tell_clients(quota);
	for (uint32_t i = 0; i < quota->count; i++)
		if (quota->entries[i].far_over_ns && now - quota->entries[i].far_over_ns > OBEY_NS)
			cut_largest(quota, &quota->entries[i]);
}

uint64_t quota_step(struct quota *quota, const struct keeper_time *time)
{
	if (quota->count == 0)
		return time->now_ns + WALK_NS; /* there may be some after a reload */
	if (quota->page == 0 && time->now_ns < quota->due_ns)
		return quota->due_ns;
	if (quota->page == 0)
		quota->began_ns = time->now_ns;
	count_pages(quota);
	if (quota->page < quota->pool->geometry.npages)
		return time->now_ns;
	quota->page = 0;
	pages_counted(quota, time->now_ns);
	quota->due_ns = quota->began_ns + WALK_NS;
	return quota->due_ns;
}

const struct quota_stats *quota_get_stats(const struct quota *quota, uint32_t *ret_count)
{
	for (uint32_t i = 0; i < quota->count; i++)
		quota->stats[i] = quota->entries[i].stats;
	*ret_count = quota->count;
	return quota->stats;
}
