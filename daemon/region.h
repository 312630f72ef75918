/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.h - the regions of a pool: memory that applications name (tarn/region.h)
 *
 * A region's memory is a memfd of its own, registered apart from the pool's on each of the pool's devices.
 * What takes long (clearing it, registering it, giving it back) is done by a thread per region, a job; all
 * else runs in the main thread. region.c has the list and the states, region-job.c the thread, region-keep.c what
 * is there after a restart, region-open.c who has what open, and who waits, region-rpc.c answers the messages.
 *
 * A resize is two jobs: one makes the new memory, whole, the other gives the old one back. Between them the new one
 * takes its place, with systemd too: a daemon that is killed leaves the old memory, or both, or the new one.
 */
#ifndef TARN_DAEMON_REGION_H
#define TARN_DAEMON_REGION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <tarn/region.h>

#include "pool.h"
#include "registration.h"
#include "wire.h"

struct region_job;
struct rpc_client;

#define REGIONS_MAX          4096u /* of a pool */
#define REGION_ROUND_BYTES   4096u
#define REGION_ID_MEMBER_SHIFT 10 /* below it: those of one millisecond */
#define REGION_ID_CLOCK_BITS 20 /* an id is not less than the clock's milliseconds, shifted by so many bits */

/* A region's memory on one device. */
struct region_mapping {
	TAILQ_ENTRY(region_mapping) link;
	struct registration *registration;
	struct registration_memory memory;
};
TAILQ_HEAD(region_mappings, region_mapping);

/*
 * The page behind a region's bytes, at the end of its memory. Clients on shared memory that may write can write
 * it, too: it is checked when it is read again, after a restart.
 */
struct region_tail {
	uint64_t alive; /* REGION_ALIVE; 0: destroyed (fabric.h) */
	uint64_t id, bytes, created_ms;
	char name[WIRE_REGION_NAME_BYTES];
};
#define REGION_ALIVE 0x31746772656e7261ull /* "arnergt1" */

/* What systemd has of it. */
enum region_keeping {
	REGION_NOT_KEPT, /* nothing, and nobody has asked */
	REGION_KEPT,     /* its memory, of this generation */
	REGION_REFUSED   /* nothing, though it should: the store is full, or systemd can not be told */
};

struct region {
	TAILQ_ENTRY(region) link; /* of the pool's, by rising id */
	struct regions *regions;
	char name[WIRE_REGION_NAME_BYTES];
	uint64_t id, bytes, created_ms;
	uint64_t counted; /* in regions->bytes */
	enum tarn_region_state state;
	struct pool_memory memory;
	struct region_mappings mappings;
	struct region_job *job; /* NULL: nothing is under way */
	LIST_HEAD(, region_open) opens;
	uint32_t open_count;
	uint64_t sequence;   /* of the last notification */
	uint32_t generation; /* of its memory: how often it was resized */
	enum region_keeping keeping;
};
TAILQ_HEAD(region_list, region);

struct regions {
	struct pool *pool;
	struct region_list list;
	struct fdstore *kept; /* NULL: nobody keeps anything */
	unsigned count;
	unsigned refused; /* REGION_REFUSED */
	uint64_t bytes; /* of memory, of all; also of what is being made */
	uint64_t last_id;
	TAILQ_HEAD(, registration) registrations; /* on which clients can come */
};

int regions_create(struct pool *pool, struct regions **ret_regions);
/* Waits for what is under way. No client is left. */
void regions_free(struct regions *regions);
/* Takes note of what threads have finished. Cheap; now and then, and before a question is answered. */
void regions_poll(struct regions *regions);
struct region *regions_find(struct regions *regions, const char *name);
/* In the list, and nothing else yet. NULL: no memory. */
struct region *region_new(struct regions *regions, const char *name, uint64_t id, uint64_t bytes);

/*
 * Begins it: 0, or -TARN_EEXISTS, -TARN_EQUOTA, -TARN_EBUSY, -TARN_ENOREGION, -EINVAL (bytes), -ENOSPC,
 * -ENOMEM, -EAGAIN (no thread). No texts: these go to a client.
 */
int region_create(struct regions *regions, const char *name, uint64_t bytes);
int region_resize(struct region *region, uint64_t bytes);
int region_destroy(struct region *region);
/* The mapping on this device, if it is whole; NULL: not, or not yet. */
const struct region_mapping *region_mapping_find(const struct region *region,
						 const struct registration *registration);

/* Clients can come over it from now on: the regions are registered there. */
void regions_registration_added(struct regions *regions, struct registration *registration);
/* It ends. Waits for a thread that uses it. */
void regions_registration_removed(struct regions *regions, struct registration *registration);

/* ---- region-keep.c: over restarts ---- */

