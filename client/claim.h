/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * claim.h - inside of libtarn: getting more pages of a size class (docs/protocol.md section 5,
 * "claim")
 *
 * A part of another task: the owner calls claim_start(), then claim_step() at once and after each
 * completion of its own, until that returns
 * 1. The completions carry the owner's task.
 */
#ifndef TARN_CLAIM_H
#define TARN_CLAIM_H

#include "session.h"
#include "wire.h"

/* pages at a time, of a class of one block */
#define CLAIM_PAGES 16u

enum claim_state {
	CLAIM_LOOK,
	CLAIM_TICKET,
	CLAIM_ENTRY,
	CLAIM_CURSOR,
	CLAIM_RPC,
	CLAIM_PAGE,
	CLAIM_CAS
};

struct claim {
	struct tarn_session *session;
	struct task *task;
	enum claim_state state,
		source; /* source: which of the three ways the page number came by */
	bool posted;    /* step() is called for a completion */
	uint32_t class;
	uint32_t tries;         /* in vain */
	uint32_t wanted, count; /* count: so many of them are tried together now */
	uint32_t pages[CLAIM_PAGES];
	uint64_t posted_ns;
	/* what READs, CASes and FAAs bring */
	uint64_t ring[9]; /* head, ..., tail */
	uint64_t cursor, epoch, ticket;
	uint64_t entries[CLAIM_PAGES], words[CLAIM_PAGES], seen[CLAIM_PAGES];
	struct session_limits limits;
	/*
	 * The class's memory rests, and the session has blocks of a slightly larger class: take one
	 * of those.
	 */
	bool larger;
	uint32_t rested;    /* times that the daemon has said so */
	bool gave;          /* told that all is full, it has handed back what it could */
	uint64_t full_pass; /* claim_full_is_sure() */
	uint8_t map[LAYOUT_UNITS_PER_PAGE]; /* of a class of one block: its byte, of each page */
	uint8_t message[WIRE_RPC_BYTES], reply[WIRE_RPC_REPLY_BYTES];
};

/*
 * The daemon says that all is full and nothing rests. It knows of what was deleted by its walk over the
 * pages: sure it is once a walk that began after the first such answer is through. *pass is 0 before
 * that, and kept by the caller.
 */
bool claim_full_is_sure(const struct wire_rpc_reply *reply, uint64_t *pass);

/* `wanted`: that many pages at best, one at least; more than one only of a class of one block. */
void claim_start(struct claim *claim, struct tarn_session *session, struct task *task,
		 uint32_t class, uint32_t wanted);
/*
 * Returns 0: posted, call again after the completion; 1: ended, *ret_result is 0 (the pages are in
 * the session's allocator), -TARN_EPOOLFULL, -TARN_ETIMEOUT, -TARN_ESESSION, -TARN_EPROTO, -ENOMEM,
 * with a text.
 */
int claim_step(struct claim *claim, int *ret_result);

#endif
