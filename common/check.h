/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check.h - is a pool's memory as docs/protocol.md sections 2, 4, 5, 6 and 8 want it?
 *
 * A check looks at every word that has a rule: directory, bucket headers, slots, blocks, pieces of
 * large values, page words, free map, ready rings, client table. The memory may be any garbage:
 * nothing outside of it is read, and every walk is bounded. No globals, no clock, nothing printed:
 * what is wrong goes to a function of the caller's.
 *
 * Offline (nobody works on the pool) everything must be right at once. Online (CHECK_ONLINE) the
 * memory changes meanwhile: what looks wrong is looked at three times more, for longer than G + D,
 * and told only if it is wrong each time. Blocks that nothing reaches may then be in a client's
 * hands: they are counted as candidates, and are no finding. Pending, frozen and moved slots are
 * counted, too. That two large values share a piece is found offline alone.
 *
 * A repair (memory.repair) frees and clears, and makes up nothing. What it sets is known from
 * elsewhere: what is reached is marked as in use, client ids of blocks count as given out, and a bucket's header becomes what the directory
 * and most headers of its subtable say. What it cannot repair is told and left alone.
 *
 * Memory needed: 513 bytes a page and about 4 MiB.
 */
#ifndef TARN_CHECK_H
#define TARN_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

#define CHECK_ONLINE 1u /* others work on the pool */

struct check_memory {
	const uint8_t *base; /* the superblock */
	uint8_t *repair;     /* the same memory, to be written; NULL: only look */
	uint64_t bytes;      /* of the pool */
};

/* What follows from a finding. */
enum check_effect {
	CHECK_IS_HINT,  /* harmless */
	CHECK_IS_LEAK,  /* memory or a slot is lost until it is repaired */
	CHECK_IS_LOST,  /* keys are lost, or will be */
	CHECK_IS_WRONG, /* clients get errors, wait, or the pool gets worse by use */
};
#define CHECK_EFFECTS 4u

/* Name (stable), effect, what it means. */
#define CHECK_CODES(CODE)                                                                          \
	CODE(SUPERBLOCK, "superblock", CHECK_IS_WRONG,                                             \
	     "nothing is where it was: do not use the pool")                                       \
	CODE(EPOCH, "epoch", CHECK_IS_WRONG,                                                       \
	     "memory may be used again too early: begin with a fresh pool")                        \
	CODE(DIRECTORY, "directory", CHECK_IS_LOST,                                                \
	     "keys of this part of the index are not found: export the others, begin with a "      \
	     "fresh pool")                                                                         \
	CODE(DIRECTORY_UNEQUAL, "directory_unequal", CHECK_IS_LOST,                                \
	     "some keys of this subtable are not found: export the others, begin with a fresh "    \
	     "pool")                                                                               \
	CODE(SUBTABLE, "subtable", CHECK_IS_LOST,                                                  \
	     "keys of this subtable are not found: export the others, begin with a fresh pool")    \
	CODE(SUBTABLE_TWICE, "subtable_twice", CHECK_IS_LOST,                                      \
	     "keys of one of the two are lost: export the others, begin with a fresh pool")        \
	CODE(SUBTABLE_PAGE, "subtable_page", CHECK_IS_LOST, "the subtable will be overwritten")    \
	CODE(SUBTABLE_UNREACHED, "subtable_unreached", CHECK_IS_LEAK, "its page is lost")          \
	CODE(HEADER, "header", CHECK_IS_LOST, "keys of this bucket are not found")                 \
	CODE(HEADER_SPLIT, "header_split", CHECK_IS_WRONG,                                         \
	     "writers wait for a split that is none")                                              \
	CODE(SPLIT, "split", CHECK_IS_HINT, "the daemon finishes it when it opens the pool")       \
	CODE(SLOT_STATE, "slot_state", CHECK_IS_WRONG, "the slot can not be used")                 \
	CODE(SLOT_EMPTY, "slot_empty", CHECK_IS_LEAK, "the slot can not be used")                  \
	CODE(SLOT_PENDING, "slot_pending", CHECK_IS_LEAK,                                          \
	     "slot and block wait for who needs them")                                             \
	CODE(SLOT_FROZEN, "slot_frozen", CHECK_IS_WRONG, "the key can be read and not written")    \
	CODE(SLOT_MOVED, "slot_moved", CHECK_IS_LEAK, "the slot waits for the daemon to clear it") \
	CODE(SLOT_PLACE, "slot_place", CHECK_IS_LOST, "the key is lost")                           \
	CODE(BLOCK_DAMAGED, "block_damaged", CHECK_IS_LOST, "the key is lost")                     \
	CODE(BLOCK_GENERATION, "block_generation", CHECK_IS_LOST, "the key is lost")               \
	CODE(BLOCK_CLASS, "block_class", CHECK_IS_WRONG,                                           \
	     "the block may be used again too early: put the key again")                           \
	CODE(BLOCK_FUTURE, "block_future", CHECK_IS_HINT, "the pool's clock has been set back")    \
	CODE(BLOCK_STAMP, "block_stamp", CHECK_IS_WRONG,                                           \
	     "put-if-stamp may take one value for another")                                        \
	CODE(BLOCK_PAGE, "block_page", CHECK_IS_LOST,                                              \
	     "the value will be overwritten: put the key again")                                   \
	CODE(BLOCK_UNMARKED, "block_unmarked", CHECK_IS_LOST, "the value will be overwritten")     \
	CODE(BLOCK_TWICE, "block_twice", CHECK_IS_LOST,                                            \
	     "when one of the two goes away the other is overwritten: put both again")             \
	CODE(KEY_PLACE, "key_place", CHECK_IS_LOST, "the key is not found")                        \
	CODE(KEY_TWICE, "key_twice", CHECK_IS_WRONG, "readers see the one or the other value")     \
	CODE(EXTENT_PLACE, "extent_place", CHECK_IS_LOST, "the key is lost")                       \
	CODE(EXTENT_DAMAGED, "extent_damaged", CHECK_IS_LOST, "the key is lost")                   \
	CODE(PAGE_STATE, "page_state", CHECK_IS_LEAK, "the page is lost")                          \
	CODE(PAGE_OWNER, "page_owner", CHECK_IS_LEAK, "the page's free blocks are lost")           \
	CODE(PAGE_FIELDS, "page_fields", CHECK_IS_HINT, "nobody looks at them")                    \
	CODE(MAP_BYTE, "map_byte", CHECK_IS_LEAK, "the block is lost")                             \
	CODE(MAP_GAP, "map_gap", CHECK_IS_HINT, "nobody looks at them")                            \
	CODE(MAP_FREE_PAGE, "map_free_page", CHECK_IS_LEAK,                                        \
	     "blocks are lost when the page is used")                                              \
	CODE(LEAK, "leak", CHECK_IS_LEAK, "the memory is lost until the daemon's sweep finds it")  \
	CODE(RING, "ring", CHECK_IS_HINT, "clients ask the daemon for pages more often")           \
	CODE(RING_ENTRY, "ring_entry", CHECK_IS_HINT,                                              \
	     "clients ask the daemon for pages more often")                                        \
	CODE(CLIENT_STATE, "client_state", CHECK_IS_HINT, "the daemon does not rely on it")        \
	CODE(CLIENT_ID, "client_id", CHECK_IS_HINT, "two clients' writes may look like one's")

