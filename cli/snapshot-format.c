/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot-format.c - what makes the parts of a snapshot's file valid
 *
 * No file is touched here. Main thread. Next to read: snapshot-read.c.
 */
#include "snapshot-format.h"

#include <inttypes.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "err.h"

#define HEADER_SUMMED offsetof(struct snapshot_header, checksum)
#define CHUNK_SUMMED  offsetof(struct snapshot_chunk, header_checksum)

static size_t body_bytes(const struct snapshot_chunk *chunk)
{
	return (size_t)chunk->payload_bytes + chunk->position_bytes;
}

void snapshot_header_seal(struct snapshot_header *header)
{
	header->magic = SNAPSHOT_MAGIC;
	header->version = SNAPSHOT_VERSION;
	header->header_bytes = sizeof(*header);
	header->checksum = XXH3_64bits(header, HEADER_SUMMED);
}

void snapshot_chunk_seal(struct snapshot_chunk *chunk, const void *body)
{
	chunk->magic = SNAPSHOT_CHUNK_MAGIC;
	chunk->checksum = XXH3_64bits(body, body_bytes(chunk));
	chunk->header_checksum = XXH3_64bits(chunk, CHUNK_SUMMED);
}

void snapshot_totals_count(struct snapshot_totals *totals, const struct snapshot_record *record)
{
	totals->values += record->kind == TARN_KIND_VALUE;
	totals->counters += record->kind == TARN_KIND_COUNTER;
	totals->key_bytes += record->key_bytes;
	totals->value_bytes += record->value_bytes;
	if (record->value_bytes > totals->largest_value_bytes)
		totals->largest_value_bytes = record->value_bytes;
}

int snapshot_header_check(const struct snapshot_header *header)
{
	if (header->magic != SNAPSHOT_MAGIC)
		return err_set(-TARN_ECORRUPT,
			       "no snapshot: the 8 bytes at offset 0 are not TARNSNAP");
	/* Another version may have another header: what it is comes first. */
	if (header->version != SNAPSHOT_VERSION)
		return err_set(-TARN_EVERSION,
			       "a snapshot of format version %" PRIu32 " (offset 8): this tarn (%s) "
			       "reads version %u",
			       header->version, tarn_version(), SNAPSHOT_VERSION);
	if (header->checksum != XXH3_64bits(header, HEADER_SUMMED))
		return err_set(-TARN_ECORRUPT,
			       "the header, offset 0 to %zu, has not its checksum",
			       sizeof(*header) - 1);
	if (header->header_bytes != sizeof(*header) ||
	    memchr(header->pool, '\0', sizeof(header->pool)) == NULL ||
	    memchr(header->tarn_version, '\0', sizeof(header->tarn_version)) == NULL)
		return err_set(-TARN_ECORRUPT,
			       "the header, offset 0 to %zu, has impossible lengths",
			       sizeof(*header) - 1);
	return 0;
}

int snapshot_chunk_check(const struct snapshot_chunk *chunk, uint64_t file_id, uint64_t sequence,
			 uint64_t at)
{
	if (chunk->magic != SNAPSHOT_CHUNK_MAGIC ||
	    chunk->header_checksum != XXH3_64bits(chunk, CHUNK_SUMMED))
		return err_set(-TARN_ECORRUPT,
			       "the header of chunk %" PRIu64 ", offset %" PRIu64 " to %" PRIu64
			       ", is damaged",
			       sequence, at, at + sizeof(*chunk) - 1);
	if (chunk->file_id != file_id)
		return err_set(-TARN_ECORRUPT,
			       "the chunk at offset %" PRIu64 " is one of another snapshot", at);
	if (chunk->sequence != sequence)
		return err_set(-TARN_ECORRUPT,
			       "chunk %" PRIu64 " is missing at offset %" PRIu64 ": chunk %" PRIu64
			       " is there",
			       sequence, at, chunk->sequence);
	if ((chunk->type != SNAPSHOT_RECORDS && chunk->type != SNAPSHOT_END) ||
	    chunk->payload_bytes > SNAPSHOT_PAYLOAD_BYTES ||
	    chunk->position_bytes > SNAPSHOT_POSITION_BYTES ||
	    (chunk->type == SNAPSHOT_END &&
	     (chunk->payload_bytes != sizeof(struct snapshot_totals) || chunk->position_bytes)))
		return err_set(-TARN_ECORRUPT,
			       "the chunk at offset %" PRIu64 " has an impossible type (%" PRIu32
			       ") or length (%" PRIu32 " and %" PRIu32 ")",
			       at, chunk->type, chunk->payload_bytes, chunk->position_bytes);
	return 0;
}

int snapshot_body_check(const struct snapshot_chunk *chunk, const void *body, uint64_t at)
{
	if (chunk->checksum == XXH3_64bits(body, body_bytes(chunk)))
		return 0;
	return err_set(-TARN_ECORRUPT,
		       "chunk %" PRIu64 ", offset %" PRIu64 " to %" PRIu64 ", has not its checksum",
		       chunk->sequence, at, at + sizeof(*chunk) + body_bytes(chunk) - 1);
}

int snapshot_record_check(const struct snapshot_record *record, uint64_t at)
{
	if (record->key_bytes > 0 && record->value_bytes <= SNAPSHOT_VALUE_MAX_BYTES &&
	    (record->kind == TARN_KIND_VALUE ||
	     (record->kind == TARN_KIND_COUNTER && record->value_bytes == sizeof(int64_t))))
		return 0;
	return err_set(-TARN_ECORRUPT,
		       "the record at offset %" PRIu64 " is impossible: kind %u, a key of %u bytes, a "
		       "value of %" PRIu64,
		       at, record->kind, record->key_bytes, record->value_bytes);
}
