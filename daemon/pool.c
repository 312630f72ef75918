/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool: creation, client-table slots, page words. Main thread. Whatever is read from the pool's
 * memory was perhaps written by a hostile client, so decisions come from struct pool; see pool.h.
 * pool-memory.c gets the memory, keeper.c moves pages on, self.c has the only accesses.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "keeper.h"
#include "pool.h"
#include "self.h"

/* Largest number that is believed of a client's counter: the sum of 2^16 of them still fits. */
#define TELEMETRY_MAX (1ull << 47)
/* A search through the page table that found nothing is not repeated for this long. */
#define FULL_NS 10000000u
/* How many pages are looked at for a partial one, when a free one is known already. */
#define PARTIAL_LOOK 16384u

/* ---- creation ---- */

static void plan_fill(const struct config_pool *config, const struct pool *pool,
		      struct layout_plan *plan)
{
	uint64_t id[2] = {auth_random(), auth_random()};

	memset(plan, 0, sizeof(*plan));
	plan->pool_bytes = pool->memory.bytes;
	plan->keys = (uint64_t)config->keys.number;
	plan->max_clients = (uint32_t)config->max_clients.number;
	plan->atomics = LAYOUT_ATOMICS_CPU;
	plan->deadline_ns = (uint64_t)config->deadline.number;
	plan->epoch_ns = (uint64_t)config->epoch.number;
	plan->grace_ns = (uint64_t)config->grace.number;
	plan->max_value_bytes = (uint64_t)config->max_value.number;
	plan->hash_seed = auth_random();
	plan->incarnation = auth_random();
	plan->boot_id = auth_random();
	plan->created_ms = pool->created_ms;
	memcpy(plan->pool_id, id, sizeof(plan->pool_id));
}

/* Nobody else has the memory yet, so it is written directly. */
static int format(const struct config_pool *config, struct pool *pool)
{
	struct layout_plan plan;
	int rc;

	plan_fill(config, pool, &plan);
	rc = layout_format(pool->memory.base, &plan);
	if (rc < 0)
		return rc;
	return layout_superblock_check(
		(const struct layout_superblock *)(const void *)pool->memory.base,
		pool->memory.bytes, &pool->geometry);
}

static int create_parts(const struct config_pool *config, const struct log *log, struct pool *pool)
{
	int rc = 0;

	if (pool->auth)
		rc = auth_keys_load(config->key_file.text, &pool->keys);
	if (rc == 0)
		rc = pool_memory_create(config, log, &pool->memory);
	if (rc == 0)
		rc = format(config, pool);
	if (rc < 0)
		return rc;
	pool->clients = calloc(pool->geometry.max_clients, sizeof(*pool->clients));
	if (!pool->clients)
		return err_set(-ENOMEM, "out of memory");
	return keeper_create(pool, log, &pool->keeper);
}

int pool_create(const struct config_pool *config, const struct log *log, struct pool **ret_pool)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	int rc;

	if (!pool)
		return err_set(-ENOMEM, "out of memory");
	memcpy(pool->name, config->name, sizeof(pool->name));
	pool->hash = wire_pool_hash(pool->name);
	pool->memory.fd = pool->memory.fd_read_only = -1;
	pool->created_ms = clock_wall_ms();
	pool->numa_node = (int)config->numa_node.number;
	pool->auth = config->auth.number == CONFIG_AUTH_KEY;
	rc = create_parts(config, log, pool);
	if (rc < 0) {
		pool_free(pool);
		return rc;
	}
	*ret_pool = pool;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	keeper_free(pool->keeper);
	auth_keys_free(&pool->keys);
	pool_memory_free(&pool->memory);
	free(pool->clients);
	free(pool);
}

/* ---- page words ---- */

uint64_t pool_load_page_word(const struct pool *pool, uint32_t page)
{
	return self_load(pool, layout_page_word_offset(&pool->geometry, page));
}

