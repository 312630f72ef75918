/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/shard-copy.c and shard-list.c: shards go from one pool to another while clients change them. docs/protocol.md
 * section 11, steps 2 to 4: behind the second pass the target has exactly what the source has.
 */
#include "shards-fixture.h"

#include "shard-copy.h"
#include "shard-list.h"

static const uint32_t moved_list[] = {3, 9, 20, 41, 63};
#define MOVED 5u

struct pair {
	struct world source, target;
	struct tarn_session *mover; /* at the target */
	bool moves[SHARDS];
	struct shard_copy *copy;
	unsigned most; /* keys that are begun between two looks */
};

static void open_pair(struct pair *p, uint32_t groups, uint64_t keys)
{
	memset(p, 0, sizeof(*p));
	p->most = 1;
	open_world(&p->source, groups, keys);
	open_world(&p->target, groups, keys);
	set_all(&p->source, SHARD_OPEN);
	for (unsigned i = 0; i < MOVED; i++) {
		p->moves[moved_list[i]] = true;
		shards_set(p->target.shards, moved_list[i], SHARD_INCOMING, EPOCH + 1);
	}
	p->mover = kept_session(&p->target.k, "");
	assert_int_equal(shard_copy_create(p->source.k.pool, moved_list, MOVED, p->mover, &p->copy),
			 0);
}

static void copy_again(struct pair *p)
{
	shard_copy_free(p->copy);
	assert_int_equal(shard_copy_create(p->source.k.pool, moved_list, MOVED, p->mover, &p->copy),
			 0);
}

static void close_pair(struct pair *p)
{
	shard_copy_free(p->copy);
	session_free(p->mover);
	kept_close(&p->source.k);
	kept_close(&p->target.k);
}

static bool moves(const struct pair *p, unsigned number)
{
	return p->moves[shard_of_number(&p->source, number)];
}

/* Both pools' time goes on. */
static void pass(struct pair *p)
{
	kept_pass(&p->source.k, 5);
	kept_pass(&p->target.k, 5);
}

/* The whole pass, with `between` after each look. */
static int run_pass(struct pair *p, void (*between)(struct pair *p))
{
	uint64_t until;
	int ret;

	while ((ret = shard_copy_next(p->copy, p->most, &until)) > 0) {
		pass(p);
		if (between)
			between(p);
	}
	return ret;
}

static void close_and_freeze(struct pair *p)
{
	for (unsigned i = 0; i < MOVED; i++)
		shards_set(p->source.shards, moved_list[i], SHARD_CLOSING, EPOCH);
	run_job(&p->source, SHARDS_FREEZE, moved_list, MOVED);
}

static void bring(struct pair *p)
{
	close_and_freeze(p);
	shard_copy_bring(p->copy);
	if (run_pass(p, NULL) < 0)
		fail_msg("%s", err_text());
}

/* ---- what is where --------------------------------------------------------------------------- */

static int look(struct world *w, const void *key, size_t bytes, uint8_t *value, size_t room,
		struct tarn_item *ret_item)
{
	*ret_item = (struct tarn_item)TARN_ITEM_INIT;
	return tarn_get(w->k.session, key, bytes, value, room, ret_item);
}

/* The target has the key of a shard that moves as the source has it, once, frozen; any other it has not. */
static void expect_same(struct pair *p, unsigned number)
{
	static uint8_t here[1 << 20], there[1 << 20];
	struct tarn_item a, b;
	char key[16];
	size_t n = (size_t)snprintf(key, sizeof(key), "key%u", number);
	int at_source = look(&p->source, key, n, here, sizeof(here), &a);
	int at_target = look(&p->target, key, n, there, sizeof(there), &b);

	if (!moves(p, number))
		at_source = -TARN_ENOTFOUND;
	if (at_source != at_target)
		fail_msg("key%u: %d at the source, %d at the target", number, at_source, at_target);
	expect_state(&p->target, number, at_target == 0 ? LAYOUT_SLOT_FROZEN : LAYOUT_SLOT_EMPTY);
	if (at_source < 0)
		return;
	assert_int_equal(a.value_bytes, b.value_bytes);
	assert_memory_equal(here, there, a.value_bytes);
	assert_true(a.stamp == b.stamp);
	assert_int_equal(a.user_flags, b.user_flags);
	assert_int_equal(a.kind, b.kind);
}

