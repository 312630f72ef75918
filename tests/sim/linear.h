/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * linear.h - is the history of one key linearizable?
 *
 * A history is a list of operations, each with the instants at which it was called and at which it
 * returned, and what it returned. It is linearizable if the operations can be put in one order such
 * that each stands at an instant between its call and its return, and returns what it would return
 * if they were done one by one in that order. Method: Wing and Gong's search with Lowe's memory of
 * (set of operations done, state) pairs that have been tried.
 *
 * A write whose outcome is not known (it was ambiguous, or its client was killed) may take effect
 * at an instant between its call and `returned`, or never.
 */
#ifndef TARN_LINEAR_H
#define TARN_LINEAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define LINEAR_MAX_OPS 64u
#define LINEAR_NEVER   UINT64_MAX /* `returned` of a write that may take effect for ever after */

enum linear_kind {
	LINEAR_GET,
	LINEAR_PUT,
	LINEAR_PUT_IF_ABSENT,
	LINEAR_PUT_IF_STAMP,
	LINEAR_DELETE,
	LINEAR_ADD,
	LINEAR_VANISH /* the key is gone from then on, whether it was there or not */
};

enum linear_outcome {
	LINEAR_OK,     /* a get found a value; any other took effect */
	LINEAR_ABSENT, /* get, delete, put-if-stamp: the key was not there */
	LINEAR_EXISTS, /* put-if-absent: the key was there */
	LINEAR_OTHER,  /* put-if-stamp: it was there with another stamp; add: it was no counter */
	LINEAR_MAYBE   /* a write: took effect once, or never */
};

struct linear_op {
	enum linear_kind kind;
	enum linear_outcome outcome;
	bool counter;    /* get: it found a counter */
	unsigned client; /* for people */
	/* put: the id that it writes, not 0. get: the id or number found. add: what to add */
	uint64_t value;
	uint64_t expected;          /* put-if-stamp: the id whose stamp it wants */
	uint64_t result;            /* add: the counter afterwards */
	uint64_t invoked, returned; /* any unit; LINEAR_NEVER */
	/*
	 * Expiry is by epochs, and readers may know the epoch late: a value that was put with
	 * expiry is there for whoever returns before the epoch `expires_from`, gone for whoever is
	 * called in `expires_until` or later, and either for the others. 0: never expires.
	 */
	uint64_t expires_from, expires_until;
	uint64_t epoch_invoked, epoch_returned;
};

struct linear; /* the memory of tried pairs, kept from one check to the next */

struct linear *linear_create(void);
void linear_free(struct linear *linear);

/*
 * 1: linearizable, starting from a key that is not there. 0: not. Negative: -E2BIG (more than
 * LINEAR_MAX_OPS) or -ENOMEM. After 0 *ret_deepest (may be NULL) has
 * the largest set of operations that could be put in order, bit i for ops[i]: the trouble is with
 * those which are missing.
 */
int linear_check(struct linear *linear, const struct linear_op *ops, unsigned count,
		 uint64_t *ret_deepest);

void linear_print(FILE *file, const struct linear_op *ops, unsigned count, uint64_t deepest);

#endif
