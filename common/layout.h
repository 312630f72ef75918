/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * layout.h - the format of a pool: every bit position and every offset, and nowhere else
 *
 * docs/protocol.md section 2 in C. All integers are little-endian; a "word" is an aligned 64-bit
 * integer. Offsets are bytes from the start of the pool, never pointers; 0 is the superblock and
 * means "none". Whatever is read from a pool may be garbage: the functions called ..._check and
 * ..._valid say whether it can be used, the others expect that it can.
 */
#ifndef TARN_LAYOUT_H
#define TARN_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a pool is little-endian and so must be its users"
#endif

#define LAYOUT_MAGIC   0x4c4f4f504e524154ull /* "TARNPOOL" */
#define LAYOUT_VERSION 2u

#define LAYOUT_SUPERBLOCK_BYTES 4096u
#define LAYOUT_CLIENT_BYTES     1024u
#define LAYOUT_PAGE_BYTES       (256u * 1024u)
#define LAYOUT_UNIT             64u /* granule of block offsets and of the free map */
#define LAYOUT_UNITS_PER_PAGE   (LAYOUT_PAGE_BYTES / LAYOUT_UNIT)
#define LAYOUT_REFERENCE_UNIT   256u
#define LAYOUT_CACHE_LINE       64u
#define LAYOUT_MAX_CLIENTS      65535u
#define LAYOUT_MAX_DEPTH        24u
#define LAYOUT_MAX_POOL_BYTES   (1ull << 41)
#define LAYOUT_MAX_KEY_BYTES    65535u
#define LAYOUT_MAX_VALUE_BYTES  (2ull << 30)
#define LAYOUT_MIN_SHARDS       64u
#define LAYOUT_MAX_SHARDS       16384u
#define LAYOUT_MAP_BYTES        (1u << 20) /* of a cluster's map; a pool has room for two */

/* ---- superblock ------------------------------------------------------------------------------ */

enum layout_atomics {
	LAYOUT_ATOMICS_CPU = 0, /* every CAS and FAA is an instruction on the daemon's host */
	LAYOUT_ATOMICS_NIC = 1, /* every CAS and FAA goes through one RDMA device */
};

enum layout_mode {
	LAYOUT_MODE_STORE = 0, /* a full pool refuses puts */
	LAYOUT_MODE_CACHE = 1, /* a full pool evicts */
};

/*
 * All fields are written before the first client sees the pool, but global_depth (the daemon, when
 * the directory doubles), last_client_id and clean_ms (the daemon), epoch (the daemon) and
 * page_cursor (clients, by FAA).
 */
