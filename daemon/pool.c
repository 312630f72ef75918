/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool: client-table slots, page words. Main thread. Whatever is read from the pool's memory was
 * perhaps written by a hostile client, so decisions come from struct pool; see pool.h. pool-open.c has
 * its beginning and end, keeper.c moves pages on, self.c has the only accesses.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "events.h"
#include "keeper.h"
#include "mutation.h"
#include "pool.h"
#include "self.h"

/* Largest number that is believed of a client's counter: the sum of 2^16 of them still fits. */
#define TELEMETRY_MAX (1ull << 47)
/* A search through the page table that found nothing is not repeated for this long. */
#define FULL_NS 10000000u
/* So many client ids are reserved at once. */
#define CLIENT_IDS 1024u
/* How many pages are looked at for a partial one, when a free one is known already. */
#define PARTIAL_LOOK 16384u
/* A client's end goes over a page table of so many words at most, which takes less than 0.1 ms. */
#define SCAN_PAGES 65536u

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
	if (MUTATED(MUTATION_CLIENT_ID))
		return pool->client_count + 1;
	if (pool->last_client_id == pool->reserved_client_id) {
		/* stands in the pool before one of them is given out: who opens it after us, however we
		 * ended, goes on behind them */
		pool->reserved_client_id = UINT32_MAX - pool->last_client_id > CLIENT_IDS
						   ? pool->last_client_id + CLIENT_IDS
						   : UINT32_MAX;
		self_store(pool, offsetof(struct layout_superblock, last_client_id),
			   pool->reserved_client_id);
	}
	return ++pool->last_client_id;
}

static uint32_t find_slot(struct pool *pool)
{
	/* Onward from the last one: a slot rests as long as possible before it is used again. */
	for (uint32_t i = 0; i < pool->geometry.max_clients; i++) {
		uint32_t slot = (pool->slot_cursor + i) % pool->geometry.max_clients;

		if (pool->clients[slot].state == LAYOUT_CLIENT_FREE &&
		    (!pool->clients[slot].settling || MUTATED(MUTATION_SLOT_REUSE))) {
			pool->slot_cursor = (slot + 1) % pool->geometry.max_clients;
			return slot;
		}
	}
	return POOL_NONE;
}

static void settle_at_once(struct pool *pool, uint32_t silent);

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

	if (slot == POOL_NONE && pool->settling_count > 0) {
		settle_at_once(pool, POOL_NONE);
		slot = find_slot(pool);
	}
	if (slot == POOL_NONE)
		return -EBUSY;
	client_id = pool_client_id(pool);
	if (!client_id)
		return -EOVERFLOW;
	pool->clients[slot] = *client;
	pool->clients[slot].name[sizeof(client->name) - 1] = '\0';
	pool->clients[slot].state = LAYOUT_CLIENT_LIVE;
	pool->clients[slot].client_id = client_id;
	pool->clients[slot].first_id = client_id;
	pool->clients[slot].settling = false;
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

/* ---- the end of a client ---- */

static bool is_live(const struct pool *pool, uint32_t slot)
{
	return slot < pool->geometry.max_clients && pool->clients[slot].state == LAYOUT_CLIENT_LIVE;
}

/*
 * An orphan names nobody, so that the dead client's slot can be given away: the sweep goes by the
 * page's state. The owner is fenced and nobody else changes its pages: a CAS that fails is somebody's
 * damage, or the daemon's own connection has failed. Then the page is left to a later walk, and the
 * slot rests until that: who gets it must not get the page with it.
 */
uint64_t pool_orphan_page(struct pool *pool, uint32_t page, uint64_t word)
{
	uint32_t owner = layout_page_owner(word);
	uint64_t orphan = layout_page_next(word, LAYOUT_PAGE_ORPHAN, layout_page_class(word), 0);

	if (is_live(pool, owner))
		return word;
	if (!pool_cas_page_word(pool, page, word, orphan)) {
		if (owner < pool->geometry.max_clients && pool->clients[owner].settling)
			pool->clients[owner].settle_pass = keeper_next_pass(pool->keeper);
		return word;
	}
	if (owner < pool->geometry.max_clients && pool->clients[owner].settling)
		pool->clients[owner].left_pages++;
	return orphan;
}

const char *pool_who_text(const struct pool_client *client, const char *peer,
			  char text[POOL_WHO_TEXT])
{
	if (client->transport == POOL_SHM)
		snprintf(text, POOL_WHO_TEXT, "pid %u %s, uid %u, gid %u", client->pid, peer,
			 client->uid, client->gid);
	else
		snprintf(text, POOL_WHO_TEXT, "%s", peer);
	return text;
}

