/* SPDX-License-Identifier: BSD-2-Clause */
/* process-stats.h - what the kernel says of the process, as Prometheus' own clients tell it */
#ifndef TARN_DAEMON_PROCESS_STATS_H
#define TARN_DAEMON_PROCESS_STATS_H

#include <stdbool.h>
#include <stdint.h>

struct process_stats {
	bool known; /* /proc/self/stat could be read */
	double cpu_seconds, start_seconds;
	uint64_t virtual_bytes, resident_bytes, threads;
	uint64_t virtual_max_bytes;     /* 0: no limit */
	uint64_t open_files, max_files; /* 0: not known */
};

void process_stats_get(struct process_stats *ret_stats);
/* A line of /proc/PID/stat. False when it is none. */
bool process_stats_parse(const char *line, long ticks_per_second, uint64_t page_bytes, uint64_t boot_seconds,
			 struct process_stats *ret_stats);

#endif
