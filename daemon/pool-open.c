/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool's beginning and end: memory is got, and formatted, or, when a pool is in it already, opened as
 * it is (docs/protocol.md section 7, "Restart of the daemon"); at the end it is left so that it can be
 * opened again. Main thread. Also here: the shared-memory clients that were there before us and can
 * still write (unfenced). pool-memory.c and fdstore.c get the memory, recover.c judges and finishes what
 * is in it, pool.c has what happens in between.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "events.h"
#include "fdstore.h"
#include "keeper.h"
#include "pool.h"
#include "region.h"
#include "reload-keys.h"
#include "self.h"
#include "service.h"
#include "sigbus.h"

#define UNFENCED_NS   20000000u   /* how often unfenced clients are looked at */
#define FENCE_WAIT_NS 3000000000u /* how long is waited for them when something must change */
#define END_WAIT_NS   1500000000u /* and for clients to unmap the pool at the end */
#define PROGRESS_NS   1000000000u
#define EXTEND_US     30000000u
#define SYNC_BYTES    (256ull << 20)
/* The part of the superblock that has fields. */
#define STAMPED_BYTES offsetof(struct layout_superblock, member_boot_id)
static_assert(STAMPED_BYTES % 8 == 0, "whole words");

static void plan_fill(const struct config_pool *config, const struct pool *pool,
		      const struct pool_place *place, struct layout_plan *plan)
{
	uint64_t id[2] = {auth_random(), auth_random()};

	memset(plan, 0, sizeof(*plan));
	plan->pool_bytes = pool->memory.bytes;
	plan->keys = (uint64_t)config->keys.number;
	plan->max_clients = (uint32_t)config->max_clients.number;
	plan->atomics = place->atomics;
	plan->mode =
		config->mode.number == CONFIG_MODE_CACHE ? LAYOUT_MODE_CACHE : LAYOUT_MODE_STORE;
	plan->reference_sample =
		plan->mode == LAYOUT_MODE_CACHE ? (uint32_t)config->reference_sample.number : 0;
	plan->deadline_ns = (uint64_t)config->deadline.number;
	plan->epoch_ns = (uint64_t)config->epoch.number;
	plan->grace_ns = (uint64_t)config->grace.number;
	plan->max_value_bytes = (uint64_t)config->max_value.number;
	plan->shards = place->shards;
	plan->hash_seed = place->shards ? place->hash_seed : auth_random();
	plan->incarnation = auth_random();
	plan->boot_id = auth_random();
	plan->created_ms = pool->created_ms;
	memcpy(plan->pool_id, id, sizeof(plan->pool_id));
}

void pool_host_boot_id(uint8_t ret_id[16])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned int byte;

	memset(ret_id, 0, 16);
	for (unsigned i = 0; file && i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			(void)fgetc(file); /* '-' */
		if (fscanf(file, "%2x", &byte) != 1)
			break;
		ret_id[i] = (uint8_t)byte;
	}
	if (file)
		fclose(file);
}

static struct layout_superblock *superblock(const struct pool *pool)
{
	return (struct layout_superblock *)(void *)pool->memory.base;
}

static int clients_create(struct pool *pool)
{
	pool->clients = calloc(pool->geometry.max_clients, sizeof(*pool->clients));
	return pool->clients ? 0 : err_set(-ENOMEM, "out of memory");
}

/* ---- a new pool ---- */

/* Nobody else has the memory yet, so it is written directly. */
static int format(struct pool *pool, const struct layout_plan *plan)
{
	int rc = layout_format(pool->memory.base, plan);

	if (rc < 0)
		return rc;
	pool_host_boot_id(superblock(pool)->host_boot_id);
	rc = layout_superblock_check(superblock(pool), pool->memory.bytes, &pool->geometry);
	return rc < 0 ? rc : clients_create(pool);
}

/* ---- clients that were there before us ---- */

/* What the table says of a client that holds a lock; it is told to people alone, but for the id, by
 * which a sweep that waits for it knows it again. */
static void unfenced_add(struct pool *pool, uint32_t slot)
{
	struct pool_client *client = &pool->clients[slot];
	struct layout_client image;

	self_read(pool, layout_client_offset(&pool->geometry, slot), &image, sizeof(image));
	*client = (struct pool_client){
		.state = LAYOUT_CLIENT_LIVE,
		.client_id = image.client_id,
		.first_id = image.client_id,
		.pid = image.pid,
		.uid = image.uid,
		.gid = image.gid,
		.connected_ms = image.connected_ms,
		.transport = POOL_SHM,
		.unfenced = true,
	};
	memcpy(client->name, image.name, sizeof(client->name));
	client->name[sizeof(client->name) - 1] = '\0';
	pool->client_count++;
	pool->unfenced_count++;
}

