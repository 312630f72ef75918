/* SPDX-License-Identifier: BSD-2-Clause */
/* A small real pool for the tests of daemon/: 8 MiB of memfd, a configuration as from the file, no
 * listener. */
#ifndef TARN_TESTS_POOL_FIXTURE_H
#define TARN_TESTS_POOL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "auth.h"
#include "config.h"
#include "err.h"
#include "keeper.h"
#include "log.h"
#include "pool.h"
#include "self.h"

struct fixture {
	struct config *config;
	struct log log;
	struct pool *pool;
};

/* `more`: further lines of the pool's section. */
static inline struct config *fixture_config_sized(const char *size, const char *more)
{
	struct config_errors errors = {0};
	struct config *config = NULL;
	char text[512];

	snprintf(text, sizeof(text),
		 "[listen l]\npath = /l\n[pool main]\nsize = %s\nhugepages = off\nprefault = no\n"
		 "max_clients = 8\n%s",
		 size, more);
	assert_int_equal(config_parse("fixture", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

static inline struct config *fixture_config(const char *more)
{
	return fixture_config_sized("8M", more);
}

static inline void fixture_open_sized(struct fixture *fixture, const char *size, const char *more)
{
	assert_int_equal(auth_init(), 0);
	log_init(&fixture->log, STDERR_FILENO, LOG_LEVEL_ERROR);
	fixture->config = fixture_config_sized(size, more);
	if (pool_create(&fixture->config->pools[0], &(struct pool_place){.numa_node = -1},
			&fixture->log, &fixture->pool) < 0)
		fail_msg("%s", err_text());
}

static inline void fixture_open(struct fixture *fixture, const char *more)
{
	fixture_open_sized(fixture, "8M", more);
}

/* All zeros again, and only what is touched afterwards costs time: some tests do this thousands of times. */
static inline void fixture_clear(struct pool *pool)
{
	assert_int_equal(madvise(pool->memory.base, pool->memory.bytes, MADV_REMOVE), 0);
}

static inline void fixture_close(struct fixture *fixture)
{
	pool_free(fixture->pool);
	config_free(fixture->config);
}

/* Writes a page word, as a client might. */
static inline void fixture_page(struct pool *pool, uint32_t page, enum layout_page_state state,
				uint32_t class, uint32_t owner)
{
	self_store(pool, layout_page_word_offset(&pool->geometry, page),
		   layout_page_next(pool_load_page_word(pool, page), state, class, owner));
}

/* Sets the free-map bytes of the blocks from..to - 1. */
static inline void fixture_blocks(struct pool *pool, uint32_t page, uint32_t class, uint32_t from,
				  uint32_t to, enum layout_free byte)
{
	for (uint32_t i = from; i < to; i++)
		self_store_byte(
			pool,
			layout_free_map_offset(&pool->geometry,
					       layout_page_offset(&pool->geometry, page) +
						       (uint64_t)i * layout_class_bytes(class)),
			(uint8_t)byte);
}

static inline uint8_t fixture_block(struct pool *pool, uint32_t page, uint32_t class,
				    uint32_t block)
{
	return self_load_byte(
		pool, layout_free_map_offset(&pool->geometry,
					     layout_page_offset(&pool->geometry, page) +
						     (uint64_t)block * layout_class_bytes(class)));
}

#endif
