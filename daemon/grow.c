/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides which subtable is split when, and clears up behind splits; see grow.h. Main thread, called
 * by keeper.c. It goes round over all subtables and looks at a sample of the slots of each: how full
 * it is, how fast the index fills, and which tombstones are left. split.c does the splitting. Read
 * docs/protocol.md section 8 with it.
 */
#include <errno.h>
#include <stdlib.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "err.h"
#include "events.h"
#include "grow.h"
#include "pool.h"
#include "self.h"
#include "shards.h"
#include "split.h"

#define STEP_NS 1000000u
/*
 * A round over the subtables begins so often, and takes at most this part of the time; while the
 * number of keys stays about the same (by one in STILL) the pause doubles.
 */
#define ROUND_NS     10000000u
#define ROUND_SHARE  50u
#define SLOT_NS      2u /* what a slot costs. Not measured: others make us wait, too */
#define ROUND_MAX_NS 1000000000u
#define STILL        64u
/* With more subtables than this, one of SAMPLE groups is looked at, other ones in each round. */
#define WHOLE_SUBTABLES 8u
#define SAMPLE          16u
#define SAMPLE_ERROR    50u /* a sample's load is hardly ever wrong by more than one part in so many */
/*
 * Loads, in thousandths of a subtable's slots. The first insert without a slot comes at 890 to 930
 * (tests/unit/test-grow.c prints it). EARLY: a subtable that would be at SOON within LEAD_NS at the
 * rate of the last while is split before it is at MARK, but not below EARLY. (In the middle of a doubling, right behind a
 * split, the index takes 13.75 / L bytes a key, where L is the load at which subtables split: 16 bytes at 0.86.)
 */
#define LOAD_MARK  860u
#define LOAD_LATE  880u
#define LOAD_SOON  865u /* then there is room while the split is under way */
#define LOAD_EARLY 400u
#define RATE_LOW   10u /* thousandths within LEAD_NS: slower growth is no hurry */
#define LEAD_NS    30000000u
#define RATE_NS    100000000u  /* the rate is that of at least so long, */
#define RATE_OLD   1000000000u /* and forgotten after this */
#define REQUESTS   32u         /* subtables that wait for their split; who is too many asks again */
#define NO_PAGE_NS 100000000u  /* a search for a page that found none is not repeated before */
#define STUCK_NS   20000000u

/*
 * What a split has left: tombstones of its depth in the old subtable, "filled" in the headers of
 * the new one. After a restart it is found subtable by subtable; then both pages are the same.
 */
struct resting {
	uint32_t page, new_page, depth;
	uint64_t since_ns; /* all had moved; 0: the step that runs has done it */
};

struct request {
	uint32_t suffix, depth; /* of the subtable */
};

struct grow {
	struct pool *pool;
	const struct log *log;
	struct split split;
	uint64_t now_ns;
	uint64_t due_ns; /* after a step that could not go on */
	bool limit_told; /* the log says once that max_depth is reached */

	struct request requests[REQUESTS];
	uint32_t request_count;
	uint64_t no_page_until_ns;

	struct resting *resting; /* oldest first */
	uint32_t resting_count, resting_room;
	uint64_t clear_cursor; /* bucket of the first of them */

	/* the round under way, and what the last one told */
	uint64_t round_cursor; /* index of the directory */
	uint64_t round_due_ns;
	uint32_t round;   /* picks the sample */
	bool round_split; /* a split has begun meanwhile: what is counted is not all */
	uint64_t slots_now, used_now;
	uint32_t halved; /* taken off used_now for the split that the round has begun */
	uint64_t used, pause_ns;
	uint32_t subtables_now, depth_min_now, depth_max_now;
	uint32_t subtables;      /* as of the last round: which sample is taken follows from it */
	uint32_t subtables_live; /* there are */
	uint64_t rate_since_ns, rate_used; /* the measurement under way */
	uint64_t rate; /* growth of the number of keys, in thousandths, within LEAD_NS */
	struct grow_stats stats;
};

static uint64_t entry_at(const struct grow *g, uint64_t index)
{
	return self_load(g->pool, layout_directory_offset(&g->pool->geometry, index));
}

/* An entry that says the same as one of a lower index is not another subtable. */
static bool is_alias(uint64_t index, uint64_t entry)
{
	return layout_suffix((uint32_t)index, layout_directory_depth(entry)) != index;
}

