/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot-read.c - the records of a snapshot's file, checked before they are believed
 *
 * The file may be damaged, cut off, or made by an enemy. A chunk is looked into only when its
 * checksums are right, and room for a value is made only if the file is long enough to hold it.
 * Main thread. Next to read: snapshot-write.c, restore.c.
 */
#include "snapshot-read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

int snapshot_read_at(int fd, void *ret_bytes, size_t n, uint64_t offset)
{
	unsigned char *bytes = ret_bytes;

	while (n > 0) {
		ssize_t got = pread(fd, bytes, n, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(-errno, "reading at offset %" PRIu64 ": %s", offset,
				       strerror(errno));
		if (got == 0)
			return err_set(-TARN_ECORRUPT,
				       "it ends at offset %" PRIu64 ", %zu bytes are missing there",
				       offset, n);
		bytes += got;
		n -= (size_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

int snapshot_reader_open(int fd, struct snapshot_reader **ret_reader)
{
	struct snapshot_reader *reader = calloc(1, sizeof(*reader));
	struct stat st;
	int status = 0;

	if (reader != NULL)
		reader->body = malloc(SNAPSHOT_PAYLOAD_BYTES + SNAPSHOT_POSITION_BYTES);
	if (reader == NULL || reader->body == NULL) {
		status = err_set(-ENOMEM, "no memory for reading a snapshot");
		goto out_reader;
	}
	if (fstat(fd, &st) < 0) {
		status = err_set(-errno, "%s", strerror(errno));
		goto out_reader;
	}
	reader->fd = fd;
	reader->file_bytes = (uint64_t)st.st_size;
	status = snapshot_read_at(fd, &reader->header, sizeof(reader->header), 0);
	if (status == 0)
		status = snapshot_header_check(&reader->header);
	if (status < 0)
		goto out_reader;
	reader->offset = reader->point.offset = sizeof(reader->header);
	/* as if a chunk without records were before the first */
	reader->has_position = true;
	*ret_reader = reader;
	return 0;

out_reader:
	snapshot_reader_free(reader);
	return status;
}

void snapshot_reader_free(struct snapshot_reader *reader)
{
	if (reader == NULL)
		return;
	free(reader->body);
	free(reader);
}

/* The totals are the last thing in the file, and right. */
static int read_end(struct snapshot_reader *reader, uint64_t at)
{
	struct snapshot_totals totals;

	memcpy(&totals, reader->body, sizeof(totals));
	if (memcmp(&totals, &reader->totals, offsetof(struct snapshot_totals, vanished)) != 0)
		return err_set(-TARN_ECORRUPT,
			       "the totals at offset %" PRIu64 " are not those of the records", at);
	if (reader->offset != reader->file_bytes)
		return err_set(-TARN_ECORRUPT,
			       "it should end at offset %" PRIu64 ", %" PRIu64 " bytes are behind that",
			       reader->offset, reader->file_bytes - reader->offset);
	reader->totals = totals;
	reader->ended = true;
	return 0;
}

/* Reads the next chunk. inside: a record goes on in it. 0 or a negative code. */
static int next_chunk(struct snapshot_reader *reader, bool inside)
{
	uint64_t at = reader->offset;
	struct snapshot_chunk chunk;
	size_t bytes;
	int status;

	if (reader->has_position && inside)
		return err_set(-TARN_ECORRUPT,
			       "a record goes on behind the chunk that ends at offset %" PRIu64, at);
	status = snapshot_read_at(reader->fd, &chunk, sizeof(chunk), at);
	if (status == 0)
		status = snapshot_chunk_check(&chunk, reader->header.file_id, reader->sequence, at);
	if (status < 0)
		return status;
	bytes = (size_t)chunk.payload_bytes + chunk.position_bytes;
	status = snapshot_read_at(reader->fd, reader->body, bytes, at + sizeof(chunk));
	if (status == 0)
		status = snapshot_body_check(&chunk, reader->body, at);
	if (status < 0)
		return status;
	reader->offset = at + sizeof(chunk) + bytes;
	reader->sequence++;
	if (chunk.type == SNAPSHOT_END && !inside && reader->has_position)
		return read_end(reader, at);
	if (chunk.type == SNAPSHOT_END || chunk.payload_bytes == 0)
		return err_set(-TARN_ECORRUPT,
			       "the chunk at offset %" PRIu64 " should hold records", at);
	reader->begin = at + sizeof(chunk);
	reader->payload_bytes = chunk.payload_bytes;
	reader->used = 0;
	reader->has_position = chunk.position_bytes > 0;
	reader->position_bytes = chunk.position_bytes;
	return 0;
}

/* The next n bytes of the stream of records; to may be NULL. */
static int take(struct snapshot_reader *reader, unsigned char *to, uint64_t n)
{
	while (n > 0) {
		uint64_t left = reader->payload_bytes - reader->used, part = n < left ? n : left;

		if (part == 0) {
			int status = next_chunk(reader, true);

			if (status < 0)
				return status;
			continue;
		}
		if (to != NULL) {
			memcpy(to, reader->body + reader->used, part);
			to += part;
		}
		reader->used += (uint32_t)part;
		n -= part;
	}
	return 0;
}

/* A whole record was taken, and with it perhaps all of a chunk that ends with one. */
static void note_record(struct snapshot_reader *reader, const struct snapshot_record *record)
{
	struct snapshot_point *point = &reader->point;

	snapshot_totals_count(&reader->totals, record);
	if (reader->used < reader->payload_bytes || !reader->has_position)
		return;
	point->offset = reader->offset;
	point->sequence = reader->sequence;
	point->totals = reader->totals;
	point->position_bytes = reader->position_bytes;
	memcpy(point->position, reader->body + reader->payload_bytes, reader->position_bytes);
}

static int take_value(struct snapshot_reader *reader, struct buffer *value, uint64_t n)
{
	uint64_t there = reader->payload_bytes - reader->used +
			 (reader->file_bytes - reader->offset);

	if (n > there)
		return err_set(-TARN_ECORRUPT,
			       "a value of %" PRIu64 " bytes begins at offset %" PRIu64
			       ", where %" PRIu64 " are left",
			       n, reader->begin + reader->used, there);
	if (value == NULL)
		return take(reader, NULL, n);
	if (buffer_reserve(value, n > 0 ? (size_t)n : 1) < 0)
		return err_set(-ENOMEM, "no memory for a value of %" PRIu64 " bytes", n);
	return take(reader, value->bytes, n);
}

int snapshot_reader_next(struct snapshot_reader *reader, struct buffer *value,
			 struct snapshot_record *ret_record)
{
	struct snapshot_record record;
	uint64_t at;
	int status;

	if (!reader->ended && reader->used == reader->payload_bytes) {
		status = next_chunk(reader, false);
		if (status < 0)
			return status;
	}
	if (reader->ended)
		return 0;
	at = reader->begin + reader->used;
	status = take(reader, (unsigned char *)&record, sizeof(record));
	if (status == 0)
		status = snapshot_record_check(&record, at);
	if (status == 0)
		status = take(reader, reader->key, record.key_bytes);
	if (status == 0)
		status = take_value(reader, value, record.value_bytes);
	if (status < 0)
		return status;
	reader->key[record.key_bytes] = '\0';
	note_record(reader, &record);
	*ret_record = record;
	return 1;
}
