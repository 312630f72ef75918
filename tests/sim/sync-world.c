/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-world.c - the tarn_region_ calls on plain memory, and who has the next turn; see sync-world.h
 *
 * One thread. The clock has no argument, so the world that runs is known here.
 */
#include "err.h"
#include "sync-internal.h"
#include "sync-world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sync-system.h"

static struct world *running;

uint64_t world_random(struct world *w)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void world_fail(struct world *w, const char *fmt, ...)
{
	va_list args;

	if (w->failure[0])
		return;
	va_start(args, fmt);
	vsnprintf(w->failure, sizeof(w->failure), fmt, args);
	va_end(args);
}

void world_as(struct world *w, struct party *party)
{
	w->current = party;
}

uint64_t sync_now_ns(void)
{
	const struct party *p = running->current;

	return p->clock_base + running->now_ns +
	       (uint64_t)((int64_t)running->now_ns * p->clock_ppm / 1000000);
}

uint64_t sync_seed(void)
{
	return world_random(running);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void yield(struct party *p)
{
	fiber_yield(p->fiber);
}

void party_sleep_ns(struct party *p, uint64_t ns)
{
	/* the clock may be slow, and a sleep is never too short */
	p->wake_ns = p->region.world->now_ns + ns + ns / 16;
	yield(p);
}

void sync_sleep_ns(uint64_t ns)
{
	party_sleep_ns(running->current, ns);
}

/* Of each party by itself: another one may open something at the same time. */
static bool faulty(const struct party *p, unsigned fault)
{
	const struct world *w = p->region.world;

	return w->chaos && !p->opening && w->faults & fault;
}

/* In front of each word: others may have their turn, and this one its end. */
static void step(struct party *p)
{
	struct world *w = p->region.world;

	w->steps++;
	w->now_ns += 50 + world_random(w) % 1000;
	if (faulty(p, FAULT_STALL) && world_random(w) % w->rare == 0) {
		w->stalls++;
		party_sleep_ns(p, world_random(w) % w->stall_ns);
	}
	if (faulty(p, FAULT_KILL) && w->killed < WORLD_KILLS &&
	    world_random(w) % (4 * w->rare) == 0) {
		p->killed = true;
		yield(p);
	}
	if (w->turn)
		w->turn--;
	else
		yield(p);
}

static void change(struct world *w, uint64_t index, uint64_t value)
{
	uint64_t before = w->words[index];

	w->words[index] = value;
	if (w->on_change)
		w->on_change(w, index, before, value);
}

/* ---- what arrives late ----------------------------------------------------------------------- */

static void add_late(struct world *w, struct late late)
{
	if (w->late_count == WORLD_LATE)
		return;
	w->late[w->late_count++] = late;
}

/* What is left of the call that is under way: up to some point of it, in order, and nothing behind it. */
static void leave_late(struct party *p)
{
	struct world *w = p->region.world;
	uint64_t due = w->now_ns;

	w->lates++;
	for (size_t i = p->op; i < p->count; i++) {
		const struct tarn_region_op *op = &p->ops[i];
		uint64_t words = op->kind == TARN_REGION_WRITE ? op->bytes / 8 : 1;

		if (op->kind == TARN_REGION_READ)
			continue;
		for (uint64_t word = i == p->op ? p->word : 0; word < words; word++) {
			uint64_t value = op->operand;

			if (world_random(w) % 6 == 0)
				return;
			due += world_random(w) % (w->late_ns / 8);
			if (due > w->now_ns + w->late_ns)
				due = w->now_ns + w->late_ns;
			if (op->kind == TARN_REGION_WRITE)
				memcpy(&value, (const uint8_t *)op->buffer + word * 8, 8);
			add_late(w, (struct late){.due_ns = due,
						  .index = op->offset / 8 + word,
						  .compare = op->compare,
						  .value = value,
						  .cas = op->kind == TARN_REGION_CAS,
						  .faa = op->kind == TARN_REGION_FAA});
		}
	}
}

static void arrive_late(struct world *w, size_t i)
{
	struct late late = w->late[i];

	memmove(&w->late[i], &w->late[i + 1], (w->late_count - i - 1) * sizeof(late));
	w->late_count--;
	if (late.faa)
		change(w, late.index, w->words[late.index] + late.value);
	else if (!late.cas || w->words[late.index] == late.compare)
		change(w, late.index, late.value);
}

static void arrivals(struct world *w)
{
	for (size_t i = 0; i < w->late_count;)
		if (w->late[i].due_ns <= w->now_ns)
			arrive_late(w, i);
		else
			i++;
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Words of a read or write in one of several orders. `done` counts those that are done. */
static uint64_t word_at(uint64_t order, uint64_t done, uint64_t words)
{
	if (order % 3 == 0)
		return done;
	if (order % 3 == 1)
		return words - 1 - done;
	return (done + order / 3) % words;
}

static void copy_words(struct party *p, struct tarn_region_op *op)
{
	struct world *w = p->region.world;
	uint64_t words = op->bytes / 8, order = world_random(w) & 0xffff;

	/* what is late is known by how many words were done from the beginning on */
	if (op->kind == TARN_REGION_WRITE)
		order = 0;
	for (uint64_t done = 0; done < words; done++) {
		uint64_t word = word_at(order, done, words), value;

		p->word = done;
		step(p);
		if (op->kind == TARN_REGION_READ) {
			memcpy((uint8_t *)op->buffer + word * 8, &w->words[op->offset / 8 + word],
			       8);
			continue;
		}
		memcpy(&value, (const uint8_t *)op->buffer + word * 8, 8);
		change(w, op->offset / 8 + word, value);
	}
}

static void do_op(struct party *p, struct tarn_region_op *op)
{
	struct world *w = p->region.world;
	uint64_t index = op->offset / 8;

	if (op->kind == TARN_REGION_READ || op->kind == TARN_REGION_WRITE) {
		copy_words(p, op);
		return;
	}
	p->word = 0;
	step(p);
	op->before = w->words[index];
	if (op->kind == TARN_REGION_FAA)
		change(w, index, op->before + op->operand);
	else if (op->before == op->compare)
		change(w, index, op->operand);
}

static bool inside(const struct tarn_region_op *op)
{
	return op->offset % 8 == 0 && op->bytes % 8 == 0 && op->offset < WORLD_WORDS * 8 &&
	       op->bytes <= WORLD_WORDS * 8 - op->offset;
}

int tarn_region_batch(struct tarn_region *region, struct tarn_region_op *ops, size_t count)
{
	struct world *w = region->world;
	struct party *p = &w->parties[region->party];
	bool writes = false;

	p->ops = ops;
	p->count = count;
	for (size_t i = 0; i < count; i++) {
		if (!inside(&ops[i]))
			world_fail(w, "an access outside of the region, or not of whole words");
		writes |= ops[i].kind != TARN_REGION_READ;
	}
	if (w->failure[0])
		return -TARN_EPROTO;
	if (faulty(p, FAULT_AWAY) && world_random(w) % (p->cut ? 4 : w->rare) == 0) {
		p->count = 0;
		return -TARN_ESESSION;
	}
	p->cut = false;
	for (p->op = 0; p->op < count; p->op++) {
		p->word = 0;
		if (writes && faulty(p, FAULT_LATE) && world_random(w) % w->rare == 0) {
			leave_late(p);
			p->count = 0;
			party_sleep_ns(p, world_random(w) % w->late_ns);
			p->cut = true;
			return -TARN_EAMBIGUOUS;
		}
		do_op(p, &ops[p->op]);
	}
	/* a late one after everything was done: only the answer is lost */
	p->count = 0;
	p->cut = writes && faulty(p, FAULT_LATE) && world_random(w) % w->rare == 0;
	return p->cut ? -TARN_EAMBIGUOUS : 0;
}

int region_result(const struct tarn_region *region, int ret)
{
	(void)region;
	return ret;
}

/* A party may be without a connection for long in front of what it does; above all where it must not be late. */
int sync_batch(struct tarn_region *region, struct tarn_region_op *ops, size_t count,
	       uint64_t not_after_ns)
{
	struct world *w = region->world;
	struct party *p = &w->parties[region->party];
	unsigned rare = count > 1 && ops->kind == TARN_REGION_WRITE ? 4 : w->rare;

	if (w->away_ns && faulty(p, FAULT_AWAY) && world_random(w) % rare == 0)
		party_sleep_ns(p, world_random(w) % w->away_ns);
	if (not_after_ns && sync_now_ns() > not_after_ns)
		return SYNC_LATE;
	return tarn_region_batch(region, ops, count);
}

uint64_t tarn_region_bytes(const struct tarn_region *region)
{
	(void)region;
	return WORLD_WORDS * 8;
}

int tarn_region_read(struct tarn_region *region, uint64_t offset, void *buffer, size_t bytes)
{
	struct tarn_region_op op = {
		.kind = TARN_REGION_READ, .offset = offset, .buffer = buffer, .bytes = bytes};

	return tarn_region_batch(region, &op, 1);
}

int tarn_region_write(struct tarn_region *region, uint64_t offset, const void *data, size_t bytes)
{
	struct tarn_region_op op = {.kind = TARN_REGION_WRITE,
				    .offset = offset,
				    .buffer = (void *)(uintptr_t)data,
				    .bytes = bytes};

	return tarn_region_batch(region, &op, 1);
}

int tarn_region_cas(struct tarn_region *region, uint64_t offset, uint64_t compare, uint64_t swap,
		    uint64_t *ret_before)
{
	struct tarn_region_op op = {
		.kind = TARN_REGION_CAS, .offset = offset, .compare = compare, .operand = swap};
	int ret = tarn_region_batch(region, &op, 1);

	if (ret == 0 && ret_before)
		*ret_before = op.before;
	return ret;
}

int tarn_region_write_notify(struct tarn_region *region, uint64_t offset, const void *data,
			     size_t bytes)
{
	struct world *w = region->world;
	int ret = tarn_region_write(region, offset, data, bytes);

	if (ret < 0)
		return ret;
	step(&w->parties[region->party]);
	w->sequence++;
	for (unsigned i = 0; i < w->count; i++)
		if (w->parties[i].waits)
			w->parties[i].wake_ns = w->now_ns;
	return 0;
}

int tarn_region_wait(struct tarn_region *region, uint64_t *sequence, uint32_t timeout_ms)
{
	struct world *w = region->world;
	struct party *p = &w->parties[region->party];

	step(p);
	if (*sequence == w->sequence) {
		p->waits = true;
		party_sleep_ns(p, timeout_ms * 1000000ull);
		p->waits = false;
	}
	if (*sequence == w->sequence) {
		if (timeout_ms >= 100)
			w->silent_waits++;
		return 0;
	}
	*sequence = w->sequence;
	return 1;
}

/* ---- parties --------------------------------------------------------------------------------- */

static void body(void *argument)
{
	struct party *p = argument;

	p->work(p);
}

static void end(struct party *p)
{
	p->running = false;
	p->waits = p->opening = p->cut = false;
	p->count = 0;
	if (p->handle)
		p->close(p->handle);
	p->handle = NULL;
}

static void set_clock(struct world *w, struct party *p)
{
	p->clock_base = world_random(w) % 1000000000000ull + 1;
	p->clock_ppm = (int64_t)(world_random(w) % 100001) - 50000;
	if (world_random(w) % 2)
		p->clock_ppm = p->clock_ppm < 0 ? -50000 : 50000;
}

struct party *world_add(struct world *w, void (*work)(struct party *party), uint64_t after_ns)
{
	struct party *p = &w->parties[w->count];

	p->region = (struct tarn_region){.world = w, .party = w->count};
	p->number = w->count++;
	p->life = 0;
	p->work = work;
	p->running = true;
	p->killed = false;
	p->handle = NULL;
	p->waits = p->opening = p->cut = false;
	p->count = 0;
	p->wake_ns = w->now_ns + after_ns;
	set_clock(w, p);
	p->begun = false;
	if (!p->fiber)
		p->fiber = fiber_create();
	return p;
}

static void kill_party(struct world *w, struct party *p)
{
	w->kills++;
	w->killed++;
	if (w->on_kill)
		w->on_kill(p);
	if (w->faults & FAULT_LATE && p->count && world_random(w) % 2)
		leave_late(p);
	fiber_drop(p->fiber);
	end(p);
	p->life++;
	p->killed = false;
	p->running = true;
	p->begun = false;
	/* A single producer begins after what its predecessor had under way has arrived. */
	p->wake_ns = w->now_ns + w->late_ns + world_random(w) % (4 * w->late_ns);
	set_clock(w, p);
}

/* The one that goes on, or NULL: nobody before *ret_wake_ns. */
static struct party *choose(struct world *w, uint64_t *ret_wake_ns)
{
	struct party *ready[WORLD_PARTIES];
	unsigned count = 0;

	*ret_wake_ns = UINT64_MAX;
	for (unsigned i = 0; i < w->count; i++) {
		struct party *p = &w->parties[i];

		if (!p->running)
			continue;
		if (p->wake_ns <= w->now_ns)
			ready[count++] = p;
		else if (p->wake_ns < *ret_wake_ns)
			*ret_wake_ns = p->wake_ns;
	}
	return count ? ready[world_random(w) % count] : NULL;
}

static void take_turn(struct world *w, struct party *p)
{
	static const unsigned turns[] = {0, 0, 0, 1, 3, 8, 30};
	bool more;

	w->current = p;
	w->turn = turns[world_random(w) % 7];
	more = p->begun ? fiber_resume(p->fiber)
			: (p->begun = true, fiber_start(p->fiber, body, p));
	if (!more)
		end(p);
	else if (p->killed)
		kill_party(w, p);
}

void world_run(struct world *w, uint64_t limit_ns)
{
	uint64_t wake_ns, end_ns = w->now_ns + limit_ns;

	running = w;
	while (!w->failure[0]) {
		struct party *p;

		arrivals(w);
		p = choose(w, &wake_ns);
		if (p) {
			take_turn(w, p);
		} else if (wake_ns == UINT64_MAX) {
			return;
		} else {
			w->now_ns = wake_ns;
			for (size_t i = 0; i < w->late_count; i++)
				if (w->late[i].due_ns < w->now_ns)
					w->now_ns = w->late[i].due_ns;
		}
		if (w->now_ns > end_ns)
			world_fail(w, "a party does not come to its end in %llu ms",
				   (unsigned long long)limit_ns / 1000000);
	}
}

void world_settle(struct world *w)
{
	for (unsigned i = 0; i < w->count; i++)
		if (w->parties[i].running) {
			fiber_drop(w->parties[i].fiber);
			end(&w->parties[i]);
		}
	while (w->late_count) {
		if (w->late[0].due_ns > w->now_ns)
			w->now_ns = w->late[0].due_ns;
		arrive_late(w, 0);
	}
	w->chaos = false;
	w->count = 0;
}

void world_open(struct party *p, int (*open)(struct party *party, void **ret_handle),
		void (*close)(void *handle))
{
	int ret;

	p->opening = true;
	ret = open(p, &p->handle);
	p->close = close;
	p->opening = false;
	if (ret < 0)
		world_fail(p->region.world, "open: %s", err_name(ret));
}

void world_reset(struct world *w, uint64_t seed)
{
	world_settle(w);
	memset(w->words, 0, sizeof(w->words));
	w->now_ns = 1000000;
	w->sequence = 0;
	w->random = seed * 0x2545f4914f6cdd1dull;
	w->count = 0;
	w->late_count = 0;
	w->current = &w->parties[0];
	w->on_kill = NULL;
	w->on_change = NULL;
	w->silent_waits = 0;
	w->away_ns = 0;
	w->killed = 0;
	w->failure[0] = '\0';
	running = w;
}

void world_free(struct world *w)
{
	for (unsigned i = 0; i < WORLD_PARTIES; i++)
		fiber_free(w->parties[i].fiber);
	free(w);
}
