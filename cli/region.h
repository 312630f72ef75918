/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.h - the parts of `tarn region`, and what they share
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <tarn/region.h>

#include "cli.h"

enum {
	REGION_BACKGROUND,
	REGION_OFFSET,
	REGION_BYTES,
	REGION_HEX,
	REGION_FORCE,
	REGION_AFTER,
	REGION_FOR
};

/* 0, or an exit code after complaining. */
int region_check_name(struct cli *cli, const char *name);

/* A number of bytes from min to max, with a unit. what: how the command line calls it. */
int region_parse_bytes(struct cli *cli, const char *what, const char *text, uint64_t min,
		       uint64_t max, uint64_t *ret_bytes);

/* The same of an option, which may not be given: *ret_bytes is left alone then. */
int region_parse_option(struct cli *cli, const struct arguments *args, int option,
			uint64_t *ret_bytes);

/* Opens the session (cli_open()) and a region in it. */
int region_open(struct cli *cli, const char *name, bool read_only, struct tarn_region **ret_region);

/* The parts: region-manage.c, region-copy.c, region-word.c. */
int region_create(struct cli *cli, const struct arguments *args);
int region_list(struct cli *cli, const struct arguments *args);
int region_show(struct cli *cli, const struct arguments *args);
int region_resize(struct cli *cli, const struct arguments *args);
int region_destroy(struct cli *cli, const struct arguments *args);
int region_read(struct cli *cli, const struct arguments *args);
int region_write(struct cli *cli, const struct arguments *args);
int region_copy(struct cli *cli, const struct arguments *args);
int region_cas(struct cli *cli, const struct arguments *args);
int region_add(struct cli *cli, const struct arguments *args);
int region_wait(struct cli *cli, const struct arguments *args);
int region_notify(struct cli *cli, const struct arguments *args);
