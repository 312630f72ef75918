/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check-internal.h - inside of check*.c
 *
 * Each object (a directory entry, a slot, a page, ...) has a function that judges it: it fills
 * check->fault and returns its code, or CHECK_NONE. Whoever called it looks whether the object is
 * still what was judged, and calls check_found(), which tells it, or online remembers to look again.
 */
#ifndef TARN_CHECK_INTERNAL_H
#define TARN_CHECK_INTERNAL_H

#include <assert.h>
#include <string.h>

#include "atomics.h"
#include "check.h"

#define CHECK_SUSPECTS 4096u
#define CHECK_LOOKS    3u /* at a suspect, after the first one */
#define CHECK_TRIES    8u /* online: with a word that changes */

enum check_phase {
	CHECK_PHASE_DIRECTORY,
	CHECK_PHASE_INDEX,
	CHECK_PHASE_PAGES,
	CHECK_PHASE_RINGS,
	CHECK_PHASE_CLIENTS,
	CHECK_PHASE_AGAIN,
	CHECK_PHASE_DONE,
};

enum check_kind {
	CHECK_OBJECT_SUPERBLOCK,
	CHECK_OBJECT_EPOCH,
	CHECK_OBJECT_ENTRY,    /* index: of the directory */
	CHECK_OBJECT_SUBTABLE, /* index: its directory entry */
	CHECK_OBJECT_BUCKET,   /* index, where: its header */
	CHECK_OBJECT_SLOT,     /* index, where */
	CHECK_OBJECT_PAIR,     /* index, where, other: two slots with one key */
	CHECK_OBJECT_PAGE,     /* index: the page */
	CHECK_OBJECT_RING,     /* index: the class */
	CHECK_OBJECT_CLIENT,   /* index: the slot */
};

struct check_object {
	enum check_kind kind;
	uint32_t index;
	uint64_t where, other;
	bool still; /* wrong in this round, too */
};

struct check_fault {
	enum check_code code;
	uint64_t offset;
	const char *repair;
	uint64_t write_offset, write_value;
	uint32_t write_bytes; /* 8 or 1; 0: whoever judged it repairs it */
	char text[256];
};

/* A subtable as the directory describes it. */
struct check_subtable {
	uint32_t index; /* lowest directory entry; also the hash suffix of its keys */
	uint32_t page;
	uint32_t depth;   /* while it is split: before */
	bool splitting;   /* a new one takes over half of its keys */
	bool migrating;   /* it is the new one */
	uint32_t sibling; /* splitting: index of the new one */
};

/* A slot, its word when it was looked at, and the block that this names, in check->blocks[0]. */
struct check_slot {
	struct check_subtable subtable;
	uint64_t where, word;
	bool valid; /* the block is */
	struct layout_hash hash;
};

/* A large value whose pieces are being looked at; its block is in check->blocks[0]. */
struct check_large {
	bool active;
	struct check_slot slot;
	uint64_t next, total;
};

struct check_key {
	struct layout_hash hash;
	uint64_t slot; /* 0: the entry is free */
};

#define CHECK_PAGE_SUBTABLE 1u /* the directory names it */
#define CHECK_PAGE_DISTRUST 2u /* blocks of another class are reached in it */

struct check {
	struct check_memory memory;
	struct check_options options;
	struct layout_geometry geometry;
	struct check_totals totals;
	enum check_phase phase;
	/* where the phase is: a directory entry, a page, a class, a client's slot */
	uint32_t next;
	uint32_t bucket, slot;          /* in a subtable */
	bool inside;                    /* in a subtable: `subtable` */
	struct check_subtable subtable; /* being walked */
	bool distrust;                  /* its headers contradict the directory */
	/* Part of the index could not be walked: what is reached is not known. */
	bool incomplete;

	struct check_fault fault;
	struct check_object object; /* under examination */
	struct check_object *suspects;
	uint32_t suspect_count, suspect_next, round;
	bool again; /* the object is a suspect */
	uint64_t now_ns, due_ns;

	struct check_large large;
	uint8_t *page_flags;
	uint64_t *reached; /* a bit per unit of the pages */
	struct check_key *keys;
	uint64_t key_mask;
	bool keys_used;
	uint32_t *client_ids, client_id_count;
	_Alignas(8) uint8_t map[LAYOUT_UNITS_PER_PAGE]; /* of the page that is looked at */
	/* Copies of blocks: that of the slot, kept while its pieces are looked at; a piece, or one
	   of a pair; the other one of the pair. */
	uint64_t *blocks[3];
};

/* Acquire: pairs with the CAS that published what the word names. */
static inline uint64_t check_load(const struct check *c, uint64_t offset)
{
	assert(offset % 8 == 0 && offset <= c->memory.bytes - 8);
	return word_load_acquire((const uint64_t *)(const void *)(c->memory.base + offset));
}
static inline uint8_t check_load_byte(const struct check *c, uint64_t offset)
{
	assert(offset < c->memory.bytes);
	return byte_load_relaxed(c->memory.base + offset);
}
void check_copy(const struct check *c, uint64_t offset, void *ret_words, uint64_t bytes);
void check_store(struct check *c, uint64_t offset, uint64_t value);
void check_store_byte(struct check *c, uint64_t offset, uint8_t value);

static inline bool check_online(const struct check *c)
{
	return c->options.flags & CHECK_ONLINE;
}

/* Fills the fault; returns its code. */
enum check_code check_fault(struct check *c, enum check_code code, uint64_t offset,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The fault can be repaired by writing this. */
void check_fault_word(struct check *c, const char *repair, uint64_t offset, uint64_t value);
void check_fault_byte(struct check *c, const char *repair, uint64_t offset, uint8_t value);
/*
 * The object is wrong, as the fault says. True: it is to be repaired, and if the fault says how by a
 * word or byte, that is done.
 */
bool check_found(struct check *c);

/* One more bit of the phase; false: it is over. */
bool check_directory_step(struct check *c);
bool check_index_step(struct check *c);
bool check_pages_step(struct check *c);
bool check_rings_step(struct check *c);
bool check_clients_step(struct check *c);

/* check-index.c: entries, subtables, buckets */
uint32_t check_global_depth(const struct check *c);
/* As the directory says now; false: it names none there, or `index` is not its lowest entry. */
bool check_subtable_load(const struct check *c, uint32_t index,
			 struct check_subtable *ret_subtable);
void check_entry(struct check *c, uint32_t index);
void check_subtable(struct check *c, const struct check_subtable *subtable);
void check_bucket(struct check *c, const struct check_subtable *subtable, uint64_t where);
/* check-slot.c; a large value is left in c->large for check_large_step() */
void check_slot(struct check *c, const struct check_subtable *subtable, uint64_t where);
void check_pair(struct check *c, uint64_t first, uint64_t second);
void check_large_step(struct check *c);
/* Forgets the keys of the subtables that were walked before. */
void check_keys_clear(struct check *c);
/* check-pages.c */
void check_page(struct check *c, uint32_t page);
void check_ring(struct check *c, uint32_t class);
void check_client(struct check *c, uint32_t slot);

static inline bool check_bit(const uint64_t *map, uint64_t i)
{
	return map[i / 64] >> i % 64 & 1;
}
static inline bool check_page_has_blocks(uint32_t state)
{
	return state == LAYOUT_PAGE_SLAB || state == LAYOUT_PAGE_FULL ||
	       state == LAYOUT_PAGE_PARTIAL || state == LAYOUT_PAGE_ORPHAN;
}

#endif
