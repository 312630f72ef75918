/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soak.c - one client of soak.py: works on its own keys until it is told to stop or is killed
 *
 *	soak URI ID JOURNAL [verify]
 *
 * What may be there is in the journal, a file that both map, so that it survives kill -9: before each
 * write what it may leave behind is noted, afterwards what it has. A value that can not be there, a
 * key that is lost, a torn value: one line on standard error, exit code 1. Errors that pass (the
 * daemon was started again) are counted. verify: read every key once, and end.
 *
 * Which keys exist is the journal's `live`: it follows `target`, which soak.py moves, so that the
 * pool grows and shrinks, key by key and many in one call.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tarn/tarn.h>

#include "clock.h"

#define ABSENT     0u
#define OPEN_MAX   3u
#define VALUE_MAX  600000u
#define BATCH      64u    /* keys in one call */
#define BATCH_MAX  20000u /* bytes of a value in it */
#define FAR        1000u  /* keys */
#define SETTLE_MS  1500u  /* a write of unknown outcome takes effect by then, or never */
#define TIMEOUT_MS 20000u

/* What a key can hold: the value written last, and those of writes whose outcome is open. */
struct entry {
	uint32_t acked;
	uint32_t open[OPEN_MAX];
	uint32_t open_count;
	uint32_t open_ms; /* of the last open write, wall clock, low bits */
};

/* soak.py knows this layout. All numbers are 8 bytes. */
struct journal {
	uint64_t target, stop, capacity; /* soak.py */
	uint64_t live, sequence;
	int64_t added, add_open_low, add_open_high; /* to this client's counter */
	int64_t add_intent;                         /* 0: none under way */
	uint64_t successes, failures, full, starts, busy_ms;
	uint8_t padding[4096 - 14 * 8];
	struct entry entries[];
};

struct soak {
	struct tarn_session *session;
	struct journal *journal;
	uint32_t id;
	uint64_t random;
	unsigned char *value, *expected, *values; /* values: of a batch */
};

static uint32_t below(struct soak *s, uint32_t limit)
{
	s->random = s->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((s->random >> 33) % limit);
}

static uint32_t now_ms(void)
{
	return (uint32_t)clock_wall_ms();
}

/* ---- values: all of one follows from who, which key and which sequence number ---- */

/*
 * Small ones of all lengths; of larger ones a few lengths only: a client that is killed leaves a page
 * behind for each size class that it has used.
 */
static uint32_t value_length(uint32_t sequence)
{
	static const uint32_t larger[] = {300, 800, 2000, 4000, 9000, 20000};
	uint32_t mixed = sequence * 2654435761u, kind = mixed >> 8 & 0xffff;

	if (kind < 3)
		return 300000 + mixed % 300000; /* in extents */
	if (kind < 700)
		return larger[3 + mixed % 3];
	if (kind < 3000)
		return larger[mixed % 3];
	return 16 + mixed % 184;
}

static uint32_t ttl_ms(uint32_t sequence)
{
	return sequence % 64 == 7 ? 2000 : 0;
}

static void make_value(const struct soak *s, uint32_t key, uint32_t sequence, unsigned char *to)
{
	uint32_t length = value_length(sequence), head[4] = {s->id, key, sequence, length};

	memcpy(to, head, sizeof(head));
	for (uint32_t i = sizeof(head); i < length; i++)
		to[i] = (unsigned char)((i * 31 + sequence * 7 + key) % 251);
}

static size_t key_name(const struct soak *s, uint32_t key, char name[32])
{
	return (size_t)snprintf(name, 32, "soak/%" PRIu32 "/%" PRIu32, s->id, key);
}

/* ---- the journal ---- */

static void wrong(const struct soak *s, uint32_t key, const char *text, uint32_t sequence)
{
	const struct entry *entry = &s->journal->entries[key];

	fprintf(stderr, "soak %" PRIu32 ": key %" PRIu32 " %s (%" PRIu32 "); allowed: %" PRIu32,
		s->id, key, text, sequence, entry->acked);
	for (uint32_t i = 0; i < entry->open_count && i < OPEN_MAX; i++)
		fprintf(stderr, " %" PRIu32, entry->open[i]);
	fprintf(stderr, "\n");
	exit(1);
}