enum check_code {
	CHECK_NONE = 0,
#define CODE(symbol, name, effect, meaning) CHECK_##symbol,
	CHECK_CODES(CODE)
#undef CODE
		CHECK_CODE_COUNT
};

struct check_finding {
	enum check_code code;
	uint64_t offset;    /* in the pool: of the word, block or byte */
	const char *text;   /* what is there and what is allowed; valid during the call */
	const char *repair; /* what a repair does about it; NULL: it cannot */
	bool repaired;
};

struct check_options {
	uint32_t flags;
	/* Called for each finding, NULL: they are only counted. */
	void (*report)(void *arg, const struct check_finding *finding);
	void *arg;
};

struct check_totals {
	uint64_t findings[CHECK_CODE_COUNT];
	uint64_t by_effect[CHECK_EFFECTS];
	uint64_t repaired;
	uint64_t keys, counters, large, expired; /* of the keys: counters, in pieces, expired */
	uint64_t key_bytes, value_bytes;         /* stored by them */
	uint64_t blocks, block_bytes;            /* that they take */
	uint64_t pending, frozen, moved;         /* slots */
	uint64_t subtables, slots;
	uint64_t blocks_in_use, blocks_retired,
		blocks_aged; /* of slab, full, partial, orphan pages */
	/* In use and not reached. Online: those may be in a client's hands. */
	uint64_t leaked_blocks, leaked_bytes;
	uint64_t pages, by_state[LAYOUT_PAGE_STATES];
	uint64_t by_class[LAYOUT_CLASSES][LAYOUT_PAGE_STATES];
	uint64_t clients;
	uint64_t unsettled; /* online: changed each time it was looked at, or came too late to be
			       looked at again */
	uint32_t depth;
};

const char *check_code_name(enum check_code code);
enum check_effect check_code_effect(enum check_code code);
const char *check_code_meaning(enum check_code code);
const char *check_effect_name(enum check_effect effect);

/* No finding but hints. */
bool check_clean(const struct check_totals *totals);

struct check;

enum check_next {
	CHECK_DONE = 0,
	CHECK_MORE = 1,
	CHECK_WAIT = 2, /* nothing to do before check_due_ns() */
};

/* 0; or a code with a text: no memory, or a superblock that cannot be believed (-TARN_E...). */
int check_begin(const struct check_memory *memory, const struct check_options *options,
		struct check **ret_check);
/*
 * A bit of work, at most what a block of 256 KiB or a subtable's headers take. `now_ns` is any
 * monotonic clock; offline it is not looked at.
 */
enum check_next check_step(struct check *check, uint64_t now_ns);
uint64_t check_due_ns(const struct check *check);
uint32_t check_permille(const struct check *check);
void check_get_totals(const struct check *check, struct check_totals *ret_totals);
void check_free(struct check *check);

/* Some errors and no others say that it is the superblock that is wrong: a repair would then clear
 * what is right. 0, or -TARN_ECORRUPT with a text. `totals` are those of a check without repair. */
int check_may_repair(const struct check_totals *totals);

/*
 * Offline, to the end. With memory->repair: checks, repairs until nothing is left to be, and checks
 * again; reports what it repairs, then what is left. *ret_totals are those of the last check, but
 * `repaired`. progress(), if not NULL, is called now and then; when it returns false the check ends
 * with -ECANCELED, what is repaired stays so.
 */
struct check_run {
	struct check_memory memory;
	void (*report)(void *arg, const struct check_finding *finding);
	bool (*progress)(void *arg, uint32_t permille);
	void *arg;
};
int check_run(const struct check_run *run, struct check_totals *ret_totals);

#endif
