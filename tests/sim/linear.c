/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * linear.c - the search of linear.h
 *
 * A depth-first search over "which operation comes next". An operation can come next if no other
 * one that is still to come returned before it was called. The state of a key is small (nothing,
 * the put that wrote its value, or a counter), so the pairs (set done, state) that were tried in
 * vain fit a hash table, and each is tried once.
 */
#include "linear.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum state_kind { STATE_ABSENT, STATE_VALUE, STATE_COUNTER };

struct state {
	uint32_t kind;
	uint32_t writer; /* STATE_VALUE: index of the put */
	uint64_t number; /* STATE_COUNTER */
};

struct tried {
	uint64_t done;
	struct state state;
	uint64_t check; /* number of the linear_check() that wrote this entry; others are empty */
};

#define TABLE_MIN_BITS 10u
#define TABLE_MAX_BITS 24u

struct linear {
	struct tried *table;
	unsigned bits;
	uint64_t used;
	uint64_t check;
	/* of the check that runs */
	const struct linear_op *ops;
	unsigned count;
	uint64_t definite; /* operations that must be in the order */
	uint64_t deepest;
	bool failed; /* no memory */
};

struct linear *linear_create(void)
{
	struct linear *linear = calloc(1, sizeof(*linear));

	if (!linear)
		return NULL;
	linear->bits = TABLE_MIN_BITS;
	linear->table = calloc((size_t)1 << linear->bits, sizeof(struct tried));
	if (!linear->table) {
		free(linear);
		return NULL;
	}
	return linear;
}

void linear_free(struct linear *linear)
{
	if (linear)
		free(linear->table);
	free(linear);
}

/* ---- the memory ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	return x ^ x >> 32;
}

static struct tried *table_find(struct linear *linear, uint64_t done, struct state state)
{
	uint64_t mask = ((uint64_t)1 << linear->bits) - 1;
	uint64_t i =
		mix(done ^ mix(state.number ^ (uint64_t)state.writer << 8 ^ state.kind)) & mask;

	for (;; i = (i + 1) & mask) {
		struct tried *t = &linear->table[i];

		if (t->check != linear->check ||
		    (t->done == done && t->state.kind == state.kind &&
		     t->state.writer == state.writer && t->state.number == state.number))
			return t;
	}
}

static bool table_grow(struct linear *linear)
{
	struct tried *old = linear->table;
	uint64_t size = (uint64_t)1 << linear->bits;

	if (linear->bits >= TABLE_MAX_BITS)
		return false;
	linear->table = calloc((size_t)size * 2, sizeof(*old));
	if (!linear->table) {
		linear->table = old;
		return false;
	}
	linear->bits++;
	for (uint64_t i = 0; i < size; i++)
		if (old[i].check == linear->check)
			*table_find(linear, old[i].done, old[i].state) = old[i];
	free(old);
	return true;
}

/* Notes a pair; false if it was noted before. */
static bool table_add(struct linear *linear, uint64_t done, struct state state)
{
	struct tried *t = table_find(linear, done, state);

	if (t->check == linear->check)
		return false;
	*t = (struct tried){.done = done, .state = state, .check = linear->check};
	if (++linear->used * 4 > (uint64_t)3 << linear->bits && !table_grow(linear))
		linear->failed = true;
	return true;
}

/* ---- what an operation does ---- */

#define SEEN_PRESENT 1u
#define SEEN_ABSENT  2u

/* How an operation may find the key in this state. */
static unsigned may_see(const struct linear *linear, const struct linear_op *op, struct state state)
{
	const struct linear_op *writer;

	if (state.kind == STATE_ABSENT)
		return SEEN_ABSENT;
	if (state.kind == STATE_COUNTER)
		return SEEN_PRESENT;
	writer = &linear->ops[state.writer];
	if (!writer->expires_until || op->epoch_returned < writer->expires_from)
		return SEEN_PRESENT;
	return op->epoch_invoked >= writer->expires_until ? SEEN_ABSENT
							  : SEEN_PRESENT | SEEN_ABSENT;
}

static bool get_matches(const struct linear *linear, const struct linear_op *op, struct state state,
			bool present)
{
	if (!present || op->outcome == LINEAR_ABSENT)
		return !present && op->outcome == LINEAR_ABSENT;
	if (state.kind == STATE_COUNTER)
		return op->counter && op->value == state.number;
	return !op->counter && op->value == linear->ops[state.writer].value;
}

/* Adds to what is there, if the outcome says so. */
static bool add_applies(const struct linear_op *op, struct state *state, bool present)
{
	uint64_t before = present ? state->number : 0;

	if (present && state->kind == STATE_VALUE)
		return op->outcome == LINEAR_OTHER;
	if (op->outcome == LINEAR_OTHER ||
	    (op->outcome == LINEAR_OK && op->result != before + op->value))
		return false;
	*state = (struct state){.kind = STATE_COUNTER, .number = before + op->value};
	return true;
}

/*
 * Does the operation, done in `state`, return what it returned? Then *state is the state after it.
 */
