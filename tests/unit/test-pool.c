/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/pool.c, pool-memory.c, handshake.c: memory, client slots, page words, who gets in. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "handshake.h"
#include "pool-fixture.h"

static void test_memory(void **state)
{
	struct fixture f;
	struct stat st;
	const struct layout_superblock *sb;

	(void)state;
	fixture_open(&f, "");
	sb = (const struct layout_superblock *)(const void *)f.pool->memory.base;
	assert_true(f.pool->memory.bytes == 8 << 20 && !f.pool->memory.hugetlb);
	assert_true(sb->magic == LAYOUT_MAGIC && sb->epoch == 1 && sb->hash_seed != 0 &&
		    sb->boot_id != sb->incarnation);
	assert_int_equal(fcntl(f.pool->memory.fd, F_GET_SEALS),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(fstat(f.pool->memory.fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(ftruncate(f.pool->memory.fd, 4096), -1);
	/* What a read-only client gets can be read and not be written. */
	assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
			 f.pool->memory.fd_read_only, 0) == MAP_FAILED);
	assert_int_equal(errno, EACCES);
	assert_true(mmap(NULL, 4096, PROT_READ, MAP_SHARED, f.pool->memory.fd_read_only, 0) !=
		    MAP_FAILED);
	assert_int_equal(write(f.pool->memory.fd_read_only, "x", 1), -1);
	fixture_close(&f);
}

static void test_memory_missing(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"size = 2T\nhugepages = prefer\n", "lower size"},
		{"size = 1T\nhugepages = require\n", "are missing; get them by"},
		{"size = 8M\nnuma_node = 77\n", "numa_node = 77"},
	};
	struct log log;

	(void)state;
	log_init(&log, STDERR_FILENO, LOG_LEVEL_ERROR);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config_errors errors = {0};
		struct pool_memory memory;
		struct config *config;
		char text[200];

		snprintf(text, sizeof(text), "[listen l]\npath = /l\n[pool p]\n%s", cases[i].text);
		assert_int_equal(config_parse("t", text, strlen(text), &errors, &config), 0);
		assert_int_equal(errors.count, 0);
		assert_true(pool_memory_create(&config->pools[0], &log, &memory) < 0);
		if (!strstr(err_text(), cases[i].says))
			fail_msg("'%s' does not say '%s'", err_text(), cases[i].says);
		config_check_environment(config, &errors);
		assert_int_equal(errors.count, 1);
		config_errors_free(&errors);
		config_free(config);
	}
}

static struct pool_client who(const char *name)
{
	struct pool_client client = {.pid = 42, .uid = 1, .gid = 2};

	snprintf(client.name, sizeof(client.name), "%s", name);
	return client;
}

static void test_client_slots(void **state)
{
	struct pool_client client = who("someone");
	struct layout_client image;
	uint32_t slot, first, id;
	struct fixture f;

	(void)state;
	fixture_open(&f, "");
	assert_int_equal(pool_client_add(f.pool, &client, &first), 0);
	self_read(f.pool, layout_client_offset(&f.pool->geometry, first), &image, sizeof(image));
	assert_true(image.state == LAYOUT_CLIENT_LIVE && image.client_id == 1 && image.pid == 42 &&
		    image.uid == 1);
	assert_string_equal(image.name, "someone");
	for (int i = 1; i < 8; i++)
		assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), -EBUSY);
	assert_int_equal(pool_client_renumber(f.pool, first, &id), 0);
	assert_int_equal(id, 9);
	assert_int_equal(pool_client_end(f.pool, first), 0);
	assert_int_equal(f.pool->client_count, 7);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	assert_int_equal(slot, first);
	assert_int_equal(f.pool->clients[slot].client_id, 10); /* never the same again */
	f.pool->last_client_id = UINT32_MAX;
	pool_client_end(f.pool, slot);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), -EOVERFLOW);
	fixture_close(&f);
}

