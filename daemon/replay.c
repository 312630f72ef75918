/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A table of fixed size with the key ids and nonces of signed requests. Main thread. The oldest are
 * overwritten, but none that could still be used: when all are that young, nobody else with a key
 * comes in for a while. handshake.c asks.
 *
 * A wall clock may step back; what was forgotten could then be young again. So the time of the
 * newest request that was forgotten is kept, and what is not newer is refused.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "auth.h"
#include "replay.h"

#define NONE UINT32_MAX
/* How many places are looked at for one that can be used again: they are nearly in order of age. */
#define LOOK 64u

struct entry {
	uint8_t key_id[WIRE_KEY_ID_BYTES];
	uint64_t nonce;
	uint64_t time_ms;
	uint32_t next; /* in its chain */
	uint32_t used;
};

struct replay {
	uint32_t entries;
	uint32_t hand; /* where the next one goes, if its place is free */
	uint64_t window_ms, seed, forgotten_ms;
	struct entry *table;
	uint32_t *chains; /* first entry by hash */
};

struct replay *replay_create(uint32_t entries, uint64_t window_ms)
{
	struct replay *replay = calloc(1, sizeof(*replay));

	assert(entries && (entries & (entries - 1)) == 0);
	if (!replay)
		return NULL;
	replay->entries = entries;
	replay->window_ms = window_ms;
	replay->seed = auth_random();
	replay->table = calloc(entries, sizeof(*replay->table));
	replay->chains = malloc(entries * sizeof(*replay->chains));
	if (!replay->table || !replay->chains) {
		replay_free(replay);
		return NULL;
	}
	memset(replay->chains, 0xff, entries * sizeof(*replay->chains));
	return replay;
}

void replay_free(struct replay *replay)
{
	if (!replay)
		return;
	free(replay->table);
	free(replay->chains);
	free(replay);
}

/* Seeded: who has a key chooses its nonces. */
static uint32_t *chain_of(const struct replay *replay, const uint8_t key_id[WIRE_KEY_ID_BYTES],
			  uint64_t nonce)
{
	uint8_t both[WIRE_KEY_ID_BYTES + sizeof(nonce)];

	memcpy(both, key_id, WIRE_KEY_ID_BYTES);
	memcpy(both + WIRE_KEY_ID_BYTES, &nonce, sizeof(nonce));
	return &replay->chains[XXH3_64bits_withSeed(both, sizeof(both), replay->seed) &
			       (replay->entries - 1)];
}

static void forget(struct replay *replay, uint32_t place)
{
	struct entry *entry = &replay->table[place];
	uint32_t *link = chain_of(replay, entry->key_id, entry->nonce);

	while (*link != place)
		link = &replay->table[*link].next;
	*link = entry->next;
	entry->used = 0;
	if (entry->time_ms > replay->forgotten_ms)
		replay->forgotten_ms = entry->time_ms;
}

/* A place that is free or holds what is too old to be used; NONE. */
static uint32_t place_find(struct replay *replay, uint64_t now_ms)
{
	for (uint32_t i = 0; i < LOOK && i < replay->entries; i++) {
		uint32_t place = (replay->hand + i) & (replay->entries - 1);
		const struct entry *entry = &replay->table[place];

		if (!entry->used || now_ms > entry->time_ms + replay->window_ms) {
			replay->hand = (place + 1) & (replay->entries - 1);
			return place;
		}
	}
	return NONE;
}

enum replay_result replay_remember(struct replay *replay, const uint8_t key_id[WIRE_KEY_ID_BYTES],
				   uint64_t nonce, uint64_t time_ms, uint64_t now_ms)
{
	uint32_t *chain = chain_of(replay, key_id, nonce), place;
	struct entry *entry;

	for (place = *chain; place != NONE; place = replay->table[place].next)
		if (replay->table[place].nonce == nonce &&
		    memcmp(replay->table[place].key_id, key_id, WIRE_KEY_ID_BYTES) == 0)
			return REPLAY_SEEN;
	if (time_ms <= replay->forgotten_ms)
		return REPLAY_OLD;
	place = place_find(replay, now_ms);
	if (place == NONE)
		return REPLAY_FULL;
	entry = &replay->table[place];
	if (entry->used)
		forget(replay, place);
	memcpy(entry->key_id, key_id, WIRE_KEY_ID_BYTES);
	entry->nonce = nonce;
	entry->time_ms = time_ms;
	entry->used = 1;
	entry->next = *chain;
	*chain = place;
	return REPLAY_NEW;
}
