/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check-slot.c - slots, the blocks that they name, the pieces of large values, keys that stand twice
 *
 * A part of check.c. A slot's block is copied word by word, then judged; the slot is read once more
 * after that, since others may have replaced it. Next: check-pages.c.
 */
#include "check-internal.h"

static bool visible(uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	return state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN;
}

static bool slot_place_valid(const struct check *c, uint64_t word)
{
	return layout_block_place_valid(&c->geometry, layout_slot_offset(word),
					layout_slot_class(word));
}

/* ---- what is reached ------------------------------------------------------------------------- */

static uint64_t unit_of(const struct check *c, uint64_t block)
{
	return (block - c->geometry.pages_offset) / LAYOUT_UNIT;
}

/* True if something else has reached the block before. */
static bool reach(struct check *c, uint64_t block)
{
	uint64_t unit = unit_of(c, block), *word = &c->reached[unit / 64], bit = 1ull << unit % 64;
	bool before = *word & bit;

	*word |= bit;
	return before;
}

/* Is a block that something reaches in a page for such blocks, and marked as in use? */
static enum check_code home_judge(struct check *c, uint64_t block, uint32_t class)
{
	uint32_t page = layout_offset_page(&c->geometry, block);
	uint64_t at = layout_page_word_offset(&c->geometry, page), word = check_load(c, at);
	uint32_t state = layout_page_state(word);
	uint64_t mark = layout_free_map_offset(&c->geometry, block);
	uint8_t byte = check_load_byte(c, mark);

	if (!check_page_has_blocks(state) || layout_page_class(word) != class) {
		check_fault(c, CHECK_BLOCK_PAGE, block,
			    "a block of class %u in page %u, whose word has state %u and class %u",
			    class, page, state, layout_page_class(word));
		/* of a page with another class it is not known which is wrong */
		if (!check_page_has_blocks(state) && state != LAYOUT_PAGE_INDEX)
			check_fault_word(c, "page made an orphan of this class", at,
					 layout_page_next(word, LAYOUT_PAGE_ORPHAN, class, 0));
		else
			c->page_flags[page] |= CHECK_PAGE_DISTRUST;
		return c->fault.code;
	}
	if (byte == LAYOUT_FREE_IN_USE)
		return CHECK_NONE;
	check_fault(c, CHECK_BLOCK_UNMARKED, mark,
		    "the free map has %u for a block that a key uses: it must be %u (in use)", byte,
		    LAYOUT_FREE_IN_USE);
	check_fault_byte(c, "block marked as in use", mark, LAYOUT_FREE_IN_USE);
	return c->fault.code;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool kind_fits(uint32_t kind, uint32_t class)
{
	return (kind == LAYOUT_KIND_COUNTER) == layout_class_is_counter(class);
}

/* Does a key of this hash belong into the bucket that has the slot? */
static bool key_belongs(const struct check *c, const struct check_slot *s)
{
	uint64_t begin = layout_page_offset(&c->geometry, s->subtable.page);
	uint64_t bucket = (s->where - begin) / LAYOUT_BUCKET_BYTES * LAYOUT_BUCKET_BYTES;
	uint32_t suffix = layout_hash_suffix(s->hash);

	if (layout_suffix(suffix, s->subtable.depth) != s->subtable.index ||
	    layout_hash_fp(s->hash) != layout_slot_fp(s->word))
		return false;
	for (unsigned choice = 0; choice < 2; choice++) {
		uint64_t pair = layout_hash_pair(s->hash, choice, c->geometry.groups);

		if (bucket == pair || bucket == pair + LAYOUT_BUCKET_BYTES)
			return true;
	}
	return false;
}

static void clear_slot(struct check *c, const struct check_slot *s)
{
	/* in a subtable that contradicts the directory it is not the slots that are wrong */
	if (!c->distrust)
		check_fault_word(c, "slot cleared", s->where, 0);
}

/* The block's bytes, which are in c->blocks[0]. */
static enum check_code content_judge(struct check *c, struct check_slot *s)
{
	const struct layout_block *block = (const void *)c->blocks[0];
	uint64_t at = layout_slot_offset(s->word);
	uint32_t class = layout_slot_class(s->word);

