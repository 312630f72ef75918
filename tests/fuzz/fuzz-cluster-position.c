/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-cluster-position.c - libFuzzer target: a walk over a cluster goes on from a position that an application has kept anywhere
 *
 * Two members in this process' memory. The input is the position; with its first bit set its head is made one of this cluster, so that
 * what is behind it is reached. It may be refused; else the walk ends, and shows keys that there are. No input: all of them, each once.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/fixture.h"

#include "clock.h"
#include "cluster-wire.h"
#include "cluster.h"
#include "shard.h"

#define POOL_BYTES (4ull << 20)
#define SHARDS     64u
#define NODES      2u
#define KEYS       100u
#define EPOCH      5u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct world {
	struct cluster_source source;
	struct fixture nodes[NODES];
	struct cluster_map map;
	struct cluster_member members[NODES];
	struct cluster_address addresses[NODES];
	uint16_t owners[SHARDS];
	uint64_t since[SHARDS], taken[SHARDS];
};

/* ---- the source ---- */

static struct world *world_of(struct cluster_source *source)
{
	return (struct world *)source; /* its first member */
}

static int source_seed(struct cluster_source *source, unsigned i, uint64_t timeout_ns,
		       struct tarn_session **ret_session)
{
	(void)timeout_ns;
	if (i >= NODES)
		return -ENOENT;
	*ret_session = fixture_session(&world_of(source)->nodes[i], TARN_NO_THREAD);
	return 0;
}

static int source_member(struct cluster_source *source, const struct cluster_map *map,
			 const struct cluster_member *member, uint64_t timeout_ns,
			 struct tarn_session **ret_session)
{
	(void)map;
	return source_seed(source, member->number - 1u, timeout_ns, ret_session);
}

static int source_ask(struct cluster_source *source, struct tarn_session *m, uint64_t timeout_ns,
		      struct cluster_answer *ret_answer)
{
	(void)source;
	(void)timeout_ns;
	*ret_answer = (struct cluster_answer){.epoch = EPOCH, .number = (uint16_t)m->geometry.boot_id};
	return 0;
}

/* As it comes from a member. */
static int source_fetch(struct cluster_source *source, struct tarn_session *m, uint64_t timeout_ns,
			struct cluster_map **ret_map)
{
	const struct cluster_map *map = &world_of(source)->map;
	size_t bytes = cluster_wire_bytes(map);
	void *buffer = malloc(bytes);

	(void)m;
	(void)timeout_ns;
	if (!buffer || cluster_wire_encode(map, buffer, bytes, &bytes) < 0 ||
	    cluster_wire_decode(buffer, bytes, ret_map) < 0)
		abort();
	free(buffer);
	return 0;
}

static uint64_t source_boottime(struct cluster_source *source)
{
	(void)source;
	return 1000000000000u;
}

static void source_free(struct cluster_source *source)
{
	(void)source;
}

/* ---- the cluster ---- */

static void make_map(struct world *w)
{
	w->map = (struct cluster_map){.cluster = "c1",
				      .pool = "main",
				      .seed = 42, /* fixture_plan()'s */
				      .epoch = EPOCH,
				      .shards = SHARDS,
				      .member_count = NODES,
				      .members = w->members,
				      .owners = w->owners,
				      .since = w->since,
				      .taken = w->taken};
	for (unsigned i = 0; i < NODES; i++) {
		strcpy(w->addresses[i].text, i ? "b" : "a");
		strcpy(w->members[i].name, w->addresses[i].text);
		w->members[i].number = (uint16_t)(i + 1);
		w->members[i].weight = 100;
		w->members[i].address_count = 1;
		w->members[i].addresses = &w->addresses[i];
	}
	for (unsigned i = 0; i < SHARDS; i++) {
		w->owners[i] = (uint16_t)(i % NODES);
		w->since[i] = EPOCH - i % 3;
	}
}

static void make(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->source = (struct cluster_source){.seed = source_seed,
					    .member = source_member,
					    .ask = source_ask,
					    .fetch = source_fetch,
					    .boottime = source_boottime,
					    .free = source_free};
	make_map(w);
	for (unsigned i = 0; i < NODES; i++) {
		struct layout_plan plan = fixture_plan(POOL_BYTES);
		struct fixture *f = &w->nodes[i];

		plan.shards = SHARDS;
		plan.map_bytes = 4096;
		plan.boot_id = i + 1;
		if (fixture_create(f, &plan) < 0)
			abort();
		for (uint32_t shard = i; shard < SHARDS; shard += NODES)
			*fixture_word(f, layout_shard_offset(&f->geometry, shard)) =
				shard_word_make(SHARD_OPEN, w->since[shard]);
	}
}

static struct tarn_session *open_cluster(struct world *w)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *s;

	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 5000;
	if (cluster_open(&w->source, &options, CLUSTER_BOUND_NS, &s) < 0)
		abort();
	for (uint32_t i = 0; i < KEYS; i++)
		if (tarn_put(s, &i, 4, "value", 5, NULL, NULL) < 0)
			abort();
	return s;
}

/* ---- the walk ---- */

/* All that can be told of a key is that there is one. */
static void walk(struct tarn_scan *scan, bool whole)
{
	struct tarn_item item = TARN_ITEM_INIT;
	unsigned seen[KEYS] = {0}, count = 0;
	const void *key;
	size_t key_bytes;
	int ret;

	while ((ret = tarn_scan_next(scan, &key, &key_bytes, &item)) == 1) {
		uint32_t number;

		if (key_bytes != 4 || ++count > 2 * KEYS)
			abort();
		memcpy(&number, key, 4);
		if (number >= KEYS || item.value_bytes != 5 || (++seen[number] > 1 && whole))
			abort();
	}
	if (whole && (ret != 0 || count != KEYS))
		abort();
}

/* The head of a position, cluster-scan.c: magic, number, zero, epoch, seed. */
static void make_known(uint8_t *position, size_t bytes)
{
	const uint32_t magic = 0x32534f50u;
	const uint64_t epoch = EPOCH - position[5] % 4u, seed = 42;
	const uint16_t number = position[4] % 4u, reserved = 0;

	if (bytes < 24)
		return;
	memcpy(position, &magic, 4);
	memcpy(position + 4, &number, 2);
	memcpy(position + 6, &reserved, 2);
	memcpy(position + 8, &epoch, 8);
	memcpy(position + 16, &seed, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *position = malloc(bytes + 24);
	struct tarn_scan *scan = NULL;
	struct tarn_session *s;
	struct world w;
	int ret;

	if (!position)
		abort();
	make(&w);
	s = open_cluster(&w);
	if (bytes)
		memcpy(position, data, bytes);
	if (bytes && data[0] & 1)
		make_known(position, bytes);
	ret = bytes ? tarn_scan_open_at(s, NULL, 0, position, bytes, &scan) : tarn_scan_open(s, NULL, 0, &scan);
	if (ret == 0) {
		(void)tarn_scan_progress(scan);
		walk(scan, bytes == 0);
		tarn_scan_close(scan);
	} else if (bytes == 0) {
		abort();
	}
	tarn_session_close(s);
	for (unsigned i = 0; i < NODES; i++)
		fixture_destroy(&w.nodes[i]);
	free(position);
	return 0;
}
