/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-snapshot.c - the file of a snapshot: written, read, damaged, cut off, gone on with
 *
 * Snapshots of a real pool: tests/integration/test-snapshot.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/snapshot-read.h"
#include "cli/snapshot-write.h"
#include "err.h"

#define LARGE_BYTES (2 * SNAPSHOT_PAYLOAD_BYTES + 12345)

struct folder {
	char path[64], file[80], partial[96];
};

static int setup(void **state)
{
	struct folder *f = calloc(1, sizeof(*f));

	snprintf(f->path, sizeof(f->path), "/tmp/tarn-test-snapshot-XXXXXX");
	if (mkdtemp(f->path) == NULL)
		return -1;
	snprintf(f->file, sizeof(f->file), "%s/snap", f->path);
	snprintf(f->partial, sizeof(f->partial), "%s.partial", f->file);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct folder *f = *state;

	unlink(f->file);
	unlink(f->partial);
	rmdir(f->path);
	free(f);
	return 0;
}

static const struct snapshot_header pool_header = {
	.created_ms = 1, .incarnation = 77, .pool_bytes = 1 << 20, .pool = "main"};

static struct snapshot_file *begin(const struct folder *f, bool force, bool resume)
{
	struct snapshot_wish wish = {.path = f->file, .force = force, .resume = resume};
	struct snapshot_file *file = NULL;

	if (snapshot_file_open(&wish, &pool_header, &file) < 0)
		fail_msg("%s", err_text());
	return file;
}

static int refused(const struct folder *f, bool force, bool resume, const char *word)
{
	struct snapshot_wish wish = {.path = f->file, .force = force, .resume = resume};
	struct snapshot_file *file = NULL;
	int status = snapshot_file_open(&wish, &pool_header, &file);

	assert_true(status < 0);
	if (strstr(err_text(), word) == NULL)
		fail_msg("'%s' is not in: %s", word, err_text());
	return status;
}

/* Record i: its number is key, position, and in the value. */
static int add(struct snapshot_file *file, uint32_t i, uint32_t value_bytes)
{
	unsigned char *value = malloc(value_bytes + 1);
	struct snapshot_record record = {
		.key_bytes = 4,
		.kind = i % 3 == 2 ? TARN_KIND_COUNTER : TARN_KIND_VALUE,
		.user_flags = i,
		.value_bytes = i % 3 == 2 ? 8 : value_bytes,
		.expiry_ms = 1000 * i,
		.stamp = i,
	};
	int status;

	memset(value, (int)i, value_bytes);
	status = snapshot_file_add(file, &record, &i, value, &i, sizeof(i));
	free(value);
	return status;
}

/* A file with these records, whole and named. */
static void make(const struct folder *f, uint32_t records, uint32_t value_bytes)
{
	struct snapshot_file *file;
	uint32_t i;

	unlink(f->file);
	file = begin(f, true, false);
	for (i = 0; i < records; i++)
		assert_int_equal(add(file, i, value_bytes), 0);
	assert_int_equal(access(f->file, F_OK), -1);
	if (snapshot_file_finish(file, 5, 6) < 0)
		fail_msg("%s", err_text());
	snapshot_file_free(file);
	assert_int_equal(access(f->partial, F_OK), -1);
}

/* Reads all; how many records, or a negative code. They must be 0, 1, 2, ... */
static int read_fd(int fd, uint32_t value_bytes)
{
	struct snapshot_reader *reader;
	struct snapshot_record record;
	struct buffer value = {0};
	int n = 0, status = snapshot_reader_open(fd, &reader);

	if (status < 0)
		return status;
	while ((status = snapshot_reader_next(reader, n % 2 ? &value : NULL, &record)) == 1) {
		uint32_t key;

		memcpy(&key, reader->key, 4);
		assert_int_equal(record.key_bytes, 4);
		assert_int_equal(key, n);
		assert_int_equal(record.user_flags, n);
		assert_int_equal(record.expiry_ms, 1000 * n);
		assert_int_equal(record.value_bytes, n % 3 == 2 ? 8 : value_bytes);
		if (n % 2 && record.value_bytes > 0)
			assert_true(value.bytes[0] == (n & 255) &&
				    value.bytes[record.value_bytes - 1] == (n & 255));
		n++;
	}
	if (status == 0) {
		assert_int_equal(reader->totals.vanished, 5);
		assert_int_equal(reader->totals.damaged, 6);
		assert_int_equal(reader->totals.values + reader->totals.counters, n);
	}
	buffer_free(&value);
	snapshot_reader_free(reader);
	return status < 0 ? status : n;
}

