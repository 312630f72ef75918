/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.c - one line on the terminal that says how far a long walk is
 *
 * On standard error, since standard output belongs to the result; only on a terminal, never in a
 * log. Next to read: import.c and export.c.
 */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"
#include "text.h"

#define PROGRESS_INTERVAL_NS 100000000u
#define PROGRESS_BAR         24
#define PROGRESS_LINE        256

void progress_begin(struct progress *progress, bool enabled)
{
	*progress = (struct progress){.enabled = enabled && isatty(STDERR_FILENO),
				      .start_ns = clock_now_ns()};
}

static size_t terminal_width(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 20)
		return 80;
	return size.ws_col < PROGRESS_LINE - 8 ? size.ws_col : PROGRESS_LINE - 8;
}

/* By bytes where they are known: files differ in size by much. */
static uint64_t done_permille(const struct progress *progress)
{
	uint64_t permille = progress->permille;

	if (progress->total_bytes > 0)
		permille = (uint64_t)(1000.0 * (double)progress->bytes /
				      (double)progress->total_bytes);
	else if (progress->total_files > 0)
		permille = 1000 * progress->files / progress->total_files;
	/* A tree that grows meanwhile. */
	return permille <= 1000 ? permille : 1000;
}

static void draw(struct progress *progress, uint64_t now_ns)
{
	uint64_t permille = done_permille(progress), elapsed_ns = now_ns - progress->start_ns;
	char bar[PROGRESS_BAR + 1], bytes[TEXT_HUMAN_BYTES], rate[TEXT_HUMAN_BYTES],
		left[TEXT_HUMAN_BYTES] = "-";
	const char *things = progress->things != NULL ? progress->things : "files";
	char line[PROGRESS_LINE + 16], text[PROGRESS_LINE], counts[PROGRESS_LINE / 2] = "";
	size_t full = (size_t)(permille * PROGRESS_BAR / 1000), width = terminal_width() - 1;
	int n;

	memset(bar, '.', PROGRESS_BAR);
	memset(bar, '#', full);
	bar[PROGRESS_BAR] = '\0';
	text_human_size(progress->bytes, bytes);
	text_human_size(
		elapsed_ns > 0 ? (uint64_t)((double)progress->bytes * 1e9 / (double)elapsed_ns) : 0,
		rate);
	/* After one second there is something to reckon with. */
	if (permille > 0 && elapsed_ns > 1000000000u)
		snprintf(left, sizeof(left), "%" PRIu64 " s",
			 (uint64_t)((double)elapsed_ns / 1e9 * (double)(1000 - permille) /
					    (double)permille +
				    0.5));
	/* a check counts nothing */
	if (*things == '\0')
		snprintf(counts, sizeof(counts), "  %s  %s/s", bytes, rate);
	else if (progress->bytes > 0 || progress->files > 0 || progress->total_files > 0)
		snprintf(counts, sizeof(counts), "  %s  %" PRIu64 " %s  %s/s", bytes,
			 progress->files, things, rate);
	snprintf(text, sizeof(text), "[%s] %3" PRIu64 "%%%s  ETA %s", bar, permille / 10, counts,
		 left);
	n = snprintf(line, sizeof(line), "\r\033[K%.*s", (int)width, text);
	if (n > 0)
		(void)!write(STDERR_FILENO, line, (size_t)n);
	progress->drawn = true;
}

void progress_update(struct progress *progress)
{
	uint64_t now_ns;

	if (!progress->enabled)
		return;
	now_ns = clock_now_ns();
	if (now_ns - progress->last_ns < PROGRESS_INTERVAL_NS)
		return;
	progress->last_ns = now_ns;
	draw(progress, now_ns);
}

void progress_clear(struct progress *progress)
{
	if (progress->drawn)
		(void)!write(STDERR_FILENO, "\r\033[K", 4);
	progress->drawn = false;
}
