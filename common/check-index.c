/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check-index.c - the directory and its subtables, down to bucket headers
 *
 * A part of check.c. The directory says which suffix and depth a subtable's keys have; bucket
 * headers are compared with that, and only by that it is judged whether a key stands where it
 * belongs: one damaged header does not condemn the keys behind it. Next: check-slot.c.
 */
#include "check-internal.h"

#define ENTRIES_PER_STEP 1024u

static uint64_t entry_offset(const struct check *c, uint32_t index)
{
	return layout_directory_offset(&c->geometry, index);
}

static uint64_t entry_load(const struct check *c, uint32_t index)
{
	return check_load(c, entry_offset(c, index));
}

/* Others may write it: never more than there is room for. */
uint32_t check_global_depth(const struct check *c)
{
	uint64_t depth = check_load(c, LAYOUT_GLOBAL_DEPTH_OFFSET);

	return depth <= c->geometry.max_depth ? (uint32_t)depth : c->geometry.max_depth;
}

static bool entry_possible(const struct check *c, uint64_t entry)
{
	uint32_t state = layout_directory_state(entry);

	return (state == LAYOUT_DIRECTORY_VALID || state == LAYOUT_DIRECTORY_MIGRATING) &&
	       layout_directory_page(entry) < c->geometry.npages &&
	       layout_directory_depth(entry) <= check_global_depth(c);
}

/* Is `index` the entry of a new subtable of this depth, of which a split is under way? */
static bool migrating(const struct check *c, uint32_t index, uint32_t depth)
{
	uint64_t entry;

	if (index >> check_global_depth(c))
		return false;
	entry = entry_load(c, index);
	return layout_directory_state(entry) == LAYOUT_DIRECTORY_MIGRATING &&
	       layout_directory_depth(entry) == depth && entry_possible(c, entry);
}

/* ---- entries --------------------------------------------------------------------------------- */

/*
 * A split ends with its entries, the old half's before the new one's, the first one of each before
 * the others: may this one differ from its first one because of that?
 */
static bool split_ends(const struct check *c, uint32_t lowest, uint64_t entry, uint64_t first)
{
	uint32_t depth = layout_directory_depth(entry);

	if (layout_directory_page(entry) != layout_directory_page(first) ||
	    layout_directory_state(first) != LAYOUT_DIRECTORY_VALID)
		return false;
	if (layout_directory_state(entry) == LAYOUT_DIRECTORY_MIGRATING)
		return layout_directory_depth(first) == depth;
	return layout_directory_depth(first) == depth + 1 && depth < c->geometry.max_depth &&
	       migrating(c, lowest | 1u << depth, depth + 1);
}

static enum check_code split_fault(struct check *c, uint32_t index)
{
	return check_fault(c, CHECK_SPLIT, entry_offset(c, index),
			   "directory entry %u belongs to a subtable that is being split", index);
}

static enum check_code entry_judge(struct check *c, uint32_t index, uint64_t entry)
{
	uint32_t lowest = layout_suffix(index, layout_directory_depth(entry));
	uint64_t at = entry_offset(c, index), first;

	if (!entry_possible(c, entry))
		return check_fault(
			c, CHECK_DIRECTORY, at,
			"directory entry %u names page %u, depth %u, state %u: there are "
			"%u pages, depths to %u, and states 1 and 2",
			index, layout_directory_page(entry), layout_directory_depth(entry),
			layout_directory_state(entry), c->geometry.npages, check_global_depth(c));
	first = entry_load(c, lowest);
	if (first != entry && split_ends(c, lowest, entry, first))
		return check_online(c) ? CHECK_NONE : split_fault(c, index);
	if (first != entry)
		return check_fault(
			c, CHECK_DIRECTORY_UNEQUAL, at,
			"directory entry %u names page %u at depth %u, but entry %u, the "
			"first one of that subtable, names page %u at depth %u",
			index, layout_directory_page(entry), layout_directory_depth(entry), lowest,
			layout_directory_page(first), layout_directory_depth(first));
	return CHECK_NONE;
}

void check_entry(struct check *c, uint32_t index)
{
	uint64_t entry;

	if (index >> check_global_depth(c))
		return;
	c->object = (struct check_object){.kind = CHECK_OBJECT_ENTRY, .index = index};
	entry = entry_load(c, index);
	if (entry_judge(c, index, entry) == CHECK_NONE)
		return;
	if (c->fault.code != CHECK_SPLIT)
		c->incomplete = true;
	if (entry_load(c, index) == entry)
		check_found(c);
}

