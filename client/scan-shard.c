/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan-shard.c - a walk over a member of a cluster: it shows keys of that member's shards alone
 *
 * The words of the shards that a chunk has keys of are read behind it. Where one does not fit the client's map
 * keys may be missing in the chunk, and the walk says so (-TARN_EMOVED) and stays where it is. Runs on the session's
 * owner. Next: docs/protocol.md section 11; kv-shard.c, the same for a single key.
 */
#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "mutation.h"
#include "scan-internal.h"
#include "shard.h"

#define PAUSE_NS 1000000u

/* Bits of a shard's number that all keys of the range under way have in common. */
static uint32_t common_bits(const struct tarn_scan *scan)
{
	uint32_t depth = scan->cursor.ranges[scan->cursor.count - 1].depth;

	return shard_bits_of(depth, scan->session->geometry.shards);
}

static uint32_t range_shard(const struct tarn_scan *scan)
{
	const struct scan_range *range = &scan->cursor.ranges[scan->cursor.count - 1];

	return range->suffix >> SHARD_SHIFT & common_bits(scan);
}

/* One word where the subtable is of one shard, else all. */
static int post(struct tarn_scan *scan)
{
	const struct layout_geometry *g = &scan->session->geometry;
	struct fabric_request r;

	if (scan->words_room < g->shards) {
		free(scan->words);
		scan->words = calloc(g->shards, sizeof(*scan->words));
		scan->words_room = scan->words ? g->shards : 0;
		if (!scan->words)
			return scan_end(scan, err_set(-ENOMEM, "no memory for the words of %u shards",
						      g->shards));
	}
	scan->words_first = 0;
	scan->words_count = g->shards;
	if (common_bits(scan) == g->shards - 1) {
		scan->words_first = range_shard(scan);
		scan->words_count = 1;
	}
	r = fabric_read(layout_shard_offset(g, scan->words_first), scan->words,
			8 * scan->words_count);
	return scan_post(scan, &r, 1);
}

static int moved(struct tarn_scan *scan, uint32_t shard, uint64_t word)
{
	scan_drop_chunk(scan);
	return scan_end(scan,
			err_set(-TARN_EMOVED,
				"shard %u has state %u since epoch %llu at this member, and is its "
				"own since %llu by the map that the client has; call again to go on",
				shard, shard_word_state(word),
				(unsigned long long)shard_word_epoch(word),
				(unsigned long long)scan_since(scan)[shard]));
}

static bool readable(uint64_t word, uint64_t since)
{
	return MUTATED(MUTATION_WALKWORD) || shard_word_readable(word, since);
}

/* The first of the chunk's shards whose word says that keys of it may be missing; words_count: none. */
static uint32_t first_unfit(const struct tarn_scan *scan)
{
	const uint64_t *since = scan_since(scan);
	uint32_t i;

	for (i = 0; i < scan->words_count; i++) {
		uint32_t shard = scan->words_first + i;

		if (since[shard] && (shard & common_bits(scan)) == range_shard(scan) && !readable(scan->words[i], since[shard]))
			break;
	}
	return i;
}

int scan_shards(struct tarn_scan *scan)
{
	const struct tarn_session *s = scan->session;
	uint64_t word;
	uint32_t i;

	if (s->geometry.shards == 0 || s->geometry.shards != s->since_shards)
		return scan_end(scan, err_set(-TARN_EMOVED,
					      "the pool has %u shards, %u by the map that the client "
					      "has",
					      s->geometry.shards, s->since_shards));
	if (!scan->posted)
		return post(scan);
	scan->posted = false;
	i = first_unfit(scan);
	if (i == scan->words_count)
		return scan_chunk_whole(scan);
	word = scan->words[i];
	if (!shard_word_comes(word, scan_since(scan)[scan->words_first + i]))
		return moved(scan, scan->words_first + i, word);
	scan->state = SCAN_LOOK;
	scan->task.wake_ns = session_now(scan->session) + PAUSE_NS;
	return SCAN_WAIT;
}

int scan_shard_shown(const struct tarn_scan *scan, struct layout_hash hash)
{
	const struct tarn_session *s = scan->session;
	const uint64_t *since = scan_since(scan);
	uint32_t shard;

	if (s->geometry.shards != s->since_shards)
		return -1;
	shard = shard_of(hash, s->geometry.shards);
	if (since[shard] == 0)
		return 0;
	if (shard - scan->words_first >= scan->words_count)
		return -1;
	return readable(scan->words[shard - scan->words_first], since[shard]) ? 1 : -1;
}
