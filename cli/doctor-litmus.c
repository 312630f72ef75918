/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-litmus.c - tests of what a connection promises, on words that nobody else uses
 *
 * Two threads, one for each endpoint, meet before and after each round; nothing else is shared
 * between them but `arrived` and `error`. The tests look for orders that must not happen: that they
 * see none proves nothing, that they see one does. On a test's failure the pool is unharmed. Next:
 * docs/protocol.md section 1, doctor-peer.c.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "doctor-litmus.h"
#include "tarn/tarn.h"

/* Where in the scratch bytes: each word in a cache line of its own. */
#define WORD_A     0u
#define WORD_B     64u
#define WORD_FLAG  128u
#define WORD_COUNT 192u
#define WORD_SELF  256u
#define WORD_TIME  320u
#define DATA       1024u

#define IDLE_POLLS 100u           /* then the endpoint may sleep */
#define WAIT_NS    1000000u       /* so long at a time */
#define SPINS      2000u          /* in a meeting, before the thread sleeps */
#define MEET_NS    20000000       /* so long; then it looks whether the other side has given up */
#define DELAY_BITS 14u            /* one side starts up to 2^13 pauses after the other */
#define TEST_NS    15000000000ull /* a test ends then, with the rounds that it has done */

static_assert(DATA + LITMUS_DATA_BYTES <= LITMUS_BYTES, "scratch bytes");

void litmus_init(struct litmus *litmus, struct fabric_endpoint *first,
		 struct fabric_endpoint *second, uint64_t base, uint64_t timeout_ns)
{
	memset(litmus, 0, sizeof(*litmus));
	litmus->base = base;
	litmus->timeout_ns = timeout_ns;
	for (unsigned i = 0; i < 2; i++) {
		litmus->sides[i].litmus = litmus;
		litmus->sides[i].ep = i == 0 ? first : second;
		litmus->sides[i].me = i;
		litmus->sides[i].random = 0x9e3779b97f4a7c15ull * (i + 1);
	}
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct fabric_request read_of(const struct litmus_side *side, uint32_t where, void *local,
				     uint32_t length)
{
	return fabric_read(side->litmus->base + where, local, length);
}

static struct fabric_request write_of(const struct litmus_side *side, uint32_t where, void *local,
				      uint32_t length)
{
	return (struct fabric_request){.opcode = FABRIC_WRITE,
				       .flags = length <= FABRIC_INLINE_BYTES ? FABRIC_INLINE : 0,
				       .length = length,
				       .offset = side->litmus->base + where,
				       .local = local};
}

static struct fabric_request cas_of(struct litmus_side *side, uint32_t where, uint64_t compare,
				    uint64_t value)
{
	return (struct fabric_request){.opcode = FABRIC_CAS,
				       .length = 8,
				       .offset = side->litmus->base + where,
				       .local = &side->old,
				       .compare = compare,
				       .operand = value};
}

static struct fabric_request faa_of(struct litmus_side *side, uint32_t where, uint64_t add)
{
	return (struct fabric_request){.opcode = FABRIC_FAA,
				       .length = 8,
				       .offset = side->litmus->base + where,
				       .local = &side->old,
				       .operand = add};
}

/* Posts and waits. */
static int post(struct litmus_side *side, const struct fabric_request *requests, unsigned count)
{
	struct fabric_endpoint *ep = side->ep;
	struct fabric_completion completion;
	uint64_t limit_ns = 0;
	unsigned idle = 0;
	int ret = fabric_post(ep, requests, count, side);

	if (ret != 0)
		return ret < 0 ? ret : 0;
	for (;;) {
		ret = fabric_poll(ep, &completion, 1);
		if (ret < 0)
			return ret;
		if (ret > 0 && completion.cookie == side)
			return completion.status;
		if (++idle % IDLE_POLLS != 0)
			continue;
		if (limit_ns == 0)
			limit_ns = clock_now_ns() + side->litmus->timeout_ns;
		else if (clock_now_ns() > limit_ns)
			return -TARN_ETIMEOUT;
		ep->ops->wait(ep, WAIT_NS);
	}
}

static int set_word(struct litmus_side *side, uint32_t where, uint64_t value)
{
	struct fabric_request request;

	side->out[0] = value;
	request = write_of(side, where, side->out, 8);
	return post(side, &request, 1);
}

static int get_word(struct litmus_side *side, uint32_t where, uint64_t *ret_value)
{
	struct fabric_request request = read_of(side, where, &side->seen, 8);
	int ret = post(side, &request, 1);

	if (ret == 0)
		*ret_value = side->seen;
	return ret;
}

/* ---- two threads ----------------------------------------------------------------------------- */

static uint64_t next_random(struct litmus_side *side)
{
	side->random ^= side->random << 13;
	side->random ^= side->random >> 7;
	side->random ^= side->random << 17;
	return side->random;
}

/*
 * Waits for the other side; what either did before it is seen by both after it. Spins, so that both
 * go on within nanoseconds where each has a CPU; sleeps where they share one. False: the other side
 * has given up.
 */
static bool meet(struct litmus_side *side)
{
	struct litmus *litmus = side->litmus;
	sem_t *mine = &litmus->arrived[!side->me];

	sem_post(&litmus->arrived[side->me]);
	for (unsigned spins = 0; spins < SPINS; spins++)
		if (sem_trywait(mine) == 0)
			return true;
	while (atomic_load(&litmus->error) == 0) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += MEET_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (sem_timedwait(mine, &until) == 0)
			return true;
	}
	return false;
}

