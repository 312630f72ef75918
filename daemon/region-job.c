/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread of a region: clears its memory, registers it with the pool's devices, copies it, gives it back.
 * It touches what stands in its job alone, and the devices, which stay while it runs (device->busy). Everything
 * else of this file is the main thread's. Next: region.c, which begins jobs and takes what they have made.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <linux/falloc.h>

#include "clock.h"
#include "device.h"
#include "err.h"
#include "fabric.h"
#include "rdma.h"
#include "region.h"

#define COPY_BYTES (64u << 20) /* between two looks whether to stop */

/* ---- on the thread ---- */

static bool cancelled(const struct region_job *job)
{
	/* relaxed: nothing hangs on when exactly it stops */
	return atomic_load_explicit(&job->watch.cancel, memory_order_relaxed);
}

static int memory_make(struct region_job *job)
{
	int rc = pool_memory_create(&job->config, job->region->regions->pool->numa_node,
				    job->region->regions->pool->log, &job->watch, &job->memory);
	struct region_tail *tail;

	if (rc < 0)
		return rc;
	tail = (struct region_tail *)(void *)(job->memory.base + job->memory.bytes -
					      FABRIC_SPACE_TAIL_BYTES);
	/* nobody else has this memory yet */
	*tail = (struct region_tail){
		.alive = REGION_ALIVE,
		.id = job->region->id,
		.bytes = job->bytes,
		.created_ms = job->region->created_ms,
	};
	memcpy(tail->name, job->region->name, sizeof(tail->name));
	return 0;
}

static int mappings_register(struct region_job *job)
{
	struct region_mapping *mapping;
	int rc = 0;

	TAILQ_FOREACH (mapping, &job->mappings, link) {
		mapping->memory.base = job->kind == REGION_JOB_REGISTER ? job->region->memory.base
									: job->memory.base;
		if (rc == 0)
			rc = registration_memory_register(mapping->registration, &mapping->memory);
	}
	return rc;
}

/* Nobody has the region open. */
static int copy(struct region_job *job)
{
	uint64_t bytes = job->bytes < job->region->bytes ? job->bytes : job->region->bytes, part;

	for (uint64_t at = 0; at < bytes; at += part) {
		part = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
		memcpy(job->memory.base + at, job->region->memory.base + at, part);
		if (cancelled(job))
			return err_set(-ECANCELED, "stopped");
	}
	return 0;
}

static bool gives_back(const struct region_job *job)
{
	return job->kind == REGION_JOB_FREE || job->kind == REGION_JOB_RELEASE;
}

static int work(struct region_job *job)
{
	int rc = 0;

	switch (job->kind) {
	case REGION_JOB_FREE:
	case REGION_JOB_RELEASE:
		region_memory_free(&job->memory, &job->mappings, true);
		return 0;
	case REGION_JOB_REGISTER:
		return mappings_register(job);
	case REGION_JOB_CREATE:
	case REGION_JOB_RESIZE:
		rc = memory_make(job);
		break;
	}
	if (rc == 0 && job->kind == REGION_JOB_RESIZE)
		rc = copy(job);
	if (rc == 0)
		rc = mappings_register(job);
	return rc;
}

static void *job_main(void *arg)
{
	struct region_job *job = arg;

	job->rc = work(job);
	if (job->rc < 0)
		snprintf(job->text, sizeof(job->text), "%s", err_text());
	/* release: what was made is there for who sees this (region_job_done()) */
	atomic_store_explicit(&job->done, true, memory_order_release);
	return NULL;
}

void region_memory_free(struct pool_memory *memory, struct region_mappings *mappings, bool forget)
{
	struct region_mapping *mapping;

	while ((mapping = TAILQ_FIRST(mappings))) {
		TAILQ_REMOVE(mappings, mapping, link);
		registration_memory_free(&mapping->memory);
		free(mapping);
	}
	/* neither a client on shared memory that has it mapped nor systemd keeps any of it */
	if (forget && memory->fd >= 0)
		(void)fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				(off_t)(memory->bytes - FABRIC_SPACE_TAIL_BYTES));
	pool_memory_free(memory);
}

/* ---- main thread ---- */

/* Behind the others, also on failure. */
static int mapping_add(struct region_job *job, struct registration *registration)
{
	struct region_mapping *mapping = calloc(1, sizeof(*mapping));
	const struct region *region = job->region;
	int rc;

	if (!mapping)
		return -ENOMEM;
	mapping->registration = registration;
	mapping->memory.bytes = job->bytes;
	snprintf(mapping->memory.name, sizeof(mapping->memory.name), "region %s of pool %s",
		 region->name, region->regions->pool->name);
	TAILQ_INSERT_TAIL(&job->mappings, mapping, link);
	rc = registration_memory_plan(registration, &mapping->memory);
	return rc;
}

