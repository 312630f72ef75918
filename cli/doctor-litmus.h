/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-litmus.h - does a connection keep what docs/protocol.md section 1 asks of it?
 *
 * Works on LITMUS_BYTES of a pool that nobody else touches meanwhile, through two endpoints, with a
 * thread for each where two are needed. The endpoints are the caller's, who must close them before
 * it frees the struct: what was posted and not completed may still write into it.
 */
#pragma once

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric.h"
#include "hist.h"

#define LITMUS_BYTES      4096u
#define LITMUS_DATA_BYTES 2048u

struct litmus_side {
	struct litmus *litmus;
	struct fabric_endpoint *ep;
	unsigned me; /* 0 or 1 */
	uint64_t random;
	uint64_t old, seen; /* what CAS and READ bring */
	uint64_t adds;      /* litmus_count(): additions that were made */
	uint64_t out[LITMUS_DATA_BYTES / 8], in[LITMUS_DATA_BYTES / 8];
};

struct litmus {
	uint64_t base; /* offset of the scratch bytes in the pool */
	uint64_t timeout_ns;
	struct litmus_side sides[2];
	sem_t arrived[2]; /* during a test: raised by each side when it comes to a meeting */
	atomic_int error; /* 0, or the code that ends the test under way */
	uint64_t rounds, until_ns;
	/* counted by side 0, or by side 1 in litmus_publish() */
	uint64_t done, failures, overlaps;
};

/* Of one test. failures > 0: the promise was broken so often. */
struct litmus_result {
	uint64_t rounds, failures;
	uint64_t overlaps; /* store-buffering: rounds in which both saw the other one's CAS */
	char text[256];    /* what was wrong, where a count is not enough; else "" */
};

void litmus_init(struct litmus *litmus, struct fabric_endpoint *first,
		 struct fabric_endpoint *second, uint64_t base, uint64_t timeout_ns);

/*
 * Each returns 0 when the test has run (the result says whether it passed), -TARN_ETIMEOUT,
 * -TARN_ESESSION, or what posting returned.
 */

/* READ, WRITE, CAS and FAA do what they say, byte order included; both endpoints see it. */
int litmus_words(struct litmus *litmus, struct litmus_result *ret_result);
/* A fenced WRITE does not pass the READ before it. */
int litmus_fence(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result);
/* FAAs of both endpoints on one word: none is lost. */
int litmus_count(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result);
/* CAS(A), READ(B) against CAS(B), READ(A), each in one post: they must not both miss. */
int litmus_store(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result);
/* WRITE data, CAS flag in one post: who sees the flag sees the data. */
int litmus_publish(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result);

enum litmus_operation { LITMUS_READ, LITMUS_READ_BLOCK, LITMUS_WRITE, LITMUS_CAS };
/* Times of single operations, one after the other, on the first endpoint. */
int litmus_latency(struct litmus *litmus, enum litmus_operation operation, unsigned count,
		   struct hist *ret_hist);
