/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * filler.c - fills a pool, changes it, and checks it, for test-snapshot.py
 *
 *	filler URI fill FIRST END     puts the keys FIRST to END - 1
 *	filler URI load FIRST END     puts random ones of them again until standard input ends
 *	filler URI check FIRST END    all of them must be there and whole; prints how many of each kind
 *	filler URI check-some FIRST END    the same, but some may be missing
 *
 * A key's number decides what it is: each 7th a counter, each 10th has a time to live, each 1000th is
 * larger than a page. A value says which key it is of and which put of it this is, and length and
 * content follow from that.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tarn/tarn.h>

#define VALUE_MAX   (1u << 20)
#define TTL_MS      3600000u
#define TTL_LEFT_MS 3000000u

struct header {
	uint32_t key, sequence, bytes, reserved;
};

static unsigned char value[VALUE_MAX], expected[VALUE_MAX];

static void fail(const char *what, uint32_t number)
{
	fprintf(stderr, "filler: %s, key %u: %s\n", what, number, tarn_last_error_text());
	exit(1);
}

static uint32_t value_length(uint32_t number, uint32_t sequence)
{
	uint32_t n = sizeof(struct header) + (number * 31 + sequence * 17) % 400;

	return number % 1000 == 8 ? n + 262144 + (number * 7919 + sequence * 131) % 300000 : n;
}

static uint32_t make_value(uint32_t number, uint32_t sequence, unsigned char *to)
{
	uint32_t n = value_length(number, sequence), i;
	struct header header = {.key = number, .sequence = sequence, .bytes = n};

	memcpy(to, &header, sizeof(header));
	for (i = sizeof(header); i < n; i++)
		to[i] = (unsigned char)(number + 3 * sequence + i % 251);
	return n;
}

static size_t make_key(uint32_t number, char key[32])
{
	return (size_t)snprintf(key, 32, "key/%" PRIu32, number);
}

static bool is_counter(uint32_t number)
{
	return number % 7 == 3;
}

static void put(struct tarn_session *session, uint32_t number, uint32_t sequence)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	int64_t count = (int64_t)number - 1000000;
	uint32_t n = make_value(number, sequence, value);
	char key[32];
	size_t key_bytes = make_key(number, key);

	options.user_flags = number ^ 0xabcd;
	options.expiry_ms = number % 10 == 0 ? TTL_MS : 0;
	if (is_counter(number))
		options.flags = TARN_PUT_COUNTER;
	if (tarn_put(session, key, key_bytes, is_counter(number) ? (void *)&count : value,
		     is_counter(number) ? sizeof(count) : n, &options, NULL) < 0)
		fail("put", number);
}

static void load(struct tarn_session *session, uint32_t first, uint32_t end)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t random = (uint64_t)getpid();
	uint32_t sequence = 0;

	while (poll(&in, 1, 0) == 0) {
		uint32_t number;

		random = random * 6364136223846793005u + 1442695040888963407u;
		number = first + (uint32_t)((random >> 33) % (end - first));
		put(session, number, ++sequence);
	}
	printf("%u\n", sequence);
}

static void check_item(uint32_t number, const struct tarn_item *item)
{
	const struct header *header = (const struct header *)(const void *)value;
	int64_t count = (int64_t)number - 1000000;

	if (item->user_flags != (number ^ 0xabcd))
		fail("flags", number);
	if ((number % 10 == 0) != (item->expiry_ms != 0) || item->expiry_ms > TTL_MS + 10000 ||
	    (item->expiry_ms != 0 && item->expiry_ms < TTL_LEFT_MS))
		fail("time to live", number);
	if ((item->kind == TARN_KIND_COUNTER) != is_counter(number))
		fail("kind", number);
	if (is_counter(number) ? memcmp(value, &count, sizeof(count)) != 0
			       : item->value_bytes < sizeof(*header) || header->key != number ||
					 make_value(number, header->sequence, expected) !=
						 item->value_bytes ||
					 memcmp(value, expected, item->value_bytes) != 0)
		fail("value", number);
}

static void check(struct tarn_session *session, uint32_t first, uint32_t end, bool some)
{
	uint32_t number, keys = 0, counters = 0, changed = 0, large = 0;

	for (number = first; number < end; number++) {
		struct tarn_item item = TARN_ITEM_INIT;
		char key[32];
		int status = tarn_get(session, key, make_key(number, key), value, sizeof(value),
				      &item);

		if (status == -TARN_ENOTFOUND && some)
			continue;
		if (status < 0)
			fail("get", number);
		check_item(number, &item);
		keys++;
		counters += is_counter(number);
		large += item.value_bytes > 262144;
		changed += !is_counter(number) &&
			   ((const struct header *)(const void *)value)->sequence > 0;
	}
	printf("{\"keys\": %u, \"counters\": %u, \"changed\": %u, \"large\": %u}\n", keys, counters,
	       changed, large);
}

int main(int argc, char **argv)
{
	struct tarn_session *session;
	uint32_t first, end, number;

	if (argc != 5)
		return 2;
	first = (uint32_t)strtoul(argv[3], NULL, 10);
	end = (uint32_t)strtoul(argv[4], NULL, 10);
	if (tarn_session_open(argv[1], NULL, &session) < 0)
		fail("open", 0);
	if (strcmp(argv[2], "fill") == 0)
		for (number = first; number < end; number++)
			put(session, number, 0);
	else if (strcmp(argv[2], "load") == 0)
		load(session, first, end);
	else
		check(session, first, end, strcmp(argv[2], "check-some") == 0);
	tarn_session_close(session);
	return 0;
}