static void test_death(void **state)
{
	struct pool_client client = who("dying");
	struct pool_pages pages;
	struct layout_client image;
	uint32_t slot, other;
	struct fixture f;

	(void)state;
	fixture_open(&f, "");
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	assert_int_equal(pool_client_add(f.pool, &client, &other), 0);
	fixture_page(f.pool, 3, LAYOUT_PAGE_SLAB, 5, slot);
	fixture_page(f.pool, 4, LAYOUT_PAGE_SLAB, 5, other);
	fixture_page(f.pool, 5, LAYOUT_PAGE_SLAB, 7, slot);
	fixture_page(f.pool, 6, LAYOUT_PAGE_FULL, 7, slot);
	assert_int_equal(pool_client_end(f.pool, slot), 2);
	assert_int_equal(layout_page_state(pool_load_page_word(f.pool, 3)), LAYOUT_PAGE_ORPHAN);
	assert_int_equal(layout_page_class(pool_load_page_word(f.pool, 5)), 7);
	assert_int_equal(layout_page_owner(pool_load_page_word(f.pool, 5)), 0);
	assert_int_equal(layout_page_generation(pool_load_page_word(f.pool, 5)), 2);
	assert_int_equal(layout_page_state(pool_load_page_word(f.pool, 4)), LAYOUT_PAGE_SLAB);
	assert_int_equal(layout_page_state(pool_load_page_word(f.pool, 6)), LAYOUT_PAGE_FULL);
	self_read(f.pool, layout_client_offset(&f.pool->geometry, slot), &image, sizeof(image));
	assert_int_equal(image.state, LAYOUT_CLIENT_FREE);
	assert_int_equal(f.pool->counters.clients_ended_dead, 1);
	/* The dead one's slot is given away again, under a new client id. */
	for (int i = 0; i < 7; i++) {
		uint32_t got;

		assert_int_equal(pool_client_add(f.pool, &client, &got), 0);
		assert_int_not_equal(got, other);
	}
	assert_int_equal(pool_client_add(f.pool, &client, &slot), -EBUSY);
	pool_count_pages(f.pool, &pages);
	assert_int_equal(pages.by_state[LAYOUT_PAGE_ORPHAN], 2);
	assert_int_equal(pages.by_class[5][LAYOUT_PAGE_SLAB], 1);
	fixture_close(&f);
}

static void test_telemetry(void **state)
{
	struct layout_telemetry t = {.reports = 1, .gets = 5}, got;
	struct pool_client client = who("t");
	struct fixture f;
	uint32_t slot;

	(void)state;
	fixture_open(&f, "");
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	assert_false(pool_client_telemetry(f.pool, slot, &got));
	t.puts = UINT64_MAX; /* a lie is cut down, so that sums stay sums */
	self_write(f.pool,
		   layout_client_offset(&f.pool->geometry, slot) +
			   offsetof(struct layout_client, telemetry),
		   &t, sizeof(t));
	assert_true(pool_client_telemetry(f.pool, slot, &got));
	assert_true(got.gets == 5 && got.puts < 1ull << 48);
	pool_client_end(f.pool, slot);
	assert_int_equal(f.pool->ended.gets, 5);
	got.gets = UINT64_MAX;
	pool_telemetry_add(&got, &f.pool->ended);
	assert_true(got.gets == UINT64_MAX);
	/* The next one in this slot begins with nothing. */
	f.pool->slot_cursor = slot;
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	assert_false(pool_client_telemetry(f.pool, slot, &got));
	fixture_close(&f);
}

static void test_find_page(void **state)
{
	struct fixture f;
	uint32_t first, second;

	(void)state;
	fixture_open(&f, "");
	first = pool_find_page(f.pool, 5);
	second = pool_find_page(f.pool, 5);
	assert_true(first != POOL_NONE && second != POOL_NONE && first != second);
	fixture_page(f.pool, 20, LAYOUT_PAGE_PARTIAL, 5, 0);
	assert_int_equal(pool_find_page(f.pool, 5), 20);
	for (uint32_t page = 1; page < f.pool->geometry.npages; page++)
		fixture_page(f.pool, page, LAYOUT_PAGE_FULL, 5, 0);
	assert_int_equal(pool_find_page(f.pool, 5), POOL_NONE);
	fixture_page(f.pool, 20, LAYOUT_PAGE_PARTIAL, 5, 0);
	assert_int_equal(pool_find_page(f.pool, 6), POOL_NONE);
	fixture_close(&f);
}

/* ---- handshake ---- */

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static void shake(struct fixture *f, const struct wire_request *request, const struct auth_key *key,
		  struct handshake *ret)
{
	struct daemon daemon = {.log = &f->log, .pools = &f->pool, .pool_count = 1};
	struct pool_client client = who("shaker");
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(request, bytes);
	if (key)
		auth_request_sign(key, bytes);
	handshake(&daemon, bytes, sizeof(bytes), &client, ret);
	if (ret->pool && key && f->pool->auth)
		assert_int_equal(auth_reply_check(key, bytes, ret->answer), 0);
}