static int read_file(const struct folder *f, uint32_t value_bytes)
{
	int fd = open(f->file, O_RDONLY | O_CLOEXEC), n;

	assert_true(fd >= 0);
	n = read_fd(fd, value_bytes);
	close(fd);
	return n;
}

static int memory_file(const void *bytes, size_t n)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);

	assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
	return fd;
}

static unsigned char *load(const struct folder *f, size_t *ret_n)
{
	int fd = open(f->file, O_RDONLY | O_CLOEXEC);
	struct stat st;
	unsigned char *bytes;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	bytes = malloc((size_t)st.st_size + 64);
	assert_true(read(fd, bytes, (size_t)st.st_size) == st.st_size);
	close(fd);
	*ret_n = (size_t)st.st_size;
	return bytes;
}

static void test_round_trip(void **state)
{
	const struct folder *f = *state;
	struct stat st;

	make(f, 0, 0);
	assert_int_equal(read_file(f, 0), 0);
	make(f, 7, 100);
	assert_int_equal(read_file(f, 100), 7);
	assert_int_equal(stat(f->file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* many records in a chunk, and many chunks in a record */
	make(f, 3000, 1000);
	assert_int_equal(read_file(f, 1000), 3000);
	make(f, 5, LARGE_BYTES);
	assert_int_equal(read_file(f, LARGE_BYTES), 5);
	make(f, 4, SNAPSHOT_PAYLOAD_BYTES - 36);
	assert_int_equal(read_file(f, SNAPSHOT_PAYLOAD_BYTES - 36), 4);
}

/* Cut off anywhere, with anything behind it, with any bit changed: refused, and the offset is said. */
static void test_damage(void **state)
{
	const struct folder *f = *state;
	unsigned char *bytes;
	size_t n, i;
	int fd;

	make(f, 4, 50);
	bytes = load(f, &n);
	for (i = 0; i < n; i++) {
		fd = memory_file(bytes, i);
		assert_int_equal(read_fd(fd, 50), -TARN_ECORRUPT);
		assert_non_null(strstr(err_text(), "offset"));
		close(fd);
	}
	bytes[n] = 'x';
	fd = memory_file(bytes, n + 1);
	assert_int_equal(read_fd(fd, 50), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "1 bytes are behind that"));
	for (i = 0; i < 8 * n; i++) {
		unsigned char wrong = bytes[i / 8] ^ (unsigned char)(1u << i % 8);
		unsigned long first, last;
		const char *where;
		int status;

		assert_int_equal(pwrite(fd, &wrong, 1, (off_t)(i / 8)), 1);
		assert_int_equal(ftruncate(fd, (off_t)n), 0);
		status = read_fd(fd, 50);
		assert_true(status == -TARN_ECORRUPT ||
			    (status == -TARN_EVERSION && i / 8 >= 8 && i / 8 < 12));
		where = strstr(err_text(), "offset ");
		assert_non_null(where);
		if (sscanf(where, "offset %lu to %lu", &first, &last) == 2)
			assert_true(i / 8 >= first && i / 8 <= last);
		else
			assert_true(i / 8 < 12);
		assert_int_equal(pwrite(fd, bytes + i / 8, 1, (off_t)(i / 8)), 1);
	}
	assert_int_equal(read_fd(fd, 50), 4);
	close(fd);
	free(bytes);
}

/* Whole chunks, in the wrong order, twice, left out, or of another file. */
static void test_chunks(void **state)
{
	const struct folder *f = *state;
	const uint32_t size = SNAPSHOT_PAYLOAD_BYTES - 36;
	const size_t chunk = 64 + SNAPSHOT_PAYLOAD_BYTES + 4;
	unsigned char *bytes, *other, *copy;
	size_t n, m, at = 512;
	int fd;

	make(f, 3, size);
	bytes = load(f, &n);
	make(f, 3, size);
	other = load(f, &m);
	assert_int_equal(n, m);
	copy = malloc(n);
	/* the first two are records 0 and 1, of the same size */
	memcpy(copy, bytes, n);
	memcpy(copy + at, bytes + at + chunk, chunk);
	memcpy(copy + at + chunk, bytes + at, chunk);
	fd = memory_file(copy, n);
	assert_int_equal(read_fd(fd, size), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "chunk 0 is missing at offset 512"));
	close(fd);
	memcpy(copy + at, bytes + at + chunk, n - at - chunk);
	fd = memory_file(copy, n - chunk);
	assert_int_equal(read_fd(fd, size), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "chunk 0 is missing"));
	close(fd);
	memcpy(copy, bytes, n);
	memcpy(copy + at + chunk, other + at + chunk, chunk);
	fd = memory_file(copy, n);
	assert_int_equal(read_fd(fd, size), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "another snapshot"));
	close(fd);
	free(copy);
	free(other);
	free(bytes);
}

