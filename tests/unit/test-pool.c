/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/pool.c, pool-memory.c, handshake.c, reload-keys.c: memory, client slots, page words, who
 * gets in, and who has to go. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "handshake.h"
#include "pool-fixture.h"
#include "reload-keys.h"
#include "replay.h"

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
		assert_true(pool_memory_create(&config->pools[0],
					       (int)config->pools[0].numa_node.number, &log, NULL,
					       &memory) < 0);
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

/* Each test's own: who comes in, and what the daemon remembers. */
struct door {
	struct replay *replay;
	uint64_t ready_ms;
	struct pool_client who;
};

static void door_open(struct door *door)
{
	*door = (struct door){.replay = replay_create(1024, AUTH_TIME_WINDOW_MS),
			      .who = who("shaker")};
}

static void shake(struct fixture *f, struct door *door, const struct wire_request *request,
		  const struct auth_key *key, struct handshake *ret)
{
	struct daemon daemon = {.log = &f->log,
				.pools = &f->pool,
				.pool_count = 1,
				.replay = door->replay,
				.ready_ms = door->ready_ms};
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(request, bytes);
	if (key)
		auth_request_sign(key, bytes);
	handshake(&daemon, bytes, sizeof(bytes), &door->who, ret);
	ret->daemon = NULL; /* is gone when we return */
	if (ret->pool)
		handshake_accept(
			ret, &(struct wire_region){.length = ret->pool->geometry.pool_bytes}, 1);
	if (ret->pool && key && f->pool->auth)
		assert_int_equal(auth_reply_check(key, bytes, ret->answer), 0);
}

static struct wire_reject reject_of(const struct handshake *shake)
{
	struct wire_reject reject;

	assert_null(shake->pool);
	assert_int_equal(wire_reject_decode(shake->answer, shake->answer_bytes, &reject), 0);
	assert_int_equal(reject.reason, shake->reason);
	return reject;
}

static void test_handshake(void **state)
{
	struct wire_request request = {
		.version_min = 1, .version_max = 9, .pool = wire_pool_hash("main"), .nonce = 5};
	struct wire_reject reject;
	struct wire_reply reply;
	struct handshake got;
	struct fixture f;
	struct door door;

	(void)state;
	fixture_open(&f, "");
	door_open(&door);
	shake(&f, &door, &request, NULL, &got);
	assert_ptr_equal(got.pool, f.pool);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_true(reply.version == 1 && reply.nonce == 5 && reply.client_slot == got.slot &&
		    reply.role == WIRE_ROLE_WRITE);
	assert_true(reply.pool_bytes == 8 << 20 && reply.deadline_us == 100000 &&
		    reply.grace_us == 500000);
	request.flags = WIRE_REQUEST_READONLY;
	shake(&f, &door, &request, NULL, &got);
	assert_int_equal(wire_reply_decode(got.answer, got.answer_bytes, &reply), 0);
	assert_int_equal(reply.role, WIRE_ROLE_READ);
	assert_true(f.pool->clients[got.slot].read_only);
	request.pool++;
	shake(&f, &door, &request, NULL, &got);
	assert_null(got.pool);
	assert_int_equal(wire_reject_decode(got.answer, got.answer_bytes, &reject), 0);
	assert_int_equal(reject.reason, WIRE_REASON_NO_POOL);
	request.version_min = 2;
	shake(&f, &door, &request, NULL, &got);
	assert_int_equal(got.reason, WIRE_REASON_VERSION);
	request.version_min = 1;
	request.pool--;
	for (int i = 0; i < 6; i++) {
		shake(&f, &door, &request, NULL, &got);
		assert_non_null(got.pool);
	}
	shake(&f, &door, &request, NULL, &got);
	assert_int_equal(got.reason, WIRE_REASON_CLIENTS);
	assert_int_equal(wire_reject_decode(got.answer, got.answer_bytes, &reject), 0);
	assert_int_equal(reject.detail, 8);
	assert_int_equal(f.pool->counters.handshakes_refused[WIRE_REASON_CLIENTS], 1);
	replay_free(door.replay);
	fixture_close(&f);
}

