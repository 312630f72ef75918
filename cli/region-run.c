/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-run.c - one transfer of `tarn region`, with its memory and its progress
 *
 * The memory is registered with both sessions, so that no adapter needs a copy; it is of one size, whatever the size
 * of the regions. Main thread. Next to read: transfer.c, region-side.c.
 */
#include "region-run.h"

#include <stdio.h>

#include "progress.h"

static int fail(struct region_run *run, int status, const char *text)
{
	snprintf(run->text, sizeof(run->text), "%s", text);
	return status;
}

/* Of one session; with the other one, if there is one, it is registered. */
static int take_memory(struct region_run *run, struct tarn_session *owner, void **ret_memory,
		       struct tarn_buffer **ret_buffer)
{
	const size_t bytes = TRANSFER_SLOTS * TRANSFER_SLOT_BYTES;
	struct tarn_session *other = run->target.session;
	int status = tarn_alloc(owner, bytes, ret_memory);

	if (status < 0 || other == NULL || other == owner)
		return status;
	status = tarn_buffer_register(other, *ret_memory, bytes, 0, ret_buffer);
	run->failed_source = status == 0;
	return status;
}

/* What is on its way is there for everybody behind this. If not, it is open of all that it is. */
static int flush(struct region_run *run)
{
	int status = run->target.region != NULL ? tarn_region_flush(run->target.region) : 0;

	if (status == 0)
		return 0;
	run->open_bytes = run->done_bytes;
	run->done_bytes = 0;
	return fail(run, status, tarn_last_error_text());
}

static int transfer(struct cli *cli, struct region_run *run, void *memory)
{
	struct progress progress;
	struct transfer transfer = {
		.source = &run->source.transfer,
		.target = &run->target.transfer,
		.turn = side_turn,
		.memory = memory,
		.bytes = run->bytes,
		.stop = cli->stop,
		.progress = &progress,
	};
	int status;

	progress_begin(&progress, !cli->quiet && !run->no_progress);
	progress.things = "";
	progress.total_bytes = run->bytes != UINT64_MAX ? run->bytes : 0;
	cli->progress = &progress;
	status = transfer_run(&transfer);
	run->done_bytes = transfer.done_bytes;
	run->open_bytes = transfer.open_bytes;
	run->failed_source = transfer.failed == transfer.source;
	progress_clear(&progress);
	cli->progress = NULL;
	return status < 0 ? fail(run, status, transfer.text) : flush(run);
}

int region_run(struct cli *cli, struct region_run *run)
{
	struct tarn_session *owner =
		run->source.session != NULL ? run->source.session : run->target.session;
	struct tarn_buffer *buffer = NULL;
	void *memory = NULL;
	int status;

	run->failed_source = run->source.session != NULL;
	status = take_memory(run, owner, &memory, &buffer);
	if (status < 0)
		fail(run, status, tarn_last_error_text());
	else
		status = transfer(cli, run, memory);
	/* They may be busy only when the sessions are at their end, too, which frees them. */
	(void)tarn_buffer_deregister(buffer);
	(void)tarn_free(owner, memory);
	return status;
}