static void settle(struct entry *entry, uint32_t sequence)
{
	entry->acked = sequence;
	entry->open_count = 0;
}

static bool may_be(const struct entry *entry, uint32_t sequence)
{
	if (entry->acked == sequence)
		return true;
	for (uint32_t i = 0; i < entry->open_count; i++)
		if (entry->open[i] == sequence)
			return true;
	return false;
}

static bool may_be_absent(const struct entry *entry)
{
	if (may_be(entry, ABSENT) || ttl_ms(entry->acked))
		return true;
	for (uint32_t i = 0; i < entry->open_count; i++)
		if (ttl_ms(entry->open[i]))
			return true;
	return false;
}

/* Before a write. False: too much is open; a get has to settle it first. */
static bool intend(struct entry *entry, uint32_t sequence)
{
	if (entry->open_count == OPEN_MAX)
		return false;
	entry->open[entry->open_count] = sequence;
	entry->open_ms = now_ms();
	/* Killed here at the latest, the journal knows. */
	__atomic_store_n(&entry->open_count, entry->open_count + 1, __ATOMIC_RELEASE);
	return true;
}

static void count(struct soak *s, int status)
{
	if (status == 0 || status == -TARN_ENOTFOUND) {
		s->journal->successes++;
		return;
	}
	if (status == -TARN_ECORRUPT || status == -TARN_ETYPE || status == -TARN_EPROTO ||
	    status == -EINVAL) {
		fprintf(stderr, "soak %" PRIu32 ": %s: %s\n", s->id, tarn_error_name(status),
			tarn_last_error_text());
		exit(1);
	}
	if (status == -TARN_EPOOLFULL || status == -TARN_EINDEXFULL) {
		if (s->journal->full++ == 0)
			fprintf(stderr, "soak %" PRIu32 ": %s\n", s->id, tarn_last_error_text());
	} else {
		s->journal->failures++;
	}
	clock_sleep_ns(1000000); /* a call that fails at once must not spin */
}

/* ---- operations ---- */

static void do_get(struct soak *s, uint32_t key)
{
	struct entry *entry = &s->journal->entries[key];
	bool settles = now_ms() - entry->open_ms > SETTLE_MS;
	struct tarn_item item = TARN_ITEM_INIT;
	uint32_t head[4];
	char name[32];
	size_t length = key_name(s, key, name);
	int status = tarn_get(s->session, name, length, s->value, VALUE_MAX, &item);

	count(s, status);
	if (status == -TARN_ENOTFOUND) {
		if (!may_be_absent(entry))
			wrong(s, key, "is lost", 0);
		if (settles)
			settle(entry, ABSENT);
		return;
	}
	if (status < 0)
		return;
	if (item.value_bytes < sizeof(head))
		wrong(s, key, "is too short", 0);
	memcpy(head, s->value, sizeof(head));
	if (head[0] != s->id || head[1] != key)
		wrong(s, key, "holds another key's value", head[2]);
	if (!may_be(entry, head[2]))
		wrong(s, key, "holds a value that can not be there", head[2]);
	make_value(s, key, head[2], s->expected);
	if (item.value_bytes != value_length(head[2]) ||
	    memcmp(s->expected, s->value, item.value_bytes) != 0)
		wrong(s, key, "is torn", head[2]);
	if (settles)
		settle(entry, head[2]);
}

/* What has come of a write. True: it has taken effect. */
static bool put_ended(struct soak *s, uint32_t key, uint32_t sequence, int status)
{
	struct entry *entry = &s->journal->entries[key];

	count(s, status);
	if (status == 0)
		settle(entry, sequence);
	else if (status != -TARN_EAMBIGUOUS)
		entry->open_count--;
	return status == 0;
}

static bool delete_ended(struct soak *s, uint32_t key, int status)
{
	struct entry *entry = &s->journal->entries[key];
	bool gone = status == 0 || status == -TARN_ENOTFOUND;

	count(s, status);
	if (status == -TARN_ENOTFOUND) {
		entry->open_count--;
		if (!may_be_absent(entry))
			wrong(s, key, "could not be deleted: it is lost", 0);
		entry->open_count++;
	}
	if (gone)
		settle(entry, ABSENT);
	else if (status != -TARN_EAMBIGUOUS)
		entry->open_count--;
	return gone;
}