static void give_up(struct litmus_side *side, int code)
{
	int none = 0;

	atomic_compare_exchange_strong(&side->litmus->error, &none, code);
}

/*
 * One of the two begins a little later, another one each time. Delays of every order of magnitude
 * are equally likely: how wide the window is depends on the transport, from 10 ns to 100 us.
 */
static void delay(struct litmus_side *side)
{
	uint64_t steps = next_random(side) % (1ull << next_random(side) % DELAY_BITS);

	for (volatile uint64_t i = 0; i < steps; i++)
		;
}

static int run_both(struct litmus *litmus, void *(*run)(void *side), uint64_t rounds,
		    struct litmus_result *ret_result)
{
	pthread_t thread;
	int ret;

	litmus->rounds = rounds;
	litmus->until_ns = clock_now_ns() + TEST_NS;
	litmus->done = litmus->failures = litmus->overlaps = 0;
	atomic_store(&litmus->error, 0);
	for (unsigned i = 0; i < 2; i++)
		sem_init(&litmus->arrived[i], 0, 0);
	ret = -pthread_create(&thread, NULL, run, &litmus->sides[1]);
	if (ret == 0) {
		run(&litmus->sides[0]);
		pthread_join(thread, NULL);
	}
	for (unsigned i = 0; i < 2; i++)
		sem_destroy(&litmus->arrived[i]);
	if (ret < 0)
		return ret;
	*ret_result = (struct litmus_result){
		.rounds = litmus->done, .failures = litmus->failures, .overlaps = litmus->overlaps};
	return atomic_load(&litmus->error);
}

/*
 * Both sides must end after the same round: side 0 decides, before a meeting, by lowering `rounds`.
 */
static void watch_time(struct litmus_side *side, uint64_t round)
{
	struct litmus *litmus = side->litmus;

	if (side->me == 0 && round % 64 == 0 && clock_now_ns() > litmus->until_ns)
		litmus->rounds = round;
}

/* ---- words ----------------------------------------------------------------------------------- */

#define SELF_FIRST  0x0102030405060708ull
#define SELF_SECOND 0x1122334455667788ull

