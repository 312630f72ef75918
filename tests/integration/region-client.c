/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of regions, for test-region.py: region-client URI MODE [ARGUMENT...]; prints what it has seen and exits with 0,
 * or says on stderr what was wrong and exits with 1.
 *
 *	calls                    every call of tarn/region.h, blocking and asynchronous, also with wrong arguments
 *	create NAME BYTES, destroy NAME, notify NAME
 *	opens NAME, word NAME N  by how many it is open; what stands in a word
 *	add NAME COUNT           adds 1 to word 0 COUNT times; prints how many did and how many are ambiguous
 *	work NAME PLACE          writes and checks the block number PLACE until the region is gone
 *	pong NAME ROUNDS SIDE    two of them, SIDE 0 and 1, wake each other by turns
 *	order NAME ROUNDS        a writer's order of write, write, cas, as a reader of another session sees it
 *	cross NAME ROUNDS        two write and then read what the other one writes: one at least sees it
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tarn/region.h>

#include "expect.h"

#define MIB (1u << 20)

static struct tarn_session *session_open(const char *uri)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *session;

	options.timeout_ms = 30000;
	GIVES(tarn_session_open(uri, &options, &session), 0);
	return session;
}

/* ---- calls ---- */

/* What is under way ends; the completions, in the order in which they came. */
static void pick_up(struct tarn_session *session, struct tarn_completion *list, size_t count)
{
	size_t have = 0;

	while (have < count) {
		size_t got = 0;

		GIVES(tarn_session_wait(session, 30000), 1);
		HOLDS(tarn_session_poll(session, list + have, count - have, &got) >= 0);
		have += got;
	}
}

static void check_making(struct tarn_session *s, struct tarn_session *other)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	struct tarn_region *region;
	uint64_t cursor = 0, id;

	GIVES(tarn_region_create(NULL, "a", MIB, 0), -EINVAL);
	GIVES(tarn_region_create(s, NULL, MIB, 0), -EINVAL);
	GIVES(tarn_region_create(s, "", MIB, 0), -EINVAL);
	GIVES(tarn_region_create(s, "a/b", MIB, 0), -EINVAL);
	GIVES(tarn_region_create(s, "a234567890123456789012345678901234567890", MIB, 0), -EINVAL);
	GIVES(tarn_region_create(s, "a", 0, 0), -EINVAL);
	GIVES(tarn_region_create(s, "a", TARN_REGION_BYTES_MAX + 1, 0), -EINVAL);
	GIVES(tarn_region_create(s, "a", MIB, 2), -EINVAL);
	GIVES(tarn_region_create(s, "a", 1ull << 39, 0), -TARN_EQUOTA);
	GIVES(tarn_region_stat(s, "a", &info), -TARN_ENOREGION);
	GIVES(tarn_region_open(s, "a", 0, &region), -TARN_ENOREGION);
	GIVES(tarn_region_destroy(s, "a"), -TARN_ENOREGION);
	GIVES(tarn_region_resize(s, "a", MIB, 0), -TARN_ENOREGION);
	GIVES(tarn_region_list(s, &cursor, &info), 0);
	GIVES(tarn_region_create(s, "a", MIB - 1, 0), 0);
	GIVES(tarn_region_create(other, "a", MIB, 0), -TARN_EEXISTS);
	GIVES(tarn_region_create(s, "b", 5000, TARN_REGION_BACKGROUND), 0);
	GIVES(tarn_region_open(other, "b", 0, &region), 0); /* waits for it */
	HOLDS(tarn_region_bytes(region) == 8192);
	GIVES(tarn_region_stat(s, "b", &info), 0);
	HOLDS(info.state == TARN_REGION_READY && info.opens == 1 && info.bytes == 8192);
	HOLDS(strcmp(info.name, "b") == 0);
	id = info.id;
	GIVES(tarn_region_list(s, &cursor, &info), 1);
	HOLDS(strcmp(info.name, "a") == 0 && info.bytes == MIB && info.id < id);
	GIVES(tarn_region_list(s, &cursor, &info), 1);
	HOLDS(strcmp(info.name, "b") == 0 && info.id == id && cursor == id);
	GIVES(tarn_region_list(s, &cursor, &info), 0);
	GIVES(tarn_region_resize(s, "b", MIB, 0), -TARN_EBUSY);
	GIVES(tarn_region_write(region, 8192 - 4, "tail", 4), 0);
	GIVES(tarn_region_close(region), 0);
	GIVES(tarn_region_close(NULL), 0);
	GIVES(tarn_region_resize(s, "b", MIB, 0), 0);
	GIVES(tarn_region_resize(s, "b", MIB, 0), 0);
	GIVES(tarn_region_open(s, "b", 0, &region), 0);
	HOLDS(tarn_region_bytes(region) == MIB);
	{
		char tail[8];

		GIVES(tarn_region_read(region, 8192 - 4, tail, sizeof(tail)), 0);
		HOLDS(memcmp(tail, "tail\0\0\0\0", 8) == 0);
	}
	GIVES(tarn_region_close(region), 0);
	GIVES(tarn_region_resize(s, "b", 4096, 0), 0);
	GIVES(tarn_region_destroy(s, "b"), 0);
}