static bool do_put(struct soak *s, uint32_t key)
{
	struct tarn_put_options options = TARN_PUT_INIT;
	struct entry *entry = &s->journal->entries[key];
	uint32_t sequence = (uint32_t)++s->journal->sequence;
	char name[32];
	size_t length = key_name(s, key, name);
	int status;

	if (!intend(entry, sequence)) {
		do_get(s, key);
		return false;
	}
	make_value(s, key, sequence, s->value);
	options.expiry_ms = ttl_ms(sequence);
	status = tarn_put(s->session, name, length, s->value, value_length(sequence), &options,
			  NULL);
	return put_ended(s, key, sequence, status);
}

static bool do_delete(struct soak *s, uint32_t key)
{
	struct entry *entry = &s->journal->entries[key];
	char name[32];
	size_t length = key_name(s, key, name);

	if (!intend(entry, ABSENT)) {
		do_get(s, key);
		return false;
	}
	return delete_ended(s, key, tarn_delete(s->session, name, length));
}

/* One more than `live` may be there: it was put when we were killed. */
static void grow(struct soak *s)
{
	if (do_put(s, (uint32_t)s->journal->live))
		s->journal->live++;
}

static void shrink(struct soak *s)
{
	if (do_delete(s, (uint32_t)s->journal->live - 1))
		s->journal->live--;
}

/* Up to `most` keys in one call, or up to one whose value is too large for it. */
static void grow_many(struct soak *s, uint32_t most)
{
	struct tarn_put_options options[BATCH];
	struct tarn_mput items[BATCH];
	struct journal *j = s->journal;
	uint32_t first = (uint32_t)j->live, n = 0, done = 0, sequences[BATCH];
	char names[BATCH][32];
	bool all = true;
	int status;

	for (; n < most && n < BATCH; n++) {
		sequences[n] = (uint32_t)j->sequence + 1;
		if (value_length(sequences[n]) > BATCH_MAX)
			break;
		j->sequence++;
		if (!intend(&j->entries[first + n], sequences[n]))
			break;
		make_value(s, first + n, sequences[n], s->values + (size_t)n * BATCH_MAX);
		options[n] = (struct tarn_put_options)TARN_PUT_INIT;
		options[n].expiry_ms = ttl_ms(sequences[n]);
		items[n] = (struct tarn_mput){
			.key = names[n],
			.key_bytes = key_name(s, first + n, names[n]),
			.value = s->values + (size_t)n * BATCH_MAX,
			.value_bytes = value_length(sequences[n]),
			.options = &options[n],
		};
	}
	if (n == 0) {
		grow(s);
		return;
	}
	status = tarn_mput(s->session, items, n);
	for (uint32_t i = 0; i < n; i++) {
		all = put_ended(s, first + i, sequences[i],
				status < 0 ? status : items[i].status) &&
		      all;
		done += all;
	}
	j->live += done;
}

static void shrink_many(struct soak *s, uint32_t most)
{
	struct tarn_mdelete items[BATCH];
	struct journal *j = s->journal;
	uint32_t last = (uint32_t)j->live - 1, n = 0, done = 0;
	char names[BATCH][32];
	bool all = true;
	int status;

	for (; n < most && n < BATCH && intend(&j->entries[last - n], ABSENT); n++)
		items[n] = (struct tarn_mdelete){.key = names[n],
						 .key_bytes = key_name(s, last - n, names[n])};
	if (n == 0) {
		shrink(s);
		return;
	}
	status = tarn_mdelete(s->session, items, n);
	for (uint32_t i = 0; i < n; i++) {
		all = delete_ended(s, last - i, status < 0 ? status : items[i].status) && all;
		done += all;
	}
	j->live -= done;
}

/* What an add that nobody saw the end of may have done. */
static void add_open(struct journal *journal, int64_t delta)
{
	if (delta < 0)
		journal->add_open_low += delta;
	else
		journal->add_open_high += delta;
	journal->add_intent = 0;
}

