/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover.c - the stages of each shard at this member: what it is by the map, what it is here, and
 * which walk brings the one to the other
 *
 * docs/protocol.md section 11. A stage's name says what is still to be done; settle() is what a new map does to
 * it, the step functions are what time and walks do. One thread, no I/O. Next to read: handover-attempt.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "handover-internal.h"
#include "mutation.h"

int handover_create(const struct handover_options *options, const struct handover_ops *ops,
		    void *arg, struct handover **ret_handover)
{
	struct handover *h = calloc(1, sizeof(*h));

	if (h != NULL) {
		h->shards = calloc(options->shards, sizeof(*h->shards));
		h->job_shards = calloc(options->shards, sizeof(*h->job_shards));
		h->write.changes = calloc(options->shards, sizeof(*h->write.changes));
	}
	if (h == NULL || h->shards == NULL || h->job_shards == NULL || h->write.changes == NULL) {
		handover_free(h);
		return err_set(-ENOMEM, "no memory for %u shards", options->shards);
	}
	h->options = *options;
	h->ops = *ops;
	h->arg = arg;
	h->first = h->strangers = true;
	h->batch = HANDOVER_BATCH_MIN;
	*ret_handover = h;
	return 0;
}

void handover_free(struct handover *h)
{
	if (h == NULL)
		return;
	free(h->shards);
	free(h->job_shards);
	free(h->write.changes);
	free(h);
}

/* ---- words ---- */

static enum shard_state word_state(const struct handover *h, const struct handover_shard *s)
{
	switch (s->stage) {
	case STAGE_NONE:
	case STAGE_DIRTY:
	case STAGE_LEAVING:
	case STAGE_CUTTING:
	case STAGE_EMPTYING:
	case STAGE_ENTERING:
	case STAGE_RECOVER:
		return SHARD_GONE;
	case STAGE_READY:
		return SHARD_INCOMING;
	case STAGE_OPENING:
	case STAGE_OPEN:
		return SHARD_OPEN;
	case STAGE_OUT:
		return h->attempt.word;
	}
	return SHARD_GONE;
}

void handover_show(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];
	enum shard_state state = word_state(h, s);
	uint64_t epoch = state == SHARD_GONE ? 0 : s->key, word = shard_word_make(state, epoch);

	/* behind a fence all are "gone", whatever a walk that ends then has made of the stage */
	if (word == s->shown || (h->fenced && !MUTATED(MUTATION_FENCEDWORD)))
		return;
	s->shown = word;
	h->ops.word(h->arg, shard, state, epoch);
}

static void set_stage(struct handover *h, uint32_t shard, enum shard_stage stage)
{
	h->shards[shard].stage = stage;
	h->shards[shard].busy = false;
	handover_show(h, shard);
}

void handover_reopen(struct handover *h, uint32_t shard)
{
	set_stage(h, shard, STAGE_OPENING);
}

/* ---- what a new map does ---- */

enum target { TARGET_NOT, TARGET_MOVE, TARGET_TAKE };

static enum target target_of(const struct handover *h, const struct handover_shard *s)
{
	if (s->claimed || (s->owner == HANDOVER_NOBODY && s->take))
		return TARGET_TAKE;
	if (s->owner != HANDOVER_NOBODY && s->to == h->options.self)
		return TARGET_MOVE;
	return TARGET_NOT;
}

/* It is not ours: is it to be prepared, or emptied, or is it what it should be already? */
static void settle_foreign(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];
	enum target target = target_of(h, s);
	bool prepared =
		s->stage == STAGE_CUTTING || s->stage == STAGE_EMPTYING || s->stage == STAGE_READY;

	if (target != TARGET_NOT) {
		/* of another attempt: whatever is here is that one's */
		if (prepared && s->key == s->since && s->taking == (target == TARGET_TAKE))
			return;
		s->key = s->since;
		s->taking = target == TARGET_TAKE;
		set_stage(h, shard, STAGE_CUTTING);
	} else if (prepared || s->stage == STAGE_ENTERING) {
		set_stage(h, shard, STAGE_LEAVING);
	} else if (s->stage >= STAGE_OPENING) {
		set_stage(h, shard, STAGE_DIRTY);
	}
}

