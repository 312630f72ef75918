/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan-index.c - the index as a walk reads it: which slots it has to look at next
 *
 * A chunk is some groups of the subtable that holds the range under way, and of the one that it
 * splits into, if it does. It is used only if the buckets' headers say that nothing can be missing
 * in it. Runs on the session's owner. Next: docs/protocol.md sections 2 and 8; scan-walk.c.
 */
#include "err.h"
#include "mutation.h"
#include "scan-internal.h"

/*
 * A chunk that contradicts the directory is read again: the daemon is between two steps of a split.
 * These many tries later it is damage.
 */
#define CHUNK_TRIES    40u
#define CHUNK_PAUSE_NS 500000u

/* The next range; what was known of the last one's subtable is of no use. */
static void leave_range(struct tarn_scan *scan)
{
	scan_cursor_pop(&scan->cursor);
	scan->tries = 0;
	scan->distrust = false;
}

/* The directory entry names no subtable; what is behind it comes next. */
static int skip_entry(struct tarn_scan *scan)
{
	int ret;

	scan_cursor_narrow(&scan->cursor, (uint32_t)scan->depth);
	ret = err_set(
		-TARN_ECORRUPT,
		"directory entry %u of the pool names no subtable and was skipped; call again "
		"to go on",
		scan_cursor_range(&scan->cursor)->suffix);
	leave_range(scan);
	return scan_end(scan, ret);
}

/* Which groups of the subtable come next. */
static void choose_groups(struct tarn_scan *scan)
{
	uint32_t group = scan_cursor_range(&scan->cursor)->place / SCAN_GROUP_PLACES;
	uint32_t left = scan->groups - group;

	scan->chunk_groups = left < CHUNK_GROUPS ? left : CHUNK_GROUPS;
	scan->chunk_inside = (uint64_t)group * LAYOUT_GROUP_BYTES;
	scan->read_ns = session_now(scan->session);
}

/* Narrows the range under way to the subtable that holds it now. */
int scan_subtable(struct tarn_scan *scan)
{
	const struct layout_geometry *g = &scan->session->geometry;
	struct scan_range *range = scan_cursor_range(&scan->cursor);
	uint64_t entry;
	struct fabric_request requests[] = {
		fabric_read(LAYOUT_GLOBAL_DEPTH_OFFSET, &scan->depth, 8),
		fabric_read(layout_directory_offset(g, range->suffix), &scan->entry, 8),
	};

	if (!scan->posted)
		return scan_post(scan, requests, 2);
	scan->posted = false;
	entry = scan->entry;
	if (scan->depth > g->max_depth) {
		/* nothing says where to go on: the walk ends here */
		scan->cursor.count = 0;
		return scan_end(scan, err_set(-TARN_ECORRUPT,
					      "the pool's global depth is %llu, its limit %u",
					      (unsigned long long)scan->depth, g->max_depth));
	}
	if (layout_directory_state(entry) == LAYOUT_DIRECTORY_NONE ||
	    layout_directory_page(entry) >= g->npages ||
	    layout_directory_depth(entry) > g->max_depth ||
	    layout_directory_depth(entry) < range->depth)
		return skip_entry(scan);
	scan_cursor_narrow(&scan->cursor, layout_directory_depth(entry));
	choose_groups(scan);
	scan->chunk_offset =
		layout_page_offset(g, layout_directory_page(entry)) + scan->chunk_inside;
	return scan_go(scan, SCAN_OLD);
}

/* Reads the chunk's groups of one subtable. */
static int part_post(struct tarn_scan *scan, struct part *part, uint64_t offset)
{
	uint64_t now = session_now(scan->session);
	bool stale = session_epoch_stale(scan->session, now);
	struct fabric_request requests[] = {
		fabric_read(offset, part->buckets, scan->chunk_groups * LAYOUT_GROUP_BYTES),
		fabric_read(LAYOUT_EPOCH_OFFSET, &scan->epoch, 8),
	};

	part->offset = offset;
	scan->epoch_posted_ns = stale ? now : 0;
	return scan_post(scan, requests, stale ? 2 : 1);
}

static void part_come(struct tarn_scan *scan)
{
	scan->posted = false;
	/* what has expired is not shown */
	if (scan->epoch_posted_ns)
		session_epoch_learn(scan->session, scan->epoch, scan->epoch_posted_ns);
}