void pool_client_tell_connected(const struct pool *pool, uint32_t slot, const char *peer)
{
	const struct pool_client *client = &pool->clients[slot];
	char text[POOL_WHO_TEXT];

	events_tell(pool->events, EVENT_client_connected,
		    EVENT_FIELDS(.pool = pool->name, .peer = peer, .client = client->client_id),
		    "pool %s: client %u (slot %u, %s) has connected at %s, %s", pool->name,
		    client->client_id, slot, pool_who_text(client, peer, text),
		    client->listener ? client->listener->name : "?",
		    client->read_only ? "read only" : "read and write");
}

static void tell_end(const struct pool *pool, uint32_t slot, const char *peer, const char *why)
{
	const struct pool_client *client = &pool->clients[slot];
	const struct event_fields *fields =
		EVENT_FIELDS(.pool = pool->name, .peer = peer, .client = client->client_id);
	char text[POOL_WHO_TEXT];

	pool_who_text(client, peer, text);
	if (client->left_pages)
		events_tell(pool->events, EVENT_client_dead, fields,
			    "pool %s: client %u (slot %u, %s) is gone (%s) and has left %u pages behind",
			    pool->name, client->client_id, slot, text, why, client->left_pages);
	else
		events_tell(pool->events, EVENT_client_left, fields,
			    "pool %s: client %u (slot %u, %s) has ended: %s", pool->name,
			    client->client_id, slot, text, why);
}

static void settle(struct pool *pool, uint32_t slot, bool tell)
{
	struct pool_client *client = &pool->clients[slot];

	client->settling = false;
	pool->settling_count--;
	if (!client->left_pages) {
		pool->counters.clients_ended_clean++;
		return;
	}
	pool->counters.clients_ended_dead++;
	keeper_sweep_soon(pool->keeper);
	if (!tell)
		return;
	tell_end(pool, slot, client->name, "since a while");
}

/*
 * Goes over the page table for all slots that rest; only who could not be rid of a page goes on
 * resting. What is found of `silent` is told by the caller.
 */
static void settle_at_once(struct pool *pool, uint32_t silent)
{
	uint64_t pass = keeper_next_pass(pool->keeper);

	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		pool->clients[slot].settle_pass = 0;
	for (uint32_t page = 0; page < pool->geometry.npages; page++) {
		uint64_t word = pool_load_page_word(pool, page);

		if (layout_page_state(word) == LAYOUT_PAGE_SLAB)
			pool_orphan_page(pool, page, word);
	}
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		if (pool->clients[slot].settling && pool->clients[slot].settle_pass < pass)
			settle(pool, slot, slot != silent);
}

void pool_clients_settle(struct pool *pool, uint64_t pass)
{
	for (uint32_t slot = 0; slot < pool->geometry.max_clients && pool->settling_count > 0;
	     slot++)
		if (pool->clients[slot].settling && pool->clients[slot].settle_pass <= pass)
			settle(pool, slot, true);
}

/* A connection that can only read owns no pages. */
static void rest(struct pool *pool, uint32_t slot)
{
	struct pool_client *client = &pool->clients[slot];

	if (client->read_only) {
		pool->counters.clients_ended_clean++;
		return;
	}
	client->settling = true;
	client->settle_pass = keeper_next_pass(pool->keeper);
	pool->settling_count++;
	if (pool->geometry.npages <= SCAN_PAGES && !pool->lazy_ends)
		settle_at_once(pool, slot);
}

uint32_t pool_client_end(struct pool *pool, uint32_t slot)
{
	struct pool_client *client = &pool->clients[slot];
	struct layout_telemetry telemetry;

	if (pool_client_telemetry(pool, slot, &telemetry))
		pool_telemetry_add(&pool->ended, &telemetry);
	keeper_count_soon(pool->keeper);
	pool->client_count--;
	pool->connections_ended++;
	client->state = LAYOUT_CLIENT_FREE;
	client->left_pages = 0;
	publish_state(pool, slot);
	rest(pool, slot);
	return client->left_pages;
}

void pool_client_end_told(struct pool *pool, uint32_t slot, const char *peer, const char *why)
{
	pool_client_end(pool, slot);
	tell_end(pool, slot, peer, why);
}

void pool_client_withdraw(struct pool *pool, uint32_t slot)
{
	pool->client_count--;
	pool->clients[slot].state = LAYOUT_CLIENT_FREE;
	publish_state(pool, slot);
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
