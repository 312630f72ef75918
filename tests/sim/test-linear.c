/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-linear.c - does linear.c accept good histories and reject bad ones?
 *
 * Each case is a short history of one key with the verdict that it must get. At the end, random
 * histories that were made by doing operations one by one must be accepted, and the same with one
 * answer changed to a value never written rejected.
 */
#include "linear.h"

#include <stdlib.h>
#include <string.h>

#define GET(from, to, v)                                                                   \
	{                                                                                  \
		.kind = LINEAR_GET, .outcome = LINEAR_OK, .value = (v), .invoked = (from), \
		.returned = (to)                                                           \
	}
#define NONE(from, to)                                                                            \
	{                                                                                         \
		.kind = LINEAR_GET, .outcome = LINEAR_ABSENT, .invoked = (from), .returned = (to) \
	}
#define COUNT(from, to, v)                                                               \
	{                                                                                \
		.kind = LINEAR_GET, .outcome = LINEAR_OK, .counter = true, .value = (v), \
		.invoked = (from), .returned = (to)                                      \
	}
#define OP(k, o, from, to, v, e)                                                               \
	{                                                                                      \
		.kind = (k), .outcome = (o), .value = (v), .expected = (e), .invoked = (from), \
		.returned = (to)                                                               \
	}
#define PUT(from, to, v)            OP(LINEAR_PUT, LINEAR_OK, from, to, v, 0)
#define MAYBE_PUT(from, to, v)      OP(LINEAR_PUT, LINEAR_MAYBE, from, to, v, 0)
#define NEW(from, to, v)            OP(LINEAR_PUT_IF_ABSENT, LINEAR_OK, from, to, v, 0)
#define EXISTS(from, to, v)         OP(LINEAR_PUT_IF_ABSENT, LINEAR_EXISTS, from, to, v, 0)
#define SWAP(from, to, e, v)        OP(LINEAR_PUT_IF_STAMP, LINEAR_OK, from, to, v, e)
#define SWAP_OTHER(from, to, e, v)  OP(LINEAR_PUT_IF_STAMP, LINEAR_OTHER, from, to, v, e)
#define SWAP_ABSENT(from, to, e, v) OP(LINEAR_PUT_IF_STAMP, LINEAR_ABSENT, from, to, v, e)
#define DEL(from, to)               OP(LINEAR_DELETE, LINEAR_OK, from, to, 0, 0)
#define DEL_ABSENT(from, to)        OP(LINEAR_DELETE, LINEAR_ABSENT, from, to, 0, 0)
#define MAYBE_DEL(from, to)         OP(LINEAR_DELETE, LINEAR_MAYBE, from, to, 0, 0)
#define ADD(from, to, d, r)                                                            \
	{                                                                              \
		.kind = LINEAR_ADD, .outcome = LINEAR_OK, .value = (d), .result = (r), \
		.invoked = (from), .returned = (to)                                    \
	}
#define ADD_TYPE(from, to, d)  OP(LINEAR_ADD, LINEAR_OTHER, from, to, d, 0)
#define MAYBE_ADD(from, to, d) OP(LINEAR_ADD, LINEAR_MAYBE, from, to, d, 0)
#define VANISH(from, to)       OP(LINEAR_VANISH, LINEAR_OK, from, to, 0, 0)
#define EVER                   LINEAR_NEVER
/* A put that expires in epoch 10 to 12, and readers in known epochs */
#define MORTAL(from, to, v)                                                                \
	{                                                                                  \
		.kind = LINEAR_PUT, .outcome = LINEAR_OK, .value = (v), .invoked = (from), \
		.returned = (to), .expires_from = 10, .expires_until = 12                  \
	}
#define GET_IN(from, to, v, e1, e2)                                                        \
	{                                                                                  \
		.kind = LINEAR_GET, .outcome = LINEAR_OK, .value = (v), .invoked = (from), \
		.returned = (to), .epoch_invoked = (e1), .epoch_returned = (e2)            \
	}