enum verdict { WHOLE, MOVED, SPLITTING };

/* Bits of what a header's split may be. */
#define NO_FLAG (1u << LAYOUT_SPLIT_NONE)
#define NEW     (1u << LAYOUT_SPLIT_NEW)
#define FILLED  (1u << LAYOUT_SPLIT_FILLED)

/*
 * Do these buckets hold all that is in a range of the index, as far as their headers tell? flags: those
 * that they may have.
 */
static enum verdict judge(const struct part *part, uint32_t groups, uint32_t suffix, uint32_t depth,
			  uint32_t flags)
{
	enum verdict verdict = WHOLE;
	uint32_t b, i;

	for (b = 0; b < groups * 3; b++) {
		uint64_t header = part->buckets[b].header;

		if (layout_header_suffix(header) != suffix ||
		    layout_header_depth(header) != depth ||
		    !(flags >> layout_header_split(header) & 1))
			return SPLITTING;
		for (i = 0; i < LAYOUT_BUCKET_SLOTS; i++)
			if (layout_slot_state(part->buckets[b].slots[i]) == LAYOUT_SLOT_MOVED)
				verdict = MOVED;
	}
	return verdict;
}

static void collect_slot(struct tarn_scan *scan, const struct part *part, uint32_t i,
			 uint32_t place, bool last)
{
	uint32_t b = i / LAYOUT_BUCKET_SLOTS, in_bucket = i % LAYOUT_BUCKET_SLOTS;
	uint64_t word = part->buckets[b].slots[in_bucket];
	uint32_t state = layout_slot_state(word);

	if (state == LAYOUT_SLOT_COMMITTED || (state == LAYOUT_SLOT_FROZEN && !MUTATED(MUTATION_WALKFROZEN)))
		scan->slots[scan->slot_count++] = (struct found_slot){
			part->offset + (uint64_t)b * LAYOUT_BUCKET_BYTES + 8 + 8ull * in_bucket,
			word, place, last};
}

static void collect(struct tarn_scan *scan, struct scan_range *range, uint32_t groups, bool splits)
{
	uint32_t first = range->place / SCAN_GROUP_PLACES * SCAN_GROUP_PLACES, i;

	for (i = range->place - first; i < groups * SCAN_GROUP_PLACES; i++) {
		collect_slot(scan, &scan->old, i, first + i, !splits);
		if (splits)
			collect_slot(scan, &scan->new, i, first + i, true);
	}
	scan->chunk_end = first + groups * SCAN_GROUP_PLACES;
	scan->tries = 0;
	if (scan->slot_count == 0)
		range->place = scan->chunk_end;
}

void scan_drop_chunk(struct tarn_scan *scan)
{
	scan->slot_count = scan->slot_next = 0;
	scan->batch_begin = scan->batch_next = scan->batch_end = 0;
	scan->have_long = false;
}

bool scan_is_late(const struct tarn_scan *scan, uint64_t part)
{
	return session_now(scan->session) - scan->read_ns >
	       scan->session->geometry.deadline_ns / part;
}

/*
 * The chunk is whole. Others get their turn before it is used, for a chunk in which nothing is wanted is not the last
 * one; a lane that sleeps has no debts (engine.c).
 */
int scan_chunk_whole(struct tarn_scan *scan)
{
	struct scan_range *range = scan_cursor_range(&scan->cursor);

	if (!scan_is_late(scan, 2))
		collect(scan, range, scan->chunk_groups, scan->splits);
	scan->state = SCAN_LOOK;
	scan->task.wake_ns = session_now(scan->session);
	return SCAN_WAIT;
}

static int whole(struct tarn_scan *scan, bool splits)
{
	scan->splits = splits;
	return scan_since(scan) ? scan_go(scan, SCAN_SHARDS) : scan_chunk_whole(scan);
}

/* The chunk could not be read as a whole: it is read again, or will be, but that is said. */
static int try_again(struct tarn_scan *scan)
{
	if (scan->tries++ < CHUNK_TRIES) {
		scan->state = SCAN_LOOK;
		scan->task.wake_ns = session_now(scan->session) + CHUNK_PAUSE_NS;
		return SCAN_WAIT;
	}
	scan->distrust = true;
	return scan_end(scan,
			err_set(-TARN_ECORRUPT,
				"headers of the subtable of directory entry %u contradict the "
				"directory: its keys are shown as far as they can be read; call "
				"again to go on",
				scan_cursor_range(&scan->cursor)->suffix));
}