static void check_access(struct tarn_region *region, struct tarn_region *reader)
{
	static uint8_t out[2 * MIB], in[2 * MIB];
	uint64_t before = 99, bytes = tarn_region_bytes(region);

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + i / 251);
	/* every size by its own, at odd places */
	for (size_t size = 0; size <= bytes; size = size ? size * 3 : 1) {
		uint64_t at = (bytes - size) / 3;

		GIVES(tarn_region_write(region, at, out, size), 0);
		GIVES(tarn_region_flush(region), 0);
		GIVES(tarn_region_read(reader, at, in, size), 0);
		HOLDS(memcmp(in, out, size) == 0);
	}
	GIVES(tarn_region_write(region, bytes, out, 0), 0);
	GIVES(tarn_region_write(region, bytes, out, 1), -EINVAL);
	GIVES(tarn_region_read(region, UINT64_MAX, in, 8), -EINVAL);
	GIVES(tarn_region_read(region, 8, in, SIZE_MAX), -EINVAL);
	GIVES(tarn_region_read(region, 0, NULL, 8), -EINVAL);
	GIVES(tarn_region_read(NULL, 0, in, 8), -EINVAL);
	GIVES(tarn_region_write(reader, 0, out, 8), -TARN_EREADONLY);
	GIVES(tarn_region_cas(reader, 0, 0, 0, NULL), -TARN_EREADONLY);
	GIVES(tarn_region_write_notify(reader, 0, out, 0), -TARN_EREADONLY);
	GIVES(tarn_region_faa(region, 4, 1, NULL), -EINVAL);
	GIVES(tarn_region_faa(region, bytes, 1, NULL), -EINVAL);
	memset(in, 0, 64);
	GIVES(tarn_region_write(region, 0, in, 64), 0);
	GIVES(tarn_region_cas(region, 8, 0, 7, &before), 0);
	HOLDS(before == 0);
	GIVES(tarn_region_cas(region, 8, 0, 8, &before), 0);
	HOLDS(before == 7);
	GIVES(tarn_region_faa(region, 8, (uint64_t)-3, &before), 0);
	HOLDS(before == 7);
	GIVES(tarn_region_faa(region, 8, 0, NULL), 0);
	GIVES(tarn_region_read(reader, 8, &before, 8), 0);
	HOLDS(before == 4);
}