static uint16_t shake_with(struct fixture *f, struct door *door, const char *id, uint8_t first,
			   uint64_t time_ms, uint16_t flags)
{
	static uint64_t nonce;
	struct wire_request request = {.version_min = 1,
				       .version_max = 1,
				       .pool = wire_pool_hash("main"),
				       .nonce = ++nonce,
				       .time_ms = time_ms,
				       .flags = flags};
	struct auth_key key = {.role = WIRE_ROLE_WRITE};
	struct handshake got;

	memcpy(request.key_id, id, strlen(id));
	for (int i = 0; i < 32; i++)
		key.secret[i] = (uint8_t)i;
	key.secret[0] = first;
	shake(f, door, &request, *id ? &key : NULL, &got);
	if (got.pool) {
		assert_memory_equal(f->pool->clients[got.slot].key_id, request.key_id, 8);
		pool_client_end(got.pool, got.slot);
	}
	return got.reason;
}

static void fixture_open_keys(struct fixture *f, const char *lines)
{
	char path[] = "/tmp/tarn-test-pool-XXXXXX", more[100];
	int fd = mkstemp(path);

	assert_true(dprintf(fd, "%s", lines) > 0);
	close(fd);
	snprintf(more, sizeof(more), "auth = key\nkey_file = %s\n", path);
	fixture_open(f, more);
	unlink(path);
}

static void test_handshake_keys(void **state)
{
	uint64_t now = clock_wall_ms();
	struct fixture f;
	struct door d;

	(void)state;
	fixture_open_keys(&f, "ada write " SECRET "\nbob read " SECRET "\n");
	door_open(&d);
	assert_int_equal(shake_with(&f, &d, "ada", 0, now, 0), 0);
	assert_int_equal(shake_with(&f, &d, "ada", 0, now, WIRE_REQUEST_READONLY), 0);
	assert_int_equal(shake_with(&f, &d, "bob", 0, now, WIRE_REQUEST_READONLY), 0);
	assert_int_equal(shake_with(&f, &d, "bob", 0, now, 0), WIRE_REASON_ROLE);
	assert_int_equal(shake_with(&f, &d, "", 0, now, 0), WIRE_REASON_NO_KEY);
	assert_int_equal(shake_with(&f, &d, "eve", 0, now, 0), WIRE_REASON_UNKNOWN_KEY);
	assert_int_equal(shake_with(&f, &d, "ada", 1, now, 0), WIRE_REASON_BAD_MAC);
	assert_int_equal(shake_with(&f, &d, "ada", 1, 0, 0), WIRE_REASON_BAD_MAC);
	assert_int_equal(shake_with(&f, &d, "ada", 0, now - 2 * AUTH_TIME_WINDOW_MS, 0),
			 WIRE_REASON_TIME);
	assert_int_equal(shake_with(&f, &d, "ada", 0, now + 2 * AUTH_TIME_WINDOW_MS, 0),
			 WIRE_REASON_TIME);
	replay_free(d.replay);
	fixture_close(&f);
}

/* A signed request is good for one try, whatever becomes of it. */
static void test_handshake_replay(void **state)
{
	struct wire_request request = {.version_min = 1,
				       .version_max = 1,
				       .pool = wire_pool_hash("main"),
				       .key_id = "ada",
				       .nonce = 1,
				       .time_ms = clock_wall_ms()};
	struct auth_key key = {.role = WIRE_ROLE_WRITE};
	struct handshake got;
	struct fixture f;
	struct door d;

	(void)state;
	for (int i = 0; i < 32; i++)
		key.secret[i] = (uint8_t)i;
	fixture_open_keys(&f, "ada write " SECRET "\n");
	door_open(&d);
	shake(&f, &d, &request, &key, &got);
	assert_non_null(got.pool);
	shake(&f, &d, &request, &key, &got);
	assert_int_equal(reject_of(&got).reason, WIRE_REASON_REPLAY);
	assert_int_equal(reject_of(&got).retry_after_ms, 0);
	/* Not by who has no key: a wrong MAC uses up nobody's nonce. */
	request.nonce = 2;
	key.secret[0]++;
	shake(&f, &d, &request, &key, &got);
	assert_int_equal(got.reason, WIRE_REASON_BAD_MAC);
	key.secret[0]--;
	shake(&f, &d, &request, &key, &got);
	assert_non_null(got.pool);
	for (request.nonce = 3; request.nonce < 9; request.nonce++)
		shake(&f, &d, &request, &key, &got);
	assert_non_null(got.pool);
	request.nonce = 9;
	shake(&f, &d, &request, &key, &got);
	assert_int_equal(reject_of(&got).reason, WIRE_REASON_CLIENTS);
	assert_int_equal(reject_of(&got).retry_after_ms, 1000);
	shake(&f, &d, &request, &key, &got); /* used up by the refusal */
	assert_int_equal(got.reason, WIRE_REASON_REPLAY);
	/* a table full of young ones: later */
	replay_free(d.replay);
	d.replay = replay_create(1, AUTH_TIME_WINDOW_MS);
	request.nonce = 10;
	shake(&f, &d, &request, &key, &got);
	assert_int_equal(got.reason, WIRE_REASON_CLIENTS);
	request.nonce = 11;
	shake(&f, &d, &request, &key, &got);
	assert_int_equal(reject_of(&got).reason, WIRE_REASON_BUSY);
	assert_int_equal(reject_of(&got).retry_after_ms, 1000);
	replay_free(d.replay);
	fixture_close(&f);
}

