/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What split.c does one by one, many at a time, for a nic domain, in which each CAS is waited for. A slot
 * goes the same way in the same four CASes; a list of each of them is posted for all slots. Whatever is not
 * plain (a CAS that fails, a slot that is frozen or pending, a place that is taken) is left to split.c, which
 * goes over the same buckets afterwards as it does after a restart. Main thread. Next: split.c.
 */
#include "keeper.h"
#include "mutation.h"
#include "pool.h"
#include "split-internal.h"

#define BUCKETS 16u /* at once, as long as all slots of one more would fit */

unsigned split_flag_many(struct split *s, uint32_t buckets)
{
	struct self_change changes[SELF_CHANGES_MAX], other;
	unsigned count = 0, looked = 0;

	for (; looked < SELF_CHANGES_MAX && s->cursor + looked < buckets; looked++) {
		uint64_t bucket = s->cursor + looked;

		if (split_bucket_done(s, bucket))
			continue;
		/* the new one's comes first, and has to succeed */
		if (split_flag_change(s, s->new_page, bucket, &other))
			break;
		count += split_flag_change(s, s->old_page, bucket, &changes[count]);
	}
	self_cas_many(s->pool, changes, count);
	for (unsigned i = 0; i < count; i++)
		if (changes[i].seen != changes[i].compare)
			return 0;
	return looked;
}

/* ---- moving slots ---- */

struct moves {
	unsigned count;
	struct {
		uint64_t from, to; /* offsets */
		uint64_t word;     /* committed */
	} list[SELF_CHANGES_MAX];
};

static uint64_t frozen(uint64_t word)
{
	return layout_slot_with_state(word, LAYOUT_SLOT_FROZEN);
}

/* The slots of a bucket that go to the same place of the new subtable, which is empty. */
static void collect(struct split *s, uint64_t bucket, struct moves *m)
{
	split_hint_blocks(s, bucket);
	for (uint32_t slot = 0; slot < LAYOUT_BUCKET_SLOTS; slot++) {
		uint64_t from = split_slot_offset(s, s->old_page, bucket, slot);
		uint64_t to = split_slot_offset(s, s->new_page, bucket, slot);
		uint64_t word = self_load(s->pool, from);

		if (layout_slot_state(word) != LAYOUT_SLOT_COMMITTED ||
		    split_side_of(s, word, bucket) != SPLIT_SIDE_NEW || !split_thaws(s) ||
		    self_load(s->pool, from) != word || self_load(s->pool, to) != 0 ||
		    split_find_copy(s, bucket, frozen(word)))
			continue;
		m->list[m->count].from = from;
		m->list[m->count].to = to;
		m->list[m->count++].word = word;
	}
}

/* The same CAS for all, made ready in `changes`. Those that fail take no further part. */
static void change_all(struct split *s, struct moves *m, struct self_change *changes)
{
	unsigned kept = 0;

	self_cas_many(s->pool, changes, m->count);
	for (unsigned i = 0; i < m->count; i++)
		if (changes[i].seen == changes[i].compare)
			m->list[kept++] = m->list[i];
	s->retries += m->count - kept;
	m->count = kept;
}

static void freeze_all(struct split *s, struct moves *m)
{
	struct self_change changes[SELF_CHANGES_MAX];

	for (unsigned i = 0; i < m->count; i++)
		changes[i] = (struct self_change){.offset = m->list[i].from,
						  .compare = m->list[i].word,
						  .value = frozen(m->list[i].word)};
	change_all(s, m, changes);
}

static void copy_all(struct split *s, struct moves *m)
{
	struct self_change changes[SELF_CHANGES_MAX];

	for (unsigned i = 0; i < m->count; i++)
		changes[i] = (struct self_change){.offset = m->list[i].to,
						  .value = frozen(m->list[i].word)};
	change_all(s, m, changes);
}

static void bury_all(struct split *s, struct moves *m)
{
	struct self_change changes[SELF_CHANGES_MAX];

	for (unsigned i = 0; i < m->count; i++) {
		uint64_t word = m->list[i].word;

		if (s->pool->keeper)
			keeper_moved(s->pool->keeper, frozen(word));
		changes[i] = (struct self_change){
			.offset = m->list[i].from,
			.compare = frozen(word),
			.value = MUTATED(MUTATION_TOMBSTONE)
					 ? 0
					 : layout_tombstone_make(layout_slot_fp(word), s->depth)};
	}
	change_all(s, m, changes);
}

static void commit_all(struct split *s, struct moves *m)
{
	struct self_change changes[SELF_CHANGES_MAX];

	for (unsigned i = 0; i < m->count; i++)
		changes[i] = (struct self_change){.offset = m->list[i].to,
						  .compare = frozen(m->list[i].word),
						  .value = m->list[i].word};
	change_all(s, m, changes);
}

unsigned split_move_many(struct split *s, uint32_t buckets)
{
	struct moves m = {0};
	unsigned looked = 0;

	for (; looked < BUCKETS && s->cursor + looked < buckets &&
	       m.count + LAYOUT_BUCKET_SLOTS <= SELF_CHANGES_MAX;
	     looked++)
		if (!split_bucket_done(s, s->cursor + looked))
			collect(s, s->cursor + looked, &m);
	freeze_all(s, &m);
	copy_all(s, &m);
	bury_all(s, &m);
	s->moved += m.count;
	commit_all(s, &m);
	return looked;
}
