/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/pool-life.c: which member's a kept pool was, from a file and from systemd's store; and when nothing is said. */
#include "pool-fixture.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>

#include "fdstore.h"
#include "pool-life.h"

#define LIFE 0x1234567890abcdefull

struct life {
	struct fixture f;
	char folder[64], path[96], copy[96];
};

static void begin(struct life *l)
{
	char more[160];

	snprintf(more, sizeof(more), "file = %s\n", l->path);
	fixture_open(&l->f, more);
}

static int set_up(void **state)
{
	struct life *l = calloc(1, sizeof(*l));

	strcpy(l->folder, "/dev/shm/tarn-test-XXXXXX");
	assert_non_null(mkdtemp(l->folder));
	snprintf(l->path, sizeof(l->path), "%s/pool", l->folder);
	snprintf(l->copy, sizeof(l->copy), "%s/copy", l->folder);
	begin(l);
	*state = l;
	return 0;
}

static int tear_down(void **state)
{
	struct life *l = *state;

	unlink(l->path);
	unlink(l->copy);
	rmdir(l->folder);
	free(l);
	return 0;
}

static uint64_t life_of(const struct config *config, const struct fdstore *store)
{
	return pool_life_read(&config->pools[0], store, "shop", "a");
}

/* Of this file, with no daemon. */
static uint64_t life_in(const char *path)
{
	struct config *config;
	char more[160];
	uint64_t life;

	snprintf(more, sizeof(more), "file = %s\n", path);
	config = fixture_config(more);
	life = life_of(config, NULL);
	config_free(config);
	return life;
}

static void test_file(void **state)
{
	struct life *l = *state;
	const struct config_pool *config = &l->f.config->pools[0];

	assert_int_equal(life_of(l->f.config, NULL), 0);
	pool_life_write(l->f.pool, "shop", "a", LIFE);
	/* that life goes on */
	assert_int_equal(life_of(l->f.config, NULL), 0);
	pool_free(l->f.pool);
	assert_true(life_of(l->f.config, NULL) == LIFE);
	assert_true(life_of(l->f.config, NULL) == LIFE); /* and the lock was given back */
	assert_int_equal(pool_life_read(config, NULL, "shop", "b"), 0);
	assert_int_equal(pool_life_read(config, NULL, "shop2", "a"), 0);
	config_free(l->f.config);
	/* the next life does not take it away before it is a member itself */
	begin(l);
	pool_free(l->f.pool);
	assert_true(life_of(l->f.config, NULL) == LIFE);
	config_free(l->f.config);
}

static void test_copy(void **state)
{
	struct life *l = *state;
	char command[256];

	pool_life_write(l->f.pool, "shop", "a", LIFE);
	fixture_close(&l->f);
	snprintf(command, sizeof(command), "cp --sparse=always %s %s", l->path, l->copy);
	assert_int_equal(system(command), 0);
	assert_int_equal(life_in(l->copy), 0);
	assert_true(life_in(l->path) == LIFE);
}

/* Whatever is there in the pool's place. */
static void test_damaged(void **state)
{
	struct life *l = *state;
	const off_t place = offsetof(struct layout_superblock, member_place);
	uint64_t word = 0;
	uint8_t byte;
	int fd;

	pool_life_write(l->f.pool, "shop", "a", LIFE);
	fixture_close(&l->f);
	fd = open(l->path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	/* of another boot of the host, or of another host */
	assert_int_equal(pread(fd, &byte, 1, place), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, place), 1);
	assert_int_equal(life_in(l->path), 0);
	assert_int_equal(pwrite(fd, &word, 8, 0), 8); /* the magic */
	assert_int_equal(life_in(l->path), 0);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(life_in(l->path), 0);
	close(fd);
	assert_int_equal(life_in(l->folder), 0);
	assert_int_equal(life_in("/dev/null"), 0);
	assert_int_equal(life_in(l->copy), 0);
}

static void test_kept(void **state)
{
	struct life *l = *state;
	struct config *config = fixture_config("");
	struct fdstore *store;

	pool_life_write(l->f.pool, "shop", "a", LIFE);
	pool_free(l->f.pool);
	config_free(l->f.config);
	assert_int_equal(fdstore_create(&l->f.log, &store), 0);
	assert_int_equal(life_of(config, store), 0);
	assert_int_equal(fdstore_add(store, "main", open(l->path, O_RDWR | O_CLOEXEC)), 0);
	assert_true(life_of(config, store) == LIFE);
	/* it is still there for who opens the pool */
	close(fdstore_take(store, "main"));
	assert_int_equal(life_of(config, store), 0);
	fdstore_free(store);
	config_free(config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_copy, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_kept, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