#define NONE_IN(from, to, e1, e2)                                                                  \
	{                                                                                          \
		.kind = LINEAR_GET, .outcome = LINEAR_ABSENT, .invoked = (from), .returned = (to), \
		.epoch_invoked = (e1), .epoch_returned = (e2)                                      \
	}

struct history {
	const char *name;
	int good;
	struct linear_op ops[8]; /* up to the first with returned 0 */
};

static const struct history histories[] = {
	{"nothing happened", 1, {{.returned = 0}}},
	{"read before any write", 1, {NONE(1, 2)}},
	{"read of what was put", 1, {PUT(1, 2, 7), GET(3, 4, 7)}},
	{"read during a put sees the old state", 1, {PUT(1, 9, 7), NONE(2, 3)}},
	{"read during a put sees the new state", 1, {PUT(1, 9, 7), GET(2, 3, 7)}},
	{"reads during a put, old then new", 1, {PUT(1, 9, 7), NONE(2, 3), GET(4, 5, 7)}},
	{"reads during a put, new then old", 0, {PUT(1, 9, 7), GET(2, 3, 7), NONE(4, 5)}},
	{"stale read", 0, {PUT(1, 2, 7), PUT(3, 4, 8), GET(5, 6, 7)}},
	{"not found after a put", 0, {PUT(1, 2, 7), NONE(3, 4)}},
	{"read of a value never written", 0, {PUT(1, 2, 7), GET(3, 4, 9)}},
	{"read of a value from the future", 0, {GET(1, 2, 7), PUT(3, 4, 7)}},
	{"concurrent puts, either wins", 1, {PUT(1, 5, 7), PUT(2, 6, 8), GET(7, 8, 7)}},
	{"concurrent puts, readers disagree",
	 0,
	 {PUT(1, 5, 7), PUT(2, 6, 8), GET(7, 8, 7), GET(9, 10, 8)}},
	{"the order that two readers saw",
	 0,
	 {PUT(1, 20, 7), PUT(2, 20, 8), GET(3, 4, 7), GET(5, 6, 8), GET(7, 8, 7)}},
	{"resurrection after a delete", 0, {PUT(1, 2, 7), DEL(3, 4), GET(5, 6, 7)}},
	{"delete during a put", 1, {PUT(1, 6, 7), DEL(2, 7), NONE(8, 9)}},
	{"two deletes of one put", 0, {PUT(1, 2, 7), DEL(3, 6), DEL(4, 5)}},
	{"delete that found nothing after a put", 0, {PUT(1, 2, 7), DEL_ABSENT(3, 4)}},
	{"delete that found nothing beside another delete",
	 1,
	 {PUT(1, 2, 7), DEL(3, 6), DEL_ABSENT(4, 5)}},
	{"one winner of put-if-absent", 1, {NEW(1, 5, 7), EXISTS(2, 6, 8), GET(7, 8, 7)}},
	{"two winners of put-if-absent", 0, {NEW(1, 5, 7), NEW(2, 6, 8)}},
	{"no winner of put-if-absent", 0, {EXISTS(1, 5, 7), EXISTS(2, 6, 8)}},
	{"two winners with a delete between them", 1, {NEW(1, 5, 7), DEL(2, 9), NEW(6, 8, 8)}},
	{"put-if-absent lost but its value is read",
	 0,
	 {PUT(1, 2, 7), EXISTS(3, 4, 8), GET(5, 6, 8)}},
	{"put-if-stamp", 1, {PUT(1, 2, 7), SWAP(3, 4, 7, 8), GET(5, 6, 8)}},
	{"lost update: two swaps of one stamp",
	 0,
	 {PUT(1, 2, 7), SWAP(3, 6, 7, 8), SWAP(4, 5, 7, 9)}},
	{"swap of a stamp that is gone", 0, {PUT(1, 2, 7), PUT(3, 4, 8), SWAP(5, 6, 7, 9)}},
	{"swap refused rightly",
	 1,
	 {PUT(1, 2, 7), PUT(3, 4, 8), SWAP_OTHER(5, 6, 7, 9), GET(7, 8, 8)}},
	{"swap refused wrongly", 0, {PUT(1, 2, 7), SWAP_OTHER(5, 6, 7, 9)}},
	{"swap of a key that is not there", 1, {PUT(1, 2, 7), DEL(3, 4), SWAP_ABSENT(5, 6, 7, 9)}},
	{"swap says not there but it is", 0, {PUT(1, 2, 7), PUT(3, 4, 8), SWAP_ABSENT(5, 6, 7, 9)}},
	{"adds", 1, {ADD(1, 2, 5, 5), ADD(3, 4, (uint64_t)-2, 3), COUNT(5, 6, 3)}},
	{"concurrent adds", 1, {ADD(1, 9, 5, 7), ADD(2, 8, 2, 2), COUNT(10, 11, 7)}},
	{"lost add", 0, {ADD(1, 9, 5, 5), ADD(2, 8, 2, 2)}},
	{"add done twice", 0, {ADD(1, 2, 5, 5), COUNT(3, 4, 10)}},
	{"add to a value", 1, {PUT(1, 2, 7), ADD_TYPE(3, 4, 1)}},
	{"add to a value that works", 0, {PUT(1, 2, 7), ADD(3, 4, 1, 1)}},
	{"add to a counter refused", 0, {ADD(1, 2, 1, 1), ADD_TYPE(3, 4, 1)}},
	{"add begins anew after a delete", 1, {ADD(1, 2, 5, 5), DEL(3, 4), ADD(5, 6, 1, 1)}},
	{"a counter is no value with this number", 0, {ADD(1, 2, 5, 5), GET(3, 4, 5)}},
	{"ambiguous put took effect", 1, {MAYBE_PUT(1, EVER, 7), NONE(2, 3), GET(4, 5, 7)}},
	{"ambiguous put never took effect", 1, {MAYBE_PUT(1, EVER, 7), NONE(2, 3), NONE(4, 5)}},
	{"ambiguous put took effect twice",
	 0,
	 {MAYBE_PUT(1, EVER, 7), GET(2, 3, 7), DEL(4, 5), GET(6, 7, 7)}},
	{"ambiguous put before its call", 0, {GET(1, 2, 7), MAYBE_PUT(3, EVER, 7)}},
	{"killed client's put takes effect after its death",
	 0,
	 {MAYBE_PUT(1, 3, 7), NONE(4, 5), GET(6, 7, 7)}},
	{"killed client's put was seen late but took effect in time",
	 1,
	 {MAYBE_PUT(1, 3, 7), GET(6, 7, 7)}},
	{"what vanishes is gone", 1, {PUT(1, 2, 7), VANISH(3, 4), NONE(5, 6)}},
	{"there may have been nothing", 1, {VANISH(1, 2), VANISH(3, 4), PUT(5, 6, 7), GET(7, 8, 7)}},
	{"read of what has vanished", 0, {PUT(1, 2, 7), VANISH(3, 4), GET(5, 6, 7)}},
	{"ambiguous delete", 1, {PUT(1, 2, 7), MAYBE_DEL(3, EVER), GET(4, 5, 7), NONE(6, 7)}},
	{"ambiguous add counts once", 1, {ADD(1, 2, 5, 5), MAYBE_ADD(3, EVER, 1), ADD(4, 5, 1, 7)}},
	{"ambiguous add counts twice",
	 0,
	 {ADD(1, 2, 5, 5), MAYBE_ADD(3, EVER, 1), ADD(4, 5, 1, 8)}},
	{"before its expiry a value is there", 1, {MORTAL(1, 2, 7), GET_IN(3, 4, 7, 9, 9)}},
	{"before its expiry a value is missing", 0, {MORTAL(1, 2, 7), NONE_IN(3, 4, 8, 9)}},
	{"after its expiry a value is gone", 1, {MORTAL(1, 2, 7), NONE_IN(3, 4, 12, 12)}},
	{"after its expiry a value is there", 0, {MORTAL(1, 2, 7), GET_IN(3, 4, 7, 12, 13)}},
	{"around its expiry readers may disagree",
	 1,
	 {MORTAL(1, 2, 7), NONE_IN(3, 4, 10, 10), GET_IN(5, 6, 7, 11, 11)}},
};

