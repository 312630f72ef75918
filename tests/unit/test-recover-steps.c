/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon is killed at each of its changes in a pool: while it opens it, recycles, splits, evicts. It
 * lives in a process of its own, which ends there; the next one has to find every key. self.h's calls are
 * wrapped by the linker. Not under valgrind, which would do all of that thirty times slower.
 */
#include "recover-fixture.h"

#include <sys/wait.h>

#include "clock.h"

/* An index of one small subtable, which KEYS keys nearly fill. */
static void reformat(struct pool *pool)
{
	struct layout_superblock superblock;
	struct layout_plan plan = {.groups = 22,
				   .keys = 1,
				   .pool_bytes = pool->geometry.pool_bytes,
				   .max_clients = pool->geometry.max_clients,
				   .deadline_ns = pool->geometry.deadline_ns,
				   .epoch_ns = pool->geometry.epoch_ns,
				   .grace_ns = pool->geometry.grace_ns,
				   .max_value_bytes = pool->geometry.max_value_bytes,
				   .hash_seed = 5};

	fixture_clear(pool);
	must(layout_format(pool->memory.base, &plan) == 0, "layout_format");
	memcpy(&superblock, pool->memory.base, sizeof(superblock));
	must(layout_superblock_check(&superblock, pool->memory.bytes, &pool->geometry) == 0,
	     "superblock");
}

static void filled_small(struct fixture *f)
{
	struct tarn_session *s;

	fixture_open(f, "");
	reformat(f->pool);
	s = session_open(f);
	put_keys(s, 1);
	session_free(s);
}

/* The process ends at the `fuse`th change that the daemon makes in a pool; 0: never. */
static uint64_t fuse;

static void burn(void)
{
	if (fuse > 0 && --fuse == 0)
		_exit(0);
}

void __wrap_self_store(struct pool *pool, uint64_t offset, uint64_t value);
void __real_self_store(struct pool *pool, uint64_t offset, uint64_t value);
uint64_t __wrap_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
uint64_t __real_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value);
void __wrap_self_store_byte(struct pool *pool, uint64_t offset, uint8_t value);
void __real_self_store_byte(struct pool *pool, uint64_t offset, uint8_t value);
void __wrap_self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes);
void __real_self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes);

void __wrap_self_store(struct pool *pool, uint64_t offset, uint64_t value)
{
	burn();
	__real_self_store(pool, offset, value);
}

uint64_t __wrap_self_cas(struct pool *pool, uint64_t offset, uint64_t compare, uint64_t value)
{
	burn();
	return __real_self_cas(pool, offset, compare, value);
}

void __wrap_self_store_byte(struct pool *pool, uint64_t offset, uint8_t value)
{
	burn();
	__real_self_store_byte(pool, offset, value);
}

void __wrap_self_write(struct pool *pool, uint64_t offset, const void *words, size_t bytes)
{
	burn();
	__real_self_write(pool, offset, words, bytes);
}

/* In a process of its own, which ends at its `at`th change: opens the pool and works. */
static bool die_at(struct fixture *f, int fd, uint64_t at, void (*work)(struct fixture *f))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		in_child = true;
		fuse = at;
		if (config_open(f, fixture_config(""), fd) < 0)
			_exit(2);
		work(f);
		_exit(1); /* has come to the end */
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
		fail_msg("ended with %x at its change %llu", (unsigned)status,
			 (unsigned long long)at);
	return WEXITSTATUS(status) == 0;
}

static void check_after(struct fixture *f, int fd)
{
	if (config_open(f, fixture_config(""), fd) < 0)
		fail_msg("%s", err_text());
	check_pool(f, 1);
	fixture_close(f);
}

/*
 * All keys are there, wherever it dies: at each of the first changes, and at every `stride`th of those
 * that follow, of which there must be `least`.
 */
static void killed_at_each_step(void (*fill)(struct fixture *f), void (*work)(struct fixture *f),
				uint64_t stride, uint64_t least)
{
	uint64_t at = 1;
	bool died;

	do {
		struct fixture f;
		int fd;

		fill(&f);
		fd = leave(&f, true);
		died = die_at(&f, fd, at, work);
		check_after(&f, fd);
		at += at < 40 ? 1 : stride;
	} while (died);
	if (at < least)
		fail_msg("only %llu changes", (unsigned long long)at);
}

