/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake-fabric.h - an endpoint for tests of sessions that lose their connections, and what makes connections of it
 *
 * It executes nothing before it is polled, as a network would, on a pool in the test's memory, and breaks at a post of the
 * test's choice: before it is sent, sent without effect, or with effect but without an answer. Messages to the daemon are
 * answered by the test. Its clock is the machine's, or one on which time passes only where somebody looks at it or waits.
 */
#ifndef TARN_TEST_FAKE_FABRIC_H
#define TARN_TEST_FAKE_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fixture.h"
#include "wire.h"

enum how { UNSENT, SENT, DONE, HOWS };

/* Where it breaks: at the post with this number, of those that carry such a request. */
struct break_at {
	enum how how;
	unsigned number;  /* from 1; 0: never */
	unsigned opcodes; /* bit: enum fabric_opcode; 0: any */
};

/* What becomes of a message. */
enum fake_answer { FAKE_ANSWERS, FAKE_BREAKS, FAKE_SILENT };

/* What the test sets, and what all connections of a session share. */
struct fake {
	struct session_connector base; /* first */
	struct fixture *pool;
	struct break_at at;
	unsigned posts, commits; /* posts that count for `at`; CASes and FAAs executed */
	unsigned opened, closed;
	unsigned tries;
	uint64_t try_ns[64], try_limit_ns[64];
	/* what the next tries answer: `fail` of them so, then they work */
	unsigned fail;
	int code;
	enum session_again again;
	uint64_t wait_ns;
	uint32_t features;
	/* NULL: a ping is answered, and all about regions by one of 4 KiB without registered memory */
	enum fake_answer (*ask)(struct fake *fake, const void *message, size_t bytes,
				uint8_t *answer, uint32_t *ret_bytes);
	bool rpc_breaks, throws_out; /* rpc_breaks: once, and without `ask` */
	bool breaks_after;  /* behind the next completion */
	unsigned silent;    /* so many polls find nothing */
	uint64_t *vanishes; /* this word becomes 0 between an FAA and the READ behind it */
	atomic_int hold;    /* 1: the next check takes long; 2: it is at it */
	uint64_t begin_ns;  /* not 0: the clock of its own began then, and has come so far */
	uint64_t passed_ns;
	struct fake_ep *last;
};

struct fake_queued {
	struct fabric_request requests[FABRIC_POST_MAX];
	uint8_t inlined[FABRIC_POST_MAX][FABRIC_INLINE_BYTES];
	unsigned count;
	void *cookie;
};

#define FAKE_QUEUE 64u

/* A connection. */
struct fake_ep {
	struct fabric_endpoint ep;
	struct fake *fake;
	struct fabric_endpoint *memory;
	struct fake_queued queue[FAKE_QUEUE];
	unsigned head, count;
	bool broken;
	int event;
	void *rpc_cookie; /* NULL: none is under way */
	bool rpc_silent;
	uint8_t *rpc_reply;
	uint8_t answer[WIRE_RPC_MAX_BYTES];
	uint32_t answer_bytes;
	struct fabric_completion last; /* of the post at which it broke */
	bool have_last;
};

/* Its connections are to this pool, which stays the caller's. */
struct fake fake_create(struct fixture *pool);
/* A session on it, which connects again by it. The pool stays the caller's. */
struct tarn_session *fake_session(struct fake *fake, struct fixture *pool, uint32_t flags,
				  uint32_t timeout_ms);

#endif