static void test_handshake(void **state)
{
	struct wire_request request = {
		.version_min = 1, .version_max = 9, .pool = wire_pool_hash("main"), .nonce = 5};
	struct wire_reject reject;
	struct wire_reply reply;
	struct handshake got;
	struct fixture f;

	(void)state;
	fixture_open(&f, "");
	shake(&f, &request, NULL, &got);
	assert_ptr_equal(got.pool, f.pool);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_true(reply.version == 1 && reply.nonce == 5 && reply.client_slot == got.slot &&
		    reply.role == WIRE_ROLE_WRITE);
	assert_true(reply.pool_bytes == 8 << 20 && reply.deadline_us == 100000 &&
		    reply.grace_us == 500000);
	request.flags = WIRE_REQUEST_READONLY;
	shake(&f, &request, NULL, &got);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_int_equal(reply.role, WIRE_ROLE_READ);
	assert_true(f.pool->clients[got.slot].read_only);
	request.pool++;
	shake(&f, &request, NULL, &got);
	assert_null(got.pool);
	assert_int_equal(wire_reject_decode(got.answer, got.answer_bytes, &reject), 0);
	assert_int_equal(reject.reason, WIRE_REASON_NO_POOL);
	request.version_min = 2;
	shake(&f, &request, NULL, &got);
	assert_int_equal(got.reason, WIRE_REASON_VERSION);
	request.version_min = 1;
	request.pool--;
	for (int i = 0; i < 6; i++) {
		shake(&f, &request, NULL, &got);
		assert_non_null(got.pool);
	}
	shake(&f, &request, NULL, &got);
	assert_int_equal(got.reason, WIRE_REASON_CLIENTS);
	assert_int_equal(wire_reject_decode(got.answer, got.answer_bytes, &reject), 0);
	assert_int_equal(reject.detail, 8);
	assert_int_equal(f.pool->counters.handshakes_refused[WIRE_REASON_CLIENTS], 1);
	fixture_close(&f);
}

static uint16_t shake_with(struct fixture *f, const char *id, uint8_t first, uint64_t time_ms,
			   uint16_t flags)
{
	struct wire_request request = {.version_min = 1,
				       .version_max = 1,
				       .pool = wire_pool_hash("main"),
				       .nonce = 5,
				       .time_ms = time_ms,
				       .flags = flags};
	struct auth_key key = {.role = WIRE_ROLE_WRITE};
	struct handshake got;

	memcpy(request.key_id, id, strlen(id));
	for (int i = 0; i < 32; i++)
		key.secret[i] = (uint8_t)i;
	key.secret[0] = first;
	shake(f, &request, *id ? &key : NULL, &got);
	if (got.pool)
		pool_client_end(got.pool, got.slot);
	return got.reason;
}

static void test_handshake_keys(void **state)
{
	char path[] = "/tmp/tarn-test-pool-XXXXXX", more[100];
	uint64_t now = clock_wall_ms();
	int fd = mkstemp(path);
	struct fixture f;

	(void)state;
	assert_true(dprintf(fd, "ada write %s\nbob read %s\n", SECRET, SECRET) > 0);
	close(fd);
	snprintf(more, sizeof(more), "auth = key\nkey_file = %s\n", path);
	fixture_open(&f, more);
	unlink(path);
	assert_int_equal(shake_with(&f, "ada", 0, now, 0), 0);
	assert_int_equal(shake_with(&f, "ada", 0, now, WIRE_REQUEST_READONLY), 0);
	assert_int_equal(shake_with(&f, "bob", 0, now, WIRE_REQUEST_READONLY), 0);
	assert_int_equal(shake_with(&f, "bob", 0, now, 0), WIRE_REASON_ROLE);
	assert_int_equal(shake_with(&f, "", 0, now, 0), WIRE_REASON_NO_KEY);
	assert_int_equal(shake_with(&f, "eve", 0, now, 0), WIRE_REASON_UNKNOWN_KEY);
	assert_int_equal(shake_with(&f, "ada", 1, now, 0), WIRE_REASON_BAD_MAC);
	assert_int_equal(shake_with(&f, "ada", 1, 0, 0), WIRE_REASON_BAD_MAC);
	assert_int_equal(shake_with(&f, "ada", 0, now - 2 * AUTH_TIME_WINDOW_MS, 0),
			 WIRE_REASON_TIME);
	assert_int_equal(shake_with(&f, "ada", 0, now + 2 * AUTH_TIME_WINDOW_MS, 0),
			 WIRE_REASON_TIME);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),       cmocka_unit_test(test_memory_missing),
		cmocka_unit_test(test_client_slots), cmocka_unit_test(test_death),
		cmocka_unit_test(test_telemetry),    cmocka_unit_test(test_find_page),
		cmocka_unit_test(test_handshake),    cmocka_unit_test(test_handshake_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
