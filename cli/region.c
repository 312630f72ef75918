/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.c - `tarn region ...`: the table of what it can do, and what the parts share
 *
 * Main thread. Next to read: region-manage.c (create, list, destroy), region-copy.c (read, write, copy), region-word.c
 * (cas, add, wait, notify).
 */
#include "region.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cluster-map.h"
#include "text.h"
#include "verbs.h"

int region_check_name(struct cli *cli, const char *name)
{
	const char *at = strchr(name, '@');
	size_t n = at ? (size_t)(at - name) : strlen(name);

	if (n >= 1 && n <= TARN_REGION_NAME_MAX &&
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n &&
	    (at == NULL || cluster_name_valid(at + 1)))
		return CLI_OK;
	if (n > TARN_REGION_NAME_MAX)
		return cli_fail_usage(cli,
				      "'%.40s...': the name of a region has up to %u bytes, "
				      "this one has %zu",
				      name, TARN_REGION_NAME_MAX, n);
	return cli_fail_usage(cli, "'%s': the name of a region is 1 to %u of a-z A-Z 0-9 . _ -, with a cluster "
			      "maybe with @MEMBER behind it",
			      name, TARN_REGION_NAME_MAX);
}

int region_parse_bytes(struct cli *cli, const char *what, const char *text, uint64_t min,
		       uint64_t max, uint64_t *ret_bytes)
{
	char most[TEXT_HUMAN_BYTES];
	uint64_t bytes;
	int status = text_parse_bytes(text, max, &bytes);

	if (status == 0 && bytes >= min) {
		*ret_bytes = bytes;
		return CLI_OK;
	}
	return cli_fail_usage(cli,
			      "%s '%s': a number of bytes from %" PRIu64 " to %s is needed: 4096, "
			      "4K, 1GiB",
			      what, text, min, text_human_size(max, most));
}

int region_parse_option(struct cli *cli, const struct arguments *args, int option,
			uint64_t *ret_bytes)
{
	const char *text = args->own.values[option];

	if (text == NULL)
		return CLI_OK;
	return region_parse_bytes(cli, option == REGION_OFFSET ? "--offset" : "--bytes", text, 0,
				  TARN_REGION_BYTES_MAX, ret_bytes);
}

int region_open(struct cli *cli, const char *name, bool read_only, struct tarn_region **ret_region)
{
	int status = region_check_name(cli, name);

	if (status == CLI_OK)
		status = cli_open(cli, read_only);
	if (status != CLI_OK)
		return status;
	status = tarn_region_open(cli->session, name, read_only ? TARN_REGION_READONLY : 0,
				  ret_region);
	return status < 0 ? cli_fail_library(cli, status, name) : CLI_OK;
}

static const struct option_spec region_options[] = {
	[REGION_BACKGROUND] = {"background", 0, NULL,
			       "create, resize: do not wait until it is ready"},
	[REGION_OFFSET] = {"offset", 0, "BYTES", "read, write: where in the region to begin (0)"},
	[REGION_BYTES] = {"bytes", 0, "BYTES", "read, copy: how many, not all"},
	[REGION_HEX] = {"hex", 0, NULL, "read: as hexadecimal numbers, as on a terminal"},
	[REGION_FORCE] = {"force", 0, NULL, "copy: replace the file TARGET"},
	[REGION_AFTER] = {"after", 0, "N", "wait: also tell of notifications since this one"},
	[REGION_FOR] = {"for", 0, "TIME", "wait: at most so long"},
	{0},
};

static const char *const takes_background[] = {"background", NULL};
static const char *const takes_read[] = {"offset", "bytes", "hex", NULL};
static const char *const takes_write[] = {"offset", NULL};
static const char *const takes_copy[] = {"bytes", "force", NULL};
static const char *const takes_wait[] = {"after", "for", NULL};

static const struct verb_part region_parts[] = {
	{"create", "NAME SIZE", "make a region, of zeros", takes_background, 2, 2, region_create},
	{"list", "", "list the regions of the pool", NULL, 0, 0, region_list},
	{"show", "NAME", "what is known of a region", NULL, 1, 1, region_show},
	{"resize", "NAME SIZE", "make it larger or smaller; nobody may have it open",
	 takes_background, 2, 2, region_resize},
	{"destroy", "NAME...", "take regions away, with all that is in them", NULL, 1, SIZE_MAX,
	 region_destroy},
	{"read", "NAME", "write its bytes to standard output", takes_read, 1, 1, region_read},
	{"write", "NAME [FILE]", "write a file or standard input (-) into it", takes_write, 1, 2,
	 region_write},
	{"copy", "SOURCE TARGET", "copy a region, or a file into it, or it into a file", takes_copy,
	 2, 2, region_copy},
	{"cas", "NAME OFFSET OLD NEW", "set a word of 8 bytes to NEW if it is OLD", NULL, 4, 4,
	 region_cas},
	{"add", "NAME OFFSET N", "add to a word of 8 bytes and print it", NULL, 3, 3, region_add},
	{"wait", "NAME", "wait for a notification and print its number", takes_wait, 1, 1,
	 region_wait},
	{"notify", "NAME", "wake those who wait", NULL, 1, 1, region_notify},
	{0},
};

const struct verb verb_region = {
	.name = "region",
	.operands = "VERB ...",
	.help = "remote memory that has a name: make it, read it, write it, copy it",
	.details =
		"SOURCE and TARGET of a copy are NAME (a region of the pool of -u), URI#NAME (one "
		"of another pool) or a file, whose name has a '/': ./board. A file is written as "
		"FILE.partial and gets its name when it is whole. A region that is copied into is "
		"to be there and large enough; what is behind the copy stays. SIZE and BYTES may "
		"have a unit: 4K, 1GiB.",
	.options = region_options,
	.parts = region_parts,
	.min_operands = 1,
	.max_operands = SIZE_MAX,
	.negative = true,
	.run = cli_run_part,
};
