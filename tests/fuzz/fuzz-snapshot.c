/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-snapshot.c - libFuzzer target: a snapshot's file from anywhere
 *
 * Checksums would keep the fuzzer out: those of the header and of the chunks that it has made are put
 * right first, unless the input's last byte is odd.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/snapshot-read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void seal(uint8_t *file, size_t bytes)
{
	struct snapshot_header header;
	struct snapshot_chunk chunk;
	uint64_t sequence = 0;
	size_t at = sizeof(header);

	if (bytes < at)
		return;
	memcpy(&header, file, sizeof(header));
	header.pool[63] = header.tarn_version[31] = '\0';
	snapshot_header_seal(&header);
	memcpy(file, &header, sizeof(header));
	while (bytes - at >= sizeof(chunk)) {
		uint64_t body;

		memcpy(&chunk, file + at, sizeof(chunk));
		body = (uint64_t)chunk.payload_bytes + chunk.position_bytes;
		if (body > bytes - at - sizeof(chunk))
			break;
		chunk.file_id = header.file_id;
		chunk.sequence = sequence++;
		snapshot_chunk_seal(&chunk, file + at + sizeof(chunk));
		memcpy(file + at, &chunk, sizeof(chunk));
		at += sizeof(chunk) + body;
	}
}

/* Both ways to read must say the same. */
static int read_all(int fd, struct buffer *value, uint64_t *ret_records)
{
	struct snapshot_reader *reader;
	struct snapshot_record record;
	int status = snapshot_reader_open(fd, &reader);

	if (status < 0)
		return status;
	while ((status = snapshot_reader_next(reader, value, &record)) == 1) {
		if (record.key_bytes == 0 || reader->key[record.key_bytes] != '\0' ||
		    (value != NULL && value->capacity < record.value_bytes))
			abort();
		(*ret_records)++;
	}
	if (reader->point.offset > reader->file_bytes ||
	    reader->point.position_bytes > SNAPSHOT_POSITION_BYTES)
		abort();
	snapshot_reader_free(reader);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint64_t checked = 0, read = 0;
	struct buffer value = {0};
	uint8_t *file = malloc(bytes + 1);
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (file == NULL || fd < 0)
		abort();
	if (bytes > 0)
		memcpy(file, data, bytes);
	if (bytes > 0 && data[bytes - 1] % 2 == 0)
		seal(file, bytes);
	if (write(fd, file, bytes) != (ssize_t)bytes)
		abort();
	if (read_all(fd, NULL, &checked) != read_all(fd, &value, &read) || checked != read)
		abort();
	buffer_free(&value);
	close(fd);
	free(file);
	return 0;
}