static void unfenced_find(struct pool *pool)
{
	const struct layout_geometry *g = &pool->geometry;

	if (!pool_lock_held(&pool->memory, g, 0, g->max_clients))
		return;
	for (uint32_t slot = 0; slot < g->max_clients; slot++)
		if (pool_lock_held(&pool->memory, g, slot, 1))
			unfenced_add(pool, slot);
}

void pool_unfenced_poll(struct pool *pool, uint64_t now)
{
	if (pool->unfenced_count == 0 || now < pool->unfenced_due_ns)
		return;
	pool->unfenced_due_ns = clock_now_ns() + UNFENCED_NS;
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
		struct pool_client *client = &pool->clients[slot];

		if (!client->unfenced || pool_lock_held(&pool->memory, &pool->geometry, slot, 1))
			continue;
		client->unfenced = false;
		pool->unfenced_count--;
		pool_client_end_told(pool, slot, client->name,
				     "it is of before the restart, and has unmapped the pool");
	}
	if (pool->unfenced_count == 0)
		log_info(pool->log, "pool %s: no client of before the restart is left", pool->name);
}

/* One of them, for a text. */
static const struct pool_client *unfenced_first(const struct pool *pool)
{
	const struct pool_client *client = pool->clients;

	while (!client->unfenced)
		client++;
	return client;
}

/* They work by the atomic domain and the deadline that they know: these change when nobody does. */
static int unfenced_wait(struct pool *pool)
{
	uint64_t limit = clock_now_ns() + FENCE_WAIT_NS;

	while (pool->unfenced_count > 0) {
		service_extend(EXTEND_US);
		for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
			if (!pool->clients[slot].unfenced ||
			    pool_lock_held(&pool->memory, &pool->geometry, slot, 1))
				continue;
			pool->clients[slot] = (struct pool_client){0};
			pool->client_count--;
			pool->unfenced_count--;
		}
		if (pool->unfenced_count == 0)
			break;
		if (clock_now_ns() > limit)
			return err_set(
				-EBUSY,
				"atomics, deadline or grace are to change, and %u clients of the "
				"daemon before, as pid %u %s, still have the pool mapped: end "
				"them, or set these back",
				pool->unfenced_count, unfenced_first(pool)->pid,
				unfenced_first(pool)->name);
		clock_sleep_ns(UNFENCED_NS);
	}
	return 0;
}

/* ---- a pool that was there before ---- */

struct opening {
	struct pool *pool;
	struct recover_wish wish;
	struct layout_superblock superblock; /* a checked copy */
	uint64_t said_ns;
};

static void progress(void *arg, uint64_t pages, uint64_t all)
{
	struct opening *opening = arg;
	uint64_t now = clock_now_ns();

	if (now - opening->said_ns < PROGRESS_NS)
		return;
	opening->said_ns = now;
	log_info(opening->pool->log, "pool %s: %llu of %llu pages looked through",
		 opening->pool->name, (unsigned long long)pages, (unsigned long long)all);
	service_status("pool %s: %llu of %llu pages looked through", opening->pool->name,
		       (unsigned long long)pages, (unsigned long long)all);
	service_extend(EXTEND_US);
}

/* From here on the memory is no longer as the daemon before has left it: on the disk, too, before
 * anything else changes there. */
static int begin_use(struct opening *opening)
{
	struct layout_superblock *copy = &opening->superblock;

	copy->clean_ms = 0;
	memcpy(copy->host_boot_id, opening->wish.host_boot_id, sizeof(copy->host_boot_id));
	self_write(opening->pool, 0, copy, STAMPED_BYTES);
	return pool_memory_sync(&opening->pool->memory, 0, LAYOUT_SUPERBLOCK_BYTES);
}

/* What this daemon's configuration says. The depth may have grown by a split that was finished. */
static int stamp(struct opening *opening)
{
	const struct layout_plan *plan = &opening->wish.plan;
	struct layout_superblock *copy = &opening->superblock;
	struct pool *pool = opening->pool;

	copy->global_depth = self_load(pool, LAYOUT_GLOBAL_DEPTH_OFFSET);
	copy->boot_id = plan->boot_id;
	copy->atomics = plan->atomics;
	copy->deadline_ns = plan->deadline_ns;
	copy->grace_ns = plan->grace_ns;
	copy->max_value_bytes = plan->max_value_bytes;
	copy->mode = plan->mode;
	copy->reference_sample = plan->reference_sample;
	self_write(pool, 0, copy, STAMPED_BYTES);
	return layout_superblock_check(copy, pool->memory.bytes, &pool->geometry);
}

