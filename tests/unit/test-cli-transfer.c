/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli/transfer.h: all bytes, whatever the order in which pieces end; and after a failure at any of them it is known how
 * far it came, and nothing is under way any more.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/progress.h"
#include "cli/transfer.h"
#include "tarn/tarn.h"

#define PIECE TRANSFER_SLOT_BYTES

/* Memory that is read or written; what start() begins ends in a later turn, in any order. */
struct fake {
	struct transfer_side side;
	unsigned char *memory;
	uint64_t bytes;
	bool at_once, writes;
	int64_t fail_piece; /* -1: none */
	int fail_code;
	bool fail_in_start;
	struct transfer_slot *under_way[TRANSFER_SLOTS];
	unsigned count, most, cancelled;
};

struct fixture {
	struct fake source, target;
	struct transfer transfer;
	struct progress progress;
	volatile sig_atomic_t stop;
	unsigned turns, stop_at;
	unsigned int seed;
};

static struct fixture *fixture; /* turn() has no other way to it */

static void move(struct fake *fake, struct transfer_slot *slot)
{
	uint64_t left = slot->position < fake->bytes ? fake->bytes - slot->position : 0;

	if (fake->writes) {
		assert_true(slot->bytes <= left);
		memcpy(fake->memory + slot->position, slot->memory, slot->bytes);
		return;
	}
	if (slot->bytes > left)
		slot->bytes = left;
	memcpy(slot->memory, fake->memory + slot->position, slot->bytes);
}

static bool is_bad(const struct fake *fake, const struct transfer_slot *slot)
{
	return fake->fail_piece >= 0 && slot->position / PIECE == (uint64_t)fake->fail_piece;
}

static int fake_start(struct transfer_side *side, struct transfer_slot *slot)
{
	struct fake *fake = (struct fake *)(void *)side;

	if (is_bad(fake, slot) && (fake->fail_in_start || fake->at_once))
		return err_set(fake->fail_code, "refused");
	if (fake->at_once) {
		move(fake, slot);
		return 1;
	}
	assert_true(fake->count < TRANSFER_SLOTS);
	fake->under_way[fake->count++] = slot;
	if (fake->count > fake->most)
		fake->most = fake->count;
	return 0;
}

static void end_one(struct fake *fake)
{
	size_t i = (size_t)rand_r(&fixture->seed) % fake->count;
	struct transfer_slot *slot = fake->under_way[i];

	fake->under_way[i] = fake->under_way[--fake->count];
	if (is_bad(fake, slot)) {
		/* Half of it was written. */
		if (fake->writes)
			memcpy(fake->memory + slot->position, slot->memory, slot->bytes / 2);
		transfer_done(slot, fake->fail_code);
		return;
	}
	move(fake, slot);
	transfer_done(slot, 0);
}

static void fake_cancel(struct transfer_side *side, struct transfer_slot *slot)
{
	struct fake *fake = (struct fake *)(void *)side;

	(void)slot;
	fake->cancelled++;
}

static int fake_turn(struct transfer *transfer, bool wait)
{
	unsigned ended = 0;

	(void)transfer;
	if (++fixture->turns == fixture->stop_at)
		fixture->stop = 1;
	while (fixture->source.count > 0 && rand_r(&fixture->seed) % 3 != 0) {
		end_one(&fixture->source);
		ended++;
	}
	while (fixture->target.count > 0 && rand_r(&fixture->seed) % 3 != 0) {
		end_one(&fixture->target);
		ended++;
	}
	/* A wait for nothing would never end. */
	assert_true(!wait || ended > 0 || fixture->source.count + fixture->target.count > 0);
	return 0;
}

static void begin(struct fixture *f, uint64_t bytes, unsigned int seed)
{
	fixture = f;
	memset(f, 0, sizeof(*f));
	f->seed = seed;
	f->source = (struct fake){.side = {fake_start, fake_cancel}, .fail_piece = -1};
	f->target =
		(struct fake){.side = {fake_start, fake_cancel}, .fail_piece = -1, .writes = true};
	f->source.bytes = f->target.bytes = bytes;
	f->source.memory = malloc(bytes + 1);
	f->target.memory = calloc(1, bytes + 1);
	f->transfer = (struct transfer){
		.source = &f->source.side,
		.target = &f->target.side,
		.turn = fake_turn,
		.memory = malloc(TRANSFER_SLOTS * PIECE),
		.bytes = bytes,
		.stop = &f->stop,
		.progress = &f->progress,
	};
	assert_non_null(f->source.memory);
	assert_non_null(f->target.memory);
	assert_non_null(f->transfer.memory);
	for (uint64_t i = 0; i < bytes; i++)
		f->source.memory[i] = (unsigned char)(1 + (i * 2654435761u >> 20) % 255);
}

static void end(struct fixture *f)
{
	assert_int_equal(f->source.count + f->target.count, 0);
	assert_int_equal(f->transfer.under_way, 0);
	free(f->source.memory);
	free(f->target.memory);
	free(f->transfer.memory);
}