/* Over the network, what was signed before the daemon's memory began may be a replay. */
static void test_handshake_before_start(void **state)
{
	uint64_t now = clock_wall_ms();
	struct wire_request request = {.version_min = 1,
				       .version_max = 1,
				       .pool = wire_pool_hash("main"),
				       .key_id = "ada",
				       .nonce = 1,
				       .time_ms = now - 3000};
	struct auth_key key = {.role = WIRE_ROLE_WRITE};
	struct handshake got;
	struct fixture f;
	struct door d;

	(void)state;
	for (int i = 0; i < 32; i++)
		key.secret[i] = (uint8_t)i;
	fixture_open_keys(&f, "ada write " SECRET "\n");
	door_open(&d);
	d.ready_ms = now - 1000;
	d.who.transport = POOL_VERBS;
	shake(&f, &d, &request, &key, &got);
	assert_int_equal(reject_of(&got).reason, WIRE_REASON_TIME);
	assert_int_equal(reject_of(&got).retry_after_ms, 2001);
	assert_in_range(reject_of(&got).detail, now, now + 60000);
	request.time_ms += 2001; /* the client's clock, that much later */
	shake(&f, &d, &request, &key, &got);
	assert_non_null(got.pool);
	request.nonce++;
	request.time_ms = now - 3000;
	d.who.transport = POOL_SHM;
	shake(&f, &d, &request, &key, &got);
	assert_non_null(got.pool);
	replay_free(d.replay);
	fixture_close(&f);
}

/* The clocks of both are set back behind the daemon's start: nobody is let in, by however much, and the log says what to do. */
static void test_handshake_clock_set_back(void **state)
{
	const uint64_t steps_ms[] = {3600000, (1ull << 32) - 1, 1ull << 40};
	uint64_t now = clock_wall_ms();
	struct wire_request request = {.version_min = 1,
				       .version_max = 1,
				       .pool = wire_pool_hash("main"),
				       .key_id = "ada",
				       .nonce = 1,
				       .time_ms = now};
	struct auth_key key = {.role = WIRE_ROLE_WRITE};
	struct handshake got;
	struct fixture f;
	struct door d;

	(void)state;
	for (int i = 0; i < 32; i++)
		key.secret[i] = (uint8_t)i;
	fixture_open_keys(&f, "ada write " SECRET "\n");
	door_open(&d);
	d.who.transport = POOL_VERBS;
	for (size_t i = 0; i < sizeof(steps_ms) / sizeof(steps_ms[0]); i++) {
		d.ready_ms = now + steps_ms[i];
		shake(&f, &d, &request, &key, &got);
		assert_int_equal(reject_of(&got).reason, WIRE_REASON_TIME);
		assert_int_equal(reject_of(&got).retry_after_ms,
				 steps_ms[i] + 1 < UINT32_MAX ? steps_ms[i] + 1 : UINT32_MAX);
		assert_non_null(strstr(err_text(), "was set back by"));
		assert_non_null(strstr(err_text(), "restart tarnd"));
	}
	replay_free(d.replay);
	fixture_close(&f);
}