/* ---- one key of each kind -------------------------------------------------------------------- */

static void test_kinds(void **state)
{
	static const size_t sizes[] = {0, 1, 7, 8, 9, 100, 4000, 200000, 262144, 262145, 700001};
	struct tarn_put_options options = TARN_PUT_INIT;
	static uint8_t value[1 << 20];
	struct shard_copy_stats stats;
	unsigned count = 0, number;
	struct pair p;

	(void)state;
	open_pair(&p, 10, 100);
	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = (uint8_t)(i * 2654435761u >> 24);
	options.user_flags = 4711;
	for (number = 0; number < 140; number++) {
		size_t bytes = number < 110 ? sizes[number % 8] : sizes[number % 11];
		char key[16];
		size_t n = (size_t)snprintf(key, sizeof(key), "key%u", number);

		/* not too much memory */
		if (!moves(&p, number) && bytes > 4000)
			bytes = 10;
		assert_int_equal(tarn_put(p.source.k.session, key, n, value + number, bytes,
					  &options, NULL),
				 0);
		count += moves(&p, number);
	}
	assert_true(count > 5);
	assert_int_equal(run_pass(&p, NULL), 0);
	shard_copy_get_stats(p.copy, &stats);
	assert_int_equal(stats.keys, count);
	bring(&p);
	shard_copy_get_stats(p.copy, &stats);
	assert_int_equal(stats.again, 0);
	assert_int_equal(stats.deleted, 0);
	assert_int_equal(stats.damaged, 0);
	for (number = 0; number < 140; number++)
		expect_same(&p, number);
	close_pair(&p);
}

/* The first number from `from` on whose key moves. */
static unsigned moving(const struct pair *p, unsigned from)
{
	while (!moves(p, from))
		from++;
	return from;
}

/* Counters are copied behind the freeze. What is left to live is the same, to two epochs; what is over is not there. */
static void test_counter_and_expiry(void **state)
{
	unsigned counter, lives, over;
	int64_t value;
	struct tarn_item item;
	struct shard_copy_stats stats;
	struct pair p;
	char key[16];
	size_t n;

	(void)state;
	open_pair(&p, 10, 100);
	p.source.k.session->ep->features |= FABRIC_COUNTER_FAA;
	counter = moving(&p, 0);
	lives = moving(&p, counter + 1);
	over = moving(&p, lives + 1);
	n = (size_t)snprintf(key, sizeof(key), "key%u", counter);
	assert_int_equal(tarn_add(p.source.k.session, key, n, 5, &value), 0);
	assert_int_equal(kept_put(p.source.k.session, lives, 10, 3600000), 0);
	assert_int_equal(kept_put(p.source.k.session, over, 10, 1000), 0);
	assert_int_equal(run_pass(&p, NULL), 0);
	shard_copy_get_stats(p.copy, &stats);
	assert_int_equal(stats.keys, 2);
	assert_int_equal(tarn_add(p.source.k.session, key, n, 37, &value), 0);
	bring(&p);
	assert_int_equal(look(&p.target, key, n, (uint8_t *)&value, sizeof(value), &item), 0);
	assert_int_equal(value, 42);
	assert_int_equal(item.kind, TARN_KIND_COUNTER);
	n = (size_t)snprintf(key, sizeof(key), "key%u", lives);
	assert_int_equal(look(&p.target, key, n, (uint8_t *)&value, 0, &item), -TARN_ETOOSMALL);
	assert_true(item.expiry_ms >= 3600000 - 5000 && item.expiry_ms <= 3600000 + 1000);
	close_pair(&p);
}

