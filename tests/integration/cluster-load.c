/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of a cluster that knows what it has written, for test-cluster-etcd.py and tests/cluster:
 *
 *	cluster-load URI KEYS [cache] [first=N] [sessions=N] [pause=US] [limit=MS]
 *
 * cache: any key may be missing. first: the number of the first key, so that several of them do not share any. sessions: each call by
 * one of so many, as chance has it; all see what one has been told. pause: behind each call of "run". limit: of a call of
 * "run", "read" and "write"; one that can not succeed takes all of it.
 *
 * Lines that come in: fill, run (reads, writes and deletes until there is another line), check (each key, until it can be read), read and
 * write (each key once), tell, quit. What it says ends with a line "done ...". It ends with 1 as soon as a key has a value that it can not
 * have. Each text of an error comes once, in standard error.
 */
#include <err.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tarn/tarn.h>

#define MAYBES   32u /* writes in a row of one key whose outcome is not known */
#define PATIENCE 300 /* seconds, for a key to be there again */
#define SESSIONS 8u
#define LIMIT_MS 5000u
#define CODES    64u

struct version {
	uint64_t number;
	bool deleted;
};

/* What a key may be: one of these. */
struct key {
	struct version may[MAYBES];
	unsigned count;
	uint64_t last;
	bool acked; /* by the last pass of "write" */
};

struct load {
	struct tarn_session *sessions[SESSIONS];
	uint64_t session_count;
	struct key *keys;
	uint64_t count, first, random, pause_us, limit_ms;
	bool cache;
	/* lost: found missing, and acknowledged by the last pass of "write" */
	uint64_t reads, writes, failures, missing, lost, acked, unavailable, no_map, open;
	int codes[CODES]; /* whose texts were shown */
};

static uint64_t draw(struct load *l)
{
	l->random ^= l->random << 13;
	l->random ^= l->random >> 7;
	l->random ^= l->random << 17;
	return l->random;
}

static struct tarn_session *session_of(struct load *l)
{
	return l->sessions[l->session_count > 1 ? draw(l) % l->session_count : 0];
}

static size_t name_of(const struct load *l, uint64_t number, char name[32])
{
	return (size_t)snprintf(name, 32, "key/%llu", (unsigned long long)(l->first + number));
}

static void failure(struct load *l, const char *what, int rc)
{
	unsigned i = 0;

	l->failures++;
	l->unavailable += rc == -TARN_EUNAVAILABLE;
	l->no_map += rc == -TARN_EMAP;
	l->open += rc == -TARN_EAMBIGUOUS;
	while (i < CODES - 1 && l->codes[i] != 0 && l->codes[i] != rc)
		i++;
	if (l->codes[i] == 0) {
		l->codes[i] = rc;
		fprintf(stderr, "%s: %s: %s\n", what, tarn_error_name(rc), tarn_last_error_text());
	}
}

/* Values have different lengths, and all of their bytes tell key and version. */
static size_t value_of(uint64_t number, uint64_t version, char value[512])
{
	size_t words = 2 + (number + version) % 40;

	for (size_t i = 0; i < words; i++) {
		uint64_t word = i == 0 ? number : version;

		memcpy(value + 8 * i, &word, 8);
	}
	return 8 * words;
}

static void wrong(uint64_t number, const char *what, uint64_t version, const struct key *key)
{
	printf("WRONG key/%llu: %s, version %llu; it may be:", (unsigned long long)number, what,
	       (unsigned long long)version);
	for (unsigned i = 0; i < key->count; i++)
		printf(" %s%llu", key->may[i].deleted ? "-" : "", (unsigned long long)key->may[i].number);
	printf("\n");
	exit(1);
}

static void judge(struct load *l, uint64_t number, int rc, const char *value, size_t bytes)
{
	const struct key *key = &l->keys[number];
	char expected[512];
	uint64_t version = 0;

	if (rc != 0 && l->cache)
		return;
	if (rc == 0 && bytes >= 16)
		memcpy(&version, value + 8, 8);
	for (unsigned i = 0; i < key->count; i++)
		if (rc == 0 ? !key->may[i].deleted && key->may[i].number == version : key->may[i].deleted)
			goto known;
	wrong(number, rc == 0 ? "found" : "missing", version, key);
known:
	if (rc == 0 && (bytes != value_of(number, version, expected) || memcmp(value, expected, bytes) != 0))
		wrong(number, "another value", version, key);
}

static int get(struct load *l, uint64_t number)
{
	struct tarn_item item = {.size = sizeof(item)};
	char name[32], value[512];
	int rc = tarn_get(session_of(l), name, name_of(l, number, name), value, sizeof(value), &item);

	l->reads++;
	if (rc == 0 || rc == -TARN_ENOTFOUND)
		judge(l, number, rc, value, item.value_bytes);
	else
		failure(l, "get", rc);
	l->missing += rc == -TARN_ENOTFOUND;
	l->lost += rc == -TARN_ENOTFOUND && l->keys[number].acked;
	return rc;
}

static int change(struct load *l, uint64_t number, bool deletes)
{
	struct key *key = &l->keys[number];
	struct version next = {.number = key->last + 1, .deleted = deletes};
	char name[32], value[512];
	size_t length = name_of(l, number, name);
	struct tarn_session *session = session_of(l);
	int rc;

	if (key->count == MAYBES)
		return -1;
	key->last++;
	key->acked = false;
	rc = deletes ? tarn_delete(session, name, length)
		     : tarn_put(session, name, length, value, value_of(number, next.number, value), NULL, NULL);
	l->writes++;
	if (rc == 0 || (deletes && rc == -TARN_ENOTFOUND)) {
		if (rc != 0)
			judge(l, number, rc, NULL, 0);
		key->count = 0;
		l->acked++;
	} else {
		failure(l, deletes ? "delete" : "put", rc);
	}
	key->may[key->count++] = next;
	return rc;
}