struct layout_superblock {
	uint64_t magic;
	uint32_t layout_version;
	uint32_t atomics; /* enum layout_atomics */
	uint8_t pool_id[16];
	uint64_t incarnation; /* random, new with each format */
	uint64_t boot_id;     /* random, new with each start of the daemon */
	uint64_t pool_bytes;
	uint64_t hash_seed;
	uint64_t client_table_offset;
	uint64_t page_table_offset;
	uint64_t ready_rings_offset;
	uint64_t directory_offset;
	uint64_t free_map_offset;
	uint64_t reference_map_offset;
	uint64_t pages_offset;
	uint32_t max_clients;
	uint32_t npages;
	uint32_t ring_entries; /* per ready ring, a power of two */
	uint32_t max_depth;
	uint64_t global_depth;
	uint32_t groups;      /* per subtable, 1 to LAYOUT_MAX_GROUPS */
	uint32_t classes;     /* LAYOUT_CLASSES */
	uint64_t deadline_ns; /* D */
	uint64_t epoch_ns;    /* E */
	uint64_t grace_ns;    /* G */
	uint64_t max_value_bytes;
	uint64_t created_ms; /* wall clock */
	uint32_t mode;       /* enum layout_mode */
	/* Clients mark one of so many hits in the reference map; 0: none. */
	uint32_t reference_sample;
	/* None above it has been given out: never the same twice in the life of a pool. */
	uint64_t last_client_id;
	uint64_t clean_ms;       /* wall clock of the daemon's orderly end; 0: it is at work, or was killed */
	uint8_t host_boot_id[16];  /* /proc/sys/kernel/random/boot_id when it was opened last */
	/* of a pool of a cluster (docs/protocol.md section 11); all 0: it belongs to none */
	uint64_t shard_words_offset; /* a word per shard, shard.h */
	uint64_t map_offset;         /* where the daemon publishes the cluster's map, twice in turn */
	uint32_t shards;             /* a power of two */
	uint32_t map_bytes;          /* for both */
	/* of the daemon that was a member with it last, and where; 0: of none. daemon/pool-life.h */
	uint64_t member_boot_id, member_place;
	uint8_t reserved1[1024 - 272];
	uint64_t epoch; /* own cache line; starts at 1 */
	uint8_t reserved2[56];
	uint64_t page_cursor; /* own cache line */
	uint8_t reserved3[4096 - 1024 - 72];
};
static_assert(sizeof(struct layout_superblock) == LAYOUT_SUPERBLOCK_BYTES, "superblock");
static_assert(offsetof(struct layout_superblock, pool_bytes) == 48, "superblock");
static_assert(offsetof(struct layout_superblock, pages_offset) == 112, "superblock");
static_assert(offsetof(struct layout_superblock, global_depth) == 136, "superblock");
static_assert(offsetof(struct layout_superblock, created_ms) == 184, "superblock");
static_assert(offsetof(struct layout_superblock, clean_ms) == 208, "superblock");
static_assert(offsetof(struct layout_superblock, shards) == 248, "superblock");
static_assert(offsetof(struct layout_superblock, member_boot_id) == 256, "superblock");
static_assert(offsetof(struct layout_superblock, epoch) == 1024, "epoch has its own cache line");
static_assert(offsetof(struct layout_superblock, page_cursor) == 1088,
	      "page cursor has its own cache line");

#define LAYOUT_EPOCH_OFFSET        offsetof(struct layout_superblock, epoch)
#define LAYOUT_CURSOR_OFFSET       offsetof(struct layout_superblock, page_cursor)
#define LAYOUT_GLOBAL_DEPTH_OFFSET offsetof(struct layout_superblock, global_depth)

/* ---- client table ---------------------------------------------------------------------------- */

enum layout_client_state {
	LAYOUT_CLIENT_FREE = 0,
	LAYOUT_CLIENT_LIVE = 1,
};

enum layout_op { LAYOUT_OP_GET, LAYOUT_OP_PUT, LAYOUT_OP_DELETE, LAYOUT_OP_ADD, LAYOUT_OPS };
#define LAYOUT_LATENCY_BUCKETS 44u /* bucket i: below 2^i ns and not below 2^(i - 1) */

/*
 * What a client tells of itself, section 9. Field by field the same as the counters of struct
 * tarn_session_stats.
 */
struct layout_telemetry {
	uint64_t reports; /* raised with each report; 0: has never reported */
	uint64_t gets, hits, puts, deletes, adds, errors, retries;
	uint64_t round_trips, posts, requests, rpcs;
	uint64_t cache_hits, cache_misses, bytes_read, bytes_written;
	uint64_t get_latency[LAYOUT_LATENCY_BUCKETS]; /* gets and exists */
	uint64_t put_latency[LAYOUT_LATENCY_BUCKETS]; /* puts, deletes and adds */
};

/* What a client's access key has used up; while a bit is set the client does without. */
enum layout_limit {
	LAYOUT_LIMIT_KEYS = 1,  /* no new keys */
	LAYOUT_LIMIT_BYTES = 2, /* no new keys, no larger values */
	LAYOUT_LIMIT_PAGES = 4, /* no more pages */
};
struct layout_quota {
	uint64_t keys;
	uint64_t bytes; /* of keys and values */
	uint64_t pages; /* that its clients own at a time */
};

struct layout_client {
	/* written by the daemon */
	uint32_t state; /* enum layout_client_state */
	/* number of the connection: never the same twice in the life of a pool */
	uint32_t client_id;
	uint32_t pid, uid, gid;
	uint32_t read_only;
	uint64_t connected_ms; /* wall clock */
	char name[32];         /* the process's name, 0-terminated */
	/* written by the client */
	uint64_t quiescence; /* section 4, "retire" */
	uint8_t reserved1[56];
	struct layout_telemetry telemetry;
	/* written by the daemon: of the client's access key, for messages; quota 0: none */
	uint64_t limits; /* bits of enum layout_limit */
	struct layout_quota quota, used;
	uint8_t reserved2[LAYOUT_CLIENT_BYTES - 184 - sizeof(struct layout_telemetry)];
};
static_assert(sizeof(struct layout_client) == LAYOUT_CLIENT_BYTES, "client slot");
static_assert(offsetof(struct layout_client, quiescence) == 64,
	      "client's words apart from the daemon's");