#define LIST 200
static void check_batch(struct tarn_region *region)
{
	struct tarn_region_op ops[LIST] = {{.kind = 0}};
	uint64_t words[LIST];

	GIVES(tarn_region_batch(region, NULL, 1), -EINVAL);
	GIVES(tarn_region_batch(region, NULL, 0), 0);
	GIVES(tarn_region_batch(region, ops, 1), -EINVAL);
	/* write, add, read of the same word: in the order of the list */
	for (unsigned i = 0; i < LIST; i++) {
		words[i] = i;
		ops[i] = (struct tarn_region_op){
			.offset = i / 4 * 8, .buffer = &words[i], .bytes = 8};
		ops[i].kind = i % 4 == 0   ? TARN_REGION_WRITE
			      : i % 4 == 1 ? TARN_REGION_FAA
			      : i % 4 == 2 ? TARN_REGION_CAS
					   : TARN_REGION_READ;
		ops[i].operand = i % 4 == 1 ? 5 : 1000 + i;
		ops[i].compare = i - 2 + 5;
	}
	GIVES(tarn_region_batch(region, ops, LIST), 0);
	for (unsigned i = 0; i < LIST; i += 4) {
		HOLDS(ops[i + 1].before == i && ops[i + 2].before == i + 5);
		HOLDS(words[i + 3] == 1000 + i + 2);
	}
	/* none is made if one is wrong */
	words[0] = 1;
	ops[LIST - 1].offset = tarn_region_bytes(region);
	GIVES(tarn_region_batch(region, ops, LIST), -EINVAL);
	GIVES(tarn_region_read(region, 0, &words[1], 8), 0);
	HOLDS(words[1] == 1002);
}

static void check_async(struct tarn_session *s, struct tarn_region *region)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion c[4];
	struct tarn_region_op ops[2];
	uint64_t word = 41, read = 0, op;

	GIVES(tarn_region_read_async(NULL, 0, &word, 8, &async, NULL), -EINVAL);
	GIVES(tarn_region_read_async(region, UINT64_MAX - 3, &word, 8, &async, NULL), -EINVAL);
	GIVES(tarn_region_write_async(region, 0, &word, 8, &async, &op), 0);
	GIVES(tarn_region_close(region), -TARN_EBUSY);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0 && c[0].op == op && c[0].kind == TARN_OP_REGION);
	GIVES(tarn_region_faa_async(region, 0, 1, &async, NULL), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0 && c[0].value == 41);
	GIVES(tarn_region_cas_async(region, 0, 42, 43, &async, NULL), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0 && c[0].value == 42);
	GIVES(tarn_region_flush_async(region, &async, NULL), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0);
	GIVES(tarn_region_read_async(region, 0, &read, 8, &async, NULL), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0 && read == 43);
	ops[0] = (struct tarn_region_op){.kind = TARN_REGION_FAA, .operand = 1};
	ops[1] = (struct tarn_region_op){.kind = TARN_REGION_READ, .buffer = &read, .bytes = 8};
	GIVES(tarn_region_batch_async(region, ops, 2, &async, NULL), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0 && read == 44 && ops[0].before == 43);
	GIVES(tarn_region_write_notify_async(region, 0, &word, 8, &async, NULL), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0);
}

static void check_many(struct tarn_session *s, struct tarn_region *region)
{
	static struct tarn_completion c[TARN_ASYNC_MAX];
	static uint64_t words[TARN_ASYNC_MAX];
	struct tarn_async async = TARN_ASYNC_INIT;

	for (unsigned i = 0; i < 1000; i++)
		GIVES(tarn_region_faa_async(region, 64, 1, &async, NULL), 0);
	for (unsigned i = 0; i < 1000; i++)
		GIVES(tarn_region_read_async(region, i * 8, &words[i], 8, &async, NULL), 0);
	pick_up(s, c, 2000);
	for (unsigned i = 0; i < 2000; i++)
		HOLDS(c[i].status == 0);
}

