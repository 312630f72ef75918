/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member that shards of a store pool are to come to, for tests of what it answers (daemon/member-mover.c): the real handover*.c
 * behind it, walks that end at once, no cluster. Member 2 of three; member 1 has all shards but the last one, which is member 3's.
 */
#ifndef TARN_TESTS_MEMBER_TARGET_H
#define TARN_TESTS_MEMBER_TARGET_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "member-internal.h"
#include "pool.h"

#define TARGET_SHARDS  64u
#define TARGET_COMING  9u /* the shard of the move, */
#define TARGET_SINCE   5u /* which is of this epoch */
#define TARGET_BOOT_ID 0x7a1bu

struct member_target {
	struct member member;
	struct daemon daemon;
	struct cluster_map map;
	struct cluster_member members[3];
	uint16_t owners[TARGET_SHARDS];
	uint64_t since[TARGET_SHARDS], taken[TARGET_SHARDS];
	struct cluster_move move;
	bool walks;
	uint64_t now_ns;
};

static inline void target_word(void *arg, uint32_t shard, enum shard_state state, uint64_t epoch)
{
	(void)arg, (void)shard, (void)state, (void)epoch;
}

static inline int target_job(void *arg, enum handover_job job, const uint32_t *shards, uint32_t count)
{
	(void)job, (void)shards, (void)count;
	((struct member_target *)arg)->walks = true;
	return 0;
}

/* It hands nothing over itself. */
static inline int target_copy(void *arg, const struct handover_ask *attempt)
{
	(void)arg, (void)attempt;
	return -ENOTSUP;
}

static inline int target_bring(void *arg)
{
	(void)arg;
	return -ENOTSUP;
}

static inline void target_drop(void *arg)
{
	(void)arg;
}

static inline void target_ask(void *arg, const struct handover_ask *ask)
{
	(void)arg, (void)ask;
}

static inline int target_cut(void *arg, uint16_t from, uint64_t number)
{
	return member_cut(&((struct member_target *)arg)->member, from, number);
}

static inline int target_write(void *arg, const struct handover_write *write)
{
	(void)arg, (void)write;
	return -EAGAIN;
}

/* What its main loop does until there is nothing more to do. */
static inline void target_run(struct member_target *t)
{
	for (unsigned i = 0; i < 100; i++) {
		if (t->walks) {
			t->walks = false;
			handover_job_done(t->member.handover);
		}
		t->now_ns += 1000000000;
		handover_step(t->member.handover, t->now_ns);
	}
}

/* The map becomes a newer one. */
static inline void target_map(struct member_target *t)
{
	t->map.epoch++;
	if (handover_map(t->member.handover, &t->map, t->now_ns) < 0)
		abort();
}

/* The pool's shards and the base are the caller's. The map of epoch 5 has been read, nothing has been done about it. */
static inline void target_open(struct member_target *t, struct pool *pool, struct log *log, struct event_base *base)
{
	static const struct handover_ops ops = {
		.word = target_word,
		.job = target_job,
		.copy = target_copy,
		.bring = target_bring,
		.drop = target_drop,
		.ask = target_ask,
		.cut = target_cut,
		.write = target_write,
	};
	const struct handover_options options = {
		.shards = TARGET_SHARDS, .self = 2, .boot_id = TARGET_BOOT_ID, .bound_ns = 5000000000};

	*t = (struct member_target){
		.daemon = {.log = log, .pools = &t->member.pool, .pool_count = 1, .base = base},
		.map = {.cluster = "c1",
			.pool = "main",
			.epoch = TARGET_SINCE - 1,
			.seed = 1,
			.shards = TARGET_SHARDS,
			.member_count = 3,
			.members = t->members,
			.owners = t->owners,
			.since = t->since,
			.taken = t->taken,
			.move_count = 1,
			.moves = &t->move},
		.move = {.shard = TARGET_COMING, .to = 1},
		.members = {{.name = "a", .number = 1, .weight = 100},
			    {.name = "b", .number = 2, .weight = 100},
			    {.name = "c", .number = 3, .weight = 100}},
		.member = {.daemon = &t->daemon, .log = log, .pool = pool, .map = &t->map, .config_name = "c1", .held = true},
	};
	t->member.self.number = 2;
	t->member.self.boot_id = TARGET_BOOT_ID;
	for (uint32_t i = 0; i < TARGET_SHARDS; i++)
		t->since[i] = 1;
	t->since[TARGET_COMING] = TARGET_SINCE;
	t->owners[TARGET_SHARDS - 1] = 2;
	if (handover_create(&options, &ops, t, &t->member.handover) < 0 || member_mover_begin(&t->member) < 0)
		abort();
	target_map(t);
}

static inline void target_close(struct member_target *t)
{
	member_mover_end(&t->member);
	handover_free(t->member.handover);
	free(t->member.guests);
}

#endif
