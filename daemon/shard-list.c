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

void shard_list_init(struct shard_list *list, uint64_t bound_ns)
{
	*list = (struct shard_list){.bound_ns = bound_ns};
}

void shard_list_free(struct shard_list *list)
{
	free(list->words);
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

static void entry_put(struct shard_list *list, uint64_t word, const struct shard_entry *entry)
{
	uint64_t i = place(word, list->room);

	while (list->words[i])
		i = (i + 1) & (list->room - 1);
	list->words[i] = word;
	list->entries[i] = *entry;
}

static int entries_grow(struct shard_list *list)
{
	struct shard_list old = *list;
	uint64_t room = list->room ? 2 * list->room : ROOM_MIN;
	uint64_t *words = calloc(room, sizeof(*words));
	struct shard_entry *entries = malloc(room * sizeof(*entries));

	if (!words || !entries) {
		free(words);
		free(entries);
		return no_memory(room);
	}
	list->words = words;
	list->entries = entries;
	list->room = room;
	for (uint64_t i = 0; i < old.room; i++)
		if (old.words[i])
			entry_put(list, old.words[i], &old.entries[i]);
	free(old.words);
	free(old.entries);
	return 0;
}

int shard_list_add(struct shard_list *list, uint64_t word, uint64_t copy, uint64_t hash,
		   uint64_t epoch)
{
	const struct shard_entry entry = {
		.copy = normal(copy),
		.hash = hash,
		.epoch = epoch & (UINT64_MAX >> 1),
	};
	int rc = 2 * list->count >= list->room ? entries_grow(list) : 0;

	if (rc < 0)
		return rc;
	entry_put(list, normal(word), &entry);
	list->count++;
	return 0;
}

/* Can the word not have come again since? */
static bool lasts(uint64_t word, const struct shard_entry *entry, uint64_t epoch)
{
	uint64_t since_seen = epoch - entry->epoch;
	uint64_t since_dated = (epoch - layout_slot_gen(word)) % GENERATIONS;

	return since_seen <= since_dated && since_dated < GENERATIONS - MARGIN;
}

struct shard_entry *shard_list_find(struct shard_list *list, uint64_t word, uint64_t epoch)
{
	uint64_t i;

	word = normal(word);
	if (list->room == 0)
		return NULL;
	for (i = place(word, list->room); list->words[i]; i = (i + 1) & (list->room - 1))
		if (list->words[i] == word && lasts(word, &list->entries[i], epoch))
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

int shard_list_replace(struct shard_list *list, uint64_t copy, uint64_t now_ns)
{
	int rc = 2 * list->replaced_count >= list->replaced_room ? replaced_grow(list) : 0;

	if (rc < 0)
		return rc;
	if (list->replaced_count == 0)
		list->replaced_ns = now_ns;
	replaced_put(list->replaced, list->replaced_room, normal(copy));
	list->replaced_count++;
	return 0;
}

bool shard_list_is_replaced(const struct shard_list *list, uint64_t copy, uint64_t now_ns)
{
	uint64_t i;

	copy = normal(copy);
	if (list->replaced_room == 0 || now_ns - list->replaced_ns >= list->bound_ns)
		return false;
	for (i = place(copy, list->replaced_room); list->replaced[i];
	     i = (i + 1) & (list->replaced_room - 1))
		if (list->replaced[i] == copy)
			return true;
	return false;
}