/* As many waits as there may be hold nothing else up. */
static void check_waits_aside(struct tarn_session *s, struct tarn_region *waiter,
			      struct tarn_region *notifier, uint64_t sequence)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion c[64];
	uint64_t word, op;

	for (unsigned i = 0; i < 64; i++)
		GIVES(tarn_region_wait_async(waiter, sequence, &async, NULL), 0);
	GIVES(tarn_region_wait_async(waiter, sequence, &async, NULL), -TARN_EBUSY);
	GIVES(tarn_region_read_async(waiter, 0, &word, 8, &async, &op), 0);
	pick_up(s, c, 1);
	HOLDS(c[0].status == 0 && c[0].op == op);
	GIVES(tarn_region_write_notify(notifier, 0, NULL, 0), 0);
	pick_up(s, c, 64);
	for (unsigned i = 0; i < 64; i++)
		HOLDS(c[i].status == 0 && c[i].value == (int64_t)sequence + 1);
}

/* The waiter's session and region, and those of who notifies. */
static void check_notices(struct tarn_session *s, struct tarn_region *waiter,
			  struct tarn_region *notifier)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion c;
	uint64_t sequence = 0, first, word = 5, read, op;

	while (tarn_region_wait(waiter, &sequence, 0) == 1)
		;
	GIVES(tarn_region_wait(waiter, &sequence, 50), 0);
	GIVES(tarn_region_wait(NULL, &sequence, 0), -EINVAL);
	GIVES(tarn_region_wait(waiter, NULL, 0), -EINVAL);
	first = sequence;
	GIVES(tarn_region_write_notify(notifier, 128, &word, 8), 0);
	GIVES(tarn_region_wait(waiter, &sequence, 5000), 1);
	HOLDS(sequence == first + 1);
	GIVES(tarn_region_read(waiter, 128, &read, 8), 0);
	HOLDS(read == 5);
	/* one that waits already, and one that is called off */
	GIVES(tarn_region_wait_async(waiter, sequence, &async, NULL), 0);
	GIVES(tarn_session_wait(s, 50), 0);
	GIVES(tarn_region_write_notify(notifier, 0, NULL, 0), 0);
	pick_up(s, &c, 1);
	HOLDS(c.status == 0 && c.kind == TARN_OP_REGION_WAIT && c.value == (int64_t)first + 2);
	GIVES(tarn_region_wait_async(waiter, first + 2, &async, &op), 0);
	GIVES(tarn_session_wait(s, 50), 0);
	GIVES(tarn_cancel(s, op), 0);
	pick_up(s, &c, 1);
	HOLDS(c.status == -TARN_ECANCELED);
	async.timeout_ms = 50;
	GIVES(tarn_region_wait_async(waiter, first + 2, &async, NULL), 0);
	pick_up(s, &c, 1);
	HOLDS(c.status == -TARN_ETIMEOUT);
	check_waits_aside(s, waiter, notifier, first + 2);
}

static void check_many_open(struct tarn_session *s)
{
	struct tarn_region *regions[TARN_REGION_OPEN_MAX], *more;

	for (unsigned i = 0; i < TARN_REGION_OPEN_MAX; i++)
		GIVES(tarn_region_open(s, "a", i % 2, &regions[i]), 0);
	GIVES(tarn_region_open(s, "a", 0, &more), -ENOSPC);
	for (unsigned i = 0; i < TARN_REGION_OPEN_MAX; i++)
		GIVES(tarn_region_close(regions[i]), 0);
}

/* Picks up one by the descriptor alone, as an event loop does. */
static int by_descriptor(struct tarn_session *s)
{
	struct pollfd p = {.fd = tarn_session_fd(s), .events = POLLIN};
	struct tarn_completion c;
	size_t count = 0;

	HOLDS(p.fd >= 0);
	for (;;) {
		HOLDS(tarn_session_poll(s, &c, 1, &count) >= 0);
		if (count)
			break;
		HOLDS(poll(&p, 1, 30000) == 1);
	}
	HOLDS(c.kind == TARN_OP_REGION_CONTROL);
	return c.status;
}

