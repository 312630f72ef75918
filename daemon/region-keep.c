/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What systemd keeps of regions, and what the next daemon makes of it. Main thread. A region that is resized has two
 * memories with systemd for a moment, so that it is lost at none: a memory is handed over only when it is whole, and
 * the one of the latest generation is the region. Next: fdstore.h; region.c says when.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atomics.h"
#include "auth.h"
#include "clock.h"
#include "err.h"
#include "fabric.h"
#include "fdstore.h"
#include "region.h"

/* One of before a restart may be so much ahead of the clock. */
#define ID_AHEAD_MS (365ull * 86400 * 1000)

/* ---- keeping ---- */

static struct fdstore_region named(const struct region *region, uint32_t generation)
{
	return (struct fdstore_region){.pool = region->regions->pool->name,
				       .name = region->name,
				       .generation = generation};
}

static void keeping_set(struct region *region, enum region_keeping keeping)
{
	struct regions *regions = region->regions;

	regions->refused -= region->keeping == REGION_REFUSED;
	regions->refused += keeping == REGION_REFUSED;
	region->keeping = keeping;
}

/* As fdstore_keep(). */
static int hand_over(struct region *region, uint32_t generation, int fd, bool instead)
{
	struct regions *regions = region->regions;

	if (!regions->pool->config->keep.number)
		return 0;
	return fdstore_keep_region(regions->kept, named(region, generation), fd, instead);
}

static void keep(struct region *region)
{
	int rc = hand_over(region, region->generation, region->memory.fd, false);

	if (rc < 0 && region->keeping != REGION_REFUSED)
		log_warning(region->regions->pool->log,
			    "pool %s: region %s will be gone after a restart: %s",
			    region->regions->pool->name, region->name, err_text());
	keeping_set(region, rc < 0 ? REGION_REFUSED : rc > 0 ? REGION_KEPT : REGION_NOT_KEPT);
}

void region_keep(struct region *region)
{
	if (region->state != TARN_REGION_DESTROYING)
		keep(region);
}

int region_keep_instead(struct region *region, const struct pool_memory *memory)
{
	bool instead = region->keeping == REGION_KEPT;
	uint32_t old = region->generation;
	int rc = hand_over(region, old + 1, memory->fd, instead);

	if (rc < 0 && instead)
		return rc;
	/* a kill between these two leaves both */
	if (instead)
		fdstore_drop_region(region->regions->kept, named(region, old));
	region->generation = old + 1;
	keeping_set(region, rc < 0 ? REGION_REFUSED : rc > 0 ? REGION_KEPT : REGION_NOT_KEPT);
	return 0;
}

/* A place is free now: for one that had found none. */
static void keep_another(struct regions *regions)
{
	struct region *region;

	if (!regions->refused)
		return;
	TAILQ_FOREACH (region, &regions->list, link)
		if (region->keeping == REGION_REFUSED && region->state == TARN_REGION_READY) {
			keep(region);
			return;
		}
}

void region_keep_no_more(struct region *region)
{
	bool kept = region->keeping == REGION_KEPT;

	keeping_set(region, REGION_NOT_KEPT);
	if (!kept)
		return;
	fdstore_drop_region(region->regions->kept, named(region, region->generation));
	keep_another(region->regions);
}

/* ---- after a restart ---- */

/* What was kept is a memfd of ours; what is in it, anybody's. *ret_bytes: of the memory. */
static bool tail_read(int fd, const char *name, struct region_tail *ret_tail, uint64_t *ret_bytes)
{
	struct region_tail tail;
	struct stat stat;
	uint64_t bytes;

	if (fstat(fd, &stat) < 0 || stat.st_size <= (off_t)FABRIC_SPACE_TAIL_BYTES)
		return false;
	bytes = (uint64_t)stat.st_size;
	if (pread(fd, &tail, sizeof(tail), stat.st_size - (off_t)FABRIC_SPACE_TAIL_BYTES) !=
	    (ssize_t)sizeof(tail))
		return false;
	if (tail.alive != REGION_ALIVE || tail.id == 0 || tail.id == UINT64_MAX ||
	    tail.id >> REGION_ID_CLOCK_BITS > clock_wall_ms() + ID_AHEAD_MS ||
	    tail.bytes == 0 || tail.bytes % REGION_ROUND_BYTES ||
	    tail.bytes > bytes - FABRIC_SPACE_TAIL_BYTES ||
	    strncmp(tail.name, name, sizeof(tail.name)) != 0)
		return false;
	*ret_tail = tail;
	*ret_bytes = bytes;
	return true;
}

static struct region *id_find(struct regions *regions, uint64_t id)
{
	struct region *region;