/* A pool is offered where its `listen` says, and for writing only to who takes part in its domain. */
static void test_handshake_listener(void **state)
{
	static const char text[] =
		"[listen l]\npath = /l\n[listen m]\npath = /m\n[pool main]\nsize = "
		"8M\nhugepages = off\nlisten = m\n";
	struct wire_request request = {
		.version_min = 1, .version_max = 1, .pool = wire_pool_hash("main"), .nonce = 5};
	struct config_errors errors = {0};
	struct config *config;
	struct handshake got;
	struct fixture f;
	struct door d;

	(void)state;
	assert_int_equal(config_parse("t", text, strlen(text), &errors, &config), 0);
	assert_int_equal(errors.count, 0);
	fixture_open(&f, "");
	f.pool->config = &config->pools[0];
	door_open(&d);
	d.who.listener = &config->listens[0];
	shake(&f, &d, &request, NULL, &got);
	assert_int_equal(reject_of(&got).reason, WIRE_REASON_TRANSPORT);
	assert_non_null(strstr(err_text(), "listener l"));
	assert_int_equal(reject_of(&got).retry_after_ms, 0);
	d.who.listener = &config->listens[1];
	shake(&f, &d, &request, NULL, &got);
	assert_non_null(got.pool);
	assert_ptr_equal(f.pool->clients[got.slot].listener, &config->listens[1]);
	f.pool->geometry.atomics = LAYOUT_ATOMICS_NIC;
	shake(&f, &d, &request, NULL, &got);
	assert_int_equal(reject_of(&got).reason, WIRE_REASON_TRANSPORT);
	assert_non_null(strstr(err_text(), "only be read"));
	request.flags = WIRE_REQUEST_READONLY;
	shake(&f, &d, &request, NULL, &got);
	assert_non_null(got.pool);
	request.flags = 0;
	d.who.transport = POOL_VERBS;
	shake(&f, &d, &request, NULL, &got);
	assert_non_null(got.pool);
	f.pool->config = &f.config->pools[0];
	replay_free(d.replay);
	config_free(config);
	fixture_close(&f);
}

/* What comes after the check fails: the slot is free again, and the reject is complete. */
static void test_handshake_refuse(void **state)
{
	static const struct {
		enum wire_reason reason;
		uint32_t retry_after_ms;
		uint64_t detail;
	} cases[] = {{WIRE_REASON_BUSY, 200, 0},
		     {WIRE_REASON_ADDRESS, 1000, 1024},
		     {WIRE_REASON_CLIENTS, 1000, 8},
		     {WIRE_REASON_INTERNAL, 0, 0}};
	struct wire_request request = {
		.version_min = 1, .version_max = 1, .pool = wire_pool_hash("main"), .nonce = 5};
	uint8_t bytes[WIRE_REQUEST_BYTES], answer[WIRE_REJECT_BYTES];
	struct daemon daemon = {.pool_count = 1};
	struct wire_reject reject;
	struct pool_client client = who("refused");
	struct handshake got;
	struct fixture f;

	(void)state;
	fixture_open(&f, "");
	client.listener = &f.config->listens[0];
	daemon.pools = &f.pool;
	wire_request_encode(&request, bytes);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		handshake(&daemon, bytes, sizeof(bytes), &client, &got);
		assert_non_null(got.pool);
		assert_int_equal(f.pool->client_count, 1);
		handshake_refuse(&got, cases[i].reason);
		reject = reject_of(&got);
		assert_int_equal(reject.reason, cases[i].reason);
		assert_int_equal(reject.retry_after_ms, cases[i].retry_after_ms);
		assert_int_equal(reject.detail, cases[i].detail);
		assert_int_equal(f.pool->counters.handshakes_refused[cases[i].reason], 1);
		assert_int_equal(f.pool->client_count, 0);
	}
	assert_true(f.pool->counters.handshakes_accepted == 0 &&
		    f.pool->counters.clients_ended_clean == 0);
	assert_int_equal(handshake_reject(&daemon, WIRE_REASON_BUSY, 7, 300, answer),
			 WIRE_REJECT_BYTES);
	assert_int_equal(wire_reject_decode(answer, sizeof(answer), &reject), 0);
	assert_true(reject.reason == WIRE_REASON_BUSY && reject.detail == 7 &&
		    reject.retry_after_ms == 300 && daemon.refused[WIRE_REASON_BUSY] == 1);
	fixture_close(&f);
}