static uint32_t subtables_count(const struct grow *g)
{
	uint32_t count = 0;

	for (uint64_t index = 0; index < 1ull << g->split.global_depth; index++)
		count += !is_alias(index, entry_at(g, index));
	return count;
}

int grow_create(struct pool *pool, const struct log *log, struct grow **ret_grow)
{
	struct grow *g = calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return err_set(-ENOMEM, "out of memory");
	g->pool = pool;
	g->log = log;
	rc = split_init(&g->split, pool);
	if (rc < 0) {
		free(g);
		return rc;
	}
	g->subtables_live = subtables_count(g);
	*ret_grow = g;
	return 0;
}

void grow_free(struct grow *g)
{
	if (!g)
		return;
	free(g->resting);
	free(g);
}

/* ---- what splits leave ---- */

static bool rests(const struct grow *g, uint32_t page, uint32_t depth)
{
	for (uint32_t i = 0; i < g->resting_count; i++)
		if (g->resting[i].page == page && g->resting[i].depth == depth)
			return true;
	return false;
}

/* Its "filled" must last: so it is not split before. */
static bool is_new(const struct grow *g, uint32_t page)
{
	for (uint32_t i = 0; i < g->resting_count; i++)
		if (g->resting[i].new_page == page)
			return true;
	return false;
}

/* Without memory the next round finds it again. */
static void rest(struct grow *g, uint32_t page, uint32_t new_page, uint32_t depth,
		 uint64_t since_ns)
{
	if (g->resting_count == g->resting_room) {
		uint32_t room = g->resting_room ? 2 * g->resting_room : 64;
		struct resting *more = realloc(g->resting, room * sizeof(*more));

		if (!more)
			return;
		g->resting = more;
		g->resting_room = room;
	}
	g->resting[g->resting_count++] = (struct resting){
		.page = page, .new_page = new_page, .depth = depth, .since_ns = since_ns};
}

static void unrest(struct grow *g)
{
	g->resting_count--;
	for (uint32_t i = 0; i < g->resting_count; i++)
		g->resting[i] = g->resting[i + 1];
	g->clear_cursor = 0;
}

/*
 * Who read a header of the old subtable before it was flagged and a slot after it was cleared would
 * not know that its key has moved; nor who read a slot of the new one before a key had moved there,
 * and a header without a flag. By T1 nobody makes anything of READs that are further apart than D, on
 * a clock that is not ours: hence the quarter.
 */
static uint64_t clear_due(const struct grow *g)
{
	uint64_t deadline = g->pool->geometry.deadline_ns;

	return g->resting_count ? g->resting[0].since_ns + deadline + deadline / 4 : UINT64_MAX;
}

static uint64_t bucket_offset(const struct grow *g, uint32_t page, uint64_t bucket)
{
	return layout_page_offset(&g->pool->geometry, page) + bucket * LAYOUT_BUCKET_BYTES;
}

/* The tombstones of a bucket, behind those that are in the list. */
static unsigned find_tombstones(const struct grow *g, const struct resting *r, uint64_t bucket,
				struct self_change *changes)
{
	uint64_t old = bucket_offset(g, r->page, bucket);
	unsigned count = 0;

	for (uint32_t i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t word = self_load(g->pool, old + 8ull * i);

		if (layout_slot_state(word) == LAYOUT_SLOT_MOVED &&
		    layout_tombstone_depth(word) == r->depth)
			changes[count++] =
				(struct self_change){.offset = old + 8ull * i, .compare = word};
	}
	return count;
}

static void clear_filled(struct grow *g, const struct resting *r, uint64_t bucket)
{
	uint64_t new = bucket_offset(g, r->new_page, bucket);
	uint64_t header = self_load(g->pool, new);

	if (layout_header_split(header) == LAYOUT_SPLIT_FILLED)
		self_store(g->pool, new,
			   layout_header_make(layout_header_suffix(header),
					      layout_header_depth(header), LAYOUT_SPLIT_NONE,
					      layout_header_version(header) + 1));
}

