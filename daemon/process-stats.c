/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * /proc/self and the resource limits. Main thread; reads a few files that the kernel makes up, which
 * does not block. Without /proc the values are not known and are left out.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "process-stats.h"

static bool file_read(const char *path, char *buffer, size_t bytes)
{
	FILE *file = fopen(path, "re");
	size_t got;

	if (!file)
		return false;
	got = fread(buffer, 1, bytes - 1, file);
	fclose(file);
	buffer[got] = '\0';
	return got > 0;
}

bool process_stats_parse(const char *line, long ticks_per_second, uint64_t page_bytes, uint64_t boot_seconds,
			 struct process_stats *ret_stats)
{
	/* the name, field 2, is in parentheses and may hold anything */
	const char *rest = strrchr(line, ')');
	uint64_t user, system, threads, start, virtual_bytes, resident;

	if (!rest || sscanf(rest + 1,
			    " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
			    " %*d %*d %*d %*d %" SCNu64 " %*d %" SCNu64 " %" SCNu64 " %" SCNu64,
			    &user, &system, &threads, &start, &virtual_bytes, &resident) != 6)
		return false;
	ret_stats->cpu_seconds = (double)(user + system) / (double)ticks_per_second;
	ret_stats->start_seconds = (double)boot_seconds + (double)start / (double)ticks_per_second;
	ret_stats->threads = threads;
	ret_stats->virtual_bytes = virtual_bytes;
	ret_stats->resident_bytes = resident * page_bytes;
	ret_stats->known = true;
	return true;
}

/* Seconds since 1970, from /proc/stat's `btime`, which is far down in a long file. */
static uint64_t boot_time(void)
{
	FILE *file = fopen("/proc/stat", "re");
	uint64_t seconds = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "btime %" SCNu64, &seconds) == 1)
			break;
	if (file)
		fclose(file);
	return seconds;
}

static uint64_t count_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint64_t count = 0;

	if (!folder)
		return 0;
	for (const struct dirent *entry; (entry = readdir(folder));)
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count - 1; /* the folder itself */
}

void process_stats_get(struct process_stats *ret_stats)
{
	struct rlimit limit;
	char line[1024];

	*ret_stats = (struct process_stats){0};
	if (file_read("/proc/self/stat", line, sizeof(line)))
		(void)process_stats_parse(line, sysconf(_SC_CLK_TCK), (uint64_t)sysconf(_SC_PAGESIZE), boot_time(),
					  ret_stats);
	ret_stats->open_files = count_files();
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		ret_stats->max_files = limit.rlim_cur;
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		ret_stats->virtual_max_bytes = limit.rlim_cur;
}
