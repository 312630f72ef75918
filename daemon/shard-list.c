/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two hash tables with open addressing, at most half full; see shard-list.h. The thread of a mover. Next: shard-copy.c.
 */
#include "shard-list.h"

#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "layout.h"

#define ROOM_MIN    1024u
#define GENERATIONS (1ull << LAYOUT_GEN_BITS)
#define MARGIN      3u /* epochs that may begin while an operation is under way */

void shard_list_init(struct shard_list *list)
{
	*list = (struct shard_list){0};
}

void shard_list_free(struct shard_list *list)
{
	free(list->entries);
	free(list->replaced);
	*list = (struct shard_list){0};
}

static uint64_t place(uint64_t word, uint64_t room)
{
	return (word * 0x9e3779b97f4a7c15ull >> 20) & (room - 1);
}

static uint64_t normal(uint64_t word)
{
	return layout_slot_with_state(word, LAYOUT_SLOT_COMMITTED);
}

static int no_memory(uint64_t room)
{
	return err_set(-ENOMEM, "no memory for a list of %llu keys that are copied",
		       (unsigned long long)room / 2);
}

/* ---- entries ---- */

static void entry_put(struct shard_entry *entries, uint64_t room, const struct shard_entry *entry)
{
	uint64_t i = place(entry->word, room);

	while (entries[i].word)
		i = (i + 1) & (room - 1);
	entries[i] = *entry;
}

static int entries_grow(struct shard_list *list)
{
	uint64_t room = list->room ? 2 * list->room : ROOM_MIN;
	struct shard_entry *entries = calloc(room, sizeof(*entries));

	if (!entries)
		return no_memory(room);
	for (uint64_t i = 0; i < list->room; i++)
		if (list->entries[i].word)
			entry_put(entries, room, &list->entries[i]);
	free(list->entries);
	list->entries = entries;
	list->room = room;
	return 0;
}

int shard_list_add(struct shard_list *list, uint64_t word, uint64_t copy, uint64_t hash,
		   uint64_t epoch)
{
	const struct shard_entry entry = {
		.word = normal(word),
		.copy = normal(copy),
		.hash = hash,
		.epoch = epoch & (UINT64_MAX >> 1),
	};
	int rc = 2 * list->count >= list->room ? entries_grow(list) : 0;

	if (rc < 0)
		return rc;
	entry_put(list->entries, list->room, &entry);
	list->count++;
	return 0;
}

/* Can the word not have come again since? */
static bool lasts(const struct shard_entry *entry, uint64_t epoch)
{
	uint64_t since_seen = epoch - entry->epoch;
	uint64_t since_dated = (epoch - layout_slot_gen(entry->word)) % GENERATIONS;

	return since_seen <= since_dated && since_dated < GENERATIONS - MARGIN;
}

struct shard_entry *shard_list_find(struct shard_list *list, uint64_t word, uint64_t epoch)
{
	uint64_t i;

	word = normal(word);
	if (list->room == 0)
		return NULL;
	for (i = place(word, list->room); list->entries[i].word; i = (i + 1) & (list->room - 1))
		if (list->entries[i].word == word && lasts(&list->entries[i], epoch))
			return &list->entries[i];
	return NULL;
}

/* ---- copies that are gone ---- */

static void replaced_put(uint64_t *replaced, uint64_t room, uint64_t copy)
{
	uint64_t i = place(copy, room);

	while (replaced[i])
		i = (i + 1) & (room - 1);
	replaced[i] = copy;
}

static int replaced_grow(struct shard_list *list)
{
	uint64_t room = list->replaced_room ? 2 * list->replaced_room : ROOM_MIN;
	uint64_t *replaced = calloc(room, sizeof(*replaced));

	if (!replaced)
		return no_memory(room);
	for (uint64_t i = 0; i < list->replaced_room; i++)
		if (list->replaced[i])
			replaced_put(replaced, room, list->replaced[i]);
	free(list->replaced);
	list->replaced = replaced;
	list->replaced_room = room;
	return 0;
}

int shard_list_replace(struct shard_list *list, uint64_t copy)
{
	int rc = 2 * list->replaced_count >= list->replaced_room ? replaced_grow(list) : 0;

	if (rc < 0)
		return rc;
	replaced_put(list->replaced, list->replaced_room, normal(copy));
	list->replaced_count++;
	return 0;
}

bool shard_list_is_replaced(const struct shard_list *list, uint64_t copy)
{
	uint64_t i;

	copy = normal(copy);
	if (list->replaced_room == 0)
		return false;
	for (i = place(copy, list->replaced_room); list->replaced[i];
	     i = (i + 1) & (list->replaced_room - 1))
		if (list->replaced[i] == copy)
			return true;
	return false;
}