static void opened(const struct pool *pool, bool killed)
{
	const struct recover_report *r = &pool->recovered;

	events_tell(pool->events, EVENT_pool_opened, EVENT_FIELDS(.pool = pool->name),
		  "pool %s: opened with what is in it (%s; %s): %llu orphan pages, %llu pending "
		  "slots, "
		  "%llu frozen, %llu tombstones, %llu index pages given back; %u clients of before "
		  "still have it mapped",
		  pool->name, pool->memory.path ? pool->memory.path : "kept by systemd",
		  killed ? "tarnd was killed" : "tarnd was stopped", (unsigned long long)r->orphans,
		  (unsigned long long)r->killed, (unsigned long long)r->thawed,
		  (unsigned long long)r->cleared, (unsigned long long)r->index_freed,
		  pool->unfenced_count);
	if (r->headers || r->rings || r->damaged_pages || r->damaged_slots)
		events_tell(
			pool->events, EVENT_pool_damaged, EVENT_FIELDS(.pool = pool->name),
			"pool %s: is damaged: %llu bucket headers and %llu ready rings were set "
			"right, %llu page words and %llu slots can not be: `tarn pool check` says "
			"more",
			pool->name, (unsigned long long)r->headers, (unsigned long long)r->rings,
			(unsigned long long)r->damaged_pages, (unsigned long long)r->damaged_slots);
}

static int open_kept(struct pool *pool, const struct layout_plan *plan)
{
	struct opening opening = {.pool = pool,
				  .wish = {.plan = *plan, .durable = pool->memory.durable}};
	const struct recover_progress report = {.step = progress, .arg = &opening};
	enum recover_change change;
	bool killed;
	int rc;

	opening.said_ns = clock_now_ns();
	pool_host_boot_id(opening.wish.host_boot_id);
	self_read(pool, 0, &opening.superblock, sizeof(opening.superblock));
	killed = opening.superblock.clean_ms == 0;
	rc = recover_check(&opening.superblock, pool->memory.bytes, &opening.wish, &pool->geometry,
			   &change);
	if (rc == 0)
		rc = clients_create(pool);
	if (rc < 0)
		return rc;
	pool->created_ms = opening.superblock.created_ms;
	pool->last_client_id = pool->reserved_client_id =
		(uint32_t)opening.superblock.last_client_id;
	unfenced_find(pool);
	if (change == RECOVER_FENCE_FIRST)
		rc = unfenced_wait(pool);
	/* none of them goes on with what it has read while the daemon before worked: tombstones may go */
	if (pool->unfenced_count > 0)
		clock_sleep_ns(pool->geometry.deadline_ns * 5 / 4);
	if (rc == 0)
		rc = begin_use(&opening);
	if (rc == 0)
		rc = recover_run(pool, &report, &pool->recovered);
	if (rc == 0)
		rc = stamp(&opening);
	if (rc == 0)
		opened(pool, killed);
	return rc;
}

/* ---- creation ---- */

static int memory_get(const struct config_pool *config, const struct pool_place *place,
		      struct pool *pool)
{
	bool keeps = config->keep.number && !config->file.text[0];
	int fd = keeps && place->kept ? fdstore_take(place->kept, config->name) : -1;

	if (fd >= 0)
		return pool_memory_adopt(config, fd, false, pool->log, &pool->memory);
	return pool_memory_create(config, place->numa_node, pool->log, NULL, &pool->memory);
}

/* Now that a pool is in it, the next daemon may find it. */
static int memory_keep(const struct config_pool *config, const struct pool_place *place,
		       struct pool *pool)
{
	int rc = pool_memory_publish(&pool->memory);

	if (rc < 0 || pool->memory.path || pool->memory.kept || !config->keep.number)
		return rc;
	rc = fdstore_keep(place->kept, config->name, pool->memory.fd);
	if (rc < 0)
		events_tell(pool->events, EVENT_pool_not_kept,
			  EVENT_FIELDS(.pool = pool->name, .error = rc),
			  "pool %s: %s: it will be empty after a restart", pool->name, err_text());
	else if (rc > 0)
		log_info(pool->log, "pool %s: systemd keeps its memory across restarts",
			 pool->name);
	return 0;
}