static int self_failed(struct litmus_result *result, const char *what, uint64_t got, uint64_t want)
{
	result->failures++;
	snprintf(result->text, sizeof(result->text),
		 "%s gave 0x%016" PRIx64 ", not 0x%016" PRIx64 "%s", what, got, want,
		 got == __builtin_bswap64(want) ? ": the bytes are in reverse order" : "");
	return 0;
}

/* A CAS, and what it says the word was before. */
static int self_cas(struct litmus_side *side, uint64_t compare, uint64_t value, uint64_t want,
		    const char *what, struct litmus_result *result)
{
	struct fabric_request request = cas_of(side, WORD_SELF, compare, value);
	int ret;

	side->old = ~want;
	ret = post(side, &request, 1);
	result->rounds++;
	if (ret == 0 && side->old != want)
		return self_failed(result, what, side->old, want);
	return ret;
}

static int self_read(struct litmus_side *side, uint64_t want, const char *what,
		     struct litmus_result *result)
{
	uint64_t value = ~want;
	int ret = get_word(side, WORD_SELF, &value);

	result->rounds++;
	if (ret == 0 && value != want)
		return self_failed(result, what, value, want);
	return ret;
}

static int self_faa(struct litmus_side *side, uint64_t add, uint64_t want,
		    struct litmus_result *result)
{
	struct fabric_request request = faa_of(side, WORD_SELF, add);
	int ret;

	side->old = ~want;
	ret = post(side, &request, 1);
	result->rounds++;
	if (ret == 0 && side->old != want)
		return self_failed(result, "FAA", side->old, want);
	return ret;
}

int litmus_words(struct litmus *litmus, struct litmus_result *ret_result)
{
	struct litmus_side *first = &litmus->sides[0], *second = &litmus->sides[1];
	struct litmus_result result = {0};
	int ret = set_word(first, WORD_SELF, SELF_FIRST);

	if (ret == 0)
		ret = self_read(second, SELF_FIRST, "READ after the other connection's WRITE",
				&result);
	if (ret == 0 && result.failures == 0)
		ret = self_cas(first, SELF_SECOND, 1, SELF_FIRST,
			       "a CAS that must fail (the word that it compares with is another)",
			       &result);
	if (ret == 0 && result.failures == 0)
		ret = self_read(second, SELF_FIRST, "READ after a CAS that must fail", &result);
	if (ret == 0 && result.failures == 0)
		ret = self_cas(first, SELF_FIRST, SELF_SECOND, SELF_FIRST,
			       "a CAS that must succeed", &result);
	if (ret == 0 && result.failures == 0)
		ret = self_read(second, SELF_SECOND, "READ after the other connection's CAS",
				&result);
	if (ret == 0 && result.failures == 0)
		ret = self_cas(second, SELF_SECOND, 0xffffffffull, SELF_SECOND,
			       "the second connection's CAS", &result);
	if (ret == 0 && result.failures == 0)
		ret = self_faa(first, 1, 0xffffffffull, &result);
	if (ret == 0 && result.failures == 0)
		ret = self_read(first, 0x100000000ull, "READ after FAA", &result);
	if (ret == 0)
		*ret_result = result;
	return ret;
}

/* ---- fence ----------------------------------------------------------------------------------- */

static uint64_t pattern(uint64_t round, uint64_t word)
{
	return (round + 1) * 0x9e3779b97f4a7c15ull + word;
}

static void fill(uint64_t *words, uint32_t bytes, uint64_t round)
{
	for (uint32_t i = 0; i < bytes / 8; i++)
		words[i] = pattern(round, i);
}

static bool is_filled(const uint64_t *words, uint32_t bytes, uint64_t round)
{
	for (uint32_t i = 0; i < bytes / 8; i++)
		if (words[i] != pattern(round, i))
			return false;
	return true;
}

