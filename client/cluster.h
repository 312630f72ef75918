/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster.h - inside of libtarn: a session with a whole cluster (docs/protocol.md, section 11)
 *
 * To the application it is one session. It has no connection of its own, but the map of the cluster and, per
 * member that was needed, an ordinary session, which is told by `since` what its member has. Who owns the cluster's session
 * owns these, too; housekeeping does not know them. An operation goes to the member that has its key's shard; when the map
 * turns out to be old, or the member is not there, the newest one is fetched from any member and the operation begun again, until its
 * time limit.
 */
#ifndef TARN_CLUSTER_H
#define TARN_CLUSTER_H

#include "cluster-map.h"
#include "session.h"
#include "uri.h"

#define CLUSTER_BOUND_NS 5000000000u /* unless the URI's map_bound= says otherwise */
#define CLUSTER_ASK_NS   400000000u /* housekeeping asks a member with the first visit behind this */

/* What a member says of its map. */
struct cluster_answer {
	uint64_t epoch;
	uint64_t age_ns; /* since that was known to be the newest */
	uint16_t number; /* the member's */
};

/* How members are reached: cluster-connect.c, or a test. Times are clock_now_ns()'s. All errors have a text. */
struct cluster_source {
	/* A session with the i-th node that the application has named; -ENOENT: it has named no more. */
	int (*seed)(struct cluster_source *source, unsigned i, uint64_t timeout_ns,
		    struct tarn_session **ret_session);
	/* One with a member, by the addresses that the map has for it. */
	int (*member)(struct cluster_source *source, const struct cluster_map *map,
		      const struct cluster_member *member, uint64_t timeout_ns,
		      struct tarn_session **ret_session);
	/* What a member knows; and the map that it has. With the session held by nobody. */
	int (*ask)(struct cluster_source *source, struct tarn_session *session, uint64_t timeout_ns,
		   struct cluster_answer *ret_answer);
	int (*fetch)(struct cluster_source *source, struct tarn_session *session,
		     uint64_t timeout_ns, struct cluster_map **ret_map);
	/* CLOCK_BOOTTIME: how old a map is is counted with time that goes on in suspended machines. */
	uint64_t (*boottime)(struct cluster_source *source);
	void (*free)(struct cluster_source *source);
};

/* A member, in the order of the map's. */
struct cluster_node {
	uint16_t number;
	struct tarn_session *session; /* NULL: none yet, or it is no good */
	uint64_t *since;              /* of each shard; 0: not this member's */
	uint64_t epoch;               /* the highest that it has told */
	uint64_t try_ns, delay_ns;    /* opening: not before; the last pause */
	char why[160];                /* it could not be opened */
};

struct cluster {
	struct tarn_session *session; /* whose this is */
	struct cluster_source *source;
	struct cluster_map *map;
	struct cluster_node *nodes; /* map->member_count */
	uint64_t bound_ns;
	uint64_t fresh_ns; /* boottime: as of then the map is known to be the newest */
	uint64_t asked_ns; /* housekeeping's last question, on the session's clock */
	uint32_t asked;    /* the node that has answered last */
	char wrong[200];   /* what was not right with a member, of the last round of questions; "": nothing */
	int timer;         /* in session->event_fd; -1: none */
	uint64_t timer_ns; /* when it wakes */
	struct cluster_async *async; /* NULL: there were no asynchronous calls */
	struct tarn_session_stats gone; /* of sessions with members that are no more */
	/* with members that the map has no more, or that were not right: the application has regions open there. By `housekeeping` */
	LIST_HEAD(, tarn_session) retired;
};

/*
 * Takes the source over (also on failure). Fetches the map from one of the seeds; blocks up to the time limit of the options. 0,
 * or a negative code with a text that names all that were tried. `options`: merged ones.
 */
int cluster_open(struct cluster_source *source, const struct tarn_options *options,
		 uint64_t bound_ns, struct tarn_session **ret_session);
/* The same with what the application has given: some of the members. cluster-connect.c. */
int cluster_connect(const struct uri *uri, const struct tarn_options *options,
		    struct tarn_session **ret_session);
/* How members are reached, of themselves: a session with one looks at no shard's word until it is told `since`. Copies both. */
int cluster_source_create(const struct uri *uri, const struct tarn_options *options,
			  struct cluster_source **ret_source);
