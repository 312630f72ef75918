/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * snapshot-write.c - a snapshot's file: begun as FILE.partial, named FILE when it is whole
 *
 * partial.c has the file and its names, this what is written into it. Main thread. Next to read:
 * snapshot.c.
 */
#include "snapshot-write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "partial.h"
#include "snapshot-read.h"

struct snapshot_file {
	struct partial partial;
	bool resumed, whole;
	struct snapshot_header header;
	struct snapshot_point point; /* of what is written and of what is added */
	uint32_t used;               /* of payload */
	unsigned char *payload;      /* and room for a position behind it */
};

/* ---- writing --------------------------------------------------------------------------------- */

static int begin_anew(struct snapshot_file *file, const struct snapshot_header *header)
{
	int status;

	file->header = *header;
	if (getrandom(&file->header.file_id, sizeof(file->header.file_id), 0) !=
	    sizeof(file->header.file_id))
		return err_set(-errno, "no random number: %s", strerror(errno));
	snapshot_header_seal(&file->header);
	status = partial_truncate(&file->partial);
	if (status < 0)
		return status;
	file->point.offset = sizeof(file->header);
	return partial_write(&file->partial, &file->header, sizeof(file->header));
}

static int write_chunk(struct snapshot_file *file, enum snapshot_chunk_type type, bool with_position)
{
	struct snapshot_chunk chunk = {
		.type = type,
		.file_id = file->header.file_id,
		.sequence = file->point.sequence,
		.payload_bytes = file->used,
		.position_bytes = with_position ? (uint32_t)file->point.position_bytes : 0,
	};
	size_t n = (size_t)chunk.payload_bytes + chunk.position_bytes;
	int status;

	memcpy(file->payload + file->used, file->point.position, chunk.position_bytes);
	snapshot_chunk_seal(&chunk, file->payload);
	status = partial_write(&file->partial, &chunk, sizeof(chunk));
	if (status == 0)
		status = partial_write(&file->partial, file->payload, n);
	if (status < 0)
		return status;
	file->point.sequence++;
	file->point.offset += sizeof(chunk) + n;
	file->used = 0;
	return 0;
}

static int append(struct snapshot_file *file, const void *bytes, uint64_t n)
{
	const unsigned char *from = bytes;

	while (n > 0) {
		uint64_t room = SNAPSHOT_PAYLOAD_BYTES - file->used, part = n < room ? n : room;

		if (part == 0) {
			int status = write_chunk(file, SNAPSHOT_RECORDS, false);

			if (status < 0)
				return status;
			continue;
		}
		memcpy(file->payload + file->used, from, part);
		file->used += (uint32_t)part;
		from += part;
		n -= part;
	}
	return 0;
}

int snapshot_file_add(struct snapshot_file *file, const struct snapshot_record *record,
		      const void *key, const void *value, const void *position,
		      size_t position_bytes)
{
	uint64_t bytes = sizeof(*record) + record->key_bytes + record->value_bytes;
	int status = 0;

	/* As many chunks as can be end with a whole record. */
	if (file->used > 0 && bytes > SNAPSHOT_PAYLOAD_BYTES - file->used)
		status = snapshot_file_flush(file);
	if (status == 0)
		status = append(file, record, sizeof(*record));
	if (status == 0)
		status = append(file, key, record->key_bytes);
	if (status == 0)
		status = append(file, value, record->value_bytes);
	if (status < 0)
		return status;
	memcpy(file->point.position, position, position_bytes);
	file->point.position_bytes = position_bytes;
	snapshot_totals_count(&file->point.totals, record);
	return 0;
}

int snapshot_file_flush(struct snapshot_file *file)
{
	return file->used > 0 ? write_chunk(file, SNAPSHOT_RECORDS, true) : 0;
}