static void settle_own(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];
	bool same = s->since == s->key && s->to != HANDOVER_NOBODY;

	switch (s->stage) {
	case STAGE_NONE:
	case STAGE_DIRTY:
	case STAGE_LEAVING:
	case STAGE_CUTTING:
	case STAGE_EMPTYING:
	case STAGE_READY:
	case STAGE_ENTERING:
		s->key = s->since;
		set_stage(h, shard, STAGE_ENTERING);
		break;
	case STAGE_OPENING:
	case STAGE_OPEN:
		s->key = s->since;
		handover_show(h, shard);
		break;
	case STAGE_OUT:
		if (same && s->to == h->attempt.ask.to)
			break;
		/* given up */
		s->key = s->since;
		set_stage(h, shard, STAGE_OPENING);
		break;
	case STAGE_RECOVER:
		if (same)
			break;
		s->key = s->since;
		set_stage(h, shard, STAGE_ENTERING);
		break;
	}
}

static void settle(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];

	if (handover_mine(h, s) && !s->claimed)
		settle_own(h, shard);
	else
		settle_foreign(h, shard);
}

/* Of a process that has just begun: nobody knows what is in the memory. */
static void settle_first(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];

	s->key = s->since;
	s->stage = STAGE_DIRTY;
	if (handover_mine(h, s) && s->to != HANDOVER_NOBODY && !MUTATED(MUTATION_NOABORT))
		s->stage = STAGE_RECOVER;
	if (!handover_mine(h, s) && s->owner != HANDOVER_NOBODY && MUTATED(MUTATION_FORGETS)) {
		set_stage(h, shard, STAGE_OPENING);
		return;
	}
	settle(h, shard);
}

static int take_over(struct handover *h, const struct cluster_map *map, uint64_t now_ns)
{
	bool known = h->epoch != 0;

	for (uint32_t i = 0; i < map->shards; i++) {
		struct handover_shard *s = &h->shards[i];
		uint16_t place = map->owners[i], owner = place == CLUSTER_NOBODY
								 ? HANDOVER_NOBODY
								 : map->members[place].number;
		bool was_mine = known && handover_mine(h, s);

		if (owner == HANDOVER_NOBODY &&
		    (s->owner != owner || s->since != map->since[i] || !known))
			s->nobody_ns = now_ns;
		s->owner = owner;
		s->since = map->since[i];
		s->to = HANDOVER_NOBODY;
		if (owner != HANDOVER_NOBODY)
			s->take = false;
		if (!handover_mine(h, s)) {
			s->claimed = false;
		} else if (h->options.fixed && known && !was_mine) {
			s->claimed = true;
			s->nobody_ns = now_ns;
		}
	}
	for (uint32_t i = 0; i < map->move_count; i++)
		h->shards[map->moves[i].shard].to = map->members[map->moves[i].to].number;
	h->epoch = map->epoch;
	return 0;
}

int handover_map(struct handover *h, const struct cluster_map *map, uint64_t now_ns)
{
	bool member = false;

	for (uint32_t i = 0; i < map->member_count; i++)
		member |= map->members[i].number == h->options.self;
	if (map->shards != h->options.shards || !member)
		return err_set(-EINVAL,
			       "the map of epoch %llu has %u shards and %s member of number %u: it "
			       "is not that of "
			       "this pool, which has %u shards",
			       (unsigned long long)map->epoch, map->shards, member ? "a" : "no",
			       h->options.self, h->options.shards);
	if (map->epoch < h->epoch || (map->epoch == h->epoch && !h->fenced))
		return 0;
	take_over(h, map, now_ns);
	h->fenced = false;
	for (uint32_t i = 0; i < map->shards; i++) {
		if (h->first)
			settle_first(h, i);
		else
			settle(h, i);
		/* behind a fence it was not, whatever the stage */
		handover_show(h, i);
	}
	h->first = false;
	attempt_map_changed(h);
	return 0;
}

void handover_fence(struct handover *h)
{
	if (h->fenced || h->first)
		return;
	h->fenced = true;
	for (uint32_t i = 0; i < h->options.shards; i++) {
		struct handover_shard *s = &h->shards[i];

		s->shown = shard_word_make(SHARD_GONE, 0);
		/* a request for the switch may be under way */
		if (s->stage == STAGE_OUT) {
			s->stage = STAGE_RECOVER;
			s->busy = false;
		}
	}
	if (h->attempt.phase != HANDOVER_IDLE)
		h->ops.drop(h->arg);
	h->attempt.phase = HANDOVER_IDLE;
}

