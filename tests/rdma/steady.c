/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * steady.c - a client that keeps working through faults and knows what it must find, for run-inside.py
 *
 *	steady URI ID SECONDS [TIMEOUT-MS] [read] [forgets] [adds] [small]
 *
 * Puts, gets and deletes its own keys for so many seconds. Of each key it knows which values can be
 * there: the last acknowledged one, and those of writes since then whose outcome is open
 * (ambiguous). A get that finds anything else ends it with exit code 1 and a line on standard
 * error. Failures are counted by name and are no reason to stop. read: gets alone, of what a run
 * with the same ID has put before. forgets: the daemon may have been started anew, empty. adds: adds
 * to the counter steady/adds, too. small: no values of more than 4 KiB.
 *
 * Prints "started" once it is connected, at the end one JSON object: how often each call ended how, the
 * longest time without a success, sum of acknowledged adds, and bounds of the open ones.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"

#define KEYS      40u
#define OPEN_MAX  64u /* writes of a key with open outcome; more: the key is left alone */
#define VALUE_MAX 100000u
#define ABSENT    0u

struct key {
	uint32_t may[OPEN_MAX]; /* sequence numbers that can be there; ABSENT: no value */
	unsigned may_count;
};

struct steady {
	struct tarn_session *session;
	uint32_t id, sequence;
	unsigned int seed;
	bool read_only, forgets, adds, small;
	struct key keys[KEYS];
	int64_t added, open_low, open_high;
	uint64_t last_success_ns, longest_gap_ns, successes;
	json_t *outcomes; /* "put TARN_EAMBIGUOUS": 3 */
	json_t *texts;    /* of the first failure of each */
	unsigned char *value;
};

static uint32_t below(struct steady *s, uint32_t limit)
{
	return ((uint32_t)rand_r(&s->seed) << 8 ^ (uint32_t)rand_r(&s->seed)) % limit;
}

/* All of a value follows from who, which key and which sequence number. */
static uint32_t value_length(const struct steady *s, uint32_t sequence)
{
	uint32_t mixed = sequence * 2654435761u;

	return 16 + mixed % (!s->small && mixed % 16 == 3 ? VALUE_MAX - 16 : 4000);
}

static void make_value(const struct steady *s, uint32_t key, uint32_t sequence, unsigned char *to)
{
	uint32_t length = value_length(s, sequence), head[4] = {s->id, key, sequence, length};

	memcpy(to, head, sizeof(head));
	for (uint32_t i = sizeof(head); i < length; i++)
		to[i] = (unsigned char)((i * 31 + sequence * 7 + key) % 251);
}

static void count(struct steady *s, const char *call, int status)
{
	char name[64];
	json_t *before;
	uint64_t now = clock_now_ns();

	snprintf(name, sizeof(name), "%s %s", call, status == 0 ? "OK" : tarn_error_name(status));
	before = json_object_get(s->outcomes, name);
	json_object_set_new(s->outcomes, name,
			    json_integer(before ? json_integer_value(before) + 1 : 1));
	if (status != 0 && status != -TARN_ENOTFOUND) {
		if (!before)
			json_object_set_new(s->texts, name, json_string(tarn_last_error_text()));
		return;
	}
	if (now - s->last_success_ns > s->longest_gap_ns)
		s->longest_gap_ns = now - s->last_success_ns;
	s->last_success_ns = now;
	s->successes++;
}

static void wrong(const struct steady *s, uint32_t key, const char *text, uint32_t sequence)
{
	fprintf(stderr, "steady %" PRIu32 ": key %" PRIu32 ": %s (%" PRIu32 "); allowed:", s->id,
		key, text, sequence);
	for (unsigned i = 0; i < s->keys[key].may_count; i++)
		fprintf(stderr, " %" PRIu32, s->keys[key].may[i]);
	fprintf(stderr, "\n");
	exit(1);
}

static size_t key_name(const struct steady *s, uint32_t key, char name[32])
{
	return (size_t)snprintf(name, 32, "steady/%" PRIu32 "/%" PRIu32, s->id, key);
}

static bool may_be(const struct key *key, uint32_t sequence)
{
	for (unsigned i = 0; i < key->may_count; i++)
		if (key->may[i] == sequence)
			return true;
	return false;
}

/* Only this one can be there from now on. */
static void settle(struct key *key, uint32_t sequence)
{
	key->may[0] = sequence;
	key->may_count = 1;
}

/* ---- operations ------------------------------------------------------------------------------ */

/*
 * What a get finds can be there, but does not rule out the other possibilities: a write whose
 * outcome is open may still take effect for G - D.
 */
static void do_get(struct steady *s, uint32_t key)
{
	char name[32];
	size_t length = key_name(s, key, name);
	struct tarn_item item = TARN_ITEM_INIT;
	static unsigned char expected[VALUE_MAX];
	uint32_t head[4];
	int status = tarn_get(s->session, name, length, s->value, VALUE_MAX, &item);

	count(s, "get", status);
	if (status == -TARN_ENOTFOUND) {
		if (!may_be(&s->keys[key], ABSENT) && !s->forgets)
			wrong(s, key, "is lost", 0);
		if (!may_be(&s->keys[key], ABSENT))
			settle(&s->keys[key], ABSENT);
		return;
	}
	if (status < 0)
		return;
	if (item.value_bytes < sizeof(head))
		wrong(s, key, "too short", 0);
	memcpy(head, s->value, sizeof(head));
	if (head[0] != s->id || head[1] != key)
		wrong(s, key, "another key's value", head[2]);
	if (s->read_only)
		settle(&s->keys[key], head[2]);
	if (!may_be(&s->keys[key], head[2]))
		wrong(s, key, "holds a value that can not be there", head[2]);
	make_value(s, key, head[2], expected);
	if (item.value_bytes != value_length(s, head[2]) ||
	    memcmp(expected, s->value, item.value_bytes) != 0)
		wrong(s, key, "is torn", head[2]);
}