static void fill(struct load *l)
{
	for (uint64_t i = 0; i < l->count; i++)
		if (change(l, i, false) != 0)
			errx(1, "key/%llu can not be put: %s", (unsigned long long)i, tarn_last_error_text());
}

static void run(struct load *l)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	while (poll(&input, 1, 0) == 0) {
		uint64_t number = draw(l) % l->count, what = draw(l) % 10;

		if (what < 5)
			(void)get(l, number);
		else
			(void)change(l, number, what == 9);
		if (l->pause_us)
			usleep((useconds_t)l->pause_us);
	}
}

static void read_all(struct load *l)
{
	for (uint64_t i = 0; i < l->count; i++)
		(void)get(l, i);
}

static void write_all(struct load *l)
{
	for (uint64_t i = 0; i < l->count; i++)
		l->keys[i].acked = change(l, i, false) == 0;
}

static void check(struct load *l)
{
	time_t end = time(NULL) + PATIENCE;

	for (uint64_t i = 0; i < l->count; i++) {
		int rc = get(l, i);

		while (rc != 0 && rc != -TARN_ENOTFOUND) {
			if (time(NULL) > end)
				errx(1, "key/%llu can not be read: %s", (unsigned long long)i, tarn_last_error_text());
			usleep(50000);
			rc = get(l, i);
		}
	}
}

static bool number_word(const char *word, const char *name, uint64_t *ret_number)
{
	size_t length = strlen(name);

	if (strncmp(word, name, length) != 0)
		return false;
	*ret_number = strtoull(word + length, NULL, 10);
	return true;
}

static void begin(struct load *l, char **words, int count)
{
	l->session_count = 1;
	l->limit_ms = LIMIT_MS;
	l->count = strtoull(words[1], NULL, 10);
	for (int i = 2; i < count; i++) {
		if (strcmp(words[i], "cache") == 0)
			l->cache = true;
		else if (!number_word(words[i], "first=", &l->first) &&
			 !number_word(words[i], "sessions=", &l->session_count) &&
			 !number_word(words[i], "pause=", &l->pause_us) &&
			 !number_word(words[i], "limit=", &l->limit_ms))
			errx(2, "what is %s", words[i]);
	}
	if (l->session_count == 0 || l->session_count > SESSIONS)
		errx(2, "sessions: 1 to %u", SESSIONS);
	l->keys = calloc(l->count + 1, sizeof(*l->keys));
	if (!l->keys)
		errx(1, "out of memory");
	for (uint64_t i = 0; i < l->count; i++) {
		l->keys[i].may[0] = (struct version){.deleted = true};
		l->keys[i].count = 1;
	}
	for (uint64_t i = 0; i < l->session_count; i++)
		if (tarn_session_open(words[0], NULL, &l->sessions[i]) < 0)
			errx(1, "%s", tarn_last_error_text());
}

/* False: that was the last line. */
static bool do_line(struct load *l, const char *line)
{
	static const struct {
		const char *name;
		void (*act)(struct load *l);
		bool limited;
	} words[] = {
		{"fill\n", fill, false},     {"run\n", run, true},    {"check\n", check, false}, {"read\n", read_all, true},
		{"write\n", write_all, true}, {"tell\n", NULL, false}, {"stop\n", NULL, false},
	};
	unsigned i = 0;

	if (strcmp(line, "quit\n") == 0)
		return false;
	while (i < sizeof(words) / sizeof(words[0]) && strcmp(line, words[i].name) != 0)
		i++;
	if (i == sizeof(words) / sizeof(words[0]))
		errx(2, "what is %s", line);
	for (uint64_t n = 0; n < l->session_count; n++)
		if (tarn_session_set_timeout(l->sessions[n], words[i].limited ? (uint32_t)l->limit_ms : LIMIT_MS) < 0)
			errx(1, "%s", tarn_last_error_text());
	if (words[i].act)
		words[i].act(l);
	printf("done reads %llu writes %llu failures %llu missing %llu lost %llu acked %llu unavailable %llu no_map %llu open "
	       "%llu\n",
	       (unsigned long long)l->reads, (unsigned long long)l->writes, (unsigned long long)l->failures,
	       (unsigned long long)l->missing, (unsigned long long)l->lost, (unsigned long long)l->acked,
	       (unsigned long long)l->unavailable, (unsigned long long)l->no_map, (unsigned long long)l->open);
	return true;
}

int main(int argc, char **argv)
{
	struct load load = {.random = 0x9e3779b97f4a7c15u};
	char line[64];

	if (argc < 3)
		errx(2, "usage: cluster-load URI KEYS [cache] [first=N] [sessions=N] [pause=US] [limit=MS]");
	setvbuf(stdout, NULL, _IONBF, 0);
	/* poll() is to see what has not been read */
	setvbuf(stdin, NULL, _IONBF, 0);
	begin(&load, argv + 1, argc - 1);
	while (fgets(line, sizeof(line), stdin) && do_line(&load, line))
		;
	for (uint64_t i = 0; i < load.session_count; i++)
		tarn_session_close(load.sessions[i]);
	free(load.keys);
	return 0;
}
