/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool's memory on an RDMA device: registers it, and keeps the pool's connection to itself. Main
 * thread, but for registration_memory_register(), which runs on a thread of its own and touches only what it
 * makes. Memory is registered once: never on demand (ODP), never with relaxed ordering
 * (docs/protocol.md section 1). place.c decides the pieces. Next: registration-queues.c, through
 * which the clients' messages come.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device.h"
#include "err.h"
#include "events.h"
#include "fabric.h"
#include "peer-verbs.h"
#include "place.h"
#include "region.h"
#include "registration.h"
#include "verbs.h"

#define REGIONS_MAX 4096u
#define RETRY_MS    2000

static bool in_nic_domain(const struct registration *reg)
{
	return reg->pool->geometry.atomics == LAYOUT_ATOMICS_NIC;
}

/* ---- making one ---- */

struct registration *registration_find(struct device *device, const struct pool *pool)
{
	struct registration *reg;

	TAILQ_FOREACH (reg, &device->registrations, link)
		if (reg->pool == pool)
			return reg;
	return NULL;
}

/* In a nic domain every atomic goes through one device. */
static int domain_check(const struct device *device, const struct pool *pool)
{
	struct device *other;

	if (pool->geometry.atomics != LAYOUT_ATOMICS_NIC)
		return 0;
	if (!device->verbs.atomics)
		return err_set(-ENOTSUP,
			       "%s has no atomics, and pool %s was made for a device that has: "
			       "restart tarnd",
			       device->name, pool->name);
	TAILQ_FOREACH (other, &device->rdma->devices, link)
		if (other != device && registration_find(other, pool))
			return err_set(-EBUSY,
				       "pool %s is on %s, whose atomics are not atomic against "
				       "those of %s: restart tarnd",
				       pool->name, other->name, device->name);
	return 0;
}

int registration_memory_plan(const struct registration *reg, struct registration_memory *memory)
{
	const struct device *device = reg->device;
	uint64_t pieces;

	memory->piece_bytes = place_piece_bytes(device->verbs.attr.max_mr_size, reg->max_region);
	if (!memory->piece_bytes)
		return err_set(-ENOTSUP,
			       "%s registers at most %" PRIu64 " bytes at once (max_mr_size), "
			       "needed are 2 MiB: use another device",
			       device->name, device->verbs.attr.max_mr_size);
	pieces = place_pieces(memory->bytes, memory->piece_bytes);
	if (pieces > REGIONS_MAX)
		return err_set(-EINVAL,
			       "%s would need %" PRIu64 " regions of %" PRIu64 " MiB, allowed "
			       "are %u: raise max_region, or lower its size",
			       memory->name, pieces, memory->piece_bytes >> 20, REGIONS_MAX);
	memory->count = (uint32_t)pieces;
	memory->mrs = calloc(2 * pieces, sizeof(struct ibv_mr *));
	memory->write_regions = calloc(pieces, sizeof(struct wire_region));
	memory->read_regions = calloc(pieces, sizeof(struct wire_region));
	if (!memory->mrs || !memory->write_regions || !memory->read_regions)
		return err_set(-ENOMEM, "out of memory");
	return 0;
}

static void pool_memory_name(struct registration *reg)
{
	struct registration_memory *memory = &reg->memory;

	memory->base = reg->pool->memory.base;
	memory->bytes = reg->pool->memory.bytes;
	memory->file = reg->pool->memory.durable ? reg->pool->memory.path : NULL;
	snprintf(memory->name, sizeof(memory->name), "pool %s", reg->pool->name);
}

int registration_create(struct device *device, struct pool *pool, uint64_t max_region,
			struct registration **ret_registration)
{
	struct registration *reg;
	int rc = domain_check(device, pool);

