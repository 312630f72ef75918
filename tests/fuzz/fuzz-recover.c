/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-recover.c - libFuzzer target: a daemon that finds a pool full of garbage in kept memory
 *
 * The image of a small pool with some keys is damaged as the input says and opened as after a restart.
 * That may be refused; otherwise the keeper, RPCs and a client have to get along with it, and so has the
 * next restart. None may crash, hang, or read or write outside of the pool, which the address sanitizer
 * sees to (and self.c's assert()). An undamaged image must open and have every value.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "auth.h"
#include "clock.h"
#include "config.h"
#include "fabric.h"
#include "fdstore.h"
#include "keeper.h"
#include "log.h"
#include "pool.h"
#include "rpc.h"
#include "self.h"
#include "session.h"

#define KEYS  24u
#define STEPS 60u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "[listen l]\npath = /l\n[pool main]\nsize = 4M\nhugepages = off\n"
			   "max_clients = 4\nprefault = no\n";

struct fuzz {
	struct log log;
	struct config *config;
	uint8_t *image; /* of a pool with KEYS keys, whose daemon was killed */
	uint64_t bytes;
	struct layout_geometry geometry;
};

/* A clock that runs by being looked at: retries up to the time limit take no time. */
static uint64_t fast_now(struct fabric_endpoint *ep)
{
	static uint64_t now = 1000000000;

	(void)ep;
	return now += 20000;
}

static struct tarn_session *session_open(struct pool *pool)
{
	const struct pool_client client = {.name = "fuzz"};
	struct session_identity identity = {0};
	struct tarn_options options = TARN_OPTIONS_INIT;
	static struct fabric_ops ops;
	struct fabric_endpoint *ep;
	struct tarn_session *s;

	if (pool_client_add(pool, &client, &identity.client_slot) < 0)
		return NULL; /* all ids are used up, says the image */
	identity.client_id = pool->clients[identity.client_slot].client_id;
	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 1000;
	if (fabric_shm_attach(pool->memory.base, pool->memory.bytes, 0, &ep) < 0)
		abort();
	ops = *ep->ops;
	ops.now = fast_now;
	ep->ops = &ops;
	if (session_create(ep, &pool->geometry, &identity, &options, &s) < 0)
		abort();
	return s;
}

static void fill(struct fuzz *fuzz)
{
	struct pool_place place = {.numa_node = -1};
	struct tarn_session *s;
	struct pool *pool;

	if (pool_create(&fuzz->config->pools[0], &place, &fuzz->log, &pool) < 0)
		abort();
	s = session_open(pool);
	for (uint32_t key = 0; key < KEYS; key++)
		if (tarn_put(s, &key, sizeof(key), "value of the key", 16, NULL, NULL) < 0)
			abort();
	if (tarn_add(s, "counter", 7, 1, NULL) < 0)
		abort();
	session_free(s);
	fuzz->bytes = pool->memory.bytes;
	fuzz->geometry = pool->geometry;
	fuzz->image = malloc(fuzz->bytes);
	if (!fuzz->image)
		abort();
	memcpy(fuzz->image, pool->memory.base, fuzz->bytes);
	pool->open = false;
	pool_free(pool);
}

static struct fuzz *begin(void)
{
	struct config_errors errors = {0};
	static struct fuzz fuzz; /* the process's, as libFuzzer is */

	if (fuzz.image)
		return &fuzz;
	log_init(&fuzz.log, -1, LOG_LEVEL_ERROR);
	if (auth_init() < 0 ||
	    config_parse("fuzz", text, strlen(text), &errors, &fuzz.config) < 0 || errors.count)
		abort();
	fill(&fuzz);
	return &fuzz;
}

/*
 * 12 bytes of input: 4 say where, 8 what. Places worth damaging come first, then anything. `repeat` puts
 * the same into many words in a row.
 */
static void damage(const struct fuzz *fuzz, uint8_t *base, const uint8_t *data, size_t size)
{
	const struct layout_geometry *g = &fuzz->geometry;
	const uint64_t begins[] = {0,
				   g->page_table_offset,
				   g->ready_rings_offset,
				   g->directory_offset,
				   LAYOUT_EPOCH_OFFSET,
				   layout_page_offset(g, 0),
				   g->client_table_offset,
				   0};
	const uint64_t lengths[] = {offsetof(struct layout_superblock, reserved1),
				    8ull * g->npages,
				    g->directory_offset - g->ready_rings_offset,
				    64,
				    128,
				    2 * LAYOUT_PAGE_BYTES,
				    4ull * LAYOUT_CLIENT_BYTES,
				    fuzz->bytes};

	for (; size >= 12; data += 12, size -= 12) {
		uint64_t value, at, repeat;
		uint32_t where;

		memcpy(&where, data, 4);
		memcpy(&value, data + 4, 8);
		repeat = where >> 30 == 3 ? 64 : 1;
		at = begins[where % 8] + (where / 8 * 8ull) % lengths[where % 8];
		for (; repeat > 0 && at + 8 <= fuzz->bytes; repeat--, at += 8)
			memcpy(base + at / 8 * 8, &value, 8);
	}
}

/* Memory as systemd would have kept it. */
static int kept(const struct fuzz *fuzz, const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *base;

	if (fd < 0 || ftruncate(fd, (off_t)fuzz->bytes) < 0)
		abort();
	base = mmap(NULL, fuzz->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		abort();
	memcpy(base, fuzz->image, fuzz->bytes);
	damage(fuzz, base, data, size);
	munmap(base, fuzz->bytes);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		abort();
	return fd;
}

static struct pool *pool_open(const struct fuzz *fuzz, int fd)
{
	struct pool_place place = {.numa_node = -1};
	struct pool *pool = NULL;

	if (fdstore_create(&fuzz->log, &place.kept) < 0 || fdstore_add(place.kept, "main", fd) < 0)
		abort();
	if (pool_create(&fuzz->config->pools[0], &place, &fuzz->log, &pool) < 0)
		pool = NULL;
	fdstore_free(place.kept);
	return pool;
}

static void ask(struct pool *pool)
{
	struct rpc_client client;
	uint8_t message[WIRE_RPC_BYTES];
	struct rpc_answer answer;

	rpc_client_init(&client, 0, false);
	for (uint8_t type = 1; type <= WIRE_RPC_GROW; type++) {
		for (uint32_t number = 0; number < 8; number++) {
			memset(message, 0, sizeof(message));
			message[0] = type;
			memcpy(message + 8, &number, sizeof(number));
			(void)rpc_handle(pool, &client, message, sizeof(message), &answer);
		}
	}
}

static void use(struct pool *pool, bool damaged)
{
	struct tarn_session *s = session_open(pool);
	struct tarn_item item = TARN_ITEM_INIT;
	char value[64];

	for (uint32_t key = 0; s && key < KEYS; key++) {
		int rc = tarn_get(s, &key, sizeof(key), value, sizeof(value), &item);

		if (!damaged &&
		    (rc < 0 || item.value_bytes != 16 || memcmp(value, "value of the key", 16)))
			abort();
		(void)tarn_put(s, &key, sizeof(key), "value of the key", 16, NULL, NULL);
	}
	session_free(s);
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++)
		if (pool->clients[slot].state == LAYOUT_CLIENT_LIVE)
			pool_client_end(pool, slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz *fuzz = begin();
	bool damaged = size >= 12;
	struct pool *pool = pool_open(fuzz, kept(fuzz, data, size));
	uint64_t now = clock_now_ns();
	int fd;

	if (!pool && !damaged)
		abort();
	if (!pool)
		return 0;
	for (unsigned i = 0; i < STEPS; i++)
		keeper_step(pool->keeper, now += 40000000);
	ask(pool);
	use(pool, damaged);
	fd = fcntl(pool->memory.fd, F_DUPFD_CLOEXEC, 0);
	pool_free(pool);
	pool = pool_open(fuzz, fd);
	if (!pool && !damaged)
		abort();
	pool_free(pool);
	return 0;
}
