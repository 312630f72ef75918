/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.c - bytes from one place to another, in pieces of which several are under way at a time
 *
 * The slots are a ring. Pieces are read, written and counted in their order, so that what is done is at any time
 * all from the first byte to `done_bytes`; but the next ones are under way meanwhile. Main thread.
 * Next to read: region-side.c, the places.
 */
#include "transfer.h"

#include <errno.h>
#include <stdio.h>

#include "progress.h"

static struct transfer_slot *slot_of(struct transfer *transfer, uint64_t number)
{
	return &transfer->slots[number % TRANSFER_SLOTS];
}

/* The first failure is the cause of the others. */
static void fail(struct transfer *transfer, const struct transfer_side *side, int status,
		 const char *text)
{
	if (transfer->status != 0)
		return;
	transfer->status = status;
	transfer->failed = side;
	snprintf(transfer->text, sizeof(transfer->text), "%s", text);
}

static const struct transfer_side *side_of(const struct transfer_slot *slot)
{
	return slot->state == TRANSFER_READING ? slot->transfer->source : slot->transfer->target;
}

static void advance(struct transfer_slot *slot)
{
	slot->state = slot->state == TRANSFER_READING ? TRANSFER_READ : TRANSFER_WRITTEN;
}

void transfer_done(struct transfer_slot *slot, int status)
{
	slot->transfer->under_way--;
	if (status < 0) {
		fail(slot->transfer, side_of(slot), status, err_string(status));
		slot->state = TRANSFER_FREE;
	} else {
		advance(slot);
	}
}

/* What start() returned, or a negative code. */
static int start(struct transfer *transfer, struct transfer_side *side, struct transfer_slot *slot)
{
	int status;

	err_clear();
	status = side->start(side, slot);
	if (status < 0) {
		slot->state = TRANSFER_FREE;
		fail(transfer, side, status, *err_text() != '\0' ? err_text() : err_string(status));
	} else if (status > 0) {
		advance(slot);
	} else {
		transfer->under_way++;
	}
	return status;
}

/* Begins to read as much as there is room for; but what blocks only once, the rest is to go on, too. */
static bool read_some(struct transfer *transfer)
{
	uint64_t begun = transfer->read;
	int status = 0;

	while (status == 0 && !transfer->ended && transfer->status == 0 &&
	       transfer->read - transfer->through < TRANSFER_SLOTS) {
		struct transfer_slot *slot = slot_of(transfer, transfer->read);
		uint64_t position = transfer->read * TRANSFER_SLOT_BYTES,
			 left = position < transfer->bytes ? transfer->bytes - position : 0;
		size_t wanted = left < TRANSFER_SLOT_BYTES ? (size_t)left : TRANSFER_SLOT_BYTES;

		slot->position = position;
		slot->bytes = wanted;
		if (wanted > 0) {
			slot->state = TRANSFER_READING;
			status = start(transfer, transfer->source, slot);
		}
		if (status >= 0 && slot->bytes > 0)
			transfer->read++;
		else
			slot->state = TRANSFER_FREE;
		transfer->ended = slot->bytes < TRANSFER_SLOT_BYTES;
	}
	return transfer->read > begun;
}

static bool write_some(struct transfer *transfer)
{
	uint64_t begun = transfer->written;

	while (transfer->status == 0 && transfer->written < transfer->read &&
	       slot_of(transfer, transfer->written)->state == TRANSFER_READ) {
		struct transfer_slot *slot = slot_of(transfer, transfer->written);

		slot->state = TRANSFER_WRITING;
		if (start(transfer, transfer->target, slot) >= 0)
			transfer->written++;
	}
	return transfer->written > begun;
}

static bool count_done(struct transfer *transfer)
{
	uint64_t begun = transfer->through;

	while (transfer->through < transfer->written &&
	       slot_of(transfer, transfer->through)->state == TRANSFER_WRITTEN) {
		struct transfer_slot *slot = slot_of(transfer, transfer->through);

		transfer->done_bytes += slot->bytes;
		slot->state = TRANSFER_FREE;
		transfer->through++;
	}
	return transfer->through > begun;
}

static void turn(struct transfer *transfer, bool wait)
{
	int status;

	if (transfer->under_way == 0)
		return;
	err_clear();
	status = transfer->turn(transfer, wait);
	if (status < 0) {
		fail(transfer, NULL, status, *err_text() != '\0' ? err_text() : err_string(status));
		/* It would fail again and again. */
		transfer->under_way = 0;
	}
}

/* After a failure. Their memory is used until all have ended. */
static void cancel_all(struct transfer *transfer)
{
	for (size_t i = 0; i < TRANSFER_SLOTS; i++) {
		struct transfer_slot *slot = &transfer->slots[i];

		if (slot->state == TRANSFER_READING && transfer->source->cancel != NULL)
			transfer->source->cancel(transfer->source, slot);
		if (slot->state == TRANSFER_WRITING && transfer->target->cancel != NULL)
			transfer->target->cancel(transfer->target, slot);
	}
	while (transfer->under_way > 0)
		turn(transfer, true);
	count_done(transfer);
}

/* Of pieces that were begun to be written nobody knows how far they came. */
static uint64_t count_open(struct transfer *transfer)
{
	uint64_t bytes = 0;

	for (uint64_t i = transfer->through; i < transfer->written; i++)
		bytes += slot_of(transfer, i)->bytes;
	return bytes;
}

int transfer_run(struct transfer *transfer)
{
	for (size_t i = 0; i < TRANSFER_SLOTS; i++)
		transfer->slots[i] = (struct transfer_slot){
			.transfer = transfer, .memory = transfer->memory + i * TRANSFER_SLOT_BYTES};
	while (transfer->status == 0 && !(transfer->ended && transfer->through == transfer->read)) {
		bool moved;

		if (*transfer->stop)
			fail(transfer, NULL, -EINTR, "interrupted");
		moved = read_some(transfer);
		moved = write_some(transfer) || moved;
		turn(transfer, !moved);
		count_done(transfer);
		transfer->progress->bytes = transfer->done_bytes;
		progress_update(transfer->progress);
	}
	if (transfer->status != 0)
		cancel_all(transfer);
	transfer->open_bytes = count_open(transfer);
	return transfer->status;
}