/* With the session held; it is freed, too. */
void cluster_close(struct tarn_session *session);
/* session_hold() and session_leave() of a cluster's session. */
int cluster_hold(struct tarn_session *session);
void cluster_leave(struct tarn_session *session);
/* Housekeeping's visit; up to *budget_ns for what is not there. With the session held. */
void cluster_look_after(struct tarn_session *session, uint64_t *budget_ns);

/* ---- the map ---- */

/* Is the map known to have been the newest within the bound? */
bool cluster_fresh(const struct cluster *cluster);
/*
 * Asks members until one says that the map is the newest, or gives that. 0: it is fresh; -TARN_EMAP with a text: none did until
 * the limit, which is on the session's clock.
 */
int cluster_refresh(struct tarn_session *session, uint64_t limit_ns);
/* Asks all that are connected, or all, whether there is a newer one: then it is the map. */
bool cluster_newer(struct tarn_session *session, uint64_t limit_ns, bool connect);
/* The session with the member in this place of the map, connected as far as is known; one try. Negative code with a text. */
int cluster_node_session(struct tarn_session *session, uint32_t place, uint64_t limit_ns,
			 struct tarn_session **ret_session);
/* The same, if it is connected as far as is known; else NULL. */
static inline struct tarn_session *cluster_node_standing(const struct cluster *c, uint32_t place)
{
	struct tarn_session *session = c->nodes[place].session;

	return session && !session->lost ? session : NULL;
}
static inline const struct cluster_member *cluster_member(const struct cluster *c, uint32_t place)
{
	return &c->map->members[place];
}
/* All sessions with members, one after the other; begin with NULL. NULL: that was the last one. */
struct tarn_session *cluster_session_next(const struct cluster *c, const struct tarn_session *after);
/* Ends those that are in no map and of no use any more. */
void cluster_prune(struct cluster *c);
/* Is it of use to try again what ended so: the member is not there, or has not the shard? */
bool cluster_passes(int result);

/* ---- cluster-route.c: whose is a shard now ---- */

/* What an operation is begun with. */
struct cluster_route {
	uint32_t shard, place;
	uint64_t since; /* since when that member has the shard */
	uint64_t epoch; /* of the map that says so */
};
/* 0; -TARN_EUNAVAILABLE with a text: nobody serves it, by the map. */
int cluster_route(const struct cluster *cluster, uint32_t shard, struct cluster_route *ret_route);
/* Has the shard been taken from the member since, so that what it did may not count? */
static inline bool cluster_taken(const struct cluster *c, const struct cluster_route *route)
{
	/* in one map it never is */
	return c->map->epoch != route->epoch && c->map->taken[route->shard] > route->since;
}
/* Before something is done again that ended with a code that passes: a newer map, or a pause. False: the time is up. */
bool cluster_again(struct tarn_session *session, uint64_t began_epoch, unsigned *tries,
		   uint64_t limit_ns);
/* -TARN_EUNAVAILABLE with a text: member, shard, and what it said last. */
int cluster_unavailable(const struct cluster *cluster, uint32_t shard);

/* ---- what the public functions do with a cluster's session ---- */

enum cluster_kind { CLUSTER_READ, CLUSTER_WRITE };
/* cluster-call.c: `run` does it with the member's session, which it enters itself. */
int cluster_call(struct tarn_session *session, enum cluster_kind kind, const void *key,
		 size_t key_bytes, int (*run)(struct tarn_session *member, void *arg), void *arg);
/* cluster-batch.c */
int cluster_mget(struct tarn_session *session, struct tarn_mget *items, size_t count);
int cluster_mput(struct tarn_session *session, struct tarn_mput *items, size_t count);
int cluster_mdelete(struct tarn_session *session, struct tarn_mdelete *items, size_t count);
/* cluster-async.c. `asked`: as for async_begin(); about a region it is not. */
struct op;
int cluster_async_begin(struct tarn_session *session, const struct op *asked,
			const struct tarn_async *async, uint64_t *ret_op);
int cluster_poll(struct tarn_session *session, struct tarn_completion *list, size_t max,
		 size_t *ret_count);