/* ---- files whose checksums are right ---------------------------------------------------------- */

struct forged {
	struct snapshot_header header;
	struct snapshot_chunk chunk;
	struct snapshot_record record;
	unsigned char rest[SNAPSHOT_PAYLOAD_BYTES];
};

/* One chunk of `payload` bytes that begins with `record`. */
static int read_forged(struct forged *forged, const struct snapshot_record *record,
		       uint32_t payload, uint32_t position, uint32_t type)
{
	int fd, status;

	forged->header = pool_header;
	snapshot_header_seal(&forged->header);
	forged->record = *record;
	forged->chunk = (struct snapshot_chunk){
		.type = type, .payload_bytes = payload, .position_bytes = position};
	snapshot_chunk_seal(&forged->chunk, &forged->record);
	fd = memory_file(forged, sizeof(*forged));
	status = read_fd(fd, 0);
	close(fd);
	return status;
}

static void test_forged(void **state)
{
	static struct forged forged;
	const struct snapshot_record good = {
		.key_bytes = 4, .kind = TARN_KIND_VALUE, .value_bytes = 0};
	struct snapshot_record r = good;
	const uint32_t whole = sizeof(r) + 4;

	(void)state;
	r.key_bytes = 0;
	assert_int_equal(read_forged(&forged, &r, whole, 8, 1), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "offset 576"));
	r = good;
	r.kind = 3;
	assert_int_equal(read_forged(&forged, &r, whole, 8, 1), -TARN_ECORRUPT);
	r = good;
	r.value_bytes = SNAPSHOT_VALUE_MAX_BYTES + 1;
	assert_int_equal(read_forged(&forged, &r, whole, 8, 1), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "impossible"));
	/* no room is made for what the file can not hold */
	r.value_bytes = SNAPSHOT_VALUE_MAX_BYTES;
	assert_int_equal(read_forged(&forged, &r, whole, 0, 1), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "are left"));
	r = good;
	r.kind = TARN_KIND_COUNTER;
	r.value_bytes = 7;
	assert_int_equal(read_forged(&forged, &r, whole, 8, 1), -TARN_ECORRUPT);
	r = good;
	r.value_bytes = 100;
	assert_int_equal(read_forged(&forged, &r, whole, 8, 1), -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "goes on behind"));
	assert_int_equal(read_forged(&forged, &good, 0, 8, 1), -TARN_ECORRUPT);
	assert_int_equal(read_forged(&forged, &good, whole, 8, 3), -TARN_ECORRUPT);
	assert_int_equal(read_forged(&forged, &good, whole, 8, 2), -TARN_ECORRUPT);
	/* totals of records that are not there */
	assert_int_equal(read_forged(&forged, &good, sizeof(struct snapshot_totals), 0, 2),
			 -TARN_ECORRUPT);
	assert_non_null(strstr(err_text(), "totals"));
	assert_int_equal(read_forged(&forged, &good, SNAPSHOT_PAYLOAD_BYTES + 1, 0, 9),
			 -TARN_ECORRUPT);
}

/* ---- the file's life -------------------------------------------------------------------------- */

