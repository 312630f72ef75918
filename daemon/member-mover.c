/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * member-mover.c - shards of a store pool go from member to member: what handover.c wants of a mover, at the source and at the target
 *
 * Main thread. At the source it passes on to mover.c, whose thread does the work. At the target it knows which connections are movers':
 * those that were told "ready", by slot and client id; only through these keys of a shard that is coming are put. Cutting one that has
 * the pool's memory mapped is done when its process has closed it. Next to read: handover.h, mover.h; member-etcd.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cluster-publish.h"
#include "cluster-wire.h"
#include "err.h"
#include "member-internal.h"
#include "mover.h"
#include "pool.h"
#include "reload-keys.h"

#define ID_BITS    20u /* client ids of a member, of its own */
#define ID_MEMBERS (1u << (32 - ID_BITS))

/* A client of the pool that is another member's mover, by its slot. */
struct member_guest {
	uint32_t client_id; /* the first one; 0: none */
	uint16_t from;
	uint64_t number; /* of the attempt */
};

static void step_soon(struct member *member)
{
	event_active(member->timer, EV_TIMEOUT, 0);
}

/* ---- the source: what the mover tells ---- */

static void on_answered(void *arg, uint64_t number, enum handover_answer answer, uint64_t boot_id)
{
	struct member *member = arg;

	handover_answered(member->handover, number, answer, boot_id);
	step_soon(member);
}

static void complain(struct member *member, const char *what, const char *text)
{
	if (daemon_may_log(member->daemon))
		log_warning(member->log, "cluster %s: %s: %s", member->config_name, what, text);
}

static void on_copied(void *arg, int result, const char *text)
{
	struct member *member = arg;

	if (result < 0 && result != -ECANCELED)
		complain(member, "shards are not handed over now, it is tried again", text);
	handover_copied(member->handover, result);
	step_soon(member);
}

static void on_lost(void *arg, uint64_t number, const char *text)
{
	struct member *member = arg;

	log_info(member->log, "cluster %s: the connection by which shards were handed over has ended: %s", member->config_name,
		 text);
	handover_lost(member->handover, number);
	step_soon(member);
}

static void on_unreachable(void *arg, const char *text)
{
	complain(arg, "the member that shards are to be handed over to can not be asked", text);
}

static const struct mover_events mover_events = {
	.answered = on_answered,
	.copied = on_copied,
	.lost = on_lost,
	.unreachable = on_unreachable,
};

/* ---- the source: what is to be done ---- */

static const struct cluster_member *by_number(const struct cluster_map *map, uint16_t number)
{
	for (uint32_t i = 0; i < map->member_count; i++)
		if (map->members[i].number == number)
			return &map->members[i];
	return NULL;
}

/* All members of a pool with auth = key have the same keys: any one that may write will do. */
static void take_key(const struct pool *pool, struct mover_target *target)
{
	for (uint32_t i = 0; pool->auth && i < pool->keys.count && !target->has_key; i++) {
		target->has_key = pool->keys.keys[i].role == WIRE_ROLE_WRITE;
		target->key = pool->keys.keys[i];
	}
}

void member_ask(struct member *member, const struct handover_ask *ask)
{
	const struct cluster_member *to = by_number(member->map, ask->to);
	struct mover_target target = {.cluster = cluster_hash(member->map->cluster)};

	if (!member->mover || !to)
		return;
	target.address_count = to->address_count;
	memcpy(target.addresses, to->addresses, to->address_count * sizeof(*to->addresses));
	memcpy(target.pool, member->pool->name, strlen(member->pool->name) + 1);
	take_key(member->pool, &target);
	mover_ask(member->mover, &target, ask);
	explicit_bzero(&target.key, sizeof(target.key));
}

int member_copy(struct member *member, const struct handover_ask *attempt)
{
	if (!member->mover)
		return -ENOTSUP;
	mover_set_rate(member->mover, member->daemon->config->cluster.drain_rate.number);
	mover_copy(member->mover, attempt);
	return 0;
}

int member_bring(struct member *member)
{
	if (!member->mover)
		return -ENOTSUP;
	mover_bring(member->mover);
	return 0;
}

void member_drop(struct member *member)
{
	if (member->mover)
		mover_drop(member->mover);
}

const char *member_name(const struct member *member, uint16_t number)
{
	const struct cluster_member *known = by_number(member->map, number);

	return known ? known->name : NULL;
}

/* ---- the target ---- */

