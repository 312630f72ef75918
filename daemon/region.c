/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The regions of a pool: which there are, what state each is in, and what becomes of it when its thread is done.
 * Main thread. What may be asked for is region-rpc.c's, the work region-job.c's, who has one open
 * region-open.c's. Next: region.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "atomics.h"
#include "auth.h"
#include "clock.h"
#include "device.h"
#include "err.h"
#include "fabric.h"
#include "fdstore.h"
#include "region.h"

#define ROUND_BYTES 4096u
/* An id is not less than the clock's milliseconds, shifted; one of before a restart may be so much ahead of it. */
#define ID_CLOCK_BITS 20
#define ID_AHEAD_MS   (365ull * 86400 * 1000)

/* ---- the list ---- */

int regions_create(struct pool *pool, struct regions **ret_regions)
{
	struct regions *regions = calloc(1, sizeof(*regions));

	if (!regions)
		return err_set(-ENOMEM, "out of memory");
	regions->pool = pool;
	TAILQ_INIT(&regions->list);
	TAILQ_INIT(&regions->registrations);
	*ret_regions = regions;
	return 0;
}

struct region *regions_find(struct regions *regions, const char *name)
{
	struct region *region;

	TAILQ_FOREACH (region, &regions->list, link)
		if (strcmp(region->name, name) == 0)
			return region;
	return NULL;
}

/* How much a region of so many bytes takes, about: the memory's own rounding comes to it. */
static uint64_t memory_bytes(uint64_t bytes)
{
	return (bytes + FABRIC_SPACE_TAIL_BYTES + LAYOUT_PAGE_BYTES - 1) / LAYOUT_PAGE_BYTES *
	       LAYOUT_PAGE_BYTES;
}

static struct region *region_new(struct regions *regions, const char *name, uint64_t id,
				 uint64_t bytes)
{
	struct region *region = calloc(1, sizeof(*region)), *after;

	if (!region)
		return NULL;
	region->regions = regions;
	memcpy(region->name, name, strlen(name));
	region->id = id;
	region->bytes = bytes;
	region->memory = (struct pool_memory){.fd = -1, .fd_read_only = -1};
	TAILQ_INIT(&region->mappings);
	LIST_INIT(&region->opens);
	if (id > regions->last_id)
		regions->last_id = id;
	regions->count++;
	region->counted = memory_bytes(bytes);
	regions->bytes += region->counted;
	TAILQ_FOREACH (after, &regions->list, link)
		if (after->id > id)
			break;
	if (after)
		TAILQ_INSERT_BEFORE(after, region, link);
	else
		TAILQ_INSERT_TAIL(&regions->list, region, link);
	return region;
}

/* Nothing of it is left but this. */
static void region_forget(struct region *region)
{
	TAILQ_REMOVE(&region->regions->list, region, link);
	region->regions->count--;
	region->regions->bytes -= region->counted;
	free(region);
}

static const struct log *log_of(const struct region *region)
{
	return region->regions->pool->log;
}

/* ---- over restarts ---- */

static void keep(struct region *region)
{
	const struct pool *pool = region->regions->pool;
	int rc = pool->config->keep.number
			 ? fdstore_keep_region(pool->name, region->name, region->memory.fd)
			 : 0;

	if (rc < 0)
		log_warning(log_of(region),
			    "pool %s: region %s: %s: it will be gone after a restart", pool->name,
			    region->name, err_text());
}

static void keep_no_more(const struct region *region)
{
	const struct pool *pool = region->regions->pool;

	if (pool->config->keep.number)
		fdstore_drop_region(pool->name, region->name);
}

/* What was kept is a memfd of ours; what is in it, anybody's. */
static bool tail_valid(const struct pool_memory *memory, const char *name,
		       struct region_tail *ret_tail)
{
	struct region_tail tail;