bool pool_cas_page_word(struct pool *pool, uint32_t page, uint64_t compare, uint64_t value)
{
	return self_cas(pool, layout_page_word_offset(&pool->geometry, page), compare, value) ==
	       compare;
}

void pool_count_pages(const struct pool *pool, struct pool_pages *ret_pages)
{
	memset(ret_pages, 0, sizeof(*ret_pages));
	for (uint32_t page = 0; page < pool->geometry.npages; page++) {
		uint64_t word = pool_load_page_word(pool, page);
		uint32_t state = layout_page_state(word);

		if (state >= LAYOUT_PAGE_STATES) {
			ret_pages->damaged++;
			continue;
		}
		ret_pages->by_state[state]++;
		if (state != LAYOUT_PAGE_FREE && state != LAYOUT_PAGE_INDEX)
			ret_pages->by_class[layout_page_class(word)][state]++;
	}
}

static uint32_t find_page(struct pool *pool, uint32_t class)
{
	uint32_t free_page = POOL_NONE;

	for (uint32_t i = 0; i < pool->geometry.npages; i++) {
		uint32_t page =
			(uint32_t)(((uint64_t)pool->page_cursor + i) % pool->geometry.npages);
		uint64_t word = pool_load_page_word(pool, page);

		if (layout_page_state(word) == LAYOUT_PAGE_PARTIAL &&
		    layout_page_class(word) == class)
			return page;
		if (layout_page_state(word) == LAYOUT_PAGE_FREE && free_page == POOL_NONE)
			free_page = page;
		if (i >= PARTIAL_LOOK && free_page != POOL_NONE)
			break;
	}
	return free_page;
}

uint32_t pool_find_page(struct pool *pool, uint32_t class)
{
	uint64_t begin = clock_now_ns(), now;
	uint32_t page;

	/* The search is long in a large pool that is full, and a client may ask all day. */
	if (begin < pool->full_until[class])
		return POOL_NONE;
	page = find_page(pool, class);
	if (page != POOL_NONE) {
		pool->page_cursor =
			(page + 1) %
			pool->geometry.npages; /* the next one who asks gets another page */
		return page;
	}
	now = clock_now_ns();
	pool->full_until[class] = now + FULL_NS + 4 * (now - begin);
	return POOL_NONE;
}

/* ---- clients ---- */

uint32_t pool_client_id(struct pool *pool)
{
	if (pool->last_client_id == UINT32_MAX)
		return 0;
	return ++pool->last_client_id;
}

static uint32_t find_slot(struct pool *pool)
{
	/* Onward from the last one: a slot rests as long as possible before it is used again. */
	for (uint32_t i = 0; i < pool->geometry.max_clients; i++) {
		uint32_t slot = (pool->slot_cursor + i) % pool->geometry.max_clients;

		if (pool->clients[slot].state == LAYOUT_CLIENT_FREE) {
			pool->slot_cursor = (slot + 1) % pool->geometry.max_clients;
			return slot;
		}
	}
	return POOL_NONE;
}

/* State and client id share the slot's first word, which goes last: who sees "live" sees the rest.
 */
static void publish_state(struct pool *pool, uint32_t slot)
{
	const struct pool_client *client = &pool->clients[slot];

	self_store(pool, layout_client_offset(&pool->geometry, slot),
		   client->state | (uint64_t)client->client_id << 32);
}

static void publish(struct pool *pool, uint32_t slot)
{
	const struct pool_client *client = &pool->clients[slot];
	struct layout_client image;

	memset(&image, 0, sizeof(image));
	image.pid = client->pid;
	image.uid = client->uid;
	image.gid = client->gid;
	image.read_only = client->read_only;
	image.connected_ms = client->connected_ms;
	memcpy(image.name, client->name, sizeof(image.name));
	self_write(pool, layout_client_offset(&pool->geometry, slot), &image, sizeof(image));
	publish_state(pool, slot);
}