static unsigned length(const struct linear_op *ops, unsigned max)
{
	unsigned n = 0;

	while (n < max && ops[n].returned)
		n++;
	return n;
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/*
 * Puts, deletes and gets done one by one at instants 100, 200, ..., each given an interval around
 * its instant.
 */
static void make_history(uint64_t *random, struct linear_op *ops, unsigned count)
{
	uint64_t now = 0;

	for (unsigned i = 0; i < count; i++) {
		uint64_t at = 1000 + 100 * (uint64_t)i;

		ops[i] = (struct linear_op){.invoked = at - next_random(random) % 400,
					    .returned = at + next_random(random) % 400};
		switch (next_random(random) % 4) {
		case 0:
			ops[i].kind = LINEAR_PUT;
			ops[i].value = now = i + 1;
			break;
		case 1:
			ops[i].kind = LINEAR_DELETE;
			ops[i].outcome = now ? LINEAR_OK : LINEAR_ABSENT;
			now = 0;
			break;
		default:
			ops[i].kind = LINEAR_GET;
			ops[i].outcome = now ? LINEAR_OK : LINEAR_ABSENT;
			ops[i].value = now;
			break;
		}
	}
}

/* Returns the number of histories that got the wrong verdict. */
static unsigned try_random(struct linear *linear, bool spoil, unsigned rounds)
{
	uint64_t random = spoil ? 2 : 1;
	unsigned wrong = 0;

	for (unsigned round = 0; round < rounds; round++) {
		struct linear_op ops[32];
		unsigned at = (unsigned)(next_random(&random) % 32);

		make_history(&random, ops, 32);
		if (spoil)
			ops[at] = (struct linear_op){.kind = LINEAR_GET,
						     .outcome = LINEAR_OK,
						     .value = 99,
						     .invoked = ops[at].invoked,
						     .returned = ops[at].returned};
		wrong += linear_check(linear, ops, 32, NULL) != !spoil;
	}
	return wrong;
}

int main(void)
{
	const unsigned count = sizeof(histories) / sizeof(histories[0]);
	struct linear *linear = linear_create();
	struct linear_op many[LINEAR_MAX_OPS + 1];
	unsigned failed = 0;

	if (!linear)
		return 1;
	printf("1..%u\n", count + 3);
	for (unsigned i = 0; i < count; i++) {
		const struct history *h = &histories[i];
		unsigned n = length(h->ops, 8);
		uint64_t deepest = 0;
		bool right = linear_check(linear, h->ops, n, &deepest) == h->good;

		printf("%sok %u - %s: %s\n", right ? "" : "not ", i + 1,
		       h->good ? "accepts" : "rejects", h->name);
		if (!right)
			linear_print(stdout, h->ops, n, deepest);
		failed += !right;
	}
	unsigned wrong = try_random(linear, false, 2000);
	printf("%sok %u - accepts 2000 random good histories (%u wrong)\n", wrong ? "not " : "",
	       count + 1, wrong);
	failed += wrong != 0;
	wrong = try_random(linear, true, 2000);
	printf("%sok %u - rejects 2000 random histories with an invented value (%u wrong)\n",
	       wrong ? "not " : "", count + 2, wrong);
	failed += wrong != 0;
	memset(many, 0, sizeof(many));
	wrong = linear_check(linear, many, LINEAR_MAX_OPS + 1, NULL) >= 0;
	printf("%sok %u - refuses a history that is too long\n", wrong ? "not " : "", count + 3);
	failed += wrong;
	linear_free(linear);
	return failed != 0;
}
