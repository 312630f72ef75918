/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-word.c - `tarn region cas`, `add`, `wait` and `notify`: what processes agree with each other by
 *
 * Main thread. Next to read: region.c.
 */
#include <errno.h>
#include <inttypes.h>

#include "clock.h"
#include "region.h"
#include "text.h"

/* How long a wait sleeps at most before somebody looks whether the user has interrupted it. */
#define WAIT_MS 500u

#define FOR_MAX_MS (366ull * 86400 * 1000)

static int parse_word(struct cli *cli, const char *text, uint64_t *ret_word)
{
	if (text_parse_u64(text, UINT64_MAX, ret_word) < 0)
		return cli_fail_usage(cli, "'%s' is not a number of 64 bits without sign", text);
	return CLI_OK;
}

static int parse_offset(struct cli *cli, const char *text, uint64_t *ret_offset)
{
	int status = region_parse_bytes(cli, "OFFSET", text, 0, TARN_REGION_BYTES_MAX, ret_offset);

	if (status == CLI_OK && *ret_offset % 8 != 0)
		return cli_fail_usage(cli, "OFFSET '%s': a word is at a multiple of 8", text);
	return status;
}

static void put_place(struct cli *cli, const char *name, uint64_t offset)
{
	writer_field(cli->writer, WRITER_HIDDEN, "name", writer_text(name));
	writer_field(cli->writer, WRITER_HIDDEN, "offset", writer_u64(offset));
}

int region_cas(struct cli *cli, const struct arguments *args)
{
	const char *name = args->operands[0];
	struct tarn_region *region = NULL;
	uint64_t offset = 0, old = 0, new = 0, before = 0;
	int status = parse_offset(cli, args->operands[1], &offset);

	if (status == CLI_OK)
		status = parse_word(cli, args->operands[2], &old);
	if (status == CLI_OK)
		status = parse_word(cli, args->operands[3], &new);
	if (status == CLI_OK)
		status = region_open(cli, name, false, &region);
	if (status != CLI_OK)
		return status;
	status = tarn_region_cas(region, offset, old, new, &before);
	if (status < 0) {
		status = cli_fail_library(cli, status, name);
		goto out_region;
	}
	put_place(cli, name, offset);
	writer_field(cli->writer, WRITER_BARE, "before", writer_u64(before));
	writer_field(cli->writer, WRITER_HIDDEN, "swapped", json_boolean(before == old));
	status = before == old ? CLI_OK : CLI_REFUSED;
out_region:
	tarn_region_close(region);
	return status;
}

int region_add(struct cli *cli, const struct arguments *args)
{
	const char *name = args->operands[0];
	struct tarn_region *region = NULL;
	uint64_t offset = 0, before = 0;
	int64_t delta = 0;
	int status = parse_offset(cli, args->operands[1], &offset);

	if (status == CLI_OK && text_parse_i64(args->operands[2], &delta) < 0)
		status = cli_fail_usage(cli, "'%s' is not a whole number of 64 bits",
					args->operands[2]);
	if (status == CLI_OK)
		status = region_open(cli, name, false, &region);
	if (status != CLI_OK)
		return status;
	status = tarn_region_faa(region, offset, (uint64_t)delta, &before);
	if (status < 0) {
		status = cli_fail_library(cli, status, name);
		goto out_region;
	}
	put_place(cli, name, offset);
	writer_field(cli->writer, WRITER_HIDDEN, "before", writer_u64(before));
	writer_field(cli->writer, WRITER_BARE, "value", writer_u64(before + (uint64_t)delta));
out_region:
	tarn_region_close(region);
	return status;
}

/* ---- notifications --------------------------------------------------------------------------- */

/* In pieces, so that the user can interrupt it. */
static int wait_until(struct cli *cli, struct tarn_region *region, const char *name,
		      uint64_t deadline_ns, uint64_t *sequence)
{
	for (;;) {
		uint64_t now_ns = clock_now_ns(), left_ms;
		int status;

		left_ms = now_ns < deadline_ns ? (deadline_ns - now_ns + 999999) / 1000000 : 0;
		status = tarn_region_wait(region, sequence,
					  left_ms < WAIT_MS ? (uint32_t)left_ms : WAIT_MS);
		if (status > 0)
			return CLI_OK;
		if (*cli->stop)
			return cli_fail(cli, -EINTR, name, "interrupted");
		if (status < 0)
			return cli_fail_library(cli, status, name);
		if (clock_now_ns() >= deadline_ns)
			return cli_fail(cli, -TARN_ETIMEOUT, name,
					"no notification within --for; the last one was %" PRIu64,
					*sequence);
	}
}

static int parse_wait(struct cli *cli, const struct arguments *args, uint64_t *ret_sequence,
		      uint64_t *ret_for_ms)
{
	const char *after = args->own.values[REGION_AFTER],
		   *for_time = args->own.values[REGION_FOR];

	if (after != NULL && text_parse_u64(after, UINT64_MAX, ret_sequence) < 0)
		return cli_fail_usage(cli, "--after '%s' is not a number", after);
	if (for_time != NULL && text_parse_ms(for_time, FOR_MAX_MS, ret_for_ms) < 0)
		return cli_fail_usage(cli,
				      "--for '%s': a time is a number with ms, s, min, h or d, "
				      "up to 366d",
				      for_time);
	return CLI_OK;
}

int region_wait(struct cli *cli, const struct arguments *args)
{
	const char *name = args->operands[0];
	struct tarn_region *region = NULL;
	uint64_t sequence = 0, for_ms = FOR_MAX_MS * 100;
	int status = parse_wait(cli, args, &sequence, &for_ms);

	if (status == CLI_OK)
		status = region_open(cli, name, true, &region);
	if (status != CLI_OK)
		return status;
	/* Without a number it is the next notification that is meant. */
	if (args->own.values[REGION_AFTER] == NULL) {
		int known = tarn_region_wait(region, &sequence, 0);

		if (known < 0)
			status = cli_fail_library(cli, known, name);
	}
	if (status == CLI_OK)
		status =
			wait_until(cli, region, name, clock_now_ns() + for_ms * 1000000, &sequence);
	if (status == CLI_OK) {
		writer_field(cli->writer, WRITER_HIDDEN, "name", writer_text(name));
		writer_field(cli->writer, WRITER_BARE, "sequence", writer_u64(sequence));
	}
	tarn_region_close(region);
	return status;
}

int region_notify(struct cli *cli, const struct arguments *args)
{
	const char *name = args->operands[0];
	struct tarn_region *region = NULL;
	int status = region_open(cli, name, false, &region);

	if (status != CLI_OK)
		return status;
	status = tarn_region_write_notify(region, 0, "", 0);
	if (status < 0)
		status = cli_fail_library(cli, status, name);
	else
		writer_field(cli->writer, WRITER_HIDDEN, "name", writer_text(name));
	tarn_region_close(region);
	return status;
}