static void test_names(void **state)
{
	const struct folder *f = *state;
	struct snapshot_file *file;

	make(f, 1, 1);
	assert_int_equal(refused(f, false, false, "--force"), -EEXIST);
	assert_int_equal(refused(f, false, true, "--force"), -EEXIST);
	unlink(f->file);
	file = begin(f, false, false);
	/* one writer at a time */
	assert_int_equal(refused(f, true, false, "another tarn is"), -EWOULDBLOCK);
	assert_int_equal(refused(f, false, true, "another tarn is"), -EWOULDBLOCK);
	snapshot_file_free(file);
	assert_int_equal(refused(f, false, false, "--resume"), -EEXIST);
	/* made meanwhile by somebody else: not replaced */
	file = begin(f, true, false);
	snapshot_file_free(file);
	file = begin(f, false, true);
	close(open(f->file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(add(file, 0, 1), 0);
	assert_int_equal(snapshot_file_finish(file, 5, 6), -EEXIST);
	snapshot_file_free(file);
	unlink(f->file);
	unlink(f->partial);
	/* no regular files */
	assert_int_equal(mkdir(f->file, 0700), 0);
	assert_int_equal(refused(f, true, false, "directory"), -EISDIR);
	rmdir(f->file);
	assert_int_equal(mkfifo(f->file, 0600), 0);
	assert_int_equal(refused(f, true, false, "pipe"), -EINVAL);
	unlink(f->file);
	assert_int_equal(symlink("/etc/passwd", f->partial), 0);
	assert_int_equal(refused(f, true, false, "partial"), -ELOOP);
}

/* Cut off at any byte, then gone on with: the records are those that they would have been. */
static void test_resume(void **state)
{
	const struct folder *f = *state;
	struct snapshot_file *file = begin(f, false, false);
	unsigned char *bytes;
	uint64_t whole;
	size_t n, cut;
	uint32_t i;

	for (i = 0; i < 6; i++) {
		assert_int_equal(add(file, i, 20), 0);
		assert_int_equal(snapshot_file_flush(file), 0);
	}
	whole = snapshot_file_bytes(file);
	assert_int_equal(snapshot_file_finish(file, 5, 6), 0);
	snapshot_file_free(file);
	bytes = load(f, &n);
	for (cut = 0; cut <= n; cut++) {
		const void *position;
		size_t position_bytes;
		uint32_t next = 0;
		int fd;

		unlink(f->file);
		fd = open(f->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		assert_true(write(fd, bytes, cut) == (ssize_t)cut);
		close(fd);
		file = begin(f, false, true);
		assert_int_equal(snapshot_file_is_whole(file), cut == n);
		position = snapshot_file_position(file, &position_bytes);
		memcpy(&next, position, position_bytes);
		next += position_bytes > 0;
		assert_int_equal(snapshot_file_totals(file)->values +
					 snapshot_file_totals(file)->counters,
				 next);
		assert_int_equal(next == 6, cut >= whole);
		for (; next < 6; next++)
			assert_int_equal(add(file, next, 20), 0);
		if (snapshot_file_finish(file, 5, 6) < 0)
			fail_msg("%s", err_text());
		snapshot_file_free(file);
		assert_int_equal(read_file(f, 20), 6);
	}
	free(bytes);
}

static void test_resume_refused(void **state)
{
	const struct folder *f = *state;
	struct snapshot_wish wish = {.path = f->file, .resume = true};
	struct snapshot_header other = pool_header;
	struct snapshot_file *file = begin(f, false, false);
	struct stat before, after;
	int fd;

	assert_int_equal(add(file, 0, 1), 0);
	assert_int_equal(snapshot_file_flush(file), 0);
	snapshot_file_free(file);
	assert_int_equal(stat(f->partial, &before), 0);
	other.incarnation++;
	assert_int_equal(snapshot_file_open(&wish, &other, &file), -TARN_ERESTARTED);
	assert_non_null(strstr(err_text(), "incarnation"));
	assert_int_equal(stat(f->partial, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	fd = open(f->partial, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "X", 1, 100), 1);
	close(fd);
	assert_int_equal(refused(f, false, true, "--force"), -TARN_ECORRUPT);
	file = begin(f, true, false);
	snapshot_file_free(file);
}

/* A disk that is full, as far as a limit can be one; then there is room again. */
static void test_full(void **state)
{
	const struct folder *f = *state;
	struct snapshot_file *file = begin(f, false, false);
	struct rlimit limit, small;
	uint32_t i = 0;
	size_t n;
	int status = 0;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = 3 * SNAPSHOT_PAYLOAD_BYTES + 4711;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	while (status == 0 && i < 100)
		status = add(file, i++, 100000);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(status, -EFBIG);
	assert_non_null(strstr(err_text(), "too large"));
	snapshot_file_free(file);
	assert_int_equal(access(f->file, F_OK), -1);
	file = begin(f, false, true);
	memcpy(&i, snapshot_file_position(file, &n), 4);
	assert_int_equal(n, 4);
	assert_true(i > 20);
	for (i++; i < 60; i++)
		assert_int_equal(add(file, i, 100000), 0);
	assert_int_equal(snapshot_file_finish(file, 5, 6), 0);
	snapshot_file_free(file);
	assert_int_equal(read_file(f, 100000), 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_chunks, setup, teardown),
		cmocka_unit_test(test_forged),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
		cmocka_unit_test_setup_teardown(test_resume_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
