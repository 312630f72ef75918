/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot-format.h - the file of a snapshot: every offset and limit, and nowhere else
 *
 * docs/snapshot.md in C. All integers are little-endian. A header; then chunks, which together are
 * one stream of records; the last chunk holds the totals, and nothing is behind it. A file may hold
 * anything: the functions called ..._check say whether it can be used.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include <tarn/tarn.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a snapshot is little-endian and so must be its users"
#endif

#define SNAPSHOT_MAGIC           0x50414e534e524154ull /* "TARNSNAP" */
#define SNAPSHOT_VERSION         1u
#define SNAPSHOT_CHUNK_MAGIC     0x4b435354u /* "TSCK" */
#define SNAPSHOT_PAYLOAD_BYTES   (1024u * 1024u) /* of a chunk, at most */
#define SNAPSHOT_POSITION_BYTES  TARN_SCAN_POSITION_BYTES
#define SNAPSHOT_KEY_MAX_BYTES   65535u
#define SNAPSHOT_VALUE_MAX_BYTES (2ull << 30)

struct snapshot_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes; /* sizeof(struct snapshot_header) */
	uint64_t file_id;      /* random: stands in each chunk, too */
	uint64_t created_ms;   /* wall clock */
	uint64_t incarnation;  /* of the pool, as the following */
	uint64_t boot_id;
	uint64_t pool_bytes;
	uint64_t max_value_bytes;
	uint64_t epoch_ns;
	char pool[64];         /* its name, 0-terminated */
	char tarn_version[32]; /* of who wrote this, 0-terminated */
	uint8_t reserved[336]; /* 0 */
	uint64_t checksum;     /* XXH3 of all before it */
};
static_assert(sizeof(struct snapshot_header) == 512, "header");
static_assert(offsetof(struct snapshot_header, pool) == 72, "header");

enum snapshot_chunk_type { SNAPSHOT_RECORDS = 1, SNAPSHOT_END = 2 };

/* Behind it: the payload, then the position. */
struct snapshot_chunk {
	uint32_t magic;
	uint32_t type; /* enum snapshot_chunk_type */
	uint64_t file_id;
	uint64_t sequence; /* 0, 1, 2, ... */
	uint32_t payload_bytes;
	/*
	 * 0: the last record goes on in the next chunk. Else a snapshot can be resumed behind this
	 * chunk, at this position of the walk (tarn_scan_open_at())
	 */
	uint32_t position_bytes;
	uint64_t reserved[2]; /* 0 */
	uint64_t checksum;    /* XXH3 of payload and position */
	uint64_t header_checksum; /* XXH3 of all before it */
};
static_assert(sizeof(struct snapshot_chunk) == 64, "chunk");

/* Behind it: key, then value. */
struct snapshot_record {
	uint16_t key_bytes;
	uint8_t kind; /* TARN_KIND_... */
	uint8_t reserved;
	uint32_t user_flags;
	uint64_t value_bytes;
	uint64_t expiry_ms; /* time to live left when it was read; 0: never expires */
	uint64_t stamp;
};
static_assert(sizeof(struct snapshot_record) == 32, "record");

/* The payload of SNAPSHOT_END; the first five must be those of the records. */
struct snapshot_totals {
	uint64_t values, counters, key_bytes, value_bytes, largest_value_bytes;
	uint64_t vanished;    /* deleted or expired between the walk and the get */
	uint64_t damaged;     /* entries of the pool that were left out */
	uint64_t finished_ms; /* wall clock */
};
static_assert(sizeof(struct snapshot_totals) == 64, "totals");

void snapshot_header_seal(struct snapshot_header *header);
void snapshot_chunk_seal(struct snapshot_chunk *chunk, const void *body);
void snapshot_totals_count(struct snapshot_totals *totals, const struct snapshot_record *record);

/*
 * 0; or -TARN_ECORRUPT, -TARN_EVERSION with a text (err.h) that names the offset, which is at for
 * all but a file's header.
 */
int snapshot_header_check(const struct snapshot_header *header);
int snapshot_chunk_check(const struct snapshot_chunk *chunk, uint64_t file_id, uint64_t sequence,
			 uint64_t at);
int snapshot_body_check(const struct snapshot_chunk *chunk, const void *body, uint64_t at);
int snapshot_record_check(const struct snapshot_record *record, uint64_t at);
