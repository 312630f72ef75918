/* SPDX-License-Identifier: BSD-2-Clause */
/* cluster-plan-internal.h - what cluster-plan.c and cluster-plan-moves.c share; nobody else's */
#ifndef TARN_DAEMON_CLUSTER_PLAN_INTERNAL_H
#define TARN_DAEMON_CLUSTER_PLAN_INTERNAL_H

#include "cluster-plan.h"

/* 0 or -ENOMEM with a text. */
int cluster_plan_addresses(struct cluster_member *to, const struct cluster_member *from);
/* What the planner returns: below 0, and the map is given up; else 1, and it is the caller's. */
int cluster_plan_finish(int status, struct cluster_map *next, struct cluster_map **ret_next);
/* The same; 0 if the moves are still those of `map`. */
int cluster_plan_finish_moves(int status, const struct cluster_map *map, struct cluster_map *next,
			      struct cluster_map **ret_next);
/*
 * Of each shard where it should be: a member that is up; or its owner, if it should be with one that
 * is down or nobody can take it. CLUSTER_NOBODY if it has no owner and nobody can take it. The caller
 * frees it. 0 or -ENOMEM with a text.
 */
int cluster_plan_targets(const struct cluster_map *map, uint16_t **ret_targets);
/*
 * Each shard to where it should be. What is under way to there already goes on; shards of members
 * that are down go on in their ways, too, for when these are back. 0 or -ENOMEM with a text.
 */
int cluster_plan_move_all(struct cluster_map *next);
/*
 * Ways that have no end any more get another one, if their source has to leave, else they end. Who has
 * to leave gets a way for all that it has. 0 or -ENOMEM with a text.
 */
int cluster_plan_repair(struct cluster_map *next);
/* Does all that it owns move? */
bool cluster_plan_leaves(const struct cluster_map *map, uint16_t member);

#endif