/* After a write of `sequence` that ended so. */
static void written(struct steady *s, uint32_t key, uint32_t sequence, int status)
{
	if (status == 0 || (status == -TARN_ENOTFOUND && sequence == ABSENT))
		settle(&s->keys[key], sequence);
	else if (status == -TARN_EAMBIGUOUS)
		s->keys[key].may[s->keys[key].may_count++] = sequence;
}

static void do_put(struct steady *s, uint32_t key)
{
	char name[32];
	size_t length = key_name(s, key, name);
	uint32_t sequence = ++s->sequence;
	int status;

	make_value(s, key, sequence, s->value);
	status =
		tarn_put(s->session, name, length, s->value, value_length(s, sequence), NULL, NULL);
	count(s, "put", status);
	written(s, key, sequence, status);
}

static void do_delete(struct steady *s, uint32_t key)
{
	char name[32];
	size_t length = key_name(s, key, name);
	int status = tarn_delete(s->session, name, length);

	count(s, "delete", status);
	if (status == -TARN_ENOTFOUND && !may_be(&s->keys[key], ABSENT) && !s->forgets)
		wrong(s, key, "could not be deleted: it is lost", 0);
	written(s, key, ABSENT, status);
}

static void do_add(struct steady *s)
{
	int64_t delta = (int64_t)below(s, 200) - 100;
	int status = tarn_add(s->session, "steady/adds", 11, delta, NULL);

	count(s, "add", status);
	if (status == 0)
		s->added += delta;
	else if (status == -TARN_EAMBIGUOUS || status == -TARN_ECONFLICT)
		*(delta < 0 ? &s->open_low : &s->open_high) += delta;
}

static void one_operation(struct steady *s)
{
	uint32_t key = below(s, KEYS), kind = below(s, 100);

	if (s->read_only || kind < 50)
		do_get(s, key);
	else if (s->adds && kind < 60)
		do_add(s);
	else if (s->keys[key].may_count == OPEN_MAX)
		do_get(s, key);
	else if (kind < 92)
		do_put(s, key);
	else
		do_delete(s, key);
}

static void report(const struct steady *s)
{
	json_t *document =
		json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:O, s:O}", "id", (int)s->id, "successes",
			  (json_int_t)s->successes, "longest_gap_ms",
			  (json_int_t)(s->longest_gap_ns / 1000000), "added", (json_int_t)s->added,
			  "open_low", (json_int_t)s->open_low, "open_high",
			  (json_int_t)s->open_high, "outcomes", s->outcomes, "texts", s->texts);

	json_dumpf(document, stdout, JSON_COMPACT);
	puts("");
	json_decref(document);
}

static bool begin(struct steady *s, const char *uri, uint32_t timeout_ms)
{
	struct tarn_options options = TARN_OPTIONS_INIT;

	options.timeout_ms = timeout_ms;
	options.flags = s->read_only ? TARN_READONLY : 0;
	for (uint32_t key = 0; key < KEYS; key++)
		settle(&s->keys[key], ABSENT);
	s->value = malloc(VALUE_MAX);
	s->outcomes = json_object();
	s->texts = json_object();
	if (!s->value || tarn_session_open(uri, &options, &s->session) < 0) {
		fprintf(stderr, "steady: %s\n", tarn_last_error_text());
		return false;
	}
	puts("started");
	fflush(stdout);
	s->last_success_ns = clock_now_ns();
	return true;
}

int main(int argc, char **argv)
{
	struct steady s = {0};
	uint64_t end_ns;
	uint32_t timeout_ms = 5000;

	if (argc < 4)
		return 2;
	s.id = (uint32_t)atoi(argv[2]);
	s.seed = s.id * 7919 + 1;
	for (int i = 4; i < argc; i++) {
		s.read_only |= !strcmp(argv[i], "read");
		s.forgets |= !strcmp(argv[i], "forgets");
		s.adds |= !strcmp(argv[i], "adds");
		s.small |= !strcmp(argv[i], "small");
		if (argv[i][0] >= '0' && argv[i][0] <= '9')
			timeout_ms = (uint32_t)atoi(argv[i]);
	}
	if (!begin(&s, argv[1], timeout_ms))
		return 1;
	end_ns = clock_now_ns() + (uint64_t)(atof(argv[3]) * 1e9);
	while (clock_now_ns() < end_ns) {
		uint64_t before = s.successes;

		one_operation(&s);
		if (s.successes == before)
			clock_sleep_ns(1000000); /* a call that fails at once must not spin */
	}
	/* each key once more; but whose daemon is gone for good waits for one call in vain, not for all */
	for (uint32_t key = 0; key < KEYS && !s.read_only; key++) {
		uint64_t before = s.successes;

		do_get(&s, key);
		if (s.successes == before)
			break;
	}
	report(&s);
	tarn_session_close(s.session);
	json_decref(s.outcomes);
	json_decref(s.texts);
	free(s.value);
	return 0;
}