static_assert(offsetof(struct layout_client, telemetry) == 128, "client slot");
static_assert(offsetof(struct layout_client, limits) % 64 == 0, "limits have a cache line of their own");

/* ---- slot word: state:3 | fp:9 | class:5 | gen:12 | off:35, from the lowest bit -------------- */

enum layout_slot_state {
	LAYOUT_SLOT_EMPTY = 0,
	LAYOUT_SLOT_PENDING = 1, /* not visible */
	LAYOUT_SLOT_COMMITTED = 2,
	LAYOUT_SLOT_FROZEN = 3, /* readable, not writable */
	LAYOUT_SLOT_MOVED = 4,  /* tombstone */
};

#define LAYOUT_FP_BITS  9
#define LAYOUT_GEN_BITS 12
#define LAYOUT_GEN_MASK ((1u << LAYOUT_GEN_BITS) - 1)

static inline uint64_t layout_slot_make(enum layout_slot_state state, uint32_t fp, uint32_t class,
					uint32_t gen, uint64_t offset)
{
	return (uint64_t)state | (uint64_t)(fp & 0x1ff) << 3 | (uint64_t)(class & 0x1f) << 12 |
	       (uint64_t)(gen & LAYOUT_GEN_MASK) << 17 | (offset / LAYOUT_UNIT) << 29;
}
static inline uint32_t layout_slot_state(uint64_t word)
{
	return (uint32_t)(word & 7);
}
#define LAYOUT_SLOT_FP_BITS (0x1ffull << 3)
static inline uint32_t layout_slot_fp(uint64_t word)
{
	return (uint32_t)((word & LAYOUT_SLOT_FP_BITS) >> 3);
}
static inline uint32_t layout_slot_class(uint64_t word)
{
	return (uint32_t)(word >> 12 & 0x1f);
}
static inline uint32_t layout_slot_gen(uint64_t word)
{
	return (uint32_t)(word >> 17 & LAYOUT_GEN_MASK);
}
static inline uint64_t layout_slot_offset(uint64_t word)
{
	return (word >> 29) * LAYOUT_UNIT;
}
static inline uint64_t layout_slot_with_state(uint64_t word, enum layout_slot_state state)
{
	return (word & ~7ull) | (uint64_t)state;
}
/*
 * A tombstone keeps fp and says, in the place of class, in the split of which depth the slot moved:
 * it concerns only keys whose hash has that bit set.
 */
static inline uint64_t layout_tombstone_make(uint32_t fp, uint32_t depth)
{
	return layout_slot_make(LAYOUT_SLOT_MOVED, fp, depth, 0, 0);
}
static inline uint32_t layout_tombstone_depth(uint64_t word)
{
	return layout_slot_class(word);
}

/* ---- buckets, groups, subtables -------------------------------------------------------------- */

#define LAYOUT_BUCKET_BYTES 64u
#define LAYOUT_BUCKET_SLOTS 7u
#define LAYOUT_GROUP_BYTES  (3u * LAYOUT_BUCKET_BYTES) /* main A, overflow, main B */
#define LAYOUT_PAIR_BYTES   (2u * LAYOUT_BUCKET_BYTES) /* A + overflow, or overflow + B */
#define LAYOUT_MAX_GROUPS   (LAYOUT_PAGE_BYTES / LAYOUT_GROUP_BYTES)

struct layout_bucket {
	uint64_t header;
	uint64_t slots[LAYOUT_BUCKET_SLOTS];
};
static_assert(sizeof(struct layout_bucket) == LAYOUT_BUCKET_BYTES, "bucket");

/* Of a header: is a split of the subtable under way? */
enum layout_split {
	LAYOUT_SPLIT_NONE = 0,
	LAYOUT_SPLIT_OLD = 1, /* keys whose hash has the bit `depth` set move to the new subtable */
	LAYOUT_SPLIT_NEW = 2, /* they move to here */
	/* of the new one: all of them are here, since a moment ago: what was read before may lack some */
	LAYOUT_SPLIT_FILLED = 3,
};