/* What one split has left goes away, a bucket at a time, or several where a CAS is waited for. */
static void clear_resting(struct grow *g)
{
	uint64_t began = clock_now_ns(), buckets = 3ull * g->pool->geometry.groups;
	uint64_t most = self_is_far(g->pool) ? SELF_CHANGES_MAX / LAYOUT_BUCKET_SLOTS : 1;

	while (g->clear_cursor < buckets && clock_now_ns() - began < STEP_NS) {
		uint64_t rest = buckets - g->clear_cursor, some = rest < most ? rest : most;
		struct self_change changes[SELF_CHANGES_MAX];
		unsigned count = 0;

		for (uint64_t i = 0; i < some; i++)
			count += find_tombstones(g, &g->resting[0], g->clear_cursor + i,
						 &changes[count]);
		self_cas_many(g->pool, changes, count);
		if (g->pool->self_lost)
			return;
		for (uint64_t i = 0; i < some; i++)
			clear_filled(g, &g->resting[0], g->clear_cursor + i);
		g->clear_cursor += some;
	}
	if (g->clear_cursor >= buckets)
		unrest(g);
}

/* ---- splits ---- */

bool grow_active(const struct grow *g)
{
	return split_under_way(&g->split);
}

bool grow_splits(const struct grow *g, uint32_t *ret_suffix, uint32_t *ret_depth)
{
	*ret_suffix = g->split.suffix;
	*ret_depth = g->split.depth;
	return grow_active(g);
}

/* Its slots are being frozen, or the like: it stays as it is (shards.h). */
static bool held(const struct grow *g, uint64_t index, uint64_t entry)
{
	const struct shards *shards = keeper_shards(g->pool->keeper);
	uint32_t depth = layout_directory_depth(entry);

	return shards && shards_hold(shards, layout_suffix((uint32_t)index, depth), depth);
}

static bool at_limit(const struct grow *g, uint64_t entry)
{
	return layout_directory_depth(entry) >= g->pool->geometry.max_depth;
}

static void begin(struct grow *g, uint64_t index, uint64_t entry)
{
	g->halved = 0;
	split_begin(&g->split, index, entry);
	g->round_split = true;
}

/* Works on the split under way. Returns when to go on. */
static uint64_t go_on(struct grow *g)
{
	struct split *split = &g->split;
	enum split_state before = split->state;
	bool more = split_step(split, STEP_NS);

	if (before <= SPLIT_MOVE && split->state >= SPLIT_DIRECTORY)
		rest(g, split->old_page, split->new_page, split->depth, 0);
	if (split->state == SPLIT_NO_PAGE) {
		g->no_page_until_ns = g->now_ns + NO_PAGE_NS;
		g->stats.refused++;
		g->used_now += g->halved;
		split->state = SPLIT_NONE;
	} else if (split->state == SPLIT_DONE) {
		g->stats.splits++;
		g->subtables_live++;
		split->state = SPLIT_NONE;
		log_debug(g->log, "pool %s: subtable %u of depth %u is split, into page %u",
			  g->pool->name, split->suffix, split->depth, split->new_page);
	} else if (!more) {
		return g->now_ns + STUCK_NS;
	}
	return g->now_ns;
}

/* ---- requests ---- */

static uint64_t index_of(const struct grow *g, uint32_t suffix)
{
	return layout_suffix(suffix, g->split.global_depth);
}

/* Is there a slot in the bucket pair that is empty, or will be by itself? */
static bool pair_has_room(const struct grow *g, uint32_t page, uint32_t pair)
{
	uint64_t offset = layout_page_offset(&g->pool->geometry, page) + pair;

	for (uint32_t i = 0; i < LAYOUT_PAIR_BYTES / 8; i++) {
		uint64_t word = self_load(g->pool, offset + 8ull * i);

		if (i % (LAYOUT_BUCKET_BYTES / 8) != 0 &&
		    (word == 0 || layout_slot_state(word) == LAYOUT_SLOT_MOVED))
			return true;
	}
	return false;
}

/* A split costs memory: the client's word is not enough. */
static bool request_true(const struct grow *g, struct layout_hash hash, uint64_t entry)
{
	for (unsigned choice = 0; choice < 2; choice++)
		if (pair_has_room(g, layout_directory_page(entry),
				  layout_hash_pair(hash, choice, g->pool->geometry.groups)))
			return false;
	return true;
}

static void request_add(struct grow *g, uint32_t suffix, uint32_t depth)
{
	for (uint32_t i = 0; i < g->request_count; i++)
		if (g->requests[i].suffix == suffix && g->requests[i].depth == depth)
			return;
	if (g->request_count < REQUESTS)
		g->requests[g->request_count++] =
			(struct request){.suffix = suffix, .depth = depth};
	g->due_ns = 0;
}

