/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * async-client.c - a client that checks itself, with many operations under way; for test-async.py
 *
 *	async-client URI ID OPERATIONS [lossy]
 *
 * Each key of its own has at most one operation at a time, so it knows what each must find. Besides: adds
 * to counters that other clients add to, puts to one key that are not waited for, cancels, batches. It
 * waits for completions by turns in tarn_session_wait() and at the session's descriptor. Prints "started",
 * then in the end what it has done as one JSON object. A wrong value or an unexpected error ends it with
 * exit code 1 and a line on standard error. lossy: its connection may break.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#define KEYS      400u
#define WINDOW    200u
#define COUNTERS  3u
#define VALUE_MAX 300000u
#define ABSENT    0u
#define UNKNOWN   UINT64_MAX

/* One that is under way; `key` is KEYS and more for those that are no key of its own. */
struct slot {
	bool busy, cancelled;
	uint64_t op, sequence; /* sequence: of the value that is put */
	uint32_t kind, key;
	char name[48];
	uint8_t *buffer;
	uint32_t bytes;
};

static struct tarn_session *session;
static struct slot slots[WINDOW];
static uint64_t known[KEYS]; /* sequence of the value that is there; ABSENT, UNKNOWN */
static bool key_busy[KEYS];
static uint64_t sequence, hot_sequence, operations, ended, ambiguous, cancelled, adds;
static uint32_t id, under_way, seed;
static bool lossy;

static uint32_t below(uint32_t limit)
{
	seed = seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)seed * limit >> 32);
}

static void fail(const struct slot *s, const char *text, int status)
{
	fprintf(stderr, "client %" PRIu32 ": kind %" PRIu32 " of %s: %s (%s)\n", id, s->kind,
		s->name, text, tarn_error_name(status));
	exit(1);
}

/* ---- values ---------------------------------------------------------------------------------- */

static uint32_t length_of(uint64_t value)
{
	uint32_t chance = (uint32_t)(value * 2654435761u >> 8) % 1000;

	return 8 + (chance < 10 ? chance * 25000u : chance < 100 ? chance * 60u : chance);
}

static uint32_t fill(uint8_t *bytes, uint64_t value)
{
	uint32_t length = length_of(value);

	memcpy(bytes, &value, 8);
	for (uint32_t i = 8; i < length; i++)
		bytes[i] = (uint8_t)(value * 31 + i * 7);
	return length;
}

static bool valid(const uint8_t *bytes, uint64_t length, uint64_t *ret_value)
{
	uint64_t value;

	if (length < 8)
		return false;
	memcpy(&value, bytes, 8);
	if (length != length_of(value))
		return false;
	for (uint32_t i = 8; i < length; i++)
		if (bytes[i] != (uint8_t)(value * 31 + i * 7))
			return false;
	*ret_value = value;
	return true;
}

/* ---- what has ended -------------------------------------------------------------------------- */

static void check_get(struct slot *s, const struct tarn_completion *c)
{
	uint64_t value;

	if (known[s->key] == UNKNOWN)
		return;
	if (c->status == -TARN_ENOTFOUND) {
		if (known[s->key] != ABSENT)
			fail(s, "it is gone", c->status);
		return;
	}
	if (known[s->key] == ABSENT)
		fail(s, "it is there, but was deleted", c->status);
	if (s->kind == TARN_OP_GET &&
	    (!valid(s->buffer, c->item.value_bytes, &value) || value != known[s->key]))
		fail(s, "not the last value", c->status);
	if (c->item.value_bytes != length_of(known[s->key]))
		fail(s, "not the last value's length", c->status);
}

/* Nothing was changed, or nobody knows. */
static bool excused(struct slot *s, int status)
{
	if (status == -TARN_ECANCELED && s->cancelled) {
		cancelled++;
		return true;
	}
	if (status == -TARN_EAMBIGUOUS && (lossy || s->cancelled)) {
		ambiguous++;
		if (s->key < KEYS)
			known[s->key] = UNKNOWN;
		return true;
	}
	return lossy && (status == -TARN_ESESSION || status == -TARN_ETIMEOUT);
}

