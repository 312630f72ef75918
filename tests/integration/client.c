/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client.c - a client that checks itself, for test-clients.py
 *
 *	client URI ID OPERATIONS [no-adds] [until-error | outlive [kept]]
 *
 * Does random operations on keys of its own, whose value it knows, and on keys that other clients
 * write, too; each value says who wrote it and is checked as a whole. Prints "started", then in the
 * end what it has done as one JSON object. A wrong value or an unexpected error ends it with exit
 * code 1 and a line on standard error. until-error: it goes on until a call fails, and says how
 * that and the calls after it failed. outlive: it goes on until its standard input ends, whatever
 * becomes of the daemon, and says how often what happened; kept: the pool outlives the daemon, and all
 * values with it.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "clock.h"

#define OWN_KEYS    60u
#define SHARED_KEYS 20u
#define COUNTERS    4u
#define ONCE_KEYS   200u
#define VALUE_MAX   (1u << 20)
#define PATTERN     251u /* a prime: torn values do not fit together by chance */
#define MAGIC       0x74736554u
#define DELETED     UINT64_MAX
#define UNKNOWN     (UINT64_MAX - 1) /* ambiguous, or perhaps of an earlier pool */

struct header {
	uint32_t magic, id;
	uint64_t sequence;
	uint32_t length, key;
};

struct client {
	struct tarn_session *session;
	uint32_t id;
	unsigned int seed;
	bool no_adds, until_error, outlive, kept;
	uint64_t reconnects; /* as last seen */
	uint64_t ambiguous, not_connected, longest_ms;
	uint64_t sequence;            /* of the last value written */
	uint64_t own[OWN_KEYS];       /* sequence of the value that must be there, or DELETED */
	uint64_t shared[SHARED_KEYS]; /* the last one put */
	int64_t adds[COUNTERS];
	uint64_t swaps; /* put-if-stamp that took effect */
	uint64_t operations;
	json_t *once; /* what this client was the first to put */
	unsigned char *value;
	const char *what; /* the call that is on its way */
	char key[64];
};

static uint32_t below(struct client *c, uint32_t limit)
{
	return ((uint32_t)rand_r(&c->seed) << 8 ^ (uint32_t)rand_r(&c->seed)) % limit;
}

/* Mostly small; some large ones, which are stored in pieces. */
static uint32_t random_length(struct client *c)
{
	uint32_t kind = below(c, 200), header = sizeof(struct header);

	if (kind == 0)
		return header + below(c, VALUE_MAX - header);
	return header + below(c, kind < 20 ? 60000 : 500);
}

static uint32_t pattern_begin(const struct header *header)
{
	return (uint32_t)((header->sequence * 7 + header->id * 31 + header->key) % PATTERN);
}

static uint32_t make_value(struct client *c, uint32_t key)
{
	struct header header = {MAGIC, c->id, ++c->sequence, random_length(c), key};
	uint32_t byte = pattern_begin(&header);

	memcpy(c->value, &header, sizeof(header));
	for (uint32_t i = sizeof(header); i < header.length; i++) {
		c->value[i] = (unsigned char)byte;
		byte = byte + 1 < PATTERN ? byte + 1 : 0;
	}
	return header.length;
}

/* What is wrong with a value that was read, or NULL. */
static const char *check_value(const unsigned char *value, uint64_t n, uint32_t key,
			       struct header *ret_header)
{
	struct header header;
	uint32_t byte;

	if (n < sizeof(header))
		return "too short";
	memcpy(&header, value, sizeof(header));
	if (header.magic != MAGIC || header.length != n || header.key != key)
		return "not the header of this key's value";
	byte = pattern_begin(&header);
	for (uint32_t i = sizeof(header); i < header.length; i++) {
		if (value[i] != byte)
			return "torn or of another value";
		byte = byte + 1 < PATTERN ? byte + 1 : 0;
	}
	*ret_header = header;
	return NULL;
}

static int wrong(const struct client *c, const char *text)
{
	fprintf(stderr, "client %" PRIu32 ": %s %s: %s\n", c->id, c->what, c->key, text);
	exit(1);
}

static void name_key(struct client *c, const char *what, const char *kind, uint32_t number)
{
	c->what = what;
	if (strcmp(kind, "own") == 0)
		snprintf(c->key, sizeof(c->key), "own/%" PRIu32 "/%" PRIu32, c->id, number);
	else
		snprintf(c->key, sizeof(c->key), "%s/%" PRIu32, kind, number);
}

/* ---- operations: 0, or the library's code when that is no part of the game ---- */