static void work_nothing(struct fixture *f)
{
	(void)f;
}

static void test_killed_while_it_opens(void **state)
{
	(void)state;
	killed_at_each_step(filled, work_nothing, 1, 10);
}

/* What was retired ages and is handed on. The keeper's time alone goes on. */
static void work_recycling(struct fixture *f)
{
	struct tarn_session *s = session_open(f);
	uint64_t now = clock_now_ns();

	put_keys(s, 2);
	put_keys(s, 1);
	session_free(s);
	for (uint32_t slot = 0; slot < f->pool->geometry.max_clients; slot++)
		if (f->pool->clients[slot].state == LAYOUT_CLIENT_LIVE)
			pool_client_end(f->pool, slot);
	for (int i = 0; i < 400; i++)
		keeper_step(f->pool->keeper, now += 10000000);
}

static void test_killed_while_it_recycles(void **state)
{
	(void)state;
	killed_at_each_step(filled, work_recycling, 23, 60);
}

/* Keys until one finds no slot; then the keeper has to split the subtable. */
static void work_split(struct fixture *f)
{
	uint64_t now = clock_now_ns(), depth = self_load(f->pool, LAYOUT_GLOBAL_DEPTH_OFFSET);
	struct tarn_session *s = session_open(f);
	uint32_t key = KEYS;
	struct layout_hash hash;

	while (tarn_put(s, &key, sizeof(key), "more", 4, NULL, NULL) == 0)
		key++;
	session_free(s);
	hash = layout_hash_key(&key, sizeof(key), f->pool->geometry.hash_seed);
	must(keeper_grow(f->pool->keeper, hash, (uint32_t)depth) == 0, "keeper_grow");
	for (int i = 0; i < 1000; i++)
		keeper_step(f->pool->keeper, now += 5000000);
	must(self_load(f->pool, LAYOUT_GLOBAL_DEPTH_OFFSET) > depth, "no split");
}

static void test_killed_while_it_splits(void **state)
{
	(void)state;
	killed_at_each_step(filled_small, work_split, 7, 600);
}

/* Eviction: what is in a cache pool is right, or not there. */

#define LARGE_BYTES 20000u

static void put_large(struct tarn_session *s)
{
	static char large[LARGE_BYTES];

	for (uint32_t key = KEYS;
	     tarn_put(s, &key, sizeof(key), large, sizeof(large), NULL, NULL) == 0;)
		key++;
}

static void work_eviction(struct fixture *f)
{
	struct tarn_session *s = session_open(f);
	uint64_t now = clock_now_ns();
	struct keeper_stats stats;

	put_large(s);
	session_free(s);
	for (uint32_t slot = 0; slot < f->pool->geometry.max_clients; slot++)
		if (f->pool->clients[slot].state == LAYOUT_CLIENT_LIVE)
			pool_client_end(f->pool, slot);
	for (int i = 0; i < 1000; i++)
		keeper_step(f->pool->keeper, now += 5000000);
	keeper_get_stats(f->pool->keeper, now, &stats);
	must(stats.evict.evicted > 0, "nothing was evicted");
}

static void test_killed_while_it_evicts(void **state)
{
	uint64_t at = 1, least = 100;
	bool died;

	(void)state;
	do {
		struct tarn_session *s;
		struct fixture f;
		pid_t child;
		int fd, status;

		fixture_open(&f, "mode = cache\n");
		s = session_open(&f);
		put_keys(s, 1);
		session_free(s);
		fd = leave(&f, true);
		child = fork();
		if (child == 0) {
			in_child = true;
			fuse = at;
			must(config_open(&f, fixture_config("mode = cache\n"), fd) == 0, "open");
			work_eviction(&f);
			_exit(1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
		died = WEXITSTATUS(status) == 0;
		if (config_open(&f, fixture_config("mode = cache\n"), fd) < 0)
			fail_msg("%s", err_text());
		s = session_open(&f);
		check_keys_if(s, 1, true);
		session_free(s);
		fixture_close(&f);
		at += 7;
	} while (died);
	if (at < least)
		fail_msg("only %llu changes", (unsigned long long)at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_while_it_opens),
		cmocka_unit_test(test_killed_while_it_recycles),
		cmocka_unit_test(test_killed_while_it_splits),
		cmocka_unit_test(test_killed_while_it_evicts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