/* ---- changes meanwhile ----------------------------------------------------------------------- */

#define ROUNDS 200u

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* Clients put, delete and put again, also keys that are new; and the index grows. */
static void change(struct pair *p)
{
	for (unsigned i = draw(4); i > 0; i--) {
		unsigned number = draw(160);
		char key[16];
		size_t n = (size_t)snprintf(key, sizeof(key), "key%u", number);
		int ret;

		if (draw(3) == 0)
			ret = tarn_delete(p->source.k.session, key, n);
		else
			ret = kept_put(p->source.k.session, number, draw(300), 0);
		/* no slot just now */
		assert_true(ret == 0 || ret == -TARN_ENOTFOUND || ret == -EOPNOTSUPP ||
			    ret == -TARN_ETIMEOUT);
	}
}

static void test_changes(void **state)
{
	struct shard_copy_stats stats;
	uint64_t again = 0, deleted = 0;

	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pair p;

		seed = 77 * round + 1;

		/* tiny subtables that split all the time; or two, in which other shards' keys are, too */
		open_pair(&p, round % 2 ? 2 : 20, 1);
		/* a slow machine, or valgrind: the target's index grows in the steps between */
		assert_int_equal(tarn_session_set_timeout(p.mover, 60000), 0);
		p.most = round % 4 == 3 ? 1 + draw(SHARD_COPY_AT_ONCE) : 1;
		for (unsigned i = 0; i < 100; i++)
			change(&p);
		assert_int_equal(run_pass(&p, change), 0);
		for (unsigned passes = draw(3); passes > 0; passes--) {
			shard_copy_again(p.copy);
			assert_int_equal(run_pass(&p, change), 0);
		}
		for (unsigned i = 0; i < 100; i++)
			change(&p);
		bring(&p);
		for (unsigned i = 0; i < 160; i++)
			expect_same(&p, i);
		shard_copy_get_stats(p.copy, &stats);
		again += stats.again;
		deleted += stats.deleted;
		close_pair(&p);
	}
	assert_true(again > 200 && deleted > 50);
}

/* What was changed is copied while clients go on: nothing of it is left for the time in which they can not. */
static void test_again(void **state)
{
	struct shard_copy_stats stats;
	unsigned count = 0;
	struct pair p;

	(void)state;
	open_pair(&p, 10, 100);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(kept_put(p.source.k.session, i, 10, 0), 0);
		count += moves(&p, i);
	}
	assert_int_equal(run_pass(&p, NULL), 0);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(kept_put(p.source.k.session, i, 20, 0), 0);
	shard_copy_again(p.copy);
	assert_int_equal(run_pass(&p, NULL), 0);
	shard_copy_get_stats(p.copy, &stats);
	assert_int_equal(stats.keys, 2 * count);
	bring(&p);
	shard_copy_get_stats(p.copy, &stats);
	assert_int_equal(stats.again, 0);
	assert_int_equal(stats.deleted, 0);
	for (unsigned i = 0; i < 50; i++)
		expect_same(&p, i);
	close_pair(&p);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_target_full(void **state)
{
	unsigned number = 0;
	struct pair p;
	int ret;

	(void)state;
	open_pair(&p, 10, 100);
	/* the target's memory is somebody else's */
	while (kept_put(p.target.k.session, 100000 + number++, 200000, 0) == 0)
		;
	for (number = 0; number < 60; number++)
		assert_int_equal(kept_put(p.source.k.session, number, 30000, 0), 0);
	ret = run_pass(&p, NULL);
	assert_true(ret < 0);
	assert_true(err_text()[0] != '\0');
	/* it stays given up */
	assert_int_equal(run_pass(&p, NULL), ret);
	close_pair(&p);
}