int snapshot_file_finish(struct snapshot_file *file, uint64_t vanished, uint64_t damaged)
{
	struct snapshot_totals *totals = &file->point.totals;
	int status = snapshot_file_flush(file);

	if (status == 0 && !file->whole) {
		totals->vanished += vanished;
		totals->damaged += damaged;
		totals->finished_ms = clock_wall_ms();
		memcpy(file->payload, totals, sizeof(*totals));
		file->used = sizeof(*totals);
		status = write_chunk(file, SNAPSHOT_END, false);
	}
	if (status < 0)
		return status;
	return partial_finish(&file->partial);
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* Reads what is there as far as it is whole; the rest is cut off. */
static int read_partial(struct snapshot_file *file, struct snapshot_reader *reader)
{
	struct snapshot_record record;
	int status;

	do
		status = snapshot_reader_next(reader, NULL, &record);
	while (status > 0);
	file->header = reader->header;
	file->resumed = true;
	file->point = reader->point;
	if (status == 0) {
		file->whole = true;
		file->point.totals = reader->totals;
		file->point.offset = reader->offset;
		return 0;
	}
	if (status != -TARN_ECORRUPT)
		return status;
	if (ftruncate(file->partial.fd, (off_t)file->point.offset) < 0 ||
	    lseek(file->partial.fd, (off_t)file->point.offset, SEEK_SET) < 0)
		return err_set(-errno, "%s: %s", file->partial.partial, strerror(errno));
	return 0;
}

static int go_on(struct snapshot_file *file, const struct snapshot_header *header)
{
	struct snapshot_reader *reader = NULL;
	char why[ERR_TEXT_BYTES];
	int status;

	if (lseek(file->partial.fd, 0, SEEK_END) < (off_t)sizeof(*header))
		return begin_anew(file, header); /* it ended before it had begun */
	status = snapshot_reader_open(file->partial.fd, &reader);
	if (status < 0) {
		snprintf(why, sizeof(why), "%s", err_text());
		return err_set(status, "%s can not be resumed (--force begins anew): %.300s",
			       file->partial.partial, why);
	}
	if (reader->header.incarnation != header->incarnation)
		status = err_set(-TARN_ERESTARTED,
				 "%s is of another pool, or of this one before it was made anew: its "
				 "incarnation is %016" PRIx64 ", the pool's %016" PRIx64
				 "; --force without --resume begins anew",
				 file->partial.partial, reader->header.incarnation,
				 header->incarnation);
	else
		status = read_partial(file, reader);
	snapshot_reader_free(reader);
	return status;
}

int snapshot_file_open(const struct snapshot_wish *wish, const struct snapshot_header *header,
		       struct snapshot_file **ret_file)
{
	const struct partial_wish partial_wish = {wish->path, wish->force, wish->resume, true};
	struct snapshot_file *file = calloc(1, sizeof(*file));
	bool is_new = true;
	int status;

	if (file != NULL) {
		file->partial.folder = file->partial.fd = -1;
		file->payload = malloc(SNAPSHOT_PAYLOAD_BYTES + SNAPSHOT_POSITION_BYTES);
	}
	if (file == NULL || file->payload == NULL) {
		status = err_set(-ENOMEM, "no memory for a snapshot");
		goto out_file;
	}
	status = partial_open(&file->partial, &partial_wish, &is_new);
	if (status == 0)
		status = is_new ? begin_anew(file, header) : go_on(file, header);
	if (status < 0)
		goto out_file;
	*ret_file = file;
	return 0;

out_file:
	snapshot_file_free(file);
	return status;
}

void snapshot_file_free(struct snapshot_file *file)
{
	if (file == NULL)
		return;
	partial_close(&file->partial);
	free(file->payload);
	free(file);
}

const struct snapshot_totals *snapshot_file_totals(const struct snapshot_file *file)
{
	return &file->point.totals;
}

/* Of a write that failed a part may stand behind what is whole. */
uint64_t snapshot_file_bytes(const struct snapshot_file *file)
{
	struct stat st;

	return fstat(file->partial.fd, &st) == 0 ? (uint64_t)st.st_size : file->point.offset;
}

bool snapshot_file_is_resumed(const struct snapshot_file *file)
{
	return file->resumed;
}

bool snapshot_file_is_whole(const struct snapshot_file *file)
{
	return file->whole;
}

const void *snapshot_file_position(const struct snapshot_file *file, size_t *ret_n)
{
	*ret_n = file->point.position_bytes;
	return file->point.position;
}