static int create_parts(const struct config_pool *config, const struct pool_place *place,
			struct pool *pool)
{
	struct layout_plan plan;
	int rc = 0;

	if (pool->auth)
		rc = auth_keys_load(config->key_file.text, &pool->keys);
	if (rc == 0)
		rc = memory_get(config, place, pool);
	if (rc < 0)
		return rc;
	plan_fill(config, pool, place, &plan);
	rc = pool->memory.kept ? open_kept(pool, &plan) : format(pool, &plan);
	if (rc == 0)
		rc = keeper_create(pool, pool->log, &pool->keeper);
	if (rc == 0)
		rc = regions_create(pool, &pool->regions);
	if (rc == 0)
		rc = memory_keep(config, place, pool);
	if (rc == 0)
		regions_adopt(pool->regions, place->kept);
	if (rc == 0)
		pool->open = true;
	return rc;
}

int pool_create(const struct config_pool *config, const struct pool_place *place,
		const struct log *log, struct pool **ret_pool)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	int rc;

	if (!pool)
		return err_set(-ENOMEM, "out of memory");
	memcpy(pool->name, config->name, sizeof(pool->name));
	pool->hash = wire_pool_hash(pool->name);
	pool->memory.fd = pool->memory.fd_read_only = -1;
	pool->created_ms = clock_wall_ms();
	pool->numa_node = place->numa_node;
	memcpy(pool->atomics_why, place->why, sizeof(pool->atomics_why));
	pool->config = config;
	pool->log = log;
	pool->events = place->events;
	pool->auth = config->auth.number == CONFIG_AUTH_KEY;
	rc = create_parts(config, place, pool);
	if (rc < 0) {
		pool_free(pool);
		return rc;
	}
	*ret_pool = pool;
	return 0;
}

/* ---- a file that is cut off ---- */

void pool_cut_off_check(struct pool *pool)
{
	if (pool->cut_off || !pool->memory.path || !sigbus_happened(pool->memory.base))
		return;
	pool->cut_off = true;
	events_tell(
		pool->events, EVENT_pool_cut_off, EVENT_FIELDS(.pool = pool->name),
		"pool %s: %s has been cut off by somebody who may write to it: the pool is lost, "
		"and its "
		"clients are ended; remove the file and restart tarnd to begin with an empty pool",
		pool->name, pool->memory.path);
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		if (pool->clients[slot].state == LAYOUT_CLIENT_LIVE)
			reload_cut(&pool->clients[slot], "the pool's file has been cut off");
}

/* ---- the end ---- */

/* What a client writes after the file was written would not belong to what is on the disk. */
static bool all_unmapped(const struct pool *pool)
{
	uint64_t limit = clock_now_ns() + END_WAIT_NS;

	while (pool_lock_held(&pool->memory, &pool->geometry, 0, pool->geometry.max_clients)) {
		if (clock_now_ns() > limit)
			return false;
		clock_sleep_ns(UNFENCED_NS);
	}
	return true;
}

static int sync_all(const struct pool *pool)
{
	uint64_t bytes = pool->memory.durable ? pool->memory.bytes : 0, part;
	int rc = 0;

	for (uint64_t offset = 0; offset < bytes && rc == 0; offset += part) {
		part = bytes - offset < SYNC_BYTES ? bytes - offset : SYNC_BYTES;
		service_extend(EXTEND_US);
		rc = pool_memory_sync(&pool->memory, offset, part);
	}
	return rc;
}

/* All connections are closed. The mark comes last. */
static void leave(struct pool *pool)
{
	self_store(pool, offsetof(struct layout_superblock, last_client_id), pool->last_client_id);
	if (pool->memory.durable && !all_unmapped(pool)) {
		log_warning(
			pool->log,
			"pool %s: a client still has it mapped: should the host go down before the "
			"next start, %s will not count as whole",
			pool->name, pool->memory.path);
		return;
	}
	if (sync_all(pool) == 0) {
		self_store(pool, offsetof(struct layout_superblock, clean_ms), clock_wall_ms());
		if (pool_memory_sync(&pool->memory, 0, LAYOUT_SUPERBLOCK_BYTES) == 0)
			return;
	}
	log_error(pool->log, "pool %s: %s", pool->name, err_text());
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	if (pool->open && !pool->cut_off)
		leave(pool);
	regions_free(pool->regions);
	keeper_free(pool->keeper);
	auth_keys_free(&pool->keys);
	pool_memory_free(&pool->memory);
	free(pool->clients);
	free(pool);
}
