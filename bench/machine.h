/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * machine.h - what a result was measured on: a number without its machine says nothing
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct machine {
	char cpu[128], kernel[128],
		governor[32];            /* "unknown" and "none" when the system does not say */
	char transparent[32], shmem[32]; /* transparent huge pages: memory of a process, shared */
	unsigned int cores, numa_nodes;
	uint64_t huge_bytes, huge_total, huge_free; /* size and number of reserved huge pages */
	double load;                                /* runnable tasks, average of a minute */
	double clock_ns;                            /* what one reading of the clock costs */
};

void machine_look(struct machine *ret_machine);

/*
 * Page size behind a mapping of this process: `address`, or with NULL the first shared mapping of
 * at least `bytes` bytes, which is how the pool's is found without asking the transport. Call it
 * once the memory has been touched. 0: unknown.
 */
uint64_t machine_page_bytes(const void *address, uint64_t bytes);

/* A new reference. */
json_t *machine_json(const struct machine *machine);