int litmus_fence(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result)
{
	struct litmus_side *side = &litmus->sides[0];
	struct litmus_result result = {0};
	struct fabric_request requests[2];
	uint64_t until_ns = clock_now_ns() + TEST_NS;
	int ret;

	fill(side->out, LITMUS_DATA_BYTES, 0);
	requests[0] = write_of(side, DATA, side->out, LITMUS_DATA_BYTES);
	ret = post(side, requests, 1);
	for (uint64_t i = 0; ret == 0 && i < rounds; i++) {
		fill(side->out, LITMUS_DATA_BYTES, i + 1);
		requests[0] = read_of(side, DATA, side->in, LITMUS_DATA_BYTES);
		requests[1] = write_of(side, DATA, side->out, LITMUS_DATA_BYTES);
		requests[1].flags |= FABRIC_FENCE;
		ret = post(side, requests, 2);
		if (ret < 0)
			break;
		result.rounds++;
		result.failures += !is_filled(side->in, LITMUS_DATA_BYTES, i);
		if (i % 64 == 0 && clock_now_ns() > until_ns)
			break;
	}
	if (ret == 0)
		*ret_result = result;
	return ret;
}

/* ---- count ----------------------------------------------------------------------------------- */

static void *count_side(void *data)
{
	struct litmus_side *side = data;
	struct litmus *litmus = side->litmus;
	struct fabric_request request = faa_of(side, WORD_COUNT, 1);
	int ret = 0;

	if (!meet(side))
		return NULL;
	for (uint64_t i = 0; i < litmus->rounds && ret == 0; i++) {
		ret = post(side, &request, 1);
		side->adds += ret == 0;
		if (i % 64 == 0 && clock_now_ns() > litmus->until_ns)
			break;
	}
	if (ret < 0)
		give_up(side, ret);
	return NULL;
}

int litmus_count(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result)
{
	struct litmus_result result;
	uint64_t value = 0, adds;
	int ret = set_word(&litmus->sides[0], WORD_COUNT, 0);

	litmus->sides[0].adds = litmus->sides[1].adds = 0;
	if (ret == 0)
		ret = run_both(litmus, count_side, rounds, &result);
	if (ret == 0)
		ret = get_word(&litmus->sides[0], WORD_COUNT, &value);
	if (ret < 0)
		return ret;
	adds = litmus->sides[0].adds + litmus->sides[1].adds;
	result.rounds = adds;
	result.failures = value < adds ? adds - value : value - adds;
	if (result.failures > 0)
		snprintf(result.text, sizeof(result.text), "%" PRIu64 " additions made %" PRIu64,
			 adds, value);
	*ret_result = result;
	return 0;
}

/* ---- store buffering ------------------------------------------------------------------------- */

static int store_round(struct litmus_side *side, uint64_t round)
{
	uint32_t mine = side->me == 0 ? WORD_A : WORD_B, other = side->me == 0 ? WORD_B : WORD_A;
	struct fabric_request requests[] = {
		cas_of(side, mine, round, round + 1),
		read_of(side, other, &side->seen, 8),
	};
	int ret;

	side->old = side->seen = UINT64_MAX;
	delay(side);
	ret = post(side, requests, 2);
	/* nobody else writes this word */
	return ret == 0 && side->old != round ? -TARN_EPROTO : ret;
}

static void store_judge(struct litmus *litmus, uint64_t round)
{
	uint64_t first = litmus->sides[0].seen, second = litmus->sides[1].seen;

	litmus->done++;
	litmus->failures += first == round && second == round;
	litmus->overlaps += first == round + 1 && second == round + 1;
}

static void *store_side(void *data)
{
	struct litmus_side *side = data;
	struct litmus *litmus = side->litmus;

	for (uint64_t round = 0;; round++) {
		int ret;

		watch_time(side, round);
		if (!meet(side) || round >= litmus->rounds)
			return NULL;
		ret = store_round(side, round);
		if (ret < 0) {
			give_up(side, ret);
			return NULL;
		}
		if (!meet(side))
			return NULL;
		/* side 1 posts again only after the next meeting */
		if (side->me == 0)
			store_judge(litmus, round);
	}
}