static void do_add(struct soak *s)
{
	int64_t delta = (int64_t)below(s, 200) - 100;
	char name[32];
	size_t length = (size_t)snprintf(name, sizeof(name), "soak/%" PRIu32 "/adds", s->id);
	int status;

	if (delta == 0)
		return;
	s->journal->add_intent = delta;
	status = tarn_add(s->session, name, length, delta, NULL);
	count(s, status);
	if (status == 0)
		s->journal->added += delta;
	else if (status == -TARN_EAMBIGUOUS || status == -TARN_ECONFLICT)
		add_open(s->journal, delta);
	s->journal->add_intent = 0;
}

/* Skewed: low numbers often. */
static uint32_t choose(struct soak *s, uint32_t live)
{
	uint32_t span = live;

	while (span > 64 && below(s, 4))
		span = span / 4 + 1;
	return below(s, span);
}

static void one_operation(struct soak *s)
{
	struct journal *j = s->journal;
	uint64_t target = __atomic_load_n(&j->target, __ATOMIC_RELAXED);
	uint32_t live = (uint32_t)j->live, kind = below(s, 100);
	/* who is far behind catches up, mostly by batches */
	bool far = live + FAR < target || target + FAR < live;
	uint32_t moves = far ? 90 : 60, single = far ? 5 : 30;

	if (live < target && kind < moves) {
		if (kind < single)
			grow(s);
		else
			grow_many(s, (uint32_t)(target - live));
	} else if (live > target && kind < moves) {
		if (kind < single)
			shrink(s);
		else
			shrink_many(s, (uint32_t)(live - target));
	} else if (kind < moves + 2) {
		do_add(s);
	} else if (live && kind < (far ? 96 : 85)) {
		do_get(s, choose(s, live));
	} else if (live) {
		do_put(s, choose(s, live));
	}
}

static void verify(struct soak *s)
{
	char name[32];
	size_t length = (size_t)snprintf(name, sizeof(name), "soak/%" PRIu32 "/adds", s->id);
	struct tarn_item item = TARN_ITEM_INIT;
	int64_t sum = 0;
	int status;

	for (uint32_t key = 0; key < s->journal->capacity; key++)
		if (key < s->journal->live || s->journal->entries[key].acked ||
		    s->journal->entries[key].open_count)
			do_get(s, key);
	status = tarn_get(s->session, name, length, &sum, sizeof(sum), &item);
	if (status == -TARN_ENOTFOUND)
		sum = 0;
	else if (status < 0)
		count(s, status);
	if (sum < s->journal->added + s->journal->add_open_low ||
	    sum > s->journal->added + s->journal->add_open_high) {
		fprintf(stderr,
			"soak %" PRIu32 ": counter is %" PRId64 ", expected %" PRId64 " + [%" PRId64
			", %" PRId64 "]\n",
			s->id, sum, s->journal->added, s->journal->add_open_low,
			s->journal->add_open_high);
		exit(1);
	}
}

static bool begin(struct soak *s, const char *uri, const char *path)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;

	options.timeout_ms = TIMEOUT_MS;
	if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(struct journal)) {
		perror(path);
		return false;
	}
	s->journal = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	s->value = malloc(VALUE_MAX);
	s->expected = malloc(VALUE_MAX);
	s->values = malloc((size_t)BATCH * BATCH_MAX);
	if (s->journal == MAP_FAILED || !s->value || !s->expected || !s->values ||
	    s->journal->capacity >
		    ((size_t)st.st_size - sizeof(struct journal)) / sizeof(struct entry)) {
		fprintf(stderr, "soak %" PRIu32 ": journal or memory\n", s->id);
		return false;
	}
	s->random = clock_now_ns() ^ (uint64_t)s->id << 32;
	if (s->journal->add_intent)
		add_open(s->journal, s->journal->add_intent);
	s->journal->starts++;
	if (tarn_session_open(uri, &options, &s->session) < 0) {
		fprintf(stderr, "soak %" PRIu32 ": %s\n", s->id, tarn_last_error_text());
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct soak s = {0};

	if (argc < 4)
		return 2;
	s.id = (uint32_t)atoi(argv[2]);
	if (!begin(&s, argv[1], argv[3]))
		return 3; /* soak.py starts it again */
	if (argc > 4)
		verify(&s);
	while (argc == 4 && !__atomic_load_n(&s.journal->stop, __ATOMIC_RELAXED))
		one_operation(&s);
	tarn_session_close(s.session);
	free(s.value);
	free(s.expected);
	free(s.values);
	return 0;
}
