/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-async.h - inside of cluster-async.c and cluster-pick.c: asynchronous calls of a cluster's session
 *
 * FREE -> UNDER_WAY (of a member's engine) -> ARRIVED (to be judged) -> ENDED -> picked up, FREE; or WAITS, to be begun again.
 */
#ifndef TARN_CLUSTER_ASYNC_H
#define TARN_CLUSTER_ASYNC_H

#include "cluster.h"
#include "engine.h"

struct cluster_op {
	TAILQ_ENTRY(cluster_op) link; /* of the list of its state; under way: of none */
	enum { CALL_FREE, CALL_WAITS, CALL_UNDER_WAY, CALL_ARRIVED, CALL_ENDED } state;
	uint32_t serial;
	struct op asked; /* as it was filled in for a session, with its limit */
	tarn_done *done;
	bool cancelled;
	struct cluster_route route;
	uint64_t epoch; /* of the map when it was begun */
	unsigned tries;
	uint64_t wake_ns; /* waits, arrived: not to be looked at before */
	struct tarn_session *member; /* under way: with it, as that operation */
	struct op *op;
	struct tarn_completion completion;
};
TAILQ_HEAD(cluster_ops, cluster_op);

struct cluster_async {
	struct tarn_session *session;
	struct cluster_op *ops;
	struct cluster_ops free, waits, arrived, ended;
	unsigned in_flight; /* that have not ended */
	unsigned lasting;   /* of those: op_lasts() */
	uint64_t asked_ns;  /* whether there is a newer map, last */
};

/* What it has of its own: it has been picked up, or the session ends. */
void cluster_call_release(struct cluster_op *call);

static inline uint64_t cluster_call_id(const struct cluster_async *a,
				       const struct cluster_op *call)
{
	return (uint64_t)call->serial << 32 | (uint64_t)(call - a->ops + 1);
}

#endif
