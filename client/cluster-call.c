/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-call.c - one blocking operation on a key of a cluster
 *
 * Runs on the session's owner. Nobody changes the map meanwhile but the operation itself, when it has to ask. What an operation's
 * result is worth is judged behind it, by the rules of docs/protocol.md, section 11, "a client's map is fresh". Next to
 * read: cluster.h; cluster-batch.c for many of them.
 */
#include <string.h>

#include "clock.h"
#include "cluster.h"
#include "err.h"
#include "shard.h"

struct call {
	struct tarn_session *session;
	struct cluster *cluster;
	enum cluster_kind kind;
	const void *key;
	size_t key_bytes;
	struct layout_hash hash;
	uint32_t shard;
	uint64_t limit_ns; /* 0: not known yet, which is cheaper */
	unsigned tries;
	struct cluster_route route;
};

static uint64_t call_limit(struct call *call)
{
	if (call->limit_ns == 0)
		call->limit_ns = clock_now_ns() + call->session->timeout_ns;
	return call->limit_ns;
}

static bool cache_read(const struct call *call)
{
	return call->kind == CLUSTER_READ && call->cluster->map->cache;
}

/* Nothing of it is left to find: in a cache pool that is a miss. */
static int missing(void)
{
	return err_set(-TARN_ENOTFOUND, "no such key");
}

/* Reads of store pools go on with an old map: their shards do not change without their owners. */
static int make_fresh(struct call *call)
{
	char text[ERR_TEXT_BYTES];
	int ret;

	if (call->kind == CLUSTER_READ && !cache_read(call))
		return 0;
	if (__builtin_expect(cluster_fresh(call->cluster), 1))
		return 0;
	strcpy(text, err_text()); /* of what is judged */
	ret = cluster_refresh(call->session, call_limit(call));
	if (ret == 0)
		err_set(0, "%s", text);
	return ret < 0 && cache_read(call) ? missing() : ret;
}

/* May a result be believed that says something of the shard, or has changed it? */
static int judge(struct call *call, int result)
{
	bool changed = call->kind == CLUSTER_WRITE && result == 0;
	int ret;

	/* it says that nothing is known, or nothing of the shard */
	if (result < 0 && result != -TARN_ENOTFOUND && result != -TARN_EEXISTS &&
	    result != -TARN_ESTAMP && result != -TARN_ETYPE && result != -TARN_ETOOSMALL)
		return result;
	ret = make_fresh(call);
	if (ret < 0 && changed)
		return err_set(-TARN_EAMBIGUOUS,
			       "it was done, and may not count, since the shard may be with another member by now: %s",
			       err_text());
	if (ret < 0)
		return ret;
	if (__builtin_expect(!cluster_taken(call->cluster, &call->route), 1))
		return result;
	return changed ? err_set(-TARN_EAMBIGUOUS,
				 "shard %u was taken from its member meanwhile: the write may not count",
				 call->shard)
		       : -TARN_EMOVED;
}

/* Whose geometry has the map's seed: cluster.c has looked. */
static int run_at(struct call *call, struct tarn_session *member,
		  int (*run)(struct tarn_session *member, void *arg), void *arg)
{
	int ret;

	member->hashed_key = call->key;
	member->hashed_bytes = call->key_bytes;
	member->hashed = call->hash;
	ret = run(member, arg);
	member->hashed_key = NULL;
	return ret;
}

static int attempt(struct call *call, int (*run)(struct tarn_session *member, void *arg), void *arg)
{
	struct tarn_session *member;
	int ret = call->kind == CLUSTER_WRITE ? make_fresh(call) : 0;

	if (ret < 0)
		return ret;
	ret = cluster_route(call->cluster, call->shard, &call->route);
	if (ret < 0)
		return ret;
	/* with a connection that stands no clock is looked at: that would be a part of a near get's time that counts */
	member = cluster_node_standing(call->cluster, call->route.place);
	if (__builtin_expect(!member, 0))
		ret = cluster_node_session(call->session, call->route.place,
					   call->limit_ns ? call->limit_ns
							  : clock_now_ns() + call->session->timeout_ns,
					   &member);
	if (ret < 0)
		return ret;
	member->timeout_ns = call->session->timeout_ns;
	if (call->limit_ns) {
		uint64_t now = clock_now_ns();

		member->timeout_ns = call->limit_ns > now + 1000000 ? call->limit_ns - now : 1000000;
	}
	return judge(call, run_at(call, member, run, arg));
}

/* True: begin again. Else *ret_result is the call's. */
static bool again(struct call *call, uint64_t epoch, int *ret_result)
{
	bool nobody = *ret_result == -TARN_EUNAVAILABLE;

	if (!nobody && !cluster_passes(*ret_result))
		return false;
	/* a cache pool's key whose member is not there is a miss, unless it is elsewhere by now */
	if (cache_read(call) && *ret_result != -TARN_EMOVED) {
		if (call->tries == 0 && cluster_again(call->session, epoch, &call->tries, call_limit(call)))
			return true;
		*ret_result = missing();
		return false;
	}
	/* down: nothing to wait for but for a map that says something else */
	if (nobody && !call->cluster->map->cache && call->tries > 0)
		return false;
	if (cluster_again(call->session, epoch, &call->tries, call_limit(call)))
		return true;
	*ret_result = nobody ? cluster_route(call->cluster, call->shard, &call->route)
			     : cluster_unavailable(call->cluster, call->shard);
	return *ret_result == 0;
}

int cluster_call(struct tarn_session *s, enum cluster_kind kind, const void *key, size_t key_bytes,
		 int (*run)(struct tarn_session *member, void *arg), void *arg)
{
	struct call call = {.session = s, .kind = kind, .key = key, .key_bytes = key_bytes};
	uint64_t epoch;
	int ret = cluster_hold(s);

	if (__builtin_expect(ret < 0, 0))
		return ret;
	call.cluster = s->cluster;
	call.hash = layout_hash_key(key, key_bytes, s->cluster->map->seed);
	call.shard = shard_of(call.hash, s->cluster->map->shards);
	do {
		epoch = s->cluster->map->epoch;
		ret = attempt(&call, run, arg);
	} while (__builtin_expect(ret < 0, 0) && again(&call, epoch, &ret));
	cluster_leave(s);
	return ret;
}