/* Header: suffix:32 | depth:6 | split:2 | version:24, from the lowest bit. */
static inline uint64_t layout_header_make(uint32_t suffix, uint32_t depth, uint32_t split,
					  uint32_t version)
{
	return (uint64_t)suffix | (uint64_t)(depth & 0x3f) << 32 | (uint64_t)(split & 3) << 38 |
	       (uint64_t)(version & 0xffffff) << 40;
}
static inline uint32_t layout_header_suffix(uint64_t header)
{
	return (uint32_t)header;
}
static inline uint32_t layout_header_depth(uint64_t header)
{
	return (uint32_t)(header >> 32 & 0x3f);
}
static inline uint32_t layout_header_split(uint64_t header)
{
	return (uint32_t)(header >> 38 & 3);
}
static inline uint32_t layout_header_version(uint64_t header)
{
	return (uint32_t)(header >> 40);
}
static inline uint32_t layout_suffix(uint32_t hash_suffix, uint32_t depth)
{
	return depth >= 32 ? hash_suffix : hash_suffix & ((1u << depth) - 1);
}

/* ---- directory entry: page:32 | depth:6 | state:2 -------------------------------------------- */

enum layout_directory_state {
	LAYOUT_DIRECTORY_NONE = 0,
	LAYOUT_DIRECTORY_VALID = 1,
	LAYOUT_DIRECTORY_MIGRATING = 2
};

static inline uint64_t layout_directory_make(uint32_t page, uint32_t depth,
					     enum layout_directory_state state)
{
	return (uint64_t)page | (uint64_t)(depth & 0x3f) << 32 | (uint64_t)state << 38;
}
static inline uint32_t layout_directory_page(uint64_t entry)
{
	return (uint32_t)entry;
}
static inline uint32_t layout_directory_depth(uint64_t entry)
{
	return (uint32_t)(entry >> 32 & 0x3f);
}
static inline uint32_t layout_directory_state(uint64_t entry)
{
	return (uint32_t)(entry >> 38 & 3);
}

/* ---- page word: state:3 | class:5 | owner:16 | generation:40 --------------------------------- */

enum layout_page_state {
	LAYOUT_PAGE_FREE = 0, /* all its free-map bytes are aged */
	LAYOUT_PAGE_INDEX = 1,
	LAYOUT_PAGE_SLAB = 2, /* owned by the client in client-table slot `owner` */
	LAYOUT_PAGE_FULL = 3,
	LAYOUT_PAGE_PARTIAL = 4,
	LAYOUT_PAGE_ORPHAN = 5, /* its owner died */
	LAYOUT_PAGE_STATES = 6
};

static inline uint64_t layout_page_make(enum layout_page_state state, uint32_t class,
					uint32_t owner, uint64_t generation)
{
	return (uint64_t)state | (uint64_t)(class & 0x1f) << 3 | (uint64_t)(owner & 0xffff) << 8 |
	       generation << 24;
}
static inline uint32_t layout_page_state(uint64_t word)
{
	return (uint32_t)(word & 7);
}
static inline uint32_t layout_page_class(uint64_t word)
{
	return (uint32_t)(word >> 3 & 0x1f);
}
static inline uint32_t layout_page_owner(uint64_t word)
{
	return (uint32_t)(word >> 8 & 0xffff);
}
static inline uint64_t layout_page_generation(uint64_t word)
{
	return word >> 24;
}
/* The word of a page after a change: the generation goes up with every one. */
static inline uint64_t layout_page_next(uint64_t word, enum layout_page_state state, uint32_t class,
					uint32_t owner)
{
	return layout_page_make(state, class, owner, layout_page_generation(word) + 1);
}

/* ---- reference map: a byte of a hit, taken down by one at each visit of the eviction's hand ---- */

#define LAYOUT_REFERENCED 7u

/* ---- free map -------------------------------------------------------------------------------- */

enum layout_free { LAYOUT_FREE_AGED = 0, LAYOUT_FREE_IN_USE = 1, LAYOUT_FREE_RETIRED = 2 };

