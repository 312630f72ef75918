/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan-internal.h - inside of scan.c, scan-walk.c and scan-index.c: a walk under way
 *
 * The next key is looked for by a task (session.h), state by state: BEGIN -> LOOK, and from there
 *	SUBTABLE -> OLD [-> OLD_AGAIN] [-> HEADERS] [-> NEW_ENTRY -> NEW] [-> SHARDS] -> LOOK	the next chunk of the index
 *	HEADS -> LOOK			the blocks of some of its slots
 *	LONG -> LOOK			one whose key does not fit into that
 *	EXPLAIN -> LOOK			one that is not good
 * LOOK ends with a key, or with the walk. Wherever it ends otherwise, the walk is where it was, and the next call goes on.
 */
#ifndef TARN_SCAN_INTERNAL_H
#define TARN_SCAN_INTERNAL_H

#include "scan-cursor.h"
#include "session.h"

#define CHUNK_GROUPS 40u
#define CHUNK_SLOTS  (CHUNK_GROUPS * SCAN_GROUP_PLACES)
#define BATCH        16u
#define HEAD_BYTES   256u /* of a block are read; keys that do not fit are read again in full */

enum scan_state {
	SCAN_BEGIN,
	SCAN_LOOK,
	SCAN_SUBTABLE,
	SCAN_OLD,
	SCAN_OLD_AGAIN,
	SCAN_HEADERS,
	SCAN_NEW_ENTRY,
	SCAN_NEW,
	SCAN_SHARDS,
	SCAN_HEADS,
	SCAN_LONG,
	SCAN_EXPLAIN,
	SCAN_STATES
};

/* What a state's function returns: the next state's is called, a completion or a time is waited for, the task has ended. */
enum { SCAN_GO_ON, SCAN_WAIT, SCAN_ENDED };

struct found_slot {
	uint64_t slot, word;
	uint32_t place;
	bool last; /* of its place */
};

/* Groups of one subtable. */
struct part {
	uint64_t offset;
	struct layout_bucket buckets[CHUNK_GROUPS * 3];
};

struct tarn_scan {
	struct task task;
	LIST_ENTRY(tarn_scan) link;   /* in session->scans */
	struct tarn_session *session; /* NULL: it was closed */
	struct op *op;                /* an asynchronous call that was not picked up; NULL: none */
	bool closed;                  /* freed once that is picked up */
	/* of a cluster's session: the walk over one member after the other; NULL: it is over this session's pool */
	struct cluster_scan *cluster;
	uint8_t *prefix;
	size_t prefix_bytes;

	/* ---- the call under way ---- */
	enum scan_state state;
	bool posted;       /* the state's READ: its function is called again when it has come */
	bool worked;       /* something was posted: a call gets on, however short its time is */
	uint64_t limit_ns; /* 0: it was cut short */
	const struct layout_block *found;

	/* ---- where the walk is ---- */
	bool begun, resumed;
	uint64_t pool_serial; /* the session's, when the walk began */
	uint64_t incarnation; /* of the pool that the cursor is for */
	uint32_t groups;      /* per subtable there */

	struct scan_cursor cursor;
	uint64_t read_ns; /* T1: when the chunk was read */
	uint32_t tries;   /* to read it */
	bool distrust;    /* the range's headers are damaged: its slots are taken as they are */

	/* ---- the chunk that is read ---- */
	uint64_t depth, entry, epoch, word; /* where such words are read to */
	uint64_t epoch_posted_ns;           /* 0: the epoch is not read */
	uint64_t chunk_offset;              /* of its groups in the pool ... */
	uint64_t chunk_inside;              /* ... and in a subtable's page */
	uint64_t new_offset;                /* the same groups, in what the subtable splits into */
	uint32_t chunk_groups;

	struct part old, new; /* new: while the subtable splits, what it splits into */
	struct found_slot slots[2 * CHUNK_SLOTS]; /* of the chunk, by place, old before new */
	uint32_t chunk_end;                       /* the place behind it */
	uint32_t slot_count, slot_next;           /* slot_count 0: there is no chunk */
	uint32_t batch_begin, batch_end;          /* slots whose heads are in `heads` */
	uint32_t batch_next;
	bool splits;      /* `new` is of the chunk, too */
	const uint64_t *since; /* of those shards keys are shown, as session->since; NULL: that */
	/* of a cluster: the words of shards from words_first on, read behind the chunk; room for all */
	uint64_t *words;
	uint32_t words_first, words_count, words_room;
	bool have_long; /* the block of slot batch_next is in long_block, up to the end of its key */
	uint64_t heads[BATCH][HEAD_BYTES / 8];
	uint64_t long_block[(LAYOUT_BLOCK_HEADER + LAYOUT_MAX_KEY_BYTES + 8) / 8];
};

/* ---- scan.c ---- */

/* Can a call begin? 0, -EINVAL: its session was closed, -TARN_EBUSY: one is under way; with a text. */
int scan_check(const struct tarn_scan *scan);
/* Its asynchronous call has been picked up. */
void scan_picked_up(struct tarn_scan *scan);
/* The session goes. */
void scan_detach_all(struct tarn_session *session);

/* ---- scan-walk.c ---- */

/* Prepares the search for the next key. Its result: 1, 0 at the end, or a negative code. */
struct task *scan_next(struct tarn_scan *scan);
/* It ends as soon as it can, with -TARN_ETIMEOUT. */
void scan_cut(struct tarn_scan *scan);
/* What came: the key and its length, and the item as far as its size says. */
const void *scan_key(const struct tarn_scan *scan, size_t *ret_key_bytes);
void scan_item(const struct tarn_scan *scan, struct tarn_item *ret_item);
/* For a state's function: posts, or ends; and returns what is to be returned. */
int scan_post(struct tarn_scan *scan, const struct fabric_request *requests, unsigned count);
int scan_end(struct tarn_scan *scan, int result);
static inline int scan_go(struct tarn_scan *scan, enum scan_state state)
{
	scan->state = state;
	return SCAN_GO_ON;
}

/* ---- scan-shard.c ---- */

static inline const uint64_t *scan_since(const struct tarn_scan *scan)
{
	return scan->since ? scan->since : scan->session->since;
}

/* The words of the chunk's shards are read behind it: do they fit the client's map? */
int scan_shards(struct tarn_scan *scan);
/* Is the key to be shown? 0: its shard is another member's; -1: the map is another one than the chunk was read by. */
int scan_shard_shown(const struct tarn_scan *scan, struct layout_hash hash);

/* ---- scan-index.c ---- */

/* Goes on to the next groups of the range under way, or leaves the range behind its last ones. */
int scan_next_chunk(struct tarn_scan *scan);
/* The states from SCAN_SUBTABLE to SCAN_NEW. */
int scan_subtable(struct tarn_scan *scan);
int scan_old(struct tarn_scan *scan);
int scan_old_again(struct tarn_scan *scan);
int scan_headers(struct tarn_scan *scan);
int scan_new_entry(struct tarn_scan *scan);
int scan_new(struct tarn_scan *scan);
/* The chunk is whole, and may be used. */
int scan_chunk_whole(struct tarn_scan *scan);
/* The chunk is read again, as far as the walk has not passed it. */
void scan_drop_chunk(struct tarn_scan *scan);
/* T1: has more than 1 / part of the deadline passed since the chunk's first READ? */
bool scan_is_late(const struct tarn_scan *scan, uint64_t part);

#endif