/* ---- SIGHUP ---- */

static void test_reload_verdict(void **state)
{
	struct auth_key before[] = {{.id = "ada", .role = WIRE_ROLE_WRITE, .secret = {1}},
				     {.id = "bob", .role = WIRE_ROLE_READ, .secret = {2}}},
			after[] = {{.id = "ada", .role = WIRE_ROLE_WRITE, .secret = {1}},
				     {.id = "bob", .role = WIRE_ROLE_READ, .secret = {2}}};
	struct auth_keys old_keys = {.keys = before, .count = 2},
			 new_keys = {.keys = after, .count = 2}, none = {0};
	const struct config_listen here = {.name = "l"};
	struct pool_client ada = {.key_id = "ada", .listener = &here},
			   bob = {.key_id = "bob", .read_only = true, .listener = &here},
			   eve = {.listener = &here};
	const struct reload_access was = {true, &old_keys}, is = {true, &new_keys}, open = {false, &none};

	(void)state;
	assert_null(reload_verdict(&was, &is, true, &ada));
	assert_null(reload_verdict(&was, &is, true, &bob));
	after[0].role = WIRE_ROLE_READ;
	assert_non_null(strstr(reload_verdict(&was, &is, true, &ada), "only read"));
	ada.read_only = true;
	assert_null(reload_verdict(&was, &is, true, &ada));
	after[1].role = WIRE_ROLE_WRITE; /* more than before */
	assert_null(reload_verdict(&was, &is, true, &bob));
	after[1].secret[31] = 1;
	assert_non_null(strstr(reload_verdict(&was, &is, true, &bob), "another secret"));
	new_keys.count = 1;
	assert_non_null(strstr(reload_verdict(&was, &is, true, &bob), "not in the key file"));
	/* auth itself */
	assert_null(reload_verdict(&was, &open, true, &bob));
	assert_null(reload_verdict(&open, &open, true, &eve));
	assert_non_null(strstr(reload_verdict(&open, &is, true, &eve), "wants a key"));
	assert_non_null(strstr(reload_verdict(&open, &is, true, &ada), "wants a key"));
	/* where it came in */
	assert_non_null(strstr(reload_verdict(&open, &open, false, &eve), "not offered"));
	eve.listener = NULL;
	assert_non_null(strstr(reload_verdict(&open, &open, false, &eve), "listener was removed"));
}

static void test_reload_compare(void **state)
{
	struct auth_key before[] = {{.id = "a", .role = 1}, {.id = "b", .role = 1}, {.id = "c", .role = 1}},
			after[] = {{.id = "c", .role = 2},
				   {.id = "a", .role = 1},
				   {.id = "d"},
				   {.id = "e"},
				   {.id = "f"},
				   {.id = "g"},
				   {.id = "12345678"},
				   {.id = "i"}};
	struct auth_keys old_keys = {.keys = before, .count = 3},
			 new_keys = {.keys = after, .count = 8}, none = {0};
	struct reload_keys keys;

	(void)state;
	reload_keys_compare(&old_keys, &old_keys, &keys);
	assert_true(keys.added == 0 && keys.removed == 0 && keys.changed == 0);
	assert_string_equal(keys.text, "");
	reload_keys_compare(&old_keys, &new_keys, &keys);
	assert_true(keys.added == 6 && keys.removed == 1 && keys.changed == 1);
	assert_string_equal(keys.text, "6 keys added (d, e, f, g, ...), 1 key removed (b), 1 key changed (c)");
	before[1].quota.bytes = 7;
	reload_keys_compare(&old_keys, &none, &keys);
	assert_string_equal(keys.text, "3 keys removed (a, b, c)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_memory_missing),
		cmocka_unit_test(test_client_slots),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_telemetry),
		cmocka_unit_test(test_find_page),
		cmocka_unit_test(test_handshake),
		cmocka_unit_test(test_handshake_keys),
		cmocka_unit_test(test_handshake_replay),
		cmocka_unit_test(test_handshake_before_start),
		cmocka_unit_test(test_handshake_clock_set_back),
		cmocka_unit_test(test_handshake_listener),
		cmocka_unit_test(test_handshake_refuse),
		cmocka_unit_test(test_reload_verdict),
		cmocka_unit_test(test_reload_compare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
