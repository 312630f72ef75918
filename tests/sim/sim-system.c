/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-system.c - clock and heap for the daemon's code; see sim-system.h
 *
 * The daemon's code asks for the time without saying who it is, hence the one global of the
 * simulation: the daemon that runs. Also here: the daemon's memory from the kernel, which a simulated
 * pool does not have. Next: sim-daemon.c.
 */
#include "sim-system.h"

#include "sim-daemon.h"

static struct sim_daemon *running;

void sim_system_set(struct sim_daemon *daemon)
{
	running = daemon;
}

uint64_t sim_system_now_ns(void)
{
	return sim_local(running->sim->now_ns, running->sim->daemon_drift);
}

void *sim_system_calloc(size_t count, size_t bytes)
{
	struct sim_chunk *chunk = calloc(1, sizeof(*chunk) + count * bytes);

	if (!chunk)
		return NULL;
	chunk->bytes = count * bytes;
	chunk->next = running->heap;
	chunk->previous = &running->heap;
	if (chunk->next)
		chunk->next->previous = &chunk->next;
	running->heap = chunk;
	return chunk->data;
}

void sim_system_free(void *memory)
{
	struct sim_chunk *chunk;

	if (!memory)
		return;
	chunk = (struct sim_chunk *)(void *)((uint8_t *)memory - offsetof(struct sim_chunk, data));
	*chunk->previous = chunk->next;
	if (chunk->next)
		chunk->next->previous = chunk->previous;
	free(chunk);
}

void *sim_system_realloc(void *memory, size_t bytes)
{
	struct sim_chunk *chunk;
	void *more = sim_system_calloc(1, bytes);

	if (!more || !memory)
		return more;
	chunk = (struct sim_chunk *)(void *)((uint8_t *)memory - offsetof(struct sim_chunk, data));
	memcpy(more, memory, chunk->bytes < bytes ? chunk->bytes : bytes);
	sim_system_free(memory);
	return more;
}

void sim_heap_drop(struct sim_daemon *daemon)
{
	while (daemon->heap) {
		struct sim_chunk *chunk = daemon->heap;

		daemon->heap = chunk->next;
		free(chunk);
	}
}