/*
 * Those that systemd has kept; what is damaged is given back, and the log says so; what can not be mapped now stays
 * kept, as a region that is FAILED. From now on it keeps, too.
 * kept: NULL, or there as long as the regions are.
 */
void regions_adopt(struct regions *regions, struct fdstore *kept);
/* Its memory is whole: it is handed to systemd, if the pool is to be kept. That it is not is said by the log. */
void region_keep(struct region *region);
/*
 * This memory, which is whole, is kept instead of the region's: it has the next generation then. 0; a negative code
 * with a text: the region's is kept as before.
 */
int region_keep_instead(struct region *region, const struct pool_memory *memory);
void region_keep_no_more(struct region *region);

/* ---- region-job.c: what takes long ---- */

enum region_job_kind {
	REGION_JOB_CREATE,   /* memory, and its mappings */
	REGION_JOB_REGISTER, /* mappings that are missing */
	REGION_JOB_RESIZE,   /* other memory with the same bytes in it, and its mappings */
	REGION_JOB_RELEASE,  /* the memory of before that is given back */
	REGION_JOB_FREE      /* all that is given back */
};

struct region_job {
	enum region_job_kind kind;
	struct region *region;
	pthread_t thread;
	struct config_pool config; /* of the memory */
	uint64_t bytes;
	struct pool_memory memory; /* CREATE, RESIZE: the new one. FREE, RELEASE: that which goes */
	struct region_mappings
		mappings; /* CREATE, RESIZE, REGISTER: new ones. FREE, RELEASE: those that go */
	struct device **devices; /* that stay meanwhile */
	unsigned device_count;
	struct pool_memory_watch watch;
	_Atomic bool done;
	int rc;
	char text[ERR_TEXT_BYTES];
};

/* Starts region->job. 0 or a negative code. */
int region_job_start(struct region *region, enum region_job_kind kind, uint64_t bytes);
bool region_job_done(const struct region_job *job);
/* Asks it to stop: it may end with -ECANCELED. */
void region_job_cancel(struct region_job *job);
/* Waits for its end; region->job is NULL then, and what it has made is the caller's. */
int region_job_finish(struct region *region, struct region_job *ret_job);
/* Bytes that are done, and all. */
void region_job_progress(const struct region_job *job, uint64_t *ret_done, uint64_t *ret_of);
/* In the caller's thread. `forget`: also what others still have of it. */
void region_memory_free(struct pool_memory *memory, struct region_mappings *mappings, bool forget);

/* ---- region-open.c: who has it open ---- */

struct region_open {
	LIST_ENTRY(region_open) link; /* of the region */
	struct region *region;        /* NULL: it was destroyed */
	struct rpc_client *client;
	bool read_only;
	bool armed; /* a notice is owed when the region is notified */
};

/* Under a handle of the client's choice; what it has there is closed. 0, -EINVAL, -ENOMEM. */
int region_open(struct region *region, struct rpc_client *client, uint32_t handle, bool read_only);
/* NULL: it has none of this handle. */
struct region_open *region_open_find(const struct rpc_client *client, uint32_t handle);
void region_close(struct rpc_client *client, uint32_t handle);
/* The client is gone. */
void region_close_all(struct rpc_client *client);
/* The region goes: nobody has it open any more. */
void region_cut_all(struct region *region);
/*
 * What the log says of a client whose queue pair has failed: `otherwise`, unless a region was destroyed that it had
 * open, which it may not have heard of yet.
 */
const char *region_fault_text(const struct rpc_client *client, const char *otherwise);
/* Wakes who waits. */
void region_notify(struct region *region);

/* ---- region-rpc.c ---- */

/* Answers a message; *ret_fd: a descriptor that goes along, the region's; -1: none. 0 or -TARN_EPROTO. */
int region_rpc(struct pool *pool, struct rpc_client *client, const void *message, size_t bytes,
	       uint8_t ret_reply[WIRE_REGION_BYTES], int *ret_fd);
/* The descriptor that was to go along with this answer can not be sent now: it becomes -TARN_EBUSY, and nothing is open. */
void region_rpc_refuse(struct rpc_client *client, uint8_t reply[WIRE_REGION_BYTES]);
/*
 * NOTIFY by a WRITE with immediate data (in host byte order). 0; -TARN_EPROTO with a text: it names nothing that
 * the client has opened.
 */
int region_notified(struct rpc_client *client, uint32_t immediate,
		    uint8_t ret_reply[WIRE_REGION_BYTES]);
/* CAS or FAA by the CPU in a region (wire_rpc.class). 0 or a negative TARN_E. */
int32_t region_atomic(const struct rpc_client *client, const struct wire_rpc *rpc,
		      int64_t *ret_before);

#endif
