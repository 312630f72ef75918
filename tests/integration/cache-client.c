/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache-client.c - a client for test-cache.py: puts keys of mixed sizes, gets some of them, checks them
 *
 * cache-client URI NUMBER MEGABYTES SIZE...: puts so many MB in all, each value of one of the sizes. What
 * a value holds follows from its key. Prints one line of JSON. A put that fails ends it with exit code 1.
 *
 * cache-client URI NUMBER add COUNT: adds to so many counters, each of them new.
 *
 * cache-client URI NUMBER refill ROUNDS SIZE...: in each round fills a store pool with values of the next
 * size until it is full, and deletes them all; what is put then must find room, half of it at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tarn/tarn.h>

#define VALUE_MAX (4u << 20)
#define SIZES_MAX 16

struct client {
	struct tarn_session *session;
	unsigned number;
	size_t sizes[SIZES_MAX];
	size_t size_count;
	uint64_t random;
	uint8_t *value, *buffer;
	unsigned long puts, gets, hits, wrong;
	double slowest_ms;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static size_t key_of(const struct client *client, uint64_t index, char *ret_key, size_t capacity)
{
	return (size_t)snprintf(ret_key, capacity, "%u/%llu", client->number,
				(unsigned long long)index);
}

static size_t size_of(const struct client *client, uint64_t index)
{
	return client->sizes[mix(index * 7 + client->number) % client->size_count];
}

static void value_of(const struct client *client, uint64_t index, uint8_t *ret_value)
{
	uint64_t word = mix(index << 8 | client->number);
	size_t size = size_of(client, index);

	for (size_t i = 0; i < size; i += 8, word += 0x9e3779b97f4a7c15ull)
		memcpy(ret_value + i, &word, size - i < 8 ? size - i : 8);
}

/* The session that puts, and the one that deletes: pages are the former's. */
struct pair {
	struct client *client;
	struct tarn_session *other;
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int put(struct client *client, uint64_t index)
{
	char key[32];
	size_t bytes = key_of(client, index, key, sizeof(key));
	double began = now_ms(), took;
	int ret;

	value_of(client, index, client->value);
	ret = tarn_put(client->session, key, bytes, client->value, size_of(client, index), NULL,
		       NULL);
	took = now_ms() - began;
	client->slowest_ms = took > client->slowest_ms ? took : client->slowest_ms;
	client->puts++;
	if (ret < 0)
		fprintf(stderr, "put %s of %zu bytes: %s (%s)\n", key, size_of(client, index),
			tarn_last_error_text(), tarn_error_name(ret));
	return ret;
}

static int get(struct client *client, uint64_t index)
{
	struct tarn_item item = TARN_ITEM_INIT;
	char key[32];
	size_t bytes = key_of(client, index, key, sizeof(key));
	int ret = tarn_get(client->session, key, bytes, client->buffer, VALUE_MAX, &item);

	client->gets++;
	if (ret == -TARN_ENOTFOUND)
		return 0;
	if (ret < 0) {
		fprintf(stderr, "get %s: %s\n", key, tarn_last_error_text());
		return ret;
	}
	client->hits++;
	value_of(client, index, client->value);
	if (item.value_bytes != size_of(client, index) ||
	    memcmp(client->buffer, client->value, item.value_bytes) != 0)
		client->wrong++;
	return 0;
}

static int work(struct client *client, uint64_t bytes)
{
	uint64_t done = 0, index = 0;
	int ret = 0;

	for (; ret >= 0 && done < bytes; done += size_of(client, index++)) {
		ret = put(client, index);
		/* half of them of what was put of late */
		for (int i = 0; ret >= 0 && i < 2; i++) {
			client->random = mix(client->random + 1);
			ret = get(client, i ? client->random % (index + 1)
					    : index - client->random % (index < 32 ? index + 1 : 32));
		}
	}
	return ret;
}

static int add(struct client *client, uint64_t count)
{
	char key[32];
	int ret = 0;

	for (uint64_t i = 0; ret >= 0 && i < count; i++) {
		double began = now_ms(), took;
		int64_t value = 0;

		ret = tarn_add(client->session, key, key_of(client, i, key, sizeof(key)), 1,
			       &value);
		took = now_ms() - began;
		client->slowest_ms = took > client->slowest_ms ? took : client->slowest_ms;
		client->puts++;
		client->wrong += ret >= 0 && value != 1;
		if (ret < 0)
			fprintf(stderr, "add %s: %s (%s)\n", key, tarn_last_error_text(),
				tarn_error_name(ret));
	}
	return ret;
}

/* All of one size, until the pool is full. Returns how many, or an error. */
static long fill(struct client *client, uint64_t first, size_t size)
{
	for (uint64_t i = first;; i++) {
		char key[32];
		int ret = tarn_put(client->session, key, key_of(client, i, key, sizeof(key)),
				   client->value, size, NULL, NULL);

		if (ret == -TARN_EPOOLFULL)
			return (long)(i - first);
		if (ret < 0) {
			fprintf(stderr, "put %s: %s\n", key, tarn_last_error_text());
			return ret;
		}
	}
}

static int delete_all(const struct pair *pair, uint64_t first, uint64_t count)
{
	int ret = 0;

	for (uint64_t i = first; ret >= 0 && i < first + count; i++) {
		char key[32];

		ret = tarn_delete(pair->other, key, key_of(pair->client, i, key, sizeof(key)));
	}
	return ret;
}

static int refill_round(const struct pair *pair, uint64_t first, size_t size, uint64_t *bytes)
{
	struct client *client = pair->client;
	double began = now_ms(), took;
	uint64_t put = 0;
	long count;

	/* half of what was there before, at once after it was deleted: not one may be refused */
	for (int ret = 0; put * size < *bytes / 2; put++) {
		char key[32];

		ret = tarn_put(client->session, key, key_of(client, first + put, key, sizeof(key)),
			       client->value, size, NULL, NULL);
		took = now_ms() - began;
		began += took;
		client->slowest_ms = took > client->slowest_ms ? took : client->slowest_ms;
		client->puts++;
		if (ret < 0) {
			fprintf(stderr, "refused, %llu of %llu bytes after all was deleted: %s (%s)\n",
				(unsigned long long)(put * size), (unsigned long long)*bytes,
				tarn_last_error_text(), tarn_error_name(ret));
			return ret;
		}
	}
	count = fill(client, first + put, size);
	if (count < 0)
		return (int)count;
	*bytes = (put + (uint64_t)count) * size;
	return delete_all(pair, first, put + (uint64_t)count);
}

static int refill(const char *uri, struct client *client)
{
	const size_t *sizes = client->sizes + 1, rounds = client->sizes[0];
	const size_t count = client->size_count - 1;
	struct pair pair = {.client = client};
	uint64_t bytes = 0;
	int ret = tarn_session_open(uri, NULL, &pair.other);

	for (size_t i = 0; ret >= 0 && i < rounds; i++)
		ret = refill_round(&pair, (uint64_t)i << 32, sizes[i % count], &bytes);
	tarn_session_close(pair.other);
	return ret;
}

int main(int argc, char **argv)
{
	struct client client = {.value = malloc(VALUE_MAX), .buffer = malloc(VALUE_MAX)};
	int ret;

	if (argc < 5 || argc > 4 + SIZES_MAX || !client.value || !client.buffer)
		return 2;
	client.number = (unsigned)atoi(argv[2]);
	client.random = client.number;
	for (int i = 4; i < argc; i++)
		client.sizes[client.size_count++] = strtoul(argv[i], NULL, 10);
	if (tarn_session_open(argv[1], NULL, &client.session) < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], tarn_last_error_text());
		return 1;
	}
	if (strcmp(argv[3], "add") == 0)
		ret = add(&client, client.sizes[0]);
	else if (strcmp(argv[3], "refill") == 0 && client.size_count > 1)
		ret = refill(argv[1], &client);
	else
		ret = work(&client, strtoull(argv[3], NULL, 10) << 20);
	tarn_session_close(client.session);
	printf("{\"puts\": %lu, \"gets\": %lu, \"hits\": %lu, \"wrong\": %lu, \"slowest_ms\": %.1f}\n",
	       client.puts, client.gets, client.hits, client.wrong, client.slowest_ms);
	free(client.value);
	free(client.buffer);
	return ret < 0 || client.wrong ? 1 : 0;
}
