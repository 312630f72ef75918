/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-side.c - what `tarn region` transfers from and to: regions, files, pipes, standard output
 *
 * Regions are read and written by asynchronous calls, the others at once. Main thread. Next to read: transfer.c, which
 * calls this, and region-copy.c, which puts two of them together.
 */
#include "region-side.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long a wait sleeps at most: until then nobody looks whether the user has interrupted it. */
#define TURN_WAIT_MS 100

/* What two sessions sleep together: neither notices its deadlines meanwhile. */
#define TURN_PAIR_WAIT_MS 10

/* The side is the first member of a struct side. */
static struct side *side_of(struct transfer_side *side)
{
	return (struct side *)(void *)side;
}

/* ---- regions --------------------------------------------------------------------------------- */

static void region_done(void *cookie, const struct tarn_completion *completion)
{
	transfer_done(cookie, completion->status);
}

static struct tarn_async async_of(struct transfer_slot *slot)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.done = region_done;
	async.cookie = slot;
	return async;
}

static int region_read(struct transfer_side *side, struct transfer_slot *slot)
{
	const struct side *s = side_of(side);
	struct tarn_async async = async_of(slot);

	return tarn_region_read_async(s->region, s->offset + slot->position, slot->memory,
				      slot->bytes, &async, &slot->op);
}

static int region_write(struct transfer_side *side, struct transfer_slot *slot)
{
	const struct side *s = side_of(side);
	struct tarn_async async = async_of(slot);

	return tarn_region_write_async(s->region, s->offset + slot->position, slot->memory,
				       slot->bytes, &async, &slot->op);
}

/* That it has ended already is no error. */
static void region_cancel(struct transfer_side *side, struct transfer_slot *slot)
{
	(void)tarn_cancel(side_of(side)->session, slot->op);
}

void side_from_region(struct side *side, struct tarn_session *session, struct tarn_region *region,
		      uint64_t offset)
{
	*side = (struct side){.transfer = {region_read, region_cancel},
			      .session = session,
			      .region = region,
			      .offset = offset};
}

void side_to_region(struct side *side, struct tarn_session *session, struct tarn_region *region,
		    uint64_t offset)
{
	*side = (struct side){.transfer = {region_write, region_cancel},
			      .session = session,
			      .region = region,
			      .offset = offset};
}

/* ---- files and pipes ------------------------------------------------------------------------- */

static int fd_read(struct transfer_side *side, struct transfer_slot *slot)
{
	const struct side *s = side_of(side);
	size_t wanted = slot->bytes;

	for (slot->bytes = 0; slot->bytes < wanted;) {
		ssize_t n = read(s->fd, slot->memory + slot->bytes, wanted - slot->bytes);

		if (n < 0 && errno == EINTR && !*s->stop)
			continue;
		if (n < 0 && errno == EINTR)
			return err_set(-EINTR, "interrupted");
		if (n < 0)
			return err_set(-errno, "%s", strerror(errno));
		if (n == 0)
			break;
		slot->bytes += (size_t)n;
	}
	return 1;
}

void side_from_fd(struct side *side, int fd, const volatile sig_atomic_t *stop)
{
	*side = (struct side){.transfer = {.start = fd_read}, .fd = fd, .stop = stop};
}

static int partial_side_write(struct transfer_side *side, struct transfer_slot *slot)
{
	int status = partial_write(side_of(side)->file, slot->memory, slot->bytes);

	return status < 0 ? status : 1;
}

void side_to_partial(struct side *side, struct partial *file)
{
	*side = (struct side){.transfer = {.start = partial_side_write}, .file = file};
}

/* ---- standard output ------------------------------------------------------------------------- */

static int writer_status(const struct side *s)
{
	int failed = writer_failed(s->writer);

	return failed < 0 ? err_set(failed, "standard output: %s", strerror(-failed)) : 1;
}

static int writer_write(struct transfer_side *side, struct transfer_slot *slot)
{
	const struct side *s = side_of(side);

	writer_raw(s->writer, slot->memory, slot->bytes);
	return writer_status(s);
}

void side_to_writer(struct side *side, struct writer *writer)
{
	*side = (struct side){.transfer = {.start = writer_write}, .writer = writer};
}

static void put_hex_line(const struct side *s, uint64_t at, const unsigned char *bytes, size_t n)
{
	char text[16 + 4 * HEX_LINE_BYTES + 8];
	int used = snprintf(text, sizeof(text), "%010" PRIx64 " ", at);

	for (size_t i = 0; i < HEX_LINE_BYTES; i++) {
		if (i == HEX_LINE_BYTES / 2)
			text[used++] = ' ';
		if (i < n)
			used += snprintf(text + used, 4, " %02x", bytes[i]);
		else
			used += snprintf(text + used, 4, "   ");
	}
	text[used++] = ' ';
	text[used++] = ' ';
	text[used++] = '|';
	for (size_t i = 0; i < n; i++)
		text[used++] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : '.';
	text[used++] = '|';
	text[used++] = '\n';
	writer_raw(s->writer, text, (size_t)used);
}

/* Of lines that are the same the first is written, and "*" for the others; the last line is written. */
static int hex_write(struct transfer_side *side, struct transfer_slot *slot)
{
	struct side *s = side_of(side);
	bool last_piece = slot->position + slot->bytes >= slot->transfer->bytes;

	for (size_t i = 0; i < slot->bytes; i += HEX_LINE_BYTES) {
		size_t left = slot->bytes - i, n = left < HEX_LINE_BYTES ? left : HEX_LINE_BYTES;
		bool last = last_piece && left <= HEX_LINE_BYTES;

		if (s->begun && !last && memcmp(s->line, slot->memory + i, n) == 0) {
			if (!s->repeated)
				writer_raw(s->writer, "*\n", 2);
			s->repeated = true;
			continue;
		}
		put_hex_line(s, s->offset + slot->position + i, slot->memory + i, n);
		memcpy(s->line, slot->memory + i, n);
		s->begun = true;
		s->repeated = false;
	}
	return writer_status(s);
}

void side_to_hex(struct side *side, struct writer *writer, uint64_t offset)
{
	*side = (struct side){.transfer = {.start = hex_write}, .writer = writer, .offset = offset};
}

/* ---- letting them go on ---------------------------------------------------------------------- */

/* Sleeps until one of two sessions has something to say. */
static int wait_for_pair(struct tarn_session *const *sessions)
{
	struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};

	for (size_t i = 0; i < 2; i++) {
		fds[i].fd = tarn_session_fd(sessions[i]);
		if (fds[i].fd < 0)
			return fds[i].fd;
	}
	if (poll(fds, 2, TURN_PAIR_WAIT_MS) < 0 && errno != EINTR)
		return err_set(-errno, "poll: %s", strerror(errno));
	return 0;
}

int side_turn(struct transfer *transfer, bool wait)
{
	struct tarn_session *sessions[2] = {side_of(transfer->source)->session,
					    side_of(transfer->target)->session};
	size_t count =
		sessions[0] != NULL && sessions[1] != NULL && sessions[0] != sessions[1] ? 2 : 1;
	int status, ended = 0;

	if (sessions[0] == NULL)
		sessions[0] = sessions[1];
	for (size_t i = 0; i < count; i++) {
		status = tarn_session_poll(sessions[i], NULL, 0, NULL);
		if (status < 0)
			return status;
		ended += status;
	}
	if (!wait || ended > 0)
		return 0;
	if (count == 2)
		return wait_for_pair(sessions);
	status = tarn_session_wait(sessions[0], TURN_WAIT_MS);
	return status < 0 ? status : 0;
}
