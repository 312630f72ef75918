/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of a cluster that knows what it has written, for test-cluster-etcd.py: `cluster-load URI KEYS`. Lines that come in: fill,
 * run (reads, writes and deletes until there is another line), check, quit. What it says ends with a line "done ...". It ends with 1
 * as soon as a key has a value that it can not have.
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

struct version {
	uint64_t number;
	bool deleted;
};

/* What a key may be: one of these. */
struct key {
	struct version may[MAYBES];
	unsigned count;
	uint64_t last;
};

struct load {
	struct tarn_session *session;
	struct key *keys;
	uint64_t count, random;
	uint64_t reads, writes, failures;
};

static uint64_t draw(struct load *l)
{
	l->random ^= l->random << 13;
	l->random ^= l->random >> 7;
	l->random ^= l->random << 17;
	return l->random;
}

static size_t name_of(uint64_t number, char name[32])
{
	return (size_t)snprintf(name, 32, "key/%llu", (unsigned long long)number);
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
	int rc = tarn_get(l->session, name, name_of(number, name), value, sizeof(value), &item);

	l->reads++;
	if (rc == 0 || rc == -TARN_ENOTFOUND)
		judge(l, number, rc, value, item.value_bytes);
	else
		l->failures++;
	return rc;
}

static int change(struct load *l, uint64_t number, bool deletes)
{
	struct key *key = &l->keys[number];
	struct version next = {.number = key->last + 1, .deleted = deletes};
	char name[32], value[512];
	size_t length = name_of(number, name);
	int rc;

	if (key->count == MAYBES)
		return -1;
	key->last++;
	rc = deletes ? tarn_delete(l->session, name, length)
		     : tarn_put(l->session, name, length, value, value_of(number, next.number, value), NULL, NULL);
	l->writes++;
	if (rc == 0 || (deletes && rc == -TARN_ENOTFOUND)) {
		if (rc != 0)
			judge(l, number, rc, NULL, 0);
		key->count = 0;
	} else {
		l->failures++;
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
	}
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

int main(int argc, char **argv)
{
	struct load load = {.random = 0x9e3779b97f4a7c15u};
	char line[64];

	if (argc != 3)
		errx(2, "usage: cluster-load URI KEYS");
	setvbuf(stdout, NULL, _IONBF, 0);
	/* poll() is to see what has not been read */
	setvbuf(stdin, NULL, _IONBF, 0);
	load.count = strtoull(argv[2], NULL, 10);
	load.keys = calloc(load.count + 1, sizeof(*load.keys));
	if (!load.keys)
		errx(1, "out of memory");
	for (uint64_t i = 0; i < load.count; i++) {
		load.keys[i].may[0] = (struct version){.deleted = true};
		load.keys[i].count = 1;
	}
	if (tarn_session_open(argv[1], NULL, &load.session) < 0)
		errx(1, "%s", tarn_last_error_text());
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "quit\n") != 0) {
		if (strcmp(line, "fill\n") == 0)
			fill(&load);
		else if (strcmp(line, "run\n") == 0)
			run(&load);
		else if (strcmp(line, "check\n") == 0)
			check(&load);
		else if (strcmp(line, "stop\n") != 0)
			errx(2, "what is %s", line);
		printf("done reads %llu writes %llu failures %llu\n", (unsigned long long)load.reads,
		       (unsigned long long)load.writes, (unsigned long long)load.failures);
	}
	tarn_session_close(load.session);
	free(load.keys);
	return 0;
}