/* Cancelled at once: it has or it has not been done, or begun, and nothing is left open. */
static void check_control_cancel(struct tarn_session *s)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	struct tarn_region *region = NULL;
	uint64_t op;
	int status;

	GIVES(tarn_region_open_async(s, "a", 0, &region, NULL, &op), 0);
	HOLDS(tarn_session_poll(s, NULL, 0, NULL) == 0);
	HOLDS(tarn_cancel(s, op) == 0 || region);
	status = by_descriptor(s);
	HOLDS(status == 0 || status == -TARN_ECANCELED);
	HOLDS((status == 0) == (region != NULL));
	GIVES(tarn_region_close(region), 0);
	GIVES(tarn_region_stat(s, "a", &info), 0);
	HOLDS(info.opens == 0);
	GIVES(tarn_region_create_async(s, "cut", MIB, 0, NULL, &op), 0);
	HOLDS(tarn_cancel(s, op) <= 0);
	status = by_descriptor(s);
	HOLDS(status == 0 || status == -TARN_ECANCELED || status == -TARN_ETIMEOUT);
	if (status == -TARN_ECANCELED)
		GIVES(tarn_region_stat(s, "cut", &info), -TARN_ENOREGION);
	else
		GIVES(tarn_region_destroy(s, "cut"), 0);
}