int grow_request(struct grow *g, struct layout_hash hash, uint32_t depth)
{
	uint32_t suffix = layout_hash_suffix(hash);
	uint64_t index = index_of(g, suffix), entry = entry_at(g, index);

	/* under way, or damaged: then the client will find out */
	if (!split_entry_valid(&g->split, index, entry))
		return 0;
	if (layout_directory_depth(entry) > depth || !request_true(g, hash, entry) ||
	    is_new(g, layout_directory_page(entry)))
		return 0;
	if (at_limit(g, entry)) {
		g->stats.refused++;
		return -TARN_EINDEXFULL;
	}
	if (clock_now_ns() < g->no_page_until_ns) {
		g->stats.refused++;
		return -TARN_EPOOLFULL;
	}
	g->stats.requests++;
	depth = layout_directory_depth(entry);
	request_add(g, layout_suffix(suffix, depth), depth);
	return 0;
}

/* The first request that still holds begins. */
static void take_request(struct grow *g)
{
	while (g->request_count && !grow_active(g)) {
		struct request r = g->requests[0];
		uint64_t index = index_of(g, r.suffix), entry = entry_at(g, index);

		g->request_count--;
		for (uint32_t i = 0; i < g->request_count; i++)
			g->requests[i] = g->requests[i + 1];
		if (split_entry_valid(&g->split, index, entry) &&
		    layout_directory_depth(entry) == r.depth && !at_limit(g, entry) &&
		    !is_new(g, layout_directory_page(entry)) && !held(g, index, entry))
			begin(g, index, entry);
	}
}

/* ---- the round over all subtables ---- */

static uint32_t stride(const struct grow *g)
{
	return g->subtables > WHOLE_SUBTABLES && g->pool->geometry.groups > 4 * SAMPLE ? SAMPLE : 1;
}

struct count {
	uint32_t slots, used;
	uint32_t tombstones; /* bit t: some of depth t */
	bool filled;         /* a header says so */
};

/* Of one of `step` groups. */
static struct count count_slots(const struct grow *g, uint32_t page, uint32_t step)
{
	struct count c = {0};

	for (uint32_t group = g->round % step; group < g->pool->geometry.groups; group += step) {
		uint64_t offset = layout_page_offset(&g->pool->geometry, page) +
				  (uint64_t)group * LAYOUT_GROUP_BYTES;

		for (uint32_t i = 0; i < LAYOUT_GROUP_BYTES / 8; i++) {
			uint64_t word = self_load(g->pool, offset + 8ull * i);

			if (i % (LAYOUT_BUCKET_BYTES / 8) == 0) {
				c.filled |= layout_header_split(word) == LAYOUT_SPLIT_FILLED;
				continue;
			}
			c.slots++;
			if (layout_slot_state(word) == LAYOUT_SLOT_MOVED)
				c.tombstones |= 1u << layout_tombstone_depth(word);
			else
				c.used += word != 0;
		}
	}
	return c;
}

/* Few pages are left: they are worth more than a split ahead of need. */
static bool scarce(const struct grow *g)
{
	return keeper_free_pages(g->pool->keeper) < g->pool->geometry.npages / 16 + 1;
}

static bool wants_split(const struct grow *g, const struct count *c)
{
	uint64_t load = 1000ull * c->used / c->slots;

	if (load >= LOAD_LATE)
		return true;
	if (scarce(g))
		return false;
	return load >= LOAD_MARK ||
	       (load >= LOAD_EARLY && load + load * g->rate / 1000 >= LOAD_SOON &&
		g->rate > RATE_LOW);
}

/*
 * A sample is now and then a hundredth too high or too low, and of many rounds' the highest would decide: subtables would
 * be split before they are at the mark. So who comes near it is counted.
 */
static bool surely_wants_split(const struct grow *g, uint32_t page, const struct count *sample)
{
	struct count high = *sample, whole;

	if (stride(g) == 1)
		return wants_split(g, sample);
	high.used += high.used / SAMPLE_ERROR;
	if (!wants_split(g, &high))
		return false;
	whole = count_slots(g, page, 1);
	return wants_split(g, &whole);
}