	if (!layout_block_valid(block, layout_class_bytes(class), at)) {
		check_fault(c, CHECK_BLOCK_DAMAGED, s->where,
			    "a slot names the block at %llu, whose lengths or checksum are wrong",
			    (unsigned long long)at);
		clear_slot(c, s);
		return c->fault.code;
	}
	s->valid = true;
	s->hash =
		layout_hash_key(layout_block_key(block), block->key_length, c->geometry.hash_seed);
	if ((block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(s->word)) {
		check_fault(c, CHECK_BLOCK_GENERATION, s->where,
			    "a slot has generation %u, the block at %llu that it names has %u",
			    layout_slot_gen(s->word), (unsigned long long)at,
			    block->generation & LAYOUT_GEN_MASK);
		clear_slot(c, s);
		return c->fault.code;
	}
	if (!key_belongs(c, s)) {
		check_fault(c, CHECK_KEY_PLACE, s->where,
			    "a slot of the subtable with suffix %u, depth %u names the block at "
			    "%llu, whose key belongs elsewhere (its suffix is %u, fingerprint %u)",
			    s->subtable.index, s->subtable.depth, (unsigned long long)at,
			    layout_suffix(layout_hash_suffix(s->hash), s->subtable.depth),
			    layout_hash_fp(s->hash));
		clear_slot(c, s);
		return c->fault.code;
	}
	return CHECK_NONE;
}

/* A client id that has not been given out yet will be, and its stamps come a second time. */
static enum check_code stamp_judge(struct check *c, const struct layout_block *block, uint64_t at)
{
	uint64_t last = offsetof(struct layout_superblock, last_client_id), id = block->stamp >> 32,
		 given = check_load(c, last);

	if (id <= given)
		return CHECK_NONE;
	check_fault(c, CHECK_BLOCK_STAMP, at,
		    "a block has the stamp of client %llu, and the pool has given out %llu ids",
		    (unsigned long long)id, (unsigned long long)given);
	check_fault_word(c, "id counted as given out", last, id);
	return c->fault.code;
}

/* Faults that do not keep anybody from reading the key; those that are repaired come first. */
static enum check_code small_judge(struct check *c, const struct check_slot *s)
{
	const struct layout_block *block = (const void *)c->blocks[0];
	uint64_t at = layout_slot_offset(s->word);
	uint32_t class = layout_slot_class(s->word),
		 epoch = (uint32_t)check_load(c, LAYOUT_EPOCH_OFFSET);
	enum check_code code = home_judge(c, at, class);

	if (code != CHECK_NONE)
		return code;
	if (stamp_judge(c, block, at) != CHECK_NONE)
		return c->fault.code;
	if (block->class != class || !kind_fits(block->kind, class))
		return check_fault(c, CHECK_BLOCK_CLASS, at,
				   "a block of kind %u and class %u is named as one of class %u",
				   block->kind, block->class, class);
	if ((int32_t)(block->generation - epoch) > 0)
		return check_fault(c, CHECK_BLOCK_FUTURE, at,
				   "a block was written in epoch %u, and the pool's is %u",
				   block->generation, epoch);
	return CHECK_NONE;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static enum check_code unfinished_judge(struct check *c, const struct check_slot *s)
{
	bool split = s->subtable.splitting || s->subtable.migrating;
	uint64_t thawed = layout_slot_with_state(s->word, LAYOUT_SLOT_COMMITTED);

	/* online: they are somebody's work */
	if (check_online(c))
		return CHECK_NONE;
	switch (layout_slot_state(s->word)) {
	case LAYOUT_SLOT_PENDING:
		check_fault(c, CHECK_SLOT_PENDING, s->where, "a slot is pending, and nobody works");
		clear_slot(c, s);
		return c->fault.code;
	case LAYOUT_SLOT_FROZEN:
		/* in a pool of a cluster it may be one that is handed over: the daemon finds out */
		if (split || c->geometry.shards)
			return CHECK_NONE;
		check_fault(c, CHECK_SLOT_FROZEN, s->where,
			    "a slot is frozen, and no split of its subtable is under way");
		if (!c->distrust)
			check_fault_word(c, "slot thawed", s->where, thawed);
		return c->fault.code;
	case LAYOUT_SLOT_MOVED:
		if (split)
			return CHECK_NONE;
		check_fault(c, CHECK_SLOT_MOVED, s->where,
			    "a slot says that its key has moved, and no split of its subtable is "
			    "under way");
		clear_slot(c, s);
		return c->fault.code;
	default:
		return CHECK_NONE;
	}
}

static enum check_code named_judge(struct check *c, struct check_slot *s)
{
	enum check_code code;

