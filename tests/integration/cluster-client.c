/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-client.c - one session with a cluster, told what to do by lines, for test-cluster-client.py
 *
 *	cluster-client URI
 *
 * Prints "open" or the name of the error; then for each line of standard input one with the names of what its calls ended
 * with and how often: "OK 12", "TARN_ENOTFOUND 3 OK 9". Keys are PREFIX-0 to PREFIX-(COUNT - 1), a value is its key; a wrong one
 * is "WRONG". The last text goes to standard error.
 *
 *	put | get | delete | mput | mget | mdelete | put-async | get-async  PREFIX COUNT
 *	walk | walk-async  PREFIX COUNT		of each such key, whether a walk shows it once: OK, MISSING, TWICE
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#define COUNT_MAX 2000u
#define NAMES     16u

struct tally {
	const char *names[NAMES];
	unsigned counts[NAMES];
};

static char keys[COUNT_MAX][64], values[COUNT_MAX][64];
static struct tarn_mget gets[COUNT_MAX];
static struct tarn_mput puts_[COUNT_MAX];
static struct tarn_mdelete deletes[COUNT_MAX];

static void count(struct tally *tally, const char *name)
{
	unsigned i = 0;

	while (i < NAMES - 1 && tally->names[i] && strcmp(tally->names[i], name) != 0)
		i++;
	tally->names[i] = name;
	tally->counts[i]++;
}

static void count_status(struct tally *tally, int status, const char *key, const char *value)
{
	if (status < 0)
		count(tally, tarn_error_name(status));
	else
		count(tally, value && strcmp(key, value) != 0 ? "WRONG" : "OK");
}

static void one_by_one(struct tarn_session *s, const char *what, unsigned n, struct tally *tally)
{
	for (unsigned i = 0; i < n; i++) {
		size_t bytes = strlen(keys[i]);

		if (strcmp(what, "put") == 0)
			count_status(tally, tarn_put(s, keys[i], bytes, keys[i], bytes, NULL, NULL),
				     NULL, NULL);
		else if (strcmp(what, "get") == 0)
			count_status(tally,
				     tarn_get(s, keys[i], bytes, values[i], sizeof(values[i]), NULL),
				     keys[i], values[i]);
		else
			count_status(tally, tarn_delete(s, keys[i], bytes), NULL, NULL);
	}
}

/* 0, or the code of the whole. */
static int batch(struct tarn_session *s, const char *what, unsigned n, struct tally *tally)
{
	int status;

	for (unsigned i = 0; i < n; i++) {
		size_t bytes = strlen(keys[i]);

		gets[i] = (struct tarn_mget){.key = keys[i],
					     .key_bytes = bytes,
					     .buffer = values[i],
					     .buffer_bytes = sizeof(values[i])};
		puts_[i] = (struct tarn_mput){
			.key = keys[i], .key_bytes = bytes, .value = keys[i], .value_bytes = bytes};
		deletes[i] = (struct tarn_mdelete){.key = keys[i], .key_bytes = bytes};
	}
	if (strcmp(what, "mget") == 0)
		status = tarn_mget(s, gets, n);
	else if (strcmp(what, "mput") == 0)
		status = tarn_mput(s, puts_, n);
	else
		status = tarn_mdelete(s, deletes, n);
	for (unsigned i = 0; status == 0 && i < n; i++) {
		if (strcmp(what, "mget") == 0)
			count_status(tally, gets[i].status, keys[i], values[i]);
		else
			count_status(tally,
				     strcmp(what, "mput") == 0 ? puts_[i].status
							       : deletes[i].status,
				     NULL, NULL);
	}
	return status;
}

