/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region-control.h - inside of libtarn: what is asked of the daemon about regions, as a task
 *
 * One call of tarn/region.h that makes, finds, opens or unmakes a region is several questions to the daemon, with
 * pauses where it is at work. The task goes through them; it is the same one for the blocking call and for its twin.
 * Which question is next outlives a lost connection: begun again, the task goes on there. On the session's owner.
 * Files: region-control.c, region.c (the public calls).
 */
#ifndef TARN_REGION_CONTROL_H
#define TARN_REGION_CONTROL_H

#include "err.h"
#include "region-task.h"

/* The question that is asked next, or whose answer is awaited. */
enum control_stage {
	CONTROL_STAT, /* of a name; of the one that LIST has named; of the one that is to be destroyed */
	CONTROL_LIST,
	CONTROL_CREATE,
	CONTROL_RESIZE,
	CONTROL_LOOK, /* is it ready? */
	CONTROL_UNDO, /* takes away what could not be made */
	CONTROL_DESTROY,
	CONTROL_GONE, /* is it gone? */
	CONTROL_OPEN, /* the task is that of the region, which it opens */
	CONTROL_CLOSE /* the daemon may have opened what is not wanted any more */
};

/* Of a cluster's session: which member is asked. cluster-region.c */
struct region_search {
	struct tarn_session *front; /* NULL: of no cluster, and control->session is asked */
	char at[TARN_MEMBER_NAME_MAX + 1];      /* the one that is wanted; "": any */
	char member[TARN_MEMBER_NAME_MAX + 1];  /* that is asked */
	char missing[TARN_MEMBER_NAME_MAX + 1]; /* one that could not be asked; "": none */
	uint32_t rank;                          /* of cluster_map_region() */
	uint64_t epoch;                         /* of the map when rank 0 was asked */
	unsigned tries;
	bool probing;    /* before a CREATE: is there one with another member? */
	uint64_t cursor; /* LIST: told up to this one; what is found behind it */
	struct tarn_region_info found, best;
	/* LIST: the caller's */
	uint64_t *tell_cursor;
	struct tarn_region_info *tell_info;
};

struct region_control {
	struct region_task attach; /* first: this one's task, message and answer are its */
	struct tarn_session *session;

	/* ---- what is asked for, by region.c; the rest is zero ---- */
	enum control_stage call;  /* STAT, LIST, CREATE, RESIZE, DESTROY, OPEN or CLOSE */
	enum control_stage stage; /* `call` */
	char name[WIRE_REGION_NAME_BYTES];
	uint64_t number;            /* CREATE, RESIZE: bytes; LIST: the last id */
	bool background;            /* CREATE, RESIZE: begin it, do not wait */
	bool patient;               /* the limit is from the last progress on */
	bool blocking;              /* who runs it makes the pauses: pause_ns */
	struct tarn_region *region; /* OPEN: of no session yet; CLOSE */
	/* the caller's, written at a good end */
	uint64_t *ret_cursor;
	struct tarn_region_info *ret_info;
	struct tarn_region **ret_region;

	/* ---- of the task ---- */
	bool started, asked, cut;
	bool begun;        /* the daemon was asked for something that it may go on with */
	uint64_t limit_ns; /* when it gives up */
	uint64_t pause_ns; /* blocking: not 0: it has ended to be begun again after so long */
	uint64_t next_pause_ns;
	uint64_t id;       /* of the one that is destroyed */
	uint64_t progress; /* of the one that is made */
	struct tarn_region_info info;
	int result; /* CLOSE: what the call ends with */
	char text[ERR_TEXT_BYTES];
	struct region_search search;
};

/* Prepares its task, also to go on on another connection or after a pause. The limit is the session's, the first time. */
struct task *region_control_task(struct region_control *control);
/* It ends as soon as it can. */
void region_control_cut(struct region_control *control);
/* It does not get a turn any more, with this status: returns the one that says what has become of it. */
int region_control_refuse(const struct region_control *control, int status);
/* To be begun anew, with another session; what it has left with the last one is taken away, but for the caller's region. */
void region_control_reset(struct region_control *control);
/* As much as the caller's has room for, but its size. */
void region_info_tell(const struct tarn_region_info *from, struct tarn_region_info *to);
/* What it has left, but for the struct itself. With the session held. */
void region_control_end(struct region_control *control);

#endif
