/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-memory.c - the simulated pool's bytes, chance, time, and words for a trace
 *
 * A schedule touches some hundred cache lines of a pool of megabytes, and there are a hundred
 * thousand schedules: each line that is written is noted, and sim_reset() copies back those alone.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fabric-sim.h"
#include "shadow.h"

#define LINE        64u
#define FIRST_QUEUE 64u

struct sim *sim_create(const struct layout_plan *plan)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	struct layout_superblock *sb;

	if (!sim)
		return NULL;
	sim->bytes = plan->pool_bytes;
	sim->pool = aligned_alloc(4096, sim->bytes);
	sim->pristine = malloc(sim->bytes);
	sim->dirty_map = calloc(sim->bytes / LINE / 64 + 1, 8);
	sim->dirty = calloc(sim->bytes / LINE, sizeof(*sim->dirty));
	sim->daemon = sim_daemon_create(sim);
	sim->shadow = shadow_create();
	for (unsigned i = 0; i < SIM_CLIENTS; i++) {
		sim->endpoints[i].size = FIRST_QUEUE;
		sim->endpoints[i].flights = calloc(FIRST_QUEUE, sizeof(struct sim_flight));
		if (!sim->endpoints[i].flights)
			goto fail;
	}
	if (!sim->pool || !sim->pristine || !sim->dirty_map || !sim->dirty || !sim->daemon ||
	    !sim->shadow)
		goto fail;
	memset(sim->pool, 0, sim->bytes);
	sb = (struct layout_superblock *)(void *)sim->pool;
	if (layout_format(sim->pool, plan) < 0 ||
	    layout_superblock_check(sb, sim->bytes, &sim->geometry) < 0)
		goto fail;
	sim_keep(sim);
	return sim;
fail:
	sim_free(sim);
	return NULL;
}

void sim_keep(struct sim *sim)
{
	memcpy(sim->pristine, sim->pool, sim->bytes);
	memset(sim->dirty_map, 0, (sim->bytes / LINE / 64 + 1) * 8);
	sim->dirty_count = 0;
}

void sim_free(struct sim *sim)
{
	if (!sim)
		return;
	for (unsigned i = 0; i < SIM_CLIENTS; i++)
		free(sim->endpoints[i].flights);
	sim_daemon_free(sim->daemon);
	shadow_free(sim->shadow);
	free(sim->pool);
	free(sim->pristine);
	free(sim->dirty_map);
	free(sim->dirty);
	free(sim);
}

static uint64_t sim_boot_id(const struct sim *sim)
{
	return ((const struct layout_superblock *)(const void *)sim->pool)->boot_id;
}

void sim_reset(struct sim *sim, uint64_t seed)
{
	sim_daemon_end(sim->daemon);
	for (uint32_t i = 0; i < sim->dirty_count; i++) {
		uint64_t line = sim->dirty[i];

		memcpy(sim->pool + line * LINE, sim->pristine + line * LINE, LINE);
		sim->dirty_map[line / 64] &= ~(1ull << line % 64);
	}
	sim->dirty_count = 0;
	sim->random = seed;
	sim->tuning = (struct sim_tuning){0};
	sim->now_ns = 1000000000ull + sim_below(sim, sim->geometry.epoch_ns);
	sim->step = 0;
	sim->daemon_stopped_ns = 0;
	sim->daemon_drift = 0;
	sim->late_count = 0;
	sim->serial = 0;
	sim->geometry.boot_id = sim_boot_id(sim);
	sim->violation[0] = 0;
	shadow_reset(sim->shadow);
	for (unsigned i = 0; i < SIM_CLIENTS; i++)
		sim_connect(sim, i, i, 0);
}