void handover_take(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];

	if (h->first || s->owner != HANDOVER_NOBODY || s->take)
		return;
	s->take = true;
	if (!h->fenced)
		settle(h, shard);
}

/* ---- connections of movers are cut ---- */

static bool cuts(enum shard_stage stage)
{
	return stage == STAGE_CUTTING || stage == STAGE_ENTERING || stage == STAGE_LEAVING;
}

static void have_cut(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];

	s->mover = HANDOVER_NOBODY;
	s->number = 0;
	if (s->stage == STAGE_CUTTING && s->taking && MUTATED(MUTATION_TAKEFIRST))
		set_stage(h, shard, STAGE_READY);
	else if (s->stage == STAGE_CUTTING)
		set_stage(h, shard, STAGE_EMPTYING);
	else if (s->stage == STAGE_LEAVING)
		set_stage(h, shard, STAGE_DIRTY);
	else
		set_stage(h, shard, STAGE_OPENING);
}

static bool cut_step(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	uint16_t mover = HANDOVER_NOBODY; /* the one that was asked for last */
	uint64_t number = 0;
	int rc = 0;
	bool done = false;

	if (MUTATED(MUTATION_MOVER))
		h->strangers = false;
	if (h->strangers) {
		if (h->ops.cut(h->arg, HANDOVER_NOBODY, 0) != 0) {
			handover_due(next, now_ns + HANDOVER_RETRY_NS / 10);
			return false;
		}
		h->strangers = false;
	}
	for (uint32_t i = 0; i < h->options.shards; i++) {
		const struct handover_shard *s = &h->shards[i];

		/* a walk that empties it must not go on in an open shard */
		if (!cuts(s->stage) || (s->in_job && s->stage == STAGE_ENTERING &&
					!MUTATED(MUTATION_TAKEBOOT)))
			continue;
		if (s->mover != HANDOVER_NOBODY && (s->mover != mover || s->number != number) &&
		    !MUTATED(MUTATION_MOVER)) {
			mover = s->mover;
			number = s->number;
			rc = h->ops.cut(h->arg, mover, number);
		}
		if (s->mover != HANDOVER_NOBODY && rc != 0 && !MUTATED(MUTATION_MOVER)) {
			handover_due(next, now_ns + HANDOVER_RETRY_NS / 10);
			continue;
		}
		have_cut(h, i);
		done = true;
	}
	return done;
}

/* ---- walks ---- */

/* With TAKEFIRST what was here is emptied behind the opening. */
static enum handover_job job_of(const struct handover_shard *s)
{
	if (s->stage == STAGE_OPENING)
		return s->taking && MUTATED(MUTATION_TAKEFIRST) ? HANDOVER_EMPTY : HANDOVER_THAW;
	return HANDOVER_EMPTY;
}

static bool walks(const struct handover_shard *s, bool opening)
{
	if (opening)
		return s->stage == STAGE_OPENING;
	return s->stage == STAGE_EMPTYING || s->stage == STAGE_DIRTY;
}

static int begin_job(struct handover *h, enum handover_job job)
{
	int rc = h->ops.job(h->arg, job, h->job_shards, h->job_count);

	if (rc < 0)
		return rc;
	h->job = job;
	h->job_number = h->attempt.ask.number;
	h->job_runs = true;
	for (uint32_t i = 0; i < h->job_count; i++)
		h->shards[h->job_shards[i]].busy = h->shards[h->job_shards[i]].in_job = true;
	return 0;
}

int handover_begin_freeze(struct handover *h)
{
	h->job_count = h->attempt.ask.count;
	memcpy(h->job_shards, h->attempt.ask.shards, h->job_count * sizeof(*h->job_shards));
	return begin_job(h, HANDOVER_FREEZE);
}

/* Those that are to be opened first: somebody waits for them. */
static bool job_step(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	for (int opening = 1; opening >= 0; opening--) {
		enum handover_job job = HANDOVER_EMPTY;

		h->job_count = 0;
		for (uint32_t i = 0; i < h->options.shards; i++) {
			if (!walks(&h->shards[i], opening))
				continue;
			if (h->job_count > 0 && job_of(&h->shards[i]) != job)
				continue;
			job = job_of(&h->shards[i]);
			h->job_shards[h->job_count++] = i;
		}
		if (h->job_count == 0)
			continue;
		if (begin_job(h, job) == 0)
			return true;
		h->job_ns = now_ns + HANDOVER_RETRY_NS;
		handover_due(next, h->job_ns);
		return false;
	}
	return false;
}