static void done(void *cookie, const struct tarn_completion *c)
{
	struct slot *s = cookie;
	bool own = s->key < KEYS;

	if (!s->busy || c->op != s->op)
		fail(s, "a completion that nobody waits for", c->status);
	s->busy = false;
	under_way--;
	ended++;
	if (own)
		key_busy[s->key] = false;
	if (c->status < 0 && c->status != -TARN_ENOTFOUND) {
		if (!excused(s, c->status))
			fail(s, "unexpected", c->status);
		return;
	}
	if (s->kind == TARN_OP_ADD)
		adds++;
	if (!own)
		return;
	if (s->kind == TARN_OP_GET || s->kind == TARN_OP_EXISTS)
		check_get(s, c);
	else if (s->kind == TARN_OP_PUT)
		known[s->key] = s->sequence;
	else if (c->status == -TARN_ENOTFOUND && known[s->key] != ABSENT &&
		 known[s->key] != UNKNOWN)
		fail(s, "nothing to delete", c->status);
	else if (s->kind == TARN_OP_DELETE)
		known[s->key] = ABSENT;
}

/* ---- what begins ----------------------------------------------------------------------------- */

static void choose(struct slot *s)
{
	uint32_t chance = below(100);

	s->cancelled = false;
	s->key = below(KEYS);
	s->kind = chance < 40   ? TARN_OP_GET
		  : chance < 45 ? TARN_OP_EXISTS
		  : chance < 80 ? TARN_OP_PUT
				: TARN_OP_DELETE;
	if (chance >= 90 || key_busy[s->key]) {
		s->key = KEYS + below(COUNTERS);
		s->kind = chance < 95 ? TARN_OP_ADD : TARN_OP_PUT;
	}
	if (s->key < KEYS)
		snprintf(s->name, sizeof(s->name), "own/%" PRIu32 "/%" PRIu32, id, s->key);
	else if (s->kind == TARN_OP_ADD)
		snprintf(s->name, sizeof(s->name), "counter/%" PRIu32, s->key - KEYS);
	else
		snprintf(s->name, sizeof(s->name), "hot/%" PRIu32, id);
}

static int submit(struct slot *s)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	size_t bytes = strlen(s->name);

	async.done = done;
	async.cookie = s;
	switch (s->kind) {
	case TARN_OP_GET:
		return tarn_get_async(session, s->name, bytes, s->buffer, VALUE_MAX, &async,
				      &s->op);
	case TARN_OP_EXISTS:
		return tarn_exists_async(session, s->name, bytes, &async, &s->op);
	case TARN_OP_DELETE:
		return tarn_delete_async(session, s->name, bytes, &async, &s->op);
	case TARN_OP_ADD:
		return tarn_add_async(session, s->name, bytes, 1, &async, &s->op);
	default:
		s->sequence = ++sequence << 8 | id;
		if (s->key >= KEYS)
			hot_sequence = s->sequence;
		s->bytes = fill(s->buffer, s->sequence);
		return tarn_put_async(session, s->name, bytes, s->buffer, s->bytes, NULL, &async,
				      &s->op);
	}
}

static void begin(struct slot *s)
{
	int ret;

	choose(s);
	s->busy = true;
	if (s->key < KEYS)
		key_busy[s->key] = true;
	ret = submit(s);
	if (ret < 0)
		fail(s, tarn_last_error_text(), ret);
	under_way++;
	operations++;
}

/* Of one key nobody knows any more what it has: so it is said anew. */
static void settle_unknown(void)
{
	char name[48];

	for (uint32_t key = 0; key < KEYS; key++) {
		if (known[key] != UNKNOWN || key_busy[key])
			continue;
		snprintf(name, sizeof(name), "own/%" PRIu32 "/%" PRIu32, id, key);
		(void)!tarn_delete(session, name, strlen(name));
		if (tarn_exists(session, name, strlen(name), NULL) == -TARN_ENOTFOUND)
			known[key] = ABSENT;
	}
}