	TAILQ_FOREACH (region, &regions->list, link)
		if (region->id == id)
			return region;
	return NULL;
}

static void give_back(const struct regions *regions, const char *name, const char *why)
{
	log_warning(regions->pool->log, "pool %s: region %s can not be used again: %s: it is given back",
		    regions->pool->name, name, why);
}

/*
 * Whoever is short of memory or of descriptors now may not be after the next start: systemd goes on keeping it, and its
 * name is taken, by a region that is good for being destroyed.
 */
static void stay_kept(struct regions *regions, const char *name)
{
	log_error(regions->pool->log,
		  "pool %s: region %s can not be used now: %s; what is in it stays kept: when that is "
		  "mended, restart tarnd, or else destroy the region",
		  regions->pool->name, name, err_text());
}

/* False: it is not to be kept any more. */
static bool adopt(struct regions *regions, const char *name, uint32_t generation, int fd)
{
	const struct pool *pool = regions->pool;
	struct config_pool config = *pool->config;
	struct pool_memory memory = {.fd = -1, .fd_read_only = -1};
	struct region_tail tail;
	struct region *region;
	uint64_t bytes;
	int rc;

	if (!tail_read(fd, name, &tail, &bytes) || id_find(regions, tail.id)) {
		give_back(regions, name, "what was kept of it is damaged");
		close(fd);
		return false;
	}
	config.file.text = "";
	/* it got what there was; "require" may have been set since */
	config.hugepages.number = CONFIG_HUGEPAGES_PREFER;
	rc = pool_memory_adopt(&config, fd, true, pool->log, &memory);
	if (rc == -EINVAL) {
		give_back(regions, name, err_text());
		return false;
	}
	region = region_new(regions, name, tail.id, tail.bytes);
	if (!region)
		rc = err_set(-ENOMEM, "out of memory");
	if (rc < 0)
		stay_kept(regions, name);
	if (!region) {
		pool_memory_free(&memory);
		return true;
	}
	region->memory = memory;
	/* what it says of its size is a writer's word */
	regions->bytes += bytes - region->counted;
	region->counted = bytes;
	region->created_ms = tail.created_ms;
	region->generation = generation;
	keeping_set(region, REGION_KEPT);
	/* later than any of before the restart: who knows one of those is told */
	region->sequence = clock_wall_ms() << REGION_ID_CLOCK_BITS;
	region->state = rc < 0 ? TARN_REGION_FAILED : TARN_REGION_READY;
	return true;
}

/* Who has it mapped, and was stopped meanwhile, learns that it is not the region's any more. */
static void alive_clear(int fd)
{
	struct stat stat;
	uint8_t *memory;

	if (fstat(fd, &stat) < 0 || stat.st_size < (off_t)FABRIC_SPACE_TAIL_BYTES)
		return;
	memory = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return;
	/* release: pairs with the acquire in fabric-shm-space.c */
	word_store_release((uint64_t *)(void *)(memory + stat.st_size - FABRIC_SPACE_TAIL_BYTES), 0);
	munmap(memory, (size_t)stat.st_size);
}

/* A resize that was not finished: this memory is of before it. */
static void superseded(struct regions *regions, const char *name, int fd)
{
	log_notice(regions->pool->log,
		   "pool %s: region %s: a restart came between the two memories of a resize: the "
		   "old one is given back",
		   regions->pool->name, name);
	alive_clear(fd);
	close(fd);
}

void regions_adopt(struct regions *regions, struct fdstore *kept)
{
	char name[WIRE_REGION_NAME_BYTES];
	const struct region *region;
	uint32_t generation;
	unsigned ready = 0;
	int fd;

	regions->kept = kept;
	/* what is not to be kept any more is given back with the rest (fdstore_forget_rest()) */
	if (!regions->pool->config->keep.number)
		return;
	/* the latest generations come first: what comes behind one that is whole is not needed any more */
	while (kept && (fd = fdstore_take_region(kept, regions->pool->name, name, &generation)) >= 0) {
		if (regions_find(regions, name))
			superseded(regions, name, fd);
		else if (wire_region_name_check(name) < 0)
			close(fd);
		else if (adopt(regions, name, generation, fd))
			continue;
		fdstore_drop_region(kept, (struct fdstore_region){.pool = regions->pool->name,
								  .name = name,
								  .generation = generation});
	}
	TAILQ_FOREACH (region, &regions->list, link)
		ready += region->state == TARN_REGION_READY;
	if (ready)
		log_notice(regions->pool->log, "pool %s: %u regions are there again",
			   regions->pool->name, ready);
}