	if (rc < 0)
		return rc;
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return err_set(-ENOMEM, "out of memory");
	reg->device = device;
	reg->pool = pool;
	reg->max_region = max_region;
	pool_memory_name(reg);
	for (unsigned i = 0; i < REGISTRATION_BUCKETS; i++)
		LIST_INIT(&reg->peers[i]);
	TAILQ_INSERT_TAIL(&device->registrations, reg, link);
	rc = registration_memory_plan(reg, &reg->memory);
	if (rc == 0) {
		reg->pd = ibv_alloc_pd(device->verbs.context);
		if (!reg->pd)
			rc = err_set(-errno, "%s: no protection domain: %s", device->name,
				     strerrordesc_np(errno));
	}
	if (rc < 0) {
		registration_free(reg);
		return rc;
	}
	*ret_registration = reg;
	return 0;
}

uint64_t registration_memory_done(const struct registration_memory *memory)
{
	/* relaxed: a number for people */
	return atomic_load_explicit(&memory->done, memory_order_relaxed);
}

/* ---- the memory, on the thread ---- */

static bool may_lock_all(void)
{
	unsigned long long effective = 0;
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	if (file)
		fclose(file);
	return effective >> 14 & 1; /* CAP_IPC_LOCK */
}

/* The limit in words. */
static const char *memlock_text(char *buffer, size_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		snprintf(buffer, bytes, "unlimited");
	else
		snprintf(buffer, bytes, "%" PRIu64 " KiB", (uint64_t)limit.rlim_cur / 1024);
	return buffer;
}

int registration_memlock_check(uint64_t bytes)
{
	struct rlimit limit;
	char text[32];

	if (bytes == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return 0;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_MEMLOCK, &limit);
	}
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes || may_lock_all())
		return 0;
	return err_set(
		-ENOMEM,
		"RDMA needs to lock %.1f MiB of memory (each pool twice on each of its "
		"devices), the limit is %s: set LimitMEMLOCK=infinity in tarnd's unit (`ulimit "
		"-l unlimited` in a shell; in a container --ulimit memlock=-1, or CAP_IPC_LOCK)",
		(double)bytes / (1 << 20), memlock_text(text, sizeof(text)));
}

static int register_failed(const struct registration *reg, const struct registration_memory *memory,
			   uint64_t bytes, int error)
{
	char limit[32];

	if (error == ENOMEM || error == EAGAIN)
		return err_set(
			-ENOMEM,
			"registering %s with %s: no memory after %.1f of %.1f MiB. It is "
			"locked, twice %.1f MiB; the limit of this process is %s: set "
			"LimitMEMLOCK=infinity in tarnd's unit (`ulimit -l`); in a container give "
			"--ulimit memlock=-1 (CAP_IPC_LOCK does not help in a user namespace) and "
			"look at the cgroup's memory limit; or lower size",
			memory->name, reg->device->name,
			(double)registration_memory_done(memory) / (1 << 20),
			2 * (double)memory->bytes / (1 << 20), (double)memory->bytes / (1 << 20),
			memlock_text(limit, sizeof(limit)));
	if (error == EPERM || error == EACCES)
		return err_set(-error,
			       "registering %s with %s: %s: run as root or give tarnd "
			       "access to /dev/infiniband (group rdma)",
			       memory->name, reg->device->name, strerrordesc_np(error));
	/* "mm/gup: disallow FOLL_LONGTERM GUP-fast writing to file-backed mappings"; fsdax: always */
	if (memory->file && (error == EFAULT || error == EOPNOTSUPP || error == EINVAL))
		return err_set(-error,
			       "registering %s with %s: %s: its memory is a file on a disk or on "
			       "DAX, and Linux (since 6.5; DAX: always) refuses to lock such memory "
			       "for an adapter: put file = %s on tmpfs or hugetlbfs, or leave the "
			       "pool without an RDMA listener",
			       memory->name, reg->device->name, strerrordesc_np(error),
			       memory->file);
	return err_set(-error, "registering %.1f MiB of %s with %s: %s%s",
		       (double)bytes / (1 << 20), memory->name, reg->device->name,
		       strerrordesc_np(error),
		       error == EINVAL || error == ENOSPC
			       ? ": perhaps more than the device can register at once or in all: "
				 "set max_region to a smaller piece, or use larger hugepages"
			       : "");
}