	if (!slot_place_valid(c, s->word)) {
		check_fault(c, CHECK_SLOT_PLACE, s->where,
			    "a slot names offset %llu, class %u, where no block of that class can "
			    "be",
			    (unsigned long long)layout_slot_offset(s->word),
			    layout_slot_class(s->word));
		clear_slot(c, s);
		return c->fault.code;
	}
	check_copy(c, layout_slot_offset(s->word), c->blocks[0],
		   layout_class_bytes(layout_slot_class(s->word)));
	code = content_judge(c, s);
	if (code == CHECK_NONE)
		code = unfinished_judge(c, s);
	return code != CHECK_NONE ? code : small_judge(c, s);
}

static enum check_code slot_judge(struct check *c, struct check_slot *s)
{
	s->valid = false;
	switch (layout_slot_state(s->word)) {
	case LAYOUT_SLOT_EMPTY:
		if (s->word == 0)
			return CHECK_NONE;
		check_fault(c, CHECK_SLOT_EMPTY, s->where,
			    "an empty slot has the word %016llx: it must be 0",
			    (unsigned long long)s->word);
		break;
	case LAYOUT_SLOT_PENDING:
	case LAYOUT_SLOT_MOVED:
		return unfinished_judge(c, s);
	case LAYOUT_SLOT_COMMITTED:
	case LAYOUT_SLOT_FROZEN:
		return named_judge(c, s);
	default:
		check_fault(c, CHECK_SLOT_STATE, s->where, "a slot has state %u: there are 0 to 4",
			    layout_slot_state(s->word));
		break;
	}
	clear_slot(c, s);
	return c->fault.code;
}

/* Judges it, and again after each repair and each change; leaves the word that was judged last. */
static void slot_settle(struct check *c, struct check_slot *s)
{
	for (unsigned tries = 0; tries < CHECK_TRIES; tries++) {
		s->word = check_load(c, s->where);
		if (slot_judge(c, s) == CHECK_NONE)
			return;
		if (check_load(c, s->where) == s->word && !check_found(c))
			return;
	}
	c->totals.unsettled += check_online(c);
}

/* ---- keys ------------------------------------------------------------------------------------ */

void check_keys_clear(struct check *c)
{
	if (c->keys_used)
		memset(c->keys, 0, (c->key_mask + 1) * sizeof(*c->keys));
	c->keys_used = false;
}

/* Notes the key; returns the slot that has had one with this hash already, or 0. */
static uint64_t key_note(struct check *c, const struct check_slot *s)
{
	uint64_t i = s->hash.low & c->key_mask;

	for (uint64_t n = 0; n <= c->key_mask; n++, i = (i + 1) & c->key_mask) {
		struct check_key *key = &c->keys[i];

		if (key->slot == 0) {
			*key = (struct check_key){.hash = s->hash, .slot = s->where};
			c->keys_used = true;
			return 0;
		}
		if (key->hash.low == s->hash.low && key->hash.high == s->hash.high &&
		    key->slot != s->where)
			return key->slot;
	}
	return 0;
}

static bool pair_load(const struct check *c, uint64_t where, unsigned to, uint64_t *ret_word)
{
	uint64_t word = check_load(c, where);

	if (!visible(word) || !slot_place_valid(c, word))
		return false;
	check_copy(c, layout_slot_offset(word), c->blocks[to],
		   layout_class_bytes(layout_slot_class(word)));
	*ret_word = word;
	return layout_block_valid((const void *)c->blocks[to],
				  layout_class_bytes(layout_slot_class(word)),
				  layout_slot_offset(word));
}

static bool same_key(const struct layout_block *a, const struct layout_block *b)
{
	return a->key_length == b->key_length &&
	       memcmp(layout_block_key(a), layout_block_key(b), a->key_length) == 0;
}

/* Written later? By the pool's clock, then by the stamp. */
static bool newer(const struct layout_block *a, const struct layout_block *b)
{
	if (a->generation != b->generation)
		return (int32_t)(a->generation - b->generation) > 0;
	return a->stamp > b->stamp;
}

/* Do two slots hold one key at the same time? */
void check_pair(struct check *c, uint64_t first, uint64_t second)
{
	const struct layout_block *a = (const void *)c->blocks[1], *b = (const void *)c->blocks[2];
	uint64_t word_a, word_b, older;

	c->object.kind = CHECK_OBJECT_PAIR;
	c->object.where = first;
	c->object.other = second;
	if (!pair_load(c, first, 1, &word_a) || !pair_load(c, second, 2, &word_b) ||
	    !same_key(a, b))
		return;
	/* a split copies a slot before it gives up the old one: one block, both frozen */
	if (layout_slot_offset(word_a) == layout_slot_offset(word_b) &&
	    layout_slot_state(word_a) == LAYOUT_SLOT_FROZEN &&
	    layout_slot_state(word_b) == LAYOUT_SLOT_FROZEN)
		return;
	if (check_load(c, second) != word_b || check_load(c, first) != word_a)
		return;
	older = newer(a, b) ? second : first;
	check_fault(c, CHECK_KEY_TWICE, older,
		    "the slots at %llu and %llu have the same key; the first one's value is of "
		    "epoch %u, the other one's of %u",
		    (unsigned long long)first, (unsigned long long)second, a->generation,
		    b->generation);
	if (!c->distrust)
		check_fault_word(c, "older slot cleared", older, 0);
	check_found(c);
}

/* ---- accounts -------------------------------------------------------------------------------- */

static void key_count(struct check *c, const struct check_slot *s)
{
	const struct layout_block *block = (const void *)c->blocks[0];
	struct check_totals *t = &c->totals;

	t->keys++;
	if (!s->valid)
		return;
	t->counters += block->kind == LAYOUT_KIND_COUNTER;
	t->large += block->kind == LAYOUT_KIND_EXTENTS;
	t->expired += block->expiry && block->expiry <= check_load(c, LAYOUT_EPOCH_OFFSET);
	t->key_bytes += block->key_length;
	t->value_bytes += block->value_length;
	t->blocks++;
	t->block_bytes += layout_class_bytes(layout_slot_class(s->word));
}

static void block_reached(struct check *c, const struct check_slot *s, uint64_t block)
{
	if (!reach(c, block) || check_online(c))
		return;
	check_fault(c, CHECK_BLOCK_TWICE, block,
		    "the slot at %llu is the second one that reaches this block",
		    (unsigned long long)s->where);
	check_found(c);
}

/* A key that stands twice has its own finding; here it is about blocks of different keys. */
static void visible_account(struct check *c, const struct check_slot *s)
{
	uint64_t block = layout_slot_offset(s->word), other = 0;

	key_count(c, s);
	if (!slot_place_valid(c, s->word))
		return;
	if (s->valid)
		other = key_note(c, s);
	if (other)
		reach(c, block);
	else
		block_reached(c, s, block);
	if (other)
		check_pair(c, other, s->where);
}

static void account(struct check *c, const struct check_slot *s)
{
	switch (layout_slot_state(s->word)) {
	case LAYOUT_SLOT_PENDING:
		c->totals.pending++;
		if (slot_place_valid(c, s->word))
			reach(c, layout_slot_offset(s->word));
		return;
	case LAYOUT_SLOT_FROZEN:
		c->totals.frozen++;
		visible_account(c, s);
		return;
	case LAYOUT_SLOT_COMMITTED:
		visible_account(c, s);
		return;
	case LAYOUT_SLOT_MOVED:
		c->totals.moved++;
		return;
	default:
		return;
	}
}

/* The pieces of a pending slot are reached, too. */
static void pending_load(struct check *c, struct check_slot *s)
{
	uint32_t class = layout_slot_class(s->word);

	if (layout_slot_state(s->word) != LAYOUT_SLOT_PENDING || !slot_place_valid(c, s->word))
		return;
	check_copy(c, layout_slot_offset(s->word), c->blocks[0], layout_class_bytes(class));
	s->valid = layout_block_valid((const void *)c->blocks[0], layout_class_bytes(class),
				      layout_slot_offset(s->word));
}

void check_slot(struct check *c, const struct check_subtable *subtable, uint64_t where)
{
	struct check_slot s = {.subtable = *subtable, .where = where};
	const struct layout_block *block = (const void *)c->blocks[0];

	c->object = (struct check_object){
		.kind = CHECK_OBJECT_SLOT, .index = subtable->index, .where = where};
	slot_settle(c, &s);
	pending_load(c, &s);
	if (!c->again)
		account(c, &s);
	/* an account may have cleared it */
	if (!s.valid || block->kind != LAYOUT_KIND_EXTENTS || check_load(c, where) != s.word)
		return;
	c->large = (struct check_large){
		.active = true, .slot = s, .total = layout_extents(block->value_length)};
}

/* ---- large values ---------------------------------------------------------------------------- */

static uint64_t extent_bytes(uint64_t value_bytes, uint64_t i)
{
	uint64_t rest = value_bytes - i * LAYOUT_PAGE_BYTES;

	return rest < LAYOUT_PAGE_BYTES ? rest : LAYOUT_PAGE_BYTES;
}

static bool extent_place_valid(const struct check *c, uint64_t where, uint64_t bytes)
{
	uint32_t class = layout_slot_class(where);

	return where == layout_slot_make(LAYOUT_SLOT_EMPTY, 0, class, 0,
					 layout_slot_offset(where)) &&
	       slot_place_valid(c, where) && !layout_class_is_counter(class) &&
	       bytes <= layout_class_bytes(class);
}

static enum check_code extent_judge(struct check *c, const struct check_large *large,
				    const struct layout_extent *extent, uint64_t bytes)
{
	const struct check_slot *s = &large->slot;
	uint64_t at = layout_slot_offset(extent->where);
	uint32_t class = layout_slot_class(extent->where);
	enum check_code code = CHECK_NONE;

	if (!extent_place_valid(c, extent->where, bytes)) {
		code = check_fault(
			c, CHECK_EXTENT_PLACE, s->where,
			"piece %llu of a large value is named by the word %016llx, which "
			"can not be one of %llu bytes",
			(unsigned long long)large->next, (unsigned long long)extent->where,
			(unsigned long long)bytes);
	} else {
		check_copy(c, at, c->blocks[1], layout_class_bytes(class));
		if (layout_extent_checksum(c->blocks[1], bytes, at) != extent->checksum)
			code = check_fault(
				c, CHECK_EXTENT_DAMAGED, s->where,
				"piece %llu of a large value, at %llu, does not have its "
				"checksum",
				(unsigned long long)large->next, (unsigned long long)at);
	}
	if (code == CHECK_NONE)
		return home_judge(c, at, class);
	clear_slot(c, s);
	return code;
}

/* One piece. A pending slot's are only marked. */
void check_large_step(struct check *c)
{
	struct check_large *large = &c->large;
	const struct layout_block *block = (const void *)c->blocks[0];
	const struct layout_extent *extent =
		(const struct layout_extent *)layout_block_value(block) + large->next;
	uint64_t bytes = extent_bytes(block->value_length, large->next);
	enum check_code code = CHECK_NONE;

	c->object = (struct check_object){.kind = CHECK_OBJECT_SLOT,
					  .index = large->slot.subtable.index,
					  .where = large->slot.where};
	if (visible(large->slot.word))
		code = extent_judge(c, large, extent, bytes);
	/* replaced meanwhile: what has been seen means nothing */
	large->active = check_load(c, large->slot.where) == large->slot.word;
	if (large->active && code != CHECK_NONE && check_found(c))
		/* once more, unless it is gone now */
		return;
	if (large->active && extent_place_valid(c, extent->where, bytes) && !c->again) {
		c->totals.blocks++;
		c->totals.block_bytes += layout_class_bytes(layout_slot_class(extent->where));
		block_reached(c, &large->slot, layout_slot_offset(extent->where));
	}
	large->active = large->active && ++large->next < large->total;
}