	if (memory->bytes <= FABRIC_SPACE_TAIL_BYTES)
		return false;
	memcpy(&tail, memory->base + memory->bytes - FABRIC_SPACE_TAIL_BYTES, sizeof(tail));
	if (tail.alive != REGION_ALIVE || tail.id == 0 || tail.id >> ID_CLOCK_BITS > clock_wall_ms() + ID_AHEAD_MS ||
	    tail.bytes == 0 ||
	    tail.bytes % ROUND_BYTES || tail.bytes > memory->bytes - FABRIC_SPACE_TAIL_BYTES ||
	    strncmp(tail.name, name, sizeof(tail.name)) != 0)
		return false;
	*ret_tail = tail;
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

static bool adopt(struct regions *regions, const char *name, int fd)
{
	const struct pool *pool = regions->pool;
	struct config_pool config = *pool->config;
	struct pool_memory memory;
	struct region_tail tail;
	struct region *region;

	config.file.text = "";
	if (pool_memory_adopt(&config, fd, true, pool->log, &memory) < 0) {
		log_warning(pool->log, "pool %s: region %s can not be used again: %s", pool->name,
			    name, err_text());
		return false;
	}
	region = tail_valid(&memory, name, &tail) && !id_find(regions, tail.id) &&
				 tail.id < UINT64_MAX
			 ? region_new(regions, name, tail.id, tail.bytes)
			 : NULL;
	if (!region) {
		log_warning(pool->log,
			    "pool %s: what was kept of region %s is damaged: it is given back",
			    pool->name, name);
		pool_memory_free(&memory);
		return false;
	}
	region->memory = memory;
	/* what it says of its size is a writer's word */
	regions->bytes += memory.bytes - region->counted;
	region->counted = memory.bytes;
	region->created_ms = tail.created_ms;
	/* later than any of before the restart: who knows one of those is told */
	region->sequence = clock_wall_ms() << ID_CLOCK_BITS;
	region->state = TARN_REGION_READY;
	return true;
}

void regions_adopt(struct regions *regions, struct fdstore *kept)
{
	char name[WIRE_REGION_NAME_BYTES];
	int fd;

	/* what is not to be kept any more is given back with the rest (fdstore_forget_rest()) */
	if (!regions->pool->config->keep.number)
		return;
	while (kept && (fd = fdstore_take_region(kept, regions->pool->name, name)) >= 0) {
		if (wire_region_name_check(name) == 0 && !regions_find(regions, name) &&
		    adopt(regions, name, fd))
			continue;
		fdstore_drop_region(regions->pool->name, name);
	}
	if (regions->count)
		log_notice(regions->pool->log, "pool %s: %u regions are there again",
			   regions->pool->name, regions->count);
}

/* ---- what a thread has finished ---- */

static void failed(struct region *region, const struct region_job *job)
{
	if (job->rc != -ECANCELED)
		log_error(log_of(region), "pool %s: region %s: %s", region->regions->pool->name,
			  region->name, job->text);
}

static void ready(struct region *region)
{
	region->state = TARN_REGION_READY;
	log_info(log_of(region), "pool %s: region %s is ready: %llu bytes",
		 region->regions->pool->name, region->name, (unsigned long long)region->bytes);
}

static void created(struct region *region, struct region_job *job)
{
	if (job->rc < 0) {
		failed(region, job);
		region_memory_free(&job->memory, &job->mappings, true);
		region->state = TARN_REGION_FAILED;
		return;
	}
	region->memory = job->memory;
	TAILQ_CONCAT(&region->mappings, &job->mappings, link);
	keep(region);
	ready(region);
}

static void resized(struct region *region, struct region_job *job)
{
	struct regions *regions = region->regions;

	if (job->rc < 0) {
		failed(region, job);
		regions->bytes -= memory_bytes(job->bytes);
		region_memory_free(&job->memory, &job->mappings, true);
		region->state = TARN_REGION_READY;
		return;
	}
	/* the thread has freed what was before */
	regions->bytes -= region->counted;
	region->counted = memory_bytes(job->bytes);
	keep_no_more(region);
	region->memory = job->memory;
	TAILQ_CONCAT(&region->mappings, &job->mappings, link);
	region->bytes = job->bytes;
	keep(region);
	ready(region);
}

static void registered(struct region *region, struct region_job *job)
{
	if (job->rc < 0) {
		failed(region, job);
		region_memory_free(&job->memory, &job->mappings,
				   true); /* there is no memory in it */
		return;
	}
	TAILQ_CONCAT(&region->mappings, &job->mappings, link);
}

/* One that is to go, with nothing under way. */
static void go(struct region *region)
{
	if (region_job_start(region, REGION_JOB_FREE, region->bytes) == 0)
		return;
	region_memory_free(&region->memory, &region->mappings, true); /* in this thread */
	region_forget(region);
}

static bool lacks_mapping(const struct region *region)
{
	struct registration *registration;

	TAILQ_FOREACH (registration, &region->regions->registrations, pool_link)
		if (!registration->device->lost && !region_mapping_find(region, registration))
			return true;
	return false;
}

/* For one that can not be opened over some device yet. */
static void register_missing(struct region *region)
{
	if (region->state != TARN_REGION_READY || region->job || !lacks_mapping(region))
		return;
	err_clear();
	if (region_job_start(region, REGION_JOB_REGISTER, region->bytes) < 0)
		log_error(log_of(region), "pool %s: region %s can not be registered: %s",
			  region->regions->pool->name, region->name,
			  err_text()[0] ? err_text() : "out of memory, or no thread");
}

/* `goes`: it is to be destroyed. */
static void job_ended(struct region *region, bool goes)
{
	struct region_job job;

	region_job_finish(region, &job);
	switch (job.kind) {
	case REGION_JOB_CREATE:
		created(region, &job);
		break;
	case REGION_JOB_RESIZE:
		resized(region, &job);
		break;
	case REGION_JOB_REGISTER:
		registered(region, &job);
		break;
	case REGION_JOB_FREE:
		log_info(log_of(region), "pool %s: region %s is destroyed",
			 region->regions->pool->name, region->name);
		region_forget(region);
		return;
	}
	/* a device may have come meanwhile; one with which it failed is no reason to try again */
	if (job.rc == 0 && !goes)
		register_missing(region);
}

/* Waits for the thread, if it is not done yet. The region may be no more afterwards. */
static void job_take(struct region *region)
{
	bool goes = region->state == TARN_REGION_DESTROYING && region->job->kind != REGION_JOB_FREE;

	job_ended(region, goes);
	if (!goes)
		return;
	region->state = TARN_REGION_DESTROYING;
	keep_no_more(region);
	go(region);
}

void regions_poll(struct regions *regions)
{
	struct region *region, *next;

	for (region = TAILQ_FIRST(&regions->list); region; region = next) {
		next = TAILQ_NEXT(region, link);
		if (region->job && region_job_done(region->job))
			job_take(region);
	}
}

/* ---- what is asked for ---- */

static bool fits(const struct regions *regions, uint64_t bytes)
{
	uint64_t most = (uint64_t)regions->pool->config->region_memory.number;

	return regions->bytes <= most && memory_bytes(bytes) <= most - regions->bytes;
}

static int bytes_round(uint64_t bytes, uint64_t *ret_bytes)
{
	if (bytes == 0 || bytes > TARN_REGION_BYTES_MAX)
		return -EINVAL;
	*ret_bytes = (bytes + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
	return 0;
}

int region_create(struct regions *regions, const char *name, uint64_t bytes)
{
	uint64_t rounded;
	struct region *region;
	int rc = bytes_round(bytes, &rounded);

	if (rc < 0)
		return rc;
	if (regions_find(regions, name))
		return -TARN_EEXISTS;
	if (regions->count == REGIONS_MAX || regions->last_id == UINT64_MAX - 1)
		return -ENOSPC;
	if (!fits(regions, rounded))
		return -TARN_EQUOTA;
	/* by the clock, so that an id of before a restart does not come again */
	region = region_new(regions, name,
			    clock_wall_ms() << ID_CLOCK_BITS > regions->last_id ? clock_wall_ms() << ID_CLOCK_BITS
								     : regions->last_id + 1,
			    rounded);
	if (!region)
		return -ENOMEM;
	region->created_ms = clock_wall_ms();
	region->state = TARN_REGION_CREATING;
	rc = region_job_start(region, REGION_JOB_CREATE, rounded);
	if (rc < 0)
		region_forget(region);
	return rc;
}

int region_resize(struct region *region, uint64_t bytes)
{
	uint64_t rounded;
	int rc = bytes_round(bytes, &rounded);

	if (rc < 0)
		return rc;
	if (region->state != TARN_REGION_READY || region->job || region->open_count)
		return -TARN_EBUSY;
	if (rounded == region->bytes)
		return 0;
	if (!fits(region->regions, rounded))
		return -TARN_EQUOTA;
	rc = region_job_start(region, REGION_JOB_RESIZE, rounded);
	if (rc < 0)
		return rc;
	region->regions->bytes += memory_bytes(rounded);
	region->state = TARN_REGION_RESIZING;
	return 0;
}

/* Who is at it on shared memory does not go on, but for the access that it is in. */
static void tail_clear(struct region *region)
{
	struct pool_memory *memory = &region->memory;

	/* release: pairs with the acquire in fabric-shm-space.c */
	if (memory->base)
		word_store_release((uint64_t *)(void *)(memory->base + memory->bytes -
							FABRIC_SPACE_TAIL_BYTES),
				   0);
}

int region_destroy(struct region *region)
{
	bool resizing = region->state == TARN_REGION_RESIZING;

	if (region->state == TARN_REGION_DESTROYING)
		return 0;
	region->state = TARN_REGION_DESTROYING;
	/* while it is resized nobody has it open, and its memory is the thread's, which may just free it */
	if (resizing)
		keep_no_more(region);
	else
		tail_clear(region);
	region_cut_all(region);
	if (region->job) {
		region_job_cancel(region->job);
		return 0;
	}
	keep_no_more(region);
	go(region);
	return 0;
}

/* ---- devices ---- */

const struct region_mapping *region_mapping_find(const struct region *region,
						 const struct registration *registration)
{
	const struct region_mapping *mapping;

	TAILQ_FOREACH (mapping, &region->mappings, link)
		if (mapping->registration == registration)
			return mapping;
	return NULL;
}

void regions_registration_added(struct regions *regions, struct registration *registration)
{
	struct region *region;

	TAILQ_INSERT_TAIL(&regions->registrations, registration, pool_link);
	TAILQ_FOREACH (region, &regions->list, link)
		register_missing(region);
}

static struct region *job_find(struct regions *regions, const struct device *device)
{
	struct region *region;

	TAILQ_FOREACH (region, &regions->list, link)
		for (unsigned i = 0; region->job && i < region->job->device_count; i++)
			if (region->job->devices[i] == device)
				return region;
	return NULL;
}

void regions_registration_removed(struct regions *regions, struct registration *registration)
{
	struct region_mapping *mapping;
	struct region *region;

	TAILQ_REMOVE(&regions->registrations, registration, pool_link);
	/* a device that is lost waits for its threads; so it is the daemon's end */
	while ((region = job_find(regions, registration->device))) {
		region_job_cancel(region->job);
		job_take(region);
	}
	TAILQ_FOREACH (region, &regions->list, link) {
		/* one that is resized on other devices is its thread's, and came to none since */
		mapping = region->state == TARN_REGION_RESIZING
				  ? NULL
				  : (struct region_mapping *)region_mapping_find(region, registration);
		if (!mapping)
			continue;
		TAILQ_REMOVE(&region->mappings, mapping, link);
		registration_memory_free(&mapping->memory);
		free(mapping);
	}
}

void regions_free(struct regions *regions)
{
	struct region *region;

	if (!regions)
		return;
	while ((region = TAILQ_FIRST(&regions->list))) {
		/* what it has made is the region's: one that was resized has nothing else any more */
		if (region->job) {
			region_job_cancel(region->job);
			job_take(region);
			continue;
		}
		region_memory_free(&region->memory, &region->mappings, false);
		region_forget(region);
	}
	free(regions);
}