int cluster_wait(struct tarn_session *session, uint32_t timeout_ms);
int cluster_cancel(struct tarn_session *session, uint64_t id);
/* What is under way goes on. True: something has moved. With the session held. */
bool cluster_async_turn(struct cluster *cluster);
/* The sessions with members are about to be closed: all calls end. Then they are. */
void cluster_async_stop(struct cluster *cluster);
void cluster_async_free(struct cluster *cluster);
/* cluster-scan.c. Of a walk that has this session, with it held but for cluster_scan_next(). */
struct cluster_scan;
int cluster_scan_create(struct tarn_scan *walk);
void cluster_scan_free(struct cluster_scan *scan);
int cluster_scan_next(struct tarn_scan *walk, const void **ret_key, size_t *ret_key_bytes,
		      struct tarn_item *ret_item);
uint32_t cluster_scan_progress(const struct tarn_scan *walk);
/* At most TARN_SCAN_POSITION_BYTES. The way back, into a new walk: 0, or -EINVAL with a text. */
size_t cluster_scan_save(const struct tarn_scan *walk, uint8_t *ret_bytes);
int cluster_scan_load(struct tarn_scan *walk, const void *bytes, size_t n);
/*
 * 1: the walk over a member that the next key is to come from, whose session is connected as far as is known; unless it is at a
 * key that was kept. 0: the walk is over. Else a code, one that passes among them.
 */
int cluster_scan_step(struct tarn_scan *walk, uint64_t limit_ns, struct tarn_scan **ret_member);
/* It can not go on without a fresh map: in a cache pool it passes shards that nobody has. */
bool cluster_scan_skips(const struct tarn_scan *walk);
/* What that walk's call has ended with: true: it is the whole's result. In a cache pool the map is fresh. */
bool cluster_scan_judge(struct tarn_scan *walk, int *ret_result);
/* It can not be judged yet; is there a key of which that is so; and the key, kept or just judged. */
void cluster_scan_keep(struct tarn_scan *walk, int result, const struct tarn_item *item);
bool cluster_scan_found(const struct tarn_scan *walk);
const void *cluster_scan_key(const struct tarn_scan *walk, size_t *ret_key_bytes,
			     struct tarn_item *ret_item);
/* cluster-async.c: the walk is closed before its asynchronous call has been picked up. */
void cluster_async_scan_closed(struct tarn_scan *walk);
/* ---- cluster-region.c ---- */
struct region_control;
struct tarn_region;
/* What is asked for, by a name that may say the member; a list. The first: 0, or -EINVAL with a text. */
int cluster_region_name(struct tarn_session *session, const char *name, struct region_control *control);
void cluster_region_list(struct tarn_session *session, struct region_control *control);
/* A blocking call, to its end. What it has left is taken away. */
int cluster_region_run(struct region_control *control);
/* The session with the member that is asked next, connected as far as is known. Negative code with a text; -ENOENT: all have been asked. */
int cluster_region_pick(struct region_control *control, uint64_t limit_ns,
			struct tarn_session **ret_member);
/* What the member's answer, or that it can not be asked, means: it is the result, or the next one is to be picked, now or a little later. */
enum cluster_search { SEARCH_END, SEARCH_ON, SEARCH_LATER };
enum cluster_search cluster_region_next(struct region_control *control, int *result);
/* Asynchronous calls that are under way or have not been picked up. */
bool cluster_region_in_use(const struct tarn_region *region);
/* cluster-buffer.c: a session that was just made gets what is registered; what its connection does not take is copied. 0 or a code with a text. */
int cluster_buffer_adopt(struct tarn_session *member);
/* cluster-watch.c: tarn_session_fd(); whenever nothing is under way; before a session with a member is closed. */
int cluster_fd(struct tarn_session *session);
void cluster_watch(struct tarn_session *session);
void cluster_unwatch(struct cluster *cluster, struct tarn_session *member);
/* cluster-session.c */
int cluster_process(struct tarn_session *session);
int cluster_set_timeout(struct tarn_session *session, uint32_t timeout_ms);
int cluster_stats(struct tarn_session *session, struct tarn_session_stats *ret_stats);
int cluster_pool_info(struct tarn_session *session, struct tarn_pool_info *ret_info);
int cluster_ping(struct tarn_session *session, uint64_t *ret_ns);

#endif