static void test_stop_and_loss(void **state)
{
	atomic_bool stop = false;
	struct pair p;

	(void)state;
	open_pair(&p, 10, 100);
	for (unsigned i = 0; i < 50; i++)
		put(&p.source, i);
	atomic_store(&stop, true);
	assert_int_equal(shard_copy_run(p.copy, &stop), -ECANCELED);
	atomic_store(&stop, false);
	/* it stays given up */
	assert_int_equal(shard_copy_run(p.copy, &stop), -ECANCELED);
	copy_again(&p);
	assert_int_equal(shard_copy_run(p.copy, &stop), 0);
	close_and_freeze(&p);
	shard_copy_bring(p.copy);
	session_lose(p.mover);
	assert_int_equal(shard_copy_run(p.copy, &stop), -TARN_ESESSION);
	close_pair(&p);
}

/* The next key's turn comes when the rate lets it; the second pass does not wait. */
static void test_rate(void **state)
{
	uint64_t until = 0, before;
	struct pair p;
	int ret;

	(void)state;
	open_pair(&p, 10, 100);
	for (unsigned i = 0; i < 50; i++)
		put(&p.source, i);
	shard_copy_set_rate(p.copy, 1);
	do {
		struct shard_copy_stats stats;

		ret = shard_copy_next(p.copy, SHARD_COPY_AT_ONCE, &until);
		shard_copy_get_stats(p.copy, &stats);
		before = session_now(p.mover);
		/* a key has more than five bytes: a rest of seconds, in which the session is looked after */
		assert_true(stats.keys <= 1);
	} while (ret == SHARD_COPY_MORE || until <= before);
	assert_int_equal(ret, SHARD_COPY_REST);
	shard_copy_set_rate(p.copy, 0);
	assert_int_equal(run_pass(&p, NULL), 0);
	bring(&p);
	for (unsigned i = 0; i < 50; i++)
		expect_same(&p, i);
	close_pair(&p);
}

/* ---- the list -------------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t i)
{
	return layout_slot_make(LAYOUT_SLOT_COMMITTED, (uint32_t)i, 3, 5, (i + 1) * 64);
}

static void test_list(void **state)
{
	struct shard_list list;
	struct shard_entry *entry;

	(void)state;
	shard_list_init(&list, 1000);
	assert_null(shard_list_find(&list, word_of(1), 5));
	assert_false(shard_list_is_replaced(&list, word_of(1), 7));
	for (uint64_t i = 0; i < 5000; i++)
		assert_int_equal(shard_list_add(&list, word_of(i), word_of(i + 70000), i, 5), 0);
	assert_int_equal(list.count, 5000);
	for (uint64_t i = 0; i < 5000; i++) {
		/* the state does not matter */
		entry = shard_list_find(
			&list, layout_slot_with_state(word_of(i), LAYOUT_SLOT_FROZEN), 6);
		assert_non_null(entry);
		assert_true(entry->copy == word_of(i + 70000) && entry->hash == i);
	}
	assert_null(shard_list_find(&list, word_of(5000), 6));
	/* a word may come again 4096 epochs after it was dated */
	assert_non_null(shard_list_find(&list, word_of(1), 5 + 4092));
	assert_null(shard_list_find(&list, word_of(1), 5 + 4093));
	assert_null(shard_list_find(&list, word_of(1), 5 + 4096));
	assert_null(shard_list_find(&list, word_of(1), 5 + 4100));
	for (uint64_t i = 0; i < 3000; i++)
		assert_int_equal(shard_list_replace(&list, word_of(2 * i), 7 + i), 0);
	for (uint64_t i = 0; i < 6000; i++)
		assert_int_equal(shard_list_is_replaced(&list, word_of(i), 1006), i % 2 == 0);
	/* the first one may be another copy's by now */
	assert_false(shard_list_is_replaced(&list, word_of(0), 1007));
	shard_list_free(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_counter_and_expiry),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_target_full),
		cmocka_unit_test(test_stop_and_loss),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_list),
	};

	return cmocka_run_group_tests_name("shard-copy", tests, NULL, NULL);
}
