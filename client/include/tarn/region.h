/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn/region.h - remote memory: regions, which applications read and write as they like
 *
 * A region is memory of a storage node that has a name. The daemon makes it and takes it away; everything else
 * is one-sided. Its memory and its keys are its own: nobody reaches another region, or the pool's keys and
 * values, by a wrong offset, and a region that is destroyed can not be reached any more.
 *
 *	struct tarn_region *region;
 *
 *	if (tarn_region_create(session, "board", 1 << 20, 0) < 0 ||
 *	    tarn_region_open(session, "board", 0, &region) < 0 ||
 *	    tarn_region_write(region, 4096, "hello", 5) < 0)
 *		errx(1, "%s", tarn_last_error_text());
 *
 * tarn.h is the manual of sessions, errors, threads and asynchronous calls; all of it holds here. Regions belong
 * to a pool, and the operator says how much memory they may have (`region_memory` in tarnd.conf(5)). They
 * are zero at first. They outlive their clients; and the daemon, where systemd keeps its memory (keep =
 * yes).
 *
 * Order and visibility
 *	- Accesses of one session take effect in the order in which they are made, a write before an atomic
 *	  operation before a read; but of two reads, or of what is made by asynchronous calls that are under
 *	  way at the same time, nothing is promised. Accesses of two sessions have no order but that which
 *	  atomic operations and notifications make: what a session has written before its atomic operation
 *	  is seen by whoever has seen what that operation did.
 *	- An aligned 8-byte word is read and written as a whole. Nothing larger is: who reads while another one
 *	  writes may see some words old and some new. tarn/sync.h has locks.
 *	- tarn_region_write() returns when the caller's memory is free again, and its session, on this and every
 *	  other region, can rely on the order above. It has taken effect for everybody when a later
 *	  read, atomic operation or tarn_region_flush() of the session has returned.
 *	- A write that was on its way when the connection was lost (-TARN_EAMBIGUOUS) may still take effect up to
 *	  the pool's deadline later (tarnd.conf(5)).
 *
 * Clusters
 *	A region of a cluster's session (tarn.h, "Clusters") is as a whole with one member. NAME alone: it is made with the first member
 *	by weighted rendezvous hashing of the name (docs/protocol.md, section 11). NAME@MEMBER, wherever a name is wanted: it is made, or
 *	looked for, with that member alone (-EINVAL: the cluster has none of this name). By NAME alone a region is looked for with the
 *	first member and then with the others, for the first one may have been another one when it was made; of two with one name the
 *	first one found counts. tarn_region_create() by NAME alone is -TARN_EEXISTS if any member that can be reached has one.
 *	  - -TARN_EUNAVAILABLE: the member that has the region, or that may have it, is down, or was not there until the time limit;
 *	    nothing was changed. The text names it.
 *	  - A region does not move. Members that leave or drain take none along; one that is open stays so for as long as its member
 *	    serves it.
 *	  - The order above holds among the regions of one member.
 *	  - tarn_region_list() tells of all members' regions; with a member away those of the others, and then -TARN_EUNAVAILABLE
 *	    in the place of 0.
 *
 * Errors that calls on a region may return besides those that tarn.h lists for all calls:
 *	-TARN_ENOREGION   there is no such region, or it was destroyed (also: and made anew): open it again
 *	-EINVAL           offset and bytes are not inside the region, an atomic operation not on a multiple of 8, or
 *	                  an argument is NULL; the text says which
 *	-TARN_EREADONLY   the session or the region was opened for reading only
 *	-TARN_EBUSY       after a reconnect: the region is not ready yet on the daemon's side, and was not within
 *	                  the time limit; try again
 */
#ifndef TARN_REGION_H
#define TARN_REGION_H

#include <tarn/tarn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup region Regions: remote memory @{ */
struct tarn_region;

#define TARN_REGION_NAME_MAX  39u          /* 1 to so many of [a-zA-Z0-9._-] */
#define TARN_REGION_BYTES_MAX (1ull << 40) /* 1 TiB */
#define TARN_MEMBER_NAME_MAX  63u          /* likewise, of a cluster's member */
#define TARN_REGION_OPEN_MAX  60u          /* of one session at a time */

enum tarn_region_state {
	TARN_REGION_CREATING = 1,   /* its memory is being cleared, or registered with the adapters */
	TARN_REGION_READY = 2,      /* can be opened */
	TARN_REGION_RESIZING = 3,   /* likewise; it can not be opened until that is done */
	TARN_REGION_DESTROYING = 4, /* nobody is let in any more */
	/* could not be made: destroy it; or could not be used after a restart, and is kept for the next one. tarnd's log says why */
	TARN_REGION_FAILED = 5
};