static int get_checked(struct client *c, uint32_t key, struct header *ret_header)
{
	struct tarn_item item = TARN_ITEM_INIT;
	int status = tarn_get(c->session, c->key, strlen(c->key), c->value, VALUE_MAX, &item);
	const char *problem;

	if (status < 0)
		return status;
	problem = check_value(c->value, item.value_bytes, key, ret_header);
	return problem != NULL ? wrong(c, problem) : 0;
}

static int own_get(struct client *c)
{
	uint32_t key = below(c, OWN_KEYS);
	struct header header;
	int status;

	name_key(c, "get", "own", key);
	status = get_checked(c, key, &header);
	if (status == -TARN_ENOTFOUND)
		return c->own[key] == DELETED ? 0 : wrong(c, "it is gone, but was not deleted");
	if (status < 0)
		return status;
	if (c->own[key] == DELETED)
		return wrong(c, "it is there, but was deleted");
	return header.sequence == c->own[key] && header.id == c->id
		       ? 0
		       : wrong(c, "not the last value");
}

static int own_put(struct client *c)
{
	uint32_t key = below(c, OWN_KEYS), length = make_value(c, key);
	int status;

	name_key(c, "put", "own", key);
	status = tarn_put(c->session, c->key, strlen(c->key), c->value, length, NULL, NULL);
	if (status == 0)
		c->own[key] = c->sequence;
	return status;
}

static int own_delete(struct client *c)
{
	uint32_t key = below(c, OWN_KEYS);
	int status;

	name_key(c, "delete", "own", key);
	status = tarn_delete(c->session, c->key, strlen(c->key));
	if (status == -TARN_ENOTFOUND)
		return c->own[key] == DELETED ? 0 : wrong(c, "nothing to delete");
	if (status == 0 && c->own[key] == DELETED)
		return wrong(c, "deleted what was deleted");
	if (status == 0)
		c->own[key] = DELETED;
	return status;
}

static int shared_get(struct client *c)
{
	uint32_t key = below(c, SHARED_KEYS);
	struct header header;
	int status;

	name_key(c, "get", "shared", key);
	status = get_checked(c, key, &header);
	return status == -TARN_ENOTFOUND ? 0 : status;
}

static int shared_put(struct client *c)
{
	uint32_t key = below(c, SHARED_KEYS), length = make_value(c, key);
	int status;

	name_key(c, "put", "shared", key);
	status = tarn_put(c->session, c->key, strlen(c->key), c->value, length, NULL, NULL);
	if (status == 0)
		c->shared[key] = c->sequence;
	return status;
}

static int shared_delete(struct client *c)
{
	int status;

	name_key(c, "delete", "shared", below(c, SHARED_KEYS));
	status = tarn_delete(c->session, c->key, strlen(c->key));
	return status == -TARN_ENOTFOUND ? 0 : status;
}

static int counter_add(struct client *c)
{
	uint32_t counter = below(c, COUNTERS);
	int64_t delta = (int64_t)below(c, 2001) - 1000;
	int status;

	if (c->no_adds)
		return 0;
	name_key(c, "add", "counter", counter);
	status = tarn_add(c->session, c->key, strlen(c->key), delta, NULL);
	if (status == 0)
		c->adds[counter] += delta;
	return status;
}

/* A number that all clients raise by get and put-if-stamp. */
static int swap(struct client *c)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	struct tarn_item item = TARN_ITEM_INIT;
	uint64_t number = 0;
	int status;

	if (c->no_adds)
		return 0;
	name_key(c, "put-if-stamp", "swap", 0);
	status = tarn_get(c->session, c->key, strlen(c->key), &number, sizeof(number), &item);
	if (status < 0 && status != -TARN_ENOTFOUND)
		return status;
	options.flags = status == 0 ? TARN_PUT_IF_STAMP : TARN_PUT_IF_ABSENT;
	options.stamp = item.stamp;
	number++;
	status = tarn_put(c->session, c->key, strlen(c->key), &number, sizeof(number), &options,
			  NULL);
	if (status == 0)
		c->swaps++;
	return status == -TARN_ESTAMP || status == -TARN_EEXISTS ? 0 : status;
}

/* A key that exactly one client may put first. */
static int once(struct client *c)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	uint32_t key = below(c, ONCE_KEYS);
	int status;

	options.flags = TARN_PUT_IF_ABSENT;
	name_key(c, "put-if-absent", "once", key);
	status =
		tarn_put(c->session, c->key, strlen(c->key), &c->id, sizeof(c->id), &options, NULL);
	if (status == 0)
		json_array_append_new(c->once, json_integer(key));
	return status == -TARN_EEXISTS ? 0 : status;
}

