/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-task.h - inside of libtarn: an open region, and what is done with it, as a task
 *
 * A region is attached to a connection: the daemon has opened it there under a number, and the endpoint knows its
 * memory. After a reconnect the next task attaches it again. The caller's struct tarn_region stays the same.
 * On the session's owner. Files: region.c (the public calls that ask the daemon), region-access.c (those that
 * access memory), region-task.c.
 */
#ifndef TARN_REGION_TASK_H
#define TARN_REGION_TASK_H

#include "session.h"
#include "tarn/region.h"

struct tarn_region {
	LIST_ENTRY(tarn_region) link; /* of the session */
	struct tarn_session *session;
	char name[WIRE_REGION_NAME_BYTES];
	char member[TARN_MEMBER_NAME_MAX + 1]; /* of a cluster: with whom it is */
	uint64_t id; /* 0: not attached yet */
	uint64_t bytes;
	bool read_only;
	bool closed;         /* in debug builds, handle.h */
	bool gone;           /* it was destroyed: for good */
	bool attaching;      /* a task is about to */
	bool attached;       /* on the connection number `connection` */
	uint64_t connection; /* session->stats.reconnects */
	unsigned space; /* of the endpoint, and the daemon's handle: the same on each connection */
};

enum region_goal { REGION_ATTACH, REGION_ACCESS, REGION_FLUSH, REGION_NOTIFY, REGION_WAIT };

enum region_step {
	REGION_BEGIN,
	REGION_OPENING, /* the daemon's answer to OPEN is awaited */
	REGION_PIECE,   /* to MEMORY */
	REGION_READY,   /* attached */
	REGION_POSTED,
	REGION_TELLING, /* to NOTIFY */
	REGION_ARMING,  /* to WAIT */
	REGION_LISTENING
};

struct sync_call;

struct region_task {
	struct task task;
	struct sync_call *sync; /* sync-async.c: whose access it is */
	struct tarn_region *region;
	enum region_goal goal;
	enum region_step step;
	/* ACCESS and NOTIFY: the caller's until the end */
	struct tarn_region_op *ops;
	size_t count, next;        /* those before `next` are posted */
	uint64_t posted;           /* and so many bytes of that one */
	uint64_t not_after_ns;     /* ACCESS: not begun later (sync_batch()); 0: at any time */
	bool changed;              /* something was posted that may have changed the region */
	struct tarn_region_op one; /* of calls that make one access */
	/* WAIT: the caller's sequence, and then the region's; how long a notice is waited for, and an answer */
	uint64_t sequence, listen_until_ns, limit_ns;
	bool quiet;       /* it was waited for as long as wanted, and nobody has notified */
	bool fence;       /* what is next and writes, waits for what was before */
	uint32_t notices; /* the endpoint's, when it was asked */
	uint64_t flushed; /* what FLUSH reads */
	/* NOTIFY: the last bytes, which go with it, if the transport can do that */
	struct fabric_request tail;
	uint64_t tail_bytes;
	/* attaching */
	struct wire_region *pieces;
	unsigned piece_count, pieces_known;
	uint8_t message[WIRE_REGION_BYTES], answer[WIRE_REGION_BYTES];
};

/* Prepares one. With `count` 0, `ops` is NULL. Several may be under way for one region. */
struct task *region_task(struct region_task *task, struct tarn_region *region,
			 enum region_goal goal, struct tarn_region_op *ops, size_t count);
/* One step of it, for a task that is more than this one (region-control.h). */
int region_step(struct region_task *task);
/* It ends as soon as it can. */
void region_task_cut(struct region_task *task);

static inline bool region_attached(const struct tarn_region *region)
{
	return region->attached && region->connection == region->session->stats.reconnects;
}

/*
 * Enters and leaves a call on an open region: as session_enter(), session_hold() and session_leave() of its session, and of the cluster's
 * before, if it is a member's.
 */
int region_enter(const struct tarn_region *region);
int region_hold(const struct tarn_region *region);
void region_leave(struct tarn_session *session);
/* The time limit of calls of the application's session, in ms. */
uint32_t region_timeout_ms(const struct tarn_region *region);

/* 0, or -EINVAL, -TARN_EREADONLY with a text. */
int region_check(const struct tarn_region *region, const struct tarn_region_op *ops, size_t count);
/* A question to the daemon about a region. Blocks up to the time limit. 0, or a negative code with a text. */
int region_ask(struct tarn_session *session, const struct wire_region_request *request,
	       struct wire_region_reply *ret_reply);
/* What such a question ended with, by the completion's status. Likewise. */
int region_ask_reply(struct tarn_session *session, int status, const void *answer, uint32_t length,
		     struct wire_region_reply *ret_reply);

#endif
