/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The regions of a pool: which there are, what state each is in, and what becomes of it when its thread is done.
 * Main thread. What may be asked for is region-rpc.c's, the work region-job.c's, who has one open
 * region-open.c's, what is there after a restart region-keep.c's. Next: region.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atomics.h"
#include "clock.h"
#include "device.h"
#include "err.h"
#include "fabric.h"
#include "region.h"

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

struct region *region_new(struct regions *regions, const char *name, uint64_t id, uint64_t bytes)
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
	region->regions->refused -= region->keeping == REGION_REFUSED;
	free(region);
}

static const struct log *log_of(const struct region *region)
{
	return region->regions->pool->log;
}

/* ---- what a thread has finished ---- */

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

static void failed(struct region *region, const struct region_job *job)
{
	if (job->rc != -ECANCELED)
		log_error(log_of(region), "pool %s: region %s: %s", region->regions->pool->name,
			  region->name, job->text);
}

static void ready(struct region *region)
{
	bool wanted = region->state != TARN_REGION_DESTROYING;

	region->state = TARN_REGION_READY;
	if (!wanted)
		return;
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
	region_keep(region);
	ready(region);
}

/* What is left of a resize is done: the old memory is gone. */
static void released(struct region *region)
{
	struct regions *regions = region->regions;

	regions->bytes -= region->counted;
	region->counted = memory_bytes(region->bytes);
	ready(region);
}

/*
 * The new memory is the region from here on, also for the next daemon: systemd has it, and has the old one no more.
 * Not before that the old one is given up, which takes a thread.
 */
static void memory_replace(struct region *region, struct region_job *job)
{
	int rc;

	tail_clear(region);
	rc = region_job_start(region, REGION_JOB_RELEASE, job->bytes);
	if (rc < 0)
		region_memory_free(&region->memory, &region->mappings, true); /* in this thread */
	region->memory = job->memory;
	TAILQ_CONCAT(&region->mappings, &job->mappings, link);
	region->bytes = job->bytes;
	if (rc < 0)
		released(region);
}

static void resized(struct region *region, struct region_job *job)
{
	if (job->rc == 0 && region->state == TARN_REGION_DESTROYING)
		job->rc = -ECANCELED;
	if (job->rc == 0) {
		job->rc = region_keep_instead(region, &job->memory);
		if (job->rc < 0)
			snprintf(job->text, sizeof(job->text), "%s: it is not resized", err_text());
	}
	if (job->rc == 0) {
		memory_replace(region, job);
		return;
	}
	failed(region, job);
	region->regions->bytes -= memory_bytes(job->bytes);
	region_memory_free(&job->memory, &job->mappings, true);
	region->state = TARN_REGION_READY;
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
	case REGION_JOB_RELEASE:
		released(region);
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
	region_keep_no_more(region);
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
	*ret_bytes = (bytes + REGION_ROUND_BYTES - 1) / REGION_ROUND_BYTES * REGION_ROUND_BYTES;
	return 0;
}

int region_create(struct regions *regions, const char *name, uint64_t bytes)
{
	/* with the member's number: no two of a cluster's have one id */
	uint64_t rounded, now = clock_wall_ms() << REGION_ID_CLOCK_BITS |
				(uint64_t)regions->pool->published.number << REGION_ID_MEMBER_SHIFT;
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
			    now > regions->last_id ? now : regions->last_id + 1, rounded);
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
	/* one of before a restart may have it mapped, and write */
	if (pool_unfenced(region->regions->pool))
		return -TARN_EBUSY;
	if (rounded == region->bytes)
		return 0;
	if (region->generation == UINT32_MAX)
		return -ENOSPC;
	if (!fits(region->regions, rounded))
		return -TARN_EQUOTA;
	rc = region_job_start(region, REGION_JOB_RESIZE, rounded);
	if (rc < 0)
		return rc;
	region->regions->bytes += memory_bytes(rounded);
	region->state = TARN_REGION_RESIZING;
	return 0;
}

int region_destroy(struct region *region)
{
	if (region->state == TARN_REGION_DESTROYING)
		return 0;
	region->state = TARN_REGION_DESTROYING;
	tail_clear(region);
	region_cut_all(region);
	region_keep_no_more(region);
	if (region->job)
		region_job_cancel(region->job);
	else
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
		mapping = (struct region_mapping *)region_mapping_find(region, registration);
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