static void check_control_async(struct tarn_session *s)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	struct tarn_region *regions[8];
	struct tarn_async async = TARN_ASYNC_INIT;
	uint64_t cursor = 0, word;
	int status;

	GIVES(tarn_region_create_async(s, "a", 3 * MIB, 0, NULL, NULL), 0);
	GIVES(by_descriptor(s), 0);
	GIVES(tarn_region_create_async(s, "a", MIB, 0, NULL, NULL), 0);
	GIVES(by_descriptor(s), -TARN_EEXISTS);
	GIVES(tarn_region_resize_async(s, "a", MIB, 0, NULL, NULL), 0);
	GIVES(by_descriptor(s), 0);
	GIVES(tarn_region_create_async(s, "b", 1, TARN_REGION_BACKGROUND, NULL, NULL), 0);
	GIVES(by_descriptor(s), 0);
	GIVES(tarn_region_stat_async(s, "a", &info, NULL, NULL), 0);
	GIVES(by_descriptor(s), 0);
	HOLDS(info.bytes == MIB && info.state == TARN_REGION_READY && !strcmp(info.name, "a"));
	GIVES(tarn_region_list_async(s, &cursor, &info, NULL, NULL), 0);
	GIVES(by_descriptor(s), 1);
	HOLDS(!strcmp(info.name, "a") && cursor == info.id);
	GIVES(tarn_region_list_async(s, &cursor, &info, NULL, NULL), 0);
	GIVES(by_descriptor(s), 1);
	HOLDS(!strcmp(info.name, "b"));
	GIVES(tarn_region_list_async(s, &cursor, &info, NULL, NULL), 0);
	GIVES(by_descriptor(s), 0);
	/* several at a time, each a region of its own */
	for (unsigned i = 0; i < 8; i++)
		GIVES(tarn_region_open_async(s, "a", 0, &regions[i], NULL, NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		GIVES(by_descriptor(s), 0);
	for (uint64_t i = 0; i < 8; i++)
		GIVES(tarn_region_write(regions[i], i * 8, &i, 8), 0);
	for (uint64_t i = 0; i < 8; i++) {
		GIVES(tarn_region_read(regions[7 - i], i * 8, &word, 8), 0);
		HOLDS(word == i);
	}
	GIVES(tarn_region_resize_async(s, "a", 2 * MIB, 0, NULL, NULL), 0);
	GIVES(by_descriptor(s), -TARN_EBUSY);
	for (unsigned i = 0; i < 8; i++)
		GIVES(tarn_region_close(regions[i]), 0);
	check_control_cancel(s);
	/* its time is short: it goes on, or was not begun */
	async.timeout_ms = 1;
	GIVES(tarn_region_create_async(s, "large", 32 * MIB, 0, &async, NULL), 0);
	status = by_descriptor(s);
	HOLDS(status == 0 || status == -TARN_ETIMEOUT);
	for (unsigned i = 0; i < 2; i++) {
		GIVES(tarn_region_destroy_async(s, i ? "b" : "a", NULL, NULL), 0);
		GIVES(by_descriptor(s), 0);
		GIVES(tarn_region_stat(s, i ? "b" : "a", &info), -TARN_ENOREGION);
	}
	GIVES(tarn_region_destroy_async(s, "a", NULL, NULL), 0);
	GIVES(by_descriptor(s), -TARN_ENOREGION);
	status = tarn_region_destroy(s, "large");
	HOLDS(status == 0 || status == -TARN_ENOREGION);
}

static void calls(const char *uri)
{
	struct tarn_session *s = session_open(uri), *other = session_open(uri);
	struct tarn_region_info info = {.size = sizeof(info)};
	struct tarn_region *region, *reader;
	uint64_t word;

	check_control_async(s);
	check_making(s, other);
	check_many_open(s);
	GIVES(tarn_region_open(s, "a", 2, &region), -EINVAL);
	GIVES(tarn_region_open(s, "a", 0, &region), 0);
	GIVES(tarn_region_open(other, "a", TARN_REGION_READONLY, &reader), 0);
	check_access(region, reader);
	check_batch(region);
	check_async(s, region);
	check_many(s, region);
	check_notices(other, reader, region);
	GIVES(tarn_region_destroy(s, "a"), 0);
	GIVES(tarn_region_read(reader, 0, &word, 8), -TARN_ENOREGION);
	GIVES(tarn_region_read(region, 0, &word, 8), -TARN_ENOREGION);
	GIVES(tarn_region_write(region, 0, &word, 8), -TARN_ENOREGION);
	/* one of the same name is another one */
	GIVES(tarn_region_create(s, "a", MIB, 0), 0);
	GIVES(tarn_region_read(reader, 0, &word, 8), -TARN_ENOREGION);
	GIVES(tarn_region_close(reader), 0);
	GIVES(tarn_region_open(other, "a", 0, &reader), 0);
	GIVES(tarn_region_read(reader, 8, &word, 8), 0);
	HOLDS(word == 0);
	/* what is still open goes with the session */
	tarn_session_close(other);
	GIVES(tarn_region_close(region), 0);
	GIVES(tarn_region_destroy(s, "a"), 0);
	tarn_session_close(s);
}

/* ---- one thing ---- */

static void create(const char *uri, const char *name, uint64_t bytes)
{
	struct tarn_session *s = session_open(uri);

	GIVES(tarn_region_create(s, name, bytes, 0), 0);
	tarn_session_close(s);
}

static void destroy(const char *uri, const char *name)
{
	struct tarn_session *s = session_open(uri);

	GIVES(tarn_region_destroy(s, name), 0);
	tarn_session_close(s);
}

static void notify(const char *uri, const char *name)
{
	struct tarn_session *s = session_open(uri);
	struct tarn_region *region;

	GIVES(tarn_region_open(s, name, 0, &region), 0);
	GIVES(tarn_region_write_notify(region, 0, NULL, 0), 0);
	tarn_session_close(s);
}

static void opens(const char *uri, const char *name)
{
	struct tarn_region_info info = {.size = sizeof(info)};
	struct tarn_session *s = session_open(uri);

	GIVES(tarn_region_stat(s, name, &info), 0);
	printf("%u\n", info.opens);
	tarn_session_close(s);
}

static void word(const char *uri, const char *name, uint64_t number)
{
	struct tarn_session *s = session_open(uri);
	struct tarn_region *region;
	uint64_t value;

	GIVES(tarn_region_open(s, name, TARN_REGION_READONLY, &region), 0);
	GIVES(tarn_region_read(region, number * 8, &value, 8), 0);
	printf("%" PRIu64 "\n", value);
	tarn_session_close(s);
}

/* ---- several processes ---- */

static void add(const char *uri, const char *name, unsigned long count)
{
	struct tarn_session *s = session_open(uri);
	unsigned long done = 0, ambiguous = 0;
	struct tarn_region *region;

	GIVES(tarn_region_open(s, name, 0, &region), 0);
	for (unsigned long i = 0; i < count; i++) {
		int ret = tarn_region_faa(region, 0, 1, NULL);

		done += ret == 0;
		ambiguous += ret == -TARN_EAMBIGUOUS;
		if (ret != 0 && ret != -TARN_EAMBIGUOUS)
			errx(1, "add: %d: %s", ret, tarn_last_error_text());
	}
	printf("%lu %lu\n", done, ambiguous);
	tarn_session_close(s);
}

#define BLOCK 8192u
/* Each process has a block of its own: what is read is what was written last, or the region is gone. */
static void work(const char *uri, const char *name, uint64_t place)
{
	struct tarn_session *s = session_open(uri);
	uint64_t mine = 4096 + place * BLOCK, round = 0, known = 0;
	static uint64_t out[BLOCK / 8], in[BLOCK / 8];
	struct tarn_region *region;
	int ret;

	GIVES(tarn_region_open(s, name, 0, &region), 0);
	printf("started\n");
	fflush(stdout);
	for (;; round++) {
		for (unsigned i = 0; i < BLOCK / 8; i++)
			out[i] = round << 16 | i;
		ret = tarn_region_write(region, mine, out, BLOCK);
		if (ret == 0)
			known = round;
		else if (ret != -TARN_EAMBIGUOUS)
			break;
		ret = tarn_region_read(region, mine, in, BLOCK);
		if (ret < 0)
			break;
		/* a write that is ambiguous may be there, or not, or in part */
		for (unsigned i = 0; i < BLOCK / 8; i++)
			if (in[i] != (known << 16 | i) &&
			    (known == round || in[i] != (round << 16 | i)))
				errx(1, "round %" PRIu64 ": word %u is 0x%" PRIx64, round, i,
				     in[i]);
	}
	if (ret != -TARN_ENOREGION)
		errx(1, "ended with %s: %s", tarn_error_name(ret), tarn_last_error_text());
	printf("%" PRIu64 " rounds\n", round);
	tarn_session_close(s);
}

/* Word `side` is this side's number; the other side answers it. */
static void pong(const char *uri, const char *name, uint64_t rounds, unsigned side)
{
	struct tarn_session *s = session_open(uri);
	struct tarn_region *region;
	uint64_t sequence = 0, seen;

	GIVES(tarn_region_open(s, name, 0, &region), 0);
	for (uint64_t round = 1; round <= rounds; round++) {
		if (side == 0)
			GIVES(tarn_region_write_notify(region, 0, &round, 8), 0);
		for (;;) {
			GIVES(tarn_region_read(region, side ? 0 : 8, &seen, 8), 0);
			if (seen == round)
				break;
			GIVES(tarn_region_wait(region, &sequence, 30000), 1);
		}
		if (side == 1)
			GIVES(tarn_region_write_notify(region, 8, &round, 8), 0);
	}
	tarn_session_close(s);
}

/*
 * tarn/region.h, "Order": who sees what the CAS did sees what was written before it; and of two writes the later
 * one is never seen without the earlier one, by who reads them one after the other in the other order.
 */
static void order(const char *uri, const char *name, uint64_t rounds)
{
	struct tarn_session *writer = session_open(uri), *reader = session_open(uri);
	struct tarn_region *out, *in;
	uint64_t far = 0, first, flag;

	GIVES(tarn_region_open(writer, name, 0, &out), 0);
	GIVES(tarn_region_open(reader, name, 0, &in), 0);
	for (uint64_t round = 1; round <= rounds; round++) {
		struct tarn_async async = TARN_ASYNC_INIT;
		struct tarn_completion c;
		struct tarn_region_op ops[] = {
			{.kind = TARN_REGION_WRITE, .offset = 65536, .buffer = &round, .bytes = 8},
			{.kind = TARN_REGION_WRITE, .offset = 64, .buffer = &round, .bytes = 8},
			{.kind = TARN_REGION_CAS, .compare = round - 1, .operand = round},
		};

		GIVES(tarn_region_batch_async(out, ops, 3, &async, NULL), 0);
		do {
			tarn_session_poll(writer, NULL, 0, NULL);
			GIVES(tarn_region_read(in, 0, &flag, 8), 0);
			GIVES(tarn_region_read(in, 64, &first, 8), 0);
			GIVES(tarn_region_read(in, 65536, &far, 8), 0);
			HOLDS(first >= flag && far >= first);
		} while (flag < round);
		pick_up(writer, &c, 1);
		HOLDS(c.status == 0 && ops[2].before == round - 1);
	}
	tarn_session_close(writer);
	tarn_session_close(reader);
}

struct crossing {
	const char *uri, *name;
	uint64_t rounds, side;
	uint64_t *found;
	_Atomic uint64_t *begun; /* of both sides: the round */
};

static void *cross_run(void *arg)
{
	const struct crossing *c = arg;
	struct tarn_session *session = session_open(c->uri);
	struct tarn_region *region;

	GIVES(tarn_region_open(session, c->name, 0, &region), 0);
	for (uint64_t round = 1; round <= c->rounds; round++) {
		uint64_t at = round % 32 * 128, spins = 0;
		struct tarn_region_op ops[] = {
			{.kind = TARN_REGION_WRITE, .offset = c->side * 4096 + at, .buffer = &round, .bytes = 8},
			{.kind = TARN_REGION_READ,
			 .offset = !c->side * 4096 + at,
			 .buffer = &c->found[round - 1],
			 .bytes = 8},
		};

		atomic_store(&c->begun[c->side], round);
		while (atomic_load(&c->begun[!c->side]) < round)
			if (++spins > 10000)
				sched_yield();
		GIVES(tarn_region_batch(region, ops, 2), 0);
	}
	tarn_session_close(session);
	return NULL;
}

/* A list is in order: who has not seen the other one's write has written before the other one reads. */
static void cross(const char *uri, const char *name, uint64_t rounds)
{
	_Atomic uint64_t begun[2] = {0, 0};
	struct crossing sides[2];
	pthread_t threads[2];

	for (uint64_t i = 0; i < 2; i++) {
		sides[i] = (struct crossing){uri, name, rounds, i, calloc(rounds, 8), begun};
		HOLDS(sides[i].found && pthread_create(&threads[i], NULL, cross_run, &sides[i]) == 0);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (uint64_t i = 0; i < rounds; i++)
		HOLDS(sides[0].found[i] == i + 1 || sides[1].found[i] == i + 1);
	free(sides[0].found);
	free(sides[1].found);
}

int main(int argc, char **argv)
{
	const char *uri = argc > 1 ? argv[1] : "", *mode = argc > 2 ? argv[2] : "",
		   *name = argc > 3 ? argv[3] : "";
	uint64_t number = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;

	if (argc == 3 && strcmp(mode, "calls") == 0)
		calls(uri);
	else if (argc == 5 && strcmp(mode, "create") == 0)
		create(uri, name, number);
	else if (argc == 4 && strcmp(mode, "destroy") == 0)
		destroy(uri, name);
	else if (argc == 4 && strcmp(mode, "notify") == 0)
		notify(uri, name);
	else if (argc == 4 && strcmp(mode, "opens") == 0)
		opens(uri, name);
	else if (argc == 5 && strcmp(mode, "word") == 0)
		word(uri, name, number);
	else if (argc == 5 && strcmp(mode, "add") == 0)
		add(uri, name, number);
	else if (argc == 5 && strcmp(mode, "work") == 0)
		work(uri, name, number);
	else if (argc == 6 && strcmp(mode, "pong") == 0)
		pong(uri, name, number, (unsigned)strtoul(argv[5], NULL, 10));
	else if (argc == 5 && strcmp(mode, "order") == 0)
		order(uri, name, number);
	else if (argc == 5 && strcmp(mode, "cross") == 0)
		cross(uri, name, number);
	else
		errx(2, "usage: region-client URI MODE [ARGUMENT...]: the file's head says which");
	return 0;
}