/* All keys of its own that nothing is under way for, at once. */
static void check_batch(void)
{
	static struct tarn_mget items[KEYS];
	static char names[KEYS][48];
	static uint32_t keys[KEYS];
	static uint8_t *buffer;
	uint32_t count = 0;
	int ret;

	if (!buffer)
		buffer = malloc((size_t)KEYS * VALUE_MAX);
	for (uint32_t key = 0; key < KEYS; key++) {
		if (key_busy[key] || known[key] == UNKNOWN)
			continue;
		snprintf(names[count], sizeof(names[count]), "own/%" PRIu32 "/%" PRIu32, id, key);
		keys[count] = key;
		items[count] = (struct tarn_mget){.key = names[count],
						  .key_bytes = strlen(names[count]),
						  .buffer = buffer + (size_t)count * VALUE_MAX,
						  .buffer_bytes = VALUE_MAX};
		count++;
	}
	ret = tarn_mget(session, items, count);
	if (ret < 0 && !lossy)
		fail(&slots[0], tarn_last_error_text(), ret);
	for (uint32_t i = 0; ret == 0 && i < count; i++) {
		struct slot s = {.kind = TARN_OP_GET, .key = keys[i], .buffer = items[i].buffer};
		struct tarn_completion c = {.status = items[i].status, .item = items[i].item};

		memcpy(s.name, names[i], sizeof(s.name));
		if (c.status == 0 || c.status == -TARN_ENOTFOUND)
			check_get(&s, &c);
		else if (!lossy)
			fail(&s, "in a batch", c.status);
	}
}

static void wait_some(void)
{
	struct pollfd fd = {.fd = tarn_session_fd(session), .events = POLLIN};

	if (operations / 1000 % 2)
		poll(&fd, 1, 1000);
	else
		tarn_session_wait(session, 1000);
	while (tarn_session_poll(session, NULL, 0, NULL) > 0)
		;
}

static void run(uint64_t limit)
{
	uint64_t batches = 0;

	while (operations < limit) {
		for (uint32_t i = 0; i < WINDOW && operations < limit; i++)
			if (!slots[i].busy)
				begin(&slots[i]);
		if (below(4) == 0) {
			struct slot *s = &slots[below(WINDOW)];

			if (s->busy && tarn_cancel(session, s->op) == 0)
				s->cancelled = true;
		}
		wait_some();
		if (operations / 2000 > batches) {
			batches = operations / 2000;
			check_batch();
			settle_unknown();
		}
	}
	while (under_way)
		wait_some();
	check_batch();
}

/* Of the puts that nobody waited for the last one is there, unless a cancel or a loss says otherwise. */
static void check_hot(void)
{
	uint8_t *buffer = malloc(VALUE_MAX);
	struct tarn_item item = TARN_ITEM_INIT;
	struct slot s = {.kind = TARN_OP_GET};
	uint64_t value;
	int ret;

	snprintf(s.name, sizeof(s.name), "hot/%" PRIu32, id);
	ret = tarn_get(session, s.name, strlen(s.name), buffer, VALUE_MAX, &item);
	if (hot_sequence && !cancelled && !ambiguous && !lossy &&
	    (ret < 0 || !valid(buffer, item.value_bytes, &value)))
		fail(&s, "the hot key", ret);
	free(buffer);
}

int main(int argc, char **argv)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	struct tarn_options options = TARN_OPTIONS_INIT;

	if (argc < 4)
		return 2;
	id = (uint32_t)atoi(argv[2]);
	seed = id * 7919 + 1;
	lossy = argc > 4;
	options.timeout_ms = 60000; /* of a machine that is busy with other work, too */
	for (uint32_t i = 0; i < WINDOW; i++)
		slots[i].buffer = malloc(VALUE_MAX);
	if (tarn_session_open(argv[1], &options, &session) < 0) {
		fprintf(stderr, "client %" PRIu32 ": %s\n", id, tarn_last_error_text());
		return 1;
	}
	puts("started");
	fflush(stdout);
	run(strtoull(argv[3], NULL, 10));
	check_hot();
	if (ended != operations)
		fail(&slots[0], "not as many completions as calls", 0);
	tarn_session_get_stats(session, &stats);
	tarn_session_close(session);
	printf("{\"operations\":%" PRIu64 ",\"adds\":%" PRIu64 ",\"ambiguous\":%" PRIu64
	       ",\"cancelled\":%" PRIu64 ",\"reconnects\":%" PRIu64 ",\"posts\":%" PRIu64 "}\n",
	       operations, adds, ambiguous, cancelled, stats.reconnects, stats.posts);
	for (uint32_t i = 0; i < WINDOW; i++)
		free(slots[i].buffer);
	return 0;
}
