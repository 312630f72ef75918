/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-pool.c - libFuzzer target: a client that faces a pool full of garbage
 *
 * A small pool with some keys is damaged as the input says (8 bytes of data each: where, and what
 * is put there), then every operation is tried. The client may report errors; it must not crash,
 * hang, or read outside of the pool, which fabric-shm.c and the address sanitizer see to. Input
 * that damages nothing must leave every value right.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/fixture.h"

#define POOL_BYTES (2ull << 20)
#define KEYS       24u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A clock that runs by being looked at: retries up to the time limit take no time. */
static uint64_t fast_now(struct fabric_endpoint *ep)
{
	static uint64_t now = 1000000000;

	(void)ep;
	return now += 20000;
}

static struct tarn_session *fast_session(struct fixture *f)
{
	static struct fabric_ops ops;
	struct tarn_session *s = fixture_session(f, TARN_NO_THREAD);

	ops = *s->ep->ops;
	ops.now = fast_now;
	s->ep->ops = &ops;
	/* 25,000 looks at the clock: many calls may each need all of it */
	s->timeout_ns = 500000000;
	return s;
}

static void fill(struct tarn_session *s)
{
	static uint8_t large[300000];
	uint32_t i;

	for (i = 0; i < KEYS; i++)
		if (tarn_put(s, &i, 4, "value of the key", 16, NULL, NULL) < 0)
			abort();
	if (tarn_put(s, "large", 5, large, sizeof(large), NULL, NULL) < 0 ||
	    tarn_add(s, "counter", 7, 1, NULL) < 0)
		abort();
}

/*
 * 12 bytes of input: 4 say where, 8 what. Places worth damaging come first: index, page table,
 * rings, superblock's live words, then anything.
 */
static void damage(struct fixture *f, const uint8_t *data, size_t bytes)
{
	const struct layout_geometry *g = &f->geometry;
	const uint64_t begins[] = {layout_page_offset(g, 0), g->page_table_offset,
				   g->ready_rings_offset,    g->directory_offset,
				   LAYOUT_EPOCH_OFFSET,      layout_page_offset(g, 1),
				   g->free_map_offset,       0};
	const uint64_t lengths[] = {g->groups * LAYOUT_GROUP_BYTES,
				    8ull * g->npages,
				    4096,
				    8,
				    128,
				    LAYOUT_PAGE_BYTES,
				    4096,
				    f->bytes};

	for (; bytes >= 12; data += 12, bytes -= 12) {
		uint64_t value, at;
		uint32_t where;

		memcpy(&where, data, 4);
		memcpy(&value, data + 4, 8);
		at = begins[where % 8] + (where / 8 * 8ull) % lengths[where % 8];
		if (at + 8 <= f->bytes)
			memcpy((uint8_t *)f->base + at / 8 * 8, &value, 8);
	}
}

/* A batch: its gets go through near.c and group.c, first by the index, then by the location cache. */
static void get_many(struct tarn_session *s, bool damaged)
{
	static const char *const others[] = {"large", "counter", "absent"};
	static uint8_t buffers[KEYS + 3][64];
	struct tarn_mget gets[KEYS + 3];
	uint32_t numbers[KEYS];

	for (unsigned i = 0; i < KEYS + 3; i++) {
		const char *other = i < KEYS ? NULL : others[i - KEYS];

		if (!other)
			numbers[i] = i;
		gets[i] = (struct tarn_mget){.key = other ? (const void *)other : &numbers[i],
					     .key_bytes = other ? strlen(other) : 4,
					     .buffer = buffers[i],
					     .buffer_bytes = i % 5 == 4 ? i : sizeof(buffers[i]),
					     .status = 1};
	}
	if (tarn_mget(s, gets, KEYS + 3) < 0 && !damaged)
		abort();
	for (unsigned i = 0; i < KEYS + 3; i++) {
		bool small = gets[i].buffer_bytes < 16;

		if (gets[i].status > 0)
			abort();
		if (!damaged && i < KEYS &&
		    (gets[i].status != (small ? -TARN_ETOOSMALL : 0) || gets[i].item.value_bytes != 16 ||
		     (!small && memcmp(buffers[i], "value of the key", 16))))
			abort();
	}
	if (!damaged &&
	    (gets[KEYS].status != -TARN_ETOOSMALL || gets[KEYS + 1].status != 0 || gets[KEYS + 2].status != -TARN_ENOTFOUND))
		abort();
}

static void use(struct tarn_session *s, bool damaged)
{
	static uint8_t buffer[1u << 20];
	struct tarn_item item = TARN_ITEM_INIT;
	struct tarn_scan *scan;
	const void *key;
	size_t key_bytes;
	uint32_t i, steps = 0;
	int ret;

	get_many(s, damaged);
	get_many(s, damaged);
	for (i = 0; i < KEYS; i++) {
		ret = tarn_get(s, &i, 4, buffer, sizeof(buffer), &item);
		if (!damaged &&
		    (ret < 0 || item.value_bytes != 16 || memcmp(buffer, "value of the key", 16)))
			abort();
		ret = i % 3 ? tarn_put(s, &i, 4, buffer, i, NULL, NULL) : tarn_delete(s, &i, 4);
	}
	ret = tarn_get(s, "large", 5, buffer, sizeof(buffer), &item);
	ret = tarn_put(s, "large", 5, buffer, 280000, NULL, NULL);
	ret = tarn_add(s, "counter", 7, 1, NULL);
	ret = tarn_put(s, "new", 3, "x", 1, NULL, NULL);
	if (tarn_scan_open(s, NULL, 0, &scan) < 0)
		abort();
	while (((ret = tarn_scan_next(scan, &key, &key_bytes, &item)) > 0 ||
		ret == -TARN_ECORRUPT) &&
	       steps++ < 1000)
		;
	tarn_scan_close(scan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct layout_plan plan = fixture_plan(POOL_BYTES);
	struct tarn_session *writer, *s;
	struct fixture f;

	plan.groups = 4;
	plan.keys = 1;
	if (fixture_create(&f, &plan) < 0)
		abort();
	writer = fast_session(&f);
	s = fast_session(&f);
	if (bytes % 2)
		s->ep->features |= FABRIC_COUNTER_FAA;
	fill(writer);
	damage(&f, data, bytes);
	use(s, bytes >= 12);
	use(writer, true);
	session_free(s);
	session_free(writer);
	fixture_destroy(&f);
	return 0;
}