/** What is known of a region. Set `size` before; a later version may know more. */
struct tarn_region_info {
	uint32_t size;        /* sizeof(struct tarn_region_info) */
	uint32_t state;       /* enum tarn_region_state */
	uint64_t id;          /* never the same for two regions of a pool, also of one name */
	uint64_t bytes;
	uint64_t ready_bytes; /* while CREATING or RESIZING: how far it is, of ready_of_bytes */
	uint64_t ready_of_bytes;
	uint64_t created_ms; /* since 1970 */
	uint32_t opens;      /* by how many it is open now */
	uint32_t reserved;   /* 0 */
	char name[TARN_REGION_NAME_MAX + 1];
	char member[TARN_MEMBER_NAME_MAX + 1]; /* of a cluster: with whom it is; else "" */
};

/* tarn_region_create(), tarn_region_resize(): begin it, do not wait until it is ready */
#define TARN_REGION_BACKGROUND 0x1u

/**
 * Makes a region, of zeros. The daemon clears and registers its memory in the background, at some GiB/s; this
 * waits for that, for as long as it gets on and up to the time limit without any progress.
 *
 * @name: TARN_REGION_NAME_MAX; of a cluster also NAME@MEMBER. @bytes: 1 to TARN_REGION_BYTES_MAX, rounded up to 4 KiB. @flags: 0 or
 * TARN_REGION_BACKGROUND: tarn_region_stat() tells when it is ready.
 *
 * Errors: -TARN_EEXISTS; -TARN_EQUOTA: more than `region_memory` leaves; -TARN_EPOOLFULL: the node has not so
 * much memory; -TARN_EREADONLY. -TARN_ETIMEOUT, -TARN_ESESSION, -TARN_EAMBIGUOUS: it may have been begun, and goes on in the
 * background then: tarn_region_stat() tells.
 */
TARN_API TARN_MUST_CHECK int tarn_region_create(struct tarn_session *session, const char *name,
						uint64_t bytes, uint32_t flags);

/* tarn_region_open(): it can not be written by this handle; the adapter of the node sees to that */
#define TARN_REGION_READONLY 0x1u

/**
 * Opens a region. @flags: 0 or TARN_REGION_READONLY (as all are in a session that may only read).
 * @ret_region: belongs to the session; ended by tarn_region_close(), before the session is closed. Blocks a
 * few round trips, and up to the time limit for one that is being made or resized. Survives reconnects.
 *
 * Errors: -TARN_EBUSY: it is not ready yet; -TARN_EPOOLFULL: TARN_REGION_FAILED, see there; -TARN_ENOREGION;
 * -ENOSPC: TARN_REGION_OPEN_MAX are open.
 */
TARN_API TARN_MUST_CHECK int tarn_region_open(struct tarn_session *session, const char *name,
					      uint32_t flags, struct tarn_region **ret_region);

/**
 * Ends it; NULL is fine. Blocks a round trip at most. Errors: -TARN_EBUSY: an asynchronous call on it is under
 * way or not picked up; -TARN_EINUSE. Then it stays open.
 */
TARN_API int tarn_region_close(struct tarn_region *region);

/** Its size as it was opened. 0: NULL. Any thread. */
TARN_API uint64_t tarn_region_bytes(const struct tarn_region *region);

/** What is known of the region of this name. Errors: -TARN_ENOREGION. */
TARN_API TARN_MUST_CHECK int tarn_region_stat(struct tarn_session *session, const char *name,
					      struct tarn_region_info *ret_info);

/**
 * The regions of the pool, one after the other, by rising id. @cursor: 0 before the first call; is set to the
 * id of the region that is told.
 *
 * Returns 1 with one, 0 when there is none left. -TARN_EUNAVAILABLE: see "Clusters".
 */
TARN_API TARN_MUST_CHECK int tarn_region_list(struct tarn_session *session, uint64_t *cursor,
					      struct tarn_region_info *ret_info);

/**
 * Makes it larger (with zeros) or smaller. Nobody may have it open: its memory is another one then. For a moment
 * both need room. If tarnd is killed meanwhile and comes back with its memory, the region has the old size or the new
 * one, and all its bytes. @bytes, @flags, waiting and errors as tarn_region_create(); -TARN_EBUSY: it is open, or not
 * ready, or tarnd was started again and clients on its host that were there before have not come back yet.
 */
TARN_API TARN_MUST_CHECK int tarn_region_resize(struct tarn_session *session, const char *name,
						uint64_t bytes, uint32_t flags);

