/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-run.h - one transfer of `tarn region`, with its memory and its progress
 */
#pragma once

#include "region-side.h"

struct region_run {
	struct side source, target;
	uint64_t bytes;   /* the source may end before */
	bool no_progress; /* the terminal is for the result */

	/* out */
	uint64_t done_bytes; /* from the first on */
	uint64_t open_bytes; /* behind these: of so many some may have been written */
	bool failed_source;  /* else the target */
	char text[ERR_TEXT_BYTES];
};

/*
 * 0 or a negative code with run->text. What was written has taken effect for everybody then, unless
 * the text is about that.
 */
int region_run(struct cli *cli, struct region_run *run);