static int register_piece(const struct registration *reg, struct registration_memory *memory,
			  uint32_t index, bool write)
{
	uint64_t offset = index * memory->piece_bytes, left = memory->bytes - offset,
		 bytes = left < memory->piece_bytes ? left : memory->piece_bytes;
	int access = IBV_ACCESS_REMOTE_READ;
	struct wire_region *region =
		write ? &memory->write_regions[index] : &memory->read_regions[index];
	struct ibv_mr *mr;

	if (write)
		access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (write && in_nic_domain(reg))
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	mr = ibv_reg_mr(reg->pd, memory->base + offset, bytes, access);
	if (!mr)
		return register_failed(reg, memory, bytes, errno);
	memory->mrs[2 * index + !write] = mr;
	region->address = (uint64_t)(uintptr_t)(memory->base + offset);
	region->length = bytes;
	region->rkey = mr->rkey;
	atomic_fetch_add_explicit(&memory->done, bytes, memory_order_relaxed);
	return 0;
}

int registration_memory_register(const struct registration *reg, struct registration_memory *memory)
{
	for (uint32_t i = 0; i < memory->count; i++) {
		for (int write = 1; write >= 0; write--) {
			int rc;

			if (atomic_load_explicit(&memory->cancel, memory_order_relaxed))
				return err_set(-ECANCELED, "registering was stopped");
			rc = register_piece(reg, memory, i, write);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

void registration_memory_free(struct registration_memory *memory)
{
	for (uint32_t i = 0; memory->mrs && i < 2 * memory->count; i++)
		if (memory->mrs[i])
			ibv_dereg_mr(memory->mrs[i]);
	free(memory->mrs);
	free(memory->write_regions);
	free(memory->read_regions);
	memory->mrs = NULL;
	memory->write_regions = memory->read_regions = NULL;
}

static void *run_main(void *arg)
{
	struct registration_run *run = arg;
	uint64_t one = 1;

	for (size_t i = 0; i < run->count && run->rc == 0; i++)
		run->rc = registration_memory_register(run->list[i], &run->list[i]->memory);
	if (run->rc < 0)
		snprintf(run->text, sizeof(run->text), "%s", err_text());
	(void)!write(run->fd, &one, sizeof(one)); /* an eventfd takes it */
	return NULL;
}

int registration_run_start(struct registration *const *list, size_t count,
			   struct registration_run **ret_run)
{
	struct registration_run *run = calloc(1, sizeof(*run));
	int rc = 0;

	if (!run)
		return err_set(-ENOMEM, "out of memory");
	run->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	run->list = calloc(count + 1, sizeof(struct registration *));
	if (run->fd < 0)
		rc = err_set(-errno, "eventfd: %s", strerrordesc_np(errno));
	else if (!run->list)
		rc = err_set(-ENOMEM, "out of memory");
	if (rc == 0) {
		memcpy(run->list, list, count * sizeof(struct registration *));
		run->count = count;
		rc = -pthread_create(&run->thread, NULL, run_main, run);
		if (rc < 0)
			err_set(rc, "no thread to register memory: %s", strerrordesc_np(-rc));
	}
	if (rc < 0) {
		if (run->fd >= 0)
			close(run->fd);
		free(run->list);
		free(run);
		return rc;
	}
	for (size_t i = 0; i < count; i++)
		list[i]->device->busy++, list[i]->device->registering++;
	*ret_run = run;
	return 0;
}

void registration_run_progress(const struct registration_run *run, uint64_t *ret_done,
			       uint64_t *ret_total)
{
	uint64_t done = 0, total = 0;

	for (size_t i = 0; i < run->count; i++) {
		done += registration_memory_done(&run->list[i]->memory);
		total += 2 * run->list[i]->pool->memory.bytes;
	}
	*ret_done = done;
	*ret_total = total;
}

void registration_run_cancel(struct registration_run *run)
{
	for (size_t i = 0; i < run->count; i++)
		atomic_store_explicit(&run->list[i]->memory.cancel, true, memory_order_relaxed);
}

int registration_run_finish(struct registration_run *run)
{
	int rc;

	pthread_join(run->thread, NULL);
	rc = run->rc;
	if (rc < 0)
		err_set(rc, "%s", run->text);
	for (size_t i = 0; i < run->count; i++)
		run->list[i]->device->busy--, run->list[i]->device->registering--;
	close(run->fd);
	free(run->list);
	free(run);
	return rc;
}

/* ---- the connection to itself ---- */

void registration_self_drop(struct registration *reg)
{
	struct pool *pool = reg->pool;

	/* in a nic domain there is one registration at a time, so it is this one's */
	if (!in_nic_domain(reg))
		return;
	if (pool->self)
		pool->self->ops->close(pool->self);
	pool->self = NULL;
	pool->self_lost = false;
}

void registration_fence(struct registration *reg, const char *why)
{
	for (unsigned i = 0; i < REGISTRATION_BUCKETS; i++) {
		struct peer_verbs *peer;

		while ((peer = LIST_FIRST(&reg->peers[i]))) {
			peer_verbs_end(peer, LOG_LEVEL_NOTICE, "%s", why);
			peer_verbs_fence_for_good(peer);
		}
	}
}

int registration_self_renew(struct registration *reg)
{
	struct fabric_endpoint *self;
	int rc;

	reg->ready = !in_nic_domain(reg);
	if (reg->ready)
		return 0;
	registration_self_drop(reg);
	rc = fabric_verbs_pair(&reg->device->verbs, reg->pd, reg->memory.write_regions,
			       reg->memory.count, &self);
	if (rc < 0)
		return rc;
	reg->pool->self = self;
	reg->ready = true;
	return 0;
}

void registration_self_try(struct registration *reg)
{
	bool first = reg->ready;

	if (registration_self_renew(reg) == 0) {
		events_tell(reg->pool->events, EVENT_self_back,
			    EVENT_FIELDS(.pool = reg->pool->name, .device = reg->device->name),
			    "pool %s: its own connection over %s works again", reg->pool->name,
			    reg->device->name);
		return;
	}
	if (first)
		events_tell(reg->pool->events, EVENT_self_lost,
			    EVENT_FIELDS(.pool = reg->pool->name, .device = reg->device->name),
			    "pool %s: no connection to itself over %s: %s: no client is let in until "
			    "there is one; trying again every 2 s",
			    reg->pool->name, reg->device->name, err_text());
}

/* ---- open and free ---- */

int registration_open(struct registration *reg)
{
	int rc = registration_queues_open(reg);

	if (rc < 0)
		return rc;
	reg->opened = true;
	regions_registration_added(reg->pool->regions, reg);
	if (in_nic_domain(reg))
		rdma_renew_soon(reg->device->rdma, RETRY_MS);
	log_info(reg->pool->log, "pool %s: registered with %s in %u region%s of up to %.1f MiB, %s",
		 reg->pool->name, reg->device->name, reg->memory.count,
		 reg->memory.count == 1 ? "" : "s",
		 (double)(reg->memory.piece_bytes < reg->memory.bytes ? reg->memory.piece_bytes
								      : reg->memory.bytes) /
			 (1 << 20),
		 reg->srq ? "one shared receive queue" : "receives on each queue pair");
	return registration_self_renew(reg);
}

void registration_free(struct registration *reg)
{
	if (!reg)
		return;
	if (reg->opened) {
		registration_self_drop(reg);
		regions_registration_removed(reg->pool->regions, reg);
	}
	registration_queues_free(reg);
	registration_memory_free(&reg->memory);
	if (reg->pd)
		ibv_dealloc_pd(reg->pd);
	TAILQ_REMOVE(&reg->device->registrations, reg, link);
	free(reg);
}