/**
 * Takes it away, with all that is in it, also from those who have it open: their next access ends with
 * -TARN_ENOREGION (over RDMA after a reconnect: the adapter ends the connection of who uses a key that is no
 * more; a write may be -TARN_EAMBIGUOUS). When this returns 0 nobody has access to the memory any more. (On
 * shared memory a process that does not use this library's calls has: to memory that is nobody's then.) With
 * -TARN_ETIMEOUT or -TARN_ESESSION it may have been begun, and goes on.
 */
TARN_API int tarn_region_destroy(struct tarn_session *session, const char *name);

/* ---- access ---------------------------------------------------------------------------------- */

/**
 * Reads or writes bytes at any offset. @bytes: 0 is fine. Over RDMA buffers of tarn_buffer_register() and
 * tarn_alloc() need no copy. Block.
 */
TARN_API TARN_MUST_CHECK int tarn_region_read(struct tarn_region *region, uint64_t offset,
					      void *buffer, size_t bytes);
TARN_API TARN_MUST_CHECK int tarn_region_write(struct tarn_region *region, uint64_t offset,
					       const void *data, size_t bytes);

/**
 * Atomic operations on the 8-byte word at a multiple of 8, in the byte order of the node (little-endian). They
 * are atomic among each other, by whatever client. cas: writes @swap if the word is @compare. faa: adds. Block.
 *
 * @ret_before: the word as it was (cas has worked if it is @compare); may be NULL.
 *
 * Errors: -TARN_EAMBIGUOUS: it may have been done or not.
 */
TARN_API TARN_MUST_CHECK int tarn_region_cas(struct tarn_region *region, uint64_t offset,
					     uint64_t compare, uint64_t swap, uint64_t *ret_before);
TARN_API TARN_MUST_CHECK int tarn_region_faa(struct tarn_region *region, uint64_t offset,
					     uint64_t add, uint64_t *ret_before);

/** When this has returned, every earlier write of the session has taken effect. One round trip. */
TARN_API TARN_MUST_CHECK int tarn_region_flush(struct tarn_region *region);

enum tarn_region_op_kind {
	TARN_REGION_READ = 1,
	TARN_REGION_WRITE = 2,
	TARN_REGION_CAS = 3,
	TARN_REGION_FAA = 4
};

/** One of several accesses. */
struct tarn_region_op {
	uint32_t kind;     /* enum tarn_region_op_kind */
	uint32_t reserved; /* 0 */
	uint64_t offset;
	void *buffer;      /* READ: to there. WRITE: from there, and it is not changed */
	uint64_t bytes;    /* READ, WRITE */
	uint64_t compare;  /* CAS */
	uint64_t operand;  /* CAS: the new word; FAA: what to add */
	uint64_t before;   /* CAS, FAA: the word as it was; set by the library */
};

/**
 * Several accesses in one call, handed to the adapter together (up to 64 at a time): scattered reads and writes,
 * and atomic operations behind them. In the order of the list, as if each had been a call (but reads next to each
 * other in any); so a list can read, write, and then release a lock. It is not atomic: after an error, some of them may
 * have been done (-TARN_EAMBIGUOUS if the list has more than reads).
 *
 * @ops: all are checked before the first is made. @count: 0 is fine.
 */
TARN_API TARN_MUST_CHECK int tarn_region_batch(struct tarn_region *region,
					       struct tarn_region_op *ops, size_t count);

/* ---- notifications --------------------------------------------------------------------------- */

/**
 * Writes, and then wakes those who wait for the region (tarn_region_wait()): when they are awake they see
 * what was written. The daemon's CPU passes it on; it is meant for waking, not for every message. @bytes: 0: only
 * wakes. Blocks one round trip.
 */
TARN_API TARN_MUST_CHECK int tarn_region_write_notify(struct tarn_region *region, uint64_t offset,
						      const void *data, size_t bytes);

/**
 * Waits for a notification. Sleeps; no polling of the memory. @sequence: the number of the last notification that
 * the caller knows of, 0 at first; is set to that of the latest. @timeout_ms: 0 to 3600000.
 *
 * Look at the memory after each return, and before the first call: several notifications may be told as one, and
 * after the daemon was started again one may be told that nobody has made.
 *
 * Blocks for that, and besides until the daemon has answered, up to the time limit.
 *
 * Returns 1: there is a later one; 0: the time is over. Errors: -TARN_ETIMEOUT: the daemon did not answer.
 */
TARN_API TARN_MUST_CHECK int tarn_region_wait(struct tarn_region *region, uint64_t *sequence,
					      uint32_t timeout_ms);