/* ---- ready ring: head and tail in cache lines of their own, then entries ticket:32 | page:32 - */

#define LAYOUT_RING_HEAD    0u
#define LAYOUT_RING_TAIL    64u
#define LAYOUT_RING_ENTRIES 128u

static inline uint64_t layout_ring_make(uint64_t ticket, uint32_t page)
{
	return (ticket & 0xffffffff) | (uint64_t)page << 32;
}
static inline uint32_t layout_ring_ticket(uint64_t entry)
{
	return (uint32_t)entry;
}
static inline uint32_t layout_ring_page(uint64_t entry)
{
	return (uint32_t)(entry >> 32);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

enum layout_kind { LAYOUT_KIND_VALUE = 1, LAYOUT_KIND_COUNTER = 2, LAYOUT_KIND_EXTENTS = 3 };

struct layout_block {
	/* of everything behind it up to the end of the value (a counter: of the key) */
	uint64_t checksum;
	uint32_t generation; /* the writer's epoch, low 32 bits; the slot word has the low 12 */
	uint16_t key_length;
	uint8_t kind; /* enum layout_kind */
	uint8_t class;
	/* of the value; a large value's list of extents has layout_extents() entries */
	uint64_t value_length;
	uint32_t user_flags;
	/* layout_owner() of the writer's access key; who wrote it is in the stamp */
	uint32_t owner;
	uint64_t stamp;  /* client id << 32 | sequence number */
	uint64_t expiry; /* first epoch in which the block counts as missing; 0: never */
};
static_assert(sizeof(struct layout_block) == 48, "block header");
static_assert(offsetof(struct layout_block, generation) == 8, "block header");
static_assert(offsetof(struct layout_block, value_length) == 16, "block header");
static_assert(offsetof(struct layout_block, stamp) == 32, "block header");

#define LAYOUT_BLOCK_HEADER sizeof(struct layout_block)
#define LAYOUT_BLOCK_MAX    LAYOUT_PAGE_BYTES

/*
 * One piece of a large value: where it is, as a slot word with state, fp and gen 0, and the
 * checksum of its bytes.
 */
struct layout_extent {
	uint64_t where;
	uint64_t checksum;
};
static_assert(sizeof(struct layout_extent) == 16, "extent");

static inline uint64_t layout_pad8(uint64_t n)
{
	return (n + 7) & ~7ull;
}
static inline uint64_t layout_value_offset(uint32_t key_length)
{
	return LAYOUT_BLOCK_HEADER + layout_pad8(key_length);
}
/* How many extents a large value of this length has; all but the last are whole pages. */
static inline uint64_t layout_extents(uint64_t value_length)
{
	return (value_length + LAYOUT_PAGE_BYTES - 1) / LAYOUT_PAGE_BYTES;
}
/*
 * Bytes behind the padded key that belong to the block: the value itself, or the list of extents.
 */
static inline uint64_t layout_stored_length(uint32_t kind, uint64_t value_length)
{
	return kind == LAYOUT_KIND_EXTENTS
		       ? layout_extents(value_length) * sizeof(struct layout_extent)
		       : value_length;
}
static inline uint64_t layout_block_bytes(uint32_t kind, uint32_t key_length, uint64_t value_length)
{
	return layout_value_offset(key_length) + layout_stored_length(kind, value_length);
}
/* Does a value go into its block, or into extents? */
static inline bool layout_value_is_large(uint32_t key_length, uint64_t value_length)
{
	return layout_block_bytes(LAYOUT_KIND_VALUE, key_length, value_length) > LAYOUT_BLOCK_MAX;
}

/*
 * Checksum of the block whose image is at `block`, which is to stand at pool offset `offset`; the
 * lengths have been checked.
 */
uint64_t layout_block_checksum(const struct layout_block *block, uint64_t offset);
uint64_t layout_extent_checksum(const void *data, uint64_t bytes, uint64_t offset);
/*
 * Are the lengths and the kind in a block image of `bytes` bytes (a class's size) possible, and is
 * the checksum right? Only then may its key and value be looked at.
 */
bool layout_block_valid(const struct layout_block *block, uint64_t bytes, uint64_t offset);

static inline const void *layout_block_key(const struct layout_block *block)
{
	return block + 1;
}
static inline const void *layout_block_value(const struct layout_block *block)
{
	return (const uint8_t *)block + layout_value_offset(block->key_length);
}

/* ---- size classes ---------------------------------------------------------------------------- */

#define LAYOUT_CLASSES 32u
/*
 * Counters have classes of their own, since only the daemon ages their blocks: one for keys of up
 * to 72 bytes, one for the rest. In between, classes 1 to LAYOUT_CLASS_MAX, ascending, for values
 * and extents.
 */
#define LAYOUT_CLASS_COUNTER       0u
#define LAYOUT_CLASS_MAX           30u
#define LAYOUT_CLASS_COUNTER_LARGE 31u

extern const uint32_t layout_class_sizes[LAYOUT_CLASSES];
/* 2^32 by a block's units, rounded up. */
extern const uint32_t layout_class_inverses[LAYOUT_CLASSES];
static inline bool layout_class_valid(uint32_t class)
{
	return class < LAYOUT_CLASSES;
}
static inline uint32_t layout_class_bytes(uint32_t class)
{
	return layout_class_sizes[class];
}
/*
 * Is this place in a page, less than LAYOUT_PAGE_BYTES, a multiple of the class's size? Without a division, since
 * each get asks it (Lemire, Kaser, Kurz: Faster Remainder by Direct Computation, 2019).
 */
static inline bool layout_class_divides(uint32_t class, uint32_t inside)
{
	uint32_t inverse = layout_class_inverses[class];

	return inside % LAYOUT_UNIT == 0 && inside / LAYOUT_UNIT * inverse <= inverse - 1u;
}
static inline uint32_t layout_class_blocks(uint32_t class)
{
	return LAYOUT_PAGE_BYTES / layout_class_sizes[class];
}
/* Smallest class for values and extents that holds `bytes`, 1 to LAYOUT_BLOCK_MAX. */
uint32_t layout_class_for(uint64_t bytes);
/* The counters' class for a key of this length. */
uint32_t layout_class_for_counter(uint32_t key_length);
static inline bool layout_class_is_counter(uint32_t class)
{
	return class == LAYOUT_CLASS_COUNTER || class == LAYOUT_CLASS_COUNTER_LARGE;
}

/*
 * Tag of the access key that a block is charged to: of the key's id of `bytes` bytes, padded with
 * zeros; 0: none.
 */
uint32_t layout_owner(const uint8_t *key_id, size_t bytes);

/* ---- hash ------------------------------------------------------------------------------------ */

struct layout_hash {
	uint64_t low, high;
};
struct layout_hash layout_hash_key(const void *key, size_t bytes, uint64_t seed);
static inline uint32_t layout_hash_suffix(struct layout_hash hash)
{
	return (uint32_t)hash.low;
}
static inline uint32_t layout_hash_fp(struct layout_hash hash)
{
	return (uint32_t)(hash.high >> 32) & 0x1ff;
}
/*
 * Offset within the subtable of the key's bucket pair `choice`, 0 or 1: 128 bytes, main and
 * overflow bucket.
 */
static inline uint32_t layout_hash_pair(struct layout_hash hash, unsigned choice, uint32_t groups)
{
	uint32_t bits = choice ? (uint32_t)hash.high : (uint32_t)(hash.low >> 32);
	uint32_t main = (uint32_t)((uint64_t)bits * (2ull * groups) >> 32);

	return main / 2 * LAYOUT_GROUP_BYTES + main % 2 * LAYOUT_BUCKET_BYTES;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* A checked copy of what a superblock says. */
struct layout_geometry {
	uint64_t pool_bytes, hash_seed, incarnation, boot_id;
	uint64_t client_table_offset, page_table_offset, ready_rings_offset, directory_offset;
	uint64_t free_map_offset, reference_map_offset, pages_offset;
	uint32_t max_clients, npages, ring_entries, max_depth, groups, atomics, mode, reference_sample;
	uint64_t deadline_ns, epoch_ns, grace_ns, max_value_bytes;
	/* shards 0: of no cluster, and then the others, too */
	uint64_t shard_words_offset, map_offset;
	uint32_t shards, map_bytes;
};

/* Depth of a directory whose subtables are three quarters full with `keys` keys. */
uint32_t layout_index_depth(uint64_t keys, uint32_t groups);

/* What a pool is made for. */
struct layout_plan {
	uint64_t pool_bytes;  /* multiple of LAYOUT_PAGE_BYTES */
	uint64_t keys;        /* for which the index has room at first; 0: a small index, which grows */
	uint32_t max_clients; /* 1 to LAYOUT_MAX_CLIENTS */
	uint32_t groups;      /* 0: as many as fit; less only for tests */
	uint32_t atomics;
	uint32_t mode, reference_sample;
	/* shards: 0, or a power of two, LAYOUT_MIN_SHARDS to LAYOUT_MAX_SHARDS; map_bytes: 0: room for two maps;
	 * less only for tests */
	uint32_t shards, map_bytes;
	uint64_t deadline_ns, epoch_ns, grace_ns, max_value_bytes;
	uint64_t hash_seed, incarnation, boot_id, created_ms;
	uint8_t pool_id[16];
};

/*
 * Lays out and initialises a pool in `base` (plan->pool_bytes bytes, all zero): superblock,
 * directory and index pages. Returns 0, or -EINVAL with a text (err.h) that says what does not fit.
 */
int layout_format(void *base, const struct layout_plan *plan);

/*
 * Checks a superblock read from a pool of `pool_bytes` bytes; -TARN_EVERSION or -TARN_ECORRUPT with
 * a text when it can't be used.
 */
int layout_superblock_check(const struct layout_superblock *superblock, uint64_t pool_bytes,
			    struct layout_geometry *ret_geometry);

/*
 * Are all parts where layout_format() puts them in a pool of this size and number of clients? Else
 * the superblock is not as it was made.
 */
bool layout_geometry_usual(const struct layout_geometry *geometry);

static inline uint64_t layout_client_offset(const struct layout_geometry *g, uint32_t slot)
{
	return g->client_table_offset + (uint64_t)slot * LAYOUT_CLIENT_BYTES;
}
static inline uint64_t layout_page_word_offset(const struct layout_geometry *g, uint32_t page)
{
	return g->page_table_offset + 8ull * page;
}
static inline uint64_t layout_page_offset(const struct layout_geometry *g, uint32_t page)
{
	return g->pages_offset + (uint64_t)page * LAYOUT_PAGE_BYTES;
}
static inline uint64_t layout_ring_offset(const struct layout_geometry *g, uint32_t class)
{
	return g->ready_rings_offset + class * (LAYOUT_RING_ENTRIES + 8ull * g->ring_entries);
}
static inline uint64_t layout_directory_offset(const struct layout_geometry *g, uint64_t index)
{
	return g->directory_offset + 8 * index;
}
/* Of a shard's word; the pool has shards. */
static inline uint64_t layout_shard_offset(const struct layout_geometry *g, uint32_t shard)
{
	return g->shard_words_offset + 8ull * shard;
}
/* Page of an offset at or behind pages_offset. */
static inline uint32_t layout_offset_page(const struct layout_geometry *g, uint64_t offset)
{
	return (uint32_t)((offset - g->pages_offset) / LAYOUT_PAGE_BYTES);
}
static inline uint64_t layout_free_map_offset(const struct layout_geometry *g,
					      uint64_t block_offset)
{
	return g->free_map_offset + (block_offset - g->pages_offset) / LAYOUT_UNIT;
}
static inline uint64_t layout_reference_offset(const struct layout_geometry *g,
					       uint64_t block_offset)
{
	return g->reference_map_offset + (block_offset - g->pages_offset) / LAYOUT_REFERENCE_UNIT;
}
/*
 * Can a slot word (or an extent's) name this block: inside the pages, a real class, at a block's
 * place in its page?
 */
static inline bool layout_block_place_valid(const struct layout_geometry *g, uint64_t offset,
					    uint32_t class)
{
	uint64_t inside;

	if (!layout_class_valid(class) || offset < g->pages_offset ||
	    offset >= layout_page_offset(g, g->npages))
		return false;
	inside = (offset - g->pages_offset) % LAYOUT_PAGE_BYTES;
	return layout_class_divides(class, (uint32_t)inside) &&
	       inside + layout_class_bytes(class) <= LAYOUT_PAGE_BYTES;
}

#endif