/* Its connection is the one that was told "ready", as long as that client is there. */
static bool is_here(const struct member *member, uint32_t slot)
{
	const struct pool_client *client = &member->pool->clients[slot];

	return member->guests[slot].client_id && client->state == LAYOUT_CLIENT_LIVE &&
	       client->first_id == member->guests[slot].client_id;
}

/* Without places it is about one shard, and has its `since`. */
static bool is_ready(struct handover *handover, const struct handover_question *question)
{
	struct handover_ask ask = {.from = question->from, .to = question->to, .number = question->number, .count = 1};

	if (question->places > 0)
		return handover_questioned(handover, question) == HANDOVER_READY;
	ask.shards[0] = question->first;
	ask.since[0] = question->hash;
	return handover_asked(handover, &ask) == HANDOVER_READY;
}

static void on_ready(void *arg, uint32_t slot, const struct wire_rpc *rpc, struct wire_rpc_reply *reply)
{
	struct member *member = arg;
	const struct handover_question question = {
		.from = (uint16_t)(rpc->delta & UINT16_MAX),
		.to = (uint16_t)(rpc->delta >> 16 & UINT16_MAX),
		.number = rpc->slot_word,
		.first = rpc->class,
		.places = (uint32_t)((uint64_t)rpc->delta >> 32),
		.hash = rpc->slot_offset,
	};

	if (question.to != member->self.number) {
		/* its address is wrong in the map, or was somebody else's before: else it would be asked for ever */
		reply->number = WIRE_READY_ANOTHER;
		reply->value = member->self.number;
		return;
	}
	if (!member->handover || !member->held || !is_ready(member->handover, &question))
		return;
	member->guests[slot] = (struct member_guest){
		.client_id = member->pool->clients[slot].first_id,
		.from = question.from,
		.number = question.number,
	};
	reply->number = WIRE_READY_NOW;
	reply->value = (int64_t)member->self.boot_id;
}

/* Who had the memory mapped when the daemon before ended. */
static int cut_strangers(struct member *member)
{
	struct pool *pool = member->pool;

	pool_unfenced_poll(pool, clock_now_ns());
	if (!pool_unfenced(pool))
		return 0;
	if (!member->waits)
		log_notice(member->log,
			   "cluster %s: pool %s: %u clients of the daemon before still have its memory mapped: shards are opened "
			   "when they have ended, or connected again (`tarn clients` lists them)",
			   member->config_name, pool->name, pool->unfenced_count);
	member->waits = true;
	return -EAGAIN;
}

int member_cut(struct member *member, uint16_t from, uint64_t number)
{
	int rc = 0;

	if (!member->guests)
		return 0;
	if (from == HANDOVER_NOBODY)
		return cut_strangers(member);
	for (uint32_t slot = 0; slot < member->pool->geometry.max_clients; slot++) {
		struct member_guest *guest = &member->guests[slot];

		if (!guest->client_id || guest->from != from || guest->number > number)
			continue;
		if (is_here(member, slot) && member->pool->clients[slot].cut)
			reload_cut(&member->pool->clients[slot], "its attempt to hand shards over is at its end");
		if (is_here(member, slot))
			rc = -EAGAIN;
		else
			guest->client_id = 0;
	}
	return rc;
}

/* ---- beginning and end ---- */

/*
 * Stamps have their client's id in them and go along with keys: those of a new pool begin where no other member's do, nor, as far as chance
 * can see to it, those of a pool of this member whose memory was lost.
 */
static void spread_client_ids(struct member *member)
{
	struct pool *pool = member->pool;

	if (pool->last_client_id == 0)
		pool->last_client_id = pool->reserved_client_id = (member->self.number % ID_MEMBERS) << ID_BITS |
								  (uint32_t)(auth_random() >> (64 - ID_BITS + 1));
}

int member_mover_begin(struct member *member)
{
	if (member->fixed || member->map->cache)
		return 0;
	member->guests = calloc(member->pool->geometry.max_clients, sizeof(*member->guests));
	if (!member->guests)
		return err_set(-ENOMEM, "out of memory");
	spread_client_ids(member);
	member->pool->ready_arg = member;
	member->pool->ready = on_ready;
	return mover_create(member->pool, member->daemon->base, &mover_events, member, &member->mover);
}

void member_mover_end(struct member *member)
{
	mover_free(member->mover);
	member->mover = NULL;
	if (member->pool)
		member->pool->ready = NULL;
}