int litmus_store(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result)
{
	int ret = set_word(&litmus->sides[0], WORD_A, 0);

	if (ret == 0)
		ret = set_word(&litmus->sides[0], WORD_B, 0);
	return ret < 0 ? ret : run_both(litmus, store_side, rounds, ret_result);
}

/* ---- publish --------------------------------------------------------------------------------- */

/* Sizes in turn: inline, one packet, several. */
static uint32_t publish_bytes(uint64_t round)
{
	static const uint32_t sizes[] = {64, 256, 1024, LITMUS_DATA_BYTES};

	return sizes[round % 4];
}

static int publish_write(struct litmus_side *side, uint64_t round)
{
	uint32_t bytes = publish_bytes(round);
	struct fabric_request requests[] = {
		write_of(side, DATA, side->out, bytes),
		cas_of(side, WORD_FLAG, round, round + 1),
	};
	int ret;

	fill(side->out, bytes, round);
	delay(side);
	side->old = UINT64_MAX;
	ret = post(side, requests, 2);
	return ret == 0 && side->old != round ? -TARN_EPROTO : ret;
}

static int publish_read(struct litmus_side *side, uint64_t round)
{
	uint32_t bytes = publish_bytes(round);
	struct fabric_request request = read_of(side, DATA, side->in, bytes);
	uint64_t flag = 0, limit_ns = clock_now_ns() + side->litmus->timeout_ns;
	int ret = 0;

	while (ret == 0 && flag != round + 1) {
		ret = get_word(side, WORD_FLAG, &flag);
		if (ret == 0 && flag != round + 1 && clock_now_ns() > limit_ns)
			ret = -TARN_ETIMEOUT;
	}
	if (ret == 0)
		ret = post(side, &request, 1);
	if (ret < 0)
		return ret;
	side->litmus->done++;
	side->litmus->failures += !is_filled(side->in, bytes, round);
	return 0;
}

static void *publish_side(void *data)
{
	struct litmus_side *side = data;

	for (uint64_t round = 0;; round++) {
		int ret;

		watch_time(side, round);
		if (!meet(side) || round >= side->litmus->rounds)
			return NULL;
		ret = side->me == 0 ? publish_write(side, round) : publish_read(side, round);
		if (ret < 0) {
			give_up(side, ret);
			return NULL;
		}
		if (!meet(side))
			return NULL;
	}
}

int litmus_publish(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result)
{
	int ret = set_word(&litmus->sides[0], WORD_FLAG, 0);

	return ret < 0 ? ret : run_both(litmus, publish_side, rounds, ret_result);
}

/* ---- latency --------------------------------------------------------------------------------- */

int litmus_latency(struct litmus *litmus, enum litmus_operation operation, unsigned count,
		   struct hist *ret_hist)
{
	struct litmus_side *side = &litmus->sides[0];
	struct fabric_request request = {0};
	int ret = operation == LITMUS_CAS ? set_word(side, WORD_TIME, 0) : 0;

	hist_init(ret_hist);
	for (unsigned i = 0; ret == 0 && i < count; i++) {
		uint64_t begin_ns;

		switch (operation) {
		case LITMUS_READ:
			request = read_of(side, WORD_TIME, &side->seen, 8);
			break;
		case LITMUS_READ_BLOCK:
			request = read_of(side, DATA, side->in, LITMUS_DATA_BYTES);
			break;
		case LITMUS_WRITE:
			request = write_of(side, DATA, side->out, FABRIC_INLINE_BYTES);
			break;
		case LITMUS_CAS:
			request = cas_of(side, WORD_TIME, i, i + 1);
			break;
		}
		begin_ns = clock_now_ns();
		ret = post(side, &request, 1);
		hist_add(ret_hist, clock_now_ns() - begin_ns);
	}
	return ret;
}