void sim_tune(struct sim *sim, const struct sim_tuning *tuning)
{
	uint64_t generations_ns = sim->geometry.epoch_ns << LAYOUT_GEN_BITS;

	sim->tuning = *tuning;
	/*
	 * a CAS may be held up between looking at the clock and posting, but not so long that its
	 * word may have come again
	 */
	sim->longest_prepost_ns = generations_ns / 4;
	if (sim->longest_prepost_ns > tuning->longest_stall_ns)
		sim->longest_prepost_ns = tuning->longest_stall_ns;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void touch(struct sim *sim, uint64_t line)
{
	if (sim->dirty_map[line / 64] >> line % 64 & 1)
		return;
	sim->dirty_map[line / 64] |= 1ull << line % 64;
	sim->dirty[sim->dirty_count++] = (uint32_t)line;
}

/* Is this the place of a slot? */
static bool in_index(const struct sim *sim, uint64_t offset)
{
	const struct layout_geometry *g = &sim->geometry;
	uint64_t word =
		sim_word(sim, layout_page_word_offset(g, layout_offset_page(g, offset)));

	return layout_page_state(word) == LAYOUT_PAGE_INDEX && offset % LAYOUT_BUCKET_BYTES;
}

void sim_write(struct sim *sim, uint64_t offset, const void *data, uint64_t bytes)
{
	if (bytes == 8 && offset >= sim->geometry.pages_offset && in_index(sim, offset)) {
		uint64_t word;

		memcpy(&word, data, 8);
		shadow_slot(sim, sim_word(sim, offset), word);
	}
	for (uint64_t line = offset / LINE; line <= (offset + bytes - 1) / LINE; line++)
		touch(sim, line);
	memcpy(sim->pool + offset, data, bytes);
}

void sim_late_step(struct sim *sim, bool all)
{
	for (uint32_t i = 0; i < sim->late_count;) {
		struct sim_late *late = &sim->late[i];

		if (!all && late->step > sim->step) {
			i++;
			continue;
		}
		sim_tracef(sim, "c%u   a late word of a WRITE takes effect at %llx", late->client,
			   (unsigned long long)late->offset);
		sim_write(sim, late->offset, late->data, late->bytes);
		*late = sim->late[--sim->late_count];
	}
}

/* ---- chance --------------------------------------------------------------------------------- */

uint64_t sim_random(struct sim *sim)
{
	uint64_t z = sim->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t sim_stall(struct sim *sim, uint64_t longest_ns)
{
	const struct layout_geometry *g = &sim->geometry;
	uint64_t ns = 0;

	switch (sim->tuning.wraps && sim_chance(sim, 512) ? 7 : sim_below(sim, 8)) {
	case 0:
	case 1:
		ns = sim_below(sim, g->deadline_ns);
		break;
	case 2:
	case 3:
		ns = g->deadline_ns + sim_below(sim, g->grace_ns - g->deadline_ns);
		break;
	case 4:
	case 5:
		ns = g->grace_ns + sim_below(sim, 4 * g->epoch_ns);
		break;
	case 6:
		ns = sim_below(sim, 40 * g->epoch_ns);
		break;
	default:
		/* about as long as it takes a generation to come again */
		ns = (g->epoch_ns << LAYOUT_GEN_BITS) + sim_below(sim, 12 * g->epoch_ns);
		break;
	}
	return ns < longest_ns ? ns : sim_below(sim, longest_ns + 1);
}

/* ---- time ----------------------------------------------------------------------------------- */

uint64_t sim_time(uint64_t local_ns, int32_t drift)
{
	uint64_t now;

	if (local_ns == SIM_NEVER)
		return SIM_NEVER;
	now = (uint64_t)((unsigned __int128)local_ns * 1024 / (unsigned)(1024 + drift));
	while (sim_local(now, drift) < local_ns)
		now++;
	return now;
}

/* ---- words ---------------------------------------------------------------------------------- */

void sim_tracef(struct sim *sim, const char *format, ...)
{
	va_list args;

	if (!sim->trace)
		return;
	fprintf(sim->trace, "%6llu %10.3f ms  ", (unsigned long long)sim->step,
		(double)sim->now_ns / 1e6);
	va_start(args, format);
	vfprintf(sim->trace, format, args);
	va_end(args);
	fputc('\n', sim->trace);
}

static void where_in_page(const struct sim *sim, uint64_t offset, char *buffer, size_t bytes)
{
	const struct layout_geometry *g = &sim->geometry;
	uint32_t page = layout_offset_page(g, offset);
	uint64_t inside = offset - layout_page_offset(g, page);
	uint64_t word = sim_word(sim, layout_page_word_offset(g, page));
	uint32_t size = layout_class_bytes(layout_page_class(word));

	if (layout_page_state(word) == LAYOUT_PAGE_INDEX)
		snprintf(buffer, bytes, "bucket %llu %s %lld",
			 (unsigned long long)inside / LAYOUT_BUCKET_BYTES,
			 inside % 64 ? "slot" : "header", (long long)(inside % 64 / 8) - 1);
	else
		snprintf(buffer, bytes, "block %u.%llu (%llx)", page,
			 (unsigned long long)inside / size, (unsigned long long)offset);
}

const char *sim_where(const struct sim *sim, uint64_t offset, char *buffer, size_t bytes)
{
	const struct layout_geometry *g = &sim->geometry;

	if (offset == LAYOUT_EPOCH_OFFSET)
		snprintf(buffer, bytes, "epoch");
	else if (offset == LAYOUT_CURSOR_OFFSET)
		snprintf(buffer, bytes, "page cursor");
	else if (offset < g->client_table_offset)
		snprintf(buffer, bytes, "superblock + %llu", (unsigned long long)offset);
	else if (offset < g->page_table_offset)
		snprintf(buffer, bytes, "client table + %llu",
			 (unsigned long long)(offset - g->client_table_offset));
	else if (offset < g->ready_rings_offset)
		snprintf(buffer, bytes, "page word %llu",
			 (unsigned long long)(offset - g->page_table_offset) / 8);
	else if (offset < g->directory_offset)
		snprintf(buffer, bytes, "ready ring + %llu",
			 (unsigned long long)(offset - g->ready_rings_offset));
	else if (offset < g->free_map_offset)
		snprintf(buffer, bytes, "directory %llu",
			 (unsigned long long)(offset - g->directory_offset) / 8);
	else if (offset < g->reference_map_offset)
		snprintf(buffer, bytes, "free map of page %llu, unit %llu",
			 (unsigned long long)(offset - g->free_map_offset) / LAYOUT_UNITS_PER_PAGE,
			 (unsigned long long)(offset - g->free_map_offset) % LAYOUT_UNITS_PER_PAGE);
	else if (offset < g->pages_offset)
		snprintf(buffer, bytes, "reference map + %llu",
			 (unsigned long long)(offset - g->reference_map_offset));
	else
		where_in_page(sim, offset, buffer, bytes);
	return buffer;
}