/* All of them under way at once. */
static int at_once(struct tarn_session *s, bool put, unsigned n, struct tally *tally)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct tarn_completion done[64];
	int status = 0;

	for (unsigned i = 0; status == 0 && i < n; i++) {
		size_t bytes = strlen(keys[i]);

		async.cookie = keys[i];
		status = put ? tarn_put_async(s, keys[i], bytes, keys[i], bytes, NULL, &async, NULL)
			     : tarn_get_async(s, keys[i], bytes, values[i], sizeof(values[i]),
					      &async, NULL);
	}
	while (status == 0 && tarn_session_wait(s, 1000) != -TARN_EENDED) {
		size_t picked = 0;
		int ret = tarn_session_poll(s, done, 64, &picked);

		if (ret < 0)
			return ret;
		for (size_t i = 0; i < picked; i++) {
			size_t k = (size_t)((char(*)[64])done[i].cookie - keys);

			count_status(tally, done[i].status, keys[k], put ? NULL : values[k]);
		}
	}
	return status;
}

/* 1, 0 or a code, of the walk's next key. */
static int next_key(struct tarn_session *s, struct tarn_scan *scan, bool async, char *ret_key)
{
	struct tarn_completion done = {.status = 0};
	const void *key = NULL;
	size_t bytes = 0, picked = 0;
	int status;

	if (!async) {
		status = tarn_scan_next(scan, &key, &bytes, NULL);
	} else {
		status = tarn_scan_next_async(scan, NULL, NULL);
		while (status >= 0 && picked == 0) {
			status = tarn_session_wait(s, 1000);
			if (status >= 0)
				status = tarn_session_poll(s, &done, 1, &picked);
		}
		status = status < 0 ? status : done.status;
		key = done.key;
		bytes = done.key_bytes;
	}
	if (status == 1)
		snprintf(ret_key, 64, "%.*s", (int)bytes, (const char *)key);
	return status;
}

static int walk(struct tarn_session *s, const char *prefix, bool async, unsigned n,
		struct tally *tally)
{
	static unsigned seen[COUNT_MAX];
	struct tarn_scan *scan;
	char key[64];
	int status = tarn_scan_open(s, prefix, strlen(prefix), &scan);

	if (status < 0)
		return status;
	memset(seen, 0, sizeof(seen));
	while ((status = next_key(s, scan, async, key)) == 1)
		for (unsigned i = 0; i < n; i++)
			seen[i] += strcmp(keys[i], key) == 0;
	tarn_scan_close(scan);
	for (unsigned i = 0; i < n; i++)
		count(tally, seen[i] == 0 ? "MISSING" : seen[i] == 1 ? "OK" : "TWICE");
	return status;
}

static void do_line(struct tarn_session *s, const char *what, const char *prefix, unsigned n)
{
	struct tally tally = {{NULL}, {0}};
	int status = 0;

	memset(values, 0, sizeof(values));
	for (unsigned i = 0; i < n; i++)
		snprintf(keys[i], sizeof(keys[i]), "%.40s-%u", prefix, i);
	if (strncmp(what, "walk", 4) == 0)
		status = walk(s, prefix, what[4] != 0, n, &tally);
	else if (strstr(what, "-async"))
		status = at_once(s, what[0] == 'p', n, &tally);
	else if (what[0] == 'm')
		status = batch(s, what, n, &tally);
	else
		one_by_one(s, what, n, &tally);
	if (status < 0)
		count(&tally, tarn_error_name(status));
	for (unsigned i = 0; i < NAMES && tally.names[i]; i++)
		printf("%s%s %u", i ? " " : "", tally.names[i], tally.counts[i]);
	printf("\n");
	fflush(stdout);
	fprintf(stderr, "%s %s: %s\n", what, prefix, tarn_last_error_text());
}

int main(int argc, char **argv)
{
	struct tarn_session *s;
	char line[128], what[32], prefix[64];
	unsigned n;
	int status;

	if (argc != 2)
		return 2;
	status = tarn_session_open(argv[1], NULL, &s);
	if (status < 0) {
		printf("%s\n", tarn_error_name(status));
		fprintf(stderr, "%s\n", tarn_last_error_text());
		return 1;
	}
	printf("open\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		if (sscanf(line, "%31s %63s %u", what, prefix, &n) == 3 && n <= COUNT_MAX)
			do_line(s, what, prefix, n);
	tarn_session_close(s);
	return 0;
}