/* What nobody has in mind: a restart has forgotten it. */
static void find_resting(struct grow *g, uint32_t page, const struct count *c)
{
	for (uint32_t depth = 0; depth < 32 && c->tombstones >> depth; depth++)
		if (c->tombstones >> depth & 1 && !rests(g, page, depth))
			rest(g, page, page, depth, g->now_ns);
	if (c->filled && !is_new(g, page))
		rest(g, page, page, UINT32_MAX, g->now_ns);
}

static void tell_limit(struct grow *g)
{
	if (g->limit_told)
		return;
	g->limit_told = true;
	events_tell(g->pool->events, EVENT_index_full, EVENT_FIELDS(.pool = g->pool->name),
		    "pool %s: the index has reached its largest size (max_depth %u): soon it "
		    "refuses new keys; a larger pool (size) has a larger one",
		    g->pool->name, g->pool->geometry.max_depth);
}

/* Whatever it wants, and nobody is to be told: then it is not worth a count, which would be done in each round. */
static bool can_not_split(const struct grow *g, uint64_t entry)
{
	return at_limit(g, entry) ? g->limit_told : g->now_ns < g->no_page_until_ns;
}

static void look_at(struct grow *g, uint64_t index, uint64_t entry)
{
	uint32_t depth = layout_directory_depth(entry), page = layout_directory_page(entry);
	struct count c = count_slots(g, page, stride(g));

	g->slots_now += c.slots;
	g->used_now += c.used;
	g->subtables_now++;
	if (depth < g->depth_min_now)
		g->depth_min_now = depth;
	if (depth > g->depth_max_now)
		g->depth_max_now = depth;
	find_resting(g, page, &c);
	if (is_new(g, page) || held(g, index, entry) || can_not_split(g, entry) ||
	    !surely_wants_split(g, page, &c))
		return;
	if (at_limit(g, entry)) {
		tell_limit(g);
		return;
	}
	begin(g, index, entry);
	/* the other half is counted when the round comes to the new subtable */
	g->halved = c.used / 2;
	g->used_now -= g->halved;
}

/* By how much the number of keys grows within LEAD_NS, in thousandths. */
static void measure_rate(struct grow *g, uint64_t used)
{
	uint64_t passed = g->now_ns - g->rate_since_ns;

	if (passed >= RATE_OLD)
		g->rate = 0;
	if (g->rate_since_ns && passed < RATE_NS)
		return;
	if (g->rate_since_ns && g->rate_used && passed < RATE_OLD)
		g->rate = used > g->rate_used
				  ? 1000 * (used - g->rate_used) / used * LEAD_NS / passed
				  : 0;
	g->rate_since_ns = g->now_ns;
	g->rate_used = used;
}

/* How long to wait for the next round. */
static uint64_t round_pause(struct grow *g, uint64_t used)
{
	uint64_t share = ROUND_SHARE * SLOT_NS * g->slots_now;
	uint64_t change = used > g->used ? used - g->used : g->used - used;

	if (g->round_split || change > g->used / STILL || g->pause_ns < ROUND_NS)
		g->pause_ns = ROUND_NS;
	else if (g->pause_ns < ROUND_MAX_NS)
		g->pause_ns *= 2;
	g->used = used;
	return g->pause_ns > share ? g->pause_ns : share;
}

static void round_begin(struct grow *g)
{
	g->slots_now = g->used_now = 0;
	g->subtables_now = g->depth_max_now = 0;
	g->depth_min_now = UINT32_MAX;
	g->round++;
	g->round_split = false;
	/* somebody's scribble does not last */
	if (self_load(g->pool, LAYOUT_GLOBAL_DEPTH_OFFSET) != g->split.global_depth)
		self_store(g->pool, LAYOUT_GLOBAL_DEPTH_OFFSET, g->split.global_depth);
}

static void round_end(struct grow *g)
{
	measure_rate(g, g->used_now * stride(g));
	g->round_cursor = 0;
	g->round_due_ns = g->now_ns + round_pause(g, g->used_now * stride(g));
	g->subtables = g->subtables_now;
	g->stats.depth_min = g->subtables_now ? g->depth_min_now : 0;
	g->stats.depth_max = g->depth_max_now;
	g->stats.load_permille = g->slots_now ? 1000 * g->used_now / g->slots_now : 0;
}