static int one_operation(struct client *c)
{
	uint32_t kind = below(c, 100);

	if (kind < 25)
		return own_get(c);
	if (kind < 40)
		return own_put(c);
	if (kind < 45)
		return own_delete(c);
	if (kind < 65)
		return shared_get(c);
	if (kind < 80)
		return shared_put(c);
	if (kind < 84)
		return shared_delete(c);
	if (kind < 92)
		return counter_add(c);
	return kind < 96 ? swap(c) : once(c);
}

/* ---- the end ---- */

static json_t *numbers(const uint64_t *values, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(array, values[i] == DELETED
						     ? json_null()
						     : json_integer((json_int_t)values[i]));
	return array;
}

static void report(struct client *c)
{
	json_t *adds = json_array(), *document;

	for (uint32_t i = 0; i < COUNTERS; i++)
		json_array_append_new(adds, json_integer(c->adds[i]));
	document = json_pack("{s:i, s:I, s:o, s:o, s:o, s:I, s:O}", "id", (int)c->id, "operations",
			     (json_int_t)c->operations, "own", numbers(c->own, OWN_KEYS), "shared",
			     numbers(c->shared, SHARED_KEYS), "adds", adds, "swaps",
			     (json_int_t)c->swaps, "once", c->once);
	json_dumpf(document, stdout, JSON_COMPACT);
	puts("");
	json_decref(document);
}

/* After a failure: how each kind of call ends, and how soon. */
static void report_failures(struct client *c, int status, uint64_t ns)
{
	json_t *array = json_array();

	for (int i = 0; i < 4; i++) {
		uint64_t begin_ns;
		struct tarn_item item = TARN_ITEM_INIT;

		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:I}", "call", c->what,
						       "name", tarn_error_name(status), "text",
						       tarn_last_error_text(), "ms",
						       (json_int_t)(ns / 1000000)));
		begin_ns = clock_now_ns();
		if (i == 0) {
			c->what = "ping";
			status = tarn_session_ping(c->session, NULL);
		} else if (i == 1) {
			c->what = "put";
			status = tarn_put(c->session, "after", 5, "x", 1, NULL, NULL);
		} else if (i == 2) {
			c->what = "get";
			status = tarn_get(c->session, "after", 5, c->value, VALUE_MAX, &item);
		}
		ns = clock_now_ns() - begin_ns;
	}
	json_dumpf(array, stdout, JSON_COMPACT);
	puts("");
	json_decref(array);
}

/* ---- outlive ---- */

/* Has the session connected again? Then, unless it is kept, the pool is a new one, and empty. */
static bool new_pool(struct client *c)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};

	if (tarn_session_get_stats(c->session, &stats) < 0)
		wrong(c, tarn_last_error_text());
	if (stats.reconnects == c->reconnects)
		return false;
	c->reconnects = stats.reconnects;
	return !c->kept;
}

static void check_outlived_get(struct client *c, uint32_t key, int status, uint64_t bytes)
{
	struct header header = {0};
	const char *problem = status == 0 ? check_value(c->value, bytes, key, &header) : NULL;

	if (problem != NULL)
		wrong(c, problem);
	if (c->own[key] == UNKNOWN)
		return;
	if (status == -TARN_ENOTFOUND && c->own[key] != DELETED)
		wrong(c, "it is gone, but was not deleted");
	if (status == 0 && (c->own[key] != header.sequence || header.id != c->id))
		wrong(c, "not the last value");
}