static bool apply(const struct linear *linear, unsigned index, struct state *state, bool present)
{
	const struct linear_op *op = &linear->ops[index];
	bool effect = op->outcome == LINEAR_OK || op->outcome == LINEAR_MAYBE;
	bool same = present && state->kind == STATE_VALUE &&
		    linear->ops[state->writer].value == op->expected;

	switch (op->kind) {
	case LINEAR_GET:
		return get_matches(linear, op, *state, present);
	case LINEAR_ADD:
		return add_applies(op, state, present);
	case LINEAR_DELETE:
		if (effect != present)
			return false;
		if (effect)
			*state = (struct state){.kind = STATE_ABSENT};
		return true;
	case LINEAR_VANISH:
		*state = (struct state){.kind = STATE_ABSENT};
		return true;
	case LINEAR_PUT:
		break;
	case LINEAR_PUT_IF_ABSENT:
		if (effect != !present)
			return false;
		break;
	case LINEAR_PUT_IF_STAMP:
		if (effect != same || (!effect && (op->outcome == LINEAR_ABSENT) != !present))
			return false;
		break;
	}
	if (effect)
		*state = (struct state){.kind = STATE_VALUE, .writer = index};
	return true;
}

/* ---- the search ---- */

static bool search(struct linear *linear, uint64_t done, struct state state);

/* Can `index` come next, and the rest after it? */
static bool search_with(struct linear *linear, uint64_t done, struct state state, unsigned index)
{
	const struct linear_op *op = &linear->ops[index];
	uint64_t then = done | (uint64_t)1 << index;
	unsigned seen = may_see(linear, op, state);

	for (unsigned how = SEEN_PRESENT; how <= SEEN_ABSENT; how <<= 1) {
		struct state next = state;

		if ((seen & how) && apply(linear, index, &next, how == SEEN_PRESENT) &&
		    search(linear, then, next))
			return true;
	}
	/* The other fate of a write that is in doubt: it never took effect. */
	return op->outcome == LINEAR_MAYBE && search(linear, then, state);
}

static bool search(struct linear *linear, uint64_t done, struct state state)
{
	uint64_t first_return = LINEAR_NEVER;

	if ((done & linear->definite) == linear->definite)
		return true;
	if (linear->failed || !table_add(linear, done, state))
		return false;
	if (__builtin_popcountll(done) > __builtin_popcountll(linear->deepest))
		linear->deepest = done;
	for (unsigned i = 0; i < linear->count; i++)
		if (!(done >> i & 1) && linear->ops[i].returned < first_return)
			first_return = linear->ops[i].returned;
	for (unsigned i = 0; i < linear->count; i++)
		if (!(done >> i & 1) && linear->ops[i].invoked <= first_return &&
		    search_with(linear, done, state, i))
			return true;
	return false;
}

int linear_check(struct linear *linear, const struct linear_op *ops, unsigned count,
		 uint64_t *ret_deepest)
{
	bool good;

	if (count > LINEAR_MAX_OPS)
		return -E2BIG;
	linear->ops = ops;
	linear->count = count;
	linear->check++;
	linear->used = 0;
	linear->definite = linear->deepest = 0;
	linear->failed = false;
	for (unsigned i = 0; i < count; i++)
		if (ops[i].outcome != LINEAR_MAYBE)
			linear->definite |= (uint64_t)1 << i;
	good = search(linear, 0, (struct state){.kind = STATE_ABSENT});
	if (!good && linear->failed)
		return -ENOMEM;
	if (!good && ret_deepest)
		*ret_deepest = linear->deepest;
	return good;
}

/* ---- for people ---- */

static const char *kind_name(enum linear_kind kind)
{
	switch (kind) {
	case LINEAR_GET:
		return "get";
	case LINEAR_PUT:
		return "put";
	case LINEAR_PUT_IF_ABSENT:
		return "put-if-absent";
	case LINEAR_PUT_IF_STAMP:
		return "put-if-stamp";
	case LINEAR_DELETE:
		return "delete";
	case LINEAR_ADD:
		return "add";
	case LINEAR_VANISH:
		return "vanish";
	}
	return "?";
}

static const char *outcome_name(enum linear_outcome outcome)
{
	switch (outcome) {
	case LINEAR_OK:
		return "ok";
	case LINEAR_ABSENT:
		return "not found";
	case LINEAR_EXISTS:
		return "exists";
	case LINEAR_OTHER:
		return "another stamp or type";
	case LINEAR_MAYBE:
		return "in doubt";
	}
	return "?";
}

void linear_print(FILE *file, const struct linear_op *ops, unsigned count, uint64_t deepest)
{
	for (unsigned i = 0; i < count; i++) {
		const struct linear_op *op = &ops[i];

		fprintf(file, "  %c client %u  %8llu - ", deepest >> i & 1 ? ' ' : '*', op->client,
			(unsigned long long)op->invoked);
		if (op->returned == LINEAR_NEVER)
			fprintf(file, "   never");
		else
			fprintf(file, "%8llu", (unsigned long long)op->returned);
		fprintf(file, "  %s", kind_name(op->kind));
		if (op->kind == LINEAR_PUT_IF_STAMP)
			fprintf(file, " (of v%llu)", (unsigned long long)op->expected);
		if (op->kind == LINEAR_ADD || op->counter)
			fprintf(file, " %lld", (long long)op->value);
		else if (op->kind != LINEAR_DELETE && op->kind != LINEAR_VANISH &&
			 (op->kind != LINEAR_GET || op->outcome == LINEAR_OK))
			fprintf(file, " v%llu", (unsigned long long)op->value);
		if (op->kind == LINEAR_ADD && op->outcome == LINEAR_OK)
			fprintf(file, " -> %lld", (long long)op->result);
		if (op->expires_until)
			fprintf(file, " expires in epoch %llu to %llu",
				(unsigned long long)op->expires_from,
				(unsigned long long)op->expires_until);
		fprintf(file, ": %s  (epochs %llu - %llu)\n", outcome_name(op->outcome),
			(unsigned long long)op->epoch_invoked,
			(unsigned long long)op->epoch_returned);
	}
}