/* Until the time of a step is over or a split has begun; the round goes on after that. */
static void go_round(struct grow *g)
{
	uint64_t began = clock_now_ns(), worked = 0;
	uint64_t entries = 1ull << g->split.global_depth;

	if (g->round_cursor == 0)
		round_begin(g);
	while (g->round_cursor < entries && !grow_active(g) && worked < STEP_NS) {
		uint64_t index = g->round_cursor++, entry = entry_at(g, index);

		/* an alias of one that was looked at already */
		if (is_alias(index, entry))
			continue;
		if (split_entry_valid(&g->split, index, entry))
			look_at(g, index, entry);
		else
			g->stats.damaged++;
		worked = clock_now_ns() - began;
	}
	if (g->round_cursor >= entries)
		round_end(g);
}

/* ---- steps ---- */

/* What an earlier step has done was done before now. */
static void date_resting(struct grow *g)
{
	for (uint32_t i = g->resting_count; i > 0 && g->resting[i - 1].since_ns == 0; i--)
		g->resting[i - 1].since_ns = g->now_ns;
}

uint64_t grow_step(struct grow *g, const struct keeper_time *time)
{
	uint64_t due;

	g->now_ns = time->now_ns;
	date_resting(g);
	if (g->now_ns < g->due_ns)
		return g->due_ns;
	if (g->now_ns >= clear_due(g)) {
		clear_resting(g);
		return g->now_ns;
	}
	take_request(g);
	if (grow_active(g)) {
		g->due_ns = go_on(g);
		return g->due_ns;
	}
	if (g->round_cursor > 0 || g->now_ns >= g->round_due_ns)
		go_round(g);
	if (grow_active(g) || g->round_cursor > 0)
		return g->now_ns;
	due = clear_due(g);
	return due < g->round_due_ns ? due : g->round_due_ns;
}

/*
 * While subtables split a round takes long. What it has seen so far counts as it is now, the rest as the
 * last round has seen it.
 */
static uint64_t load_permille(const struct grow *g)
{
	uint64_t now = g->slots_now ? 1000 * g->used_now / g->slots_now : 0, seen, all;

	if (g->round_cursor == 0 || g->slots_now == 0)
		return g->stats.load_permille;
	if (g->subtables == 0)
		return now; /* it is the first one */
	all = g->subtables_live > g->subtables_now ? g->subtables_live : g->subtables_now;
	seen = g->subtables_now;
	return (now * seen + g->stats.load_permille * (all - seen)) / all;
}

void grow_get_stats(const struct grow *g, struct grow_stats *ret_stats)
{
	*ret_stats = g->stats;
	ret_stats->under_way = grow_active(g);
	ret_stats->subtables = g->subtables_live;
	ret_stats->load_permille = load_permille(g);
	ret_stats->global_depth = g->split.global_depth;
	ret_stats->max_depth = g->pool->geometry.max_depth;
	ret_stats->doublings = g->split.doublings;
	ret_stats->slots_moved = g->split.moved;
	ret_stats->frozen_retries = g->split.retries;
	ret_stats->damaged += g->split.damaged;
	ret_stats->resting = g->resting_count;
}

/* ---- restart ---- */

static int finish(struct split *split, uint64_t index, uint64_t entry)
{
	int rc = split_resume(split, index, entry);

	while (rc == 0 && split_under_way(split)) {
		uint64_t damaged = split->damaged;

		split_step(split, UINT64_MAX);
		/* no place for a slot: nobody is there who could make any */
		if (split_under_way(split) && split->state == SPLIT_MOVE &&
		    split->damaged > damaged)
			rc = err_set(-TARN_ECORRUPT,
				     "the split of the pool's subtable %u of depth %u can not be "
				     "finished: the new one has no place for its keys",
				     split->suffix, split->depth);
	}
	return rc;
}

int grow_recover(struct pool *pool)
{
	struct split *split = malloc(sizeof(*split));
	int rc;

	if (!split)
		return err_set(-ENOMEM, "out of memory");
	rc = split_init(split, pool);
	for (uint64_t index = 0; rc == 0 && index < 1ull << split->global_depth; index++) {
		uint64_t entry = self_load(pool, layout_directory_offset(&pool->geometry, index));

		if (layout_directory_state(entry) == LAYOUT_DIRECTORY_MIGRATING)
			rc = finish(split, index, entry);
	}
	free(split);
	return rc;
}