static void shard_walked(struct handover *h, uint32_t shard)
{
	struct handover_shard *s = &h->shards[shard];

	s->in_job = false;
	/* not of this stage any more, or it came back to it: then it was begun too early */
	if (!s->busy)
		return;
	s->busy = false;
	if (s->stage == STAGE_OPENING)
		set_stage(h, shard, STAGE_OPEN);
	else if (s->stage == STAGE_EMPTYING)
		set_stage(h, shard, STAGE_READY);
	else if (s->stage == STAGE_DIRTY)
		set_stage(h, shard, STAGE_NONE);
}

static bool job_end_step(struct handover *h)
{
	if (!h->job_ended)
		return false;
	h->job_ended = h->job_runs = false;
	for (uint32_t i = 0; i < h->job_count; i++)
		shard_walked(h, h->job_shards[i]);
	if (h->job == HANDOVER_FREEZE && h->attempt.phase == HANDOVER_FREEZING &&
	    h->attempt.ask.number == h->job_number)
		attempt_frozen(h);
	return true;
}

/* A fixed map's: when the old file's time is over, it is ours. */
static bool claim_step(struct handover *h, uint64_t now_ns, uint64_t *next)
{
	uint64_t wait_ns = h->options.bound_ns + h->options.bound_ns / 8;
	bool done = false;

	if (!h->options.fixed)
		return false;
	for (uint32_t i = 0; i < h->options.shards; i++) {
		struct handover_shard *s = &h->shards[i];

		if (!s->claimed || s->stage != STAGE_READY)
			continue;
		if (now_ns - s->nobody_ns < wait_ns) {
			handover_due(next, s->nobody_ns + wait_ns);
			continue;
		}
		s->claimed = false;
		settle(h, i);
		done = true;
	}
	return done;
}

uint64_t handover_step(struct handover *h, uint64_t now_ns)
{
	uint64_t next;
	bool more;

	if (h->first || h->fenced) {
		/* what has ended meanwhile is noted all the same */
		if (!h->first)
			job_end_step(h);
		return UINT64_MAX;
	}
	do {
		next = UINT64_MAX;
		more = job_end_step(h);
		more |= cut_step(h, now_ns, &next);
		more |= claim_step(h, now_ns, &next);
		more |= attempt_step(h, now_ns, &next);
		if (!h->job_runs && now_ns >= h->job_ns)
			more |= job_step(h, now_ns, &next);
		else if (!h->job_runs)
			handover_due(&next, h->job_ns);
		more |= attempt_write_step(h, now_ns, &next);
	} while (more);
	return next;
}

void handover_job_done(struct handover *h)
{
	h->job_ended = true;
}

/* ---- for people ---- */

void handover_get_stats(const struct handover *h, struct handover_stats *ret_stats)
{
	struct handover_stats stats = h->stats;

	for (uint32_t i = 0; i < h->options.shards; i++) {
		const struct handover_shard *s = &h->shards[i];

		stats.owned += handover_mine(h, s);
		stats.open += s->stage == STAGE_OPEN ||
			      (s->stage == STAGE_OUT && h->attempt.word == SHARD_OPEN);
		stats.outgoing += handover_mine(h, s) && s->to != HANDOVER_NOBODY;
		stats.incoming += s->to == h->options.self;
		stats.ready += s->stage == STAGE_READY;
		stats.clearing += s->stage == STAGE_DIRTY || s->stage == STAGE_LEAVING;
	}
	stats.phase = h->attempt.phase;
	stats.fenced = h->fenced;
	if (stats.phase != HANDOVER_IDLE) {
		stats.to = h->attempt.ask.to;
		stats.shards = h->attempt.ask.count;
	}
	*ret_stats = stats;
}

const char *handover_phase_name(enum handover_phase phase)
{
	switch (phase) {
	case HANDOVER_IDLE:
		return "idle";
	case HANDOVER_ASKING:
		return "asking";
	case HANDOVER_COPYING:
		return "copying";
	case HANDOVER_FREEZING:
		return "freezing";
	case HANDOVER_BRINGING:
		return "bringing";
	case HANDOVER_SWITCHING:
		return "switching";
	case HANDOVER_GIVING_UP:
		return "giving-up";
	}
	return "unknown";
}