/* Those that the region, or its new memory, does not have. */
static int mappings_plan(struct region_job *job)
{
	struct registration *registration;
	int rc = 0;

	TAILQ_FOREACH (registration, &job->region->regions->registrations, pool_link) {
		if (registration->device->lost)
			continue;
		if (job->kind == REGION_JOB_REGISTER &&
		    region_mapping_find(job->region, registration))
			continue;
		if (rc == 0)
			rc = mapping_add(job, registration);
	}
	return rc;
}

/* The devices wait for the thread's end. */
static int devices_hold(struct region_job *job)
{
	struct region_mapping *mapping;
	unsigned count = 0;

	TAILQ_FOREACH (mapping, &job->mappings, link)
		count++;
	job->devices = calloc(count + 1, sizeof(struct device *));
	if (!job->devices)
		return -ENOMEM;
	TAILQ_FOREACH (mapping, &job->mappings, link) {
		job->devices[job->device_count++] = mapping->registration->device;
		mapping->registration->device->busy++;
	}
	return 0;
}

static void devices_release(struct region_job *job)
{
	for (unsigned i = 0; i < job->device_count; i++) {
		job->devices[i]->busy--;
		if (job->devices[i]->lost)
			rdma_sweep_soon(job->devices[i]->rdma); /* it has waited for us */
	}
	free(job->devices);
	job->devices = NULL;
	job->device_count = 0;
}

static void memory_config(struct region_job *job)
{
	const struct pool *pool = job->region->regions->pool;

	job->config = *pool->config;
	job->config.file.text = "";
	job->config.size.number = (int64_t)(job->bytes + FABRIC_SPACE_TAIL_BYTES);
	(void)snprintf(job->config.name, sizeof(job->config.name), "%.20s.%s", pool->name,
		       job->region->name);
}

int region_job_start(struct region *region, enum region_job_kind kind, uint64_t bytes)
{
	struct region_job *job = calloc(1, sizeof(*job));
	int rc = 0;

	if (!job)
		return -ENOMEM;
	job->kind = kind;
	job->region = region;
	job->bytes = bytes;
	job->memory = (struct pool_memory){.fd = -1, .fd_read_only = -1};
	TAILQ_INIT(&job->mappings);
	memory_config(job);
	if (gives_back(job)) {
		job->memory = region->memory;
		region->memory = (struct pool_memory){.fd = -1, .fd_read_only = -1};
		TAILQ_CONCAT(&job->mappings, &region->mappings, link);
	} else {
		rc = mappings_plan(job);
	}
	if (rc == 0)
		rc = devices_hold(job);
	if (rc == 0)
		rc = -pthread_create(&job->thread, NULL, job_main, job);
	if (rc == 0) {
		region->job = job;
		return 0;
	}
	devices_release(job);
	region_memory_free(&job->memory, &job->mappings, true);
	free(job);
	return rc;
}

bool region_job_done(const struct region_job *job)
{
	/* acquire: pairs with the release of job_main() */
	return atomic_load_explicit(&job->done, memory_order_acquire);
}

void region_job_cancel(struct region_job *job)
{
	struct region_mapping *mapping;

	atomic_store_explicit(&job->watch.cancel, true, memory_order_relaxed);
	if (gives_back(job))
		return;
	TAILQ_FOREACH (mapping, &job->mappings, link)
		atomic_store_explicit(&mapping->memory.cancel, true, memory_order_relaxed);
}

int region_job_finish(struct region *region, struct region_job *ret_job)
{
	struct region_job *job = region->job;

	pthread_join(job->thread, NULL);
	devices_release(job);
	region->job = NULL;
	*ret_job = *job;
	TAILQ_INIT(&ret_job->mappings);
	TAILQ_CONCAT(&ret_job->mappings, &job->mappings, link);
	free(job);
	return ret_job->rc;
}

void region_job_progress(const struct region_job *job, uint64_t *ret_done, uint64_t *ret_of)
{
	const struct region_mapping *mapping;
	/* relaxed: numbers for people */
	uint64_t done = atomic_load_explicit(&job->watch.done, memory_order_relaxed),
		 of = job->bytes;

	if (done > of)
		done = of;
	if (gives_back(job)) {
		*ret_done = *ret_of = job->kind == REGION_JOB_RELEASE ? job->bytes : 0;
		return;
	}
	TAILQ_FOREACH (mapping, &job->mappings, link) {
		done += registration_memory_done(&mapping->memory);
		of += 2 * mapping->memory.bytes;
	}
	*ret_done = done;
	*ret_of = of;
}
