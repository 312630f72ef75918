/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-read.h - a key of this member's pool, read for another member while clients may change it
 *
 * Plain loads of the own memory: checksums and a second look at the slot judge what was read. Nothing is changed. One thread.
 */
#ifndef TARN_DAEMON_SHARD_READ_H
#define TARN_DAEMON_SHARD_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "shard-put.h"

struct blocks;
struct pool;

struct shard_reader {
	const struct pool *pool;
	struct blocks *blocks;
	const uint8_t *wanted; /* by shard */
	uint64_t held, room;   /* bytes of large values that are held, and may be by more than one key */
};

/* A key that was read. What job.put names is in it. */
struct shard_item {
	struct shard_job job;
	uint64_t word, epoch; /* the slot's, and the pool's, known before the slot was read */
	uint8_t *value;       /* a large one */
	uint64_t value_bytes;
	uint64_t image[LAYOUT_BLOCK_MAX / 8];
};

enum shard_read {
	SHARD_READ_KEY,     /* the item has it */
	SHARD_READ_CHANGED, /* the slot says something else by now */
	SHARD_READ_DAMAGED,
	SHARD_READ_OTHER,  /* not of the shards that are wanted, or has expired */
	SHARD_READ_NO_ROOM, /* when some of the values that are held have been given back */
	SHARD_READ_FAILED, /* no memory: with a text */
};

/* Reads the slot that says `word`, committed or frozen, by the pool's time `epoch`. The item holds no value. */
enum shard_read shard_read(struct shard_reader *reader, uint64_t slot, uint64_t word, uint64_t epoch,
			   struct shard_item *item);
/* Gives the item's value back. */
void shard_item_clear(struct shard_reader *reader, struct shard_item *item);

#endif