int scan_next_chunk(struct tarn_scan *scan)
{
	if (scan_cursor_range(&scan->cursor)->place < scan->groups * SCAN_GROUP_PLACES)
		return scan_go(scan, SCAN_SUBTABLE);
	leave_range(scan);
	return SCAN_GO_ON;
}

static enum verdict judge_old(const struct tarn_scan *scan, uint32_t flags)
{
	const struct scan_range *range = &scan->cursor.ranges[scan->cursor.count - 1];

	return judge(&scan->old, scan->chunk_groups, range->suffix, range->depth, flags);
}

static int judged(struct tarn_scan *scan, enum verdict verdict)
{
	switch (verdict) {
	case WHOLE:
		return whole(scan, false);
	case MOVED:
		return scan_go(scan, SCAN_HEADERS);
	case SPLITTING:
		break;
	}
	return scan_go(scan, SCAN_NEW_ENTRY);
}

int scan_old(struct tarn_scan *scan)
{
	enum verdict verdict;

	if (!scan->posted)
		return part_post(scan, &scan->old, scan->chunk_offset);
	part_come(scan);
	verdict = scan->distrust ? WHOLE : judge_old(scan, NO_FLAG);
	if (verdict == SPLITTING && judge_old(scan, NO_FLAG | FILLED) != SPLITTING)
		return scan_go(scan, SCAN_OLD_AGAIN);
	return judged(scan, verdict);
}

/* Filled by a split that is over: what is read behind that is whole. */
int scan_old_again(struct tarn_scan *scan)
{
	if (!scan->posted)
		return part_post(scan, &scan->old, scan->chunk_offset);
	part_come(scan);
	return judged(scan, judge_old(scan, NO_FLAG | FILLED));
}

/*
 * Tombstones under clean headers are those of a split that is over, or of one that began between
 * the READ of the header and that of the slot: the headers, read again, tell.
 */
int scan_headers(struct tarn_scan *scan)
{
	enum verdict verdict = WHOLE;
	uint32_t b;

	if (!scan->posted)
		return part_post(scan, &scan->new, scan->old.offset);
	part_come(scan);
	for (b = 0; b < scan->chunk_groups * 3; b++)
		if (scan->new.buckets[b].header != scan->old.buckets[b].header)
			verdict = SPLITTING;
	return judged(scan, verdict);
}

static uint32_t new_suffix(const struct scan_range *range)
{
	return range->suffix | 1u << range->depth;
}

/*
 * While a subtable splits, an entry of the other half is in it or, later, in the same place of the
 * new one: so that is read after it, if it is there already, or still.
 */
int scan_new_entry(struct tarn_scan *scan)
{
	const struct layout_geometry *g = &scan->session->geometry;
	const struct scan_range *range = scan_cursor_range(&scan->cursor);
	struct fabric_request r;

	if (range->depth >= g->max_depth)
		return try_again(scan);
	r = fabric_read(layout_directory_offset(g, new_suffix(range)), &scan->entry, 8);
	if (!scan->posted)
		return scan_post(scan, &r, 1);
	scan->posted = false;
	if (layout_directory_state(scan->entry) != LAYOUT_DIRECTORY_MIGRATING ||
	    layout_directory_page(scan->entry) >= g->npages)
		return try_again(scan);
	scan->new_offset =
		layout_page_offset(g, layout_directory_page(scan->entry)) + scan->chunk_inside;
	return scan_go(scan, SCAN_NEW);
}

int scan_new(struct tarn_scan *scan)
{
	const struct scan_range *range = scan_cursor_range(&scan->cursor);

	if (!scan->posted)
		return part_post(scan, &scan->new, scan->new_offset);
	part_come(scan);
	/* it does not split itself before this split is over */
	return judge(&scan->new, scan->chunk_groups, new_suffix(range), range->depth + 1,
		     NO_FLAG | NEW | FILLED) == WHOLE
		       ? whole(scan, true)
		       : try_again(scan);
}