bool check_directory_step(struct check *c)
{
	uint32_t depth = check_global_depth(c);

	for (uint32_t i = 0; i < ENTRIES_PER_STEP; i++, c->next++) {
		if (c->next >> depth)
			return false;
		check_entry(c, c->next);
	}
	return true;
}

/* ---- subtables ------------------------------------------------------------------------------- */

/* Finds the new half of a subtable; its own entry may say the depth before or after. */
static void sibling_find(const struct check *c, struct check_subtable *s)
{
	uint32_t before = s->depth - 1;

	if (s->depth < c->geometry.max_depth &&
	    migrating(c, s->index | 1u << s->depth, s->depth + 1)) {
		s->splitting = true;
		s->sibling = s->index | 1u << s->depth;
	} else if (s->depth > 0 && !(s->index >> before & 1) &&
		   migrating(c, s->index | 1u << before, s->depth)) {
		s->splitting = true;
		s->sibling = s->index | 1u << before;
		s->depth = before;
	}
}

bool check_subtable_load(const struct check *c, uint32_t index, struct check_subtable *ret_subtable)
{
	struct check_subtable s = {.index = index};
	uint64_t entry;

	if (index >> check_global_depth(c))
		return false;
	entry = entry_load(c, index);
	s.page = layout_directory_page(entry);
	s.depth = layout_directory_depth(entry);
	s.migrating = layout_directory_state(entry) == LAYOUT_DIRECTORY_MIGRATING;
	if (!entry_possible(c, entry) || layout_suffix(index, s.depth) != index)
		return false;
	if (!s.migrating)
		sibling_find(c, &s);
	*ret_subtable = s;
	return true;
}

static bool header_fits(const struct check_subtable *s, uint64_t header)
{
	uint32_t depth = layout_header_depth(header);

	return layout_header_suffix(header) == s->index &&
	       (depth == s->depth || (s->splitting && depth == s->depth + 1));
}

static uint32_t headers_fitting(const struct check *c, const struct check_subtable *s)
{
	uint64_t at = layout_page_offset(&c->geometry, s->page);
	uint32_t fitting = 0;

	for (uint32_t i = 0; i < 3 * c->geometry.groups; i++)
		fitting += header_fits(s, check_load(c, at + (uint64_t)i * LAYOUT_BUCKET_BYTES));
	return fitting;
}

static enum check_code subtable_judge(struct check *c, const struct check_subtable *s)
{
	uint32_t buckets = 3 * c->geometry.groups, fitting = headers_fitting(c, s);
	uint64_t at = layout_page_word_offset(&c->geometry, s->page), word = check_load(c, at);

	c->distrust = fitting <= buckets / 2;
	if (c->distrust)
		return check_fault(
			c, CHECK_SUBTABLE, entry_offset(c, s->index),
			"directory entry %u names page %u, suffix %u, depth %u: of its %u "
			"bucket headers only %u say so",
			s->index, s->page, s->index, s->depth, buckets, fitting);
	if (layout_page_state(word) == LAYOUT_PAGE_INDEX)
		return CHECK_NONE;
	check_fault(c, CHECK_SUBTABLE_PAGE, at,
		    "page %u has the subtable of directory entry %u, but its word has state %u, "
		    "not %u (index)",
		    s->page, s->index, layout_page_state(word), LAYOUT_PAGE_INDEX);
	check_fault_word(c, "page marked as index", at,
			 layout_page_next(word, LAYOUT_PAGE_INDEX, 0, 0));
	return c->fault.code;
}

static bool subtable_same(const struct check *c, const struct check_subtable *s)
{
	struct check_subtable now;

	return check_subtable_load(c, s->index, &now) && now.page == s->page &&
	       now.depth == s->depth && now.splitting == s->splitting;
}

/* What can be seen without looking at its slots. Sets c->distrust. */
void check_subtable(struct check *c, const struct check_subtable *s)
{
	c->object = (struct check_object){.kind = CHECK_OBJECT_SUBTABLE, .index = s->index};
	if (subtable_judge(c, s) != CHECK_NONE && subtable_same(c, s))
		check_found(c);
	if (c->distrust)
		c->incomplete = true;
	if (!s->splitting || check_online(c))
		return;
	split_fault(c, s->index);
	check_found(c);
}

