/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-list.h - what of a shard has been copied: the source's slot words, and those of the copies
 *
 * docs/protocol.md section 11, the list of step 2. A slot word names a block, and while it does only one slot has it: so
 * it says what was copied, wherever a split has moved the slot meanwhile. It may come again much later; then it is
 * not found here (section 2, the rule for cached words). No locks: one thread.
 */
#ifndef TARN_DAEMON_SHARD_LIST_H
#define TARN_DAEMON_SHARD_LIST_H

#include <stdbool.h>
#include <stdint.h>

struct shard_entry {
	uint64_t copy;  /* the copy's, at the target */
	uint64_t hash;  /* of the key, its upper half: a copy's word, too, may come again */
	uint64_t epoch : 63; /* the source's, known before the slot was read */
	uint64_t there : 1;  /* the second pass has found it */
};

/* The words are by themselves, for most of what is looked for is not there. */
struct shard_list {
	uint64_t *words; /* at the source, as committed; 0: none */
	struct shard_entry *entries; /* of the same index */
	uint64_t *replaced; /* copies that were replaced by another one of their key; a set */
	uint64_t count, room, replaced_count, replaced_room;
	uint64_t replaced_ns; /* when the first one was */
	uint64_t bound_ns;
};

/* bound_ns: in this time the target can not have written a word again that was its slot's before. */
void shard_list_init(struct shard_list *list, uint64_t bound_ns);
void shard_list_free(struct shard_list *list);
/* 0 or -ENOMEM with a text. */
int shard_list_add(struct shard_list *list, uint64_t word, uint64_t copy, uint64_t hash,
		   uint64_t epoch);
/* The word's entry, as long as it can not be another block's by now; NULL. `epoch`: the source's. */
struct shard_entry *shard_list_find(struct shard_list *list, uint64_t word, uint64_t epoch);
/* The copy is no longer at the target. now_ns: of any clock, above 0. 0 or -ENOMEM with a text. */
int shard_list_replace(struct shard_list *list, uint64_t copy, uint64_t now_ns);
/* True: it is known to be gone. False also when that was so long ago that the word may be another copy's by now. */
bool shard_list_is_replaced(const struct shard_list *list, uint64_t copy, uint64_t now_ns);

#endif