static void test_all(void **state)
{
	static const uint64_t sizes[] = {0,
					 1,
					 PIECE - 1,
					 PIECE,
					 PIECE + 1,
					 7 * PIECE,
					 16 * PIECE,
					 16 * PIECE + 1,
					 33 * PIECE + 12345};
	struct fixture f;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned int kind = 0; kind < 4; kind++) {
			begin(&f, sizes[i], kind + 1);
			f.source.at_once = (kind & 1) != 0;
			f.target.at_once = (kind & 2) != 0;
			assert_int_equal(transfer_run(&f.transfer), 0);
			assert_int_equal(f.transfer.done_bytes, sizes[i]);
			assert_memory_equal(f.source.memory, f.target.memory, sizes[i]);
			end(&f);
		}
	}
}

/* Several are under way, and never more than there is memory for. */
static void test_depth(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, 100 * PIECE, 1);
	assert_int_equal(transfer_run(&f.transfer), 0);
	assert_true(f.source.most > 4 && f.source.most <= TRANSFER_SLOTS);
	assert_true(f.target.most > 1 && f.target.most <= TRANSFER_SLOTS);
	end(&f);
}

/* The source has less than was expected, also none in its last piece. */
static void test_short_source(void **state)
{
	static const uint64_t sizes[] = {0, 1, PIECE, 3 * PIECE + 5, 20 * PIECE};
	struct fixture f;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		begin(&f, 21 * PIECE, 1);
		f.source.at_once = true;
		f.source.bytes = sizes[i];
		f.transfer.bytes = i % 2 == 0 ? UINT64_MAX : 21 * PIECE;
		assert_int_equal(transfer_run(&f.transfer), 0);
		assert_int_equal(f.transfer.done_bytes, sizes[i]);
		assert_memory_equal(f.source.memory, f.target.memory, sizes[i]);
		end(&f);
	}
}

/* What is said to be done is there. */
static void check_failed(struct fixture *f, const struct fake *culprit, int code, int64_t piece)
{
	bool beyond = false;

	assert_int_equal(transfer_run(&f->transfer), code);
	assert_ptr_equal(f->transfer.failed, culprit != NULL ? &culprit->side : NULL);
	assert_true(f->transfer.text[0] != '\0');
	assert_true(f->transfer.done_bytes <= (uint64_t)piece * PIECE);
	assert_memory_equal(f->source.memory, f->target.memory, f->transfer.done_bytes);
	for (uint64_t i = f->transfer.done_bytes + f->transfer.open_bytes; i < f->target.bytes; i++)
		beyond = beyond || f->target.memory[i] != 0;
	assert_false(beyond);
	if (culprit == &f->target && !culprit->fail_in_start)
		assert_true(f->transfer.open_bytes > 0);
	end(f);
}

static void test_failures(void **state)
{
	const int64_t last = 40;
	struct fixture f;

	(void)state;
	for (int64_t piece = 0; piece <= last; piece++) {
		for (unsigned int kind = 0; kind < 8; kind++) {
			struct fake *culprit;

			begin(&f, (uint64_t)last * PIECE + 5, kind * 41 + (unsigned int)piece);
			culprit = (kind & 1) != 0 ? &f.source : &f.target;
			culprit->fail_piece = piece;
			culprit->fail_code = -TARN_ESESSION;
			culprit->fail_in_start = (kind & 2) != 0;
			f.source.at_once = (kind & 4) != 0;
			check_failed(&f, culprit, -TARN_ESESSION, piece);
		}
	}
}

/* The first failure is told; those that the cancel makes are not. */
static void test_first_failure(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, 40 * PIECE, 3);
	f.source.fail_piece = 2;
	f.source.fail_in_start = true;
	f.source.fail_code = -TARN_EBUSY;
	f.target.fail_piece = 0;
	f.target.fail_code = -TARN_EAMBIGUOUS;
	assert_int_equal(transfer_run(&f.transfer), -TARN_EBUSY);
	assert_string_equal(f.transfer.text, "refused");
	assert_ptr_equal(f.transfer.failed, &f.source.side);
	assert_true(f.source.cancelled > 0);
	end(&f);
}

static void test_interrupt(void **state)
{
	struct fixture f;

	(void)state;
	for (unsigned turn = 1; turn < 30; turn++) {
		begin(&f, 60 * PIECE, turn);
		f.stop_at = turn;
		check_failed(&f, NULL, -EINTR, 60);
	}
}

static int broken_turn(struct transfer *transfer, bool wait)
{
	(void)transfer;
	(void)wait;
	return err_set(-TARN_EINUSE, "in use");
}

/* A session that can not even be waited for ends it, too. */
static void test_broken_turn(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, 60 * PIECE, 1);
	f.transfer.turn = broken_turn;
	assert_int_equal(transfer_run(&f.transfer), -TARN_EINUSE);
	assert_string_equal(f.transfer.text, "in use");
	f.source.count = 0;
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),           cmocka_unit_test(test_depth),
		cmocka_unit_test(test_short_source),  cmocka_unit_test(test_failures),
		cmocka_unit_test(test_first_failure), cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_broken_turn),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