static void subtable_begin(struct check *c, const struct check_subtable *s)
{
	uint8_t *flags = &c->page_flags[s->page];

	c->subtable = *s;
	c->inside = true;
	c->bucket = c->slot = 0;
	c->totals.subtables++;
	c->totals.slots += 3ull * LAYOUT_BUCKET_SLOTS * c->geometry.groups;
	check_subtable(c, s);
	if ((*flags & CHECK_PAGE_SUBTABLE) && !check_online(c)) {
		c->incomplete = c->distrust = true;
		check_fault(c, CHECK_SUBTABLE_TWICE, entry_offset(c, s->index),
			    "directory entry %u names page %u, as another subtable does", s->index,
			    s->page);
		check_found(c);
	}
	*flags |= CHECK_PAGE_SUBTABLE;
}

/* ---- buckets --------------------------------------------------------------------------------- */

static enum check_code header_judge(struct check *c, const struct check_subtable *s, uint64_t at,
				    uint64_t header)
{
	uint32_t version = layout_header_version(header);

	if (!header_fits(s, header)) {
		check_fault(c, CHECK_HEADER, at,
			    "a bucket header has suffix %u and depth %u: its subtable has suffix "
			    "%u and depth %u",
			    layout_header_suffix(header), layout_header_depth(header), s->index,
			    s->depth);
		/* in a split it depends on how far that is: the daemon finishes it */
		if (!s->splitting && !s->migrating)
			check_fault_word(c, "header set as the others", at,
					 layout_header_make(s->index, s->depth, LAYOUT_SPLIT_NONE,
							    version + 1));
		return c->fault.code;
	}
	/* "filled" lasts for a while behind a split */
	if (!layout_header_split(header) || layout_header_split(header) == LAYOUT_SPLIT_FILLED ||
	    s->splitting || s->migrating)
		return CHECK_NONE;
	check_fault(
		c, CHECK_HEADER_SPLIT, at,
		"a bucket header has the flag of a split, and none of its subtable is under way");
	check_fault_word(c, "flag cleared", at,
			 layout_header_make(s->index, s->depth, LAYOUT_SPLIT_NONE, version + 1));
	return c->fault.code;
}

void check_bucket(struct check *c, const struct check_subtable *s, uint64_t where)
{
	uint64_t header = check_load(c, where);

	c->object = (struct check_object){
		.kind = CHECK_OBJECT_BUCKET, .index = s->index, .where = where};
	if (header_judge(c, s, where, header) != CHECK_NONE && check_load(c, where) == header)
		check_found(c);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* The new half of a split follows at once, so that a key that stands in both is seen. */
static void subtable_end(struct check *c)
{
	struct check_subtable s = c->subtable;

	c->inside = false;
	if (s.splitting && check_subtable_load(c, s.sibling, &s) && s.migrating) {
		subtable_begin(c, &s);
		return;
	}
	check_keys_clear(c);
	c->next++;
}

/* Does the walk come to this new half by way of the old one? */
static bool comes_with_old(const struct check *c, const struct check_subtable *s)
{
	struct check_subtable old;

	return s->migrating && s->depth > 0 && s->index >> (s->depth - 1) & 1 &&
	       check_subtable_load(c, s->index & ~(1u << (s->depth - 1)), &old) && old.splitting &&
	       old.sibling == s->index;
}

static bool entry_step(struct check *c)
{
	struct check_subtable s;

	if (c->next >> check_global_depth(c))
		return false;
	if (check_subtable_load(c, c->next, &s) && !comes_with_old(c, &s))
		subtable_begin(c, &s);
	else
		c->next++;
	return true;
}

/* A slot, or a bucket's header. */
bool check_index_step(struct check *c)
{
	uint64_t at;

	if (!c->inside)
		return entry_step(c);
	if (c->bucket == 3 * c->geometry.groups) {
		subtable_end(c);
		return true;
	}
	at = layout_page_offset(&c->geometry, c->subtable.page) +
	     (uint64_t)c->bucket * LAYOUT_BUCKET_BYTES;
	if (c->slot == 0) {
		/* a split may begin or end meanwhile; if the page is another's now: done with it */
		uint32_t page = c->subtable.page;
		bool alike = check_subtable_load(c, c->subtable.index, &c->subtable);

		if (!alike || c->subtable.page != page) {
			c->inside = false;
			c->next++;
			check_keys_clear(c);
			return true;
		}
		if (!c->distrust)
			check_bucket(c, &c->subtable, at);
	} else {
		check_slot(c, &c->subtable, at + 8ull * c->slot);
	}
	if (++c->slot > LAYOUT_BUCKET_SLOTS) {
		c->slot = 0;
		c->bucket++;
	}
	return true;
}
