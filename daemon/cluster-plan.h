/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-plan.h - the next map of a cluster, from the one that there is and what has happened or is
 * wished (docs/protocol.md, section 11)
 *
 * Pure functions: nothing is asked, written or kept, any thread. Each makes a whole map, to be
 * written if the epoch is still that of `map`; whoever is refused reads the newer map and asks again.
 * All return 1 and a map that the caller frees with cluster_map_free(); 0 if nothing has to change;
 * or a negative code with a text: -EINVAL (what is wished can not be), -ENOENT (no such member),
 * -ENOMEM. *ret_next is untouched then.
 *
 * The next map's epoch is that of `map` and 1, and so are `since` and `taken` of shards whose owner
 * changes, and `since` of those whose move ends here: membership.h says what becomes of them. Moves end at
 * their goal by handover.h, not by anything here.
 *
 * Numbers of members are never given to another one. A member that comes back, also one that has
 * left, has its number again.
 */
#ifndef TARN_DAEMON_CLUSTER_PLAN_H
#define TARN_DAEMON_CLUSTER_PLAN_H

#include "cluster-map.h"

struct cluster_plan_first {
	const char *cluster, *pool;
	bool cache;
	uint64_t seed;
	uint32_t shards;
};

/* A cluster of one member, who owns all. self: name, weight (not 0) and addresses count. */
int cluster_plan_first(const struct cluster_plan_first *first, const struct cluster_member *self,
		       struct cluster_map **ret_next);

/*
 * A member is there: name, weight and addresses of `self` count. It gets its share by moves; one that
 * was down has the shards that it had (cache pool: none), and is draining if all of them move. Of a member that is up or draining, weight and addresses are taken
 * over if they are others, and that alone moves nothing (rebalance does).
 */
int cluster_plan_join(const struct cluster_map *map, const struct cluster_member *self,
		      struct cluster_map **ret_next);

/*
 * What has to be done without anybody's wish. Who has no lease any more (alive[], per member) is down;
 * it has left, if it was draining and owns nothing. A store pool's member keeps its shards, and its moves for when it is back; in
 * a cache pool nobody owns them. Moves to one that is not up go elsewhere if their source is draining,
 * else they end; and one that is draining has a move for each shard, if anybody can take it.
 */
int cluster_plan_tend(const struct cluster_map *map, const bool *alive,
		      struct cluster_map **ret_next);

/* It gives all shards to the others. Refused if no other one could take them, or it is not up. */
int cluster_plan_drain(const struct cluster_map *map, const char *name,
		       struct cluster_map **ret_next);
/* It is up again: what was moving from it stays, and it gets its share as a new one. */
int cluster_plan_undrain(const struct cluster_map *map, const char *name,
			 struct cluster_map **ret_next);
/* Moves, so that each shard comes to where cluster_place() wants it. Shards of members that are down
 * stay, and so do those that would go to one, which has its place kept in a store pool. */
int cluster_plan_rebalance(const struct cluster_map *map, struct cluster_map **ret_next);
/*
 * A member that is down does not come back: it has left, and nobody owns its shards (they are taken
 * then, empty). Refused if it is alive, or nobody could take them.
 */
int cluster_plan_forget(const struct cluster_map *map, const char *name, bool alive,
			struct cluster_map **ret_next);

/*
 * Which shards have no owner and are this member's to take, a place in `members`: by its hand-overs, which
 * empty them first. ret_takes: per shard. Returns how many, or -ENOMEM.
 */
int cluster_plan_takes(const struct cluster_map *map, uint16_t member, bool *ret_takes);

/* Of a cache pool, in a next map: what would move is nobody's from now on, to be taken by who should have it. No moves are left. */
void cluster_plan_release(struct cluster_map *next);

/* A map to change, with the next epoch, and room for one member more and a move of each shard. The caller frees it. NULL with a
 * text. */
struct cluster_map *cluster_plan_copy(const struct cluster_map *map);
/* How many shards a member owns. */
uint32_t cluster_plan_owned(const struct cluster_map *map, uint16_t member);

#endif