/* A call on a key of its own: it works, or fails in one of the ways in which it may. */
static int outlive_one(struct client *c)
{
	struct tarn_item item = TARN_ITEM_INIT;
	uint32_t key = below(c, OWN_KEYS), kind = below(c, 10), length;
	uint64_t begin_ns, ms;
	bool changed;
	int status;

	name_key(c,
		 kind < 5   ? "get"
		 : kind < 8 ? "put"
		 : kind < 9 ? "delete"
			    : "add",
		 kind < 9 ? "own" : "counter", key);
	length = kind >= 5 && kind < 8 ? make_value(c, key) : 0;
	begin_ns = clock_now_ns();
	if (kind < 5)
		status = tarn_get(c->session, c->key, strlen(c->key), c->value, VALUE_MAX, &item);
	else if (kind < 8)
		status = tarn_put(c->session, c->key, strlen(c->key), c->value, length, NULL, NULL);
	else if (kind < 9)
		status = tarn_delete(c->session, c->key, strlen(c->key));
	else
		status = tarn_add(c->session, c->key, strlen(c->key), 1, NULL);
	ms = (clock_now_ns() - begin_ns) / 1000000;
	c->longest_ms = ms > c->longest_ms ? ms : c->longest_ms;
	changed = new_pool(c);
	for (uint32_t i = 0; i < OWN_KEYS && changed; i++)
		c->own[i] = UNKNOWN;
	if (status == -TARN_ESESSION || status == -TARN_ETIMEOUT ||
	    (status == -TARN_EAMBIGUOUS && kind >= 5)) {
		*(status == -TARN_EAMBIGUOUS ? &c->ambiguous : &c->not_connected) += 1;
		if (status == -TARN_EAMBIGUOUS && kind < 9)
			c->own[key] = UNKNOWN;
		return 0;
	}
	if (status == -TARN_EPOOLFULL) {
		clock_sleep_ns(10000000);
		return 0;
	}
	if (status < 0 && status != -TARN_ENOTFOUND)
		return status;
	if (kind < 5)
		check_outlived_get(c, key, status, item.value_bytes);
	else if (kind < 8 && !changed)
		c->own[key] = c->sequence;
	else if (kind < 9 && !changed)
		c->own[key] = DELETED;
	return 0;
}

static bool input_ended(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* All that this client has written, in the end. */
static void check_outlived(struct client *c)
{
	for (uint32_t key = 0; key < OWN_KEYS; key++) {
		struct tarn_item item = TARN_ITEM_INIT;
		int status;

		name_key(c, "last get", "own", key);
		status = tarn_get(c->session, c->key, strlen(c->key), c->value, VALUE_MAX, &item);
		if (status < 0 && status != -TARN_ENOTFOUND)
			wrong(c, tarn_last_error_text());
		check_outlived_get(c, key, status, item.value_bytes);
	}
}

static int outlive(struct client *c)
{
	json_t *document;

	for (; !input_ended(); c->operations++) {
		int status = outlive_one(c);

		if (status < 0)
			return wrong(c, tarn_last_error_text());
	}
	if (c->kept)
		check_outlived(c);
	document = json_pack("{s:I, s:I, s:I, s:I, s:I}", "operations", (json_int_t)c->operations,
			     "reconnects", (json_int_t)c->reconnects, "ambiguous",
			     (json_int_t)c->ambiguous, "not_connected",
			     (json_int_t)c->not_connected, "longest_ms", (json_int_t)c->longest_ms);
	json_dumpf(document, stdout, JSON_COMPACT);
	puts("");
	json_decref(document);
	return 0;
}

static int open_session(struct client *c, const char *uri)
{
	struct tarn_options options = TARN_OPTIONS_INIT;

	options.timeout_ms = c->outlive ? 1000 : c->until_error ? 2000 : 60000;
	return tarn_session_open(uri, &options, &c->session);
}

static int play(struct client *c, uint64_t operations)
{
	for (; c->until_error || c->operations < operations; c->operations++) {
		uint64_t begin_ns = clock_now_ns();
		int status = one_operation(c);

		/* So much is written that memory rests (grace) faster than it comes back. */
		if (status == -TARN_EPOOLFULL && c->until_error) {
			clock_sleep_ns(10000000);
			continue;
		}
		if (status < 0 && c->until_error) {
			report_failures(c, status, clock_now_ns() - begin_ns);
			return 0;
		}
		if (status < 0)
			return wrong(c, tarn_last_error_text());
	}
	report(c);
	return 0;
}

int main(int argc, char **argv)
{
	struct client c = {.what = "open", .once = json_array()};
	int status;

	if (argc < 4)
		return 2;
	c.id = (uint32_t)atoi(argv[2]);
	c.seed = c.id * 7919 + 1;
	for (int i = 4; i < argc; i++) {
		c.no_adds |= strcmp(argv[i], "no-adds") == 0;
		c.until_error |= strcmp(argv[i], "until-error") == 0;
		c.outlive |= strcmp(argv[i], "outlive") == 0;
		c.kept |= strcmp(argv[i], "kept") == 0;
	}
	for (uint32_t i = 0; i < OWN_KEYS; i++)
		c.own[i] = DELETED;
	c.value = malloc(VALUE_MAX);
	if (c.value == NULL)
		return 1;
	if (open_session(&c, argv[1]) < 0)
		return wrong(&c, tarn_last_error_text());
	puts("started");
	fflush(stdout);
	status = c.outlive ? outlive(&c) : play(&c, strtoull(argv[3], NULL, 10));
	tarn_session_close(c.session);
	json_decref(c.once);
	free(c.value);
	return status;
}