/* ---- asynchronous ---------------------------------------------------------------------------- */

/**
 * The asynchronous twins of the calls that access memory: see above, and "Asynchronous calls and batches" in tarn.h. What they are given (also the
 * list of a batch) is the library's until the completion was picked up. In the completion `kind` is
 * TARN_OP_REGION or TARN_OP_REGION_WAIT; `value` is what cas and faa have found, as a signed number, and of a wait
 * the sequence. A wait's deadline is its async->timeout_ms; its status is -TARN_ETIMEOUT when it is over. Up to 64 waits of a
 * session, and calls of those below and of tarn/sync.h that wait, may be under way (-TARN_EBUSY); they hold nothing else
 * up.
 */
TARN_API TARN_MUST_CHECK int tarn_region_read_async(struct tarn_region *region, uint64_t offset,
						    void *buffer, size_t bytes,
						    const struct tarn_async *async,
						    uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_write_async(struct tarn_region *region, uint64_t offset,
						     const void *data, size_t bytes,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_cas_async(struct tarn_region *region, uint64_t offset,
						   uint64_t compare, uint64_t swap,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_faa_async(struct tarn_region *region, uint64_t offset,
						   uint64_t add, const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_flush_async(struct tarn_region *region,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_batch_async(struct tarn_region *region,
						     struct tarn_region_op *ops, size_t count,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_write_notify_async(struct tarn_region *region,
							    uint64_t offset, const void *data,
							    size_t bytes,
							    const struct tarn_async *async,
							    uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_wait_async(struct tarn_region *region, uint64_t sequence,
						    const struct tarn_async *async,
						    uint64_t *ret_op);

/**
 * The asynchronous twins of tarn_region_create(), tarn_region_resize(), tarn_region_destroy(), tarn_region_open(),
 * tarn_region_close(), tarn_region_stat() and tarn_region_list(): see there for the arguments, and above for the completion, whose `kind` is
 * TARN_OP_REGION_CONTROL; `status` is what the blocking call would have returned (list: 1 with a region, 0 when there is
 * none left). The name is copied. What is filled in (@ret_region, @ret_info, @cursor) is the library's until the
 * completion was picked up, and is set if the status is not negative.
 *
 * Deadline: async->timeout_ms from now, whatever is going on. 0, or no @async: the session's time limit, which begins
 * again, as that of the blocking call does, as long as the daemon gets on with it.
 *
 * tarn_region_close_async(): from the call on the region can not be used any more (-EINVAL), and with its completion it is
 * gone. The status is 0, also if it was cancelled, its time is over or the connection is lost: the daemon closes then what
 * it does not hear of with the connection. @region: NULL is -EINVAL; one that is in use is -TARN_EBUSY, and stays open.
 *
 * -TARN_ECANCELED, of a call that was cancelled: nothing was changed, and nothing was opened. -TARN_ETIMEOUT of create,
 * resize and destroy, also of one that was cancelled: it may have been begun, and goes on in the background then;
 * tarn_region_stat() tells.
 *
 * After a lost connection, on the next one: what only looks is asked again; so is what the daemon had not been asked
 * for yet. A destroy whose answer was lost looks first whether it is the same region still. A create whose answer was lost is -TARN_EAMBIGUOUS, and so is a resize if the region is busy then; what the
 * daemon has said that it is at is waited for further.
 *
 * Errors at once: what the blocking call says of its arguments (-EINVAL, -TARN_EREADONLY); -TARN_EBUSY: 64 such calls and
 * waits are under way; -TARN_EINUSE; -ENOMEM. -ENOSPC of open is in the completion.
 */
TARN_API TARN_MUST_CHECK int tarn_region_create_async(struct tarn_session *session,
						      const char *name, uint64_t bytes,
						      uint32_t flags,
						      const struct tarn_async *async,
						      uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_resize_async(struct tarn_session *session,
						      const char *name, uint64_t bytes,
						      uint32_t flags,
						      const struct tarn_async *async,
						      uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_destroy_async(struct tarn_session *session,
						       const char *name,
						       const struct tarn_async *async,
						       uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_open_async(struct tarn_session *session, const char *name,
						    uint32_t flags, struct tarn_region **ret_region,
						    const struct tarn_async *async,
						    uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_close_async(struct tarn_region *region,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_stat_async(struct tarn_session *session, const char *name,
						    struct tarn_region_info *ret_info,
						    const struct tarn_async *async,
						    uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_region_list_async(struct tarn_session *session, uint64_t *cursor,
						    struct tarn_region_info *ret_info,
						    const struct tarn_async *async,
						    uint64_t *ret_op);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
