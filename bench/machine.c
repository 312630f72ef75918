/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * machine.c - reads /proc and /sys; whatever is missing there is reported as unknown, never an
 * error
 *
 * Next: report.c, which prints it.
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "clock.h"

#define CLOCK_READS 100000u

/* The first line of a file, without its newline. */
static void read_line(const char *path, const char *otherwise, char *ret_line, size_t bytes)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(ret_line, (int)bytes, file))
		snprintf(ret_line, bytes, "%s", otherwise);
	ret_line[strcspn(ret_line, "\n")] = 0;
	if (file)
		fclose(file);
}

/* Of "always [madvise] never", the word in brackets. */
static void read_choice(const char *path, char *ret_word, size_t bytes)
{
	char line[128], *from, *to;

	read_line(path, "unknown", line, sizeof(line));
	from = strchr(line, '[');
	to = from ? strchr(from, ']') : NULL;
	if (!to) {
		snprintf(ret_word, bytes, "unknown");
		return;
	}
	*to = 0;
	snprintf(ret_word, bytes, "%s", from + 1);
}

static void read_cpu(struct machine *machine)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(machine->cpu, sizeof(machine->cpu), "unknown");
	while (file && fgets(line, sizeof(line), file)) {
		const char *value = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !value)
			continue;
		snprintf(machine->cpu, sizeof(machine->cpu), "%.*s", (int)strcspn(value + 2, "\n"),
			 value + 2);
		break;
	}
	if (file)
		fclose(file);
}

static void read_memory(struct machine *machine)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long value;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "HugePages_Total: %llu", &value) == 1)
			machine->huge_total = value;
		else if (sscanf(line, "HugePages_Free: %llu", &value) == 1)
			machine->huge_free = value;
		else if (sscanf(line, "Hugepagesize: %llu", &value) == 1)
			machine->huge_bytes = value << 10;
	}
	if (file)
		fclose(file);
}

static unsigned int count_numa_nodes(void)
{
	unsigned int nodes = 0;
	char path[64];

	for (unsigned int i = 0; i < 1024; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", i);
		nodes += access(path, F_OK) == 0;
	}
	return nodes ? nodes : 1;
}

static double measure_clock(void)
{
	uint64_t from = clock_now_ns(), to = from;

	for (unsigned int i = 0; i < CLOCK_READS; i++)
		to = clock_now_ns();
	return (double)(to - from) / CLOCK_READS;
}

void machine_look(struct machine *ret_machine)
{
	struct machine machine = {0};
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct utsname name;

	read_cpu(&machine);
	machine.cores = cores > 0 ? (unsigned int)cores : 1;
	if (uname(&name) == 0)
		snprintf(machine.kernel, sizeof(machine.kernel), "%.20s %.70s %.30s", name.sysname,
			 name.release, name.machine);
	read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "none", machine.governor,
		  sizeof(machine.governor));
	read_choice("/sys/kernel/mm/transparent_hugepage/enabled", machine.transparent,
		    sizeof(machine.transparent));
	read_choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled", machine.shmem,
		    sizeof(machine.shmem));
	read_memory(&machine);
	machine.numa_nodes = count_numa_nodes();
	if (getloadavg(&machine.load, 1) != 1)
		machine.load = -1;
	machine.clock_ns = measure_clock();
	*ret_machine = machine;
}

uint64_t machine_page_bytes(const void *address, uint64_t bytes)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long long from, to, kib, rss = 0, result = 0;
	char line[512], mode[8];
	bool found = false;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx-%llx %7s", &from, &to, mode) == 3) {
			if (found)
				break;
			found = address ? from <= (uintptr_t)address && (uintptr_t)address < to
					: mode[3] == 's' && to - from >= bytes;
		}
		if (!found)
			continue;
		if (sscanf(line, "KernelPageSize: %llu kB", &kib) == 1)
			result = kib << 10;
		else if (sscanf(line, "Rss: %llu kB", &kib) == 1)
			rss = kib;
		else if (sscanf(line, "ShmemPmdMapped: %llu kB", &kib) == 1 && rss &&
			 kib * 2 >= rss)
			result = 2 << 20; /* transparent ones; on x86, what a page middle directory
					     entry maps */
	}
	if (file)
		fclose(file);
	return result;
}

json_t *machine_json(const struct machine *machine)
{
	return json_pack("{s:s, s:i, s:s, s:s, s:i, s:f, s:f, s:{s:I, s:I, s:I, s:s, s:s}}", "cpu",
			 machine->cpu, "cores", (int)machine->cores, "governor", machine->governor,
			 "kernel", machine->kernel, "numa_nodes", (int)machine->numa_nodes,
			 "load_average", machine->load, "clock_ns", machine->clock_ns, "huge_pages",
			 "page_bytes", (json_int_t)machine->huge_bytes, "total",
			 (json_int_t)machine->huge_total, "free", (json_int_t)machine->huge_free,
			 "transparent", machine->transparent, "transparent_shared", machine->shmem);
}
