/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-copy.h - copies shards of this member's pool to another member: docs/protocol.md section 11, steps 2 and 4
 *
 * Two kinds of passes. The first one walks over committed slots while clients go on, and puts each key at the target as a
 * frozen slot; it may be made again, for what they have changed meanwhile. The second one begins when all slots of the shards are frozen here (SHARDS_FREEZE has ended), and brings
 * the target to exactly what this pool has: what is new or has been replaced is copied again, what is gone is
 * deleted there, counters are copied. Any error: the attempt is to be given up.
 *
 * It reads the pool's memory by itself and works at the target through a session of its own, with many keys under way at a time, but
 * never two values of one key: the later one waits. It
 * runs in a thread beside the main one (shard_copy_run()), or is driven step by step (shard_copy_next()); nothing of the pool is changed.
 */
#ifndef TARN_DAEMON_SHARD_COPY_H
#define TARN_DAEMON_SHARD_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "session.h"

struct pool;
struct shard_copy;

/*
 * `shards`: copied. `target`: the caller's, opened with TARN_NO_CACHE and TARN_NO_THREAD, its `since` NULL; nobody
 * else uses it until shard_copy_free(). The first pass is prepared. 0 or -ENOMEM with a text.
 */
int shard_copy_create(const struct pool *pool, const uint32_t *shards, unsigned count,
		      struct tarn_session *target, struct shard_copy **ret_copy);
/* Nothing of it is under way: shard_copy_run() has returned; or it will not go on, for the session is freed next. */
void shard_copy_free(struct shard_copy *copy);

/* Bytes (of keys and values) a second in the first pass, at most; 0, as at first: no limit. Any thread. */
void shard_copy_set_rate(struct shard_copy *copy, uint64_t bytes_per_second);

/* The first pass has ended with 0: prepares another one like it, which puts what has changed; not all of it, when the copy lasts for long already. */
void shard_copy_again(struct shard_copy *copy);
/* The first pass has ended with 0, and all slots are frozen: prepares the second one. */
void shard_copy_bring(struct shard_copy *copy);

enum shard_copy_next {
	SHARD_COPY_ENDED = 0, /* the pass is done */
	SHARD_COPY_MORE = 1,  /* to be called again at once */
	SHARD_COPY_REST = 2,  /* nothing to do before *ret_until_ns of the session's clock, if nothing comes for its engine */
};
#define SHARD_COPY_AT_ONCE 64u /* keys under way, at most */
/*
 * Goes on with the pass, without blocking: begins at most `most` keys (when it is 0, none), and lets the target's engine take a turn. One of
 * the above, or a negative code with a text: given up.
 */
int shard_copy_next(struct shard_copy *copy, unsigned most, uint64_t *ret_until_ns);

/*
 * The whole of a pass, blocking. The target's session must not be in a call. `stop`: looked at between keys;
 * when it is set the copy is given up with -ECANCELED. 0, or a negative code with a text.
 */
int shard_copy_run(struct shard_copy *copy, const atomic_bool *stop);

struct shard_copy_stats {
	uint64_t keys, bytes; /* put at the target, in both passes; of keys and values */
	uint64_t again;       /* keys of the second pass: copied again, or new, or counters */
	uint64_t deleted;     /* at the target, in the second pass */
	uint64_t damaged;     /* slots whose block can not be read: they are not copied */
};
/* Any thread. */
void shard_copy_get_stats(const struct shard_copy *copy, struct shard_copy_stats *ret_stats);

#endif