int pool_client_add(struct pool *pool, const struct pool_client *client, uint32_t *ret_slot)
{
	uint32_t slot = find_slot(pool), client_id;

	if (slot == POOL_NONE)
		return -EBUSY;
	client_id = pool_client_id(pool);
	if (!client_id)
		return -EOVERFLOW;
	pool->clients[slot] = *client;
	pool->clients[slot].name[sizeof(client->name) - 1] = '\0';
	pool->clients[slot].state = LAYOUT_CLIENT_LIVE;
	pool->clients[slot].client_id = client_id;
	pool->client_count++;
	publish(pool, slot);
	*ret_slot = slot;
	return 0;
}

int pool_client_renumber(struct pool *pool, uint32_t slot, uint32_t *ret_client_id)
{
	uint32_t client_id = pool_client_id(pool);

	if (!client_id)
		return -EOVERFLOW;
	pool->clients[slot].client_id = client_id;
	publish_state(pool, slot);
	*ret_client_id = client_id;
	return 0;
}

/* An orphan names nobody, so that the dead client's slot can be given away: the sweep that will deal
 * with the page goes by its state. */
static uint32_t orphan_pages(struct pool *pool, uint32_t slot)
{
	uint32_t orphans = 0;

	for (uint32_t page = 0; page < pool->geometry.npages; page++) {
		uint64_t word = pool_load_page_word(pool, page);

		if (layout_page_state(word) != LAYOUT_PAGE_SLAB || layout_page_owner(word) != slot)
			continue;
		/* The owner is fenced and nobody else changes its pages: a CAS that fails is
		 * somebody's damage, and then not a page of this slot any more. */
		if (pool_cas_page_word(pool, page, word,
				       layout_page_next(word, LAYOUT_PAGE_ORPHAN,
							layout_page_class(word), 0)))
			orphans++;
	}
	return orphans;
}

uint32_t pool_client_end(struct pool *pool, uint32_t slot)
{
	struct pool_client *client = &pool->clients[slot];
	struct layout_telemetry telemetry;
	uint32_t orphans = orphan_pages(pool, slot);

	if (pool_client_telemetry(pool, slot, &telemetry))
		pool_telemetry_add(&pool->ended, &telemetry);
	keeper_count_soon(pool->keeper);
	pool->client_count--;
	client->state = LAYOUT_CLIENT_FREE;
	publish_state(pool, slot);
	if (orphans)
		pool->counters.clients_ended_dead++;
	else
		pool->counters.clients_ended_clean++;
	return orphans;
}

/* ---- telemetry ---- */

#define TELEMETRY_WORDS (sizeof(struct layout_telemetry) / sizeof(uint64_t))

bool pool_client_telemetry(const struct pool *pool, uint32_t slot,
			   struct layout_telemetry *ret_telemetry)
{
	uint64_t words[TELEMETRY_WORDS];

	self_read(pool,
		  layout_client_offset(&pool->geometry, slot) +
			  offsetof(struct layout_client, telemetry),
		  words, sizeof(words));
	for (size_t i = 0; i < TELEMETRY_WORDS; i++)
		if (words[i] > TELEMETRY_MAX)
			words[i] = TELEMETRY_MAX;
	memcpy(ret_telemetry, words, sizeof(words));
	return ret_telemetry->reports != 0;
}

void pool_telemetry_add(struct layout_telemetry *sum, const struct layout_telemetry *add)
{
	uint64_t totals[TELEMETRY_WORDS], words[TELEMETRY_WORDS];

	memcpy(totals, sum, sizeof(totals));
	memcpy(words, add, sizeof(words));
	for (size_t i = 0; i < TELEMETRY_WORDS; i++)
		if (__builtin_add_overflow(totals[i], words[i], &totals[i]))
			totals[i] = UINT64_MAX;
	memcpy(sum, totals, sizeof(totals));
}
